//! FLAC against the plain decoder and against symphonia.

use std::panic::{AssertUnwindSafe, catch_unwind};

use symphonia::core::{
    audio::{Audio, GenericAudioBufferRef},
    codecs::audio::{AudioCodecParameters, AudioDecoder, AudioDecoderOptions, well_known::CODEC_ID_FLAC},
    packet::PacketRef,
    units::{Duration, Timestamp},
};
use symphonia_bundle_flac::FlacDecoder;

use super::{
    compare::{any_frame, decoded, decoders},
    *,
};
use crate::{
    ErrorKind, Planes,
    formats::flac::{frame::crc8, plain},
    simd::Level,
};

/// Asserts that both decoders decode every frame of `bytes` to the same samples.
fn assert_equals_plain(bytes: &[u8]) {
    let flac = Flac::open(&mut DecoderCache::default(), bytes).unwrap();
    let mut plain = Vec::new();
    let mut out = Planes::new();
    out.reset(flac.shape.info.channels, flac.shape.info.n_samples as usize).unwrap();
    flac.read(&mut DecoderCache::default(), 0..flac.shape.info.n_samples, &mut out).unwrap();
    let mut frame = Some(flac.first);
    let mut n = 0;
    while let Some(this) = frame {
        let (end, next) = end_of(flac.bytes, &flac.shape.stream, this, usize::MAX).unwrap();
        let len = plain::decode(&flac.bytes[this.at..], &flac.shape.stream, &mut plain).unwrap();
        assert_eq!(this.at + len, end);
        for (c, plane) in plain.chunks_exact(this.block as usize).enumerate() {
            for (i, &x) in plane.iter().enumerate() {
                let want = x as f64 / f64::from(1u32 << (flac.shape.stream.bits - 1));
                assert_eq!(out.channel(c)[n + i], want as f32, "channel {c}, sample {}", n + i);
            }
        }
        n += this.block as usize;
        frame = next;
    }
    assert_eq!(n as u64, flac.shape.info.n_samples);
}

/// The numbering of a made stream's headers.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Count {
    Frames,
    Samples,
}

/// Makes a mono 8-bit file of verbatim frames with these block sizes and the samples of [`sample`].
fn made(blocks: &[u32], is_variable: bool, count: Count, total: u64) -> Vec<u8> {
    let (least, most) = (blocks.iter().min().unwrap(), blocks.iter().max().unwrap());
    let mut bytes = b"fLaC\x80\0\0\x22".to_vec();
    bytes.extend((*least as u16).to_be_bytes());
    bytes.extend((*most as u16).to_be_bytes());
    bytes.extend([0; 6]);
    bytes.extend((8000u64 << 44 | 7 << 36 | total).to_be_bytes());
    bytes.extend([0; 16]);
    let mut at = 0;
    for (i, &block) in blocks.iter().enumerate() {
        let number = if count == Count::Frames { i as u64 } else { at };
        bytes.extend(frame(block, is_variable, number, at));
        at += u64::from(block);
    }
    bytes
}

/// Sample `n` of the made streams.
fn sample(n: u64) -> i8 {
    (n.wrapping_mul(2_654_435_761) >> 11) as i8
}

/// Makes a frame with the header number `number` that begins with sample `first`.
fn frame(block: u32, is_variable: bool, number: u64, first: u64) -> Vec<u8> {
    let mut frame = vec![0xff, 0xf8 | u8::from(is_variable), 0x70, 0x02];
    match number {
        0..0x80 => frame.push(number as u8),
        0x80..0x800 => frame.extend([0xc0 | (number >> 6) as u8, 0x80 | (number & 63) as u8]),
        _ => frame.extend([
            0xf0 | (number >> 18) as u8,
            0x80 | (number >> 12 & 63) as u8,
            0x80 | (number >> 6 & 63) as u8,
            0x80 | (number & 63) as u8,
        ]),
    }
    frame.extend((block as u16 - 1).to_be_bytes());
    frame.push(crc8(&frame));
    // Subframe: verbatim, no wasted bits.
    frame.push(0x02);
    frame.extend((first..first + u64::from(block)).map(|n| sample(n) as u8));
    let crc = crc16(0, &frame);
    frame.extend(crc.to_be_bytes());
    frame
}

