//! How a second recording is mixed into a clip: levels and weights. Which one, and where it is read, is for
//! the loader to say.

use std::f64::consts::PI;

use super::{
    Bounds, Clips, Draws, Loudness, References, add, loudness::loudness, ratio, relative, rms, scale,
};
use crate::Result;

/// How the level or the weight of a partner is drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MixLevel {
    /// The clip stays as it is, so many decibels above the partner.
    Snr {
        /// Decibels.
        db: Bounds,
        /// How the clip's level is measured; the partner's is the root mean square of what is added, or its
        /// loudness too.
        loudness: Loudness,
    },
    /// The partner has this weight, the clip the rest of 1.
    Weight(Bounds),
    /// The partner's weight is distributed as Beta(alpha, alpha).
    Beta(f64),
}

/// What becomes of a target if a partner is mixed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MixTargets {
    /// The clip's values stay as they are.
    Keep,
    /// Each class has the larger of its two values.
    Union,
    /// Each class has the sum of its two values, at most 1.
    Sum,
    /// The values are mixed by the weights of the recordings.
    Mix,
}

impl MixTargets {
    /// The value made of the clip's and that of a partner with this weight.
    pub fn of(self, clip: f64, partner: f64, weight: f64) -> f64 {
        match self {
            Self::Keep => clip,
            Self::Union => clip.max(partner),
            Self::Sum => (clip + partner).min(1.0),
            Self::Mix => (1.0 - weight) * clip + weight * partner,
        }
    }
}

/// A step that adds clips of other recordings to a clip.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mixing {
    /// The level or the weight of each partner.
    pub level: MixLevel,
    /// The most partners; their number is drawn from 1 on.
    pub most: usize,
    /// Of the loader's own rows: a partner is one of this many before the clip's own, in storage order.
    /// `None`: any row.
    pub near: Option<u64>,
    /// Whether partners are the loader's own rows.
    pub is_own: bool,
    /// What becomes of the clip's targets.
    pub targets: MixTargets,
    /// Whether examples have the clip and the partners, as they were added, beside the mixture.
    pub parts: bool,
}

/// How loud a partner is, drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Amount {
    /// Decibels of the partner below the clip.
    Snr(f64),
    /// The partner's share of the sum, from 0 to 1.
    Weight(f64),
}

impl MixLevel {
    /// Draws the level or weight of one partner.
    pub fn draw(&self, draws: &mut Draws) -> Amount {
        match *self {
            Self::Snr { db, .. } => Amount::Snr(draws.within(db)),
            Self::Weight(bounds) => Amount::Weight(draws.within(bounds)),
            Self::Beta(alpha) => {
                let [one, other] = [draws.gamma(alpha), draws.gamma(alpha)];
                Amount::Weight(if one + other > 0.0 { one / (one + other) } else { 0.5 })
            }
        }
    }

    /// The clip's level, to which a signal-to-noise ratio relates.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`](crate::ErrorKind::Memory) if an allocation failed.
    pub fn of_clip(&self, clips: &Clips<'_>) -> Result<f64> {
        match self {
            Self::Snr { loudness, .. } => clips.level(*loudness),
            Self::Weight(_) | Self::Beta(_) => Ok(0.0),
        }
    }

    /// The level of a partner of the shape of clips.
    fn of_partner(&self, partner: &[f32], clips: &Clips<'_>) -> Result<f64> {
        match self {
            Self::Snr { loudness: Loudness::Lufs, .. } => {
                loudness(partner, clips.n, 0..clips.n, clips.sample_rate)
            }
            _ => Ok(rms(partner)),
        }
    }
}

impl Amount {
    /// Mixes a partner of the same shape, for this place among the step's parts, into clips whose level was
    /// `level`, as `by` measures it; false if nothing is added, since one of them is silent.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`](crate::ErrorKind::Memory) if an allocation failed.
    pub fn mix(
        self,
        by: &MixLevel,
        clips: &mut Clips<'_>,
        level: f64,
        (place, partner): (usize, &[f32]),
        references: &mut References<'_>,
    ) -> Result<bool> {
        let factor = match self {
            Self::Snr(db) => relative(level, by.of_partner(partner, clips)?, db),
            Self::Weight(weight) => {
                let rest = (1.0 - weight) as f32;
                scale(clips.samples, rest);
                references.scale(rest);
                weight
            }
        };
        if factor == 0.0 && matches!(self, Self::Snr(_)) {
            return Ok(false);
        }
        add(clips.samples, partner, factor);
        references.put(place, partner, factor);
        clips.valid = 0..clips.n;
        Ok(true)
    }

    /// The partner's weight in targets; 1/2 if it has none.
    pub fn weight(self) -> f64 {
        match self {
            Self::Snr(db) => 1.0 / (1.0 + ratio(db)),
            Self::Weight(weight) => weight,
        }
    }
}

impl Draws {
    /// A number that is distributed as Gamma(alpha, 1). Source: G. Marsaglia and W. W. Tsang, "A simple
    /// method for generating gamma variables" (2000).
    fn gamma(&mut self, alpha: f64) -> f64 {
        if alpha < 1.0 {
            let smaller = libm::pow(1.0 - self.unit(), 1.0 / alpha);
            return self.gamma(alpha + 1.0) * smaller;
        }
        let d = alpha - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let (radius, angle) = ((-2.0 * libm::log(1.0 - self.unit())).sqrt(), 2.0 * PI * self.unit());
            let x = radius * libm::cos(angle);
            let v = (1.0 + c * x).powi(3);
            let u = 1.0 - self.unit();
            if v > 0.0 && libm::log(u) < 0.5 * x * x + d - d * v + d * libm::log(v) {
                return d * v;
            }
        }
    }
}
