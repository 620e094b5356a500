//! Damaged and deceptive shards: each row becomes a record or an error, within limits of time and memory,
//! whatever a header claims.
//!
//! Arrow streams and files, plain, LZ4 and ZSTD, with dictionaries and views; Parquet with every codec and
//! delta encodings. 500 copies each, 10 000 under `make soak`. The figures of a full run are in
//! `docs/reliability.md`; `--nocapture` prints this run's.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "the figures")]

mod hostile_common;
#[path = "../crates/source/tests/source_common/mod.rs"]
mod source_common;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow_array::{
    Array, ArrayRef, BinaryArray, FixedSizeListArray, Int64Array, LargeListArray, ListArray, StringArray,
    StructArray,
    builder::{ListBuilder, StringBuilder},
    types::{Float64Type, Int32Type},
};
use arrow_schema::{DataType, Field};
use forebay::cache::build::{
    Shards, Skips,
    inputs::{Files, Limits, Projection},
};
use forebay::{
    ErrorKind, Result,
    contract::ReadRecords,
    source::{ArrowSource, OpenFiles, PayloadSource, SourceOptions, WholeRecord, parquet::ParquetSource},
};
use hostile_common::{
    Tally,
    meter::{Watchdog, held, metered, panics},
    mutate::{Rng, mutate},
    trials,
};
use parquet::{
    basic::{Compression, Encoding},
    file::properties::WriterProperties,
};
use source_common::{
    Format, batch, byte_columns, data, formats, parquet_properties, text_columns, write, write_parquet,
};

/// The most bytes that a reader may hold for a shard of at most a few hundred kilobytes.
const MOST_BYTES: usize = 64 << 20;

fn open_arrow(path: &Path, max_record_bytes: u64) -> Result<Arc<ArrowSource>> {
    let options = SourceOptions { threads: 1, max_record_bytes, ..SourceOptions::default() };
    ArrowSource::open(&[path.into()], &options).map(Arc::new)
}

fn open_parquet(path: &Path, max_record_bytes: u64) -> Result<Arc<ParquetSource>> {
    let options = SourceOptions { threads: 1, max_record_bytes, ..SourceOptions::text("text") };
    ParquetSource::open(&[path.into()], &options).map(Arc::new)
}

/// Reads a limited number of rows of a source, alone and in order; returns the first error's kind, if any.
fn read_rows<S: PayloadSource>(source: &Arc<S>) -> Option<ErrorKind> {
    let n: u64 = source.shard_rows(0).unwrap().iter().sum();
    let (mut alone, mut in_order) = (source.reader(), source.reader());
    let mut first = None;
    for row in (0..n.min(60)).chain(n.saturating_sub(3).max(60)..n) {
        for (reader, run) in [(&mut alone, 1), (&mut in_order, u64::MAX)] {
            if let Err(error) = reader.read(row, run, &WholeRecord::ONCE) {
                assert!(error.place.row.is_some() && error.place.shard.is_some(), "{error}");
                // A label beyond int64 ends the run; all other errors are the record's.
                assert!(error.kind.is_record() || error.kind == ErrorKind::Schema, "{error}");
                // Some rows of the bases are null.
                if !matches!(error.kind, ErrorKind::Null | ErrorKind::Unreadable) {
                    first.get_or_insert(error.kind);
                }
            }
        }
    }
    first
}

fn mutants<S: PayloadSource>(family: &str, bases: &[Vec<u8>], open: impl Fn(&Path) -> Result<Arc<S>>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mutant");
    let (watchdog, mut tally) = (Watchdog::new(), Tally::default());
    for trial in 0..trials() {
        let mut rng = Rng(trial << 8 | family.len() as u64);
        let base = rng.below(bases.len());
        fs::write(&path, mutate(&mut rng, &bases[base], bases)).unwrap();
        let what = format!("trial {trial} of {family} (base {base})");
        watchdog.begins(&what);
        let (outcome, cost) = metered(&what, || match open(&path) {
            Ok(source) => read_rows(&source).map_or("ok", ErrorKind::name),
            Err(error) => {
                assert!(matches!(error.kind, ErrorKind::Format | ErrorKind::Schema), "{error}");
                error.kind.name()
            }
        });
        tally.count(&what, outcome, cost, MOST_BYTES);
    }
    println!("{family}: {tally}; panics of libraries: {:?}", panics());
    assert!(tally.n_good() < tally.trials() && tally.n_good() > 0, "{family}: {tally}");
    let ours: Vec<_> = panics().into_keys().filter(|place| place.starts_with("src/")).collect();
    assert!(ours.is_empty(), "panics in {ours:?}");
}

