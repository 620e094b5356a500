//! `forebay.tokens.Tokenizer`.

use std::{collections::BTreeMap, ffi::CString};

use numpy::PyArray1;
use pyo3::{
    exceptions::{PyTypeError, PyUserWarning},
    prelude::*,
    pybacked::PyBackedStr,
    types::PyDict,
};

use super::{
    arguments::{argument, id, items, named, path, wrong_type},
    ending::detach,
    errors::to_python,
    interruptible::run_interruptible,
};
use crate::{
    Error, ErrorKind,
    error::shown,
    tokenizer::{self, TokenizerOptions},
};

/// A tokenizer of the core and what it was made of, which makes it again in another process.
pub type OpenedTokenizer = (tokenizer::Tokenizer, Py<PyAny>, TokenizerOptions);

/// Opens a file or folder, or takes the tokenizer of an object: of this package, of `tokenizers`, or a fast
/// one of `transformers`. None for any other object. Warns of a BOS or EOS beyond the file's ids.
pub fn open(given: &Bound<'_, PyAny>, mut options: TokenizerOptions) -> PyResult<Option<OpenedTokenizer>> {
    let py = given.py();
    if let Ok(own) = given.cast::<PyTokenizer>() {
        let (core, made_of, of_own) = own.get().parts(py);
        if options == TokenizerOptions::default() || options == of_own {
            return Ok(Some((core, made_of, of_own)));
        }
        options.pattern = options.pattern.or(of_own.pattern);
        options.bos_id = options.bos_id.or(of_own.bos_id);
        options.eos_id = options.eos_id.or(of_own.eos_id);
        if options.special_tokens.is_empty() {
            options.special_tokens = of_own.special_tokens;
        }
        return open(made_of.bind(py), options);
    }
    let made = if let Some(path) = path(given)? {
        let options = options.clone();
        run_interruptible(py, "forebay-tokenizer", move || tokenizer::Tokenizer::open(&path, &options))?
    } else {
        // An object of transformers has that of tokenizers; both are imported already, if it is there.
        let backend = given.getattr_opt("backend_tokenizer")?.unwrap_or_else(|| given.clone());
        let module = backend.get_type().module()?;
        if !module.to_cow()?.starts_with("tokenizers") || !backend.hasattr("to_str")? {
            return Ok(None);
        }
        let json: String = backend.call_method0("to_str")?.extract()?;
        let options = options.clone();
        run_interruptible(py, "forebay-tokenizer", move || {
            tokenizer::Tokenizer::new("tokenizer".to_owned(), json.as_bytes(), &options)
        })?
    };
    if let Some(warning) = made.id_warning() {
        let category = py.get_type::<PyUserWarning>();
        PyErr::warn(py, &category, &CString::new(warning).unwrap_or_default(), 2)?;
    }
    Ok(Some((made, given.clone().unbind(), options)))
}

pub const EXPECTED: &str = "a file or folder with a tokenizer.json, a rank file, a SentencePiece model, or a Tokenizer of forebay or \
                            tokenizers";

/// The most threads of one call.
const MAX_THREADS: i64 = 1024;

/// Tokenizer: encodes text to the same ids as Hugging Face `tokenizers`, tiktoken or SentencePiece, from
/// their files.
///
/// `path` is a Hugging Face `tokenizer.json`, the folder of one, a tiktoken rank file, or a SentencePiece
/// `.model`, recognised by content; or a `tokenizers.Tokenizer`, a fast tokenizer of transformers, or another
/// `Tokenizer`. A rank file holds only tokens. For files called `gpt2`, `r50k_base`, `p50k_base`,
/// `cl100k_base` or `o200k_base` (with any ending), pattern and special tokens are known. Other rank files
/// need `pattern`, the regular expression whose matches are the pieces of a text, and `special_tokens`, a
/// dict from text to id. The other files have their own.
///
/// Text that looks like a special token is encoded as ordinary text. `bos_id` is the id of the token that
/// begins each document: the given one, else the one that the file's post-processor puts before a text or the
/// model's BOS piece, else that of `<|bos|>`, `<|endoftext|>`, `<|begin_of_text|>`, `<s>` or `<bos>`,
/// whichever comes first; None if there is none. `eos_id` is the id of the token that ends each document;
/// without it documents have no EOS. `encode` adds neither. Immutable; may be shared by threads, pickled (as
/// its path and parameters) and sent to other processes.
///
/// Raises `ConfigError` (a `ValueError`) if the file is none of these or is damaged, or if parameters do not
/// fit it, and `OSError` (such as `FileNotFoundError`) if it cannot be read.
#[pyclass(module = "forebay.tokens", name = "Tokenizer", frozen)]
pub struct PyTokenizer {
    tokenizer: tokenizer::Tokenizer,
    given: Py<PyAny>,
    options: TokenizerOptions,
}

