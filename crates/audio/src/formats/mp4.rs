//! Reads MP4, M4A and MOV: the boxes of a file, and codec, edit and packet positions of one sound track,
//! by default the first.
//!
//! Input: the bytes of a file. Output: a [`Track`]. The numbers in tables are only claims. Tables are read
//! entry by entry up to the end of the file's bytes. No packet may be outside the file. All packets together
//! may not have more bytes, nor be more in number, than the file has bytes ([`SampleTables`]). So the walk is
//! linear in the size of the file, for any content. Entries before the first packet outside the file count,
//! as in a file that is cut short.
//!
//! The library's demuxer is not used: it trusts counts of fragments without bytes for each sample, searches
//! lists of times for every packet, and ignores edits.
//!
//! Source: ISO/IEC 14496-12, sections 8.4 to 8.8; ISO/IEC 14496-14 and 14496-1, section 7.2.6 (`esds`);
//! QuickTime File Format (`wave`, versions of sound descriptions). `iTunSMPB` is undocumented: a text of
//! hexadecimal numbers, of which the second, third and fourth are samples before, after, and in the
//! recording.

mod description;
mod movie;

use std::ops::Range;

use crate::{
    Result, corrupt, fallible_alloc,
    field::{Endian, u32_at, u64_at},
    formats::no_track,
    packet::{Edit, Packet},
    read_at::HeaderBytes,
    unsupported,
};
use description::{Coded, Linear};
pub(crate) use movie::Mp4;

/// A sound track of a file.
#[derive(Debug)]
pub(crate) struct Track<'a> {
    pub(crate) coded: Coded<'a>,
    /// Ticks per second of the packets' durations.
    pub(crate) timescale: u32,
    pub(crate) edit: Edit,
}

/// The boxes directly in `bytes`: their start, name and content. Sizes are clipped to the existing bytes.
fn all_boxes(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8], &[u8])> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = bytes.get(at..)?;
        let size = u32_at(rest, 0, Endian::Big)?;
        let name = rest.get(4..8)?;
        let (head, size) = match size {
            0 => (8, rest.len() as u64),
            1 => (16, u64_at(rest, 8, Endian::Big)?),
            size => (8, size.into()),
        };
        let size = usize::try_from(size).unwrap_or(usize::MAX).min(rest.len());
        let body = rest.get(head..size)?;
        at += size;
        Some((at - size, name, body))
    })
}

/// The boxes of a file: their start, name and the place of their content.
fn file_boxes(file: &HeaderBytes<'_>) -> impl Iterator<Item = (u64, [u8; 4], Range<u64>)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let left = file.size().checked_sub(at)?;
        let head = file.get(at, 8)?;
        let (len, size) = match u32_at(head, 0, Endian::Big)? {
            0 => (8, left),
            1 => (16, u64_at(file.get(at, 16)?, 8, Endian::Big)?),
            size => (8, size.into()),
        };
        let (start, size) = (at, size.min(left));
        if size < len {
            return None;
        }
        at += size;
        Some((start, *head[4..].first_chunk()?, start + len..start + size))
    })
}

/// The boxes directly in `bytes` that are named `name`.
fn boxes<'a>(bytes: &'a [u8], name: &'static [u8; 4]) -> impl Iterator<Item = &'a [u8]> {
    all_boxes(bytes).filter(move |(_, this, _)| this == name).map(|(_, _, body)| body)
}

