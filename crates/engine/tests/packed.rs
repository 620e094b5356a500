//! Batches that take as many records as they need: packed by a toy, divided among ranks, resumed before every
//! batch, with bad records in between. The oracle is one process that reads from the start; for the rows it
//! is a loop without an engine.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::single_range_in_vec_init, reason = "ranges of batches are meant")]

mod toy;

use std::sync::Arc;

use bytes::Bytes;
use forebay_base::{Error, ErrorKind, Result, seed};
use forebay_engine::{
    contract::{BatchSizes, BatchSlot, CarriedRecord, Collate, PackRows, StreamPosition, Task},
    engine::{Delivered, Engine, Plan, Position, Step},
    order::{Assignment, Batching, Groups, Order, Stride},
};
use proptest::prelude::*;
use toy::{QUICK, SOON, Toy, Work, plan, toy};

/// The capacity of a row of a batch.
const CAPACITY: u32 = 10;
/// Records that a packer holds before each pick.
const BUFFER: usize = 5;
/// Rows of a batch over all ranks, and the packers that fill them.
const GLOBAL: usize = 8;
const PACKERS: u64 = 4;
const SHARDS: [u64; 3] = [90, 41, 60];
/// Rows of a row group.
const GROUP: u64 = 10;

/// A row: for each record its number, where its part begins, and the part's size.
type Row = Vec<(u64, u32, u32)>;

fn size(row: u64) -> u32 {
    (seed::mix(row) % 14) as u32 + 1
}

/// One stream's packer: takes the largest record that fits; else the smallest is cut and its rest held.
#[derive(Default)]
struct Packer {
    held: Vec<CarriedRecord>,
    row: Row,
    rows: Vec<Row>,
    at_end: bool,
}

impl Packer {
    /// Packs up to `n` rows; returns whether it needs more records for that.
    fn pack(&mut self, n: usize) -> bool {
        while self.rows.len() < n {
            if self.held.len() < BUFFER && !self.at_end {
                return true;
            }
            let left = |held: &CarriedRecord| size(held.row) - held.used;
            let room = CAPACITY - self.row.iter().map(|&(_, _, n)| n).sum::<u32>();
            let fits = self.held.iter().filter(|held| left(held) <= room).max_by_key(|held| left(held));
            let Some(&pick) = fits.or_else(|| self.held.iter().min_by_key(|held| left(held))) else {
                return false;
            };
            let taken = left(&pick).min(room);
            self.row.push((pick.row, pick.used, taken));
            self.held.retain(|held| *held != pick);
            if taken < left(&pick) {
                self.held.push(CarriedRecord { used: pick.used + taken, ..pick });
            }
            if taken == room {
                self.rows.push(std::mem::take(&mut self.row));
            }
        }
        false
    }
}

struct Bins {
    packers: Vec<Packer>,
    per_stream: usize,
}

impl Collate for Bins {
    type Example = (u64, u64);
    type Batch = Vec<Row>;

    fn put(&mut self, BatchSlot { stream, .. }: BatchSlot, (row, _): (u64, u64)) -> Result<()> {
        self.packers[stream].held.push(CarriedRecord { row, ..CarriedRecord::default() });
        Ok(())
    }
    fn take(&mut self, rows: usize) -> Vec<Row> {
        let batch: Vec<Row> =
            self.packers.iter_mut().flat_map(|packer| std::mem::take(&mut packer.rows)).collect();
        assert_eq!(batch.len(), rows);
        batch
    }
    fn packer(&mut self) -> Option<&mut dyn PackRows<Example = (u64, u64)>> {
        Some(self)
    }
}

impl PackRows for Bins {
    type Example = (u64, u64);

    fn wants(&mut self) -> Result<Option<usize>> {
        Ok((0..self.packers.len()).find(|&stream| self.packers[stream].pack(self.per_stream)))
    }
    fn end(&mut self, stream: usize) {
        self.packers[stream].at_end = true;
    }
    fn rows(&self) -> usize {
        self.packers.iter().map(|packer| packer.rows.len()).sum()
    }
    fn held(&self, stream: usize) -> Vec<CarriedRecord> {
        self.packers[stream].held.clone()
    }
    fn hold(&mut self, stream: usize, held: CarriedRecord, (row, _): (u64, u64)) -> Result<()> {
        if held.used >= size(row) {
            return Err(Error::new(ErrorKind::State, "more was used than there is"));
        }
        assert_eq!(row, held.row);
        self.packers[stream].held.push(held);
        Ok(())
    }
}

