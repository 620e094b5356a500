//! The order of rows: weights, permutations, eras and mixtures of rows, nested in any way.
//!
//! A view maps the positions of a whole batch to positions of the nodes below it, down to rows of leaves, by
//! the arithmetic of `order/`. For rows that are still to be added it determines two things: how many
//! positions the current rows are enough for, and how many rows a number of positions needs. A permutation
//! and weights need all rows; an era needs its rows; a mixture ends with the source that ends first.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use super::{Leaf, LeafLength, Pick};
use crate::{
    Error, ErrorKind, Result,
    order::{Bijection, Copies, Eras, Mixture, Stop, WeightStage, WeightedRows},
    seed::{Purpose, hash},
};

#[derive(Debug, Clone)]
pub enum View {
    /// The rows of a leaf, by its index.
    Leaf(usize),
    /// Copies of rows in storage order, as many as their weights say.
    Weighted(Box<WeightedView>),
    /// All rows in a new order each epoch.
    Permutation(Box<PermutedView>),
    /// The rows of each era in a new order each epoch.
    Eras(Box<EraView>),
    Mixture(Box<MixtureView>),
}

/// Copies of the rows of a view, as many as their weights say.
#[derive(Debug, Clone)]
pub struct WeightedView {
    of: View,
    rows: Arc<WeightedRows>,
    seed: u64,
    /// The epoch and the copies used last.
    recent: Option<(u64, Copies)>,
    logged_once: LoggedOnce,
}

/// All rows of a view in a new order each epoch.
#[derive(Debug, Clone)]
pub struct PermutedView {
    of: View,
    seed: u64,
    /// The epoch and the order used last.
    recent: Option<(u64, Bijection)>,
    logged_once: LoggedOnce,
}

/// Whether a wait for the final length was logged; once is enough.
#[derive(Debug, Clone, Default)]
struct LoggedOnce(Arc<AtomicBool>);

impl LoggedOnce {
    fn wait(&self, what: &str, hint: &str) {
        if !self.0.swap(true, Ordering::Relaxed) {
            log::info!("{what} waits for the final length of its dataset and has no row before{hint}");
        }
    }
}

/// The rows of each era of a view in a new order each epoch.
#[derive(Debug, Clone)]
pub struct EraView {
    of: View,
    era_length: u64,
    seed: u64,
    recent: Option<(u64, Eras)>,
}

/// The parameters of a mixture, without its sources.
#[derive(Debug, Clone)]
pub struct MixtureRules {
    /// The weights, and the positions from which they apply.
    pub stages: Vec<WeightStage>,
    /// Positions in which the shares are exact; `None` for the rows of a global batch.
    pub block: Option<u64>,
    pub stop: Stop,
    pub seed: u64,
}

#[derive(Debug, Clone)]
pub struct MixtureView {
    sources: Vec<MixtureSource>,
    rules: MixtureRules,
    recent: Option<EpochMixture>,
}

#[derive(Debug, Clone)]
struct MixtureSource {
    name: Arc<str>,
    view: View,
    /// Its leaves among those of the mixture.
    leaves: Range<usize>,
}

/// A mixture computed for an epoch and the lengths of its sources.
#[derive(Debug, Clone)]
struct EpochMixture {
    epoch: u64,
    lengths: Vec<LeafLength>,
    length: LeafLength,
    mixture: Mixture,
    /// The number of epochs that a pass takes of each source.
    passes: Vec<u64>,
}

/// The length assumed for a source that must not end the mixture.
const LONG: u64 = Mixture::MAX_LENGTH;
/// Epochs of each source in the pass of an endless mixture.
const ENDLESS_PASSES: u64 = 1 << 32;

impl View {
    pub(super) fn permutation(of: Self, seed: u64) -> Self {
        Self::Permutation(Box::new(PermutedView {
            of,
            seed,
            recent: None,
            logged_once: LoggedOnce::default(),
        }))
    }

