//! Arrays over the memory of batches.
//!
//! Values are never copied on their way out. The base object of a large array is a `_Slot`, which owns the
//! array's memory and nothing else: numpy keeps it alive as long as the array or a view of it. Dropping the
//! last reference returns the slot to its pool, on any thread, without a lock and without a call of the
//! interpreter.

use numpy::{
    PyArray, PyArray1, PyArrayMethods,
    ndarray::{ArrayView, Dimension, IntoDimension},
};
use pyo3::prelude::*;

use crate::batch::{Element, Field, Memory, Slot};

/// The memory of one field of a batch, as the base of the array over it.
#[pyclass(module = "forebay._core", name = "_Slot", frozen)]
struct ArraySlot {
    #[expect(dead_code, reason = "kept for its drop; the array has the pointer")]
    slot: Slot,
}

/// The values of `field`, in the number given by `shape`: C-contiguous, aligned and writable.
pub fn array<T, D>(py: Python<'_>, field: Field<T>, shape: D) -> PyResult<Bound<'_, PyArray<T, D::Dim>>>
where
    T: Element + numpy::Element,
    D: IntoDimension,
{
    let shape = shape.into_dimension();
    assert_eq!(field.len(), shape.size(), "a field and its shape");
    match field.into_memory() {
        Memory::Vector(values) => PyArray1::from_vec(py, values).reshape(shape),
        Memory::Slot(slot) => {
            let values = slot.as_ptr().cast::<T>().as_ptr();
            let base = Bound::new(py, ArraySlot { slot })?;
            // SAFETY: the slot has at least as many values, aligned and initialised; its memory does not move
            // until `base` is dropped, and `base` gives no access to it. The view ends before anything is
            // written through the array.
            unsafe {
                let view = ArrayView::from_shape_ptr(shape, values);
                Ok(PyArray::borrow_from_array(&view, base.into_any()))
            }
        }
    }
}
