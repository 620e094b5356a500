//! An engine's position in the data, and how to change it: resume, seek, skip; also the rows and places that
//! come next. All of it is arithmetic on the number of the next batch.

use std::{ops::Range, sync::Arc};

use super::{
    Engine, Losses, MAX_EPOCH, Plan, Replay, epoch_out_of_range, flow::shared::closed, flow::shared::located,
};
use crate::{
    Error, ErrorKind, Result,
    contract::{Source, StreamPositions, TaskFor},
    order::{CHAPTER, ChapterStart, Copies, Cuts, MOST_KNOWN, ReadingPlace, SCANNED, Schedule, WeightedRows},
};

/// The maximum number of ranges of batches to skip.
pub const SKIPS: usize = 8;

/// The largest world size at the first start that a state may name.
pub const MAX_WORLD: u64 = 1 << 20;

/// What the first start fixes for good, however the number of ranks changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamLayout {
    /// V, the number of streams that the order is defined over; 1 if it is defined over positions.
    pub n_streams: u64,
    /// The world size at the first start: it fixes how the window is divided among the streams.
    pub world_size: u64,
}

/// Why the streams of a state do not fit an engine.
struct LayoutProblem {
    message: String,
    /// Whether a pass can begin with other streams.
    has_remedy: bool,
}

impl StreamLayout {
    /// One stream for any world size, for orders defined over positions.
    pub(crate) const ONE: Self = Self { n_streams: 1, world_size: 1 };

    /// The streams of a first start.
    pub(crate) fn first(plan: &Plan) -> Self {
        let world_size = plan.world_size;
        match plan.has_streams() {
            true => Self { n_streams: plan.n_streams.unwrap_or(world_size), world_size },
            false => Self::ONE,
        }
    }

    /// A stream's share of a number that was configured for a rank of the first start.
    pub(crate) fn per_stream(self, number: u64) -> u64 {
        (u128::from(number) * u128::from(self.world_size) / u128::from(self.n_streams)) as u64
    }
}

/// A loader's position: the number of the next batch, and what fixes the meaning of that number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// The pass of a finite loader; 0 for an infinite one.
    pub epoch: u64,
    /// The next batch of the pass, even if it is one to leave out.
    pub batch: u64,
    pub layout: StreamLayout,
    /// Batches of the pass to leave out: disjoint ranges in rising order that do not touch.
    pub skip: Vec<Range<u64>>,
    /// The positions of this rank's streams, if the number of the batch does not determine them and is not 0.
    pub stream_positions: Option<StreamPositions>,
    /// The chapter that has the next batch, with [`Batching::Cuts`](crate::order::Batching::Cuts).
    pub cut: Option<CutPosition>,
    /// Records missing in earlier batches because the system failed to read them.
    pub lost: Losses,
}

/// Where a chapter begins in a pass; with it no earlier one is planned again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CutPosition {
    pub start: ChapterStart,
    /// The ranks that counted [`Position::batch`]: each takes its streams of a step one after the other.
    pub world_size: u64,
}

impl<S: Source, K: TaskFor<S>> Engine<S, K> {
    /// The number of the next batch, counted from the start of the pass; after the end, the number of
    /// batches.
    pub fn batch(&self) -> u64 {
        past(&self.skip, self.next_batch(), self.n_batches)
    }

    /// The pass of a finite engine; for an infinite one, the examples before this batch divided by the number
    /// of rows, rounded down (packed: always 0).
    pub fn epoch(&self) -> u64 {
        if !self.plan.infinite || !self.plan.batching.is_planned() {
            return self.epoch;
        }
        if let Some(cuts) = &self.cuts {
            return cuts.epoch_of(self.batch());
        }
        self.batch().saturating_mul(self.global_batch()) / self.per_epoch()
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
        self.find_cut(batch)?;
        if self.next_batch() == batch && self.pass.as_ref().is_none_or(|pass| pass.fatal().is_none()) {
            // The position is already there; from now on it counts as set by `seek`.
            self.start = batch;
            self.has_taken = false;
        } else {
            self.leave(batch);
            self.is_over = false;
        }
        Ok(())
    }

