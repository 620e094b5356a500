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

mod bits;
#[cfg(any(test, fuzzing))]
mod compare;
mod decoder;
pub(crate) mod frame;
mod head;
mod index;
#[cfg(test)]
mod made;
#[cfg(any(test, fuzzing))]
pub(crate) mod plain;
mod predict;
mod side_by_side;
mod span;
mod subframe;
#[cfg(test)]
mod tests;

use std::ops::Range;

use crate::{
    DecoderCache, Info, Result,
    checksum::crc16,
    corrupt,
    decoder_cache::VecPool,
    formats::{
        AnyIndex, Format, FrameSync, Opened,
        flac::frame::{Frame, Header, end_of, follower, linked, next_header},
    },
    index_file::Parser,
    read_at::{MAX_JUNK, RangeReader},
    signatures, unsupported,
};
#[cfg(any(test, fuzzing))]
pub(crate) use compare::any_frame;
use decoder::FrameDecoder;
use head::Shape;
pub(crate) use index::FlacIndex;
#[cfg(test)]
pub(crate) use made::{Table, repeated};

/// The bytes at the end that are searched for the last frame: a frame and some trailing junk. If it is not
/// found, all frames are walked.
const TAIL: usize = 1 << 17;

/// The worker's unused vectors: the samples of a frame.
#[derive(Default)]
struct FramePools {
    samples: VecPool<i32>,
    wide: VecPool<i64>,
}

/// FLAC in a file of its own, perhaps after ID3v2 or junk.
#[derive(Debug)]
pub(crate) struct NativeFlac;

impl Format for NativeFlac {
    fn name(&self) -> &'static str {
        "flac"
    }

    fn detect(&self, head: &[u8]) -> Result<bool> {
        Ok(head.starts_with(&signatures::FLAC))
    }

    fn frames(&self) -> Option<FrameSync> {
        Some(FrameSync { byte: FLAC_START[0], is_frame: |bytes, _| bytes.starts_with(&FLAC_START) })
    }

    fn finds_start(&self) -> bool {
        true
    }

    fn open<'a>(&self, cache: &mut DecoderCache, reader: &mut RangeReader<'a>) -> Result<Option<Opened<'a>>> {
        Ok(FlacIndex::open(cache, reader)?.map(|index| Opened::new(index.info(), index)))
    }

    fn read_index(&self, from: &mut Parser<'_>, size: u64, info: Info) -> Option<AnyIndex> {
        FlacIndex::read(from, size, info).map(AnyIndex::Flac)
    }
}

/// The marker of a FLAC file, and the start of the block that must follow it.
const FLAC_START: [u8; 8] = *b"fLaC\0\0\0\x22";

/// The offset of the FLAC marker in the first bytes `head` of a file: 0, or after junk; None without one.
fn flac_marker(head: &[u8]) -> Option<usize> {
    if head.starts_with(&signatures::FLAC) {
        return Some(0);
    }
    let head = &head[..head.len().min(MAX_JUNK)];
    head.windows(FLAC_START.len()).position(|start| start[0] == b'f' && *start == FLAC_START)
}

/// The frames of a recording, or of a window of it.
#[derive(Debug)]
pub(crate) struct Flac<'a> {
    bytes: &'a [u8],
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

/// The frames found in a window.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FrameScan {
    /// The first frame that is complete, and the byte and the sample after the last one.
    pub(crate) first: Frame,
    pub(crate) end: usize,
    pub(crate) behind: u64,
}

impl<'a> Flac<'a> {
    #[cfg(test)]
    pub(crate) fn open(cache: &mut DecoderCache, bytes: &'a [u8]) -> Result<Self> {
        let index = FlacIndex::open(cache, &mut RangeReader::of_memory(bytes))?.unwrap();
        Ok(index.whole(bytes))
    }

    /// A window of frames of a recording, from its frame `first` up to sample `behind`, if that is known.
    fn window(bytes: &'a [u8], shape: Shape, first: Frame, behind: Option<u64>) -> Self {
        let frame_budget = shape.frame_budget();
        Self { bytes, shape, seek_table: 0..0, first, behind, frame_budget }
    }

