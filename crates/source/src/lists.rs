//! Recordings that a column has as lists: the bytes of files, or decoded samples.
//!
//! Lists of int8 or uint8 are the bytes of a file. Lists of int16, float32 or float64 are samples: of one
//! channel, or, in lists of lists, of each channel. Samples become a WAV file of the same numbers, so that
//! nothing after the source has to know them. Their rate is in a column, in the schema's metadata, or in the
//! user's `audio_column`.
//!
//! Source: Microsoft/IBM multimedia WAVE registration, for the header.

use std::ops::Range;

use arrow_array::{Array, ArrayRef, cast::AsArray, types::*};
use arrow_schema::DataType;
use bytes::Bytes;

use crate::{Error, ErrorKind, Result, fallible_alloc, fields::Value};

/// The most channels of a recording as lists. More lists than that are the two axes the other way round.
const MOST_CHANNELS: u64 = 256;

/// The bytes of a WAV file before its samples.
const HEADER: usize = 44;

/// What the numbers in the lists are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListItem {
    /// A byte of a file.
    Byte,
    Int16,
    Float32,
    Float64,
}

impl ListItem {
    /// `None` for types that are neither bytes nor samples.
    pub(crate) fn of(data_type: &DataType) -> Option<Self> {
        Some(match data_type {
            DataType::Int8 | DataType::UInt8 => Self::Byte,
            DataType::Int16 => Self::Int16,
            DataType::Float32 => Self::Float32,
            DataType::Float64 => Self::Float64,
            _ => return None,
        })
    }

    pub(crate) fn width(self) -> usize {
        match self {
            Self::Byte => 1,
            Self::Int16 => 2,
            Self::Float32 => 4,
            Self::Float64 => 8,
        }
    }

    /// The numbers of an array in memory, in its machine's order.
    fn values(self, array: &ArrayRef) -> Option<&[u8]> {
        let buffer = match (self, array.data_type()) {
            (Self::Byte, DataType::Int8) => array.as_primitive::<Int8Type>().values().inner(),
            (Self::Byte, DataType::UInt8) => array.as_primitive::<UInt8Type>().values().inner(),
            (Self::Int16, DataType::Int16) => array.as_primitive::<Int16Type>().values().inner(),
            (Self::Float32, DataType::Float32) => array.as_primitive::<Float32Type>().values().inner(),
            (Self::Float64, DataType::Float64) => array.as_primitive::<Float64Type>().values().inner(),
            _ => return None,
        };
        Some(buffer.as_slice())
    }
}

/// Where the rate of samples is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListRate {
    /// The same for all rows, hertz.
    Known(u32),
    /// In the array with this index among those that are read.
    Array(usize),
}

/// A column of recordings as lists. Arrays are indices of those that are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListColumn {
    /// The arrays of lists, the outer one first, and the length of all of its lists if the schema has it.
    pub levels: Vec<(usize, Option<u64>)>,
    pub items: usize,
    pub item: ListItem,
    /// `None` for the bytes of files, which have their own.
    pub rate: Option<ListRate>,
}

/// The numbers of a row, and what they are.
#[derive(Debug)]
pub(crate) struct ListValues<'a> {
    /// Little-endian, channel after channel.
    pub numbers: &'a [u8],
    pub item: ListItem,
    /// How many channels they are of, each with as many numbers.
    pub channels: u64,
    /// The rate of samples, hertz; of bytes it is not used.
    pub rate: u32,
}

