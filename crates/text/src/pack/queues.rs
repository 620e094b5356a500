//! A queue of slots for each length, first in first out, and the set of lengths whose queues are not empty.

use super::NONE;
use super::bits::LengthSet;

/// Slots by length, in order of arrival within a length.
#[derive(Debug)]
pub struct Queues {
    /// First and last slot of each length; undefined if `filled` lacks the length.
    ends: Vec<(u32, u32)>,
    /// For each slot, the one after it in its queue.
    next: Vec<u32>,
    filled: LengthSet,
}

impl Queues {
    /// Empty queues for lengths up to `longest`.
    pub fn new(longest: usize) -> Self {
        // bounded: a pair for each length of a row, which `TokenConfig` bounds.
        Self { ends: vec![(NONE, NONE); longest + 1], next: Vec::new(), filled: LengthSet::new(longest) }
    }

    /// Memory in bytes, without the bits.
    pub fn n_bytes(&self) -> usize {
        size_of::<(u32, u32)>() * self.ends.capacity() + size_of::<u32>() * self.next.capacity()
    }

    /// Appends a slot to its queue.
    pub fn push(&mut self, len: usize, slot: u32) {
        if self.next.len() <= slot as usize {
            // bounded: a word for each held document.
            self.next.resize(slot as usize + 1, NONE);
        }
        self.next[slot as usize] = NONE;
        match &mut self.ends[len] {
            (_, last) if *last != NONE => {
                self.next[*last as usize] = slot;
                *last = slot;
            }
            ends => {
                *ends = (slot, slot);
                self.filled.insert(len);
            }
        }
    }

    /// Removes the first slot of the queue of `len`.
    pub fn pop(&mut self, len: usize) -> Option<u32> {
        let (first, last) = &mut self.ends[len];
        let slot = *first;
        if slot == NONE {
            return None;
        }
        *first = self.next[slot as usize];
        if *first == NONE {
            *last = NONE;
            self.filled.remove(len);
        }
        Some(slot)
    }

    /// The greatest length of at most `limit` with a slot, and its first slot.
    pub(crate) fn longest_within(&self, limit: usize) -> Option<(usize, u32)> {
        self.filled.last_within(limit).map(|len| (len, self.ends[len].0))
    }

    /// The smallest length with a slot, and its first slot.
    pub fn shortest(&self) -> Option<(usize, u32)> {
        self.filled.first().map(|len| (len, self.ends[len].0))
    }
}
