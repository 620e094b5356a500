//! MPEG audio: by arithmetic if the bit rate is constant, else by a scan whose places are kept.
//!
//! The count in a Xing, Info or VBRI tag is no proof. A constant bit rate counts if the frames at the start
//! and at the end have it, those at the end are where arithmetic says, and a tag's count, if there is one,
//! is that of the bytes. Every window is checked in the same way. Then frames in between are not seen before
//! they are read: damage or a mixed block among them is an error of the spans that need them, while a full
//! open would find other lengths or refuse the recording. All others are scanned once, in pieces.
//!
//! Source: ISO/IEC 11172-3, ISO/IEC 13818-3.

use std::ops::Range;

use bytes::Bytes;

use super::{
    super::{
        Codec, DecoderCache, Info, Planes, id3,
        mpeg::{AHEAD_BYTES, Header, Link, Mpeg, Piece, TAIL_LEN, Walk},
    },
    Sizes,
    locate::{Point, Window, contradiction, thin},
    reader::Reader,
};
use crate::{Error, ErrorKind, Result, fallible_alloc};

/// The most places of a scan that are kept.
pub(super) const MAX_POINTS: usize = 1 << 15;
/// The most links that are kept; more are read whole.
pub(super) const MAX_LINKS: usize = 1 << 12;
/// The frames before a span that are read at first, for the bit reservoir.
const LEAD: usize = 16;
/// The fewest frames at an end that prove a constant bit rate.
const MIN_PROOF: u64 = 8;

/// What is known of MPEG audio.
#[derive(Debug)]
pub(super) struct Index {
    /// Its bytes in the file.
    pub(super) range: Range<u64>,
    pub(super) header: Header,
    pub(super) links: Vec<Link>,
    pub(super) places: Places,
}

/// Where frames are.
#[derive(Debug)]
pub(super) enum Places {
    /// By arithmetic, from byte `at` on; `n_tags` frames without audio are first.
    Constant { at: u64, n_tags: u64 },
    /// Frames found by a scan, by number; the last one is the end.
    Found(Vec<Point>),
}

/// The first frame of a window: its number, and its offset in the window.
#[derive(Debug, Clone, Copy)]
pub(super) struct First {
    number: usize,
    offset: u64,
    end: usize,
}