impl ListValues<'_> {
    /// The bytes of the recording that they are.
    pub(crate) fn n_bytes(&self) -> u64 {
        let header = if self.item == ListItem::Byte { 0 } else { HEADER };
        (self.numbers.len() + header) as u64
    }

    /// The recording: the file, or a WAV file of the samples.
    ///
    /// # Errors
    /// [`ErrorKind::Empty`] without samples; [`ErrorKind::TooLarge`] beyond what fits a WAV file;
    /// [`ErrorKind::Corrupt`] for a rate of 0.
    pub(crate) fn recording(&self) -> Result<Bytes> {
        let Self { numbers, item, channels, rate } = *self;
        if item == ListItem::Byte {
            return Ok(fallible_alloc::copy(numbers)?.into());
        }
        if numbers.is_empty() || channels == 0 {
            return Err(Error::new(ErrorKind::Empty, "the recording has no samples"));
        }
        if rate == 0 {
            return Err(Error::new(ErrorKind::Corrupt, "the sampling rate of the row is 0 Hz"));
        }
        let size = u32::try_from(numbers.len() + HEADER - 8).map_err(|_| {
            let message = format!("samples of {} bytes, at most 4 GiB are read", numbers.len());
            Error::new(ErrorKind::TooLarge, message)
        })?;
        let (width, n_channels) = (item.width(), channels as usize);
        let frame = width * n_channels;
        let tag: u16 = if item == ListItem::Int16 { 1 } else { 3 };
        let mut wav = fallible_alloc::with_room(HEADER + numbers.len())?;
        wav.extend_from_slice(b"RIFF");
        wav.extend_from_slice(&size.to_le_bytes());
        wav.extend_from_slice(b"WAVEfmt ");
        wav.extend_from_slice(&16u32.to_le_bytes());
        wav.extend_from_slice(&tag.to_le_bytes());
        wav.extend_from_slice(&(channels as u16).to_le_bytes());
        wav.extend_from_slice(&rate.to_le_bytes());
        wav.extend_from_slice(&rate.saturating_mul(frame as u32).to_le_bytes());
        wav.extend_from_slice(&(frame as u16).to_le_bytes());
        wav.extend_from_slice(&(8 * width as u16).to_le_bytes());
        wav.extend_from_slice(b"data");
        wav.extend_from_slice(&(size - (HEADER as u32 - 8)).to_le_bytes());
        if n_channels == 1 {
            wav.extend_from_slice(numbers);
        } else {
            let channel = numbers.len() / n_channels;
            for at in (0..channel).step_by(width) {
                for first in (0..n_channels).map(|n| n * channel + at) {
                    wav.extend_from_slice(&numbers[first..first + width]);
                }
            }
        }
        Ok(wav.into())
    }
}

/// The rate of a row.
///
/// # Errors
/// [`ErrorKind::Corrupt`] for a null, and for a number that is no rate.
pub(crate) fn row_rate(found: &Value) -> Result<u32> {
    let told = match found {
        Value::Int(rate) => match u32::try_from(*rate).ok().filter(|&rate| rate > 0) {
            Some(rate) => return Ok(rate),
            None => format!("{rate} Hz"),
        },
        _ => "null".to_owned(),
    };
    Err(Error::new(ErrorKind::Corrupt, format!("the sampling rate of the row is {told}")))
}

/// Checks a range of values among `n` of them.
///
/// # Errors
/// [`ErrorKind::Corrupt`].
pub(crate) fn check_part(part: &Range<u64>, n: u64) -> Result<()> {
    if part.start <= part.end && part.end <= n {
        return Ok(());
    }
    let message = format!("a list has the items {} to {}, and there are {n}", part.start, part.end);
    Err(Error::new(ErrorKind::Corrupt, message))
}

/// Checks the number of channels of a row before they are visited.
///
/// # Errors
/// [`ErrorKind::Corrupt`].
pub(crate) fn check_channels(channels: u64) -> Result<()> {
    if channels <= MOST_CHANNELS {
        return Ok(());
    }
    let message = format!(
        "a row has {channels} lists of samples, at most {MOST_CHANNELS} channels are read; the outer lists must be the \
         channels, each with all of its samples"
    );
    Err(Error::new(ErrorKind::Corrupt, message))
}

/// Checks that the channels follow each other and have equally many samples.
///
/// # Errors
/// [`ErrorKind::Corrupt`].
pub(crate) fn check_alike(first: &Range<u64>, at: u64, channel: &Range<u64>) -> Result<()> {
    let n = first.end.saturating_sub(first.start);
    let expected = first.start.saturating_add(n.saturating_mul(at));
    if channel.start == expected && channel.end == expected.saturating_add(n) {
        return Ok(());
    }
    let found = channel.end.saturating_sub(channel.start);
    let message = format!("channel 0 has {n} samples and channel {at} has {found}; expected equally many");
    Err(Error::new(ErrorKind::Corrupt, message))
}

/// The error for a list that has a null in it.
pub(crate) fn null_inside() -> Error {
    Error::new(ErrorKind::Corrupt, "the list of the recording has a null in it")
}

