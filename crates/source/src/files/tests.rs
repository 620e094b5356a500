//! Tests of tables, folders and recordings in files.

use std::{fs, path::PathBuf};

use super::*;
use crate::{AllowPaths, Entry, RawRecord, Recordings, Result, Segment, WholeRecord, contract::ReadRecords};

mod compressed;
mod fingerprints;
mod kaldi;

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    fn path(&self) -> PathBuf {
        self.0.path().to_owned()
    }
}

fn open(entries: Vec<Entry>, options: &SourceOptions) -> Result<Arc<Recordings>> {
    Recordings::open(&[entries], options).map(Arc::new)
}

fn reading(columns: &[&str]) -> SourceOptions {
    let columns = columns.iter().map(|&name| name.to_owned()).collect();
    SourceOptions { columns, paths: true, ..SourceOptions::default() }
}

/// A table with that text, opened.
fn table(name: &str, text: impl AsRef<[u8]>, columns: &[&str]) -> Result<Arc<Recordings>> {
    let folder = Folder::new();
    let path = folder.write(name, text);
    open(vec![path.into()], &reading(columns))
}

fn manifest(path: PathBuf, change: impl Fn(&mut Manifest)) -> Vec<Entry> {
    let mut manifest = Manifest::of(path);
    change(&mut manifest);
    vec![Entry::Manifest(Arc::new(manifest))]
}

fn read(source: &Arc<Recordings>, row: u64) -> Result<RawRecord> {
    source.reader().read(row, 1, &WholeRecord::ONCE)
}

fn values(source: &Arc<Recordings>) -> Vec<Vec<String>> {
    let of = |row| {
        let reader = source.tables().unwrap().reader();
        reader.values(row).unwrap().iter().map(|value| format!("{value:?}")).collect()
    };
    (0..source.n_rows()).map(of).collect()
}