    pub(super) fn weighted(of: Self, rows: Arc<WeightedRows>, seed: u64) -> Self {
        Self::Weighted(Box::new(WeightedView {
            of,
            rows,
            seed,
            recent: None,
            logged_once: LoggedOnce::default(),
        }))
    }

    pub(super) fn eras(of: Self, era_length: u64, seed: u64) -> Self {
        Self::Eras(Box::new(EraView { of, era_length, seed, recent: None }))
    }

    pub(super) fn mixture(views: Vec<(String, Self, Range<usize>)>, rules: MixtureRules) -> Result<Self> {
        let source = |(name, view, leaves): (String, _, _)| MixtureSource { name: name.into(), view, leaves };
        let mixed = MixtureView { sources: views.into_iter().map(source).collect(), rules, recent: None };
        // Reports problems that do not depend on the sources' lengths at once. bounded: a word for each
        // source.
        let (stages, known) = (&mixed.rules.stages, vec![1; mixed.sources.len()]);
        match mixed.rules.block {
            Some(block) => Mixture::new(0, stages, block, Stop::Restart, &known).map(drop),
            None => Mixture::check(stages, &known),
        }
        .map_err(|error| mixed.named(error))?;
        Ok(Self::Mixture(Box::new(mixed)))
    }

    pub(super) fn set_block(&mut self, block: u64) -> Result<()> {
        match self {
            Self::Leaf(_) => Ok(()),
            Self::Weighted(node) => node.of.set_block(block),
            Self::Permutation(node) => node.of.set_block(block),
            Self::Eras(node) => node.of.set_block(block),
            Self::Mixture(node) => node.set_block(block),
        }
    }

    pub(super) fn is_endless(&self) -> bool {
        match self {
            Self::Leaf(_) | Self::Weighted(_) | Self::Permutation(_) => false,
            Self::Eras(node) => node.of.is_endless(),
            Self::Mixture(node) => node.rules.stop == Stop::Restart,
        }
    }

    pub(super) fn length(&mut self, epoch: u64, lengths: &[LeafLength]) -> Result<LeafLength> {
        Ok(match self {
            Self::Leaf(leaf) => lengths[*leaf],
            Self::Weighted(node) => match node.of.length(epoch, lengths)? {
                all if all.is_final => {
                    let (n, weights) = (all.rows, node.rows.n_rows());
                    if n != weights {
                        let message =
                            format!("there are {weights} weights for {n} rows, must be one for each row");
                        return Err(Error::new(ErrorKind::Config, message));
                    }
                    LeafLength { rows: node.rows.n_copies(), is_final: true }
                }
                _ => LeafLength { rows: 0, is_final: false },
            },
            Self::Permutation(node) => match node.of.length(epoch, lengths)? {
                all if all.is_final && all.rows > Bijection::MAX => {
                    let message = format!(
                        "a dataset of {} rows cannot be permuted, at most {} can; shuffle it by eras",
                        if all.is_endless() { "endless".to_owned() } else { all.rows.to_string() },
                        Bijection::MAX
                    );
                    return Err(Error::new(ErrorKind::Config, message));
                }
                all if all.is_final => all,
                _ => LeafLength { rows: 0, is_final: false },
            },
            Self::Eras(node) => match node.of.length(epoch, lengths)? {
                all if all.is_final => all,
                so_far => LeafLength { rows: so_far.rows - so_far.rows % node.era_length, is_final: false },
            },
            Self::Mixture(node) => node.made(epoch, lengths)?.length,
        })
    }

    /// The smallest and the largest length of an epoch, for a complete dataset.
    pub(super) fn length_bounds(&mut self, lengths: &[LeafLength]) -> Result<(u64, u64)> {
        Ok(match self {
            Self::Leaf(leaf) => (lengths[*leaf].rows, lengths[*leaf].rows),
            Self::Weighted(node) => (node.rows.n_copies(), node.rows.n_copies()),
            Self::Permutation(node) => node.of.length_bounds(lengths)?,
            Self::Eras(node) => node.of.length_bounds(lengths)?,
            Self::Mixture(node) => {
                let rows = node.made(0, lengths)?.length.rows;
                // Each epoch ends in the same block, at any position in it.
                let block = node.rules.block.unwrap_or(1);
                let begin = rows.saturating_sub(1) / block * block;
                (rows.min(begin + 1), begin.saturating_add(block))
            }
        })
    }

