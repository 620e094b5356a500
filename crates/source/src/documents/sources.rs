//! [`DocumentSources`]: the documents of one or several [`DocumentSource`]s as one, with consecutive rows,
//! shards and groups. Each source has its own format.

use std::{ops::Range, sync::Arc};

use super::{DocumentForm, DocumentSource};
use crate::{
    Error, ErrorKind, RawRecord, ReadRequest, Result, Shard, StoredPayload, Traffic,
    contract::{MemoryLimiter, ReadRecords, RowStore, Source, StorageLabels},
    error::Place,
    open_files::OpenFiles,
    row_files::DynReader,
    row_groups::{RowGroup, RowGroups},
    scattered_readers,
    seed::mix,
    shard::{MOST_ROWS, locate},
};

/// Sources of documents, one after the other; immutable and shared.
#[derive(Debug)]
pub struct DocumentSources {
    parts: Vec<Arc<DocumentSource>>,
    /// The first row of each source, and the number of all.
    starts: Vec<u64>,
    /// The first shard of each source.
    first_shards: Vec<usize>,
    shards: Vec<Shard>,
    groups: RowGroups,
}

impl DocumentSources {
    /// Joins open sources, at least one. They share the storage, so the first tells of the traffic of all.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for no sources, [`ErrorKind::Format`] for more rows than a loader can have.
    pub fn new(parts: Vec<DocumentSource>) -> Result<Self> {
        if parts.is_empty() {
            return Err(Error::new(ErrorKind::Config, "there are no sources; name at least one"));
        }
        let parts: Vec<_> = parts.into_iter().map(Arc::new).collect();
        let (mut shards, mut starts, mut first_shards) = (Vec::new(), vec![0], Vec::new());
        let mut end = 0;
        for part in &parts {
            first_shards.push(shards.len());
            let moved = |shard: &Shard| Shard { first_row: shard.first_row + end, ..shard.clone() };
            shards.extend(part.shards().iter().map(moved));
            end += part.n_rows();
            if end > MOST_ROWS {
                let message = format!("the sources have more than {MOST_ROWS} rows, the limit of a loader");
                return Err(Error::new(ErrorKind::Format, message));
            }
            starts.push(end);
        }
        let groups = RowGroups::new(&shards, |shard| {
            let part = first_shards.partition_point(|&first| first <= shard) - 1;
            parts[part].row_groups_of(shard - first_shards[part]).iter().map(|group| group.n_rows)
        })?;
        Ok(Self { parts, starts, first_shards, shards, groups })
    }

    /// The first row of each source, then the number of all rows.
    pub fn starts(&self) -> &[u64] {
        &self.starts
    }

    /// The first shard of each source.
    pub fn first_shards(&self) -> &[usize] {
        &self.first_shards
    }

    /// What the bytes of the records of each source are.
    pub fn forms(&self) -> impl Iterator<Item = &DocumentForm> {
        self.parts.iter().map(|part| part.form())
    }

    /// The number of rows over all shards.
    pub fn n_rows(&self) -> u64 {
        *self.starts.last().unwrap_or(&0)
    }

    /// The shards in the order given, source after source.
    pub fn shards(&self) -> &[Shard] {
        &self.shards
    }

    /// The groups of all shards, in order.
    pub fn row_groups(&self) -> &[RowGroup] {
        self.groups.all()
    }

    /// The groups of one shard.
    ///
    /// # Panics
    /// If there is no such shard.
    pub fn row_groups_of(&self, shard: usize) -> &[RowGroup] {
        self.groups.of_shard(shard)
    }

    /// The index in [`Self::row_groups`] of the group that holds `row`.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn row_group_of(&self, row: u64) -> usize {
        self.groups.index_of(row)
    }

    /// The shard that holds `row`, and the row's number there.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn locate(&self, row: u64) -> (usize, u64) {
        locate(&self.shards, row)
    }

    /// A hash of the shards' row counts and file sizes, in order; of one source, its own.
    pub fn fingerprint(&self) -> u64 {
        let mut each = self.parts.iter().map(|part| part.fingerprint());
        let first = each.next().unwrap_or_default();
        each.fold(first, |joined, part| mix(joined ^ mix(part)))
    }

    /// What its files cost so far.
    pub fn traffic(&self) -> &Arc<Traffic> {
        self.parts[0].traffic()
    }
}

impl RowStore for DocumentSources {
    fn shard_rows(&self, _epoch: u64) -> Result<Vec<u64>> {
        Ok(self.shards.iter().map(|shard| shard.n_rows).collect())
    }

    fn place(&self, row: u64) -> Place {
        let (shard, row) = self.locate(row);
        Place::in_shard(&self.shards[shard].path, row)
    }

    fn random_access(&self) -> bool {
        false
    }

    fn scattered_readers(&self, n_readers: usize) -> usize {
        scattered_readers(n_readers, self.traffic().is_remote())
    }

    fn storage_labels(&self) -> StorageLabels {
        self.traffic().labels()
    }

    fn end_threads(&self) {
        self.parts.iter().for_each(|part| part.end_threads());
    }

    fn bytes_in_use(&self) -> usize {
        self.parts.iter().map(|part| part.bytes_in_use()).sum()
    }
}

impl Source for DocumentSources {
    type Reader = DocumentsReader;

    fn reader(self: &Arc<Self>) -> DocumentsReader {
        DocumentsReader {
            source: self.clone(),
            readers: self.parts.iter().map(|_| None).collect(),
            limiter: None,
        }
    }
}

/// Reads documents of all sources, for one thread. It opens a source with the first record of it.
pub struct DocumentsReader {
    source: Arc<DocumentSources>,
    readers: Vec<Option<Box<dyn DynReader>>>,
    limiter: Option<Arc<dyn MemoryLimiter>>,
}

impl DocumentsReader {
    /// The reader of the source that has `row`, and the source's rows.
    fn of(&mut self, row: u64) -> (&mut Box<dyn DynReader>, Range<u64>) {
        let starts = &self.source.starts;
        let part = starts[1..starts.len() - 1].partition_point(|&start| start <= row);
        let reader = self.readers[part].get_or_insert_with(|| {
            let mut reader = self.source.parts[part].reader();
            if let Some(limiter) = &self.limiter {
                reader.set_limiter(limiter.clone());
            }
            reader
        });
        (reader, self.source.starts[part]..self.source.starts[part + 1])
    }
}

impl ReadRecords for DocumentsReader {
    type Payload = StoredPayload;
    type Request<'a> = dyn ReadRequest + 'a;

    fn set_limiter(&mut self, limiter: Arc<dyn MemoryLimiter>) {
        self.readers.iter_mut().flatten().for_each(|reader| reader.set_limiter(limiter.clone()));
        self.limiter = Some(limiter);
    }

    fn hint_next(&mut self, end: u64, row: Option<u64>) {
        let (reader, within) = self.of(end.saturating_sub(1));
        let first = within.start;
        reader.hint_next(end - first, row.filter(|row| within.contains(row)).map(|row| row - first));
    }

    fn read(&mut self, row: u64, run: u64, request: &dyn ReadRequest) -> Result<RawRecord> {
        let (reader, within) = self.of(row);
        reader.read(row - within.start, run.min(within.end - row), request)
    }
}
