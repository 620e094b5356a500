//! Statistical tests of the orders: a [`Bijection`] compared with a naive shuffle, and with a permutation
//! that is known to be bad.
//!
//! Every statistic is computed for a bijection and for Fisher–Yates with another generator. Scores are
//! standard normal for random permutations; four standard deviations are allowed. Keys are fixed, so each
//! test always passes or always fails.

use forebay_base::seed::Purpose;
use forebay_engine::order::Bijection;
use rand::{RngExt, SeedableRng, rngs::StdRng};

/// A permutation of `0..n`, by key.
type Shuffle = fn(key: u64, n: u64) -> Box<dyn Fn(u64) -> u64>;

const SOUND: [(&str, Shuffle); 2] = [("bijection", bijection), ("Fisher-Yates", fisher_yates)];

fn bijection(key: u64, n: u64) -> Box<dyn Fn(u64) -> u64> {
    // One seed and many epochs, as in a long run.
    let shuffle = Bijection::new(0, Purpose::Global, [key, 0], n);
    Box::new(move |position| shuffle.at(position))
}

fn fisher_yates(key: u64, n: u64) -> Box<dyn Fn(u64) -> u64> {
    let mut generator = StdRng::seed_from_u64(key);
    let mut indices: Vec<u64> = (0..n).collect();
    for i in (1..indices.len()).rev() {
        indices.swap(i, generator.random_range(0..=i));
    }
    Box::new(move |position| indices[position as usize])
}

/// Five rounds over halves of equal size (`n` is a power of four) with a multiplication as the round
/// function. Modulo a power of two, the lowest bit of a product depends only on the lowest bits of its
/// factors.
fn multiplicative(key: u64, n: u64) -> Box<dyn Fn(u64) -> u64> {
    let bits = n.trailing_zeros() / 2;
    let mask = (1 << bits) - 1;
    let mut generator = StdRng::seed_from_u64(key);
    let keys: [u64; 5] = generator.random();
    Box::new(move |position| {
        let (left, right) = keys.iter().fold((position >> bits, position & mask), |(left, right), key| {
            (right, left ^ (right.wrapping_mul(2_654_435_761).wrapping_add(*key) & mask))
        });
        left << bits | right
    })
}

/// The standard normal score of a chi-square statistic (Wilson and Hilferty).
fn score(chi_square: f64, freedom: f64) -> f64 {
    let spread = 2.0 / (9.0 * freedom);
    ((chi_square / freedom).cbrt() - (1.0 - spread)) / spread.sqrt()
}

fn chi_square(counts: &[u64]) -> f64 {
    let mean = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
    counts.iter().map(|&count| (count as f64 - mean).powi(2) / mean).sum()
}

#[track_caller]
fn assert_normal(score: f64, what: &str) {
    assert!(score.abs() < 4.0, "{what}: {score:.2} standard deviations from random");
}

/// Splits positions and indices in 32 parts each: each part of the positions is spread evenly over the parts
/// of the indices.
#[test]
fn indices_are_independent_of_positions() {
    const PARTS: u64 = 32;
    for (name, shuffle) in SOUND {
        for n in [10_000, 100_003] {
            let (keys, mut total) = (3_000_000 / n, 0.0);
            for key in 0..keys {
                let order = shuffle(key, n);
                let mut cells = [0; (PARTS * PARTS) as usize];
                (0..n).for_each(|p| cells[(p * PARTS / n * PARTS + order(p) * PARTS / n) as usize] += 1);
                total += chi_square(&cells);
            }
            let freedom = (keys * (PARTS - 1) * (PARTS - 1)) as f64;
            assert_normal(score(total, freedom), &format!("{name}, n = {n}"));
        }
    }
}

/// Indices at a distance are not correlated: adjacent ones, and those sqrt(n) apart, whose positions share
/// one of their parts.
#[test]
fn no_serial_correlation() {
    const N: u64 = 10_000;
    const KEYS: u64 = 400;
    for (name, shuffle) in SOUND {
        for lag in [1, 2, 3, 99, 100, 101, 200, 4950] {
            let (mut sum, mut squares) = (0.0, 0.0);
            for key in 0..KEYS {
                let order = shuffle(key, N);
                let middle = (N - 1) as f64 / 2.0;
                let product = |p| (order(p) as f64 - middle) * (order((p + lag) % N) as f64 - middle);
                let variance = (N as f64 * N as f64 - 1.0) / 12.0;
                // On a circle the mean is -1 / (n - 1), since the sum over all indices is fixed.
                let r = (0..N).map(product).sum::<f64>() / (N as f64 * variance) + 1.0 / (N - 1) as f64;
                sum += r * (N as f64).sqrt();
                squares += r * r * N as f64;
            }
            assert_normal(sum / (KEYS as f64).sqrt(), &format!("{name}, mean at lag {lag}"));
            assert_normal(score(squares, KEYS as f64), &format!("{name}, spread at lag {lag}"));
        }
    }
}

/// Divisors with the chi-square that one random batch in a thousand exceeds.
const DIVISORS: [(u64, f64); 6] =
    [(2, 10.828), (3, 13.816), (4, 16.266), (5, 18.467), (7, 22.458), (8, 24.322)];

