//! One run: the I/O threads, the channel, the workers and the shuffle buffers between them, from start to
//! stop.
//!
//! Inside the engine, workers block only on their input or while parked, and an I/O thread only on credit,
//! its turn, bytes and the channel. All these waits end with [`Shared::stop`].

use std::{
    collections::VecDeque,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicUsize},
    },
};

use crossbeam_channel::Receiver;

use crate::sync::plain::Mutex;
use crate::{
    Result, cancel,
    contract::{CarriedRecord, ExampleMaker, PayloadOf, ReadRecords, Source, TaskFor},
    engine::{
        Plan,
        flow::admission::Admission,
        flow::channel_limit::ChannelLimit,
        flow::demand::{Demand, ExtraRead},
        flow::permits::ReaderLimiter,
        flow::reader::{Reader, ReaderPlan},
        flow::sequencer::Sequencer,
        flow::shared::{FromExtraRead, Shared, guard},
        flow::worker::{Worker, WorkerInput},
        observe::activity::{Activities, Activity},
        observe::meter::Stopwatch,
        observe::stats::Counters,
        threads::owned::Threads,
        threads::{cpus::Cpus, parking::Parking, scheduling},
    },
    order::Schedule,
    shuffle::ConcurrentShuffleBuffer,
};

/// A started run: its threads and what they share.
pub(crate) struct Run<E> {
    pub(crate) shared: Arc<Shared<E>>,
    pub(crate) threads: Threads,
    cpus: Option<Cpus>,
}

/// The collator's ends of a run's channels.
pub(crate) struct CollatorEnds<E> {
    /// Outcomes of records requested besides the tickets.
    pub(crate) extra_reads: Receiver<FromExtraRead<E>>,
    /// Disconnected when the run is stopped.
    pub(crate) stopped: Receiver<()>,
}

impl<E: Send + 'static> Run<E> {
    /// Starts the I/O threads and workers of a pass, after `draws` draws of each stream; `held` records are
    /// requested besides the tickets.
    pub(crate) fn start<S: Source, K: TaskFor<S>>(
        plan: &Plan,
        schedule: &Schedule,
        draws: &[u64],
        held: &[Vec<CarriedRecord>],
        source: &Arc<S>,
        task: &Arc<K>,
        counters: &Arc<Counters>,
    ) -> Result<(Self, CollatorEnds<E>)>
    where
        K::Maker: ExampleMaker<Example = E>,
    {
        counters.begin_run();
        let ReaderPlan { n_readers, first_runs, most_runs, in_turn, .. } = ReaderPlan::new(plan, source);
        let per_batch = schedule.per_batch();
        let look_ahead = 3 * per_batch as usize;
        let demand_first = source.random_access();
        let (mut buffers, mut accounts) = (Vec::new(), Vec::new());
        for (stream, &draws) in draws.iter().enumerate() {
            let window = schedule.window(stream, draws);
            let credit = plan.credit(window.size(), n_readers, per_batch);
            let end = schedule.end(stream);
            let admission = Admission::new(window.clone(), end, credit, look_ahead, demand_first);
            accounts.push((window.draws(), admission));
            buffers.push(ConcurrentShuffleBuffer::over(credit.most, window)?);
        }
        let (open, stopped) = crossbeam_channel::bounded(0);
        let words = K::WORDS;
        let shared = Arc::new(Shared {
            buffers,
            demand: Demand::new(accounts, extra_reads(held), first_runs, most_runs),
            bytes: Arc::new(ChannelLimit::new(plan.channel_bytes, plan.channel_size, n_readers)),
            parking: Parking::new(counters.numbers().workers),
            sequencer: Sequencer::default(),
            bytes_in_use: {
                let source = source.clone();
                Box::new(move || source.bytes_in_use())
            },
            counters: counters.clone(),
            ready: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
            open: Mutex::new(Some(open)),
            fatal: OnceLock::new(),
            activities: Arc::new(Activities::new(n_readers, plan.n_workers, words)),
            schedule: schedule.clone(),
            place: {
                let source = source.clone();
                Box::new(move |row| source.place(row))
            },
        });
        // Threads that do not send in turn take a place before they read, also for the record in hand.
        let channel_size = plan.channel_size + if in_turn { 0 } else { n_readers };
        let (to_workers, records) = crossbeam_channel::bounded(channel_size);
        let (extra_reads_tx, extra_reads) = crossbeam_channel::unbounded();
        // If a later step fails, the drop of `run` ends the threads already started.
        let mut run = Self { shared: shared.clone(), threads: Threads::default(), cpus: plan.cpus.clone() };
        for n in 0..n_readers {
            let activity = shared.activities.reader(n);
            // A single thread keeps a reader for each stream; of several threads, each reads a block to its
            // end.
            let places = if n_readers == 1 { schedule.n_streams() } else { 1 };
            let limiter = Arc::new(ReaderLimiter::new(shared.clone(), activity.clone()));
            let reader = Reader {
                watch: Stopwatch::start(&counters.meters.read, &counters.trace, activity),
                task: task.clone(),
                source: source.clone(),
                readers: (0..places)
                    .map(|_| {
                        let mut reader = source.reader();
                        reader.set_limiter(limiter.clone());
                        reader
                    })
                    .collect(),
                limiter,
                in_turn,
                policy: plan.policy.clone(),
                schedule: schedule.clone(),
                later: schedule.clone(),
                shared: shared.clone(),
                to_workers: to_workers.clone(),
                extra_reads: extra_reads_tx.clone(),
            };
            run.spawn(activity.clone(), move |_, _| reader.run())?;
        }
        let input = WorkerInput { records, stopped: stopped.clone() };
        run.spawn_workers(plan, source, task, &input)?;
        Ok((run, CollatorEnds { extra_reads, stopped }))
    }
}

