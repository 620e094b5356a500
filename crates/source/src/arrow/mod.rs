//! Arrow source: recordings in Arrow IPC streams and files, as Hugging Face `datasets` writes them.
//!
//! Input: paths and the names of columns. Output: records by row number. Opening reads only the headers of
//! the messages. Reading a row alone reads only its offsets, validity, label and bytes, unless its batch is
//! compressed.
//!
//! ```text
//! message ──▶ schema ──▶ index ◀── walk   headers: positions of all arrays
//!                          │     columns  the columns to read (in `source`)
//! buffer ──▶ array ──▶ open_batches       values of a batch and its dictionaries
//!                          ▼
//!     block_reader ──▶  reader            rows, in blocks
//!            parts ──▶                    parts of large recordings
//! ```
//!
//! The readers of `arrow-ipc` are not used: they load a whole batch (a gigabyte, if it holds 1000
//! recordings), allocate sizes that a header claims, and fail on a shard that is cut off. Its verified
//! flatbuffers are used for all metadata, and its readers are the oracle in the tests.
//!
//! Invariant: an allocation by a number in a header is at most what the file's bytes can justify, and every
//! damage found is an error of the row or in [`Shard::damage`].

mod array;
mod block_reader;
mod buffer;
mod dictionaries;
mod index;
mod json;
mod listed;
mod message;
mod open_batches;
mod other;
mod parts;
mod reader;
mod schema;
mod shard;
mod spans;
pub mod table;
mod walk;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

pub use reader::ArrowReader;

use self::{index::ShardIndex, parts::Parts, shard::OpenShards};
use super::{
    block::BlockPool,
    columns::{ArrayColumns, Described, FeatureCache, PayloadColumn},
    contents::{Contents, DescribedShards},
    open_files::{FileSet, OpenFiles},
    path_policy::PathPolicy,
    paths::{self, Reads},
    ranged::{AtomicReadCounts, Indexes, RangedRecordings},
    row_files::{DocumentFiles, DynReader, ReadRows, RowFiles, impl_source},
    shard::Shard,
    storage::{CountedStorage, Storage, StoredFile},
    urls,
};
use crate::{BLOCKS_AHEAD, Error, ErrorKind, Result, SourceOptions, parallel};

/// An open dataset of Arrow shards; immutable and shared.
#[derive(Debug)]
pub struct ArrowSource {
    files: FileSet,
    indexes: Vec<Arc<ShardIndex>>,
    parts: Parts,
    path_policy: PathPolicy,
    /// What records are called, if they are documents.
    document: Option<&'static str>,
    open: Arc<OpenShards>,
    contents: Contents,
}

/// The largest compressed batch that may be read for a single row, bytes.
const SCATTERED_BATCH_BYTES: u64 = 16 << 20;

impl ArrowSource {
    /// Opens local files: reads only their schemas and message headers, on several threads.
    ///
    /// Folders and patterns are [expanded](crate::paths). The stop flag is checked between reads. Relative
    /// paths, those in rows too, are resolved against the folder that is current now.
    ///
    /// # Errors
    /// The first in the order of the files: [`ErrorKind::NotFound`], [`ErrorKind::Io`], [`ErrorKind::Format`]
    /// for a file that is not Arrow, [`ErrorKind::Schema`] for columns that do not fit or differ between
    /// shards, [`ErrorKind::Config`] for no files, [`ErrorKind::Closed`] once the work is stopped. A damaged
    /// shard is no error.
    pub fn open(paths: &[PathBuf], options: &SourceOptions) -> Result<Self> {
        let storage = options.storage();
        let files = paths::expand(paths, Reads::Recordings, &storage)?;
        Self::open_in(storage, &files, options)
    }

