//! [`Mixture`]: several sources in one stream, by weight. It maps a position to a source and one of its
//! samples.
//!
//! Positions are divided into blocks. In each block a source has a fixed number of places: its weight's share
//! of the block, rounded by largest remainder. The block's own [`Bijection`] chooses the places. A source
//! fills its places, block after block, with its samples 0, 1, 2, …: before the source is exhausted, no
//! sample is left out and none is repeated. Drawing the source of each position at random would give the
//! weights only on average, and no random access.
//!
//! Weights may change at the start of a block. Each source then continues with its next sample.
//!
//! Source: own, after the stable mixture of Levanter.

use std::cmp::Reverse;

use super::Bijection;
use crate::seed::Purpose;
use crate::{Error, ErrorKind, Result};

/// The weights that hold from a position on.
#[derive(Debug, Clone, PartialEq)]
pub struct WeightStage {
    /// The first position; a multiple of the block.
    pub start: u64,
    /// One weight per source, in any unit; 0 leaves the source out.
    pub weights: Vec<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Never: an exhausted source starts again.
    Restart,
    /// With the last sample of the source that is exhausted first.
    FirstExhausted,
    /// With the last sample of the source that is exhausted last; the others start again as often as needed.
    AllExhausted,
}

impl Stop {
    /// The name of the user's parameter value.
    pub fn name(self) -> &'static str {
        match self {
            Self::Restart => "restart",
            Self::FirstExhausted => "first_exhausted",
            Self::AllExhausted => "all_exhausted",
        }
    }
}

/// Maps positions to samples of sources.
#[derive(Debug, Clone)]
pub struct Mixture {
    seed: u64,
    block: u64,
    stages: Vec<StageCounts>,
    len: Option<u64>,
    /// The number of computed blocks that are kept.
    kept: usize,
    /// The computed blocks, each at its number modulo `kept`; empty before the first.
    recent: Vec<MixtureBlock>,
}

/// A computed block; without spots before it is computed.
#[derive(Debug, Clone, Default)]
struct MixtureBlock {
    number: u64,
    spots: Vec<Spot>,
}

/// The content of one position of a block; both numbers are below [`Mixture::MAX_BLOCK`].
#[derive(Debug, Clone, Copy)]
struct Spot {
    /// Its place among the places of all sources, source after source.
    place: u16,
    /// How many earlier positions of the block have the same source.
    rank: u16,
}

/// The weights of a stage as counts per block.
#[derive(Debug, Clone)]
struct StageCounts {
    first_block: u64,
    /// Samples of each source in a block.
    counts: Vec<u64>,
    /// The end of each source's places.
    ends: Vec<u64>,
    /// Samples of each source before the stage.
    before: Vec<u64>,
}

impl Mixture {
    /// The largest block, in positions.
    pub const MAX_BLOCK: u64 = 1 << 16;

    /// The maximum numbers of positions (4 MiB of spots) and of blocks that [`Mixture::keeping_blocks`]
    /// keeps.
    const KEPT: u64 = 1 << 20;
    const KEPT_BLOCKS: u64 = 1 << 12;

    /// The longest source and the last start of a stage: with these limits all positions fit in 64 bits.
    pub const MAX_LENGTH: u64 = 1 << 46;
    const MAX_START: u64 = 1 << 62;

    /// Creates a mixture of sources with `lengths` samples, in blocks of `block` positions.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if stages, weights, block and lengths do not fit together; if a source of
    /// positive weight is empty or gets no place in a block; if `stop` waits for a source that is never
    /// exhausted.
    pub fn new(seed: u64, stages: &[WeightStage], block: u64, stop: Stop, lengths: &[u64]) -> Result<Self> {
        if !(1..=Self::MAX_BLOCK).contains(&block) {
            return Err(config(format!(
                "a block of {block} positions: 1 to {} are possible",
                Self::MAX_BLOCK
            )));
        }
        if let Some(source) = lengths.iter().position(|&length| length > Self::MAX_LENGTH) {
            let (found, most) = (lengths[source], Self::MAX_LENGTH);
            return Err(config(format!("source {source} has {found} samples: at most {most} are possible")));
        }
        Self::check(stages, lengths)?;
        check_starts(stages, block)?;
        // bounded: as many as there are stages.
        let mut made: Vec<StageCounts> = Vec::with_capacity(stages.len());
        for stage in stages {
            let first_block = stage.start / block;
            let counts = share(&stage.weights, block);
            if let Some(source) = starved(&stage.weights, &counts) {
                return Err(too_small(stages, stage, source, block));
            }
            // bounded: a word for each source.
            let before = made.last().map_or(vec![0; lengths.len()], |last| last.taken(first_block));
            let ends = counts
                .iter()
                .scan(0, |end, count| {
                    *end += count;
                    Some(*end)
                })
                .collect();
            made.push(StageCounts { first_block, counts, ends, before });
        }
        let mut mixture = Self { seed, block, stages: made, len: None, kept: 1, recent: Vec::new() };
        mixture.len = mixture.end(stop, lengths)?;
        Ok(mixture)
    }

