//! The file that a codec's own format reads, made of the frames of a track.
//!
//! Opus and Vorbis become a stream of Ogg: headers of the track's setup, and pages of one block each, whose
//! granule positions are the sum of the packets' lengths. FLAC, MPEG audio and PCM become the setup and the
//! frames, one after the other. So spans have the same samples as in the codec's own container, by the same
//! code.
//!
//! In memory the file is made as a whole. Of a file on disk only the part that a span needs is made, from the
//! nearest block whose place in both files is known ([`FilePoint`]).
//!
//! Source: RFC 3533 (pages), RFC 7845 (Opus in Ogg), Vorbis I appendix A; RFC 9559; own.

use std::ops::Range;

use bytes::Bytes;
use smallvec::SmallVec;

use super::walk::{BlockWalk, MatroskaBytes, TrackBlock};
use crate::{
    Codec, Result,
    checksum::crc32,
    corrupt, fallible_alloc,
    formats::{
        opus::{self, packet_samples},
        vorbis::PacketLengths,
    },
    index_file::{Parser, Writer},
    locate::{MAX_POINTS, contradiction},
    read_at::{RangeReader, ReadAt},
};

/// The serial number of the made stream; any is right.
const SERIAL: u32 = 1;
const FIRST_PAGE: u8 = 2;
const LAST_PAGE: u8 = 4;
const CONTINUED: u8 = 1;

/// How frames become the codec's file.
#[derive(Debug)]
enum Framing {
    /// One after the other.
    Plain,
    Opus,
    Vorbis(PacketLengths),
}

/// The state of the codec's file at the start of a block.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct FileState {
    /// Bytes so far.
    pub at: u64,
    /// Pages so far, the samples up to them, and the block size of the last packet of Vorbis.
    sequence: u32,
    pub granule: i64,
    before: u16,
}

/// A place in both files: the byte of a block, or of the end of the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FilePoint {
    pub at: u64,
    pub state: FileState,
}

/// The codec's file of a track.
#[derive(Debug)]
pub(super) struct CodecFile {
    framing: Framing,
    track: u64,
    /// The setup of the decoder, as the track has it.
    private: Vec<u8>,
    /// The bytes before the first block's, and the state after them.
    head: Vec<u8>,
    start: FileState,
    /// The byte of the last block with frames.
    last: u64,
    points: Vec<FilePoint>,
}

/// A page: lacing values, bytes of frames, and frames that end on it.
struct PagePlan<'l> {
    lacing: &'l [u8],
    bytes: Range<usize>,
    is_continued: bool,
    /// The number of frames up to its end, if one ends on it.
    n_ended: Option<usize>,
}

