//! Choice of columns: defaults, the errors when none fits, and the types of labels.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod source_common;

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow_array::{ArrayRef, Float32Array, Int64Array, RecordBatch, StringArray, UInt64Array};
use arrow_schema::Schema;
use forebay_base::{Error, ErrorKind};
use forebay_source::{ArrowSource, NO_LABEL, PayloadColumn, SourceOptions, label_of};
use source_common::*;
use tempfile::TempDir;

fn audio(mark: u8) -> ArrayRef {
    byte_columns(&[Some(vec![mark; 3]), Some(vec![mark; 3])]).remove(3)
}

fn ints(values: [i64; 2]) -> ArrayRef {
    Arc::new(Int64Array::from(values.to_vec()))
}

fn names(values: &[&str]) -> String {
    format!(r#"{{"_type": "ClassLabel", "names": {}}}"#, serde_json::to_string(values).unwrap())
}

/// Writes shards with given columns and features.
struct Made {
    folder: TempDir,
    paths: Vec<PathBuf>,
}

impl Made {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), paths: Vec::new() }
    }

    fn add(mut self, batch: RecordBatch, features: &[(&str, &str)]) -> Self {
        let features: Vec<_> = features.iter().map(|(name, json)| format!("{name:?}: {json}")).collect();
        let json = format!(r#"{{"info": {{"features": {{{}}}}}}}"#, features.join(", "));
        let metadata = HashMap::from([("huggingface".to_string(), json)]);
        let schema = Schema::new_with_metadata(batch.schema().fields().clone(), metadata);
        let path = self.folder.path().join(format!("{}.arrow", self.paths.len()));
        let batch = batch.with_schema(Arc::new(schema.clone())).unwrap();
        write_with(
            &path,
            Format { is_file: self.paths.len() % 2 == 1, compression: None },
            &schema,
            &[batch],
        );
        self.paths.push(path);
        self
    }

    fn open(&self, audio: Option<&str>, label: Option<&str>) -> Result<Arc<ArrowSource>, Error> {
        let [audio_column, label_column] = [audio, label].map(|name| name.map(String::from));
        open_with(
            &self.paths,
            &SourceOptions {
                payload: PayloadColumn::Audio(audio_column),
                label_column: label_column.into(),
                threads: 2,
                ..SourceOptions::default()
            },
        )
    }

    /// The mark and the label of the first row.
    fn first(&self, audio: Option<&str>, label: Option<&str>) -> (u8, i64) {
        let record = self.open(audio, label).unwrap().reader().row(0, 1).unwrap();
        (record.payload.bytes[0], label_of(&record.values))
    }

    fn error(&self, audio: Option<&str>, label: Option<&str>) -> String {
        let error = self.open(audio, label).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Schema, "{error}");
        error.to_string()
    }
}

const AUDIO: &str = r#"{"_type": "Audio", "sampling_rate": 32000}"#;

#[test]
fn columns_are_found_by_name_then_by_feature() {
    let made = Made::new().add(
        batch([("sound", audio(1)), ("audio", audio(2)), ("labels", ints([5, 5])), ("label", ints([6, 6]))]),
        &[("sound", AUDIO)],
    );
    assert_eq!(made.first(None, None), (2, 6));
    assert_eq!(made.first(Some("sound"), Some("labels")), (1, 5));
    assert_eq!(made.first(None, Some("")), (2, NO_LABEL));
    assert!(!made.open(None, Some("")).unwrap().contents().has_labels());

    let species = names(&["a", "b"]);
    let made = Made::new().add(
        batch([("species", ints([1, 0])), ("noise", audio(1)), ("sound", audio(3))]),
        &[("sound", AUDIO), ("species", &species)],
    );
    assert_eq!(made.first(None, None), (3, 1));
    assert_eq!(made.open(None, None).unwrap().contents().class_names.first().unwrap(), ["a", "b"]);
    assert_eq!(made.first(Some("noise"), None), (1, 1));

    // Two class labels and no name: no label is taken.
    let made = Made::new().add(
        batch([("species", ints([1, 0])), ("genus", ints([2, 2])), ("audio", audio(3))]),
        &[("genus", &species), ("species", &species)],
    );
    assert_eq!(made.first(None, None), (3, NO_LABEL));
    assert_eq!(made.first(None, Some("genus")), (3, 2));
    assert!(made.open(None, None).unwrap().contents().class_names.first().is_none());
}

