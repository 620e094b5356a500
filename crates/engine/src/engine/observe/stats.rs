//! The figures of a loader: counts, times of its threads, recent rates, and the verdict.
//!
//! Counts and times are totals since construction, over all passes. [`Stats`] counts all work done, including
//! batches made ahead, so it depends on how far ahead the threads are. [`Delivered`] counts only batches that
//! were handed out, and depends on these alone. Rates, shares of time and the verdict cover the last one to
//! two [`SPAN`]s before the last batch was handed out: earlier slowness and idle time do not count.

use std::{
    ops::Add,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use crate::sync::plain::Mutex;
use crate::{
    ErrorKind,
    contract::{StorageLabels, TaskLabels},
    engine::{
        Plan,
        observe::meter::{Hunger, Meter, Total},
        observe::run_queue::{RunQueue, WaitSample, own_tid},
        observe::trace::Trace,
        observe::verdict::{CoreWaits, Figures, Setting, Spent, verdict},
        threads::autoscale::{Autoscaler, Numbers},
    },
    histogram::{Histogram, Times},
};

/// The least time between two samples of the figures; rates are computed from their differences.
const SPAN: Duration = Duration::from_secs(5);
/// The least time between two samples of the waits for a core that reports take: a file for each thread.
const WAITS_SPAN: Duration = Duration::from_millis(500);

/// Counters and meters of one loader, shared by the threads of all its runs.
#[derive(Debug)]
pub struct Counters {
    pub(crate) records_read: AtomicU64,
    pub(crate) records_decoded: AtomicU64,
    pub(crate) records_failed: AtomicU64,
    pub(crate) records_excluded: AtomicU64,
    pub(crate) records_lost: AtomicU64,
    pub(crate) substitutes: AtomicU64,
    pub(crate) batches: AtomicU64,
    batches_made: AtomicU64,
    /// Examples that the collator took out of the shuffle buffers.
    examples_taken: AtomicU64,
    /// Examples of earlier runs that were in their shuffle buffers when these ended.
    examples_lost: AtomicU64,
    delivered: [AtomicU64; Delivered::COUNTS],
    pub(crate) decoded_at_first_batch: AtomicU64,
    pub(crate) meters: Meters,
    pub(crate) trace: Arc<Trace>,
    /// How long the threads waited for a core.
    pub(crate) run_queue: RunQueue,
    setting: Setting,
    /// Workers that are awake, and batches made ahead.
    workers: AtomicUsize,
    prefetch: AtomicUsize,
    asked: AtomicBool,
    recent: Mutex<Option<RecentFigures>>,
}

/// Times by stage. Each [`Total`] is the wait that its name says.
#[derive(Debug)]
pub(crate) struct Meters {
    pub(crate) read: Meter,
    pub(crate) credit: Total,
    pub(crate) turn: Total,
    pub(crate) bytes: Total,
    pub(crate) channel: Total,
    pub(crate) decode: Meter,
    pub(crate) records: Total,
    /// The time that workers were parked. Not counted as a wait.
    pub(crate) rest: Total,
    pub(crate) collate: Meter,
    pub(crate) examples: Total,
    pub(crate) room: Total,
    /// The consumer's loop.
    pub(crate) consumer: Meter,
    pub(crate) batches: Total,
    /// Waits for the first batch of a pass, including the start of its threads.
    pub(crate) starts: Total,
    /// How long each batch was ready before it was taken.
    pub(crate) ready: Histogram,
    /// How long the consumer waited for each batch, without the first of a pass.
    pub(crate) starved: Histogram,
    /// All waits of the consumer so far.
    pub(crate) hunger: Hunger,
}

impl Meters {
    fn new() -> Self {
        Self {
            read: Meter::new("read"),
            credit: Total::new("wait for credit"),
            turn: Total::new("wait for a turn"),
            bytes: Total::new("wait for bytes"),
            channel: Total::new("wait for the channel"),
            decode: Meter::new("decode"),
            records: Total::new("wait for records"),
            rest: Total::new("rest"),
            collate: Meter::new("collate"),
            examples: Total::new("wait for examples"),
            room: Total::new("wait for room"),
            consumer: Meter::new("loop"),
            batches: Total::new("wait for a batch"),
            starts: Total::new("wait for the first batch"),
            ready: Histogram::default(),
            starved: Histogram::default(),
            hunger: Hunger::new(),
        }
    }
}

/// Samples of the figures at three hand-overs.
#[derive(Debug)]
struct RecentFigures {
    older: (Instant, Figures),
    newer: (Instant, Figures),
    last: (Instant, Figures),
    waits: Waits,
}

/// Samples of the waits for a core: with the older and the newer figures, and the latest one.
#[derive(Debug)]
struct Waits {
    older: WaitSample,
    newer: WaitSample,
    latest: WaitSample,
}

/// Counts for the batches that a loader handed out since its construction. Each batch carries its counts, so
/// they are the same in every run that hands out the same batches, for any number of threads and batches
/// ahead.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Delivered {
    /// Batches. A batch that was taken back counts when it is handed out again.
    pub batches: u64,
    pub examples: u64,
    /// Rows in which a substitute replaces a record.
    pub substitutes: u64,
    /// Bad records that were left out or replaced, bad substitutes among them.
    pub records_failed: u64,
    /// Records that were left out or replaced because the user excludes them.
    pub records_excluded: u64,
    /// Records that were left out or replaced because the system failed to read them.
    pub records_lost: u64,
    /// Records that became examples of them, substitutes among them.
    pub records_good: u64,
    /// The failed and the lost records by kind.
    pub kinds: FailureCounts,
}

