//! Data folders of Kaldi: rows, columns, arks, and what is wrong with them.

use super::*;

const SCP: &str = "r1 audio/a.wav\nr2\taudio/b c.wav \n\nr3 audio/a.wav\n";
const SEGMENTS: &str = "u1 r2 0.5 1.25\nu2 r1 0 2\nu3 r1 2 -1\n";

fn data_folder(files: &[(&str, &str)]) -> Folder {
    let folder = Folder::new();
    files.iter().for_each(|(name, text)| drop(folder.write(name, text)));
    folder
}

fn opened(files: &[(&str, &str)], columns: &[&str]) -> Result<Arc<Recordings>> {
    open(vec![data_folder(files).path().into()], &reading(columns))
}

/// The values of all rows, one line for each.
fn told(source: &Arc<Recordings>) -> Vec<String> {
    values(source).iter().map(|row| row.join(" ")).collect()
}

fn segments(source: &Arc<Recordings>) -> Vec<Option<Segment>> {
    let reader = source.tables().unwrap().reader();
    (0..source.n_rows()).map(|row| reader.segment(row)).collect()
}

#[test]
fn rows_are_recordings_or_segments() {
    let recordings = opened(&[("wav.scp", SCP)], &["utterance", "recording"]).unwrap();
    let expected = [
        r#"Text("audio/a.wav") Text("r1") Text("r1")"#,
        r#"Text("audio/b c.wav") Text("r2") Text("r2")"#,
        r#"Text("audio/a.wav") Text("r3") Text("r3")"#,
    ];
    assert_eq!(told(&recordings), expected);
    assert_eq!(segments(&recordings), [None, None, None]);
    // The line of a row is that of its recording.
    let error = read(&recordings, 2).unwrap_err();
    assert!(error.message.starts_with("line 4: the file \"audio/a.wav\" cannot be opened"), "{error}");
    let files = [
        ("wav.scp", SCP),
        ("segments", SEGMENTS),
        // Another order, and an utterance that is no row.
        ("text", "u3 three\nu0 none\nu1 one  and more \nu2\n"),
        ("utt2spk", "u1 s1\nu2 s1\nu3 s2\n"),
    ];
    let columns = ["utterance", "recording", "speaker", "text", "start", "end", "duration"];
    let segmented = opened(&files, &columns).unwrap();
    let expected = [
        r#"Text("audio/b c.wav") Text("u1") Text("r2") Text("s1") Text("one  and more") Float(0.5) Float(1.25) Float(0.75)"#,
        r#"Text("audio/a.wav") Text("u2") Text("r1") Text("s1") Text("") Float(0.0) Float(2.0) Float(2.0)"#,
        r#"Text("audio/a.wav") Text("u3") Text("r1") Text("s2") Text("three") Float(2.0) Null Null"#,
    ];
    assert_eq!(told(&segmented), expected);
    let seconds = |start, end| Some(Segment::Seconds(start, end));
    assert_eq!(segments(&segmented), [seconds(0.5, 1.25), seconds(0.0, 2.0), seconds(2.0, f64::INFINITY)]);
    let listed: Vec<_> = segmented.contents().schema.iter().map(|column| &*column.name).collect();
    assert_eq!(listed, ["utterance", "recording", "start", "end", "duration", "speaker", "text"]);
}

#[test]
fn durations_of_utterances_and_of_recordings() {
    for (name, text) in [("utt2dur", "r3 3\nr2 2.5\nr1 1\n"), ("reco2dur", "r1 1\nr2 2.5\nr3 3\n")] {
        let source = opened(&[("wav.scp", SCP), (name, text)], &["duration"]).unwrap();
        let found: Vec<_> = values(&source).into_iter().map(|mut row| row.pop().unwrap()).collect();
        assert_eq!(found, ["Float(1.0)", "Float(2.5)", "Float(3.0)"], "{name}");
    }
    // Durations of recordings are none of segments.
    let files = [("wav.scp", SCP), ("segments", SEGMENTS), ("reco2dur", "r1 9\nr2 9\nr3 9\n")];
    let source = opened(&files, &["duration"]).unwrap();
    assert_eq!(values(&source)[0].last().unwrap(), "Float(0.75)");
}

