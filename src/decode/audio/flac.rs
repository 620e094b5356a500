//! FLAC: finds the frame that holds a sample by bisection over the bytes, and decodes from there.
//!
//! Frames are independent, so no pre-roll is needed. The length is that of STREAMINFO if the last frame in
//! the bytes agrees. Otherwise all frames are walked once, and the recording ends with the last valid one.
//! Complete frames after it that do not continue it (other numbers, another rate) are an error: a recording
//! is never silently short.
//!
//! Frames are numbered by frames or by samples. The bit that distinguishes them came with FLAC 1.2.0; older
//! streams of variable block size carry sample numbers without it. So if the numbers contradict STREAMINFO's
//! length, the first two consecutive frames decide. The CRC-16 of every frame that a span overlaps is checked
//! before decoding, so damage is an error and never noise.
//!
//! The library's demuxer is not used: its seek parses forward from a seek point and trusts STREAMINFO's
//! total.
//!
//! Source: RFC 9639.

use std::ops::{Deref, Range};

use symphonia::{
    core::{
        audio::{Audio, GenericAudioBufferRef},
        codecs::audio::{AudioCodecParameters, AudioDecoder, AudioDecoderOptions, well_known::CODEC_ID_FLAC},
        packet::PacketRef,
        units::{Duration, Timestamp},
    },
    default::codecs::FlacDecoder,
};

use super::{
    Codec, DecoderCache, Info, Planes, corrupt,
    decoder_cache::{Lent, Shelf},
    flac_frame::{Frame, Header, MAX_HEADER, Stream, crc16, end_of, follower, linked, next_header},
    flac_plain, id3,
    ranged::Look,
    unsupported,
};
use crate::{Error, ErrorKind, Result};

/// The bytes at the end that are searched for the last frame: a frame and some trailing junk. If it is not
/// found, all frames are walked.
const TAIL: usize = 1 << 17;
/// Bisection stops at gaps of this many bytes, since walking them costs less than another probe.
const WALK: usize = 1 << 15;
/// The bytes of the shortest frame: a header of 6 bytes, a constant subframe of 2, a CRC-16 of 2.
const MIN_FRAME: usize = 10;
/// Bytes of STREAMINFO.
const STREAMINFO: usize = 34;

/// The bytes of a native FLAC file.
#[derive(Debug)]
pub(super) enum Bytes<'a> {
    /// A native file as it is.
    Whole(&'a [u8]),
    /// Extracted from a container.
    Joined(Lent<u8>),
}

impl Deref for Bytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Whole(bytes) => bytes,
            Self::Joined(bytes) => bytes,
        }
    }
}

/// The worker's unused vectors: bytes extracted from a container, and samples of the plain decoder.
#[derive(Default)]
pub(super) struct Shelves {
    pub(super) joined: Shelf<u8>,
    plain: Shelf<i64>,
}

/// The most seek points that are looked at.
const MAX_SEEK_POINTS: usize = 1 << 16;

/// The properties of a recording that all its frames share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) info: Info,
    pub(super) stream: Stream,
    /// STREAMINFO for the decoder, with the largest block corrected by the first frame.
    pub(super) setup: [u8; STREAMINFO],
    /// Samples per channel in STREAMINFO; 0 if unknown.
    pub(super) declared: u64,
}

/// What the metadata and the first frame's header say.
#[derive(Debug, Clone)]
pub(super) struct Head {
    pub(super) shape: Shape,
    /// The seek table's body.
    pub(super) seek_table: Range<u64>,
    /// Byte offset and samples of the first frame.
    pub(super) at: u64,
    pub(super) block: u32,
}

/// A FLAC recording, or a window of its frames.
#[derive(Debug)]
pub struct Flac<'a> {
    bytes: Bytes<'a>,
    shape: Shape,
    /// The seek table's body in `bytes`.
    seek_table: Range<usize>,
    /// The first frame in `bytes`, and the sample after the last one.
    first: Frame,
    behind: Option<u64>,
    /// The bytes within which the end of a frame is searched: twice the largest frame stored verbatim, and
    /// 64.
    frame_budget: usize,
}

impl Shape {
    /// [`Flac::frame_budget`].
    pub(super) fn frame_budget(&self) -> usize {
        let largest = usize::from(u16::from_be_bytes([self.setup[2], self.setup[3]]));
        let verbatim = largest * usize::from(self.stream.channels) * (usize::from(self.stream.bits) + 1) / 8;
        // A subframe may be larger than verbatim. No encoder reaches twice that, and the budget only bounds a
        // search.
        2 * verbatim + 64
    }

    /// The most samples that frames in `bytes` bytes can hold; a header that declares more is wrong.
    pub(super) fn most_samples(&self, bytes: u64) -> u64 {
        let largest = u64::from(u16::from_be_bytes([self.setup[2], self.setup[3]]));
        (bytes / MIN_FRAME as u64 + 1).saturating_mul(largest)
    }

