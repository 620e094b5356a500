//! Vorbis in Ogg: finds a span by granule positions, and decodes its packets and the one before them.
//!
//! Input: the bytes of a recording. Output: the samples of any span, equal bit for bit to the same slice of a
//! full decode. Opening walks page headers and lists the pages of the first Vorbis stream of each link. A
//! packet yields a quarter of its block and of the previous block; the first of a link yields none. The
//! packets that end on pages up to one with a granule position are a *group*: their lengths should sum to the
//! step of the granule position. So a fault affects only the spans that overlap its group, and later times
//! stay correct.
//!
//! The timeline is that of the granule positions. Some encoders and cutting tools write positions that are a
//! few samples off, which players ignore. If no page is missing and all checksums are correct, the group is
//! repaired at its end: samples beyond the position are cut, missing ones are filled with zeros, and both are
//! counted ([`Vorbis::repairs`]). If a position is off by more than a long block, or decreases, or pages are
//! lost or damaged, the group is corrupt.
//!
//! Start and end follow appendix A.2 and are no repairs. If the first group has more samples than its granule
//! position, they are cut at the start (at the end, if the stream ends there). The last granule position cuts
//! the end; beyond the last sample it is ignored. A stream that starts late starts at sample 0 here, so the
//! first group never disagrees with its position. Links of a chain with equal rate and channels are one
//! timeline; any other link ends it.
//!
//! A walk over groups visits each page and packet once. It searches at most [`MAX_BACK`] pages backwards for
//! the packet before the first group, and the pages and packets of a group are limited. So in any file the
//! steps of a span beyond its own pages and packets are bounded.
//!
//! Channels are in the order of WAV: front left, front right, center, low frequency, back, side.
//!
//! Source: Vorbis I specification, sections 1.3.2, 4.3 and appendix A; RFC 3533.

mod codebook;
mod decoder;
mod fft;
mod floor0;
mod floor1;
mod imdct;
#[cfg(test)]
mod oracle;
mod overlap;
mod reservoir;
mod residue;
mod setup;
pub(super) mod window;

use std::{ops::Range, sync::Arc};

use super::{
    Codec, DecoderCache, Info, Planes, Repairs, corrupt,
    decoder_cache::{Lent, Shelf},
    ogg::{Packet, Packets, Page, Pages},
    unsupported,
};
use crate::{Error, ErrorKind, Result};
use decoder::Decoder;
use setup::Setup;

/// Length of an identification header.
const IDENTIFICATION_LEN: usize = 30;

/// A Vorbis recording whose pages are indexed.
#[derive(Debug)]
pub struct Vorbis<'a> {
    bytes: &'a [u8],
    /// The pages of all links, link by link.
    pages: Lent<Page>,
    links: Lent<Link>,
}

/// The most headers that are cached.
const MAX_HEADERS: usize = 16;
/// The longest headers that are cached, bytes; encoders write under 10 KB.
const MAX_HEADERS_LEN: usize = 64 << 10;

/// The worker's unused vectors, and its cache of parsed headers.
#[derive(Default)]
pub(super) struct Shelves {
    pages: Shelf<Page>,
    streams: Shelf<(Page, Range<usize>)>,
    links: Shelf<Link>,
    bytes: Shelf<u8>,
    /// The last used is last.
    headers: Vec<Arc<Headers>>,
}

impl Shelves {
    /// The parsed headers: from the cache if it has equal ones, else new.
    fn headers(&mut self, identification: &[u8], setup: &[u8]) -> Result<Arc<Headers>> {
        let is_equal = |known: &Arc<Headers>| {
            known.bytes.strip_prefix(identification).is_some_and(|known| known == setup)
        };
        if let Some(found) = self.headers.iter().position(is_equal) {
            self.headers[found..].rotate_left(1);
            return Ok(self.headers[self.headers.len() - 1].clone());
        }
        let bytes = [identification, setup].concat();
        let headers = Arc::new(Headers { setup: Setup::parse(identification, setup)?, bytes });
        if headers.bytes.len() <= MAX_HEADERS_LEN {
            if self.headers.len() == MAX_HEADERS {
                self.headers.remove(0);
            }
            self.headers.push(headers.clone());
        }
        Ok(headers)
    }
}

