//! Names the format of a file by its first bytes, for the message that it is not the one expected.

/// What a file that starts so is, with its article.
pub(crate) fn name(start: &[u8]) -> &'static str {
    match start {
        [b'A', b'R', b'R', b'O', b'W', b'1', ..] => "an Arrow IPC file",
        [0xff, 0xff, 0xff, 0xff, ..] => "an Arrow IPC stream",
        [b'P', b'A', b'R', b'1', ..] => "a Parquet file",
        [b'P', b'A', b'R', b'E', ..] => "an encrypted Parquet file",
        [b'R', b'I', b'F', b'F' | b'X', ..] => "a WAV file",
        [b'f', b'L', b'a', b'C', ..] => "a FLAC file",
        [b'O', b'g', b'g', b'S', ..] => "an Ogg file",
        [b'I', b'D', b'3', ..] => "an MP3 file",
        [b'P', b'K', ..] => "a ZIP archive",
        [0x1f, 0x8b, ..] => "a gzip file",
        [0x28, 0xb5, 0x2f, 0xfd, ..] => "a Zstandard file",
        [b'F', b'E', b'A', b'1', ..] => "a Feather version 1 file",
        [b'v', b'e', b'r', b's', b'i', b'o', b'n', b' '] => {
            "a Git LFS pointer; fetch the file itself with `git lfs pull`"
        }
        _ if start.iter().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace()) => "a text file",
        _ => "an unknown format",
    }
}