    /// Whether STREAMINFO's length is possible with `bytes` bytes of frames.
    pub(super) fn can_be(&self, bytes: u64) -> bool {
        self.declared > 0 && self.declared <= self.most_samples(bytes)
    }
}

impl Head {
    /// Reads the metadata and the first frame's header.
    ///
    /// # Errors
    /// `Corrupt` without STREAMINFO or a valid first frame, `Empty` without frames.
    pub(super) fn find<'a>(file: &impl Look<'a>) -> Result<Self> {
        let mut at = id3::skip(file);
        if file.clipped(at, 4) != crate::magic::FLAC {
            return Err(corrupt("the FLAC marker is missing").at_byte(at));
        }
        at += 4;
        let (mut setup, mut seek_table) = (None, 0..0);
        loop {
            let Some(&[head, a, b, c]) = file.get(at, 4).and_then(|head| head.first_chunk::<4>()) else {
                return Err(corrupt("the FLAC metadata run past the end of the bytes").at_byte(at));
            };
            let len = u64::from(u32::from_be_bytes([0, a, b, c]));
            let body = at + 4;
            match head & 0x7f {
                0 if setup.is_none() => {
                    setup = file.get(body, STREAMINFO as u64).and_then(|body| body.first_chunk()).copied();
                }
                3 => seek_table = body.min(file.size())..(body + len).min(file.size()),
                _ => {}
            }
            at = body + len;
            if head & 0x80 != 0 {
                break;
            }
        }
        let mut setup: [u8; STREAMINFO] =
            setup.ok_or_else(|| corrupt("the FLAC file has no STREAMINFO block"))?;
        let packed = u64::from_be_bytes([
            setup[10], setup[11], setup[12], setup[13], setup[14], setup[15], setup[16], setup[17],
        ]);
        let total = packed & ((1 << 36) - 1);
        let mut stream = Stream {
            sample_rate: (packed >> 44) as u32,
            channels: ((packed >> 41) & 7) as u8 + 1,
            bits: ((packed >> 36) & 31) as u8 + 1,
            is_variable: false,
            fixed: None,
        };
        if stream.sample_rate == 0 {
            return Err(unsupported("the FLAC file has a sample rate of 0, so it holds no audio"));
        }
        let none = |at| {
            if at == file.size() {
                return Error::new(ErrorKind::Empty, "the FLAC file has metadata but no frames");
            }
            corrupt("no valid frame that agrees with STREAMINFO follows the FLAC metadata").at_byte(at)
        };
        let header = Header::parse(file.clipped(at, MAX_HEADER as u64)).ok_or_else(|| none(at))?;
        stream.is_variable = header.is_variable;
        // If frames hold one sample, both numbers are the same.
        stream.fixed = (!header.is_variable && header.block > 1).then_some(header.block);
        match header.first_in(&stream).ok_or_else(|| none(at))? {
            0 => {}
            first => {
                let message = format!(
                    "the first FLAC frame begins at sample {first}: the file was cut out of another one without \
                     encoding it again; encode it again, so that it begins at 0"
                );
                return Err(unsupported(message).at_byte(at));
            }
        }
        let largest = u32::from(u16::from_be_bytes([setup[2], setup[3]])).max(header.block).max(16);
        setup[2..4].copy_from_slice(&(largest.min(65535) as u16).to_be_bytes());
        let info = Info {
            codec: Codec::Flac,
            sample_rate: stream.sample_rate,
            channels: stream.channels.into(),
            n_samples: total,
        };
        let shape = Shape { info, stream, setup: decoder_setup(setup), declared: total };
        Ok(Self { shape, seek_table, at, block: header.block })
    }
}

/// The seek points of a seek table: samples, and bytes after the first frame. Placeholders are all ones, so
/// they are past the end.
pub(super) fn seek_points(table: &[u8]) -> impl Iterator<Item = (u64, u64)> {
    table.as_chunks::<18>().0.iter().take(MAX_SEEK_POINTS).map(|point| {
        let number =
            |at: usize| point[at..at + 8].iter().fold(0u64, |value, &byte| value << 8 | u64::from(byte));
        (number(0), number(8))
    })
}

/// The frames found in a window.
#[derive(Debug, Clone, Copy)]
pub(super) struct Survey {
    /// The first frame that is complete, and the byte and the sample after the last one.
    pub(super) first: Frame,
    pub(super) end: usize,
    pub(super) behind: u64,
}

