//! The recording of a record: all of its bytes, or the part that was read.

use std::ops::Range;

use crate::{
    Result,
    decode::{AudioDecoder, Info, Part, Planes, Recording},
    record::FileRecording,
};

/// An opened recording.
#[expect(clippy::large_enum_variant, reason = "one on the stack of a worker")]
pub enum Held<'a> {
    /// Of all bytes.
    Whole(Recording<'a>),
    /// Of a part of them.
    Part(&'a Part),
}

impl Held<'_> {
    /// Codec, rate, channels and length of the recording, of which a row may be a segment.
    pub fn info(&self) -> Info {
        match self {
            Held::Whole(recording) => recording.info(),
            Held::Part(part) => part.info(),
        }
    }

    /// The recording, if all of its bytes are there.
    pub fn whole(&self) -> Option<&Recording<'_>> {
        match self {
            Held::Whole(recording) => Some(recording),
            Held::Part(_) => None,
        }
    }
}

impl AudioDecoder {
    /// Opens a record's recording: its bytes, or the part of it.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_held<'a>(&mut self, bytes: &'a [u8], part: Option<&'a FileRecording>) -> Result<Held<'a>> {
        match part.and_then(|part| part.part.as_ref()) {
            Some(part) => Ok(Held::Part(part)),
            None => self.open(bytes).map(Held::Whole),
        }
    }

    /// As [`Self::read`].
    ///
    /// # Errors
    /// As [`Self::read`] and [`Self::read_part`].
    pub fn read_held(&mut self, held: &Held<'_>, span: Range<u64>, out: &mut Planes) -> Result<()> {
        match held {
            Held::Whole(recording) => self.read(recording, span, out),
            Held::Part(part) => self.read_part(part, span, out),
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
