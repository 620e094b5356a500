//! Chooses the columns of a shard to read, and checks their types.
//!
//! The audio column is the one that the user names, else `audio`, else the only Audio feature in the schema's
//! Hugging Face metadata. The label column likewise: by name, `label`, `labels`, the only ClassLabel. A text
//! column is always named. The result is a list of arrays to find in every batch, each by its path through
//! the schema.
//!
//! Source: Arrow columnar format, "Physical memory layout"; the choice is our own. The `huggingface` metadata
//! is read as `datasets` 1 to 4 write it.

use std::{
    collections::HashMap,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use arrow_schema::{DataType, Field, Schema};
use serde_json::Value;

use crate::{Error, ErrorKind, Result, fields};

/// The kind of a source's records, and their column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload {
    /// Recordings: the column's name; None for `audio` or the only Audio feature.
    Audio(Option<String>),
    /// Documents in UTF-8: the column's name.
    Text(String),
}

/// The memory layout of an array's values, for the supported types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Layout {
    /// No buffers, all null.
    Null,
    /// One bit a value.
    Bool,
    /// Integers of so many bytes.
    Int { width: usize, signed: bool },
    /// Binary or text, located by offsets of 4 or 8 bytes.
    Offsets { width: usize },
    /// Binary or text, located by views.
    Views,
    /// Indices into the dictionary with this id.
    Dictionary { id: i64, width: usize, signed: bool, values: Box<Layout>, value_type: DataType },
    /// A struct, of which only the validity is read.
    Struct,
}

/// A value that is read for each row in addition to its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beside {
    /// The class, [`NO_LABEL`](crate::record::NO_LABEL) if it is null.
    Label,
    /// The recording's own path, empty if it is null, not UTF-8, or longer than [`MOST_PATH_BYTES`].
    Path,
}

/// The longest path that is delivered, bytes. Linux opens no longer ones, and the shuffle buffer holds one
/// for each example.
pub(crate) const MOST_PATH_BYTES: usize = 4096;

impl Beside {
    /// The values that a source reads: labels if it has any, paths on request.
    pub fn of(has_labels: bool, paths: bool) -> Vec<Self> {
        [(Self::Label, has_labels), (Self::Path, paths)]
            .into_iter()
            .filter_map(|(value, is_read)| is_read.then_some(value))
            .collect()
    }

    /// The value of a path; empty if the path cannot be read, which is no error of the record.
    ///
    /// # Errors
    /// Those that end the run.
    pub fn path(path: Result<Option<String>>) -> Result<fields::Value> {
        let path = match path {
            Err(error) if !error.kind.is_record() => return Err(error),
            path => path.ok().flatten().filter(|path| path.len() <= MOST_PATH_BYTES),
        };
        Ok(fields::Value::Text(path.unwrap_or_default().into()))
    }

    /// The batch field of the value.
    pub fn field(self) -> fields::Field {
        match self {
            Self::Label => fields::Field::number("label", fields::DataType::Int64),
            Self::Path => fields::Field::text("path"),
        }
    }
}

/// One array to find in every batch.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    /// The index of the column, then of the field within it.
    pub path: Vec<usize>,
    pub layout: Layout,
}

/// The arrays to read from a shard. The other fields are indices into `arrays`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Columns {
    pub arrays: Vec<Wanted>,
    pub audio_struct: Option<usize>,
    pub bytes: Option<usize>,
    pub path: Option<usize>,
    pub label: Option<usize>,
    pub class_names: Option<Arc<Vec<String>>>,
}

/// The error about a parameter that names a missing column.
fn no_column(parameter: &str, name: &str, schema: &Schema) -> Error {
    let message = format!("{parameter} is {name:?}, but there is no such column; {}", listed(schema));
    Error::new(ErrorKind::Schema, message)
}

impl Columns {
    /// Chooses the columns of `schema`; `label` is the name of the label column, empty for none.
    ///
    /// # Errors
    /// [`ErrorKind::Schema`] if the payload's column is missing, ambiguous, or of a type that holds no
    /// records; for labels, if the named column is missing, or the column found is of another type.
    pub(crate) fn choose(
        schema: &Schema,
        payload: &Payload,
        label: Option<&str>,
        cache: &FeatureCache,
    ) -> Result<Self> {
        let features = cache.of(schema);
        let mut columns = Self::default();
        match payload {
            Payload::Audio(column) => columns.choose_audio(schema, &features, column.as_deref())?,
            Payload::Text(column) => columns.choose_text(schema, column)?,
        }
        columns.choose_label(schema, &features, label)?;
        Ok(columns)
    }

    fn choose_text(&mut self, schema: &Schema, column: &str) -> Result<()> {
        let at = schema.index_of(column).map_err(|_| {
            let message = format!(
                "there is no column {column:?}; {}; name the column with text_column=",
                listed(schema)
            );
            Error::new(ErrorKind::Schema, message)
        })?;
        let field = schema.field(at);
        match layout_of(field).filter(|_| holds_bytes(field.data_type())) {
            Some(layout) => self.bytes = Some(self.want(vec![at], layout)),
            None => {
                let message = format!(
                    "column {column:?} is {} and holds no documents; expected a string column, or a binary column of UTF-8; {}",
                    field.data_type(),
                    listed(schema),
                );
                return Err(Error::new(ErrorKind::Schema, message));
            }
        }
        Ok(())
    }

