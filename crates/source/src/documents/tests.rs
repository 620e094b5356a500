//! Lines compared with those of a plain split, in order and in any order, plain and compressed.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    sync::Arc,
};

use proptest::prelude::*;

use super::{
    lines::{LinesReader, LinesSource},
    *,
};
use crate::{contract::ReadRecords, seed::mix, storage::LocalFiles};

/// The rows of a text: its lines with more than blanks.
fn rows_of(text: &[u8]) -> Vec<Vec<u8>> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let lines = text.split(|&byte| byte == b'\n').filter(|line| !line.trim_ascii().is_empty());
    lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line).to_vec()).collect()
}

fn local() -> Arc<dyn Storage> {
    Arc::new(LocalFiles)
}

fn open(path: &Path, most: u64) -> Result<Arc<LinesSource>> {
    LinesSource::open(local(), &[path.to_path_buf()], most).map(Arc::new)
}

/// A row, or the kind of its error.
fn read(reader: &mut LinesReader, row: u64, run: u64) -> std::result::Result<Vec<u8>, ErrorKind> {
    reader
        .read(row, run, &crate::WholeRecord::ONCE)
        .map(|record| record.payload.bytes.to_vec())
        .map_err(|error| error.kind)
}

/// The text as files: plain, and compressed in streams that are cut at these places.
fn files(folder: &Path, text: &[u8], cuts: &[usize]) -> Vec<PathBuf> {
    let mut places: Vec<usize> = [0, text.len()].iter().chain(cuts).map(|&at| at.min(text.len())).collect();
    places.sort_unstable();
    let parts: Vec<&[u8]> = places.windows(2).map(|place| &text[place[0]..place[1]]).collect();
    let gzip = |part: &&[u8]| {
        let mut stream = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        stream.write_all(part).unwrap();
        stream.finish().unwrap()
    };
    let zstd = |part: &&[u8]| zstd::encode_all(*part, 1).unwrap();
    [
        ("a.txt", text.to_vec()),
        ("a.txt.gz", parts.iter().flat_map(gzip).collect()),
        ("a.txt.zst", parts.iter().flat_map(zstd).collect()),
    ]
    .map(|(name, bytes)| {
        let path = folder.join(name);
        fs::write(&path, bytes).unwrap();
        path
    })
    .to_vec()
}