/// The first box at a path of nested boxes in `bytes`.
fn find<'a>(bytes: &'a [u8], path: &[&'static [u8; 4]]) -> Option<&'a [u8]> {
    path.iter().try_fold(bytes, |bytes, name| boxes(bytes, name).next())
}

/// Ticks per second of an `mvhd` or `mdhd` box.
fn timescale(head: &[u8]) -> Option<u32> {
    u32_at(head, if head.first() == Some(&1) { 20 } else { 12 }, Endian::Big).filter(|&scale| scale > 0)
}

/// The entries, of `words` 32-bit numbers each, that a table declares and has bytes for.
fn entries(table: &[u8], words: usize) -> impl Iterator<Item = &[u8]> {
    let n = u32_at(table, 4, Endian::Big).unwrap_or_default();
    table.get(8..).unwrap_or_default().chunks_exact(4 * words).take(n as usize)
}

/// The 32-bit number with index `i`, if the bytes have it.
fn word(bytes: &[u8], i: usize) -> Option<u32> {
    u32_at(bytes, 4 * i, Endian::Big)
}

impl<'a> Track<'a> {
    /// Finds the sound track of this number, or the first, and appends its packets to `packets`; if only
    /// their bytes one after the other matter ([`Coded::is_joined`]), packets that follow one another in the
    /// file are one.
    ///
    /// # Errors
    /// `Corrupt` if boxes are missing or their claims are impossible, `Unsupported` without this sound track
    /// and for codecs not decoded here.
    pub(crate) fn open(
        file: &HeaderBytes<'a>,
        number: Option<u32>,
        packets: &mut Vec<Packet>,
    ) -> Result<Self> {
        let missing =
            |name: &str| corrupt(format!("the MP4 file has no `{name}` box: it is damaged or cut short"));
        let moov = file_boxes(file).find(|(_, name, _)| name == b"moov");
        let moov = moov.and_then(|(_, _, body)| file.get(body.start, body.end - body.start));
        let moov = moov.ok_or_else(|| missing("moov"))?;
        let is_sound = |media: &[u8]| boxes(media, b"hdlr").any(|hdlr| hdlr.get(8..12) == Some(b"soun"));
        let sounds = || {
            boxes(moov, b"trak")
                .filter_map(|track| Some((track, find(track, &[b"mdia"])?)))
                .filter(|(_, media)| is_sound(media))
        };
        let (track, media) = sounds().nth(number.unwrap_or(0) as usize).ok_or_else(|| {
            let is_known = |track| find(track, &[b"mdia", b"hdlr"]).is_some();
            match (sounds().count(), number) {
                (n, Some(number)) if n > 0 => no_track(number, "mp4", n),
                _ if boxes(moov, b"trak").any(is_known) => unsupported("the MP4 file has no sound track"),
                _ => missing("hdlr"),
            }
        })?;
        let timescale = find(media, &[b"mdhd"]).and_then(timescale).ok_or_else(|| missing("mdhd"))?;
        let table = find(media, &[b"minf", b"stbl"]).ok_or_else(|| missing("stbl"))?;
        let coded = Coded::of(find(table, &[b"stsd"]).ok_or_else(|| missing("stsd"))?, timescale)?;

        let linear = match &coded {
            Coded::Linear(linear) => Some(linear.clone()),
            _ => None,
        };
        let is_joined = coded.is_joined();
        let mut claims = SampleTables {
            bytes: file.size() as usize,
            n_packets: 0,
            n_bytes: 0,
            is_joined,
            linear,
            packets,
        };
        if claims.table(table)? == PacketWalk::On
            && let Some(extends) = find(moov, &[b"mvex"])
        {
            claims.fragments(file, extends, track)?;
        }
        let edit = match find(track, &[b"edts", b"elst"]) {
            Some(list) => Edit::from_edit_list(list, moov, timescale),
            None => Edit::from_itunes(moov),
        };
        Ok(Self { coded, timescale, edit: edit.unwrap_or_default() })
    }
}

/// Whether a walk over packets continues; it ends at a missing packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PacketWalk {
    On,
    Ended,
}

/// The packets that tables claim, and the limits of all claims.
struct SampleTables<'p> {
    bytes: usize,
    n_packets: usize,
    n_bytes: usize,
    /// Whether packets that follow one another are one.
    is_joined: bool,
    linear: Option<Linear>,
    packets: &'p mut Vec<Packet>,
}

