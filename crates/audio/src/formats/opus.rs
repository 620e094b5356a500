//! Opus in Ogg: finds a span by granule positions, and decodes its packets and 400 ms of packets before them.
//!
//! Input: the bytes of a recording. Output: the samples of any span, at 48 kHz whatever rate the encoder was
//! given, with the header's output gain applied. Opening walks page headers and lists the pages of the first
//! Opus stream of each link. The packets that end on pages up to one with a granule position are a *group*:
//! their durations should sum to the step of the granule position. So a fault affects only the spans that
//! overlap its group, and later times stay correct.
//!
//! **A span is a pure function of the bytes and the span**: a new decoder starts at the first packet that
//! ends less than [`PRE_ROLL`] before the span, or at the start of the stream. It is not a slice of a full
//! decode bit for bit, since an Opus decoder depends on all packets before. After the pre-roll CELT differs
//! by at most 1e-5. The prediction filters of SILK (also within hybrid packets) forget their rounding only in
//! silence and noise: there the difference is 0 or up to 0.012 at 6 kbit/s, as in libopus.
//!
//! The timeline is that of the granule positions, with the same rules as for Vorbis: a group that is at most
//! the longest packet (120 ms) off is repaired at its end and counted, one that is further off is corrupt.
//! Pre-skip cuts the start, the last granule position the end. A stream that starts late starts at sample 0
//! here. Links of a chain with equal channels are one timeline; any other link ends it.
//!
//! Channels of mapping families 0 and 1 are in the order of WAV, those of family 255 in the file's order.
//!
//! Source: RFC 7845; RFC 6716, section 3 and appendix B. The decoder is the crate rusty-opus, by evidence in
//! `docs/decisions.md`.

mod decoder;
mod head;
mod index;
mod link;
mod packet;

use std::ops::Range;

use crate::{
    DecoderCache, Error, ErrorKind, Info, Planes, Repairs, Result, corrupt,
    decoder_cache::{PooledVec, VecPool},
    formats::{AnyIndex, Format, Opened},
    index_file::Parser,
    ogg::{Page, Paged, list_streams},
    read_at::RangeReader,
    unsupported,
};
use index::OpusIndex;
use link::Link;

/// The samples before a span that are decoded and dropped, 400 ms; RFC 7845, section 4.6 asks for 80 ms at
/// least. The energies of CELT are predicted from the frame before: a start without them is off by up to 0.1
/// after 80 ms, by 4e-4 after 240 ms, by 1e-5 after 400 ms.
const PRE_ROLL: u64 = 19_200;
/// The first bytes of the identification header.
const MAGIC: &[u8] = b"OpusHead";
pub(crate) const SAMPLE_RATE: u32 = 48_000;

/// Ogg whose first stream of sound is Opus.
#[derive(Debug)]
pub(crate) struct OggOpus;

impl Format for OggOpus {
    fn name(&self) -> &'static str {
        "ogg-opus"
    }

    fn ogg_codec(&self) -> Option<(&'static [u8], &'static str)> {
        Some((MAGIC, "Opus"))
    }

    fn open<'a>(&self, cache: &mut DecoderCache, reader: &mut RangeReader<'a>) -> Result<Option<Opened<'a>>> {
        OpusIndex::open(cache, reader)
    }

    fn read_index(&self, from: &mut Parser<'_>, size: u64, info: Info) -> Option<AnyIndex> {
        OpusIndex::read(from, size, info).map(|index| AnyIndex::Boxed(Box::new(index)))
    }
}

/// The samples of a packet by its first two bytes, at 48 kHz; 0 if no packet begins so.
pub(crate) fn packet_samples(head: &[u8]) -> i64 {
    packet::samples(head).map_or(0, |n| n as i64)
}

/// The worker's unused vectors.
#[derive(Default)]
struct OpusPools {
    pages: VecPool<Page>,
    streams: VecPool<(Page, Range<usize>)>,
    links: VecPool<Link>,
    bytes: VecPool<u8>,
}

/// The pages of all links, link by link; or those in a window.
#[derive(Debug)]
struct Opus {
    pages: PooledVec<Page>,
    links: PooledVec<Link>,
}

impl Opus {
    /// Reads the headers of every link, and lists its pages.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] without an Opus stream or with one of a mapping that is not decoded,
    /// [`ErrorKind::Corrupt`] if the first link's header is damaged or its length is impossible,
    /// [`ErrorKind::Empty`] without samples.
    fn open(cache: &mut DecoderCache, bytes: &[u8]) -> Result<Self> {
        let mut links = cache.pools::<OpusPools>().links.take();
        let mut pages = cache.pools::<OpusPools>().pages.take();
        let mut streams = cache.pools::<OpusPools>().streams.take();
        list_streams(bytes, MAGIC, &mut streams, &mut pages);
        for page in pages.iter_mut() {
            drop_false_position(page, bytes);
        }
        for (first, range) in streams.drain(..) {
            match Link::open(bytes, &mut pages, &first, range) {
                Ok(mut link) => {
                    link.begin = links.last().map_or(0, Link::behind);
                    if links.first().is_some_and(|first| first.head.channels != link.head.channels) {
                        break;
                    }
                    links.push(link);
                }
                Err(error) if links.is_empty() => return Err(error),
                Err(_) => break,
            }
        }
        let Some(last) = links.last() else { return Err(no_stream()) };
        check_length(last.behind(), bytes.len() as u64)?;
        Ok(Self { pages, links })
    }

