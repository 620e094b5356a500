//! Mixup and CutMix: how an example takes a part of another one of its batch. Which one that is, is for the
//! collator to say.
//!
//! Sources: H. Zhang et al., "mixup: Beyond Empirical Risk Minimization" (2018); S. Yun et al., "CutMix"
//! (2019), with boxes that lie within the features, so that none is cut at their edge.

use std::ops::Range;

use super::{Draws, FrameAxis, MixLevel, Number};
use crate::Layout;

/// What an example takes of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exchange {
    /// A share of every value: the examples are averaged by weight.
    Mixup,
    /// All bands of some adjacent frames.
    CutFrames,
    /// Some bands of some frames: a box.
    CutBox,
}

/// A step that mixes pairs of examples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pairing {
    /// Which values of the other example are taken.
    pub exchange: Exchange,
    /// How much: its share is distributed as Beta(beta, beta).
    pub beta: f64,
}

/// What an example takes of another: this weight of its values there.
#[derive(Debug, Clone, PartialEq)]
pub struct Taken {
    pub(super) weight: f64,
    pub(super) bands: Range<usize>,
    pub(super) frames: Range<usize>,
}

/// The shares of two examples that are the other's, after each has taken a share of the other; `before` that
/// they had these.
pub fn shares_after(before: [f64; 2], taken: &[Taken; 2], axis: FrameAxis) -> [f64; 2] {
    let [one, other] = taken.each_ref().map(|taken| taken.share(axis));
    [(1.0 - one) * before[0] + one * (1.0 - before[1]), (1.0 - other) * before[1] + other * (1.0 - before[0])]
}

impl Taken {
    pub(super) const NONE: Self = Self { weight: 0.0, bands: 0..0, frames: 0..0 };

    /// The share of the example that is the other's afterwards.
    fn share(&self, axis: FrameAxis) -> f64 {
        let [part, all] = [self.bands.len() * self.frames.len(), axis.n_bands * axis.n_frames];
        if all == 0 { 0.0 } else { self.weight * (part as f64 / all as f64) }
    }
}

impl Pairing {
    pub(super) fn draw(&self, draws: &mut Draws, axis: FrameAxis) -> Taken {
        let share = MixLevel::Beta(self.beta).draw(draws).weight();
        let mut part = |share: f64, n: usize| {
            let width = ((share * n as f64).round() as usize).min(n);
            let first = (draws.unit() * (n - width + 1) as f64) as usize;
            first..first + width
        };
        let (bands, frames) = (0..axis.n_bands, 0..axis.n_frames);
        match self.exchange {
            Exchange::Mixup => Taken { weight: share, bands, frames },
            Exchange::CutFrames => Taken { weight: 1.0, bands, frames: part(share, axis.n_frames) },
            Exchange::CutBox => Taken {
                weight: 1.0,
                bands: part(share.sqrt(), axis.n_bands),
                frames: part(share.sqrt(), axis.n_frames),
            },
        }
    }
}

/// Lets each of two examples take of the other, at the same time; both have whole channels of features.
pub fn exchange<T: Number>(axis: FrameAxis, taken: &[Taken; 2], one: &mut [T], other: &mut [T]) {
    let (n_outer, n_inner) = match axis.layout {
        Layout::Mel => (axis.n_bands, axis.n_frames),
        Layout::Time => (axis.n_frames, axis.n_bands),
    };
    let ranges = taken.each_ref().map(|taken| match axis.layout {
        Layout::Mel => (&taken.bands, &taken.frames),
        Layout::Time => (&taken.frames, &taken.bands),
    });
    // Between these places of a row, weights are the same.
    let mut cuts = [0, 0, 0, 0, 0, n_inner];
    for (cut, place) in
        cuts[1..5].iter_mut().zip(ranges.iter().flat_map(|(_, inner)| [inner.start, inner.end]))
    {
        *cut = place;
    }
    cuts.sort_unstable();
    let rows = one.chunks_exact_mut(n_inner.max(1)).zip(other.chunks_exact_mut(n_inner.max(1)));
    for (row, (one, other)) in rows.enumerate() {
        let outer = row % n_outer.max(1);
        for cut in cuts.windows(2).filter(|cut| cut[0] < cut[1]) {
            let weights = [0, 1].map(|of: usize| {
                let is_in = ranges[of].0.contains(&outer) && ranges[of].1.contains(&cut[0]);
                if is_in { taken[of].weight as f32 } else { 0.0 }
            });
            if weights != [0.0; 2] {
                let part = cut[0]..cut[1];
                blend(weights, &mut one[part.clone()], &mut other[part]);
            }
        }
    }
}

fn blend<T: Number>(weights: [f32; 2], one: &mut [T], other: &mut [T]) {
    // Weights of 0 and 1 copy, so that an infinite value stays where it belongs.
    let mixed = |own: T, taken: T, weight: f32| match weight {
        0.0 => own,
        1.0 => taken,
        _ => T::of((1.0 - weight) * own.to() + weight * taken.to()),
    };
    for (one, other) in one.iter_mut().zip(other) {
        let (first, second) = (*one, *other);
        *one = mixed(first, second, weights[0]);
        *other = mixed(second, first, weights[1]);
    }
}
