//! [`ChatTemplate`]: conversations as texts, by a template of Jinja, and the parts that are trained on.
//!
//! Input: the messages of a conversation, as JSON. Output: one text, and the ranges of its bytes that
//! answers have. A template of Hugging Face, or one of [four names](ChatTemplate::named), is rendered as
//! `transformers` renders it.
//!
//! **Parts.** Where the template has `{% generation %}` blocks, they are the parts. Else a part is what an
//! answer adds: the conversation up to the answer, with the prompt for it (`add_generation_prompt`), and the
//! conversation with it are rendered, too, and each must begin the next; what lies between is the part. If
//! one does not begin the next, as in templates that change earlier messages, the row is refused, since its
//! parts cannot be told.
//!
//! **Bounds.** A template is a program of a file, so each rendering has a number of steps and a length of
//! output, and all renderings of a conversation have one of steps. A step is an instruction or 64 bytes of an
//! intermediate text, so memory is bounded too. One case is not: the engine joins lists without counting
//! their items, so a template that adds a list to itself some thirty times exhausts the memory.
//!
//! **Order.** There is no `strftime_now`: a text does not depend on the day. Templates of Llama then write
//! the date that they have for this case.
//!
//! Source: own, with the engine minijinja; the names that a template can use are those that the guide "Chat
//! templates" of transformers lists.

mod named;

use std::{fmt, io, ops::Range};

use minijinja::{
    Environment, Error as TemplateError, ErrorKind as TemplateErrorKind, State, Value as TemplateValue,
    syntax::SyntaxConfig,
    value::{Kwargs, Serde},
};
use serde_json::{Map, Value};

use crate::{Error, ErrorKind, Result, catch_panic::caught};

/// The steps of a rendering, and of all renderings of a conversation.
const STEPS: u64 = 4_000_000;
const ALL_STEPS: u64 = 40_000_000;

/// The longest text of a conversation, bytes.
const MOST_TEXT: usize = 64 << 20;

/// Characters around the parts of answers while a text is made. Unicode has them for such uses; no text may
/// have them.
const BEGIN: char = '\u{fdd0}';
const END: char = '\u{fdd1}';

/// The name of the template in its environment.
const NAME: &str = "chat";

/// Which tokens of a conversation are trained on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum TrainOn {
    /// All answers.
    #[default]
    Assistant,
    /// The last answer.
    Last,
    /// Every token.
    All,
}

/// A conversation: its messages, and the tools that it may use.
#[derive(Debug, Clone, PartialEq)]
pub struct Conversation {
    /// Each an object with at least the text `role`.
    pub messages: Vec<Value>,
    /// The descriptions of tools.
    pub tools: Option<Value>,
}

/// The text of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderedChat {
    /// The text, with special tokens as text.
    pub text: String,
    /// The bytes that are trained on, in order, without overlaps.
    pub parts: Vec<Range<usize>>,
}

/// A compiled template. It is for one thread at a time.
pub struct ChatTemplate {
    environment: Environment<'static>,
    /// The names of special tokens and their texts, as `bos_token`.
    special: Map<String, Value>,
    /// Whether the template says which parts are answers.
    is_marked: bool,
}

impl fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatTemplate").field("is_marked", &self.is_marked).finish_non_exhaustive()
    }
}

impl ChatTemplate {
    /// The template of a name, `"chatml"`, `"llama3"`, `"gemma"` or `"mistral"`, and the special tokens that
    /// it writes.
    pub fn named(name: &str) -> Option<(&'static str, &'static [&'static str])> {
        named::find(name)
    }

    /// The names of templates.
    pub fn names() -> impl Iterator<Item = &'static str> {
        named::TEMPLATES.iter().map(|(name, ..)| *name)
    }

