//! SentencePiece models: `.model` files of the library `sentencepiece`.
//!
//! Input: text, normalised by the model's own rules (`normalizer`). Output: the ids of the library's
//! `encode`, of any of its four kinds of models: unigram (`unigram`), byte pair encoding (`merges`), words,
//! and characters. A character that no piece covers is the unknown piece, one for a run of them; or with byte
//! fallback the pieces of its bytes.
//!
//! | piece | in a text |
//! |---|---|
//! | NORMAL | where the model's algorithm chooses it |
//! | USER_DEFINED | wherever it occurs; never normalised |
//! | UNKNOWN, BYTE | for characters that no piece covers |
//! | CONTROL, UNUSED | never; control pieces are special tokens |
//!
//! Ids are compared with those of sentencepiece 0.2.3 (`tests/python/tokens/test_sentencepiece.py`). Versions
//! up to 0.2.1 compare the sums of a unigram model in 64 bits and score user-defined pieces lower, so their
//! ids differ where two sums are nearly equal.
//!
//! Source: Kudo, Richardson, "SentencePiece" (2018). The file: `proto`.

mod merges;
mod normalizer;
mod proto;
mod unigram;

use std::collections::BTreeMap;

use super::{
    fingerprint::Fingerprint,
    pairs::{MergeDropout, Parts},
    trie::Trie,
    words::Words,
};
use crate::{Error, ErrorKind, Result, fallible_alloc};

use merges::{KEPT_BYTES, MAX_PIECES, MergeBuffers, Merges};
use normalizer::{Normalizer, SPACE};
use proto::{FilePiece, ModelFile};
use unigram::{Paths, Unigram};

pub use proto::is_model;

/// The type of a piece, as the file numbers it from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PieceType {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

impl PieceType {
    fn of(number: u64) -> Option<Self> {
        use PieceType::*;
        let all = [Normal, Unknown, Control, UserDefined, Unused, Byte];
        all.get(usize::try_from(number).ok()?.checked_sub(1)?).copied()
    }
}

/// The bytes of the character that begins with `byte`.
fn first_len(byte: u8) -> usize {
    match byte {
        0..0x80 => 1,
        0x80..0xE0 => 2,
        0xE0..0xF0 => 3,
        0xF0..=0xFF => 4,
    }
}

/// What is emitted for characters that no piece covers.
#[derive(Debug)]
pub struct UnknownCharacters {
    pub id: u32,
    /// The ids of the bytes, with byte fallback.
    bytes: Option<Box<[u32; 256]>>,
}

impl UnknownCharacters {
    /// Appends the ids of a character. `from` is where the ids begin among which a run is one id.
    fn append(&self, char: &[u8], from: usize, ids: &mut Vec<u32>) -> Result<()> {
        match &self.bytes {
            Some(bytes) => {
                fallible_alloc::grow(ids, char.len())?;
                ids.extend(char.iter().map(|&byte| bytes[usize::from(byte)]));
                Ok(())
            }
            None if ids.len() > from && ids.last() == Some(&self.id) => Ok(()),
            None => fallible_alloc::push(ids, self.id),
        }
    }

    /// Joins a run of unknown characters that continues at `at`; the text's ids begin at `begin`.
    fn join(&self, begin: usize, at: usize, ids: &mut Vec<u32>) {
        if at > begin && ids[at - 1] == self.id && ids.get(at) == Some(&self.id) {
            ids.remove(at);
        }
    }
}

#[derive(Debug)]
enum Algorithm {
    Unigram(Unigram),
    Merges(Box<Merges>),
    Words(Trie),
    Characters(Trie),
}

/// The pieces by id, for decoding.
#[derive(Debug)]
struct Pieces {
    texts: String,
    /// Where each text ends.
    ends: Vec<usize>,
    kinds: Vec<PieceType>,
}

impl Pieces {
    fn new(pieces: &[FilePiece<'_>]) -> Result<Self> {
        let total = pieces.iter().map(|piece| piece.text.len()).sum();
        let mut texts = String::new();
        texts.try_reserve_exact(total).map_err(|_| fallible_alloc::refused(total))?;
        let (mut ends, mut kinds) =
            (fallible_alloc::with_room(pieces.len())?, fallible_alloc::with_room(pieces.len())?);
        for piece in pieces {
            texts.push_str(piece.text);
            ends.push(texts.len());
            kinds.push(piece.kind);
        }
        Ok(Self { texts, ends, kinds })
    }

    fn get(&self, id: usize) -> Option<(&str, PieceType)> {
        let end = *self.ends.get(id)?;
        let begin = id.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some((&self.texts[begin..end], self.kinds[id]))
    }
}

/// The ids of a model's own special pieces; None for those that it does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpecialIds {
    /// Of unknown characters.
    pub unknown: Option<u32>,
    /// That begins a text.
    pub bos: Option<u32>,
    /// That ends a text.
    pub eos: Option<u32>,
    /// That fills a row.
    pub pad: Option<u32>,
}