#[test]
fn csv_as_people_have_it() {
    let rows: &[&[&str]] = &[
        &[r#"Text("a, b.wav")"#, r#"Text("one\ntwo")"#, "Int(1)"],
        &[r#"Text("c \"d\".wav")"#, "Null", "Null"],
        &[r#"Text("Ü#%.wav")"#, r#"Text("x")"#, "Int(-3)"],
    ];
    let plain = "path,note,n\n\"a, b.wav\",\"one\ntwo\",1\n\"c \"\"d\"\".wav\",,\nÜ#%.wav,x,-3\n";
    let texts = [
        ("a.csv", plain.to_owned()),
        ("b.csv", format!("\u{feff}{plain}")),
        ("c.csv", plain.replace("\n\"c", "\r\n\"c").replace("n\n\"a", "n\r\n\"a").replace(",,\n", ",,\r\n")),
        ("d.csv", plain.trim_end().to_owned()),
        ("e.csv", plain.replace("path,note,n\n", "path,note,n\n\n").replace("\n\"c", "\n\n\n\"c")),
        ("f.csv", "path;note;n\n\"a, b.wav\";\"one\ntwo\";1\n\"c \"\"d\"\".wav\";;\nÜ#%.wav;x;-3\n".into()),
        ("g.tsv", "path\tnote\tn\na, b.wav\t\"one\ntwo\"\t1\n\"c \"\"d\"\".wav\"\t\t\nÜ#%.wav\tx\t-3\n".into()),
        (
            "h.jsonl",
            "{\"path\": \"a, b.wav\", \"note\": \"one\\ntwo\", \"n\": 1}\n\n{\"path\": \"c \\\"d\\\".wav\", \"note\": null}\n\
             {\"path\": \"Ü#%.wav\", \"note\": \"x\", \"n\": -3, \"more\": [1]}\n"
                .into(),
        ),
    ];
    let mut fingerprints = Vec::new();
    for (name, text) in texts {
        let source = table(name, &text, &["note", "n"]).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(values(&source), rows, "{name}");
        fingerprints.push(source.fingerprint());
    }
    assert!(fingerprints.iter().all(|&found| found == fingerprints[0]), "{fingerprints:?}");
    // Cells without quotes may have any of them.
    let source = table("a.csv", "path,n\n5\" gun.wav,1\n6\" gun.wav,2", &["n"]).unwrap();
    assert_eq!(values(&source)[1], [r#"Text("6\" gun.wav")"#, "Int(2)"]);
}

#[test]
fn lines_are_those_of_the_file() {
    let folder = Folder::new();
    let text = "path,note\n\na.wav,\"one\n\ntwo\"\nb.wav,\r\nc.wav,x\r\n\r\nd.wav,y\n";
    let source = open(vec![folder.write("t.csv", text).into()], &reading(&[])).unwrap();
    for (row, line) in [(0, 3), (1, 6), (2, 7), (3, 9)] {
        let error = read(&source, row).unwrap_err();
        assert!(error.message.starts_with(&format!("line {line}: the file ")), "{error}");
        assert_eq!(error.kind, ErrorKind::Unreadable);
    }
}

#[test]
fn broken_tables_are_told_by_line() {
    for (name, text, told) in [
        ("a.csv", &b"path,n\na.wav,1\nb.wav\n"[..], "line 3 has 1 cell, and the table has 2 columns"),
        ("a.csv", b"path,n\na.wav,\"x\ny\"\nb.wav,1,2\n", "line 4 has 3 cells"),
        ("a.csv", b"path,n\na.wav,1\nb.wav,\"open\n", "line 3: a quote is opened and not closed"),
        ("a.csv", b"path,n\na.wav,\"open", "line 2: a quote is opened and not closed"),
        ("a.csv", b"path,n\na.wav,1\nb.wav,\"x\nc.wav,\"y\"\n", "line 3: a cell over several lines goes on"),
        ("a.csv", b"# YTID, x, y\na, 1, \"x\nb, 2, \"y\"\n", "line 2: a cell over several lines goes on"),
        ("a.csv", b"path,name\na.wav,x\nb.wav,caf\xe9\n", "line 3, column \"name\": byte 3 of "),
        ("a.csv", b"path,caf\xe9\na.wav,x\n", "line 1, cell 2: byte 3 of"),
        ("a.csv", b"\xff\xfep\0a\0t\0h\0", "UTF-16"),
        ("a.csv", b"", "the table is empty"),
        ("a.csv", b"path,path\na,b\n", "column \"path\" is there twice"),
        ("a.csv", b"name,n\na.wav,1\n", "no column has paths"),
        (
            "a.csv",
            b"path,start,end\na.wav,1,2\nb.wav,3,1.5\n",
            "line 3: start is 3 and end is 1.5 seconds, but a segment starts before its end",
        ),
        ("a.csv", b"path,start,end\na.wav,1,1\n", "line 2: start is 1 and end is 1 seconds, but a"),
        ("a.csv", b"path,start,end\na.wav,-1,1\n", "line 2: start is -1, must be 0 or more seconds"),
        ("a.csv", b"path,start,end\na.wav,one,1\n", "line 2: a segment starts or ends at \"one\""),
        (
            "a.csv",
            b"path\nb.wav\nhttps:/a.b/c.wav\n",
            "line 3: the path \"https:/a.b/c.wav\" begins with https:, and is no URL that is read",
        ),
        ("a.jsonl", b"{\"path\": \"a.wav\"}\n{\"path\": \n", "line 2 is not JSON"),
        ("a.jsonl", b"[1]\n", "line 1 is no object"),
        ("a.jsonl", b"{\"path\": 3}\n", "line 1: the path is 3, expected text"),
        ("a.jsonl", b"\n", "the table is empty"),
        ("a.jsonl", b"{\"path\": {\"sources\": []}}\n", "line 1: the path is an object, expected text"),
        (
            "a.csv",
            b"# YTID, start_seconds, note\nx, 1, \"a\ny, 2, b\n",
            "line 2: a quote is opened and not closed",
        ),
        (
            "a.txt",
            b"0,5\t1,5\tcall\n2,5\t3,5\tcall\n",
            "none has starts and ends, as labels of Audacity have",
        ),
    ] {
        let error = table(name, text, &[]).unwrap_err();
        assert!(error.to_string().contains(told), "{error}");
        assert!(error.to_string().contains(name), "{error}");
    }
    let error = table("a.jsonl", "{\"path\": \"a\", \"n\": 1}\n{\"path\": \"b\", \"n\": \"x\"}\n", &["n"])
        .unwrap_err();
    assert!(
        error.message.contains("line 2: column \"n\": it is text, and int64 in the rows before"),
        "{error}"
    );
    for name in ["a.csv", "a.jsonl"] {
        let text = if name == "a.csv" { "path,n\na,1\n" } else { "{\"path\": \"a\", \"n\": 1}\n" };
        let error = table(name, text, &["m"]).unwrap_err();
        assert!(
            error.message.contains("there is no column \"m\"; the columns are \"n\", \"path\"")
                || error.message.contains("there is no column \"m\"; the columns are \"path\", \"n\""),
            "{error}"
        );
    }
}

#[test]
fn segments_of_usual_tables() {
    let seconds = |start, end| Some(Segment::Seconds(start, end));
    for (name, text, expected) in [
        (
            "a.csv",
            "path,start,end\na.wav,1,2.5\nb.wav,,\nb.wav,,3\n",
            vec![seconds(1.0, 2.5), None, seconds(0.0, 3.0)],
        ),
        (
            "nemo.jsonl",
            "{\"audio_filepath\": \"a.wav\", \"duration\": 2.5, \"offset\": 1}\n{\"audio_filepath\": \"b.wav\", \"duration\": 1}\n",
            vec![seconds(1.0, 3.5), seconds(0.0, 1.0)],
        ),
        (
            "raven.txt",
            "Selection\tBegin Time (s)\tEnd Time (s)\tBegin Path\n1\t0.5\t2\tx/a.wav\n",
            vec![seconds(0.5, 2.0)],
        ),
        ("birdnet.csv", "Start (s),End (s),Common name,File\n0.0,3.0,Robin,a.wav\n", vec![seconds(0.0, 3.0)]),
        (
            "a.txt",
            "0.5\t1.25\tcall\n\\\t100.0\t2000.0\n2\t3\t\n",
            vec![seconds(0.5, 1.25), seconds(2.0, 3.0)],
        ),
        (
            "audioset.csv",
            "# Segments csv created Sun\n# num_ytids=2, num_segs=2\n# YTID, start_seconds, end_seconds, positive_labels\n\
             --PJ, 30.000, 40.000, \"/m/09x0r,/t/dd00088\"\n-0aK, 0.0, 10.0, \"/m/1\"\n",
            vec![seconds(30.0, 40.0), seconds(0.0, 10.0)],
        ),
    ] {
        let source = table(name, text, &[]).unwrap_or_else(|error| panic!("{name}: {error}"));
        let found: Vec<_> = (0..source.n_rows()).map(|row| segment(&source, row)).collect();
        assert_eq!(found, expected, "{name}");
    }
    let source = table(
        "audioset.csv",
        "# YTID, start_seconds, end_seconds, positive_labels\nx, 30.000, 40.000, \"/m/09x0r,/t/dd00088\"\n",
        &["positive_labels"],
    );
    assert_eq!(values(&source.unwrap()), [[r#"Text("x")"#, r#"Text("/m/09x0r,/t/dd00088")"#]]);
}

fn segment(source: &Arc<Recordings>, row: u64) -> Option<Segment> {
    let reader = source.tables().unwrap().reader();
    reader.segment(row)
}

#[test]
fn columns_that_later_lines_are_the_first_to_have() {
    let seconds = |start, end| Some(Segment::Seconds(start, end));
    let nemo = "{\"audio_filepath\": \"a.wav\", \"duration\": 2.5}\n{\"audio_filepath\": \"b.wav\", \"more\": 1}\n\
                {\"audio_filepath\": \"b.wav\", \"duration\": 1, \"offset\": 3}\n";
    let source = table("nemo.jsonl", nemo, &[]).unwrap();
    let found: Vec<_> = (0..3).map(|row| segment(&source, row)).collect();
    assert_eq!(found, [seconds(0.0, 2.5), None, seconds(3.0, 4.0)]);
    let text = "{\"path\": \"a.wav\"}\n{\"path\": \"b.wav\", \"label\": \"owl\"}\n\
                {\"path\": \"c.wav\", \"onset\": 1, \"offset\": 2, \"Onset\": 7}\n";
    let source = table("a.jsonl", text, &[]).unwrap();
    let found: Vec<_> = (0..3).map(|row| segment(&source, row)).collect();
    assert_eq!(found, [None, None, seconds(1.0, 2.0)]);
    assert_eq!(
        values(&source).concat(),
        ["Int(-1)", "Text(\"a.wav\")", "Int(0)", "Text(\"b.wav\")", "Int(-1)", "Text(\"c.wav\")"]
    );
    let error = read(&source, 2).unwrap_err();
    assert!(error.message.starts_with("line 3: "), "{error}");
}

#[test]
fn times_within_the_files_of_a_selection_table() {
    // Two files of 60 s that were open together.
    let head = "Selection\tBegin Time (s)\tEnd Time (s)\tBegin Path\tFile Offset (s)\n";
    let text = format!("{head}1\t10\t12\ta.wav\t10\n2\t61.5\t62.25\tb.wav\t1.5\n3\t2\t3\ta.wav\t\n");
    let source = table("raven.txt", text, &[]).unwrap();
    let found: Vec<_> = (0..3).map(|row| segment(&source, row).unwrap()).collect();
    assert_eq!(
        found,
        [Segment::Seconds(10.0, 12.0), Segment::Seconds(1.5, 2.25), Segment::Seconds(2.0, 3.0)]
    );
}

#[test]
fn cuts_of_lhotse() {
    let cut = |kind: &str, source: &str| {
        format!(
            "{{\"id\": \"cut-1\", \"start\": 0.5, \"duration\": 2, \"channel\": 0, \"supervisions\": [{{\"text\": \"hello\"}}], \
             \"recording\": {{\"id\": \"r\", \"sources\": [{{\"type\": \"{kind}\", \"source\": \"{source}\"}}]}}}}\n"
        )
    };
    let text = [cut("file", "a.wav"), cut("shar", "")].concat();
    let source = table("cuts.jsonl", text, &["supervisions.0.text"]).unwrap();
    let expected = [[r#"Text("a.wav")"#, r#"Text("hello")"#], [r#"Text("cut-1")"#, r#"Text("hello")"#]];
    assert_eq!(values(&source), expected);
    assert_eq!(segment(&source, 0), Some(Segment::Seconds(0.5, 2.5)));
    assert!(!source.stored(1).by_url);
    let of_url = table("cuts.jsonl", cut("url", "https://a.b/c.wav"), &[]);
    let of_url = of_url.unwrap();
    assert_eq!((of_url.n_rows(), of_url.stored(1).by_url), (1, true));
    let error = table("cuts.jsonl", cut("command", "sox"), &[]).unwrap_err();
    assert!(error.message.contains("a recording of Lhotse with one source"), "{error}");
    // As `perturb_speed` leaves it.
    let changed = cut("file", "a.wav").replace(
        "\"sources\"",
        "\"transforms\": [{\"name\": \"Speed\", \"kwargs\": {\"factor\": 1.1}}], \"sources\"",
    );
    let error = table("cuts.jsonl", changed, &[]).unwrap_err();
    assert!(error.message.contains("is changed by {") && error.message.contains("not applied"), "{error}");
    // A cut of one side of a telephone call.
    let sided = |channel: &str, ids: &str| {
        let cut = cut("file", "a.wav").replace("\"channel\": 0", &format!("\"channel\": {channel}"));
        table("cuts.jsonl", cut.replace("\"sources\"", &format!("\"channel_ids\": {ids}, \"sources\"")), &[])
    };
    for (channel, ids) in [("0", "[0]"), ("[0, 1]", "[0, 1]"), ("3", "[3]")] {
        assert_eq!(sided(channel, ids).unwrap().n_rows(), 1);
    }
    for (channel, ids) in [("1", "[0, 1]"), ("[1]", "[0, 1]"), ("[1, 0]", "[0, 1]")] {
        let error = sided(channel, ids).unwrap_err();
        assert!(error.message.contains("of a recording with [0, 1], and a row is all channels"), "{error}");
    }
    let unchanged = cut("file", "a.wav").replace("\"sources\"", "\"transforms\": [], \"sources\"");
    assert_eq!(table("cuts.jsonl", unchanged, &[]).unwrap().n_rows(), 1);
}

#[test]
fn segments_in_samples() {
    let folder = Folder::new();
    let path = folder.write("t.csv", "path,from,till\na.wav,100,\na.wav,5,17\n");
    let source = open(
        manifest(path, |manifest| {
            (manifest.start, manifest.end) = (Some("from".to_owned()).into(), Some("till".to_owned()).into());
            manifest.unit = Unit::Samples;
        }),
        &reading(&[]),
    );
    let source = source.unwrap();
    assert_eq!(segment(&source, 0), Some(Segment::Samples(100, u64::MAX)));
    assert_eq!(segment(&source, 1), Some(Segment::Samples(5, 17)));
    let path = folder.write("u.csv", "path,start,end\na.wav,1,2\na.wav,0.5,17\n");
    let error = open(manifest(path, |manifest| manifest.unit = Unit::Samples), &reading(&[])).unwrap_err();
    assert!(error.message.contains("line 3: start is 0.5 samples, must be whole"), "{error}");
    assert_eq!(Segment::Samples(5, 17).samples(8000, 10).unwrap(), 5..10);
    assert_eq!(Segment::Seconds(0.5, f64::INFINITY).samples(8000, 10_000).unwrap(), 4000..10_000);
    assert_eq!(Segment::Seconds(1.0, 2.0).samples(8000, 8000).unwrap_err().kind, ErrorKind::Empty);
}

#[test]
fn labels_are_classes() {
    let text = "path,label\na,owl\nb,\nc,robin\nd,owl\n";
    let source = table("a.csv", text, &[]).unwrap();
    let labels: Vec<_> = values(&source).iter().map(|row| row[0].clone()).collect();
    assert_eq!(labels, ["Int(0)", "Int(-1)", "Int(1)", "Int(0)"]);
    assert_eq!(
        source.contents().class_names.label,
        [Some(Arc::new(vec!["owl".to_owned(), "robin".to_owned()]))]
    );
    let source = table("a.csv", "path,label\na,3\nb,\n", &[]).unwrap();
    assert_eq!(values(&source).iter().map(|row| row[0].clone()).collect::<Vec<_>>(), ["Int(3)", "Int(-1)"]);
    let error = table("a.csv", "path,label\na,3.5\n", &[]).unwrap_err();
    assert!(error.message.contains("the label column is float64"), "{error}");
    // Tables of one source have the same classes.
    let folder = Folder::new();
    let both = vec![
        folder.write("a.csv", "path,label\na,wren\n").into(),
        folder.write("b.csv", "path,label\nb,owl\n").into(),
    ];
    let source = open(both, &reading(&[])).unwrap();
    assert_eq!(values(&source).iter().map(|row| row[0].clone()).collect::<Vec<_>>(), ["Int(1)", "Int(0)"]);
}

#[test]
fn a_folder_is_its_recordings() {
    let folder = Folder::new();
    for name in [
        "owl/a10.WAV",
        "owl/a9.wav",
        "Owl/._b.wav",
        "Owl/.hidden.wav",
        "Owl/b.Flac",
        "wren/deep/c.ogg",
        "notes.txt",
    ] {
        folder.write(name, name);
    }
    let source = open(vec![folder.path().into()], &reading(&[])).unwrap();
    let found = values(&source);
    let expected = [
        ["Int(0)", "Text(\"Owl/b.Flac\")"],
        ["Int(2)", "Text(\"owl/a9.wav\")"],
        ["Int(2)", "Text(\"owl/a10.WAV\")"],
        ["Int(1)", "Text(\"wren/deep/c.ogg\")"],
    ];
    assert_eq!(found, expected);
    assert_eq!(**source.contents().class_names.label[0].as_ref().unwrap(), ["Owl", "deep", "owl"]);
    assert_eq!(&read(&source, 2).unwrap().payload.bytes[..], b"owl/a10.WAV");
    // A file at the top: no classes.
    folder.write("top.wav", "x");
    let source = open(vec![folder.path().into()], &reading(&[])).unwrap();
    assert!(!source.contents().has_labels());
    assert_eq!(source.n_rows(), 5);
    // A table names them.
    folder.write("metadata.csv", "file_name,note\nowl/a9.wav,x\n");
    let source = open(vec![folder.path().into()], &reading(&["note"])).unwrap();
    assert_eq!(values(&source), [[r#"Text("owl/a9.wav")"#, r#"Text("x")"#]]);
    assert_eq!(&read(&source, 0).unwrap().payload.bytes[..], b"owl/a9.wav");
}

#[test]
fn recordings_one_by_one() {
    let folder = Folder::new();
    let paths: Vec<Entry> =
        ["b.wav", "a b#%.wav"].iter().map(|name| folder.write(name, name).into()).collect();
    let source = open(paths, &reading(&[])).unwrap();
    assert_eq!(&read(&source, 1).unwrap().payload.bytes[..], b"a b#%.wav");
    let shard = folder.write("x.arrow", "no");
    let both = vec![shard.into(), folder.write("c.wav", "c").into()];
    let error = open(both, &reading(&[])).unwrap_err();
    assert!(error.message.contains("is a shard, and other sources are recordings in files"), "{error}");
}

#[test]
fn files_are_read_below_the_root_alone() {
    let outer = Folder::new();
    outer.write("secret.wav", "secret");
    outer.write("in/a.wav", "a");
    #[cfg(unix)]
    std::os::unix::fs::symlink(outer.path().join("secret.wav"), outer.path().join("in/link.wav")).unwrap();
    let text = format!(
        "path\na.wav\n../secret.wav\nlink.wav\n{}\n\n../in/a.wav\nfolder\nmissing.wav\n{}\n",
        outer.path().join("secret.wav").display(),
        "x".repeat(4000),
    );
    let table = outer.write("in/t.csv", text);
    fs::create_dir(outer.path().join("in/folder")).unwrap();
    let found = |options: &SourceOptions| -> Vec<std::result::Result<Vec<u8>, String>> {
        let source = open(vec![table.clone().into()], options).unwrap();
        let read = |row| {
            read(&source, row).map(|record| record.payload.bytes.to_vec()).map_err(|error| {
                assert_eq!(error.kind, ErrorKind::Unreadable, "{error}");
                error.message
            })
        };
        (0..source.n_rows()).map(read).collect()
    };
    let guarded = found(&reading(&[]));
    assert_eq!((guarded.len(), guarded[0].as_deref()), (8, Ok(&b"a"[..])));
    for row in [1, 2, 3] {
        let error = guarded[row].as_ref().unwrap_err();
        assert!(error.contains("is not below the folder") && error.contains("allow_paths="), "{error}");
    }
    assert_eq!(guarded[4].as_deref(), Ok(&b"a"[..]));
    assert!(
        guarded[5..]
            .iter()
            .all(|found| found.as_ref().is_err_and(|error| error.contains("cannot be opened")))
    );
    for allow_paths in [AllowPaths::Any, AllowPaths::Below(vec![outer.path()])] {
        let allowed = found(&SourceOptions { allow_paths, ..reading(&[]) });
        assert!(allowed[1..4].iter().all(|found| found.as_deref() == Ok(b"secret")));
    }
    // A root that is none.
    for (root, told) in [("none", "cannot open"), ("in/t.csv", "root is the file")] {
        let root = outer.path().join(root);
        let error =
            open(manifest(table.clone(), |manifest| manifest.root = Some(root.clone())), &reading(&[]));
        assert!(error.unwrap_err().to_string().contains(told));
    }
    // Another root.
    let source = open(manifest(table, |manifest| manifest.root = Some(outer.path())), &reading(&[])).unwrap();
    assert!(read(&source, 0).is_err());
    assert!(read(&source, 3).is_ok());
}

#[test]
fn names_without_an_ending_are_found() {
    let folder = Folder::new();
    folder.write("-abc.flac", "abc");
    folder.write("rec.1.OGG", "none");
    let path = folder.write("rec.txt", "0\t1\tx\n");
    folder.write("rec.mp3", "rec");
    let source = open(vec![path.into()], &reading(&[])).unwrap();
    assert_eq!(&read(&source, 0).unwrap().payload.bytes[..], b"rec");
    let source = open(vec![folder.write("t.csv", "YTID\n-abc\n").into()], &reading(&[])).unwrap();
    assert_eq!(&read(&source, 0).unwrap().payload.bytes[..], b"abc");
}

#[test]
fn rows_in_memory() {
    let text = |text: &str| GivenValue::Text(text.into());
    let rows = GivenRows::new(vec![
        ("audio".into(), vec![text("a.wav"), text("b.wav")]),
        ("start".into(), vec![GivenValue::Float(f64::NAN), GivenValue::Int(1)]),
        ("end".into(), vec![GivenValue::Null, GivenValue::Float(2.5)]),
        ("tags".into(), vec![GivenValue::List(vec![text("x"), text("y")]), GivenValue::Null]),
    ]);
    let folder = Folder::new();
    folder.write("b.wav", "b");
    let manifest = Manifest {
        rows: RowSource::Given(Arc::new(rows.unwrap())),
        root: Some(folder.path()),
        ..Manifest::of("")
    };
    let source = open(vec![Entry::Manifest(Arc::new(manifest))], &reading(&["tags"])).unwrap();
    assert_eq!(values(&source)[0], [r#"Text("a.wav")"#, r#"List([Text("x"), Text("y")])"#]);
    assert_eq!((segment(&source, 0), segment(&source, 1)), (None, Some(Segment::Seconds(1.0, 2.5))));
    assert_eq!(&read(&source, 1).unwrap().payload.bytes[..], b"b");
    let error = GivenRows::new(vec![("a".into(), vec![]), ("b".into(), vec![GivenValue::Null])]).unwrap_err();
    assert!(error.message.contains("column \"a\" has 0 rows and column \"b\" has 1"), "{error}");
}

#[test]
fn rows_take_few_bytes() {
    let n = 50_000;
    let rows: String =
        (0..n).map(|row| format!("a{:04}.ogg,{row}.0,{}.0,owl{}\n", row / 100, row + 5, row % 7)).collect();
    let source = table("a.csv", format!("path,start,end,label\n{rows}"), &[]).unwrap();
    assert_eq!(source.n_rows(), n);
    // Besides them the names of 500 files.
    assert!(source.table_bytes() <= 60 * n as usize, "{}", source.table_bytes());
}

#[test]
fn numbers_of_several_tables() {
    let folder = Folder::new();
    let tables: Vec<Entry> = vec![
        folder.write("a.csv", "path,n\na,1\n").into(),
        folder.write("b.csv", "path,n\nb,2.5\n").into(),
        folder.write("c.csv", "path,n\nb,\n").into(),
    ];
    let source = open(tables.clone(), &reading(&["n"])).unwrap();
    let numbers: Vec<_> = values(&source).iter().map(|row| row[1].clone()).collect();
    assert_eq!(numbers, ["Float(1.0)", "Float(2.5)", "Null"]);
    let text = folder.write("d.csv", "path,n\nb,x\n").into();
    let error = open([tables, vec![text]].concat(), &reading(&["n"])).unwrap_err();
    assert!(error.message.contains("column \"n\" is float64 in"), "{error}");
}

#[test]
fn columns_without_a_header() {
    let folder = Folder::new();
    let path = folder.write("t.csv", "a.wav,3\nb.wav,4\n");
    let named = |manifest: &mut Manifest| manifest.columns = Some(vec!["path".into(), "n".into()]);
    let source = open(manifest(path.clone(), named), &reading(&["n"])).unwrap();
    assert_eq!(values(&source), [[r#"Text("a.wav")"#, "Int(3)"], [r#"Text("b.wav")"#, "Int(4)"]]);
    let error = open(vec![path.into()], &reading(&["n"])).unwrap_err();
    assert!(error.message.contains("columns="), "{error}");
    // The first row has the name of a file, not a comment.
    let hash = folder.write("h.csv", "# a comment\n#1.wav,3\n#2.wav,4\n");
    let source = open(manifest(hash, named), &reading(&["n"])).unwrap();
    assert_eq!(values(&source), [[r##"Text("#1.wav")"##, "Int(3)"], [r##"Text("#2.wav")"##, "Int(4)"]]);
    // A header that is named again.
    let path = folder.write("u.csv", "path,n\nb.wav,4\n");
    let source = open(manifest(path, named), &reading(&["n"])).unwrap();
    assert_eq!(source.n_rows(), 1);
}
