//! The cache of processed documents: written documents are read back, and no committed document is lost.
//!
//! Other libraries read the same in `tests/python/cache/test_cache.py`, `zarrs` among them.
#![allow(clippy::unwrap_used, reason = "tests")]

#[cfg(debug_assertions)]
#[path = "../../../tests/patience/mod.rs"]
mod patience;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use forebay_base::{Error, ErrorKind, seed::mix};
use forebay_cache::{
    BatchColumn, CacheReader, CacheWriter, ChunkCompression, Ledger, Processed, WriterOptions,
    build::{
        Build, BuildPlan, Commits, Interleaving, Process, Processor, Skips,
        inputs::{Files, InputRows, Limits, PIECE_BYTES, Projection},
    },
};
use forebay_engine::{engine::Policy, fields::DataType};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Document `i`: ids that identify document and position, and a matrix.
fn document(i: u64) -> (Vec<u16>, [u64; 2], Vec<f32>) {
    // Some are empty, some longer than a chunk.
    let n = if i.is_multiple_of(97) { 20_000 } else { i * i % 53 };
    let ids = (0..n).map(|at| (i * 31 + at) as u16).collect();
    let shape = [i % 4 + 1, i % 7];
    (ids, shape, (0..shape[0] * shape[1]).map(|at| i as f32 + at as f32 / 8.0).collect())
}

fn processed(documents: std::ops::Range<u64>) -> Processed {
    let mut ids = BatchColumn::flat("prompt/input_ids", DataType::Uint16, Vec::new(), Vec::new());
    let mut features =
        BatchColumn { rank: 2, ..BatchColumn::flat("features", DataType::Float32, Vec::new(), Vec::new()) };
    for i in documents.clone() {
        let (tokens, shape, matrix) = document(i);
        ids.lengths.push(tokens.len() as u64);
        ids.data.extend(tokens.iter().flat_map(|id| id.to_le_bytes()));
        features.lengths.push(matrix.len() as u64);
        features.shapes.extend(shape);
        features.data.extend(matrix.iter().flat_map(|value| value.to_le_bytes()));
    }
    Processed { documents: documents.end - documents.start, columns: vec![ids, features] }
}

fn options(compression: ChunkCompression) -> WriterOptions {
    let made_by = json!({"processor": "test"}).as_object().cloned().unwrap_or_default();
    WriterOptions { compression, made_by, shards: vec!["a".into()], overwrite: false }
}

fn open(path: &Path, compression: ChunkCompression) -> CacheWriter {
    CacheWriter::open(path, "train", options(compression)).unwrap()
}

/// Writes the documents up to the last of `stops`, with a commit at each. If `is_cut`, the writer is dropped
/// there with uncommitted documents and opened again.
fn write(path: &Path, compression: ChunkCompression, stops: &[u64], is_cut: bool) {
    let mut writer = open(path, compression);
    let mut at = 0;
    for &stop in stops {
        writer.append("a", Some(processed(at..stop))).unwrap();
        writer.advance("a", false);
        writer.commit().unwrap();
        at = stop;
        if is_cut {
            writer.append("a", Some(processed(stop..stop + 100))).unwrap();
            drop(writer);
            writer = open(path, compression);
            assert_eq!((writer.documents(), writer.ledger().shards["a"].documents), (stop, stop));
        }
    }
    writer.advance("a", true);
    writer.finish().unwrap();
}

/// Every file of a folder with its bytes; the ledger without its counts of batches.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap().to_string_lossy().into_owned();
                all.push((name, fs::read(path).unwrap()));
            }
        }
    }
    all.retain(|(name, _)| !name.ends_with("shard_ledger.json"));
    all.sort();
    all
}

fn u16s(bytes: &[u8]) -> Vec<u16> {
    bytes.chunks_exact(2).map(|id| u16::from_le_bytes([id[0], id[1]])).collect()
}

