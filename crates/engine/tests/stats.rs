//! The measured times: injected delays are found in the stage where they are.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../../tests/patience/mod.rs"]
mod patience;
mod toy;

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::Path,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use forebay_base::ErrorKind;
use forebay_engine::{
    contract::StorageLabels,
    engine::{Auto, Control, Counters, Engine, Plan, QueueSizes, Report, Stats, meter_examples},
    order::Order,
};
use patience::{undisturbed, until};
use serde_json::Value;
use toy::{QUICK, SOON, Toy, Work, batches, engine, next, plan, toy};

const MS: Duration = Duration::from_millis(1);

fn infinite() -> Plan {
    Plan { infinite: true, ..plan() }
}

fn report(engine: &Engine<Toy, Work>) -> Report {
    engine.counters().report(StorageLabels::LOCAL)
}

/// Makes a stage the slow one on any machine: its work continues until all other stages wait for it, even if
/// the system deschedules them.
struct Slow(Mutex<Option<Watched>>);

type Watched = (Arc<Control<(u64, u64)>>, Arc<Counters>);

impl Slow {
    const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Watches the engine until the end of the scope.
    fn watch<'a>(&'a self, engine: &Engine<Toy, Work>) -> impl Drop + use<'a> {
        struct Ends<'a>(&'a Slow);
        impl Drop for Ends<'_> {
            fn drop(&mut self) {
                *self.0.0.lock().unwrap() = None;
            }
        }
        *self.0.lock().unwrap() = Some((engine.control(), engine.counters()));
        Ends(self)
    }

    /// Works until `others_wait`.
    fn work(&self, others_wait: impl Fn(QueueSizes, Stats) -> bool) {
        let watched = || self.0.lock().unwrap().clone();
        while let Some((control, counters)) = watched()
            && !others_wait(control.queues(), counters.read())
        {
            thread::sleep(MS / 10);
        }
    }
}

#[test]
fn slow_storage_is_io_bound() {
    static STORAGE: Slow = Slow::new();
    let slow = |_| {
        STORAGE.work(|queues, stats| queues.batches == 0 && stats.records_decoded == stats.records_read);
        thread::sleep(MS);
        None
    };
    let in_order = |order| {
        let plan = Plan { order, ..infinite() };
        let mut engine = engine(plan, Toy { unreadable: slow, ..toy(&[1000]) }, QUICK);
        let _ends = STORAGE.watch(&engine);
        batches(&mut engine, 30);
        report(&engine)
    };
    undisturbed(
        || in_order(Order::Window),
        |Report { stages: [read, decode, ..], starved, verdict, .. }| {
            verdict.starts_with("I/O-bound")
                && (read.busy_share > 0.8 && decode.busy_share < 0.2)
                // A batch has eight records.
                && (read.times.p50_s > 0.0009 && starved.p50_s > 0.004)
        },
    );
    undisturbed(
        || in_order(Order::Global).verdict,
        |verdict| verdict.starts_with("I/O-bound") && verdict.contains("raise n_readers (3;"),
    );
}

#[test]
fn slow_workers_are_cpu_bound() {
    static WORKERS: Slow = Slow::new();
    let first = || WORKERS.work(|queues, _| queues.batches == 0 && queues.records >= 2);
    let trial = || {
        let mut engine = engine(infinite(), toy(&[1000]), Work { first, slow: 2 * MS, ..QUICK });
        let _ends = WORKERS.watch(&engine);
        batches(&mut engine, 30);
        report(&engine)
    };
    undisturbed(trial, |Report { stages: [read, decode, _, consumer], verdict, .. }| {
        verdict.starts_with("CPU-bound (decoding)")
            && (decode.busy_share > 0.8 && read.busy_share < 0.3)
            && (0.0019..0.1).contains(&decode.times.p50_s)
            && (consumer.busy_share < 0.2 && consumer.waits[0].1 > 0.1)
    });
}

