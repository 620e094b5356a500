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
    example_len: usize,
    spare: SpareBuffers,
    /// Has room for every row, and length 0: memory that the rows are about to fill is not filled with zeros before.
    spectrogram: Vec<f32>,
    label: Vec<i64>,
    index: Vec<i64>,
    written: Vec<bool>,
}

impl AudioCollate {
    /// For examples of `example_len` values each; gives their buffers back to `spare`.
    pub fn new(batch_size: usize, example_len: usize, spare: SpareBuffers) -> Self {
        Self {
            example_len,
            spare,
            spectrogram: Vec::with_capacity(batch_size * example_len),
            label: vec![0; batch_size],
            index: vec![0; batch_size],
            written: vec![false; batch_size],
        }
    }
}

impl Collate for AudioCollate {
    type Example = AudioExample;
    type Batch = AudioBatch;

    fn put(&mut self, row: usize, example: AudioExample) {
        let place = row * self.example_len..(row + 1) * self.example_len;
        assert_eq!(example.spectrogram.len(), self.example_len);
        for (to, from) in self.spectrogram.spare_capacity_mut()[place].iter_mut().zip(&example.spectrogram) {
            to.write(*from);
        }
        self.label[row] = example.label;
        self.index[row] = example.index;
        self.written[row] = true;
        // A full queue drops the buffer.
        let _ = self.spare.push(example.spectrogram);
    }

    fn take(&mut self, rows: usize) -> AudioBatch {
        assert!(self.written[..rows].iter().all(|&written| written), "a row of the batch was never written");
        let batch_size = self.written.len();
        let fresh = Self::new(batch_size, self.example_len, self.spare.clone());
        let Self { mut spectrogram, mut label, mut index, .. } = std::mem::replace(self, fresh);
        // SAFETY: the vector has room for `batch_size` rows, its length is 0, and `put` wrote each of the first `rows`.
        unsafe { spectrogram.set_len(rows * self.example_len) };
        label.truncate(rows);
        index.truncate(rows);
        AudioBatch { spectrogram, label, index }
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

    #[test]
    #[should_panic(expected = "never written")]
    fn a_missing_row_is_not_handed_out() {
        let mut collate = AudioCollate::new(3, 2, Arc::new(ArrayQueue::new(4)));
        collate.put(1, AudioExample { spectrogram: vec![0.0; 2], label: 0, index: 0 });
        collate.take(2);
    }
}
