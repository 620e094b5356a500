//! Byte pair encoding of one piece: neighbours are merged, the lowest rank first, the leftmost of equals.
//!
//! In goes a piece of text as bytes; out come ids. What may be merged is a table from pairs of ids to rank and id of the merged
//! token, which serves both worlds: a Hugging Face file lists the pairs, a rank file means every pair whose bytes together are a token.
//!
//! A short piece is searched for its lowest rank again after each merge: quadratic, and the quickest up to some dozens of bytes. A
//! longer one takes a heap, so that a megabyte without a space costs n log n.
//!
//! Source: Sennrich, Haddow, Birch, "Neural machine translation of rare words with subword units" (2016), algorithm 1.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::table::PairTable;

/// No pair, no neighbour.
const NONE: u32 = u32::MAX;

/// Pieces of more bytes than this take the heap.
const SHORT: usize = 96;

/// What may be merged, and the ids of single bytes.
#[derive(Debug)]
pub struct Pairs {
    bytes: [u32; 256],
    merges: PairTable,
}

/// Buffers of a worker, kept from piece to piece.
#[derive(Debug, Default)]
pub struct Parts {
    ids: Vec<u32>,
    /// The rank of each part and its right neighbour together.
    ranks: Vec<u32>,
    previous: Vec<u32>,
    next: Vec<u32>,
    heap: BinaryHeap<Reverse<(u32, u32)>>,
}

/// Buffers of a longer piece are given back: they take 24 bytes for each of its bytes.
const KEPT_PARTS: usize = 1 << 16;

impl Pairs {
    /// The ids of the 256 bytes, and of each pair the rank and the id of the token that it becomes.
    pub fn new(bytes: [u32; 256], merges: impl Iterator<Item = ((u32, u32), (u32, u32))>) -> Self {
        Self { bytes, merges: PairTable::new(merges) }
    }

    /// Appends the ids of `piece`, which is not longer than 4 GiB.
    pub fn encode(&self, piece: &[u8], parts: &mut Parts, ids: &mut Vec<u32>) {
        if piece.len() <= SHORT {
            self.search(piece, parts);
        } else {
            self.queue(piece, parts);
        }
        ids.extend_from_slice(&parts.ids);
        if parts.ids.capacity() > KEPT_PARTS {
            *parts = Parts::default();
        }
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

    /// Leaves the ids of a short piece in `parts.ids`.
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

    /// Leaves the ids of a piece of any length in `parts.ids`.
    fn queue(&self, piece: &[u8], parts: &mut Parts) {
        let Parts { ids, ranks, previous, next, heap } = parts;
        let n = piece.len() as u32;
        ids.clear();
        ids.extend(self.bytes(piece));
        ranks.clear();
        ranks.extend(ids.windows(2).map(|pair| self.rank(pair[0], pair[1])));
        ranks.push(NONE);
        previous.clear();
        previous.extend((0..n).map(|at| at.wrapping_sub(1)));
        next.clear();
        next.extend(1..=n);
        let mut entries = std::mem::take(heap).into_vec();
        entries.clear();
        let mergeable = ranks.iter().enumerate().filter(|&(_, &rank)| rank != NONE);
        entries.extend(mergeable.map(|(at, &rank)| Reverse((rank, at as u32))));
        *heap = entries.into();
        while let Some(Reverse((rank, at))) = heap.pop() {
            let here = at as usize;
            // Merged away, or its pair is another by now.
            if ranks[here] != rank {
                continue;
            }
            let gone = next[here] as usize;
            ids[here] = self.merged(ids[here], ids[gone]);
            ranks[gone] = NONE;
            next[here] = next[gone];
            let mut set = |left: usize, right: usize| {
                ranks[left] = self.rank(ids[left], ids[right]);
                if ranks[left] != NONE {
                    heap.push(Reverse((ranks[left], left as u32)));
                }
            };
            match next[here] {
                after if after < n => {
                    previous[after as usize] = at;
                    set(here, after as usize);
                }
                _ => ranks[here] = NONE,
            }
            if previous[here] != NONE {
                let before = previous[here] as usize;
                ranks[before] = self.rank(ids[before], ids[here]);
                if ranks[before] != NONE {
                    heap.push(Reverse((ranks[before], before as u32)));
                }
            }
        }
        // The parts that are left, moved together.
        let (mut at, mut to) = (0, 0);
        while at < n {
            ids[to] = ids[at as usize];
            to += 1;
            at = next[at as usize];
        }
        ids.truncate(to);
    }
}
