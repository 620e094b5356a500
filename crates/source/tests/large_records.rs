//! Records larger than all bytes allowed in flight: an allocator of this binary measures a run's memory, in
//! every order.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../../tests/patience/mod.rs"]
mod patience;
#[path = "../../engine/tests/toy/mod.rs"]
mod toy;

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use bytes::Bytes;
use forebay_base::{Error, ErrorKind, Result, error::Place, seed::mix};
use forebay_engine::{
    contract::{
        BatchSizes, BatchSlot, Collate, ExampleMaker, Kept, MemoryLimiter, Permit, ReadRecords, RowStore,
        SMALL_READ, Source, Task,
    },
    engine::{Engine, MixturePlan, Plan, Step},
    order::{Assignment, Order, Stop, WeightStage, WeightedRows},
};
use forebay_source::{
    PayloadSource, Positions, RawRecord, ReadRequest, Record, RowWindows, Selection, StoredPayload,
    WholeRecord,
};
use patience::until;
use toy::SOON;

/// Forwards to the system's allocator and counts the bytes that the process holds.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn add(bytes: usize) {
    PEAK.fetch_max(NOW.fetch_add(bytes, Relaxed) + bytes, Relaxed);
}

// SAFETY: every call is forwarded unchanged; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller's promises are the ones required here.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // Old and new block may exist at the same time.
        add(new_size);
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(block, layout, new_size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The meter covers the process: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

const MIB: usize = 1 << 20;
const ROWS: u64 = 60;
/// The largest record.
const LARGEST: usize = 24 * MIB;
/// Memory beside large records: small records, examples, and the threads' own.
const SLACK: usize = 6 * MIB;

/// Rows of which every other is large, and every seventh turns out to be bad after it is read.
#[derive(Default)]
struct Large {
    /// How the memory of a record is granted.
    memory: Memory,
    /// Reads so far.
    reads: AtomicU64,
}

/// The memory that a read needs.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
enum Memory {
    /// That of the record.
    #[default]
    OfRecord,
    /// That of a page with [`PAGE_ROWS`] rows, as of a compressed file. The reader keeps a page of rows that
    /// are read in order; a row that is read alone is copied out of it.
    OfPage {
        /// Whether a row that is read alone holds its page instead.
        is_slice: bool,
    },
}

const PAGE_ROWS: u64 = 10;
const PAGE: usize = 12 * MIB;

/// Bytes of row `row`.
fn size(row: u64) -> usize {
    match mix(row) % 4 {
        0 => 100,
        1 => 40_000,
        2 => SMALL_READ as usize + 1 + (mix(row) >> 8) as usize % (8 * MIB),
        _ => LARGEST,
    }
}

fn is_bad(row: u64) -> bool {
    row % 7 == 3
}

struct LargeReader {
    source: Arc<Large>,
    limiter: Option<Arc<dyn MemoryLimiter>>,
    /// The page that is kept, and its number.
    page: Option<(u64, Kept)>,
}

/// Memory with its permit.
struct Held(Vec<u8>, #[allow(dead_code, reason = "held")] Option<Permit>);

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl RowStore for Large {
    fn shard_rows(&self, _epoch: u64) -> Result<Vec<u64>> {
        Ok(vec![ROWS / 3; 3])
    }
    fn place(&self, row: u64) -> Place {
        Place::in_shard("large", row)
    }
    fn random_access(&self) -> bool {
        true
    }
    fn block_rows(&self, row: u64, _run: u64) -> u64 {
        1 + row % 5
    }
    fn most_blocks(&self) -> usize {
        if self.memory == Memory::OfRecord { 16 } else { 1 }
    }
}

impl Source for Large {
    type Reader = LargeReader;

    fn reader(self: &Arc<Self>) -> LargeReader {
        LargeReader { source: self.clone(), limiter: None, page: None }
    }
}

impl LargeReader {
    /// The permit of a row's memory, and the row's size.
    fn permit(&mut self, row: u64, run: u64) -> Result<(Option<Permit>, usize)> {
        let Memory::OfPage { is_slice } = self.source.memory else {
            let size = size(row);
            let limiter = self.limiter.as_ref().filter(|_| size as u64 > SMALL_READ);
            // More than is needed in the end.
            let permit = limiter.map(|limiter| limiter.admit((size + MIB) as u64)).transpose()?;
            permit.iter().for_each(|permit| permit.shrink(size as u64));
            return Ok((permit, size));
        };
        let size = PAGE / PAGE_ROWS as usize;
        let Some(limiter) = &self.limiter else { return Ok((None, size)) };
        let number = row / PAGE_ROWS;
        if let Some((kept, page)) = &self.page
            && *kept == number
        {
            limiter.mark_counted();
            return Ok((Some(page.permit().clone()), size));
        }
        if run == 1 {
            let permit = limiter.admit(PAGE as u64)?;
            if !is_slice {
                permit.shrink(size as u64);
            }
            return Ok((Some(permit), size));
        }
        self.page = None;
        let (_, page) = self.page.insert((number, limiter.keep(PAGE as u64)?));
        limiter.mark_counted();
        Ok((Some(page.permit().clone()), size))
    }
}

impl ReadRecords for LargeReader {
    type Payload = StoredPayload;
    type Request<'a> = dyn ReadRequest + 'a;

    fn set_limiter(&mut self, limiter: Arc<dyn MemoryLimiter>) {
        self.limiter = Some(limiter);
    }

    fn read(&mut self, row: u64, run: u64, _wants: &dyn ReadRequest) -> Result<RawRecord> {
        self.source.reads.fetch_add(1, Relaxed);
        let (permit, size) = self.permit(row, run)?;
        let mut bytes = vec![0; size];
        bytes[..8].copy_from_slice(&row.to_le_bytes());
        // Timing only.
        thread::sleep(Duration::from_micros(rand::random_range(0..400)));
        if is_bad(row) {
            return Err(Error::new(ErrorKind::Corrupt, "cannot be read"));
        }
        Ok(RawRecord::new(Bytes::from_owner(Held(bytes, permit)), Default::default()))
    }

    fn end_job(&mut self) {
        // Timing only.
        thread::sleep(Duration::from_micros(rand::random_range(0..400)));
    }
}

/// Examples are rows.
#[derive(Clone, Copy)]
struct Number;

impl Task for Number {
    type Payload = StoredPayload;
    type Request<'a> = dyn ReadRequest + 'a;
    type Maker = Self;
    type Collate = Numbers;
    fn request<R>(&self, assigned: &Assignment, read: impl FnOnce(&Self::Request<'_>) -> R) -> R {
        read(&WholeRecord { repeats: assigned.repeats })
    }
    fn maker(&self) -> Self {
        *self
    }
    fn collate(&self, batches: BatchSizes) -> Numbers {
        Numbers(vec![None; batches.size])
    }
}

impl ExampleMaker for Number {
    type Payload = StoredPayload;
    type Example = u64;

    fn run(&mut self, record: &Record) -> Result<u64> {
        // Timing only.
        thread::sleep(Duration::from_micros(rand::random_range(0..400)));
        let row = u64::from_le_bytes(record.payload.bytes[..8].try_into().unwrap());
        assert!([size(row), PAGE / PAGE_ROWS as usize].contains(&record.payload.bytes.len()));
        Ok(row)
    }
}

struct Numbers(Vec<Option<u64>>);

impl Collate for Numbers {
    type Example = u64;
    type Batch = Vec<u64>;

    fn put(&mut self, BatchSlot { row, .. }: BatchSlot, example: u64) -> Result<()> {
        self.0[row] = Some(example);
        Ok(())
    }

    fn take(&mut self, rows: usize) -> Vec<u64> {
        let n = self.0.len();
        std::mem::replace(&mut self.0, vec![None; n]).into_iter().take(rows).map(Option::unwrap).collect()
    }
}

/// Every order, and a mixture.
fn plans() -> Vec<Plan> {
    let orders = [Order::Sequential, Order::Window, Order::Global, Order::Era { length: 20 }];
    let mut plans: Vec<_> = orders.map(|order| Plan { order, ..toy::plan() }).into();
    let stages = vec![WeightStage { start: 0, weights: vec![0.5, 0.5] }];
    let starts = vec![0, ROWS / 3, ROWS];
    let mixture = Some(MixturePlan { stages, block: 16, stop: Stop::AllExhausted, starts });
    plans.push(Plan { order: Order::Global, mixture, ..toy::plan() });
    plans
}

/// Takes up to `n` batches; also returns the peak of the process's memory, less the memory before.
fn run<S: PayloadSource>(source: Arc<S>, plan: Plan, n: usize) -> (Vec<Vec<u64>>, usize) {
    let before = NOW.load(Relaxed);
    PEAK.store(before, Relaxed);
    let mut engine = Engine::new(source, Number, plan.clone()).unwrap();
    let mut batches = Vec::new();
    while batches.len() < n {
        match engine.next(SOON).unwrap() {
            Step::Batch(_, batch) => batches.push(batch),
            Step::End => break,
            Step::TimedOut => panic!("no batch within {SOON:?}: a deadlock; {plan:?}"),
        }
    }
    engine.close();
    drop(engine);
    (batches, PEAK.load(Relaxed) - before)
}

#[test]
fn bytes_in_flight_are_bounded_by_bytes_in_every_order() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for plan in plans() {
        let mut expected = None;
        for (n_workers, n_readers, channel_bytes) in
            [(1, 1, 8 * MIB), (2, 8, 8 * MIB), (8, 32, 8 * MIB), (1, 32, 64 * MIB), (8, 8, 64 * MIB)]
        {
            for infinite in [false, true] {
                let plan = Plan { n_workers, n_readers, channel_bytes, infinite, ..plan.clone() };
                let (batches, peak) = run(Arc::new(Large::default()), plan.clone(), 12);
                // Half of the bytes, plus one record, which is always granted.
                let most = channel_bytes.max(channel_bytes / 2 + LARGEST) + SLACK;
                assert!(peak <= most, "{} MiB of {}: {plan:?}", peak / MIB, most / MIB);
                assert!(peak > LARGEST, "nothing large was read: {plan:?}");
                if infinite {
                    assert!(batches.iter().flatten().all(|&row| !is_bad(row)), "{plan:?}");
                    assert_eq!(batches.iter().map(Vec::len).sum::<usize>(), 12 * plan.batching.most_rows());
                } else if plan.mixture.is_none() {
                    let mut rows = batches.concat();
                    rows.sort_unstable();
                    assert!(rows.into_iter().eq((0..ROWS).filter(|&row| !is_bad(row))), "{plan:?}");
                }
                let at = usize::from(infinite);
                let expected = &mut expected.get_or_insert([None, None])[at];
                assert!(*expected.get_or_insert_with(|| batches.clone()) == batches, "{plan:?}");
            }
        }
    }
}

/// Passes are abandoned while large records are read, and while threads wait for their turn or for bytes.
#[test]
fn an_abandoned_run_frees_its_memory() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let before = NOW.load(Relaxed);
    for (n, plan) in (0..6).flat_map(|n| plans().into_iter().map(move |plan| (n, plan))) {
        let plan = Plan { n_readers: 16, channel_bytes: 8 * MIB, infinite: true, ..plan };
        run(Arc::new(Large::default()), plan, n);
    }
    until("all memory is freed", || NOW.load(Relaxed) < before + SLACK);
}

/// How rows come several times.
#[derive(Debug, Clone, Copy)]
enum Again {
    /// By weights that give many rows several copies, and leave others out.
    Weights,
    /// As four windows of each recording, of which three are read together.
    Windows,
}

/// A plan in which rows come several times, and the source of that.
fn again(again: Again, memory: Memory, plan: Plan) -> (Arc<Selection<Large>>, Plan) {
    let source = Arc::new(Large { memory, ..Large::default() });
    match again {
        Again::Weights => {
            let weights: Vec<_> = (0..ROWS).map(|row| (mix(row) % 5) as f64).collect();
            let weights = Arc::new(WeightedRows::new(&weights, 3 * ROWS).unwrap());
            let plan = Plan { weights: Some(Arc::new([weights])), ..plan };
            (Arc::new(Selection::new(source, Positions::default())), plan)
        }
        Again::Windows => {
            let windows = (0..ROWS).map(|_| RowWindows { count: 4, together: 3 });
            let positions = Positions::default().with_windows(windows.collect::<Vec<_>>().into_iter());
            (Arc::new(Selection::new(source, positions.unwrap())), plan)
        }
    }
}

/// Each of these settings once had a thread that waited for memory that a reader kept for the next copy.
#[test]
fn what_is_kept_for_copies_is_not_waited_for() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let of_page = [false, true].map(|is_slice| Memory::OfPage { is_slice });
    for memory in [Memory::OfRecord].into_iter().chain(of_page) {
        for (kind, order) in [
            (Again::Weights, Order::Window),
            (Again::Weights, Order::Sequential),
            (Again::Windows, Order::Window),
            (Again::Windows, Order::Sequential),
        ] {
            let streams: &[u64] = if order == Order::Window { &[1, 2, 8] } else { &[1] };
            for &n_streams in streams {
                let n_streams = (order == Order::Window).then_some(n_streams);
                let base = Plan { order, infinite: true, n_streams, ..toy::plan() };
                let mut expected = None;
                for (n_readers, channel_bytes) in [(1, 8 * MIB), (8, 8 * MIB), (32, 64 * MIB), (2, 512 * MIB)]
                {
                    let plan = Plan { n_readers, channel_bytes, ..base.clone() };
                    let (source, plan) = again(kind, memory, plan);
                    let (batches, peak) = run(source, plan.clone(), 16);
                    if memory == Memory::OfRecord {
                        // What the readers of a single thread keep is half of the bytes at most, or one
                        // record. Of several threads one keeps a record, beside what is read ahead of turns.
                        let kept = match n_readers {
                            1 => LARGEST.max(channel_bytes / 2),
                            _ => LARGEST + channel_bytes / 2,
                        };
                        let most = channel_bytes.max(kept + LARGEST) + SLACK;
                        assert!(peak <= most, "{} MiB of {}: {plan:?}", peak / MIB, most / MIB);
                    }
                    let expected = expected.get_or_insert_with(|| batches.clone());
                    assert!(*expected == batches, "{kind:?} {memory:?} {plan:?}");
                }
            }
        }
    }
}

