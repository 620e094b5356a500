//! The second pass: steps that need the whole example, on `[n_frames, n_bands]`.
//!
//! Input: what the first pass wrote for the frames of the waveform. Output: features in their final type,
//! layout and length. A lane is a band here, so that a frame is read in runs of eight; the last step
//! transposes where the layout wants it. Sources: PCEN as in Wang et al. (2017); the others with their types.

use super::{FrontEnd, Normalization, PadValue, SpectrumCompression};
use crate::{
    dtype::ValuesMut,
    form::{LaneValue, Output},
    simd::{LANES, Lanes, Work},
};

/// One example in the second pass.
pub(super) struct SecondPass<'a> {
    pub(super) plan: &'a FrontEnd,
    /// `[n_frames, n_bands]`; the first `n_real` are those of the waveform.
    pub(super) values: &'a mut [f32],
    pub(super) n_real: usize,
    pub(super) n_frames: usize,
    pub(super) rows: &'a mut [f32],
    pub(super) out: ValuesMut<'a>,
}

impl Work for SecondPass<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Lanes>(self) {
        let Self { plan, values, n_real, n_frames, rows, out } = self;
        let (n_bands, n_rows) = (plan.transform.n_mels(), plan.config.n_rows());
        for frame in values[n_real * n_bands..].chunks_exact_mut(n_bands) {
            frame.copy_from_slice(&plan.silence);
        }
        // Behind a waveform, silence is compressed with it: PCEN and a range depend on what was before.
        let has_silence = plan.config.fill == PadValue::Silence || n_real == 0;
        let n_compressed = if has_silence { n_frames } else { n_real };
        let compressed = &mut values[..n_compressed * n_bands];
        plan.pcen::<V>(compressed, &mut rows[..n_bands]);
        plan.limit::<V>(compressed);
        if plan.config.cepstrum.is_some() {
            plan.cepstrum::<V>(values, rows);
        }
        let values = &mut values[..n_frames * n_rows];
        let (real, behind) = values.split_at_mut(n_real * n_rows);
        match plan.config.fill {
            PadValue::Number(number) => behind.fill(number),
            PadValue::Minimum if n_real > 0 => behind.fill(least::<V>(real)),
            // Without a frame of the waveform, silence stays.
            PadValue::Minimum | PadValue::Silence => {}
        }
        let (shifts, scales) = rows[..2 * n_rows].split_at_mut(n_rows);
        plan.shifts::<V>(real, behind, shifts, scales);
        let mut out = Output { values: out, layout: plan.config.form.layout, n_mels: n_rows, n_frames };
        out.put_frames::<V>(values, shifts, scales);
    }
}

impl FrontEnd {
    /// Per-channel energy normalization of energies `[n_frames, n_bands]`; `smoothed` holds a band each.
    #[inline(always)]
    fn pcen<V: Lanes>(&self, energies: &mut [f32], smoothed: &mut [f32]) {
        let SpectrumCompression::Pcen { smooth, gain, bias, root, eps, initial } = self.config.compression
        else {
            return;
        };
        match initial {
            Some(initial) => smoothed.fill(initial),
            None => smoothed.iter_mut().zip(&*energies).for_each(|(smoothed, first)| *smoothed = *first),
        }
        let (old, new) = (V::splat(1.0 - smooth), V::splat(smooth));
        let (bias_lanes, zero) = (V::splat(bias), V::splat(bias.powf(root)));
        for frame in energies.chunks_exact_mut(smoothed.len()) {
            for (energy, smoothed) in frame.chunks_mut(LANES).zip(smoothed.chunks_mut(LANES)) {
                let x = V::load_part(energy);
                let mean = old * V::load_part(smoothed) + new * x;
                f32::store_part(mean, smoothed);
                let base = x.div((V::splat(eps) + mean).pow(gain)) + bias_lanes;
                // Zero, which only happens without a bias, has no logarithm.
                let normal = V::splat(f32::MIN_POSITIVE).max(base);
                let power = normal.pow(root);
                let power = if bias == 0.0 { power * base.div(normal) } else { power };
                f32::store_part(power - zero, energy);
            }
        }
    }

    /// Makes the largest value the reference, and raises values to the range below the largest.
    #[inline(always)]
    fn limit<V: Lanes>(&self, values: &mut [f32]) {
        let is_relative =
            matches!(self.config.compression, SpectrumCompression::Decibel { reference: None, .. });
        if !is_relative && self.config.range().is_none() {
            return;
        }
        let largest = largest::<V>(values, 1.0);
        let zero = V::splat(if is_relative { largest } else { 0.0 });
        let least = V::splat(self.config.range().map_or(f32::NEG_INFINITY, |range| largest - range));
        for eight in values.chunks_mut(LANES) {
            // In this order of the operands NaN stays NaN.
            f32::store_part(least.max(V::load_part(eight)) - zero, eight);
        }
    }

