//! [`LineIndex`]: where the lines of a file of text are, as groups of rows that can be read alone.
//!
//! Input: a file, plain or compressed, which is read once from start to end. Output: for each group the place
//! from which it is read, and its number of rows. A row is a line with more than blanks.
//!
//! A group of a plain file ends after [`GROUP_ROWS`] rows or [`GROUP_BYTES`] of text. A compressed stream can
//! be read from the start of a gzip member or a zstd frame only, so there a group has also to begin with the
//! first row of one of these: a file that is one stream is one group. The rule must not change, since groups
//! decide which packer gets a row.
//!
//! Nothing but the groups is held, whatever the file has: a line of any length costs no memory here.

use std::{
    io::{self, BufRead, BufReader, Read},
    path::Path,
    sync::Arc,
};

use crate::{
    Error, ErrorKind, Result, cancel,
    compression::Compression,
    fallible_alloc,
    files::text_input::{FileBytes, most_unpacked, read_some, too_long, unread},
    ranged::sidecar::Sidecars,
    storage::{Storage, StoredFile, Version},
};

/// The rows after which a group ends.
const GROUP_ROWS: u64 = 256;
/// The bytes of text after which a group ends.
const GROUP_BYTES: u64 = 1 << 20;
/// The bytes that are read at a time.
const PIECE: usize = 256 << 10;
/// The size from which the index of a file is kept for the next time.
const KEPT_FROM: u64 = 4 << 20;
/// What a kept index begins with, and the bytes of a group in it.
const KEPT: &[u8; 8] = b"lines 1\n";
const GROUP: usize = 24;

/// The mark that some programs write in front of UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Rows that are read from one place on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LineGroup {
    /// The place in the file from which it is read or decompressed.
    pub at: u64,
    /// The bytes of text from there to its first row.
    pub skip: u64,
    pub n_rows: u64,
}

#[derive(Debug)]
pub(super) struct LineIndex {
    pub version: Version,
    pub groups: Vec<LineGroup>,
    /// The error at which reading ended, if any; the rows before it count.
    pub damage: Option<Error>,
}

impl LineIndex {
    /// Reads the file, unless its index was kept.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] for a compressed file with too much text, [`ErrorKind::Unsupported`],
    /// [`ErrorKind::Closed`] once the work is stopped, those of [`StoredFile`]. A stream that is damaged or
    /// cut off is none.
    pub(super) fn of(storage: &Arc<dyn Storage>, path: &Arc<Path>, sidecars: &Sidecars) -> Result<Self> {
        let file = StoredFile::open(storage, path)?;
        let version = file.version();
        let place = storage.resolve(path).ok().filter(|_| version.size >= KEPT_FROM);
        let kept = place.as_deref().and_then(|place| sidecars.read(place, version));
        if let Some(groups) = kept.as_deref().and_then(|kept| read_groups(kept, version.size)) {
            return Ok(Self { version, groups, damage: None });
        }
        let found = Self::scan(file, Compression::split(path).1)?;
        if let (Some(place), None) = (place, &found.damage) {
            sidecars.write(&place, version, &written(&found.groups));
        }
        Ok(found)
    }

    fn scan(file: StoredFile, compression: Option<Compression>) -> Result<Self> {
        let version = file.version();
        let mut lines = LineCounter { is_packed: compression.is_some(), ..LineCounter::default() };
        // bounded: a constant.
        let mut bytes = BufReader::with_capacity(PIECE, FileBytes::new(file, 0));
        let damage = match compression {
            None => lines.read(&mut bytes, u64::MAX),
            Some(compression) => lines.read_streams(bytes, compression, most_unpacked(version.size)),
        };
        let damage = match damage.map_err(|stop| match stop {
            CountEnd::Unread(error) => unread(error, compression, version.size),
            CountEnd::TooLong => too_long(version.size),
            CountEnd::Error(error) => error,
        }) {
            Ok(()) => {
                lines.end_line()?;
                None
            }
            Err(error) if matches!(error.kind, ErrorKind::Truncated | ErrorKind::Corrupt) => Some(error),
            Err(error) => return Err(error),
        };
        Ok(Self { version, groups: lines.groups, damage })
    }
}

/// Why counting ended.
enum CountEnd {
    Unread(io::Error),
    TooLong,
    Error(Error),
}

