//! [`OpenedSource`]: the files that the parameters of a loader name, opened, with the rows that it reads and
//! the fields that it makes of them.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use super::{
    OtherSource, Partnering,
    rows_by_length::{LengthFilter, open_with_durations, tell_of_left_out},
};
use crate::{
    Error, ErrorKind, LoaderConfig, cancel,
    config::{AugmentObject, Background, ClipPlacing, CropConfig, Origin, RowRecording, Sources, Waveforms},
    contract::RowStore,
    dsp::augment::{MixTargets, StepKind},
    error::counted,
    fields::Value,
    order::WeightedRows,
    sampling::{Chosen, ClassCounts, LeftOut, RowSeconds, SameClass},
    source::{
        ColumnChoice, Contents, ExtraColumn, PayloadColumn, Positions, Recordings, RowInfo, SourceOptions,
    },
    targets::{Annotations, Key, MOST_CLASSES, SourceColumns, Target, TargetConfig, joined_names},
    tasks::{ClipRule, OutputInputs, Outputs, SpanSource, reference_fields},
};

/// The class names of each target that has any.
pub type ClassNamesOf = Vec<(String, Arc<Vec<String>>)>;

/// What the parameters of a loader open.
pub struct OpenedSource {
    pub source: Recordings,
    pub positions: Positions,
    /// The weights of the positions, for each source.
    pub weights: Option<Arc<[Arc<WeightedRows>]>>,
    /// The classes of each column that is balanced, with the expected examples of an epoch.
    pub classes: Vec<ClassCounts>,
    /// The fields besides the features.
    pub outputs: Outputs,
    /// The recordings that steps of augmentation read.
    pub backgrounds: Vec<Partnering>,
    /// The recordings of the rows besides their first, by column.
    pub others: Vec<OtherSource>,
    /// The lengths of rows, if clips are whole recordings.
    pub seconds: Option<RowSeconds>,
    /// The tokens of all rows of the source, if they bound batches.
    pub tokens: Option<Vec<u32>>,
    pub left_out: LeftOut,
}

impl OpenedSource {
    /// Opens the files, for clips by a rule at a sample rate. The stop flag is checked between reads.
    ///
    /// # Errors
    /// Those of [`Recordings::open`], [`Subset::rows`](crate::source::Subset::rows) and [`Target::plan`];
    /// [`ErrorKind::Config`] if a `datasets.Dataset` has other rows than its files.
    pub fn new(
        config: &LoaderConfig,
        (clips, rate, least_seconds): (ClipRule, u32, f64),
    ) -> Result<Self, Error> {
        let mut options = SourceOptions {
            label_column: config.label_column.clone().into(),
            paths: config.reads_paths(),
            columns: config.read_columns(),
            fingerprinted: Some(config.columns_that_matter()),
            ..config.recording_options(config.recordings()[0])?
        };
        if config.targets.is_some() {
            options.label_column = ColumnChoice::Nothing;
        }
        let (source, duration) = open_with_durations(config, &options)?;
        let mut lengths = LengthFilter::default();
        let of_length = |rows| lengths.apply(rows, config, (&source, duration.as_deref()), least_seconds);
        let sampled = config.sampled().unwrap_or_default().choose(&source, of_length)?;
        let Chosen { rows, weights, classes } = sampled;
        let LengthFilter { seconds, tokens, left_out } = lengths;
        tell_of_left_out(left_out, config, least_seconds);
        source.try_first(rows.as_deref(), &config.exclude.rows(source.shards(), &config.tracks())?)?;
        let mut positions = Positions::new(rows);
        if let ClipRule::Windows(_) = clips {
            let windows = |_, found: Option<RowInfo>| clips.windows(found.map(|row| row.info), rate);
            let windows = source.infos(positions.rows(), windows)?;
            positions = positions.with_windows(windows.into_iter())?;
        }
        let outputs = outputs(config, &source, positions.clone())?;
        check_cells(config, &outputs, (&source, &positions))?;
        let backgrounds = backgrounds(config, &outputs, (&source, &positions))?;
        let others = other_recordings(config, &source, &positions)?;
        tell_of_rate(config, &source, rate);
        tell_of_separators(config, &outputs, &classes);
        Ok(Self {
            source,
            positions,
            weights,
            classes,
            outputs,
            backgrounds,
            others,
            seconds,
            tokens,
            left_out,
        })
    }

