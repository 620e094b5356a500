//! The bytes of a recording's codec: those of its file as they are, or joined from the pieces of a container.
//!
//! Source: own.

use std::ops::{Deref, Range};

use super::{
    DecoderCache,
    decoder_cache::{Lent, Shelf},
};
use crate::{Result, fallible_alloc};

/// The bytes of a recording.
#[derive(Debug)]
pub(super) enum Bytes<'a> {
    /// A file, or a part of it, as it is.
    Whole(&'a [u8]),
    /// Extracted from a container.
    Joined(Lent<u8>),
}

impl Deref for Bytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Whole(bytes) => bytes,
            Self::Joined(bytes) => bytes,
        }
    }
}

/// The worker's unused vectors.
#[derive(Default)]
struct Shelves {
    joined: Shelf<u8>,
}

/// An empty vector for joined bytes, which the worker keeps.
pub(super) fn empty(kept: &mut DecoderCache) -> Lent<u8> {
    kept.shelves::<Shelves>().joined.lend()
}

/// The pieces of `bytes` one after the other, after `head`: copied, unless they are one piece.
pub(super) fn join<'a>(
    kept: &mut DecoderCache,
    bytes: &'a [u8],
    head: &[u8],
    pieces: &[Range<usize>],
) -> Result<Bytes<'a>> {
    if let ([piece], []) = (pieces, head) {
        return Ok(Bytes::Whole(&bytes[piece.clone()]));
    }
    let mut joined = empty(kept);
    let total = pieces.iter().map(Range::len).fold(head.len(), usize::saturating_add);
    fallible_alloc::reserve(&mut joined, total)?;
    joined.extend_from_slice(head);
    pieces.iter().for_each(|piece| joined.extend_from_slice(&bytes[piece.clone()]));
    Ok(Bytes::Joined(joined))
}
