//! The values of `tokenizer`: a file, an object of a tokenizer library, or any Python callable.

use std::sync::Arc;

use pyo3::prelude::*;

use super::{
    arguments::wrong_type,
    calls::expect_calls,
    errors::to_python,
    owned_object::{Callee, OwnedObject},
    tokenizer::{EXPECTED, open},
};
use crate::{
    Error, ErrorKind, Result,
    seed::mix,
    tasks::{Encode, EncoderFactory, NoTokenizer},
    tokenizer::{Tokenizer, TokenizerOptions},
};

/// A tokenizer as given by the user.
pub struct UserTokenizer {
    pub vocabulary: Arc<dyn EncoderFactory>,
    /// The tokenizer, unless it is a callable or there is none.
    pub opened: Option<Tokenizer>,
    pub bos: u32,
    pub eos: Option<u32>,
    /// Which ids frame a document, and whether the tokenizer's own EOS is left out.
    pub framing: (String, bool),
    /// Unknown for a callable.
    pub n_vocab: Option<usize>,
    /// The tokenizer's identity in states; for a callable, a hash of its name, `bos` and `eos`.
    pub fingerprint: u64,
    /// The callable, for the object of Python that owns it.
    pub callable: Option<Py<OwnedObject>>,
}

/// Opens the file `tokenizer`, takes that of an object, or a callable from text to ids.
pub fn extract(tokenizer: &Bound<'_, PyAny>, options: TokenizerOptions) -> PyResult<UserTokenizer> {
    let py = tokenizer.py();
    if let Some((opened, ..)) = open(tokenizer, options.clone())? {
        return Ok(UserTokenizer {
            bos: opened.document_bos_id().map_err(|error| to_python(py, &error))?,
            eos: opened.eos_id(),
            framing: opened.framing(),
            n_vocab: Some(opened.n_vocab()),
            fingerprint: opened.fingerprint(),
            vocabulary: Arc::new(opened.clone()),
            opened: Some(opened),
            callable: None,
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
    let eos = options.eos_id;
    let end =
        eos.map_or_else(|| "has no EOS (eos_id= adds one)".to_owned(), |eos| format!("ends with {eos}"));
    let name =
        tokenizer.getattr("__qualname__").and_then(|name| name.extract::<String>()).unwrap_or_default();
    let held = OwnedObject::new(tokenizer)?;
    Ok(UserTokenizer {
        vocabulary: Arc::new(Callable(Arc::new(Callee::new(&held)?))),
        opened: None,
        callable: Some(held.unbind()),
        bos,
        eos,
        framing: (format!("each document begins with {bos} and {end}"), false),
        n_vocab: None,
        fingerprint: {
            let begin = name.bytes().fold(mix(bos.into()), |state, byte| mix(state ^ mix(byte.into())));
            eos.map_or(begin, |eos| mix(begin ^ mix(eos.into())))
        },
    })
}

/// What stands for a tokenizer where rows are ids.
///
/// # Errors
/// [`ErrorKind::Config`] without `bos_id`.
pub fn without(options: &TokenizerOptions) -> Result<UserTokenizer> {
    let wrong = |message: &str| Err(Error::new(ErrorKind::Config, message));
    if options.pattern.is_some() || !options.special_tokens.is_empty() {
        return wrong("pattern and special_tokens are for tokenizer files; leave them out");
    }
    let Some(bos) = options.bos_id else {
        return wrong(
            "bos_id is missing; ids without a tokenizer need the id that begins a document, which each row begins with",
        );
    };
    let eos = options.eos_id;
    let end =
        eos.map_or_else(|| "has no EOS (eos_id= adds one)".to_owned(), |eos| format!("ends with {eos}"));
    let begin = mix(mix(bos.into()));
    Ok(UserTokenizer {
        vocabulary: Arc::new(NoTokenizer),
        opened: None,
        callable: None,
        bos,
        eos,
        framing: (format!("each document begins with {bos} and {end}"), false),
        n_vocab: None,
        fingerprint: eos.map_or(begin, |eos| mix(begin ^ mix(eos.into()))),
    })
}

/// A user's function from a text to its ids.
struct Callable(Arc<Callee>);

impl EncoderFactory for Callable {
    fn encoder(&self) -> Box<dyn Encode> {
        Box::new(Self(self.0.clone()))
    }
}

impl Encode for Callable {
    fn encode(&mut self, text: &str, ids: &mut Vec<u32>) -> Result<()> {
        self.0.call("the tokenizer raised an exception, or did not return ids", |callable| {
            let found = callable.call1((text,))?;
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
