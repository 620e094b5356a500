//! Opens WebM and Matroska: Opus, Vorbis, FLAC, AAC, ALAC, MPEG audio and PCM of one audio track.
//!
//! The file is scanned once, block by block, of a file on disk in pieces: blocks say when they begin by a
//! clock of milliseconds, so only all packets up to a sample give its number. Clusters and segments of
//! unknown size, which live recorders write, need no other treatment. `Cues` are not used. Packets are
//! decoded by the code of their codecs' own formats ([`codec_file`]): the same packets in Ogg or FLAC give
//! the same samples.
//!
//! Packets follow each other without gaps, as in players: a gap in the times of blocks is noted and changes
//! no sample. `CodecDelay` (of Opus, the pre-skip of its header) cuts the start, and `DiscardPadding` the
//! end of its block.
//!
//! symphonia's demuxer is not used, for the reasons in the crate's page: it seeks by the blocks' times, and
//! reads a file again for each span.
//!
//! Source: RFC 9559; RFC 8794; Matroska Codec Specifications.

mod codec_file;
mod ebml;
mod track;
mod walk;

use std::ops::Range;

use bytes::Bytes;

use super::Format;
use crate::{
    Claims, Codec, DecoderCache, Error, ErrorKind, Info, Planes, Repairs, Result,
    decoder_cache::PooledVec,
    demux::{DecoderSetup, PacketPools},
    fallible_alloc,
    field::{Endian, u32_at},
    formats::{AnyIndex, Opened, flac::NativeFlac, mpeg::MpegIndex, opus::OggOpus, vorbis::OggVorbis},
    index::{Index, SpanWindow},
    index_file::{Parser, Writer},
    joined::{self, CodecBytes},
    packet::{Edit, Packet},
    packet_index::{MAX_PACKETS, PacketIndex, PacketTable},
    pcm::PcmFormat,
    read_at::RangeReader,
    unsupported,
};
use codec_file::{CodecFile, CodecFileParts, samples_of};
use track::{AudioTrack, TrackCoding};
use walk::{BlockWalk, MatroskaBytes, TrackBlock};

const MAGIC: [u8; 4] = walk::EBML.to_be_bytes();
/// Bytes between packets that lie one after the other: the head of a simple block of up to 16 KB.
const GAP: u32 = 7;
/// The samples of a packet of AAC.
const AAC_PACKET: u64 = 1024;
/// The most seconds by which times of blocks may differ from the samples before them, without a notice.
const SLACK: f64 = 0.5;

/// EBML of the types `webm` and `matroska`.
#[derive(Debug)]
pub(crate) struct Matroska;

impl Format for Matroska {
    fn name(&self) -> &'static str {
        "matroska"
    }

    fn detect(&self, head: &[u8]) -> Result<bool> {
        Ok(head.starts_with(&MAGIC))
    }

    fn has_tracks(&self) -> bool {
        true
    }

    /// Scans all blocks. None for MPEG audio in a file, whose frames are joined before they are decoded.
    fn open<'a>(&self, cache: &mut DecoderCache, reader: &mut RangeReader<'a>) -> Result<Option<Opened<'a>>> {
        reader.clear_cache();
        let number = reader.track;
        let mut source = MatroskaBytes::new(reader);
        let track = AudioTrack::open(&mut source, number)?;
        if let TrackCoding::Packets(codec) = track.coding {
            let packets = cache.pools::<PacketPools>().packets.take();
            let Some((table, claims)) = packets_of(&mut source, &track, codec, packets)? else {
                return Ok(None);
            };
            return Ok(table.open(cache, reader)?.map(|index| {
                let info = index.info();
                let index: Box<dyn Index> =
                    Box::new(MatroskaIndex { file: None, index: index.into(), claims });
                Opened::new(info, index)
            }));
        }
        let codec = match &track.coding {
            TrackCoding::File(codec) | TrackCoding::Packets(codec) => *codec,
            TrackCoding::Pcm(_) => Codec::Pcm,
            TrackCoding::Mpeg => Codec::Mp3,
        };
        let mut file = CodecFile::new(codec, track.number, &track.private)?;
        let scan = BlockScan::run(&mut source, &track, &mut file)?;
        if file.size() == 0 || scan.n_blocks == 0 {
            return Err(Error::new(ErrorKind::Empty, "the Matroska track has no blocks"));
        }
        let claims = scan.claims(&track, Some(&file));
        let Some(bytes) = reader.memory() else {
            let parts = CodecFileParts { file: &file, reader };
            let mut made = RangeReader::new(&parts, reader.sizes);
            made.is_one_stream = true;
            let opened = inner(cache, &track, codec, &mut made, &scan)?;
            return Ok(opened.map(|Opened { info, index, .. }| {
                let index: Box<dyn Index> = Box::new(MatroskaIndex { file: Some(file), index, claims });
                Opened::new(info, index)
            }));
        };
        let mut made = joined::pooled_bytes(cache);
        file.write_all(bytes, &mut made)?;
        let opened = inner(cache, &track, codec, &mut RangeReader::of_memory(&made), &scan)?;
        Ok(opened.map(|Opened { info, index, .. }| {
            let index: Box<dyn Index> = Box::new(MatroskaIndex { file: None, index, claims });
            Opened { bytes: Some(CodecBytes::Joined(made)), ..Opened::new(info, index) }
        }))
    }

    fn read_index(&self, from: &mut Parser<'_>, size: u64, info: Info) -> Option<AnyIndex> {
        if matches!(info.codec, Codec::Aac | Codec::Alac) {
            return PacketIndex::read(from, size, info).map(AnyIndex::Packets);
        }
        let file = CodecFile::read(from, size, info.codec)?;
        let made = file.size();
        let index = match info.codec {
            Codec::Opus => OggOpus.read_index(from, made, info)?,
            Codec::Vorbis => OggVorbis.read_index(from, made, info)?,
            Codec::Flac => NativeFlac.read_index(from, made, info)?,
            Codec::Pcm => AnyIndex::Pcm(PcmFormat::read(from, made, info)?),
            _ => return None,
        };
        let index: Box<dyn Index> =
            Box::new(MatroskaIndex { file: Some(file), index, claims: Claims::default() });
        Some(AnyIndex::Boxed(index))
    }
}

