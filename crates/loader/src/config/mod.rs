//! The loaders' parameters: names, documentation, defaults, presets and ranges, all in tables (`table.rs`).
//!
//! [`LoaderConfig`] holds the user's values; [`LoaderConfig::check`] makes plans for the stages of them, or
//! reports all problems in one error. Whole numbers are `i64` here, so that −1 is out of range and not an
//! overflow of the conversion; the smallest and the largest `i64` stand for all numbers beyond.
//! `docs/tuning.md` lists what each parameter costs.

pub(crate) mod access;
mod buckets;
mod limits;
pub(crate) mod loader;
mod objects;
mod order;
mod policy;
pub(crate) mod rows;
pub(crate) mod table;
pub(crate) mod tokens;
mod waveforms;

pub use access::AccessConfig;
pub use limits::CommitConfig;
pub use limits::{DamageConfig, LimitConfig};
pub use objects::{
    AugmentObject, Background, BatchingObject, BucketConfig, ChatRule, CropConfig, CropObject, Exclude,
    FeatureObject, FilePart, Names, Opaque, Ordered, Origin, PadRule, SamplingObject, Sources, SpanConfig,
    TextRows, TextSources, Weights, WholeConfig, WindowConfig,
};
pub use order::OrderChoice;
pub use policy::PolicyConfig;
pub use rows::RowConfig;
pub use table::{Parameter, ParameterTable, nearest};
pub use tokens::TokenConfig;
pub use waveforms::{WaveformField, Waveforms};

pub(crate) use crate::error::shown;
use crate::{
    Error, ErrorKind, Result,
    decode::Damage,
    dtype::Dtype,
    engine::{AUTO_PREFETCH, Auto, MOST_READERS, MixturePlan, Plan, cores},
    float_mode,
    memory::{self, RAW_CHANNEL_BYTES},
    order::{Batching, Mixture, Order, Stop, WeightStage},
    sampling::Sampling,
    source::{ArrowOptions, Subset},
    targets::TargetConfig,
    tasks::{AudioPlan, BatchPadding, ClipCrop, ClipRule, CropPosition, Outputs, WaveformPlan},
    transform::{
        Augment, CropMode, Features, Form, Layout, SpanRule, SpectrogramConfig, WindowEnd, WindowRule,
        augment::{Convolver, Kind, MixTargets, Step},
    },
};

use table::{check, choices, config_struct, eval_preset, first, identity_word, value};

/// A number, or `"auto"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    Exactly(i64),
    /// The loader chooses the number while it runs.
    Auto,
}

impl From<i64> for Count {
    fn from(n: i64) -> Self {
        Self::Exactly(n)
    }
}

crate::loader_parameters!(config_struct);
crate::loader_parameters!(eval_preset);

/// The most threads that decode or tokenise.
const MOST_WORKERS: i64 = 1024;

/// The most bytes of one example; more is probably a mistake in a parameter.
const MAX_EXAMPLE_BYTES: u64 = 1 << 30;

/// The most bytes of a batch.
pub const MAX_BATCH_BYTES: u64 = 8 << 30;

impl LoaderConfig {
    /// The preset for training: infinite, shuffled, random crops.
    ///
    /// A finite loader leaves out a short last batch, of which some ranks might have no rows: the mean loss
    /// over none is NaN.
    pub fn train() -> Self {
        Self { drop_last: true, ..Self::default() }
    }

    pub fn is_mixture(&self) -> bool {
        self.arrow_files.names.is_some()
    }

    /// Type, axis order and frames of the spectrograms; the table reports unknown names.
    fn form(&self) -> Form {
        Form {
            dtype: Dtype::from_name(&self.dtype).unwrap_or_default(),
            layout: Layout::from_name(&self.layout).unwrap_or_default(),
            n_frames: self.n_frames.map(|n| n.max(1) as usize),
        }
    }

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

    /// What is said of whole recordings, if clips are.
    pub fn whole(&self) -> Option<&WholeConfig> {
        self.crop.as_ref().and_then(|object| object.rule.whole())
    }

