//! [`Composed`]: a loader of recordings of its parameters, up to the threads: source, task and plan.
//!
//! | file | what |
//! |---|---|
//! | `opened_source` | the files that are named, with the rows that are read and the fields that are made |
//! | `rows_by_length` | which rows are left out because of the length of their recordings and texts |
//! | `identity` | on what the batches of each loader depend, for its states |

pub mod identity;
mod opened_source;
mod rows_by_length;

use std::{collections::HashSet, sync::Arc};

pub use opened_source::{ClassNamesOf, OpenedSource, source_problems};

use crate::{
    LoaderConfig, Result,
    config::{ClipPlacing, Exclude, OrderChoice},
    engine::Plan,
    error::counted,
    order::{Batching, Buckets},
    sampling::{ClassCounts, LeftOut, SameClass},
    seed::mix,
    source::{Positions, Recordings, Selection},
    state::Identity,
    tasks::{AudioPlan, AudioTask, MixSource, OtherRecordings},
};

/// The recordings that a step of augmentation reads.
pub enum Partnering {
    /// The loader's own; with classes, those that share one with the clip's.
    Own(Option<Arc<SameClass>>),
    Others(Arc<Recordings>),
}

impl Partnering {
    /// Recordings that are not the loader's own.
    pub fn others(&self) -> Option<&Recordings> {
        match self {
            Self::Own(_) => None,
            Self::Others(source) => Some(source),
        }
    }
}

/// The recordings of the rows in one column besides the first, and the clips that are taken of them.
pub struct OtherSource {
    pub source: Arc<Recordings>,
    /// With the column of the class of a partner.
    pub clip: ClipPlacing<(SameClass, String)>,
}

/// What the engine runs, and what is told of it.
pub struct Composed {
    /// The parameters, with the rows of `exclude`.
    pub config: LoaderConfig,
    pub source: Arc<Recordings>,
    pub selection: Arc<Selection<Recordings>>,
    pub task: AudioTask,
    pub plan: Plan,
    pub order: OrderChoice,
    pub identity: Identity,
    /// The class names of each target that has any.
    pub class_names: ClassNamesOf,
    /// The classes of each column that is balanced, with the expected examples of an epoch.
    pub classes: Vec<ClassCounts>,
    pub left_out: LeftOut,
    pub buckets: Option<Arc<Buckets>>,
    pub n_rows: u64,
}

/// Opens the files and plans the batches; `plan` and `audio` are those of [`LoaderConfig::check`].
///
/// Each step needs what those before it found:
/// 1. Files, rows, targets and other recordings are opened.
/// 2. Batches by duration are cut by the lengths of the rows, and outputs get their shapes.
/// 3. The order follows from the files; steps of augmentation know it.
/// 4. The memory of all this is fitted to the budget.
/// 5. The rows that are left out become numbers, and the identity of a state is made of all before.
/// 6. Weights, mixture and excluded rows enter the plan; partners and other recordings the task.
///
/// # Errors
/// As [`OpenedSource::new`]; [`Config`](crate::ErrorKind::Config) if lengths, memory or rows do not fit the
/// parameters.
pub fn compose(mut config: LoaderConfig, (mut plan, mut audio): (Plan, AudioPlan)) -> Result<Composed> {
    let rate = audio.features.sample_rate();
    let least_seconds = audio.features.least_samples() as f64 / f64::from(rate) * audio.augment.fastest();
    let opened = OpenedSource::new(&config, (audio.crop, rate, least_seconds))?;
    let class_names = opened.class_names();
    let OpenedSource {
        source,
        positions,
        weights,
        classes,
        mut outputs,
        backgrounds,
        others,
        seconds,
        tokens,
        left_out,
    } = opened;
    let n_rows = positions.len_of(source.n_rows());
    let known = seconds.map(|seconds| seconds.of_rows(positions.rows()));
    let tokens: Option<Arc<[u32]>> = tokens.map(|tokens| match positions.rows() {
        Some(rows) => rows.iter().map(|&row| tokens[row as usize]).collect(),
        None => tokens.into(),
    });
    let lengths = known.as_deref().map(|known| lengths_digest(known, tokens.as_deref()));
    let buckets = config.buckets((known.as_deref(), tokens), &mut audio)?;
    if let Some(buckets) = &buckets {
        plan.batching = Batching::Cuts(buckets.clone());
        outputs = outputs.in_buckets(buckets.clone(), config.packs())?;
    }
    let beside =
        backgrounds.iter().filter_map(Partnering::others).chain(others.iter().map(|part| &*part.source));
    let remote = std::iter::once(&source).chain(beside).filter(|source| source.is_remote()).count();
    let order = config.settle(&mut plan, &mut audio, source.stored(n_rows))?;
    config.fit(&mut plan, &audio, &outputs, n_rows, remote as u64)?;
    let exclude = config.exclude.rows(source.shards(), &config.tracks())?;
    config.exclude = Exclude::Rows(exclude.iter().map(|&row| row as i64).collect());
    let identity = identity::ClipIdentity {
        config: &config,
        order: &order,
        audio: &audio,
        source: &source,
        outputs: &outputs,
        exclude: &exclude,
        backgrounds: &backgrounds,
        others: &others,
        positions: &positions,
        weights: weights.as_deref(),
        lengths: lengths.filter(|_| buckets.is_some()),
    };
    let identity = identity.identity();
    plan.weights = weights;
    plan.policy.exclude = exclude.iter().flat_map(|&row| positions.of_row(row)).collect();
    let starts: Vec<_> = source.group_starts().into_iter().map(|row| positions.before(row)).collect();
    if let Some(mixture) = &mut plan.mixture {
        mixture.over(starts.clone());
    }
    let source = Arc::new(source);
    let selection = Arc::new(Selection::new(source.clone(), positions.clone()));
    let partners = |background| match background {
        Partnering::Others(source) => {
            let starts = [0, source.n_rows()];
            MixSource::new(source, Arc::new(starts), Vec::new())
        }
        Partnering::Own(same_class) => {
            let exclude = plan.policy.exclude.to_vec();
            MixSource::new(selection.clone(), starts.clone().into(), exclude)
                .of_own_rows(positions.clone(), same_class)
        }
    };
    audio.mix_sources = backgrounds.into_iter().map(partners).collect();
    let audio = with_other_recordings(audio, others, (&positions, &starts, &plan.policy.exclude));
    let task = AudioTask::new(audio).with_outputs(outputs).with_seconds(known.map(Arc::from));
    Ok(Composed {
        config,
        source,
        selection,
        task,
        plan,
        order,
        identity,
        class_names,
        classes,
        left_out,
        buckets,
        n_rows,
    })
}

