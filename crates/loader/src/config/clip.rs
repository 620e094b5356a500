//! The plan of a clip: its place in the recording, augmentation and features.

use super::{
    AugmentObject, CropConfig, CropObject, LoaderConfig, MAX_EXAMPLE_BYTES, SpanPlace, Waveforms,
    WindowConfig,
};
use crate::{
    Result,
    audio::Damage,
    dsp::{
        Augment, CropMode, Features, SpanRule, SpectrogramConfig, WindowEnd, WindowRule,
        augment::{MixTargets, Step, StepKind},
    },
    float_mode,
    tasks::{AudioPlan, BatchPadding, ClipCrop, ClipRule, CropPosition},
};

impl LoaderConfig {
    /// The plan of the features; the table has checked the parameters' ranges.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if the parameters contradict each other, or if the object keeps all channels of
    /// an unknown number.
    fn planned_features(&self) -> Result<Features> {
        let Some(object) = &self.features else {
            let spectrogram = SpectrogramConfig {
                sample_rate: self.sample_rate as u32,
                n_fft: self.n_fft as usize,
                hop_length: self.hop_length as usize,
                n_mels: self.n_mels as usize,
                ..SpectrogramConfig::default()
            };
            return float_mode::lent(|| {
                let plan = Features::log_mel(spectrogram, self.form())?;
                plan.warn_of_empty_bands();
                Ok(plan)
            });
        };
        object.plan.check_channels()?;
        Ok(object.plan.clone())
    }

    /// The most seconds of a clip, as it is played.
    fn longest_clip(&self, problems: &mut Vec<String>) -> f64 {
        let Some(whole) = self.whole() else { return self.clip_seconds };
        if self.clip_seconds != Self::default().clip_seconds {
            problems.push(format!(
                "clip_seconds is {:?}, and crop is Whole(), whose clips are as long as their recordings; leave clip_seconds \
                 out, and give Whole(max_seconds=...)",
                self.clip_seconds
            ));
        }
        let slowest = match &self.augment {
            AugmentObject::Steps { augment, .. } => augment.slowest(),
            AugmentObject::Crop(_) => 1.0,
        };
        whole.max_seconds / slowest
    }

    fn planned_crop(
        &self,
        features: Features,
        clip: usize,
        problems: &mut Vec<String>,
    ) -> Result<(ClipRule, Features)> {
        let windows = match self.crop.as_ref().map(|object| &object.rule) {
            None if self.augment != AugmentObject::Crop(false) => {
                return Ok((ClipRule::Clip(CropMode::Random.into()), features));
            }
            None => return Ok((ClipRule::Clip(CropMode::Center.into()), features)),
            Some(CropConfig::Clip(crop, spans)) => {
                let place = spans.as_ref().map_or(crop.place, |spans| CropPosition::Spans {
                    rule: match spans.place {
                        SpanPlace::Around(seconds) => {
                            SpanRule::Event((seconds * f64::from(features.sample_rate())).round() as u64)
                        }
                        SpanPlace::Inside => SpanRule::Inside,
                        SpanPlace::Region => SpanRule::Region,
                    },
                    are_required: spans.are_required,
                });
                return Ok((ClipRule::Clip(ClipCrop { place, ..*crop }), features));
            }
            Some(CropConfig::Whole(whole)) => return Ok((ClipRule::Whole(whole.rule), features)),
            Some(CropConfig::Windows(windows)) => windows,
        };
        let samples = |seconds: f64| (seconds * f64::from(features.sample_rate())).round();
        let context = samples(windows.context) as usize;
        let window = clip.saturating_sub(context.saturating_mul(2));
        if window == 0 && clip > 0 {
            let WindowConfig { context, .. } = windows;
            problems.push(format!(
                "context is {context:?} seconds on both sides, which leaves no window of the {clip} samples of a clip; \
                 give less, or longer clips"
            ));
        }
        let step = windows.step.map_or(window.max(1) as f64, samples);
        if step < 1.0 {
            problems.push(format!(
                "step is {:?}, which at sample_rate {} is less than a sample",
                windows.step.unwrap_or_default(),
                features.sample_rate()
            ));
        }
        let features = match windows.end {
            WindowEnd::Remainder => features.of_length(clip)?,
            _ => features,
        };
        Ok((
            ClipRule::Windows(WindowRule {
                window: window.max(1),
                step: step.max(1.0) as u64,
                end: windows.end,
                context,
            }),
            features,
        ))
    }

