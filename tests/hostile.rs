//! Damaged and deceptive recordings: each becomes an example or an error of its record, within limits of time
//! and memory, and changes nothing for the next one.
//!
//! Real small files of every codec and container, damaged 500 times each (10 000 times under `make soak`),
//! deterministic by seed. The figures of a full run are in `docs/reliability.md`; `--nocapture` prints this
//! run's.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "the figures")]

mod hostile_common;

use std::{fs, path::Path};

use bytes::Bytes;
use forebay::{
    ErrorKind, LoaderConfig,
    contract::{ExampleMaker, Task},
    dtype::Typed,
    fields::Value,
    source::{RawRecord, Record},
    tasks::{AudioTask, ClipMaker},
};
use hostile_common::{
    Tally, lies,
    meter::{Watchdog, held, metered, panics},
    mutate::{Rng, mutate, seal_ogg},
    trials,
};

fn data(name: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)).unwrap()
}

fn task() -> AudioTask {
    let config = LoaderConfig {
        clip_seconds: 1.0,
        sample_rate: 16_000,
        n_mels: 40,
        n_fft: 512,
        ..LoaderConfig::default()
    };
    AudioTask::new(config.check().unwrap().1)
}

/// The most bytes held for a record of this size: several copies of it, and the memory of decoders and plans.
fn most_bytes(record: usize) -> usize {
    (96 << 20) + 16 * record
}

/// The example's bits, or the kind of its error.
fn outcome(stage: &mut ClipMaker, record: &Record) -> Result<Vec<u32>, ErrorKind> {
    let example = stage.run(record).map_err(|error| {
        assert!(error.kind.is_record(), "{error}");
        assert!(!error.message.is_empty());
        error.kind
    })?;
    let Some(Value::Array(Typed::Float32(values))) = example.into_iter().next() else {
        panic!("float32 was asked for")
    };
    assert!(values.iter().all(|value| value.is_finite()));
    Ok(values.iter().map(|value| value.to_bits()).collect())
}

fn name(outcome: &Result<Vec<u32>, ErrorKind>) -> &'static str {
    outcome.as_ref().map_or_else(|kind| kind.name(), |_| "ok")
}

fn record(bytes: Vec<u8>, seed: u64) -> Record {
    RawRecord::new(Bytes::from(bytes), Default::default()).numbered(0, seed, 0)
}

/// Runs damaged copies of `files`, one by one, through one worker's stage.
fn mutants(family: &str, files: &[&str]) {
    let bases: Vec<_> = files.iter().map(|file| data(file)).collect();
    // The sources of foreign headers and parts include other formats.
    let mut others = bases.clone();
    others.extend(
        [
            "audio/made/s24.flac",
            "audio/vorbis/vorbis_len_799.ogg",
            "audio/made/u8.wav",
            "audio/made/alac.m4a",
        ]
        .map(data),
    );
    let (task, watchdog) = (task(), Watchdog::new());
    let (mut stage, mut tally, before) = (task.maker(), Tally::default(), held());
    for trial in 0..trials() {
        let mut rng = Rng(trial << 8 | family.len() as u64);
        let base = rng.below(bases.len());
        let record = record(mutate(&mut rng, &bases[base], &others), rng.next());
        let what = format!("trial {trial} of {family} ({})", files[base]);
        watchdog.begins(&what);
        let (found, cost) = metered(&what, || outcome(&mut stage, &record));
        tally.count(&what, name(&found), cost, most_bytes(record.payload.bytes.len()));
        if trial % 16 == 0 {
            // A new stage has the same outcome: earlier records change nothing.
            assert_eq!(outcome(&mut task.maker(), &record), found, "{what}: a new stage has another outcome");
        }
    }
    let kept = held() - before;
    println!(
        "{family}: {tally}, {:.1} MiB kept; panics of libraries: {:?}",
        kept as f64 / 1048576.0,
        panics()
    );
    assert!(kept < 128 << 20, "{family}: the stage holds {} MiB", kept >> 20);
    assert!(tally.n_good() < tally.trials(), "{family}: nothing was damaged");
    assert!(tally.n_good() > 0, "{family}: nothing was decoded");
    no_panics_of_ours();
}

