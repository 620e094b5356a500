//! [`TargetConfig`]: a target as a user describes it.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::Value as Json;

use super::{
    Annotations, EventSource, FrameColumns, FramesRule, OverlapRule, Scan, SequenceRule, TokensRule,
    classes::{ClassSource, ClassVocabulary, Key, MOST_CLASSES},
};
use crate::{Error, ErrorKind, Result, fields::DataType, source::Item};

/// How a column becomes a field.
#[derive(Debug, Clone, PartialEq)]
pub struct TargetConfig {
    pub name: String,
    pub column: String,
    pub form: TargetForm,
    /// The classes, for forms that have any.
    pub classes: ClassSource,
    /// Whether names and numbers that are no class are left out; otherwise they are errors.
    pub ignores_unknown: bool,
    /// What a null becomes; `None`: an error.
    pub null: Option<f64>,
    pub dtype: DataType,
    /// All of it as JSON, except for the classes.
    pub description: Json,
}

/// What is made of a column.
#[derive(Debug, Clone, PartialEq)]
pub enum TargetForm {
    Class,
    /// A vector with a value for each class.
    MultiHot {
        /// A column of further classes, and their value.
        secondary: Option<(String, f32)>,
        /// Moves this share of all values to their mean: `x * (1 - smoothing) + smoothing / n_classes`.
        smoothing: f32,
        /// Separates the names in a text.
        separator: Option<String>,
    },
    Soft {
        /// Its length; `None`: that of the schema's lists.
        size: Option<u64>,
    },
    Number,
    Text {
        max_bytes: u64,
    },
    Column,
    Tokens(TokensRule),
    /// A vector with a value for each class of the annotations in the clip.
    Annotations {
        all: Arc<Annotations>,
        /// How much of one must be in the clip.
        least: OverlapRule,
        /// Whether the value is the share of the clip that the longest one has, and not 1.
        is_share: bool,
    },
    /// The labels in each frame of the clip.
    Frames(FramesRule),
    /// Numbers along the time of the clip.
    Sequence(SequenceRule),
    /// The words in the clip, by columns of their starts and ends.
    Words([String; 2]),
}

impl TargetForm {
    /// The name of the class in `forebay.targets`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Class => "ClassIndex",
            Self::MultiHot { .. } => "MultiHot",
            Self::Soft { .. } => "Soft",
            Self::Number => "Number",
            Self::Text { .. } => "Text",
            Self::Tokens(rule) => rule.name(),
            Self::Column => "Column",
            Self::Annotations { .. } => "Annotations",
            Self::Frames(_) => "Frames",
            Self::Sequence(_) => "Sequence",
            Self::Words(_) => "Words",
        }
    }

    /// The annotations, if they are in a table.
    pub fn annotations(&self) -> Option<&Arc<Annotations>> {
        match self {
            Self::Annotations { all, .. } => Some(all),
            Self::Frames(rule) => rule.annotations(),
            _ => None,
        }
    }

    /// Whether it is that of a clip, and not of a row.
    pub fn is_of_clip(&self) -> bool {
        self.follows_time() || matches!(self, Self::Annotations { .. })
    }

    /// Whether it depends on what is heard when in a clip.
    pub fn follows_time(&self) -> bool {
        matches!(self, Self::Frames(_) | Self::Sequence(_) | Self::Words(_))
    }

    /// The columns of starts and ends, seconds, if it has any.
    pub(super) fn time_columns(&self) -> Option<&[String; 2]> {
        match self {
            Self::Tokens(rule) => rule.times.as_ref(),
            Self::Frames(FramesRule { events: EventSource::Columns(times), .. }) | Self::Words(times) => {
                Some(times)
            }
            _ => None,
        }
    }
}

