//! A source of recordings: in Arrow or Parquet shards, or in files of their own.
//!
//! Files may be given in groups, the sources of a mixture.

use std::{
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::open_recording::{OpenRecording, info_of_row};
use super::{
    arrow,
    contents::Contents,
    entries::{Entry, ShardsOrTables, parts_of, shards_or_tables},
    file_format::FileFormat,
    files::FilesSource,
    order_of_rows::RowOrder,
    parquet,
    progress_log::ProgressLog,
    row_files::{ReadRows, RowFiles},
    shard::Shard,
    storage::Storage,
};
use crate::{
    Error, ErrorKind, RawRecord, ReadCounts, ReadRequest, Result, RowExtent, SourceOptions, StoredPayload,
    Traffic, cancel,
    contract::{MemoryLimiter, ReadRecords, RowStore, Source, StorageLabels},
    error::Place,
    fields::{Row, Value},
    parallel, scattered_readers,
};
use forebay_audio::{AudioDecoder, Info};

/// An open dataset of recordings; immutable and shared.
#[derive(Debug)]
pub struct Recordings {
    files: Arc<dyn RowFiles>,
    /// The same files, if they are tables, folders or archives of recordings.
    tables: Option<Arc<FilesSource>>,
    /// For each group, the number of shards up to its end.
    groups: Vec<usize>,
    /// The names of the other columns.
    column_names: Vec<String>,
    /// The order of the rows, if it is not that of the files.
    order: Option<Arc<RowOrder>>,
    /// As in [`SourceOptions`].
    track: Option<u32>,
}

/// Opens files of a format: their paths, the number of files up to the end of each group, and the options.
type OpenRows = fn(Arc<dyn Storage>, &[PathBuf], &[usize], &SourceOptions) -> Result<Arc<dyn RowFiles>>;

/// The formats of shards of recordings. A file has the first if neither its name nor its first bytes say one.
const FORMATS: &[(FileFormat, OpenRows)] =
    &[(FileFormat::Arrow, arrow::open_rows), (FileFormat::Parquet, parquet::open_rows)];

/// How the shards of a loader are opened, by the endings of their names. Those whose names say nothing are
/// what the first of them begins as.
///
/// # Errors
/// [`ErrorKind::Config`] for several formats; as [`FileFormat::detect`], of the first file whose name says
/// nothing.
fn opener_of(storage: &Arc<dyn Storage>, shards: &[PathBuf]) -> Result<OpenRows> {
    let unnamed = shards.iter().find(|path| FileFormat::of_name(path).is_none());
    let detected = unnamed.map(|path| FileFormat::detect(storage, &Arc::from(path.as_path()))).transpose()?;
    let of = |path: &Path| {
        let named = FileFormat::of_name(path).or(detected.flatten());
        *FORMATS.iter().find(|(format, _)| Some(*format) == named).unwrap_or(&FORMATS[0])
    };
    let (format, open) = shards.first().map_or(FORMATS[0], |first| of(first));
    match shards.iter().find(|path| of(path).0 != format) {
        None => Ok(open),
        Some(other) => Err(Error::new(
            ErrorKind::Config,
            format!(
                "{} is {} and {} is {}; the shards of a loader are all of one format",
                shards[0].display(),
                format.name(),
                other.display(),
                of(other).0.name()
            ),
        )),
    }
}

/// How the rows of a source are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowStorage {
    /// How many there are, or windows of them.
    pub rows: u64,
    /// Whether they are recordings in files of their own, or members of archives, instead of rows of shards.
    pub in_files: bool,
    /// Whether some of these files are named by URL.
    pub by_url: bool,
    /// Whether a row can be read without others.
    pub alone: bool,
}

impl Recordings {
    /// Opens local files in groups, one after the other; [`Self::group_starts`] returns where each begins.
    ///
    /// Folders and patterns are [expanded](crate::paths). The stop flag is checked between reads. Relative
    /// paths, those in rows too, are resolved against the folder that is current now.
    ///
    /// # Errors
    /// Those of [`ArrowSource::open`](super::ArrowSource::open) or of other formats; [`ErrorKind::Config`] if
    /// both kinds of files are given, or Parquet is to be mapped.
    pub fn open<T: Clone + Into<Entry>>(groups: &[impl AsRef<[T]>], options: &SourceOptions) -> Result<Self> {
        Self::open_in(options.storage(), groups, options)
    }