impl SampleTables<'_> {
    /// Adds a packet of `len` bytes at byte `at` of the file.
    fn push(&mut self, at: u64, len: u32, dur: u32) -> Result<PacketWalk> {
        self.n_packets += 1;
        self.n_bytes = self.n_bytes.saturating_add(len as usize);
        if self.n_packets > self.bytes || self.n_bytes > self.bytes {
            return Err(corrupt("the sample tables claim more packets than the file has bytes for"));
        }
        let Some(at) = usize::try_from(at)
            .ok()
            .filter(|&at| at.checked_add(len as usize).is_some_and(|end| end <= self.bytes))
        else {
            return Ok(PacketWalk::Ended);
        };
        if self.is_joined
            && let Some(last) = self.packets.last_mut().filter(|last| last.at + last.len as usize == at)
            && let Some(joined) = last.len.checked_add(len)
        {
            last.len = joined;
            return Ok(PacketWalk::On);
        }
        fallible_alloc::push(self.packets, Packet { at, len, dur })?;
        Ok(PacketWalk::On)
    }

    /// Adds the existing bytes of a chunk of `len` bytes at byte `at` of the file.
    fn push_chunk(&mut self, mut at: u64, len: u64) -> Result<PacketWalk> {
        let is_whole = at.saturating_add(len) <= self.bytes as u64;
        let mut left = len.min((self.bytes as u64).saturating_sub(at));
        while left > 0 {
            let len = u32::try_from(left).unwrap_or(1 << 31);
            self.push(at, len, 0)?;
            (at, left) = (at + u64::from(len), left - u64::from(len));
        }
        Ok(if is_whole { PacketWalk::On } else { PacketWalk::Ended })
    }

    /// Adds the packets of a sample table.
    fn table(&mut self, table: &[u8]) -> Result<PacketWalk> {
        let named = |name: &'static [u8; 4]| {
            find(table, &[name])
                .ok_or_else(|| corrupt(format!("the sample table lacks `{}`", name.escape_ascii())))
        };
        let (times, chunks) = (named(b"stts")?, named(b"stsc")?);
        if find(table, &[b"stz2"]).is_some() {
            return Err(unsupported("MP4 with compact sample sizes (`stz2`)"));
        }
        let sizes = named(b"stsz")?;
        let each = word(sizes, 1).unwrap_or_default();
        let n_sizes = word(sizes, 2).unwrap_or_default() as usize;
        let mut listed = sizes
            .get(12..)
            .unwrap_or_default()
            .chunks_exact(4)
            .take(n_sizes)
            .filter_map(|size| word(size, 0));
        let mut equal = std::iter::repeat_n(each, n_sizes);
        let mut size = || if each == 0 { listed.next() } else { equal.next() };
        let mut durations = entries(times, 2).flat_map(|entry| {
            std::iter::repeat_n(
                word(entry, 1).unwrap_or_default(),
                word(entry, 0).unwrap_or_default() as usize,
            )
        });
        let (short, long) = (find(table, &[b"stco"]), find(table, &[b"co64"]));
        let offsets = entries(short.unwrap_or_default(), 1).filter_map(|entry| word(entry, 0).map(u64::from));
        let long = entries(long.unwrap_or_default(), 2).filter_map(|entry| u64_at(entry, 0, Endian::Big));
        let offsets = offsets.chain(long.filter(|_| short.is_none()));

        let mut runs = entries(chunks, 3).peekable();
        let mut in_chunk = 0;
        for (number, offset) in (1..).zip(offsets) {
            while let Some(run) = runs.next_if(|run| word(run, 0).is_some_and(|first: u32| first <= number)) {
                in_chunk = word(run, 1).unwrap_or_default();
            }
            let mut at = offset;
            if let Some(len) = self.linear.as_ref().and_then(|linear| linear.chunk(each, in_chunk)) {
                if self.push_chunk(at, len)? == PacketWalk::Ended {
                    return Ok(PacketWalk::Ended);
                }
                continue;
            }
            for _ in 0..in_chunk {
                let (Some(len), Some(dur)) = (size(), durations.next()) else { return Ok(PacketWalk::On) };
                if self.push(at, len, dur)? == PacketWalk::Ended {
                    return Ok(PacketWalk::Ended);
                }
                at += u64::from(len);
            }
        }
        Ok(PacketWalk::On)
    }

    /// Adds the packets of `track` in the fragments of the file `bytes`; `extends` has their defaults.
    fn fragments(&mut self, file: &HeaderBytes<'_>, extends: &[u8], track: &[u8]) -> Result<()> {
        let header = find(track, &[b"tkhd"]).unwrap_or_default();
        let id = word(header, if header.first() == Some(&1) { 5 } else { 3 });
        let defaults = boxes(extends, b"trex").find(|trex| word(trex, 1) == id).unwrap_or_default();
        let default = |i| word(defaults, i).unwrap_or_default();
        for (start, _, body) in file_boxes(file).filter(|(_, name, _)| name == b"moof") {
            let Some(fragment) = file.get(body.start, body.end - body.start) else { continue };
            // The start of the data for runs without an offset. By the old rule, it is after the data of the
            // previous track.
            let mut behind = start;
            for part in boxes(fragment, b"traf") {
                let Some(header) = find(part, &[b"tfhd"]) else { continue };
                let flags = word(header, 0).unwrap_or_default();
                let mut at = 8;
                let mut field = |flag, len: usize| {
                    (flags & flag != 0).then(|| {
                        at += len;
                        at - len
                    })
                };
                let base = field(1, 8).and_then(|at| u64_at(header, at, Endian::Big));
                field(2, 4);
                let duration =
                    field(8, 4).and_then(|at| u32_at(header, at, Endian::Big)).unwrap_or(default(3));
                let size =
                    field(0x10, 4).and_then(|at| u32_at(header, at, Endian::Big)).unwrap_or(default(4));
                let base = base.unwrap_or(if flags & 0x2_0000 != 0 { start } else { behind });
                let mut at = base;
                for run in boxes(part, b"trun") {
                    let run = TrackRun::parse(run, duration, size);
                    if let Some(offset) = run.offset {
                        at = base.saturating_add_signed(offset.into());
                    }
                    if word(header, 1) != id {
                        at = at.saturating_add(run.n_bytes());
                        continue;
                    }
                    for (len, dur) in run.packets() {
                        if self.push(at, len, dur)? == PacketWalk::Ended {
                            return Ok(());
                        }
                        at += u64::from(len);
                    }
                }
                behind = at;
            }
        }
        Ok(())
    }
}

