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
//! Channels are in the order of WAV: front left, front right, center, low frequency, back, side.
//!
//! Source: Vorbis I specification, sections 1.3.2, 4.3 and appendix A; RFC 3533.

mod bits;
mod codebook;
mod decoder;
mod fft;
mod floor0;
mod floor1;
mod groups;
mod imdct;
mod index;
mod link;
#[cfg(test)]
mod oracle;
mod overlap;
mod reservoir;
mod residue;
mod setup;
pub(crate) mod window;

use std::{ops::Range, sync::Arc};

use crate::{
    Codec, DecoderCache, Error, ErrorKind, Info, Planes, Repairs, Result,
    decoder_cache::{PooledVec, VecPool},
    formats::{AnyIndex, Format, Opened},
    index_file::Parser,
    ogg::{Page, Paged, list_streams},
    read_at::RangeReader,
    unsupported,
};
pub(crate) use decoder::order as wav_order;
pub(crate) use index::VorbisIndex;
use link::{Headers, Link};
use setup::Setup;

/// Ogg whose first stream of sound is Vorbis.
#[derive(Debug)]
pub(crate) struct OggVorbis;

impl Format for OggVorbis {
    fn name(&self) -> &'static str {
        "ogg-vorbis"
    }

    fn ogg_codec(&self) -> Option<(&'static [u8], &'static str)> {
        Some((MAGIC, "Vorbis"))
    }

    fn open<'a>(&self, cache: &mut DecoderCache, reader: &mut RangeReader<'a>) -> Result<Option<Opened<'a>>> {
        VorbisIndex::open(cache, reader)
    }

    fn read_index(&self, from: &mut Parser<'_>, size: u64, info: Info) -> Option<AnyIndex> {
        VorbisIndex::read(from, size, info).map(AnyIndex::Vorbis)
    }
}

/// The pages of all links, link by link; or those in a window.
#[derive(Debug)]
pub(crate) struct Vorbis {
    pages: PooledVec<Page>,
    links: PooledVec<Link>,
}

/// The first bytes of the identification header.
const MAGIC: &[u8] = b"\x01vorbis";
/// The most headers that are cached.
const MAX_HEADERS: usize = 16;
/// The longest headers that are cached, bytes; encoders write under 10 KB.
const MAX_HEADERS_LEN: usize = 64 << 10;

/// The worker's unused vectors, and its cache of parsed headers.
#[derive(Default)]
pub(super) struct VorbisPools {
    pages: VecPool<Page>,
    streams: VecPool<(Page, Range<usize>)>,
    links: VecPool<Link>,
    bytes: VecPool<u8>,
    /// The last used is last.
    headers: Vec<Arc<Headers>>,
}

impl VorbisPools {
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

/// The lengths of packets, for containers that do not count samples.
#[derive(Debug)]
pub(crate) struct PacketLengths(Setup);

impl PacketLengths {
    /// # Errors
    /// [`ErrorKind::Corrupt`] or [`ErrorKind::Unsupported`] for headers that are not decoded.
    pub(crate) fn new(identification: &[u8], setup: &[u8]) -> Result<Self> {
        Setup::parse(identification, setup).map(Self)
    }

    pub(crate) fn sample_rate(&self) -> u32 {
        self.0.sample_rate
    }

