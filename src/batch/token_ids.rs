//! The memory of batches of packed rows: token ids as inputs and as targets in one field, and what is told beside of each input.
//!
//! A row of `seq_len + 1` tokens gives `seq_len` inputs and, one token on, as many targets; all inputs lie in front of all targets. A
//! token is written once into each half, already in the type in which it is handed out. Memory goes round by a [`TokenPool`].

use super::{
    Element,
    field::{Field, FieldPool},
    tokens::{Extras, PackPlan},
};
use crate::Result;

/// How token ids are handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdType {
    /// What PyTorch's losses and embeddings take.
    Int64,
    /// Half of it.
    Int32,
    /// A quarter, for vocabularies of at most 65 536.
    Uint16,
}

/// `[2, rows, seq_len]`, inputs and targets.
#[derive(Debug)]
pub enum Ids {
    /// For [`IdType::Int64`].
    Int64(Field<i64>),
    /// For [`IdType::Int32`].
    Int32(Field<i32>),
    /// For [`IdType::Uint16`].
    Uint16(Field<u16>),
}

/// The memory of batches, for all passes of a loader.
#[derive(Debug)]
pub struct TokenPool {
    pool: IdPool,
    /// For what is told beside of each input.
    per_input: FieldPool<i32>,
    shape: Shape,
    slots: usize,
}

#[derive(Debug)]
enum IdPool {
    Int64(FieldPool<i64>),
    Int32(FieldPool<i32>),
    Uint16(FieldPool<u16>),
}

/// Rows and inputs of a full batch.
#[derive(Debug, Clone, Copy)]
struct Shape {
    rows: usize,
    seq_len: usize,
}

impl TokenPool {
    /// For batches of `rows` planned rows; of at most `slots` batches that are gone the memory is kept.
    pub fn new(plan: &PackPlan, rows: usize, slots: usize) -> Self {
        let inputs = rows.saturating_mul(plan.seq_len);
        let len = inputs.saturating_mul(2);
        let pool = match plan.id_type {
            IdType::Int64 => IdPool::Int64(FieldPool::new(len, slots)),
            IdType::Int32 => IdPool::Int32(FieldPool::new(len, slots)),
            IdType::Uint16 => IdPool::Uint16(FieldPool::new(len, slots)),
        };
        let shape = Shape { rows, seq_len: plan.seq_len };
        Self { pool, per_input: FieldPool::new(inputs, 2 * slots), shape, slots }
    }

    /// Whether it serves such batches.
    pub fn fits(&self, rows: usize, slots: usize) -> bool {
        self.shape.rows == rows && self.slots >= slots
    }

    /// Memory for a batch.
    pub(super) fn acquire(&self, extras: Extras) -> Result<TokenFields> {
        let ids = match &self.pool {
            IdPool::Int64(pool) => Ids::Int64(pool.acquire()?),
            IdPool::Int32(pool) => Ids::Int32(pool.acquire()?),
            IdPool::Uint16(pool) => Ids::Uint16(pool.acquire()?),
        };
        let per_input = |is_wanted: bool| is_wanted.then(|| self.per_input.acquire()).transpose();
        Ok(TokenFields {
            ids,
            doc_ids: per_input(extras.doc_ids)?,
            position_ids: per_input(extras.position_ids)?,
            shape: self.shape,
        })
    }
}

/// The memory of one batch.
#[derive(Debug)]
pub(super) struct TokenFields {
    pub(super) ids: Ids,
    pub(super) doc_ids: Option<Field<i32>>,
    pub(super) position_ids: Option<Field<i32>>,
    shape: Shape,
}

impl Default for TokenFields {
    /// Those of a batch without rows.
    fn default() -> Self {
        Self {
            ids: Ids::Int64(Field::default()),
            doc_ids: None,
            position_ids: None,
            shape: Shape { rows: 0, seq_len: 0 },
        }
    }
}

impl TokenFields {
    /// Writes a part of a document, the `nth` of its row, from `column` on.
    pub(super) fn write(&mut self, row: usize, column: usize, nth: i32, tokens: &[u32]) {
        let shape = self.shape;
        // A tokenizer's ids were found to fit when the loader was made.
        match &mut self.ids {
            Ids::Int64(field) => write(field, shape, row, column, tokens, i64::from),
            Ids::Int32(field) => write(field, shape, row, column, tokens, |id| id as i32),
            Ids::Uint16(field) => write(field, shape, row, column, tokens, |id| id as u16),
        }
        // What is a target only has no place among the inputs.
        let inputs = row * shape.seq_len..(row + 1) * shape.seq_len;
        let begin = (inputs.start + column).min(inputs.end);
        let inputs = begin..(begin + tokens.len()).min(inputs.end);
        if let Some(field) = &mut self.doc_ids {
            field[inputs.clone()].fill(nth);
        }
        if let Some(field) = &mut self.position_ids {
            field[inputs].iter_mut().zip(0..).for_each(|(place, position)| *place = position);
        }
    }

    /// Keeps the rows for which `keep` holds, inputs and targets side by side again.
    pub(super) fn keep(&mut self, keep: impl Fn(usize) -> bool) {
        match &mut self.ids {
            Ids::Int64(field) => compact(field, 2, self.shape, &keep),
            Ids::Int32(field) => compact(field, 2, self.shape, &keep),
            Ids::Uint16(field) => compact(field, 2, self.shape, &keep),
        }
        for field in [&mut self.doc_ids, &mut self.position_ids].into_iter().flatten() {
            compact(field, 1, self.shape, &keep);
        }
    }
}

fn write<T>(
    field: &mut [T],
    Shape { rows, seq_len }: Shape,
    row: usize,
    column: usize,
    tokens: &[u32],
    convert: impl Fn(u32) -> T,
) {
    let put = |field: &mut [T], tokens: &[u32]| {
        field.iter_mut().zip(tokens).for_each(|(place, &id)| *place = convert(id));
    };
    let (inputs, targets) = field.split_at_mut(rows * seq_len);
    // The last token of a row is a target only, the first one an input only.
    put(&mut inputs[row * seq_len..(row + 1) * seq_len][column.min(seq_len)..], tokens);
    let skipped = usize::from(column == 0);
    put(
        &mut targets[row * seq_len..(row + 1) * seq_len][column + skipped - 1..],
        &tokens[skipped.min(tokens.len())..],
    );
}

/// Keeps rows of each of so many parts of a field that has all rows in each.
fn compact<T: Element>(
    field: &mut Field<T>,
    n_parts: usize,
    Shape { rows, seq_len }: Shape,
    keep: impl Fn(usize) -> bool,
) {
    let mut end = 0;
    for row in (0..n_parts * rows).filter(|row| keep(row % rows)) {
        field.copy_within(row * seq_len..(row + 1) * seq_len, end);
        end += seq_len;
    }
    field.truncate(end);
}
