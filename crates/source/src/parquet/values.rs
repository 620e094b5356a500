//! Returns the values of a decoded batch without a copy.
//!
//! Bytes are views. A view refers to a range of one of the batch's pages; values of up to 12 bytes are stored
//! in the view itself. A value returned is a slice of that page or of the views.
//!
//! Source: Arrow columnar format, "Variable-size binary view layout".

use arrow_array::{
    Array, ArrayRef, BinaryViewArray, FixedSizeBinaryArray, RecordBatch, StructArray, cast::AsArray, types::*,
};
use std::{cell::OnceCell, ops::Deref, sync::Arc};

use arrow_schema::DataType;
use bytes::Bytes;

use super::plan::{ColumnPlan, PlannedLists, PlannedRate};
use crate::{
    Error, ErrorKind, Result, cells,
    columns::{self, in_column},
    contract::{Permit, SMALL_READ},
    fields::{Row, Value},
    ids::IdType,
    lists::{ListItem, ListValues, of_array, row_rate},
    nested::{JsonText, NestedColumn, write_array},
    record_rules::NO_LABEL,
};

/// Some rows of a row group, decoded.
#[derive(Debug)]
pub(super) struct GroupValues {
    pub n_rows: usize,
    payload: Option<StructArray>,
    bytes: Option<ByteColumn>,
    path: Option<ByteColumn>,
    /// Recordings that are no views of pages.
    copied: Option<Copied>,
    label: Option<ArrayRef>,
    messages: Option<(NestedColumn, ArrayRef)>,
    beside: Vec<(NestedColumn, ArrayRef)>,
    /// The other columns and their names; `None` for one of nulls.
    others: Vec<(Arc<str>, Option<ArrayRef>)>,
    /// The same as lists of numbers; made at the first use.
    lists: OnceCell<Vec<Option<NumberColumn>>>,
}

/// A column of lists of numbers.
#[derive(Debug)]
struct NumberColumn {
    lists: ArrayRef,
    items: ArrayRef,
    bytes: Bytes,
    id_type: IdType,
}

/// Recordings that are copied out of their array.
#[derive(Debug)]
enum Copied {
    /// Of one length.
    Fixed(FixedSizeBinaryArray),
    /// Lists, and the array of the rates of samples, if it is not known.
    Lists(PlannedLists, ArrayRef, Option<ArrayRef>),
}

#[derive(Debug)]
struct ByteColumn {
    array: BinaryViewArray,
    /// The memory of short values, which no permit grants.
    views: (Bytes, bool),
    /// The pages of long values, and whether each was granted by a permit.
    pages: Vec<(Bytes, bool)>,
    /// Whether each page is much larger than the batch's values in it, and not granted.
    lavish: Vec<bool>,
}

/// Pages up to this size, bytes, are kept for any of their values.
const USUAL: u64 = 64 << 10;

/// Whether pages of `pages` bytes are much larger than the `used` bytes of values in them.
pub(super) fn is_lavish(pages: u64, used: u64) -> bool {
    pages > USUAL && pages / 2 > used
}

/// The longest value that is stored in its view.
const INLINE: usize = 12;

/// A page with the permits of its batch's large pages.
struct PermittedPage<T>(T, #[allow(dead_code, reason = "held")] Arc<[Permit]>);

impl<T: Deref<Target = [u8]>> AsRef<[u8]> for PermittedPage<T> {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl GroupValues {
    pub(super) fn new(batch: &RecordBatch, plan: &ColumnPlan, permits: &Arc<[Permit]>) -> Result<Self> {
        let unexpected =
            || Error::new(ErrorKind::Corrupt, "a column has another type than the footer claims");
        let lists = plan.lists.as_ref().map(|lists| lists.at);
        let payload = match plan.is_struct && plan.bytes.or(plan.path).or(lists).is_some() {
            true => Some(
                batch.columns().first().and_then(|column| column.as_struct_opt()).ok_or_else(unexpected)?,
            ),
            false => None,
        };
        let columns = payload.map_or(batch.columns(), |payload| payload.columns());
        let column = |at: Option<usize>| {
            let Some(at) = at else { return Ok(None) };
            let array = columns.get(at).and_then(|column| column.as_binary_view_opt());
            array.map(|array| Some(ByteColumn::new(array.clone(), permits))).ok_or_else(unexpected)
        };
        let found = |columns: &[ArrayRef], at: usize| columns.get(at).cloned().ok_or_else(unexpected);
        let fixed = plan.bytes.and_then(|at| columns.get(at)?.as_fixed_size_binary_opt().cloned());
        let copied = match &plan.lists {
            Some(lists) => {
                let rate = match lists.rate {
                    PlannedRate::Known(_) => None,
                    PlannedRate::Column(at) => Some(found(batch.columns(), at)?),
                    PlannedRate::Field(at) => Some(found(columns, at)?),
                };
                Some(Copied::Lists(lists.clone(), found(columns, lists.at)?, rate))
            }
            None => fixed.map(Copied::Fixed),
        };
        let bytes = if copied.is_none() { column(plan.bytes)? } else { None };
        let path = column(plan.path)?;
        let label = plan.label.and_then(|at| batch.columns().get(at).cloned());
        let nested =
            |(column, at): &(NestedColumn, usize)| Ok((column.clone(), found(batch.columns(), *at)?));
        let messages = plan.messages.as_ref().map(nested).transpose()?;
        let beside = plan.beside.iter().map(nested).collect::<Result<_>>()?;
        let other = |at: &Option<usize>| batch.columns().get((*at)?).cloned();
        let others = plan.others.iter().map(|(name, at)| (Arc::clone(name), other(at)));
        Ok(Self {
            n_rows: batch.num_rows(),
            payload: payload.cloned(),
            bytes,
            path,
            copied,
            label,
            messages,
            beside,
            others: others.collect(),
            lists: OnceCell::new(),
        })
    }

    /// The values of a row in the other columns.
    ///
    /// # Errors
    /// As [`cells::value`].
    pub(super) fn others(&self, row: usize) -> Result<Row> {
        let value = |(name, array): &(Arc<str>, Option<ArrayRef>)| match array {
            Some(array) => cells::value(array, row).map_err(|error| in_column(name, error)),
            None => Ok(Value::Null),
        };
        self.others.iter().map(value).collect()
    }

    /// The messages of a row as JSON of at most `most` bytes; None if they are null, or in `bytes`.
    ///
    /// # Errors
    /// As [`write_array`].
    pub(super) fn messages(&self, row: usize, most: u64) -> Result<Option<Bytes>> {
        json(self.messages.as_ref(), row, most).map(|text| text.map(Bytes::from))
    }

    /// The values of a row beside its messages, each as JSON of at most `most` bytes.
    ///
    /// # Errors
    /// As [`write_array`].
    pub(super) fn beside(&self, row: usize, most: u64) -> Result<Row> {
        let value = |column| {
            let text = json(Some(column), row, most)?;
            text.map_or(Ok(Value::Null), |text| columns::text(&text))
        };
        self.beside.iter().map(value).collect()
    }

    /// The numbers of a recording that is copied out of its array; None if it is null, or in `bytes`.
    ///
    /// # Errors
    /// As [`of_array`] and [`row_rate`].
    pub(super) fn copied(&self, row: usize) -> Result<Option<ListValues<'_>>> {
        if self.payload.as_ref().is_some_and(|payload| payload.is_null(row)) {
            return Ok(None);
        }
        match &self.copied {
            None => Ok(None),
            Some(Copied::Fixed(array)) => Ok(array.is_valid(row).then(|| {
                let numbers = array.value(row);
                ListValues { numbers, item: ListItem::Byte, channels: 1, rate: 0 }
            })),
            Some(Copied::Lists(lists, array, rates)) => {
                let Some((numbers, channels)) = of_array(array, row, &lists.column)? else { return Ok(None) };
                let rate = match (lists.rate, rates) {
                    (PlannedRate::Known(rate), _) => rate,
                    (_, Some(rates)) => row_rate(&cells::value(rates, row)?)?,
                    _ => 0,
                };
                Ok(Some(ListValues { numbers, item: lists.column.item, channels, rate }))
            }
        }
    }

    /// The numbers of a row of another column, in their type; None if the list is null. Each is `what`, such
    /// as an id.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if one is null.
    pub(super) fn numbers(&self, column: usize, what: &str, row: usize) -> Result<Option<(Bytes, IdType)>> {
        let lists = || self.others.iter().map(|(_, lists)| NumberColumn::of(lists.as_ref()?)).collect();
        let list = self.lists.get_or_init(lists).get(column).and_then(Option::as_ref);
        list.map_or(Ok(None), |list| list.row(what, row))
    }

    /// The bytes of a row; None if they are null.
    pub(super) fn bytes(&self, row: usize) -> Result<Option<Bytes>> {
        self.value(self.bytes.as_ref(), row)
    }

    /// Whether the bytes of a row lie in memory that was granted by a permit.
    pub(super) fn is_granted(&self, row: usize) -> bool {
        self.bytes.as_ref().and_then(|bytes| bytes.place(row)).is_some_and(|(page, ..)| page.1)
    }

    /// Whether the bytes of a row would keep a page alive that is much larger than the batch's values in it.
    pub(super) fn is_lavish(&self, row: usize) -> bool {
        let Some(bytes) = &self.bytes else { return false };
        bytes.number(row).and_then(|page| bytes.lavish.get(page)).copied().unwrap_or(false)
    }

    /// The path of a row; None if it is null.
    pub(super) fn path(&self, row: usize) -> Result<Option<Bytes>> {
        self.value(self.path.as_ref(), row)
    }

    fn value(&self, column: Option<&ByteColumn>, row: usize) -> Result<Option<Bytes>> {
        // The fields of a null struct have no meaning.
        if self.payload.as_ref().is_some_and(|payload| payload.is_null(row)) {
            return Ok(None);
        }
        column.map_or(Ok(None), |column| column.value(row))
    }

    pub(super) fn label(&self, row: usize) -> Result<i64> {
        let Some(label) = self.label.as_ref().filter(|label| label.is_valid(row)) else {
            return Ok(NO_LABEL);
        };
        use DataType::*;
        Ok(match label.data_type() {
            Null => NO_LABEL,
            Boolean => label.as_boolean().value(row).into(),
            Int8 => label.as_primitive::<Int8Type>().value(row).into(),
            Int16 => label.as_primitive::<Int16Type>().value(row).into(),
            Int32 => label.as_primitive::<Int32Type>().value(row).into(),
            Int64 => label.as_primitive::<Int64Type>().value(row),
            UInt8 => label.as_primitive::<UInt8Type>().value(row).into(),
            UInt16 => label.as_primitive::<UInt16Type>().value(row).into(),
            UInt32 => label.as_primitive::<UInt32Type>().value(row).into(),
            UInt64 => {
                let value = label.as_primitive::<UInt64Type>().value(row);
                i64::try_from(value).map_err(|_| {
                    let message = format!(
                        "the label {value} does not fit int64; name another column with label_column="
                    );
                    Error::new(ErrorKind::Schema, message)
                })?
            }
            other => {
                return Err(Error::new(
                    ErrorKind::Schema,
                    format!("labels of type {other} are not supported"),
                ));
            }
        })
    }
}

/// The value of a row as JSON of at most `most` bytes; None if it is null.
fn json(column: Option<&(NestedColumn, ArrayRef)>, row: usize, most: u64) -> Result<Option<Vec<u8>>> {
    let Some((column, array)) = column else { return Ok(None) };
    // A field of structs, of which others are not decoded.
    let mut array = array;
    for _ in 1..column.path.len() {
        if array.is_null(row) {
            return Ok(None);
        }
        let Some([within]) = array.as_struct_opt().map(StructArray::columns) else { return Ok(None) };
        array = within;
    }
    if array.is_null(row) {
        return Ok(None);
    }
    let mut text = JsonText::new(most);
    write_array(&column.values, array, row, &mut text).map_err(|error| in_column(&column.name, error))?;
    Ok(Some(text.finish()))
}

impl NumberColumn {
    /// A column of lists; `None` for another one, such as one of nulls.
    fn of(lists: &ArrayRef) -> Option<Self> {
        use DataType::*;
        // A field of a struct.
        let mut lists = lists;
        while let Some([column]) = lists.as_struct_opt().map(StructArray::columns) {
            lists = column;
        }
        let items = match lists.data_type() {
            List(_) => lists.as_list::<i32>().values(),
            LargeList(_) => lists.as_list::<i64>().values(),
            FixedSizeList(..) => lists.as_fixed_size_list().values(),
            _ => return None,
        };
        let id_type = match items.data_type() {
            UInt8 => IdType::U8,
            Int8 => IdType::I8,
            UInt16 => IdType::U16,
            Int16 => IdType::I16,
            UInt32 => IdType::U32,
            Int32 => IdType::I32,
            UInt64 => IdType::U64,
            Int64 => IdType::I64,
            Float16 => IdType::F16,
            Float32 => IdType::F32,
            Float64 => IdType::F64,
            _ => return None,
        };
        let data = items.to_data();
        let values = data.buffers().first()?;
        let from = data.offset() * id_type.bytes();
        let end = from + items.len() * id_type.bytes();
        let bytes = Bytes::from_owner(values.clone());
        let bytes = bytes.get(from..end).map(|_| bytes.slice(from..end))?;
        Some(Self { lists: lists.clone(), items: items.clone(), bytes, id_type })
    }

    /// The numbers of a row, each of which is `what`.
    fn row(&self, what: &str, row: usize) -> Result<Option<(Bytes, IdType)>> {
        if self.lists.is_null(row) {
            return Ok(None);
        }
        let (from, end) = match self.lists.data_type() {
            DataType::List(_) => {
                let offsets = self.lists.as_list::<i32>().value_offsets();
                (offsets[row] as usize, offsets[row + 1] as usize)
            }
            DataType::LargeList(_) => {
                let offsets = self.lists.as_list::<i64>().value_offsets();
                (offsets[row] as usize, offsets[row + 1] as usize)
            }
            _ => {
                let n = self.lists.as_fixed_size_list().value_length() as usize;
                (row * n, (row + 1) * n)
            }
        };
        if self.items.null_count() > 0 && (from..end).any(|at| self.items.is_null(at)) {
            let one = if what == "id" { "an" } else { "a" };
            return Err(Error::new(ErrorKind::Corrupt, format!("{one} {what} in the list is null")));
        }
        let width = self.id_type.bytes();
        Ok(Some((self.bytes.slice(from * width..end * width), self.id_type)))
    }
}

impl ByteColumn {
    fn new(array: BinaryViewArray, permits: &Arc<[Permit]>) -> Self {
        let views = (Bytes::from_owner(array.views().inner().clone()), false);
        let pages = array.data_buffers().iter().map(|page| {
            let is_granted = page.len() as u64 > SMALL_READ && !permits.is_empty();
            let bytes = match is_granted {
                true => Bytes::from_owner(PermittedPage(page.clone(), Arc::clone(permits))),
                false => Bytes::from_owner(page.clone()),
            };
            (bytes, is_granted)
        });
        let pages: Vec<_> = pages.collect();
        let lavish = lavish(&array, &pages);
        Self { array, views, pages, lavish }
    }

    /// The index in `pages` of the page with a row's bytes; None for short values.
    fn number(&self, row: usize) -> Option<usize> {
        self.array
            .views()
            .get(row)
            .filter(|view| **view as u32 as usize > INLINE)
            .map(|view| (*view >> 64) as u32 as usize)
    }

    fn value(&self, row: usize) -> Result<Option<Bytes>> {
        if self.array.is_null(row) {
            return Ok(None);
        }
        let bytes = self.place(row).and_then(|((page, _), from, len)| {
            let end = from.checked_add(len).filter(|&end| end <= page.len())?;
            Some(page.slice(from..end))
        });
        let wrong = || Error::new(ErrorKind::Corrupt, "a value lies outside of its page");
        bytes.map(Some).ok_or_else(wrong)
    }

    /// The memory of a row's bytes, their offset and their length, from its view.
    fn place(&self, row: usize) -> Option<(&(Bytes, bool), usize, usize)> {
        let view = self.array.views().get(row)?.to_le_bytes();
        let word =
            |at: usize| u32::from_le_bytes([view[at], view[at + 1], view[at + 2], view[at + 3]]) as usize;
        let len = word(0);
        match len {
            0..=INLINE => Some((&self.views, row * view.len() + 4, len)),
            _ => Some((self.pages.get(word(8))?, word(12), len)),
        }
    }
}

/// Which pages are more than twice as large as the values in them, and not granted.
fn lavish(array: &BinaryViewArray, pages: &[(Bytes, bool)]) -> Vec<bool> {
    if !pages.iter().any(|(page, is_granted)| is_lavish(page.len() as u64, 0) && !is_granted) {
        return Vec::new();
    }
    // bounded: by the batch's pages, which are in memory.
    let mut used = vec![0u64; pages.len()];
    for view in array.views().iter().filter(|view| **view as u32 as usize > INLINE) {
        if let Some(used) = used.get_mut((*view >> 64) as u32 as usize) {
            *used += u64::from(*view as u32);
        }
    }
    let is_lavish =
        |((page, is_granted), used): (&(Bytes, bool), u64)| is_lavish(page.len() as u64, used) && !is_granted;
    pages.iter().zip(used).map(is_lavish).collect()
}
