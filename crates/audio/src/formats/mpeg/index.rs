//! MPEG audio: by arithmetic if the bit rate is constant, else by a scan whose places are kept.
//!
//! A recording of a constant bit rate is recognised by both ends ([`Constant`]), and frames between them that
//! are not in their places are lost, as in a full open. All others are scanned once, in pieces.
//!
//! Source: ISO/IEC 11172-3, ISO/IEC 13818-3.

use std::ops::Range;

use bytes::Bytes;

use crate::{
    Codec, DecoderCache, Error, ErrorKind, Info, Planes, Result, fallible_alloc,
    formats::mpeg::{AHEAD_BYTES, Constant, Header, Link, Mpeg, PROOF, Piece, TAIL_LEN, Walk},
    id3,
    locate::{ByteWindow, SeekPoint, contradiction, thin},
    range_index::ReadSizes,
    read_at::RangeReader,
};

/// The most places of a scan that are kept.
pub(crate) const MAX_POINTS: usize = 1 << 15;
/// The most links that are kept; more are read whole.
pub(crate) const MAX_LINKS: usize = 1 << 12;
/// The frames before a span that are read at first, for the bit reservoir.
const LEAD: usize = 16;

/// What is known of MPEG audio.
#[derive(Debug)]
pub(crate) struct MpegIndex {
    pub(crate) range: Range<u64>,
    pub(crate) header: Header,
    pub(crate) links: Vec<Link>,
    pub(crate) places: FramePositions,
}

#[derive(Debug)]
pub(crate) enum FramePositions {
    Constant(Constant),
    /// Frames found by a scan, by number; the last one is the end.
    Found(Vec<SeekPoint>),
}

/// The first frame of a window: its number, and its offset in the window.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FirstFrame {
    number: usize,
    offset: u64,
    end: usize,
}

impl MpegIndex {
    /// Opens the bytes `range` of a file; None if it has too many links.
    pub(crate) fn open(
        reader: &mut RangeReader<'_>,
        sizes: &ReadSizes,
        range: Range<u64>,
    ) -> Result<Option<(Info, Self)>> {
        let size = reader.size();
        if u32::try_from(size).is_err() {
            return Err(Error::new(ErrorKind::TooLarge, "the MPEG audio recording is larger than 4 GiB"));
        }
        let last = reader.read_cached(size.saturating_sub(sizes.ends.max(TAIL_LEN as u64))..size)?;
        let tail = Bytes::copy_from_slice(&last[last.len().saturating_sub(TAIL_LEN)..]);
        let found = match constant(reader)? {
            Some(found) => Some(found),
            None => scan(reader, sizes, &tail)?,
        };
        let Some((header, links, places)) = found else { return Ok(None) };
        let info = Info {
            codec: [Codec::Mp1, Codec::Mp2, Codec::Mp3][usize::from(header.layer - 1)],
            sample_rate: header.sample_rate,
            channels: header.channels.into(),
            n_samples: links.iter().map(|link| link.n_samples).sum(),
        };
        Ok(Some((info, Self { range, header, links, places })))
    }

    pub(crate) fn bytes_held(&self) -> usize {
        let places = match &self.places {
            FramePositions::Constant(_) => 0,
            FramePositions::Found(points) => points.capacity() * size_of::<SeekPoint>(),
        };
        places + self.links.capacity() * size_of::<Link>()
    }

