//! AAC and ALAC in packets: the sizes of all packets, in two bytes each, and runs of packets that lie one
//! after the other and have equal lengths.
//!
//! Packets do not say where they end, so their sizes are kept. Recordings with more packets than
//! [`MAX_PACKETS`] (12 hours of AAC at 44.1 kHz), of larger ones, or in more pieces, are read whole.
//!
//! Source: as [`super::demux`].

use std::{array, ops::Range};

use bytes::Bytes;

use crate::{
    Codec, DecoderCache, Error, ErrorKind, Info, Planes, Result,
    decoder_cache::PooledVec,
    demux::{AAC_PREROLL, AAC_SBR_SEARCHED, DecoderSetup, FirstPacket, PacketPools, Packets, Timeline},
    fallible_alloc,
    index::{Index, SpanWindow},
    index_file::{Parser, Writer},
    packet::{Edit, Packet},
    read_at::{RangeReader, ReadBytes},
};

/// The most packets that are kept: 4 MiB of sizes.
pub(crate) const MAX_PACKETS: usize = 2 << 20;
const MAX_RUNS: usize = 1 << 15;
/// The most packets of a run, so that a packet is found soon.
const MAX_RUN: usize = 256;
/// The most packets that are read to learn how long they are.
const MAX_OWN_LENGTHS: usize = 64;
/// The most bytes between packets that are read with them.
const MAX_SPREAD: u64 = 64 << 20;

/// What is known of a recording in packets.
#[derive(Debug)]
pub(crate) struct PacketIndex {
    info: Info,
    setup: DecoderSetup,
    /// Samples before the recording's first.
    delay: u64,
    list: PacketList,
}

#[derive(Debug)]
enum PacketList {
    /// All packets and their first samples, with one more for the end; in memory.
    All {
        packets: PooledVec<Packet>,
        starts: PooledVec<u64>,
    },
    Runs(PacketRuns),
}

#[derive(Debug)]
struct PacketRuns {
    lens: Vec<u16>,
    runs: Vec<PacketRun>,
    /// Bytes between the packets of a run.
    gap: u32,
    /// Samples of all packets.
    behind: u64,
}

/// Packets that lie one after the other.
#[derive(Debug, Clone, Copy)]
struct PacketRun {
    /// The number of its first packet.
    pub(crate) number: u32,
    /// The place of that packet, and its first sample before the edit.
    pub(crate) at: u64,
    pub(crate) start: u64,
    /// Samples of each packet.
    pub(crate) dur: u32,
}

/// What a container says of its packets.
pub(crate) struct PacketTable {
    pub(crate) setup: DecoderSetup,
    pub(crate) packets: PooledVec<Packet>,
    /// Bytes between packets that lie one after the other.
    pub(crate) gap: u32,
    /// Ticks per second of the packets; None if ticks are samples.
    pub(crate) timescale: Option<u32>,
    pub(crate) edit: Edit,
}

