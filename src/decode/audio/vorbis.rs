//! Vorbis in Ogg: the span is found by granule positions, and its packets are decoded with one before them.
//!
//! In go the bytes of a recording; out come the samples of any span, equal bit for bit to the same slice of a full decode.
//! Opening walks page headers and lists the pages of the first Vorbis stream of each link. A packet yields a quarter of
//! its block and of the block before; the first of a link yields none. What ends on pages up to one with a granule
//! position is a *group*: its packets' lengths must sum to the step of the granule position, or samples were lost and the
//! group is corrupt. So a fault condemns only the spans that touch it, and times behind it stay true.
//!
//! Start and end follow appendix A.2: if the first group holds more samples than its granule position tells, they are cut
//! off in front (behind, if the stream ends there); the last granule position cuts off the end. A stream that starts
//! late starts at sample 0 here. Links of a chain with equal rate and channels are one timeline; any other link ends it.
//!
//! Channels come in the order of WAV: front left, front right, center, low frequency, back, side.
//!
//! Source: Vorbis I specification, sections 1.3.2, 4.3 and appendix A; RFC 3533.

mod setup;

use std::{ops::Range, sync::Arc};

use symphonia::{
    core::{
        audio::{Audio, AudioBuffer, GenericAudioBufferRef},
        codecs::audio::{
            AudioCodecParameters, AudioDecoder, AudioDecoderOptions, well_known::CODEC_ID_VORBIS,
        },
        packet::PacketRef,
        units::{Duration, Timestamp},
    },
    default::codecs::VorbisDecoder,
};

use super::{
    Codec, Info, Kept, Planes, corrupt,
    kept::{Lent, Shelf},
    ogg::{Packet, Packets, Page, Pages},
    unsupported,
};
use crate::{Error, ErrorKind, Result};
use setup::Setup;

/// Length of an identification header.
const IDENTIFICATION_LEN: usize = 30;

/// A Vorbis recording whose pages are indexed.
#[derive(Debug)]
pub struct Vorbis<'a> {
    bytes: &'a [u8],
    /// The pages of all links, one link's after the other's.
    pages: Lent<Page>,
    links: Lent<Link>,
}

/// Headers that are remembered at most.
const MAX_HEADERS: usize = 16;
/// Longer headers are not remembered; encoders write under 10 KB.
const MAX_HEADERS_LEN: usize = 64 << 10;

/// What the worker keeps: the vectors of an index, and the headers met last.
#[derive(Default)]
pub(super) struct Shelves {
    pages: Shelf<Page>,
    streams: Shelf<(Page, Range<usize>)>,
    links: Shelf<Link>,
    packets: Shelf<(Packet, u16)>,
    bytes: Shelf<u8>,
    /// Latest use last.
    headers: Vec<Arc<Headers>>,
}

impl Shelves {
    /// The parsed headers: remembered, if equal ones were met lately, or new.
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

/// What a decoder is made of.
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
    /// Which pages have its audio; the last one has a granule position and a checksum that holds.
    pages: Range<usize>,
    /// Granule position of the first packet's end; below 0 if samples are cut off in front.
    first_granule: i64,
    /// Granule positions of its first and behind its last sample.
    granules: Range<i64>,
}

/// Packets up to a page with a granule position.
struct Group {
    /// Index of the page with the granule position.
    last_page: usize,
    /// Granule position where its samples begin.
    begin: i64,
    /// Audio packets that end in it, with their block sizes.
    packets: Lent<(Packet, u16)>,
    /// The audio packet before it.
    before: Option<(Packet, u16)>,
}

impl Group {
    fn new(kept: &Kept) -> Self {
        Self { last_page: 0, begin: 0, packets: kept.vorbis.packets.lend(), before: None }
    }

    /// Samples that its packets yield.
    fn n_samples(&self) -> i64 {
        let mut before = self.before.as_ref().map(|&(_, size)| size);
        let mut n_samples = 0;
        for &(_, size) in self.packets.iter() {
            n_samples += before.map_or(0, |before| yielded(before, size));
            before = Some(size);
        }
        n_samples
    }
}