/// A row that comes several times in a row is read once by a single thread, and by several threads once for
/// each job.
#[test]
fn copies_of_a_row_share_a_read() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let weights = Arc::new(WeightedRows::new(&[1.0; ROWS as usize], 4 * ROWS).unwrap());
    for (n_readers, n_streams, order) in
        [(1, 1, Order::Sequential), (1, 1, Order::Window), (1, 4, Order::Window), (8, 1, Order::Sequential)]
    {
        let large = Arc::new(Large::default());
        let source = Arc::new(Selection::new(large.clone(), Positions::default()));
        let plan = Plan {
            weights: Some(Arc::new([weights.clone()])),
            order,
            n_readers,
            n_streams: (order == Order::Window).then_some(n_streams),
            channel_bytes: 512 * MIB,
            buffer_size: 1000,
            ..toy::plan()
        };
        let (batches, _) = run(source, plan, usize::MAX);
        let n: usize = batches.iter().map(Vec::len).sum();
        let reads = large.reads.load(Relaxed);
        let bad = 4 * (0..ROWS).filter(|&row| is_bad(row)).count() as u64;
        assert_eq!(n as u64, 4 * ROWS - bad);
        // Tickets that are read out of turn share no read: those of the first batches of a window.
        let most = if order == Order::Window { 3 * ROWS } else { ROWS + bad + n_streams };
        assert!(reads <= most, "{reads} reads with {n_readers} threads, {n_streams} streams, {order:?}");
    }
}