    /// Compiles a template of Jinja. `special` has the variables beside the conversation, such as
    /// `bos_token`.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] with the line if it is no template.
    pub fn new(source: &str, special: Map<String, Value>) -> Result<Self> {
        if source.contains([BEGIN, END]) {
            let message = "the chat template has the character U+FDD0 or U+FDD1, which no text has";
            return Err(Error::new(ErrorKind::Config, message));
        }
        // As jinja2 reads line ends.
        let source = source.replace("\r\n", "\n").replace('\r', "\n");
        let (source, is_marked) = with_calls(&source);
        let mut environment = Environment::new();
        let added = caught(|| {
            let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?;
            prepare(&mut environment, syntax);
            environment.add_template_owned(NAME, source)
        });
        let added = added.and_then(|added: std::result::Result<(), TemplateError>| {
            added.map_err(|error| error.to_string())
        });
        added.map_err(|cause| {
            let message = format!(
                "the chat template cannot be read: {cause}; it must be a template of Jinja, or one of the names {}",
                Self::names().collect::<Vec<_>>().join(", ")
            );
            Error::new(ErrorKind::Config, message)
        })?;
        Ok(Self { environment, special, is_marked })
    }

    /// Renders a conversation.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if the template refuses the conversation, [`ErrorKind::Empty`] without messages
    /// or text, [`ErrorKind::TooLarge`] beyond the bounds, [`ErrorKind::Unsupported`] if the parts of answers
    /// cannot be told.
    pub fn render(&self, conversation: &Conversation, train_on: TrainOn) -> Result<RenderedChat> {
        let Conversation { messages, tools } = conversation;
        if messages.is_empty() {
            return Err(Error::new(ErrorKind::Empty, "the conversation has no messages"));
        }
        check_messages(messages)?;
        let mut steps = ALL_STEPS;
        let text = self.text(messages, tools.as_ref(), false, &mut steps)?;
        let rendered = match (train_on, self.is_marked) {
            (TrainOn::All, false) => RenderedChat { parts: all_of(&text), text },
            (_, true) => {
                let mut rendered = unmarked(&text);
                match train_on {
                    TrainOn::All => rendered.parts = all_of(&rendered.text),
                    TrainOn::Last => drop(rendered.parts.drain(..rendered.parts.len().saturating_sub(1))),
                    TrainOn::Assistant => {}
                }
                rendered
            }
            (_, false) => {
                let parts = self.parts(conversation, &text, train_on, &mut steps)?;
                RenderedChat { text, parts }
            }
        };
        if rendered.text.is_empty() {
            return Err(Error::new(ErrorKind::Empty, "the template makes an empty text of the conversation"));
        }
        if rendered.parts.is_empty() {
            let message = "the conversation has no answer to train on (no message of the role \"assistant\")";
            return Err(Error::new(ErrorKind::Empty, message));
        }
        Ok(rendered)
    }

    /// The parts of answers, by what each adds to the text before it.
    fn parts(
        &self,
        Conversation { messages, tools }: &Conversation,
        text: &str,
        train_on: TrainOn,
        steps: &mut u64,
    ) -> Result<Vec<Range<usize>>> {
        let is_answer = |message: &Value| message["role"] == "assistant";
        let mut answers: Vec<usize> = (0..messages.len()).filter(|&at| is_answer(&messages[at])).collect();
        if train_on == TrainOn::Last {
            answers.drain(..answers.len().saturating_sub(1));
        }
        let mut parts = Vec::new();
        for at in answers {
            let unknown = || {
                let message = format!(
                    "the part of message {at}, an answer, cannot be told: the text up to it is not the beginning of the whole text; mark \
                     answers in the template by {{% generation %}} and {{% endgeneration %}}, name one of the templates {}, or pass \
                     train_on=\"all\"",
                    Self::names().collect::<Vec<_>>().join(", ")
                );
                Error::new(ErrorKind::Unsupported, message)
            };
            let before = self.text(&messages[..at], tools.as_ref(), true, steps)?;
            let after = match at + 1 == messages.len() {
                true => text.to_owned(),
                false => self.text(&messages[..=at], tools.as_ref(), false, steps)?,
            };
            if !after.starts_with(&before) || !text.starts_with(&after) {
                return Err(unknown());
            }
            parts.push(before.len()..after.len());
        }
        Ok(parts)
    }