    /// The same for files of any storage.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_in<T: Clone + Into<Entry>>(
        storage: Arc<dyn Storage>,
        groups: &[impl AsRef<[T]>],
        options: &SourceOptions,
    ) -> Result<Self> {
        let (mut parts, mut ends) = (Vec::new(), Vec::new());
        for group in groups {
            let entries: Vec<Entry> = group.as_ref().iter().cloned().map(Into::into).collect();
            parts_of(entries, &storage, &mut parts)?;
            ends.push(parts.len());
        }
        let (files, tables): (Arc<dyn RowFiles>, _) = match shards_or_tables(parts)? {
            ShardsOrTables::Shards(shards) => {
                let open = opener_of(&storage, &shards)?;
                (open(storage, &shards, &ends, options)?, None)
            }
            ShardsOrTables::Tables(plans) => {
                let tables = Arc::new(FilesSource::open(storage, &plans, &ends, options)?);
                (tables.clone(), Some(tables))
            }
        };
        let column_names = options.columns.clone();
        Ok(Self { files, tables, groups: ends, column_names, order: None, track: options.track })
    }

    /// The same with rows in another order: `orders` has the rows of a group by their numbers within the
    /// group, `None`: as they are in the files. A group with an order is one shard.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a row that a group does not have, and for files that are not Arrow, or
    /// cannot be read in that order.
    pub fn ordered(mut self, orders: &[Option<Arc<[u64]>>]) -> Result<Self> {
        if orders.iter().all(Option::is_none) {
            return Ok(self);
        }
        if !self.files.can_be_ordered() {
            let message = "an order of rows is one of Arrow files";
            return Err(Error::new(ErrorKind::Config, message));
        }
        let order = RowOrder::new(self.shards(), &self.groups, orders)?;
        if order.is_scattered() {
            self.check_scattered()?;
        }
        self.groups = order.groups.clone();
        self.order = Some(Arc::new(order));
        Ok(self)
    }

    /// The number of rows over all shards.
    pub fn n_rows(&self) -> u64 {
        self.shards().last().map_or(0, |shard| shard.first_row + shard.n_rows)
    }

    /// The shards in the order given.
    pub fn shards(&self) -> &[Shard] {
        if let Some(order) = &self.order {
            return &order.shards;
        }
        self.files.shards()
    }

    /// Whether any of its files was read by URL.
    pub fn is_remote(&self) -> bool {
        self.traffic().is_remote()
    }

    /// How `rows` of it are stored. Follows from names and contents of the files alone, not from what was
    /// read so far.
    pub fn stored(&self, rows: u64) -> RowStorage {
        let files = self.tables();
        RowStorage {
            rows,
            in_files: files.is_some(),
            by_url: files.is_some_and(|files| files.is_by_url()),
            alone: self.random_access(),
        }
    }

    /// The first row of each group of files, and the number of all rows.
    pub fn group_starts(&self) -> Vec<u64> {
        let start = |&shard: &usize| self.shards().get(shard).map_or(self.n_rows(), |shard| shard.first_row);
        std::iter::once(0).chain(self.groups.iter().map(start)).collect()
    }

    pub fn contents(&self) -> &Contents {
        self.files.contents()
    }

    /// What the readers of files did so far; `None` for shards.
    pub fn read_counts(&self) -> Option<ReadCounts> {
        self.tables().map(|files| files.read_counts())
    }

    /// Whether the recordings are in files of their own, or in archives of them, and not in shards.
    pub fn is_of_files(&self) -> bool {
        self.tables().is_some()
    }

    /// Tries to open the files that the first rows of tables name: of `rows`, ascending (`None`: all),
    /// without those in `exclude`. Does nothing for shards, folders, archives and URLs.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] or [`ErrorKind::Config`] if none of the first files of a table can be opened.
    pub fn try_first(&self, rows: Option<&[u64]>, exclude: &[u64]) -> Result<()> {
        self.tables().map_or(Ok(()), |files| files.try_first(rows, exclude))
    }

    /// The tables, if the recordings are in files of their own.
    pub fn tables(&self) -> Option<&Arc<FilesSource>> {
        self.tables.as_ref()
    }

    /// The folder of the indexes of recordings; `None` for shards, and if the user has no folder of caches.
    pub fn index_folder(&self) -> Option<&Path> {
        self.tables()?.index_folder()
    }

    /// Bytes of the rows of tables that are in memory; 0 for shards.
    pub fn table_bytes(&self) -> usize {
        self.tables().map_or(0, |files| files.bytes_held())
    }

    /// Reads one of the other columns, without recordings, and collects what `keep` takes of the values of
    /// all rows, or of the errors of bad ones, on several threads: a result for each shard.
    ///
    /// # Errors
    /// As [`ReadRecords::read`]; those of `keep`; [`ErrorKind::Closed`] once the work is stopped.
    pub fn collect<T: Default + Send + Sync>(
        &self,
        column: &str,
        keep: impl Fn(&mut T, Result<&Value>) -> Result<()> + Sync,
    ) -> Result<Vec<T>> {
        const THREADS: usize = 8;
        const POLLED: u64 = 1024;
        let number = self.column_names().iter().position(|name| name == column);
        let number =
            number.ok_or_else(|| Error::new(ErrorKind::Schema, format!("column {column:?} is not read")))?;
        self.contents().columns[number].check_flat(column)?;
        let (files, number) = match self.files.with_only_column(column)? {
            Some(files) => (files, 0),
            None => (self.files.clone(), number),
        };
        parallel::each("forebay-index", self.shards(), THREADS, |shard| {
            let mut reader = RecordingsReader::new(files.clone(), self.order.clone(), self.track);
            let mut kept = T::default();
            let end = shard.first_row + shard.n_rows;
            for row in shard.first_row..end {
                if row % POLLED == 0 {
                    cancel::check("opening")?;
                }
                let found = reader.value(row, end - row, number);
                // About the value of this row, and not about all so far.
                let placed = |error: Error| match error.kind {
                    ErrorKind::Schema => error.in_shard(&shard.path).at_row(row - shard.first_row),
                    _ => error,
                };
                match found {
                    Ok(found) => keep(&mut kept, Ok(&found)).map_err(placed)?,
                    Err(error) if error.kind.is_record() => keep(&mut kept, Err(error))?,
                    Err(error) => return Err(error),
                }
            }
            Ok(kept)
        })
    }

    /// What `of` makes of the length and rate of recordings, by opening each; it is given `None` for a bad
    /// record, and the place among `rows`, which are those wanted; `None`: all.
    ///
    /// # Errors
    /// As [`ReadRecords::read`], for errors that are not of one record; [`ErrorKind::Closed`] once the
    /// work is stopped.
    pub fn infos<T: Send + Sync>(
        &self,
        rows: Option<&[u64]>,
        of: impl Fn(usize, Option<RowInfo>) -> T + Sync,
    ) -> Result<Vec<T>> {
        self.each_row(rows, "", |reader, decoder, at, row, run| match reader.info(decoder, row, run) {
            Ok(info) => Ok(of(at, Some(info))),
            Err(error) if error.kind.is_record() => Ok(of(at, None)),
            Err(error) => Err(error),
        })
    }

    /// The seconds of the segment that a row is; `None` if it is none, or if they are not known.
    pub fn stated_seconds(&self, row: u64) -> Option<f64> {
        self.tables.as_ref()?.seconds(self.file_row(row))
    }

    /// The seconds of recordings, or of the segments that rows are: as their table says, else by opening
    /// each. NaN for a bad record. `rows` are those wanted; `None`: all.
    ///
    /// # Errors
    /// As [`Recordings::infos`].
    pub fn seconds(&self, rows: Option<&[u64]>) -> Result<Vec<f32>> {
        let advice = "; a table with a column duration makes this unnecessary";
        self.each_row(rows, advice, |reader, decoder, _, row, run| {
            if let Some(seconds) = self.stated_seconds(row) {
                return Ok(seconds as f32);
            }
            match reader.info(decoder, row, run) {
                Ok(RowInfo { info, .. }) => Ok(info.seconds() as f32),
                Err(error) if error.kind.is_record() => Ok(f32::NAN),
                Err(error) => Err(error),
            }
        })
    }

    /// What `of` makes of rows, some neighbours at a time on each of several threads; it is given a reader,
    /// the place among `rows`, the row, and how many rows from it on are read. What takes long is logged,
    /// with `advice`.
    fn each_row<T: Send + Sync>(
        &self,
        rows: Option<&[u64]>,
        advice: &'static str,
        of: impl Fn(&mut RecordingsReader, &mut AudioDecoder, usize, u64, u64) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        const THREADS: usize = 8;
        const TOGETHER: u64 = 256;
        let n = rows.map_or(self.n_rows(), |rows| rows.len() as u64);
        let pieces: Vec<_> = (0..n.div_ceil(TOGETHER)).map(|piece| piece * TOGETHER).collect();
        let start = || (self.reader(), AudioDecoder::new());
        let progress = ProgressLog::new(n, advice);
        let found =
            parallel::each_with("forebay-index", &pieces, THREADS, start, |(reader, decoder), &first| {
                let end = n.min(first + TOGETHER);
                // bounded: 256.
                let mut made = Vec::with_capacity((end - first) as usize);
                for at in first..end {
                    cancel::check("opening")?;
                    let row = rows.map_or(at, |rows| rows[at as usize]);
                    let run = if rows.is_none() { end - at } else { 1 };
                    made.push(of(reader, decoder, at as usize, row, run)?);
                }
                progress.add(end - first);
                Ok(made)
            })?;
        Ok(found.into_iter().flatten().collect())
    }

    /// The names of the other columns.
    pub fn column_names(&self) -> &[String] {
        &self.column_names
    }

    /// The first row of each shard, and the number of all rows.
    pub fn shard_starts(&self) -> Vec<u64> {
        self.shards().iter().map(|shard| shard.first_row).chain([self.n_rows()]).collect()
    }

    /// A hash of the shards' row counts and file sizes, in order. Paths and times are left out, since a
    /// dataset may be copied to another place.
    pub fn fingerprint(&self) -> u64 {
        let files = self.files.fingerprint();
        self.order.as_ref().map_or(files, |order| order.fingerprint(files))
    }

    /// The fingerprint as earlier versions wrote it in states, which still load.
    pub fn former_fingerprint(&self) -> u64 {
        match &self.order {
            None => self.files.former_fingerprint(),
            Some(_) => self.fingerprint(),
        }
    }

    pub fn reader(&self) -> RecordingsReader {
        RecordingsReader::new(self.files.clone(), self.order.clone(), self.track)
    }

    /// The paths of all rows, in order; a bad row has none.
    pub fn paths(&self) -> impl Iterator<Item = Result<Option<String>>> + '_ {
        let mut reader = self.reader();
        (0..self.n_rows()).map(move |row| match reader.path(row) {
            Err(error) if error.kind.is_record() => Ok(None),
            path => path,
        })
    }

    fn file_row(&self, row: u64) -> u64 {
        self.order.as_ref().map_or(row, |order| order.row(row))
    }

    /// What its files cost so far.
    pub fn traffic(&self) -> &Arc<Traffic> {
        self.files.traffic()
    }

    /// Whether reading a row's path costs little compared with its recording.
    pub fn has_cheap_paths(&self) -> bool {
        self.files.has_cheap_paths()
    }
}