    /// The same for positions in any order: it keeps up to 4096 blocks with up to 2^20 positions in all. So
    /// each block of an era of up to that length is computed once. This is not the default: consecutive
    /// positions need only the last block, and each thread of a loader has its own mixture.
    #[must_use]
    pub fn keeping_blocks(mut self) -> Self {
        self.kept = (Self::KEPT / self.block).min(Self::KEPT_BLOCKS) as usize;
        self.recent.clear();
        self
    }

    /// Checks all that does not depend on the block.
    ///
    /// # Errors
    /// As [`Mixture::new`].
    pub fn check(stages: &[WeightStage], lengths: &[u64]) -> Result<()> {
        if lengths.is_empty() {
            return Err(config("no sources: give at least one"));
        }
        check_starts(stages, 1)?;
        stages.iter().try_for_each(|stage| check_weights(stage, lengths))
    }

    /// The number of positions; `None` without end. Positions beyond it are valid: the sources continue.
    #[allow(clippy::len_without_is_empty, reason = "no mixture is empty")]
    pub fn len(&self) -> Option<u64> {
        self.len
    }

    /// The source of `position` and the running number of its sample. Divided by the source's length, the
    /// quotient is the source's epoch and the remainder the index in it.
    ///
    /// A block is computed at its first use, at the cost of `block` positions, and kept until another one
    /// replaces it.
    pub fn at(&mut self, position: u64) -> (usize, u64) {
        if self.recent.is_empty() {
            // bounded: some blocks are kept, a constant.
            self.recent = vec![MixtureBlock::default(); self.kept];
        }
        let number = position / self.block;
        let slot = (number % self.kept as u64) as usize;
        if self.recent[slot].number != number || self.recent[slot].spots.is_empty() {
            self.recent[slot] = MixtureBlock { number, spots: self.spots(number) };
        }
        let spot = self.recent[slot].spots[(position % self.block) as usize];
        self.stage(number).pick(number, spot)
    }

    /// The number of samples of each source before `position`, which is also its next sample.
    pub fn taken(&self, position: u64) -> Vec<u64> {
        let number = position / self.block;
        let stage = self.stage(number);
        let mut taken = stage.taken(number);
        for spot in &self.spots(number)[..(position % self.block) as usize] {
            taken[stage.source(*spot)] += 1;
        }
        taken
    }

    fn stage(&self, block: u64) -> &StageCounts {
        &self.stages[self.stages.partition_point(|stage| stage.first_block <= block) - 1]
    }

    /// Computes the positions of a block.
    fn spots(&self, number: u64) -> Vec<Spot> {
        let stage = self.stage(number);
        let places = Bijection::new(self.seed, Purpose::MixtureBlock, [number, 0], self.block);
        // bounded: a word for each source.
        let mut ranks = vec![0; stage.counts.len()];
        let spot = |position| {
            let mut spot = Spot { place: places.at(position) as u16, rank: 0 };
            let next = &mut ranks[stage.source(spot)];
            spot.rank = *next;
            *next = next.wrapping_add(1); // wraps only after the last position of the largest block
            spot
        };
        (0..self.block).map(spot).collect()
    }

    /// The number of positions up to the last sample that `stop` waits for.
    fn end(&self, stop: Stop, lengths: &[u64]) -> Result<Option<u64>> {
        if stop == Stop::Restart {
            return Ok(None);
        }
        let (mut first, mut last) = (u64::MAX, 0);
        for (source, &length) in lengths.iter().enumerate() {
            if self.stages.iter().all(|stage| stage.counts[source] == 0) {
                continue;
            }
            if let Some(block) = self.last_block(source, length) {
                (first, last) = (first.min(block), last.max(block));
            } else if stop == Stop::AllExhausted {
                let end = &self.stages[self.stages.len() - 1];
                return Err(config(format!(
                    "all_exhausted: source {source} is never exhausted: from position {} on its weight is 0, after {} of {length} \
                     samples",
                    end.first_block * self.block,
                    end.before[source]
                )));
            }
        }
        let block = if stop == Stop::FirstExhausted { first } else { last };
        let (spots, stage) = (self.spots(block), self.stage(block));
        let mut ends = spots.iter().map(|&spot| {
            let (source, sample) = stage.pick(block, spot);
            sample + 1 == lengths[source]
        });
        let found =
            if stop == Stop::FirstExhausted { ends.position(|end| end) } else { ends.rposition(|end| end) };
        Ok(found.map(|position| block * self.block + position as u64 + 1))
    }

    /// The block that has sample number `length - 1` of a source; `None` if the source never gets there.
    fn last_block(&self, source: usize, length: u64) -> Option<u64> {
        let stage = &self.stages[self.stages.partition_point(|stage| stage.before[source] < length) - 1];
        let blocks = (length - 1 - stage.before[source]).checked_div(stage.counts[source])?;
        Some(stage.first_block + blocks)
    }
}

