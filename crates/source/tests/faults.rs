//! Faults of files under a running engine: transient ones are retried and counted, lasting ones are reported
//! at their place, and no batch changes.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../../tests/patience/mod.rs"]
mod patience;
mod source_common;

use std::{
    cell::Cell,
    collections::HashSet,
    fs, io,
    ops::Range,
    path::{Path, PathBuf},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use arrow_array::{ArrayRef, BinaryArray, RecordBatch, StringArray};
use forebay_base::{Error, ErrorKind, Result, seed};
use forebay_engine::{
    contract::{BatchSizes, BatchSlot, Collate, ExampleMaker, Task},
    engine::{Engine, JOIN_TIMEOUT, Plan, Policy, Step},
    order::{Assignment, Batching, Order},
};
use forebay_source::{
    ArrowSource, OpenFiles, ReadRequest, Record, SourceOptions, StoredPayload, WholeRecord,
};
use forebay_storage::{LocalFiles, ReadAt, Storage, Version};
use patience::{undisturbed, until};
use source_common::*;

const SOON: Duration = Duration::from_secs(120);
const ROWS: usize = 100;

/// Local files that fail by a plan: each read by chance, some ranges permanently; reads may also stall.
#[derive(Debug, Default)]
struct Faulty {
    /// The number of reads in 1000 that fail, each with one of the transient errors, up to three times in a
    /// row.
    in_1000: AtomicU64,
    /// Numbers the reads; the seed of the faults.
    n_reads: AtomicU64,
    n_faults: AtomicU64,
    /// Reads that touch a byte of this range always fail.
    broken: Mutex<Option<Range<u64>>>,
    stalls: AtomicBool,
    n_stalled: AtomicUsize,
    gate: Mutex<()>,
    opened: Condvar,
}

thread_local! {
    /// Consecutive failed reads; which reads these are depends on the threads that read at the same time.
    static IN_A_ROW: Cell<u32> = const { Cell::new(0) };
}

#[derive(Debug, Clone, Default)]
struct Disk(Arc<Faulty>);

struct FaultyFile(Box<dyn ReadAt>, Arc<Faulty>);

impl Storage for Disk {
    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadAt>> {
        Ok(Box::new(FaultyFile(LocalFiles.open(path)?, self.0.clone())))
    }
}

impl ReadAt for FaultyFile {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let Self(file, faulty) = self;
        if faulty.stalls.load(Relaxed) {
            faulty.n_stalled.fetch_add(1, Relaxed);
            let mut gate = faulty.gate.lock().unwrap();
            while faulty.stalls.load(Relaxed) {
                gate = faulty.opened.wait(gate).unwrap();
            }
            drop(gate);
            faulty.n_stalled.fetch_sub(1, Relaxed);
        }
        let range = at..at + buffer.len() as u64;
        let is_broken = |broken: &Range<u64>| broken.start < range.end && range.start < broken.end;
        if faulty.broken.lock().unwrap().as_ref().is_some_and(is_broken) {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        let n = faulty.n_reads.fetch_add(1, Relaxed);
        let in_a_row = IN_A_ROW.take();
        if in_a_row < 3 && seed::mix(n) % 1000 < faulty.in_1000.load(Relaxed) {
            IN_A_ROW.set(in_a_row + 1);
            faulty.n_faults.fetch_add(1, Relaxed);
            let codes = [libc::EIO, libc::ESTALE, libc::ETIMEDOUT, libc::EAGAIN];
            return Err(io::Error::from_raw_os_error(codes[(seed::mix(n) / 1000 % 4) as usize]));
        }
        file.read_at(buffer, at)
    }

    fn version(&self) -> io::Result<Version> {
        self.0.version()
    }
}

/// Examples are the row and a sum of its bytes.
#[derive(Clone, Copy)]
struct Sum;

impl Task for Sum {
    type Payload = StoredPayload;
    type Request<'a> = dyn ReadRequest + 'a;
    type Maker = Self;
    type Collate = Sums;
    fn request<R>(&self, assigned: &Assignment, read: impl FnOnce(&Self::Request<'_>) -> R) -> R {
        read(&WholeRecord { repeats: assigned.repeats })
    }
    fn maker(&self) -> Self {
        *self
    }
    fn collate(&self, batches: BatchSizes) -> Sums {
        Sums(vec![(0, 0); batches.size])
    }
}

impl ExampleMaker for Sum {
    type Payload = StoredPayload;
    type Example = (u64, u64);
    fn run(&mut self, record: &Record) -> Result<(u64, u64)> {
        Ok((record.index, record.payload.bytes.iter().map(|&byte| u64::from(byte)).sum()))
    }
}

struct Sums(Vec<(u64, u64)>);

impl Collate for Sums {
    type Example = (u64, u64);
    type Batch = Vec<(u64, u64)>;

    fn put(&mut self, BatchSlot { row, .. }: BatchSlot, example: (u64, u64)) -> Result<()> {
        self.0[row] = example;
        Ok(())
    }
    fn take(&mut self, rows: usize) -> Vec<(u64, u64)> {
        self.0[..rows].to_vec()
    }
}

/// Good rows of 500 bytes and more.
fn good_batch(range: Range<usize>) -> RecordBatch {
    let recordings = range.clone().map(|i| vec![i as u8; 500 + 7 * i]);
    let bytes: ArrayRef = Arc::new(BinaryArray::from_iter_values(recordings));
    let path: ArrayRef = Arc::new(StringArray::from_iter_values(range.map(|i| format!("{i}.wav"))));
    batch([("audio", audio_struct(bytes, path))])
}

fn shard(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    write(&path, Format::default(), &[good_batch(0..60), good_batch(60..ROWS)]);
    path
}

fn open_on(disk: &Disk, paths: &[PathBuf]) -> Arc<ArrowSource> {
    let options = SourceOptions { threads: 1, ..SourceOptions::default() };
    Arc::new(ArrowSource::open_in(Arc::new(disk.clone()), paths, &options).unwrap())
}

fn plan(order: Order, policy: Policy) -> Plan {
    Plan {
        seed: 5,
        order,
        window: if order == Order::Window { 30 } else { 1 },
        batching: Batching::Rows(8),
        policy,
        buffer_size: 40,
        n_workers: 2,
        n_readers: 4,
        channel_size: 8,
        channel_bytes: 1 << 20,
        prefetch_batches: 2,
        ..Plan::default()
    }
}

type Batch = Vec<(u64, u64)>;

/// Damages a shard.
type Fault = fn(&Path);

fn all(engine: &mut Engine<ArrowSource, Sum>) -> (Vec<Batch>, Option<Error>) {
    let mut batches = Vec::new();
    loop {
        match engine.next(SOON) {
            Ok(Step::Batch(_, batch)) => batches.push(batch),
            Ok(Step::End) => return (batches, None),
            Ok(Step::TimedOut) => panic!("no batch within {SOON:?}"),
            Err(error) => return (batches, Some(error)),
        }
    }
}

fn threads_named(prefix: &str) -> usize {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else { return 0 };
    let named = |task: &fs::DirEntry| {
        fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.starts_with(prefix))
    };
    tasks.flatten().filter(named).count()
}

/// Logged messages.
struct Log;

static LOGGED: Mutex<Vec<String>> = Mutex::new(Vec::new());

impl log::Log for Log {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }
    fn log(&self, record: &log::Record<'_>) {
        LOGGED.lock().unwrap().push(record.args().to_string());
    }
    fn flush(&self) {}
}

