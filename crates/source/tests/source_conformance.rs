//! Every row of every kind of shard, Arrow streams and files and the same rows as Parquet, equals that of
//! `arrow-ipc`'s own readers.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod source_common;

use std::{fs, sync::Arc};

use arrow_array::{ArrayRef, NullArray, RecordBatch, StringArray};
use forebay_base::ErrorKind;
use forebay_engine::contract::RowStore;
use forebay_source::{ArrowSource, OpenFiles, parquet::ParquetSource};
use source_common::*;

#[test]
fn streams_and_files_compressed_or_not() {
    let folder = tempfile::tempdir().unwrap();
    let cuts = [0..1, 1..300, 300..300, 300..437];
    let batches: Vec<_> = cuts.into_iter().map(usual_batch).collect();
    for (n, format) in formats().into_iter().enumerate() {
        let path = folder.path().join(format!("{n}.arrow"));
        write(&path, format, &batches);
        let source = open(std::slice::from_ref(&path)).unwrap();
        assert!(source.shards()[0].damage.is_none(), "{format:?}");
        assert_eq!(source.random_access(), format.compression.is_none());
        assert!(source.contents().has_labels());
        let rows = oracle(&path, "audio", Some("label"));
        assert_eq!(rows.len(), 437);
        check_all(&source, &rows);
    }
}

#[test]
fn parquet_of_every_kind() {
    let folder = tempfile::tempdir().unwrap();
    let [arrow, path] = ["a.arrow", "a.parquet"].map(|name| folder.path().join(name));
    let batches: Vec<_> = [0..1, 1..30, 30..120].into_iter().map(usual_batch).collect();
    write(&arrow, Format::default(), &batches);
    let rows = oracle(&arrow, "audio", Some("label"));
    // Every codec, and every way of writing.
    for properties in
        parquet_properties().into_iter().step_by(4).chain(parquet_properties().into_iter().take(3))
    {
        write_parquet(&path, &properties, &batches);
        let source = open_parquet(std::slice::from_ref(&path)).unwrap();
        assert!(source.contents().has_labels());
        check_all(&source, &rows);
    }
}

#[test]
fn rows_are_numbered_over_the_files_as_given() {
    let folder = tempfile::tempdir().unwrap();
    let (mut paths, mut rows) = (Vec::new(), Vec::new());
    for (n, range) in [50..80, 0..0, 0..20, 20..50].into_iter().enumerate() {
        let path = folder.path().join(format!("{}.arrow", 9 - n));
        write(&path, Format { is_file: n % 2 == 0, compression: None }, &[usual_batch(range)]);
        rows.extend(oracle(&path, "audio", Some("label")));
        paths.push(path);
    }
    let source = open(&paths).unwrap();
    check_all(&source, &rows);
    let places: Vec<_> = [0, 29, 30, 49, 50, 79].map(|row| source.locate(row)).into();
    assert_eq!(places, [(0, 0), (0, 29), (2, 0), (2, 19), (3, 0), (3, 29)]);
    assert_eq!(source.shards().iter().map(|shard| shard.first_row).collect::<Vec<_>>(), [0, 30, 30, 50]);
}

/// Writes the batch, and a slice of it, in every format; compares both.
fn check_batch(batch: &RecordBatch, label: Option<&str>) {
    let folder = tempfile::tempdir().unwrap();
    for (n, format) in formats().into_iter().enumerate() {
        let path = folder.path().join(format!("{n}.arrow"));
        write(&path, format, &[batch.slice(7, 20), batch.clone(), batch.slice(3, 0)]);
        let source =
            open(std::slice::from_ref(&path)).unwrap_or_else(|error| panic!("{:?}: {error}", batch.schema()));
        check_all(&source, &oracle(&path, "audio", label));
        assert_eq!(source.contents().has_labels(), label.is_some());
    }
    let [arrow, path] = ["a.arrow", "a.parquet"].map(|name| folder.path().join(name));
    write(&arrow, Format::default(), std::slice::from_ref(batch));
    for properties in parquet_properties().iter().skip(3).step_by(7) {
        write_parquet(&path, properties, std::slice::from_ref(batch));
        let source = open_parquet(std::slice::from_ref(&path))
            .unwrap_or_else(|error| panic!("{:?}: {error}", batch.schema()));
        check_all(&source, &oracle(&arrow, "audio", label));
        assert_eq!(source.contents().has_labels(), label.is_some());
    }
}

