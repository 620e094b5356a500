//! [`PackPlan`]: how rows are packed; and the fields of their batches: token ids as inputs and targets in one
//! column, and numbers about each input.
//!
//! A row of `seq_len + 1` tokens gives `seq_len` inputs and, shifted by one token, as many targets; all
//! inputs of a batch precede all targets. Each token is written into both halves, directly in its final type.

use std::{ops::Range, sync::Arc};

use super::SourceMix;
use crate::{
    Result,
    fields::{Buffer, Column, ColumnPool, Columns, DataType, Element, Field},
    pack::{CropRule, LongRule, MASKED, Packer},
};

#[derive(Debug, Clone)]
pub struct PackPlan {
    /// T, the number of inputs of a row.
    pub seq_len: usize,
    /// The id that begins each document.
    pub bos: u32,
    /// The id that ends each document, if any.
    pub eos: Option<u32>,
    /// Whether the rest of a cropped document is dropped or carried over, or rows are padded.
    pub crop: CropRule,
    /// The id after the documents of a padded row.
    pub pad: u32,
    /// The least number of documents that a packer holds before each pick.
    pub buffer_size: usize,
    /// The number of documents by which a packer is refilled.
    pub unit: usize,
    /// Whether documents come in another order than that of their row groups; then units may cross row
    /// groups.
    pub is_mixed: bool,
    /// The first row of each row group, in rising order, then the total number of rows.
    pub groups: Arc<[u64]>,
    /// The type of ids in a batch: `int64`, which PyTorch's losses and embeddings take, `int32`, or `uint16`
    /// for vocabularies of at most 65 536.
    pub id_type: DataType,
    pub extras: Extras,
    pub loss: LossPlan,
    /// The sources, if there are several.
    pub mix: SourceMix,
    /// The most documents in the inputs of a batch, if `cu_seqlens` has the same length in all batches.
    pub max_documents: Option<usize>,
    /// Each document begins at a multiple of this number of inputs, which divides `seq_len`.
    pub pad_multiple: usize,
    /// Whether each document is a pair of which each has a row of its own: the first ones have the first rows
    /// of a batch, the second ones the others.
    pub is_paired: bool,
}

/// Which targets count in the loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LossPlan {
    /// Whether tokens may be masked ([`MASKED`]); their targets are -100.
    pub is_masked: bool,
    /// Whether tokens have weights, which are a field of the batch.
    pub is_weighted: bool,
    /// Whether the BOS of the next document is the target of a document's last token; else that is -100.
    pub across: bool,
}

impl Default for LossPlan {
    fn default() -> Self {
        Self { is_masked: false, is_weighted: false, across: true }
    }
}

impl LossPlan {
    /// Whether targets may be -100, which unsigned ids cannot hold.
    pub fn ignores(self) -> bool {
        self.is_masked || !self.across
    }
}

impl PackPlan {
    pub(super) fn packer(&self) -> Packer {
        // The packer writes this BOS, no source has it: it is not trained on.
        let bos = if self.loss.is_masked { self.bos | MASKED } else { self.bos };
        let packer = Packer::new(self.capacity(), bos, self.crop);
        if self.loss.is_weighted { packer.with_weights() } else { packer }
    }

    /// The number of tokens of a row: one more than inputs; of both rows of a pair.
    pub fn capacity(&self) -> usize {
        self.n_sides() * self.row_tokens()
    }

    /// The number of tokens of one row.
    pub fn row_tokens(&self) -> usize {
        self.seq_len + 1
    }

    /// Cuts both documents of a pair to a row, if that is the rule; returns how many tokens that removes.
    pub(super) fn cut_pair(&self, ids: &mut Vec<u32>, second: &mut usize) -> u64 {
        let (before, most) = (ids.len(), self.row_tokens());
        if self.is_paired && self.crop == CropRule::Pad(LongRule::Cut) {
            ids.drain(most.min(*second)..*second);
            *second = most.min(*second);
            ids.truncate(*second + most);
        }
        (before - ids.len()) as u64
    }

