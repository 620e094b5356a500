//! A user's dataset in Python as a leaf: its methods are called on the thread that needs rows.

use std::{sync::Arc, thread, time::Duration};

use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;

use super::{
    arrays::{FieldTuple, field_of},
    calls::expect_calls,
    owned_object::{Callee, OwnedObject},
};
use crate::{
    Error, ErrorKind, Result,
    dataset::{Leaf, LeafLength, LeafSelection},
    fields::Field,
    fork_lock::OnceLock,
};

/// The time between checks of a growing length: the first, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(100)];

#[derive(Debug)]
pub struct PythonLeaf {
    object: Callee,
    name: String,
    fields: OnceLock<Arc<[Field]>>,
}

impl PythonLeaf {
    /// The held object must have the private methods of `forebay.cache.AsyncDataset`.
    pub fn new(held: &Bound<'_, OwnedObject>) -> PyResult<Self> {
        expect_calls();
        let name = held.get().object(held.py()).get_type().fully_qualified_name()?.to_string();
        Ok(Self { object: Callee::new(held)?, name, fields: OnceLock::new() })
    }

    fn call<T>(&self, doing: &str, function: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>) -> Result<T> {
        self.object.call(&format!("{} failed to {doing}", self.name), function)
    }
}

impl Leaf for PythonLeaf {
    fn fields(&self) -> Result<Arc<[Field]>> {
        if let Some(fields) = self.fields.get() {
            return Ok(fields.clone());
        }
        let found = self.call("return its fields", |object| {
            let fields: Option<Vec<FieldTuple>> = object.call_method0("_field_tuples")?.extract()?;
            fields
                .map(|fields| fields.into_iter().map(field_of).collect::<PyResult<Arc<[Field]>>>())
                .transpose()
        })?;
        let unknown = || Error::new(ErrorKind::State, format!("{} is empty and has no `fields`", self.name));
        let fields = found.ok_or_else(unknown)?;
        Ok(self.fields.get_or_init(|| fields).clone())
    }

    fn length(&self) -> Result<LeafLength> {
        self.call("return its length", |object| {
            let (rows, is_final): (Option<u64>, bool) = object.call_method0("_length")?.extract()?;
            Ok(LeafLength { rows: rows.unwrap_or(u64::MAX), is_final })
        })
    }

    fn wait(&self, rows: u64, give_up: &dyn Fn() -> bool) -> Result<LeafLength> {
        let mut pause = PAUSES[0];
        loop {
            let length = self.length()?;
            if length.is_final || length.rows >= rows || give_up() {
                return Ok(length);
            }
            thread::sleep(pause);
            pause = (2 * pause).min(PAUSES[1]);
        }
    }

    fn select<'a>(&'a self, rows: &[u64]) -> Result<Box<dyn LeafSelection + 'a>> {
        let columns = self.call("return documents", |object| {
            let rows = PyArray1::from_iter(object.py(), rows.iter().map(|&row| row as i64));
            let columns = object.call_method1("_columns", (rows,))?;
            let copied = |column: Bound<'_, PyAny>| {
                let (values, shapes): (PyReadonlyArray1<'_, u8>, PyReadonlyArray1<'_, i64>) =
                    column.extract()?;
                let shapes = shapes.as_array().iter().map(|&n| n as u64).collect();
                Ok(FieldValues { values: values.as_slice()?.to_vec(), shapes })
            };
            columns.try_iter()?.map(|column| copied(column?)).collect::<PyResult<Vec<_>>>()
        })?;
        Ok(Box::new(DocumentSelection { columns, fields: self.fields()? }))
    }

    fn describe(&self) -> String {
        self.name.clone()
    }
}

/// The concatenated values of one field, and the shape of each document.
struct FieldValues {
    values: Vec<u8>,
    shapes: Vec<u64>,
}

struct DocumentSelection {
    columns: Vec<FieldValues>,
    fields: Arc<[Field]>,
}

impl LeafSelection for DocumentSelection {
    fn shapes(&mut self, field: usize) -> Result<Vec<u64>> {
        Ok(self.columns[field].shapes.clone())
    }

    fn read(&mut self, field: usize, places: &[usize], data: &mut [u8]) -> Result<()> {
        let (dtype, rank) = (self.fields[field].dtype, self.fields[field].rank());
        let FieldValues { values, shapes } = &self.columns[field];
        let mut rest = &values[..];
        for (row, &place) in places.iter().enumerate() {
            let numbers: u64 = shapes[row * rank..(row + 1) * rank].iter().product();
            let (document, behind) = rest.split_at(numbers as usize * dtype.bytes());
            data[place..place + document.len()].copy_from_slice(document);
            rest = behind;
        }
        Ok(())
    }
}