#[derive(Clone, Copy)]
struct Pack(Work);

impl Task for Pack {
    type Payload = Bytes;
    type Request<'a> = ();
    type Maker = Work;
    type Collate = Bins;

    fn request<R>(&self, _: &Assignment, read: impl FnOnce(&()) -> R) -> R {
        read(&())
    }
    fn maker(&self) -> Work {
        self.0
    }
    fn collate(&self, BatchSizes { size, n_streams, .. }: BatchSizes) -> Bins {
        let packers = (0..n_streams).map(|_| Packer::default()).collect();
        Bins { packers, per_stream: size / n_streams }
    }
}

type Packing = Engine<Toy, Pack>;

fn groups(is_shuffled: bool) -> Groups {
    let mut first = 0;
    let file = |&n: &u64| {
        let rows = first..first + n;
        first += n;
        rows.clone().step_by(GROUP as usize).map(|from| from..(from + GROUP).min(rows.end)).collect()
    };
    Groups::new(SHARDS.iter().map(file).collect(), None, is_shuffled)
}

fn packed(infinite: bool, is_shuffled: bool, window: u64) -> Plan {
    Plan {
        order: Order::Groups,
        groups: Some(Arc::new(groups(is_shuffled))),
        n_streams: Some(PACKERS),
        batching: Batching::Collator(GLOBAL),
        infinite,
        window,
        ..plan()
    }
}

fn plans() -> Vec<Plan> {
    let mut plans = Vec::new();
    for infinite in [false, true] {
        for (is_shuffled, window) in [(false, 1), (true, 1), (true, 20)] {
            plans.push(packed(infinite, is_shuffled, window));
        }
    }
    plans
}

fn part(plan: &Plan, rank: u64, world: u64) -> Plan {
    // Keeps the window of each packer the same.
    let window = plan.window / world;
    Plan {
        batching: Batching::Collator(GLOBAL / world as usize),
        rank,
        world_size: world,
        window,
        ..plan.clone()
    }
}

const SOME_BAD: Work = Work { bad_in_100: 6, dawdles: true, ..QUICK };

fn engine(plan: Plan, work: Work) -> Packing {
    Engine::new(Arc::new(toy(&SHARDS)), Pack(work), plan).unwrap()
}

fn next(engine: &mut Packing) -> Option<Vec<Row>> {
    match engine.next(SOON).unwrap() {
        Step::Batch(_, batch) => Some(batch),
        Step::End => None,
        Step::TimedOut => panic!("no batch within {SOON:?}: a deadlock"),
    }
}

fn batches(engine: &mut Packing, n: usize) -> Vec<Vec<Row>> {
    std::iter::from_fn(|| next(engine)).take(n).collect()
}

#[test]
fn rows_are_those_of_a_plain_loop() {
    let made = batches(&mut engine(packed(true, false, 1), SOME_BAD), 30);
    let mut expected: Vec<Vec<Row>> = vec![Vec::new(); 30];
    for stream in 0..PACKERS {
        let mut packer = Packer::default();
        let mut rows =
            groups(false).of(stream, PACKERS).into_iter().flatten().collect::<Vec<_>>().into_iter().cycle();
        for batch in &mut expected {
            while packer.pack(GLOBAL / PACKERS as usize) {
                let row = rows.next().unwrap();
                if seed::mix(row) % 100 >= SOME_BAD.bad_in_100 {
                    packer.held.push(CarriedRecord { row, ..CarriedRecord::default() });
                }
            }
            batch.append(&mut packer.rows);
        }
    }
    assert_eq!(made, expected);
}

#[test]
fn ranks_make_the_batches_of_one_process() {
    for plan in plans() {
        let alone = batches(&mut engine(plan.clone(), SOME_BAD), 25);
        for world in [2, 4] {
            let mut ranks: Vec<_> =
                (0..world).map(|rank| batches(&mut engine(part(&plan, rank, world), SOME_BAD), 25)).collect();
            for batch in &alone {
                let parts: Vec<Row> = ranks
                    .iter_mut()
                    .filter(|rank| !rank.is_empty())
                    .flat_map(|rank| rank.remove(0))
                    .collect();
                assert_eq!(parts, *batch, "world {world}, {plan:?}");
            }
            assert!(ranks.iter().all(Vec::is_empty));
        }
    }
}