/// Samples that a packet of block size `size` yields behind one of block size `before`.
fn yielded(before: u16, size: u16) -> i64 {
    i64::from(before / 4 + size / 4)
}

impl<'a> Vorbis<'a> {
    /// Reads the headers of every link and lists its pages.
    ///
    /// Reads page headers, the header packets, and the first bytes of the packets of each link's first and last group.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] without a Vorbis stream, [`ErrorKind::Corrupt`] if the first link's headers are
    /// damaged, [`ErrorKind::Empty`] without samples.
    pub(super) fn open(kept: &mut Kept, bytes: &'a [u8]) -> Result<Self> {
        let mut links = kept.vorbis.links.lend();
        let mut pages = kept.vorbis.pages.lend();
        let mut streams = kept.vorbis.streams.lend();
        list_streams(bytes, &mut streams, &mut pages);
        for (first, range) in streams.drain(..) {
            match Link::open(kept, Paged { bytes, pages: &pages }, &first, range) {
                Ok(link) => {
                    if links.first().is_some_and(|first| !first.continues_as(&link)) {
                        break;
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
            n_samples: self.links.iter().map(Link::n_samples).sum(),
        }
    }

    /// Decodes the samples `span` of every channel into `out`, which has their shape already.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if a page or packet that the span needs is damaged or lost.
    pub(crate) fn read(&self, kept: &mut Kept, span: Range<u64>, out: &mut Planes) -> Result<()> {
        let mut begin = 0;
        for link in self.links.iter() {
            let end = begin + link.n_samples();
            let (from, to) = (span.start.max(begin), span.end.min(end));
            if from < to {
                let at = (from - span.start) as usize;
                let paged = Paged { bytes: self.bytes, pages: &self.pages[link.pages.clone()] };
                link.read(paged, kept, from - begin..to - begin, out, at)?;
            }
            begin = end;
        }
        Ok(())
    }
}

/// Lists the first Vorbis stream of each link: its first page, and where in `others` its other pages are.
fn list_streams(bytes: &[u8], streams: &mut Vec<(Page, Range<usize>)>, others: &mut Vec<Page>) {
    // Whether the link's first pages, one for each of its streams, are still coming, and whether one was of ours.
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
    /// `all` has the pages of all links, those of this one, without its first, in `range`.
    fn open(kept: &mut Kept, all: Paged<'_>, first: &Page, mut range: Range<usize>) -> Result<Self> {
        let Paged { bytes, .. } = all;
        let pages = &all.pages[range.clone()];
        first.check(bytes)?;
        let identification = first.body(bytes).get(..IDENTIFICATION_LEN).unwrap_or_default();
        let mut packets = Packets::new(bytes, pages, 0);
        let setup =
            packets.nth(1).ok_or_else(|| corrupt("the Vorbis stream ends before its setup header"))?;
        for page in &pages[setup.first_page()..=setup.last_page] {
            page.check(bytes)?;
        }
        let mut scratch = kept.vorbis.bytes.lend();
        let headers = kept.vorbis.headers(identification, setup.data(bytes, pages, &mut scratch))?;

        let audio = &pages[setup.last_page + 1..];
        let is_last = |page: &Page| page.granule.is_some() && page.is_sound(bytes);
        let n_pages = audio.iter().rposition(is_last).map_or(0, |last| last + 1);
        let paged = Paged { bytes, pages: &audio[..n_pages] };
        range.start += setup.last_page + 1;
        range.end = range.start + n_pages;
        let mut this = Self { headers, pages: range, first_granule: 0, granules: 0..0 };
        let mut group = Group::new(kept);
        if !this.load(paged, 0, &mut group) {
            return Ok(this);
        }
        let last = &paged.pages[group.last_page];
        this.first_granule = last.granule.unwrap_or_default() - group.n_samples();
        if last.ends_stream() {
            this.first_granule = this.first_granule.max(0);
        }
        this.granules = this.first_granule.max(0)..0;
        this.granules.end = this.last_granule(paged, &mut group).max(this.granules.start);
        Ok(this)
    }

    /// Granule position behind the last sample: the last one told, if the packets reach that far.
    fn last_granule(&self, paged: Paged<'_>, group: &mut Group) -> i64 {
        let Paged { pages, .. } = paged;
        let Some(last) = pages.last() else { return 0 };
        let told = last.granule.unwrap_or_default();
        let first_page = first_page(pages, pages.len() - 1);
        self.load(paged, first_page, group);
        let reached = group.begin + group.n_samples();
        let is_whole = pages[first_page.saturating_sub(1)..].windows(2).all(|two| two[0].precedes(&two[1]));
        if is_whole { told.min(reached) } else { told }
    }

    fn n_samples(&self) -> u64 {
        (self.granules.end - self.granules.start) as u64
    }

    /// Whether `other` is on the same timeline.
    fn continues_as(&self, other: &Self) -> bool {
        let (this, other) = (&self.headers.setup, &other.headers.setup);
        (this.channels, this.sample_rate) == (other.channels, other.sample_rate)
    }

    /// Puts the group that the page `first_page` begins into `group`; false if the link ends before.
    fn load(&self, Paged { bytes, pages }: Paged<'_>, first_page: usize, group: &mut Group) -> bool {
        let behind = pages.get(first_page..).unwrap_or_default();
        let Some(length) = behind.iter().position(|page| page.granule.is_some()) else { return false };
        group.last_page = first_page + length;
        group.begin = match first_page {
            0 => self.first_granule,
            page => pages[page - 1].granule.unwrap_or_default(),
        };
        let mut back = 1;
        loop {
            let from = first_page.saturating_sub(back);
            group.before = None;
            group.packets.clear();
            for packet in Packets::new(bytes, &pages[..=group.last_page], from) {
                let Some(size) = self.headers.setup.block_size(packet.first) else { continue };
                if packet.last_page < first_page {
                    group.before = Some((packet, size));
                } else {
                    group.packets.push((packet, size));
                }
            }
            // The packet before may begin pages earlier.
            if group.before.is_some() || from == 0 {
                return true;
            }
            back *= 2;
        }
    }

    /// Decodes the link's samples `span` into `out` from its sample `at` on.
    fn read(
        &self,
        paged: Paged<'_>,
        kept: &mut Kept,
        span: Range<u64>,
        out: &mut Planes,
        at: usize,
    ) -> Result<()> {
        let want = self.granules.start + span.start as i64..self.granules.start + span.end as i64;
        let Paged { bytes, pages } = paged;
        let (mut group, scratch) = (Group::new(kept), kept.vorbis.bytes.lend());
        let decoder = kept.decoder(Codec::Vorbis, &self.headers.bytes, || self.new_decoder())?;
        decoder.reset();
        let mut feed = Feed { bytes, pages, decoder, checked: 0, scratch };
        let mut is_primed = false;

        let is_behind = |page: &Page| page.granule.is_some_and(|granule| granule > want.start);
        let last_page = pages.iter().position(is_behind).unwrap_or_default();
        let mut first_page = first_page(pages, last_page);
        let mut position = want.start;
        while position < want.end {
            if !self.load(paged, first_page, &mut group) {
                return Err(Error::new(ErrorKind::TooShort, "the Vorbis stream ends before its last sample"));
            }
            self.check(pages, &group)?;
            position = group.begin;
            let mut before = group.before;
            for &(packet, size) in group.packets.iter() {
                let n_samples = before.map_or(0, |(_, before)| yielded(before, size));
                let wanted = position.max(want.start)..(position + n_samples).min(want.end);
                if let (Some((before, _)), false) = (before, wanted.is_empty()) {
                    if !is_primed {
                        feed.decode(&before)?;
                        is_primed = true;
                    }
                    let samples = feed.decode(&packet)?;
                    if samples.frames() as i64 != n_samples {
                        let message =
                            format!("a Vorbis packet of {n_samples} samples gave {}", samples.frames());
                        return Err(Error::new(ErrorKind::TooShort, message));
                    }
                    let from = (wanted.start - position) as usize..(wanted.end - position) as usize;
                    let to =
                        at + (wanted.start - want.start) as usize..at + (wanted.end - want.start) as usize;
                    for channel in 0..usize::from(self.headers.setup.channels) {
                        let plane = samples.plane(channel).unwrap_or_default();
                        out.channel_mut(channel)[to.clone()].copy_from_slice(&plane[from.clone()]);
                    }
                }
                position += n_samples;
                before = Some((packet, size));
            }
            first_page = group.last_page + 1;
        }
        Ok(())
    }

    /// # Errors
    /// [`ErrorKind::Corrupt`] if the packets of `group` do not fill the step of the granule position.
    fn check(&self, pages: &[Page], group: &Group) -> Result<()> {
        let page = &pages[group.last_page];
        let end = group.begin + group.n_samples();
        let is_last = group.last_page + 1 == pages.len();
        if page.granule == Some(end) || is_last && end >= self.granules.end {
            return Ok(());
        }
        let (told, begin) = (page.granule.unwrap_or_default(), group.begin);
        let message = format!(
            "packets are lost or damaged: the Ogg page ends at granule position {told}, its packets reach from {begin} to {end}"
        );
        Err(corrupt(message).at_byte(page.offset as u64))
    }

    /// A decoder and the bytes it holds.
    fn new_decoder(&self) -> Result<(Box<dyn AudioDecoder>, usize)> {
        let Headers { bytes, setup } = &*self.headers;
        let mut headers = bytes.clone();
        setup.reverse_couplings(&mut headers[IDENTIFICATION_LEN..]);
        let mut parameters = AudioCodecParameters::new();
        parameters
            .for_codec(CODEC_ID_VORBIS)
            .with_sample_rate(setup.sample_rate)
            .with_extra_data(headers.into_boxed_slice());
        let decoder = VorbisDecoder::try_new(&parameters, &AudioDecoderOptions::default())
            .map_err(|error| corrupt("the Vorbis headers do not make a decoder").because(error))?;
        Ok((Box::new(decoder), setup.decoder_bytes))
    }
}

/// The first page of the group that ends on `last_page`.
fn first_page(pages: &[Page], last_page: usize) -> usize {
    pages[..last_page].iter().rposition(|page| page.granule.is_some()).map_or(0, |page| page + 1)
}

/// Feeds packets of one stream to a decoder.
struct Feed<'a, 'k> {
    bytes: &'a [u8],
    pages: &'a [Page],
    decoder: &'k mut dyn AudioDecoder,
    /// The page behind the last one whose checksum was looked at.
    checked: usize,
    scratch: Lent<u8>,
}

impl Feed<'_, '_> {
    /// Decodes one packet; the first one only primes the overlap and gives no samples.
    fn decode(&mut self, packet: &Packet) -> Result<&AudioBuffer<f32>> {
        for page in &self.pages[self.checked.max(packet.first_page())..=packet.last_page] {
            page.check(self.bytes)?;
        }
        self.checked = packet.last_page + 1;
        let data = packet.data(self.bytes, self.pages, &mut self.scratch);
        let offset = self.pages[packet.last_page].offset as u64;
        let samples = self
            .decoder
            .decode_ref(&PacketRef::new(0, Timestamp::ZERO, Duration::ZERO, data))
            .map_err(|error| corrupt("a Vorbis packet cannot be decoded").at_byte(offset).because(error))?;
        match samples {
            GenericAudioBufferRef::F32(samples) => Ok(samples),
            _ => Err(unsupported("the Vorbis decoder gave samples that are not float32")),
        }
    }
}