#[test]
fn every_type_of_audio_column() {
    let bytes: Vec<_> = (0..40).map(|i| (i % 6 != 2).then(|| recording(i))).collect();
    let paths: Vec<_> =
        (0..40).map(|i| (i % 4 != 1).then(|| format!("nowhere/{}.ogg", "a".repeat(i)))).collect();
    for column in byte_columns(&bytes) {
        check_batch(&batch([("audio", Arc::clone(&column))]), None);
        for path in text_columns(&paths) {
            check_batch(&batch([("audio", audio_struct(Arc::clone(&column), path))]), None);
        }
    }
    for path in text_columns(&paths) {
        check_batch(&batch([("audio", Arc::clone(&path))]), None);
        check_batch(&batch([("audio", audio_struct(Arc::new(NullArray::new(40)), path))]), None);
    }
}

#[test]
fn every_type_of_label() {
    let bytes: Vec<_> = (0..120).map(|i| Some(recording(i % 3))).collect();
    let audio = byte_columns(&bytes).pop().unwrap();
    for label in label_columns(120) {
        check_batch(&batch([("label", label), ("audio", Arc::clone(&audio))]), Some("label"));
    }
}

#[test]
fn recordings_behind_paths() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("clips")).unwrap();
    fs::write(folder.path().join("clips/a.wav"), b"first").unwrap();
    fs::write(folder.path().join("b.wav"), b"second").unwrap();
    fs::write(folder.path().join("c.wav"), b"").unwrap();
    let absolute = folder.path().join("b.wav").to_str().unwrap().to_string();
    let paths = ["clips/a.wav", &absolute, "c.wav", "gone.wav", "clips", "hf://somewhere/a.wav"];
    for column in text_columns(&paths.map(|path| Some(path.to_string()))) {
        let shard = folder.path().join("shard.arrow");
        write(&shard, Format::default(), &[batch([("audio", column)])]);
        let mut reader = open(&[shard]).unwrap().reader();
        assert_eq!(reader.row(0, 1).unwrap().payload.bytes, "first");
        assert_eq!(reader.row(1, 5).unwrap().payload.bytes, "second");
        let kinds = [2, 3, 4, 5].map(|row| reader.row(row, 1).unwrap_err().kind);
        assert_eq!(
            kinds,
            [ErrorKind::Empty, ErrorKind::Unreadable, ErrorKind::Unreadable, ErrorKind::Unreadable]
        );
        let error = reader.row(3, 1).unwrap_err().to_string();
        assert!(error.contains("gone.wav") && error.contains("shard.arrow, row 3"), "{error}");
    }
}

#[test]
fn several_readers_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.arrow");
    write(&path, Format::default(), &[usual_batch(0..200), usual_batch(200..400)]);
    let rows = oracle(&path, "audio", Some("label"));
    let source = open(&[path]).unwrap();
    std::thread::scope(|scope| {
        for first in 0..4 {
            let (source, rows) = (&source, &rows);
            scope.spawn(move || {
                let mut reader = source.reader();
                for at in (first * 17..400).chain(0..400) {
                    check(&rows[at as usize], reader.row(at, first * 100), at);
                }
            });
        }
    });
}

fn assert_shared<T: Send + Sync>() {}

#[test]
fn a_source_is_shared_and_a_reader_is_sent() {
    assert_shared::<ArrowSource>();
    assert_shared::<ParquetSource>();
    fn assert_sent<T: Send>() {}
    assert_sent::<forebay_source::parquet::ParquetReader>();
    assert_sent::<forebay_source::ArrowReader>();
}

#[test]
fn a_column_of_nulls_holds_no_recordings() {
    let audio: ArrayRef = Arc::new(NullArray::new(2));
    let text: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.arrow");
    write(&path, Format::default(), &[batch([("audio", audio), ("text", text)])]);
    let error = open(&[path]).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Schema);
    assert!(error.to_string().contains("text (text)"), "{error}");
}
