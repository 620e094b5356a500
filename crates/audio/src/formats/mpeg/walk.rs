//! The walk over the frames of a recording, header after header, and the links that it finds.
//!
//! Input: the bytes of a recording, whole or piece by piece. Output: the offset of each frame with audio, and
//! the links with their lengths by the tags.
//!
//! Source: as [`super`].

use std::ops::Range;

use super::{
    header::{HEADER_LEN, Header},
    layer3,
};
use crate::{Error, ErrorKind, Result, corrupt, id3::id3v2_len, unsupported};

/// The most bytes before the first frame that are not tags.
const MAX_LEADING_JUNK: usize = 1 << 18;
/// The number of frames by which the scan prefetches ahead.
const AHEAD: usize = 8;
/// The delay of a layer III decoder, samples: 528 of overlap and filter, and one.
const DECODER_DELAY: u64 = 529;
/// The most bytes that a step of the scan looks at: a frame, a header, the start of a tag.
pub(crate) const AHEAD_BYTES: u64 = 8 << 10;
/// The bytes at the end of a recording by which Lyrics3 is recognised: its end, and ID3v1.
pub(crate) const TAIL_LEN: usize = 128 + 9;

/// Frames that are decoded without a reset of the decoder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) frames: Range<usize>,
    /// Samples to cut at the start.
    pub(crate) delay: u64,
    /// Samples of the recording after that.
    pub(crate) n_samples: u64,
    /// `n_samples` for the number of frames in its tag; None if the tag has no count.
    pub(crate) declared: Option<u64>,
}

/// The fields of a Xing, Info or VBRI tag.
#[derive(Debug, Default, Clone, Copy)]
struct Tag {
    n_frames: Option<u32>,
    /// Samples before and after the recording, as the encoder counts.
    delay_padding: Option<(u16, u16)>,
}

impl Link {
    fn new(frames: Range<usize>, header: &Header, tag: Tag) -> Self {
        let per_frame = u64::from(header.n_samples());
        let held = frames.len() as u64 * per_frame;
        let (mut delay, mut padding) = (0, 0);
        if let Some((before, behind)) = tag.delay_padding {
            delay = u64::from(before) + DECODER_DELAY;
            padding = u64::from(behind).saturating_sub(DECODER_DELAY);
        }
        let counted = tag.n_frames.map(|n| u64::from(n).saturating_mul(per_frame));
        let declared = counted.map(|counted| counted.max(held).saturating_sub(delay + padding));
        // The padding is at the end of the frames that the tag counts.
        padding = padding.saturating_sub(counted.unwrap_or(0).saturating_sub(held));
        Self { frames, delay, n_samples: held.saturating_sub(delay + padding), declared }
    }
}

/// The last bytes of a recording.
pub(super) fn tail(bytes: &[u8]) -> &[u8] {
    &bytes[bytes.len().saturating_sub(TAIL_LEN)..]
}

/// A piece of a recording, or all of it.
#[derive(Clone, Copy)]
pub(crate) struct Piece<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) base: u64,
    pub(crate) size: u64,
    /// The last [`TAIL_LEN`] bytes of the recording.
    pub(crate) tail: &'a [u8],
}

impl<'a> Piece<'a> {
    /// Whether it reaches to the end of the recording.
    fn is_end(&self) -> bool {
        self.base + self.bytes.len() as u64 >= self.size
    }

    /// The bytes from `at` on; None if a step of the scan may need more than it has.
    fn from(&self, at: u64) -> Option<&'a [u8]> {
        let from = usize::try_from(at.checked_sub(self.base)?).ok()?;
        let rest = self.bytes.get(from..);
        if self.is_end() {
            return Some(rest.unwrap_or_default());
        }
        rest.filter(|rest| rest.len() as u64 >= AHEAD_BYTES)
    }
}

/// Finds the links of a recording, piece by piece.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    pub(crate) scan: Scan,
    tag: Tag,
    begin: usize,
    /// The number of frames with audio so far.
    pub(crate) n_frames: usize,
}

