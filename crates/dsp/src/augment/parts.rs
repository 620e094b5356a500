//! What steps do where there are waveforms beside the mixture.
//!
//! Steps that are linear do the same to all of them, by the same draws, and the mixture is made anew as the
//! sum of its parts, so that no rounding comes between. A step that adds a sound of its own, or limits one,
//! changes the mixture alone. Source: own.

use std::borrow::Cow;

use super::{
    Augment, AugmentScratch, CleanTarget, Clips, Draws, Mixing, Only, OtherSteps, References, Step, StepKind,
};
use crate::Result;

/// What a step does where there are waveforms beside the mixture.
enum Reach {
    /// The same to all of them.
    All,
    /// Something to the mixture alone.
    Mixture,
}

impl StepKind {
    fn reach(&self) -> Reach {
        match self {
            Self::Noise { .. } | Self::Dither { .. } | Self::Clip { .. } | Self::Call(_) => Reach::Mixture,
            _ => Reach::All,
        }
    }

    /// The places of a step's partners among the parts; none without `parts`.
    fn places(&self) -> usize {
        match self {
            Self::Mix(Mixing { parts: true, most, .. }) => *most,
            _ => 0,
        }
    }
}

impl Augment {
    /// The parts of the mixture that examples have beside it, the clip itself among them; 0 without.
    pub fn n_parts(&self) -> usize {
        match self.steps().map(|step| step.kind.places()).sum() {
            0 => 0,
            partners => 1 + partners,
        }
    }

    /// The target that examples have beside a reverberated waveform.
    pub fn clean(&self) -> Option<CleanTarget> {
        self.steps().find_map(|step| match step.kind {
            StepKind::Reverb { clean } => clean,
            _ => None,
        })
    }

    /// The waveforms beside the mixture: the target, then the parts.
    pub fn n_references(&self) -> usize {
        usize::from(self.clean().is_some()) + self.n_parts()
    }

    /// The waveforms of an example that no step has changed: the clip, the same as target, and as its only
    /// part.
    pub fn unchanged(&self, clip: &[f32], samples: &mut [f32]) {
        samples.fill(0.0);
        let n_clean = usize::from(self.clean().is_some());
        let n = 1 + n_clean + self.n_parts().min(1);
        samples.chunks_exact_mut(clip.len().max(1)).take(n).for_each(|to| to.copy_from_slice(clip));
    }

    /// As [`Augment::waveforms`], where waveforms beside the mixture follow it.
    pub(super) fn waveforms_with_references(
        &self,
        seed: u64,
        clips: &mut Clips<'_>,
        scratch: &mut AugmentScratch,
        other: &mut OtherSteps<'_>,
    ) -> Result<()> {
        let n_clean = usize::from(self.clean().is_some());
        let each = clips.samples.len() / (1 + self.n_references());
        // Until then the clip and its only part are the same.
        let first_mix = self.steps().position(|step| step.kind.places() > 0);
        let (mut place, mut is_sum) = (1, first_mix.is_some());
        for (number, (step, key, reading)) in self.steps.iter().enumerate() {
            let (mixture, references) = clips.samples.split_at_mut(each);
            let (clean, parts) = references.split_at_mut(each * n_clean);
            let has_parts = first_mix.is_some_and(|first| first <= number);
            if first_mix == Some(number) {
                parts[..each].copy_from_slice(mixture);
            }
            let parts = if has_parts { parts } else { &mut [] };
            let first = place;
            place += step.kind.places();
            let mut draws = Draws { seed, key: *key, reading: *reading, next: 0 };
            if !step.is_applied(seed, &mut draws) {
                continue;
            }
            let n = 1 + n_clean + parts.len() / each.max(1);
            if step.kind.reading().is_some() {
                let mut mixture = Clips { samples: mixture, valid: clips.valid.clone(), ..*clips };
                other(&step.kind, &mut draws, &mut mixture, References { clean, parts, first })?;
                clips.valid = mixture.valid;
            } else {
                let n = if matches!(step.kind.reach(), Reach::All) { n } else { 1 };
                let samples = &mut clips.samples[..n * each];
                let mut changed = Clips { samples, valid: clips.valid.clone(), ..*clips };
                step.leveled_by_first(n).change(draws, &mut changed, n, scratch, other)?;
                clips.valid = changed.valid;
            }
            is_sum &= !(has_parts && matches!(step.kind, StepKind::Clip { .. }));
            if has_parts && is_sum {
                sum_of_parts(clips.samples, each, n_clean);
            }
        }
        Ok(())
    }
}

impl Step {
    /// The same for `n` waveforms, of which the first has the level that is set.
    fn leveled_by_first(&self, n: usize) -> Cow<'_, Self> {
        let StepKind::Level { db, loudness, peak, .. } = self.kind else { return Cow::Borrowed(self) };
        let of = Some(Only { field: String::new(), waveforms: 0..1, of: n });
        let kind = StepKind::Level { db, loudness, of, peak };
        Cow::Owned(Self { kind, only: None, ..*self })
    }
}

/// Makes the mixture, which comes first, of its parts, which come after the target.
fn sum_of_parts(samples: &mut [f32], each: usize, n_clean: usize) {
    let (mixture, references) = samples.split_at_mut(each);
    let mut parts = references[each * n_clean..].chunks_exact(each.max(1));
    if let Some(clip) = parts.next() {
        mixture.copy_from_slice(clip);
    }
    for part in parts {
        mixture.iter_mut().zip(part).for_each(|(sum, x)| *sum += x);
    }
}
