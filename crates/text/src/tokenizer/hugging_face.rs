//! Reads a `tokenizer.json`, as Hugging Face's `tokenizers` writes it.
//!
//! Most files describe byte-level byte pair encoding, for which our own code ([`ByteLevel`]) is several times
//! faster. The `tokenizers` crate handles all others (normalizers, Unigram, WordPiece, patterns without a
//! scanner, added tokens that count in ordinary text). [`byte_level`] returns None for any file that our code
//! does not support.
//!
//! Source: the file format as the crate writes it; the byte alphabet is that of GPT-2's `bytes_to_unicode`.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
    sync::OnceLock,
};

use serde_json::Value;

use super::{
    PostProcessorIds,
    byte_level::{ByteLevel, TokenizerFile},
    fingerprint::Fingerprint,
    marked::{Marks, SpecialTexts},
    split::{GPT2_FIRST, Splitter},
};
use crate::{Error, ErrorKind, Result, catch_panic::caught, fallible_alloc};

/// The implementation that encodes for a file.
pub enum FileTokenizer {
    ByteLevel(Box<ByteLevel>),
    General(Box<General>),
}

pub struct General {
    tokenizer: tokenizers::Tokenizer,
    /// The same, for texts with special tokens; made at the first use.
    with_special: OnceLock<Box<tokenizers::Tokenizer>>,
    pub special_tokens: BTreeMap<String, u32>,
    pub n_vocab: usize,
    pub fingerprint: u64,
}

/// Reads a `tokenizer.json`; also what its post-processor puts around a text.
pub fn open(bytes: &[u8]) -> Result<(FileTokenizer, PostProcessorIds)> {
    let json: Value = serde_json::from_slice(bytes)
        .map_err(|cause| Error::new(ErrorKind::Format, "the file is not JSON").because(cause))?;
    if json.get("model").is_none() {
        return Err(Error::new(
            ErrorKind::Format,
            "the JSON has no \"model\"; a tokenizer.json as Hugging Face's tokenizers writes it is expected",
        ));
    }
    let opened = match byte_level(&json) {
        Some(vocabulary) => FileTokenizer::ByteLevel(Box::new(ByteLevel::new(vocabulary)?)),
        None => FileTokenizer::General(Box::new(General::new(bytes)?)),
    };
    Ok((opened, frame(&json["post_processor"])))
}

/// The ids that a post-processor puts before and after a text. A side with several ids, such as two before
/// the text, has none: no single id frames a document there.
fn frame(post_processor: &Value) -> PostProcessorIds {
    let single = |ids: &[Option<u32>]| match ids {
        [one] => *one,
        _ => None,
    };
    match post_processor["type"].as_str() {
        Some("TemplateProcessing") => {
            let pieces = post_processor["single"].as_array().map_or(&[][..], Vec::as_slice);
            let id_of = |piece: &Value| {
                let name = piece["SpecialToken"]["id"].as_str()?;
                match &post_processor["special_tokens"].get(name)?["ids"].as_array()?[..] {
                    [one] => id(one),
                    _ => None,
                }
            };
            let mut sides = pieces.split(|piece| piece.get("Sequence").is_some());
            let mut side = || single(&sides.next().unwrap_or_default().iter().map(id_of).collect::<Vec<_>>());
            PostProcessorIds { before: side(), after: side() }
        }
        Some("BertProcessing" | "RobertaProcessing") => {
            PostProcessorIds { before: id(&post_processor["cls"][1]), after: id(&post_processor["sep"][1]) }
        }
        Some("Sequence") => {
            let parts = post_processor["processors"].as_array().into_iter().flatten();
            parts.map(frame).find(|frame| *frame != PostProcessorIds::default()).unwrap_or_default()
        }
        _ => PostProcessorIds::default(),
    }
}

