//! [`IdType`]: the type of the ids in a row's bytes, and their conversion; and of labels and weights beside
//! them.
//!
//! The bytes of a row with labels or weights are its ids, its labels and its weights, one after the other;
//! the record's values say the type and the bytes of each.

use half::f16;

use crate::{
    Error, ErrorKind, RawRecord, Result, fallible_alloc,
    fields::{Row, Value},
};

/// A type of numbers; bytes are in little-endian order. Ids are integers, weights may be either.
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
    F32,
    F64,
    F16,
}

/// The largest id.
const MOST: u64 = i32::MAX as u64;

impl IdType {
    const ALL: [Self; 11] = [
        Self::U8,
        Self::I8,
        Self::U16,
        Self::I16,
        Self::U32,
        Self::I32,
        Self::U64,
        Self::I64,
        Self::F32,
        Self::F64,
        Self::F16,
    ];

    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 | Self::F16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    /// The type with this code in an index of Megatron-LM.
    pub(crate) fn of_megatron(code: u8) -> Option<Self> {
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
    pub(crate) fn of_numpy(descr: &str) -> Option<Self> {
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
    pub(crate) fn row(self) -> Row {
        [Value::Int(self.code())].into_iter().collect()
    }

    fn code(self) -> i64 {
        Self::ALL.iter().position(|one| *one == self).unwrap_or_default() as i64
    }

    /// The type of the ids in a record's bytes, by its values.
    fn of_row(values: &Row) -> Option<Self> {
        Self::of_code(values.first()?)
    }

    fn of_code(code: &Value) -> Option<Self> {
        Self::ALL.get(usize::try_from(code.as_int()?).ok()?).copied()
    }

    /// The numbers in `bytes` as integers; a fraction, and what is beyond 2^62, is no label and becomes the
    /// smallest number.
    fn integers(self, bytes: &[u8]) -> impl Iterator<Item = i64> {
        let is_whole = |number: f64| number.fract() == 0.0 && number.abs() < (1_u64 << 62) as f64;
        bytes.chunks_exact(self.bytes()).map(move |number| match self.number(number) {
            IdNumber::Int(number) => number,
            IdNumber::Float(number) if is_whole(number) => number as i64,
            IdNumber::Float(_) => i64::MIN,
        })
    }

    /// One number of as many bytes as the type has.
    fn number(self, bytes: &[u8]) -> IdNumber {
        let mut all = [0; 8];
        all[..bytes.len()].copy_from_slice(bytes);
        let low = u64::from_le_bytes(all);
        match self {
            Self::I8 => IdNumber::Int((low as i8).into()),
            Self::I16 => IdNumber::Int((low as i16).into()),
            Self::I32 => IdNumber::Int((low as i32).into()),
            Self::F32 => IdNumber::Float(f32::from_bits(low as u32).into()),
            Self::F64 => IdNumber::Float(f64::from_bits(low)),
            Self::F16 => IdNumber::Float(f16::from_bits(low as u16).to_f64()),
            Self::U8 | Self::U16 | Self::U32 | Self::U64 | Self::I64 => IdNumber::Int(low as i64),
        }
    }
}

enum IdNumber {
    Int(i64),
    Float(f64),
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
        IdType::F16 | IdType::F32 | IdType::F64 => {
            return Err(Error::new(ErrorKind::Corrupt, "the row has no ids"));
        }
    }
    Ok(())
}

/// Appends the ids in a record's bytes, each with `masked` if its label is -100, and the weights of a record
/// that has some.
///
/// # Errors
/// As [`append`]; [`ErrorKind::Corrupt`] for as many labels or weights as there are not ids, a label that is
/// neither the id nor -100, and a weight that is no finite number from 0 on.
pub(crate) fn append_fields(
    bytes: &[u8],
    values: &Row,
    masked: u32,
    ids: &mut Vec<u32>,
    weights: &mut Vec<f32>,
) -> Result<()> {
    let [id_code, id_bytes, label_code, label_bytes, weight_code, weight_bytes] = &values[..] else {
        return append(bytes, values, ids);
    };
    let wrong = |message: String| Err(Error::new(ErrorKind::Corrupt, message));
    let mut rest = bytes;
    let mut field = |n: &Value| {
        let n = n.as_int().and_then(|n| usize::try_from(n).ok()).unwrap_or_default();
        let (field, others) = rest.split_at(n.min(rest.len()));
        rest = others;
        field
    };
    let (id_bytes, label_bytes, weight_bytes) = (field(id_bytes), field(label_bytes), field(weight_bytes));
    let first = ids.len();
    append(id_bytes, &[id_code.clone()].into_iter().collect(), ids)?;
    let n = ids.len() - first;
    let count = |id_type: IdType, bytes: &[u8], what: &str| match bytes.len() / id_type.bytes() {
        found if found == n => Ok(()),
        found => wrong(format!("the row has {n} ids and {found} {what}, expected one for each id")),
    };
    if let Some(id_type) = IdType::of_code(label_code) {
        count(id_type, label_bytes, "labels")?;
        for (at, (label, id)) in id_type.integers(label_bytes).zip(&mut ids[first..]).enumerate() {
            match label {
                IGNORED => *id |= masked,
                label if label == i64::from(*id) => {}
                label => {
                    return wrong(format!(
                        "label {at} is {label}, expected the id, {id}, or {IGNORED}; labels are not shifted: each is that of the \
                         id at its place"
                    ));
                }
            }
        }
    }
    if let Some(id_type) = IdType::of_code(weight_code) {
        count(id_type, weight_bytes, "weights")?;
        fallible_alloc::grow(weights, n)?;
        for (at, number) in weight_bytes.chunks_exact(id_type.bytes()).enumerate() {
            let weight = match id_type.number(number) {
                IdNumber::Int(number) => number as f32,
                IdNumber::Float(number) => number as f32,
            };
            if !weight.is_finite() || weight < 0.0 {
                return wrong(format!("weight {at} is {weight}, expected a finite number from 0 on"));
            }
            weights.push(weight);
        }
    }
    Ok(())
}

/// The label of an id that is not trained on.
const IGNORED: i64 = -100;

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

pub(crate) fn record(bytes: bytes::Bytes, id_type: IdType) -> RawRecord {
    RawRecord::new(bytes, id_type.row())
}

/// The bytes of the numbers of a list, and their type.
pub(crate) type Numbers = (bytes::Bytes, IdType);

/// The record of ids with labels, weights or both.
///
/// # Errors
/// [`ErrorKind::Memory`].
pub(crate) fn record_with(
    ids: Numbers,
    labels: Option<Numbers>,
    weights: Option<Numbers>,
) -> Result<RawRecord> {
    let fields = [Some(ids), labels, weights];
    let n_bytes = fields.iter().flatten().map(|(bytes, _)| bytes.len()).sum();
    let mut all: Vec<u8> = fallible_alloc::with_room(n_bytes)?;
    let mut values = Row::new();
    for field in fields {
        let (code, n) = field.as_ref().map_or((-1, 0), |(bytes, id_type)| (id_type.code(), bytes.len()));
        values.extend([Value::Int(code), Value::Int(n as i64)]);
        all.extend_from_slice(field.as_ref().map_or(&[], |(bytes, _)| bytes));
    }
    Ok(RawRecord::new(bytes::Bytes::from(all), values))
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

    #[test]
    fn labels_and_weights() {
        const MASKED: u32 = 1 << 31;
        let bytes = |numbers: &[i64]| numbers.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<_>>().into();
        let floats = |numbers: &[f32]| {
            (numbers.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<_>>().into(), IdType::F32)
        };
        let ids = || ([5_u8, 6, 7][..].into(), IdType::U8);
        let found = |labels: Option<Numbers>, weights| {
            let record = record_with(ids(), labels, weights).unwrap();
            let (mut ids, mut weights) = (vec![9], vec![1.0]);
            append_fields(&record.payload.bytes, &record.values, MASKED, &mut ids, &mut weights)
                .map(|()| (ids, weights))
                .map_err(|error| error.message)
        };
        let labels = |numbers: &[i64]| Some((bytes(numbers), IdType::I64));
        let masked = vec![9, 5 | MASKED, 6, 7 | MASKED];
        assert_eq!(found(labels(&[-100, 6, -100]), None).unwrap(), (masked.clone(), vec![1.0]));
        let weights = Some(floats(&[0.0, 0.5, 2.0]));
        assert_eq!(found(None, weights.clone()).unwrap(), (vec![9, 5, 6, 7], vec![1.0, 0.0, 0.5, 2.0]));
        assert_eq!(found(labels(&[-100, 6, -100]), weights).unwrap(), (masked, vec![1.0, 0.0, 0.5, 2.0]));
        for (labels, weights, part) in [
            (labels(&[5, 6]), None, "3 ids and 2 labels"),
            (labels(&[5, 6, 8]), None, "label 2 is 8, expected the id, 7, or -100"),
            (labels(&[5, -1, 7]), None, "label 1 is -1"),
            (None, Some(floats(&[1.0])), "3 ids and 1 weights"),
            (None, Some(floats(&[1.0, -0.5, 1.0])), "weight 1 is -0.5, expected a finite number"),
            (None, Some(floats(&[f32::NAN, 0.5, 1.0])), "weight 0 is NaN"),
        ] {
            let message = found(labels, weights).unwrap_err();
            assert!(message.contains(part), "{message}");
        }
    }
}
