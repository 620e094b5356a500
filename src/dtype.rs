//! The value types of features: float32, float16, bfloat16.
//!
//! A loader's type is known only at run time. [`Typed`] is an enum over the types, of buffers, fields, pools
//! or slices, and `each!` runs the same code for each type. Values are rounded to nearest, ties to even,
//! where they are computed; later stages only copy them. Source: IEEE 754-2019 (binary16, 4.3.1); bfloat16 is
//! the upper half of a binary32.

use half::{bf16, f16};

use crate::{Result, fallible_alloc};

/// A type of values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Dtype {
    /// IEEE 754 binary32.
    #[default]
    Float32,
    /// IEEE 754 binary16: 11 bits of precision, up to 65 504.
    Float16,
    /// 8 bits of precision, the range of [`Dtype::Float32`].
    Bfloat16,
}

impl Dtype {
    /// All types.
    pub const ALL: [Self; 3] = [Self::Float32, Self::Float16, Self::Bfloat16];

    /// The name that users give.
    pub fn name(self) -> &'static str {
        match self {
            Self::Float32 => "float32",
            Self::Float16 => "float16",
            Self::Bfloat16 => "bfloat16",
        }
    }

    /// The type of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.name() == name)
    }

    /// Bytes of a value.
    pub fn bytes(self) -> usize {
        match self {
            Self::Float32 => 4,
            Self::Float16 | Self::Bfloat16 => 2,
        }
    }
}

/// A container of values of one of the types.
#[derive(Debug, Clone)]
pub enum Typed<F32, F16, Bf16> {
    /// Of [`Dtype::Float32`].
    Float32(F32),
    /// Of [`Dtype::Float16`].
    Float16(F16),
    /// Of [`Dtype::Bfloat16`].
    Bfloat16(Bf16),
}

/// Evaluates `$with` for the container of any type; `typed $with` wraps the result in [`Typed`] again.
macro_rules! each {
    ($typed:expr, $inner:pat => typed $with:expr) => {
        match $typed {
            $crate::dtype::Typed::Float32($inner) => $crate::dtype::Typed::Float32($with),
            $crate::dtype::Typed::Float16($inner) => $crate::dtype::Typed::Float16($with),
            $crate::dtype::Typed::Bfloat16($inner) => $crate::dtype::Typed::Bfloat16($with),
        }
    };
    ($typed:expr, $inner:pat => $with:expr) => {
        match $typed {
            $crate::dtype::Typed::Float32($inner) => $with,
            $crate::dtype::Typed::Float16($inner) => $with,
            $crate::dtype::Typed::Bfloat16($inner) => $with,
        }
    };
}
pub(crate) use each;

impl Dtype {
    /// A vector of `len` zeros.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`](crate::ErrorKind::Memory) if the allocation fails.
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
        })
    }
}

/// Values in a vector.
pub type Values = Typed<Vec<f32>, Vec<f16>, Vec<bf16>>;

/// Borrowed values to write to.
pub type ValuesMut<'a> = Typed<&'a mut [f32], &'a mut [f16], &'a mut [bf16]>;

impl Values {
    /// The number of values.
    pub fn len(&self) -> usize {
        each!(self, values => values.len())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All values, to write to.
    pub fn as_mut(&mut self) -> ValuesMut<'_> {
        each!(self, values => typed values.as_mut_slice())
    }
}

impl ValuesMut<'_> {
    /// Their type.
    pub fn dtype(&self) -> Dtype {
        match self {
            Self::Float32(_) => Dtype::Float32,
            Self::Float16(_) => Dtype::Float16,
            Self::Bfloat16(_) => Dtype::Bfloat16,
        }
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        each!(self, values => values.len())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
