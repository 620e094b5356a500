//! Targets: how columns of a record become fields of a batch.
//!
//! A source reads the values of columns as they are; a [`Target`] makes of them what a loss function takes:
//! the number of a class, a vector with a value for each class, numbers, text. Classes are numbered by a
//! [`ClassVocabulary`]: a list, the class names in the schema, or the values in the data. Everything is
//! planned when a loader is made: name, type and shape of each field, and the numbers of classes that named
//! sources share. Workers then convert one value at a time. Source: own.

mod annotations;
mod classes;
mod config;
mod frames;
mod in_time;
mod plan;
mod tokens;
mod values;

use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::AtomicBool},
};

use serde_json::{Value as Json, json};
use smallvec::SmallVec;

use crate::{
    Error, ErrorKind, Result,
    dsp::augment::MixTargets,
    fields::{Dim, Field, Sparse, Value, ValueRun},
    seed::mix,
    source::{
        ClassNames, ColumnType, ExtraColumn, Item, Nesting,
        columns::{MOST_ITEMS, MOST_TEXT_BYTES},
    },
};

use classes::Maps;

pub use annotations::{Annotation, Annotations, ClipSeconds, OverlapRule};
pub use classes::{ClassSource, ClassVocabulary, Key, MOST_CLASSES, joined_names};
pub use config::{TargetConfig, TargetForm};
pub use frames::{
    ClipPiece, ClipTimes, EventSource, FrameColumns, FramesRule, FramesScratch, RolledFrames, SequenceRule,
    TimeAxis, TimeGrid, WordPart, push_repeated, roll_pieces,
};
pub use tokens::{TextEncoder, TokensRule, token_counts};

/// One field that is made of columns.
#[derive(Debug, Clone)]
pub struct Target {
    config: TargetConfig,
    field: Field,
    item: Item,
    nesting: Nesting,
    /// The index of the column among a record's values.
    value: usize,
    /// The index of the column of further classes, and the classes by its numbers.
    secondary: Option<(usize, Maps)>,
    /// The indices of the columns of the starts and ends of segments.
    times: Option<[usize; 2]>,
    vocabulary: ClassVocabulary,
    /// Whether it was logged that a name joins several classes, or that a clip has too many speakers.
    is_told: Arc<AtomicBool>,
}

/// What a plan is made of.
#[derive(Debug)]
pub struct SourceColumns<'a> {
    pub extra_columns: &'a [ExtraColumn],
    /// The names of the other columns, and their types.
    pub columns: (&'a [String], &'a [ColumnType]),
    /// The class names in the schemas.
    pub class_names: &'a ClassNames,
}

impl SourceColumns<'_> {
    /// The number of a column, its index among a record's values, and its type.
    pub(crate) fn find(&self, column: &str) -> Result<(usize, usize, ColumnType)> {
        let (names, types) = self.columns;
        let found = names.iter().position(|name| name == column).and_then(|number| {
            let value = self.extra_columns.iter().position(|extra| *extra == ExtraColumn::Other(number))?;
            Some((number, value, *types.get(number)?))
        });
        found.ok_or_else(|| Error::new(ErrorKind::Schema, format!("column {column:?} is not read")))
    }
}

/// Finds the values of a column in the data, given its name and the separator of names.
pub type Scan<'a> = &'a mut dyn FnMut(&str, Option<&str>) -> Result<BTreeSet<Key>>;

/// The value made of those of a clip and of a partner with this weight.
pub fn mixed(clip: Value, partner: &Value, how: MixTargets, weight: f64) -> Value {
    let real = |value: &Value| match value {
        Value::Int(number) => *number as f64,
        Value::Float(number) => *number,
        _ => 0.0,
    };
    let at = |value: &Value, place: u32| match value {
        Value::Sparse(row) => {
            let found = row.values.iter().find(|(known, _)| *known == place);
            f64::from(found.map_or(row.others, |(_, value)| *value))
        }
        Value::List(items) => items.get(place as usize).map_or(0.0, real),
        _ => 0.0,
    };
    let of = |place: u32| how.of(at(&clip, place), at(partner, place), weight);
    match (&clip, partner) {
        (Value::Sparse(one), Value::Sparse(other)) => {
            let places = one.values.iter().chain(&other.values).map(|(place, _)| *place);
            let mut places: SmallVec<[u32; 8]> = places.collect();
            places.sort_unstable();
            places.dedup();
            let others = how.of(one.others.into(), other.others.into(), weight) as f32;
            let values = places.iter().map(|&place| (place, of(place) as f32)).collect();
            Value::Sparse(Arc::new(Sparse { others, values }))
        }
        (Value::List(items), _) | (_, Value::List(items)) => {
            Value::List((0..items.len() as u32).map(|place| Value::Float(of(place))).collect())
        }
        (Value::Float(_), Value::Float(_)) => Value::Float(how.of(real(&clip), real(partner), weight)),
        _ => clip,
    }
}

impl Target {
    /// The rule that makes tokens, if it does.
    pub fn tokens(&self) -> Option<&TokensRule> {
        match &self.config.form {
            TargetForm::Tokens(rule) => Some(rule),
            _ => None,
        }
    }

    /// The annotations, if the target has any.
    pub fn annotations(&self) -> Option<&Annotations> {
        self.config.form.annotations().map(|all| &**all)
    }