impl<'a> Flac<'a> {
    /// Reads the metadata, and the first and the last frame.
    ///
    /// # Errors
    /// As [`Head::find`], and `Corrupt` without a complete frame.
    pub(super) fn open(kept: &mut DecoderCache, bytes: Bytes<'a>) -> Result<Self> {
        let mut plain = kept.shelves::<Shelves>().plain.lend();
        let Head { shape, seek_table, at, block } = Head::find(&&*bytes)?;
        let first = Frame { at: at as usize, first: 0, block };
        let mut flac = Self::window(bytes, shape, first, None);
        flac.seek_table = seek_table.start as usize..seek_table.end as usize;
        let can_be = flac.shape.can_be(flac.bytes.len() as u64 - at);
        if !(can_be && flac.ends_at_declared(&mut plain)) {
            let was_fixed = flac.shape.stream.fixed;
            flac.shape.stream.fixed = flac.numbering();
            let ends_now =
                can_be && flac.shape.stream.fixed != was_fixed && flac.ends_at_declared(&mut plain);
            if !ends_now {
                flac.shape.info.n_samples = flac.walk(&mut plain)?;
            }
        }
        if flac.shape.info.n_samples == 0 {
            return Err(corrupt("none of the FLAC frames is complete").at_byte(at));
        }
        Ok(flac)
    }

    /// A window of frames of a recording, from its frame `first` up to sample `behind`, if that is known.
    pub(super) fn window(bytes: Bytes<'a>, shape: Shape, first: Frame, behind: Option<u64>) -> Self {
        let frame_budget = shape.frame_budget();
        Self { bytes, shape, seek_table: 0..0, first, behind, frame_budget }
    }

    /// Finds the complete frames of a window, also those between damaged ones. The number of the first one is
    /// at least `least`. `is_end` says whether the window reaches to the end of the recording, where no frame
    /// follows the last one.
    pub(super) fn survey(&self, least: u64, is_end: bool) -> Option<Survey> {
        let (bytes, stream) = (&*self.bytes, &self.shape.stream);
        let mut work = self.work();
        let mut found: Option<Survey> = None;
        let (mut at, mut next) = (0, None);
        loop {
            let known = next.take();
            let Some(frame) = known.or_else(|| next_header(bytes, stream, at..bytes.len(), None)) else {
                return found;
            };
            at = frame.at + 1;
            let least = found.map_or(least, |found| found.behind);
            if frame.first < least || frame.first >= self.shape.info.n_samples {
                continue;
            }
            match end_of(bytes, stream, frame, self.frame_budget) {
                Some((end, follower)) if is_end || follower.is_some() => {
                    let survey = found.get_or_insert(Survey { first: frame, end, behind: 0 });
                    (survey.end, survey.behind) = (end, frame.first + u64::from(frame.block));
                    (at, next) = (end, follower);
                }
                _ => match work.checked_sub(self.frame_budget.min(bytes.len() - frame.at)) {
                    Some(left) => work = left,
                    None => return found,
                },
            }
        }
    }

    /// Codec, rate, channels and length, checked against the frames.
    pub fn info(&self) -> Info {
        self.shape.info
    }

    /// Samples per channel in STREAMINFO, if known.
    pub(super) fn declared(&self) -> Option<u64> {
        Some(self.shape.declared).filter(|&n| n > 0)
    }

    /// [`Stream::fixed`] by the numbers of the first two consecutive frames; unchanged if there are none.
    fn numbering(&self) -> Option<u32> {
        let range = self.first.at..self.bytes.len();
        match linked(&self.bytes, range, self.frame_budget, &mut self.work()) {
            Some((one, next)) => self.numbered(&one, &next),
            None => self.shape.stream.fixed,
        }
    }

    /// [`Stream::fixed`] by two consecutive frames at the start of a window; None if the window does not show
    /// them.
    pub(super) fn numbering_at_start(&self) -> Option<Option<u32>> {
        let one = Header::parse(&self.bytes[self.first.at..])?;
        let next = follower(&self.bytes, self.first.at, self.frame_budget)?;
        Some(self.numbered(&one, &next))
    }

    /// [`Stream::fixed`] by two consecutive frames.
    fn numbered(&self, one: &Header, next: &Header) -> Option<u32> {
        if one.number.checked_add(one.block.into()) == Some(next.number) {
            None
        } else if one.number + 1 == next.number {
            Some(self.first.block)
        } else {
            self.shape.stream.fixed
        }
    }

    /// Whether a complete frame near the end of the bytes ends at the sample that STREAMINFO declares.
    ///
    /// Looks at the last [`Self::tail`] bytes.
    fn ends_at_declared(&self, plain: &mut Vec<i64>) -> bool {
        let (bytes, total) = (&*self.bytes, self.shape.declared);
        let lowest = bytes.len().saturating_sub(self.tail()).max(self.first.at);
        let (mut end, mut n_tries) = (bytes.len(), 0);
        while end > lowest && n_tries < 8 {
            // Pieces are searched backwards, each of them forwards.
            let start = end.saturating_sub(1 << 12).max(lowest);
            let mut at = start;
            while let Some(frame) = next_header(bytes, &self.shape.stream, at..end, None) {
                if frame.first + u64::from(frame.block) == total {
                    // The CRC-16 shows whether the frame of this header is complete. If junk follows, the
                    // decoder finds its end.
                    n_tries += 1;
                    let is_whole = end_of(bytes, &self.shape.stream, frame, usize::MAX).is_some()
                        || self.last_end(frame, plain).is_some();
                    if is_whole {
                        return true;
                    }
                }
                at = frame.at + 1;
            }
            end = start;
        }
        false
    }

