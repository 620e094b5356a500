//! Where the time goes: injected delays are found where they are.

#![allow(clippy::unwrap_used, reason = "a failed test is what an unwrap means here")]

mod toy;

use std::{thread, time::Duration};

use forebay::pipeline::{Engine, Plan, Report};
use toy::{QUICK, Toy, Work, batches, engine, next, plan, toy};

const MS: Duration = Duration::from_millis(1);

fn infinite() -> Plan {
    Plan { infinite: true, ..plan() }
}

fn report(engine: &Engine<Toy, Work>) -> Report {
    engine.counters().report()
}

#[test]
fn slow_storage_is_io_bound() {
    let slow = |_| {
        thread::sleep(MS);
        None
    };
    let mut engine = engine(infinite(), Toy { unreadable: slow, ..toy(&[1000]) }, QUICK);
    batches(&mut engine, 30);
    let Report { stages: [read, decode, ..], starved, verdict, .. } = report(&engine);
    assert!(verdict.starts_with("I/O-bound"), "{verdict}");
    assert!(read.busy_share > 0.8 && decode.busy_share < 0.2, "{read:?} {decode:?}");
    // A batch is eight records.
    assert!(read.times.p50_s > 0.0009 && starved.p50_s > 0.004, "{read:?} {starved:?}");
    let reading_first = Plan { order: forebay::order::Order::Global, ..infinite() };
    let mut engine = toy::engine(reading_first, Toy { unreadable: slow, ..toy(&[1000]) }, QUICK);
    batches(&mut engine, 30);
    let verdict = report(&engine).verdict;
    assert!(verdict.starts_with("I/O-bound") && verdict.contains("n_readers (3)"), "{verdict}");
}

#[test]
fn slow_workers_are_cpu_bound() {
    let mut engine = engine(infinite(), toy(&[1000]), Work { slow: 2 * MS, ..QUICK });
    batches(&mut engine, 30);
    let Report { stages: [read, decode, _, consumer], verdict, .. } = report(&engine);
    assert!(verdict.starts_with("CPU-bound (decoding)"), "{verdict}");
    assert!(decode.busy_share > 0.8 && read.busy_share < 0.3, "{read:?} {decode:?}");
    assert!((0.0019..0.1).contains(&decode.times.p50_s), "{decode:?}");
    assert!(consumer.busy_share < 0.2 && consumer.waits[0].1 > 0.1, "{consumer:?}");
}

#[test]
fn a_slow_loop_is_consumer_bound() {
    let mut engine = engine(infinite(), toy(&[1000]), QUICK);
    for _ in 0..20 {
        next(&mut engine);
        thread::sleep(10 * MS);
    }
    let Report { stages: [read, .., consumer], ready, starved, verdict, .. } = report(&engine);
    assert!(verdict.starts_with("consumer-bound"), "{verdict}");
    assert!(ready.p50_s > 0.009 && starved.p50_s < 0.005, "{ready:?} {starved:?}");
    assert!(consumer.times.p50_s > 0.009 && consumer.busy_share > 0.8, "{consumer:?}");
    let waited: f64 = read.waits.iter().map(|&(_, seconds)| seconds).sum();
    assert!(waited > 0.1 && read.busy_s < 0.1, "{read:?}");
}

#[test]
fn first_it_is_idle_then_it_starts() {
    let mut engine = engine(infinite(), toy(&[1000]), QUICK);
    assert!(report(&engine).verdict.starts_with("idle"));
    batches(&mut engine, 3);
    assert!(report(&engine).verdict.starts_with("starting"));
}

#[test]
fn counts_add_up_and_queues_are_bounded() {
    let mut engine = engine(plan(), toy(&[400]), Work { dawdles: true, ..QUICK });
    let control = engine.control();
    assert_eq!(control.queues(), Default::default());
    let mut n = 0;
    while next(&mut engine).is_some() {
        let queues = control.queues();
        // One record waits to be sent, and a batch to be handed over.
        assert!(queues.records <= 16 + 1 && queues.record_bytes == 8 * queues.records, "{queues:?}");
        assert!(queues.examples <= 50 && queues.batches <= 2, "{queues:?}");
        n += 1;
    }
    let Report { stages, ready, starved, start_s, .. } = report(&engine);
    assert_eq!(
        stages.each_ref().map(|stage| (stage.name, stage.items)),
        [("read", 400), ("decode", 400), ("collate", n), ("consumer", n)]
    );
    assert_eq!((ready.count, starved.count), (n, n - 1));
    assert!(start_s > 0.0);
}

#[test]
fn a_consumer_that_does_nothing_is_measured_on_the_side() {
    for plan in [infinite(), plan()] {
        let mut engine = engine(plan, toy(&[100]), Work { slow: MS, ..QUICK });
        let (first, before) = (next(&mut engine), engine.batch());
        let aside = engine.aside().unwrap();
        let (headspace, batch) = aside.headspace(200 * MS, || true, Vec::len).unwrap().unwrap();
        assert!(first.is_some() && !batch.is_empty());
        // Two workers with a millisecond each, some of it for a window that fills.
        assert!(headspace.examples >= 30 && headspace.examples <= 500, "{headspace:?}");
        assert!(headspace.decoded >= 60 && headspace.elapsed_s >= 0.2, "{headspace:?}");
        assert!(headspace.verdict.starts_with("CPU-bound (decoding)"), "{headspace:?}");
        assert_eq!((engine.batch(), engine.stats().batches), (before, 1));
    }
    let stopped = engine(plan(), toy(&[100]), QUICK).headspace(MS, || false, Vec::len).unwrap();
    assert!(stopped.is_none());
}
