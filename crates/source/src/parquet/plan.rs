//! The requested columns of a file as a separate schema.
//!
//! Only these are decoded, so other columns may have types that the decoder does not support. Bytes and text
//! are decoded as views into the pages, without a copy, and text as binary, so that a text that is not UTF-8
//! fails alone and not with its page.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use ::parquet::{
    arrow::{FieldLevels, ProjectionMask, parquet_to_arrow_field_levels, parquet_to_arrow_schema},
    basic::{ConvertedType, LogicalType},
    errors::ParquetError,
    file::metadata::ParquetMetaData,
    schema::types::{SchemaDescPtr, SchemaDescriptor, Type, TypePtr},
};
use arrow_schema::{DataType, Field, FieldRef, Fields, Schema};

use crate::SourceOptions;
use crate::{
    Error, ErrorKind, Result,
    catch_panic::guarded,
    columns::{ArrayColumns, FeatureCache, Item, ValueLayout},
    lists::{ListColumn, ListRate},
    nested::{EXTENSION, NestedColumn},
};

/// The columns to decode of each row group, and their positions in a batch.
#[derive(Debug, Clone)]
pub(super) struct ColumnPlan {
    pub levels: FieldLevels,
    pub schema: SchemaDescPtr,
    /// The index in the file of each column that is decoded.
    pub leaves: Vec<usize>,
    /// How many of the last of these become JSON.
    pub n_json: usize,
    /// Whether the bytes and paths are fields of a struct, the first column of a batch.
    pub is_struct: bool,
    /// The indices of the payload's bytes and path, in a batch or in the struct.
    pub bytes: Option<usize>,
    pub path: Option<usize>,
    /// The recordings as lists, if the column has such; their place is as that of bytes.
    pub lists: Option<PlannedLists>,
    /// The index of the label in a batch.
    pub label: Option<usize>,
    /// Conversations as lists and the columns beside them, and their indices in a batch.
    pub messages: Option<(NestedColumn, usize)>,
    pub beside: Vec<(NestedColumn, usize)>,
    /// The names of the other columns, and their indices in a batch; `None` for one of nulls.
    pub others: Vec<(Arc<str>, Option<usize>)>,
}

/// Recordings as lists.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PlannedLists {
    pub column: ListColumn,
    pub at: usize,
    pub rate: PlannedRate,
}

/// Where the rate of samples is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum PlannedRate {
    Known(u32),
    /// In the column of a batch with this index.
    Column(usize),
    /// In the field of the struct with this index.
    Field(usize),
}

/// Chooses the columns of the payload, the label and the others by [`ArrayColumns::choose`], and plans how to
/// decode them.
pub(super) fn choose(
    metadata: &ParquetMetaData,
    options: &SourceOptions,
    cache: &FeatureCache,
) -> Result<(ArrayColumns, ColumnPlan)> {
    guarded(|| {
        let schema = schema_of(metadata);
        let SourceOptions { payload, label_column, columns, .. } = options;
        let columns = ArrayColumns::choose(&schema, payload, label_column, columns, cache)?;
        let plan = ColumnPlan::new(metadata, &columns)
            .map_err(|error| Error::new(ErrorKind::Schema, "the columns cannot be decoded").because(error))?;
        Ok((columns, plan))
    })?
}

/// The schema in Arrow's types. A column without an Arrow type is `Null`.
fn schema_of(metadata: &ParquetMetaData) -> Schema {
    let file = metadata.file_metadata();
    let root = file.schema_descr().root_schema();
    // Parquet has no lists of fixed length; a writer's own schema tells of them.
    let written = parquet_to_arrow_schema(file.schema_descr(), file.key_value_metadata()).ok();
    let fields: Vec<_> = root
        .get_fields()
        .iter()
        .enumerate()
        .map(|(number, column)| {
            let known = alone(root, vec![Arc::clone(column)])
                .and_then(|descriptor| parquet_to_arrow_schema(&descriptor, None));
            match known {
                Ok(schema) if schema.fields().len() == 1 => {
                    let field = schema.field(0).clone();
                    let written = written.as_ref().and_then(|schema| schema.fields().get(number));
                    let data_type = with_lengths(field.data_type(), written.map(|field| field.data_type()));
                    let mut is_json = Vec::new();
                    json_leaves(column, &mut is_json);
                    match is_json.contains(&true) {
                        true => with_json(field.with_data_type(data_type), &mut is_json.into_iter()),
                        false => field.with_data_type(data_type),
                    }
                }
                _ => Field::new(column.name(), DataType::Null, true),
            }
        })
        .collect();
    let pairs = file.key_value_metadata().into_iter().flatten();
    let pairs = pairs.filter(|pair| pair.key == "huggingface");
    let metadata = pairs.filter_map(|pair| Some((pair.key.clone(), pair.value.clone()?)));
    Schema::new_with_metadata(fields, metadata.collect::<HashMap<_, _>>())
}

