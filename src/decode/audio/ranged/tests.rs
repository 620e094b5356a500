use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use super::{
    super::{
        Planes,
        flac::{Table, repeated},
    },
    *,
};

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

impl ReadBytes for Counted {
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
const SMALL: Sizes = Sizes { whole: 0, ends: 8 << 10, junk: 128 << 10, margin: 4 << 10, piece: 16 << 10 };

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
fn assert_equal(name: &str, bytes: &[u8], sizes: Sizes, n_spans: usize) -> &'static str {
    let io = Counted::new(bytes.to_vec());
    let mut decoder = AudioDecoder::new();
    let whole = decoder.open(bytes).map(|recording| recording.info());
    let index = RangeIndex::open_by(&mut decoder, &io, sizes);
    let (info, index) = match (whole, index) {
        (Ok(info), Ok(index)) => (info, Arc::new(index)),
        (Err(whole), Err(index)) => {
            assert_eq!(whole.kind, index.kind, "{name}: {whole} / {index}");
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
        let whole = decoder.read(&recording, span.clone(), &mut want).map_err(|error| error.kind);
        let part = index.part(&mut decoder, &io, span.clone());
        let here = part.and_then(|part| {
            assert_eq!(part.info(), info);
            decoder.read_part(&part, span.clone(), &mut got)
        });
        match (whole, here) {
            (Ok(()), Ok(())) => assert!(bits(&want) == bits(&got), "{name}: {span:?}"),
            (Err(whole), Err(here)) => assert_eq!(whole, here.kind, "{name}: {span:?} {here}"),
            (whole, here) => panic!("{name}: {span:?} whole {whole:?}, in part {here:?}"),
        }
    }
    assert!(index.bytes_held() < 1 << 20, "{name}: {}", index.bytes_held());
    match index.kind {
        Kind::Whole => "whole",
        Kind::Linear(_) => "linear",
        Kind::Flac(_) => "flac",
        Kind::Vorbis(_) => "vorbis",
        Kind::Mpeg(_) => "mpeg",
        Kind::Packets(_) => "packets",
    }
}

/// The files of the test data with sound, by folder.
fn files() -> Vec<(String, Vec<u8>)> {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/audio");
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
    println!("{kinds:?}");
    assert!(failed.is_empty(), "{failed:#?}");
}

fn data(name: &str) -> Vec<u8> {
    std::fs::read(format!("{}/tests/data/audio/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// Frames of MPEG audio of a constant bit rate, over and over; `count` is written into the tag.
fn repeated_frames(bytes: &[u8], n_frames: usize, count: Option<u32>) -> Vec<u8> {
    let mut kept = DecoderCache::default();
    let mpeg = mpeg_of(&mut kept, bytes);
    let frames: Vec<Vec<u8>> = (0..mpeg.behind()).map(|number| mpeg.bytes_of(number).to_vec()).collect();
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
        out.extend(frame);
    }
    out
}

fn mpeg_of<'a>(kept: &mut DecoderCache, bytes: &'a [u8]) -> super::super::mpeg::Mpeg<'a> {
    super::super::mpeg::Mpeg::open(kept, bytes).unwrap()
}

/// Asserts the number of reads and bytes for five seconds, at first and afterwards; returns those at first.
fn assert_reads(name: &str, bytes: &[u8], most_reads: u64, most_bytes: u64) -> (u64, u64) {
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
        let part = index.part(&mut decoder, &io, seconds(start)).unwrap();
        let (reads, n_bytes) = io.take();
        most = (most.0.max(reads), most.1.max(n_bytes));
        assert!(
            reads <= most_reads && n_bytes <= most_bytes,
            "{name} at {share}/10: {reads} reads, {n_bytes} bytes"
        );
        decoder.read_part(&part, seconds(start), &mut out).unwrap();
        // The same place, one near it, and others.
        for start in
            [start, start + u64::from(sample_rate), start / 2, start / 3 * 2, start / 10, n_samples / 40 * 39]
        {
            let part = index.part(&mut decoder, &io, seconds(start)).unwrap();
            let (reads, n_bytes) = io.take();
            again = (again.0.max(reads), again.1.max(n_bytes));
            decoder.read_part(&part, seconds(start), &mut out).unwrap();
        }
    }
    println!("{name}: {} bytes, first {most:?}, again {again:?}", bytes.len());
    assert_eq!(again.0, 1, "{name}");
    most
}

