//! WAV and its larger relatives: RIFF, RIFX (big-endian), RF64 and BW64 (64-bit sizes in `ds64`).
//!
//! The chunks are walked by their sizes until both `fmt ` and `data` are found. The data are all bytes to the
//! end of the file if their size is 0xFFFFFFFF, beyond the end, or 0 at the end of the chunks (a writer that
//! never filled it in).
//!
//! Source: Microsoft/IBM multimedia WAVE registration (RIFF, WAVEFORMATEX, WAVEFORMATEXTENSIBLE); ITU-R
//! BS.2088 (BW64); EBU Tech 3306 (RF64).

use std::ops::Range;

use super::{Format, mpeg::MpegIndex};
use crate::{
    Codec, DecoderCache, Error, ErrorKind, Info, Places, Result,
    adpcm::BlockLayout,
    corrupt,
    field::{Endian, array_at, u16_at, u32_at, u64_at},
    formats::{AnyIndex, Opened},
    index_file::Parser,
    pcm::{Coding, PcmFormat, float_coding, int_coding},
    read_at::{HeaderBytes, RangeReader},
    unsupported,
};

/// The format tag of WAVEFORMATEXTENSIBLE, which has the real one in a GUID.
const EXTENSIBLE: u16 = 0xfffe;
/// The bytes after the format tag in the SubFormat of WAVEFORMATEXTENSIBLE:
/// `xxxxxxxx-0000-0010-8000-00aa00389b71`.
const SUBFORMAT_TAIL: [u8; 8] = [0x80, 0, 0, 0xaa, 0, 0x38, 0x9b, 0x71];
/// The start of a codec's fields in the `fmt ` chunk: after their size, and after the SubFormat.
const OWN_FIELDS: usize = 18;
const OWN_FIELDS_EXTENSIBLE: usize = 40;

/// The most bytes of a `fmt ` chunk that are looked at: more than any coding has.
pub(super) const MAX_FMT: u64 = 4096;

/// The place of the content in a WAV file.
pub(super) enum WavContent {
    Pcm(PcmFormat),
    Mpeg(Range<u64>),
}

/// Sizes from here to 2^32 are placeholders of writers that never fill in the true size.
const UNKNOWN_SIZE: u64 = 0x7fff_f000;

/// A `data` chunk: the place of its existing bytes, and the number that its header declares, if any.
#[derive(Clone)]
pub(super) struct Data {
    bytes: Range<u64>,
    declared: Option<u64>,
}

impl Data {
    /// A chunk of `size` bytes from `at` on in a file of `end` bytes.
    pub(super) fn new(at: u64, size: u64, end: u64, declared: Option<u64>) -> Self {
        Self { bytes: at.min(end)..at.saturating_add(size).min(end), declared }
    }
}

/// RIFF, RIFX, RF64 and BW64.
#[derive(Debug)]
pub(crate) struct Wav;

impl Format for Wav {
    fn name(&self) -> &'static str {
        "wav"
    }

    fn detect(&self, head: &[u8]) -> Result<bool> {
        match head.get(8..12) {
            _ if !matches!(head.get(..4), Some(b"RIFF" | b"RIFX" | b"RF64" | b"BW64")) => Ok(false),
            None => Err(corrupt("the RIFF header is cut short")),
            Some(b"WAVE") => Ok(true),
            Some(other) => {
                Err(unsupported(format!("a RIFF file of type `{}`, not WAVE", other.escape_ascii())))
            }
        }
    }

    fn places(&self) -> Places {
        Places::Plain
    }

    fn open<'a>(&self, cache: &mut DecoderCache, reader: &mut RangeReader<'a>) -> Result<Option<Opened<'a>>> {
        match reader.parse(find)? {
            None => Ok(None),
            Some(WavContent::Pcm(shape)) => Ok(Some(shape.into())),
            Some(WavContent::Mpeg(data)) => MpegIndex::open(cache, reader, data),
        }
    }

    fn read_index(&self, from: &mut Parser<'_>, size: u64, info: Info) -> Option<AnyIndex> {
        match info.codec {
            Codec::Mp1 | Codec::Mp2 | Codec::Mp3 => MpegIndex::read(from, size, info),
            _ => PcmFormat::read(from, size, info).map(AnyIndex::Pcm),
        }
    }
}

