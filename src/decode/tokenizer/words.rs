//! A worker's memory of words: which ids a piece became, so that a word of everyday use costs one look-up.
//!
//! A fixed number of slots, each with one word of at most 15 bytes and its ids; a word takes the place of
//! whichever was there. What it keeps changes no id. Bounded by construction: [`SLOTS`] entries of 32 bytes.
//!
//! Source: own (direct-mapped cache).

use super::table::{Word, hash};

/// Words kept: 1 MiB, about the second cache of a core.
const SLOTS: usize = 1 << 15;
const SHIFT: u32 = 64 - SLOTS.trailing_zeros();

/// The most ids of a word that is kept.
pub const IDS: usize = 3;

#[derive(Debug, Clone, Copy)]
struct Slot {
    /// 0 if empty: no piece is.
    word: Word,
    n: u32,
    ids: [u32; IDS],
}

/// The words that a worker met last.
#[derive(Debug)]
pub struct Words {
    slots: Box<[Slot]>,
}

impl Default for Words {
    fn default() -> Self {
        Self { slots: vec![Slot { word: 0, n: 0, ids: [0; IDS] }; SLOTS].into_boxed_slice() }
    }
}

impl Words {
    /// Appends the ids of `word` if they are known.
    #[inline]
    pub fn append(&self, word: Word, ids: &mut Vec<u32>) -> bool {
        let slot = &self.slots[(hash(word) >> SHIFT) as usize];
        if slot.word != word {
            return false;
        }
        if slot.n == 1 {
            ids.push(slot.ids[0]);
        } else {
            ids.extend_from_slice(&slot.ids[..(slot.n as usize).min(IDS)]);
        }
        true
    }

    /// Remembers the ids of `word`, unless they are too many.
    pub fn keep(&mut self, word: Word, found: &[u32]) {
        if found.len() <= IDS {
            let mut ids = [0; IDS];
            ids[..found.len()].copy_from_slice(found);
            self.slots[(hash(word) >> SHIFT) as usize] = Slot { word, n: found.len() as u32, ids };
        }
    }
}
