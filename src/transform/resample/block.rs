//! Resampling in the frequency domain, for rates whose ratio is made of small numbers (all usual ones).
//!
//! Overlap-save on a fixed grid: block `b` yields outputs `b * hop_out ..`, from `n_in` input samples that begin
//! `half_width` before its first output. Its spectrum is multiplied by the kernel's Fourier transform and cut or extended
//! to `n_out` points: the inverse transform is then the band-limited signal on the target grid. Blocks lie on an absolute
//! grid and are always computed whole, so an output's bits do not depend on which span was asked for. Per output this
//! costs a fifth of the multiplications of the polyphase sum. Cutting the spectrum drops only what the stop band has
//! attenuated already. Source: own; overlap-save as in Oppenheim and Schafer, "Discrete-Time Signal Processing", 8.7.3.

use super::{Ratio, design::Prototype, fill};
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex, num_complex::Complex32};
use std::{cell::RefCell, f64::consts::TAU, ops::Range, sync::Arc};

/// Longest block, in samples of either rate.
const MAX_BLOCK: usize = 16_384;

/// Largest prime factor for which the FFT is quick.
const MAX_FACTOR: usize = 13;

/// A plan for one rate pair.
pub(super) struct Block {
    n_in: usize,
    n_out: usize,
    hop_in: u64,
    hop_out: u64,
    half_width: u64,
    forward: Arc<dyn RealToComplex<f32>>,
    inverse: Arc<dyn ComplexToReal<f32>>,
    /// By what each bin below both Nyquist frequencies is multiplied.
    response: Vec<Complex32>,
}

/// One thread's buffers, for all plans; they grow to the largest.
#[derive(Default)]
struct Scratch {
    input: Vec<f32>,
    output: Vec<f32>,
    spectrum: Vec<Complex32>,
    cut: Vec<Complex32>,
    fft: Vec<Complex32>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Whether all prime factors of `n` are small.
fn is_smooth(mut n: usize) -> bool {
    for factor in 2..=MAX_FACTOR {
        while n.is_multiple_of(factor) {
            n /= factor;
        }
    }
    n == 1
}

impl Block {
    /// A plan, or `None` if the ratio needs blocks that are too long or slow.
    pub(super) fn new(ratio: Ratio, prototype: &Prototype) -> Option<Self> {
        let (step, phases) = (ratio.source as usize, ratio.target as usize);
        if !is_smooth(step) || !is_smooth(phases) {
            return None;
        }
        let scale = ratio.lower(); // lower rate / source rate
        let half_width = (prototype.half_width / scale).ceil() as usize + 1;
        // The shortest block of which overlap wastes less than a fifth.
        let (groups, hop) = (0..15)
            .flat_map(|doubling| [2 << doubling, 3 << doubling])
            .filter(|groups| groups % 2 == 0)
            .take_while(|groups| groups * step.max(phases) <= MAX_BLOCK)
            .find_map(|groups: usize| {
                let hop = (groups * step).checked_sub(2 * half_width)? / step;
                (5 * hop >= 4 * groups).then_some((groups, hop))
            })?;
        let (n_in, n_out) = (groups * step, groups * phases);
        let bins = n_in.min(n_out) / 2;
        let response = (prototype.response(1.0 / (n_in as f64 * scale), bins).into_iter().enumerate())
            .map(|(k, gain)| {
                // Advances by half a width, and undoes the factor n_in of the two transforms.
                let angle = TAU * ((k * half_width) % n_in) as f64 / n_in as f64;
                let gain = gain / n_in as f64;
                Complex32::new((gain * angle.cos()) as f32, (gain * angle.sin()) as f32)
            })
            .collect();
        let mut planner = RealFftPlanner::new();
        Some(Self {
            n_in,
            n_out,
            hop_in: (hop * step) as u64,
            hop_out: (hop * phases) as u64,
            half_width: half_width as u64,
            forward: planner.plan_fft_forward(n_in),
            inverse: planner.plan_fft_inverse(n_out),
            response,
        })
    }

    /// Source samples that the blocks under `target` read, as far as they are not before the start.
    pub(super) fn input_span(&self, target: Range<u64>) -> Range<u64> {
        let (first, last) = (target.start / self.hop_out, (target.end - 1) / self.hop_out);
        let start = (first.saturating_mul(self.hop_in)).saturating_sub(self.half_width);
        let end = (last.saturating_mul(self.hop_in)).saturating_add(self.n_in as u64 - self.half_width);
        start..end
    }

    /// Writes outputs `target_start ..`; `source` begins at `source_start` and is surrounded by zeros.
    pub(super) fn run(&self, source: &[f32], source_start: u64, target_start: u64, out: &mut [f32]) {
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.reserve(self);
            let (mut at, mut rest) = (target_start, out);
            while !rest.is_empty() {
                let (block, skip) = (at / self.hop_out, (at % self.hop_out) as usize);
                let count = rest.len().min(self.hop_out as usize - skip);
                let (now, later) = std::mem::take(&mut rest).split_at_mut(count);
                let start = i128::from(block) * i128::from(self.hop_in) - i128::from(self.half_width);
                fill(&mut scratch.input[..self.n_in], source, start - i128::from(source_start));
                now.copy_from_slice(&self.block(scratch)[skip..][..count]);
                at = at.saturating_add(count as u64);
                rest = later;
            }
        });
    }

    /// From `scratch.input` to the block's outputs.
    fn block<'a>(&self, scratch: &'a mut Scratch) -> &'a [f32] {
        let Scratch { input, output, spectrum, cut, fft } = scratch;
        let (input, output) = (&mut input[..self.n_in], &mut output[..self.n_out]);
        let (spectrum, cut) = (&mut spectrum[..self.n_in / 2 + 1], &mut cut[..self.n_out / 2 + 1]);
        // Neither transform can fail: buffers have the plan's lengths, and the first and last bin of `cut` are real.
        let forward = self.forward.process_with_scratch(input, spectrum, fft);
        debug_assert!(forward.is_ok());
        let (kept, dropped) = cut.split_at_mut(self.response.len());
        for ((cut, bin), gain) in kept.iter_mut().zip(&*spectrum).zip(&self.response) {
            *cut = Complex32::new(bin.re * gain.re - bin.im * gain.im, bin.re * gain.im + bin.im * gain.re);
        }
        kept[0].im = 0.0;
        dropped.fill(Complex32::default());
        let inverse = self.inverse.process_with_scratch(cut, output, fft);
        debug_assert!(inverse.is_ok());
        output
    }
}

impl Scratch {
    /// Grows the buffers to what `plan` needs; allocates only when a thread meets a larger plan than before.
    fn reserve(&mut self, plan: &Block) {
        fn grow<T: Clone + Default>(buffer: &mut Vec<T>, len: usize) {
            if buffer.len() < len {
                buffer.resize(len, T::default());
            }
        }
        grow(&mut self.input, plan.n_in);
        grow(&mut self.output, plan.n_out);
        grow(&mut self.spectrum, plan.n_in / 2 + 1);
        grow(&mut self.cut, plan.n_out / 2 + 1);
        grow(&mut self.fft, plan.forward.get_scratch_len().max(plan.inverse.get_scratch_len()));
    }
}
