//! [`Schedule`]: the order of one pass on one rank: which records its batches have, in which order, and from
//! which streams they are drawn.
//!
//! There are two kinds of order. With [`Order::Window`] the reading order of an epoch is divided into V
//! canonical streams, with [`Order::Groups`] the row groups are dealt out to them. Each stream is mixed by
//! its own window, and a rank owns V / world_size streams. In all other orders a record follows from its
//! position in the training stream, so a rank owns the positions of its part of each batch; they form one
//! stream with a window of one slot. In both kinds the ranks' parts of a batch together are the batch that
//! one process would make. Other modules see only streams, draws and tickets.
//!
//! A batch is numbered from the start of the pass. All of this is arithmetic on `(seed, epoch, batch)`: any
//! batch can be computed without those before it, except with [`Order::Groups`], where the collator
//! determines how many draws a batch takes.

use std::sync::Arc;

use super::{
    Copies, Groups, Reading, ReadingPlace, ShardOrder, WeightedRows, Window,
    batching::Batching,
    buckets::Buckets,
    cuts::{ChapterStart, CutDraw, Cuts, UncutDraws},
    groups::Stride,
    permutation::Permutation,
    reading::crop_seed,
    rules::{Assignment, Draw, MixedSources, Order, RankLayout, Rules},
    weighted::SourceWeights,
};
use crate::{
    Error, ErrorKind, Result,
    seed::{Purpose, below, hash},
};

/// The order of one pass on one rank.
#[derive(Debug, Clone)]
pub struct Schedule {
    rules: Rules,
    /// Positions of a finite pass, or rows of an epoch.
    positions: u64,
    reading: Reading,
    /// With [`Order::Groups`], one for each stream of this rank: for each packer, one for each source.
    dealt: Vec<Reading>,
    /// Streams of a packer, with [`Order::Groups`]; else 1.
    per_packer: u64,
    sources: Option<MixedSources>,
    /// The weights of the rows, of each source.
    weights: Option<Vec<SourceWeights>>,
    /// The last permutation used for each source, with its epoch.
    permutations: Vec<Option<(u64, Permutation)>>,
    /// With [`Batching::Cuts`]: the batches, and the draws of the last epoch used before they are cut.
    cuts: Option<Arc<Cuts<Schedule>>>,
    uncut: Option<(u64, Box<Schedule>)>,
}

/// The most tickets after one that are looked at for a run of rows with weights.
const MOST_RUN: u64 = 63;

impl Schedule {
    /// The schedule over shards of `shard_rows` rows.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if there are fewer rows than streams.
    pub fn new(rules: Rules, shard_rows: &[u64], sources: Option<MixedSources>) -> Result<Self> {
        let shards = match rules.order {
            Order::Window => ShardOrder::Shuffled,
            _ => ShardOrder::Given,
        };
        let reading = Reading::new(rules.seed, shards, shard_rows.iter().copied());
        let rows = reading.rows();
        if rows < rules.layout.n_streams {
            let remedy = if rules.batching.is_cut() { "" } else { ", or use order=\"global\"" };
            let n = rules.layout.n_streams;
            let message = format!(
                "there are {n} streams (n_streams, else world_size), but only {rows} rows; lower them{remedy}"
            );
            return Err(Error::new(ErrorKind::Config, message));
        }
        let positions = sources.as_ref().and_then(|sources| sources.mixture.len()).unwrap_or(rows);
        let n_sources = sources.as_ref().map_or(0, |sources| sources.starts.len());
        // bounded: as many as there are sources.
        let permutations = vec![None; n_sources + 1];
        Ok(Self {
            rules,
            positions,
            reading,
            dealt: Vec::new(),
            per_packer: 1,
            sources,
            weights: None,
            permutations,
            cuts: None,
            uncut: None,
        })
    }

