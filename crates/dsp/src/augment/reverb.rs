//! [`Convolver`]: the sound of a room, as the convolution of a clip with an impulse response. Which response,
//! and how it is read, is for the loader to say. By Fourier transforms of at least twice a clip, so that
//! nothing wraps around. Source: own.

use std::{fmt, sync::Arc};

use realfft::{ComplexToReal, RealFftPlanner, RealToComplex, num_complex::Complex32};

use super::{CleanTarget, Clips, EARLY_SECONDS, Loudness, References, scale};
use crate::{Result, fallible_alloc};

/// Convolves clips of one length, for one thread.
#[derive(Default)]
pub struct Convolver {
    plan: Option<ReverbPlan>,
    /// Samples of a channel, then zeros.
    padded: Vec<f32>,
    spectrum: Vec<Complex32>,
    response: Vec<Complex32>,
    scratch: Vec<Complex32>,
    made: Vec<f32>,
}

struct ReverbPlan {
    n: usize,
    forward: Arc<dyn RealToComplex<f32>>,
    inverse: Arc<dyn ComplexToReal<f32>>,
}

impl fmt::Debug for Convolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Convolver").field("n", &self.plan.as_ref().map(|plan| plan.n)).finish_non_exhaustive()
    }
}

impl Convolver {
    /// The memory for clips of `n` samples and so many channels, at most.
    pub fn bytes(n: usize, n_channels: usize) -> u64 {
        // Samples, two spectra, scratch and the tables of two plans take at most 36 bytes for each value of a
        // transform (`the_memory_is_bounded`).
        (transform_len(n) as u64).saturating_mul(36).saturating_add(4 * n as u64 * n_channels as u64)
    }

    /// Convolves each channel with its impulse response, of the same shape. The response begins at its sample
    /// of largest absolute value over all channels. The clip has the level of before, as a root mean square
    /// over its valid samples. Silence stays as it is, and so does a clip with a silent response.
    ///
    /// The `references` get the same: the parts with all of the response, the target with as much of it as
    /// `clean` says, and both with the gain of the clip.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`](crate::ErrorKind::Memory) if an allocation failed.
    pub fn apply(
        &mut self,
        clips: &mut Clips<'_>,
        response: &[f32],
        clean: Option<CleanTarget>,
        references: &mut References<'_>,
    ) -> Result<()> {
        let (n, first, sample_rate) = (clips.n, clips.valid.start, clips.sample_rate);
        let level = clips.level(Loudness::Rms)?;
        let Some((begin, peak)) = loudest(response, n) else { return Ok(()) };
        if !(level > 0.0 && level.is_finite()) {
            return Ok(());
        }
        self.fit(n, clips.samples.len())?;
        let all = Response { samples: response, begin, peak, end: n };
        if !self.convolve(clips.samples, first, all) {
            return Ok(());
        }
        let reached = Clips { samples: &mut self.made, n, valid: clips.valid.clone(), sample_rate }
            .level(Loudness::Rms)?;
        // The transforms multiply by their length; the level undoes it.
        let factor = (level / reached) as f32;
        if !(reached > 0.0 && factor.is_finite() && factor > 0.0) {
            return Ok(());
        }
        scale(&mut self.made, factor);
        clips.samples.copy_from_slice(&self.made);
        clips.valid = first..n;
        let len = clips.samples.len().max(1);
        let early = Response { end: begin.saturating_add(early_samples(sample_rate)).min(n), ..all };
        let of_clean = match clean {
            None => Some(all),
            Some(CleanTarget::Early) => Some(early),
            Some(CleanTarget::Dry) => None,
        };
        let clean = references.clean.chunks_exact_mut(len).zip(of_clean);
        let parts = references.parts.chunks_exact_mut(len).map(|part| (part, all));
        for (waveform, response) in clean.chain(parts) {
            // A partner that was not mixed in.
            if waveform.iter().any(|&x| x != 0.0) && self.convolve(waveform, first, response) {
                scale(&mut self.made, factor);
                waveform.copy_from_slice(&self.made);
            }
        }
        Ok(())
    }

