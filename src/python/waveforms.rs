//! The parameters `audio`, `track` and `independent`: the recordings of a row, by the names of their fields,
//! the tracks of their files, and those with places of their own.

use pyo3::{
    IntoPyObjectExt,
    prelude::*,
    types::{PyDict, PyList, PyTuple},
};

use super::arguments::{Argument, ArgumentError, mapping_items, wrong_type};
use crate::config::{FieldTracks, Independent, Tracks, WaveformField, Waveforms};

impl Argument for Option<Waveforms> {
    const EXPECTED: &'static str =
        "a dict of names and columns, such as {\"noisy\": \"noisy_path\", \"clean\": \"clean_path\"}";
    const IS_OPTIONAL: bool = true;

    fn read(name: &str, given: &Bound<'_, PyAny>, _: &mut Vec<String>) -> Result<Self, ArgumentError> {
        if given.is_none() {
            return Ok(None);
        }
        let mut fields = Vec::new();
        for [field, columns] in mapping_items(given)?.ok_or(ArgumentError::Type)? {
            let field: String =
                field.extract().map_err(|_| wrong_type(&format!("a name in {name}"), &field, "a str"))?;
            let place = format!("{name}[{field:?}]");
            let (columns, is_stacked) = match columns.extract::<String>() {
                Ok(column) => (vec![column], false),
                Err(_) => {
                    let expected = "a column, or a list of columns";
                    let list = Vec::<String>::read(&place, &columns, &mut Vec::new());
                    (list.map_err(|refused| refused.raised(&place, &columns, expected))?, true)
                }
            };
            // bounded: as many as were given.
            fields.push(WaveformField { name: field, columns, is_stacked });
        }
        Ok(Some(Waveforms { fields }))
    }

    fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let Some(Waveforms { fields }) = self else { return Ok(py.None().into_bound(py)) };
        let dict = PyDict::new(py);
        for WaveformField { name, columns, is_stacked } in fields {
            let columns = if *is_stacked {
                columns.into_bound_py_any(py)?
            } else {
                (&columns[0]).into_bound_py_any(py)?
            };
            dict.set_item(name, columns)?;
        }
        Ok(dict.into_any())
    }
}

impl Argument for Option<Tracks> {
    const EXPECTED: &'static str = "an int, or a dict of names of audio and ints";
    const IS_OPTIONAL: bool = true;

    fn read(name: &str, given: &Bound<'_, PyAny>, problems: &mut Vec<String>) -> Result<Self, ArgumentError> {
        if given.is_none() {
            return Ok(None);
        }
        let Some(items) = mapping_items(given)? else {
            return i64::read(name, given, problems).map(|number| Some(Tracks::All(number)));
        };
        let mut fields = Vec::new();
        for [field, tracks] in items {
            let field: String =
                field.extract().map_err(|_| wrong_type(&format!("a name in {name}"), &field, "a str"))?;
            let place = format!("{name}[{field:?}]");
            let expected = "an int, or a list of ints";
            let tracks = if tracks.is_instance_of::<PyList>() || tracks.is_instance_of::<PyTuple>() {
                let each = tracks.try_iter()?.map(|number| {
                    let number = number?;
                    i64::read(&place, &number, problems)
                        .map_err(|refused| refused.raised(&format!("a number in {place}"), &number, "an int"))
                });
                FieldTracks::Each(each.collect::<PyResult<_>>()?)
            } else {
                let number = i64::read(&place, &tracks, problems);
                FieldTracks::One(number.map_err(|refused| refused.raised(&place, &tracks, expected))?)
            };
            // bounded: as many as were given.
            fields.push((field, tracks));
        }
        Ok(Some(Tracks::Named(fields)))
    }

    fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let fields = match self {
            None => return Ok(py.None().into_bound(py)),
            Some(Tracks::All(number)) => return number.into_bound_py_any(py),
            Some(Tracks::Named(fields)) => fields,
        };
        let dict = PyDict::new(py);
        for (name, tracks) in fields {
            match tracks {
                FieldTracks::One(number) => dict.set_item(name, number)?,
                FieldTracks::Each(numbers) => dict.set_item(name, numbers)?,
            }
        }
        Ok(dict.into_any())
    }
}

impl Argument for Option<Independent> {
    const EXPECTED: &'static str = "a list of names of audio, or a dict of such names and columns";
    const IS_OPTIONAL: bool = true;

    fn read(name: &str, given: &Bound<'_, PyAny>, problems: &mut Vec<String>) -> Result<Self, ArgumentError> {
        if given.is_none() {
            return Ok(None);
        }
        let Some(items) = mapping_items(given)? else {
            let names = Vec::<String>::read(name, given, problems)?;
            let fields = names.into_iter().map(|field| (field, None)).collect();
            return Ok(Some(Independent { fields, is_named: false }));
        };
        let mut fields = Vec::new();
        for [field, column] in items {
            let field: String =
                field.extract().map_err(|_| wrong_type(&format!("a name in {name}"), &field, "a str"))?;
            let column = column.extract::<Option<String>>().map_err(|_| {
                wrong_type(&format!("{name}[{field:?}]"), &column, "a str, the name of a column, or None")
            })?;
            // bounded: as many as were given.
            fields.push((field, column));
        }
        Ok(Some(Independent { fields, is_named: true }))
    }

    fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let Some(Independent { fields, is_named }) = self else { return Ok(py.None().into_bound(py)) };
        if !is_named {
            return fields.iter().map(|(name, _)| name).collect::<Vec<_>>().into_bound_py_any(py);
        }
        let dict = PyDict::new(py);
        for (name, column) in fields {
            dict.set_item(name, column)?;
        }
        Ok(dict.into_any())
    }
}
