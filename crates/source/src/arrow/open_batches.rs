//! The shards and record batches that a reader used last, and the values of a row in one of them.

use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::{
    ArrowSource, array::Array, buffer::ValueBytes, json::JsonArrays, listed::ListArrays, other::OtherArrays,
    shard::OpenShard,
};
use crate::{
    Error, ErrorKind, Result, columns,
    fields::{Row, Value},
    memory_permits::MemoryPermits,
    nested::{NestedColumn, most_json},
    record_rules::NO_LABEL,
};

/// The most open files of a reader; readers share open files.
const OPEN_FILES: usize = 4;
/// The most open batches, and the most if bodies are decompressed.
const OPEN_BATCHES: usize = 8;
const OPEN_COMPRESSED_BATCHES: usize = 2;

/// The last used is first.
#[derive(Debug, Default)]
pub(super) struct OpenBatches {
    shards: Vec<OpenShard>,
    batches: Vec<OpenBatch>,
}

#[derive(Debug)]
pub(super) struct OpenBatch {
    shard: usize,
    first_row: u64,
    pub n_rows: u64,
    is_compressed: bool,
    audio_struct: Option<Array>,
    bytes: Option<Array>,
    lists: Option<ListArrays>,
    messages: Option<JsonArrays>,
    beside: Vec<JsonArrays>,
    path: Option<Array>,
    label: Option<Array>,
    others: Vec<OtherArrays>,
}

/// A row of an open batch.
pub(super) struct OpenRow<'a> {
    pub shard: &'a mut OpenShard,
    pub batch: &'a mut OpenBatch,
    /// Its number in the batch.
    pub row: u64,
}

impl OpenBatches {
    pub(super) fn n_files(&self) -> usize {
        self.shards.len()
    }

    /// Row `local` of a shard. Opens the file and the batch if they are not open.
    pub(super) fn row(
        &mut self,
        source: &ArrowSource,
        shard: usize,
        local: u64,
        permits: &MemoryPermits,
    ) -> Result<OpenRow<'_>> {
        let is_shard = |open: &OpenShard| open.number == shard;
        let open = || {
            let (path, index) = (&source.files.shards[shard].path, &source.indexes[shard]);
            let mut open = source.open.open(shard, &source.files.storage, path, index)?;
            open.permits = permits.clone();
            Ok(open)
        };
        let shard = first_of(&mut self.shards, is_shard, open, |_| OPEN_FILES)?;

        let is_batch = |batch: &OpenBatch| {
            let rows = batch.first_row..batch.first_row + batch.n_rows;
            batch.shard == shard.number && rows.contains(&local)
        };
        let open = || OpenBatch::open(shard, local);
        let most =
            |batch: &OpenBatch| if batch.is_compressed { OPEN_COMPRESSED_BATCHES } else { OPEN_BATCHES };
        let batch = first_of(&mut self.batches, is_batch, open, most)?;
        let row = local - batch.first_row;
        Ok(OpenRow { shard, batch, row })
    }

    /// Closes the batch of the row read last if memory was granted for that row alone: the permit is released
    /// with the batch.
    pub(super) fn release_row_memory(&mut self) {
        let has_granted = self.shards.first().is_some_and(|open| open.has_granted.load(Ordering::Relaxed));
        if has_granted && self.batches.first().is_some_and(OpenBatch::is_for_one_row) {
            self.batches.remove(0);
        }
    }
}

/// The item that `is_it` finds, or a new one, with which there are at most `most`; it moves to the front.
fn first_of<T>(
    items: &mut Vec<T>,
    is_it: impl Fn(&T) -> bool,
    open: impl FnOnce() -> Result<T>,
    most: impl FnOnce(&T) -> usize,
) -> Result<&mut T> {
    match items.iter().position(is_it) {
        Some(at) => items[..=at].rotate_right(1),
        None => {
            let item = open()?;
            items.truncate(most(&item) - 1);
            items.insert(0, item);
        }
    }
    Ok(&mut items[0])
}

impl OpenBatch {
    /// The batch of row `local` of a shard.
    fn open(shard: &OpenShard, local: u64) -> Result<Self> {
        let index = &shard.index;
        let at = index.batch_at(local);
        let (Some(batch), Some(columns)) = (index.batches.get(at), &index.columns) else {
            return Err(Error::new(ErrorKind::Corrupt, "the row is in no batch"));
        };
        let array = |which: Option<usize>| {
            which.map(|which| {
                let (wanted, spans) = (&columns.arrays[which], &batch.arrays[which]);
                Array::new(&wanted.layout, spans, batch.codec, Some(at))
            })
        };
        let json = |column: &NestedColumn| JsonArrays::new(column, columns, batch, at);
        Ok(Self {
            shard: shard.number,
            first_row: batch.first_row,
            n_rows: batch.n_rows,
            is_compressed: batch.codec.is_some(),
            audio_struct: array(columns.audio_struct),
            bytes: array(columns.bytes),
            lists: ListArrays::new(columns, batch, at),
            messages: columns.messages.as_ref().map(json),
            beside: columns.beside.iter().map(json).collect(),
            path: array(columns.path),
            label: array(columns.label),
            others: columns.others.iter().map(|other| OtherArrays::new(other, columns, batch, at)).collect(),
        })
    }