/// The plan with the recordings of rows besides their first: of rows at these positions, of sources that
/// begin at these, without those that are excluded.
pub fn with_other_recordings(
    audio: AudioPlan,
    others: Vec<OtherSource>,
    (positions, starts, exclude): (&Positions, &[u64], &[u64]),
) -> AudioPlan {
    let mut told = HashSet::new();
    let mut of = |OtherSource { source, clip }| {
        let rows = Arc::new(Selection::new(source, positions.clone()));
        match clip {
            ClipPlacing::WithFirst => OtherRecordings::new(rows),
            ClipPlacing::Independent => OtherRecordings::independent(rows, None),
            ClipPlacing::OfPartner((same_class, column)) => {
                let same_class = Arc::new(same_class);
                let kept = match exclude {
                    [] => same_class.clone(),
                    _ => Arc::new(same_class.without(exclude)),
                };
                if !told.contains(&column) {
                    tell_of_alone(&column, kept.alone(starts, exclude));
                    // bounded: by the recordings of a row.
                    told.insert(column);
                }
                let partners = MixSource::new(rows.clone(), starts.into(), exclude.to_vec())
                    .of_own_rows(positions.clone(), Some(same_class))
                    .named("a recording of another row");
                let kept = partners.clone().of_own_rows(positions.clone(), Some(kept));
                OtherRecordings::independent(rows, Some([partners, kept]))
            }
        }
    };
    let others = others.into_iter().map(&mut of).collect();
    let waveforms = audio.waveforms.map(|waveforms| waveforms.with_others(others));
    AudioPlan { waveforms, ..audio }
}

/// Logs the number of rows that get no partner by this column: rows without a value, and rows alone with
/// theirs.
fn tell_of_alone(column: &str, [without, alone]: [u64; 2]) {
    let rows = |n: u64, which: &str| (n > 0).then(|| format!("{} {which}", counted(n, "row")));
    let which = [rows(without, "without a value"), rows(alone, "with a value that no other row has")];
    let which: Vec<_> = which.into_iter().flatten().collect();
    if !which.is_empty() {
        log::warn!(
            "independent: column {column:?} has {}, which get their own recording in place of another row's; sampling= can leave \
             such rows out, and partner_index tells them",
            which.join(" and ")
        );
    }
}

fn lengths_digest(seconds: &[f32], tokens: Option<&[u32]>) -> u64 {
    let numbers =
        seconds.iter().map(|seconds| seconds.to_bits()).chain(tokens.into_iter().flatten().copied());
    numbers.fold(seconds.len() as u64, |state, number| mix(state ^ u64::from(number)))
}
