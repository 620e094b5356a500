//! What the engine costs at many workers, on few cores: a task that sleeps.
//!
//! `cargo bench -p forebay-engine --bench workers`
//!
//! Each example sleeps as long as gives the same rate of all workers together, so that the rate, and with it
//! the work of reading, handing over and collating, is the same in each row. What a row costs more than the
//! one before is then the cost of more workers. CPU seconds and context switches are the system's (`/proc`,
//! Linux), so other processes disturb them little. Each figure is the median of five runs.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a bench prints its table, and fails by panicking"
)]

#[path = "../tests/toy/mod.rs"]
mod toy;

use std::{
    collections::BTreeMap,
    fs,
    time::{Duration, Instant},
};

use forebay_engine::{
    engine::Plan,
    order::{Batching, Order},
};
use toy::{QUICK, Work, engine, plan, toy};

/// Examples a second of all workers together, if waking costs nothing.
const RATE: u32 = 10_000;
/// Batches that are measured, and how many rows each has.
const BATCHES: usize = 250;
const ROWS: usize = 64;
const RUNS: usize = 5;

/// What the threads of one name have used.
#[derive(Debug, Clone, Copy, Default)]
struct Used {
    cpu: Duration,
    switches: u64,
}

/// What all threads have used so far, by the part of their name before a number.
fn used() -> BTreeMap<String, Used> {
    let mut by_name: BTreeMap<String, Used> = BTreeMap::new();
    for task in fs::read_dir("/proc/self/task").unwrap() {
        let path = task.unwrap().path();
        let read = |file: &str| fs::read_to_string(path.join(file));
        // A thread may end meanwhile.
        let (Ok(name), Ok(schedule), Ok(status)) = (read("comm"), read("schedstat"), read("status")) else {
            continue;
        };
        let name = name.trim().trim_end_matches(|c: char| c.is_ascii_digit() || c == '-').to_owned();
        let entry = by_name.entry(name).or_default();
        entry.cpu += Duration::from_nanos(schedule.split(' ').next().unwrap().parse().unwrap());
        let switches = status.lines().filter(|line| line.contains("ctxt_switches"));
        entry.switches +=
            switches.map(|line| line.split('\t').nth(1).unwrap().parse::<u64>().unwrap()).sum::<u64>();
    }
    by_name
}

struct Run {
    rate: f64,
    /// Per example, of each kind of thread.
    cpu: BTreeMap<String, f64>,
    switches: f64,
}

fn run(n_workers: usize) -> Run {
    let slow = Duration::from_secs(1) * n_workers as u32 / RATE;
    let plan = Plan {
        order: Order::Window,
        window: 4096,
        batching: Batching::Rows(ROWS),
        buffer_size: 4096,
        n_workers,
        n_readers: 2,
        channel_size: 2 * n_workers.max(16),
        infinite: true,
        ..plan()
    };
    let mut engine = engine(plan, toy(&[100_000, 50_000]), Work { slow, ..QUICK });
    // All threads are at work from here on.
    toy::batches(&mut engine, 4 * n_workers.div_ceil(ROWS) + 8);
    let (before, begin) = (used(), Instant::now());
    let n = toy::batches(&mut engine, BATCHES).len() * ROWS;
    let (after, seconds) = (used(), begin.elapsed().as_secs_f64());
    let mut cpu = BTreeMap::new();
    let mut switches = 0;
    for (name, used) in after {
        let was = before.get(&name).copied().unwrap_or_default();
        cpu.insert(name, used.cpu.saturating_sub(was.cpu).as_secs_f64() * 1e6 / n as f64);
        switches += used.switches.saturating_sub(was.switches);
    }
    Run { rate: n as f64 / seconds, cpu, switches: switches as f64 / n as f64 }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    println!("{RATE} examples/s wanted; microseconds of CPU and context switches per example\n");
    println!(
        "| workers | examples/s | CPU, all | of it workers | collator | readers | consumer | switches |"
    );
    println!("|---:|---:|---:|---:|---:|---:|---:|---:|");
    for n_workers in [1, 2, 4, 8, 16, 32, 64, 128] {
        let runs: Vec<_> = (0..RUNS).map(|_| run(n_workers)).collect();
        let of = |part: &dyn Fn(&Run) -> f64| median(runs.iter().map(part).collect());
        let cpu = |kind: &str| {
            of(&|run| run.cpu.iter().filter(|(name, _)| name.starts_with(kind)).map(|(_, cpu)| cpu).sum())
        };
        let (workers, collator, readers) = (cpu("forebay-work"), cpu("forebay-coll"), cpu("forebay-io"));
        let all = of(&|run| run.cpu.values().sum());
        println!(
            "| {n_workers} | {:.0} | {all:.1} | {workers:.1} | {collator:.1} | {readers:.1} | {:.1} | {:.2} |",
            of(&|run| run.rate),
            all - workers - collator - readers,
            of(&|run| run.switches),
        );
    }
}