    /// The class names of each target that has any.
    pub fn class_names(&self) -> ClassNamesOf {
        let names = |target: &Target| Some((target.field().name.clone(), target.class_names()?.clone()));
        self.outputs.targets().filter_map(names).collect()
    }
}

/// Opens the recordings of the rows of `source` besides their first.
///
/// # Errors
/// As [`Recordings::open`]; [`ErrorKind::Config`] for shards whose rows cannot be read one by one.
fn other_recordings(
    config: &LoaderConfig,
    source: &Recordings,
    positions: &Positions,
) -> Result<Vec<OtherSource>, Error> {
    let recordings = config.recordings();
    if let Some(shard) = source.shards().iter().find(|shard| recordings.len() > 1 && shard.is_archive()) {
        let message = format!(
            "{} is an archive, whose members are rows by their endings, and audio has {} recordings; give a table of the members: \
             forebay.Manifest(table, root={:?})",
            shard.path.display(),
            recordings.len(),
            shard.path.display().to_string()
        );
        return Err(Error::new(ErrorKind::Config, message));
    }
    let open = |recording: RowRecording<'_>| {
        let column = recording.column.unwrap_or_default();
        let found = config.arrow_files.open(&SourceOptions {
            label_column: ColumnChoice::Nothing,
            ..config.recording_options(recording)?
        })?;
        if found.n_rows() != source.n_rows() {
            let message = format!(
                "the files have {} with recordings in column {column:?}, and {} of the first column of audio",
                counted(found.n_rows(), "row"),
                source.n_rows()
            );
            return Err(Error::new(ErrorKind::Config, message));
        }
        found.check_scattered().map_err(|error| {
            let message = format!(
                "column {column:?} of audio is read row by row, and the record batches are too large for that; write the \
                 files without compression or in smaller batches"
            );
            Error::new(ErrorKind::Config, message).because(error)
        })?;
        let clip = match recording.clip {
            ClipPlacing::WithFirst => ClipPlacing::WithFirst,
            ClipPlacing::Independent => ClipPlacing::Independent,
            ClipPlacing::OfPartner(column) => ClipPlacing::OfPartner((
                SameClass::of_column(source, column, positions.clone())?,
                column.to_owned(),
            )),
        };
        Ok(OtherSource { source: Arc::new(found), clip })
    };
    recordings.into_iter().skip(1).map(open).collect()
}

/// Logs that the schema has another rate than clips whose rate was not chosen.
fn tell_of_rate(config: &LoaderConfig, source: &Recordings, rate: u32) {
    if config.features.is_some() || config.sample_rate != LoaderConfig::default().sample_rate {
        return;
    }
    let in_schema = || source.contents().schema.iter().find_map(|column| column.sampling_rate);
    let known = config.arrow_files.rates.iter().flatten().next().copied().or_else(in_schema);
    if let Some(known) = known.filter(|&known| known != rate) {
        log::warn!(
            "the schema has recordings of {known} Hz, as Audio(sampling_rate={known}), which are resampled to {rate} Hz; to keep \
             their rate give sample_rate={known}, or features= of the rate that the model takes"
        );
    }
}

