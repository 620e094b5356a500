//! Recordings of a constant bit rate, whose frames are found by arithmetic.
//!
//! Input: the first and the last bytes of a recording. Output: its links, and where its frames are, if the
//! frames in these bytes have one rate, those at the end are where arithmetic says, and a tag's count, if
//! there is one, is that of the bytes. Frames in between are not looked at: one is there if a header of the
//! same rate is near its place, and linked to that of the frame before or after it. That depends on the bytes
//! around it alone.
//!
//! Source: ISO/IEC 11172-3, ISO/IEC 13818-3; own.

use std::ops::Range;

use super::{Header, Link, MISSING, Piece, TAIL_LEN, Walk};
use crate::{Result, fallible_alloc};

/// The bytes at each end that are looked at.
pub(crate) const PROOF: u64 = 64 << 10;
/// The fewest frames at an end that prove a constant bit rate.
const MIN_PROOF: u64 = 8;
/// Where frames may be, relative to arithmetic: encoders round to slots in their own ways.
const NEAR: [i64; 9] = [0, -1, 1, -4, 4, -2, 2, -8, 8];

/// Where the frames of a recording are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Constant {
    /// The byte at which they begin, the number of frames without audio at the start, and of all frames.
    pub(crate) at: u64,
    pub(crate) n_tags: u64,
    pub(crate) n_total: u64,
}

/// What proves a constant bit rate.
pub(crate) type Proven = (Header, Vec<Link>, Constant);

impl Constant {
    /// Proves that a recording of `size` bytes has a constant bit rate; None if it is not proven. `head`
    /// begins at byte `from`, after tags at the start, and `last` are the last bytes: [`PROOF`] each, or all
    /// there are.
    pub(crate) fn find(head: &[u8], from: u64, last: &[u8], size: u64) -> Result<Option<Proven>> {
        let tail = &last[last.len().saturating_sub(TAIL_LEN)..];
        let mut links = Vec::new();
        let mut walk = Walk::default();
        walk.scan.at = from;
        let piece = Piece { bytes: head, base: from, size, tail };
        let mut frames = Vec::new();
        let is_all = walk
            .step(&piece, &mut links, |offset, _| fallible_alloc::push(&mut frames, offset).map(|()| true))?;
        // If all of it is seen, or the timeline ends there, there is nothing to prove.
        let Some(header) = walk.scan.header.filter(|header| header.free == 0 && !is_all) else {
            return Ok(None);
        };
        // The first frame, perhaps with a tag in it.
        let n_tags = links.len() as u64;
        let Some(&first) = frames.first() else { return Ok(None) };
        let at = match n_tags {
            0 => first,
            1 => match first.checked_sub(header.len as u64) {
                Some(at) if links[0].frames.is_empty() => at,
                _ => return Ok(None),
            },
            _ => return Ok(None),
        };
        let declared = walk.declared();
        let header_at = |bytes: &[u8], base: u64, at: u64| {
            let offset = usize::try_from(at.checked_sub(base)?).ok()?;
            Header::parse(bytes.get(offset..)?)
        };
        let is_constant = |bytes: &[u8], base: u64, offsets: &[u64], behind: u64| {
            offsets.iter().zip(offsets.iter().skip(1).chain([&behind])).all(|(&here, &next)| {
                header_at(bytes, base, here)
                    .is_some_and(|this| this.has_rate_of(&header) && here + this.len as u64 == next)
            })
        };
        if (frames.len() as u64) < MIN_PROOF || !is_constant(head, from, &frames, walk.scan.at) {
            return Ok(None);
        }
        if !frames.iter().zip(n_tags..).all(|(&here, number)| header.is_near(here - at, number)) {
            return Ok(None);
        }
        // The frames at the end: those from a number on that arithmetic places within the last bytes.
        let base = size - last.len() as u64;
        let slack = 16;
        let mut number = base.saturating_add(slack).saturating_sub(at) / header.len as u64;
        while at + header.bytes_of(number) < base + slack {
            number += 1;
        }
        let Some(offset) = first_of(&header, last, base, at + header.bytes_of(number)) else {
            return Ok(None);
        };
        let mut end = Walk::default();
        (end.scan.at, end.scan.header) = (base + offset, Some(header));
        let (mut others, mut ends) = (Vec::new(), Vec::new());
        let tail_piece = Piece { bytes: last, base, size, tail };
        end.step(&tail_piece, &mut others, |offset, _| {
            fallible_alloc::push(&mut ends, offset).map(|()| true)
        })?;
        let behind = ends.last().and_then(|&end| Some(end + header_at(last, base, end)?.len as u64));
        let Some(behind) = behind else { return Ok(None) };
        let is_proven = others.is_empty()
            && !end.scan.is_cut()
            && ends.len() as u64 >= MIN_PROOF
            && is_constant(last, base, &ends, behind)
            && ends.iter().zip(number..).all(|(&here, number)| header.is_near(here - at, number));
        let n_total = number + ends.len() as u64;
        let n_frames = n_total - n_tags;
        // Some writers of tags count the frame that holds the tag.
        let agrees = declared.is_none_or(|n| [n_frames, n_total].contains(&u64::from(n)));
        if !is_proven || !agrees {
            return Ok(None);
        }
        walk.n_frames = n_frames as usize;
        let header = walk.finish(&piece, &mut links)?;
        Ok(Some((header, links, Self { at, n_tags, n_total })))
    }