#[test]
fn however_frames_are_numbered() {
    // Long enough for the search by bisection.
    let varied: Vec<u32> = (0..900).map(|i| [200, 64, 128, 16, 300][i % 5]).collect();
    let equal = [&[128; 700][..], &[77]].concat();
    let begins_small: Vec<u32> = [&[1, 1, 16][..], &[200; 300]].concat();
    let cases = [
        (&varied, true, Count::Samples),
        (&varied, false, Count::Samples),
        (&begins_small, false, Count::Samples),
        (&equal, false, Count::Frames),
        (&equal, true, Count::Frames),
        (&equal, false, Count::Samples),
    ];
    for (blocks, is_variable, count) in cases {
        let n: u64 = blocks.iter().copied().map(u64::from).sum();
        for total in [n, 0, n + 1000] {
            let what = format!("{:?}, {is_variable}, {count:?}, {total} of {n}", &blocks[..3]);
            let bytes = made(blocks, is_variable, count, total);
            let mut cache = DecoderCache::default();
            let flac = Flac::open(&mut cache, &bytes).unwrap();
            assert_eq!(flac.shape.info.n_samples, n, "{what}");
            for span in [0..n, 0..1, n - 1..n, n / 3..n / 3 + 700, n / 2 + 5..n / 2 + 6, n - 900..n - 100] {
                let mut out = Planes::new();
                out.reset(1, (span.end - span.start) as usize).unwrap();
                flac.read(&mut cache, span.clone(), &mut out).unwrap();
                let want: Vec<f32> = span.clone().map(|n| f32::from(sample(n)) / 128.0).collect();
                assert!(out.channel(0) == want, "{what}: {span:?}");
            }
        }
    }
}

#[test]
fn what_cannot_be_placed_is_an_error_and_never_short() {
    // Frame numbers with blocks of several sizes, larger or smaller than the first.
    for blocks in [[64, 200, 64, 128, 64, 64], [200, 64, 128, 200, 200, 64], [200, 200, 64, 200, 200, 50]] {
        for is_variable in [false, true] {
            for total in [0, blocks.iter().map(|&n| u64::from(n)).sum()] {
                let bytes = made(&blocks, is_variable, Count::Frames, total);
                let error = Flac::open(&mut DecoderCache::default(), &bytes).unwrap_err();
                assert_eq!(error.kind, ErrorKind::Unsupported, "{blocks:?}, {is_variable}, {total}: {error}");
            }
        }
    }
    // Frames cut out by `ffmpeg -c copy` keep their numbers.
    for count in [Count::Frames, Count::Samples] {
        let bytes = made(&[128; 20], false, count, 0);
        let first = frame(128, false, 0, 0).len();
        let cut = [&bytes[..42], &bytes[42 + first..]].concat();
        let error = Flac::open(&mut DecoderCache::default(), &cut).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unsupported, "{error}");
        assert!(error.message.contains("was cut out of another one"), "{error}");
    }
    // Frames of another stream after the last, numbered from 0.
    let one = made(&[128; 20], false, Count::Frames, 0);
    let other = made(&[128; 10], false, Count::Frames, 0);
    let error = Flac::open(&mut DecoderCache::default(), &[&one[..], &other].concat()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Corrupt, "{error}");
    // The same if STREAMINFO declares exactly this number, and if the second file ends at it.
    let one = made(&[128; 20], false, Count::Frames, 2560);
    for joined in [[&one[..], &other].concat(), one.repeat(2), one.repeat(3)] {
        let error = Flac::open(&mut DecoderCache::default(), &joined).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Corrupt, "{error}");
        assert!(error.message.contains("another FLAC recording follows the 2560 samples"), "{error}");
    }
    // Frames with another blocking strategy are not taken for its own.
    let unlike = made(&[128; 10], true, Count::Samples, 0);
    let both = [&one[..], &unlike, b"APETAGEX"].concat();
    assert_eq!(Flac::open(&mut DecoderCache::default(), &both).unwrap().info().n_samples, 2560);
}

#[test]
fn a_flood_of_damaged_frames_ends() {
    // Each valid frame is followed by one with a wrong checksum; STREAMINFO allows the largest possible
    // frames.
    let mut bytes = made(&[16, 65535], false, Count::Samples, 0)[..42].to_vec();
    for i in 0..40_000u64 {
        let mut frame = frame(16, false, i, 16 * i);
        if i % 2 == 1 {
            *frame.last_mut().unwrap() ^= 1;
        }
        bytes.extend(frame);
    }
    let error = Flac::open(&mut DecoderCache::default(), &bytes).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Corrupt, "{error}");
}

#[test]
fn fast_decoder_equals_plain_one() {
    for bytes in [
        &include_bytes!("../../../../../tests/data/audio/mewkiz-flac/80574.flac")[..],
        include_bytes!("../../../../../tests/data/audio/mewkiz-flac/input-SCPAP.flac"),
        include_bytes!("../../../../../tests/data/audio/made/s8.flac"),
        include_bytes!("../../../../../tests/data/audio/made/s24.flac"),
        include_bytes!("../../../../../tests/data/audio/flac-ietf/subset_38_-_3_channels_3.0.flac"),
        include_bytes!(
            "../../../../../tests/data/audio/flac-ietf/subset_61_-_predictor_overflow_check_16-bit.flac"
        ),
    ] {
        assert_equals_plain(bytes);
    }
}

