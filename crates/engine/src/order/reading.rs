//! [`Reading`]: the reading order, which maps tickets to rows of shards.
//!
//! Shards, or the row groups of a stream, are read in the order given, or in a new seeded order each epoch.
//! Rows are read in storage order, because a parallel file system reads sequentially a hundred times faster
//! than it seeks; the window mixes them.

use std::{collections::VecDeque, ops::Range, sync::Arc};

use super::{Copies, WeightedRows};
use crate::seed::{Purpose, below, hash};

/// The order of shards in an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShardOrder {
    /// The order in which the files were given.
    Given,
    /// A new permutation each epoch (Fisher–Yates on seeded hashes).
    Shuffled,
    /// A new permutation of this stream's row groups each epoch.
    ShuffledGroups(u64),
}

/// The record at one place of the reading order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadingPlace {
    /// The pass over the data, counted from 0.
    pub epoch: u64,
    /// The row number over the files as given, independent of the reading order.
    pub row: u64,
    /// How many more rows directly follow this one both in storage and in reading order.
    pub following: u64,
    /// The row's number among the copies of the epoch's rows in storage order: without weights the row.
    pub copy: u64,
}

/// The random bits of the record of a place, of a run with this seed.
pub(super) fn crop_seed(seed: u64, place: ReadingPlace) -> u64 {
    hash(seed, Purpose::Crop, [place.epoch, place.copy])
}

/// Maps places in reading order to rows.
#[derive(Debug, Clone)]
pub struct Reading {
    seed: u64,
    order: ShardOrder,
    shards: Vec<Range<u64>>,
    rows: u64,
    weights: Option<Arc<WeightedRows>>,
    recent: VecDeque<Epoch>,
}

/// One epoch's shard order: `shards[i]` is read `i`-th and begins at offset `begins[i]` of the epoch.
#[derive(Debug, Clone)]
struct Epoch {
    number: u64,
    shards: Vec<u32>,
    begins: Vec<u64>,
    /// The epoch's copies, and those of each shard, if rows have weights.
    copies: Option<(Copies, Vec<Range<u64>>)>,
}

/// The number of epochs kept, since a window spans few; others are computed again when needed.
const RECENT_EPOCHS: usize = 4;

impl Reading {
    /// Creates the reading order of shards with these numbers of `rows`.
    pub fn new(seed: u64, order: ShardOrder, rows: impl IntoIterator<Item = u64>) -> Self {
        let shards = rows.into_iter().scan(0, |total, n| {
            let first = *total;
            *total += n;
            Some(first..*total)
        });
        Self::over(seed, order, shards.collect())
    }

    /// Creates the reading order of these rows, one range for each shard or row group.
    pub fn over(seed: u64, order: ShardOrder, shards: Vec<Range<u64>>) -> Self {
        let rows = shards.iter().map(|shard| shard.end - shard.start).sum();
        Self { seed, order, shards, rows, weights: None, recent: VecDeque::new() }
    }

    /// The reading order of the copies of rows with weights.
    pub fn weighted(mut self, weights: Arc<WeightedRows>) -> Self {
        self.rows = weights.n_copies();
        self.weights = Some(weights);
        self
    }

    /// The number of rows in an epoch, or of their copies.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The number of rows, however often an epoch has them.
    pub fn n_rows(&self) -> u64 {
        self.weights.as_ref().map_or(self.rows, |weights| weights.n_rows())
    }

