//! Batches of spectrograms with label and row number.
//!
//! The buffers of examples go round: a worker takes a spare one, the collator gives it back once its row is written, so in
//! steady state nothing is allocated per example. The batch itself leaves for good, with whoever holds it.

use std::sync::Arc;

use crossbeam::queue::ArrayQueue;

use crate::record::Collate;

/// One clip, ready for a model.
#[derive(Debug)]
pub struct AudioExample {
    /// `[n_mels, n_frames]`, row-major.
    pub spectrogram: Vec<f32>,
    /// The class, or [`crate::record::NO_LABEL`].
    pub label: i64,
    /// The row number over the files as given.
    pub index: i64,
}

/// A batch of `rows` clips.
#[derive(Debug, Clone, PartialEq)]
pub struct AudioBatch {
    /// `[rows, n_mels, n_frames]`, row-major.
    pub spectrogram: Vec<f32>,
    /// `[rows]`.
    pub label: Vec<i64>,
    /// `[rows]`.
    pub index: Vec<i64>,
}

/// Spectrogram buffers on their way back from the collator to the workers.
pub type SpareBuffers = Arc<ArrayQueue<Vec<f32>>>;

/// Assembles [`AudioBatch`]es.
#[derive(Debug)]
pub struct AudioCollate {
    batch_size: usize,
    example_len: usize,
    spare: SpareBuffers,
    batch: AudioBatch,
}

impl AudioCollate {
    /// For examples of `example_len` values each; gives their buffers back to `spare`.
    pub fn new(batch_size: usize, example_len: usize, spare: SpareBuffers) -> Self {
        Self { batch_size, example_len, spare, batch: Self::empty(batch_size, example_len) }
    }

    /// Zeroed by the system page by page, as rows are written: no memory is written twice.
    fn empty(batch_size: usize, example_len: usize) -> AudioBatch {
        AudioBatch {
            spectrogram: vec![0.0; batch_size * example_len],
            label: vec![0; batch_size],
            index: vec![0; batch_size],
        }
    }
}

impl Collate for AudioCollate {
    type Example = AudioExample;
    type Batch = AudioBatch;

    fn put(&mut self, row: usize, example: AudioExample) {
        let place = row * self.example_len..(row + 1) * self.example_len;
        self.batch.spectrogram[place].copy_from_slice(&example.spectrogram);
        self.batch.label[row] = example.label;
        self.batch.index[row] = example.index;
        // A full queue drops the buffer.
        let _ = self.spare.push(example.spectrogram);
    }

    fn take(&mut self, rows: usize) -> AudioBatch {
        let fresh = Self::empty(self.batch_size, self.example_len);
        let mut batch = std::mem::replace(&mut self.batch, fresh);
        batch.spectrogram.truncate(rows * self.example_len);
        batch.label.truncate(rows);
        batch.index.truncate(rows);
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_go_where_they_belong_and_buffers_go_back() {
        let spare = Arc::new(ArrayQueue::new(4));
        let mut collate = AudioCollate::new(3, 2, spare.clone());
        let example = |n: i64| AudioExample { spectrogram: vec![n as f32; 2], label: n, index: 10 * n };
        collate.put(1, example(1));
        collate.put(0, example(5));
        let batch = collate.take(2);
        assert_eq!(batch.spectrogram, [5.0, 5.0, 1.0, 1.0]);
        assert_eq!((batch.label, batch.index), (vec![5, 1], vec![50, 10]));
        assert_eq!(spare.len(), 2);
        assert_eq!(collate.take(0).spectrogram, [0.0; 0]);
    }
}
