//! Byte pair encoding of one piece: merges neighbouring parts, lowest rank first, leftmost first at equal
//! rank.
//!
//! Input: the units of a piece: bytes, or characters as symbols ([`Alphabet`]). Output: ids. The merges are a
//! table from pairs of ids to rank and id of the merged token. A Hugging Face file lists the pairs; a rank
//! file implies every pair whose concatenated bytes are a token, a SentencePiece model every pair of pieces
//! whose concatenation is a piece.
//!
//! A short piece is searched for its lowest rank after each merge, which is quadratic but fastest up to some
//! dozens of units. A longer piece uses a heap. A long piece is encoded in windows whose heap fits the cache:
//! one heap over 20 MB of letters costs a microsecond per byte, windows a tenth, with the same ids.
//!
//! # Why windows give the same ids
//!
//! If no merge crosses a cut, the merges on both sides do not affect each other, and the ids are those of
//! both sides, concatenated. So a cut needs proof that the pair across it is never the next to be merged. The
//! *level* of a merge is the highest rank among the merges up to it. Merges left (L) and right (R) of the cut
//! run in the order of their levels, L first at equal levels: no merge of level m precedes one of a lower
//! level on the other side. The pair across the cut consists of the last part of L and the first of R. It
//! waits while L has a merge of its rank or lower to do, or R one of a lower rank. That is certain until the
//! last part of L changes at a level up to the pair's rank, or the first part of R at a level below it. The
//! parts and levels follow from the bytes of the two tokens beside the cut, since no merge crosses their
//! other ends either. If there is no proof, a larger window replaces the two, at worst the whole piece.
//!
//! # Dropout
//!
//! With BPE dropout each pair that could be merged is left out with probability `p`. Whether it is left out
//! is a hash of the seed and of where the pair begins, meets and ends in the text ([`MergeDropout`]), so it
//! does not depend on the order of the merges or on other texts. A pair is drawn once; it is drawn again when
//! a neighbour makes it another pair. There are no windows, since no cut has a proof.
//!
//! Source: Sennrich, Haddow, Birch, "Neural machine translation of rare words with subword units" (2016),
//! algorithm 1. Dropout: Provilkov, Emelianenko, Voita, "BPE-Dropout" (2020), algorithm 1, with one draw for
//! each pair, as sentencepiece has it. Windows: own.

use std::{cmp::Reverse, collections::BinaryHeap, mem, ops::Range};

use super::table::PairTable;
use crate::{
    Result, fallible_alloc,
    seed::{Purpose, hash},
};

/// Marks a pair that cannot be merged, and the end of a merged part.
const NONE: u32 = u32::MAX;

/// Pieces of more units than this use the heap.
const SHORT: usize = 96;

/// The units of a window, and of its end that the next window encodes again: a change of the units after a
/// window rarely affects tokens that far before its end.
const WINDOW: usize = 1 << 13;
const MARGIN: usize = 1 << 8;

/// The longest token for which a cut beside it is proved: the proof is quadratic.
const LONG_TOKEN: usize = 1 << 10;

/// What a piece consists of before any merge.
pub trait Alphabet {
    /// A byte or a symbol.
    type Unit: Copy;

    fn id(&self, unit: Self::Unit) -> u32;
}

/// The ids of the 256 bytes.
impl Alphabet for [u32; 256] {
    type Unit = u8;

    #[inline]
    fn id(&self, unit: u8) -> u32 {
        self[usize::from(unit)]
    }
}

/// Units that are ids already.
#[derive(Debug)]
pub struct Symbols;

impl Alphabet for Symbols {
    type Unit = u32;

    #[inline]
    fn id(&self, unit: u32) -> u32 {
        unit
    }
}

/// The merges, and the ids of single units.
#[derive(Debug)]
pub struct MergeTable<A> {
    alphabet: A,
    merges: PairTable,
}

/// Which pairs of a piece may be merged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MergeDropout {
    /// A pair is left out if its hash is below this share of 2^64; 2^64 itself leaves out all.
    below: u128,
    seed: u64,
    /// The units of the text before the piece.
    pub at: u64,
}

impl MergeDropout {
    /// `p` is a probability, 0 to 1.
    pub fn new(p: f64, seed: u64) -> Self {
        Self { below: (p.clamp(0.0, 1.0) * 18_446_744_073_709_551_616.0) as u128, seed, at: 0 }
    }

    /// Whether the pair from `start` to `end`, whose parts meet at `middle`, may be merged.
    fn keeps(&self, start: u32, middle: u32, end: u32) -> bool {
        let words = [start, middle, end].map(|place| self.at + u64::from(place));
        u128::from(hash(self.seed, Purpose::Merge, words)) >= self.below
    }
}

