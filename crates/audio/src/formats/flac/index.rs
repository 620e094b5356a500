//! FLAC by head and tail, and windows of frames.
//!
//! The length is proven as in a full decode: the last frame ends at the number that STREAMINFO declares.
//! Otherwise all frames are walked once, in pieces. The seek table is a hint: what is found there counts by
//! its own number.
//!
//! Source: RFC 9639.

use std::ops::Range;

use crate::{
    DecoderCache, Info, Planes, Result, corrupt, fallible_alloc,
    formats::flac::{Flac, Head, Shape, frame::Frame, seek_points},
    header_bytes::HeaderBytes,
    joined::CodecBytes,
    locate::{ByteWindow, MAX_POINTS, SeekPoint, SeekPoints, WindowSamples, locate, thin},
    range_index::ReadSizes,
    read_at::RangeReader,
};

/// The most bytes after a damaged frame that are read at once, to find where the recording ends.
const MAX_END: u64 = 16 << 20;
/// The most bytes of a seek table that are looked at.
const MAX_TABLE: u64 = 1 << 20;

/// What is known of a FLAC file.
#[derive(Debug)]
pub(crate) struct FlacIndex {
    pub(crate) shape: Shape,
    pub(crate) points: SeekPoints,
    /// The seek table's points, which are not proven.
    pub(crate) hints: Vec<SeekPoint>,
}

impl FlacIndex {
    /// Opens a file; None if its frames are damaged so that their number is unknown.
    pub(crate) fn open(
        cache: &mut DecoderCache,
        reader: &mut RangeReader<'_>,
        sizes: &ReadSizes,
    ) -> Result<Option<(Info, Self)>> {
        let found = reader.parse_with_reads(|file| {
            let head = Head::find(file)?;
            let Range { start, end } = head.seek_table;
            let mut table = Vec::new();
            let bytes = file.get_up_to(start, (end - start).min(MAX_TABLE));
            fallible_alloc::reserve(&mut table, bytes.len() / 18)?;
            table.extend(seek_points(bytes).map(|(sample, at)| SeekPoint { at, sample }));
            Ok((head, table))
        })?;
        let Some((head, table)) = found else { return Ok(None) };
        let size = reader.size();
        let first = |at: u64| Frame { at: at as usize, first: 0, block: head.block };
        let mut shape = head.shape;
        let can_be = shape.can_be(size - head.at);
        let budget = shape.frame_budget() as u64;
        let mut points = vec![SeekPoint { at: head.at, sample: 0 }];
        let ends = |cache: &mut DecoderCache, reader: &mut RangeReader<'_>, shape: &Shape| -> Result<bool> {
            let most = Flac::tail_of(shape) as u64;
            // The last frame is usually in a small tail.
            for len in [sizes.ends.min(most), most] {
                let tail = reader.read_cached(size.saturating_sub(len).max(head.at)..size)?;
                if Flac::window(CodecBytes::Whole(&tail), shape.clone(), first(0), None).window_ends(cache)? {
                    return Ok(true);
                }
            }
            Ok(false)
        };
        if !(can_be && ends(cache, reader, &shape)?) {
            let start = reader.read_cached(head.at..size.min(head.at + 2 * budget + sizes.ends))?;
            let numbering =
                Flac::window(CodecBytes::Whole(&start), shape.clone(), first(0), None).numbering_at_start();
            let Some(numbering) = numbering else { return Ok(None) };
            let was_fixed = std::mem::replace(&mut shape.stream.fixed, numbering);
            let ends_now = can_be && numbering != was_fixed && ends(cache, reader, &shape)?;
            if !ends_now && !walk(cache, reader, sizes, &mut shape, head.at, &mut points)? {
                return Ok(None);
            }
        }
        let n_samples = shape.info.n_samples;
        if n_samples == 0 {
            return Err(corrupt("none of the FLAC frames is complete").at_byte(head.at));
        }
        points.push(SeekPoint { at: size, sample: n_samples });
        let mut hints = table;
        hints.retain_mut(|hint| {
            hint.at = hint.at.saturating_add(head.at);
            hint.at < size && hint.sample < n_samples
        });
        if !hints.is_sorted_by_key(|hint| hint.at) || !hints.is_sorted_by_key(|hint| hint.sample) {
            hints = Vec::new();
        }
        while hints.len() > MAX_POINTS {
            thin(&mut hints);
        }
        hints.shrink_to_fit();
        Ok(Some((shape.info, Self { shape, points: SeekPoints::new(points), hints })))
    }

    pub(crate) fn read_window(
        &self,
        cache: &mut DecoderCache,
        reader: &RangeReader<'_>,
        sizes: &ReadSizes,
        span: &Range<u64>,
    ) -> Result<ByteWindow<WindowSamples<Frame>>> {
        let size = reader.size();
        let none = Frame { at: 0, first: 0, block: 0 };
        locate(reader, sizes, &self.points, self.hint(span.start), span, |at, bytes| {
            let is_end = at + bytes.len() as u64 == size;
            let flac = Flac::window(CodecBytes::Whole(bytes), self.shape.clone(), none, None);
            Ok(flac.scan_frames(cache, 0, is_end)?.map(|found| WindowSamples {
                first: SeekPoint { at: at + found.first.at as u64, sample: found.first.first },
                behind: SeekPoint {
                    at: at + found.end as u64,
                    sample: found.behind.min(self.shape.info.n_samples),
                },
                codec_state: found.first,
            }))
        })
    }

    pub(crate) fn bytes_held(&self) -> usize {
        self.points.bytes_held() + self.hints.capacity() * size_of::<SeekPoint>()
    }

    /// The nearest seek points, if they are nearer than what is proven.
    fn hint(&self, sample: u64) -> Option<(SeekPoint, SeekPoint)> {
        let (low, high) = self.points.around(sample);
        let behind = self.hints.partition_point(|hint| hint.sample <= sample);
        let before = behind.checked_sub(1).map(|before| self.hints[before]);
        let before = before.filter(|hint| hint.at > low.at && hint.at < high.at && hint.sample >= low.sample);
        let next = self.hints.get(behind).copied();
        let next = next.filter(|hint| hint.at < high.at && hint.at > low.at && hint.sample <= high.sample);
        (before.is_some() || next.is_some()).then(|| (before.unwrap_or(low), next.unwrap_or(high)))
    }

    /// Decodes `span` from a window that begins with the frame `first`.
    pub(crate) fn read(
        &self,
        cache: &mut DecoderCache,
        bytes: &[u8],
        samples: &WindowSamples<Frame>,
        span: Range<u64>,
        out: &mut Planes,
    ) -> Result<()> {
        let flac = Flac::window(
            CodecBytes::Whole(bytes),
            self.shape.clone(),
            samples.codec_state,
            Some(samples.behind.sample),
        );
        flac.read(cache, span, out)
    }
}

