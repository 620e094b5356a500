//! Read-ahead by several threads, and mapped files: the same batches, faults at their places, a prompt end,
//! bounded memory.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../../tests/patience/mod.rs"]
mod patience;
mod source_common;

use std::{
    fs::File,
    io,
    ops::Range,
    path::{Path, PathBuf},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use arrow_array::{ArrayRef, BinaryArray, Int64Array};
use forebay_base::{ErrorKind, Result};
use forebay_engine::{
    contract::{BatchSizes, BatchSlot, Collate, ExampleMaker, ReadRecords, Task},
    engine::{Engine, JOIN_TIMEOUT, Plan, Step},
    order::{Assignment, Batching, Order, WeightedRows},
};
use forebay_source::{
    ArrowSource, PayloadSource, Positions, ReadRequest, Record, Selection, SourceOptions, StoredPayload,
    WholeRecord, label_of,
};
use forebay_storage::{LocalFiles, MappedFiles, ReadAt, Storage, Version};
use patience::{undisturbed, until};
use source_common::*;

const SOON: Duration = Duration::from_secs(120);

/// Local files, mapped or not, with added latency, broken ranges, or stalls.
#[derive(Debug, Default)]
struct Far {
    mapped: bool,
    latency: Duration,
    /// A random addition to the latency, up to this much.
    jitter: Duration,
    /// Bytes of each shard that cannot be read.
    broken: Range<u64>,
    /// Reads beyond this offset wait until the gate is opened.
    stalls_from: Option<u64>,
    /// Reads of a MiB and more wait too.
    stalls_long: bool,
    is_open: Mutex<bool>,
    opened: Condvar,
    n_reads: AtomicU64,
    n_stalled: AtomicU64,
    /// The ranges read of each file, in the order of the reads.
    read: Mutex<Vec<(PathBuf, Range<u64>)>>,
    n_opened: AtomicU64,
    /// The ranges announced.
    announced: Mutex<Vec<(PathBuf, Range<u64>)>>,
}

#[derive(Debug, Clone)]
struct FarFiles(Arc<Far>);

struct FarFile(Box<dyn ReadAt>, Arc<Far>, PathBuf);

impl Storage for FarFiles {
    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadAt>> {
        thread::sleep(self.0.latency);
        self.0.n_opened.fetch_add(1, Relaxed);
        let file = if self.0.mapped { MappedFiles.open(path)? } else { LocalFiles.open(path)? };
        Ok(Box::new(FarFile(file, Arc::clone(&self.0), path.into())))
    }
}

impl FarFile {
    fn wait(&self, at: u64, len: usize) -> io::Result<()> {
        let far = &*self.1;
        far.n_reads.fetch_add(1, Relaxed);
        far.read.lock().unwrap().push((self.2.clone(), at..at + len as u64));
        thread::sleep(far.latency + far.jitter.mul_f64(rand::random()));
        if far.stalls_from.is_some_and(|from| at >= from) || far.stalls_long && len >= 1 << 20 {
            far.n_stalled.fetch_add(1, Relaxed);
            let mut is_open = far.is_open.lock().unwrap();
            while !*is_open {
                is_open = far.opened.wait(is_open).unwrap();
            }
        }
        if at < far.broken.end && far.broken.start < at + len as u64 {
            return Err(io::Error::from_raw_os_error(libc::EACCES));
        }
        Ok(())
    }
}

impl ReadAt for FarFile {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        self.wait(at, buffer.len())?;
        self.0.read_at(buffer, at)
    }

    fn version(&self) -> io::Result<Version> {
        self.0.version()
    }

    fn will_need(&self, at: u64, len: u64) {
        self.1.announced.lock().unwrap().push((self.2.clone(), at..at + len));
        self.0.will_need(at, len);
    }

    fn mapped(&self, at: u64, len: usize, needed: Range<usize>) -> Option<io::Result<bytes::Bytes>> {
        let mapped = self.0.mapped(at, len, needed.clone())?;
        let waited = self.wait(at + needed.start as u64, needed.len());
        Some(waited.and(mapped))
    }
}