#[test]
fn documents_and_values_are_read_back() {
    for compression in [ChunkCompression::None, ChunkCompression::Zstd(1)] {
        let folder = TempDir::new().unwrap();
        write(folder.path(), compression, &[1, 500, 3000], false);
        let reader = CacheReader::open(folder.path(), "train").unwrap();
        assert_eq!((reader.length().unwrap().documents, reader.length().unwrap().is_final), (3000, true));
        let names: Vec<_> = reader.fields().iter().map(|field| (&field.name[..], field.rank())).collect();
        assert_eq!(names, [("features", 2), ("prompt/input_ids", 1)]);

        let ids = reader.field("prompt/input_ids").unwrap();
        let all: Vec<u16> = (0..3000).flat_map(|i| document(i).0).collect();
        assert_eq!(reader.flat_len(ids).unwrap(), all.len() as u64);
        for (start, n) in [(0, all.len()), (8191, 2), (12_345, 70_000), (all.len() - 1, 1), (all.len(), 0)] {
            let mut out = vec![0; n * 2];
            reader.read_flat(ids, start as u64, &mut out).unwrap();
            assert_eq!(u16s(&out), all[start..start + n]);
        }
        let wanted = [2999, 0, 5, 6, 7, 5, 97, 1500];
        for (field, is_ids) in [(ids, true), (reader.field("features").unwrap(), false)] {
            let found = reader.documents(field, &wanted).unwrap();
            let (mut start, mut shapes) = (0, found.shapes.iter());
            for (&i, &end) in wanted.iter().zip(&found.ends) {
                let (tokens, shape, matrix) = document(i);
                if is_ids {
                    assert_eq!(u16s(&found.data[start * 2..end as usize * 2]), tokens);
                    assert_eq!(shapes.next(), Some(&(tokens.len() as u64)));
                } else {
                    let expected: Vec<u8> = matrix.iter().flat_map(|value| value.to_le_bytes()).collect();
                    assert_eq!(found.data[start * 4..end as usize * 4], expected);
                    assert_eq!([shapes.next(), shapes.next()], [Some(&shape[0]), Some(&shape[1])]);
                }
                start = end as usize;
            }
        }
        let ends = reader.offsets(ids, 0..3000).unwrap();
        for value in (0..all.len() as u64).step_by(7).chain([all.len() as u64 - 1]) {
            let document = reader.document_of(ids, value).unwrap() as usize;
            assert!(
                ends[document] <= value && value < ends[document + 1],
                "value {value}: document {document}"
            );
        }
        for error in [
            reader.documents(ids, &[3000]).unwrap_err(),
            reader.offsets(ids, 0..3001).unwrap_err(),
            reader.document_of(ids, all.len() as u64).unwrap_err(),
            reader.read_flat(ids, all.len() as u64 - 1, &mut [0; 4]).unwrap_err(),
        ] {
            assert_eq!(error.kind, ErrorKind::Index, "{error}");
        }
        assert_eq!(reader.read_flat(ids, 0, &mut [0; 3]).unwrap_err().kind, ErrorKind::Shape);
    }
}

/// Bytes without the CRC-32C that ends them.
fn checked(bytes: &[u8]) -> &[u8] {
    let (bytes, sum) = bytes.split_last_chunk().unwrap();
    assert_eq!(crc32c::crc32c(bytes), u32::from_le_bytes(*sum));
    bytes
}

fn summed(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
    bytes
}

fn i64s(bytes: &[u8]) -> Vec<i64> {
    bytes.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect()
}

/// The number of offsets in an array, its chunks, the number of chunks in a full shard, and the files, as the
/// specification of Zarr says.
fn chunks(array: &Path) -> (usize, Vec<Vec<i64>>, usize, Vec<PathBuf>) {
    let metadata: Value = serde_json::from_slice(&fs::read(array.join("zarr.json")).unwrap()).unwrap();
    let number = |at: &str| metadata.pointer(at).and_then(Value::as_u64).unwrap() as usize;
    let names = |at: &str| -> Vec<Value> {
        metadata.pointer(at).unwrap().as_array().unwrap().iter().map(|codec| codec["name"].clone()).collect()
    };
    assert_eq!(metadata["data_type"], "int64");
    assert_eq!(names("/codecs"), ["sharding_indexed"]);
    assert_eq!(names("/codecs/0/configuration/codecs"), ["bytes", "zstd", "crc32c"]);
    let n = number("/shape/0");
    let shard_rows = number("/chunk_grid/configuration/chunk_shape/0");
    let chunk_rows = number("/codecs/0/configuration/chunk_shape/0");
    let n_chunks = shard_rows / chunk_rows;
    let files: Vec<_> = (0..n.div_ceil(shard_rows)).map(|shard| array.join(format!("c/{shard}"))).collect();
    let mut found = Vec::new();
    for file in &files {
        let file = fs::read(file).unwrap();
        let index = i64s(checked(&file[file.len() - 16 * n_chunks - 4..]));
        let left = n.div_ceil(chunk_rows) - found.len();
        found.extend(index.as_chunks().0.iter().take(left).map(|&[at, len]| {
            let chunk = zstd::decode_all(checked(&file[at as usize..(at + len) as usize])).unwrap();
            assert_eq!(chunk.len(), 8 * chunk_rows);
            i64s(&chunk)
        }));
    }
    (n, found, n_chunks, files)
}

fn load(array: &Path) -> Vec<i64> {
    let (n, chunks, ..) = chunks(array);
    let mut found = chunks.concat();
    found.truncate(n);
    found
}

