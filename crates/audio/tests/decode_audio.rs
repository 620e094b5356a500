//! Real recordings in every format with direct or frame-wise access: their samples, their spans, and damaged
//! copies.
//!
//! The expected samples of each file are in `tests/data/audio/expected.tsv`, made by the script beside it
//! with libsndfile.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "../../../tests/patience/mod.rs"]
mod patience;

use std::{
    fs,
    path::{Path, PathBuf},
};

use forebay_audio::{AudioDecoder, Codec, Places, Planes, Recording};
use forebay_base::{Error, ErrorKind};
use patience::thread_time;
use proptest::prelude::*;

/// Enough for any head.
const HEAD_BYTES: usize = 4096;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/audio")
}

/// CRC-32 (IEEE 802.3) of the samples as interleaved little-endian float32.
fn crc32(planes: &Planes) -> u32 {
    let table: Vec<u32> = (0..256)
        .map(|byte| {
            (0..8).fold(byte, |crc, _| if crc & 1 != 0 { 0xedb8_8320 ^ (crc >> 1) } else { crc >> 1 })
        })
        .collect();
    let mut crc = !0u32;
    for i in 0..planes.len() {
        for c in 0..usize::from(planes.channels()) {
            for byte in planes.channel(c)[i].to_le_bytes() {
                crc = table[((crc ^ u32::from(byte)) & 255) as usize] ^ (crc >> 8);
            }
        }
    }
    !crc
}

fn decode<'a>(decoder: &mut AudioDecoder, bytes: &'a [u8]) -> Result<(Recording<'a>, Planes), Error> {
    let recording = decoder.open(bytes)?;
    let mut whole = Planes::new();
    decoder.read(&recording, 0..recording.info().n_samples, &mut whole)?;
    Ok((recording, whole))
}

/// Name and expected fields of every file.
fn expected() -> Vec<(String, Vec<String>)> {
    let text = fs::read_to_string(folder().join("expected.tsv")).unwrap();
    text.lines()
        .map(|line| {
            let mut fields = line.split('\t').map(String::from);
            (fields.next().unwrap(), fields.collect())
        })
        .collect()
}

/// Whether spans of it are near slices of a full decode, and not equal.
fn is_approximate(recording: &Recording<'_>, name: &str) -> bool {
    let codec = recording.info().codec;
    codec == Codec::Opus || codec == Codec::Aac && !name.contains("no_noise")
}