/// Buffers of a worker, kept from piece to piece.
#[derive(Debug, Default)]
pub struct Parts {
    ids: Vec<u32>,
    /// The rank of merging each part with its right neighbour, in a short piece.
    ranks: Vec<u32>,
    /// The start of the next part, in a longer piece.
    next: Vec<u32>,
    heap: Heap,
    windows: Vec<TextWindow>,
    /// The parts beside a cut: the last ones of the token before it, and the first ones of that after it.
    last: Vec<MergeSide>,
    first: Vec<MergeSide>,
}

/// Rank and offset of the pairs that can be merged, lowest first: the rank in the upper half.
type Heap = BinaryHeap<Reverse<u64>>;

fn entry(rank: u32, at: u32) -> Reverse<u64> {
    Reverse(u64::from(rank) << 32 | u64::from(at))
}

/// A window whose tokens are in the output.
#[derive(Debug)]
struct TextWindow {
    start: usize,
    size: usize,
    /// The ids in the output before it.
    n_ids: usize,
    /// Its last token that is in the output.
    last: Range<usize>,
}

/// A part at the side of a token, and the level of the merge that made it.
#[derive(Debug, Clone, Copy)]
struct MergeSide {
    level: u32,
    id: u32,
}

/// Buffers for a larger window are freed: they take some 18 bytes per byte of it, 8 if nothing can be merged.
const KEPT_PARTS: usize = 1 << 16;

impl<A: Alphabet> MergeTable<A> {
    /// `merges` are the rank and id of the merged token for each pair.
    pub fn new(alphabet: A, merges: impl Iterator<Item = ((u32, u32), (u32, u32))>) -> Self {
        Self { alphabet, merges: PairTable::new(merges) }
    }

    /// Appends the ids of `piece`, which must be shorter than 4 GiB.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`](crate::ErrorKind::Memory) if an allocation failed.
    pub fn encode(&self, piece: &[A::Unit], parts: &mut Parts, ids: &mut Vec<u32>) -> Result<()> {
        if piece.len() <= SHORT {
            self.search(piece, parts, |_, _, _| ());
            fallible_alloc::grow(ids, parts.ids.len())?;
            ids.extend_from_slice(&parts.ids);
            return Ok(());
        }
        let result = self.windows(piece, parts, ids, WINDOW);
        if result.is_err() {
            *parts = Parts::default();
        }
        result
    }

    /// As [`Self::encode`], without the pairs that `dropout` leaves out.
    ///
    /// # Errors
    /// As [`Self::encode`].
    pub fn encode_with_dropout(
        &self,
        piece: &[A::Unit],
        dropout: &MergeDropout,
        parts: &mut Parts,
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        let keeps = |start: u32, middle: u32, end: u32| dropout.keeps(start, middle, end);
        let result = self.queue(piece, parts, keeps).and_then(|()| {
            fallible_alloc::grow(ids, parts.ids.len())?;
            ids.extend_from_slice(&parts.ids);
            Ok(())
        });
        if result.is_err() || piece.len() > KEPT_PARTS {
            *parts = Parts::default();
        }
        result
    }

    /// Appends the ids of `piece`, in windows of `least` units or more.
    fn windows(&self, piece: &[A::Unit], parts: &mut Parts, ids: &mut Vec<u32>, least: usize) -> Result<()> {
        parts.windows.clear();
        let (mut start, mut size) = (0, least);
        while start < piece.len() {
            let end = piece.len().min(start.saturating_add(size));
            self.queue(&piece[start..end], parts, |_, _, _| true)?;
            let before = parts.windows.last().map(|window| window.last.clone());
            let after = start..start + parts.next[0] as usize;
            if let Some(before) = before
                && !self.is_cut(&piece[before], &piece[after], parts)
                && let Some(window) = parts.windows.pop()
            {
                ids.truncate(window.n_ids);
                (start, size) = (window.start, window.size.max(end - window.start).saturating_mul(2));
                continue;
            }
            let kept = if end == piece.len() { size } else { size - size.min(MARGIN.min(least / 2)) };
            let n = parts.next.partition_point(|&end| end as usize <= kept);
            let Some(last) = n.checked_sub(1) else {
                size = size.saturating_mul(2);
                continue;
            };
            let window = TextWindow {
                start,
                size,
                n_ids: ids.len(),
                last: start + last.checked_sub(1).map_or(0, |at| parts.next[at] as usize)
                    ..start + parts.next[last] as usize,
            };
            if end - start > KEPT_PARTS {
                // Freed before `ids` grows.
                let (kept, windows) = (mem::take(&mut parts.ids), mem::take(&mut parts.windows));
                *parts = Parts { ids: kept, windows, ..Parts::default() };
            }
            fallible_alloc::grow(ids, n)?;
            ids.extend_from_slice(&parts.ids[..n]);
            if end - start > KEPT_PARTS {
                parts.ids = Vec::new();
            }
            (start, size) = (window.last.end, least);
            fallible_alloc::push(&mut parts.windows, window)?;
        }
        Ok(())
    }

