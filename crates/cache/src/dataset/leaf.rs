//! The leaves of a dataset: rows that can be counted, awaited and read.

use std::{fmt, sync::Arc};

use crate::{Result, fields::Field};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeafLength {
    /// The rows that can be read now.
    pub rows: u64,
    /// Whether no rows will be added.
    pub is_final: bool,
}

impl LeafLength {
    /// The length of a dataset that starts again after each pass.
    pub(crate) const ENDLESS: Self = Self { rows: u64::MAX, is_final: true };

    pub fn is_endless(self) -> bool {
        self == Self::ENDLESS
    }
}

/// Rows of documents.
///
/// Rows may be added; an existing row never changes.
pub trait Leaf: fmt::Debug + Send + Sync {
    /// The fields.
    ///
    /// # Errors
    /// [`crate::ErrorKind::State`] if the fields are unknown until there is a row.
    fn fields(&self) -> Result<Arc<[Field]>>;

    /// Whether rows are read by URL, so that a read may take long.
    fn is_remote(&self) -> bool {
        false
    }

    /// The current number of rows.
    ///
    /// # Errors
    /// The error that ended the making of rows early, or that of counting them.
    fn length(&self) -> Result<LeafLength>;

    /// Waits until there are `rows` rows or the length is final; ends early, soon after `give_up` returns
    /// true.
    ///
    /// # Errors
    /// As [`Leaf::length`].
    fn wait(&self, rows: u64, give_up: &dyn Fn() -> bool) -> Result<LeafLength>;

    /// Prepares a read of rows, given in any order; all must exist.
    ///
    /// # Errors
    /// If they cannot be read.
    fn select<'a>(&'a self, rows: &[u64]) -> Result<Box<dyn LeafSelection + 'a>>;

    /// A description that identifies the leaf, independent of where it is stored.
    fn describe(&self) -> String;

    /// The leaf whose values this one converts, if it does.
    fn stored(&self) -> Option<&Arc<dyn Leaf>> {
        None
    }
}

/// Rows that are about to be read.
pub trait LeafSelection {
    /// The shapes of `field`, row by row: as many numbers for each as the field has dimensions.
    ///
    /// # Errors
    /// If they cannot be read.
    fn shapes(&mut self, field: usize) -> Result<Vec<u64>>;

    /// Reads the values of `field`: those of row `n` to `places[n]` in `data`, which has room for them.
    ///
    /// # Errors
    /// If they cannot be read.
    fn read(&mut self, field: usize, places: &[usize], data: &mut [u8]) -> Result<()>;
}
