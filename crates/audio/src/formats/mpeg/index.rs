//! What is known of MPEG audio: its links, and where its frames are.
//!
//! In memory the offset of each frame is kept. In a file frames are found by arithmetic if the bit rate is
//! constant, else by a scan whose places are kept. A recording of a constant bit rate is recognised by both
//! ends ([`Constant`]), and frames between them that are not in their places are lost, as in memory. All
//! others are scanned once, in pieces.
//!
//! Source: ISO/IEC 11172-3, ISO/IEC 13818-3.

use std::ops::Range;

use bytes::Bytes;

use super::{
    AHEAD_BYTES, Constant, Header, Link, Mpeg, MpegPools, PROOF, Piece, TAIL_LEN, Walk, constant::Rates,
    walk::tail,
};
use crate::{
    Claims, DecoderCache, Error, ErrorKind, Info, Planes, Result,
    decoder_cache::PooledVec,
    fallible_alloc,
    formats::{AnyIndex, Opened},
    from_byte, id3,
    index::{Index, SpanWindow},
    index_file::{Parser, Writer},
    locate::{SeekPoint, contradiction, thin},
    read_at::RangeReader,
};

/// The most places of a scan that are kept.
const MAX_POINTS: usize = 1 << 15;
/// The most links that are kept; more are read whole.
const MAX_LINKS: usize = 1 << 12;
/// The frames before a span that are read at first, for the bit reservoir.
const LEAD: usize = 16;

/// What is known of MPEG audio.
#[derive(Debug)]
pub(crate) struct MpegIndex {
    /// The bytes of the file that have the frames.
    range: Range<u64>,
    pub(super) header: Header,
    links: PooledVec<Link>,
    pub(crate) places: FramePositions,
    /// Bytes of an incomplete frame at the end, and the bytes that its header declares.
    cut: Option<(usize, usize)>,
    /// The offset of frames of another kind, which are left out.
    foreign: Option<usize>,
}

#[derive(Debug)]
pub(crate) enum FramePositions {
    /// Offsets of all frames, in memory; [`MISSING`](super::MISSING) for lost ones.
    All(PooledVec<u32>),
    Constant(Constant),
    /// Frames found by a scan, by number; the last one is the end.
    Found(Vec<SeekPoint>),
}

