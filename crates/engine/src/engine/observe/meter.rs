//! [`Meter`] and [`Stopwatch`]: how the threads of a stage divide their time into work and waits, as totals
//! and as a histogram of the time per item.
//!
//! A [`Stopwatch`] splits the time of one thread into reported waits and work. It reads the clock once per
//! item, and twice more around each wait that really happens. [`Meter`]s are atomics that all threads of a
//! stage add to, and that any thread may read at any time, so figures read together may be an item apart. A
//! wait counts when it ends.
//!
//! While a [`Trace`] is recorded the same clock readings delimit its spans; otherwise that costs a relaxed
//! load each.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use crate::{
    engine::observe::{
        activity::{Activity, Role, State},
        trace::{ThreadTrack, Trace},
    },
    histogram::{Histogram, Times, nanoseconds},
};

#[derive(Debug)]
pub(crate) struct Total {
    name: &'static str,
    nanoseconds: AtomicU64,
}

impl Total {
    pub(crate) const fn new(name: &'static str) -> Self {
        Self { name, nanoseconds: AtomicU64::new(0) }
    }

    pub(crate) fn add(&self, time: Duration) {
        self.nanoseconds.fetch_add(nanoseconds(time), Ordering::Relaxed);
    }

    /// The name of one of them in a trace.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.nanoseconds.load(Ordering::Relaxed) as f64 / 1e9
    }
}

/// The time that one thread has waited so far, including a wait in progress.
#[derive(Debug)]
pub(crate) struct Hunger {
    epoch: Instant,
    /// When the wait in progress began, in nanoseconds since `epoch`; 0 if there is none.
    since: AtomicU64,
    before: Total,
}

impl Hunger {
    pub(crate) fn new() -> Self {
        Self { epoch: Instant::now(), since: AtomicU64::new(0), before: Total::new("hunger") }
    }

    /// Waits, and counts the time; returns it with the outcome.
    pub(crate) fn wait<T>(&self, begin: Instant, wait: impl FnOnce() -> T) -> (T, Duration) {
        self.since.store(nanoseconds(begin.duration_since(self.epoch)).max(1), Ordering::Relaxed);
        let outcome = wait();
        let time = begin.elapsed();
        self.since.store(0, Ordering::Relaxed);
        self.before.add(time);
        (outcome, time)
    }

    /// Seconds waited until `now`; a wait that ends during the call may be missing until the next call.
    pub(crate) fn seconds(&self, now: Instant) -> f64 {
        let before = self.before.seconds();
        match self.since.load(Ordering::Relaxed) {
            0 => before,
            since => {
                let now = nanoseconds(now.duration_since(self.epoch));
                before + now.saturating_sub(since) as f64 / 1e9
            }
        }
    }
}

#[derive(Debug)]
pub(crate) struct Meter {
    busy: Total,
    times: Histogram,
}

impl Meter {
    /// Creates the meter of the stage `name`.
    pub(crate) fn new(name: &'static str) -> Self {
        Self { busy: Total::new(name), times: Histogram::default() }
    }

    /// The name of its work in a trace.
    pub(crate) fn name(&self) -> &'static str {
        self.busy.name
    }

    /// Counts an item and its time.
    pub(crate) fn add(&self, time: Duration) {
        self.busy.add(time);
        self.times.add(time);
    }

    pub(crate) fn busy_s(&self) -> f64 {
        self.busy.seconds()
    }

    pub(crate) fn times(&self) -> Times {
        self.times.read()
    }
}

/// Splits a thread's time into work and waits.
#[derive(Debug)]
pub(crate) struct Stopwatch {
    lap: Instant,
    waited: Duration,
    /// The end of the last wait or item.
    mark: Instant,
    /// The name of the thread's work in a trace.
    work: &'static str,
    trace: Arc<Trace>,
    track: ThreadTrack,
    /// What other threads see of this one.
    activity: Arc<Activity>,
    /// The last wait in slices: its state, what it waited for, its begin.
    sliced: (State, [u64; 2], Instant),
}

impl Stopwatch {
    /// Starts the stopwatch of the thread of `activity`, whose work is metered by `meter`.
    pub(crate) fn start(meter: &Meter, trace: &Arc<Trace>, activity: &Arc<Activity>) -> Self {
        let now = Instant::now();
        Self {
            lap: now,
            waited: Duration::ZERO,
            mark: now,
            work: meter.name(),
            trace: trace.clone(),
            track: trace.track(activity.name().clone()),
            activity: activity.clone(),
            sliced: (State::Starting, [0; 2], now),
        }
    }