#[test]
fn a_slow_loop_is_consumer_bound() {
    let trial = || {
        let mut engine = engine(infinite(), toy(&[1000]), QUICK);
        let control = engine.control();
        for _ in 0..20 {
            next(&mut engine);
            // The loop is slow if it is slower than the workers.
            until("two batches lie ready", || control.queues().batches == 2);
            thread::sleep(10 * MS);
        }
        let report = report(&engine);
        let Report { stages: [.., consumer], ready, starved, verdict, .. } = &report;
        assert!(verdict.starts_with("consumer-bound"), "{verdict}");
        assert!(ready.p50_s > 0.009 && starved.p50_s < 0.005, "{ready:?} {starved:?}");
        assert!(consumer.times.p50_s > 0.009, "{consumer:?}");
        report
    };
    undisturbed(trial, |Report { stages: [read, .., consumer], .. }| {
        let waited: f64 = read.waits.iter().map(|&(_, seconds)| seconds).sum();
        consumer.busy_share > 0.8 && waited > 0.1 && read.busy_s < 0.1
    });
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
        // Beside them, one record waits to be sent, and one batch to be handed over.
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
fn the_loaders_own_rate_is_measured_by_headspace() {
    for plan in [infinite(), plan()] {
        let mut engine = engine(plan, toy(&[100]), Work { slow: MS, ..QUICK });
        let (first, before) = (next(&mut engine), engine.batch());
        assert!(first.is_some());
        let trial = || {
            let aside = engine.aside().unwrap();
            let (headspace, batch) = aside.headspace(200 * MS, || true, Vec::len).unwrap().unwrap();
            assert!(!batch.is_empty());
            // Two workers with a millisecond each, of which some fills a window, and the batches that were
            // ready.
            let most = 2000.0 * headspace.elapsed_s + 100.0;
            assert!(headspace.elapsed_s >= 0.2 && headspace.examples as f64 <= most, "{headspace:?}");
            headspace
        };
        undisturbed(trial, |headspace| {
            (headspace.examples >= 30 && headspace.decoded >= 60 && headspace.is_filled)
                && headspace.verdict.starts_with("CPU-bound (decoding)")
        });
        assert_eq!((engine.batch(), engine.stats().batches), (before, 1));
    }
    let stopped = engine(plan(), toy(&[100]), QUICK).headspace(MS, || false, Vec::len).unwrap();
    assert!(stopped.is_none());
}

/// Workers that are awake, and the bound of batches made ahead.
fn numbers(engine: &Engine<Toy, Work>) -> (usize, usize) {
    let Report { stages: [_, decode, ..], prefetch_batches, .. } = report(engine);
    (decode.threads, prefetch_batches)
}

fn auto(n_workers: usize) -> Plan {
    let auto = Auto { workers: true, prefetch: true };
    Plan { n_workers, prefetch_batches: 8, auto, channel_size: 64, buffer_size: 200, ..infinite() }
}

#[test]
fn workers_are_woken_by_starvation_and_parked_without() {
    // Work that sleeps needs no core, so any number of workers runs at once.
    let mut engine = engine(auto(6), toy(&[1000]), Work { slow: 4 * MS, ..QUICK });
    assert_eq!(numbers(&engine), (2, 2));
    let begin = Instant::now();
    while numbers(&engine).0 < 6 {
        assert!(begin.elapsed() < SOON, "{:?}", report(&engine));
        next(&mut engine);
    }
    // Eight records of 4 ms in 50 ms leave two workers time. The loop never waits, on a machine of any speed.
    let control = engine.control();
    while numbers(&engine).0 > 3 {
        assert!(begin.elapsed() < 2 * SOON, "{:?}", report(&engine));
        until("a batch lies ready", || control.queues().batches > 0);
        next(&mut engine);
        thread::sleep(50 * MS);
    }
    while numbers(&engine).0 < 6 {
        assert!(begin.elapsed() < 3 * SOON, "{:?}", report(&engine));
        next(&mut engine);
    }
    // A pass starts with the numbers of the last one.
    engine.seek(1000).unwrap();
    next(&mut engine);
    assert!(numbers(&engine).0 > 2);
}

#[test]
fn slow_storage_wakes_no_workers() {
    let slow = |_| {
        thread::sleep(MS);
        None
    };
    let trial = || {
        let mut engine = engine(auto(6), Toy { unreadable: slow, ..toy(&[1000]) }, QUICK);
        batches(&mut engine, 60);
        report(&engine)
    };
    // A worker that the system deschedules within a record seems to work, and a starved loop then wakes
    // another.
    undisturbed(trial, |Report { stages: [_, decode, ..], .. }| decode.threads == 2);
}

#[test]
fn parked_workers_end_with_the_pass() {
    for slow in [Duration::ZERO, MS] {
        let mut engine = engine(Plan { infinite: false, ..auto(8) }, toy(&[100]), Work { slow, ..QUICK });
        for _ in 0..3 {
            assert_eq!(batches(&mut engine, 100).len(), 13);
            engine.rewind().unwrap();
        }
        next(&mut engine);
        let counters = engine.counters();
        drop(engine);
        until("all threads have ended", || Arc::strong_count(&counters) == 1);
    }
}

/// The spans of a trace by thread, with begin and end, and its counters by name.
type Traced = (Spans, HashMap<String, Vec<f64>>);
type Spans = BTreeMap<String, Vec<(String, f64, f64)>>;

fn read_trace(path: &Path) -> Traced {
    let written: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let events = written["traceEvents"].as_array().unwrap();
    let of = |kind: &'static str| events.iter().filter(move |event| event["ph"] == kind);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let names: HashMap<u64, String> = of("M")
        .filter(|event| event["name"] == "thread_name")
        .map(|event| (event["tid"].as_u64().unwrap(), text(&event["args"]["name"])))
        .collect();
    let mut spans = Spans::new();
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

/// Checks that the spans of a thread are disjoint or nested, and within the 400 ms.
fn check_spans(spans: &Spans) {
    for (thread, of) in spans {
        // The tolerance is a thousandth of a microsecond for each rounded number.
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
        let covered: f64 =
            of.iter().filter(|(name, ..)| name != "batch").map(|(_, begin, end)| end - begin).sum();
        assert!(covered <= 401e3, "{thread}: {covered} us of 400 ms");
    }
}

#[test]
fn a_trace_shows_what_each_thread_did() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    static WORKERS: Slow = Slow::new();
    let first = || WORKERS.work(|queues, _| queues.batches == 0 && queues.records >= 2);
    let trial = || {
        let mut engine = engine(infinite(), toy(&[1000]), Work { first, slow: MS, ..QUICK });
        let _ends = WORKERS.watch(&engine);
        batches(&mut engine, 5);
        engine.trace(&path, 400 * MS).unwrap();
        let begin = Instant::now();
        while !path.exists() {
            assert!(begin.elapsed() < SOON);
            next(&mut engine);
            thread::sleep(2 * MS);
        }
        let traced = read_trace(&path);
        fs::remove_file(&path).unwrap();
        check_spans(&traced.0);
        assert!(traced.1.get("workers").into_iter().flatten().all(|&n| n == 2.0));
        traced
    };
    undisturbed(trial, |(spans, counters)| {
        let names: Vec<&str> = spans.keys().map(String::as_str).collect();
        if names != ["consumer", "forebay-collator", "forebay-io", "forebay-worker-0", "forebay-worker-1"] {
            return false;
        }
        let sum = |thread: &str, wanted: &str| -> f64 {
            spans[thread].iter().filter(|(name, ..)| name == wanted).map(|(_, begin, end)| end - begin).sum()
        };
        // All spans, without those running at the end, and without the batch, which contains others.
        let covered = |thread: &str| -> f64 {
            let of = spans[thread].iter().filter(|(name, ..)| name != "batch");
            of.map(|(_, begin, end)| end - begin).sum()
        };
        names.into_iter().all(|thread| covered(thread) >= 200e3)
            && sum("forebay-worker-0", "decode") > 200e3
            && (sum("consumer", "wait for a batch") > 20e3 && sum("consumer", "loop") > 50e3)
            && sum("forebay-io", "wait for credit") + sum("forebay-io", "wait for the channel") > 200e3
            && (sum("forebay-collator", "wait for examples") > 100e3
                && sum("forebay-collator", "batch") > 200e3)
            && counters["examples"].iter().any(|&n| n > 0.0)
            && ["workers", "records", "record_bytes", "batches"]
                .iter()
                .all(|&name| counters.contains_key(name))
    });
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
    // A trace may be replaced; any other file may not.
    let mut again = engine(plan(), toy(&[10]), QUICK);
    again.trace(&paths[0], SOON).unwrap();
    drop(again);
    assert!(read_trace(&paths[0]).0.is_empty());
    for (name, content) in [("foreign.json", "{\"mine\": 1}"), ("taken.json.part", "mine")] {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        let asked = folder.path().join(name.trim_end_matches(".part"));
        let error = engine(plan(), toy(&[10]), QUICK).trace(&asked, MS).unwrap_err();
        assert_eq!(error.kind, ErrorKind::State, "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
    }
    let late = folder.path().join("late.json");
    let mut meanwhile = engine(plan(), toy(&[10]), QUICK);
    meanwhile.trace(&late, SOON).unwrap();
    std::fs::write(&late, "mine").unwrap();
    drop(meanwhile);
    assert_eq!(std::fs::read_to_string(&late).unwrap(), "mine");
    let error = engine(plan(), toy(&[10]), QUICK).trace(&folder.path().join("no/where"), MS).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Io);
}

#[test]
fn metering_costs_less_than_a_hundredth() {
    // The fastest real example takes half a millisecond. The least disturbed of several runs counts.
    let cost = (0..20).map(|_| meter_examples(1000) / 1000).min().unwrap();
    assert!(cost < Duration::from_micros(5), "{cost:?}");
}
