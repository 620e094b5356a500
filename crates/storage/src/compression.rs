//! Compressed text: gzip and zstd, by the ending of a file's name.
//!
//! Input: a name and compressed bytes. Output: the name without `.gz` or `.zst`, and the text. Several
//! streams after each other are one text, as `gunzip` and `zstd -d` have it. Memory is bounded: gzip needs
//! 32 KiB, zstd at most its default limit of 128 MiB, whatever a stream claims. The length of the text is not
//! bounded here.

use std::{
    ffi::OsStr,
    io::{self, BufRead, Read},
    path::Path,
};

/// The most bytes of text for each byte of a compressed table, beyond a constant: as of compressed buffers in
/// Arrow and Parquet.
pub const USUAL_RATIO: u64 = 64;

/// How a file of text is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    Gzip,
    Zstd,
}

impl Compression {
    /// The name of the file without its folder and the ending of its compression, and that compression.
    pub fn split(path: &Path) -> (&Path, Option<Self>) {
        let ending = path.extension().and_then(OsStr::to_str).unwrap_or_default();
        let compression = match () {
            () if ending.eq_ignore_ascii_case("gz") => Self::Gzip,
            () if ending.eq_ignore_ascii_case("zst") => Self::Zstd,
            () => return (Path::new(path.file_name().unwrap_or_default()), None),
        };
        (Path::new(path.file_stem().unwrap_or_default()), Some(compression))
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }

    /// The text of compressed bytes.
    ///
    /// # Errors
    /// `OutOfMemory` if zstd has no memory.
    pub fn decoder<'a>(self, bytes: impl BufRead + Send + 'a) -> io::Result<Box<dyn Read + Send + 'a>> {
        Ok(match self {
            Self::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(bytes)),
            Self::Zstd => Box::new(zstd::stream::read::Decoder::with_buffer(bytes)?),
        })
    }
}

/// Whether zstd refuses a window of more than its default limit, 2^27 bytes. The reader keeps only zstd's
/// message, not its code.
pub fn is_wide_window(error: &io::Error) -> bool {
    use zstd::zstd_safe::{get_error_name, zstd_sys::ZSTD_ErrorCode};
    let code = ZSTD_ErrorCode::ZSTD_error_frameParameter_windowTooLarge as usize;
    error.kind() == io::ErrorKind::Other && error.to_string() == get_error_name(code.wrapping_neg())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_compressed_files() {
        for (path, name, compression) in [
            ("a/b.csv", "b.csv", None),
            ("a/b.csv.gz", "b.csv", Some(Compression::Gzip)),
            ("b.jsonl.ZST", "b.jsonl", Some(Compression::Zstd)),
            ("a.gz/b", "b", None),
            (".gz", ".gz", None),
            ("", "", None),
        ] {
            assert_eq!(Compression::split(Path::new(path)), (Path::new(name), compression), "{path}");
        }
    }
}