/// A number that a run has for each packet, or once for all packets.
#[derive(Debug, Clone, Copy)]
enum TrackRunValue {
    /// One for each packet, at this index in the packet's row.
    InRow(usize),
    Each(u32),
}

/// A run of packets in a fragment.
struct TrackRun<'a> {
    n: u32,
    /// Its start, relative to the fragment's base.
    offset: Option<i32>,
    /// The numbers of each packet: `words` of them, with duration and size at the given indices.
    rows: &'a [u8],
    words: usize,
    duration: TrackRunValue,
    size: TrackRunValue,
}

impl<'a> TrackRun<'a> {
    /// Reads a `trun` box; `duration` and `size` are the defaults of its packets.
    fn parse(run: &'a [u8], duration: u32, size: u32) -> Self {
        let flags = word(run, 0).unwrap_or_default();
        let has = |flag| usize::from(flags & flag != 0);
        let offset = (has(1) == 1).then(|| word(run, 2).map(|offset| offset as i32)).flatten();
        Self {
            n: word(run, 1).unwrap_or_default(),
            offset,
            rows: run.get(4 * (2 + has(1) + has(4))..).unwrap_or_default(),
            words: has(0x100) + has(0x200) + has(0x400) + has(0x800),
            duration: if has(0x100) == 1 { TrackRunValue::InRow(0) } else { TrackRunValue::Each(duration) },
            size: if has(0x200) == 1 { TrackRunValue::InRow(has(0x100)) } else { TrackRunValue::Each(size) },
        }
    }

    /// Size and duration of each packet; packets with their own numbers end where the bytes end.
    fn packets(&self) -> impl Iterator<Item = (u32, u32)> {
        (0..self.n as usize).map_while(|i| {
            let row = self.rows.get(4 * self.words * i..4 * self.words * (i + 1))?;
            let value = |field| match field {
                TrackRunValue::InRow(index) => word(row, index),
                TrackRunValue::Each(value) => Some(value),
            };
            Some((value(self.size)?, value(self.duration)?))
        })
    }

    fn n_bytes(&self) -> u64 {
        match self.size {
            TrackRunValue::Each(size) => u64::from(size) * u64::from(self.n),
            TrackRunValue::InRow(_) => self.packets().map(|(len, _)| u64::from(len)).sum(),
        }
    }
}

impl Edit {
    /// The edit of an edit list for a track of `track_scale` ticks per second; None if the list has a gap or
    /// several parts.
    fn from_edit_list(list: &[u8], moov: &[u8], track_scale: u32) -> Option<Self> {
        let movie_scale = find(moov, &[b"mvhd"]).and_then(timescale)?;
        let is_long = list.first() == Some(&1);
        if u32_at(list, 4, Endian::Big)? != 1 {
            return None;
        }
        let (duration, start) = if is_long {
            (u64_at(list, 8, Endian::Big)?, u64_at(list, 16, Endian::Big)? as i64)
        } else {
            (u32_at(list, 8, Endian::Big)?.into(), i64::from(u32_at(list, 12, Endian::Big)? as i32))
        };
        let delay = u64::try_from(start).ok()?;
        // The movie's clock is often coarser (milliseconds) than the track's. A rounded length cuts up to one
        // of its ticks too early, so the upper bound of the length is used.
        let upper = if movie_scale == track_scale { duration } else { duration.saturating_add(1) };
        let ticks = |duration: u64| {
            u64::try_from(u128::from(duration) * u128::from(track_scale) / u128::from(movie_scale)).ok()
        };
        let length = ticks(upper).filter(|_| duration > 0);
        let rounded_by = length.unwrap_or(0) - length.and(ticks(duration)).unwrap_or(0);
        Some(Self { delay, length, rounded_by, timescale: Some(track_scale) })
    }

    /// The edit of `iTunSMPB`, the tag that iTunes writes instead of an edit list.
    fn from_itunes(moov: &[u8]) -> Option<Self> {
        let meta = find(moov, &[b"udta", b"meta"])?;
        // In QuickTime files the box has no version.
        let meta = if meta.get(4..8) == Some(b"hdlr") { meta } else { meta.get(4..)? };
        let is_it = |tag: &&[u8]| find(tag, &[b"name"]).and_then(|name| name.get(4..)) == Some(b"iTunSMPB");
        let tag = boxes(find(meta, &[b"ilst"])?, b"----").find(is_it)?;
        let text = str::from_utf8(find(tag, &[b"data"])?.get(8..)?).ok()?;
        let mut numbers = text.split_ascii_whitespace().map(|number| u64::from_str_radix(number, 16).ok());
        let (_, delay, _, length) = (numbers.next()?, numbers.next()??, numbers.next()?, numbers.next()??);
        let length = Some(length).filter(|&length| length > 0);
        Some(Self { delay, length, rounded_by: 0, timescale: None })
    }
}
