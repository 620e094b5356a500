//! Reads tables in text: csv and its relatives, labels of Audacity, JSON lines.
//!
//! Files are read once, in pieces. `csv-core` splits rows into cells, so quoted commas, quotes and line
//! breaks are as everywhere. Lines are counted here, since messages name them. Source: RFC 4180 and files as
//! programs write them.

use std::{path::Path, sync::Arc};

use csv_core::ReadRecordResult;

use crate::{
    Error, ErrorKind, Result, fallible_alloc,
    storage::{Storage, StoredFile, Version},
};

/// The bytes of a file that are read at a time.
const PIECE: usize = 1 << 20;
/// The most bytes of a row, and of a line of JSON.
pub(super) const MOST_ROW: usize = 16 << 20;

/// The bytes of a file, in order.
pub(super) struct TextInput {
    file: StoredFile,
    /// The place of `buffer[to]` in the file.
    at: u64,
    buffer: Vec<u8>,
    from: usize,
    to: usize,
    squeeze: Option<Squeeze>,
}

impl TextInput {
    pub(super) fn open(storage: &Arc<dyn Storage>, path: &Arc<Path>) -> Result<Self> {
        let file = StoredFile::open(storage, path)?;
        let mut buffer = Vec::new();
        fallible_alloc::resize(&mut buffer, PIECE, 0)?;
        Ok(Self { file, at: 0, buffer, from: 0, to: 0, squeeze: None })
    }

    pub(super) fn version(&self) -> Version {
        self.file.version()
    }

    /// Bytes that were not consumed, at least one unless the file is over.
    fn fill(&mut self) -> Result<&[u8]> {
        while self.from == self.to {
            let n = self.file.read(&mut self.buffer, self.at)?;
            (self.from, self.to, self.at) = (0, n, self.at + n as u64);
            if n == 0 {
                break;
            }
            if let Some(squeeze) = &mut self.squeeze {
                self.to = squeeze.squeeze(&mut self.buffer[..n]);
            }
        }
        Ok(&self.buffer[self.from..self.to])
    }

    fn consume(&mut self, n: usize) {
        self.from += n;
    }

    /// The first bytes of the file, which are not consumed.
    fn head(&mut self) -> Result<&[u8]> {
        self.fill()
    }

    /// The next line without its end; None after the last.
    fn line(&mut self, line: &mut Vec<u8>, number: u64) -> Result<bool> {
        line.clear();
        let mut is_any = false;
        loop {
            let found = self.fill()?;
            if found.is_empty() {
                return Ok(is_any);
            }
            is_any = true;
            let end = memchr(found, b'\n');
            let part = end.unwrap_or(found.len());
            if line.len() + part > MOST_ROW {
                let message = format!("line {number} has more than {MOST_ROW} bytes");
                return Err(Error::new(ErrorKind::Format, message));
            }
            fallible_alloc::grow(line, part)?;
            let found = &self.buffer[self.from..self.from + part];
            line.extend_from_slice(found);
            self.consume(part + usize::from(end.is_some()));
            if end.is_some() {
                line.pop_if(|byte| *byte == b'\r');
                return Ok(true);
            }
        }
    }
}

fn memchr(bytes: &[u8], byte: u8) -> Option<usize> {
    bytes.iter().position(|&found| found == byte)
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

/// Where in a cell a byte is.
#[derive(Debug, Clone, Copy, PartialEq)]
enum At {
    Start,
    Plain,
    Quoted,
    Quote,
}

#[derive(Debug)]
struct Quotes {
    delimiter: u8,
    at: At,
    /// Whether a cell went on after its closing quote.
    is_stray: bool,
}

impl Quotes {
    fn new(delimiter: u8) -> Self {
        Self { delimiter, at: At::Start, is_stray: false }
    }

    fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.at = match (self.at, byte) {
                (At::Start, b'"') | (At::Quote, b'"') => At::Quoted,
                (At::Quoted, b'"') => At::Quote,
                (At::Quoted, _) => At::Quoted,
                (_, byte) if byte == self.delimiter || byte == b'\n' || byte == b'\r' => At::Start,
                (at, _) => {
                    self.is_stray |= at == At::Quote;
                    At::Plain
                }
            };
        }
    }
}

/// Reads the rows of a table, cell by cell.
pub(super) struct Csv {
    input: TextInput,
    reader: csv_core::Reader,
    delimiter: u8,
    /// Lines before those that `reader` counts.
    skipped: u64,
    cells: Vec<u8>,
    ends: Vec<usize>,
    n: usize,
    /// The place of the last row in the file.
    row_at: u64,
    /// The line of the last row.
    line: u64,
    pub names: Vec<String>,
    /// The first row, if it is no header.
    first: Option<u64>,
    /// Lines that begin so are left out.
    left_out: Option<u8>,
    /// The quotes so far, where the file's own bytes are not those that were read.
    quotes: Quotes,
}