#[test]
fn transient_faults_change_no_batch_and_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let paths = [shard(folder.path(), "a.arrow"), shard(folder.path(), "b.arrow")];
    for order in [Order::Sequential, Order::Window, Order::Global] {
        let disk = Disk::default();
        let expected =
            all(&mut Engine::new(open_on(&disk, &paths), Sum, plan(order, Policy::default())).unwrap());
        assert!(expected.1.is_none());
        let source = open_on(&disk, &paths);
        disk.0.in_1000.store(60, Relaxed);
        let mut engine = Engine::new(source.clone(), Sum, plan(order, Policy::default())).unwrap();
        let (batches, error) = all(&mut engine);
        assert!(error.is_none(), "{error:?}");
        assert_eq!(batches, expected.0);
        let faults = disk.0.n_faults.load(Relaxed);
        println!("{order:?}: {faults} faults in {} reads", disk.0.n_reads.load(Relaxed));
        assert!(order != Order::Global || faults > 0);
        assert_eq!(source.traffic().retries.load(Relaxed), faults);
    }
}

#[test]
fn lasting_faults_are_raised_at_their_place_or_left_out_by_policy() {
    let folder = tempfile::tempdir().unwrap();
    let paths = [shard(folder.path(), "a.arrow"), shard(folder.path(), "b.arrow")];
    let size = fs::metadata(&paths[0]).unwrap().len();
    for n_workers in [1, 8] {
        let disk = Disk::default();
        let source = open_on(&disk, &paths);
        // Some bytes of a recording in both shards.
        *disk.0.broken.lock().unwrap() = Some(size / 4..size / 4 + 10);
        let with = |skip_io| {
            let policy = Policy { skip_io, ..Policy::default() };
            Engine::new(source.clone(), Sum, Plan { n_workers, ..plan(Order::Sequential, policy) }).unwrap()
        };
        let mut raising = with(false);
        let (before, error) = all(&mut raising);
        let error = error.unwrap();
        assert_eq!(error.kind, ErrorKind::Io);
        let first = error.place.index.unwrap();
        assert_eq!(before.len() as u64, first / 8, "all batches before it were delivered");
        assert_eq!(error.place.shard.as_deref(), Some(&paths[0]));
        assert!(error.place.byte.is_some_and(|byte| byte > 0), "{error}");
        let mut skipping = with(true);
        let (batches, error) = all(&mut skipping);
        assert!(error.is_none(), "{error:?}");
        let got: HashSet<u64> = batches.iter().flatten().map(|&(row, _)| row).collect();
        let lost: Vec<u64> = skipping.errors().map(|error| error.place.index.unwrap()).collect();
        assert!(lost.contains(&first) && lost.contains(&(first + ROWS as u64)), "{lost:?}");
        assert_eq!(got.len() + lost.len(), 2 * ROWS, "each row is delivered or reported");
        assert_eq!(batches.len(), 2 * ROWS / 8, "no position moved");
        assert_eq!(skipping.position().lost[&0].records, lost.len() as u64);
        assert_eq!(skipping.stats().records_lost, lost.len() as u64);
    }
}