/// Opens the codec's file; None if it cannot be opened by ranges.
fn inner<'a>(
    cache: &mut DecoderCache,
    track: &AudioTrack,
    codec: Codec,
    made: &mut RangeReader<'_>,
    scan: &BlockScan,
) -> Result<Option<Opened<'a>>> {
    let opened = match (codec, &track.coding) {
        (_, TrackCoding::Pcm(coding)) => {
            let shape =
                PcmFormat::new(0..made.size(), coding.clone(), track.sample_rate, track.channels, None)?;
            Ok(Some(shape.into()))
        }
        (Codec::Opus, _) => OggOpus.open(cache, made).map(detached),
        (Codec::Vorbis, _) => OggVorbis.open(cache, made).map(detached),
        (Codec::Flac, _) => NativeFlac.open(cache, made).map(detached),
        _ => {
            let Some(frames) = made.memory() else { return Ok(None) };
            let mut mpeg = MpegIndex::of_memory(cache, frames)?;
            let Info { sample_rate, n_samples, .. } = mpeg.info();
            let delay = samples_of(track.delay, sample_rate) as u64;
            let discard = samples_of(scan.discard, sample_rate) as u64;
            mpeg.edit(delay, n_samples.saturating_sub(delay).saturating_sub(discard));
            Ok(Some(Opened::new(mpeg.info(), mpeg)))
        }
    };
    // Bytes of the codec's file are none of the recording's.
    opened.map_err(without_byte)
}

/// What is kept of a codec's file: it has no bytes of its own.
fn detached<'a>(opened: Option<Opened<'_>>) -> Option<Opened<'a>> {
    opened.map(|Opened { info, index, .. }| Opened::new(info, index))
}

fn without_byte(mut error: Error) -> Error {
    error.place.byte = None;
    error
}

/// What a scan of all blocks found.
#[derive(Debug, Default)]
struct BlockScan {
    n_blocks: u64,
    /// Nanoseconds that are not played at the end of the last block.
    discard: u64,
    /// Times of the first and the last block, and the samples before the latter.
    ticks: Range<i64>,
    samples: i64,
    /// The byte at which an element is cut by the end of the file.
    cut: Option<u64>,
    has_more: bool,
}

impl BlockScan {
    fn run(source: &mut MatroskaBytes<'_, '_>, track: &AudioTrack, file: &mut CodecFile) -> Result<Self> {
        let mut walk = BlockWalk::new(track.clusters, track.number, track.segment_end);
        let (mut this, mut block, mut granule) = (Self::default(), TrackBlock::default(), 0);
        while walk.next(source, &mut block)? {
            if this.n_blocks == 0 {
                this.ticks.start = block.ticks;
            }
            this.ticks.end = block.ticks;
            this.samples = granule;
            file.push(source, &block)?;
            granule = file.granule();
            (this.n_blocks, this.discard) = (this.n_blocks + 1, block.discard);
        }
        (this.cut, this.has_more) = (walk.cut, walk.has_more);
        Ok(this)
    }

