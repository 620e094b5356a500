//! Truncated, overwritten and deceptive shards: complete rows are read, all others are errors.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod largest_allocation;
mod source_common;

use std::{fs, path::Path, sync::Arc};

use arrow_array::ArrayRef;
use forebay_base::ErrorKind;
use forebay_source::{ArrowSource, OpenFiles, ReadRows};
use largest_allocation::largest_allocation;
use source_common::*;

/// The largest allocation allowed for a shard of at most a few hundred kilobytes.
const ALLOWED: usize = 16 << 20;

/// Reads all rows of a shard that may be damaged, up to a limit.
fn read_within_reason(source: &Arc<ArrowSource>) {
    let n = source.n_rows();
    let mut reader = source.reader();
    for row in (0..n.min(120)).chain(n.saturating_sub(3)..n) {
        for run in [1, u64::MAX] {
            if let Err(error) = reader.row(row, run) {
                assert!(error.place.row.is_some() && error.place.shard.is_some(), "{error}");
            }
        }
        let _ = reader.path(row);
    }
    assert!(largest_allocation() < ALLOWED, "an allocation of {} bytes", largest_allocation());
}

/// A shard of some kilobytes with three batches.
fn small_shard(path: &Path, format: Format) {
    let batches = [0..6, 6..13, 14..20].map(|range| {
        let bytes: Vec<_> = range.clone().map(|i| (i % 5 != 2).then(|| vec![i as u8; 7 * i + 1])).collect();
        let paths =
            text_columns(&range.clone().map(|i| Some(format!("{i}.wav"))).collect::<Vec<_>>()).remove(0);
        let label: ArrayRef = Arc::new(arrow_array::Int64Array::from_iter_values(range.map(|i| i as i64)));
        let bytes = byte_columns(&bytes).remove(3);
        batch([("audio", audio_struct(bytes, paths)), ("label", label)])
    });
    write(path, format, &batches);
}

#[test]
fn cut_off_anywhere() {
    let folder = tempfile::tempdir().unwrap();
    for (n, format) in formats().into_iter().enumerate() {
        let whole = folder.path().join(format!("whole-{n}.arrow"));
        small_shard(&whole, format);
        let rows = oracle(&whole, "audio", Some("label"));
        let bytes = fs::read(&whole).unwrap();
        let path = folder.path().join(format!("cut-{n}.arrow"));
        let mut n_delivered_before = 0;
        // Odd steps keep this short and reach every offset within a word.
        for len in (0..bytes.len()).step_by(if format.compression.is_some() { 11 } else { 3 }) {
            fs::write(&path, &bytes[..len]).unwrap();
            let source = match open(std::slice::from_ref(&path)) {
                Ok(source) => source,
                Err(error) => panic!("cut at {len}: {error}"),
            };
            let shard = &source.shards()[0];
            assert!(shard.n_rows <= rows.len() as u64);
            if let Some(damage) = &shard.damage {
                assert_eq!(damage.kind, ErrorKind::Truncated, "cut at {len}: {damage}");
                assert_eq!(damage.place.shard.as_deref(), Some(&path));
            } else {
                // A cut between two messages of a stream cannot be detected.
                assert!(!format.is_file && [0, 6, 13, 19].contains(&shard.n_rows), "cut at {len}");
            }
            let (mut reader, mut n_delivered) = (source.reader(), 0);
            for at in 0..source.n_rows() {
                match reader.row(at, 1 + len as u64 % 3) {
                    Err(error) if error.kind == ErrorKind::Truncated => {
                        assert_eq!(error.place.row, Some(at));
                        assert!(error.place.byte.is_some(), "{error}");
                    }
                    read => {
                        check(&rows[at as usize], read, at);
                        n_delivered += 1;
                    }
                }
            }
            assert!(n_delivered >= n_delivered_before, "cut at {len}: fewer rows than when cut before");
            n_delivered_before = n_delivered;
        }
    }
}

#[test]
fn rows_before_the_cut_in_a_batch_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.arrow");
    let bytes: Vec<_> = (0..40).map(|i| Some(vec![i as u8; 1000])).collect();
    write(&path, Format::default(), &[batch([("audio", byte_columns(&bytes).remove(3))])]);
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() - 20_500]).unwrap();
    let source = open(&[path]).unwrap();
    assert_eq!(source.n_rows(), 40);
    let damage = source.shards()[0].damage.as_ref().unwrap();
    assert_eq!(damage.kind, ErrorKind::Truncated);
    let mut reader = source.reader();
    let kinds: Vec<_> = (0..40).map(|row| reader.row(row, 40 - row).err().map(|error| error.kind)).collect();
    let n_whole = kinds.iter().take_while(|kind| kind.is_none()).count();
    assert!((18..=20).contains(&n_whole), "{n_whole}");
    assert!(kinds[n_whole..].iter().all(|kind| *kind == Some(ErrorKind::Truncated)));
}