    /// Whether both documents of a pair fit a row, with a target each that is trained on. Without a loss for
    /// one of them the other says nothing.
    pub(super) fn has_room(&self, ids: &[u32], second: usize) -> bool {
        if !self.is_paired {
            return true;
        }
        let (first, second) = ids.split_at(second);
        [first, second]
            .iter()
            .all(|ids| ids.len() <= self.row_tokens() && ids.iter().skip(1).any(|id| id & MASKED == 0))
    }

    /// The rows that each row of the engine has.
    pub fn n_sides(&self) -> usize {
        1 + usize::from(self.is_paired)
    }
}

/// The target of a token that has none, as losses of PyTorch and transformers ignore it.
const IGNORED: i32 = -100;

/// Additional outputs about the documents in a batch's inputs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Extras {
    /// The number of each input's document in its row.
    pub doc_ids: bool,
    /// The index of each input in its document's part.
    pub position_ids: bool,
    /// Where the parts begin, counted over all rows in order.
    pub cu_seqlens: bool,
    /// Which documents the parts are from.
    pub documents: bool,
    /// The number of each input's source.
    pub source: bool,
}

/// The fields of a batch: `ids`, with two halves, `inputs` and `targets`; then those of `extras` that have a
/// number per input, and the weights of targets.
pub fn token_fields(plan: &PackPlan) -> Vec<Field> {
    let seq_len = (plan.n_sides() * plan.seq_len) as u64;
    let mut fields = vec![Field::stacked("ids", plan.id_type, [2, seq_len])];
    let Extras { doc_ids, position_ids, source, .. } = plan.extras;
    for (name, is_wanted) in [("doc_ids", doc_ids), ("position_ids", position_ids), ("source", source)] {
        if is_wanted {
            fields.push(Field::stacked(name, DataType::Int32, [seq_len]));
        }
    }
    if plan.loss.is_weighted {
        fields.push(Field::stacked("weights", DataType::Float32, [seq_len]));
    }
    fields
}

#[derive(Debug)]
pub(super) struct PackedFields {
    columns: Vec<Column>,
    extras: Extras,
    loss: LossPlan,
    id_type: DataType,
    shape: BatchShape,
}

/// Rows and inputs of a full batch.
#[derive(Debug, Clone, Copy)]
struct BatchShape {
    rows: usize,
    seq_len: usize,
}

impl PackedFields {
    /// Takes memory for `rows` rows, from a pool of [`token_fields`].
    pub(super) fn acquire(plan: &PackPlan, rows: usize, pool: &ColumnPool) -> Result<Self> {
        let column = |(number, field): (usize, &Field)| {
            let mut values = pool.acquire(number, 0)?;
            values.truncate(field.row_bytes().unwrap_or_default() * rows);
            Ok(Column { values, ..Column::default() })
        };
        let columns = pool.fields().iter().enumerate().map(column).collect::<Result<_>>()?;
        let shape = BatchShape { rows: plan.n_sides() * rows, seq_len: plan.seq_len };
        Ok(Self { columns, extras: plan.extras, loss: plan.loss, id_type: plan.id_type, shape })
    }

