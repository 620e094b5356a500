//! Texts and parts of conversations; templates that do not end.

use serde_json::json;

use super::*;

fn conversation(messages: Value) -> Conversation {
    let Value::Array(messages) = messages else { panic!("a list") };
    Conversation { messages, tools: None }
}

fn usual() -> Conversation {
    conversation(json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "One?"},
        {"role": "assistant", "content": "1"},
        {"role": "user", "content": "Two?"},
        {"role": "assistant", "content": "2, é"},
    ]))
}

/// The text and its parts as texts.
fn rendered(source: &str, chat: &Conversation, train_on: TrainOn) -> Result<(String, Vec<String>)> {
    let template = ChatTemplate::new(source, Map::new())?;
    let RenderedChat { text, parts } = template.render(chat, train_on)?;
    let parts = parts.into_iter().map(|part| text[part].to_owned()).collect();
    Ok((text, parts))
}

#[test]
fn named_templates() {
    let of = |name| rendered(ChatTemplate::named(name).unwrap().0, &usual(), TrainOn::Assistant).unwrap();
    assert_eq!(
        of("chatml"),
        (
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nOne?<|im_end|>\n<|im_start|>assistant\n1<|im_end|>\n\
             <|im_start|>user\nTwo?<|im_end|>\n<|im_start|>assistant\n2, é<|im_end|>\n"
                .to_owned(),
            vec!["1<|im_end|>".to_owned(), "2, é<|im_end|>".to_owned()]
        )
    );
    assert_eq!(
        of("llama3").0,
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>\
         <|start_header_id|>user<|end_header_id|>\n\nOne?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n1<|eot_id|>\
         <|start_header_id|>user<|end_header_id|>\n\nTwo?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n2, é<|eot_id|>"
    );
    assert_eq!(of("llama3").1, ["1<|eot_id|>", "2, é<|eot_id|>"]);
    assert_eq!(
        of("gemma"),
        (
            "<bos><start_of_turn>user\nBe brief.\n\nOne?<end_of_turn>\n<start_of_turn>model\n1<end_of_turn>\n\
             <start_of_turn>user\nTwo?<end_of_turn>\n<start_of_turn>model\n2, é<end_of_turn>\n"
                .to_owned(),
            vec!["1<end_of_turn>".to_owned(), "2, é<end_of_turn>".to_owned()]
        )
    );
    assert_eq!(
        of("mistral"),
        (
            "<s>[INST] Be brief.\n\nOne?[/INST] 1</s>[INST] Two?[/INST] 2, é</s>".to_owned(),
            vec!["1</s>".to_owned(), "2, é</s>".to_owned()]
        )
    );
}

const PLAIN: &str = "{% for m in messages %}\n[{{ m['role'] }}] {{ m['content'].strip() }};\n{% endfor %}\n\
                     {% if add_generation_prompt %}[assistant] {% endif %}";

#[test]
fn parts_without_marks() {
    let (text, parts) = rendered(PLAIN, &usual(), TrainOn::Assistant).unwrap();
    assert_eq!(text, "[system] Be brief.;\n[user] One?;\n[assistant] 1;\n[user] Two?;\n[assistant] 2, é;\n");
    assert_eq!(parts, ["1;\n", "2, é;\n"]);
    assert_eq!(rendered(PLAIN, &usual(), TrainOn::Last).unwrap().1, ["2, é;\n"]);
    assert_eq!(rendered(PLAIN, &usual(), TrainOn::All).unwrap().1, [text]);
    let chatml = ChatTemplate::named("chatml").unwrap().0;
    assert_eq!(rendered(chatml, &usual(), TrainOn::Last).unwrap().1, ["2, é<|im_end|>"]);
    // Earlier messages change, so their parts are unknown.
    let last = "{% for m in messages %}{% if loop.last %}!{% endif %}{{ m.content }}{% endfor %}";
    let error = rendered(last, &usual(), TrainOn::Assistant).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unsupported);
    assert!(error.message.contains("message 2, an answer, cannot be told"), "{error}");
    assert!(error.message.contains("{% generation %}"), "{error}");
}

#[test]
fn what_templates_of_transformers_use() {
    let source = "{{ bos_token }}{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}\
                  {%- if m.get('x') is none or not m['role'].startswith('a') %}{{ loop.index0 }}{% endif -%}\
                  {% if loop.last %}{% break %}{% endif %}{% endfor %}{{ ns.n }} {{ none }} {{ true }} \
                  {{ messages[1:3] | length }} {{ tools | tojson }} {{ tools | tojson(indent=2) }} {{ messages[0].content | upper }}";
    let special = json!({"bos_token": "<s>"}).as_object().cloned().unwrap();
    let template = ChatTemplate::new(source, special).unwrap();
    let tools = Some(json!([{"name": "f", "a": [1, 2.5, true, null, "é<"], "b": {}}]));
    let chat = Conversation { tools, ..usual() };
    assert_eq!(
        template.render(&chat, TrainOn::All).unwrap().text,
        "<s>012345 None True 2 [{\"name\": \"f\", \"a\": [1, 2.5, true, null, \"é<\"], \"b\": {}}] \
         [\n  {\n    \"name\": \"f\",\n    \"a\": [\n      1,\n      2.5,\n      true,\n      null,\n      \"é<\"\n    ],\n    \"b\": {}\n  }\n] \
         BE BRIEF."
    );
}

