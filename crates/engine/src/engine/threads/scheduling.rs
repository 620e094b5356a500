//! How the system schedules the loader's threads: `SCHED_BATCH` on Linux, and workers at a lower weight.
//!
//! A thread of `SCHED_BATCH` never takes a core from a running thread when it wakes. So the training loop
//! keeps its core when its call of `next()` wakes the collator, which otherwise preempts it for the time of a
//! whole batch. Workers also get a higher niceness: where all cores are busy, a loop that computes gets
//! nearly a whole core, and where it waits for them, they get all of it. Any process may choose both; where
//! the system refuses, the threads run as they are.
//!
//! Source: `sched(7)`, `setpriority(2)`: on Linux it is of a thread. docs/decisions.md has the measurements.

#[cfg(target_os = "linux")]
thread_local! {
    /// Whether the thread has a policy that its process has not.
    static IS_BATCH: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Sets the policy of the calling thread. If the system refuses, the thread keeps its own, which is slower
/// but right.
#[cfg(target_os = "linux")]
fn set(policy: libc::c_int) -> bool {
    // SAFETY: the call affects only the scheduling of the calling thread (0), and `parameters` outlives it.
    // Bytes of zero are valid for the structure, and priority 0 is the only one of both policies.
    unsafe {
        let parameters: libc::sched_param = std::mem::zeroed();
        libc::sched_setscheduler(0, policy, &raw const parameters) == 0
    }
}

/// Gives the calling thread the policy, unless the process runs with another one than the default.
pub(super) fn never_preempt_on_wake() {
    #[cfg(target_os = "linux")]
    // SAFETY: the call reads the policy of the calling thread (0).
    if unsafe { libc::sched_getscheduler(0) } == libc::SCHED_OTHER {
        IS_BATCH.set(set(libc::SCHED_BATCH));
    }
}

/// Calls a function of the user with the policy of the process, which threads and processes that it starts
/// inherit.
pub fn as_process<T>(function: impl FnOnce() -> T) -> T {
    #[cfg(target_os = "linux")]
    // A function may call another one, on the same thread, whose end leaves the policy to the outer one.
    let _back = IS_BATCH.replace(false).then(|| {
        set(libc::SCHED_OTHER);
        BatchPolicy
    });
    function()
}

/// Sets the policy when it is dropped.
#[cfg(target_os = "linux")]
struct BatchPolicy;

#[cfg(target_os = "linux")]
impl Drop for BatchPolicy {
    fn drop(&mut self) {
        set(libc::SCHED_BATCH);
        IS_BATCH.set(true);
    }
}

/// Adds `nice` to the niceness of the calling thread, up to the highest. A function of the user must not be
/// called after it: threads and processes that it starts would inherit the niceness, which the system lets
/// no process lower.
pub(crate) fn yield_to_others(nice: u8) {
    #[cfg(target_os = "linux")]
    // SAFETY: both calls affect only the calling thread (0). The niceness is -20 to 19, where -1 may also be
    // an error; then the thread keeps the process's, or gets what is added to -1.
    unsafe {
        let own = libc::getpriority(libc::PRIO_PROCESS, 0);
        let _ = libc::setpriority(libc::PRIO_PROCESS, 0, (own + i32::from(nice)).min(19));
    }
    #[cfg(not(target_os = "linux"))]
    let _ = nice;
}