    /// Replaces bands by coefficients, eight frames at a time.
    #[inline(always)]
    fn cepstrum<V: Lanes>(&self, values: &mut [f32], rows: &mut [f32]) {
        let (n_bands, n_rows) = (self.transform.n_mels(), self.config.n_rows());
        for first in (0..values.len() / n_bands).step_by(LANES) {
            let frames = &values[first * n_bands..];
            let frames = &frames[..frames.len().min(LANES * n_bands)];
            let count = frames.len() / n_bands;
            for row in (0..n_rows).step_by(LANES) {
                let place = row..n_rows.min(row + LANES);
                let mut sums = [V::splat(0.0); LANES];
                for (band, cosines) in self.cosines.chunks_exact(n_rows).enumerate() {
                    let cosines = V::load_part(&cosines[place.clone()]);
                    for (sum, frame) in sums.iter_mut().zip(frames.chunks_exact(n_bands)) {
                        *sum = V::splat(frame[band]).mul_add(cosines, *sum);
                    }
                }
                for (sum, out) in sums.into_iter().zip(rows.chunks_exact_mut(n_rows)).take(count) {
                    f32::store_part(sum, &mut out[place.clone()]);
                }
            }
            values[first * n_rows..][..count * n_rows].copy_from_slice(&rows[..count * n_rows]);
        }
    }

    /// What is subtracted from each row, and by what it is multiplied then. Frames behind the waveform may
    /// change for it.
    #[inline(always)]
    fn shifts<V: Lanes>(&self, real: &[f32], behind: &mut [f32], shifts: &mut [f32], scales: &mut [f32]) {
        let n_rows = shifts.len();
        match &self.config.normalization {
            Normalization::None => {
                shifts.fill(0.0);
                scales.fill(1.0);
            }
            Normalization::Standard { mean, std, factor } => {
                let one = |values: &[f64], i: usize| values[i % values.len()];
                for (i, (shift, scale)) in shifts.iter_mut().zip(scales).enumerate() {
                    (*shift, *scale) = (one(mean, i) as f32, (1.0 / (factor * one(std, i))) as f32);
                }
            }
            Normalization::MinMax => {
                let low = least::<V>(real).min(least::<V>(behind));
                let high = largest::<V>(real, 1.0).max(largest::<V>(behind, 1.0));
                shifts.fill(low);
                scales.fill(if high > low && low.is_finite() { 1.0 / (high - low) } else { 0.0 });
            }
            Normalization::ZScore { per_band, ddof, eps } => {
                let n_groups = if *per_band { n_rows } else { 1 };
                let n = real.len() / n_groups;
                for group in 0..n_groups {
                    let values = || real.iter().skip(group).step_by(n_groups).map(|&x| f64::from(x));
                    let mean = values().sum::<f64>() / n.max(1) as f64;
                    let squares: f64 = values().map(|x| (x - mean) * (x - mean)).sum();
                    let std = (squares / n.saturating_sub(usize::from(*ddof)).max(1) as f64).sqrt();
                    let scale = if std + eps > 0.0 { 1.0 / (std + eps) } else { 0.0 };
                    let rows = group..if *per_band { group + 1 } else { n_rows };
                    shifts[rows.clone()].fill(mean as f32);
                    scales[rows].fill(scale as f32);
                }
                // They become 0.
                behind.chunks_exact_mut(n_rows).for_each(|frame| frame.copy_from_slice(shifts));
            }
        }
    }
}

/// The least value, NaN ignored; infinity of none.
#[inline(always)]
fn least<V: Lanes>(values: &[f32]) -> f32 {
    -largest::<V>(values, -1.0)
}

/// The largest value times `sign`, NaN ignored; minus infinity of none.
#[inline(always)]
fn largest<V: Lanes>(values: &[f32], sign: f32) -> f32 {
    // Four at a time: each waits for the one before it.
    let mut most = [V::splat(f32::NEG_INFINITY); 4];
    for group in values.chunks(4 * LANES) {
        for (most, eight) in most.iter_mut().zip(group.chunks(LANES)) {
            *most = (V::load_part(eight) * V::splat(sign)).max(*most);
        }
    }
    let mut row = [0.0; LANES];
    let [a, b, c, d] = most;
    a.max(b).max(c.max(d)).store(&mut row);
    row.into_iter().fold(f32::NEG_INFINITY, f32::max)
}
