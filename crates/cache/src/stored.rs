//! The reader of one array: rows of values, from any position.
//!
//! Input: rows and the caller's memory. Output: values. Only layouts that forebay writes are read:
//! `forebay.cache.foreign` has the others. The index of a shard is read once, then the chunks that a read
//! touches: adjacent ones with one `pread`, each checked, without an allocation.
//!
//! A file never changes after it has its final name: a writer replaces the last shard by a longer one. So an
//! open file is valid for the rows that were committed when it was opened, and is opened again for later
//! rows.

use std::{
    cell::RefCell,
    collections::HashMap,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    chunk::{self, ChunkIndex},
    json::read_metadata,
    layout::ArrayLayout,
};
use crate::{
    Error, ErrorKind, Result, fallible_alloc,
    fields::DataType,
    fork_lock,
    storage::{Storage, StoredFile, urls},
};

/// The most files of an array that stay open.
const OPEN_FILES: usize = 256;
/// The most bytes of chunks that are read at once, except for a single larger chunk.
const READ_BYTES: u64 = 1 << 20;
/// The bytes of chunks that are requested ahead of a read by URL.
const MOST_ANNOUNCED: u64 = 16 << 20;

/// An array that can be read; shared by threads.
#[derive(Debug)]
pub(crate) struct StoredArray {
    folder: PathBuf,
    layout: ArrayLayout,
    storage: Arc<dyn Storage>,
    shards: fork_lock::RwLock<HashMap<u64, Arc<StoredShard>>>,
}

#[derive(Debug)]
struct StoredShard {
    file: StoredFile,
    index: ChunkIndex,
    /// Rows that it is known to have, counted from the array's first.
    until: u64,
}

impl StoredArray {
    /// Opens the array in `folder`.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is none, [`ErrorKind::Format`] if it has a layout that forebay
    /// does not write.
    pub(crate) fn open(storage: &Arc<dyn Storage>, folder: &Path) -> Result<Self> {
        let json = array_metadata(storage, folder)?;
        let Some((layout, _)) = ArrayLayout::from_zarr_json(&json) else {
            return Err(if urls::is_url(folder) { foreign_url(folder) } else { not_ours(folder, &json) });
        };
        Ok(Self {
            folder: folder.to_owned(),
            layout,
            storage: Arc::clone(storage),
            shards: fork_lock::RwLock::default(),
        })
    }

    pub(crate) fn dtype(&self) -> DataType {
        self.layout.dtype
    }

    pub(crate) fn width(&self) -> u64 {
        self.layout.width()
    }

    pub(crate) fn chunk_rows(&self) -> u64 {
        self.layout.chunk_rows
    }

    /// Fills `out` with the rows from `start` on; `committed` is the number of rows that may be read.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`] if `out` does not hold a whole number of rows; [`ErrorKind::Index`] beyond the
    /// committed rows; [`ErrorKind::Io`], [`ErrorKind::Truncated`], [`ErrorKind::Corrupt`] for files that
    /// cannot be read or are damaged.
    pub(crate) fn read(&self, start: u64, out: &mut [u8], committed: u64) -> Result<()> {
        let row_bytes = self.width() * self.dtype().bytes() as u64;
        if !(out.len() as u64).is_multiple_of(row_bytes) {
            let message = format!("the buffer has {} bytes, expected a multiple of {row_bytes}", out.len());
            return Err(Error::new(ErrorKind::Shape, message));
        }
        let n = out.len() as u64 / row_bytes;
        if start.checked_add(n).is_none_or(|end| end > committed) {
            let message = format!("{n} values from {start} on are requested, and there are {committed}");
            return Err(Error::new(ErrorKind::Index, message));
        }
        self.read_shards(start, out, committed)
    }

    fn read_shards(&self, start: u64, mut out: &mut [u8], committed: u64) -> Result<()> {
        let layout = &self.layout;
        let row_bytes = layout.width() * layout.dtype.bytes() as u64;
        let mut row = start;
        while !out.is_empty() {
            let shard = row / layout.shard_rows;
            let first = shard * layout.shard_rows;
            let end = (first + layout.shard_rows).min(row + out.len() as u64 / row_bytes);
            let (part, rest) = out.split_at_mut(((end - row) * row_bytes) as usize);
            self.read_in_shard(shard, row - first, part, end, committed).map_err(|error| {
                let path: Arc<Path> = Arc::from(self.folder.join(layout.file_name(shard)));
                error.in_shard(path)
            })?;
            (out, row) = (rest, end);
        }
        Ok(())
    }

