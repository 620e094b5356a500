//! Panics of the libraries that decode files and encode texts become errors.
//!
//! `parquet`, `arrow-ipc`, `zarrs` and `tokenizers` return errors for most damaged files, but some files
//! reach an assertion or an index out of bounds. Such a panic is an error of the file: it is caught where the
//! library is called, and the decoder is dropped.

use std::{
    any::Any,
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind},
};

use crate::{Error, ErrorKind, Result};

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Whether a panic on this thread becomes an error, so that the panic hook need not print it.
pub fn is_guarded() -> bool {
    GUARDED.get()
}

/// Calls a decoder. After a panic the decoder must be dropped.
///
/// # Errors
/// [`ErrorKind::Corrupt`] for a panic.
pub fn guarded<T>(work: impl FnOnce() -> T) -> Result<T> {
    caught(work).map_err(|reason| {
        Error::new(ErrorKind::Corrupt, format!("the decoder failed on damaged data: {reason}"))
    })
}

/// Calls a library. After a panic its objects must be dropped, unless they are immutable.
///
/// # Errors
/// The message of a panic.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    let before = GUARDED.replace(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    GUARDED.set(before);
    result.map_err(|panic| text_of(&*panic).to_owned())
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason given")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_are_errors() {
        assert_eq!(guarded(|| 7).unwrap(), 7);
        let error = guarded(|| panic!("index {} of 3", 9)).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Corrupt);
        assert!(error.message.ends_with("index 9 of 3"), "{error}");
        assert!(!GUARDED.get());
    }
}