    /// Whether no merge crosses the cut between the tokens of the units `before` and `after`; false if that
    /// is unknown. Leaves `parts.ids` and `parts.next` as they are.
    fn is_cut(&self, before: &[A::Unit], after: &[A::Unit], parts: &mut Parts) -> bool {
        if before.len().max(after.len()) > LONG_TOKEN {
            return false;
        }
        let ids = mem::take(&mut parts.ids);
        let (mut last, mut first) = (mem::take(&mut parts.last), mem::take(&mut parts.first));
        let is_last = |at: usize, n: usize| at + 1 == n;
        self.steps(before, is_last, parts, &mut last);
        self.steps(after, |at, _| at == 0, parts, &mut first);
        let is_cut = self.never_meet(&last, &first);
        (parts.ids, parts.last, parts.first) = (ids, last, first);
        is_cut
    }

    /// Lists the parts of a token at the side where `is_side` holds, of an index and the number of parts.
    fn steps(
        &self,
        token: &[A::Unit],
        is_side: impl Fn(usize, usize) -> bool,
        parts: &mut Parts,
        steps: &mut Vec<MergeSide>,
    ) {
        steps.clear();
        let units = token.iter().enumerate().find(|&(at, _)| is_side(at, token.len()));
        steps.extend(units.map(|(_, &unit)| MergeSide { level: 0, id: self.alphabet.id(unit) }));
        let mut level = 0;
        self.search(token, parts, |rank, at, ids| {
            level = rank.max(level);
            if is_side(at, ids.len()) {
                steps.push(MergeSide { level, id: ids[at] });
            }
        });
    }

    /// Whether no pair of a last part before a cut and a first part after it is merged.
    fn never_meet(&self, last: &[MergeSide], first: &[MergeSide]) -> bool {
        let (mut left, mut right) = (0, 0);
        loop {
            let rank = self.rank(last[left].id, first[right].id);
            let next = |steps: &[MergeSide], at: usize| steps.get(at + 1).map_or(NONE, |step| step.level);
            let (left_next, right_next) = (next(last, left), next(first, right));
            if rank < left_next && rank <= right_next && rank != NONE {
                return false;
            }
            match (left + 1 < last.len(), right + 1 < first.len()) {
                (false, false) => return true,
                (true, false) => left += 1,
                (false, true) => right += 1,
                (true, true) if left_next <= right_next => left += 1,
                (true, true) => right += 1,
            }
        }
    }

    fn rank(&self, left: u32, right: u32) -> u32 {
        self.merges.get(left, right).map_or(NONE, |(rank, _)| rank)
    }

    fn merged(&self, left: u32, right: u32) -> u32 {
        self.merges.get(left, right).map_or(NONE, |(_, id)| id)
    }

    fn units<'a>(&'a self, piece: &'a [A::Unit]) -> impl Iterator<Item = u32> + 'a {
        piece.iter().map(|&unit| self.alphabet.id(unit))
    }

