//! AAC and ALAC in packets: the sizes of all packets, in two bytes each, and runs of packets that lie one
//! after the other and have equal lengths.
//!
//! Packets do not say where they end, so their sizes are kept. Recordings with more packets than
//! [`MAX_PACKETS`] (12 hours of AAC at 44.1 kHz), of larger ones, or in more pieces, are read whole.
//!
//! Source: as [`super::super::demux`].

use std::ops::Range;

use bytes::Bytes;

use crate::{
    Codec, DecoderCache, Error, ErrorKind, Info, Planes, Result, aac,
    demux::{AAC_PREROLL, AAC_SBR_SEARCHED, FirstPacket, PacketPools, PacketRecording, Timeline},
    fallible_alloc,
    formats::{
        caf,
        mp4::{Coded, Edit, Track},
    },
    locate::ByteWindow,
    packet::Packet,
    pcm,
    range_index::ReadSizes,
    read_at::RangeReader,
};

/// The most packets that are kept: 4 MiB of sizes.
pub(crate) const MAX_PACKETS: usize = 2 << 20;
pub(crate) const MAX_RUNS: usize = 1 << 15;
/// The most packets of a run, so that a packet is found soon.
const MAX_RUN: usize = 256;
/// The most packets that are read to learn how long they are.
const MAX_OWN_LENGTHS: usize = 64;
/// The most bytes between packets that are read with them.
const MAX_SPREAD: u64 = 64 << 20;

/// What is known of a recording in packets.
#[derive(Debug)]
pub(crate) struct PacketIndex {
    pub(crate) setup: Vec<u8>,
    pub(crate) lens: Vec<u16>,
    pub(crate) runs: Vec<PacketRun>,
    /// Bytes between the packets of a run.
    pub(crate) gap: u32,
    /// Samples before the recording's first.
    pub(crate) delay: u64,
    /// Samples of all packets.
    pub(crate) behind: u64,
}

/// Packets that lie one after the other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PacketRun {
    /// The number of its first packet.
    pub(crate) number: u32,
    /// The place of that packet, and its first sample before the edit.
    pub(crate) at: u64,
    pub(crate) start: u64,
    /// Samples of each packet.
    pub(crate) dur: u32,
}

pub(crate) enum ContainerContent {
    Pcm(pcm::PcmFormat),
    Packets(Info, PacketIndex),
}

/// What a container says of its packets.
struct PacketTable<'a> {
    codec: Codec,
    setup: &'a [u8],
    packets: &'a [Packet],
    gap: u32,
    timescale: Option<u32>,
    edit: Edit,
}

impl PacketIndex {
    /// Opens MP4, M4A and MOV; None if its packets cannot be kept, or are joined before they are decoded.
    pub(crate) fn open_mp4(
        cache: &mut DecoderCache,
        reader: &mut RangeReader<'_>,
    ) -> Result<Option<ContainerContent>> {
        let mut packets = cache.pools::<PacketPools>().packets.take();
        let found = reader.parse_with_reads(|file| {
            packets.clear();
            let Track { coded, timescale, edit } = Track::open(file, &mut packets)?;
            Ok(match coded {
                Coded::Packets { codec, setup } => Some(Ok((codec, setup.to_vec(), timescale, edit))),
                Coded::Linear(linear) => linear.shape(&packets, edit)?.map(Err),
                Coded::Flac { .. } | Coded::Mpeg => None,
            })
        })?;
        let (codec, setup, timescale, edit) = match found.flatten() {
            Some(Ok(track)) => track,
            Some(Err(shape)) => return Ok(Some(ContainerContent::Pcm(shape))),
            None => return Ok(None),
        };
        reader.clear_cache();
        let timescale = Some(timescale);
        let table = PacketTable { codec, setup: &setup, packets: &packets, gap: 0, timescale, edit };
        Ok(Self::new(cache, reader, &table)?.map(|(info, index)| ContainerContent::Packets(info, index)))
    }

    /// Opens CAF; None if its packets cannot be kept.
    pub(crate) fn open_caf(
        cache: &mut DecoderCache,
        reader: &mut RangeReader<'_>,
    ) -> Result<Option<ContainerContent>> {
        let found = reader.parse_with_reads(|file| {
            Ok(match caf::find(cache, file)? {
                caf::CafContent::Pcm(shape) => Err(shape),
                caf::CafContent::Packets(it) => Ok((it.cookie.to_vec(), it.packets, it.delay, it.n_valid)),
            })
        })?;
        let (setup, packets, delay, n_valid) = match found {
            Some(Ok(packets)) => packets,
            Some(Err(shape)) => return Ok(Some(ContainerContent::Pcm(shape))),
            None => return Ok(None),
        };
        reader.clear_cache();
        let edit = Edit { delay, length: Some(n_valid).filter(|&n| n > 0), rounded_by: 0, timescale: None };
        let table = PacketTable {
            codec: Codec::Alac,
            setup: &setup,
            packets: &packets,
            gap: 0,
            timescale: None,
            edit,
        };
        Ok(Self::new(cache, reader, &table)?.map(|(info, index)| ContainerContent::Packets(info, index)))
    }