    /// The schedule over rows with weights: those of all rows, or of each source's.
    ///
    /// # Errors
    /// As [`Schedule::new`].
    pub fn weighted(
        rules: Rules,
        shard_rows: &[u64],
        sources: Option<MixedSources>,
        weights: Arc<[Arc<WeightedRows>]>,
    ) -> Result<Self> {
        let n: u64 = weights.iter().map(|weights| weights.n_copies()).sum();
        let n_streams = rules.layout.n_streams;
        if n < n_streams {
            return Err(Error::new(
                ErrorKind::Config,
                format!(
                    "epoch_size is {n}, must be at least {n_streams}, the number of streams (n_streams, else world_size)"
                ),
            ));
        }
        let mut schedule = Self::new(rules, shard_rows, sources)?;
        if let ([all], None) = (&*weights, &schedule.sources) {
            schedule.reading = schedule.reading.weighted(all.clone());
            schedule.positions = n;
        }
        let seed = schedule.rules.seed;
        let mut begin = 0;
        let mut parts = Vec::new();
        for (number, rows) in (1..).zip(weights.iter()) {
            // As permutations.
            let seed = if schedule.sources.is_none() { seed } else { hash(seed, Purpose::Source, [number]) };
            parts.push(SourceWeights { rows: rows.clone(), begin, seed, recent: None });
            begin += rows.n_rows();
        }
        schedule.weights = Some(parts);
        Ok(schedule)
    }

    /// The schedule over row groups, for [`Order::Groups`].
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if a stream has no rows.
    pub(crate) fn dealt(rules: Rules, groups: &Groups) -> Result<Self> {
        let (seed, n_packers) = (rules.seed, rules.layout.n_streams);
        // Each stream has its own reading order; that of all shards is unused.
        let mut schedule = Self::new(rules, &[n_packers], None)?;
        (schedule.positions, schedule.per_packer) = (0, groups.n_sources() as u64);
        let sources = groups.sources();
        let streams =
            (0..n_packers).flat_map(|packer| (0_usize..).zip(&sources).map(move |from| (packer, from)));
        let name_of = |number| groups.name_of(number);
        for (stream, (packer, (number, groups))) in (0..).zip(streams) {
            let order =
                if groups.is_shuffled { ShardOrder::ShuffledGroups(stream) } else { ShardOrder::Given };
            let reading = Reading::over(seed, order, groups.of(packer, n_packers));
            if reading.rows() == 0 {
                let stride = groups.stride(n_packers);
                let hint = if stride == Stride::File { "use stride=\"global\", " } else { "" };
                let source = match sources.len() {
                    1 => String::new(),
                    _ => format!(" of source {}", name_of(number)),
                };
                return Err(Error::new(
                    ErrorKind::Config,
                    format!(
                        "there are {n_packers} packers (n_streams, else world_size), and stride={:?} leaves no row group{source} \
                         for packer {packer}; lower them, {hint}or write smaller row groups",
                        stride.name()
                    ),
                ));
            }
            schedule.positions += reading.rows();
            let streams = schedule.n_streams() as u64;
            if stream / streams == schedule.rules.layout.rank {
                schedule.dealt.push(reading);
            }
        }
        Ok(schedule)
    }

    /// The streams of a packer, one for each source; 1 where batches are not packed.
    pub(crate) fn per_packer(&self) -> usize {
        self.per_packer as usize
    }

