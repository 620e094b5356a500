//! Byte pair encoding as SentencePiece does it: starts from characters, and merges the pair with the highest
//! score.
//!
//! Input: normalised text. Output: the ids of pieces, and of characters that are none. Two parts are merged
//! if their concatenation is a piece, leftmost first at equal scores. User-defined pieces are one part from
//! the start and are never merged. Merging is that of [`MergeTable`]; its ranks are those of the scores.
//!
//! In nearly all models no piece crosses the start of a word. Then words are merged on their own and cached.
//!
//! Source: Kudo, Richardson, "SentencePiece" (2018), section 3.1. Splits into words: own.

use std::collections::HashMap;

use super::{
    super::{
        pairs::{MergeDropout, MergeTable, Symbols},
        table::{Word, word},
        trie::Trie,
        words::IDS,
    },
    PieceScratch, PieceType, UnknownCharacters, first_len,
    normalizer::SPACE,
    proto::FilePiece,
};
use crate::{Error, ErrorKind, Result, fallible_alloc};

/// Added to the id of a user-defined piece: no pair has it.
const FROZEN: u32 = 1 << 29;

/// Added to the code point of a character that is no piece.
const CHARACTER: u32 = 1 << 30;

/// The ids of pieces are below this.
pub const MAX_PIECES: usize = FROZEN as usize;

/// The bytes of text that buffers are kept for.
pub const KEPT_BYTES: usize = 1 << 20;

/// Where a text may be cut, so that no piece crosses the cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WordCuts {
    /// Before a space after something else.
    BeginWithSpace,
    /// After a space before something else.
    EndWithSpace,
    /// Nowhere.
    Whole,
}

impl WordCuts {
    fn of<'a>(pieces: impl Iterator<Item = &'a str> + Clone) -> Self {
        // Whether a piece has a character that is (not) a space, and then one that is not (is).
        let crosses = |is_space: bool| {
            pieces.clone().any(|text| {
                let mut marks = text.chars().map(|char| SPACE.contains(char));
                marks.any(|mark| mark == is_space) && marks.any(|mark| mark != is_space)
            })
        };
        match (crosses(false), crosses(true)) {
            (false, _) => Self::BeginWithSpace,
            (true, false) => Self::EndWithSpace,
            (true, true) => Self::Whole,
        }
    }

    /// The end of the word that begins at `at`.
    fn end(self, text: &[u8], at: usize) -> usize {
        let space = SPACE.as_bytes();
        let spaces = |mut at: usize| {
            while text[at..].starts_with(space) {
                at += space.len();
            }
            at
        };
        let others = |mut at: usize| {
            while let Some(n) = text[at..].iter().position(|&byte| byte == space[0]) {
                at += n;
                if text[at..].starts_with(space) {
                    return at;
                }
                at += 1;
            }
            text.len()
        };
        match self {
            Self::BeginWithSpace => others(spaces(at)),
            Self::EndWithSpace => spaces(others(at)),
            Self::Whole => text.len(),
        }
    }
}

/// Set in the key of a word for the space before it, which leaves room for a longer word: no length sets it.
const SPACE_BEFORE: Word = 1 << 127;

/// The key of a word in the cache, if it is short.
fn key(text: &[u8], start: usize, end: usize) -> Option<Word> {
    match text[start..end].starts_with(SPACE.as_bytes()) {
        true => word(text, start + SPACE.len(), end).map(|word| word | SPACE_BEFORE),
        false => word(text, start, end),
    }
}

/// Buffers of a worker.
#[derive(Debug, Default)]
pub struct MergeBuffers {
    symbols: Vec<u32>,
    merged: Vec<u32>,
}

/// The pieces as merges.
#[derive(Debug)]
pub struct Merges {
    /// What each ASCII character is before any merge.
    ascii: [u32; 128],
    /// Ids of pieces of one character.
    characters: HashMap<char, u32>,
    pairs: MergeTable<Symbols>,
    words: WordCuts,
}

