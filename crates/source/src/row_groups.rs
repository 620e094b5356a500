//! [`RowGroups`]: rows of files that are read together, in the order of the files.
//!
//! They are the row groups of Parquet, the record batches of Arrow, and groups of lines. Source: own.

use crate::{Result, fallible_alloc, shard::Shard};

/// Rows of a file that were written together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowGroup {
    /// The shard that holds it, counted from zero.
    pub shard: usize,
    pub index: usize,
    /// The number of its first row over all shards.
    pub first_row: u64,
    /// How many rows it has; some have none.
    pub n_rows: u64,
}

#[derive(Debug)]
pub(crate) struct RowGroups {
    groups: Vec<RowGroup>,
    /// The first group of each shard, and the number of all.
    starts: Vec<usize>,
}

impl RowGroups {
    /// Groups of these numbers of rows, for each of the shards.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`](crate::ErrorKind::Memory).
    pub(crate) fn new<R: IntoIterator<Item = u64>>(
        shards: &[Shard],
        rows_of: impl Fn(usize) -> R,
    ) -> Result<Self> {
        let (mut groups, mut starts) = (Vec::new(), vec![0]);
        for (shard, &Shard { mut first_row, .. }) in shards.iter().enumerate() {
            for (index, n_rows) in rows_of(shard).into_iter().enumerate() {
                fallible_alloc::push(&mut groups, RowGroup { shard, index, first_row, n_rows })?;
                first_row += n_rows;
            }
            starts.push(groups.len());
        }
        Ok(Self { groups, starts })
    }

    pub(crate) fn all(&self) -> &[RowGroup] {
        &self.groups
    }

    /// The groups of one shard.
    ///
    /// # Panics
    /// If there is no such shard.
    pub(crate) fn of_shard(&self, shard: usize) -> &[RowGroup] {
        &self.groups[self.starts[shard]..self.starts[shard + 1]]
    }

    /// The index in [`Self::all`] of the group that holds `row`.
    ///
    /// # Panics
    /// If there is no such row.
    pub(crate) fn index_of(&self, row: u64) -> usize {
        let n_rows = self.groups.last().map_or(0, |group| group.first_row + group.n_rows);
        assert!(row < n_rows, "row {row} of {n_rows}");
        // An empty group starts at the same row as the next one, so the last that starts at or before `row`
        // holds it.
        self.groups.partition_point(|group| group.first_row <= row) - 1
    }
}
