//! [`Outputs`]: the fields of an example, and where the value of each comes from.
//!
//! Source: own.

use std::sync::Arc;

use super::{clip_planner::AudioPlan, span_source::SpanSource};
use crate::{
    Error, ErrorKind, Result,
    batch::{MixedPairs, RemixedGroups, RowMixing},
    dsp::{
        Augment,
        augment::{MixTargets, Outcome},
    },
    fields::{ColumnPool, DataType, Dim, Field, SharedPool},
    order::Buckets,
    source::{Positions, columns::MOST_PATH_BYTES},
    targets::{Target, TimeAxis, WordPart},
};

/// A field of features, those of one waveform or of several that are stacked.
fn features_field(plan: &AudioPlan, name: &str, stacked: Option<usize>) -> Field {
    let padded = plan.padded_axis();
    let dim = |(axis, &n): (usize, &usize)| match padded == Some(axis) {
        true => {
            Dim::PaddedInBatch { most: n as u64, most_in_batch: plan.padding.most_places.unwrap_or(u64::MAX) }
        }
        false => Dim::Fixed(n as u64),
    };
    let views = plan.crop.views().map(u64::from);
    let before = views.into_iter().chain(stacked.map(|n| n as u64)).map(Dim::Fixed);
    let dims = before.chain(plan.clip_shape().iter().enumerate().map(dim)).collect();
    let field = Field::new(name, plan.features.dtype().into(), dims);
    match &plan.padding.fill {
        // bounded: 64 recordings of a row, one place of the features of each.
        Some(fill) => Field { fill: fill.repeat(stacked.unwrap_or(1)).into(), ..field },
        None => field,
    }
}

/// The fields of the waveforms that steps leave beside the mixture, each with the length of its axis.
pub fn reference_fields(augment: &Augment) -> impl Iterator<Item = (&'static str, Option<usize>)> + use<> {
    let clean = augment.clean().map(|_| ("clean", None));
    let parts = Some(augment.n_parts()).filter(|&n| n > 0).map(|n| ("parts", Some(n)));
    clean.into_iter().chain(parts)
}

impl AudioPlan {
    /// The names of the fields of features, each with the length of its axis of waveforms, if it has one.
    pub fn feature_fields(&self) -> impl Iterator<Item = (&str, Option<usize>)> {
        let one = self.waveforms.is_none().then(|| (self.features.name(), None));
        let several = self.waveforms.iter().flat_map(|waveforms| &waveforms.fields);
        let references =
            reference_fields(&self.augment).map(|(name, stacked)| -> (&str, _) { (name, stacked) });
        one.into_iter().chain(several.map(|field| (&*field.name, field.stacked))).chain(references)
    }
}

/// The length of an axis along the time of clips.
fn time_dim(plan: &AudioPlan, features: &Field, axis: TimeAxis) -> Dim {
    let most = plan.time_grid(axis, plan.clip_samples).places as u64;
    match (axis, plan.features.frame_axis()) {
        (TimeAxis::FeatureFrames, Some(axis)) if plan.crop.views().is_none() => features.dims[axis],
        _ if plan.crop.whole().is_some() => Dim::PaddedInBatch { most, most_in_batch: u64::MAX },
        _ => Dim::Fixed(most),
    }
}

/// The most values of a clip in a field along its time.
const MOST_PLACES: u64 = 1 << 28;

impl AudioPlan {
    /// Bytes of address space, and of memory once written, that the fields of a batch take, rounded up to
    /// what the system allocates.
    pub fn batch_bytes(&self, batch_size: usize, outputs: &Outputs) -> usize {
        let fields = outputs.fields(self);
        ColumnPool::new(fields.into(), batch_size, 0).mapped_bytes()
    }
}

