//! Files of several audio tracks: each track beside its own file, in memory and by ranges, and tracks that
//! are not there.
//!
//! The files in `tests/data/audio/tracks` are made by the script `make_tracks.py`.

// A failing helper is a failing test.
#![allow(clippy::unwrap_used)]

mod spans;

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use forebay_audio::{AudioDecoder, Planes, RangeIndex, ReadAt};
use forebay_base::{Error, ErrorKind, Result};
use spans::{equal, file};

/// Bytes that are never read whole.
struct Ranges(Bytes);

impl ReadAt for Ranges {
    fn size(&self) -> u64 {
        self.0.len() as u64
    }

    fn read(&self, range: Range<u64>) -> Result<Bytes> {
        Ok(self.0.slice(range.start as usize..range.end as usize))
    }

    fn read_whole_up_to(&self) -> u64 {
        0
    }
}

fn decoder(track: Option<u32>) -> AudioDecoder {
    let mut decoder = AudioDecoder::new();
    decoder.track = track;
    decoder
}

/// All samples of a track.
fn samples(bytes: &[u8], track: Option<u32>) -> Vec<Vec<f32>> {
    let mut decoder = decoder(track);
    let recording = decoder.open(bytes).unwrap();
    let mut planes = Planes::new();
    decoder.read(&recording, 0..recording.info().n_samples, &mut planes).unwrap();
    (0..usize::from(planes.channels())).map(|channel| planes.channel(channel).to_vec()).collect()
}

/// The error of a track, the same in memory and by ranges.
fn error(bytes: &[u8], track: u32) -> Error {
    let mut decoder = decoder(Some(track));
    let error = decoder.open(bytes).unwrap_err();
    let again = RangeIndex::open(&mut decoder, &Ranges(Bytes::copy_from_slice(bytes))).unwrap_err();
    assert_eq!((error.kind, &error.message), (again.kind, &again.message));
    error
}

#[test]
fn a_track_has_the_samples_of_its_own_file() {
    for (name, usual, sources) in [
        ("tracks.mp4", 0, [("players", "aac_plain.m4a"), ("made", "alac.m4a"), ("made", "s8.flac")]),
        (
            "tracks.mkv",
            1,
            [("made", "s8.flac"), ("opus", "silk_wb_60ms_mono.opus"), ("opus", "celt_5ms_stereo.opus")],
        ),
    ] {
        let bytes = file("tracks", name);
        for (track, (folder, source)) in (0..).zip(sources) {
            let (found, alone) = (samples(&bytes, Some(track)), samples(&file(folder, source), None));
            assert_eq!(found.len(), alone.len(), "{name} {track}");
            assert!(found.iter().zip(&alone).all(|(one, other)| equal(one, other)), "{name} {track}");
        }
        let (none, number) = (samples(&bytes, None), samples(&bytes, Some(usual)));
        assert!(none.len() == number.len() && none.iter().zip(&number).all(|(one, other)| equal(one, other)));
    }
}

#[test]
fn spans_of_each_track_by_ranges() {
    for (name, n_tracks) in [("tracks.mp4", 3), ("tracks.mkv", 3), ("stems.mp4", 5)] {
        let bytes = file("tracks", name);
        let io = Ranges(Bytes::copy_from_slice(&bytes));
        for track in 0..n_tracks {
            let mut decoder = decoder(Some(track));
            let recording = decoder.open(&bytes).unwrap();
            let n = recording.info().n_samples;
            let index = RangeIndex::open(&mut decoder, &io).unwrap();
            assert_eq!(index.info(), recording.info(), "{name} {track}");
            let again = RangeIndex::from_bytes(&index.to_bytes()).unwrap().of_track(Some(track));
            let (mut want, mut got) = (Planes::new(), Planes::new());
            for index in [Arc::new(index), Arc::new(again)] {
                for span in [0..n, 0..1, n / 3..n / 2, n - 1..n] {
                    let part = index.span_bytes(&mut decoder, &io, span.clone()).unwrap();
                    // The span is of the index's track, whatever the decoder opens next.
                    let mut other = self::decoder(Some(0));
                    other.read_span(&part, span.clone(), &mut got).unwrap();
                    decoder.read(&recording, span.clone(), &mut want).unwrap();
                    for channel in 0..usize::from(want.channels()) {
                        assert!(
                            equal(want.channel(channel), got.channel(channel)),
                            "{name} {track} {span:?}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn tracks_that_are_not_there() {
    for (name, codec) in [("tracks.mp4", "ac-3"), ("tracks.mkv", "A_AC3")] {
        let bytes = file("tracks", name);
        let unknown = error(&bytes, 3);
        assert!(unknown.kind == ErrorKind::Unsupported && unknown.message.contains(codec), "{unknown}");
        // The track of video has no number.
        for track in [4, u32::MAX] {
            let missing = error(&bytes, track);
            assert_eq!(missing.kind, ErrorKind::Unsupported);
            let expected = format!("track is {track}, and the recording (");
            assert!(missing.message.starts_with(&expected), "{missing}");
            assert!(missing.message.ends_with("the 4 audio tracks have the numbers 0 to 3"), "{missing}");
        }
    }
    for (folder, name, format) in [
        ("made", "s16.rf64", "wav"),
        ("made", "s24.flac", "flac"),
        ("vorbis", "stereo_44100.ogg", "ogg-vorbis"),
        ("mpeg", "mp3_mpeg2_16000_mono.mp3", "mpeg"),
    ] {
        let bytes = file(folder, name);
        let missing = error(&bytes, 1);
        assert_eq!(missing.kind, ErrorKind::Unsupported);
        assert_eq!(
            missing.message,
            format!(
                "track is 1, and the recording ({format}) has no such track: the one audio track has number 0"
            )
        );
        assert!(equal(&samples(&bytes, Some(0))[0], &samples(&bytes, None)[0]), "{name}");
    }
}

/// The amplitude of a sine in samples of 16 kHz.
fn amplitude(samples: &[f32], hertz: f64) -> f64 {
    let (mut re, mut im) = (0.0, 0.0);
    for (n, &sample) in samples.iter().enumerate() {
        let phase = std::f64::consts::TAU * hertz * n as f64 / 16_000.0;
        (re, im) = (re + f64::from(sample) * phase.cos(), im + f64::from(sample) * phase.sin());
    }
    2.0 * f64::hypot(re, im) / samples.len() as f64
}

#[test]
fn a_file_of_stems_has_its_mixture_first() {
    let bytes = file("tracks", "stems.mp4");
    for track in 0..5 {
        let found = samples(&bytes, Some(track)).remove(0);
        assert_eq!(found.len(), 32_000);
        for (part, hertz) in (1..).zip([440.0, 1000.0, 1500.0, 2500.0]) {
            let made = if track == 0 || track == part { 0.2 } else { 0.0 };
            let amplitude = amplitude(&found, hertz);
            // The encoder loses a tenth.
            assert!((amplitude - made).abs() < 0.02, "track {track}, {hertz} Hz: {amplitude}");
        }
    }
}
