//! The first elements of a file: its kind, and the audio track that is decoded.
//!
//! Of several audio tracks that are not disabled, the first one with the flag `FlagDefault` is taken, which
//! is set unless a file says otherwise; without any, the first one. A number counts all audio tracks, also
//! disabled ones.
//!
//! Source: RFC 9559, sections 5.1.2 and 5.1.4; RFC 8794, section 11.2; Matroska Codec Specifications.

use super::{
    ebml::{self, ElementHead, MAX_HEAD, elements, find},
    walk::{CLUSTER, EBML, MatroskaBytes, SEGMENT},
};
use crate::{
    Codec, Error, Result, corrupt, fallible_alloc,
    field::Endian,
    formats::no_track,
    pcm::{Coding, float_coding, int_coding},
    unsupported,
};

/// The most bytes of the elements that are read as a whole.
const MAX_ELEMENT: u64 = 16 << 20;
/// The most bytes of the setup of a decoder.
const MAX_PRIVATE: usize = 1 << 20;

const DOC_TYPE: u32 = 0x4282;
const INFO: u32 = 0x1549_a966;
const TIMESTAMP_SCALE: u32 = 0x2a_d7b1;
const TRACKS: u32 = 0x1654_ae6b;
const TRACK_ENTRY: u32 = 0xae;
const TRACK_NUMBER: u32 = 0xd7;
const TRACK_TYPE: u32 = 0x83;
const FLAG_DEFAULT: u32 = 0x88;
const FLAG_ENABLED: u32 = 0xb9;
const CODEC_ID: u32 = 0x86;
const CODEC_PRIVATE: u32 = 0x63a2;
const CODEC_DELAY: u32 = 0x56aa;
const CONTENT_ENCODINGS: u32 = 0x6d80;
const AUDIO: u32 = 0xe1;
const SAMPLING_FREQUENCY: u32 = 0xb5;
const CHANNELS: u32 = 0x9f;
const BIT_DEPTH: u32 = 0x6264;

/// How a track's samples are coded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TrackCoding {
    /// By a codec whose own file is made of the frames.
    File(Codec),
    /// AAC or ALAC.
    Packets(Codec),
    Pcm(Coding),
    Mpeg,
}

/// The audio track of a file.
#[derive(Debug)]
pub(super) struct AudioTrack {
    pub number: u64,
    pub coding: TrackCoding,
    pub private: Vec<u8>,
    /// Nanoseconds before the recording's first sample.
    pub delay: u64,
    pub sample_rate: u32,
    pub channels: u16,
    /// Nanoseconds of a tick of the blocks' times.
    pub tick: u64,
    /// The byte of the first cluster, and the end of the segment, if it is known.
    pub clusters: u64,
    pub segment_end: Option<u64>,
}

/// The head of the element at byte `at`.
fn head(source: &mut MatroskaBytes<'_, '_>, at: u64) -> Result<ElementHead> {
    ElementHead::parse(source.get(at, MAX_HEAD)?)
        .map_err(|_| corrupt("the head of the Matroska file is damaged or cut short").at_byte(at))
}

fn content<'s>(
    source: &'s mut MatroskaBytes<'_, '_>,
    at: u64,
    size: Option<u64>,
    name: &str,
) -> Result<&'s [u8]> {
    let size = size.filter(|&size| size <= MAX_ELEMENT).ok_or_else(|| {
        corrupt(format!("the Matroska element {name} has an unknown size, or more than 16 MiB"))
    })?;
    let body = source.get(at, size)?;
    if (body.len() as u64) < size {
        return Err(corrupt(format!("the file ends within the Matroska element {name}")));
    }
    Ok(body)
}

