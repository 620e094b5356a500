//! [`Csv`]: tables of csv and its relatives, and labels of Audacity.
//!
//! `csv-core` splits rows into cells, so quoted commas, quotes and line breaks are as everywhere. Lines are
//! counted here, since messages name them; so are quotes that are never closed, which the library lets pass.
//! Source: RFC 4180 and files as programs write them.

use std::{collections::HashSet, ffi::OsStr, path::Path, sync::Arc};

use csv_core::ReadRecordResult;

use super::{
    column::Cell,
    manifest::{Manifest, Roles, TableRequest},
    rows::{TableBuilder, at, builders, check_stop, no_number},
    schema_inference::SchemaInference,
    table::LineNumbers,
    text_input::{MOST_ROW, TextInput},
};
use crate::{
    Error, ErrorKind, Result,
    compression::Compression,
    fallible_alloc,
    storage::{Storage, Version},
};

/// Where in a cell a byte is.
#[derive(Debug, Clone, Copy, PartialEq)]
enum At {
    Start,
    Plain,
    Quoted,
    Quote,
}

/// What the quotes of a row say.
struct Quotes {
    /// Whether the last one opens a cell that is not closed.
    is_open: bool,
    /// Whether a cell goes on after its closing quote.
    is_stray: bool,
}

impl Quotes {
    fn of(row: &[u8], delimiter: u8) -> Self {
        let (mut place, mut is_stray) = (At::Start, false);
        for &byte in row {
            place = match (place, byte) {
                (At::Start, b'"') | (At::Quote, b'"') => At::Quoted,
                (At::Quoted, b'"') => At::Quote,
                (At::Quoted, _) => At::Quoted,
                (_, byte) if byte == delimiter || byte == b'\n' || byte == b'\r' => At::Start,
                (before, _) => {
                    is_stray |= before == At::Quote;
                    At::Plain
                }
            };
        }
        Self { is_open: place == At::Quoted, is_stray }
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
    /// The line of the last row.
    line: u64,
    pub names: Vec<String>,
    /// The first row, if it is no header.
    first: Option<u64>,
    /// Lines that begin so are left out.
    left_out: Option<u8>,
    /// Whether the last row ends the text within a quoted cell.
    is_open: bool,
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
            let Some(end) = head[skipped..].iter().position(|&byte| byte == b'\n') else { break };
            comment = Some(head[skipped + 1..skipped + end].trim_ascii().to_vec());
            skipped += end + 1;
            lines += 1;
        }
        let rest = &head[skipped..];
        let line = &rest[..rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len())];
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
        let (name, _) = Compression::split(path);
        let ending = name.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        let mut input = TextInput::open(storage, path)?;
        let is_labels = ending == "txt";
        let is_tsv = ending == "tsv" || ending == "tab";
        let head = TableHead::of(input.fill()?, is_tsv, is_labels, names.is_some())?;
        input.consume(head.skipped);
        if head.has_blanks {
            input.squeeze(head.delimiter);
        }
        let mut csv = Self {
            input,
            reader: csv_core::ReaderBuilder::new().delimiter(head.delimiter).build(),
            delimiter: head.delimiter,
            skipped: head.lines,
            cells: Vec::new(),
            ends: Vec::new(),
            n: 0,
            line: 0,
            names: Vec::new(),
            first: None,
            left_out: None,
            is_open: false,
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
        let mut seen = HashSet::new();
        if let Some(name) = csv.names.iter().find(|name| !seen.insert(name.as_str()))
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
        let line = self.reader.line() + self.skipped;
        let (mut len, mut filled, mut n) = (0, 0, 0);
        let is_last = loop {
            // The end of the text is told to the reader as a piece without bytes.
            let rest = &self.input.held()[len..];
            let is_end = rest.is_empty();
            let (result, read, written, ended) =
                self.reader.read_record(rest, &mut self.cells[filled..], &mut self.ends[n..]);
            (len, filled, n) = (len + read, filled + written, n + ended);
            if len > MOST_ROW {
                let message = format!(
                    "line {line}: a row has more than {MOST_ROW} bytes; there may be a quote that is not closed"
                );
                return Err(Error::new(ErrorKind::Format, message));
            }
            match result {
                ReadRecordResult::InputEmpty => {
                    self.input.more()?;
                }
                ReadRecordResult::OutputFull => {
                    let len = (self.cells.len() * 2).max(1024);
                    fallible_alloc::resize(&mut self.cells, len, 0)?;
                }
                ReadRecordResult::OutputEndsFull => {
                    let len = (self.ends.len() * 2).max(32);
                    fallible_alloc::resize(&mut self.ends, len, 0)?;
                }
                ReadRecordResult::Record => break is_end,
                ReadRecordResult::End if self.is_open => {
                    let message = format!("line {}: a quote is opened and not closed", self.line);
                    return Err(Error::new(ErrorKind::Format, message));
                }
                ReadRecordResult::End => return Ok(None),
            }
        };
        (self.n, self.line) = (n, line);
        self.check_text(filled)?;
        let has_breaks = self.cells[..filled].contains(&b'\n');
        if is_last || has_breaks {
            let quotes = Quotes::of(&self.input.held()[..len], self.delimiter);
            self.is_open = is_last && quotes.is_open;
            // The breaks in its cells may be those after a quote that was left open.
            if has_breaks && quotes.is_stray {
                let message = format!(
                    "line {line}: a cell over several lines goes on after its closing quote; is a quote opened and not closed?"
                );
                return Err(Error::new(ErrorKind::Format, message));
            }
        }
        self.input.consume(len);
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
        Err(match self.input.place() {
            Some(place) => error.at_byte(place),
            None => error,
        })
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

/// The name of the recording that a table without paths is about: of `a.Table.1.selections.txt`, as Raven
/// writes it, and of `a.BirdNET.results.csv` it is `a`; of `a.txt`, too. `forebay._annotations` has the same
/// rule.
fn recording_of(table: &Path) -> &[u8] {
    let name = table.file_name().unwrap_or_default().as_encoded_bytes();
    let begins = |at: usize| {
        let rest = &name[at..];
        let selections = rest.strip_prefix(b".selection").map(|rest| rest.strip_prefix(b"s").unwrap_or(rest));
        rest.starts_with(b".BirdNET.")
            || rest.strip_prefix(b".Table.").and_then(<[u8]>::first).is_some_and(u8::is_ascii_digit)
            || selections.is_some_and(|rest| {
                rest.first().is_none_or(|next| !(next.is_ascii_alphanumeric() || *next == b'_'))
            })
    };
    match (1..name.len()).find(|&at| begins(at)) {
        Some(end) => &name[..end],
        None => table.file_stem().unwrap_or_default().as_encoded_bytes(),
    }
}

/// Finds the rows of a selection table of Raven that repeat the row before: it has one for each view of a
/// selection.
struct RavenViews {
    view: usize,
    /// The columns whose cells the views of a selection share.
    shared: Vec<usize>,
    /// The cells of the row before, and its view.
    before: (Vec<Vec<u8>>, Vec<u8>),
}

impl RavenViews {
    /// None if the columns are not Raven's.
    fn of(names: &[String], roles: &Roles) -> Option<Self> {
        let find = |name: &str| names.iter().position(|known| known == name);
        let (selection, view) = (find("Selection")?, find("View")?);
        let shared = [Some(selection), roles.path, roles.start, roles.end, roles.within];
        Some(Self { view, shared: shared.into_iter().flatten().collect(), before: Default::default() })
    }

    /// Whether the row is the one before in another view.
    fn repeats(&mut self, csv: &Csv) -> bool {
        let (cells, view) = &self.before;
        let same = |(&at, cell): (&usize, &Vec<u8>)| csv.cell(at) == cell;
        let is_same = !cells.is_empty() && self.shared.iter().zip(cells).all(same);
        if is_same && csv.cell(self.view) != view {
            return true;
        }
        let cells = self.shared.iter().map(|&at| csv.cell(at).to_vec()).collect();
        self.before = (cells, csv.cell(self.view).to_vec());
        false
    }
}

impl TableBuilder {
    /// Reads a table of csv, or labels of Audacity.
    pub(super) fn csv(
        &mut self,
        storage: &Arc<dyn Storage>,
        path: &Arc<Path>,
        manifest: &Manifest,
        asked: &TableRequest<'_>,
    ) -> Result<Version> {
        let mut csv = Csv::open(storage, path, manifest.columns.as_deref())?;
        let (table, _) = Compression::split(path);
        let stem = recording_of(table);
        // Labels of Audacity and tables of Raven and BirdNET lie beside their recording.
        let is_labels = table.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("txt"))
            || Some(stem) != table.file_stem().map(OsStr::as_encoded_bytes);
        let roles = Roles::choose(&csv.names, manifest, asked, is_labels)?;
        self.with_segments(&roles);
        self.lines = Some(LineNumbers::default());
        let mut inference = SchemaInference::at_texts(&csv.names);
        let read: Vec<usize> = roles.label.iter().chain(&roles.others).copied().collect();
        let mut columns = builders(read.len());
        let mut views = RavenViews::of(&csv.names, &roles);
        while let Some(line) = csv.row()? {
            check_stop(self.n_rows() as u64)?;
            if views.as_mut().is_some_and(|views| views.repeats(&csv)) {
                continue;
            }
            let name = roles.path.map_or(stem, |path| csv.cell(path).trim_ascii());
            let number = |role: Option<usize>| {
                let Some(cell) = role.map(|role| csv.text(role).trim()).filter(|cell| !cell.is_empty())
                else {
                    return Ok(None);
                };
                cell.parse().map(Some).map_err(|_| no_number(&at(Some(line), 0), &format!("{cell:?}")))
            };
            let (start, end) = roles.segment(number)?;
            self.add(Some(line), Some(name), start, end)?;
            if inference.row() {
                (0..csv.names.len()).for_each(|at| inference.text(at, csv.cell(at)));
            }
            for (column, &role) in columns.iter_mut().zip(&read) {
                column.push(Cell::Untyped(csv.cell(role)))?;
            }
        }
        self.schema = inference.listed();
        self.label_name = roles.label.map(|role| csv.names[role].clone());
        self.set_columns(columns, roles.label.is_some())?;
        Ok(csv.version())
    }
}
