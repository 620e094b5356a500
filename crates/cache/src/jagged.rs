//! One field: arrays of different lengths, concatenated, as `data`, `offsets` and, above one axis, `shapes`.
//!
//! `offsets` has one entry more than there are documents. Entry `i` is the end of document `i - 1` in `data`.
//! Entry 0, the start of the first document, would always be 0. It holds the number of documents instead, and
//! is written last. `shapes` has the axes of each document but the last, which follows from its length. This
//! convention is another project's (see `docs/cache.md`), kept so that one reader opens both.

use std::{
    collections::HashMap,
    fs,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::json;

use super::{
    append::{ArrayWriter, write_json},
    batch::BatchColumn,
    layout::{ArrayLayout, ChunkCompression, MAX_COUNT, MAX_RANK},
    stored::StoredArray,
};
use crate::{
    Error, ErrorKind, Result, fallible_alloc,
    fields::DataType,
    fork_lock, parallel,
    storage::{Storage, urls},
};

/// Bytes of decoded ends cached for each field.
const KEPT_BYTES: u64 = 32 << 20;
/// The most entries of a chunk of ends that are decoded at once; other programs write larger chunks.
const MOST_ENDS: u64 = KEPT_BYTES / 8;
/// Documents with gaps of at most this many bytes are read together.
const GAP_BYTES: u64 = 16 << 10;
/// The most bytes of documents that are read together.
const TOGETHER_BYTES: u64 = 4 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldDocuments {
    /// The values of all documents, concatenated, little-endian.
    pub data: Vec<u8>,
    /// The end of each document in `data`, in values.
    pub ends: Vec<u64>,
    /// The shape of each document: as many numbers as the field has axes.
    pub shapes: Vec<u64>,
}

#[derive(Debug)]
pub(crate) struct JaggedReader {
    folder: PathBuf,
    data: StoredArray,
    offsets: StoredArray,
    shapes: Option<StoredArray>,
    rank: usize,
    kept: fork_lock::Mutex<HashMap<u64, Arc<[u64]>>>,
}

impl JaggedReader {
    /// Opens the field in `folder`; without a `rank`, the arrays determine it.
    ///
    /// # Errors
    /// As [`StoredArray::open`]; [`ErrorKind::Format`] if the arrays don't match each other.
    pub(crate) fn open(storage: &Arc<dyn Storage>, folder: &Path, rank: Option<usize>) -> Result<Self> {
        let open = |name| StoredArray::open(storage, &folder.join(name));
        let (data, offsets) = (open("data")?, open("offsets")?);
        let has_shapes = match rank {
            // Asking whether an object is there would be a request.
            Some(rank) if urls::is_url(folder) => rank > 1,
            _ => folder.join("shapes/zarr.json").is_file(),
        };
        let shapes = has_shapes.then(|| open("shapes")).transpose()?;
        let of_shapes = shapes.as_ref().map_or(1, |shapes| shapes.width().saturating_add(1) as usize);
        let rank = rank.unwrap_or(of_shapes);
        let is_ends = |stored: &StoredArray| stored.dtype() == DataType::Int64;
        if data.width() != 1
            || offsets.width() != 1
            || rank.max(1) != of_shapes
            || of_shapes > MAX_RANK
            || !is_ends(&offsets)
            || !shapes.as_ref().is_none_or(is_ends)
        {
            let message = format!(
                "{} is not a field of a cache: data has {} columns, offsets {} of {}, and shapes are of {of_shapes} axes, expected {rank}",
                folder.display(),
                data.width(),
                offsets.width(),
                offsets.dtype().name(),
            );
            return Err(Error::new(ErrorKind::Format, message));
        }
        Ok(Self { folder: folder.to_owned(), data, offsets, shapes, rank, kept: fork_lock::Mutex::default() })
    }

    pub(crate) fn dtype(&self) -> DataType {
        self.data.dtype()
    }

    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    /// The end of the last of the first `documents` documents, in values.
    ///
    /// # Errors
    /// As [`StoredArray::read`].
    pub(crate) fn end(&self, documents: u64) -> Result<u64> {
        Ok(self.offsets(documents..documents, documents)?[0])
    }

    /// Fills `out` with values from `start` on; `values` is their number in all.
    ///
    /// # Errors
    /// As [`StoredArray::read`].
    pub(crate) fn read_flat(&self, start: u64, out: &mut [u8], values: u64) -> Result<()> {
        self.data.read(start, out, values)
    }

    /// The start of the first of `documents`, and the end of each; `length` is the number of all documents.
    ///
    /// # Errors
    /// As [`StoredArray::read`].
    pub(crate) fn offsets(&self, documents: Range<u64>, length: u64) -> Result<Vec<u64>> {
        let mut ends = Vec::new();
        fallible_alloc::reserve(&mut ends, (documents.end - documents.start) as usize + 1)?;
        let mut at = documents.start;
        while at <= documents.end {
            let (first, chunk) = self.ends(at, length)?;
            let until = (documents.end + 1).min(first + chunk.len() as u64);
            let chunk = &chunk[(at - first) as usize..(until - first) as usize];
            // Within a chunk, `ends` has checked the order.
            if let (Some(&before), Some(&next)) = (ends.last(), chunk.first())
                && before > next
            {
                return Err(self.backwards(before, next));
            }
            ends.extend_from_slice(chunk);
            at = until;
        }
        Ok(ends)
    }

    /// The chunk of ends with entry `at`, and the number of its first entry; there are `length` documents.
    fn ends(&self, at: u64, length: u64) -> Result<(u64, Arc<[u64]>)> {
        let rows = self.offsets.chunk_rows().min(MOST_ENDS);
        let number = at / rows;
        let first = number * rows;
        let kept = || fork_lock::lock(&self.kept);
        if let Some(chunk) = kept()?.get(&number).filter(|chunk| at - first < chunk.len() as u64) {
            return Ok((first, Arc::clone(chunk)));
        }
        let n = rows.min((length + 1).saturating_sub(first));
        let mut bytes = fallible_alloc::zero_bytes(n as usize * 8)?;
        self.offsets.read(first, &mut bytes, length + 1)?;
        let mut chunk: Vec<u64> = words(&bytes);
        if first == 0 {
            chunk[0] = 0;
        }
        if let Some(pair) = chunk.windows(2).find(|pair| pair[0] > pair[1]) {
            return Err(self.backwards(pair[0], pair[1]));
        }
        let chunk: Arc<[u64]> = chunk.into();
        let mut kept = kept()?;
        if kept.len() as u64 * rows * 8 >= KEPT_BYTES {
            kept.clear();
        }
        kept.insert(number, Arc::clone(&chunk));
        Ok((first, chunk))
    }

    /// The error for an offset that is smaller than the one before it.
    fn backwards(&self, before: u64, next: u64) -> Error {
        let message = format!(
            "the offsets of {} are damaged: {before} is followed by {next}; build the cache again",
            self.folder.display()
        );
        Error::new(ErrorKind::Corrupt, message)
    }

    /// The shapes of documents, `rank` numbers each; `length` is the number of all documents.
    ///
    /// # Errors
    /// As [`StoredArray::read`].
    pub(crate) fn shapes(&self, documents: Range<u64>, length: u64) -> Result<Vec<u64>> {
        let ends = self.offsets(documents.clone(), length)?;
        let lengths: Vec<u64> = ends.windows(2).map(|pair| pair[1] - pair[0]).collect();
        match &self.shapes {
            _ if self.rank == 0 => Ok(Vec::new()),
            None => Ok(lengths),
            Some(shapes) => {
                let axes = self.rank - 1;
                let mut bytes =
                    fallible_alloc::zero_bytes(lengths.len().saturating_mul(axes).saturating_mul(8))?;
                shapes.read(documents.start, &mut bytes, length)?;
                let mut all = fallible_alloc::with_room(lengths.len().saturating_mul(self.rank))?;
                for (shape, length) in words(&bytes).chunks_exact(axes).zip(lengths) {
                    all.extend_from_slice(shape);
                    // A product beyond 64 bits exceeds any length. No array has such axes, even without
                    // values.
                    let row = shape.iter().fold(1u64, |row, &axis| row.saturating_mul(axis));
                    let extent = shape.iter().fold(1u64, |all, &axis| all.saturating_mul(axis.max(1)));
                    if length.checked_rem(row).is_some_and(|rest| rest != 0)
                        || (row == 0 && length > 0)
                        || extent > MAX_COUNT
                    {
                        let message = format!(
                            "the shapes of {} are damaged: {length} values are not a multiple of {shape:?}",
                            self.folder.display()
                        );
                        return Err(Error::new(ErrorKind::Corrupt, message));
                    }
                    all.push(length.checked_div(row).unwrap_or(0));
                }
                Ok(all)
            }
        }
    }

    /// The documents `indices`, of `length` documents with `values` values.
    ///
    /// # Errors
    /// As [`StoredArray::read`].
    pub(crate) fn documents(&self, indices: &[u64], length: u64, values: u64) -> Result<FieldDocuments> {
        let bytes = self.data.dtype().bytes() as u64;
        if self.is_remote() {
            self.request_ends(indices, length)?;
        }
        let shapes = self.shapes_of(indices, length)?;
        let (mut spans, mut ends, mut total) =
            (fallible_alloc::with_room(indices.len())?, fallible_alloc::with_room(indices.len())?, 0);
        for (at, &index) in indices.iter().enumerate() {
            let (start, end) = match *self.offsets(index..index + 1, length)? {
                [start, end] if end <= values => (start, end),
                _ => {
                    let message =
                        format!("the offsets of {} exceed its {values} values", self.folder.display());
                    return Err(Error::new(ErrorKind::Corrupt, message));
                }
            };
            spans.push((start, end, total, at));
            // Each is at most 2^48, and may be requested any number of times.
            total = u64::saturating_add(total, end - start);
            ends.push(total);
        }
        let mut data = fallible_alloc::zero_bytes(total.saturating_mul(bytes) as usize)?.into_vec();
        spans.retain(|&(start, end, ..)| end > start);
        spans.sort_unstable();
        let part = |from: u64, n: u64| (from * bytes) as usize..((from + n) * bytes) as usize;
        let copy = |data: &mut [u8], group: &[Place], first: u64, read: &[u8]| {
            for &(from, to, place, _) in group {
                data[part(place, to - from)].copy_from_slice(&read[part(from - first, to - from)]);
            }
        };
        if self.is_remote() {
            let groups: Vec<_> = ReadGroups { rest: &spans, bytes }.collect();
            let read = parallel::each("forebay-read", &groups, urls::THREADS, |&(_, first, end)| {
                let mut read = fallible_alloc::zero_bytes(((end - first) * bytes) as usize)?;
                self.data.read(first, &mut read, values).map(|()| read)
            })?;
            for ((group, first, _), read) in groups.into_iter().zip(read) {
                copy(&mut data, group, first, &read);
            }
            return Ok(FieldDocuments { data, ends, shapes });
        }
        let mut scratch = Vec::new();
        for (group, first, end) in (ReadGroups { rest: &spans, bytes }) {
            if let [(_, _, place, _)] = *group {
                self.data.read(first, &mut data[part(place, end - first)], values)?;
                continue;
            }
            fallible_alloc::resize(&mut scratch, ((end - first) * bytes) as usize, 0)?;
            self.data.read(first, &mut scratch, values)?;
            copy(&mut data, group, first, &scratch);
        }
        Ok(FieldDocuments { data, ends, shapes })
    }

    fn is_remote(&self) -> bool {
        urls::is_url(&self.folder)
    }

    /// The shapes of the documents `indices`, as [`Self::shapes`].
    ///
    /// # Errors
    /// As [`StoredArray::read`].
    pub(crate) fn shapes_of(&self, indices: &[u64], length: u64) -> Result<Vec<u64>> {
        let mut shapes = fallible_alloc::with_room(indices.len().saturating_mul(self.rank))?;
        let one = |&index: &u64| self.shapes(index..index + 1, length);
        if self.rank > 1 && self.is_remote() {
            shapes.extend(parallel::each("forebay-read", indices, urls::THREADS, one)?.into_iter().flatten());
        } else if self.rank > 0 {
            for index in indices {
                shapes.extend(one(index)?);
            }
        }
        Ok(shapes)
    }

    /// Requests the ends of documents that are not kept, all at once.
    ///
    /// # Errors
    /// As [`StoredArray::read`].
    pub(crate) fn request_ends(&self, indices: &[u64], length: u64) -> Result<()> {
        let rows = self.offsets.chunk_rows().min(MOST_ENDS);
        let mut chunks = fallible_alloc::with_room(indices.len().saturating_mul(2))?;
        chunks.extend(indices.iter().flat_map(|&index| [index / rows, (index + 1) / rows]));
        chunks.sort_unstable();
        chunks.dedup();
        parallel::each("forebay-read", &chunks, urls::THREADS, |&chunk| {
            self.ends(chunk * rows, length).map(drop)
        })
        .map(drop)
    }

    /// The document that `value` is in; `length` is the number of all documents.
    ///
    /// # Errors
    /// As [`StoredArray::read`].
    pub(crate) fn document_of(&self, value: u64, length: u64) -> Result<u64> {
        // The first entry above `value` is the end of its document.
        let (mut low, mut high) = (0, length);
        while low < high {
            let middle = low + (high - low) / 2;
            let (first, chunk) = self.ends(middle, length)?;
            match chunk.partition_point(|&end| end <= value) as u64 {
                0 => high = first,
                n if n < chunk.len() as u64 => return Ok(first + n - 1),
                n => low = first + n,
            }
        }
        Ok(low.saturating_sub(1))
    }
}

/// Start and end of a document in the values of the field, its place in those of the answer, and its number
/// there.
type Place = (u64, u64, u64, usize);

/// Documents that are read together, with the first and the last of their values.
struct ReadGroups<'a> {
    /// Sorted.
    rest: &'a [Place],
    bytes: u64,
}