/// A shard of some kilobytes with three batches.
fn small_shard(format: Format) -> Vec<u8> {
    let batches = [0..6, 6..13, 14..20].map(|range| {
        let bytes: Vec<_> = range.clone().map(|i| (i % 5 != 2).then(|| vec![i as u8; 37 * i + 1])).collect();
        let paths =
            text_columns(&range.clone().map(|i| Some(format!("{i}.wav"))).collect::<Vec<_>>()).remove(0);
        let label: ArrayRef = Arc::new(arrow_array::Int64Array::from_iter_values(range.map(|i| i as i64)));
        batch([
            ("audio", source_common::audio_struct(byte_columns(&bytes).remove(3), paths)),
            ("label", label),
        ])
    });
    written(|path| write(path, format, &batches))
}

/// The file that `write` writes.
fn written(write: impl FnOnce(&Path)) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    write(&path);
    fs::read(path).unwrap()
}

fn arrow(family: &str, is_file: bool, compressed: bool) {
    let formats = formats()
        .into_iter()
        .filter(|format| format.is_file == is_file && format.compression.is_some() == compressed);
    let bases: Vec<_> = formats.map(small_shard).collect();
    mutants(family, &bases, |path| open_arrow(path, 1 << 30));
}

#[test]
fn streams() {
    arrow("streams", false, false);
}

#[test]
fn files() {
    arrow("files", true, false);
}

#[test]
fn compressed_streams() {
    arrow("compressed_streams", false, true);
}

#[test]
fn compressed_files() {
    arrow("compressed_files", true, true);
}

#[test]
fn dictionaries_and_views() {
    let names =
        ["deltas.arrow", "replaced.arrow", "views.arrow", "large.arrow", "legacy.arrow", "sliced.arrow"];
    let bases: Vec<_> = names.iter().map(|name| fs::read(data(name)).unwrap()).collect();
    mutants("dictionaries_and_views", &bases, |path| open_arrow(path, 1 << 30));
}

/// Columns that a loader reads beside its recordings.
const NESTED: [&str; 5] = ["several", "numbers", "fixed", "meta.name", "meta.at"];

/// A batch with lists of texts and of numbers, lists of one length, and a struct.
fn nested_batch(range: std::ops::Range<usize>) -> arrow_array::RecordBatch {
    let mut several = ListBuilder::new(StringBuilder::new());
    for i in range.clone() {
        (0..i % 4).for_each(|item| several.values().append_value(format!("name {item}").repeat(i % 9)));
        several.append(i % 7 != 3);
    }
    let numbers = range.clone().map(|i| (i % 5 != 2).then(|| (0..i % 6).map(|item| Some(item as i32))));
    let fixed = range.clone().map(|i| (i % 5 != 1).then_some([Some(i as f64), None, Some(0.5)]));
    let at: ArrayRef = Arc::new(Int64Array::from_iter_values(range.clone().map(|i| i as i64)));
    let name = text_columns(&range.clone().map(|i| Some(format!("{i}.wav"))).collect::<Vec<_>>()).remove(1);
    let fields =
        vec![Field::new("name", name.data_type().clone(), true), Field::new("at", DataType::Int64, true)];
    let valid = Int64Array::from_iter(range.clone().map(|i| (i % 4 != 1).then_some(0)));
    batch([
        ("audio", byte_columns(&range.map(|i| Some(vec![i as u8; 9 * i + 1])).collect::<Vec<_>>()).remove(3)),
        ("several", Arc::new(several.finish())),
        ("numbers", Arc::new(LargeListArray::from_iter_primitive::<Int32Type, _, _>(numbers))),
        ("fixed", Arc::new(FixedSizeListArray::from_iter_primitive::<Float64Type, _, _>(fixed, 3))),
        ("meta", Arc::new(StructArray::new(fields.into(), vec![name, at], valid.nulls().cloned()))),
    ])
}

