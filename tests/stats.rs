//! Where the time goes: injected delays are found where they are.

#![allow(clippy::unwrap_used, reason = "a failed test is what an unwrap means here")]

mod toy;

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use forebay::{
    ErrorKind,
    order::Order,
    pipeline::{Auto, Engine, Plan, Report, meter_examples},
};
use serde_json::Value;
use toy::{QUICK, SOON, Toy, Work, batches, engine, next, plan, toy};

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
    let reading_first = Plan { order: Order::Global, ..infinite() };
    let mut engine = toy::engine(reading_first, Toy { unreadable: slow, ..toy(&[1000]) }, QUICK);
    batches(&mut engine, 30);
    let verdict = report(&engine).verdict;
    assert!(verdict.starts_with("I/O-bound") && verdict.contains("raise n_readers (3;"), "{verdict}");
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

/// Workers at work and batches that may lie ahead.
fn numbers(engine: &Engine<Toy, Work>) -> (usize, usize) {
    let Report { stages: [_, decode, ..], prefetch_batches, .. } = report(engine);
    (decode.threads, prefetch_batches)
}

fn auto(n_workers: usize) -> Plan {
    let auto = Auto { workers: true, prefetch: true };
    Plan { n_workers, prefetch_batches: 8, auto, channel_size: 64, buffer_size: 200, ..infinite() }
}

#[test]
fn workers_come_with_the_hunger_and_go_with_it() {
    // Work that sleeps finds a core for every worker.
    let mut engine = engine(auto(6), toy(&[1000]), Work { slow: 4 * MS, ..QUICK });
    assert_eq!(numbers(&engine), (2, 2));
    let begin = Instant::now();
    while numbers(&engine).0 < 6 {
        assert!(begin.elapsed() < SOON, "{:?}", report(&engine));
        next(&mut engine);
    }
    // Eight records of 4 ms in 50 ms: two workers have time left.
    while numbers(&engine).0 > 3 {
        assert!(begin.elapsed() < 2 * SOON, "{:?}", report(&engine));
        next(&mut engine);
        thread::sleep(50 * MS);
    }
    while numbers(&engine).0 < 6 {
        assert!(begin.elapsed() < 3 * SOON, "{:?}", report(&engine));
        next(&mut engine);
    }
    // A pass begins with what the last one found.
    engine.seek(1000).unwrap();
    next(&mut engine);
    assert!(numbers(&engine).0 > 2);
}

#[test]
fn slow_storage_calls_no_workers() {
    let slow = |_| {
        thread::sleep(MS);
        None
    };
    let mut engine = engine(auto(6), Toy { unreadable: slow, ..toy(&[1000]) }, QUICK);
    batches(&mut engine, 60);
    // The first batches, of which records come in bursts, may have called one.
    assert!(numbers(&engine).0 <= 3, "{:?}", report(&engine));
}

#[test]
fn resting_workers_end_with_the_pass() {
    for slow in [Duration::ZERO, MS] {
        let mut engine = engine(Plan { infinite: false, ..auto(8) }, toy(&[100]), Work { slow, ..QUICK });
        for _ in 0..3 {
            assert_eq!(batches(&mut engine, 100).len(), 13);
            engine.rewind().unwrap();
        }
        let begin = Instant::now();
        next(&mut engine);
        engine.close();
        assert!(begin.elapsed() < Duration::from_millis(300));
    }
}

/// The spans of a trace by thread, from when to when, and its counters by name.
type Traced = (BTreeMap<String, Vec<(String, f64, f64)>>, HashMap<String, Vec<f64>>);

fn read_trace(path: &Path) -> Traced {
    let written: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let events = written["traceEvents"].as_array().unwrap();
    let of = |kind: &'static str| events.iter().filter(move |event| event["ph"] == kind);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let names: HashMap<u64, String> = of("M")
        .filter(|event| event["name"] == "thread_name")
        .map(|event| (event["tid"].as_u64().unwrap(), text(&event["args"]["name"])))
        .collect();
    let mut spans = BTreeMap::<String, Vec<_>>::new();
    for event in of("X") {
        let begin = event["ts"].as_f64().unwrap();
        let span = (text(&event["name"]), begin, begin + event["dur"].as_f64().unwrap());
        spans.entry(names[&event["tid"].as_u64().unwrap()].clone()).or_default().push(span);
    }
    let mut counters = HashMap::<String, Vec<f64>>::new();
    for event in of("C") {
        let name = text(&event["name"]);
        let value = event["args"][&name].as_f64().unwrap();
        counters.entry(name).or_default().push(value);
    }
    (spans, counters)
}

