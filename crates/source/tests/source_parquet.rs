//! Documents in Parquet: the same row in any order of reading, damage, and the bytes that are read of a file.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod largest_allocation;
mod source_common;

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use arrow_array::{ArrayRef, BinaryArray, Int64Array, RecordBatch, StringArray};
use forebay_base::{Error, ErrorKind, Result, cancel};
use forebay_source::{
    OpenFiles, RawRecord, SourceOptions, label_of,
    parquet::{ParquetSource, RowGroup},
};
use forebay_storage::{LocalFiles, ReadAt, Storage, Version};
use largest_allocation::largest_allocation;
use parquet::{
    basic::{Compression, Encoding},
    file::{
        metadata::KeyValue,
        properties::WriterProperties,
        reader::{FileReader, SerializedFileReader},
    },
};
use proptest::prelude::*;
use source_common::*;

/// The largest allocation allowed for a file of at most a few hundred kilobytes.
const ALLOWED: usize = 32 << 20;

/// Document `i`: some are empty, some long, some in other scripts.
fn document(i: usize) -> String {
    match i % 10 {
        3 => String::new(),
        5 => format!("grüße 🙂 {i} ").repeat(i % 50),
        7 => format!("long {i} ").repeat(2000),
        _ => format!("document {i}"),
    }
}

fn documents(range: std::ops::Range<usize>) -> Vec<Option<Vec<u8>>> {
    range.map(|i| (i % 11 != 6).then(|| document(i).into_bytes())).collect()
}

fn text_batch(documents: &[Option<Vec<u8>>]) -> RecordBatch {
    let text: ArrayRef = Arc::new(BinaryArray::from_iter(documents));
    let id: ArrayRef = Arc::new(Int64Array::from_iter_values(0..documents.len() as i64));
    batch([("id", id), ("text", text)])
}

/// The expected result for a document.
fn expected(document: Option<&[u8]>) -> Result<&[u8], ErrorKind> {
    match document {
        None => Err(ErrorKind::Null),
        Some([]) => Err(ErrorKind::Empty),
        Some(bytes) => std::str::from_utf8(bytes).map(|_| bytes).map_err(|_| ErrorKind::Corrupt),
    }
}

fn verdict(read: Result<RawRecord>) -> Result<Vec<u8>, ErrorKind> {
    read.map(|record| record.payload.bytes.to_vec()).map_err(|error| error.kind)
}

/// Checks every row, in order, backwards and alone.
fn check_documents(source: &Arc<ParquetSource>, documents: &[Option<Vec<u8>>]) {
    assert_eq!(source.n_rows(), documents.len() as u64);
    let n = source.n_rows();
    for run in [u64::MAX, 1, 2] {
        let mut reader = source.reader();
        for at in (0..n).chain((0..n).rev().step_by(7)).chain([n / 2, 0, n - 1]) {
            let expected = expected(documents[at as usize].as_deref()).map(<[u8]>::to_vec);
            assert_eq!(verdict(reader.row(at, run)), expected, "row {at}, run {run}");
        }
    }
}

#[test]
fn documents_of_every_kind() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    let mut documents = documents(0..150);
    documents[20] = Some(b"caf\xe9".to_vec());
    documents[99] = Some(vec![0xff; 3000]);
    for properties in parquet_properties() {
        write_parquet(&path, &properties, &[text_batch(&documents)]);
        check_documents(&open_text(std::slice::from_ref(&path)).unwrap(), &documents);
    }
    for encoding in [Encoding::DELTA_BYTE_ARRAY, Encoding::DELTA_LENGTH_BYTE_ARRAY, Encoding::PLAIN] {
        let properties = WriterProperties::builder()
            .set_dictionary_enabled(false)
            .set_column_encoding("text".into(), encoding);
        let properties = properties.set_data_page_row_count_limit(40).set_write_batch_size(8).build();
        write_parquet(&path, &properties, &[text_batch(&documents)]);
        check_documents(&open_text(std::slice::from_ref(&path)).unwrap(), &documents);
    }
}

#[test]
fn the_problem_of_a_document_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    let documents = [Some(b"fine".to_vec()), None, Some(Vec::new()), Some(b"caf\xe9 au lait".to_vec())];
    write_parquet(&path, &WriterProperties::default(), &[text_batch(&documents)]);
    let mut reader = open_text(&[path]).unwrap().reader();
    let messages = [1, 2, 3].map(|row| reader.row(row, 9).unwrap_err().to_string());
    for (message, (what, row)) in messages.iter().zip([("null", 1), ("empty", 2), ("not UTF-8", 3)]) {
        assert!(message.contains(what) && message.contains(&format!("a.parquet, row {row}")), "{message}");
    }
    assert!(messages[2].contains("index 3"), "{}", messages[2]);
}

