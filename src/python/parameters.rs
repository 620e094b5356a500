//! Arguments of the loaders' methods.

use pyo3::prelude::*;

use super::errors::to_python;
use crate::{Error, ErrorKind, config::shown};

/// The number of a batch, as given in Python.
pub fn batch_number(py: Python<'_>, batch: i64) -> PyResult<u64> {
    u64::try_from(batch).map_err(|_| {
        let message = format!("batch is {}, must be 0 or more", shown(batch));
        to_python(py, &Error::new(ErrorKind::Config, message))
    })
}