#[test]
fn a_trace_shows_what_each_thread_did() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    let mut engine = engine(infinite(), toy(&[1000]), Work { slow: MS, ..QUICK });
    batches(&mut engine, 5);
    engine.trace(&path, 400 * MS).unwrap();
    let begin = Instant::now();
    while !path.exists() {
        assert!(begin.elapsed() < SOON);
        next(&mut engine);
        thread::sleep(2 * MS);
    }
    let (spans, counters) = read_trace(&path);
    let names: Vec<&str> = spans.keys().map(String::as_str).collect();
    assert_eq!(names, ["consumer", "forebay-collator", "forebay-io", "forebay-worker-0", "forebay-worker-1"]);
    for (thread, of) in &spans {
        // Inside or beside one another, by a thousandth of a microsecond for each number that was rounded.
        for (i, (name, begin, end)) in of.iter().enumerate() {
            for (other, from, to) in &of[i + 1..] {
                let (apart, inside) = (
                    from >= &(end - 0.002) || to <= &(begin + 0.002),
                    (from >= &(begin - 0.002) && to <= &(end + 0.002))
                        || (begin >= &(from - 0.002) && end <= &(to + 0.002)),
                );
                assert!(apart || inside, "{thread}: {name} {begin} {end}, {other} {from} {to}");
            }
        }
        // All but what was under way at the end, and the batch that lies around others.
        let covered: f64 =
            of.iter().filter(|(name, ..)| name != "batch").map(|(_, begin, end)| end - begin).sum();
        assert!((200e3..=401e3).contains(&covered), "{thread}: {covered} us of 400 ms");
    }
    let sum = |thread: &str, wanted: &str| -> f64 {
        spans[thread].iter().filter(|(name, ..)| name == wanted).map(|(_, begin, end)| end - begin).sum()
    };
    assert!(sum("forebay-worker-0", "decode") > 200e3, "{:?}", spans["forebay-worker-0"]);
    assert!(sum("consumer", "wait for a batch") > 20e3 && sum("consumer", "loop") > 50e3);
    assert!(sum("forebay-io", "wait for credit") + sum("forebay-io", "wait for the channel") > 200e3);
    assert!(sum("forebay-collator", "wait for examples") > 100e3 && sum("forebay-collator", "batch") > 200e3);
    assert!(counters["workers"].iter().all(|&n| n == 2.0));
    assert!(counters["examples"].iter().any(|&n| n > 0.0));
    assert!(["records", "record_bytes", "batches"].iter().all(|&name| counters.contains_key(name)));
}

#[test]
fn a_trace_ends_with_its_engine() {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["closed", "dropped"].map(|name| folder.path().join(name));
    let mut closed = engine(infinite(), toy(&[1000]), QUICK);
    closed.trace(&paths[0], SOON).unwrap();
    batches(&mut closed, 5);
    assert_eq!(closed.trace(&paths[1], SOON).unwrap_err().kind, ErrorKind::State);
    closed.close();
    assert!(!read_trace(&paths[0]).0.is_empty());
    assert_eq!(closed.trace(&paths[1], SOON).unwrap_err().kind, ErrorKind::Closed);
    let mut dropped = engine(infinite(), toy(&[1000]), QUICK);
    dropped.trace(&paths[1], SOON).unwrap();
    batches(&mut dropped, 5);
    drop(dropped);
    assert!(!read_trace(&paths[1]).0.is_empty());
    let error = engine(plan(), toy(&[10]), QUICK).trace(&folder.path().join("no/where"), MS).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Io);
}

#[test]
fn metering_costs_less_than_a_hundredth() {
    // The quickest real example takes half a millisecond. Of several runs the one that was disturbed least.
    let cost = (0..20).map(|_| meter_examples(1000) / 1000).min().unwrap();
    assert!(cost < Duration::from_micros(5), "{cost:?}");
}