#[test]
fn row_groups_over_all_files() {
    let folder = tempfile::tempdir().unwrap();
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(40)).build();
    let (mut paths, mut all) = (Vec::new(), Vec::new());
    for (n, range) in [0..100, 100..100, 100..150].into_iter().enumerate() {
        let path = folder.path().join(format!("{n}.parquet"));
        let documents = documents(range);
        write_parquet(&path, &properties, &[text_batch(&documents)]);
        all.extend(documents);
        paths.push(path);
    }
    let source = open_text(&paths).unwrap();
    let group = |shard, index, first_row, n_rows| RowGroup { shard, index, first_row, n_rows };
    let groups = [
        group(0, 0, 0, 40),
        group(0, 1, 40, 40),
        group(0, 2, 80, 20),
        group(2, 0, 100, 40),
        group(2, 1, 140, 10),
    ];
    assert_eq!(source.row_groups(), groups);
    assert_eq!(source.row_groups_of(0), &groups[..3]);
    assert!(source.row_groups_of(1).is_empty());
    assert_eq!([0, 39, 40, 99, 100, 149].map(|row| source.row_group_of(row)), [0, 0, 1, 2, 3, 4]);
    assert_eq!(source.locate(145), (2, 45));
    check_documents(&source, &all);
}

#[test]
fn labels_and_class_names_as_in_arrow() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    let recording: ArrayRef = Arc::new(BinaryArray::from_iter_values([b"first", b"other"]));
    let species: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None]));
    let features = r#"{"info": {"features": {"call": {"_type": "Audio"},
        "species": {"_type": "ClassLabel", "names": ["owl", "wren"]}}}}"#;
    let metadata = KeyValue::new("huggingface".into(), features.to_string());
    let properties = WriterProperties::builder().set_key_value_metadata(Some(vec![metadata])).build();
    write_parquet(&path, &properties, &[batch([("species", species), ("call", recording)])]);
    let source = open_parquet(&[path]).unwrap();
    assert_eq!(source.contents().class_names.first().unwrap(), ["owl", "wren"]);
    let mut reader = source.reader();
    let labels = [0, 1].map(|row| label_of(&reader.row(row, 1).unwrap().values));
    assert_eq!(labels, [1, -1]);
}

#[test]
fn missing_columns_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    let content: ArrayRef = Arc::new(StringArray::from(vec!["a"]));
    let id: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    write_parquet(&path, &WriterProperties::default(), &[batch([("id", id), ("content", content)])]);
    let message = |column: &str| {
        let options = SourceOptions::text(column);
        let error = ParquetSource::open(std::slice::from_ref(&path), &options).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Schema);
        error.to_string()
    };
    let listed = "the columns are id (int64), content (text)";
    assert!(
        message("text").contains(listed) && message("text").contains("text_column="),
        "{}",
        message("text")
    );
    assert!(message("id").contains(listed) && message("id").contains("Int64 and holds no documents"));
    let open = || ParquetSource::open(&[path], &SourceOptions::text("content"));
    let closed = cancel::during(Some(Arc::new(|| true)), open);
    assert_eq!(closed.unwrap_err().kind, ErrorKind::Closed);
}

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/parquet-testing").join(name)
}

fn open_column(path: &Path, column: &str) -> Result<Arc<ParquetSource>> {
    let options = SourceOptions::text(column);
    ParquetSource::open(&[path.to_owned()], &options).map(Arc::new)
}

#[test]
fn encrypted_files() {
    let error =
        open_column(&data("encrypt_columns_and_footer_aad.parquet.encrypted"), "ba_field").unwrap_err();
    assert_eq!(error.kind, ErrorKind::Format);
    assert!(error.message.contains("encrypted"), "{error}");
    // Columns in plain text are read beside encrypted ones.
    let source =
        open_column(&data("encrypt_columns_plaintext_footer.parquet.encrypted"), "ba_field").unwrap();
    assert_eq!(source.reader().row(0, 9).unwrap().payload.bytes, "parquet000");
}

/// Reads all rows of a file that may be damaged, up to a limit: the verdict on a row must not depend on the
/// order of reading.
fn read_within_reason(source: &Arc<ParquetSource>) -> Vec<Result<Vec<u8>, ErrorKind>> {
    let n = source.n_rows().min(60);
    let (mut in_order, mut alone) = (source.reader(), source.reader());
    let mut verdicts = Vec::new();
    for row in 0..n {
        let read = in_order.row(row, u64::MAX);
        if let Err(error) = &read {
            assert!(error.kind.is_record(), "{error}");
            assert!(error.place.row == Some(row) && error.place.shard.is_some(), "{error}");
        }
        verdicts.push(verdict(read));
        assert_eq!(verdict(alone.row(row, 1)), verdicts[row as usize], "row {row}");
    }
    assert!(largest_allocation() < ALLOWED, "an allocation of {} bytes", largest_allocation());
    verdicts
}