/// Examples are the row and a checksum of its bytes.
#[derive(Debug, Clone, Default)]
struct Sum {
    slow: Duration,
    /// Rows in the order in which workers began with them.
    begun: Arc<Mutex<Vec<u64>>>,
}

struct Rows(Vec<Option<(u64, u64)>>);

impl Task for Sum {
    type Payload = StoredPayload;
    type Request<'a> = dyn ReadRequest + 'a;
    type Maker = Self;
    type Collate = Rows;

    fn request<R>(&self, assigned: &Assignment, read: impl FnOnce(&Self::Request<'_>) -> R) -> R {
        read(&WholeRecord { repeats: assigned.repeats })
    }
    fn maker(&self) -> Self {
        self.clone()
    }

    fn collate(&self, batches: BatchSizes) -> Rows {
        Rows(vec![None; batches.size])
    }
}

impl ExampleMaker for Sum {
    type Payload = StoredPayload;
    type Example = (u64, u64);

    fn run(&mut self, record: &Record) -> Result<(u64, u64)> {
        self.begun.lock().unwrap().push(record.index);
        thread::sleep(self.slow);
        assert_eq!(record.values[0].as_int(), Some((record.index % 1000) as i64));
        let sum = record.payload.bytes.iter().fold(record.payload.bytes.len() as u64, |sum, &byte| {
            sum.wrapping_mul(31).wrapping_add(byte.into())
        });
        Ok((record.index, sum))
    }
}

impl Collate for Rows {
    type Example = (u64, u64);
    type Batch = Vec<(u64, u64)>;

    fn put(&mut self, BatchSlot { row, .. }: BatchSlot, example: (u64, u64)) -> Result<()> {
        self.0[row] = Some(example);
        Ok(())
    }

    fn take(&mut self, rows: usize) -> Vec<(u64, u64)> {
        let n = self.0.len();
        std::mem::replace(&mut self.0, vec![None; n]).into_iter().take(rows).map(Option::unwrap).collect()
    }
}

/// A shard of `n` rows from `first` on, of `len` bytes or a little more, 100 to a record batch.
fn shard(path: &Path, first: usize, n: usize, len: usize) -> PathBuf {
    let batches: Vec<_> = (first..first + n)
        .collect::<Vec<_>>()
        .chunks(100)
        .map(|rows| {
            let recording = |&row: &usize| {
                let len = len + row * 7919 % (len / 2 + 1);
                (0..len).map(|k| ((k * (row + 1)) >> 3) as u8).collect::<Vec<_>>()
            };
            let audio: ArrayRef = Arc::new(BinaryArray::from_iter_values(rows.iter().map(recording)));
            let label: ArrayRef =
                Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| (row % 1000) as i64)));
            batch([("audio", audio), ("label", label)])
        })
        .collect();
    write(path, Format::default(), &batches);
    path.into()
}

fn plan(order: Order, n_readers: usize) -> Plan {
    Plan {
        seed: 7,
        order,
        window: if order == Order::Window { 60 } else { 1 },
        batching: Batching::Rows(16),
        buffer_size: 150,
        n_workers: 2,
        n_readers,
        channel_size: 16,
        channel_bytes: 4 << 20,
        prefetch_batches: 2,
        ..Plan::default()
    }
}

fn engine(far: &Arc<Far>, paths: &[PathBuf], plan: Plan) -> Engine<ArrowSource, Sum> {
    engine_of(far, paths, plan, Sum::default())
}

fn engine_of(far: &Arc<Far>, paths: &[PathBuf], plan: Plan, sum: Sum) -> Engine<ArrowSource, Sum> {
    Engine::new(source_of(far, paths), sum, plan).unwrap()
}

fn source_of(far: &Arc<Far>, paths: &[PathBuf]) -> Arc<ArrowSource> {
    let storage = Arc::new(FarFiles(far.clone()));
    let options = SourceOptions { threads: 1, ..SourceOptions::default() };
    Arc::new(ArrowSource::open_in(storage, paths, &options).unwrap())
}