    /// The bytes at the end that are searched for the last frame.
    fn tail(&self) -> usize {
        TAIL.max(self.frame_budget)
    }

    /// [`Self::tail`] of a recording of this shape.
    pub(super) fn tail_of(shape: &Shape) -> usize {
        TAIL.max(shape.frame_budget())
    }

    /// [`Self::walk`] over a window that reaches to the end of the recording.
    pub(super) fn walk_to_end(&self, kept: &mut DecoderCache) -> Result<u64> {
        self.walk(&mut kept.shelves::<Shelves>().plain.lend())
    }

    /// [`Self::ends_at_declared`] for the window at the end of the recording.
    pub(super) fn window_ends(&self, kept: &mut DecoderCache) -> bool {
        self.ends_at_declared(&mut kept.shelves::<Shelves>().plain.lend())
    }

    /// The frame after `frame`, or the end of the recording if it is the last in its bytes; None if it is
    /// damaged, or cut by the end of a window.
    pub(super) fn step(&self, frame: Frame) -> Option<(usize, Option<Frame>)> {
        end_of(&self.bytes, &self.shape.stream, frame, self.frame_budget)
    }

    /// The most bytes that a search may read without result.
    fn work(&self) -> usize {
        16 * self.bytes.len() + (1 << 20)
    }

    /// The end of the last valid frame; frames before it may be damaged.
    ///
    /// # Errors
    /// As [`Self::check_number`] and [`Self::check_rest`], and `Corrupt` if so many frames are damaged that
    /// the search for valid ones would read the bytes many times over.
    fn walk(&self, plain: &mut Vec<i64>) -> Result<u64> {
        let (mut frame, mut valid, mut work) = (self.first, self.first.first, 4 * self.work());
        loop {
            let end = frame.first + u64::from(frame.block);
            match end_of(&self.bytes, &self.shape.stream, frame, self.frame_budget) {
                Some((_, Some(next))) => (frame, valid) = (next, end),
                Some((_, None)) => return Ok(end),
                None => {
                    // `end_of` and `check_number` each search these bytes without result.
                    let cost = 2 * self.frame_budget.min(self.bytes.len() - frame.at);
                    work = work.checked_sub(cost).ok_or_else(|| {
                        corrupt("most of the FLAC frames are damaged").at_byte(frame.at as u64)
                    })?;
                    self.check_number(frame)?;
                    if let Some(next) = self.resync(frame, &mut work) {
                        frame = next;
                        continue;
                    }
                    let (n_samples, behind) = match self.last_end(frame, plain) {
                        Some(at) => (end, at),
                        None => (valid, frame.at + 1),
                    };
                    self.check_rest(n_samples, behind, &mut work)?;
                    return Ok(n_samples);
                }
            }
        }
    }

    /// Checks a `frame` that no frame of the right number follows: the next one must not continue frame
    /// numbers.
    ///
    /// # Errors
    /// `Unsupported` if it does: a frame's position is then unknown without all earlier frames.
    fn check_number(&self, frame: Frame) -> Result<()> {
        let number = Header::parse(&self.bytes[frame.at..]).map(|header| header.number);
        let next = follower(&self.bytes, frame.at, self.frame_budget);
        match (number, next) {
            (Some(number), Some(next))
                if next.number == number + 1 && next.agrees(&self.shape.stream) && frame.block > 1 =>
            {
                let message = "the FLAC frames have different block sizes, but frame numbers, so samples cannot be located; decode \
                               and re-encode the recording";
                Err(unsupported(message).at_byte(frame.at as u64))
            }
            _ => Ok(()),
        }
    }

    /// Checks that no complete frames follow the `n_samples` samples that end at byte `behind`, unless
    /// STREAMINFO declares exactly this number.
    ///
    /// # Errors
    /// `Unsupported` if they have another rate, width or number of channels, `Corrupt` if their numbers do
    /// not continue.
    fn check_rest(&self, n_samples: u64, behind: usize, work: &mut usize) -> Result<()> {
        if n_samples == self.shape.declared {
            return Ok(());
        }
        let rest = behind..self.bytes.len();
        let Some((one, _)) = linked(&self.bytes, rest, self.frame_budget, work) else { return Ok(()) };
        let error = if one.agrees(&self.shape.stream) {
            corrupt(format!(
                "the numbers of the FLAC frames after sample {n_samples} do not continue; decode and re-encode the recording"
            ))
        } else {
            unsupported(format!(
                "from sample {n_samples} on the FLAC frames have another rate, width or number of channels than STREAMINFO declares"
            ))
        };
        Err(error.at_byte(behind as u64))
    }