impl StageCounts {
    /// Samples of each source before a block of this stage.
    fn taken(&self, block: u64) -> Vec<u64> {
        let blocks = block - self.first_block;
        self.before.iter().zip(&self.counts).map(|(before, count)| before + blocks * count).collect()
    }

    fn source(&self, spot: Spot) -> usize {
        self.ends.partition_point(|&end| end <= u64::from(spot.place))
    }

    /// Source and sample of a position, in a block of this stage.
    fn pick(&self, block: u64, spot: Spot) -> (usize, u64) {
        let source = self.source(spot);
        let before = self.before[source] + (block - self.first_block) * self.counts[source];
        (source, before + u64::from(spot.rank))
    }
}

/// Divides a block by weight: every source gets the integer part of its share, and the places left go to the
/// largest remainders; among equal ones, to the first.
///
/// Shares are rounded to 1e-9 of a place, so that mathematically equal shares are equal.
fn share(weights: &[f64], block: u64) -> Vec<u64> {
    const UNIT: u64 = 1_000_000_000;
    let sum: f64 = weights.iter().sum();
    let shares: Vec<u64> =
        weights.iter().map(|weight| (weight / sum * (block * UNIT) as f64).round() as u64).collect();
    let mut counts: Vec<u64> = shares.iter().map(|share| share / UNIT).collect();
    let left = (block - counts.iter().sum::<u64>()) as usize;
    let mut sources: Vec<usize> = (0..weights.len()).filter(|&source| weights[source] > 0.0).collect();
    sources.sort_by_key(|&source| Reverse(shares[source] % UNIT));
    for &source in &sources[..left] {
        counts[source] += 1;
    }
    counts
}

/// The first source that has a positive weight and no place.
fn starved(weights: &[f64], counts: &[u64]) -> Option<usize> {
    weights.iter().zip(counts).position(|(&weight, &count)| weight > 0.0 && count == 0)
}

fn check_starts(stages: &[WeightStage], block: u64) -> Result<()> {
    if stages.first().is_none_or(|stage| stage.start != 0) {
        return Err(config("the first weights must begin at position 0"));
    }
    for pair in stages.windows(2) {
        let (before, start) = (pair[0].start, pair[1].start);
        if start <= before {
            return Err(config(format!(
                "weights from position {start} follow those from {before}: positions must increase"
            )));
        }
        if start > Mixture::MAX_START {
            return Err(config(format!(
                "weights change at position {start}: at most {} is possible",
                Mixture::MAX_START
            )));
        }
        if !start.is_multiple_of(block) {
            let below = start - start % block;
            return Err(config(format!(
                "weights change at position {start}, within a block of {block}: choose {below} or {}",
                below + block
            )));
        }
    }
    Ok(())
}

fn check_weights(stage: &WeightStage, lengths: &[u64]) -> Result<()> {
    let WeightStage { start, weights } = stage;
    if weights.len() != lengths.len() {
        return Err(config(format!(
            "{} weights from position {start} on for {} sources: give one weight for each, 0 to leave it out",
            weights.len(),
            lengths.len()
        )));
    }
    for (source, (&weight, &length)) in weights.iter().zip(lengths).enumerate() {
        if !(weight >= 0.0 && weight.is_finite()) {
            return Err(config(format!(
                "the weight of source {source} from position {start} on is {weight}: it must be a number of at least 0"
            )));
        }
        if weight > 0.0 && length == 0 {
            return Err(config(format!("source {source} is empty: its weight must be 0, not {weight}")));
        }
    }
    let sum: f64 = weights.iter().sum();
    if !(sum > 0.0 && sum.is_finite()) {
        return Err(config(format!(
            "the weights from position {start} on sum up to {sum}: the sum must be positive and finite"
        )));
    }
    Ok(())
}

/// The error of a block that is too small for a weight; names the smallest larger block that is enough for
/// all weights of all stages. (Some smaller blocks may be enough too, as places are rounded.)
fn too_small(stages: &[WeightStage], stage: &WeightStage, source: usize, block: u64) -> Error {
    let large_enough = |&block: &u64| {
        stages.iter().all(|WeightStage { weights, .. }| starved(weights, &share(weights, block)).is_none())
    };
    let advice = (block + 1..=Mixture::MAX_BLOCK).find(large_enough).map_or_else(
        || {
            format!(
                "raise the weight or set it to 0; no block of up to {} is large enough",
                Mixture::MAX_BLOCK
            )
        },
        |enough| format!("the smallest block that is large enough is {enough}"),
    );
    let (weight, start) = (stage.weights[source], stage.start);
    config(format!(
        "the weight {weight} of source {source} from position {start} on gives it no place in a block of {block}: {advice}"
    ))
}

fn config(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Config, format!("mixture: {}", message.into()))
}

#[cfg(test)]
mod tests;