fn open_columns(path: &Path) -> Result<Arc<ArrowSource>> {
    let columns = NESTED.map(ToOwned::to_owned).to_vec();
    let options = SourceOptions { threads: 1, columns, ..SourceOptions::default() };
    ArrowSource::open(&[path.into()], &options).map(Arc::new)
}

fn nested() -> [arrow_array::RecordBatch; 3] {
    [0..6, 6..13, 14..30].map(nested_batch)
}

#[test]
fn lists_and_structs() {
    let bases: Vec<_> =
        formats().into_iter().map(|format| written(|path| write(path, format, &nested()))).collect();
    mutants("lists_and_structs", &bases, open_columns);
}

#[test]
fn parquet_lists_and_structs() {
    let bases: Vec<_> = parquet_properties()
        .iter()
        .map(|properties| written(|path| write_parquet(path, properties, &nested())))
        .collect();
    mutants("parquet_lists_and_structs", &bases, |path| {
        let columns = NESTED.map(ToOwned::to_owned).to_vec();
        let options = SourceOptions { threads: 1, columns, ..SourceOptions::default() };
        ParquetSource::open(&[path.into()], &options).map(Arc::new)
    });
}

/// Offsets of lists that decrease, are negative, or lie beyond the items make bad records; the rows beside
/// them are as they were.
#[test]
fn lists_beyond_their_items() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.arrow");
    let lists = [2, 3, 0, 4, 1, 5].map(|n| Some((0..n).map(Some)));
    let several = ListArray::from_iter_primitive::<Int32Type, _, _>(lists);
    let offsets = |offsets: [i32; 7]| offsets.map(i32::to_le_bytes).concat();
    for format in formats().into_iter().filter(|format| format.compression.is_none()) {
        let column: ArrayRef = Arc::new(several.clone());
        let audio = byte_columns(&vec![Some(vec![1; 9]); 6]).remove(3);
        let shard = written(|path| write(path, format, &[batch([("audio", audio), ("several", column)])]));
        let usual = offsets([0, 2, 5, 5, 9, 10, 15]);
        let at = shard.windows(usual.len()).position(|window| *window == usual).unwrap();
        for (wrong, bad) in [
            ([0, 2, 1, 5, 9, 10, 15], &[1][..]),
            ([0, 2, 5, 5, 1 << 20, 10, 15], &[3, 4]),
            ([0, 2, 5, 5, i32::MAX, i32::MAX, 15], &[3, 4, 5]),
            ([0, 2, -1, -1, 9, 10, 15], &[1, 2, 3]),
            ([0, 2, 5, 5, 9, 10, i32::MIN], &[5]),
            ([15, 15, 15, 15, 15, 15, 16], &[5]),
        ] {
            let mut shard = shard.clone();
            shard[at..at + usual.len()].copy_from_slice(&offsets(wrong));
            fs::write(&path, shard).unwrap();
            let options = SourceOptions { columns: vec!["several".into()], ..SourceOptions::default() };
            let source = ArrowSource::open(std::slice::from_ref(&path), &options).map(Arc::new);
            let mut reader = source.unwrap().reader();
            for row in 0..6 {
                let read = reader.read(row, 1, &WholeRecord::ONCE);
                match bad.contains(&row) {
                    true => assert_eq!(read.unwrap_err().kind, ErrorKind::Corrupt, "{wrong:?} row {row}"),
                    false => assert_eq!(read.unwrap().payload.bytes.len(), 9, "{wrong:?} row {row}"),
                }
            }
        }
    }
}

/// 60 texts, some null, some long, some equal.
fn texts() -> ArrayRef {
    let text = |i: usize| (i % 7 != 3).then(|| format!("text {i} ").repeat([1, 3, 40][i % 3]));
    Arc::new(StringArray::from_iter((0..60).map(text)))
}

#[test]
fn parquet_codecs() {
    let bases: Vec<_> = parquet_properties()
        .iter()
        .map(|properties| written(|path| write_parquet(path, properties, &[batch([("text", texts())])])))
        .collect();
    mutants("parquet_codecs", &bases, |path| open_parquet(path, 1 << 30));
}

