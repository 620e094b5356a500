//! Claims about time, on a machine that may be busy: how to wait for a condition, and how to measure.

#![allow(dead_code, reason = "each test uses a part")]

use std::{
    fmt::Debug,
    fs, thread,
    time::{Duration, Instant},
};

/// How long a condition is waited for that never fails to come.
const SOON: Duration = Duration::from_secs(120);

/// Waits until something is so.
pub fn until(what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < SOON, "{what}: not within {SOON:?}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// What `trial` found, of twenty times the first that is as `wanted`: of one in which the system halted a
/// thread, times say nothing. The bounds are the same in each. Where other processes take the machine in half
/// of them, nobody can tell; that is printed.
#[allow(clippy::print_stdout, reason = "who reads the log of a test should know")]
pub fn undisturbed<T: Debug>(mut trial: impl FnMut() -> T, wanted: impl Fn(&T) -> bool) -> T {
    const TRIALS: usize = 20;
    let (mut found, mut n_disturbed) = (Vec::with_capacity(TRIALS), 0);
    for _ in 0..TRIALS {
        let others = Others::new();
        let last = trial();
        if wanted(&last) {
            return last;
        }
        n_disturbed += usize::from(others.disturb());
        found.push(last);
    }
    assert!(n_disturbed >= TRIALS / 2, "never as it should be: {found:#?}");
    println!(
        "a claim about time cannot be judged, others took the machine in {n_disturbed} of {TRIALS} trials"
    );
    found.swap_remove(TRIALS - 1)
}

/// What other processes, or other guests of the host, work while this one does something.
struct Others {
    begin: Instant,
    before: f64,
}

impl Others {
    fn new() -> Self {
        Self { begin: Instant::now(), before: Self::seconds() }
    }

    /// Processor time of all others so far; 0 where nobody tells. The kernel counts in hundredths of a second
    /// for everybody.
    fn seconds() -> f64 {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let (all, own) = (read("/proc/stat"), read("/proc/self/stat"));
        let sum = |text: &str, fields: &[usize]| -> f64 {
            let numbers: Vec<f64> = text.split_whitespace().map(|word| word.parse().unwrap_or(0.0)).collect();
            fields.iter().filter_map(|&field| numbers.get(field)).sum()
        };
        // Behind `cpu`: user, nice, system, idle, waiting for I/O, two of interrupts, stolen. Behind the
        // name: user, system, those of children.
        let busy = sum(all.lines().next().unwrap_or_default(), &[1, 2, 3, 6, 7, 8]);
        let own = sum(own.rsplit(')').next().unwrap_or_default(), &[11, 12, 13, 14]);
        (busy - own) / 100.0
    }

    /// Whether they took more than a fifth of a core, so that times say little.
    fn disturb(&self) -> bool {
        Self::seconds() - self.before > 0.05 + 0.2 * self.begin.elapsed().as_secs_f64()
    }
}

/// Processor time of this thread: what work takes, however long it is halted.
pub fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` may be written, and the clock exists.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) }, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
