//! Types of parameters that are neither a number nor a text.

use std::{any::Any, fmt, path::PathBuf, sync::Arc};

use crate::{
    Error, ErrorKind, Result,
    chat::TrainOn,
    dsp::{Augment, Features, WindowEnd},
    fallible_alloc,
    infill::InfillCut,
    order::{Bins, Budget},
    sampling::Sampling,
    source::{Entry, Recordings, Shard, SourceOptions, TextContent, files::Manifest},
    targets::Annotations,
    tasks::{ClipCrop, SpanUnit, WholeRule},
};

/// The files of a loader of documents, and what their rows are.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TextRows {
    pub paths: Vec<PathBuf>,
    /// The column that an object of `forebay.text` names.
    pub column: Option<String>,
    pub content: TextContent,
    /// How conversations become texts, if rows are conversations.
    pub chat: Option<ChatRule>,
    /// What is drawn for each text, if rows are texts.
    pub draws: DrawRule,
}

/// What is drawn for each text, as the user gives it.
#[derive(Debug, Clone, PartialEq)]
pub struct DrawRule {
    /// The share of texts of which the middle comes last, and the share of these in the order SPM.
    pub fim: f64,
    pub fim_spm: f64,
    pub fim_cut: InfillCut,
    /// The tokens before prefix, middle and suffix; those that the tokenizer has by a known name, if none is
    /// given.
    pub fim_tokens: [Option<NamedToken>; 3],
    /// The probability with which each merge is left out.
    pub bpe_dropout: f64,
}

/// A token by its id or its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NamedToken {
    Id(u32),
    Text(String),
}