fn next<S: PayloadSource>(engine: &mut Engine<S, Sum>) -> Result<Option<Vec<(u64, u64)>>> {
    match engine.next(SOON)? {
        Step::Batch(_, batch) => Ok(Some(batch)),
        Step::End => Ok(None),
        Step::TimedOut => panic!("no batch within {SOON:?}: a deadlock"),
    }
}

/// Shards of small and large rows, and a truncated one: 571 rows, of which the last ones are bad.
fn shards(folder: &Path) -> [PathBuf; 4] {
    let paths = [(0, 230, 9000), (230, 40, 300_000), (270, 1, 50), (271, 300, 20_000)]
        .map(|(first, n, len)| shard(&folder.join(format!("{first}.arrow")), first, n, len));
    let cut = File::options().write(true).open(&paths[3]).unwrap();
    cut.set_len(cut.metadata().unwrap().len() / 3 * 2).unwrap();
    paths
}

/// The rest of a pass, and its bad rows.
type Rest = (Vec<Vec<(u64, u64)>>, Vec<(ErrorKind, Option<u64>)>);

fn rest(engine: &mut Engine<ArrowSource, Sum>) -> Rest {
    let batches = std::iter::from_fn(|| next(engine).unwrap()).collect();
    (batches, engine.errors().map(|error| (error.kind, error.place.index)).collect())
}

#[test]
fn batches_do_not_depend_on_the_reading_threads() {
    let folder = tempfile::tempdir().unwrap();
    let paths = shards(folder.path());
    for order in [Order::Sequential, Order::Window, Order::Global] {
        let mut expected = None;
        for (n_readers, mapped, latency) in
            [(1, false, 0), (2, false, 1), (32, false, 0), (32, false, 2), (1, true, 0), (7, true, 1)]
        {
            let latency = Duration::from_millis(latency);
            let far = Arc::new(Far { mapped, latency, ..Far::default() });
            let got = rest(&mut engine(&far, &paths, plan(order, n_readers)));
            let (batches, bad) = &got;
            assert!(bad.len() > 50 && bad.iter().all(|(kind, _)| *kind == ErrorKind::Truncated), "{bad:?}");
            assert_eq!(batches.iter().map(Vec::len).sum::<usize>() + bad.len(), 571);
            assert!(
                *expected.get_or_insert_with(|| got.clone()) == got,
                "{order:?}, {n_readers} readers, mapped {mapped}"
            );
        }
    }
}

