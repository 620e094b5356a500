//! MPEG audio, layers I to III: indexes the frames by their headers, and decodes those of a span and the
//! earlier ones that they depend on.
//!
//! Input: the bytes of a recording. Output: the samples of any span, equal bit for bit to the same slice of a
//! full decode. Opening reads header after header. Tags (ID3v2, ID3v1, APE, Lyrics3) and junk may be between
//! or around frames. A frame that does not directly follow another counts only if one of its kind or a tag
//! follows it, or the recording ends. The length is the number of frames, never the count in a tag.
//!
//! A frame with a Xing, Info or VBRI tag holds no audio and begins a *link*. A tag of LAME's form declares
//! delay and padding, which are cut, with the 529 samples of every decoder's delay; without such a tag
//! nothing is cut. If frames are missing at the end, the padding was in these. Links of equal layer, rate and
//! channels are one timeline, with the decoder reset at each; two frames of another kind end it.
//!
//! Layer III is decoded here (`layer3`), layers I and II by symphonia. Recordings of 8 kHz with a mixed block
//! anywhere are refused, since no standard says where its long part ends. All frames are checked when the
//! recording is opened, so that all spans agree. A mixed block in a frame that is followed by neither a
//! frame, a tag nor the end is taken for damage and ignored. Common encoders write no mixed blocks.
//!
//! A frame's samples depend on the two granules before it (overlap, then the polyphase filter), and on main
//! data that may begin up to 511 bytes earlier, in any number of frames. So decoding starts at least three
//! frames early, and so early that one of these frames has all of its main data ([`Reservoir`]). From there
//! on the decoder's state is that of a full decode.
//!
//! Source: ISO/IEC 11172-3, ISO/IEC 13818-3; the tags' layouts as their authors published them.

mod header;
mod layer3;

use std::ops::Range;

use symphonia::{
    core::{
        audio::{Audio, AudioBuffer, GenericAudioBufferRef},
        codecs::audio::{
            AudioCodecParameters, AudioDecoder, AudioDecoderOptions,
            well_known::{CODEC_ID_MP1, CODEC_ID_MP2, CODEC_ID_MP3},
        },
        packet::PacketRef,
        units::{Duration, Timestamp},
    },
    default::codecs::MpaDecoder,
};

use super::{
    Codec, DecoderCache, Info, Planes, corrupt,
    decoder_cache::{Lent, Shelf},
    id3::id3v2_len,
    unsupported,
};
use crate::{Error, ErrorKind, Result, lanes::Level};
pub(super) use header::Header;
use header::{HEADER_LEN, Reservoir};

/// The most bytes before the first frame that are not tags.
const MAX_LEADING_JUNK: usize = 1 << 18;
/// The number of frames by which the scan prefetches ahead.
const AHEAD: usize = 8;
/// The number of frames by which decoding starts early: two frames and one granule, in whole frames.
const PRIMING: usize = 3;
/// More bytes of main data than any frame can refer back to and hold.
const RESERVOIR_LEN: usize = 2048;
/// The delay of a layer III decoder, samples: 528 of overlap and filter, and one.
const DECODER_DELAY: u64 = 529;
/// The approximate bytes of a cached decoder of layer I or II.
const DECODER_BYTES: usize = 40 << 10;

/// An MPEG audio recording whose frames are indexed.
#[derive(Debug)]
pub struct Mpeg<'a> {
    bytes: &'a [u8],
    /// The first frame's header; all frames have its layer, rate and channels.
    header: Header,
    /// Byte offsets of all frames with audio, or of those in a window.
    frames: Lent<u32>,
    /// The number of the first of these frames.
    first: usize,
    links: Lent<Link>,
    /// Bytes of an incomplete frame at the end, and the bytes that its header declares.
    cut: Option<(usize, usize)>,
    /// The offset of frames of another kind, which are left out.
    foreign: Option<usize>,
}

/// The unused vectors of indexes.
#[derive(Default)]
pub(super) struct Shelves {
    frames: Shelf<u32>,
    links: Shelf<Link>,
}

/// Frames that are decoded without a reset of the decoder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Link {
    /// Numbers of its frames.
    pub(super) frames: Range<usize>,
    /// Samples to cut at the start.
    pub(super) delay: u64,
    /// Samples of the recording after that.
    pub(super) n_samples: u64,
    /// `n_samples` for the number of frames in its tag; None if the tag has no count.
    pub(super) declared: Option<u64>,
}