#[pymethods]
impl PyTokenizer {
    #[new]
    #[pyo3(signature = (path, *, pattern=None, special_tokens=None, bos_id=None, eos_id=None))]
    fn new(
        path: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = argument::pattern)] pattern: Option<String>,
        #[pyo3(from_py_with = argument::special_tokens)] special_tokens: Option<BTreeMap<String, u32>>,
        #[pyo3(from_py_with = argument::bos_id)] bos_id: Option<i64>,
        #[pyo3(from_py_with = argument::eos_id)] eos_id: Option<i64>,
    ) -> PyResult<Self> {
        let options = TokenizerOptions {
            pattern,
            special_tokens: special_tokens.unwrap_or_default(),
            bos_id: bos_id.map(|token| id(path.py(), "bos_id", token)).transpose()?,
            eos_id: eos_id.map(|token| id(path.py(), "eos_id", token)).transpose()?,
        };
        let opened = open(path, options)?;
        let (tokenizer, given, options) = opened.ok_or_else(|| wrong_type("path", path, EXPECTED))?;
        Ok(Self { tokenizer, given, options })
    }

    /// The text of `ids`, a sequence or array of whole numbers, special tokens included, except the control
    /// pieces of a SentencePiece model. Bytes that are not UTF-8, such as those of a character that is cut in
    /// two, become U+FFFD. Releases the GIL.
    ///
    /// Raises `ConfigError` for an id that is no token, and `DecodeError` if the file's library cannot decode
    /// the ids.
    fn decode(&self, py: Python<'_>, ids: &Bound<'_, PyAny>) -> PyResult<String> {
        let array = ids.getattr_opt("tolist")?;
        let list = array.map_or_else(|| Ok(ids.clone()), |tolist| tolist.call0())?;
        let expected = "a sequence or one-dimensional array of ints";
        let each = items(&list)?.ok_or_else(|| wrong_type("ids", ids, expected))?;
        let ids: Vec<u32> = each
            .enumerate()
            .map(|(at, one)| {
                let name = format!("ids[{at}]");
                let one = one?;
                id(py, &name, named::<i64>(&name, &one)?)
            })
            .collect::<PyResult<_>>()?;
        detach(py, || self.tokenizer.decode(&ids)).map_err(|error| to_python(py, &error))
    }

    /// Encodes a text to ids: uint32 `[n]`. Releases the GIL.
    ///
    /// `dropout` is the probability, 0 to 1, with which each merge of two parts is left out (BPE dropout),
    /// for tokenizers that merge: byte-level BPE, and BPE models of SentencePiece. The ids are a function of
    /// `text`, `dropout` and `seed`, a whole number of 0 to 2^64 - 1, on any machine.
    ///
    /// Raises `UnicodeEncodeError` (a `ValueError`) if the text has surrogates, which are not characters,
    /// `ConfigError` for a `dropout` that is not defined for the tokenizer, `DecodeError` if the file's
    /// library cannot encode the text, and `MemoryError`.
    #[pyo3(signature = (text, *, dropout=0.0, seed=0))]
    fn encode<'py>(
        &self,
        py: Python<'py>,
        text: PyBackedStr,
        #[pyo3(from_py_with = argument::dropout)] dropout: f64,
        #[pyo3(from_py_with = argument::seed)] seed: u64,
    ) -> PyResult<Bound<'py, PyArray1<u32>>> {
        let mut ids = Vec::new();
        detach(py, || {
            let dropout = self.tokenizer.dropout(dropout)?;
            self.tokenizer.encode_with_dropout(&text, dropout, seed, &mut ids)
        })
        .map_err(|error| to_python(py, &error))?;
        Ok(PyArray1::from_vec(py, ids))
    }

    /// Encodes each text to ids, on up to `n_threads` threads: a list of uint32 `[n]`, in the order of
    /// `texts`. Releases the GIL.
    ///
    /// Raises `UnicodeEncodeError` (a `ValueError`) if a text has surrogates, which are not characters,
    /// `DecodeError` if the file's library cannot encode a text, and `MemoryError`.
    #[pyo3(signature = (texts, n_threads=1))]
    fn encode_batch<'py>(
        &self,
        py: Python<'py>,
        texts: &Bound<'py, PyAny>,
        #[pyo3(from_py_with = argument::n_threads)] n_threads: i64,
    ) -> PyResult<Vec<Bound<'py, PyArray1<u32>>>> {
        if texts.is_instance_of::<pyo3::types::PyString>() {
            return Err(PyTypeError::new_err(
                "texts is a str, must be a sequence of str; encode() takes one str",
            ));
        }
        let texts: Vec<PyBackedStr> =
            texts.try_iter()?.map(|text| text?.extract()).collect::<PyResult<_>>()?;
        if !(1..=MAX_THREADS).contains(&n_threads) {
            let message = format!("n_threads is {}, must be 1 to {MAX_THREADS}", shown(n_threads));
            return Err(to_python(py, &Error::new(ErrorKind::Config, message)));
        }
        let tokenizer = self.tokenizer.clone();
        let made = run_interruptible(py, "forebay-encode", move || {
            tokenizer.encode_batch(&texts, n_threads as usize)
        })?;
        Ok(made.into_iter().map(|ids| PyArray1::from_vec(py, ids)).collect())
    }

    /// The largest id plus one.
    #[getter]
    fn n_vocab(&self) -> usize {
        self.tokenizer.n_vocab()
    }

    /// The id of the token whose text is `token`, special tokens first; None if there is none. A piece of a
    /// SentencePiece model has U+2581 for a space; a token of byte-level BPE is found by the text it stands
    /// for in a rank file, and by its name in a `tokenizer.json` that the `tokenizers` crate encodes.
    fn token_to_id(&self, token: &str) -> Option<u32> {
        self.tokenizer.token_to_id(token)
    }

    /// The id of unknown characters in a SentencePiece model; None for other files.
    #[getter]
    fn unk_id(&self) -> Option<u32> {
        self.tokenizer.special_ids()?.unknown
    }

    /// The id of the padding piece of a SentencePiece model; None for other files, and without one.
    #[getter]
    fn pad_id(&self) -> Option<u32> {
        self.tokenizer.special_ids()?.pad
    }

    /// The id of the BOS token, which begins each document; None if the file has none.
    #[getter]
    fn bos_id(&self) -> Option<u32> {
        self.tokenizer.bos_id()
    }

    /// The id of the EOS token, which ends each document; None if documents have no EOS.
    #[getter]
    fn eos_id(&self) -> Option<u32> {
        self.tokenizer.eos_id()
    }

    /// The file's name without its ending.
    #[getter]
    fn name(&self) -> &str {
        self.tokenizer.name()
    }

    fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> PyResult<((&Py<PyAny>,), Bound<'py, PyDict>)> {
        let keywords = PyDict::new(py);
        keywords.set_item("pattern", &self.options.pattern)?;
        keywords.set_item("special_tokens", &self.options.special_tokens)?;
        keywords.set_item("bos_id", self.options.bos_id)?;
        keywords.set_item("eos_id", self.options.eos_id)?;
        Ok(((&self.given,), keywords))
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.tokenizer)
    }
}

impl PyTokenizer {
    /// The tokenizer of the core, what it was made of, and its options.
    pub fn parts(&self, py: Python<'_>) -> OpenedTokenizer {
        (self.tokenizer.clone(), self.given.clone_ref(py), self.options.clone())
    }

    pub fn core(&self) -> &tokenizer::Tokenizer {
        &self.tokenizer
    }
}
