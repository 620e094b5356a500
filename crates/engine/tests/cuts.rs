//! Batches by length: planned chapter by chapter, divided among ranks, resumed before every batch, with bad
//! records in between. The oracles are a reference in plain Python for the plan, the rule in ten lines beside
//! it, and one process that reads from the start.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod toy;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use forebay_base::{
    ErrorKind,
    seed::{Purpose, hash, mix},
};
use forebay_engine::{
    engine::{CutPosition, Engine, MixturePlan, Plan, Position, Step, StreamLayout},
    order::{
        Batching, Bins, BucketLimit, Buckets, Budget, Chapter, ChapterRules, Length, Lengths, Order, Stop,
        Stretch, WeightStage, WeightedRows,
    },
};
use proptest::prelude::*;
use toy::{QUICK, SOON, Toy, Work, batches, engine, next, plan, toy};

type Batch = Vec<(u64, u64)>;

const SHARDS: [u64; 4] = [61, 0, 107, 72];
const STARTS: [u64; 3] = [0, 168, 240];
const N: u64 = 240;
/// Canonical streams.
const STREAMS: u64 = 4;
/// Draws of a chapter: three and a bit in an epoch.
const CHAPTER: u64 = 70;
const BUDGET: Budget =
    Budget { max_duration: 40.0, quadratic_duration: Some(90.0), max_examples: Some(9), max_tokens: None };
const SOME_BAD: Work = Work { bad_in_100: 6, dawdles: true, ..QUICK };

/// Seconds of a row: 1 to 20.
fn seconds(row: u64) -> f32 {
    1.0 + (mix(row) % 19_000) as f32 / 1000.0
}

fn stretched(stretch: Option<Stretch>) -> Buckets {
    let lengths: Arc<[f32]> = (0..N).map(seconds).collect();
    Buckets::new(lengths.into(), BUDGET, Bins::Number(5), stretch).unwrap().in_chapters(CHAPTER)
}

fn buckets() -> Buckets {
    stretched(None)
}

/// A plan for each order, finite and infinite, with and without weights.
fn plans() -> Vec<Plan> {
    let orders = [Order::Sequential, Order::Window, Order::Global, Order::Era { length: 50 }];
    let mut plans = Vec::new();
    for infinite in [false, true] {
        let base = Plan {
            infinite,
            batching: Batching::Cuts(Arc::new(buckets())),
            n_streams: Some(STREAMS),
            ..plan()
        };
        plans.extend(orders.map(|order| Plan { order, ..base.clone() }));
        let stop = if infinite { Stop::Restart } else { Stop::AllExhausted };
        let stages = vec![WeightStage { start: 0, weights: vec![0.7, 0.3] }];
        let mixture = Some(MixturePlan { stages, block: 16, stop, starts: STARTS.to_vec() });
        plans.push(Plan { order: Order::Global, mixture, ..base });
    }
    let weighted: Vec<Plan> = plans.iter().map(weighted).collect();
    plans.into_iter().chain(weighted).collect()
}

fn weighted(plan: &Plan) -> Plan {
    let starts = plan.mixture.as_ref().map_or(vec![0, N], |mixture| mixture.starts.clone());
    let weights = starts.windows(2).map(|part| {
        let weights: Vec<f64> =
            (part[0]..part[1]).map(|row| [0.0, 1.0, 0.3, 2.5][row as usize % 4]).collect();
        Arc::new(WeightedRows::new(&weights, weights.len() as u64).unwrap())
    });
    Plan { weights: Some(weights.collect()), ..plan.clone() }
}

/// An engine of one of `world` ranks, which takes the streams of a first start with one.
fn rank(plan: &Plan, rank: u64, world: u64, work: Work) -> Engine<Toy, Work> {
    let of_rank = Plan { rank, world_size: world, ..plan.clone() };
    let mut engine = engine(of_rank, toy(&SHARDS), work);
    let layout = StreamLayout { n_streams: STREAMS, world_size: 1 };
    let position = Position { layout, ..engine.position() };
    engine.restore(position).unwrap();
    engine
}