/// The vocabulary of a file that describes only byte-level byte pair encoding; None for others.
fn byte_level(json: &Value) -> Option<TokenizerFile> {
    let model = json.get("model")?;
    // Early files have no type; only byte pair encoding has merges.
    if model.get("type").is_some_and(|kind| kind != "BPE") || !json["normalizer"].is_null() {
        return None;
    }
    let unset =
        |name: &str| model[name].is_null() || model[name] == "" || model[name] == false || model[name] == 0.0;
    if !["dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"].into_iter().all(unset)
    {
        return None;
    }
    let pattern = pattern(&json["pre_tokenizer"])?;
    Splitter::known(&pattern)?;
    let (mut special_tokens, mut odd) = (BTreeMap::new(), None);
    for token in json["added_tokens"].as_array().into_iter().flatten() {
        // A token that is not special is matched in ordinary text, which our code does not do.
        if token["special"] != true {
            return None;
        }
        let text = token["content"].as_str()?.to_owned();
        if ["lstrip", "rstrip", "single_word"].iter().any(|flag| token[flag] == true) {
            odd.get_or_insert_with(|| text.clone());
        }
        special_tokens.insert(text, id(&token["id"])?);
    }
    let found = SpecialTexts::new(&special_tokens, odd);
    let alphabet = alphabet();
    let vocab = model.get("vocab")?.as_object()?;
    // bounded: by the parsed file.
    let mut ids = HashMap::with_capacity(vocab.len());
    // bounded: as above.
    let mut tokens = Vec::with_capacity(vocab.len());
    for (text, number) in vocab {
        let id = id(number)?;
        ids.insert(&text[..], id);
        let bytes: Option<Vec<u8>> = text.chars().map(|char| alphabet.get(&char).copied()).collect();
        match bytes {
            Some(bytes) if !special_tokens.contains_key(text) => tokens.push((bytes, id)),
            _ => {
                special_tokens.entry(text.clone()).or_insert(id);
            }
        }
    }
    let mut merges = Vec::new();
    let mut merged = String::new();
    for (rank, merge) in model.get("merges")?.as_array()?.iter().enumerate() {
        let (left, right) = match merge {
            Value::String(pair) => pair.split_once(' ')?,
            Value::Array(pair) => match &pair[..] {
                [left, right] => (left.as_str()?, right.as_str()?),
                _ => return None,
            },
            _ => return None,
        };
        merged.clear();
        merged.extend([left, right]);
        let of = |text: &str| ids.get(text).copied();
        merges.push(((of(left)?, of(right)?), (u32::try_from(rank).ok()?, of(&merged)?)));
    }
    let whole = model["ignore_merges"] == true;
    (tokens.iter().filter(|(bytes, _)| bytes.len() == 1).count() == 256).then_some(TokenizerFile {
        tokens,
        merges,
        pattern,
        special_tokens,
        found,
        whole,
    })
}

fn id(number: &Value) -> Option<u32> {
    number.as_u64().and_then(|id| i32::try_from(id).ok()).and_then(|id| u32::try_from(id).ok())
}

/// The pattern by which a pre-tokenizer splits, if it then only maps the pieces to bytes.
fn pattern(pre_tokenizer: &Value) -> Option<String> {
    let is_bytes = |it: &Value, use_regex: bool| {
        it["type"] == "ByteLevel"
            && it["add_prefix_space"] == false
            && it["use_regex"].as_bool().unwrap_or(true) == use_regex
    };
    if is_bytes(pre_tokenizer, true) {
        return Some(GPT2_FIRST.to_owned());
    }
    match &pre_tokenizer["pretokenizers"].as_array()?[..] {
        [bytes] if is_bytes(bytes, true) => Some(GPT2_FIRST.to_owned()),
        [split, bytes] if is_bytes(bytes, false) => {
            let isolated =
                split["type"] == "Split" && split["behavior"] == "Isolated" && split["invert"] == false;
            isolated.then(|| split["pattern"]["Regex"].as_str().map(str::to_owned))?
        }
        _ => None,
    }
}

/// The byte for each character of a byte-level token: printable Latin-1 stands for itself, the characters
/// from U+0100 on for the other bytes.
fn alphabet() -> HashMap<char, u8> {
    let printable = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let others = (0..=255).filter(|byte| !printable(byte)).zip('\u{100}'..).map(|(byte, char)| (char, byte));
    (0..=255).filter(printable).map(|byte| (char::from(byte), byte)).chain(others).collect()
}

