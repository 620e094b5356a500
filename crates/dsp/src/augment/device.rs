//! What steps on features and steps on pairs draw for the examples of a batch, as numbers: for a device that
//! computes the features of waveforms and applies these steps there.
//!
//! Input: random bits and frames of each example. Output: a row of numbers for each; `forebay.torch.Augment`
//! reads them by the same layout.

use std::ops::Range;

use super::{Augment, Draws, FrameAxis, StepKind, Taken, bands::DrawnMasks, rolled, shares_after};

/// An example of a batch.
#[derive(Debug, Clone, Copy)]
pub struct Drawing {
    /// Its random bits.
    pub bits: u64,
    /// Its frames.
    pub axis: FrameAxis,
    /// Its place in the batch as it was drawn: the number of its row, unless examples before it are missing.
    pub slot: usize,
}

impl StepKind {
    /// The numbers of a step; `None` if it changes neither features nor pairs.
    fn n_numbers(&self) -> Option<usize> {
        match self {
            Self::SpecAugment(masks) => Some(4 + 2 * (masks.n_freq + masks.n_time)),
            Self::FrameRoll { .. } => Some(2),
            Self::Pair(_) => Some(5),
            _ => None,
        }
    }
}

impl Augment {
    /// The name of the first step that [`Self::numbers`] cannot tell a device of.
    pub fn not_on_devices(&self) -> Option<&'static str> {
        self.steps().map(|step| &step.kind).find(|kind| kind.n_numbers().is_none()).map(StepKind::name)
    }

    /// How many numbers an example has.
    pub fn n_numbers(&self) -> usize {
        let n: usize = self.steps().filter_map(|step| step.kind.n_numbers()).sum();
        2 + n + if self.pairs_examples() { 2 } else { 0 }
    }

    /// Writes what the examples of a batch draw, `n_numbers` for each, one after the other. Ranges are a
    /// start and an end; numbers of steps that are not applied are 0.
    ///
    /// 1. The first frame that is not padding, and the number of those.
    /// 2. Of each `SpecAugment` and `FrameRoll`, in order: a frame and the place to which a warp moves it,
    ///    frames under masks of bands, the masks of bands, the masks of frames; 0 and the frames of a roll.
    /// 3. Of each step on pairs, in order: the weight of the other example, bands and frames of the part that
    ///    is taken. Slots 2k and 2k + 1 are a pair, whose features have the frames of `whole`.
    /// 4. With steps on pairs, the row of the other example, its own without one, and the share that is the
    ///    other's after all of them.
    pub fn numbers(&self, examples: &[Drawing], whole: FrameAxis, out: &mut [f64]) {
        let n = self.n_numbers();
        for (&example, row) in examples.iter().zip(out.chunks_exact_mut(n)) {
            row.fill(0.0);
            self.features_numbers(example, row);
        }
        if !self.pairs_examples() {
            return;
        }
        for (row, numbers) in out.chunks_exact_mut(n).enumerate() {
            numbers[n - 2] = row as f64;
        }
        let first = n - 2 - 5 * self.steps().filter(|step| matches!(step.kind, StepKind::Pair(_))).count();
        for (row, two) in examples.windows(2).enumerate() {
            if two[0].slot % 2 != 0 || two[0].slot.checked_add(1) != Some(two[1].slot) {
                continue;
            }
            let [one, other] = [two[0].bits, two[1].bits];
            let (of_one, of_other) = out[row * n..(row + 2) * n].split_at_mut(n);
            (of_one[n - 2], of_other[n - 2]) = ((row + 1) as f64, row as f64);
            let mut shares = [0.0, 0.0];
            for (step, taken) in self.taken([one, other], whole).enumerate() {
                shares = shares_after(shares, &taken, whole);
                for (row, Taken { weight, bands, frames }) in
                    [&mut *of_one, &mut *of_other].into_iter().zip(taken)
                {
                    let places = [bands.start, bands.end, frames.start, frames.end].map(|place| place as f64);
                    let numbers = [weight].into_iter().chain(places);
                    row[first + 5 * step..].iter_mut().zip(numbers).for_each(|(to, number)| *to = number);
                }
            }
            (of_one[n - 1], of_other[n - 1]) = (shares[0], shares[1]);
        }
    }

    fn features_numbers(&self, Drawing { bits: seed, axis, .. }: Drawing, mut row: &mut [f64]) {
        write(&mut row, 1, [[axis.first, axis.n_valid]]);
        for (step, key, reading) in self.steps.iter().filter(|(step, ..)| step.kind.is_on_features()) {
            let mut draws = Draws { seed, key: *key, reading: *reading, next: 0 };
            let is_applied = step.is_applied(seed, &mut draws);
            match &step.kind {
                StepKind::SpecAugment(masks) => {
                    let [from, to] = masks.draw_warp(&draws, axis).filter(|_| is_applied).unwrap_or_default();
                    let drawn = masks.draw(&mut draws, axis);
                    let DrawnMasks { bands, frames, over } =
                        if is_applied { drawn } else { Default::default() };
                    write(&mut row, 1, [[from, to]]);
                    write(&mut row, 1, [ends(over)]);
                    write(&mut row, masks.n_freq, bands.into_iter().map(ends));
                    write(&mut row, masks.n_time, frames.into_iter().map(ends));
                }
                StepKind::FrameRoll { shift } => {
                    let shift = if is_applied { rolled(draws.within(*shift), axis.n_valid) } else { 0 };
                    let shift = shift.rem_euclid(axis.n_valid.max(1) as i64) as usize;
                    write(&mut row, 1, [[0, shift]]);
                }
                _ => {}
            }
        }
    }
}

fn ends(range: Range<usize>) -> [usize; 2] {
    [range.start, range.end]
}

/// Writes pairs to the front of `row`, and goes on behind `room` of them.
fn write(row: &mut &mut [f64], room: usize, pairs: impl IntoIterator<Item = [usize; 2]>) {
    let (places, rest) = std::mem::take(row).split_at_mut(2 * room);
    for (place, pair) in places.chunks_exact_mut(2).zip(pairs) {
        place.copy_from_slice(&pair.map(|number| number as f64));
    }
    *row = rest;
}
