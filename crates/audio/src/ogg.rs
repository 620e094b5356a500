//! Reads Ogg pages and the packets in them.
//!
//! Input: the bytes of a recording. Output: the pages of its logical streams, and the packets of one stream's
//! pages. The walk reads only the headers of pages, no bodies. If the next page begins exactly where a page
//! ends, its header is trusted; otherwise the checksum decides whether the page counts. After a false one the
//! walk continues at the next capture pattern. Callers check a page before they use its body
//! ([`Page::check`]).
//!
//! Packets are separated by lacing values alone. A packet that spans pages must be continued by the stream's
//! next page in sequence, else it is dropped, as RFC 3533 requires.
//!
//! Source: RFC 3533.

mod claim;

use std::ops::Range;

use crate::{Result, checksum::crc32, corrupt, fallible_alloc, read_at::RangeReader};

pub(crate) use claim::{Claim, ClaimLimits};

const CAPTURE: &[u8; 4] = &crate::signatures::OGG;
/// Length of a page header before its segment table.
const HEADER_LEN: usize = 27;

/// One page: its header's fields and its position.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Page {
    /// Byte offset of the capture pattern.
    pub offset: usize,
    /// Serial number of its logical stream.
    pub serial: u32,
    pub sequence: u32,
    /// End position of the last packet that ends on this page, if one does.
    pub granule: Option<i64>,
    /// The largest granule position on this page and the earlier audio pages of its stream, once the stream
    /// is opened. Spans are located by it.
    pub reach: i64,
    flags: u8,
    n_segments: u8,
    body_len: u16,
}

impl Page {
    /// The page whose capture pattern is at `offset`; None if it is no page, or incomplete.
    fn parse(bytes: &[u8], offset: usize) -> Option<Self> {
        let header = bytes.get(offset..)?.first_chunk::<HEADER_LEN>()?;
        if &header[..4] != CAPTURE || header[4] != 0 {
            return None;
        }
        let word =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let granule = i64::from(word(6)) | i64::from(word(10)) << 32;
        let n_segments = header[26];
        let lacing = bytes.get(offset + HEADER_LEN..offset + HEADER_LEN + usize::from(n_segments))?;
        let page = Self {
            offset,
            serial: word(14),
            sequence: word(18),
            // No recording is longer than 2^61 samples: such a value is damage and must not overflow sums.
            granule: (-(1 << 61)..1 << 61).contains(&granule).then_some(granule).filter(|&at| at != -1),
            reach: i64::MIN,
            flags: header[5],
            n_segments,
            body_len: lacing.iter().map(|&value| u16::from(value)).sum(),
        };
        (page.end() <= bytes.len()).then_some(page)
    }

    /// Byte offset of the first byte after the page.
    pub(crate) fn end(&self) -> usize {
        self.body_offset() + usize::from(self.body_len)
    }

    fn body_offset(&self) -> usize {
        self.offset + HEADER_LEN + usize::from(self.n_segments)
    }

    /// Whether its first segment continues a packet of the previous page.
    fn continues(&self) -> bool {
        self.flags & 1 != 0
    }

    /// Whether it is its stream's first page.
    pub(crate) fn begins_stream(&self) -> bool {
        self.flags & 2 != 0
    }

    /// Whether it is its stream's last page.
    pub(crate) fn ends_stream(&self) -> bool {
        self.flags & 4 != 0
    }

    /// Whether `next` follows it in its stream without a lost page between them.
    pub(crate) fn precedes(&self, next: &Page) -> bool {
        self.sequence.wrapping_add(1) == next.sequence
    }