impl MpegIndex {
    /// Opens the frames in `range`: reads their headers, and the side information of layer III, which are up
    /// to 38 bytes of each frame. None if a file has too many links.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] without frames of known length, or if a frame has a mixed block at 8 kHz,
    /// [`ErrorKind::TooLarge`] beyond 4 GiB.
    pub(crate) fn open<'a>(
        cache: &mut DecoderCache,
        reader: &mut RangeReader<'_>,
        range: Range<u64>,
    ) -> Result<Option<Opened<'a>>> {
        check_size(range.end - range.start)?;
        let mut part;
        let reader = match (0..reader.size()) == range {
            true => reader,
            false => {
                part = reader.within(range.clone());
                &mut part
            }
        };
        let found = match reader.memory() {
            Some(bytes) => Some(Self::of_memory(cache, bytes)?),
            None => in_file(reader)?,
        };
        let Some(mut this) = found else { return Ok(None) };
        this.range = range;
        Ok(Some(Opened::new(this.info(), this)))
    }

    /// Finds all frames of a recording in memory.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub(crate) fn of_memory(cache: &mut DecoderCache, bytes: &[u8]) -> Result<Self> {
        let mut frames = cache.pools::<MpegPools>().frames.take();
        let mut links = cache.pools::<MpegPools>().links.take();
        let mut walk = Walk::default();
        let size = bytes.len() as u64;
        check_size(size)?;
        let file = Piece { bytes, base: 0, size, tail: tail(bytes) };
        let mut rates = Rates::default();
        walk.step(&file, &mut links, |offset, _| {
            frames.push(offset as u32);
            rates.see(&bytes[offset as usize..]);
            Ok(true)
        })?;
        let header = walk.finish(&file, &mut links)?;
        if (walk.scan.has_lost || rates.differ())
            && rates.may_be_constant()
            && let from = id3::skip_id3v2(bytes)
            && let head = &bytes[from..bytes.len().min(from + PROOF as usize)]
            && let last = &bytes[bytes.len().saturating_sub(PROOF as usize)..]
            && let Some((header, found, constant)) = Constant::find(head, from as u64, last, size)?
        {
            let n_frames = (constant.n_total - constant.n_tags) as usize;
            if frames.len() != n_frames || !constant.agrees(bytes, 0, &frames, 0, &header) {
                constant.place(bytes, 0, &header, 0..n_frames, &mut frames)?;
                links.clear();
                links.extend(found);
                return Ok(Self { range: 0..size, ..Self::new(header, links, FramePositions::All(frames)) });
            }
        }
        let (cut, foreign) = (walk.scan.cut, walk.scan.foreign);
        Ok(Self { range: 0..size, cut, foreign, ..Self::new(header, links, FramePositions::All(frames)) })
    }

    pub(crate) fn info(&self) -> Info {
        let Header { sample_rate, channels, .. } = self.header;
        let n_samples = self.links.iter().map(|link| link.n_samples).sum();
        Info { codec: self.header.codec(), sample_rate, channels: channels.into(), n_samples }
    }

    /// Byte offsets of all frames of a recording in memory.
    #[cfg(test)]
    pub(crate) fn offsets(&self) -> &[u32] {
        let FramePositions::All(frames) = &self.places else { panic!("not in memory") };
        frames
    }

    /// The bytes of all frames of a recording in memory.
    #[cfg(test)]
    pub(crate) fn frames<'a>(&'a self, bytes: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let mpeg = Mpeg { bytes, header: self.header, frames: self.offsets(), first: 0 };
        (0..mpeg.behind()).map(move |number| {
            let (header, frame) = mpeg.frame(number).unwrap();
            &bytes[self.offsets()[number] as usize..][..header.len.min(frame.len())]
        })
    }

    fn new(header: Header, links: PooledVec<Link>, places: FramePositions) -> Self {
        Self { range: 0..0, header, links, places, cut: None, foreign: None }
    }

    /// Cuts `delay` samples at the start, and what is after `length` samples from there on, as an edit of a
    /// container says; not if a tag in the frames has cut them, or begins a second link.
    pub(crate) fn edit(&mut self, delay: u64, length: u64) {
        if let [link] = &mut self.links[..]
            && link.delay == 0
        {
            link.delay = delay;
            link.n_samples = link.n_samples.saturating_sub(delay).min(length);
        }
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

    /// Reads a window with the frames of these numbers.
    fn read_frames(&self, reader: &RangeReader<'_>, numbers: Range<usize>) -> Result<SpanWindow<Bytes>> {
        let size = reader.size();
        let (range, first) = match &self.places {
            FramePositions::Found(points) => {
                let before = points.partition_point(|point| point.sample <= numbers.start as u64).max(1) - 1;
                let behind = points.partition_point(|point| point.sample < numbers.end as u64);
                let from = points[before];
                let to = points.get(behind).map_or(size, |point| point.at);
                (from.at..to.saturating_add(2 * AHEAD_BYTES).min(size), from.sample)
            }
            FramePositions::Constant(constant) => {
                // From the frame before, by which a frame is known to be one.
                let before = numbers.start.saturating_sub(1);
                let from = constant.expected(&self.header, before).saturating_sub(16).max(constant.at);
                let expected = constant.expected(&self.header, numbers.end);
                let to = expected.saturating_add(2 * AHEAD_BYTES + reader.sizes.margin / 16).min(size);
                (from..to, numbers.start as u64)
            }
            FramePositions::All(_) => (0..size, 0),
        };
        let units = Some(first..numbers.end as u64);
        Ok(SpanWindow { at: range.start, bytes: reader.read(range)?, units, start: 0 })
    }

    /// Reads a window for `span` out of [`Self::range`], which `reader` reads.
    fn find_window(
        &self,
        cache: &mut DecoderCache,
        reader: &RangeReader<'_>,
        span: &Range<u64>,
    ) -> Result<SpanWindow<Bytes>> {
        let none = || Error::new(ErrorKind::Shape, "the span has no samples");
        let (first, here, _) = self.overlaps(span).next().ok_or_else(none)?;
        let wanted = Mpeg::frames_of(first, &self.header, &here).start;
        let (last, here, _) = self.overlaps(span).last().ok_or_else(none)?;
        let end = Mpeg::frames_of(last, &self.header, &here).end;
        let mut lead = LEAD;
        loop {
            let from = wanted.saturating_sub(lead).max(first.frames.start);
            let window = self.read_frames(reader, from..end)?;
            let number = window.units.as_ref().map_or(0, |units| units.start as usize);
            let frames = self.list(cache, &window.bytes, window.at, number..end)?;
            let mpeg = Mpeg { bytes: &window.bytes, header: self.header, frames: &frames, first: number };
            // Only frames that are there can be looked at.
            if mpeg.behind() < end {
                return Err(contradiction(window.at));
            }
            let is_enough = mpeg.has_start(first, wanted);
            if !is_enough && number <= first.frames.start {
                return Err(contradiction(window.at));
            }
            if is_enough {
                return Ok(window);
            }
            lead = lead.saturating_mul(8);
        }
    }

    /// Lists the frames `numbers` in the bytes of a window that begins at byte `at` of [`Self::range`].
    fn list(
        &self,
        cache: &mut DecoderCache,
        bytes: &[u8],
        at: u64,
        numbers: Range<usize>,
    ) -> Result<PooledVec<u32>> {
        let mut frames = cache.pools::<MpegPools>().frames.take();
        if let FramePositions::Constant(constant) = self.places {
            constant.place(bytes, at, &self.header, numbers, &mut frames)?;
            return Ok(frames);
        }
        let size = self.range.end - self.range.start;
        // Lyrics3 is looked for at the end only, where a window has the last bytes.
        let tail = if at + bytes.len() as u64 >= size {
            &bytes[bytes.len().saturating_sub(TAIL_LEN)..]
        } else {
            &[]
        };
        let piece = Piece { bytes, base: at, size, tail };
        let mut walk = Walk::default();
        (walk.scan.at, walk.scan.header) = (at, Some(self.header));
        let mut others = cache.pools::<MpegPools>().links.take();
        walk.step(&piece, &mut others, |offset, _| {
            frames.push((offset - at) as u32);
            Ok(frames.len() < numbers.end - numbers.start)
        })?;
        Ok(frames)
    }

    pub(crate) fn read(from: &mut Parser<'_>, size: u64, info: Info) -> Option<AnyIndex> {
        let range =
            from.range().filter(|range| range.end <= size && range.end - range.start <= u32::MAX.into())?;
        let raw = from.array::<4>()?;
        let header = Header::of_parts(&raw, from.word()?).filter(|header| header.len > 0)?;
        let codec = header.codec();
        if (codec, header.sample_rate, u16::from(header.channels))
            != (info.codec, info.sample_rate, info.channels)
        {
            return None;
        }
        let n = from.word().filter(|&n| n as usize <= MAX_LINKS + 1)?;
        let mut links: Vec<Link> = Vec::new();
        let (mut total, mut behind) = (0u64, 0);
        for _ in 0..n {
            let frames = from.range().filter(|frames| frames.start >= behind && frames.end <= size)?;
            let (delay, n_samples) = (from.long()?, from.long()?);
            let content = (frames.end - frames.start).checked_mul(header.n_samples().into())?;
            if delay.checked_add(n_samples)? > content || n_samples == 0 {
                return None;
            }
            (total, behind) = (total.checked_add(n_samples)?, frames.end);
            links.push(Link {
                frames: frames.start as usize..frames.end as usize,
                delay,
                n_samples,
                declared: Some(from.long()?).filter(|&n| n != u64::MAX),
            });
        }
        let places = match from.byte()? {
            0 => {
                let (at, n_tags) = (from.long()?, from.long()?);
                if at >= range.end - range.start
                    || n_tags > 1
                    || header.free > 0
                    || header.bytes_of(behind) > size
                {
                    return None;
                }
                FramePositions::Constant(Constant { at, n_tags, n_total: behind + n_tags })
            }
            1 => {
                let points = from.points(MAX_POINTS, range.end - range.start, behind)?;
                if points.first()?.sample != 0 {
                    return None;
                }
                FramePositions::Found(points)
            }
            _ => return None,
        };
        let this = Self { range, ..Self::new(header, links.into(), places) };
        (total == info.n_samples).then_some(AnyIndex::Mpeg(this))
    }
}

