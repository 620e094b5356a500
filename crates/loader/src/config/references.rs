//! The problems of steps whose waveforms examples have beside the mixture: `Mix(parts=True)` and
//! `Reverb(clean=)`.
//!
//! The parts must add up to the mixture, and the target must be what a model can make of it. So a step that
//! is not linear, or adds a sound of its own, is allowed where the answer is plain, and refused elsewhere.

use super::{LoaderConfig, MOST_WAVEFORMS};
use crate::dsp::{
    Augment, Features,
    augment::{Calling, Mixing, Step, StepKind},
};

impl LoaderConfig {
    /// The problems of the waveforms that steps leave beside the mixture, if they leave any.
    pub(super) fn reference_problems(
        &self,
        augment: &Augment,
        features: &Features,
        problems: &mut Vec<String>,
    ) {
        let (n_parts, clean) = (augment.n_parts(), augment.clean());
        let (what, parameter) = match (n_parts, clean) {
            (0, None) => return,
            (0, Some(_)) => ("Reverb(clean=)", "clean="),
            _ => ("Mix(parts=True)", "parts=True"),
        };
        if features.scales_each_waveform() {
            problems.push(format!(
                "augment has {what}, and normalize_waveform of the features would scale each of its waveforms by its own peak or \
                 deviation; leave normalize_waveform out, or put a Level into augment, which scales all alike"
            ));
        }
        if self.audio.is_some() {
            problems.push(format!(
                "augment has {what}, which gives a row of one recording further waveforms, and audio= names several; leave \
                 audio= and Only() out, and a batch has waveform and what {what} adds, or leave {parameter} out"
            ));
        }
        if n_parts > MOST_WAVEFORMS {
            problems.push(format!(
                "augment has Mix steps of {n_parts} parts together, at most {MOST_WAVEFORMS} are possible; lower most"
            ));
        }
        if n_parts > 0 && augment.mixes().any(|mixing| !mixing.parts) {
            problems.push(
                "augment has a Mix with parts=True and one without, and the parts would not add up to the mixture; give \
                 parts=True to both"
                    .to_owned(),
            );
        }
        if clean.is_some()
            && augment
                .steps()
                .any(|step| matches!(step.kind, StepKind::Reverb { clean: one } if one != clean))
        {
            problems.push(
                "augment has several Reverb with different clean=, and an example has one target; give all the same"
                    .to_owned(),
            );
        }
        let mut has_parts = false;
        for step in augment.steps() {
            has_parts |= matches!(step.kind, StepKind::Mix(Mixing { parts: true, .. }));
            problems.extend(step_problem(step, has_parts, clean.is_some()));
        }
    }
}

/// The problem with a step that comes before or after the first mix of parts.
fn step_problem(step: &Step, has_parts: bool, has_clean: bool) -> Option<String> {
    let name = step.kind.name();
    let step_of = if has_parts { "Mix(parts=True)" } else { "Reverb(clean=)" };
    match &step.kind {
        StepKind::Noise { .. } | StepKind::Dither { .. } if has_parts => Some(format!(
            "augment has {name} after Mix(parts=True), which adds a sound that is none of the parts; put it before the Mix, \
             where it is the clip's"
        )),
        StepKind::DropChunk { noise_factor, .. } if (has_parts || has_clean) && noise_factor.high > 0.0 => {
            Some(format!(
                "augment has DropChunk with noise_factor, whose noise would be none of the waveforms of {step_of}; leave \
                 noise_factor out{}",
                if has_clean { "" } else { ", or put it before the Mix of parts" }
            ))
        }
        StepKind::Call(Calling { on_features: false, .. }) if has_parts || has_clean => Some(format!(
            "augment has Python(on=\"waveform\"), of which nothing says what it would do to each waveform of {step_of}; leave \
             one of them out{}",
            if has_clean { "" } else { ", or put it before the Mix" }
        )),
        StepKind::Pair(_) if has_parts || has_clean => Some(format!(
            "augment has {name}, which mixes rows of one waveform, and {step_of} gives a row several; leave one of them out"
        )),
        _ => None,
    }
}
