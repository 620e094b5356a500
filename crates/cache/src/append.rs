//! The writer of one array: appends values, and makes them durable with each [`ArrayWriter::flush`].
//!
//! A chunk is encoded when it is full. A shard's file is written when the shard is full; the last, partial
//! one is written at each flush. A file is written under a temporary name and then replaces the shorter one
//! before it. So a named file is always complete, and the file that a reader has open does not change.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    chunk::{self, ChunkIndex},
    files::{self, replace, sync_folder},
    layout::ArrayLayout,
    ledger::local,
    stored::StoredArray,
};
use crate::{Error, Result, fallible_alloc};

#[derive(Debug)]
pub(crate) struct ArrayWriter {
    folder: PathBuf,
    layout: ArrayLayout,
    rows: u64,
    /// The shard that is being filled.
    shard: u64,
    chunks: ShardChunks,
    /// Whether the shard has rows that its file lacks.
    is_dirty: bool,
    /// Whether a file was renamed since the folder was synced.
    has_new_names: bool,
    /// The number of rows in `zarr.json`.
    told: Option<u64>,
    /// The first shard, kept if its first value is rewritten at each commit.
    head: Option<FirstShard>,
}

/// The chunks of a shard: the full ones encoded, the last one raw.
#[derive(Debug, Default, Clone)]
struct ShardChunks {
    encoded: Vec<u8>,
    ends: Vec<u64>,
    tail: Vec<u8>,
}

/// The first shard of the ends of documents, whose first value holds the number of documents.
#[derive(Debug)]
struct FirstShard {
    /// The values of the first chunk, once it is full.
    first: Vec<u8>,
    /// All of the first shard, once it is full.
    full: Option<ShardChunks>,
}

impl ArrayWriter {
    /// Begins an array in `folder`, or continues after its first `rows` rows and removes later ones.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Io`]; [`crate::ErrorKind::Corrupt`] if existing files cannot be read.
    pub(crate) fn open(folder: &Path, layout: ArrayLayout, rows: u64, has_head: bool) -> Result<Self> {
        let shard = rows / layout.shard_rows;
        let mut writer = Self {
            folder: folder.to_owned(),
            layout,
            rows,
            shard,
            chunks: ShardChunks::default(),
            is_dirty: false,
            has_new_names: true,
            told: None,
            head: has_head.then(|| FirstShard { first: Vec::new(), full: None }),
        };
        let names = folder.join("c");
        fs::create_dir_all(&names).map_err(|error| Error::io(&names, "make", error))?;
        if rows > 0 {
            let stored = StoredArray::open(&local(), folder)?;
            let first = shard * layout.shard_rows;
            if has_head && shard > 0 {
                let mut full = writer.read_back(&stored, 0, layout.shard_rows)?;
                std::mem::swap(&mut writer.chunks, &mut full);
                writer.end_shard_of_head();
            }
            writer.chunks = writer.read_back(&stored, first, rows)?;
        }
        writer.cut_off()?;
        Ok(writer)
    }

    /// Encodes the rows of a shard again. The bytes are the same, since encoding depends on the values alone.
    fn read_back(&mut self, stored: &StoredArray, start: u64, end: u64) -> Result<ShardChunks> {
        let chunk = self.layout.chunk_rows;
        let width = (self.layout.width() as usize) * self.layout.dtype.bytes();
        let mut chunks = ShardChunks::default();
        let mut at = start;
        while at < end {
            let n = chunk.min(end - at);
            fallible_alloc::resize(&mut chunks.tail, n as usize * width, 0)?;
            stored.read(at, &mut chunks.tail, end)?;
            if n == chunk {
                if let Some(head) = self.head.as_mut().filter(|_| at == 0) {
                    head.first.clone_from(&chunks.tail);
                }
                chunks.end_chunk(&self.layout)?;
            }
            at += n;
        }
        Ok(chunks)
    }

    /// Removes the files of shards after the last one, and marks the last one to be written again. Other
    /// files have no such names.
    fn cut_off(&mut self) -> Result<()> {
        let names = self.folder.join("c");
        let list = fs::read_dir(&names).map_err(|error| Error::io(&names, "list", error))?;
        for entry in list {
            let path = entry.map_err(|error| Error::io(&names, "list", error))?.path();
            let shard = path.file_name().and_then(|name| name.to_str()).and_then(files::number_of);
            let is_empty = self.chunks.is_empty();
            if shard.is_none_or(|shard| shard < self.shard || (shard == self.shard && !is_empty)) {
                continue;
            }
            if self.layout.columns.is_some() {
                files::remove(&path.join("0"))?;
                files::remove_folder(&path)?;
            } else {
                files::remove(&path)?;
            }
        }
        self.is_dirty = !self.chunks.is_empty();
        Ok(())
    }

    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    pub(crate) fn layout(&self) -> &ArrayLayout {
        &self.layout
    }

