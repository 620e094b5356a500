//! Opens MP4, M4A and MOV by the codec of their sound track.
//!
//! AAC and ALAC are decoded from their packets in place. Of other codecs the pieces of the track are joined,
//! which copies nothing if they are one piece, and opened as in a file of their own. The edit list trims all
//! of them.
//!
//! Source: as [`super::mp4`].

use std::ops::Range;

use crate::{
    DecoderCache, Error, ErrorKind, Recording, Result,
    demux::{self, PacketRecording},
    formats::{
        flac::Flac,
        mp4::{Coded, Edit, Track},
        mpeg::Mpeg,
    },
    joined::join,
    unsupported,
};

/// Opens MP4, M4A and MOV.
///
/// # Errors
/// As [`Track::open`], and errors of the codec.
pub(crate) fn open<'a>(cache: &mut DecoderCache, bytes: &'a [u8]) -> Result<Recording<'a>> {
    let mut packets = cache.pools::<demux::PacketPools>().packets.take();
    let Track { coded, timescale, edit } = Track::open(&bytes, &mut packets)?;
    if let Coded::Packets { codec, setup } = coded {
        return PacketRecording::from_track(cache, bytes, (codec, setup), packets, timescale, edit)
            .map(Recording::PacketRecording);
    }
    if packets.is_empty() {
        return Err(Error::new(ErrorKind::Empty, "the audio track has no packets"));
    }
    let pieces: Vec<Range<usize>> =
        packets.iter().map(|packet| packet.at..packet.at + packet.len as usize).collect();
    Ok(match coded {
        Coded::Linear(linear) => {
            // One piece is read in place, also where only ranges of the file are read.
            match linear.shape(&packets, edit)? {
                Some(shape) => Recording::Pcm(shape.of(bytes)),
                None => {
                    let data = join(cache, bytes, &[], &pieces)?;
                    Recording::Pcm(linear.cut(0..data.len() as u64, edit)?.with(data))
                }
            }
        }
        Coded::Flac { info } => {
            let last = [0x80, info[1], info[2], info[3]];
            let head = [&crate::signatures::FLAC[..], &last, &info[4..]].concat();
            let native = join(cache, bytes, &head, &pieces)?;
            let mut flac = Flac::open(cache, native)?;
            let (delay, length) = scaled(edit, flac.info().sample_rate);
            if delay > 0 {
                let message = format!(
                    "FLAC in MP4 whose edit list begins at sample {delay}; encode it again, so that it begins at 0"
                );
                return Err(unsupported(message));
            }
            flac.limit(length);
            Recording::Flac(flac)
        }
        Coded::Mpeg | Coded::Packets { .. } => {
            let frames = join(cache, bytes, &[], &pieces)?;
            let mut mpeg = Mpeg::open(cache, frames)?;
            let (delay, length) = scaled(edit, mpeg.info().sample_rate);
            mpeg.edit(delay, length);
            Recording::Mpeg(mpeg)
        }
    })
}

/// Samples before an edit's first, and samples of the edit, at a rate.
fn scaled(edit: Edit, sample_rate: u32) -> (u64, u64) {
    let scale = |ticks: u64| {
        let timescale = edit.timescale.unwrap_or(sample_rate);
        u64::try_from(u128::from(ticks) * u128::from(sample_rate) / u128::from(timescale)).unwrap_or(u64::MAX)
    };
    (scale(edit.delay), edit.length.map_or(u64::MAX, |length| scale(length).max(1)))
}