/// A count for each of `ErrorKind::FAILURES`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FailureCounts([u64; ErrorKind::FAILURES.len()]);

impl FailureCounts {
    pub(crate) fn count(&mut self, kind: ErrorKind) {
        if let Some(at) = ErrorKind::FAILURES.iter().position(|&known| known == kind.told()) {
            self.0[at] += 1;
        }
    }

    /// The kinds that occurred, the most frequent one first.
    pub fn occurred(self) -> Vec<(ErrorKind, u64)> {
        let mut found: Vec<_> = ErrorKind::FAILURES.into_iter().zip(self.0).filter(|&(_, n)| n > 0).collect();
        found.sort_by_key(|&(_, n)| std::cmp::Reverse(n));
        found
    }
}

impl Delivered {
    const COUNTS: usize = 7 + ErrorKind::FAILURES.len();

    fn counts(self) -> [u64; Self::COUNTS] {
        let Self { batches, examples, substitutes, records_failed, .. } = self;
        let Self { records_excluded, records_lost, records_good, kinds, .. } = self;
        let others =
            [batches, examples, substitutes, records_failed, records_excluded, records_lost, records_good];
        std::array::from_fn(|at| others.get(at).copied().unwrap_or_else(|| kinds.0[at - others.len()]))
    }

    fn of(counts: [u64; Self::COUNTS]) -> Self {
        let [
            batches,
            examples,
            substitutes,
            records_failed,
            records_excluded,
            records_lost,
            records_good,
            kinds @ ..,
        ] = counts;
        Self {
            batches,
            examples,
            substitutes,
            records_failed,
            records_excluded,
            records_lost,
            records_good,
            kinds: FailureCounts(kinds),
        }
    }

    /// The number of records that failed, in the data or in the system.
    pub fn failures(&self) -> u64 {
        self.records_failed + self.records_lost
    }

    /// The number of records that were tried: good ones and failed ones.
    pub fn tried(&self) -> u64 {
        self.records_good + self.failures()
    }

    /// How many records failed, of how many, and why, in words; `None` if none did.
    pub fn told(&self) -> Option<String> {
        if self.failures() == 0 {
            return None;
        }
        let kinds = self.kinds.occurred();
        let kinds = match &kinds[..] {
            [(kind, _)] => kind.name().to_owned(),
            several => {
                let each: Vec<_> = several.iter().map(|(kind, n)| format!("{n} {kind}")).collect();
                each.join(", ")
            }
        };
        Some(format!("{} of {} records failed ({kinds})", self.failures(), self.tried()))
    }
}

impl Add for Delivered {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let (one, other) = (self.counts(), other.counts());
        Self::of(std::array::from_fn(|i| one[i] + other[i]))
    }
}

