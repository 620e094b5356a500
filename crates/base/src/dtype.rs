//! The value types of features: float32, float16, bfloat16, and int16 for waveforms.
//!
//! A loader's type is known only at run time. [`Typed`] is an enum over the types, of buffers, fields, pools
//! or slices, and `each!` runs the same code for each type. Values are rounded to nearest, ties to even,
//! where they are computed; later stages only copy them. Source: IEEE 754-2019 (binary16, 4.3.1); bfloat16 is
//! the upper half of a binary32.

use std::ops::Range;

use half::{bf16, f16, slice::HalfFloatSliceExt};

use crate::{Result, fallible_alloc};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Dtype {
    #[default]
    Float32,
    /// IEEE 754 binary16: 11 bits of precision, up to 65 504.
    Float16,
    /// 8 bits of precision, the range of [`Dtype::Float32`].
    Bfloat16,
    /// Samples of a waveform: 32768 is full scale.
    Int16,
}

impl Dtype {
    pub const ALL: [Self; 4] = [Self::Float32, Self::Float16, Self::Bfloat16, Self::Int16];
    /// The types of floating-point numbers, which spectrograms may have.
    pub const FLOATS: [Self; 3] = [Self::Float32, Self::Float16, Self::Bfloat16];

    #[inline]
    pub fn name(self) -> &'static str {
        match self {
            Self::Float32 => "float32",
            Self::Float16 => "float16",
            Self::Bfloat16 => "bfloat16",
            Self::Int16 => "int16",
        }
    }

    #[inline]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.name() == name)
    }

    #[inline]
    pub fn bytes(self) -> usize {
        match self {
            Self::Float32 => 4,
            Self::Float16 | Self::Bfloat16 | Self::Int16 => 2,
        }
    }
}

/// A container of values of one of the types.
#[derive(Debug, Clone)]
pub enum Typed<F32, F16, Bf16, I16> {
    Float32(F32),
    Float16(F16),
    Bfloat16(Bf16),
    Int16(I16),
}

/// Evaluates `$with` for the container of any type; `typed $with` wraps the result in [`Typed`] again.
#[macro_export]
macro_rules! each {
    ($typed:expr, $inner:pat => typed $with:expr) => {
        match $typed {
            $crate::dtype::Typed::Float32($inner) => $crate::dtype::Typed::Float32($with),
            $crate::dtype::Typed::Float16($inner) => $crate::dtype::Typed::Float16($with),
            $crate::dtype::Typed::Bfloat16($inner) => $crate::dtype::Typed::Bfloat16($with),
            $crate::dtype::Typed::Int16($inner) => $crate::dtype::Typed::Int16($with),
        }
    };
    ($typed:expr, $inner:pat => $with:expr) => {
        match $typed {
            $crate::dtype::Typed::Float32($inner) => $with,
            $crate::dtype::Typed::Float16($inner) => $with,
            $crate::dtype::Typed::Bfloat16($inner) => $with,
            $crate::dtype::Typed::Int16($inner) => $with,
        }
    };
}

/// As `each!`, for floating-point numbers only; nothing for others, which the plan of a spectrogram refuses.
#[macro_export]
macro_rules! each_float {
    ($typed:expr, $inner:pat => $with:expr) => {
        match $typed {
            $crate::dtype::Typed::Float32($inner) => $with,
            $crate::dtype::Typed::Float16($inner) => $with,
            $crate::dtype::Typed::Bfloat16($inner) => $with,
            $crate::dtype::Typed::Int16(_) => {}
        }
    };
}
pub use {each, each_float};

impl Dtype {
    /// A vector of `len` zeros.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`](crate::ErrorKind::Memory) if the allocation fails.
    #[inline]
    pub fn zeros(self, len: usize) -> Result<Values> {
        fn zeros<T: Copy>(len: usize, zero: T) -> Result<Vec<T>> {
            let mut values = Vec::new();
            fallible_alloc::resize(&mut values, len, zero)?;
            Ok(values)
        }
        Ok(match self {
            Self::Float32 => Typed::Float32(zeros(len, 0.0)?),
            Self::Float16 => Typed::Float16(zeros(len, f16::ZERO)?),
            Self::Bfloat16 => Typed::Bfloat16(zeros(len, bf16::ZERO)?),
            Self::Int16 => Typed::Int16(zeros(len, 0)?),
        })
    }
}

