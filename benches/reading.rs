//! Reading ahead: records a second from storage with latency, with and without a limited link, and from a
//! cold cache.
//!
//! `cargo bench --bench reading` prints Markdown tables; `-- latency` or `-- cold` only those. Workers touch
//! each record once and do no other work, so only reading is measured. The storage of the first tables waits
//! for each open and each read, and sends the data over one link that all reads share. With a link, the ideal
//! is the link's rate divided by the size of a record. The cache is made cold by dropping the files' pages
//! before each run.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a bench fails by panicking, and prints")]

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use arrow_array::{ArrayRef, BinaryArray, Int64Array, RecordBatch};
use arrow_ipc::writer::StreamWriter;
use forebay::{
    Result,
    contract::{BatchSizes, BatchSlot, Collate, ExampleMaker, Task},
    engine::{Engine, Plan, Step},
    order::{Assignment, Batching, Order},
    source::{ArrowSource, OpenFiles, ReadRequest, Record, SourceOptions, StoredPayload, WholeRecord},
    storage::{LocalFiles, MappedFiles, ReadAt, Storage, Version},
};

/// Bytes of a record: half a minute of OGG Vorbis.
const RECORD: usize = 400_000;
/// Records of a record batch, as `datasets` writes recordings.
const PER_BATCH: usize = 100;
const BATCHES: usize = 2;
const SHARDS: usize = 8;
/// The measured time of each cell, from its first batch on.
const LENGTH: Duration = Duration::from_millis(2000);
/// The longest time that the window gets to fill, where filling is not measured.
const WARM_UP: Duration = Duration::from_secs(4);
/// Bytes a second of the limited link.
const LINK: f64 = 200e6;

/// Local files over a simulated link.
#[derive(Debug)]
struct Far {
    latency: Duration,
    bytes_per_s: Option<f64>,
    /// When the link will have sent all data given to it.
    free: Mutex<Instant>,
    reads: AtomicU64,
}

impl Far {
    fn new(latency: Duration, bytes_per_s: Option<f64>) -> Arc<Self> {
        Arc::new(Self { latency, bytes_per_s, free: Mutex::new(Instant::now()), reads: AtomicU64::new(0) })
    }

    fn wait(&self, bytes: usize) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let mut arrived = Instant::now() + self.latency;
        if let Some(rate) = self.bytes_per_s {
            let mut free = self.free.lock().unwrap();
            arrived = arrived.max(*free) + Duration::from_secs_f64(bytes as f64 / rate);
            *free = arrived;
        }
        thread::sleep(arrived.saturating_duration_since(Instant::now()));
    }
}

#[derive(Debug)]
struct FarFiles(Arc<Far>);

struct FarFile(Box<dyn ReadAt>, Arc<Far>);

impl Storage for FarFiles {
    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadAt>> {
        self.0.wait(0);
        Ok(Box::new(FarFile(LocalFiles.open(path)?, Arc::clone(&self.0))))
    }
}

impl ReadAt for FarFile {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let n = self.0.read_at(buffer, at)?;
        self.1.wait(n);
        Ok(n)
    }

    fn version(&self) -> io::Result<Version> {
        self.0.version()
    }
}

/// Reads one byte of each page of a record.
#[derive(Debug, Clone, Copy)]
struct Touch;

impl ExampleMaker for Touch {
    type Payload = StoredPayload;
    type Example = u8;

    fn run(&mut self, record: &Record) -> Result<u8> {
        Ok(record.payload.bytes.iter().step_by(4096).fold(0, |sum, byte| sum ^ byte))
    }
}

impl Collate for Touch {
    type Example = u8;
    type Batch = usize;

    fn put(&mut self, _slot: BatchSlot, _example: u8) -> Result<()> {
        Ok(())
    }

    fn take(&mut self, rows: usize) -> usize {
        rows
    }
}

impl Task for Touch {
    type Payload = StoredPayload;
    type Request<'a> = dyn ReadRequest + 'a;
    type Maker = Self;
    type Collate = Self;

