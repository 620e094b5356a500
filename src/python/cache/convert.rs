//! Converts rows of files to Python objects, and results of a user's function to documents.

use arrow_array::{Array, ArrayRef, ArrowPrimitiveType, RecordBatch, cast::AsArray, types};
use arrow_schema::DataType as ArrowType;
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::{
    IntoPyObjectExt,
    exceptions::PyTypeError,
    prelude::*,
    types::{PyBytes, PyDict, PyList},
};
use serde_json::Value;

use crate::{
    Error, ErrorKind,
    cache::{BatchColumn, Processed, build::inputs::InputRows},
    fields::DataType,
    source::label_of,
};

/// A field of documents: name, type, axes; then the bytes of the values, the number of values of each
/// document, and the shapes.
type FieldTuple<'py> = (
    String,
    String,
    usize,
    PyReadonlyArray1<'py, u8>,
    PyReadonlyArray1<'py, i64>,
    PyReadonlyArray1<'py, i64>,
);

/// Converts documents from their number and a tuple for each field, as made by
/// `forebay.cache._documents.columns`.
pub fn processed(object: &Bound<'_, PyAny>) -> PyResult<Processed> {
    let (documents, fields): (u64, Vec<FieldTuple<'_>>) = object.extract()?;
    let column = |(name, dtype, rank, data, lengths, shapes): FieldTuple<'_>| {
        let dtype = DataType::from_name(&dtype).ok_or_else(|| {
            let names: Vec<_> = DataType::ALL.iter().map(|dtype| dtype.name()).collect();
            PyTypeError::new_err(format!(
                "field {name:?} has values of {dtype}; expected one of {}",
                names.join(", ")
            ))
        })?;
        let numbers = |array: PyReadonlyArray1<'_, i64>| -> PyResult<Vec<u64>> {
            Ok(array.as_slice()?.iter().map(|&n| n as u64).collect())
        };
        Ok(BatchColumn {
            name,
            dtype,
            rank,
            data: data.as_slice()?.to_vec(),
            lengths: numbers(lengths)?,
            shapes: numbers(shapes)?,
        })
    };
    Ok(Processed { documents, columns: fields.into_iter().map(column).collect::<PyResult<_>>()? })
}

/// A document that another process left out: its row within the shard, the kind and message of its error.
pub type LeftOutTuple = (u64, String, String);

/// The error of a document that another process left out.
pub fn error((row, kind, reason): LeftOutTuple) -> Error {
    Error::new(ErrorKind::of_document(&kind).unwrap_or(ErrorKind::Callback), reason).at_row(row)
}

/// The argument of [`error`].
pub fn left_out(error: &Error) -> LeftOutTuple {
    (error.place.row.unwrap_or(0), error.kind.name().to_owned(), error.reason())
}

/// The argument of [`processed`].
pub fn tuples(py: Python<'_>, processed: Processed) -> PyResult<Bound<'_, PyAny>> {
    let numbers = |all: Vec<u64>| PyArray1::from_vec(py, all.into_iter().map(|n| n as i64).collect());
    let fields = processed.columns.into_iter().map(|column| {
        let data = PyArray1::from_vec(py, column.data);
        (column.name, column.dtype.name(), column.rank, data, numbers(column.lengths), numbers(column.shapes))
            .into_bound_py_any(py)
    });
    (processed.documents, PyList::new(py, fields.collect::<PyResult<Vec<_>>>()?)?).into_bound_py_any(py)
}

/// A list with an object for each row: a dict for a row of a table, a JSON value, or a line.
pub fn rows(py: Python<'_>, rows: InputRows) -> PyResult<Bound<'_, PyList>> {
    match rows {
        InputRows::Text(lines) => PyList::new(py, lines),
        InputRows::Json(values) => {
            let values = values.iter().map(|value| json(py, value)).collect::<PyResult<Vec<_>>>()?;
            PyList::new(py, values)
        }
        InputRows::Table(tables) => {
            let all = PyList::empty(py);
            for table in &tables {
                for row in dicts(py, table)? {
                    all.append(row)?;
                }
            }
            Ok(all)
        }
        InputRows::Recordings(records) => {
            let one = |record: crate::source::RawRecord| {
                let dict = PyDict::new(py);
                dict.set_item("bytes", PyBytes::new(py, &record.payload.bytes))?;
                dict.set_item("label", label_of(&record.values))?;
                Ok(dict)
            };
            PyList::new(py, records.into_iter().map(one).collect::<PyResult<Vec<_>>>()?)
        }
    }
}

fn json<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    match value {
        Value::Null => Ok(py.None().into_bound(py)),
        Value::Bool(value) => value.into_bound_py_any(py),
        Value::String(text) => text.into_bound_py_any(py),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => number.into_bound_py_any(py),
            (_, Some(number)) => number.into_bound_py_any(py),
            _ => number.as_f64().into_bound_py_any(py),
        },
        Value::Array(values) => {
            let values = values.iter().map(|value| json(py, value)).collect::<PyResult<Vec<_>>>()?;
            Ok(PyList::new(py, values)?.into_any())
        }
        Value::Object(object) => {
            let dict = PyDict::new(py);
            object.iter().try_for_each(|(name, value)| dict.set_item(name, json(py, value)?))?;
            Ok(dict.into_any())
        }
    }
}

