//! A worker's cache from pieces to their ids, so that a frequent word costs one look-up.
//!
//! It has [`SLOTS`] slots of 32 bytes, each with one word of at most 15 bytes and its ids. A new word
//! replaces the one in its slot. The cache changes no id.
//!
//! Source: own (direct-mapped cache).

use super::table::{Word, hash};

/// The number of words: 1 MiB, about the second-level cache of a core.
const SLOTS: usize = 1 << 15;
const SHIFT: u32 = 64 - SLOTS.trailing_zeros();

/// The most ids of a cached word.
pub(crate) const IDS: usize = 3;

#[derive(Debug, Clone, Copy)]
struct CachedWord {
    /// 0 if the slot is empty: no piece is empty.
    word: Word,
    n: u32,
    ids: [u32; IDS],
}

/// The word cache of a worker.
#[derive(Debug, Default)]
pub struct Words {
    /// Without slots until the first word is cached: some models cache none.
    slots: Box<[CachedWord]>,
}

impl Words {
    /// Appends the ids of `word` if they are cached; returns whether they are.
    #[inline]
    pub fn append(&self, word: Word, ids: &mut Vec<u32>) -> bool {
        let Some(slot) = self.slots.get((hash(word) >> SHIFT) as usize).filter(|slot| slot.word == word)
        else {
            return false;
        };
        if slot.n == 1 {
            ids.push(slot.ids[0]);
        } else {
            ids.extend_from_slice(&slot.ids[..(slot.n as usize).min(IDS)]);
        }
        true
    }

    /// Caches the ids of `word` if they are at most [`IDS`].
    pub fn keep(&mut self, word: Word, found: &[u32]) {
        if found.len() <= IDS {
            let mut ids = [0; IDS];
            ids[..found.len()].copy_from_slice(found);
            if self.slots.is_empty() {
                self.slots = vec![CachedWord { word: 0, n: 0, ids: [0; IDS] }; SLOTS].into_boxed_slice();
            }
            self.slots[(hash(word) >> SHIFT) as usize] = CachedWord { word, n: found.len() as u32, ids };
        }
    }
}