impl Index for MpegIndex {
    fn read_window(
        &self,
        cache: &mut DecoderCache,
        reader: &RangeReader<'_>,
        span: &Range<u64>,
    ) -> Result<SpanWindow<Bytes>> {
        if let FramePositions::All(_) = self.places {
            return Ok(SpanWindow::whole(reader.read(0..reader.size())?));
        }
        let part = reader.within(self.range.clone());
        let mut window = self.find_window(cache, &part, span).map_err(from_byte(self.range.start))?;
        window.at += self.range.start;
        Ok(window)
    }

    fn decode(
        &self,
        cache: &mut DecoderCache,
        window: &SpanWindow<&[u8]>,
        span: Range<u64>,
        out: &mut Planes,
    ) -> Result<()> {
        let listed;
        let (mpeg, before) = match (&self.places, &window.units) {
            (FramePositions::All(frames), _) => {
                let bytes = &window.bytes[self.range.start as usize..self.range.end as usize];
                (Mpeg { bytes, header: self.header, frames, first: 0 }, self.range.start)
            }
            (_, units) => {
                let units = units.as_ref().ok_or_else(|| contradiction(0))?;
                let numbers = units.start as usize..units.end as usize;
                let first = numbers.start;
                listed = self.list(cache, window.bytes, window.at - self.range.start, numbers)?;
                (Mpeg { bytes: window.bytes, header: self.header, frames: &listed, first }, 0)
            }
        };
        for (link, here, at) in self.overlaps(&span) {
            mpeg.read_link(link, cache, here, out, at).map_err(from_byte(before))?;
        }
        Ok(())
    }