/// Lines: of words, of blanks, with carriage returns, and some longer than a block.
fn text() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![
        20 => "[a-z ]{0,40}",
        2 => "[ \t]{0,9}",
        3 => "[a-z]{1,9}\r",
        1 => (1_usize..700_000).prop_map(|n| "x".repeat(n)),
    ];
    let lines = prop::collection::vec(line, 0..900).prop_map(|lines| lines.join("\n").into_bytes());
    (lines, any::<bool>(), any::<bool>()).prop_map(|(lines, ends, is_marked)| {
        let mark = if is_marked { &b"\xef\xbb\xbf"[..] } else { b"" };
        let end = if ends { &b"\n"[..] } else { b"" };
        [mark, &lines, end].concat()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn lines_are_those_of_a_split(
        text in text(),
        cuts in prop::collection::vec(0_usize..300_000, 0..9),
        picks in prop::collection::vec(any::<prop::sample::Index>(), 0..60),
        most in prop_oneof![Just(1 << 30), 1_u64..300_000],
    ) {
        let folder = tempfile::tempdir().unwrap();
        let limited = |row: &Vec<u8>| if row.len() as u64 > most { Err(ErrorKind::TooLarge) } else { Ok(row.clone()) };
        let expected: Vec<_> = rows_of(&text).iter().map(limited).collect();
        for path in files(folder.path(), &text, &cuts) {
            let source = open(&path, most).unwrap();
            prop_assert_eq!(source.n_rows(), expected.len() as u64);
            prop_assert_eq!(source.group_rows(0).sum::<u64>(), expected.len() as u64);
            let mut reader = source.reader();
            for (row, expected) in (0..).zip(&expected) {
                prop_assert_eq!(&read(&mut reader, row, source.n_rows() - row), expected);
            }
            if expected.is_empty() {
                continue;
            }
            for pick in &picks {
                let row = pick.index(expected.len());
                prop_assert_eq!(&read(&mut reader, row as u64, 1), &expected[row]);
            }
        }
    }
}

#[test]
fn groups_of_plain_files_and_of_streams() {
    let folder = tempfile::tempdir().unwrap();
    let line = |n: usize| format!("{n:05} {}\n", "word ".repeat(10));
    let text: String = (0..1000).map(line).collect();
    // A group ends after 256 rows; in a compressed file it begins with a stream, whose start may be within a
    // line.
    let width = line(0).len();
    let cuts = [100 * width, 300 * width + 7, 700 * width];
    let found = files(folder.path(), text.as_bytes(), &cuts).into_iter().map(|path| {
        let source = open(&path, 1 << 20).unwrap();
        source.group_rows(0).collect::<Vec<_>>()
    });
    let streams = vec![301, 399, 300];
    assert_eq!(found.collect::<Vec<_>>(), [vec![256, 256, 256, 232], streams.clone(), streams]);
    // Or after a MiB of text.
    let text: String = (0..9).map(|n| format!("{}\n", n.to_string().repeat(400_000))).collect();
    let [plain, ..] = &files(folder.path(), text.as_bytes(), &[])[..] else { panic!() };
    assert_eq!(open(plain, 1 << 20).unwrap().group_rows(0).collect::<Vec<_>>(), [3, 3, 3]);
}

#[test]
fn a_kept_index_gives_the_same_rows() {
    let folder = tempfile::tempdir().unwrap();
    let text: String = (0..40_000).map(|n| format!("{n} {}\n", "abc ".repeat(n % 60))).collect();
    let cache = folder.path().join("cache");
    let sidecars = crate::ranged::sidecar::Sidecars::in_folder(&cache);
    for path in files(folder.path(), text.as_bytes(), &[1 << 20, 3 << 20]) {
        let path: Arc<Path> = path.into();
        // Only the index of a large file is kept.
        let is_large = fs::metadata(&path).unwrap().len() >= 4 << 20;
        let before = fs::read_dir(&cache).map_or(0, Iterator::count);
        let [made, again] =
            [0; 2].map(|_| line_index::LineIndex::of(&local(), &path, &sidecars).unwrap().groups);
        assert_eq!(made, again);
        assert_eq!(made.iter().map(|group| group.n_rows).sum::<u64>(), 40_000);
        assert_eq!(fs::read_dir(&cache).map_or(0, Iterator::count) - before, usize::from(is_large));
    }
}

#[test]
fn damaged_streams_keep_the_rows_before_the_damage() {
    let folder = tempfile::tempdir().unwrap();
    let mut seed = 1_u64;
    let mut word = || {
        seed = mix(seed);
        format!("{seed:x}")
    };
    let text: String = (0..60_000).map(|_| format!("{} {}\n", word(), word())).collect();
    let rows = rows_of(text.as_bytes());
    for path in &files(folder.path(), text.as_bytes(), &[1 << 20])[1..] {
        let whole = fs::read(path).unwrap();
        fs::write(path, &whole[..whole.len() * 3 / 4]).unwrap();
        let source = open(path, 1 << 20).unwrap();
        let [shard] = source.shards() else { panic!() };
        assert!(matches!(shard.damage.as_ref().unwrap().kind, ErrorKind::Truncated | ErrorKind::Corrupt));
        let n = source.n_rows();
        assert!(n > 10_000 && n < 60_000, "{n}");
        let mut reader = source.reader();
        for row in (0..n).rev().step_by(997).chain([n - 1]) {
            assert_eq!(read(&mut reader, row, 1).unwrap(), rows[row as usize]);
        }
        fs::write(path, &whole[..9]).unwrap();
        assert!(open(path, 1 << 20).unwrap_err().kind.is_record());
    }
}

#[test]
fn few_bytes_do_not_become_gigabytes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bomb.txt.zst");
    let mut stream = zstd::Encoder::new(fs::File::create(&path).unwrap(), 1).unwrap();
    let piece = "a\n".repeat(1 << 19);
    for _ in 0..300 {
        stream.write_all(piece.as_bytes()).unwrap();
    }
    stream.finish().unwrap();
    assert_eq!(open(&path, 1 << 20).unwrap_err().kind, ErrorKind::TooLarge);
}