/// The fields of a Xing, Info or VBRI tag.
#[derive(Debug, Default, Clone, Copy)]
struct Tag {
    n_frames: Option<u32>,
    /// Samples before and after the recording, as the encoder counts.
    delay_padding: Option<(u16, u16)>,
}

impl<'a> Mpeg<'a> {
    /// Finds all frames.
    ///
    /// Reads their headers, and the side information of layer III: up to 38 bytes of each frame.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] without frames of known length, or if a frame has a mixed block at 8 kHz,
    /// [`ErrorKind::TooLarge`] beyond 4 GiB, [`ErrorKind::Empty`] without samples.
    pub(super) fn open(kept: &mut DecoderCache, bytes: &'a [u8]) -> Result<Self> {
        if u32::try_from(bytes.len()).is_err() {
            return Err(Error::new(ErrorKind::TooLarge, "the MPEG audio recording is larger than 4 GiB"));
        }
        let mut frames = kept.shelves::<Shelves>().frames.lend();
        let mut links = kept.shelves::<Shelves>().links.lend();
        let mut walk = Walk::default();
        let file = Piece { bytes, base: 0, size: bytes.len() as u64, tail: tail(bytes) };
        walk.step(&file, &mut links, |offset, _| {
            frames.push(offset as u32);
            Ok(true)
        })?;
        let header = walk.finish(&file, &mut links)?;
        Ok(Self { bytes, header, frames, first: 0, links, cut: walk.scan.cut, foreign: walk.scan.foreign })
    }

    /// The frames in a window of a recording with these links. `start` is the offset in `bytes` of frame
    /// number `first`; the bytes begin at byte `at` of the recording. Up to `end` frames are listed.
    pub(super) fn window(
        kept: &mut DecoderCache,
        piece: &Piece<'a>,
        header: Header,
        links: &[Link],
        start: u64,
        numbers: Range<usize>,
    ) -> Result<Self> {
        let mut frames = kept.shelves::<Shelves>().frames.lend();
        let mut found = kept.shelves::<Shelves>().links.lend();
        let mut walk = Walk::default();
        (walk.scan.at, walk.scan.header) = (start, Some(header));
        let mut others = kept.shelves::<Shelves>().links.lend();
        walk.step(piece, &mut others, |offset, _| {
            frames.push((offset - piece.base) as u32);
            Ok(frames.len() < numbers.end - numbers.start)
        })?;
        let behind = numbers.start + frames.len();
        let overlaps = |link: &&Link| link.frames.start < behind && link.frames.end > numbers.start;
        found.extend(links.iter().filter(overlaps).cloned());
        let first = numbers.start;
        Ok(Self { bytes: piece.bytes, header, frames, first, links: found, cut: None, foreign: None })
    }

    /// The number of the frame after the last one in a window.
    pub(super) fn behind(&self) -> usize {
        self.first + self.frames.len()
    }

    /// Whether a window has all frames from which decoding frame number `wanted` of `link` starts.
    pub(super) fn has_start(&self, link: &Link, wanted: usize) -> bool {
        self.start(link, wanted).is_some()
    }

    /// Decodes the samples `span` of `link` into `out` from its sample `at` on.
    pub(super) fn read_from(
        &self,
        kept: &mut DecoderCache,
        link: &Link,
        span: Range<u64>,
        out: &mut Planes,
        at: usize,
    ) -> Result<()> {
        self.read_link(link, kept, span, out, at)
    }

    /// The numbers of the frames with the samples `span` of `link`.
    pub(super) fn frames_of(link: &Link, header: &Header, span: &Range<u64>) -> Range<usize> {
        let per_frame = u64::from(header.n_samples());
        let first = (link.delay + span.start) / per_frame;
        let end = (link.delay + span.end).div_ceil(per_frame);
        link.frames.start + first as usize..link.frames.start + end as usize
    }

    /// Byte offsets in the window of its frames.
    pub(super) fn offsets(&self) -> &[u32] {
        &self.frames
    }

