//! [`IdType`]: the type of the ids in a row's bytes, and their conversion.

use crate::{
    Error, ErrorKind, RawRecord, Result, fallible_alloc,
    fields::{Row, Value},
};

/// A type of integers; bytes are in little-endian order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IdType {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
}

/// The largest id.
const MOST: u64 = i32::MAX as u64;

impl IdType {
    const ALL: [Self; 8] =
        [Self::U8, Self::I8, Self::U16, Self::I16, Self::U32, Self::I32, Self::U64, Self::I64];

    /// Bytes of an id.
    pub fn bytes(self) -> usize {
        match self {
            Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 => 4,
            Self::U64 | Self::I64 => 8,
        }
    }

    /// The type with this code in an index of Megatron-LM.
    pub fn of_megatron(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::U8,
            2 => Self::I8,
            3 => Self::I16,
            4 => Self::I32,
            5 => Self::I64,
            8 => Self::U16,
            _ => return None,
        })
    }

    /// The type with this name in a header of numpy.
    pub fn of_numpy(descr: &str) -> Option<Self> {
        Some(match descr {
            "|u1" => Self::U8,
            "|i1" => Self::I8,
            "<u2" => Self::U16,
            "<i2" => Self::I16,
            "<u4" => Self::U32,
            "<i4" => Self::I32,
            "<u8" => Self::U64,
            "<i8" => Self::I64,
            _ => return None,
        })
    }

    /// The values of a record whose bytes are ids of this type.
    pub fn row(self) -> Row {
        let code = Self::ALL.iter().position(|one| *one == self).unwrap_or_default();
        [Value::Int(code as i64)].into_iter().collect()
    }

    /// The type of the ids in a record's bytes, by its values.
    fn of_row(values: &Row) -> Option<Self> {
        let code = values.first().and_then(Value::as_int)?;
        Self::ALL.get(usize::try_from(code).ok()?).copied()
    }
}

/// Appends the ids in a record's bytes.
///
/// # Errors
/// [`ErrorKind::Corrupt`] for a number that is no id, [`ErrorKind::Memory`].
pub(crate) fn append(bytes: &[u8], values: &Row, ids: &mut Vec<u32>) -> Result<()> {
    let Some(id_type) = IdType::of_row(values) else {
        return Err(Error::new(ErrorKind::Corrupt, "the row has no ids"));
    };
    fallible_alloc::grow(ids, bytes.len() / id_type.bytes())?;
    match id_type {
        IdType::U8 => ids.extend(bytes.iter().map(|&id| u32::from(id))),
        IdType::I8 => extend(bytes, ids, |[id]: [u8; 1]| i64::from(id as i8) as u64)?,
        IdType::U16 => extend(bytes, ids, |id| u64::from(u16::from_le_bytes(id)))?,
        IdType::I16 => extend(bytes, ids, |id| i64::from(i16::from_le_bytes(id)) as u64)?,
        IdType::U32 => extend(bytes, ids, |id| u64::from(u32::from_le_bytes(id)))?,
        IdType::I32 => extend(bytes, ids, |id| i64::from(i32::from_le_bytes(id)) as u64)?,
        IdType::U64 | IdType::I64 => extend(bytes, ids, u64::from_le_bytes)?,
    }
    Ok(())
}

/// The conversion of each number; a negative one is beyond all ids.
fn extend<const N: usize>(bytes: &[u8], ids: &mut Vec<u32>, convert: impl Fn([u8; N]) -> u64) -> Result<()> {
    let mut all = 0;
    let (numbers, _) = bytes.as_chunks::<N>();
    ids.extend(numbers.iter().map(|&number| {
        let id = convert(number);
        all |= id;
        id as u32
    }));
    if all <= MOST {
        return Ok(());
    }
    let wrong = numbers.iter().map(|&number| convert(number)).find(|&id| id > MOST).unwrap_or_default();
    let message = format!("{} is no token id, expected 0 to {MOST}", wrong as i64);
    Err(Error::new(ErrorKind::Corrupt, message))
}

/// The record of some ids.
pub(crate) fn record(bytes: bytes::Bytes, id_type: IdType) -> RawRecord {
    RawRecord::new(bytes, id_type.row())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_all_types() {
        let found = |id_type: IdType, bytes: &[u8]| {
            let mut ids = vec![7];
            append(bytes, &id_type.row(), &mut ids).map(|()| ids).map_err(|error| error.message)
        };
        assert_eq!(found(IdType::U8, &[0, 255]).unwrap(), [7, 0, 255]);
        assert_eq!(found(IdType::U16, &[1, 0, 255, 255]).unwrap(), [7, 1, 65535]);
        assert_eq!(found(IdType::I32, &i32::MAX.to_le_bytes()).unwrap(), [7, i32::MAX as u32]);
        assert_eq!(found(IdType::I64, &3_i64.to_le_bytes()).unwrap(), [7, 3]);
        for (id_type, bytes, wrong) in [
            (IdType::I8, &[255_u8][..], "-1"),
            (IdType::I16, &(-5_i16).to_le_bytes(), "-5"),
            (IdType::I32, &i32::MIN.to_le_bytes(), "-2147483648"),
            (IdType::U32, &u32::MAX.to_le_bytes(), "4294967295"),
            (IdType::I64, &(1_i64 << 31).to_le_bytes(), "2147483648"),
        ] {
            let message = found(id_type, bytes).unwrap_err();
            assert!(message.starts_with(&format!("{wrong} is no token id")), "{message}");
        }
        for id_type in IdType::ALL {
            assert_eq!(IdType::of_row(&id_type.row()), Some(id_type));
        }
    }
}
