//! Links whose pages are in a file: opened by the bytes at their start and end, and read in windows of pages.
//!
//! A window gives the same samples as the whole: each group of pages is decoded from the granule position
//! before it and the packet before it, and both are in the window.
//!
//! Source: as [`super`].

use std::{ops::Range, sync::Arc};

use super::{
    Codec, MAGIC, Vorbis, VorbisPools,
    groups::Groups,
    link::{Headers, IDENTIFICATION_LEN, Link},
    setup::Setup,
};
use crate::{
    DecoderCache, Info, Result, corrupt,
    ogg::{OggPackets, OggPages, Page, Paged, first_page, list_streams, set_reach},
};

#[derive(Debug, Clone)]
pub(crate) struct LinkPlace {
    pub(crate) serial: u32,
    headers: Arc<Headers>,
    first_granule: i64,
    granules: Range<i64>,
    /// The recording's samples before it.
    pub(crate) begin: u64,
    /// The bytes of its audio: from the first page to the end of the last one with a granule position and a
    /// correct checksum.
    pub(crate) bytes: Range<u64>,
    /// Sequence numbers of these two pages.
    pub(crate) sequences: Range<u32>,
}

/// What a window holds: the first and the last sample that can be decoded, each with the byte from which on
/// it can.
pub(crate) type Ends = [(u64, u64); 2];

impl LinkPlace {
    /// Reads a link's headers and its first group from the bytes at its start; None if these are too few.
    /// `is_end` says whether the recording ends with `bytes`, which begin at byte `at`.
    ///
    /// # Errors
    /// As [`Vorbis::open`].
    pub(crate) fn head(
        cache: &mut DecoderCache,
        bytes: &[u8],
        at: u64,
        is_end: bool,
    ) -> Result<Option<Self>> {
        let mut all = cache.pools::<VorbisPools>().pages.take();
        let mut streams = cache.pools::<VorbisPools>().streams.take();
        list_streams(bytes, MAGIC, &mut streams, &mut all);
        let is_end = is_end || streams.len() > 1;
        let Some((first, range)) = streams.first() else {
            let none = "the Ogg recording has no Vorbis stream; expected one that starts with \\x01vorbis";
            return if is_end { Err(super::unsupported(none)) } else { Ok(None) };
        };
        let pages = &all[range.clone()];
        first.check(bytes)?;
        let identification = first.body(bytes).get(..IDENTIFICATION_LEN).unwrap_or_default();
        let Some(setup) = OggPackets::new(bytes, pages, 0).nth(1) else {
            let short = "the Vorbis stream ends before its setup header";
            return if is_end { Err(corrupt(short)) } else { Ok(None) };
        };
        for page in &pages[setup.first_page()..=setup.last_page] {
            page.check(bytes)?;
        }
        let mut scratch = cache.pools::<VorbisPools>().bytes.take();
        let headers =
            cache.pools::<VorbisPools>().headers(identification, setup.data(bytes, pages, &mut scratch)?)?;
        let audio = &pages[setup.last_page + 1..];
        let mut this = Self {
            serial: first.serial,
            headers,
            first_granule: 0,
            granules: 0..0,
            begin: 0,
            bytes: at..at,
            sequences: 0..0,
        };
        let Some(page) = audio.first() else { return Ok(is_end.then_some(this)) };
        this.bytes.start = at + page.offset as u64;
        this.sequences.start = page.sequence;
        let paged = Paged { bytes, pages: audio };
        let Some(group) = Groups::new(paged, &this.headers.setup, 0, 0).next()? else {
            return Ok(is_end.then_some(this));
        };
        this.first_granule = group.claim.first_granule(paged.pages);
        Ok(Some(this))
    }