/// Replaces the offsets of an array of one shard.
fn store(array: &Path, values: &[i64]) {
    let (n, chunks, n_chunks, files) = chunks(array);
    assert_eq!((n, files.len()), (values.len(), 1));
    let chunk_rows = chunks[0].len();
    let (mut file, mut index) = (Vec::new(), Vec::new());
    for part in values.chunks(chunk_rows) {
        let mut bytes: Vec<u8> = part.iter().flat_map(|value| value.to_le_bytes()).collect();
        bytes.resize(8 * chunk_rows, 0);
        let chunk = summed(zstd::encode_all(&bytes[..], 1).unwrap());
        index.extend([file.len() as u64, chunk.len() as u64].map(u64::to_le_bytes).concat());
        file.extend(chunk);
    }
    // Missing chunks.
    index.resize(16 * n_chunks, 0xff);
    file.extend(summed(index));
    fs::write(&files[0], file).unwrap();
}

/// The offsets decrease only between chunks; within each chunk they are in order.
#[test]
fn ends_that_decrease_from_chunk_to_chunk_are_damage() {
    const CHUNK: usize = 2048;
    let folder = TempDir::new().unwrap();
    write(folder.path(), ChunkCompression::None, &[3000], false);
    let offsets = folder.path().join("train/prompt/input_ids/offsets");
    let mut all = load(&offsets);
    let before = all[CHUNK - 1];
    assert!(all.len() == 3001 && before > 1);
    all[CHUNK..].iter_mut().for_each(|end| *end -= before - 1);
    store(&offsets, &all);
    assert_eq!(load(&offsets), all);

    let reader = CacheReader::open(folder.path(), "train").unwrap();
    let ids = reader.field("prompt/input_ids").unwrap();
    let document = CHUNK as u64 - 1;
    let errors = [
        reader.documents(ids, &[document]).map(drop),
        reader.documents(ids, &[3, document, 5]).map(drop),
        reader.offsets(ids, 0..3000).map(drop),
        reader.offsets(ids, document..document + 1).map(drop),
    ];
    for found in errors {
        let error = found.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Corrupt, "{error}");
        assert!(error.message.contains("is followed by"), "{error}");
    }
    reader.documents(ids, &[document - 1]).unwrap();
}

/// More documents than a shard of `offsets` holds: the first shard is full, and its first entry still
/// changes.
#[test]
fn many_small_documents() {
    let folder = TempDir::new().unwrap();
    let one = |n: u64| {
        let data: Vec<u8> = (0..n).map(|i| i as u8).collect();
        let column =
            BatchColumn { rank: 0, ..BatchColumn::flat("label", DataType::Uint8, data, vec![1; n as usize]) };
        Processed { documents: n, columns: vec![column] }
    };
    let committed = || {
        let offsets = load(&folder.path().join("train/label/offsets"));
        (offsets.len() as u64, offsets[0], offsets[offsets.len() - 1])
    };
    let mut writer = open(folder.path(), ChunkCompression::None);
    for (documents, total) in [(65_535, 65_535), (1, 65_536), (10, 65_546), (100_000, 165_546)] {
        writer.append("a", Some(one(documents))).unwrap();
        writer.commit().unwrap();
        assert_eq!(committed(), (total + 1, total as i64, total as i64));
        writer = {
            drop(writer);
            open(folder.path(), ChunkCompression::None)
        };
        assert_eq!(committed(), (total + 1, total as i64, total as i64));
    }
    writer.finish().unwrap();
    let reader = CacheReader::open(folder.path(), "train").unwrap();
    assert_eq!(reader.document_of(0, 100_000).unwrap(), 100_000);
    let some = reader.documents(0, &[65_534, 65_535, 65_536]).unwrap();
    assert_eq!((some.data, some.shapes), (vec![254, 0, 0], vec![]));
}

#[test]
fn a_growing_cache_shows_what_is_committed() {
    let folder = TempDir::new().unwrap();
    assert_eq!(CacheReader::open(folder.path(), "train").unwrap_err().kind, ErrorKind::NotFound);
    let mut writer = open(folder.path(), ChunkCompression::None);
    let reader = CacheReader::open(folder.path(), "train").unwrap();
    assert_eq!((reader.length().unwrap().documents, reader.fields().len()), (0, 0));
    writer.append("a", Some(processed(0..10))).unwrap();
    assert_eq!(reader.refresh().unwrap().documents, 0);
    writer.commit().unwrap();
    assert_eq!((reader.length().unwrap().documents, reader.refresh().unwrap().documents), (0, 10));
    let first = reader.documents(1, &[9, 3]).unwrap();
    writer.append("a", Some(processed(10..4000))).unwrap();
    assert_eq!(reader.documents(1, &[10]).unwrap_err().kind, ErrorKind::Index);
    writer.commit().unwrap();
    assert_eq!(reader.wait_until(11, &|| false).unwrap().documents, 4000);
    assert_eq!(reader.documents(1, &[9, 3]).unwrap(), first);
    assert_eq!(u16s(&reader.documents(1, &[3999]).unwrap().data), document(3999).0);
    assert_eq!(reader.wait_until(5000, &|| true).unwrap().documents, 4000);

    writer.fail(&Error::new(ErrorKind::Io, "the disk is full")).unwrap();
    let error = reader.refresh().unwrap_err();
    assert_eq!(error.kind, ErrorKind::State);
    assert!(error.message.ends_with("failed: the disk is full"), "{error}");
    let mut writer = open(folder.path(), ChunkCompression::None);
    assert_eq!((writer.documents(), reader.refresh().unwrap().documents), (4000, 4000));
    writer.finish().unwrap();
    assert!(reader.refresh().unwrap().is_final);
}