/// The next `n` batches; a finite engine continues with its next pass.
fn on(engine: &mut Engine<Toy, Work>, n: usize) -> Vec<Batch> {
    let mut got = Vec::new();
    while got.len() < n {
        match next(engine) {
            Some(batch) => got.push(batch),
            None => engine.rewind().unwrap(),
        }
    }
    got
}

/// The batches of all ranks in the order of one process: step by step, each rank's streams in turn.
fn together(parts: &[Vec<Batch>]) -> Vec<Batch> {
    let share = STREAMS as usize / parts.len();
    let steps = parts[0].len() / share;
    (0..steps)
        .flat_map(|step| parts.iter().flat_map(move |part| part[step * share..(step + 1) * share].to_vec()))
        .collect()
}

fn cost(batch: &Batch) -> f64 {
    let longest = batch.iter().map(|&(row, _)| seconds(row)).fold(0.0, f32::max);
    batch.len() as f64 * BUDGET.cost(longest.into())
}

/// The rule in words, with full steps in the order in which they fill.
fn oracle(
    buckets: &Buckets,
    budget: Budget,
    lengths: &[Length],
    n_streams: usize,
    keeps_rest: bool,
) -> (usize, Vec<Vec<u32>>) {
    let mut held: Vec<Vec<u32>> = vec![Vec::new(); buckets.limits().len()];
    let mut steps = Vec::new();
    for (draw, length) in lengths.iter().enumerate() {
        let seconds = f64::from(length.seconds);
        let bin = *buckets.bins().iter().find(|&&bound| seconds <= bound).unwrap();
        let is_of = |limit: &BucketLimit| limit.seconds == bin && length.tokens <= limit.tokens;
        let k = buckets.limits().iter().position(is_of).unwrap();
        held[k].push(draw as u32);
        if held[k].len() == buckets.sizes()[k] as usize * n_streams {
            steps.push(std::mem::take(&mut held[k]));
        }
    }
    let n_full = steps.len();
    let mut rest = held.concat();
    let of = |draw: u32| lengths[draw as usize];
    // Classes of lengths: 32 in each octave.
    let class = |draw: u32| {
        let octave = of(draw).seconds.log2().floor();
        (octave as i64, (of(draw).seconds / octave.exp2() * 32.0) as i64)
    };
    rest.sort_by(|&a, &b| class(b).cmp(&class(a)).then(a.cmp(&b)));
    while !rest.is_empty() {
        let most = |n: usize| {
            let longest = rest[..n].iter().map(|&draw| of(draw).seconds).fold(0.0, f32::max);
            let tokens = rest[..n].iter().map(|&draw| u64::from(of(draw).tokens)).max().unwrap();
            let by_tokens = budget.max_tokens.map_or(u64::MAX, |most| most / tokens.max(1));
            u64::from(budget.rows(longest.into())).min(by_tokens) as usize * n_streams
        };
        let mut n = (budget.rows(of(rest[0]).seconds.into()) as usize * n_streams).min(rest.len());
        while n > most(n) {
            n = most(n);
        }
        if n < n_streams && !keeps_rest {
            break;
        }
        steps.push(rest.drain(..n).collect());
    }
    (n_full, steps)
}

