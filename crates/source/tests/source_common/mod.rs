//! Shared by the tests of sources: shards made by the writers of `arrow-ipc` and `parquet`, and `arrow-ipc`'s
//! readers as the oracle.

#![allow(dead_code, reason = "each test file uses a part")]

use std::{
    fs::File,
    io::{BufReader, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow_array::{
    Array, ArrayRef, BinaryArray, BinaryViewArray, BooleanArray, DictionaryArray, Int64Array,
    LargeBinaryArray, LargeStringArray, RecordBatch, StringArray, StringViewArray, StructArray, UInt64Array,
    cast::AsArray, types::*,
};
use arrow_ipc::{
    CompressionType,
    reader::{FileReader, StreamReader},
    writer::{FileWriter, IpcWriteOptions, StreamWriter},
};
use arrow_schema::{DataType, Field, Fields, Schema};
use forebay_base::{ErrorKind, Result};
use forebay_engine::contract::Source;
use forebay_source::parquet::ParquetSource;
use forebay_source::{ArrowSource, NO_LABEL, RawRecord, ReadRows, SourceOptions, WholeRecord, label_of};
use parquet::{
    arrow::ArrowWriter,
    basic::Compression,
    file::properties::{WriterProperties, WriterPropertiesBuilder, WriterVersion},
};

/// A row from the oracle: bytes, path, label.
pub type Row = (Option<Vec<u8>>, Option<String>, i64);

/// Opens with the default columns.
pub fn open(paths: &[PathBuf]) -> Result<Arc<ArrowSource>> {
    open_with(paths, &SourceOptions { threads: 2, ..SourceOptions::default() })
}

/// Opens with options.
pub fn open_with(paths: &[PathBuf], options: &SourceOptions) -> Result<Arc<ArrowSource>> {
    ArrowSource::open(paths, options).map(Arc::new)
}

/// The committed shards.
pub fn data(name: &str) -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    // Tests of the root package use this file, too.
    let root = package.ancestors().find(|folder| folder.join("tests/data").is_dir()).unwrap();
    root.join("tests/data/arrow").join(name)
}

/// All batches of a shard, by `arrow-ipc`; of a truncated stream, those before the cut.
pub fn batches(path: &Path) -> Vec<RecordBatch> {
    let mut file = File::open(path).unwrap();
    let mut magic = [0; 6];
    let _ = file.read(&mut magic).unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    if &magic == b"ARROW1" {
        FileReader::try_new(BufReader::new(file), None).unwrap().map(Result::unwrap).collect()
    } else {
        StreamReader::try_new(BufReader::new(file), None).unwrap().map_while(Result::ok).collect()
    }
}

/// The rows of a shard, by `arrow-ipc`.
pub fn oracle(path: &Path, audio: &str, label: Option<&str>) -> Vec<Row> {
    let mut rows = Vec::new();
    for batch in batches(path) {
        let audio = batch.column_by_name(audio).unwrap();
        let label = label.map(|name| batch.column_by_name(name).unwrap());
        for i in 0..batch.num_rows() {
            let (bytes, path) = match audio.data_type() {
                DataType::Struct(_) if audio.is_null(i) => (None, None),
                DataType::Struct(_) => {
                    let audio = audio.as_struct();
                    let field = |name| audio.column_by_name(name).and_then(|column| bytes_at(column, i));
                    (field("bytes"), field("path"))
                }
                data_type if is_text(data_type) => (None, bytes_at(audio, i)),
                _ => (bytes_at(audio, i), None),
            };
            let path = path.map(|path| String::from_utf8(path).unwrap()).filter(|path| !path.is_empty());
            rows.push((bytes, path, label.map_or(NO_LABEL, |label| int_at(label, i))));
        }
    }
    rows
}

fn is_text(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, values) => is_text(values),
        other => matches!(other, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View),
    }
}