/// Finds the samples in RIFF, RIFX, RF64 and BW64.
///
/// # Errors
/// `Corrupt` without `fmt ` or `data`, `Unsupported` for format tags not decoded here, `Empty` without
/// samples.
fn find(file: &HeaderBytes<'_>) -> Result<WavContent> {
    let endian = if file.get_up_to(0, 4) == b"RIFX" { Endian::Big } else { Endian::Little };
    let mut at = 12;
    let (mut fmt, mut data, mut large, mut fact) = (None, None, None, None);
    while let Some(head) = file.get(at, 8)
        && let Some(declared) = u32_at(head, 4, endian)
    {
        let body = at + 8;
        let id = &head[..4];
        let size = match (id, large) {
            (b"data", Some(large)) if declared == u32::MAX => large,
            _ => u64::from(declared),
        };
        match id {
            b"ds64" => large = file.get(body + 8, 8).and_then(|size| u64_at(size, 0, Endian::Little)),
            b"fmt " => fmt = Some(file.get_up_to(body, size.min(MAX_FMT))),
            b"fact" => fact = file.get(body, 4).and_then(|fact| u32_at(fact, 0, endian)),
            b"data" => {
                let unknown = size == 0 && !chunks_follow(file, body, endian);
                let is_filler = large.is_none() && (UNKNOWN_SIZE..1 << 32).contains(&size);
                let declared = Some(size).filter(|_| !unknown && !is_filler);
                data = Some(Data::new(body, if unknown { u64::MAX } else { size }, file.size(), declared));
            }
            _ => {}
        }
        if fmt.is_some() && data.is_some() {
            break;
        }
        // Chunks are padded to even sizes. The walk ends at a chunk that reaches the end of the bytes.
        match body
            .checked_add(size)
            .and_then(|end| end.checked_add(size & 1))
            .filter(|&next| next < file.size())
        {
            Some(next) => at = next,
            None => break,
        }
    }
    coded(fmt, data, fact, endian)
}

/// Whether the bytes from `at` to the end are whole chunks with printable names, at least one.
fn chunks_follow(file: &HeaderBytes<'_>, mut at: u64, endian: Endian) -> bool {
    let first = at;
    while file.size().checked_sub(at).is_some_and(|left| left >= 8) {
        let Some(head) = file.get(at, 8) else { return false };
        let named = head[..4].iter().all(|letter| (0x20..0x7f).contains(letter));
        let Some(size) = u32_at(head, 4, endian).filter(|_| named) else { return false };
        at = at.saturating_add(8).saturating_add(size.into()).saturating_add((size & 1).into());
    }
    at > first && at <= file.size() + 1
}

/// The format tag in the SubFormat of WAVEFORMATEXTENSIBLE; None if the SubFormat is another GUID.
///
/// In RIFX the GUID's three numbers are big-endian, or little-endian from writers that copy it.
fn subformat(fmt: &[u8], endian: Endian) -> Option<u16> {
    let guid: [u8; 16] = array_at(fmt, 24)?;
    let tag = |endian| {
        let is_known = u16_at(&guid, 4, endian) == Some(0)
            && u16_at(&guid, 6, endian) == Some(0x10)
            && guid[8..] == SUBFORMAT_TAIL;
        u32_at(&guid, 0, endian).filter(|_| is_known).and_then(|tag| u16::try_from(tag).ok())
    };
    tag(endian).or_else(|| tag(Endian::Little))
}

