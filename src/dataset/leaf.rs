//! What a dataset is made of at the bottom: rows that can be counted, awaited and read.

use std::{fmt, sync::Arc};

use crate::{Result, fields::Field};

/// How many rows there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Length {
    /// The rows that can be read now.
    pub rows: u64,
    /// Whether there will be no more.
    pub is_final: bool,
}

impl Length {
    /// Of a dataset that begins anew whenever it is through.
    pub const ENDLESS: Self = Self { rows: u64::MAX, is_final: true };

    /// Whether there is no end.
    pub fn is_endless(self) -> bool {
        self == Self::ENDLESS
    }
}

/// Rows of documents.
///
/// Rows are only ever added; one that is there stays as it is.
pub trait Leaf: fmt::Debug + Send + Sync {
    /// The fields.
    ///
    /// # Errors
    /// [`crate::ErrorKind::State`] if there is no row yet that would tell.
    fn fields(&self) -> Result<Arc<[Field]>>;

    /// How many rows there are now.
    ///
    /// # Errors
    /// What ended the making of rows before its time, or that they cannot be counted.
    fn length(&self) -> Result<Length>;

    /// Waits until there are `rows` rows, or all; ends early soon after `give_up`.
    ///
    /// # Errors
    /// As [`Leaf::length`].
    fn wait(&self, rows: u64, give_up: &dyn Fn() -> bool) -> Result<Length>;

    /// Rows to read, all of them there, in any order.
    ///
    /// # Errors
    /// That they cannot be read.
    fn select<'a>(&'a self, rows: &[u64]) -> Result<Box<dyn Selection + 'a>>;

    /// What it is, in words.
    fn describe(&self) -> String;
}

/// Rows that are about to be read.
pub trait Selection {
    /// The shapes of `field` in each row: as many numbers for each as the field has dimensions.
    ///
    /// # Errors
    /// That they cannot be read.
    fn shapes(&mut self, field: usize) -> Result<Vec<u64>>;

    /// Reads the values of `field`; those of row `n` to `places[n]` in `data`, which has room for them.
    ///
    /// # Errors
    /// That they cannot be read.
    fn read(&mut self, field: usize, places: &[usize], data: &mut [u8]) -> Result<()>;
}
