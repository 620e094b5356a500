//! Where an engine stands, and how it gets elsewhere: resume, seek, skip, and a look ahead. All of it is
//! arithmetic on the number of the next batch.

use std::{ops::Range, sync::Arc};

use super::{Engine, Losses, MAX_EPOCH, Plan, Replay, flow::shared::closed, flow::shared::located};
use crate::{
    Error, ErrorKind, Result,
    order::{Place, Schedule},
    record::{Source, Standings, Task},
};

/// How many ranges of batches may be set to be skipped.
pub const SKIPS: usize = 8;

/// The largest world size that a state may have begun with.
pub(crate) const MAX_WORLD: u64 = 1 << 20;

/// What stays as it was at the first start, whatever the number of ranks becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Canon {
    /// V, the streams that the order is defined over; 1 if it is one of positions.
    pub n_streams: u64,
    /// The world size then: it fixes how the window is shared among the streams.
    pub world_size: u64,
}

/// Why the streams of a state do not fit an engine.
struct CanonProblem {
    message: String,
    /// Whether a pass can begin with other streams.
    has_remedy: bool,
}

impl Canon {
    /// One stream, whatever the world: where the order is one of positions.
    pub(crate) const ONE: Self = Self { n_streams: 1, world_size: 1 };

    /// The streams of a first start.
    pub(crate) fn first(plan: &Plan) -> Self {
        let world_size = plan.world_size;
        match plan.order.is_streamed() {
            true => Self { n_streams: plan.n_streams.unwrap_or(world_size), world_size },
            false => Self::ONE,
        }
    }

    /// What a stream gets of a number that is meant for a rank of the first start.
    pub(crate) fn per_stream(self, number: u64) -> u64 {
        (u128::from(number) * u128::from(self.world_size) / u128::from(self.n_streams)) as u64
    }
}

/// Where a loader stands: the number of the next batch, and what that number means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// The pass of a finite loader; 0 for an endless one.
    pub epoch: u64,
    /// The next batch of the pass.
    pub batch: u64,
    /// What fixes the streams.
    pub canon: Canon,
    /// Batches of the pass that are left out, in rising order, apart from one another.
    pub skip: Vec<Range<u64>>,
    /// Where the streams of this rank stand, if the number of the batch does not tell and is not 0.
    pub standings: Option<Standings>,
    /// Records that the batches before lack because the system failed to read them.
    pub lost: Losses,
}

impl<S: Source, K: Task> Engine<S, K> {
    /// The number of the next batch, counted from the start of the pass; the number of batches, if it is
    /// over.
    pub fn batch(&self) -> u64 {
        past(&self.skip, self.next_batch(), self.n_batches)
    }

    /// The pass of a finite engine; of an infinite one how often as many examples were drawn as there are
    /// rows.
    pub fn epoch(&self) -> u64 {
        if !self.plan.infinite || !self.plan.order.is_counted() {
            return self.epoch;
        }
        self.batch().saturating_mul(self.global_batch()) / self.rows()
    }

    /// Makes `batch`, counted from the start of the pass, the next one.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if the pass has fewer batches.
    pub fn seek(&mut self, batch: u64) -> Result<()> {
        if batch > 0 {
            self.check_counted()?;
        }
        self.check_batch(batch, true)?;
        if self.next_batch() == batch && self.pass.as_ref().is_none_or(|pass| pass.fatal().is_none()) {
            // The position is there already; from now on it counts as set by `seek`.
            self.start = batch;
        } else {
            self.leave(batch);
            self.is_over = false;
        }
        Ok(())
    }

    /// Leaves out the batches of these numbers, counted from the start of the pass, and no others; the next
    /// pass is whole.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if the pass has fewer batches, or the ranges are more than [`SKIPS`], for a
    /// state is to stay small.
    pub fn skip(&mut self, ranges: &[Range<u64>]) -> Result<()> {
        let skip = merged(ranges.to_vec(), 0);
        if !skip.is_empty() {
            self.check_counted()?;
        }
        self.check_skip(&skip, self.n_batches).map_err(|message| Error::new(ErrorKind::Config, message))?;
        self.skip = skip;
        Ok(())
    }