/// Walks all frames in pieces, sets the number of samples and appends points; false if frames are damaged
/// long before the end.
fn walk(
    cache: &mut DecoderCache,
    reader: &RangeReader<'_>,
    sizes: &ReadSizes,
    shape: &mut Shape,
    at: u64,
    points: &mut Vec<SeekPoint>,
) -> Result<bool> {
    let size = reader.size();
    let budget = shape.frame_budget() as u64;
    // The offset of the piece, and the frame in it.
    let (mut base, mut block, mut sample) = (at, None, 0);
    let mut apart = sizes.piece / 16;
    loop {
        let end = size.min(base + sizes.piece + 2 * budget);
        let bytes = reader.read(base..end)?;
        let start = match block {
            Some(block) => Frame { at: 0, first: sample, block },
            None => match crate::formats::flac::frame::Header::parse(&bytes) {
                Some(header) => Frame { at: 0, first: 0, block: header.block },
                None => return Ok(false),
            },
        };
        let flac = Flac::window(CodecBytes::Whole(&bytes), shape.clone(), start, None);
        let mut frame = start;
        loop {
            let here = base + frame.at as u64;
            if points.last().is_none_or(|last| here >= last.at + apart) {
                fallible_alloc::push(points, SeekPoint { at: here, sample: frame.first })?;
                if points.len() == MAX_POINTS / 2 {
                    thin(points);
                    apart *= 2;
                }
            }
            let left = bytes.len() - frame.at;
            if end < size && (left as u64) < budget + 64 {
                break;
            }
            match flac.step(frame) {
                Some((_, Some(next))) => frame = next,
                _ if size - here <= MAX_END => {
                    // The end, perhaps cut or damaged, as a full decode walks it.
                    let rest = reader.read(here..size)?;
                    let last = Frame { at: 0, ..frame };
                    let flac = Flac::window(CodecBytes::Whole(&rest), shape.clone(), last, None);
                    shape.info.n_samples = flac.walk_to_end(cache)?;
                    return Ok(true);
                }
                _ => return Ok(false),
            }
        }
        if frame.at == 0 {
            return Ok(false);
        }
        (base, block, sample) = (base + frame.at as u64, Some(frame.block), frame.first);
    }
}
