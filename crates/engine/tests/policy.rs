//! The policy for bad records, on a toy source and a toy task: the same result in every run, with any number
//! of workers.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod toy;

use std::sync::Arc;

use forebay_base::{ErrorKind, seed};
use forebay_engine::{
    engine::{Delivered, Engine, FailureCounts, LISTED, Losses, Lost, MaxErrors, Plan, Policy, Step},
    order::{Batching, Order},
};
use proptest::prelude::*;
use toy::{QUICK, SOON, Toy, Work, batches, engine, next, plan, rows, toy};

/// Whether the toy's stage finds a row bad.
fn is_bad(row: u64, in_100: u64) -> bool {
    seed::mix(row) % 100 < in_100
}

/// Every 13th row is bad by itself, every 29th cannot be read.
fn ailing(row: u64) -> Option<ErrorKind> {
    match row {
        row if row % 29 == 7 => Some(ErrorKind::Io),
        row if row % 13 == 5 => Some(ErrorKind::Truncated),
        _ => None,
    }
}

/// All that a user sees: batches up to an error or the end, at most `n`, the error, and the lists of
/// failures.
type Seen = (Vec<Vec<(u64, u64)>>, Option<String>, Vec<Option<u64>>, Losses);

fn run(engine: &mut Engine<Toy, Work>, n: usize) -> Seen {
    let (mut got, mut ended) = (Vec::new(), None);
    while got.len() < n {
        match engine.next(SOON) {
            Ok(Step::Batch(_, batch)) => got.push(batch),
            Ok(Step::End) => break,
            Ok(Step::TimedOut) => panic!("no batch within {SOON:?}: a deadlock"),
            Err(error) => {
                assert_eq!(
                    engine.next(SOON).unwrap_err().to_string(),
                    error.to_string(),
                    "the error is permanent"
                );
                ended = Some(error.to_string());
                break;
            }
        }
    }
    let listed = engine.errors().map(|error| error.place.index).collect();
    (got, ended, listed, engine.position().lost)
}