#[test]
fn chapters_equal_those_of_the_reference() {
    let text =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/order/buckets.json"));
    let file: serde_json::Value = serde_json::from_str(&text.unwrap()).unwrap();
    let cases = file["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 12);
    for case in cases {
        let numbers = |name: &str| -> Vec<f64> {
            case[name].as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
        };
        let budget = Budget {
            max_duration: case["max_duration"].as_f64().unwrap(),
            quadratic_duration: case["quadratic_duration"].as_f64(),
            max_examples: case["max_examples"].as_u64().map(|n| n as u32),
            max_tokens: None,
        };
        let lengths: Vec<f32> = numbers("lengths").iter().map(|&length| length as f32).collect();
        let n = case["num_buckets"].as_u64().unwrap() as usize;
        let given: Arc<[f32]> = lengths.clone().into();
        let buckets = Buckets::new(given.into(), budget, Bins::Number(n), None).unwrap();
        assert_eq!(buckets.bins(), numbers("bounds"));
        assert_eq!(buckets.sizes().iter().map(|&n| f64::from(n)).collect::<Vec<_>>(), numbers("sizes"));
        let n_streams = case["n_streams"].as_u64().unwrap();
        let keeps_rest = case["keeps_rest"].as_bool().unwrap();
        let rules = ChapterRules { n_streams, keeps_rest, keeps_order: true };
        let draws: Vec<u64> = numbers("draws").iter().map(|&row| row as u64).collect();
        let chapters = case["chapters"].as_array().unwrap();
        let parts = draws.chunks(case["chapter"].as_u64().unwrap() as usize);
        assert_eq!(parts.len(), chapters.len());
        for (draws, expected) in parts.zip(chapters) {
            let of_draws: Vec<Length> = draws.iter().map(|&row| buckets.length(row)).collect();
            let chapter = Chapter::new(&buckets, of_draws.clone(), rules, |_| |i| i);
            let rows = |step: usize, stream: u64| -> Vec<u64> {
                let draw = chapter.step(step).iter().skip(stream as usize).step_by(n_streams as usize);
                draw.map(|&draw| draws[draw as usize]).collect()
            };
            let steps: Vec<Vec<Vec<u64>>> = (0..chapter.n_steps())
                .map(|step| (0..n_streams).map(|stream| rows(step, stream)).collect())
                .collect();
            let reference: Vec<Vec<Vec<u64>>> = serde_json::from_value(expected.clone()).unwrap();
            let (n_full, _) = oracle(&buckets, budget, &of_draws, n_streams as usize, keeps_rest);
            assert_eq!(steps[..n_full], reference[..n_full]);
            // The order of the last ones is drawn there.
            let sorted = |steps: &[Vec<Vec<u64>>]| {
                let mut steps = steps.to_vec();
                steps.sort_unstable();
                steps
            };
            assert_eq!(sorted(&steps[n_full..]), sorted(&reference[n_full..]));
        }
    }
}

proptest! {
    #[test]
    fn a_chapter_follows_the_rule(
        seed: u64,
        n in 1usize..400,
        k in 1usize..12,
        n_streams in 1u64..9,
        keeps_rest: bool,
        keeps_order: bool,
        token_bins in proptest::option::of(1usize..5),
        max_tokens in 60u64..400,
    ) {
        let seconds: Arc<[f32]> = (0..n as u64).map(|i| seconds(seed.wrapping_add(i))).collect();
        // Up to three tokens a second, and some rows without a text.
        let tokens = |i: u64| (mix(seed ^ i) % 7) as u32 * seconds[i as usize] as u32 / 2;
        let tokens = token_bins.map(|bins| ((0..n as u64).map(tokens).collect(), bins));
        let budget = Budget { max_tokens: tokens.as_ref().map(|_| max_tokens), ..BUDGET };
        let buckets = Buckets::new(Lengths { seconds, tokens }, budget, Bins::Number(k), None).unwrap();
        let lengths: Vec<Length> = (0..n as u64).map(|row| buckets.length(row)).collect();
        let rules = ChapterRules { n_streams, keeps_rest, keeps_order };
        let chapter = Chapter::new(&buckets, lengths.clone(), rules, |n| move |i| n - 1 - i);
        let (n_full, mut steps) = oracle(&buckets, budget, &lengths, n_streams as usize, keeps_rest);
        steps[if keeps_order { n_full } else { 0 }..].reverse();
        let own: Vec<Vec<u32>> = (0..chapter.n_steps()).map(|step| chapter.step(step).to_vec()).collect();
        prop_assert_eq!(&own, &steps);
        let mut seen: Vec<u32> = own.concat();
        seen.sort_unstable();
        seen.dedup();
        let left = n - seen.len();
        prop_assert!(left == 0 || !keeps_rest && left < n_streams as usize, "{} of {} draws are in no step", left, n);
        for (step, draws) in own.iter().enumerate() {
            let limit = chapter.limit(step);
            let fits = |draw: u32| {
                let length = lengths[draw as usize];
                f64::from(length.seconds) <= limit.seconds && length.tokens <= limit.tokens
            };
            for stream in 0..n_streams {
                let rows = chapter.rows(step, stream, n_streams);
                prop_assert_eq!(rows as usize, draws.iter().skip(stream as usize).step_by(n_streams as usize).count());
                prop_assert!(f64::from(rows) * budget.cost(limit.seconds) <= budget.max_duration * (1.0 + 1e-6));
                prop_assert!(u64::from(rows) * u64::from(limit.tokens) <= max_tokens);
                prop_assert!(rows <= buckets.most_rows());
            }
            for (&draw, attempt) in draws.iter().zip(0..) {
                prop_assert!(fits(draw));
                let random = hash(seed, Purpose::Substitute, [attempt]);
                prop_assert!(fits(chapter.substitute(&buckets, step, (draw, attempt % 2 == 1), random)));
            }
        }
    }
}

#[test]
fn sizes_that_are_given_are_kept() {
    let lengths: Arc<[f32]> = (0..N).map(seconds).collect();
    let bins = vec![(5.0, 12), (12.5, 4), (30.0, 2)];
    let unbounded = Budget {
        max_duration: f64::INFINITY,
        quadratic_duration: None,
        max_examples: None,
        max_tokens: None,
    };
    let buckets = Buckets::new(lengths.clone().into(), unbounded, Bins::Sized(bins.clone()), None).unwrap();
    assert_eq!((buckets.sizes(), buckets.most_rows()), (&[12, 4, 2][..], 12));
    assert_eq!(buckets.most_seconds(), 60.0);
    let of_draws: Vec<Length> = (0..N).map(|row| buckets.length(row)).collect();
    let rules = ChapterRules { n_streams: 2, keeps_rest: true, keeps_order: false };
    let chapter = Chapter::new(&buckets, of_draws, rules, |_| |i| i);
    for step in 0..chapter.n_steps() {
        let bin = bins.iter().position(|(bound, _)| chapter.limit(step).seconds <= *bound).unwrap();
        assert!(chapter.rows(step, 0, 2) <= bins[bin].1);
    }
    // With a budget the smaller size counts.
    let bounded = Buckets::new(lengths.clone().into(), BUDGET, Bins::Sized(bins), None).unwrap();
    assert_eq!(bounded.sizes(), [7, 2, 1]);
    let few = Buckets::new(lengths.into(), unbounded, Bins::Sized(vec![(5.0, 3)]), None).unwrap_err();
    assert!(
        few.message.contains("longer than the last of duration_bins, 5, which has no batch size"),
        "{few}"
    );
}

#[test]
fn a_text_that_is_too_long_is_named() {
    let lengths = Lengths { seconds: [1.0, 2.0].into(), tokens: Some(([3, 41].into(), 2)) };
    let budget = Budget { max_tokens: Some(40), ..BUDGET };
    let error = Buckets::new(lengths, budget, Bins::Number(2), None).unwrap_err();
    assert!(error.message.contains("row 1 has 41 tokens, which alone exceed max_tokens=40"), "{error}");
}

#[test]
fn ranks_side_by_side_are_one_process() {
    for plan in plans() {
        let n = 60;
        let alone = on(&mut rank(&plan, 0, 1, SOME_BAD), n);
        if plan.infinite {
            for world in [1, 2, 4] {
                let parts: Vec<Vec<Batch>> = (0..world)
                    .map(|number| on(&mut rank(&plan, number, world, SOME_BAD), n / world as usize))
                    .collect();
                assert_eq!(together(&parts), alone, "{world} ranks of {plan:?}");
            }
            continue;
        }
        // Two passes; one process leaves out batches without rows.
        let filled = |batches: Vec<Batch>| -> Vec<Batch> {
            batches.into_iter().filter(|batch| !batch.is_empty()).collect()
        };
        for world in [2, 4] {
            let mut passes = Vec::new();
            let mut ranks: Vec<_> = (0..world).map(|number| rank(&plan, number, world, SOME_BAD)).collect();
            while passes.len() < n {
                let parts: Vec<Vec<Batch>> = ranks.iter_mut().map(|rank| batches(rank, usize::MAX)).collect();
                assert!(parts.iter().all(|part| part.len() == parts[0].len()), "{plan:?}");
                assert_eq!(parts[0].len() as u64, ranks[0].batches_per_epoch());
                passes.extend(filled(together(&parts)));
                ranks.iter_mut().for_each(|rank| rank.rewind().unwrap());
            }
            assert_eq!(passes[..n], alone, "{world} ranks of {plan:?}");
        }
    }
}

#[test]
fn threads_change_no_batch() {
    for plan in plans() {
        let one = on(&mut rank(&Plan { n_workers: 1, n_readers: 1, ..plan.clone() }, 0, 1, SOME_BAD), 50);
        for n_workers in [2, 8] {
            let given = Plan { n_workers, n_readers: 1 + n_workers, ..plan.clone() };
            assert_eq!(on(&mut rank(&given, 0, 1, SOME_BAD), 50), one, "{n_workers} workers of {plan:?}");
        }
    }
}

#[test]
fn no_batch_exceeds_the_budget_and_its_memory_is_known() {
    for plan in plans() {
        let most = plan.batching.most_rows();
        for batch in on(&mut rank(&plan, 0, 1, SOME_BAD), 120) {
            assert!(!batch.is_empty() && batch.len() <= most);
            assert!(cost(&batch) <= BUDGET.max_duration * (1.0 + 1e-9), "{} in {batch:?}", cost(&batch));
        }
    }
}

#[test]
fn an_epoch_has_each_draw_once() {
    for plan in plans().into_iter().filter(|plan| plan.mixture.is_none()) {
        let mut whole = rank(&plan, 0, 1, QUICK);
        let mut counts = BTreeMap::new();
        if plan.infinite {
            // Fewer than one row a stream is left out at the end of each chapter.
            while whole.epoch() == 0 {
                next(&mut whole).unwrap().iter().for_each(|(row, _)| *counts.entry(*row).or_insert(0) += 1);
            }
        } else {
            batches(&mut whole, usize::MAX)
                .iter()
                .flatten()
                .for_each(|(row, _)| *counts.entry(*row).or_insert(0) += 1);
        }
        let n: u64 = counts.values().sum();
        let most_left = if plan.infinite { 4 * (STREAMS - 1) } else { 0 };
        // The last batch of an infinite epoch may be the first of the next one.
        assert!(n <= N + 9 && n >= N - most_left, "{n} of {N}: {plan:?}");
        if plan.weights.is_none() && !plan.infinite {
            assert!(counts.len() == N as usize && counts.values().all(|&count| count == 1), "{plan:?}");
        }
    }
}

#[test]
fn a_pass_that_drops_the_rest_has_no_stream_without_rows() {
    for plan in plans().into_iter().filter(|plan| !plan.infinite && plan.mixture.is_none()) {
        let plan = Plan { drop_last: true, ..plan };
        let parts: Vec<Vec<Batch>> =
            (0..4).map(|number| batches(&mut rank(&plan, number, 4, QUICK), usize::MAX)).collect();
        assert!(parts.iter().flatten().all(|batch| !batch.is_empty()));
        let n: usize = parts.iter().flatten().map(Vec::len).sum();
        assert!(n as u64 > N - 4 * STREAMS && n as u64 <= N, "{n}");
    }
}

#[test]
fn a_replayed_batch_and_the_plan_equal_the_loader() {
    for plan in plans() {
        let mut whole = rank(&plan, 0, 1, SOME_BAD);
        // Batches without rows are left out, and have numbers.
        let mut all = Vec::new();
        while let Step::Batch(number, batch) = whole.next(SOON).unwrap() {
            all.push((number, batch));
            if all.len() == 40 {
                break;
            }
        }
        for (number, batch) in all {
            let replayed = whole.replay(number).unwrap().run(|| true).unwrap();
            assert_eq!(replayed.as_ref(), Some(&batch), "batch {number} of {plan:?}");
        }
        let mut good = rank(&plan, 0, 1, QUICK);
        let upcoming = good.upcoming().unwrap().rows(150, || true).unwrap().unwrap();
        let rows: Vec<i64> = on(&mut good, 120).iter().flatten().map(|&(row, _)| row as i64).collect();
        assert!(rows.len() >= 150);
        assert_eq!(upcoming, rows[..150], "{plan:?}");
    }
}

#[test]
fn a_pass_continues_before_every_batch() {
    for plan in plans() {
        let mut whole = rank(&plan, 0, 1, SOME_BAD);
        let mut all = Vec::new();
        let mut positions = vec![whole.position()];
        while all.len() < 44 {
            match next(&mut whole) {
                Some(batch) => all.push(batch),
                None => break,
            }
            positions.push(whole.position());
        }
        let n = all.len();
        let mut again = rank(&plan, 0, 1, SOME_BAD);
        for at in (0..n).rev() {
            again.restore(positions[at].clone()).unwrap();
            // A resume of a resume.
            let first = next(&mut again).unwrap();
            assert_eq!(first, all[at], "before batch {at} of {plan:?}");
            let position = again.position();
            again.restore(position).unwrap();
            assert_eq!(batches(&mut again, 2.min(n - at - 1)), all[at + 1..n.min(at + 3)], "{plan:?}");
        }
    }
}

#[test]
fn other_numbers_of_ranks_continue_between_steps() {
    for plan in plans().into_iter().filter(|plan| plan.infinite) {
        let (n, share) = (48, |world: u64| (STREAMS / world) as usize);
        let alone = on(&mut rank(&plan, 0, 1, SOME_BAD), n);
        for (first, second) in [(1, 2), (1, 4), (2, 4), (4, 2), (2, 1), (4, 1)] {
            for step in [0, 1, 3, 5, 8] {
                let mut before = rank(&plan, 0, first, SOME_BAD);
                on(&mut before, step * share(first));
                let position = before.position();
                let parts: Vec<Vec<Batch>> = (0..second)
                    .map(|number| {
                        let mut rank = rank(&plan, number, second, SOME_BAD);
                        rank.restore(position.clone()).unwrap();
                        on(&mut rank, (n / STREAMS as usize - step) * share(second))
                    })
                    .collect();
                assert_eq!(
                    together(&parts),
                    alone[step * STREAMS as usize..],
                    "{first} to {second} ranks: {plan:?}"
                );
            }
            if share(first) > 1 {
                let mut before = rank(&plan, 0, first, SOME_BAD);
                on(&mut before, 1);
                let error = rank(&plan, 0, second, SOME_BAD).restore(before.position()).unwrap_err();
                assert_eq!(error.kind, ErrorKind::State);
                let told =
                    error.message.contains(&format!("world_size={first}, or save after a multiple of"));
                assert!(told, "{error}");
            }
        }
    }
}

#[test]
fn seek_skip_and_an_earlier_batch_after_a_resume() {
    let plan = plans().into_iter().find(|plan| plan.infinite && plan.order == Order::Global).unwrap();
    let mut whole = rank(&plan, 0, 1, SOME_BAD);
    let all = on(&mut whole, 90);
    let late = whole.position();
    let mut again = rank(&plan, 0, 1, SOME_BAD);
    again.restore(late).unwrap();
    again.seek(7).unwrap();
    assert_eq!(on(&mut again, 3), all[7..10]);
    again.skip(&[10..60, 62..64]).unwrap();
    assert_eq!(on(&mut again, 3), [all[60].clone(), all[61].clone(), all[64].clone()]);
    assert_eq!(again.replay(2).unwrap().run(|| true).unwrap().unwrap(), all[2]);
    // Far away, chapters would be planned for hours.
    let error = again.seek(1 << 40).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Config);
    assert!(error.message.contains("chapters"), "{error}");
    assert_eq!(on(&mut again, 1), all[65..66]);
}