    fn claims(&self, track: &AudioTrack, file: Option<&CodecFile>) -> Claims {
        let mut claims = Claims::default();
        if let Some(at) = self.cut {
            claims.cut_short = Some(format!("the file ends within the Matroska element at byte {at}"));
        }
        if let Some(rate) = file.and_then(CodecFile::sample_rate) {
            let ticks = self.ticks.end.saturating_sub(self.ticks.start);
            let declared = ticks as f64 * track.tick as f64 * 1e-9;
            let found = self.samples as f64 / f64::from(rate);
            if (declared - found).abs() > SLACK {
                claims.notices.push(format!(
                    "the times of the blocks span {declared:.2} s, the packets before the last one have {found:.2} s"
                ));
            }
        }
        if self.has_more {
            claims.notices.push("bytes follow the Matroska segment; they are left out".into());
        }
        claims
    }
}

/// Lists the packets of AAC and ALAC; None if a file has too many to keep.
fn packets_of(
    source: &mut MatroskaBytes<'_, '_>,
    track: &AudioTrack,
    codec: Codec,
    mut packets: PooledVec<Packet>,
) -> Result<Option<(PacketTable, Claims)>> {
    let is_memory = matches!(source, MatroskaBytes::Slice { .. });
    if track.private.is_empty() {
        return Err(unsupported(format!(
            "{codec} in Matroska without the setup of its decoder; convert it with `ffmpeg -i in.mka out.flac`"
        )));
    }
    let setup = DecoderSetup::checked(codec, &track.private)?;
    let dur = match codec {
        Codec::Alac => u32_at(&track.private, 0, Endian::Big).unwrap_or(0),
        _ => AAC_PACKET as u32,
    };
    let mut walk = BlockWalk::new(track.clusters, track.number, track.segment_end);
    let (mut block, mut discard) = (TrackBlock::default(), 0);
    while walk.next(source, &mut block)? {
        discard = block.discard;
        let mut at = block.data.start;
        for &len in &block.lens {
            fallible_alloc::push(&mut packets, Packet { at: at as usize, len, dur })?;
            at += u64::from(len);
        }
        if !is_memory && packets.len() > MAX_PACKETS {
            return Ok(None);
        }
    }
    let delay = samples_of(track.delay, track.sample_rate) as u64;
    let discard = samples_of(discard, track.sample_rate) as u64;
    // ALAC packets say how long they are.
    let length = (codec == Codec::Aac && discard > 0)
        .then(|| (AAC_PACKET * packets.len() as u64).saturating_sub(delay).saturating_sub(discard));
    let edit = Edit { delay, length, rounded_by: 0, timescale: None };
    let scan = BlockScan { cut: walk.cut, has_more: walk.has_more, ..BlockScan::default() };
    Ok(Some((PacketTable { setup, packets, gap: GAP, timescale: None, edit }, scan.claims(track, None))))
}

/// A codec's index over the file that is made of a track, or over the packets in place.
#[derive(Debug)]
struct MatroskaIndex {
    /// None for packets in place, and in memory, where the codec's file is there as a whole.
    file: Option<CodecFile>,
    index: AnyIndex,
    claims: Claims,
}

impl Index for MatroskaIndex {
    fn read_window(
        &self,
        cache: &mut DecoderCache,
        reader: &RangeReader<'_>,
        span: &Range<u64>,
    ) -> Result<SpanWindow<Bytes>> {
        let Some(file) = &self.file else { return self.index.read_window(cache, reader, span) };
        let parts = CodecFileParts { file, reader };
        let mut made = RangeReader::new(&parts, reader.sizes);
        made.is_one_stream = true;
        self.index.read_window(cache, &made, span).map_err(without_byte)
    }

    fn decode(
        &self,
        cache: &mut DecoderCache,
        window: &SpanWindow<&[u8]>,
        span: Range<u64>,
        out: &mut Planes,
    ) -> Result<()> {
        let decoded = self.index.decode(cache, window, span, out);
        if matches!(self.index, AnyIndex::Packets(_)) {
            return decoded;
        }
        cache.losses.forget_byte();
        decoded.map_err(without_byte)
    }

    fn bytes_held(&self) -> usize {
        size_of::<Self>() + self.file.as_ref().map_or(0, CodecFile::bytes_held) + self.index.bytes_held()
    }

    fn write(&self, to: &mut Writer) {
        if let Some(file) = &self.file {
            file.write(to);
        }
        self.index.write(to);
    }

    fn add_claims(&self, info: Info, claims: &mut Claims) {
        self.index.add_claims(info, claims);
        let Claims { cut_short, notices, .. } = &self.claims;
        if cut_short.is_some() {
            claims.cut_short.clone_from(cut_short);
        }
        claims.notices.extend_from_slice(notices);
    }

    fn repairs(&self, bytes: &[u8]) -> Repairs {
        self.index.repairs(bytes)
    }
}
