//! What went through a loader, where its threads spent their time, and what that says.
//!
//! Counts and times are totals since construction, over all passes. What is said about speed, rates and shares of time and the
//! verdict, is said of the last [`SPAN`] to twice that, as it was when the last batch was handed out: a loader that was
//! slow an hour ago, or that nobody has asked since, is described as it is when it is used.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use super::{
    Plan,
    meter::{Histogram, Meter, Times, Total},
    verdict::{Figures, Setting, Spent, verdict},
};

/// How far apart the figures are taken that rates are computed from.
const SPAN: Duration = Duration::from_secs(5);

/// Counters that the threads of all runs of one loader raise.
#[derive(Debug)]
pub struct Counters {
    pub(super) records_read: AtomicU64,
    pub(super) records_decoded: AtomicU64,
    pub(super) records_failed: AtomicU64,
    pub(super) substitutes: AtomicU64,
    pub(super) batches: AtomicU64,
    batches_made: AtomicU64,
    pub(super) decoded_at_first_batch: AtomicU64,
    pub(super) meters: Meters,
    setting: Setting,
    asked: AtomicBool,
    recent: Mutex<Option<Recent>>,
}

/// Where time goes, by stage. Each [`Total`] is a wait for what it is named after.
#[derive(Debug, Default)]
pub(super) struct Meters {
    pub(super) read: Meter,
    pub(super) credit: Total,
    pub(super) bytes: Total,
    pub(super) channel: Total,
    pub(super) decode: Meter,
    pub(super) records: Total,
    pub(super) collate: Meter,
    pub(super) examples: Total,
    pub(super) room: Total,
    /// The loop of whoever takes batches.
    pub(super) consumer: Meter,
    pub(super) batches: Total,
    /// Waits for the first batch of a pass.
    pub(super) starts: Total,
    /// How long each batch lay ready.
    pub(super) ready: Histogram,
    /// How long each batch was waited for, but for the first of a pass.
    pub(super) starved: Histogram,
}

/// Figures at three hand-overs.
#[derive(Debug)]
struct Recent {
    older: (Instant, Figures),
    newer: (Instant, Figures),
    last: (Instant, Figures),
}

/// A loader's counts since its construction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Records that the I/O thread put into the channel.
    pub records_read: u64,
    /// Records that became examples.
    pub records_decoded: u64,
    /// Records that were found bad, by the I/O thread or by a worker.
    pub records_failed: u64,
    /// Bad records that a substitute replaced.
    pub substitutes: u64,
    /// Batches handed out.
    pub batches: u64,
    /// How many records had become examples when the first batch was complete.
    pub decoded_at_first_batch: u64,
}

/// What lies between the stages now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Queues {
    /// Records that wait for a worker.
    pub records: usize,
    /// Their bytes.
    pub record_bytes: usize,
    /// Outcomes in the shuffle buffers.
    pub examples: usize,
    /// Complete batches.
    pub batches: usize,
}

/// One stage's work and waits.
#[derive(Debug, Clone, PartialEq)]
pub struct StageTimes {
    /// `read`, `decode`, `collate` or `consumer`.
    pub name: &'static str,
    /// Threads.
    pub threads: usize,
    /// Items since construction.
    pub items: u64,
    /// Seconds of work, over all threads.
    pub busy_s: f64,
    /// Seconds of waiting, by what was waited for.
    pub waits: Vec<(&'static str, f64)>,
    /// Work on an item.
    pub times: Times,
    /// Items per second, recently.
    pub items_per_s: f64,
    /// The part of its threads' time that was work, recently.
    pub busy_share: f64,
}

/// Why a loader is as fast as it is.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// In the order of flow.
    pub stages: [StageTimes; 4],
    /// How long a batch lay ready.
    pub ready: Times,
    /// How long a batch was waited for.
    pub starved: Times,
    /// Seconds of waiting for the first batch of a pass.
    pub start_s: f64,
    /// What limits, and what to change.
    pub verdict: String,
}