    /// Raises `wanted`, for each leaf, to the rows that the first `rows` positions need; `u64::MAX` means all
    /// rows.
    pub(super) fn wanted(
        &mut self,
        epoch: u64,
        rows: u64,
        lengths: &[LeafLength],
        wanted: &mut [u64],
    ) -> Result<()> {
        match self {
            Self::Leaf(leaf) => {
                wanted[*leaf] = wanted[*leaf].max(rows);
                Ok(())
            }
            Self::Weighted(node) => {
                node.logged_once.wait("a dataset with weights", "");
                node.of.wanted(epoch, u64::MAX, lengths, wanted)
            }
            Self::Permutation(node) => {
                node.logged_once.wait("a permutation", "; to begin at once, shuffle by eras");
                node.of.wanted(epoch, u64::MAX, lengths, wanted)
            }
            Self::Eras(node) => {
                let full = rows.div_ceil(node.era_length).saturating_mul(node.era_length);
                node.of.wanted(epoch, full, lengths, wanted)
            }
            Self::Mixture(node) => node.wanted(epoch, rows, lengths, wanted),
        }
    }

    /// Maps positions, all below the length, to rows of leaves.
    pub(super) fn resolve(&mut self, epoch: u64, lengths: &[LeafLength], picks: &mut [Pick]) -> Result<()> {
        match self {
            Self::Leaf(leaf) => {
                picks.iter_mut().for_each(|pick| pick.leaf = *leaf);
                Ok(())
            }
            Self::Weighted(node) => {
                let known = node.recent.take().filter(|(of, _)| *of == epoch);
                let (_, copies) =
                    node.recent.insert(known.unwrap_or_else(|| (epoch, node.rows.epoch(node.seed, epoch))));
                picks.iter_mut().for_each(|pick| pick.row = node.rows.row(*copies, pick.row));
                node.of.resolve(epoch, lengths, picks)
            }
            Self::Permutation(node) => {
                let LeafLength { rows, .. } = node.of.length(epoch, lengths)?;
                let known = node.recent.take().filter(|(of, order)| *of == epoch && order.n() == rows);
                let (_, order) = node.recent.insert(known.unwrap_or_else(|| {
                    (epoch, Bijection::new(node.seed, Purpose::Global, [epoch, 0], rows))
                }));
                picks.iter_mut().for_each(|pick| pick.row = order.at(pick.row));
                node.of.resolve(epoch, lengths, picks)
            }
            Self::Eras(node) => {
                let LeafLength { rows, .. } = node.of.length(epoch, lengths)?;
                let known = node.recent.take().filter(|(of, order)| *of == epoch && order.n() == rows);
                let (_, order) = node.recent.insert(
                    known.unwrap_or_else(|| (epoch, Eras::new(node.seed, epoch, rows, node.era_length))),
                );
                picks.iter_mut().for_each(|pick| pick.row = order.at(pick.row));
                node.of.resolve(epoch, lengths, picks)
            }
            Self::Mixture(node) => node.resolve(epoch, lengths, picks),
        }
    }

