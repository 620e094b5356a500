//! [`Claim`]: what the granule position of a page says of the packets up to it.
//!
//! A *group* of packets ends on pages up to one with a granule position. Encoders round these positions, so
//! one that is a little off is repaired at the end of its group; one that is further off is damage.
//!
//! Source: RFC 3533; own.

use std::ops::Range;

use super::{MAX_GROUP, Page, Paged, is_whole};
use crate::{Repairs, Result, corrupt};

/// The pages of a group, and the samples that its packets should have.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    /// Indices of its pages; the last one has the granule position.
    pub pages: Range<usize>,
    /// Granule position of the start of its samples.
    pub begin: i64,
    /// Granule position of its last page.
    pub told: i64,
    /// The number of samples of its packets.
    pub n_samples: i64,
}

/// What is needed to judge a [`Claim`], beside itself.
#[derive(Debug, Clone)]
pub(crate) struct ClaimLimits {
    /// Whether it is the last one of the stream, and the granule position after the stream's last sample.
    pub is_last: bool,
    pub stream_end: i64,
    /// The first page on which one of its packets begins.
    pub from_page: usize,
    /// The most samples that are repaired.
    pub most: u64,
}

impl Claim {
    /// The group that begins on `first_page`, still without samples; None after the last.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if it has more than [`MAX_GROUP`] pages.
    pub(crate) fn next(pages: &[Page], first_page: usize, begin: i64) -> Result<Option<Self>> {
        let behind = pages.get(first_page..).unwrap_or_default();
        let Some(length) = behind.iter().take(MAX_GROUP).position(|page| page.granule.is_some()) else {
            return if behind.len() > MAX_GROUP { Err(Self::endless(&behind[0])) } else { Ok(None) };
        };
        let told = behind[length].granule.unwrap_or_default();
        Ok(Some(Self { pages: first_page..first_page + length + 1, begin, told, n_samples: 0 }))
    }

    /// The error about a group that begins on this page, and has too many pages or packets.
    pub(crate) fn endless(first: &Page) -> crate::Error {
        corrupt(format!("more than {MAX_GROUP} Ogg pages or packets without a granule position"))
            .at_byte(first.offset as u64)
    }

    /// Granule position at which the first packet of a stream begins to count, by its first group; below 0 if
    /// samples are cut at the start.
    pub(crate) fn first_granule(&self, pages: &[Page]) -> i64 {
        let first = self.told - self.n_samples;
        if pages[self.pages.end - 1].ends_stream() { first.max(0) } else { first }
    }

    /// Granule position after the last sample of a stream, by its last group: that of the last page, or the
    /// end of the packets if they do not reach it.
    pub(crate) fn last_granule(&self, pages: &[Page]) -> i64 {
        match is_whole(&pages[self.pages.start.saturating_sub(1)..]) {
            true => self.told.min(self.begin + self.n_samples),
            false => self.told,
        }
    }

    /// The number of samples of its packets beyond its granule position; below 0 if they do not reach it.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if the difference cannot be repaired.
    pub(crate) fn surplus(&self, Paged { bytes, pages }: Paged<'_>, limits: &ClaimLimits) -> Result<i64> {
        let &ClaimLimits { is_last, stream_end, from_page, most } = limits;
        let &Self { begin, told, n_samples, .. } = self;
        let end = begin + n_samples;
        if end == told || is_last && end >= stream_end {
            return Ok(0);
        }
        // The page with the start position of this group must also be in sequence.
        let from = from_page.min(self.pages.start.saturating_sub(1));
        let is_slip = !is_last
            && told >= begin
            && (end - told).unsigned_abs() <= most
            && is_whole(&pages[from..self.pages.end]);
        if !is_slip {
            let page = &pages[self.pages.end - 1];
            let message = format!(
                "packets are lost or damaged: the Ogg page ends at granule position {told}, but its packets reach from {begin} to \
                 {end}"
            );
            return Err(corrupt(message).at_byte(page.offset as u64));
        }
        for page in &pages[self.pages.clone()] {
            page.check(bytes)?;
        }
        Ok(end - told)
    }
}

impl Repairs {
    /// Counts a group with this surplus of samples.
    pub(crate) fn count(&mut self, surplus: i64) {
        if surplus != 0 {
            self.places += 1;
            self.cut += surplus.max(0) as u64;
            self.filled += surplus.min(0).unsigned_abs();
        }
    }
}