/// The files of `tests/data` that begin as FLAC or Ogg.
fn files() -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let root = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("tests/data");
    let (mut folders, mut found) = (vec![root.join("audio"), root.join("recordings")], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "flac") {
                let bytes = std::fs::read(&path).unwrap();
                found.push((path, bytes));
            }
        }
    }
    found.sort();
    found
}

/// symphonia's decoder of a recording's frames.
fn symphonia(flac: &Flac<'_>) -> Option<FlacDecoder> {
    let mut params = AudioCodecParameters::new();
    params.for_codec(CODEC_ID_FLAC).with_extra_data(flac.shape.setup.into());
    FlacDecoder::try_new(&params, &AudioDecoderOptions::default().gapless(false)).ok()
}

/// A sum of symphonia's exceeds 32 bits, which is a panic in tests.
#[derive(Debug)]
struct Overflow;

/// A frame by symphonia: its channels as floats of full scale 1. None if it reports an error.
fn by_symphonia(
    decoder: &mut FlacDecoder,
    bytes: &[u8],
) -> std::result::Result<Option<Vec<Vec<f32>>>, Overflow> {
    let packet = PacketRef::new(0, Timestamp::ZERO, Duration::ZERO, bytes);
    let decoded = catch_unwind(AssertUnwindSafe(|| match decoder.decode_ref(&packet) {
        Ok(GenericAudioBufferRef::S32(decoded)) => Some(
            decoded
                .iter_planes()
                .map(|plane| plane.iter().map(|&x| x as f32 / 2_147_483_648.0).collect())
                .collect(),
        ),
        _ => None,
    }));
    decoded.map_err(|_| Overflow)
}

#[test]
fn every_frame_equals_symphonias_at_every_level() {
    let mut n_frames = 0;
    for (path, bytes) in files() {
        let mut cache = DecoderCache::default();
        let Ok(flac) = Flac::open(&mut cache, &bytes) else { continue };
        // symphonia's difference channels of 32-bit samples overflow.
        if flac.shape.stream.bits == 32 {
            continue;
        }
        let Some(mut theirs) = symphonia(&flac) else { continue };
        let mut ours = decoders();
        let mut frame = Some(flac.first);
        while let Some(this) = frame {
            let Some((end, next)) = flac.step(this) else { break };
            let bytes = &bytes[this.at..end];
            let want = by_symphonia(&mut theirs, bytes).expect("a sum within 32 bits");
            let found = decoded(&mut ours, bytes, &flac.shape.stream).map(|found| found.planes);
            assert!(want.is_some() && want == found, "{path:?}, {this:?}");
            n_frames += 1;
            frame = next;
        }
    }
    assert!(n_frames > 500, "{n_frames} frames");
}

#[test]
fn unlike_frames_side_by_side_equal_single_ones() {
    let mut n_decoded = 0;
    for (path, bytes) in files() {
        let Ok(flac) = Flac::open(&mut DecoderCache::default(), &bytes) else { continue };
        let (stream, block) = (&flac.shape.stream, flac.first.block);
        let most = FrameDecoder::most_together(stream, block);
        let (mut frames, mut frame) = (Vec::new(), Some(flac.first));
        while let Some(this) = frame.filter(|this| frames.len() < 40 && this.block == block) {
            let Some((end, next)) = flac.step(this) else { break };
            frames.push(&bytes[this.at..end]);
            frame = next;
        }
        for (n, level) in (2..=most).zip(Level::available().into_iter().cycle()) {
            let mut decoder = FrameDecoder::at(level, &mut DecoderCache::default());
            for (group, frames) in frames.chunks_exact(n).enumerate() {
                // A last frame of which the end is not needed, or no more than what precedes the residuals.
                let block = block as usize;
                let until = [block - block / 3, 1, 2, 4, 9, 33, block][group % 7].min(block);
                if !decoder.decode_together(frames, stream, until).unwrap() {
                    continue;
                }
                n_decoded += 1;
                let samples = |decoder: &FrameDecoder, i, c, n| {
                    let mut out = vec![0.0; n];
                    decoder.write(i, c, 0..n, &mut out);
                    out
                };
                let mut single = FrameDecoder::at(Level::Portable, &mut DecoderCache::default());
                for (i, frame) in frames.iter().enumerate() {
                    assert_eq!(single.decode(frame, stream).unwrap(), Some(frame.len()));
                    let n_samples = if i + 1 == n { until } else { block };
                    for c in 0..stream.channels {
                        let (found, want) =
                            (samples(&decoder, i, c, n_samples), samples(&single, 0, c, n_samples));
                        assert!(found == want, "{path:?}, frame {i} of {n}, channel {c}");
                    }
                }
            }
        }
    }
    assert!(n_decoded > 300, "{n_decoded} decoded");
}