impl Counters {
    pub(super) fn new(plan: &Plan) -> Self {
        Self {
            records_read: AtomicU64::new(0),
            records_decoded: AtomicU64::new(0),
            records_failed: AtomicU64::new(0),
            substitutes: AtomicU64::new(0),
            batches: AtomicU64::new(0),
            batches_made: AtomicU64::new(0),
            decoded_at_first_batch: AtomicU64::new(0),
            meters: Meters::default(),
            setting: Setting {
                n_readers: if plan.order.is_scattered() { plan.n_readers } else { 1 },
                is_scattered: plan.order.is_scattered(),
                n_workers: plan.n_workers,
                cores: std::thread::available_parallelism().map_or(1, Into::into),
            },
            asked: AtomicBool::new(false),
            recent: Mutex::new(None),
        }
    }

    pub(super) fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// A first batch was asked for.
    pub(super) fn asked(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }

    /// A batch is complete.
    pub(super) fn made(&self) {
        if self.batches_made.fetch_add(1, Ordering::Relaxed) == 0 {
            let decoded = self.records_decoded.load(Ordering::Relaxed);
            self.decoded_at_first_batch.store(decoded, Ordering::Relaxed);
        }
    }

    /// A batch was handed out `now`.
    pub(super) fn handed_out(&self, now: Instant) {
        // Whoever reads meanwhile gets the figures of the batch before.
        let Ok(mut recent) = self.recent.try_lock() else { return };
        let last = (now, self.figures());
        let recent = recent.get_or_insert(Recent { older: last, newer: last, last });
        recent.last = last;
        if now.duration_since(recent.newer.0) >= SPAN {
            recent.older = std::mem::replace(&mut recent.newer, last);
        }
    }

    /// The counts so far.
    pub fn read(&self) -> Stats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            records_read: get(&self.records_read),
            records_decoded: get(&self.records_decoded),
            records_failed: get(&self.records_failed),
            substitutes: get(&self.substitutes),
            batches: get(&self.batches),
            decoded_at_first_batch: get(&self.decoded_at_first_batch),
        }
    }

    fn figures(&self) -> Figures {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Meters { read, credit, bytes, channel, decode, records, collate, examples, room, .. } =
            &self.meters;
        let spent = |items: &AtomicU64, busy: &Meter, waits: &[&Total]| Spent {
            items: get(items),
            busy_s: busy.busy_s(),
            blocked_s: waits.iter().map(|total| total.seconds()).sum(),
        };
        Figures {
            elapsed_s: 0.0,
            read: spent(&self.records_read, read, &[credit, bytes, channel]),
            decode: spent(&self.records_decoded, decode, &[records]),
            collate: spent(&self.batches_made, collate, &[examples, room]),
            consumer: spent(&self.batches, &self.meters.consumer, &[&self.meters.batches]),
        }
    }

    /// What was done in the last while.
    fn recent(&self) -> Option<Figures> {
        // Not awaited: after a fork it may be locked for good.
        let recent = self.recent.try_lock().ok()?;
        recent.as_ref().map(|Recent { older, last, .. }| Figures {
            elapsed_s: last.0.duration_since(older.0).as_secs_f64(),
            ..last.1 - older.1
        })
    }

    /// What limits the loader, and what to change.
    pub fn verdict(&self) -> String {
        verdict(self.asked.load(Ordering::Relaxed), &self.recent().unwrap_or_default(), &self.setting)
    }

    /// Where the time goes.
    pub fn report(&self) -> Report {
        let (recent, total, m) = (self.recent().unwrap_or_default(), self.figures(), &self.meters);
        let stage = |name, threads, meter: &Meter, of: fn(&Figures) -> Spent, waits: &[(_, &Total)]| {
            let (total, recent_spent) = (of(&total), of(&recent));
            let per_elapsed =
                |value: f64| if recent.elapsed_s > 0.0 { value / recent.elapsed_s } else { 0.0 };
            StageTimes {
                name,
                threads,
                items: total.items,
                busy_s: total.busy_s,
                waits: waits.iter().map(|&(name, total)| (name, total.seconds())).collect(),
                times: meter.times(),
                items_per_s: per_elapsed(recent_spent.items as f64),
                busy_share: per_elapsed(recent_spent.busy_s / threads as f64).min(1.0),
            }
        };
        let Setting { n_readers, n_workers, .. } = self.setting;
        let reads = [("credit", &m.credit), ("bytes", &m.bytes), ("channel", &m.channel)];
        Report {
            stages: [
                stage("read", n_readers, &m.read, |figures| figures.read, &reads),
                stage("decode", n_workers, &m.decode, |figures| figures.decode, &[("records", &m.records)]),
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
            verdict: self.verdict(),
        }
    }
}