    /// The byte at which frame `number` should begin.
    pub(crate) fn expected(&self, header: &Header, number: usize) -> u64 {
        self.at + header.bytes_of(number as u64 + self.n_tags)
    }

    /// Whether frames at these offsets in `bytes`, which begin at byte `base` of the recording, are those
    /// from number `first` on.
    pub(crate) fn agrees(
        &self,
        bytes: &[u8],
        base: u64,
        offsets: &[u32],
        first: usize,
        header: &Header,
    ) -> bool {
        offsets.iter().zip(first as u64 + self.n_tags..).all(|(&offset, number)| {
            let here = base + u64::from(offset);
            here >= self.at
                && header.is_near(here - self.at, number)
                && Header::parse(&bytes[offset as usize..]).is_some_and(|this| this.has_rate_of(header))
        })
    }

    /// Sets `offsets` to those of the frames `numbers` in `bytes`, which begin at byte `base` of the
    /// recording and have also the frame before and the header after; [`MISSING`] for lost frames.
    pub(crate) fn place(
        &self,
        bytes: &[u8],
        base: u64,
        header: &Header,
        numbers: Range<usize>,
        offsets: &mut Vec<u32>,
    ) -> Result<()> {
        offsets.clear();
        for number in numbers {
            let number = number as u64 + self.n_tags;
            let found = self.near(bytes, base, header, number).find(|&(offset, len)| {
                // A frame is linked to the next, or is the last, or the one before is linked to it.
                let next = bytes.get(offset + len..).and_then(Header::parse);
                next.is_some_and(|next| next.has_rate_of(header))
                    || number.checked_sub(1).is_some_and(|before| {
                        self.near(bytes, base, header, before).any(|(at, len)| at + len == offset)
                    })
            });
            fallible_alloc::push(offsets, found.map_or(MISSING, |(offset, _)| offset as u32))?;
        }
        Ok(())
    }

    /// Offsets and lengths of the headers near the place of frame `number`, the tags counted.
    fn near<'b>(
        &self,
        bytes: &'b [u8],
        base: u64,
        header: &'b Header,
        number: u64,
    ) -> impl Iterator<Item = (usize, usize)> + 'b {
        let expected = self.at + header.bytes_of(number);
        let least = self.at;
        NEAR.into_iter().filter_map(move |by| {
            let at = expected.checked_add_signed(by).filter(|&at| at >= least)?;
            let offset = usize::try_from(at.checked_sub(base)?).ok()?;
            let this = Header::parse(bytes.get(offset..)?).filter(|this| this.has_rate_of(header))?;
            (offset + this.len <= bytes.len()).then_some((offset, this.len))
        })
    }
}

/// The bit rates of a recording's frames, which are seen one by one.
#[derive(Debug, Default)]
pub(super) struct Rates {
    first: Option<Header>,
    /// The frames at the start, and the last ones so far, that have the rate of the first.
    n_first: u64,
    n_last: u64,
    /// Whether a frame had another rate.
    differ: bool,
}

impl Rates {
    /// Counts the frame that begins with `bytes`.
    pub(super) fn see(&mut self, bytes: &[u8]) {
        let Some(this) = Header::parse(bytes) else { return };
        if self.first.get_or_insert(this).has_rate_of(&this) {
            self.n_first += u64::from(!self.differ);
            self.n_last += 1;
        } else {
            (self.differ, self.n_last) = (true, 0);
        }
    }

    pub(super) fn differ(&self) -> bool {
        self.differ
    }

    /// Whether as many frames at both ends have one rate as prove a constant bit rate.
    pub(super) fn may_be_constant(&self) -> bool {
        self.n_first.min(self.n_last) >= MIN_PROOF
    }
}

/// The offset in `bytes` of the frame that should begin at byte `expected`; encoders round differently.
fn first_of(header: &Header, bytes: &[u8], at: u64, expected: u64) -> Option<u64> {
    let near = |by: i64| expected.checked_add_signed(by)?.checked_sub(at);
    NEAR.into_iter().filter_map(near).find(|&offset| {
        // Frames up to the end of the bytes, or three of them.
        let (mut from, mut n) = (offset as usize, 0);
        while n < 3 {
            match bytes.get(from..).and_then(Header::parse) {
                Some(next) if next.has_rate_of(header) => from += next.len,
                _ => break,
            }
            n += 1;
        }
        n == 3 || n > 0 && from + 16 * TAIL_LEN >= bytes.len()
    })
}