impl<E: Send + 'static> Run<E> {
    fn spawn_workers<S: Source, K: TaskFor<S>>(
        &mut self,
        plan: &Plan,
        source: &Arc<S>,
        task: &Arc<K>,
        input: &WorkerInput<PayloadOf<S>, E>,
    ) -> Result<()>
    where
        K::Maker: ExampleMaker<Example = E>,
    {
        #[cfg(debug_assertions)]
        let injected = crate::engine::threads::inject::Injected::current();
        for n in 0..plan.n_workers {
            let (source, task) = (source.clone(), task.clone());
            let input = WorkerInput { records: input.records.clone(), stopped: input.stopped.clone() };
            let nice = plan.worker_nice;
            self.spawn(self.shared.activities.worker(n).clone(), move |shared, activity| {
                scheduling::yield_to_others(nice);
                Worker {
                    n,
                    shared,
                    source: &*source,
                    task: &*task,
                    input,
                    #[cfg(debug_assertions)]
                    injected,
                    activity,
                }
                .run();
            })?;
        }
        Ok(())
    }

    pub(crate) fn spawn(
        &mut self,
        activity: Arc<Activity>,
        work: impl FnOnce(&Arc<Shared<E>>, &Arc<Activity>) + Send + 'static,
    ) -> Result<()> {
        let (shared, cpus) = (self.shared.clone(), self.cpus.clone());
        self.threads.spawn(activity.name().to_string(), move || {
            if let Some(cpus) = cpus {
                cpus.bind_thread();
            }
            let _ends = activity.begin();
            let _waits = shared.counters.run_queue.enter(activity.role());
            let stop = shared.clone();
            cancel::during(Some(Arc::new(move || stop.is_stopped())), || {
                guard(&shared, |shared| work(shared, &activity));
            });
        })
    }
}

impl<E> Run<E> {
    /// Stops the run and returns its threads, which end on their own.
    pub(crate) fn retire(&mut self) -> Threads {
        self.shared.stop();
        std::mem::take(&mut self.threads)
    }

    /// Whether the threads are of this process.
    pub(crate) fn is_ours(&self) -> bool {
        self.threads.is_ours()
    }
}

impl<E> Drop for Run<E> {
    fn drop(&mut self) {
        // After a fork the threads exist only in the parent; a lock that one of them held stays locked in the
        // child.
        if self.threads.is_ours() {
            self.shared.stop();
        }
    }
}

/// If two held rows are at most this far apart, the rows between them are read as well: they are usually in
/// the same row group, which costs more to open than to continue.
const NEAR: u64 = 1024;

/// The held records as jobs, in storage order, which costs the least to read.
fn extra_reads(held: &[Vec<CarriedRecord>]) -> VecDeque<ExtraRead> {
    let mut extra_reads = VecDeque::new();
    for (stream, held) in held.iter().enumerate() {
        let mut rows: Vec<_> = held.iter().enumerate().collect();
        rows.sort_unstable_by_key(|(_, held)| held.row);
        let next = rows.iter().skip(1).map(|(_, next)| Some(next.row)).chain([None]);
        extra_reads.extend(rows.iter().zip(next).map(|(&(nth, &CarriedRecord { row, epoch, .. }), next)| {
            let run = next.map_or(1, |next| next - row + 1);
            ExtraRead::Held { stream, nth, row, run: if run <= NEAR { run } else { 1 }, epoch }
        }));
    }
    extra_reads
}
