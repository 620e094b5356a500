//! The schedule of each pass, by the plan and the source.

use super::{Engine, MixturePlan, Plan};
use crate::{
    Result,
    contract::{Source, TaskFor},
    order::{Batching, ChapterStart, MixedSources, Mixture, RankLayout, Rules, Schedule},
    seed::{Purpose, hash},
};

impl<S: Source, K: TaskFor<S>> Engine<S, K> {
    /// The schedule of the pass `epoch`, or of the infinite pass.
    pub(super) fn schedule(&self, epoch: u64) -> Result<Schedule> {
        let schedule = self.uncut_schedule(epoch)?;
        match (&self.cuts, &self.plan.batching) {
            // Chapters that are planned already.
            (Some(cuts), _) if epoch == self.epoch => Ok(schedule.with_cuts(cuts.clone())),
            (_, Batching::Cuts(buckets)) => schedule.cut(buckets.clone(), ChapterStart::default()),
            _ => Ok(schedule),
        }
    }

    /// The schedule of the pass `epoch`; of batches by length, from the chapter `start` on.
    pub(super) fn schedule_from(&self, epoch: u64, start: ChapterStart) -> Result<Schedule> {
        let schedule = self.uncut_schedule(epoch)?;
        match &self.plan.batching {
            Batching::Cuts(buckets) => schedule.cut(buckets.clone(), start),
            _ => Ok(schedule),
        }
    }

    fn uncut_schedule(&self, epoch: u64) -> Result<Schedule> {
        let Plan { seed, order, infinite, drop_last, rank, world_size, .. } = self.plan;
        // The epochs of a mixture's sources count from 0 in each pass, so each pass gets its own seed.
        let seed = match self.plan.mixture {
            Some(_) if !infinite => hash(seed, Purpose::Pass, [epoch]),
            _ => seed,
        };
        let sources = self.plan.mixture.as_ref().map(|plan| {
            let MixturePlan { stages, block, stop, starts } = plan;
            // Of rows with weights, their copies are counted.
            let lengths: Vec<u64> = match &self.plan.weights {
                None => starts.windows(2).map(|pair| pair[1] - pair[0]).collect(),
                Some(weights) => weights.iter().map(|weights| weights.n_copies()).collect(),
            };
            let ends = lengths.iter().scan(0, |end, length| {
                *end += length;
                Some(*end)
            });
            let starts = [0].into_iter().chain(ends).collect();
            Mixture::new(seed, stages, *block, *stop, &lengths)
                .map(|mixture| MixedSources { mixture, starts })
        });
        let rules = Rules {
            seed,
            order,
            batching: self.plan.batching.clone(),
            layout: RankLayout {
                rank,
                world_size,
                batch_size: self.plan.batching.most_rows() as u64,
                n_streams: self.layout.n_streams,
            },
            window: match self.plan.batching.is_cut() {
                // One window for all ranks.
                true => self.plan.window.saturating_mul(self.layout.world_size),
                false => self.layout.per_stream(self.plan.window).max(1),
            },
            epoch,
            infinite,
            drop_last,
        };
        let sources = sources.transpose()?;
        match (&self.plan.groups, &self.plan.weights) {
            (Some(groups), _) => Schedule::dealt(rules, groups),
            (None, None) => Schedule::new(rules, &self.source.shard_rows(epoch)?, sources),
            (None, Some(weights)) => {
                Schedule::weighted(rules, &self.source.shard_rows(epoch)?, sources, weights.clone())
            }
        }
    }
}
