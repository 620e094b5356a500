//! The form of features in memory: type of the values, order of the axes, number of frames.
//!
//! Input: the bands of eight frames, one by one, with a lane for each frame. Output: the caller's buffer, in
//! which each value is written once, after rounding. Requested frames beyond the waveform's are features of
//! silence. Source: own.

use std::ops::Range;

use half::{bf16, f16};

use crate::dtype::{Dtype, ValuesMut, each_float};
use crate::simd::{LANES, Lanes, Row};

/// Which of bands and frames is the outer axis.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Layout {
    /// `[n_mels, n_frames]`: the frames of a band are adjacent.
    #[default]
    Mel,
    /// `[n_frames, n_mels]`: the bands of a frame are adjacent.
    Time,
}

impl Layout {
    /// The name in user parameters: `mel` or `time`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mel => "mel",
            Self::Time => "time",
        }
    }

    /// The layout of that name, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Mel, Self::Time].into_iter().find(|layout| layout.name() == name)
    }
}

/// The form of features in memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Form {
    /// The type to which values are rounded.
    pub dtype: Dtype,
    /// Which of bands and frames is the outer axis.
    pub layout: Layout,
    /// The number of frames, for a waveform of any length: missing ones are those of silence, at the end.
    /// `None`: as many as the waveform has.
    pub n_frames: Option<usize>,
}

impl Form {
    /// The shape of the features of a waveform with so many frames.
    pub fn shape(&self, n_mels: usize, n_frames: usize) -> [usize; 2] {
        let n_frames = self.n_frames.unwrap_or(n_frames);
        match self.layout {
            Layout::Mel => [n_mels, n_frames],
            Layout::Time => [n_frames, n_mels],
        }
    }
}

/// A type that eight lanes can be stored as.
pub(super) trait LaneValue: Copy + Default {
    fn store<V: Lanes>(lanes: V, row: &mut [Self; LANES]);

    /// Writes the first lanes, as many as fit into `out`.
    #[inline(always)]
    fn store_part<V: Lanes>(lanes: V, out: &mut [Self]) {
        if let Ok(row) = out.try_into() {
            Self::store(lanes, row);
        } else {
            let mut row = [Self::default(); LANES];
            Self::store(lanes, &mut row);
            out.copy_from_slice(&row[..out.len()]);
        }
    }
}

impl LaneValue for f32 {
    #[inline(always)]
    fn store<V: Lanes>(lanes: V, row: &mut [Self; LANES]) {
        lanes.store(row);
    }
}

impl LaneValue for f16 {
    #[inline(always)]
    fn store<V: Lanes>(lanes: V, row: &mut [Self; LANES]) {
        lanes.store_f16(row);
    }
}

impl LaneValue for bf16 {
    #[inline(always)]
    fn store<V: Lanes>(lanes: V, row: &mut [Self; LANES]) {
        lanes.store_bf16(row);
    }
}

/// Features being written into a buffer of `n_mels` times `n_frames` values.
pub(super) struct Output<'a> {
    pub(super) values: ValuesMut<'a>,
    pub(super) layout: Layout,
    pub(super) n_mels: usize,
    pub(super) n_frames: usize,
}