    fn choose_audio(&mut self, schema: &Schema, features: &Features, column: Option<&str>) -> Result<()> {
        let at = match column {
            Some(name) => schema.index_of(name).map_err(|_| no_column("audio_column", name, schema))?,
            None => match schema.index_of("audio") {
                Ok(at) => at,
                Err(_) => only(&features.of_type("Audio", schema)).map_err(|found| {
                    let message = match found {
                        0 => format!("there is no column \"audio\" and no Audio feature; {}", listed(schema)),
                        n => format!(
                            "there are {n} Audio features and none is named \"audio\"; {}",
                            listed(schema)
                        ),
                    };
                    Error::new(ErrorKind::Schema, format!("{message}; name the column with audio_column="))
                })?,
            },
        };
        let field = schema.field(at);
        match field.data_type() {
            DataType::Struct(fields) => {
                self.audio_struct = Some(self.want(vec![at], Layout::Struct));
                for (i, child) in fields.iter().enumerate() {
                    let layout = layout_of(child);
                    match (child.name().as_str(), layout) {
                        ("bytes", Some(layout))
                            if holds_bytes(child.data_type()) || layout == Layout::Null =>
                        {
                            self.bytes = Some(self.want(vec![at, i], layout));
                        }
                        ("path", Some(layout))
                            if holds_bytes(child.data_type()) || layout == Layout::Null =>
                        {
                            self.path = Some(self.want(vec![at, i], layout));
                        }
                        _ => {}
                    }
                }
            }
            data_type if holds_bytes(data_type) => {
                if let Some(layout) = layout_of(field) {
                    let array = Some(self.want(vec![at], layout));
                    if is_text(data_type) {
                        self.path = array;
                    } else {
                        self.bytes = array;
                    }
                }
            }
            _ => {}
        }
        if self.bytes.is_some() || self.path.is_some() {
            return Ok(());
        }
        let message = format!(
            "column {:?} is {} and holds no recordings; expected a struct with the fields bytes (binary) and path (string), a \
             binary column or a string column of paths; {}",
            field.name(),
            field.data_type(),
            listed(schema),
        );
        Err(Error::new(ErrorKind::Schema, message))
    }

    fn choose_label(&mut self, schema: &Schema, features: &Features, label: Option<&str>) -> Result<()> {
        let at = match label {
            Some("") => return Ok(()),
            Some(name) => schema.index_of(name).map_err(|_| no_column("label_column", name, schema))?,
            None => {
                let usual = ["label", "labels"].iter().find_map(|name| schema.index_of(name).ok());
                match usual.or_else(|| only(&features.of_type("ClassLabel", schema)).ok()) {
                    Some(at) => at,
                    None => return Ok(()),
                }
            }
        };
        let field = schema.field(at);
        let layout = layout_of(field).filter(|layout| match layout {
            Layout::Null | Layout::Bool | Layout::Int { .. } => true,
            Layout::Dictionary { values, .. } => matches!(**values, Layout::Int { .. }),
            _ => false,
        });
        let Some(layout) = layout else {
            let message = format!(
                "the label column {:?} is {}; expected integers, booleans or ClassLabel; name another column with \
                 label_column=, or none with label_column=\"\"; {}",
                field.name(),
                field.data_type(),
                listed(schema),
            );
            return Err(Error::new(ErrorKind::Schema, message));
        };
        self.label = Some(self.want(vec![at], layout));
        self.class_names = features.class_names.get(field.name()).cloned();
        Ok(())
    }

    fn want(&mut self, path: Vec<usize>, layout: Layout) -> usize {
        self.arrays.push(Wanted { path, layout });
        self.arrays.len() - 1
    }
}

fn is_text(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, values) => is_text(values),
        other => matches!(other, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View),
    }
}

fn holds_bytes(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, values) => holds_bytes(values),
        other => {
            is_text(other) || matches!(other, DataType::Binary | DataType::LargeBinary | DataType::BinaryView)
        }
    }
}

/// The layout of a field; None for nested and other unsupported types.
fn layout_of(field: &Field) -> Option<Layout> {
    match field.data_type() {
        DataType::Dictionary(index, values) => {
            let Layout::Int { width, signed } = plain_layout(index)? else { return None };
            #[expect(
                deprecated,
                reason = "the id is what the dictionary messages carry; nothing replaces it"
            )]
            let id = field.dict_id()?;
            let value_type = (**values).clone();
            Some(Layout::Dictionary {
                id,
                width,
                signed,
                values: Box::new(plain_layout(values)?),
                value_type,
            })
        }
        other => plain_layout(other),
    }
}