/// Logs which columns seem to join several classes in one name.
fn tell_of_separators(config: &LoaderConfig, outputs: &Outputs, classes: &[ClassCounts]) {
    let tell = |place: &str, names: &[String], advice: &dyn Fn(char) -> String| {
        let Some((separator, n)) = joined_names(names) else { return };
        let such_as = names.iter().find(|name| name.contains(separator)).map_or("", String::as_str);
        log::warn!(
            "{n} of the {} classes of {place} contain {separator:?}, such as {such_as:?}; if these are several classes \
             each, {}",
            names.len(),
            advice(separator)
        );
    };
    for target in outputs.targets() {
        let column = match (&config.targets, &config.label_column) {
            (None, Some(column)) => column,
            _ => target.column_name(),
        };
        let Some(names) = target.class_names() else { continue };
        if target.annotations().is_some() {
            tell(&format!("target {:?}", target.field().name), names, &|_| {
                "give its table a row for each of them".to_owned()
            });
            continue;
        }
        if let Some(list) = names.iter().find(|name| name.starts_with('[') && name.ends_with(']')) {
            log::warn!(
                "column {column:?} has a class {list:?}, which seems to be a list in a text; write its names with a separator, as \
                 in \"owl;wren\", for MultiHot({column:?}, classes=\"data\", separator=\";\"), or as lists in JSON lines or Parquet"
            );
        }
        tell(&format!("column {column:?}"), names, &|separator| {
            format!(
                "give targets=forebay.targets.MultiHot({column:?}, classes=\"data\", separator=\"{separator}\")"
            )
        });
    }
    let sampled = config.sampled().unwrap_or_default();
    let balances = sampled.balances().filter(|balance| balance.separator.is_none());
    for balance in balances {
        let of_column = classes.iter().filter(|counts| counts.column == balance.column);
        let names = of_column.flat_map(|counts| &counts.classes).filter_map(|count| match &count.class {
            Some(Key::Name(name)) => Some(name.to_string()),
            _ => None,
        });
        tell(&format!("column {:?}", balance.column), &names.collect::<Vec<_>>(), &|separator| {
            format!("give Balanced({:?}, separator=\"{separator}\")", balance.column)
        });
    }
}

/// Checks what targets take of tables, which are in memory: a wrong value would end a run when its row is
/// read. The label of a loader without targets takes any value.
///
/// # Errors
/// As [`Target::check_cell`], for a row that is read.
fn check_cells(
    config: &LoaderConfig,
    outputs: &Outputs,
    (source, positions): (&Recordings, &Positions),
) -> Result<(), Error> {
    /// The most wrong rows of a table that are looked at: they may all be left out.
    const MOST: usize = 1000;
    #[derive(Default)]
    struct WrongCells {
        n_rows: u64,
        rows: Vec<(u64, Error)>,
    }
    if !source.is_of_files() || config.targets.is_none() {
        return Ok(());
    }
    let columns = source.column_names();
    for target in outputs.targets().filter(|target| columns.iter().any(|name| name == target.column_name())) {
        let keep = |wrong: &mut WrongCells, value: Result<&Value, Error>| {
            if let Some(error) = value.ok().and_then(|value| target.check_cell(value).err())
                && wrong.rows.len() < MOST
            {
                // bounded: MOST of them.
                wrong.rows.push((wrong.n_rows, error));
            }
            wrong.n_rows += 1;
            Ok(())
        };
        let found = source.collect(target.column_name(), keep)?;
        if found.iter().all(|wrong| wrong.rows.is_empty()) {
            continue;
        }
        let exclude = config.exclude.rows(source.shards(), &config.tracks())?;
        for (shard, wrong) in source.shards().iter().zip(found) {
            let is_read = |row: u64| {
                let row = shard.first_row + row;
                !positions.of_row(row).is_empty() && exclude.binary_search(&row).is_err()
            };
            if let Some((row, error)) = wrong.rows.into_iter().find(|(row, _)| is_read(*row)) {
                return Err(error.in_shard(&shard.path).at_row(row));
            }
        }
    }
    Ok(())
}