    /// The samples of a packet with this first byte. `before` is the block size of the audio packet before
    /// it, or 0 if there is none, and becomes the block size of this packet.
    pub(crate) fn step(&self, before: &mut u16, first: Option<u8>) -> i64 {
        let Some(size) = self.0.block_size(first) else { return 0 };
        let n_samples = if *before == 0 { 0 } else { groups::yielded(*before, size) };
        *before = size;
        n_samples
    }
}

/// The most bytes of all decoders of a chain: each change of headers between links needs a new decoder.
const MAX_CHAIN_BYTES: usize = 256 << 20;

impl Vorbis {
    /// Reads the headers of every link, and lists its pages.
    ///
    /// Reads page headers, the header packets, and the first bytes of the packets of each link's first and
    /// last group.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] without a Vorbis stream, [`ErrorKind::Corrupt`] if the first link's headers
    /// are damaged, [`ErrorKind::Empty`] without samples.
    fn open(cache: &mut DecoderCache, bytes: &[u8]) -> Result<Self> {
        let mut links = cache.pools::<VorbisPools>().links.take();
        let mut pages = cache.pools::<VorbisPools>().pages.take();
        let mut streams = cache.pools::<VorbisPools>().streams.take();
        list_streams(bytes, MAGIC, &mut streams, &mut pages);
        let mut decoder_bytes = 0;
        for (first, range) in streams.drain(..) {
            match Link::open(cache, bytes, &mut pages, &first, range) {
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
        let this = Self { pages, links };
        if this.info().n_samples == 0 {
            return Err(Error::new(ErrorKind::Empty, "the Vorbis stream has headers but no samples"));
        }
        Ok(this)
    }

    fn info(&self) -> Info {
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
    fn repairs(&self, bytes: &[u8]) -> Repairs {
        let repairs = |link: &Link| link.repairs(Paged { bytes, pages: &self.pages[link.pages.clone()] });
        self.links.iter().map(repairs).fold(Repairs::default(), |sum, link| sum + link)
    }

    /// Decodes the samples `span` of every channel into `out`, which already has their shape.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if a page or packet that the span needs is damaged or lost.
    fn read(&self, cache: &mut DecoderCache, bytes: &[u8], span: Range<u64>, out: &mut Planes) -> Result<()> {
        let mut found = 0;
        for link in self.links.iter() {
            let (from, to) = (span.start.max(link.begin), span.end.min(link.behind()));
            if from < to {
                let at = (from - span.start) as usize;
                let paged = Paged { bytes, pages: &self.pages[link.pages.clone()] };
                link.read(paged, cache, from - link.begin..to - link.begin, out, at)?;
                found += to - from;
            }
        }
        if found < span.end - span.start {
            return Err(Error::new(ErrorKind::TooShort, "pages of the Vorbis stream are missing"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{groups::MAX_BACK, *};
    use crate::ogg::{MAX_GROUP, OggPackets, OggPages, steps};

    fn file(name: &str) -> Vec<u8> {
        std::fs::read(format!(
            "{}/tests/data/audio/vorbis/{name}",
            concat!(env!("CARGO_MANIFEST_DIR"), "/../..")
        ))
        .unwrap()
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
        let pages: Vec<_> = OggPages::new(bytes).collect();
        let n = pages.len() + OggPackets::new(bytes, &pages, 0).count();
        let mut cache = DecoderCache::default();
        steps::take();
        let vorbis = Vorbis::open(&mut cache, bytes).unwrap();
        let Info { channels, n_samples, .. } = vorbis.info();
        let mut out = Planes::new();
        out.reset(channels, n_samples as usize).unwrap();
        let whole = vorbis.read(&mut cache, bytes, 0..n_samples, &mut out).map(|()| n_samples);
        vorbis.repairs(bytes);
        let first = steps::take() / n as u64;
        // The pages that a span reads beyond its own are bounded, at any position.
        for start in (0..n_samples.saturating_sub(100)).step_by(1000) {
            let _ = vorbis.read(&mut cache, bytes, start..start + 100, &mut out);
            assert!(steps::take() < 6 * (MAX_GROUP + MAX_BACK) as u64, "the span at {start}");
        }
        (first, whole)
    }

    /// Pages on which no packet ends, with and without granule positions, and packets without audio,
    /// between those with audio.
    #[test]
    fn pages_and_packets_without_audio_are_passed_once() {
        let bytes = file("perch_16000_mono.ogg");
        let pages: Vec<_> = OggPages::new(&bytes).collect();
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
        let mut cache = DecoderCache::default();
        let one = Vorbis::open(&mut cache, &bytes).unwrap();
        let each = one.links[0].headers.setup.decoder_bytes;
        assert!(each > 10_000);
        let mut chain = Vec::new();
        for i in 0..MAX_CHAIN_BYTES / each + 2 {
            // A bitrate, which decoders ignore, makes different headers.
            let mut link = bytes.clone();
            link[28 + 16..28 + 20].copy_from_slice(&(i as u32 % 2).to_le_bytes());
            let end = OggPages::new(&bytes).nth(1).unwrap().offset;
            Page::seal(&mut link[..end]);
            chain.extend(link);
        }
        let error = Vorbis::open(&mut cache, &chain).unwrap_err();
        assert!(error.kind == ErrorKind::Unsupported && error.message.contains("256 MiB"), "{error}");
    }
}
