//! The [`Autoscaler`] chooses how many workers are awake and how many batches are made ahead, where the user
//! left that to the loader.
//!
//! Only the collator calls it ([`Autoscaler::decide`]), between batches and while it waits for examples;
//! there is no separate thread. Decisions depend on the meters: how long the loop was starved, how long
//! batches piled up, how long the workers worked. Numbers rise and fall in small steps and under different
//! conditions, so that they settle:
//!
//! - *More workers*, by half of what there are, after [`QUICK`] in which the loop was starved and the workers
//!   worked at least [`WORKED`] of the time, while records waited for a worker and the process left a part of
//!   a core unused. So a start or a faster loop costs some tenths of a second. Records that wait for
//!   descheduled workers wake no worker: it would be descheduled too.
//! - *One worker less* after [`SLOW`] in which the loop was not starved, batches piled up, and the other
//!   workers would have been busy for at most [`LOAD`] of the time.
//! - *More batches ahead*, by half, after [`SLOW`] in which the loop was starved and batches piled up: the
//!   throughput is enough, but not steady.
//!
//! If the user chose the number of workers, as many as there are cores are awake at first; the first rule
//! wakes more, and none is parked again. Workers that share a core evict each other's data from its cache;
//! but workers that sleep in their work leave their core to others.
//!
//! The numbers change no batch. Source: own.

use std::{
    ops::Sub,
    time::{Duration, Instant},
};

/// The shortest measured time before workers are added.
const QUICK: Duration = Duration::from_millis(50);
/// The measured time before a worker is removed or batches are added: the first with at least
/// [`SLOW_BATCHES`] batches, else the second.
const SLOW: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(10)];
const SLOW_BATCHES: u64 = 8;
/// The share of its time that the loop waits: starved at the first value and above, not starved below the
/// second.
const STARVED: [f64; 2] = [0.03, 0.01];
/// The share of the time without room for a batch from which batches count as piling up.
const PILED: f64 = 0.1;
/// The share of their time that workers must work before more are woken.
const WORKED: f64 = 0.5;
/// The share of their time that the remaining workers may have to work.
const LOAD: f64 = 0.8;
/// The part of a core that must be unused before another worker is woken.
const SPARE: f64 = 0.4;

/// Workers at first, if the loader chooses the number.
const FIRST_WORKERS: usize = 2;
/// Batches ahead at first and at most, if the loader chooses the number.
pub const AUTO_PREFETCH: [usize; 2] = [2, 8];

/// Which numbers the loader chooses, up to those of the plan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Auto {
    /// `n_workers`.
    pub workers: bool,
    /// `prefetch_batches`.
    pub prefetch: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Numbers {
    pub(crate) workers: usize,
    pub(crate) prefetch: usize,
}

/// Running sums; only differences between two of them are used.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sums {
    pub(crate) batches: u64,
    /// Seconds that the loop waited for batches.
    pub(crate) starved_s: f64,
    /// Seconds that the collator waited for room.
    pub(crate) piled_s: f64,
    /// Seconds of work of all workers.
    pub(crate) busy_s: f64,
    /// Seconds of work of the whole process.
    pub(crate) cpu_s: f64,
}

impl Sub for Sums {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            batches: self.batches - before.batches,
            starved_s: self.starved_s - before.starved_s,
            piled_s: self.piled_s - before.piled_s,
            busy_s: self.busy_s - before.busy_s,
            cpu_s: self.cpu_s - before.cpu_s,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Autoscaler {
    auto: Auto,
    most: Numbers,
    cores: f64,
    now: Numbers,
    /// Time and sums at the last decision, and at the last slow one.
    quick: (Instant, Sums),
    slow: (Instant, Sums),
}

impl Autoscaler {
    /// The numbers at the start, if the process may use `cores` cores.
    pub(crate) fn first(auto: Auto, most: Numbers, cores: usize) -> Numbers {
        Numbers {
            workers: if auto.workers { FIRST_WORKERS } else { cores }.min(most.workers),
            prefetch: if auto.prefetch { AUTO_PREFETCH[0].min(most.prefetch) } else { most.prefetch },
        }
    }

    /// Continues from the numbers `now`; the process may use `cores` cores.
    pub(crate) fn new(
        auto: Auto,
        most: Numbers,
        cores: usize,
        now: Numbers,
        at: Instant,
        sums: Sums,
    ) -> Self {
        Self { auto, most, cores: cores as f64, now, quick: (at, sums), slow: (at, sums) }
    }

    /// Whether it is time for a decision; a cheap check.
    pub(crate) fn is_due(&self, at: Instant) -> bool {
        let has_choice = self.auto.workers || self.auto.prefetch || self.now.workers < self.most.workers;
        has_choice && at.duration_since(self.quick.0) >= QUICK
    }

