//! The loader's parameters as Python's keywords.

use pyo3::{
    prelude::*,
    types::{PyDict, PyType},
};

use super::errors::to_python;
use crate::{
    Error, ErrorKind, LoaderConfig,
    config::{PolicyConfig, shown},
};

/// Calls the class with a preset's parameters, overridden.
pub fn preset<'py>(
    class: &Bound<'py, PyType>,
    arrow_files: &Bound<'py, PyAny>,
    config: &LoaderConfig,
    overrides: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let parameters = positional(class.py(), config)?;
    if let Some(overrides) = overrides {
        parameters.update(overrides.as_mapping())?;
    }
    class.call((arrow_files,), Some(&parameters))
}

/// The parameters as keywords, except files, mixture and columns.
pub fn to_dict<'py>(py: Python<'py>, config: &LoaderConfig) -> PyResult<Bound<'py, PyDict>> {
    let dict = positional(py, config)?;
    macro_rules! set {
        ($($parameter:ident)*) => { $(dict.set_item(stringify!($parameter), &config.$parameter)?;)* };
    }
    set! { order rank world_size n_streams drop_last era_length n_readers prefetch_batches cpu_budget memory_budget raw_channel_bytes }
    set! { max_record_bytes max_decoded_seconds dtype layout n_frames mmap stall_warning_s }
    set_policy(&dict, &config.policy)?;
    Ok(dict)
}

/// Adds the parameters about records that fail.
pub fn set_policy(keywords: &Bound<'_, PyDict>, policy: &PolicyConfig) -> PyResult<()> {
    let PolicyConfig { on_error, on_io_error, max_errors, max_consecutive_errors } = policy;
    keywords.set_item("on_error", on_error)?;
    keywords.set_item("on_io_error", on_io_error)?;
    keywords.set_item("max_errors", *max_errors)?;
    keywords.set_item("max_consecutive_errors", max_consecutive_errors)
}

/// The parameters that may be given by position, as keywords.
pub fn positional<'py>(py: Python<'py>, config: &LoaderConfig) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    macro_rules! set {
        ($($parameter:ident)*) => { $(dict.set_item(stringify!($parameter), config.$parameter)?;)* };
    }
    set! {
        seed batch_size shuffle_buffer_size shuffle_min_size sample_rate clip_seconds n_mels n_fft hop_length n_workers
        raw_channel_size infinite augment
    }
    Ok(dict)
}

/// The number of a batch, as given in Python.
pub fn batch_number(py: Python<'_>, batch: i64) -> PyResult<u64> {
    u64::try_from(batch).map_err(|_| {
        let message = format!("batch is {}, must be 0 or more", shown(batch));
        to_python(py, &Error::new(ErrorKind::Config, message))
    })
}
