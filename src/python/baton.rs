//! A lock that can be awaited in slices: who holds the baton works, others look at signals while they wait.

use std::{
    ops::{Deref, DerefMut},
    sync::{Condvar, Mutex, PoisonError},
    time::Duration,
};

/// A value that one thread at a time may take.
#[derive(Debug)]
pub struct Baton<T> {
    value: Mutex<Option<T>>,
    returned: Condvar,
}

/// The value, until it is dropped and goes back.
pub struct Taken<'a, T> {
    value: Option<T>,
    baton: &'a Baton<T>,
}

impl<T> Baton<T> {
    pub fn new(value: T) -> Self {
        Self { value: Mutex::new(Some(value)), returned: Condvar::new() }
    }

    /// Waits for the value, at most `timeout`.
    pub fn take(&self, timeout: Duration) -> Option<Taken<'_, T>> {
        let guard = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut guard, _) = self
            .returned
            .wait_timeout_while(guard, timeout, |value| value.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        guard.take().map(|value| Taken { value: Some(value), baton: self })
    }
}

impl<T> Drop for Taken<'_, T> {
    fn drop(&mut self) {
        *self.baton.value.lock().unwrap_or_else(PoisonError::into_inner) = self.value.take();
        self.baton.returned.notify_one();
    }
}

impl<T> Deref for Taken<'_, T> {
    type Target = T;

    #[expect(clippy::unwrap_used, reason = "the value leaves in drop only")]
    fn deref(&self) -> &T {
        self.value.as_ref().unwrap()
    }
}

impl<T> DerefMut for Taken<'_, T> {
    #[expect(clippy::unwrap_used, reason = "the value leaves in drop only")]
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().unwrap()
    }
}