impl Default for DrawRule {
    fn default() -> Self {
        Self {
            fim: 0.0,
            fim_spm: 0.5,
            fim_cut: InfillCut::default(),
            fim_tokens: [const { None }; 3],
            bpe_dropout: 0.0,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatRule {
    /// `"tokenizer"`, a name, or a template of Jinja.
    pub template: String,
    pub train_on: TrainOn,
}

impl TextRows {
    pub fn is_masked(&self) -> bool {
        match &self.content {
            TextContent::Texts => false,
            TextContent::Ids(fields) => fields.labels.is_some(),
            TextContent::Chat(_) | TextContent::Pairs(_) => true,
        }
    }

    pub fn is_paired(&self) -> bool {
        matches!(self.content, TextContent::Pairs(_))
    }

    pub fn is_weighted(&self) -> bool {
        matches!(&self.content, TextContent::Ids(fields) if fields.weights.is_some())
    }
}

/// The rows of each source of a loader of documents; sources that are mixed have names.
#[derive(Debug, Clone, PartialEq)]
pub struct TextSources {
    /// The sources' names in the given order.
    pub names: Option<Vec<String>>,
    /// At least one.
    pub rows: Vec<TextRows>,
}

impl Default for TextSources {
    fn default() -> Self {
        Self { names: None, rows: vec![TextRows::default()] }
    }
}

impl TextSources {
    /// A source for messages, such as `parquet_files` or `parquet_files["web"]`.
    pub fn name(&self, source: usize) -> String {
        match &self.names {
            Some(names) => format!("parquet_files[{:?}]", names[source]),
            None => "parquet_files".to_owned(),
        }
    }
}

/// The files of each source; sources that are mixed have names.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sources {
    /// The sources' names in the given order.
    pub names: Option<Vec<String>>,
    /// The files or tables of each source.
    pub groups: Vec<Vec<Origin>>,
    /// The rows that the files of each source must have; `None` or missing for any number.
    pub n_rows: Vec<Option<u64>>,
    /// The rows of each source in its own order; `None` or missing for that of the files.
    pub orders: Vec<Option<Ordered>>,
    /// The rate that a `datasets.Dataset` has of its recordings, hertz; `None` or missing if none is known.
    pub rates: Vec<Option<u32>>,
}

/// A `datasets.Dataset` whose rows are not those of its files in order, as after `shuffle`, `select` or
/// `train_test_split`.
#[derive(Debug, Clone, PartialEq)]
pub struct Ordered {
    /// The parts of files that its table has, in order.
    pub parts: Vec<FilePart>,
    /// The rows of that table for each row; `None`: all in order.
    pub rows: Option<Arc<[u64]>>,
    pub object: Opaque,
}

/// Some neighbouring rows of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilePart {
    /// The number of the file among those of the source.
    pub file: usize,
    pub start: u64,
    pub n_rows: u64,
}

impl Ordered {
    /// The rows by their numbers in the source, whose files are `shards`; `None`: those of the files in
    /// order.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if the files do not have the rows; [`ErrorKind::Memory`].
    fn rows_of(&self, shards: &[Shard]) -> Result<Option<Arc<[u64]>>> {
        let first = shards.first().map_or(0, |shard| shard.first_row);
        let wrong = |message: String| Error::new(ErrorKind::Config, message);
        let changed = |shard: &Shard| {
            let (path, n) = (shard.path.display(), shard.n_rows);
            wrong(format!("the Dataset has rows of {path} that the file, with {n} rows, does not have"))
        };
        let n_rows: u64 = self.parts.iter().map(|part| part.n_rows).sum();
        let mut table: Vec<u64> = fallible_alloc::with_room(n_rows as usize)?;
        for part in &self.parts {
            let shard =
                shards.get(part.file).ok_or_else(|| wrong("the Dataset has other files".to_owned()))?;
            let end = part.start.checked_add(part.n_rows).filter(|&end| end <= shard.n_rows);
            let end = end.ok_or_else(|| changed(shard))?;
            let before = shard.first_row - first;
            table.extend(before + part.start..before + end);
        }
        let Some(rows) = &self.rows else {
            let n: u64 = shards.iter().map(|shard| shard.n_rows).sum();
            let is_whole = n == n_rows && (0..n).eq(table.iter().copied());
            return Ok((!is_whole).then(|| table.into()));
        };
        let mut found: Vec<u64> = fallible_alloc::with_room(rows.len())?;
        for &row in &**rows {
            let known = usize::try_from(row).ok().and_then(|row| table.get(row));
            found.push(*known.ok_or_else(|| {
                wrong(format!(
                    "the index mapping of the Dataset names row {row}, and its table has {n_rows} rows"
                ))
            })?);
        }
        Ok(Some(found.into()))
    }
}

/// The recordings that a step of augmentation reads.
#[derive(Debug, Clone, PartialEq)]
pub enum Background {
    Own {
        /// A column of classes: only rows that have one of the clip's.
        same_class: Option<String>,
    },
    Others {
        sources: Sources,
        /// The column of recordings; as [`SourceOptions::payload`](crate::source::SourceOptions).
        audio_column: Option<String>,
        /// The number of the recordings' audio track.
        track: Option<u32>,
    },
}

impl Background {
    /// The column of classes that a partner shares with the clip.
    pub fn same_class(&self) -> Option<&String> {
        match self {
            Self::Own { same_class } => same_class.as_ref(),
            Self::Others { .. } => None,
        }
    }
}

/// A file, a folder or a pattern, or a table as an object of Python.
#[derive(Debug, Clone, PartialEq)]
pub enum Origin {
    Path(PathBuf),
    Manifest(Arc<Manifest>, Opaque),
}

impl From<Origin> for Entry {
    fn from(origin: Origin) -> Self {
        match origin {
            Origin::Path(path) => Self::Path(path),
            Origin::Manifest(manifest, _) => Self::Manifest(manifest),
        }
    }
}

impl Sources {
    /// Opens the files, with the rows of each source in its order.
    ///
    /// # Errors
    /// Those of [`Recordings::open`]; [`ErrorKind::Config`] if a `datasets.Dataset` has other rows than its
    /// files.
    pub fn open(&self, options: &SourceOptions) -> Result<Recordings> {
        let found = Recordings::open(&self.groups, options)?;
        self.check_rows(&found.group_starts(), found.n_rows())?;
        let starts = found.group_starts();
        let orders = self.orders.iter().enumerate().map(|(group, order)| {
            let end = starts.get(group + 1).copied().unwrap_or(u64::MAX);
            let is_own = |shard: &&Shard| (starts[group]..end).contains(&shard.first_row);
            let shards: Vec<_> = found.shards().iter().filter(is_own).cloned().collect();
            order.as_ref().map_or(Ok(None), |order| order.rows_of(&shards))
        });
        let orders = orders.collect::<Result<Vec<_>>>()?;
        found.ordered(&orders)
    }