/// 15 passes, times `FOREBAY_SOAK`, each left at some batch and resumed.
#[test]
fn any_readers_with_any_bounds_and_latencies() {
    let soak: usize = std::env::var("FOREBAY_SOAK").map_or(1, |times| times.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let paths = shards(folder.path());
    let orders = [Order::Sequential, Order::Window, Order::Global];
    let near = Arc::new(Far::default());
    let expected = orders.map(|order| rest(&mut engine(&near, &paths, plan(order, 1))));
    for round in 0..15 * soak {
        let (order, (batches, bad)) = (orders[round % 3], &expected[round % 3]);
        let far = Arc::new(Far {
            mapped: rand::random(),
            jitter: Duration::from_micros(rand::random_range(0..4000)),
            ..Far::default()
        });
        // Bytes in flight from less than a record upwards.
        let plan = Plan {
            n_workers: rand::random_range(1..=4),
            channel_size: rand::random_range(1..=64),
            channel_bytes: 1 << rand::random_range(10..=22),
            prefetch_batches: rand::random_range(1..=4),
            buffer_size: rand::random_range(60..=300),
            ..plan(order, rand::random_range(1..=40))
        };
        let mut left = engine(&far, &paths, plan.clone());
        let at = rand::random_range(0..batches.len());
        for batch in &batches[..at] {
            assert_eq!(next(&mut left).unwrap().as_ref(), Some(batch), "{plan:?}, {far:?}");
        }
        let mut other = if rand::random() { engine(&far, &paths, plan.clone()) } else { left };
        other.seek(at as u64).unwrap();
        let (found, mut found_bad) = rest(&mut other);
        assert!(found == batches[at..], "{plan:?}, {far:?}, from {at}");
        // Bad rows of the first part were reported there.
        found_bad.retain(|row| !bad.contains(row));
        assert!(found_bad.is_empty(), "{found_bad:?}, {plan:?}, {far:?}");
        other.close();
    }
}

/// The bytes of row `row` of the only shard, by its neighbours' lengths.
fn place_of(path: &Path, row: u64) -> Range<u64> {
    let content = std::fs::read(path).unwrap();
    let source = open(&[path.into()]).unwrap();
    let bytes = source.reader().row(row, 1).unwrap().payload.bytes;
    let at = content.windows(bytes.len()).position(|window| window == bytes).unwrap() as u64;
    at..at + bytes.len() as u64
}

/// The bytes of each row of a shard.
fn places_of(path: &Path, n: usize) -> Vec<Range<u64>> {
    let content = std::fs::read(path).unwrap();
    let source = open(&[path.into()]).unwrap();
    let mut reader = source.reader();
    let mut from = 0;
    let place = |row| {
        let bytes = reader.row(row, 1).unwrap().payload.bytes;
        let at = from + content[from..].windows(bytes.len()).position(|window| window == bytes).unwrap();
        from = at + bytes.len();
        at as u64..from as u64
    };
    (0..n as u64).map(place).collect()
}

/// How a shard was read.
#[derive(Debug)]
struct Touched {
    /// For each row, how often it came, and how many reads touched it.
    rows: Vec<(u64, usize)>,
    /// Whether the reads are in storage order.
    is_ordered: bool,
}

/// How four shards of `n_rows` each are read in a pass over rows with weights; the first entry is the number
/// of the shard that was read first.
fn touched(
    order: Order,
    n_readers: usize,
    (n_rows, len): (usize, usize),
    weights: &[f64],
) -> (usize, Vec<Touched>) {
    let folder = tempfile::tempdir().unwrap();
    let paths: Vec<_> =
        (0..4).map(|n| shard(&folder.path().join(format!("{n}.arrow")), n * n_rows, n_rows, len)).collect();
    let far = Arc::new(Far::default());
    let weights = WeightedRows::new(weights, weights.len() as u64).unwrap();
    let window = if order == Order::Window { 10 } else { 1 };
    let plan = Plan { weights: Some(Arc::new([Arc::new(weights)])), window, ..plan(order, n_readers) };
    let source = Arc::new(Selection::new(source_of(&far, &paths), Positions::default()));
    let mut engine = Engine::new(source, Sum::default(), plan).unwrap();
    far.read.lock().unwrap().clear();
    let mut copies = vec![0; 4 * n_rows];
    while let Some(batch) = next(&mut engine).unwrap() {
        batch.iter().for_each(|&(row, _)| copies[row as usize] += 1);
    }
    let read = far.read.lock().unwrap();
    let first = paths.iter().position(|path| *path == read[0].0).unwrap();
    let of_shard = |(number, path): (usize, &PathBuf)| {
        let places = places_of(path, n_rows);
        // Other reads are those of offsets and labels.
        let is_recording = |range: &Range<u64>| places.iter().any(|place| place.start == range.start);
        let own: Vec<_> = read
            .iter()
            .filter(|(of, range)| of == path && is_recording(range))
            .map(|(_, range)| range)
            .collect();
        let touches = |place: &Range<u64>| {
            own.iter().filter(|range| range.start < place.end && place.start < range.end).count()
        };
        let rows =
            copies[number * n_rows..].iter().zip(&places).map(|(&n, place)| (n, touches(place))).collect();
        Touched { rows, is_ordered: own.is_sorted_by_key(|range| range.start) }
    };
    (first, paths.iter().enumerate().map(of_shard).collect())
}

/// Each shard's rows are read once, however often they come, and in storage order. Rows that do not come are
/// not read, not even between others. While a window fills, which is in its first shard here, rows that the
/// first batches need are read on their own too.
#[test]
fn rows_with_weights_are_read_once_and_in_order() {
    // Small rows, many to a block, and large ones, a dozen to a block.
    for (n_rows, len) in [(300, 6000), (60, 150_000)] {
        // A shard and runs of rows without a weight, single ones, and rows that come dozens of times.
        let weights: Vec<f64> = (0..4 * n_rows)
            .map(|row| match row {
                row if row / n_rows == 2 || (10..20).contains(&(row % 50)) || row % 11 == 3 => 0.0,
                row if row % 40 == 7 => 30.0,
                row => 0.5 + (row % 3) as f64,
            })
            .collect();
        let check = |order: Order, n_readers: usize| {
            let (first, shards) = touched(order, n_readers, (n_rows, len), &weights);
            let mut again = 0;
            for (number, Touched { rows, is_ordered }) in shards.iter().enumerate() {
                let fills = order == Order::Window && number == first;
                assert!(fills || n_readers > 1 || *is_ordered, "{order:?}, shard {number}");
                for (row, &(copies, reads)) in rows.iter().enumerate() {
                    assert!(weights[number * n_rows + row] > 0.0 || copies == 0);
                    assert_eq!(
                        reads > 0,
                        copies > 0,
                        "{order:?}, row {row} of shard {number}: {reads} reads"
                    );
                    again += if fills { 0 } else { reads.saturating_sub(1) };
                }
            }
            assert!(shards.iter().flat_map(|shard| &shard.rows).any(|&(copies, _)| copies > 10));
            again
        };
        for order in [Order::Window, Order::Sequential] {
            assert_eq!(check(order, 1), 0, "{order:?}");
            // On a busy machine a batch may wait for a row while all threads read ahead; then it is read
            // alone.
            undisturbed(|| check(order, 8), |&again| again == 0);
        }
    }
}

#[test]
fn an_error_read_ahead_is_raised_at_its_place_or_discarded() {
    let folder = tempfile::tempdir().unwrap();
    let paths = [shard(&folder.path().join("a.arrow"), 0, 300, 20_000)];
    let place = place_of(&paths[0], 170);
    for (n_readers, mapped) in [(1, false), (16, false), (16, true)] {
        let far = Arc::new(Far { mapped, broken: place.start + 5..place.start + 6, ..Far::default() });
        // Needed: first the batches before it, then the error, with its row.
        let mut needed = engine(&far, &paths, plan(Order::Sequential, n_readers));
        for first in (0..160).step_by(16) {
            assert_eq!(next(&mut needed).unwrap().unwrap()[0].0, first);
        }
        for _ in 0..2 {
            let error = next(&mut needed).unwrap_err();
            assert_eq!((error.kind, error.place.row), (ErrorKind::Io, Some(170)), "{error}");
        }
        // Not needed: read ahead while the first batches were taken, then discarded.
        let mut left = engine(&far, &paths, plan(Order::Sequential, n_readers));
        for _ in 0..8 {
            next(&mut left).unwrap().unwrap();
        }
        until("more than 171 records are read", || left.stats().records_read > 171);
        left.close();
    }
}

#[test]
fn a_stalled_read_does_not_delay_close() {
    let folder = tempfile::tempdir().unwrap();
    let paths = [shard(&folder.path().join("a.arrow"), 0, 400, 100_000)];
    let closing = |order| {
        let far = Arc::new(Far { stalls_from: Some(12 << 20), ..Far::default() });
        *far.is_open.lock().unwrap() = true; // for the headers
        let mut engine = engine(&far, &paths, plan(order, 16));
        *far.is_open.lock().unwrap() = false;
        if order == Order::Sequential {
            next(&mut engine).unwrap();
        }
        assert!(matches!(engine.next(Duration::from_millis(300)), Ok(Step::TimedOut | Step::Batch(..))));
        until("several reads are in flight", || far.n_stalled.load(Relaxed) >= 2);
        let begin = Instant::now();
        engine.close();
        let took = begin.elapsed();
        *far.is_open.lock().unwrap() = true;
        far.opened.notify_all();
        took
    };
    for order in [Order::Sequential, Order::Global] {
        undisturbed(|| closing(order), |&took| took < JOIN_TIMEOUT + Duration::from_millis(400));
    }
}

/// The engine is closed while the first parts of three large records are being read: no other part is
/// requested.
#[test]
fn a_long_read_stops_after_its_current_part() {
    let folder = tempfile::tempdir().unwrap();
    let paths = [shard(&folder.path().join("a.arrow"), 0, 3, 24 << 20)];
    for (order, mapped) in [(Order::Sequential, false), (Order::Global, false), (Order::Global, true)] {
        let far = Arc::new(Far { stalls_long: true, mapped, ..Far::default() });
        let plan = Plan { channel_bytes: 1 << 30, ..plan(order, 8) };
        let mut engine = engine(&far, &paths, plan);
        assert!(matches!(engine.next(Duration::from_millis(1)), Ok(Step::TimedOut)));
        until("all three are being read", || far.n_stalled.load(Relaxed) == 3);
        let n_reads = far.n_reads.load(Relaxed);
        let control = engine.control();
        control.close();
        *far.is_open.lock().unwrap() = true;
        far.opened.notify_all();
        engine.close();
        drop(engine);
        until("no thread has the source any more", || Arc::strong_count(&far) == 1);
        assert_eq!(far.n_reads.load(Relaxed), n_reads, "{order:?}, mapped {mapped}");
    }
}

/// Records larger than the limit of bytes in flight, read one at a time in any order.
#[test]
fn records_beyond_the_bound_come_one_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let paths = [shard(&folder.path().join("a.arrow"), 0, 12, 9 << 20)];
    for order in [Order::Sequential, Order::Window, Order::Global] {
        let far = Arc::new(Far::default());
        let plan = Plan { channel_bytes: 1 << 20, n_workers: 4, ..plan(order, 16) };
        let slow = Sum { slow: Duration::from_millis(2), ..Sum::default() };
        let mut engine = engine_of(&far, &paths, plan, slow);
        let most = Arc::new(AtomicU64::new(0));
        let (control, is_over) = (engine.control(), Arc::new(AtomicBool::new(false)));
        let watcher = thread::spawn({
            let (most, is_over) = (most.clone(), is_over.clone());
            move || {
                while !is_over.load(Relaxed) {
                    most.fetch_max(control.queues().read_bytes as u64, Relaxed);
                    thread::yield_now();
                }
            }
        });
        let (batches, bad) = rest(&mut engine);
        is_over.store(true, Relaxed);
        watcher.join().unwrap();
        assert_eq!((batches.concat().len(), bad.len()), (12, 0));
        // One record of at most 13.5 MiB, in a block of 16, and no other.
        assert!((9 << 20..=16 << 20).contains(&most.load(Relaxed)), "{order:?}: {most:?}");
    }
}