    fn lacing<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[self.offset + HEADER_LEN..self.body_offset()]
    }

    pub(crate) fn body<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[self.body_offset()..self.end()]
    }

    /// Whether a packet begins and ends on it.
    pub(crate) fn has_whole_packet(&self, bytes: &[u8]) -> bool {
        let ends = self.lacing(bytes).iter().filter(|&&value| value < 255).count();
        ends > usize::from(self.continues())
    }

    /// Whether a packet ends on it.
    pub(crate) fn ends_packet(&self, bytes: &[u8]) -> bool {
        self.lacing(bytes).iter().any(|&value| value < 255)
    }

    pub(crate) fn is_sound(&self, bytes: &[u8]) -> bool {
        let page = &bytes[self.offset..self.end()];
        let told = u32::from_le_bytes([page[22], page[23], page[24], page[25]]);
        let crc = crc32(0, &page[..22]);
        let crc = crc32(crc, &[0; 4]);
        crc32(crc, &page[26..]) == told
    }

    /// Corrects the checksum of the page `page`.
    #[cfg(test)]
    pub(crate) fn seal(page: &mut [u8]) {
        page[22..26].fill(0);
        let crc = crc32(0, page);
        page[22..26].copy_from_slice(&crc.to_le_bytes());
    }

    /// # Errors
    /// [`crate::ErrorKind::Corrupt`] if its checksum is wrong.
    pub(crate) fn check(&self, bytes: &[u8]) -> Result<()> {
        if self.is_sound(bytes) {
            return Ok(());
        }
        Err(corrupt("an Ogg page's checksum does not match its bytes").at_byte(self.offset as u64))
    }
}

/// The pages of all streams, in order.
#[derive(Debug)]
pub(crate) struct OggPages<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The bytes that may still be summed to check capture patterns; it bounds the cost of false ones.
    budget: usize,
}

impl<'a> OggPages<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, budget: bytes.len().saturating_mul(2).saturating_add(1 << 17) }
    }

    /// Whether `page`, which no other page follows directly, is one by its checksum.
    fn believes(&mut self, page: &Page) -> bool {
        let len = page.end() - page.offset;
        let affordable = len <= self.budget;
        self.budget = self.budget.saturating_sub(len);
        affordable && page.is_sound(self.bytes)
    }
}

impl Iterator for OggPages<'_> {
    type Item = Page;

    fn next(&mut self) -> Option<Page> {
        loop {
            self.at += find(self.bytes.get(self.at..)?, CAPTURE)?;
            if let Some(page) = Page::parse(self.bytes, self.at) {
                let rest = &self.bytes[page.end()..];
                if rest.starts_with(b"OggS\0") || self.believes(&page) {
                    self.at = page.end();
                    return Some(page);
                }
            }
            self.at += CAPTURE.len();
        }
    }
}

/// The first offset of `pattern` in `bytes`.
fn find(bytes: &[u8], pattern: &[u8; 4]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += bytes[at..].iter().position(|&byte| byte == pattern[0])?;
        if bytes[at..].starts_with(pattern) {
            return Some(at);
        }
        at += 1;
    }
}

/// The position of a packet in a stream's pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OggPacket {
    /// The page it begins on, and the offset in that page's body.
    page: u32,
    byte: u32,
    len: usize,
    pub last_page: usize,
    /// Its first byte, if it has any.
    pub first: Option<u8>,
}

impl OggPacket {
    pub(crate) fn first_page(&self) -> usize {
        self.page as usize
    }

    /// Its first bytes, up to two. A packet that goes on on another page has at least 255 on its first one.
    pub(crate) fn head<'s>(&self, bytes: &'s [u8], pages: &[Page]) -> &'s [u8] {
        let begin = self.byte as usize;
        &pages[self.first_page()].body(bytes)[begin..begin + self.len.min(2)]
    }

    /// Its bytes, borrowed from the page; if it spans several, joined in `scratch`.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Memory`] if the allocation failed.
    pub(crate) fn data<'s>(
        &self,
        bytes: &'s [u8],
        pages: &[Page],
        scratch: &'s mut Vec<u8>,
    ) -> Result<&'s [u8]> {
        let begin = self.byte as usize;
        if self.first_page() == self.last_page {
            return Ok(&pages[self.last_page].body(bytes)[begin..begin + self.len]);
        }
        scratch.clear();
        fallible_alloc::reserve(scratch, self.len)?;
        scratch.extend_from_slice(&pages[self.first_page()].body(bytes)[begin..]);
        for page in &pages[self.first_page() + 1..=self.last_page] {
            let body = page.body(bytes);
            scratch.extend_from_slice(&body[..body.len().min(self.len - scratch.len())]);
        }
        Ok(scratch)
    }
}

