//! Reads single values of one column of one batch.
//!
//! An [`Array`] owns its buffers and, for a dictionary, the parts that its indices have referred to so far. A
//! value is an integer, or the range of its bytes; nulls are `None`.
//!
//! Source: Arrow columnar format, "Physical memory layout": validity bitmaps, variable-size binary, views,
//! dictionaries.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use half::f16;

use super::{
    buffer::{ArrowBuffer, ValueBytes},
    message::BodyCodec,
    shard::OpenShard,
    spans::{ArraySpans, Span},
};
use crate::{
    Error, ErrorKind, Result,
    columns::{ValueLayout, check_text},
};

/// The most buffers of an array that is not one of views.
const FIRST: usize = 3;

/// A column of a batch, or the values of a dictionary.
#[derive(Debug)]
pub(crate) struct Array {
    layout: ValueLayout,
    spans: Arc<[Span]>,
    codec: Option<BodyCodec>,
    /// The first [`FIRST`] buffers: all of them, except for an array of views.
    buffers: Vec<ArrowBuffer>,
    /// The further ones used so far, by their numbers. A batch may have a million.
    further: BTreeMap<usize, ArrowBuffer>,
    /// The batch whose dictionaries apply; None for the values of a dictionary.
    batch: Option<usize>,
    /// The parts of its dictionary used so far, by their numbers.
    parts: BTreeMap<usize, Array>,
}

impl Array {
    /// The array at `spans`, in batch `batch` or among the values of a dictionary.
    pub(crate) fn new(
        layout: &ValueLayout,
        spans: &ArraySpans,
        codec: Option<BodyCodec>,
        batch: Option<usize>,
    ) -> Self {
        let buffers = spans.buffers.iter().take(FIRST).map(|span| ArrowBuffer::new(*span, codec)).collect();
        Self {
            layout: layout.clone(),
            spans: Arc::clone(&spans.buffers),
            codec,
            buffers,
            further: BTreeMap::new(),
            batch,
            parts: BTreeMap::new(),
        }
    }

    /// Whether any of its memory was granted by a permit.
    pub(crate) fn is_granted(&self) -> bool {
        self.any(&|buffer| buffer.grant().is_some())
    }

    /// Whether any of its memory was granted for one row only.
    pub(crate) fn is_for_one_row(&self) -> bool {
        self.any(&|buffer| buffer.grant() == Some(false))
    }

    fn any(&self, test: &dyn Fn(&ArrowBuffer) -> bool) -> bool {
        self.buffers.iter().chain(self.further.values()).any(test)
            || self.parts.values().any(|part| part.any(test))
    }

    /// Whether the value is not null.
    pub(crate) fn is_valid(&mut self, shard: &OpenShard, row: u64) -> Result<bool> {
        match self.buffers.first_mut() {
            None => Ok(false),
            Some(validity) if validity.is_absent() => Ok(true),
            Some(validity) => bit(validity, shard, row),
        }
    }

    /// The integer at `row`; None if it is null.
    pub(crate) fn int(&mut self, shard: &OpenShard, row: u64) -> Result<Option<i128>> {
        if !self.is_valid(shard, row)? {
            return Ok(None);
        }
        match self.layout {
            ValueLayout::Bool => Ok(Some(i128::from(bit(self.buffer(1)?, shard, row)?))),
            ValueLayout::Int { width, signed } => self.stored_int(shard, row, width, signed).map(Some),
            ValueLayout::Dictionary { width, signed, .. } => {
                let index = self.stored_int(shard, row, width, signed)?;
                let (values, row) = self.look_up(shard, index)?;
                values.int(shard, row)
            }
            _ => Err(Error::new(ErrorKind::Schema, "the column holds no integers")),
        }
    }

    /// The floating-point number at `row`; None if it is null.
    pub(crate) fn float(&mut self, shard: &OpenShard, row: u64) -> Result<Option<f64>> {
        if !self.is_valid(shard, row)? {
            return Ok(None);
        }
        match self.layout {
            ValueLayout::Float { width } => {
                let at = place(row, width)?;
                let values = self.buffer(1)?;
                Ok(Some(match width {
                    2 => f16::from_le_bytes(values.get(shard, at)?).to_f64(),
                    4 => f32::from_le_bytes(values.get(shard, at)?).into(),
                    _ => f64::from_le_bytes(values.get(shard, at)?),
                }))
            }
            ValueLayout::Dictionary { width, signed, .. } => {
                let index = self.stored_int(shard, row, width, signed)?;
                let (values, row) = self.look_up(shard, index)?;
                values.float(shard, row)
            }
            _ => Err(Error::new(ErrorKind::Schema, "the column holds no floating-point numbers")),
        }
    }

