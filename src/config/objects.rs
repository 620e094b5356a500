//! Types of parameters that are neither a number nor a text.

use std::{any::Any, fmt, path::PathBuf, sync::Arc};

use crate::{
    Error, ErrorKind, Result,
    sampling::Sampling,
    source::{Entry, files::Manifest},
    tasks::{ClipCrop, SpanUnit},
    transform::{Augment, Features, WindowEnd},
};

/// The files of each source; sources that are mixed have names.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sources {
    /// The sources' names in the given order.
    pub names: Option<Vec<String>>,
    /// The files or tables of each source.
    pub groups: Vec<Vec<Origin>>,
    /// The rows that the files of each source must have; `None` or missing for any number.
    pub n_rows: Vec<Option<u64>>,
}

/// The recordings that a step of augmentation reads.
#[derive(Debug, Clone, PartialEq)]
pub enum Background {
    /// The loader's own rows.
    Own {
        /// A column of classes: only rows that have one of the clip's.
        same_class: Option<String>,
    },
    /// Others.
    Others {
        /// The files.
        sources: Sources,
        /// Their column of recordings; as [`ArrowOptions::audio_column`](crate::source::ArrowOptions).
        audio_column: Option<String>,
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
    /// A path.
    Path(PathBuf),
    /// A table, and its object.
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
    /// Checks the rows of each source, given the first row of each and the number of all rows.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if a `datasets.Dataset` has other rows than its files.
    pub fn check_rows(&self, starts: &[u64], n_rows: u64) -> Result<()> {
        let ends = starts.iter().skip(1).chain([&n_rows]);
        for ((start, end), expected) in starts.iter().zip(ends).zip(&self.n_rows) {
            if let Some(expected) = expected.filter(|expected| *expected != end - start) {
                let message = format!(
                    "the Dataset in arrow_files has {expected} rows and its files have {}: it is a part of them; \
                     save it with save_to_disk(folder) and pass the folder",
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

/// Rows that are never read.
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

/// An object of `forebay.features`.
#[derive(Debug, Clone)]
pub struct FeatureObject {
    /// The object as JSON.
    pub description: serde_json::Value,
    /// Its plan.
    pub plan: Features,
}

impl PartialEq for FeatureObject {
    fn eq(&self, other: &Self) -> bool {
        self.description == other.description
    }
}

/// An object of `forebay.crops`.
#[derive(Debug, Clone, PartialEq)]
pub struct CropObject {
    /// The object as JSON.
    pub description: serde_json::Value,
    /// What it says.
    pub rule: CropConfig,
}

/// A rule for the clips of a recording.
#[derive(Debug, Clone, PartialEq)]
pub enum CropConfig {
    /// A clip, or several; if there are spans, its place is that of spans.
    Clip(ClipCrop, Option<SpanConfig>),
    /// Windows.
    Windows(WindowConfig),
}

/// The spans that place clips.
#[derive(Debug, Clone, PartialEq)]
pub struct SpanConfig {
    /// A column of pairs, or one of starts and one of ends.
    pub columns: Vec<String>,
    /// Their unit.
    pub unit: SpanUnit,
    /// The least seconds to which one is widened; `None`: clips are inside of one.
    pub widen: Option<f64>,
    /// Whether a row without spans is an error.
    pub are_required: bool,
}

impl CropConfig {
    /// The spans that place clips.
    pub fn spans(&self) -> Option<&SpanConfig> {
        match self {
            Self::Clip(_, spans) => spans.as_ref(),
            Self::Windows(_) => None,
        }
    }

    /// The number of clips of an example, if they have an axis.
    pub fn views(&self) -> Option<u32> {
        match self {
            Self::Clip(crop, _) => Some(crop.views).filter(|&n| n > 0),
            Self::Windows(_) => None,
        }
    }
}

/// Windows within clips.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WindowConfig {
    /// Seconds from the start of one to that of the next; `None`: the length.
    pub step: Option<f64>,
    /// The rule for the end.
    pub end: WindowEnd,
    /// Seconds of the recording on each side of a window that its clip has besides.
    pub context: f64,
}

/// What is left to chance: the crop alone, or steps of `forebay.augment` too.
#[derive(Debug, Clone, PartialEq)]
pub enum AugmentObject {
    /// Whether crops are random.
    Crop(bool),
    /// Random crops, and these steps.
    Steps {
        /// The objects as JSON.
        description: Vec<serde_json::Value>,
        /// What they do.
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

/// An object of `forebay.sampling`.
#[derive(Debug, Clone, PartialEq)]
pub struct SamplingObject {
    /// The object as JSON.
    pub description: serde_json::Value,
    /// What it says.
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
    pub(crate) fn of(&self, names: &[String], problems: &mut Vec<String>) -> Vec<(i64, Vec<f64>)> {
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