impl Output<'_> {
    /// Takes a band of up to eight frames, and writes it if the layout stores bands as rows. It stores after
    /// each band, not all at the end: the stores miss as many cache lines, and the computation in between
    /// hides the misses.
    #[inline(always)]
    pub(super) fn put<V: Lanes>(&mut self, band: usize, frames: Range<usize>, log: V, bands: &mut [Row]) {
        match self.layout {
            Layout::Mel => {
                let start = band * self.n_frames;
                let place = start + frames.start..start + frames.end;
                each_float!(&mut self.values, values => LaneValue::store_part(log, &mut values[place]));
            }
            Layout::Time => log.store(&mut bands[band].0),
        }
    }

    /// Writes the remaining values of some frames, after all their bands.
    #[inline(always)]
    pub(super) fn finish<V: Lanes>(&mut self, frames: Range<usize>, bands: &[Row]) {
        let n_mels = self.n_mels;
        if self.layout == Layout::Time {
            let place = frames.start * n_mels..frames.end * n_mels;
            each_float!(&mut self.values, values => by_frame::<V, _>(&mut values[place], n_mels, bands));
        }
    }

    /// Writes all values, `[n_frames, n_mels]`, less their band's shift, times its scale.
    #[inline(always)]
    pub(super) fn put_frames<V: Lanes>(&mut self, from: &[f32], shifts: &[f32], scales: &[f32]) {
        let Self { layout, n_mels, n_frames, .. } = *self;
        each_float!(&mut self.values, values => for (first, frames) in
            (0..n_frames).step_by(LANES).zip(from.chunks(LANES * n_mels))
        {
            for band in (0..n_mels).step_by(LANES) {
                let bands = band..n_mels.min(band + LANES);
                let (shift, scale) = (V::load_part(&shifts[bands.clone()]), V::load_part(&scales[bands.clone()]));
                let mut tile = [shift; LANES];
                for (lanes, frame) in tile.iter_mut().zip(frames.chunks_exact(n_mels)) {
                    *lanes = (V::load_part(&frame[bands.clone()]) - shift) * scale;
                }
                match layout {
                    Layout::Mel => {
                        let count = LANES.min(n_frames - first);
                        for (lanes, band) in V::transpose(tile).into_iter().zip(bands) {
                            LaneValue::store_part(lanes, &mut values[band * n_frames + first..][..count]);
                        }
                    }
                    Layout::Time => {
                        let out = values[first * n_mels..].chunks_exact_mut(n_mels);
                        for (lanes, frame) in tile.into_iter().zip(out) {
                            LaneValue::store_part(lanes, &mut frame[bands.clone()]);
                        }
                    }
                }
            }
        });
    }

    /// Fills the frames from `first` on; `value` is that of a band, the same in each lane.
    #[inline(always)]
    pub(super) fn fill<V: Lanes>(&mut self, first: usize, value: impl Fn(usize) -> V) {
        let Self { n_mels, n_frames, .. } = *self;
        each_float!(&mut self.values, values => {
            for band in 0..n_mels {
                let mut one = [Default::default()];
                LaneValue::store_part(value(band), &mut one);
                match self.layout {
                    Layout::Mel => values[band * n_frames..][..n_frames][first..].fill(one[0]),
                    Layout::Time => {
                        let places = values[first * n_mels..].iter_mut().skip(band).step_by(n_mels);
                        places.for_each(|place| *place = one[0]);
                    }
                }
            }
        });
    }
}

