//! Vorbis in Ogg by head and tail, and windows of pages.
//!
//! A file is taken for a single stream if its head has the first page of one only, the last page is of that
//! stream, and the sequence numbers of first and last page agree with the size of the pages at both ends.
//! Chains and multiplexed files are scanned once, in pieces: page headers are read, and links and some of the
//! pages' places are kept.
//!
//! Source: Vorbis I specification, appendix A; RFC 3533.

use std::ops::Range;

use bytes::Bytes;

use super::{MAX_CHAIN_BYTES, Vorbis, window::LinkPlace};
use crate::{
    DecoderCache, Error, ErrorKind, Info, Planes, Repairs, Result, fallible_alloc,
    formats::Opened,
    index::{Index, SpanWindow},
    index_file::{Parser, Writer},
    locate::{MAX_POINTS, SeekPoint, SeekPoints, WindowSamples, locate, thin},
    ogg::{OggPages, is_alone},
    read_at::RangeReader,
    unsupported,
};

/// The most bytes at an end of a link that are searched for its headers or its last group.
const MAX_END: u64 = 16 << 20;
/// The most bytes of a page, and a capture pattern behind it.
const MAX_PAGE: u64 = (27 + 255 + 255 * 255) + 8;
/// The most links that are kept, and the most bytes of their headers.
const MAX_LINKS: usize = 1 << 11;
const MAX_HEADERS: usize = 512 << 10;

/// What is known of an Ogg Vorbis file.
#[derive(Debug)]
pub(crate) enum VorbisIndex {
    /// All pages, in memory: a list is faster than to find them again for each span.
    Pages(Vorbis),
    /// The links of a file, and places in it.
    Places { links: Vec<LinkPlace>, points: SeekPoints },
}

/// A stream of a chain, found by a scan.
struct ScannedStream {
    /// From its first page to the end of its last one.
    bytes: Range<u64>,
    serial: u32,
    /// Pages on which a packet begins and ends, and their granule positions.
    pages: Vec<(u64, i64)>,
}

impl VorbisIndex {
    /// Opens a recording; None if the links of a file are too many.
    ///
    /// # Errors
    /// As [`Vorbis::open`], and errors of the reads.
    pub(super) fn open<'a>(
        cache: &mut DecoderCache,
        reader: &mut RangeReader<'_>,
    ) -> Result<Option<Opened<'a>>> {
        if let Some(bytes) = reader.memory() {
            let pages = Vorbis::open(cache, bytes)?;
            return Ok(Some(Opened::new(pages.info(), Self::Pages(pages))));
        }
        let Some((info, links, points)) = in_file(cache, reader)? else { return Ok(None) };
        Ok(Some(Opened::new(info, Self::Places { links, points: SeekPoints::new(points) })))
    }

    pub(super) fn read(from: &mut Parser<'_>, size: u64, info: Info) -> Option<Self> {
        let n = from.word().filter(|&n| (1..=MAX_LINKS as u32).contains(&n))?;
        let mut places: Vec<LinkPlace> = Vec::new();
        let mut headers: &[u8] = &[];
        for _ in 0..n {
            if from.flag()? {
                let len = from.word()? as usize;
                headers = from.bytes(len)?;
            }
            let mut granule = || from.array().map(i64::from_le_bytes);
            let granules = [granule()?, granule()?, granule()?];
            let serial = from.word()?;
            let bytes = from.range().filter(|bytes| bytes.end <= size)?;
            let sequences = from.word()?..from.word()?;
            if places.last().is_some_and(|last| last.bytes.end > bytes.start) {
                return None;
            }
            let place = LinkPlace::of_parts(places.last(), headers, granules, serial, bytes, sequences)?;
            if place.info(info.n_samples) != info {
                return None;
            }
            places.push(place);
        }
        let last = places.last()?;
        if last.begin.checked_add(last.n_samples())? != info.n_samples {
            return None;
        }
        Some(Self::Places { points: SeekPoints::read(from, size, info.n_samples)?, links: places })
    }
}

impl Index for VorbisIndex {
    fn read_window(
        &self,
        cache: &mut DecoderCache,
        reader: &RangeReader<'_>,
        span: &Range<u64>,
    ) -> Result<SpanWindow<Bytes>> {
        let Self::Places { links, points } = self else {
            return Ok(SpanWindow::whole(reader.read(0..reader.size())?));
        };
        locate(reader, points, None, span, |at, bytes| {
            let ends = Vorbis::window(cache, links, bytes, at).ends(links, bytes, at);
            Ok(ends.map(|ends| {
                let [first, behind] = ends.map(|(at, sample)| SeekPoint { at, sample });
                WindowSamples { first, behind }
            }))
        })
    }