impl<'a> Iterator for ReadGroups<'a> {
    type Item = (&'a [Place], u64, u64);

    fn next(&mut self) -> Option<Self::Item> {
        let &(first, end, ..) = self.rest.first()?;
        let mut until = end;
        let near = self.rest.iter().take_while(|&&(next, end, ..)| {
            let is_near =
                next <= until + GAP_BYTES / self.bytes && (end - first) * self.bytes <= TOGETHER_BYTES;
            until = if is_near { until.max(end) } else { until };
            is_near
        });
        let (group, rest) = self.rest.split_at(near.count().max(1));
        self.rest = rest;
        Some((group, first, until))
    }
}

fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks().0.iter().map(|&word| u64::from_le_bytes(word)).collect()
}

#[derive(Debug)]
pub(crate) struct JaggedWriter {
    data: ArrayWriter,
    offsets: ArrayWriter,
    shapes: Option<ArrayWriter>,
    rank: usize,
}

impl JaggedWriter {
    /// Begins a field in `folder`, or continues after `documents` documents of `values` values and removes
    /// later ones.
    ///
    /// # Errors
    /// As [`ArrayWriter::open`].
    pub(crate) fn open(
        folder: &Path,
        dtype: DataType,
        rank: usize,
        compression: ChunkCompression,
        (documents, values): (u64, u64),
    ) -> Result<Self> {
        fs::create_dir_all(folder).map_err(|error| Error::io(folder, "make", error))?;
        let open = |name: &str, layout, rows, has_head| {
            ArrayWriter::open(&folder.join(name), layout, rows, has_head)
        };
        let mut offsets =
            open("offsets", ArrayLayout::offsets(), if documents > 0 { documents + 1 } else { 0 }, true)?;
        if documents == 0 {
            offsets.append(&[0; 8])?;
        }
        let writer = Self {
            data: open("data", ArrayLayout::data(dtype, compression), values, false)?,
            offsets,
            shapes: (rank > 1)
                .then(|| open("shapes", ArrayLayout::shapes(rank), documents, false))
                .transpose()?,
            rank,
        };
        write_json(folder, &group())?;
        Ok(writer)
    }