fn policies() -> impl Strategy<Value = Policy> {
    let max_errors = prop_oneof![
        Just(None),
        (0i64..30).prop_map(|n| Some(MaxErrors::Count(n))),
        (0.001f64..0.5).prop_map(|share| Some(MaxErrors::Share(share)))
    ];
    let exclude = proptest::collection::btree_set(0u64..120, 0..12);
    (any::<bool>(), any::<bool>(), max_errors, proptest::option::of(1u64..4), exclude).prop_map(
        |(skip_bad, skip_io, max_errors, max_consecutive_errors, exclude)| Policy {
            skip_bad,
            skip_io,
            max_errors,
            max_consecutive_errors,
            exclude: exclude.into_iter().collect(),
            ..Policy::default()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn with_any_policy_a_rank_sees_the_same_whatever_its_workers(
        policy in policies(), seed: u64, infinite: bool, rank in 0u64..3,
        order in prop_oneof![Just(Order::Window), Just(Order::Global), Just(Order::Sequential)],
    ) {
        let mut expected = None;
        for (n_workers, n_readers, channel_size) in [(1, 1, 1), (2, 3, 16), (8, 3, 256)] {
            let source = Toy { unreadable: ailing, ..toy(&[50, 0, 70]) };
            let work = Work { bad_in_100: 4, dawdles: n_workers > 1, ..QUICK };
            let plan = Plan {
                seed, order, infinite, rank, world_size: 3, policy: policy.clone(), n_workers, n_readers, channel_size, ..plan()
            };
            let seen = run(&mut engine(plan, source, work), 30);
            prop_assert_eq!(expected.get_or_insert_with(|| seen.clone()), &seen);
        }
    }

    #[test]
    fn an_excluded_row_changes_batches_as_a_bad_one_does(seed: u64, infinite: bool, window in 1u64..60) {
        let base = Plan { seed, infinite, window, ..plan() };
        let mut replacing = engine(base.clone(), toy(&[50, 70]), Work { bad_in_100: 10, ..QUICK });
        let bad = run(&mut replacing, 40);
        let replaced = replacing.stats().delivered;
        let exclude = (0..120).filter(|&row| is_bad(row, 10)).collect();
        let excluding = Plan { policy: Policy { exclude, ..Policy::default() }, ..base };
        let mut engine = engine(excluding, toy(&[50, 70]), QUICK);
        let excluded = run(&mut engine, 40);
        prop_assert_eq!(&bad.0, &excluded.0);
        prop_assert!(!bad.2.is_empty());
        prop_assert!(excluded.2.is_empty(), "an excluded row is listed as an error: {:?}", excluded.2);
        prop_assert_eq!(engine.stats().records_failed, 0);
        prop_assert!(engine.stats().records_excluded > 0);
        let delivered = engine.stats().delivered;
        let swapped = Delivered {
            records_failed: 0,
            records_excluded: replaced.records_failed,
            kinds: FailureCounts::default(),
            ..replaced
        };
        prop_assert_eq!(delivered, swapped);
        prop_assert!(delivered.records_excluded > 0 || bad.1.is_some());
    }
}

#[test]
fn excluded_rows_are_not_read() {
    let exclude: Arc<[u64]> = (0..100).step_by(10).collect();
    let policy = Policy { exclude, ..Policy::default() };
    let source = Arc::new(toy(&[100]));
    let given = Plan { order: Order::Sequential, policy, ..plan() };
    let mut engine = Engine::new(source.clone(), QUICK, given).unwrap();
    let passed = batches(&mut engine, 100);
    assert_eq!(rows(&passed), (0..100).filter(|row| row % 10 > 0).collect::<Vec<_>>());
    assert_eq!(source.reads.load(std::sync::atomic::Ordering::Relaxed), 90);
    let replayed = engine.replay(3).unwrap().run(|| true).unwrap().unwrap();
    assert_eq!(replayed, passed[3]);
}

#[test]
fn an_exclusion_of_all_rows_is_refused() {
    let policy = Policy { exclude: (0..30).collect(), ..Policy::default() };
    let error = Engine::new(Arc::new(toy(&[10, 20])), QUICK, Plan { policy, ..plan() }).err().unwrap();
    assert_eq!(error.kind, ErrorKind::Config);
    assert!(error.message.contains("all 30 rows are excluded"), "{error}");
}

#[test]
fn a_bad_record_raises_in_its_turn_with_skip_bad_off() {
    let first = (0..100).find(|&row| is_bad(row, 5)).unwrap();
    for n_workers in [1, 2, 8] {
        let policy = Policy { skip_bad: false, ..Policy::default() };
        let given = Plan { order: Order::Sequential, policy, n_workers, ..plan() };
        let mut engine = engine(given, toy(&[40, 60]), Work { bad_in_100: 5, dawdles: true, ..QUICK });
        let (got, ended, listed, _) = run(&mut engine, 100);
        assert_eq!(rows(&got), (0..first / 8 * 8).collect::<Vec<_>>(), "all batches before it");
        assert_eq!(ended.unwrap(), format!("toy, row {first}: a bad one"));
        assert_eq!(listed, [Some(first)]);
        assert_eq!(engine.batch(), first / 8, "the position is before the batch that failed");
    }
}

#[test]
fn records_lost_to_io_errors_are_in_the_state() {
    let lossy = |row| (row % 40 == 3).then_some(ErrorKind::Io);
    let ailing = |skip_io| {
        let policy = Policy { skip_io, ..Policy::default() };
        let source = Toy { unreadable: lossy, ..toy(&[40, 60]) };
        engine(Plan { order: Order::Sequential, policy, ..plan() }, source, QUICK)
    };
    let error = run(&mut ailing(false), 100).1.unwrap();
    assert_eq!(error, "toy, row 3: cannot be read", "raising is the default");
    let mut engine = ailing(true);
    let passed = batches(&mut engine, 7);
    assert_eq!(rows(&passed), (0..56).filter(|row| row % 40 != 3).collect::<Vec<_>>());
    let position = engine.position();
    assert_eq!(position.lost, Losses::from([(0, Lost { records: 2, rows: vec![3, 43] })]));
    // Row 83 may be in a batch made ahead.
    let stats = engine.stats();
    assert!(stats.records_lost >= stats.delivered.records_lost);
    assert_eq!((stats.delivered.records_lost, stats.delivered.records_failed), (2, 0));
    let mut other = ailing(true);
    other.restore(position).unwrap();
    assert_eq!(other.errors().map(|error| error.place.index.unwrap()).collect::<Vec<_>>(), [3, 43]);
    let rest = batches(&mut other, 100);
    assert_eq!(rows(&rest), (56..100).filter(|row| row % 40 != 3).collect::<Vec<_>>());
    assert_eq!(other.position().lost[&0], Lost { records: 3, rows: vec![3, 43, 83] });
}

#[test]
fn more_than_allowed_raise() {
    let bad: Vec<u64> = (0..100).filter(|&row| is_bad(row, 20)).collect();
    let with = |max_errors, infinite| {
        let policy = Policy { max_errors: Some(max_errors), ..Policy::default() };
        let given = Plan { order: Order::Sequential, infinite, policy, ..plan() };
        engine(given, toy(&[40, 60]), Work { bad_in_100: 20, ..QUICK })
    };
    for allowed in [0, 1, 5, bad.len() - 1] {
        let (got, ended, listed, _) = run(&mut with(MaxErrors::Count(allowed as i64), false), 100);
        assert_eq!(got.len() as u64, bad[allowed] / 8);
        let failed = if allowed == 0 { "1 record".to_owned() } else { format!("{} records", allowed + 1) };
        let message = format!("{failed} failed, max_errors allows {allowed}; the last one is corrupt");
        assert!(ended.as_ref().unwrap().starts_with(&message), "{ended:?}");
        assert_eq!(listed, bad[..=allowed].iter().copied().map(Some).collect::<Vec<_>>());
    }
    // The limit is their number, over any number of epochs: a repeated one does not count twice.
    let n_bad = bad.len() as i64;
    assert_eq!(run(&mut with(MaxErrors::Count(n_bad), true), 60).0.len(), 60);
    assert_eq!(run(&mut with(MaxErrors::Share(n_bad as f64 / 100.0 + 0.001), true), 60).0.len(), 60);
    assert!(run(&mut with(MaxErrors::Share(n_bad as f64 / 100.0 - 0.009), false), 60).1.is_some());
}

#[test]
fn too_many_in_a_row_raise() {
    let outage = |row| (20..30).contains(&row).then_some(ErrorKind::Truncated);
    let with = |max_consecutive_errors| {
        let policy = Policy { max_consecutive_errors, ..Policy::default() };
        let given = Plan { order: Order::Sequential, policy, ..plan() };
        engine(given, Toy { unreadable: outage, ..toy(&[40, 60]) }, QUICK)
    };
    assert_eq!(run(&mut with(Some(10)), 100).0.len(), 13);
    let (got, ended, _, _) = run(&mut with(Some(9)), 100);
    assert_eq!(got.len(), 3);
    assert!(
        ended.as_ref().unwrap().starts_with("10 consecutive records failed, max_consecutive_errors allows 9"),
        "{ended:?}"
    );
}

#[test]
fn ranks_have_equal_numbers_of_batches_for_any_failures() {
    let exclude: Arc<[u64]> = (0..37).collect();
    for order in [Order::Sequential, Order::Global, Order::Window] {
        let count = |rank| {
            let policy = Policy { skip_io: true, exclude: exclude.clone(), ..Policy::default() };
            let given = Plan { order, rank, world_size: 3, policy, ..plan() };
            let mut engine = engine(given, Toy { unreadable: ailing, ..toy(&[50, 70]) }, QUICK);
            std::iter::from_fn(|| next(&mut engine)).count()
        };
        assert_eq!([count(0), count(1), count(2)], [5, 5, 5], "{order:?}");
    }
}

/// All rows of the third to the fifth of 13 batches, and of the last.
fn in_bad_batches(row: u64) -> Option<ErrorKind> {
    ((16..40).contains(&row) || row >= 96).then_some(ErrorKind::Truncated)
}

#[test]
fn one_process_leaves_out_a_batch_without_rows_and_its_number_stays() {
    let numbers = [0, 1, 5, 6, 7, 8, 9, 10, 11];
    let bad: Vec<u64> = (16..40).chain(96..100).collect();
    for (n_workers, prefetch_batches) in [(1, 1), (2, 3), (8, 8)] {
        let make = || {
            let given = Plan { order: Order::Sequential, n_workers, prefetch_batches, ..plan() };
            engine(given, Toy { unreadable: in_bad_batches, ..toy(&[40, 60]) }, QUICK)
        };
        let mut whole = make();
        assert_eq!(whole.batches_per_epoch(), 13);
        let mut got = Vec::new();
        let mut positions = Vec::new();
        while let Step::Batch(number, batch) = whole.next(SOON).unwrap() {
            assert_eq!(whole.batch(), number + 1);
            positions.push(whole.position());
            got.push((number, batch));
        }
        assert_eq!(got.iter().map(|&(number, _)| number).collect::<Vec<_>>(), numbers);
        assert_eq!(whole.errors().map(|error| error.place.index.unwrap()).collect::<Vec<_>>(), bad);
        assert_eq!((whole.position().epoch, whole.position().batch), (1, 0));
        assert_eq!(whole.stats().batches, 9);
        // From each position, also from within the batches left out.
        let rest = |engine: &mut Engine<Toy, Work>| {
            std::iter::from_fn(|| match engine.next(SOON).unwrap() {
                Step::Batch(number, batch) => Some((number, batch)),
                Step::End => None,
                Step::TimedOut => panic!("no batch within {SOON:?}"),
            })
            .collect::<Vec<_>>()
        };
        for (at, position) in positions.into_iter().enumerate() {
            let mut resumed = make();
            resumed.restore(position).unwrap();
            assert_eq!(rest(&mut resumed), got[at + 1..]);
        }
        for number in 0..=13 {
            let mut sought = make();
            sought.seek(number).unwrap();
            assert_eq!(sought.batch(), number);
            let from = numbers.partition_point(|&there| there < number);
            assert_eq!(rest(&mut sought), got[from..]);
            // A batch that was taken back comes again, with its number.
            if from < numbers.len() {
                sought.seek(number).unwrap();
                assert!(
                    matches!(sought.next(SOON).unwrap(), Step::Batch(found, _) if found == numbers[from])
                );
                sought.take_back();
                assert_eq!(rest(&mut sought), got[from..]);
            }
        }
        assert_eq!(make().replay(3).unwrap().run(|| true).unwrap().unwrap(), []);
    }
}

#[test]
fn ranks_hand_out_a_batch_without_rows() {
    for rank in 0..2 {
        let given =
            Plan { order: Order::Sequential, batching: Batching::Rows(4), rank, world_size: 2, ..plan() };
        let mut engine = engine(given, Toy { unreadable: in_bad_batches, ..toy(&[40, 60]) }, QUICK);
        let got = batches(&mut engine, 100);
        assert_eq!(got.len(), 13);
        let empty: Vec<_> = (0..13).filter(|&number| got[number].is_empty()).collect();
        assert_eq!(empty, [2, 3, 4, 12], "rank {rank}");
    }
}

#[test]
fn the_list_is_bounded() {
    let hopeless = Work { bad_in_100: 100, ..QUICK };
    let n = LISTED as u64 + 500;
    let given = Plan {
        batching: Batching::Rows(256),
        n_workers: 2,
        buffer_size: 2000,
        order: Order::Sequential,
        ..plan()
    };
    let mut engine = engine(given, toy(&[n]), hopeless);
    assert_eq!(engine.next(SOON).unwrap_err().kind, ErrorKind::TooMany);
    assert_eq!(engine.stats().records_failed, n);
    assert_eq!(engine.errors().count(), LISTED);
    assert_eq!(engine.take_errors().len(), LISTED);
    assert_eq!(engine.errors().count(), 0);
}

#[test]
fn a_finite_pass_without_a_good_record_ends_with_an_error() {
    let given = Plan { infinite: false, drop_last: false, ..plan() };
    let all_bad = Work { bad_in_100: 100, ..QUICK };
    let mut alone = engine(given.clone(), toy(&[50, 70]), all_bad);
    for epoch in 0..2 {
        // Each call until the next pass.
        for _ in 0..2 {
            let error = alone.next(SOON).unwrap_err();
            // The pass is over.
            assert_eq!((error.kind, alone.position().epoch), (ErrorKind::TooMany, epoch + 1));
            assert!(error.message.contains("120 of 120 records failed"), "{error}");
        }
        alone.rewind().unwrap();
    }
    // A rank with few records may have bad ones only, and other ranks good ones.
    for (rows, is_error) in [(40, true), (20, false)] {
        let shared = Plan { world_size: 2, rank: 1, batching: Batching::Rows(5), ..given.clone() };
        let mut engine = engine(shared, toy(&[rows]), all_bad);
        let mut last = engine.next(SOON);
        while let Ok(Step::Batch(..) | Step::TimedOut) = last {
            last = engine.next(SOON);
        }
        assert_eq!(last.is_err(), is_error, "{rows} rows");
    }
    // What the user excludes is no failure.
    let policy = Policy { exclude: (0..119).collect(), ..Policy::default() };
    let mut excluding = engine(Plan { policy, ..given }, toy(&[50, 70]), QUICK);
    assert!(next(&mut excluding).is_some());
    assert!(next(&mut excluding).is_none());
}