    /// Appends rows; writes shards that become full.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Io`].
    pub(crate) fn append(&mut self, mut values: &[u8]) -> Result<()> {
        let chunk_bytes = self.layout.chunk_bytes();
        let row_bytes = self.layout.width() as usize * self.layout.dtype.bytes();
        self.rows += (values.len() / row_bytes) as u64;
        while !values.is_empty() {
            self.is_dirty = true;
            let n = values.len().min(chunk_bytes - self.chunks.tail.len());
            let (now, later) = values.split_at(n);
            self.chunks.tail.extend_from_slice(now);
            values = later;
            if self.chunks.tail.len() < chunk_bytes {
                continue;
            }
            if let Some(head) = self.head.as_mut().filter(|_| self.shard == 0 && self.chunks.ends.is_empty())
            {
                head.first.clone_from(&self.chunks.tail);
            }
            self.chunks.end_chunk(&self.layout)?;
            if self.chunks.ends.len() as u64 == self.layout.chunks() {
                self.write_shard(self.shard, &self.chunks)?;
                self.end_shard_of_head();
                self.chunks.clear();
                self.shard += 1;
                (self.is_dirty, self.has_new_names) = (false, true);
            }
        }
        Ok(())
    }

    fn end_shard_of_head(&mut self) {
        if let Some(head) = self.head.as_mut().filter(|head| head.full.is_none()) {
            head.full = Some(self.chunks.clone());
        }
    }

    /// Writes and syncs all rows, then the array's `zarr.json` with their number.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Io`].
    pub(crate) fn flush(&mut self) -> Result<()> {
        if self.is_dirty {
            self.write_shard(self.shard, &self.chunks)?;
            (self.is_dirty, self.has_new_names) = (false, true);
        }
        if self.has_new_names {
            sync_folder(&self.folder.join("c"))?;
            self.has_new_names = false;
        }
        if self.told != Some(self.rows) {
            write_json(&self.folder, &self.layout.zarr_json(self.rows))?;
            self.told = Some(self.rows);
        }
        Ok(())
    }

    /// Rewrites the first value: in the array of ends, the number of documents.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Io`].
    pub(crate) fn set_first(&mut self, value: &[u8]) -> Result<()> {
        let Some(head) = &mut self.head else { return Ok(()) };
        let put = |values: &mut [u8]| values[..value.len()].copy_from_slice(value);
        match &mut head.full {
            _ if head.first.is_empty() => put(&mut self.chunks.tail),
            Some(chunks) => {
                put(&mut head.first);
                chunks.set_first(&self.layout, &head.first)?;
            }
            None => {
                put(&mut head.first);
                self.chunks.set_first(&self.layout, &head.first)?;
            }
        }
        let full = self.head.as_ref().and_then(|head| head.full.as_ref());
        self.write_shard(0, full.unwrap_or(&self.chunks))
    }

    fn write_shard(&self, shard: u64, chunks: &ShardChunks) -> Result<()> {
        let mut end = Vec::new();
        let mut ends = chunks.ends.clone();
        if !chunks.tail.is_empty() {
            chunk::encode(&self.layout, &chunks.tail, &mut end)?;
            ends.push((chunks.encoded.len() + end.len()) as u64);
        }
        ChunkIndex::encode(&self.layout, &ends, &mut end);
        let path = self.folder.join(self.layout.file_name(shard));
        if let (Some(_), Some(folder)) = (self.layout.columns, path.parent()) {
            fs::create_dir_all(folder).map_err(|error| Error::io(folder, "make", error))?;
        }
        replace(&path, &[&chunks.encoded, &end])
    }
}

impl ShardChunks {
    fn is_empty(&self) -> bool {
        self.ends.is_empty() && self.tail.is_empty()
    }

    fn clear(&mut self) {
        self.encoded.clear();
        self.ends.clear();
        self.tail.clear();
    }

    /// Encodes the chunk that has become full.
    fn end_chunk(&mut self, layout: &ArrayLayout) -> Result<()> {
        chunk::encode(layout, &self.tail, &mut self.encoded)?;
        self.ends.push(self.encoded.len() as u64);
        self.tail.clear();
        Ok(())
    }

    fn set_first(&mut self, layout: &ArrayLayout, values: &[u8]) -> Result<()> {
        let Some(&old) = self.ends.first() else { return Ok(()) };
        let mut first = Vec::new();
        chunk::encode(layout, values, &mut first)?;
        let new = first.len() as u64;
        self.encoded.splice(..old as usize, first);
        self.ends.iter_mut().for_each(|end| *end = *end - old + new);
        Ok(())
    }
}

/// Writes the metadata of an array or a group, unless the file has this text already.
///
/// # Errors
/// [`crate::ErrorKind::Io`].
pub(crate) fn write_json(folder: &Path, json: &serde_json::Value) -> Result<()> {
    let path = folder.join("zarr.json");
    let text: Arc<str> = format!("{json:#}\n").into();
    if fs::read(&path).is_ok_and(|there| there == text.as_bytes()) {
        return Ok(());
    }
    replace(&path, &[text.as_bytes()])
}
