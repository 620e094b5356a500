//! The parameter `audio`: the recordings of a row, by the names of their fields.

use pyo3::{IntoPyObjectExt, prelude::*, types::PyDict};

use super::arguments::{Argument, ArgumentError, mapping_items, wrong_type};
use crate::config::{WaveformField, Waveforms};

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