/// Where the value of a field comes from.
#[derive(Debug, Clone)]
pub(super) enum OutputField {
    Features,
    /// A value of the record, by its index.
    Value(usize),
    /// What a target makes of the record's values.
    Target(Box<Target>),
    /// Times of the words of a target.
    WordTimes(Box<Target>, WordPart),
    /// The number of tokens, frames or values in the field before it.
    Length,
    /// The number of the mixture's source.
    Source,
    Index,
    /// The number of the window in its recording.
    Window,
    Outcome(Outcome),
    /// The random bits of which augmentation draws.
    AugmentBits,
    /// The place in the batch as it was drawn, which the collator knows.
    Slot,
    /// Where the clip begins in its recording, in seconds.
    Start,
    /// The class of the example with which this one is mixed; as [`OutputField::Target`] before that.
    OtherClass(Box<Target>),
    /// The share of the example itself after mixing with another; 1 before.
    MixupWeight,
    /// The row of the other example; -1 if there is none.
    MixupIndex,
    /// Samples of the clip that are not padding.
    ValidSamples,
    /// Frames of these samples.
    ValidFrames,
    /// The same of each waveform of a row with several.
    ValidOfEach {
        frames: bool,
    },
    /// As many ones as the features have valid places, samples or frames.
    Mask,
    /// Ones for the waveforms whose recordings the row has.
    AudioMask,
    /// The row of each waveform's recording.
    PartnerIndex,
    Bucket(Arc<Buckets>),
    /// The number of the shard; has the first row of each shard, then the number of all rows.
    Shard(Arc<[u64]>),
    /// The row number within the shard.
    Row(Arc<[u64]>),
}

/// The fields that examples have only on request, besides each [`Outcome`].
const REQUESTED: [&str; 12] = [
    "path",
    "start",
    "valid_samples",
    "valid_frames",
    "attention_mask",
    "shard",
    "row",
    "window",
    "augment_bits",
    "slot",
    "audio_valid_samples",
    "audio_valid_frames",
];

/// The problem with a list of names in which one is given twice.
fn twice(parameter: &str, names: &[String]) -> Option<String> {
    let (_, name) = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name))?;
    Some(format!("{parameter} has {name:?} twice"))
}

/// A field of a number for each of `n` waveforms of each clip.
fn lengths_field(name: &str, views: Option<u32>, n: u64) -> Field {
    let shape: Vec<_> = views.map(u64::from).into_iter().chain([n]).collect();
    Field::stacked(name, DataType::Int64, shape)
}

/// The fields of an example, in order.
#[derive(Debug, Clone)]
pub struct Outputs {
    fields: Vec<(OutputField, Field)>,
    /// The first row of each source, and the number of all rows.
    group_starts: Arc<[u64]>,
    pub(super) positions: Positions,
    pub(super) spans: Option<SpanSource>,
    /// The names of the fields of features.
    taken: Vec<String>,
}

impl Default for Outputs {
    fn default() -> Self {
        let index = (OutputField::Index, Field::number("index", DataType::Int64));
        Self {
            fields: vec![index],
            group_starts: Arc::new([]),
            positions: Positions::default(),
            spans: None,
            taken: Vec::new(),
        }
    }
}

/// What the fields besides the features are made of.
#[derive(Debug)]
pub struct OutputInputs<'a> {
    /// Targets and columns, in order.
    pub targets: Vec<Target>,
    /// The index of the recording's path among a record's values.
    pub path: Option<usize>,
    /// The first row of each source, and the number of all rows.
    pub group_starts: &'a [u64],
    pub is_mixture: bool,
    /// The first row of each shard, and the number of all rows.
    pub shard_starts: &'a [u64],
    /// The names of the fields on request.
    pub requested: &'a [String],
    pub positions: Positions,
    pub spans: Option<SpanSource>,
    /// The number of clips of an example, if they have an axis.
    pub views: Option<u32>,
    /// Whether pairs of examples are mixed.
    pub pairs: bool,
    /// The field that tells the length of each row's features, of whole recordings.
    pub lengths: Option<&'static str>,
    /// The names of the fields of features.
    pub taken: &'a [&'a str],
    /// The number of the waveforms of a row, if it has several.
    pub n_waveforms: Option<usize>,
    /// Whether a field tells which of them a row has.
    pub has_mask: bool,
    /// Whether some of them may be those of other rows.
    pub has_partners: bool,
}

