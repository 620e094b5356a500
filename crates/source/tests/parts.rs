//! Parts of large recordings in shards: the reads that they cost, and their samples beside a whole decode.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod source_common;

use std::{
    fs, io,
    ops::Range,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use arrow_array::{ArrayRef, BinaryArray, Int64Array};
use forebay_audio::{AudioDecoder, Planes};
use forebay_base::{ErrorKind, Result, seed::mix};
use forebay_engine::{contract::ReadRecords, fields::Row};
use forebay_source::{ArrowSource, OpenRecording, ReadRequest, RowExtent, SourceOptions, StoredPayload};
use forebay_storage::{LocalFiles, MappedFiles, ReadAt, Storage, Version};
use source_common::{Format, batch, write};

/// Local files, mapped or not, whose reads take longer, and are counted.
#[derive(Debug, Default, Clone)]
struct Disk {
    latency: Duration,
    is_mapped: bool,
    n_reads: Arc<AtomicU64>,
    n_bytes: Arc<AtomicU64>,
}

struct DiskFile(Box<dyn ReadAt>, Disk);

impl Storage for Disk {
    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadAt>> {
        let file = if self.is_mapped { MappedFiles.open(path)? } else { LocalFiles.open(path)? };
        Ok(Box::new(DiskFile(file, self.clone())))
    }
}

impl DiskFile {
    fn count(&self, n_bytes: usize) {
        let Disk { latency, n_reads, n_bytes: sum, .. } = &self.1;
        n_reads.fetch_add(1, Relaxed);
        sum.fetch_add(n_bytes as u64, Relaxed);
        thread::sleep(*latency);
    }
}

impl ReadAt for DiskFile {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        self.count(buffer.len());
        self.0.read_at(buffer, at)
    }

    fn version(&self) -> io::Result<Version> {
        self.0.version()
    }

    fn mapped(&self, at: u64, len: usize, needed: Range<usize>) -> Option<io::Result<bytes::Bytes>> {
        let mapped = self.0.mapped(at, len, needed.clone())?;
        self.count(needed.len());
        Some(mapped)
    }
}

/// Wants a span of samples, and notes the length that it was told.
struct SpanOf {
    span: Range<u64>,
    told: Mutex<Option<u64>>,
}

impl ReadRequest for SpanOf {
    fn takes_spans(&self) -> bool {
        true
    }

    fn span(&self, of: RowExtent, _: &Row) -> Option<Range<u64>> {
        *self.told.lock().unwrap() = Some(of.n_samples);
        Some(self.span.start..self.span.end.min(of.n_samples)).filter(|span| span.start < span.end)
    }
}

/// A WAV file of 16-bit mono with so many samples.
fn wav(n: u32, seed: u32) -> Vec<u8> {
    let mut bytes = b"RIFF".to_vec();
    bytes.extend((36 + 2 * n).to_le_bytes());
    bytes.extend(b"WAVEfmt \x10\0\0\0\x01\0\x01\0");
    bytes.extend([8000, 16_000, 2 | 16 << 16].map(u32::to_le_bytes).concat());
    bytes.extend(b"data");
    bytes.extend((2 * n).to_le_bytes());
    bytes.extend((0..n).flat_map(|k| ((mix((seed + k).into()) >> 50) as i16).to_le_bytes()));
    bytes
}

fn recording(name: &str) -> Vec<u8> {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    fs::read(package.ancestors().nth(2).unwrap().join("tests/data/recordings").join(name)).unwrap()
}

fn shard(path: PathBuf, recordings: &[Vec<u8>]) -> PathBuf {
    let audio: ArrayRef = Arc::new(BinaryArray::from_iter_values(recordings));
    let label: ArrayRef = Arc::new(Int64Array::from_iter_values(0..recordings.len() as i64));
    // The bytes of recordings are the last of the file.
    write(&path, Format::default(), &[batch([("label", label), ("audio", audio)])]);
    path
}

fn source(disk: &Disk, path: &Path) -> Arc<ArrowSource> {
    let options = SourceOptions { threads: 1, ..SourceOptions::default() };
    Arc::new(ArrowSource::open_in(Arc::new(disk.clone()), &[path.into()], &options).unwrap())
}

fn part(source: &Arc<ArrowSource>, row: u64, span: Range<u64>) -> Result<(StoredPayload, Option<u64>)> {
    let request = SpanOf { span, told: Mutex::default() };
    let record = source.reader().read(row, 1, &request)?;
    Ok((record.payload, request.told.into_inner().unwrap()))
}

