//! Parquet source: recordings as Hugging Face `datasets` writes them, and documents for language models.
//!
//! Input: paths and the names of columns. Output: records by row number. Opening reads only the footers;
//! reading reads only pages of the requested columns.
//!
//! ```text
//! files ──▶ footer ──▶ plan            row groups and columns to read
//!             │          │
//! chunks ──▶ pages ──▶ group ──▶ values ──▶ reader    bytes; checks; batches; rows
//! ```
//!
//! Row groups are written and compressed independently, so they are divided among ranks:
//! [`ParquetSource::row_groups`] lists them over all files. The `parquet` crate decodes pages. It gets the
//! bytes from our own reads, decodes only the requested columns, and its panics are caught.
//!
//! Invariant: the result of reading a row depends on the file alone, not on the rows read before it. Memory
//! is a window of some MiB per column, the pages of a batch of about a MiB, and one page more, of the size
//! that its writer chose.

mod chunk;
mod chunks;
mod files;
mod footer;
mod group;
pub(crate) mod pages;
mod places;
mod plan;
mod reader;
pub mod table;
mod thrift;
mod values;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

pub use self::{
    files::{Split, split, split_documents},
    reader::ParquetReader,
    thrift::check_footer,
};
pub use crate::row_groups::RowGroup;

use self::{
    places::ChunkPlaces,
    plan::{ColumnPlan, Plans},
};
use super::{
    block::BlockPool,
    columns::{Described, FeatureCache, PayloadColumn},
    contents::{Contents, DescribedShards},
    open_files::{FileSet, OpenFiles},
    path_policy::PathPolicy,
    row_files::{DocumentFiles, DynReader, ReadRows, RowFiles, impl_source},
    row_groups::RowGroups,
    storage::{CountedStorage, Storage, StoredFile, Version},
    urls,
};
use crate::{Error, ErrorKind, Result, SourceOptions, cancel, parallel};

/// An open dataset of Parquet shards; immutable and shared.
#[derive(Debug)]
pub struct ParquetSource {
    files: FileSet,
    payload: PayloadColumn,
    max_record_bytes: u64,
    path_policy: PathPolicy,
    versions: Vec<Version>,
    /// The requested columns of each shard, and how to decode them.
    plans: Vec<(Arc<ChunkPlaces>, Arc<ColumnPlan>)>,
    row_groups: RowGroups,
    blocks: Arc<BlockPool>,
    contents: Contents,
    /// The shard whose row group has the most bytes in the requested columns, and these bytes.
    largest: (usize, u64),
}

/// The largest row group that may be read for a single row, bytes.
const SCATTERED_GROUP_BYTES: u64 = 16 << 20;

/// The part of a footer that is kept.
struct FooterIndex {
    version: Version,
    columns: (Arc<ChunkPlaces>, Arc<ColumnPlan>),
    described: Described,
    has_labels: bool,
    largest: u64,
}

impl ParquetSource {
    /// Opens local files: reads only their footers, on several threads.
    ///
    /// The stop flag is checked between files. Relative paths, those in rows too, are resolved against the
    /// folder that is current now.
    ///
    /// # Errors
    /// The first in the order of the files: [`ErrorKind::NotFound`], [`ErrorKind::Io`], [`ErrorKind::Format`]
    /// for a file that is not Parquet, cut off or encrypted, [`ErrorKind::Schema`] for columns that do not
    /// fit or differ between shards, [`ErrorKind::Config`] for no files or if they are to be mapped,
    /// [`ErrorKind::Closed`] once the work is stopped. Damage in row groups is found when they are read.
    pub fn open(paths: &[PathBuf], options: &SourceOptions) -> Result<Self> {
        Self::open_in(options.storage(), paths, options)
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
        if options.mmap {
            let message = "mmap=True maps Arrow shards, but these are Parquet; use mmap=False";
            return Err(Error::new(ErrorKind::Config, message));
        }
        if paths.is_empty() {
            let message = "there are no files to read; name at least one Parquet file";
            return Err(Error::new(ErrorKind::Config, message));
        }
        let (storage, traffic) = CountedStorage::over(storage);
        let paths: Vec<Arc<Path>> = paths.iter().map(|path| Arc::from(path.as_path())).collect();
        let (features, plans, turns) = (FeatureCache::default(), Plans::default(), Mutex::default());
        let threads = urls::threads_for(&paths, options.threads);
        let indexes = parallel::each("forebay-index", &paths, threads, |path| {
            cancel::check("opening")?;
            FooterIndex::read(&storage, path, options, (&features, &plans), &turns)
                .map_err(|error| error.in_shard(path))
        })?;
        let rows =
            indexes.iter().map(|index| (index.columns.0.rows().iter().sum(), index.version.size, None));
        let files = FileSet::new((storage, traffic), paths.iter().zip(rows))?;
        let described: Vec<_> = indexes.iter().map(|index| index.described.clone()).collect();
        let has_labels = indexes.iter().any(|index| index.has_labels);
        let found = DescribedShards { shards: &files.shards, ends, described: &described, has_labels };
        let contents = Contents::new(found, &options.columns, options.paths)?;
        let rows_of = |shard: usize| indexes[shard].columns.0.rows().iter().copied();
        let row_groups = RowGroups::new(&files.shards, rows_of)?;
        let sizes = indexes.iter().map(|index| index.largest).enumerate();
        Ok(Self {
            payload: options.payload.clone(),
            max_record_bytes: options.max_record_bytes,
            path_policy: PathPolicy::new(options.allow_paths.clone()),
            versions: indexes.iter().map(|index| index.version).collect(),
            plans: indexes.iter().map(|index| index.columns.clone()).collect(),
            row_groups,
            blocks: Arc::default(),
            contents,
            largest: sizes.max_by_key(|&(_, bytes)| bytes).unwrap_or_default(),
            files,
        })
    }

