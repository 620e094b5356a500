//! The loaders' parameters: names, documentation, defaults, presets and ranges, all in tables (`table.rs`).
//!
//! [`LoaderConfig`] holds the user's values; [`LoaderConfig::check`] makes plans for the stages of them, or
//! reports all problems in one error. Whole numbers are `i64` here, so that −1 is out of range and not an
//! overflow of the conversion; the smallest and the largest `i64` stand for all numbers beyond.
//! `docs/tuning.md` lists what each parameter costs.

pub(crate) mod access;
mod advice;
mod references;
mod buckets;
mod clip;
mod conflicts;
pub(crate) mod kind;
mod limits;
pub(crate) mod loader;
mod objects;
mod order;
mod policy;
pub(crate) mod datasets;
pub(crate) mod table;
pub(crate) mod tokens;
mod waveforms;

pub use access::AccessConfig;
pub use advice::nearest;
pub use datasets::DatasetConfig;
pub use limits::CommitConfig;
pub use limits::{DamageConfig, LimitConfig};
pub use objects::{
    AugmentObject, Background, BatchingObject, BucketConfig, ChatRule, CropConfig, CropObject, DrawRule,
    Exclude, FeatureObject, FilePart, NamedToken, Names, Opaque, Ordered, Origin, PadRule, SamplingObject,
    Sources, SpanConfig, SpanPlace, TextRows, TextSources, Weights, WholeConfig, WindowConfig,
};
pub use order::OrderChoice;
pub use policy::PolicyConfig;
pub use table::{Parameter, ParameterTable};
pub use tokens::TokenConfig;
pub use waveforms::{
    ByName, ClipPlacing, FieldTracks, Independent, MOST_WAVEFORMS, RowRecording, Tracks, WaveformField,
    Waveforms, track_number,
};

pub(crate) use crate::error::shown;
use crate::{
    Error, ErrorKind, Result,
    dsp::{Form, Layout, augment::Convolver},
    dtype::Dtype,
    engine::{AUTO_PREFETCH, Auto, Cpus, MOST_READERS, MixturePlan, Plan, cores},
    memory::{self, RAW_CHANNEL_BYTES},
    order::{Batching, Mixture, Order, Stop, WeightStage},
    sampling::Sampling,
    source::{PayloadColumn, SourceOptions, Subset},
    targets::TargetConfig,
    tasks::{AudioPlan, Outputs, WaveformPlan},
};

use table::{check, choices, config_struct, eval_preset, first, identity_word, value};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountOrAuto {
    Exactly(i64),
    /// The loader chooses the number while it runs.
    Auto,
}

impl From<i64> for CountOrAuto {
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

    /// What is said of whole recordings, if clips are.
    pub fn whole(&self) -> Option<&WholeConfig> {
        self.crop.as_ref().and_then(|object| object.rule.whole())
    }

    /// The most by which augmentation speeds a recording up.
    pub fn fastest(&self) -> f64 {
        if let AugmentObject::Steps { augment, .. } = &self.augment { augment.fastest() } else { 1.0 }
    }

    /// The clips of a row, if they have an axis.
    fn crop_views(&self) -> Option<u32> {
        self.crop.as_ref().and_then(|object| object.rule.views())
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
        let partners = self.independent.iter().flat_map(Independent::columns);
        let all = targets
            .chain(passed_through)
            .chain(sampling)
            .chain(spans)
            .chain(mix_sources)
            .chain(partners)
            .chain(duration);
        for name in all {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        names
    }

    /// The parameters that say more about the names of `audio`.
    pub fn by_name(&self) -> ByName<'_> {
        ByName { tracks: self.track.as_ref(), independent: self.independent.as_ref() }
    }

    /// The recordings of a row that are read; the first one decides where clips are.
    pub fn recordings(&self) -> Vec<RowRecording<'_>> {
        match &self.audio {
            Some(audio) => audio.recordings(self.by_name()),
            None => {
                let track = self.track.as_ref().and_then(Tracks::of_all);
                vec![RowRecording {
                    column: self.audio_column.as_deref(),
                    track,
                    clip: ClipPlacing::WithFirst,
                }]
            }
        }
    }

    /// How recordings are read, without any other column.
    ///
    /// # Errors
    /// As [`Self::disk_cache`].
    pub fn payload_options(&self) -> Result<SourceOptions> {
        Ok(SourceOptions {
            mmap: self.mmap,
            max_record_bytes: self.max_record_bytes as u64,
            allow_paths: self.allow_paths.clone(),
            store: self.storage_options.clone(),
            cache: self.disk_cache()?,
            ..SourceOptions::default()
        })
    }

    pub fn tracks(&self) -> Vec<Option<u32>> {
        self.recordings().iter().map(|recording| recording.track).collect()
    }

    /// How a recording of each row is read, without any other column.
    ///
    /// # Errors
    /// As [`Self::disk_cache`].
    pub fn recording_options(&self, recording: RowRecording<'_>) -> Result<SourceOptions> {
        let RowRecording { column, track, .. } = recording;
        let payload = PayloadColumn::Audio(column.map(str::to_owned));
        Ok(SourceOptions { payload, track, ..self.payload_options()? })
    }

    /// Whether the paths of rows are read: as a field, or to find annotations.
    pub fn reads_paths(&self) -> bool {
        let mut targets = self.targets.iter().flatten();
        self.outputs.iter().any(|name| name == "path")
            || targets.any(|target| target.form.annotations().is_some())
            || self.crop.iter().filter_map(|crop| crop.rule.spans()).any(|spans| spans.table.is_some())
    }

    /// Where what is read by URL is kept.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a folder that cannot be made or written to.
    pub fn disk_cache(&self) -> Result<Option<std::sync::Arc<crate::storage::DiskCache>>> {
        crate::storage::disk_cache(self.cache_dir.as_deref(), self.cache_bytes as u64)
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

    /// Plans of the stages. A default order that depends on the files is `"window"` here:
    /// [`settle`](Self::settle) replaces it.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] that names every parameter out of range with its value, its range and what to
    /// do.
    pub fn check(&self) -> Result<(Plan, AudioPlan)> {
        let mut problems = self.problems();
        let cpus = bound_cpus(self.cpus.as_deref(), &mut problems);
        let (n_workers, auto_workers) =
            workers(self.n_workers, self.cpu_budget, cpus.as_ref(), &mut problems);
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
            cpus,
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
        let waveforms = if audio.n_waveforms() > 1 { of_row } else { 0 };
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

/// The CPUs that threads are bound to.
fn bound_cpus(list: Option<&str>, problems: &mut Vec<String>) -> Option<Cpus> {
    Cpus::parse(list?).map_err(|error| problems.push(error.message)).ok()
}

/// The number of worker threads, and whether the loader chooses how many of them work.
fn workers(
    n: CountOrAuto,
    cpu_budget: Option<i64>,
    cpus: Option<&Cpus>,
    problems: &mut Vec<String>,
) -> (i64, bool) {
    let cores = || cpus.map_or_else(cores, |cpus| cpus.count().min(cores())) as i64;
    match (n, cpu_budget) {
        (CountOrAuto::Auto, budget) => (budget.unwrap_or_else(|| cores().min(MOST_WORKERS)), true),
        (CountOrAuto::Exactly(n), None) => (n, false),
        (CountOrAuto::Exactly(n), Some(budget)) => {
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
fn prefetched(n: CountOrAuto) -> (i64, bool) {
    match n {
        CountOrAuto::Auto => (AUTO_PREFETCH[1] as i64, true),
        CountOrAuto::Exactly(n) => (n, false),
    }
}

#[cfg(test)]
mod tests;