/// Of `json.dumps` and `repr` of Python 3.11.
#[test]
fn floats_as_python_writes_them() {
    let written = [
        (1e-5, "1e-05"),
        (1.5e-7, "1.5e-07"),
        (1e-4, "0.0001"),
        (0.1, "0.1"),
        (-2.5, "-2.5"),
        (3.0, "3.0"),
        (-0.0, "-0.0"),
        (123_456.789, "123456.789"),
        (1e15, "1000000000000000.0"),
        (9_007_199_254_740_993.0, "9007199254740992.0"),
        (1e16, "1e+16"),
        (1.234_567_890_123_456_8e22, "1.2345678901234568e+22"),
        (1e100, "1e+100"),
        (5e-324, "5e-324"),
    ];
    for (number, expected) in written {
        let source = "{% for m in messages %}{{ m.x }} {{ m.x | tojson }}{% endfor %}";
        let chat = conversation(json!([{"role": "assistant", "content": "a", "x": number}]));
        assert_eq!(rendered(source, &chat, TrainOn::All).unwrap().0, format!("{expected} {expected}"));
    }
}

#[test]
fn line_ends_of_templates_are_those_of_jinja() {
    let chat = conversation(json!([{"role": "assistant", "content": "a\r\nb"}]));
    let source = "{% for m in messages %}\r\n<{{ m.role }}>\r\n{{ m.content }}\r<end>\n{% endfor %}";
    assert_eq!(rendered(source, &chat, TrainOn::All).unwrap().0, "<assistant>\na\r\nb\n<end>\n");
}

#[test]
fn what_is_refused() {
    let chatml = ChatTemplate::named("chatml").unwrap().0;
    for (messages, kind, part) in [
        (json!([]), ErrorKind::Empty, "no messages"),
        (json!(["a"]), ErrorKind::Corrupt, "message 0 is no object"),
        (json!([{"content": "a"}]), ErrorKind::Corrupt, "message 0 has no role"),
        (json!([{"role": "user", "content": "a"}]), ErrorKind::Empty, "no answer to train on"),
        (json!([{"role": "assistant"}]), ErrorKind::Corrupt, "message 0 has no content"),
        (json!([{"role": "assistant", "content": null}]), ErrorKind::Corrupt, "or one that is no text"),
        (json!([{"role": "assistant", "content": "\u{fdd0}"}]), ErrorKind::Corrupt, "U+FDD0"),
    ] {
        let error = rendered(chatml, &conversation(messages), TrainOn::Assistant).unwrap_err();
        assert_eq!(error.kind, kind, "{error}");
        assert!(error.message.contains(part), "{error}");
    }
    let gemma = ChatTemplate::named("gemma").unwrap().0;
    let tool = conversation(json!([{"role": "tool", "content": "a"}]));
    let error = rendered(gemma, &tool, TrainOn::Assistant).unwrap_err();
    assert!(error.message.contains("the role tool is none of system, user and assistant"), "{error}");
    for source in ["{% for", "{{ x", "{% endfor %}", "{% generation %}a"] {
        let error = ChatTemplate::new(source, Map::new()).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Config);
        assert!(
            error.message.contains("it must be a template of Jinja, or one of the names chatml"),
            "{error}"
        );
    }
}

#[test]
fn templates_that_do_not_end() {
    for source in [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}",
        "{% set ns = namespace(x='aaaaaaaaaaaaaaaa') %}{% for a in range(64) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
        "{% set x = 'a' * 99999999 %}{% for a in range(99) %}{{ x }}{% endfor %}",
        "{{ 'a' * 9999999999999 }}",
        "{% for a in range(90000) %}{% for b in range(90000) %}{{ 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' }}{% endfor %}{% endfor %}",
    ] {
        let error = rendered(source, &usual(), TrainOn::All).unwrap_err();
        assert!(error.kind.is_record(), "{source}: {error}");
    }
}

#[test]
fn blocks_that_are_no_marks() {
    let answers = "{% for m in messages %}{{ m.content }};{% endfor %}";
    let marked = "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %};{% endfor %}";
    let both = "Be brief.;One?;1;Two?;2, é;";
    for before in [
        "{# {% generation %} #}",
        "{#- a {% generation %}{% endgeneration %} -#}",
        "{{ '{% generation %}'[:0] }}",
        "{{ \"it's {# }}\"[:0] }}",
        "{% set a = '%} {% generation %}' %}",
        "{% raw %}{% endraw %}",
    ] {
        assert!(!with_calls(before).1, "{before}");
        let plain = ChatTemplate::new(&format!("{before}{answers}"), Map::new()).unwrap();
        let all = plain.render(&usual(), TrainOn::All).unwrap();
        assert_eq!((&*all.text, all.parts), (both, all_of(both)), "{before}");
        let template = ChatTemplate::new(&format!("{before}{marked}"), Map::new()).unwrap();
        assert_eq!(template.render(&usual(), TrainOn::Assistant).unwrap().parts.len(), 5, "{before}");
    }
    let raw = "{% raw %}{% generation %}{{ {# {% endraw %}{% for m in messages %}{{ m.content }}{% endfor %}";
    let template = ChatTemplate::new(raw, Map::new()).unwrap();
    assert!(template.render(&usual(), TrainOn::All).unwrap().text.starts_with("{% generation %}{{ {# Be"));
    for cut in ["{# a", "{{ 'a", "{% generation", "{%", "{{", "{#", "{# {% generation %}"] {
        assert_eq!(with_calls(cut), (cut.to_owned(), false));
    }
}
