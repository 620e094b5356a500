//! The first bytes that identify file formats, and the formats' names in messages.
//!
//! Formats of recordings that need more than the first bytes are detected in `crates/audio/src/sniff.rs`.
//!
//! Source: the formats' specifications.

/// An Arrow IPC file, at its start and its end.
pub const ARROW: [u8; 6] = *b"ARROW1";
/// The start of each message of an Arrow IPC stream.
pub const ARROW_MESSAGE: [u8; 4] = [0xff; 4];
/// A Parquet file, at its start and its end.
pub const PARQUET: [u8; 4] = *b"PAR1";
/// A Parquet file whose footer is encrypted.
pub const ENCRYPTED_PARQUET: [u8; 4] = *b"PARE";
pub const FLAC: [u8; 4] = *b"fLaC";
/// A page of an Ogg file.
pub const OGG: [u8; 4] = *b"OggS";
/// A RIFF file, as most WAV files are.
pub const RIFF: [u8; 4] = *b"RIFF";
/// A tag before MPEG audio, mostly.
pub const ID3: [u8; 3] = *b"ID3";
const LFS: &[u8] = b"version https://git-lfs";

/// Files that users mistake for shards or recordings: first bytes and name with its article.
const FILES: [(&[u8], &str); 7] = [
    (&ARROW, "an Arrow IPC file"),
    (&PARQUET, "a Parquet file"),
    (&ENCRYPTED_PARQUET, "an encrypted Parquet file"),
    (b"PK\x03\x04", "a ZIP archive"),
    (b"\x1f\x8b", "a gzip file"),
    (b"\x28\xb5\x2f\xfd", "a Zstandard file"),
    (LFS, "a Git LFS pointer; fetch the file itself with `git lfs pull`"),
];

/// The name, with its article, of a known format that is not a recording.
pub fn file(start: &[u8]) -> Option<&'static str> {
    FILES.iter().find(|(magic, _)| start.starts_with(magic)).map(|(_, name)| *name)
}

/// The name of the format of a file that is not a shard, by its first 8 bytes.
pub fn name(start: &[u8]) -> &'static str {
    let start = if LFS.starts_with(start) && start.len() == 8 { LFS } else { start };
    if let Some(name) = file(start) {
        return name;
    }
    let others: [(&[u8], &str); 7] = [
        (&ARROW_MESSAGE, "an Arrow IPC stream"),
        (&RIFF, "a WAV file"),
        (b"RIFX", "a WAV file"),
        (&FLAC, "a FLAC file"),
        (&OGG, "an Ogg file"),
        (&ID3, "an MP3 file"),
        (b"FEA1", "a Feather version 1 file"),
    ];
    match others.iter().find(|(magic, _)| start.starts_with(magic)) {
        Some((_, name)) => name,
        None if start.iter().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace()) => {
            "a text file"
        }
        None => "an unknown format",
    }
}
