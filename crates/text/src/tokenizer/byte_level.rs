//! Byte-level byte pair encoding: splits the text into pieces, and merges the bytes of each piece.
//!
//! Input: text. Output: the ids of the library that the file is from. A piece is looked up in the worker's
//! word cache ([`Words`]), then among the tokens, and merged ([`MergeTable`]) if it is in neither.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
};

use super::{
    fingerprint::Fingerprint,
    marked::{Marks, SpecialTexts},
    pairs::{MergeDropout, MergeTable, Parts},
    scan::Scanner,
    split::Splitter,
    table::{TokenTable, word},
    words::{IDS, Words},
};
use crate::{Error, ErrorKind, Result, fallible_alloc};

/// A pair of ids, with rank and id of the merged token.
pub type Merge = ((u32, u32), (u32, u32));

/// The content of a tokenizer's file.
pub struct TokenizerFile {
    /// Bytes and id of each ordinary token.
    pub tokens: Vec<(Vec<u8>, u32)>,
    /// Pairs of ids, with rank and id of the merged token.
    pub merges: Vec<Merge>,
    /// The regular expression whose matches are the pieces.
    pub pattern: String,
    /// Tokens that text is never encoded to.
    pub special_tokens: BTreeMap<String, u32>,
    /// Those that the library finds in a text with special tokens.
    pub found: SpecialTexts,
    /// Whether a piece that is a token is encoded as that token, even if merging gives other ids.
    pub whole: bool,
}

/// The bytes of each token by its id, special tokens included.
#[derive(Debug, Default)]
struct TokenBytes {
    bytes: Vec<u8>,
    /// Start and length in `bytes`.
    places: HashMap<u32, (usize, usize)>,
}

impl TokenBytes {
    fn new(tokens: &[(Vec<u8>, u32)], special_tokens: &BTreeMap<String, u32>) -> Self {
        let mut texts = Self::default();
        let special = special_tokens.iter().map(|(text, id)| (text.as_bytes(), *id));
        for (bytes, id) in tokens.iter().map(|(bytes, id)| (&bytes[..], *id)).chain(special) {
            // bounded: by the tokens of the file.
            texts.places.insert(id, (texts.bytes.len(), bytes.len()));
            texts.bytes.extend_from_slice(bytes);
        }
        texts
    }

    fn get(&self, id: u32) -> Option<&[u8]> {
        self.places.get(&id).map(|&(start, len)| &self.bytes[start..start + len])
    }

    /// The smallest id with these bytes.
    fn id(&self, bytes: &[u8]) -> Option<u32> {
        self.places.keys().copied().filter(|&id| self.get(id) == Some(bytes)).min()
    }
}

pub struct ByteLevel {
    splitter: Splitter,
    /// Pieces that are encoded as one token without merging.
    whole: TokenTable,
    pairs: MergeTable<[u32; 256]>,
    texts: TokenBytes,
    pub special_tokens: BTreeMap<String, u32>,
    found: SpecialTexts,
    pub n_vocab: usize,
    pub fingerprint: u64,
}

/// The cache and buffers of one worker, kept from text to text.
#[derive(Debug, Default)]
pub struct ByteLevelScratch {
    words: Words,
    parts: Parts,
}

impl ByteLevel {
    pub fn new(vocabulary: TokenizerFile) -> Result<Self> {
        let TokenizerFile { tokens, merges, pattern, special_tokens, found, whole } = vocabulary;
        let mut bytes = [None; 256];
        for (token, id) in &tokens {
            if let [byte] = token[..] {
                bytes[usize::from(byte)] = Some(*id);
            }
        }
        let missing = || bytes.iter().position(Option::is_none).unwrap_or(0);
        let of_bytes: Vec<u32> = bytes.iter().flatten().copied().collect();
        let of_bytes = <[u32; 256]>::try_from(of_bytes).map_err(|of_bytes| {
            Error::new(
                ErrorKind::Format,
                format!(
                    "{} of the 256 single bytes are tokens, expected all; byte {:#04x} is none",
                    of_bytes.len(),
                    missing()
                ),
            )
        })?;
        let largest = tokens.iter().map(|(_, id)| *id).chain(special_tokens.values().copied()).max();
        let fingerprint = fingerprint(&tokens, &merges, &pattern, &special_tokens, whole);
        let pieces = if whole { &tokens[..] } else { &[] };
        let texts = TokenBytes::new(&tokens, &special_tokens);
        Ok(Self {
            splitter: Splitter::new(&pattern)?,
            whole: TokenTable::new(pieces.iter().map(|(bytes, id)| (&bytes[..], *id))),
            pairs: MergeTable::new(of_bytes, merges.into_iter()),
            texts,
            special_tokens,
            found,
            n_vocab: largest.map_or(0, |id| id as usize + 1),
            fingerprint,
        })
    }

    /// The text of a token, which may be a part of a character. None for an id without a token.
    pub fn text(&self, id: u32) -> Option<&[u8]> {
        self.texts.get(id)
    }

    pub fn encode(&self, scratch: &mut ByteLevelScratch, text: &str, ids: &mut Vec<u32>) -> Result<()> {
        self.split(text, |start, end| self.piece(scratch, text.as_bytes(), start, end, ids))
    }

