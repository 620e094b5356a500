//! Shards written by the real `datasets` and `pyarrow`, and golden ones of the Arrow project: every row
//! equals that of other readers.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod source_common;

use std::{
    fs,
    path::{Path, PathBuf},
};

use arrow_schema::DataType;
use forebay_base::ErrorKind;
use forebay_engine::contract::RowStore;
use forebay_source::{ArrowReader, NO_LABEL, OpenFiles, PayloadColumn, ReadRows, SourceOptions, label_of};
use serde_json::Value;
use source_common::*;

fn fnv1a(data: &[u8]) -> String {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    format!("{:016x}", data.iter().fold(0xcbf2_9ce4_8422_2325, step))
}

/// Compares a row with pyarrow's: length, hash, path, label.
fn check_pyarrow(reader: &mut ArrowReader, at: u64, row: &Value, place: &str) {
    let path = row[2].as_str();
    assert_eq!(reader.path(at).unwrap().as_deref(), path, "{place}");
    match (reader.row(at, 4), row[0].as_u64()) {
        (Ok(record), Some(len)) => {
            assert_eq!(
                (record.payload.bytes.len() as u64, &*fnv1a(&record.payload.bytes)),
                (len, row[1].as_str().unwrap()),
                "{place}"
            );
            assert_eq!(label_of(&record.values), row[3].as_i64().unwrap_or(NO_LABEL), "{place}");
        }
        (Err(error), Some(0)) => assert_eq!(error.kind, ErrorKind::Empty, "{place}"),
        (Ok(record), None) => {
            assert_eq!(record.payload.bytes, fs::read(data(path.unwrap())).unwrap(), "{place}");
            assert_eq!(label_of(&record.values), row[3].as_i64().unwrap_or(NO_LABEL), "{place}");
        }
        (Err(error), None) => {
            let expected = if path.is_none() { ErrorKind::Null } else { ErrorKind::Unreadable };
            assert_eq!(error.kind, expected, "{place}");
            assert!(path.is_none_or(|path| !data(path).exists()), "{place}: {error}");
        }
        (Err(error), Some(_)) => panic!("{place}: {error}"),
    }
}

#[test]
fn every_row_is_what_pyarrow_reads() {
    let expected: Value = serde_json::from_slice(&fs::read(data("rows.json")).unwrap()).unwrap();
    let mut n_shards = 0;
    for (name, rows) in expected.as_object().unwrap().iter().filter(|(_, rows)| rows.is_array()) {
        let rows = rows.as_array().unwrap();
        let source = open(&[data(name)]).unwrap();
        assert!(source.shards()[0].damage.is_none(), "{name}");
        assert_eq!(source.n_rows(), rows.len() as u64, "{name}");
        let mut reader = source.reader();
        for at in (0..source.n_rows()).chain((0..source.n_rows()).rev()) {
            check_pyarrow(&mut reader, at, &rows[at as usize], &format!("{name}, row {at}"));
        }
        n_shards += 1;
    }
    assert_eq!(n_shards, 15);
}

#[test]
fn a_saved_dataset_is_its_folder() {
    let expected: Value = serde_json::from_slice(&fs::read(data("rows.json")).unwrap()).unwrap();
    let source = open(&[data("saved")]).unwrap();
    assert_eq!(source.contents().class_names.first().unwrap(), ["drum", "tabla", "tone"]);
    let names: Vec<_> =
        source.shards().iter().map(|shard| shard.path.file_name().unwrap().to_owned()).collect();
    assert_eq!(names, ["data-00000-of-00002.arrow", "data-00001-of-00002.arrow"]);
    let rows = ["saved/data-00000-of-00002.arrow", "saved/data-00001-of-00002.arrow"];
    let rows: Vec<_> = rows.iter().flat_map(|name| expected[name].as_array().unwrap()).collect();
    assert_eq!(source.n_rows(), rows.len() as u64);
    let mut reader = source.reader();
    for (at, row) in (0..).zip(rows) {
        check_pyarrow(&mut reader, at, row, &format!("row {at}"));
    }
}