#[test]
fn a_finite_pass_delivers_every_record_or_holds_those_that_fill_no_row() {
    for is_shuffled in [false, true] {
        let mut engine = engine(packed(false, is_shuffled, 1), QUICK);
        let made = batches(&mut engine, usize::MAX);
        let mut used = vec![0; SHARDS.iter().sum::<u64>() as usize];
        for &(row, from, n) in made.iter().flatten().flatten() {
            assert!(from + n <= size(row));
            used[row as usize] += n;
        }
        let left: u32 = (0..).zip(&used).map(|(row, used)| size(row) - used).sum();
        assert!(left < CAPACITY * PACKERS as u32, "{left}");
        // The next pass differs, and is complete.
        engine.rewind().unwrap();
        assert_eq!(engine.epoch(), 1);
        let again = batches(&mut engine, usize::MAX);
        assert_eq!(again == made, !is_shuffled);
    }
}

#[test]
fn records_after_the_last_batch_are_counted_at_the_end() {
    let bad = (0..SHARDS.iter().sum()).filter(|&row| seed::mix(row) % 100 < SOME_BAD.bad_in_100).count();
    for is_shuffled in [false, true] {
        let mut engine = engine(packed(false, is_shuffled, 1), SOME_BAD);
        let made = batches(&mut engine, usize::MAX);
        let delivered = engine.stats().delivered;
        assert_eq!((delivered.batches, delivered.records_failed), (made.len() as u64, bad as u64));
        // Counted once, and again only if the last batch comes again.
        assert!(next(&mut engine).is_none());
        assert_eq!(engine.stats().delivered, delivered);
        engine.take_back();
        assert_eq!(engine.stats().delivered.batches, made.len() as u64 - 1);
        assert_eq!(batches(&mut engine, usize::MAX).len(), 1);
        assert_eq!(engine.stats().delivered, delivered);
    }
}

#[test]
fn resumed_before_every_batch_the_rest_is_the_same() {
    for plan in plans() {
        let mut whole = engine(plan.clone(), SOME_BAD);
        let mut positions: Vec<(Position, Delivered)> = Vec::new();
        let mut made = Vec::new();
        while let Some(batch) = {
            positions.push((whole.position(), whole.stats().delivered));
            next(&mut whole).filter(|_| made.len() < 30)
        } {
            made.push(batch);
        }
        let all = positions[made.len()].1;
        assert!(all.records_failed > 0 && all.substitutes == 0, "{all:?}");
        assert_eq!(all.examples, made.iter().map(|batch| batch.len() as u64).sum::<u64>());
        for (n, (position, before)) in positions.into_iter().enumerate().take(made.len() + 1) {
            let others = Plan {
                n_workers: 1 + n % 4,
                channel_size: 1 + n,
                prefetch_batches: 1 + n % 3,
                ..plan.clone()
            };
            let mut engine = engine(others, SOME_BAD);
            engine.restore(position.clone()).unwrap();
            // Saved again at once, the position is equal.
            assert_eq!(engine.position(), position);
            let rest = batches(&mut engine, made.len() - n);
            assert_eq!(rest, made[n..], "from batch {n} of {plan:?}");
            assert_eq!(before + engine.stats().delivered, all, "from batch {n} of {plan:?}");
        }
    }
}

#[test]
fn a_position_of_all_packers_serves_any_number_of_ranks() {
    let plan = packed(true, true, 20);
    let mut alone = engine(plan.clone(), SOME_BAD);
    batches(&mut alone, 7);
    let at = alone.position();
    let rest = batches(&mut alone, 10);
    let all = at.stream_positions.clone().unwrap();
    let mut parts = vec![Vec::new(); rest.len()];
    for rank in 0..2 {
        // The window of each packer is that of the first start.
        let mut engine = engine(Plan { window: plan.window, ..part(&plan, rank, 2) }, SOME_BAD);
        let own: Vec<StreamPosition> = all[rank as usize * 2..][..2].to_vec();
        engine.restore(Position { stream_positions: Some(own.into()), ..at.clone() }).unwrap();
        parts.iter_mut().zip(batches(&mut engine, rest.len())).for_each(|(part, batch)| part.extend(batch));
    }
    assert_eq!(parts, rest);
}

