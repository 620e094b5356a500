//! [`Cuts`]: the batches of one pass on one rank whose boundaries follow from the lengths of its rows.
//!
//! Rank `r` of `w` takes the streams `r V / w` to `(r + 1) V / w - 1` of each step, one batch after the
//! other; its draws in that order are the tickets of its only stream. A chapter is planned when a batch of it
//! is first asked for. The numbers of batches and draws before it are those of all earlier chapters, so only
//! the first start, and a seek, go through them: a state has them for its own chapter.
//!
//! All schedules of a pass share one [`Cuts`], so that each chapter is planned once. Source: own.

use std::{
    collections::VecDeque,
    ops::Range,
    sync::{Arc, OnceLock, PoisonError},
};

use super::{
    Bijection, Order, ReadingPlace, Window,
    buckets::{Buckets, CHAPTER},
    chapter::{BucketTotals, Chapter, ChapterRules, CutTotals},
    reading::crop_seed,
    rules::Rules,
};
use crate::{
    Error, ErrorKind, Result,
    seed::{Purpose, hash},
    sync::plain::{Mutex, MutexGuard},
};

/// The position of a chapter in a pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChapterStart {
    /// The chapter, counted from the start of the pass.
    pub chapter: u64,
    /// Steps before it.
    pub steps: u64,
}

/// Where a chapter begins on this rank.
#[derive(Debug, Clone, Copy)]
struct KnownStart {
    at: ChapterStart,
    /// The draws of this rank from the first known chapter up to here.
    draws: u64,
}

#[derive(Debug)]
struct RankChapter {
    chapter: Chapter,
    /// The draws of this rank before each of its batches in the chapter, and all.
    before: Vec<u32>,
    /// The epoch, and its draws that the chapter has.
    epoch: u64,
    draws: Range<u64>,
    /// The ticket of each draw in the order that the buckets are filled in, if they are not the same.
    tickets: Option<Vec<u64>>,
}

/// A chapter that is kept; it is planned outside the lock.
type RecentChapter = (u64, Arc<OnceLock<RankChapter>>);

/// The chapters kept at a time: what is read, what is drawn, and one between.
const RECENT: usize = 3;

/// The most chapters of [`CHAPTER`] draws that are gone through for the start of another one, some 2.7e8
/// draws.
pub(crate) const SCANNED: u64 = 256;

/// The most chapters, of any number of draws.
pub(crate) const MOST_KNOWN: u64 = 1 << 16;

/// The substitutes of a draw's own bucket that are tried before those of any.
const MOST_OF_BUCKET: u64 = 8;

/// A pass without end has fewer chapters: up to there no count of draws overflows.
const MAX_CHAPTER: u64 = 1 << 40;

/// The draws of one epoch before they are cut: of one stream, in batches of one.
pub(crate) trait UncutDraws: Clone {
    fn rules(&self) -> &Rules;

    fn start_at(&mut self, epoch: u64);

    fn n_draws(&self) -> u64;

    /// The window after so many draws.
    fn window(&self, draws: u64) -> Window;

    fn place(&mut self, ticket: u64) -> ReadingPlace;
}

/// The batches of one pass on one rank.
#[derive(Debug)]
pub(crate) struct Cuts<D> {
    buckets: Arc<Buckets>,
    base: D,
    /// The draws of an epoch; `None` if the pass is one long epoch.
    per_epoch: Option<u64>,
    rules: ChapterRules,
    streams: Range<u64>,
    infinite: bool,
    known: Mutex<Vec<KnownStart>>,
    recent: Mutex<VecDeque<RecentChapter>>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct CutDraw {
    pub(super) epoch: u64,
    /// The ticket of the base order.
    pub(super) ticket: u64,
}

impl<D: UncutDraws> Cuts<D> {
    /// The batches of a pass from the chapter `start` on, cut from the draws of `base`; each epoch has
    /// `per_epoch` draws.
    pub(super) fn new(
        buckets: Arc<Buckets>,
        base: D,
        per_epoch: Option<u64>,
        (n_streams, streams): (u64, Range<u64>),
        (infinite, keeps_rest): (bool, bool),
        start: ChapterStart,
    ) -> Result<Self> {
        let keeps_order = !base.rules().order.is_scattered();
        let cuts = Self {
            buckets,
            base,
            per_epoch,
            rules: ChapterRules { n_streams, keeps_rest, keeps_order },
            streams,
            infinite,
            known: Mutex::new(vec![KnownStart { at: start, draws: 0 }]),
            recent: Mutex::default(),
        };
        let ChapterStart { chapter, steps } = start;
        let most_steps = chapter.saturating_mul(cuts.buckets.chapter(n_streams));
        if chapter >= cuts.end().unwrap_or(MAX_CHAPTER) || steps > most_steps {
            let message =
                format!("there are {steps} steps before chapter {chapter}, which the pass does not have");
            return Err(Error::new(ErrorKind::State, message));
        }
        Ok(cuts)
    }

    /// Batches of this rank in a step.
    fn share(&self) -> u64 {
        self.streams.end - self.streams.start
    }