    /// Makes the convolution of each channel, but for its gain; false if a plan is missing.
    fn convolve(&mut self, samples: &[f32], first: usize, response: Response<'_>) -> bool {
        self.made.copy_from_slice(samples);
        let Self { plan: Some(plan), padded, spectrum, response: of_response, scratch, made } = self else {
            return false;
        };
        let n = plan.n;
        let Response { samples: response, begin, peak, end } = response;
        for (channel, response) in made.chunks_exact_mut(n).zip(response.chunks_exact(n)) {
            let mut transform = |values: &mut dyn Iterator<Item = f32>, spectrum: &mut [Complex32]| {
                padded.iter_mut().for_each(|to| *to = values.next().unwrap_or(0.0));
                plan.forward.process_with_scratch(padded, spectrum, scratch)
            };
            // Relative to its peak, so that no product is too large or too small.
            let mut of_peak = response[begin..end].iter().map(|&x| (f64::from(x) / peak) as f32);
            let one = transform(&mut of_peak, of_response);
            // Padding in front stays as it is.
            let other = transform(&mut channel[first..].iter().copied(), spectrum);
            for (bin, other) in spectrum.iter_mut().zip(&*of_response) {
                *bin *= other;
            }
            // Real by definition.
            for bin in [0, spectrum.len() - 1] {
                spectrum[bin].im = 0.0;
            }
            let inverse = plan.inverse.process_with_scratch(spectrum, padded, scratch);
            // The buffers were made by this plan, so their lengths are right: no error is possible.
            if one.and(other).and(inverse).is_err() {
                return false;
            }
            channel[first..].copy_from_slice(&padded[..n - first]);
        }
        true
    }

    /// Makes plan and buffers for clips of `n` samples, `len` of all channels.
    fn fit(&mut self, n: usize, len: usize) -> Result<()> {
        fallible_alloc::resize(&mut self.made, len, 0.0)?;
        if self.plan.as_ref().is_some_and(|plan| plan.n == n) {
            return Ok(());
        }
        self.plan = None;
        let size = transform_len(n);
        let (bins, zero) = (size / 2 + 1, Complex32::default());
        fallible_alloc::resize(&mut self.padded, size, 0.0)?;
        fallible_alloc::resize(&mut self.spectrum, bins, zero)?;
        fallible_alloc::resize(&mut self.response, bins, zero)?;
        let mut planner = RealFftPlanner::new();
        let (forward, inverse) = (planner.plan_fft_forward(size), planner.plan_fft_inverse(size));
        let scratch = forward.get_scratch_len().max(inverse.get_scratch_len());
        fallible_alloc::resize(&mut self.scratch, scratch, zero)?;
        self.plan = Some(ReverbPlan { n, forward, inverse });
        Ok(())
    }
}

/// The samples of a response that count.
#[derive(Clone, Copy)]
struct Response<'a> {
    samples: &'a [f32],
    /// The direct sound, in each channel.
    begin: usize,
    /// Its absolute value.
    peak: f64,
    end: usize,
}

/// The samples of the early part of a response.
fn early_samples(sample_rate: u32) -> usize {
    (EARLY_SECONDS * f64::from(sample_rate)).round() as usize
}

/// Where the largest absolute value of any channel is, the first of several, and the value; `None` of
/// silence.
fn loudest(samples: &[f32], n: usize) -> Option<(usize, f64)> {
    let mut found: Option<(usize, f32)> = None;
    for channel in samples.chunks_exact(n.max(1)) {
        for (at, x) in channel.iter().map(|x| x.abs()).enumerate().filter(|(_, x)| *x > 0.0 && x.is_finite())
        {
            if found.is_none_or(|(first, most)| x > most || (x == most && at < first)) {
                found = Some((at, x));
            }
        }
    }
    found.map(|(at, peak)| (at, f64::from(peak)))
}

