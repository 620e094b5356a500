//! The formats of recordings, a file or folder each, and the table of them.
//!
//! A format says how it is recognised, opens a recording into an [`Index`], and reads an index back from its
//! file. Containers of samples at known places open into a [`PcmFormat`], containers of packets for symphonia
//! into a [`PacketIndex`]; a codec that is decoded here brings an index of its own.
//!
//! A new format is one file here, its `mod` line, and its line in [`FORMATS`].
//!
//! Source: own.

pub(crate) mod adts;
pub(crate) mod aiff;
pub(crate) mod au;
pub(crate) mod caf;
pub(crate) mod flac;
pub(crate) mod matroska;
pub(crate) mod mp4;
pub(crate) mod mpeg;
pub(crate) mod ogg_flac;
pub(crate) mod opus;
pub(crate) mod sphere;
pub(crate) mod vorbis;
pub(crate) mod wav;
pub(crate) mod wave64;

use std::{fmt::Debug, ops::Deref};

use crate::{
    DecoderCache, Error, Info, Places, Result, index::Index, index_file::Parser, joined::CodecBytes,
    packet_index::PacketIndex, pcm::PcmFormat, read_at::RangeReader, unsupported,
};
use flac::FlacIndex;
use mpeg::MpegIndex;
use vorbis::VorbisIndex;

/// The formats that are decoded, in the order in which they are tried.
pub(crate) static FORMATS: &[&dyn Format] = &[
    &flac::NativeFlac,
    &wav::Wav,
    &wave64::Wave64,
    &aiff::Aiff,
    &au::Au,
    &sphere::Sphere,
    &caf::Caf,
    &ogg_flac::OggFlac,
    &vorbis::OggVorbis,
    &opus::OggOpus,
    &mp4::Mp4,
    &matroska::Matroska,
    &adts::Adts,
    &mpeg::MpegAudio,
];

pub(crate) trait Format: Debug + Sync {
    /// Its name, by which index files refer to it.
    fn name(&self) -> &'static str;

    /// Whether a recording that begins with `head` has this format, by a magic number.
    ///
    /// # Errors
    /// `Corrupt` or `Unsupported` if the head is of this family of formats, but cut short or another one.
    fn detect(&self, _head: &[u8]) -> Result<bool> {
        Ok(false)
    }

    /// How its first frame is found after junk, if it has frames.
    fn frames(&self) -> Option<FrameSync> {
        None
    }

    /// The first bytes of its first packet and the name of the codec, if it is one in Ogg.
    fn ogg_codec(&self) -> Option<(&'static [u8], &'static str)> {
        None
    }

    /// Whether it is opened with the tags and the junk before it, and finds its start. Others begin at byte 0
    /// of what they are opened from.
    fn finds_start(&self) -> bool {
        false
    }

    /// How the bytes of a span are found.
    fn places(&self) -> Places {
        Places::Searched
    }

    /// Whether a file may have several audio tracks, of which `open` takes [`RangeReader::track`].
    fn has_tracks(&self) -> bool {
        false
    }

    /// Opens a recording; None if it cannot be opened by ranges, and is read whole. In memory it can.
    ///
    /// # Errors
    /// As [`AudioDecoder::open`](crate::AudioDecoder::open), and errors of the reads.
    fn open<'a>(&self, cache: &mut DecoderCache, reader: &mut RangeReader<'a>) -> Result<Option<Opened<'a>>>;

    /// Reads what [`Index::write`] wrote of a recording of `size` bytes; None if it contradicts itself.
    fn read_index(&self, from: &mut Parser<'_>, size: u64, info: Info) -> Option<AnyIndex>;
}

/// An index, and what decoding needs beside the file's bytes.
#[derive(Debug)]
pub(crate) struct Opened<'a> {
    pub(crate) info: Info,
    pub(crate) index: AnyIndex,
    /// The bytes to decode, if they are joined from pieces of the file. Only in memory.
    pub(crate) bytes: Option<CodecBytes<'a>>,
}

