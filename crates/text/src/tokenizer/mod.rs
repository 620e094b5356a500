//! Encodes text to token ids.
//!
//! The ids are equal to those of the library that the file was written for: tiktoken's `encode_ordinary`,
//! `tokenizers`' `encode` without special tokens, or `sentencepiece`'s `encode`. Text that looks like a
//! special token is ordinary text.
//!
//! The kind of a file is recognised by its content: Hugging Face's `tokenizer.json` (`hugging_face`),
//! tiktoken's rank file (`ranks`), or SentencePiece's `.model` (`sentence_piece`). Nearly all files of the
//! first two are byte-level byte pair encoding, which `byte_level` implements. A scanner (`scan`), or a
//! regular expression for other patterns (`split`), splits the text; each worker caches words (`words`);
//! other pieces are merged (`pairs`). `docs/decisions.md` compares this with the libraries.
//!
//! Source: own.

mod batch;
mod byte_level;
mod classes;
mod fingerprint;
mod hugging_face;
mod marked;
mod pairs;
mod ranks;
mod scan;
mod sentence_piece;
pub(crate) mod split;
mod table;
pub(crate) mod trie;
mod words;

use std::{collections::BTreeMap, fmt, fs, ops::Range, path::Path, sync::Arc};

use byte_level::ByteLevelScratch;
use fingerprint::Fingerprint;
use sentence_piece::{PieceScratch, SentencePiece};

pub use sentence_piece::SpecialIds;

use crate::{Error, ErrorKind, Result, fallible_alloc, fork_lock};

/// Special tokens that begin a document; the first of these that the file has is used, if its post-processor
/// names none.
const BOS: [&str; 5] = ["<|bos|>", "<|endoftext|>", "<|begin_of_text|>", "<s>", "<bos>"];

/// In fingerprints, where a tokenizer has no BOS: no id is as large.
const NO_ID: u64 = u64::MAX;

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
    bos_id: Option<u32>,
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
    SentencePiece(Box<SentencePiece>),
}

/// The probability with which a merge is left out (BPE dropout), for a tokenizer that merges; see
/// [`Tokenizer::dropout`]. None is left out by default.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Dropout(f64);

impl Tokenizer {
    /// Reads the file `path`, a `tokenizer.json`, a rank file or a SentencePiece model, recognised by its
    /// content; of a folder its `tokenizer.json`.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] and [`ErrorKind::Io`] if the file cannot be read, [`ErrorKind::Format`] if it
    /// is none of these or is damaged, [`ErrorKind::Config`] if a rank file lacks a pattern or if options do
    /// not fit the file.
    pub fn open(path: &Path, options: &TokenizerOptions) -> Result<Self> {
        let in_folder = path.join("tokenizer.json");
        let path = if path.is_dir() { &in_folder } else { path };
        let bytes = fs::read(path).map_err(|cause| {
            let mut error = Error::io(path, "read the tokenizer", cause);
            if error.kind == ErrorKind::NotFound {
                error
                    .message
                    .push_str(", which must be a file: a tokenizer.json, ranks such as gpt2.tiktoken, or a SentencePiece model");
            }
            error
        })?;
        let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        Self::new(name, &bytes, options).map_err(|error| {
            let message = format!("tokenizer {}: {}", path.display(), error.message);
            Error { message, ..error }
        })
    }

