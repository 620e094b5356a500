//! Decoded samples, channel by channel, in one buffer that is reused from record to record.
//!
//! They are planar and not interleaved, since all later stages (mean over channels, resampling) work along
//! time. Source: own.

use std::ops::Range;

use crate::{Error, ErrorKind, Result, fallible_alloc};

/// The highest sample rate that is accepted, Hz: above that of every converter. FLAC can declare 1 048 575
/// Hz, and WAV any.
pub const MAX_RATE: u32 = 1 << 22;

/// The most samples whose memory a buffer keeps for the next record: 64 MiB. A larger buffer is freed at the
/// next smaller record.
pub const KEPT_SAMPLES: usize = 16 << 20;

/// Planar float32 samples in [-1, 1]: `channels` planes of `len` samples each.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Planes {
    samples: Vec<f32>,
    channels: u16,
    len: usize,
    takes_mean: bool,
}

impl Planes {
    #[inline]
    pub fn new() -> Self {
        Self::default()
    }

    /// Allocates `n_samples` per channel. The samples are unspecified until written. Up to 64 MiB of memory
    /// are kept for the next call.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`] if the allocation failed; the buffer is then empty.
    #[inline]
    pub fn reset(&mut self, channels: u16, n_samples: usize) -> Result<()> {
        (self.channels, self.len) = (0, 0);
        let total = usize::from(channels).saturating_mul(n_samples);
        if self.samples.len() > KEPT_SAMPLES && total <= KEPT_SAMPLES {
            self.samples = Vec::new();
        }
        if self.samples.len() < total {
            fallible_alloc::resize(&mut self.samples, total, 0.0)?;
        }
        (self.channels, self.len) = (channels, n_samples);
        Ok(())
    }

    /// Whether the mean of the channels is enough. Decoders that can mix for less than they need for each
    /// channel then give one plane; the others still give all of them. Either way the mean is that of
    /// [`Planes::mean`], but for rounding.
    #[inline]
    pub fn take_mean(&mut self, is_enough: bool) {
        self.takes_mean = is_enough;
    }

    /// Whether [`Planes::take_mean`] was called with true.
    #[inline]
    pub fn takes_mean(&self) -> bool {
        self.takes_mean
    }

    #[inline]
    pub fn channels(&self) -> u16 {
        self.channels
    }

    /// Samples per channel.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The samples of channel `i`.
    ///
    /// # Panics
    /// If `i >= channels`.
    #[inline]
    pub fn channel(&self, i: usize) -> &[f32] {
        assert!(i < usize::from(self.channels), "channel {i} of {}", self.channels);
        &self.samples[i * self.len..(i + 1) * self.len]
    }

    /// The samples of channel `i`, to be written.
    ///
    /// # Panics
    /// If `i >= channels`.
    #[inline]
    pub fn channel_mut(&mut self, i: usize) -> &mut [f32] {
        assert!(i < usize::from(self.channels), "channel {i} of {}", self.channels);
        &mut self.samples[i * self.len..(i + 1) * self.len]
    }

    /// Fills a range of all channels with zeros.
    pub fn silence(&mut self, range: &Range<usize>) {
        for channel in 0..self.channels {
            self.channel_mut(channel.into())[range.clone()].fill(0.0);
        }
    }

    /// The concatenated samples of all channels, in their existing memory.
    #[inline]
    pub fn into_samples(mut self) -> Vec<f32> {
        self.samples.truncate(usize::from(self.channels) * self.len);
        self.samples
    }

    /// Checks the samples.
    ///
    /// # Errors
    /// [`ErrorKind::NonFinite`] if a sample is NaN or infinite, or so large that sums of its square would be.
    #[inline]
    pub fn check_finite(&self) -> Result<()> {
        let used = &self.samples[..usize::from(self.channels) * self.len];
        // The exponent of NaN and infinity is all ones; without a branch in the loop, the check runs at
        // memory speed. 2^32 is above all unscaled 32-bit integers, and its spectrum's power is below 2^112.
        const LARGEST: u32 = (127 + 32) << 23;
        let is_bad = |x: &f32| (x.to_bits() & 0x7f80_0000) >= LARGEST;
        for block in used.chunks(4096) {
            if block.iter().fold(false, |bad, x| bad | is_bad(x)) {
                let message =
                    "the recording decodes to NaN, infinity, or samples beyond 2^32, where full scale is 1";
                return Err(Error::new(ErrorKind::NonFinite, message));
            }
        }
        Ok(())
    }

    /// The mean of the channels in a range of samples, computed in `mono` if there are several.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`] if the allocation failed.
    ///
    /// # Panics
    /// If the range reaches beyond the samples.
    #[inline]
    pub fn mean<'a>(&'a self, range: Range<usize>, mono: &'a mut Vec<f32>) -> Result<&'a [f32]> {
        let channels = self.channels();
        let first = &self.channel(0)[range.clone()];
        if channels == 1 {
            return Ok(first);
        }
        mono.clear();
        if mono.capacity() > KEPT_SAMPLES && first.len() <= KEPT_SAMPLES {
            *mono = Vec::new();
        }
        fallible_alloc::reserve(mono, first.len())?;
        if channels == 2 {
            // Stereo in one pass; the values equal those of the loops below.
            mono.extend(first.iter().zip(&self.channel(1)[range]).map(|(left, right)| (left + right) * 0.5));
            return Ok(mono);
        }
        mono.extend_from_slice(first);
        for channel in 1..usize::from(channels) {
            let values = &self.channel(channel)[range.clone()];
            mono.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        }
        let scale = 1.0 / f32::from(channels);
        mono.iter_mut().for_each(|sum| *sum *= scale);
        Ok(mono)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_are_separate_and_finite() {
        let mut planes = Planes::new();
        planes.reset(2, 3).unwrap();
        planes.channel_mut(0).copy_from_slice(&[1.0, 2.0, 3.0]);
        planes.channel_mut(1).copy_from_slice(&[4.0, 5.0, 6.0]);
        assert_eq!((planes.channel(0)[2], planes.channel(1)[0], planes.len()), (3.0, 4.0, 3));
        assert!(planes.check_finite().is_ok());
        for bad in [f32::NAN, f32::NEG_INFINITY, f32::MAX, -4_294_967_296.0] {
            planes.channel_mut(1)[2] = bad;
            assert_eq!(planes.check_finite().unwrap_err().kind, ErrorKind::NonFinite, "{bad}");
        }
        planes.channel_mut(0).fill(-2_147_483_648.0);
        planes.reset(1, 2).unwrap();
        assert!(planes.check_finite().is_ok(), "samples of the record before do not count");
        planes.channel_mut(0).copy_from_slice(&[0.5, 0.25]);
        assert_eq!(planes.into_samples(), [0.5, 0.25]);
    }

    #[test]
    fn what_a_single_large_record_took_is_given_back() {
        let mut planes = Planes::new();
        planes.reset(4, KEPT_SAMPLES).unwrap();
        assert_eq!(planes.samples.capacity(), 4 * KEPT_SAMPLES);
        planes.reset(2, 100).unwrap();
        assert_eq!(planes.samples.capacity(), 200);
        assert_eq!(planes.reset(u16::MAX, usize::MAX).unwrap_err().kind, ErrorKind::Memory);
        assert!(planes.is_empty() && planes.check_finite().is_ok());
    }
}