    /// The text of messages, with marks.
    fn text(
        &self,
        messages: &[Value],
        tools: Option<&Value>,
        add_generation_prompt: bool,
        steps: &mut u64,
    ) -> Result<String> {
        let mut context = self.special.clone();
        context.insert("messages".into(), messages.into());
        context.insert("tools".into(), tools.cloned().unwrap_or_default());
        context.insert("documents".into(), Value::Null);
        context.insert("add_generation_prompt".into(), add_generation_prompt.into());
        let mut text = BoundedText(Vec::new());
        let render = || {
            let template = self.environment.get_template(NAME)?;
            let captured = template.render_captured_to(TemplateValue::from(Serde(&context)), &mut text)?;
            Ok(captured.state().fuel_levels().map_or(0, |(used, _)| used))
        };
        let rendered = caught(render).map_err(|cause| Error::new(ErrorKind::Corrupt, cause))?;
        let used = rendered.map_err(|cause: TemplateError| refused(&cause, text.0.len()))?;
        *steps = steps.checked_sub(used.max(1)).ok_or_else(|| {
            let message = format!("the conversation costs more than {ALL_STEPS} steps of the chat template");
            Error::new(ErrorKind::TooLarge, message)
        })?;
        String::from_utf8(text.0).map_err(|_| Error::new(ErrorKind::Corrupt, "the template makes no text"))
    }
}

/// The error of a rendering.
fn refused(cause: &TemplateError, written: usize) -> Error {
    if cause.kind() == TemplateErrorKind::OutOfFuel {
        let message = format!("the chat template takes more than {STEPS} steps for the conversation");
        return Error::new(ErrorKind::TooLarge, message);
    }
    if cause.kind() == TemplateErrorKind::WriteFailure || written >= MOST_TEXT {
        let message = format!("the chat template makes more than {MOST_TEXT} bytes of the conversation");
        return Error::new(ErrorKind::TooLarge, message);
    }
    let mut message: String = cause.detail().map_or_else(|| cause.to_string(), str::to_owned);
    if message.len() > 300 {
        message = message.chars().take(300).collect();
    }
    let line = cause.line().map_or_else(String::new, |line| format!(" (line {line} of the template)"));
    Error::new(ErrorKind::Corrupt, format!("the chat template refuses the conversation: {message}{line}"))
}

/// Checks what all templates expect of messages.
fn check_messages(messages: &[Value]) -> Result<()> {
    let wrong = |message: String| Err(Error::new(ErrorKind::Corrupt, message));
    for (at, message) in messages.iter().enumerate() {
        let Some(fields) = message.as_object() else {
            return wrong(format!("message {at} is no object, expected one with role and content"));
        };
        if !fields.get("role").is_some_and(Value::is_string) {
            return wrong(format!(
                "message {at} has no role, expected a text such as \"user\" or \"assistant\"{}",
                match fields.contains_key("from") {
                    true => "; its \"from\" and \"value\" are to be renamed to role and content",
                    false => "",
                }
            ));
        }
    }
    if messages.iter().any(has_marks) {
        return wrong("a message has the character U+FDD0 or U+FDD1, which no text has".to_owned());
    }
    Ok(())
}

fn has_marks(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains([BEGIN, END]),
        Value::Array(items) => items.iter().any(has_marks),
        Value::Object(fields) => fields.values().any(has_marks),
        _ => false,
    }
}

/// The whole text as the only part.
fn all_of(text: &str) -> Vec<Range<usize>> {
    std::iter::once(0..text.len()).collect()
}

