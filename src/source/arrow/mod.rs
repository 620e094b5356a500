//! Arrow IPC streams and files, as Hugging Face `datasets` writes them.
//!
//! In go paths and the names of columns, out come records by row number. Opening reads the headers of the messages and nothing
//! else; reading a row reads its bytes and nothing else, unless its batch is compressed.
//!
//! ```text
//! message ──▶ index ◀── walk          headers: what lies where
//!               │        schema       which columns
//! buffer ──▶ array ──▶ reader         values of a batch; rows, in blocks
//! ```
//!
//! Why not `arrow-ipc`'s readers: they load a batch whole (a gigabyte, where a batch holds 1000 recordings), allocate what a
//! header claims, and give up on a shard that is cut off. Its verified flatbuffers are used for all metadata, and its readers
//! are the oracle in the tests.
//!
//! Invariant: nothing is allocated by a number in a header unless the file's bytes back it, and everything that a shard is found
//! to lack is an error of the row or in [`Shard::damage`].

mod array;
mod buffer;
mod folder;
mod index;
mod message;
mod reader;
mod schema;
mod walk;

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

pub use reader::ArrowReader;

use self::{index::Index, schema::FeatureCache};
use super::{
    block::BlockPool,
    storage::{LocalFiles, Rooted, Storage, StoredFile},
};
use crate::{
    Error, ErrorKind, Result,
    record::{Excerpt, RawRecord, ReadRecords, Source},
    seed::mix,
};

/// Which columns to read, and how to open.
#[derive(Debug, Clone)]
pub struct ArrowOptions {
    /// The column of recordings; None for `audio` or the only Audio feature.
    pub audio_column: Option<String>,
    /// The column of labels; None for `label`, `labels` or the only ClassLabel feature; empty for no labels.
    pub label_column: Option<String>,
    /// How many threads read headers.
    pub threads: usize,
}

impl Default for ArrowOptions {
    fn default() -> Self {
        Self { audio_column: None, label_column: None, threads: 8 }
    }
}

/// One file of the dataset.
#[derive(Debug, Clone)]
pub struct Shard {
    /// The path as given.
    pub path: Arc<Path>,
    /// The number of its first row over all shards.
    pub first_row: u64,
    /// How many rows its headers promise.
    pub n_rows: u64,
    /// Why the shard ends before its end, if it does. Rows before still count.
    pub damage: Option<Error>,
}

/// An open dataset of Arrow shards; immutable and shared.
#[derive(Debug)]
pub struct ArrowSource {
    storage: Arc<dyn Storage>,
    shards: Vec<Shard>,
    indexes: Vec<Index>,
    blocks: Arc<BlockPool>,
    n_rows: u64,
    /// How many shards the groups up to each one have.
    groups: Vec<usize>,
    class_names: Option<Arc<Vec<String>>>,
}

/// Larger compressed batches may not be read for the sake of one row, bytes.
const SCATTERED_BATCH_BYTES: u64 = 16 << 20;

impl ArrowSource {
    /// Opens local files: reads schema and message headers of all, on several threads, and nothing else.
    ///
    /// A folder that `datasets` wrote with `save_to_disk` stands for its shards. `stop` is looked at between reads. Relative paths,
    /// those in rows too, keep the meaning that they have now if the process changes its current folder.
    ///
    /// # Errors
    /// The first in the order of the files: [`ErrorKind::NotFound`], [`ErrorKind::Io`], [`ErrorKind::Format`] for a file that is
    /// not Arrow, [`ErrorKind::Schema`] for columns that do not fit or class names that differ between shards,
    /// [`ErrorKind::Config`] for no files, [`ErrorKind::Closed`] once `stop` is set. A damaged shard is no error.
    pub fn open(paths: &[PathBuf], options: &ArrowOptions, stop: &AtomicBool) -> Result<Self> {
        Self::open_groups(&[paths], options, stop)
    }

