//! The problems of parameters that exclude each other.

use super::{AugmentObject, CropConfig, CropObject, LoaderConfig, rank_problem};
use crate::{
    dsp::{
        Augment,
        augment::{MixTargets, Step, StepKind},
    },
    order::Order,
    sampling::Sampling,
    tasks::Outputs,
};

impl LoaderConfig {
    /// Checks rank, world size and streams.
    pub(super) fn check_ranks(&self, order: Order, problems: &mut Vec<String>) {
        problems.extend(rank_problem(self.rank, self.world_size));
        // Values out of range are reported already.
        let world_size = self.world_size.max(1);
        let Some(n_streams) = self.n_streams.filter(|&n| n > 0) else { return };
        if order != Order::Window && self.batching.is_none() {
            problems.push(format!(
                "n_streams is {n_streams}, but only order=\"window\" and batching=Buckets() have streams; leave it out"
            ));
            return;
        }
        if n_streams % world_size != 0 {
            problems
                .push(format!("n_streams is {n_streams}, must be a multiple of world_size, {world_size}"));
        }
        let global = self.batch_size.saturating_mul(world_size);
        if global % n_streams != 0 && self.batching.is_none() {
            problems.push(format!("n_streams is {n_streams}, must divide batch_size x world_size, {global}"));
        }
    }

    /// The problems of parameters that exclude each other.
    pub(super) fn conflicts(&self, problems: &mut Vec<String>) {
        let no_steps = Augment::default();
        let steps = match &self.augment {
            AugmentObject::Steps { augment, .. } => augment,
            AugmentObject::Crop(_) => &no_steps,
        };
        problems.extend(Outputs::problems(&self.outputs, &self.columns, steps));
        if self.n_samples.is_some() && self.sampling.is_some() {
            problems.push("n_samples and sampling are given; Subset(n) has the number itself".to_owned());
        }
        let sampled = self.sampled().unwrap_or_default();
        if self.is_mixture() && sampled.epoch_size.is_some() {
            problems.push(
                "epoch_size is about one source, and arrow_files is a dict; the weights of the sources say how often they come"
                    .to_owned(),
            );
        }
        self.batching_conflicts(problems);
        if self.outputs.iter().any(|name| name == "attention_mask")
            && (self.whole().is_none() || self.packs())
        {
            problems.push(
                "outputs has \"attention_mask\", which tells padding of whole recordings; give crop=Whole(), without \
                 packed=True; valid_samples and valid_frames tell that of other clips"
                    .to_owned(),
            );
        }
        let of_each = |name: &&String| name.starts_with("audio_valid_");
        if let Some(name) = self.outputs.iter().find(of_each).filter(|_| self.audio.is_none()) {
            problems.push(format!(
                "outputs has {name:?}, which is about each of the recordings in audio, and audio names none; give {:?}",
                name.trim_start_matches("audio_")
            ));
        }
        problems.extend(self.counted_target().err().map(|error| error.message));
        problems.extend(self.rate_problem());
        self.audio_conflicts(problems);
        self.row_conflicts(&sampled, problems);
    }

    /// The problems of `batching` with the clips and with `batch_size`.
    fn batching_conflicts(&self, problems: &mut Vec<String>) {
        if self.batching.is_none() {
            return;
        }
        if self.whole().is_none() {
            problems.push(
                "batching puts recordings of about the same length together, and the clips have one length; give \
                 crop=forebay.crops.Whole()"
                    .to_owned(),
            );
        }
        if self.batch_size != Self::default().batch_size {
            problems.push(format!(
                "batch_size is {}, and the batches of Buckets() have sizes of their own; leave batch_size out, or give \
                 Buckets(max_examples={})",
                self.batch_size, self.batch_size
            ));
        }
    }

    /// The problems of `audio` with the parameters for a row of one recording.
    fn audio_conflicts(&self, problems: &mut Vec<String>) {
        if self.audio.is_none() && self.missing_audio == "zeros" {
            problems.push(
                "missing_audio is \"zeros\", which is about the recordings in audio, and audio names none; give audio"
                    .to_owned(),
            );
        }
        if let Some(independent) = &self.independent {
            problems.extend(independent.problems(self.audio.as_ref()));
            problems.extend(self.independent_conflicts());
        }
        if let Some(track) = &self.track {
            problems.extend(track.problems(self.audio.as_ref()));
        }
        if let Some(audio) = &self.audio {
            problems.extend(audio.problems());
            if self.audio_column.is_some() {
                problems.push(
                    "audio and audio_column are given; name the column in audio, or leave audio out"
                        .to_owned(),
                );
            }
        }
    }

    /// The problems of clips with places of their own, with the clips and the steps of augmentation.
    fn independent_conflicts(&self) -> Option<String> {
        let of_crop = match self.crop.as_ref().map(|object| &object.rule) {
            Some(CropConfig::Windows(_)) => Some("Windows() are places in the first recording of a row"),
            Some(CropConfig::Whole(_)) => Some("Whole() makes all recordings of a row as long as the first"),
            _ => None,
        };
        if let Some(why) = of_crop {
            return Some(format!(
                "independent gives clips places of their own, and {why}; give a crop of one length, such as Random()"
            ));
        }
        let AugmentObject::Steps { augment, .. } = &self.augment else { return None };
        let is_alone = |step: &Step| {
            let field = step.only.as_ref().map(|only| &only.field);
            field.is_some_and(|field| self.independent.iter().any(|independent| independent.names(field)))
        };
        let mixes =
            |step: &Step| matches!(&step.kind, StepKind::Mix(mixing) if mixing.targets != MixTargets::Keep);
        if let Some(step) = augment.steps().find(|step| mixes(step) && is_alone(step)) {
            let field = step.only.as_ref().map_or("", |only| &*only.field);
            return Some(format!(
                "augment has a Mix that mixes targets in Only({field:?}), and targets are those of the first recording; give \
                 targets=\"keep\" in Mix"
            ));
        }
        let is_of_row = |kind: &StepKind| matches!(kind, StepKind::Speed { .. } | StepKind::Remix { .. });
        let step = augment.steps().find(|step| is_of_row(&step.kind))?;
        Some(format!(
            "augment has {}, which is for recordings of a row that belong together, and independent names others; leave one of them \
             out",
            step.kind.name()
        ))
    }

    /// The problems of rows that are chosen in two ways, or described in two.
    fn row_conflicts(&self, sampled: &Sampling, problems: &mut Vec<String>) {
        let is_windows = matches!(&self.crop, Some(CropObject { rule: CropConfig::Windows(_), .. }));
        if sampled.weighs() && is_windows {
            problems.push(
                "sampling says how often a row comes, and Windows() gives each window once; leave one of them out"
                    .to_owned(),
            );
        }
        let has_views = self.crop_views().is_some();
        let mut targets = self.targets.iter().flatten();
        if has_views && let Some(target) = targets.find(|target| target.form.is_of_clip()) {
            problems.push(format!(
                "target {:?} is that of a clip, and Views() makes several clips of a row; leave one of them out",
                target.name
            ));
        }
        if sampled.chooses() && self.is_mixture() {
            problems.push(
                "n_samples and sampling choose rows of one source, and arrow_files is a dict".to_owned(),
            );
        }
        if self.targets.is_some() && self.label_column.is_some() {
            problems.push("targets and label_column are given; name the column in targets".to_owned());
        }
    }
}