/// Wants the length of a recording only.
struct LengthRequest;

impl ReadRequest for LengthRequest {
    fn takes_spans(&self) -> bool {
        true
    }

    fn span(&self, _: RowExtent, _: &Row) -> Option<Range<u64>> {
        Some(0..0)
    }
}

impl RowStore for Recordings {
    fn shard_rows(&self, _epoch: u64) -> Result<Vec<u64>> {
        Ok(self.shards().iter().map(|shard| shard.n_rows).collect())
    }

    fn place(&self, row: u64) -> Place {
        let row = self.file_row(row);
        self.files.place_of(row)
    }

    fn random_access(&self) -> bool {
        self.files.random_access()
    }

    fn check_scattered(&self) -> Result<()> {
        self.files.check_scattered()
    }

    fn block_rows(&self, row: u64, run: u64) -> u64 {
        let (row, run) = match &self.order {
            None => (row, run),
            Some(order) => (order.row(row), order.run(row, run)),
        };
        self.files.block_rows(row, run)
    }

    fn most_blocks(&self) -> usize {
        self.files.most_blocks()
    }

    fn bytes_in_use(&self) -> usize {
        self.files.held_bytes()
    }

    fn end_threads(&self) {
        self.files.file_set().storage.end_threads();
    }

    fn scattered_readers(&self, n_readers: usize) -> usize {
        scattered_readers(n_readers, self.traffic().is_remote())
    }