    /// Fills `out` with rows of one shard, from its row `start` on; `end` is one past the last, in rows of
    /// the array.
    fn read_in_shard(&self, shard: u64, start: u64, out: &mut [u8], end: u64, committed: u64) -> Result<()> {
        let open = self.shard(shard, end, committed)?;
        match self.read_from(&open, start, out) {
            // On a network file system, the handle of a replaced file may become stale.
            Err(error) if error.kind == ErrorKind::Io => {
                fork_lock::write(&self.shards)?.remove(&shard);
                self.read_from(&*self.shard(shard, end, committed)?, start, out)
            }
            result => result,
        }
    }

    fn read_from(&self, shard: &StoredShard, start: u64, out: &mut [u8]) -> Result<()> {
        thread_local! {
            static SCRATCH: RefCell<(Vec<u8>, Vec<u8>)> = const { RefCell::new((Vec::new(), Vec::new())) };
        }
        SCRATCH.with_borrow_mut(|(encoded, decoded)| self.read_chunks(shard, start, out, encoded, decoded))
    }

    fn read_chunks(
        &self,
        shard: &StoredShard,
        start: u64,
        mut out: &mut [u8],
        encoded: &mut Vec<u8>,
        decoded: &mut Vec<u8>,
    ) -> Result<()> {
        let layout = &self.layout;
        let chunk_bytes = layout.chunk_bytes();
        let mut at = (start * layout.width()) as usize * layout.dtype.bytes();
        let end = (at + out.len()).div_ceil(chunk_bytes) as u64;
        let mut ahead = ChunkPrefetch { next: (at / chunk_bytes) as u64, bytes: 0 };
        while !out.is_empty() {
            if urls::is_url(&self.folder) {
                ahead.announce(shard, end)?;
            }
            let ChunkRun { offset, length, .. } = run(&shard.index, (at / chunk_bytes) as u64..end)?;
            fallible_alloc::resize(encoded, length as usize, 0)?;
            shard.file.read_exact(encoded, offset)?;
            ahead.bytes = ahead.bytes.saturating_sub(length);
            let mut rest = &encoded[..];
            while !rest.is_empty() {
                let (_, length) = located(&shard.index, (at / chunk_bytes) as u64)?;
                let (bytes, behind) = rest.split_at(length as usize);
                let raw = &chunk::decode(layout, bytes, decoded)?[at % chunk_bytes..];
                let n = raw.len().min(out.len());
                let (part, behind_part) = out.split_at_mut(n);
                part.copy_from_slice(&raw[..n]);
                (out, rest, at) = (behind_part, behind, at + n);
            }
        }
        Ok(())
    }

    /// An open shard with the rows up to `end`.
    fn shard(&self, shard: u64, end: u64, committed: u64) -> Result<Arc<StoredShard>> {
        let known = fork_lock::read(&self.shards)?.get(&shard).cloned();
        if let Some(known) = known.filter(|known| known.until >= end) {
            return Ok(known);
        }
        let opened = Arc::new(self.open_shard(shard, committed)?);
        let mut shards = fork_lock::write(&self.shards)?;
        if shards.len() >= OPEN_FILES
            && let Some(any) = shards.keys().copied().find(|&any| any != shard)
        {
            shards.remove(&any);
        }
        shards.insert(shard, Arc::clone(&opened));
        Ok(opened)
    }

    fn open_shard(&self, shard: u64, committed: u64) -> Result<StoredShard> {
        let path: Arc<Path> = Arc::from(self.folder.join(self.layout.file_name(shard)));
        let file = StoredFile::open(&self.storage, &path)?;
        let size = ChunkIndex::size(&self.layout) as u64;
        let Some(room) = file.size().checked_sub(size) else {
            let message =
                format!("the file has {} bytes, less than the {size} of a shard's index", file.size());
            return Err(Error::new(ErrorKind::Corrupt, message));
        };
        // The file's size bounds the allocation, and forebay writes no sparse files.
        let mut bytes = fallible_alloc::zero_bytes(size as usize)?;
        file.read_exact(&mut bytes, room)?;
        let index = ChunkIndex::decode(&bytes, room)?;
        Ok(StoredShard { file, index, until: committed.min((shard + 1) * self.layout.shard_rows) })
    }
}