impl PacketTable {
    /// Opens the recording in these packets; None if a file has too many to keep.
    ///
    /// # Errors
    /// Errors of the first packet, and of the reads.
    pub(crate) fn open(
        self,
        cache: &mut DecoderCache,
        reader: &mut RangeReader<'_>,
    ) -> Result<Option<PacketIndex>> {
        let Self { setup, packets, gap, timescale, edit } = self;
        let memory = reader.memory();
        reader.clear_cache();
        if memory.is_none() && packets.len() > MAX_PACKETS {
            return Ok(None);
        }
        let firsts = &packets[..packets.len().min(AAC_SBR_SEARCHED)];
        if let Some((one, rest)) = firsts.split_first()
            && memory.is_none()
        {
            // They usually lie together: one read.
            let nearby = rest
                .iter()
                .map(range_of)
                .fold(range_of(one), |sum, packet| sum.start.min(packet.start)..sum.end.max(packet.end));
            if nearby.end - nearby.start <= 1 << 16 {
                reader.read_cached(nearby)?;
            }
        }
        let mut read: [_; AAC_SBR_SEARCHED] = array::from_fn(|_| ReadBytes::Lent(&[]));
        for (read, packet) in read.iter_mut().zip(firsts) {
            *read = reader.lend(range_of(packet))?;
        }
        let slices: [&[u8]; AAC_SBR_SEARCHED] = array::from_fn(|i| &*read[i]);
        let first = FirstPacket::decode_first(cache, &setup, &slices[..firsts.len()])?;

        let mut timeline = Timeline::new(timescale, edit);
        let (mut starts, mut runs) = (cache.pools::<PacketPools>().starts.take(), RunList::default());
        match memory {
            Some(_) => fallible_alloc::reserve(&mut starts, packets.len() + 1)?,
            None => fallible_alloc::reserve(&mut runs.lens, packets.len())?,
        }
        let mut n_own_lengths = 0;
        for (i, packet) in packets.iter().enumerate() {
            let start = timeline.samples;
            let read = || match memory {
                Some(bytes) => Ok(Some(ReadBytes::Lent(&bytes[packet.at..packet.at + packet.len as usize]))),
                None => {
                    n_own_lengths += 1;
                    let is_few = n_own_lengths <= MAX_OWN_LENGTHS;
                    is_few.then(|| reader.read(range_of(packet)).map(ReadBytes::Read)).transpose()
                }
            };
            let Some(n) = timeline.add(&first, packet, i + 1 == packets.len(), read)? else {
                return Ok(None);
            };
            if memory.is_some() {
                starts.push(start);
            } else if !runs.push(i, packet, gap, start, n)? {
                return Ok(None);
            }
        }
        let (delay, info) = timeline.edited(&first);
        let behind = timeline.samples;
        let list = match memory {
            Some(_) => {
                starts.push(behind);
                PacketList::All { packets, starts }
            }
            None => {
                let RunList { lens, mut runs, .. } = runs;
                runs.shrink_to_fit();
                let runs = PacketRuns { lens, runs, gap, behind };
                if !runs.is_valid(reader.size()) {
                    return Ok(None);
                }
                PacketList::Runs(runs)
            }
        };
        Ok(Some(PacketIndex { info, setup, delay, list }))
    }
}

fn range_of(packet: &Packet) -> Range<u64> {
    packet.at as u64..packet.at as u64 + u64::from(packet.len)
}

#[derive(Default)]
struct RunList {
    lens: Vec<u16>,
    runs: Vec<PacketRun>,
    /// The byte at which the next packet of the last run would begin.
    next: u64,
}

impl RunList {
    /// Adds packet number `i`, which has `n` samples from `start` on; false if it cannot be kept.
    fn push(&mut self, i: usize, packet: &Packet, gap: u32, start: u64, n: u64) -> Result<bool> {
        let (Ok(len), Ok(dur)) = (u16::try_from(packet.len), u32::try_from(n)) else { return Ok(false) };
        let at = packet.at as u64;
        let continues =
            self.runs.last().is_some_and(|run| run.dur == dur && i - (run.number as usize) < MAX_RUN);
        if !continues || at != self.next {
            fallible_alloc::push(&mut self.runs, PacketRun { number: i as u32, at, start, dur })?;
        }
        self.lens.push(len);
        self.next = at + u64::from(len) + u64::from(gap);
        Ok(self.runs.len() <= MAX_RUNS)
    }
}

impl PacketRuns {
    /// Whether its numbers agree with each other and with a file of `size` bytes.
    fn is_valid(&self, size: u64) -> bool {
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

    /// The first sample of packet number `number`, or of the end.
    fn start(&self, number: usize) -> u64 {
        let packet = (number < self.lens.len()).then(|| self.packets(number..number + 1).next()).flatten();
        packet.map_or(self.behind, |(_, _, start)| start)
    }
}

impl PacketIndex {
    pub(crate) fn info(&self) -> Info {
        self.info
    }

    pub(crate) fn read(from: &mut Parser<'_>, size: u64, info: Info) -> Option<Self> {
        if !matches!(info.codec, Codec::Aac | Codec::Alac) {
            return None;
        }
        let len = from.word()? as usize;
        let setup = DecoderSetup::new(info.codec, from.bytes(len)?);
        let gap = from.word().filter(|&gap| gap < 16)?;
        let (delay, behind) = (from.long()?, from.long()?);
        let len = from.word()? as usize;
        let lens = from.bytes(len.checked_mul(2)?)?.as_chunks::<2>().0;
        let lens = lens.iter().map(|&len| u16::from_le_bytes(len)).collect();
        let n = from.word().filter(|&n| n as usize <= MAX_RUNS)?;
        let mut runs: Vec<PacketRun> = Vec::new();
        for _ in 0..n {
            let (number, at) = (from.word()?, from.long()?);
            runs.push(PacketRun { number, at, start: from.long()?, dur: from.word()? });
        }
        let runs = PacketRuns { lens, runs, gap, behind };
        let is_valid = runs.is_valid(size) && delay.checked_add(info.n_samples)? <= behind;
        is_valid.then(|| Self { info, setup, delay, list: PacketList::Runs(runs) })
    }