/// The text without marks, and the parts between them.
fn unmarked(marked: &str) -> RenderedChat {
    // bounded: by the text that is there.
    let (mut text, mut parts) = (String::with_capacity(marked.len()), Vec::new());
    let mut begin = None;
    for piece in marked.split_inclusive([BEGIN, END]) {
        text.push_str(piece.trim_end_matches([BEGIN, END]));
        if piece.ends_with(BEGIN) {
            begin = Some(text.len());
        } else if piece.ends_with(END)
            && let Some(begin) = begin.take()
            && begin < text.len()
        {
            parts.push(begin..text.len());
        }
    }
    RenderedChat { text, parts }
}

/// The template with calls in place of `{% generation %}` blocks, and whether it has some. The signs that
/// remove white space stay, and so do comments, texts within expressions, and raw parts.
fn with_calls(source: &str) -> (String, bool) {
    // bounded: by the template.
    let mut made = String::with_capacity(source.len());
    let (mut rest, mut is_marked, mut is_raw) = (source, false, false);
    let begins: &[&str] = &["{%", "{#", "{{"];
    while let Some(at) =
        begins[..if is_raw { 1 } else { 3 }].iter().filter_map(|begin| rest.find(begin)).min()
    {
        let (before, tag) = rest.split_at(at);
        made.push_str(before);
        rest = tag;
        let Some(end) = end_of_tag(tag) else { break };
        let (tag, others) = tag.split_at(end);
        rest = others;
        let inner = &tag[2..tag.len() - 2];
        let word = inner.trim_start_matches(['-', '+']).trim_end_matches(['-', '+']).trim();
        let call = match word {
            _ if !tag.starts_with("{%") => None,
            "endraw" => {
                is_raw = false;
                None
            }
            _ if is_raw => None,
            "raw" => {
                is_raw = true;
                None
            }
            "generation" => Some("call __generation()"),
            "endgeneration" => Some("endcall"),
            _ => None,
        };
        match call {
            Some(call) => {
                is_marked = true;
                made.push_str("{%");
                made.push_str(&inner.replacen(word, &format!(" {call} "), 1));
                made.push_str("%}");
            }
            None => made.push_str(tag),
        }
    }
    made.push_str(rest);
    (made, is_marked)
}

/// The end of the comment, expression or statement with which `tag` begins; `None` if there is none.
fn end_of_tag(tag: &str) -> Option<usize> {
    let close = match &tag[..2] {
        "{#" => return tag[2..].find("#}").map(|at| at + 4),
        "{{" => b"}}",
        _ => b"%}",
    };
    let (mut quote, mut at, bytes) = (None, 2, tag.as_bytes());
    while at < bytes.len() {
        match (quote, bytes[at]) {
            (Some(_), b'\\') => at += 1,
            (Some(open), byte) if byte == open => quote = None,
            (None, byte @ (b'"' | b'\'')) => quote = Some(byte),
            (None, _) if bytes[at..].starts_with(close) => return Some(at + 2),
            _ => {}
        }
        at += 1;
    }
    None
}

/// Prepares the environment as that of transformers.
fn prepare(environment: &mut Environment<'static>, syntax: SyntaxConfig) {
    environment.set_syntax(syntax);
    environment.set_fuel(Some(STEPS));
    environment.set_recursion_limit(64);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.set_formatter(|output, _, value| {
        // As Python writes them.
        match () {
            () if value.is_undefined() => Ok(()),
            () if value.is_none() => output.write_str("None").map_err(TemplateError::from),
            () if value.kind() == minijinja::value::ValueKind::Bool => {
                output.write_str(if value.is_true() { "True" } else { "False" }).map_err(TemplateError::from)
            }
            () if value.is_number() && !value.is_integer() => {
                let number = f64::try_from(value.clone()).map(python_float);
                output.write_str(&number?).map_err(TemplateError::from)
            }
            () => write!(output, "{value}").map_err(TemplateError::from),
        }
    });
    environment.add_function(
        "raise_exception",
        |message: String| -> std::result::Result<String, TemplateError> {
            Err(TemplateError::new(TemplateErrorKind::InvalidOperation, message))
        },
    );
    environment.add_function(
        "__generation",
        |state: &mut State, options: Kwargs| -> std::result::Result<TemplateValue, TemplateError> {
            let caller: TemplateValue = options.get("caller")?;
            let inner = caller.call(state, &[])?;
            Ok(TemplateValue::from_safe_string(format!("{BEGIN}{inner}{END}")))
        },
    );
    environment.add_filter("tojson", tojson);
}