#[test]
fn parquet_encodings() {
    let encodings = [Encoding::DELTA_BYTE_ARRAY, Encoding::DELTA_LENGTH_BYTE_ARRAY, Encoding::PLAIN];
    let bases: Vec<_> = encodings
        .map(|encoding| {
            let properties = WriterProperties::builder()
                .set_dictionary_enabled(false)
                .set_column_encoding("text".into(), encoding);
            written(|path| write_parquet(path, &properties.build(), &[batch([("text", texts())])]))
        })
        .into();
    mutants("parquet_encodings", &bases, |path| open_parquet(path, 1 << 30));
}

/// 48 MiB of zeros, which compress to some kilobytes.
fn zeros() -> ArrayRef {
    Arc::new(BinaryArray::from_vec(vec![&vec![0u8; 48 << 20]]))
}

fn first_row<S: PayloadSource>(what: &str, open: impl FnOnce() -> Result<Arc<S>>) -> (Result<usize>, usize) {
    let (read, cost) =
        metered(what, || open().and_then(|source| source.reader().read(0, 9, &WholeRecord::ONCE)));
    (read.map(|record| record.payload.bytes.len()), cost.peak)
}

#[test]
fn compressed_bodies_that_expand() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bomb");
    for format in formats().into_iter().filter(|format| format.compression.is_some()) {
        write(&path, format, &[batch([("audio", zeros())])]);
        let (read, peak) = first_row("a bomb", || open_arrow(&path, 1 << 20));
        let error = read.unwrap_err();
        assert_eq!(error.kind, ErrorKind::TooLarge, "{error}");
        assert!(error.message.contains("max_record_bytes=1048576"), "{error}");
        assert!(peak < 4 << 20, "{peak} bytes");
        assert_eq!(first_row("as allowed", || open_arrow(&path, 1 << 30)).0.unwrap(), 48 << 20);
    }
    for codec in [
        Compression::ZSTD(Default::default()),
        Compression::GZIP(Default::default()),
        Compression::BROTLI(Default::default()),
    ] {
        let properties =
            WriterProperties::builder().set_compression(codec).set_dictionary_enabled(false).build();
        write_parquet(&path, &properties, &[batch([("text", zeros())])]);
        let (read, peak) = first_row("a bomb", || open_parquet(&path, 1 << 20));
        let error = read.unwrap_err();
        assert_eq!(error.kind, ErrorKind::TooLarge, "{codec}: {error}");
        assert!(peak < 8 << 20, "{codec}: {peak} bytes");
        assert_eq!(first_row("as allowed", || open_parquet(&path, 1 << 30)).0.unwrap(), 48 << 20);
    }
}

/// Rows much larger than the footer claims are not decoded together, and none of them is lost.
#[test]
fn rows_that_expand_together() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("expands.parquet");
    let delta = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_column_encoding("text".into(), Encoding::DELTA_BYTE_ARRAY);
    // Each text equals the one before, so its 256 KiB are stored in some bytes: 512 MiB in a page of 256 KiB.
    let alike: ArrayRef = Arc::new(StringArray::from_iter_values((0..64).map(|_| "x".repeat(256 << 10))));
    let batches: Vec<_> = (0..32).map(|_| batch([("text", alike.clone())])).collect();
    write_parquet(&path, &delta.build(), &batches);
    assert!(fs::metadata(&path).unwrap().len() < 1 << 20);
    expand_together(&path, 2048, |_| 256 << 10);

    // Of 40 000 rows the last 200 have 1 MiB, 8 to a page: 200 rows of the average make a batch.
    let large = |row: u64| row >= 39_800;
    let text = |row: u64| if large(row) { "y".repeat(1 << 20) } else { "z".into() };
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values((0..40_000).map(text)));
    let plain = WriterProperties::builder()
        .set_compression(Compression::ZSTD(Default::default()))
        .set_write_batch_size(8)
        .set_data_page_row_count_limit(8)
        .set_dictionary_enabled(false);
    write_parquet(&path, &plain.build(), &[batch([("text", texts)])]);
    expand_together(&path, 40_000, |row| if large(row) { 1 << 20 } else { 1 });
}

