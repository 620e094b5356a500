//! Requantization: the gain of each band.
//!
//! Source: ISO/IEC 11172-3 section 2.4.3.4.7 and table B.6.

use super::{
    bands::{Bands, Kind},
    side::{Channel, LINES},
};

/// Added to the scale factors of long blocks where the side information says so.
const PREEMPHASIS: [i32; 22] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 3, 3, 2, 0];

/// The lowest exponent, in quarters: global gain, subblock gain, and a scale factor.
const LOWEST: i32 = -210 - 8 * 7 - 4 * (31 + 3);
const HIGHEST: i32 = 255 - 210;

/// Powers of the fourth root of two.
pub(super) struct Gains {
    powers: Vec<f32>,
}

impl Gains {
    pub(super) fn new() -> Self {
        Self { powers: (LOWEST..=HIGHEST).map(|n| libm::exp2(0.25 * f64::from(n)) as f32).collect() }
    }

    /// Multiplies the lines of a channel by their gains.
    #[inline(always)]
    pub(super) fn scale(&self, channel: &Channel, bands: &Bands, lines: &mut [f32; LINES]) {
        let global = channel.global_gain - 210;
        let shift = if channel.is_coarse { 2 } else { 1 };
        let is_raised = channel.has_preemphasis && channel.kind() != Kind::Short;
        for (band, (start, end)) in bands.iter().enumerate() {
            if start >= channel.n_lines {
                break;
            }
            let mut factor = i32::from(channel.scalefacs.0[band]);
            let mut base = global;
            if band < bands.n_long {
                factor += if is_raised { PREEMPHASIS[band] } else { 0 };
            } else {
                // All terms are quarters of an exponent of 2: a subblock gain is 2, a scale factor 1/2 or 1.
                base -= 8 * channel.subblock_gain[(band - bands.n_long) % 3];
            }
            let gain = self.powers[(base - (factor << shift) - LOWEST) as usize];
            lines[start..end].iter_mut().for_each(|line| *line *= gain);
        }
    }
}