    /// Computes the ids of a short piece into `parts.ids`. Calls `merged` after each merge, with its rank,
    /// the index of the merged part, and the parts.
    #[inline]
    fn search(&self, piece: &[A::Unit], parts: &mut Parts, mut merged: impl FnMut(u32, usize, &[u32])) {
        let Parts { ids, ranks, .. } = parts;
        ids.clear();
        ids.extend(self.units(piece));
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
            merged(rank, at, ids);
            if at > 0 {
                ranks[at - 1] = self.rank(ids[at - 1], ids[at]);
            }
            if at < ranks.len() {
                ranks[at] = self.rank(ids[at], ids[at + 1]);
            }
        }
    }

    /// Computes the ids of a piece of any length into `parts.ids`, and where each of them ends into
    /// `parts.next`, with a heap.
    ///
    /// A part is identified by the offset of its first unit. In `next`, the first unit has the start of the
    /// next part, and the last unit, if it is another, the start of its own part. So `next` serves both
    /// directions. A heap entry is stale if its pair has another rank by now. `keeps` says of the start, the
    /// middle and the end of a pair whether it may be merged.
    fn queue(
        &self,
        piece: &[A::Unit],
        parts: &mut Parts,
        keeps: impl Fn(u32, u32, u32) -> bool,
    ) -> Result<()> {
        let Parts { ids, next, heap, .. } = parts;
        let n = piece.len() as u32;
        ids.clear();
        fallible_alloc::reserve(ids, piece.len())?;
        ids.extend(self.units(piece));
        next.clear();
        fallible_alloc::reserve(next, piece.len())?;
        next.extend(1..=n);
        let mut entries = mem::take(heap).into_vec();
        entries.clear();
        for (at, pair) in ids.windows(2).enumerate() {
            let start = at as u32;
            if let Some((rank, _)) = self.merges.get(pair[0], pair[1])
                && keeps(start, start + 1, start + 2)
            {
                let len = entries.len();
                if len == entries.capacity() {
                    fallible_alloc::reserve(&mut entries, more(len))?;
                }
                entries.push(entry(rank, start));
            }
        }
        *heap = entries.into();
        while let Some(Reverse(lowest)) = heap.pop() {
            let (rank, at) = ((lowest >> 32) as u32, lowest as u32);
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
            // An entry of an earlier pair may have the rank of a pair that is left out.
            if !keeps(at, gone as u32, after) {
                continue;
            }
            ids[here] = merged;
            ids[gone] = NONE;
            next[here] = after;
            next[after as usize - 1] = at;
            if after < n
                && let Some((rank, _)) = self.merges.get(merged, ids[after as usize])
                && keeps(at, after, next[after as usize])
            {
                push(heap, entry(rank, at))?;
            }
            if here > 0 {
                let last = here - 1;
                let before = if ids[last] == NONE { next[last] } else { last as u32 };
                if let Some((rank, _)) = self.merges.get(ids[before as usize], merged)
                    && keeps(before, at, after)
                {
                    push(heap, entry(rank, before))?;
                }
            }
        }
        // Move the remaining parts together.
        let (mut at, mut to) = (0, 0);
        while at < n {
            ids[to] = ids[at as usize];
            at = next[at as usize];
            next[to] = at;
            to += 1;
        }
        ids.truncate(to);
        next.truncate(to);
        Ok(())
    }
}

/// The capacity to grow to after `len` entries. Doubling could take twice the memory for a long piece.
fn more(len: usize) -> usize {
    len + len / 4 + 64
}

