//! Decodes the bytes of a record: samples of a recording ([`audio`]), token ids of a text ([`tokenizer`]).
//!
//! Invariant of both: the output is a pure function of the input. A worker's caches (decoders, words) change
//! no bit of it.

pub use forebay_audio as audio;
pub use forebay_text::tokenizer;

pub use audio::{
    AudioDecoder, Claims, Codec, Damage, FrameLayout, Info, MAX_RATE, Planes, RangeIndex, ReadAt, Recording,
    Repairs, SharedSpans, SpanBytes, SpareBlocks, layout,
};
pub use tokenizer::{Encoder, Tokenizer, TokenizerOptions};
