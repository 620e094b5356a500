//! Batches of spectrograms with label and row number.
//!
//! All large memory is recycled: a worker takes a spare buffer for its example, and the collator returns it
//! once its row is written; a batch lies in slots of an [`AudioPool`], which return when their holder drops
//! them. In steady state no large memory is allocated, neither per example nor per batch.

use std::sync::{Arc, Mutex, PoisonError};

use half::{bf16, f16};

use super::field::{Field, FieldPool};
use crate::{
    Result,
    dtype::{Dtype, Typed, Values, each},
    record::Collate,
};

/// Spectrograms in the memory of a batch.
pub type Features = Typed<Field<f32>, Field<f16>, Field<bf16>>;

impl Features {
    /// The number of values.
    pub fn len(&self) -> usize {
        each!(self, field => field.len())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets the values from `len` on; the memory stays as it is.
    pub fn truncate(&mut self, len: usize) {
        each!(self, field => field.truncate(len));
    }
}

/// One clip, ready for a model.
#[derive(Debug)]
pub struct AudioExample {
    /// `[n_mels, n_frames]` or `[n_frames, n_mels]`, row-major.
    pub spectrogram: Values,
    /// The class, or [`crate::record::NO_LABEL`].
    pub label: i64,
    /// The row number over the files as given.
    pub index: i64,
}

/// A batch of `rows` clips.
#[derive(Debug)]
pub struct AudioBatch {
    /// `[rows, n_mels, n_frames]` or `[rows, n_frames, n_mels]`, row-major.
    pub spectrogram: Features,
    /// `[rows]`.
    pub label: Field<i64>,
    /// `[rows]`.
    pub index: Field<i64>,
}

/// The memory of batches, for all passes of a loader.
#[derive(Debug)]
pub struct AudioPool {
    batch_size: usize,
    slots: usize,
    example_len: usize,
    spectrogram: Typed<FieldPool<f32>, FieldPool<f16>, FieldPool<bf16>>,
    label: FieldPool<i64>,
    index: FieldPool<i64>,
}

impl AudioPool {
    /// For batches of `batch_size` examples of `example_len` values of `dtype` each; of at most `slots` batches that are gone the
    /// memory is kept.
    pub fn new(batch_size: usize, dtype: Dtype, example_len: usize, slots: usize) -> Self {
        let len = batch_size.saturating_mul(example_len);
        let spectrogram = match dtype {
            Dtype::Float32 => Typed::Float32(FieldPool::new(len, slots)),
            Dtype::Float16 => Typed::Float16(FieldPool::new(len, slots)),
            Dtype::Bfloat16 => Typed::Bfloat16(FieldPool::new(len, slots)),
        };
        Self {
            batch_size,
            slots,
            example_len,
            spectrogram,
            label: FieldPool::new(batch_size, slots),
            index: FieldPool::new(batch_size, slots),
        }
    }

    /// Rows of each batch.
    pub fn batch_size(&self) -> usize {
        self.batch_size
    }

    /// Batches that are gone of which the memory is kept at most.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Bytes that a batch takes, as the system hands memory out.
    pub fn batch_bytes(&self) -> usize {
        let spectrogram = each!(&self.spectrogram, pool => pool.bytes());
        spectrogram.saturating_add(self.label.bytes()).saturating_add(self.index.bytes())
    }

    /// A batch of no rows and without memory.
    fn empty(&self) -> AudioBatch {
        AudioBatch {
            spectrogram: each!(&self.spectrogram, _ => typed Field::default()),
            label: Field::default(),
            index: Field::default(),
        }
    }

    fn acquire(&self) -> Result<AudioBatch> {
        Ok(AudioBatch {
            spectrogram: each!(&self.spectrogram, pool => typed pool.acquire()?),
            label: self.label.acquire()?,
            index: self.index.acquire()?,
        })
    }
}

/// Spectrogram buffers on their way back from the collator to the workers. The last one that came is the first to go: it is the
/// likeliest to be in a cache still.
#[derive(Debug)]
pub struct SpareBuffers {
    resting: Mutex<Vec<Values>>,
    most: usize,
}

impl SpareBuffers {
    /// At most `most` buffers; there are none yet.
    pub fn new(most: usize) -> Self {
        // bounded: the pipeline keeps some hundred.
        Self { resting: Mutex::new(Vec::with_capacity(most)), most }
    }

