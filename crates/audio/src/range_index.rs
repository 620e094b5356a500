//! Decodes spans of a recording whose bytes are in a file, from the bytes that the spans need.
//!
//! Input: reads of ranges of bytes ([`ReadAt`]). Output: the samples of any span, equal bit for bit to the
//! same slice of a full decode, but for recordings whose frames or pages are not in the order of their
//! numbers ([`Places::Searched`]). [`RangeIndex::open`] reads head and tail of the recording, or scans it in
//! pieces where its format has no other way; [`RangeIndex::span_bytes`] reads the bytes of a span, usually at
//! once; [`AudioDecoder::read_span`] decodes them by the same code as [`AudioDecoder::read`].
//!
//! What a file says of itself is a claim. A position that the index has was found in the bytes, and bytes
//! that contradict it are an error. A recording that cannot be opened in part, or only with doubt, is read
//! whole.
//!
//! Source: own; the formats' specifications as their modules cite them.

#[cfg(test)]
mod tests;

use std::{ops::Range, sync::Arc};

use bytes::Bytes;

use crate::{
    AudioDecoder, Codec, DecoderCache, Error, ErrorKind, Info, Places, Planes, Repairs, Result,
    formats::{self, AnyIndex, Format, Opened},
    from_byte, id3,
    index::SpanWindow,
    index_file::{Parser, Writer},
    read_at::{RangeReader, ReadAt, ReadSizes},
    sniff,
};

const CODECS: [Codec; 13] = [
    Codec::Pcm,
    Codec::Alaw,
    Codec::Mulaw,
    Codec::AdpcmMs,
    Codec::AdpcmIma,
    Codec::Flac,
    Codec::Vorbis,
    Codec::Mp1,
    Codec::Mp2,
    Codec::Mp3,
    Codec::Aac,
    Codec::Alac,
    Codec::Opus,
];

/// What is known of a recording in a file: codec, length, headers, and places of samples.
///
/// It is shared by threads, holds no file, and has a bounded size for a recording of any length.
#[derive(Debug)]
pub struct RangeIndex {
    pub(crate) size: u64,
    /// The byte at which the format begins, after tags and junk; offsets in the index count from there.
    pub(crate) start: u64,
    pub(crate) format: &'static dyn Format,
    pub(crate) info: Info,
    pub(crate) sizes: ReadSizes,
    /// As [`AudioDecoder::track`] was.
    track: Option<u32>,
    /// None if the recording can only be read whole.
    pub(crate) index: Option<AnyIndex>,
}

/// Bytes of a recording that a span needs, and where they belong.
#[derive(Debug, Clone)]
pub struct SpanBytes {
    index: Arc<RangeIndex>,
    span: Range<u64>,
    window: SpanWindow<Bytes>,
}

impl RangeIndex {
    /// Opens a recording by its head and tail, or by a scan in pieces of bounded memory where a format needs
    /// one.
    ///
    /// # Errors
    /// As [`AudioDecoder::open`] over all bytes, as far as they are read; errors of the reads, and
    /// [`ErrorKind::TooLarge`] if the recording can only be read whole and exceeds [`ReadAt::limit`].
    pub fn open(decoder: &mut AudioDecoder, io: &dyn ReadAt) -> Result<Self> {
        Self::open_by(decoder, io, ReadSizes { whole: io.read_whole_up_to(), ..ReadSizes::USUAL })
    }

    /// The ranges of a recording of `size` bytes that [`Self::open`] reads in most formats; None if it reads
    /// all of it.
    pub fn ends(size: u64) -> Option<[Range<u64>; 2]> {
        let ReadSizes { whole, ends, .. } = ReadSizes::USUAL;
        (size > whole).then(|| [0..ends, size - ends..size])
    }

    fn open_by(decoder: &mut AudioDecoder, io: &dyn ReadAt, sizes: ReadSizes) -> Result<Self> {
        let size = io.size();
        let track = decoder.track;
        let mut reader = RangeReader::new(io, sizes);
        reader.track = track;
        let found = if size > sizes.whole { Self::find(decoder, reader)? } else { None };
        let this = match found {
            Some((format, start, Opened { info, index, .. })) => {
                Self { size, start, format, info, sizes, track, index: Some(index) }
            }
            None => {
                let bytes = RangeReader::new(io, sizes).read(0..size)?;
                let recording = decoder.open(&bytes)?;
                let (format, info) = (recording.format, recording.info());
                Self { size, start: 0, format, info, sizes, track, index: None }
            }
        };
        this.info.check()?;
        Ok(this)
    }