    fn info(&self) -> Info {
        self.links[0].head.info(self.links.last().map_or(0, Link::behind))
    }

    fn paged<'a>(&'a self, bytes: &'a [u8], link: &Link) -> Paged<'a> {
        Paged { bytes, pages: &self.pages[link.pages.clone()] }
    }

    /// Counts the samples that are cut or filled by granule positions, except at start and end. Walks all
    /// packets.
    fn repairs(&self, bytes: &[u8]) -> Repairs {
        let repairs = |link: &Link| link.repairs(self.paged(bytes, link));
        self.links.iter().map(repairs).fold(Repairs::default(), |sum, link| sum + link)
    }

    /// Decodes the samples `span` of every channel into `out`, which already has their shape.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if a page or packet of the span is damaged or lost.
    fn read(&self, cache: &mut DecoderCache, bytes: &[u8], span: Range<u64>, out: &mut Planes) -> Result<()> {
        let mut found = 0;
        for link in self.links.iter() {
            let (from, to) = (span.start.max(link.begin), span.end.min(link.behind()));
            if from < to {
                let at = (from - span.start) as usize;
                let paged = self.paged(bytes, link);
                link.read(paged, cache, from - link.begin..to - link.begin, out, at)?;
                found += to - from;
            }
        }
        if found < span.end - span.start {
            return Err(Error::new(ErrorKind::TooShort, "pages of the Opus stream are missing"));
        }
        Ok(())
    }
}

/// Decodes any packets, of which the first is the head if it can be one. Each part of a packet is within it,
/// and has the samples that its first bytes declare.
#[cfg(any(test, fuzzing))]
pub(crate) fn any_packets(packets: &[Vec<u8>]) {
    let head = packets.first().and_then(|packet| head::Head::parse(packet).ok());
    let Ok(head) = head.map_or_else(|| head::Head::parse(b"OpusHead\x01\x02\0\0\0\0\0\0\0\0\0"), Ok) else {
        return;
    };
    let Ok(mut decoder) = decoder::Decoder::new(&head) else { return };
    let mut out = vec![0.0; packet::MAX_SAMPLES];
    for packet in packets {
        for is_delimited in [false, true] {
            let Some((frames, rest)) = packet::Frames::parse(packet, is_delimited) else { continue };
            let (n, len) = frames.iter().fold((0, 0), |(n, len), frame| (n + 1, len + frame.len()));
            assert!(len + rest.len() < packet.len() && (is_delimited || rest.is_empty()));
            assert_eq!(packet::samples(packet), Some(n * frames.samples));
        }
        let Some(samples) = packet::samples(packet) else { continue };
        assert!((1..=packet::MAX_SAMPLES).contains(&samples));
        // A panic of the decoder would be caught; here it is a finding.
        if decoder.decode(packet, samples).is_err() {
            continue;
        }
        for place in 0..usize::from(head.channels) {
            decoder.write(&head, place, 0..samples, &mut out[..samples]);
        }
    }
}

/// Makes a file of at least `n_samples` from the packets of `bytes`, over and over, in pages of some 4 KB
/// with right positions and checksums.
#[cfg(test)]
pub(crate) fn repeated(bytes: &[u8], n_samples: i64) -> Vec<u8> {
    use crate::ogg::{OggPackets, OggPages, append_repeated};

    let pages: Vec<Page> = OggPages::new(bytes).collect();
    let mut packets = OggPackets::new(bytes, &pages, 0);
    let mut scratch = Vec::new();
    let tags = packets.nth(1).unwrap();
    let mut out = bytes[..pages[tags.last_page].end()].to_vec();
    let audio: Vec<(Vec<u8>, usize)> = packets
        .map(|packet| packet.data(bytes, &pages, &mut scratch).unwrap().to_vec())
        .filter_map(|data| packet::samples(&data).map(|samples| (data, samples)))
        .collect();
    append_repeated(&mut out, &pages[tags.last_page], &audio, n_samples, |_, samples| *samples as i64);
    out
}

/// Drops the granule position of a page on which no packet ends: it has none by RFC 3533.
fn drop_false_position(page: &mut Page, bytes: &[u8]) {
    if !page.ends_packet(bytes) {
        page.granule = None;
    }
}

fn no_stream() -> Error {
    unsupported("the Ogg recording has no Opus stream; expected one that starts with OpusHead")
}

/// Checks a length that granule positions claim against the bytes: a packet of one byte and its length has up
/// to 120 ms.
///
/// # Errors
/// [`ErrorKind::Corrupt`] or [`ErrorKind::Empty`].
fn check_length(n_samples: u64, n_bytes: u64) -> Result<()> {
    if n_samples == 0 {
        return Err(Error::new(ErrorKind::Empty, "the Opus stream has headers but no samples"));
    }
    if n_samples > n_bytes.saturating_mul(packet::MAX_SAMPLES as u64) {
        return Err(corrupt(format!(
            "the granule positions of the Opus stream claim {n_samples} samples, more than {n_bytes} bytes can hold"
        )));
    }
    Ok(())
}