    /// The items of the list at `row`, which is not null.
    pub(crate) fn range(&mut self, shard: &OpenShard, row: u64) -> Result<(u64, u64)> {
        match self.layout {
            ValueLayout::Offsets { width } => self.offsets(shard, row, width),
            _ => Err(Error::new(ErrorKind::Schema, "the column holds no lists")),
        }
    }

    /// The place of `n` values of `width` bytes each from `row` on, or these bytes.
    pub(crate) fn values(&mut self, shard: &OpenShard, row: u64, n: u64, width: usize) -> Result<ValueBytes> {
        let len = n.checked_mul(width as u64).ok_or_else(|| impossible(row))?;
        self.buffer(1)?.part(shard, place(row, width)?, len)
    }

    /// Whether any of the values from `row` on is null, up to `n` of them.
    pub(crate) fn any_null(&mut self, shard: &OpenShard, row: u64, n: u64) -> Result<bool> {
        if self.buffers.first().is_none_or(ArrowBuffer::is_absent) {
            return Ok(false);
        }
        for row in row..row.saturating_add(n) {
            if !self.is_valid(shard, row)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The bytes of a short text at `row`, which are read together with their neighbours; None if it is
    /// null.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] for a long text.
    pub(crate) fn text(&mut self, shard: &OpenShard, row: u64) -> Result<Option<Bytes>> {
        self.text_within(shard, row, &check_text)
    }

    /// The same for a text whose length `check` allows.
    ///
    /// # Errors
    /// Those of `check`.
    pub(crate) fn text_within(
        &mut self,
        shard: &OpenShard,
        row: u64,
        check: &dyn Fn(u64) -> Result<()>,
    ) -> Result<Option<Bytes>> {
        if let ValueLayout::Dictionary { width, signed, .. } = self.layout {
            if !self.is_valid(shard, row)? {
                return Ok(None);
            }
            let index = self.stored_int(shard, row, width, signed)?;
            let (values, row) = self.look_up(shard, index)?;
            return values.text_within(shard, row, check);
        }
        match self.bytes(shard, row)? {
            None => Ok(None),
            Some(ValueBytes::Memory(bytes)) => {
                check(bytes.len() as u64)?;
                Ok(Some(bytes))
            }
            Some(ValueBytes::File(span)) => {
                check(span.len).map_err(|error| error.at_byte(span.at))?;
                let buffers = self.buffers.iter_mut().chain(self.further.values_mut());
                for buffer in buffers {
                    if let Some(bytes) = buffer.near(shard, span)? {
                        return Ok(Some(bytes));
                    }
                }
                Err(Error::new(ErrorKind::Corrupt, "a text lies in no buffer of its column"))
            }
        }
    }

    /// Whether the value is not null, also in the dictionary to which it refers.
    pub(crate) fn has_value(&mut self, shard: &OpenShard, row: u64) -> Result<bool> {
        if !self.is_valid(shard, row)? {
            return Ok(false);
        }
        match self.layout {
            ValueLayout::Dictionary { width, signed, .. } => {
                let index = self.stored_int(shard, row, width, signed)?;
                let (values, row) = self.look_up(shard, index)?;
                values.is_valid(shard, row)
            }
            _ => Ok(true),
        }
    }

    /// The range of the bytes at `row`, or the bytes; None if they are null.
    pub(crate) fn bytes(&mut self, shard: &OpenShard, row: u64) -> Result<Option<ValueBytes>> {
        if !self.is_valid(shard, row)? {
            return Ok(None);
        }
        match self.layout {
            ValueLayout::Offsets { width } => {
                let (start, end) = self.offsets(shard, row, width)?;
                let len = end.checked_sub(start).ok_or_else(|| {
                    Error::new(
                        ErrorKind::Corrupt,
                        format!("the offsets of a value decrease, from {start} to {end}"),
                    )
                })?;
                self.buffer(2)?.part(shard, start, len).map(Some)
            }
            ValueLayout::Views => self.view(shard, row).map(Some),
            ValueLayout::FixedBytes { width } => self.values(shard, row, 1, width).map(Some),
            ValueLayout::Dictionary { width, signed, .. } => {
                let index = self.stored_int(shard, row, width, signed)?;
                let (values, row) = self.look_up(shard, index)?;
                values.bytes(shard, row)
            }
            _ => Err(Error::new(ErrorKind::Schema, "the column holds no bytes")),
        }
    }

    fn offsets(&mut self, shard: &OpenShard, row: u64, width: usize) -> Result<(u64, u64)> {
        let at = place(row, width)?;
        let offsets = self.buffer(1)?;
        let (start, end) = if width == 4 {
            let start = i32::from_le_bytes(offsets.get(shard, at)?);
            (i64::from(start), i64::from(i32::from_le_bytes(offsets.get(shard, at.saturating_add(4))?)))
        } else {
            let start = i64::from_le_bytes(offsets.get(shard, at)?);
            (start, i64::from_le_bytes(offsets.get(shard, at.saturating_add(8))?))
        };
        u64::try_from(start).ok().zip(u64::try_from(end).ok()).ok_or_else(|| {
            Error::new(
                ErrorKind::Corrupt,
                format!("the offsets of a value are negative, from {start} to {end}"),
            )
        })
    }

    /// Reads a view: the length, then the bytes themselves if they are at most 12, else a prefix, a buffer
    /// and an offset.
    fn view(&mut self, shard: &OpenShard, row: u64) -> Result<ValueBytes> {
        let view: [u8; 16] = self.buffer(1)?.get(shard, place(row, 16)?)?;
        let word = |at: usize| i32::from_le_bytes([view[at], view[at + 1], view[at + 2], view[at + 3]]);
        let wrong = || {
            Error::new(
                ErrorKind::Corrupt,
                format!("a view has an impossible length, buffer or offset: {view:02x?}"),
            )
        };
        let len = usize::try_from(word(0)).map_err(|_| wrong())?;
        if len <= 12 {
            return Ok(ValueBytes::Memory(Bytes::copy_from_slice(&view[4..4 + len])));
        }
        let index = usize::try_from(word(8)).ok().and_then(|index| index.checked_add(2)).ok_or_else(wrong)?;
        let offset = u64::try_from(word(12)).map_err(|_| wrong())?;
        self.buffer(index).map_err(|_| wrong())?.part(shard, offset, len as u64)
    }

    fn stored_int(&mut self, shard: &OpenShard, row: u64, width: usize, signed: bool) -> Result<i128> {
        let at = place(row, width)?;
        let values = self.buffer(1)?;
        Ok(match (width, signed) {
            (1, true) => i8::from_le_bytes(values.get(shard, at)?).into(),
            (1, false) => u8::from_le_bytes(values.get(shard, at)?).into(),
            (2, true) => i16::from_le_bytes(values.get(shard, at)?).into(),
            (2, false) => u16::from_le_bytes(values.get(shard, at)?).into(),
            (4, true) => i32::from_le_bytes(values.get(shard, at)?).into(),
            (4, false) => u32::from_le_bytes(values.get(shard, at)?).into(),
            (_, true) => i64::from_le_bytes(values.get(shard, at)?).into(),
            (_, false) => u64::from_le_bytes(values.get(shard, at)?).into(),
        })
    }

    /// The part of the dictionary that holds value `index`, and the value's index in it.
    fn look_up(&mut self, shard: &OpenShard, index: i128) -> Result<(&mut Self, u64)> {
        let (ValueLayout::Dictionary { id, values, .. }, Some(batch)) = (&self.layout, self.batch) else {
            return Err(Error::new(ErrorKind::Schema, "a dictionary of dictionaries is not supported"));
        };
        let (number, part, row) = shard.index.dictionaries.find(*id, batch, index)?;
        let part =
            self.parts.entry(number).or_insert_with(|| Self::new(values, &part.values, part.codec, None));
        Ok((part, row))
    }

    fn buffer(&mut self, at: usize) -> Result<&mut ArrowBuffer> {
        let lacks = || Error::new(ErrorKind::Corrupt, "a column lacks a buffer");
        if at < FIRST {
            return self.buffers.get_mut(at).ok_or_else(lacks);
        }
        let span = self.spans.get(at).ok_or_else(lacks)?;
        Ok(self.further.entry(at).or_insert_with(|| ArrowBuffer::new(*span, self.codec)))
    }
}

fn bit(buffer: &mut ArrowBuffer, shard: &OpenShard, row: u64) -> Result<bool> {
    let [byte] = buffer.get(shard, row / 8)?;
    Ok(byte >> (row % 8) & 1 == 1)
}

fn place(row: u64, width: usize) -> Result<u64> {
    row.checked_mul(width as u64).ok_or_else(|| impossible(row))
}

fn impossible(row: u64) -> Error {
    Error::new(ErrorKind::Corrupt, format!("an impossible row {row}"))
}