    pub(crate) fn dtype(&self) -> DataType {
        self.data.layout().dtype
    }

    pub(crate) fn values(&self) -> u64 {
        self.data.rows()
    }

    /// Appends documents; `values` are the column's, in the field's type.
    ///
    /// # Errors
    /// [`ErrorKind::Io`]; [`ErrorKind::Schema`] for a shape that cannot be stored.
    pub(crate) fn append(&mut self, column: &BatchColumn, values: &[u8]) -> Result<()> {
        let mut end = self.values();
        let mut ends = fallible_alloc::with_room(column.lengths.len().saturating_mul(8))?;
        for length in &column.lengths {
            end += length;
            ends.extend_from_slice(&end.to_le_bytes());
        }
        if let Some(shapes) = &mut self.shapes {
            let mut all = fallible_alloc::with_room(column.shapes.len().saturating_mul(8))?;
            for shape in column.shapes.chunks_exact(self.rank) {
                let (last, axes) = shape.split_last().unwrap_or((&0, &[]));
                if axes.contains(&0) && *last != 0 {
                    let message = format!(
                        "field {:?} has a document of shape {shape:?}: the last axis of one without values is not kept; give it \
                         shape {:?}, or leave the document out",
                        column.name,
                        axes.iter().chain(&[0]).collect::<Vec<_>>()
                    );
                    return Err(Error::new(ErrorKind::Schema, message));
                }
                axes.iter().for_each(|axis| all.extend_from_slice(&axis.to_le_bytes()));
            }
            shapes.append(&all)?;
        }
        self.data.append(values)?;
        self.offsets.append(&ends)
    }

    /// Writes and syncs all documents, without changing the number that readers see.
    ///
    /// # Errors
    /// [`ErrorKind::Io`].
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.data.flush()?;
        if let Some(shapes) = &mut self.shapes {
            shapes.flush()?;
        }
        self.offsets.flush()
    }

    /// Writes the number of documents: the last step of a commit of this field.
    ///
    /// # Errors
    /// [`ErrorKind::Io`].
    pub(crate) fn commit(&mut self, documents: u64) -> Result<()> {
        self.offsets.set_first(&documents.to_le_bytes())
    }
}

/// The metadata of a folder of arrays.
pub(crate) fn group() -> serde_json::Value {
    json!({"zarr_format": 3, "node_type": "group", "attributes": {}})
}