#[test]
fn less_documents_than_before_is_an_error() {
    let folder = TempDir::new().unwrap();
    let mut writer = open(folder.path(), ChunkCompression::None);
    writer.append("a", Some(processed(0..10))).unwrap();
    writer.commit().unwrap();
    let reader = CacheReader::open(folder.path(), "train").unwrap();
    drop(writer);
    let again = WriterOptions { overwrite: true, ..options(ChunkCompression::None) };
    let writer = CacheWriter::open(folder.path(), "train", again).unwrap();
    assert_eq!(writer.documents(), 0);
    let error = reader.refresh().unwrap_err();
    assert_eq!(error.kind, ErrorKind::State);
    assert!(error.message.contains("it had 10 documents and has 0"), "{error}");
}

#[test]
fn one_writer_at_a_time_and_the_same_source() {
    let folder = TempDir::new().unwrap();
    let writer = open(folder.path(), ChunkCompression::None);
    let error = CacheWriter::open(folder.path(), "train", options(ChunkCompression::None)).unwrap_err();
    assert!(error.kind == ErrorKind::State && error.message.starts_with("another writer has"), "{error}");
    drop(writer);
    let other = || WriterOptions {
        made_by: json!({"processor": "another"}).as_object().cloned().unwrap_or_default(),
        shards: vec!["a".into(), "b".into()],
        ..options(ChunkCompression::None)
    };
    CacheWriter::open(folder.path(), "train", other()).expect("no document was committed, so none is lost");
    let mut writer = open(folder.path(), ChunkCompression::None);
    writer.append("a", Some(processed(0..10))).unwrap();
    writer.commit().unwrap();
    drop(writer);
    let error = CacheWriter::open(folder.path(), "train", other()).unwrap_err();
    for part in ["processor was \"test\" and is \"another\"", "the shard \"b\" is new", "overwrite=True"] {
        assert!(error.message.contains(part), "{error}");
    }
}

/// Every file below a folder.
fn tree(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut all = files(folder);
    let ledger = folder.join("train/shard_ledger.json");
    all.extend(fs::read(&ledger).ok().map(|bytes| (ledger.display().to_string(), bytes)));
    all
}