    /// Writes a part of a document, the `nth` of its row, from `column` on.
    pub(super) fn write(&mut self, row: usize, column: usize, nth: i32, tokens: &[u32], weights: &[f32]) {
        let (shape, loss) = (self.shape, self.loss);
        if loss.is_weighted {
            self.write_weights(row, column, tokens, weights);
        }
        let [ids, beside @ ..] = &mut self.columns[..] else { return };
        let ids = &mut ids.values;
        // Ids fit their type: each was checked when its document was encoded.
        match (self.id_type, loss.is_masked) {
            (DataType::Int64, false) => {
                write(ids.values_mut(), shape, row, column, tokens, (i64::from, i64::from))
            }
            (DataType::Int32, false) => {
                write(ids.values_mut(), shape, row, column, tokens, (|id| id as i32, |id| id as i32))
            }
            (_, false) => {
                write(ids.values_mut(), shape, row, column, tokens, (|id| id as u16, |id| id as u16))
            }
            (DataType::Int64, true) => write(
                ids.values_mut(),
                shape,
                row,
                column,
                tokens,
                (|id| i64::from(id & !MASKED), |id| target(id).into()),
            ),
            (_, true) => {
                write(ids.values_mut(), shape, row, column, tokens, (|id| (id & !MASKED) as i32, target))
            }
        }
        if !loss.across && column > 0 {
            // The BOS as the target of the document before.
            let at = (shape.rows + row) * shape.seq_len + column - 1;
            match self.id_type {
                DataType::Int64 => ids.values_mut::<i64>()[at] = IGNORED.into(),
                _ => ids.values_mut::<i32>()[at] = IGNORED,
            }
        }
        // The last token of a row is only a target and has no place among the inputs.
        let inputs = row * shape.seq_len..(row + 1) * shape.seq_len;
        let begin = (inputs.start + column).min(inputs.end);
        let inputs = begin..(begin + tokens.len()).min(inputs.end);
        let mut beside = beside.iter_mut().map(|column| column.values.values_mut::<i32>());
        if let Some(doc_ids) = self.extras.doc_ids.then(|| beside.next()).flatten() {
            doc_ids[inputs.clone()].fill(nth);
        }
        if let Some(position_ids) = self.extras.position_ids.then(|| beside.next()).flatten() {
            position_ids[inputs].iter_mut().zip(0..).for_each(|(place, position)| *place = position);
        }
    }

    /// Writes the weights of the targets of a part; 0 for those that are ignored.
    fn write_weights(&mut self, row: usize, column: usize, tokens: &[u32], weights: &[f32]) {
        let (BatchShape { seq_len, .. }, across) = (self.shape, self.loss.across);
        let Some(field) = self.columns.last_mut() else { return };
        let places = &mut field.values.values_mut::<f32>()[row * seq_len..(row + 1) * seq_len];
        let skipped = usize::from(column == 0);
        let tokens = tokens.iter().zip(weights).skip(skipped);
        for (place, (id, weight)) in places[column + skipped - 1..].iter_mut().zip(tokens) {
            *place = if id & MASKED == 0 { *weight } else { 0.0 };
        }
        if !across && column > 0 {
            places[column - 1] = 0.0;
        }
    }

    /// The input at `column` has no target.
    pub(super) fn ignore_target(&mut self, row: usize, column: usize) {
        let at = (self.shape.rows + row) * self.shape.seq_len + column;
        let ids = &mut self.columns[0].values;
        match self.id_type {
            DataType::Int64 => ids.values_mut::<i64>()[at] = IGNORED.into(),
            _ => ids.values_mut::<i32>()[at] = IGNORED,
        }
        self.clear_weights(row, column..column + 1);
    }

    /// The targets of these inputs of a row have no weight.
    fn clear_weights(&mut self, row: usize, columns: Range<usize>) {
        if self.loss.is_weighted
            && let Some(weights) = self.columns.last_mut()
        {
            let begin = row * self.shape.seq_len;
            weights.values.values_mut::<f32>()[begin + columns.start..begin + columns.end].fill(0.0);
        }
    }

