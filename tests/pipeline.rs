//! The engine on a toy source and a toy task: what the pipeline promises, without a file and without audio.

#![allow(clippy::unwrap_used, reason = "a failed test is what an unwrap means here")]

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use forebay::{
    Error, ErrorKind, Result,
    order::ShardOrder,
    pipeline::{Engine, Plan, SUBSTITUTES, Step},
    record::{Collate, Excerpt, RawRecord, ReadRecords, Record, Source, Stage, Task},
    seed,
};
use proptest::prelude::*;

const SOON: Duration = Duration::from_secs(20);

/// Shards of rows whose bytes are their own number.
struct Toy {
    shards: Vec<u64>,
    unreadable: fn(u64) -> Option<ErrorKind>,
    random_access: bool,
    reads: AtomicU64,
}

struct ToyReader(Arc<Toy>);

impl Source for Toy {
    type Reader = ToyReader;

    fn shard_rows(&self) -> Vec<u64> {
        self.shards.clone()
    }
    fn locate(&self, row: u64) -> (Arc<Path>, u64) {
        (Path::new("toy").into(), row)
    }
    fn random_access(&self) -> bool {
        self.random_access
    }
    fn reader(self: &Arc<Self>) -> ToyReader {
        ToyReader(self.clone())
    }
}

impl ReadRecords for ToyReader {
    fn read(&mut self, row: u64, _run: u64, _excerpt: Excerpt<'_>) -> Result<RawRecord> {
        self.0.reads.fetch_add(1, Ordering::Relaxed);
        match (self.0.unreadable)(row) {
            Some(kind) => Err(Error::new(kind, "cannot be read")),
            None => Ok(RawRecord { bytes: Bytes::copy_from_slice(&row.to_le_bytes()), label: row as i64 }),
        }
    }
}

/// Examples are (row, seed); every so often a worker dawdles, a record is bad, or a worker panics.
#[derive(Clone, Copy)]
struct Work {
    bad_in_100: u64,
    panics_at: Option<u64>,
    dawdles: bool,
    slow: Duration,
}

const QUICK: Work = Work { bad_in_100: 0, panics_at: None, dawdles: false, slow: Duration::ZERO };

struct ToyCollate(Vec<Option<(u64, u64)>>);

impl Task for Work {
    type Stage = Self;
    type Collate = ToyCollate;
    fn stage(&self) -> Self {
        *self
    }
    fn collate(&self, batch_size: usize) -> ToyCollate {
        ToyCollate(vec![None; batch_size])
    }
}

impl Stage for Work {
    type Example = (u64, u64);

    fn run(&mut self, record: &Record) -> Result<(u64, u64)> {
        let row = u64::from_le_bytes(record.bytes[..].try_into().unwrap());
        assert_eq!(record.index, row);
        assert_ne!(self.panics_at, Some(row), "asked for");
        thread::sleep(self.slow);
        // Timing only, and another one in each run.
        if self.dawdles && rand::random_ratio(1, 20) {
            thread::sleep(Duration::from_micros(rand::random_range(0..500)));
        }
        if seed::mix(row) % 100 < self.bad_in_100 {
            return Err(Error::new(ErrorKind::Corrupt, "a bad one"));
        }
        Ok((row, record.seed))
    }
}

impl Collate for ToyCollate {
    type Example = (u64, u64);
    type Batch = Vec<(u64, u64)>;
    fn put(&mut self, row: usize, example: (u64, u64)) -> Result<()> {
        assert!(self.0[row].replace(example).is_none(), "row {row} was written twice");
        Ok(())
    }
    fn take(&mut self, rows: usize) -> Vec<(u64, u64)> {
        let mut fresh = vec![None; self.0.len()];
        std::mem::swap(&mut self.0, &mut fresh);
        assert!(fresh[rows..].iter().all(Option::is_none));
        fresh.into_iter().take(rows).map(Option::unwrap).collect()
    }
}

fn plan() -> Plan {
    Plan {
        seed: 1,
        shard_order: ShardOrder::Shuffled,
        window: 20,
        batch_size: 8,
        infinite: false,
        buffer_size: 50,
        n_workers: 2,
        channel_size: 16,
        channel_bytes: 1 << 20,
    }
}

fn toy(shards: &[u64]) -> Toy {
    Toy { shards: shards.to_vec(), unreadable: |_| None, random_access: true, reads: AtomicU64::new(0) }
}

fn engine(plan: Plan, source: Toy, work: Work) -> Engine<Toy, Work> {
    Engine::new(Arc::new(source), work, plan).unwrap()
}

