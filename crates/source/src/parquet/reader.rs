//! Reads rows: finds the row group, and decodes only the needed part of it.
//!
//! Rows that are read in order are decoded together, a batch at a time, and returned as slices of the decoded
//! pages. The reader holds only the current batch; earlier ones are held by their remaining slices. A row
//! that is read alone costs the pages that hold it, and the current batch stays in place. Such a row is
//! copied, so that it keeps no other memory alive. Records are also copied if their page is counted by no
//! permit and much larger than the batch's records in it.

use std::{
    ops::Range,
    sync::{Arc, Mutex},
};

use bytes::Bytes;

use super::{
    ParquetSource,
    group::{DecoderInput, GroupDecoder, OpenFile},
    pages::RecentPages,
    values::GroupValues,
};
use crate::{
    Error, ErrorKind, RawRecord, ReadRequest, Result, StoredPayload,
    columns::{ExtraColumn, IdFields, PayloadColumn},
    contract::{MemoryLimiter, Permit, ReadRecords},
    fallible_alloc,
    fields::{Row, Value},
    ids,
    memory_permits::{MemoryPermits, covered},
    nested::most_json,
    open_files::OpenFiles,
    path_policy,
    record_rules::check_record_bytes,
    row_files::ReadRows,
    storage::StoredFile,
};

/// The most batches that a decoder decodes to get to a requested row; beyond, a new decoder skips to it.
const READ_ON: u64 = 4;

/// The most files that stay open.
const OPEN_FILES: usize = 8;

/// Reads rows of a [`ParquetSource`]; one per thread.
pub struct ParquetReader {
    source: Arc<ParquetSource>,
    /// The last used is first.
    files: Vec<(usize, OpenFile)>,
    current: Option<OpenGroup>,
    permits: MemoryPermits,
    /// The permit of a row that is read alone.
    permit: Option<Permit>,
}

/// A row group that is read in order.
struct OpenGroup {
    /// Its place in [`ParquetSource::row_groups`].
    group: usize,
    /// Decodes from row `next` of the row group on; None after a failure, or at the end.
    decoder: Option<GroupDecoder>,
    /// Whether the decoder decodes one row at a time, as within `singles`.
    is_single: bool,
    next: u64,
    /// The batch decoded last, and its first row.
    batch: Option<(u64, GroupValues)>,
    /// Rows whose batch exceeds the limit; they are decoded one at a time.
    singles: Range<u64>,
    /// Rows that could not be decoded together.
    torn: Range<u64>,
    /// The pages of the last decoder.
    recent: RecentPages,
}

impl std::fmt::Debug for ParquetReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ParquetReader").field("open_files", &self.files.len()).finish_non_exhaustive()
    }
}

impl ParquetReader {
    pub(super) fn new(source: Arc<ParquetSource>) -> Self {
        Self { source, files: Vec::new(), current: None, permits: MemoryPermits::default(), permit: None }
    }

    fn read_ids(&mut self, shard: usize, row: u64, run: u64) -> Result<RawRecord> {
        let found = self.with_values(shard, row, run, |values, at| values.numbers(0, "id", at));
        // The pages are dropped, unless the row was one of many.
        self.permit = None;
        let (bytes, id_type) =
            found?.ok_or_else(|| Error::new(ErrorKind::Unreadable, "the list of ids is null"))?;
        if bytes.is_empty() {
            return Err(Error::new(ErrorKind::Empty, "the list of ids is empty"));
        }
        check_record_bytes(bytes.len() as u64, self.source.max_record_bytes)?;
        // A row that was requested alone would keep its whole batch alive.
        let bytes = if run > 1 { bytes } else { fallible_alloc::copy(&bytes)?.into() };
        Ok(ids::record(bytes, id_type))
    }

    /// A row of ids with labels or weights; they are copied together.
    fn read_id_fields(&mut self, fields: &IdFields, shard: usize, row: u64, run: u64) -> Result<RawRecord> {
        let found = self.with_values(shard, row, run, |values, at| {
            let mut column = 0;
            let mut next = |what: &str, is_there: bool| {
                if !is_there {
                    return Ok(None);
                }
                let numbers = values.numbers(column, what, at)?;
                column += 1;
                let null = || Error::new(ErrorKind::Unreadable, format!("the list of {what}s is null"));
                numbers.ok_or_else(null).map(Some)
            };
            let ids = next("id", true)?;
            Ok((ids, next("label", fields.labels.is_some())?, next("weight", fields.weights.is_some())?))
        });
        self.permit = None;
        let (ids, labels, weights) = found?;
        let ids = ids.filter(|(bytes, _)| !bytes.is_empty());
        let ids = ids.ok_or_else(|| Error::new(ErrorKind::Empty, "the list of ids is empty"))?;
        let sizes = [Some(&ids), labels.as_ref(), weights.as_ref()];
        let n_bytes: usize = sizes.iter().flatten().map(|(bytes, _)| bytes.len()).sum();
        check_record_bytes(n_bytes as u64, self.source.max_record_bytes)?;
        ids::record_with(ids, labels, weights)
    }