/// The values of a transform: the smallest even number of at least `2 n`, without prime factors above 3, for
/// which transforms are fast.
fn transform_len(n: usize) -> usize {
    let least = n.max(1).saturating_mul(2);
    let powers =
        std::iter::successors(Some(1_usize), |power| power.checked_mul(3)).take_while(|&p| p < least);
    let sizes = powers
        .filter_map(|power| least.div_ceil(power).checked_next_power_of_two()?.max(2).checked_mul(power));
    sizes.min().unwrap_or(least)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Stated by the definition.
    fn direct(samples: &[f32], n: usize, valid: std::ops::Range<usize>, response: &[f32]) -> Vec<f64> {
        let peaks =
            (0..n).map(|at| response.iter().skip(at).step_by(n).fold(0.0_f32, |most, x| most.max(x.abs())));
        let peaks: Vec<_> = peaks.collect();
        let most = peaks.iter().copied().fold(0.0, f32::max);
        let begin = peaks.iter().position(|&peak| peak == most).unwrap();
        let mut made = Vec::new();
        for (x, h) in samples.chunks(n).zip(response.chunks(n)) {
            made.extend((0..n).map(|t| {
                (0..=t).take(n - begin).map(|k| f64::from(h[begin + k]) * f64::from(x[t - k])).sum::<f64>()
            }));
        }
        let level = |values: &[f64]| {
            values.chunks(n).flat_map(|one| &one[valid.clone()]).map(|x| x * x).sum::<f64>().sqrt()
        };
        let plain: Vec<_> = samples.iter().map(|&x| f64::from(x)).collect();
        let factor = level(&plain) / level(&made);
        made.iter().map(|x| x * factor).collect()
    }

    proptest! {
        #[test]
        fn it_is_a_convolution(
            n in 1_usize..300, n_channels in 1_usize..3, start in 0_usize..40, end in 0_usize..40,
            values in prop::collection::vec((-1.0_f32..1.0, -1.0_f32..1.0), 600), len in 1_usize..300, late in 0_usize..9,
        ) {
            let (start, len) = (start.min(n - 1), len.min(n));
            let valid = start..n.saturating_sub(end).max(start + 1);
            let total = n * n_channels;
            let at = |i: usize| valid.contains(&(i % n));
            let mut samples: Vec<_> = (0..total).map(|i| if at(i) { values[i].0 } else { 0.0 }).collect();
            let decayed = |i: usize| values[i].1 * (-((i % n) as f32) / 30.0).exp();
            let mut response: Vec<_> = (0..total).map(|i| if i % n < len { decayed(i) } else { 0.0 }).collect();
            // What is before the direct sound has no effect.
            response[late.min(len - 1)] = 1.5;
            samples[start] = 0.5;
            let expected = direct(&samples, n, valid.clone(), &response);
            let peak = expected.iter().fold(0.0_f64, |most, x| most.max(x.abs()));
            let mut convolver = Convolver::default();
            for _ in 0..2 {
                let mut found = samples.clone();
                let mut clips = Clips { samples: &mut found, n, valid: valid.clone(), sample_rate: 8000 };
                convolver.apply(&mut clips, &response, None, &mut References::default()).unwrap();
                prop_assert_eq!(clips.valid, start..n);
                for (x, y) in found.iter().zip(&expected) {
                    prop_assert!((f64::from(*x) - y).abs() < 1e-5 * peak, "{} {}", x, y);
                }
                prop_assert!(found.chunks(n).all(|one| one[..start].iter().all(|&x| x == 0.0)));
            }
        }
    }

    #[test]
    fn silence_and_other_lengths() {
        let mut convolver = Convolver::default();
        for n in [3, 1, 100, 0] {
            let (mut one, mut silent) = (vec![0.25; n], vec![0.0; n]);
            let mut clips = Clips { samples: &mut one, n, valid: 0..n / 2, sample_rate: 8000 };
            convolver.apply(&mut clips, &silent, None, &mut References::default()).unwrap();
            assert_eq!((clips.valid, &one), (0..n / 2, &vec![0.25; n]));
            let mut clips = Clips { samples: &mut silent, n, valid: 0..n / 2, sample_rate: 8000 };
            convolver.apply(&mut clips, &one, None, &mut References::default()).unwrap();
            assert_eq!((clips.valid, &silent), (0..n / 2, &vec![0.0; n]));
            let mut loud = vec![1e30; n];
            let mut clips = Clips { samples: &mut loud, n, valid: 0..n, sample_rate: 8000 };
            convolver.apply(&mut clips, &one, None, &mut References::default()).unwrap();
            assert!(loud.iter().all(|x| x.is_finite()));
        }
    }

    #[test]
    fn the_memory_is_bounded() {
        for n in [1, 2, 1600, 80_000, 320_000, 1_000_003] {
            let len = transform_len(n);
            assert!(len >= 2 * n && len < 3 * n.max(2) && len.is_multiple_of(2), "{n}: {len}");
            let mut convolver = Convolver::default();
            convolver.fit(n, n).unwrap();
            let Convolver { padded, spectrum, response, scratch, made, .. } = &convolver;
            let complex = spectrum.capacity() + response.capacity() + scratch.capacity();
            // The tables of a plan: one of half its length and a quarter of twiddles, or less.
            let tables = 2 * (len / 2 + len / 4);
            let bytes = 4 * (padded.capacity() + made.capacity()) + 8 * (complex + tables);
            assert!(bytes as u64 <= Convolver::bytes(n, 1) + 100, "{n}: {bytes} {len}");
        }
    }
}
