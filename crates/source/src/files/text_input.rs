//! [`TextInput`]: the text of a table in order, decompressed, with all bytes of the current row in memory.
//!
//! Input: a file, which is read once, in pieces. Output: bytes from the start of a row on; more of them on
//! request, until a reader has the whole row. So a reader can look at a row again, also where the file's
//! bytes are not those of the text. A reader bounds its rows by [`MOST_ROW`]; the text of a compressed file
//! is bounded by the file's size and a constant.

use std::{
    io::{self, BufRead, BufReader, Read},
    ops::Range,
    path::Path,
    sync::Arc,
};

use crate::{
    Error, ErrorKind, Result, cancel,
    compression::{Compression, USUAL_RATIO, is_wide_window},
    fallible_alloc,
    storage::{Storage, StoredFile, Version},
};

/// The bytes of a file, and of its text, that are read at a time.
const PIECE: usize = 1 << 20;
/// The most bytes of a row, and of a line of JSON.
pub(super) const MOST_ROW: usize = 16 << 20;
/// The most bytes of text of a compressed table, unless it is at most [`USUAL_RATIO`] times the file: a few
/// kilobytes may decompress to gigabytes of short rows.
const MOST_UNPACKED: u64 = 256 << 20;

/// A file from a place in it to its end.
pub(crate) struct FileBytes {
    file: StoredFile,
    at: u64,
}

impl FileBytes {
    pub(crate) fn new(file: StoredFile, at: u64) -> Self {
        Self { file, at }
    }

    /// The place of the next byte.
    pub(crate) fn place(&self) -> u64 {
        self.at
    }
}

impl Read for FileBytes {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read(buffer, self.at).map_err(io::Error::other)?;
        self.at += n as u64;
        Ok(n)
    }
}

pub(super) struct TextInput {
    bytes: Box<dyn Read + Send>,
    version: Version,
    compression: Option<Compression>,
    /// Bytes of text that were read, and the most that are.
    n_read: u64,
    most: u64,
    /// The text from the start of the current row on.
    buffer: Vec<u8>,
    from: usize,
    to: usize,
    squeeze: Option<Squeeze>,
}

/// The most bytes of text of a compressed file of `size` bytes.
pub(crate) fn most_unpacked(size: u64) -> u64 {
    MOST_UNPACKED.max(size.saturating_mul(USUAL_RATIO))
}

impl TextInput {
    /// Opens a table, which is compressed if its name ends in `.gz` or `.zst`.
    ///
    /// # Errors
    /// Those of [`StoredFile`].
    pub(super) fn open(storage: &Arc<dyn Storage>, path: &Arc<Path>) -> Result<Self> {
        let file = StoredFile::open(storage, path)?;
        let (version, compression) = (file.version(), Compression::split(path).1);
        let file = FileBytes::new(file, 0);
        let (bytes, most): (Box<dyn Read + Send>, u64) = match compression {
            None => (Box::new(file), u64::MAX),
            Some(compression) => {
                // bounded: a constant.
                let bytes = compression.decoder(BufReader::with_capacity(PIECE, file));
                let bytes = bytes.map_err(|error| Error::io(path, "decompress", error))?;
                (bytes, most_unpacked(version.size))
            }
        };
        let buffer = Vec::new();
        Ok(Self { bytes, version, compression, n_read: 0, most, buffer, from: 0, to: 0, squeeze: None })
    }

    pub(super) fn version(&self) -> Version {
        self.version
    }

    /// Whether the text is not the bytes of the file, so that places in it are none of the file.
    fn is_changed(&self) -> bool {
        self.squeeze.is_some() || self.compression.is_some()
    }

    /// The place in the file of the first byte that is held.
    pub(super) fn place(&self) -> Option<u64> {
        (!self.is_changed()).then(|| self.n_read - self.held().len() as u64)
    }

    /// The text that was read and not consumed.
    pub(super) fn held(&self) -> &[u8] {
        &self.buffer[self.from..self.to]
    }

    /// The same, at least one byte unless the text is over.
    ///
    /// # Errors
    /// As [`Self::more`].
    pub(super) fn fill(&mut self) -> Result<&[u8]> {
        if self.from == self.to {
            self.more()?;
        }
        Ok(self.held())
    }

    pub(super) fn consume(&mut self, n: usize) {
        self.from += n;
    }