    fn request<R>(&self, assigned: &Assignment, read: impl FnOnce(&Self::Request<'_>) -> R) -> R {
        read(&WholeRecord { repeats: assigned.repeats })
    }
    fn maker(&self) -> Self {
        Self
    }

    fn collate(&self, _batches: BatchSizes) -> Self {
        Self
    }
}

fn write(folder: &Path) -> Vec<PathBuf> {
    let label: ArrayRef = Arc::new(Int64Array::from_iter_values(0..PER_BATCH as i64));
    (0..SHARDS)
        .map(|shard| {
            let recording = vec![shard as u8; RECORD];
            let audio: ArrayRef = Arc::new(BinaryArray::from_iter_values((0..PER_BATCH).map(|_| &recording)));
            let batch = RecordBatch::try_from_iter([("audio", audio), ("label", label.clone())]).unwrap();
            let path = folder.join(format!("{shard}.arrow"));
            let mut writer = StreamWriter::try_new(File::create(&path).unwrap(), &batch.schema()).unwrap();
            (0..BATCHES).for_each(|_| writer.write(&batch).unwrap());
            writer.finish().unwrap();
            // Dirty pages cannot be dropped.
            File::open(&path).unwrap().sync_all().unwrap();
            path
        })
        .collect()
}

fn plan(order: Order, n_readers: usize) -> Plan {
    Plan {
        seed: 1,
        order,
        window: 500,
        batching: Batching::Rows(64),
        infinite: true,
        buffer_size: 1000,
        n_workers: 2,
        n_readers,
        channel_size: 256,
        channel_bytes: 512 << 20,
        prefetch_batches: 3,
        ..Plan::default()
    }
}

/// The figures of one run.
struct Run {
    first_batch_s: f64,
    records_per_s: f64,
    reads_per_record: f64,
}

/// Takes batches. Measuring begins after `from` records, or after [`WARM_UP`], and ends after [`LENGTH`], or
/// after `most` records.
fn run(source: ArrowSource, plan: Plan, reads: &AtomicU64, from: u64, most: u64) -> Run {
    let mut engine = Engine::new(Arc::new(source), Touch, plan).unwrap();
    let next = |engine: &mut Engine<_, _>| match engine.next(Duration::from_secs(60)).unwrap() {
        Step::Batch(..) => {}
        _ => panic!("no batch within a minute"),
    };
    let begin = Instant::now();
    next(&mut engine);
    let first_batch_s = begin.elapsed().as_secs_f64();
    while engine.stats().records_read < from && begin.elapsed() < WARM_UP {
        next(&mut engine);
    }
    let (begin, read, n_reads) = (Instant::now(), engine.stats().records_read, reads.load(Ordering::Relaxed));
    while begin.elapsed() < LENGTH && engine.stats().records_read < most {
        next(&mut engine);
    }
    let records = (engine.stats().records_read - read) as f64;
    let reads_per_record = (reads.load(Ordering::Relaxed) - n_reads) as f64 / records;
    Run { first_batch_s, records_per_s: records / begin.elapsed().as_secs_f64(), reads_per_record }
}

fn open(storage: Arc<dyn Storage>, paths: &[PathBuf]) -> ArrowSource {
    ArrowSource::open_in(storage, paths, &SourceOptions::default()).unwrap()
}

/// The numbers after `name=` on the command line, or the default.
fn numbers(name: &str, default: &[usize]) -> Vec<usize> {
    let given = std::env::args()
        .find_map(|argument| argument.strip_prefix(name)?.strip_prefix('=').map(str::to_owned));
    given.map_or(default.to_vec(), |list| list.split(',').map(|n| n.parse().unwrap()).collect())
}

fn latency(paths: &[PathBuf]) {
    println!(
        "\n| order | n_readers | latency, ms | link, MB/s | records/s | MB/s | of the link | reads a record | first batch, s |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|---:|");
    for order in [Order::Window, Order::Global] {
        for n_readers in numbers("readers", &[8, 32]) {
            for link in [None, Some(LINK)] {
                for ms in numbers("ms", &[0, 1, 10, 50]) {
                    let far = Far::new(Duration::from_millis(ms as u64), link);
                    let source = open(Arc::new(FarFiles(far.clone())), paths);
                    let Run { first_batch_s, records_per_s, reads_per_record } =
                        run(source, plan(order, n_readers), &far.reads, 2000, u64::MAX);
                    let bytes = records_per_s * RECORD as f64;
                    let (link, share) = link.map_or(("".into(), "".into()), |rate| {
                        (format!("{:.0}", rate / 1e6), format!("{:.0} %", 100.0 * bytes / rate))
                    });
                    println!(
                        "| {} | {n_readers} | {ms} | {link} | {records_per_s:.0} | {:.0} | {share} | {reads_per_record:.2} | {first_batch_s:.2} |",
                        order.name(),
                        bytes / 1e6
                    );
                }
            }
        }
    }
}

/// Drops the pages of the files from the system's cache.
#[cfg(target_os = "linux")]
fn forget(paths: &[PathBuf]) {
    use std::os::fd::AsRawFd;
    for path in paths {
        let file = File::open(path).unwrap();
        // SAFETY: the descriptor is open; the call accesses no memory of this process.
        let code = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        assert_eq!(code, 0);
    }
}

#[cfg(not(target_os = "linux"))]
fn forget(_paths: &[PathBuf]) {}

fn main() {
    let folder = tempfile::tempdir().unwrap();
    let paths = write(folder.path());
    let only: Vec<String> =
        std::env::args().skip(1).filter(|argument| ["latency", "cold"].contains(&&**argument)).collect();
    let wanted = |name: &str| only.is_empty() || only.iter().any(|one| one == name);
    if wanted("latency") {
        latency(&paths);
    }
    if wanted("cold") {
        cold(&paths);
    }
}

fn cold(paths: &[PathBuf]) {
    println!("\n| order | cache | read by | n_readers | records/s | MB/s | first batch, s |");
    println!("|---|---|---|---:|---:|---:|---:|");
    let storages: [(&str, Arc<dyn Storage>); 2] =
        [("pread", Arc::new(LocalFiles)), ("mmap", Arc::new(MappedFiles))];
    for order in [Order::Window, Order::Global] {
        for is_cold in [true, false] {
            for n_readers in numbers("readers", &[1, 8, 32]) {
                for (name, storage) in &storages {
                    // Interleaved, and the median of three: the first run also fills the disk's own cache.
                    let mut runs: Vec<Run> = (0..3)
                        .map(|_| {
                            let source = open(storage.clone(), paths);
                            if is_cold {
                                forget(paths);
                            }
                            // No row is read twice.
                            let n_rows = source.n_rows();
                            run(source, plan(order, n_readers), &AtomicU64::new(0), 0, n_rows)
                        })
                        .collect();
                    runs.sort_by(|a, b| a.records_per_s.total_cmp(&b.records_per_s));
                    let Run { first_batch_s, records_per_s, .. } = runs[1];
                    println!(
                        "| {} | {} | {name} | {n_readers} | {records_per_s:.0} | {:.0} | {first_batch_s:.3} |",
                        order.name(),
                        if is_cold { "cold" } else { "warm" },
                        records_per_s * RECORD as f64 / 1e6
                    );
                }
            }
        }
    }
}