    /// The bytes of a frame in the window.
    #[cfg(test)]
    pub(super) fn bytes_of(&self, number: usize) -> &'a [u8] {
        self.frame(number).1
    }

    /// The header of a frame in the window.
    pub(super) fn header_of(&self, number: usize) -> Header {
        self.frame(number).0
    }

    /// Samples per channel by the counts of the tags, if all links have one.
    pub(super) fn declared(&self) -> Option<u64> {
        self.links.iter().try_fold(0u64, |sum, link| Some(sum.saturating_add(link.declared?)))
    }

    /// Samples per channel in a frame.
    pub(super) fn frame_samples(&self) -> u64 {
        self.header.n_samples().into()
    }

    /// The byte at which frames of another layer, rate or number of channels begin, which are left out.
    pub(super) fn foreign(&self) -> Option<usize> {
        self.foreign
    }

    /// Bytes of an incomplete last frame, and the bytes that its header declares.
    pub(super) fn cut_frame(&self) -> Option<(usize, usize)> {
        self.cut
    }

    /// Layer, rate, channels and length.
    pub fn info(&self) -> Info {
        Info {
            codec: [Codec::Mp1, Codec::Mp2, Codec::Mp3][usize::from(self.header.layer - 1)],
            sample_rate: self.header.sample_rate,
            channels: u16::from(self.header.channels),
            n_samples: self.links.iter().map(|link| link.n_samples).sum(),
        }
    }

    /// Decodes the samples `span` of every channel into `out`, which already has their shape.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if a frame that the span needs cannot be decoded.
    pub(crate) fn read(&self, kept: &mut DecoderCache, span: Range<u64>, out: &mut Planes) -> Result<()> {
        let mut begin = 0;
        for link in self.links.iter() {
            let end = begin + link.n_samples;
            let (from, to) = (span.start.max(begin), span.end.min(end));
            if from < to {
                let at = (from - span.start) as usize;
                self.read_link(link, kept, from - begin..to - begin, out, at)?;
            }
            begin = end;
        }
        Ok(())
    }

    /// Decodes the samples `span` of `link` into `out` from its sample `at` on.
    fn read_link(
        &self,
        link: &Link,
        kept: &mut DecoderCache,
        span: Range<u64>,
        out: &mut Planes,
        at: usize,
    ) -> Result<()> {
        let per_frame = u64::from(self.header.n_samples());
        let want = link.delay + span.start..link.delay + span.end;
        let wanted_frames = (want.start / per_frame) as usize..want.end.div_ceil(per_frame) as usize;
        let short = || Error::new(ErrorKind::TooShort, "MPEG audio frames of the span are missing");
        let start = self.start(link, link.frames.start + wanted_frames.start).ok_or_else(short)?;
        if link.frames.start + wanted_frames.end > self.behind() {
            return Err(short());
        }

        let frames = start..link.frames.start + wanted_frames.end;
        let mut copy = |index: usize, samples: [&[f32]; 2]| {
            let Some(frame) = index.checked_sub(link.frames.start + wanted_frames.start) else { return };
            let position = (wanted_frames.start + frame) as u64 * per_frame;
            let wanted = position.max(want.start)..(position + per_frame).min(want.end);
            let from = (wanted.start - position) as usize..(wanted.end - position) as usize;
            let to = at + (wanted.start - want.start) as usize..at + (wanted.end - want.start) as usize;
            for (channel, samples) in (0..usize::from(self.header.channels)).zip(samples) {
                out.channel_mut(channel)[to.clone()].copy_from_slice(&samples[from.clone()]);
            }
        };
        let Header { layer, sample_rate, channels, .. } = self.header;
        if layer == 3 {
            let make = || Ok((layer3::Decoder::new(Level::detect()), layer3::BYTES));
            let decoder = kept.decoder(Codec::Mp3, &[layer], make)?;
            decoder.reset();
            for index in frames {
                let (header, frame) = self.frame(index);
                let samples = decoder.decode(&header, frame).map_err(|error| self.damaged(index, error))?;
                copy(index, samples);
            }
            return Ok(());
        }
        let [low, mid, high, _] = sample_rate.to_le_bytes();
        let setup = [layer, channels, low, mid, high];
        let decoder = kept.decoder(self.info().codec, &setup, || new_decoder(&self.header))?;
        decoder.reset();
        for index in frames {
            let samples = self.decode(decoder.as_mut(), index)?;
            copy(index, [0, 1].map(|channel| samples.plane(channel).unwrap_or_default()));
        }
        Ok(())
    }

    /// The error of a frame that cannot be decoded.
    fn damaged(&self, index: usize, error: impl std::error::Error + Send + Sync + 'static) -> Error {
        let offset = u64::from(self.frames[index - self.first]);
        corrupt("an MPEG audio frame cannot be decoded").at_byte(offset).because(error)
    }

    /// The frame to start at, so that from the frame `wanted` on the decoder's state is that of a full
    /// decode; None if it is before the window.
    fn start(&self, link: &Link, wanted: usize) -> Option<usize> {
        let first = wanted.saturating_sub(PRIMING).max(link.frames.start);
        if self.header.layer != 3 {
            return Some(first).filter(|&first| first >= self.first);
        }
        let mut held = 0;
        for start in (link.frames.start.max(self.first)..=first).rev() {
            let mut reservoir = Reservoir::default();
            if (start..=first).any(|index| reservoir.feed(self.main_data(index))) {
                return Some(start);
            }
            held += self.main_data(start).len;
            // No frame refers back that far, so a full decode lacks main data here, too. Only decoding from
            // the start of the link gives its state.
            if held > RESERVOIR_LEN {
                break;
            }
        }
        Some(link.frames.start).filter(|&start| start >= self.first)
    }

    fn frame(&self, index: usize) -> (Header, &'a [u8]) {
        let bytes = &self.bytes[self.frames[index - self.first] as usize..];
        let header = Header::parse(bytes).unwrap_or(self.header);
        (header, &bytes[..header.len.min(bytes.len())])
    }

    fn main_data(&self, index: usize) -> header::MainData {
        let (header, frame) = self.frame(index);
        header.main_data(frame)
    }

    /// Decodes a frame of layer I or II.
    fn decode<'d>(&self, decoder: &'d mut dyn AudioDecoder, index: usize) -> Result<&'d AudioBuffer<f32>> {
        let (_, frame) = self.frame(index);
        let samples = decoder
            .decode_ref(&PacketRef::new(0, Timestamp::ZERO, Duration::ZERO, frame))
            .map_err(|error| self.damaged(index, error))?;
        let GenericAudioBufferRef::F32(samples) = samples else {
            return Err(unsupported("the MPEG audio decoder returned samples that are not float32"));
        };
        let expected = self.header.n_samples() as usize;
        if samples.frames() != expected {
            let message =
                format!("an MPEG audio frame of {expected} samples decoded to {}", samples.frames());
            let offset = u64::from(self.frames[index - self.first]);
            return Err(Error::new(ErrorKind::TooShort, message).at_byte(offset));
        }
        Ok(samples)
    }
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