/// Panics of libraries are caught; forebay's own parsers must not panic.
fn no_panics_of_ours() {
    let ours: Vec<_> = panics().into_keys().filter(|place| place.starts_with("src/")).collect();
    assert!(ours.is_empty(), "panics in {ours:?}");
}

macro_rules! families {
    ($($family:ident: $files:expr;)*) => { $(
        #[test]
        fn $family() {
            mutants(stringify!($family), &$files);
        }
    )* };
}

families! {
    wav: ["recordings/formats/pcm_u8.wav", "audio/made/u8.wav", "audio/made/f64.wav", "audio/made/alaw.wav", "audio/made/rifx_s16.wav",
        "audio/scipy-wav/test-44100Hz-2ch-32bit-float-le.wav", "audio/cpython-audiodata/pluck-pcm32.wav"];
    wave64_and_rf64: ["audio/made/s16.w64", "audio/made/s16.rf64", "audio/wav-bw64/noise_24bit_uneven_data_chunk_size.wav"];
    adpcm: ["audio/made/ima_stereo.wav", "audio/made/ms_stereo.wav", "recordings/formats/adpcm_ima.wav", "recordings/formats/adpcm_ms.wav"];
    aiff: ["audio/made/s24.aiff", "audio/made/sowt.aifc", "audio/made/f64.aifc", "audio/made/ulaw.aifc", "audio/made/s8.aiff",
        "audio/players/ima4.aifc"];
    au: ["audio/made/f32.au", "audio/made/s24.au", "audio/cpython-audiodata/pluck-ulaw.au"];
    sphere: ["audio/made/s16le.sph", "audio/made/s24be.sph", "audio/made/ulaw.sph", "audio/made/alaw.sph"];
    caf: ["audio/made/s16le.caf", "audio/made/s24.caf", "audio/made/alaw.caf", "audio/made/f32.caf",
        "audio/players/ima4.caf"];
    alac_in_caf: ["audio/made/alac16.caf"];
    alac_in_mp4: ["audio/made/alac.m4a", "audio/made/alac24.m4a"];
    aac_in_mp4: ["recordings/formats/aac.m4a", "audio/made/no_noise_stereo.m4a", "audio/codec-ladder/aac_48000_stereo_frag.mp4"];
    others_in_mp4: ["audio/players/flac.mp4", "audio/players/mp3.mp4", "audio/players/pcm_s24le.mov", "audio/players/ima4.mov",
        "audio/players/alac_rounded.m4a"];
    opus_in_matroska: ["audio/matroska/opus.webm", "audio/matroska/opus_live.webm", "audio/matroska/opus_clusters.webm",
        "audio/matroska/opus_surround.mka", "audio/matroska/video.mkv"];
    others_in_matroska: ["audio/matroska/vorbis.webm", "audio/matroska/vorbis_surround.mka", "audio/matroska/flac.mka",
        "audio/matroska/alac.mka", "audio/matroska/aac.mka", "audio/matroska/mp3.mka", "audio/matroska/pcm_u8.mka",
        "audio/matroska/pcm_f64le.mka"];
    behind_junk: ["audio/players/flac_junk_behind.flac", "audio/players/aac_tag_behind.aac", "audio/players/pcm_tag_behind.wav"];
    free_format: ["audio/players/free_100.mp3", "audio/players/free_20.mp3"];
    adts: ["audio/codec-ladder/aac_adts_44100_mono.aac"];
    flac: ["recordings/formats/s16.flac", "audio/made/s24.flac", "audio/made/s8.flac", "audio/mewkiz-flac/80574.flac",
        "audio/codec-ladder/flac_len_801.flac", "audio/claxon/pop.flac"];
    flac_in_ogg: ["audio/codec-ladder/oggflac_44100_mono.oga"];
    vorbis: ["recordings/formats/vorbis.ogg", "audio/vorbis/stereo_44100.ogg", "audio/vorbis/surround30_44100.ogg",
        "audio/vorbis/vorbis_len_799.ogg", "audio/vorbis/nvorbis_1test.ogg", "audio/vorbis/vorbis_chained_same_32000.ogg"];
    mp3: ["recordings/formats/layer3.mp3", "audio/mpeg/mp3_mpeg2_8000_mono.mp3", "audio/mpeg/mp3_vbr9_44100_stereo.mp3",
        "audio/mpeg/lame_v9_11025_stereo.mp3", "audio/mpeg/lame_freeformat.mp3", "audio/mpeg/mp3_append_garbage_4k.mp3"];
    mp2: ["audio/mpeg/mp2_44100_mono.mp2"];
}