    fn planned_augment(
        &self,
        features: &Features,
        clip_samples: usize,
        problems: &mut Vec<String>,
    ) -> Result<Augment> {
        let AugmentObject::Steps { augment, .. } = &self.augment else { return Ok(Augment::default()) };
        let is_windows = matches!(&self.crop, Some(CropObject { rule: CropConfig::Windows(_), .. }));
        for step in augment.steps() {
            let name = step.kind.name();
            if step.kind.is_on_features() && features.is_waveform() {
                problems.push(format!(
                    "augment has {name}, which changes spectrograms, and the features are waveforms; leave it out"
                ));
            }
            let mixes_targets =
                matches!(&step.kind, StepKind::Mix(mixing) if mixing.targets != MixTargets::Keep);
            let is_views = matches!(&self.crop, Some(CropObject { rule: CropConfig::Clip(crop, _), .. }) if crop.views > 0);
            if is_views && mixes_targets {
                problems.push(
                    "augment has a Mix that mixes targets, and the clips of Views() share them; give targets=\"keep\"".to_owned(),
                );
            }
            problems.extend(self.waveforms_problem(augment, step));
            if self.whole().is_some() && matches!(step.kind, StepKind::Pair(_)) {
                problems.push(format!(
                    "augment has {name}, which mixes clips of one length, and crop is Whole(); leave one of them out"
                ));
            }
            if is_windows && matches!(step.kind, StepKind::Speed { .. }) {
                problems.push(
                    "augment has Speed, which changes the lengths of recordings, and crop is Windows(), which counts their windows beforehand; leave one of them out"
                        .to_owned(),
                );
            }
        }
        if augment.steps().filter(|step| matches!(step.kind, StepKind::Remix { .. })).count() > 1 {
            problems.push("augment has Remix twice; give one, with a larger group".to_owned());
        }
        self.reference_problems(augment, features, problems);
        let audio = self.audio.as_ref();
        let n_waveforms = audio.map_or(1, Waveforms::n_waveforms);
        let augment = augment.clone().over(n_waveforms, |field| audio.and_then(|audio| audio.place(field)));
        if !augment.needs_silence() || features.is_waveform() {
            return Ok(augment);
        }
        let silence = features.silence(clip_samples)?;
        if silence.is_none() {
            problems.push(
                "augment has SpecAugment with fill=\"silence\", and the features of a frame depend on the other frames (by \
                 top_db, PCEN or a normalization per example); give fill \"minimum\", \"mean\" or a number"
                    .to_owned(),
            );
        }
        Ok(augment.with_silence(silence.unwrap_or_default()))
    }