    /// The first valid frame after a damaged one.
    fn resync(&self, damaged: Frame, work: &mut usize) -> Option<Frame> {
        let n = self.bytes.len();
        let mut at = damaged.at + 1;
        while at < n {
            if let Some(frame) = self.confirmed(at..n, damaged, (n, u64::MAX), work) {
                return (frame.first - damaged.first
                    <= self.shape.most_samples((frame.at - damaged.at) as u64))
                .then_some(frame);
            }
            at += 2 * self.frame_budget;
        }
        None
    }

    /// The end of a last frame before junk: found by decoding the frame, and confirmed by its CRC-16.
    fn last_end(&self, frame: Frame, plain: &mut Vec<i64>) -> Option<usize> {
        let len = flac_plain::decode(&self.bytes[frame.at..], &self.shape.stream, plain)?;
        let end = frame.at + len;
        (crc16(0, self.bytes.get(frame.at..end)?) == 0).then_some(end)
    }

    /// A frame at or before sample `target`, close to it.
    fn seek(&self, target: u64) -> Frame {
        let bytes = &*self.bytes;
        let mut work = self.work();
        let (mut low, mut high) =
            (self.first, (bytes.len(), self.behind.unwrap_or(self.shape.info.n_samples)));
        // The nearest seek points around the target.
        let (mut before, mut behind) = ((0, 0), (u64::MAX, 0));
        for (sample, offset) in seek_points(&bytes[self.seek_table.clone()]) {
            if sample <= target {
                before = before.max((sample, offset));
            } else {
                behind = behind.min((sample, offset));
            }
        }
        let mut point = |(sample, offset): (u64, u64), low, high| {
            let at = self.first.at.checked_add(usize::try_from(offset).ok()?)?;
            self.confirmed(at..at.checked_add(1)?, low, high, &mut work).filter(|frame| frame.first == sample)
        };
        low = point(before, low, high).unwrap_or(low);
        high = point(behind, low, high).map_or(high, |frame| (frame.at, frame.first));
        // Interpolation over the bytes, with every second step plain halving: at most about 2 log2(bytes)
        // probes.
        let mut is_halving = false;
        while high.0 - low.at > WALK && target >= low.first + u64::from(low.block) {
            let gap = (high.0 - low.at) as u64;
            let offset = if is_halving {
                gap / 2
            } else {
                let share = (target - low.first) as f64 / (high.1 - low.first).max(1) as f64;
                // A little early, since the frame must start before the target.
                ((share * gap as f64) as u64).saturating_sub(WALK as u64 / 2)
            };
            is_halving = !is_halving;
            let at = low.at + (offset as usize).clamp(1, gap as usize - 1);
            match self.confirmed(at..high.0, low, high, &mut work) {
                Some(frame) if frame.first <= target => low = frame,
                Some(frame) => high = (at, frame.first.min(high.1)),
                None => high = (at, high.1),
            }
        }
        low
    }

    /// The first frame in `range` whose number is between the bounds and whose end is confirmed.
    ///
    /// `work` bounds the bytes of unsuccessful searches; only crafted headers reach the bound.
    fn confirmed(
        &self,
        range: Range<usize>,
        low: Frame,
        high: (usize, u64),
        work: &mut usize,
    ) -> Option<Frame> {
        let stop = range.end.min(range.start.saturating_add(2 * self.frame_budget)).min(self.bytes.len());
        let mut at = range.start;
        while let Some(frame) = next_header(&self.bytes, &self.shape.stream, at..stop, None) {
            if frame.first > low.first && frame.first < high.1 {
                if end_of(&self.bytes, &self.shape.stream, frame, self.frame_budget).is_some() {
                    return Some(frame);
                }
                *work = work.checked_sub(self.frame_budget.min(self.bytes.len() - frame.at))?;
            }
            at = frame.at + 1;
        }
        None
    }

    fn decoder(&self) -> Result<(Box<dyn AudioDecoder>, usize)> {
        let mut params = AudioCodecParameters::new();
        params.for_codec(CODEC_ID_FLAC).with_extra_data(self.shape.setup.into());
        let decoder = FlacDecoder::try_new(&params, &AudioDecoderOptions::default().gapless(false))
            .map_err(|error| corrupt("the FLAC decoder refuses STREAMINFO").because(error))?;
        let block = usize::from(u16::from_be_bytes([self.shape.setup[2], self.shape.setup[3]]));
        Ok((Box::new(decoder), 4 * block * usize::from(self.shape.stream.channels)))
    }

    /// Whether the frame needs more than the 32-bit arithmetic of the fast decoder.
    fn is_too_wide(&self, frame: &[u8]) -> bool {
        self.shape.stream.bits == 32
            && Header::parse(frame).is_some_and(|header| header.channels.side().is_some())
    }

