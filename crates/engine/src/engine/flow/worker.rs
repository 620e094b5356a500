//! A worker thread: makes an example of each record from the channel; parked while it is not needed.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use crossbeam_channel::{Receiver, TryRecvError, select};

use crate::engine::{
    ExampleOf,
    flow::shared::{Admitted, Shared, located, panicked},
    observe::activity::{Activity, State},
    observe::meter::Stopwatch,
    observe::stats::Counters,
};
use crate::{
    ErrorKind,
    contract::{ExampleMaker, Source, Task},
};
#[cfg(debug_assertions)]
use crate::{contract::Record, engine::threads::inject::Injected};

/// Where a worker gets its records.
pub(crate) struct WorkerInput<P, E> {
    pub(crate) records: Receiver<Admitted<P, E>>,
    /// Disconnected when the run is stopped: an I/O thread in a call that does not return keeps `records`
    /// open.
    pub(crate) stopped: Receiver<()>,
}

impl<P, E> WorkerInput<P, E> {
    /// Waits for the next record; `None` if there are no more, or the run is stopped.
    fn next(&self) -> Option<Admitted<P, E>> {
        select! {
            recv(self.records) -> record => record.ok(),
            recv(self.stopped) -> _ => None,
        }
    }
}

pub(crate) struct Worker<'a, S, K: Task> {
    pub(crate) n: usize,
    pub(crate) shared: &'a Shared<ExampleOf<K>>,
    pub(crate) source: &'a S,
    pub(crate) task: &'a K,
    pub(crate) input: WorkerInput<K::Payload, ExampleOf<K>>,
    #[cfg(debug_assertions)]
    pub(crate) injected: Injected,
    pub(crate) activity: &'a Arc<Activity>,
}

impl<S: Source, K: Task> Worker<'_, S, K> {
    /// Works, or is parked, until there are no more records or the run is stopped.
    pub(crate) fn run(self) {
        let Self { n, shared, .. } = self;
        let meters = &shared.counters.meters;
        let mut watch = Stopwatch::start(&meters.decode, &shared.counters.trace, self.activity);
        loop {
            if !shared.parking.is_called(n)
                && !watch.wait(State::Parked, &meters.rest, || shared.parking.rest(n))
            {
                return;
            }
            if !self.take_turn(&mut watch) {
                shared.parking.end();
                return;
            }
        }
    }

    /// Makes examples until the worker is to be parked; false if there are no more records or the run is
    /// stopped.
    fn take_turn(&self, watch: &mut Stopwatch) -> bool {
        let Self { shared, task, input, .. } = self;
        let mut stage = task.maker();
        let meters = &shared.counters.meters;
        loop {
            let received = match input.records.try_recv() {
                Err(TryRecvError::Empty) => {
                    if shared.demand.is_starved() {
                        shared.demand.starve();
                    }
                    watch.wait(State::Record, &meters.records, || input.next())
                }
                received => received.ok(),
            };
            let Some(Admitted { record, bytes, completion }) = received else { return false };
            watch.on(record.index);
            shared.bytes.release(bytes);
            if shared.is_stopped() {
                return false;
            }
            #[cfg(debug_assertions)]
            self.inject(&record);
            let outcome = catch_unwind(AssertUnwindSafe(|| stage.run(&record))).unwrap_or_else(|panic| {
                // The panic is reported at its record's position; until then other records are processed by a
                // new stage.
                stage = task.maker();
                Err(panicked(&*panic))
            });
            match &outcome {
                Ok(_) => Counters::add(&shared.counters.records_decoded),
                Err(error) if error.kind == ErrorKind::PastEnd => {}
                Err(_) => Counters::add(&shared.counters.records_failed),
            }
            completion.give(outcome.map_err(|error| located(error, self.source, record.index)));
            watch.item(&meters.decode, record.index);
            if !shared.parking.is_called(self.n) {
                return true;
            }
        }
    }

    /// Injects the faults that a test has set for this run: sleeps, or panics while it holds every lock.
    #[cfg(debug_assertions)]
    fn inject(&self, record: &Record<K::Payload>) {
        self.injected.sleep(record.seed);
        if self.injected.panics_at(record.index) {
            self.shared.panic_with_locks();
        }
    }
}