    /// Sets the end by the last bytes of the link, which begin at byte `at`; false if these are too few.
    ///
    /// # Errors
    /// As [`Vorbis::open`].
    pub(crate) fn tail(&mut self, cache: &mut DecoderCache, bytes: &[u8], at: u64) -> Result<bool> {
        let mut pages = cache.pools::<VorbisPools>().pages.take();
        let is_ours = |page: &Page| page.serial == self.serial && at + page.offset as u64 >= self.bytes.start;
        pages.extend(OggPages::new(bytes).filter(is_ours).filter(|page| !page.begins_stream()));
        let is_start = at <= self.bytes.start;
        let is_last = |page: &Page| page.granule.is_some() && page.is_sound(bytes);
        let Some(last) = pages.iter().rposition(is_last) else {
            // A link without audio has no samples.
            self.granules = 0..0;
            self.bytes.end = self.bytes.start;
            return Ok(is_start);
        };
        let pages = &pages[..=last];
        let first_page = first_page(pages, last)?;
        let begin = match first_page.checked_sub(1) {
            Some(before) => pages[before].granule.unwrap_or_default(),
            None if is_start => self.first_granule,
            None => return Ok(false),
        };
        let mut groups = Groups::new(Paged { bytes, pages }, &self.headers.setup, first_page, begin);
        if groups.before.is_none() && !is_start {
            return Ok(false);
        }
        let end = groups.next()?.map_or(0, |group| group.claim.last_granule(pages));
        let start = self.first_granule.max(0);
        self.granules = start..end.max(start);
        self.bytes.end = at + pages[last].end() as u64;
        self.sequences.end = pages[last].sequence;
        Ok(true)
    }

    /// Identification and setup header, one after the other.
    pub(crate) fn headers(&self) -> &[u8] {
        &self.headers.bytes
    }

    /// Granule positions of the first packet's end, of the first sample, and after the last one.
    pub(crate) fn granules(&self) -> [i64; 3] {
        [self.first_granule, self.granules.start, self.granules.end]
    }

    /// A link of these parts; `before` is the one before it. None if they contradict each other.
    pub(crate) fn of_parts(
        before: Option<&Self>,
        headers: &[u8],
        granules: [i64; 3],
        serial: u32,
        bytes: Range<u64>,
        sequences: Range<u32>,
    ) -> Option<Self> {
        let headers = match before {
            Some(before) if before.headers.bytes == headers => before.headers.clone(),
            _ => {
                let (identification, rest) = headers.split_at_checked(IDENTIFICATION_LEN)?;
                let setup = Setup::parse(identification, rest).ok()?;
                Arc::new(Headers { bytes: headers.to_vec(), setup })
            }
        };
        let limit = 1i64 << 61;
        let [first_granule, start, end] = granules;
        let is_valid = granules.iter().all(|granule| (-limit..=limit).contains(granule))
            && start == first_granule.max(0)
            && start <= end
            && bytes.start <= bytes.end;
        let begin = match before {
            Some(before) => before.begin.checked_add(before.n_samples())?,
            None => 0,
        };
        is_valid.then_some(Self {
            serial,
            headers,
            first_granule,
            granules: start..end,
            begin,
            bytes,
            sequences,
        })
    }

    pub(crate) fn n_samples(&self) -> u64 {
        (self.granules.end - self.granules.start) as u64
    }

    /// Whether `other` is on the same timeline.
    pub(crate) fn continues_as(&self, other: &Self) -> bool {
        let (this, other) = (&self.headers.setup, &other.headers.setup);
        (this.channels, this.sample_rate) == (other.channels, other.sample_rate)
    }

    /// Bytes of the decoder, if it is another one than that of `before`.
    pub(crate) fn decoder_bytes(&self, before: Option<&Self>) -> usize {
        match before {
            Some(before) if before.headers.bytes == self.headers.bytes => 0,
            _ => self.headers.setup.decoder_bytes,
        }
    }

    pub(crate) fn headers_len(&self) -> usize {
        self.headers.bytes.len()
    }

    /// Rate and channels, and the length of a recording of `n_samples`.
    pub(crate) fn info(&self, n_samples: u64) -> Info {
        let Setup { sample_rate, channels, .. } = self.headers.setup;
        Info { codec: Codec::Vorbis, sample_rate, channels: channels.into(), n_samples }
    }

    /// The sample of the recording at a granule position.
    pub(crate) fn sample(&self, granule: i64) -> u64 {
        let Range { start, end } = self.granules;
        self.begin + (granule.clamp(start, end) - start) as u64
    }
}