pub type Values = Typed<Vec<f32>, Vec<f16>, Vec<bf16>, Vec<i16>>;

pub type ValuesMut<'a> = Typed<&'a mut [f32], &'a mut [f16], &'a mut [bf16], &'a mut [i16]>;

impl Values {
    #[inline]
    pub fn len(&self) -> usize {
        each!(self, values => values.len())
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    pub fn as_mut(&mut self) -> ValuesMut<'_> {
        each!(self, values => typed values.as_mut_slice())
    }
}

impl ValuesMut<'_> {
    /// Writes numbers from place `at` on, rounded to nearest even; to int16 as samples, 32768 times as large
    /// and at most full scale.
    ///
    /// # Panics
    /// If they are more than fit.
    #[inline]
    pub fn put(&mut self, at: usize, from: &[f32]) {
        let place = at..at + from.len();
        match self {
            Self::Float32(out) => out[place].copy_from_slice(from),
            Self::Float16(out) => out[place].convert_from_f32_slice(from),
            Self::Bfloat16(out) => out[place].convert_from_f32_slice(from),
            Self::Int16(out) => {
                // Adding it leaves no bits below 1, rounded to nearest even, and the integer in the low bits.
                const WHOLE: f32 = 12_582_912.0;
                for (out, x) in out[place].iter_mut().zip(from) {
                    let sample = (x * 32_768.0).clamp(-32_768.0, 32_767.0);
                    let sample = if sample.is_nan() { 0.0 } else { sample };
                    *out = (sample + WHOLE).to_bits() as i16;
                }
            }
        }
    }

    /// The first `at` values, and the others.
    ///
    /// # Panics
    /// If there are fewer.
    #[inline]
    pub fn split_at(self, at: usize) -> (Self, Self) {
        match self {
            Self::Float32(values) => {
                let (first, others) = values.split_at_mut(at);
                (Self::Float32(first), Self::Float32(others))
            }
            Self::Float16(values) => {
                let (first, others) = values.split_at_mut(at);
                (Self::Float16(first), Self::Float16(others))
            }
            Self::Bfloat16(values) => {
                let (first, others) = values.split_at_mut(at);
                (Self::Bfloat16(first), Self::Bfloat16(others))
            }
            Self::Int16(values) => {
                let (first, others) = values.split_at_mut(at);
                (Self::Int16(first), Self::Int16(others))
            }
        }
    }

    /// A part of the values, to write to.
    ///
    /// # Panics
    /// If the range reaches beyond them.
    #[inline]
    pub fn part(&mut self, range: Range<usize>) -> ValuesMut<'_> {
        each!(self, values => typed &mut values[range])
    }

    #[inline]
    pub fn dtype(&self) -> Dtype {
        match self {
            Self::Float32(_) => Dtype::Float32,
            Self::Float16(_) => Dtype::Float16,
            Self::Bfloat16(_) => Dtype::Bfloat16,
            Self::Int16(_) => Dtype::Int16,
        }
    }

    #[inline]
    pub fn len(&self) -> usize {
        each!(self, values => values.len())
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_rounded_to_nearest_even_and_saturate() {
        let halves = (-70_000..70_000).map(|n| n as f32 / 2.0);
        let others = [0.25, -0.75, 0.500_1, 1e9, -1e9, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -0.0];
        let values: Vec<f32> = halves.chain(others).map(|x| x / 32_768.0).collect();
        let mut out = Dtype::Int16.zeros(values.len()).unwrap();
        out.as_mut().put(0, &values);
        let Typed::Int16(out) = out else { panic!("another type") };
        for (out, x) in out.into_iter().zip(values) {
            assert_eq!(out, (x * 32_768.0).round_ties_even() as i16, "{x}");
        }
    }
}