fn next(engine: &mut Engine<Toy, Work>) -> Option<Vec<(u64, u64)>> {
    match engine.next(SOON).unwrap() {
        Step::Batch(batch) => Some(batch),
        Step::End => None,
        Step::TimedOut => panic!("no batch within {SOON:?}: a deadlock"),
    }
}

fn batches(engine: &mut Engine<Toy, Work>, n: usize) -> Vec<Vec<(u64, u64)>> {
    std::iter::from_fn(|| next(engine)).take(n).collect()
}

fn rows(batches: &[Vec<(u64, u64)>]) -> Vec<u64> {
    batches.iter().flatten().map(|&(row, _)| row).collect()
}

/// Threads of this process whose name begins so, as the system lists them (15 characters).
fn threads_named(prefix: &str) -> usize {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return 0 };
    tasks
        .flatten()
        .filter(|task| {
            std::fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.starts_with(prefix))
        })
        .count()
}

#[test]
fn a_pass_in_order_gives_every_row_in_order() {
    let given = Plan { shard_order: ShardOrder::Given, window: 1, ..plan() };
    let mut engine = engine(given, toy(&[5, 0, 30, 9]), Work { dawdles: true, ..QUICK });
    let passed = batches(&mut engine, 100);
    assert_eq!(rows(&passed), (0..44).collect::<Vec<_>>());
    assert_eq!(passed.iter().map(Vec::len).collect::<Vec<_>>(), [8, 8, 8, 8, 8, 4]);
    assert_eq!(engine.batches_per_epoch(), 6);
    assert!(next(&mut engine).is_none(), "the end stays the end");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn nothing_but_the_plan_decides(
        seed: u64, window in 1u64..80, batch_size in 1usize..20, infinite: bool, bad in prop_oneof![Just(0u64), Just(5), Just(40)],
        shards in proptest::collection::vec(0u64..60, 1..6), random_access: bool,
    ) {
        prop_assume!(shards.iter().sum::<u64>() > 0);
        let base = Plan { seed, window, batch_size, infinite, ..plan() };
        let mut expected = None;
        for (n_workers, channel_size, buffer_size, dawdles) in
            [(1, 1, 1, false), (2, 256, window, true), (8, 3, 1000, true), (3, 256, 2 * window, false)]
        {
            let source = Toy { random_access, ..toy(&shards) };
            // An epoch with few good rows may use up its substitutes, which is told as an error of its own.
            let n_rows = shards.iter().sum::<u64>();
            let n_good = (0..n_rows).filter(|&row| seed::mix(row) % 100 >= bad).count() as u64;
            if infinite && 2 * n_good < n_rows {
                continue;
            }
            let plan = Plan { n_workers, channel_size, buffer_size, ..base.clone() };
            let mut engine = engine(plan, source, Work { bad_in_100: bad, dawdles, ..QUICK });
            let mut got = batches(&mut engine, 30);
            if !infinite {
                engine.rewind();
                got.extend(batches(&mut engine, 30));
            }
            let errors: Vec<_> = engine.errors().map(|e| e.place.index).collect();
            let got = (got, errors);
            prop_assert_eq!(expected.get_or_insert_with(|| got.clone()), &got);
        }
    }
}

#[test]
fn a_finite_pass_delivers_or_reports_each_row() {
    let mut engine = engine(plan(), toy(&[40, 60]), Work { bad_in_100: 5, ..QUICK });
    let passed = batches(&mut engine, 100);
    assert_eq!(passed.len() as u64, engine.batches_per_epoch());
    let mut seen = rows(&passed);
    let bad: Vec<u64> = engine.errors().map(|error| error.place.index.unwrap()).collect();
    assert!(!bad.is_empty());
    seen.extend(&bad);
    seen.sort_unstable();
    assert_eq!(seen, (0..100).collect::<Vec<_>>());
}

#[test]
fn substitutes_fill_the_places_of_the_bad_and_move_nobody() {
    let infinite = Plan { infinite: true, ..plan() };
    let clean = batches(&mut engine(infinite.clone(), toy(&[40, 60]), QUICK), 40);
    let mut patched = engine(infinite, toy(&[40, 60]), Work { bad_in_100: 10, ..QUICK });
    let mut replaced = 0;
    for (clean, patched) in clean.iter().zip(batches(&mut patched, 40)) {
        assert_eq!(patched.len(), 8);
        for (before, after) in clean.iter().zip(patched) {
            if seed::mix(before.0) % 100 < 10 {
                assert_ne!(*before, after);
                replaced += 1;
            } else {
                assert_eq!(*before, after);
            }
        }
    }
    assert_eq!(patched.stats().substitutes, replaced);
}

