//! Decodes spans of a recording whose bytes are in a file, from the bytes that the spans need.
//!
//! Input: reads of ranges of bytes ([`ReadBytes`]). Output: the samples of any span, equal bit for bit to the
//! same slice of a full decode. [`RangeIndex::open`] reads head and tail of the recording, or scans it in
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
    AudioDecoder, DecoderCache, Error, ErrorKind, Info, Planes, Repairs, Result,
    formats::{
        aiff, au,
        flac::{frame::Frame, index as flac},
        mpeg::index as mpeg,
        vorbis::index as vorbis,
        wav,
    },
    id3, index_file,
    locate::{ByteWindow, WindowSamples},
    packet_index as packets, pcm,
    read_at::RangeReader,
    sniff::{self, Format},
};

/// Bytes of a recording that lies in a file of its own, or in a tar.
pub trait ReadBytes {
    /// Bytes of the recording; the ranges of [`ReadBytes::read`] end there.
    fn size(&self) -> u64;

    /// Reads exactly this range.
    ///
    /// # Errors
    /// If the range cannot be read, or the file has no such bytes.
    fn read(&self, range: Range<u64>) -> Result<Bytes>;

    /// The most bytes that may be held at once: those of a span, or of a recording that can only be read
    /// whole.
    fn limit(&self) -> u64 {
        1 << 30
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadSizes {
    /// Recordings of up to so many bytes are read whole.
    pub(crate) whole: u64,
    /// Bytes read at the start and at the end when a recording is opened.
    pub(crate) ends: u64,
    /// Bytes read at the start to recognise MPEG audio after junk.
    pub(crate) junk: u64,
    /// Bytes read before and after those where a span is expected.
    pub(crate) margin: u64,
    /// Bytes of the pieces of a scan.
    pub(crate) piece: u64,
}

impl ReadSizes {
    pub(crate) const USUAL: Self = Self {
        whole: 128 << 10,
        ends: 64 << 10,
        junk: 2 * sniff::MAX_JUNK as u64,
        margin: 48 << 10,
        piece: 1 << 20,
    };
}

/// What is known of a recording in a file: codec, length, headers, and places of samples.
///
/// It is shared by threads, holds no file, and has a bounded size for a recording of any length.
#[derive(Debug)]
pub struct RangeIndex {
    pub(crate) size: u64,
    pub(crate) info: Info,
    pub(crate) sizes: ReadSizes,
    pub(crate) format: FormatIndex,
}

/// What an index knows, by the way in which spans are located.
#[derive(Debug)]
pub(crate) enum FormatIndex {
    /// The recording can only be read whole.
    Whole,
    /// Samples or blocks at multiples of a number of bytes.
    Linear(pcm::PcmFormat),
    Flac(flac::FlacIndex),
    Vorbis(vorbis::VorbisIndex),
    Mpeg(mpeg::MpegIndex),
    Packets(packets::PacketIndex),
}

/// What a part needs to decode its bytes.
#[derive(Debug, Clone)]
enum SpanContext {
    Whole,
    /// The first sample in the bytes.
    Linear(u64),
    Flac(WindowSamples<Frame>),
    Vorbis,
    Mpeg(mpeg::FirstFrame),
    Packets(Range<usize>),
}

/// Bytes of a recording that a span needs, and where they belong.
#[derive(Debug, Clone)]
pub struct SpanBytes {
    index: Arc<RangeIndex>,
    span: Range<u64>,
    /// Byte offset of `bytes` in the recording.
    at: u64,
    bytes: Bytes,
    context: SpanContext,
}

impl RangeIndex {
    /// Opens a recording by its head and tail, or by a scan in pieces of bounded memory where a format needs
    /// one.
    ///
    /// # Errors
    /// As [`AudioDecoder::open`] over all bytes, as far as they are read; errors of the reads, and
    /// [`ErrorKind::TooLarge`] if the recording can only be read whole and exceeds [`ReadBytes::limit`].
    pub fn open(decoder: &mut AudioDecoder, io: &dyn ReadBytes) -> Result<Self> {
        Self::open_by(decoder, io, ReadSizes::USUAL)
    }

    /// The ranges of a recording of `size` bytes that [`Self::open`] reads in most formats; None if it reads
    /// all of it.
    pub fn ends(size: u64) -> Option<[Range<u64>; 2]> {
        let ReadSizes { whole, ends, .. } = ReadSizes::USUAL;
        (size > whole).then(|| [0..ends, size - ends..size])
    }

    fn open_by(decoder: &mut AudioDecoder, io: &dyn ReadBytes, sizes: ReadSizes) -> Result<Self> {
        let (info, format) = match Self::find(decoder, io, sizes)? {
            Some(found) => found,
            None => (decoder.open(&RangeReader::new(io).read(0..io.size())?)?.info(), FormatIndex::Whole),
        };
        info.check()?;
        Ok(Self { size: io.size(), info, sizes, format })
    }

    /// Opens a recording without reading all of its bytes; None if that is not possible.
    fn find(
        decoder: &mut AudioDecoder,
        io: &dyn ReadBytes,
        sizes: ReadSizes,
    ) -> Result<Option<(Info, FormatIndex)>> {
        if io.size() <= sizes.whole {
            return Ok(None);
        }
        let mut reader = RangeReader::new(io);
        reader.read_cached(0..io.size().min(sizes.ends))?;
        // Tags at the start have up to some MB, with a picture.
        let Some(tags) = reader.parse_with_reads(|file| Ok(id3::skip(file)))? else { return Ok(None) };
        let sniffed = |reader: &mut RangeReader<'_>, len: u64| {
            let head = reader.read_cached(tags..io.size().min(tags + len))?;
            sniff::sniff_after(&head, tags > 0)
        };
        // Frames may follow junk, and only those after it show whether they are frames.
        let (format, junk) = match sniffed(&mut reader, sizes.ends) {
            Ok(format) if sniffed(&mut reader, sizes.ends / 2).is_ok_and(|again| again == format) => format,
            _ => sniffed(&mut reader, sizes.junk)?,
        };
        // Formats that find their own start after tags and junk, and others, whose offsets begin with them.
        let has_start = matches!(format, Format::Flac | Format::Mpeg | Format::Adts | Format::Wav);
        if tags > 0 && !has_start {
            return Ok(None);
        }
        decoder.guarded(|cache| {
            let mpeg_in = |reader: &mut RangeReader<'_>, range| {
                let found = mpeg::MpegIndex::open(reader, &sizes, range)?;
                Ok::<_, Error>(found.map(|(info, index)| (info, FormatIndex::Mpeg(index))))
            };
            let linear = |shape: pcm::PcmFormat| Some((shape.info, FormatIndex::Linear(shape)));
            Ok(match format {
                Format::Wav => {
                    let mut behind = RangeReader::within(io, tags..io.size());
                    let reader = if tags > 0 { &mut behind } else { &mut reader };
                    match reader.parse_with_reads(|file| wav::find(file))? {
                        None => None,
                        Some(wav::WavContent::Pcm(shape)) => linear(shape.after(tags)),
                        Some(wav::WavContent::Mpeg(data)) => {
                            let data = data.start + tags..data.end + tags;
                            mpeg_in(&mut RangeReader::within(io, data.clone()), data)?
                        }
                    }
                }
                Format::Wave64 => reader.parse_with_reads(|file| wav::find_wave64(file))?.and_then(linear),
                Format::Aiff => reader.parse_with_reads(|file| aiff::find(file))?.and_then(linear),
                Format::Au => reader.parse_with_reads(|file| au::find(file))?.and_then(linear),
                Format::Caf => match packets::PacketIndex::open_caf(cache, &mut reader)? {
                    Some(packets::ContainerContent::Pcm(shape)) => linear(shape),
                    Some(packets::ContainerContent::Packets(info, index)) => {
                        Some((info, FormatIndex::Packets(index)))
                    }
                    None => None,
                },
                Format::Mp4 => match packets::PacketIndex::open_mp4(cache, &mut reader)? {
                    Some(packets::ContainerContent::Pcm(shape)) => linear(shape),
                    Some(packets::ContainerContent::Packets(info, index)) => {
                        Some((info, FormatIndex::Packets(index)))
                    }
                    None => None,
                },
                Format::Adts => {
                    packets::PacketIndex::open_adts(cache, &mut reader, &sizes, tags + junk as u64)?
                        .map(|(info, index)| (info, FormatIndex::Packets(index)))
                }
                Format::OggFlac => None,
                Format::Flac => flac::FlacIndex::open(cache, &mut reader, &sizes)?
                    .map(|(info, index)| (info, FormatIndex::Flac(index))),
                Format::OggVorbis => vorbis::VorbisIndex::open(cache, &mut reader, &sizes)?
                    .map(|(info, index)| (info, FormatIndex::Vorbis(index))),
                Format::Mpeg => mpeg_in(&mut reader, 0..io.size())?,
            })
        })
    }

