//! Frames and packets that cannot be decoded: silence up to a limit, or errors; spans and full decodes agree.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod spans;

use std::ops::Range;

use forebay_audio::{AudioDecoder, Damage, Planes};
use forebay_base::{ErrorKind, Result};
use spans::{equal, file};

fn read(damage: Damage, bytes: &[u8], span: Option<Range<u64>>) -> Result<(Vec<Vec<f32>>, u64)> {
    let mut decoder = AudioDecoder::with_damage(damage);
    let recording = decoder.open(bytes)?;
    let n = recording.info().n_samples;
    let mut out = Planes::new();
    decoder.read(&recording, span.unwrap_or(0..n), &mut out)?;
    let samples = (0..usize::from(out.channels())).map(|channel| out.channel(channel).to_vec()).collect();
    Ok((samples, decoder.filled().filled))
}

/// The offset of the first frame at or after byte `from`: a header with the fixed bits of the first one's.
fn frame_after(bytes: &[u8], from: usize) -> usize {
    let fixed = |at: usize| (bytes[at], bytes[at + 1] & 0xfe, bytes[at + 2] & 0x0c);
    let first = (0..).find(|&at| bytes[at] == 0xff && bytes[at + 1] >= 0xe0).unwrap();
    (from..).find(|&at| fixed(at) == fixed(first) && bytes[at + 2] < 0xf0).unwrap()
}

/// The offset of the packet at or after byte `from` of an MP4 file whose packets follow one another.
fn packet_after(bytes: &[u8], from: usize) -> usize {
    let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let find = |name: &[u8; 4]| bytes.windows(4).position(|four| four == name).unwrap();
    let (sizes, offsets) = (find(b"stsz"), find(b"stco"));
    let mut at = word(offsets + 12);
    for i in 0..word(sizes + 12) {
        if at >= from {
            return at;
        }
        at += word(sizes + 16 + 4 * i);
    }
    panic!("no packet is behind byte {from}");
}

type Spoil = fn(&mut [u8], usize);

/// Makes the side information or the allocation of a frame impossible.
fn spoil_mpeg(bytes: &mut [u8], from: usize) {
    let at = frame_after(bytes, from);
    bytes[at + 4..at + 38].fill(0xff);
}

/// The packet begins with an element that no decoder of two channels knows.
fn spoil_adts(bytes: &mut [u8], from: usize) {
    let at = frame_after(bytes, from);
    bytes[at + 7..at + 15].fill(0x5f);
}

fn spoil_alac(bytes: &mut [u8], from: usize) {
    let at = packet_after(bytes, from);
    bytes[at..at + 8].fill(0x5f);
}

fn spoil_checked(bytes: &mut [u8], at: usize) {
    bytes[at..at + 24].fill(0xff);
}

/// A recording of each codec, what damages one of its frames, and the most samples that may be lost.
fn cases() -> Vec<(&'static str, Vec<u8>, Spoil, u64)> {
    let of = |folder: &str, name: &'static str, spoil: Spoil, most| (name, file(folder, name), spoil, most);
    vec![
        of("mpeg", "mp3_cbr128_32000_stereo.mp3", spoil_mpeg, 1152),
        of("mpeg", "lame_v2_48000_stereo_crc.mp3", spoil_mpeg, 1152),
        of("mpeg", "mp2_44100_mono.mp2", spoil_mpeg, 1152),
        of("vorbis", "perch_16000_mono.ogg", spoil_checked, 20_000),
        of("mewkiz-flac", "80574.flac", spoil_checked, 2 * 4608),
        of("players", "aac.aac", spoil_adts, 1024),
        of("players", "alac_plain.m4a", spoil_alac, 4096),
    ]
}

#[test]
fn a_damaged_frame_is_silence_or_an_error() {
    let most = Damage { most: 0.6 };
    for (name, good, spoil, longest) in cases() {
        let (expected, none) = read(most, &good, None).unwrap();
        assert_eq!(none, 0, "{name}");
        let n = expected[0].len();
        let mut n_silent = 0;
        for share in [30, 45, 60] {
            let at = good.len() * share / 100;
            let mut bytes = good.clone();
            spoil(&mut bytes, at);
            let (samples, filled) =
                read(most, &bytes, None).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(filled <= longest, "{name} at {share}: {filled}");
            if filled == 0 {
                continue;
            }
            n_silent += 1;
            assert_eq!(samples[0].len(), n, "{name}");
            // What is not near the damage is as before.
            let differ: Vec<_> =
                (0..n).filter(|&i| samples[0][i].to_bits() != expected[0][i].to_bits()).collect();
            let (first, last) = (differ[0], differ[differ.len() - 1]);
            assert!((last - first) as u64 <= longest + 4 * 1152, "{name} at {share}: {first} to {last}");
            // Spans equal slices, of which none but silence is an error.
            for start in (0..n - 6000).step_by(1733) {
                let span = start as u64..start as u64 + 6000;
                match read(Damage { most: 1.0 }, &bytes, Some(span)) {
                    Ok((part, _)) => {
                        let slice = &samples[0][start..start + 6000];
                        assert!(equal(&part[0], slice), "{name} at {share}: {start}");
                    }
                    Err(error) => {
                        assert_eq!(error.kind, ErrorKind::Corrupt, "{name}: {error}");
                        assert!(samples[0][start..start + 6000].iter().all(|x| *x == 0.0), "{name}: {start}");
                    }
                }
            }
            let strict = read(Damage::ERROR, &bytes, None).unwrap_err();
            assert!([ErrorKind::Corrupt, ErrorKind::TooShort].contains(&strict.kind), "{name}: {strict}");
            let limited = read(Damage { most: 0.5 * filled as f64 / n as f64 }, &bytes, None).unwrap_err();
            assert_eq!(limited.to_string(), strict.to_string(), "{name}");
        }
        assert!(n_silent > 0, "{name}: nothing was damaged");
    }
}
