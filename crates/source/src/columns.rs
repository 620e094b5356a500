//! Chooses the columns of a shard to read, and checks their types.
//!
//! The audio column is the one that the user names, else `audio`, else the only Audio feature in the schema's
//! Hugging Face metadata. The label column likewise: by name, `label`, `labels`, the only ClassLabel. A text
//! column and any other is always named. The result is a list of arrays to find in every batch, each by its
//! path through the schema.
//!
//! Source: Arrow columnar format, "Physical memory layout"; the choice is our own. The `huggingface` metadata
//! is read as `datasets` 1 to 4 write it.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use arrow_schema::{DataType, Field, Schema};
use serde_json::Value;

use crate::{
    Error, ErrorKind, Result, fields,
    lists::{ListColumn, ListItem, ListRate},
    nested::NestedColumn,
};

/// The kind of a source's records, and their column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload {
    /// Recordings: the column's name; None for `audio` or the only Audio feature.
    Audio(Option<String>),
    /// Documents in UTF-8: the column's name.
    Text(String),
    /// Conversations: their columns.
    Chat(ChatColumns),
    /// Lists of token ids: the column's name, and the columns of their labels and weights.
    Ids(String, IdFields),
    /// Nothing: only other columns are read.
    Nothing,
}

/// The columns of conversations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatColumns {
    /// Lists of structs, or texts of JSON.
    pub messages: String,
    /// The tools of each conversation.
    pub tools: Option<String>,
}

impl ChatColumns {
    /// The columns with these names.
    pub(crate) fn new(messages: &str, tools: &Option<String>) -> Self {
        Self { messages: messages.to_owned(), tools: tools.clone() }
    }
}

/// The columns of lists of numbers beside lists of token ids.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IdFields {
    /// The id where the token is trained on, else -100.
    pub labels: Option<String>,
    /// The weight of each token in the loss.
    pub weights: Option<String>,
}

impl IdFields {
    /// Whether rows have ids alone.
    pub fn is_empty(&self) -> bool {
        self.labels.is_none() && self.weights.is_none()
    }
}

/// The memory layout of an array's values, for the supported types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ValueLayout {
    /// No buffers, all null.
    Null,
    /// One bit a value.
    Bool,
    /// Integers of so many bytes.
    Int { width: usize, signed: bool },
    /// Floating-point numbers of so many bytes.
    Float { width: usize },
    /// Binary, text or the items of a list, located by offsets of 4 or 8 bytes.
    Offsets { width: usize },
    /// Binary or text, located by views.
    Views,
    /// Binary of so many bytes each.
    FixedBytes { width: usize },
    /// Indices into the dictionary with this id.
    Dictionary { id: i64, width: usize, signed: bool, values: Box<ValueLayout>, value_type: DataType },
    /// A struct or a list of fixed length, of which only the validity is read.
    Struct,
}

/// A value that is read for each row in addition to its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExtraColumn {
    /// The class, [`NO_LABEL`](crate::contract::NO_LABEL) if it is null.
    Label,
    /// The recording's own path, empty if it is null, not UTF-8, or longer than 4096 bytes.
    Path,
    /// The value in the column with this number in `ArrayColumns::others`.
    Other(usize),
}

/// Which column of a table or a shard has some values, as a user chooses it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ColumnChoice {
    /// The one with a usual name or type, if there is one.
    #[default]
    Usual,
    /// No column, even if there is one with a usual name.
    Nothing,
    Named(String),
}

impl ColumnChoice {
    /// The name, if one is given.
    pub(crate) fn name(&self) -> Option<&str> {
        match self {
            Self::Named(name) => Some(name),
            Self::Usual | Self::Nothing => None,
        }
    }
}

impl From<Option<String>> for ColumnChoice {
    /// As in Python: `None` chooses the usual one, and an empty name chooses [`Self::Nothing`].
    fn from(name: Option<String>) -> Self {
        match name {
            None => Self::Usual,
            Some(name) if name.is_empty() => Self::Nothing,
            Some(name) => Self::Named(name),
        }
    }
}

/// The longest path that is delivered, bytes. Linux opens no longer ones, and the shuffle buffer holds one
/// for each example.
pub const MOST_PATH_BYTES: usize = 4096;

/// A column of a schema, or a field of a struct in it, whose name has points.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaColumn {
    pub name: String,
    /// What is in it, in words: `"audio"` for the recordings, the type as in `columns=`, else that of Arrow.
    pub content: String,
    /// The names of its classes, in the schema's metadata.
    pub class_names: Option<Arc<Vec<String>>>,
    /// The rate that the metadata has of recordings, hertz.
    pub sampling_rate: Option<u32>,
}

