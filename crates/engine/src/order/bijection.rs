//! [`Bijection`]: a keyed permutation of 0..n that maps a position of a full shuffle to its index, and back,
//! without computing the shuffle.
//!
//! Every index below `n` is at exactly one position. Only keys are stored.
//!
//! A position is written as `left · b + right`, where `a = ⌈√n⌉`, `b = ⌈n / a⌉`, `left < a` and `right < b`.
//! Rounds of a Feistel network change the pair: `left += f(right)` mod a, then `right += f(left)` mod b, and
//! so on. Each round can be inverted for any `f`, so the network is a bijection of the `ab` pairs. Fewer than
//! `a` pairs are beyond `n`: such a result goes through the network again (cycle walking), at most one in
//! `√n`. Halves of a power of two would need no modulus, but there are up to twice `n` pairs, so that up to
//! every second call walks.
//!
//! `f` is a hash of all 64 bits, scaled. With a multiplication modulo a power of two instead, the lowest bit
//! of the position would stay visible in the index: batches would have too many even or too many odd rows.
//!
//! A Feistel network over few values reaches few of their permutations, so a small `n` uses a table instead.
//!
//! Source: Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002 (generalised Feistel,
//! cycle walking). It is not used as a cipher here: it must pass statistical tests
//! (`crates/engine/tests/order_quality.rs`), not keep a secret.

use crate::seed::{Purpose, below, hash, mix};

/// A permutation of `0..n` that is a pure function of its key.
///
/// ```
/// use forebay_base::seed::Purpose;
/// use forebay_engine::order::Bijection;
/// let shuffle = Bijection::new(42, Purpose::Global, [0, 0], 1_000_000_000_000);
/// let index = shuffle.at(7);
/// assert_eq!(shuffle.position(index), 7);
/// ```
#[derive(Debug, Clone)]
pub struct Bijection {
    n: u64,
    form: BijectionForm,
}

#[derive(Debug, Clone)]
enum BijectionForm {
    Table([u8; TABLE as usize]),
    Feistel(Feistel),
}

#[derive(Debug, Clone)]
struct Feistel {
    a: u64,
    b: u64,
    keys: [u64; ROUNDS],
}

/// Up to this many values are permuted by a table.
const TABLE: u64 = 64;

/// The number of rounds of the network; even.
///
/// With three or more, residue classes are not visible in batches. The last defect to vanish is in the
/// difference of two indices in the smallest networks: over 1.6 million keys of n = 81 it is 28 standard
/// deviations from random with 6 rounds, 10 with 7, 2 with 8.
const ROUNDS: usize = 8;

impl Bijection {
    pub const MAX: u64 = 1 << 62;

    /// The permutation of `0..n` that belongs to `(seed, purpose, words)`.
    ///
    /// # Panics
    /// If `n` is larger than [`Bijection::MAX`].
    pub fn new(seed: u64, purpose: Purpose, words: [u64; 2], n: u64) -> Self {
        assert!(n <= Self::MAX, "a bijection of at most 2^62 values, not of {n}");
        let key = |i: u64| hash(seed, purpose, [words[0], words[1], i]);
        let form = if n <= TABLE {
            let mut table = std::array::from_fn(|i| i as u8);
            for i in (1..n).rev() {
                table.swap(i as usize, below(key(i), i + 1) as usize);
            }
            BijectionForm::Table(table)
        } else {
            let a = (n - 1).isqrt() + 1;
            BijectionForm::Feistel(Feistel {
                a,
                b: n.div_ceil(a),
                keys: std::array::from_fn(|round| key(round as u64)),
            })
        };
        Self { n, form }
    }

    pub fn n(&self) -> u64 {
        self.n
    }

    /// The index at `position`.
    ///
    /// # Panics
    /// If there is no such position.
    #[inline]
    pub fn at(&self, position: u64) -> u64 {
        assert!(position < self.n, "position {position} of {}", self.n);
        match &self.form {
            BijectionForm::Table(table) => u64::from(table[position as usize]),
            BijectionForm::Feistel(feistel) => self.walk(position, |x| feistel.forward(x)),
        }
    }

    /// The position of `index`: the inverse of [`Bijection::at`], as quick.
    ///
    /// # Panics
    /// If there is no such index.
    #[inline]
    pub fn position(&self, index: u64) -> u64 {
        assert!(index < self.n, "index {index} of {}", self.n);
        match &self.form {
            BijectionForm::Table(table) => {
                table.iter().take_while(|&&i| u64::from(i) != index).count() as u64
            }
            BijectionForm::Feistel(feistel) => self.walk(index, |x| feistel.backward(x)),
        }
    }

    /// Follows the cycle of `x` to the next value below `n`; it ends at `x` at the latest.
    #[inline]
    fn walk(&self, mut x: u64, step: impl Fn(u64) -> u64) -> u64 {
        loop {
            x = step(x);
            if x < self.n {
                return x;
            }
        }
    }
}

impl Feistel {
    // The left part changes first: consecutive positions share it, and differ in the right part.
    #[inline]
    fn forward(&self, x: u64) -> u64 {
        let (mut left, mut right) = (x / self.b, x % self.b);
        for pair in self.keys.chunks_exact(2) {
            left = add(left, below(mix(right ^ pair[0]), self.a), self.a);
            right = add(right, below(mix(left ^ pair[1]), self.b), self.b);
        }
        left * self.b + right
    }

