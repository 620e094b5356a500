//! Compares mixtures with a simple simulation, position by position.

use super::*;
use proptest::prelude::*;

fn stages(all: &[(u64, &[f64])]) -> Vec<WeightStage> {
    all.iter().map(|&(start, weights)| WeightStage { start, weights: weights.to_vec() }).collect()
}

fn constant(weights: &[f64]) -> Vec<WeightStage> {
    stages(&[(0, weights)])
}

/// The oracle: computes all blocks from the first, with a list of places and a counter per source.
fn simulate(seed: u64, stages: &[WeightStage], block: u64, n: usize) -> Vec<(usize, u64)> {
    let mut next = vec![0; stages[0].weights.len()];
    let mut stream = Vec::new();
    for number in 0.. {
        if stream.len() >= n {
            break;
        }
        let weights = &stages.iter().rfind(|stage| stage.start <= number * block).unwrap().weights;
        let places: Vec<usize> = divide(weights, block)
            .into_iter()
            .enumerate()
            .flat_map(|(source, count)| vec![source; count])
            .collect();
        let order = Bijection::new(seed, Purpose::MixtureBlock, [number, 0], block);
        for position in 0..block {
            let source = places[order.at(position) as usize];
            stream.push((source, next[source]));
            next[source] += 1;
        }
    }
    stream.truncate(n);
    stream
}

/// Largest remainder, one place after the other.
fn divide(weights: &[f64], block: u64) -> Vec<usize> {
    let sum: f64 = weights.iter().sum();
    let mut shares: Vec<f64> = weights.iter().map(|weight| weight / sum * block as f64).collect();
    let mut counts = vec![0; weights.len()];
    for _ in 0..block {
        // A whole place is worth more than any remainder; values that differ only by rounding are equal.
        let rank = |share: f64| if share > 1.0 - 1e-6 { 1.0 } else { share };
        let mut best = 0;
        for source in 1..shares.len() {
            if rank(shares[source]) > rank(shares[best]) + 1e-6 {
                best = source;
            }
        }
        shares[best] -= 1.0;
        counts[best] += 1;
    }
    counts
}

fn message(stages: &[WeightStage], block: u64, stop: Stop, lengths: &[u64]) -> String {
    let error = Mixture::new(0, stages, block, stop, lengths).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Config);
    error.to_string()
}

#[test]
fn places_by_largest_remainder() {
    assert_eq!(share(&[0.5, 0.3, 0.2], 256), [128, 77, 51]);
    assert_eq!(share(&[1.0, 1.0, 1.0], 256), [86, 85, 85], "equal remainders: the first");
    assert_eq!(share(&[3.0, 1.0], 2), [2, 0], "1.5 and 0.5: the first");
    assert_eq!(share(&[0.0, 7.0, 0.0], 5), [0, 5, 0]);
    // 0.1 + 0.2 is more than 0.3 in binary.
    assert_eq!(share(&[0.1 + 0.2, 0.3, 0.3 - 1e-16], 10), [4, 3, 3]);
    assert_eq!(share(&[f64::MIN_POSITIVE, f64::MIN_POSITIVE], 3), [2, 1]);
    assert_eq!(share(&[1e308, 5e307], 3), [2, 1]);
}

#[test]
fn a_known_stream() {
    let mut mixture = Mixture::new(1, &constant(&[0.5, 0.25, 0.25]), 8, Stop::Restart, &[9, 9, 9]).unwrap();
    let stream: Vec<_> = (0..10).map(|position| mixture.at(position)).collect();
    assert_eq!(stream, GOLDEN);
}
/// From the same formulas written in Python.
const GOLDEN: [(usize, u64); 10] =
    [(0, 0), (0, 1), (2, 0), (2, 1), (1, 0), (0, 2), (0, 3), (1, 1), (1, 2), (2, 2)];

/// One to four stages of small whole weights over one to four sources, in blocks that are large enough.
fn mixtures() -> impl Strategy<Value = (Vec<WeightStage>, u64)> {
    (1usize..5, 1usize..5, 40u64..90).prop_flat_map(|(sources, n_stages, block)| {
        let weights = proptest::collection::vec(0u8..6, sources)
            .prop_filter("no weight", |weights| weights.iter().any(|&weight| weight > 0));
        let gaps = proptest::collection::vec(1u64..5, n_stages);
        (proptest::collection::vec(weights, n_stages), gaps).prop_map(move |(weights, gaps)| {
            let mut start = 0;
            let stage = |(weights, gap): (Vec<u8>, u64)| {
                let stage = WeightStage { start, weights: weights.into_iter().map(f64::from).collect() };
                start += gap * block;
                stage
            };
            (weights.into_iter().zip(gaps).map(stage).collect(), block)
        })
    })
}