#[test]
fn what_is_read_ahead_is_bounded_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let paths = [shard(&folder.path().join("a.arrow"), 0, 2000, 100_000)];
    let far = Arc::new(Far::default());
    let plan = Plan { buffer_size: 5000, channel_size: 8, ..plan(Order::Sequential, 32) };
    let slow = Sum { slow: Duration::from_millis(2), ..Sum::default() };
    let mut engine = engine_of(&far, &paths, plan.clone(), slow);
    let mut most = 0;
    for _ in 0..30 {
        next(&mut engine).unwrap();
        let queues = engine.control().queues();
        assert!(queues.record_bytes <= plan.channel_bytes + 200_000);
        most = most.max(queues.read_bytes);
    }
    println!("{most} bytes in use at most");
    // 16 blocks of 4 MiB, and those of the records in the channel and in the workers, of 250 MB in all.
    assert!((1 << 20..=(16 + 4) * (4 << 20)).contains(&most), "{most}");
    engine.close();
    drop(engine);
}

#[test]
fn the_first_batch_is_read_by_many_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let paths: Vec<_> =
        (0..4).map(|n| shard(&folder.path().join(format!("{n}.arrow")), 500 * n, 500, 2000)).collect();
    let first = |order| {
        let far = Arc::new(Far { latency: Duration::from_millis(100), ..Far::default() });
        let plan = Plan { window: 1000, buffer_size: 1200, batching: Batching::Rows(64), ..plan(order, 32) };
        let mut engine = engine(&far, &paths, plan);
        let begin = Instant::now();
        assert_eq!(next(&mut engine).unwrap().unwrap().len(), 64);
        begin.elapsed()
    };
    for order in [Order::Window, Order::Global] {
        // Sequential reads would take at least 64 round trips, 6.4 s, and three times that with offsets and
        // labels.
        undisturbed(|| first(order), |&took| took < Duration::from_millis(3200));
    }
}