impl SchemaColumn {
    pub(crate) fn new(name: String, content: String) -> Self {
        Self { name, content, class_names: None, sampling_rate: None }
    }
}

/// What a shard has beside its recordings.
#[derive(Debug, Clone, Default)]
pub(crate) struct Described {
    /// The class names of the label.
    pub label_names: Option<Arc<Vec<String>>>,
    /// The types of the other columns, and their class names.
    pub others: Vec<(ColumnType, Option<Arc<Vec<String>>>)>,
    /// All columns; shared by shards that have the same.
    pub schema: Arc<[SchemaColumn]>,
}

impl ExtraColumn {
    /// The values that a source reads, in order: the label if it has any, the path on request, other columns.
    pub fn of(has_labels: bool, paths: bool, others: usize) -> Vec<Self> {
        [(Self::Label, has_labels), (Self::Path, paths)]
            .into_iter()
            .filter_map(|(value, is_read)| is_read.then_some(value))
            .chain((0..others).map(Self::Other))
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
}

/// The longest text of another column, bytes.
pub const MOST_TEXT_BYTES: u64 = 1 << 20;
/// The most items of a list of another column.
pub const MOST_ITEMS: u64 = 1 << 16;

/// The value of a whole number.
///
/// # Errors
/// [`ErrorKind::Schema`] for one beyond int64.
pub(crate) fn whole(number: i128) -> Result<fields::Value> {
    i64::try_from(number)
        .map(fields::Value::Int)
        .map_err(|_| Error::new(ErrorKind::Schema, format!("the number {number} does not fit int64")))
}

/// The value of a text.
///
/// # Errors
/// [`ErrorKind::Corrupt`] if it is not UTF-8.
pub(crate) fn text(bytes: &[u8]) -> Result<fields::Value> {
    let text = std::str::from_utf8(bytes)
        .map_err(|error| Error::new(ErrorKind::Corrupt, "the text is not UTF-8").because(error))?;
    Ok(fields::Value::Text(text.into()))
}

/// Checks the length of a text.
///
/// # Errors
/// [`ErrorKind::TooLarge`] beyond the limit.
pub(crate) fn check_text(bytes: u64) -> Result<()> {
    if bytes <= MOST_TEXT_BYTES {
        return Ok(());
    }
    let message = format!("a text has {bytes} bytes, at most {MOST_TEXT_BYTES} are read");
    Err(Error::new(ErrorKind::TooLarge, message))
}

/// Checks the length of a list within a list, which has a start and an end.
///
/// # Errors
/// [`ErrorKind::Schema`] beyond the limit: few values could make many, since a value is larger than a number.
pub(crate) fn check_pair(items: u64) -> Result<()> {
    if items <= 2 {
        return Ok(());
    }
    let message = format!("a list in a list has {items} items, expected pairs [start, end]");
    Err(Error::new(ErrorKind::Schema, message))
}

/// The type of the items of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Item {
    /// Integers or booleans, and how a batch has them.
    Whole(fields::DataType),
    /// Floating-point numbers, and how a batch has them.
    Float(fields::DataType),
    Text,
    Null,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nesting {
    One,
    List,
    Fixed(u64),
    /// A list of lists, or of structs with a start and an end: spans, as crops take them.
    Pairs,
}

/// The type of a column that is read beside the recordings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ColumnType {
    pub item: Item,
    pub nesting: Nesting,
}

impl ColumnType {
    /// Checks that a row has no lists of lists.
    ///
    /// # Errors
    /// [`ErrorKind::Schema`] that names the column.
    pub fn check_flat(self, column: &str) -> Result<()> {
        if self.nesting != Nesting::Pairs {
            return Ok(());
        }
        let message = format!(
            "column {column:?} is {self}, expected numbers, booleans, text, or lists of these; forebay.crops take spans"
        );
        Err(Error::new(ErrorKind::Schema, message))
    }

    /// Whether it has only nulls, which may stand for values of the other type.
    pub(super) fn is_nulls_of(self, other: Self) -> bool {
        let is_nested_alike = match (self.nesting, other.nesting) {
            // An empty list may be one of anything.
            (Nesting::One, _) | (Nesting::List, Nesting::Pairs) => true,
            (mine, others) => mine == others,
        };
        self.item == Item::Null && is_nested_alike
    }
}

impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let item = match self.item {
            Item::Whole(dtype) | Item::Float(dtype) => dtype.name(),
            Item::Text => "text",
            Item::Null => "null",
        };
        match self.nesting {
            Nesting::One => f.write_str(item),
            Nesting::List => write!(f, "lists of {item}"),
            Nesting::Fixed(n) => write!(f, "lists of {n} {item}"),
            Nesting::Pairs => write!(f, "lists of lists of {item}"),
        }
    }
}

/// The error about a value, with the name of its column.
pub(crate) fn in_column(name: &str, mut error: Error) -> Error {
    error.message = format!("column {name:?}: {}", error.message);
    error
}

/// A column that is read beside the recordings.
#[derive(Debug, Clone)]
pub(crate) struct Other {
    pub name: Arc<str>,
    pub column_type: ColumnType,
    /// The names of its classes, in the schema's metadata.
    pub class_names: Option<Arc<Vec<String>>>,
    /// The indices of the column and of the fields within it.
    pub path: Vec<usize>,
    /// The arrays of the structs around it.
    pub structs: Vec<usize>,
    /// The array of its lists.
    pub list: Option<usize>,
    /// The array of its items.
    pub items: usize,
    /// The lists or structs in its lists.
    pub pair: Option<Pair>,
}

/// The items of a list of pairs.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Pair {
    /// The array of lists; `None` for its layout, or the length of each.
    Lists(usize, Option<u64>),
    /// The array of structs, and that of their ends; the items are the starts.
    Structs(usize, usize),
}

/// The names of the fields of a struct that is a span.
pub(crate) const SPAN_FIELDS: [&str; 2] = ["start", "end"];

/// One array to find in every batch.
#[derive(Debug, Clone)]
pub(crate) struct ArrayRequest {
    /// The index of the column, then of the field within it.
    pub path: Vec<usize>,
    pub layout: ValueLayout,
    /// Whether it has as many values as the batch has rows; the items of lists may be more or fewer.
    pub has_rows: bool,
}

/// The arrays to read from a shard. The other fields are indices into `arrays`.
#[derive(Debug, Clone, Default)]
pub(crate) struct ArrayColumns {
    pub arrays: Vec<ArrayRequest>,
    pub audio_struct: Option<usize>,
    pub bytes: Option<usize>,
    /// The recordings, if the column has them as lists; then `bytes` is `None`.
    pub lists: Option<ListColumn>,
    /// Conversations, if the column has them as lists; then `bytes` is `None`.
    pub messages: Option<NestedColumn>,
    pub tools: Option<NestedColumn>,
    pub path: Option<usize>,
    pub label: Option<usize>,
    pub class_names: Option<Arc<Vec<String>>>,
    /// The other requested columns, in the order of their names.
    pub others: Vec<Other>,
    pub schema: Arc<[SchemaColumn]>,
}

/// The error about a parameter that names a missing column.
fn no_column(parameter: &str, name: &str, schema: &Schema) -> Error {
    let message = format!("{parameter} is {name:?}, but there is no such column; {}", listed(schema));
    Error::new(ErrorKind::Schema, message)
}

impl ArrayColumns {
    /// Chooses the columns of `schema`.
    ///
    /// # Errors
    /// [`ErrorKind::Schema`] if the payload's column is missing, ambiguous, or of a type that holds no
    /// records; for labels, if the named column is missing, or the column found is of another type.
    pub(crate) fn choose(
        schema: &Schema,
        payload: &Payload,
        label: &ColumnChoice,
        others: &[String],
        cache: &FeatureCache,
    ) -> Result<Self> {
        let features = cache.of(schema);
        let mut columns = Self::default();
        match payload {
            Payload::Audio(column) => columns.choose_audio(schema, &features, column.as_deref())?,
            Payload::Text(column) => columns.choose_text(schema, column)?,
            Payload::Chat(chat) => columns.choose_chat(schema, chat, cache)?,
            Payload::Ids(column, IdFields { labels, weights }) => {
                let fields = [
                    (Some(column), "integers, the ids of tokens"),
                    (labels.as_ref(), "integers, the labels of tokens"),
                    (weights.as_ref(), "numbers, the weights of tokens"),
                ];
                for (column, content) in
                    fields.iter().filter_map(|(column, content)| Some(((*column)?, content)))
                {
                    let ids = columns.other(schema, &features, column)?;
                    let is_list = matches!(ids.column_type.nesting, Nesting::List | Nesting::Fixed(_));
                    let is_right = match &columns.arrays[ids.items].layout {
                        ValueLayout::Int { .. } | ValueLayout::Null => true,
                        ValueLayout::Float { .. } => content.starts_with("numbers"),
                        _ => false,
                    };
                    if !is_list || !is_right {
                        let message =
                            format!("column {column:?} is {}, expected lists of {content}", ids.column_type);
                        return Err(Error::new(ErrorKind::Schema, message));
                    }
                    columns.others.push(ids);
                }
            }
            Payload::Nothing => {}
        }
        columns.choose_label(schema, &features, label)?;
        for name in others {
            let other = columns.other(schema, &features, name)?;
            columns.others.push(other);
        }
        let lists = columns.lists.as_ref().map(|lists| lists.levels[0].0);
        let audio = columns.bytes.or(lists).or(columns.path).filter(|_| matches!(payload, Payload::Audio(_)));
        let audio = audio.and_then(|array| columns.arrays[array].path.first().copied());
        columns.schema = cache.listed(schema, &features, audio);
        Ok(columns)
    }