#[test]
fn impossible_states_are_refused() {
    for infinite in [false, true] {
        let plan = plans().into_iter().find(|plan| plan.infinite == infinite && plan.order == Order::Global);
        let mut whole = rank(&plan.unwrap(), 0, 1, QUICK);
        on(&mut whole, 30);
        let good = whole.position();
        let cut = good.cut.unwrap();
        let with = |of: fn(&mut CutPosition)| {
            let mut cut = cut;
            of(&mut cut);
            Position { cut: Some(cut), ..good.clone() }
        };
        let wrong = [
            with(|cut| cut.start.chapter = u64::MAX),
            with(|cut| cut.start.chapter = 1 << 41),
            with(|cut| cut.start.steps = u64::MAX),
            with(|cut| cut.start.steps += 100),
            with(|cut| cut.world_size = 0),
            with(|cut| cut.world_size = 3),
            Position { batch: 1 << 40, ..good.clone() },
        ];
        for position in wrong {
            let error = whole.restore(position.clone()).unwrap_err();
            assert_eq!(error.kind, ErrorKind::State, "{position:?}: {error}");
        }
        // It goes on as if nothing was tried.
        assert!(next(&mut whole).is_some());
    }
}

#[test]
fn bad_lengths_bounds_and_budgets_are_named() {
    let of = |lengths: &[f32], budget, bounds: &[f64]| {
        let lengths: Arc<[f32]> = lengths.into();
        Buckets::new(lengths.into(), budget, Bins::Bounds(bounds.to_vec()), None)
    };
    for (lengths, budget, bounds, named) in [
        (&[1.0, f32::NAN][..], BUDGET, &[2.0][..], "the length of row 1 is NaN"),
        (&[0.0, 1.0], BUDGET, &[2.0], "row 0 is 0 s"),
        (&[1.0, 5.0], BUDGET, &[4.0, 3.0], "4 is followed by 3"),
        (&[1.0, 5.0], BUDGET, &[1.0, f64::NAN], "1 is followed by NaN"),
        (&[1.0, 50.0], BUDGET, &[10.0], "a row of 50 s alone exceeds max_duration=40"),
        (&[1.0], Budget { max_duration: f64::NAN, ..BUDGET }, &[], "max_duration is NaN"),
        (&[1.0], Budget { quadratic_duration: Some(0.0), ..BUDGET }, &[], "quadratic_duration is Some(0.0)"),
    ] {
        let error = of(lengths, budget, bounds).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Config);
        assert!(error.message.contains(named), "{error}");
    }
    // Bins beyond the longest row have no rows, and cost nothing.
    let buckets = of(&[1.0, 12.0], BUDGET, &[5.0, 30.0, 60.0]).unwrap();
    assert_eq!(buckets.bins(), [5.0, 12.0]);
    let few = Plan { batching: Batching::Cuts(Arc::new(buckets)), ..plan() };
    let error = Engine::new(Arc::new(toy(&SHARDS)), QUICK, few).err().unwrap();
    assert_eq!(error.message, "there are 2 lengths for 240 rows");
}