/// A folder of a split that is not a cache of forebay stays unchanged, with and without `overwrite`.
#[test]
fn a_folder_that_is_no_cache_of_ours_is_left_alone() {
    let other = json!({"total_num_rows": 0, "shard_rows": {}, "is_finished": false, "finished_shards": [],
        "field_counts": {}, "metadata": {"preprocessor_metadata": {}}});
    type Files<'a> = &'a [(&'a str, &'a str)];
    let cases: [(Files<'_>, ErrorKind, &str); 6] = [
        (&[("train/a.jsonl", "{}"), ("train/deep/b", "b")], ErrorKind::State, "\"a.jsonl\", \"deep\""),
        (&[("train/.writer", "mine")], ErrorKind::State, "is not empty"),
        (&[("train/x/data/zarr.json", "{}")], ErrorKind::State, "is not empty"),
        (&[("train/shard_ledger.json", "{\"total")], ErrorKind::Format, "is not the ledger of a cache"),
        (
            &[("train/shard_ledger.json", &other.to_string()), ("train/x", "x")],
            ErrorKind::State,
            "another program",
        ),
        (
            &[("zarr.json", "{\"zarr_format\": 3, \"node_type\": \"array\"}")],
            ErrorKind::State,
            "no cache can be written",
        ),
    ];
    for (content, kind, part) in cases {
        for overwrite in [false, true] {
            let folder = TempDir::new().unwrap();
            for (name, text) in content {
                let path = folder.path().join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            let before = tree(folder.path());
            let asked = WriterOptions { overwrite, ..options(ChunkCompression::None) };
            let error = CacheWriter::open(folder.path(), "train", asked).unwrap_err();
            assert_eq!(error.kind, kind, "{error}");
            assert!(error.message.contains(part), "{error}");
            assert_eq!(tree(folder.path()), before);
            assert!(
                content[0].0 == "zarr.json"
                    || content[0].0.ends_with(".writer")
                    || !folder.path().join("train/.writer").exists()
            );
        }
    }
    let folder = TempDir::new().unwrap();
    for split in ["", ".", "..", "a/b", "/tmp/elsewhere", "a/"] {
        let error = CacheWriter::open(folder.path(), split, options(ChunkCompression::None)).unwrap_err();
        assert!(error.kind == ErrorKind::Config && error.message.starts_with("split is"), "{error}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// A shard inside the cache's folder is refused, also if a cache exists there.
#[test]
fn inputs_are_never_inside_the_target() {
    let folder = TempDir::new().unwrap();
    write(folder.path(), ChunkCompression::None, &[10], false);
    let input = folder.path().join("train/prompt/a.txt");
    fs::write(&input, "text").unwrap();
    let before = tree(folder.path());
    let name = folder.path().join("train/../train/prompt/a.txt").to_string_lossy().into_owned();
    for overwrite in [false, true] {
        let asked =
            WriterOptions { shards: vec![name.clone()], overwrite, ..options(ChunkCompression::None) };
        let error = CacheWriter::open(folder.path(), "train", asked).unwrap_err();
        assert!(error.kind == ErrorKind::Config && error.message.contains("a.txt"), "{error}");
    }
    assert_eq!(tree(folder.path()), before);
}

/// `overwrite` removes the files of the cache, and no other.
#[test]
fn foreign_files_survive_an_overwrite() {
    let folder = TempDir::new().unwrap();
    write(folder.path(), ChunkCompression::None, &[500], false);
    let old = files(folder.path());
    let foreign = [
        "notes.txt",
        "train/notes.tmp",
        "train/prompt/mine.txt",
        "train/prompt/input_ids/data/c/mine",
        "train/features/shapes/c/0/1",
        "train/features/notes/a",
    ];
    for name in foreign {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, name).unwrap();
    }
    let elsewhere = TempDir::new().unwrap();
    fs::create_dir_all(elsewhere.path().join("data/c")).unwrap();
    fs::write(elsewhere.path().join("data/c/0"), "mine").unwrap();
    let all = || tree(folder.path()).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    let kept = |name: &&String| foreign.contains(&name.as_str());
    // Neither resuming nor a new beginning touches any of them.
    drop(open(folder.path(), ChunkCompression::None));
    let again = WriterOptions { overwrite: true, ..options(ChunkCompression::None) };
    drop(CacheWriter::open(folder.path(), "train", again.clone()).unwrap());
    assert_eq!(all().iter().filter(kept).count(), foreign.len());
    let ours = ["train/.writer", "train/zarr.json", "zarr.json"];
    assert!(
        all()
            .iter()
            .filter(|name| !kept(name))
            .all(|name| ours.contains(&name.as_str()) || name.ends_with("ledger.json"))
    );
    write(folder.path(), ChunkCompression::None, &[500], false);
    let mut new = files(folder.path());
    new.retain(|(name, _)| !foreign.contains(&name.as_str()));
    assert_eq!(new, old);
    #[cfg(unix)]
    {
        // A link is not a folder of the cache: its target stays.
        fs::remove_dir_all(folder.path().join("train/features")).unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), folder.path().join("train/features")).unwrap();
        let error = CacheWriter::open(folder.path(), "train", again).unwrap_err();
        assert!(
            error.kind == ErrorKind::State && error.message.contains("train/features is where"),
            "{error}"
        );
        assert_eq!(fs::read(elsewhere.path().join("data/c/0")).unwrap(), b"mine");
    }
}

/// Links further in are not followed either, on resuming and on a new beginning; no file is changed then.
#[cfg(unix)]
#[test]
fn links_within_a_field_are_refused() {
    use std::os::unix::fs::symlink;
    let elsewhere = TempDir::new().unwrap();
    fs::create_dir_all(elsewhere.path().join("c")).unwrap();
    for name in ["zarr.json", "c/0", "c/7"] {
        fs::write(elsewhere.path().join(name), name).unwrap();
    }
    let untouched = tree(elsewhere.path());
    let places = [
        ("features/data", ""),
        ("features/data/c", "c"),
        ("features/shapes/c/0", "c"),
        ("features/offsets/c/0", "c/0"),
        ("features/zarr.json", "zarr.json"),
    ];
    for (place, target) in places {
        let folder = TempDir::new().unwrap();
        write(folder.path(), ChunkCompression::None, &[500], false);
        let place = folder.path().join("train").join(place);
        if place.is_dir() { fs::remove_dir_all(&place) } else { fs::remove_file(&place) }.unwrap();
        symlink(elsewhere.path().join(target), &place).unwrap();
        let ledger = fs::read(folder.path().join("train/shard_ledger.json")).unwrap();
        for overwrite in [false, true] {
            let asked = WriterOptions { overwrite, ..options(ChunkCompression::None) };
            let error = CacheWriter::open(folder.path(), "train", asked).unwrap_err();
            assert!(
                error.kind == ErrorKind::State && error.message.contains("is where the field"),
                "{error}"
            );
            assert!(error.message.contains(&place.display().to_string()), "{error}");
        }
        assert_eq!(fs::read(folder.path().join("train/shard_ledger.json")).unwrap(), ledger);
        assert_eq!(tree(elsewhere.path()), untouched);
    }
    // The first file that a writer writes is not followed if it is a link.
    let folder = TempDir::new().unwrap();
    write(folder.path(), ChunkCompression::None, &[500], false);
    symlink(elsewhere.path().join("c/0"), folder.path().join("train/.shard_ledger.json.forebay-part"))
        .unwrap();
    write(folder.path(), ChunkCompression::None, &[500], false);
    assert_eq!(tree(elsewhere.path()), untouched);
}

/// An existing folder in the place of a field's is not written into, and the user's attributes of the group
/// stay.
#[test]
fn a_field_takes_no_folder_that_is_not_its_own() {
    let folder = TempDir::new().unwrap();
    fs::write(
        folder.path().join("zarr.json"),
        r#"{"zarr_format": 3, "node_type": "group", "attributes": {"mine": 1}}"#,
    )
    .unwrap();
    let mut writer = open(folder.path(), ChunkCompression::None);
    let path = folder.path().join("train/features/data/c");
    fs::create_dir_all(&path).unwrap();
    fs::write(path.join("0"), "mine").unwrap();
    let error = writer.append("a", Some(processed(0..10))).unwrap_err();
    assert!(
        error.kind == ErrorKind::State && error.message.contains("\"features\" is to be written"),
        "{error}"
    );
    drop(writer);
    let again = WriterOptions { overwrite: true, ..options(ChunkCompression::None) };
    drop(CacheWriter::open(folder.path(), "train", again).unwrap());
    assert_eq!(fs::read(path.join("0")).unwrap(), b"mine");
    assert!(fs::read_to_string(folder.path().join("zarr.json")).unwrap().contains("mine"));
}

/// A writer that dies before its first commit, or while it removes a cache, leaves no files that the next one
/// refuses or keeps.
#[test]
fn a_killed_writer_does_not_block_the_next_one() {
    let whole = TempDir::new().unwrap();
    write(whole.path(), ChunkCompression::None, &[500], false);
    let wanted = tree(whole.path());
    let folder = TempDir::new().unwrap();
    fs::create_dir_all(folder.path().join("train")).unwrap();
    fs::write(folder.path().join("train/.writer"), "").unwrap();
    fs::write(folder.path().join("train/.shard_ledger.json.forebay-part"), "{").unwrap();
    let mut writer = open(folder.path(), ChunkCompression::None);
    let mut other = processed(0..300);
    other.columns[0].name = "aside".into();
    writer.append("a", Some(other)).unwrap();
    drop(writer);
    assert!(folder.path().join("train/aside/data/c").exists());
    // The removal of a cache stops in the middle: its ledger names the fields, and some files are gone.
    drop(open(folder.path(), ChunkCompression::None));
    write(folder.path(), ChunkCompression::None, &[500], false);
    assert_eq!(relative(&tree(folder.path()), folder.path()), relative(&wanted, whole.path()));
    let ledger = Ledger::read(&folder.path().join("train")).unwrap().unwrap();
    let begun = Ledger {
        fields: ledger.fields.clone(),
        shards: ledger.shards.keys().map(|name| (name.clone(), Default::default())).collect(),
        ..Ledger::default()
    };
    begun.write(&folder.path().join("train")).unwrap();
    fs::remove_file(folder.path().join("train/features/data/c/0")).unwrap();
    write(folder.path(), ChunkCompression::None, &[500], false);
    assert_eq!(relative(&tree(folder.path()), folder.path()), relative(&wanted, whole.path()));
}

fn relative(files: &[(String, Vec<u8>)], folder: &Path) -> Vec<(String, Vec<u8>)> {
    let strip = |name: &str| name.trim_start_matches(&folder.display().to_string()).to_owned();
    files.iter().map(|(name, bytes)| (strip(name), bytes.clone())).collect()
}

#[test]
fn documents_that_do_not_fit_are_refused() {
    let folder = TempDir::new().unwrap();
    let one = |columns: Vec<BatchColumn>| Processed { documents: 1, columns };
    let flat = |name: &str, dtype, data: Vec<u8>| {
        let n = data.len() as u64 / DataType::bytes(dtype) as u64;
        BatchColumn::flat(name, dtype, data, vec![n])
    };
    let mut writer = open(folder.path(), ChunkCompression::None);
    writer.append("a", Some(one(vec![flat("x", DataType::Uint8, vec![1, 2])]))).unwrap();
    // Integers that fit are accepted in any type, and so is a document without values.
    writer.append("a", Some(one(vec![flat("x", DataType::Int16, vec![3, 0])]))).unwrap();
    writer.append("a", Some(one(vec![flat("x", DataType::Float64, vec![])]))).unwrap();
    for (columns, part) in [
        (vec![flat("x", DataType::Int16, vec![0, 1])], "256 does not fit into uint8"),
        (vec![flat("x", DataType::Float64, vec![0; 8])], "values of float64 now and had uint8 before"),
        (vec![flat("y", DataType::Uint8, vec![1])], "the fields y (rank 1), expected"),
        (
            vec![flat("x", DataType::Uint8, vec![1]), flat("x/y", DataType::Uint8, vec![1])],
            "conflict: one path repeats",
        ),
        (vec![flat("../x", DataType::Uint8, vec![1])], "is not allowed as the name of a field"),
        (vec![flat("data", DataType::Uint8, vec![1])], "is not allowed as the name of a field"),
    ] {
        let error = writer.append("a", Some(one(columns))).unwrap_err();
        assert!(error.kind == ErrorKind::Schema && error.message.contains(part), "{error}");
    }
    writer.finish().unwrap();
    let reader = CacheReader::open(folder.path(), "train").unwrap();
    assert_eq!(reader.documents(0, &[0, 1, 2]).unwrap().data, [1, 2, 3]);
}

#[test]
fn damage_is_found() {
    let folder = TempDir::new().unwrap();
    write(folder.path(), ChunkCompression::None, &[500], false);
    let path = folder.path().join("train/prompt/input_ids/data/c/0");
    let mut bytes = fs::read(&path).unwrap();
    bytes[1000] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let reader = CacheReader::open(folder.path(), "train").unwrap();
    let error = reader.read_flat(1, 0, &mut [0; 8]).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Corrupt);
    assert!(error.to_string().contains("input_ids/data/c/0"), "{error}");
    fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    let reader = CacheReader::open(folder.path(), "train").unwrap();
    assert_eq!(reader.read_flat(1, 0, &mut [0; 8]).unwrap_err().kind, ErrorKind::Corrupt);
    fs::write(folder.path().join("train/shard_ledger.json"), b"{\"total").unwrap();
    assert_eq!(CacheReader::open(folder.path(), "train").unwrap_err().kind, ErrorKind::Format);
}

/// The files are the same for any commits and cuts: 6 of them, times `FOREBAY_SOAK`.
#[test]
fn bytes_do_not_depend_on_commits() {
    let soak: u64 = std::env::var("FOREBAY_SOAK").map_or(1, |times| times.parse().unwrap());
    for seed in 0..6 * soak {
        let compression = if seed % 2 == 0 { ChunkCompression::Zstd(1) } else { ChunkCompression::None };
        let mut stops: Vec<u64> = (0..=mix(seed) % 5).map(|i| mix(seed << 8 | i) % 1500).collect();
        stops.push(1500);
        stops.sort_unstable();
        let (one, many) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        write(one.path(), compression, &[1500], false);
        write(many.path(), compression, &stops, true);
        assert_eq!(files(one.path()), files(many.path()), "seed {seed}");
        let ledger = Ledger::read(&many.path().join("train")).unwrap().unwrap();
        assert_eq!((ledger.documents, ledger.shards["a"].documents), (1500, 1500));
    }
}

/// Keeps lines as bytes; refuses those with `bad`, and fails, as a user's function may, on one with `fail`.
struct Lines(bool);

impl Processor<InputRows> for Lines {
    fn worker(&self) -> Box<dyn Process<InputRows>> {
        Box::new(Self(self.0))
    }
}

impl Process<InputRows> for Lines {
    fn process(&mut self, rows: InputRows, skips: &mut Skips<'_>) -> forebay_base::Result<Processed> {
        let InputRows::Text(lines) = rows else { panic!("lines") };
        let mut column = BatchColumn::flat("bytes", DataType::Uint8, Vec::new(), Vec::new());
        for (row, line) in lines.iter().enumerate() {
            if line.contains("fail") && self.0 {
                return Err(forebay_base::Error::new(ErrorKind::Io, "a disk that comes and goes"));
            }
            if line.contains("bad") {
                skips.refused(row as u64, forebay_base::Error::new(ErrorKind::Corrupt, line.clone()))?;
                continue;
            }
            column.data.extend_from_slice(line.as_bytes());
            column.lengths.push(line.len() as u64);
        }
        Ok(Processed { documents: column.lengths.len() as u64, columns: vec![column] })
    }
}

/// The size of the pieces that are read changes no byte, no choice of documents left out, and no resume of a
/// failed build.
#[test]
fn pieces_of_batches_change_nothing() {
    let folder = TempDir::new().unwrap();
    let shards: Vec<_> = (0..3)
        .map(|shard| {
            let path = folder.path().join(format!("{shard}.txt"));
            let line = |i: usize| {
                let word = if i % 11 == 3 {
                    "bad"
                } else if (shard, i) == (1, 37) {
                    "fail"
                } else {
                    "fine"
                };
                format!("{word} {shard} {i}{}\n", " word".repeat(i * 7 % 20))
            };
            // The last batch of one shard is full, of another not; one shard has none.
            fs::write(&path, (0..[60, 53, 0][shard]).map(line).collect::<String>()).unwrap();
            path
        })
        .collect();
    for order in [Interleaving::RoundRobin, Interleaving::Concat] {
        let build = |name: &str, piece_bytes: u64, n_workers: usize, fails: bool| {
            let path = folder.path().join(format!("{name}-{order:?}"));
            let limits = Limits { piece_bytes, ..Limits::default() };
            let files = Files::new(shards.clone(), Projection::All, limits).unwrap();
            let policy = Policy { skip_bad: true, ..Policy::default() };
            let options = WriterOptions { shards: Vec::new(), ..options(ChunkCompression::None) };
            let plan = BuildPlan {
                path: path.clone(),
                split: "train".into(),
                batch_size: 10,
                order,
                n_workers,
                fields: None,
                policy,
                commits: Commits::default(),
                options,
            };
            let build = Build::start(plan, files, Lines(fails)).unwrap();
            let ended = loop {
                if let Some(ended) = build.wait(std::time::Duration::from_secs(1)) {
                    break ended;
                }
            };
            (path, ended)
        };
        let (whole, ended) = build("whole", u64::MAX, 1, false);
        assert_eq!(ended.unwrap(), 113 - 11);
        let ledger = |path: &Path| Ledger::read(&path.join("train")).unwrap().unwrap();
        for (name, piece_bytes, n_workers) in
            [("lines", 1, 1), ("some", 100, 3), ("more", 300, 2), ("usual", PIECE_BYTES, 3)]
        {
            let (path, ended) = build(name, piece_bytes, n_workers, true);
            assert_eq!(ended.unwrap_err().kind, ErrorKind::Io);
            // No batch is committed in part: batches have 10 rows, of which the bad ones are left out.
            let failed = ledger(&path);
            for standing in failed.shards.values().filter(|standing| !standing.is_finished) {
                let bad = (0..standing.batches * 10).filter(|i| i % 11 == 3).count() as u64;
                assert_eq!(standing.documents, standing.batches * 10 - bad, "{name}");
            }
            assert_eq!(build(name, piece_bytes, n_workers, false).1.unwrap(), 113 - 11);
            assert!(files(&path) == files(&whole), "{name}, {order:?}");
            assert_eq!(ledger(&path), ledger(&whole), "{name}, {order:?}");
        }
    }
}

/// Builds that the system refuses a thread.
#[cfg(debug_assertions)]
mod refused {
    use super::*;
    use forebay_cache::build::{DocumentPiece, ReadShard, Shards};

    /// A shard without an end; each reader of it counts as long as it lives.
    struct Endless(Vec<String>, Arc<()>);

    impl Shards for Endless {
        type Batch = InputRows;

        fn names(&self) -> &[String] {
            &self.0
        }

        fn open(
            &self,
            _shard: usize,
            _skip: u64,
            size: u64,
        ) -> forebay_base::Result<Box<dyn ReadShard<InputRows>>> {
            Ok(Box::new(EndlessReader(size, self.1.clone())))
        }
    }

    struct EndlessReader(u64, #[expect(dead_code, reason = "counts")] Arc<()>);

    impl ReadShard<InputRows> for EndlessReader {
        fn next(&mut self, _skips: &mut Skips<'_>) -> forebay_base::Result<Option<DocumentPiece<InputRows>>> {
            let lines = vec!["a line".to_owned(); self.0 as usize];
            Ok(Some(DocumentPiece::whole(InputRows::Text(lines), self.0)))
        }
    }

    fn endless(readers: &Arc<()>) -> Endless {
        Endless((0..3).map(|shard| shard.to_string()).collect(), readers.clone())
    }

    /// If the system refuses the n-th thread, the threads before it end, with their files. Without the writer
    /// they would wait forever for room.
    #[test]
    fn a_build_that_cannot_start_leaves_no_thread() {
        // Three workers and the writer.
        for n_started in 0..4 {
            let folder = TempDir::new().unwrap();
            let readers = Arc::new(());
            let plan = || BuildPlan {
                path: folder.path().to_owned(),
                split: "train".into(),
                batch_size: 1000,
                order: Interleaving::RoundRobin,
                n_workers: 3,
                fields: None,
                policy: Policy::default(),
                commits: Commits::default(),
                options: WriterOptions { shards: Vec::new(), ..options(ChunkCompression::None) },
            };
            forebay_engine::engine::inject_refused_thread(Some(n_started));
            let error = Build::start(plan(), endless(&readers), Lines(false)).unwrap_err();
            forebay_engine::engine::inject_refused_thread(None);
            assert_eq!(error.kind, ErrorKind::Io, "{error}");
            patience::until("the workers have ended", || Arc::strong_count(&readers) == 1);
            // The cache is free again; the drop ends the build.
            Build::start(plan(), endless(&readers), Lines(false)).unwrap();
        }
    }
}