    /// Reads a `tokenizer.json`, a rank file or a SentencePiece model, whose content is `bytes`.
    ///
    /// # Errors
    /// As [`Self::open`], without those of reading.
    pub fn new(name: String, bytes: &[u8], options: &TokenizerOptions) -> Result<Self> {
        let text = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes).trim_ascii_start();
        let mut frame = PostProcessorIds::default();
        let alone = |kind: &str| match options.pattern.is_some() || !options.special_tokens.is_empty() {
            true => Err(Error::new(
                ErrorKind::Config,
                format!(
                    "{kind} contains its rules and special tokens; pass neither pattern= nor special_tokens="
                ),
            )),
            false => Ok(()),
        };
        // First, since the first byte of a model is a line feed.
        let backend = if sentence_piece::is_model(bytes) {
            alone("a SentencePiece model")?;
            Backend::SentencePiece(Box::new(SentencePiece::open(bytes)?))
        } else if text.starts_with(b"{") {
            alone("a tokenizer.json")?;
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
                "the file is neither a tokenizer.json of Hugging Face, a rank file of tiktoken (lines of a token in base64 and its rank) \
                 nor a .model file of SentencePiece",
            ));
        };
        let (special_tokens, n_vocab, fingerprint) = match &backend {
            Backend::ByteLevel(it) => (&it.special_tokens, it.n_vocab, it.fingerprint),
            Backend::General(it) => (&it.special_tokens, it.n_vocab, it.fingerprint),
            Backend::SentencePiece(it) => (&it.special_tokens, it.n_vocab, it.fingerprint),
        };
        if let Backend::SentencePiece(it) = &backend {
            frame.before = it.special.bos;
        }
        let by_name = || BOS.iter().find_map(|&text| special_tokens.get(text).copied());
        let bos_id = options.bos_id.or(frame.before).or_else(by_name);
        let eos_id = options.eos_id;
        for (name, id) in [("bos_id", bos_id), ("eos_id", eos_id)] {
            if let Some(id) = id.filter(|&id| id > i32::MAX as u32) {
                return Err(Error::new(ErrorKind::Config, format!("{name} is {id}, must be below 2^31")));
            }
        }
        let n_ids = n_vocab;
        let n_vocab = [bos_id, eos_id].into_iter().flatten().fold(n_ids, |n, id| n.max(id as usize + 1));
        let mut all = Fingerprint::new();
        all.number(fingerprint);
        all.number(bos_id.map_or(NO_ID, u64::from));
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

    /// As [`Self::encode_ordinary`], with some merges left out at random (BPE dropout). The ids are a
    /// function of the tokenizer, `text`, `dropout` and `seed`, on any machine and any number of threads;
    /// with dropout 0 they are those of [`Self::encode_ordinary`].
    ///
    /// # Errors
    /// As [`Self::encode_ordinary`], and [`ErrorKind::Config`] for a `dropout` of a tokenizer that merges if
    /// this one does not.
    pub fn encode_with_dropout(
        &self,
        text: &str,
        dropout: Dropout,
        seed: u64,
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        let mut scratch = fork_lock::lock(&self.0.idle)?.pop().unwrap_or_default();
        let result = self.0.encode_with_dropout(&mut scratch, text, dropout, seed, ids);
        fork_lock::lock(&self.0.idle)?.push(scratch);
        result
    }

    /// BPE dropout with probability `p`.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if `p` is not a probability, or is not 0 for a tokenizer in which dropout is not
    /// defined: a SentencePiece model that is not BPE, or a `tokenizer.json` that the `tokenizers` crate
    /// encodes.
    pub fn dropout(&self, p: f64) -> Result<Dropout> {
        if !(0.0..=1.0).contains(&p) {
            return Err(Error::new(ErrorKind::Config, format!("dropout is {p}, must be 0 to 1")));
        }
        self.0.accept(Dropout(p))?;
        Ok(Dropout(p))
    }

    /// The id of the token with this text, special tokens first. Searches the vocabulary: call it once, not
    /// for each text.
    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        match &self.0.backend {
            Backend::ByteLevel(it) => it.id(token),
            Backend::General(it) => it.id(token),
            Backend::SentencePiece(it) => it.id(token),
        }
    }

    /// Whether ordinary text may have this token: it is neither added to the vocabulary nor a control,
    /// user-defined or unused piece.
    pub fn is_ordinary(&self, id: u32) -> bool {
        match &self.0.backend {
            Backend::ByteLevel(it) => {
                it.text(id).is_some() && !it.special_tokens.values().any(|&it| it == id)
            }
            Backend::General(it) => it.is_ordinary(id),
            Backend::SentencePiece(it) => it.is_ordinary(id),
        }
    }

    /// The special pieces of a SentencePiece model; None for other files.
    pub fn special_ids(&self) -> Option<SpecialIds> {
        match &self.0.backend {
            Backend::SentencePiece(it) => Some(it.special),
            _ => None,
        }
    }

    /// The text of `ids`, special tokens included, except the control pieces of a SentencePiece model, as its
    /// library does. Bytes that are not UTF-8, such as a part of a character, become U+FFFD, as in the
    /// libraries.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for an id without a token, [`ErrorKind::Corrupt`] if the library fails.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        match &self.0.backend {
            Backend::General(it) => it.decode(ids),
            Backend::SentencePiece(it) => it.decode(ids),
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
        let named = [("bos_id", self.bos_id()), ("eos_id", self.eos_id())];
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
        let begin = self.bos_id().map_or_else(|| "no BOS".to_owned(), shown);
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
            Backend::SentencePiece(it) => &it.special_tokens,
        }
    }

    /// The id that begins each document, if the file names one or one was given.
    pub fn bos_id(&self) -> Option<u32> {
        self.0.bos_id
    }

    /// The id that begins each document, where documents need one.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if there is none.
    pub fn document_bos_id(&self) -> Result<u32> {
        self.bos_id().ok_or_else(|| {
            let special_tokens = self.special_tokens();
            let there: Vec<&str> = special_tokens.keys().map(|text| &text[..]).take(8).collect();
            let named = match &self.0.backend {
                Backend::SentencePiece(_) => "the SentencePiece model has no BOS piece".to_owned(),
                _ => format!("none of {} is among them, and no post-processor names one", BOS.join(", ")),
            };
            Error::new(
                ErrorKind::Config,
                format!(
                    "no token of {} begins documents, of {} special tokens ({}): {named}; pass bos_id=",
                    self.name(),
                    special_tokens.len(),
                    there.join(", ")
                ),
            )
        })
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
    /// the `tokenizers` crate encodes, and for SentencePiece models.
    pub fn fingerprint(&self) -> u64 {
        self.0.fingerprint
    }
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TokenizerInner { name, n_vocab, bos_id, .. } = &*self.0;
        let bos_id = bos_id.map_or_else(|| "None".to_owned(), |id| id.to_string());
        write!(f, "Tokenizer({name:?}, n_vocab={n_vocab}, bos_id={bos_id})")
    }
}