/// Reads every row of a shard with every pair of columns that fit, and compares with `arrow-ipc` where that
/// reads the shard. Returns the number of pairs read.
fn read_every_column(path: &Path, is_golden: bool) -> usize {
    let named = |audio: &str, label: &str| SourceOptions {
        payload: PayloadColumn::Audio(Some(audio.into())),
        label_column: Some(label.to_owned()).into(),
        threads: 1,
        ..SourceOptions::default()
    };
    // The message for a missing column lists the columns, without the help of `arrow-ipc`.
    let Err(error) = open_with(&[path.into()], &named("no such column", "")) else { return 0 };
    let Some((_, listed)) = error.message.split_once("the columns are ") else { return 0 };
    let names: Vec<_> =
        listed.split(", ").filter_map(|column| Some(column.split_once(" (")?.0.to_string())).collect();
    let mut n_read = 0;
    for audio in &names {
        for label in std::iter::once("").chain(names.iter().map(String::as_str)) {
            let Ok(source) = open_with(&[path.into()], &named(audio, label)) else { continue };
            n_read += 1;
            let mut reader = source.reader();
            // A header may claim more rows than can be visited.
            for row in
                (0..source.n_rows().min(300)).chain(source.n_rows().saturating_sub(10)..source.n_rows())
            {
                let _ = (reader.row(row, 1), reader.row(row, 100), reader.path(row));
            }
            if is_golden {
                assert!(
                    source.shards()[0].damage.is_none(),
                    "{}: {:?}",
                    path.display(),
                    source.shards()[0].damage
                );
                check_all(&source, &oracle(path, audio, source.contents().has_labels().then_some(label)));
            }
        }
    }
    n_read
}

#[test]
fn a_stream_from_before_the_continuation_marker() {
    let path = data("../arrow-testing/0.14.1-dictionary.stream");
    assert!(read_every_column(&path, true) > 0);
}

#[test]
fn inputs_that_broke_other_readers() {
    let folder = data("../arrow-testing");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let broken: Vec<_> = files
        .filter(|path| path.to_str().unwrap().contains("-fuzz-") || path.to_str().unwrap().contains("crash-"))
        .collect();
    assert_eq!(broken.len(), 6);
    for path in broken {
        read_every_column(&path, false);
    }
}

/// A larger set, run by hand: `FOREBAY_ARROW_SHARDS` names a folder; files under `integration` are golden.
#[test]
fn shards_of_a_named_folder() {
    fn visit(folder: &Path, files: &mut Vec<PathBuf>) {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() { visit(&path, files) } else { files.push(path) }
        }
    }
    let folder = std::env::var_os("FOREBAY_ARROW_SHARDS").map_or_else(|| data(""), PathBuf::from);
    let mut files = Vec::new();
    visit(&folder, &mut files);
    files.sort();
    assert!(!files.is_empty());
    for path in files {
        let name = path.to_str().unwrap();
        let is_golden = name.contains("integration") && !name.contains("bigendian");
        let n_read = read_every_column(&path, is_golden);
        println!("{name}: {n_read} pairs of columns");
        let Ok(source) = open(std::slice::from_ref(&path)) else { continue };
        let (damage, n_rows) = (&source.shards()[0].damage, source.n_rows());
        println!(
            "    {n_rows} rows, damage {damage:?}, classes {:?}",
            source.contents().class_names.first().map(<[_]>::len)
        );
        if damage.is_none() && source.random_access() && !name.contains("fuzz") && !name.contains("crash") {
            let label = |name: &&str| {
                let field = batches(&path).first().map(|batch| batch.schema());
                field.is_some_and(|schema| {
                    schema.field_with_name(name).is_ok_and(|field| *field.data_type() != DataType::Utf8)
                })
            };
            let label = source
                .contents()
                .has_labels()
                .then(|| ["label", "ebird_code"].into_iter().find(label))
                .flatten();
            if !name.contains("paths") && !name.contains("nulls") {
                check_all(&source, &oracle(&path, "audio", label));
            }
        }
    }
}