/// Builds a decoder of layer I or II; returns it with its estimated bytes.
fn new_decoder(header: &Header) -> Result<(Box<dyn AudioDecoder>, usize)> {
    let codec = [CODEC_ID_MP1, CODEC_ID_MP2, CODEC_ID_MP3][usize::from(header.layer - 1)];
    let mut parameters = AudioCodecParameters::new();
    parameters.for_codec(codec).with_sample_rate(header.sample_rate);
    let decoder = MpaDecoder::try_new(&parameters, &AudioDecoderOptions::default())
        .map_err(|error| unsupported("there is no decoder for this MPEG audio layer").because(error))?;
    Ok((Box::new(decoder), DECODER_BYTES))
}

/// The most bytes that a step of the scan looks at: a frame, a header, the start of a tag.
pub(super) const AHEAD_BYTES: u64 = 8 << 10;
/// The bytes at the end of a recording by which Lyrics3 is recognised: its end, and ID3v1.
pub(super) const TAIL_LEN: usize = 128 + 9;

/// The last bytes of a recording.
fn tail(bytes: &[u8]) -> &[u8] {
    &bytes[bytes.len().saturating_sub(TAIL_LEN)..]
}

/// A piece of a recording, or all of it.
#[derive(Clone, Copy)]
pub(super) struct Piece<'a> {
    pub(super) bytes: &'a [u8],
    /// Its offset in the recording.
    pub(super) base: u64,
    /// Bytes of the recording.
    pub(super) size: u64,
    /// The last [`TAIL_LEN`] bytes of the recording.
    pub(super) tail: &'a [u8],
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
pub(super) struct Walk {
    pub(super) scan: Scan,
    tag: Tag,
    begin: usize,
    /// The number of frames with audio so far.
    pub(super) n_frames: usize,
}

