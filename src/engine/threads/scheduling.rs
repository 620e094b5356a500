//! How the system schedules the loader's threads: `SCHED_BATCH` on Linux, and workers at a lower weight.
//!
//! A thread of `SCHED_BATCH` never takes a core from a running thread when it wakes. So the training loop
//! keeps its core when its call of `next()` wakes the collator, which otherwise preempts it for the time of a
//! whole batch. Workers also get a higher niceness: where all cores are busy, a loop that computes gets
//! nearly a whole core, and where it waits for them, they get all of it. Any process may choose both; where
//! the system refuses, the threads run as they are.
//!
//! Source: `sched(7)`, `setpriority(2)`: on Linux it is of a thread. docs/decisions.md has the measurements.

/// Gives the calling thread the policy, unless the process runs with another one than the default.
pub(super) fn never_preempt_on_wake() {
    #[cfg(target_os = "linux")]
    // SAFETY: both calls affect only the scheduling of the calling thread (0), and `parameters` outlives
    // them. Bytes of zero are valid for the structure, and priority 0 is the only one of the policy.
    unsafe {
        if libc::sched_getscheduler(0) == libc::SCHED_OTHER {
            let parameters: libc::sched_param = std::mem::zeroed();
            // A refusal leaves the default, which is slower but right.
            let _ = libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameters);
        }
    }
}

/// Adds `nice` to the niceness of the calling thread, up to the highest.
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
