//! Pieces of the lines of a file: objects of JSON, or texts.

use std::{
    io::{self, BufRead, BufReader, Read},
    path::Path,
};

use serde_json::Value;

use super::{BatchPosition, InputRows, PIECE_BYTES};
use crate::{
    Error, ErrorKind, Result,
    build::{DocumentPiece, ReadShard, Skips},
    fallible_alloc,
    json::{self, NoValue},
    source::{FileFormat, JsonLineError},
    storage::compression::{Compression, is_wide_window},
};

/// The most bytes of a line, and of consecutive blank lines; above it, reading ends with an error.
const LONGEST_LINE: u64 = 1 << 31;
/// How many times `max_record_bytes` the values of a line of JSON may take, if that is more than
/// [`PIECE_BYTES`].
const JSON_FACTOR: u64 = 4;

pub(super) struct LineReader {
    lines: Box<dyn BufRead + Send>,
    is_json: bool,
    line: u64,
    at: BatchPosition,
}

impl LineReader {
    /// Opens the file at `path`, whose bytes are `file`.
    pub(super) fn open(
        file: Box<dyn Read + Send>,
        path: &Path,
        format: FileFormat,
        skip: u64,
        at: BatchPosition,
    ) -> Result<Self> {
        let bytes = match Compression::split(path).1 {
            Some(compression) => compression
                .decoder(BufReader::new(file))
                .map_err(|error| Error::io(path, "decompress", error))?,
            None => file,
        };
        // bounded: a constant.
        let lines = Box::new(BufReader::with_capacity(1 << 20, bytes));
        let mut lines = Self { lines, is_json: format == FileFormat::JsonLines, line: 0, at };
        for _ in 0..skip {
            if lines.read()?.is_none() {
                break;
            }
        }
        Ok(lines)
    }

    /// The next line without its end, or the error of this line alone; of JSON, the next line that is not
    /// blank.
    fn read(&mut self) -> Result<Option<Result<String>>> {
        let mut blank = 0;
        loop {
            let mut line = Vec::new();
            let n = self.read_line(&mut line)?;
            if n == 0 {
                return Ok(None);
            }
            self.line += 1;
            let limit = self.at.limits.max_record_bytes;
            if n > limit && line.len() as u64 > limit {
                let message = format!("line {} has {n} bytes, max_record_bytes allows {limit}", self.line);
                return Ok(Some(Err(Error::new(ErrorKind::TooLarge, message))));
            }
            if !self.is_json || !line.trim_ascii().is_empty() {
                return Ok(Some(String::from_utf8(line).map_err(|error| {
                    let message = format!("line {} cannot be read as UTF-8", self.line);
                    Error::new(ErrorKind::Corrupt, message).because(error.utf8_error())
                })));
            }
            blank += n;
            if blank > LONGEST_LINE {
                return Err(self.endless("blank lines"));
            }
        }
    }

    /// Reads to the end of a line. A line within the limit is kept whole, without its end; of a longer one,
    /// at most two bytes more than the limit. Returns the number of bytes in the file, including the line's
    /// end.
    fn read_line(&mut self, line: &mut Vec<u8>) -> Result<u64> {
        // A line of exactly the limit may be followed by its end.
        let most = self.at.limits.max_record_bytes.saturating_add(2);
        let mut n = 0u64;
        loop {
            let found = match self.lines.fill_buf() {
                Ok(found) => found,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.unreadable(error)),
            };
            // `BufRead` of a slice finds a byte faster than a loop here.
            let part = (&found[..]).skip_until(b'\n').unwrap_or(found.len());
            let has_end = found[..part].ends_with(b"\n");
            let kept = part.min(most.saturating_sub(line.len() as u64) as usize);
            fallible_alloc::grow(line, kept)?;
            line.extend_from_slice(&found[..kept]);
            self.lines.consume(part);
            n += part as u64;
            if has_end || part == 0 {
                break;
            }
            if n > LONGEST_LINE {
                return Err(self.endless("one line"));
            }
        }
        if line.len() as u64 == n && line.pop_if(|byte| *byte == b'\n').is_some() {
            line.pop_if(|byte| *byte == b'\r');
        }
        Ok(n)
    }

    fn unreadable(&self, error: io::Error) -> Error {
        if is_wide_window(&error) {
            let message =
                "the zstd stream needs more than 128 MiB of memory to decompress; compress it without --long";
            return Error::new(ErrorKind::Unsupported, message);
        }
        let kind = match error.kind() {
            io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidInput => {
                ErrorKind::Corrupt
            }
            io::ErrorKind::OutOfMemory => ErrorKind::Memory,
            _ => ErrorKind::Io,
        };
        Error::new(kind, format!("line {} cannot be read", self.line + 1)).because(error)
    }

    fn endless(&self, of: &str) -> Error {
        let message = format!(
            "near line {} there are more than {LONGEST_LINE} bytes of {of}: the file does not hold lines of documents",
            self.line
        );
        Error::new(ErrorKind::Format, message)
    }

    /// The value of a line, and the bytes that it may take.
    fn parse(&self, line: &str) -> Result<(Value, u64)> {
        let most = self.at.limits.max_record_bytes.saturating_mul(JSON_FACTOR).max(PIECE_BYTES);
        json::parse(line.as_bytes(), most).map_err(|error| match error {
            NoValue::Wrong(error) => {
                Error::new(ErrorKind::Corrupt, format!("line {} is not JSON", self.line)).because(JsonLineError(error))
            }
            NoValue::TooLarge(bytes) => {
                let message = format!(
                    "the values of line {} would take {bytes} bytes of memory; with max_record_bytes={} at most {most} are allowed",
                    self.line, self.at.limits.max_record_bytes
                );
                Error::new(ErrorKind::TooLarge, message)
            }
        })
    }
}

impl ReadShard<InputRows> for LineReader {
    fn next(&mut self, skips: &mut Skips<'_>) -> Result<Option<DocumentPiece<InputRows>>> {
        let mut rows = if self.is_json { InputRows::Json(Vec::new()) } else { InputRows::Text(Vec::new()) };
        let (mut n, mut held, mut is_last) = (0, 0u64, false);
        while n < self.at.missing() && held < self.at.limits.piece_bytes {
            let Some(line) = self.read()? else {
                is_last = true;
                break;
            };
            let kept = line.and_then(|line| {
                match &mut rows {
                    InputRows::Json(values) => {
                        let (value, bytes) = self.parse(&line)?;
                        held = held.saturating_add(bytes);
                        values.push(value);
                    }
                    InputRows::Text(lines) => {
                        held = held.saturating_add(line.len() as u64);
                        lines.push(line);
                    }
                    _ => {}
                }
                Ok(())
            });
            kept.or_else(|error| skips.unread(n, error))?;
            n += 1;
        }
        let goes_on = n > 0 || self.at.row > 0;
        Ok(goes_on.then(|| self.at.piece(rows, n, is_last)))
    }
}