    fn bytes_held(&self) -> usize {
        let places = match &self.places {
            FramePositions::All(frames) => frames.capacity() * size_of::<u32>(),
            FramePositions::Constant(_) => 0,
            FramePositions::Found(points) => points.capacity() * size_of::<SeekPoint>(),
        };
        places + self.links.capacity() * size_of::<Link>()
    }

    fn write(&self, to: &mut Writer) {
        to.range(&self.range);
        to.bytes(&self.header.raw);
        to.word(self.header.free);
        to.word(self.links.len() as u32);
        for Link { frames, delay, n_samples, declared } in self.links.iter() {
            to.range(&(frames.start as u64..frames.end as u64));
            to.long(*delay);
            to.long(*n_samples);
            to.long(declared.unwrap_or(u64::MAX));
        }
        match &self.places {
            FramePositions::Constant(Constant { at, n_tags, .. }) => {
                to.byte(0);
                to.long(*at);
                to.long(*n_tags);
            }
            FramePositions::Found(points) => {
                to.byte(1);
                to.points(points);
            }
            // Only in memory, where no index is written.
            FramePositions::All(_) => {}
        }
    }

    fn add_claims(&self, info: Info, claims: &mut Claims) {
        let declared = self.links.iter().try_fold(0u64, |sum, link| Some(sum.saturating_add(link.declared?)));
        if let (None, Some((there, said))) = (declared, self.cut) {
            claims.cut_short = Some(format!("the last MPEG audio frame has {there} of its {said} bytes"));
        }
        if let Some(at) = self.foreign {
            let message = format!(
                "from byte {at} on the MPEG audio has another layer, rate or number of channels, and is left out"
            );
            claims.notices.push(message);
        }
        // Some writers of tags count the frame that holds the tag.
        let slack = self.header.n_samples().into();
        claims.compare(info, declared, slack, "the Xing, Info or VBRI tag declares");
    }
}

/// Offsets are 32-bit numbers.
fn check_size(size: u64) -> Result<()> {
    match u32::try_from(size) {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::new(ErrorKind::TooLarge, "the MPEG audio recording is larger than 4 GiB")),
    }
}

/// Finds the frames of a file; None if it has too many links.
fn in_file(reader: &mut RangeReader<'_>) -> Result<Option<MpegIndex>> {
    let size = reader.size();
    let last = reader.read_cached(size.saturating_sub(reader.sizes.ends.max(TAIL_LEN as u64))..size)?;
    let tail = Bytes::copy_from_slice(&last[last.len().saturating_sub(TAIL_LEN)..]);
    let found = match constant(reader)? {
        Some(found) => Some(found),
        None => scan(reader, &tail)?,
    };
    let Some((header, found, places)) = found else { return Ok(None) };
    Ok(Some(MpegIndex::new(header, found.into(), places)))
}

type FoundFrames = (Header, Vec<Link>, FramePositions);

/// Proves that the recording has a constant bit rate; None if it is not proven.
fn constant(reader: &mut RangeReader<'_>) -> Result<Option<FoundFrames>> {
    let size = reader.size();
    // After a tag at the start, which may be long.
    let Some(from) = reader.parse(|file| Ok(id3::skip(file)))? else { return Ok(None) };
    let head = reader.read_cached(from..size.min(from + PROOF))?;
    let last = reader.read_cached(size.saturating_sub(PROOF)..size)?;
    let found = Constant::find(&head, from, &last, size)?;
    Ok(found.map(|(header, links, constant)| (header, links, FramePositions::Constant(constant))))
}

/// Finds all frames, in pieces; None if there are too many links.
fn scan(reader: &RangeReader<'_>, tail: &[u8]) -> Result<Option<FoundFrames>> {
    let size = reader.size();
    let len = reader.sizes.piece.max(4 * AHEAD_BYTES);
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
            return Ok(Some((header, links, FramePositions::Found(points))));
        }
    }
}