#[test]
fn a_schema_without_audio_lists_its_columns() {
    let text: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
    let made = Made::new().add(batch([("text", text), ("id", ints([1, 2]))]), &[]);
    let error = made.error(None, None);
    assert!(error.contains("text (text), id (int64)") && error.contains("audio_column="), "{error}");
    assert!(error.contains("0.arrow"), "{error}");
    assert!(
        made.error(Some("sound"), None).contains("audio_column is \"sound\", but there is no such column")
    );
    assert!(made.error(Some("id"), None).contains("holds no recordings"));

    let made = Made::new().add(batch([("a", audio(1)), ("b", audio(2))]), &[("a", AUDIO), ("b", AUDIO)]);
    assert!(made.error(None, None).contains("2 Audio features"));
    assert_eq!(made.first(Some("b"), None), (2, NO_LABEL));
}

#[test]
fn labels_of_other_types_are_refused() {
    let text: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
    let float: ArrayRef = Arc::new(Float32Array::from(vec![1.0, 2.0]));
    for (label, shown) in [(text, "Utf8"), (float, "Float32")] {
        assert_eq!(label.data_type().to_string(), shown);
        let made = Made::new().add(batch([("audio", audio(1)), ("label", label)]), &[]);
        let error = made.error(None, None);
        assert!(
            error.contains(shown) && error.contains("integers") && error.contains("label_column="),
            "{error}"
        );
    }
    let made = Made::new().add(batch([("audio", audio(1))]), &[]);
    assert!(
        made.error(None, Some("class")).contains("label_column is \"class\", but there is no such column")
    );
}

#[test]
fn a_label_beyond_int64_is_an_error_of_the_run() {
    let label: ArrayRef = Arc::new(UInt64Array::from(vec![i64::MAX as u64, i64::MAX as u64 + 1]));
    let made = Made::new().add(batch([("audio", audio(1)), ("label", label)]), &[]);
    let mut reader = made.open(None, None).unwrap().reader();
    assert_eq!(label_of(&reader.row(0, 2).unwrap().values), i64::MAX);
    let error = reader.row(1, 1).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Schema);
    assert!(error.to_string().contains("9223372036854775808"), "{error}");
    assert_eq!(error.place.row, Some(1));
}

#[test]
fn shards_may_differ_in_all_but_their_class_names() {
    let [ab, ba, abc] = [names(&["a", "b"]), names(&["b", "a"]), names(&["a", "b", "c"])];
    let path: ArrayRef = Arc::new(StringArray::from(vec!["x", "y"]));
    let same = Made::new()
        .add(batch([("label", ints([0, 1])), ("audio", audio(1))]), &[("label", &ab)])
        .add(batch([("audio", audio_struct(audio(2), path)), ("label", ints([1, 0]))]), &[("label", &ab)])
        .add(batch([("audio", audio(3))]), &[]);
    let source = same.open(None, None).unwrap();
    assert_eq!(source.contents().class_names.first().unwrap(), ["a", "b"]);
    let mut reader = source.reader();
    let rows: Vec<_> = (0..6)
        .map(|row| reader.row(row, 6).unwrap())
        .map(|row| (row.payload.bytes[0], label_of(&row.values)))
        .collect();
    assert_eq!(rows, [(1, 0), (1, 1), (2, 1), (2, 0), (3, NO_LABEL), (3, NO_LABEL)]);

    for other in [&ba, &abc] {
        let made = Made::new()
            .add(batch([("label", ints([0, 1])), ("audio", audio(1))]), &[("label", &ab)])
            .add(batch([("label", ints([0, 1])), ("audio", audio(1))]), &[("label", other)]);
        let error = made.error(None, None);
        assert!(error.contains("0.arrow") && error.contains("1.arrow"), "{error}");
    }
}

#[test]
fn metadata_that_is_no_json_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    for json in [
        "",
        "{",
        "[]",
        r#"{"info": {"features": 3}}"#,
        r#"{"info": {"features": {"label": {"names": [1]}}}}"#,
    ] {
        let batch = batch([("audio", audio(1)), ("label", ints([0, 1]))]);
        let metadata = HashMap::from([("huggingface".to_string(), json.to_string())]);
        let schema = Arc::new(Schema::new_with_metadata(batch.schema().fields().clone(), metadata));
        let path = folder.path().join("a.arrow");
        write_with(&path, Format::default(), &schema, &[batch.with_schema(Arc::clone(&schema)).unwrap()]);
        let source = open(&[path]).unwrap();
        assert!(source.contents().class_names.first().is_none() && source.contents().has_labels());
    }
}

#[test]
fn folders() {
    let folder = tempfile::tempdir().unwrap();
    let error = |path: &Path| open(&[path.into()]).unwrap_err().to_string();
    assert!(error(folder.path()).contains("end in .arrow or .parquet"));
    fs::write(folder.path().join("dataset_dict.json"), "{}").unwrap();
    assert!(error(folder.path()).contains("splits"));
    for json in ["", "{}", r#"{"_data_files": [{}]}"#] {
        fs::write(folder.path().join("state.json"), json).unwrap();
        assert!(error(folder.path()).contains("_data_files"));
    }
}