    /// Takes a buffer, if one is there.
    pub fn take(&self) -> Option<Values> {
        self.resting.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    /// Leaves a buffer, or drops it if there are enough.
    pub fn leave(&self, buffer: Values) {
        let mut resting = self.resting.lock().unwrap_or_else(PoisonError::into_inner);
        if resting.len() < self.most {
            resting.push(buffer);
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.resting.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Assembles [`AudioBatch`]es.
#[derive(Debug)]
pub struct AudioCollate {
    pool: Arc<AudioPool>,
    spare: Arc<SpareBuffers>,
    /// Memory is taken for the first row, so that none is held between passes.
    under_way: Option<AudioBatch>,
    written: Vec<bool>,
}

impl AudioCollate {
    /// Takes memory from `pool`, and gives the buffers of examples back to `spare`.
    pub fn new(pool: Arc<AudioPool>, spare: Arc<SpareBuffers>) -> Self {
        // bounded: a batch has at most 2^20 rows.
        let written = vec![false; pool.batch_size];
        Self { pool, spare, under_way: None, written }
    }
}

impl Collate for AudioCollate {
    type Example = AudioExample;
    type Batch = AudioBatch;

    fn put(&mut self, _stream: usize, row: usize, example: AudioExample) -> Result<()> {
        let batch = match &mut self.under_way {
            Some(batch) => batch,
            None => self.under_way.insert(self.pool.acquire()?),
        };
        let len = self.pool.example_len;
        match (&mut batch.spectrogram, &example.spectrogram) {
            (Typed::Float32(to), Typed::Float32(from)) => to.row_mut(row, len).copy_from_slice(from),
            (Typed::Float16(to), Typed::Float16(from)) => to.row_mut(row, len).copy_from_slice(from),
            (Typed::Bfloat16(to), Typed::Bfloat16(from)) => to.row_mut(row, len).copy_from_slice(from),
            _ => unreachable!("the stage and the pool of a task are of one type"),
        }
        batch.label[row] = example.label;
        batch.index[row] = example.index;
        self.written[row] = true;
        self.spare.leave(example.spectrogram);
        Ok(())
    }

    fn take(&mut self, rows: usize) -> AudioBatch {
        // What was never written is what an earlier batch left there.
        assert!(self.written[..rows].iter().all(|&written| written), "a row of the batch was never written");
        self.written.fill(false);
        let mut batch = self.under_way.take().unwrap_or_else(|| self.pool.empty());
        batch.spectrogram.truncate(rows * self.pool.example_len);
        batch.label.truncate(rows);
        batch.index.truncate(rows);
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{Memory, SMALL};

    fn collate(batch_size: usize, example_len: usize) -> AudioCollate {
        let pool = AudioPool::new(batch_size, Dtype::Float32, example_len, 2);
        AudioCollate::new(Arc::new(pool), Arc::new(SpareBuffers::new(4)))
    }

    fn example(n: i64, len: usize) -> AudioExample {
        AudioExample { spectrogram: Typed::Float32(vec![n as f32; len]), label: n, index: 10 * n }
    }

    fn float32(batch: &AudioBatch) -> &Field<f32> {
        let Typed::Float32(values) = &batch.spectrogram else { panic!("{:?}", batch.spectrogram) };
        values
    }

    #[test]
    fn rows_go_where_they_belong_and_buffers_go_back() {
        let mut collate = collate(3, 2);
        collate.put(0, 1, example(1, 2)).unwrap();
        collate.put(0, 0, example(5, 2)).unwrap();
        let batch = collate.take(2);
        assert_eq!(**float32(&batch), [5.0, 5.0, 1.0, 1.0]);
        assert_eq!((&*batch.label, &*batch.index), (&[5, 1][..], &[50, 10][..]));
        assert_eq!(collate.spare.len(), 2);
        assert_eq!(**float32(&collate.take(0)), [0.0; 0]);
    }

    #[test]
    fn the_last_spare_buffer_is_taken_first() {
        let spare = SpareBuffers::new(2);
        assert!(spare.take().is_none());
        (1..=3).for_each(|len| spare.leave(Dtype::Float16.zeros(len).unwrap()));
        assert_eq!(spare.len(), 2);
        assert_eq!(
            [spare.take(), spare.take()].map(|buffer| buffer.map_or(0, |values| values.len())),
            [2, 1]
        );
        assert!(spare.is_empty());
    }

    #[test]
    fn kept_batches_stay_and_dropped_ones_are_written_again() {
        let len = SMALL / 4;
        let mut collate = collate(2, len);
        let mut batch = |n: i64| {
            collate.put(0, 0, example(n, len)).unwrap();
            collate.put(0, 1, example(-n, len)).unwrap();
            collate.take(2)
        };
        let kept: Vec<AudioBatch> = (1..=20).map(&mut batch).collect();
        for (n, batch) in (1..).zip(&kept) {
            let (first, second) = float32(batch).split_at(len);
            assert!(first.iter().all(|&value| value == n as f32));
            assert!(second.iter().all(|&value| value == -n as f32));
            assert_eq!(*batch.label, [n, -n]);
        }
        let first = float32(&kept[0]).as_ptr();
        // The spectrogram goes, its label stays.
        let labels: Vec<_> = kept.into_iter().take(1).map(|batch| batch.label).collect();
        assert_eq!(float32(&batch(30)).as_ptr(), first);
        assert_eq!(*labels[0], [1, -1]);
    }

    #[test]
    #[should_panic(expected = "never written")]
    fn a_missing_row_is_not_handed_out() {
        let mut collate = collate(3, 2);
        for row in [0, 1, 2] {
            collate.put(0, row, example(0, 2)).unwrap();
        }
        collate.take(3);
        collate.put(0, 1, example(0, 2)).unwrap();
        collate.take(2);
    }

    #[expect(clippy::useless_conversion, reason = "of the one type that is f32")]
    #[test]
    fn values_of_two_bytes_take_half_the_memory() {
        for dtype in Dtype::ALL {
            let (rows, len) = (3, SMALL);
            let pool = Arc::new(AudioPool::new(rows, dtype, len, 1));
            let mut collate = AudioCollate::new(pool, Arc::new(SpareBuffers::new(1)));
            for row in 0..rows {
                let mut spectrogram = dtype.zeros(len).unwrap();
                match &mut spectrogram {
                    Typed::Float32(values) => values.fill(row as f32),
                    Typed::Float16(values) => values.fill(f16::from_f32(row as f32)),
                    Typed::Bfloat16(values) => values.fill(bf16::from_f32(row as f32)),
                }
                collate.put(0, row, AudioExample { spectrogram, label: 0, index: 0 }).unwrap();
            }
            let spectrogram = collate.take(rows).spectrogram;
            for row in 0..rows {
                let of_row = row * len..(row + 1) * len;
                assert!(
                    each!(&spectrogram, field => field[of_row].iter().all(|&x| f32::from(x) == row as f32))
                );
            }
            let Memory::Slot(slot) = each!(spectrogram, field => field.into_memory().untyped()) else {
                panic!("a small field")
            };
            assert_eq!(slot.bytes(), rows * len * dtype.bytes());
        }
    }
}
