//! The blocks of a track, one after the other.
//!
//! Clusters are not nested: an element of one ends it by its place or by its id, so the walk needs no size of
//! a cluster, and begins at any element in one. It visits the head of each element once and skips the
//! contents of all but blocks of the track.
//!
//! Source: RFC 9559, sections 5.1.3 (clusters), 10 (block structure) and 10.3 (lacing).

use std::ops::Range;

use bytes::Bytes;
use smallvec::SmallVec;

use super::ebml::{self, ElementHead, MAX_HEAD, NoHead};
use crate::{Result, corrupt, read_at::RangeReader};

pub(super) const EBML: u32 = 0x1a45_dfa3;
pub(super) const SEGMENT: u32 = 0x1853_8067;
pub(super) const CLUSTER: u32 = 0x1f43_b675;
const TIMESTAMP: u32 = 0xe7;
const SIMPLE_BLOCK: u32 = 0xa3;
const BLOCK_GROUP: u32 = 0xa0;
const BLOCK: u32 = 0xa1;
const DISCARD_PADDING: u32 = 0x75a2;

/// The most bytes of track number, time, flags and sizes of frames at the start of a block.
const MAX_BLOCK_HEAD: u64 = 64 << 10;

/// The bytes of a file, or of a part of it.
pub(super) enum MatroskaBytes<'a, 'r> {
    /// Those from `at` on.
    Slice { at: u64, bytes: &'a [u8] },
    /// A file, read in pieces.
    File { reader: &'r RangeReader<'a>, at: u64, piece: Bytes },
}

impl<'a, 'r> MatroskaBytes<'a, 'r> {
    pub(super) fn new(reader: &'r RangeReader<'a>) -> Self {
        match reader.memory() {
            Some(bytes) => Self::Slice { at: 0, bytes },
            None => Self::File { reader, at: 0, piece: Bytes::new() },
        }
    }

    /// Up to `n` bytes from `from` on, fewer at the end.
    pub(super) fn get(&mut self, from: u64, n: u64) -> Result<&[u8]> {
        if let Self::File { reader, at, piece } = self {
            let to = from.saturating_add(n).min(reader.size());
            if from < *at || to > *at + piece.len() as u64 {
                let end = from.saturating_add(n.max(reader.sizes.piece)).min(reader.size());
                *piece = reader.read(from.min(end)..end)?;
                *at = from;
            }
        }
        let (at, bytes) = match self {
            Self::Slice { at, bytes } => (*at, *bytes),
            Self::File { at, piece, .. } => (*at, &piece[..]),
        };
        let start = usize::try_from(from.saturating_sub(at)).unwrap_or(usize::MAX).min(bytes.len());
        let len = usize::try_from(n).unwrap_or(usize::MAX).min(bytes.len() - start);
        Ok(&bytes[start..start + len])
    }