    /// Leaves out these batches of the current pass, counted from its start; replaces earlier ranges. The
    /// next pass is complete.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if the pass has fewer batches, or there are more than [`SKIPS`] ranges: that
    /// keeps states small.
    pub fn skip(&mut self, ranges: &[Range<u64>]) -> Result<()> {
        let skip = merged(ranges.to_vec());
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
            return Err(format!(
                "{} ranges are to be skipped, at most {SKIPS} are allowed; join some",
                skip.len()
            ));
        }
        Ok(())
    }

    /// Checks that a batch can be made without the batches before it.
    fn check_counted(&self) -> Result<()> {
        if self.plan.batching.is_planned() {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Config,
            "a packed batch depends on all batches before it, so seek, skip, replay and plan are not possible; save states instead",
        ))
    }

    /// Finds the chapter of a batch by length.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if too many chapters would have to be planned for that.
    fn find_cut(&mut self, batch: u64) -> Result<()> {
        let Some(cuts) = &self.cuts else { return Ok(()) };
        // The pass was resumed after it.
        if batch < cuts.first_batch() {
            let schedule = self.schedule_from(self.epoch, ChapterStart::default())?;
            self.cuts = schedule.cuts().cloned();
        }
        self.cuts.as_ref().map_or(Ok(()), |cuts| Self::check_found(cuts, batch))
    }

    /// Checks that the chapter of a batch can be found soon.
    fn check_found(cuts: &Cuts<Schedule>, batch: u64) -> Result<()> {
        if cuts.can_find(batch) {
            return Ok(());
        }
        let message = format!(
            "batch is {batch}, which is too far ahead: batches by length are counted from the last known one on, over at \
             most {} draws and {MOST_KNOWN} chapters; save a state there instead",
            SCANNED * CHAPTER
        );
        Err(Error::new(ErrorKind::Config, message))
    }

    /// Moves the position past the batches to leave out.
    pub(crate) fn skip_ahead(&mut self) -> Result<()> {
        let to = self.batch();
        if to == self.next_batch() {
            return Ok(());
        }
        self.deliver_rest();
        let has_taken = self.has_taken;
        self.seek(to)?;
        self.has_taken = has_taken;
        Ok(())
    }

    /// The highest batch number of an infinite pass: up to there no count of examples overflows.
    fn farthest(&self) -> u64 {
        MAX_EPOCH / self.global_batch()
    }

    fn check_batch(&self, batch: u64, or_end: bool) -> Result<()> {
        let most = self.n_batches.unwrap_or_else(|| self.farthest()) - u64::from(!or_end);
        if batch <= most {
            return Ok(());
        }
        let end = if or_end { " (the end of the pass)" } else { "" };
        let message = format!("batch is {batch}, must be 0 to {most}{end}");
        Err(Error::new(ErrorKind::Config, message))
    }

    /// The engine's position. After the last batch of a pass that is the start of the next pass.
    pub fn position(&self) -> Position {
        let (epoch, layout, lost) = (self.epoch, self.layout, self.failures.lost().clone());
        if self.is_over() {
            return Position {
                epoch: epoch + 1,
                batch: 0,
                layout,
                skip: Vec::new(),
                stream_positions: None,
                cut: None,
                lost,
            };
        }
        // All ranges are kept, and the batch may be in one: `seek` may return to earlier batches, and `skip`
        // may remove the ranges.
        let (batch, skip) = (self.next_batch(), self.skip.clone());
        let world_size = self.plan.world_size;
        let cut = self.cuts.as_ref().map(|cuts| CutPosition { start: cuts.chapter_of(batch), world_size });
        Position { epoch, batch, layout, skip, stream_positions: self.stream_positions.clone(), cut, lost }
    }

    /// Continues at a position of this engine, or of another one over the same data.
    ///
    /// # Errors
    /// [`ErrorKind::State`] if the ranks cannot share the streams evenly, or the position is impossible.
    pub fn restore(&mut self, position: Position) -> Result<()> {
        let Position { epoch, mut batch, layout, mut skip, stream_positions, cut, lost } = position;
        let wrong = |message| Err(Error::new(ErrorKind::State, message));
        if epoch > MAX_EPOCH || batch > self.farthest() || self.plan.infinite && epoch > 0 {
            return wrong(format!(
                "the state is at batch {batch} of epoch {epoch}, which this loader cannot reach"
            ));
        }
        let layout = if self.plan.has_streams() { layout } else { StreamLayout::ONE };
        let layout = match self.layout_problem(layout) {
            None => layout,
            // No pass is split here: the next one may be dealt to other streams.
            Some(problem) if problem.has_remedy && batch == 0 && !self.plan.infinite => {
                StreamLayout::first(&self.plan)
            }
            Some(problem) => return wrong(problem.message),
        };
        let cut = cut.filter(|_| self.plan.batching.is_cut() && batch > 0);
        if let Some(CutPosition { world_size, .. }) = cut {
            let batches = std::iter::once(&mut batch)
                .chain(skip.iter_mut().flat_map(|range| [&mut range.start, &mut range.end]));
            for batch in batches {
                *batch = match self.renumbered(*batch, layout.n_streams, world_size) {
                    Ok(batch) => batch,
                    Err(message) => return wrong(message),
                };
            }
        }
        let start = cut.map_or_else(ChapterStart::default, |cut| cut.start);
        let before = std::mem::replace(&mut self.layout, layout);
        let schedule = match self.schedule_from(epoch, start) {
            Ok(schedule) if schedule.n_batches().is_none_or(|n| batch < n) => schedule,
            found => {
                self.layout = before;
                return match found {
                    Ok(_) => wrong(format!("the state is at batch {batch}, which the pass does not have")),
                    Err(error) => Err(error),
                };
            }
        };
        if schedule.cuts().is_some_and(|cuts| batch < cuts.first_batch() || !cuts.can_find(batch)) {
            self.layout = before;
            return wrong(format!("the state is at batch {batch}, which its chapter does not have"));
        }
        if let Err(problem) = self.check_stream_positions(batch, stream_positions.as_ref(), &schedule) {
            self.layout = before;
            return wrong(problem);
        }
        let skip = merged(skip);
        if let Err(problem) = self.check_skip(&skip, schedule.n_batches()) {
            self.layout = before;
            return wrong(format!("the state does not fit this loader: {problem}"));
        }
        if let Some(row) = lost.values().flat_map(|lost| &lost.rows).find(|&&row| row >= self.rows()) {
            self.layout = before;
            return wrong(format!(
                "the state lists row {row} as lost, but there are only {} rows",
                self.rows()
            ));
        }
        self.enter(epoch, batch, &schedule);
        self.skip = skip;
        self.stream_positions = stream_positions;
        let rows = lost.values().flat_map(|lost| &lost.rows);
        let listed: Vec<_> = rows.map(|&row| located(lost_before(), &*self.source, row)).collect();
        self.failures.restore(lost, listed);
        Ok(())
    }

    /// The number of a batch by length that ranks of another number counted.
    fn renumbered(&self, batch: u64, n_streams: u64, world_size: u64) -> Result<u64, String> {
        let ranks = self.plan.world_size;
        if world_size == ranks {
            return Ok(batch);
        }
        if world_size == 0 || !n_streams.is_multiple_of(world_size) {
            return Err(format!(
                "the state has {n_streams} streams for {world_size} ranks: no loader wrote that"
            ));
        }
        let (of_state, own) = (n_streams / world_size, n_streams / ranks);
        match batch.is_multiple_of(of_state) {
            true => Ok((batch / of_state).saturating_mul(own)),
            false => Err(format!(
                "the state is at batch {batch} of each of {world_size} ranks, in the middle of a step of {of_state}; resume \
                 with world_size={world_size}, or save after a multiple of {of_state} batches"
            )),
        }
    }

    /// Checks that these positions of the streams are possible before `batch`.
    fn check_stream_positions(
        &self,
        batch: u64,
        stream_positions: Option<&StreamPositions>,
        schedule: &Schedule,
    ) -> Result<(), String> {
        let Some(stream_positions) = stream_positions else {
            return match self.plan.batching.is_planned() || batch == 0 {
                true => Ok(()),
                false => Err(format!("the state is at batch {batch}, but has no positions of the packers")),
            };
        };
        if self.plan.batching.is_planned() || stream_positions.len() != schedule.n_streams() {
            return Err(format!(
                "the state has {} packers for this rank, which has {}",
                stream_positions.len(),
                schedule.n_streams()
            ));
        }
        for (stream, at) in stream_positions.iter().enumerate() {
            let end = schedule.end(stream).unwrap_or(MAX_EPOCH);
            let is_over = at.share.is_over && schedule.end(stream) != Some(at.draws);
            let is_beyond = is_over || at.draws > end || at.held.iter().any(|held| held.row >= self.rows());
            // The first stream of a packer has what the packer holds of all its streams.
            let first = stream - stream % schedule.per_packer();
            let of_packer = &stream_positions[first..first + schedule.per_packer()];
            let draws = of_packer.iter().fold(0u64, |sum, at| sum.saturating_add(at.draws));
            if is_beyond || at.held.len() as u64 > draws || at.share.taken > MAX_EPOCH {
                return Err(format!(
                    "the state's packer {stream} of this rank has read {} documents and holds {}, which is impossible with these files",
                    at.draws,
                    at.held.len()
                ));
            }
        }
        Ok(())
    }

    /// Why this engine cannot continue the streams of a state.
    fn layout_problem(&self, layout: StreamLayout) -> Option<LayoutProblem> {
        let StreamLayout { n_streams, world_size } = layout;
        let ranks = self.plan.world_size;
        // The ranks of the first start shared the streams evenly; a stream's window follows from that.
        let is_divided = self.plan.batching.is_cut() || self.global_batch().is_multiple_of(n_streams);
        let is_shared = (1..=MAX_WORLD).contains(&world_size) && n_streams.is_multiple_of(world_size);
        if n_streams == 0 || !is_shared || !is_divided {
            let message = format!(
                "the state has {n_streams} streams, first shared by {world_size} ranks, and batches of {}: no loader wrote that",
                self.global_batch()
            );
            return Some(LayoutProblem { message, has_remedy: false });
        }
        if !n_streams.is_multiple_of(if self.plan.has_streams() { ranks } else { 1 }) {
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
            return Some(LayoutProblem { message, has_remedy: true });
        }
        let asked = self.plan.n_streams.filter(|&n| n != n_streams)?;
        let message = format!(
            "the state has {n_streams} streams, but n_streams is {asked}; leave n_streams out to use the state's"
        );
        Some(LayoutProblem { message, has_remedy: true })
    }

    /// The rows that come next, for use on any thread.
    ///
    /// # Errors
    /// Only those of [`Engine::new`].
    pub fn upcoming(&self) -> Result<Upcoming> {
        self.check_counted()?;
        let schedule = self.schedule(self.epoch)?;
        Ok(Upcoming { schedule, batch: self.batch(), n_batches: self.n_batches, skip: self.skip.clone() })
    }

    /// The rows with weights of each source, and their copies in an epoch; none without weights.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for an epoch beyond the last; those of [`Engine::new`].
    pub fn copies(&self, epoch: u64) -> Result<Vec<(Arc<WeightedRows>, Copies)>> {
        if epoch > MAX_EPOCH {
            return Err(epoch_out_of_range(epoch));
        }
        Ok(self.schedule(epoch)?.copies(epoch))
    }

    /// The place that each stream of this rank reads next, in its reading order.
    ///
    /// # Errors
    /// Only those of [`Engine::new`].
    pub fn places(&mut self) -> Result<Vec<ReadingPlace>> {
        // Kept for the next call: dealing out all row groups takes longer than the rest of a state.
        let mut schedule = match self.asked.take() {
            Some((epoch, layout, schedule)) if (epoch, layout) == (self.epoch, self.layout) => schedule,
            _ => self.schedule(self.epoch)?,
        };
        let n_streams = schedule.n_streams();
        let place = |stream: usize| {
            let draws = match &self.stream_positions {
                Some(stream_positions) => stream_positions[stream].draws,
                None if self.plan.batching.is_planned() => schedule.draws_before(stream, self.batch()),
                None => 0,
            };
            schedule.place(stream, draws)
        };
        let places = (0..n_streams).map(place).collect();
        self.asked = Some((self.epoch, self.layout, schedule));
        Ok(places)
    }

    /// Creates another engine at the same position, with its own threads and counts.
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

    /// Prepares a batch of this pass, earlier or later, to be made apart from the pipeline.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if the pass has fewer batches, [`ErrorKind::Closed`].
    pub fn replay(&self, batch: u64) -> Result<Replay<S, K>> {
        if self.control.is_closed() {
            return Err(closed());
        }
        self.check_counted()?;
        self.check_batch(batch, false)?;
        let schedule = match &self.cuts {
            Some(cuts) if batch < cuts.first_batch() => {
                self.schedule_from(self.epoch, ChapterStart::default())?
            }
            _ => self.schedule(self.epoch)?,
        };
        if let Some(cuts) = schedule.cuts() {
            Self::check_found(cuts, batch)?;
        }
        let (source, task) = (Arc::clone(&self.source), Arc::clone(&self.task));
        Ok(Replay { schedule, batch, source, task, policy: self.plan.policy.clone() })
    }
}