    /// Checks the rows of each source, given the first row of each and the number of all rows.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if a `datasets.Dataset` has other rows than its files.
    fn check_rows(&self, starts: &[u64], n_rows: u64) -> Result<()> {
        let ends = starts.iter().skip(1).chain([&n_rows]);
        for ((start, end), expected) in starts.iter().zip(ends).zip(&self.n_rows) {
            if let Some(expected) = expected.filter(|expected| *expected != end - start) {
                let message = format!(
                    "the Dataset has {expected} rows and its files have {}: they were changed since it was made; load it \
                     again",
                    end - start
                );
                return Err(Error::new(ErrorKind::Config, message));
            }
        }
        Ok(())
    }
}

/// The sources' weights, each with the batch from which they hold; empty for weights by number of rows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Weights(pub Vec<(i64, Vec<(String, f64)>)>);

/// One name, or several.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names(pub Vec<String>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exclude {
    /// Row numbers over all files in the given order.
    Rows(Vec<i64>),
    /// A report of `forebay check`, whose bad records are excluded.
    Report(PathBuf),
}

impl Default for Exclude {
    fn default() -> Self {
        Self::Rows(Vec::new())
    }
}

#[derive(Debug, Clone)]
pub struct FeatureObject {
    pub description: serde_json::Value,
    pub plan: Features,
}

impl PartialEq for FeatureObject {
    fn eq(&self, other: &Self) -> bool {
        self.description == other.description
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct CropObject {
    pub description: serde_json::Value,
    pub rule: CropConfig,
}

/// A rule for the clips of a recording.
#[derive(Debug, Clone, PartialEq)]
pub enum CropConfig {
    /// A clip, or several; if there are spans, its place is that of spans.
    Clip(ClipCrop, Option<SpanConfig>),
    Windows(WindowConfig),
    Whole(WholeConfig),
}

#[derive(Debug, Clone, PartialEq)]
pub struct BatchingObject {
    pub description: serde_json::Value,
    pub buckets: BucketConfig,
}

#[derive(Debug, Clone, PartialEq)]
pub struct BucketConfig {
    pub budget: Budget,
    pub bins: Bins,
    /// The target whose tokens `max_tokens` counts, if it is named.
    pub tokens: Option<String>,
    /// How many buckets each bin is divided into by its tokens.
    pub token_bins: usize,
    pub pad_to: PadRule,
}

/// The length of the features of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PadRule {
    Longest,
    /// That of the longest example that its bucket may have.
    Bucket,
    /// The next multiple of so many frames, or samples.
    Multiple(u64),
    /// None: examples lie one after the other.
    Packed,
}

/// Whole recordings, of different lengths.
#[derive(Debug, Clone, PartialEq)]
pub struct WholeConfig {
    /// The column of their seconds, if one is named.
    pub duration: Option<String>,
    /// Shorter recordings are left out.
    pub min_seconds: f64,
    /// Longer recordings are left out, or cut.
    pub max_seconds: f64,
    pub rule: WholeRule,
}

#[derive(Debug, Clone, PartialEq)]
pub struct SpanConfig {
    /// A column of pairs, or one of starts and one of ends.
    pub columns: Vec<String>,
    /// The regions of recordings by their paths; then there are no columns.
    pub table: Option<Arc<Annotations>>,
    pub unit: SpanUnit,
    pub place: SpanPlace,
    /// Whether a row without spans is an error.
    pub are_required: bool,
}

/// Where a clip is, given the spans of its row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SpanPlace {
    /// Within one that is widened to at least these seconds.
    Around(f64),
    Inside,
    /// In a region, of which none overlap.
    Region,
}