#[test]
fn files_that_made_others_fail() {
    for entry in [data("bad"), data("")].iter().flat_map(|folder| fs::read_dir(folder).unwrap()) {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "parquet") {
            continue;
        }
        let Ok(file) = SerializedFileReader::new(fs::File::open(&path).unwrap()) else { continue };
        let schema = file.metadata().file_metadata().schema_descr_ptr();
        for column in schema.root_schema().get_fields() {
            match open_column(&path, column.name()) {
                Ok(source) => drop(read_within_reason(&source)),
                Err(error) => assert_eq!(error.kind, ErrorKind::Schema, "{error}"),
            }
        }
    }
    let corrupt =
        open_column(&data("rle-dict-uncompressed-corrupt-checksum.parquet"), "binary_field").unwrap();
    let error = corrupt.reader().row(0, 9).unwrap_err();
    assert!(
        error.to_string().contains("row group 0 cannot be decoded: ") && error.to_string().contains("CRC"),
        "{error}"
    );
}

#[test]
fn a_damaged_page_costs_its_own_rows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    let documents: Vec<_> =
        (0..400).map(|i| Some(format!("document {i} ").repeat(20).into_bytes())).collect();
    let properties = WriterProperties::builder().set_compression(Compression::ZSTD(Default::default()));
    let properties = properties.set_dictionary_enabled(false).set_max_row_group_row_count(Some(200));
    let properties = properties.set_data_page_row_count_limit(20).set_write_batch_size(20).build();
    write_parquet(&path, &properties, &[text_batch(&documents)]);
    let file = SerializedFileReader::new(fs::File::open(&path).unwrap()).unwrap();
    let (start, len) = file.metadata().row_group(0).column(1).byte_range();
    let mut bytes = fs::read(&path).unwrap();
    // The magic bytes of a Zstandard frame in the middle.
    let magic = [0x28, 0xb5, 0x2f, 0xfd];
    let at = (start + len / 2) as usize;
    let at = at + bytes[at..].windows(4).position(|window| window == magic).unwrap();
    bytes[at] ^= 0xff;
    fs::write(&path, bytes).unwrap();
    let source = open_text(&[path]).unwrap();
    let mut reader = source.reader();
    let verdicts: Vec<_> = (0..400).map(|row| reader.row(row, 400 - row)).collect();
    let bad: Vec<_> = (0..400).filter(|&row| verdicts[row].is_err()).collect();
    assert_eq!(bad, (bad[0]..bad[0] + 20).collect::<Vec<_>>());
    let mut alone = source.reader();
    for (row, read) in verdicts.into_iter().enumerate() {
        if let Err(error) = &read {
            assert!(error.to_string().contains("row group 0 cannot be decoded: "), "{error}");
            assert_eq!((error.kind, error.place.row), (ErrorKind::Corrupt, Some(row as u64)));
        }
        assert_eq!(verdict(alone.row(row as u64, 1)), verdict(read));
    }
}