/// A SentencePiece model.
#[derive(Debug)]
pub struct SentencePiece {
    algorithm: Algorithm,
    normalizer: Normalizer,
    denormalizer: Option<Normalizer>,
    user_defined: Trie,
    unknown: UnknownCharacters,
    /// What the unknown piece is decoded to.
    unknown_text: String,
    pieces: Pieces,
    pub special: SpecialIds,
    pub special_tokens: BTreeMap<String, u32>,
    pub n_vocab: usize,
    pub fingerprint: u64,
}

/// The cache and buffers of one worker, kept from text to text.
#[derive(Debug, Default)]
pub struct PieceScratch {
    words: Words,
    parts: Parts,
    normalized: Vec<u8>,
    merges: MergeBuffers,
    paths: Paths,
}

impl SentencePiece {
    /// Reads the content of a `.model` file.
    ///
    /// # Errors
    /// [`ErrorKind::Format`] if the file is damaged or has a type of model that this does not know,
    /// [`ErrorKind::Memory`].
    pub fn open(bytes: &[u8]) -> Result<Self> {
        let model = proto::read(bytes)?;
        let pieces = &model.pieces[..];
        let damaged = |message: String| Err(Error::new(ErrorKind::Format, message));
        if pieces.len() >= MAX_PIECES {
            return damaged(format!(
                "the SentencePiece model has {} pieces, expected fewer than {MAX_PIECES}",
                pieces.len()
            ));
        }
        let unknown = unknown_characters(&model)?;
        twice(pieces)?;
        let of_kinds = |kinds: &[PieceType]| {
            let mut chosen = Vec::new();
            for (id, piece) in (0..).zip(pieces).filter(|(_, piece)| kinds.contains(&piece.kind)) {
                fallible_alloc::push(&mut chosen, (piece.text.as_bytes(), id))?;
            }
            Trie::new(chosen)
        };
        let whole = [PieceType::Normal, PieceType::UserDefined, PieceType::Unused];
        let algorithm = match model.model_type {
            1 => Algorithm::Unigram(Unigram::new(pieces)?),
            2 => Algorithm::Merges(Box::new(Merges::new(pieces)?)),
            3 => Algorithm::Words(of_kinds(&whole)?),
            4 => Algorithm::Characters(of_kinds(&whole)?),
            other => {
                return damaged(format!(
                    "the SentencePiece model has model_type {other}, expected 1 (unigram), 2 (bpe), 3 (word) or 4 (char)"
                ));
            }
        };
        let user_defined = of_kinds(&[PieceType::UserDefined])?;
        let normalizer = Normalizer::new(&model.normalizer, &user_defined, model.treat_whitespace_as_suffix)?;
        let denormalizer = match model.denormalizer.precompiled {
            [] => None,
            _ => Some(Normalizer::new(&model.denormalizer, &Trie::default(), false)?),
        };
        let control = |text: &str| {
            let found =
                pieces.iter().position(|piece| piece.kind == PieceType::Control && piece.text == text);
            found.map(|id| id as u32)
        };
        let special = SpecialIds {
            unknown: Some(unknown.id),
            bos: control(model.bos),
            eos: control(model.eos),
            pad: control(model.pad),
        };
        let is_special =
            |piece: &FilePiece<'_>| matches!(piece.kind, PieceType::Control | PieceType::Unknown);
        let special_tokens = (0..)
            .zip(pieces)
            .filter(|(_, piece)| is_special(piece))
            .map(|(id, piece)| (piece.text.to_owned(), id))
            .collect();
        let mut fingerprint = Fingerprint::new();
        fingerprint.bytes(bytes);
        Ok(Self {
            algorithm,
            normalizer,
            denormalizer,
            user_defined,
            unknown,
            unknown_text: model.unk_surface.to_owned(),
            pieces: Pieces::new(pieces)?,
            special,
            special_tokens,
            n_vocab: pieces.len(),
            fingerprint: fingerprint.finish(),
        })
    }

    /// Whether a text may have this piece: as a part of it, a byte of a character, or for unknown characters.
    pub fn is_ordinary(&self, id: u32) -> bool {
        let kind = self.pieces.get(id as usize).map(|(_, kind)| kind);
        matches!(kind, Some(PieceType::Normal | PieceType::Byte | PieceType::Unknown))
    }

