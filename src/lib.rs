//! Data loading for training: shards of recordings or text in, shuffled model-ready batches out.
//!
//! ```text
//!  order ───────▶ source ──────▶ audio ─────▶ dsp ───────────▶ shuffle ─────▶ batch ───────▶ python
//!  which record   its bytes      waveform     crop, resample,  Concurrent-    one buffer     numpy arrays,
//!  comes next?    from a shard                log-mel          ShuffleBuffer  per field      GIL released
//!  └── pure ───┘  └─ I/O thread ─┘ bounded  └─ worker threads ─┘              └─ collator ─┘ └─ your thread ─┘
//!                                  channel
//! ```
//!
//! Data moves from left to right. A stage knows the types it takes and gives ([`contract`]), never its
//! neighbours; [`engine`] alone connects stages and owns threads; `python` alone knows PyO3. Most stages are
//! packages below `crates/`, which know nothing of this one; they are exported here.
//!
//! Guarantees: batches are a pure function of files and configuration, bit for bit, for any number of threads
//! and any timing. A bad record does not change the position of another. A finite pass delivers each row once
//! or reports it. The configuration bounds the memory. `docs/design.md` describes how.

#[cfg(feature = "python")]
mod python;
#[cfg(all(feature = "python", target_os = "linux"))]
mod allocator;

pub use forebay_audio as audio;
pub use forebay_base::{Error, ErrorKind, Result, dtype, error, seed, shared_once};
#[cfg(feature = "python")]
use forebay_base::{cancel, catch_panic, fallible_alloc, float_mode, fork_lock, parallel, sync};
pub use forebay_cache::{self as cache, dataset};
pub use forebay_dsp as dsp;
pub use forebay_engine::{contract, engine, fields, order, shuffle};
#[cfg(fuzzing)]
pub use forebay_loader::fuzz;
pub use forebay_loader::{
    LoaderConfig, access, batch, compose, config, memory, report, sampling, state, targets, tasks,
};
pub use forebay_source as source;
pub use forebay_storage as storage;
pub use forebay_text::{chat, infill, pack, tokenizer};