    /// The same schedule with batches by length, from a chapter of the pass on.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if there are not as many lengths as rows.
    pub(crate) fn cut(self, buckets: Arc<Buckets>, start: ChapterStart) -> Result<Self> {
        let rows = self.reading.n_rows();
        if buckets.n_rows() != rows {
            let message = format!("there are {} lengths for {rows} rows", buckets.n_rows());
            return Err(Error::new(ErrorKind::Config, message));
        }
        let Rules { layout, infinite, drop_last, .. } = self.rules;
        // The positions of an infinite mixture have no end.
        let is_endless = infinite && self.sources.is_some();
        let one = RankLayout { rank: 0, world_size: 1, batch_size: 1, n_streams: 1 };
        let rules = Rules {
            batching: Batching::Rows(1),
            layout: one,
            infinite: is_endless,
            drop_last: false,
            ..self.rules.clone()
        };
        let base = Self { rules, ..self.clone() };
        let per_epoch = (!is_endless).then_some(self.positions);
        let share = layout.n_streams / layout.world_size;
        let streams = (layout.n_streams, layout.rank * share..(layout.rank + 1) * share);
        let keeps_rest = !infinite && !drop_last;
        let cuts = Cuts::new(buckets, base, per_epoch, streams, (infinite, keeps_rest), start)?;
        Ok(self.with_cuts(Arc::new(cuts)))
    }

    /// The same schedule with the batches of another one of its pass.
    pub(crate) fn with_cuts(self, cuts: Arc<Cuts<Self>>) -> Self {
        Self { cuts: Some(cuts), ..self }
    }

    pub(crate) fn cuts(&self) -> Option<&Arc<Cuts<Self>>> {
        self.cuts.as_ref()
    }

    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// The positions of a finite pass over all ranks, or the rows of an epoch.
    pub fn positions(&self) -> u64 {
        self.positions
    }

    /// The number of batches of a finite pass, equal on every rank; `None` without end, or if batches are not
    /// counted.
    pub fn n_batches(&self) -> Option<u64> {
        if !self.rules.batching.is_planned() {
            return None;
        }
        if let Some(cuts) = &self.cuts {
            return cuts.n_batches();
        }
        let global = self.rules.layout.global_batch();
        let n = if self.rules.drop_last { self.positions / global } else { self.positions.div_ceil(global) };
        (!self.rules.infinite).then_some(n)
    }

    /// The number of streams of this rank.
    pub fn n_streams(&self) -> usize {
        if !self.rules.is_streamed() {
            return 1;
        }
        (self.rules.layout.n_streams / self.rules.layout.world_size * self.per_packer) as usize
    }

    /// The rows of a full batch that a stream fills; if batches are counted, also the draws that a batch
    /// takes from it.
    pub(crate) fn per_batch(&self) -> u64 {
        if !self.rules.is_streamed() {
            return self.rules.layout.batch_size;
        }
        self.rules.layout.global_batch() / self.rules.layout.n_streams
    }

    /// The number of tickets of a stream in a finite pass; `None` without end.
    pub fn end(&self, stream: usize) -> Option<u64> {
        if self.rules.infinite {
            return None;
        }
        if let Some(cuts) = &self.cuts {
            return cuts.n_draws();
        }
        let RankLayout { rank, world_size, batch_size, .. } = self.rules.layout;
        Some(match self.rules.order {
            Order::Window | Order::Groups => {
                let (begin, end) = self.part(stream);
                end - begin
            }
            _ => {
                let (full, rest) = self.full_batches();
                full * batch_size + share(rest, rank + 1, world_size) - share(rest, rank, world_size)
            }
        })
    }

    /// The number of draws of a stream before `batch`, if batches are counted.
    pub(crate) fn draws_before(&self, stream: usize, batch: u64) -> u64 {
        if let Some(cuts) = &self.cuts {
            return cuts.draws_before(batch);
        }
        let draws = batch.saturating_mul(self.per_batch());
        self.end(stream).map_or(draws, |end| draws.min(end))
    }

    /// The window of a stream after `draws` draws.
    pub fn window(&self, stream: usize, draws: u64) -> Window {
        let Rules { seed, epoch, window, .. } = self.rules;
        let (begin, end) = self.part(stream);
        let size = if self.rules.is_streamed() { window.min(end - begin) } else { 1 };
        Window::at(seed, self.stream_number(stream), epoch, size, self.end(stream), draws)
    }

    /// The windows of all streams at the start of `batch`, if batches are counted.
    pub fn windows(&self, batch: u64) -> Vec<Window> {
        let window = |stream| self.window(stream, self.draws_before(stream, batch));
        (0..self.n_streams()).map(window).collect()
    }