fn plain_layout(data_type: &DataType) -> Option<Layout> {
    let int = |width, signed| Some(Layout::Int { width, signed });
    match data_type {
        DataType::Null => Some(Layout::Null),
        DataType::Boolean => Some(Layout::Bool),
        DataType::Int8 => int(1, true),
        DataType::Int16 => int(2, true),
        DataType::Int32 => int(4, true),
        DataType::Int64 => int(8, true),
        DataType::UInt8 => int(1, false),
        DataType::UInt16 => int(2, false),
        DataType::UInt32 => int(4, false),
        DataType::UInt64 => int(8, false),
        DataType::Binary | DataType::Utf8 => Some(Layout::Offsets { width: 4 }),
        DataType::LargeBinary | DataType::LargeUtf8 => Some(Layout::Offsets { width: 8 }),
        DataType::BinaryView | DataType::Utf8View => Some(Layout::Views),
        _ => None,
    }
}

/// The only element, or the number of elements.
fn only(found: &[usize]) -> Result<usize, usize> {
    match found {
        [one] => Ok(*one),
        _ => Err(found.len()),
    }
}

/// Lists the columns with their types, for a message.
fn listed(schema: &Schema) -> String {
    const SHOWN: usize = 30;
    let fields = schema.fields();
    let mut columns: Vec<_> = fields
        .iter()
        .take(SHOWN)
        .map(|field| {
            let mut data_type = field.data_type().to_string();
            if let Some((at, _)) = data_type.char_indices().nth(200) {
                data_type.truncate(at);
                data_type.push('…');
            }
            format!("{} ({data_type})", field.name())
        })
        .collect();
    if fields.len() > SHOWN {
        columns.push(format!("{} more", fields.len() - SHOWN));
    }
    if columns.is_empty() {
        "the schema has no columns".into()
    } else {
        format!("the columns are {}", columns.join(", "))
    }
}

/// The features that `datasets` stores as JSON in the schema's metadata; empty without such metadata.
#[derive(Debug, Default)]
struct Features {
    /// The `_type` of each column's feature.
    types: HashMap<String, String>,
    class_names: HashMap<String, Arc<Vec<String>>>,
}

impl Features {
    fn parse(json: &str) -> Self {
        let mut features = Self::default();
        let parsed = serde_json::from_str::<Value>(json).ok();
        let Some(columns) = parsed.as_ref().and_then(|value| value.pointer("/info/features")?.as_object())
        else {
            return features;
        };
        for (column, feature) in columns {
            if let Some(name) = feature.get("_type").and_then(Value::as_str) {
                features.types.insert(column.clone(), name.into());
            }
            let names = feature.get("names").and_then(Value::as_array);
            let names =
                names.and_then(|names| names.iter().map(|name| Some(name.as_str()?.into())).collect());
            if let Some(names) = names {
                features.class_names.insert(column.clone(), Arc::new(names));
            }
        }
        features
    }

    /// The columns whose feature is of this type, in the schema's order.
    fn of_type(&self, name: &str, schema: &Schema) -> Vec<usize> {
        let fields = schema.fields().iter().enumerate();
        let is = |column: &str| self.types.get(column).is_some_and(|found| found == name);
        fields.filter(|(_, field)| is(field.name())).map(|(at, _)| at).collect()
    }
}

/// Caches the features parsed last: shards of a dataset share them, and parsing 10 000 class names takes a
/// millisecond.
#[derive(Debug, Default)]
pub(crate) struct FeatureCache(Mutex<Option<(String, Arc<Features>)>>);

impl FeatureCache {
    fn of(&self, schema: &Schema) -> Arc<Features> {
        let Some(json) = schema.metadata().get("huggingface") else { return Arc::default() };
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((known, features)) if known == json => Arc::clone(features),
            _ => {
                let features = Arc::new(Features::parse(json));
                *last = Some((json.clone(), Arc::clone(&features)));
                features
            }
        }
    }
}

/// The class names, which must be equal in all shards that have any.
///
/// # Errors
/// [`ErrorKind::Schema`] if two shards differ.
pub(crate) fn common_class_names<'a>(
    shards: impl Iterator<Item = (&'a Path, Option<&'a Arc<Vec<String>>>)>,
) -> Result<Option<Arc<Vec<String>>>> {
    let mut common: Option<(&Path, &Arc<Vec<String>>)> = None;
    for (shard, names) in shards {
        let Some(names) = names else { continue };
        match common {
            None => common = Some((shard, names)),
            // Names of one parse share their allocation, so comparing the pointers is enough.
            Some((first, known)) if !Arc::ptr_eq(known, names) && known != names => {
                let (at, a, b) = first_difference(known, names);
                let message = format!(
                    "the class names of {} and {} differ: class {at} is {a} in the first and {b} in the second; open shards \
                     with different class names separately",
                    first.display(),
                    shard.display(),
                );
                return Err(Error::new(ErrorKind::Schema, message));
            }
            Some(_) => {}
        }
    }
    Ok(common.map(|(_, names)| Arc::clone(names)))
}

fn first_difference(a: &[String], b: &[String]) -> (usize, String, String) {
    let shown =
        |names: &[String], at: usize| names.get(at).map_or("missing".into(), |name| format!("{name:?}"));
    let at = (0..a.len().max(b.len())).find(|&at| a.get(at) != b.get(at)).unwrap_or(0);
    (at, shown(a, at), shown(b, at))
}
