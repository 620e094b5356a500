//! Maps errors of the core to Python exceptions.

use std::{env, ffi::OsString, io, path::Path};

use pyo3::{
    exceptions::{
        PyException, PyGeneratorExit, PyIndexError, PyMemoryError, PyOSError, PyStopAsyncIteration,
        PyStopIteration, PyValueError,
    },
    prelude::*,
    types::{PyDict, PyTuple, PyType},
};

use crate::{Error, ErrorKind, storage::urls};

pyo3::create_exception!(
    forebay,
    ForebayError,
    PyException,
    "The base of forebay's errors; itself raised by a loader that is closed or was made before a fork."
);
pyo3::create_exception!(
    forebay,
    DecodeError,
    ForebayError,
    "A record failed, and the loader may not skip or replace it."
);
pyo3::create_exception!(
    forebay,
    StateError,
    ForebayError,
    "A state does not belong to this loader, or the call is not possible in its current state."
);

static CONFIG_ERROR: pyo3::sync::PyOnceLock<Py<PyType>> = pyo3::sync::PyOnceLock::new();

/// `ConfigError` has two bases, `ForebayError` and `ValueError`, so it is created by calling `type()`.
fn config_error(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    let made = CONFIG_ERROR.get_or_try_init(py, || {
        let bases = PyTuple::new(
            py,
            [py.get_type::<ForebayError>().into_any(), py.get_type::<PyValueError>().into_any()],
        )?;
        let dict = PyDict::new(py);
        dict.set_item("__module__", "forebay")?;
        dict.set_item(
            "__doc__",
            "Parameters are out of range or files cannot be used; names every problem found.",
        )?;
        let class = py.get_type::<PyType>().call1(("ConfigError", bases, dict))?;
        Ok::<_, PyErr>(class.cast_into::<PyType>()?.unbind())
    })?;
    Ok(made.bind(py))
}

pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("ForebayError", py.get_type::<ForebayError>())?;
    module.add("ConfigError", config_error(py)?)?;
    module.add("DecodeError", py.get_type::<DecodeError>())?;
    module.add("StateError", py.get_type::<StateError>())
}

/// The Python exception for an error: the exception of a user's function, with a note that names the place,
/// or an exception of forebay.
pub fn to_python(py: Python<'_>, error: &Error) -> PyErr {
    let Some(raised) = error.cause.as_deref().and_then(|cause| cause.downcast_ref::<PyErr>()) else {
        return exception(py, error);
    };
    let ends_iteration = raised.is_instance_of::<PyStopIteration>(py)
        || raised.is_instance_of::<PyStopAsyncIteration>(py)
        || raised.is_instance_of::<PyGeneratorExit>(py);
    // `StopIteration` would end the user's loop silently.
    if !ends_iteration && note(py, raised, error.finding()).is_ok() {
        return raised.clone_ref(py);
    }
    let made = exception(py, error);
    made.set_cause(py, Some(raised.clone_ref(py)));
    made
}

/// The most characters of a message: a value from a state or a file may have any length.
const LONGEST: usize = 4000;

/// The message, without its middle if it is longer than [`LONGEST`].
fn shortened(message: String) -> String {
    let n = message.chars().count();
    if n <= LONGEST {
        return message;
    }
    let start: String = message.chars().take(LONGEST / 2).collect();
    let end: String = message.chars().skip(n - LONGEST / 2).collect();
    format!("{start} ... ({} characters left out) ... {end}", n - LONGEST / 2 * 2)
}

/// Adds a note to an exception, only once even if it is raised again.
fn note(py: Python<'_>, raised: &PyErr, text: String) -> PyResult<()> {
    let value = raised.value(py);
    let notes = value.getattr_opt("__notes__")?;
    if !notes.map_or(Ok(false), |notes| notes.contains(&text))? {
        value.call_method1("add_note", (text,))?;
    }
    Ok(())
}

fn exception(py: Python<'_>, error: &Error) -> PyErr {
    use ErrorKind::*;
    let message = shortened(error.to_string());
    match error.kind {
        Config | Format | Schema | Shape => match config_error(py) {
            Ok(class) => PyErr::from_type(class.clone(), message),
            Err(error) => error,
        },
        NotFound | Io => os_error(error, message),
        Memory => PyMemoryError::new_err(message),
        State => StateError::new_err(message),
        Index => PyIndexError::new_err(message),
        Exhausted | TooMany => DecodeError::new_err(message),
        kind if kind.is_record() => DecodeError::new_err(message),
        _ => ForebayError::new_err(message),
    }
}

/// What to do about a path that does not exist; empty for a URL and for an absolute path.
fn missing_hint(file: &Path) -> String {
    let name = file.as_os_str().as_encoded_bytes();
    if urls::is_url(file) {
        String::new()
    } else if name.starts_with(b"~") {
        "; ~ is not expanded: give the folder's whole path, as by os.path.expanduser".to_owned()
    } else if name.contains(&b'\\') {
        "; folders in a path are separated by /, and \\ is part of a name".to_owned()
    } else if let (true, Ok(current)) = (file.is_relative(), env::current_dir()) {
        format!(" (relative to the current folder, {})", current.display())
    } else {
        String::new()
    }
}

/// `OSError(errno, message, filename)`, which Python turns into a subclass such as `FileNotFoundError`.
fn os_error(error: &Error, mut message: String) -> PyErr {
    let file = error.file.as_deref().or(error.place.shard.as_deref());
    let filename = file.map(|file| OsString::from(file.as_os_str()));
    let system = error.cause.as_deref().and_then(|cause| cause.downcast_ref::<io::Error>());
    let errno = system.and_then(io::Error::raw_os_error).unwrap_or(match system.map(io::Error::kind) {
        _ if error.kind == ErrorKind::NotFound => libc::ENOENT,
        Some(io::ErrorKind::InvalidInput) => libc::EINVAL,
        _ => libc::EIO,
    });
    // Python writes the number in front.
    message = message.replacen(&format!(" (os error {errno})"), "", 1);
    // Python writes the file name behind it. In "cannot open FILE: ..." it is left out, but not within a
    // sentence.
    let shown = file.map(|file| format!(" {}: ", file.display()));
    if let Some((front, rest)) = shown.as_ref().and_then(|shown| message.split_once(shown))
        && let clause = front.rsplit(": ").next().unwrap_or_default()
        && clause.starts_with("cannot ")
        && !clause.contains([',', ';'])
    {
        message = format!("{front}: {rest}");
    }
    if error.kind == ErrorKind::NotFound
        && let Some(file) = file
    {
        message.push_str(&missing_hint(file));
    }
    match filename {
        Some(filename) => PyOSError::new_err((errno, message, filename)),
        None => PyOSError::new_err((errno, message)),
    }
}