/// The bits of the samples of a span, or the kind of the error.
fn samples(decoder: &mut AudioDecoder, payload: &StoredPayload, span: Range<u64>) -> Result<Vec<Vec<u32>>> {
    let recording = OpenRecording::open(decoder, payload)?;
    let mut planes = Planes::new();
    let end = span.end.min(recording.info().n_samples);
    recording.read(decoder, span.start.min(end)..end, &mut planes)?;
    let channels = 0..usize::from(planes.channels());
    Ok(channels.map(|c| planes.channel(c).iter().map(|sample| sample.to_bits()).collect()).collect())
}

#[test]
fn where_reads_take_long_only_plain_samples_are_read_in_part() {
    let folder = tempfile::tempdir().unwrap();
    let flac = recording("21100_36_48.flac");
    assert!(flac.len() > 256 << 10);
    let mut recordings =
        vec![wav(150_000, 1), wav(150_000, 2), wav(150_000, 3), flac.clone(), flac.clone(), flac];
    recordings.push(wav(100_000, 4)); // less than 256 KiB
    let path = shard(folder.path().join("a.arrow"), &recordings);
    // No read is quick on any machine.
    let disk = Disk { latency: Duration::from_millis(3), ..Disk::default() };
    let source = source(&disk, &path);
    let reads = |row: u64, span: Range<u64>| {
        let before = disk.n_reads.load(Relaxed);
        let (payload, _) = part(&source, row, span).unwrap();
        (disk.n_reads.load(Relaxed) - before, payload.is_whole())
    };
    assert_eq!(reads(0, 0..8000), (3, true), "offsets, labels, and the recording");
    assert_eq!(reads(1, 70_000..78_000), (2, false), "its head, and the samples");
    assert_eq!(reads(1, 0..8000), (1, false), "the head is known");
    assert_eq!(reads(1, 0..100_000), (1, true), "more than half of it");
    assert_eq!(reads(6, 0..8000), (1, true), "a small one");
    let (n, is_whole) = reads(3, 10_000..12_000);
    assert!(n > 1 && is_whole, "its head, which is not of plain samples, and all of it: {n}");
    assert_eq!(reads(4, 10_000..12_000), (1, true), "the last one was not plain");
    assert_eq!(reads(2, 70_000..78_000), (1, true));
    assert_eq!(reads(2, 70_000..78_000), (2, false));
}

#[test]
fn of_what_is_larger_than_a_block_a_part_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = shard(folder.path().join("a.arrow"), &[wav(4_000_000, 1), wav(4_000_000, 2)]);
    for is_mapped in [false, true] {
        let disk = Disk { latency: Duration::from_millis(3), is_mapped, ..Disk::default() };
        let source = source(&disk, &path);
        let before = disk.n_bytes.load(Relaxed);
        for row in [0, 1] {
            let (payload, told) = part(&source, row, 2_000_000..2_008_000).unwrap();
            assert_eq!((payload.is_whole(), told), (false, Some(4_000_000)));
        }
        assert!(disk.n_bytes.load(Relaxed) - before < 1 << 19);
    }
}

#[test]
fn a_record_that_its_shard_lacks_in_part_is_bad() {
    let folder = tempfile::tempdir().unwrap();
    let path = shard(folder.path().join("a.arrow"), &[wav(150_000, 1), wav(150_000, 2), wav(4_000_000, 3)]);
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_len(file.metadata().unwrap().len() - 1_000_000).unwrap();
    for is_mapped in [false, true] {
        let source = source(&Disk { is_mapped, ..Disk::default() }, &path);
        for _ in 0..3 {
            // The samples of this span are there.
            for row in [0, 1] {
                part(&source, row, 1000..2000).unwrap();
            }
            assert_eq!(part(&source, 2, 1000..2000).unwrap_err().kind, ErrorKind::Truncated);
        }
    }
}