#[test]
fn a_shard_that_is_cut_removed_or_replaced_under_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let faults: [(&str, Fault); 3] = [
        ("cut", |path| fs::File::options().write(true).open(path).unwrap().set_len(3000).unwrap()),
        ("removed", |path| fs::remove_file(path).unwrap()),
        ("replaced", |path| {
            let other = path.with_extension("new");
            write(&other, Format::default(), &[good_batch(5..20)]);
            fs::rename(other, path).unwrap();
        }),
    ];
    for (name, fault) in faults {
        // The shard is preceded by enough others not to be open yet, and followed by one.
        let mut paths: Vec<_> = (0..6).map(|n| shard(folder.path(), &format!("{name}{n}.arrow"))).collect();
        let source = open_on(&Disk::default(), &paths);
        let with = |skip_io| {
            let policy = Policy { skip_io, ..Policy::default() };
            Engine::new(source.clone(), Sum, Plan { n_readers: 1, ..plan(Order::Sequential, policy) })
                .unwrap()
        };
        let (mut raising, mut skipping) = (with(false), with(true));
        for engine in [&mut raising, &mut skipping] {
            assert!(matches!(engine.next(SOON).unwrap(), Step::Batch(0, _)));
        }
        fault(&paths[4]);
        let (before, error) = all(&mut raising);
        let error = error.unwrap();
        assert!(error.kind.is_io(), "{name}: {error}");
        assert_eq!((before.len() + 1) * 8, 4 * ROWS, "{name}");
        assert!(error.to_string().contains(&paths.swap_remove(4).display().to_string()), "{error}");
        let (after, error) = all(&mut skipping);
        assert!(error.is_none(), "{error:?}");
        // Batches of lost rows alone are left out.
        assert_eq!(after.len() + 1, (6 * ROWS).div_ceil(8) - ROWS / 8);
        assert_eq!(after.iter().flatten().count() + 8, 5 * ROWS, "{name}: the others are whole");
        assert_eq!(skipping.position().lost[&0].records, ROWS as u64);
    }
}

#[test]
fn a_stalled_read_is_detached_and_ends_with_its_call() {
    log::set_logger(&Log).unwrap();
    log::set_max_level(log::LevelFilter::Warn);
    let folder = tempfile::tempdir().unwrap();
    let paths = [shard(folder.path(), "a.arrow")];
    let [others, other_workers] = ["forebay-io", "forebay-worker"].map(threads_named);
    let trial = || {
        let disk = Disk::default();
        let source = open_on(&disk, &paths);
        disk.0.stalls.store(true, Relaxed);
        let mut engine = Engine::new(source, Sum, plan(Order::Global, Policy::default())).unwrap();
        assert!(matches!(engine.next(Duration::from_millis(100)), Ok(Step::TimedOut)));
        until("a read stalls", || disk.0.n_stalled.load(Relaxed) > 0);
        let begin = Instant::now();
        engine.close();
        let took = begin.elapsed();
        assert!(disk.0.n_stalled.load(Relaxed) > 0, "it was detached, not waited for");
        let logged = std::mem::take(&mut *LOGGED.lock().unwrap());
        assert!(logged.iter().any(|message| message.contains("forebay-io")), "{logged:?}");
        // Workers do not wait for the stalled read.
        until("workers end with their loader", || threads_named("forebay-worker") <= other_workers);
        disk.0.stalls.store(false, Relaxed);
        disk.0.opened.notify_all();
        let begin = Instant::now();
        // Parallel tests have I/O threads of their own, which end.
        while threads_named("forebay-io") > others || disk.0.n_stalled.load(Relaxed) > 0 {
            assert!(begin.elapsed() < SOON, "the thread ends when its call does");
            disk.0.opened.notify_all();
            thread::sleep(Duration::from_millis(1));
        }
        took
    };
    for _ in 0..4 {
        trial();
    }
    undisturbed(trial, |&took| took < JOIN_TIMEOUT + Duration::from_millis(400));
}
