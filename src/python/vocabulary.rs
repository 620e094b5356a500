//! The values of `tokenizer`: a file, an object of a tokenizer library, or any Python callable.

use std::{ffi::CString, path::PathBuf, sync::Arc};

use pyo3::{exceptions::PyUserWarning, prelude::*};

use super::{
    arguments::wrong_type,
    calls::{call, expect_calls},
    errors::to_python,
    interruptible::run_interruptible,
};
use crate::{
    Error, ErrorKind, Result,
    decode::tokenizer::{Tokenizer, TokenizerOptions},
    seed::mix,
    tasks::{Encode, Vocabulary},
};

/// A tokenizer as given by the user.
pub struct Given {
    pub vocabulary: Arc<dyn Vocabulary>,
    pub bos: u32,
    /// Unknown for a callable.
    pub n_vocab: Option<usize>,
    /// The tokenizer's identity in states; for a callable, a hash of its name and `bos`.
    pub fingerprint: u64,
}

/// A tokenizer of the core and what it was made of, which makes it again in another process.
pub type Opened = (Tokenizer, Py<PyAny>, TokenizerOptions);

/// Opens a file or folder, or takes the tokenizer of an object: of this package, of `tokenizers`, or a fast one
/// of `transformers`. None for any other object. Warns of a BOS beyond the file's ids.
pub fn open(tokenizer: &Bound<'_, PyAny>, mut options: TokenizerOptions) -> PyResult<Option<Opened>> {
    let py = tokenizer.py();
    if let Ok(own) = tokenizer.cast::<super::tokenizer::Tokenizer>() {
        let (core, given, of_own) = own.get().parts(py);
        if options == TokenizerOptions::default() || options == of_own {
            return Ok(Some((core, given, of_own)));
        }
        options.pattern = options.pattern.or(of_own.pattern);
        options.bos_id = options.bos_id.or(of_own.bos_id);
        if options.special_tokens.is_empty() {
            options.special_tokens = of_own.special_tokens;
        }
        return open(given.bind(py), options);
    }
    let made = if let Ok(path) = tokenizer.extract::<PathBuf>() {
        let options = options.clone();
        run_interruptible(py, "forebay-tokenizer", move |_| Tokenizer::open(&path, &options))?
    } else {
        // An object of transformers has that of tokenizers; both are imported already, if it is there.
        let backend = tokenizer.getattr_opt("backend_tokenizer")?.unwrap_or_else(|| tokenizer.clone());
        let module = backend.get_type().module()?;
        if !module.to_cow()?.starts_with("tokenizers") || !backend.hasattr("to_str")? {
            return Ok(None);
        }
        let json: String = backend.call_method0("to_str")?.extract()?;
        let options = options.clone();
        run_interruptible(py, "forebay-tokenizer", move |_| {
            Tokenizer::new("tokenizer".to_owned(), json.as_bytes(), &options)
        })?
    };
    if let Some(warning) = made.bos_warning() {
        let category = py.get_type::<PyUserWarning>();
        PyErr::warn(py, &category, &CString::new(warning).unwrap_or_default(), 2)?;
    }
    Ok(Some((made, tokenizer.clone().unbind(), options)))
}

/// What `open` takes.
pub const EXPECTED: &str =
    "a file or folder with a tokenizer.json, a rank file, or a Tokenizer of forebay or tokenizers";

/// Opens the file `tokenizer`, takes that of an object, or a callable from text to ids.
pub fn extract(tokenizer: &Bound<'_, PyAny>, options: TokenizerOptions) -> PyResult<Given> {
    let py = tokenizer.py();
    if let Some((opened, ..)) = open(tokenizer, options.clone())? {
        return Ok(Given {
            bos: opened.bos_id(),
            n_vocab: Some(opened.n_vocab()),
            fingerprint: opened.fingerprint(),
            vocabulary: Arc::new(opened),
        });
    }
    if !tokenizer.is_callable() {
        let expected = format!("{EXPECTED}, or a callable from a text to its ids");
        return Err(wrong_type("tokenizer", tokenizer, &expected));
    }
    let wrong = |message: &str| Err(to_python(py, &Error::new(ErrorKind::Config, message)));
    if options.pattern.is_some() || !options.special_tokens.is_empty() {
        return wrong(
            "pattern and special_tokens are for tokenizer files, not for a callable; leave them out",
        );
    }
    let Some(bos) = options.bos_id else {
        return wrong("bos_id is missing; a callable tokenizer needs the id that begins a document");
    };
    expect_calls();
    let name =
        tokenizer.getattr("__qualname__").and_then(|name| name.extract::<String>()).unwrap_or_default();
    Ok(Given {
        vocabulary: Arc::new(Callable(Arc::new(tokenizer.clone().unbind()))),
        bos,
        n_vocab: None,
        fingerprint: name.bytes().fold(mix(bos.into()), |state, byte| mix(state ^ mix(byte.into()))),
    })
}

/// A user's function from a text to its ids.
struct Callable(Arc<Py<PyAny>>);

impl Vocabulary for Callable {
    fn encoder(&self) -> Box<dyn Encode> {
        Box::new(Self(self.0.clone()))
    }
}

impl Encode for Callable {
    fn encode(&mut self, text: &str, ids: &mut Vec<u32>) -> Result<()> {
        call("the tokenizer raised an exception, or did not return ids", |py| {
            let found = self.0.bind(py).call1((text,))?;
            match found.extract::<Vec<u32>>() {
                Ok(mut found) => ids.append(&mut found),
                // For example arrays, whose items convert to numbers.
                Err(_) => {
                    for id in found.try_iter()? {
                        ids.push(id?.extract()?);
                    }
                }
            }
            Ok(())
        })
    }
}
