//! Arrays of layouts that forebay does not write, read by `zarrs`.
//!
//! Caches of other programs have other codecs or chunk sizes, or a length of 2^54 in place of the real one.
//! The caller passes the number of committed rows. `zarrs` caches the indices of shards. So an array is
//! opened again, and its indices are read again, when rows beyond those known at its opening are committed.
//!
//! `zarrs` works on threads of `rayon`, regardless of its options, and starts them when an array is opened.
//! So that no threads stay, all its calls run in a pool of our own. All open arrays share the pool, which
//! ends with the last of them.

use std::{
    fmt,
    path::{Path, PathBuf},
    process,
    sync::{Arc, Weak},
};

use rayon::{ThreadPool, ThreadPoolBuilder};
use serde_json::Value;
use zarrs::{
    array::{
        Array, ArrayBytes, ArrayShardedExt, ArrayShardedReadableExt, ArrayShardedReadableExtCache,
        ArraySubset, CodecOptions,
    },
    filesystem::FilesystemStore,
};

use super::layout::{MAX_CHUNK_BYTES, MAX_CHUNKS, MAX_RANK};
use crate::{Error, ErrorKind, Result, catch_panic::guarded, fields::DataType, fork_lock};

/// An array that `zarrs` reads.
pub struct Foreign {
    folder: PathBuf,
    dtype: DataType,
    width: u64,
    has_columns: bool,
    chunk_rows: u64,
    open: fork_lock::RwLock<Arc<Open>>,
}

struct Open {
    array: Array<FilesystemStore>,
    indices: ArrayShardedReadableExtCache,
    /// Rows that were committed when the array was opened.
    committed: u64,
    pool: Arc<ReadPool>,
}

/// Threads, and the process that they belong to: a fork does not copy them.
struct ReadPool {
    threads: ThreadPool,
    process: u32,
}

/// The pool of all open arrays.
static POOL: fork_lock::Mutex<Weak<ReadPool>> = fork_lock::Mutex::new(Weak::new());

impl ReadPool {
    /// The existing pool, or a new one.
    fn get() -> Result<Arc<Self>> {
        let mut shared = fork_lock::lock(&POOL)?;
        if let Some(pool) = shared.upgrade().filter(|pool| pool.is_here()) {
            return Ok(pool);
        }
        let threads = ThreadPoolBuilder::new().thread_name(|n| format!("forebay-zarr-{n}")).build();
        let threads = threads.map_err(|error| {
            Error::new(ErrorKind::Io, "cannot start the threads that read Zarr arrays").because(error)
        })?;
        let pool = Arc::new(Self { threads, process: process::id() });
        *shared = Arc::downgrade(&pool);
        Ok(pool)
    }

    fn is_here(&self) -> bool {
        self.process == process::id()
    }
}

impl fmt::Debug for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Foreign")
            .field("folder", &self.folder)
            .field("dtype", &self.dtype)
            .finish_non_exhaustive()
    }
}

impl Foreign {
    /// Opens the array in `folder`, whose metadata are `json`.
    ///
    /// # Errors
    /// [`ErrorKind::Format`] if `zarrs` cannot read it, or if it does not hold numbers on one or two axes.
    pub fn open(folder: &Path, json: &Value) -> Result<Self> {
        let dtype = json["data_type"].as_str();
        check(json).map_err(|what| {
            let message = format!("cannot read the Zarr array {}: {what}", folder.display());
            Error::new(ErrorKind::Format, message)
        })?;
        let open = open(folder, 0)?;
        let array = &open.array;
        let (&[_, ref columns @ ..], Some(dtype)) = (array.shape(), dtype.and_then(DataType::from_name))
        else {
            let message = format!(
                "{} has shape {:?} of {}, expected numbers on one or two axes",
                folder.display(),
                array.shape(),
                dtype.unwrap_or("an unknown type")
            );
            return Err(Error::new(ErrorKind::Format, message));
        };
        if columns.len() > 1 || columns.contains(&0) {
            let message =
                format!("{} has shape {:?}, expected one or two axes", folder.display(), array.shape());
            return Err(Error::new(ErrorKind::Format, message));
        }
        let chunk = array.subchunk_shape().map(|shape| shape[0].get());
        let first = if columns.is_empty() { &[0][..] } else { &[0, 0] };
        let whole = || array.chunk_shape(first).map_or(1, |shape| shape[0].get());
        Ok(Self {
            folder: folder.to_owned(),
            dtype,
            width: columns.first().copied().unwrap_or(1),
            has_columns: !columns.is_empty(),
            chunk_rows: chunk.unwrap_or_else(whole),
            open: fork_lock::RwLock::new(Arc::new(open)),
        })
    }

    /// The type of the values.
    pub fn dtype(&self) -> DataType {
        self.dtype
    }

    /// Values of a row.
    pub fn width(&self) -> u64 {
        self.width
    }

    /// Rows that are decoded together.
    pub fn chunk_rows(&self) -> u64 {
        self.chunk_rows
    }