/// A loader's counts since its construction. All but `batches` and `delivered` include work for batches that
/// were not handed out: ready, in progress, or of an abandoned pass.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Stats {
    pub records_read: u64,
    pub records_decoded: u64,
    /// Bad records, found by an I/O thread or by a worker.
    pub records_failed: u64,
    /// Records that were not read because the user excludes them.
    pub records_excluded: u64,
    /// Records that were left out because the system failed to read them.
    pub records_lost: u64,
    /// Bad records that a substitute replaced.
    pub substitutes: u64,
    pub batches: u64,
    /// Records that had become examples when the first batch was complete.
    pub decoded_at_first_batch: u64,
    /// Counts for the batches that were handed out.
    pub delivered: Delivered,
}

#[derive(Debug, Clone, PartialEq)]
pub struct StageTimes {
    /// `read`, `decode`, `collate` or `consumer`.
    pub name: &'static str,
    /// Threads of the stage; of workers, those awake.
    pub threads: usize,
    pub items: u64,
    /// Seconds of work, over all threads.
    pub busy_s: f64,
    /// Seconds of waiting, by what was waited for.
    pub waits: Vec<(&'static str, f64)>,
    pub times: Times,
    pub items_per_s: f64,
    /// The recent share of its threads' time that was work.
    pub busy_share: f64,
    /// The recent share of its threads' time that was waiting, counting waits that have ended.
    pub blocked_share: f64,
    /// The recent share of its threads' time in which they were ready to run and had no core; `None` if the
    /// system does not tell.
    pub run_queue_share: Option<f64>,
}

/// What limits the speed of a loader, with the figures of its stages.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// The stages, in the order of flow.
    pub stages: [StageTimes; 4],
    /// How long a batch was ready before it was taken.
    pub ready: Times,
    /// How long the consumer waited for a batch.
    pub starved: Times,
    /// Seconds of waiting for the first batch of a pass.
    pub start_s: f64,
    pub n_workers: usize,
    /// Batches made ahead now at most.
    pub prefetch_batches: usize,
    /// What limits the loader, and what to change.
    pub verdict: String,
}

impl Counters {
    pub(crate) fn new(plan: &Plan, words: TaskLabels, [n_readers, most_readers]: [usize; 2]) -> Self {
        let first = Autoscaler::first(plan.auto, plan.numbers(), cores());
        Self {
            records_read: AtomicU64::new(0),
            records_decoded: AtomicU64::new(0),
            records_failed: AtomicU64::new(0),
            records_excluded: AtomicU64::new(0),
            records_lost: AtomicU64::new(0),
            substitutes: AtomicU64::new(0),
            batches: AtomicU64::new(0),
            batches_made: AtomicU64::new(0),
            examples_taken: AtomicU64::new(0),
            examples_lost: AtomicU64::new(0),
            delivered: std::array::from_fn(|_| AtomicU64::new(0)),
            decoded_at_first_batch: AtomicU64::new(0),
            meters: Meters::new(),
            trace: Arc::default(),
            run_queue: RunQueue::default(),
            workers: AtomicUsize::new(first.workers),
            prefetch: AtomicUsize::new(first.prefetch),
            setting: Setting {
                n_readers,
                most_readers,
                n_workers: plan.n_workers,
                most_workers: plan.n_workers,
                is_auto: plan.auto.workers,
                cores: cores(),
                window: if plan.order.is_streamed() && !plan.batching.is_cut() { plan.window } else { 1 },
                words,
                storage: StorageLabels::LOCAL,
            },
            asked: AtomicBool::new(false),
            recent: Mutex::new(None),
        }
    }

    pub(crate) fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn numbers(&self) -> Numbers {
        let get = |number: &AtomicUsize| number.load(Ordering::Relaxed);
        Numbers { workers: get(&self.workers), prefetch: get(&self.prefetch) }
    }

    pub(crate) fn change(&self, to: Numbers) {
        self.workers.store(to.workers, Ordering::Relaxed);
        self.prefetch.store(to.prefetch, Ordering::Relaxed);
    }

    /// Notes that a batch was requested.
    pub(crate) fn asked(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }

    /// Counts the start of a run, whose shuffle buffers are empty.
    pub(crate) fn begin_run(&self) {
        self.examples_lost.fetch_add(self.examples_inside(), Ordering::Relaxed);
    }