#[test]
fn a_late_record_of_the_first_batch_is_not_overtaken() {
    let folder = tempfile::tempdir().unwrap();
    let paths = [shard(&folder.path().join("a.arrow"), 0, 2000, 2000)];
    let far = Arc::new(Far { jitter: Duration::from_millis(100), ..Far::default() });
    // A single worker begins with records in the order of the channel.
    let plan =
        Plan { window: 1000, buffer_size: 1200, channel_size: 256, n_workers: 1, ..plan(Order::Window, 32) };
    let sum = Sum { slow: Duration::from_millis(20), ..Sum::default() };
    let mut engine = engine_of(&far, &paths, plan, sum.clone());
    let first = next(&mut engine).unwrap().unwrap();
    engine.close();
    // One of 32 threads reads the last of these 16 records while others could fill the channel with 256 later
    // ones.
    let begun = sum.begun.lock().unwrap();
    let place = |&(row, _): &(u64, _)| begun.iter().position(|&other| other == row).unwrap();
    let needed = 1 + first.iter().map(place).max().unwrap();
    assert!((16..=48).contains(&needed), "{needed}");
}

#[test]
fn a_record_alone_costs_one_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = shard(&folder.path().join("a.arrow"), 0, 200, 300_000);
    let far = Arc::new(Far::default());
    let source = source_of(&far, &[path]);
    let reads = |row: u64| {
        // Readers share the buffers that locate a row.
        let mut reader = source.reader();
        let before = far.n_reads.load(Relaxed);
        let record = reader.read(row, 1, &WholeRecord::ONCE).unwrap();
        assert_eq!(label_of(&record.values), row as i64);
        far.n_reads.load(Relaxed) - before
    };
    assert_eq!(reads(5), 3, "offsets, labels, and the record");
    assert_eq!(reads(77), 1);
    assert_eq!(reads(150), 3, "another record batch");
    assert_eq!([reads(10), reads(199)], [1, 1]);
}

