//! Recordings that a batch has as lists: where their numbers are, and what they make.

use std::ops::Range;

use bytes::Bytes;

use super::{array::Array, buffer::ValueBytes, index::BatchIndex, shard::OpenShard};
use crate::{
    Result,
    columns::{ArrayColumns, whole},
    fields::Value,
    lists::{ListItem, ListRate, ListValues, check_alike, check_channels, check_part, null_inside, row_rate},
    memory_permits::{MemoryPermits, covered},
};

/// The arrays of the lists of a batch.
#[derive(Debug)]
pub(super) struct ListArrays {
    outer: ArrayOfLists,
    /// Of lists of lists, the inner ones and how many there are.
    inner: Option<(ArrayOfLists, u64)>,
    items: Array,
    n_items: u64,
    item: ListItem,
    rate: RowRate,
}

/// Lists, and the length of each if all have the same.
#[derive(Debug)]
struct ArrayOfLists(Array, Option<u64>);

#[derive(Debug)]
enum RowRate {
    Known(u32),
    Array(Array),
}

impl ArrayOfLists {
    /// The items of the list at `row`, of which there are `n`; `None` if it is null.
    fn part(&mut self, shard: &OpenShard, row: u64, n: u64) -> Result<Option<Range<u64>>> {
        if !self.0.is_valid(shard, row)? {
            return Ok(None);
        }
        let part = match self.1 {
            Some(fixed) => row.saturating_mul(fixed)..row.saturating_add(1).saturating_mul(fixed),
            None => self.0.range(shard, row).map(|(start, end)| start..end)?,
        };
        check_part(&part, n)?;
        Ok(Some(part))
    }
}

impl ListArrays {
    /// The arrays of batch number `at`; `None` if the columns have no recordings as lists.
    pub(super) fn new(columns: &ArrayColumns, batch: &BatchIndex, at: usize) -> Option<Self> {
        let lists = columns.lists.as_ref()?;
        let array = |which: usize| {
            Array::new(&columns.arrays[which].layout, &batch.arrays[which], batch.codec, Some(at))
        };
        let mut levels = lists
            .levels
            .iter()
            .map(|&(which, fixed)| (ArrayOfLists(array(which), fixed), batch.arrays[which].n_values));
        let (outer, _) = levels.next()?;
        Some(Self {
            outer,
            inner: levels.next(),
            items: array(lists.items),
            n_items: batch.arrays[lists.items].n_values,
            item: lists.item,
            rate: match lists.rate {
                Some(ListRate::Array(which)) => RowRate::Array(array(which)),
                Some(ListRate::Known(rate)) => RowRate::Known(rate),
                None => RowRate::Known(0),
            },
        })
    }

    pub(super) fn arrays(&self) -> impl Iterator<Item = &Array> {
        let rate = if let RowRate::Array(rate) = &self.rate { Some(rate) } else { None };
        let inner = self.inner.as_ref().map(|(lists, _)| &lists.0);
        [&self.outer.0, &self.items].into_iter().chain(inner).chain(rate)
    }

    pub(super) fn items(&self) -> &Array {
        &self.items
    }

    /// Whether the lists are samples, and not the bytes of files.
    pub(super) fn has_samples(&self) -> bool {
        self.item != ListItem::Byte
    }

    /// The place of a row's numbers, or these; `None` if the row is null.
    pub(super) fn part(&mut self, shard: &OpenShard, row: u64) -> Result<Option<ValueBytes>> {
        let Some((part, _)) = self.place(shard, row)? else { return Ok(None) };
        self.items.values(shard, part.start, part.end - part.start, self.item.width()).map(Some)
    }

    /// The recording whose numbers are `numbers`, the bytes at [`Self::part`].
    ///
    /// # Errors
    /// As [`ListValues::recording`]; [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) for a null among them,
    /// or for a rate that is none.
    pub(super) fn recording(
        &mut self,
        shard: &OpenShard,
        row: u64,
        numbers: Bytes,
        permits: &MemoryPermits,
    ) -> Result<Bytes> {
        let Some((part, channels)) = self.place(shard, row)? else { return Ok(numbers) };
        if self.items.any_null(shard, part.start, part.end - part.start)? {
            return Err(null_inside());
        }
        if !self.has_samples() {
            return Ok(numbers);
        }
        let rate = match &mut self.rate {
            RowRate::Known(rate) => *rate,
            RowRate::Array(rate) => row_rate(&rate.int(shard, row)?.map_or(Ok(Value::Null), whole)?)?,
        };
        let values = ListValues { numbers: &numbers, item: self.item, channels, rate };
        let permit = permits.admit(values.n_bytes())?;
        Ok(covered(values.recording()?, permit))
    }

    /// The numbers of a row among those of the batch, and of how many channels they are.
    fn place(&mut self, shard: &OpenShard, row: u64) -> Result<Option<(Range<u64>, u64)>> {
        let n = self.inner.as_ref().map_or(self.n_items, |(_, n)| *n);
        let Some(part) = self.outer.part(shard, row, n)? else { return Ok(None) };
        let Some((inner, _)) = &mut self.inner else { return Ok(Some((part, 1))) };
        let channels = part.end - part.start;
        check_channels(channels)?;
        let mut first = 0..0;
        for at in part.clone() {
            let channel = inner.part(shard, at, self.n_items)?.ok_or_else(null_inside)?;
            if at == part.start {
                first = channel.clone();
            }
            check_alike(&first, at - part.start, &channel)?;
        }
        Ok(Some((first.start..first.start + (first.end - first.start) * channels, channels)))
    }
}