    /// Decides on the numbers from now on, by the sums so far and the number of records that wait for a
    /// worker; `None` if they stay.
    pub(crate) fn decide(&mut self, at: Instant, sums: Sums, waiting: usize) -> Option<Numbers> {
        let before = self.now;
        let (elapsed, spent) = since(&self.quick, at, sums);
        let is_starved = spent.starved_s >= STARVED[0] * elapsed;
        let has_cpu = spent.cpu_s <= (self.cores - SPARE) * elapsed;
        let have_worked = spent.busy_s >= WORKED * before.workers as f64 * elapsed;
        if is_starved && have_worked && waiting > 0 && has_cpu {
            self.now.workers = more(self.now.workers).min(self.most.workers);
        }
        self.quick = (at, sums);
        let (elapsed, batches) = (at.duration_since(self.slow.0), sums.batches - self.slow.1.batches);
        if elapsed >= SLOW[0] && (batches >= SLOW_BATCHES || elapsed >= SLOW[1]) {
            self.decide_slowly(at, sums, before);
        }
        (self.now != before).then_some(self.now)
    }

    fn decide_slowly(&mut self, at: Instant, sums: Sums, before: Numbers) {
        let (elapsed, spent) = since(&self.slow, at, sums);
        self.slow = (at, sums);
        let has_piled = spent.piled_s >= PILED * elapsed;
        if self.auto.prefetch && has_piled && spent.starved_s >= STARVED[1] * elapsed {
            self.now.prefetch = more(self.now.prefetch).min(self.most.prefetch);
        }
        let others = self.now.workers.saturating_sub(1).max(1);
        let is_calm = has_piled && spent.starved_s < STARVED[1] * elapsed;
        let have_time = spent.busy_s <= LOAD * others as f64 * elapsed;
        if self.auto.workers && is_calm && have_time && self.now.workers == before.workers {
            self.now.workers = others;
        }
    }
}

/// Half more, rounded up.
fn more(n: usize) -> usize {
    n + n.div_ceil(2)
}

/// Seconds since an earlier decision, and the sums over them.
fn since(&(then, before): &(Instant, Sums), at: Instant, sums: Sums) -> (f64, Sums) {
    (at.duration_since(then).as_secs_f64(), sums - before)
}

/// CPU seconds of all threads of this process; 0 where the system does not report them.
pub(crate) fn cpu_s() -> f64 {
    #[cfg(unix)]
    {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the system writes one `timespec`, which is there.
        if unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) } == 0 {
            return time.tv_sec as f64 + time.tv_nsec as f64 / 1e9;
        }
    }
    0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const AUTO: Auto = Auto { workers: true, prefetch: true };
    const MOST: Numbers = Numbers { workers: 8, prefetch: 8 };

    /// A loader whose workers make `rate` batches a second each on `cores` cores. Reading allows `io` batches
    /// a second at most, and the loop takes `wanted`. `jitter`: the least share of the time in which the loop
    /// is starved, and half of that in which batches pile up; `cpu`: the share of their work for which
    /// workers need a core.
    #[derive(Clone, Copy)]
    struct Loader {
        rate: f64,
        cores: usize,
        io: f64,
        wanted: f64,
        jitter: f64,
        cpu: f64,
    }

    const LOADER: Loader = Loader { rate: 10.0, cores: 8, io: 1e9, wanted: 1e9, jitter: 0.0, cpu: 1.0 };

    struct Run {
        autoscaler: Autoscaler,
        at: Instant,
        sums: Sums,
        made: f64,
    }

    fn run(most: Numbers, cores: usize) -> Run {
        let (at, sums) = (Instant::now(), Sums::default());
        let first = Autoscaler::first(AUTO, most, cores);
        Run { autoscaler: Autoscaler::new(AUTO, most, cores, first, at, sums), at, sums, made: 0.0 }
    }

    impl Run {
        /// The numbers after `seconds` with that loader; decided every 50 ms.
        fn after(&mut self, seconds: f64, loader: Loader) -> Numbers {
            for _ in 0..(seconds * 20.0) as usize {
                let working = self.autoscaler.now.workers.min(loader.cores) as f64;
                let (able, step) = ((loader.rate * working).min(loader.io), 0.05);
                let made = able.min(loader.wanted);
                let starved = 1.0 - made / loader.wanted;
                self.made += step * made;
                self.sums = Sums {
                    batches: self.made as u64,
                    starved_s: self.sums.starved_s + step * starved.max(loader.jitter),
                    piled_s: self.sums.piled_s + step * (1.0 - made / able).max(2.0 * loader.jitter),
                    busy_s: self.sums.busy_s + step * made / loader.rate,
                    cpu_s: self.sums.cpu_s + step * made / loader.rate * loader.cpu,
                };
                self.at += Duration::from_millis(50);
                let waiting = if able < loader.io && made == able { 5 } else { 0 };
                if self.autoscaler.is_due(self.at) {
                    self.autoscaler.decide(self.at, self.sums, waiting);
                }
            }
            self.autoscaler.now
        }
    }

    #[test]
    fn a_loop_that_does_nothing_gets_all_cores_soon() {
        let mut run = run(MOST, 8);
        assert_eq!(run.autoscaler.now, Numbers { workers: 2, prefetch: 2 });
        assert_eq!(run.after(0.3, LOADER).workers, 8);
        assert_eq!(run.after(30.0, LOADER).workers, 8);
    }

    #[test]
    fn never_more_than_the_budget_or_the_cores() {
        assert_eq!(run(Numbers { workers: 3, ..MOST }, 8).after(5.0, LOADER).workers, 3);
        assert_eq!(run(Numbers { workers: 1, ..MOST }, 8).after(5.0, LOADER).workers, 1);
        // Four cores, budget eight: there is no core for a fifth worker.
        let few = run(MOST, 4).after(5.0, Loader { cores: 4, ..LOADER });
        assert!((4..=5).contains(&few.workers), "{few:?}");
    }

    #[test]
    fn as_many_as_the_loop_needs_and_then_it_rests() {
        for wanted in [1.0, 5.0, 15.0, 17.0, 24.0, 39.0, 55.0, 79.0] {
            let mut run = run(MOST, 8);
            let settled = run.after(20.0, Loader { wanted, ..LOADER });
            let needed = (wanted / 10.0).ceil() as usize;
            assert!(settled.workers >= needed && settled.workers <= 2 * needed, "{wanted}: {settled:?}");
            for _ in 0..100 {
                assert_eq!(run.after(0.5, Loader { wanted, ..LOADER }).workers, settled.workers, "{wanted}");
            }
        }
    }

    #[test]
    fn workers_beyond_the_cores_are_called_if_these_are_not_used() {
        let fixed = |cores| {
            let (auto, at, sums) = (Auto::default(), Instant::now(), Sums::default());
            let first = Autoscaler::first(auto, MOST, cores);
            Run { autoscaler: Autoscaler::new(auto, MOST, cores, first, at, sums), at, sums, made: 0.0 }
        };
        let mut busy = fixed(2);
        assert_eq!(busy.autoscaler.now, Numbers { workers: 2, prefetch: 8 });
        assert_eq!(busy.after(20.0, Loader { cores: 2, ..LOADER }).workers, 2);
        // Workers that sleep use no core.
        let mut asleep = fixed(2);
        for expected in [3, 5, 8] {
            assert_eq!(asleep.after(0.05, Loader { cpu: 0.0, ..LOADER }).workers, expected);
        }
        // They stay awake, whatever the loop does.
        assert_eq!(asleep.after(20.0, Loader { wanted: 5.0, ..LOADER }).workers, 8);
        assert!(!fixed(8).autoscaler.is_due(Instant::now() + SLOW[1]), "nothing to choose");
    }

    #[test]
    fn more_workers_would_not_read_faster() {
        assert_eq!(run(MOST, 8).after(10.0, Loader { io: 15.0, ..LOADER }).workers, 2);
    }

    #[test]
    fn workers_that_the_system_halts_call_nobody() {
        let mut run = run(MOST, 8);
        for step in 1..100 {
            let sums = Sums { starved_s: 0.05 * f64::from(step), ..run.sums };
            assert_eq!(
                run.autoscaler.decide(run.at + step * QUICK, sums, 5),
                None,
                "records wait, but no worker works"
            );
        }
    }

    #[test]
    fn it_follows_a_loop_that_changes() {
        let mut run = run(MOST, 8);
        for _ in 0..3 {
            assert_eq!(run.after(3.0, LOADER).workers, 8);
            assert_eq!(run.after(15.0, Loader { wanted: 5.0, ..LOADER }).workers, 1);
        }
    }

    #[test]
    fn what_is_enough_but_not_steady_gets_more_batches_ahead() {
        let uneven = Loader { wanted: 12.0, jitter: 0.1, ..LOADER };
        assert_eq!(run(MOST, 8).after(20.0, uneven).prefetch, 8);
        assert_eq!(run(Numbers { prefetch: 3, ..MOST }, 8).after(20.0, uneven).prefetch, 3);
        for steady in [Loader { wanted: 12.0, ..LOADER }, LOADER] {
            assert!(run(MOST, 8).after(20.0, steady).prefetch <= 3);
        }
    }

    #[test]
    fn the_process_knows_what_it_works() {
        // On a busy machine, wall-clock time exceeds CPU time.
        let (before, begin) = (cpu_s(), Instant::now());
        while cpu_s() - before <= 0.005 {
            assert!(begin.elapsed() < Duration::from_secs(120));
        }
    }
}