#[test]
fn a_shard_that_is_overwritten_is_not_read_by_old_indexes() {
    let folder = tempfile::tempdir().unwrap();
    let stereo = |n: u32| {
        let mut bytes = wav(n, 5);
        bytes[22] = 2; // channels
        bytes[32] = 4; // bytes of both
        bytes
    };
    let [before, after] = [[wav(4_000_000, 1), wav(200_000, 2)], [stereo(4_000_000), stereo(200_000)]];
    let path = shard(folder.path().join("a.arrow"), &before);
    let other = fs::read(shard(folder.path().join("b.arrow"), &after)).unwrap();
    // It keeps the file open.
    let mut reader = source(&Disk::default(), &path).reader();
    let mut read = |row: u64| {
        let request = SpanOf { span: 50_000..50_100, told: Mutex::default() };
        let payload = reader.read(row, 1, &request).unwrap().payload;
        samples(&mut AudioDecoder::new(), &payload, 50_000..50_100).unwrap()
    };
    for row in [0, 1, 0, 1] {
        assert_eq!(read(row).len(), 1);
    }
    // In place, with another time.
    let file = fs::File::options().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &other, 0).unwrap();
    file.set_modified(std::time::SystemTime::now() + Duration::from_secs(9)).unwrap();
    let mut decoder = AudioDecoder::new();
    for (row, bytes) in after.into_iter().enumerate() {
        let expected = samples(&mut decoder, &StoredPayload::from(bytes::Bytes::from(bytes)), 50_000..50_100);
        assert_eq!(read(row as u64), expected.unwrap());
    }
}

/// Whether a part or the whole is read depends on how quick the reads were. What it is read for does not.
#[test]
fn parts_have_the_samples_and_the_errors_of_the_whole() {
    let folder = tempfile::tempdir().unwrap();
    let mut recordings = vec![wav(300_000, 1), recording("21100_36_48.flac")];
    recordings.extend(["S4A03895_20190522_180000.wav", "rugr_drum.wav"].map(recording));
    // As long as a recording of minutes: frames and pages that follow each other.
    for name in ["jfk.mp3", "mp3_cbr128_48000_stereo.mp3", "21100_36_48.mp3"] {
        recordings.push(recording(name).repeat(8));
    }
    let n_sound = recordings.len();
    // Two files, one after the other: numbers of frames that come again, which is an error.
    recordings.push(recording("tabla_ghe5.flac").repeat(3));
    recordings.push([recording("21100_36_48.flac"), recording("ambi_choir.flac")].concat());
    for n in 0..recordings.len() {
        let mut damaged = recordings[n].clone();
        let len = damaged.len();
        for k in 0..20_u64 {
            damaged[mix(k) as usize % len] ^= 1 << (mix(k + 99) % 8);
        }
        recordings.push(damaged);
        recordings.push(recordings[n][..len * 7 / 8].to_vec());
    }
    recordings.push(vec![7; 300_000]);
    let path = shard(folder.path().join("a.arrow"), &recordings);
    let mut decoder = AudioDecoder::new();
    let (mut n_parts, mut n_errors) = (0, 0);
    for is_mapped in [false, true] {
        let source = source(&Disk { is_mapped, ..Disk::default() }, &path);
        for (row, bytes) in recordings.iter().enumerate() {
            let whole = StoredPayload::from(bytes::Bytes::from(bytes.clone()));
            let n =
                OpenRecording::open(&mut decoder, &whole).map_or(1, |recording| recording.info().n_samples);
            for k in 0..12 {
                let start = mix(k + 31 * row as u64) % n;
                let span = start..start + 1 + mix(k) % (n / 8 + 1);
                let expected = samples(&mut decoder, &whole, span.clone());
                // The decoder reports damage, not the reader.
                let (payload, told) = part(&source, row as u64, span.clone()).unwrap();
                assert!(
                    told.is_none_or(|told| told == n),
                    "row {row} has {n} samples, and {told:?} were told"
                );
                n_parts += usize::from(!payload.is_whole());
                match (expected, samples(&mut decoder, &payload, span.clone())) {
                    (Ok(expected), Ok(found)) => assert!(expected == found, "row {row} {span:?}"),
                    (Err(expected), Err(found)) => {
                        assert_eq!(
                            (expected.kind, expected.place.byte),
                            (found.kind, found.place.byte),
                            "{found}"
                        );
                        assert!(row >= n_sound && expected.kind != ErrorKind::Io);
                        n_errors += 1;
                    }
                    (expected, found) => panic!("row {row} {span:?}: {expected:?}, in part {found:?}"),
                }
            }
        }
    }
    assert!(n_errors > 0);
    println!("{n_parts} parts, {n_errors} errors");
}