proptest! {
    #[test]
    fn is_the_simulation(seed: u64, (stages, block) in mixtures(), jumps in proptest::collection::vec(0u64..2000, 20)) {
        let lengths = vec![17; stages[0].weights.len()];
        let mut mixture = Mixture::new(seed, &stages, block, Stop::Restart, &lengths).unwrap();
        let expected = simulate(seed, &stages, block, 2000);
        for position in jumps.into_iter().chain(0..2000) {
            prop_assert_eq!(mixture.at(position), expected[position as usize], "at {}", position);
        }
    }

    #[test]
    fn what_was_asked_before_does_not_matter(
        seed: u64, (stages, block) in mixtures(), asked in proptest::collection::vec((0u64..3000, 0u64..3), 40),
    ) {
        let new = || Mixture::new(seed, &stages, block, Stop::Restart, &vec![1; stages[0].weights.len()]).unwrap();
        let (mut mixture, mut keeping) = (new(), new().keeping_blocks());
        let kept = Mixture::KEPT_BLOCKS * block;
        for (position, turn) in asked {
            let position = position + turn * kept;
            let expected = new().at(position);
            prop_assert_eq!(mixture.at(position), expected, "at {}", position);
            prop_assert_eq!(keeping.at(position), expected, "at {}", position);
        }
    }

    #[test]
    fn sources_give_their_samples_in_order((stages, block) in mixtures()) {
        let mut mixture = Mixture::new(5, &stages, block, Stop::Restart, &vec![1; stages[0].weights.len()]).unwrap();
        let mut next = vec![0; stages[0].weights.len()];
        for position in 0..1000 {
            prop_assert_eq!(&mixture.taken(position), &next);
            let (source, sample) = mixture.at(position);
            prop_assert_eq!(sample, next[source]);
            next[source] += 1;
        }
    }

    #[test]
    fn counts_are_within_one_of_the_share(weights in proptest::collection::vec(0.0f64..1.0, 1..20), block in 1u64..70_000) {
        let sum: f64 = weights.iter().sum();
        prop_assume!(sum > 0.0);
        let counts = share(&weights, block);
        prop_assert_eq!(counts.iter().sum::<u64>(), block);
        for (weight, &count) in weights.iter().zip(&counts) {
            let share = weight / sum * block as f64;
            prop_assert!((count as f64 - share).abs() < 1.0 + 1e-8, "{} of {}", count, share);
        }
    }

    #[test]
    fn ends_with_a_last_sample(seed: u64, (stages, block) in mixtures(), lengths in proptest::collection::vec(1u64..300, 4)) {
        let lengths = &lengths[..stages[0].weights.len()];
        let stream = simulate(seed, &stages, block, 40_000);
        let end = |source: usize| stream.iter().position(|&pick| pick == (source, lengths[source] - 1));
        let used = (0..lengths.len()).filter(|&source| stages.iter().any(|stage| stage.weights[source] > 0.0));
        let ends: Vec<Option<usize>> = used.map(end).collect();

        let first = Mixture::new(seed, &stages, block, Stop::FirstExhausted, lengths).unwrap();
        prop_assert_eq!(first.len(), ends.iter().flatten().min().map(|&end| end as u64 + 1));
        let all = Mixture::new(seed, &stages, block, Stop::AllExhausted, lengths);
        if ends.iter().any(Option::is_none) {
            prop_assert!(all.unwrap_err().to_string().contains("is never exhausted"));
        } else {
            prop_assert_eq!(all.unwrap().len(), ends.iter().flatten().max().map(|&end| end as u64 + 1));
        }
    }
}

#[test]
fn the_largest_block_is_whole() {
    let block = Mixture::MAX_BLOCK;
    for (weights, last) in [(&[1.0][..], (0, 2 * block - 1)), (&[65_535.0, 1.0], (1, 1))] {
        let mut mixture =
            Mixture::new(3, &constant(weights), block, Stop::Restart, &vec![9; weights.len()]).unwrap();
        let mut seen: Vec<_> = (block..2 * block).map(|position| mixture.at(position)).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!((seen.len() as u64, seen.last()), (block, Some(&last)));
    }
}

#[test]
fn the_blocks_of_an_era_stay() {
    let new = || Mixture::new(7, &constant(&[3.0, 1.0]), 64, Stop::Restart, &[9, 9]).unwrap();
    let mut mixture = new().keeping_blocks();
    let jumps: Vec<u64> = (0..8192).map(|position| position * 4097 % 8192).collect();
    for &position in &jumps {
        mixture.at(position);
    }
    let kept =
        |mixture: &Mixture| mixture.recent.iter().map(|block| block.spots.as_ptr()).collect::<Vec<_>>();
    let before = kept(&mixture);
    assert_eq!(mixture.recent.iter().filter(|block| !block.spots.is_empty()).count(), 8192 / 64);
    for &position in &jumps {
        mixture.at(position);
    }
    assert_eq!(kept(&mixture), before, "nothing is worked out twice");
    let mut other = new();
    for &position in &jumps {
        other.at(position);
    }
    assert_eq!(other.recent.len(), 1, "in each thread of a loader");
}

