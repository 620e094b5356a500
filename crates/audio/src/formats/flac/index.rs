//! What is known of a FLAC file: its head and its length, and in a file the places of frames.
//!
//! The length is proven as in a full decode: the last frame ends at the number that STREAMINFO declares.
//! Otherwise all frames are walked once, in pieces. The seek table is a hint: what is found there counts by
//! its own number.
//!
//! Source: RFC 9639.

use std::ops::Range;

use bytes::Bytes;

use super::{
    Flac,
    frame::{Frame, Header, Stream},
    head::{Head, Shape, seek_points},
};
use crate::{
    Claims, Codec, DecoderCache, Info, Planes, Result, corrupt, fallible_alloc, from_byte,
    index::{Index, SpanWindow},
    index_file::{Parser, Writer},
    locate::{MAX_POINTS, SeekPoint, SeekPoints, WindowSamples, contradiction, locate, thin},
    read_at::{HeaderBytes, RangeReader},
};

/// The most bytes after a damaged frame that are read at once, to find where the recording ends.
const MAX_END: u64 = 16 << 20;
/// The most bytes of a seek table that are looked at.
const MAX_TABLE: u64 = 1 << 20;

/// What is known of a FLAC file.
#[derive(Debug)]
pub(crate) struct FlacIndex {
    shape: Shape,
    /// The first frame, and the seek table's body, in the bytes of the file; only in memory.
    first: Frame,
    seek_table: Range<usize>,
    /// Places that were found; none in memory, where the search over all bytes needs none.
    points: SeekPoints,
    /// The seek table's points, which are not proven; none in memory.
    hints: Vec<SeekPoint>,
}

impl FlacIndex {
    /// Reads the metadata, and the first and the last frame; None if the frames of a file are damaged so that
    /// their number is unknown.
    ///
    /// # Errors
    /// As [`Head::find`], and `Corrupt` without a complete frame.
    pub(crate) fn open(cache: &mut DecoderCache, reader: &mut RangeReader<'_>) -> Result<Option<Self>> {
        let Some(head) = reader.parse(Head::find)? else { return Ok(None) };
        let can_be = head.can_be(reader.size() - head.at);
        let Head { mut shape, seek_table, at, block, .. } = head;
        let first = Frame { at: at as usize, first: 0, block };
        let hints = match reader.memory() {
            Some(_) => Vec::new(),
            None => match reader.parse(|file| hints(file, &seek_table))? {
                Some(hints) => hints,
                None => return Ok(None),
            },
        };
        let mut points = Vec::new();
        if !(can_be && ends_at_declared(cache, reader, &shape, first)?) {
            let Some(numbering) = numbering(reader, &shape, first)? else { return Ok(None) };
            let was_fixed = std::mem::replace(&mut shape.stream.fixed, numbering);
            let ends_now =
                can_be && numbering != was_fixed && ends_at_declared(cache, reader, &shape, first)?;
            if !ends_now {
                match walk(cache, reader, &shape, first, &mut points)? {
                    Some(n_samples) => shape.info.n_samples = n_samples,
                    None => return Ok(None),
                }
            }
        }
        if shape.info.n_samples == 0 {
            return Err(corrupt("none of the FLAC frames is complete").at_byte(at));
        }
        let seek_table = seek_table.start as usize..seek_table.end as usize;
        let mut this = Self { shape, first, seek_table, points: SeekPoints::default(), hints };
        if reader.memory().is_none() {
            this.set_points(points, at, reader.size())?;
        }
        Ok(Some(this))
    }

    /// Sets the places of a file of `size` bytes whose frames begin at byte `at`.
    fn set_points(&mut self, mut points: Vec<SeekPoint>, at: u64, size: u64) -> Result<()> {
        let n_samples = self.shape.info.n_samples;
        if points.is_empty() {
            fallible_alloc::push(&mut points, SeekPoint { at, sample: 0 })?;
        }
        fallible_alloc::push(&mut points, SeekPoint { at: size, sample: n_samples })?;
        self.points = SeekPoints::new(points);
        let hints = &mut self.hints;
        hints.retain_mut(|hint| {
            hint.at = hint.at.saturating_add(at);
            hint.at < size && hint.sample < n_samples
        });
        if !hints.is_sorted_by_key(|hint| hint.at) || !hints.is_sorted_by_key(|hint| hint.sample) {
            hints.clear();
        }
        while hints.len() > MAX_POINTS {
            thin(hints);
        }
        hints.shrink_to_fit();
        Ok(())
    }