fn dicts<'py>(py: Python<'py>, table: &RecordBatch) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let dicts: Vec<_> = (0..table.num_rows()).map(|_| PyDict::new(py)).collect();
    for (field, array) in table.schema_ref().fields().iter().zip(table.columns()) {
        let values = items(py, field.name(), array)?;
        dicts.iter().zip(values).try_for_each(|(dict, value)| dict.set_item(field.name(), value))?;
    }
    Ok(dicts)
}

/// Numbers of one type: Python objects, or one array.
struct NumberItems;

impl NumberItems {
    fn items<'py, T: ArrowPrimitiveType>(
        py: Python<'py>,
        array: &ArrayRef,
    ) -> PyResult<Vec<Bound<'py, PyAny>>>
    where
        T::Native: IntoPyObject<'py>,
    {
        array.as_primitive::<T>().iter().map(|value| value.into_bound_py_any(py)).collect()
    }

    fn array<'py, T: ArrowPrimitiveType>(py: Python<'py>, array: &ArrayRef) -> Bound<'py, PyAny>
    where
        T::Native: numpy::Element,
    {
        PyArray1::from_slice(py, array.as_primitive::<T>().values()).into_any()
    }
}

/// Calls `NumberItems::$go::<T>` with the arrow type of `$dtype`, if it is numeric.
macro_rules! numbers {
    ($dtype:expr, $go:ident($($argument:expr),*)) => {
        match $dtype {
            ArrowType::Int8 => Some(NumberItems::$go::<types::Int8Type>($($argument),*)),
            ArrowType::Int16 => Some(NumberItems::$go::<types::Int16Type>($($argument),*)),
            ArrowType::Int32 => Some(NumberItems::$go::<types::Int32Type>($($argument),*)),
            ArrowType::Int64 => Some(NumberItems::$go::<types::Int64Type>($($argument),*)),
            ArrowType::UInt8 => Some(NumberItems::$go::<types::UInt8Type>($($argument),*)),
            ArrowType::UInt16 => Some(NumberItems::$go::<types::UInt16Type>($($argument),*)),
            ArrowType::UInt32 => Some(NumberItems::$go::<types::UInt32Type>($($argument),*)),
            ArrowType::UInt64 => Some(NumberItems::$go::<types::UInt64Type>($($argument),*)),
            ArrowType::Float32 => Some(NumberItems::$go::<types::Float32Type>($($argument),*)),
            ArrowType::Float64 => Some(NumberItems::$go::<types::Float64Type>($($argument),*)),
            _ => None,
        }
    };
}

/// The values of a column as objects: lists of numbers as arrays.
fn items<'py>(py: Python<'py>, name: &str, array: &ArrayRef) -> PyResult<Vec<Bound<'py, PyAny>>> {
    if let Some(items) = numbers!(array.data_type(), items(py, array)) {
        return items;
    }
    let list = |part: Option<ArrayRef>| -> PyResult<Bound<'py, PyAny>> {
        let Some(part) = part else { return Ok(py.None().into_bound(py)) };
        if part.null_count() == 0
            && let Some(numbers) = numbers!(part.data_type(), array(py, &part))
        {
            return Ok(numbers);
        }
        Ok(PyList::new(py, items(py, name, &part)?)?.into_any())
    };
    fn all<'py, T: IntoPyObject<'py>>(
        py: Python<'py>,
        values: impl Iterator<Item = T>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        values.map(|value| value.into_bound_py_any(py)).collect()
    }
    match array.data_type() {
        ArrowType::Null => all(py, (0..array.len()).map(|_| py.None())),
        ArrowType::Boolean => all(py, array.as_boolean().iter()),
        ArrowType::Utf8 => all(py, array.as_string::<i32>().iter()),
        ArrowType::LargeUtf8 => all(py, array.as_string::<i64>().iter()),
        ArrowType::Utf8View => all(py, array.as_string_view().iter()),
        ArrowType::Binary => {
            all(py, array.as_binary::<i32>().iter().map(|value| value.map(|bytes| PyBytes::new(py, bytes))))
        }
        ArrowType::LargeBinary => {
            all(py, array.as_binary::<i64>().iter().map(|value| value.map(|bytes| PyBytes::new(py, bytes))))
        }
        ArrowType::BinaryView => {
            all(py, array.as_binary_view().iter().map(|value| value.map(|bytes| PyBytes::new(py, bytes))))
        }
        ArrowType::List(_) => array.as_list::<i32>().iter().map(list).collect(),
        ArrowType::LargeList(_) => array.as_list::<i64>().iter().map(list).collect(),
        ArrowType::FixedSizeList(..) => array.as_fixed_size_list().iter().map(list).collect(),
        ArrowType::Struct(fields) => {
            let dicts: Vec<_> = (0..array.len()).map(|_| PyDict::new(py)).collect();
            for (field, column) in fields.iter().zip(array.as_struct().columns()) {
                let values = items(py, &format!("{name}.{}", field.name()), column)?;
                dicts.iter().zip(values).try_for_each(|(dict, value)| dict.set_item(field.name(), value))?;
            }
            let one = |(row, dict): (usize, Bound<'py, PyDict>)| {
                if array.is_null(row) { py.None().into_bound(py) } else { dict.into_any() }
            };
            Ok(dicts.into_iter().enumerate().map(one).collect())
        }
        other => Err(PyTypeError::new_err(format!(
            "column {name:?} has type {other}, which is not supported; list the columns to read in columns="
        ))),
    }
}