    /// The draws of `batch` on this rank, in the order of its rows, if batches are counted.
    pub fn draws(&self, batch: u64) -> Vec<Draw> {
        // bounded: a batch has at most 2^20 rows.
        let mut draws = Vec::with_capacity(self.rules.layout.batch_size as usize);
        for (stream, mut window) in self.windows(batch).into_iter().enumerate() {
            let numbers = self.draws_before(stream, batch)..self.draws_before(stream, batch + 1);
            draws.extend(
                numbers.filter_map(|number| window.draw().map(|ticket| Draw { stream, number, ticket })),
            );
        }
        draws
    }

    pub(crate) fn assign(&mut self, stream: usize, ticket: u64) -> Assignment {
        let place = self.place(stream, ticket);
        let ReadingPlace { epoch, row, following, .. } = place;
        let seed = self.seed_of(place);
        let (run, tickets, repeats) = match self.weights {
            None => (following + 1, following + 1, false),
            Some(_) if self.cuts.is_some() => (1, 1, false),
            Some(_) => self.run(place, u64::MAX),
        };
        Assignment { row, run, tickets, repeats, seed, epoch }
    }

    /// The random bits of the record of a place.
    pub fn seed_of(&self, place: ReadingPlace) -> u64 {
        crop_seed(self.rules.seed, place)
    }

    /// The number of tickets that the first `rows` rows of a ticket's run have.
    pub(crate) fn tickets_of(&mut self, stream: usize, ticket: u64, rows: u64) -> u64 {
        match self.weights {
            None => rows,
            Some(_) => {
                let place = self.place(stream, ticket);
                self.run(place, rows).1
            }
        }
    }

    /// The rows with weights of each source, and their copies in an epoch; none without weights.
    pub fn copies(&self, epoch: u64) -> Vec<(Arc<WeightedRows>, Copies)> {
        let own = |part: &SourceWeights| (part.rows.clone(), part.rows.epoch(part.seed, epoch));
        self.weights.iter().flatten().map(own).collect()
    }

    /// How many neighbouring rows, at most `most`, follow from a place, how many tickets they have, and
    /// whether the next ticket has the same row. A row whose tickets go on after those that are looked at is
    /// left to the next run, unless it is the first.
    fn run(&mut self, place: ReadingPlace, most: u64) -> (u64, u64, bool) {
        let (mut last, mut tickets, mut repeats) = (place.row, 1, false);
        let mut before_last = 0;
        for copy in place.copy + 1..=place.copy + place.following.min(MOST_RUN) {
            let row = self.row_of(0, place.epoch, copy);
            if row > last + 1 || row - place.row >= most {
                return (last - place.row + 1, tickets, repeats);
            }
            repeats |= tickets == 1 && row == last;
            if row > last {
                (last, before_last) = (row, tickets);
            }
            tickets += 1;
        }
        match before_last {
            1.. if place.following > MOST_RUN => (last - place.row, before_last, repeats),
            _ => (last - place.row + 1, tickets, repeats),
        }
    }

    /// The row of a copy in a source, counted over all files.
    fn row_of(&mut self, source: usize, epoch: u64, copy: u64) -> u64 {
        match &mut self.weights {
            None => copy,
            Some(weights) => weights[source].row(epoch, copy),
        }
    }

