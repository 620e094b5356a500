//! The tasks that the engine runs. A [`Task`](crate::contract::Task) turns records into examples and examples
//! into batches.

mod check;
mod clip_decoder;
mod clip_errors;
mod clip_planner;
mod clip_request;
mod clip_rule;
mod clips;
mod datasets;
mod mix_source;
mod mixing;
mod outputs;
mod pool;
mod row_warnings;
mod span_source;
mod tokens;
mod waveform_plan;
mod waveforms;

use crate::contract::TaskLabels;

/// The words of messages for recordings in files.
const RECORDING_LABELS: TaskLabels = TaskLabels {
    work: "decoding",
    item: "row",
    cheaper: "make examples cheaper (sample_rate, clip_seconds, a format that decodes faster)",
    smaller: "make examples smaller (n_mels, clip_seconds, hop_length)",
    readable: "use Arrow files without compression, or faster storage",
    suspects: "the files, audio_column (of a table path_column and root), and exclude",
    roomier: "raise shuffle_buffer_size, so that more examples can be made ahead",
    listed: "see errors(), and list them all with `forebay check`",
};

pub use check::{CHECKED_TOGETHER, CheckTask, Finding};
pub use clip_planner::{AudioPlan, BatchPadding, ClipPlanner, ClipStart, Section, Waveform, length_slack};
pub use clip_request::Take;
pub use clip_rule::{ClipCrop, ClipRule, CropDraws, CropPosition, WholeRule};
pub use clips::{AudioTask, ClipMaker};
pub use datasets::{
    COUNTED_PASSES, DatasetBatchMaker, DatasetShare, DatasetSource, DatasetTask, Handover, SharedTask, Steps,
    UNCOUNTED,
};
pub use mix_source::MixSource;
pub use mixing::{PlannedValue, planned_outcome};
pub use outputs::{OutputInputs, Outputs, reference_fields};
pub use span_source::{SpanSource, SpanUnit};
pub use tokens::{
    ChatPlan, Encode, EncoderFactory, NoTokenizer, SourceRows, TextDraws, TokenMaker, TokenTask,
};
pub use waveform_plan::{OtherRecordings, PlannedField, WaveformPlan};
