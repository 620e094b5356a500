//! Batches of spectrograms with label and row number.
//!
//! The buffers of examples go round: a worker takes a spare one, the collator gives it back once its row is written, so in
//! steady state nothing is allocated per example. The batch itself leaves for good, with whoever holds it; its memory is asked for
//! with its first row, and none to be had is an error.

use std::{collections::TryReserveError, sync::Arc};

use crossbeam::queue::ArrayQueue;

use crate::{Error, ErrorKind, Result, record::Collate};

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
    rows: Rows,
}

/// The batch under way: without memory before its first row, then with room for every row.
#[derive(Debug, Default)]
struct Rows {
    /// Has length 0: memory that the rows are about to fill is not filled with zeros before.
    spectrogram: Vec<f32>,
    label: Vec<i64>,
    index: Vec<i64>,
    written: Vec<bool>,
}

impl Rows {
    fn new(batch_size: usize, example_len: usize) -> Result<Self> {
        let mut rows = Self::default();
        let values = batch_size.saturating_mul(example_len);
        rows.spectrogram
            .try_reserve_exact(values)
            .and_then(|()| zeros(&mut rows.label, batch_size))
            .and_then(|()| zeros(&mut rows.index, batch_size))
            .and_then(|()| zeros(&mut rows.written, batch_size))
            .map(|()| rows)
            .map_err(|cause| {
                let mib = values.saturating_mul(size_of::<f32>()) >> 20;
                let message =
                    format!("no memory for a batch of {batch_size} rows, {mib} MiB; lower batch_size");
                Error::new(ErrorKind::Memory, message).because(cause)
            })
    }
}

/// Fills an empty vector with `n` defaults, if there is memory for them.
fn zeros<T: Clone + Default>(values: &mut Vec<T>, n: usize) -> Result<(), TryReserveError> {
    values.try_reserve_exact(n)?;
    values.resize(n, T::default());
    Ok(())
}

impl AudioCollate {
    /// For examples of `example_len` values each; gives their buffers back to `spare`.
    pub fn new(batch_size: usize, example_len: usize, spare: SpareBuffers) -> Self {
        Self { batch_size, example_len, spare, rows: Rows::default() }
    }
}

impl Collate for AudioCollate {
    type Example = AudioExample;
    type Batch = AudioBatch;

    fn put(&mut self, row: usize, example: AudioExample) -> Result<()> {
        if self.rows.written.is_empty() {
            self.rows = Rows::new(self.batch_size, self.example_len)?;
        }
        let place = row * self.example_len..(row + 1) * self.example_len;
        assert_eq!(example.spectrogram.len(), self.example_len);
        for (to, from) in
            self.rows.spectrogram.spare_capacity_mut()[place].iter_mut().zip(&example.spectrogram)
        {
            to.write(*from);
        }
        self.rows.label[row] = example.label;
        self.rows.index[row] = example.index;
        self.rows.written[row] = true;
        // A full queue drops the buffer.
        let _ = self.spare.push(example.spectrogram);
        Ok(())
    }

    fn take(&mut self, rows: usize) -> AudioBatch {
        let Rows { mut spectrogram, mut label, mut index, written } = std::mem::take(&mut self.rows);
        assert!(
            written.len() >= rows && written[..rows].iter().all(|&written| written),
            "a row of the batch was never written"
        );
        // SAFETY: `put` wrote each of the first `rows` rows, so there is room for them, and the length is 0.
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
        collate.put(1, example(1)).unwrap();
        collate.put(0, example(5)).unwrap();
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
        collate.put(1, AudioExample { spectrogram: vec![0.0; 2], label: 0, index: 0 }).unwrap();
        collate.take(2);
    }

    #[test]
    fn a_batch_that_memory_cannot_hold_is_an_error() {
        for batch_size in [1 << 52, usize::MAX] {
            let mut collate = AudioCollate::new(batch_size, 8, Arc::new(ArrayQueue::new(4)));
            let error =
                collate.put(0, AudioExample { spectrogram: vec![0.0; 8], label: 0, index: 0 }).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Memory);
            assert!(error.message.contains(&format!("{batch_size} rows")), "{error}");
            assert_eq!(collate.take(0).index, [0; 0]);
        }
    }
}