    /// Whether any of its memory was granted for one row only.
    fn is_for_one_row(&self) -> bool {
        let arrays = [&self.audio_struct, &self.bytes, &self.path, &self.label];
        let others = self.others.iter().flat_map(OtherArrays::arrays);
        let others = others.chain(self.lists.iter().flat_map(ListArrays::arrays));
        let others = others.chain(self.messages.iter().chain(&self.beside).flat_map(JsonArrays::arrays));
        arrays.into_iter().flatten().chain(others).any(Array::is_for_one_row)
    }

    /// Whether the audio struct is not null, if the column is a struct; the fields of a null struct have no
    /// meaning.
    fn is_valid(&mut self, shard: &OpenShard, row: u64) -> Result<bool> {
        self.audio_struct.as_mut().map_or(Ok(true), |audio| audio.is_valid(shard, row))
    }

    /// The range of the recording's bytes, or the bytes; None if they are null.
    pub(super) fn payload(&mut self, shard: &OpenShard, row: u64) -> Result<Option<ValueBytes>> {
        if !self.is_valid(shard, row)? {
            return Ok(None);
        }
        if let Some(messages) = &mut self.messages {
            let text = messages.text(shard, row, most_json(shard.max_record_bytes()))?;
            return Ok(text.map(|text| ValueBytes::Memory(text.into())));
        }
        match (&mut self.lists, &mut self.bytes) {
            (Some(lists), _) => lists.part(shard, row),
            (None, bytes) => bytes.as_mut().map_or(Ok(None), |bytes| bytes.bytes(shard, row)),
        }
    }

    /// Whether the memory of its recordings was granted by a permit.
    pub(super) fn is_payload_granted(&self) -> bool {
        let items = self.lists.as_ref().map(ListArrays::items);
        self.bytes.as_ref().or(items).is_some_and(Array::is_granted)
    }

    /// The number of its first row in the shard.
    pub(super) fn first_row(&self) -> u64 {
        self.first_row
    }

    /// Whether its recordings are lists of samples, and not the bytes of files.
    pub(super) fn has_samples(&self) -> bool {
        self.lists.as_ref().is_some_and(ListArrays::has_samples)
    }
}

impl OpenRow<'_> {
    pub(super) fn label(&mut self) -> Result<i64> {
        let Some(label) = &mut self.batch.label else { return Ok(NO_LABEL) };
        match label.int(self.shard, self.row)? {
            None => Ok(NO_LABEL),
            Some(value) => i64::try_from(value).map_err(|_| {
                let message =
                    format!("the label {value} does not fit int64; name another column with label_column=");
                Error::new(ErrorKind::Schema, message)
            }),
        }
    }

    /// As [`OpenBatch::payload`].
    pub(super) fn payload(&mut self) -> Result<Option<ValueBytes>> {
        self.batch.payload(self.shard, self.row)
    }

    /// The recording of a payload: that of the samples, if the batch has lists of them.
    pub(super) fn recording(&mut self, payload: Bytes, permits: &MemoryPermits) -> Result<Bytes> {
        match &mut self.batch.lists {
            Some(lists) => lists.recording(self.shard, self.row, payload, permits),
            None => Ok(payload),
        }
    }

    /// The range of the bytes of the row's path, or the bytes; `None` if it has none.
    pub(super) fn path(&mut self) -> Result<Option<ValueBytes>> {
        if !self.batch.is_valid(self.shard, self.row)? {
            return Ok(None);
        }
        self.batch.path.as_mut().map_or(Ok(None), |path| path.bytes(self.shard, self.row))
    }

    /// The value of one of the other columns.
    pub(super) fn other(&mut self, number: usize) -> Result<Value> {
        let other = self.batch.others.get_mut(number);
        other.map_or(Ok(Value::Null), |other| other.value(self.shard, self.row))
    }

    /// Adds the values beside the messages of a conversation.
    pub(super) fn push_beside(&mut self, values: &mut Row) -> Result<()> {
        for column in &mut self.batch.beside {
            let text = column.text(self.shard, self.row, most_json(self.shard.max_record_bytes()))?;
            values.push(text.map_or(Ok(Value::Null), |text| columns::text(&text))?);
        }
        Ok(())
    }

    /// Adds the values of the other columns.
    pub(super) fn push_others(&mut self, values: &mut Row) -> Result<()> {
        for other in &mut self.batch.others {
            values.push(other.value(self.shard, self.row)?);
        }
        Ok(())
    }
}