/// Reads the first rows and the last, alone and in order.
fn expand_together(path: &Path, n: u64, expected: impl Fn(u64) -> usize) {
    let source = open_parquet(path, 16 << 20).unwrap();
    for run in [1, u64::MAX] {
        let mut reader = source.reader();
        for row in (0..20).chain(n - 20..n) {
            let (record, cost) = metered("rows together", || reader.read(row, run, &WholeRecord::ONCE));
            assert_eq!(record.unwrap().payload.bytes.len(), expected(row), "row {row}");
            assert!(cost.peak < 96 << 20, "{} bytes for row {row}", cost.peak);
        }
    }
}

/// Records beyond `max_record_bytes` are not read.
#[test]
fn records_larger_than_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.arrow");
    let linked: PathBuf = folder.path().join("linked.wav");
    fs::write(&linked, vec![1; 24 << 20]).unwrap();
    let bytes = [Some(vec![7; 1000]), Some(vec![8; 24 << 20]), Some(vec![9; 1000]), None].to_vec();
    let paths = text_columns(&[None, None, None, Some("linked.wav".into())]).remove(0);
    // Dictionaries hold each value once, and no nulls.
    let columns = byte_columns(&bytes).into_iter();
    for column in columns.filter(|column| !matches!(column.data_type(), DataType::Dictionary(..))) {
        write(
            &path,
            Format::default(),
            &[batch([("audio", source_common::audio_struct(column.clone(), paths.clone()))])],
        );
        let source = open_arrow(&path, 1 << 20).unwrap();
        for run in [1, 4] {
            let (found, cost) = metered("large", || {
                let mut reader = source.reader();
                [0, 1, 2, 3].map(|row| {
                    reader
                        .read(row, run, &WholeRecord::ONCE)
                        .map(|record| record.payload.bytes.len())
                        .map_err(|error| error.kind)
                })
            });
            let too_large = Err(ErrorKind::TooLarge);
            assert_eq!(found, [Ok(1000), too_large, Ok(1000), too_large], "{}", column.data_type());
            assert!(cost.peak < 9 << 20, "{} bytes for {}", cost.peak, column.data_type());
        }
    }
}

/// A Parquet file of a footer only.
fn footer_alone(footer: &[u8]) -> Vec<u8> {
    [b"PAR1", footer, &(footer.len() as u32).to_le_bytes(), b"PAR1"].concat()
}

/// Version 1; a list of columns, in the form that the next byte gives.
const COLUMNS: [u8; 3] = [0x15, 2, 0x19];

/// For a footer with many row groups a loader keeps little memory, once for all threads that read the file.
#[test]
fn footers_of_many_row_groups() {
    const GROUPS: u64 = 100_000;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    let varint = |n: u64| -> Vec<u8> {
        let bytes = (0..10).map(|at| (n >> (7 * at)) as u8 | 0x80).take(1 + n.max(1).ilog2() as usize / 7);
        let mut bytes: Vec<u8> = bytes.collect();
        *bytes.last_mut().unwrap() &= 0x7f;
        bytes
    };
    // A page of one text; a row group of that page; the schema.
    let page = [&[0x15, 0, 0x15, 18, 0x15, 18, 0x2c, 0x15, 2, 0x15, 0, 0x15, 6, 0x15, 6, 0, 0][..]]
        .concat()
        .into_iter()
        .chain(5u32.to_le_bytes())
        .chain(*b"hello")
        .collect::<Vec<u8>>();
    let size = varint(2 * page.len() as u64);
    let column = [
        &[0x26, 8, 0x1c, 0x15, 12, 0x19, 0x15, 0, 0x19, 0x18, 4][..],
        b"text",
        &[0x15, 0, 0x16, 2, 0x16],
        &size,
        &[0x16],
        &size,
        &[0x26, 8, 0, 0],
    ]
    .concat();
    let group = [&[0x19, 0x1c][..], &column, &[0x16], &size, &[0x16, 2, 0]].concat();
    let schema = [&[0x48, 1, b's', 0x15, 2, 0, 0x15, 12, 0x25, 0, 0x18, 4][..], b"text", &[0]].concat();
    let groups = [&[0x19, 0xfc][..], &varint(GROUPS), &group.repeat(GROUPS as usize)].concat();
    let footer = [&COLUMNS[..], &[0x2c], &schema, &[0x16], &varint(2 * GROUPS), &groups, &[0]].concat();
    let file = [b"PAR1", &page[..], &footer, &(footer.len() as u32).to_le_bytes(), b"PAR1"].concat();
    fs::write(&path, file).unwrap();
    let before = held();
    let source = open_parquet(&path, 1 << 30).unwrap();
    assert_eq!(source.n_rows(), GROUPS);
    let kept = (held() - before) as u64;
    assert!(kept < 200 * GROUPS, "{kept} bytes are kept of {GROUPS} row groups");
    for run in [1, GROUPS] {
        let mut reader = source.reader();
        for row in [0, GROUPS / 2, GROUPS - 1] {
            let (record, cost) = metered("one of many groups", || reader.read(row, run, &WholeRecord::ONCE));
            assert_eq!(record.unwrap().payload.bytes, "hello");
            assert!(cost.peak < 1 << 20, "{} bytes for a row", cost.peak);
        }
    }
}

