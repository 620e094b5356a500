//! A link: one logical stream of an Ogg chain, its groups of packets, and the samples of a span of it.
//!
//! Input: the pages of the link. Output: its head and the granule positions of its samples when it is opened;
//! then the samples of spans, and the number of samples that had to be cut or filled.
//!
//! A walk over groups visits each page and packet once. It begins on the page with the granule position
//! before its first group: a packet ends there, so the first packet of the group begins there or later.
//!
//! Source: RFC 7845, sections 4 and 5; RFC 3533; own.

use std::ops::Range;

use super::{
    OpusPools, PRE_ROLL,
    decoder::{Decoder, STREAM_BYTES},
    head::Head,
    packet::{self, MAX_SAMPLES},
};
use crate::{
    Codec, DecoderCache, Error, ErrorKind, Planes, Repairs, Result, corrupt,
    damage::DamagedFrames,
    ogg::{Claim, ClaimLimits, MAX_GROUP, OggPacket, OggPackets, Page, Paged, first_page, set_reach},
};

/// One logical stream of a chain.
#[derive(Debug)]
pub(super) struct Link {
    pub head: Head,
    /// The pages with its audio; the last one has a granule position and a correct checksum.
    pub pages: Range<usize>,
    /// Granule position of the start of the first packet; below 0 if samples are cut at the start.
    pub first_granule: i64,
    /// Granule positions of its first sample, after the pre-skip, and after its last one.
    pub granules: Range<i64>,
    /// The recording's samples before it.
    pub begin: u64,
    /// Whether `pages` begin and end where its audio does; not in every window.
    pub is_start: bool,
    pub is_end: bool,
}

/// Packets up to a page with a granule position.
pub(super) struct Group<'a> {
    pub claim: Claim,
    /// A walk that starts at its first packet.
    packets: OggPackets<'a>,
}

/// Walks the groups of a link in order.
pub(super) struct Groups<'a> {
    paged: Paged<'a>,
    packets: OggPackets<'a>,
    /// The first page of the next group, and the granule position of the start of its samples.
    first_page: usize,
    begin: i64,
}

/// The next packet that ends on a page up to `last`, with its samples; those that are none are left out.
fn next_audio(packets: &mut OggPackets<'_>, paged: Paged<'_>, last: usize) -> Option<(OggPacket, usize)> {
    loop {
        let packet = packets.next_until(last)?;
        if let Some(samples) = packet::samples(packet.head(paged.bytes, paged.pages)) {
            return Some((packet, samples));
        }
    }
}

impl<'a> Groups<'a> {
    /// A walk from the group that begins on page `first_page`, at granule position `begin`.
    pub(super) fn new(paged: Paged<'a>, first_page: usize, begin: i64) -> Self {
        let mut packets = OggPackets::new(paged.bytes, paged.pages, first_page.saturating_sub(1));
        if let Some(before) = first_page.checked_sub(1) {
            while packets.next_until(before).is_some() {}
        }
        Self { paged, packets, first_page, begin }
    }

    /// The next group; None after the last.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if it has more than [`MAX_GROUP`] pages or packets.
    pub(super) fn next(&mut self) -> Result<Option<Group<'a>>> {
        let paged = self.paged;
        let Some(claim) = Claim::next(paged.pages, self.first_page, self.begin)? else { return Ok(None) };
        let mut group = Group { claim, packets: self.packets.clone() };
        let mut n_packets = 0;
        while let Some((_, samples)) = next_audio(&mut self.packets, paged, group.claim.pages.end - 1) {
            n_packets += 1;
            if n_packets > MAX_GROUP {
                return Err(Claim::endless(&paged.pages[self.first_page]));
            }
            group.claim.n_samples += samples as i64;
        }
        (self.first_page, self.begin) = (group.claim.pages.end, group.claim.told);
        Ok(Some(group))
    }
}

