//! Encodes text to token ids.
//!
//! The ids are equal to those of the library that the file was written for: tiktoken's `encode_ordinary`, or
//! `tokenizers`' `encode` without special tokens. Text that looks like a special token is ordinary text.
//!
//! The kind of a file is recognised by its content: Hugging Face's `tokenizer.json` (`hugging_face`), or
//! tiktoken's rank file (`ranks`). Nearly all files are byte-level byte pair encoding, which `byte_level`
//! implements. A scanner (`scan`), or a regular expression for other patterns (`split`), splits the text;
//! each worker caches words (`words`); other pieces are merged (`pairs`). `docs/decisions.md` compares this
//! with the libraries.
//!
//! Source: own.

mod batch;
mod byte_level;
mod classes;
mod fingerprint;
mod hugging_face;
mod pairs;
mod ranks;
mod scan;
pub(crate) mod split;
mod table;
mod words;

use std::{collections::BTreeMap, fmt, fs, path::Path, sync::Arc};

use byte_level::EncoderScratch;
use fingerprint::Fingerprint;

use crate::{Error, ErrorKind, Result, fallible_alloc, fork_lock};

/// Special tokens that begin a document; the first of these that the file has is used, if its post-processor
/// names none.
const BOS: [&str; 5] = ["<|bos|>", "<|endoftext|>", "<|begin_of_text|>", "<s>", "<bos>"];

/// The longest text that is encoded at once, bytes: offsets in it are 32-bit numbers.
const MAX_TEXT: usize = u32::MAX as usize - 1;

/// Options for what a tokenizer's file does not contain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenizerOptions {
    /// The regular expression whose matches are the pieces; for rank files only.
    pub pattern: Option<String>,
    /// Special tokens and their ids; for rank files only. If empty, those of the published encoding that the
    /// file is named after.
    pub special_tokens: BTreeMap<String, u32>,
    /// The id that begins each document; None for that of the file.
    pub bos_id: Option<u32>,
    /// The id that ends each document; None for none.
    pub eos_id: Option<u32>,
}

/// The ids that a file's post-processor puts around a text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct PostProcessorIds {
    before: Option<u32>,
    after: Option<u32>,
}

/// Encodes text to token ids. Immutable; clones share it.
#[derive(Clone)]
pub struct Tokenizer(Arc<TokenizerInner>);

struct TokenizerInner {
    backend: Backend,
    name: String,
    bos_id: u32,
    eos_id: Option<u32>,
    frame: PostProcessorIds,
    n_vocab: usize,
    fingerprint: u64,
    /// Unused buffers for [`Tokenizer::encode_ordinary`]; as many as threads have called it at the same time.
    idle: fork_lock::Mutex<Vec<EncoderScratch>>,
    /// The largest id of the file plus one.
    n_ids: usize,
}

enum Backend {
    ByteLevel(Box<byte_level::ByteLevel>),
    General(Box<hugging_face::General>),
}

impl Tokenizer {
    /// Reads the file `path`, a `tokenizer.json` or a rank file, recognised by its content; of a folder its
    /// `tokenizer.json`.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] and [`ErrorKind::Io`] if the file cannot be read, [`ErrorKind::Format`] if it
    /// is neither or is damaged, [`ErrorKind::Config`] if a rank file lacks a pattern, if options do not fit
    /// the file, or if no token begins documents.
    pub fn open(path: &Path, options: &TokenizerOptions) -> Result<Self> {
        let in_folder = path.join("tokenizer.json");
        let path = if path.is_dir() { &in_folder } else { path };
        let bytes = fs::read(path).map_err(|cause| {
            let mut error = Error::io(path, "read the tokenizer", cause);
            if error.kind == ErrorKind::NotFound {
                error
                    .message
                    .push_str(", which must be a file: a tokenizer.json, or ranks such as gpt2.tiktoken");
            }
            error
        })?;
        let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        Self::new(name, &bytes, options).map_err(|error| {
            let message = format!("tokenizer {}: {}", path.display(), error.message);
            Error { message, ..error }
        })
    }

