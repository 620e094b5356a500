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
mod reader;
mod schema;
mod shard;
mod spans;
pub mod table;
mod walk;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
};

pub use reader::ArrowReader;

use self::{index::ShardIndex, shard::OpenShards};
use super::{
    block::BlockPool,
    columns::{ArrayColumns, ChatColumns, ColumnChoice, Described, FeatureCache},
    contents::{Contents, DescribedShards},
    mapped::MappedFiles,
    path_or_url::PathOrUrl,
    path_policy::{AllowPaths, PathPolicy},
    paths::{self, Reads},
    remote::DiskCache,
    row_files::{ReadRows, RowFiles},
    shard::{Shard, locate, shards_of},
    storage::{CountedStorage, Storage, StoredFile},
    store_options::StoreOptions,
    urls,
};
use crate::{
    BLOCKS_AHEAD, Error, ErrorKind, Result, Traffic,
    contract::{MAX_RECORD_BYTES, RowStore, Source, StorageLabels},
    error::Place,
    parallel, scattered_readers,
    seed::mix,
};

/// The columns to read, and how to open the files.
#[derive(Debug, Clone)]
pub struct ArrowOptions {
    /// The column of recordings; None for `audio` or the only Audio feature.
    pub audio_column: Option<String>,
    /// A column of documents, which are read instead of recordings.
    pub text_column: Option<String>,
    /// The columns of conversations, which are read instead of recordings.
    pub chat: Option<ChatColumns>,
    /// The column of labels; the usual one is `label`, `labels` or the only ClassLabel feature.
    pub label_column: ColumnChoice,
    /// How many threads read headers.
    pub threads: usize,
    /// Whether local files are mapped. Records are then not copied; see [`MappedFiles`] for the risk if a
    /// file shrinks.
    pub mmap: bool,
    /// The most bytes of a record, and of a decompressed buffer; 64 times a buffer's compressed size are
    /// always allowed.
    pub max_record_bytes: u64,
    pub allow_paths: AllowPaths,
    /// Whether the path of each row is one of its values.
    pub paths: bool,
    /// The other columns whose values are read.
    pub columns: Vec<String>,
    /// Those of them whose values count in the fingerprint of a table, in this order; None for all.
    pub fingerprinted: Option<Vec<String>>,
    pub store: StoreOptions,
    /// Where what is read by URL is kept.
    pub cache: Option<Arc<DiskCache>>,
}

impl Default for ArrowOptions {
    fn default() -> Self {
        Self {
            audio_column: None,
            text_column: None,
            chat: None,
            label_column: ColumnChoice::Usual,
            threads: 8,
            mmap: false,
            max_record_bytes: MAX_RECORD_BYTES,
            allow_paths: AllowPaths::default(),
            paths: false,
            columns: Vec::new(),
            fingerprinted: None,
            store: StoreOptions::default(),
            cache: None,
        }
    }
}

impl ArrowOptions {
    /// Documents in `column`, without labels.
    pub fn text(column: impl Into<String>) -> Self {
        let text_column = Some(column.into());
        Self { text_column, label_column: ColumnChoice::Nothing, ..Self::default() }
    }

    /// Conversations, without labels.
    pub fn chat(columns: ChatColumns) -> Self {
        Self { chat: Some(columns), label_column: ColumnChoice::Nothing, ..Self::default() }
    }

    /// Storage of local files, mapped or read.
    pub(super) fn storage(&self) -> Arc<dyn Storage> {
        match self.mmap {
            true => Arc::new(PathOrUrl::here(MappedFiles, &self.store, self.cache.clone())),
            false => PathOrUrl::files(&self.store, self.cache.clone()),
        }
    }
}

/// An open dataset of Arrow shards; immutable and shared.
#[derive(Debug)]
pub struct ArrowSource {
    storage: Arc<dyn Storage>,
    traffic: Arc<Traffic>,
    shards: Vec<Shard>,
    indexes: Vec<Arc<ShardIndex>>,
    blocks: Arc<BlockPool>,
    max_record_bytes: u64,
    path_policy: PathPolicy,
    /// What records are called, if they are documents.
    document: Option<&'static str>,
    open: Arc<OpenShards>,
    /// Whether reading a part of the last large recording was enough.
    in_parts: AtomicBool,
    n_rows: u64,
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
    pub fn open(paths: &[PathBuf], options: &ArrowOptions) -> Result<Self> {
        let storage = options.storage();
        let files = paths::expand(paths, Reads::Recordings, &storage)?;
        Self::open_in(storage, &files, options)
    }