impl Link {
    /// Opens a link. `all` has the pages of all links; those of this one, without its first, are in `range`.
    pub(super) fn open(
        bytes: &[u8],
        all: &mut [Page],
        first: &Page,
        mut range: Range<usize>,
    ) -> Result<Self> {
        let pages = &mut all[range.clone()];
        let head = head(bytes, first)?;
        let audio_page = behind_tags(bytes, pages).ok_or_else(no_tags)?;
        let audio = &mut pages[audio_page..];
        let n_pages = audio.iter().rposition(|page| is_last(page, bytes)).map_or(0, |last| last + 1);
        set_reach(&mut audio[..n_pages]);
        let paged = Paged { bytes, pages: &audio[..n_pages] };
        range.start += audio_page;
        range.end = range.start + n_pages;
        let mut this = Self {
            head,
            pages: range,
            first_granule: 0,
            granules: 0..0,
            begin: 0,
            is_start: true,
            is_end: true,
        };
        if let Some(group) = Groups::new(paged, 0, 0).next()? {
            this.first_granule = group.claim.first_granule(paged.pages);
            let start = start(this.first_granule, &head);
            let first = first_page(paged.pages, n_pages - 1)?;
            this.granules = start..last_granule(paged, first, this.begin_of(paged, first))?.max(start);
        }
        Ok(this)
    }

    /// Granule position of the start of the group that begins on page `first_page`.
    fn begin_of(&self, paged: Paged<'_>, first_page: usize) -> i64 {
        match first_page {
            0 => self.first_granule,
            page => paged.pages[page - 1].granule.unwrap_or_default(),
        }
    }

    fn groups<'a>(&self, paged: Paged<'a>, first_page: usize) -> Groups<'a> {
        Groups::new(paged, first_page, self.begin_of(paged, first_page))
    }

    pub(super) fn n_samples(&self) -> u64 {
        (self.granules.end - self.granules.start) as u64
    }

    /// The recording's samples up to its end.
    pub(super) fn behind(&self) -> u64 {
        self.begin + self.n_samples()
    }

    /// Whether a group is its last one; `pages` are those in memory.
    fn is_last(&self, claim: &Claim, pages: &[Page]) -> bool {
        self.is_end && claim.pages.end == pages.len()
    }

    /// Decodes the link's samples `span` into `out` from its sample `at` on.
    pub(super) fn read(
        &self,
        paged: Paged<'_>,
        cache: &mut DecoderCache,
        span: Range<u64>,
        out: &mut Planes,
        at: usize,
    ) -> Result<()> {
        let want = self.granules.start + span.start as i64..self.granules.start + span.end as i64;
        let mut losses = std::mem::take(&mut cache.losses);
        let read = self.read_packets(paged, cache, want, out, at, &mut losses);
        cache.losses = losses;
        read
    }

    /// Decodes the samples with the granule positions `want`. Packets that cannot be decoded, and groups that
    /// contradict their granule position, are silent, as far as the read may have such. Those before `want`
    /// are passed over.
    fn read_packets(
        &self,
        paged: Paged<'_>,
        cache: &mut DecoderCache,
        want: Range<i64>,
        out: &mut Planes,
        at: usize,
        losses: &mut DamagedFrames,
    ) -> Result<()> {
        let Paged { bytes, pages } = paged;
        let mut scratch = cache.pools::<OpusPools>().bytes.take();
        let make = || Ok((Decoder::new(&self.head)?, STREAM_BYTES * usize::from(self.head.channels)));
        let decoder = cache.decoder(Codec::Opus, &self.head.setup(), make)?;
        decoder.reset()?;

        let from = want.start - PRE_ROLL as i64;
        let is_from_start = from <= self.granules.start;
        let first_page = match is_from_start {
            true => 0,
            false => first_page(pages, pages.partition_point(|page| page.reach <= from))?,
        };
        if first_page == 0 && !self.is_start {
            return Err(Error::new(ErrorKind::TooShort, "the Ogg pages before the span are missing"));
        }
        let mut groups = self.groups(paged, first_page);
        // The page after the last one whose checksum was checked.
        let mut checked = 0;
        // The range in `out` of samples of the link.
        let place = |samples: &Range<i64>| {
            at + (samples.start - want.start) as usize..at + (samples.end - want.start) as usize
        };
        loop {
            let Some(mut group) = groups.next()? else {
                return Err(Error::new(ErrorKind::TooShort, "the Opus stream ends before its last sample"));
            };
            let Claim { begin, told, .. } = group.claim;
            let end = if self.is_last(&group.claim, pages) { want.end } else { want.end.min(told) };
            if let Err(error) = self.surplus(paged, &group.claim) {
                let lost = begin.max(want.start)..end.max(begin).max(want.start);
                if !lost.is_empty() {
                    losses.silence((lost.end - lost.start) as u64, error)?;
                    out.silence(&place(&lost));
                }
                if end == want.end {
                    return Ok(());
                }
                continue;
            }
            let mut position = begin;
            // Packets beyond a cut end are decoded too, unless nothing follows: the next ones depend on them.
            while (position < end || end < want.end)
                && let Some((packet, n_samples)) =
                    next_audio(&mut group.packets, paged, group.claim.pages.end - 1)
            {
                let behind = position + n_samples as i64;
                let wanted = position.max(want.start)..behind.min(end);
                if behind > from || is_from_start {
                    let mut decode = || {
                        for page in &pages[checked.max(packet.first_page())..=packet.last_page] {
                            page.check(bytes)?;
                        }
                        checked = packet.last_page + 1;
                        let data = packet.data(bytes, pages, &mut scratch)?;
                        decoder.decode(data, n_samples).map_err(|reason| {
                            corrupt(format!("an Opus packet cannot be decoded: {reason}"))
                                .at_byte(pages[packet.last_page].offset as u64)
                        })
                    };
                    match (decode(), wanted.is_empty()) {
                        (Ok(()), false) => {
                            let from = (wanted.start - position) as usize..(wanted.end - position) as usize;
                            for channel in 0..usize::from(out.channels()) {
                                let samples = &mut out.channel_mut(channel)[place(&wanted)];
                                decoder.write(&self.head, channel, from.clone(), samples);
                            }
                        }
                        (Err(error), false) => {
                            losses.silence((wanted.end - wanted.start) as u64, error)?;
                            out.silence(&place(&wanted));
                        }
                        (_, true) => {}
                    }
                }
                position = behind;
            }
            // The samples between the end of the packets and the granule position.
            let missing = position.max(want.start)..end;
            if !missing.is_empty() {
                out.silence(&place(&missing));
            }
            if end == want.end {
                return Ok(());
            }
        }
    }

    /// As [`Claim::surplus`].
    fn surplus(&self, paged: Paged<'_>, claim: &Claim) -> Result<i64> {
        let is_last = self.is_last(claim, paged.pages);
        let (stream_end, from_page) = (self.granules.end, claim.pages.start);
        claim.surplus(paged, &ClaimLimits { is_last, stream_end, from_page, most: MAX_SAMPLES as u64 })
    }

    /// Counts the samples that [`Link::read`] cuts and fills over all groups.
    pub(super) fn repairs(&self, paged: Paged<'_>) -> Repairs {
        let (mut repairs, mut groups) = (Repairs::default(), self.groups(paged, 0));
        while let Ok(Some(group)) = groups.next() {
            // Reads report what cannot be repaired.
            if let Ok(surplus) = self.surplus(paged, &group.claim) {
                repairs.count(surplus);
            }
        }
        repairs
    }
}

