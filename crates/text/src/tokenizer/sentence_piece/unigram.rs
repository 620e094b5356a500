//! The unigram language model: of all ways to write a text as pieces the one with the largest sum of scores.
//!
//! Input: normalised text. Output: the pieces of the best path, by Viterbi's algorithm. Of equal sums the
//! path whose last piece begins first is used.
//!
//! The sums are those of the original library bit for bit: 32-bit floats, added from the start of the text.
//! So a path is the same where rounding decides. Where no piece reaches over a place, each path goes through
//! it: the pieces up to there are emitted, and only the sum is kept. So the buffer has the size of a word,
//! not of the text.
//!
//! Source: Kudo, "Subword regularization" (2018), section 3; the bonus of user-defined pieces and the penalty
//! of unknown characters: observed.

use super::{super::trie::Trie, PieceType, UnknownCharacters, first_len, proto::FilePiece};
use crate::{Result, fallible_alloc};

/// What an unknown character costs beside the least likely piece.
const UNKNOWN_PENALTY: f32 = 10.0;

/// Buffers for longer words are freed.
const KEPT_PLACES: usize = 1 << 16;

/// No path reaches a place.
const UNREACHED: u32 = u32::MAX;

/// The best path to a place.
#[derive(Debug, Clone, Copy)]
pub struct Best {
    sum: f32,
    /// The start of its last piece, from the start of the word; [`UNREACHED`] if there is no path.
    start: u32,
    id: u32,
}

const NO_PATH: Best = Best { sum: 0.0, start: UNREACHED, id: 0 };

/// Buffers of a worker.
#[derive(Debug, Default)]
pub struct Paths {
    best: Vec<Best>,
    /// Id and end of each piece of a word, last first.
    pieces: Vec<(u32, u32)>,
}

/// The pieces and their scores.
#[derive(Debug)]
pub struct Unigram {
    pieces: Trie,
    /// By id.
    scores: Vec<f32>,
    unknown_score: f32,
}

impl Unigram {
    /// The model of these pieces, in the order of their ids.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`](crate::ErrorKind::Memory).
    pub fn new(pieces: &[FilePiece<'_>]) -> Result<Self> {
        let mut scores = fallible_alloc::with_room(pieces.len())?;
        let mut strings = Vec::new();
        let mut smallest = f32::MAX;
        for (id, &FilePiece { text, score, kind }) in (0..).zip(pieces) {
            scores.push(match kind {
                // A tenth for each byte after the first, so that the piece is used wherever it can be.
                PieceType::UserDefined => (text.len() as f64 * 0.1 - 0.1) as f32,
                _ => score,
            });
            if kind == PieceType::Normal {
                smallest = smallest.min(score);
            }
            if matches!(kind, PieceType::Normal | PieceType::UserDefined) {
                fallible_alloc::push(&mut strings, (text.as_bytes(), id))?;
            }
        }
        Ok(Self { pieces: Trie::new(strings)?, scores, unknown_score: smallest - UNKNOWN_PENALTY })
    }

    /// Appends the ids of `text`, which is UTF-8.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`](crate::ErrorKind::Memory).
    pub fn encode(
        &self,
        text: &[u8],
        unknown: &UnknownCharacters,
        paths: &mut Paths,
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        let Paths { best, pieces } = paths;
        let before = ids.len();
        best.clear();
        fallible_alloc::push(best, Best { sum: 0.0, start: 0, id: 0 })?;
        // The word that is searched: from `begin`, with paths to the places up to `begin + best.len() - 1`.
        let (mut begin, mut at) = (0, 0);
        while at < text.len() {
            let sum = best[at - begin].sum;
            let len = first_len(text[at]).min(text.len() - at);
            let mut has_char = false;
            let mut refused = Ok(());
            let start = (at - begin) as u32;
            let mut offer = |len: usize, sum: f32, id: u32, best: &mut Vec<Best>| {
                let place = at - begin + len;
                if place >= best.len() {
                    let more = fallible_alloc::grow(best, place + 1 - best.len());
                    if more.is_err() {
                        refused = more;
                        return;
                    }
                    // bounded: just reserved.
                    best.resize(place + 1, NO_PATH);
                }
                let there = &mut best[place];
                if there.start == UNREACHED || sum > there.sum {
                    *there = Best { sum, start, id };
                }
            };
            self.pieces.prefixes(text[at..].iter().copied(), |length, id| {
                has_char |= length == len;
                offer(length, self.scores[id as usize] + sum, id, best);
            });
            if !has_char {
                offer(len, self.unknown_score + sum, unknown.id, best);
            }
            refused?;
            at += len;
            if at - begin + 1 == best.len() {
                // Each path goes through this place.
                let sum = best[at - begin].sum;
                let mut end = at - begin;
                pieces.clear();
                while end > 0 {
                    let Best { start, id, .. } = best[end];
                    fallible_alloc::push(pieces, (id, end as u32))?;
                    end = start as usize;
                }
                let mut from = begin;
                for &(id, end) in pieces.iter().rev() {
                    let end = begin + end as usize;
                    match id == unknown.id {
                        true => unknown.append(&text[from..end], before, ids)?,
                        false => fallible_alloc::push(ids, id)?,
                    }
                    from = end;
                }
                begin = at;
                best.clear();
                best.push(Best { sum, start: 0, id: 0 });
            }
        }
        if best.capacity().max(pieces.capacity()) > KEPT_PLACES {
            *paths = Paths::default();
        }
        Ok(())
    }
}
