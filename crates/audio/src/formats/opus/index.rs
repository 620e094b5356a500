//! Opus in Ogg by head and tail, and windows of pages.
//!
//! A file is taken for a single stream if its head has the first page of one only, the last page is of that
//! stream, and the sequence numbers of first and last page agree with the size of the pages at both ends.
//! Chains and multiplexed files are read whole.
//!
//! A window gives the same samples as the whole: it has the page with the granule position from which the
//! span's pre-roll is counted, and all pages after it up to the end of the span.
//!
//! Source: RFC 7845; RFC 3533.

use std::ops::Range;

use bytes::Bytes;

use super::{
    MAGIC, Opus, OpusPools, PRE_ROLL, check_length, drop_false_position,
    head::Head,
    link::{self, Groups, Link, last_granule},
    no_stream,
};
use crate::{
    DecoderCache, Info, Planes, Repairs, Result,
    formats::Opened,
    index::{Index, SpanWindow},
    index_file::{Parser, Writer},
    locate::{SeekPoint, SeekPoints, WindowSamples, locate},
    ogg::{OggPages, Page, Paged, first_page, is_alone, list_streams, set_reach},
    read_at::RangeReader,
};

/// The most bytes at an end of a stream that are searched for its headers or its last group.
const MAX_END: u64 = 16 << 20;

/// What is known of an Ogg Opus file.
#[derive(Debug)]
pub(super) enum OpusIndex {
    /// All pages, in memory: a list is faster than to find them again for each span.
    Pages(Opus),
    /// The only stream of a file, and places in it.
    Places { place: StreamPlace, points: SeekPoints },
}

/// A stream whose pages are in a file.
#[derive(Debug, Clone)]
pub(super) struct StreamPlace {
    serial: u32,
    head: Head,
    first_granule: i64,
    granules: Range<i64>,
    /// The bytes of its audio: from the first page to the end of the last one with a granule position and a
    /// correct checksum.
    bytes: Range<u64>,
    /// Sequence numbers of these two pages.
    sequences: Range<u32>,
}

impl OpusIndex {
    /// Opens a recording; None if a file is not a single stream.
    ///
    /// # Errors
    /// As [`Opus::open`], and errors of the reads.
    pub(super) fn open<'a>(
        cache: &mut DecoderCache,
        reader: &mut RangeReader<'_>,
    ) -> Result<Option<Opened<'a>>> {
        if let Some(bytes) = reader.memory() {
            let pages = Opus::open(cache, bytes)?;
            let info = pages.info();
            return Ok(Some(Opened::new(info, Self::Pages(pages).boxed())));
        }
        let Some(place) = single(cache, reader)? else { return Ok(None) };
        let n_samples = place.n_samples();
        check_length(n_samples, reader.size())?;
        let points = SeekPoints::new(vec![
            SeekPoint { at: place.bytes.start, sample: 0 },
            SeekPoint { at: place.bytes.end, sample: n_samples },
        ]);
        Ok(Some(Opened::new(place.head.info(n_samples), Self::Places { place, points }.boxed())))
    }

    fn boxed(self) -> Box<dyn Index> {
        Box::new(self)
    }

    pub(super) fn read(from: &mut Parser<'_>, size: u64, info: Info) -> Option<Self> {
        let len = from.byte()?;
        let head = Head::parse(from.bytes(len.into())?).ok()?;
        let mut granule = || from.array().map(i64::from_le_bytes);
        let (first_granule, end) = (granule()?, granule()?);
        let serial = from.word()?;
        let bytes = from.range().filter(|bytes| bytes.end <= size)?;
        let limit = 1i64 << 61;
        if ![first_granule, end].iter().all(|granule| (-limit..=limit).contains(granule)) {
            return None;
        }
        let granules = link::start(first_granule, &head)..end;
        let place = StreamPlace { serial, head, first_granule, granules, bytes, sequences: 0..0 };
        let is_valid = place.granules.start < end
            && check_length(place.n_samples(), size).is_ok()
            && head.info(place.n_samples()) == info;
        let points = SeekPoints::read(from, size, info.n_samples)?;
        is_valid.then_some(Self::Places { place, points })
    }
}

