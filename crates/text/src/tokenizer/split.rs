//! Selects the scanner for a pattern; other patterns are matched as regular expressions.
//!
//! Source of the patterns: published with the vocabularies of GPT-2, GPT-4, GPT-4o, Llama 3, Qwen 2 and
//! nanochat, in the spellings in use.

use fancy_regex::Regex;

use super::scan::{Cl100k, Gpt2, O200k};
use crate::{Error, ErrorKind, Result};

/// The pattern of `gpt2`, `r50k_base` and `p50k_base`, as tiktoken has it.
pub(crate) const GPT2: &str =
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s";
pub(crate) const CL100K: &str = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s";
pub(crate) const O200K: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);
/// The pattern of GPT-2 as first published; the default of byte-level files without a pattern.
pub(crate) const GPT2_FIRST: &str =
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
/// The pattern of GPT-2 with single classes in brackets, as in tiktoken's comment.
const GPT2_CLASSES: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?[\p{L}]+| ?[\p{N}]+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const NANOCHAT: &str = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,2}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+";

pub enum Splitter {
    Gpt2(Gpt2),
    Cl100k(Cl100k<3, true>),
    Llama3(Cl100k<3, false>),
    Qwen2(Cl100k<1, false>),
    Nanochat(Cl100k<2, false>),
    O200k(O200k),
    Regex(Box<Regex>),
}

impl Splitter {
    /// The scanner of a pattern, if there is one.
    pub fn known(pattern: &str) -> Option<Self> {
        Some(match pattern {
            GPT2 | GPT2_FIRST | GPT2_CLASSES => Self::Gpt2(Gpt2::default()),
            CL100K => Self::Cl100k(Cl100k::default()),
            LLAMA3 => Self::Llama3(Cl100k::default()),
            QWEN2 => Self::Qwen2(Cl100k::default()),
            NANOCHAT => Self::Nanochat(Cl100k::default()),
            O200K => Self::O200k(O200k::default()),
            _ => return None,
        })
    }

    /// The splitter for `pattern`.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if it is not a valid regular expression.
    pub fn new(pattern: &str) -> Result<Self> {
        match Self::known(pattern) {
            Some(splitter) => Ok(splitter),
            None => Regex::new(pattern).map(|regex| Self::Regex(Box::new(regex))).map_err(|cause| {
                Error::new(
                    ErrorKind::Config,
                    format!("pattern {pattern:?} is not a valid regular expression"),
                )
                .because(cause)
            }),
        }
    }
}

/// Compares scanners with their patterns as regular expressions.
#[cfg(any(test, fuzzing))]
#[allow(clippy::unwrap_used, reason = "used in tests and fuzzing alone, which fail by panicking")]
pub(crate) mod oracle {
    use super::{super::scan::Scanner, *};

    /// The ends of the pieces of `text`, by the pattern as a regular expression.
    fn by_regex(regex: &Regex, text: &str) -> Vec<usize> {
        let mut at = 0;
        regex
            .find_iter(text)
            .map(|found| {
                let found = found.unwrap();
                assert_eq!(found.start(), at, "a gap in {text:?}");
                at = found.end();
                at
            })
            .collect()
    }

    fn by_scanner(scanner: &impl Scanner, text: &str) -> Vec<usize> {
        let mut at = 0;
        std::iter::from_fn(|| {
            (at < text.len()).then(|| {
                let end = scanner.end(text, at);
                assert!(end > at && text.is_char_boundary(end), "from {at} to {end} in {text:?}");
                at = end;
                at
            })
        })
        .collect()
    }

    /// Asserts that each scanner splits `text` as its pattern does.
    pub fn agree(regexes: &[(&str, Regex)], text: &str) {
        for (pattern, regex) in regexes {
            let scanned = match Splitter::known(pattern).unwrap() {
                Splitter::Gpt2(scanner) => by_scanner(&scanner, text),
                Splitter::Cl100k(scanner) => by_scanner(&scanner, text),
                Splitter::Llama3(scanner) => by_scanner(&scanner, text),
                Splitter::Qwen2(scanner) => by_scanner(&scanner, text),
                Splitter::Nanochat(scanner) => by_scanner(&scanner, text),
                Splitter::O200k(scanner) => by_scanner(&scanner, text),
                Splitter::Regex(_) => unreachable!(),
            };
            assert_eq!(scanned, by_regex(regex, text), "{pattern} on {text:?}");
        }
    }

    /// All patterns that have a scanner.
    pub(crate) fn regexes() -> Vec<(&'static str, Regex)> {
        let patterns = [GPT2, GPT2_FIRST, GPT2_CLASSES, CL100K, LLAMA3, QWEN2, NANOCHAT, O200K];
        patterns.map(|pattern| (pattern, Regex::new(pattern).unwrap())).into()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        oracle::{agree, regexes},
        *,
    };

    /// Every character, next to characters that it may join with, before and after it.
    #[test]
    fn every_character_is_cut_as_by_the_pattern() {
        let regexes = regexes();
        let characters: Vec<char> = (0..=char::MAX as u32).filter_map(char::from_u32).collect();
        for some in characters.chunks(64) {
            let text: String =
                some.iter().flat_map(|&char| ['b', char, 'c', ' ', char, '1', char, '\'', char]).collect();
            agree(&regexes, &text);
        }
    }

    /// Every text of four characters, with one character of each kind.
    #[test]
    fn every_short_text_is_cut_as_by_the_pattern() {
        let regexes = regexes();
        let kinds =
            [' ', '\n', '\r', '\t', '\u{a0}', 'a', 'S', 'ſ', '字', '\u{301}', '1', '²', '\'', '!', '/', '😀'];
        let n = kinds.len();
        for i in 0..n.pow(4) {
            let text: String = (0..4).map(|place| kinds[i / n.pow(place) % n]).collect();
            agree(&regexes, &text);
        }
    }

    fn pieces() -> impl Strategy<Value = String> {
        let words = [
            " ",
            "  ",
            "\n",
            "\r\n",
            "\t",
            "\u{3000}",
            "'s",
            "'S",
            "'ll",
            "'LL",
            "'re",
            "'vE",
            "'d",
            "'ſ",
            "it",
            "Hello",
            "HTML",
            "aB",
            "Ǆ",
            "ǅx",
            "ʰ",
            "naïve",
            "über",
            "Straße",
            "слово",
            "Δοκιμή",
            "שלום",
            "مرحبا",
            "١٢٣",
            "नमस्ते",
            "ไทย",
            "日本語",
            "한국어",
            "e\u{301}",
            "0",
            "12",
            "1234567",
            "½",
            "²",
            "Ⅷ",
            "!",
            "...",
            "://",
            "/",
            "#!",
            "\0",
            "\u{7f}",
            "\u{85}",
            "\u{200d}",
            "👩‍👩‍👧",
            "🇩🇪",
            "\u{feff}",
            "<|endoftext|>",
        ];
        proptest::collection::vec(prop_oneof![8 => proptest::sample::select(words.to_vec()).prop_map(String::from), 1 => any::<char>().prop_map(String::from)], 0..40)
            .prop_map(|words| words.concat())
    }

    proptest! {
        #[test]
        fn any_text_is_cut_as_by_the_pattern(text in pieces()) {
            thread_local!(static REGEXES: Vec<(&'static str, Regex)> = regexes());
            REGEXES.with(|regexes| agree(regexes, &text));
        }
    }
}