const HOUR: u64 = 3600;

#[test]
fn an_hour_of_wav_and_aiff() {
    let wav = data("wav-hound/waveformatex-16bit-44100Hz-mono.wav");
    let mut long = wav[..44.min(wav.len())].to_vec();
    let at = wav.windows(4).position(|four| four == b"data").unwrap() + 8;
    long.splice(.., wav[..at].iter().copied());
    let mut rng = Rng(1);
    long.extend((0..HOUR * 44100 * 2).map(|_| rng.below(256) as u8));
    let n = (long.len() - at) as u32;
    long[at - 4..at].copy_from_slice(&n.to_le_bytes());
    assert_eq!(assert_equal("wav", &long, Sizes::USUAL, 300), "linear");
    assert_reads("wav", &long, 3, 1 << 20);
}

#[test]
fn an_hour_of_flac() {
    let short = data("mewkiz-flac/80574.flac");
    let info = AudioDecoder::new().open(&short).unwrap().info();
    for table in [Table::None, Table::Right, Table::Wrong] {
        let long = repeated(&short, HOUR * u64::from(info.sample_rate), table);
        assert_eq!(assert_equal("flac", &long, Sizes::USUAL, 300), "flac");
        if table == Table::Wrong {
            continue;
        }
        assert_reads(&format!("flac {table:?} {info:?}"), &long, 3, 1_000_000);
    }
}

#[test]
fn an_hour_of_vorbis() {
    for name in ["perch_16000_mono.ogg", "stereo_44100.ogg", "vorbis_q0_44100_stereo.ogg"] {
        let short = data(&format!("vorbis/{name}"));
        let rate = AudioDecoder::new().open(&short).unwrap().info().sample_rate;
        let long = super::super::vorbis::window::repeated(&short, i64::from(rate) * HOUR as i64);
        assert_eq!(assert_equal(name, &long, Sizes::USUAL, 300), "vorbis");
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
        assert_eq!(assert_equal(name, &long, Sizes::USUAL, 300), "mpeg");
        let io = Counted::new(long.clone());
        let index = RangeIndex::open(&mut AudioDecoder::new(), &io).unwrap();
        let Kind::Mpeg(mpeg) = &index.kind else { panic!("{name}") };
        assert_eq!(matches!(mpeg.places, mpeg::Places::Constant { .. }), is_constant, "{name}");
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
            let part = index.part(&mut decoder, &io, span.clone()).unwrap();
            decoder.read_part(&part, span.clone(), &mut want).unwrap();
            let kept = index.to_bytes();
            let again = Arc::new(RangeIndex::from_bytes(&kept).unwrap());
            assert_eq!((again.info(), again.to_bytes() == kept), (index.info(), true), "{name}");
            let part = again.part(&mut decoder, &io, span.clone()).unwrap();
            decoder.read_part(&part, span.clone(), &mut got).unwrap();
            assert!(bits(&want) == bits(&got), "{name}: {span:?}");
        }
        let kept = index.to_bytes();
        for at in 0..kept.len() {
            let mut damaged = kept.clone();
            damaged[at] ^= 1 << (at % 8);
            assert_eq!(
                RangeIndex::from_bytes(&damaged).unwrap_err().kind,
                ErrorKind::Format,
                "{name}: byte {at}"
            );
        }
        for at in (0..kept.len()).step_by(7) {
            assert!(RangeIndex::from_bytes(&kept[..at]).is_err(), "{name}: {at} bytes");
        }
    }
}