/// Writes whole frames, eight bands at a time.
#[inline(always)]
fn by_frame<V: Lanes, T: LaneValue>(out: &mut [T], n_mels: usize, bands: &[Row]) {
    for (tile, first) in bands.chunks(LANES).zip((0..n_mels).step_by(LANES)) {
        let zero = V::splat(0.0);
        let rows = std::array::from_fn(|i| tile.get(i).map_or(zero, |row| V::load(&row.0)));
        for (frame, out) in V::transpose(rows).into_iter().zip(out.chunks_exact_mut(n_mels)) {
            T::store_part(frame, &mut out[first..n_mels.min(first + LANES)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::{Level, Work};

    type Tile = ([u16; LANES], [u16; LANES]);

    struct Halves([f32; LANES]);

    impl Work for Halves {
        type Output = Tile;
        #[inline(always)]
        fn run<V: Lanes>(self) -> Tile {
            let (mut f16s, mut bf16s) = ([f16::ZERO; LANES], [bf16::ZERO; LANES]);
            V::load(&self.0).store_f16(&mut f16s);
            V::load(&self.0).store_bf16(&mut bf16s);
            (f16s.map(f16::to_bits), bf16s.map(bf16::to_bits))
        }
    }

    /// Bits of the nearest value to one that is between `low` and the next bits, whose exact values are
    /// `low_value` and `high_value`.
    fn nearest(value: f64, (low, low_value): (u16, f64), high_value: f64) -> u16 {
        let (below, above) = (value - low_value, high_value - value);
        let up = below > above || below == above && low % 2 == 1;
        low + u16::from(up)
    }

    /// The values between two neighbours of a type that may be rounded wrongly: the ends, the middle, and the
    /// numbers next to each.
    fn between(low: f32, high: f64) -> [f32; 7] {
        let middle = (f64::from(low) + high) / 2.0;
        let (middle, high) = (middle as f32, high as f32);
        [low, low.next_up(), middle.next_down(), middle, middle.next_up(), high.next_down(), high]
    }

    /// Checks every pair of neighbours, with both signs; `value` is exact, and continues for one step beyond
    /// the largest value.
    fn check(level: Level, infinity: u16, value: impl Fn(u16) -> f64, pick: impl Fn(Tile) -> [u16; LANES]) {
        for low in 0..infinity {
            let (low_value, high_value) = (value(low), value(low + 1));
            let inputs = between(low_value as f32, high_value);
            let mut row = [0.0; LANES];
            row[..7].copy_from_slice(&inputs);
            // Beyond the range of `f32`; only for bfloat16.
            let expected = inputs.map(|x| match x.is_finite() {
                true => nearest(f64::from(x), (low, low_value), high_value),
                false => infinity,
            });
            assert_eq!(pick(level.run(Halves(row)))[..7], expected, "{level:?}: {inputs:?}");
            let negative = pick(level.run(Halves(row.map(|x| -x))));
            assert_eq!(negative[..7], expected.map(|bits| bits | 0x8000), "{level:?}: -{inputs:?}");
        }
    }

    /// The values of a type with `fraction` bits of fraction and an exponent of which 0 stands for
    /// `2^lowest`, subnormal below.
    fn value(bits: u16, fraction: u32, lowest: i32) -> f64 {
        let (exponent, rest) = (i32::from(bits >> fraction), f64::from(bits & ((1 << fraction) - 1)));
        let scale = 2_f64.powi(lowest - fraction as i32);
        let unit = f64::from(1 << fraction);
        if exponent == 0 { rest * scale } else { (unit + rest) * scale * 2_f64.powi(exponent - 1) }
    }

    #[test]
    fn float16_is_rounded_to_nearest_even_everywhere() {
        assert_eq!(value(0x3c00, 10, -14), 1.0);
        assert_eq!(value(0x7bff, 10, -14), 65_504.0);
        for level in Level::available() {
            check(level, 0x7c00, |bits| value(bits, 10, -14), |(f16s, _)| f16s);
        }
    }

    #[test]
    fn bfloat16_is_rounded_to_nearest_even_everywhere() {
        assert_eq!(value(0x3f80, 7, -126), 1.0);
        for level in Level::available() {
            check(level, 0x7f80, |bits| value(bits, 7, -126), |(_, bf16s)| bf16s);
        }
    }

    #[test]
    fn what_is_not_finite_stays_so() {
        let tiny_nan = f32::from_bits(0x7f80_0001);
        let most_nan = f32::from_bits(0xffff_ffff);
        let row = [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY, tiny_nan, most_nan, 1e30, -1e30];
        for level in Level::available() {
            let (f16s, bf16s) = level.run(Halves(row));
            let [f16s, bf16s] =
                [f16s.map(|x| f16::from_bits(x).to_f32()), bf16s.map(|x| bf16::from_bits(x).to_f32())];
            for i in [0, 1, 4, 5] {
                assert!(f16s[i].is_nan() && bf16s[i].is_nan(), "{level:?}: {f16s:?} {bf16s:?}");
            }
            assert_eq!(f16s[2..4], row[2..4]);
            assert_eq!(bf16s[2..4], row[2..4]);
            assert_eq!(f16s[6..], [f32::INFINITY, f32::NEG_INFINITY]);
            assert!(bf16s[6..].iter().all(|x| x.is_finite()));
        }
    }

    #[test]
    fn names_come_back() {
        for dtype in Dtype::FLOATS {
            assert_eq!(Dtype::from_name(dtype.name()), Some(dtype));
        }
        for layout in [Layout::Mel, Layout::Time] {
            assert_eq!(Layout::from_name(layout.name()), Some(layout));
        }
        assert_eq!((Dtype::from_name("float64"), Layout::from_name("MEL")), (None, None));
    }
}