    /// The column with that name; points separate the names of fields within structs, unless a column has
    /// points in its own name.
    fn other(&mut self, schema: &Schema, features: &FeatureTypes, name: &str) -> Result<Other> {
        let wrong = |found: String| {
            let message = format!("{found}; {}", listed(schema));
            Err(Error::new(ErrorKind::Schema, message))
        };
        let Some((path, field)) = find(schema, name) else {
            return wrong(format!("there is no column {name:?}"));
        };
        if schema.fields().iter().filter(|found| found.name() == schema.field(path[0]).name()).count() > 1 {
            return wrong(format!("column {:?} is there twice; rename one", schema.field(path[0]).name()));
        }
        let structs =
            (1..path.len()).map(|end| self.want(path[..end].to_vec(), ValueLayout::Struct)).collect();
        let mut item = field;
        let mut item_path = path.clone();
        let (nesting, list) = nesting_of(field);
        let list = list.map(|(child, layout)| {
            item = child;
            item_path.push(0);
            self.want(path.clone(), layout)
        });
        let (mut nesting, mut pair) = (nesting, None);
        if let (Some(_), (inner, Some((child, layout)))) = (list, nesting_of(item)) {
            let fixed = if let Nesting::Fixed(n) = inner { Some(n) } else { None };
            pair = Some(Pair::Lists(self.want_nested(item_path.clone(), layout, false), fixed));
            (nesting, item) = (Nesting::Pairs, child);
            item_path.push(0);
        } else if let (Some(_), Some([start, end])) = (list, span_fields(item.data_type())) {
            let array = self.want_nested(item_path.clone(), ValueLayout::Struct, false);
            let DataType::Struct(fields) = item.data_type() else { return wrong(String::new()) };
            let ends =
                layout_of(&fields[end]).filter(|_| fields[end].data_type() == fields[start].data_type());
            let Some(layout) = ends else {
                return wrong(format!("column {name:?} has starts and ends of different types"));
            };
            let mut path = item_path.clone();
            path.push(end);
            pair = Some(Pair::Structs(array, self.want_nested(path, layout, false)));
            (nesting, item) = (Nesting::Pairs, &fields[start]);
            item_path.push(start);
        }
        let Some((found, layout)) = item_of(item.data_type()).zip(layout_of(item)) else {
            return wrong(format!(
                "column {name:?} is {}, expected numbers, booleans, text, or lists of these",
                shortened(field.data_type())
            ));
        };
        let items = self.want_nested(item_path, layout, list.is_none());
        let class_names = features.class_names.get(name).cloned();
        let column_type = ColumnType { item: found, nesting };
        Ok(Other { name: name.into(), column_type, class_names, path, structs, list, items, pair })
    }

    /// What is told of the shard.
    pub(crate) fn described(&self) -> Described {
        let others = self.others.iter().map(|other| (other.column_type, other.class_names.clone()));
        Described {
            label_names: self.class_names.clone(),
            others: others.collect(),
            schema: self.schema.clone(),
        }
    }