fn bytes_at(array: &ArrayRef, i: usize) -> Option<Vec<u8>> {
    if array.is_null(i) {
        return None;
    }
    Some(match array.data_type() {
        DataType::Binary => array.as_binary::<i32>().value(i).to_vec(),
        DataType::LargeBinary => array.as_binary::<i64>().value(i).to_vec(),
        DataType::BinaryView => array.as_binary_view().value(i).to_vec(),
        DataType::Utf8 => array.as_string::<i32>().value(i).into(),
        DataType::LargeUtf8 => array.as_string::<i64>().value(i).into(),
        DataType::Utf8View => array.as_string_view().value(i).into(),
        DataType::Null => return None,
        DataType::Dictionary(_, _) => {
            let dictionary = array.as_any_dictionary();
            return bytes_at(dictionary.values(), dictionary.normalized_keys()[i]);
        }
        other => panic!("{other}"),
    })
}

fn int_at(array: &ArrayRef, i: usize) -> i64 {
    if array.is_null(i) {
        return NO_LABEL;
    }
    match array.data_type() {
        DataType::Null => NO_LABEL,
        DataType::Boolean => array.as_boolean().value(i).into(),
        DataType::Int8 => array.as_primitive::<Int8Type>().value(i).into(),
        DataType::Int16 => array.as_primitive::<Int16Type>().value(i).into(),
        DataType::Int32 => array.as_primitive::<Int32Type>().value(i).into(),
        DataType::Int64 => array.as_primitive::<Int64Type>().value(i),
        DataType::UInt8 => array.as_primitive::<UInt8Type>().value(i).into(),
        DataType::UInt16 => array.as_primitive::<UInt16Type>().value(i).into(),
        DataType::UInt32 => array.as_primitive::<UInt32Type>().value(i).into(),
        DataType::UInt64 => array.as_primitive::<UInt64Type>().value(i).try_into().unwrap(),
        DataType::Dictionary(_, _) => {
            let dictionary = array.as_any_dictionary();
            int_at(dictionary.values(), dictionary.normalized_keys()[i])
        }
        other => panic!("{other}"),
    }
}

/// Checks that a row equals the oracle's.
pub fn check(row: &Row, read: Result<RawRecord>, at: u64) {
    match (row, read) {
        ((Some(bytes), _, label), Ok(record)) if !bytes.is_empty() => {
            assert!(record.payload.bytes == bytes, "bytes of row {at}");
            assert_eq!(label_of(&record.values), *label, "label of row {at}");
        }
        ((Some(bytes), ..), Err(error)) if bytes.is_empty() => {
            assert_eq!(error.kind, ErrorKind::Empty, "row {at}")
        }
        ((None, path, _), Err(error)) => {
            let expected = if path.is_none() { ErrorKind::Null } else { ErrorKind::Unreadable };
            assert_eq!(error.kind, expected, "row {at}");
        }
        (row, read) => panic!("row {at}: expected {row:?}, read {read:?}"),
    }
}

/// Reads whole records.
pub trait ReadWhole: ReadRows {
    fn row(&mut self, row: u64, run: u64) -> Result<RawRecord> {
        self.read_row(row, run, &WholeRecord::ONCE)
    }
}

impl<R: ReadRows> ReadWhole for R {}

/// Reads all of `source` in order, backwards, alone and in runs, and compares with the oracle.
pub fn check_all<S: Source<Reader: ReadRows>>(source: &Arc<S>, rows: &[Row]) {
    let n: u64 = source.shard_rows(0).unwrap().iter().sum();
    assert_eq!(n, rows.len() as u64);
    for run in [1, 3, 1000] {
        let mut reader = source.reader();
        for (at, row) in (0..).zip(rows) {
            check(row, reader.row(at, run), at);
            assert_eq!(reader.path(at).unwrap(), row.1, "path of row {at}");
        }
        for at in (0..n).rev() {
            check(&rows[at as usize], reader.row(at, run), at);
        }
        for k in 0..n {
            let at = k.wrapping_mul(0x9e37_79b9_7f4a_7c15) % n;
            check(&rows[at as usize], reader.row(at, if k % 2 == 0 { 1 } else { run }), at);
        }
    }
}

