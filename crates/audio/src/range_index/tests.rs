//! Tests of recordings that are read by ranges.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use crate::{
    Damage,
    formats::{
        flac::{Table, repeated},
        mpeg::{FramePositions, MpegIndex},
    },
    index_file,
    range_index::*,
};

mod hostile;

/// Bytes in memory; counts the reads.
struct Counted {
    bytes: Bytes,
    reads: AtomicU64,
    read: AtomicU64,
}

impl Counted {
    fn new(bytes: Vec<u8>) -> Self {
        Self { bytes: bytes.into(), reads: AtomicU64::new(0), read: AtomicU64::new(0) }
    }

    /// Reads and bytes since the last call.
    fn take(&self) -> (u64, u64) {
        (self.reads.swap(0, Ordering::Relaxed), self.read.swap(0, Ordering::Relaxed))
    }
}

impl ReadAt for Counted {
    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read(&self, range: Range<u64>) -> Result<Bytes> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.read.fetch_add(range.end - range.start, Ordering::Relaxed);
        Ok(self.bytes.slice(range.start as usize..range.end as usize))
    }
}

/// Small reads, so that short files are read in many.
const SMALL: ReadSizes =
    ReadSizes { whole: 0, ends: 8 << 10, junk: 128 << 10, margin: 4 << 10, piece: 16 << 10 };

/// A sequence of numbers that look random.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n.max(1)
    }

    /// A span of `n` samples, at an end in every eighth case.
    fn span(&mut self, n: u64) -> Range<u64> {
        let len = 1 + self.below(n.min(5000));
        let start = match self.below(16) {
            0 => 0,
            1 => n - len,
            _ => self.below(n - len + 1),
        };
        start..start + len
    }
}

fn bits(planes: &Planes) -> Vec<Vec<u32>> {
    (0..planes.channels())
        .map(|c| planes.channel(usize::from(c)).iter().map(|x| x.to_bits()).collect())
        .collect()
}

/// Asserts that spans in parts equal those of a full open; the kind of the index is returned.
fn assert_equal(name: &str, bytes: &[u8], sizes: ReadSizes, n_spans: usize) -> &'static str {
    assert_equal_by(Damage::ERROR, name, bytes, sizes, n_spans)
}

/// As [`assert_equal`], with damaged frames treated as `damage` says.
fn assert_equal_by(
    damage: Damage,
    name: &str,
    bytes: &[u8],
    sizes: ReadSizes,
    n_spans: usize,
) -> &'static str {
    let io = Counted::new(bytes.to_vec());
    let mut decoder = AudioDecoder::with_damage(damage);
    let whole = decoder.open(bytes).map(|recording| recording.info());
    let index = RangeIndex::open_by(&mut decoder, &io, sizes);
    let (info, index) = match (whole, index) {
        (Ok(info), Ok(index)) => (info, Arc::new(index)),
        (Err(whole), Err(index)) => {
            assert_eq!(place(&whole), place(&index), "{name}: {whole} / {index}");
            return "error";
        }
        (whole, index) => panic!("{name}: whole {whole:?}, in part {index:?}"),
    };
    assert_eq!(index.info(), info, "{name}");
    let recording = AudioDecoder::new().open(bytes).unwrap();
    let (mut want, mut got) = (Planes::new(), Planes::new());
    let mut rng = Rng(7);
    for i in 0..n_spans {
        let span = match i {
            0 => 0..1,
            1 => info.n_samples - 1..info.n_samples,
            _ => rng.span(info.n_samples),
        };
        // Each second span is of the mean of the channels.
        want.take_mean(i % 2 == 1);
        got.take_mean(i % 2 == 1);
        let whole = decoder.read(&recording, span.clone(), &mut want).map_err(|error| place(&error));
        let filled = decoder.filled();
        let part = index.span_bytes(&mut decoder, &io, span.clone());
        let here = part.and_then(|part| {
            assert_eq!(part.info(), info);
            decoder.read_span(&part, span.clone(), &mut got)
        });
        match (whole, here) {
            (Ok(()), Ok(())) => {
                assert_eq!(decoder.filled().filled, filled.filled, "{name}: {span:?} silent");
                assert!(bits(&want) == bits(&got), "{name}: {span:?}");
            }
            (Err(whole), Err(here)) => assert_eq!(whole, place(&here), "{name}: {span:?} {here}"),
            (whole, here) => panic!("{name}: {span:?} whole {whole:?}, in part {here:?}"),
        }
    }
    assert!(index.bytes_held() < 1 << 20, "{name}: {}", index.bytes_held());
    kind(&index)
}

