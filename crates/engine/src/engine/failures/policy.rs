//! [`Policy`] and [`Tally`] decide on failed records: which are skipped, how many may fail, and which rows
//! are excluded and never read.
//!
//! Input: the outcomes of a rank's draws, in the order of its positions; output: whether the run continues.
//! Everything is decided on one thread and in that order, so a loader that ends with an error ends at the
//! same batch in every run, for any number of workers. A skipped record moves no position: it is left out, or
//! a substitute replaces it.

use std::{collections::HashSet, sync::Arc};

use crate::{Error, ErrorKind, Result, engine::failures::list::LISTED, error::counted};

#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// Whether bad records are left out or replaced; else the first one ends the run.
    pub skip_bad: bool,
    /// Whether records that the system failed to read are left out or replaced; else the first one ends the
    /// run.
    pub skip_io: bool,
    /// How many different records may fail on this rank.
    pub max_errors: Option<MaxErrors>,
    /// How many consecutive positions may have a record that fails.
    pub max_consecutive_errors: Option<u64>,
    /// Rows that are never read, in rising order: left out or replaced like bad ones, but counted apart.
    pub exclude: Arc<[u64]>,
    /// Whether skipped records are logged, each reason once, and a pass without a good record ends with an
    /// error; if not, the caller reports all failures itself.
    pub logs: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            skip_bad: true,
            skip_io: false,
            max_errors: None,
            max_consecutive_errors: None,
            exclude: Arc::default(),
            logs: true,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MaxErrors {
    Count(i64),
    /// At most this share of all records of the shards.
    Share(f64),
}

impl MaxErrors {
    /// The number of records that it allows, of `rows` rows.
    fn over(self, rows: u64) -> u64 {
        match self {
            Self::Count(count) => count.max(0) as u64,
            Self::Share(share) => (share * rows as f64) as u64,
        }
    }
}

impl Policy {
    /// Whether the run continues after a failure of this kind.
    pub fn skips(&self, kind: ErrorKind) -> bool {
        match kind {
            ErrorKind::Excluded => true,
            kind if kind.is_io() => self.skip_io,
            kind => kind.is_record() && self.skip_bad,
        }
    }

    /// Checks that `row` is not excluded.
    pub(crate) fn check(&self, row: u64) -> Result<()> {
        match self.exclude.binary_search(&row) {
            Err(_) => Ok(()),
            Ok(_) => Err(Error::new(ErrorKind::Excluded, "the row is excluded")),
        }
    }

    /// The maximum number of listed records, of `rows` rows.
    pub(crate) fn listed(&self, rows: u64) -> usize {
        let most = self.max_errors.map_or(0, |most| most.over(rows).min(rows) as usize);
        LISTED.max(most + 1)
    }
}

/// Counts failures in the order of positions.
#[derive(Debug)]
pub struct Tally {
    most: Option<u64>,
    most_consecutive: Option<u64>,
    /// The different records that failed, at most one more than may fail; empty if any number may.
    rows: HashSet<u64>,
    consecutive: u64,
    advice: &'static str,
}

impl Tally {
    /// A tally for `rows` rows, of which those in `failed` have failed before.
    pub fn new(policy: &Policy, rows: u64, failed: impl Iterator<Item = u64>) -> Self {
        let most = policy.max_errors.map(|most| most.over(rows)).filter(|&most| most < rows);
        Self {
            most,
            most_consecutive: policy.max_consecutive_errors,
            rows: if most.is_some() { failed.collect() } else { HashSet::new() },
            consecutive: 0,
            advice: "see errors()",
        }
    }

    /// The same with other advice in the error of too many failures.
    pub fn advising(self, advice: &'static str) -> Self {
        Self { advice, ..self }
    }

    /// Notes that the record of a position is good.
    pub(crate) fn good(&mut self) {
        self.consecutive = 0;
    }

    /// Notes that a record failed: that of a position, or a substitute.
    ///
    /// # Errors
    /// [`ErrorKind::TooMany`], whose cause is `error`.
    pub fn bad(&mut self, error: &Error, is_substitute: bool) -> Result<()> {
        if !is_substitute {
            self.consecutive += 1;
        }
        let too_many = |message: String| {
            let message = format!("{message}; the last one is {}; {}", error.kind, self.advice);
            Err(Error::new(ErrorKind::TooMany, message).because(error.clone()))
        };
        if let Some(most) = self.most_consecutive.filter(|&most| self.consecutive > most) {
            return too_many(format!(
                "{} failed, max_consecutive_errors allows {most}",
                counted(self.consecutive, "consecutive record")
            ));
        }
        let Some(most) = self.most else { return Ok(()) };
        self.rows.extend(error.place.index);
        match self.rows.len() as u64 {
            n if n > most => too_many(format!("{} failed, max_errors allows {most}", counted(n, "record"))),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bad(row: u64) -> Error {
        let mut error = Error::new(ErrorKind::Corrupt, "a bad one");
        error.place.index = Some(row);
        error
    }

    #[test]
    fn different_records_count_and_known_ones_do_not() {
        let policy = Policy { max_errors: Some(MaxErrors::Count(2)), ..Policy::default() };
        let mut tally = Tally::new(&policy, 100, [7].into_iter());
        for row in [7, 3, 7, 3] {
            tally.bad(&bad(row), row == 3).unwrap();
        }
        let error = tally.bad(&bad(4), false).unwrap_err();
        assert_eq!(error.kind, ErrorKind::TooMany);
        assert!(error.message.starts_with("3 records failed, max_errors allows 2"), "{error}");
    }

    #[test]
    fn a_share_is_of_all_records() {
        let policy = |share| Policy { max_errors: Some(MaxErrors::Share(share)), ..Policy::default() };
        let allowed = |share| {
            let mut tally = Tally::new(&policy(share), 1000, std::iter::empty());
            (0..1000).take_while(|&row| tally.bad(&bad(row), false).is_ok()).count()
        };
        assert_eq!([allowed(0.0005), allowed(0.001), allowed(0.0125), allowed(0.999)], [0, 1, 12, 999]);
    }

    #[test]
    fn a_good_record_ends_a_row_of_bad_ones() {
        let policy = Policy { max_consecutive_errors: Some(2), ..Policy::default() };
        let mut tally = Tally::new(&policy, 100, std::iter::empty());
        for row in 0..20 {
            tally.bad(&bad(row), false).unwrap();
            tally.bad(&bad(50), true).unwrap();
            tally.bad(&bad(row), false).unwrap();
            tally.good();
        }
        tally.bad(&bad(1), false).unwrap();
        tally.bad(&bad(2), false).unwrap();
        assert_eq!(tally.bad(&bad(3), false).unwrap_err().kind, ErrorKind::TooMany);
    }
}