/// Chunks that are read at once.
struct ChunkRun {
    offset: u64,
    length: u64,
    /// The chunk after the last.
    end: u64,
}

/// The first of `chunks`, and those stored directly after it, up to about [`READ_BYTES`].
fn run(index: &ChunkIndex, chunks: Range<u64>) -> Result<ChunkRun> {
    let (offset, mut length) = located(index, chunks.start)?;
    let mut end = chunks.start + 1;
    while end < chunks.end {
        let (next, more) = located(index, end)?;
        if next != offset + length || length + more > READ_BYTES {
            break;
        }
        length += more;
        end += 1;
    }
    Ok(ChunkRun { offset, length, end })
}

/// Announces the runs after the one that is read: their latencies would add up.
struct ChunkPrefetch {
    /// The chunk after the last announced one.
    next: u64,
    /// Bytes that are announced and not read.
    bytes: u64,
}

impl ChunkPrefetch {
    fn announce(&mut self, shard: &StoredShard, end: u64) -> Result<()> {
        while self.next < end && self.bytes < MOST_ANNOUNCED {
            let run = run(&shard.index, self.next..end)?;
            if self.bytes > 0 {
                shard.file.will_need(run.offset, run.length);
            }
            self.next = run.end;
            self.bytes += run.length;
        }
        Ok(())
    }
}

fn located(index: &ChunkIndex, chunk: u64) -> Result<(u64, u64)> {
    // No chunk is empty: it has its checksum.
    index.get(chunk).filter(|&(_, length)| length > 0).ok_or_else(|| {
        let message =
            format!("chunk {chunk} of the shard is missing; build the cache again with overwrite=True");
        Error::new(ErrorKind::Corrupt, message)
    })
}

/// The metadata of the Zarr array in `folder`, within the limits of JSON; no claim in them is checked.
///
/// # Errors
/// [`ErrorKind::NotFound`] if there is none, [`ErrorKind::Io`] if they cannot be read, [`ErrorKind::Format`]
/// if they are not JSON, or more than fits the limits.
pub fn array_metadata(storage: &Arc<dyn Storage>, folder: &Path) -> Result<serde_json::Value> {
    let path = folder.join("zarr.json");
    read_metadata(storage, &path)?.map_err(|what| {
        let message = format!("{} is not the metadata of a Zarr array: {what}", path.display());
        Error::new(ErrorKind::Format, message)
    })
}

/// The error for a cache of another program that is read by URL.
pub(super) fn foreign_url(folder: &Path) -> Error {
    let message = format!(
        "another program wrote {}, in a layout that forebay does not write: download the cache, and make it one of \
         forebay's with forebay.cache.convert",
        folder.display()
    );
    Error::new(ErrorKind::Format, message)
}

/// The error for an array in a layout that forebay does not write.
fn not_ours(folder: &Path, json: &serde_json::Value) -> Error {
    let codecs = json["codecs"].as_array().into_iter().flatten();
    let codecs: Vec<&str> = codecs.filter_map(|codec| codec["name"].as_str()).collect();
    let message = format!(
        "another program wrote the Zarr array {} (shape {}, codecs {codecs:?}), in a layout that forebay does not \
         write: make the cache one of forebay's with forebay.cache.convert, or read it as it is with \
         forebay.cache.ForeignDataset",
        folder.display(),
        json["shape"],
    );
    Error::new(ErrorKind::Format, message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_array_of_another_program_is_named_with_what_to_do() {
        let json = json!({"shape": [1u64 << 54], "codecs": [{"name": "bytes"}, {"name": "blosc"}]});
        let error = not_ours(Path::new("cache/train/ids/data"), &json);
        assert_eq!(error.kind, ErrorKind::Format);
        let found = "another program wrote the Zarr array cache/train/ids/data \
                     (shape [18014398509481984], codecs [\"bytes\", \"blosc\"])";
        assert!(error.message.starts_with(found), "{error}");
        assert!(error.message.contains("with forebay.cache.convert"));
        assert!(not_ours(Path::new("x"), &serde_json::Value::Null).message.contains("shape null, codecs []"));
    }
}