/// What an error says of a recording: the same in memory and by ranges.
fn place(error: &Error) -> (ErrorKind, Option<u64>) {
    (error.kind, error.place.byte)
}

fn kind(index: &RangeIndex) -> &'static str {
    match &index.index {
        None => "whole",
        Some(AnyIndex::Pcm(_)) => "linear",
        Some(AnyIndex::Flac(_)) => "flac",
        Some(AnyIndex::Vorbis(_)) => "vorbis",
        Some(AnyIndex::Mpeg(_)) => "mpeg",
        Some(AnyIndex::Packets(_)) => "packets",
        Some(AnyIndex::Boxed(_)) => "boxed",
    }
}

/// The files of the test data with sound, by folder.
fn files() -> Vec<(String, Vec<u8>)> {
    let root = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("tests/data/audio");
    let mut files = Vec::new();
    let mut folders = vec![root];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if !["txt", "tsv", "py"].contains(&path.extension().unwrap_or_default().to_str().unwrap())
            {
                files.push((path.display().to_string(), std::fs::read(&path).unwrap()));
            }
        }
    }
    files.sort();
    assert!(files.len() > 100);
    files
}

#[test]
fn spans_of_every_file_equal_those_of_a_full_decode() {
    let mut kinds = std::collections::BTreeMap::<&str, u32>::new();
    let mut failed = Vec::new();
    for (name, bytes) in files() {
        let kind = std::panic::catch_unwind(|| assert_equal(&name, &bytes, SMALL, 300));
        match kind {
            Ok(kind) => *kinds.entry(kind).or_default() += 1,
            Err(_) => failed.push(name),
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
    // One file is FLAC in Ogg, one in MP4, three are MP3 in MP4, MOV and Matroska; three are Opus: a chain,
    // and two with pages of the size of the first read.
    assert!(kinds["whole"] == 8 && kinds.values().filter(|&&n| n > 5).count() == 8, "{kinds:?}");
}

fn data(name: &str) -> Vec<u8> {
    std::fs::read(format!("{}/tests/data/audio/{name}", concat!(env!("CARGO_MANIFEST_DIR"), "/../..")))
        .unwrap()
}

/// Frames of MPEG audio of a constant bit rate, over and over; `count` is written into the tag.
fn repeated_frames(bytes: &[u8], n_frames: usize, count: Option<u32>) -> Vec<u8> {
    let mpeg = MpegIndex::of_memory(&mut DecoderCache::default(), bytes).unwrap();
    let frames: Vec<&[u8]> = mpeg.frames(bytes).collect();
    let mut out = Vec::new();
    let first = mpeg.offsets()[0] as usize;
    if let Some(count) = count {
        // The frame with the tag is the last one before the first frame.
        let begin = first - frames[0].len();
        let at = out.len();
        out.extend(&bytes[begin..first]);
        let id = out[at..].windows(4).position(|four| four == b"Info" || four == b"Xing").unwrap();
        out[at + id + 8..at + id + 12].copy_from_slice(&count.to_be_bytes());
    }
    for frame in frames.iter().cycle().take(n_frames) {
        out.extend(*frame);
    }
    out
}

/// Asserts the most reads and bytes for five seconds at first, and one read afterwards.
fn assert_reads(name: &str, bytes: &[u8], most_reads: u64, most_bytes: u64) {
    let io = Counted::new(bytes.to_vec());
    let mut decoder = AudioDecoder::new();
    let mut out = Planes::new();
    let mut most = (0, 0);
    let mut again = (0, 0);
    for share in [1u64, 2, 5, 9] {
        io.take();
        let index = Arc::new(RangeIndex::open(&mut decoder, &io).unwrap());
        let Info { n_samples, sample_rate, .. } = index.info();
        let seconds = |start: u64| start..start + 5 * u64::from(sample_rate);
        let start = (n_samples - 5 * u64::from(sample_rate)) / 10 * share;
        let part = index.span_bytes(&mut decoder, &io, seconds(start)).unwrap();
        let (reads, n_bytes) = io.take();
        most = (most.0.max(reads), most.1.max(n_bytes));
        assert!(
            reads <= most_reads && n_bytes <= most_bytes,
            "{name} at {share}/10: {reads} reads, {n_bytes} bytes"
        );
        decoder.read_span(&part, seconds(start), &mut out).unwrap();
        // The same place, one near it, and others.
        for start in
            [start, start + u64::from(sample_rate), start / 2, start / 3 * 2, start / 10, n_samples / 40 * 39]
        {
            let part = index.span_bytes(&mut decoder, &io, seconds(start)).unwrap();
            let (reads, n_bytes) = io.take();
            again = (again.0.max(reads), again.1.max(n_bytes));
            decoder.read_span(&part, seconds(start), &mut out).unwrap();
        }
    }
    assert_eq!(again.0, 1, "{name}: {most:?}");
}

const HOUR: u64 = 3600;

#[test]
fn an_hour_of_wav_and_aiff() {
    let wav = data("wav-hound/waveformatex-16bit-44100Hz-mono.wav");
    let at = wav.windows(4).position(|four| four == b"data").unwrap() + 8;
    let mut long = wav[..at].to_vec();
    let mut rng = Rng(1);
    long.extend((0..HOUR * 44100 * 2).map(|_| rng.below(256) as u8));
    let n = (long.len() - at) as u32;
    long[at - 4..at].copy_from_slice(&n.to_le_bytes());
    assert_eq!(assert_equal("wav", &long, ReadSizes::USUAL, 300), "linear");
    assert_reads("wav", &long, 3, 1_000_000);
    let aiff = data("cpython-audiodata/pluck-pcm16.aiff");
    let at = aiff.windows(4).position(|four| four == b"SSND").unwrap();
    let frames = aiff.windows(4).position(|four| four == b"COMM").unwrap() + 10;
    let channels = u32::from(aiff[frames - 1]);
    let mut long = [&aiff[..at], &long[44..]].concat();
    let n = (long.len() - at - 8) as u32;
    long[at..at + 4].copy_from_slice(b"SSND");
    long[at + 4..at + 8].copy_from_slice(&n.to_be_bytes());
    long[at + 8..at + 16].fill(0);
    long[frames..frames + 4].copy_from_slice(&((n - 8) / 2 / channels).to_be_bytes());
    assert_eq!(assert_equal("aiff", &long, ReadSizes::USUAL, 300), "linear");
    assert_reads("aiff", &long, 3, 1_100_000);
}

#[test]
fn an_hour_of_flac() {
    let short = data("mewkiz-flac/80574.flac");
    let info = AudioDecoder::new().open(&short).unwrap().info();
    for table in [Table::None, Table::Right, Table::Wrong] {
        let long = repeated(&short, HOUR * u64::from(info.sample_rate), table);
        assert_eq!(assert_equal("flac", &long, ReadSizes::USUAL, 300), "flac");
        if table == Table::Wrong {
            continue;
        }
        assert_reads(&format!("flac {table:?} {info:?}"), &long, 3, 1_000_000);
    }
}

/// Tags, covers and junk after the last frame, shorter and longer than what is searched for it.
#[test]
fn flac_before_other_bytes() {
    let flac = data("mewkiz-flac/80574.flac");
    let mut rng = Rng(11);
    for n in [1, 100, 3000, 20_000, 90_000, 300_000] {
        let junk: Vec<u8> = (0..n).map(|_| rng.below(256) as u8).collect();
        for (name, behind) in
            [("zeros", vec![0; n]), ("junk", junk.clone()), ("tag", [&b"APETAGEX"[..], &junk].concat())]
        {
            let bytes = [&flac[..], &behind].concat();
            for sizes in [SMALL, ReadSizes { whole: 0, ..ReadSizes::USUAL }] {
                assert_eq!(assert_equal(&format!("{n} {name}"), &bytes, sizes, 60), "flac");
            }
        }
    }
}

/// Both end at the sample that the first declares.
#[test]
fn two_recordings_of_flac_in_a_file() {
    let two = data("mewkiz-flac/80574.flac").repeat(2);
    let in_memory = AudioDecoder::new().open(&two).unwrap_err();
    let in_parts = RangeIndex::open_by(&mut AudioDecoder::new(), &Counted::new(two), SMALL).unwrap_err();
    assert_eq!(place(&in_parts), place(&in_memory));
    assert!(in_parts.message.contains("another FLAC recording follows"), "{in_parts}");
}

#[test]
fn a_head_after_tags_is_read_once() {
    for name in ["vorbis/perch_16000_mono.ogg", "made/alac16.caf"] {
        let plain = data(name);
        let tagged = [&b"ID3\x04\0\0\0\0\0\x21"[..], &[0; 33], &plain].concat();
        let [plain, tagged] = [plain, tagged].map(|bytes| {
            let io = Counted::new(bytes);
            RangeIndex::open_by(&mut AudioDecoder::new(), &io, SMALL).unwrap();
            io.take().0
        });
        assert!(tagged <= plain + 1, "{name}: {tagged} reads with tags, {plain} without");
    }
}

#[test]
fn an_index_of_flac_has_no_other_codec() {
    let io = Counted::new(data("mewkiz-flac/80574.flac"));
    let index = RangeIndex::open_by(&mut AudioDecoder::new(), &io, SMALL).unwrap();
    // After the two lengths and the name of the format.
    let at = 16 + 1 + index.format().len();
    let mut written = index.to_bytes();
    let own = written[at];
    for codec in 0..13 {
        written[at] = codec;
        assert_eq!(RangeIndex::from_bytes(&written).is_ok(), codec == own, "codec {codec}, own {own}");
    }
}

#[test]
fn an_hour_of_vorbis() {
    for name in ["perch_16000_mono.ogg", "stereo_44100.ogg", "vorbis_q0_44100_stereo.ogg"] {
        let short = data(&format!("vorbis/{name}"));
        let rate = AudioDecoder::new().open(&short).unwrap().info().sample_rate;
        let long = crate::formats::vorbis::window::repeated(&short, i64::from(rate) * HOUR as i64);
        assert_eq!(assert_equal(name, &long, ReadSizes::USUAL, 300), "vorbis");
        assert_reads(name, &long, 3, 1_000_000);
    }
}

#[test]
fn an_hour_of_opus() {
    for name in ["celt_60ms_mono", "silk_wb_10ms_stereo", "silk_dtx_mono", "surround_6ch"] {
        let short = data(&format!("opus/{name}.opus"));
        let long = crate::formats::opus::repeated(&short, 48_000 * HOUR as i64);
        assert_eq!(assert_equal(name, &long, ReadSizes::USUAL, 100), "boxed");
        assert_reads(name, &long, 3, 1_000_000);
    }
}

#[test]
fn an_hour_of_mpeg() {
    for (name, count, is_constant) in [
        ("mp3_cbr128_32000_stereo.mp3", Some(100_000), true),
        ("mp3_cbr128_32000_stereo.mp3", None, true),
        ("mp3_cbr128_32000_stereo.mp3", Some(99_000), false),
        ("mp3_vbr9_44100_stereo.mp3", None, false),
        ("mp2_44100_mono.mp2", None, false),
    ] {
        let long = repeated_frames(&data(&format!("mpeg/{name}")), 100_000, count);
        assert_eq!(assert_equal(name, &long, ReadSizes::USUAL, 300), "mpeg");
        let io = Counted::new(long.clone());
        let index = RangeIndex::open(&mut AudioDecoder::new(), &io).unwrap();
        let Some(AnyIndex::Mpeg(mpeg)) = &index.index else { panic!("{name}") };
        assert_eq!(matches!(mpeg.places, FramePositions::Constant { .. }), is_constant, "{name}");
        let most = if is_constant { (3, 1_000_000) } else { (200, u64::MAX) };
        assert_reads(name, &long, most.0, most.1);
    }
}

/// Bytes of the test data for each kind of index.
fn of_each_kind() -> Vec<(&'static str, Vec<u8>)> {
    [
        "made/s24.aiff",
        "made/ms_stereo.wav",
        "made/ima_stereo.wav",
        "mewkiz-flac/80574.flac",
        "vorbis/perch_16000_mono.ogg",
        "vorbis/vorbis_chained_same_32000.ogg",
        "mpeg/mp3_vbr9_44100_stereo.mp3",
        "mpeg/mp3_concat_44100.mp3",
        "mpeg/mp3_cbr128_32000_stereo.mp3",
        "codec-ladder/aac_44100_mono.m4a",
        "codec-ladder/aac_adts_44100_mono.aac",
        "made/alac16.caf",
        "codec-ladder/oggflac_44100_mono.oga",
        "opus/celt_60ms_mono.opus",
        "opus/surround_6ch.opus",
        "opus/chained_mono.opus",
    ]
    .into_iter()
    .map(|name| (name, data(name)))
    .collect()
}

#[test]
fn a_sidecar_gives_the_same_index() {
    for (name, bytes) in of_each_kind() {
        let io = Counted::new(bytes.clone());
        let mut decoder = AudioDecoder::new();
        let index = Arc::new(RangeIndex::open_by(&mut decoder, &io, SMALL).unwrap());
        let n = index.info().n_samples;
        let (mut want, mut got) = (Planes::new(), Planes::new());
        let mut rng = Rng(3);
        for _ in 0..20 {
            let span = rng.span(n);
            let part = index.span_bytes(&mut decoder, &io, span.clone()).unwrap();
            decoder.read_span(&part, span.clone(), &mut want).unwrap();
            let encoded = index.to_bytes();
            let again = Arc::new(RangeIndex::from_bytes(&encoded).unwrap());
            assert_eq!((again.info(), again.to_bytes() == encoded), (index.info(), true), "{name}");
            let part = again.span_bytes(&mut decoder, &io, span.clone()).unwrap();
            decoder.read_span(&part, span.clone(), &mut got).unwrap();
            assert!(bits(&want) == bits(&got), "{name}: {span:?}");
        }
        let content = index.to_bytes();
        let encoded = index_file::seal(b"key", &content).unwrap();
        assert_eq!(index_file::open(&encoded, b"key"), Some(&content[..]));
        assert_eq!(index_file::open(&encoded, b"kez"), None);
        for at in 0..encoded.len() {
            let mut damaged = encoded.clone();
            damaged[at] ^= 1 << (at % 8);
            assert_eq!(index_file::open(&damaged, b"key"), None, "{name}: byte {at}");
        }
        for at in (0..encoded.len()).step_by(7) {
            assert_eq!(index_file::open(&encoded[..at], b"key"), None, "{name}: {at} bytes");
        }
        for at in (0..content.len()).step_by(7) {
            let error = RangeIndex::from_bytes(&content[..at]).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Format, "{name}: {at} bytes");
        }
    }
}

/// The fuzzer starts from indexes of this version.
#[test]
fn the_corpus_can_be_read() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/range_index");
    let mut formats = std::collections::BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let index = RangeIndex::from_bytes(&std::fs::read(&path).unwrap());
        formats.insert(index.unwrap_or_else(|error| panic!("{}: {error}", path.display())).format());
    }
    assert!(formats.len() > 5, "{formats:?}");
}