    fn read_row(&mut self, shard: usize, row: u64, run: u64) -> Result<RawRecord> {
        match &self.source.payload {
            PayloadColumn::Ids(_, fields) if fields.is_empty() => return self.read_ids(shard, row, run),
            PayloadColumn::Ids(_, fields) => {
                let fields = fields.clone();
                return self.read_id_fields(&fields, shard, row, run);
            }
            _ => {}
        }
        let [has_label, has_path] = [ExtraColumn::Label, ExtraColumn::Path]
            .map(|value| self.source.contents.extra_columns.contains(&value));
        let (permits, most) = (self.permits.clone(), self.source.max_record_bytes);
        let values = self.with_values(shard, row, run, |values, at| {
            let copied = values.copied(at)?.map(|found| {
                check_record_bytes(found.n_bytes(), most)?;
                let permit = permits.admit(found.n_bytes())?;
                Ok::<_, Error>(covered(found.recording()?, permit))
            });
            let copied = match values.messages(at, most_json(most))? {
                None => copied.transpose()?,
                messages => messages,
            };
            let is_copy = copied.is_some();
            let bytes = if is_copy { copied } else { values.bytes(at)? };
            let path = if bytes.is_none() || has_path { values.path(at)? } else { None };
            let label = has_label.then(|| values.label(at)).transpose()?;
            let mut others = values.others(at)?;
            others.extend(values.beside(at, most_json(most))?);
            Ok((label, bytes, path, others, is_copy, values.is_granted(at), values.is_lavish(at)))
        });
        // The pages are dropped, unless the row was one of many.
        let permit = self.permit.take();
        let (label, bytes, path, others, is_copy, is_granted, is_lavish) = values?;
        let document = self.source.payload.document();
        let max_record_bytes = self.source.max_record_bytes;
        if let Some(bytes) = &bytes {
            check_record_bytes(bytes.len() as u64, max_record_bytes)?;
        }
        let path = text(path);
        let mut values: Row = label.map(Value::Int).into_iter().collect();
        if has_path {
            values.push(ExtraColumn::path(path.clone())?);
        }
        values.extend(others);
        // The path of a row with bytes is not opened.
        let path = if bytes.is_some() { None } else { path? };
        let bytes = match (bytes, path) {
            (Some(bytes), _) if is_copy => bytes,
            (Some(bytes), _) if run > 1 && !is_lavish => {
                if is_granted {
                    self.permits.mark_counted();
                }
                bytes
            }
            // A row that was requested alone would keep its whole page alive, and a few rows a large one.
            (Some(bytes), _) => {
                // A page that the reader keeps has a permit of its own.
                let permit = match permit {
                    None => self.permits.admit(bytes.len() as u64)?,
                    permit => permit,
                };
                let copy = fallible_alloc::copy(&bytes)?;
                drop(bytes);
                if let Some(permit) = &permit {
                    permit.shrink(copy.len() as u64);
                }
                covered(copy.into(), permit)
            }
            (None, _) if document.is_some() => {
                let message = format!("the {} is null", document.unwrap_or_default());
                return Err(Error::new(ErrorKind::Null, message));
            }
            (None, None) => {
                return Err(Error::new(ErrorKind::Null, "the row has neither bytes nor a path"));
            }
            (None, Some(name)) => {
                let ParquetSource { files, blocks, path_policy, .. } = &*self.source;
                path_policy.read(
                    &files.storage,
                    blocks,
                    &files.shards[shard].path,
                    &name,
                    max_record_bytes,
                    &self.permits,
                )?
            }
        };
        if bytes.is_empty() {
            let what = document.map(|what| format!("the {what} is empty"));
            let what = what.unwrap_or_else(|| "the recording has no bytes".to_owned());
            return Err(Error::new(ErrorKind::Empty, what));
        }
        if let Some(what) = document
            && let Err(error) = std::str::from_utf8(&bytes)
        {
            return Err(Error::new(ErrorKind::Corrupt, format!("the {what} is not UTF-8")).because(error));
        }
        Ok(RawRecord::new(bytes, values))
    }