    /// As [`Self::encode`], with the ids of special tokens where the text has theirs; tokens that have no
    /// byte of `parts` get the bit `masked`.
    pub fn encode_marked(
        &self,
        scratch: &mut ByteLevelScratch,
        text: &str,
        (parts, masked): (&[Range<usize>], u32),
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        self.found.check()?;
        let mut marks = Marks::new(parts, masked);
        let mut at = 0;
        while at < text.len() {
            let (start, special) = self.found.next(text, at);
            let before = ids.len();
            if start > at {
                self.encode(scratch, &text[at..start], ids)?;
            }
            for id in &mut ids[before..] {
                let end = at + self.texts.get(*id).map_or(0, <[u8]>::len);
                *id |= marks.bit(at..end);
                at = end;
            }
            if at != start {
                let message = "the tokenizer's pattern leaves out a part of the text, so answers cannot be found in its ids";
                return Err(Error::new(ErrorKind::Corrupt, message));
            }
            if let Some((len, id)) = special {
                fallible_alloc::push(ids, id | marks.bit(at..at + len))?;
                at += len;
            }
        }
        Ok(())
    }

    /// As [`Self::encode`], without the merges that `dropout` leaves out. A piece that is a token is merged
    /// from its bytes, like all others.
    pub fn encode_with_dropout(
        &self,
        scratch: &mut ByteLevelScratch,
        text: &str,
        mut dropout: MergeDropout,
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        self.split(text, |start, end| {
            dropout.at = start as u64;
            let piece = &text.as_bytes()[start..end];
            self.pairs.encode_with_dropout(piece, &dropout, &mut scratch.parts, ids)
        })
    }

    /// The id of a token by its text.
    pub fn id(&self, text: &str) -> Option<u32> {
        let special = self.special_tokens.get(text).copied();
        special.or_else(|| self.texts.id(text.as_bytes()))
    }

    /// Calls `piece` with the start and the end of each piece of `text`.
    #[inline]
    fn split(&self, text: &str, mut piece: impl FnMut(usize, usize) -> Result<()>) -> Result<()> {
        match &self.splitter {
            Splitter::Gpt2(scanner) => scan(*scanner, text, piece),
            Splitter::Cl100k(scanner) => scan(*scanner, text, piece),
            Splitter::Llama3(scanner) => scan(*scanner, text, piece),
            Splitter::Qwen2(scanner) => scan(*scanner, text, piece),
            Splitter::Nanochat(scanner) => scan(*scanner, text, piece),
            Splitter::O200k(scanner) => scan(*scanner, text, piece),
            Splitter::Regex(regex) => {
                for found in regex.find_iter(text) {
                    let found = found.map_err(|cause| {
                        Error::new(ErrorKind::Corrupt, "the pattern gave up on the text; simplify pattern=")
                            .because(cause)
                    })?;
                    piece(found.start(), found.end())?;
                }
                Ok(())
            }
        }
    }

    /// Appends the ids of the piece `text[start..end]`.
    #[inline]
    fn piece(
        &self,
        scratch: &mut ByteLevelScratch,
        text: &[u8],
        start: usize,
        end: usize,
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        if ids.capacity() - ids.len() < IDS {
            fallible_alloc::grow(ids, IDS)?;
        }
        let word = word(text, start, end);
        if word.is_some_and(|word| scratch.words.append(word, ids)) {
            return Ok(());
        }
        self.unknown(scratch, &text[start..end], ids)
    }

    /// Appends the ids of a piece that is not in the word cache.
    #[cold]
    fn unknown(&self, scratch: &mut ByteLevelScratch, piece: &[u8], ids: &mut Vec<u32>) -> Result<()> {
        // A regular expression may match the empty string.
        if piece.is_empty() {
            return Ok(());
        }
        let before = ids.len();
        match self.whole.get_bytes(piece) {
            Some(id) => fallible_alloc::push(ids, id)?,
            None => self.pairs.encode(piece, &mut scratch.parts, ids)?,
        }
        if let Some(word) = word(piece, 0, piece.len()) {
            scratch.words.keep(word, &ids[before..]);
        }
        Ok(())
    }
}

fn scan(scanner: impl Scanner, text: &str, mut piece: impl FnMut(usize, usize) -> Result<()>) -> Result<()> {
    let mut at = 0;
    while at < text.len() {
        let end = scanner.end(text, at);
        piece(at, end)?;
        at = end;
    }
    Ok(())
}

/// A hash of vocabulary, merges, pattern and special tokens.
fn fingerprint(
    tokens: &[(Vec<u8>, u32)],
    merges: &[Merge],
    pattern: &str,
    special_tokens: &BTreeMap<String, u32>,
    whole: bool,
) -> u64 {
    let mut fingerprint = Fingerprint::new();
    let mut in_order: Vec<_> = tokens.iter().map(|(bytes, id)| (*id, &bytes[..])).collect();
    in_order.sort_unstable();
    for (id, bytes) in in_order {
        fingerprint.number(id.into());
        fingerprint.bytes(bytes);
    }
    let mut in_order = merges.to_vec();
    in_order.sort_unstable();
    for ((left, right), (rank, id)) in in_order {
        fingerprint.number(u64::from(left) << 32 | u64::from(right));
        fingerprint.number(u64::from(rank) << 32 | u64::from(id));
    }
    fingerprint.bytes(pattern.as_bytes());
    for (text, id) in special_tokens {
        fingerprint.bytes(text.as_bytes());
        fingerprint.number((*id).into());
    }
    fingerprint.number(whole.into());
    fingerprint.finish()
}
