//! [`ArrayColumns`]: the arrays of a shard that hold what a source reads.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema};

use super::{
    ColumnChoice, Described, IdFields, PayloadColumn, SchemaColumn,
    features::{FeatureCache, FeatureTypes},
    types::{
        ColumnType, Nesting, ValueLayout, holds_bytes, is_binary, is_text, item_of, layout_of, nesting_of,
        shortened, span_fields, type_name,
    },
};
use crate::{
    Error, ErrorKind, Result,
    lists::{ListColumn, ListItem, ListRate},
    nested::NestedColumn,
};

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
    pub list: Option<usize>,
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
    pub beside: Vec<NestedColumn>,
    pub path: Option<usize>,
    pub label: Option<usize>,
    pub class_names: Option<Arc<Vec<String>>>,
    /// The other requested columns, in the order of their names.
    pub others: Vec<Other>,
    pub schema: Arc<[SchemaColumn]>,
}

/// The error about a parameter that names a missing column.
pub(super) fn no_column(parameter: &str, name: &str, schema: &Schema) -> Error {
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
        payload: &PayloadColumn,
        label: &ColumnChoice,
        others: &[String],
        cache: &FeatureCache,
    ) -> Result<Self> {
        let features = cache.of(schema);
        let mut columns = Self::default();
        match payload {
            PayloadColumn::Audio(column) => columns.choose_audio(schema, &features, column.as_deref())?,
            PayloadColumn::Text(column) => columns.choose_text(schema, column)?,
            PayloadColumn::Chat(chat) => columns.choose_chat(schema, chat, cache)?,
            PayloadColumn::Ids(column, IdFields { labels, weights }) => {
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
            PayloadColumn::Nothing => {}
        }
        columns.choose_label(schema, &features, label)?;
        for name in others {
            let other = columns.other(schema, &features, name)?;
            columns.others.push(other);
        }
        let lists = columns.lists.as_ref().map(|lists| lists.levels[0].0);
        let audio =
            columns.bytes.or(lists).or(columns.path).filter(|_| matches!(payload, PayloadColumn::Audio(_)));
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
pub(super) const RATES: [&str; 2] = ["sampling_rate", "sample_rate"];

/// The column that a user names as that of the recordings, and the rate after it, as in `audio@16000`.
pub(super) fn named_audio(schema: &Schema, name: &str) -> Result<(usize, Option<u32>)> {
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
pub(super) fn no_rate(schema: &Schema, field: &Field) -> Error {
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

/// What to do with a column whose values are recordings in another form, for an error.
pub(super) fn advice(data_type: &DataType) -> &'static str {
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

/// The only element, or the number of elements.
pub(super) fn only(found: &[usize]) -> Result<usize, usize> {
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