    /// The same for files of any storage.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_in(storage: Arc<dyn Storage>, paths: &[PathBuf], options: &ArrowOptions) -> Result<Self> {
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
        options: &ArrowOptions,
    ) -> Result<Self> {
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
        let (shards, n_rows) = shards_of(paths.iter().zip(rows))?;
        for shard in &shards {
            if let Some(error) = &shard.damage {
                log::warn!("{error} ({} rows are read)", shard.n_rows);
            }
        }
        let found = indexes.iter().filter_map(|index| index.columns.as_ref());
        let has_labels = found.into_iter().any(|columns| columns.label.is_some());
        let described: Vec<_> = indexes.iter().map(|index| described(index)).collect();
        let found = DescribedShards { shards: &shards, ends, described: &described, has_labels };
        Ok(Self {
            contents: Contents::new(found, &options.columns, options.paths)?,
            storage,
            traffic,
            max_record_bytes: options.max_record_bytes,
            path_policy: PathPolicy::new(options.allow_paths.clone()),
            document: match (&options.text_column, &options.chat) {
                (_, Some(_)) => Some("conversation"),
                (text, None) => text.as_ref().map(|_| "text"),
            },
            open: OpenShards::new(shards.len(), options.max_record_bytes),
            shards,
            indexes,
            blocks: Arc::default(),
            in_parts: AtomicBool::new(false),
            n_rows,
        })
    }

    /// The number of rows over all shards.
    pub fn n_rows(&self) -> u64 {
        self.n_rows
    }

    /// The shards in the order given.
    pub fn shards(&self) -> &[Shard] {
        &self.shards
    }

    pub fn contents(&self) -> &Contents {
        &self.contents
    }

    /// Whether a row can be read alone. False if any body is compressed: one row then costs its whole batch.
    pub fn random_access(&self) -> bool {
        self.indexes.iter().flat_map(|index| &index.batches).all(|batch| batch.codec.is_none())
    }

    /// A hash of the shards' row counts and file sizes, in order. Paths and times are left out, since a
    /// dataset may be copied to another place.
    pub fn fingerprint(&self) -> u64 {
        let sizes = self.indexes.iter().flat_map(|index| [index.n_rows, index.version.size]);
        sizes.fold(mix(self.indexes.len() as u64), |state, word| mix(state ^ mix(word)))
    }

    /// The largest record batch with a compressed body: its shard and its bytes in the columns that are read.
    fn largest_compressed(&self) -> Option<(&Shard, u64)> {
        let sizes = self.shards.iter().zip(&self.indexes).flat_map(|(shard, index)| {
            let compressed = index.batches.iter().filter(|batch| batch.codec.is_some());
            compressed.map(move |batch| {
                (shard, batch.arrays.iter().flat_map(|array| &*array.buffers).map(|buffer| buffer.len).sum())
            })
        });
        sizes.max_by_key(|&(_, bytes)| bytes)
    }

    /// The shard that holds `row`, and the row's number there.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn locate(&self, row: u64) -> (usize, u64) {
        locate(&self.shards, row)
    }

    pub fn reader(self: &Arc<Self>) -> ArrowReader {
        ArrowReader::new(Arc::clone(self))
    }
}

impl ArrowSource {
    /// What its files cost so far.
    pub fn traffic(&self) -> &Arc<Traffic> {
        &self.traffic
    }

    /// The numbers of rows of a shard's record batches, in order.
    ///
    /// # Panics
    /// If there is no such shard.
    pub(crate) fn batch_rows(&self, shard: usize) -> impl Iterator<Item = u64> + '_ {
        self.indexes[shard].batches.iter().map(|batch| batch.n_rows)
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
    options: &ArrowOptions,
) -> Result<Arc<dyn RowFiles>> {
    Ok(Arc::new(ArrowSource::open_groups(storage, files, ends, options)?))
}

impl RowFiles for ArrowSource {
    fn shards(&self) -> &[Shard] {
        self.shards()
    }

    fn contents(&self) -> &Contents {
        self.contents()
    }

    fn fingerprint(&self) -> u64 {
        self.fingerprint()
    }

    fn traffic(&self) -> &Arc<Traffic> {
        self.traffic()
    }

    fn can_be_ordered(&self) -> bool {
        true
    }

    fn row_reader(self: Arc<Self>) -> Box<dyn ReadRows> {
        Box::new(self.reader())
    }
}

impl RowStore for ArrowSource {
    fn scattered_readers(&self, n_readers: usize) -> usize {
        scattered_readers(n_readers, self.traffic.is_remote())
    }

    fn storage_labels(&self) -> StorageLabels {
        self.traffic.labels()
    }

    fn shard_rows(&self, _epoch: u64) -> Result<Vec<u64>> {
        Ok(self.shards.iter().map(|shard| shard.n_rows).collect())
    }

    fn place(&self, row: u64) -> Place {
        let (shard, row) = self.locate(row);
        Place::in_shard(&self.shards[shard].path, row)
    }

    fn random_access(&self) -> bool {
        self.random_access()
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
        if self.random_access() { BLOCKS_AHEAD } else { 1 }
    }

    fn bytes_in_use(&self) -> usize {
        self.blocks.bytes_in_use()
    }

    fn rest(&self) {
        self.storage.rest();
    }
}

impl Source for ArrowSource {
    type Reader = ArrowReader;

    fn reader(self: &Arc<Self>) -> ArrowReader {
        self.reader()
    }
}

/// What a shard has beside its recordings; nothing if it is damaged before its schema ends.
fn described(index: &ShardIndex) -> Described {
    index.columns.as_ref().map(ArrayColumns::described).unwrap_or_default()
}

/// Indexes all shards on `options.threads` threads.
fn index_all(
    storage: &Arc<dyn Storage>,
    paths: &[Arc<Path>],
    options: &ArrowOptions,
) -> Result<Vec<Arc<ShardIndex>>> {
    let features = FeatureCache::default();
    let threads = urls::threads_for(paths, options.threads);
    parallel::each("forebay-index", paths, threads, |path| {
        ShardIndex::build(&StoredFile::open(storage, path)?, options, &features).map(Arc::new)
    })
}