    /// Pads these columns of a row, which do not begin with 0. They are of part `nth`, from `position` on.
    pub(super) fn pad(&mut self, row: usize, columns: Range<usize>, (nth, position): (i32, i32), id: u32) {
        self.clear_weights(row, columns.start - 1..columns.end - 1);
        let BatchShape { rows, seq_len } = self.shape;
        let [ids, beside @ ..] = &mut self.columns[..] else { return };
        let inputs = row * seq_len + columns.start.min(seq_len)..row * seq_len + columns.end.min(seq_len);
        // The last token before them has no target.
        let first_target = (rows + row) * seq_len;
        let targets = first_target + columns.start - 1..first_target + columns.end - 1;
        let ids = &mut ids.values;
        match self.id_type {
            DataType::Int64 => {
                ids.values_mut::<i64>()[inputs.clone()].fill(id.into());
                ids.values_mut::<i64>()[targets].fill(IGNORED.into());
            }
            _ => {
                ids.values_mut::<i32>()[inputs.clone()].fill(id as i32);
                ids.values_mut::<i32>()[targets].fill(IGNORED);
            }
        }
        let mut beside = beside.iter_mut().map(|column| column.values.values_mut::<i32>());
        if let Some(doc_ids) = self.extras.doc_ids.then(|| beside.next()).flatten() {
            doc_ids[inputs.clone()].fill(nth);
        }
        if let Some(position_ids) = self.extras.position_ids.then(|| beside.next()).flatten() {
            position_ids[inputs].iter_mut().zip(position..).for_each(|(place, position)| *place = position);
        }
    }

    /// Writes the source of the part of `len` tokens from `column` on; -1 for padding.
    pub(super) fn mark_source(&mut self, row: usize, column: usize, len: usize, source: i32) {
        // Weights are behind it.
        let at = self.columns.len() - 1 - usize::from(self.loss.is_weighted);
        if let (true, Some(sources)) = (self.extras.source, self.columns.get_mut(at)) {
            let seq_len = self.shape.seq_len;
            let inputs = column.min(seq_len)..(column + len).min(seq_len);
            sources.values.values_mut::<i32>()[row * seq_len..][inputs].fill(source);
        }
    }

    /// Keeps only the rows for which `keep` holds, in both halves.
    pub(super) fn keep(&mut self, keep: impl Fn(usize) -> bool) {
        let BatchShape { rows, seq_len } = self.shape;
        let [ids, beside @ ..] = &mut self.columns[..] else { return };
        compact(&mut ids.values, 2, rows, seq_len * self.id_type.bytes(), &keep);
        for column in beside {
            compact(&mut column.values, 1, rows, seq_len * DataType::Int32.bytes(), &keep);
        }
    }

    /// The finished batch of `rows` rows.
    pub(super) fn finish(self, rows: usize) -> Columns {
        Columns { rows, columns: self.columns }
    }
}

/// The target that a token is.
fn target(id: u32) -> i32 {
    if id & MASKED == 0 { id as i32 } else { IGNORED }
}

/// Writes tokens as inputs and as targets, by a conversion for each.
fn write<T: Element>(
    ids: &mut [T],
    BatchShape { rows, seq_len }: BatchShape,
    row: usize,
    column: usize,
    tokens: &[u32],
    (input, target): (impl Fn(u32) -> T, impl Fn(u32) -> T),
) {
    let (inputs, targets) = ids.split_at_mut(rows * seq_len);
    // The last token of a row is only a target, the first one only an input.
    let places = &mut inputs[row * seq_len..(row + 1) * seq_len][column.min(seq_len)..];
    places.iter_mut().zip(tokens).for_each(|(place, &id)| *place = input(id));
    let skipped = usize::from(column == 0);
    let places = &mut targets[row * seq_len..(row + 1) * seq_len][column + skipped - 1..];
    let tokens = &tokens[skipped.min(tokens.len())..];
    places.iter_mut().zip(tokens).for_each(|(place, &id)| *place = target(id));
}

/// Keeps only the rows for which `keep` holds, in each of the `n_parts` parts of a buffer; each part has
/// `rows` rows.
fn compact(buffer: &mut Buffer, n_parts: usize, rows: usize, row_bytes: usize, keep: impl Fn(usize) -> bool) {
    let bytes = buffer.values_mut::<u8>();
    let mut end = 0;
    for row in (0..n_parts * rows).filter(|row| keep(row % rows)) {
        bytes.copy_within(row * row_bytes..(row + 1) * row_bytes, end);
        end += row_bytes;
    }
    buffer.truncate(end);
}