    /// Opens AAC in ADTS after `start` bytes of tags, by a scan in pieces; None if its packets cannot be
    /// kept.
    pub(crate) fn open_adts(
        cache: &mut DecoderCache,
        reader: &mut RangeReader<'_>,
        sizes: &ReadSizes,
        start: u64,
    ) -> Result<Option<(Info, Self)>> {
        reader.clear_cache();
        let size = reader.size();
        let mut packets = cache.pools::<PacketPools>().packets.take();
        let mut walk = aac::Adts::default();
        walk.at = start as usize;
        loop {
            let base = walk.at as u64;
            // At least the longest frame.
            let end = size.min(base + sizes.piece.max(16 << 10));
            let bytes = reader.read(base.min(size)..end)?;
            if walk.step(&bytes, base as usize, end == size, &mut packets)? {
                break;
            }
            if packets.len() > MAX_PACKETS {
                return Ok(None);
            }
        }
        let (setup, gap) = walk.setup()?;
        let edit = Edit::default();
        let table =
            PacketTable { codec: Codec::Aac, setup: &setup, packets: &packets, gap, timescale: None, edit };
        Self::new(cache, reader, &table)
    }

    fn new(
        cache: &mut DecoderCache,
        reader: &mut RangeReader<'_>,
        table: &PacketTable<'_>,
    ) -> Result<Option<(Info, Self)>> {
        let &PacketTable { codec, setup, packets, gap, timescale, edit } = table;
        if packets.len() > MAX_PACKETS {
            return Ok(None);
        }
        let range_of = |packet: &Packet| packet.at as u64..packet.at as u64 + u64::from(packet.len);
        let mut first_packets = Vec::new();
        let firsts = &packets[..packets.len().min(AAC_SBR_SEARCHED)];
        if let Some((one, rest)) = firsts.split_first() {
            // They usually lie together: one read.
            let nearby = rest
                .iter()
                .map(range_of)
                .fold(range_of(one), |sum, packet| sum.start.min(packet.start)..sum.end.max(packet.end));
            if nearby.end - nearby.start <= 1 << 16 {
                reader.read_cached(nearby)?;
            }
        }
        for packet in firsts {
            first_packets.push(reader.read_cached(range_of(packet))?);
        }
        let slices: Vec<&[u8]> = first_packets.iter().map(|bytes| &bytes[..]).collect();
        let first = FirstPacket::decode_first(cache, codec, setup, &slices)?;
        let mut lens: Vec<u16> = fallible_alloc::with_room(packets.len())?;
        let mut runs: Vec<PacketRun> = Vec::new();
        let mut timeline = Timeline::new(timescale, edit);
        let (mut next, mut n_own_lengths) = (u64::MAX, 0);
        for (i, packet) in packets.iter().enumerate() {
            let is_last = i + 1 == packets.len();
            let head = if first.has_own_length(packet, timescale, is_last) {
                n_own_lengths += 1;
                if n_own_lengths > MAX_OWN_LENGTHS {
                    return Ok(None);
                }
                reader.read(range_of(packet))?
            } else {
                Bytes::new()
            };
            let start = timeline.samples;
            let n = timeline.add(&first, packet, is_last, &head);
            let (Ok(len), Ok(dur)) = (u16::try_from(packet.len), u32::try_from(n)) else { return Ok(None) };
            let at = packet.at as u64;
            let continues =
                runs.last().is_some_and(|run| run.dur == dur && i - (run.number as usize) < MAX_RUN);
            if !continues || at != next {
                fallible_alloc::push(&mut runs, PacketRun { number: i as u32, at, start, dur })?;
                if runs.len() > MAX_RUNS {
                    return Ok(None);
                }
            }
            lens.push(len);
            next = at + u64::from(len) + u64::from(gap);
        }
        let (delay, info) = timeline.edited(&first);
        runs.shrink_to_fit();
        let index = Self { setup: setup.to_vec(), lens, runs, gap, delay, behind: timeline.samples };
        Ok(Some((info, index)).filter(|(_, index)| index.is_valid(reader.size())))
    }

