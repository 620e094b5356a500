//! The tasks that the engine runs. A [`Task`](crate::contract::Task) turns records into examples and examples
//! into batches.

mod check;
mod clip_decoder;
mod clip_planner;
mod clip_request;
mod clip_rule;
mod clips;
mod documents;
mod mix_source;
mod mixing;
mod span_columns;
mod tokens;

pub use check::{CHECKED_TOGETHER, CheckTask, Finding};
pub use clip_planner::{AudioPlan, ClipPlanner, ClipStart, Section, Waveform};
pub use clip_request::Take;
pub use clip_rule::{ClipCrop, ClipRule, CropDraws, CropPosition};
pub use clips::{AudioTask, ClipMaker, OutputInputs, Outputs};
pub use documents::{
    COUNTED_PASSES, DatasetSource, DatasetTask, Handover, RowMaker, RowShare, SharedTask, Steps, UNCOUNTED,
};
pub use mix_source::MixSource;
pub use mixing::{PlannedValue, planned_value};
pub use span_columns::{SpanColumns, SpanUnit};
pub use tokens::{Encode, EncoderFactory, TokenMaker, TokenTask};