/// The headers from which a decoder is built.
#[derive(Debug)]
struct Headers {
    /// Identification and setup header, one after the other.
    bytes: Vec<u8>,
    setup: Setup,
}

/// A recording's bytes and the pages of one of its links.
#[derive(Clone, Copy)]
struct Paged<'a> {
    bytes: &'a [u8],
    pages: &'a [Page],
}

/// One logical stream of a chain.
#[derive(Debug)]
struct Link {
    headers: Arc<Headers>,
    /// The pages with its audio; the last one has a granule position and a correct checksum.
    pages: Range<usize>,
    /// Granule position of the first packet's end; below 0 if samples are cut at the start.
    first_granule: i64,
    /// Granule positions of its first sample and after its last one.
    granules: Range<i64>,
    /// The recording's samples before it.
    begin: u64,
    /// Whether `pages` begin and end where its audio does; not in every window.
    is_start: bool,
    is_end: bool,
}

/// The most pages between a group and the start of a packet that it needs; a packet that starts further back
/// counts as lost. A page has up to 64 KiB, a packet seldom more than two pages.
const MAX_BACK: usize = 1 << 10;
/// The most pages and packets of a group. The specification requires a granule position on each page that
/// ends a packet.
const MAX_GROUP: usize = 1 << 14;

/// The most bytes of all decoders of a chain: each change of headers between links needs a new decoder.
pub(super) const MAX_CHAIN_BYTES: usize = 256 << 20;

/// Packets up to a page with a granule position.
struct Group<'a> {
    /// Indices of its pages; the last one has the granule position.
    pages: Range<usize>,
    /// Granule position of the start of its samples.
    begin: i64,
    /// Granule position of its last page.
    told: i64,
    /// The number of samples that its packets yield.
    n_samples: i64,
    /// The audio packet before it.
    before: Option<(Packet, u16)>,
    /// A walk that starts at its first packet.
    packets: Packets<'a>,
}

impl Group<'_> {
    /// The next audio packet that ends in it, with its block size.
    fn next_packet(&mut self, setup: &Setup) -> Option<(Packet, u16)> {
        next_audio(&mut self.packets, &self.pages, setup)
    }
}

/// The next audio packet that ends on `pages` and begins there, or at most [`MAX_BACK`] pages before.
fn next_audio(packets: &mut Packets<'_>, pages: &Range<usize>, setup: &Setup) -> Option<(Packet, u16)> {
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
fn is_near(packet: &Packet, first_page: usize) -> bool {
    packet.first_page() + MAX_BACK >= first_page
}

/// Walks the groups of a link in order.
struct Groups<'a> {
    setup: &'a Setup,
    pages: &'a [Page],
    packets: Packets<'a>,
    /// The first page of the next group, and the granule position of the start of its samples.
    first_page: usize,
    begin: i64,
    /// The last audio packet so far.
    before: Option<(Packet, u16)>,
}