    pub(crate) fn read(&self, kept: &mut DecoderCache, span: Range<u64>, out: &mut Planes) -> Result<()> {
        let mut plain = kept.shelves::<Shelves>().plain.lend();
        let decoder = kept.decoder(Codec::Flac, &self.shape.setup, || self.decoder())?;
        let damaged = |frame: Frame| {
            corrupt(format!("the FLAC frame of sample {} is damaged or cut short", frame.first))
                .at_byte(frame.at as u64)
        };
        let mut frame = self.seek(span.start);
        loop {
            let (end, next) = match end_of(&self.bytes, &self.shape.stream, frame, self.frame_budget) {
                Some(found) => found,
                None => (self.last_end(frame, &mut plain).ok_or_else(|| damaged(frame))?, None),
            };
            let behind = frame.first + u64::from(frame.block);
            if behind > span.start {
                let bytes = &self.bytes[frame.at..end];
                let from = span.start.max(frame.first);
                let n = (span.end.min(behind) - from) as usize;
                let wanted = (from - frame.first) as usize..(from - frame.first) as usize + n;
                let at = (from - span.start) as usize;
                if self.is_too_wide(bytes) {
                    flac_plain::decode(bytes, &self.shape.stream, &mut plain)
                        .ok_or_else(|| damaged(frame))?;
                    for (c, plane) in plain.chunks_exact(frame.block as usize).enumerate() {
                        scale(&mut out.channel_mut(c)[at..at + n], &plane[wanted.clone()], |x| x as i32);
                    }
                } else {
                    let decoded =
                        decoder.decode_ref(&packet(bytes)).map_err(|error| damaged(frame).because(error))?;
                    let GenericAudioBufferRef::S32(decoded) = decoded else {
                        return Err(corrupt("the FLAC decoder yields no 32-bit integers"));
                    };
                    for c in 0..usize::from(self.shape.info.channels) {
                        let plane = decoded.plane(c).and_then(|plane| plane.get(wanted.clone()));
                        scale(
                            &mut out.channel_mut(c)[at..at + n],
                            plane.ok_or_else(|| damaged(frame))?,
                            |x| x,
                        );
                    }
                }
            }
            if behind >= span.end {
                return Ok(());
            }
            frame = next.ok_or_else(|| {
                let message =
                    format!("the FLAC frames end at sample {behind} of {}", self.shape.info.n_samples);
                Error::new(ErrorKind::TooShort, message)
            })?;
        }
    }
}

/// Converts integers, left-justified in 32 bits, to floats of full scale 1.
fn scale<T: Copy>(y: &mut [f32], x: &[T], justified: impl Fn(T) -> i32) {
    for (y, &x) in y.iter_mut().zip(x) {
        *y = justified(x) as f32 * (1.0 / 2_147_483_648.0);
    }
}

/// The packet of one frame; FLAC frames carry their own time.
fn packet(bytes: &[u8]) -> PacketRef<'_> {
    PacketRef::new(0, Timestamp::ZERO, Duration::ZERO, bytes)
}

/// Clears the fields that differ between recordings but affect no frame (sizes, total, MD5), so that
/// recordings share a decoder.
fn decoder_setup(mut setup: [u8; STREAMINFO]) -> [u8; STREAMINFO] {
    setup[0..2].copy_from_slice(&[0, 16]);
    setup[4..10].fill(0);
    setup[13] &= 0xf0;
    setup[14..].fill(0);
    setup
}

/// The seek table of a file made for a test.
#[cfg(test)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Table {
    None,
    Right,
    /// Its samples are elsewhere.
    Wrong,
}

/// Makes a file of `n` samples or some more from the frames of `bytes`, over and over, with right numbers and
/// checksums.
#[cfg(test)]
pub(super) fn repeated(bytes: &[u8], n: u64, table: Table) -> Vec<u8> {
    use super::flac_frame::crc8;

    let flac = Flac::open(&mut DecoderCache::default(), Bytes::Whole(bytes)).unwrap();
    let block = flac.first.block;
    assert_eq!(flac.shape.stream.fixed, Some(block));
    let mut frames = Vec::new();
    let mut frame = Some(flac.first);
    while let Some(this) = frame {
        let (end, next) = flac.step(this).unwrap();
        if this.block == block {
            let header = Header::parse(&bytes[this.at..]).unwrap();
            frames.push((&bytes[this.at..end - 2], header.len));
        }
        frame = next;
    }
    let total = n.div_ceil(block.into()) * u64::from(block);
    let (mut body, mut points) = (Vec::new(), Vec::new());
    for (number, &(frame, header_len)) in (0..total / u64::from(block)).zip(frames.iter().cycle()) {
        let at = body.len();
        if number % 100 == 0 {
            points.push((number * u64::from(block), at as u64));
        }
        body.extend(&frame[..4]);
        // The number in the coding of UTF-8, which reaches far enough here.
        body.extend(char::from_u32(number as u32).unwrap().to_string().bytes());
        let old = (frame[4].leading_ones() as usize).max(1);
        body.extend(&frame[4 + old..header_len - 1]);
        body.push(crc8(&body[at..]));
        body.extend(&frame[header_len..]);
        let crc = crc16(0, &body[at..]);
        body.extend(crc.to_be_bytes());
    }
    let mut out = b"fLaC".to_vec();
    let info = bytes.windows(4).position(|four| four == b"fLaC").unwrap() + 8;
    let mut setup: [u8; STREAMINFO] = *bytes[info..].first_chunk().unwrap();
    let packed = u64::from_be_bytes(*setup[10..].first_chunk().unwrap()) >> 36 << 36 | total;
    setup[10..18].copy_from_slice(&packed.to_be_bytes());
    out.extend([if table == Table::None { 0x80 } else { 0 }, 0, 0, STREAMINFO as u8]);
    out.extend(setup);
    if table != Table::None {
        out.extend([0x83]);
        out.extend(&(18 * points.len() as u32).to_be_bytes()[1..]);
        for (i, (sample, at)) in points.iter().enumerate() {
            let at = if table == Table::Wrong { points[(i / 2 + 3) % points.len()].1 + 5 } else { *at };
            out.extend(sample.to_be_bytes());
            out.extend(at.to_be_bytes());
            out.extend((block as u16).to_be_bytes());
        }
    }
    out.extend(body);
    out
}

