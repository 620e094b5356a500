//! Random access to processed documents: leaves hold rows, views define their order.
//!
//! A [`Dataset`] is a tree. Its leaves ([`Leaf`]) hold rows: the documents of a cache or of a list, windows
//! over their tokens, a dataset of the user's own. Its inner nodes ([`View`]) map positions by the arithmetic
//! of `order/`: weights, a permutation, eras, a mixture. So a read has two steps, regardless of the depth of
//! the tree. Positions are mapped to rows of leaves. Then each leaf reads its rows at once, in storage order,
//! directly into their places in the batch.
//!
//! An order is a pure function of `(seed, epoch)`. Rows may be added while a dataset is read. An existing row
//! never moves, and [`Dataset::wait`] waits for new ones.

mod cache;
mod leaf;
mod list;
mod read;
mod store;
mod tokens;
mod typed;
mod view;

use std::sync::Arc;

pub use cache::CacheStore;
pub use leaf::{Leaf, LeafLength, LeafSelection};
pub use list::ListStore;
pub use store::{DocumentLeaf, Store};
pub use tokens::TokenLeaf;
pub use typed::{TypedLeaf, id_type};
pub use view::{MixtureRules, View};

use crate::{
    Error, ErrorKind, Result,
    cast::reals,
    fallible_alloc,
    fields::{ColumnPool, Columns, DataType, Dim, Field},
    order::{Bijection, WeightedRows},
};

/// A row of a leaf; during the mapping, a position in a view.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pick {
    pub leaf: usize,
    pub row: u64,
}

/// Rows with random access, in an order of their own.
///
/// A clone shares the data. It caches the block or permutation used last on its own, so that each thread can
/// have a clone.
#[derive(Debug, Clone)]
pub struct Dataset {
    leaves: Arc<[Arc<dyn Leaf>]>,
    view: View,
    /// The number of views above the deepest leaf.
    depth: usize,
}

/// The most views above a leaf: each costs a step for every batch, and stack space.
const MOST_DEPTH: usize = 64;
/// The most leaves of a mixture, over all sources.
const MOST_LEAVES: usize = 1 << 16;

impl Dataset {
    /// Whether any rows are read by URL, so that a read may take long.
    pub fn is_remote(&self) -> bool {
        self.leaves.iter().any(|leaf| leaf.is_remote())
    }

    /// The rows of `leaf` in their own order.
    pub fn of(leaf: Arc<dyn Leaf>) -> Self {
        Self { leaves: Arc::new([leaf]), view: View::Leaf(0), depth: 0 }
    }

    /// The depth of a view above this dataset.
    fn next_depth(&self) -> Result<usize> {
        if self.depth >= MOST_DEPTH {
            let message = format!(
                "the dataset has {MOST_DEPTH} nested views (weights, permutations, eras, mixtures), the maximum; \
                 give the dataset below them a new seed instead of another view, as set_epoch() of a DataLoader does"
            );
            return Err(Error::new(ErrorKind::Config, message));
        }
        Ok(self.depth + 1)
    }

    /// Each row as often as its weight says, in storage order: `n_copies` in all, `None` for as many as
    /// weights. It is empty until the length of this dataset is final.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if this dataset is no leaf, since rows of other datasets are others in each
    /// epoch; if its final length is known and not the number of weights; as [`WeightedRows::new`].
    pub fn weighted(self, weights: &[f64], n_copies: Option<u64>, seed: u64) -> Result<Self> {
        let depth = self.next_depth()?;
        self.check_leaf()?;
        let rows = WeightedRows::new(weights, n_copies.unwrap_or(weights.len().max(1) as u64))?;
        let mut made = Self { depth, view: View::weighted(self.view, Arc::new(rows), seed), ..self };
        made.length(0)?;
        Ok(made)
    }