impl From<Error> for CountEnd {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// Counts lines in pieces of text.
#[derive(Default)]
struct LineCounter {
    is_packed: bool,
    groups: Vec<LineGroup>,
    /// The place of the stream that is read, and the text before the next byte in it.
    stream: u64,
    at: u64,
    /// The text before it in all streams.
    n_read: u64,
    /// The stream and place in it where the current line began; `None` between lines.
    line: Option<(u64, u64)>,
    has_content: bool,
    /// The stream of the last row.
    last: Option<u64>,
    /// The text from the start of the group on.
    group_bytes: u64,
}

impl LineCounter {
    /// Reads one stream after the other.
    fn read_streams(
        &mut self,
        mut bytes: BufReader<FileBytes>,
        compression: Compression,
        most: u64,
    ) -> Result<(), CountEnd> {
        loop {
            if bytes.fill_buf().map_err(CountEnd::Unread)?.is_empty() {
                return Ok(());
            }
            self.stream = bytes.get_ref().place() - bytes.buffer().len() as u64;
            self.at = 0;
            bytes = match compression {
                Compression::Gzip => {
                    let mut stream = flate2::bufread::GzDecoder::new(bytes);
                    self.read(&mut stream, most)?;
                    stream.into_inner()
                }
                Compression::Zstd => {
                    let stream = zstd::stream::read::Decoder::with_buffer(bytes).map_err(CountEnd::Unread)?;
                    let mut stream = stream.single_frame();
                    self.read(&mut stream, most)?;
                    stream.finish()
                }
            };
        }
    }

    fn read(&mut self, bytes: &mut dyn Read, most: u64) -> Result<(), CountEnd> {
        let mut piece: Vec<u8> = fallible_alloc::filled(PIECE, 0)?;
        loop {
            cancel::check("opening")?;
            let n = read_some(bytes, &mut piece).map_err(CountEnd::Unread)?;
            if n == 0 {
                return Ok(());
            }
            let mut text = &piece[..n];
            if self.n_read == 0 && text.starts_with(BYTE_ORDER_MARK) {
                self.at += BYTE_ORDER_MARK.len() as u64;
                text = &text[BYTE_ORDER_MARK.len()..];
            }
            self.n_read += n as u64;
            if self.n_read > most {
                return Err(CountEnd::TooLong);
            }
            self.add(text)?;
        }
    }

    fn add(&mut self, mut text: &[u8]) -> Result<()> {
        while !text.is_empty() {
            self.line.get_or_insert((self.stream, self.at));
            // `BufRead` of a slice finds a byte faster than a loop here.
            let n = { text }.skip_until(b'\n').unwrap_or(text.len());
            let (line, rest) = text.split_at(n);
            self.has_content |= !line.trim_ascii().is_empty();
            self.at += n as u64;
            self.group_bytes += n as u64;
            if line.ends_with(b"\n") {
                self.end_line()?;
            }
            text = rest;
        }
        Ok(())
    }

    fn end_line(&mut self) -> Result<()> {
        let line = self.line.take();
        let has_content = std::mem::take(&mut self.has_content);
        let Some((stream, at)) = line.filter(|_| has_content) else { return Ok(()) };
        let begins = !self.is_packed || self.last != Some(stream);
        let len = if stream == self.stream { self.at - at } else { self.at };
        match self.groups.last_mut() {
            Some(group) if !begins || group.n_rows < GROUP_ROWS && self.group_bytes - len < GROUP_BYTES => {
                group.n_rows += 1;
            }
            _ => {
                let (at, skip) = if self.is_packed { (stream, at) } else { (at, 0) };
                fallible_alloc::push(&mut self.groups, LineGroup { at, skip, n_rows: 1 })?;
                self.group_bytes = len;
            }
        }
        self.last = Some(stream);
        Ok(())
    }
}

/// The bytes of a kept index.
fn written(groups: &[LineGroup]) -> Vec<u8> {
    let numbers = groups.iter().flat_map(|group| [group.at, group.skip, group.n_rows]);
    KEPT.iter().copied().chain(numbers.flat_map(u64::to_le_bytes)).collect()
}

/// The groups of a kept index; `None` if it is none of a file of `size` bytes.
fn read_groups(kept: &[u8], size: u64) -> Option<Vec<LineGroup>> {
    let (groups, []) = kept.strip_prefix(KEPT)?.as_chunks::<GROUP>() else { return None };
    let number = |group: &[u8; GROUP], at: usize| {
        group[at..].first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    };
    let of = |group| LineGroup { at: number(group, 0), skip: number(group, 8), n_rows: number(group, 16) };
    let groups: Vec<LineGroup> = groups.iter().map(of).collect();
    let is_sound = groups.iter().all(|group| group.at < size && group.n_rows > 0)
        && groups.is_sorted_by_key(|group| (group.at, group.skip));
    is_sound.then_some(groups)
}
