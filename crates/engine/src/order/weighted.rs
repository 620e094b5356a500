//! [`WeightedRows`]: how often each row comes in an epoch, and in which copy order, by systematic resampling.
//!
//! An epoch has N copies of rows, in storage order. With weights `w` of sum T and a random offset `o` of the
//! epoch, below T, copy `c` is of the row in whose part of the cumulative weights the point `(c T + o) / N`
//! lies. So a row comes `N w / T` times, rounded down or up, in every epoch, and each row's copies are
//! neighbours. Weights are integers: nothing is rounded twice, and equal weights give each row once.
//!
//! A copy is found in constant time: a guide leads to one or a few blocks of 256 rows, whose parts of the
//! cumulative weights are 64-bit offsets (none if all 256 weights are equal).
//!
//! Source: own; systematic sampling as in Madow, "On the theory of systematic sampling, II" (1949).

use std::{ops::Range, sync::Arc};

use crate::{
    Error, ErrorKind, Result,
    seed::{Purpose, hash, mix},
};

const BLOCK: usize = 256;
/// The highest weight has this many bits, if sums allow; a lower one loses what it has below bit 0.
const WEIGHT_BITS: u32 = 56;
/// Sums times copies stay below two to this power.
const SUM_BITS: u32 = 126;

#[derive(Debug, PartialEq)]
pub struct WeightedRows {
    n_rows: u64,
    /// N, the copies of an epoch.
    n_copies: u64,
    /// T, the sum of the weights.
    total: u128,
    /// T divided by N, and the remainder.
    share: (u128, u64),
    blocks: Vec<CopiesBlock>,
    /// For blocks of several weights, the sum of the weights in the block before and with each row.
    sums: Vec<u64>,
    /// The block of the first possible point of every `1 << step`-th copy, and the last block.
    guide: Vec<u32>,
    step: u32,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct CopiesBlock {
    /// The sum of the weights before.
    before: u128,
    kind: CopiesKind,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum CopiesKind {
    Equal(u64),
    /// The sums begin here.
    Sums(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copies {
    offset: u128,
    /// The offset divided by N, and the remainder.
    share: (u128, u64),
}

fn refused<T>(message: String) -> Result<T> {
    Err(Error::new(ErrorKind::Config, message))
}

fn reserved<T>(n: usize) -> Result<Vec<T>> {
    let mut room = Vec::new();
    room.try_reserve_exact(n).map_err(|_| {
        let message = format!("no memory for the weights: {} bytes", n.saturating_mul(size_of::<T>()));
        Error::new(ErrorKind::Memory, message)
    })?;
    Ok(room)
}

impl WeightedRows {
    /// The most copies of an epoch, and rows.
    pub const MOST: u64 = 1 << 40;

    /// Rows with these weights, in any unit, in epochs of `n_copies`. Weights keep 53 bits of precision down
    /// to an eighth of the highest, less below; one above zero stays above zero.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a weight that is negative or not finite, named by its row; if none is above
    /// zero; if there are no copies or too many. [`ErrorKind::Memory`].
    pub fn new(weights: &[f64], n_copies: u64) -> Result<Self> {
        if !(1..=Self::MOST).contains(&n_copies) {
            return refused(format!("epoch_size is {n_copies}, must be 1 to {}", Self::MOST));
        }
        if let Some(row) = weights.iter().position(|weight| !(weight.is_finite() && *weight >= 0.0)) {
            return refused(format!(
                "the weight of row {row} is {}, must be a number from 0 on",
                weights[row]
            ));
        }
        let highest = weights.iter().copied().fold(0.0, f64::max);
        if highest == 0.0 {
            return refused(format!("no row of {} has a weight above 0", weights.len()));
        }
        let n_rows = weights.len() as u64;
        let log2 = |n: u64| u64::BITS - n.leading_zeros();
        let bits = WEIGHT_BITS.min(SUM_BITS - log2(n_copies) - log2(n_rows));
        let integer = scale(highest, bits);
        let mut blocks = reserved(weights.len().div_ceil(BLOCK))?;
        let several = |rows: &[f64]| rows.iter().any(|weight| *weight != rows[0]);
        let n_sums = weights.chunks(BLOCK).filter(|rows| several(rows)).map(<[f64]>::len).sum();
        let mut sums = reserved(n_sums)?;
        let mut total = 0;
        for rows in weights.chunks(BLOCK) {
            let before = total;
            let kind = if several(rows) {
                let begin = sums.len() as u64;
                let mut sum = 0;
                sums.extend(rows.iter().map(|weight| {
                    sum += integer(*weight);
                    sum
                }));
                total += u128::from(sum);
                CopiesKind::Sums(begin)
            } else {
                let weight = integer(rows[0]);
                total += u128::from(weight) * rows.len() as u128;
                CopiesKind::Equal(weight)
            };
            blocks.push(CopiesBlock { before, kind });
        }
        let share = divided(total, n_copies);
        let mut made = Self { n_rows, n_copies, total, share, blocks, sums, guide: Vec::new(), step: 0 };
        made.step = log2((n_copies / made.blocks.len() as u64).max(1)) - 1;
        made.guide = made.guides()?;
        Ok(made)
    }

    /// The blocks of the guide's copies.
    fn guides(&self) -> Result<Vec<u32>> {
        let n = (self.n_copies >> self.step) + 1;
        let mut guide = reserved(n as usize + 1)?;
        let mut block = 0;
        for cell in 0..n {
            let point = self.point(Copies { offset: 0, share: (0, 0) }, cell << self.step);
            while self.blocks.get(block + 1).is_some_and(|next| next.before <= point) {
                block += 1;
            }
            guide.push(block as u32);
        }
        guide.push(self.blocks.len() as u32 - 1);
        Ok(guide)
    }

    pub fn n_rows(&self) -> u64 {
        self.n_rows
    }

    /// N, the copies of an epoch.
    pub fn n_copies(&self) -> u64 {
        self.n_copies
    }

    /// A digest of the weights and the number of copies.
    pub fn digest(&self) -> u64 {
        let word = |state: u64, word: u64| mix(state ^ mix(word));
        let start = word(word(self.n_rows, self.n_copies), self.total as u64);
        let blocks = self.blocks.iter().fold(start, |state, block| match block.kind {
            CopiesKind::Equal(weight) => word(state, weight),
            CopiesKind::Sums(_) => word(state, block.before as u64),
        });
        self.sums.iter().fold(blocks, |state, &sum| word(state, sum))
    }

    pub fn bytes(&self) -> usize {
        size_of_val(&self.blocks[..]) + size_of_val(&self.sums[..]) + size_of_val(&self.guide[..])
    }

    pub fn epoch(&self, seed: u64, epoch: u64) -> Copies {
        let [high, low] = [0, 1].map(|word| u128::from(hash(seed, Purpose::Copies, [epoch, word])));
        // The high half of the product of two 128-bit numbers, of which `total` is below 2^126: the exact
        // share, or one less.
        let (upper, lower) = (self.total >> 64, self.total & u128::from(u64::MAX));
        let middle = high * lower + ((low * lower) >> 64);
        let middle_too = low * upper + (middle & u128::from(u64::MAX));
        let offset = high * upper + (middle >> 64) + (middle_too >> 64);
        Copies { offset, share: divided(offset, self.n_copies) }
    }

    /// The place of a copy among the cumulative weights: `(copy T + offset) / N`, whose remainders alone are
    /// divided here.
    fn point(&self, copies: Copies, copy: u64) -> u128 {
        let (whole, rest) = self.share;
        let rests = u128::from(copy) * u128::from(rest) + u128::from(copies.share.1);
        let carried = match u64::try_from(rests) {
            Ok(rests) => u128::from(rests / self.n_copies),
            Err(_) => rests / u128::from(self.n_copies),
        };
        u128::from(copy) * whole + copies.share.0 + carried
    }

    /// The row of a copy.
    ///
    /// # Panics
    /// If there is no such copy.
    pub fn row(&self, copies: Copies, copy: u64) -> u64 {
        assert!(copy < self.n_copies, "copy {copy} of {}", self.n_copies);
        let point = self.point(copies, copy);
        let cell = (copy >> self.step) as usize;
        let (first, last) = (self.guide[cell] as usize, self.guide[cell + 1] as usize);
        let number = first + self.blocks[first + 1..=last].partition_point(|block| block.before <= point);
        let CopiesBlock { before, kind } = self.blocks[number];
        // Within a block weights sum to less than 2^64.
        let rest = (point - before) as u64;
        let begin = (number * BLOCK) as u64;
        begin
            + match kind {
                CopiesKind::Equal(weight) => rest / weight,
                CopiesKind::Sums(from) => {
                    let n = (self.n_rows - begin).min(BLOCK as u64);
                    let sums = &self.sums[from as usize..(from + n) as usize];
                    sums.partition_point(|sum| *sum <= rest) as u64
                }
            }
    }

    /// The sum of the weights before a row.
    fn before_row(&self, row: u64) -> u128 {
        let Some(CopiesBlock { before, kind }) = self.blocks.get(row as usize / BLOCK) else {
            return self.total;
        };
        let within = row % BLOCK as u64;
        before
            + match kind {
                CopiesKind::Equal(weight) => u128::from(*weight) * u128::from(within),
                CopiesKind::Sums(_) if within == 0 => 0,
                CopiesKind::Sums(from) => self.sums[(from + within - 1) as usize].into(),
            }
    }

    /// The number of copies of the rows before `row`.
    pub fn before(&self, copies: Copies, row: u64) -> u64 {
        let end = self.before_row(row.min(self.n_rows)) * u128::from(self.n_copies);
        // At most the number of copies.
        end.saturating_sub(copies.offset).div_ceil(self.total) as u64
    }

    pub fn copies_of(&self, copies: Copies, row: u64) -> Range<u64> {
        self.before(copies, row)..self.before(copies, row + 1)
    }
}

/// The quotient and the remainder of a division.
fn divided(number: u128, by: u64) -> (u128, u64) {
    (number / u128::from(by), (number % u128::from(by)) as u64)
}

/// A function from weights to integers of at most `bits` bits.
fn scale(highest: f64, bits: u32) -> impl Fn(f64) -> u64 {
    // Powers of two, so that no weight is rounded by the product; in two steps, as each may be beyond 2^1023.
    let exponent = i32::from((highest.to_bits() >> 52) as u16 & 0x7ff) - 1023;
    let shift = bits as i32 - 1 - exponent;
    let steps = [shift / 2, shift - shift / 2].map(|step| 2_f64.powi(step));
    move |weight| {
        let integer = (weight * steps[0] * steps[1]).round() as u64;
        if weight > 0.0 { integer.max(1) } else { 0 }
    }
}

/// The weights of a source's rows.
#[derive(Debug, Clone)]
pub(super) struct SourceWeights {
    pub(super) rows: Arc<WeightedRows>,
    pub(super) begin: u64,
    pub(super) seed: u64,
    /// The last epoch used.
    pub(super) recent: Option<(u64, Copies)>,
}

impl SourceWeights {
    /// The row of a copy, counted over all files.
    pub(super) fn row(&mut self, epoch: u64, copy: u64) -> u64 {
        let copies = match self.recent {
            Some((known, copies)) if known == epoch => copies,
            _ => self.recent.insert((epoch, self.rows.epoch(self.seed, epoch))).1,
        };
        self.begin + self.rows.row(copies, copy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rows(made: &WeightedRows, seed: u64, epoch: u64) -> Vec<u64> {
        let copies = made.epoch(seed, epoch);
        (0..made.n_copies()).map(|copy| made.row(copies, copy)).collect()
    }

    /// The definition, with a search from the start.
    fn oracle(weights: &[u64], n_copies: u64, offset: u128) -> Vec<u64> {
        let total: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
        let row_of = |copy: u64| {
            let mut end = 0;
            for (row, weight) in weights.iter().enumerate() {
                end += u128::from(*weight);
                if u128::from(copy) * total + offset < end * u128::from(n_copies) {
                    return row as u64;
                }
            }
            unreachable!("the last sum is the total")
        };
        (0..n_copies).map(row_of).collect()
    }

    #[test]
    fn equal_weights_are_the_rows() {
        for n in [1, 2, 255, 256, 257, 1000, 70_000] {
            for weight in [1.0, 1e-300, 7.3, 1e300] {
                let made = WeightedRows::new(&vec![weight; n], n as u64).unwrap();
                for epoch in 0..3 {
                    assert!(rows(&made, 5, epoch).into_iter().eq(0..n as u64), "{n} rows of {weight}");
                }
            }
        }
    }

    #[test]
    fn wrong_weights_are_named() {
        for (weights, n, told) in [
            (&[1.0, -0.5][..], 2, "the weight of row 1 is -0.5, must be a number from 0 on"),
            (&[f64::NAN], 1, "the weight of row 0 is NaN"),
            (&[0.0, f64::INFINITY], 1, "the weight of row 1 is inf"),
            (&[0.0, 0.0], 1, "no row of 2 has a weight above 0"),
            (&[], 1, "no row of 0"),
            (&[1.0], 0, "epoch_size is 0, must be 1 to"),
            (&[1.0], u64::MAX, "epoch_size is 18446744073709551615"),
        ] {
            let error = WeightedRows::new(weights, n).unwrap_err();
            assert!(error.message.starts_with(told), "{error}");
        }
    }

    #[test]
    fn a_single_row_may_have_all_the_weight() {
        let mut weights = vec![0.0; 10_000];
        weights[7777] = 1e-12;
        let made = WeightedRows::new(&weights, 50).unwrap();
        assert_eq!(rows(&made, 1, 2), [7777; 50]);
        let copies = made.epoch(1, 2);
        assert_eq!(
            (made.copies_of(copies, 7777), made.copies_of(copies, 0), made.before(copies, 10_000)),
            (0..50, 0..0, 50)
        );
    }

    #[test]
    fn a_small_weight_comes_as_often_as_it_should() {
        // Expected once in 10^6 epochs of 10^6 copies, in 2 * 10^6 of which it comes once or twice or thrice.
        let mut weights = vec![1.0; 1_000_000];
        weights[123_456] = 1e-12 * 1e6;
        let made = WeightedRows::new(&weights, 1_000_000).unwrap();
        let n = (0..4_000_000).map(|epoch| {
            let copies = made.copies_of(made.epoch(3, epoch), 123_456);
            copies.end - copies.start
        });
        assert!((1..=12).contains(&n.sum::<u64>()));
    }

    #[test]
    fn offsets_are_uniform() {
        // One of two equal rows, alone in an epoch of one copy.
        let made = WeightedRows::new(&[1.0, 1.0, 2.0], 1).unwrap();
        let mut counts = [0; 3];
        for epoch in 0..100_000 {
            counts[rows(&made, 11, epoch)[0] as usize] += 1;
        }
        let near = |count: i32, want: i32| (count - want).abs() < 700;
        assert!(near(counts[0], 25_000) && near(counts[1], 25_000) && near(counts[2], 50_000), "{counts:?}");
    }

    #[test]
    fn many_equal_rows_take_little_memory() {
        let made = WeightedRows::new(&vec![1.0; 1 << 20], 1 << 20).unwrap();
        assert!(made.bytes() < 1 << 18, "{} bytes", made.bytes());
        let mut weights = vec![1.0; 1 << 20];
        weights.iter_mut().step_by(3).for_each(|weight| *weight = 2.0);
        let made = WeightedRows::new(&weights, 1 << 20).unwrap();
        assert!(made.bytes() < 9 << 20, "{} bytes", made.bytes());
    }

    proptest! {
        #[test]
        fn as_the_definition(
            weights in prop::collection::vec(prop_oneof![Just(0_u64), 1_u64..5, 1_u64..1_000_000], 1..700),
            n_copies in 1_u64..2000, seed: u64, epoch: u64,
        ) {
            prop_assume!(weights.iter().any(|weight| *weight > 0));
            let made = WeightedRows::new(&weights.iter().map(|weight| *weight as f64).collect::<Vec<_>>(), n_copies).unwrap();
            let found = rows(&made, seed, epoch);
            // All weights are scaled by the same power of two.
            let copies = made.epoch(seed, epoch);
            let scaled = made.total / weights.iter().map(|weight| u128::from(*weight)).sum::<u128>();
            let integers: Vec<_> = weights.iter().map(|weight| weight * scaled as u64).collect();
            prop_assert!(copies.offset < made.total);
            prop_assert_eq!(&found, &oracle(&integers, n_copies, copies.offset));
            // The floor or the ceiling of the expectation, and a range of copies for each row.
            let total: u64 = weights.iter().sum();
            let mut at = 0;
            for (row, weight) in weights.iter().enumerate() {
                let range = made.copies_of(copies, row as u64);
                prop_assert_eq!(range.start, at);
                at = range.end;
                let expected = u128::from(*weight) * u128::from(n_copies);
                let n = u128::from(range.end - range.start);
                prop_assert!(n == expected / u128::from(total) || n == expected.div_ceil(total.into()));
                prop_assert!(range.clone().all(|copy| found[copy as usize] == row as u64));
            }
            prop_assert_eq!(at, n_copies);
        }

        #[test]
        fn any_weights_are_in_order(
            weights in prop::collection::vec(prop_oneof![Just(0.0), 1e-300_f64..1e300, 0.0_f64..1.0], 1..600),
            n_copies in 1_u64..3000, seed: u64,
        ) {
            prop_assume!(weights.iter().any(|weight| *weight > 0.0));
            let made = WeightedRows::new(&weights, n_copies).unwrap();
            let found = rows(&made, seed, 0);
            prop_assert!(found.windows(2).all(|two| two[0] <= two[1]));
            prop_assert!(found.iter().all(|row| weights[*row as usize] > 0.0));
        }
    }
}