fn damage_of(folder: &Path, bytes: &[u8]) -> (u64, Option<ErrorKind>) {
    let path = folder.join("damaged.arrow");
    fs::write(&path, bytes).unwrap();
    let source = open(&[path]).unwrap();
    read_within_reason(&source);
    (source.n_rows(), source.shards()[0].damage.as_ref().map(|error| error.kind))
}

#[test]
fn ends_of_streams() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("whole.arrow");
    small_shard(&path, Format::default());
    let whole = fs::read(&path).unwrap();
    let no_end = &whole[..whole.len() - 8];
    assert_eq!(whole[whole.len() - 8..], [255, 255, 255, 255, 0, 0, 0, 0]);
    let damage = |bytes: &[u8]| damage_of(folder.path(), bytes);

    assert_eq!(damage(&whole), (19, None));
    assert_eq!(damage(no_end), (19, Some(ErrorKind::Truncated)));
    assert_eq!(damage(b""), (0, Some(ErrorKind::Truncated)));
    assert_eq!(damage(&[no_end, &[1, 2, 3]].concat()), (19, Some(ErrorKind::Truncated)));
    assert_eq!(damage(&[no_end, &[0x81; 4096]].concat()), (19, Some(ErrorKind::Format)));
    assert_eq!(
        damage(&[no_end, &[255, 255, 255, 255, 16, 0, 0, 0], &[9; 64]].concat()),
        (19, Some(ErrorKind::Format))
    );
    // Bytes after an end are not silently left out: another stream, or the zeros of a preallocated file.
    assert_eq!(damage(&[&whole[..], &whole].concat()), (19, Some(ErrorKind::Format)));
    assert_eq!(damage(&[no_end, &[0; 4096]].concat()), (19, Some(ErrorKind::Format)));
    // A second schema without an end before it.
    assert_eq!(damage(&[no_end, no_end].concat()), (19, Some(ErrorKind::Format)));
}

#[test]
fn a_file_without_its_footer_is_read_as_a_stream() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("whole.arrow");
    small_shard(&path, Format { is_file: true, compression: None });
    let whole = fs::read(&path).unwrap();
    let mut wrong_length = whole.clone();
    let at = whole.len() - 10;
    for length in [0, -1, i32::MAX, i32::MIN, 12, 1000] {
        wrong_length[at..at + 4].copy_from_slice(&i32::to_le_bytes(length));
        assert_eq!(damage_of(folder.path(), &wrong_length), (19, Some(ErrorKind::Format)), "{length}");
    }
    assert_eq!(damage_of(folder.path(), &whole[..whole.len() - 1]), (19, Some(ErrorKind::Truncated)));
}

#[test]
fn a_footer_that_names_a_block_twice_is_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("whole.arrow");
    let batches =
        [5000, 1, 1, 1].map(|len| batch([("audio", byte_columns(&[Some(vec![7; len])]).remove(3))]));
    write(&path, Format { is_file: true, compression: None }, &batches);
    let mut bytes = fs::read(&path).unwrap();
    let length_at = bytes.len() - 10;
    let footer_at = length_at - i32::from_le_bytes(bytes[length_at..][..4].try_into().unwrap()) as usize;
    let footer = arrow_ipc::root_as_footer(&bytes[footer_at..length_at]).unwrap();
    let blocks: Vec<_> = footer.recordBatches().unwrap().iter().map(|block| block.0).collect();
    for block in &blocks {
        let at = footer_at + bytes[footer_at..].windows(24).position(|bytes| bytes == block).unwrap();
        bytes[at..at + 24].copy_from_slice(&blocks[0]);
    }
    // The walk over the messages finds one row of each length.
    assert_eq!(damage_of(folder.path(), &bytes), (4, Some(ErrorKind::Format)));
}

#[test]
fn files_in_other_formats_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.arrow");
    let cases: [(&[u8], &str); 8] = [
        (b"PAR1\x15\x04\x15\x10", "Parquet"),
        (b"RIFF\x24\x00\x00\x00WAVEfmt ", "WAV"),
        (b"fLaC\x00\x00\x00\x22", "FLAC"),
        (b"version https://git-lfs.github.com/spec/v1", "git lfs pull"),
        (b"{\"a\": 1}\n", "text"),
        (b"PK\x03\x04", "ZIP"),
        (&[0; 5000], "unknown"),
        (&[0x10, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17], "unknown"),
    ];
    for (bytes, named) in cases {
        fs::write(&path, bytes).unwrap();
        let error = open(std::slice::from_ref(&path)).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Format, "{error}");
        let text = error.to_string();
        assert!(text.contains(named) && text.contains("a.arrow"), "{text}");
    }
    let missing = open(&[folder.path().join("missing.arrow")]).unwrap_err();
    assert_eq!(missing.kind, ErrorKind::NotFound);
    let of_folder = open(&[folder.path().into()]).unwrap_err();
    assert_eq!(of_folder.kind, ErrorKind::Format);
    assert!(of_folder.to_string().contains("a.arrow"), "{of_folder}");
    assert_eq!(open(&[]).unwrap_err().kind, ErrorKind::Config);
}
