//! Fuzz targets: the readers of tokenizers' files and the scanners as functions of bytes. See
//! `fuzz/README.md`. Built for tests and with `--cfg fuzzing` only.

use std::sync::OnceLock;

use fancy_regex::Regex;

use crate::tokenizer::{Tokenizer, TokenizerOptions, split::oracle};

/// A parser, called with any bytes.
pub type Target = fn(&[u8]);

/// The targets by name. A target returns for any bytes; if there are two ways to the same result, it compares
/// them.
pub const TARGETS: [(&str, Target); 4] = [
    ("ranks", ranks),
    ("tokenizer_json", tokenizer_json),
    ("sentencepiece", sentencepiece),
    ("splitters", splitters),
];

/// The longest text that is split by regular expressions, bytes.
const TEXT: usize = 2000;

fn encodes_what_it_reads(bytes: &[u8]) {
    let options = TokenizerOptions { bos_id: Some(0), ..TokenizerOptions::default() };
    if let Ok(tokenizer) = Tokenizer::new("gpt2".into(), bytes, &options) {
        let mut ids = Vec::new();
        // Files may lack tokens for some text.
        let _ = tokenizer.encode_ordinary("Hello there, 12345 \u{1f600}!\n\n  x", &mut ids);
    }
}

/// Reads the bytes as a rank file.
fn ranks(bytes: &[u8]) {
    encodes_what_it_reads(bytes);
}

/// Reads the bytes as a `tokenizer.json`.
fn tokenizer_json(bytes: &[u8]) {
    encodes_what_it_reads(bytes);
}

/// Reads the bytes as a SentencePiece model, encodes the part of them that is text, and decodes it.
fn sentencepiece(bytes: &[u8]) {
    let options = TokenizerOptions { bos_id: Some(0), ..TokenizerOptions::default() };
    let Ok(tokenizer) = Tokenizer::new("any".into(), bytes, &options) else { return };
    let own = String::from_utf8_lossy(&bytes[..bytes.len().min(TEXT)]);
    for text in [&own, "Hello there, 12345 \u{1f600}!\n\n  x \u{fb01}\u{2581} "] {
        let mut ids = Vec::new();
        if tokenizer.encode_ordinary(text, &mut ids).is_ok() {
            assert!(ids.iter().all(|&id| (id as usize) < tokenizer.n_vocab()), "{ids:?}");
            let _ = tokenizer.decode(&ids);
        }
        if let Ok(dropout) = tokenizer.dropout(0.3) {
            let _ = tokenizer.encode_with_dropout(text, dropout, 1, &mut ids);
        }
    }
}

/// Compares each scanner with its pattern as a regular expression, on any text.
fn splitters(bytes: &[u8]) {
    static REGEXES: OnceLock<Vec<(&str, Regex)>> = OnceLock::new();
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(TEXT)]);
    oracle::agree(REGEXES.get_or_init(oracle::regexes), &text);
}

#[cfg(test)]
mod tests {
    use crate::fuzzed;

    #[test]
    fn targets_return_whatever_the_bytes_are() {
        fuzzed::check(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."), &super::TARGETS);
    }
}