    pub(super) fn describe(&self, leaves: &[Arc<dyn Leaf>]) -> String {
        match self {
            Self::Leaf(leaf) => leaves[*leaf].describe(),
            Self::Weighted(node) => {
                format!(
                    "weighted({}, weights={:016x}, epoch_size={}, seed={})",
                    node.of.describe(leaves),
                    node.rows.digest(),
                    node.rows.n_copies(),
                    node.seed
                )
            }
            Self::Permutation(node) => {
                format!("permutation({}, seed={})", node.of.describe(leaves), node.seed)
            }
            Self::Eras(node) => {
                format!(
                    "eras({}, era_length={}, seed={})",
                    node.of.describe(leaves),
                    node.era_length,
                    node.seed
                )
            }
            Self::Mixture(node) => {
                let MixtureRules { stages, block, stop, seed } = &node.rules;
                let sources: Vec<_> = node
                    .sources
                    .iter()
                    .map(|source| {
                        format!("{}={}", source.name, source.view.describe(&leaves[source.leaves.clone()]))
                    })
                    .collect();
                let stages: Vec<_> = stages
                    .iter()
                    .map(|WeightStage { start, weights }| format!("from {start} on {weights:?}"))
                    .collect();
                let block = block.map_or_else(|| "global batch".to_owned(), |block| block.to_string());
                format!(
                    "mixture({}, {}, block_size={block}, stop={}, seed={seed})",
                    sources.join(", "),
                    stages.join(", "),
                    stop.name()
                )
            }
        }
    }
}

impl MixtureView {
    fn set_block(&mut self, block: u64) -> Result<()> {
        if self.rules.block.is_none() {
            // bounded: a word for each source.
            let known = vec![1; self.sources.len()];
            Mixture::new(0, &self.rules.stages, block, Stop::Restart, &known)
                .map_err(|error| self.named(error))?;
            self.rules.block = Some(block);
        }
        self.sources.iter_mut().try_for_each(|source| source.view.set_block(block))
    }

    /// Adds the sources' numbers and names to an error.
    fn named(&self, error: Error) -> Error {
        let names =
            self.sources.iter().enumerate().map(|(number, source)| format!("{number} is {:?}", source.name));
        let names = names.collect::<Vec<_>>().join(", ");
        Error { message: format!("{} (source {names})", error.message), ..error }
    }

    /// The mixture of the current rows.
    ///
    /// While rows are added, each growing source ends with its current rows, and the mixture before the first
    /// row that such a source lacks. So each position below the length is final. A complete source that
    /// repeats does not end the mixture.
    fn made(&mut self, epoch: u64, lengths: &[LeafLength]) -> Result<&mut EpochMixture> {
        // bounded: as many as there are sources.
        let mut own = Vec::with_capacity(self.sources.len());
        for source in &mut self.sources {
            // A source that repeats has the same length in each epoch; of a mixture as a source, the first
            // epoch's is used.
            own.push(source.view.length(0, &lengths[source.leaves.clone()])?);
        }
        let known = self.recent.take().filter(|made| made.epoch == epoch && made.lengths == own);
        let made = match known {
            Some(made) => made,
            None => self.make(epoch, own)?,
        };
        Ok(self.recent.insert(made))
    }