    /// The number of examples in the shuffle buffers of the run.
    fn examples_inside(&self) -> u64 {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let gone = get(&self.examples_taken) + get(&self.examples_lost);
        get(&self.records_decoded).saturating_sub(gone)
    }

    /// Counts a complete batch, for which `examples` were taken out of the shuffle buffers.
    pub(crate) fn made(&self, examples: usize) {
        self.examples_taken.fetch_add(examples as u64, Ordering::Relaxed);
        if self.batches_made.fetch_add(1, Ordering::Relaxed) == 0 {
            let decoded = self.records_decoded.load(Ordering::Relaxed);
            self.decoded_at_first_batch.store(decoded, Ordering::Relaxed);
        }
    }

    /// Adds the counts of a batch that was handed out.
    pub(crate) fn deliver(&self, delivered: Delivered) {
        for (sum, count) in self.delivered.iter().zip(delivered.counts()) {
            sum.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Subtracts the counts of a batch that was given back.
    pub(crate) fn take_back(&self, delivered: Delivered) {
        for (sum, count) in self.delivered.iter().zip(delivered.counts()) {
            sum.fetch_sub(count, Ordering::Relaxed);
        }
    }

    /// The counts of the batches that were handed out.
    pub fn delivered(&self) -> Delivered {
        Delivered::of(self.delivered.each_ref().map(|sum| sum.load(Ordering::Relaxed)))
    }

    /// Samples the figures for a batch that was handed out `now`.
    pub(crate) fn handed_out(&self, now: Instant) {
        // If another thread is reading them, this sample is left out.
        let Ok(mut recent) = self.recent.try_lock() else { return };
        let mut last = (now, self.figures());
        if let Some(RecentFigures { last: (before, figures), .. }) = &*recent {
            let elapsed_s = now.duration_since(*before).as_secs_f64();
            last.1.workers_s = figures.workers_s + self.numbers().workers as f64 * elapsed_s;
        }
        let recent = recent.get_or_insert_with(|| {
            let first = self.run_queue.sample(own_tid());
            RecentFigures {
                older: last,
                newer: last,
                last,
                waits: Waits { older: first, newer: first, latest: first },
            }
        });
        recent.last = last;
        if now.duration_since(recent.newer.0) >= SPAN {
            recent.older = std::mem::replace(&mut recent.newer, last);
            let waits = &mut recent.waits;
            waits.latest = self.run_queue.sample(own_tid());
            waits.older = std::mem::replace(&mut waits.newer, waits.latest);
        }
    }

    pub fn read(&self) -> Stats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            records_read: get(&self.records_read),
            records_decoded: get(&self.records_decoded),
            records_failed: get(&self.records_failed),
            records_excluded: get(&self.records_excluded),
            records_lost: get(&self.records_lost),
            substitutes: get(&self.substitutes),
            batches: get(&self.batches),
            decoded_at_first_batch: get(&self.decoded_at_first_batch),
            delivered: self.delivered(),
        }
    }

    fn figures(&self) -> Figures {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Meters { read, credit, turn, bytes, channel, decode, records, collate, examples, room, .. } =
            &self.meters;
        let spent = |items: &AtomicU64, busy: &Meter, waits: &[&Total]| Spent {
            items: get(items),
            busy_s: busy.busy_s(),
            blocked_s: waits.iter().map(|total| total.seconds()).sum(),
        };
        Figures {
            elapsed_s: 0.0,
            workers_s: 0.0,
            taken: get(&self.examples_taken),
            inside: self.examples_inside(),
            read: spent(&self.records_read, read, &[credit, turn, bytes, channel]),
            decode: spent(&self.records_decoded, decode, &[records]),
            collate: spent(&self.batches_made, collate, &[examples, room]),
            consumer: spent(&self.batches, &self.meters.consumer, &[&self.meters.batches]),
        }
    }

    /// The figures of the last one to two [`SPAN`]s, and the waits for a core.
    fn recent(&self) -> Option<(Figures, Option<CoreWaits>)> {
        // Do not wait for the lock: after a fork it may stay locked forever.
        let mut recent = self.recent.try_lock().ok()?;
        let RecentFigures { older, last, waits, .. } = recent.as_mut()?;
        if waits.latest.at.elapsed() >= WAITS_SPAN {
            waits.latest = self.run_queue.sample(waits.latest.consumer.map(|(tid, _)| tid));
        }
        let elapsed_s = last.0.duration_since(older.0).as_secs_f64();
        let figures = Figures { elapsed_s, ..last.1 - older.1 };
        Some((figures, self.core_waits(&figures, waits)))
    }