#[cfg(test)]
mod tests {
    use super::{super::flac_frame::crc8, *};

    /// Asserts that both decoders decode every frame of `bytes` to the same samples.
    fn assert_equals_plain(bytes: &[u8]) {
        let flac = Flac::open(&mut DecoderCache::default(), Bytes::Whole(bytes)).unwrap();
        let mut plain = Vec::new();
        let mut out = Planes::new();
        out.reset(flac.shape.info.channels, flac.shape.info.n_samples as usize).unwrap();
        flac.read(&mut DecoderCache::default(), 0..flac.shape.info.n_samples, &mut out).unwrap();
        let mut frame = Some(flac.first);
        let mut n = 0;
        while let Some(this) = frame {
            let (end, next) = end_of(&flac.bytes, &flac.shape.stream, this, usize::MAX).unwrap();
            let len = flac_plain::decode(&flac.bytes[this.at..], &flac.shape.stream, &mut plain).unwrap();
            assert_eq!(this.at + len, end);
            for (c, plane) in plain.chunks_exact(this.block as usize).enumerate() {
                for (i, &x) in plane.iter().enumerate() {
                    let want = x as f64 / f64::from(1u32 << (flac.shape.stream.bits - 1));
                    assert_eq!(out.channel(c)[n + i], want as f32, "channel {c}, sample {}", n + i);
                }
            }
            n += this.block as usize;
            frame = next;
        }
        assert_eq!(n as u64, flac.shape.info.n_samples);
    }

