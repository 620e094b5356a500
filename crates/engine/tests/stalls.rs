//! A stalled thread is found, from outside and at any time: a reader, a worker, the collator.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../../tests/patience/mod.rs"]
mod patience;
mod toy;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use bytes::Bytes;
use forebay_base::{ErrorKind, Result};
use forebay_engine::{
    contract::{BatchSizes, BatchSlot, Collate, Source, Task, TaskFor},
    engine::{Control, Engine, Plan, State, Step},
    order::Assignment,
};
use patience::until;
use toy::{QUICK, Toy, ToyCollate, Work, plan, toy};

type Example = (u64, u64);

/// Blocks a thread of a test while it is shut. Tests of this file run one by one.
struct Gate {
    is_shut: AtomicBool,
    turn: Mutex<()>,
}

static GATE: Gate = Gate { is_shut: AtomicBool::new(false), turn: Mutex::new(()) };

impl Gate {
    fn pass(&self) {
        while self.is_shut.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Runs `seen` while a call waits for a batch of `engine` and the gate is shut; then opens the gate, and
    /// the call gets its batch.
    fn hold<S: Source, K: TaskFor<S>>(&self, mut engine: Engine<S, K>, seen: impl FnOnce(&Control<Example>))
    where
        K::Maker: forebay_engine::contract::ExampleMaker<Example = Example>,
    {
        let _turn = self.turn.lock().unwrap();
        self.is_shut.store(true, Ordering::Relaxed);
        let control = engine.control();
        assert!(control.threads().is_empty() && control.stall().is_none(), "before the first call");
        thread::scope(|scope| {
            let caller = scope.spawn(|| match engine.next(toy::SOON).unwrap() {
                Step::Batch(number, _) => number,
                Step::TimedOut | Step::End => panic!("no batch"),
            });
            seen(&control);
            self.is_shut.store(false, Ordering::Relaxed);
            assert_eq!(caller.join().unwrap(), 0);
        });
        assert!(control.stall().is_none());
        assert_eq!(control.threads().last().unwrap().state, State::Loop);
        engine.close();
        let is_over = || control.threads().iter().rev().skip(1).all(|thread| thread.state == State::Ended);
        until("all have ended", is_over);
    }
}

/// The last link of the chain, as soon as it contains `text`.
fn last_link(control: &Control<Example>, text: &str) -> String {
    let last = || control.stall().and_then(|stall| stall.links.last().cloned()).unwrap_or_default();
    until("the thread is named", || last().contains(text));
    let stall = control.stall().unwrap();
    assert_eq!(stall.batch, Some(0));
    last()
}

#[test]
fn a_read_that_does_not_return() {
    let stuck = |row| {
        if row == 3 {
            GATE.pass();
        }
        None::<ErrorKind>
    };
    let plan = Plan { infinite: true, window: 1, ..plan() };
    let engine = toy::engine(plan, Toy { unreadable: stuck, ..toy(&[100]) }, QUICK);
    GATE.hold(engine, |control| {
        // The rows before it arrive first.
        let is_next = || {
            let threads = control.threads();
            threads.iter().any(|thread| (thread.state, thread.item) == (State::Example, Some(3)))
        };
        until("the collator waits for row 3", is_next);
        assert!(last_link(control, "reading row 3 for").starts_with("forebay-io"));
        let threads = control.threads();
        let reader = threads.iter().find(|thread| thread.state == State::Reading).unwrap();
        assert_eq!((reader.item, reader.doing), (Some(3), "reading"));
        assert_eq!(reader.place.as_ref().unwrap().1, 3);
        let collator = &threads[threads.len() - 2];
        assert_eq!((collator.state, collator.item), (State::Example, Some(3)));
    });
}

#[test]
fn a_worker_that_does_not_return() {
    let engine = toy::engine(plan(), toy(&[100]), Work { first: || GATE.pass(), ..QUICK });
    GATE.hold(engine, |control| {
        assert!(last_link(control, "decoding row").starts_with("forebay-worker"));
    });
}

/// As `Work`, with a collator that blocks at its first example.
struct Halting;

struct HaltingCollate(ToyCollate);

impl Task for Halting {
    type Payload = Bytes;
    type Request<'a> = ();
    type Maker = Work;
    type Collate = HaltingCollate;
    fn request<R>(&self, _: &Assignment, read: impl FnOnce(&()) -> R) -> R {
        read(&())
    }
    fn maker(&self) -> Work {
        QUICK
    }
    fn collate(&self, batches: BatchSizes) -> HaltingCollate {
        HaltingCollate(ToyCollate::new(batches.size))
    }
}

impl Collate for HaltingCollate {
    type Example = Example;
    type Batch = Vec<Example>;
    fn put(&mut self, slot: BatchSlot, example: Example) -> Result<()> {
        GATE.pass();
        self.0.put(slot, example)
    }
    fn take(&mut self, rows: usize) -> Vec<Example> {
        self.0.take(rows)
    }
}

#[test]
fn a_collator_that_does_not_return() {
    let engine = Engine::new(Arc::new(toy(&[100])), Halting, plan()).unwrap();
    GATE.hold(engine, |control| {
        let link = last_link(control, "collating");
        assert!(link.starts_with("forebay-collator has been collating batch 0 for "), "{link}");
    });
}