    pub(crate) fn choose_text(&mut self, schema: &Schema, column: &str) -> Result<()> {
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

    fn choose_audio(&mut self, schema: &Schema, features: &FeatureTypes, column: Option<&str>) -> Result<()> {
        let (at, given_rate) = match column {
            Some(name) => named_audio(schema, name)?,
            None => match schema.index_of("audio") {
                Ok(at) => (at, None),
                Err(_) => only(&features.of_type("Audio", schema)).map(|at| (at, None)).map_err(|found| {
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
        let known_rate = given_rate.or(features.rates.get(field.name()).copied()).map(ListRate::Known);
        match field.data_type() {
            DataType::Struct(fields) => {
                self.audio_struct = Some(self.want(vec![at], ValueLayout::Struct));
                for (i, child) in fields.iter().enumerate() {
                    let layout = layout_of(child);
                    match (child.name().as_str(), layout) {
                        ("bytes", Some(layout))
                            if is_binary(child.data_type()) || layout == ValueLayout::Null =>
                        {
                            self.bytes = Some(self.want(vec![at, i], layout));
                        }
                        ("bytes", _) => self.lists = self.lists_of(&[at, i], child),
                        ("path", Some(layout))
                            if holds_bytes(child.data_type()) || layout == ValueLayout::Null =>
                        {
                            self.path = Some(self.want(vec![at, i], layout));
                        }
                        _ => {}
                    }
                }
                let has_bytes =
                    self.bytes.is_some_and(|bytes| self.arrays[bytes].layout != ValueLayout::Null);
                if let Some((i, child)) = fields.find("array").filter(|_| !has_bytes && self.lists.is_none())
                {
                    self.lists = self.lists_of(&[at, i], child);
                    self.bytes = self.bytes.filter(|_| self.lists.is_none());
                }
            }
            data_type if is_binary(data_type) => {
                if let Some(layout) = layout_of(field) {
                    let array = Some(self.want(vec![at], layout));
                    if is_text(data_type) {
                        self.path = array;
                    } else {
                        self.bytes = array;
                    }
                }
            }
            _ => self.lists = self.lists_of(&[at], field),
        }
        let is_samples = self.lists.as_ref().is_some_and(|lists| lists.item != ListItem::Byte);
        if let (Some(rate), false) = (given_rate, is_samples) {
            let message = format!(
                "audio_column has the rate {rate} after \"@\", which is for lists of samples, and column {:?} is {}; name \
                 the column alone",
                field.name(),
                shortened(field.data_type()),
            );
            return Err(Error::new(ErrorKind::Schema, message));
        }
        if is_samples {
            let rate = given_rate.map(ListRate::Known).or_else(|| self.rate_of(schema, at)).or(known_rate);
            let rate = rate.ok_or_else(|| no_rate(schema, field))?;
            if let Some(lists) = &mut self.lists {
                lists.rate = Some(rate);
            }
        }
        if self.bytes.is_some() || self.path.is_some() || self.lists.is_some() {
            return Ok(());
        }
        let message = format!(
            "column {:?} is {} and holds no recordings; expected a struct with the fields bytes (binary) and path (string), or \
             array (samples) and sampling_rate, a binary column, a string column of paths, or lists of int8 (bytes of files), \
             int16, float32 or float64 (samples){}; {}",
            field.name(),
            shortened(field.data_type()),
            advice(field.data_type()),
            listed(schema),
        );
        Err(Error::new(ErrorKind::Schema, message))
    }

    /// The arrays of a column of recordings as lists, or as lists of lists of samples; None of other types.
    fn lists_of(&mut self, path: &[usize], field: &Field) -> Option<ListColumn> {
        let (mut path, mut field) = (path.to_vec(), field);
        let mut found = Vec::new();
        while let (nesting, Some((child, layout))) = nesting_of(field) {
            found.push((path.clone(), layout, if let Nesting::Fixed(n) = nesting { Some(n) } else { None }));
            path.push(0);
            field = child;
        }
        let item = ListItem::of(field.data_type())?;
        let layout = layout_of(field)?;
        if found.is_empty() || found.len() > 1 && (item == ListItem::Byte || found.len() > 2) {
            return None;
        }
        let levels = found
            .into_iter()
            .enumerate()
            .map(|(depth, (path, layout, fixed))| (self.want_nested(path, layout, depth == 0), fixed));
        let levels = levels.collect();
        Some(ListColumn { levels, items: self.want_nested(path, layout, false), item, rate: None })
    }

    /// The array of the rates of samples: of the field of a struct with them, or of the column.
    fn rate_of(&mut self, schema: &Schema, at: usize) -> Option<ListRate> {
        let layout =
            |field: &Field| layout_of(field).filter(|layout| matches!(layout, ValueLayout::Int { .. }));
        if let DataType::Struct(fields) = schema.field(at).data_type() {
            let field = RATES.iter().find_map(|name| fields.find(name));
            if let Some((i, layout)) = field.and_then(|(i, field)| Some((i, layout(field)?))) {
                return Some(ListRate::Array(self.want(vec![at, i], layout)));
            }
        }
        let column = RATES.iter().find_map(|name| schema.index_of(name).ok())?;
        Some(ListRate::Array(self.want(vec![column], layout(schema.field(column))?)))
    }

    fn choose_label(&mut self, schema: &Schema, features: &FeatureTypes, label: &ColumnChoice) -> Result<()> {
        let at = match label {
            ColumnChoice::Nothing => return Ok(()),
            ColumnChoice::Named(name) => {
                schema.index_of(name).map_err(|_| no_column("label_column", name, schema))?
            }
            ColumnChoice::Usual => {
                let usual = ["label", "labels"].iter().find_map(|name| schema.index_of(name).ok());
                match usual.or_else(|| only(&features.of_type("ClassLabel", schema)).ok()) {
                    Some(at) => at,
                    None => return Ok(()),
                }
            }
        };
        let field = schema.field(at);
        let layout = layout_of(field).filter(|layout| match layout {
            ValueLayout::Null | ValueLayout::Bool | ValueLayout::Int { .. } => true,
            ValueLayout::Dictionary { values, .. } => matches!(**values, ValueLayout::Int { .. }),
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

    pub(crate) fn want(&mut self, path: Vec<usize>, layout: ValueLayout) -> usize {
        self.want_nested(path, layout, true)
    }

    /// The index of the array at `path`, which is added unless it is requested already.
    pub(crate) fn want_nested(&mut self, path: Vec<usize>, layout: ValueLayout, has_rows: bool) -> usize {
        if let Some(known) = self.arrays.iter().position(|known| known.path == path && known.layout == layout)
        {
            return known;
        }
        self.arrays.push(ArrayRequest { path, layout, has_rows });
        self.arrays.len() - 1
    }
}

/// The names of the column, or of the field beside samples, that has their rate.
const RATES: [&str; 2] = ["sampling_rate", "sample_rate"];

/// The column that a user names as that of the recordings, and the rate after it, as in `audio@16000`.
fn named_audio(schema: &Schema, name: &str) -> Result<(usize, Option<u32>)> {
    let with_rate = || {
        let (column, rate) = name.rsplit_once('@')?;
        let rate = rate.parse().ok().filter(|&rate: &u32| rate > 0)?;
        Some((schema.index_of(column).ok()?, Some(rate)))
    };
    match schema.index_of(name) {
        Ok(at) => Ok((at, None)),
        Err(_) => with_rate().ok_or_else(|| no_column("audio_column", name, schema)),
    }
}

/// The error for samples whose rate is unknown.
fn no_rate(schema: &Schema, field: &Field) -> Error {
    let message = format!(
        "column {:?} is {} and has samples without their rate; expected a column sampling_rate of integers (Hz), or \
         a struct with the fields array and sampling_rate; or give the rate of all rows with the column, as \
         audio_column={:?}; {}",
        field.name(),
        shortened(field.data_type()),
        format!("{}@16000", field.name()),
        listed(schema),
    );
    Error::new(ErrorKind::Schema, message)
}

/// The place of a column by its name, and its field.
pub(crate) fn find<'a>(schema: &'a Schema, name: &str) -> Option<(Vec<usize>, &'a Field)> {
    if let Ok(at) = schema.index_of(name) {
        return Some((vec![at], schema.field(at)));
    }
    let mut parts = name.split('.');
    let first = schema.index_of(parts.next()?).ok()?;
    let (mut path, mut field) = (vec![first], schema.field(first));
    for part in parts {
        let DataType::Struct(fields) = field.data_type() else { return None };
        let at = fields.iter().position(|field| field.name() == part)?;
        path.push(at);
        field = &fields[at];
    }
    Some((path, field))
}

/// How a column holds items; for lists the field of the items, and the layout of the lists.
pub(crate) fn nesting_of(field: &Field) -> (Nesting, Option<(&Field, ValueLayout)>) {
    match field.data_type() {
        DataType::List(child) => (Nesting::List, Some((child, ValueLayout::Offsets { width: 4 }))),
        DataType::LargeList(child) => (Nesting::List, Some((child, ValueLayout::Offsets { width: 8 }))),
        DataType::FixedSizeList(child, n) => {
            (Nesting::Fixed(u64::try_from(*n).unwrap_or(0)), Some((child, ValueLayout::Struct)))
        }
        _ => (Nesting::One, None),
    }
}

/// The places of the start and the end among the fields of a struct.
pub(crate) fn span_fields(data_type: &DataType) -> Option<[usize; 2]> {
    let DataType::Struct(fields) = data_type else { return None };
    let at = |name: &str| fields.iter().position(|field| field.name() == name);
    Some([at(SPAN_FIELDS[0])?, at(SPAN_FIELDS[1])?])
}

/// The columns of a table, structs as they are, with class names in the schema's metadata.
pub(crate) fn columns_of(schema: &Schema) -> Vec<SchemaColumn> {
    const NOT_INTO_STRUCTS: usize = usize::MAX;
    let features = FeatureCache::default().of(schema);
    let mut found = Vec::new();
    for field in schema.fields() {
        list(field.name().clone(), field, &features, NOT_INTO_STRUCTS, &mut found);
    }
    found
}

/// Adds a column to the list of a schema; of a struct its fields, unless they are nested too deeply.
fn list(name: String, field: &Field, features: &FeatureTypes, depth: usize, into: &mut Vec<SchemaColumn>) {
    const DEEPEST: usize = 4;
    if let (DataType::Struct(fields), true) = (field.data_type(), depth < DEEPEST) {
        for field in fields {
            list(format!("{name}.{}", field.name()), field, features, depth + 1, into);
        }
        return;
    }
    let content = type_name(field);
    let class_names = features.class_names.get(&name).cloned();
    into.push(SchemaColumn { class_names, ..SchemaColumn::new(name, content) });
}

/// The type of a column in words, such as `text`; of an unsupported type Arrow's.
pub fn type_name(field: &Field) -> String {
    let (nesting, items) = nesting_of(field);
    let item = items.map_or(field, |(items, _)| items);
    match item_of(item.data_type()) {
        Some(item) => ColumnType { item, nesting }.to_string(),
        None => shortened(field.data_type()),
    }
}

/// The type of the items in a column of this type; `None` for nested and other unsupported ones.
pub(crate) fn item_of(data_type: &DataType) -> Option<Item> {
    use fields::DataType as Found;
    Some(match data_type {
        DataType::Null => Item::Null,
        DataType::Boolean => Item::Whole(Found::Bool),
        DataType::Int8 => Item::Whole(Found::Int8),
        DataType::Int16 => Item::Whole(Found::Int16),
        DataType::Int32 => Item::Whole(Found::Int32),
        DataType::Int64 => Item::Whole(Found::Int64),
        DataType::UInt8 => Item::Whole(Found::Uint8),
        DataType::UInt16 => Item::Whole(Found::Uint16),
        DataType::UInt32 => Item::Whole(Found::Uint32),
        DataType::UInt64 => Item::Whole(Found::Uint64),
        DataType::Float16 => Item::Float(Found::Float16),
        DataType::Float32 => Item::Float(Found::Float32),
        DataType::Float64 => Item::Float(Found::Float64),
        DataType::Dictionary(_, values) => item_of(values)?,
        other if is_text(other) => Item::Text,
        _ => return None,
    })
}

/// The name of a type, shortened.
pub(crate) fn shortened(data_type: &DataType) -> String {
    let mut text = data_type.to_string();
    if let Some((at, _)) = text.char_indices().nth(200) {
        text.truncate(at);
        text.push('…');
    }
    text
}

fn is_text(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, values) => is_text(values),
        other => matches!(other, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View),
    }
}

/// What to do with a column whose values are recordings in another form, for an error.
fn advice(data_type: &DataType) -> &'static str {
    let item = match data_type {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            item.data_type()
        }
        _ => return "",
    };
    match item.is_floating() || item.is_integer() {
        true => {
            "; if these lists are samples, cast them to float32 in which 1.0 is full scale, or to int16 in which 32768 is"
        }
        false => "",
    }
}

/// Whether values are the bytes of a file, or text.
fn is_binary(data_type: &DataType) -> bool {
    holds_bytes(data_type) || matches!(data_type, DataType::FixedSizeBinary(_))
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
pub(crate) fn layout_of(field: &Field) -> Option<ValueLayout> {
    match field.data_type() {
        DataType::Dictionary(index, values) => {
            let ValueLayout::Int { width, signed } = plain_layout(index)? else { return None };
            #[expect(
                deprecated,
                reason = "the id is what the dictionary messages carry; nothing replaces it"
            )]
            let id = field.dict_id()?;
            let value_type = (**values).clone();
            Some(ValueLayout::Dictionary {
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

fn plain_layout(data_type: &DataType) -> Option<ValueLayout> {
    let int = |width, signed| Some(ValueLayout::Int { width, signed });
    match data_type {
        DataType::Null => Some(ValueLayout::Null),
        DataType::Boolean => Some(ValueLayout::Bool),
        DataType::Int8 => int(1, true),
        DataType::Int16 => int(2, true),
        DataType::Int32 => int(4, true),
        DataType::Int64 => int(8, true),
        DataType::UInt8 => int(1, false),
        DataType::UInt16 => int(2, false),
        DataType::UInt32 => int(4, false),
        DataType::UInt64 => int(8, false),
        DataType::Float16 => Some(ValueLayout::Float { width: 2 }),
        DataType::Float32 => Some(ValueLayout::Float { width: 4 }),
        DataType::Float64 => Some(ValueLayout::Float { width: 8 }),
        DataType::Binary | DataType::Utf8 => Some(ValueLayout::Offsets { width: 4 }),
        DataType::LargeBinary | DataType::LargeUtf8 => Some(ValueLayout::Offsets { width: 8 }),
        DataType::BinaryView | DataType::Utf8View => Some(ValueLayout::Views),
        DataType::FixedSizeBinary(n) => Some(ValueLayout::FixedBytes { width: usize::try_from(*n).ok()? }),
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
pub(crate) fn listed(schema: &Schema) -> String {
    const SHOWN: usize = 30;
    let fields = schema.fields();
    let mut columns: Vec<_> =
        fields.iter().take(SHOWN).map(|field| format!("{} ({})", field.name(), type_name(field))).collect();
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
struct FeatureTypes {
    /// The `_type` of each column's feature.
    types: HashMap<String, String>,
    /// The names of the classes of each column, and of fields within columns, whose names have points.
    class_names: HashMap<String, Arc<Vec<String>>>,
    /// The `sampling_rate` of each column that has one.
    rates: HashMap<String, u32>,
}

impl FeatureTypes {
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
            let rate = feature.get("sampling_rate").and_then(Value::as_u64);
            if let Some(rate) = rate.and_then(|rate| u32::try_from(rate).ok()) {
                features.rates.insert(column.clone(), rate);
            }
            features.add_class_names(column.clone(), feature, 0);
        }
        features
    }

    /// Adds the class names of a column, of the items of its lists and of the fields within it.
    fn add_class_names(&mut self, name: String, feature: &Value, depth: usize) {
        const DEEPEST: usize = 8;
        let names = feature.get("names").and_then(Value::as_array);
        let names = names.and_then(|names| names.iter().map(|name| Some(name.as_str()?.into())).collect());
        if let Some(names) = names {
            self.class_names.insert(name, Arc::new(names));
            return;
        }
        if depth == DEEPEST {
            return;
        }
        // `datasets` writes lists in three ways: with "feature", and as a JSON array.
        let items = feature.get("feature").or_else(|| feature.as_array().and_then(|items| items.first()));
        if let Some(items) = items {
            return self.add_class_names(name, items, depth + 1);
        }
        let is_struct = feature.get("_type").is_none_or(|found| !found.is_string());
        for (field, feature) in feature.as_object().into_iter().flatten().filter(|_| is_struct) {
            self.add_class_names(format!("{name}.{field}"), feature, depth + 1);
        }
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
pub(crate) struct FeatureCache {
    parsed: Mutex<Option<(String, Arc<FeatureTypes>)>>,
    listed: Mutex<Arc<[SchemaColumn]>>,
    told: OnceLock<()>,
}

impl FeatureCache {
    /// Calls `tell` for the first shard that has something to tell.
    pub(crate) fn once(&self, tell: impl FnOnce()) {
        self.told.get_or_init(tell);
    }

    /// The columns of a schema; `audio` is the number of that of the recordings.
    fn listed(&self, schema: &Schema, features: &FeatureTypes, audio: Option<usize>) -> Arc<[SchemaColumn]> {
        let mut found = Vec::new();
        for (at, field) in schema.fields().iter().enumerate() {
            let name = field.name().clone();
            match audio == Some(at) {
                true => {
                    let sampling_rate = features.rates.get(&name).copied();
                    found.push(SchemaColumn { sampling_rate, ..SchemaColumn::new(name, "audio".to_owned()) });
                }
                false => list(name, field, features, 0, &mut found),
            }
        }
        let mut last = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        if **last != *found {
            *last = found.into();
        }
        last.clone()
    }

    fn of(&self, schema: &Schema) -> Arc<FeatureTypes> {
        let Some(json) = schema.metadata().get("huggingface") else { return Arc::default() };
        let mut last = self.parsed.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((known, features)) if known == json => Arc::clone(features),
            _ => {
                let features = Arc::new(FeatureTypes::parse(json));
                *last = Some((json.clone(), Arc::clone(&features)));
                features
            }
        }
    }
}