    /// The byte after the last one.
    pub(super) fn end(&self) -> u64 {
        match self {
            Self::Slice { at, bytes } => at + bytes.len() as u64,
            Self::File { reader, .. } => reader.size(),
        }
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct TrackBlock {
    /// The byte of its element.
    pub at: u64,
    pub end: u64,
    /// The bytes of its frames, one after the other.
    pub data: Range<u64>,
    /// The bytes of each frame that has any.
    pub lens: SmallVec<[u32; 8]>,
    /// Nanoseconds at its end that are not played.
    pub discard: u64,
    /// Its time, in units of the segment's `TimestampScale`.
    pub ticks: i64,
}

/// A walk over the elements of a segment.
#[derive(Debug)]
pub(super) struct BlockWalk {
    pub at: u64,
    track: u64,
    /// The end of the segment, if it is known.
    pub segment_end: Option<u64>,
    cluster_end: Option<u64>,
    cluster_ticks: i64,
    /// The byte of an element that reaches beyond the end of the file.
    pub cut: Option<u64>,
    /// Whether another recording follows the segment.
    pub has_more: bool,
}

fn damaged(at: u64) -> crate::Error {
    corrupt("the elements of the Matroska file contradict each other").at_byte(at)
}

impl BlockWalk {
    /// A walk over the blocks of `track` from byte `at` on.
    pub(super) fn new(at: u64, track: u64, segment_end: Option<u64>) -> Self {
        Self { at, track, segment_end, cluster_end: None, cluster_ticks: 0, cut: None, has_more: false }
    }

    /// The head of the next element, and the place of its content; None at the end.
    fn head(&mut self, source: &mut MatroskaBytes<'_, '_>) -> Result<Option<(ElementHead, u64)>> {
        if self.segment_end.is_some_and(|end| self.at >= end) {
            self.has_more = source.end() > self.at;
            return Ok(None);
        }
        if self.at >= source.end() {
            // A segment or a cluster that ends later has lost elements.
            let is_cut = [self.segment_end, self.cluster_end].iter().flatten().any(|&end| end > self.at);
            self.cut = self.cut.or(is_cut.then_some(self.at));
            return Ok(None);
        }
        match ElementHead::parse(source.get(self.at, MAX_HEAD)?) {
            Ok(head) => Ok(Some((head, self.at + head.len))),
            Err(NoHead::Short) => {
                self.cut = Some(self.at);
                Ok(None)
            }
            Err(NoHead::Invalid) => Err(damaged(self.at)),
        }
    }

    /// The next block of the track in `block`; false after the last one.
    ///
    /// # Errors
    /// `Corrupt` if an element does not fit the one that it is in, and the errors of the reads.
    pub(super) fn next(
        &mut self,
        source: &mut MatroskaBytes<'_, '_>,
        block: &mut TrackBlock,
    ) -> Result<bool> {
        loop {
            let Some((ElementHead { id, size, .. }, body)) = self.head(source)? else { return Ok(false) };
            if self.cluster_end.is_some_and(|end| self.at >= end) {
                self.cluster_end = None;
            }
            match id {
                EBML | SEGMENT => {
                    self.has_more = true;
                    return Ok(false);
                }
                CLUSTER => {
                    if self.cluster_end.is_some() {
                        return Err(damaged(self.at));
                    }
                    self.cluster_end = size.map(|size| body.saturating_add(size));
                    let outside = |end: u64| self.segment_end.is_some_and(|segment| end > segment);
                    if self.cluster_end.is_some_and(outside) {
                        return Err(damaged(self.at));
                    }
                    self.cluster_ticks = 0;
                    self.at = body;
                    continue;
                }
                _ => {}
            }
            let end = size.and_then(|size| body.checked_add(size)).ok_or_else(|| damaged(self.at))?;
            if [self.cluster_end, self.segment_end].iter().flatten().any(|&outer| end > outer) {
                return Err(damaged(self.at));
            }
            if end > source.end() {
                self.cut = Some(self.at);
                return Ok(false);
            }
            let at = std::mem::replace(&mut self.at, end);
            let found = match id {
                TIMESTAMP => {
                    let ticks = ebml::uint(source.get(body, (end - body).min(9))?);
                    self.cluster_ticks = i64::try_from(ticks.ok_or_else(|| damaged(at))?).unwrap_or(i64::MAX);
                    false
                }
                SIMPLE_BLOCK => {
                    block.discard = 0;
                    self.block(source, body..end, block)?
                }
                BLOCK_GROUP => self.group(source, body..end, block)?,
                _ => false,
            };
            if found {
                (block.at, block.end) = (at, end);
                return Ok(true);
            }
        }
    }

    /// A block with elements about it; false if it is of another track.
    fn group(
        &self,
        source: &mut MatroskaBytes<'_, '_>,
        range: Range<u64>,
        block: &mut TrackBlock,
    ) -> Result<bool> {
        let (mut at, mut found) = (range.start, None);
        block.discard = 0;
        while at < range.end {
            let head =
                ElementHead::parse(source.get(at, MAX_HEAD.min(range.end - at))?).map_err(|_| damaged(at))?;
            let body = at + head.len;
            let end = head.size.and_then(|size| body.checked_add(size)).filter(|&end| end <= range.end);
            let end = end.ok_or_else(|| damaged(at))?;
            match head.id {
                BLOCK => found = Some(body..end),
                DISCARD_PADDING => {
                    let padding = ebml::int(source.get(body, (end - body).min(9))?);
                    // A negative one would be of the start, where CodecDelay cuts.
                    block.discard = u64::try_from(padding.ok_or_else(|| damaged(at))?).unwrap_or(0);
                }
                _ => {}
            }
            at = end;
        }
        found.map_or(Ok(false), |found| self.block(source, found, block))
    }

    /// Track, time, flags and frames of a block; false if it is of another track.
    fn block(
        &self,
        source: &mut MatroskaBytes<'_, '_>,
        range: Range<u64>,
        block: &mut TrackBlock,
    ) -> Result<bool> {
        let damaged =
            || corrupt("a Matroska block is damaged: its frames do not fit it").at_byte(range.start);
        let len = range.end - range.start;
        let first = source.get(range.start, len.min(MAX_HEAD))?;
        let (track, n) = ebml::number(first).ok_or_else(damaged)?;
        if track != Some(self.track) {
            return Ok(false);
        }
        let &[high, low, flags] = first.get(n..).and_then(<[u8]>::first_chunk).ok_or_else(damaged)?;
        block.ticks = self.cluster_ticks.saturating_add(i16::from_be_bytes([high, low]).into());
        block.lens.clear();
        let mut at = n + 3;
        let lacing = flags >> 1 & 3;
        if lacing == 0 {
            block.lens.push(u32::try_from(len - at as u64).map_err(|_| damaged())?);
        } else {
            let head = source.get(range.start, len.min(MAX_BLOCK_HEAD))?;
            let n_frames = usize::from(*head.get(at).ok_or_else(damaged)?) + 1;
            at += 1;
            let mut sum = 0u64;
            let mut before = 0i64;
            for i in 0..n_frames - 1 {
                let len = match lacing {
                    1 => {
                        let mut len = 0u64;
                        loop {
                            let &byte = head.get(at).ok_or_else(damaged)?;
                            at += 1;
                            len += u64::from(byte);
                            if byte < 255 {
                                break len;
                            }
                        }
                    }
                    3 => {
                        let (value, n) =
                            ebml::number(head.get(at..).unwrap_or_default()).ok_or_else(damaged)?;
                        at += n;
                        // The first size is a number; the others are differences with a bias.
                        let bias = if i == 0 { 0 } else { (1i64 << (7 * n - 1)) - 1 };
                        // All ones is a difference like others.
                        let value = value.unwrap_or((1 << (7 * n)) - 1).cast_signed();
                        before =
                            before.checked_add(value - bias).filter(|&len| len >= 0).ok_or_else(damaged)?;
                        before as u64
                    }
                    _ => 0,
                };
                sum = sum.saturating_add(len);
                block.lens.push(u32::try_from(len).map_err(|_| damaged())?);
            }
            let left = len.checked_sub(at as u64).ok_or_else(damaged)?;
            if lacing == 2 {
                let each = left / n_frames as u64;
                if each * n_frames as u64 != left {
                    return Err(damaged());
                }
                let each = u32::try_from(each).map_err(|_| damaged())?;
                block.lens.clear();
                // bounded: at most 256 frames.
                block.lens.resize(n_frames, each);
            } else {
                let last = left.checked_sub(sum).ok_or_else(damaged)?;
                block.lens.push(u32::try_from(last).map_err(|_| damaged())?);
            }
        }
        block.data = range.start + at as u64..range.end;
        block.lens.retain(|len| *len > 0);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sizes of the frames of a simple block of track 1 with these flags and content.
    fn lens(flags: u8, content: &[u8]) -> Option<Vec<u32>> {
        let size = (content.len() + 4) as u8 | 0x80;
        let bytes = [&[SIMPLE_BLOCK as u8, size, 0x81, 0, 0, flags][..], content].concat();
        let mut source = MatroskaBytes::Slice { at: 100, bytes: &bytes };
        let mut block = TrackBlock::default();
        let found = BlockWalk::new(100, 1, None).next(&mut source, &mut block).ok()?;
        assert!(found && block.data.end == 100 + bytes.len() as u64);
        let sum: u32 = block.lens.iter().sum();
        assert_eq!(u64::from(sum), block.data.end - block.data.start);
        Some(block.lens.to_vec())
    }

    #[test]
    fn frames_are_laced_in_three_ways() {
        assert_eq!(lens(0, &[7; 5]), Some(vec![5]));
        assert_eq!(lens(0, &[]), Some(vec![]));
        // Xiph: three frames of 2, 0 and 3 bytes.
        assert_eq!(lens(2, &[2, 2, 0, 7, 7, 8, 8, 8]), Some(vec![2, 3]));
        assert_eq!(lens(2, &[1, 255]), None);
        assert_eq!(lens(2, &[1, 9, 7]), None);
        // Of equal sizes.
        assert_eq!(lens(4, &[2, 7, 7, 7, 7, 7, 7]), Some(vec![2, 2, 2]));
        assert_eq!(lens(4, &[2, 7, 7, 7, 7]), None);
        // EBML: 3, 3 + 1, 4 - 3 and the rest.
        assert_eq!(lens(6, &[3, 0x83, 0xc0, 0xbc, 1, 1, 1, 2, 2, 2, 2, 3, 4, 4]), Some(vec![3, 4, 1, 2]));
        assert_eq!(lens(6, &[2, 0x83, 0x80, 1, 1, 1]), None);
        assert_eq!(lens(6, &[1, 0x00]), None);
        assert_eq!(lens(6, &[]), None);
    }

    #[test]
    fn elements_must_fit_their_cluster() {
        let cluster = |size: u8, content: &[u8]| [&[0x1f, 0x43, 0xb6, 0x75, size][..], content].concat();
        let count = |bytes: &[u8]| {
            let mut source = MatroskaBytes::Slice { at: 0, bytes };
            let (mut walk, mut block) = (BlockWalk::new(0, 1, None), TrackBlock::default());
            let mut n = 0;
            while walk.next(&mut source, &mut block).ok()? {
                n += 1;
            }
            Some((n, walk.cut.is_some()))
        };
        let block = [SIMPLE_BLOCK as u8, 0x85, 0x81, 0, 0, 0, 9];
        let two = [&block[..], &block].concat();
        assert_eq!(count(&cluster(0x80 | 14, &two)), Some((2, false)));
        assert_eq!(count(&cluster(0xff, &two)), Some((2, false)));
        assert_eq!(count(&cluster(0x80 | 13, &two)), None);
        assert_eq!(count(&cluster(0x80 | 14, &two[..13])), Some((1, true)));
        assert_eq!(count(&[cluster(0xff, &two), cluster(0x80 | 7, &block)].concat()), Some((3, false)));
        // A cluster in a cluster, and a block without a known size.
        assert_eq!(count(&cluster(0x80 | 19, &cluster(0x80 | 7, &block))), None);
        assert_eq!(count(&cluster(0xff, &[SIMPLE_BLOCK as u8, 0xff, 0x81])), None);
    }
}