    /// Finds the complete frames of a window, also those between damaged ones. The number of the first one is
    /// at least `least`. `is_end` says whether the window reaches to the end of the recording, where no frame
    /// follows the last one. Other bytes may follow the recording's last frame, so its end is found by
    /// decoding it.
    ///
    /// # Errors
    /// `Memory` if an allocation failed.
    pub(crate) fn scan_frames(
        &self,
        cache: &mut DecoderCache,
        least: u64,
        is_end: bool,
    ) -> Result<Option<FrameScan>> {
        let mut decoder = FrameDecoder::new(cache);
        let (bytes, stream) = (self.bytes, &self.shape.stream);
        let mut work = self.work();
        let mut found: Option<FrameScan> = None;
        let (mut at, mut next) = (0, None);
        loop {
            let known = next.take();
            let Some(frame) = known.or_else(|| next_header(bytes, stream, at..bytes.len(), None)) else {
                return Ok(found);
            };
            at = frame.at + 1;
            let least = found.map_or(least, |found| found.behind);
            if frame.first < least || frame.first >= self.shape.info.n_samples {
                continue;
            }
            let mut end = end_of(bytes, stream, frame, self.frame_budget)
                .filter(|(_, follower)| is_end || follower.is_some());
            if end.is_none() && frame.first + u64::from(frame.block) >= self.shape.info.n_samples {
                end = self.last_end(frame, &mut decoder)?.map(|end| (end, None));
            }
            match end {
                Some((end, follower)) => {
                    let scan_frames = found.get_or_insert(FrameScan { first: frame, end, behind: 0 });
                    (scan_frames.end, scan_frames.behind) = (end, frame.first + u64::from(frame.block));
                    (at, next) = (end, follower);
                }
                None => match work.checked_sub(self.frame_budget.min(bytes.len() - frame.at)) {
                    Some(left) => work = left,
                    None => return Ok(found),
                },
            }
        }
    }

    /// Codec, rate, channels and length, checked against the frames.
    #[cfg(test)]
    pub(crate) fn info(&self) -> Info {
        self.shape.info
    }

    /// `Stream::fixed` by the numbers of the first two consecutive frames; unchanged if there are none.
    fn numbering(&self) -> Option<u32> {
        let range = self.first.at..self.bytes.len();
        match linked(self.bytes, range, self.frame_budget, &mut self.work()) {
            Some((one, next)) => self.numbered(&one, &next),
            None => self.shape.stream.fixed,
        }
    }

    /// `Stream::fixed` by two consecutive frames at the start of a window; None if the window does not show
    /// them.
    pub(crate) fn numbering_at_start(&self) -> Option<Option<u32>> {
        let one = Header::parse(&self.bytes[self.first.at..])?;
        let next = follower(self.bytes, self.first.at, self.frame_budget)?;
        Some(self.numbered(&one, &next))
    }