    /// The links that `span` overlaps, with their parts of it and the samples of `span` before these.
    fn overlaps<'a>(&'a self, span: &'a Range<u64>) -> impl Iterator<Item = (&'a Link, Range<u64>, usize)> {
        let mut begin = 0;
        self.links.iter().filter_map(move |link| {
            let here = begin;
            begin += link.n_samples;
            let (from, to) = (span.start.max(here), span.end.min(begin));
            (from < to).then(|| (link, from - here..to - here, (from - span.start) as usize))
        })
    }

    pub(crate) fn read_window(
        &self,
        cache: &mut DecoderCache,
        reader: &RangeReader<'_>,
        sizes: &ReadSizes,
        span: &Range<u64>,
    ) -> Result<ByteWindow<FirstFrame>> {
        let none = || Error::new(ErrorKind::Shape, "the span has no samples");
        let (first, here, _) = self.overlaps(span).next().ok_or_else(none)?;
        let wanted = Mpeg::frames_of(first, &self.header, &here).start;
        let (last, here, _) = self.overlaps(span).last().ok_or_else(none)?;
        let end = Mpeg::frames_of(last, &self.header, &here).end;
        let mut lead = LEAD;
        loop {
            let from = wanted.saturating_sub(lead).max(first.frames.start);
            let window = self.frames(reader, sizes, from..end)?;
            let mpeg = self.window(cache, &window.bytes, window.at, &window.content)?;
            if mpeg.behind() < end {
                return Err(contradiction(window.at));
            }
            let is_enough = mpeg.has_start(first, wanted);
            let has_all = window.content.number <= first.frames.start;
            drop(mpeg);
            if is_enough {
                return Ok(window);
            }
            if has_all {
                return Err(contradiction(window.at));
            }
            lead = lead.saturating_mul(8);
        }
    }

    /// Reads a window with the frames of these numbers.
    fn frames(
        &self,
        reader: &RangeReader<'_>,
        sizes: &ReadSizes,
        numbers: Range<usize>,
    ) -> Result<ByteWindow<FirstFrame>> {
        let size = reader.size();
        match &self.places {
            FramePositions::Found(points) => {
                let before = points.partition_point(|point| point.sample <= numbers.start as u64).max(1) - 1;
                let behind = points.partition_point(|point| point.sample < numbers.end as u64);
                let from = points[before];
                let to = points.get(behind).map_or(size, |point| point.at);
                let bytes = reader.read(from.at..to.saturating_add(2 * AHEAD_BYTES).min(size))?;
                let content = FirstFrame { number: from.sample as usize, offset: 0, end: numbers.end };
                Ok(ByteWindow { at: from.at, bytes, content })
            }
            FramePositions::Constant(constant) => {
                // From the frame before, by which a frame is known to be one.
                let before = numbers.start.saturating_sub(1);
                let from = constant.expected(&self.header, before).saturating_sub(16).max(constant.at);
                let expected = constant.expected(&self.header, numbers.end);
                let to = expected.saturating_add(2 * AHEAD_BYTES + sizes.margin / 16).min(size);
                let bytes = reader.read(from..to)?;
                let content = FirstFrame { number: numbers.start, offset: 0, end: numbers.end };
                Ok(ByteWindow { at: from, bytes, content })
            }
        }
    }

    fn window<'a>(
        &self,
        cache: &mut DecoderCache,
        bytes: &'a [u8],
        at: u64,
        first: &FirstFrame,
    ) -> Result<Mpeg<'a>>
    where
        Self: 'a,
    {
        let size = self.range.end - self.range.start;
        let numbers = first.number..first.end;
        if let FramePositions::Constant(constant) = self.places {
            return Mpeg::placed(cache, bytes, at, self.header, &self.links, constant, numbers);
        }
        // Lyrics3 is looked for at the end only, where a window has the last bytes.
        let tail = if at + bytes.len() as u64 >= size {
            &bytes[bytes.len().saturating_sub(TAIL_LEN)..]
        } else {
            &[]
        };
        let piece = Piece { bytes, base: at, size, tail };
        Mpeg::window(cache, &piece, self.header, &self.links, at + first.offset, numbers)
    }

    pub(crate) fn read(
        &self,
        cache: &mut DecoderCache,
        bytes: &[u8],
        at: u64,
        first: &FirstFrame,
        span: Range<u64>,
        out: &mut Planes,
    ) -> Result<()> {
        let mpeg = self.window(cache, bytes, at, first)?;
        for (link, here, at) in self.overlaps(&span) {
            mpeg.read_from(cache, link, here, out, at)?;
        }
        Ok(())
    }
}

type FoundFrames = (Header, Vec<Link>, FramePositions);

/// Proves that the recording has a constant bit rate; None if it is not proven.
fn constant(reader: &mut RangeReader<'_>) -> Result<Option<FoundFrames>> {
    let size = reader.size();
    // After a tag at the start, which may be long.
    let Some(from) = reader.parse_with_reads(|file| Ok(id3::skip(file)))? else { return Ok(None) };
    let head = reader.read_cached(from..size.min(from + PROOF))?;
    let last = reader.read_cached(size.saturating_sub(PROOF)..size)?;
    let found = Constant::find(&head, from, &last, size)?;
    Ok(found.map(|(header, links, constant)| (header, links, FramePositions::Constant(constant))))
}

/// Finds all frames, in pieces; None if there are too many links.
fn scan(reader: &RangeReader<'_>, sizes: &ReadSizes, tail: &[u8]) -> Result<Option<FoundFrames>> {
    let size = reader.size();
    let len = sizes.piece.max(4 * AHEAD_BYTES);
    let mut walk = Walk::default();
    let mut links = Vec::new();
    let mut points: Vec<SeekPoint> = Vec::new();
    let mut apart = 4 << 10;
    loop {
        let base = walk.scan.at.min(size);
        let bytes = reader.read(base..size.min(base + len))?;
        let piece = Piece { bytes: &bytes, base, size, tail };
        let is_end = walk.step(&piece, &mut links, |at, number| {
            if points.last().is_none_or(|last| at >= last.at + apart) {
                fallible_alloc::push(&mut points, SeekPoint { at, sample: number as u64 })?;
                if points.len() == MAX_POINTS {
                    thin(&mut points);
                    apart *= 2;
                }
            }
            Ok(true)
        })?;
        if links.len() > MAX_LINKS {
            return Ok(None);
        }
        if is_end {
            let header = walk.finish(&piece, &mut links)?;
            points.shrink_to_fit();
            links.shrink_to_fit();
            return Ok(Some((header, links, FramePositions::Found(points))));
        }
    }
}