    fn decode(
        &self,
        cache: &mut DecoderCache,
        window: &SpanWindow<&[u8]>,
        span: Range<u64>,
        out: &mut Planes,
    ) -> Result<()> {
        match self {
            Self::Pages(pages) => pages.read(cache, window.bytes, span, out),
            Self::Places { links, .. } => {
                Vorbis::window(cache, links, window.bytes, window.at).read(cache, window.bytes, span, out)
            }
        }
    }

    fn bytes_held(&self) -> usize {
        let Self::Places { links, points } = self else { return 0 };
        let mut held = points.bytes_held() + links.capacity() * size_of::<LinkPlace>();
        let mut before = None;
        for place in links {
            held += if place.decoder_bytes(before) > 0 { place.headers_len() } else { 0 };
            before = Some(place);
        }
        held
    }

    fn write(&self, to: &mut Writer) {
        // Of a recording in memory no index is written.
        let Self::Places { links, points } = self else { return };
        to.word(links.len() as u32);
        let mut before: Option<&LinkPlace> = None;
        for place in links {
            let is_new = before.is_none_or(|before| before.headers() != place.headers());
            to.byte(is_new.into());
            if is_new {
                to.word(place.headers().len() as u32);
                to.bytes(place.headers());
            }
            for granule in place.granules() {
                to.bytes(&granule.to_le_bytes());
            }
            to.word(place.serial);
            to.range(&place.bytes);
            to.word(place.sequences.start);
            to.word(place.sequences.end);
            before = Some(place);
        }
        to.points(&points.list());
    }

    fn repairs(&self, bytes: &[u8]) -> Repairs {
        match self {
            Self::Pages(pages) => pages.repairs(bytes),
            Self::Places { .. } => Repairs::default(),
        }
    }
}

type FoundLinks = (Info, Vec<LinkPlace>, Vec<SeekPoint>);

/// Finds the links of a file, and places in it; None if its links are too many.
fn in_file(cache: &mut DecoderCache, reader: &mut RangeReader<'_>) -> Result<Option<FoundLinks>> {
    if let Some(place) = single(cache, reader)? {
        let n_samples = place.n_samples();
        if n_samples == 0 {
            return Err(empty());
        }
        let points = vec![
            SeekPoint { at: place.bytes.start, sample: 0 },
            SeekPoint { at: place.bytes.end, sample: n_samples },
        ];
        return Ok(Some((place.info(n_samples), vec![place], points)));
    }
    reader.clear_cache();
    let Some(streams) = scan(reader)? else { return Ok(None) };
    let mut places: Vec<LinkPlace> = Vec::new();
    let mut points = Vec::new();
    let (mut decoder_bytes, mut headers) = (0, 0);
    for stream in streams {
        let ScannedStream { bytes, pages, .. } = stream;
        let mut place = match link(cache, reader, bytes) {
            Ok(Some(place)) => place,
            Ok(None) => return Ok(None),
            Err(error) if places.is_empty() || !error.kind.is_record() => return Err(error),
            Err(_) => break,
        };
        if places.first().is_some_and(|first| !first.continues_as(&place)) {
            break;
        }
        let new_bytes = place.decoder_bytes(places.last());
        decoder_bytes += new_bytes;
        if decoder_bytes > MAX_CHAIN_BYTES {
            return Err(unsupported(format!(
                "the links of the Ogg chain need decoders of more than {} MiB together; split the recording",
                MAX_CHAIN_BYTES >> 20
            )));
        }
        headers += if new_bytes > 0 { place.headers_len() } else { 0 };
        if places.len() == MAX_LINKS || headers > MAX_HEADERS {
            return Ok(None);
        }
        let begin = places.last().map_or(0, |last| last.begin + last.n_samples());
        place.begin = begin;
        if place.n_samples() > 0 {
            fallible_alloc::push(&mut points, SeekPoint { at: place.bytes.start, sample: begin })?;
            for (at, granule) in pages {
                let point = SeekPoint { at, sample: place.sample(granule) };
                let is_next = |last: &SeekPoint| last.at < at && last.sample <= point.sample;
                if place.bytes.contains(&at) && points.last().is_none_or(is_next) {
                    fallible_alloc::push(&mut points, point)?;
                }
            }
        }
        fallible_alloc::push(&mut places, place)?;
    }
    let Some(last) = places.last() else {
        return Err(unsupported(
            "the Ogg recording has no Vorbis stream; expected one that starts with \\x01vorbis",
        ));
    };
    let n_samples = last.begin + last.n_samples();
    if n_samples == 0 {
        return Err(empty());
    }
    points.push(SeekPoint {
        at: last.bytes.end.max(points.last().map_or(0, |point| point.at + 1)),
        sample: n_samples,
    });
    while points.len() > MAX_POINTS / 2 {
        thin(&mut points);
    }
    Ok(Some((last.info(n_samples), places, points)))
}