    /// The `attempt`-th substitute, counted from 1, for the bad record of `draw`: a random row of the same
    /// stream or source, and of the same epoch.
    pub fn substitute(&mut self, draw: Draw, attempt: u64) -> Assignment {
        if let Some(cuts) = self.cuts.clone()
            && let Some((bad, other)) = cuts.substitute(draw.ticket, attempt)
        {
            let uncut = self.uncut(&cuts, bad.epoch);
            let (bad, other) = (uncut.place(0, bad.ticket), uncut.place(0, other.ticket));
            let words = [0, bad.epoch, bad.copy, attempt];
            // With bits of its own it could be longer than its batch.
            let seed = match cuts.stretches() {
                true => crop_seed(self.rules.seed, other),
                false => hash(self.rules.seed, Purpose::SubstituteCrop, words),
            };
            return Assignment { row: other.row, run: 1, tickets: 1, repeats: false, seed, epoch: bad.epoch };
        }
        let Rules { seed, epoch: first_epoch, .. } = self.rules;
        let place = self.place(draw.stream, draw.ticket);
        let number = match self.rules.order {
            Order::Window | Order::Groups => draw.number,
            _ => self.position(draw.ticket),
        };
        let words = [self.stream_number(draw.stream), first_epoch, number, attempt];
        let random = hash(seed, Purpose::Substitute, words);
        let position = self.position(draw.ticket);
        let row = match (&mut self.sources, self.rules.order) {
            (Some(sources), _) => {
                let (source, _) = sources.mixture.at(position);
                let (begin, end) = (sources.starts[source], sources.starts[source + 1]);
                let copy = below(random, end - begin);
                match self.weights {
                    None => begin + copy,
                    Some(_) => self.row_of(source, place.epoch, copy),
                }
            }
            (None, Order::Window | Order::Sequential | Order::Groups) => {
                let (begin, end) = self.part(draw.stream);
                self.reading(draw.stream).place(place.epoch, begin + below(random, end - begin)).row
            }
            (None, _) => self.row_of(0, place.epoch, below(random, self.reading.rows())),
        };
        let seed = hash(seed, Purpose::SubstituteCrop, words);
        Assignment { row, run: 1, tickets: 1, repeats: false, seed, epoch: place.epoch }
    }

    /// The number of a stream of this rank among all streams.
    fn stream_number(&self, stream: usize) -> u64 {
        if !self.rules.is_streamed() {
            return 0;
        }
        self.rules.layout.rank * self.n_streams() as u64 + stream as u64
    }

    /// The reading order that a stream is a part of.
    fn reading(&mut self, stream: usize) -> &mut Reading {
        self.dealt.get_mut(stream).unwrap_or(&mut self.reading)
    }

    /// Begin and end of a stream's part of each epoch, in reading order.
    fn part(&self, stream: usize) -> (u64, u64) {
        let (rows, streams) = (self.reading.rows(), self.rules.layout.n_streams);
        match self.rules.order {
            Order::Window => {
                let number = self.stream_number(stream);
                (share(rows, number, streams), share(rows, number + 1, streams))
            }
            Order::Groups => (0, self.dealt[stream].rows()),
            _ => (0, rows),
        }
    }

    /// The number of rows of a stream in each epoch; without canonical streams, all rows.
    pub fn rows_of(&self, stream: usize) -> u64 {
        let (begin, end) = self.part(stream);
        end - begin
    }

    /// The number of full batches of a finite pass, and of rows after them.
    fn full_batches(&self) -> (u64, u64) {
        let global = self.rules.layout.global_batch();
        let full = self.positions / global;
        (full, if self.rules.drop_last { 0 } else { self.positions % global })
    }

    /// The position of a ticket of this rank in the training stream, for orders over positions.
    fn position(&self, ticket: u64) -> u64 {
        let RankLayout { rank, world_size, batch_size, .. } = self.rules.layout;
        let (batch, within) = (ticket / batch_size, ticket % batch_size);
        let begin = batch * self.rules.layout.global_batch();
        if !self.rules.infinite {
            let (full, rest) = self.full_batches();
            if batch >= full {
                return full * self.rules.layout.global_batch()
                    + share(rest, rank, world_size)
                    + (ticket - full * batch_size);
            }
        }
        begin + rank * batch_size + within
    }

