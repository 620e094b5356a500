//! [`Activity`]: the current state of each thread of a run, and when it began.
//!
//! Each thread writes its own [`Activity`] with relaxed stores, when a wait begins or ends and with each
//! item. The clock readings are those of its [`Stopwatch`](crate::engine::observe::meter::Stopwatch). Any
//! thread may read all activities at any time ([`Activities::look`]). The parts of an activity are read one
//! by one, so they may be an item apart while the thread works; those of a thread that hangs agree.

use std::{
    cell::RefCell,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use crate::contract::TaskLabels;

/// What a thread is doing: one list for all kinds of threads, so that each name has one meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// The system has not run the thread yet.
    Starting,
    /// An I/O thread reads a record.
    Reading,
    /// An I/O thread waits until more examples are drawn.
    Credit,
    /// An I/O thread waits until earlier records were handed over.
    Turn,
    /// An I/O thread waits for memory to read into.
    Memory,
    /// An I/O thread waits for room in the channel to the workers, with a record.
    Channel,
    /// An I/O thread waits for a place in the channel before it chooses a record.
    Place,
    Working,
    /// A worker calls the user's Python code, or waits for the GIL to do so.
    Python,
    /// A worker waits for rows of a dataset that still grows.
    Rows,
    /// A worker waits for a record.
    Record,
    /// A worker is not needed.
    Parked,
    /// The collator puts examples into a batch.
    Collating,
    /// The collator waits for the next example.
    Example,
    /// The collator waits for a substitute of a bad record.
    Substitute,
    /// The collator waits for the documents that its packers held.
    Held,
    /// The collator waits for room: enough batches are ready, and the consumer has taken none.
    Room,
    /// The consumer waits for a batch.
    Batch,
    /// The consumer is outside of `next()`.
    Loop,
    Ended,
}

impl State {
    const ALL: [Self; 20] = [
        Self::Starting,
        Self::Reading,
        Self::Credit,
        Self::Turn,
        Self::Memory,
        Self::Channel,
        Self::Place,
        Self::Working,
        Self::Python,
        Self::Rows,
        Self::Record,
        Self::Parked,
        Self::Collating,
        Self::Example,
        Self::Substitute,
        Self::Held,
        Self::Room,
        Self::Batch,
        Self::Loop,
        Self::Ended,
    ];

    /// The state in words; the words for work are the task's.
    pub(crate) fn name(self, words: &TaskLabels) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Reading => "reading",
            Self::Credit => "waiting for credit",
            Self::Turn => "waiting for its turn",
            Self::Memory => "waiting for memory",
            Self::Channel => "waiting for room in the channel",
            Self::Place => "waiting for a place in the channel",
            Self::Working => words.work,
            Self::Python => "calling Python",
            Self::Rows => "waiting for rows of the dataset",
            Self::Record => "waiting for a record",
            Self::Parked => "parked",
            Self::Collating => "collating",
            Self::Example => "waiting for an example",
            Self::Substitute => "waiting for a substitute",
            Self::Held => "waiting for the documents of a state",
            Self::Room => "waiting for the loop (batches are ready)",
            Self::Batch => "waiting for a batch",
            Self::Loop => "in the loop",
            Self::Ended => "ended",
        }
    }

    /// Whether a thread in this state has an item. For [`State::Example`] the reader of the states looks up
    /// the row.
    fn has_item(self) -> bool {
        use State::*;
        matches!(self, Reading | Turn | Memory | Channel | Working | Python | Rows | Collating | Room | Batch)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Reader,
    Worker,
    Collator,
    Consumer,
}

impl Role {
    /// The state of such a thread while it does not wait.
    fn working(self) -> State {
        match self {
            Self::Reader => State::Reading,
            Self::Worker => State::Working,
            Self::Collator => State::Collating,
            Self::Consumer => State::Loop,
        }
    }
}

const NONE: u64 = u64::MAX;
/// The state is in the bits from this one on; the lower bits hold nanoseconds since the epoch, enough for two
/// years.
const SHIFT: u32 = 56;

/// What one thread is doing. It has its own cache line, since one thread writes it often.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Activity {
    state: AtomicU64,
    item: AtomicU64,
    /// The number of an I/O thread's job, or the stream that the collator draws from.
    detail: AtomicU64,
    epoch: Instant,
    role: Role,
    name: Arc<str>,
}

