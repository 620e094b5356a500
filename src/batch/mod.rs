//! Examples become batches: one contiguous buffer per field, each example written once into its row.

mod audio;

pub use audio::{AudioBatch, AudioCollate, AudioExample, SpareBuffers};
