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
mod tokens;

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use serde_json::{Value as Json, json};
use smallvec::SmallVec;

use crate::{
    Error, ErrorKind, Result,
    contract::NO_LABEL,
    fields::{DataType, Dim, Field, Row, Run, Sparse, Value},
    seed::mix,
    source::{
        ClassNames, ColumnType, ExtraColumn, Item, Nesting,
        columns::{MOST_ITEMS, MOST_TEXT_BYTES},
    },
    transform::augment::MixTargets,
};

use classes::{Maps, UNKNOWN};

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
    /// The label of a loader without targets: numbers as they are, or united by name.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if class names are not unique.
    pub fn label(value: usize, class_names: &ClassNames) -> Result<Self> {
        let are_same = class_names
            .label
            .iter()
            .flatten()
            .all(|names| Some(names) == class_names.label.iter().flatten().next());
        let mut vocabulary = ClassVocabulary::default();
        if are_same {
            vocabulary.names = class_names.label.iter().flatten().next().cloned();
        } else if let Some(united) = ClassVocabulary::united(&class_names.label, "the label column")? {
            vocabulary = united;
        }
        let config = TargetConfig {
            name: "label".to_owned(),
            column: "label".to_owned(),
            form: TargetForm::Class,
            classes: ClassSource::Any,
            ignores_unknown: false,
            null: Some(NO_LABEL as f64),
            dtype: DataType::Int64,
            description: Json::Null,
        };
        let field = Field::number("label", DataType::Int64);
        let (item, nesting) = (Item::Whole(DataType::Int64), Nesting::One);
        Ok(Self {
            config,
            field,
            item,
            nesting,
            value,
            secondary: None,
            times: None,
            vocabulary,
            is_told: Arc::default(),
        })
    }

    /// Plans a target.
    ///
    /// # Errors
    /// [`ErrorKind::Schema`] if the column's type does not fit; [`ErrorKind::Config`] if the classes are not
    /// known; those of `scan`.
    pub fn plan(config: TargetConfig, source_columns: &SourceColumns<'_>, scan: Scan<'_>) -> Result<Self> {
        if let Some(all) = config.form.annotations().cloned() {
            return Self::of_annotations(config, &all, source_columns);
        }
        let (number, value, column_type) = source_columns.find(&config.column)?;
        column_type.check_flat(&config.column)?;
        let ColumnType { item, nesting } = column_type;
        let TargetConfig { name, column, dtype, .. } = &config;
        let misfit = |expected: &str| {
            let message = format!("target {name:?}: column {column:?} is {column_type}, expected {expected}");
            Err(Error::new(ErrorKind::Schema, message))
        };
        let is_one = nesting == Nesting::One;
        let (mut vocabulary, mut secondary) = (ClassVocabulary::default(), None);
        let field = match &config.form {
            TargetForm::Class if !is_one || matches!(item, Item::Float(_)) => {
                return misfit("whole numbers or text; forebay.targets.MultiHot takes lists");
            }
            TargetForm::MultiHot { .. } if matches!(item, Item::Float(_)) => {
                return misfit("whole numbers, text, or lists of these; forebay.targets.Soft takes vectors");
            }
            TargetForm::MultiHot { separator: Some(_), .. } if !is_one || item != Item::Text => {
                return misfit("text, since a separator is given");
            }
            TargetForm::Class => {
                vocabulary = config.vocabulary(item, &source_columns.class_names.others[number], scan)?;
                Field::number(name, *dtype)
            }
            TargetForm::MultiHot { secondary: further, .. } => {
                vocabulary = config.vocabulary(item, &source_columns.class_names.others[number], scan)?;
                if let Some((further, _)) = further {
                    let (number, at, found) = source_columns.find(further)?;
                    found.check_flat(further)?;
                    if matches!(found.item, Item::Float(_)) {
                        let message = format!(
                            "target {name:?}: column {further:?} is {found}, expected whole numbers, text, or lists of these"
                        );
                        return Err(Error::new(ErrorKind::Schema, message));
                    }
                    if let (Item::Text, ClassSource::Count(_)) = (found.item, &config.classes) {
                        let message = format!(
                            "target {name:?}: classes is a number, but column {further:?} has names; give a list of names, a \
                             file, or \"data\""
                        );
                        return Err(Error::new(ErrorKind::Config, message));
                    }
                    let maps = match vocabulary.names {
                        Some(_) => vocabulary.maps_of(&source_columns.class_names.others[number]),
                        None => Maps::new(),
                    };
                    secondary = Some((at, maps));
                }
                let Some(n) = vocabulary.n else {
                    let message = format!(
                        "target {name:?}: the classes of column {column:?} are not in the schema; give classes, a list of names, a \
                         file, their number, or \"data\""
                    );
                    return Err(Error::new(ErrorKind::Config, message));
                };
                Field::stacked(name, *dtype, [n])
            }
            TargetForm::Soft { size } => {
                let size = match (nesting, size) {
                    (Nesting::Fixed(n), Some(size)) if n != *size => {
                        return misfit(&format!("lists of {size}, since size is {size}"));
                    }
                    (Nesting::Fixed(n), _) => n,
                    (Nesting::List | Nesting::Pairs, Some(size)) => *size,
                    (Nesting::List | Nesting::Pairs, None) => {
                        return misfit("lists of one length in the schema, or size=, their length");
                    }
                    (Nesting::One, _) => return misfit("lists of numbers"),
                };
                if item == Item::Text {
                    return misfit("lists of numbers");
                }
                Field::stacked(name, *dtype, [size])
            }
            TargetForm::Number if !is_one || item == Item::Text => {
                return misfit("numbers; forebay.targets.Soft takes lists");
            }
            TargetForm::Number => Field::number(name, *dtype),
            TargetForm::Text { .. } if !is_one || !matches!(item, Item::Text | Item::Null) => {
                return misfit("text");
            }
            TargetForm::Text { .. } => Field::text(name),
            TargetForm::Tokens(rule) => {
                let nestings = if rule.times.is_some() { "lists of text" } else { "text" };
                if is_one == rule.times.is_some() || !matches!(item, Item::Text | Item::Null) {
                    return misfit(nestings);
                }
                rule.field(name)
            }
            TargetForm::Frames(_) if is_one || matches!(item, Item::Float(_)) => {
                return misfit("lists of text or of whole numbers");
            }
            TargetForm::Frames(rule) => {
                let schema = &source_columns.class_names.others[number];
                vocabulary = match rule.columns {
                    FrameColumns::Classes => config.vocabulary(item, schema, scan)?,
                    FrameColumns::Speakers { is_of_data: false, .. } => ClassVocabulary::default(),
                    FrameColumns::Speakers { .. } => {
                        let is_named = schema.iter().flatten().next().is_some();
                        let classes = if is_named { ClassSource::Schema } else { ClassSource::Data };
                        TargetConfig { classes, ..config.clone() }.vocabulary(item, schema, scan)?
                    }
                };
                if rule.columns == FrameColumns::Classes && vocabulary.n.is_none() {
                    let message = format!(
                        "target {name:?}: the classes of column {column:?} are not in the schema; give classes, a list of names, a \
                         file, their number, or \"data\""
                    );
                    return Err(Error::new(ErrorKind::Config, message));
                }
                config.check_speakers(&vocabulary)?;
                rule.field(name, vocabulary.n)
            }
            TargetForm::Words(_) if is_one || !matches!(item, Item::Text | Item::Null) => {
                return misfit("lists of text");
            }
            TargetForm::Words(_) => Field { dims: vec![Dim::Ragged; 2], ..Field::text(name) },
            TargetForm::Sequence(_) if is_one || item == Item::Text => return misfit("lists of numbers"),
            TargetForm::Sequence(SequenceRule { pad, .. }) => {
                let dtype = if matches!(item, Item::Float(_)) { DataType::Float32 } else { DataType::Int64 };
                if dtype == DataType::Int64 && pad.fract() != 0.0 {
                    let message = format!(
                        "target {name:?}: pad is {pad:?}, and column {column:?} has whole numbers; give a whole number"
                    );
                    return Err(Error::new(ErrorKind::Config, message));
                }
                let fill = match dtype {
                    DataType::Float32 => (*pad as f32).to_ne_bytes().to_vec(),
                    _ => (*pad as i64).to_ne_bytes().to_vec(),
                };
                Field { fill: fill.into(), ..Field::new(name, dtype, vec![Dim::Fixed(0)]) }
            }
            TargetForm::Column | TargetForm::Annotations { .. } => column_field(name, column_type),
        };
        let times = config.form.time_columns();
        let times = times.map(|names| time_columns(&config.name, names, source_columns)).transpose()?;
        Ok(Self {
            config,
            field,
            item,
            nesting,
            value,
            secondary,
            times,
            vocabulary,
            is_told: Arc::default(),
        })
    }

    /// The rule that makes tokens, if it does.
    pub fn tokens(&self) -> Option<&TokensRule> {
        match &self.config.form {
            TargetForm::Tokens(rule) => Some(rule),
            _ => None,
        }
    }

    /// Plans a target of annotations; its column is the path of the recording.
    fn of_annotations(
        config: TargetConfig,
        all: &Annotations,
        source_columns: &SourceColumns<'_>,
    ) -> Result<Self> {
        let name = &config.name;
        let refused = |message: String| Err(Error::new(ErrorKind::Config, message));
        let what = format!("target {name:?}: classes");
        let of_clips = match &config.form {
            TargetForm::Frames(FramesRule { columns: FrameColumns::Speakers { is_of_data, .. }, .. }) => {
                Some(*is_of_data)
            }
            _ => None,
        };
        let Some(value) = source_columns.extra_columns.iter().position(|extra| *extra == ExtraColumn::Path)
        else {
            return refused(format!(
                "target {name:?} has annotations, and the rows of the source have no paths"
            ));
        };
        let names = match &config.classes {
            // Each clip has speakers of its own.
            _ if of_clips == Some(false) => Arc::new(vec![String::new()]),
            ClassSource::Names(names) => names.clone(),
            ClassSource::Any | ClassSource::Data if all.labels().is_empty() => {
                return refused(format!(
                    "target {name:?} has no annotations, of which classes could be known; give classes"
                ));
            }
            ClassSource::Any | ClassSource::Data => Arc::new(all.labels().to_vec()),
            ClassSource::Schema | ClassSource::Count(_) => {
                return refused(format!(
                    "{what} of annotations are names; give a list of names, a file, or \"data\""
                ));
            }
        };
        let vocabulary = match of_clips {
            Some(false) => ClassVocabulary::default(),
            _ => ClassVocabulary::of_names(names, &what)?,
        };
        let class = |label: &String| vocabulary.by_key.get(&Key::Name(label.as_str().into())).copied();
        let unknown = all.labels().iter().find(|label| class(label).is_none());
        if let Some(label) = unknown.filter(|_| !config.ignores_unknown && of_clips != Some(false)) {
            return refused(format!(
                "target {name:?}: an annotation has {label:?}, which is no class: {}; add it to classes, or give \
                 unknown=\"ignore\"",
                vocabulary.expected()
            ));
        }
        let classes = all.labels().iter().map(|label| class(label).map_or(UNKNOWN, i64::from)).collect();
        let vocabulary = ClassVocabulary { maps: vec![Some(classes)], ..vocabulary };
        config.check_speakers(&vocabulary)?;
        let field = match &config.form {
            TargetForm::Frames(rule) => rule.field(name, vocabulary.n),
            _ => Field::stacked(name, config.dtype, [vocabulary.n.unwrap_or(1)]),
        };
        Ok(Self {
            config,
            field,
            item: Item::Text,
            nesting: Nesting::One,
            value,
            secondary: None,
            times: None,
            vocabulary,
            is_told: Arc::default(),
        })
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
                (places / 2 + 1).saturating_mul(columns).saturating_mul(size_of::<Run>() as u64)
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
            identity[table] = format!("{:016x}", digest(&mut all.bytes())).into();
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

    /// The value for a `clip` of a record of source number `source`; what is drawn is drawn by `seed`.
    ///
    /// # Errors
    /// [`ErrorKind::Schema`] for a null, a class or a character that is not allowed, a list of another
    /// length, or a number that the type cannot hold; [`ErrorKind::TooLarge`] for a long text, or too many
    /// tokens; [`ErrorKind::Corrupt`] for a transcript that is none.
    pub fn value(&self, values: &Row, source: usize, clip: ClipSeconds, seed: Option<u64>) -> Result<Value> {
        let value = values.get(self.value).unwrap_or(&Value::Null);
        match &self.config.form {
            TargetForm::Class => self.class(value, source),
            TargetForm::MultiHot { secondary, smoothing, separator } => {
                let further = secondary.as_ref().zip(self.secondary.as_ref());
                let further = further.and_then(|((column, weight), (at, maps))| {
                    Some(ClassCell { column, value: values.get(*at)?, weight: *weight, maps })
                });
                let first = ClassCell {
                    column: &self.config.column,
                    value,
                    weight: 1.0,
                    maps: &self.vocabulary.maps,
                };
                self.multi_hot(first, further, *smoothing, separator.as_deref(), source)
            }
            TargetForm::Soft { .. } => self.soft(value),
            TargetForm::Number => match (value, self.config.null) {
                (Value::Null, Some(null)) => self.number(&Value::Float(null)),
                (Value::Null, None) => Err(self.wrong("is null", "give null=, a number")),
                _ => self.number(value),
            },
            TargetForm::Text { max_bytes } => match value {
                Value::Text(text) if text.len() as u64 > *max_bytes => {
                    let message = format!(
                        "column {:?} has a text of {} bytes, max_bytes allows {max_bytes}",
                        self.config.column,
                        text.len()
                    );
                    Err(Error::new(ErrorKind::TooLarge, message))
                }
                Value::Text(_) => Ok(value.clone()),
                _ if self.config.null.is_some() => Ok(Value::Text("".into())),
                _ => Err(self.wrong("is null", "give null=\"empty\"")),
            },
            TargetForm::Tokens(rule) => {
                if matches!(value, Value::Null) && self.config.null.is_none() {
                    return Err(self.wrong("is null", "give null=\"empty\""));
                }
                let times = self.times.map(|times| times.map(|at| values.get(at).unwrap_or(&Value::Null)));
                let ids = rule.ids(value, times, clip, seed).map_err(|error| {
                    let TargetConfig { name, column, .. } = &self.config;
                    let error = match rule.is_unknown_character(&error) {
                        true => tokens::unknown_character(column, &error),
                        false => Error { message: format!("column {column:?}: {}", error.message), ..error },
                    };
                    Error { message: format!("target {name:?}: {}", error.message), ..error }
                })?;
                Ok(Value::Ids(ids.into()))
            }
            TargetForm::Column => self.column(value),
            TargetForm::Annotations { all, least, is_share } => {
                let Value::Text(path) = value else {
                    return Err(self.wrong("is null", "annotations are found by the path of the row"));
                };
                Ok(self.annotated(all.as_ref(), path, clip, *least, *is_share))
            }
            TargetForm::Frames(_) | TargetForm::Sequence(_) | TargetForm::Words(_) => {
                Err(self.wrong("is that of a clip", "its time is not known"))
            }
        }
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

    /// The classes of the annotations in a clip.
    fn annotated(
        &self,
        all: &Annotations,
        path: &str,
        clip: ClipSeconds,
        least: OverlapRule,
        is_share: bool,
    ) -> Value {
        let Some(Some(classes)) = self.vocabulary.maps.first() else { return Value::Null };
        let mut hot: Vec<(u32, f32)> = Vec::new();
        all.overlapping(path, clip, least, |label, overlap| {
            let class = classes[label as usize];
            if class != UNKNOWN {
                let value = if is_share { overlap / (clip.end - clip.start) } else { 1.0 };
                // bounded: at most once for each annotation.
                hot.push((class as u32, value as f32));
            }
        });
        largest_of_each(&mut hot);
        Value::Sparse(Arc::new(Sparse { others: 0.0, values: hot.into() }))
    }

    fn wrong(&self, found: &str, remedy: &str) -> Error {
        let TargetConfig { name, column, .. } = &self.config;
        Error::new(ErrorKind::Schema, format!("target {name:?}: column {column:?} {found}; {remedy}"))
    }

    fn unknown(&self, key: &Key, column: &str) -> Error {
        let found = match key {
            Key::Number(number) => format!("has {number}, which is no class: {}", self.vocabulary.expected()),
            Key::Name(name) => format!("has {name:?}, which is no class: {}", self.vocabulary.expected()),
        };
        let remedy = match self.vocabulary.separator(key) {
            Some(separator) => {
                format!("it joins several classes: use MultiHot({column:?}, ..., separator=\"{separator}\")")
            }
            None => "add it to classes, or give unknown=\"ignore\"".to_owned(),
        };
        let message = format!("target {:?}: column {column:?} {found}; {remedy}", self.config.name);
        Error::new(ErrorKind::Schema, message)
    }

    /// Leaves out an unknown name. The first one that joins several classes is logged.
    fn ignore(&self, key: &Key, column: &str) {
        if let (Some(separator), Key::Name(name)) = (self.vocabulary.separator(key), key)
            && !self.is_told.swap(true, Relaxed)
        {
            log::warn!(
                "target {:?}: column {column:?} has {name:?}, which is left out as unknown, but joins several classes; use \
                 MultiHot({column:?}, ..., separator=\"{separator}\")",
                self.config.name
            );
        }
    }

    fn class(&self, value: &Value, source: usize) -> Result<Value> {
        let key = match value {
            Value::Int(number) => Key::Number(*number),
            Value::Text(name) => Key::Name(name.clone()),
            _ => {
                let null = self.config.null.map(|null| Value::Int(null as i64));
                return null.ok_or_else(|| self.wrong("is null", "give null=-1"));
            }
        };
        match self.vocabulary.class(&key, &self.vocabulary.maps, source) {
            Some(class) => Ok(Value::Int(class)),
            None if self.config.ignores_unknown => {
                self.ignore(&key, &self.config.column);
                Ok(Value::Int(NO_LABEL))
            }
            // A null that was written as -1.
            None if key == Key::Number(NO_LABEL) && self.config.null.is_some() => Ok(Value::Int(NO_LABEL)),
            None => Err(self.unknown(&key, &self.config.column)),
        }
    }

    fn multi_hot(
        &self,
        first: ClassCell<'_>,
        further: Option<ClassCell<'_>>,
        smoothing: f32,
        separator: Option<&str>,
        source: usize,
    ) -> Result<Value> {
        if matches!(first.value, Value::Null) && self.config.null.is_none() {
            return Err(self.wrong("is null", "give null=\"zeros\""));
        }
        let n = self.vocabulary.n.unwrap_or(1) as f32;
        let others = smoothing / n;
        let mut hot: Vec<(u32, f32)> = Vec::new();
        let mut unknown = None;
        for ClassCell { column, value, weight, maps } in [first].into_iter().chain(further) {
            Key::of(value, separator, &mut |key| match self.vocabulary.class(&key, maps, source) {
                // bounded: a row has at most 2^20 bytes of names, or 2^16 items.
                Some(class) => hot.push((class as u32, weight * (1.0 - smoothing) + others)),
                None if self.config.ignores_unknown => self.ignore(&key, column),
                // A null that was written as -1.
                None if key == Key::Number(NO_LABEL) && self.config.null.is_some() => {}
                None => unknown = Some((key, column)),
            });
        }
        if let Some((key, column)) = unknown {
            return Err(self.unknown(&key, column));
        }
        largest_of_each(&mut hot);
        Ok(Value::Sparse(Arc::new(Sparse { others, values: hot.into() })))
    }

    fn soft(&self, value: &Value) -> Result<Value> {
        let n = self.field.shape().and_then(|shape| shape.first().copied()).unwrap_or(0);
        let items = match (value, self.config.null) {
            (Value::List(items), _) => items,
            (_, Some(_)) => return Ok(Value::Sparse(Arc::new(Sparse::default()))),
            (_, None) => return Err(self.wrong("is null", "give null=\"zeros\"")),
        };
        if items.len() as u64 != n {
            let found = format!("has a list of {}", items.len());
            return Err(self.wrong(&found, &format!("all lists must have {n} numbers")));
        }
        if items.iter().any(|item| matches!(item, Value::Null)) {
            return Err(self.wrong("has a list with a null", "all items must be numbers"));
        }
        items.iter().try_for_each(|item| self.number(item).map(|_| ()))?;
        Ok(value.clone())
    }

    /// The number in the field's type, if that can hold it.
    fn number(&self, value: &Value) -> Result<Value> {
        let dtype = self.config.dtype;
        let fits = match (value, dtype.is_real()) {
            (&Value::Int(number), false) => dtype.holds(number),
            (&Value::Int(number), true) => dtype.holds_real(number as f64),
            (&Value::Float(number), _) => dtype.holds_real(number),
            _ => true,
        };
        match (value, dtype.is_real()) {
            _ if !fits => {
                let shown = match value {
                    Value::Int(number) => number.to_string(),
                    Value::Float(number) => format!("{number:?}"),
                    _ => String::new(),
                };
                let found = format!("has {shown}, which is no {}", dtype.name());
                Err(self.wrong(&found, "give another dtype="))
            }
            (&Value::Float(number), false) => Ok(Value::Int(number as i64)),
            (&Value::Int(number), true) => Ok(Value::Float(number as f64)),
            _ => Ok(value.clone()),
        }
    }

    /// The value of a column that is passed through.
    fn column(&self, value: &Value) -> Result<Value> {
        match (self.nesting, value) {
            (Nesting::One, value) => self.item(value),
            (Nesting::Fixed(n), Value::List(items)) if items.len() as u64 != n => {
                let message = format!(
                    "column {:?} has a list of {}, and its schema says {n}",
                    self.config.column,
                    items.len()
                );
                Err(Error::new(ErrorKind::Corrupt, message))
            }
            (_, Value::List(items)) => {
                if !items.iter().any(|item| matches!(item, Value::Null)) {
                    return Ok(value.clone());
                }
                items.iter().map(|item| self.item(item)).collect::<Result<Arc<[Value]>>>().map(Value::List)
            }
            (Nesting::Fixed(n), _) => {
                (0..n).map(|_| self.item(&Value::Null)).collect::<Result<Arc<[Value]>>>().map(Value::List)
            }
            (Nesting::List | Nesting::Pairs, _) => Ok(Value::List(Arc::new([]))),
        }
    }

    fn item(&self, value: &Value) -> Result<Value> {
        match (value, self.item) {
            (Value::Null, Item::Float(_) | Item::Null) => Ok(Value::Float(f64::NAN)),
            (Value::Null, Item::Text) => Ok(Value::Text("".into())),
            (Value::Null, Item::Whole(dtype)) if dtype.holds(NO_LABEL) => Ok(Value::Int(NO_LABEL)),
            (Value::Null, Item::Whole(dtype)) => Err(self.wrong(
                &format!("is null, and its type {} has no number for that", dtype.name()),
                "read it with forebay.targets.Number(column, null=...)",
            )),
            _ => Ok(value.clone()),
        }
    }
}

/// The indices of the columns of starts and ends.
fn time_columns(target: &str, names: &[String; 2], source_columns: &SourceColumns<'_>) -> Result<[usize; 2]> {
    let mut found = [0; 2];
    for (place, name) in found.iter_mut().zip(names) {
        let (_, at, column) = source_columns.find(name)?;
        if column.nesting == Nesting::One || column.nesting == Nesting::Pairs || column.item == Item::Text {
            let message =
                format!("target {target:?}: column {name:?} is {column}, expected lists of seconds");
            return Err(Error::new(ErrorKind::Schema, message));
        }
        *place = at;
    }
    Ok(found)
}

/// Leaves each class the largest of its values, in the order of classes.
fn largest_of_each(hot: &mut Vec<(u32, f32)>) {
    hot.sort_unstable_by(|(class, value), (other, of_other)| {
        class.cmp(other).then(of_other.total_cmp(value))
    });
    hot.dedup_by_key(|(class, _)| *class);
}

/// A column of classes in a row.
struct ClassCell<'a> {
    column: &'a str,
    value: &'a Value,
    weight: f32,
    maps: &'a Maps,
}

/// The field of a column that is passed through.
fn column_field(name: &str, ColumnType { item, nesting }: ColumnType) -> Field {
    let dtype = match item {
        Item::Whole(dtype) | Item::Float(dtype) => dtype,
        Item::Null => DataType::Float64,
        Item::Text => {
            let text = Field::text(name);
            return if nesting == Nesting::One { text } else { Field { dims: vec![Dim::Ragged; 2], ..text } };
        }
    };
    match nesting {
        Nesting::One => Field::number(name, dtype),
        Nesting::List | Nesting::Pairs => Field::jagged(name, dtype, 1),
        Nesting::Fixed(n) => Field::stacked(name, dtype, [n]),
    }
}
