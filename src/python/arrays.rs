//! Batches as dicts of arrays.
//!
//! Values are never copied. The base object of an array owns only the array's memory; numpy keeps it alive as
//! long as the array or a view of it. The base object of a large field is a `_Slot`: dropping the last
//! reference returns the slot to its pool, on any thread, without a lock and without a call of the
//! interpreter.

use std::sync::Arc;

use half::f16;
use numpy::{
    PyArray, PyArray1, PyArrayMethods,
    ndarray::{ArrayView, Dimension, IntoDimension},
};
use pyo3::{
    exceptions::PyTypeError,
    prelude::*,
    types::{PyDict, PyList, PyString},
};
use smallvec::SmallVec;

use super::ending::Inside;
use crate::{
    cache::MAX_RANK,
    fields::{Buffer, Column, Columns, DataType, Dim, Element, Field, Memory, Slot},
};

/// A field for Python: name, type, number of dimensions, and the shape if all rows have the same.
pub type FieldTuple = (String, String, usize, Option<Vec<u64>>);

pub fn field_of((name, dtype, rank, shape): FieldTuple) -> PyResult<Field> {
    let Some(found) = DataType::from_name(&dtype) else {
        let message = format!("field {name:?} has values of type {dtype}, which batches do not support");
        return Err(PyTypeError::new_err(message));
    };
    if rank > MAX_RANK {
        let message = format!("field {name:?} has {rank} axes, an array has at most {MAX_RANK}");
        return Err(PyTypeError::new_err(message));
    }
    match shape {
        Some(shape) if shape.len() != rank => Err(PyTypeError::new_err(format!(
            "field {name:?} has {rank} axes and the shape {shape:?}, must have a length for each"
        ))),
        Some(shape) => Ok(Field::stacked(name, found, shape)),
        None => Ok(Field::of_rank(name, found, rank)),
    }
}

/// The memory of one field of a batch, as the base of the array over it.
#[pyclass(module = "forebay._core", name = "_Slot", frozen)]
struct ArraySlot {
    #[expect(dead_code, reason = "kept for its drop; the array has the pointer")]
    slot: Slot,
}

/// The memory of a small field, as the base of the array over it.
#[pyclass(module = "forebay._core", name = "_Words", frozen)]
struct ArrayWords {
    #[expect(dead_code, reason = "kept for its drop; the array has the pointer")]
    words: Vec<i64>,
}

/// The values of `buffer`, which are of type `dtype` and fill `shape`: C-contiguous, aligned and writable.
pub fn array<'py>(
    py: Python<'py>,
    buffer: Buffer,
    dtype: DataType,
    shape: &[usize],
) -> PyResult<Bound<'py, PyAny>> {
    match dtype {
        // Memory may hold any byte, and most bytes are not valid for Rust's `bool`.
        DataType::Bool => typed::<u8>(py, buffer, shape)?.call_method1("view", ("bool",)),
        DataType::Int8 => typed::<i8>(py, buffer, shape),
        DataType::Int16 => typed::<i16>(py, buffer, shape),
        DataType::Int32 => typed::<i32>(py, buffer, shape),
        DataType::Int64 => typed::<i64>(py, buffer, shape),
        DataType::Uint8 => typed::<u8>(py, buffer, shape),
        DataType::Uint16 => typed::<u16>(py, buffer, shape),
        DataType::Uint32 => typed::<u32>(py, buffer, shape),
        DataType::Uint64 => typed::<u64>(py, buffer, shape),
        DataType::Float16 => typed::<f16>(py, buffer, shape),
        DataType::Float32 => typed::<f32>(py, buffer, shape),
        DataType::Float64 => typed::<f64>(py, buffer, shape),
    }
}

fn typed<'py, T>(py: Python<'py>, buffer: Buffer, shape: &[usize]) -> PyResult<Bound<'py, PyAny>>
where
    T: Element + numpy::Element,
{
    // A fixed number of dimensions saves a fraction of a microsecond.
    match *shape {
        [a] => shaped::<T, _>(py, buffer, [a]),
        [a, b] => shaped::<T, _>(py, buffer, [a, b]),
        [a, b, c] => shaped::<T, _>(py, buffer, [a, b, c]),
        _ => shaped::<T, _>(py, buffer, shape),
    }
}

