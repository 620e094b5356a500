//! Documents of a batch that cannot be read or processed: which ones are left out, and their errors.
//!
//! Readers and processors call [`Skips`] for each bad document; the policy is that of the loaders. Whether a
//! document is bad depends only on its shard and the processor, never on other documents, so the same ones
//! are left out in every run. A failure that affects more than one document (a damaged page, a truncated
//! file) is not handled here, and ends the build.

use crate::{Error, ErrorKind, Result, engine::Policy};

/// The documents that a batch loses.
#[derive(Debug)]
pub struct Skips<'a> {
    policy: &'a Policy,
    /// The row within the shard of the batch's first document.
    begin: u64,
    /// Rows of the batch that the reader left out, and that the processor does not get.
    unread: Vec<u64>,
    left_out: Vec<Error>,
}

impl<'a> Skips<'a> {
    /// For the batch that begins with the row `begin` of its shard.
    pub fn new(policy: &'a Policy, begin: u64) -> Self {
        Self { policy, begin, unread: Vec::new(), left_out: Vec::new() }
    }

    /// Whether bad documents are left out.
    pub fn leaves_out(&self) -> bool {
        self.policy.skip_bad
    }

    /// Leaves out the document `row` of the batch, which the reader cannot read.
    ///
    /// # Errors
    /// The error, with its row, if the policy does not allow to leave the document out.
    pub fn unread(&mut self, row: u64, error: Error) -> Result<()> {
        self.leave_out(error.at_row(self.begin + row))?;
        self.unread.push(row);
        Ok(())
    }

    /// Leaves out the document `row` of those that the processor got.
    ///
    /// # Errors
    /// As [`Skips::unread`].
    pub fn refused(&mut self, row: u64, error: Error) -> Result<()> {
        let error = self.placed(row, error);
        self.leave_out(error)
    }

    /// The error with the row, within the shard, of the document `row` of those that the processor got.
    pub fn placed(&self, row: u64, error: Error) -> Error {
        let row = self.unread.iter().fold(row, |row, &unread| row + u64::from(unread <= row));
        error.at_row(self.begin + row)
    }

    /// Leaves out the document whose row within the shard is in the error.
    ///
    /// # Errors
    /// As [`Skips::unread`].
    pub fn leave_out(&mut self, error: Error) -> Result<()> {
        // An exception that the user's function raises about one document means that this document is bad.
        let is_verdict = error.kind == ErrorKind::Callback && self.leaves_out();
        if !is_verdict && !self.policy.skips(error.kind) {
            return Err(error);
        }
        self.left_out.push(error);
        Ok(())
    }

    /// The errors of the documents left out, by row.
    pub fn into_errors(mut self) -> Vec<Error> {
        self.left_out.sort_by_key(|error| error.place.row);
        self.left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_those_of_the_shard() {
        let policy = Policy::default();
        let bad = || Error::new(ErrorKind::Corrupt, "bad");
        let mut skips = Skips::new(&policy, 100);
        for row in [0, 3, 4] {
            skips.unread(row, bad()).unwrap();
        }
        // The processor sees the rows 1, 2, 5, 6, ...
        for row in [2, 0, 3] {
            skips.refused(row, bad()).unwrap();
        }
        let rows: Vec<_> = skips.into_errors().iter().filter_map(|error| error.place.row).collect();
        assert_eq!(rows, [100, 101, 103, 104, 105, 106]);
    }

    #[test]
    fn only_documents_are_left_out() {
        for (skip_bad, kind, goes) in [
            (true, ErrorKind::Corrupt, true),
            (true, ErrorKind::Callback, true),
            (true, ErrorKind::Io, false),
            (true, ErrorKind::Schema, false),
            (true, ErrorKind::Panic, false),
            (false, ErrorKind::Corrupt, false),
            (false, ErrorKind::Callback, false),
        ] {
            let policy = Policy { skip_bad, ..Policy::default() };
            let found = Skips::new(&policy, 8).refused(1, Error::new(kind, "bad"));
            assert_eq!(
                found.map_err(|error| error.place.row),
                if goes { Ok(()) } else { Err(Some(9)) },
                "{kind}"
            );
        }
    }
}