/// A RIFF file of 6 GiB whose samples are computed: RF64 with a chunk before the samples.
struct Large {
    head: Vec<u8>,
    size: u64,
}

impl Large {
    fn new() -> Self {
        let n_bytes = 6u64 << 30;
        let mut head = b"RF64\xff\xff\xff\xffWAVEds64".to_vec();
        head.extend(28u32.to_le_bytes());
        head.extend((n_bytes + 3_000_000).to_le_bytes());
        head.extend(n_bytes.to_le_bytes());
        head.extend([0; 12]);
        // A chunk of some MB before the format.
        head.extend(b"bext");
        head.extend(3_000_000u32.to_le_bytes());
        head.resize(head.len() + 3_000_000, 7);
        head.extend(b"fmt \x10\0\0\0\x01\0\x01\0");
        head.extend(48_000u32.to_le_bytes());
        head.extend(96_000u32.to_le_bytes());
        head.extend([2, 0, 16, 0]);
        head.extend(b"data\xff\xff\xff\xff");
        let size = head.len() as u64 + n_bytes;
        Self { head, size }
    }

    fn sample(n: u64) -> i16 {
        (n.wrapping_mul(2_654_435_761) >> 13) as i16
    }
}

impl ReadAt for Large {
    fn size(&self) -> u64 {
        self.size
    }

