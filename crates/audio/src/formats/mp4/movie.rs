//! Opens MP4, M4A and MOV by the codec of their sound track.
//!
//! AAC and ALAC are decoded from their packets in place. Of other codecs the pieces of the track are joined,
//! which copies nothing if they are one piece, and opened as in a file of their own. The edit list trims all
//! of them.
//!
//! Source: as [`super`].

use std::ops::Range;

use super::{Coded, Linear, Track, description::STREAMINFO};
use crate::{
    Codec, DecoderCache, Error, ErrorKind, Info, Places, Result,
    demux::{DecoderSetup, PacketPools},
    formats::{AnyIndex, Format, Opened, flac::FlacIndex, mpeg::MpegIndex},
    index_file::Parser,
    joined::join,
    packet::Edit,
    packet_index::{PacketIndex, PacketTable},
    pcm::PcmFormat,
    read_at::RangeReader,
    unsupported,
};

/// ISO base media: MP4, M4A, MOV.
#[derive(Debug)]
pub(crate) struct Mp4;

/// How a track's samples are coded, without the bytes of its boxes.
enum Codes {
    Packets(Result<DecoderSetup>),
    /// With the block of STREAMINFO.
    Flac([u8; STREAMINFO]),
    Mpeg,
    Linear(Linear),
}

impl Format for Mp4 {
    fn name(&self) -> &'static str {
        "mp4"
    }

    fn detect(&self, head: &[u8]) -> Result<bool> {
        Ok(matches!(head.get(4..8), Some(b"ftyp" | b"moov" | b"mdat" | b"wide" | b"skip" | b"free")))
    }

    fn has_tracks(&self) -> bool {
        true
    }

    /// Opens a sound track, by default the first; None if its pieces are joined before they are decoded, in a
    /// file.
    fn places(&self) -> Places {
        Places::Counted
    }

    fn open<'a>(&self, cache: &mut DecoderCache, reader: &mut RangeReader<'a>) -> Result<Option<Opened<'a>>> {
        let mut packets = cache.pools::<PacketPools>().packets.take();
        let track = reader.track;
        let found = reader.parse(|file| {
            packets.clear();
            let Track { coded, timescale, edit } = Track::open(file, track, &mut packets)?;
            let codes = match coded {
                Coded::Packets { codec, setup } => Codes::Packets(DecoderSetup::checked(codec, setup)),
                Coded::Flac { info } => Codes::Flac(*info),
                Coded::Mpeg => Codes::Mpeg,
                Coded::Linear(linear) => Codes::Linear(linear),
            };
            Ok((codes, timescale, edit))
        })?;
        let Some((codes, timescale, edit)) = found else { return Ok(None) };
        if let Codes::Packets(setup) = codes {
            let timescale = Some(timescale);
            let table = PacketTable { setup: setup?, packets, gap: 0, timescale, edit };
            return Ok(table.open(cache, reader)?.map(Opened::from));
        }
        if packets.is_empty() {
            return Err(Error::new(ErrorKind::Empty, "the audio track has no packets"));
        }
        if let Codes::Linear(linear) = &codes
            && let Some(shape) = linear.shape(&packets, edit)?
        {
            // One piece is read in place.
            return Ok(Some(shape.into()));
        }
        let Some(bytes) = reader.memory() else { return Ok(None) };
        let pieces: Vec<Range<usize>> =
            packets.iter().map(|packet| packet.at..packet.at + packet.len as usize).collect();
        joined(cache, bytes, &pieces, codes, edit).map(Some)
    }

    fn read_index(&self, from: &mut Parser<'_>, size: u64, info: Info) -> Option<AnyIndex> {
        match info.codec {
            Codec::Aac | Codec::Alac => PacketIndex::read(from, size, info).map(AnyIndex::Packets),
            _ => PcmFormat::read(from, size, info).map(AnyIndex::Pcm),
        }
    }
}

/// Opens a codec whose pieces are joined first.
fn joined<'a>(
    cache: &mut DecoderCache,
    bytes: &'a [u8],
    pieces: &[Range<usize>],
    codes: Codes,
    edit: Edit,
) -> Result<Opened<'a>> {
    let whole = || unsupported("the track cannot be opened");
    let (opened, bytes) = match codes {
        Codes::Linear(linear) => {
            let data = join(cache, bytes, &[], pieces)?;
            (linear.cut(0..data.len() as u64, edit)?.into(), data)
        }
        Codes::Flac(info) => {
            let last = [0x80, info[1], info[2], info[3]];
            let head = [&crate::signatures::FLAC[..], &last, &info[4..]].concat();
            let native = join(cache, bytes, &head, pieces)?;
            let mut flac = FlacIndex::open(cache, &mut RangeReader::of_memory(&native))?.ok_or_else(whole)?;
            let (delay, length) = scaled(edit, flac.info().sample_rate);
            if delay > 0 {
                let message = format!(
                    "FLAC in MP4 whose edit list begins at sample {delay}; encode it again, so that it begins at 0"
                );
                return Err(unsupported(message));
            }
            flac.limit(length);
            (Opened::new(flac.info(), flac), native)
        }
        Codes::Mpeg | Codes::Packets(_) => {
            let frames = join(cache, bytes, &[], pieces)?;
            let mut mpeg = MpegIndex::of_memory(cache, &frames)?;
            let (delay, length) = scaled(edit, mpeg.info().sample_rate);
            mpeg.edit(delay, length);
            (Opened::new(mpeg.info(), mpeg), frames)
        }
    };
    Ok(Opened { bytes: Some(bytes), ..opened })
}

/// Samples before an edit's first, and samples of the edit, at a rate.
fn scaled(edit: Edit, sample_rate: u32) -> (u64, u64) {
    let scale = |ticks: u64| {
        let timescale = edit.timescale.unwrap_or(sample_rate);
        u64::try_from(u128::from(ticks) * u128::from(sample_rate) / u128::from(timescale)).unwrap_or(u64::MAX)
    };
    (scale(edit.delay), edit.length.map_or(u64::MAX, |length| scale(length).max(1)))
}
