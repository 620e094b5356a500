//! Resampling in the frequency domain, for rates whose ratio is made of small numbers (all usual ones), and
//! as the first stage for others (`staged`).
//!
//! Overlap-save on a fixed grid: a block yields `hop_out` outputs from `n_in` input samples that begin
//! `half_width` before the first output. Its spectrum is multiplied by the kernel's Fourier transform and cut
//! or extended to `n_out` points. The inverse transform is then the band-limited signal on the target grid.
//! Two blocks are the real and imaginary part of one complex transform, which saves untangling real spectra
//! at no cost: the kernel is real, so the parts stay apart. Pairs of blocks are on an absolute grid and
//! always computed whole, so an output's bits do not depend on the requested span. Per output this takes a
//! fraction of the multiplications of the polyphase sum. Cutting the spectrum drops only parts that the stop
//! band has attenuated already. Source: own; overlap-save as in Oppenheim and Schafer, "Discrete-Time Signal
//! Processing", 8.7.3.

use super::{Ratio, design::Prototype, fill};
use crate::{Result, fallible_alloc};
use rustfft::{Fft, FftPlanner, num_complex::Complex32};
use std::{cell::RefCell, f64::consts::TAU, ops::Range, sync::Arc};

/// Longest block, in samples of either rate.
const MAX_BLOCK: usize = 16_384;

/// Largest prime factor for which the FFT is fast.
const MAX_FACTOR: usize = 13;

/// A plan for one rate pair.
pub(super) struct BlockPlan {
    n_in: usize,
    n_out: usize,
    hop_in: u64,
    hop_out: u64,
    half_width: u64,
    forward: Arc<dyn Fft<f32>>,
    inverse: Arc<dyn Fft<f32>>,
    /// The factor of each bin from 0 to below both Nyquist frequencies; its mirror gets the conjugate.
    response: Vec<Complex32>,
}

/// One thread's buffers, for all plans; they grow to the largest.
#[derive(Default)]
struct BlockScratch {
    /// Source samples of a pair of blocks.
    samples: Vec<f32>,
    input: Vec<Complex32>,
    output: Vec<Complex32>,
    fft: Vec<Complex32>,
}

thread_local! {
    static SCRATCH: RefCell<BlockScratch> = RefCell::default();
}

/// Whether no prime factor of `n` is above `max_factor`.
pub(super) fn is_smooth(mut n: usize, max_factor: usize) -> bool {
    for factor in 2..=max_factor {
        while n.is_multiple_of(factor) {
            n /= factor;
        }
    }
    n == 1
}