impl Walk {
    /// Walks the frames in `piece`; returns whether the timeline ends there. If not, the walk continues with
    /// the piece that begins at [`Scan::at`]. `each` is called with the offset and the number of each frame
    /// with audio, and ends the walk by returning false.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if a frame has a mixed block at 8 kHz, and the errors of `each`.
    pub(super) fn step(
        &mut self,
        piece: &Piece<'_>,
        links: &mut Vec<Link>,
        mut each: impl FnMut(u64, usize) -> Result<bool>,
    ) -> Result<bool> {
        loop {
            let (offset, frame) = match self.scan.next(piece) {
                Step::Frame(offset, frame) => (offset, frame),
                Step::End => return Ok(true),
                Step::More => return Ok(false),
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
    pub(super) fn finish(&mut self, file: &Piece<'_>, links: &mut Vec<Link>) -> Result<Header> {
        let Some(header) = self.scan.header else { return Err(refuse(file)) };
        links.push(Link::new(self.begin..self.n_frames, &header, self.tag));
        links.retain(|link| link.n_samples > 0);
        if links.is_empty() {
            return Err(Error::new(ErrorKind::Empty, "the MPEG audio stream has no frames with samples"));
        }
        Ok(header)
    }

    /// The number of frames that the tag of the current link declares.
    pub(super) fn declared(&self) -> Option<u32> {
        self.tag.n_frames
    }
}

/// Walks the frames of the timeline.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// Byte offset of the next frame.
    pub(super) at: u64,
    /// The first frame's header.
    pub(super) header: Option<Header>,
    /// Whether the bytes before are no frame.
    is_lost: bool,
    /// Bytes skipped before the first frame.
    junk: usize,
    /// Bytes of a frame that is cut off by the recording's end, and the bytes that its header declares.
    cut: Option<(usize, usize)>,
    /// The offset of frames of another kind, which end the timeline.
    foreign: Option<usize>,
}

/// A step of a scan.
enum Step {
    /// A frame: its offset and header.
    Frame(u64, Header),
    /// The timeline ends.
    End,
    /// The next piece is needed, from [`Scan::at`] on.
    More,
}

impl Scan {
    /// Whether it ended at an incomplete frame, or at frames of another kind.
    pub(super) fn is_cut(&self) -> bool {
        self.cut.is_some() || self.foreign.is_some()
    }

    /// The next frame.
    fn next(&mut self, piece: &Piece<'_>) -> Step {
        let mut is_lost = self.is_lost || self.header.is_none();
        loop {
            self.is_lost = is_lost;
            let Some(mut rest) = piece.from(self.at) else { return Step::More };
            while let Some(len) = tag_len(rest, piece.size.saturating_sub(self.at), piece.tail) {
                self.at += len;
                match piece.from(self.at) {
                    Some(next) => rest = next,
                    None => return Step::More,
                }
            }
            if rest.len() < HEADER_LEN || self.junk > MAX_LEADING_JUNK {
                return Step::End;
            }
            match Header::parse(rest).filter(|header| header.len > 0) {
                Some(header) if self.header.is_none_or(|first| first.is_akin(&header)) => {
                    if header.len > rest.len() {
                        // A frame that is cut off by the end of the recording, or a false header.
                        if !is_lost {
                            self.cut = Some((rest.len(), header.len));
                            return Step::End;
                        }
                    } else if !is_lost || is_followed(&header, &rest[header.len..], piece.tail) {
                        let offset = self.at;
                        self.at += header.len as u64;
                        prefetch(rest, AHEAD * header.len);
                        self.header.get_or_insert(header);
                        self.is_lost = false;
                        return Step::Frame(offset, header);
                    }
                }
                // Two frames of another kind directly after a frame: another recording begins.
                Some(header)
                    if !is_lost
                        && header.len <= rest.len()
                        && is_followed(&header, &rest[header.len..], piece.tail) =>
                {
                    self.foreign = Some(self.at as usize);
                    return Step::End;
                }
                _ => {}
            }
            is_lost = true;
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
            "the MPEG audio stream is of free format, whose frames do not declare their length; encode it with a fixed bit rate",
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
        || Header::parse(rest).is_some_and(|next| next.len > 0 && next.is_akin(header))
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