    fn read(&self, range: Range<u64>) -> Result<Bytes> {
        let byte = |at: u64| match at.checked_sub(self.head.len() as u64) {
            None => self.head[at as usize],
            Some(at) => Self::sample(at / 2).to_le_bytes()[(at % 2) as usize],
        };
        assert!(range.end - range.start < 1 << 20);
        Ok(range.map(byte).collect())
    }
}

#[test]
fn samples_beyond_four_gigabytes() {
    let mut decoder = AudioDecoder::new();
    let io = Large::new();
    let index = Arc::new(RangeIndex::open(&mut decoder, &io).unwrap());
    let n = index.info().n_samples;
    assert_eq!(n, 3 << 30);
    let mut rng = Rng(5);
    let mut out = Planes::new();
    for i in 0..300 {
        let start = if i == 0 { n - 5000 } else { rng.below(1 << 31) * 3 / 2 };
        let span = start..(start + 5000).min(n);
        let part = index.span_bytes(&mut decoder, &io, span.clone()).unwrap();
        decoder.read_span(&part, span.clone(), &mut out).unwrap();
        let want = span.map(|n| f32::from(Large::sample(n)) / 32768.0);
        assert!(out.channel(0).iter().copied().eq(want), "{start}");
    }
}

#[test]
fn chains_of_hours() {
    use crate::formats::vorbis::window::repeated;
    let one = repeated(&data("vorbis/perch_16000_mono.ogg"), 16_000 * 1800);
    let mut other = repeated(&data("vorbis/perch_16000_mono.ogg"), 16_000 * 600);
    // The same serial number at first, then another.
    let same = [&one[..], &other, &one].concat();
    let mut at = 0;
    while at < other.len() {
        let n = usize::from(other[at + 26]);
        let len = 27 + n + other[at + 27..at + 27 + n].iter().map(|&n| usize::from(n)).sum::<usize>();
        other[at + 14..at + 18].copy_from_slice(&77u32.to_le_bytes());
        crate::ogg::Page::seal(&mut other[at..at + len]);
        at += len;
    }
    let length = |bytes: &[u8]| AudioDecoder::new().open(bytes).unwrap().info().n_samples;
    let (n_one, n_other) = (length(&one), length(&other));
    for (name, bytes, n) in
        [("same", same, 2 * n_one + n_other), ("two", [&one[..], &other].concat(), n_one + n_other)]
    {
        assert_eq!(length(&bytes), n, "{name}");
        assert_eq!(assert_equal(name, &bytes, ReadSizes::USUAL, 300), "vorbis");
    }
}

