//! [`TaskLabels`]: the words of messages for the work of a task's threads.

/// The words of messages for the work of a task's threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskLabels {
    /// A worker's activity, such as "decoding".
    pub work: &'static str,
    /// What readers and workers take at a time, such as "row".
    pub item: &'static str,
    /// What to do if this work limits the loader and no core is free.
    pub cheaper: &'static str,
    /// What to do if copying into batches limits the loader.
    pub smaller: &'static str,
    /// What to do if only one thread can read and limits the loader.
    pub readable: &'static str,
    /// What to do if no thread limits the loader but the room for what is made ahead.
    pub roomier: &'static str,
}

impl TaskLabels {
    /// The words for recordings in files.
    pub const DEFAULT: Self = Self {
        work: "decoding",
        item: "row",
        cheaper: "make examples cheaper (sample_rate, clip_seconds, a format that decodes faster)",
        smaller: "make examples smaller (n_mels, clip_seconds, hop_length)",
        readable: "use Arrow files without compression, or faster storage",
        roomier: "raise shuffle_buffer_size, so that more examples can be made ahead",
    };
}
