//! Decoded samples, channel by channel, in one buffer that is kept from record to record.
//!
//! Planar rather than interleaved, because everything behind the decoder (mean over channels, resampling) goes along time.
//! Source: own.

use crate::{Error, ErrorKind, Result};

/// Planar float32 samples in [-1, 1]: `channels` planes of `len` samples each.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Planes {
    samples: Vec<f32>,
    channels: u16,
    len: usize,
}

impl Planes {
    /// No channels, no samples, no memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes room for `n_samples` per channel. The samples are unspecified until written; memory only ever grows.
    pub fn reset(&mut self, channels: u16, n_samples: usize) {
        let total = usize::from(channels).saturating_mul(n_samples);
        if self.samples.len() < total {
            self.samples.resize(total, 0.0);
        }
        self.channels = channels;
        self.len = n_samples;
    }

    /// Number of channels.
    pub fn channels(&self) -> u16 {
        self.channels
    }

    /// Samples per channel.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The samples of channel `i`.
    ///
    /// # Panics
    /// If `i >= channels`.
    pub fn channel(&self, i: usize) -> &[f32] {
        assert!(i < usize::from(self.channels), "channel {i} of {}", self.channels);
        &self.samples[i * self.len..(i + 1) * self.len]
    }

    /// The samples of channel `i`, to be written.
    ///
    /// # Panics
    /// If `i >= channels`.
    pub fn channel_mut(&mut self, i: usize) -> &mut [f32] {
        assert!(i < usize::from(self.channels), "channel {i} of {}", self.channels);
        &mut self.samples[i * self.len..(i + 1) * self.len]
    }

    /// # Errors
    /// [`ErrorKind::NonFinite`] if a sample is NaN or infinite.
    pub(crate) fn check_finite(&self) -> Result<()> {
        let used = &self.samples[..usize::from(self.channels) * self.len];
        // The exponent of NaN and infinity is all ones; without a branch in the loop, the check runs at memory speed.
        let is_bad = |x: &f32| (x.to_bits() & 0x7f80_0000) == 0x7f80_0000;
        for block in used.chunks(4096) {
            if block.iter().fold(false, |bad, x| bad | is_bad(x)) {
                return Err(Error::new(ErrorKind::NonFinite, "the recording decodes to NaN or infinity"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_are_separate_and_finite() {
        let mut planes = Planes::new();
        planes.reset(2, 3);
        planes.channel_mut(0).copy_from_slice(&[1.0, 2.0, 3.0]);
        planes.channel_mut(1).copy_from_slice(&[4.0, 5.0, 6.0]);
        assert_eq!((planes.channel(0)[2], planes.channel(1)[0], planes.len()), (3.0, 4.0, 3));
        assert!(planes.check_finite().is_ok());
        planes.channel_mut(1)[2] = f32::NAN;
        assert_eq!(planes.check_finite().unwrap_err().kind, ErrorKind::NonFinite);
        planes.reset(1, 2);
        assert!(planes.check_finite().is_ok(), "samples of the record before do not count");
    }
}