    /// The same for files of any storage.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_in(storage: Arc<dyn Storage>, paths: &[PathBuf], options: &SourceOptions) -> Result<Self> {
        Self::open_groups(storage, paths, &[paths.len()], options)
    }

    /// The same for groups of files: `ends` has the number of files up to the end of each. The files of a
    /// group have the same classes.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub(crate) fn open_groups(
        storage: Arc<dyn Storage>,
        paths: &[PathBuf],
        ends: &[usize],
        options: &SourceOptions,
    ) -> Result<Self> {
        if matches!(options.payload, PayloadColumn::Ids(..)) {
            let message =
                "token ids are read from Parquet, .npy and .bin with .idx, and these are Arrow files";
            return Err(Error::new(ErrorKind::Config, message));
        }
        if paths.is_empty() {
            return Err(Error::new(
                ErrorKind::Config,
                "there are no files to read; name at least one Arrow shard",
            ));
        }
        let (storage, traffic) = CountedStorage::over(storage);
        let paths: Vec<Arc<Path>> = paths.iter().map(|path| Arc::from(path.as_path())).collect();
        let indexes = index_all(&storage, &paths, options)?;
        let rows = indexes.iter().map(|index| (index.n_rows, index.version.size, index.damage.clone()));
        let files = FileSet::new((storage, traffic), paths.iter().zip(rows))?;
        files.warn_of_damage();
        let found = indexes.iter().filter_map(|index| index.columns.as_ref());
        let has_labels = found.into_iter().any(|columns| columns.label.is_some());
        let described: Vec<_> = indexes.iter().map(|index| described(index)).collect();
        let found = DescribedShards { shards: &files.shards, ends, described: &described, has_labels };
        Ok(Self {
            contents: Contents::new(found, &options.columns, options.paths)?,
            parts: Parts::of(RangedRecordings {
                blocks: Arc::default(),
                max_record_bytes: options.max_record_bytes,
                track: options.track,
                indexes: Indexes::in_memory(),
                counts: AtomicReadCounts::default(),
            }),
            path_policy: PathPolicy::new(options.allow_paths.clone()),
            document: options.payload.document(),
            open: OpenShards::new(files.shards.len(), options.max_record_bytes),
            files,
            indexes,
        })
    }

    pub fn contents(&self) -> &Contents {
        &self.contents
    }

    /// Memory that recordings are read into.
    fn blocks(&self) -> &Arc<BlockPool> {
        &self.parts.recordings.blocks
    }

    fn max_record_bytes(&self) -> u64 {
        self.parts.recordings.max_record_bytes
    }

    /// The largest record batch with a compressed body: its shard and its bytes in the columns that are read.
    fn largest_compressed(&self) -> Option<(&Shard, u64)> {
        let sizes = self.files.shards.iter().zip(&self.indexes).flat_map(|(shard, index)| {
            let compressed = index.batches.iter().filter(|batch| batch.codec.is_some());
            compressed.map(move |batch| {
                (shard, batch.arrays.iter().flat_map(|array| &*array.buffers).map(|buffer| buffer.len).sum())
            })
        });
        sizes.max_by_key(|&(_, bytes)| bytes)
    }

    pub fn reader(self: &Arc<Self>) -> ArrowReader {
        ArrowReader::new(Arc::clone(self))
    }
}

impl OpenFiles for ArrowSource {
    fn file_set(&self) -> &FileSet {
        &self.files
    }

    fn held_bytes(&self) -> usize {
        self.blocks().bytes_in_use()
    }
}

impl DocumentFiles for ArrowSource {
    fn group_rows(&self, shard: usize) -> Box<dyn Iterator<Item = u64> + '_> {
        Box::new(self.indexes[shard].batches.iter().map(|batch| batch.n_rows))
    }

    fn document_reader(self: Arc<Self>) -> Box<dyn DynReader> {
        Box::new(self.reader())
    }
}

/// Opens files whose rows are recordings.
///
/// # Errors
/// As [`ArrowSource::open`].
pub(crate) fn open_rows(
    storage: Arc<dyn Storage>,
    files: &[PathBuf],
    ends: &[usize],
    options: &SourceOptions,
) -> Result<Arc<dyn RowFiles>> {
    Ok(Arc::new(ArrowSource::open_groups(storage, files, ends, options)?))
}

impl RowFiles for ArrowSource {
    fn contents(&self) -> &Contents {
        self.contents()
    }

    fn can_be_ordered(&self) -> bool {
        true
    }

    fn row_reader(self: Arc<Self>) -> Box<dyn ReadRows> {
        Box::new(self.reader())
    }

    /// False if any body is compressed: one row then costs its whole batch.
    fn random_access(&self) -> bool {
        self.indexes.iter().flat_map(|index| &index.batches).all(|batch| batch.codec.is_none())
    }

    fn check_scattered(&self) -> Result<()> {
        match self.largest_compressed() {
            Some((shard, bytes)) if bytes > SCATTERED_BATCH_BYTES => Err(Error::new(
                ErrorKind::Config,
                format!(
                    "{} has compressed record batches of up to {} MiB, and in this order each row would cost a whole batch (at most \
                     {} MiB are allowed); use order=\"window\", or write the shards without compression or in smaller batches",
                    shard.path.display(),
                    bytes >> 20,
                    SCATTERED_BATCH_BYTES >> 20
                ),
            )),
            _ => Ok(()),
        }
    }

    fn block_rows(&self, row: u64, run: u64) -> u64 {
        self.rows_of_block(row, run)
    }

    fn most_blocks(&self) -> usize {
        // A compressed batch would be decompressed once for each thread.
        if RowFiles::random_access(self) { BLOCKS_AHEAD } else { 1 }
    }
}

impl_source!(ArrowSource, ArrowReader);

/// What a shard has beside its recordings; nothing if it is damaged before its schema ends.
fn described(index: &ShardIndex) -> Described {
    index.columns.as_ref().map(ArrayColumns::described).unwrap_or_default()
}

/// Indexes all shards on `options.threads` threads.
fn index_all(
    storage: &Arc<dyn Storage>,
    paths: &[Arc<Path>],
    options: &SourceOptions,
) -> Result<Vec<Arc<ShardIndex>>> {
    let features = FeatureCache::default();
    let threads = urls::threads_for(paths, options.threads);
    parallel::each("forebay-index", paths, threads, |path| {
        ShardIndex::build(&StoredFile::open(storage, path)?, options, &features).map(Arc::new)
    })
}