impl Index {
    /// Opens the bytes `range` of a file; None if it has too many links.
    pub(super) fn open(
        reader: &mut Reader<'_>,
        sizes: &Sizes,
        range: Range<u64>,
    ) -> Result<Option<(Info, Self)>> {
        let size = reader.size();
        if u32::try_from(size).is_err() {
            return Err(Error::new(ErrorKind::TooLarge, "the MPEG audio recording is larger than 4 GiB"));
        }
        let last = reader.keep(size.saturating_sub(sizes.ends.max(TAIL_LEN as u64))..size)?;
        let tail = Bytes::copy_from_slice(&last[last.len().saturating_sub(TAIL_LEN)..]);
        let found = match constant(reader, sizes, &last, &tail)? {
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

    pub(super) fn bytes_held(&self) -> usize {
        let places = match &self.places {
            Places::Constant { .. } => 0,
            Places::Found(points) => points.capacity() * size_of::<Point>(),
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

    /// Reads the frames of `span`.
    pub(super) fn part(
        &self,
        kept: &mut DecoderCache,
        reader: &Reader<'_>,
        sizes: &Sizes,
        span: &Range<u64>,
    ) -> Result<Window<First>> {
        let none = || Error::new(ErrorKind::Shape, "the span has no samples");
        let (first, here, _) = self.overlaps(span).next().ok_or_else(none)?;
        let wanted = Mpeg::frames_of(first, &self.header, &here).start;
        let (last, here, _) = self.overlaps(span).last().ok_or_else(none)?;
        let end = Mpeg::frames_of(last, &self.header, &here).end;
        let mut lead = LEAD;
        loop {
            let from = wanted.saturating_sub(lead).max(first.frames.start);
            let window = self.frames(kept, reader, sizes, from..end)?;
            let mpeg = self.window(kept, &window.bytes, window.at, &window.held)?;
            if mpeg.behind() < end {
                return Err(contradiction(window.at));
            }
            let is_enough = mpeg.has_start(first, wanted);
            let has_all = window.held.number <= first.frames.start;
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
        kept: &mut DecoderCache,
        reader: &Reader<'_>,
        sizes: &Sizes,
        numbers: Range<usize>,
    ) -> Result<Window<First>> {
        let size = reader.size();
        match &self.places {
            Places::Found(points) => {
                let before = points.partition_point(|point| point.sample <= numbers.start as u64).max(1) - 1;
                let behind = points.partition_point(|point| point.sample < numbers.end as u64);
                let from = points[before];
                let to = points.get(behind).map_or(size, |point| point.at);
                let bytes = reader.read(from.at..to.saturating_add(2 * AHEAD_BYTES).min(size))?;
                let held = First { number: from.sample as usize, offset: 0, end: numbers.end };
                Ok(Window { at: from.at, bytes, held })
            }
            &Places::Constant { at, n_tags } => {
                let expected = |number: usize| at + self.header.bytes_of(number as u64 + n_tags);
                let from = expected(numbers.start).saturating_sub(16).max(at);
                let to = expected(numbers.end).saturating_add(2 * AHEAD_BYTES + sizes.margin / 16).min(size);
                let bytes = reader.read(from..to)?;
                let first = first_of(&self.header, &bytes, from, expected(numbers.start));
                let offset = first.ok_or_else(|| contradiction(from))?;
                let window = Window {
                    at: from,
                    bytes,
                    held: First { number: numbers.start, offset, end: numbers.end },
                };
                let mpeg = self.window(kept, &window.bytes, from, &window.held)?;
                for (i, &offset) in mpeg.offsets().iter().enumerate() {
                    let number = numbers.start + i;
                    let here = from + u64::from(offset);
                    if !self.header.is_near(here - at, number as u64 + n_tags)
                        || !mpeg.header_of(number).has_rate_of(&self.header)
                    {
                        return Err(contradiction(here));
                    }
                }
                drop(mpeg);
                Ok(window)
            }
        }
    }

    fn window<'a>(&self, kept: &mut DecoderCache, bytes: &'a [u8], at: u64, first: &First) -> Result<Mpeg<'a>>
    where
        Self: 'a,
    {
        let size = self.range.end - self.range.start;
        // Lyrics3 is looked for at the end only, where a window has the last bytes.
        let tail = if at + bytes.len() as u64 >= size {
            &bytes[bytes.len().saturating_sub(TAIL_LEN)..]
        } else {
            &[]
        };
        let piece = Piece { bytes, base: at, size, tail };
        Mpeg::window(kept, &piece, self.header, &self.links, at + first.offset, first.number..first.end)
    }

    /// Decodes `span` from a window.
    pub(super) fn read(
        &self,
        kept: &mut DecoderCache,
        bytes: &[u8],
        at: u64,
        first: &First,
        span: Range<u64>,
        out: &mut Planes,
    ) -> Result<()> {
        let mpeg = self.window(kept, bytes, at, first)?;
        for (link, here, at) in self.overlaps(&span) {
            mpeg.read_from(kept, link, here, out, at)?;
        }
        Ok(())
    }
}

type Found = (Header, Vec<Link>, Places);

/// Proves that the recording has a constant bit rate; None if it is not proven. `last` are its last bytes.
fn constant(reader: &mut Reader<'_>, sizes: &Sizes, last: &[u8], tail: &[u8]) -> Result<Option<Found>> {
    let size = reader.size();
    // After a tag at the start, which may be long.
    let mut from = 0;
    let mut head = reader.keep(0..size.min(sizes.ends.max(4 * AHEAD_BYTES)))?;
    let Some(tagged) = reader.explore(|file| Ok(id3::skip(file)))? else { return Ok(None) };
    if tagged > 0 {
        from = tagged;
        head = reader.keep(from..size.min(from + sizes.ends.max(4 * AHEAD_BYTES)))?;
    }
    let mut links = Vec::new();
    let mut walk = Walk::default();
    walk.scan.at = from;
    let piece = Piece { bytes: &head, base: from, size, tail };
    let mut frames = Vec::new();
    if walk.step(&piece, &mut links, |offset, _| fallible_alloc::push(&mut frames, offset).map(|()| true))? {
        // All of it is seen, or the timeline ends there.
        return Ok(None);
    }
    let Some(header) = walk.scan.header.filter(|header| header.free == 0) else { return Ok(None) };
    // The first frame, perhaps with a tag in it.
    let n_tags = links.len() as u64;
    let Some(&first) = frames.first() else { return Ok(None) };
    let at = match n_tags {
        0 => first,
        1 => match first.checked_sub(header.len as u64) {
            Some(at) if links[0].frames.is_empty() => at,
            _ => return Ok(None),
        },
        _ => return Ok(None),
    };
    let declared = walk.declared();
    let (mut first_walk, first_piece) = (walk, piece);
    let header_at = |bytes: &[u8], base: u64, at: u64| {
        let offset = usize::try_from(at.checked_sub(base)?).ok()?;
        Header::parse(bytes.get(offset..)?)
    };
    let is_constant = |bytes: &[u8], base: u64, offsets: &[u64], behind: u64| {
        offsets.iter().zip(offsets.iter().skip(1).chain([&behind])).all(|(&here, &next)| {
            header_at(bytes, base, here)
                .is_some_and(|this| this.has_rate_of(&header) && here + this.len as u64 == next)
        })
    };
    if (frames.len() as u64) < MIN_PROOF || !is_constant(&head, from, &frames, first_walk.scan.at) {
        return Ok(None);
    }
    if !frames.iter().zip(n_tags..).all(|(&here, number)| header.is_near(here - at, number)) {
        return Ok(None);
    }
    // The frames at the end: those from a number on that arithmetic places within the last bytes.
    let base = size - last.len() as u64;
    let slack = 16;
    let mut number = base.saturating_add(slack).saturating_sub(at) / header.len as u64;
    while at + header.bytes_of(number) < base + slack {
        number += 1;
    }
    let Some(offset) = first_of(&header, last, base, at + header.bytes_of(number)) else { return Ok(None) };
    let mut walk = Walk::default();
    (walk.scan.at, walk.scan.header) = (base + offset, Some(header));
    let (mut others, mut ends) = (Vec::new(), Vec::new());
    let piece = Piece { bytes: last, base, size, tail };
    walk.step(&piece, &mut others, |offset, _| fallible_alloc::push(&mut ends, offset).map(|()| true))?;
    let Some(behind) = ends.last().and_then(|&end| Some(end + header_at(last, base, end)?.len as u64)) else {
        return Ok(None);
    };
    let is_proven = others.is_empty()
        && !walk.scan.is_cut()
        && ends.len() as u64 >= MIN_PROOF
        && is_constant(last, base, &ends, behind)
        && ends.iter().zip(number..).all(|(&here, number)| header.is_near(here - at, number));
    let n_total = number + ends.len() as u64;
    let n_frames = n_total - n_tags;
    // Some writers of tags count the frame that holds the tag.
    let agrees = declared.is_none_or(|n| [n_frames, n_total].contains(&u64::from(n)));
    if !is_proven || !agrees {
        return Ok(None);
    }
    first_walk.n_frames = n_frames as usize;
    let header = first_walk.finish(&first_piece, &mut links)?;
    Ok(Some((header, links, Places::Constant { at, n_tags })))
}

/// The offset in `bytes` of the frame that should begin at byte `expected`; encoders round differently.
fn first_of(header: &Header, bytes: &[u8], at: u64, expected: u64) -> Option<u64> {
    let near = |by: i64| expected.checked_add_signed(by)?.checked_sub(at);
    [0, -1, 1, -4, 4, -2, 2, -8, 8].into_iter().filter_map(near).find(|&offset| {
        // Frames up to the end of the bytes, or three of them.
        let (mut from, mut n) = (offset as usize, 0);
        while n < 3 {
            match bytes.get(from..).and_then(Header::parse) {
                Some(next) if next.has_rate_of(header) => from += next.len,
                _ => break,
            }
            n += 1;
        }
        n == 3 || n > 0 && from + 16 * TAIL_LEN >= bytes.len()
    })
}

/// Finds all frames, in pieces; None if there are too many links.
fn scan(reader: &Reader<'_>, sizes: &Sizes, tail: &[u8]) -> Result<Option<Found>> {
    let size = reader.size();
    let len = sizes.piece.max(4 * AHEAD_BYTES);
    let mut walk = Walk::default();
    let mut links = Vec::new();
    let mut points: Vec<Point> = Vec::new();
    let mut apart = 4 << 10;
    loop {
        let base = walk.scan.at.min(size);
        let bytes = reader.read(base..size.min(base + len))?;
        let piece = Piece { bytes: &bytes, base, size, tail };
        let is_end = walk.step(&piece, &mut links, |at, number| {
            if points.last().is_none_or(|last| at >= last.at + apart) {
                fallible_alloc::push(&mut points, Point { at, sample: number as u64 })?;
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
            return Ok(Some((header, links, Places::Found(points))));
        }
    }
}
