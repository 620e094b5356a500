//! [`Selection`]: a part of a source's rows as a source of its own.
//!
//! Its rows are numbered from zero in storage order, so every order of a loader, its ranks and its position
//! are those of a smaller dataset. Rows that are not selected are not read. Source: own.

use std::{
    path::Path,
    sync::{Arc, atomic::AtomicU64},
};

use crate::{
    Error, ErrorKind, Result, fallible_alloc,
    order::Bijection,
    record::{Gate, RawRecord, ReadRecords, Source, Wants},
    seed::Purpose,
};

/// Which rows are selected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subset {
    /// So many, chosen by a seed.
    Random {
        /// How many.
        n: u64,
        /// The seed.
        seed: u64,
    },
    /// These.
    Rows(Vec<u64>),
}

impl Subset {
    /// The rows in ascending order, of `n_rows`.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if there are fewer rows, or a row is named that does not exist or is named
    /// twice.
    pub fn rows(&self, n_rows: u64) -> Result<Arc<[u64]>> {
        let refused = |message: String| Err(Error::new(ErrorKind::Config, message));
        let mut rows = match self {
            &Self::Random { n, .. } if n > n_rows => {
                return refused(format!("the subset has {n} rows, and the files have {n_rows}"));
            }
            &Self::Random { n, seed } => {
                let order = Bijection::new(seed, Purpose::Subset, [0; 2], n_rows.max(1));
                let mut rows = fallible_alloc::with_room(n as usize)?;
                rows.extend((0..n).map(|at| order.at(at)));
                rows
            }
            Self::Rows(rows) => {
                if let Some(row) = rows.iter().find(|row| **row >= n_rows) {
                    let last = n_rows.saturating_sub(1);
                    return refused(format!("the subset names row {row}, must be 0 to {last}"));
                }
                rows.clone()
            }
        };
        rows.sort_unstable();
        if let Some(twice) = rows.windows(2).find(|pair| pair[0] == pair[1]) {
            return refused(format!("the subset names row {} twice", twice[0]));
        }
        if rows.is_empty() {
            return refused("the subset has no rows, must have at least one".to_owned());
        }
        Ok(rows.into())
    }
}

/// All rows of a source, or some.
#[derive(Debug)]
pub struct Selection<S> {
    source: Arc<S>,
    rows: Option<Arc<[u64]>>,
}

impl<S: Source> Selection<S> {
    /// The `rows` of a source, in ascending order; `None`: all.
    pub fn new(source: Arc<S>, rows: Option<Arc<[u64]>>) -> Self {
        Self { source, rows }
    }

    /// The row of the source.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn row(&self, at: u64) -> u64 {
        row(self.rows.as_deref(), at)
    }

    /// The number of a row of the source among the selected ones.
    pub fn position(&self, row: u64) -> Option<u64> {
        match &self.rows {
            None => Some(row),
            Some(rows) => rows.binary_search(&row).ok().map(|at| at as u64),
        }
    }
}

fn row(rows: Option<&[u64]>, at: u64) -> u64 {
    rows.map_or(at, |rows| rows[at as usize])
}

/// How many of the `run` rows from number `at` on are neighbours in the source.
fn neighbours(rows: Option<&[u64]>, at: u64, run: u64) -> u64 {
    let Some(rows) = rows else { return run };
    let first = rows[at as usize];
    let run = rows[at as usize..].iter().zip(first..).take(usize::try_from(run).unwrap_or(usize::MAX));
    run.take_while(|(row, next)| *row == next).count() as u64
}

impl<S: Source> Source for Selection<S> {
    type Reader = SelectionReader<S::Reader>;

    fn shard_rows(&self) -> Vec<u64> {
        let all = self.source.shard_rows();
        let Some(rows) = &self.rows else { return all };
        let ends = all.iter().scan(0, |end, n| {
            *end += n;
            Some(*end)
        });
        let mut before = 0;
        ends.map(|end| {
            let until = rows.partition_point(|row| *row < end) as u64;
            until - std::mem::replace(&mut before, until)
        })
        .collect()
    }

    fn locate(&self, row: u64) -> (Arc<Path>, u64) {
        self.source.locate(self.row(row))
    }

    fn random_access(&self) -> bool {
        self.source.random_access()
    }

    fn check_scattered(&self) -> Result<()> {
        self.source.check_scattered()
    }

    fn block_rows(&self, row: u64, run: u64) -> u64 {
        self.source.block_rows(self.row(row), neighbours(self.rows.as_deref(), row, run))
    }

    fn most_blocks(&self) -> usize {
        self.source.most_blocks()
    }

    fn bytes_in_use(&self) -> usize {
        self.source.bytes_in_use()
    }

    fn retries(&self) -> Arc<AtomicU64> {
        self.source.retries()
    }

    fn reader(self: &Arc<Self>) -> Self::Reader {
        SelectionReader { reader: self.source.reader(), rows: self.rows.clone() }
    }
}

/// Reads selected rows, for one thread.
#[derive(Debug)]
pub struct SelectionReader<R> {
    reader: R,
    rows: Option<Arc<[u64]>>,
}

impl<R: ReadRecords> ReadRecords for SelectionReader<R> {
    fn ask(&mut self, gate: Arc<dyn Gate>) {
        self.reader.ask(gate);
    }

    fn read(&mut self, at: u64, run: u64, wants: &dyn Wants) -> Result<RawRecord> {
        let rows = self.rows.as_deref();
        self.reader.read(row(rows, at), neighbours(rows, at, run), wants)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_random_subset_has_its_size_and_is_fixed() {
        let rows = |n, seed| Subset::Random { n, seed }.rows(1000).unwrap();
        let some = rows(100, 0);
        assert_eq!(some.len(), 100);
        assert!(some.windows(2).all(|pair| pair[0] < pair[1]) && some[99] < 1000);
        assert_eq!(some, rows(100, 0));
        assert_ne!(some, rows(100, 1));
        assert_eq!(*rows(1000, 3), (0..1000).collect::<Vec<_>>()[..]);
        // A larger subset has the smaller one.
        assert!(some.iter().all(|row| rows(200, 0).contains(row)));
    }

    #[test]
    fn impossible_subsets_are_refused() {
        for (subset, told) in [
            (Subset::Random { n: 11, seed: 0 }, "has 11 rows, and the files have 10"),
            (Subset::Rows(vec![3, 10]), "names row 10, must be 0 to 9"),
            (Subset::Rows(vec![3, 1, 3]), "names row 3 twice"),
            (Subset::Rows(Vec::new()), "no rows"),
        ] {
            let error = subset.rows(10).unwrap_err();
            assert!(error.message.contains(told), "{error}");
        }
    }

    #[test]
    fn runs_end_at_rows_that_are_left_out() {
        let rows = [2, 3, 4, 7, 8];
        let of = |at, run| neighbours(Some(&rows), at, run);
        assert_eq!([of(0, 5), of(0, 2), of(1, 9), of(2, 3), of(3, 2)], [3, 2, 2, 1, 2]);
        assert_eq!(neighbours(None, 5, 9), 9);
    }
}
