//! Joint stereo: sum and difference, and directions.
//!
//! Where the second channel of a frame with intensity stereo ends, its scale factors tell how the first is
//! shared by left and right. In short blocks each of the three windows ends on its own.
//!
//! Deviation from symphonia 0.6: in MPEG-2 no direction is coded as all bits of the band's scale factor set
//! (it takes 31 for none in every band), and the last band is in the middle if the one before has no
//! direction (it takes the scale factor). With both, the vector `l3-test45` of ISO/IEC 13818-4 agrees to half
//! a bit of 16 (24 of 822 frames do not with the first alone).
//! It refuses joint stereo whose channels have different kinds of blocks, which some encoders write and the
//! standard does not forbid. Here sum and difference are those of the lines in their coded order, and the
//! bands of directions are those of the second channel, as other decoders take them.
//!
//! Source: ISO/IEC 11172-3 section 2.4.3.4.9, ISO/IEC 13818-3 section 2.4.3.2.

use std::f32::consts::FRAC_1_SQRT_2;

use super::{
    bands::Bands,
    side::{Channel, LINES, MAX_BANDS, Stream},
};

/// Factors of left and right by direction.
pub(super) struct Directions {
    first: [[f32; 2]; 7],
    /// By the lowest bit of `scalefac_compress`.
    second: [[[f32; 2]; 32]; 2],
}

impl Directions {
    pub(super) fn new() -> Self {
        // MPEG-1: left / right = tan(n pi / 12).
        let first = std::array::from_fn(|n| {
            let (sin, cos) = libm::sincos(n as f64 * std::f64::consts::PI / 12.0);
            [(sin / (sin + cos)) as f32, (cos / (sin + cos)) as f32]
        });
        // MPEG-2: one of them weaker by steps of the fourth root or the root of 1/2.
        let second = [0.25, 0.5].map(|step| {
            std::array::from_fn(|n| {
                let weaker = libm::exp2(-step * n.div_ceil(2) as f64) as f32;
                if n % 2 == 1 { [weaker, 1.0] } else { [1.0, weaker] }
            })
        });
        Self { first, second }
    }

    fn of(&self, channel: &Channel, stream: &Stream, band: usize) -> Option<[f32; 2]> {
        let direction = channel.scalefacs.0[band];
        if direction == channel.no_direction.0[band] {
            return None;
        }
        if stream.is_mpeg1() {
            self.first.get(usize::from(direction)).copied()
        } else {
            self.second[channel.direction_scale()].get(usize::from(direction)).copied()
        }
    }
}

/// Turns the lines of two channels into left and right.
#[inline(always)]
pub(super) fn stereo(
    stream: &Stream,
    channels: &mut [Channel; 2],
    bands: &Bands,
    directions: &Directions,
    lines: &mut [[f32; LINES]; 2],
) {
    if !stream.has_sides && !stream.has_intensity {
        return;
    }
    let n = channels[0].n_lines.max(channels[1].n_lines);
    let [left, right] = lines;
    if stream.has_intensity {
        spread(stream, &mut channels[1], bands, directions, left, right);
    } else {
        rotate(&mut left[..n], &mut right[..n]);
    }
    (channels[0].n_lines, channels[1].n_lines) = (n, n);
}

/// Left and right of sum and difference.
#[inline(always)]
fn rotate(sum: &mut [f32], difference: &mut [f32]) {
    for (sum, difference) in sum.iter_mut().zip(difference) {
        let (left, right) = (*sum + *difference, *sum - *difference);
        (*sum, *difference) = (left * FRAC_1_SQRT_2, right * FRAC_1_SQRT_2);
    }
}

/// Shares the first channel where the second has ended, and rotates below if there are sides.
fn spread(
    stream: &Stream,
    channel: &mut Channel,
    bands: &Bands,
    directions: &Directions,
    left: &mut [f32; LINES],
    right: &mut [f32; LINES],
) {
    // The last band has no scale factor. It has the direction of the band before, or the middle if that has
    // none.
    let n = bands.len();
    let windows = if bands.n_long == n { 1 } else { 3 };
    for (band, (start, end)) in bands.iter().enumerate().take(n - windows).skip(n - 2 * windows) {
        let has_lines = right[start..end].iter().any(|&line| line != 0.0);
        let middle = if stream.is_mpeg1() { 3 } else { 0 };
        let direction = if has_lines { middle } else { channel.scalefacs.0[band] };
        channel.scalefacs.0[band + windows] = direction;
        channel.no_direction.0[band + windows] =
            if has_lines { u8::MAX } else { channel.no_direction.0[band] };
    }
    debug_assert!(n <= MAX_BANDS);
    // Whether each window has had lines; for long bands: any.
    let mut has_begun = [false; 3];
    for (band, (start, end)) in bands.iter().enumerate().rev() {
        let (left, right) = (&mut left[start..end], &mut right[start..end]);
        let begun =
            if band < bands.n_long { &mut has_begun[0] } else { &mut has_begun[(band - bands.n_long) % 3] };
        *begun |= right.iter().any(|&line| line != 0.0);
        let direction = if *begun { None } else { directions.of(channel, stream, band) };
        match direction {
            Some([to_left, to_right]) => {
                for (left, right) in left.iter_mut().zip(right) {
                    let line = *left;
                    (*left, *right) = (line * to_left, line * to_right);
                }
            }
            None if stream.has_sides => rotate(left, right),
            None => {}
        }
        if band == bands.n_long && band > 0 {
            has_begun = [has_begun.iter().any(|&begun| begun); 3];
        }
    }
}