#[test]
fn a_changed_file_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.txt");
    fs::write(&path, "a\nb\n").unwrap();
    let source = open(&path, 1 << 20).unwrap();
    fs::write(&path, "a\nb\nc\n").unwrap();
    let error = source.reader().read(1, 1, &crate::WholeRecord::ONCE).unwrap_err();
    assert!(!error.kind.is_record(), "{error}");
    assert!(error.to_string().contains("changed"), "{error}");
}

fn opened(folder: &Path, names: &[(&str, &[u8])], column: &str) -> Result<DocumentSource> {
    let path = |(name, bytes): &(&str, &[u8])| {
        let path = folder.join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let paths: Vec<_> = names.iter().map(path).collect();
    DocumentSource::open(local(), &paths, (&TextContent::Texts, column), None)
}

#[test]
fn what_is_no_file_of_documents() {
    let folder = tempfile::tempdir().unwrap();
    for (names, kind, part) in [
        (&[("a.csv", &b"text\na\n"[..])][..], ErrorKind::Format, "is not Parquet, Arrow, JSON lines or text"),
        (&[("a.jsonl", b"{\"text\": \"a\"}"), ("b.txt", b"a")], ErrorKind::Config, "is JSON lines and"),
        (&[("a.jsonl", b"abc\n")], ErrorKind::Format, "no JSON object"),
        (&[("a.jsonl", b"[\"text\"]\n")], ErrorKind::Format, "no JSON object"),
        (&[("a.json", b"{\n  \"text\": \"a\"\n}\n")], ErrorKind::Format, "no JSON object"),
        (
            &[("a.jsonl", b"{\"body\": \"a\"}\n")],
            ErrorKind::Schema,
            "no field \"text\" in the first line, which has \"body\"",
        ),
        (&[], ErrorKind::Config, "no files"),
    ] {
        let error = opened(folder.path(), names, "text").unwrap_err();
        assert_eq!(error.kind, kind, "{error}");
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn the_form_of_documents() {
    let folder = tempfile::tempdir().unwrap();
    let lines = b"{\"m\": {\"t\": \"one\"}}\n\n{\"m\": {\"t\": null}}\n{\"m\"\n{\"m\": {\"t\": \"\"}}\n";
    let source = Arc::new(opened(folder.path(), &[("a.jsonl", lines)], "m.t").unwrap());
    assert_eq!((source.n_rows(), source.row_groups().len()), (4, 1));
    let mut reader = Source::reader(&source);
    let mut text = |row| {
        let record = ReadRecords::read(&mut reader, row, 1, &crate::WholeRecord::ONCE)?;
        source.form().text(&record.payload.bytes).map(Cow::into_owned)
    };
    assert_eq!(text(0).unwrap(), "one");
    let kinds = [1, 2, 3].map(|row| text(row).unwrap_err().kind);
    assert_eq!(kinds, [ErrorKind::Unreadable, ErrorKind::Corrupt, ErrorKind::Empty]);
    // A first line whose text is null has the field.
    assert!(opened(folder.path(), &[("b.jsonl", b"{\"text\": null}\n")], "text").is_ok());
    let source = Arc::new(opened(folder.path(), &[("a.txt", b"one\n \ntwo\xff\n")], "text").unwrap());
    let texts: Vec<_> = (0..source.n_rows())
        .map(|row| {
            let record = Source::reader(&source);
            let mut record = record;
            let record = ReadRecords::read(&mut record, row, 1, &crate::WholeRecord::ONCE).unwrap();
            source.form().text(&record.payload.bytes).map(Cow::into_owned).map_err(|error| error.kind)
        })
        .collect();
    assert_eq!(texts, [Ok("one".to_owned()), Err(ErrorKind::Corrupt)]);
}