    /// The id of the piece `text`.
    pub fn id(&self, text: &str) -> Option<u32> {
        let is_it = |id: &usize| self.pieces.get(*id).is_some_and(|(piece, _)| piece == text);
        let special = self.special_tokens.get(text).copied();
        special.or_else(|| (0..self.n_vocab).find(is_it).map(|id| id as u32))
    }

    /// Appends the ids of `text`.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`], [`ErrorKind::Memory`].
    pub fn encode(&self, text: &str, scratch: &mut PieceScratch, ids: &mut Vec<u32>) -> Result<()> {
        self.normalized(text, scratch, |text, scratch| match &self.algorithm {
            Algorithm::Unigram(it) => it.encode(text, &self.unknown, &mut scratch.paths, ids),
            Algorithm::Merges(it) => it.encode(text, &self.user_defined, &self.unknown, scratch, ids),
            Algorithm::Words(pieces) => self.split(pieces, text, word_len, ids),
            Algorithm::Characters(pieces) => {
                let len = |rest: &[u8]| {
                    self.user_defined.longest(rest).map_or_else(|| first_len(rest[0]), |(len, _)| len)
                };
                self.split(pieces, text, len, ids)
            }
        })
    }

    /// Whether merges may be left out at random.
    pub fn has_merges(&self) -> bool {
        matches!(self.algorithm, Algorithm::Merges(_))
    }

    /// As [`Self::encode`], without the merges that `dropout` leaves out. Models without merges ignore it.
    ///
    /// # Errors
    /// As [`Self::encode`].
    pub fn encode_with_dropout(
        &self,
        text: &str,
        dropout: MergeDropout,
        scratch: &mut PieceScratch,
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        let Algorithm::Merges(it) = &self.algorithm else { return self.encode(text, scratch, ids) };
        self.normalized(text, scratch, |text, scratch| {
            it.encode_with_dropout(text, &self.user_defined, &self.unknown, dropout, scratch, ids)
        })
    }

    /// Calls `encode` with the normalised text.
    fn normalized(
        &self,
        text: &str,
        scratch: &mut PieceScratch,
        encode: impl FnOnce(&[u8], &mut PieceScratch) -> Result<()>,
    ) -> Result<()> {
        let mut normalized = std::mem::take(&mut scratch.normalized);
        let result = self
            .normalizer
            .normalize(text, &self.user_defined, &mut normalized)
            .and_then(|()| encode(&normalized, scratch));
        if normalized.capacity() <= KEPT_BYTES {
            scratch.normalized = normalized;
        }
        result
    }

    /// Appends the id of each part of `text`, whose length `len` finds.
    fn split(
        &self,
        pieces: &Trie,
        text: &[u8],
        len: impl Fn(&[u8]) -> usize,
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        let before = ids.len();
        let mut rest = text;
        while !rest.is_empty() {
            let (part, after) = rest.split_at(len(rest).min(rest.len()));
            match pieces.longest(part).filter(|(len, _)| *len == part.len()) {
                Some((_, id)) => fallible_alloc::push(ids, id)?,
                None => self.unknown.append(part, before, ids)?,
            }
            rest = after;
        }
        Ok(())
    }

    /// The text of `ids`, as the library decodes them: control pieces are left out, an unknown one is the
    /// model's text for it.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for an id without a piece, [`ErrorKind::TooLarge`], [`ErrorKind::Memory`].
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        let mut text = String::new();
        // Bytes that may be characters together.
        let mut bytes = Vec::new();
        let (drops_first, drops_all) = self.normalizer.drops_first_space();
        let mut dropped = false;
        for (at, &id) in ids.iter().enumerate() {
            let (piece, kind) = self.pieces.get(id as usize).ok_or_else(|| {
                let n = self.n_vocab;
                Error::new(
                    ErrorKind::Config,
                    format!("ids[{at}] is {id}, which is no token; the ids are below {n}"),
                )
            })?;
            if let (PieceType::Byte, Some(byte)) = (kind, byte_of(piece)) {
                fallible_alloc::push(&mut bytes, byte)?;
                continue;
            }
            append_bytes(&mut text, &mut bytes)?;
            let is_first = !dropped && text.is_empty();
            dropped = false;
            let new = match kind {
                PieceType::Control => continue,
                PieceType::Unknown => {
                    push_str(&mut text, &self.unknown_text)?;
                    continue;
                }
                _ if is_first && drops_first => match piece.strip_prefix(SPACE) {
                    Some(rest) => {
                        dropped = !drops_all;
                        rest
                    }
                    None => piece,
                },
                _ => piece,
            };
            for (number, part) in new.split(SPACE).enumerate() {
                if number > 0 {
                    push_str(&mut text, " ")?;
                }
                push_str(&mut text, part)?;
            }
        }
        append_bytes(&mut text, &mut bytes)?;
        match &self.denormalizer {
            None => Ok(text),
            Some(denormalizer) => {
                let mut out = Vec::new();
                denormalizer.normalize(&text, &Trie::default(), &mut out)?;
                Ok(String::from_utf8_lossy(&out).into_owned())
            }
        }
    }
}