#[test]
fn rows_are_those_of_a_plain_table() {
    let folder = data_folder(&[("wav.scp", SCP), ("segments", SEGMENTS), ("text", "u1 x\nu2 y\nu3 z\n")]);
    let csv = "path,start,end,text\naudio/b c.wav,0.5,1.25,x\naudio/a.wav,0,2,y\naudio/a.wav,2,,z\n";
    let plain = table("t.csv", csv, &["text"]).unwrap();
    let by_folder = open(vec![folder.path().into()], &reading(&["text"])).unwrap();
    let by_script = open(vec![folder.path().join("wav.scp").into()], &reading(&["text"])).unwrap();
    let by_manifest = open(manifest(folder.path(), |_| {}), &reading(&["text"])).unwrap();
    for source in [by_folder, by_script, by_manifest] {
        assert_eq!(source.fingerprint(), plain.fingerprint());
    }
    // Beside a table that is called metadata, a script is no table of the folder.
    folder.write("audio/a.wav", "x");
    folder.write("metadata.csv", "path\naudio/a.wav\n");
    assert_eq!(open(vec![folder.path().into()], &reading(&[])).unwrap().n_rows(), 1);
}

#[test]
fn what_is_wrong_is_told_with_file_line_column_and_value() {
    let scp = ("wav.scp", SCP);
    let segments = ("segments", SEGMENTS);
    for (files, file, expected) in [
        (vec![("wav.scp", "r1 a.wav\nr1 b.wav\n")], "wav.scp", "line 2: the recording \"r1\" is there twice"),
        (vec![("wav.scp", "r1 a.wav\nr2\n")], "wav.scp", "line 2: the recording \"r2\" has no path"),
        (
            vec![("wav.scp", "r1 sph2pipe -f wav a.sph |\n")],
            "wav.scp",
            "line 1: the recording \"r1\" is the command \"sph2pipe -f wav a.sph |\", and no command is run; write the \
             recordings once, as with wav-copy",
        ),
        (vec![("wav.scp", "r1 -\n")], "wav.scp", "is the command \"-\""),
        (
            vec![("wav.scp", "r1 a.ark:99999999999999999999\n")],
            "wav.scp",
            "line 1: \"a.ark:99999999999999999999\" has no offset that a file can have",
        ),
        (vec![("wav.scp", "\n")], "wav.scp", "it has no lines"),
        (vec![("wav.scp", "r1 https:/a.b/c.wav\n")], "wav.scp", "begins with https:"),
        (vec![scp, ("segments", "")], "segments", "it has no lines"),
        (
            vec![scp, ("segments", "u1 r1 0 1\nu1 r2 0 1\n")],
            "segments",
            "line 2: the utterance \"u1\" is there twice",
        ),
        (
            vec![scp, ("segments", "u1 r9 0 1\n")],
            "segments",
            "line 1: column \"recording\": the utterance \"u1\" is of \"r9\", which is not in wav.scp",
        ),
        (
            vec![scp, ("segments", "u1 r1 0 1\nu2 r1 2 1.5\n")],
            "segments",
            "line 2: column \"end\" is 1.5 and \"start\" is 2",
        ),
        (
            vec![scp, ("segments", "u1 r1 1 1\n")],
            "segments",
            "line 1: column \"end\" is 1 and \"start\" is 1",
        ),
        (vec![scp, ("segments", "u1 r1 -1 1\n")], "segments", "line 1: column \"start\" is -1, must be 0 or"),
        (
            vec![scp, ("segments", "u1 r1 x 1\n")],
            "segments",
            "line 1: column \"start\" is \"x\", must be sec",
        ),
        (
            vec![scp, ("segments", "u1 r1 0 inf\n")],
            "segments",
            "line 1: column \"end\" is \"inf\", must be sec",
        ),
        (vec![scp, ("segments", "u1 r1 0\n")], "segments", "line 1: the utterance \"u1\" has too few fields"),
        (
            vec![scp, ("segments", "u1 r1 0 1 A\n")],
            "segments",
            "line 1: the utterance \"u1\" has more fields",
        ),
        (
            vec![scp, segments, ("text", "u1 x\nu3 z\n")],
            "text",
            "text has no line for the utterance \"u2\", which is in segments",
        ),
        (vec![scp, ("text", "r1 x\nr2 y\nr1 z\n")], "text", "line 3: the utterance \"r1\" is there twice"),
        (vec![scp, ("text", "r1 x\nr2 y\n")], "text", "the utterance \"r3\", which is in wav.scp"),
    ] {
        let folder = data_folder(&files);
        let error = open(vec![folder.path().into()], &reading(if file == "text" { &["text"] } else { &[] }));
        let error = error.unwrap_err();
        assert!(error.message.contains(expected), "{error}");
        let place = error.place.shard.as_deref().unwrap();
        assert_eq!(place, &folder.path().join(file), "{error}");
    }
    let error = opened(&[scp, ("utt2dur", "r1 1\nr2 x\nr3 3\n")], &["duration"]).unwrap_err();
    assert!(error.message.contains("line 2: column \"duration\" is \"x\", must be 0 or more"), "{error}");
    let error = opened(&[scp], &["text"]).unwrap_err();
    assert!(error.message.contains("no column \"text\"; the columns are \"utterance\", \"rec"), "{error}");
    let folder = data_folder(&[]);
    folder.write("wav.scp", b"r1 a.wav\nr2 caf\xe9.wav\n");
    let error = open(vec![folder.path().into()], &reading(&[])).unwrap_err();
    assert!(error.message.contains("line 2: byte 6 of the line is not UTF-8"), "{error}");
    let folder = data_folder(&[scp]);
    let refused = |expected: &str, change: &dyn Fn(&mut Manifest)| {
        let error = open(manifest(folder.path(), change), &reading(&[])).unwrap_err();
        assert!(error.message.contains(expected), "{error}");
    };
    refused("path_column is of tables", &|manifest| manifest.path_column = Some("x".into()));
    refused("unit=", &|manifest| manifest.unit = Unit::Samples);
    refused("root names archives", &|manifest| manifest.root = Some("a.tar".into()));
    let error = open(manifest(data_folder(&[("a.wav", "x")]).path(), |_| {}), &reading(&[])).unwrap_err();
    assert!(error.message.contains("which has no table that is known by its name"), "{error}");
}