/// Writes bits, the highest first.
#[derive(Default)]
struct BitWriter(Vec<u8>, usize);

impl BitWriter {
    fn put(&mut self, value: u32, n: usize) {
        for bit in (0..n).rev() {
            if self.1.is_multiple_of(8) {
                self.0.push(0);
            }
            *self.0.last_mut().unwrap() |= ((value >> bit & 1) as u8) << (7 - self.1 % 8);
            self.1 += 1;
        }
    }
}

/// The Rice parameter of a partition without residuals is read, also side by side: the next subframe follows.
#[test]
fn a_predictor_may_be_as_long_as_its_block() {
    let (bits, block) = (16, 16);
    let sample = |i: u32| i * 2609 % 65_521;
    let mut frame = BitWriter::default();
    // Linear prediction of order 16: samples, precision 15, shift 10, coefficients, one partition.
    frame.put((31 + block) << 1, 8);
    (0..block).for_each(|i| frame.put(sample(i), bits));
    frame.put(14, 4);
    frame.put(10, 5);
    (0..block).for_each(|i| frame.put(100 * i, 15));
    frame.put(0, 2 + 4 + 4);
    // The other channel as it is.
    frame.put(1 << 1, 8);
    (0..block).for_each(|i| frame.put(sample(100 + i), bits));
    // Bits and channels as `any_frame` takes them, and the block.
    let mut bytes = vec![bits as u8 - 4, 1, 0, block as u8 - 1];
    bytes.extend(&frame.0);
    bytes.extend([0; 2]);
    assert!(any_frame(&bytes), "the frame is refused");
}

/// Numbers for tests, by a linear congruence.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }

    /// Flips up to four bits from byte `begin` on, and sometimes cuts the end off.
    fn damage(&mut self, bytes: &mut Vec<u8>, begin: usize) {
        for _ in 0..=self.below(4) {
            let at = begin + self.below(bytes.len() - begin);
            bytes[at] ^= 1 << self.below(8);
        }
        if self.below(4) == 0 {
            bytes.truncate(begin + self.below(bytes.len() - begin));
        }
    }
}

#[test]
fn damaged_frames_are_decoded_as_symphonia_does_or_refused() {
    // The decoder does not check the CRC-16, so the damage reaches it.
    let mut random = Random(1);
    let (mut n_equal, mut n_refused) = (0, 0);
    for (path, bytes) in files() {
        let mut cache = DecoderCache::default();
        let Ok(flac) = Flac::open(&mut cache, &bytes) else { continue };
        let Some((end, _)) = flac.step(flac.first) else { continue };
        let Some(mut theirs) = symphonia(&flac) else { continue };
        let mut ours = decoders();
        let begin = Header::parse(&bytes[flac.first.at..]).unwrap().len;
        for trial in 0..60 {
            let mut frame = bytes[flac.first.at..end].to_vec();
            random.damage(&mut frame, begin);
            let found = decoded(&mut ours, &frame, &flac.shape.stream);
            // Sums beyond 32 bits, which only the plain decoder has.
            if flac.shape.stream.bits == 32 {
                continue;
            }
            let Ok(want) = by_symphonia(&mut theirs, &frame) else { continue };
            match (found, want) {
                (None, None) => n_refused += 1,
                // symphonia's sums of samples above the width are others.
                (Some(found), Some(want)) => {
                    assert!(!found.is_within || found.planes == want, "{path:?}, trial {trial}");
                    n_equal += usize::from(found.is_within);
                }
                (found, _) => panic!(
                    "{path:?}, trial {trial}: only {}",
                    if found.is_some() { "ours" } else { "theirs" }
                ),
            }
        }
    }
    assert!(n_equal > 300 && n_refused > 300, "{n_equal} equal, {n_refused} refused");
}

#[test]
fn damaged_frames_of_any_shape_are_decoded_as_the_plain_decoder_does() {
    let mut random = Random(2);
    for (_, bytes) in files() {
        let mut cache = DecoderCache::default();
        let Ok(flac) = Flac::open(&mut cache, &bytes) else { continue };
        let Some((end, _)) = flac.step(flac.first) else { continue };
        let header = Header::parse(&bytes[flac.first.at..]).unwrap();
        let subframes = &bytes[flac.first.at + header.len..end];
        for _ in 0..40 {
            let block = (random.below(header.block as usize) as u16).to_be_bytes();
            let mut frame = vec![random.below(29) as u8, random.below(11) as u8, block[0], block[1]];
            frame.extend(subframes);
            random.damage(&mut frame, 4);
            any_frame(&frame);
        }
    }
}
