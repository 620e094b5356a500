//! Documents from Parquet on one thread, from a warm page cache: MB of text a second, by codec and way of
//! reading.
//!
//! `cargo bench --bench parquet [-- FOLDER]` prints tables in Markdown. The text is that of FOLDER's column
//! `text`, or words drawn by a fixed hash, rewritten in row groups of 1024 documents, as in web shards. The
//! `parquet` crate's own reader and the decompression alone are measured for comparison, interleaved. Figures
//! are medians of the rounds. A token is 4.3 bytes of English.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a bench fails by panicking, and prints")]

use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use arrow_array::{Array, ArrayRef, RecordBatch, StringArray};
use forebay::contract::ReadRecords;
use forebay::source::{
    OpenFiles, SourceOptions, WholeRecord,
    parquet::ParquetSource,
    paths::{self, Reads},
};
use forebay::storage::{LocalFiles, Storage};
use parquet::{
    arrow::{ArrowWriter, arrow_reader::ParquetRecordBatchReaderBuilder},
    basic::{Compression, ZstdLevel},
    file::{
        properties::WriterProperties,
        reader::{FileReader, SerializedFileReader},
    },
};

const ROUNDS: usize = 9;
const BYTES_PER_TOKEN: f64 = 4.3;

fn open(files: &[PathBuf]) -> Arc<ParquetSource> {
    Arc::new(ParquetSource::open(files, &SourceOptions::text("text")).unwrap())
}

/// The documents of a folder, or 32 MB of words with the lengths of web pages.
fn documents(folder: Option<&str>) -> Vec<String> {
    if let Some(folder) = folder {
        let local: Arc<dyn Storage> = Arc::new(LocalFiles);
        let source = open(&paths::expand(&[folder], Reads::Documents, &local).unwrap());
        let mut reader = source.reader();
        let n = source.n_rows();
        let texts = (0..n).filter_map(|row| reader.read(row, n - row, &WholeRecord::ONCE).ok());
        return texts.map(|record| String::from_utf8(record.payload.bytes.to_vec()).unwrap()).collect();
    }
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let word = |n: u64| format!("{:x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (40 - n % 24));
    (0..8000).map(|_| (0..200 + next() % 1000).map(|_| word(next() % 20_000) + " ").collect()).collect()
}

fn write(path: &Path, documents: &[String], compression: Compression) {
    let properties = WriterProperties::builder()
        .set_compression(compression)
        .set_dictionary_enabled(false)
        .set_max_row_group_row_count(Some(1024))
        .build();
    let text: ArrayRef = Arc::new(StringArray::from_iter_values(documents));
    let batch = RecordBatch::try_from_iter([("text", text)]).unwrap();
    let mut writer =
        ArrowWriter::try_new(File::create(path).unwrap(), batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

/// Our reader, row by row in order.
fn in_order(source: &Arc<ParquetSource>) -> usize {
    let (mut reader, n) = (source.reader(), source.n_rows());
    (0..n).map(|row| reader.read(row, n - row, &WholeRecord::ONCE).unwrap().payload.bytes.len()).sum()
}

/// The crate's own reader, a row group at a time.
fn by_batches(path: &Path) -> usize {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap();
    let batches = reader.with_batch_size(1024).build().unwrap();
    let len = |batch: RecordBatch| {
        let text = batch.column(0).as_any().downcast_ref::<StringArray>().unwrap();
        (0..text.len()).map(|row| text.value(row).len()).sum::<usize>()
    };
    batches.map(|batch| len(batch.unwrap())).sum()
}

/// Decompression of the pages without decoding.
fn pages_alone(path: &Path) -> usize {
    let file = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
    let pages = |group: usize| {
        let mut pages = file.get_row_group(group).unwrap().get_column_page_reader(0).unwrap();
        std::iter::from_fn(move || pages.get_next_page().unwrap())
            .map(|page| page.buffer().len())
            .sum::<usize>()
    };
    (0..file.num_row_groups()).map(pages).sum()
}

fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_unstable_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}

fn main() {
    let folder = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    let documents = documents(folder.as_deref());
    let n_bytes: usize = documents.iter().map(String::len).sum();
    let place = tempfile::tempdir().unwrap();
    println!(
        "{} documents, {:.1} MB of text, row groups of 1024, one thread\n",
        documents.len(),
        n_bytes as f64 / 1e6
    );
    println!(
        "| codec | file, MB | in order, MB/s | M tokens/s | the crate's reader, MB/s | pages alone, MB/s | first document, ms | one alone, ms |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|");
    let codecs = [
        ("none", Compression::UNCOMPRESSED),
        ("snappy", Compression::SNAPPY),
        ("lz4", Compression::LZ4_RAW),
        ("zstd 3", Compression::ZSTD(ZstdLevel::try_new(3).unwrap())),
        ("gzip", Compression::GZIP(Default::default())),
        ("brotli", Compression::BROTLI(Default::default())),
    ];
    for (name, codec) in codecs {
        let path = place.path().join("a.parquet");
        write(&path, &documents, codec);
        let source = open(std::slice::from_ref(&path));
        let mut seconds: [Vec<f64>; 5] = Default::default();
        for round in 0..ROUNDS {
            let mut time = |which: usize, work: &dyn Fn() -> usize| {
                let start = Instant::now();
                let n = work();
                seconds[which].push(start.elapsed().as_secs_f64());
                n
            };
            assert_eq!(time(0, &|| in_order(&source)), n_bytes);
            assert_eq!(time(1, &|| by_batches(&path)), n_bytes);
            time(2, &|| pages_alone(&path));
            time(3, &|| source.reader().read(0, 1 << 20, &WholeRecord::ONCE).unwrap().payload.bytes.len());
            let row = (round as u64 * 977) % source.n_rows();
            let mut reader = source.reader();
            reader.read(0, 1, &WholeRecord::ONCE).unwrap();
            let start = Instant::now();
            reader.read(row, 1, &WholeRecord::ONCE).unwrap();
            seconds[4].push(start.elapsed().as_secs_f64());
        }
        let [ours, theirs, pages, first, alone] = seconds.map(median);
        let mb = |seconds: f64| n_bytes as f64 / 1e6 / seconds;
        println!(
            "| {name} | {:.1} | {:.0} | {:.0} | {:.0} | {:.0} | {:.1} | {:.1} |",
            std::fs::metadata(&path).unwrap().len() as f64 / 1e6,
            mb(ours),
            mb(ours) / BYTES_PER_TOKEN,
            mb(theirs),
            mb(pages),
            first * 1e3,
            alone * 1e3,
        );
    }
}