/// Walks the packets of one stream's pages; a copy continues from the same position.
#[derive(Debug, Clone)]
pub(crate) struct OggPackets<'a> {
    bytes: &'a [u8],
    pages: &'a [Page],
    page: usize,
    segment: usize,
    byte: usize,
    /// A packet that has begun and not ended on the pages so far.
    open: Option<OggPacket>,
}

impl<'a> OggPackets<'a> {
    /// A walk from the first packet that begins on `page` or after it.
    pub(crate) fn new(bytes: &'a [u8], pages: &'a [Page], page: usize) -> Self {
        Self { bytes, pages, page, segment: 0, byte: 0, open: None }
    }

    /// The next packet that ends on the page `last` or before it.
    ///
    /// If there is none, the walk stops after that page and keeps a packet that continues there. So each page
    /// is visited once, for any sequence of limits.
    pub(crate) fn next_until(&mut self, last: usize) -> Option<OggPacket> {
        while self.page <= last {
            let page = self.pages.get(self.page)?;
            let lacing = page.lacing(self.bytes);
            if self.segment == 0 {
                let follows =
                    || self.page.checked_sub(1).is_some_and(|before| self.pages[before].precedes(page));
                if self.open.is_some() && !(page.continues() && follows()) {
                    self.open = None;
                }
                if self.open.is_none() && page.continues() {
                    self.end_packet(lacing);
                }
            }
            if self.segment < lacing.len() {
                let from = self.byte;
                let mut packet = self.open.take().unwrap_or_else(|| OggPacket {
                    page: self.page as u32,
                    byte: from as u32,
                    len: 0,
                    last_page: 0,
                    first: (lacing[self.segment] > 0).then(|| page.body(self.bytes)[from]),
                });
                let is_whole = self.end_packet(lacing);
                packet.len += self.byte - from;
                if is_whole {
                    steps::count();
                    return Some(OggPacket { last_page: self.page, ..packet });
                }
                self.open = Some(packet);
            }
            self.turn_page();
        }
        None
    }

    /// Skips segments up to the end of a packet or of the page; returns whether it was the end of a packet.
    fn end_packet(&mut self, lacing: &[u8]) -> bool {
        while let Some(&value) = lacing.get(self.segment) {
            self.segment += 1;
            self.byte += usize::from(value);
            if value < 255 {
                return true;
            }
        }
        false
    }

    fn turn_page(&mut self) {
        steps::count();
        (self.page, self.segment, self.byte) = (self.page + 1, 0, 0);
    }
}

impl Iterator for OggPackets<'_> {
    type Item = OggPacket;

    fn next(&mut self) -> Option<OggPacket> {
        self.next_until(usize::MAX)
    }
}

/// A recording's bytes and the pages of one of its links.
#[derive(Clone, Copy)]
pub(crate) struct Paged<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) pages: &'a [Page],
}

/// The most pages and packets of a group. The specification requires a granule position on each page that
/// ends a packet.
pub(crate) const MAX_GROUP: usize = 1 << 14;