    fn check_leaf(&self) -> Result<()> {
        if let View::Leaf(_) = self.view {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Config,
            "weights are those of stored rows, and the rows of this dataset are others in each epoch: weigh first, and \
             shuffle or mix the dataset with weights, as in PermutationDataset(WeightedDataset(ds, weights), seed)",
        ))
    }

    /// The numbers of a field in all current rows, in storage order; other fields are not read.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if this dataset is no leaf, or has no such field of one number; those of leaves;
    /// [`ErrorKind::Closed`] after `give_up` returns true.
    pub fn numbers(&self, name: &str, give_up: &dyn Fn() -> bool) -> Result<Vec<f64>> {
        const READ: u64 = 1 << 14;
        self.check_leaf()?;
        let leaf = &self.leaves[0];
        let fields = leaf.fields()?;
        let Some(number) = fields.iter().position(|field| field.name == name && field.rank() == 0) else {
            let known: Vec<_> = fields.iter().map(ToString::to_string).collect();
            return Err(Error::new(
                ErrorKind::Config,
                format!(
                    "weights is {name:?}, must be a field with one number in each row; there are {}",
                    known.join(", ")
                ),
            ));
        };
        let (n, dtype) = (leaf.length()?.rows, fields[number].dtype);
        let size = dtype.bytes();
        let mut numbers = fallible_alloc::with_room(n as usize)?;
        for begin in (0..n).step_by(READ as usize) {
            if give_up() {
                return Err(Error::new(ErrorKind::Closed, "reading the weights was stopped"));
            }
            let rows: Vec<u64> = (begin..n.min(begin + READ)).collect();
            let places: Vec<usize> = (0..rows.len()).map(|row| row * size).collect();
            // bounded: a value of each of the rows.
            let mut data = vec![0; rows.len() * size];
            leaf.select(&rows)?.read(number, &places, &mut data)?;
            numbers.extend(reals(&data, dtype));
        }
        Ok(numbers)
    }

    /// All rows in a new order each epoch. It is empty until the length of this dataset is final.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if this dataset is endless, or has 64 views already.
    pub fn permutation(self, seed: u64) -> Result<Self> {
        if self.view.is_endless() {
            return Err(Error::new(
                ErrorKind::Config,
                "an endless dataset cannot be permuted: permute the sources of the mixture, or shuffle it by eras",
            ));
        }
        Ok(Self { depth: self.next_depth()?, view: View::permutation(self.view, seed), ..self })
    }

    /// The rows of each era of `era_length` in a new order each epoch.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if `era_length` is out of range, or this dataset has 64 views already.
    pub fn eras(self, era_length: u64, seed: u64) -> Result<Self> {
        if !(1..=Bijection::MAX).contains(&era_length) {
            let message = format!("era_length is {era_length}, must be 1 to {}", Bijection::MAX);
            return Err(Error::new(ErrorKind::Config, message));
        }
        Ok(Self { depth: self.next_depth()?, view: View::eras(self.view, era_length, seed), ..self })
    }

    /// A mixture of several datasets by weight.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if weights, block and sources don't match, if a source has 64 views already, or
    /// the sources more than 65536 leaves.
    pub fn mixture(sources: Vec<(String, Self)>, rules: MixtureRules) -> Result<Self> {
        let (mut leaves, mut views, mut depth) = (Vec::new(), Vec::new(), 0);
        for (name, source) in sources {
            depth = depth.max(source.next_depth()?);
            if leaves.len() + source.leaves.len() > MOST_LEAVES {
                let message =
                    format!("the sources of a mixture have more than {MOST_LEAVES} datasets in all");
                return Err(Error::new(ErrorKind::Config, message));
            }
            views.push((name, source.view, leaves.len()..leaves.len() + source.leaves.len()));
            leaves.extend(source.leaves.iter().cloned());
        }
        Ok(Self { leaves: leaves.into(), view: View::mixture(views, rules)?, depth })
    }

    /// Sets the block of mixtures without one.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if a source with a weight gets no position in such a block, or a weight changes
    /// within one.
    pub fn with_block(mut self, block: u64) -> Result<Self> {
        self.view.set_block(block)?;
        Ok(self)
    }

    /// The same rows, with integer fields, or only the one named, in another integer type.
    pub fn with_integers(self, to: DataType, only: Option<&str>) -> Self {
        let typed = |leaf: &Arc<dyn Leaf>| Arc::new(TypedLeaf::new(leaf.clone(), to, only)) as Arc<dyn Leaf>;
        Self { leaves: self.leaves.iter().map(typed).collect(), ..self }
    }

    pub fn leaves(&self) -> &[Arc<dyn Leaf>] {
        &self.leaves
    }

    /// A description that distinguishes this dataset from others.
    pub fn describe(&self) -> String {
        self.view.describe(&self.leaves)
    }

    /// The fields of each document: the same for all leaves, stacked where all agree on a shape.
    ///
    /// # Errors
    /// [`ErrorKind::Config`], naming the leaves, if they differ; [`ErrorKind::State`] if the fields of a leaf
    /// are unknown because it is empty.
    pub fn fields(&self) -> Result<Arc<[Field]>> {
        let first = self.leaves[0].fields()?;
        let mut all = first.to_vec();
        for leaf in &self.leaves[1..] {
            let others = leaf.fields()?;
            let agree = |field: &mut Field| match others.iter().find(|other| other.is_like(field)) {
                Some(other) => {
                    if field.dims != other.dims {
                        field.dims.fill(Dim::Ragged);
                    }
                    true
                }
                None => false,
            };
            if others.len() != all.len() || !all.iter_mut().all(agree) {
                let shown =
                    |fields: &[Field]| fields.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                return Err(Error::new(
                    ErrorKind::Config,
                    format!(
                        "the sources of a mixture must have the same fields: {} has {}; {} has {}",
                        self.leaves[0].describe(),
                        shown(&first),
                        leaf.describe(),
                        shown(&others)
                    ),
                ));
            }
        }
        Ok(all.into())
    }

    /// The current number of rows in `epoch`, and whether it is final.
    ///
    /// # Errors
    /// Those of leaves, and [`ErrorKind::Config`] if a mixture cannot be made of the current rows.
    pub fn length(&mut self, epoch: u64) -> Result<LeafLength> {
        let lengths = self.lengths()?;
        self.length_of(epoch, &lengths)
    }

    /// The number of rows in `epoch` if the leaves have these lengths, and whether it is final; calls no
    /// leaf.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if a mixture cannot be made of these rows.
    pub fn length_of(&mut self, epoch: u64, lengths: &[LeafLength]) -> Result<LeafLength> {
        self.view.length(epoch, lengths)
    }

    /// The smallest and the largest length of an epoch, if the leaves have these final lengths: epochs of a
    /// mixture differ.
    ///
    /// # Errors
    /// As [`Dataset::length_of`].
    pub fn length_bounds_of(&mut self, lengths: &[LeafLength]) -> Result<(u64, u64)> {
        self.view.length_bounds(lengths)
    }

    /// The current length of each leaf. A leaf may be written in Python, so no lock may be held.
    ///
    /// # Errors
    /// Those of leaves.
    pub fn lengths(&self) -> Result<Vec<LeafLength>> {
        self.leaves.iter().map(|leaf| leaf.length()).collect()
    }

    /// Waits until there are `rows` rows or the length is final; ends early, with the current length, soon
    /// after `give_up` returns true.
    ///
    /// # Errors
    /// As [`Dataset::length`], and the failure of a cache's writer.
    pub fn wait(&mut self, epoch: u64, rows: u64, give_up: &dyn Fn() -> bool) -> Result<LeafLength> {
        loop {
            let lengths = self.lengths()?;
            let length = self.view.length(epoch, &lengths)?;
            if length.is_final || length.rows >= rows || give_up() {
                return Ok(length);
            }
            // bounded: a word for each leaf.
            let mut wanted = vec![0; self.leaves.len()];
            self.view.wanted(epoch, rows, &lengths, &mut wanted)?;
            for (leaf, wanted) in self.leaves.iter().zip(wanted) {
                if wanted > 0 {
                    leaf.wait(wanted, give_up)?;
                }
            }
        }
    }

    /// Maps positions of `epoch` to rows of leaves.
    ///
    /// # Errors
    /// [`ErrorKind::Index`] if a position is past the current end.
    pub fn locate(&mut self, epoch: u64, positions: impl IntoIterator<Item = u64>) -> Result<Vec<Pick>> {
        let lengths = self.lengths()?;
        let length = self.view.length(epoch, &lengths)?;
        let mut picks: Vec<Pick> = positions.into_iter().map(|row| Pick { leaf: 0, row }).collect();
        if let Some(pick) = picks.iter().find(|pick| pick.row >= length.rows) {
            let (row, rows) = (pick.row, length.rows);
            let so_far = if length.is_final { "" } else { " so far" };
            return Err(Error::new(
                ErrorKind::Index,
                format!("there is no index {row} in a dataset of {rows} rows{so_far}"),
            ));
        }
        self.view.resolve(epoch, &lengths, &mut picks)?;
        Ok(picks)
    }

    /// Reads rows of leaves into a batch with memory from `pool`.
    ///
    /// # Errors
    /// Those of leaves, [`ErrorKind::Memory`].
    pub fn read(&self, picks: &[Pick], pool: &ColumnPool) -> Result<Columns> {
        read::read(&self.leaves, picks, pool)
    }
}

#[cfg(test)]
mod tests;