/// The parts of a table's beginning.
struct TableHead {
    delimiter: u8,
    skipped: usize,
    lines: u64,
    /// The last comment, which may be the header.
    comment: Option<Vec<u8>>,
    has_blanks: bool,
}

impl TableHead {
    /// `has_names`: the first row is not needed for names, and may begin with a file such as `#1.wav`.
    fn of(head: &[u8], is_tsv: bool, is_labels: bool, has_names: bool) -> Result<Self> {
        const UTF16: [&[u8]; 2] = [b"\xff\xfe", b"\xfe\xff"];
        if UTF16.iter().any(|mark| head.starts_with(mark)) {
            let message = "it is UTF-16; write it as UTF-8";
            return Err(Error::new(ErrorKind::Format, message));
        }
        let mut skipped = if head.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        let (mut lines, mut comment) = (0, None);
        let is_comment = |rest: &[u8]| {
            rest.starts_with(b"#")
                && (!has_names || matches!(rest.get(1), None | Some(b'#' | b' ' | b'\t' | b'\r' | b'\n')))
        };
        while is_comment(&head[skipped..]) {
            let Some(end) = memchr(&head[skipped..], b'\n') else { break };
            comment = Some(head[skipped + 1..skipped + end].trim_ascii().to_vec());
            skipped += end + 1;
            lines += 1;
        }
        let rest = &head[skipped..];
        let line = &rest[..memchr(rest, b'\n').unwrap_or(rest.len())];
        let mut counts = [0u64; 3];
        const DELIMITERS: [u8; 3] = [b',', b';', b'\t'];
        let mut in_quotes = false;
        for &byte in line {
            in_quotes ^= byte == b'"';
            let found = DELIMITERS.iter().position(|&delimiter| delimiter == byte).filter(|_| !in_quotes);
            if let Some(found) = found {
                counts[found] += 1;
            }
        }
        let delimiter = match counts {
            _ if is_tsv => b'\t',
            [_, _, tabs] if is_labels && tabs > 0 => b'\t',
            [commas, semicolons, tabs] if commas >= semicolons.max(tabs) => b',',
            [_, semicolons, tabs] if semicolons >= tabs => b';',
            _ => b'\t',
        };
        let blanks = line.windows(2).filter(|pair| *pair == [delimiter, b' ']).count() as u64;
        let n = line.iter().filter(|&&byte| byte == delimiter).count() as u64;
        Ok(Self { delimiter, skipped, lines, comment, has_blanks: n > 0 && (blanks == n || blanks > 1) })
    }
}

impl Csv {
    /// Opens a table and reads its header. `names` are those of a table without one.
    ///
    /// # Errors
    /// [`ErrorKind::Format`] if it is no such table; those of [`StoredFile`].
    pub(super) fn open(
        storage: &Arc<dyn Storage>,
        path: &Arc<Path>,
        names: Option<&[String]>,
    ) -> Result<Self> {
        let ending = path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        let mut input = TextInput::open(storage, path)?;
        let is_labels = ending == "txt";
        let is_tsv = ending == "tsv" || ending == "tab";
        let head = TableHead::of(input.head()?, is_tsv, is_labels, names.is_some())?;
        input.consume(head.skipped);
        if head.has_blanks {
            let mut squeeze = Squeeze { delimiter: head.delimiter, in_quotes: false, is_start: false };
            let left = squeeze.squeeze(&mut input.buffer[input.from..input.to]);
            input.to = input.from + left;
            input.squeeze = Some(squeeze);
        }
        let mut csv = Self {
            input,
            reader: csv_core::ReaderBuilder::new().delimiter(head.delimiter).build(),
            delimiter: head.delimiter,
            skipped: head.lines,
            cells: Vec::new(),
            ends: Vec::new(),
            n: 0,
            row_at: 0,
            line: 0,
            names: Vec::new(),
            first: None,
            left_out: None,
            quotes: Quotes::new(head.delimiter),
        };
        let first = csv.next()?;
        let cells: Vec<String> = match first {
            Some(_) => (0..csv.n).map(|at| csv.text(at).trim().to_owned()).collect(),
            None => Vec::new(),
        };
        let is_number = |cell: &String| cell.parse::<f64>().is_ok();
        csv.names = match names {
            Some(names) => {
                if cells != names {
                    csv.first = first;
                }
                names.to_vec()
            }
            None if is_labels && csv.n >= 2 && cells.iter().take(2).all(is_number) => {
                // Labels of Audacity, with lines for the frequencies.
                csv.first = first;
                csv.left_out = Some(b'\\');
                ["start", "end", "label"].iter().take(csv.n).map(|&name| name.to_owned()).collect()
            }
            None => match head.comment.as_deref().map(|comment| header(comment, head.delimiter)) {
                Some(names) if names.len() == csv.n => {
                    csv.first = first;
                    names
                }
                _ => cells,
            },
        };
        if csv.names.is_empty() {
            return Err(Error::new(ErrorKind::Format, "the table is empty, expected a header and rows"));
        }
        if let Some((_, name)) =
            csv.names.iter().enumerate().find(|(at, name)| csv.names[..*at].contains(name))
            && !name.is_empty()
        {
            let message = format!("column {name:?} is there twice; rename one");
            return Err(Error::new(ErrorKind::Schema, message));
        }
        Ok(csv)
    }