impl TargetConfig {
    /// A column that is passed through.
    pub fn column(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            column: name.to_owned(),
            form: TargetForm::Column,
            classes: ClassSource::Any,
            ignores_unknown: false,
            null: None,
            dtype: DataType::Float64,
            description: Json::Null,
        }
    }

    pub fn columns(&self) -> impl Iterator<Item = &String> {
        let secondary = match &self.form {
            TargetForm::MultiHot { secondary: Some((column, _)), .. } => Some(column),
            _ => None,
        };
        let times = self.form.time_columns().into_iter().flatten();
        let is_path = self.form.annotations().is_some();
        Some(&self.column).filter(|_| !is_path).into_iter().chain(secondary).chain(times)
    }

    /// Checks that each of the data's speakers has a column, if they are those of the data.
    pub(super) fn check_speakers(&self, vocabulary: &ClassVocabulary) -> Result<()> {
        let TargetForm::Frames(FramesRule { columns, .. }) = &self.form else { return Ok(()) };
        let FrameColumns::Speakers { n, is_of_data: true, .. } = *columns else { return Ok(()) };
        let found = vocabulary.n.unwrap_or(0);
        if found <= n.into() {
            return Ok(());
        }
        let message = format!(
            "target {:?}: speakers is {n}, and the data have {found}; raise it, or give scope=\"file\"",
            self.name
        );
        Err(Error::new(ErrorKind::Config, message))
    }

    /// The classes of a column of `item`s, with the schema's names for each source.
    pub(super) fn vocabulary(
        &self,
        item: Item,
        schema: &[Option<Arc<Vec<String>>>],
        scan: Scan<'_>,
    ) -> Result<ClassVocabulary> {
        let Self { name, column, .. } = self;
        let refused = |message: String| Err(Error::new(ErrorKind::Config, message));
        let what = format!("target {name:?}: classes");
        match &self.classes {
            ClassSource::Names(names) => {
                let mut vocabulary = ClassVocabulary::of_names(names.clone(), &what)?;
                if schema.iter().all(Option::is_none) {
                    vocabulary.name_numbers();
                }
                vocabulary.maps = vocabulary.maps_of(schema);
                Ok(vocabulary)
            }
            ClassSource::Count(_) if item == Item::Text => refused(format!(
                "{what} is a number, but column {column:?} has names; give a list of names, a file, or \"data\""
            )),
            ClassSource::Count(n) => Ok(ClassVocabulary { n: Some(*n), ..ClassVocabulary::default() }),
            ClassSource::Data => {
                let separator = match &self.form {
                    TargetForm::MultiHot { separator, .. } => separator.as_deref(),
                    _ => None,
                };
                let mut keys = BTreeSet::new();
                for column in self.columns() {
                    keys.extend(scan(column, separator)?);
                }
                // Class numbers of several sources mean different things.
                if schema.iter().flatten().next().is_some() {
                    return refused(format!(
                        "{what} is \"data\", but column {column:?} has class names in its schema; give \"schema\""
                    ));
                }
                if keys.is_empty() || keys.len() > MOST_CLASSES {
                    return refused(format!(
                        "{what} is \"data\", and column {column:?} has {} values; expected 1 to {MOST_CLASSES}",
                        keys.len()
                    ));
                }
                let names = keys.iter().map(|key| match key {
                    Key::Number(number) => number.to_string(),
                    Key::Name(name) => name.to_string(),
                });
                let names = Arc::new(names.collect::<Vec<_>>());
                let n = Some(names.len() as u64);
                let by_key = keys.into_iter().zip(0..).collect();
                Ok(ClassVocabulary {
                    names: Some(names),
                    n,
                    by_key,
                    maps: Vec::new(),
                    are_numbers_names: true,
                })
            }
            ClassSource::Any | ClassSource::Schema => match ClassVocabulary::united(schema, &what)? {
                Some(vocabulary) => Ok(vocabulary),
                None if self.classes == ClassSource::Schema || item == Item::Text => refused(format!(
                    "{what} are not in the schema of column {column:?}; give classes=\"data\" for its sorted values, a list of \
                     names, a file{}",
                    if item == Item::Text { "" } else { ", or their number" }
                )),
                None => Ok(ClassVocabulary::default()),
            },
        }
    }
}