    fn storage_labels(&self) -> StorageLabels {
        self.traffic().labels()
    }
}

impl Source for Recordings {
    type Reader = RecordingsReader;

    fn reader(self: &Arc<Self>) -> RecordingsReader {
        Self::reader(self)
    }
}

/// A reader of recordings, for one thread.
#[derive(Debug)]
pub struct RecordingsReader {
    reader: Box<dyn ReadRows>,
    order: Option<Arc<RowOrder>>,
    track: Option<u32>,
}

/// What is known of a row before its samples are read.
#[derive(Debug)]
pub struct RowInfo {
    /// Of its recording, or of the segment that it is.
    pub info: Info,
    /// Its first sample in the recording.
    pub start: u64,
    pub values: Row,
}

impl RecordingsReader {
    fn new(files: Arc<dyn RowFiles>, order: Option<Arc<RowOrder>>, track: Option<u32>) -> Self {
        Self { reader: files.row_reader(), order, track }
    }

    /// Codec, rate, channels and length of a row's recording.
    ///
    /// # Errors
    /// As [`ReadRecords::read`] and [`AudioDecoder::open`].
    pub fn info(&mut self, decoder: &mut AudioDecoder, row: u64, run: u64) -> Result<RowInfo> {
        let record = self.read(row, run, &LengthRequest)?;
        let info = OpenRecording::open(decoder, &record.payload)?.info();
        let (info, samples) = info_of_row(info, record.payload.segment())?;
        Ok(RowInfo { info, start: samples.start, values: record.values })
    }

