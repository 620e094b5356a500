//! Conversion of a processor's values to the type of their field.

use crate::{
    Error, ErrorKind, Result, fallible_alloc,
    fields::DataType::{self, *},
};

/// The values of `$type` in little-endian bytes, one after the other.
macro_rules! values {
    ($type:ty, $bytes:expr) => {
        $bytes.chunks_exact(size_of::<$type>()).map(|value| {
            let mut word = [0; size_of::<$type>()];
            word.copy_from_slice(value);
            <$type>::from_le_bytes(word)
        })
    };
}

/// Calls `$go` with `$number` as the Rust type of the integer type `$dtype`.
macro_rules! with_integer {
    ($dtype:expr, $number:ident => $go:expr, else $other:expr) => {
        match $dtype {
            Int8 => {
                type $number = i8;
                $go
            }
            Int16 => {
                type $number = i16;
                $go
            }
            Int32 => {
                type $number = i32;
                $go
            }
            Int64 => {
                type $number = i64;
                $go
            }
            Uint8 => {
                type $number = u8;
                $go
            }
            Uint16 => {
                type $number = u16;
                $go
            }
            Uint32 => {
                type $number = u32;
                $go
            }
            Uint64 => {
                type $number = u64;
                $go
            }
            _ => $other,
        }
    };
}

/// The same values in another type: integers that fit, and floats, rounded to nearest.
///
/// # Errors
/// [`ErrorKind::Schema`] if a number does not fit (the message has it), or one type is integer and the other
/// float.
pub fn cast(bytes: &[u8], from: DataType, to: DataType) -> Result<Vec<u8>> {
    if from == to {
        return Ok(bytes.to_vec());
    }
    let mixed = || {
        let message = format!(
            "cannot convert values of {} to {}; convert them in the processor",
            from.name(),
            to.name()
        );
        Error::new(ErrorKind::Schema, message)
    };
    if from.is_integer() {
        return with_integer!(from, From => with_integer!(to, To => integers::<From, To>(values!(From, bytes), to), else Err(mixed())), else Err(mixed()));
    }
    let wide: Box<dyn Iterator<Item = f64>> = match from {
        Float16 => Box::new(values!(half::f16, bytes).map(f64::from)),
        Float32 => Box::new(values!(f32, bytes).map(f64::from)),
        Float64 => Box::new(values!(f64, bytes)),
        _ => return Err(mixed()),
    };
    match to {
        Float16 => Ok(wide.flat_map(|value| half::f16::from_f64(value).to_le_bytes()).collect()),
        Float32 => Ok(wide.flat_map(|value| (value as f32).to_le_bytes()).collect()),
        Float64 => Ok(wide.flat_map(f64::to_le_bytes).collect()),
        _ => Err(mixed()),
    }
}

/// An integer in little-endian bytes.
trait Integer: Copy + TryFrom<i128> + Into<i128> {
    fn put(self, out: &mut Vec<u8>);
}

macro_rules! integer {
    ($($type:ty)*) => {$(
        impl Integer for $type {
            #[inline]
            fn put(self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}
integer!(i8 i16 i32 i64 u8 u16 u32 u64);

fn integers<From, To>(numbers: impl Iterator<Item = From>, to: DataType) -> Result<Vec<u8>>
where
    From: Integer,
    To: Integer + TryFrom<From>,
{
    let mut out = fallible_alloc::with_room(numbers.size_hint().0.saturating_mul(to.bytes()))?;
    for number in numbers {
        let Ok(value) = To::try_from(number) else {
            let number: i128 = number.into();
            let message = format!("{number} does not fit into {}; name a wider type in fields=", to.name());
            return Err(Error::new(ErrorKind::Schema, message));
        };
        value.put(&mut out);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_fit_are_kept() {
        let bytes: Vec<u8> = [0i32, 7, 65_535].iter().flat_map(|value| value.to_le_bytes()).collect();
        assert_eq!(cast(&bytes, Int32, Uint16).unwrap(), [0, 0, 7, 0, 255, 255]);
        let error = cast(&(-1i64).to_le_bytes(), Int64, Uint16).unwrap_err();
        assert!(error.message.starts_with("-1 does not fit into uint16"), "{error}");
        assert_eq!(cast(&65_536u32.to_le_bytes(), Uint32, Uint16).unwrap_err().kind, ErrorKind::Schema);
        assert_eq!(cast(&1.5f64.to_le_bytes(), Float64, Float32).unwrap(), 1.5f32.to_le_bytes());
        assert_eq!(cast(&1.5f64.to_le_bytes(), Float64, Int32).unwrap_err().kind, ErrorKind::Schema);
    }
}
