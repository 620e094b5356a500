"""Conversations, templates and a tokenizer for tests of `forebay.text.Chat` and the script of their golden ids."""

import json
import random
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
TOKENIZER = ROOT / "tests/data/tokens/tokenizer.json"

SPECIAL = [
    *("<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    *("<bos>", "<start_of_turn>", "<end_of_turn>", "<s>", "</s>", "[INST]", "[/INST]"),
]

BLOCKS: dict[str, str] = {
    "chatml": """
{%- for message in messages %}
    {{- '<|im_start|>' + message['role'] + '\\n' }}
    {%- if message['role'] == 'assistant' %}
        {%- generation %}
        {{- message['content'] + '<|im_end|>' }}
        {%- endgeneration %}
    {%- else %}
        {{- message['content'] + '<|im_end|>' }}
    {%- endif %}
    {{- '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
""",
    "llama3": """
{{- bos }}
{%- for message in messages %}
    {%- set content = message['content'] | trim + '<|eot_id|>' %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}
    {%- if message['role'] == 'assistant' %}{% generation %}{{ content }}{% endgeneration %}
    {%- else %}{{ content }}{% endif %}
{%- endfor %}
""".replace("{{- bos }}", "{{- '<|begin_of_text|>' }}"),
    "gemma": """
{{- '<bos>' }}
{%- if messages[0]['role'] == 'system' %}
    {%- set first = messages[0]['content'] | trim + '\\n\\n' %}{% set loop_messages = messages[1:] %}
{%- else %}
    {%- set first = '' %}{% set loop_messages = messages %}
{%- endif %}
{%- for message in loop_messages %}
    {%- if message['role'] == 'assistant' %}
        {{- '<start_of_turn>model\\n' }}
        {%- generation %}{{ message['content'] | trim }}{{ '<end_of_turn>' }}{% endgeneration %}
        {{- '\\n' }}
    {%- else %}
        {{- '<start_of_turn>user\\n' + (first if loop.first else '') + message['content'] | trim + '<end_of_turn>\\n' }}
    {%- endif %}
{%- endfor %}
""",
    "mistral": """
{{- '<s>' }}
{%- if messages[0]['role'] == 'system' %}
    {%- set first = messages[0]['content'] + '\\n\\n' %}{% set loop_messages = messages[1:] %}
{%- else %}
    {%- set first = '' %}{% set loop_messages = messages %}
{%- endif %}
{%- for message in loop_messages %}
    {%- if message['role'] == 'assistant' %}
        {{- ' ' }}{% generation %}{{ message['content'] | trim + '</s>' }}{% endgeneration %}
    {%- else %}
        {{- '[INST] ' + (first if loop.first else '') + message['content'] + '[/INST]' }}
    {%- endif %}
{%- endfor %}
""",
    "own": """{{ bos_token }}{% if tools %}
Tools: {{ tools | tojson }}
{{ tools | tojson(indent=2) }}{% endif %}
{% for message in messages %}
    {% if message.role == 'assistant' %}
A:{% generation %}
 {{ message.content.strip() }}
{% endgeneration %}
    {% elif message['role'].startswith('s') %}
## {{ message.content | upper }} ##
    {% else %}
{{ loop.index0 }}/{{ loop.length }} {{ message.role | capitalize }}: {{ message.get('name') or 'none' }} \
{{ message.content }}
    {% endif %}
{% endfor %}
{{- eos_token }}""",
}
"""Templates with marked answers, written as the models' authors write theirs; the first four have the texts of the
templates by name."""

TOOLS = [{"type": "function", "function": {"name": "sum", "parameters": {"b": 1, "a": [1.5, None, True, "é<&"]}}}]

WORDS = [
    *(
        "the",
        "a",
        "of",
        "to",
        "and",
        "in",
        "that",
        "it",
        "was",
        "he",
        "for",
        "on",
        "with",
        "as",
        "his",
        "they",
        "at",
        "be",
    ),
    *(
        "this",
        "from",
        "I",
        "have",
        "or",
        "by",
        "one",
        "had",
        "not",
        "but",
        "what",
        "all",
        "were",
        "Hello",
        "Émile",
        "größe",
    ),
    *(
        "日本語",
        "😀",
        "naïve",
        "don't",
        "we'll",
        "3.14",
        "2026",
        "<|im_end|>",
        "<b>",
        "\\n",
        "{{ x }}",
        "{% y %}",
        "[INST]x",
    ),
]


def conversation(number: int) -> list[dict[str, Any]]:
    """Some turns of a few words, some with a system message, an empty text, or odd white space."""
    random_ = random.Random(number)

    def text() -> str:
        words = random_.choices(WORDS, k=random_.randrange(0 if number % 7 == 0 else 1, 12))
        ends = ["", "", "\n", " ", "\n\n"]
        joins = [" ", " ", "\n", "  ", ", "]
        return random_.choice(ends) + random_.choice(joins).join(words) + random_.choice(ends)

    messages = [{"role": "system", "content": text()}] if number % 3 == 0 else []
    for _ in range(random_.randrange(1, 4)):
        messages += [{"role": "user", "content": text()}, {"role": "assistant", "content": text()}]
    return messages


def write_tokenizer(folder: Path) -> Path:
    """A folder with the tokenizer of the tests, and the special tokens of all templates."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = json.loads(TOKENIZER.read_text())
    first = max(tokenizer["model"]["vocab"].values()) + 1
    for number, token in enumerate(SPECIAL):
        like = tokenizer["added_tokens"][0]
        tokenizer["added_tokens"].append(like | {"id": first + number, "content": token})
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    names = {"bos_token": "<|bos|>", "eos_token": {"content": "<|endoftext|>", "lstrip": False}}
    config = names | {"chat_template": BLOCKS["own"], "tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder
