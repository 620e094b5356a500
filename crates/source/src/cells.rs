//! Values of decoded Arrow arrays, one by one.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, cast::AsArray, types::*};
use arrow_schema::DataType;

use super::columns::{MOST_ITEMS, check_pair, check_text, span_fields, text, whole};
use crate::{Error, ErrorKind, Result, fields::Value};

/// The value of a row. A struct has one field, whose value it is, or a start and an end, which are a pair.
///
/// # Errors
/// [`ErrorKind::TooLarge`] for a text or a list beyond the limits; [`ErrorKind::Corrupt`] for text that is
/// not UTF-8; [`ErrorKind::Schema`] for a number beyond int64, or another type.
pub(crate) fn value(array: &ArrayRef, row: usize) -> Result<Value> {
    use DataType::*;
    if array.is_null(row) {
        return Ok(Value::Null);
    }
    let number = |number: i64| Ok(Value::Int(number));
    match array.data_type() {
        Null => Ok(Value::Null),
        Boolean => number(array.as_boolean().value(row).into()),
        Int8 => number(array.as_primitive::<Int8Type>().value(row).into()),
        Int16 => number(array.as_primitive::<Int16Type>().value(row).into()),
        Int32 => number(array.as_primitive::<Int32Type>().value(row).into()),
        Int64 => number(array.as_primitive::<Int64Type>().value(row)),
        UInt8 => number(array.as_primitive::<UInt8Type>().value(row).into()),
        UInt16 => number(array.as_primitive::<UInt16Type>().value(row).into()),
        UInt32 => number(array.as_primitive::<UInt32Type>().value(row).into()),
        UInt64 => whole(array.as_primitive::<UInt64Type>().value(row).into()),
        Float16 => Ok(Value::Float(array.as_primitive::<Float16Type>().value(row).to_f64())),
        Float32 => Ok(Value::Float(array.as_primitive::<Float32Type>().value(row).into())),
        Float64 => Ok(Value::Float(array.as_primitive::<Float64Type>().value(row))),
        Utf8 => short(array.as_string::<i32>().value(row).as_bytes()),
        LargeUtf8 => short(array.as_string::<i64>().value(row).as_bytes()),
        Utf8View => short(array.as_string_view().value(row).as_bytes()),
        Binary => short(array.as_binary::<i32>().value(row)),
        LargeBinary => short(array.as_binary::<i64>().value(row)),
        BinaryView => short(array.as_binary_view().value(row)),
        List(_) => items(&array.as_list::<i32>().value(row)),
        LargeList(_) => items(&array.as_list::<i64>().value(row)),
        FixedSizeList(..) => items(&array.as_fixed_size_list().value(row)),
        Struct(fields) if fields.len() == 1 => value(array.as_struct().column(0), row),
        other if let Some(places) = span_fields(other) => {
            let [start, end] = places.map(|at| value(array.as_struct().column(at), row));
            Ok(Value::List([start?, end?].into()))
        }
        other => Err(Error::new(ErrorKind::Schema, format!("a column of type {other} is not supported"))),
    }
}

fn short(found: &[u8]) -> Result<Value> {
    check_text(found.len() as u64)?;
    text(found)
}

fn items(items: &ArrayRef) -> Result<Value> {
    if items.len() as u64 > MOST_ITEMS {
        let message = format!("a list has {} items, at most {MOST_ITEMS} are read", items.len());
        return Err(Error::new(ErrorKind::TooLarge, message));
    }
    let item = |at| {
        let found = value(items, at)?;
        if let Value::List(pair) = &found {
            check_pair(pair.len() as u64)?;
        }
        Ok(found)
    };
    (0..items.len()).map(item).collect::<Result<Arc<[Value]>>>().map(Value::List)
}