    /// The problem with a step of augmentation and the waveforms of a row, if there is one.
    fn waveforms_problem(&self, augment: &Augment, step: &Step) -> Option<String> {
        let name = step.kind.name();
        match (&self.audio, &step.only, &step.kind) {
            (None, Some(only), _) if augment.n_references() > 0 => Some(format!(
                "augment has Only({:?}, ...), whose names are those of audio=, and the waveforms beside a mixture change with it; \
                 put the steps into the list",
                only.field
            )),
            (None, _, StepKind::Level { of: Some(of), .. }) if augment.n_references() > 0 => Some(format!(
                "augment has Level(of={:?}), whose names are those of audio=; leave of out: the level is that of the mixture, \
                 and the waveforms beside it change alike",
                of.field
            )),
            (None, Some(only), _) => Some(format!(
                "augment has Only({:?}, ...), and audio= names no waveforms; give audio, or put the steps into the list",
                only.field
            )),
            (Some(audio), Some(only), _) if audio.place(&only.field).is_none() => {
                let names: Vec<_> = audio.fields.iter().map(|field| &field.name).collect();
                Some(format!("augment has Only({:?}, ...), must be a name of audio: {names:?}", only.field))
            }
            (None, _, StepKind::Level { of: Some(of), .. }) => Some(format!(
                "augment has Level(of={:?}), and audio= names no waveforms; give audio, or leave of out",
                of.field
            )),
            (Some(audio), _, StepKind::Level { of: Some(of), .. }) if audio.place(&of.field).is_none() => {
                let names: Vec<_> = audio.fields.iter().map(|field| &field.name).collect();
                Some(format!("augment has Level(of={:?}), must be a name of audio: {names:?}", of.field))
            }
            (Some(audio), None, StepKind::Mix(_) | StepKind::Noise { .. }) => {
                let first = audio.fields.first().map_or("", |field| &field.name);
                Some(format!(
                    "augment has {name}, which adds a sound, and audio= gives a row several waveforms; say which one, as in \
                     Only({first:?}, [{name}(...)])"
                ))
            }
            (None, _, StepKind::Remix { .. }) => Some(
                "augment has Remix, which exchanges the waveforms of rows, and audio= names none; give audio".to_owned(),
            ),
            (_, _, StepKind::Remix { .. }) if self.whole().is_some() || self.crop_views().is_some() => Some(
                "augment has Remix, which exchanges clips of one length, one of each row, and crop is Whole() or Views(); leave \
                 one of them out"
                    .to_owned(),
            ),
            (_, _, StepKind::Remix { group }) if self.batch_size % *group as i64 != 0 => Some(format!(
                "augment has Remix(group={group}), and batch_size is {}, which must be a multiple of it",
                self.batch_size
            )),
            (Some(_), _, StepKind::Pair(_)) => Some(format!(
                "augment has {name}, which mixes rows of one waveform, and audio= gives a row several; leave one of them out"
            )),
            _ => None,
        }
    }

    /// The plan of a clip, from its place in the recording to its features.
    pub(super) fn audio_plan(&self, problems: &mut Vec<String>) -> Result<AudioPlan> {
        let features = self.planned_features()?;
        let clip_seconds = self.longest_clip(problems);
        let clip_samples = (clip_seconds * f64::from(features.sample_rate())).round() as usize;
        if self.features.is_none() && clip_samples <= self.n_fft as usize / 2 {
            problems.push(format!(
                "clip_seconds is {clip_seconds:?}, which at sample_rate {} is {clip_samples} samples, must be more than half of n_fft, {}",
                self.sample_rate, self.n_fft
            ));
        }
        let (crop, features) = self.planned_crop(features, clip_samples, problems)?;
        let augment = self.planned_augment(&features, clip_samples, problems)?;
        let max_decoded_seconds = self.max_decoded_seconds;
        let mix_sources = Vec::new();
        let damage = match &self.damage[..] {
            "error" => Damage::ERROR,
            _ => Damage { most: self.max_damage },
        };
        let audio = AudioPlan {
            clip_samples,
            crop,
            augment,
            mix_sources,
            waveforms: self
                .audio
                .as_ref()
                .map(|audio| audio.plan(self.by_name(), self.missing_audio == "zeros")),
            features,
            max_decoded_seconds,
            damage,
            padding: BatchPadding::default(),
        };
        let audio = audio.filled_up()?;
        self.check_example_size(&audio, clip_seconds, problems);
        Ok(audio)
    }

    fn check_example_size(&self, audio: &AudioPlan, clip_seconds: f64, problems: &mut Vec<String>) {
        let (example_bytes, clip_samples) = (audio.example_bytes() as u64, audio.clip_samples);
        if example_bytes > MAX_EXAMPLE_BYTES {
            let smaller = match (&self.features, self.n_frames) {
                (Some(_), _) => "lower clip_seconds, or choose smaller features",
                (None, Some(_)) => "lower n_frames or n_mels",
                (None, None) => "raise hop_length or lower clip_seconds or n_mels",
            };
            problems.push(format!(
                "one {} would take {} MiB, at most {} are allowed; {smaller}",
                audio.features.name(),
                example_bytes >> 20,
                MAX_EXAMPLE_BYTES >> 20
            ));
        }
        if example_bytes == 0 {
            problems.push(format!(
                "clip_seconds is {clip_seconds:?}, which is {clip_samples} samples, of which the features make no frame; raise \
                 clip_seconds, or give snip_edges=False or n_frames"
            ));
        }
    }
}
