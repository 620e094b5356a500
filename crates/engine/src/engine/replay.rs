//! Makes one batch apart from the pipeline, record by record on one thread: equal to the loader's batch.
//!
//! Slow and simple, hence also the tests' oracle: both must give the same batches.

use std::{ops::ControlFlow, sync::Arc};

use super::{
    BatchOf,
    failures::policy::Policy,
    flow::assembler::{SUBSTITUTES, exhausted},
    flow::shared::located,
};
use crate::{
    Result,
    contract::{BatchSizes, BatchSlot, Collate, ExampleMaker, ReadRecords, Source, TaskFor},
    order::{Assignment, Schedule},
};

/// A batch that can be made on any thread.
#[derive(Debug)]
pub struct Replay<S, K> {
    pub(crate) schedule: Schedule,
    pub(crate) batch: u64,
    pub(crate) source: Arc<S>,
    pub(crate) task: Arc<K>,
    pub(crate) policy: Policy,
}

impl<S: Source, K: TaskFor<S>> Replay<S, K> {
    /// Makes the batch. `None` if `go_on`, called before each record, returned false.
    ///
    /// # Errors
    /// The error that the loader returns at this batch.
    pub fn run(self, go_on: impl Fn() -> bool) -> Result<Option<BatchOf<K>>> {
        let Self { mut schedule, batch, source, task, policy } = self;
        let draws = schedule.draws(batch);
        let (mut reader, mut stage) = (source.reader(), task.maker());
        let mut collate =
            task.collate(BatchSizes { size: draws.len(), n_streams: schedule.n_streams(), ahead: 1 });
        let mut make = |assigned: Assignment| {
            let Assignment { row, seed, epoch, .. } = assigned;
            let assigned = Assignment { run: 1, repeats: false, ..assigned };
            let mut read = || task.request(&assigned, |request| reader.read(row, 1, request));
            let record = policy.check(row).and_then(|()| read());
            let record = record.map(|record| record.numbered(row, seed, epoch));
            match record.and_then(|record| stage.run(&record)) {
                Ok(example) => Ok(ControlFlow::Break(example)),
                Err(error) if policy.skips(error.kind) => Ok(ControlFlow::Continue(error)),
                Err(error) => Err(located(error, &*source, row)),
            }
        };
        let mut filled = 0;
        for (slot, draw) in draws.into_iter().enumerate() {
            let mut assigned = schedule.assign(draw.stream, draw.ticket);
            for attempt in 1.. {
                if !go_on() {
                    return Ok(None);
                }
                match make(assigned)? {
                    ControlFlow::Break(example) => {
                        collate.put(BatchSlot { stream: draw.stream, row: filled, draw: slot }, example)?;
                        filled += 1;
                        break;
                    }
                    ControlFlow::Continue(_) if !schedule.rules().infinite => break,
                    ControlFlow::Continue(error) if attempt > SUBSTITUTES => {
                        return Err(exhausted(&located(error, &*source, assigned.row), K::WORDS.suspects));
                    }
                    ControlFlow::Continue(_) => assigned = schedule.substitute(draw, attempt),
                }
            }
        }
        collate.complete(filled)?;
        Ok(Some(collate.take(filled)))
    }
}
