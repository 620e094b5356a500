//! The small parts that every crate of forebay uses: errors, fallible allocation, locks, seeds.
//!
//! ```
//! use forebay_base::{Error, ErrorKind, parallel};
//!
//! let half = |n: u64| match n % 2 {
//!     0 => Ok(n / 2),
//!     _ => Err(Error::new(ErrorKind::Corrupt, format!("{n} is odd")).at_row(n)),
//! };
//! assert_eq!(parallel::each("half", [2, 4, 6], 2, half)?, [1, 2, 3]);
//! // The error of the first item that has one, whichever thread is faster.
//! let error = parallel::each("half", [2, 3, 5], 2, half).unwrap_err();
//! assert_eq!((error.place.row, error.kind.is_record()), (Some(3), true));
//! # Ok::<(), Error>(())
//! ```
//!
//! | file | what |
//! |---|---|
//! | `error` | [`Error`]: kind, place, cause; [`ErrorKind::is_record`]: only the record is bad |
//! | `fallible_alloc` | allocations of sizes that files claim, which fail with an error instead of an abort |
//! | `catch_panic` | panics of libraries become errors |
//! | `cancel` | whether the work of the current thread was stopped |
//! | `parallel` | the same work for each item of a list, on several threads |
//! | `sync` | locks that loom can replace, and a count of the guards that a thread holds |
//! | `fork_lock` | locks with a time limit in forked children; a fork waits for values in the making |
//! | `shared_once` | values that several workers need, each made by one of them |
//! | `seed` | the hash of all random decisions, and the numbers of their purposes |
//! | `float_mode` | rounding and denormals of each thread |
//! | `dtype` | the number types of features, and buffers of any of them |
//! | `planes` | decoded samples, channel by channel |
//! | `histogram` | times of a stage, without a lock |
//! | `signatures` | the first bytes of file formats |
//!
//! Promises: an error has a kind, a place and a cause, so that no code reads its text; a size that a file
//! claims never aborts the process; the hash of a decision never changes. No file here knows a format of
//! files, Arrow or Python.

#![cfg_attr(not(test), warn(unreachable_pub))]

pub mod cancel;
pub mod catch_panic;
pub mod dtype;
pub mod error;
pub mod fallible_alloc;
pub mod float_mode;
pub mod fork_lock;
pub mod histogram;
pub mod parallel;
pub mod planes;
pub mod seed;
pub mod shared_once;
pub mod signatures;
pub mod sync;

pub use error::{Error, ErrorKind, Result};