    /// Opens a recording without reading all of its bytes; None if that is not possible.
    fn find<'a>(
        decoder: &mut AudioDecoder,
        mut reader: RangeReader<'a>,
    ) -> Result<Option<(&'static dyn Format, u64, Opened<'a>)>> {
        let (size, ReadSizes { ends, junk, .. }) = (reader.size(), reader.sizes);
        reader.read_cached(0..size.min(ends))?;
        // Tags at the start have up to some MB, with a picture.
        let Some(tags) = reader.parse(|file| Ok(id3::skip(file)))? else { return Ok(None) };
        let mut sniffed = |len: u64| {
            let head = reader.read_cached(tags..size.min(tags + len))?;
            let (format, junk) = sniff::sniff_after(&head, tags > 0)?;
            Ok::<_, Error>((format, tags + junk as u64))
        };
        // Frames may follow junk, and only those after it show whether they are frames.
        let is_same = |(one, at): &(&dyn Format, u64), (other, there): (&dyn Format, u64)| {
            (one.name(), *at) == (other.name(), there)
        };
        let (format, start) = match sniffed(ends) {
            Ok(found) if sniffed(ends / 2).is_ok_and(|again| is_same(&found, again)) => found,
            _ => sniffed(junk)?,
        };
        formats::check_track(format, reader.track)?;
        let start = if format.finds_start() { 0 } else { start };
        if start > 0 {
            reader = reader.within(start..size);
        }
        let opened = decoder.guarded(|cache| format.open(cache, &mut reader)).map_err(from_byte(start))?;
        Ok(opened.map(|opened| (format, start, opened)))
    }

    /// Codec, rate, channels and length, as after opening all bytes.
    pub fn info(&self) -> Info {
        self.info
    }

    /// The name of its format, such as `"flac"`.
    pub fn format(&self) -> &'static str {
        self.format.name()
    }

    /// How the bytes of a span are found; `None` if the recording can only be read whole.
    pub fn places(&self) -> Option<Places> {
        self.index.is_some().then(|| self.format.places())
    }

    /// Approximate bytes of memory that it holds.
    pub fn bytes_held(&self) -> usize {
        size_of::<Self>() + self.index.as_ref().map_or(0, |index| index.bytes_held())
    }

    /// The index as bytes, the content of an [index file](crate::index_file).
    pub fn to_bytes(&self) -> Vec<u8> {
        write(self)
    }

    /// The index that [`Self::to_bytes`] wrote, of the usual track: the bytes do not say which it was.
    ///
    /// # Errors
    /// [`ErrorKind::Format`] for bytes that contradict themselves, as far as decoding depends on them.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        read(bytes)
    }

    /// The same index, of the track for which it was made.
    #[must_use]
    pub fn of_track(self, track: Option<u32>) -> Self {
        Self { track, ..self }
    }

    #[cfg(any(test, fuzzing))]
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Reads the bytes that `span` (in samples) needs: usually one read.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`] for a span beyond the recording, [`ErrorKind::Truncated`] if the file has another
    /// size than before, [`ErrorKind::Corrupt`] if its bytes contradict the index, [`ErrorKind::TooLarge`]
    /// beyond [`ReadAt::limit`], and errors of the reads.
    pub fn span_bytes(
        self: &Arc<Self>,
        decoder: &mut AudioDecoder,
        io: &dyn ReadAt,
        span: Range<u64>,
    ) -> Result<SpanBytes> {
        let n = self.info.n_samples;
        if span.start > span.end || span.end > n {
            let message =
                format!("the span {}..{} is not within the recording's {n} samples", span.start, span.end);
            return Err(Error::new(ErrorKind::Shape, message));
        }
        if io.size() != self.size {
            let message =
                format!("the recording has {} bytes, it had {} when it was indexed", io.size(), self.size);
            return Err(Error::new(ErrorKind::Truncated, message));
        }
        let window = match span.is_empty() {
            true => SpanWindow::whole(Bytes::new()),
            false => decoder.guarded(|cache| self.window(cache, RangeReader::new(io, self.sizes), &span))?,
        };
        Ok(SpanBytes { index: self.clone(), span, window })
    }

    /// Reads the window of `span`, which is not empty.
    fn window(
        &self,
        cache: &mut DecoderCache,
        reader: RangeReader<'_>,
        span: &Range<u64>,
    ) -> Result<SpanWindow<Bytes>> {
        let whole = || reader.read(0..self.size).map(SpanWindow::whole);
        let Some(index) = &self.index else { return whole() };
        let part = reader.within(self.start..self.size);
        match index.read_window(cache, &part, span).map_err(from_byte(self.start)) {
            // Among damaged bytes the places of frames and pages are known by all that is before them.
            Err(error) if error.kind == ErrorKind::Corrupt => {
                whole().map_err(|other| if other.kind == ErrorKind::TooLarge { error } else { other })
            }
            found => found,
        }
    }
}

impl SpanBytes {
    /// Codec, rate, channels and length of the recording.
    pub fn info(&self) -> Info {
        self.index.info
    }

    /// Bytes of the file that it holds.
    #[expect(clippy::len_without_is_empty, reason = "a size in bytes; it has no items")]
    pub fn len(&self) -> usize {
        self.window.bytes.len()
    }
}

impl AudioDecoder {
    /// Decodes the samples `span` (of the recording) of every channel into `out`, which then holds exactly
    /// `span.len()` samples per channel, equal to what [`AudioDecoder::read`] decodes from all bytes.
    ///
    /// # Errors
    /// As [`AudioDecoder::read`], and [`ErrorKind::Shape`] for samples that the part was not read for.
    pub fn read_span(&mut self, span_bytes: &SpanBytes, span: Range<u64>, out: &mut Planes) -> Result<()> {
        let SpanBytes { index: recording, window, .. } = span_bytes;
        let RangeIndex { info, index, start, track, .. } = &**recording;
        self.filled = Repairs::default();
        if !info.prepare(&span, out)? {
            return Ok(());
        }
        if span.start < span_bytes.span.start || span.end > span_bytes.span.end {
            let (from, to) = (span_bytes.span.start, span_bytes.span.end);
            let message = format!(
                "the span {}..{} is not within the samples {from}..{to} that were read",
                span.start, span.end
            );
            return Err(Error::new(ErrorKind::Shape, message));
        }
        let (Some(index), Some(_)) = (index, &window.units) else {
            let recording = self.open_track(&window.bytes, *track)?;
            if recording.info() != *info {
                return Err(super::corrupt("the recording's bytes differ from those that were indexed"));
            }
            return self.read(&recording, span, out);
        };
        let n_samples = span.end - span.start;
        self.decoder_cache.losses.begin(self.damage);
        let decoded = self.guarded(|cache| index.decode(cache, &window.view(), span, out));
        decoded
            .and_then(|()| self.decoder_cache.losses.end(n_samples))
            .map(|filled| self.filled = filled)
            .map_err(from_byte(start + window.at))?;
        out.check_finite()
    }
}

fn write(index: &RangeIndex) -> Vec<u8> {
    let mut to = Writer::default();
    let RangeIndex { size, start, format, info, index, .. } = index;
    to.long(*size);
    to.long(*start);
    to.name(format.name());
    to.byte(CODECS.iter().position(|codec| *codec == info.codec).unwrap_or_default() as u8);
    to.word(info.sample_rate);
    to.word(info.channels.into());
    to.long(info.n_samples);
    to.byte(index.is_some().into());
    if let Some(index) = index {
        index.write(&mut to);
    }
    to.into_bytes()
}

fn read(bytes: &[u8]) -> Result<RangeIndex> {
    let damaged = || {
        let message = "the index of a recording is damaged; it is made again from the recording";
        Error::new(ErrorKind::Format, message)
    };
    let mut from = Parser::from(bytes);
    let index = read_body(&mut from).filter(|_| from.left() == 0).ok_or_else(damaged)?;
    index.info.check().map_err(|_| damaged())?;
    Ok(index)
}

fn read_body(from: &mut Parser<'_>) -> Option<RangeIndex> {
    // No file is larger, and sums of offsets do not overflow.
    let size = from.long().filter(|&size| size < 1 << 60)?;
    let start = from.long().filter(|&start| start <= size)?;
    let format = formats::of_name(from.name()?)?;
    let codec = *CODECS.get(usize::from(from.byte()?))?;
    let info = Info {
        codec,
        sample_rate: from.word()?,
        channels: u16::try_from(from.word()?).ok().filter(|&channels| channels > 0)?,
        n_samples: from.long()?,
    };
    let index = match from.flag()? {
        true => Some(format.read_index(from, size - start, info)?),
        false => None,
    };
    Some(RangeIndex { size, start, format, info, sizes: ReadSizes::USUAL, track: None, index })
}
