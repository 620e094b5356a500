//! A link: one logical stream of an Ogg chain, and the samples of a span of it.
//!
//! Input: the pages of the link. Output: its headers and the granule positions of its samples when it is
//! opened; then the samples of spans, and the number of samples that had to be cut or filled.
//!
//! Source: Vorbis I specification, sections 1.3.2, 4.3 and appendix A; own.

use std::{ops::Range, sync::Arc};

use super::{
    VorbisPools,
    decoder::Decoder,
    groups::{Group, Groups, yielded},
    setup::Setup,
};
use crate::{
    Codec, DecoderCache, Error, ErrorKind, Planes, Repairs, Result, corrupt,
    damage::DamagedFrames,
    decoder_cache::PooledVec,
    ogg::{Claim, ClaimLimits, OggPacket, OggPackets, Page, Paged, first_page, set_reach},
};

pub(super) const IDENTIFICATION_LEN: usize = 30;

/// The headers from which a decoder is built.
#[derive(Debug)]
pub(super) struct Headers {
    /// Identification and setup header, one after the other.
    pub bytes: Vec<u8>,
    pub setup: Setup,
}

/// One logical stream of a chain.
#[derive(Debug)]
pub(super) struct Link {
    pub headers: Arc<Headers>,
    /// The pages with its audio; the last one has a granule position and a correct checksum.
    pub pages: Range<usize>,
    /// Granule position of the first packet's end; below 0 if samples are cut at the start.
    pub first_granule: i64,
    /// Granule positions of its first sample and after its last one.
    pub granules: Range<i64>,
    /// The recording's samples before it.
    pub begin: u64,
    /// Whether `pages` begin and end where its audio does; not in every window.
    pub is_start: bool,
    pub is_end: bool,
}

impl Link {
    /// Opens a link. `all` has the pages of all links; those of this one, without its first, are in `range`.
    pub(super) fn open(
        cache: &mut DecoderCache,
        bytes: &[u8],
        all: &mut [Page],
        first: &Page,
        mut range: Range<usize>,
    ) -> Result<Self> {
        let pages = &mut all[range.clone()];
        first.check(bytes)?;
        let identification = first.body(bytes).get(..IDENTIFICATION_LEN).unwrap_or_default();
        let mut packets = OggPackets::new(bytes, pages, 0);
        let setup =
            packets.nth(1).ok_or_else(|| corrupt("the Vorbis stream ends before its setup header"))?;
        for page in &pages[setup.first_page()..=setup.last_page] {
            page.check(bytes)?;
        }
        let mut scratch = cache.pools::<VorbisPools>().bytes.take();
        let headers =
            cache.pools::<VorbisPools>().headers(identification, setup.data(bytes, pages, &mut scratch)?)?;

        let audio = &mut pages[setup.last_page + 1..];
        let is_last = |page: &Page| page.granule.is_some() && page.is_sound(bytes);
        let n_pages = audio.iter().rposition(is_last).map_or(0, |last| last + 1);
        set_reach(&mut audio[..n_pages]);
        let paged = Paged { bytes, pages: &audio[..n_pages] };
        range.start += setup.last_page + 1;
        range.end = range.start + n_pages;
        let mut this = Self {
            headers,
            pages: range,
            first_granule: 0,
            granules: 0..0,
            begin: 0,
            is_start: true,
            is_end: true,
        };
        let Some(group) = Groups::new(paged, &this.headers.setup, 0, 0).next()? else {
            return Ok(this);
        };
        this.first_granule = group.claim.first_granule(paged.pages);
        this.granules = this.first_granule.max(0)..0;
        this.granules.end = this.last_granule(paged)?.max(this.granules.start);
        Ok(this)
    }

    /// The groups from the one on that begins on page `first_page`.
    pub(super) fn groups<'a>(&'a self, paged: Paged<'a>, first_page: usize) -> Groups<'a> {
        let begin = match first_page {
            0 => self.first_granule,
            page => paged.pages[page - 1].granule.unwrap_or_default(),
        };
        Groups::new(paged, &self.headers.setup, first_page, begin)
    }

    /// Granule position after the last sample: that of the last page, or the end of the packets if they do
    /// not reach it.
    pub(crate) fn last_granule(&self, paged: Paged<'_>) -> Result<i64> {
        let Paged { pages, .. } = paged;
        let first_page = first_page(pages, pages.len() - 1)?;
        let group = self.groups(paged, first_page).next()?;
        Ok(group.map_or(0, |group| group.claim.last_granule(pages)))
    }

    pub(super) fn n_samples(&self) -> u64 {
        (self.granules.end - self.granules.start) as u64
    }

    /// The recording's samples up to its end.
    pub(super) fn behind(&self) -> u64 {
        self.begin + self.n_samples()
    }

    /// Whether a group is its last one; `pages` are those in memory.
    pub(super) fn is_last(&self, claim: &Claim, pages: &[Page]) -> bool {
        self.is_end && claim.pages.end == pages.len()
    }