/// The caches and buffers of one worker, kept from text to text; those of other tokenizers stay empty.
#[derive(Debug, Default)]
struct EncoderScratch {
    byte_level: ByteLevelScratch,
    pieces: PieceScratch,
}

/// A tokenizer with the buffers and the word cache of one thread, about 1 MiB.
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

    /// As [`Self::encode_ordinary`], with some merges left out at random (BPE dropout).
    ///
    /// # Errors
    /// As [`Tokenizer::encode_with_dropout`].
    pub fn encode_with_dropout(
        &mut self,
        text: &str,
        dropout: Dropout,
        seed: u64,
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        self.tokenizer.0.encode_with_dropout(&mut self.scratch, text, dropout, seed, ids)
    }

    /// Appends the ids of a text with special tokens, such as a conversation by its template: text that looks
    /// like a special token is one. Tokens that have no byte of `parts`, which are in order, get the bit
    /// `masked`.
    ///
    /// # Errors
    /// As [`Tokenizer::encode_ordinary`]; [`ErrorKind::Config`] for a SentencePiece model, whose special
    /// tokens no text has.
    pub fn encode_marked(
        &mut self,
        text: &str,
        parts: &[Range<usize>],
        masked: u32,
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        let Self { tokenizer, scratch } = self;
        all_or_none(text, ids, |ids| match &tokenizer.0.backend {
            Backend::ByteLevel(it) => it.encode_marked(&mut scratch.byte_level, text, (parts, masked), ids),
            Backend::General(it) => it.encode_marked(text, (parts, masked), ids),
            Backend::SentencePiece(_) => Err(Error::new(
                ErrorKind::Config,
                "conversations need a tokenizer.json or a rank file: in a SentencePiece model no text stands for a special token",
            )),
        })
    }

    /// The tokenizer that this encodes with.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }
}

impl TokenizerInner {
    fn encode(&self, scratch: &mut EncoderScratch, text: &str, ids: &mut Vec<u32>) -> Result<()> {
        all_or_none(text, ids, |ids| match &self.backend {
            Backend::ByteLevel(it) => it.encode(&mut scratch.byte_level, text, ids),
            Backend::General(it) => it.encode(text, ids),
            Backend::SentencePiece(it) => it.encode(text, &mut scratch.pieces, ids),
        })
    }

    fn encode_with_dropout(
        &self,
        scratch: &mut EncoderScratch,
        text: &str,
        dropout: Dropout,
        seed: u64,
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        if dropout.0 == 0.0 {
            return self.encode(scratch, text, ids);
        }
        self.accept(dropout)?;
        let dropout = pairs::MergeDropout::new(dropout.0, seed);
        all_or_none(text, ids, |ids| match &self.backend {
            Backend::ByteLevel(it) => it.encode_with_dropout(&mut scratch.byte_level, text, dropout, ids),
            Backend::General(it) => it.encode(text, ids),
            Backend::SentencePiece(it) => it.encode_with_dropout(text, dropout, &mut scratch.pieces, ids),
        })
    }

    /// Refuses a dropout if it is not defined for this tokenizer.
    fn accept(&self, Dropout(p): Dropout) -> Result<()> {
        let has_merges = match &self.backend {
            Backend::ByteLevel(_) => true,
            Backend::General(_) => false,
            Backend::SentencePiece(it) => it.has_merges(),
        };
        if has_merges || p == 0.0 {
            return Ok(());
        }
        let why = match &self.backend {
            Backend::SentencePiece(_) => "its SentencePiece model does not merge (model_type is not bpe)",
            _ => "it is not byte-level BPE with a known pattern and without a normalizer",
        };
        let name = &self.name;
        Err(Error::new(
            ErrorKind::Config,
            format!(
                "dropout is {p}, but BPE dropout is not defined for the tokenizer {name:?}: {why}; leave out dropout="
            ),
        ))
    }
}

/// Calls `encode` and removes the ids that it appended before an error.
fn all_or_none(
    text: &str,
    ids: &mut Vec<u32>,
    encode: impl FnOnce(&mut Vec<u32>) -> Result<()>,
) -> Result<()> {
    if text.len() > MAX_TEXT {
        return Err(Error::new(
            ErrorKind::TooLarge,
            format!("the text has {} bytes, at most {MAX_TEXT} are encoded at once", text.len()),
        ));
    }
    let before = ids.len();
    let result = encode(ids);
    if result.is_err() {
        ids.truncate(before);
    }
    result
}