impl Merges {
    /// The merges of these pieces, in the order of their ids.
    ///
    /// # Errors
    /// [`ErrorKind::Format`] if a piece of type UNUSED can be merged, [`ErrorKind::Memory`].
    pub fn new(pieces: &[FilePiece<'_>]) -> Result<Self> {
        let is_text = |piece: &&FilePiece<'_>| {
            matches!(piece.kind, PieceType::Normal | PieceType::UserDefined | PieceType::Unused)
        };
        let words = WordCuts::of(pieces.iter().filter(is_text).map(|piece| piece.text));
        let total: usize = pieces.iter().map(|piece| piece.text.len()).sum();
        let mut reversed: Vec<u8> = fallible_alloc::with_room(total)?;
        pieces.iter().for_each(|piece| reversed.extend(piece.text.bytes().rev()));
        let (mut forward, mut backward) = (Vec::new(), Vec::new());
        let mut characters = HashMap::new();
        let mut at = 0;
        for (id, piece) in (0..).zip(pieces) {
            let len = piece.text.len();
            if is_text(&piece) {
                fallible_alloc::push(&mut forward, (piece.text.as_bytes(), id))?;
                fallible_alloc::push(&mut backward, (&reversed[at..at + len], id))?;
                let mut chars = piece.text.chars();
                if let (Some(char), None) = (chars.next(), chars.next()) {
                    characters.insert(char, id);
                }
            }
            at += len;
        }
        let (forward, backward) = (Trie::new(forward)?, Trie::new(backward)?);
        let mut scores = fallible_alloc::with_room(pieces.len())?;
        // Adding zero makes one zero of both.
        scores.extend(pieces.iter().map(|piece| piece.score + 0.0));
        scores.sort_unstable_by(|a: &f32, b| b.total_cmp(a));
        scores.dedup();
        let mut merges = Vec::new();
        // The left and the right part of a piece for each place at which it may be cut.
        let (mut left, mut right) = (Vec::new(), Vec::new());
        for (id, piece) in (0..).zip(pieces).filter(|(_, piece)| is_text(piece)) {
            let len = piece.text.len();
            for sides in [&mut left, &mut right] {
                sides.clear();
                fallible_alloc::resize(sides, len + 1, None)?;
            }
            forward.prefixes(piece.text.bytes(), |end, id| left[end] = Some(id));
            backward.prefixes(piece.text.bytes().rev(), |size, id| right[len - size] = Some(id));
            let (first, last) = (piece.text.chars().next(), piece.text.chars().next_back());
            for (sides, char, at) in [
                (&mut left, first, first.map_or(0, char::len_utf8)),
                (&mut right, last, len - last.map_or(0, char::len_utf8)),
            ] {
                sides[at] = sides[at].or(char.map(|char| CHARACTER + char as u32));
            }
            let score = piece.score + 0.0;
            let rank = scores.partition_point(|other| other.total_cmp(&score).is_gt()) as u32;
            for at in 1..len {
                let (Some(left), Some(right)) = (left[at], right[at]) else { continue };
                if piece.kind == PieceType::Unused {
                    return Err(Error::new(
                        ErrorKind::Format,
                        format!(
                            "the SentencePiece model has the piece {:?} (id {id}) of type UNUSED, into which other pieces can be \
                             merged; this is not supported for BPE: make it NORMAL, or train without it",
                            piece.text
                        ),
                    ));
                }
                fallible_alloc::push(&mut merges, ((left, right), (rank, id)))?;
            }
        }
        let symbol = |char: char| characters.get(&char).copied().unwrap_or(CHARACTER + char as u32);
        let ascii = std::array::from_fn(|byte| symbol(char::from(byte as u8)));
        Ok(Self { ascii, characters, pairs: MergeTable::new(Symbols, merges.into_iter()), words })
    }

    /// Appends the ids of `text`, which is UTF-8.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`].
    pub fn encode(
        &self,
        text: &[u8],
        user_defined: &Trie,
        unknown: &UnknownCharacters,
        scratch: &mut PieceScratch,
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        let begin = ids.len();
        let mut at = 0;
        while at < text.len() {
            let end = self.words.end(text, at);
            let before = ids.len();
            let word = key(text, at, end);
            fallible_alloc::grow(ids, IDS)?;
            if !word.is_some_and(|word| scratch.words.append(word, ids)) {
                let MergeBuffers { symbols, merged } = &mut scratch.merges;
                self.symbols(&text[at..end], user_defined, symbols)?;
                merged.clear();
                self.pairs.encode(symbols, &mut scratch.parts, merged)?;
                append(merged, unknown, before, ids)?;
                if let Some(word) = word {
                    scratch.words.keep(word, &ids[before..]);
                }
            }
            unknown.join(begin, before, ids);
            at = end;
        }
        scratch.merges.shrink();
        Ok(())
    }

    /// As [`Self::encode`], without the merges that `dropout` leaves out.
    ///
    /// # Errors
    /// As [`Self::encode`].
    pub fn encode_with_dropout(
        &self,
        text: &[u8],
        user_defined: &Trie,
        unknown: &UnknownCharacters,
        mut dropout: MergeDropout,
        scratch: &mut PieceScratch,
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        let begin = ids.len();
        let mut at = 0;
        while at < text.len() {
            let end = self.words.end(text, at);
            let MergeBuffers { symbols, merged } = &mut scratch.merges;
            self.symbols(&text[at..end], user_defined, symbols)?;
            merged.clear();
            self.pairs.encode_with_dropout(symbols, &dropout, &mut scratch.parts, merged)?;
            append(merged, unknown, begin, ids)?;
            dropout.at += symbols.len() as u64;
            at = end;
        }
        scratch.merges.shrink();
        Ok(())
    }

    /// The parts of a text before any merge.
    fn symbols(&self, text: &[u8], user_defined: &Trie, symbols: &mut Vec<u32>) -> Result<()> {
        symbols.clear();
        let mut at = 0;
        while at < text.len() {
            if let Some(&symbol) = self.ascii.get(usize::from(text[at]))
                && !user_defined.begins_with(text[at])
            {
                fallible_alloc::push(symbols, symbol)?;
                at += 1;
                continue;
            }
            let (len, number) = match user_defined.longest(&text[at..]) {
                Some((len, id)) => (len, FROZEN | id),
                None => {
                    let len = first_len(text[at]).min(text.len() - at);
                    let char =
                        std::str::from_utf8(&text[at..at + len]).ok().and_then(|one| one.chars().next());
                    let char = char.unwrap_or(char::REPLACEMENT_CHARACTER);
                    (len, self.characters.get(&char).copied().unwrap_or(CHARACTER + char as u32))
                }
            };
            fallible_alloc::push(symbols, number)?;
            at += len;
        }
        Ok(())
    }
}

/// Appends the ids of symbols. A run of unknown characters from `from` on has one id.
fn append(symbols: &[u32], unknown: &UnknownCharacters, from: usize, ids: &mut Vec<u32>) -> Result<()> {
    for &number in symbols {
        match number.checked_sub(CHARACTER).and_then(char::from_u32) {
            Some(char) => unknown.append(char.encode_utf8(&mut [0; 4]).as_bytes(), from, ids)?,
            None => fallible_alloc::push(ids, number & !FROZEN)?,
        }
    }
    Ok(())
}

impl MergeBuffers {
    /// Frees the memory of a long text.
    fn shrink(&mut self) {
        if self.symbols.capacity().max(self.merged.capacity()) > KEPT_BYTES {
            *self = Self::default();
        }
    }
}