impl Walk {
    /// Walks the frames in `piece`; returns whether the timeline ends there. If not, the walk continues with
    /// the piece that begins at [`Scan::at`]. `each` is called with the offset and the number of each frame
    /// with audio, and ends the walk by returning false.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if a frame has a mixed block at 8 kHz, and the errors of `each`.
    pub(crate) fn step(
        &mut self,
        piece: &Piece<'_>,
        links: &mut Vec<Link>,
        mut each: impl FnMut(u64, usize) -> Result<bool>,
    ) -> Result<bool> {
        loop {
            let (offset, frame) = match self.scan.next(piece) {
                ScanStep::Frame(offset, frame) => (offset, frame),
                ScanStep::End => return Ok(true),
                ScanStep::More => return Ok(false),
            };
            let rest = &piece.bytes[(offset - piece.base) as usize..];
            let (bytes, behind) = rest.split_at(frame.len);
            if let Some(next) = find_tag(&frame, bytes) {
                links.push(Link::new(self.begin..self.n_frames, &frame, self.tag));
                (self.tag, self.begin) = (next, self.n_frames);
            } else if frame.sample_rate == layer3::NO_MIXED_RATE
                && frame.has_mixed_block(bytes)
                // Otherwise the frame is damaged, and does not affect the others.
                && is_followed(&frame, behind, piece.tail)
            {
                return Err(unsupported(
                    "the MPEG layer III recording has mixed blocks at 8 kHz, for which there is no standard; decode it with \
                     another program and store it as FLAC",
                )
                .at_byte(offset));
            } else {
                self.n_frames += 1;
                if !each(offset, self.n_frames - 1)? {
                    return Ok(false);
                }
            }
        }
    }

    /// Ends the last link; returns the header of the first frame. `file` is the piece at the start.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] or [`ErrorKind::Corrupt`] without frames, [`ErrorKind::Empty`] without
    /// samples.
    pub(crate) fn finish(&mut self, file: &Piece<'_>, links: &mut Vec<Link>) -> Result<Header> {
        let Some(header) = self.scan.header else { return Err(refuse(file)) };
        links.push(Link::new(self.begin..self.n_frames, &header, self.tag));
        links.retain(|link| link.n_samples > 0);
        if links.is_empty() {
            return Err(Error::new(ErrorKind::Empty, "the MPEG audio stream has no frames with samples"));
        }
        Ok(header)
    }

    /// The number of frames that the tag of the current link declares.
    pub(crate) fn declared(&self) -> Option<u32> {
        self.tag.n_frames
    }
}

/// Walks the frames of the timeline.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    /// Byte offset of the next frame.
    pub(crate) at: u64,
    pub(crate) header: Option<Header>,
    /// Whether the bytes before are no frame.
    is_lost: bool,
    /// Whether bytes after the first frame were skipped.
    pub(super) has_lost: bool,
    /// Bytes skipped before the first frame.
    junk: usize,
    /// Bytes of a frame that is cut off by the recording's end, and the bytes that its header declares.
    pub(super) cut: Option<(usize, usize)>,
    /// The offset of frames of another kind, which end the timeline.
    pub(super) foreign: Option<usize>,
}

enum ScanStep {
    /// A frame: its offset and header.
    Frame(u64, Header),
    End,
    /// The next piece is needed, from [`Scan::at`] on.
    More,
}

impl Scan {
    /// Whether it ended at an incomplete frame, or at frames of another kind.
    pub(crate) fn is_cut(&self) -> bool {
        self.cut.is_some() || self.foreign.is_some()
    }

    fn next(&mut self, piece: &Piece<'_>) -> ScanStep {
        let mut is_lost = self.is_lost || self.header.is_none();
        loop {
            self.is_lost = is_lost;
            let Some(mut rest) = piece.from(self.at) else { return ScanStep::More };
            while let Some(len) = tag_len(rest, piece.size.saturating_sub(self.at), piece.tail) {
                self.at += len;
                match piece.from(self.at) {
                    Some(next) => rest = next,
                    None => return ScanStep::More,
                }
            }
            if rest.len() < HEADER_LEN || self.junk > MAX_LEADING_JUNK {
                return ScanStep::End;
            }
            let header = match &self.header {
                Some(first) => first.parse_next(rest),
                None => Header::parse_first(&rest[..rest.len().min(AHEAD_BYTES as usize)]),
            };
            match header.filter(|header| header.len > 0) {
                Some(header) if self.header.is_none_or(|first| first.is_akin(&header)) => {
                    if header.len > rest.len() {
                        // A frame that is cut off by the end of the recording, or a false header.
                        if !is_lost {
                            self.cut = Some((rest.len(), header.len));
                            return ScanStep::End;
                        }
                    } else if !is_lost || is_followed(&header, &rest[header.len..], piece.tail) {
                        let offset = self.at;
                        self.at += header.len as u64;
                        prefetch(rest, AHEAD * header.len);
                        self.header.get_or_insert(header);
                        self.is_lost = false;
                        return ScanStep::Frame(offset, header);
                    }
                }
                // Two frames of another kind directly after a frame: another recording begins.
                Some(header)
                    if !is_lost
                        && header.len <= rest.len()
                        && is_followed(&header, &rest[header.len..], piece.tail) =>
                {
                    self.foreign = Some(self.at as usize);
                    return ScanStep::End;
                }
                _ => {}
            }
            is_lost = true;
            self.has_lost |= self.header.is_some();
            self.at += 1;
            self.junk += usize::from(self.header.is_none());
        }
    }
}