    /// The record at `offset` (less than [`Reading::rows`]) of `epoch`'s reading order.
    pub fn place(&mut self, epoch: u64, offset: u64) -> ReadingPlace {
        let number = if self.order == ShardOrder::Given && self.weights.is_none() { 0 } else { epoch };
        let known = self.recent.iter().position(|e| e.number == number).unwrap_or_else(|| {
            let made = self.permute(number);
            self.recent.truncate(RECENT_EPOCHS - 1);
            self.recent.push_front(made);
            0
        });
        let Epoch { shards: order, begins, copies, .. } = &self.recent[known];
        let nth = begins.partition_point(|&begin| begin <= offset) - 1;
        let shard = order[nth] as usize;
        let shards = copies.as_ref().map_or(&self.shards, |(_, shards)| shards);
        let Range { start, end } = shards[shard];
        let copy = start + (offset - begins[nth]);
        let row = match (&self.weights, copies) {
            (Some(weights), Some((copies, _))) => weights.row(*copies, copy),
            _ => copy,
        };
        ReadingPlace { epoch, row, following: end - copy - 1, copy }
    }

    fn permute(&self, number: u64) -> Epoch {
        let mut shards: Vec<u32> = (0..self.shards.len() as u32).collect();
        let random = |i: u64| match self.order {
            ShardOrder::Given => None,
            ShardOrder::Shuffled => Some(hash(self.seed, Purpose::Shards, [number, i])),
            ShardOrder::ShuffledGroups(stream) => Some(hash(self.seed, Purpose::Groups, [stream, number, i])),
        };
        for i in (1..shards.len()).rev() {
            if let Some(random) = random(i as u64) {
                shards.swap(i, below(random, i as u64 + 1) as usize);
            }
        }
        let copies = self.weights.as_ref().map(|weights| {
            let copies = weights.epoch(self.seed, number);
            let before = |row| weights.before(copies, row);
            (copies, self.shards.iter().map(|shard| before(shard.start)..before(shard.end)).collect())
        });
        let size = |s: u32| {
            let shards: &Vec<Range<u64>> = copies.as_ref().map_or(&self.shards, |(_, shards)| shards);
            let Range { start, end } = shards[s as usize];
            end - start
        };
        shards.retain(|&s| size(s) > 0);
        let begins = shards
            .iter()
            .scan(0, |at, &s| {
                let begin = *at;
                *at += size(s);
                Some(begin)
            })
            .collect();
        Epoch { number, shards, begins, copies }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rows_of(reading: &mut Reading, epoch: u64) -> Vec<u64> {
        (0..reading.rows()).map(|offset| reading.place(epoch, offset).row).collect()
    }

    #[test]
    fn given_order_is_row_order() {
        let mut reading = Reading::new(1, ShardOrder::Given, [3, 0, 2]);
        assert_eq!(rows_of(&mut reading, 0), [0, 1, 2, 3, 4]);
        assert_eq!(reading.place(1, 2), ReadingPlace { epoch: 1, row: 2, following: 0, copy: 2 });
        assert_eq!(reading.place(0, 3), ReadingPlace { epoch: 0, row: 3, following: 1, copy: 3 });
    }

    #[test]
    fn every_epoch_has_an_order_of_its_own() {
        let mut reading = Reading::new(1, ShardOrder::Shuffled, [1; 50]);
        let (zero, one) = (rows_of(&mut reading, 0), rows_of(&mut reading, 1));
        assert_ne!(zero, one);
        assert_ne!(zero, rows_of(&mut Reading::new(2, ShardOrder::Shuffled, [1; 50]), 0));
    }

    proptest! {
        #[test]
        fn an_epoch_has_every_row_once(seed: u64, epoch in 0u64..12, shards in proptest::collection::vec(0u64..9, 1..12)) {
            let mut reading = Reading::new(seed, ShardOrder::Shuffled, shards);
            prop_assume!(reading.rows() > 0);
            let mut rows = rows_of(&mut reading, epoch);
            let n = reading.rows();
            for offset in 0..n - 1 {
                let place = reading.place(epoch, offset);
                if place.following > 0 {
                    prop_assert_eq!(reading.place(epoch, offset + 1).row, place.row + 1);
                }
            }
            rows.sort_unstable();
            prop_assert_eq!(rows, (0..n).collect::<Vec<_>>());
        }
    }
}
