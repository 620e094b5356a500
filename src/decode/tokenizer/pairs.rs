//! Byte pair encoding of one piece: merges neighbouring parts, lowest rank first, leftmost first at equal
//! rank.
//!
//! Input: the bytes of a piece. Output: ids. The merges are a table from pairs of ids to rank and id of the
//! merged token. A Hugging Face file lists the pairs; a rank file implies every pair whose concatenated bytes
//! are a token.
//!
//! A short piece is searched for its lowest rank after each merge, which is quadratic but fastest up to some
//! dozens of bytes. A longer piece uses a heap, so that a megabyte without a space costs n log n.
//!
//! Source: Sennrich, Haddow, Birch, "Neural machine translation of rare words with subword units" (2016),
//! algorithm 1.

use std::{cmp::Reverse, collections::BinaryHeap, mem};

use super::table::PairTable;
use crate::{Result, fallible_alloc};

/// Marks a pair that cannot be merged, and the end of a merged part.
const NONE: u32 = u32::MAX;

/// Pieces of more bytes than this use the heap.
const SHORT: usize = 96;

/// The merges, and the ids of single bytes.
#[derive(Debug)]
pub struct Pairs {
    bytes: [u32; 256],
    merges: PairTable,
}

/// Buffers of a worker, kept from piece to piece.
#[derive(Debug, Default)]
pub struct Parts {
    ids: Vec<u32>,
    /// The rank of merging each part with its right neighbour, in a short piece.
    ranks: Vec<u32>,
    /// The start of the next part, in a long piece.
    next: Vec<u32>,
    heap: Heap,
}

/// Rank and offset of the pairs that can be merged, lowest first.
type Heap = BinaryHeap<Reverse<(u32, u32)>>;

/// Buffers of a longer piece are freed: they take some 18 bytes per byte of it, 8 if nothing can be merged.
const KEPT_PARTS: usize = 1 << 16;

impl Pairs {
    /// `bytes` are the ids of the 256 bytes, `merges` the rank and id of the merged token for each pair.
    pub fn new(bytes: [u32; 256], merges: impl Iterator<Item = ((u32, u32), (u32, u32))>) -> Self {
        Self { bytes, merges: PairTable::new(merges) }
    }

    /// Appends the ids of `piece`, which must be shorter than 4 GiB.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`](crate::ErrorKind::Memory) if an allocation failed.
    pub fn encode(&self, piece: &[u8], parts: &mut Parts, ids: &mut Vec<u32>) -> Result<()> {
        let is_long = piece.len() > KEPT_PARTS;
        let result = if piece.len() <= SHORT {
            self.search(piece, parts);
            Ok(())
        } else {
            self.queue(piece, parts)
        };
        if is_long {
            // Freed before `ids` grows.
            *parts = Parts { ids: mem::take(&mut parts.ids), ..Parts::default() };
        }
        let result = result.and_then(|()| fallible_alloc::grow(ids, parts.ids.len()));
        if result.is_ok() {
            ids.extend_from_slice(&parts.ids);
        }
        if is_long {
            parts.ids = Vec::new();
        }
        result
    }

    fn rank(&self, left: u32, right: u32) -> u32 {
        self.merges.get(left, right).map_or(NONE, |(rank, _)| rank)
    }

    fn merged(&self, left: u32, right: u32) -> u32 {
        self.merges.get(left, right).map_or(NONE, |(_, id)| id)
    }

    fn bytes<'a>(&'a self, piece: &'a [u8]) -> impl Iterator<Item = u32> + 'a {
        piece.iter().map(|&byte| self.bytes[usize::from(byte)])
    }

    /// Computes the ids of a short piece into `parts.ids`.
    fn search(&self, piece: &[u8], parts: &mut Parts) {
        let Parts { ids, ranks, .. } = parts;
        ids.clear();
        ids.extend(self.bytes(piece));
        ranks.clear();
        ranks.extend(ids.windows(2).map(|pair| self.rank(pair[0], pair[1])));
        loop {
            let mut lowest = (NONE, 0);
            for (at, &rank) in ranks.iter().enumerate() {
                if rank < lowest.0 {
                    lowest = (rank, at);
                }
            }
            let (rank, at) = lowest;
            if rank == NONE {
                return;
            }
            ids[at] = self.merged(ids[at], ids[at + 1]);
            ids.remove(at + 1);
            ranks.remove(at);
            if at > 0 {
                ranks[at - 1] = self.rank(ids[at - 1], ids[at]);
            }
            if at < ranks.len() {
                ranks[at] = self.rank(ids[at], ids[at + 1]);
            }
        }
    }