impl BlockPlan {
    /// A plan, or `None` if the ratio needs blocks that are too long or slow. `scale` is the rate of the
    /// kernel's time (see `design`) as a fraction of the source rate.
    pub(super) fn new(ratio: Ratio, scale: f64, prototype: &Prototype) -> Option<Self> {
        let (step, phases) = (ratio.source as usize, ratio.target as usize);
        if !is_smooth(step, MAX_FACTOR) || !is_smooth(phases, MAX_FACTOR) {
            return None;
        }
        let half_width = (prototype.half_width / scale).ceil() as usize + 1;
        // The shortest block in which overlap takes less than a fifth.
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
        let mut planner = FftPlanner::new();
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

    /// Outputs of a pair of blocks.
    pub(super) fn pair_len(&self) -> usize {
        2 * self.hop_out as usize
    }

    /// Source samples that the pairs of blocks for `target` read, from 0 on; the end of the recording is not
    /// considered.
    pub(super) fn input_span(&self, target: Range<i128>) -> Range<u64> {
        let pair_len = 2 * i128::from(self.hop_out);
        let start =
            |at: i128| at.div_euclid(pair_len) * 2 * i128::from(self.hop_in) - i128::from(self.half_width);
        let clamp = |at: i128| at.clamp(0, i128::from(u64::MAX)) as u64;
        let length = self.n_in as i128 + i128::from(self.hop_in);
        clamp(start(target.start))..clamp(start(target.end - 1) + length)
    }

    /// Writes outputs from `target_start` on, which may be before the recording; `source` begins at
    /// `source_start` and is surrounded by zeros.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`](crate::ErrorKind::Memory) if the allocation of the thread's working memory
    /// failed.
    pub(super) fn run(
        &self,
        source: &[f32],
        source_start: u64,
        target_start: i128,
        out: &mut [f32],
    ) -> Result<()> {
        let (hop_out, pair_len) = (self.hop_out as usize, self.pair_len());
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.fit(self)?;
            let (mut at, mut rest) = (target_start, out);
            while !rest.is_empty() {
                let pair = at.div_euclid(pair_len as i128);
                let skip = at.rem_euclid(pair_len as i128) as usize;
                let count = rest.len().min(pair_len - skip);
                let (now, later) = std::mem::take(&mut rest).split_at_mut(count);
                let start = 2 * pair * i128::from(self.hop_in) - i128::from(self.half_width);
                let samples = &mut scratch.samples[..self.n_in + self.hop_in as usize];
                fill(samples, source, start - i128::from(source_start));
                let outputs = self.pair(scratch);
                let (first, second) = now.split_at_mut(count.min(hop_out.saturating_sub(skip)));
                let in_second = skip.saturating_sub(hop_out);
                first.iter_mut().zip(&outputs[skip.min(hop_out)..]).for_each(|(out, y)| *out = y.re);
                second.iter_mut().zip(&outputs[in_second..]).for_each(|(out, y)| *out = y.im);
                at += count as i128;
                rest = later;
            }
            Ok(())
        })
    }

    /// Values of the working memory of both transforms.
    fn fft_len(&self) -> usize {
        self.forward.get_inplace_scratch_len().max(self.inverse.get_inplace_scratch_len())
    }

    /// Computes the outputs of a pair of blocks, as real and imaginary parts, from `scratch.samples`.
    fn pair<'a>(&self, scratch: &'a mut BlockScratch) -> &'a [Complex32] {
        let BlockScratch { samples, input, output, fft } = scratch;
        let (input, output) = (on_line(input, self.n_in), on_line(output, self.n_out));
        let fft = on_line(fft, self.fft_len());
        for ((z, re), im) in input.iter_mut().zip(&*samples).zip(&samples[self.hop_in as usize..]) {
            *z = Complex32::new(*re, *im);
        }
        self.forward.process_with_scratch(input, fft);
        let bins = self.response.len();
        for ((out, bin), gain) in output.iter_mut().zip(&*input).zip(&self.response) {
            *out = Complex32::new(bin.re * gain.re - bin.im * gain.im, bin.re * gain.im + bin.im * gain.re);
        }
        output[bins..=self.n_out - bins].fill(Complex32::default());
        // The mirrored bins, from -1 downwards.
        let mirrored = output.iter_mut().rev().zip(input.iter().rev());
        for ((out, bin), gain) in mirrored.zip(&self.response[1..]) {
            *out = Complex32::new(bin.re * gain.re + bin.im * gain.im, bin.im * gain.re - bin.re * gain.im);
        }
        self.inverse.process_with_scratch(output, fft);
        output
    }
}

impl BlockScratch {
    /// Grows the buffers for `plan`; allocates only when a thread first uses a plan of this size.
    fn fit(&mut self, plan: &BlockPlan) -> Result<()> {
        fn grow<T: Copy + Default>(buffer: &mut Vec<T>, len: usize) -> Result<()> {
            if buffer.len() < len { fallible_alloc::resize(buffer, len, T::default()) } else { Ok(()) }
        }
        grow(&mut self.samples, plan.n_in + plan.hop_in as usize)?;
        grow(&mut self.input, plan.n_in + SPARE)?;
        grow(&mut self.output, plan.n_out + SPARE)?;
        grow(&mut self.fft, plan.fft_len() + SPARE)
    }
}

/// The most values before the first one that begins a cache line.
const SPARE: usize = LINE / size_of::<Complex32>();

/// Bytes of a cache line. An FFT takes 3 to 8 % longer where its vectors of 32 bytes cross lines, as half of
/// them do if a buffer begins where the allocator places it.
const LINE: usize = 64;

/// `len` values of a buffer that has [`SPARE`] more, from the first that begins a cache line.
fn on_line(buffer: &mut [Complex32], len: usize) -> &mut [Complex32] {
    let begin = buffer.as_ptr().align_offset(LINE).min(SPARE);
    &mut buffer[begin..begin + len]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_begin_on_a_line_wherever_the_buffer_begins() {
        let mut buffer = vec![Complex32::default(); 100 + 2 * SPARE];
        for at in 0..SPARE {
            let values = on_line(&mut buffer[at..], 100);
            assert_eq!((values.as_ptr().addr() % LINE, values.len()), (0, 100));
        }
    }
}