/// Each also truncated at several places, so that a part of its claims is backed.
#[test]
fn deceptive_files_take_little_time_and_memory() {
    let (task, watchdog) = (task(), Watchdog::new());
    let (mut stage, mut tally) = (task.maker(), Tally::default());
    for (name_of_it, whole) in lies::all(data) {
        for cut in [whole.len(), whole.len() / 2, whole.len().min(100)] {
            let record = record(whole[..cut].to_vec(), 1);
            let what = format!("{name_of_it}, {cut} bytes");
            watchdog.begins(&what);
            let (found, cost) = metered(&what, || outcome(&mut stage, &record));
            if cost.time.as_millis() > 100 || cost.peak > 32 << 20 {
                println!("{what} ({}): {:.0?}, {} MiB", name(&found), cost.time, cost.peak >> 20);
            }
            tally.count(&what, name(&found), cost, most_bytes(record.payload.bytes.len()));
        }
    }
    println!("lies: {tally}; panics of libraries: {:?}", panics());
    no_panics_of_ours();
}

/// After all of that, a worker works as before.
#[test]
fn the_next_record_is_unaffected() {
    let task = task();
    let mut stage = task.maker();
    let good: Vec<_> =
        ["recordings/formats/vorbis.ogg", "recordings/formats/s16.flac", "recordings/formats/layer3.mp3"]
            .map(|file| record(data(file), 3))
            .into();
    let expected: Vec<_> = good.iter().map(|record| outcome(&mut task.maker(), record)).collect();
    for (_, lie) in lies::all(data) {
        let _ = outcome(&mut stage, &record(lie, 2));
    }
    let found: Vec<_> = good.iter().map(|record| outcome(&mut stage, record)).collect();
    assert!(found.iter().all(Result::is_ok));
    assert_eq!(found, expected);
}

/// A FLAC of silence takes 18 bytes for 1.5 s: hours of it are refused by the headers, before a sample is
/// decoded.
#[test]
fn longer_than_allowed() {
    let silence = lies::flac_of_silence(2430);
    for (seconds, expected) in [(3600.0, Err(ErrorKind::TooLarge)), (3700.0, Ok(()))] {
        let config =
            LoaderConfig { clip_seconds: 1.0, max_decoded_seconds: seconds, ..LoaderConfig::default() };
        let mut stage = AudioTask::new(config.check().unwrap().1).maker();
        let (found, cost) = metered("an hour", || stage.run(&record(silence.clone(), 5)).map(drop));
        assert_eq!(found.as_ref().map_err(|error| error.kind).copied(), expected);
        if let Err(error) = found {
            assert_eq!(error.message, "the recording has 3611.1 s, max_decoded_seconds allows 3600");
            assert!(cost.peak < 2 << 20, "{} bytes", cost.peak);
        }
    }
}

/// Silence of 255 channels takes a codec a few bits, but more memory than any machine has.
#[test]
fn more_values_than_are_believed() {
    let mut vorbis = data("audio/vorbis/vorbis_len_1025.ogg");
    assert_eq!(vorbis[28..35], *b"\x01vorbis");
    vorbis[40..44].copy_from_slice(&768_000u32.to_le_bytes());
    vorbis[39] = 255;
    seal_ogg(&mut vorbis);
    assert!(outcome(&mut task().maker(), &record(vorbis, 1)).is_err());
}