/// Footers whose parsing would exhaust the stack, the memory or the time.
#[test]
fn footers_that_lie() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    // A group "g" of one column; the same of 2^30; a column "text" of byte arrays.
    let (group, crowd) =
        ([0x35, 0, 0x18, 1, b'g', 0x15, 2, 0], [0x35, 0, 0x18, 1, b'g', 0x15, 0x80, 0x80, 0x80, 0x80, 8, 0]);
    let text = [&[0x15, 12, 0x25, 0, 0x18, 4][..], b"text", &[0]].concat();
    // 2001 columns; no rows; no row groups.
    let nested =
        [&COLUMNS[..], &[0xfc, 0xd1, 0x0f], &group.repeat(2000), &text, &[0x16, 0, 0x19, 0x0c, 0]].concat();
    let many = [&COLUMNS[..], &[0x2c], &crowd, &text, &[0x16, 0, 0x19, 0x0c, 0]].concat();
    // After a valid footer, an unknown field 11: 100 lists of 2^31 - 1 booleans, which take no bytes.
    let endless = [0xf2, 0xff, 0xff, 0xff, 0xff, 7].repeat(100);
    let endless =
        [&COLUMNS[..], &[0x2c], &group, &text, &[0x16, 0, 0x19, 0x0c, 0x79, 0xf9, 100], &endless, &[0]]
            .concat();
    // Half a million row groups in as many bytes.
    let groups =
        [&COLUMNS[..], &[0x2c], &group, &text, &[0x16, 0, 0x19, 0xfc, 0x80, 0x80, 0x20], &vec![0; 1 << 20]]
            .concat();
    let watchdog = Watchdog::new();
    for (what, footer) in [("nested", nested), ("many", many), ("endless", endless), ("groups", groups)] {
        fs::write(&path, footer_alone(&footer)).unwrap();
        watchdog.begins(what);
        let (opened, cost) = metered(what, || open_parquet(&path, 1 << 30).map(drop));
        let error = opened.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Format, "{what}: {error}");
        assert!(error.message.contains("the footer cannot be read"), "{what}: {error}");
        assert!(cost.peak < 8 << 20, "{what}: {} bytes", cost.peak);
    }
    let sound = [&COLUMNS[..], &[0x2c], &group, &text, &[0x16, 0, 0x19, 0x0c, 0]].concat();
    fs::write(&path, footer_alone(&sound)).unwrap();
    assert_eq!(open_parquet(&path, 1 << 30).unwrap().n_rows(), 0);
    // The deepest nesting allowed, on a thread of the index with the usual stack; there is no column "text"
    // at the top.
    let deepest = [&COLUMNS[..], &[0xfc, 65], &group.repeat(64), &text, &[0x16, 0, 0x19, 0x0c, 0]].concat();
    for name in ["a.parquet", "b.parquet"] {
        fs::write(folder.path().join(name), footer_alone(&deepest)).unwrap();
    }
    let paths = ["a.parquet", "b.parquet"].map(|name| folder.path().join(name));
    let options = SourceOptions { threads: 2, ..SourceOptions::text("text") };
    let error = ParquetSource::open(&paths, &options).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Schema, "{error}");
}