impl AudioTrack {
    /// Reads the elements before the first cluster, and finds the audio track of this number, or the usual
    /// one.
    ///
    /// # Errors
    /// `Corrupt` if they are damaged or cut short, `Unsupported` without this audio track, for codecs that
    /// are not decoded here, and for other files of EBML.
    pub(super) fn open(source: &mut MatroskaBytes<'_, '_>, track: Option<u32>) -> Result<Self> {
        let first = head(source, 0)?;
        let header = content(source, first.len, first.size, "EBML")?;
        // Texts may be filled up with zeros.
        let kind =
            find(header, DOC_TYPE).map(|kind| kind.split(|&byte| byte == 0).next().unwrap_or_default());
        match kind {
            Some(b"webm" | b"matroska") if first.id == EBML => {}
            Some(other) => {
                let name = other.escape_ascii();
                return Err(unsupported(format!("a file of EBML of type `{name}`, not Matroska or WebM")));
            }
            None => return Err(corrupt("the EBML header has no document type")),
        }
        let mut at = first.len + header.len() as u64;
        let segment = head(source, at)?;
        if segment.id != SEGMENT {
            return Err(corrupt("no Segment follows the EBML header of the Matroska file").at_byte(at));
        }
        at += segment.len;
        let segment_end = segment.size.map(|size| at.saturating_add(size));
        let (mut tick, mut found) = (1_000_000, None);
        while at < segment_end.unwrap_or(u64::MAX).min(source.end()) {
            let ElementHead { id, len, size } = head(source, at)?;
            match id {
                CLUSTER => break,
                INFO => {
                    let scale =
                        find(content(source, at + len, size, "Info")?, TIMESTAMP_SCALE).and_then(ebml::uint);
                    tick = scale.filter(|&tick| tick > 0).unwrap_or(tick);
                }
                TRACKS if found.is_none() => {
                    found = Some(Self::of_tracks(content(source, at + len, size, "Tracks")?, track)?);
                }
                _ => {}
            }
            let end = size.and_then(|size| (at + len).checked_add(size));
            at = end.ok_or_else(|| corrupt("an element before the first cluster has no size").at_byte(at))?;
        }
        let found =
            found.ok_or_else(|| corrupt("the Matroska file has no Tracks before its first cluster"))?;
        Ok(Self { tick, clusters: at, segment_end, ..found })
    }

    fn of_tracks(tracks: &[u8], track: Option<u32>) -> Result<Self> {
        let number = |entry: &[u8], id| find(entry, id).and_then(ebml::uint);
        let entries = || elements(tracks).filter(|(id, _)| *id == TRACK_ENTRY).map(|(_, entry)| entry);
        let sounds = || entries().filter(|entry| number(entry, TRACK_TYPE) == Some(2));
        let enabled = || sounds().filter(|entry| number(entry, FLAG_ENABLED) != Some(0));
        let is_default = |entry: &&[u8]| number(entry, FLAG_DEFAULT) != Some(0);
        let entry = match track {
            Some(track) => sounds().nth(track as usize),
            None => enabled().find(is_default).or_else(|| enabled().next()),
        };
        let entry = entry.ok_or_else(|| match (entries().next(), track, sounds().count()) {
            (None, ..) => corrupt("the Matroska file has no tracks"),
            (_, Some(track), n @ 1..) => no_track(track, "matroska", n),
            _ => unsupported("the Matroska file has no audio track"),
        })?;
        if find(entry, CONTENT_ENCODINGS).is_some() {
            return Err(unsupported(
                "a Matroska track that is compressed or encrypted; convert it with `ffmpeg -i in.mka -c copy out.mka`",
            ));
        }
        let audio = find(entry, AUDIO).unwrap_or_default();
        // 8000 Hz and one channel are the values of elements that are left out.
        let rate = find(audio, SAMPLING_FREQUENCY).map_or(Some(8000.0), ebml::float);
        let rate = rate.filter(|rate| (0.5..=f64::from(u32::MAX)).contains(rate));
        let rate =
            rate.ok_or_else(|| corrupt("the Matroska track declares an impossible SamplingFrequency"))?;
        let channels = number(audio, CHANNELS).unwrap_or(1);
        let channels = u16::try_from(channels)
            .map_err(|_| corrupt(format!("the Matroska track declares {channels} channels")))?;
        let private = find(entry, CODEC_PRIVATE).unwrap_or_default();
        if private.len() > MAX_PRIVATE {
            return Err(corrupt(format!(
                "the CodecPrivate of the Matroska track has {} bytes",
                private.len()
            )));
        }
        let missing = |name: &str| corrupt(format!("the Matroska track has no {name}"));
        let codec = find(entry, CODEC_ID).ok_or_else(|| missing("CodecID"))?;
        Ok(Self {
            number: number(entry, TRACK_NUMBER).ok_or_else(|| missing("TrackNumber"))?,
            coding: coding_of(codec.trim_ascii_end(), number(audio, BIT_DEPTH))?,
            private: fallible_alloc::copy(private)?,
            delay: number(entry, CODEC_DELAY).unwrap_or(0),
            sample_rate: rate.round() as u32,
            channels,
            tick: 0,
            clusters: 0,
            segment_end: None,
        })
    }
}