    pub(crate) fn info(&self) -> Info {
        self.shape.info
    }

    /// Ends the recording after `n` samples at most.
    pub(crate) fn limit(&mut self, n: u64) {
        self.shape.info.n_samples = self.shape.info.n_samples.min(n);
    }

    /// The frames of the recording, whose bytes are `bytes`.
    pub(super) fn whole<'a>(&self, bytes: &'a [u8]) -> Flac<'a> {
        let mut flac = Flac::window(bytes, self.shape.clone(), self.first, None);
        flac.seek_table = self.seek_table.clone();
        flac
    }

    pub(super) fn read(from: &mut Parser<'_>, size: u64, info: Info) -> Option<Self> {
        let sample_rate = from.word()?;
        let [channels, bits, is_variable] = from.array()?;
        let fixed = Some(from.word()?).filter(|&fixed| fixed > 0);
        let stream = Stream { sample_rate, channels, bits, is_variable: is_variable == 1, fixed };
        let setup: [u8; 34] = from.array()?;
        let shape = Shape { info, stream, setup, declared: from.long()? };
        let is_valid = info.codec == Codec::Flac
            && sample_rate == info.sample_rate
            && u16::from(channels) == info.channels
            && (1..=8).contains(&channels)
            && (1..=32).contains(&bits)
            && is_variable < 2
            && u16::from_be_bytes([setup[2], setup[3]]) >= 16
            && info.n_samples <= shape.most_samples(size);
        let points = SeekPoints::read(from, size, info.n_samples)?;
        let hints = from.points(MAX_POINTS, size, info.n_samples)?;
        is_valid.then_some(Self { shape, first: NO_FRAME, seek_table: 0..0, points, hints })
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
}

impl Index for FlacIndex {
    fn read_window(
        &self,
        cache: &mut DecoderCache,
        reader: &RangeReader<'_>,
        span: &Range<u64>,
    ) -> Result<SpanWindow<Bytes>> {
        if self.points.is_empty() {
            return Ok(SpanWindow::whole(reader.read(0..reader.size())?));
        }
        let (size, n_samples) = (reader.size(), self.shape.info.n_samples);
        let mut start = 0;
        let mut window = locate(reader, &self.points, self.hint(span.start), span, |at, bytes| {
            let is_end = at + bytes.len() as u64 == size;
            let flac = Flac::window(bytes, self.shape.clone(), NO_FRAME, None);
            Ok(flac.scan_frames(cache, 0, is_end)?.map(|found| {
                start = found.first.at;
                WindowSamples {
                    first: SeekPoint { at: at + found.first.at as u64, sample: found.first.first },
                    behind: SeekPoint { at: at + found.end as u64, sample: found.behind.min(n_samples) },
                }
            }))
        })?;
        window.start = start;
        Ok(window)
    }

    fn decode(
        &self,
        cache: &mut DecoderCache,
        window: &SpanWindow<&[u8]>,
        span: Range<u64>,
        out: &mut Planes,
    ) -> Result<()> {
        let Some(units) = &window.units else { return self.whole(window.bytes).read(cache, span, out) };
        let header = window.bytes.get(window.start..).and_then(Header::parse);
        let block = header.ok_or_else(|| contradiction(window.start as u64))?.block;
        let first = Frame { at: window.start, first: units.start, block };
        Flac::window(window.bytes, self.shape.clone(), first, Some(units.end)).read(cache, span, out)
    }

    fn bytes_held(&self) -> usize {
        self.points.bytes_held() + self.hints.capacity() * size_of::<SeekPoint>()
    }

    fn write(&self, to: &mut Writer) {
        let Stream { sample_rate, channels, bits, is_variable, fixed } = self.shape.stream;
        to.word(sample_rate);
        to.bytes(&[channels, bits, is_variable.into()]);
        to.word(fixed.unwrap_or(0));
        to.bytes(&self.shape.setup);
        to.long(self.shape.declared);
        to.points(&self.points.list());
        to.points(&self.hints);
    }