    /// The same for several groups of files, one behind the other; [`Self::group_starts`] tells them apart.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_groups(
        groups: &[impl AsRef<[PathBuf]>],
        options: &ArrowOptions,
        stop: &AtomicBool,
    ) -> Result<Self> {
        let storage: Arc<dyn Storage> = Arc::new(Rooted::here(LocalFiles));
        let (mut shards, mut ends) = (Vec::new(), Vec::new());
        for group in groups {
            shards.extend(folder::expand(&storage, group.as_ref(), stop)?);
            ends.push(shards.len());
        }
        Ok(Self { groups: ends, ..Self::open_in(storage, &shards, options, stop)? })
    }

    /// The same for files of any storage.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_in(
        storage: Arc<dyn Storage>,
        paths: &[PathBuf],
        options: &ArrowOptions,
        stop: &AtomicBool,
    ) -> Result<Self> {
        if paths.is_empty() {
            return Err(Error::new(
                ErrorKind::Config,
                "there are no files to read; name at least one Arrow shard",
            ));
        }
        let paths: Vec<Arc<Path>> = paths.iter().map(|path| Arc::from(path.as_path())).collect();
        let indexes = index_all(&storage, &paths, options, stop)?;
        let mut n_rows = 0u64;
        let mut shards = Vec::with_capacity(indexes.len());
        for (path, index) in paths.iter().zip(&indexes) {
            if let Some(error) = &index.damage {
                log::warn!("{error} ({} rows are read)", index.n_rows);
            }
            let (path, damage) = (Arc::clone(path), index.damage.clone());
            shards.push(Shard { path, first_row: n_rows, n_rows: index.n_rows, damage });
            n_rows =
                n_rows.checked_add(index.n_rows).filter(|&n| i64::try_from(n).is_ok()).ok_or_else(|| {
                    Error::new(ErrorKind::Format, "the shards claim more rows than can be counted")
                })?;
        }
        let class_names = common_class_names(&shards, &indexes)?;
        let groups = vec![shards.len()];
        Ok(Self { storage, shards, indexes, blocks: Arc::default(), n_rows, groups, class_names })
    }

    /// The number of rows over all shards.
    pub fn n_rows(&self) -> u64 {
        self.n_rows
    }

    /// The first row of each group of files, and the number of all rows.
    pub fn group_starts(&self) -> Vec<u64> {
        let start = |&shard: &usize| self.shards.get(shard).map_or(self.n_rows, |shard| shard.first_row);
        std::iter::once(0).chain(self.groups.iter().map(start)).collect()
    }

    /// The group of files that each row is of.
    pub fn group_of(&self, rows: &[i64]) -> Vec<i64> {
        let starts = self.group_starts();
        rows.iter().map(|&row| starts.partition_point(|&start| start <= row as u64) as i64 - 1).collect()
    }

    /// The shards in the order given.
    pub fn shards(&self) -> &[Shard] {
        &self.shards
    }

    /// The names of the classes, if the schema's metadata has them.
    pub fn class_names(&self) -> Option<&[String]> {
        self.class_names.as_deref().map(Vec::as_slice)
    }

    /// Whether any shard has a label column. Rows of shards without are [`NO_LABEL`](crate::record::NO_LABEL).
    pub fn has_labels(&self) -> bool {
        self.indexes.iter().filter_map(|index| index.columns.as_ref()).any(|columns| columns.label.is_some())
    }

    /// Whether a row can be read alone. False if a body is compressed: one row then costs its whole batch.
    pub fn random_access(&self) -> bool {
        self.indexes.iter().flat_map(|index| &index.batches).all(|batch| batch.codec.is_none())
    }

    /// A number that two sources share only if their shards have the same rows and sizes, in the same order; paths and times don't
    /// count, since a dataset may be copied to another place.
    pub fn fingerprint(&self) -> u64 {
        let sizes = self.indexes.iter().flat_map(|index| [index.n_rows, index.version.size]);
        sizes.fold(mix(self.indexes.len() as u64), |state, word| mix(state ^ mix(word)))
    }

    /// The largest record batch with a compressed body: its shard and its bytes in the columns that are read.
    fn largest_compressed(&self) -> Option<(&Shard, u64)> {
        let sizes = self.shards.iter().zip(&self.indexes).flat_map(|(shard, index)| {
            let compressed = index.batches.iter().filter(|batch| batch.codec.is_some());
            compressed.map(move |batch| {
                (shard, batch.arrays.iter().flat_map(|array| &array.buffers).map(|buffer| buffer.len).sum())
            })
        });
        sizes.max_by_key(|&(_, bytes)| bytes)
    }

    /// The shard that holds `row`, and the row's number there.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn locate(&self, row: u64) -> (usize, u64) {
        assert!(row < self.n_rows, "row {row} of {}", self.n_rows);
        // Empty shards start where the next one does: the last that starts at or before the row holds it.
        let shard = self.shards.partition_point(|shard| shard.first_row <= row) - 1;
        (shard, row - self.shards[shard].first_row)
    }

    /// A reader, for one thread.
    pub fn reader(self: &Arc<Self>) -> ArrowReader {
        ArrowReader::new(Arc::clone(self))
    }
}

