//! The list of failed records behind `errors()`; each reason is logged once, and records that the system
//! failed to read are kept for the state.
//!
//! Input: the failures of batches handed out, in the order of positions. Memory is bounded: [`LISTED`]
//! records are listed, or one more than `max_errors` allows if that is larger; a state names [`NAMED`] rows
//! of a rank.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::{Error, ErrorKind};

/// The number of bad records that are listed, unless `max_errors` allows more.
pub const LISTED: usize = 10_000;
/// The number of different reasons of one kind that are logged.
const TOLD_OF_A_KIND: usize = 8;
/// The number of lost records of a rank that a state names.
pub const NAMED: usize = 8;

/// The lost records of each rank: a state may be from another rank, or from all.
pub type Losses = BTreeMap<u64, Lost>;

/// Records left out since the first start because the system failed to read them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lost {
    pub records: u64,
    /// The rows of the first of them.
    pub rows: Vec<u64>,
}

/// The failed records of one loader.
#[derive(Debug)]
pub struct FailureList {
    bad: BTreeMap<u64, Error>,
    most: usize,
    is_full: bool,
    logs: bool,
    /// The reasons already logged, by kind.
    told: HashMap<ErrorKind, HashSet<String>>,
    rank: u64,
    lost: Losses,
}

impl FailureList {
    /// An empty list for a rank, with room for `most` records.
    pub fn new(rank: u64, most: usize) -> Self {
        let (bad, told, lost) = (BTreeMap::new(), HashMap::new(), Losses::new());
        Self { bad, most, is_full: false, logs: true, told, rank, lost }
    }

    /// The same without log records, for a caller that reports all failures itself.
    pub(crate) fn silent(self) -> Self {
        Self { logs: false, ..self }
    }

    /// Enters a failure of a batch that is handed out; `is_skipped`: it does not end the run.
    pub fn enter(&mut self, error: Error, is_skipped: bool) {
        if is_skipped {
            self.tell(&error);
        }
        let Some(index) = error.place.index else { return };
        if is_skipped && error.kind.is_io() {
            let lost = self.lost.entry(self.rank).or_default();
            lost.records += 1;
            if lost.rows.len() < NAMED {
                lost.rows.push(index);
            }
        }
        if self.bad.len() < self.most {
            self.bad.entry(index).or_insert(error);
        } else if !self.bad.contains_key(&index) && !std::mem::replace(&mut self.is_full, true) {
            log::warn!("errors() lists {} bad records and is full; further ones are only counted", self.most);
        }
    }

    /// Logs a failure, each reason once.
    fn tell(&mut self, error: &Error) {
        if !self.logs {
            return;
        }
        let reasons = self.told.entry(error.kind.told()).or_default();
        if reasons.len() < TOLD_OF_A_KIND && reasons.insert(error.message.clone()) {
            let more = if reasons.len() < TOLD_OF_A_KIND {
                ""
            } else {
                "; further ones of this kind are only listed and counted"
            };
            let what = if error.kind.is_io() { "lost a record" } else { "skipped a bad record" };
            log::warn!("{what} ({}): {error}{more}", error.kind);
        }
    }

    pub(crate) fn errors(&self) -> impl Iterator<Item = &Error> {
        self.bad.values()
    }

    /// The first listed error of a kind, by row.
    pub(crate) fn first(&self, kind: ErrorKind) -> Option<&Error> {
        self.bad.values().find(|error| error.kind.told() == kind.told())
    }

    /// Returns the list and clears it.
    pub(crate) fn take(&mut self) -> Vec<Error> {
        std::mem::take(&mut self.bad).into_values().collect()
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = u64> {
        self.bad.keys().copied()
    }

    /// The records that the system failed to read.
    pub(crate) fn lost(&self) -> &Losses {
        &self.lost
    }

    /// Takes over the losses of a state; adds the errors `listed` for them to the list.
    pub(crate) fn restore(&mut self, lost: Losses, listed: Vec<Error>) {
        self.lost = lost;
        for error in listed {
            if let Some(index) = error.place.index {
                self.bad.entry(index).or_insert(error);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded() {
        let mut failures = FailureList::new(1, 3);
        for row in [9, 2, 9, 5, 1, 2, 7] {
            let mut error = Error::new(ErrorKind::Io, format!("row {row} cannot be read"));
            error.place.index = Some(row);
            failures.enter(error, row != 5);
        }
        assert_eq!(failures.rows().collect::<Vec<_>>(), [2, 5, 9]);
        assert_eq!(failures.lost()[&1], Lost { records: 6, rows: vec![9, 2, 9, 1, 2, 7] });
        assert!(failures.told[&ErrorKind::Io].len() <= TOLD_OF_A_KIND);
        assert_eq!(failures.take().len(), 3);
        assert_eq!(failures.errors().count(), 0);
    }
}