#[test]
fn stops() {
    let weights = constant(&[3.0, 1.0]);
    let len = |stop| Mixture::new(7, &weights, 4, stop, &[300, 1000]).unwrap().len();
    assert_eq!(len(Stop::Restart), None);
    // Source 0 is through in block 99 of 0.., source 1 in block 999.
    assert!(len(Stop::FirstExhausted).is_some_and(|len| (399..=400).contains(&len)));
    assert!(len(Stop::AllExhausted).is_some_and(|len| (3997..=4000).contains(&len)));
}

#[test]
fn far_positions() {
    let far = stages(&[(0, &[1.0, 1.0]), (1 << 62, &[1.0, 0.0])]);
    let mut mixture = Mixture::new(7, &far, 2, Stop::Restart, &[5, 1 << 46]).unwrap();
    assert_eq!(mixture.at((1 << 62) - 1).1, (1 << 61) - 1);
    assert_eq!(mixture.at(u64::MAX), (0, u64::MAX - (1 << 61)));
    let long =
        Mixture::new(7, &constant(&[65_535.0, 1.0]), 1 << 16, Stop::AllExhausted, &[1, 1 << 46]).unwrap();
    assert!(long.len().is_some_and(|len| len > ((1 << 46) - 1) << 16));
}

#[test]
fn every_block_has_an_order_of_its_own() {
    let mut mixture = Mixture::new(7, &constant(&[1.0, 1.0]), 100, Stop::Restart, &[1, 1]).unwrap();
    let mut block = |number: u64| (0..100).map(|p| mixture.at(100 * number + p).0).collect::<Vec<_>>();
    assert_ne!(block(0), block(1));
}

#[test]
fn refuses_what_does_not_fit() {
    let refused = |stages: &[(u64, &[f64])], block, lengths: &[u64]| {
        message(&self::stages(stages), block, Stop::Restart, lengths)
    };
    for (found, expected) in [
        (refused(&[(0, &[1.0])], 0, &[1]), "a block of 0 positions: 1 to 65536 are possible"),
        (refused(&[(0, &[1.0])], 1 << 17, &[1]), "a block of 131072 positions"),
        (refused(&[], 4, &[1]), "the first weights must begin at position 0"),
        (refused(&[(4, &[1.0])], 4, &[1]), "the first weights must begin at position 0"),
        (refused(&[(0, &[1.0]), (6, &[1.0])], 4, &[1]), "within a block of 4: choose 4 or 8"),
        (refused(&[(0, &[1.0]), (8, &[1.0]), (8, &[1.0])], 4, &[1]), "positions must increase"),
        (refused(&[(0, &[1.0]), (1 << 63, &[1.0])], 4, &[1]), "at most 4611686018427387904 is possible"),
        (refused(&[(0, &[1.0])], 4, &[1, 1]), "1 weights from position 0 on for 2 sources"),
        (refused(&[(0, &[])], 4, &[]), "no sources: give at least one"),
        (refused(&[(0, &[0.0, 0.0])], 4, &[1, 1]), "sum up to 0"),
        (refused(&[(0, &[1e308, 1e308])], 4, &[1, 1]), "sum up to inf"),
        (refused(&[(0, &[1.0, -0.5])], 4, &[1, 1]), "the weight of source 1 from position 0 on is -0.5"),
        (refused(&[(0, &[f64::NAN, 1.0])], 4, &[1, 1]), "the weight of source 0 from position 0 on is NaN"),
        (refused(&[(0, &[1.0, f64::INFINITY])], 4, &[1, 1]), "is inf"),
        (refused(&[(0, &[1.0, 1.0])], 4, &[1, 0]), "source 1 is empty: its weight must be 0, not 1"),
        (refused(&[(0, &[1.0])], 4, &[1 << 47]), "source 0 has 140737488355328 samples"),
        (
            refused(&[(0, &[99.0, 1.0])], 16, &[1, 1]),
            "no place in a block of 16: the smallest block that is large enough is 51",
        ),
        (
            refused(&[(0, &[1.0, 1e-9])], 16, &[1, 1]),
            "raise the weight or set it to 0; no block of up to 65536 is large enough",
        ),
        (refused(&[(0, &[1.0, 1.0]), (8, &[9.0, 1.0])], 4, &[1, 1]), "from position 8 on gives it no place"),
    ] {
        assert!(found.contains(expected), "{found:?} does not contain {expected:?}");
    }
}

/// The block that an error names works, and none below it.
#[test]
fn names_the_smallest_block() {
    for weights in [vec![99.0, 1.0], vec![5.0, 0.1, 3.0], vec![1.0; 30], vec![0.7, 0.2, 0.06, 0.04]] {
        let lengths = vec![1; weights.len()];
        let found = message(&constant(&weights), 1, Stop::Restart, &lengths);
        let named: u64 = found.rsplit(' ').next().unwrap().parse().unwrap();
        assert!(divide(&weights, named).iter().all(|&count| count > 0), "{found}");
        assert!((1..named).all(|block| divide(&weights, block).contains(&0)), "{found}");
    }
}
