//! The bytes of a recording's codec: those of its file as they are, or joined from the pieces of a container.
//!
//! Source: own.

use std::ops::{Deref, Range};

use super::{
    DecoderCache,
    decoder_cache::{PooledVec, VecPool},
};
use crate::{Result, fallible_alloc};

#[derive(Debug)]
pub(crate) enum CodecBytes<'a> {
    /// A file, or a part of it, as it is.
    Whole(&'a [u8]),
    Joined(PooledVec<u8>),
}

impl Deref for CodecBytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Whole(bytes) => bytes,
            Self::Joined(bytes) => bytes,
        }
    }
}

#[derive(Default)]
struct BytePools {
    joined: VecPool<u8>,
}

/// An empty vector for joined bytes, which the worker keeps.
pub(crate) fn pooled_bytes(cache: &mut DecoderCache) -> PooledVec<u8> {
    cache.pools::<BytePools>().joined.take()
}

/// The pieces of `bytes` one after the other, after `head`: copied, unless they are one piece.
pub(crate) fn join<'a>(
    cache: &mut DecoderCache,
    bytes: &'a [u8],
    head: &[u8],
    pieces: &[Range<usize>],
) -> Result<CodecBytes<'a>> {
    if let ([piece], []) = (pieces, head) {
        return Ok(CodecBytes::Whole(&bytes[piece.clone()]));
    }
    let mut joined = pooled_bytes(cache);
    let total = pieces.iter().map(Range::len).fold(head.len(), usize::saturating_add);
    fallible_alloc::reserve(&mut joined, total)?;
    joined.extend_from_slice(head);
    pieces.iter().for_each(|piece| joined.extend_from_slice(&bytes[piece.clone()]));
    Ok(CodecBytes::Joined(joined))
}