#[test]
fn the_speed_and_the_counts_are_those_of_any_loader() {
    let plan = plans().into_iter().find(|plan| plan.infinite && plan.order == Order::Window).unwrap();
    let mut whole = rank(&plan, 0, 1, SOME_BAD);
    let got = on(&mut whole, 30);
    let stats = whole.stats();
    assert_eq!(stats.delivered.examples, got.iter().map(Vec::len).sum::<usize>() as u64);
    assert!(stats.delivered.substitutes > 0 && stats.delivered.records_failed > 0);
    let (headspace, _) = whole.headspace(Duration::from_millis(50), || true, Vec::len).unwrap().unwrap();
    assert!(headspace.examples > 0 && headspace.decoded > 0);
}

/// How much longer a draw with these bits is: one of three factors.
fn factor(bits: u64) -> f64 {
    [0.8, 1.0, 1.25][(mix(bits) % 3) as usize]
}

#[test]
fn stretched_draws_keep_the_budget() {
    for plan in plans() {
        for work in [QUICK, SOME_BAD] {
            let stretched = stretched(Some(Stretch::new(factor, [0.8, 1.25])));
            let plan = Plan { batching: Batching::Cuts(Arc::new(stretched)), ..plan.clone() };
            let mut one = rank(&plan, 0, 1, work);
            let got = on(&mut one, 60);
            let mut factors = BTreeMap::new();
            for batch in &got {
                let lengths = batch.iter().map(|&(row, bits)| f64::from(seconds(row)) * factor(bits));
                let longest = lengths.fold(0.0, f64::max);
                assert!(batch.len() as f64 * BUDGET.cost(longest) <= BUDGET.max_duration * (1.0 + 1e-6));
                for &(_, bits) in batch {
                    *factors.entry((100.0 * factor(bits)) as u32).or_insert(0) += 1;
                }
            }
            assert_eq!(factors.len(), 3, "{factors:?}");
            // The plan depends on the draws' bits, which follow from seed, epoch and row.
            let mut again = rank(&plan, 0, 1, work);
            assert_eq!(on(&mut again, 60), got);
        }
    }
}
