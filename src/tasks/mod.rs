//! The tasks that the engine runs. A [`Task`](crate::record::Task) turns records into examples and examples
//! into batches.

#[cfg(feature = "audio")]
mod check;
#[cfg(feature = "audio")]
mod clips;
#[cfg(feature = "cache")]
mod documents;
#[cfg(feature = "tokens")]
mod tokens;

#[cfg(feature = "audio")]
pub use check::{CHECKED_TOGETHER, CheckTask, Finding};
#[cfg(feature = "audio")]
pub use clips::{AudioPlan, AudioTask, Begin, ClipMaker, ClipRule, Given, Outputs, Section, Take, Waveform};
#[cfg(feature = "cache")]
pub use documents::{
    COUNTED_PASSES, DatasetSource, DatasetTask, Handover, RowMaker, RowShare, Rows, SharedTask, Steps,
    UNCOUNTED,
};
#[cfg(feature = "tokens")]
pub use tokens::{Encode, TokenMaker, TokenTask, Vocabulary};
