//! [`DataType`]: the number types of fields, with the names that numpy and Zarr use.

use crate::dtype::Dtype;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DataType {
    /// One byte, 0 or 1.
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Uint8,
    Uint16,
    Uint32,
    Uint64,
    Float16,
    Float32,
    Float64,
}

use DataType::*;

impl DataType {
    pub const ALL: [Self; 12] =
        [Bool, Int8, Int16, Int32, Int64, Uint8, Uint16, Uint32, Uint64, Float16, Float32, Float64];

    /// The name in numpy and Zarr.
    pub fn name(self) -> &'static str {
        match self {
            Bool => "bool",
            Int8 => "int8",
            Int16 => "int16",
            Int32 => "int32",
            Int64 => "int64",
            Uint8 => "uint8",
            Uint16 => "uint16",
            Uint32 => "uint32",
            Uint64 => "uint64",
            Float16 => "float16",
            Float32 => "float32",
            Float64 => "float64",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.name() == name)
    }

    pub fn bytes(self) -> usize {
        match self {
            Bool | Int8 | Uint8 => 1,
            Int16 | Uint16 | Float16 => 2,
            Int32 | Uint32 | Float32 => 4,
            Int64 | Uint64 | Float64 => 8,
        }
    }

    /// The smallest unsigned type of at least 16 bits for the ids of a vocabulary, which are below `n`.
    pub fn for_vocabulary(n: usize) -> Self {
        if n <= 1 << 16 { Uint16 } else { Uint32 }
    }

    /// Whether the type has this whole number; floating-point types round it.
    pub fn holds(self, number: i64) -> bool {
        let within = |least: i64, most: i64| (least..=most).contains(&number);
        match self {
            Bool => within(0, 1),
            Int8 => within(i8::MIN.into(), i8::MAX.into()),
            Int16 => within(i16::MIN.into(), i16::MAX.into()),
            Int32 => within(i32::MIN.into(), i32::MAX.into()),
            Uint8 => within(0, u8::MAX.into()),
            Uint16 => within(0, u16::MAX.into()),
            Uint32 => within(0, u32::MAX.into()),
            Uint64 => number >= 0,
            Int64 | Float16 | Float32 | Float64 => true,
        }
    }

    /// Whether the type has this number: floating-point types round it, but not to infinity.
    pub fn holds_real(self, number: f64) -> bool {
        match self {
            Float64 => true,
            Float32 => !number.is_finite() || (number as f32).is_finite(),
            // From half a step above the largest one, 65504.
            Float16 => !number.is_finite() || number.abs() < 65520.0,
            // 2^63 is the first number beyond int64, and exact.
            _ => {
                number.fract() == 0.0
                    && (-(2f64.powi(63))..2f64.powi(63)).contains(&number)
                    && self.holds(number as i64)
            }
        }
    }

    /// Whether it is a floating-point type.
    pub fn is_real(self) -> bool {
        matches!(self, Float16 | Float32 | Float64)
    }

    /// Whether it is a type of whole numbers.
    pub fn is_integer(self) -> bool {
        !matches!(self, Bool | Float16 | Float32 | Float64)
    }
}

impl From<Dtype> for DataType {
    /// numpy has no bfloat16; its bits are `uint16` there.
    fn from(dtype: Dtype) -> Self {
        match dtype {
            Dtype::Float32 => Float32,
            Dtype::Float16 => Float16,
            Dtype::Bfloat16 => Uint16,
            Dtype::Int16 => Int16,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_numpy() {
        for dtype in DataType::ALL {
            assert_eq!(DataType::from_name(dtype.name()), Some(dtype));
        }
        assert_eq!((DataType::for_vocabulary(65_536), DataType::for_vocabulary(65_537)), (Uint16, Uint32));
    }
}