    fn add_claims(&self, info: Info, claims: &mut Claims) {
        claims.compare(info, Some(self.shape.declared).filter(|&n| n > 0), 0, "STREAMINFO declares");
    }
}

/// In place of a first frame that is not known yet.
const NO_FRAME: Frame = Frame { at: 0, first: 0, block: 0 };

/// The points of a seek table, with offsets from the first frame on.
fn hints(file: &HeaderBytes<'_>, table: &Range<u64>) -> Result<Vec<SeekPoint>> {
    let bytes = file.get_up_to(table.start, (table.end - table.start).min(MAX_TABLE));
    let mut hints = fallible_alloc::with_room(bytes.len() / 18)?;
    hints.extend(seek_points(bytes).map(|(sample, at)| SeekPoint { at, sample }));
    Ok(hints)
}

/// Whether a complete frame near the end of the bytes ends at the sample that STREAMINFO declares, and, in
/// memory, those before it are in order.
fn ends_at_declared(
    cache: &mut DecoderCache,
    reader: &mut RangeReader<'_>,
    shape: &Shape,
    first: Frame,
) -> Result<bool> {
    if let Some(bytes) = reader.memory() {
        let flac = Flac::window(bytes, shape.clone(), first, None);
        return Ok(flac.is_in_order() && flac.window_ends(cache)?);
    }
    let most = Flac::tail_of(shape) as u64;
    // The last frame is usually in a small tail.
    for len in [reader.sizes.ends.min(most), most] {
        let size = reader.size();
        let tail = reader.read_cached(size.saturating_sub(len).max(first.at as u64)..size)?;
        let first = Frame { at: 0, ..first };
        if Flac::window(&tail, shape.clone(), first, None).window_ends(cache)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// [`Stream::fixed`] by two consecutive frames: the first ones that there are, or in a file those at the
/// start; None if the file's start does not show them.
#[expect(clippy::option_option, reason = "unknown, or a number that may be none")]
fn numbering(reader: &mut RangeReader<'_>, shape: &Shape, first: Frame) -> Result<Option<Option<u32>>> {
    if let Some(bytes) = reader.memory() {
        return Ok(Some(Flac::window(bytes, shape.clone(), first, None).numbering()));
    }
    let at = first.at as u64;
    let end = at + 2 * shape.frame_budget() as u64 + reader.sizes.ends;
    let start = reader.read_cached(at..reader.size().min(end))?;
    Ok(Flac::window(&start, shape.clone(), Frame { at: 0, ..first }, None).numbering_at_start())
}

/// Walks all frames, in a file by pieces; returns the number of samples, and appends points. None if frames
/// of a file are damaged long before the end.
fn walk(
    cache: &mut DecoderCache,
    reader: &RangeReader<'_>,
    shape: &Shape,
    first: Frame,
    points: &mut Vec<SeekPoint>,
) -> Result<Option<u64>> {
    if let Some(bytes) = reader.memory() {
        return Flac::window(bytes, shape.clone(), first, None).walk_to_end(cache).map(Some);
    }
    let size = reader.size();
    let piece = reader.sizes.piece;
    let budget = shape.frame_budget() as u64;
    // The offset of the piece, and the frame in it.
    let (mut base, mut block, mut sample) = (first.at as u64, None, 0);
    let mut apart = piece / 16;
    loop {
        let end = size.min(base + piece + 2 * budget);
        let bytes = reader.read(base..end)?;
        let start = match block {
            Some(block) => Frame { at: 0, first: sample, block },
            None => match Header::parse(&bytes) {
                Some(header) => Frame { at: 0, first: 0, block: header.block },
                None => return Ok(None),
            },
        };
        let flac = Flac::window(&bytes, shape.clone(), start, None);
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
                    let flac = Flac::window(&rest, shape.clone(), last, None);
                    return flac.walk_to_end(cache).map(Some).map_err(from_byte(here));
                }
                _ => return Ok(None),
            }
        }
        if frame.at == 0 {
            return Ok(None);
        }
        (base, block, sample) = (base + frame.at as u64, Some(frame.block), frame.first);
    }
}