    fn check_skip(&self, skip: &[Range<u64>], n_batches: Option<u64>) -> Result<(), String> {
        let most = n_batches.unwrap_or_else(|| self.farthest());
        if let Some(range) = skip.iter().find(|range| range.end > most) {
            return Err(format!(
                "the batches {} to {} are to be skipped, but there are {most}",
                range.start, range.end
            ));
        }
        if skip.len() > SKIPS {
            return Err(format!("{} ranges are to be skipped, at most {SKIPS} may; join some", skip.len()));
        }
        Ok(())
    }

    /// That a batch can be had without those before it.
    fn check_counted(&self) -> Result<()> {
        if self.plan.order.is_counted() {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Config,
            "a packed batch depends on all batches before it: it cannot be found by its number, skipped or planned; save states and load them",
        ))
    }

    /// Passes over the batches that are to be left out.
    pub(crate) fn skip_ahead(&mut self) -> Result<()> {
        let to = self.batch();
        if to == self.next_batch() { Ok(()) } else { self.seek(to) }
    }

    /// The number of batches of an endless pass that can be chosen: no count of examples up to there
    /// overflows.
    fn farthest(&self) -> u64 {
        MAX_EPOCH / self.global_batch()
    }

    fn check_batch(&self, batch: u64, or_end: bool) -> Result<()> {
        let most = self.n_batches.unwrap_or_else(|| self.farthest()) - u64::from(!or_end);
        if batch <= most {
            return Ok(());
        }
        let end = if or_end { ", the end of the pass" } else { "" };
        let message = format!("batch is {batch}, must be 0 to {most}{end}");
        Err(Error::new(ErrorKind::Config, message))
    }

    /// Where the engine stands. After the last batch of a pass that is the start of the next one.
    pub fn position(&self) -> Position {
        let (epoch, batch, canon) = (self.epoch, self.batch(), self.canon);
        let lost = self.failures.lost().clone();
        if self.is_over() {
            return Position { epoch: epoch + 1, batch: 0, canon, skip: Vec::new(), standings: None, lost };
        }
        // A pass may be begun anew; what an endless one has passed does not come again.
        let skip = merged(self.skip.clone(), if self.plan.infinite { batch } else { 0 });
        Position { epoch, batch, canon, skip, standings: self.standings.clone(), lost }
    }

    /// Goes on at a position, of this engine or of another one over the same data.
    ///
    /// # Errors
    /// [`ErrorKind::State`] if the streams cannot be shared by the ranks, or there can be no such position.
    pub fn restore(&mut self, position: Position) -> Result<()> {
        let Position { epoch, batch, canon, skip, standings, lost } = position;
        let wrong = |message| Err(Error::new(ErrorKind::State, message));
        if epoch > MAX_EPOCH || batch > self.farthest() || self.plan.infinite && epoch > 0 {
            return wrong(format!(
                "the state stands at batch {batch} of epoch {epoch}, which no such loader reaches"
            ));
        }
        let canon = if self.plan.order.is_streamed() { canon } else { Canon::ONE };
        let canon = match self.canon_problem(canon) {
            None => canon,
            // No pass is split here: the next one may be dealt to other streams.
            Some(problem) if problem.has_remedy && batch == 0 && !self.plan.infinite => {
                Canon::first(&self.plan)
            }
            Some(problem) => return wrong(problem.message),
        };
        let before = std::mem::replace(&mut self.canon, canon);
        let schedule = match self.schedule(epoch) {
            Ok(schedule) if schedule.n_batches().is_none_or(|n| batch < n) => schedule,
            found => {
                self.canon = before;
                return match found {
                    Ok(_) => {
                        wrong(format!("the state stands at batch {batch}, which the pass does not have"))
                    }
                    Err(error) => Err(error),
                };
            }
        };
        if let Err(problem) = self.check_standings(batch, standings.as_ref(), &schedule) {
            self.canon = before;
            return wrong(problem);
        }
        let skip = merged(skip, 0);
        if let Err(problem) = self.check_skip(&skip, schedule.n_batches()) {
            self.canon = before;
            return wrong(format!("the state is none of this loader: {problem}"));
        }
        if let Some(row) = lost.values().flat_map(|lost| &lost.rows).find(|&&row| row >= self.rows()) {
            self.canon = before;
            return wrong(format!("the state says that row {row} was lost; there are {}", self.rows()));
        }
        self.enter(epoch, batch, &schedule);
        self.iterations = None;
        self.skip = skip;
        self.standings = standings;
        let rows = lost.values().flat_map(|lost| &lost.rows);
        let listed: Vec<_> = rows.map(|&row| located(lost_before(), &*self.source, row)).collect();
        self.failures.restore(lost, listed);
        Ok(())
    }

    /// That the streams can stand so where `batch` is next.
    fn check_standings(
        &self,
        batch: u64,
        standings: Option<&Standings>,
        schedule: &Schedule,
    ) -> Result<(), String> {
        let Some(standings) = standings else {
            return match self.plan.order.is_counted() || batch == 0 {
                true => Ok(()),
                false => {
                    Err(format!("the state stands at batch {batch} and does not tell where its streams do"))
                }
            };
        };
        if self.plan.order.is_counted() || standings.len() != schedule.n_streams() {
            return Err(format!(
                "the state has {} packers for this rank, which has {}",
                standings.len(),
                schedule.n_streams()
            ));
        }
        for (stream, at) in standings.iter().enumerate() {
            let end = schedule.end(stream).unwrap_or(MAX_EPOCH);
            let is_beyond = at.draws > end || at.held.iter().any(|held| held.row >= self.rows());
            if is_beyond || at.held.len() as u64 > at.draws {
                return Err(format!(
                    "the state's packer {stream} of this rank has read {} documents and holds {}: no loader of these files does",
                    at.draws,
                    at.held.len()
                ));
            }
        }
        Ok(())
    }

    /// Why this engine cannot continue the streams of a state.
    fn canon_problem(&self, canon: Canon) -> Option<CanonProblem> {
        let Canon { n_streams, world_size } = canon;
        let ranks = self.plan.world_size;
        // Each rank of the first start had this many streams; the window of a stream follows from that.
        let is_shared = (1..=MAX_WORLD).contains(&world_size) && n_streams.is_multiple_of(world_size);
        if n_streams == 0 || !is_shared || !self.global_batch().is_multiple_of(n_streams) {
            let message = format!(
                "the state has {n_streams} streams, first shared by {world_size} ranks, and batches of {}: no loader wrote that",
                self.global_batch()
            );
            return Some(CanonProblem { message, has_remedy: false });
        }
        if !n_streams.is_multiple_of(if self.plan.order.is_streamed() { ranks } else { 1 }) {
            let elsewhere = match self.plan.infinite {
                true => "",
                false => ", load a state from the end of a pass, which every world_size can load",
            };
            let fitting = match n_streams {
                1 => "world_size=1".into(),
                _ => format!("a world_size that divides {n_streams}"),
            };
            let message = format!(
                "the state has {n_streams} streams (n_streams of its first run, by default its world_size), which \
                 {ranks} ranks cannot share evenly; resume with {fitting}{elsewhere}, or start a new run with \
                 n_streams set to a multiple of every world_size that you will use"
            );
            return Some(CanonProblem { message, has_remedy: true });
        }
        let asked = self.plan.n_streams.filter(|&n| n != n_streams)?;
        let message = format!(
            "the state has {n_streams} streams, n_streams is {asked}; leave n_streams out to take the state's"
        );
        Some(CanonProblem { message, has_remedy: true })
    }

    /// A look at what comes next, that can be taken on any thread.
    ///
    /// # Errors
    /// None that [`Engine::new`] would not have found.
    pub fn upcoming(&self) -> Result<Upcoming> {
        self.check_counted()?;
        let schedule = self.schedule(self.epoch)?;
        Ok(Upcoming { schedule, batch: self.batch(), n_batches: self.n_batches, skip: self.skip.clone() })
    }

    /// What each stream of this rank reads next, in the order in which it reads.
    ///
    /// # Errors
    /// None that [`Engine::new`] would not have found.
    pub fn places(&mut self) -> Result<Vec<Place>> {
        // Dealing out all row groups takes longer than all else that a state needs.
        let mut schedule = match self.asked.take() {
            Some((epoch, canon, schedule)) if (epoch, canon) == (self.epoch, self.canon) => schedule,
            _ => self.schedule(self.epoch)?,
        };
        let n_streams = schedule.n_streams();
        let place = |stream: usize| {
            let draws = match &self.standings {
                Some(standings) => standings[stream].draws,
                None if self.plan.order.is_counted() => schedule.draws_before(stream, self.batch()),
                None => 0,
            };
            schedule.place(stream, draws)
        };
        let places = (0..n_streams).map(place).collect();
        self.asked = Some((self.epoch, self.canon, schedule));
        Ok(places)
    }

    /// Another engine that stands where this one does, with threads and counts of its own.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`].
    pub fn aside(&self) -> Result<Self> {
        if self.control.is_closed() {
            return Err(closed());
        }
        let mut aside = Self::over(Arc::clone(&self.source), Arc::clone(&self.task), self.plan.clone())?;
        aside.restore(self.position())?;
        Ok(aside)
    }

    /// A batch of this pass once more, or in advance, made on the side.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if the pass has fewer batches, [`ErrorKind::Closed`].
    pub fn replay(&self, batch: u64) -> Result<Replay<S, K>> {
        if self.control.is_closed() {
            return Err(closed());
        }
        self.check_counted()?;
        self.check_batch(batch, false)?;
        let schedule = self.schedule(self.epoch)?;
        let (source, task) = (Arc::clone(&self.source), Arc::clone(&self.task));
        Ok(Replay { schedule, batch, source, task, policy: self.plan.policy.clone() })
    }
}

