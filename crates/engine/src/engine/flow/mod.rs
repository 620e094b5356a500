//! The code of the threads that turn records into batches, from admission to the hand-over.

pub(crate) mod admission;
pub(crate) mod assembler;
pub(crate) mod channel_limit;
pub(crate) mod collator;
pub(crate) mod demand;
pub(crate) mod permits;
pub(crate) mod reader;
pub(crate) mod run;
pub(crate) mod sequencer;
pub(crate) mod shared;
pub(crate) mod worker;