    /// Whether its numbers agree with each other and with a file of `size` bytes.
    pub(crate) fn is_valid(&self, size: u64) -> bool {
        let n = self.lens.len() as u64;
        let is_first = self.runs.first().is_some_and(|run| run.number == 0 && run.start == 0);
        let numbers = self.runs.iter().skip(1).map(|run| u64::from(run.number)).chain([n]);
        let starts = self.runs.iter().skip(1).map(|run| run.start).chain([self.behind]);
        is_first
            && n > 0
            && self.lens.len() <= MAX_PACKETS
            && self.runs.iter().zip(numbers.zip(starts)).all(|(run, (number, start))| {
                let Some(n) =
                    number.checked_sub(run.number.into()).filter(|&n| (1..=MAX_RUN as u64).contains(&n))
                else {
                    return false;
                };
                let lens = &self.lens[run.number as usize..number.min(self.lens.len() as u64) as usize];
                let bytes: u64 = lens.iter().map(|&len| u64::from(len) + u64::from(self.gap)).sum();
                lens.len() as u64 == n
                    && run.start.checked_add(n * u64::from(run.dur)) == Some(start)
                    && run.at.checked_add(bytes).is_some_and(|end| end <= size + u64::from(self.gap))
            })
    }

    pub(crate) fn bytes_held(&self) -> usize {
        self.setup.len() + 2 * self.lens.capacity() + self.runs.capacity() * size_of::<PacketRun>()
    }

    /// The packets with these numbers, and their first samples.
    fn packets(&self, numbers: Range<usize>) -> impl Iterator<Item = (u64, u32, u64)> {
        let run = self.runs.partition_point(|run| run.number as usize <= numbers.start).max(1) - 1;
        let (mut run, mut at, mut start) = (run, 0, 0);
        let begin = self.runs.get(run).map_or(0, |run| run.number as usize);
        let packets = (begin..numbers.end).map(move |number| {
            if let Some(next) = self.runs.get(run).filter(|next| next.number as usize == number) {
                (at, start) = (next.at, next.start);
                run += 1;
            }
            let dur = self.runs[run - 1].dur;
            let len = u32::from(self.lens[number]);
            let packet = (at, len, start);
            at += u64::from(len) + u64::from(self.gap);
            start += u64::from(dur);
            packet
        });
        packets.skip(numbers.start - begin)
    }

    /// The number of the first packet that begins after `sample`.
    fn after(&self, sample: u64) -> usize {
        let run = self.runs.partition_point(|run| run.start <= sample).max(1) - 1;
        let end = self.runs.get(run + 1).map_or(self.lens.len(), |next| next.number as usize);
        let run = &self.runs[run];
        let n = (end - run.number as usize) as u64;
        let past = match run.dur {
            0 => n,
            dur => ((sample - run.start) / u64::from(dur) + 1).min(n),
        };
        run.number as usize + past as usize
    }

    pub(crate) fn read_window(
        &self,
        reader: &RangeReader<'_>,
        span: &Range<u64>,
    ) -> Result<ByteWindow<Range<usize>>> {
        let (start, end) = (span.start + self.delay, span.end + self.delay);
        let first = self.after(start).saturating_sub(1).saturating_sub(AAC_PREROLL);
        // Up to the first packet that begins at the end or later.
        let numbers = first..self.after(end - 1);
        let (mut from, mut to, mut sum) = (u64::MAX, 0, 0);
        for (at, len, _) in self.packets(numbers.clone()) {
            (from, to, sum) = (from.min(at), to.max(at + u64::from(len)), sum + u64::from(len));
        }
        if to.saturating_sub(from) > 4 * sum + MAX_SPREAD {
            let message =
                "the packets of the span are spread over more than 64 MiB; store the recording alone";
            return Err(Error::new(ErrorKind::TooLarge, message));
        }
        Ok(ByteWindow { at: from, bytes: reader.read(from..to)?, content: numbers })
    }

    /// Decodes `span` from a window with these packets.
    #[expect(clippy::too_many_arguments, reason = "the parts of a window")]
    pub(crate) fn read(
        &self,
        cache: &mut DecoderCache,
        bytes: &[u8],
        at: u64,
        numbers: Range<usize>,
        info: Info,
        span: Range<u64>,
        out: &mut Planes,
    ) -> Result<()> {
        let behind = match numbers.end == self.lens.len() {
            true => self.behind,
            false => {
                self.packets(numbers.end..numbers.end + 1).next().map_or(self.behind, |(_, _, start)| start)
            }
        };
        let list = self
            .packets(numbers)
            .map(|(here, len, start)| (Packet { at: (here - at) as usize, len, dur: 0 }, start));
        PacketRecording::window(cache, bytes, info, &self.setup, self.delay, list, behind)?
            .read(cache, span, out)
    }
}