/// The type with the lengths of lists that the writer's type has.
fn with_lengths(known: &DataType, written: Option<&DataType>) -> DataType {
    match (known, written) {
        (DataType::List(item), Some(DataType::FixedSizeList(_, n))) => {
            DataType::FixedSizeList(Arc::clone(item), *n)
        }
        (DataType::Struct(fields), Some(DataType::Struct(written))) => {
            let field = |field: &FieldRef| {
                let written = written.iter().find(|written| written.name() == field.name());
                let written = written.map(|field| field.data_type());
                field.as_ref().clone().with_data_type(with_lengths(field.data_type(), written))
            };
            DataType::Struct(fields.iter().map(field).collect())
        }
        _ => known.clone(),
    }
}

/// Adds for each column within `column` whether it is a text of JSON.
fn json_leaves(column: &Type, into: &mut Vec<bool>) {
    if column.is_group() {
        return column.get_fields().iter().for_each(|field| json_leaves(field, into));
    }
    let info = column.get_basic_info();
    into.push(
        info.logical_type_ref() == Some(&LogicalType::Json) || info.converted_type() == ConvertedType::JSON,
    );
}

/// The field with the mark of Arrow on texts of JSON, of which `is_json` tells for each column within it.
fn with_json(field: Field, is_json: &mut impl Iterator<Item = bool>) -> Field {
    let mut one = |field: &FieldRef| Arc::new(with_json(field.as_ref().clone(), is_json));
    let data_type = match field.data_type() {
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(one).collect()),
        DataType::List(item) => DataType::List(one(item)),
        DataType::LargeList(item) => DataType::LargeList(one(item)),
        DataType::FixedSizeList(item, n) => DataType::FixedSizeList(one(item), *n),
        DataType::Map(entries, is_sorted) => DataType::Map(one(entries), *is_sorted),
        _ if is_json.next() == Some(true) => {
            let [key, name] = EXTENSION.map(str::to_owned);
            let mut metadata = field.metadata().clone();
            metadata.insert(key, name);
            return field.with_metadata(metadata);
        }
        _ => return field,
    };
    field.with_data_type(data_type)
}

pub(super) fn alone(root: &Type, columns: Vec<TypePtr>) -> Result<SchemaDescriptor, ParquetError> {
    let root = Type::group_type_builder(root.name()).with_fields(columns).build()?;
    Ok(SchemaDescriptor::new(Arc::new(root)))
}

/// Caches the last plan: most files of a dataset have the same.
#[derive(Debug, Default)]
pub(super) struct Plans(Mutex<Option<Arc<ColumnPlan>>>);

impl Plans {
    /// The cached plan if it equals `plan`, else `plan`.
    pub(super) fn share(&self, plan: ColumnPlan) -> Arc<ColumnPlan> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            // The other fields follow from the schema.
            Some(known)
                if known.schema.root_schema() == plan.schema.root_schema()
                    && known.leaves == plan.leaves
                    && known.is_struct == plan.is_struct
                    && [known.bytes, known.path, known.label] == [plan.bytes, plan.path, plan.label]
                    && known.lists == plan.lists
                    && (&known.messages, &known.beside) == (&plan.messages, &plan.beside)
                    && known.others == plan.others =>
            {
                Arc::clone(known)
            }
            _ => Arc::clone(last.insert(Arc::new(plan))),
        }
    }
}