    fn make(&self, epoch: u64, lengths: Vec<LeafLength>) -> Result<EpochMixture> {
        let MixtureRules { stages, block, stop, seed } = &self.rules;
        let block = block.ok_or_else(|| {
            Error::new(
                ErrorKind::Config,
                "the mixture has no block_size: set one, or read it through a DataLoader, which sets it to its global batch",
            )
        })?;
        let seed = hash(*seed, Purpose::Pass, [epoch]);
        let new = |stop, rows: &[u64]| {
            Mixture::new(seed, stages, block, stop, rows)
                .map(Mixture::keeping_blocks)
                .map_err(|error| self.named(error))
        };
        let capped = |length: &LeafLength| length.rows.min(LONG);
        let is_final = lengths.iter().all(|length| length.is_final);
        let has_weight = |source: usize| stages.iter().any(|stage| stage.weights[source] > 0.0);
        if !is_final {
            let ends = |length: &LeafLength| !length.is_final || *stop == Stop::FirstExhausted;
            let nothing_yet =
                (0..lengths.len()).any(|n| !lengths[n].is_final && lengths[n].rows == 0 && has_weight(n));
            let rows: Vec<_> = lengths
                .iter()
                .map(|length| match length {
                    LeafLength { rows: 0, is_final } => u64::from(!is_final),
                    length if ends(length) => capped(length),
                    _ => LONG,
                })
                .collect();
            let mixture = new(Stop::FirstExhausted, &rows)?;
            let rows = if nothing_yet { 0 } else { mixture.len().unwrap_or(0) };
            // bounded: a word for each source.
            let passes = vec![1; lengths.len()];
            return Ok(EpochMixture {
                epoch,
                length: LeafLength { rows, is_final },
                lengths,
                mixture,
                passes,
            });
        }
        let rows: Vec<_> = lengths.iter().map(capped).collect();
        let mixture = new(*stop, &rows)?;
        let never_through =
            |n: usize| *stop == Stop::AllExhausted && lengths[n].is_endless() && has_weight(n);
        let length = match mixture.len() {
            Some(rows) if !(0..lengths.len()).any(never_through) => LeafLength { rows, is_final },
            _ => LeafLength::ENDLESS,
        };
        let passes = match length {
            // bounded: a word for each source.
            LeafLength::ENDLESS => vec![ENDLESS_PASSES; lengths.len()],
            LeafLength { rows: end, .. } => mixture
                .taken(end)
                .iter()
                .zip(&rows)
                .map(|(taken, rows)| taken.div_ceil(*rows.max(&1)).max(1))
                .collect(),
        };
        Ok(EpochMixture { epoch, lengths, length, mixture, passes })
    }

    fn wanted(&mut self, epoch: u64, rows: u64, lengths: &[LeafLength], wanted: &mut [u64]) -> Result<()> {
        let made = self.made(epoch, lengths)?;
        let taken = match rows {
            // bounded: a word for each source.
            u64::MAX => vec![u64::MAX; made.lengths.len()],
            rows => made.mixture.taken(rows),
        };
        let is_final: Vec<_> = made.lengths.iter().map(|length| length.is_final).collect();
        for ((source, taken), is_final) in self.sources.iter_mut().zip(taken).zip(is_final) {
            // A source with a row after the last position has not ended before that position.
            if taken > 0 && !is_final {
                let leaves = source.leaves.clone();
                source.view.wanted(
                    0,
                    taken.saturating_add(1),
                    &lengths[leaves.clone()],
                    &mut wanted[leaves],
                )?;
            }
        }
        Ok(())
    }

    fn resolve(&mut self, epoch: u64, lengths: &[LeafLength], picks: &mut [Pick]) -> Result<()> {
        let n_sources = self.sources.len();
        let made = self.made(epoch, lengths)?;
        // For each source: epoch, place in the batch, row.
        // bounded: as many as there are sources.
        let mut drawn: Vec<Vec<(u64, usize, u64)>> = vec![Vec::new(); n_sources];
        for (place, pick) in picks.iter().enumerate() {
            let (source, sample) = made.mixture.at(pick.row);
            let rows = made.lengths[source].rows;
            let (again, row) = if sample < rows { (0, sample) } else { (sample / rows, sample % rows) };
            let own_epoch = epoch.wrapping_mul(made.passes[source]).wrapping_add(again);
            drawn[source].push((own_epoch, place, row));
        }
        let mut part = Vec::new();
        for (source, drawn) in self.sources.iter_mut().zip(&mut drawn) {
            drawn.sort_by_key(|&(epoch, ..)| epoch);
            for same in drawn.chunk_by(|a, b| a.0 == b.0) {
                part.clear();
                part.extend(same.iter().map(|&(_, _, row)| Pick { leaf: 0, row }));
                source.view.resolve(same[0].0, &lengths[source.leaves.clone()], &mut part)?;
                for (&(_, place, _), pick) in same.iter().zip(&part) {
                    picks[place] = Pick { leaf: pick.leaf + source.leaves.start, row: pick.row };
                }
            }
        }
        Ok(())
    }
}