    /// The row groups of all shards, in order.
    pub fn row_groups(&self) -> &[RowGroup] {
        self.row_groups.all()
    }

    /// The row groups of one shard.
    ///
    /// # Panics
    /// If there is no such shard.
    pub fn row_groups_of(&self, shard: usize) -> &[RowGroup] {
        self.row_groups.of_shard(shard)
    }

    /// The index in [`Self::row_groups`] of the row group that holds `row`.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn row_group_of(&self, row: u64) -> usize {
        self.row_groups.index_of(row)
    }

    pub fn contents(&self) -> &Contents {
        &self.contents
    }

    /// The same files with other options.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn reopened(&self, options: &SourceOptions) -> Result<Self> {
        let paths: Vec<_> = self.shards().iter().map(|shard| shard.path.to_path_buf()).collect();
        Self::open_in(self.files.storage.clone(), &paths, options)
    }

    pub fn reader(self: &Arc<Self>) -> ParquetReader {
        ParquetReader::new(Arc::clone(self))
    }
}

impl FooterIndex {
    fn read(
        storage: &Arc<dyn Storage>,
        path: &Arc<Path>,
        options: &SourceOptions,
        (features, plans): (&FeatureCache, &Plans),
        turns: &Mutex<()>,
    ) -> Result<Self> {
        let mut file = StoredFile::open(storage, path)?;
        let footer = footer::read(&mut file, turns)?;
        let (columns, plan) = plan::choose(&footer.metadata, options, features)?;
        let places = ChunkPlaces::new(&footer.metadata, &plan.leaves)?;
        Ok(Self {
            version: file.version(),
            has_labels: columns.label.is_some(),
            described: columns.described(),
            largest: (0..places.rows().len()).map(|group| places.bytes(group)).max().unwrap_or(0),
            columns: (Arc::new(places), plans.share(plan)),
        })
    }
}

impl OpenFiles for ParquetSource {
    fn file_set(&self) -> &FileSet {
        &self.files
    }
}

impl DocumentFiles for ParquetSource {
    fn group_rows(&self, shard: usize) -> Box<dyn Iterator<Item = u64> + '_> {
        Box::new(self.row_groups_of(shard).iter().map(|group| group.n_rows))
    }

    fn document_reader(self: Arc<Self>) -> Box<dyn DynReader> {
        Box::new(self.reader())
    }
}

/// Opens files whose rows are recordings.
///
/// # Errors
/// As [`ParquetSource::open`].
pub(crate) fn open_rows(
    storage: Arc<dyn Storage>,
    files: &[PathBuf],
    ends: &[usize],
    options: &SourceOptions,
) -> Result<Arc<dyn RowFiles>> {
    Ok(Arc::new(ParquetSource::open_groups(storage, files, ends, options)?))
}

impl RowFiles for ParquetSource {
    fn contents(&self) -> &Contents {
        self.contents()
    }

    /// A path costs its page.
    fn has_cheap_paths(&self) -> bool {
        false
    }

    fn row_reader(self: Arc<Self>) -> Box<dyn ReadRows> {
        Box::new(self.reader())
    }

    /// The pages of the others would be decoded as well.
    fn with_only_column(&self, name: &str) -> Result<Option<Arc<dyn RowFiles>>> {
        Ok(Some(Arc::new(self.reopened(&SourceOptions::columns(vec![name.to_owned()]))?)))
    }

    /// False: reading one row costs the whole pages that hold it.
    fn random_access(&self) -> bool {
        false
    }

    fn check_scattered(&self) -> Result<()> {
        let (shard, bytes) = self.largest;
        if bytes <= SCATTERED_GROUP_BYTES {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Config,
            format!(
                "{} has row groups of up to {} MiB, and in this order each row may cost a whole row group (at most {} MiB \
                 are allowed); use order=\"window\", or write the shards with smaller row groups",
                self.shards()[shard].path.display(),
                bytes >> 20,
                SCATTERED_GROUP_BYTES >> 20
            ),
        ))
    }
}

impl_source!(ParquetSource, ParquetReader);