/// Lists the first stream of each link whose first packet begins with `magic`: its first page, and the range
/// of its other pages in `others`.
pub(crate) fn list_streams(
    bytes: &[u8],
    magic: &[u8],
    streams: &mut Vec<(Page, Range<usize>)>,
    others: &mut Vec<Page>,
) {
    // Whether the walk is among the link's first pages, one for each of its streams, and whether one of these
    // was of the codec.
    let (mut in_head, mut found) = (false, false);
    for page in OggPages::new(bytes) {
        if page.begins_stream() {
            if !in_head {
                (in_head, found) = (true, false);
            }
            if !found && page.body(bytes).starts_with(magic) {
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

/// Whether a file is one stream alone, by its pages at both ends: all are of the stream with this serial
/// number, and the sequence numbers of the first and last page of its `audio` count as many pages as pages of
/// their mean size fill it with.
///
/// # Errors
/// Those of [`RangeReader`].
pub(crate) fn is_alone(
    reader: &mut RangeReader<'_>,
    serial: u32,
    audio: &Range<u64>,
    sequences: &Range<u32>,
) -> Result<bool> {
    if reader.is_one_stream {
        return Ok(true);
    }
    let (size, ends) = (reader.size(), reader.sizes.ends);
    let (mut n_pages, mut n_bytes) = (0u64, 0u64);
    for range in [0..ends.min(size), size.saturating_sub(ends)..size] {
        let bytes = reader.read_cached(range.clone())?;
        for page in OggPages::new(&bytes) {
            let is_first = range.start == 0 && page.offset == 0;
            if page.serial != serial || page.begins_stream() != is_first {
                return Ok(false);
            }
            if audio.contains(&(range.start + page.offset as u64)) {
                n_pages += 1;
                n_bytes += (page.end() - page.offset) as u64;
            }
        }
    }
    let Some(steps) = sequences.end.checked_sub(sequences.start) else { return Ok(false) };
    let counted = u128::from(steps) + 1;
    // The pages' mean size at both ends, against that between them.
    let (seen, all) =
        (u128::from(n_bytes) * counted, u128::from(audio.end - audio.start) * u128::from(n_pages));
    Ok(5 * all > 3 * seen && 3 * all < 5 * seen)
}

/// Appends pages of some 4 KB to a stream with right positions and checksums: these packets, over and over,
/// until they have `n_samples`. `samples` gives those that a packet adds after the one before it.
#[cfg(test)]
pub(crate) fn append_repeated<T>(
    out: &mut Vec<u8>,
    last: &Page,
    packets: &[(Vec<u8>, T)],
    n_samples: i64,
    samples: impl Fn(Option<&T>, &T) -> i64,
) {
    let (mut granule, mut before, mut sequence) = (0, None, last.sequence);
    let (mut lacing, mut body) = (Vec::new(), Vec::new());
    for (data, of) in packets.iter().cycle() {
        granule += samples(before, of);
        before = Some(of);
        lacing.extend(std::iter::repeat_n(255, data.len() / 255));
        lacing.push((data.len() % 255) as u8);
        body.extend(data);
        let is_last = granule >= n_samples;
        if is_last || body.len() > 4000 || lacing.len() > 200 {
            sequence += 1;
            let at = out.len();
            out.extend(b"OggS\0");
            out.push(if is_last { 4 } else { 0 });
            out.extend(granule.to_le_bytes());
            out.extend(last.serial.to_le_bytes());
            out.extend(sequence.to_le_bytes());
            out.extend([0; 4]);
            out.push(lacing.len() as u8);
            out.append(&mut lacing);
            out.append(&mut body);
            Page::seal(&mut out[at..]);
        }
        if is_last {
            return;
        }
    }
}

/// Sets the largest granule position so far on each page.
pub(crate) fn set_reach(pages: &mut [Page]) {
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
pub(crate) fn first_page(pages: &[Page], last_page: usize) -> Result<usize> {
    let before = pages.get(..last_page).unwrap_or_default();
    match before.iter().rev().take(MAX_GROUP).position(|page| page.granule.is_some()) {
        Some(back) => Ok(before.len() - back),
        None if before.len() < MAX_GROUP => Ok(0),
        None => Err(corrupt(format!("more than {MAX_GROUP} Ogg pages without a granule position"))),
    }
}

/// Whether no page is missing within `pages`.
pub(crate) fn is_whole(pages: &[Page]) -> bool {
    pages.windows(2).all(|two| two[0].precedes(&two[1]))
}

/// Counts the pages visited and packets found by this thread, for tests.
pub(crate) mod steps {
    #[cfg(test)]
    std::thread_local! {
        static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    }

    #[inline]
    pub(crate) fn count() {
        #[cfg(test)]
        STEPS.with(|steps| steps.set(steps.get() + 1));
    }

    /// The count since the last call.
    #[cfg(test)]
    pub(crate) fn take() -> u64 {
        STEPS.with(|steps| steps.replace(0))
    }
}