impl Activity {
    pub(crate) fn new(name: impl Into<Arc<str>>, role: Role, epoch: Instant) -> Self {
        let [item, detail] = [NONE; 2].map(AtomicU64::new);
        Self { state: AtomicU64::new(0), item, detail, epoch, role, name: name.into() }
    }

    /// Sets the state to working, since `at`.
    pub(crate) fn work(&self, at: Instant) {
        self.enter(self.role.working(), at);
    }

    pub(crate) fn role(&self) -> Role {
        self.role
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Sets the state to `state`, since `at`.
    pub(crate) fn enter(&self, state: State, at: Instant) {
        let since = at.saturating_duration_since(self.epoch);
        let nanoseconds = since.as_secs() * 1_000_000_000 + u64::from(since.subsec_nanos());
        self.state.store(u64::from(state as u8) << SHIFT | nanoseconds & ((1 << SHIFT) - 1), Relaxed);
    }

    pub(crate) fn on(&self, item: u64) {
        self.item.store(item, Relaxed);
    }

    /// Sets the number of the job, if it has one, or the stream.
    pub(crate) fn of(&self, detail: Option<u64>) {
        self.detail.store(detail.unwrap_or(NONE), Relaxed);
    }

    pub(crate) fn state(&self) -> State {
        Self::unpacked(self.state.load(Relaxed)).0
    }

    /// Splits a state from its nanoseconds.
    fn unpacked(packed: u64) -> (State, u64) {
        let state = State::ALL.get((packed >> SHIFT) as usize).copied().unwrap_or(State::Ended);
        (state, packed & ((1 << SHIFT) - 1))
    }

    /// Makes this the activity of the calling thread, until the guard is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> impl Drop + use<> {
        struct ActivityEnd(Arc<Activity>);
        impl Drop for ActivityEnd {
            fn drop(&mut self) {
                self.0.enter(State::Ended, Instant::now());
                OWN.with(|own| own.borrow_mut().take());
            }
        }
        OWN.with(|own| own.borrow_mut().replace(self.clone()));
        self.work(Instant::now());
        ActivityEnd(self.clone())
    }

    fn look(&self, now: Instant, words: &TaskLabels) -> ThreadState {
        let [item, detail] = [&self.item, &self.detail].map(|number| number.load(Relaxed));
        let (state, entered) = Self::unpacked(self.state.load(Relaxed));
        let entered = self.epoch + Duration::from_nanos(entered);
        ThreadState {
            name: self.name.clone(),
            role: self.role,
            state,
            doing: state.name(words),
            since: now.saturating_duration_since(entered),
            item: Some(item).filter(|&item| state.has_item() && item != NONE),
            detail: Some(detail).filter(|&detail| detail != NONE),
            place: None,
        }
    }
}

thread_local! {
    /// The activity of the current thread, if a run started it.
    static OWN: RefCell<Option<Arc<Activity>>> = const { RefCell::new(None) };
}

/// Does `work` and shows the current thread in `state` meanwhile, if a run started it: for code outside of
/// the engine.
pub fn during<T>(state: State, work: impl FnOnce() -> T) -> T {
    /// Restores the earlier state and its time.
    struct RestoreActivity(Arc<Activity>, u64);
    impl Drop for RestoreActivity {
        fn drop(&mut self) {
            self.0.state.store(self.1, Relaxed);
        }
    }
    let own = OWN.with(|own| own.borrow().clone());
    let _before = own.map(|own| {
        let before = own.state.load(Relaxed);
        own.enter(state, Instant::now());
        RestoreActivity(own, before)
    });
    work()
}

/// What a thread was doing at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct ThreadState {
    /// Its name, as the system shows it; `consumer` is the caller's thread.
    pub name: Arc<str>,
    pub role: Role,
    pub state: State,
    pub doing: &'static str,
    pub since: Duration,
    /// The row that it works on or waits for; of the collator and the consumer the batch. If the collator
    /// waits for an example: the row of that example.
    pub item: Option<u64>,
    /// The number of an I/O thread's job, if it has one; the stream that the collator draws from.
    pub detail: Option<u64>,
    /// The row's shard, and the row in it.
    pub place: Option<(Arc<PathBuf>, u64)>,
}