fn push(heap: &mut Heap, entry: Reverse<u64>) -> Result<()> {
    if heap.len() == heap.capacity() {
        let capacity = more(heap.len());
        let refused = |_| fallible_alloc::refused(capacity.saturating_mul(size_of::<u64>()));
        heap.try_reserve_exact(capacity - heap.len()).map_err(refused)?;
    }
    heap.push(entry);
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
            let pairs = MergeTable::new(std::array::from_fn(|byte| byte as u32), merges.into_iter());
            let (mut searched, mut queued) = (Parts::default(), Parts::default());
            pairs.search(&piece, &mut searched, |_, _, _| ());
            for _ in 0..2 {
                pairs.queue(&piece, &mut queued, |_, _, _| true).unwrap();
                prop_assert_eq!(&searched.ids, &queued.ids);
            }
        }
    }

    /// All pairs are drawn at once and merged lowest rank first, leftmost first: the parts as offsets and
    /// ids.
    fn dropped(pairs: &MergeTable<[u32; 256]>, piece: &[u8], dropout: &MergeDropout) -> Vec<u32> {
        let mut parts: Vec<(u32, u32)> = (0..).zip(pairs.units(piece)).collect();
        loop {
            let end = |at: usize| parts.get(at + 1).map_or(piece.len() as u32, |part| part.0);
            let pairs_left = (1..parts.len()).filter_map(|at| {
                let ((start, left), (middle, right)) = (parts[at - 1], parts[at]);
                let (rank, id) = pairs.merges.get(left, right)?;
                dropout.keeps(start, middle, end(at)).then_some((rank, at, id))
            });
            let Some((_, at, id)) = pairs_left.min() else { break };
            parts[at - 1].1 = id;
            parts.remove(at);
        }
        parts.into_iter().map(|(_, id)| id).collect()
    }

    proptest! {
        #[test]
        fn dropout_leaves_out_the_pairs_that_are_drawn(
            merges in proptest::collection::vec(((0u32..8, 0u32..8), (0u32..6, 3u32..8)), 0..30),
            piece in proptest::collection::vec(0u8..3, 1..60),
            (p, seed, at) in (0.0f64..1.0, any::<u64>(), 0u64..1000),
        ) {
            let pairs = MergeTable::new(std::array::from_fn(|byte| byte as u32), merges.into_iter());
            let dropout = MergeDropout { at, ..MergeDropout::new(p, seed) };
            let (mut parts, mut ids) = (Parts::default(), Vec::new());
            for _ in 0..2 {
                ids.clear();
                pairs.encode_with_dropout(&piece, &dropout, &mut parts, &mut ids).unwrap();
                prop_assert_eq!(&ids, &dropped(&pairs, &piece, &dropout));
            }
            pairs.search(&piece, &mut parts, |_, _, _| ());
            let plain = parts.ids.clone();
            ids.clear();
            pairs.encode_with_dropout(&piece, &MergeDropout::new(0.0, seed), &mut parts, &mut ids).unwrap();
            prop_assert_eq!(&ids, &plain);
            ids.clear();
            pairs.encode_with_dropout(&piece, &MergeDropout::new(1.0, seed), &mut parts, &mut ids).unwrap();
            prop_assert_eq!(ids, pairs.units(&piece).collect::<Vec<_>>());
        }
    }

    proptest! {
        /// As above; `trained` merges have ranks above those of their parts, as most files have.
        #[test]
        fn windows_merge_as_the_search_does(
            merges in proptest::collection::vec(((0u32..9, 0u32..9), 0u32..6), 0..30),
            trained in any::<bool>(),
            period in 1usize..40,
            piece in proptest::collection::vec(0u8..3, 1..400),
            least in 1usize..40,
        ) {
            let merges = merges.into_iter().enumerate().map(|(at, ((left, right), id))| match trained {
                true => ((left % (3 + at as u32), right % (3 + at as u32)), (at as u32, 3 + at as u32)),
                false => ((left, right), (id, 3 + id)),
            });
            let pairs = MergeTable::new(std::array::from_fn(|byte| byte as u32), merges);
            let periodic: Vec<u8> = (0..piece.len()).map(|at| piece[at % period % piece.len()]).collect();
            let mut parts = Parts::default();
            for piece in [piece, periodic] {
                let mut found = Vec::new();
                pairs.windows(&piece, &mut parts, &mut found, least).unwrap();
                pairs.search(&piece, &mut parts, |_, _, _| ());
                prop_assert_eq!(&parts.ids, &found);
            }
        }
    }

    /// Merges that cascade from the end of the piece to its start: no window can prove a cut.
    #[test]
    fn a_piece_without_a_cut_is_one_window() {
        let n = 3 * WINDOW as u32;
        // Part `k` before the end merges with the token of all that follows.
        let bytes = std::array::from_fn(|byte| byte as u32);
        let merges = (0..n).map(|k| ((0, if k == 0 { 1 } else { 255 + k }), (k, 256 + k)));
        let pairs = MergeTable::new(bytes, merges);
        let mut piece = vec![0; n as usize];
        piece.push(1);
        let mut ids = Vec::new();
        pairs.encode(&piece, &mut Parts::default(), &mut ids).unwrap();
        assert_eq!(ids, [255 + n]);
    }

    #[test]
    fn buffers_of_a_long_piece_are_freed() {
        let pairs =
            MergeTable::new(std::array::from_fn(|byte| byte as u32), [((0, 0), (0, 256))].into_iter());
        let (mut parts, mut ids) = (Parts::default(), Vec::new());
        let capacities = |parts: &Parts| (parts.ids.capacity(), parts.next.capacity(), parts.heap.capacity());
        pairs.windows(&[0; KEPT_PARTS], &mut parts, &mut ids, KEPT_PARTS).unwrap();
        assert!(capacities(&parts).0 >= KEPT_PARTS);
        pairs.windows(&[0; KEPT_PARTS + 1], &mut parts, &mut ids, KEPT_PARTS + 1).unwrap();
        assert_eq!((parts.next.capacity(), parts.heap.capacity()), (0, 0));
        pairs.encode(&[0; 10 * KEPT_PARTS], &mut parts, &mut ids).unwrap();
        let (ids_, next, heap) = capacities(&parts);
        assert!(ids_.max(next).max(heap) <= 4 * WINDOW, "{:?}", capacities(&parts));
        assert_eq!(ids.len(), (2 * KEPT_PARTS + 1).div_ceil(2) + 5 * KEPT_PARTS);
    }
}