    fn decode_packets(
        &self,
        cache: &mut DecoderCache,
        bytes: &[u8],
        (packets, starts): (&[Packet], &[u64]),
        span: Range<u64>,
        out: &mut Planes,
    ) -> Result<()> {
        let Self { info, ref setup, delay, .. } = *self;
        Packets { bytes, info, setup, packets, starts, delay }.read(cache, span, out)
    }
}

impl Index for PacketIndex {
    fn read_window(
        &self,
        _: &mut DecoderCache,
        reader: &RangeReader<'_>,
        span: &Range<u64>,
    ) -> Result<SpanWindow<Bytes>> {
        let PacketList::Runs(runs) = &self.list else {
            return Ok(SpanWindow::whole(reader.read(0..reader.size())?));
        };
        let (start, end) = (span.start + self.delay, span.end + self.delay);
        let first = runs.after(start).saturating_sub(1).saturating_sub(AAC_PREROLL);
        // Up to the first packet that begins at the end or later.
        let numbers = first..runs.after(end - 1);
        let (mut from, mut to, mut sum) = (u64::MAX, 0, 0);
        for (at, len, _) in runs.packets(numbers.clone()) {
            (from, to, sum) = (from.min(at), to.max(at + u64::from(len)), sum + u64::from(len));
        }
        if to.saturating_sub(from) > 4 * sum + MAX_SPREAD {
            let message =
                "the packets of the span are spread over more than 64 MiB; store the recording alone";
            return Err(Error::new(ErrorKind::TooLarge, message));
        }
        let units = Some(numbers.start as u64..numbers.end as u64);
        Ok(SpanWindow { at: from, bytes: reader.read(from..to)?, units, start: 0 })
    }

    fn decode(
        &self,
        cache: &mut DecoderCache,
        window: &SpanWindow<&[u8]>,
        span: Range<u64>,
        out: &mut Planes,
    ) -> Result<()> {
        let runs = match &self.list {
            PacketList::All { packets, starts } => {
                return self.decode_packets(cache, window.bytes, (packets, starts), span, out);
            }
            PacketList::Runs(runs) => runs,
        };
        let pools = cache.pools::<PacketPools>();
        let (mut packets, mut starts) = (pools.packets.take(), pools.starts.take());
        let numbers = window
            .units
            .as_ref()
            .map_or(0..runs.lens.len(), |units| units.start as usize..units.end as usize);
        for (here, len, start) in runs.packets(numbers.clone()) {
            fallible_alloc::push(&mut packets, Packet { at: (here - window.at) as usize, len, dur: 0 })?;
            fallible_alloc::push(&mut starts, start)?;
        }
        fallible_alloc::push(&mut starts, runs.start(numbers.end))?;
        self.decode_packets(cache, window.bytes, (&packets, &starts), span, out)
    }

    fn bytes_held(&self) -> usize {
        let list = match &self.list {
            PacketList::All { packets, starts } => {
                packets.capacity() * size_of::<Packet>() + starts.capacity() * size_of::<u64>()
            }
            PacketList::Runs(PacketRuns { lens, runs, .. }) => {
                2 * lens.capacity() + runs.capacity() * size_of::<PacketRun>()
            }
        };
        list + self.setup.bytes().len()
    }

    fn write(&self, to: &mut Writer) {
        // Of a recording in memory no index is written.
        let PacketList::Runs(PacketRuns { lens, runs, gap, behind }) = &self.list else { return };
        to.word(self.setup.bytes().len() as u32);
        to.bytes(self.setup.bytes());
        to.word(*gap);
        to.long(self.delay);
        to.long(*behind);
        to.word(lens.len() as u32);
        lens.iter().for_each(|len| to.bytes(&len.to_le_bytes()));
        to.word(runs.len() as u32);
        for &PacketRun { number, at, start, dur } in runs {
            to.word(number);
            to.long(at);
            to.long(start);
            to.word(dur);
        }
    }
}