    /// The most by which augmentation speeds a recording up.
    pub fn fastest(&self) -> f64 {
        if let AugmentObject::Steps { augment, .. } = &self.augment { augment.fastest() } else { 1.0 }
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
                    rule: match spans.widen {
                        Some(seconds) => {
                            SpanRule::Event((seconds * f64::from(features.sample_rate())).round() as u64)
                        }
                        None => SpanRule::Inside,
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
            let mixes_targets = matches!(&step.kind, Kind::Mix(mixing) if mixing.targets != MixTargets::Keep);
            let is_views = matches!(&self.crop, Some(CropObject { rule: CropConfig::Clip(crop, _), .. }) if crop.views > 0);
            if is_views && mixes_targets {
                problems.push(
                    "augment has a Mix that mixes targets, and the clips of Views() share them; give targets=\"keep\"".to_owned(),
                );
            }
            problems.extend(self.waveforms_problem(step));
            if self.whole().is_some() && matches!(step.kind, Kind::Pair(_)) {
                problems.push(format!(
                    "augment has {name}, which mixes clips of one length, and crop is Whole(); leave one of them out"
                ));
            }
            if is_windows && matches!(step.kind, Kind::Speed { .. }) {
                problems.push(
                    "augment has Speed, which changes the lengths of recordings, and crop is Windows(), which counts their windows beforehand; leave one of them out"
                        .to_owned(),
                );
            }
        }
        if augment.steps().filter(|step| matches!(step.kind, Kind::Remix { .. })).count() > 1 {
            problems.push("augment has Remix twice; give one, with a larger group".to_owned());
        }
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

    /// The clips of a row, if they have an axis.
    fn crop_views(&self) -> Option<u32> {
        self.crop.as_ref().and_then(|object| object.rule.views())
    }

    /// The problem with a step of augmentation and the waveforms of a row, if there is one.
    fn waveforms_problem(&self, step: &Step) -> Option<String> {
        let name = step.kind.name();
        match (&self.audio, &step.only, &step.kind) {
            (None, Some(only), _) => Some(format!(
                "augment has Only({:?}, ...), and audio= names no waveforms; give audio, or put the steps into the list",
                only.field
            )),
            (Some(audio), Some(only), _) if audio.place(&only.field).is_none() => {
                let names: Vec<_> = audio.fields.iter().map(|field| &field.name).collect();
                Some(format!("augment has Only({:?}, ...), must be a name of audio: {names:?}", only.field))
            }
            (None, _, Kind::Level { of: Some(of), .. }) => Some(format!(
                "augment has Level(of={:?}), and audio= names no waveforms; give audio, or leave of out",
                of.field
            )),
            (Some(audio), _, Kind::Level { of: Some(of), .. }) if audio.place(&of.field).is_none() => {
                let names: Vec<_> = audio.fields.iter().map(|field| &field.name).collect();
                Some(format!("augment has Level(of={:?}), must be a name of audio: {names:?}", of.field))
            }
            (Some(audio), None, Kind::Mix(_) | Kind::Noise { .. }) => {
                let first = audio.fields.first().map_or("", |field| &field.name);
                Some(format!(
                    "augment has {name}, which adds a sound, and audio= gives a row several waveforms; say which one, as in \
                     Only({first:?}, [{name}(...)])"
                ))
            }
            (None, _, Kind::Remix { .. }) => Some(
                "augment has Remix, which exchanges the waveforms of rows, and audio= names none; give audio".to_owned(),
            ),
            (_, _, Kind::Remix { .. }) if self.whole().is_some() || self.crop_views().is_some() => Some(
                "augment has Remix, which exchanges clips of one length, one of each row, and crop is Whole() or Views(); leave \
                 one of them out"
                    .to_owned(),
            ),
            (_, _, Kind::Remix { group }) if self.batch_size % *group as i64 != 0 => Some(format!(
                "augment has Remix(group={group}), and batch_size is {}, which must be a multiple of it",
                self.batch_size
            )),
            (Some(_), _, Kind::Pair(_)) => Some(format!(
                "augment has {name}, which mixes rows of one waveform, and audio= gives a row several; leave one of them out"
            )),
            _ => None,
        }
    }

    /// The columns that are read besides recordings and labels, each once.
    pub fn read_columns(&self) -> Vec<String> {
        self.columns_with(&self.columns)
    }

    /// The columns on whose values the batches depend, each once: all but those that are passed through.
    pub fn columns_that_matter(&self) -> Vec<String> {
        self.columns_with(&[])
    }

    fn columns_with(&self, passed_through: &[String]) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        let targets = self.targets.iter().flatten().flat_map(TargetConfig::columns);
        let sampling = self.sampling.iter().flat_map(|object| object.sampling.columns());
        let spans =
            self.crop.iter().filter_map(|object| object.rule.spans()).flat_map(|spans| &spans.columns);
        let mix_sources = self.augment.sources().iter().filter_map(Background::same_class);
        let duration = self.whole().and_then(|whole| whole.duration.as_ref());
        let all =
            targets.chain(passed_through).chain(sampling).chain(spans).chain(mix_sources).chain(duration);
        for name in all {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        names
    }

    /// The column of the recordings that decide where clips are, if one is named.
    pub fn first_audio_column(&self) -> Option<&str> {
        match &self.audio {
            Some(audio) => audio.columns().first().copied(),
            None => self.audio_column.as_deref(),
        }
    }

    /// How recordings are read, without any other column.
    ///
    /// # Errors
    /// As [`Self::disk_cache`].
    pub fn payload_options(&self) -> Result<ArrowOptions> {
        Ok(ArrowOptions {
            mmap: self.mmap,
            max_record_bytes: self.max_record_bytes as u64,
            allow_paths: self.allow_paths.clone(),
            store: self.storage_options.clone(),
            cache: self.disk_cache()?,
            ..ArrowOptions::default()
        })
    }

    /// Whether the paths of rows are read: as a field, or to find annotations.
    pub fn reads_paths(&self) -> bool {
        let mut targets = self.targets.iter().flatten();
        self.outputs.iter().any(|name| name == "path")
            || targets.any(|target| target.form.annotations().is_some())
    }

    /// Where what is read by URL is kept.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a folder that cannot be made or written to.
    pub fn disk_cache(&self) -> Result<Option<std::sync::Arc<crate::source::DiskCache>>> {
        crate::source::disk_cache(self.cache_dir.as_deref(), self.cache_bytes as u64)
    }

    /// The rows that are read, if not all.
    pub fn sampled(&self) -> Option<Sampling> {
        let sampling = self.sampling.as_ref().map(|object| object.sampling.clone());
        sampling.or_else(|| {
            let subset = Some(Subset::Random { n: self.n_samples?.max(1) as u64, seed: 0 });
            Some(Sampling { subset, ..Sampling::default() })
        })
    }

    /// Rows of all ranks' batches.
    pub fn global_batch_size(&self) -> i64 {
        match self.batching {
            None => self.batch_size.saturating_mul(self.world_size),
            // The batches of buckets have other sizes, and are the same on any number of ranks.
            Some(_) => self.batch_size,
        }
    }

    fn policy(&self) -> PolicyConfig {
        PolicyConfig {
            on_error: self.on_error.clone(),
            on_io_error: self.on_io_error.clone(),
            max_errors: self.max_errors,
            max_consecutive_errors: self.max_consecutive_errors,
        }
    }

    /// Checks rank, world size and streams.
    fn check_ranks(&self, order: Order, problems: &mut Vec<String>) {
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

    /// The plan of the mixture, without its sources' rows, which are known once the files are open.
    fn mixture_plan(&self, problems: &mut Vec<String>) -> Option<MixturePlan> {
        let names = self.arrow_files.names.as_ref()?;
        let global = self.global_batch_size();
        let block = self.mixture_block.unwrap_or(global);
        if self.mixture_block.is_none() {
            problems.extend(table::range("mixture_block", &block, 1, Mixture::MAX_BLOCK as i64));
        }
        let stop = match (self.stop.as_deref(), self.infinite) {
            (None | Some("restart"), true) => Stop::Restart,
            (None | Some("first_exhausted"), false) => Stop::FirstExhausted,
            (Some("all_exhausted"), false) => Stop::AllExhausted,
            (Some(stop @ ("first_exhausted" | "all_exhausted")), true) => {
                problems.push(format!(
                    "stop is {stop:?}, which ends; give infinite=False as well, or \"restart\""
                ));
                Stop::Restart
            }
            (Some("restart"), false) => {
                problems.push("stop is \"restart\", which never ends; give infinite=True as well".into());
                Stop::Restart
            }
            // Reported by the table.
            (Some(_), _) => Stop::Restart,
        };
        let mut positions = Vec::new();
        let mut before = None;
        for (step, weights) in self.weights.of(names, problems) {
            // In batches, as the user gives them; the mixture counts examples.
            match before.replace(step) {
                None if step != 0 => {
                    problems.push(format!("the first weights begin at batch {step}, must begin at batch 0"));
                }
                Some(before) if step <= before => problems.push(format!(
                    "weights from batch {step} follow those from batch {before}: the batches must increase"
                )),
                _ => {}
            }
            let start = step.max(0).saturating_mul(global) as u64;
            positions.push(WeightStage { start, weights });
        }
        Some(MixturePlan { stages: positions, block: block.max(1) as u64, stop, starts: Vec::new() })
    }

    /// The problems of parameters that exclude each other.
    fn conflicts(&self, problems: &mut Vec<String>) {
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

    /// The plan of a clip, from its place in the recording to its features.
    fn audio_plan(&self, problems: &mut Vec<String>) -> Result<AudioPlan> {
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
            waveforms: self.audio.as_ref().map(|audio| audio.plan(self.missing_audio == "zeros")),
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

    /// Plans of the stages. A default order that depends on the files is `"window"` here:
    /// [`settle`](Self::settle) replaces it.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] that names every parameter out of range with its value, its range and what to
    /// do.
    pub fn check(&self) -> Result<(Plan, AudioPlan)> {
        let mut problems = self.problems();
        let (n_workers, auto_workers) = workers(self.n_workers, self.cpu_budget, &mut problems);
        let (prefetch_batches, auto_prefetch) = prefetched(self.prefetch_batches);
        let auto = Auto { workers: auto_workers, prefetch: auto_prefetch };
        let given = self.given_order().map_err(|problem| problems.push(problem)).unwrap_or_default();
        let order = given.as_ref().map_or(Order::Window, |choice| choice.order);
        self.check_ranks(order, &mut problems);
        let mixture = self.mixture_plan(&mut problems);
        let policy = self.policy().check(&mut problems);
        self.conflicts(&mut problems);
        problems.extend(given.and_then(|choice| self.window_problem(choice.order)));
        let Self { max_record_bytes, max_decoded_seconds, .. } = *self;
        LimitConfig { max_record_bytes, max_decoded_seconds }.find(&mut problems);
        if !problems.is_empty() {
            return Err(Error::new(ErrorKind::Config, problems.join("; ")));
        }
        let audio = self.audio_plan(&mut problems)?;
        let example_bytes = audio.example_bytes() as u64;
        // A finite pass may have few rows: see `fit`.
        if self.infinite && self.batching.is_none() {
            problems.extend(self.batch_problem(example_bytes, u64::MAX));
        }
        if !problems.is_empty() {
            return Err(Error::new(ErrorKind::Config, problems.join("; ")));
        }
        let mut plan = Plan {
            seed: self.seed,
            order,
            mixture,
            batching: Batching::Rows(self.batch_size as usize),
            rank: self.rank as u64,
            world_size: self.world_size as u64,
            n_streams: self.n_streams.map(|n| n as u64),
            infinite: self.infinite,
            drop_last: self.drop_last,
            policy,
            buffer_size: self.shuffle_buffer_size as u64,
            n_workers: n_workers as usize,
            // A function of the user would leave the niceness to what it starts.
            worker_nice: if self.augment.functions().is_empty() { self.worker_nice as u8 } else { 0 },
            n_readers: self.n_readers as usize,
            channel_size: self.raw_channel_size as usize,
            channel_bytes: self.raw_channel_bytes.map_or(RAW_CHANNEL_BYTES as usize, |n| n as usize),
            prefetch_batches: prefetch_batches as usize,
            auto,
            ..Plan::default()
        };
        self.use_order(order, &mut plan);
        Ok((plan, audio))
    }

    /// Checks the batch size against the number of rows, and fits the plan to the memory budget; `remote`
    /// sources are read by URL.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if a batch of a pass would be too large, or the plan may hold more than the
    /// budget.
    pub fn fit(
        &self,
        plan: &mut Plan,
        audio: &AudioPlan,
        outputs: &Outputs,
        rows: u64,
        remote: u64,
    ) -> Result<()> {
        let most_rows = if self.infinite { u64::MAX } else { rows };
        outputs.check_places(audio)?;
        if self.batching.is_none()
            && let Some(problem) = self.batch_problem(audio.example_bytes() as u64, most_rows)
        {
            return Err(Error::new(ErrorKind::Config, problem));
        }
        let batch_rows = most_rows.min(plan.batching.most_rows() as u64);
        let batch = audio.batch_bytes(batch_rows as usize, outputs) as u64;
        if let (true, Some(BatchingObject { buckets, .. })) = (batch > MAX_BATCH_BYTES, &self.batching) {
            let message = format!(
                "max_duration is {:?}, which makes batches of {} GiB, at most {} are allowed; lower it, or batch_sizes",
                buckets.budget.max_duration,
                batch >> 30,
                MAX_BATCH_BYTES >> 30
            );
            return Err(Error::new(ErrorKind::Config, message));
        }
        // Texts and lists are stored with their examples, and again in batches.
        let [of_example, of_batch_row] = outputs.most_bytes(audio);
        let batch = batch.saturating_add(batch_rows.saturating_mul(of_batch_row));
        let example = (audio.example_bytes() as u64).saturating_add(of_example);
        let others = audio.waveforms.as_ref().map_or(0, WaveformPlan::n_others);
        let readings = (audio.augment.readings().count() + others) as u64;
        let reverberates = audio.augment.readings().any(|(_, reading)| reading.is_response);
        let n_channels = audio.features.channels().n_kept() * audio.n_waveforms();
        let reverb = if reverberates { Convolver::bytes(audio.clip_samples, n_channels) } else { 0 };
        // Read, joined and changed.
        let of_row = 3 * size_of::<f32>() as u64 * audio.clip_samples as u64 * n_channels as u64;
        let waveforms = if audio.waveforms.is_some() { of_row } else { 0 };
        let sizes = memory::Sizes { example, batch, rows, readings, reverb, waveforms, remote };
        match self.memory_budget {
            Some(budget) => memory::fit(plan, sizes, budget as u64, self.raw_channel_bytes.is_none()),
            None => {
                memory::log_large(plan, sizes);
                Ok(())
            }
        }
    }

    /// The message, if a batch of examples of that size is too large; a pass has `rows` rows at most.
    fn batch_problem(&self, example_bytes: u64, rows: u64) -> Option<String> {
        let batch_bytes = example_bytes.saturating_mul(rows.min(self.batch_size as u64));
        (batch_bytes > MAX_BATCH_BYTES).then(|| {
            format!(
                "batch_size is {}, which makes batches of {} GiB, at most {} are allowed",
                self.batch_size,
                batch_bytes >> 30,
                MAX_BATCH_BYTES >> 30
            )
        })
    }
}

/// The message, if the rank is out of range.
fn rank_problem(rank: i64, world_size: i64) -> Option<String> {
    let problem = table::range("rank", &rank, 0, (world_size - 1).clamp(0, 1 << 20));
    problem.map(|problem| format!("{problem}, less than world_size"))
}

/// The number of worker threads, and whether the loader chooses how many of them work.
fn workers(n: Count, cpu_budget: Option<i64>, problems: &mut Vec<String>) -> (i64, bool) {
    match (n, cpu_budget) {
        (Count::Auto, budget) => (budget.unwrap_or_else(|| (cores() as i64).min(MOST_WORKERS)), true),
        (Count::Exactly(n), None) => (n, false),
        (Count::Exactly(n), Some(budget)) => {
            problems.push(format!(
                "cpu_budget is {}, but n_workers is {}; leave it out, or give n_workers=\"auto\"",
                shown(budget),
                shown(n)
            ));
            (n, false)
        }
    }
}

/// The most batches made ahead, and whether the loader chooses their number.
fn prefetched(n: Count) -> (i64, bool) {
    match n {
        Count::Auto => (AUTO_PREFETCH[1] as i64, true),
        Count::Exactly(n) => (n, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_presets_are_what_the_readme_says() {
        let (train, audio) = LoaderConfig::train().check().unwrap();
        assert_eq!((train.window, train.buffer_size, train.n_workers), (8000, 10_000, 8));
        assert_eq!((audio.clip_samples, audio.crop), (160_000, ClipRule::Clip(CropMode::Random.into())));
        let (eval, audio) = LoaderConfig::eval().check().unwrap();
        assert_eq!((eval.window, eval.buffer_size, eval.n_workers), (1, 1000, 4));
        assert_eq!((eval.order, audio.crop), (Order::Sequential, ClipRule::Clip(CropMode::Center.into())));
    }

    #[test]
    fn all_problems_are_told_at_once() {
        let config = LoaderConfig {
            order: Some("window".into()),
            batch_size: 0,
            shuffle_buffer_size: 10,
            shuffle_min_size: 11,
            clip_seconds: f64::NAN,
            n_workers: Count::Exactly(-1),
            ..LoaderConfig::default()
        };
        let error = config.check().unwrap_err();
        assert_eq!(error.kind, ErrorKind::Config);
        for part in ["batch_size is 0", "shuffle_min_size is 11", "clip_seconds is NaN", "n_workers is -1"] {
            assert!(error.message.contains(part), "{part} missing in: {error}");
        }
    }

    #[test]
    fn numbers_beyond_the_range_are_not_shown_as_its_ends() {
        let config = LoaderConfig { n_fft: i64::MAX, hop_length: i64::MIN, ..LoaderConfig::default() };
        let error = config.check().unwrap_err();
        assert_eq!(
            error.message,
            "n_fft is beyond int64, must be 2 to 65536; hop_length is beyond int64, must be 1 to 1048576"
        );
    }

    #[test]
    fn a_batch_counts_the_rows_that_there_are() {
        let config = LoaderConfig { batch_size: 1 << 20, ..LoaderConfig::eval() };
        let (mut plan, audio) = config.check().unwrap();
        config.fit(&mut plan, &audio, &Outputs::default(), 1000, 0).unwrap();
        let too_large = "batch_size is 1048576, which makes batches of 23 GiB, at most 8 are allowed";
        assert_eq!(
            config.fit(&mut plan, &audio, &Outputs::default(), 100_000, 0).unwrap_err().message,
            too_large
        );
        let infinite = LoaderConfig { infinite: true, ..config };
        assert!(infinite.check().unwrap_err().message.contains("250 GiB"));
    }

    #[test]
    fn numbers_left_to_the_loader_have_bounds() {
        let auto = LoaderConfig {
            n_workers: Count::Auto,
            prefetch_batches: Count::Auto,
            cpu_budget: Some(3),
            ..LoaderConfig::default()
        };
        let (plan, audio) = auto.check().unwrap();
        assert_eq!((plan.n_workers, plan.prefetch_batches), (3, 8));
        assert_eq!(plan.auto, Auto { workers: true, prefetch: true });
        let (plan, _) = LoaderConfig { cpu_budget: None, ..auto.clone() }.check().unwrap();
        assert_eq!(plan.n_workers, cores());
        let both = LoaderConfig { n_workers: 8.into(), ..auto.clone() };
        assert!(both.check().unwrap_err().message.contains("cpu_budget is 3, but n_workers is 8"));
        let none = LoaderConfig { cpu_budget: Some(0), ..auto.clone() };
        assert!(none.check().unwrap_err().message.contains("cpu_budget is 0, must be 1 to 1024"));
        // A worker takes 30 MiB: the third does not fit.
        let small = LoaderConfig {
            shuffle_buffer_size: 64,
            shuffle_min_size: 0,
            memory_budget: Some(436 << 20),
            ..auto
        };
        let (mut plan, _) = small.check().unwrap();
        small.fit(&mut plan, &audio, &Outputs::default(), 1 << 20, 0).unwrap();
        assert_eq!((plan.n_workers, plan.prefetch_batches), (2, 2));
        assert!((32..64).contains(&(plan.channel_bytes >> 20)), "{plan:?}");
    }

    #[test]
    fn a_clip_must_be_longer_than_the_reflection() {
        let config = LoaderConfig { clip_seconds: 0.016, ..LoaderConfig::default() };
        assert!(config.check().unwrap_err().message.contains("half of n_fft"));
    }
}
