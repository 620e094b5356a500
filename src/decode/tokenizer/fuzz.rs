//! Fuzz targets of the readers of tokenizers' files and of the scanners; see [`crate::fuzz`].

use std::sync::OnceLock;

use fancy_regex::Regex;

use super::{Tokenizer, TokenizerOptions, split::oracle};

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
pub(crate) fn ranks(bytes: &[u8]) {
    encodes_what_it_reads(bytes);
}

/// Reads the bytes as a `tokenizer.json`.
pub(crate) fn tokenizer_json(bytes: &[u8]) {
    encodes_what_it_reads(bytes);
}

/// Compares each scanner with its pattern as a regular expression, on any text.
pub(crate) fn splitters(bytes: &[u8]) {
    static REGEXES: OnceLock<Vec<(&str, Regex)>> = OnceLock::new();
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(TEXT)]);
    oracle::agree(REGEXES.get_or_init(oracle::regexes), &text);
}