/// Regression: a page header whose number of rows differs from its values was accepted where the page was
/// skipped, and refused where it was read.
#[test]
fn every_byte_of_a_small_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    let properties = parquet_properties().swap_remove(14);
    write_parquet(&path, &properties, &[text_batch(&documents(0..60))]);
    let whole = fs::read(&path).unwrap();
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 126;
        fs::write(&path, &bytes).unwrap();
        if let Ok(source) = open_text(std::slice::from_ref(&path)) {
            read_within_reason(&source);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damage_is_an_error_and_nothing_worse(
        style in 0..24usize,
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        in_header in any::<bool>(),
        cut in prop::option::weighted(0.1, any::<prop::sample::Index>()),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        let properties = match style.checked_sub(21) {
            None => parquet_properties().swap_remove(style),
            Some(n) => {
                let encoding = [Encoding::DELTA_BYTE_ARRAY, Encoding::DELTA_LENGTH_BYTE_ARRAY, Encoding::PLAIN][n];
                WriterProperties::builder().set_dictionary_enabled(false).set_column_encoding("text".into(), encoding).build()
            }
        };
        write_parquet(&path, &properties, &[text_batch(&documents(0..60))]);
        let mut bytes = fs::read(&path).unwrap();
        for (at, flip) in flips {
            // The first bytes hold the headers of the first pages.
            let len = if in_header { 200 } else { bytes.len() };
            bytes[at.index(len)] ^= flip;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        fs::write(&path, bytes).unwrap();
        match open_text(&[path]) {
            Ok(source) => drop(read_within_reason(&source)),
            Err(error) => prop_assert!(matches!(error.kind, ErrorKind::Format | ErrorKind::Schema), "{error}"),
        }
    }
}

/// Local files that count what is read, and fail permanently once set to.
#[derive(Debug, Clone, Default)]
struct Disk(Arc<[AtomicU64; 3]>);

struct CountedFile(Box<dyn ReadAt>, Disk);

impl Storage for Disk {
    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadAt>> {
        Ok(Box::new(CountedFile(LocalFiles.open(path)?, self.clone())))
    }
}

impl ReadAt for CountedFile {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let [n_reads, n_bytes, fails] = &*self.1.0;
        if fails.load(Relaxed) > 0 {
            return Err(io::Error::other("the disk is on fire"));
        }
        n_reads.fetch_add(1, Relaxed);
        let n = self.0.read_at(buffer, at)?;
        n_bytes.fetch_add(n as u64, Relaxed);
        Ok(n)
    }

    fn version(&self) -> io::Result<Version> {
        self.0.version()
    }
}

#[test]
fn only_the_requested_column_is_read_in_large_pieces() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    let noise = |seed: usize| (0..20_000).map(move |k| ((k * k + seed * 7919) % 251) as u8);
    let other: ArrayRef =
        Arc::new(BinaryArray::from_iter_values((0..1000).map(|i| noise(i).collect::<Vec<_>>())));
    let text: ArrayRef =
        Arc::new(StringArray::from_iter_values((0..1000).map(|i| format!("{i:09}").repeat(1000))));
    let properties = WriterProperties::builder().set_dictionary_enabled(false).build();
    write_parquet(&path, &properties, &[batch([("other", other), ("text", text)])]);
    let disk = Disk::default();
    let options = SourceOptions::text("text");
    let source = ParquetSource::open_in(Arc::new(disk.clone()), &[path], &options).unwrap();
    let counts = || [0, 1].map(|n: usize| disk.0[n].swap(0, Relaxed));
    let [n_reads, n_bytes] = counts();
    assert!(n_reads == 1 && n_bytes <= 64 << 10, "{n_reads} reads of {n_bytes} bytes to open");
    let source = Arc::new(source);
    let mut reader = source.reader();
    for row in 0..1000 {
        assert_eq!(reader.row(row, 1000 - row).unwrap().payload.bytes.len(), 9000);
    }
    let [n_reads, n_bytes] = counts();
    assert!(n_reads <= 5 && n_bytes < 9_300_000, "{n_reads} reads of {n_bytes} bytes for 9 MB of text");
    source.reader().row(990, 1).unwrap();
    let [_, n_bytes] = counts();
    assert!(n_bytes < 4_000_000, "{n_bytes} bytes for one row");
    disk.0[2].store(1, Relaxed);
    let error: Error = source.reader().row(0, 1000).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Io);
    assert!(error.to_string().contains("on fire"), "{error}");
}

#[test]
fn a_file_that_changes_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    write_parquet(&path, &WriterProperties::default(), &[text_batch(&documents(0..10))]);
    let source = open_text(std::slice::from_ref(&path)).unwrap();
    write_parquet(&path, &WriterProperties::default(), &[text_batch(&documents(0..30))]);
    assert_eq!(source.reader().row(0, 1).unwrap_err().kind, ErrorKind::Io);
    fs::remove_file(&path).unwrap();
    assert_eq!(source.reader().row(0, 1).unwrap_err().kind, ErrorKind::NotFound);
}

#[test]
fn records_outlive_their_batch_and_those_read_alone_hold_no_page() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    let documents = documents(0..150);
    write_parquet(&path, &parquet_properties()[1], &[text_batch(&documents)]);
    let mut reader = open_text(&[path]).unwrap().reader();
    let records: Vec<_> =
        (0..150).map(|row| reader.row(row, 150 - row).ok().map(|record| record.payload.bytes)).collect();
    drop(reader);
    for (record, document) in records.iter().zip(&documents) {
        assert_eq!(record.as_deref(), expected(document.as_deref()).ok());
    }
    // Adjacent rows of a page, read in order, share the page's memory: no copy was made.
    let [a, b] = [&records[88], &records[89]].map(|record| record.as_ref().unwrap().as_ptr() as usize);
    assert!(b.abs_diff(a) < 20_000, "{a} and {b}");
}