/// Opens with the default columns.
pub fn open_parquet(paths: &[PathBuf]) -> Result<Arc<ParquetSource>> {
    let options = SourceOptions { threads: 2, ..SourceOptions::default() };
    ParquetSource::open(paths, &options).map(Arc::new)
}

/// Opens documents in the column `text`.
pub fn open_text(paths: &[PathBuf]) -> Result<Arc<ParquetSource>> {
    ParquetSource::open(paths, &SourceOptions::text("text")).map(Arc::new)
}

/// Ways to write Parquet: every codec, both versions of pages, with and without dictionaries, pages of many
/// and of few rows.
pub fn parquet_properties() -> Vec<WriterProperties> {
    let codecs = [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(Default::default()),
        Compression::BROTLI(Default::default()),
        Compression::LZ4,
        Compression::LZ4_RAW,
        Compression::ZSTD(Default::default()),
    ];
    let styles: [fn(WriterPropertiesBuilder) -> WriterPropertiesBuilder; 3] = [
        |builder| builder.set_max_row_group_row_count(Some(100)),
        |builder| {
            builder.set_dictionary_enabled(false).set_data_page_row_count_limit(7).set_write_batch_size(7)
        },
        |builder| builder.set_writer_version(WriterVersion::PARQUET_2_0).set_data_page_size_limit(50_000),
    ];
    let each = codecs.into_iter().flat_map(|codec| styles.map(|style| (codec, style)));
    each.map(|(codec, style)| style(WriterProperties::builder().set_compression(codec)).build()).collect()
}

/// Writes a Parquet file.
pub fn write_parquet(path: &Path, properties: &WriterProperties, batches: &[RecordBatch]) {
    let file = File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batches[0].schema(), Some(properties.clone())).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.close().unwrap();
}

/// Recordings of many lengths with different contents: row `i` of `n`.
pub fn recording(i: usize) -> Vec<u8> {
    let len = [1, 5, 12, 13, 100, 3000, 70_000][i % 7] + i % 5;
    (0..len).map(|k| (k as u64).wrapping_mul(i as u64 * 2 + 1).to_le_bytes()[1] ^ k as u8).collect()
}

/// An audio struct of these bytes and paths.
pub fn audio_struct(bytes: ArrayRef, path: ArrayRef) -> ArrayRef {
    let fields = Fields::from(vec![
        Field::new("bytes", bytes.data_type().clone(), true),
        Field::new("path", path.data_type().clone(), true),
    ]);
    Arc::new(StructArray::new(fields, vec![bytes, path], None))
}

/// A batch with the columns `audio` (as `datasets` lays it out), `text` and `label`; some rows are null or
/// empty.
pub fn usual_batch(range: std::ops::Range<usize>) -> RecordBatch {
    let bytes: Vec<_> = range
        .clone()
        .map(|i| if i % 11 == 3 { None } else { Some(if i % 13 == 5 { Vec::new() } else { recording(i) }) })
        .collect();
    let bytes: ArrayRef = Arc::new(BinaryArray::from_iter(bytes));
    let path: ArrayRef = Arc::new(StringArray::from_iter(
        range.clone().map(|i| (i % 3 > 0).then(|| format!("clips/no-{i}.wav"))),
    ));
    let text: ArrayRef = Arc::new(StringArray::from_iter_values(range.clone().map(|i| "x".repeat(i % 40))));
    let label: ArrayRef = Arc::new(Int64Array::from_iter(range.map(|i| (i % 9 != 4).then_some(i as i64))));
    batch([("text", text), ("audio", audio_struct(bytes, path)), ("label", label)])
}

/// A batch of nullable columns.
pub fn batch<const N: usize>(columns: [(&str, ArrayRef); N]) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, array)| (name, array, true))).unwrap()
}

