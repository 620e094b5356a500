//! Whether the work of the current thread was stopped: opening files, long loops and waits for rows or for a
//! server end soon after that.
//!
//! The flag is set where a thread's work begins, by [`during`]. A parameter would pass through every function
//! that opens or reads a file.

use std::{cell::RefCell, sync::Arc};

use crate::{Error, ErrorKind, Result};

pub type Stop = Arc<dyn Fn() -> bool + Send + Sync>;

thread_local! {
    static STOP: RefCell<Option<Stop>> = const { RefCell::new(None) };
}

/// Sets the former flag again, also after a panic.
struct Restore(Option<Stop>);

impl Drop for Restore {
    fn drop(&mut self) {
        STOP.replace(self.0.take());
    }
}

/// Does `work`, which `stop` may end; without one, nothing ends its waits.
pub fn during<T>(stop: Option<Stop>, work: impl FnOnce() -> T) -> T {
    let _restore = Restore(STOP.replace(stop));
    work()
}

/// The flag of this thread's work, for threads that do a part of it.
pub fn current() -> Option<Stop> {
    STOP.with_borrow(Clone::clone)
}

/// Whether this thread's work was stopped.
pub fn is_stopped() -> bool {
    STOP.with_borrow(|stop| stop.as_ref().is_some_and(|stop| stop()))
}

/// Checks that this thread's work may continue; `work` is its name in the message.
///
/// # Errors
/// [`ErrorKind::Closed`] if it was stopped.
pub fn check(work: &str) -> Result<()> {
    match is_stopped() {
        true => Err(Error::new(ErrorKind::Closed, format!("{work} was stopped"))),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_is_that_of_the_innermost_work() {
        let set = |is_stopped| Some(Arc::new(move || is_stopped) as Stop);
        assert!(!is_stopped());
        during(set(true), || {
            assert!(is_stopped());
            during(set(false), || assert!(!is_stopped()));
            assert!(current().is_some_and(|stop| stop()));
            let caught = std::panic::catch_unwind(|| during(None, || panic!("a test asked for it")));
            assert!(caught.is_err() && is_stopped());
        });
        assert!(current().is_none());
    }
}
