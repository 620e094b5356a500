//! The edit list of an MP4 file: how many samples of the encoder's delay stand before the first wanted one, and how many follow.
//!
//! symphonia's demuxer leaves edits out, so the few boxes that matter are walked here.
//!
//! Source: ISO/IEC 14496-12, sections 8.6.6 (`elst`), 8.4.2 (`mdhd`), 8.2.2 (`mvhd`), 8.4.3 (`hdlr`).

use super::field::{Endian, u32_at, u64_at};

/// What an edit list cuts, in ticks of the track's own clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Edit {
    /// Ticks before the first wanted one.
    pub(super) delay: u64,
    /// Ticks wanted from there on; `None`: all.
    pub(super) length: Option<u64>,
}

/// The boxes directly in `bytes`, named `name`; sizes are clipped to what is there.
fn boxes<'a>(bytes: &'a [u8], name: &'static [u8; 4]) -> impl Iterator<Item = &'a [u8]> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        loop {
            let size = u32_at(rest, 0, Endian::Big)?;
            let this = rest.get(4..8)?;
            let (head, size) = match size {
                0 => (8, rest.len() as u64),
                1 => (16, u64_at(rest, 8, Endian::Big)?),
                size => (8, size.into()),
            };
            let size = usize::try_from(size).ok()?.min(rest.len());
            let body = rest.get(head..size)?;
            rest = &rest[size..];
            if this == name {
                return Some(body);
            }
        }
    })
}

/// Ticks per second of an `mvhd` or `mdhd` box.
fn timescale(head: &[u8]) -> Option<u32> {
    u32_at(head, if head.first() == Some(&1) { 20 } else { 12 }, Endian::Big).filter(|&scale| scale > 0)
}

/// Whether the box without which nothing can be decoded is there.
pub(super) fn has_movie(bytes: &[u8]) -> bool {
    boxes(bytes, b"moov").next().is_some()
}

impl Edit {
    /// The edit of the first sound track in a whole MP4 file; no edit where the list has gaps or several parts.
    pub(super) fn of_first_sound(bytes: &[u8]) -> Self {
        Self::find(bytes).unwrap_or_default()
    }

    fn find(bytes: &[u8]) -> Option<Self> {
        let moov = boxes(bytes, b"moov").next()?;
        let movie_scale = boxes(moov, b"mvhd").next().and_then(timescale)?;
        let is_sound = |media: &[u8]| boxes(media, b"hdlr").any(|hdlr| hdlr.get(8..12) == Some(b"soun"));
        let (track, media) = boxes(moov, b"trak")
            .filter_map(|track| Some((track, boxes(track, b"mdia").next()?)))
            .find(|(_, media)| is_sound(media))?;
        let track_scale = boxes(media, b"mdhd").next().and_then(timescale)?;
        let list = boxes(boxes(track, b"edts").next()?, b"elst").next()?;
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
        // The movie's clock is often coarser (milliseconds) than the track's: a rounded length cuts up to one of its ticks
        // too early, so the upper end of what it may mean counts.
        let upper = if movie_scale == track_scale { duration } else { duration.saturating_add(1) };
        let ticks = u128::from(upper) * u128::from(track_scale) / u128::from(movie_scale);
        Some(Self { delay, length: u64::try_from(ticks).ok().filter(|_| duration > 0) })
    }
}
