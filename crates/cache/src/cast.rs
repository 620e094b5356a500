//! Conversion of a processor's values to the type of their field.

use crate::{
    Error, ErrorKind, Result, fallible_alloc,
    fields::DataType::{self, *},
};

/// The values of `$type` in little-endian bytes, one after the other.
macro_rules! values {
    ($type:ty, $bytes:expr) => {
        $bytes.as_chunks().0.iter().map(|&value| <$type>::from_le_bytes(value))
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
        if !to.is_integer() {
            return Err(mixed());
        }
        let mut out = fallible_alloc::filled((bytes.len() / from.bytes()).saturating_mul(to.bytes()), 0)?;
        return match integers(bytes, from, to, &mut out) {
            Ok(()) => Ok(out),
            Err(Misfit { number, .. }) => {
                let message =
                    format!("{number} does not fit into {}; name a wider type in fields=", to.name());
                Err(Error::new(ErrorKind::Schema, message))
            }
        };
    }
    if !from.is_real() {
        return Err(mixed());
    }
    let wide = reals(bytes, from);
    match to {
        Float16 => Ok(wide.flat_map(|value| half::f16::from_f64(value).to_le_bytes()).collect()),
        Float32 => Ok(wide.flat_map(|value| (value as f32).to_le_bytes()).collect()),
        Float64 => Ok(wide.flat_map(f64::to_le_bytes).collect()),
        _ => Err(mixed()),
    }
}

/// The values as `f64`: integers beyond 2^53 are rounded to nearest, booleans are 0 and 1.
pub(crate) fn reals(bytes: &[u8], from: DataType) -> Box<dyn Iterator<Item = f64> + '_> {
    match from {
        Bool => Box::new(bytes.iter().map(|&value| value.into())),
        Float16 => Box::new(values!(half::f16, bytes).map(f64::from)),
        Float32 => Box::new(values!(f32, bytes).map(f64::from)),
        Float64 => Box::new(values!(f64, bytes)),
        from => with_integer!(from, Number => Box::new(values!(Number, bytes).map(|value| value as f64)),
            else Box::new(std::iter::empty())),
    }
}

/// A number that does not fit its new type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Misfit {
    pub at: usize,
    pub number: i128,
}

/// Writes integers in another type to `out`, which has room for exactly as many. Allocates nothing.
///
/// # Errors
/// The first number that does not fit. Then the contents of `out` are undefined, as they are if one of the
/// types is not an integer type, which is a bug of the caller.
pub fn integers(bytes: &[u8], from: DataType, to: DataType, out: &mut [u8]) -> Result<(), Misfit> {
    debug_assert!(
        from.is_integer() && to.is_integer() && bytes.len() / from.bytes() == out.len() / to.bytes()
    );
    with_integer!(
        from,
        From => with_integer!(
            to,
            To => converted::<From, To, _>(values!(From, bytes), out.as_chunks_mut().0, To::to_le_bytes),
            else Ok(())
        ),
        else Ok(())
    )
}

fn converted<From, To, const BYTES: usize>(
    numbers: impl Iterator<Item = From> + Clone,
    out: &mut [[u8; BYTES]],
    bytes: impl Fn(To) -> [u8; BYTES],
) -> Result<(), Misfit>
where
    From: Copy + Into<i128>,
    To: Default + TryFrom<From>,
{
    // Two passes, since a loop that may end early is not vectorised.
    let mut all_fit = true;
    for (number, place) in numbers.clone().zip(out) {
        let value = To::try_from(number);
        all_fit &= value.is_ok();
        *place = bytes(value.unwrap_or_default());
    }
    let misfit = |(at, number): (usize, From)| {
        To::try_from(number).is_err().then(|| Misfit { at, number: number.into() })
    };
    if all_fit {
        return Ok(());
    }
    numbers.enumerate().find_map(misfit).map_or(Ok(()), Err)
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
        let ids: Vec<u8> = [3u64, 1 << 31, 1 << 40].iter().flat_map(|value| value.to_le_bytes()).collect();
        let misfit = integers(&ids, Uint64, Int32, &mut [0; 12]);
        assert_eq!(misfit, Err(Misfit { at: 1, number: 1 << 31 }));
        assert_eq!(cast(&1.5f64.to_le_bytes(), Float64, Float32).unwrap(), 1.5f32.to_le_bytes());
        assert_eq!(cast(&1.5f64.to_le_bytes(), Float64, Int32).unwrap_err().kind, ErrorKind::Schema);
    }
}
