//! The number of allocations per example in a warm worker, for each format, of a packer of documents, and of
//! encoders of text, measured by an allocator of this binary.
//!
//! A thread's allocations are counted while [`allocations`] runs. [`FILES`] has the limits; counts above zero
//! are those of the decoder library, with the reason in `docs/decisions.md`.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    fs,
    path::Path,
};

use bytes::Bytes;
use forebay::{
    LoaderConfig,
    contract::{BatchSizes, BatchSlot, Collate, ExampleMaker, RawRecord, Task},
    pack::{CropRule, Document, Packer},
    seed::mix,
    tasks::AudioTask,
    tokenizer::{Tokenizer, TokenizerOptions},
};

/// Forwards to the system's allocator and counts.
struct Counting;

/// Allocations of a thread.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Counts {
    allocations: usize,
    bytes: usize,
    /// Bytes of the largest.
    largest: usize,
}

thread_local! {
    static COUNTS: Cell<Counts> = const { Cell::new(Counts { allocations: 0, bytes: 0, largest: 0 }) };
}

fn count(size: usize) {
    // A thread that ends may allocate after its counts are destroyed; these are not needed.
    let _ = COUNTS.try_with(|counts| {
        let Counts { allocations, bytes, largest } = counts.get();
        counts.set(Counts { allocations: allocations + 1, bytes: bytes + size, largest: largest.max(size) });
    });
}

// SAFETY: every call is forwarded unchanged; counting touches a thread-local without a destructor and
// allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promises are the ones required here.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size);
        // SAFETY: as above.
        unsafe { System.realloc(block, layout, new_size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }
}

#[cfg_attr(not(feature = "python"), global_allocator)]
#[cfg_attr(feature = "python", used)]
static ALLOCATOR: Counting = Counting;

/// Counts what `work` allocates on this thread.
fn allocations(work: impl FnOnce()) -> Counts {
    COUNTS.set(Counts::default());
    work();
    COUNTS.get()
}

/// Files and the most allocations per example.
const FILES: [(&str, usize); 29] = [
    ("recordings/aru_2.wav", 0),
    ("recordings/audiomoth_gps.wav", 0),
    ("recordings/S4A03895_20190522_180000.wav", 0),
    ("recordings/formats/extensible_s24.wav", 0),
    ("recordings/formats/float64.wav", 0),
    ("recordings/formats/alaw.wav", 0),
    ("recordings/formats/adpcm_ima.wav", 0),
    ("recordings/formats/pcm_s16.aiff", 0),
    ("recordings/formats/pcm_s24.aiff", 0),
    ("recordings/237-134500-0002.flac", 0),
    ("recordings/loop_electric.flac", 0),
    ("recordings/21100_36_48.flac", 0),
    ("audio/flac-ietf/faulty_05_-_wrong_total_number_of_samples.flac", 0),
    ("recordings/S4A03895_20190522_060000.ogg", 0),
    ("recordings/bass_trance_c.ogg", 0),
    ("audio/vorbis/vorbis_chained_same_32000.ogg", 0),
    ("audio/vorbis/vorbis_44100_6ch.ogg", 0),
    ("recordings/jfk.mp3", 2),
    ("recordings/mp3_cbr128_48000_stereo.mp3", 2),
    ("audio/mpeg/mp3_vbr9_44100_stereo.mp3", 2),
    ("audio/mpeg/mp3_concat_44100.mp3", 4),
    ("audio/mpeg/mp2_44100_mono.mp2", 0),
    ("audio/codec-ladder/oggflac_44100_mono.oga", 0),
    ("audio/flac-ietf/uncommon_05_-_32bps_audio_first_60000.flac", 0),
    ("audio/codec-ladder/aac_44100_mono.m4a", 196),
    ("audio/codec-ladder/aac_48000_stereo_frag.mp4", 223),
    ("audio/codec-ladder/aac_adts_44100_mono.aac", 167),
    ("audio/made/alac.m4a", 51),
    ("audio/made/alac16.caf", 3),
];