    /// Codec, rate, channels and length, as after opening all bytes.
    pub fn info(&self) -> Info {
        self.info
    }

    /// Approximate bytes of memory that it holds.
    pub fn bytes_held(&self) -> usize {
        let more = match &self.format {
            FormatIndex::Whole | FormatIndex::Linear(_) => 0,
            FormatIndex::Flac(index) => index.bytes_held(),
            FormatIndex::Vorbis(index) => index.bytes_held(),
            FormatIndex::Mpeg(index) => index.bytes_held(),
            FormatIndex::Packets(index) => index.bytes_held(),
        };
        size_of::<Self>() + more
    }

    /// The index as bytes, with a version and a checksum, for [`Self::from_bytes`].
    pub fn to_bytes(&self) -> Vec<u8> {
        index_file::write(self)
    }

    /// The index that [`Self::to_bytes`] wrote.
    ///
    /// # Errors
    /// [`ErrorKind::Format`] for bytes of another version, or damaged ones.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        index_file::read(bytes)
    }

    /// [`Self::from_bytes`] of bytes whose checksum need not be right.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn from_unsealed(bytes: &[u8]) -> Result<Self> {
        let mut bytes = bytes.to_vec();
        index_file::seal(&mut bytes);
        index_file::read(&bytes)
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
    /// beyond [`ReadBytes::limit`], and errors of the reads.
    pub fn span_bytes(
        self: &Arc<Self>,
        decoder: &mut AudioDecoder,
        io: &dyn ReadBytes,
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
        let ByteWindow { at, bytes, content: context } = match span.is_empty() {
            true => ByteWindow { at: 0, bytes: Bytes::new(), content: SpanContext::Whole },
            false => decoder.guarded(|cache| match self.window(cache, io, &span) {
                // Among damaged bytes the places of frames and pages are known by all that is before them.
                Err(error) if error.kind == ErrorKind::Corrupt => {
                    let whole = |bytes| ByteWindow { at: 0, bytes, content: SpanContext::Whole };
                    RangeReader::new(io).read(0..self.size).map(whole).map_err(|other| match other.kind {
                        ErrorKind::TooLarge => error,
                        _ => other,
                    })
                }
                found => found,
            })?,
        };
        Ok(SpanBytes { index: self.clone(), span, at, bytes, context })
    }

    /// Reads the window of `span`, which is not empty.
    fn window(
        &self,
        cache: &mut DecoderCache,
        io: &dyn ReadBytes,
        span: &Range<u64>,
    ) -> Result<ByteWindow<SpanContext>> {
        let reader = RangeReader::new(io);
        match &self.format {
            FormatIndex::Whole => {
                Ok(ByteWindow { at: 0, bytes: reader.read(0..self.size)?, content: SpanContext::Whole })
            }
            FormatIndex::Linear(shape) => {
                let (range, first) = shape.bytes_of(span);
                Ok(ByteWindow {
                    at: range.start,
                    bytes: reader.read(range)?,
                    content: SpanContext::Linear(first),
                })
            }
            FormatIndex::Flac(index) => {
                Ok(index.read_window(cache, &reader, &self.sizes, span)?.map(SpanContext::Flac))
            }
            FormatIndex::Mpeg(index) => {
                let reader = RangeReader::within(io, index.range.clone());
                Ok(index.read_window(cache, &reader, &self.sizes, span)?.map(SpanContext::Mpeg))
            }
            FormatIndex::Packets(index) => Ok(index.read_window(&reader, span)?.map(SpanContext::Packets)),
            FormatIndex::Vorbis(index) => {
                Ok(index.read_window(cache, &reader, &self.sizes, span)?.map(|_| SpanContext::Vorbis))
            }
        }
    }
}

