//! Claims about time on a machine that may be busy: waiting for a condition, and measuring.

#![allow(dead_code, reason = "each test uses a part")]

use std::{
    fmt::Debug,
    fs, thread,
    time::{Duration, Instant},
};

/// How long [`until`] waits for a condition before the test fails.
const SOON: Duration = Duration::from_secs(120);

/// Waits until `is_so` returns true.
pub fn until(what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < SOON, "{what}: not within {SOON:?}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Repeats `trial`, up to twenty times, until its result is as `wanted`, and returns that result. If the
/// system descheduled a thread, a measured time is meaningless; the bounds stay the same in each trial. If
/// other processes used the machine in half of the trials, the claim cannot be judged; that is printed.
#[allow(clippy::print_stdout, reason = "for readers of the test's log")]
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

/// Measures the work of other processes, and of other guests of the host, since its creation.
struct Others {
    begin: Instant,
    before: f64,
}

impl Others {
    fn new() -> Self {
        Self { begin: Instant::now(), before: Self::seconds() }
    }

    /// Processor time of all others so far; 0 if the system does not report it. The kernel counts in
    /// hundredths of a second.
    fn seconds() -> f64 {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let (all, own) = (read("/proc/stat"), read("/proc/self/stat"));
        let sum = |text: &str, fields: &[usize]| -> f64 {
            let numbers: Vec<f64> = text.split_whitespace().map(|word| word.parse().unwrap_or(0.0)).collect();
            fields.iter().filter_map(|&field| numbers.get(field)).sum()
        };
        // After `cpu`: user, nice, system, idle, waiting for I/O, two of interrupts, stolen. After the name:
        // user, system, those of children.
        let busy = sum(all.lines().next().unwrap_or_default(), &[1, 2, 3, 6, 7, 8]);
        let own = sum(own.rsplit(')').next().unwrap_or_default(), &[11, 12, 13, 14]);
        (busy - own) / 100.0
    }

    /// Whether others took more than a fifth of a core, so that times are meaningless.
    fn disturb(&self) -> bool {
        Self::seconds() - self.before > 0.05 + 0.2 * self.begin.elapsed().as_secs_f64()
    }
}

/// Processor time of this thread: the time of its work, without the time that it is descheduled.
pub fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` may be written, and the clock exists.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) }, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
