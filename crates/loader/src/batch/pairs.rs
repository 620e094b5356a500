//! [`MixedPairs`] mixes the rows of a complete batch two by two, with their targets: `Mixup` and `CutMix`.

use half::{bf16, f16};

use super::written::Written;
use crate::{
    dsp::{
        Augment, FrameAxis,
        augment::{Number, Taken, exchange, shares_after},
    },
    dtype::Dtype,
    fields::{Buffer, DataType, Element, Field},
};

/// What is mixed in a batch. Its first field is the features.
#[derive(Debug)]
pub struct MixedPairs {
    pub augment: Augment,
    /// Where bands and frames are in a channel.
    pub axis: FrameAxis,
    pub dtype: Dtype,
    /// Fields whose numbers are mixed by the shares of the two examples.
    pub targets: Vec<usize>,
    /// Pairs of fields: the second becomes what the first is in the other example.
    pub others: Vec<[usize; 2]>,
    /// The field of the example's own share.
    pub weight: usize,
}

impl MixedPairs {
    /// Mixes a row and the next one, with these random bits.
    pub(super) fn mix(&self, fields: &[Field], written: &mut [Written], row: usize, bits: [u64; 2]) {
        // The share of each example that is the other's.
        let mut shares = [0.0, 0.0];
        for taken in self.augment.taken(bits, self.axis) {
            shares = shares_after(shares, &taken, self.axis);
            if let Some(Written::Stacked { buffer, row_bytes }) = written.first_mut() {
                self.exchange(&taken, buffer, *row_bytes, row);
            }
        }
        if shares == [0.0; 2] {
            return;
        }
        for &target in &self.targets {
            if let Some(Written::Stacked { buffer, row_bytes }) = written.get_mut(target) {
                let (row_bytes, shares) = (*row_bytes, &shares);
                match fields[target].dtype {
                    DataType::Float16 => {
                        mix_reals(shares, rows::<f16>(buffer, row_bytes, row), f16::to_f64, f16::from_f64);
                    }
                    DataType::Float32 => {
                        mix_reals(shares, rows::<f32>(buffer, row_bytes, row), f64::from, |x| x as f32);
                    }
                    _ => mix_reals(shares, rows::<f64>(buffer, row_bytes, row), |x| x, |x| x),
                }
            }
        }
        for &pair in &self.others {
            let Ok([Written::Stacked { buffer: from, row_bytes }, Written::Stacked { buffer: to, .. }]) =
                written.get_disjoint_mut(pair)
            else {
                continue;
            };
            let (first, second) = rows::<u8>(from, *row_bytes, row);
            let (of_first, of_second) = rows::<u8>(to, *row_bytes, row);
            if shares[0] > 0.0 {
                of_first.copy_from_slice(second);
            }
            if shares[1] > 0.0 {
                of_second.copy_from_slice(first);
            }
        }
        if let Some(Written::Stacked { buffer, row_bytes }) = written.get_mut(self.weight) {
            let (first, second) = rows::<f64>(buffer, *row_bytes, row);
            first.fill(1.0 - shares[0]);
            second.fill(1.0 - shares[1]);
        }
    }

    fn exchange(&self, taken: &[Taken; 2], buffer: &mut Buffer, row_bytes: usize, row: usize) {
        fn of<T: Number + Element>(axis: FrameAxis, taken: &[Taken; 2], (one, other): (&mut [T], &mut [T])) {
            exchange(axis, taken, one, other);
        }
        match self.dtype {
            Dtype::Float32 => of(self.axis, taken, rows::<f32>(buffer, row_bytes, row)),
            Dtype::Float16 => of(self.axis, taken, rows::<f16>(buffer, row_bytes, row)),
            Dtype::Bfloat16 => of(self.axis, taken, rows::<bf16>(buffer, row_bytes, row)),
            Dtype::Int16 => of(self.axis, taken, rows::<i16>(buffer, row_bytes, row)),
        }
    }
}

/// The values of a row and of the next one.
fn rows<T: Element>(buffer: &mut Buffer, row_bytes: usize, row: usize) -> (&mut [T], &mut [T]) {
    let len = row_bytes / size_of::<T>();
    buffer.values_mut()[row * len..(row + 2) * len].split_at_mut(len)
}

/// Mixes targets, given the shares of the other's.
fn mix_reals<T: Copy>(
    shares: &[f64; 2],
    (one, other): (&mut [T], &mut [T]),
    to: fn(T) -> f64,
    of: fn(f64) -> T,
) {
    for (one, other) in one.iter_mut().zip(other) {
        let (first, second) = (to(*one), to(*other));
        *one = of((1.0 - shares[0]) * first + shares[0] * second);
        *other = of((1.0 - shares[1]) * second + shares[1] * first);
    }
}