    /// The recording's own path field, if the row has one; for reports.
    ///
    /// # Errors
    /// As [`ReadRecords::read`].
    ///
    /// # Panics
    /// If there is no such row.
    pub fn path(&mut self, row: u64) -> Result<Option<String>> {
        let (row, _) = self.in_files(row, 1);
        self.reader.path(row)
    }

    /// The value of one of the other columns, without the recording.
    fn value(&mut self, row: u64, run: u64, number: usize) -> Result<Value> {
        let (row, run) = self.in_files(row, run);
        self.reader.value(row, run, number)
    }

    /// The row of the files, and how many of the `run` rows from it on follow each other there.
    fn in_files(&self, row: u64, run: u64) -> (u64, u64) {
        self.order.as_ref().map_or((row, run), |order| (order.row(row), order.run(row, run)))
    }
}

impl ReadRecords for RecordingsReader {
    type Payload = StoredPayload;
    type Request<'a> = dyn ReadRequest + 'a;

    fn set_limiter(&mut self, limiter: Arc<dyn MemoryLimiter>) {
        self.reader.set_memory_limiter(limiter);
    }

    fn hint_next(&mut self, end: u64, row: Option<u64>) {
        if self.order.is_none() {
            self.reader.hint_next_row(end, row);
        }
    }

    fn read(&mut self, row: u64, run: u64, request: &dyn ReadRequest) -> Result<RawRecord> {
        let (row, run) = self.in_files(row, run);
        let mut record = self.reader.read_row(row, run, request)?;
        record.payload.track = self.track;
        Ok(record)
    }
}