    #[inline]
    fn backward(&self, x: u64) -> u64 {
        let (mut left, mut right) = (x / self.b, x % self.b);
        for pair in self.keys.rchunks_exact(2) {
            right = add(right, self.b - below(mix(left ^ pair[1]), self.b), self.b);
            left = add(left, self.a - below(mix(right ^ pair[0]), self.a), self.a);
        }
        left * self.b + right
    }
}

/// `x + y` mod `modulus`, for `x < modulus` and `y <= modulus`.
#[inline]
fn add(x: u64, y: u64, modulus: u64) -> u64 {
    let sum = x + y;
    if sum < modulus { sum } else { sum - modulus }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bijection(key: u64, n: u64) -> Bijection {
        Bijection::new(key, Purpose::Global, [0, 0], n)
    }

    /// These values are a promise: if one changes, every user's batches change. Computed by the same formulas
    /// in Python.
    #[test]
    fn never_changes() {
        for (seed, words, n, indices) in GOLDEN {
            let shuffle = Bijection::new(seed, Purpose::Global, words, n);
            assert_eq!(std::array::from_fn(|position| shuffle.at(position as u64)), indices, "n = {n}");
        }
        assert_eq!(Bijection::new(9, Purpose::Era, [3, 4], 8192).at(8191), GOLDEN_ERA);
    }

    type Golden = (u64, [u64; 2], u64, [u64; 5]);
    #[rustfmt::skip]
    const GOLDEN: [Golden; 7] = [
        (0, [0, 0], 5, [1, 3, 4, 2, 0]),
        (42, [1, 0], 64, [35, 26, 58, 3, 61]),
        (0, [0, 0], 65, [21, 62, 53, 43, 24]),
        (1, [0, 0], 1000, [25, 801, 484, 610, 393]),
        (u64::MAX, [7, 9], (1 << 20) + 1, [495_261, 1_036_596, 729_519, 848_051, 20145]),
        (3, [0, 0], 1 << 40, [880_633_864_885, 87_310_585_874, 452_066_014_643, 313_750_971_881, 804_927_346_234]),
        (5, [1 << 63, 1], 1 << 62, [
            3_013_232_070_934_248_903, 4_002_424_503_975_291_446, 4_274_232_935_232_138_657,
            30_175_196_224_162_882, 2_751_619_515_028_104_635,
        ]),
    ];
    const GOLDEN_ERA: u64 = 8135;

    #[test]
    fn every_index_comes_once() {
        let mut seen = vec![0; 3001];
        for n in 1..=3000 {
            let shuffle = bijection(n, n);
            for position in 0..n {
                let index = shuffle.at(position);
                assert!(index < n && seen[index as usize] < n, "n = {n}: {index} at {position}");
                seen[index as usize] = n;
                assert_eq!(shuffle.position(index), position, "n = {n}");
            }
        }
    }

    #[test]
    fn a_large_shuffle_is_complete() {
        let n = (1 << 20) + 1;
        let shuffle = bijection(5, n);
        let mut seen = vec![false; n as usize];
        assert!((0..n).all(|position| !std::mem::replace(&mut seen[shuffle.at(position) as usize], true)));
    }

    proptest! {
        #[test]
        fn there_and_back(seed: u64, words: [u64; 2], (n, position) in sizes().prop_flat_map(|n| (Just(n), 0..n))) {
            let shuffle = Bijection::new(seed, Purpose::Global, words, n);
            let index = shuffle.at(position);
            prop_assert!(index < n);
            prop_assert_eq!(shuffle.position(index), position);
            prop_assert_eq!(shuffle.at(shuffle.position(position)), position);
        }
    }

    /// Sizes of every magnitude, and next to squares, where the number of pairs changes.
    fn sizes() -> impl Strategy<Value = u64> {
        prop_oneof![
            (0u32..63, any::<u64>())
                .prop_map(|(bits, x)| (1 << bits | x & ((1 << bits) - 1)).min(Bijection::MAX)),
            (1u64..1 << 31, -2i64..3).prop_map(|(root, off)| (root * root).saturating_add_signed(off).max(1)),
        ]
    }

    #[test]
    fn bounds() {
        assert_eq!(bijection(3, 1).at(0), 0);
        assert_eq!(bijection(3, 0).n(), 0);
        let most = bijection(3, Bijection::MAX);
        assert_eq!(most.position(most.at(Bijection::MAX - 1)), Bijection::MAX - 1);
        for panics in [
            || bijection(3, 10).at(10),
            || bijection(3, 1000).at(1000),
            || bijection(3, 1000).position(1000),
            || bijection(3, Bijection::MAX + 1).n(),
        ] {
            assert!(std::panic::catch_unwind(panics).is_err());
        }
    }

    #[test]
    fn seed_purpose_and_words_are_kept_apart() {
        let n = 1 << 40;
        let first = |seed, purpose, words| Bijection::new(seed, purpose, words, n).at(0);
        let all = [
            first(0, Purpose::Global, [0, 0]),
            first(1, Purpose::Global, [0, 0]),
            first(0, Purpose::Era, [0, 0]),
            first(0, Purpose::Global, [1, 0]),
            first(0, Purpose::Global, [0, 1]),
        ];
        assert!((1..all.len()).all(|i| !all[..i].contains(&all[i])), "{all:?}");
    }
}