/// Opens the recordings that steps of augmentation read, and checks that the targets can be mixed.
fn backgrounds(
    config: &LoaderConfig,
    outputs: &Outputs,
    (own, positions): (&Recordings, &Positions),
) -> Result<Vec<Partnering>, Error> {
    let AugmentObject::Steps { augment, sources, .. } = &config.augment else { return Ok(Vec::new()) };
    let mut problems: Vec<_> = augment
        .mixes()
        .flat_map(|mixing| outputs.targets().filter_map(|target| target.mix_problem(mixing.targets)))
        .collect();
    let steps = augment.steps().filter(|step| matches!(step.kind, StepKind::Pair(_))).take(1);
    problems.extend(steps.flat_map(|step| {
        let name = step.kind.name();
        outputs.targets().filter_map(move |target| target.pair_problem(name))
    }));
    let mixes_targets = augment.mixes().any(|mixing| mixing.targets != MixTargets::Keep);
    if mixes_targets && !outputs.targets().any(Target::is_mixed) {
        problems.push(
            "augment has a Mix that mixes targets, and the loader has none; give targets=, such as \
             MultiHot(\"labels\"), or targets=\"keep\" in Mix"
                .to_owned(),
        );
    }
    if !problems.is_empty() {
        return Err(Error::new(ErrorKind::Config, problems.join("; ")));
    }
    let opened = sources.iter().zip(augment.readings()).map(|(source, (name, _))| {
        let (source, audio_column, track) = match source {
            Background::Others { sources, audio_column, track } => (sources, audio_column, *track),
            Background::Own { same_class: None } => return Ok(Partnering::Own(None)),
            Background::Own { same_class: Some(column) } => {
                let classes = SameClass::of_column(own, column, positions.clone())?;
                return Ok(Partnering::Own(Some(Arc::new(classes))));
            }
        };
        let options = SourceOptions {
            payload: PayloadColumn::Audio(audio_column.clone()),
            label_column: ColumnChoice::Nothing,
            track,
            ..config.payload_options()?
        };
        let found = source.open(&options).map_err(|error| Error {
            message: format!("the source of {name}: {}", error.message),
            ..error
        })?;
        found.check_scattered().map_err(|error| {
            let message = format!(
                "the source of a {name} is read in a random order, and its record batches are too large for that; write it without \
                 compression or in smaller batches"
            );
            Error::new(ErrorKind::Config, message).because(error)
        })?;
        if found.n_rows() == 0 {
            let message = format!("the source of a {name} has no recordings, must have at least one");
            return Err(Error::new(ErrorKind::Config, message));
        }
        Ok(Partnering::Others(Arc::new(found)))
    });
    opened.collect()
}

/// The problems with the files of a source; `parameter` names it.
pub fn source_problems(parameter: &str, sources: &Sources) -> Vec<String> {
    let mut problems = Vec::new();
    let groups = &sources.groups;
    if groups.iter().all(Vec::is_empty) {
        problems.push(format!("{parameter} is empty, must name at least one shard"));
    }
    let is_empty = |file: &Origin| matches!(file, Origin::Path(path) if path.as_os_str().is_empty());
    if let Some(at) = groups.iter().flatten().position(is_empty) {
        problems.push(format!("{parameter} is '' at position {at}, must be the path of a shard"));
    }
    problems
}