    fn chapters(&self) -> u64 {
        let per_chapter = self.buckets.chapter(self.rules.n_streams);
        self.per_epoch.map_or(u64::MAX, |draws| draws.div_ceil(per_chapter))
    }

    /// Chapters of the pass; `None` without end.
    fn end(&self) -> Option<u64> {
        (!self.infinite).then(|| self.chapters())
    }

    /// The first batch that these cuts know.
    pub(crate) fn first_batch(&self) -> u64 {
        self.known()[0].at.steps * self.share()
    }

    /// The start of the chapter that has `batch`; the last chapter's if the pass is over.
    pub(crate) fn chapter_of(&self, batch: u64) -> ChapterStart {
        self.find(|at, _| at.steps * self.share() <= batch).at
    }

    pub(crate) fn epoch_of(&self, batch: u64) -> u64 {
        self.base.rules().epoch + self.chapter_of(batch).chapter / self.chapters()
    }

    /// Whether few enough draws are to be planned to find `batch`.
    pub(crate) fn can_find(&self, batch: u64) -> bool {
        if !self.infinite {
            return true;
        }
        let last = self.last_known();
        let (of_one, draws) = self.with_chapter(last.at.chapter, |part| {
            (part.chapter.n_steps() as u64, part.draws.end - part.draws.start)
        });
        // Chapters of a small table are quickly planned, but the start of each is kept.
        let most = (SCANNED * CHAPTER / draws.max(1)).clamp(SCANNED, MOST_KNOWN);
        (batch / self.share()).saturating_sub(last.at.steps) / of_one.max(1) <= most
    }

    /// Batches of an epoch on this rank, estimated by the first known chapter.
    pub(crate) fn about_per_epoch(&self) -> u64 {
        let first = self.known()[0].at.chapter;
        let (steps, draws) = self
            .with_chapter(first, |part| (part.chapter.n_steps() as u64, part.draws.end - part.draws.start));
        let per_epoch = self.per_epoch.unwrap_or_else(|| self.base.n_draws());
        (u128::from(steps) * u128::from(per_epoch) / u128::from(draws.max(1))) as u64 * self.share()
    }

    /// What the batches of an epoch hold, or of its first `most` chapters.
    pub(crate) fn totals(&self, most: u64) -> CutTotals {
        let per_chapter = self.buckets.chapter(self.rules.n_streams);
        let draws = self.per_epoch.unwrap_or_else(|| self.base.n_draws());
        let (n, first) = (draws.div_ceil(per_chapter), self.known()[0].at.chapter);
        let first = first - first % self.chapters();
        let mut totals = CutTotals {
            // bounded: by the buckets, of which there are at most 2^20.
            buckets: vec![BucketTotals::default(); self.buckets.limits().len()],
            padded_at_random: 0.0,
            is_whole: n <= most && self.per_epoch.is_some(),
        };
        for chapter in first..first + n.min(most) {
            // Not kept: those that are read and drawn are.
            self.plan(chapter).chapter.add_to(&mut totals, &self.buckets, self.rules.n_streams);
        }
        totals
    }

    /// The number of batches of a finite pass.
    pub(super) fn n_batches(&self) -> Option<u64> {
        self.end().map(|_| self.find(|_, _| true).at.steps * self.share())
    }

    /// The draws of this rank before `batch`, counted from the first known chapter.
    pub(super) fn draws_before(&self, batch: u64) -> u64 {
        let KnownStart { at, draws } = self.find(|at, _| at.steps * self.share() <= batch);
        if self.end() == Some(at.chapter) {
            return draws;
        }
        let within = (batch - (at.steps * self.share()).min(batch)) as usize;
        draws
            + self.with_chapter(at.chapter, |part| u64::from(part.before[within.min(part.before.len() - 1)]))
    }

    /// All draws of this rank in a finite pass, counted from the first known chapter.
    pub(super) fn n_draws(&self) -> Option<u64> {
        self.end().map(|_| self.find(|_, _| true).draws)
    }

    /// The draw with this number; `None` beyond the end of a finite pass.
    pub(super) fn draw(&self, number: u64) -> Option<CutDraw> {
        let (chapter, within) = self.locate(number)?;
        Some(
            self.with_chapter(chapter, |part| {
                part.draw(part.at(&self.streams, self.rules.n_streams, within).1)
            }),
        )
    }

    /// The `attempt`-th substitute for the draw with this number.
    pub(super) fn substitute(&self, number: u64, attempt: u64) -> Option<(CutDraw, CutDraw)> {
        let (chapter, within) = self.locate(number)?;
        Some(self.with_chapter(chapter, |part| {
            let (step, draw) = part.at(&self.streams, self.rules.n_streams, within);
            let words = [part.epoch, part.draws.start + u64::from(draw), attempt];
            let random = hash(self.base.rules().seed, Purpose::Substitute, words);
            // If all of its bucket are bad.
            let of_any = attempt > MOST_OF_BUCKET;
            let other = part.chapter.substitute(&self.buckets, step, (draw, of_any), random);
            (part.draw(draw), part.draw(other))
        }))
    }

    /// Whether draws have other lengths than their rows.
    pub(super) fn stretches(&self) -> bool {
        self.buckets.stretch().is_some()
    }