    /// Reads a further piece of the text, after the bytes that are held; false if there is none.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] for text beyond the limit; [`ErrorKind::Truncated`] and [`ErrorKind::Corrupt`]
    /// if it cannot be decompressed; [`ErrorKind::Closed`] once the work is stopped; those of [`StoredFile`].
    pub(super) fn more(&mut self) -> Result<bool> {
        cancel::check("opening")?;
        self.buffer.copy_within(self.from..self.to, 0);
        (self.from, self.to) = (0, self.to - self.from);
        let end = self.to + PIECE;
        if self.buffer.len() < end {
            fallible_alloc::resize(&mut self.buffer, end, 0)?;
        }
        loop {
            let piece = &mut self.buffer[self.to..end];
            let mut n = match read_full(&mut self.bytes, piece) {
                Ok(0) => return Ok(false),
                Ok(n) => n,
                Err(error) => return Err(unread(error, self.compression, self.version.size)),
            };
            self.n_read += n as u64;
            if self.n_read > self.most {
                return Err(too_long(self.version.size));
            }
            if let Some(squeeze) = &mut self.squeeze {
                n = squeeze.squeeze(&mut piece[..n]);
            }
            if n > 0 {
                self.to += n;
                return Ok(true);
            }
        }
    }

    /// The place of the next line without its end, for [`Self::text`]; None after the last. `number` is for
    /// messages.
    ///
    /// # Errors
    /// [`ErrorKind::Format`] for a line that is too long; those of [`Self::more`].
    pub(super) fn line(&mut self, number: u64) -> Result<Option<Range<usize>>> {
        let mut n = 0;
        let has_end = loop {
            // `BufRead` of a slice finds a byte faster than a loop here.
            let mut rest = &self.held()[n..];
            n += rest.skip_until(b'\n').unwrap_or_default();
            let has_end = self.held()[..n].ends_with(b"\n");
            if n - usize::from(has_end) > MOST_ROW {
                let message = format!("line {number} has more than {MOST_ROW} bytes");
                return Err(Error::new(ErrorKind::Format, message));
            }
            if has_end || !self.more()? {
                break has_end;
            }
        };
        if n == 0 {
            return Ok(None);
        }
        let from = self.from;
        self.consume(n);
        let line = self.text(from..from + n);
        let end = if line.ends_with(b"\r\n") { 2 } else { usize::from(has_end) };
        Ok(Some(from..from + n - end))
    }

    /// The bytes at a place, until more are read.
    pub(super) fn text(&self, place: Range<usize>) -> &[u8] {
        &self.buffer[place]
    }

    /// Leaves out blanks between delimiters and cells from here on.
    pub(super) fn squeeze(&mut self, delimiter: u8) {
        let mut squeeze = Squeeze { delimiter, in_quotes: false, is_start: false };
        self.to = self.from + squeeze.squeeze(&mut self.buffer[self.from..self.to]);
        self.squeeze = Some(squeeze);
    }
}

/// The error for text of a file of `size` bytes that could not be read or decompressed.
pub(crate) fn unread(error: io::Error, compression: Option<Compression>, size: u64) -> Error {
    let (error, compression) = match (error.downcast::<Error>(), compression) {
        (Ok(error), _) => return error,
        (Err(error), None) => return Error::new(ErrorKind::Io, "it cannot be read").because(error),
        (Err(error), Some(compression)) => (error, compression),
    };
    if is_wide_window(&error) {
        let message =
            "the zstd stream needs more than 128 MiB of memory to decompress; compress it without --long";
        return Error::new(ErrorKind::Unsupported, message);
    }
    let name = compression.name();
    let (kind, message) = match error.kind() {
        io::ErrorKind::UnexpectedEof => (
            ErrorKind::Truncated,
            format!(
                "the {name} stream is cut off: it does not end in the {size} bytes of the file; copy the file again"
            ),
        ),
        _ => (
            ErrorKind::Corrupt,
            format!(
                "it is no {name} stream, as its name says, or is damaged; write it again, or give it the ending of what it is"
            ),
        ),
    };
    Error::new(kind, message).because(error)
}

/// The error for a compressed file of `size` bytes with too much text.
pub(crate) fn too_long(size: u64) -> Error {
    let most = most_unpacked(size);
    let message = format!(
        "it has {size} bytes, and more than {most} bytes of text; of a compressed table at most {} MiB of text are read, or \
         {USUAL_RATIO} times its own bytes: unpack it first",
        MOST_UNPACKED >> 20
    );
    Error::new(ErrorKind::TooLarge, message)
}

/// Reads what is there; nothing is the end. Before damage all bytes are returned, which filling a buffer
/// would lose.
pub(crate) fn read_some(bytes: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match bytes.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

/// Fills a buffer; fewer bytes are the last ones.
pub(crate) fn read_full(bytes: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match bytes.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Leaves out blanks between a delimiter and a cell, as in the segments of AudioSet: there, a quote opens a
/// cell only then.
#[derive(Debug)]
struct Squeeze {
    delimiter: u8,
    in_quotes: bool,
    is_start: bool,
}

impl Squeeze {
    /// The number of bytes that are left.
    fn squeeze(&mut self, bytes: &mut [u8]) -> usize {
        let mut kept = 0;
        for at in 0..bytes.len() {
            let byte = bytes[at];
            if self.is_start && !self.in_quotes && byte == b' ' {
                continue;
            }
            self.in_quotes ^= byte == b'"';
            self.is_start = byte == self.delimiter;
            bytes[kept] = byte;
            kept += 1;
        }
        kept
    }
}
