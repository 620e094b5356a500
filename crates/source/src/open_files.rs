//! [`OpenFiles`]: what open files have in common, whatever their format and whatever their rows are.
//!
//! A format keeps a [`FileSet`] and returns it; the rest follows from that. Source: own.

use std::{fmt, path::Path, sync::Arc};

use crate::{
    Error, Result, Traffic,
    error::Place,
    seed::mix,
    shard::{Shard, locate, shards_of},
    storage::Storage,
};

/// Files that were opened together: their rows, and how they are read.
#[derive(Debug)]
pub struct FileSet {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) traffic: Arc<Traffic>,
    pub(crate) shards: Vec<Shard>,
    pub(crate) n_rows: u64,
}

impl FileSet {
    /// Files of a storage that counts: for each the number of rows, the size, and the damage that ended it.
    ///
    /// # Errors
    /// As [`shards_of`].
    pub(crate) fn new<'a>(
        (storage, traffic): (Arc<dyn Storage>, Arc<Traffic>),
        files: impl Iterator<Item = (&'a Arc<Path>, (u64, u64, Option<Error>))>,
    ) -> Result<Self> {
        let (shards, n_rows) = shards_of(files)?;
        Ok(Self { storage, traffic, shards, n_rows })
    }

    pub(crate) fn warn_of_damage(&self) {
        for shard in &self.shards {
            if let Some(error) = &shard.damage {
                log::warn!("{error} ({} rows are read)", shard.n_rows);
            }
        }
    }
}

/// Open files; immutable and shared.
pub trait OpenFiles: fmt::Debug + Send + Sync + 'static {
    fn file_set(&self) -> &FileSet;

    /// The shards in the order given.
    fn shards(&self) -> &[Shard] {
        &self.file_set().shards
    }

    /// The number of rows over all shards.
    fn n_rows(&self) -> u64 {
        self.file_set().n_rows
    }

    /// The number of rows of each shard.
    fn rows_of_shards(&self) -> Vec<u64> {
        self.shards().iter().map(|shard| shard.n_rows).collect()
    }

    /// The shard that holds `row`, and the row's number there.
    ///
    /// # Panics
    /// If there is no such row.
    fn locate(&self, row: u64) -> (usize, u64) {
        locate(self.shards(), row)
    }

    /// Where `row` is, for messages.
    ///
    /// # Panics
    /// If there is no such row.
    fn place_of(&self, row: u64) -> Place {
        let (shard, row) = self.locate(row);
        Place::in_shard(&self.shards()[shard].path, row)
    }

    /// A hash of the shards' row counts and file sizes, in order. Paths and times are left out, since a
    /// dataset may be copied to another place.
    fn fingerprint(&self) -> u64 {
        let sizes = self.shards().iter().flat_map(|shard| [shard.n_rows, shard.n_bytes]);
        sizes.fold(mix(self.shards().len() as u64), |state, word| mix(state ^ mix(word)))
    }

    /// What the files cost so far.
    fn traffic(&self) -> &Arc<Traffic> {
        &self.file_set().traffic
    }

    /// Bytes of memory that records and reads in flight hold now; 0 if unknown.
    fn held_bytes(&self) -> usize {
        0
    }
}