/// The number of batches of 256 consecutive positions that hold the residue classes of each divisor too
/// unevenly, and the number of all batches.
fn uneven_batches(shuffle: Shuffle, n: u64, keys: u64) -> ([u64; DIVISORS.len()], u64) {
    const BATCH: u64 = 256;
    let mut uneven = [0; DIVISORS.len()];
    for key in 0..keys {
        let order = shuffle(key, n);
        for batch in 0..n / BATCH {
            let mut counts = [[0; 8]; DIVISORS.len()];
            for position in batch * BATCH..(batch + 1) * BATCH {
                let index = order(position);
                for (counts, (divisor, _)) in counts.iter_mut().zip(DIVISORS) {
                    counts[(index % divisor) as usize] += 1;
                }
            }
            for ((uneven, counts), (divisor, limit)) in uneven.iter_mut().zip(counts).zip(DIVISORS) {
                *uneven += u64::from(chi_square(&counts[..divisor as usize]) > limit);
            }
        }
    }
    (uneven, keys * (n / BATCH))
}

#[test]
fn batches_hold_all_residue_classes() {
    // The second makes each batch exactly the positions of one left part.
    for (n, keys) in [(1 << 20, 8), (1 << 16, 64), (1_000_003, 8)] {
        let (ours, batches) = uneven_batches(bijection, n, keys);
        let (naive, _) = uneven_batches(fisher_yates, n, keys);
        for ((ours, naive), (divisor, _)) in ours.into_iter().zip(naive).zip(DIVISORS) {
            let what = &format!("n = {n}, modulo {divisor}: {ours} and {naive} of {batches}");
            assert_normal((ours as f64 - naive as f64) / ((ours + naive) as f64).sqrt(), what);
            assert!(ours.max(naive) < batches / 500, "{what}");
        }
    }
}

#[test]
fn the_test_of_residue_classes_finds_a_bad_permutation() {
    let n = 1 << 16;
    let order = multiplicative(1, n);
    let mut indices: Vec<u64> = (0..n).map(order).collect();
    indices.sort_unstable();
    assert!(indices.into_iter().eq(0..n));
    let (uneven, batches) = uneven_batches(multiplicative, 1 << 20, 1);
    assert!(uneven[0] > batches * 9 / 10, "{} of {batches} batches", uneven[0]);
}

/// Two epochs are independent: the parts that a position maps to, and the index itself.
#[test]
fn epochs_are_independent() {
    const PARTS: u64 = 32;
    for (name, shuffle) in SOUND {
        let n = 1000;
        let (epochs, mut equal) = (4000, 0);
        let mut cells = [0; (PARTS * PARTS) as usize];
        for epoch in 0..epochs {
            let (one, next) = (shuffle(epoch, n), shuffle(epoch + 1, n));
            for position in 0..n {
                let (one, next) = (one(position), next(position));
                equal += u64::from(one == next);
                cells[(one * PARTS / n * PARTS + next * PARTS / n) as usize] += 1;
            }
        }
        // The expected number of equal indices per epoch is one, with a Poisson distribution.
        assert_normal((equal as f64 - epochs as f64) / (epochs as f64).sqrt(), &format!("{name}, equal"));
        // 32 does not divide 1000: the expected counts differ.
        let part = |x: u64| ((x + 1) * n).div_ceil(PARTS) - (x * n).div_ceil(PARTS);
        let chi_square: f64 = (0..PARTS * PARTS)
            .map(|cell| {
                let expected = (epochs * part(cell / PARTS) * part(cell % PARTS)) as f64 / n as f64;
                (cells[cell as usize] as f64 - expected).powi(2) / expected
            })
            .sum();
        assert_normal(score(chi_square, ((PARTS - 1) * (PARTS - 1)) as f64), &format!("{name}, parts"));
    }
}

/// For a few values, every permutation is equally likely.
#[test]
fn all_permutations_of_a_few_values() {
    for (name, shuffle) in SOUND {
        for (n, permutations) in [(2, 2), (3, 6), (4, 24), (5, 120), (6, 720)] {
            let mut counts = std::collections::HashMap::new();
            for key in 0..permutations * 500 {
                *counts.entry((0..n).map(shuffle(key, n)).collect::<Vec<_>>()).or_insert(0) += 1;
            }
            assert_eq!(counts.len() as u64, permutations);
            let counts: Vec<u64> = counts.into_values().collect();
            let freedom = permutations as f64 - 1.0;
            assert_normal(score(chi_square(&counts), freedom), &format!("{name}, n = {n}"));
        }
    }
}

/// The differences of the indices of two positions are uniform, also where the positions share one of their
/// parts and the network has the smallest size.
#[test]
fn neighbours_of_a_small_network() {
    for (name, shuffle) in SOUND {
        for root in [9, 16] {
            let n = root * root;
            for other in [1, root, root + 1] {
                let mut counts = vec![0; n as usize];
                let mut pairs = vec![0; n as usize];
                for key in 0..150_000 {
                    let order = shuffle(key, n);
                    let (x, y) = (order(0), order(other));
                    counts[((y + n - x) % n) as usize] += 1;
                    let left = (y / root + root - x / root) % root;
                    pairs[(left * root + (y + root - x % root) % root) as usize] += 1;
                }
                for counts in [counts, pairs] {
                    assert_eq!(counts[0], 0);
                    let value = score(chi_square(&counts[1..]), n as f64 - 2.0);
                    assert_normal(value, &format!("{name}, n = {n}, 0 and {other}"));
                }
            }
        }
    }
}