impl From<PcmFormat> for Opened<'_> {
    fn from(shape: PcmFormat) -> Self {
        Self::new(shape.info, shape)
    }
}

impl From<PacketIndex> for Opened<'_> {
    fn from(index: PacketIndex) -> Self {
        Self::new(index.info(), index)
    }
}

impl Opened<'_> {
    pub(crate) fn new(info: Info, index: impl Into<AnyIndex>) -> Self {
        Self { info, index: index.into(), bytes: None }
    }
}

/// An index of any format. The families below are stored without a box, which would be an allocation for each
/// record that is opened in memory (`tests/allocation.rs`). All others are [`AnyIndex::Boxed`].
#[derive(Debug)]
pub(crate) enum AnyIndex {
    Pcm(PcmFormat),
    Flac(FlacIndex),
    Vorbis(VorbisIndex),
    Mpeg(MpegIndex),
    Packets(PacketIndex),
    Boxed(Box<dyn Index>),
}

impl Deref for AnyIndex {
    type Target = dyn Index;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Pcm(index) => index,
            Self::Flac(index) => index,
            Self::Vorbis(index) => index,
            Self::Mpeg(index) => index,
            Self::Packets(index) => index,
            Self::Boxed(index) => &**index,
        }
    }
}

macro_rules! into_any_index {
    ($($family:ident: $index:ty),*) => {
        $(impl From<$index> for AnyIndex {
            fn from(index: $index) -> Self {
                Self::$family(index)
            }
        })*
    };
}

into_any_index!(
    Pcm: PcmFormat,
    Flac: FlacIndex,
    Vorbis: VorbisIndex,
    Mpeg: MpegIndex,
    Packets: PacketIndex,
    Boxed: Box<dyn Index>
);

/// Checks that a format may have the track of this number.
///
/// # Errors
/// `Unsupported` for one beyond the first in a format of one track.
pub(crate) fn check_track(format: &dyn Format, track: Option<u32>) -> Result<()> {
    match track.filter(|&track| track > 0 && !format.has_tracks()) {
        None => Ok(()),
        Some(track) => Err(no_track(track, format.name(), 1)),
    }
}

/// The error for a track that a file of `n` audio tracks does not have.
pub(crate) fn no_track(track: u32, format: &str, n: usize) -> Error {
    let there = match n {
        1 => "the one audio track has number 0".to_owned(),
        _ => format!("the {n} audio tracks have the numbers 0 to {}", n.saturating_sub(1)),
    };
    unsupported(format!("track is {track}, and the recording ({format}) has no such track: {there}"))
}

/// How a frame is recognised.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FrameSync {
    pub(crate) byte: u8,
    /// Whether frames follow each other from the start of these bytes on, which may be the start of the file.
    pub(crate) is_frame: fn(&[u8], bool) -> bool,
}

pub(crate) fn of_name(name: &[u8]) -> Option<&'static dyn Format> {
    FORMATS.iter().copied().find(|format| format.name().as_bytes() == name)
}

/// Whether frames with the same fixed bits follow each other: three of them, at the start of the bytes two;
/// fewer up to the end of the bytes.
pub(crate) fn follows(bytes: &[u8], frame: fn(&[u8]) -> Option<(usize, u32)>, is_start: bool) -> bool {
    let (mut at, mut kind) = (0, None);
    for i in 0..4 {
        match frame(&bytes[at..]) {
            Some((len, this)) if kind.is_none_or(|kind| kind == this) => {
                kind = Some(this);
                at += len;
                if at >= bytes.len() {
                    return is_start || i >= 1;
                }
            }
            // One frame and a tag are a complete, if short, recording.
            _ if is_start && i == 1 => {
                return [&b"TAG"[..], b"APETAGEX"].iter().any(|tag| bytes[at..].starts_with(tag));
            }
            _ => return i >= if is_start { 2 } else { 3 },
        }
    }
    true
}