impl Index for OpusIndex {
    fn read_window(
        &self,
        cache: &mut DecoderCache,
        reader: &RangeReader<'_>,
        span: &Range<u64>,
    ) -> Result<SpanWindow<Bytes>> {
        let Self::Places { place, points } = self else {
            return Ok(SpanWindow::whole(reader.read(0..reader.size())?));
        };
        let with_roll = span.start.saturating_sub(PRE_ROLL)..span.end;
        locate(reader, points, None, &with_roll, |at, bytes| {
            let window = place.window(cache, bytes, at);
            Ok(place.ends(&window, at))
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
            Self::Places { place, .. } => {
                place.window(cache, window.bytes, window.at).read(cache, window.bytes, span, out)
            }
        }
    }

    fn bytes_held(&self) -> usize {
        match self {
            Self::Pages(_) => 0,
            Self::Places { points, .. } => size_of::<Self>() + points.bytes_held(),
        }
    }

    fn write(&self, to: &mut Writer) {
        // Of a recording in memory no index is written.
        let Self::Places { place, points } = self else { return };
        let head = place.head.packet();
        to.byte(head.len() as u8);
        to.bytes(&head);
        to.bytes(&place.first_granule.to_le_bytes());
        to.bytes(&place.granules.end.to_le_bytes());
        to.word(place.serial);
        to.range(&place.bytes);
        to.points(&points.list());
    }

    fn repairs(&self, bytes: &[u8]) -> Repairs {
        match self {
            Self::Pages(pages) => pages.repairs(bytes),
            Self::Places { .. } => Repairs::default(),
        }
    }
}

impl StreamPlace {
    /// Reads a stream's head and its first group from the bytes at its start; None if these are too few.
    /// `is_end` says whether the recording ends with `bytes`.
    fn head(cache: &mut DecoderCache, bytes: &[u8], is_end: bool) -> Result<Option<Self>> {
        let mut all = cache.pools::<OpusPools>().pages.take();
        let mut streams = cache.pools::<OpusPools>().streams.take();
        list_streams(bytes, MAGIC, &mut streams, &mut all);
        let is_end = is_end || streams.len() > 1;
        let Some((first, range)) = streams.first() else {
            return if is_end { Err(no_stream()) } else { Ok(None) };
        };
        let pages = &mut all[range.clone()];
        for page in pages.iter_mut() {
            drop_false_position(page, bytes);
        }
        let head = link::head(bytes, first)?;
        let Some(audio_page) = link::behind_tags(bytes, pages) else {
            return if is_end { Err(link::no_tags()) } else { Ok(None) };
        };
        let mut this = Self {
            serial: first.serial,
            head,
            first_granule: 0,
            granules: 0..0,
            bytes: 0..0,
            sequences: 0..0,
        };
        let paged = Paged { bytes, pages: &pages[audio_page..] };
        let Some(page) = paged.pages.first() else { return Ok(is_end.then_some(this)) };
        this.bytes = page.offset as u64..page.offset as u64;
        this.sequences.start = page.sequence;
        let Some(group) = Groups::new(paged, 0, 0).next()? else { return Ok(is_end.then_some(this)) };
        this.first_granule = group.claim.first_granule(paged.pages);
        Ok(Some(this))
    }

    /// Sets the end by the last bytes of the stream, which begin at byte `at`; false if these are too few.
    fn tail(&mut self, cache: &mut DecoderCache, bytes: &[u8], at: u64) -> Result<bool> {
        let mut pages = self.pages(cache, bytes, at, u64::MAX);
        let is_start = at <= self.bytes.start;
        let Some(last) = pages.iter().rposition(|page| link::is_last(page, bytes)) else {
            // A stream without audio has no samples.
            self.granules = 0..0;
            self.bytes.end = self.bytes.start;
            return Ok(is_start);
        };
        pages.truncate(last + 1);
        let first = first_page(&pages, last)?;
        let begin = match first.checked_sub(1) {
            Some(before) => pages[before].granule.unwrap_or_default(),
            None if is_start => self.first_granule,
            None => return Ok(false),
        };
        let start = link::start(self.first_granule, &self.head);
        let end = last_granule(Paged { bytes, pages: &pages }, first, begin)?;
        self.granules = start..end.max(start);
        self.bytes.end = at + pages[last].end() as u64;
        self.sequences.end = pages[last].sequence;
        Ok(true)
    }

