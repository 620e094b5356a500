//! [`References`]: the waveforms of an example beside its mixture, for the loss: the parts of a `Mix`, and
//! the target of a `Reverb`. Source: own.

use super::scale;

/// The waveform that a model is to make of a reverberated one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CleanTarget {
    /// Without any reverberation.
    Dry,
    /// With that of the first [`EARLY_SECONDS`] of the response.
    Early,
}

/// The part of a response, from the direct sound on, that supports speech and does not blur it. Source:
/// ISO 3382-1, annex A: the early time limit of the clarity of speech, C50.
pub const EARLY_SECONDS: f64 = 0.05;

/// The waveforms of an example beside its mixture, each of the same shape.
#[derive(Debug, Default)]
pub struct References<'a> {
    /// The target of a `Reverb`; empty without one.
    pub clean: &'a mut [f32],
    /// The clip, then a place for each partner; empty without parts.
    pub parts: &'a mut [f32],
    /// The place of the step's first partner.
    pub first: usize,
}

impl References<'_> {
    /// Scales all of them.
    pub(super) fn scale(&mut self, factor: f32) {
        scale(self.clean, factor);
        scale(self.parts, factor);
    }

    /// Writes a partner, as it was added, to this place of the step.
    pub(super) fn put(&mut self, place: usize, partner: &[f32], factor: f64) {
        let mut places = self.parts.chunks_exact_mut(partner.len().max(1));
        if let Some(part) = places.nth(self.first + place) {
            part.iter_mut().zip(partner).for_each(|(to, x)| *to = factor as f32 * x);
        }
    }
}