    /// Computes the ids of a piece of any length into `parts.ids`, with a heap.
    ///
    /// A part is identified by the offset of its first byte. In `next`, the first byte has the start of the
    /// next part, and the last byte, if it is another, the start of its own part. So `next` serves both
    /// directions. A heap entry is stale if its pair has another rank by now.
    fn queue(&self, piece: &[u8], parts: &mut Parts) -> Result<()> {
        let Parts { ids, next, heap, .. } = parts;
        let n = piece.len() as u32;
        ids.clear();
        fallible_alloc::reserve(ids, piece.len())?;
        ids.extend(self.bytes(piece));
        next.clear();
        fallible_alloc::reserve(next, piece.len())?;
        next.extend(1..=n);
        let mut entries = mem::take(heap).into_vec();
        entries.clear();
        for (at, pair) in ids.windows(2).enumerate() {
            if let Some((rank, _)) = self.merges.get(pair[0], pair[1]) {
                let len = entries.len();
                if len == entries.capacity() {
                    fallible_alloc::reserve(&mut entries, more(len))?;
                }
                entries.push(Reverse((rank, at as u32)));
            }
        }
        *heap = entries.into();
        while let Some(Reverse((rank, at))) = heap.pop() {
            let here = at as usize;
            let gone = next[here] as usize;
            if ids[here] == NONE || gone == piece.len() {
                continue;
            }
            let Some((_, merged)) = self.merges.get(ids[here], ids[gone]).filter(|found| found.0 == rank)
            else {
                continue;
            };
            let after = next[gone];
            ids[here] = merged;
            ids[gone] = NONE;
            next[here] = after;
            next[after as usize - 1] = at;
            if after < n
                && let Some((rank, _)) = self.merges.get(merged, ids[after as usize])
            {
                push(heap, (rank, at))?;
            }
            if here > 0 {
                let last = here - 1;
                let before = if ids[last] == NONE { next[last] } else { last as u32 };
                if let Some((rank, _)) = self.merges.get(ids[before as usize], merged) {
                    push(heap, (rank, before))?;
                }
            }
        }
        // Move the remaining parts together.
        let (mut at, mut to) = (0, 0);
        while at < n {
            ids[to] = ids[at as usize];
            to += 1;
            at = next[at as usize];
        }
        ids.truncate(to);
        Ok(())
    }
}

/// The capacity to grow to after `len` entries. Doubling could take twice the memory for a long piece.
fn more(len: usize) -> usize {
    len + len / 4 + 64
}

fn push(heap: &mut Heap, entry: (u32, u32)) -> Result<()> {
    if heap.len() == heap.capacity() {
        let capacity = more(heap.len());
        let refused = |_| fallible_alloc::refused(capacity.saturating_mul(size_of::<(u32, u32)>()));
        heap.try_reserve_exact(capacity - heap.len()).map_err(refused)?;
    }
    heap.push(Reverse(entry));
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Any merges over three letters, also with ranks below those of their parts.
        #[test]
        fn the_heap_merges_as_the_search_does(
            merges in proptest::collection::vec(((0u32..8, 0u32..8), (0u32..6, 3u32..8)), 0..30),
            piece in proptest::collection::vec(0u8..3, 1..200),
        ) {
            let pairs = Pairs::new(std::array::from_fn(|byte| byte as u32), merges.into_iter());
            let (mut searched, mut queued) = (Parts::default(), Parts::default());
            pairs.search(&piece, &mut searched);
            for _ in 0..2 {
                pairs.queue(&piece, &mut queued).unwrap();
                prop_assert_eq!(&searched.ids, &queued.ids);
            }
        }
    }

    #[test]
    fn buffers_of_a_long_piece_are_freed() {
        let pairs = Pairs::new(std::array::from_fn(|byte| byte as u32), [((0, 0), (0, 256))].into_iter());
        let (mut parts, mut ids) = (Parts::default(), Vec::new());
        pairs.encode(&[0; KEPT_PARTS], &mut parts, &mut ids).unwrap();
        assert!(parts.ids.capacity() >= KEPT_PARTS);
        pairs.encode(&[0; KEPT_PARTS + 1], &mut parts, &mut ids).unwrap();
        assert_eq!((parts.ids.capacity(), parts.next.capacity(), parts.heap.capacity()), (0, 0, 0));
        assert_eq!(ids.len(), KEPT_PARTS + 1);
    }
}