#[test]
fn a_batch_that_was_taken_back_is_returned_again() {
    for plan in plans() {
        let mut straight = engine(plan.clone(), SOME_BAD);
        let expected = batches(&mut straight, 20);
        let is_infinite = plan.infinite;
        let mut engine = engine(plan, SOME_BAD);
        engine.take_back(); // nothing, as nothing was taken
        let mut found = Vec::new();
        let mut delivered = Delivered::default();
        while let Some(batch) = next(&mut engine).filter(|_| found.len() < expected.len()) {
            if found.len() % 3 == 0 {
                let after = engine.position();
                engine.take_back();
                // iter() goes on if there is one pass only, and a second call takes nothing back.
                if is_infinite {
                    engine.rewind().unwrap();
                }
                engine.take_back();
                assert_eq!(next(&mut engine).as_ref(), Some(&batch));
                assert_eq!(engine.position(), after);
            }
            found.push(batch);
            delivered = engine.stats().delivered;
        }
        assert_eq!(found, expected);
        // A pass that has ended counts the records after its last batch.
        let told = straight.stats().delivered;
        let Delivered { records_failed, records_good, kinds, .. } = delivered;
        assert_eq!(Delivered { records_failed, records_good, kinds, ..told }, delivered);
        assert!(delivered.records_failed <= told.records_failed);
    }
}

#[test]
fn an_endless_pass_over_bad_records_alone_ends() {
    let all_bad = Work { bad_in_100: 100, ..QUICK };
    for (is_shuffled, window) in [(false, 1), (true, 20)] {
        let mut endless = engine(packed(true, is_shuffled, window), all_bad);
        for _ in 0..2 {
            let error = endless.next(SOON).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Exhausted);
            assert!(error.message.contains("none of the 61 records of a stream"), "{error}");
        }
        let mut once = engine(packed(false, is_shuffled, window), all_bad);
        let error = once.next(SOON).unwrap_err();
        assert_eq!(error.kind, ErrorKind::TooMany);
        let rows: u64 = SHARDS.iter().sum();
        assert!(
            error.message.contains(&format!("no good record: {rows} of {rows} records failed")),
            "{error}"
        );
        assert_eq!(once.errors().count() as u64, rows);
    }
}

#[test]
fn impossible_positions_are_refused() {
    let mut engine = engine(packed(true, false, 1), QUICK);
    for error in [
        engine.seek(3).unwrap_err(),
        engine.skip(&[1..2]).unwrap_err(),
        engine.upcoming().unwrap_err(),
        engine.replay(0).map(drop).unwrap_err(),
    ] {
        assert_eq!(error.kind, ErrorKind::Config);
        assert!(error.message.contains("packed"), "{error}");
    }
    engine.seek(0).unwrap();
    batches(&mut engine, 3);
    let good = engine.position();
    let with = |change: fn(&mut StreamPosition)| {
        let mut stream_positions = good.stream_positions.clone().unwrap().to_vec();
        change(&mut stream_positions[1]);
        Position { stream_positions: Some(stream_positions.into()), ..good.clone() }
    };
    for bad in [
        Position { stream_positions: None, ..good.clone() },
        Position { stream_positions: Some(Vec::new().into()), ..good.clone() },
        with(|at| at.draws = 0),
        with(|at| at.draws = u64::MAX),
        with(|at| at.held[0].row = 1 << 40),
    ] {
        assert_eq!(engine.restore(bad).unwrap_err().kind, ErrorKind::State);
    }
    // Found only when the record is read.
    engine.restore(with(|at| at.held[0].used = 1000)).unwrap();
    assert_eq!(engine.next(SOON).unwrap_err().kind, ErrorKind::State);
    engine.restore(good).unwrap();
    assert!(next(&mut engine).is_some());
}

#[test]
fn a_stream_without_rows_is_an_error() {
    let plan = Plan { n_streams: Some(32), batching: Batching::Collator(32), ..packed(true, false, 1) };
    let error = Engine::new(Arc::new(toy(&SHARDS)), Pack(QUICK), plan).map(drop).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Config);
    assert!(error.message.contains("32 packers") && error.message.contains("packer 20"), "{error}");
    assert_eq!(groups(false).stride(6), Stride::Global);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn any_setting_makes_the_same_batches(
        infinite: bool, is_shuffled: bool, window in 0u64..60, seed: u64,
        n_workers in 1usize..5, channel_size in 1usize..20, prefetch in 1usize..5, at in 0usize..12,
    ) {
        let plan = Plan { seed, ..packed(infinite, is_shuffled, window) };
        let expected = batches(&mut engine(plan.clone(), SOME_BAD), 16);
        let plan = Plan { n_workers, channel_size, prefetch_batches: prefetch, ..plan };
        let mut left = engine(plan.clone(), SOME_BAD);
        let first = batches(&mut left, at);
        let mut resumed = engine(plan, SOME_BAD);
        resumed.restore(left.position()).unwrap();
        let rest = batches(&mut resumed, 16 - first.len().min(16));
        prop_assert_eq!([first, rest].concat(), expected);
    }
}