/// The name of a format tag that is not decoded, in brackets; empty for unusual ones. Source: RFC 2361.
fn tag_name(tag: u16) -> &'static str {
    match tag {
        0x0020 => " (Yamaha ADPCM)",
        0x0031 => " (GSM 6.10)",
        0x0022 => " (TrueSpeech)",
        0x0040 | 0x0045 | 0x0064 | 0x0065 => " (G.72x ADPCM)",
        0x00ff | 0x1600 | 0x1602 | 0x1610 => " (AAC)",
        0x0160..=0x0163 => " (WMA)",
        0x2000 => " (AC-3)",
        0x2001 => " (DTS)",
        0x674f..=0x6751 | 0x676f..=0x6771 => " (Vorbis)",
        0xf1ac => " (FLAC)",
        _ => "",
    }
}

/// The samples in `data` as declared by `fmt `.
pub(super) fn coded(
    fmt: Option<&[u8]>,
    data: Option<Data>,
    fact: Option<u32>,
    endian: Endian,
) -> Result<WavContent> {
    let fmt = fmt.ok_or_else(|| corrupt("the WAV file has no `fmt ` chunk"))?;
    let Data { bytes: data, declared } = data.ok_or_else(|| corrupt("the WAV file has no `data` chunk"))?;
    if data.is_empty() {
        return Err(Error::new(ErrorKind::Empty, "the WAV file has a header but no samples"));
    }
    let short = || corrupt(format!("the `fmt ` chunk has {} bytes, at least 16 are needed", fmt.len()));
    let u16_of = |at| u16_at(fmt, at, endian).ok_or_else(short);
    let channels = u16_of(2)?;
    let sample_rate = u32_at(fmt, 4, endian).ok_or_else(short)?;
    let block = u16_of(12)?;
    let bits = u16_of(14)?;
    let (mut tag, mut own) = (u16_of(0)?, fmt.get(OWN_FIELDS..).unwrap_or_default());
    if tag == EXTENSIBLE {
        tag = subformat(fmt, endian).ok_or_else(|| {
            unsupported("the WAV file's extensible format has a SubFormat that is not a format tag")
        })?;
        own = fmt.get(OWN_FIELDS_EXTENSIBLE..).unwrap_or_default();
    }
    if channels == 0 {
        return Err(corrupt("the WAV header declares 0 channels"));
    }
    // The block is the size of a frame. If a writer left it 0, frames have the smallest size.
    let least = usize::from(bits.div_ceil(8));
    let stride = match usize::from(block) {
        0 => least,
        block if block % usize::from(channels) == 0 => block / usize::from(channels),
        block => {
            return Err(corrupt(format!("blocks of {block} bytes do not divide into {channels} channels")));
        }
    };
    let mut limit = None;
    let coding = match tag {
        1 if bits <= 8 && stride == 1 => Coding::Unsigned8,
        1 => int_coding(bits, stride, endian)?,
        3 if stride == least => float_coding(bits, endian)?,
        6 if stride == 1 => Coding::Alaw,
        7 if stride == 1 => Coding::Mulaw,
        2 | 0x11 => {
            let blocks = match tag {
                2 => BlockLayout::ms(own, endian, channels, block, bits)?,
                _ => BlockLayout::ima(own, endian, channels, block, bits)?,
            };
            limit = fact.map(u64::from).filter(|&n| blocks.is_in_last(n, data.end - data.start));
            Coding::Adpcm(blocks)
        }
        0x50 | 0x55 => return Ok(WavContent::Mpeg(data)),
        3 | 6 | 7 => return Err(corrupt(format!("blocks of {block} bytes do not fit {bits}-bit samples"))),
        _ => {
            return Err(unsupported(format!(
                "the WAV file's format tag is {tag:#06x}{}; PCM, float, A-law, mu-law, ADPCM and MPEG are decoded: convert it \
                 with `ffmpeg -i in.wav out.flac`",
                tag_name(tag)
            )));
        }
    };
    let shape = PcmFormat::new(data, coding, sample_rate, channels, limit)?;
    Ok(WavContent::Pcm(shape.with_declared_bytes(declared)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{Index, SpanWindow};

    /// A file with this `fmt ` chunk and data, in the byte order of `id`.
    fn file(id: &[u8; 4], fmt: &[u8], data: &[u8]) -> Vec<u8> {
        let size = |bytes: &[u8]| {
            let n = bytes.len() as u32;
            if id == b"RIFX" { n.to_be_bytes() } else { n.to_le_bytes() }
        };
        [&id[..], &size(data), b"WAVEfmt ", &size(fmt), fmt, b"data", &size(data), data].concat()
    }

    /// WAVEFORMATEXTENSIBLE of 16 bits, mono, 8 kHz, big-endian.
    fn extensible(guid: [u8; 16]) -> Vec<u8> {
        let plain =
            [0xff, 0xfe, 0, 1, 0, 0, 0x1f, 0x40, 0, 0, 0x3e, 0x80, 0, 2, 0, 16, 0, 22, 0, 16, 0, 0, 0, 4];
        [&plain[..], &guid].concat()
    }

    #[test]
    fn big_endian_extensible_headers_are_read() {
        let tail = SUBFORMAT_TAIL;
        let big = [&[0, 0, 0, 1, 0, 0, 0, 0x10][..], &tail].concat();
        let little = [&[1, 0, 0, 0, 0, 0, 0x10, 0][..], &tail].concat();
        for guid in [big, little] {
            let bytes = file(b"RIFX", &extensible(guid.try_into().unwrap()), &[0x40, 0, 0xc0, 0]);
            let Ok(WavContent::Pcm(pcm)) = find(&HeaderBytes::of(&bytes)) else { panic!("not opened") };
            assert_eq!((pcm.info.sample_rate, pcm.info.n_samples), (8000, 2));
            let mut out = crate::Planes::new();
            out.reset(1, 2).unwrap();
            pcm.decode(&mut DecoderCache::default(), &SpanWindow::whole(&bytes[..]), 0..2, &mut out).unwrap();
            assert_eq!(out.channel(0), [0.5, -0.5]);
        }
        // Ambisonics, and an unknown GUID.
        for guid in [[1, 0, 0, 0, 0x21, 7, 0xd3, 0x11, 0x86, 0x44, 0xc8, 0xc1, 0xca, 0, 0, 0], [7; 16]] {
            let bytes = file(b"RIFX", &extensible(guid), &[0; 4]);
            let Err(error) = find(&HeaderBytes::of(&bytes)) else { panic!("opened") };
            assert_eq!(error.kind, ErrorKind::Unsupported);
        }
    }

    #[test]
    fn codecs_that_are_not_decoded_are_named() {
        // GSM 6.10, TrueSpeech, and an unknown one.
        for (tag, name) in [(0x31, "0x0031 (GSM 6.10)"), (0x22, "(TrueSpeech)"), (0x1234, "0x1234;")] {
            let [low, high] = u16::to_le_bytes(tag);
            let fmt = [low, high, 1, 0, 0x40, 0x1f, 0, 0, 0x5d, 6, 0, 0, 65, 0, 0, 0, 2, 0, 64, 1];
            let bytes = file(b"RIFF", &fmt, &[0; 65]);
            let Err(error) = find(&HeaderBytes::of(&bytes)) else { panic!("opened") };
            assert_eq!(error.kind, ErrorKind::Unsupported);
            assert!(error.message.contains(name) && error.message.contains("`ffmpeg -i in.wav"), "{error}");
        }
    }

    #[test]
    fn adpcm_of_other_widths_is_refused() {
        // DVI ADPCM of 3 bits: mono, 8 kHz, blocks of 8 bytes.
        let fmt = [0x11, 0, 1, 0, 0x40, 0x1f, 0, 0, 0x40, 0x1f, 0, 0, 8, 0, 3, 0, 2, 0, 9, 0];
        let bytes = file(b"RIFF", &fmt, &[0; 16]);
        let Err(error) = find(&HeaderBytes::of(&bytes)) else { panic!("opened") };
        assert_eq!(error.kind, ErrorKind::Unsupported);
        assert!(error.message.contains("3 bits"), "{error}");
    }
}
