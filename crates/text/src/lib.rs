//! Text to rows of tokens: tokenizers with the ids of the original libraries, and packing without padding.
//!
//! ```
//! use forebay_text::{CropRule, Document, Packer, Tokenizer, TokenizerOptions};
//!
//! // A rank file of tiktoken: the bytes of a token in base64 and its id, a token a line.
//! const BASE64: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
//! let sextet = |bits: usize| char::from(BASE64[bits & 63]);
//! let byte = |byte: usize| format!("{}{}== {byte}\n", sextet(byte >> 2), sextet(byte << 4));
//! let ranks: String = (0..256).map(byte).chain(["aGk= 256\n".to_owned()]).collect(); // the last is "hi"
//! let pattern = Some(r"\w+|\W".into());
//! let options = TokenizerOptions { pattern, bos_id: Some(300), ..Default::default() };
//! let tokenizer = Tokenizer::new("tiny".into(), ranks.as_bytes(), &options)?;
//! let mut packer = Packer::new(5, 300, CropRule::Drop);
//! for (row, text) in ["hi!", "h", "hi"].into_iter().enumerate() {
//!     let mut ids = vec![300];
//!     tokenizer.encode_ordinary(text, &mut ids)?;
//!     packer.push(Document { ids, row: row as u64, start: 1, ..Document::default() });
//! }
//! // A row of 5: the longest document that fits, then the longest that fits into what is left.
//! let mut tokens = Vec::new();
//! while tokens.len() < 5 {
//!     packer.place(5 - tokens.len(), |ids| tokens.extend_from_slice(ids));
//! }
//! assert_eq!(tokens, [300, 256, 33, 300, 104]);
//! # Ok::<(), forebay_base::Error>(())
//! ```
//!
//! | file | what |
//! |---|---|
//! | `tokenizer` | files of tiktoken, Hugging Face and SentencePiece; splits text into pieces and merges their parts |
//! | `characters` | an id for each character, for CTC and phonemes |
//! | `transcript` | special tokens and timestamps around a text, as Whisper's |
//! | `chat` | conversations as texts, by templates of Jinja, and the parts that are trained on |
//! | `infill` | texts whose middle comes last (FIM) |
//! | `pack` | best-fit packing: a row is full, each document begins with BOS |
//!
//! Promises: ids are equal to those of the library that the file was written for; a file or a text that is
//! damaged is an error, never a crash; the output is a pure function of the input.

#![warn(missing_docs)]

pub mod tokenizer;
pub mod chat;
pub mod characters;
pub mod transcript;
pub mod infill;
pub mod pack;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
#[cfg(test)]
#[path = "../../../tests/hostile_common/fuzzed.rs"]
mod fuzzed;

use forebay_base::{
    Error, ErrorKind, Result, cancel, catch_panic, fallible_alloc, fork_lock, parallel, seed,
};

pub use characters::{Characters, CharactersOptions};
pub use chat::{ChatTemplate, Conversation, RenderedChat, TrainOn};
pub use infill::{Infill, InfillCut, InfillTokens};
pub use pack::{CropRule, Document, LongRule, MASKED, PackedPiece, Packer};
pub use tokenizer::{Dropout, Encoder, SpecialIds, Tokenizer, TokenizerOptions};
pub use transcript::{SpecialToken, TranscriptFormat, TranscriptOptions, TranscriptSegment};