/// JSON as Python's `json.dumps` writes it, without escapes of characters that are not ASCII.
fn tojson(value: &TemplateValue, options: Kwargs) -> std::result::Result<TemplateValue, TemplateError> {
    let indent: Option<usize> = options.get("indent")?;
    let sort: Option<bool> = options.get("sort_keys")?;
    let _: Option<TemplateValue> = options.get("ensure_ascii")?;
    let separators: Option<Vec<String>> = options.get("separators")?;
    options.assert_all_used()?;
    let wrong = |message: &str| TemplateError::new(TemplateErrorKind::InvalidOperation, message.to_owned());
    let json = serde_json::to_value(value).map_err(|_| wrong("tojson: the value is not JSON"))?;
    let (comma, colon) = match separators.as_deref() {
        Some([comma, colon]) => (comma.clone(), colon.clone()),
        Some(_) => return Err(wrong("tojson: separators are two texts")),
        None if indent.is_some() => (",".to_owned(), ": ".to_owned()),
        None => (", ".to_owned(), ": ".to_owned()),
    };
    let style = JsonStyle { indent, comma, colon, is_sorted: sort.unwrap_or(false) };
    let mut text = String::new();
    style.write(&json, 0, &mut text);
    Ok(TemplateValue::from_safe_string(text))
}

/// A float as Python's `repr` writes it: the shortest digits that are read as the same number, with an
/// exponent of two or more digits below 1e-4 and from 1e16 on.
fn python_float(number: f64) -> String {
    let shown = format!("{number:e}");
    match shown.split_once('e').map(|(digits, exponent)| (digits, exponent.parse())) {
        Some((digits, Ok(exponent))) if !(-4..16).contains(&exponent) => format!("{digits}e{exponent:+03}"),
        None if number.is_nan() => "nan".to_owned(),
        _ => format!("{number:?}"),
    }
}

struct JsonStyle {
    indent: Option<usize>,
    comma: String,
    colon: String,
    is_sorted: bool,
}

impl JsonStyle {
    fn write(&self, value: &Value, depth: usize, text: &mut String) {
        let line = |depth: usize, text: &mut String| {
            if let Some(indent) = self.indent {
                text.push('\n');
                // bounded: by the depth that the engine serialises.
                text.extend(std::iter::repeat_n(' ', indent.min(64) * depth));
            }
        };
        match value {
            Value::Array(items) if !items.is_empty() => {
                text.push('[');
                for (at, item) in items.iter().enumerate() {
                    text.push_str(if at > 0 { &self.comma } else { "" });
                    line(depth + 1, text);
                    self.write(item, depth + 1, text);
                }
                line(depth, text);
                text.push(']');
            }
            Value::Object(fields) if !fields.is_empty() => {
                let mut fields: Vec<_> = fields.iter().collect();
                if self.is_sorted {
                    fields.sort_by_key(|(name, _)| *name);
                }
                text.push('{');
                for (at, (name, field)) in fields.into_iter().enumerate() {
                    text.push_str(if at > 0 { &self.comma } else { "" });
                    line(depth + 1, text);
                    text.push_str(&Value::from(name.as_str()).to_string());
                    text.push_str(&self.colon);
                    self.write(field, depth + 1, text);
                }
                line(depth, text);
                text.push('}');
            }
            Value::Number(number) if number.is_f64() => {
                text.push_str(&number.as_f64().map_or_else(|| number.to_string(), python_float));
            }
            other => text.push_str(&other.to_string()),
        }
    }
}

/// A text of bounded length.
struct BoundedText(Vec<u8>);

impl io::Write for BoundedText {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MOST_TEXT {
            return Err(io::Error::other("the text is too long"));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