#[test]
fn when_all_are_bad_it_says_so() {
    let mut engine = engine(Plan { infinite: true, ..plan() }, toy(&[50]), Work { bad_in_100: 100, ..QUICK });
    let error = engine.next(SOON).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Exhausted);
    assert!(error.message.contains(&SUBSTITUTES.to_string()));
    assert!(engine.errors().count() > 0);
}

#[test]
fn seeds_and_epochs_differ_and_repeat() {
    let digest = |seed, epoch| {
        let mut engine = engine(Plan { seed, ..plan() }, toy(&[50, 50, 50]), QUICK);
        engine.set_epoch(epoch).unwrap();
        batches(&mut engine, 100)
    };
    let all: Vec<_> = [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(seed, epoch)| digest(seed, epoch)).into();
    for (i, one) in all.iter().enumerate() {
        assert!(all[..i].iter().all(|other| other != one));
    }
    assert_eq!(all[1], digest(0, 1));
}

#[test]
fn iter_begins_the_next_pass_or_the_same_one_anew() {
    let mut engine = engine(plan(), toy(&[100]), QUICK);
    let first = batches(&mut engine, 3);
    engine.rewind(); // left early
    assert_eq!(batches(&mut engine, 3), first);
    engine.rewind();
    let whole = batches(&mut engine, 100);
    assert_eq!((whole.len(), engine.epoch()), (13, 0));
    engine.rewind();
    assert_eq!(engine.epoch(), 1);
    let second = batches(&mut engine, 100);
    assert_ne!(second, whole);
    engine.set_epoch(0).unwrap();
    assert_eq!(batches(&mut engine, 100), whole);
}

#[test]
fn a_pass_is_over_with_its_last_batch() {
    for n in [96, 100] {
        let mut engine = engine(plan(), toy(&[n]), QUICK);
        let passed = engine.batches_per_epoch() as usize;
        assert_eq!(batches(&mut engine, passed).len(), passed); // the end itself is not asked for
        engine.rewind();
        assert_eq!(engine.epoch(), 1, "{n} rows");
    }
}

#[test]
fn a_batch_given_back_comes_again_or_leaves_the_pass_unfinished() {
    let mut engine = engine(plan(), toy(&[16]), QUICK);
    let (first, second) = (next(&mut engine).unwrap(), next(&mut engine).unwrap());
    engine.give_back(second.clone());
    assert_eq!(next(&mut engine), Some(second.clone()));
    assert_eq!(next(&mut engine), None);
    engine.give_back(second);
    engine.rewind();
    assert_eq!((engine.epoch(), next(&mut engine)), (0, Some(first)));
}

#[test]
fn iter_begins_anew_after_a_failure() {
    static BROKEN: AtomicUsize = AtomicUsize::new(1);
    let source =
        Toy { unreadable: |_| (BROKEN.load(Ordering::Relaxed) == 1).then_some(ErrorKind::Io), ..toy(&[100]) };
    let mut engine = engine(plan(), source, QUICK);
    assert_eq!(engine.next(SOON).unwrap_err().kind, ErrorKind::Io);
    BROKEN.store(0, Ordering::Relaxed);
    engine.rewind();
    assert_eq!(batches(&mut engine, 100).len(), 13);
}

#[test]
fn an_infinite_engine_counts_its_epochs() {
    let mut engine = engine(Plan { infinite: true, window: 1, ..plan() }, toy(&[20]), QUICK);
    batches(&mut engine, 5);
    assert_eq!(engine.epoch(), 2);
    assert_eq!(engine.set_epoch(3).unwrap_err().kind, ErrorKind::State);
    let before = next(&mut engine);
    engine.rewind();
    assert_ne!(next(&mut engine), before, "iter() goes on");
}

#[test]
fn the_first_batch_needs_its_own_records() {
    let wide =
        Plan { window: 8000, buffer_size: 10_000, batch_size: 64, infinite: true, n_workers: 8, ..plan() };
    for seed in 0..5 {
        let slow = Work { slow: Duration::from_micros(200), ..QUICK };
        let mut engine = engine(Plan { seed, ..wide.clone() }, toy(&[5000; 4]), slow);
        next(&mut engine);
        let decoded = engine.stats().decoded_at_first_batch;
        assert!((64..=3 * 64).contains(&decoded), "{decoded}");
    }
}