    /// Decodes the batch that holds `row`, or the row alone, and calls `take` with the values and the row's
    /// index in them.
    fn with_values<T>(
        &mut self,
        shard: usize,
        row: u64,
        run: u64,
        take: impl FnOnce(&GroupValues, usize) -> Result<T>,
    ) -> Result<T> {
        let source = Arc::clone(&self.source);
        let at = source.row_group_of(row);
        let group = &source.row_groups()[at];
        let row = row - group.first_row;
        if let Some((first, batch)) = self
            .current
            .as_ref()
            .filter(|current| current.group == at)
            .and_then(|current| current.batch.as_ref())
            && let Some(row) = row.checked_sub(*first)
            && row < batch.n_rows as u64
        {
            return take(batch, row as usize);
        }
        self.open_file(shard)?;
        let Some((_, open)) = self.files.first() else {
            return Err(Error::new(ErrorKind::Io, "no file is open"));
        };
        if run <= 1 {
            // The row's page, compressed and decompressed, and the copy of the row. The footer gives no
            // smaller bound.
            let bytes = open.places.bytes(group.index).saturating_mul(2);
            self.permit = self.permits.admit(bytes)?;
            let torn = self.current.iter().find(|current| current.group == at && current.torn.contains(&row));
            let recent = &torn.map(|current| current.recent.clone()).unwrap_or_default();
            let (blocks, permits) = (&source.blocks, &self.permits);
            return take(
                &GroupDecoder::one(DecoderInput { open, blocks, permits, recent, group: group.index }, row)?,
                0,
            );
        }
        let current = match &mut self.current {
            Some(current) if current.group == at => current,
            // Memory held for the last row group can be reused at once.
            current => current.insert(OpenGroup {
                group: at,
                decoder: None,
                is_single: false,
                next: 0,
                batch: None,
                singles: 0..0,
                torn: 0..0,
                recent: RecentPages::default(),
            }),
        };
        let recent = &current.recent.clone();
        let input =
            DecoderInput { open, blocks: &source.blocks, permits: &self.permits, recent, group: group.index };
        match current.decode(input, row)? {
            Some((first, batch)) => take(batch, (row - first) as usize),
            None => take(&GroupDecoder::one(input, row)?, 0),
        }
    }

    /// Opens the file of a shard if it is not open, and moves it to the front of `files`.
    fn open_file(&mut self, shard: usize) -> Result<()> {
        if let Some(at) = self.files.iter().position(|(open, _)| *open == shard) {
            self.files[..=at].rotate_right(1);
            return Ok(());
        }
        let source = &self.source;
        let path = &source.files.shards[shard].path;
        let file = StoredFile::reopen(&source.files.storage, path, source.versions[shard])?;
        let (places, plan) = source.plans[shard].clone();
        self.files.truncate(OPEN_FILES - 1);
        self.files.insert(
            0,
            (
                shard,
                OpenFile {
                    file: Arc::new(Mutex::new(file)),
                    places,
                    plan,
                    max_record_bytes: source.max_record_bytes,
                },
            ),
        );
        Ok(())
    }
}