/// The examples that come next, if no record is bad.
#[derive(Debug)]
pub struct Upcoming {
    schedule: Schedule,
    batch: u64,
    n_batches: Option<u64>,
    skip: Vec<Range<u64>>,
}

impl Upcoming {
    /// The rows of the next `n` examples of this rank; see [`Self::examples`].
    ///
    /// # Errors
    /// [`ErrorKind::Memory`] if the allocation failed.
    pub fn rows(self, n: usize, go_on: impl Fn() -> bool) -> Result<Option<Vec<i64>>> {
        self.examples(n, go_on, |row, _| row as i64)
    }

    /// The next `n` examples of this rank, as `of` makes them of a row and the random bits of its record;
    /// fewer if the pass ends earlier. `None` if `go_on`, called before each batch, returned false.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`] if the allocation failed.
    pub fn examples<T>(
        mut self,
        n: usize,
        go_on: impl Fn() -> bool,
        of: impl Fn(u64, u64) -> T,
    ) -> Result<Option<Vec<T>>> {
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
                    Error::new(
                        ErrorKind::Memory,
                        format!("allocation failed for a plan of {n} rows; plan fewer"),
                    )
                    .because(cause)
                })?;
                let tickets = std::iter::from_fn(|| window.draw()).take(draws as usize);
                rows.extend(tickets.map(|ticket| {
                    let place = self.schedule.place(stream, ticket);
                    of(place.row, self.schedule.seed_of(place))
                }));
            }
            batch += 1;
        }
        rows.truncate(n);
        Ok(Some(rows))
    }
}

/// The error of a record that a state lists as lost.
fn lost_before() -> Error {
    Error::new(ErrorKind::Io, "the record could not be read before the state was saved; it is in no batch")
}

/// The first batch from `batch` on that is not skipped, at most the end of the pass.
fn past(skip: &[Range<u64>], batch: u64, n_batches: Option<u64>) -> u64 {
    let to = skip.iter().find(|range| range.contains(&batch)).map_or(batch, |range| range.end);
    n_batches.map_or(to, |n| to.min(n))
}

/// Sorts ranges, and joins those that touch.
fn merged(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut apart: Vec<Range<u64>> = Vec::new();
    for range in ranges.into_iter().filter(|range| !range.is_empty()) {
        match apart.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => apart.push(range),
        }
    }
    apart
}