/// The numbers of a row of a decoded array, and how many channels they are of; `None` if the row is null.
///
/// # Errors
/// [`ErrorKind::Corrupt`] for lists of other types than the schema has, with nulls, or of different lengths.
pub(crate) fn of_array<'a>(
    array: &'a ArrayRef,
    row: usize,
    column: &ListColumn,
) -> Result<Option<(&'a [u8], u64)>> {
    if array.is_null(row) {
        return Ok(None);
    }
    let (mut items, mut part) = list_at(array, row)?;
    let mut channels = 1;
    if column.levels.len() > 1 {
        channels = part.end.saturating_sub(part.start);
        check_channels(channels)?;
        let outer = items;
        let (first, last) = (part.start as usize, part.end as usize);
        if (first..last).any(|at| outer.is_null(at)) {
            return Err(null_inside());
        }
        let mut whole = 0..0;
        for at in first..last {
            let (inner, channel) = list_at(outer, at)?;
            if at == first {
                (items, whole) = (inner, channel.clone());
            }
            check_alike(&whole, (at - first) as u64, &channel)?;
        }
        part = whole.start..whole.start + (whole.end - whole.start) * channels;
        if channels == 0 {
            return Ok(Some((&[], 0)));
        }
    }
    check_part(&part, items.len() as u64)?;
    let (start, end) = (part.start as usize, part.end as usize);
    if items.nulls().is_some_and(|nulls| nulls.slice(start, end - start).null_count() > 0) {
        return Err(null_inside());
    }
    let numbers = column.item.values(items).ok_or_else(other_type)?;
    let width = column.item.width();
    let numbers = numbers.get(start * width..end * width).ok_or_else(other_type)?;
    Ok(Some((numbers, channels)))
}

fn other_type() -> Error {
    Error::new(ErrorKind::Corrupt, "the lists have another type than the footer claims")
}

/// The values of an array of lists, and the part of them that is the list at `row`.
fn list_at(array: &ArrayRef, row: usize) -> Result<(&ArrayRef, Range<u64>)> {
    let part = |start: i64, end: i64| {
        let part = u64::try_from(start).ok().zip(u64::try_from(end).ok());
        part.map(|(start, end)| start..end).ok_or_else(other_type)
    };
    match array.data_type() {
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            let offsets = list.value_offsets();
            Ok((list.values(), part(offsets[row].into(), offsets[row + 1].into())?))
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            let offsets = list.value_offsets();
            Ok((list.values(), part(offsets[row], offsets[row + 1])?))
        }
        DataType::FixedSizeList(..) => {
            let list = array.as_fixed_size_list();
            let start = list.value_offset_at(row) as u64;
            Ok((list.values(), start..start.saturating_add(list.value_length().max(0) as u64)))
        }
        _ => Err(other_type()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_are_interleaved_and_claims_checked() {
        let numbers: Vec<u8> = (0..12).collect();
        let values = ListValues { numbers: &numbers, item: ListItem::Int16, channels: 2, rate: 16_000 };
        let wav = values.recording().unwrap();
        assert_eq!(wav.len() as u64, values.n_bytes());
        assert_eq!(wav[HEADER..], [0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11]);
        assert_eq!(u32::from_le_bytes(wav[4..8].try_into().unwrap()), 48);
        assert_eq!(u32::from_le_bytes(wav[40..44].try_into().unwrap()), 12);
        let empty = ListValues { numbers: &[], ..values };
        assert_eq!(empty.recording().unwrap_err().kind, ErrorKind::Empty);
        assert_eq!(ListValues { rate: 0, ..values }.recording().unwrap_err().kind, ErrorKind::Corrupt);
        for (found, expected) in [(Value::Int(8000), Some(8000)), (Value::Int(-1), None), (Value::Null, None)]
        {
            assert_eq!(row_rate(&found).ok(), expected);
        }
        let backwards = Range { start: 3, end: 2 };
        assert!(check_part(&backwards, 5).is_err() && check_part(&(3..6), 5).is_err());
        assert!(check_alike(&(2..4), 3, &(8..10)).is_ok() && check_alike(&(2..4), 3, &(8..11)).is_err());
    }
}