impl Outputs {
    /// Lists the fields after the features: targets; `source`, if sources have names; `index`; then those
    /// requested.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if two fields have the same name.
    pub fn new(inputs: OutputInputs<'_>) -> Result<Self> {
        let OutputInputs {
            targets,
            path,
            group_starts,
            is_mixture,
            shard_starts,
            requested,
            positions,
            spans,
            views,
            pairs,
            lengths,
            taken,
            n_waveforms,
            has_mask,
            has_partners,
        } = inputs;
        let number = |name: &str| Field::number(name, DataType::Int64);
        let of_clip = |name: &str, dtype| match views {
            Some(n) => Field::stacked(name, dtype, [n.into()]),
            None => Field::number(name, dtype),
        };
        let mut fields = Vec::new();
        let requested = lengths
            .iter()
            .map(|&name| name.to_owned())
            .chain(requested.iter().filter(|name| lengths != Some(&***name)).cloned());
        let requested = requested.collect::<Vec<_>>();
        let mut words = Vec::new();
        for target in targets {
            let field = target.field().clone();
            let other = (pairs && target.is_class()).then(|| {
                let field = Field { name: format!("{}_b", field.name), ..field.clone() };
                (OutputField::OtherClass(Box::new(target.clone())), field)
            });
            // Those of the features' frames are `valid_frames`.
            let follows = target.time_axis().filter(|axis| *axis != TimeAxis::FeatureFrames);
            let has_length = target.tokens().is_some() || follows.is_some() && lengths.is_some();
            let length = has_length.then(|| (OutputField::Length, number(&format!("{}_length", field.name))));
            if target.has_words() {
                for (part, end) in [(WordPart::Start, "start"), (WordPart::End, "end")] {
                    let name = format!("{}_{end}", field.name);
                    let output = OutputField::WordTimes(Box::new(target.clone()), part);
                    // bounded: as below.
                    words.push((output, Field::jagged(name, DataType::Float64, 1)));
                }
            }
            // bounded: at most three for each target that is given.
            fields.push((OutputField::Target(Box::new(target)), field));
            fields.extend(other.or(length));
            fields.append(&mut words);
        }
        fields.extend(is_mixture.then(|| (OutputField::Source, number("source"))));
        fields.push((OutputField::Index, number("index")));
        let n = n_waveforms.unwrap_or(1) as u64;
        let mask = || (OutputField::AudioMask, Field::stacked("audio_mask", DataType::Uint8, [n]));
        fields.extend(has_mask.then(mask));
        let partner = || (OutputField::PartnerIndex, Field::stacked("partner_index", DataType::Int64, [n]));
        fields.extend(has_partners.then(partner));
        if pairs {
            fields.push((OutputField::MixupIndex, number("mixup_index")));
            fields.push((OutputField::MixupWeight, Field::number("mixup_weight", DataType::Float64)));
        }
        for name in &requested {
            let output = match &**name {
                "path" => path.map(OutputField::Value),
                "start" => Some(OutputField::Start),
                "valid_samples" => Some(OutputField::ValidSamples),
                "valid_frames" => Some(OutputField::ValidFrames),
                "attention_mask" => Some(OutputField::Mask),
                "shard" => Some(OutputField::Shard(shard_starts.into())),
                "row" => Some(OutputField::Row(shard_starts.into())),
                "window" => Some(OutputField::Window),
                "augment_bits" => Some(OutputField::AugmentBits),
                "slot" => Some(OutputField::Slot),
                "audio_valid_samples" => Some(OutputField::ValidOfEach { frames: false }),
                "audio_valid_frames" => Some(OutputField::ValidOfEach { frames: true }),
                name => Outcome::named(name).map(|(outcome, ..)| OutputField::Outcome(outcome)),
            };
            let field = match &**name {
                "path" => Field::text("path"),
                "start" => of_clip("start", DataType::Float64),
                "valid_samples" | "valid_frames" | "augment_bits" => of_clip(name, DataType::Int64),
                // The bounds of its axis are those of the features.
                "attention_mask" => Field::new(name, DataType::Uint8, vec![Dim::Fixed(0)]),
                "audio_valid_samples" | "audio_valid_frames" => lengths_field(name, views, n),
                name => match Outcome::named(name) {
                    Some((Outcome::MixIndex | Outcome::ReverbIndex, ..)) => of_clip(name, DataType::Int64),
                    Some(_) => of_clip(name, DataType::Float64),
                    None => number(name),
                },
            };
            fields.extend(output.map(|output| (output, field)));
        }
        let taken = taken.iter().map(|&name| name.to_owned()).collect();
        let made = Self { fields, group_starts: group_starts.into(), positions, spans, taken };
        made.check_names(&[])?;
        Ok(made)
    }

