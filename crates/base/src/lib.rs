//! The small parts that every crate of forebay uses: errors, fallible allocation, locks, seeds.
//!
//! | file | what |
//! |---|---|
//! | `error` | [`Error`]: a kind, a place and a message |
//! | `fallible_alloc` | allocations of sizes that files claim, which return errors |
//! | `catch_panic` | panics of libraries as errors |
//! | `cancel` | the flag that stops the work of a thread |
//! | `sync`, `fork_lock` | locks that are counted, modelled, or that a fork waits for |
//! | `shared_once` | values that several threads need and one makes |
//! | `seed` | random bits as a pure function of a seed and a position |
//! | `float_mode` | the floating-point control register of the CPU |
//! | `histogram` | times of a stage, without a lock |
//! | `signatures` | the first bytes of file formats |
//!
//! No file here knows audio, Arrow or Python.

pub mod cancel;
pub mod catch_panic;
pub mod error;
pub mod fallible_alloc;
pub mod float_mode;
pub mod fork_lock;
pub mod histogram;
pub mod seed;
pub mod shared_once;
pub mod signatures;
pub mod sync;

pub use error::{Error, ErrorKind, Result};