    /// The numbering of a made stream's headers.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Count {
        Frames,
        Samples,
    }

    /// Makes a mono 8-bit file of verbatim frames with these block sizes and the samples of [`sample`].
    fn made(blocks: &[u32], is_variable: bool, count: Count, total: u64) -> Vec<u8> {
        let (least, most) = (blocks.iter().min().unwrap(), blocks.iter().max().unwrap());
        let mut bytes = b"fLaC\x80\0\0\x22".to_vec();
        bytes.extend((*least as u16).to_be_bytes());
        bytes.extend((*most as u16).to_be_bytes());
        bytes.extend([0; 6]);
        bytes.extend((8000u64 << 44 | 7 << 36 | total).to_be_bytes());
        bytes.extend([0; 16]);
        let mut at = 0;
        for (i, &block) in blocks.iter().enumerate() {
            let number = if count == Count::Frames { i as u64 } else { at };
            bytes.extend(frame(block, is_variable, number, at));
            at += u64::from(block);
        }
        bytes
    }

    /// Sample `n` of the made streams.
    fn sample(n: u64) -> i8 {
        (n.wrapping_mul(2_654_435_761) >> 11) as i8
    }

    /// Makes a frame with the header number `number` that begins with sample `first`.
    fn frame(block: u32, is_variable: bool, number: u64, first: u64) -> Vec<u8> {
        let mut frame = vec![0xff, 0xf8 | u8::from(is_variable), 0x70, 0x02];
        match number {
            0..0x80 => frame.push(number as u8),
            0x80..0x800 => frame.extend([0xc0 | (number >> 6) as u8, 0x80 | (number & 63) as u8]),
            _ => frame.extend([
                0xf0 | (number >> 18) as u8,
                0x80 | (number >> 12 & 63) as u8,
                0x80 | (number >> 6 & 63) as u8,
                0x80 | (number & 63) as u8,
            ]),
        }
        frame.extend((block as u16 - 1).to_be_bytes());
        frame.push(crc8(&frame));
        // Subframe: verbatim, no wasted bits.
        frame.push(0x02);
        frame.extend((first..first + u64::from(block)).map(|n| sample(n) as u8));
        let crc = crc16(0, &frame);
        frame.extend(crc.to_be_bytes());
        frame
    }

    #[test]
    fn however_frames_are_numbered() {
        // Long enough for the search by bisection.
        let varied: Vec<u32> = (0..900).map(|i| [200, 64, 128, 16, 300][i % 5]).collect();
        let equal = [&[128; 700][..], &[77]].concat();
        let begins_small: Vec<u32> = [&[1, 1, 16][..], &[200; 300]].concat();
        let cases = [
            (&varied, true, Count::Samples),
            (&varied, false, Count::Samples),
            (&begins_small, false, Count::Samples),
            (&equal, false, Count::Frames),
            (&equal, true, Count::Frames),
            (&equal, false, Count::Samples),
        ];
        for (blocks, is_variable, count) in cases {
            let n: u64 = blocks.iter().copied().map(u64::from).sum();
            for total in [n, 0, n + 1000] {
                let what = format!("{:?}, {is_variable}, {count:?}, {total} of {n}", &blocks[..3]);
                let bytes = made(blocks, is_variable, count, total);
                let mut kept = DecoderCache::default();
                let flac = Flac::open(&mut kept, Bytes::Whole(&bytes)).unwrap();
                assert_eq!(flac.shape.info.n_samples, n, "{what}");
                for span in [0..n, 0..1, n - 1..n, n / 3..n / 3 + 700, n / 2 + 5..n / 2 + 6, n - 900..n - 100]
                {
                    let mut out = Planes::new();
                    out.reset(1, (span.end - span.start) as usize).unwrap();
                    flac.read(&mut kept, span.clone(), &mut out).unwrap();
                    let want: Vec<f32> = span.clone().map(|n| f32::from(sample(n)) / 128.0).collect();
                    assert!(out.channel(0) == want, "{what}: {span:?}");
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_placed_is_an_error_and_never_short() {
        // Frame numbers with blocks of several sizes, larger or smaller than the first.
        for blocks in [[64, 200, 64, 128, 64, 64], [200, 64, 128, 200, 200, 64], [200, 200, 64, 200, 200, 50]]
        {
            for is_variable in [false, true] {
                for total in [0, blocks.iter().map(|&n| u64::from(n)).sum()] {
                    let bytes = made(&blocks, is_variable, Count::Frames, total);
                    let error = Flac::open(&mut DecoderCache::default(), Bytes::Whole(&bytes)).unwrap_err();
                    assert_eq!(
                        error.kind,
                        ErrorKind::Unsupported,
                        "{blocks:?}, {is_variable}, {total}: {error}"
                    );
                }
            }
        }
        // Frames cut out by `ffmpeg -c copy` keep their numbers.
        for count in [Count::Frames, Count::Samples] {
            let bytes = made(&[128; 20], false, count, 0);
            let first = frame(128, false, 0, 0).len();
            let cut = [&bytes[..42], &bytes[42 + first..]].concat();
            let error = Flac::open(&mut DecoderCache::default(), Bytes::Whole(&cut)).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Unsupported, "{error}");
            assert!(error.message.contains("was cut out of another one"), "{error}");
        }
        // Frames of another stream after the last, numbered from 0.
        let one = made(&[128; 20], false, Count::Frames, 0);
        let other = made(&[128; 10], false, Count::Frames, 0);
        let error =
            Flac::open(&mut DecoderCache::default(), Bytes::Whole(&[&one[..], &other].concat())).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Corrupt, "{error}");
        // If STREAMINFO has exactly the number of samples, another file may follow.
        let one = made(&[128; 20], false, Count::Frames, 2560);
        let both = [&one[..], &other].concat();
        assert_eq!(
            Flac::open(&mut DecoderCache::default(), Bytes::Whole(&both)).unwrap().info().n_samples,
            2560
        );
    }

    #[test]
    fn a_flood_of_damaged_frames_ends() {
        // Each valid frame is followed by one with a wrong checksum; STREAMINFO allows the largest possible
        // frames.
        let mut bytes = made(&[16, 65535], false, Count::Samples, 0)[..42].to_vec();
        for i in 0..40_000u64 {
            let mut frame = frame(16, false, i, 16 * i);
            if i % 2 == 1 {
                *frame.last_mut().unwrap() ^= 1;
            }
            bytes.extend(frame);
        }
        let error = Flac::open(&mut DecoderCache::default(), Bytes::Whole(&bytes)).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Corrupt, "{error}");
    }

    #[test]
    fn fast_decoder_equals_plain_one() {
        for bytes in [
            &include_bytes!("../../../tests/data/audio/mewkiz-flac/80574.flac")[..],
            include_bytes!("../../../tests/data/audio/mewkiz-flac/input-SCPAP.flac"),
            include_bytes!("../../../tests/data/audio/made/s8.flac"),
            include_bytes!("../../../tests/data/audio/made/s24.flac"),
            include_bytes!("../../../tests/data/audio/flac-ietf/subset_38_-_3_channels_3.0.flac"),
            include_bytes!(
                "../../../tests/data/audio/flac-ietf/subset_61_-_predictor_overflow_check_16-bit.flac"
            ),
        ] {
            assert_equals_plain(bytes);
        }
    }
}
