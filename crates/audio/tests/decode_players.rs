//! Recordings that players accept and few programs write: their samples beside those of ffmpeg, libsndfile
//! and mpg123, and their spans.
//!
//! The files and the expected samples are made by `tests/data/audio/make_players.py`.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod spans;

use forebay_audio::{AudioDecoder, Codec};
use spans::{compare_spans, equal, file, files, folder, info, read_all};

fn player(name: &str) -> Vec<u8> {
    file("players", name)
}

/// Half a step of 16 bits, for integers that ffmpeg and forebay convert to the same float, and the rounding
/// of the text.
const EXACT: f32 = 1e-6;
/// Decoders of lossy codecs round differently: by up to 9.6e-7 in these files.
const LOSSY: f32 = 1e-5;

#[test]
fn samples_are_those_of_players() {
    let expected = std::fs::read_to_string(folder("players").join("expected.txt")).unwrap();
    for line in expected.lines() {
        let (name, numbers) = line.split_once(' ').unwrap();
        let numbers: Vec<i64> = numbers.split(' ').map(|number| number.parse().unwrap()).collect();
        let [rate, channels, n_samples, stride] = numbers[..4] else { panic!("{name}") };
        let samples = read_all(&player(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        let told = info(&player(name)).unwrap();
        assert_eq!((i64::from(told.sample_rate), i64::from(told.channels)), (rate, channels), "{name}");
        let n = told.n_samples as i64;
        let is_lossy = matches!(told.codec, Codec::Aac | Codec::Mp3);
        // ffmpeg does not cut what the edit list cuts at the end of AAC and MP3: less than a packet.
        let is_cut = is_lossy && (name.ends_with('4') || name.ends_with("4a") || name.ends_with("mov"));
        let least = if is_cut { n_samples - 1151 } else { n_samples };
        assert!((least..=n_samples).contains(&n), "{name}: {n} samples, not {n_samples}");
        let per_channel = numbers[4..].chunks_exact((n_samples as usize).div_ceil(stride as usize));
        assert_eq!(per_channel.len(), channels as usize, "{name}");
        for (c, expected) in per_channel.enumerate() {
            for (i, expected) in expected.iter().enumerate() {
                let at = i * stride as usize;
                let Some(sample) = samples[c].get(at) else { continue };
                let worst = if is_lossy { LOSSY } else { EXACT };
                let expected = *expected as f32 / 1e6;
                assert!((sample - expected).abs() <= worst, "{name}: {c}, {at}: {sample}, not {expected}");
            }
        }
    }
    assert!(expected.lines().count() > 35);
}

#[test]
fn spans_equal_the_slices() {
    let mut kept = AudioDecoder::new();
    for (name, bytes) in files("players") {
        compare_spans(&name, &bytes, &mut kept, 20);
    }
}

#[test]
fn one_recording_in_other_clothes() {
    for (names, plain) in [
        (&["flac_junk_behind.flac", "flac_tag_zeros_behind.flac"][..], "flac.flac"),
        (&["aac_junk_behind.aac", "aac_tag_behind.aac", "aac_ssr.aac"], "aac.aac"),
        (&["aac_cut_setup.m4a"], "aac_plain.m4a"),
        (&["alac_rounded.m4a"], "alac_plain.m4a"),
        (&["pcm_tag_behind.wav", "pcm_s16le.mov", "pcm_s16be.mov"], "pcm.wav"),
        (&["ima4.mov"], "ima4.aifc"),
        (&["ima4.caf"], "ima4_mono.aifc"),
        (&["pcm_f32le.mov", "pcm_f64be.mov", "pcm_f64le.mov"], "pcm_f32be.mov"),
    ] {
        let expected = read_all(&player(plain)).unwrap();
        for name in names {
            let samples = read_all(&player(name)).unwrap();
            assert_eq!(samples.len(), expected.len(), "{name}");
            for (a, b) in samples.iter().zip(&expected) {
                assert!(equal(a, b), "{name}: {} samples, {} in {plain}", a.len(), b.len());
            }
        }
    }
}

/// Its table has durations of 1008 and 1056 for packets of 1024 samples, and 448 for the last one; its edit
/// list begins 32 samples later than that of the other and has the same length.
#[test]
fn an_edit_list_cuts_what_a_rounded_table_does_not() {
    let plain = read_all(&player("aac_plain.m4a")).unwrap();
    let rounded = read_all(&player("aac_rounded.m4a")).unwrap();
    assert_eq!((plain[0].len(), rounded[0].len()), (24_000, 24_000));
    assert!(equal(&rounded[0][..24_000 - 32], &plain[0][32..]));
}

/// MP3 behind zeros, in memory and from ranges of a file.
#[test]
fn mp3_behind_many_zeros() {
    let mp3 = file("mpeg", "lame_cbr64_44100_mono.mp3");
    let expected = read_all(&mp3).unwrap();
    for n in [1, 70_000, 100_000, 200_000] {
        let late = [&vec![0; n][..], &mp3].concat();
        assert!(equal(&read_all(&late).unwrap()[0], &expected[0]), "{n}");
    }
    assert!(info(&[&vec![0; 300_000][..], &mp3].concat()).is_err());
}