impl ColumnPlan {
    fn new(metadata: &ParquetMetaData, columns: &ArrayColumns) -> Result<Self, ParquetError> {
        let schema = metadata.file_metadata().schema_descr();
        let root = schema.root_schema();
        let place = |array: Option<usize>| {
            let wanted = columns.arrays.get(array?)?;
            (wanted.layout != ValueLayout::Null).then_some(wanted.path.as_slice())
        };
        let [bytes, path, label] = [columns.bytes, columns.path, columns.label].map(place);
        let lists = place(columns.lists.as_ref().map(|lists| lists.levels[0].0));
        let rate = columns.lists.as_ref().and_then(|lists| lists.rate);
        let rate_column = if let Some(ListRate::Array(at)) = rate { place(Some(at)) } else { None };
        // A column has one step, the field of a struct two.
        let rate_field = rate_column.filter(|path| path.len() > 1);
        let (mut roots, mut leaves) = (Vec::new(), Vec::new());
        let leaf = |path: &[usize]| {
            let found = (0..schema.num_columns()).find(|&leaf| is_at(schema, leaf, path));
            found.ok_or_else(|| ParquetError::General("a column without values".into()))
        };
        // The fields of the struct, or the one column, in the order of the schema.
        let mut payload: Vec<_> = [bytes, path, lists, rate_field].into_iter().flatten().collect();
        payload.sort_unstable();
        for path in &payload {
            match path {
                [column, within @ ..] if Some(*path) == lists => {
                    leaves.extend(leaves_of(schema, *column, &only(&root.get_fields()[*column], within)?));
                }
                path => leaves.push(leaf(path)?),
            }
        }
        let at = |wanted: Option<&[usize]>| payload.iter().position(|path| Some(*path) == wanted);
        let is_struct = columns.audio_struct.is_some();
        if let Some(&&[column, ..]) = payload.first() {
            let is_bare = |part: &[usize]| [bytes, path].contains(&Some(part));
            roots.push(payload_column(&root.get_fields()[column], &payload, is_struct, is_bare)?);
        }
        let planned = columns.lists.clone().zip(at(lists));
        let mut planned = planned.map(|(column, at)| {
            let rate = if let Some(ListRate::Known(rate)) = column.rate { rate } else { 0 };
            PlannedLists { column, at, rate: PlannedRate::Known(rate) }
        });
        if let (Some(planned), Some(path)) = (&mut planned, rate_column) {
            planned.rate = match (at(rate_field), path) {
                (Some(at), _) => PlannedRate::Field(at),
                (None, path) => {
                    leaves.push(leaf(path)?);
                    roots.push(Arc::clone(&root.get_fields()[path[0]]));
                    PlannedRate::Column(roots.len() - 1)
                }
            };
        }
        let mut label_at = None;
        if let Some(path @ [column, ..]) = label {
            leaves.push(leaf(path)?);
            label_at = Some(roots.len());
            roots.push(Arc::clone(&root.get_fields()[*column]));
        }
        let mut others = Vec::new();
        for other in &columns.others {
            let [column, within @ ..] = &other.path[..] else { continue };
            if other.column_type.item == Item::Null {
                others.push((Arc::clone(&other.name), None));
                continue;
            }
            let only = only(&root.get_fields()[*column], within)?;
            leaves.extend(leaves_of(schema, *column, &only));
            others.push((Arc::clone(&other.name), Some(roots.len())));
            roots.push(as_bytes(&only)?);
        }
        let n_others = leaves.len();
        let mut nested = |wanted: &NestedColumn| {
            let [column, within @ ..] = &wanted.path[..] else { return Ok(None) };
            let only = only(&root.get_fields()[*column], within)?;
            leaves.extend(leaves_of(schema, *column, &only));
            roots.push(as_bytes(&only)?);
            Ok::<_, ParquetError>(Some((wanted.clone(), roots.len() - 1)))
        };
        let messages = columns.messages.as_ref().map(&mut nested).transpose()?.flatten();
        let beside: Vec<_> = columns
            .beside
            .iter()
            .filter_map(|column| nested(column).transpose())
            .collect::<Result<_, _>>()?;
        let nested: Vec<usize> = messages.iter().chain(&beside).map(|(_, at)| *at).collect();
        let (bytes, path) = (at(bytes), at(path));
        let schema = alone(root, roots)?;
        Ok(Self {
            levels: levels_of(&schema, &nested)?,
            schema: Arc::new(schema),
            n_json: leaves.len() - n_others,
            leaves,
            is_struct,
            bytes,
            path,
            lists: planned,
            label: label_at,
            messages,
            beside,
            others,
        })
    }
}

/// The column of recordings with only the parts in `payload`: of a struct its fields, else the column itself.
fn payload_column(
    column: &TypePtr,
    payload: &[&[usize]],
    is_struct: bool,
    is_bare: impl Fn(&[usize]) -> bool,
) -> Result<TypePtr, ParquetError> {
    let part = |path: &[usize], part: &TypePtr| match is_bare(path) {
        true => bare(part),
        false => Ok(Arc::clone(part)),
    };
    if !is_struct {
        return part(payload[0], column);
    }
    let field = |path: &&[usize]| Some(part(path, column.get_fields().get(*path.get(1)?)?));
    let fields = payload.iter().filter_map(field).collect::<Result<_, _>>()?;
    let group = Type::group_type_builder(column.name()).with_repetition(column.get_basic_info().repetition());
    Ok(Arc::new(group.with_fields(fields).build()?))
}

/// The Arrow types that columns are decoded to; those at `nested` have views at all levels.
fn levels_of(schema: &SchemaDescriptor, nested: &[usize]) -> Result<FieldLevels, ParquetError> {
    let fields = viewed(parquet_to_arrow_schema(schema, None)?.fields());
    let fields = fields.iter().enumerate().map(|(at, field)| match nested.contains(&at) {
        true => viewed_deeply(field),
        false => Arc::clone(field),
    });
    let fields: Fields = fields.collect();
    parquet_to_arrow_field_levels(schema, ProjectionMask::all(), Some(&fields))
}