/// The error for a recording without a frame.
fn refuse(file: &Piece<'_>) -> Error {
    let mut rest = file.bytes;
    while let Some(len) = tag_len(rest, rest.len() as u64, file.tail) {
        rest = &rest[len as usize..];
    }
    match Header::parse(rest) {
        Some(header) if header.len == 0 => unsupported(
            "the MPEG audio stream is of free format, and its frames are not of one length, longer than 640 kbit/s, or not of layer \
             III; encode it with a bit rate",
        ),
        _ => corrupt("no two MPEG audio frames follow one another at the start of the recording"),
    }
}

/// Prefetches the cache line of `bytes[at]`. The position of a header follows from the one before it, so
/// without prefetching a scan waits for memory once a frame (41 s of 44.1 kHz stereo at 128 kbit/s, out of
/// cache, on an EPYC: 0.17 ms without, 0.09 with it).
fn prefetch(bytes: &[u8], at: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(byte) = bytes.get(at) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the address is that of a byte in `bytes`, and a prefetch has no effect on memory.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(byte).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (bytes, at);
}

/// Whether `rest`, the bytes after a frame, starts with a frame of the same kind or a tag, or is shorter than
/// a header.
fn is_followed(header: &Header, rest: &[u8], tail: &[u8]) -> bool {
    rest.len() < HEADER_LEN
        || tag_len(rest, rest.len() as u64, tail).is_some_and(|len| len > 0)
        || header.parse_next(rest).is_some_and(|next| next.len > 0 && next.is_akin(header))
}

/// Length of the tag at the start of `bytes`, at most `left`, the bytes to the end of the recording. `tail`
/// are the recording's last bytes.
fn tag_len(bytes: &[u8], left: u64, tail: &[u8]) -> Option<u64> {
    // Frames are much more frequent than tags.
    if bytes.first().is_none_or(|&byte| byte == 0xff) {
        return None;
    }
    let len = if bytes.starts_with(b"ID3") {
        id3v2_len(bytes)?
    } else if bytes.starts_with(b"TAG") {
        128
    } else if bytes.starts_with(b"APETAGEX") {
        let &[.., a, b, c, d, _, _, _, _, e, f, g, h] = bytes.first_chunk::<24>()?;
        // The size excludes the header and includes the footer. A footer at the start of `bytes` comes after
        // its items.
        let is_header = u32::from_le_bytes([e, f, g, h]) & 1 << 29 != 0;
        32 + if is_header { u32::from_le_bytes([a, b, c, d]) as usize } else { 0 }
    } else if bytes.starts_with(b"LYRICSBEGIN") {
        // Lyrics3 is the last tag, or followed only by ID3v1, so its end is checked only there.
        let id3v1 = if left > 128 && tail.len() >= 128 && tail[tail.len() - 128..].starts_with(b"TAG") {
            128
        } else {
            0
        };
        let lyrics = &tail[..tail.len() - id3v1];
        let ends = [&b"LYRICS200"[..], b"LYRICSEND"].iter().any(|end| lyrics.ends_with(end));
        return ends.then_some(left.saturating_sub(id3v1 as u64));
    } else {
        return None;
    };
    Some((len as u64).min(left))
}

/// The tag in a frame without audio; None for a frame with audio.
fn find_tag(header: &Header, frame: &[u8]) -> Option<Tag> {
    if header.layer != 3 {
        return None;
    }
    let number = |at: usize| Some(u32::from_be_bytes(*frame.get(at..)?.first_chunk::<4>()?));
    // Some writers count the checksum, some do not.
    for begin in [HEADER_LEN + header.side_len(), header.side_offset() + header.side_len()] {
        let Some(id) = frame.get(begin..begin + 4) else { continue };
        if id != b"Xing" && id != b"Info" {
            continue;
        }
        let flags = number(begin + 4)?;
        let n_frames = if flags & 1 != 0 { number(begin + 8) } else { None };
        let optional = [(1, 4), (2, 4), (4, 100), (8, 4)];
        let lame = begin
            + 8
            + optional.iter().filter(|(flag, _)| flags & flag != 0).map(|(_, len)| len).sum::<usize>();
        let delay_padding =
            frame.get(lame..lame + 24).filter(|tag| tag[0].is_ascii_alphanumeric()).map(|tag| {
                let (a, b, c) = (u16::from(tag[21]), u16::from(tag[22]), u16::from(tag[23]));
                (a << 4 | b >> 4, (b & 15) << 8 | c)
            });
        return Some(Tag { n_frames, delay_padding });
    }
    let vbri = HEADER_LEN + 32;
    if frame.get(vbri..vbri + 4)? == b"VBRI" {
        return Some(Tag { n_frames: number(vbri + 14), delay_padding: None });
    }
    None
}