    /// `Stream::fixed` by two consecutive frames.
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
    ///
    /// # Errors
    /// As [`Self::last_end`].
    fn ends_at_declared(&self, decoder: &mut FrameDecoder) -> Result<bool> {
        let (bytes, total) = (self.bytes, self.shape.declared);
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
                        || self.last_end(frame, decoder)?.is_some();
                    if is_whole {
                        return Ok(true);
                    }
                }
                at = frame.at + 1;
            }
            end = start;
        }
        Ok(false)
    }

    /// Whether the numbers of the frames at each quarter of the bytes ascend. In a file of several recordings
    /// they usually do not.
    pub(crate) fn is_in_order(&self) -> bool {
        let quarter = (self.bytes.len() - self.first.at) / 4;
        let mut last = self.first;
        (1..4).all(|n| {
            let range = self.first.at + n * quarter..self.bytes.len();
            let Some(frame) = next_header(self.bytes, &self.shape.stream, range, None) else { return true };
            let before = std::mem::replace(&mut last, frame);
            frame.at == before.at || frame.first > before.first
        })
    }

    /// The bytes at the end that are searched for the last frame.
    fn tail(&self) -> usize {
        TAIL.max(self.frame_budget)
    }

    /// [`Self::tail`] of a recording of this shape.
    pub(crate) fn tail_of(shape: &Shape) -> usize {
        TAIL.max(shape.frame_budget())
    }

    /// [`Self::walk`] over a window that reaches to the end of the recording.
    pub(crate) fn walk_to_end(&self, cache: &mut DecoderCache) -> Result<u64> {
        self.walk(&mut FrameDecoder::new(cache))
    }

    /// [`Self::ends_at_declared`] for the window at the end of the recording.
    pub(crate) fn window_ends(&self, cache: &mut DecoderCache) -> Result<bool> {
        self.ends_at_declared(&mut FrameDecoder::new(cache))
    }

    /// The frame after `frame`, or the end of the recording if it is the last in its bytes; None if it is
    /// damaged, or cut by the end of a window.
    pub(crate) fn step(&self, frame: Frame) -> Option<(usize, Option<Frame>)> {
        end_of(self.bytes, &self.shape.stream, frame, self.frame_budget)
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
    fn walk(&self, decoder: &mut FrameDecoder) -> Result<u64> {
        let (mut frame, mut valid, mut work) = (self.first, self.first.first, 4 * self.work());
        loop {
            let end = frame.first + u64::from(frame.block);
            match end_of(self.bytes, &self.shape.stream, frame, self.frame_budget) {
                Some((_, Some(next))) => (frame, valid) = (next, end),
                Some((_, None)) => return Ok(end),
                None => {
                    // `end_of` and `check_number` each search these bytes without result.
                    let cost = 2 * self.frame_budget.min(self.bytes.len() - frame.at);
                    work = work.checked_sub(cost).ok_or_else(|| {
                        corrupt("most of the FLAC frames are damaged").at_byte(frame.at as u64)
                    })?;
                    self.check_number(frame)?;
                    // Frames after a complete last frame belong to another recording.
                    let is_last = end == self.shape.declared && self.last_end(frame, decoder)?.is_some();
                    if !is_last && let Some(next) = self.resync(frame, &mut work) {
                        frame = next;
                        continue;
                    }
                    let (n_samples, behind) = match self.last_end(frame, decoder)? {
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
        let next = follower(self.bytes, frame.at, self.frame_budget);
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

    /// Checks that no complete frames follow the `n_samples` samples that end at byte `behind`, since a
    /// search for a sample could find them. After the samples that STREAMINFO declares, frames of another
    /// rate, width or number of channels may follow.
    ///
    /// # Errors
    /// `Unsupported` if they have another rate, width or number of channels, `Corrupt` if their numbers do
    /// not continue.
    fn check_rest(&self, n_samples: u64, behind: usize, work: &mut usize) -> Result<()> {
        let rest = behind..self.bytes.len();
        let Some((one, _)) = linked(self.bytes, rest, self.frame_budget, work) else { return Ok(()) };
        let is_declared = n_samples == self.shape.declared;
        let error = match (is_declared, one.agrees(&self.shape.stream)) {
            (true, false) => return Ok(()),
            (true, true) => corrupt(format!(
                "another FLAC recording follows the {n_samples} samples that STREAMINFO declares; split the file"
            )),
            (false, true) => corrupt(format!(
                "the numbers of the FLAC frames after sample {n_samples} do not continue; decode and re-encode the recording"
            )),
            (false, false) => unsupported(format!(
                "from sample {n_samples} on the FLAC frames have another rate, width or number of channels than STREAMINFO declares"
            )),
        };
        Err(error.at_byte(behind as u64))
    }

    /// The first valid frame after a damaged one.
    fn resync(&self, damaged: Frame, work: &mut usize) -> Option<Frame> {
        let n = self.bytes.len();
        // Also a second copy of the damaged frame.
        let low = Frame { first: damaged.first.saturating_sub(1), ..damaged };
        let mut at = damaged.at + 1;
        while at < n {
            if let Some(frame) = self.confirmed(at..n, low, (n, u64::MAX), work) {
                return (frame.first - damaged.first
                    <= self.shape.most_samples((frame.at - damaged.at) as u64))
                .then_some(frame);
            }
            at += 2 * self.frame_budget;
        }
        None
    }

    /// The end of a last frame before junk: found by decoding the frame, and confirmed by its CRC-16.
    ///
    /// # Errors
    /// `Memory` if an allocation failed.
    fn last_end(&self, frame: Frame, decoder: &mut FrameDecoder) -> Result<Option<usize>> {
        let Some(len) = decoder.decode(&self.bytes[frame.at..], &self.shape.stream)? else { return Ok(None) };
        let end = frame.at + len;
        let is_whole = self.bytes.get(frame.at..end).is_some_and(|bytes| crc16(0, bytes) == 0);
        Ok(is_whole.then_some(end))
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
        while let Some(frame) = next_header(self.bytes, &self.shape.stream, at..stop, None) {
            if frame.first > low.first && frame.first < high.1 {
                if end_of(self.bytes, &self.shape.stream, frame, self.frame_budget).is_some() {
                    return Some(frame);
                }
                *work = work.checked_sub(self.frame_budget.min(self.bytes.len() - frame.at))?;
            }
            at = frame.at + 1;
        }
        None
    }
}
