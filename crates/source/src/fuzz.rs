//! Fuzz targets: the readers of files of records as functions of bytes. See `fuzz/README.md`. Built for tests
//! and with `--cfg fuzzing` only.

use std::{path::PathBuf, sync::Arc};

use crate::{
    ArrowSource, DocumentSource, OpenFiles, PayloadSource, Recordings, SourceOptions, Storage, TextContent,
    WholeRecord,
    contract::ReadRecords,
    in_memory::InMemory,
    parquet::{ParquetSource, pages as page_headers},
};

/// A parser, called with any bytes.
pub type Target = fn(&[u8]);

/// The targets by name. A target returns for any bytes; if there are two ways to the same result, it compares
/// them.
pub const TARGETS: [(&str, Target); 6] = [
    ("arrow", arrow),
    ("parquet", parquet_file),
    ("table", table),
    ("tar", tar),
    ("pages", pages),
    ("documents", documents),
];

fn in_memory(bytes: &[u8]) -> Arc<dyn Storage> {
    Arc::new(InMemory::new(bytes))
}

/// The limit of a record in the targets, small enough that code which ignores it shows in memory use.
const MAX_RECORD_BYTES: u64 = 1 << 20;

/// Parses an Arrow shard and reads its rows, alone and in order.
fn arrow(bytes: &[u8]) {
    let (storage, paths) = (in_memory(bytes), [PathBuf::from("a")]);
    let options =
        SourceOptions { threads: 1, max_record_bytes: MAX_RECORD_BYTES, ..SourceOptions::default() };
    if let Ok(source) = ArrowSource::open_in(storage, &paths, &options) {
        read_rows(&Arc::new(source), MAX_RECORD_BYTES);
    }
}

/// Parses a table that names recordings, as each format of text, and compressed: the result is the same.
fn table(bytes: &[u8]) {
    let options = SourceOptions {
        threads: 1,
        max_record_bytes: MAX_RECORD_BYTES,
        paths: true,
        ..SourceOptions::default()
    };
    let opened = |bytes: &[u8], name: String| {
        Recordings::open_in(in_memory(bytes), &[[PathBuf::from(name)]], &options)
    };
    let packed = zstd::encode_all(bytes, 1).unwrap_or_default();
    for name in ["a.csv", "a.tsv", "a.txt", "a.jsonl"] {
        match (opened(bytes, name.to_owned()), opened(&packed, format!("{name}.zst"))) {
            (Ok(source), Ok(packed)) => {
                assert_eq!(source.fingerprint(), packed.fingerprint());
                assert!(source.n_rows() <= bytes.len() as u64);
                read_named(&Arc::new(source), bytes);
            }
            (Err(one), Err(other)) => assert_eq!(one.reason(), other.reason()),
            (one, other) => panic!("{name}: {:?}, {:?}", one.err(), other.err()),
        }
    }
    kaldi(bytes, options);
}

/// Parses the same as each file of a data folder of Kaldi, and reads its rows. Any name is that file, so arks
/// and recordings are it, too.
fn kaldi(bytes: &[u8], options: SourceOptions) {
    for columns in [&[][..], &["utterance", "start", "duration"], &["text", "speaker", "recording"]] {
        let columns = columns.iter().map(|&name| name.to_owned()).collect();
        let options = SourceOptions { columns, ..options.clone() };
        let Ok(source) = Recordings::open_in(in_memory(bytes), &[[PathBuf::from("wav.scp")]], &options)
        else {
            continue;
        };
        assert!(source.n_rows() <= bytes.len() as u64);
        read_named(&Arc::new(source), bytes);
    }
}

/// Reads the recordings that rows name. All that exist, as the folder `.` does, have these bytes.
fn read_named(source: &Arc<Recordings>, bytes: &[u8]) {
    let mut reader = source.reader();
    for row in 0..source.n_rows().min(40) {
        match reader.read(row, 1, &WholeRecord::ONCE) {
            Ok(record) => assert!(record.payload.bytes.len() <= bytes.len()),
            Err(error) => assert!(error.kind.is_record(), "{error}"),
        }
        let _ = reader.path(row);
    }
}

/// Parses an archive of recordings and reads its members.
fn tar(bytes: &[u8]) {
    let storage = in_memory(bytes);
    let columns = vec!["txt".to_owned(), "x".to_owned()];
    for columns in [Vec::new(), columns] {
        let options = SourceOptions {
            threads: 1,
            max_record_bytes: MAX_RECORD_BYTES,
            columns,
            ..SourceOptions::default()
        };
        let path = [PathBuf::from("a.tar")];
        if let Ok(source) = Recordings::open_in(storage.clone(), &[path], &options) {
            assert!(source.n_rows() * 512 <= bytes.len() as u64);
            read_rows(&Arc::new(source), MAX_RECORD_BYTES);
        }
    }
}

/// Parses a Parquet file with a column `text`, or with recordings, and reads its rows, alone and in order.
fn parquet_file(bytes: &[u8]) {
    let (storage, paths) = (in_memory(bytes), [PathBuf::from("a")]);
    for options in [SourceOptions::text("text"), SourceOptions::default()] {
        let options = SourceOptions { threads: 1, max_record_bytes: MAX_RECORD_BYTES, ..options };
        if let Ok(source) = ParquetSource::open_in(Arc::clone(&storage), &paths, &options) {
            read_rows(&Arc::new(source), MAX_RECORD_BYTES);
        }
    }
}

/// Opens the bytes as files of lines and of ids, and reads their rows, alone and in order.
fn documents(bytes: &[u8]) {
    for name in ["a.jsonl", "a.txt", "a.txt.gz", "a.jsonl.zst"] {
        let paths = [PathBuf::from(name)];
        if let Ok(source) =
            DocumentSource::open(in_memory(bytes), &paths, (&TextContent::Texts, "text"), None)
        {
            let rows = source.row_groups().iter().map(|group| group.n_rows).sum::<u64>();
            assert_eq!(rows, source.n_rows());
            read_rows(&Arc::new(source), u64::MAX);
        }
    }
    // Any name is that file, so the bytes are an index and its ids.
    for name in ["a.npy", "a.bin"] {
        let paths = [PathBuf::from(name)];
        if let Ok(source) =
            DocumentSource::open(in_memory(bytes), &paths, (&TextContent::Ids(Default::default()), ""), None)
        {
            read_rows(&Arc::new(source), bytes.len() as u64);
        }
    }
}

fn read_rows<S: PayloadSource>(source: &Arc<S>, most: u64) {
    let n: u64 = source.shard_rows(0).iter().flatten().sum();
    let (mut alone, mut in_order) = (source.reader(), source.reader());
    for row in 0..n.min(40) {
        let found =
            [alone.read(row, 1, &WholeRecord::ONCE), in_order.read(row, u64::MAX, &WholeRecord::ONCE)];
        let [alone, in_order] =
            found.map(|read| read.map(|record| record.payload.bytes).map_err(|error| error.kind));
        assert_eq!(alone, in_order, "row {row}");
        assert!(alone.is_ok_and(|bytes| bytes.len() as u64 <= most) || in_order.is_err());
    }
}

/// Checks page headers and the lengths of delta encodings.
fn pages(bytes: &[u8]) {
    page_headers::look_at(bytes);
}

#[cfg(test)]
mod tests {
    use crate::fuzzed;

    #[test]
    fn targets_return_whatever_the_bytes_are() {
        fuzzed::check(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."), &super::TARGETS);
    }
}