    /// Checks that no two fields have one name; other fields have these `more`.
    fn check_names(&self, more: &[&str]) -> Result<()> {
        let mut names: Vec<_> = self.fields.iter().map(|(_, field)| &*field.name).collect();
        names.extend(self.taken.iter().map(String::as_str).chain(more.iter().copied()));
        names.sort_unstable();
        let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) else { return Ok(()) };
        let message = format!(
            "two fields of a batch are named {:?}; give one of them another name, in targets or audio",
            twice[0]
        );
        Err(Error::new(ErrorKind::Config, message))
    }

    /// The same for batches of buckets: with the number of each row's `bucket`. A packed batch has `offsets`.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn in_buckets(mut self, buckets: Arc<Buckets>, is_packed: bool) -> Result<Self> {
        let at = self.fields.iter().position(|(_, field)| field.name == "index").map_or(0, |at| at + 1);
        self.fields.insert(at, (OutputField::Bucket(buckets), Field::number("bucket", DataType::Int64)));
        self.check_names(if is_packed { &["offsets"] } else { &[] })?;
        Ok(self)
    }

    /// The problems with the names of requested fields, and of columns.
    pub(crate) fn problems(
        requested: &[String],
        columns: &[String],
        augment: &Augment,
    ) -> impl Iterator<Item = String> {
        let has = |class: &str| augment.steps().any(|step| step.kind.name() == class);
        let missing = requested.iter().find_map(|name| {
            let (_, class, _) = Outcome::named(name).filter(|(_, class, _)| !has(class))?;
            Some(format!(
                "outputs has {name:?}, and augment has no {class}(); leave it out, or add that step"
            ))
        });
        let known = || REQUESTED.into_iter().chain(Outcome::ALL.map(|(_, name, ..)| name));
        let unknown = requested.iter().find(|name| known().all(|known| known != *name));
        let unknown = unknown
            .map(|name| format!("outputs has {name:?}, must be one of {:?}", known().collect::<Vec<_>>()));
        [unknown, missing, twice("outputs", requested), twice("columns", columns)].into_iter().flatten()
    }

    pub fn targets(&self) -> impl Iterator<Item = &Target> {
        self.fields.iter().filter_map(|(output, _)| match output {
            OutputField::Target(target) => Some(&**target),
            _ => None,
        })
    }

    /// The most bytes of a row's values that are not stacked: in an example, and in a batch.
    pub fn most_bytes(&self, plan: &AudioPlan) -> [u64; 2] {
        let path = self.fields.iter().any(|(output, _)| matches!(output, OutputField::Value(_)));
        let path = if path { MOST_PATH_BYTES as u64 } else { 0 };
        let of_example = |target: &Target| {
            let grid = target.time_axis().map(|axis| plan.time_grid(axis, plan.clip_samples));
            target.most_example_bytes(grid.map_or(0, |grid| grid.places as u64))
        };
        let of_example = self.targets().map(of_example).fold(path, u64::saturating_add);
        [of_example, self.targets().map(Target::most_batch_bytes).fold(path, u64::saturating_add)]
    }

    /// Checks that a clip has a place on each axis along its time, and not too many.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if it has none, or more than 2^28 values.
    pub fn check_places(&self, plan: &AudioPlan) -> Result<()> {
        for target in self.targets() {
            let Some(axis) = target.time_axis() else { continue };
            let (name, kind) = (&target.field().name, target.kind());
            let places = plan.time_grid(axis, plan.clip_samples).places as u64;
            let columns =
                target.field().dims.get(1).map_or(1, |dim| if let Dim::Fixed(n) = dim { *n } else { 1 });
            let seconds = plan.clip_samples as f64 / f64::from(plan.features.sample_rate());
            let problem = match axis {
                TimeAxis::FeatureFrames if plan.features.is_waveform() => {
                    "features is a waveform, which has no frames; give step=, the seconds from a frame to the next"
                        .to_owned()
                }
                _ if places == 0 => format!("a clip of {seconds:?} s has no frame and no value of it"),
                _ if places.saturating_mul(columns) > MOST_PLACES => format!(
                    "a clip of {seconds:?} s has {places} times {columns} values, at most {MOST_PLACES} are allowed"
                ),
                _ => continue,
            };
            return Err(Error::new(ErrorKind::Config, format!("target {name:?}, a {kind}: {problem}")));
        }
        Ok(())
    }

    /// The fields, with those of the features, which come first, from the plan.
    pub fn fields(&self, plan: &AudioPlan) -> Vec<Field> {
        let features = features_field(plan, plan.features.name(), None);
        let axis = features.padded_axis().map(|axis| features.dims[axis]);
        let field = |(output, field): &(OutputField, Field)| match (output, axis) {
            (OutputField::Mask, Some(axis)) => Field { dims: vec![axis], ..field.clone() },
            (OutputField::Target(target), _) if let Some(axis) = target.time_axis() => {
                let mut dims = field.dims.clone();
                dims[0] = time_dim(plan, &features, axis);
                Field { dims, ..field.clone() }
            }
            _ => field.clone(),
        };
        let others = self.fields.iter().map(field);
        plan.feature_fields()
            .map(|(name, stacked)| features_field(plan, name, stacked))
            .chain(others)
            .collect()
    }

    /// The values that examples have, and the memory of batches.
    pub(super) fn planned(self, plan: &AudioPlan) -> (Arc<Planned>, Arc<SharedPool>) {
        let pool = SharedPool::new(self.fields(plan));
        let pairs = plan.augment.pairs_examples().then(|| RowMixing::Pairs(Arc::new(self.pairs(plan))));
        let groups = plan.augment.remixes().map(|_| {
            let parts: Vec<_> = plan.feature_fields().map(|(_, stacked)| stacked.unwrap_or(1)).collect();
            let mask = self.fields.iter().position(|(output, _)| matches!(output, OutputField::AudioMask));
            let mask = mask.map(|at| parts.len() + at);
            RowMixing::Groups(Arc::new(RemixedGroups { augment: plan.augment.clone(), parts, mask }))
        });
        let mixing = pairs.or(groups);
        let others = self.fields.into_iter().map(|(output, _)| output);
        let outputs = plan.feature_fields().map(|_| OutputField::Features).chain(others).collect();
        let Self { group_starts, positions, .. } = self;
        (Arc::new(Planned { outputs, group_starts, positions, mixing }), Arc::new(pool))
    }

    /// What is mixed in a batch of these fields, which follow the features.
    fn pairs(&self, plan: &AudioPlan) -> MixedPairs {
        let mut pairs = MixedPairs {
            augment: plan.augment.clone(),
            axis: plan.features.whole_axis(plan.clip_samples),
            dtype: plan.features.dtype(),
            targets: Vec::new(),
            others: Vec::new(),
            weight: 0,
        };
        let mut index = 0;
        for (at, (output, _)) in (1..).zip(&self.fields) {
            match output {
                // bounded: by the fields.
                OutputField::Target(target) if target.can_mix(MixTargets::Mix) => pairs.targets.push(at),
                OutputField::OtherClass(_) => pairs.others.push([at - 1, at]),
                OutputField::Index => index = at,
                OutputField::MixupIndex => pairs.others.push([index, at]),
                OutputField::MixupWeight => pairs.weight = at,
                _ => {}
            }
        }
        pairs
    }
}

/// Where the values of an example come from.
#[derive(Debug)]
pub(super) struct Planned {
    pub outputs: Vec<OutputField>,
    pub group_starts: Arc<[u64]>,
    pub positions: Positions,
    pub mixing: Option<RowMixing>,
}

impl Planned {
    pub(super) fn targets(&self) -> impl Iterator<Item = &Target> {
        self.outputs.iter().filter_map(|output| match output {
            OutputField::Target(target) => Some(&**target),
            _ => None,
        })
    }
}

/// The number of the part that holds `row`, given the first row of each part.
pub(super) fn part_of(starts: &[u64], row: u64) -> usize {
    starts.partition_point(|&start| start <= row).saturating_sub(1)
}