    /// Whether `other` is on the same timeline.
    pub(crate) fn continues_as(&self, other: &Self) -> bool {
        let (this, other) = (&self.headers.setup, &other.headers.setup);
        (this.channels, this.sample_rate) == (other.channels, other.sample_rate)
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
    /// contradict their granule position, are silent, as far as the read may have such.
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
        let (setup, scratch) = (&self.headers.setup, cache.pools::<VorbisPools>().bytes.take());
        let decoder = cache.decoder(Codec::Vorbis, &self.headers.bytes, || self.new_decoder())?;
        decoder.reset(out.channels() < setup.channels.into());
        let mut feed = Feed { bytes, pages, decoder, checked: 0, scratch };
        // The last packet decoded, whose second half the decoder holds.
        let mut held = None;

        let last_page = pages.partition_point(|page| page.reach <= want.start);
        let first_page = first_page(pages, last_page)?;
        if first_page == 0 && !self.is_start {
            return Err(Error::new(ErrorKind::TooShort, "the Ogg pages before the span are missing"));
        }
        let mut groups = self.groups(paged, first_page);
        // The range in `out` of samples of the link.
        let place = |samples: &Range<i64>| {
            at + (samples.start - want.start) as usize..at + (samples.end - want.start) as usize
        };
        loop {
            let Some(mut group) = groups.next()? else {
                return Err(Error::new(ErrorKind::TooShort, "the Vorbis stream ends before its last sample"));
            };
            let Claim { begin, told, .. } = group.claim;
            let end = if self.is_last(&group.claim, pages) { want.end } else { want.end.min(told) };
            if let Err(error) = self.surplus(paged, &group) {
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
            let (mut position, mut before) = (begin, group.before);
            while position < end
                && let Some((packet, size)) = group.next_packet(setup)
            {
                let n_samples = before.map_or(0, |(_, before)| yielded(before, size));
                let wanted = position.max(want.start)..(position + n_samples).min(end);
                if let (Some((before, _)), false) = (before, wanted.is_empty()) {
                    match feed.pair((held != Some(before)).then_some(&before), &packet, n_samples) {
                        Ok(()) => {
                            held = Some(packet);
                            let from = (wanted.start - position) as usize..(wanted.end - position) as usize;
                            for channel in 0..usize::from(out.channels()) {
                                let samples = &mut out.channel_mut(channel)[place(&wanted)];
                                feed.decoder.write(channel, from.clone(), samples);
                            }
                        }
                        Err(error) => {
                            held = None;
                            losses.silence((wanted.end - wanted.start) as u64, error)?;
                            out.silence(&place(&wanted));
                        }
                    }
                }
                position += n_samples;
                before = Some((packet, size));
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
    fn surplus(&self, paged: Paged<'_>, group: &Group<'_>) -> Result<i64> {
        let claim = &group.claim;
        let limits = ClaimLimits {
            is_last: self.is_last(claim, paged.pages),
            stream_end: self.granules.end,
            from_page: group.before.map_or(claim.pages.start, |(before, _)| before.last_page),
            most: self.headers.setup.long_block().into(),
        };
        claim.surplus(paged, &limits)
    }

    /// Counts the samples that [`Link::read`] cuts and fills over all groups.
    pub(super) fn repairs(&self, paged: Paged<'_>) -> Repairs {
        let (mut repairs, mut groups) = (Repairs::default(), self.groups(paged, 0));
        while let Ok(Some(group)) = groups.next() {
            // Reads report what cannot be repaired.
            if let Ok(surplus) = self.surplus(paged, &group) {
                repairs.count(surplus);
            }
        }
        repairs
    }

    /// Builds a decoder; returns it with its estimated bytes.
    pub(crate) fn new_decoder(&self) -> Result<(Decoder, usize)> {
        let Headers { bytes, setup } = &*self.headers;
        let decoder = Decoder::new(&bytes[IDENTIFICATION_LEN..], setup).map_err(|reason| {
            corrupt(format!("a decoder cannot be built from the Vorbis headers: {reason}"))
        })?;
        let bytes = decoder.bytes();
        Ok((decoder, bytes))
    }
}

/// Feeds packets of one stream to a decoder.
struct Feed<'a, 'k> {
    bytes: &'a [u8],
    pages: &'a [Page],
    decoder: &'k mut Decoder,
    /// The page after the last one whose checksum was checked.
    checked: usize,
    scratch: PooledVec<u8>,
}

impl Feed<'_, '_> {
    /// Decodes a packet that yields `n_samples`, after the one `before` it unless the decoder holds that.
    fn pair(&mut self, before: Option<&OggPacket>, packet: &OggPacket, n_samples: i64) -> Result<()> {
        if let Some(before) = before {
            self.decode(before)?;
        }
        self.decode(packet)?;
        let found = self.decoder.n_samples();
        if found as i64 != n_samples {
            let message = format!("a Vorbis packet of {n_samples} samples decoded to {found}");
            return Err(Error::new(ErrorKind::TooShort, message));
        }
        Ok(())
    }

    /// Decodes one packet; the first one only primes the overlap and gives no samples.
    fn decode(&mut self, packet: &OggPacket) -> Result<()> {
        for page in &self.pages[self.checked.max(packet.first_page())..=packet.last_page] {
            page.check(self.bytes)?;
        }
        self.checked = packet.last_page + 1;
        let data = packet.data(self.bytes, self.pages, &mut self.scratch)?;
        let offset = self.pages[packet.last_page].offset as u64;
        self.decoder.decode(data).map_err(|fault| {
            corrupt(format!("a Vorbis packet cannot be decoded: {}", fault.message())).at_byte(offset)
        })
    }
}
