//! The recording of a record: all of its bytes, or the part that was read.

use std::ops::Range;

use crate::{
    Result,
    decode::{AudioDecoder, Info, Planes, Recording, SpanBytes},
    record::FileRecording,
};

/// An opened recording.
#[expect(clippy::large_enum_variant, reason = "one on the stack of a worker")]
pub enum OpenRecording<'a> {
    /// Of all bytes.
    Whole(Recording<'a>),
    /// Of a part of them.
    Span(&'a SpanBytes),
}

impl OpenRecording<'_> {
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

impl AudioDecoder {
    /// Opens a record's recording: its bytes, or the part of it.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_recording<'a>(
        &mut self,
        bytes: &'a [u8],
        part: Option<&'a FileRecording>,
    ) -> Result<OpenRecording<'a>> {
        match part.and_then(|part| part.span_bytes.as_ref()) {
            Some(bytes) => Ok(OpenRecording::Span(bytes)),
            None => self.open(bytes).map(OpenRecording::Whole),
        }
    }

    /// As [`Self::read`].
    ///
    /// # Errors
    /// As [`Self::read`] and [`Self::read_span`].
    pub fn read_recording(
        &mut self,
        recording: &OpenRecording<'_>,
        span: Range<u64>,
        out: &mut Planes,
    ) -> Result<()> {
        match recording {
            OpenRecording::Whole(recording) => self.read(recording, span, out),
            OpenRecording::Span(bytes) => self.read_span(bytes, span, out),
        }
    }
}

impl Info {
    /// The info of a row, which may be a segment of its recording, and the row's samples in the recording.
    ///
    /// # Errors
    /// As [`Segment::samples`](crate::record::Segment::samples).
    pub fn of_row(self, part: Option<&FileRecording>) -> Result<(Self, Range<u64>)> {
        let Some(segment) = part.and_then(|part| part.segment) else { return Ok((self, 0..self.n_samples)) };
        let samples = segment.samples(self.sample_rate, self.n_samples)?;
        Ok((Self { n_samples: samples.end - samples.start, ..self }, samples))
    }
}