#[test]
fn the_next_shard_is_announced_before_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let paths = [0, 1, 2].map(|n| shard(&folder.path().join(format!("{n}.arrow")), 60 * n, 60, 300_000));
    let far = Arc::new(Far::default());
    let (batches, bad) = rest(&mut engine(&far, &paths, plan(Order::Sequential, 4)));
    assert_eq!((batches.iter().map(Vec::len).sum::<usize>(), bad), (180, vec![]));
    // Once for its index and once for its rows: what is announced stays open.
    assert_eq!(far.n_opened.load(Relaxed), 6);

    let announced = far.announced.lock().unwrap();
    let mut bytes = 0;
    for path in &paths {
        let mut ranges: Vec<_> =
            announced.iter().filter(|(of, _)| of == path).map(|(_, range)| range).collect();
        ranges.sort_by_key(|range| range.start);
        let mut end = 0;
        for range in ranges {
            bytes += range.end.saturating_sub(range.start.max(end));
            end = end.max(range.end);
        }
        assert!(end <= path.metadata().unwrap().len());
    }
    // All but the first 16 MiB, and the headers.
    let total: u64 = paths.iter().map(|path| path.metadata().unwrap().len()).sum();
    let wanted = total - (16 << 20);
    assert!(bytes > wanted / 10 * 9 && bytes <= wanted + (64 << 10), "{bytes} of {wanted}");
}