#[test]
fn every_file_decodes_to_what_is_expected() {
    let mut decoder = AudioDecoder::new();
    let mut wrong = Vec::new();
    for (name, want) in expected() {
        let bytes = fs::read(folder().join(&name)).unwrap();
        let got = match decode(&mut decoder, &bytes) {
            Ok((recording, whole)) => {
                let info = recording.info();
                let is_rounded = matches!(info.codec, Codec::Aac | Codec::Opus);
                let sum = if is_rounded { "-".into() } else { format!("{:08x}", crc32(&whole)) };
                vec![info.sample_rate.to_string(), info.channels.to_string(), info.n_samples.to_string(), sum]
            }
            Err(error) => vec![error.kind.to_string()],
        };
        if got != want {
            wrong.push(format!("{name}: got {got:?}, expected {want:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_span_equals_the_slice_of_a_full_decode() {
    let mut decoder = AudioDecoder::new();
    let mut part = Planes::new();
    for (name, want) in expected() {
        if want.len() == 1 {
            continue;
        }
        let bytes = fs::read(folder().join(&name)).unwrap();
        let (recording, whole) = decode(&mut decoder, &bytes).unwrap();
        let n = recording.info().n_samples;
        let mut spans = vec![(0, 1), (n - 1, 1), (0, n), (n / 2, 0), (n, 0)];
        let mut x = 1u64;
        for len in [1, 2, 777, 5000, u64::from(recording.info().sample_rate)] {
            let len = len.min(n);
            spans.extend([(0, len), (n - len, len)]);
            for _ in 0..6 {
                x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                spans.push(((x >> 20) % (n - len + 1), len));
            }
        }
        for (start, len) in spans {
            decoder.read(&recording, start..start + len, &mut part).unwrap();
            assert_eq!((part.len() as u64, part.channels()), (len, recording.info().channels), "{name}");
            for c in 0..usize::from(part.channels()) {
                let slice = &whole.channel(c)[start as usize..(start + len) as usize];
                let pairs = slice.iter().zip(part.channel(c));
                if is_approximate(&recording, &name) {
                    // Noise substitution of AAC draws other noise for another span; it is quiet. SILK forgets
                    // its rounding slowly.
                    assert_same_span(AudioDecoder::new(), &recording, start..start + len, &part);
                    let worst = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                    let most = if recording.info().codec == Codec::Opus { 0.03 } else { 2e-3 };
                    assert!(worst < most, "{name}: {start} + {len}, channel {c}: {worst}");
                    continue;
                }
                let first = pairs.into_iter().position(|(a, b)| a.to_bits() != b.to_bits());
                assert_eq!(first, None, "{name}: {start} + {len}, channel {c}");
            }
        }
        for span in [0..n + 1, n..n + 1, n + 5..n + 9, 0..u64::MAX] {
            let error = decoder.read(&recording, span, &mut part).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Shape, "{name}");
        }
    }
}

fn assert_same_span(
    mut decoder: AudioDecoder,
    recording: &Recording<'_>,
    span: std::ops::Range<u64>,
    want: &Planes,
) {
    let mut again = Planes::new();
    decoder.read(recording, span, &mut again).unwrap();
    for c in 0..usize::from(want.channels()) {
        assert_eq!(again.channel(c), want.channel(c));
    }
}

#[test]
fn damage_outside_the_span_goes_unseen_and_inside_it_is_an_error() {
    let mut bytes = fs::read(folder().join("codec-ladder/flac_l8_32000_mono.flac")).unwrap();
    let mut decoder = AudioDecoder::new();
    let (_, whole) = decode(&mut decoder, &bytes.clone()).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    let recording = decoder.open(&bytes).unwrap();
    assert_eq!(recording.info().n_samples, 96000);
    let mut part = Planes::new();
    for start in [0, 80000] {
        decoder.read(&recording, start..start + 16000, &mut part).unwrap();
        assert_eq!(part.channel(0), &whole.channel(0)[start as usize..][..16000]);
    }
    let error = decoder.read(&recording, 0..96000, &mut part).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Corrupt, "{error}");
}

#[test]
fn a_flac_cut_short_ends_with_its_last_whole_frame() {
    let bytes = fs::read(folder().join("codec-ladder/flac_l8_32000_mono.flac")).unwrap();
    let mut decoder = AudioDecoder::new();
    let (_, whole) = decode(&mut decoder, &bytes).unwrap();
    let (recording, cut) = decode(&mut decoder, &bytes[..bytes.len() * 2 / 3]).unwrap();
    let n = recording.info().n_samples as usize;
    assert!((32000..80000).contains(&n), "{n}");
    assert_eq!(cut.channel(0), &whole.channel(0)[..n]);
}

#[test]
fn seek_tables_help_and_lies_in_them_do_not_harm() {
    let plain = fs::read(folder().join("codec-ladder/flac_l8_32000_mono.flac")).unwrap();
    let mut decoder = AudioDecoder::new();
    let (_, whole) = decode(&mut decoder, &plain).unwrap();
    let tables: [&[(u64, u64)]; 4] = [
        &[(0, 0), (u64::MAX, 0)],
        &[(1, 2), (40_000, 30_000), (50_000, 100), (u64::MAX, u64::MAX)],
        &[(90_000, 0), (10, 60_000)],
        &[(4608, u64::MAX - 3), (9216, 1 << 40)],
    ];
    for table in tables {
        let mut bytes = plain[..42].to_vec();
        bytes.extend([3, 0, 0, (18 * table.len()) as u8]);
        for (sample, offset) in table {
            bytes.extend(sample.to_be_bytes().into_iter().chain(offset.to_be_bytes()).chain([16, 0]));
        }
        bytes.extend(&plain[42..]);
        let recording = decoder.open(&bytes).unwrap();
        let mut part = Planes::new();
        for start in (0..95_000).step_by(7919) {
            decoder.read(&recording, start..start + 1000, &mut part).unwrap();
            assert_eq!(part.channel(0), &whole.channel(0)[start as usize..][..1000], "{table:?}");
        }
    }
}

/// Bases of the mutation test: one of each container and codec, small.
const BASES: [&str; 14] = [
    "made/ima_stereo.wav",
    "made/ms_stereo.wav",
    "made/f64.wav",
    "made/s16.w64",
    "made/s16.rf64",
    "made/s24.aiff",
    "made/f32.au",
    "made/s16le.caf",
    "made/alac16.caf",
    "made/alac.m4a",
    "made/s24.flac",
    "mewkiz-flac/80574.flac",
    "codec-ladder/oggflac_44100_mono.oga",
    "codec-ladder/aac_48000_stereo_frag.mp4",
];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(700) })]

    /// A damaged recording decodes or is refused; it never panics and never takes long.
    #[test]
    fn mutations_end_in_samples_or_an_error(
        base in prop::sample::select(&BASES[..]),
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0u8..8, any::<bool>()), 0..12),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = fs::read(folder().join(base)).unwrap();
        for (at, bit, in_header) in flips {
            let len = if in_header { bytes.len().min(128) } else { bytes.len() };
            bytes[at.index(len)] ^= 1 << bit;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let begin = thread_time();
        let mut decoder = AudioDecoder::new();
        if let Ok(recording) = decoder.open(&bytes) {
            let n = recording.info().n_samples;
            prop_assert!(n > 0);
            let mut part = Planes::new();
            for span in [0..n.min(50_000), n - n.min(5000)..n] {
                let len = (span.end - span.start) as usize;
                if decoder.read(&recording, span, &mut part).is_ok() {
                    prop_assert_eq!(part.len(), len);
                }
            }
        }
        let took = thread_time() - begin;
        prop_assert!(took.as_secs() < 10, "{} took {:?}", base, took);
    }
}

#[test]
fn heads_tell_how_spans_are_found() {
    let mut told = [0, 0];
    for (name, _) in expected() {
        let bytes = fs::read(folder().join(&name)).unwrap();
        if AudioDecoder::new().open(&bytes).is_err() {
            continue;
        }
        let places = Places::of(&bytes[..bytes.len().min(HEAD_BYTES)]).unwrap();
        let ending = name.rsplit('.').next().unwrap_or_default();
        let is_plain = ["wav", "rf64", "w64", "aiff", "aif", "aifc", "au", "sph"].contains(&ending);
        assert_eq!(places == Places::Plain, is_plain, "{name}");
        if ["flac", "ogg", "opus", "mkv", "webm"].contains(&ending) {
            assert_eq!(places, Places::Searched, "{name}");
        }
        told[usize::from(is_plain)] += 1;
    }
    assert!(told.iter().all(|&n| n >= 10), "{told:?}");
    assert_eq!(Places::of(b"nothing that is known"), None);
}
