//! The guarantees of the engine, on a toy source and a toy task, without files or audio.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../../tests/patience/mod.rs"]
mod patience;
mod toy;

use std::{
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use bytes::Bytes;
use forebay_base::{ErrorKind, Result, error::Place, seed};
use forebay_engine::{
    contract::{BatchSizes, BatchSlot, Collate, RawRecord, ReadRecords, RowStore, Source, Task},
    engine::{Auto, Delivered, Engine, MAX_EPOCH, Plan, Position, SUBSTITUTES, Step},
    order::{Assignment, Batching, Order},
};
use patience::{undisturbed, until};
use proptest::prelude::*;
use toy::{QUICK, SOON, Toy, Work, batches, engine, next, plan, rows, toy};

/// The number of this process's threads whose listed names (15 characters) begin with `prefix`.
fn threads_named(prefix: &str) -> usize {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return 0 };
    tasks
        .flatten()
        .filter(|task| {
            std::fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.starts_with(prefix))
        })
        .count()
}

/// Tests of this file run in parallel. A test that needs the list of threads for itself runs again in a
/// process of its own. Returns whether this is that process; otherwise that process has run the test.
fn alone(test: &str) -> bool {
    if std::env::var_os("FOREBAY_ALONE").is_some() {
        return true;
    }
    let this = std::env::current_exe().unwrap();
    let out = std::process::Command::new(this)
        .args(["--exact", test, "--nocapture"])
        .env("FOREBAY_ALONE", "1")
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    false
}

