//! Arrays of layouts that we don't write: `zarrs` reads them.
//!
//! Caches of other programs have another codec, other sizes of chunks, or a length of 2^54 that says nothing. What is committed is
//! known to the caller. `zarrs` remembers the indices of shards; when more rows are committed than were known when the array
//! was opened, it is opened anew, and with it they are read again.
//!
//! `zarrs` works on the threads of `rayon`, whatever its options say, and starts them when an array is opened. So that no threads stay
//! behind, all that it does here is done in a pool of our own, which all open arrays share and which ends with the last.

use std::{
    fmt,
    path::{Path, PathBuf},
    process,
    sync::{Arc, Mutex, RwLock, Weak},
};

use rayon::{ThreadPool, ThreadPoolBuilder};
use zarrs::{
    array::{
        Array, ArrayBytes, ArrayShardedExt, ArrayShardedReadableExt, ArrayShardedReadableExtCache,
        ArraySubset, CodecOptions,
    },
    filesystem::FilesystemStore,
};

use super::datatype::DataType;
use crate::{Error, ErrorKind, Result, locks};

/// An array that `zarrs` reads.
pub struct Foreign {
    folder: PathBuf,
    dtype: DataType,
    width: u64,
    has_columns: bool,
    chunk_rows: u64,
    open: RwLock<Arc<Open>>,
}

struct Open {
    array: Array<FilesystemStore>,
    indices: ArrayShardedReadableExtCache,
    /// Rows that were committed then.
    committed: u64,
    pool: Arc<Pool>,
}

/// Threads, and the process that has them: none of them goes with a fork.
struct Pool {
    threads: ThreadPool,
    process: u32,
}

/// The pool of all arrays that are open.
static POOL: Mutex<Weak<Pool>> = Mutex::new(Weak::new());

impl Pool {
    /// The one that is there, or a new one.
    fn get() -> Result<Arc<Self>> {
        let mut shared = locks::lock(&POOL)?;
        if let Some(pool) = shared.upgrade().filter(|pool| pool.is_here()) {
            return Ok(pool);
        }
        let threads = ThreadPoolBuilder::new().thread_name(|n| format!("forebay-zarr-{n}")).build();
        let threads = threads.map_err(|error| {
            Error::new(ErrorKind::Io, "the system gives no threads to read Zarr arrays").because(error)
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
    /// Opens the array in `folder`, of the data type that its metadata name.
    ///
    /// # Errors
    /// [`ErrorKind::Format`] if `zarrs` cannot, or if it is not one of numbers on one or two axes.
    pub fn open(folder: &Path, dtype: Option<&str>) -> Result<Self> {
        let open = open(folder, 0)?;
        let array = &open.array;
        let (&[_, ref columns @ ..], Some(dtype)) = (array.shape(), dtype.and_then(DataType::from_name))
        else {
            let message = format!(
                "{} has shape {:?} of {}; arrays of numbers with one or two axes are read",
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
        let whole = || array.chunk_shape(&vec![0; array.shape().len()]).map_or(1, |shape| shape[0].get());
        Ok(Self {
            folder: folder.to_owned(),
            dtype,
            width: columns.first().copied().unwrap_or(1),
            has_columns: !columns.is_empty(),
            chunk_rows: chunk.unwrap_or_else(whole),
            open: RwLock::new(Arc::new(open)),
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

    /// Fills `out` with the rows from `start` on, which are committed.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if `zarrs` cannot read them.
    pub fn read(&self, start: u64, out: &mut [u8], committed: u64) -> Result<()> {
        let n = out.len() as u64 / (self.width * self.dtype.bytes() as u64);
        let mut open = Arc::clone(&*locks::read(&self.open)?);
        if start + n > open.committed || !open.pool.is_here() {
            let fresh = Arc::new(self::open(&self.folder, committed)?);
            *locks::write(&self.open)? = Arc::clone(&fresh);
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
        let bytes = open.pool.threads.install(retrieve).map_err(|error| failed(error.to_string()))?;
        let bytes = bytes.into_fixed().map_err(|error| failed(error.to_string()))?;
        if bytes.len() != out.len() {
            return Err(failed(format!("{} bytes came, expected {}", bytes.len(), out.len())));
        }
        out.copy_from_slice(&bytes);
        Ok(())
    }
}

fn open(folder: &Path, committed: u64) -> Result<Open> {
    let failed = |reason: String| {
        Error::new(ErrorKind::Format, format!("cannot open the Zarr array {}: {reason}", folder.display()))
    };
    let store = FilesystemStore::new(folder).map_err(|error| failed(error.to_string()))?;
    let pool = Pool::get()?;
    let array = pool.threads.install(|| Array::open(Arc::new(store), "/"));
    let array = array.map_err(|error| failed(error.to_string()))?;
    let indices = ArrayShardedReadableExtCache::new(&array);
    Ok(Open { array, indices, committed, pool })
}