/// The codec of a track by its id.
fn coding_of(id: &[u8], bit_depth: Option<u64>) -> Result<TrackCoding> {
    let id = id.split(|&byte| byte == 0).next().unwrap_or_default();
    let bits = || {
        let bits = bit_depth.ok_or_else(|| corrupt("the Matroska track of PCM has no BitDepth"))?;
        u16::try_from(bits)
            .map_err(|_| corrupt(format!("the Matroska track declares samples of {bits} bits")))
    };
    let ints = |endian| match bits()? {
        // As in WAV, and by the specification.
        8 => Ok(Coding::Unsigned8),
        bits => int_coding(bits, usize::from(bits.div_ceil(8)), endian),
    };
    Ok(match id {
        b"A_OPUS" => TrackCoding::File(Codec::Opus),
        b"A_VORBIS" => TrackCoding::File(Codec::Vorbis),
        b"A_FLAC" => TrackCoding::File(Codec::Flac),
        b"A_AAC" => TrackCoding::Packets(Codec::Aac),
        b"A_ALAC" => TrackCoding::Packets(Codec::Alac),
        b"A_MPEG/L1" | b"A_MPEG/L2" | b"A_MPEG/L3" => TrackCoding::Mpeg,
        b"A_PCM/INT/LIT" => TrackCoding::Pcm(ints(Endian::Little)?),
        b"A_PCM/INT/BIG" => TrackCoding::Pcm(ints(Endian::Big)?),
        b"A_PCM/FLOAT/IEEE" => TrackCoding::Pcm(float_coding(bits()?, Endian::Little)?),
        other => return Err(refused(other)),
    })
}

/// The error for a codec that is not decoded.
fn refused(id: &[u8]) -> Error {
    let names: [(&[u8], &str); 11] = [
        (b"A_AC3", "AC-3"),
        (b"A_EAC3", "E-AC-3"),
        (b"A_DTS", "DTS"),
        (b"A_TRUEHD", "TrueHD"),
        (b"A_MLP", "MLP"),
        (b"A_AAC", "AAC of an old kind"),
        (b"A_TTA1", "True Audio"),
        (b"A_WAVPACK4", "WavPack"),
        (b"A_REAL", "RealAudio"),
        (b"A_ATRAC", "ATRAC"),
        (b"A_MS/ACM", "a codec of WAV"),
    ];
    let name = names.iter().find(|(start, _)| id.starts_with(start)).map_or("a codec", |(_, name)| *name);
    unsupported(format!(
        "{name} (`{}`) in Matroska; Opus, Vorbis, FLAC, AAC-LC, ALAC, MPEG audio and PCM are decoded there: convert it \
         with `ffmpeg -i in.mka out.flac`",
        id.escape_ascii()
    ))
}