fn empty() -> Error {
    Error::new(ErrorKind::Empty, "the Vorbis stream has headers but no samples")
}

/// Opens the link in `range` by its ends; None if they are longer than [`MAX_END`].
fn link(
    cache: &mut DecoderCache,
    reader: &mut RangeReader<'_>,
    range: Range<u64>,
) -> Result<Option<LinkPlace>> {
    let mut len = reader.sizes.ends;
    let mut place = loop {
        let to = range.end.min(range.start.saturating_add(len));
        let bytes = reader.read_cached(range.start..to)?;
        match LinkPlace::head(cache, &bytes, range.start, to == range.end)? {
            Some(place) => break place,
            None if to == range.end || len >= MAX_END => return Ok(None),
            None => len *= 8,
        }
    };
    let mut len = reader.sizes.ends;
    loop {
        let from = range.end.saturating_sub(len).max(range.start);
        let bytes = reader.read_cached(from..range.end)?;
        if place.tail(cache, &bytes, from)? {
            return Ok(Some(place));
        }
        if from == range.start || len >= MAX_END {
            return Ok(None);
        }
        len *= 4;
    }
}

/// Opens a file that is a single stream; None if it may have others.
fn single(cache: &mut DecoderCache, reader: &mut RangeReader<'_>) -> Result<Option<LinkPlace>> {
    let size = reader.size();
    let Some(place) = link(cache, reader, 0..size)? else { return Ok(None) };
    let is_alone = is_alone(reader, place.serial, &place.bytes, &place.sequences)?;
    Ok(is_alone.then_some(place))
}

/// Lists the first Vorbis stream of each link; None if they are too many.
fn scan(reader: &RangeReader<'_>) -> Result<Option<Vec<ScannedStream>>> {
    let size = reader.size();
    let piece = reader.sizes.piece.max(2 * MAX_PAGE);
    let mut streams: Vec<ScannedStream> = Vec::new();
    // As in the walk over all pages.
    let (mut in_head, mut found) = (false, false);
    let (mut apart, mut n_pages, mut last_page) = (16 << 10, 0, 0);
    let mut base = 0;
    while base < size {
        let end = size.min(base + piece);
        let bytes = reader.read(base..end)?;
        // A page near the end of the piece is not seen whole, or not with what follows it.
        let mut next = if end == size { size } else { end - MAX_PAGE };
        for page in OggPages::new(&bytes) {
            let at = base + page.offset as u64;
            let behind = base + page.end() as u64;
            if end < size && behind + 5 > end {
                next = at;
                break;
            }
            next = next.max(behind);
            if page.begins_stream() {
                if !in_head {
                    (in_head, found) = (true, false);
                }
                if !found && page.body(&bytes).starts_with(b"\x01vorbis") {
                    found = true;
                    let stream = ScannedStream { bytes: at..behind, serial: page.serial, pages: Vec::new() };
                    fallible_alloc::push(&mut streams, stream)?;
                    if streams.len() > MAX_LINKS {
                        return Ok(None);
                    }
                }
                continue;
            }
            in_head = false;
            let Some(stream) = streams.last_mut().filter(|stream| found && stream.serial == page.serial)
            else {
                continue;
            };
            stream.bytes.end = behind;
            if let Some(granule) = page.granule
                && at >= last_page + apart
                && page.has_whole_packet(&bytes)
            {
                fallible_alloc::push(&mut stream.pages, (at, granule))?;
                (last_page, n_pages) = (at, n_pages + 1);
                if n_pages > MAX_POINTS / 2 {
                    apart *= 2;
                    n_pages = 0;
                    for stream in &mut streams {
                        let mut number = 0;
                        stream.pages.retain(|_| {
                            number += 1;
                            number % 2 == 1
                        });
                        stream.pages.shrink_to_fit();
                        n_pages += stream.pages.len();
                    }
                }
            }
        }
        base = next;
    }
    Ok(Some(streams))
}