/// Splits frames of these lengths, one after the other, into pages.
fn each_page(lens: &[u32], mut page: impl FnMut(PagePlan<'_>) -> Result<()>) -> Result<()> {
    let (mut lacing, mut n) = ([0; 255], 0);
    let (mut begin, mut end) = (0, 0);
    let (mut is_continued, mut ended) = (false, None);
    for (i, &len) in lens.iter().enumerate() {
        let mut left = len as usize;
        loop {
            let value = left.min(255);
            lacing[n] = value as u8;
            (n, end, left) = (n + 1, end + value, left - value);
            if value < 255 {
                ended = Some(i + 1);
            }
            if n == 255 {
                page(PagePlan { lacing: &lacing, bytes: begin..end, is_continued, n_ended: ended })?;
                (n, begin, is_continued, ended) = (0, end, value == 255, None);
            }
            if value < 255 {
                break;
            }
        }
    }
    if n > 0 {
        page(PagePlan { lacing: &lacing[..n], bytes: begin..end, is_continued, n_ended: ended })?;
    }
    Ok(())
}

fn write_page(
    out: &mut Vec<u8>,
    plan: &PagePlan<'_>,
    flags: u8,
    granule: i64,
    sequence: u32,
    data: &[u8],
) -> Result<()> {
    let at = out.len();
    let body = &data[plan.bytes.clone()];
    fallible_alloc::grow(out, 27 + plan.lacing.len() + body.len())?;
    out.extend_from_slice(b"OggS\0");
    out.push(flags | if plan.is_continued { CONTINUED } else { 0 });
    out.extend_from_slice(&granule.to_le_bytes());
    out.extend_from_slice(&SERIAL.to_le_bytes());
    out.extend_from_slice(&sequence.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.push(plan.lacing.len() as u8);
    out.extend_from_slice(plan.lacing);
    out.extend_from_slice(body);
    let crc = crc32(0, &out[at..]);
    out[at + 22..at + 26].copy_from_slice(&crc.to_le_bytes());
    Ok(())
}

/// The three headers of Vorbis in a track's setup, which has the lengths of the first two.
fn vorbis_headers(private: &[u8]) -> Option<[&[u8]; 3]> {
    let mut rest = private.strip_prefix(&[2])?;
    let mut take = || {
        let mut len = 0;
        loop {
            let (&byte, behind) = rest.split_first()?;
            rest = behind;
            len += usize::from(byte);
            if byte < 255 {
                return Some(len);
            }
        }
    };
    let (first, second) = (take()?, take()?);
    let (first, rest) = rest.split_at_checked(first)?;
    let (second, third) = rest.split_at_checked(second)?;
    Some([first, second, third])
}

impl CodecFile {
    /// The file of a track of `codec` with this setup, still without blocks.
    ///
    /// # Errors
    /// `Corrupt` or `Unsupported` for a setup that is damaged or not decoded.
    pub(super) fn new(codec: Codec, track: u64, private: &[u8]) -> Result<Self> {
        let mut head = Vec::new();
        let mut state = FileState::default();
        let mut packets = |packets: &[&[u8]], flags: u8| {
            let lens: SmallVec<[u32; 8]> = packets.iter().map(|packet| packet.len() as u32).collect();
            let data = packets.concat();
            each_page(&lens, |plan| {
                write_page(
                    &mut head,
                    &plan,
                    flags,
                    if plan.n_ended.is_some() { 0 } else { -1 },
                    state.sequence,
                    &data,
                )?;
                state.sequence += 1;
                Ok(())
            })
        };
        let framing = match codec {
            Codec::Opus => {
                if !private.starts_with(b"OpusHead") {
                    return Err(corrupt("the Opus track has no OpusHead in its CodecPrivate"));
                }
                packets(&[private], FIRST_PAGE)?;
                packets(&[b"OpusTags\0\0\0\0\0\0\0\0"], 0)?;
                Framing::Opus
            }
            Codec::Vorbis => {
                let [first, second, third] = vorbis_headers(private)
                    .ok_or_else(|| corrupt("the Vorbis track has no three headers in its CodecPrivate"))?;
                packets(&[first], FIRST_PAGE)?;
                packets(&[second, third], 0)?;
                Framing::Vorbis(PacketLengths::new(first, third)?)
            }
            Codec::Flac => {
                if !private.starts_with(&crate::signatures::FLAC) {
                    return Err(corrupt("the FLAC track has no `fLaC` in its CodecPrivate"));
                }
                head = fallible_alloc::copy(private)?;
                Framing::Plain
            }
            _ => Framing::Plain,
        };
        state.at = head.len() as u64;
        let private = fallible_alloc::copy(private)?;
        Ok(Self { framing, track, private, head, start: state, last: 0, points: Vec::new() })
    }

    /// The samples of all blocks, if the file counts them.
    pub(super) fn granule(&self) -> i64 {
        self.points.last().map_or(0, |last| last.state.granule)
    }

    pub(super) fn size(&self) -> u64 {
        self.points.last().map_or(self.start.at, |last| last.state.at)
    }

    pub(super) fn bytes_held(&self) -> usize {
        self.private.capacity() + self.head.capacity() + self.points.capacity() * size_of::<FilePoint>()
    }

    /// Samples per second of the granule positions.
    pub(super) fn sample_rate(&self) -> Option<u32> {
        match &self.framing {
            Framing::Plain => None,
            Framing::Opus => Some(opus::SAMPLE_RATE),
            Framing::Vorbis(lengths) => Some(lengths.sample_rate()),
        }
    }

    /// Adds the next block of the track.
    ///
    /// # Errors
    /// As [`MatroskaBytes::get`]; of memory.
    pub(super) fn push(&mut self, source: &mut MatroskaBytes<'_, '_>, block: &TrackBlock) -> Result<()> {
        if block.lens.is_empty() {
            return Ok(());
        }
        let mut state = self.points.pop().map_or(self.start, |end| end.state);
        fallible_alloc::push(&mut self.points, FilePoint { at: block.at, state })?;
        if self.points.len() > MAX_POINTS {
            let mut number = 0;
            self.points.retain(|_| {
                number += 1;
                number % 2 == 1
            });
        }
        self.last = block.at;
        self.add(source, block, &mut state, None)?;
        fallible_alloc::push(&mut self.points, FilePoint { at: block.end, state })
    }

    /// Counts what a block adds to the file, and appends it to `out` if there is one.
    fn add(
        &self,
        source: &mut MatroskaBytes<'_, '_>,
        block: &TrackBlock,
        state: &mut FileState,
        mut out: Option<&mut Vec<u8>>,
    ) -> Result<()> {
        let len = block.data.end - block.data.start;
        if matches!(self.framing, Framing::Plain) {
            state.at += len;
            if let Some(out) = out {
                let data = source.get(block.data.start, len)?;
                fallible_alloc::grow(out, data.len())?;
                out.extend_from_slice(data);
            }
            return Ok(());
        }
        let mut ends: SmallVec<[i64; 8]> = SmallVec::new();
        let (mut granule, mut at) = (state.granule, block.data.start);
        for &len in &block.lens {
            let head = source.get(at, u64::from(len.min(2)))?;
            granule += match &self.framing {
                Framing::Plain => 0,
                Framing::Opus => packet_samples(head),
                Framing::Vorbis(lengths) => lengths.step(&mut state.before, head.first().copied()),
            };
            ends.push(granule);
            at += u64::from(len);
        }
        if block.discard > 0
            && let Some(last) = ends.last_mut()
        {
            let discard = samples_of(block.discard, self.sample_rate().unwrap_or(1));
            *last = (*last - discard).max(state.granule);
        }
        let data = match &out {
            Some(_) => source.get(block.data.start, len)?,
            None => &[],
        };
        let is_last = block.at == self.last;
        let n_frames = block.lens.len();
        each_page(&block.lens, |plan| {
            state.at += (27 + plan.lacing.len() + plan.bytes.len()) as u64;
            if let Some(out) = &mut out {
                let flags = if is_last && plan.n_ended == Some(n_frames) { LAST_PAGE } else { 0 };
                let granule = plan.n_ended.map_or(-1, |n| ends[n - 1]);
                write_page(out, &plan, flags, granule, state.sequence, data)?;
            }
            state.sequence = state.sequence.wrapping_add(1);
            Ok(())
        })?;
        state.granule = ends.last().copied().unwrap_or(state.granule);
        Ok(())
    }

    /// Appends the whole file to `out`. `bytes` is the Matroska file.
    ///
    /// # Errors
    /// Of memory.
    pub(super) fn write_all(&self, bytes: &[u8], out: &mut Vec<u8>) -> Result<()> {
        fallible_alloc::reserve(out, usize::try_from(self.size()).unwrap_or(usize::MAX))?;
        out.extend_from_slice(&self.head);
        let [first, .., last] = &self.points[..] else { return Ok(()) };
        let bytes = bytes.get(first.at as usize..last.at as usize).unwrap_or_default();
        self.write_part(first, last, bytes, out)
    }

    /// Appends the part between two points, whose bytes in the Matroska file are `bytes`.
    fn write_part(&self, from: &FilePoint, to: &FilePoint, bytes: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let mut source = MatroskaBytes::Slice { at: from.at, bytes };
        let mut walk = BlockWalk::new(from.at, self.track, None);
        let (mut block, mut state) = (TrackBlock::default(), from.state);
        while walk.next(&mut source, &mut block)? {
            self.add(&mut source, &block, &mut state, Some(&mut *out))?;
            if state.at > to.state.at {
                break;
            }
        }
        if state != to.state {
            return Err(contradiction(from.at));
        }
        Ok(())
    }

    pub(super) fn write(&self, to: &mut Writer) {
        to.long(self.track);
        to.word(self.private.len() as u32);
        to.bytes(&self.private);
        to.long(self.last);
        to.word(self.points.len() as u32);
        for FilePoint { at, state } in &self.points {
            to.long(*at);
            to.long(state.at);
            to.word(state.sequence);
            to.bytes(&state.granule.to_le_bytes());
            to.word(state.before.into());
        }
    }

    pub(super) fn read(from: &mut Parser<'_>, size: u64, codec: Codec) -> Option<Self> {
        let track = from.long()?;
        let len = from.word()? as usize;
        let mut this = Self::new(codec, track, from.bytes(len)?).ok()?;
        this.last = from.long()?;
        let n = from.word()? as usize;
        if !(2..=MAX_POINTS + 1).contains(&n) || n > from.left() / 32 {
            return None;
        }
        for _ in 0..n {
            let at = from.long().filter(|&at| at <= size)?;
            let here = from.long()?;
            let sequence = from.word()?;
            let granule =
                from.array().map(i64::from_le_bytes).filter(|granule| (0..1 << 61).contains(granule))?;
            let before = u16::try_from(from.word()?).ok()?;
            let point = FilePoint { at, state: FileState { at: here, sequence, granule, before } };
            let follows = match this.points.last() {
                None => here == this.start.at,
                Some(last) => last.at < at && last.state.at < here && last.state.granule <= granule,
            };
            if !follows {
                return None;
            }
            this.points.push(point);
        }
        // A page adds at most 27 + 1 bytes and a lacing value to a block, which has 6 bytes at least.
        (this.size() - this.start.at <= size.saturating_mul(8)).then_some(this)
    }
}

/// The samples that last so many nanoseconds, rounded to the nearest.
pub(super) fn samples_of(nanoseconds: u64, sample_rate: u32) -> i64 {
    let samples = (u128::from(nanoseconds) * u128::from(sample_rate) + 500_000_000) / 1_000_000_000;
    i64::try_from(samples).unwrap_or(i64::MAX).min(1 << 60)
}

/// The bytes of the codec's file, made of the ranges of the Matroska file that they need.
pub(super) struct CodecFileParts<'a, 'r> {
    pub file: &'r CodecFile,
    pub reader: &'r RangeReader<'a>,
}

impl ReadAt for CodecFileParts<'_, '_> {
    fn size(&self) -> u64 {
        self.file.size()
    }

    /// One read of the Matroska file at most.
    fn read(&self, range: Range<u64>) -> Result<Bytes> {
        let Self { file, reader } = self;
        let points = &file.points;
        let from = points.partition_point(|point| point.state.at <= range.start).max(1) - 1;
        let to = points.partition_point(|point| point.state.at < range.end);
        let mut out = Vec::new();
        let mut begin = points.get(from).map_or(0, |point| point.state.at);
        if range.start < file.start.at {
            begin = 0;
            out.extend_from_slice(&file.head);
        }
        if range.end > file.start.at
            && let (Some(from), Some(to)) = (points.get(from), points.get(to))
        {
            let bytes = reader.read(from.at..to.at)?;
            file.write_part(from, to, &bytes, &mut out)?;
        }
        let (start, end) = ((range.start - begin) as usize, (range.end - begin) as usize);
        if end > out.len() {
            return Err(contradiction(0));
        }
        Ok(Bytes::from(out).slice(start..end))
    }

    fn limit(&self) -> u64 {
        self.reader.limit()
    }
}