/// Reads some batches of a file as `cache.build` does.
fn build_reads(path: &Path) -> std::result::Result<u64, ErrorKind> {
    let policy = forebay::engine::Policy { skip_bad: true, ..Default::default() };
    let limits = Limits { max_record_bytes: 1 << 20, ..Limits::default() };
    let files = Files::new(vec![path.to_path_buf()], Projection::All, limits).map_err(|error| error.kind)?;
    let mut reader = files.open(0, 0, 128).map_err(|error| error.kind)?;
    let mut rows = 0;
    for _ in 0..20 {
        let Some(piece) = reader.next(&mut Skips::new(&policy, rows)).map_err(|error| error.kind)? else {
            break;
        };
        rows += piece.rows;
    }
    Ok(rows)
}

/// Damaged tables and lines, read as by `cache.build`: the same limits of records hold.
#[test]
fn inputs_of_caches() {
    let folder = tempfile::tempdir().unwrap();
    let arrow: Vec<_> = formats()
        .into_iter()
        .map(|format| written(|path| write(path, format, &[batch([("text", texts())])])))
        .collect();
    let parquet: Vec<_> = parquet_properties()
        .iter()
        .map(|properties| written(|path| write_parquet(path, properties, &[batch([("text", texts())])])))
        .collect();
    let line = |i: usize| format!("{{\"text\": \"line {i}\", \"n\": [{i}, {{\"a\": null}}]}}\n");
    let lines: String = (0..200).map(line).collect();
    let zst = zstd::encode_all(lines.as_bytes(), 1).unwrap();
    let watchdog = Watchdog::new();
    for (ending, bases) in [
        ("arrow", arrow),
        ("parquet", parquet),
        ("jsonl", vec![lines.into_bytes()]),
        ("jsonl.zst", vec![zst]),
    ] {
        let path = folder.path().join(format!("a.{ending}"));
        let mut tally = Tally::default();
        for trial in 0..trials() {
            let mut rng = Rng(trial << 8 | ending.len() as u64);
            let base = rng.below(bases.len());
            fs::write(&path, mutate(&mut rng, &bases[base], &bases)).unwrap();
            let what = format!("trial {trial} of {ending} (base {base})");
            watchdog.begins(&what);
            let (outcome, cost) =
                metered(&what, || build_reads(&path).map_or_else(ErrorKind::name, |_| "ok"));
            tally.count(&what, outcome, cost, MOST_BYTES);
        }
        println!("{ending}: {tally}; panics of libraries: {:?}", panics());
        // A bad line is left out, and the others are read.
        assert!(ending == "jsonl" || tally.n_good() < tally.trials(), "{ending}: {tally}");
        assert!(tally.n_good() > 0, "{ending}: {tally}");
    }
    let ours: Vec<_> = panics().into_keys().filter(|place| place.starts_with("src/")).collect();
    assert!(ours.is_empty(), "panics in {ours:?}");
}