fn push_str(text: &mut String, more: &str) -> Result<()> {
    text.try_reserve(more.len())
        .map_err(|_| fallible_alloc::refused(text.len().saturating_add(more.len())))?;
    text.push_str(more);
    Ok(())
}

/// Appends the characters of `bytes`, U+FFFD for each byte that is none, and empties them.
fn append_bytes(text: &mut String, bytes: &mut Vec<u8>) -> Result<()> {
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let valid = std::str::from_utf8(rest).map_or_else(|error| error.valid_up_to(), str::len);
        push_str(text, std::str::from_utf8(&rest[..valid]).unwrap_or_default())?;
        rest = &rest[valid..];
        if !rest.is_empty() {
            push_str(text, "\u{FFFD}")?;
            rest = &rest[1..];
        }
    }
    bytes.clear();
    Ok(())
}

/// The word at the start of a text: up to the next space.
fn word_len(text: &[u8]) -> usize {
    let space = SPACE.as_bytes();
    let mut at = first_len(text[0]).min(text.len());
    while at < text.len() && !text[at..].starts_with(space) {
        at += 1;
    }
    at
}

/// The byte of a piece such as `<0x0A>`.
fn byte_of(piece: &str) -> Option<u8> {
    let digits = piece.strip_prefix("<0x")?.strip_suffix('>')?;
    let is_hex = digits.len() == 2 && digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'A'..=b'F'));
    is_hex.then(|| u8::from_str_radix(digits, 16).ok())?
}

/// The unknown piece, and the bytes of the model.
fn unknown_characters(model: &ModelFile<'_>) -> Result<UnknownCharacters> {
    let damaged = |message: String| Err(Error::new(ErrorKind::Format, message));
    let mut unknown = (0..).zip(&model.pieces).filter(|(_, piece)| piece.kind == PieceType::Unknown);
    let id = match (unknown.next(), unknown.next()) {
        (Some((id, _)), None) => id,
        (None, _) => {
            return damaged(format!(
                "none of the {} pieces of the SentencePiece model has the type UNKNOWN, expected one",
                model.pieces.len()
            ));
        }
        (Some((_, first)), Some((_, second))) => {
            return damaged(format!(
                "the pieces {:?} and {:?} of the SentencePiece model have the type UNKNOWN, expected one",
                first.text, second.text
            ));
        }
    };
    let mut bytes = [None; 256];
    for (id, piece) in (0..).zip(&model.pieces).filter(|(_, piece)| piece.kind == PieceType::Byte) {
        let Some(byte) = byte_of(piece.text) else {
            return damaged(format!(
                "the piece {:?} of the SentencePiece model has the type BYTE, expected a text such as <0x0A>",
                piece.text
            ));
        };
        if !model.byte_fallback {
            return damaged(format!(
                "the SentencePiece model has the piece {:?} of type BYTE, but no byte_fallback; expected both or neither",
                piece.text
            ));
        }
        bytes[usize::from(byte)] = Some(id);
    }
    if !model.byte_fallback {
        return Ok(UnknownCharacters { id, bytes: None });
    }
    if let Some(missing) = bytes.iter().position(Option::is_none) {
        return damaged(format!(
            "the SentencePiece model has byte_fallback, but no piece <0x{missing:02X}>; expected one for each of the 256 bytes"
        ));
    }
    Ok(UnknownCharacters { id, bytes: Some(Box::new(bytes.map(Option::unwrap_or_default))) })
}

/// Refuses two pieces with the same text, unless only one of them is found in texts.
fn twice(pieces: &[FilePiece<'_>]) -> Result<()> {
    let key = |piece: &FilePiece<'_>| {
        matches!(piece.kind, PieceType::Normal | PieceType::UserDefined | PieceType::Unused)
    };
    let mut all = fallible_alloc::with_room(pieces.len())?;
    all.extend(pieces.iter().map(|piece| (piece.text, key(piece))));
    all.sort_unstable();
    match all.windows(2).find(|two| two[0] == two[1]) {
        None => Ok(()),
        Some(two) => Err(Error::new(
            ErrorKind::Format,
            format!("the SentencePiece model has the piece {:?} twice, expected each text once", two[0].0),
        )),
    }
}