impl Vorbis {
    /// The pages of the links `places` in a window that begins at byte `at`.
    pub(crate) fn window(cache: &mut DecoderCache, places: &[LinkPlace], bytes: &[u8], at: u64) -> Self {
        let mut links = cache.pools::<VorbisPools>().links.take();
        let mut pages = cache.pools::<VorbisPools>().pages.take();
        let mut current = None;
        for page in OggPages::new(bytes) {
            let offset = at + page.offset as u64;
            let Some(number) = places.partition_point(|place| place.bytes.start <= offset).checked_sub(1)
            else {
                continue;
            };
            let place = &places[number];
            if place.n_samples() == 0
                || offset >= place.bytes.end
                || page.serial != place.serial
                || page.begins_stream()
            {
                continue;
            }
            if current != Some(number) {
                current = Some(number);
                links.push(Link {
                    headers: place.headers.clone(),
                    pages: pages.len()..pages.len(),
                    first_granule: place.first_granule,
                    granules: place.granules.clone(),
                    begin: place.begin,
                    is_start: at <= place.bytes.start,
                    is_end: at + bytes.len() as u64 >= place.bytes.end,
                });
            }
            pages.push(page);
            if let Some(link) = links.last_mut() {
                link.pages.end = pages.len();
            }
        }
        for link in links.iter() {
            set_reach(&mut pages[link.pages.clone()]);
        }
        Self { pages, links }
    }

    /// The samples that this window of `places` can decode; None if there are none.
    pub(crate) fn ends(&self, places: &[LinkPlace], bytes: &[u8], at: u64) -> Option<Ends> {
        let first = self.links.iter().find_map(|link| self.first(link, bytes, at))?;
        let last = self.links.iter().rev().find_map(|link| self.last(link, places, bytes, at))?;
        (first.1 < last.1).then_some([first, last])
    }

    /// The first sample of `link` in the window, and the byte from which on it can be decoded.
    fn first(&self, link: &Link, bytes: &[u8], at: u64) -> Option<(u64, u64)> {
        let paged = Paged { bytes, pages: &self.pages[link.pages.clone()] };
        let offset = |page: usize| paged.pages.get(page).map(|page| at + page.offset as u64);
        if link.is_start {
            return Some((offset(0)?, link.begin));
        }
        paged.pages.iter().enumerate().find_map(|(i, page)| {
            let granule = page.granule?;
            let (before, _) = Groups::new(paged, &link.headers.setup, i + 1, granule).before?;
            Some((offset(before.first_page())?, link.sample(granule)))
        })
    }

    /// The sample after the last one of `link` in the window, and the byte from which on it can be decoded.
    fn last(&self, link: &Link, places: &[LinkPlace], bytes: &[u8], at: u64) -> Option<(u64, u64)> {
        if link.is_end {
            let place = places.iter().find(|place| place.begin == link.begin && place.n_samples() > 0)?;
            return Some((place.bytes.end, link.behind()));
        }
        let paged = Paged { bytes, pages: &self.pages[link.pages.clone()] };
        let last = paged.pages.iter().rposition(|page| page.granule.is_some())?;
        let granule = paged.pages[last].granule?;
        let (before, _) = Groups::new(paged, &link.headers.setup, last + 1, granule).before?;
        Some((at + paged.pages[before.first_page()].offset as u64, link.sample(granule)))
    }
}

impl Link {
    /// The sample of the recording at a granule position.
    fn sample(&self, granule: i64) -> u64 {
        let Range { start, end } = self.granules;
        self.begin + (granule.clamp(start, end) - start) as u64
    }
}

/// Makes a file of at least `n_samples` from the packets of `bytes`, over and over, in pages of some 4 KB
/// with right positions and checksums.
#[cfg(test)]
pub(crate) fn repeated(bytes: &[u8], n_samples: i64) -> Vec<u8> {
    use crate::ogg::append_repeated;

    let pages: Vec<Page> = OggPages::new(bytes).collect();
    let mut packets = OggPackets::new(bytes, &pages, 0);
    let mut scratch = Vec::new();
    let heads: Vec<_> = packets.by_ref().take(3).collect();
    let headers: Vec<Vec<u8>> =
        heads.iter().map(|packet| packet.data(bytes, &pages, &mut scratch).unwrap().to_vec()).collect();
    let setup = Setup::parse(&headers[0][..IDENTIFICATION_LEN], &headers[2]).unwrap();
    let mut out = bytes[..pages[heads[2].last_page].end()].to_vec();
    let audio: Vec<(Vec<u8>, u16)> = packets
        .filter_map(|packet| {
            let size = setup.block_size(packet.first)?;
            Some((packet.data(bytes, &pages, &mut scratch).unwrap().to_vec(), size))
        })
        .collect();
    let samples =
        |before: Option<&u16>, size: &u16| before.map_or(0, |&before| super::groups::yielded(before, *size));
    append_repeated(&mut out, &pages[heads[2].last_page], &audio, n_samples, samples);
    out
}
