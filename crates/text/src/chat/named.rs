//! Templates by name, with the answers marked. An answer ends with the token that ends a turn, which is
//! trained on.
//!
//! | name | a turn | models |
//! |---|---|---|
//! | `chatml` | `<\|im_start\|>role`, a line, `<\|im_end\|>`, a line feed | Qwen, SmolLM, many others |
//! | `llama3` | `<\|start_header_id\|>role<\|end_header_id\|>`, a line, `<\|eot_id\|>` | Llama 3 |
//! | `gemma` | `<start_of_turn>role` (`model`), a line, `<end_of_turn>`, a line feed | Gemma 1 to 3 |
//! | `mistral` | `[INST] question[/INST] answer</s>` | Mistral 7B Instruct v0.3 |
//!
//! A system message stands in a turn of its own in the first two, and before the first question in the
//! others. Source: the models' cards and papers; the texts are our own.

/// Names, templates, and the special tokens that each writes.
pub(super) const TEMPLATES: [(&str, &str, &[&str]); 4] = [
    ("chatml", CHATML, &["<|im_start|>", "<|im_end|>"]),
    ("llama3", LLAMA3, &["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]),
    ("gemma", GEMMA, &["<bos>", "<start_of_turn>", "<end_of_turn>"]),
    ("mistral", MISTRAL, &["<s>", "</s>", "[INST]", "[/INST]"]),
];

/// The template of this name, and its special tokens.
pub(super) fn find(name: &str) -> Option<(&'static str, &'static [&'static str])> {
    TEMPLATES.iter().find(|(known, ..)| *known == name).map(|(_, source, special)| (*source, *special))
}

const CHATML: &str = "\
{%- for message in messages -%}
{%- if message.content is not string -%}
{{- raise_exception('message ' ~ loop.index0 ~ ' has no content, or one that is no text') -}}
{%- endif -%}
{{- '<|im_start|>' + message.role + '\\n' -}}
{%- if message.role == 'assistant' -%}
{%- generation -%}{{- message.content + '<|im_end|>' -}}{%- endgeneration -%}
{%- else -%}
{{- message.content + '<|im_end|>' -}}
{%- endif -%}
{{- '\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
";

const LLAMA3: &str = "\
{{- '<|begin_of_text|>' -}}
{%- for message in messages -%}
{%- if message.content is not string -%}
{{- raise_exception('message ' ~ loop.index0 ~ ' has no content, or one that is no text') -}}
{%- endif -%}
{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' -}}
{%- if message.role == 'assistant' -%}
{%- generation -%}{{- message.content | trim + '<|eot_id|>' -}}{%- endgeneration -%}
{%- else -%}
{{- message.content | trim + '<|eot_id|>' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}
{%- endif -%}
";

const GEMMA: &str = "\
{{- '<bos>' -}}
{%- set ns = namespace(system='') -%}
{%- for message in messages -%}
{%- if message.content is not string -%}
{{- raise_exception('message ' ~ loop.index0 ~ ' has no content, or one that is no text') -}}
{%- endif -%}
{%- if message.role == 'system' -%}
{%- if not loop.first -%}{{- raise_exception('a system message must be the first message') -}}{%- endif -%}
{%- set ns.system = message.content | trim + '\\n\\n' -%}
{%- elif message.role == 'assistant' -%}
{{- '<start_of_turn>model\\n' -}}
{%- generation -%}{{- message.content | trim + '<end_of_turn>' -}}{%- endgeneration -%}
{{- '\\n' -}}
{%- elif message.role == 'user' -%}
{{- '<start_of_turn>user\\n' + ns.system + message.content | trim + '<end_of_turn>\\n' -}}
{%- set ns.system = '' -%}
{%- else -%}
{{- raise_exception('the role ' + message.role + ' is none of system, user and assistant') -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<start_of_turn>model\\n' -}}{%- endif -%}
";

const MISTRAL: &str = "\
{{- '<s>' -}}
{%- set ns = namespace(system='') -%}
{%- for message in messages -%}
{%- if message.content is not string -%}
{{- raise_exception('message ' ~ loop.index0 ~ ' has no content, or one that is no text') -}}
{%- endif -%}
{%- if message.role == 'system' -%}
{%- if not loop.first -%}{{- raise_exception('a system message must be the first message') -}}{%- endif -%}
{%- set ns.system = message.content + '\\n\\n' -%}
{%- elif message.role == 'assistant' -%}
{{- ' ' -}}
{%- generation -%}{{- message.content | trim + '</s>' -}}{%- endgeneration -%}
{%- elif message.role == 'user' -%}
{{- '[INST] ' + ns.system + message.content + '[/INST]' -}}
{%- set ns.system = '' -%}
{%- else -%}
{{- raise_exception('the role ' + message.role + ' is none of system, user and assistant') -}}
{%- endif -%}
{%- endfor -%}
";
