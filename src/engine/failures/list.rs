//! The failed records: each is reported once, listed once, and those lost to the system are kept for the
//! state.
//!
//! In go the failures that belong to batches which were handed out, in the order of positions; out come the
//! list behind `errors()` and the account in a state. Memory is bounded: [`LISTED`] records are listed, all
//! are counted.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::{Error, ErrorKind};

/// How many bad records are listed one by one, if not more are allowed.
pub const LISTED: usize = 10_000;
/// How many different reasons of one kind are logged; all are listed and counted.
const TOLD_OF_A_KIND: usize = 8;
/// How many lost records a state names.
pub(crate) const NAMED: usize = 8;

/// What each rank lost: a state may be that of another rank, or of all.
pub type Losses = BTreeMap<u64, Lost>;

/// Records that were left out because the system failed to read them, since the first start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lost {
    /// How often that happened.
    pub records: u64,
    /// The rows of the first ones.
    pub rows: Vec<u64>,
}

/// The account of one loader.
#[derive(Debug)]
pub(crate) struct FailureList {
    bad: BTreeMap<u64, Error>,
    most: usize,
    is_full: bool,
    /// Reasons that were logged, by kind.
    told: HashMap<ErrorKind, HashSet<String>>,
    rank: u64,
    lost: Losses,
}

impl FailureList {
    /// An empty one for a rank, with room for so many records.
    pub(crate) fn new(rank: u64, most: usize) -> Self {
        let (bad, told, lost) = (BTreeMap::new(), HashMap::new(), Losses::new());
        Self { bad, most, is_full: false, told, rank, lost }
    }

    /// Enters a failure of a batch that is handed out; `is_skipped` unless it ends the run.
    pub(crate) fn enter(&mut self, error: Error, is_skipped: bool) {
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
            log::warn!("{} bad records are listed; further ones are only counted", self.most);
        }
    }

    /// Logs a failure, each reason once.
    fn tell(&mut self, error: &Error) {
        let reasons = self.told.entry(error.kind).or_default();
        if reasons.len() < TOLD_OF_A_KIND && reasons.insert(error.message.clone()) {
            let more = if reasons.len() < TOLD_OF_A_KIND {
                ""
            } else {
                "; more of this kind are only counted and listed"
            };
            let what = if error.kind.is_io() { "lost a record" } else { "skipped a bad record" };
            log::warn!("{what} ({}): {error}{more}", error.kind);
        }
    }

    /// What is listed, by row.
    pub(crate) fn errors(&self) -> impl Iterator<Item = &Error> {
        self.bad.values()
    }

    /// Takes the list, which begins anew.
    pub(crate) fn take(&mut self) -> Vec<Error> {
        std::mem::take(&mut self.bad).into_values().collect()
    }

    /// The rows that are listed.
    pub(crate) fn rows(&self) -> impl Iterator<Item = u64> {
        self.bad.keys().copied()
    }

    /// What was lost to the system.
    pub(crate) fn lost(&self) -> &Losses {
        &self.lost
    }

    /// Goes on with the losses that a state tells of, which are listed as these errors.
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