/// The column with only the field at `path` within it.
fn only(column: &TypePtr, path: &[usize]) -> Result<TypePtr, ParquetError> {
    let [first, rest @ ..] = path else { return Ok(Arc::clone(column)) };
    let missing = || ParquetError::General("a field without values".into());
    let field = only(column.get_fields().get(*first).ok_or_else(missing)?, rest)?;
    let group = Type::group_type_builder(column.name());
    let group = group.with_repetition(column.get_basic_info().repetition());
    Ok(Arc::new(group.with_fields(vec![field]).build()?))
}

/// The column with its text as plain bytes, so that one that is not UTF-8 fails alone.
fn as_bytes(column: &TypePtr) -> Result<TypePtr, ParquetError> {
    let info = column.get_basic_info();
    if column.is_primitive() {
        let is_text = matches!(info.logical_type_ref(), Some(LogicalType::String | LogicalType::Json))
            || matches!(info.converted_type(), ConvertedType::UTF8 | ConvertedType::JSON);
        return if is_text { bare(column) } else { Ok(Arc::clone(column)) };
    }
    let group = Type::group_type_builder(column.name())
        .with_repetition(info.repetition())
        .with_converted_type(info.converted_type())
        .with_logical_type(info.logical_type_ref().cloned());
    let fields = column.get_fields().iter().map(as_bytes).collect::<Result<_, _>>()?;
    Ok(Arc::new(group.with_fields(fields).build()?))
}

/// The file's columns in `only`, a part of its root column `column`.
fn leaves_of(schema: &SchemaDescriptor, column: usize, only: &TypePtr) -> Vec<usize> {
    let is_in = |leaf: &usize| {
        let descriptor = schema.column(*leaf);
        let parts = descriptor.path().parts();
        let mut at = only;
        parts.iter().skip(1).all(|part| match at.is_group() {
            true => match at.get_fields().iter().find(|field| field.name() == part) {
                Some(field) => {
                    at = field;
                    true
                }
                None => false,
            },
            false => false,
        })
    };
    (0..schema.num_columns())
        .filter(|&leaf| schema.get_column_root_idx(leaf) == column)
        .filter(is_in)
        .collect()
}

/// Whether the file's column `leaf` is the one at `path`, which has one or two steps.
fn is_at(schema: &SchemaDescriptor, leaf: usize, path: &[usize]) -> bool {
    let [column, fields @ ..] = path else { return false };
    if schema.get_column_root_idx(leaf) != *column {
        return false;
    }
    let names = schema.column(leaf);
    match (fields, names.path().parts()) {
        ([], [_]) => true,
        ([field], [_, name]) => {
            let fields = schema.root_schema().get_fields()[*column].get_fields();
            fields.get(*field).is_some_and(|field| field.name() == name)
        }
        _ => false,
    }
}

/// The column as plain bytes, without its annotation as text.
fn bare(column: &TypePtr) -> Result<TypePtr, ParquetError> {
    let info = column.get_basic_info();
    let bare = Type::primitive_type_builder(column.name(), column.get_physical_type());
    let length = if let Type::PrimitiveType { type_length, .. } = &**column { *type_length } else { -1 };
    Ok(Arc::new(bare.with_repetition(info.repetition()).with_length(length).build()?))
}

/// The fields, with binary as views.
fn viewed(fields: &Fields) -> Fields {
    let view = |field: &Field| {
        let data_type = match field.data_type() {
            DataType::Binary => DataType::BinaryView,
            DataType::Struct(fields) => DataType::Struct(viewed(fields)),
            other => other.clone(),
        };
        field.clone().with_data_type(data_type)
    };
    fields.iter().map(|field| view(field)).collect()
}

/// The field, with bytes and text as views at any depth.
pub(super) fn viewed_deeply(field: &FieldRef) -> FieldRef {
    let data_type = match field.data_type() {
        DataType::Binary | DataType::LargeBinary => DataType::BinaryView,
        DataType::Utf8 | DataType::LargeUtf8 => DataType::Utf8View,
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(viewed_deeply).collect()),
        DataType::List(item) => DataType::List(viewed_deeply(item)),
        DataType::LargeList(item) => DataType::LargeList(viewed_deeply(item)),
        DataType::FixedSizeList(item, n) => DataType::FixedSizeList(viewed_deeply(item), *n),
        _ => return Arc::clone(field),
    };
    Arc::new(field.as_ref().clone().with_data_type(data_type))
}