#[test]
fn a_pass_in_order_gives_every_row_in_order() {
    let given = Plan { order: Order::Sequential, ..plan() };
    let mut engine = engine(given, toy(&[5, 0, 30, 9]), Work { dawdles: true, ..QUICK });
    let passed = batches(&mut engine, 100);
    assert_eq!(rows(&passed), (0..44).collect::<Vec<_>>());
    assert_eq!(passed.iter().map(Vec::len).collect::<Vec<_>>(), [8, 8, 8, 8, 8, 4]);
    assert_eq!(engine.batches_per_epoch(), 6);
    assert!(next(&mut engine).is_none(), "the end is permanent");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn batches_depend_on_the_plan_alone(
        seed: u64, window in 1u64..80, batch_size in 1usize..20, infinite: bool, bad in prop_oneof![Just(0u64), Just(5), Just(40)],
        shards in proptest::collection::vec(0u64..60, 1..6), random_access: bool,
    ) {
        prop_assume!(shards.iter().sum::<u64>() > 0);
        let base = Plan { seed, window, batching: Batching::Rows(batch_size), infinite, ..plan() };
        let mut expected = None;
        for (n_workers, channel_size, buffer_size, dawdles) in
            [(1, 1, 1, false), (2, 256, window, true), (8, 3, 1000, true), (3, 256, 2 * window, false)]
        {
            let source = Toy { random_access, ..toy(&shards) };
            let auto = Auto { workers: n_workers == 8, prefetch: n_workers > 2 };
            let plan = Plan { n_workers, channel_size, buffer_size, prefetch_batches: n_workers, auto, ..base.clone() };
            let mut engine = engine(plan, source, Work { bad_in_100: bad, dawdles, ..QUICK });
            let (mut got, mut ended) = (Vec::new(), None);
            for _ in 0..30 {
                match engine.next(SOON) {
                    Ok(Step::Batch(_, batch)) => got.push(batch),
                    Ok(Step::End) => break,
                    Ok(Step::TimedOut) => panic!("no batch within {SOON:?}: a deadlock"),
                    // An epoch with few good rows may run out of substitutes: at the same one, in each run.
                    // A pass may have no good row.
                    Err(error) => {
                        let kind = if infinite { ErrorKind::Exhausted } else { ErrorKind::TooMany };
                        prop_assert!(bad > 0 && error.kind == kind, "{}", error);
                        prop_assert!(infinite || engine.stats().delivered.records_good == 0);
                        ended = Some(error.to_string());
                        break;
                    }
                }
            }
            if !infinite && ended.is_none() {
                engine.rewind().unwrap();
                got.extend(batches(&mut engine, 30));
            }
            let errors: Vec<_> = engine.errors().map(|e| e.place.index).collect();
            let delivered = engine.stats().delivered;
            prop_assert_eq!(delivered.batches, got.len() as u64);
            prop_assert_eq!(delivered.examples, rows(&got).len() as u64);
            let got = (got, errors, delivered, ended);
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
fn substitutes_fill_the_places_of_bad_records_and_move_no_others() {
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
    let Delivered { batches, examples, substitutes, records_failed, .. } = patched.stats().delivered;
    assert_eq!((batches, examples, substitutes), (40, 320, replaced));
    assert!(records_failed >= replaced, "bad substitutes are replaced too: {records_failed} of {replaced}");
}

#[test]
fn an_error_reports_that_all_records_are_bad() {
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
fn iter_begins_the_next_pass() {
    let mut engine = engine(plan(), toy(&[100]), QUICK);
    let passes: Vec<_> = (0..4)
        .map(|epoch| {
            engine.rewind().unwrap();
            assert_eq!(engine.epoch(), epoch);
            batches(&mut engine, 100)
        })
        .collect();
    assert!(passes.iter().all(|pass| pass.len() == 13));
    assert_ne!(passes[0], passes[1]);
    engine.set_epoch(0).unwrap();
    assert_eq!(batches(&mut engine, 100), passes[0]);
    // Passes that are left early.
    engine.set_epoch(0).unwrap();
    for (epoch, whole) in (0..).zip(&passes) {
        engine.rewind().unwrap();
        engine.rewind().unwrap(); // no batch was taken, so no pass is left out
        assert_eq!(batches(&mut engine, 3), whole[..3]);
        let Position { epoch: at, batch, .. } = engine.position();
        assert_eq!((at, batch), (epoch, 3));
    }
}

#[test]
fn iter_stays_where_no_batch_was_taken() {
    let mut engine = engine(plan(), toy(&[100]), QUICK);
    let begin = engine.position();
    let whole = batches(&mut engine, 100);
    let at = |batch| Position { batch, ..begin.clone() };
    for batch in [0, 5, 12] {
        let rest = &whole[batch as usize..];
        engine.restore(at(batch)).unwrap();
        engine.rewind().unwrap();
        assert_eq!(batches(&mut engine, 100), rest, "restored");
        engine.set_epoch(0).unwrap();
        engine.seek(batch).unwrap();
        engine.rewind().unwrap();
        assert_eq!(batches(&mut engine, 1), rest[..1], "sought");
        // Nor after the only batch that was taken is put back, or the first ones are skipped.
        engine.take_back();
        engine.rewind().unwrap();
        assert_eq!(batches(&mut engine, 100), rest, "put back");
        engine.set_epoch(0).unwrap();
        engine.skip(std::slice::from_ref(&(0..batch))).unwrap();
        engine.fetch(SOON).unwrap();
        engine.rewind().unwrap();
        assert_eq!(batches(&mut engine, 100), rest, "skipped");
        // After a whole pass the next one begins.
        engine.rewind().unwrap();
        assert_eq!((engine.epoch(), engine.batch()), (1, 0));
    }
}

#[test]
fn a_pass_is_over_with_its_last_batch() {
    for n in [96, 100] {
        let mut engine = engine(plan(), toy(&[n]), QUICK);
        let passed = engine.batches_per_epoch() as usize;
        assert_eq!(batches(&mut engine, passed).len(), passed); // without a request for the end
        engine.rewind().unwrap();
        assert_eq!(engine.epoch(), 1, "{n} rows");
    }
}

#[test]
fn iter_stays_after_a_failure_of_the_first_batch() {
    static BROKEN: AtomicUsize = AtomicUsize::new(1);
    let source =
        Toy { unreadable: |_| (BROKEN.load(Ordering::Relaxed) == 1).then_some(ErrorKind::Io), ..toy(&[100]) };
    let mut engine = engine(plan(), source, QUICK);
    assert_eq!(engine.next(SOON).unwrap_err().kind, ErrorKind::Io);
    BROKEN.store(0, Ordering::Relaxed);
    engine.rewind().unwrap();
    assert_eq!((batches(&mut engine, 100).len(), engine.epoch()), (13, 0));
}

#[test]
fn iter_begins_the_next_pass_after_a_failure_of_another_batch() {
    let source = Toy { unreadable: |row| (row == 90).then_some(ErrorKind::Io), ..toy(&[100]) };
    let mut engine = engine(Plan { order: Order::Sequential, ..plan() }, source, QUICK);
    assert_eq!(batches(&mut engine, 11).len(), 11);
    assert_eq!(engine.next(SOON).unwrap_err().kind, ErrorKind::Io);
    assert_eq!((engine.position().epoch, engine.position().batch), (0, 11));
    engine.rewind().unwrap();
    assert_eq!((engine.epoch(), engine.batch()), (1, 0));
    assert_eq!(batches(&mut engine, 1).len(), 1);
}

#[test]
fn a_pass_ends_where_the_data_end() {
    let source = Toy { unreadable: |row| (row >= 21).then_some(ErrorKind::PastEnd), ..toy(&[1 << 40]) };
    let plan = Plan { order: Order::Sequential, batching: Batching::Rows(1), ..plan() };
    let mut engine = engine(plan, source, QUICK);
    let first = batches(&mut engine, 100);
    assert_eq!(rows(&first), (0..21).collect::<Vec<_>>());
    assert_eq!((engine.batch(), engine.position().epoch, engine.position().batch), (21, 1, 0));
    assert!(next(&mut engine).is_none());
    let stats = engine.stats();
    assert_eq!((stats.batches, stats.delivered.batches, stats.records_failed), (21, 21, 0));
    // The pass is over: it is no longer the current one where no batch was taken.
    engine.set_epoch(0).unwrap();
    assert_eq!(batches(&mut engine, 100), first);
    engine.rewind().unwrap();
    assert_eq!(engine.epoch(), 1);
    // A position past the end is at the end.
    engine.seek(30).unwrap();
    assert!(next(&mut engine).is_none());
    assert_eq!((engine.position().epoch, engine.position().batch), (2, 0));
}

#[test]
fn an_infinite_engine_counts_its_epochs() {
    let mut engine = engine(Plan { infinite: true, window: 1, ..plan() }, toy(&[20]), QUICK);
    batches(&mut engine, 5);
    assert_eq!(engine.epoch(), 2);
    assert_eq!(engine.set_epoch(3).unwrap_err().kind, ErrorKind::State);
    let before = next(&mut engine);
    engine.rewind().unwrap();
    assert_ne!(next(&mut engine), before, "iter() continues");
}

#[test]
fn the_last_epochs_do_not_overflow() {
    let mut engine = engine(plan(), toy(&[20, 10]), QUICK);
    for epoch in [MAX_EPOCH + 1, u64::MAX] {
        let error = engine.set_epoch(epoch).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Config);
        assert!(error.message.contains(&format!("epoch is {epoch}, must be 0 to {MAX_EPOCH}")), "{error}");
    }
    engine.set_epoch(MAX_EPOCH).unwrap();
    for epoch in [MAX_EPOCH, MAX_EPOCH + 1] {
        engine.rewind().unwrap();
        assert_eq!(engine.epoch(), epoch);
        let mut all = rows(&batches(&mut engine, 9));
        all.sort_unstable();
        assert_eq!(all, (0..30).collect::<Vec<_>>());
    }
}

#[test]
fn the_last_batches_do_not_overflow() {
    for order in [Order::Sequential, Order::Window, Order::Global, Order::Era { length: 7 }] {
        let plan = Plan { infinite: true, order, ..plan() };
        let farthest = MAX_EPOCH / plan.batching.most_rows() as u64;
        let mut engine = engine(plan, toy(&[20, 10]), QUICK);
        for batch in [farthest + 1, u64::MAX] {
            assert_eq!(engine.seek(batch).unwrap_err().kind, ErrorKind::Config);
            assert_eq!(engine.replay(batch).err().unwrap().kind, ErrorKind::Config);
            let position = Position { batch, ..engine.position() };
            assert_eq!(engine.restore(position).unwrap_err().kind, ErrorKind::State);
        }
        let position = Position { epoch: u64::MAX, ..engine.position() };
        assert_eq!(engine.restore(position).unwrap_err().kind, ErrorKind::State);
        engine.seek(farthest).unwrap();
        let planned = engine.upcoming().unwrap().rows(24, || true).unwrap().unwrap();
        let got = rows(&batches(&mut engine, 3));
        assert!(planned.iter().zip(got).all(|(&planned, got)| planned as u64 == got));
        let position = Position { batch: farthest, ..engine.position() };
        engine.restore(position).unwrap();
        assert_eq!(batches(&mut engine, 2).len(), 2);
    }
}

#[test]
fn the_first_batch_needs_its_own_records() {
    // In the order in which the only I/O thread sends them.
    static READ: Mutex<Vec<u64>> = Mutex::new(Vec::new());
    let noting = |row| {
        READ.lock().unwrap().push(row);
        None
    };
    let wide = Plan {
        window: 8000,
        buffer_size: 10_000,
        batching: Batching::Rows(64),
        infinite: true,
        n_workers: 8,
        ..plan()
    };
    for seed in 0..5 {
        READ.lock().unwrap().clear();
        let slow = Work { slow: Duration::from_micros(200), ..QUICK };
        let source = Toy { unreadable: noting, ..toy(&[5000; 4]) };
        let mut engine = engine(Plan { seed, ..wide.clone() }, source, slow);
        let first = rows(&[next(&mut engine).unwrap()]);
        assert!(engine.stats().decoded_at_first_batch >= 64);
        drop(engine);
        let read = READ.lock().unwrap();
        let needed =
            1 + first.iter().map(|row| read.iter().position(|other| other == row).unwrap()).max().unwrap();
        assert!((64..=3 * 64).contains(&needed), "{needed}");
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
    // The batch handed out, those that are ready, and the credit beyond them.
    assert!(source.reads.load(Ordering::Relaxed) <= 8 + 2 * 8 + 100);
}

#[test]
fn an_io_error_is_raised_after_the_earlier_batches_and_permanently() {
    let source = Toy { unreadable: |row| (row == 20).then_some(ErrorKind::Io), ..toy(&[100]) };
    let in_order = Plan { order: Order::Sequential, n_workers: 3, ..plan() };
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

/// The part of a [`Breaking`] source or task that panics.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Part {
    Read,
    ExampleMaker,
    Run,
    Put,
    Take,
}

/// The toy source and task with one part that panics: at row 33, the second time, or at once.
#[derive(Clone)]
struct Breaking(Part, Arc<Toy>);

struct BreakingReader(Part, <Toy as Source>::Reader);
struct BreakingCollate(Part, <Work as Task>::Collate, usize);

impl RowStore for Breaking {
    fn shard_rows(&self, epoch: u64) -> Result<Vec<u64>> {
        self.1.shard_rows(epoch)
    }
    fn place(&self, row: u64) -> Place {
        self.1.place(row)
    }
    fn random_access(&self) -> bool {
        self.1.random_access()
    }
}

impl Source for Breaking {
    type Reader = BreakingReader;

    fn reader(self: &Arc<Self>) -> BreakingReader {
        BreakingReader(self.0, self.1.reader())
    }
}

impl ReadRecords for BreakingReader {
    type Payload = Bytes;
    type Request<'a> = ();

    fn read(&mut self, row: u64, run: u64, request: &()) -> Result<RawRecord<Bytes>> {
        assert!(self.0 != Part::Read || row != 33, "asked for");
        self.1.read(row, run, request)
    }
}

impl Task for Breaking {
    type Payload = Bytes;
    type Request<'a> = ();
    type Maker = Work;
    type Collate = BreakingCollate;

    fn request<R>(&self, _: &Assignment, read: impl FnOnce(&()) -> R) -> R {
        read(&())
    }
    fn maker(&self) -> Work {
        assert!(self.0 != Part::ExampleMaker, "asked for");
        Work { panics_at: (self.0 == Part::Run).then_some(33), ..QUICK }
    }
    fn collate(&self, batches: BatchSizes) -> BreakingCollate {
        BreakingCollate(self.0, QUICK.collate(batches), 0)
    }
}

impl Collate for BreakingCollate {
    type Example = (u64, u64);
    type Batch = Vec<(u64, u64)>;

    fn put(&mut self, slot: BatchSlot, example: (u64, u64)) -> Result<()> {
        assert!(self.0 != Part::Put || example.0 != 33, "asked for");
        self.1.put(slot, example)
    }
    fn take(&mut self, rows: usize) -> Vec<(u64, u64)> {
        self.2 += 1;
        assert!(self.0 != Part::Take || self.2 < 2, "asked for");
        self.1.take(rows)
    }
}

#[test]
fn a_panic_of_any_part_reaches_the_consumer_and_no_thread_is_left() {
    if !alone("a_panic_of_any_part_reaches_the_consumer_and_no_thread_is_left") {
        return;
    }
    for part in [Part::Read, Part::ExampleMaker, Part::Run, Part::Put, Part::Take] {
        let task = Breaking(part, Arc::new(toy(&[100])));
        let mut broken = Engine::new(Arc::new(task.clone()), task, plan()).unwrap();
        let error = loop {
            match broken.next(SOON) {
                Ok(Step::Batch(..)) => {}
                Ok(step) => panic!("{part:?}: {step:?}"),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind, ErrorKind::Panic, "{part:?}: {error}");
        assert_eq!(broken.next(SOON).unwrap_err().kind, ErrorKind::Panic, "{part:?}: permanently");
        broken.close();
        until("no thread is left", || threads_named("forebay-") == 0);
        assert_eq!(rows(&batches(&mut engine(plan(), toy(&[100]), QUICK), 100)).len(), 100);
    }
}

#[test]
fn close_wakes_a_waiting_next() {
    // The first read ends when the waiter has been woken.
    static IS_READING: AtomicUsize = AtomicUsize::new(0);
    static IS_OPEN: Mutex<bool> = Mutex::new(false);
    static OPENED: Condvar = Condvar::new();
    let stalls = |_| {
        IS_READING.store(1, Ordering::Release);
        drop(OPENED.wait_while(IS_OPEN.lock().unwrap(), |is_open| !*is_open));
        None
    };
    let mut waiting = engine(plan(), Toy { unreadable: stalls, ..toy(&[100]) }, QUICK);
    let control = waiting.control();
    let waiter = thread::spawn(move || {
        let outcome = waiting.next(SOON).map(|_| ()).map_err(|e| e.kind);
        (outcome, waiting)
    });
    until("a record is read", || IS_READING.load(Ordering::Acquire) == 1);
    thread::sleep(Duration::from_millis(20));
    control.close();
    let (outcome, mut closed) = waiter.join().unwrap();
    assert_eq!(outcome, Err(ErrorKind::Closed));
    assert_eq!(closed.next(SOON).unwrap_err().kind, ErrorKind::Closed);
    *IS_OPEN.lock().unwrap() = true;
    OPENED.notify_all();
}

#[test]
fn no_way_out_leaves_a_thread_behind() {
    if !alone("no_way_out_leaves_a_thread_behind") {
        return;
    }
    let full = Plan { infinite: true, channel_size: 1, ..plan() };
    for way in 0..3 {
        let trial = || {
            let slow = Work { slow: Duration::from_millis(2), ..QUICK };
            let mut engine = engine(full.clone(), toy(&[1000]), slow);
            let counters = engine.counters();
            let idle = Arc::strong_count(&counters);
            next(&mut engine);
            until("four threads", || threads_named("forebay-") == 4);
            match way {
                0 => engine.close(),
                1 => drop(engine),
                _ => {
                    engine.control().close();
                    let _ = engine.next(SOON);
                    engine.close();
                }
            }
            // The references of threads that are still running; closing waits for them for half a second.
            let left = Arc::strong_count(&counters) - if way == 1 { 1 } else { idle };
            until("no thread", || threads_named("forebay-") == 0);
            left
        };
        undisturbed(trial, |&left| left == 0);
    }
    let mut finite = engine(plan(), toy(&[100]), QUICK);
    batches(&mut finite, 100);
    until("threads end with their pass", || threads_named("forebay-") == 0);
}

#[test]
fn a_source_without_rows_is_refused() {
    let error = Engine::new(Arc::new(toy(&[0, 0])), QUICK, plan()).err().unwrap();
    assert_eq!(error.kind, ErrorKind::Config);
}

#[test]
fn batches_lie_ready_and_keep_their_places() {
    let ready = Plan { infinite: true, prefetch_batches: 4, ..plan() };
    let mut engine = engine(ready, toy(&[100]), Work { bad_in_100: 10, ..QUICK });
    let first = next(&mut engine);
    let control = engine.control();
    until("four batches lie ready", || control.queues().batches == 4);
    // A batch made ahead is not counted as handed out.
    assert_eq!((engine.stats().batches, engine.batch()), (1, 1));
    // No other thread takes them.
    let others: Vec<_> = (0..3)
        .map(|_| match engine.next(Duration::ZERO).unwrap() {
            Step::Batch(_, batch) => batch,
            _ => panic!("not at once"),
        })
        .collect();
    let before = engine.stats().delivered;
    assert_eq!((before.batches, before.examples), (4, 32));
    engine.seek(0).unwrap();
    assert_eq!((next(&mut engine), batches(&mut engine, 3)), (first, others));
    assert_eq!(engine.stats().delivered, before + before);
}

#[test]
fn a_failure_waits_for_the_batches_before_it() {
    let source = Toy { unreadable: |row| (row == 20).then_some(ErrorKind::Io), ..toy(&[100]) };
    let in_order = Plan { order: Order::Sequential, prefetch_batches: 8, ..plan() };
    let mut engine = engine(in_order, source, QUICK);
    assert_eq!(rows(&batches(&mut engine, 1)).len(), 8);
    thread::sleep(Duration::from_millis(50));
    assert_eq!(rows(&batches(&mut engine, 1)).len(), 8, "made before the failure");
    assert_eq!(engine.next(SOON).unwrap_err().kind, ErrorKind::Io);
}