#[test]
fn marks_of_byte_order_and_links_to_nothing() {
    let marked = |text: &str| format!("\u{feff}{text}");
    let [scp, text] = ["u1 a.wav\n", "u1 one\n"].map(marked);
    let source = opened(&[("wav.scp", &scp), ("text", &text)], &["utterance", "text"]).unwrap();
    assert_eq!(told(&source), [r#"Text("a.wav") Text("u1") Text("one")"#]);
    let folder = data_folder(&[("wav.scp", SCP)]);
    std::os::unix::fs::symlink("nowhere", folder.path().join("segments")).unwrap();
    let error = open(vec![folder.path().into()], &reading(&[])).unwrap_err();
    assert_eq!(error.kind, ErrorKind::NotFound, "{error}");
    for (line, expected) in
        [("r1 s1 more\n", "the speaker is \"s1 more\""), ("r1\n", "must be one name without spaces")]
    {
        let files = [("wav.scp", "r1 a.wav\n"), ("utt2spk", line)];
        let error = opened(&files, &["speaker"]).unwrap_err();
        assert!(error.message.contains(expected), "{error}");
    }
}

/// A RIFF file of that many bytes after its size.
fn riff(len: u32, content: u8) -> Vec<u8> {
    // bounded: a constant of these tests.
    [b"RIFF", &len.to_le_bytes()[..], &[content].repeat(len as usize)].concat()
}

#[test]
fn recordings_in_arks() {
    let folder = Folder::new();
    let (one, other) = (riff(40, 1), riff(300, 2));
    let any = [&b"AUDIO\x02"[..], &300u16.to_le_bytes(), &[3; 300]].concat();
    let mut ark = Vec::new();
    let mut place = |name: &str, bytes: &[u8]| {
        ark.extend_from_slice(name.as_bytes());
        ark.push(b' ');
        ark.extend_from_slice(bytes);
        ark.len() - bytes.len()
    };
    let places = [
        place("a", &one),
        place("b", &other),
        place("c", &any),
        place("d", b"\0BFM \x04"),
        place("e", b"plain text, no recording"),
        place("f", &[b"RIFF", &u32::MAX.to_le_bytes()[..], &[4; 40]].concat()),
        // As SoX writes it to a pipe.
        place("f2", &[b"RIFF", &0x7fff_f024_u32.to_le_bytes()[..], &[4; 40]].concat()),
        place("g", &riff(1000, 5)[..500]),
    ];
    let size = ark.len();
    folder.write("wav.ark", &ark);
    folder.write("own:1x.wav", &one);
    let mut script: String =
        places.iter().enumerate().map(|(n, at)| format!("r{n} wav.ark:{at}\n")).collect();
    script += &format!("past wav.ark:{size}\nown own:1x.wav\nmissing no.ark:3\noutside ../x.ark:0\n");
    folder.write("wav.scp", script);
    let source = open(vec![folder.path().into()], &reading(&[])).unwrap();
    let bytes = |row| read(&source, row).map(|record| record.payload.bytes.to_vec());
    assert_eq!(bytes(0).unwrap(), one);
    assert_eq!(bytes(1).unwrap(), other);
    assert_eq!(bytes(2).unwrap(), [3; 300]);
    // What is cut off is for the decoder to say.
    assert_eq!(bytes(7).unwrap(), riff(1000, 5)[..500]);
    assert_eq!(bytes(9).unwrap(), one);
    for (row, kind, expected) in [
        (3, ErrorKind::Unsupported, "is a matrix or a vector, as of features"),
        (4, ErrorKind::Unsupported, "there is no WAV (RIFF)"),
        (5, ErrorKind::Unsupported, "does not say how long it is (4294967295 bytes)"),
        (6, ErrorKind::Unsupported, "does not say how long it is (2147479588 bytes)"),
        (8, ErrorKind::Truncated, &format!("the ark has {size} bytes, and the recording is at byte {size}")),
        (10, ErrorKind::Unreadable, "line 11: the file \"no.ark\" cannot be opened below"),
        (11, ErrorKind::Unreadable, "line 12: the file \"../x.ark\" "),
    ] {
        let error = read(&source, row).unwrap_err();
        assert_eq!(error.kind, kind, "{error}");
        assert!(error.message.contains(expected), "{error}");
    }
    // An ark is opened once, whatever the number of its rows.
    let opened = source.read_counts().unwrap().opened;
    (0..3).for_each(|row| drop(bytes(row).unwrap()));
    assert_eq!(source.read_counts().unwrap().opened, opened);
    source.try_first(None, &[]).unwrap();
    folder.write("wav.scp", "a no.ark:1\nb no.ark:2\n");
    let error = open(vec![folder.path().into()], &reading(&[])).unwrap().try_first(None, &[]).unwrap_err();
    assert!(error.message.contains("root="), "{error}");
}

#[test]
fn a_file_outside_needs_permission() {
    let folder = Folder::new();
    folder.write("x.ark", riff(40, 1));
    let data = folder.write("data/wav.scp", "a ../x.ark:0\n");
    let source = open(vec![data.clone().into()], &reading(&[])).unwrap();
    let error = read(&source, 0).unwrap_err();
    assert!(error.message.contains("is not below the folder"), "{error}");
    let options = SourceOptions { allow_paths: AllowPaths::Any, ..reading(&[]) };
    assert_eq!(read(&open(vec![data.into()], &options).unwrap(), 0).unwrap().payload.bytes.len(), 48);
}