impl CropConfig {
    pub fn spans(&self) -> Option<&SpanConfig> {
        match self {
            Self::Clip(_, spans) => spans.as_ref(),
            Self::Windows(_) | Self::Whole(_) => None,
        }
    }

    /// The number of clips of an example, if they have an axis.
    pub fn views(&self) -> Option<u32> {
        match self {
            Self::Clip(crop, _) => Some(crop.views).filter(|&n| n > 0),
            Self::Windows(_) | Self::Whole(_) => None,
        }
    }

    /// What is said of whole recordings, if clips are.
    pub fn whole(&self) -> Option<&WholeConfig> {
        if let Self::Whole(whole) = self { Some(whole) } else { None }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WindowConfig {
    /// Seconds from the start of one to that of the next; `None`: the length.
    pub step: Option<f64>,
    pub end: WindowEnd,
    /// Seconds of the recording on each side of a window that its clip has besides.
    pub context: f64,
}

/// What is left to chance: the crop alone, or steps of `forebay.augment` too.
#[derive(Debug, Clone, PartialEq)]
pub enum AugmentObject {
    Crop(bool),
    Steps {
        description: Vec<serde_json::Value>,
        augment: Augment,
        /// The recordings of each step that reads others than the clip's.
        sources: Vec<Background>,
        /// The owners of the functions that steps call; the steps alone do not keep them.
        functions: Vec<Opaque>,
    },
}

impl AugmentObject {
    /// The recordings of each step that reads others than the clip's.
    pub fn sources(&self) -> &[Background] {
        match self {
            Self::Crop(_) => &[],
            Self::Steps { sources, .. } => sources,
        }
    }

    /// The owners of the functions that steps call.
    pub fn functions(&self) -> &[Opaque] {
        match self {
            Self::Crop(_) => &[],
            Self::Steps { functions, .. } => functions,
        }
    }
}

impl From<bool> for AugmentObject {
    fn from(is_random: bool) -> Self {
        Self::Crop(is_random)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct SamplingObject {
    pub description: serde_json::Value,
    pub sampling: Sampling,
}

/// An object whose type only `src/python` knows.
#[derive(Clone, Default)]
pub struct Opaque(pub Option<Arc<dyn Any + Send + Sync>>);

impl fmt::Debug for Opaque {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Opaque")
    }
}

impl PartialEq for Opaque {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(mine), Some(theirs)) => Arc::ptr_eq(mine, theirs),
            (mine, theirs) => mine.is_none() && theirs.is_none(),
        }
    }
}

impl Weights {
    /// The weights in the order of the sources' names.
    pub fn of(&self, names: &[String], problems: &mut Vec<String>) -> Vec<(i64, Vec<f64>)> {
        let stages = self.0.iter().map(|(from, weights)| {
            if let Some((stranger, _)) = weights.iter().find(|(name, _)| !names.contains(name)) {
                problems.push(format!(
                    "weights name {stranger:?}, which is not a source; the sources are {}",
                    names.join(", ")
                ));
            }
            let of = |name: &String| {
                let found = weights.iter().find(|(of, _)| of == name);
                if found.is_none() {
                    problems.push(format!("weights lack the source {name:?}; give 0 to leave it out"));
                }
                found.map_or(0.0, |(_, weight)| *weight)
            };
            (*from, names.iter().map(of).collect())
        });
        stages.collect()
    }
}
