//! What a format knows of a recording, without its bytes: an [`Index`].
//!
//! It finds the bytes that a span needs, and decodes the span from them. In memory all bytes are there, and
//! the same function decodes.
//!
//! Source: own.

use std::{
    fmt,
    ops::{Deref, Range},
};

use bytes::Bytes;

use crate::{Claims, DecoderCache, Info, Planes, Repairs, Result, index_file::Writer, read_at::RangeReader};

/// What a format knows of a recording: codec, headers, and places of samples.
pub(crate) trait Index: fmt::Debug + Send + Sync {
    /// Reads bytes that hold the samples `span`, which is not empty.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if the bytes contradict the index; errors of the
    /// reads.
    fn read_window(
        &self,
        cache: &mut DecoderCache,
        reader: &RangeReader<'_>,
        span: &Range<u64>,
    ) -> Result<SpanWindow<Bytes>>;

    /// Decodes the samples `span` of every channel into `out`, which already has their shape.
    ///
    /// # Errors
    /// As [`AudioDecoder::read`](crate::AudioDecoder::read).
    fn decode(
        &self,
        cache: &mut DecoderCache,
        window: &SpanWindow<&[u8]>,
        span: Range<u64>,
        out: &mut Planes,
    ) -> Result<()>;

    /// Approximate bytes of memory that it holds beyond itself.
    fn bytes_held(&self) -> usize {
        0
    }

    /// Writes what [`Format::read_index`](crate::formats::Format::read_index) reads.
    fn write(&self, to: &mut Writer);

    /// Adds what the container declares beyond the samples of the recording. The index was made in memory.
    fn add_claims(&self, _info: Info, _claims: &mut Claims) {}

    /// The repairs of a full decode; the index was made in memory.
    fn repairs(&self, _bytes: &[u8]) -> Repairs {
        Repairs::default()
    }
}

/// Bytes of a recording, and what they hold.
#[derive(Debug, Clone)]
pub(crate) struct SpanWindow<B> {
    /// Byte offset of `bytes` in the recording.
    pub(crate) at: u64,
    pub(crate) bytes: B,
    /// Numbers of the units (samples, frames or packets, as the format counts) from `bytes[start..]` on; None
    /// if these are all bytes of the recording.
    pub(crate) units: Option<Range<u64>>,
    pub(crate) start: usize,
}

impl<B: Deref<Target = [u8]>> SpanWindow<B> {
    pub(crate) fn whole(bytes: B) -> Self {
        Self { at: 0, bytes, units: None, start: 0 }
    }

    pub(crate) fn view(&self) -> SpanWindow<&[u8]> {
        SpanWindow { at: self.at, bytes: &self.bytes, units: self.units.clone(), start: self.start }
    }
}