impl SpanBytes {
    /// Codec, rate, channels and length of the recording.
    pub fn info(&self) -> Info {
        self.index.info
    }

    /// Bytes of the file that it holds.
    #[expect(clippy::len_without_is_empty, reason = "a size in bytes; a part has no items")]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }
}

impl AudioDecoder {
    /// Decodes the samples `span` (of the recording) of every channel into `out`, which then holds exactly
    /// `span.len()` samples per channel: those of [`AudioDecoder::read`] over all bytes.
    ///
    /// # Errors
    /// As [`AudioDecoder::read`], and [`ErrorKind::Shape`] for samples that the part was not read for.
    pub fn read_span(&mut self, span_bytes: &SpanBytes, span: Range<u64>, out: &mut Planes) -> Result<()> {
        let RangeIndex { info, format, .. } = &*span_bytes.index;
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
        if let SpanContext::Whole = span_bytes.context {
            let recording = self.open(&span_bytes.bytes)?;
            if recording.info() != *info {
                return Err(super::corrupt("the recording's bytes differ from those that were indexed"));
            }
            return self.read(&recording, span, out);
        }
        let n_samples = span.end - span.start;
        self.decoder_cache.losses.begin(self.damage);
        let decoded = self.guarded(|cache| match (format, &span_bytes.context) {
            (FormatIndex::Linear(shape), SpanContext::Linear(first)) => {
                shape.read(cache, &span_bytes.bytes, span.start - first..span.end - first, out)
            }
            (FormatIndex::Flac(index), SpanContext::Flac(samples)) => {
                index.read(cache, &span_bytes.bytes, samples, span, out)
            }
            (FormatIndex::Vorbis(index), SpanContext::Vorbis) => {
                index.read(cache, &span_bytes.bytes, span_bytes.at, span, out)
            }
            (FormatIndex::Mpeg(index), SpanContext::Mpeg(first)) => {
                index.read(cache, &span_bytes.bytes, span_bytes.at, first, span, out)
            }
            (FormatIndex::Packets(index), SpanContext::Packets(numbers)) => {
                index.read(cache, &span_bytes.bytes, span_bytes.at, numbers.clone(), *info, span, out)
            }
            _ => Err(Error::new(ErrorKind::Shape, "the part belongs to another recording")),
        });
        decoded
            .and_then(|()| self.decoder_cache.losses.end(n_samples))
            .map(|filled| self.filled = filled)
            .map_err(|mut error| {
                error.place.byte = error.place.byte.map(|byte| byte + span_bytes.at);
                error
            })?;
        out.check_finite()
    }
}