    /// Fills `out` with the rows from `start` on, which must be committed.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if `zarrs` cannot read them.
    pub fn read(&self, start: u64, out: &mut [u8], committed: u64) -> Result<()> {
        let n = out.len() as u64 / (self.width * self.dtype.bytes() as u64);
        let mut open = Arc::clone(&*fork_lock::read(&self.open)?);
        if start + n > open.committed || !open.pool.is_here() {
            let fresh = Arc::new(self::open(&self.folder, committed)?);
            *fork_lock::write(&self.open)? = Arc::clone(&fresh);
            open = fresh;
        }
        let rows = start..start + n;
        let subset = if self.has_columns {
            ArraySubset::new_with_ranges(&[rows, 0..self.width])
        } else {
            ArraySubset::new_with_ranges(&[rows])
        };
        let failed = |reason: String| {
            let message =
                format!("cannot read values {start} to {} of {}: {reason}", start + n, self.folder.display());
            Error::new(ErrorKind::Corrupt, message)
        };
        let retrieve = || {
            open.array.retrieve_array_subset_sharded_opt::<ArrayBytes<'static>>(
                &open.indices,
                &subset,
                &CodecOptions::default(),
            )
        };
        let bytes =
            guarded(|| open.pool.threads.install(retrieve))?.map_err(|error| failed(error.to_string()))?;
        let bytes = bytes.into_fixed().map_err(|error| failed(error.to_string()))?;
        if bytes.len() != out.len() {
            return Err(failed(format!("zarrs returned {} bytes, expected {}", bytes.len(), out.len())));
        }
        out.copy_from_slice(&bytes);
        Ok(())
    }
}

/// The deepest nesting of sharding codecs that is read.
const MAX_DEPTH: u32 = 4;

/// Checks that a chunk, and the index that locates it, are within the memory limits.
fn check(json: &Value) -> Result<(), String> {
    let numbers = |at: &Value, pointer: &str| -> Option<Vec<u64>> {
        at.pointer(pointer)?.as_array()?.iter().map(Value::as_u64).collect()
    };
    let shape = numbers(json, "/shape").ok_or("it has no shape")?;
    if !(1..=2).contains(&shape.len()) || shape.get(1).is_some_and(|&columns| columns >= MAX_RANK as u64) {
        return Err(format!(
            "its shape is {shape:?}, expected one axis, or two with less than {MAX_RANK} columns"
        ));
    }
    let dtype = json["data_type"].as_str().and_then(DataType::from_name);
    let dtype = dtype.ok_or_else(|| format!("its values are {}, expected numbers", json["data_type"]))?;
    let extent = |shape: &[u64]| {
        let values = shape.iter().try_fold(1u64, |values, &axis| values.checked_mul(axis));
        values.filter(|&values| values > 0).ok_or_else(|| format!("its chunks have the shape {shape:?}"))
    };
    let chunk =
        numbers(json, "/chunk_grid/configuration/chunk_shape").filter(|chunk| chunk.len() == shape.len());
    let (mut outer, mut codecs) =
        (extent(&chunk.ok_or("it has no chunk_shape with an entry for each axis")?)?, &json["codecs"]);
    for _ in 0..MAX_DEPTH {
        let inner = codecs.as_array().into_iter().flatten().find(|codec| codec["name"] == "sharding_indexed");
        let Some(inner) = inner else {
            let bytes = outer.saturating_mul(dtype.bytes() as u64);
            return if bytes <= MAX_CHUNK_BYTES {
                Ok(())
            } else {
                Err(format!("its chunks have {bytes} bytes, the limit is {MAX_CHUNK_BYTES}"))
            };
        };
        let chunk = numbers(inner, "/configuration/chunk_shape").filter(|chunk| chunk.len() == shape.len());
        let chunk =
            extent(&chunk.ok_or("its sharding codec has no chunk_shape with an entry for each axis")?)?;
        if outer / chunk > MAX_CHUNKS {
            return Err(format!("its shards have {} chunks, the limit is {MAX_CHUNKS}", outer / chunk));
        }
        (outer, codecs) = (chunk, &inner["configuration"]["codecs"]);
    }
    Err("its sharding codecs are nested too deep".into())
}

fn open(folder: &Path, committed: u64) -> Result<Open> {
    let failed = |reason: String| {
        Error::new(ErrorKind::Format, format!("cannot open the Zarr array {}: {reason}", folder.display()))
    };
    let store = FilesystemStore::new(folder).map_err(|error| failed(error.to_string()))?;
    let pool = ReadPool::get()?;
    let array = guarded(|| pool.threads.install(|| Array::open(Arc::new(store), "/")))?;
    let array = array.map_err(|error| failed(error.to_string()))?;
    let indices = ArrayShardedReadableExtCache::new(&array);
    Ok(Open { array, indices, committed, pool })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_cannot_be_held_is_refused_before_it_is_opened() {
        let sharded = |shard: u64, chunk: u64| {
            json!({"shape": [1u64 << 54], "data_type": "int32", "codecs": [{"name": "sharding_indexed",
                "configuration": {"chunk_shape": [chunk], "codecs": [{"name": "bytes"}]}}],
                "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [shard]}}})
        };
        let plain = |shape: Value, chunk: Value| {
            json!({"shape": shape, "data_type": "int64", "codecs": [{"name": "blosc"}],
                "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}}})
        };
        for fine in [
            sharded(1 << 28, 1 << 18),
            plain(json!([7]), json!([1 << 20])),
            plain(json!([7, 3]), json!([64, 3])),
        ] {
            assert_eq!(check(&fine), Ok(()));
        }
        for (hostile, what) in [
            (sharded(1 << 54, 1 << 20), "its shards have"),
            (sharded(1 << 54, 1 << 50), "its chunks have"),
            (sharded(1 << 20, 0), "the shape [0]"),
            (plain(json!([7]), json!([1u64 << 60])), "the limit is 1073741824"),
            (plain(json!([7, 1u64 << 27]), json!([1, 1u64 << 27])), "less than 64 columns"),
            (plain(json!([7, 1, 1]), json!([1, 1, 1])), "its shape is"),
            (plain(json!([7]), json!([1, 1])), "it has no chunk_shape"),
            (json!({}), "it has no shape"),
            (Value::Null, "it has no shape"),
        ] {
            let found = check(&hostile).unwrap_err();
            assert!(found.contains(what), "{hostile}: {found}");
        }
    }
}
