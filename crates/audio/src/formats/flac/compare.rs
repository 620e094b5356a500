//! Compares the frame decoder with the plain one, for tests and the fuzzer.
//!
//! Input: any bytes. Output: the samples. Samples of a crafted frame may exceed the stream's width. The plain
//! decoder computes them in 64 bits, so they may differ from those of the frame decoder.

use super::decoder::FrameDecoder;
use crate::{
    decoder_cache::DecoderCache,
    formats::flac::{
        frame::{Header, Stream, crc8},
        plain,
    },
    simd::Level,
};

/// The frame decoder at every level of this CPU.
pub(super) fn decoders() -> Vec<FrameDecoder> {
    let mut cache = DecoderCache::default();
    Level::available().into_iter().map(|level| FrameDecoder::at(level, &mut cache)).collect()
}

#[derive(Debug, PartialEq)]
pub(super) struct Decoded {
    pub(super) planes: Vec<Vec<f32>>,
    /// Whether all samples fit in the stream's width.
    pub(super) is_within: bool,
}

/// Decodes the frame at the start of `bytes` by all `decoders`, and asserts that they and the plain decoder
/// agree. None if they refuse the frame.
pub(super) fn decoded(decoders: &mut [FrameDecoder], bytes: &[u8], stream: &Stream) -> Option<Decoded> {
    let header = Header::parse(bytes).filter(|header| header.agrees(stream));
    let (block, mut plain) = (header.map_or(0, |header| header.block as usize), Vec::new());
    let len = header.and_then(|_| plain::decode(bytes, stream, &mut plain));
    let by_level = decoders.iter_mut().map(|decoder| {
        assert_eq!(decoder.decode(bytes, stream).ok().flatten(), len, "bytes of the frame");
        len?;
        let plane = |c| {
            // bounded: a block is at most 65 536 samples.
            let mut out = vec![0.0; block];
            decoder.write(0, c, 0..block, &mut out);
            out
        };
        let planes = (0..stream.channels).map(plane).collect::<Vec<_>>();
        together(decoder, &bytes[..len?.min(bytes.len())], stream, &planes);
        Some(planes)
    });
    let mut by_level: Vec<_> = by_level.collect();
    let planes = by_level.pop().flatten();
    assert!(by_level.iter().all(|other| *other == planes), "the levels differ");
    let most = 1i64 << (stream.bits - 1);
    let is_within = plain.iter().all(|x| (-most..most).contains(x));
    let planes = planes?;
    if is_within {
        let plain = plain.iter().map(|&x| (x as f64 / most as f64) as f32);
        assert!(plain.eq(planes.iter().flatten().copied()), "the plain decoder differs");
    }
    Some(Decoded { planes, is_within })
}

/// Asserts that the same frame side by side with itself has the samples `planes`, if it is not refused.
fn together(decoder: &mut FrameDecoder, bytes: &[u8], stream: &Stream, planes: &[Vec<f32>]) {
    let block = planes.first().map_or(0, Vec::len);
    let n = FrameDecoder::most_together(stream, block as u32).min(3);
    if n < 2 || decoder.decode_together(&[bytes; 3][..n], stream, block).ok() != Some(true) {
        return;
    }
    for i in 0..n {
        for (c, plane) in (0..).zip(planes) {
            // bounded: a block is at most 65 536 samples.
            let mut out = vec![0.0; block];
            decoder.write(i, c, 0..block, &mut out);
            assert!(out == *plane, "frame {i} of {n} differs in channel {c}");
        }
    }
}

/// Decodes `bytes` as a frame, however damaged: width, channels, and block size in two bytes, then subframes.
/// Whether it was decoded.
pub(crate) fn any_frame(bytes: &[u8]) -> bool {
    let Some((&[bits, channels, high, low], subframes)) = bytes.split_first_chunk() else { return false };
    let (bits, channels) = (bits % 29 + 4, channels % 11);
    let mut frame = vec![0xff, 0xf8, 0x70, channels << 4, 0, high, low];
    frame.push(crc8(&frame));
    frame.extend_from_slice(subframes);
    let count = if channels < 8 { channels + 1 } else { 2 };
    let stream = Stream { sample_rate: 44100, channels: count, bits, is_variable: false, fixed: None };
    decoded(&mut decoders(), &frame, &stream).is_some()
}