/// The examples that come next, as they will be unless records are bad.
#[derive(Debug)]
pub struct Upcoming {
    schedule: Schedule,
    batch: u64,
    n_batches: Option<u64>,
    skip: Vec<Range<u64>>,
}

impl Upcoming {
    /// The rows of the next `n` examples of this rank; fewer if the pass ends earlier. `go_on` is called
    /// before each batch.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`] if the allocation failed. `None` if `go_on` returned false.
    pub fn rows(mut self, n: usize, go_on: impl Fn() -> bool) -> Result<Option<Vec<i64>>> {
        let mut rows = Vec::new();
        let mut batch = self.batch;
        let mut windows = self.schedule.windows(batch);
        while rows.len() < n && self.n_batches.is_none_or(|end| batch < end) {
            if !go_on() {
                return Ok(None);
            }
            let next = past(&self.skip, batch, self.n_batches);
            if next != batch {
                batch = next;
                windows = self.schedule.windows(batch);
                continue;
            }
            for (stream, window) in windows.iter_mut().enumerate() {
                let draws =
                    self.schedule.draws_before(stream, batch + 1) - self.schedule.draws_before(stream, batch);
                rows.try_reserve(draws as usize).map_err(|cause| {
                    Error::new(ErrorKind::Memory, format!("no memory for a plan of {n} rows; plan fewer"))
                        .because(cause)
                })?;
                let tickets = std::iter::from_fn(|| window.draw()).take(draws as usize);
                rows.extend(tickets.map(|ticket| self.schedule.assign(stream, ticket).row as i64));
            }
            batch += 1;
        }
        rows.truncate(n);
        Ok(Some(rows))
    }
}

/// The error of a record that a state says was lost.
fn lost_before() -> Error {
    Error::new(ErrorKind::Io, "the record was lost before the state was saved, and is in no batch")
}

/// `batch`, or the next one that is not to be skipped; not beyond the end of the pass.
fn past(skip: &[Range<u64>], batch: u64, n_batches: Option<u64>) -> u64 {
    let to = skip.iter().find(|range| range.contains(&batch)).map_or(batch, |range| range.end);
    n_batches.map_or(to, |n| to.min(n))
}

/// Ranges in rising order, joined where they touch, without what lies before `from`.
fn merged(mut ranges: Vec<Range<u64>>, from: u64) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut apart: Vec<Range<u64>> = Vec::new();
    for range in
        ranges.into_iter().map(|range| range.start.max(from)..range.end).filter(|range| !range.is_empty())
    {
        match apart.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => apart.push(range),
        }
    }
    apart
}