impl<'a> Groups<'a> {
    /// A walk from the group that begins on page `first_page` of `paged`, at granule position `begin`.
    fn new(paged: Paged<'a>, setup: &'a Setup, first_page: usize, begin: i64) -> Self {
        let Paged { bytes, pages } = paged;
        let mut back = 1;
        loop {
            let from = first_page.saturating_sub(back);
            let mut this = Self {
                setup,
                pages,
                packets: Packets::new(bytes, pages, from),
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
    fn next(&mut self) -> Result<Option<Group<'a>>> {
        let first_page = self.first_page;
        let behind = self.pages.get(first_page..).unwrap_or_default();
        let endless = |page: usize| {
            corrupt(format!("more than {MAX_GROUP} Ogg pages or packets without a granule position"))
                .at_byte(self.pages[page].offset as u64)
        };
        let Some(length) = behind.iter().take(MAX_GROUP).position(|page| page.granule.is_some()) else {
            return if behind.len() > MAX_GROUP { Err(endless(first_page)) } else { Ok(None) };
        };
        let mut group = Group {
            pages: first_page..first_page + length + 1,
            begin: self.begin,
            told: behind[length].granule.unwrap_or_default(),
            n_samples: 0,
            before: self.before.filter(|(packet, _)| is_near(packet, first_page)),
            packets: self.packets.clone(),
        };
        let (mut before, mut n_packets) = (group.before, 0);
        while let Some(packet) = self.packets.next_until(first_page + length) {
            n_packets += 1;
            if n_packets > MAX_GROUP {
                return Err(endless(first_page));
            }
            if let Some(size) = self.setup.block_size(packet.first)
                && is_near(&packet, first_page)
            {
                group.n_samples += before.map_or(0, |(_, before)| yielded(before, size));
                before = Some((packet, size));
            }
        }
        // A group without packets leaves the previous packet to the next group.
        self.before = before.or(self.before);
        (self.first_page, self.begin) = (group.pages.end, group.told);
        Ok(Some(group))
    }
}

/// The number of samples that a packet of block size `size` yields after one of block size `before`.
fn yielded(before: u16, size: u16) -> i64 {
    i64::from(before / 4 + size / 4)
}

impl<'a> Vorbis<'a> {
    /// Reads the headers of every link, and lists its pages.
    ///
    /// Reads page headers, the header packets, and the first bytes of the packets of each link's first and
    /// last group.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] without a Vorbis stream, [`ErrorKind::Corrupt`] if the first link's headers
    /// are damaged, [`ErrorKind::Empty`] without samples.
    pub(super) fn open(kept: &mut DecoderCache, bytes: &'a [u8]) -> Result<Self> {
        let mut links = kept.shelves::<Shelves>().links.lend();
        let mut pages = kept.shelves::<Shelves>().pages.lend();
        let mut streams = kept.shelves::<Shelves>().streams.lend();
        list_streams(bytes, &mut streams, &mut pages);
        let mut decoder_bytes = 0;
        for (first, range) in streams.drain(..) {
            match Link::open(kept, bytes, &mut pages, &first, range) {
                Ok(mut link) => {
                    link.begin = links.last().map_or(0, Link::behind);
                    if links.first().is_some_and(|first| !first.continues_as(&link)) {
                        break;
                    }
                    if links.last().is_none_or(|last| last.headers.bytes != link.headers.bytes) {
                        decoder_bytes += link.headers.setup.decoder_bytes;
                    }
                    if decoder_bytes > MAX_CHAIN_BYTES {
                        return Err(unsupported(format!(
                            "the links of the Ogg chain need decoders of more than {} MiB together; split the recording",
                            MAX_CHAIN_BYTES >> 20
                        )));
                    }
                    links.push(link);
                }
                Err(error) if links.is_empty() => return Err(error),
                Err(_) => break,
            }
        }
        if links.is_empty() {
            return Err(unsupported(
                "the Ogg recording has no Vorbis stream; expected one that starts with \\x01vorbis",
            ));
        }
        let this = Self { bytes, pages, links };
        if this.info().n_samples == 0 {
            return Err(Error::new(ErrorKind::Empty, "the Vorbis stream has headers but no samples"));
        }
        Ok(this)
    }

    /// Rate, channels and length.
    pub fn info(&self) -> Info {
        let setup = &self.links[0].headers.setup;
        Info {
            codec: Codec::Vorbis,
            sample_rate: setup.sample_rate,
            channels: u16::from(setup.channels),
            n_samples: self.links.last().map_or(0, Link::behind),
        }
    }

    /// Counts the samples that are cut or filled by granule positions, except at start and end. Walks all
    /// packets.
    pub fn repairs(&self) -> Repairs {
        let repairs =
            |link: &Link| link.repairs(Paged { bytes: self.bytes, pages: &self.pages[link.pages.clone()] });
        self.links.iter().map(repairs).fold(Repairs::default(), |sum, link| sum + link)
    }

    /// Decodes the samples `span` of every channel into `out`, which already has their shape.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if a page or packet that the span needs is damaged or lost.
    pub(crate) fn read(&self, kept: &mut DecoderCache, span: Range<u64>, out: &mut Planes) -> Result<()> {
        let mut found = 0;
        for link in self.links.iter() {
            let (from, to) = (span.start.max(link.begin), span.end.min(link.behind()));
            if from < to {
                let at = (from - span.start) as usize;
                let paged = Paged { bytes: self.bytes, pages: &self.pages[link.pages.clone()] };
                link.read(paged, kept, from - link.begin..to - link.begin, out, at)?;
                found += to - from;
            }
        }
        if found < span.end - span.start {
            return Err(Error::new(ErrorKind::TooShort, "pages of the Vorbis stream are missing"));
        }
        Ok(())
    }
}

/// Lists the first Vorbis stream of each link: its first page, and the range of its other pages in `others`.
fn list_streams(bytes: &[u8], streams: &mut Vec<(Page, Range<usize>)>, others: &mut Vec<Page>) {
    // Whether the walk is among the link's first pages, one for each of its streams, and whether one of these
    // was Vorbis.
    let (mut in_head, mut found) = (false, false);
    for page in Pages::new(bytes) {
        if page.begins_stream() {
            if !in_head {
                (in_head, found) = (true, false);
            }
            if !found && page.body(bytes).starts_with(b"\x01vorbis") {
                found = true;
                streams.push((page, others.len()..others.len()));
            }
        } else {
            in_head = false;
            match streams.last_mut() {
                Some((first, range)) if found && first.serial == page.serial => {
                    others.push(page);
                    range.end = others.len();
                }
                _ => {}
            }
        }
    }
}

impl Link {
    /// Opens a link. `all` has the pages of all links; those of this one, without its first, are in `range`.
    fn open(
        kept: &mut DecoderCache,
        bytes: &[u8],
        all: &mut [Page],
        first: &Page,
        mut range: Range<usize>,
    ) -> Result<Self> {
        let pages = &mut all[range.clone()];
        first.check(bytes)?;
        let identification = first.body(bytes).get(..IDENTIFICATION_LEN).unwrap_or_default();
        let mut packets = Packets::new(bytes, pages, 0);
        let setup =
            packets.nth(1).ok_or_else(|| corrupt("the Vorbis stream ends before its setup header"))?;
        for page in &pages[setup.first_page()..=setup.last_page] {
            page.check(bytes)?;
        }
        let mut scratch = kept.shelves::<Shelves>().bytes.lend();
        let headers =
            kept.shelves::<Shelves>().headers(identification, setup.data(bytes, pages, &mut scratch)?)?;

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
        this.first_granule = first_granule(paged, &group);
        this.granules = this.first_granule.max(0)..0;
        this.granules.end = this.last_granule(paged)?.max(this.granules.start);
        Ok(this)
    }

    /// The groups from the one on that begins on page `first_page`.
    fn groups<'a>(&'a self, paged: Paged<'a>, first_page: usize) -> Groups<'a> {
        let begin = match first_page {
            0 => self.first_granule,
            page => paged.pages[page - 1].granule.unwrap_or_default(),
        };
        Groups::new(paged, &self.headers.setup, first_page, begin)
    }

    /// Granule position after the last sample: that of the last page, or the end of the packets if they do
    /// not reach it.
    fn last_granule(&self, paged: Paged<'_>) -> Result<i64> {
        let Paged { pages, .. } = paged;
        let first_page = first_page(pages, pages.len() - 1)?;
        let Some(group) = self.groups(paged, first_page).next()? else { return Ok(0) };
        let reached = group.begin + group.n_samples;
        let is_whole = is_whole(&pages[first_page.saturating_sub(1)..]);
        Ok(if is_whole { group.told.min(reached) } else { group.told })
    }

    fn n_samples(&self) -> u64 {
        (self.granules.end - self.granules.start) as u64
    }

    /// The recording's samples up to its end.
    fn behind(&self) -> u64 {
        self.begin + self.n_samples()
    }

    /// Whether `group` is its last one; `pages` are those in memory.
    fn is_last(&self, group: &Group<'_>, pages: &[Page]) -> bool {
        self.is_end && group.pages.end == pages.len()
    }

    /// Whether `other` is on the same timeline.
    fn continues_as(&self, other: &Self) -> bool {
        let (this, other) = (&self.headers.setup, &other.headers.setup);
        (this.channels, this.sample_rate) == (other.channels, other.sample_rate)
    }

    /// Decodes the link's samples `span` into `out` from its sample `at` on.
    fn read(
        &self,
        paged: Paged<'_>,
        kept: &mut DecoderCache,
        span: Range<u64>,
        out: &mut Planes,
        at: usize,
    ) -> Result<()> {
        let want = self.granules.start + span.start as i64..self.granules.start + span.end as i64;
        let Paged { bytes, pages } = paged;
        let (setup, scratch) = (&self.headers.setup, kept.shelves::<Shelves>().bytes.lend());
        let decoder = kept.decoder(Codec::Vorbis, &self.headers.bytes, || self.new_decoder())?;
        decoder.reset();
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
            self.check(paged, &group)?;
            let end = if self.is_last(&group, pages) { want.end } else { want.end.min(group.told) };
            let (mut position, mut before) = (group.begin, group.before);
            while position < end
                && let Some((packet, size)) = group.next_packet(setup)
            {
                let n_samples = before.map_or(0, |(_, before)| yielded(before, size));
                let wanted = position.max(want.start)..(position + n_samples).min(end);
                if let (Some((before, _)), false) = (before, wanted.is_empty()) {
                    if held != Some(before) {
                        feed.decode(&before)?;
                    }
                    feed.decode(&packet)?;
                    held = Some(packet);
                    let found = feed.decoder.n_samples();
                    if found as i64 != n_samples {
                        let message = format!("a Vorbis packet of {n_samples} samples decoded to {found}");
                        return Err(Error::new(ErrorKind::TooShort, message));
                    }
                    let from = (wanted.start - position) as usize..(wanted.end - position) as usize;
                    for channel in 0..usize::from(setup.channels) {
                        let samples = &mut out.channel_mut(channel)[place(&wanted)];
                        feed.decoder.write(channel, from.clone(), samples);
                    }
                }
                position += n_samples;
                before = Some((packet, size));
            }
            // The samples between the end of the packets and the granule position.
            let missing = position.max(want.start)..end;
            if !missing.is_empty() {
                for channel in 0..usize::from(setup.channels) {
                    out.channel_mut(channel)[place(&missing)].fill(0.0);
                }
            }
            if end == want.end {
                return Ok(());
            }
        }
    }

    /// Returns the number of samples that the packets of `group` yield beyond its granule position; below 0
    /// if they do not reach it.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if the difference cannot be repaired.
    fn check(&self, Paged { bytes, pages }: Paged<'_>, group: &Group<'_>) -> Result<i64> {
        let &Group { begin, told, n_samples, .. } = group;
        let end = begin + n_samples;
        let is_last = self.is_last(group, pages);
        if end == told || is_last && end >= self.granules.end {
            return Ok(0);
        }
        // The page with the start position of this group must also be in sequence.
        let from = group.before.map_or(group.pages.start, |(before, _)| before.last_page);
        let is_slip = !is_last
            && told >= begin
            && (end - told).unsigned_abs() <= u64::from(self.headers.setup.long_block())
            && is_whole(&pages[from.min(group.pages.start.saturating_sub(1))..group.pages.end]);
        let page = &pages[group.pages.end - 1];
        if !is_slip {
            let message = format!(
                "packets are lost or damaged: the Ogg page ends at granule position {told}, but its packets reach from {begin} to \
                 {end}"
            );
            return Err(corrupt(message).at_byte(page.offset as u64));
        }
        for page in &pages[group.pages.clone()] {
            page.check(bytes)?;
        }
        Ok(end - told)
    }

    /// Counts the samples that [`Link::read`] cuts and fills over all groups.
    fn repairs(&self, paged: Paged<'_>) -> Repairs {
        let (mut repairs, mut groups) = (Repairs::default(), self.groups(paged, 0));
        while let Ok(Some(group)) = groups.next() {
            match self.check(paged, &group) {
                Ok(0) | Err(_) => {}
                Ok(surplus) => {
                    repairs.places += 1;
                    repairs.cut += surplus.max(0) as u64;
                    repairs.filled += surplus.min(0).unsigned_abs();
                }
            }
        }
        repairs
    }

    /// Builds a decoder; returns it with its estimated bytes.
    fn new_decoder(&self) -> Result<(Decoder, usize)> {
        let Headers { bytes, setup } = &*self.headers;
        let decoder = Decoder::new(&bytes[IDENTIFICATION_LEN..], setup).map_err(|reason| {
            corrupt(format!("a decoder cannot be built from the Vorbis headers: {reason}"))
        })?;
        let bytes = decoder.bytes();
        Ok((decoder, bytes))
    }
}

/// Granule position of the first packet's end, by the first group; below 0 if samples are cut at the start.
fn first_granule(paged: Paged<'_>, group: &Group<'_>) -> i64 {
    let first = group.told - group.n_samples;
    if paged.pages[group.pages.end - 1].ends_stream() { first.max(0) } else { first }
}

/// Sets [`Page::reach`] of consecutive pages.
fn set_reach(pages: &mut [Page]) {
    let mut reach = i64::MIN;
    for page in pages {
        reach = reach.max(page.granule.unwrap_or(i64::MIN));
        page.reach = reach;
    }
}

/// The first page of the group that ends on `last_page`.
///
/// # Errors
/// [`ErrorKind::Corrupt`] if it has more than [`MAX_GROUP`] pages.
fn first_page(pages: &[Page], last_page: usize) -> Result<usize> {
    let before = pages.get(..last_page).unwrap_or_default();
    match before.iter().rev().take(MAX_GROUP).position(|page| page.granule.is_some()) {
        Some(back) => Ok(before.len() - back),
        None if before.len() < MAX_GROUP => Ok(0),
        None => Err(corrupt(format!("more than {MAX_GROUP} Ogg pages without a granule position"))),
    }
}

/// Whether no page is missing within `pages`.
fn is_whole(pages: &[Page]) -> bool {
    pages.windows(2).all(|two| two[0].precedes(&two[1]))
}

/// Feeds packets of one stream to a decoder.
struct Feed<'a, 'k> {
    bytes: &'a [u8],
    pages: &'a [Page],
    decoder: &'k mut Decoder,
    /// The page after the last one whose checksum was checked.
    checked: usize,
    scratch: Lent<u8>,
}

impl Feed<'_, '_> {
    /// Decodes one packet; the first one only primes the overlap and gives no samples.
    fn decode(&mut self, packet: &Packet) -> Result<()> {
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

#[cfg(test)]
mod tests {
    use super::{super::ogg::steps, *};

    fn file(name: &str) -> Vec<u8> {
        std::fs::read(format!("{}/tests/data/audio/vorbis/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
    }

    /// Makes a page of the stream of the page `like` with these segments.
    fn page(like: &[u8], granule: i64, sequence: usize, lacing: &[u8], body: &[u8]) -> Vec<u8> {
        let mut page = [&like[..6], &granule.to_le_bytes(), &like[14..18]].concat();
        page[5] = 0;
        page.extend((sequence as u32).to_le_bytes());
        page.extend([0; 4]);
        page.push(lacing.len() as u8);
        page.extend(lacing);
        page.extend(body);
        Page::seal(&mut page);
        page
    }

    /// Reads a recording whole, and in short spans. Returns the steps per page and packet of the whole, and
    /// its samples.
    fn steps_each(bytes: &[u8]) -> (u64, Result<u64>) {
        let pages: Vec<_> = Pages::new(bytes).collect();
        let n = pages.len() + Packets::new(bytes, &pages, 0).count();
        let mut kept = DecoderCache::default();
        steps::take();
        let vorbis = Vorbis::open(&mut kept, bytes).unwrap();
        let Info { channels, n_samples, .. } = vorbis.info();
        let mut out = Planes::new();
        out.reset(channels, n_samples as usize).unwrap();
        let whole = vorbis.read(&mut kept, 0..n_samples, &mut out).map(|()| n_samples);
        vorbis.repairs();
        let first = steps::take() / n as u64;
        // The pages that a span reads beyond its own are bounded, at any position.
        for start in (0..n_samples.saturating_sub(100)).step_by(1000) {
            let _ = vorbis.read(&mut kept, start..start + 100, &mut out);
            assert!(steps::take() < 6 * (MAX_GROUP + MAX_BACK) as u64, "the span at {start}");
        }
        (first, whole)
    }

    /// Pages on which no packet ends, with and without granule positions, and packets without audio, between
    /// those with audio.
    #[test]
    fn pages_and_packets_without_audio_are_passed_once() {
        let bytes = file("perch_16000_mono.ogg");
        let pages: Vec<_> = Pages::new(&bytes).collect();
        let middle = &pages[pages.len() / 2];
        let (front, rest) = bytes.split_at(middle.offset);
        let granule = pages[pages.len() / 2 - 1].granule.unwrap();
        let many = 3 * MAX_GROUP;
        let filler = |granule: i64, lacing: &[u8], body: &[u8]| -> Vec<u8> {
            (0..many).flat_map(|i| page(rest, granule, i, lacing, body)).collect()
        };
        for (name, filler) in [
            ("empty pages", filler(granule, &[], &[])),
            ("empty packets", filler(granule, &[0; 20], &[])),
            ("no audio", filler(granule, &[1; 10], &[1; 10])),
            ("a packet without an end", filler(granule, &[255], &[0; 255])),
            ("no position", filler(-1, &[], &[])),
            ("no position, many packets", filler(-1, &[0; 255], &[])),
        ] {
            let (steps, _) = steps_each(&[front, &filler, rest].concat());
            assert!(steps < 10, "{name}: {steps} steps for each page and packet");
        }
        let (steps, whole) = steps_each(&bytes);
        assert!(steps < 10 && whole.is_ok(), "{steps}");
    }

    /// The memory of decoders is limited for links whose headers have new codebooks each time.
    #[test]
    fn a_chain_takes_no_more_than_its_budget() {
        let bytes = file("vorbis_len_1025.ogg");
        let mut kept = DecoderCache::default();
        let one = Vorbis::open(&mut kept, &bytes).unwrap();
        let each = one.links[0].headers.setup.decoder_bytes;
        assert!(each > 10_000);
        let mut chain = Vec::new();
        for i in 0..MAX_CHAIN_BYTES / each + 2 {
            // A bitrate, which decoders ignore, makes different headers.
            let mut link = bytes.clone();
            link[28 + 16..28 + 20].copy_from_slice(&(i as u32 % 2).to_le_bytes());
            let end = Pages::new(&bytes).nth(1).unwrap().offset;
            Page::seal(&mut link[..end]);
            chain.extend(link);
        }
        let error = Vorbis::open(&mut kept, &chain).unwrap_err();
        assert!(error.kind == ErrorKind::Unsupported && error.message.contains("256 MiB"), "{error}");
    }
}