    fn n_samples(&self) -> u64 {
        (self.granules.end - self.granules.start) as u64
    }

    /// The sample at a granule position.
    fn sample(&self, granule: i64) -> u64 {
        let Range { start, end } = self.granules;
        (granule.clamp(start, end) - start) as u64
    }

    /// Its pages of audio before byte `end` in `bytes`, which begin at byte `at`.
    fn pages(
        &self,
        cache: &mut DecoderCache,
        bytes: &[u8],
        at: u64,
        end: u64,
    ) -> crate::decoder_cache::PooledVec<Page> {
        let mut pages = cache.pools::<OpusPools>().pages.take();
        let is_ours = |page: &Page| {
            let offset = at + page.offset as u64;
            page.serial == self.serial && (self.bytes.start..end).contains(&offset) && !page.begins_stream()
        };
        pages.extend(OggPages::new(bytes).filter(is_ours));
        for page in pages.iter_mut() {
            drop_false_position(page, bytes);
        }
        pages
    }

    /// Its pages in a window that begins at byte `at`.
    fn window(&self, cache: &mut DecoderCache, bytes: &[u8], at: u64) -> Opus {
        let mut pages = self.pages(cache, bytes, at, self.bytes.end);
        set_reach(&mut pages);
        let mut links = cache.pools::<OpusPools>().links.take();
        if !pages.is_empty() {
            links.push(Link {
                head: self.head,
                pages: 0..pages.len(),
                first_granule: self.first_granule,
                granules: self.granules.clone(),
                begin: 0,
                is_start: at <= self.bytes.start,
                is_end: at + bytes.len() as u64 >= self.bytes.end,
            });
        }
        Opus { pages, links }
    }

    /// The samples that a window that begins at byte `at` can decode, without pre-roll; None if there are
    /// none.  From a page with a granule position on, all samples after that position can be decoded. A
    /// position up to the first sample is no such place: the first samples need all packets before.
    fn ends(&self, window: &Opus, at: u64) -> Option<WindowSamples> {
        let link = window.links.first()?;
        let point = |page: &Page| {
            let granule = page.granule.filter(|&granule| granule > self.granules.start)?;
            Some(SeekPoint { at: at + page.offset as u64, sample: self.sample(granule) })
        };
        let first = match link.is_start {
            true => SeekPoint { at: at + window.pages.first()?.offset as u64, sample: 0 },
            false => window.pages.iter().find_map(point)?,
        };
        let behind = match link.is_end {
            true => SeekPoint { at: self.bytes.end, sample: self.n_samples() },
            false => window.pages.iter().rev().find_map(point)?,
        };
        (first.sample < behind.sample).then_some(WindowSamples { first, behind })
    }
}

/// Opens a file that is a single stream; None if it may have others, or its ends are longer than [`MAX_END`].
fn single(cache: &mut DecoderCache, reader: &mut RangeReader<'_>) -> Result<Option<StreamPlace>> {
    let (size, ends) = (reader.size(), reader.sizes.ends);
    let mut len = ends;
    let mut place = loop {
        let to = size.min(len);
        let bytes = reader.read_cached(0..to)?;
        match StreamPlace::head(cache, &bytes, to == size)? {
            Some(place) => break place,
            None if to == size || len >= MAX_END => return Ok(None),
            None => len *= 8,
        }
    };
    let mut len = ends;
    loop {
        let from = size.saturating_sub(len);
        let bytes = reader.read_cached(from..size)?;
        if place.tail(cache, &bytes, from)? {
            break;
        }
        if from == 0 || len >= MAX_END {
            return Ok(None);
        }
        len *= 4;
    }
    let is_alone = is_alone(reader, place.serial, &place.bytes, &place.sequences)?;
    Ok(is_alone.then_some(place))
}
