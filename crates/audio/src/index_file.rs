//! An index as bytes, to be kept in a file.
//!
//! Little-endian numbers after a magic number, a version and a checksum. What is read is checked as far as
//! decoding depends on it: positions ascend, lengths agree with places, headers are parsed again.
//!
//! Source: own.

use std::ops::Range;

use crate::{
    Codec, Error, ErrorKind, Info, Result,
    adpcm::BlockLayout,
    field::Endian,
    formats::{
        flac::{Shape as FlacShape, frame::Stream, index as flac},
        mpeg::{Constant, Header, Link, index as mpeg},
        vorbis::{index as vorbis, window::Place},
    },
    locate::{MAX_POINTS, SeekPoint, SeekPoints},
    ogg::crc32,
    packet_index as packets,
    pcm::{Coding, PcmFormat},
    range_index::{FormatIndex, RangeIndex, ReadSizes},
};

/// The first bytes, with the version of the layout.
const MAGIC: &[u8; 8] = b"fbrange\x02";

const CODECS: [Codec; 12] = [
    Codec::Pcm,
    Codec::Alaw,
    Codec::Mulaw,
    Codec::AdpcmMs,
    Codec::AdpcmIma,
    Codec::Flac,
    Codec::Vorbis,
    Codec::Mp1,
    Codec::Mp2,
    Codec::Mp3,
    Codec::Aac,
    Codec::Alac,
];

#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn byte(&mut self, value: u8) {
        self.0.push(value);
    }

    fn word(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    fn long(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    fn range(&mut self, range: &Range<u64>) {
        self.long(range.start);
        self.long(range.end);
    }

    fn points(&mut self, points: &[SeekPoint]) {
        self.word(points.len() as u32);
        for point in points {
            self.long(point.at);
            self.long(point.sample);
        }
    }
}

/// Takes numbers; None where the bytes end.
struct Parser<'a>(&'a [u8]);

impl<'a> Parser<'a> {
    fn bytes(&mut self, n: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(bytes)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.first_chunk().copied()
    }

