//! The recording of a record: all of its bytes, or the part that was read.

use std::ops::Range;

use crate::{Result, Segment, StoredPayload};
use forebay_audio::{AudioDecoder, Info, Planes, Recording, SpanBytes};

#[expect(clippy::large_enum_variant, reason = "one on the stack of a worker")]
pub enum OpenRecording<'a> {
    Whole(Recording<'a>),
    Span(&'a SpanBytes),
}

impl<'a> OpenRecording<'a> {
    /// Opens what was read of a recording.
    ///
    /// # Errors
    /// As [`AudioDecoder::open`].
    pub fn open(decoder: &mut AudioDecoder, stored: &'a StoredPayload) -> Result<Self> {
        match &stored.span_bytes {
            Some(part) => Ok(OpenRecording::Span(part)),
            None => {
                decoder.track = stored.track;
                decoder.open(&stored.bytes).map(OpenRecording::Whole)
            }
        }
    }

    /// Decodes a span.
    ///
    /// # Errors
    /// As [`AudioDecoder::read`] and [`AudioDecoder::read_span`].
    pub fn read(&self, decoder: &mut AudioDecoder, span: Range<u64>, out: &mut Planes) -> Result<()> {
        match self {
            OpenRecording::Whole(recording) => decoder.read(recording, span, out),
            OpenRecording::Span(part) => decoder.read_span(part, span, out),
        }
    }

    /// Codec, rate, channels and length of the recording, of which a row may be a segment.
    pub fn info(&self) -> Info {
        match self {
            OpenRecording::Whole(recording) => recording.info(),
            OpenRecording::Span(bytes) => bytes.info(),
        }
    }

    /// The recording, if all of its bytes are there.
    pub fn whole(&self) -> Option<&Recording<'_>> {
        match self {
            OpenRecording::Whole(recording) => Some(recording),
            OpenRecording::Span(_) => None,
        }
    }
}

/// The info of a row, which may be a segment of its recording, and the row's samples in the recording.
///
/// # Errors
/// As [`Segment::samples`](crate::Segment::samples).
pub fn info_of_row(info: Info, segment: Option<Segment>) -> Result<(Info, Range<u64>)> {
    let Some(segment) = segment else { return Ok((info, 0..info.n_samples)) };
    let samples = segment.samples(info.sample_rate, info.n_samples)?;
    Ok((Info { n_samples: samples.end - samples.start, ..info }, samples))
}