    fn core_waits(&self, figures: &Figures, Waits { older, latest, .. }: &Waits) -> Option<CoreWaits> {
        let [read, decode, collate] = latest.waited_s?;
        let before = older.waited_s.unwrap_or_default();
        // The loop may have paused since the last batch: then the threads waited for nothing.
        let share =
            |waited_s: f64, of_s: f64| if of_s > 0.0 { (waited_s / of_s).clamp(0.0, 1.0) } else { 0.0 };
        let cores_s = latest.at.duration_since(older.at).as_secs_f64() * self.setting.cores as f64;
        Some(CoreWaits {
            read: share(read - before[0], self.setting.n_readers as f64 * figures.elapsed_s),
            decode: share(decode - before[1], figures.workers_s),
            collate: share(collate - before[2], figures.elapsed_s),
            consumer: match (older.consumer, latest.consumer) {
                (Some((one, before)), Some((other, waited))) if one == other => {
                    Some(share(waited - before, figures.elapsed_s))
                }
                _ => None,
            },
            used: share(latest.cpu_s - older.cpu_s, cores_s),
        })
    }

    /// What limits the loader, and what to change.
    pub fn verdict(&self, storage: StorageLabels) -> String {
        let (figures, waits) = self.recent().unwrap_or_default();
        self.judge(&figures, waits.as_ref(), storage)
    }

    fn judge(&self, figures: &Figures, waits: Option<&CoreWaits>, storage: StorageLabels) -> String {
        let setting = Setting { n_workers: self.numbers().workers, storage, ..self.setting };
        verdict(self.asked.load(Ordering::Relaxed), figures, waits, &setting)
    }

    /// The times of all stages, and the verdict.
    pub fn report(&self, storage: StorageLabels) -> Report {
        let (recent, cores) = self.recent().unwrap_or_default();
        let (total, m) = (self.figures(), &self.meters);
        let Numbers { workers, prefetch } = self.numbers();
        let stage = |name, threads, meter: &Meter, of: fn(&Figures) -> Spent, waits: &[(_, &Total)]| {
            let (total, recent_spent) = (of(&total), of(&recent));
            // The time of parked workers does not count.
            let threads_s =
                if name == "decode" { recent.workers_s } else { threads as f64 * recent.elapsed_s };
            let share = |value: f64, of: f64| if of > 0.0 { value / of } else { 0.0 };
            StageTimes {
                name,
                threads,
                items: total.items,
                busy_s: total.busy_s,
                waits: waits.iter().map(|&(name, total)| (name, total.seconds())).collect(),
                times: meter.times(),
                items_per_s: share(recent_spent.items as f64, recent.elapsed_s),
                busy_share: share(recent_spent.busy_s, threads_s).min(1.0),
                blocked_share: share(recent_spent.blocked_s, threads_s).min(1.0),
                run_queue_share: cores.and_then(|cores| match name {
                    "read" => Some(cores.read),
                    "decode" => Some(cores.decode),
                    "collate" => Some(cores.collate),
                    _ => cores.consumer,
                }),
            }
        };
        let reads = [("credit", &m.credit), ("turn", &m.turn), ("bytes", &m.bytes), ("channel", &m.channel)];
        Report {
            stages: [
                stage("read", self.setting.n_readers, &m.read, |figures| figures.read, &reads),
                stage("decode", workers, &m.decode, |figures| figures.decode, &[("records", &m.records)]),
                stage(
                    "collate",
                    1,
                    &m.collate,
                    |figures| figures.collate,
                    &[("examples", &m.examples), ("room", &m.room)],
                ),
                stage("consumer", 1, &m.consumer, |figures| figures.consumer, &[("batches", &m.batches)]),
            ],
            ready: m.ready.read(),
            starved: m.starved.read(),
            start_s: m.starts.seconds(),
            n_workers: workers,
            prefetch_batches: prefetch,
            verdict: self.judge(&recent, cores.as_ref(), storage),
        }
    }
}

/// Cores that this process may use: its affinity and the quota of its control group.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, Into::into)
}