/// A compressed buffer that claims 4 TB in a stream of some hundred bytes, and bodies that do expand.
#[test]
fn compressed_inputs_of_caches() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.arrow");
    for format in formats().into_iter().filter(|format| format.compression.is_some()) {
        let text: ArrayRef = Arc::new(StringArray::from_iter_values(["x".repeat(5000)]));
        write(&path, format, &[batch([("text", text)])]);
        assert_eq!(build_reads(&path), Ok(1));
        let mut bytes = fs::read(&path).unwrap();
        // The last occurrence: offsets end with the same number.
        let at = bytes.windows(8).rposition(|word| word == 5000i64.to_le_bytes()).unwrap();
        bytes[at..at + 8].copy_from_slice(&(4i64 << 40).to_le_bytes());
        fs::write(&path, bytes).unwrap();
        let (found, cost) = metered("a length", || build_reads(&path));
        assert_eq!(found, Err(ErrorKind::TooLarge));
        assert!(cost.peak < 8 << 20, "{} bytes", cost.peak);
        write(&path, format, &[batch([("audio", zeros())])]);
        let (found, cost) = metered("a bomb", || build_reads(&path));
        assert_eq!(found, Err(ErrorKind::TooLarge));
        assert!(cost.peak < 8 << 20, "{} bytes", cost.peak);
    }
    // Values without bytes are accepted up to a limit.
    for (n, found) in [(1usize << 16, Ok(128 * 20)), ((1 << 16) + 1, Err(ErrorKind::Corrupt))] {
        let nulls: ArrayRef = Arc::new(arrow_array::NullArray::new(n));
        write(&path, Format::default(), &[batch([("nothing", nulls)])]);
        assert_eq!(build_reads(&path), found);
    }
    let parquet = folder.path().join("a.parquet");
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(Default::default()))
        .set_dictionary_enabled(false)
        .build();
    write_parquet(&parquet, &properties, &[batch([("text", zeros())])]);
    let (found, cost) = metered("a page", || build_reads(&parquet));
    assert_eq!(found, Err(ErrorKind::TooLarge));
    assert!(cost.peak < 8 << 20, "{} bytes", cost.peak);
}

/// Lines without an end, and lines whose values would take too much memory: each is left out alone.
#[test]
fn endless_lines() {
    let folder = tempfile::tempdir().unwrap();
    let long = [b"\"", vec![b'x'; 48 << 20].as_slice(), b"\"\n7\n"].concat();
    let objects = [b"[", "{\"\":0},".repeat(140_000).as_bytes(), b"0]\n7\n"].concat();
    let blank = [vec![b'\n'; 8 << 20].as_slice(), b"7\n7\n"].concat();
    for (name, text) in [("long", long), ("objects", objects), ("blank", blank)] {
        let path = folder.path().join(format!("{name}.jsonl.zst"));
        fs::write(&path, zstd::encode_all(&text[..], 1).unwrap()).unwrap();
        let (found, cost) = metered(name, || build_reads(&path));
        assert_eq!(found, Ok(2), "{name}");
        assert!(cost.peak < 16 << 20, "{name}: {} bytes", cost.peak);
    }
}

/// For any number of recordings in a batch, the number held at a time is limited by their bytes and the size
/// of their features.
#[test]
fn recordings_of_a_batch_come_in_pieces() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.arrow");
    // Silence of 8 bits at 8 kHz.
    let wav = |n: u32| {
        let mut bytes = [b"RIFF", &(36 + n).to_le_bytes()[..], b"WAVEfmt \x10\0\0\0\x01\0\x01\0"].concat();
        bytes.extend([8000u32.to_le_bytes(), 8000u32.to_le_bytes()].concat());
        bytes.extend([b"\x01\0\x08\0data", &n.to_le_bytes()[..]].concat());
        bytes.resize(44 + n as usize, 128);
        bytes
    };
    for (n, second_bytes, pieces) in [
        (8 << 20, 0.0, vec![(8, false), (8, true), (4, true)]),
        (80_000, 1e6, vec![(7, false), (7, false), (2, true), (4, true)]),
        (80_000, 0.0, vec![(16, true), (4, true)]),
    ] {
        let bytes = wav(n);
        let bytes: ArrayRef = Arc::new(BinaryArray::from_iter_values((0..20).map(|_| &bytes)));
        let audio = source_common::audio_struct(bytes, text_columns(&vec![None; 20]).remove(0));
        write(&path, Format::default(), &[batch([("audio", audio)])]);
        let limits = Limits { second_bytes, ..Limits::default() };
        let files = Files::new(
            vec![path.clone()],
            Projection::Recordings { column: None, track: None, allow_paths: Default::default() },
            limits,
        )
        .unwrap();
        let mut reader = files.open(0, 0, 16).unwrap();
        let policy = forebay::engine::Policy::default();
        let (mut found, mut row) = (Vec::new(), 0);
        while let Some(piece) = reader.next(&mut Skips::new(&policy, row)).unwrap() {
            found.push((piece.rows, piece.ends_batch));
            row += piece.rows;
        }
        assert_eq!(found, pieces);
    }
}