#[test]
fn what_is_in_flight_is_bounded() {
    let source = Arc::new(toy(&[100_000]));
    let mut engine =
        Engine::new(source.clone(), QUICK, Plan { infinite: true, window: 20, buffer_size: 100, ..plan() })
            .unwrap();
    next(&mut engine);
    thread::sleep(Duration::from_millis(100));
    assert!(source.reads.load(Ordering::Relaxed) <= 8 + 100);
}

#[test]
fn a_failing_disk_is_told_after_the_batches_before_it_and_for_ever() {
    let source = Toy { unreadable: |row| (row == 20).then_some(ErrorKind::Io), ..toy(&[100]) };
    let in_order = Plan { shard_order: ShardOrder::Given, window: 1, n_workers: 3, ..plan() };
    let mut engine = engine(in_order, source, Work { dawdles: true, ..QUICK });
    assert_eq!(rows(&batches(&mut engine, 2)), (0..16).collect::<Vec<_>>());
    for _ in 0..3 {
        let error = engine.next(SOON).unwrap_err();
        assert_eq!((error.kind, error.place.row), (ErrorKind::Io, Some(20)));
    }
}

#[test]
fn an_unreadable_row_is_a_bad_record() {
    let source = Toy { unreadable: |row| (row == 20).then_some(ErrorKind::Truncated), ..toy(&[100]) };
    let mut engine = engine(plan(), source, QUICK);
    assert_eq!(rows(&batches(&mut engine, 100)).len(), 99);
    assert_eq!(
        engine.errors().map(|e| (e.kind, e.place.index)).collect::<Vec<_>>(),
        [(ErrorKind::Truncated, Some(20))]
    );
}

#[test]
fn a_panic_reaches_the_consumer_and_the_next_engine_works() {
    let mut broken = engine(plan(), toy(&[100]), Work { panics_at: Some(33), ..QUICK });
    let error = loop {
        if let Err(error) = broken.next(SOON) {
            break error;
        }
    };
    assert_eq!(error.kind, ErrorKind::Panic);
    assert!(error.message.contains("asked for"), "{error}");
    drop(broken);
    assert_eq!(rows(&batches(&mut engine(plan(), toy(&[100]), QUICK), 100)).len(), 100);
}

#[test]
fn close_wakes_a_waiting_next() {
    static ENTERED: AtomicUsize = AtomicUsize::new(0);
    let mut waiting = engine(plan(), toy(&[100]), Work { slow: Duration::from_millis(400), ..QUICK });
    let control = waiting.control();
    let waiter = thread::spawn(move || {
        ENTERED.store(1, Ordering::Release);
        let outcome = waiting.next(SOON).map(|_| ()).map_err(|e| e.kind);
        (outcome, waiting)
    });
    while ENTERED.load(Ordering::Acquire) == 0 {
        thread::yield_now();
    }
    thread::sleep(Duration::from_millis(20));
    let start = Instant::now();
    control.close();
    let (outcome, mut closed) = waiter.join().unwrap();
    assert_eq!(outcome, Err(ErrorKind::Closed));
    assert!(start.elapsed() < Duration::from_millis(300));
    assert_eq!(closed.next(SOON).unwrap_err().kind, ErrorKind::Closed);
}

#[test]
fn no_way_out_leaves_a_thread_behind() {
    // Tests of this file run side by side; this one needs the list of threads for itself, so it runs in a process of its own.
    let alone = std::env::var_os("FOREBAY_ALONE").is_some();
    if !alone {
        let this = std::env::current_exe().unwrap();
        let out = std::process::Command::new(this)
            .args(["--exact", "no_way_out_leaves_a_thread_behind", "--nocapture"])
            .env("FOREBAY_ALONE", "1")
            .output()
            .unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        return;
    }
    let full = Plan { infinite: true, channel_size: 1, ..plan() };
    for way in 0..3 {
        let mut engine = engine(full.clone(), toy(&[1000]), Work { slow: Duration::from_millis(2), ..QUICK });
        next(&mut engine);
        assert_eq!(threads_named("forebay-"), 3);
        match way {
            0 => engine.close(),
            1 => drop(engine),
            _ => {
                engine.control().close();
                let _ = engine.next(SOON);
                engine.close();
            }
        }
        assert_eq!(threads_named("forebay-"), 0, "way {way}");
    }
    let mut finite = engine(plan(), toy(&[100]), QUICK);
    batches(&mut finite, 100);
    thread::sleep(Duration::from_millis(50));
    assert_eq!(threads_named("forebay-"), 0, "threads end with their pass");
}

#[test]
fn a_source_without_rows_is_refused() {
    let error = Engine::new(Arc::new(toy(&[0, 0])), QUICK, plan()).err().unwrap();
    assert_eq!(error.kind, ErrorKind::Config);
}