    pub(super) fn version(&self) -> Version {
        self.input.version()
    }

    /// Reads the next row; returns its line, None after the last.
    ///
    /// # Errors
    /// [`ErrorKind::Format`] for a row that has not as many cells as there are names, is too long, has an
    /// open quote, or is not UTF-8.
    pub(super) fn row(&mut self) -> Result<Option<u64>> {
        loop {
            let line = match self.first.take() {
                Some(line) => Some(line),
                None => self.next()?,
            };
            let Some(line) = line else { return Ok(None) };
            if self.left_out.is_some_and(|byte| self.cell(0).first() == Some(&byte)) {
                continue;
            }
            if self.n != self.names.len() {
                let message = format!(
                    "line {line} has {}, and the table has {}: {}",
                    counted(self.n, "cell"),
                    counted(self.names.len(), "column"),
                    "correct the line, or put quotes around cells with a delimiter in them"
                );
                return Err(Error::new(ErrorKind::Format, message));
            }
            return Ok(Some(line));
        }
    }

    /// Cell number `at` of the last row.
    pub(super) fn cell(&self, at: usize) -> &[u8] {
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        self.cells.get(start..self.ends[at]).unwrap_or_default()
    }

    /// The same as text; all cells were checked.
    pub(super) fn text(&self, at: usize) -> &str {
        std::str::from_utf8(self.cell(at)).unwrap_or_default()
    }

    fn next(&mut self) -> Result<Option<u64>> {
        // The reader skips blank lines too, but then it would not be known where a row begins.
        loop {
            let found = self.input.fill()?;
            let n = found.iter().take_while(|byte| matches!(byte, b'\n' | b'\r')).count();
            if n == 0 {
                break;
            }
            self.skipped += found[..n].iter().filter(|&&byte| byte == b'\n').count() as u64;
            self.input.consume(n);
        }
        let row_at = self.input.at - (self.input.to - self.input.from) as u64;
        let line = self.reader.line() + self.skipped;
        let (mut filled, mut n) = (0, 0);
        loop {
            let (result, read, written, ended) = {
                let found = self.input.fill()?;
                let result = self.reader.read_record(found, &mut self.cells[filled..], &mut self.ends[n..]);
                if self.input.squeeze.is_some() {
                    self.quotes.add(&self.input.buffer[self.input.from..self.input.from + result.1]);
                }
                result
            };
            self.input.consume(read);
            (filled, n) = (filled + written, n + ended);
            match result {
                ReadRecordResult::InputEmpty => {}
                ReadRecordResult::OutputFull => {
                    if filled >= MOST_ROW {
                        let message = format!(
                            "line {line}: a row has more than {MOST_ROW} bytes; there may be a quote that is not closed"
                        );
                        return Err(Error::new(ErrorKind::Format, message));
                    }
                    let len = (self.cells.len() * 2).max(1024);
                    fallible_alloc::resize(&mut self.cells, len, 0)?;
                }
                ReadRecordResult::OutputEndsFull => {
                    let len = (self.ends.len() * 2).max(32);
                    fallible_alloc::resize(&mut self.ends, len, 0)?;
                }
                ReadRecordResult::Record => break,
                ReadRecordResult::End => {
                    self.check_end()?;
                    return Ok(None);
                }
            }
        }
        (self.n, self.line, self.row_at) = (n, line, row_at);
        self.check_text(filled)?;
        if self.cells[..filled].contains(&b'\n') {
            self.check_breaks()?;
        }
        self.quotes.is_stray = false;
        Ok(Some(line))
    }

