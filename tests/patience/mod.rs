//! Claims about time, on a machine that may be busy: how to wait for a condition, and how to measure.

#![allow(dead_code, reason = "each test uses a part")]

use std::{
    fmt::Debug,
    thread,
    time::{Duration, Instant},
};

/// How long a condition is waited for that never fails to come.
const SOON: Duration = Duration::from_secs(60);

/// Waits until something is so.
pub fn until(what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < SOON, "{what}: not within {SOON:?}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// What `trial` found, of twenty times the first that is as `wanted`: of one in which the system halted a thread, times say nothing.
/// The bounds are the same in each.
pub fn undisturbed<T: Debug>(mut trial: impl FnMut() -> T, wanted: impl Fn(&T) -> bool) -> T {
    let mut disturbed = Vec::new();
    for _ in 0..20 {
        let found = trial();
        if wanted(&found) {
            return found;
        }
        disturbed.push(found);
    }
    panic!("never as it should be: {disturbed:#?}");
}