/// The fields besides the features.
///
/// # Errors
/// Those of [`Target::plan`].
fn outputs(config: &LoaderConfig, source: &Recordings, positions: Positions) -> Result<Outputs, Error> {
    let Contents { extra_columns, columns, class_names, .. } = source.contents();
    let source_columns =
        SourceColumns { extra_columns, columns: (source.column_names(), columns), class_names };
    let mut scan = |column: &str, separator: Option<&str>| {
        let keep = |keys: &mut BTreeSet<Key>, value: Result<&Value, Error>| {
            // A bad row is told of when it is read.
            let Ok(value) = value else { return Ok(()) };
            Key::of(value, separator, &mut |key| {
                keys.insert(key);
            });
            match keys.len() > MOST_CLASSES {
                true => Err(Error::new(
                    ErrorKind::Config,
                    format!(
                        "column {column:?} has more than {MOST_CLASSES} different values, too many for classes"
                    ),
                )),
                false => Ok(()),
            }
        };
        Ok(source.collect(column, keep)?.into_iter().flatten().collect())
    };
    let place = |sought| extra_columns.iter().position(|extra| *extra == sought);
    let label = place(ExtraColumn::Label).map(|at| Target::label(at, class_names)).transpose()?;
    let mut targets = Vec::from_iter(label);
    let columns = config.columns.iter().map(|name| TargetConfig::column(name));
    for target in config.targets.iter().flatten().cloned().chain(columns) {
        targets.push(Target::plan(target, &source_columns, &mut scan)?);
    }
    for target in &targets {
        if let Some(all) = target.annotations() {
            check_annotations(&format!("target {:?}", target.field().name), all, source)?;
        }
    }
    let mut taken: Vec<_> = match &config.audio {
        Some(audio) => audio.fields.iter().map(|field| &*field.name).collect(),
        None => vec!["spectrogram", "waveform"],
    };
    if let AugmentObject::Steps { augment, .. } = &config.augment {
        taken.extend(reference_fields(augment).map(|(name, _)| name));
    }
    let crop = config.crop.as_ref().map(|object| &object.rule);
    let spans = crop.and_then(CropConfig::spans);
    let spans = spans.map(|spans| match &spans.table {
        Some(all) => SpanSource::table(all.clone(), &source_columns),
        None => SpanSource::columns(&spans.columns, spans.unit, &source_columns),
    });
    let spans = spans.transpose()?;
    if let Some(all) = spans.as_ref().and_then(SpanSource::annotations) {
        check_annotations("crop", all, source)?;
    }
    let has_partners = config.independent.iter().any(|independent| independent.columns().next().is_some());
    Outputs::new(OutputInputs {
        n_waveforms: config.audio.as_ref().map(Waveforms::n_waveforms),
        has_mask: config.audio.is_some() && config.missing_audio == "zeros",
        has_partners,
        spans,
        views: crop.and_then(CropConfig::views),
        lengths: crop.and_then(CropConfig::whole).map(|_| match &config.features {
            Some(object) if object.plan.is_waveform() => "valid_samples",
            _ => "valid_frames",
        }),
        pairs: matches!(&config.augment, AugmentObject::Steps { augment, .. } if augment.pairs_examples()),
        targets,
        path: place(ExtraColumn::Path),
        group_starts: &source.group_starts(),
        is_mixture: config.arrow_files.names.is_some(),
        shard_starts: &source.shard_starts(),
        requested: &config.outputs,
        positions,
        taken: &taken,
    })
}

/// The most recordings whose annotations are looked for when a loader is made.
const MOST_LOOKED_FOR: u64 = 1 << 20;

/// Checks that some recording has annotations: otherwise their paths are of another form than those of rows.
/// Logs it if some do not fit together.
///
/// # Errors
/// [`ErrorKind::Config`] if none has.
fn check_annotations(what: &str, all: &Annotations, source: &Recordings) -> Result<(), Error> {
    let (Some(known), true) = (all.any_path(), source.has_cheap_paths()) else { return Ok(()) };
    let (mut matched, mut n_without, mut without) = (HashSet::new(), 0_u64, None);
    for (row, path) in (0..).zip(source.paths()) {
        cancel::check("opening")?;
        if row >= MOST_LOOKED_FOR && !matched.is_empty() {
            return Ok(());
        }
        let Some(path) = path? else { continue };
        match all.recording(&path) {
            Some(recording) => {
                matched.insert(recording);
            }
            None => {
                n_without += 1;
                without.get_or_insert(path);
            }
        }
    }
    let without = without.unwrap_or_default();
    if matched.is_empty() {
        let message = format!(
            "{what}: no recording has annotations; recordings have paths such as {without:?}, annotations {known:?}; an \
             annotation belongs to the recordings whose paths end with its path: load the folder above the recordings, name \
             their files in a list, or shorten the paths of the annotations"
        );
        return Err(Error::new(ErrorKind::Config, message));
    }
    let unknown =
        all.paths().filter(|path| all.recording(path).is_none_or(|at| !matched.contains(&at))).min();
    if let Some(unknown) = unknown.filter(|_| n_without > 0) {
        log::warn!(
            "{what}: {} of {} annotated paths are those of no recording, such as {unknown:?}; {} \
             without annotations, such as {without:?}",
            all.paths().len() - matched.len(),
            all.paths().len(),
            counted(n_without, "recording")
        );
    }
    Ok(())
}
