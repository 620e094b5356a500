//! The scheduling policy of the loader's threads: `SCHED_BATCH` on Linux.
//!
//! A thread of this policy has the same share of the cores as any other, but it never takes a core from a
//! running thread when it wakes. So the training loop keeps its core when its call of `next()` wakes the
//! collator, which otherwise preempts it for the time of a whole batch. Any process may choose the policy;
//! where the system refuses it, the threads run with the policy that they have.
//!
//! Source: `sched(7)`. docs/decisions.md has the measurement.

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