    /// Reads a `tokenizer.json` or a rank file, whose content is `bytes`.
    ///
    /// # Errors
    /// As [`Self::open`], without those of reading.
    pub fn new(name: String, bytes: &[u8], options: &TokenizerOptions) -> Result<Self> {
        let text = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes).trim_ascii_start();
        let mut frame = PostProcessorIds::default();
        let backend = if text.starts_with(b"{") {
            if options.pattern.is_some() || !options.special_tokens.is_empty() {
                return Err(Error::new(
                    ErrorKind::Config,
                    "a tokenizer.json contains its pattern and special tokens; pass neither pattern= nor special_tokens=",
                ));
            }
            let opened;
            (opened, frame) = hugging_face::open(text)?;
            match opened {
                hugging_face::FileTokenizer::ByteLevel(it) => Backend::ByteLevel(it),
                hugging_face::FileTokenizer::General(it) => Backend::General(it),
            }
        } else if ranks::is_ranks(text) {
            Backend::ByteLevel(Box::new(ranks::open(&name, text, options)?))
        } else {
            return Err(Error::new(
                ErrorKind::Format,
                "the file is neither a tokenizer.json of Hugging Face nor a rank file of tiktoken (lines of a token in base64 and its \
                 rank); convert a SentencePiece model to a tokenizer.json",
            ));
        };
        let (special_tokens, n_vocab, fingerprint) = match &backend {
            Backend::ByteLevel(it) => (&it.special_tokens, it.n_vocab, it.fingerprint),
            Backend::General(it) => (&it.special_tokens, it.n_vocab, it.fingerprint),
        };
        let by_name = || BOS.iter().find_map(|&text| special_tokens.get(text).copied());
        let bos_id = options.bos_id.or(frame.before).or_else(by_name).ok_or_else(|| {
            let there: Vec<&str> = special_tokens.keys().map(|text| &text[..]).take(8).collect();
            Error::new(
                ErrorKind::Config,
                format!(
                    "no token begins documents: none of {} is among the {} special tokens ({}), and no post-processor names one; \
                     pass bos_id=",
                    BOS.join(", "),
                    special_tokens.len(),
                    there.join(", ")
                ),
            )
        })?;
        let eos_id = options.eos_id;
        for (name, id) in [("bos_id", Some(bos_id)), ("eos_id", eos_id)] {
            if let Some(id) = id.filter(|&id| id > i32::MAX as u32) {
                return Err(Error::new(ErrorKind::Config, format!("{name} is {id}, must be below 2^31")));
            }
        }
        let n_ids = n_vocab;
        let n_vocab = n_ids.max(bos_id as usize + 1).max(eos_id.map_or(0, |id| id as usize + 1));
        let mut all = Fingerprint::new();
        all.number(fingerprint);
        all.number(bos_id.into());
        // Without EOS as before there was one: states of then are still loaded.
        if let Some(eos_id) = eos_id {
            all.number(eos_id.into());
        }
        let fingerprint = all.finish();
        Ok(Self(Arc::new(TokenizerInner {
            backend,
            name,
            bos_id,
            eos_id,
            frame,
            n_vocab,
            fingerprint,
            idle: fork_lock::Mutex::default(),
            n_ids,
        })))
    }

    /// Appends the ids of `text` to `ids`.
    ///
    /// To encode many texts on one thread, use an [`Encoder`], which keeps its own word cache.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] for a text of 4 GiB or more, [`ErrorKind::Corrupt`] if the regular expression
    /// or the library fails on the text (never with the patterns that have a scanner), [`ErrorKind::Memory`]
    /// if an allocation failed. After an error `ids` is as before.
    pub fn encode_ordinary(&self, text: &str, ids: &mut Vec<u32>) -> Result<()> {
        let mut scratch = fork_lock::lock(&self.0.idle)?.pop().unwrap_or_default();
        let result = self.0.encode(&mut scratch, text, ids);
        fork_lock::lock(&self.0.idle)?.push(scratch);
        result
    }

    /// The text of `ids`, special tokens included. Bytes that are not UTF-8, such as a part of a character,
    /// become U+FFFD, as in tiktoken and `tokenizers`.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for an id without a token, [`ErrorKind::Corrupt`] if the library fails.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        match &self.0.backend {
            Backend::General(it) => it.decode(ids),
            Backend::ByteLevel(it) => {
                let mut bytes = Vec::new();
                for (at, &id) in ids.iter().enumerate() {
                    let text = it.text(id).ok_or_else(|| {
                        let message = format!(
                            "ids[{at}] is {id}, which is no token; the ids of {self:?} are below {}",
                            self.n_vocab()
                        );
                        Error::new(ErrorKind::Config, message)
                    })?;
                    fallible_alloc::grow(&mut bytes, text.len())?;
                    bytes.extend_from_slice(text);
                }
                Ok(match String::from_utf8(bytes) {
                    Ok(text) => text,
                    Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
                })
            }
        }
    }

    /// Encodes each text, on up to `n_threads` threads, including the caller's. Once the work is stopped, the
    /// remaining texts are skipped, and their ids are empty.
    ///
    /// # Errors
    /// As [`Self::encode_ordinary`], for the first text that cannot be encoded, with its index as the row.
    pub fn encode_batch<T: AsRef<str> + Sync>(&self, texts: &[T], n_threads: usize) -> Result<Vec<Vec<u32>>> {
        batch::encode(self, texts, n_threads)
    }

    /// An encoder with working memory of its own: one for each thread.
    pub fn encoder(&self) -> Encoder {
        Encoder { tokenizer: self.clone(), scratch: EncoderScratch::default() }
    }

    /// The largest id plus one: the rows that a model's embedding needs.
    pub fn n_vocab(&self) -> usize {
        self.0.n_vocab
    }

    /// The warning for a BOS or EOS that is no id of the file: a model's embedding may have no row for it.
    pub fn id_warning(&self) -> Option<String> {
        let n_ids = self.0.n_ids;
        let named = [("bos_id", Some(self.bos_id())), ("eos_id", self.eos_id())];
        let (name, id) =
            named.into_iter().find_map(|(name, id)| Some((name, id.filter(|&id| id as usize >= n_ids)?)))?;
        Some(format!(
            "{name} is {id}, but the ids of {} are below {n_ids}; an embedding needs {} rows, or fails on the device",
            self.name(),
            self.n_vocab()
        ))
    }

    /// Which ids frame a document, as a sentence; and whether the file's post-processor ends a text with an
    /// id that is left out here.
    pub fn framing(&self) -> (String, bool) {
        let shown = |id: u32| match self.special_tokens().iter().find(|(_, known)| **known == id) {
            Some((text, _)) => format!("{text} ({id})"),
            None => id.to_string(),
        };
        let begin = shown(self.bos_id());
        let left_out = self.0.frame.after.filter(|_| self.eos_id().is_none());
        let end = match (self.eos_id(), left_out) {
            (Some(eos), _) => format!("ends with {}", shown(eos)),
            (None, Some(after)) => format!(
                "has no EOS, although the tokenizer's post-processor ends a text with {}: pass eos_id={after} to add it",
                shown(after)
            ),
            (None, None) => "has no EOS (eos_id= adds one)".to_owned(),
        };
        (format!("each document begins with {begin} and {end}"), left_out.is_some())
    }

    fn special_tokens(&self) -> &BTreeMap<String, u32> {
        match &self.0.backend {
            Backend::ByteLevel(it) => &it.special_tokens,
            Backend::General(it) => &it.special_tokens,
        }
    }

    /// The id that begins each document.
    pub fn bos_id(&self) -> u32 {
        self.0.bos_id
    }

    /// The id that ends each document, if one was given.
    pub fn eos_id(&self) -> Option<u32> {
        self.0.eos_id
    }

    /// The file's name without its ending.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// A hash of vocabulary, merges, pattern, special tokens, `bos_id` and `eos_id`; of the whole file where
    /// the `tokenizers` crate encodes.
    pub fn fingerprint(&self) -> u64 {
        self.0.fingerprint
    }
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TokenizerInner { name, n_vocab, bos_id, .. } = &*self.0;
        write!(f, "Tokenizer({name:?}, n_vocab={n_vocab}, bos_id={bos_id})")
    }
}

/// A tokenizer with the word cache of one thread, about 1 MiB.
#[derive(Debug)]
pub struct Encoder {
    tokenizer: Tokenizer,
    scratch: EncoderScratch,
}

impl Encoder {
    /// Appends the ids of `text` to `ids`.
    ///
    /// # Errors
    /// As [`Tokenizer::encode_ordinary`].
    pub fn encode_ordinary(&mut self, text: &str, ids: &mut Vec<u32>) -> Result<()> {
        self.tokenizer.0.encode(&mut self.scratch, text, ids)
    }

    /// The tokenizer that this encodes with.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }
}

impl TokenizerInner {
    fn encode(&self, scratch: &mut EncoderScratch, text: &str, ids: &mut Vec<u32>) -> Result<()> {
        if text.len() > MAX_TEXT {
            return Err(Error::new(
                ErrorKind::TooLarge,
                format!("the text has {} bytes, at most {MAX_TEXT} are encoded at once", text.len()),
            ));
        }
        let before = ids.len();
        let result = match &self.backend {
            Backend::ByteLevel(it) => it.encode(scratch, text, ids),
            Backend::General(it) => it.encode(text, ids),
        };
        if result.is_err() {
            ids.truncate(before);
        }
        result
    }
}