    /// The draws of an epoch before they are cut.
    pub(super) fn base_of(&self, epoch: u64) -> D {
        let mut base = self.base.clone();
        base.start_at(epoch);
        base
    }

    /// The chapter and the draw within it of this rank.
    fn locate(&self, number: u64) -> Option<(u64, u32)> {
        let KnownStart { at, draws } = self.find(|_, draws| draws <= number);
        (self.end() != Some(at.chapter)).then_some((at.chapter, (number - draws) as u32))
    }

    /// The last chapter for whose start `is_before` holds, or the end of the pass.
    fn find(&self, is_before: impl Fn(ChapterStart, u64) -> bool) -> KnownStart {
        let is_before = |known: &KnownStart| is_before(known.at, known.draws);
        loop {
            let last = {
                let known = self.known();
                let last = known[known.len() - 1];
                if !is_before(&last) {
                    return known[known.partition_point(is_before).max(1) - 1];
                }
                last
            };
            if self.end() == Some(last.at.chapter) {
                return last;
            }
            let next = self.with_chapter(last.at.chapter, |part| {
                let steps = last.at.steps + part.chapter.n_steps() as u64;
                let at = ChapterStart { chapter: last.at.chapter + 1, steps };
                KnownStart { at, draws: last.draws + part.before.last().map_or(0, |&draws| u64::from(draws)) }
            });
            let mut known = self.known();
            // Another thread may have gone on.
            if known[known.len() - 1].at == last.at {
                known.push(next);
            }
        }
    }

    fn last_known(&self) -> KnownStart {
        let known = self.known();
        known[known.len() - 1]
    }

    fn known(&self) -> MutexGuard<'_, Vec<KnownStart>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Uses a chapter, which is planned if it is not kept.
    fn with_chapter<T>(&self, chapter: u64, of: impl FnOnce(&RankChapter) -> T) -> T {
        let part = {
            let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
            match recent.iter().find(|(number, _)| *number == chapter) {
                Some((_, part)) => part.clone(),
                None => {
                    let part = Arc::default();
                    recent.truncate(RECENT - 1);
                    recent.push_front((chapter, Arc::clone(&part)));
                    part
                }
            }
        };
        of(part.get_or_init(|| self.plan(chapter)))
    }

    fn plan(&self, number: u64) -> RankChapter {
        let per_chapter = self.buckets.chapter(self.rules.n_streams);
        let (epochs, within) = (number / self.chapters(), number % self.chapters());
        let begin = within * per_chapter;
        let end = begin.saturating_add(per_chapter).min(self.per_epoch.unwrap_or(u64::MAX));
        let epoch = self.base.rules().epoch + epochs;
        let mut base = self.base_of(epoch);
        let n = (end - begin) as usize;
        // bounded: a chapter has at most 2^20 draws, or one for each stream.
        let (mut rows, mut tickets) = (Vec::with_capacity(n), Vec::new());
        let mut window = base.window(begin);
        let is_mixed = base.rules().order == Order::Window;
        let stretch = self.buckets.stretch();
        // bounded: as above.
        let mut factors = Vec::with_capacity(if stretch.is_some() { n } else { 0 });
        for ticket in std::iter::from_fn(|| window.draw()).take(n) {
            let place = base.place(ticket);
            rows.push(place.row);
            factors.extend(stretch.map(|stretch| stretch(crop_seed(base.rules().seed, place))));
            if is_mixed {
                tickets.push(ticket);
            }
        }
        let mut lengths = self.buckets.lengths(&rows);
        for (length, factor) in lengths.iter_mut().zip(factors) {
            length.seconds = (f64::from(length.seconds) * factor) as f32;
        }
        let seed = base.rules().seed;
        let chapter = Chapter::new(&self.buckets, lengths, self.rules, |n| {
            let bijection = Bijection::new(seed, Purpose::Steps, [epoch, within], n);
            move |i| bijection.at(i)
        });
        let mut before = vec![0];
        let mut sum = 0;
        for step in 0..chapter.n_steps() {
            for stream in self.streams.clone() {
                sum += chapter.rows(step, stream, self.rules.n_streams);
                before.push(sum);
            }
        }
        RankChapter { chapter, before, epoch, draws: begin..end, tickets: is_mixed.then_some(tickets) }
    }
}

impl RankChapter {
    /// The step of this rank's draw with this number in the chapter, and the draw among all of the chapter.
    fn at(&self, streams: &Range<u64>, n_streams: u64, number: u32) -> (usize, u32) {
        let batch = self.before.partition_point(|&before| before <= number) - 1;
        let share = (streams.end - streams.start) as usize;
        let (step, stream) = (batch / share, streams.start + (batch % share) as u64);
        let nth = stream + u64::from(number - self.before[batch]) * n_streams;
        (step, self.chapter.step(step)[nth as usize])
    }

    fn draw(&self, draw: u32) -> CutDraw {
        let ticket = match &self.tickets {
            Some(tickets) => tickets[draw as usize],
            None => self.draws.start + u64::from(draw),
        };
        CutDraw { epoch: self.epoch, ticket }
    }
}
