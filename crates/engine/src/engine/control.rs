//! [`Control`]: closes and observes an engine while another thread is in it.

use std::{
    sync::{
        Arc, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Instant,
};

use super::{
    flow::shared::Shared,
    observe::{
        activity::{Activities, State, ThreadState},
        queues::QueueSizes,
        stall::Stall,
    },
};
use crate::{
    shuffle::ConcurrentShuffleBuffer,
    sync::plain::{Mutex, MutexGuard},
};

/// Closes and observes an engine from any thread, also while another thread is in its `next`.
pub struct Control<E> {
    closed: AtomicBool,
    batches_per_epoch: AtomicU64,
    current: Mutex<CurrentRun<E>>,
}

/// The current run, or the last one.
struct CurrentRun<E> {
    shared: Weak<Shared<E>>,
    /// Kept after the run has ended.
    activities: Option<Arc<Activities>>,
}

impl<E> Default for Control<E> {
    fn default() -> Self {
        Self {
            closed: AtomicBool::new(false),
            batches_per_epoch: AtomicU64::new(0),
            current: Mutex::new(CurrentRun { shared: Weak::new(), activities: None }),
        }
    }
}

impl<E> Control<E> {
    /// Stops the threads and wakes a blocked `next`. That call fails, and so do all later ones.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        if let Some(shared) = self.shared() {
            shared.stop();
        }
    }

    /// Batches of one epoch; in a finite pass their exact number.
    pub fn batches_per_epoch(&self) -> u64 {
        self.batches_per_epoch.load(Ordering::Relaxed)
    }

    pub(super) fn set_batches_per_epoch(&self, n: u64) {
        self.batches_per_epoch.store(n, Ordering::Relaxed);
    }

    pub(super) fn observe(&self, shared: &Arc<Shared<E>>) {
        *self.current() =
            CurrentRun { shared: Arc::downgrade(shared), activities: Some(shared.activities.clone()) };
    }

    /// The amount of data between the stages; all 0 if no pass is running.
    pub fn queues(&self) -> QueueSizes {
        self.shared().map(|shared| shared.queues()).unwrap_or_default()
    }

    /// Outcomes in the shuffle buffers of the running pass, and the slots of its windows.
    pub(super) fn fill(&self) -> Option<(usize, u64)> {
        let shared = self.shared()?;
        let sizes = shared.buffers.iter().map(ConcurrentShuffleBuffer::window_size);
        Some((shared.queues().examples, sizes.sum()))
    }

    /// The state of each thread of the pass, or of the last pass if none is running; empty before the first
    /// one.
    pub fn threads(&self) -> Vec<ThreadState> {
        match self.shared() {
            Some(shared) => shared.look().threads,
            None => {
                self.current().activities.as_ref().map(|activities| activities.look()).unwrap_or_default()
            }
        }
    }

    /// Which thread waits for which, if a call waits for a batch.
    pub fn stall(&self) -> Option<Stall> {
        Stall::of(&self.shared()?.look())
    }

    /// Marks the consumer as no longer waiting for a batch. A call that merely times out counts as waiting
    /// until the next call.
    pub fn give_up(&self) {
        if let Some(activities) = &self.current().activities {
            activities.consumer().enter(State::Loop, Instant::now());
        }
    }

    fn shared(&self) -> Option<Arc<Shared<E>>> {
        self.current().shared.upgrade()
    }

    fn current(&self) -> MutexGuard<'_, CurrentRun<E>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}
