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
//! A recording of a constant bit rate is one whose frames at both ends are where arithmetic places them
//! ([`Constant`]). If frames between are not there, because bytes of them are damaged, they are lost, and the
//! others keep their places in time; so spans that are located by arithmetic agree. In other recordings bytes
//! that are no frame are left out.
//!
//! A frame's samples depend on the two granules before it (overlap, then the polyphase filter), and on main
//! data that may begin up to 511 bytes earlier, in any number of frames. So decoding starts at least three
//! frames early, and so early that one of these frames has all of its main data ([`ReservoirCount`]). From
//! there on a decoder has the state that it would have after decoding all frames before.
//!
//! The frames of a stream of free format do not declare their length: it is the distance of three headers
//! with the same fixed bits, found once (`Header::free`). Only layer III has such frames here.
//!
//! Source: ISO/IEC 11172-3, ISO/IEC 13818-3; the tags' layouts as their authors published them.

mod constant;
mod header;
mod index;
mod layer3;
mod walk;

use std::ops::Range;

use symphonia::{
    core::{
        audio::{Audio, AudioBuffer, GenericAudioBufferRef},
        codecs::audio::{
            AudioCodecParameters, AudioDecoder, AudioDecoderOptions,
            well_known::{CODEC_ID_MP1, CODEC_ID_MP2},
        },
        packet::PacketRef,
        units::{Duration, Timestamp},
    },
    default::codecs::MpaDecoder,
};

use crate::{
    Codec, DecoderCache, Error, ErrorKind, Info, Places, Planes, Result, corrupt,
    damage::DamagedFrames,
    decoder_cache::VecPool,
    formats::{AnyIndex, Format, FrameSync, Opened, follows},
    index_file::Parser,
    read_at::RangeReader,
    simd::Level,
    unsupported,
};
pub(crate) use constant::{Constant, PROOF};
pub(crate) use header::Header;
use header::ReservoirCount;
#[cfg(test)]
pub(crate) use index::FramePositions;
pub(crate) use index::MpegIndex;
pub(crate) use walk::{AHEAD_BYTES, Link, Piece, TAIL_LEN, Walk};

/// The number of frames by which decoding starts early: two frames and one granule, in whole frames.
const PRIMING: usize = 3;
/// More bytes of main data than any frame can refer back to and hold.
const RESERVOIR_LEN: usize = 4096;
/// The offset of a frame that is not where a constant bit rate places it.
pub(crate) const MISSING: u32 = u32::MAX;
/// The approximate bytes of a cached decoder of layer I or II.
const DECODER_BYTES: usize = 40 << 10;

/// MPEG audio frames, perhaps after ID3v2 or junk.
#[derive(Debug)]
pub(crate) struct MpegAudio;

impl Format for MpegAudio {
    fn name(&self) -> &'static str {
        "mpeg"
    }

    fn frames(&self) -> Option<FrameSync> {
        let is_frame = |bytes: &[u8], is_start| {
            follows(bytes, frame_len, is_start)
                || Header::parse_first(bytes).is_some_and(|header| header.free > 0)
        };
        Some(FrameSync { byte: 0xff, is_frame })
    }

    fn finds_start(&self) -> bool {
        true
    }

    fn places(&self) -> Places {
        Places::Counted
    }

    fn open<'a>(&self, cache: &mut DecoderCache, reader: &mut RangeReader<'a>) -> Result<Option<Opened<'a>>> {
        let all = 0..reader.size();
        MpegIndex::open(cache, reader, all)
    }

    fn read_index(&self, from: &mut Parser<'_>, size: u64, info: Info) -> Option<AnyIndex> {
        MpegIndex::read(from, size, info)
    }
}

impl Header {
    fn codec(&self) -> Codec {
        [Codec::Mp1, Codec::Mp2, Codec::Mp3][usize::from(self.layer - 1)]
    }
}

/// Length and fixed bits of a frame.
fn frame_len(bytes: &[u8]) -> Option<(usize, u32)> {
    let header = Header::parse(bytes).filter(|header| header.len > 0)?;
    Some((header.len, u32::from(bytes[1] & 0xfe) << 8 | u32::from(bytes[2] & 0x0c)))
}

/// Frames of a recording: all of them, or those in a window.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mpeg<'a> {
    bytes: &'a [u8],
    /// The first frame's header; all frames have its layer, rate and channels.
    header: Header,
    /// Byte offsets of the frames with audio; [`MISSING`] for lost ones.
    frames: &'a [u32],
    /// The number of the first of these frames.
    first: usize,
}

#[derive(Default)]
pub(crate) struct MpegPools {
    frames: VecPool<u32>,
    links: VecPool<Link>,
}

