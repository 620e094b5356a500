//! The tasks that the engine runs. A [`Task`](crate::record::Task) turns records into examples and examples
//! into batches.

#[cfg(feature = "audio")]
mod check;
#[cfg(feature = "audio")]
mod clip_decoder;
#[cfg(feature = "audio")]
mod clip_planner;
#[cfg(feature = "audio")]
mod clip_request;
#[cfg(feature = "audio")]
mod clip_rule;
#[cfg(feature = "audio")]
mod clips;
#[cfg(feature = "cache")]
mod documents;
#[cfg(feature = "audio")]
mod mix_source;
#[cfg(feature = "audio")]
mod mixing;
#[cfg(feature = "audio")]
mod span_columns;
#[cfg(feature = "tokens")]
mod tokens;

#[cfg(feature = "audio")]
pub use check::{CHECKED_TOGETHER, CheckTask, Finding};
#[cfg(feature = "audio")]
pub use clip_planner::{AudioPlan, ClipPlanner, ClipStart, Section, Waveform};
#[cfg(feature = "audio")]
pub use clip_request::Take;
#[cfg(feature = "audio")]
pub use clip_rule::{ClipCrop, ClipRule, CropDraws, CropPosition};
#[cfg(feature = "audio")]
pub use clips::{AudioTask, ClipMaker, OutputInputs, Outputs};
#[cfg(feature = "cache")]
pub use documents::{
    COUNTED_PASSES, DatasetSource, DatasetTask, Handover, RowBatch, RowMaker, RowShare, SharedTask, Steps,
    UNCOUNTED,
};
#[cfg(feature = "audio")]
pub use mix_source::MixSource;
#[cfg(feature = "audio")]
pub use mixing::{PlannedValue, planned_value};
#[cfg(feature = "audio")]
pub use span_columns::{SpanColumns, SpanUnit};
#[cfg(feature = "tokens")]
pub use tokens::{Encode, EncoderFactory, TokenMaker, TokenTask};