    /// The draws of an epoch before they are cut.
    fn uncut(&mut self, cuts: &Cuts<Self>, epoch: u64) -> &mut Schedule {
        match self.uncut.take() {
            Some((known, uncut)) if known == epoch => &mut self.uncut.insert((known, uncut)).1,
            _ => &mut self.uncut.insert((epoch, Box::new(cuts.base_of(epoch)))).1,
        }
    }

    /// The epoch and row of a ticket.
    pub fn place(&mut self, stream: usize, ticket: u64) -> ReadingPlace {
        if let Some(cuts) = self.cuts.clone() {
            // After the last draw of a pass comes the first one of the next.
            let draw = cuts.draw(ticket).unwrap_or(CutDraw { epoch: self.rules.epoch + 1, ticket: 0 });
            let place = self.uncut(&cuts, draw.epoch).place(0, draw.ticket);
            return ReadingPlace { following: 0, ..place };
        }
        let first = self.rules.epoch;
        match self.rules.order {
            Order::Window | Order::Groups => {
                let (begin, end) = self.part(stream);
                let (epoch, offset) = (first + ticket / (end - begin), begin + ticket % (end - begin));
                let place = self.reading(stream).place(epoch, offset);
                ReadingPlace { following: place.following.min(end - 1 - offset), ..place }
            }
            order => {
                let position = self.position(ticket);
                let (source, sample, begin, rows) = match &mut self.sources {
                    None => (0, position, 0, self.reading.rows()),
                    Some(MixedSources { mixture, starts }) => {
                        let (source, sample) = mixture.at(position);
                        (source as u64 + 1, sample, starts[source], starts[source + 1] - starts[source])
                    }
                };
                let (epoch, offset) = (first + sample / rows, sample % rows);
                let is_mixture = self.sources.is_some();
                if order != Order::Sequential || (is_mixture && self.weights.is_some()) {
                    let copy = match order {
                        Order::Sequential => offset,
                        _ => self.permuted(epoch, source, rows, offset),
                    };
                    let row = match self.weights {
                        None => begin + copy,
                        Some(_) => self.row_of(source.saturating_sub(1) as usize, epoch, copy),
                    };
                    return ReadingPlace { epoch, row, following: 0, copy: begin + copy };
                }
                let place = self.reading.place(epoch, begin + offset);
                // The rank's part of a batch is contiguous; the rows after it belong to other ranks, or to
                // other sources.
                let part = match (&self.sources, self.rules.layout.world_size) {
                    (Some(_), _) => 0,
                    (None, 1) => u64::MAX,
                    (None, _) => self.rules.layout.batch_size - 1 - ticket % self.rules.layout.batch_size,
                };
                ReadingPlace { following: place.following.min(part), ..place }
            }
        }
    }

    /// The row at `offset` of a source's epoch, counted from the source's first row. Source 0 means all rows;
    /// the sources of a mixture count from 1.
    fn permuted(&mut self, epoch: u64, source: u64, rows: u64, offset: u64) -> u64 {
        let Rules { seed, order, .. } = self.rules;
        let known = &mut self.permutations[source as usize];
        let (_, permutation) = match known {
            Some(known) if known.0 == epoch => known,
            _ => {
                let seed = if source == 0 { seed } else { hash(seed, Purpose::Source, [source]) };
                known.insert((epoch, Permutation::new(seed, order, epoch, rows)))
            }
        };
        permutation.at(offset)
    }
}

impl UncutDraws for Schedule {
    fn rules(&self) -> &Rules {
        &self.rules
    }

    fn start_at(&mut self, epoch: u64) {
        self.rules.epoch = epoch;
    }

    fn n_draws(&self) -> u64 {
        self.positions
    }

    fn window(&self, draws: u64) -> Window {
        Self::window(self, 0, draws)
    }

    fn place(&mut self, ticket: u64) -> ReadingPlace {
        Self::place(self, 0, ticket)
    }
}

/// `part / parts` of `n`, rounded down.
fn share(n: u64, part: u64, parts: u64) -> u64 {
    (u128::from(n) * u128::from(part) / u128::from(parts)) as u64
}