    fn byte(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn flag(&mut self) -> Option<bool> {
        self.byte().filter(|&byte| byte < 2).map(|byte| byte == 1)
    }

    fn word(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn long(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn range(&mut self) -> Option<Range<u64>> {
        let (start, end) = (self.long()?, self.long()?);
        (start <= end).then_some(start..end)
    }

    /// Points that ascend, up to byte `end` and sample `behind`.
    fn points(&mut self, most: usize, end: u64, behind: u64) -> Option<Vec<SeekPoint>> {
        let n = self.word()? as usize;
        if n > most || n > self.0.len() / 16 {
            return None;
        }
        // bounded: the bytes have 16 for each.
        let mut points: Vec<SeekPoint> = Vec::with_capacity(n);
        for _ in 0..n {
            let point = SeekPoint { at: self.long()?, sample: self.long()? };
            let follows = points.last().is_none_or(|last| last.at < point.at && last.sample <= point.sample);
            if !follows || point.at > end || point.sample > behind {
                return None;
            }
            points.push(point);
        }
        Some(points)
    }
}

pub(crate) fn write(index: &RangeIndex) -> Vec<u8> {
    let mut to = Writer::default();
    let RangeIndex { size, info, format, .. } = index;
    to.long(*size);
    to.byte(CODECS.iter().position(|codec| *codec == info.codec).unwrap_or_default() as u8);
    to.word(info.sample_rate);
    to.word(info.channels.into());
    to.long(info.n_samples);
    match format {
        FormatIndex::Whole => to.byte(0),
        FormatIndex::Linear(shape) => {
            to.byte(1);
            to.range(&shape.data);
            write_coding(&mut to, &shape.coding);
        }
        FormatIndex::Flac(flac) => {
            to.byte(2);
            let Stream { sample_rate, channels, bits, is_variable, fixed } = flac.shape.stream;
            to.word(sample_rate);
            to.bytes(&[channels, bits, is_variable.into()]);
            to.word(fixed.unwrap_or(0));
            to.bytes(&flac.shape.setup);
            to.long(flac.shape.declared);
            to.points(&flac.points.list());
            to.points(&flac.hints);
        }
        FormatIndex::Vorbis(vorbis) => {
            to.byte(3);
            to.word(vorbis.places.len() as u32);
            let mut before: Option<&Place> = None;
            for place in &vorbis.places {
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
            to.points(&vorbis.points.list());
        }
        FormatIndex::Mpeg(mpeg) => {
            to.byte(4);
            to.range(&mpeg.range);
            to.bytes(&mpeg.header.raw);
            to.word(mpeg.header.free);
            to.word(mpeg.links.len() as u32);
            for Link { frames, delay, n_samples, declared } in &mpeg.links {
                to.range(&(frames.start as u64..frames.end as u64));
                to.long(*delay);
                to.long(*n_samples);
                to.long(declared.unwrap_or(u64::MAX));
            }
            match &mpeg.places {
                mpeg::FramePositions::Constant(Constant { at, n_tags, .. }) => {
                    to.byte(0);
                    to.long(*at);
                    to.long(*n_tags);
                }
                mpeg::FramePositions::Found(points) => {
                    to.byte(1);
                    to.points(points);
                }
            }
        }
        FormatIndex::Packets(_) => {}
    }
    if let FormatIndex::Packets(packets) = format {
        to.byte(5);
        let packets::PacketIndex { setup, lens, runs, gap, delay, behind } = packets;
        to.word(setup.len() as u32);
        to.bytes(setup);
        to.word(*gap);
        to.long(*delay);
        to.long(*behind);
        to.word(lens.len() as u32);
        lens.iter().for_each(|len| to.bytes(&len.to_le_bytes()));
        to.word(runs.len() as u32);
        for &packets::PacketRun { number, at, start, dur } in runs {
            to.word(number);
            to.long(at);
            to.long(start);
            to.word(dur);
        }
    }
    let mut bytes = MAGIC.to_vec();
    bytes.extend([0; 4]);
    bytes.extend(to.0);
    seal(&mut bytes);
    bytes
}

pub(crate) fn seal(bytes: &mut [u8]) {
    if let Some((_, rest)) = bytes.split_at_mut_checked(MAGIC.len())
        && let Some((told, body)) = rest.split_first_chunk_mut::<4>()
    {
        *told = crc32(u32::MAX, body).to_le_bytes();
    }
}

fn write_coding(to: &mut Writer, coding: &Coding) {
    let big = |endian: &Endian| u8::from(*endian == Endian::Big);
    match coding {
        Coding::Unsigned8 => to.byte(0),
        Coding::Int { bytes, stride, endian } => to.bytes(&[1, *bytes as u8, *stride as u8, big(endian)]),
        Coding::Float { bytes, endian } => to.bytes(&[2, *bytes as u8, big(endian)]),
        Coding::Alaw => to.byte(3),
        Coding::Mulaw => to.byte(4),
        Coding::Adpcm(blocks) => {
            to.byte(5);
            let (pairs, fields) = blocks.fields();
            to.word(pairs.len() as u32);
            for value in pairs.iter().flatten() {
                to.bytes(&value.to_le_bytes());
            }
            for field in fields {
                to.word(field as u32);
            }
        }
    }
}

pub(crate) fn read(bytes: &[u8]) -> Result<RangeIndex> {
    let error = |message: &str| Error::new(ErrorKind::Format, format!("the index of a recording {message}"));
    let rest = bytes
        .strip_prefix(MAGIC)
        .ok_or_else(|| error("is not one of this version; it is made again from the recording"))?;
    let damaged = || error("is damaged; it is made again from the recording");
    let (told, body) = rest.split_first_chunk::<4>().ok_or_else(damaged)?;
    if crc32(u32::MAX, body) != u32::from_le_bytes(*told) {
        return Err(damaged());
    }
    let mut from = Parser(body);
    let index = read_body(&mut from).filter(|_| from.0.is_empty()).ok_or_else(damaged)?;
    index.info.check().map_err(|_| damaged())?;
    Ok(index)
}

fn read_body(from: &mut Parser<'_>) -> Option<RangeIndex> {
    // No file is larger, and sums of offsets do not overflow.
    let size = from.long().filter(|&size| size < 1 << 60)?;
    let codec = *CODECS.get(usize::from(from.byte()?))?;
    let info = Info {
        codec,
        sample_rate: from.word()?,
        channels: u16::try_from(from.word()?).ok().filter(|&channels| channels > 0)?,
        n_samples: from.long()?,
    };
    let format = match from.byte()? {
        0 => FormatIndex::Whole,
        1 => {
            let data = from.range().filter(|data| data.end <= size)?;
            let coding = read_coding(from, info.channels)?;
            let shape =
                PcmFormat::new(data, coding, info.sample_rate, info.channels, Some(info.n_samples)).ok()?;
            FormatIndex::Linear(Some(shape).filter(|shape| shape.info == info)?)
        }
        2 => FormatIndex::Flac(read_flac(from, size, info)?),
        3 => FormatIndex::Vorbis(read_vorbis(from, size, info)?),
        4 => FormatIndex::Mpeg(read_mpeg(from, size, info)?),
        5 => FormatIndex::Packets(read_packets(from, size, info)?),
        _ => return None,
    };
    Some(RangeIndex { size, info, sizes: ReadSizes::USUAL, format })
}

fn read_coding(from: &mut Parser<'_>, channels: u16) -> Option<Coding> {
    fn endian(from: &mut Parser<'_>) -> Option<Endian> {
        from.flag().map(|big| if big { Endian::Big } else { Endian::Little })
    }
    Some(match from.byte()? {
        0 => Coding::Unsigned8,
        1 => {
            let (bytes, stride) = (usize::from(from.byte()?), usize::from(from.byte()?));
            if !(1..=8).contains(&bytes) || !(bytes..=16).contains(&stride) {
                return None;
            }
            Coding::Int { bytes, stride, endian: endian(from)? }
        }
        2 => {
            let bytes = usize::from(from.byte().filter(|bytes| [4, 8].contains(bytes))?);
            Coding::Float { bytes, endian: endian(from)? }
        }
        3 => Coding::Alaw,
        4 => Coding::Mulaw,
        5 => {
            let n = from.word().filter(|&n| n <= 256)?;
            let mut pairs = Vec::new();
            for _ in 0..n {
                let [a, b, c, d] = from.array()?;
                pairs.push([i16::from_le_bytes([a, b]), i16::from_le_bytes([c, d])]);
            }
            let fields = [from.word()? as usize, from.word()? as usize, from.word()? as usize];
            let blocks = BlockLayout::from_fields(pairs, fields)?;
            Coding::Adpcm(Some(blocks).filter(|_| fields[0] == usize::from(channels))?)
        }
        _ => return None,
    })
}

/// Points from sample 0 to the end of the recording.
fn read_points(from: &mut Parser<'_>, size: u64, n_samples: u64) -> Option<SeekPoints> {
    let points = from.points(2 * MAX_POINTS, size, n_samples)?;
    let is_whole = points.len() >= 2
        && points.first().is_some_and(|first| first.sample == 0)
        && points.last().is_some_and(|last| last.sample == n_samples);
    is_whole.then(|| SeekPoints::new(points))
}

fn read_flac(from: &mut Parser<'_>, size: u64, info: Info) -> Option<flac::FlacIndex> {
    let sample_rate = from.word()?;
    let [channels, bits, is_variable] = from.array()?;
    let fixed = Some(from.word()?).filter(|&fixed| fixed > 0);
    let stream = Stream { sample_rate, channels, bits, is_variable: is_variable == 1, fixed };
    let setup: [u8; 34] = from.array()?;
    let shape = FlacShape { info, stream, setup, declared: from.long()? };
    let is_valid = sample_rate == info.sample_rate
        && u16::from(channels) == info.channels
        && (1..=8).contains(&channels)
        && (1..=32).contains(&bits)
        && is_variable < 2
        && u16::from_be_bytes([setup[2], setup[3]]) >= 16
        && info.n_samples <= shape.most_samples(size);
    let points = read_points(from, size, info.n_samples)?;
    let hints = from.points(MAX_POINTS, size, info.n_samples)?;
    is_valid.then_some(flac::FlacIndex { shape, points, hints })
}

fn read_vorbis(from: &mut Parser<'_>, size: u64, info: Info) -> Option<vorbis::VorbisIndex> {
    let n = from.word().filter(|&n| (1..=vorbis::MAX_LINKS as u32).contains(&n))?;
    let mut places: Vec<Place> = Vec::new();
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
        let place = Place::of_parts(places.last(), headers, granules, serial, bytes, sequences)?;
        if place.info(info.n_samples) != info {
            return None;
        }
        places.push(place);
    }
    let last = places.last()?;
    if last.begin.checked_add(last.n_samples())? != info.n_samples {
        return None;
    }
    Some(vorbis::VorbisIndex { points: read_points(from, size, info.n_samples)?, places })
}

fn read_mpeg(from: &mut Parser<'_>, size: u64, info: Info) -> Option<mpeg::MpegIndex> {
    let range =
        from.range().filter(|range| range.end <= size && range.end - range.start <= u32::MAX.into())?;
    let raw = from.array::<4>()?;
    let header = Header::of_parts(&raw, from.word()?).filter(|header| header.len > 0)?;
    let codec = [Codec::Mp1, Codec::Mp2, Codec::Mp3][usize::from(header.layer - 1)];
    if (codec, header.sample_rate, u16::from(header.channels))
        != (info.codec, info.sample_rate, info.channels)
    {
        return None;
    }
    let n = from.word().filter(|&n| n as usize <= mpeg::MAX_LINKS + 1)?;
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
            mpeg::FramePositions::Constant(Constant { at, n_tags, n_total: behind + n_tags })
        }
        1 => {
            let points = from.points(mpeg::MAX_POINTS, range.end - range.start, behind)?;
            if points.first()?.sample != 0 {
                return None;
            }
            mpeg::FramePositions::Found(points)
        }
        _ => return None,
    };
    (total == info.n_samples).then_some(mpeg::MpegIndex { range, header, links, places })
}

fn read_packets(from: &mut Parser<'_>, size: u64, info: Info) -> Option<packets::PacketIndex> {
    if !matches!(info.codec, Codec::Aac | Codec::Alac) {
        return None;
    }
    let len = from.word()? as usize;
    let setup = from.bytes(len)?.to_vec();
    let gap = from.word().filter(|&gap| gap < 16)?;
    let (delay, behind) = (from.long()?, from.long()?);
    let len = from.word()? as usize;
    let lens: Vec<u16> = from
        .bytes(len.checked_mul(2)?)?
        .as_chunks::<2>()
        .0
        .iter()
        .map(|&len| u16::from_le_bytes(len))
        .collect();
    let n = from.word().filter(|&n| n as usize <= packets::MAX_RUNS)?;
    let mut runs: Vec<packets::PacketRun> = Vec::new();
    for _ in 0..n {
        let run = packets::PacketRun {
            number: from.word()?,
            at: from.long()?,
            start: from.long()?,
            dur: from.word()?,
        };
        runs.push(run);
    }
    let index = packets::PacketIndex { setup, lens, runs, gap, delay, behind };
    (index.is_valid(size) && delay.checked_add(info.n_samples)? <= behind).then_some(index)
}