impl Mpeg<'_> {
    /// The number of the frame after the last one in a window.
    pub(crate) fn behind(&self) -> usize {
        self.first + self.frames.len()
    }

    /// Whether a window has all frames from which decoding frame number `wanted` of `link` starts.
    pub(crate) fn has_start(&self, link: &Link, wanted: usize) -> bool {
        self.start(link, wanted).is_some()
    }

    /// The numbers of the frames with the samples `span` of `link`.
    pub(crate) fn frames_of(link: &Link, header: &Header, span: &Range<u64>) -> Range<usize> {
        let per_frame = u64::from(header.n_samples());
        let first = (link.delay + span.start) / per_frame;
        let end = (link.delay + span.end).div_ceil(per_frame);
        link.frames.start + first as usize..link.frames.start + end as usize
    }

    /// Decodes the samples `span` of `link` into `out` from its sample `at` on.
    pub(crate) fn read_link(
        &self,
        link: &Link,
        cache: &mut DecoderCache,
        span: Range<u64>,
        out: &mut Planes,
        at: usize,
    ) -> Result<()> {
        let mut losses = std::mem::take(&mut cache.losses);
        let read = self.read_frames(link, cache, span, out, at, &mut losses);
        cache.losses = losses;
        read
    }

    /// As [`Self::read_link`]; frames that cannot be decoded are silent as `losses` allows.
    fn read_frames(
        &self,
        link: &Link,
        cache: &mut DecoderCache,
        span: Range<u64>,
        out: &mut Planes,
        at: usize,
        losses: &mut DamagedFrames,
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
        let n_planes = usize::from(out.channels());
        let is_mean = n_planes < usize::from(self.header.channels);
        // Without samples, zeros.
        let mut copy = |index: usize, samples: Option<[&[f32]; 2]>| {
            let Some(frame) = index.checked_sub(link.frames.start + wanted_frames.start) else { return };
            let position = (wanted_frames.start + frame) as u64 * per_frame;
            let wanted = position.max(want.start)..(position + per_frame).min(want.end);
            let from = (wanted.start - position) as usize..(wanted.end - position) as usize;
            let to = at + (wanted.start - want.start) as usize..at + (wanted.end - want.start) as usize;
            for channel in 0..n_planes {
                let out = &mut out.channel_mut(channel)[to.clone()];
                match samples {
                    Some(samples) => out.copy_from_slice(&samples[channel][from.clone()]),
                    None => out.fill(0.0),
                }
            }
        };
        let mut lose = |index: usize, error: Error| {
            let n = match index.checked_sub(link.frames.start + wanted_frames.start) {
                Some(frame) => {
                    let position = (wanted_frames.start + frame) as u64 * per_frame;
                    (position + per_frame).min(want.end) - position.max(want.start)
                }
                // Before the span: nothing of it is silent.
                None => 0,
            };
            losses.silence(n, error)
        };
        let Header { layer, sample_rate, channels, .. } = self.header;
        if layer == 3 {
            let make = || Ok((layer3::Decoder::new(Level::detect()), layer3::BYTES));
            let decoder = cache.decoder(Codec::Mp3, &[layer], make)?;
            decoder.reset(is_mean);
            for index in frames {
                let decoded = match self.frame(index) {
                    Some((header, frame)) => {
                        decoder.decode(&header, frame).map_err(|error| self.damaged(index, error))
                    }
                    None => {
                        decoder.skip();
                        Err(self.missing(index))
                    }
                };
                match decoded {
                    Ok(samples) => copy(index, Some(samples)),
                    Err(error) => {
                        lose(index, error)?;
                        copy(index, None);
                    }
                }
            }
            return Ok(());
        }
        let [low, mid, high, _] = sample_rate.to_le_bytes();
        let setup = [layer, channels, low, mid, high];
        let decoder = cache.decoder(self.header.codec(), &setup, || new_decoder(&self.header))?;
        decoder.reset();
        for index in frames {
            match self.decode(decoder.as_mut(), index) {
                Ok(samples) => {
                    copy(index, Some([0, 1].map(|channel| samples.plane(channel).unwrap_or_default())));
                }
                Err(error) => {
                    decoder.reset();
                    lose(index, error)?;
                    copy(index, None);
                }
            }
        }
        Ok(())
    }

    /// The error of a frame that is not there.
    fn missing(&self, index: usize) -> Error {
        let message =
            format!("the MPEG audio frame number {index} is not where the constant bit rate places it");
        corrupt(message)
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
            let mut reservoir = ReservoirCount::default();
            // After a lost frame a full decode has no main data, either.
            let Some(here) = self.main_data(start) else { return Some(start) };
            let mut data = (start..=first).filter_map(|index| self.main_data(index));
            if data.any(|data| reservoir.feed(data)) {
                return Some(start);
            }
            held += here.len;
            // No frame refers back that far, so a full decode lacks main data here, too. Only decoding from
            // the start of the link gives its state.
            if held > RESERVOIR_LEN {
                break;
            }
        }
        Some(link.frames.start).filter(|&start| start >= self.first)
    }

    /// Header and bytes of a frame; None for a lost one.
    fn frame(&self, index: usize) -> Option<(Header, &[u8])> {
        let offset = self.frames[index - self.first];
        if offset == MISSING {
            return None;
        }
        let bytes = &self.bytes[offset as usize..];
        let header = self.header.parse_next(bytes).unwrap_or(self.header);
        Some((header, &bytes[..header.len.min(bytes.len())]))
    }

    fn main_data(&self, index: usize) -> Option<header::MainData> {
        let (header, frame) = self.frame(index)?;
        Some(header.main_data(frame))
    }

    /// Decodes a frame of layer I or II.
    fn decode<'d>(&self, decoder: &'d mut dyn AudioDecoder, index: usize) -> Result<&'d AudioBuffer<f32>> {
        let (_, frame) = self.frame(index).ok_or_else(|| self.missing(index))?;
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

/// Builds a decoder of layer I or II; returns it with its estimated bytes.
fn new_decoder(header: &Header) -> Result<(Box<dyn AudioDecoder>, usize)> {
    let codec = if header.layer == 1 { CODEC_ID_MP1 } else { CODEC_ID_MP2 };
    let mut parameters = AudioCodecParameters::new();
    parameters.for_codec(codec).with_sample_rate(header.sample_rate);
    let decoder = MpaDecoder::try_new(&parameters, &AudioDecoderOptions::default())
        .map_err(|error| unsupported("there is no decoder for this MPEG audio layer").because(error))?;
    Ok((Box::new(decoder), DECODER_BYTES))
}