    /// Checks that all cells are UTF-8.
    fn check_text(&self, filled: usize) -> Result<()> {
        let all = std::str::from_utf8(&self.cells[..filled]);
        if all.is_ok_and(|all| self.ends[..self.n].iter().all(|&end| all.is_char_boundary(end))) {
            return Ok(());
        }
        let wrong = (0..self.n).find_map(|at| {
            let cell = self.cell(at);
            let error = std::str::from_utf8(cell).err()?;
            Some((at, error.valid_up_to(), cell[error.valid_up_to()], String::from_utf8_lossy(cell)))
        });
        let Some((at, byte, value, cell)) = wrong else { return Ok(()) };
        let cell: String = cell.chars().take(60).collect();
        let column =
            self.names.get(at).map_or_else(|| format!("cell {}", at + 1), |name| format!("column {name:?}"));
        let message = format!(
            "line {}, {column}: byte {byte} of {cell:?} is 0x{value:02X}, which is not UTF-8; the table may be in \
             Latin-1 (Windows-1252): write it as UTF-8, as with iconv -f WINDOWS-1252 -t UTF-8",
            self.line
        );
        let error = Error::new(ErrorKind::Format, message);
        // With blanks left out, places are not those in the file.
        Err(if self.input.squeeze.is_some() { error } else { error.at_byte(self.row_at) })
    }

    /// Checks that the line breaks in the last row's cells are not those after a quote that was left open.
    fn check_breaks(&self) -> Result<()> {
        let is_stray = match self.input.squeeze {
            Some(_) => self.quotes.is_stray,
            None => {
                let end = self.input.at - (self.input.to - self.input.from) as u64;
                let mut row = Vec::new();
                fallible_alloc::resize(&mut row, (end - self.row_at) as usize, 0)?;
                let n = self.input.file.read(&mut row, self.row_at)?;
                let mut quotes = Quotes::new(self.delimiter);
                quotes.add(&row[..n]);
                quotes.is_stray
            }
        };
        if !is_stray {
            return Ok(());
        }
        let message = format!(
            "line {}: a cell over several lines goes on after its closing quote; is a quote opened and not closed?",
            self.line
        );
        Err(Error::new(ErrorKind::Format, message))
    }

    /// Checks that the last row has no open quote.
    fn check_end(&self) -> Result<()> {
        if self.line == 0 {
            return Ok(());
        }
        if self.input.squeeze.is_some() {
            return self.check_quotes(&self.quotes);
        }
        // A row without a line break cannot be long.
        let len = self.input.file.size().saturating_sub(self.row_at).min(MOST_ROW as u64);
        let mut row = Vec::new();
        fallible_alloc::resize(&mut row, len as usize, 0)?;
        let n = self.input.file.read(&mut row, self.row_at)?;
        let mut quotes = Quotes::new(self.delimiter);
        quotes.add(&row[..n]);
        self.check_quotes(&quotes)
    }

    fn check_quotes(&self, quotes: &Quotes) -> Result<()> {
        if quotes.at == At::Quoted {
            let message = format!("line {}: a quote is opened and not closed", self.line);
            return Err(Error::new(ErrorKind::Format, message));
        }
        Ok(())
    }
}

fn counted(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// The names in a comment before the first row.
fn header(comment: &[u8], delimiter: u8) -> Vec<String> {
    let text = String::from_utf8_lossy(comment);
    text.split(char::from(delimiter)).map(|name| name.trim().trim_matches('"').to_owned()).collect()
}

pub(super) struct JsonLines {
    input: TextInput,
    line: Vec<u8>,
    number: u64,
}

impl JsonLines {
    pub(super) fn open(storage: &Arc<dyn Storage>, path: &Arc<Path>) -> Result<Self> {
        let mut input = TextInput::open(storage, path)?;
        if input.head()?.starts_with(b"\xef\xbb\xbf") {
            input.consume(3);
        }
        Ok(Self { input, line: Vec::new(), number: 0 })
    }

    pub(super) fn version(&self) -> Version {
        self.input.version()
    }

    /// The object of the next line that is not blank, and the line's number.
    ///
    /// # Errors
    /// [`ErrorKind::Format`] for a line that is no JSON object.
    pub(super) fn next(&mut self) -> Result<Option<(u64, serde_json::Map<String, serde_json::Value>)>> {
        loop {
            self.number += 1;
            if !self.input.line(&mut self.line, self.number)? {
                return Ok(None);
            }
            if self.line.trim_ascii().is_empty() {
                continue;
            }
            let number = self.number;
            let found = serde_json::from_slice(&self.line).map_err(|error| {
                Error::new(ErrorKind::Format, format!("line {number} is not JSON")).because(error)
            })?;
            return match found {
                serde_json::Value::Object(object) => Ok(Some((number, object))),
                _ => {
                    let message =
                        format!("line {number} is no object, expected one such as {{\"path\": \"a.wav\"}}");
                    Err(Error::new(ErrorKind::Format, message))
                }
            };
        }
    }
}
