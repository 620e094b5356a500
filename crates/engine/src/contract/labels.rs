//! [`TaskLabels`] and [`StorageLabels`]: the words of messages about a task and its source.

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
    /// What to look at if all records are bad.
    pub suspects: &'static str,
    /// What to do if no thread limits the loader but the room for what is made ahead.
    pub roomier: &'static str,
    /// How to see which records failed.
    pub listed: &'static str,
}

impl TaskLabels {
    /// Words for any task.
    pub const DEFAULT: Self = Self {
        work: "working",
        item: "row",
        cheaper: "make examples cheaper",
        smaller: "make examples smaller",
        readable: "use storage that several threads can read",
        suspects: "the files and exclude",
        roomier: "raise shuffle_buffer_size, so that more examples can be made ahead",
        listed: "see errors()",
    };
}

/// The words of messages if reading limits the loader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StorageLabels {
    /// What bounds the loader, such as "I/O-bound".
    pub bound: &'static str,
    /// What to do if no more threads can read.
    pub faster: &'static str,
}

impl StorageLabels {
    pub const LOCAL: Self = Self { bound: "I/O-bound", faster: "read from faster storage" };
}