fn shaped<'py, T, D>(py: Python<'py>, buffer: Buffer, shape: D) -> PyResult<Bound<'py, PyAny>>
where
    T: Element + numpy::Element,
    D: IntoDimension,
{
    let shape = shape.into_dimension();
    assert_eq!(buffer.values::<T>().len(), shape.size(), "a field and its shape");
    let (values, base) = match buffer.into_memory() {
        Memory::Slot(slot) => {
            let values = slot.as_ptr().cast::<T>().as_ptr();
            (values, Bound::new(py, ArraySlot { slot })?.into_any())
        }
        Memory::Vector(mut words) => {
            let values = words.as_mut_ptr().cast::<T>();
            (values, Bound::new(py, ArrayWords { words })?.into_any())
        }
    };
    // SAFETY: the memory has as many values as asserted above, aligned and initialised. It does not move
    // until `base` is dropped, and `base` gives no access to it. The view ends before any write through the
    // array.
    unsafe {
        let view = ArrayView::from_shape_ptr(shape, values);
        Ok(PyArray::borrow_from_array(&view, base).into_any())
    }
}

/// A batch as a dict by field name: arrays `[rows, *shape]`, `JaggedArray`s, and lists of str.
pub fn to_dict<'py>(
    py: Python<'py>,
    columns: Columns,
    fields: &Arc<[Field]>,
) -> PyResult<Bound<'py, PyDict>> {
    let _inside = Inside::begin(py);
    let Columns { rows, columns } = columns;
    let dict = PyDict::new(py);
    for (field, mut column) in fields.iter().zip(columns) {
        // Rows of a packed field lie one after the other.
        let offsets = if field.padded_axis().is_some() { column.offsets.take() } else { None };
        let rows = if offsets.is_some() { None } else { Some(rows) };
        dict.set_item(PyString::intern(py, &field.name), value(py, field, column, rows)?)?;
        if let Some(offsets) = offsets {
            let offsets = PyArray1::from_iter(py, offsets.iter().map(|&at| at as i32));
            dict.set_item(PyString::intern(py, OFFSETS), offsets)?;
        }
    }
    Ok(dict)
}

/// The name of the field that says where each row of a packed one begins.
pub const OFFSETS: &str = "offsets";

/// The values of a field; those of a packed one have no axis of `rows`.
fn value<'py>(
    py: Python<'py>,
    field: &Field,
    column: Column,
    rows: Option<usize>,
) -> PyResult<Bound<'py, PyAny>> {
    let Column { values, offsets, shapes, texts, padded_len } = column;
    if let (true, Some(offsets)) = (field.is_text && field.rank() == 2, &offsets) {
        let rows = offsets.windows(2).map(|row| {
            let texts = texts.get(row[0] as usize..row[1] as usize).unwrap_or_default();
            PyList::new(py, texts.iter().map(|text| &**text))
        });
        return Ok(PyList::new(py, rows.collect::<PyResult<Vec<_>>>()?)?.into_any());
    }
    if field.is_text {
        return Ok(PyList::new(py, texts.iter().map(|text| &**text))?.into_any());
    }
    if !field.dims.contains(&Dim::Ragged) {
        let axis = |dim: &Dim| if let Dim::Fixed(n) = *dim { n } else { padded_len } as usize;
        let shape: SmallVec<[usize; 4]> = rows.into_iter().chain(field.dims.iter().map(axis)).collect();
        return array(py, values, field.dtype, &shape);
    }
    let n = values.len() / field.dtype.bytes();
    let flat = array(py, values, field.dtype, &[n])?;
    let offsets = PyArray1::from_vec(py, offsets.unwrap_or_else(|| vec![0]));
    let class = py.import("forebay._jagged")?.getattr("JaggedArray")?;
    match field.rank() {
        1 => class.call1((flat, offsets)),
        rank => {
            let shapes = PyArray1::from_iter(py, shapes.iter().map(|&n| n as i64));
            class.call1((flat, offsets, shapes.reshape([rows.unwrap_or_default(), rank])?))
        }
    }
}