impl Source for ArrowSource {
    type Reader = ArrowReader;

    fn shard_rows(&self) -> Vec<u64> {
        self.shards.iter().map(|shard| shard.n_rows).collect()
    }

    fn locate(&self, row: u64) -> (Arc<Path>, u64) {
        let (shard, row) = self.locate(row);
        (self.shards[shard].path.clone(), row)
    }

    fn random_access(&self) -> bool {
        self.random_access()
    }

    fn check_scattered(&self) -> Result<()> {
        match self.largest_compressed() {
            Some((shard, bytes)) if bytes > SCATTERED_BATCH_BYTES => Err(Error::new(
                ErrorKind::Config,
                format!(
                    "{} has compressed record batches of up to {} MiB, and each row would cost a whole one in this order (at most \
                     {} MiB are allowed); use order=\"window\", or write the shards without compression or in smaller batches",
                    shard.path.display(),
                    bytes >> 20,
                    SCATTERED_BATCH_BYTES >> 20
                ),
            )),
            _ => Ok(()),
        }
    }

    fn reader(self: &Arc<Self>) -> ArrowReader {
        self.reader()
    }
}

impl ReadRecords for ArrowReader {
    fn read(&mut self, row: u64, run: u64, excerpt: Excerpt<'_>) -> Result<RawRecord> {
        self.read_excerpt(row, run, excerpt)
    }
}

/// Indexes all shards on `options.threads` threads.
fn index_all(
    storage: &Arc<dyn Storage>,
    paths: &[Arc<Path>],
    options: &ArrowOptions,
    stop: &AtomicBool,
) -> Result<Vec<Index>> {
    let results: Vec<OnceLock<Result<Index>>> = paths.iter().map(|_| OnceLock::new()).collect();
    let next = AtomicUsize::new(0);
    let features = FeatureCache::default();
    let failed = AtomicBool::new(false);
    let work = || {
        while !failed.load(Ordering::Relaxed) {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let (Some(path), Some(result)) = (paths.get(at), results.get(at)) else { break };
            let index = StoredFile::open(storage, path)
                .and_then(|mut file| Index::build(&mut file, options, &features, stop));
            if index.is_err() {
                failed.store(true, Ordering::Relaxed);
            }
            // Each place is filled once: `next` gives it to one thread.
            let _ = result.set(index);
        }
    };
    thread::scope(|scope| {
        for n in 1..options.threads.min(paths.len()) {
            let thread = thread::Builder::new().name(format!("forebay-index-{n}"));
            // With fewer threads than wished the work is done as well.
            if let Err(error) = thread.spawn_scoped(scope, work) {
                log::warn!("cannot start a thread to read headers: {error}");
                break;
            }
        }
        work();
    });
    // Shards are taken in order, so those left out come after the one that failed.
    results.into_iter().filter_map(OnceLock::into_inner).collect()
}

/// The class names that all shards with class names share.
fn common_class_names(shards: &[Shard], indexes: &[Index]) -> Result<Option<Arc<Vec<String>>>> {
    let mut common: Option<(&Shard, &Arc<Vec<String>>)> = None;
    for (shard, index) in shards.iter().zip(indexes) {
        let Some(names) = index.columns.as_ref().and_then(|columns| columns.class_names.as_ref()) else {
            continue;
        };
        match common {
            None => common = Some((shard, names)),
            // Names of one parse are one allocation, and then equal at a glance.
            Some((first, known)) if !Arc::ptr_eq(known, names) && known != names => {
                let (at, a, b) = first_difference(known, names);
                let message = format!(
                    "the class names of {} and {} differ: class {at} is {a} in the one and {b} in the other; open shards of \
                     one labelling together",
                    first.path.display(),
                    shard.path.display(),
                );
                return Err(Error::new(ErrorKind::Schema, message));
            }
            Some(_) => {}
        }
    }
    Ok(common.map(|(_, names)| Arc::clone(names)))
}

fn first_difference(a: &[String], b: &[String]) -> (usize, String, String) {
    let shown =
        |names: &[String], at: usize| names.get(at).map_or("missing".into(), |name| format!("{name:?}"));
    let at = (0..a.len().max(b.len())).find(|&at| a.get(at) != b.get(at)).unwrap_or(0);
    (at, shown(a, at), shown(b, at))
}