/// The activities of all threads of a run: I/O threads, workers, the collator, the consumer.
#[derive(Debug)]
pub(crate) struct Activities {
    threads: Vec<Arc<Activity>>,
    pub(crate) n_readers: usize,
    pub(crate) words: TaskLabels,
}

impl Activities {
    pub(crate) fn new(n_readers: usize, n_workers: usize, words: TaskLabels) -> Self {
        let epoch = Instant::now();
        let one = |name: String, role| Arc::new(Activity::new(name, role, epoch));
        let readers = (0..n_readers).map(|n| match n {
            0 => one("forebay-io".into(), Role::Reader),
            n => one(format!("forebay-io-{n}"), Role::Reader),
        });
        let workers = (0..n_workers).map(|n| one(format!("forebay-worker-{n}"), Role::Worker));
        let rest = [("forebay-collator", Role::Collator), ("consumer", Role::Consumer)];
        let rest = rest.map(|(name, role)| one(name.into(), role));
        Self { threads: readers.chain(workers).chain(rest).collect(), n_readers, words }
    }

    pub(crate) fn reader(&self, n: usize) -> &Arc<Activity> {
        &self.threads[n]
    }

    pub(crate) fn worker(&self, n: usize) -> &Arc<Activity> {
        &self.threads[self.n_readers + n]
    }

    pub(crate) fn collator(&self) -> &Arc<Activity> {
        &self.threads[self.threads.len() - 2]
    }

    pub(crate) fn consumer(&self) -> &Arc<Activity> {
        &self.threads[self.threads.len() - 1]
    }

    pub(crate) fn look(&self) -> Vec<ThreadState> {
        let now = Instant::now();
        self.threads.iter().map(|thread| thread.look(now, &self.words)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::observe::meter::{Meter, Stopwatch, Total};
    use std::thread;

    const PAUSE: Duration = Duration::from_millis(2);

    #[test]
    fn states_have_their_numbers_and_names_of_their_own() {
        for (number, state) in State::ALL.into_iter().enumerate() {
            assert_eq!(state as usize, number);
        }
        let mut names = State::ALL.map(|state| state.name(&TaskLabels::DEFAULT));
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
    }

    #[test]
    fn a_thread_is_seen_from_outside() {
        let all = Activities::new(2, 1, TaskLabels::DEFAULT);
        let seen = |n: usize| all.look().swap_remove(n);
        assert_eq!(seen(1).doing, "starting");
        let worker = all.worker(0).clone();
        thread::scope(|scope| {
            scope.spawn(|| {
                let _ends = worker.begin();
                assert_eq!(seen(2).doing, "working");
                let mut watch = Stopwatch::start(&Meter::new("decode"), &Arc::default(), &worker);
                let total = Total::new("wait");
                watch.wait(State::Record, &total, || assert_eq!(seen(2).state, State::Record));
                worker.on(7);
                let began = seen(2).since;
                during(State::Python, || {
                    during(State::Rows, || assert_eq!(seen(2).item, Some(7)));
                    thread::sleep(PAUSE);
                    assert_eq!((seen(2).doing, &*seen(2).name), ("calling Python", "forebay-worker-0"));
                });
                assert_eq!(seen(2).doing, "working");
                assert!(seen(2).since >= began + PAUSE, "a call does not begin it anew");
            });
        });
        assert_eq!((seen(2).state, seen(2).item), (State::Ended, None));
    }

    #[test]
    fn slices_of_a_wait_are_one() {
        let all = Activities::new(1, 1, TaskLabels::DEFAULT);
        let (collator, total) = (all.collator(), Total::new("wait"));
        let mut watch = Stopwatch::start(&Meter::new("collate"), &Arc::default(), collator);
        let mut wait = |key| {
            watch.wait_on(State::Example, key, &total, || {
                thread::sleep(PAUSE);
                all.look().swap_remove(2).since
            })
        };
        let (first, second) = (wait([0, 4]), wait([0, 4]));
        assert!(second >= first + PAUSE, "{first:?} {second:?}");
        let begin = Instant::now();
        let other = wait([1, 4]);
        assert!(other <= begin.elapsed(), "{other:?}");
    }
}