/// The head in a stream's first page.
pub(super) fn head(bytes: &[u8], first: &Page) -> Result<Head> {
    first.check(bytes)?;
    Head::parse(first.body(bytes))
}

/// The page after the comment header, which is the first packet of `pages`; None if it does not end there.
pub(super) fn behind_tags(bytes: &[u8], pages: &[Page]) -> Option<usize> {
    OggPackets::new(bytes, pages, 0).next().map(|tags| tags.last_page + 1)
}

pub(super) fn no_tags() -> Error {
    corrupt("the Opus stream ends before the end of its comment header")
}

/// Whether a stream's audio may end on `page`.
pub(super) fn is_last(page: &Page, bytes: &[u8]) -> bool {
    page.granule.is_some() && page.is_sound(bytes)
}

/// Granule position of the first sample.
pub(super) fn start(first_granule: i64, head: &Head) -> i64 {
    first_granule.max(0) + i64::from(head.pre_skip)
}

/// Granule position after the last sample, by the last group, which begins on page `first_page`, at `begin`.
pub(super) fn last_granule(paged: Paged<'_>, first_page: usize, begin: i64) -> Result<i64> {
    let group = Groups::new(paged, first_page, begin).next()?;
    Ok(group.map_or(0, |group| group.claim.last_granule(paged.pages)))
}