impl OpenGroup {
    /// The batch that holds `row`, with its first row; None if the row must be decoded alone.
    fn decode(&mut self, input: DecoderInput<'_>, row: u64) -> Result<Option<(u64, &GroupValues)>> {
        if self.torn.contains(&row) {
            return Ok(None);
        }
        self.batch = None;
        loop {
            if !self.reads_on_to(row) {
                self.decoder = None;
                self.next = row;
                self.is_single = self.singles.contains(&row);
                let new = if self.is_single { GroupDecoder::one_by_one } else { GroupDecoder::from };
                self.decoder = match new(input, row) {
                    Ok(decoder) => Some(decoder),
                    Err(error) if error.kind.is_record() => return Ok(self.tear(row..row + 1)),
                    Err(error) => return Err(error),
                };
            }
            let Some(decoder) = &mut self.decoder else { return Ok(None) };
            let rows = self.next..self.next + decoder.batch_rows();
            match decoder.next(input.open, input.group) {
                Ok(values) => {
                    self.next = rows.start + values.n_rows as u64;
                    if row < self.next {
                        let (first, values) = self.batch.insert((rows.start, values));
                        return Ok(Some((*first, values)));
                    }
                }
                Err(error) if error.kind == ErrorKind::TooLarge && decoder.batch_rows() > 1 => {
                    self.decoder = None;
                    self.singles = if rows.contains(&row) { rows } else { row..row + rows.end - rows.start };
                }
                Err(error) if error.kind.is_record() => {
                    // A failure in rows before `row` does not concern it.
                    return Ok(self.tear(if rows.contains(&row) { rows } else { row..row + 1 }));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether the decoder reaches `row` sooner than a new one, which would read the dictionary and all page
    /// headers before the row.
    fn reads_on_to(&self, row: u64) -> bool {
        let Some(decoder) = &self.decoder else { return false };
        let ahead = match self.singles.contains(&row) {
            is_single if is_single != self.is_single => 0,
            true => u64::MAX - self.next,
            false => decoder.batch_rows() * READ_ON,
        };
        (self.next..self.next + ahead).contains(&row)
    }

    /// Notes that `rows` cannot be decoded together.
    fn tear<T>(&mut self, rows: Range<u64>) -> Option<T> {
        (self.decoder, self.torn) = (None, rows);
        None
    }
}

/// A path as text; None for an empty one.
fn text(path: Option<Bytes>) -> Result<Option<String>> {
    path.map_or(Ok(None), |path| path_policy::name(&path))
}

impl ReadRows for ParquetReader {
    fn path(&mut self, row: u64) -> Result<Option<String>> {
        let (shard, local) = self.source.locate(row);
        let path = self.with_values(shard, row, 1, |values, at| values.path(at)).and_then(text);
        path.map_err(|error| error.in_shard(&self.source.files.shards[shard].path).at_row(local))
    }

    fn value(&mut self, row: u64, run: u64, number: usize) -> Result<Value> {
        let (shard, local) = self.source.locate(row);
        let values = self.with_values(shard, row, run, |values, at| values.others(at));
        let values =
            values.map_err(|error| error.in_shard(&self.source.files.shards[shard].path).at_row(local))?;
        Ok(values.into_iter().nth(number).unwrap_or(Value::Null))
    }
}

impl ReadRecords for ParquetReader {
    type Payload = StoredPayload;
    type Request<'a> = dyn ReadRequest + 'a;

    fn set_limiter(&mut self, limiter: Arc<dyn MemoryLimiter>) {
        self.permits = MemoryPermits::of(limiter);
    }

    /// Reads one row. `run` is the number of rows from this one on that will be requested next, in storage
    /// order. If it is above 1, the reader decodes a batch of about a MiB at once; 1 decodes only what this
    /// row needs.
    ///
    /// The bytes are a slice of a decoded page, or a copy.
    ///
    /// # Errors
    /// Of the record: [`ErrorKind::Unreadable`] for a null, or a path that cannot be opened or is not
    /// allowed, [`ErrorKind::Empty`], [`ErrorKind::Corrupt`] for text that is not UTF-8 or a page that cannot
    /// be decoded, [`ErrorKind::Truncated`], [`ErrorKind::TooLarge`], [`ErrorKind::Unsupported`] for an
    /// unknown codec or encoding. Of the run: [`ErrorKind::Io`] after retries or if the shard was replaced,
    /// [`ErrorKind::NotFound`] if it was removed, [`ErrorKind::Schema`] for a label beyond int64.
    ///
    /// # Panics
    /// If there is no such row.
    fn read(&mut self, row: u64, run: u64, _request: &dyn ReadRequest) -> Result<RawRecord> {
        let (shard, local) = self.source.locate(row);
        self.read_row(shard, row, run)
            .map_err(|error| error.in_shard(&self.source.files.shards[shard].path).at_row(local))
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, path::Path};

    use ::parquet::{
        arrow::ArrowWriter,
        basic::{Compression, Encoding},
        file::properties::{WriterProperties, WriterPropertiesBuilder},
    };
    use arrow_array::{ArrayRef, RecordBatch, StringArray};

    use super::{super::pages::unpacked, *};
    use crate::{SourceOptions, WholeRecord};

    fn write(path: &Path, properties: WriterPropertiesBuilder, texts: impl Iterator<Item = String>) {
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values(texts));
        let batch = RecordBatch::try_from_iter([("text", texts)]).unwrap();
        let properties = properties
            .set_compression(Compression::ZSTD(Default::default()))
            .set_dictionary_enabled(false)
            .set_data_page_size_limit(1 << 30)
            .build();
        let mut writer =
            ArrowWriter::try_new(File::create(path).unwrap(), batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
    }

    fn open(path: &Path) -> Arc<ParquetSource> {
        let paths = [path.to_owned()];
        Arc::new(ParquetSource::open(&paths, &SourceOptions::text("text")).unwrap())
    }

    /// Reads all rows in order, by a reader and as tables. Returns how often each decompressed the pages'
    /// `bytes`.
    fn read_all(path: &Path, bytes: u64, expected: impl Fn(u64) -> usize) -> [u64; 2] {
        let source = open(path);
        let mut reader = source.reader();
        let before = unpacked();
        for row in 0..source.n_rows() {
            let record = reader.read(row, source.n_rows() - row, &WholeRecord::ONCE).unwrap();
            assert_eq!(record.payload.bytes.len(), expected(row), "row {row}");
        }
        let read = unpacked() - before;
        {
            use arrow_array::cast::AsArray;
            let storage: Arc<dyn crate::Storage> = Arc::new(crate::storage::LocalFiles);
            let mut table = super::super::table::ParquetTable::open(&storage, path, 1 << 30).unwrap();
            let (mut row, before) = (0, unpacked());
            while let Some(batch) = table.next_batch().unwrap() {
                let texts = batch.column(0).as_string_view();
                let (mut used, pages) =
                    (0, texts.data_buffers().iter().map(|page| page.len()).sum::<usize>());
                for text in texts.iter().map(Option::unwrap) {
                    assert_eq!(text.len(), expected(row), "row {row}");
                    (row, used) = (row + 1, used + text.len());
                }
                assert!(pages <= (64 << 10).max(2 * used + 1), "{pages} bytes are kept for {used}");
            }
            assert_eq!(row, source.n_rows());
            return [read.div_ceil(bytes), (unpacked() - before).div_ceil(bytes)];
        }
        #[allow(unreachable_code, reason = "without the cache there are no tables")]
        [read.div_ceil(bytes), 0]
    }

    #[test]
    fn a_page_is_unpacked_once_for_all_its_rows() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        // 80 MiB in one page.
        write(&path, WriterProperties::builder(), (0..640).map(|_| "x".repeat(128 << 10)));
        let times = read_all(&path, 80 << 20, |_| 128 << 10);
        assert!(times.iter().all(|&times| times <= 2), "{times:?}");
        let record = open(&path).reader().read(0, 640, &WholeRecord::ONCE).unwrap();
        assert!(record.payload.bytes.is_unique(), "a record of 128 KiB holds a page of 80 MiB");
    }

    #[test]
    fn rows_that_exceed_a_batch_share_their_pages() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        // 36 000 rows of a byte, then pages of 40 MiB, each of 80 rows: by the average size a batch has 200
        // rows and more.
        let size = |row: u64| if row < 36_000 { 1 } else { 512 << 10 };
        let properties = WriterProperties::builder().set_write_batch_size(80);
        let properties = properties.set_data_page_row_count_limit(80);
        write(&path, properties, (0..36_400).map(|row| "y".repeat(size(row))));
        let times = read_all(&path, 200 << 20, size);
        assert!(times.iter().all(|&times| times <= 4), "{times:?}");
        // Each text repeats the one before as its prefix: 512 MiB in all.
        let properties = WriterProperties::builder();
        let properties = properties.set_column_encoding("text".into(), Encoding::DELTA_BYTE_ARRAY);
        write(&path, properties, (0..2048).map(|_| "z".repeat(256 << 10)));
        let times = read_all(&path, 256 << 10, |_| 256 << 10);
        assert!(times.iter().all(|&times| times <= 4), "{times:?}");
    }

    #[test]
    fn a_damaged_page_is_unpacked_once_for_all_its_rows() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values((0..400).map(|_| "x".repeat(16 << 10))));
        let batch = RecordBatch::try_from_iter([("text", texts)]).unwrap();
        let properties = WriterProperties::builder().set_dictionary_enabled(false);
        let properties = properties.set_data_page_size_limit(1 << 30).build();
        let mut writer =
            ArrowWriter::try_new(File::create(&path).unwrap(), batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        // Damages the length of a text in the first half; lengths are stored between texts.
        let mut bytes = std::fs::read(&path).unwrap();
        let at = 2 << 20;
        let at = at + bytes[at..].iter().position(|&byte| byte != b'x').unwrap();
        bytes[at..at + 4].fill(0xff);
        std::fs::write(&path, bytes).unwrap();
        let source = open(&path);
        let (mut reader, before) = (source.reader(), unpacked());
        let read: Vec<_> =
            (0..400).map(|row| reader.read(row, 400 - row, &WholeRecord::ONCE).is_ok()).collect();
        let good = read.iter().filter(|is_good| **is_good).count();
        assert!((100..200).contains(&good) && read[..good].iter().all(|&is_good| is_good), "{good} rows");
        assert!(unpacked() - before < 4 * 400 * (16 << 10), "{} bytes", unpacked() - before);
    }
}
