//! A worker: makes an example of each record that comes, and rests while it is not called.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use crossbeam_channel::{Receiver, TryRecvError};

use super::{
    ExampleOf,
    inject::Delays,
    meter::Stopwatch,
    run::{Admitted, Shared, located, panicked},
    stats::Counters,
};
use crate::record::{Source, Stage, Task};

/// Worker thread `n`: works and rests until there are no more records, or the run is stopped.
pub(super) fn work<S: Source, K: Task>(
    n: usize,
    shared: &Arc<Shared<ExampleOf<K>>>,
    source: &S,
    task: &K,
    records: &Receiver<Admitted<ExampleOf<K>>>,
    delays: Delays,
) {
    let meters = &shared.counters.meters;
    let name = format!("forebay-worker-{n}");
    let mut watch = Stopwatch::start(&meters.decode, &shared.counters.trace, name);
    loop {
        if !shared.crew.is_called(n) && !watch.wait(&meters.rest, || shared.crew.rest(n)) {
            return;
        }
        if !take_turn(n, shared, source, task, records, delays, &mut watch) {
            shared.crew.end();
            return;
        }
    }
}

/// Works as long as worker `n` is called, with a stage of its own; false when there is nothing more to do.
fn take_turn<S: Source, K: Task>(
    n: usize,
    shared: &Arc<Shared<ExampleOf<K>>>,
    source: &S,
    task: &K,
    records: &Receiver<Admitted<ExampleOf<K>>>,
    delays: Delays,
    watch: &mut Stopwatch,
) -> bool {
    let mut stage = task.stage();
    let meters = &shared.counters.meters;
    loop {
        let received = match records.try_recv() {
            Err(TryRecvError::Empty) => watch.wait(&meters.records, || records.recv().ok()),
            received => received.ok(),
        };
        let Some(Admitted { record, answer }) = received else { return false };
        shared.bytes.release(record.bytes.len());
        if shared.is_stopped() {
            return false;
        }
        delays.sleep(record.seed);
        let outcome = catch_unwind(AssertUnwindSafe(|| stage.run_until(&record, &|| shared.is_stopped())))
            .unwrap_or_else(|panic| {
                // The panic is told at its record's place; until then others get what they need from a stage that is whole.
                stage = task.stage();
                Err(panicked(&*panic))
            });
        let counter = match outcome {
            Ok(_) => &shared.counters.records_decoded,
            Err(_) => &shared.counters.records_failed,
        };
        Counters::add(counter);
        answer.give(outcome.map_err(|error| located(error, source, record.index)));
        watch.item(&meters.decode, record.index);
        if !shared.crew.is_called(n) {
            return true;
        }
    }
}
