//! Opens AAC in ADTS: frames with their own headers, after tags and junk.
//!
//! Source: ISO/IEC 13818-7, section 6.2.

use super::{Format, FrameSync, follows};
use crate::{
    Codec, DecoderCache, Info, Places, Result,
    aac::AdtsWalk,
    demux::{DecoderSetup, PacketPools},
    formats::{AnyIndex, Opened},
    index_file::Parser,
    packet::Edit,
    packet_index::{MAX_PACKETS, PacketIndex, PacketTable},
    read_at::RangeReader,
};

#[derive(Debug)]
pub(crate) struct Adts;

impl Format for Adts {
    fn name(&self) -> &'static str {
        "adts"
    }

    fn frames(&self) -> Option<FrameSync> {
        Some(FrameSync { byte: 0xff, is_frame: |bytes, is_start| follows(bytes, frame_len, is_start) })
    }

    /// Lists all packets, of a file in pieces.
    fn places(&self) -> Places {
        Places::Counted
    }

    fn open<'a>(&self, cache: &mut DecoderCache, reader: &mut RangeReader<'a>) -> Result<Option<Opened<'a>>> {
        reader.clear_cache();
        let size = reader.size();
        let mut packets = cache.pools::<PacketPools>().packets.take();
        let mut walk = AdtsWalk::default();
        match reader.memory() {
            Some(bytes) => {
                walk.step(bytes, 0, true, &mut packets)?;
            }
            None => loop {
                let base = walk.at as u64;
                // At least the longest frame.
                let end = size.min(base + reader.sizes.piece.max(16 << 10));
                let bytes = reader.read(base.min(size)..end)?;
                if walk.step(&bytes, base as usize, end == size, &mut packets)? {
                    break;
                }
                if packets.len() > MAX_PACKETS {
                    return Ok(None);
                }
            },
        }
        let (setup, gap) = walk.setup()?;
        let setup = DecoderSetup::checked(Codec::Aac, &setup)?;
        let table = PacketTable { setup, packets, gap, timescale: None, edit: Edit::default() };
        Ok(table.open(cache, reader)?.map(Opened::from))
    }

    fn read_index(&self, from: &mut Parser<'_>, size: u64, info: Info) -> Option<AnyIndex> {
        PacketIndex::read(from, size, info).map(AnyIndex::Packets)
    }
}

/// Length and fixed bits of a frame.
fn frame_len(bytes: &[u8]) -> Option<(usize, u32)> {
    let head = bytes.first_chunk::<7>()?;
    let rate = (head[2] >> 2) & 15;
    if head[0] != 0xff || head[1] & 0xf6 != 0xf0 || rate > 12 {
        return None;
    }
    let len = usize::from(head[3] & 3) << 11 | usize::from(head[4]) << 3 | usize::from(head[5] >> 5);
    (len >= 7).then_some((len, u32::from(head[1]) << 8 | u32::from(head[2] & 0xfc)))
}