impl General {
    fn new(bytes: &[u8]) -> Result<Self> {
        let read = || {
            let mut tokenizer = tokenizers::Tokenizer::from_bytes(bytes)?;
            // Text that looks like a special token is ordinary text. Padding and truncation are off: rows are
            // packed later.
            tokenizer.set_encode_special_tokens(true);
            tokenizer.with_padding(None);
            tokenizer.with_truncation(None)?;
            Ok(tokenizer)
        };
        let bad = |cause: tokenizers::Error| cause.to_string();
        let tokenizer = caught(read).and_then(|read| read.map_err(bad)).map_err(|cause| {
            Error::new(ErrorKind::Format, format!("the tokenizers library cannot read the file: {cause}"))
        })?;
        let vocab = tokenizer.get_vocab(true);
        let special_tokens = tokenizer
            .get_added_tokens_decoder()
            .iter()
            .filter(|(_, token)| token.special)
            .map(|(&id, token)| (token.content.clone(), id))
            .chain(super::BOS.iter().filter_map(|&text| Some((text.to_owned(), *vocab.get(text)?))))
            .collect();
        let mut fingerprint = Fingerprint::new();
        fingerprint.bytes(bytes);
        Ok(Self {
            special_tokens,
            n_vocab: vocab.values().max().map_or(0, |&id| id as usize + 1),
            fingerprint: fingerprint.finish(),
            with_special: OnceLock::new(),
            tokenizer,
        })
    }

    /// Whether a token is in the vocabulary and was not added to it.
    pub fn is_ordinary(&self, id: u32) -> bool {
        self.tokenizer.id_to_token(id).is_some()
            && !self.tokenizer.get_added_tokens_decoder().contains_key(&id)
    }

    /// The id of a token by its text.
    pub fn id(&self, text: &str) -> Option<u32> {
        self.tokenizer.token_to_id(text)
    }

    /// The text of `ids`, special tokens included.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        // The library leaves out ids that are no tokens.
        if let Some(at) = ids.iter().position(|&id| self.tokenizer.id_to_token(id).is_none()) {
            let message =
                format!("ids[{at}] is {}, which is no token; the ids are below {}", ids[at], self.n_vocab);
            return Err(Error::new(ErrorKind::Config, message));
        }
        let decode = || self.tokenizer.decode(ids, false).map_err(|cause| cause.to_string());
        caught(decode).and_then(|text| text).map_err(|cause| {
            let message = format!("the tokenizers library cannot decode the ids: {cause}");
            Error::new(ErrorKind::Corrupt, message)
        })
    }

    /// Appends the ids of `text`.
    ///
    /// The library panics on some texts with some files, such as a normalizer that replaces the empty string.
    /// It stays usable after a panic: encoding changes only its cache of words.
    pub fn encode(&self, text: &str, ids: &mut Vec<u32>) -> Result<()> {
        let corrupt = |cause: String| {
            let message = format!("the tokenizers library cannot encode the text: {cause}");
            Error::new(ErrorKind::Corrupt, message)
        };
        let encode = || self.tokenizer.encode_fast(text, false).map_err(|cause| cause.to_string());
        let encoding = caught(encode).and_then(|encoding| encoding).map_err(corrupt)?;
        let found = encoding.get_ids();
        fallible_alloc::grow(ids, found.len())?;
        ids.extend_from_slice(found);
        Ok(())
    }

    /// As [`Self::encode`], with the ids of special tokens where the text has theirs; tokens that have no
    /// byte of `parts` get the bit `masked`.
    pub fn encode_marked(
        &self,
        text: &str,
        (parts, masked): (&[Range<usize>], u32),
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        let corrupt = |cause: String| {
            let message = format!("the tokenizers library cannot encode the text: {cause}");
            Error::new(ErrorKind::Corrupt, message)
        };
        let encode = || {
            let tokenizer = self.with_special.get_or_init(|| {
                let mut tokenizer = self.tokenizer.clone();
                tokenizer.set_encode_special_tokens(false);
                tokenizer.into()
            });
            tokenizer.encode(text, false).map_err(|cause| cause.to_string())
        };
        let encoding = caught(encode).and_then(|encoding| encoding).map_err(corrupt)?;
        fallible_alloc::grow(ids, encoding.get_ids().len())?;
        let mut marks = Marks::new(parts, masked);
        let tokens = encoding.get_ids().iter().zip(encoding.get_offsets());
        ids.extend(tokens.map(|(id, &(start, end))| id | marks.bit(start..end)));
        Ok(())
    }
}
