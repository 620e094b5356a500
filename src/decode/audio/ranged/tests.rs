use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use super::{super::Planes, *};

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
    (0..planes.channels()).map(|c| planes.channel(usize::from(c)).iter().map(|x| x.to_bits()).collect()).collect()
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
            } else if !["txt", "tsv", "py"].contains(&path.extension().unwrap_or_default().to_str().unwrap()) {
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