#[test]
fn a_warm_worker_allocates_nothing_of_its_own() {
    let config = LoaderConfig { clip_seconds: 1.0, ..LoaderConfig::default() };
    let task = AudioTask::new(config.check().unwrap().1);
    let (mut stage, mut collate) =
        (task.maker(), task.collate(BatchSizes { size: 1, n_streams: 1, ahead: 1 }));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let read = |(name, most): (&'static str, usize)| {
        let bytes = Bytes::from(fs::read(folder.join(name)).unwrap());
        (name, most, RawRecord::new(bytes, Default::default()).numbered(0, 1, 0))
    };
    let mut records: Vec<_> = FILES.map(read).into();
    // One format more than once in a round would get more than its share of the kept decoders.
    let mut worst: Vec<(&str, Counts)> = FILES.map(|(name, _)| (name, Counts::default())).into();
    for round in 0..40 {
        for ((_, _, record), (_, worst)) in records.iter_mut().zip(&mut worst) {
            record.seed = mix(record.seed);
            let counts = allocations(|| {
                let example = stage.run(record).unwrap();
                collate.put(BatchSlot::at_row(0), example).unwrap();
            });
            // Scratch memory grows to its size in the first rounds.
            if round >= 20 && counts.allocations >= worst.allocations {
                let largest = counts.largest.max(worst.largest);
                *worst = Counts { largest, ..counts };
            }
        }
    }
    let table: String = worst.iter().map(|(name, counts)| format!("{name}: {counts:?}\n")).collect();
    for ((name, most, _), (_, counts)) in records.iter().zip(&worst) {
        assert!(counts.allocations <= *most, "{name}, at most {most}, of all:\n{table}");
        assert!(counts.largest <= 64 << 10, "{name}, at most 64 KiB at once, of all:\n{table}");
    }
}

/// Documents of 100 to 3000 tokens pass through rows of 2049, so each new one fits where one has left.
#[test]
fn a_warm_packer_allocates_nothing() {
    for crop in [CropRule::Drop, CropRule::Carry] {
        let mut packer = Packer::new(2049, 0, crop);
        let mut n_pushed = 0;
        let mut rows = |n: usize| {
            for _ in 0..n {
                let mut room = 2049;
                while room > 0 {
                    while packer.len() < 1000 {
                        let mut ids = packer.spare().unwrap_or_default();
                        ids.resize(100 + (mix(n_pushed) % 2900) as usize, 0);
                        packer.push(Document { ids, row: n_pushed, start: 1, ..Document::default() });
                        n_pushed += 1;
                    }
                    room -= packer.place(room, |_| {}).unwrap().len;
                }
            }
        };
        rows(20_000);
        assert_eq!(allocations(|| rows(2000)), Counts::default(), "{crop:?}");
    }
}

/// Encoders of all kinds of files that are encoded here, with dropout where there is one.
#[test]
fn a_warm_encoder_allocates_nothing() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tokens");
    let text = "Hello there, \u{fb01}ne caf\u{e9} \u{6f22}\u{5b57} \u{1f600} 12345!  It is a truth universally acknowledged. ".repeat(20);
    for name in ["gpt2.tiktoken", "tokenizer.json", "unigram.model", "bpe.model", "suffix.model"] {
        let tokenizer = Tokenizer::open(&folder.join(name), &TokenizerOptions::default()).unwrap();
        let (mut encoder, mut ids) = (tokenizer.encoder(), Vec::new());
        let dropout = tokenizer.dropout(0.1).or_else(|_| tokenizer.dropout(0.0)).unwrap();
        let mut turn = || {
            ids.clear();
            encoder.encode_ordinary(&text, &mut ids).unwrap();
            for seed in 0..3 {
                encoder.encode_with_dropout(&text, dropout, seed, &mut ids).unwrap();
            }
        };
        turn();
        turn();
        assert_eq!(allocations(turn), Counts::default(), "{name}");
    }
}