    /// Waits, with the thread's state as `state`; adds the time to `total`.
    pub(crate) fn wait<T>(&mut self, state: State, total: &Total, wait: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        self.wait_since(state, begin, begin, total, wait)
    }

    /// As [`Stopwatch::wait`], for a slice of a wait: slices for the same `what` count as one state.
    pub(crate) fn wait_on<T>(
        &mut self,
        state: State,
        what: [u64; 2],
        total: &Total,
        wait: impl FnOnce() -> T,
    ) -> T {
        let begin = Instant::now();
        if (state, what) != (self.sliced.0, self.sliced.1) {
            self.sliced = (state, what, begin);
        }
        self.wait_since(state, self.sliced.2, begin, total, wait)
    }

    fn wait_since<T>(
        &mut self,
        state: State,
        since: Instant,
        begin: Instant,
        total: &Total,
        wait: impl FnOnce() -> T,
    ) -> T {
        self.activity.enter(state, since);
        let outcome = wait();
        self.waited(total, begin, begin.elapsed());
        self.activity.work(self.mark);
        outcome
    }

    /// Sets the item that the thread works on.
    pub(crate) fn on(&self, item: u64) {
        self.activity.on(item);
    }

    /// Sets the stream that the thread draws from, or the number of its job.
    pub(crate) fn of(&self, detail: Option<u64>) {
        self.activity.of(detail);
    }

    /// Counts a wait that has ended; it began after the last one.
    pub(crate) fn waited(&mut self, total: &Total, begin: Instant, time: Duration) {
        total.add(time);
        self.waited += time;
        if self.trace.is_on() {
            self.trace.span(&self.track, self.work, self.mark..begin, None);
            self.trace.span(&self.track, total.name, begin..begin + time, None);
        }
        self.mark = begin + time;
    }

    /// Ends item `number`: all time since the last item that was no wait was work on it. Returns the current
    /// time.
    pub(crate) fn item(&mut self, meter: &Meter, number: u64) -> Instant {
        let now = Instant::now();
        meter.add(now.duration_since(self.lap).saturating_sub(self.waited));
        if self.trace.is_on() {
            self.trace.span(&self.track, self.work, self.mark..now, Some(number));
        }
        (self.lap, self.mark, self.waited) = (now, now, Duration::ZERO);
        self.activity.work(now);
        now
    }

    /// The end of the last wait or item.
    pub(crate) fn mark(&self) -> Instant {
        self.mark
    }

    /// Adds a span over several pieces of work to the trace, from `begin` to the last mark.
    pub(crate) fn spanning(&self, name: &'static str, begin: Instant, number: u64) {
        if self.trace.is_on() {
            self.trace.span(&self.track, name, begin..self.mark, Some(number));
        }
    }
}

/// Measures the cost of metering, for benches: per example two items and three waits, as in a real loader,
/// without any work.
#[doc(hidden)]
pub fn meter_examples(examples: u64) -> Duration {
    let (meter, total, trace) = (Meter::new("work"), Total::new("wait"), Arc::default());
    let begin = Instant::now();
    let activity = Arc::new(Activity::new("bench", Role::Worker, begin));
    let mut watch = Stopwatch::start(&meter, &trace, &activity);
    for number in 0..examples {
        (0..3).for_each(|_| watch.wait(State::Record, &total, || ()));
        for _ in 0..2 {
            watch.on(number);
            watch.item(&meter, number);
        }
    }
    begin.elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn waits_are_no_work() {
        let (meter, total) = (Meter::new("work"), Total::new("wait"));
        let begin = Instant::now();
        let activity = Arc::new(Activity::new("a thread", Role::Worker, begin));
        let mut watch = Stopwatch::start(&meter, &Arc::default(), &activity);
        watch.wait(State::Record, &total, || thread::sleep(Duration::from_millis(30)));
        watch.item(&meter, 0);
        let (waited, worked, elapsed) = (total.seconds(), meter.busy_s(), begin.elapsed().as_secs_f64());
        assert!(waited >= 0.03 && waited + worked < elapsed + 1e-9, "{waited} + {worked} of {elapsed}");
        assert_eq!(meter.times().count, 1);
    }

    #[test]
    fn a_wait_counts_before_it_ends() {
        let hunger = Hunger::new();
        let begin = Instant::now();
        let later = begin + Duration::from_millis(500);
        let ((), time) = hunger.wait(begin, || assert!((hunger.seconds(later) - 0.5).abs() < 1e-6));
        assert!((hunger.seconds(later) - time.as_secs_f64()).abs() < 1e-6);
    }
}