#[test]
fn what_a_part_is_for_is_checked() {
    let bytes = data("mewkiz-flac/80574.flac");
    let io = Counted::new(bytes.clone());
    let mut decoder = AudioDecoder::new();
    let index = Arc::new(RangeIndex::open_by(&mut decoder, &io, SMALL).unwrap());
    let n = index.info().n_samples;
    let mut out = Planes::new();
    for span in [0..n + 1, n..n + 1, Range { start: 5, end: 4 }] {
        assert_eq!(index.span_bytes(&mut decoder, &io, span).unwrap_err().kind, ErrorKind::Shape);
    }
    let part = index.span_bytes(&mut decoder, &io, 10_000..12_000).unwrap();
    assert!(part.len() > 0 && part.len() < bytes.len());
    assert_eq!(decoder.read_span(&part, 9_999..10_001, &mut out).unwrap_err().kind, ErrorKind::Shape);
    decoder.read_span(&part, 10_500..10_501, &mut out).unwrap();
    assert_eq!(out.len(), 1);
    let part = index.span_bytes(&mut decoder, &io, 7..7).unwrap();
    decoder.read_span(&part, 7..7, &mut out).unwrap();
    // Another size than when it was indexed.
    let cut = Counted::new(bytes[..bytes.len() - 1].to_vec());
    assert_eq!(index.span_bytes(&mut decoder, &cut, 0..1).unwrap_err().kind, ErrorKind::Truncated);
}
