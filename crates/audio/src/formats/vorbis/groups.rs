//! Groups: the packets that end on pages up to one with a granule position.
//!
//! Input: the pages of a link. Output: its groups in order, each with its packets and what they should yield.
//! A walk visits each page and packet once. It searches at most [`MAX_BACK`] pages backwards for the packet
//! before the first group, and the pages and packets of a group are limited, so in any file the steps of a
//! span beyond its own pages and packets are bounded.
//!
//! Source: Vorbis I specification, section 1.3.2 and appendix A; RFC 3533; own.

use std::ops::Range;

use super::setup::Setup;
use crate::{
    Result,
    ogg::{Claim, MAX_GROUP, OggPacket, OggPackets, Page, Paged},
};

/// The most pages between a group and the start of a packet that it needs; a packet that starts further back
/// counts as lost. A page has up to 64 KiB, a packet seldom more than two pages.
pub(super) const MAX_BACK: usize = 1 << 10;
/// Packets up to a page with a granule position.
pub(super) struct Group<'a> {
    pub claim: Claim,
    pub before: Option<(OggPacket, u16)>,
    /// A walk that starts at its first packet.
    pub packets: OggPackets<'a>,
}

impl Group<'_> {
    /// The next audio packet that ends in it, with its block size.
    pub(crate) fn next_packet(&mut self, setup: &Setup) -> Option<(OggPacket, u16)> {
        next_audio(&mut self.packets, &self.claim.pages, setup)
    }
}

/// The next audio packet that ends on `pages` and begins there, or at most [`MAX_BACK`] pages before.
fn next_audio(packets: &mut OggPackets<'_>, pages: &Range<usize>, setup: &Setup) -> Option<(OggPacket, u16)> {
    loop {
        let packet = packets.next_until(pages.end - 1)?;
        if let Some(size) = setup.block_size(packet.first)
            && is_near(&packet, pages.start)
        {
            return Some((packet, size));
        }
    }
}

/// Whether a group that begins on `first_page` may need `packet`, which begins on that page or earlier.
fn is_near(packet: &OggPacket, first_page: usize) -> bool {
    packet.first_page() + MAX_BACK >= first_page
}

/// Walks the groups of a link in order.
pub(super) struct Groups<'a> {
    pub setup: &'a Setup,
    pub pages: &'a [Page],
    pub packets: OggPackets<'a>,
    /// The first page of the next group, and the granule position of the start of its samples.
    pub first_page: usize,
    pub begin: i64,
    /// The last audio packet so far.
    pub before: Option<(OggPacket, u16)>,
}

impl<'a> Groups<'a> {
    /// A walk from the group that begins on page `first_page` of `paged`, at granule position `begin`.
    pub(super) fn new(paged: Paged<'a>, setup: &'a Setup, first_page: usize, begin: i64) -> Self {
        let Paged { bytes, pages } = paged;
        let mut back = 1;
        loop {
            let from = first_page.saturating_sub(back);
            let mut this = Self {
                setup,
                pages,
                packets: OggPackets::new(bytes, pages, from),
                first_page,
                begin,
                before: None,
            };
            while from < first_page
                && let Some(packet) = next_audio(&mut this.packets, &(from..first_page), setup)
            {
                this.before = Some(packet);
            }
            // The previous packet may begin pages earlier.
            if this.before.is_some() || from == 0 || back == MAX_BACK {
                return this;
            }
            back *= 2;
        }
    }

    /// The next group; None after the last.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if it has more than [`MAX_GROUP`] pages or packets.
    pub(super) fn next(&mut self) -> Result<Option<Group<'a>>> {
        let first_page = self.first_page;
        let Some(claim) = Claim::next(self.pages, first_page, self.begin)? else { return Ok(None) };
        let before = self.before.filter(|(packet, _)| is_near(packet, first_page));
        let mut group = Group { claim, before, packets: self.packets.clone() };
        let (mut before, mut n_packets) = (group.before, 0);
        while let Some(packet) = self.packets.next_until(group.claim.pages.end - 1) {
            n_packets += 1;
            if n_packets > MAX_GROUP {
                return Err(Claim::endless(&self.pages[first_page]));
            }
            if let Some(size) = self.setup.block_size(packet.first)
                && is_near(&packet, first_page)
            {
                group.claim.n_samples += before.map_or(0, |(_, before)| yielded(before, size));
                before = Some((packet, size));
            }
        }
        // A group without packets leaves the previous packet to the next group.
        self.before = before.or(self.before);
        (self.first_page, self.begin) = (group.claim.pages.end, group.claim.told);
        Ok(Some(group))
    }
}

/// The number of samples that a packet of block size `size` yields after one of block size `before`.
pub(super) fn yielded(before: u16, size: u16) -> i64 {
    i64::from(before / 4 + size / 4)
}