    /// The name of its class in `forebay.targets`.
    pub fn kind(&self) -> &'static str {
        self.config.form.name()
    }

    pub fn field(&self) -> &Field {
        &self.field
    }

    /// Whether it is made of the text of a whole row.
    pub fn is_text(&self) -> bool {
        match &self.config.form {
            TargetForm::Text { .. } => true,
            TargetForm::Tokens(rule) => rule.times.is_none(),
            _ => false,
        }
    }

    /// The column that it is made of.
    pub fn column_name(&self) -> &str {
        &self.config.column
    }

    pub fn class_names(&self) -> Option<&Arc<Vec<String>>> {
        self.vocabulary.names.as_ref()
    }

    /// The most bytes of a row in a batch, if the field is not stacked.
    pub fn most_batch_bytes(&self) -> u64 {
        match (&self.config.form, self.nesting) {
            _ if self.field.shape().is_some() || self.field.padded_axis().is_some() => 0,
            (TargetForm::Text { max_bytes }, _) => *max_bytes,
            (TargetForm::Words(_), _) => MOST_TEXT_BYTES + 2 * MOST_ITEMS * size_of::<f64>() as u64,
            (_, Nesting::One) => MOST_TEXT_BYTES,
            (_, _) if self.item == Item::Text => MOST_TEXT_BYTES,
            _ => MOST_ITEMS * size_of::<i64>() as u64,
        }
    }

    /// The most bytes of the value of an example, beyond those of a number; `places` are those of its axis
    /// along the time of a clip.
    pub fn most_example_bytes(&self, places: u64) -> u64 {
        let items = |n: u64| n.saturating_mul(size_of::<Value>() as u64);
        match (&self.config.form, self.nesting) {
            (TargetForm::Text { max_bytes }, _) => *max_bytes,
            (TargetForm::Tokens(rule), _) => rule.most_tokens().saturating_mul(size_of::<u32>() as u64),
            (TargetForm::MultiHot { .. } | TargetForm::Annotations { .. }, _) => {
                self.vocabulary.n.unwrap_or(0).saturating_mul(size_of::<(u32, f32)>() as u64)
            }
            // A run has at least a frame, and another one follows it.
            (TargetForm::Frames(_), _) => {
                let columns =
                    self.field.dims.last().map_or(0, |dim| if let Dim::Fixed(n) = dim { *n } else { 0 });
                (places / 2 + 1).saturating_mul(columns).saturating_mul(size_of::<ValueRun>() as u64)
            }
            (TargetForm::Sequence(_), _) => items(places),
            // Texts, and two lists of times.
            (TargetForm::Words(_), _) => MOST_TEXT_BYTES.saturating_add(items(3 * MOST_ITEMS)),
            (TargetForm::Column | TargetForm::Soft { .. }, Nesting::Fixed(n)) => items(n),
            (TargetForm::Column | TargetForm::Soft { .. }, Nesting::List | Nesting::Pairs) => {
                items(MOST_ITEMS)
            }
            (TargetForm::Column, _) if self.item == Item::Text => MOST_TEXT_BYTES,
            _ => 0,
        }
    }

    /// The part of a state: the target, and its classes.
    pub fn identity(&self) -> Json {
        let mut identity = self.config.description.clone();
        let digest = |bytes: &mut dyn Iterator<Item = u8>| {
            bytes.fold(0, |state, byte| mix(state ^ mix(u64::from(byte))))
        };
        if let Some(all) = self.annotations() {
            let table = if self.kind() == "Frames" { "annotations" } else { "table" };
            identity[table] = all.digest().into();
        }
        if let Some(rule) = self.tokens() {
            let name =
                if matches!(&*rule.encoder, TextEncoder::Characters(_)) { "vocabulary" } else { "tokenizer" };
            identity[name] = format!("{:016x}", rule.fingerprint).into();
        }
        let names = self.vocabulary.names.iter().flat_map(|names| names.iter());
        let digest = digest(&mut names.flat_map(|name| name.bytes().chain([0xff])));
        if self.vocabulary.n.is_some() {
            identity["classes"] = json!({"n": self.vocabulary.n, "digest": format!("{digest:016x}")});
        }
        identity
    }
    /// Whether it takes part in mixing; a column that is passed on does not.
    pub fn is_mixed(&self) -> bool {
        !matches!(self.config.form, TargetForm::Column)
    }

    /// The problem with mixing its value with that of another row.
    pub fn mix_problem(&self, how: MixTargets) -> Option<String> {
        (self.is_mixed() && how != MixTargets::Keep && !self.can_mix(how)).then(|| {
            format!(
                "augment has a Mix that mixes targets, and target {:?} is a {}, which cannot be mixed so; give a MultiHot or \
                 Soft target, or targets=\"keep\"",
                self.config.name,
                self.config.form.name()
            )
        })
    }

    /// The problem with mixing pairs of examples.
    pub fn pair_problem(&self, step: &str) -> Option<String> {
        (self.is_mixed() && !self.is_class() && !self.can_mix(MixTargets::Mix)).then(|| {
            format!(
                "augment has {step}, which mixes targets, and target {:?} is a {} of {}, which cannot be mixed; pass the column \
                 by columns=, or give a target of float32",
                self.config.name,
                self.config.form.name(),
                if self.field.is_text { "text" } else { self.config.dtype.name() },
            )
        })
    }

    /// Whether the value is the number of a class.
    pub fn is_class(&self) -> bool {
        matches!(self.config.form, TargetForm::Class)
    }

    /// Whether the value can be mixed with that of another row.
    pub fn can_mix(&self, how: MixTargets) -> bool {
        match &self.config.form {
            TargetForm::MultiHot { .. } | TargetForm::Soft { .. } | TargetForm::Annotations { .. } => {
                self.config.dtype.is_real()
            }
            TargetForm::Number => how == MixTargets::Mix && self.config.dtype.is_real(),
            TargetForm::Frames(_) => matches!(how, MixTargets::Union | MixTargets::Sum),
            TargetForm::Class
            | TargetForm::Text { .. }
            | TargetForm::Tokens(_)
            | TargetForm::Column
            | TargetForm::Sequence(_)
            | TargetForm::Words(_) => false,
        }
    }
}