/// The format of a shard to write.
#[derive(Debug, Clone, Copy, Default)]
pub struct Format {
    pub is_file: bool,
    pub compression: Option<CompressionType>,
}

/// All formats.
pub fn formats() -> Vec<Format> {
    let compressions = [None, Some(CompressionType::LZ4_FRAME), Some(CompressionType::ZSTD)];
    compressions
        .into_iter()
        .flat_map(|compression| [false, true].map(|is_file| Format { is_file, compression }))
        .collect()
}

/// Writes a shard.
pub fn write(path: &Path, format: Format, batches: &[RecordBatch]) {
    write_with(path, format, batches[0].schema().as_ref(), batches);
}

/// Writes a shard with a given schema, for its metadata.
pub fn write_with(path: &Path, format: Format, schema: &Schema, batches: &[RecordBatch]) {
    let options = IpcWriteOptions::default().try_with_compression(format.compression).unwrap();
    let file = File::create(path).unwrap();
    if format.is_file {
        let mut writer = FileWriter::try_new_with_options(file, schema, options).unwrap();
        batches.iter().for_each(|batch| writer.write(batch).unwrap());
        writer.finish().unwrap();
    } else {
        let mut writer = StreamWriter::try_new_with_options(file, schema, options).unwrap();
        batches.iter().for_each(|batch| writer.write(batch).unwrap());
        writer.finish().unwrap();
    }
}

/// The same column of bytes in every type that can hold it.
pub fn byte_columns(values: &[Option<Vec<u8>>]) -> Vec<ArrayRef> {
    let slices = || values.iter().map(|value| value.as_deref());
    let binary = BinaryArray::from_iter(slices());
    let keys =
        arrow_array::UInt16Array::from_iter((0..values.len()).map(|i| (i % 5 != 1).then_some(i as u16)));
    vec![
        Arc::new(LargeBinaryArray::from_iter(slices())),
        Arc::new(BinaryViewArray::from_iter(slices())),
        Arc::new(DictionaryArray::new(keys, Arc::new(binary.clone()))),
        Arc::new(binary),
    ]
}

/// The same column of text in every type that can hold it.
pub fn text_columns(values: &[Option<String>]) -> Vec<ArrayRef> {
    let slices = || values.iter().map(|value| value.as_deref());
    vec![
        Arc::new(StringArray::from_iter(slices())),
        Arc::new(LargeStringArray::from_iter(slices())),
        Arc::new(StringViewArray::from_iter(slices())),
        Arc::new(slices().collect::<DictionaryArray<Int32Type>>()),
    ]
}

/// Labels 0, 1, 2, null, ... in every type that can hold them.
pub fn label_columns(n: usize) -> Vec<ArrayRef> {
    fn ints<T: ArrowPrimitiveType>(n: usize) -> ArrayRef
    where
        T::Native: TryFrom<usize, Error: std::fmt::Debug>,
    {
        let value = |i: usize| (i % 4 != 3).then(|| T::Native::try_from(i % 100).unwrap());
        Arc::new(arrow_array::PrimitiveArray::<T>::from_iter((0..n).map(value)))
    }
    let keys = arrow_array::Int8Array::from_iter((0..n).map(|i| (i % 4 != 3).then_some((i % 3) as i8)));
    let values = Arc::new(UInt64Array::from(vec![7, 8, i64::MAX as u64]));
    vec![
        ints::<Int8Type>(n),
        ints::<Int16Type>(n),
        ints::<Int32Type>(n),
        ints::<Int64Type>(n),
        ints::<UInt8Type>(n),
        ints::<UInt16Type>(n),
        ints::<UInt32Type>(n),
        ints::<UInt64Type>(n),
        Arc::new(BooleanArray::from_iter((0..n).map(|i| (i % 4 != 3).then_some(i % 2 == 0)))),
        Arc::new(arrow_array::NullArray::new(n)),
        Arc::new(DictionaryArray::new(keys, values)),
    ]
}
