//! [`Table`]: the rows of one table, folder or list in memory.

use std::{
    collections::HashSet,
    ffi::OsStr,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    column::{Cell, ColumnBuilder, TableColumn, of_json},
    csv::Csv,
    json::{Json, Object},
    json_lines::JsonLines,
    manifest::{GivenRows, Manifest, Roles, RowSource, TableRequest, Unit, counts_too, listed},
    names::{NameIndex, TextList, hash},
    schema_inference::{self, SchemaInference},
    tar::{self, Tar},
};
use crate::{
    Error, ErrorKind, Result, cancel, cells,
    columns::{self, ColumnChoice, MOST_TEXT_BYTES, SchemaColumn, in_column},
    compression::Compression,
    contract::{MAX_RECORD_BYTES, Segment},
    fallible_alloc,
    fields::Value,
    parquet::table::ParquetTable,
    paths::{self, Reads},
    seed::mix,
    storage::{Storage, Version, resolve},
    urls,
};

/// The number of a row that names no file.
pub(super) const NO_FILE: u32 = u32::MAX;
/// Rows between two checks whether opening is to end.
const POLLED: u64 = 4096;
/// The most bytes of a member that is read to list the columns of an archive.
const LOOKED_AT_MEMBER: u64 = 64 << 10;

/// What is read as one table.
#[derive(Debug)]
pub(crate) enum TablePlan {
    Manifest(Arc<Manifest>),
    Folder {
        folder: PathBuf,
        files: Vec<PathBuf>,
    },
    /// Recordings that are named one by one.
    List(Vec<PathBuf>),
}

#[derive(Debug)]
pub(super) struct Table {
    /// The table's file, the folder, or a name for rows in memory.
    pub path: Arc<Path>,
    /// The folder of relative paths.
    pub root: Arc<Path>,
    /// Whether the user named each file.
    pub is_trusted: bool,
    /// Whether a table names the files, which may not exist.
    pub is_of_manifest: bool,
    pub n_rows: u64,
    pub n_bytes: u64,
    /// What is wrong with the table from some row on.
    pub damage: Option<Error>,
    names: TextList,
    files: Vec<u32>,
    /// The archives that have the files, and the place of each file; empty for files of their own.
    pub archives: Vec<Arc<Path>>,
    places: Vec<Option<ArchivePlace>>,
    segments: Option<Segments>,
    /// Numbers of classes, or numbers.
    pub label: Option<TableColumn>,
    /// The name of the label's column.
    pub label_name: Option<String>,
    pub others: Vec<TableColumn>,
    /// All columns, with types as the first rows have them.
    pub schema: Vec<SchemaColumn>,
    lines: Option<LineNumbers>,
}

/// The place of a file in an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ArchivePlace {
    pub archive: u32,
    pub at: u64,
    pub len: u64,
}

#[derive(Debug)]
struct Segments {
    unit: Unit,
    /// Starts and ends; NaN: none.
    starts: Vec<f64>,
    ends: Vec<f64>,
}

/// The line of each row; rows follow each other unless a row is listed here.
#[derive(Debug, Default)]
struct LineNumbers(Vec<(u64, u64)>);

impl LineNumbers {
    fn of(&self, row: u64) -> u64 {
        let at = self.0.partition_point(|&(first, _)| first <= row).saturating_sub(1);
        self.0.get(at).map_or(row + 1, |&(first, line)| line + (row - first))
    }
}

impl Table {
    /// Reads a table.
    ///
    /// # Errors
    /// [`ErrorKind::Schema`] for a column that is missing or whose type is not supported;
    /// [`ErrorKind::Format`] for a table that cannot be read; [`ErrorKind::Config`] for rows that cannot be;
    /// [`ErrorKind::NotFound`], [`ErrorKind::Io`]; [`ErrorKind::Closed`] once the work is stopped.
    pub(super) fn open(
        plan: &TablePlan,
        storage: &Arc<dyn Storage>,
        asked: &TableRequest<'_>,
    ) -> Result<Self> {
        match plan {
            TablePlan::Folder { folder, files } => Self::of_folder(folder, files, asked),
            TablePlan::List(files) => Self::of_list(files, asked),
            TablePlan::Manifest(manifest) => {
                let path: Arc<Path> = manifest.path().into();
                let folder = match &manifest.rows {
                    RowSource::File(path) => path.parent().unwrap_or(Path::new("")),
                    RowSource::Given(_) => Path::new(""),
                };
                let root: Arc<Path> = manifest.root.as_deref().unwrap_or(folder).into();
                let mut builder = Builder { unit: manifest.unit, ..Builder::default() };
                if let RowSource::File(path) = &manifest.rows
                    && !path.exists()
                {
                    check_named(path)?;
                }
                let in_archives = manifest.root.as_deref().is_some_and(is_archive);
                if let Some(root) = manifest.root.as_deref().filter(|_| !in_archives) {
                    check_root(&**storage, root)?;
                }
                let read = match &manifest.rows {
                    RowSource::File(_) => builder.read(storage, &path, manifest, asked),
                    RowSource::Given(rows) => builder.given(rows, manifest, asked),
                };
                read.map_err(|error| error.in_shard(&path))?;
                if in_archives {
                    builder.find_in(&root, storage)?;
                }
                let mut table = builder.finish(path, root);
                table.is_of_manifest = true;
                Ok(table)
            }
        }
    }

    fn of_folder(folder: &Path, files: &[PathBuf], asked: &TableRequest<'_>) -> Result<Self> {
        let mut builder = Builder::default();
        let (mut classes, mut all_below) = (TextList::default(), true);
        for file in files {
            let name = file.strip_prefix(folder).unwrap_or(file);
            let name = if urls::is_url(folder) { urls::unescaped(name) } else { name.to_owned() };
            builder.add(None, Some(name.as_os_str().as_encoded_bytes()), None, None)?;
            let above = name.parent().and_then(Path::file_name);
            all_below &= above.is_some();
            classes.push(above.unwrap_or_default().as_encoded_bytes())?;
        }
        let is_class = |name: &str| all_below && name == "label";
        if let Some(name) = asked.label.name().filter(|name| !is_class(name)) {
            return Err(no_columns(folder, "label_column", name));
        }
        if let Some(name) = asked.others.iter().find(|name| !is_class(name)) {
            return Err(no_columns(folder, "a column", name));
        }
        if all_below {
            let mut label = ColumnBuilder::default();
            classes.iter().try_for_each(|class| label.push(Cell::Text(class)))?;
            let label = label.finish()?;
            let content = label.column_type().to_string();
            builder.schema = vec![SchemaColumn::new("label".to_owned(), content)];
            builder.others = asked.others.iter().map(|_| label.clone()).collect();
            if *asked.label != ColumnChoice::Nothing {
                (builder.label, builder.label_name) = (Some(label), Some("label".to_owned()));
            }
        }
        Ok(builder.finish(folder.into(), folder.into()))
    }

    fn of_list(files: &[PathBuf], asked: &TableRequest<'_>) -> Result<Self> {
        let mut builder = Builder::default();
        for file in files {
            builder.add(None, Some(file.as_os_str().as_encoded_bytes()), None, None)?;
        }
        let first = files.first().map_or(Path::new(""), PathBuf::as_path);
        if let Some(name) = asked.label.name() {
            return Err(no_columns(first, "label_column", name));
        }
        if let Some(name) = asked.others.first() {
            return Err(no_columns(first, "a column", name));
        }
        // One file is its own shard; several are those of a folder.
        let folder = first.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let path = if files.len() == 1 { first } else { folder };
        let mut table = builder.finish(path.into(), Path::new("").into());
        table.is_trusted = true;
        Ok(table)
    }

    /// The path of a row as the table has it; None if the row has none.
    pub(super) fn name(&self, row: u64) -> Option<&[u8]> {
        let file = self.files[row as usize];
        (file != NO_FILE).then(|| self.names.get(file as usize))
    }

    /// The number of the row's file.
    pub(super) fn file(&self, row: u64) -> u32 {
        self.files[row as usize]
    }

    /// The samples of the recording that are the row's.
    pub(super) fn segment(&self, row: u64) -> Option<Segment> {
        let segments = self.segments.as_ref()?;
        let (start, end) = (segments.starts[row as usize], segments.ends[row as usize]);
        if start.is_nan() && end.is_nan() {
            return None;
        }
        let start = if start.is_nan() { 0.0 } else { start };
        let end = if end.is_nan() { f64::INFINITY } else { end };
        Some(match segments.unit {
            Unit::Seconds => Segment::Seconds(start, end),
            Unit::Samples => Segment::Samples(start as u64, end as u64),
        })
    }

    /// The number of a row's class; none if there is no label, or a null.
    ///
    /// # Errors
    /// As [`TableColumn::value`].
    pub(super) fn label_of(&self, row: u64) -> Result<Option<i64>> {
        let label = self.label.as_ref().map(|label| label.value(row as usize)).transpose()?;
        Ok(label.as_ref().and_then(Value::as_int))
    }

    /// Whether the row's file is in an archive, and its place there, if it was found.
    pub(super) fn place(&self, row: u64) -> Option<Option<ArchivePlace>> {
        (!self.archives.is_empty()).then(|| self.places.get(self.file(row) as usize).copied().flatten())
    }

    /// The line of a row in a table of text.
    pub(super) fn line(&self, row: u64) -> Option<u64> {
        self.lines.as_ref().map(|lines| lines.of(row))
    }

    /// A hash of the rows: paths, segments, label, and the columns with these numbers, in order.
    pub(super) fn hash(&self, columns: &[usize]) -> u64 {
        let state = mix(self.n_rows);
        let state = match self.is_trusted {
            false => self.names.hash(state),
            true => {
                let shared = shared_folder(self.names.iter());
                self.names.iter().fold(state, |state, name| hash(state, &name[shared..]))
            }
        };
        self.hash_rows(state, columns.iter().map(|&column| &self.others[column]))
    }

    /// The same as earlier versions had it.
    pub(super) fn former_hash(&self) -> u64 {
        self.hash_rows(self.names.hash(mix(self.n_rows)), self.others.iter())
    }

    fn hash_rows<'a>(&'a self, state: u64, columns: impl Iterator<Item = &'a TableColumn>) -> u64 {
        let mut state = self.files.iter().fold(state, |state, &file| mix(state ^ u64::from(file)));
        if let Some(segments) = &self.segments {
            state = hash(state, &[segments.unit as u8]);
            let both = segments.starts.iter().chain(&segments.ends);
            state = both.fold(state, |state, place| mix(state ^ place.to_bits()));
        }
        self.label.iter().chain(columns).fold(state, |state, column| column.hash(state))
    }

    /// Whether any of the files, or what they are below, is named by URL.
    pub(super) fn is_by_url(&self) -> bool {
        let is_url = |name: &[u8]| std::str::from_utf8(name).is_ok_and(|name| urls::is_url(Path::new(name)));
        let mut folders = self.archives.iter().chain([&self.root]);
        folders.any(|path| urls::is_url(path)) || self.names.iter().any(is_url)
    }

    pub(super) fn bytes_held(&self) -> usize {
        let segments = self
            .segments
            .as_ref()
            .map_or(0, |segments| (segments.starts.capacity() + segments.ends.capacity()) * size_of::<f64>());
        let lines = self.lines.as_ref().map_or(0, |lines| lines.0.capacity() * size_of::<(u64, u64)>());
        let lines = lines + self.places.capacity() * size_of::<Option<ArchivePlace>>();
        let columns: usize = self.label.iter().chain(&self.others).map(TableColumn::bytes_held).sum();
        self.names.bytes_held() + self.files.capacity() * size_of::<u32>() + segments + lines + columns
    }
}

/// The bytes of the folder that all paths share, up to its last separator.
fn shared_folder<'a>(mut paths: impl Iterator<Item = &'a [u8]>) -> usize {
    let folder = |path: &[u8]| {
        path.iter().rposition(|&byte| std::path::is_separator(byte.into())).map_or(0, |at| at + 1)
    };
    let Some(first) = paths.next() else { return 0 };
    let mut shared = &first[..folder(first)];
    for path in paths {
        while !path.starts_with(shared) {
            shared = &shared[..folder(&shared[..shared.len() - 1])];
        }
    }
    shared.len()
}

/// Whether a path is that of tar archives.
fn is_archive(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("tar"))
}

/// Checks the folder that a user names for relative paths.
fn check_root(storage: &dyn Storage, root: &Path) -> Result<()> {
    check_named(root)?;
    let here = if root.as_os_str().is_empty() { Path::new(".") } else { root };
    let found = resolve(storage, here)?;
    if !found.is_file() {
        return Ok(());
    }
    let message = format!(
        "root is the file {}, expected the folder that paths start from, or archives that end in .tar (unpacked ones)",
        root.display()
    );
    Err(Error::new(ErrorKind::Config, message))
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

/// The members of one key: its recording, and what is told of it.
#[derive(Default)]
struct MemberGroup {
    recording: Option<(Vec<u8>, ArchivePlace)>,
    json: Option<Vec<u8>>,
    /// The label, then the columns.
    cells: Vec<Option<Vec<u8>>>,
}

fn no_columns(path: &Path, parameter: &str, name: &str) -> Error {
    let message = format!(
        "{parameter} {name:?} is requested, and recordings without a table have no columns; give a table, as \"labels.csv\" or \
         forebay.Manifest, or write a metadata.csv into the folder"
    );
    Error::new(ErrorKind::Schema, message).in_shard(path)
}

/// Collects the rows of a table.
#[derive(Default)]
struct Builder {
    unit: Unit,
    names: NameIndex,
    files: Vec<u32>,
    segments: Option<Segments>,
    label: Option<TableColumn>,
    label_name: Option<String>,
    others: Vec<TableColumn>,
    schema: Vec<SchemaColumn>,
    lines: Option<LineNumbers>,
    n_bytes: u64,
    damage: Option<Error>,
    archives: Vec<Arc<Path>>,
    places: Vec<Option<ArchivePlace>>,
}

fn builders(n: usize) -> Vec<ColumnBuilder> {
    (0..n).map(|_| ColumnBuilder::default()).collect()
}

/// The place of a row in messages.
fn at(line: Option<u64>, row: usize) -> String {
    line.map_or_else(|| format!("row {row}"), |line| format!("line {line}"))
}

impl Builder {
    fn n_rows(&self) -> usize {
        self.files.len()
    }

    /// Adds the path and the segment of a row.
    fn add(
        &mut self,
        line: Option<u64>,
        path: Option<&[u8]>,
        start: Option<f64>,
        end: Option<f64>,
    ) -> Result<()> {
        let row = self.n_rows();
        let wrong =
            |message: String| Err(Error::new(ErrorKind::Config, format!("{}: {message}", at(line, row))));
        let number = match path.filter(|path| !path.is_empty()) {
            None => NO_FILE,
            Some(path) => {
                let n_before = self.names.texts().len();
                let number = self.names.number(path)?;
                if number as usize == n_before {
                    check_local(path).or_else(wrong)?;
                }
                number
            }
        };
        if let Some(Segments { starts, ends, unit }) = &mut self.segments {
            let name = match unit {
                Unit::Seconds => "seconds",
                Unit::Samples => "samples",
            };
            for (what, place) in [("start", start), ("end", end)] {
                if let Some(place) = place.filter(|place| !place.is_finite() || *place < 0.0) {
                    return wrong(format!("{what} is {place}, must be 0 or more {name}"));
                }
                if let (Unit::Samples, Some(place)) = (&unit, place.filter(|place| place.fract() != 0.0)) {
                    return wrong(format!(
                        "{what} is {place} samples, must be whole; seconds are unit=\"seconds\""
                    ));
                }
            }
            if let (from, Some(to)) = (start.unwrap_or(0.0), end)
                && from >= to
            {
                return wrong(format!(
                    "start is {from} and end is {to} {name}, but a segment starts before its end; columns that are no segments \
                     are left alone with start=\"\""
                ));
            }
            fallible_alloc::push(starts, start.unwrap_or(f64::NAN))?;
            fallible_alloc::push(ends, end.unwrap_or(f64::NAN))?;
        }
        if let (Some(line), Some(lines)) = (line, &mut self.lines)
            && (row == 0 || lines.of(row as u64) != line)
        {
            fallible_alloc::push(&mut lines.0, (row as u64, line))?;
        }
        fallible_alloc::push(&mut self.files, number)
    }

    /// Begins to collect segments, if there are any.
    fn with_segments(&mut self, roles: &Roles) {
        if roles.start.is_some() || roles.end.is_some() {
            self.segments = Some(Segments { unit: self.unit, starts: Vec::new(), ends: Vec::new() });
        }
    }

    /// Sets the columns; the first one is the label, if there is one.
    fn set_columns(&mut self, columns: Vec<ColumnBuilder>, has_label: bool) -> Result<()> {
        let mut columns = columns.into_iter().map(ColumnBuilder::finish);
        self.label = if has_label { columns.next().transpose()? } else { None };
        self.others = columns.collect::<Result<_>>()?;
        Ok(())
    }

    fn finish(mut self, path: Arc<Path>, root: Arc<Path>) -> Table {
        self.files.shrink_to_fit();
        if let Some(segments) = &mut self.segments {
            segments.starts.shrink_to_fit();
            segments.ends.shrink_to_fit();
        }
        Table {
            path,
            root,
            is_trusted: false,
            is_of_manifest: false,
            n_rows: self.files.len() as u64,
            n_bytes: self.n_bytes,
            damage: self.damage,
            archives: self.archives,
            places: self.places,
            names: self.names.into_texts(),
            files: self.files,
            segments: self.segments,
            label: self.label,
            label_name: self.label_name,
            others: self.others,
            schema: self.schema,
            lines: self.lines,
        }
    }

    fn read(
        &mut self,
        storage: &Arc<dyn Storage>,
        path: &Arc<Path>,
        manifest: &Manifest,
        asked: &TableRequest<'_>,
    ) -> Result<()> {
        let ending_of =
            |path: &Path| path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        let (name, compression) = Compression::split(path);
        let version = match (&ending_of(name)[..], compression) {
            ("csv" | "tsv" | "tab" | "txt", _) => self.csv(storage, path, manifest, asked)?,
            // NeMo gives lines this ending, too.
            ("jsonl" | "ndjson" | "json", _) => self.json(storage, path, manifest, asked)?,
            ("parquet", None) => self.parquet(storage, path, manifest, asked)?,
            ("tar", None) => self.tar(storage, path, manifest, asked)?,
            _ => {
                let ending = ending_of(path);
                let packed = match &ending[..] {
                    "gz" | "tgz" | "zst" | "bz2" | "xz" | "zip" => "; unpack it first",
                    "xls" | "xlsx" => "; save it as .csv",
                    _ => "",
                };
                let message = format!(
                    "it ends in {ending:?}, expected is a table that ends in .csv, .tsv, .txt, .jsonl (also with .gz or .zst) or .parquet, \
                     or a .tar{packed}"
                );
                return Err(Error::new(ErrorKind::Config, message));
            }
        };
        self.n_bytes = version.size;
        Ok(())
    }

    fn csv(
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

    /// JSON lines. A column that a later line is the first to have, such as an offset, may say what all rows
    /// are; then all lines are read again.
    fn json(
        &mut self,
        storage: &Arc<dyn Storage>,
        path: &Arc<Path>,
        manifest: &Manifest,
        asked: &TableRequest<'_>,
    ) -> Result<Version> {
        let mut later = Vec::new();
        loop {
            if let Some(version) = self.json_lines(storage, path, manifest, asked, &mut later)? {
                return Ok(version);
            }
            *self = Self { unit: self.unit, ..Self::default() };
        }
    }

    /// None once a line has a column that changes what the columns are; it is then in `later`.
    fn json_lines(
        &mut self,
        storage: &Arc<dyn Storage>,
        path: &Arc<Path>,
        manifest: &Manifest,
        asked: &TableRequest<'_>,
        later: &mut Vec<String>,
    ) -> Result<Option<Version>> {
        let mut lines = JsonLines::open(storage, path)?;
        self.lines = Some(LineNumbers::default());
        // A named label may be in some lines alone.
        let label = asked.label.name().map_or(asked.label, |_| &ColumnChoice::Usual);
        let first = TableRequest { label, others: &[] };
        let (mut chosen, mut inference): (Option<(Vec<String>, Roles)>, _) =
            (None, SchemaInference::default());
        let mut known = HashSet::new();
        // Columns of later lines that may count, once there are others.
        let mut aside = Vec::new();
        // The label, if there is one, and the others.
        let (mut read, mut columns) = (Vec::<String>::new(), Vec::new());
        // bounded: the columns that the user names.
        let mut seen = vec![false; asked.others.len() + 1];
        while let Some((line, object)) = lines.next()? {
            check_stop(self.n_rows() as u64)?;
            if inference.row() {
                inference.object(&object);
            }
            if chosen.is_none() {
                // Others may be in some lines alone, and are looked for in each.
                let names: Vec<String> =
                    object.iter().map(|(name, _)| name.to_owned()).chain(later.iter().cloned()).collect();
                let roles = Roles::choose(&names, manifest, &first, false)?;
                self.with_segments(&roles);
                let label = asked.label.name().or_else(|| roles.label.map(|role| &*names[role]));
                self.label_name = label.map(str::to_owned);
                read = label.into_iter().map(str::to_owned).chain(asked.others.iter().cloned()).collect();
                columns = builders(read.len());
                known = names.iter().cloned().collect();
                chosen = Some((names, roles));
            }
            let Some((names, roles)) = &chosen else { continue };
            let n_before = aside.len();
            for (at, (name, _)) in object.iter().enumerate() {
                // Most lines have the names of the first one, in its order.
                if names.get(at).is_some_and(|first| first == name) || known.contains(name) {
                    continue;
                }
                known.insert(name.to_owned());
                if counts_too(name, names.iter().chain(&aside)) {
                    fallible_alloc::push(&mut aside, name.to_owned())?;
                }
            }
            if aside.len() > n_before {
                let with: Vec<String> = names.iter().chain(&aside).cloned().collect();
                if !Roles::choose(&with, manifest, &first, false)?.has_same(roles) {
                    later.append(&mut aside);
                    return Ok(None);
                }
            }
            let of = |role: Option<usize>| role.and_then(|role| object.get(&names[role]));
            let place = at(Some(line), 0);
            let name = match of(roles.path) {
                None | Some(Json::Null) => None,
                Some(Json::Text(name)) => Some(name.as_bytes()),
                // A cut of Lhotse.
                Some(Json::Object(recording)) => Some(file_of(recording, &object, &place)?),
                Some(other) => {
                    let message = format!("{place}: the path is {other}, expected text");
                    return Err(Error::new(ErrorKind::Schema, message));
                }
            };
            let number = |role: Option<usize>| match of(role) {
                None | Some(Json::Null) => Ok(None),
                Some(Json::Number(number)) => Ok(number.as_f64()),
                Some(other) => Err(no_number(&place, &other.to_string())),
            };
            let (start, end) = roles.segment(number)?;
            self.add(Some(line), name, start, end)?;
            for ((name, column), seen) in read.iter().zip(&mut columns).zip(&mut seen) {
                let found = object.find(name);
                *seen |= found.is_some();
                column.push(of_json(found)).map_err(|error| in_line(&place, name, error))?;
            }
        }
        let Some((names, _)) = chosen else {
            return Err(Error::new(ErrorKind::Format, "the table is empty, expected an object on each line"));
        };
        self.schema = inference.listed();
        let n_labels = read.len() - asked.others.len();
        if let Some((name, _)) = read.iter().zip(&seen).skip(n_labels).find(|(_, seen)| !**seen) {
            let message = format!("there is no column {name:?}; {}", listed(&names));
            return Err(Error::new(ErrorKind::Schema, message));
        }
        if let Some(name) = asked.label.name().filter(|name| !names.iter().any(|known| known == name))
            && columns[0].is_null()
        {
            let message =
                format!("label_column is {name:?}, but there is no such column; {}", listed(&names));
            return Err(Error::new(ErrorKind::Schema, message));
        }
        self.set_columns(columns, n_labels > 0)?;
        Ok(Some(lines.version()))
    }

    fn parquet(
        &mut self,
        storage: &Arc<dyn Storage>,
        path: &Arc<Path>,
        manifest: &Manifest,
        asked: &TableRequest<'_>,
    ) -> Result<Version> {
        let mut table = ParquetTable::open(storage, path, MAX_RECORD_BYTES)?;
        let names: Vec<String> = table.schema().fields().iter().map(|field| field.name().clone()).collect();
        let roles = Roles::choose(&names, manifest, asked, false)?;
        let path_role = roles.path.unwrap_or_default();
        let version = table.version();
        let schema = table.schema().clone();
        self.schema = columns::columns_of(&schema);
        self.label_name = roles.label.map(|role| names[role].clone());
        let needed = [Some(path_role), roles.start, roles.end, roles.within, roles.label];
        let mut columns: Vec<usize> =
            needed.into_iter().flatten().chain(roles.others.iter().copied()).collect();
        columns.sort_unstable();
        columns.dedup();
        table.select(columns.clone())?;
        let place = |role: usize| columns.binary_search(&role).unwrap_or_default();
        self.with_segments(&roles);
        let read: Vec<usize> = roles.label.iter().chain(&roles.others).copied().collect();
        let mut values = builders(read.len());
        while let Some(batch) = table.next_batch()? {
            for row in 0..batch.num_rows() {
                check_stop(self.n_rows() as u64)?;
                let number_of_row = self.n_rows();
                let value = |role: usize| {
                    cells::value(batch.column(place(role)), row)
                        .map_err(|error| in_line(&at(None, number_of_row), &names[role], error))
                };
                let name = value(path_role)?;
                let name = match &name {
                    Value::Text(name) => Some(name.as_bytes()),
                    Value::Null => None,
                    _ => {
                        let message = format!("column {:?} has no text, expected paths", names[path_role]);
                        return Err(Error::new(ErrorKind::Schema, message));
                    }
                };
                let number = |role: Option<usize>| match role.map(value).transpose()? {
                    None | Some(Value::Null) => Ok(None),
                    Some(Value::Int(number)) => Ok(Some(number as f64)),
                    Some(Value::Float(number)) if number.is_nan() => Ok(None),
                    Some(Value::Float(number)) => Ok(Some(number)),
                    Some(other) => Err(no_number(&at(None, number_of_row), &said(&other))),
                };
                let (start, end) = roles.segment(number)?;
                self.add(None, name, start, end)?;
                for (column, &role) in values.iter_mut().zip(&read) {
                    let is_bool = *schema.field(role).data_type() == arrow_schema::DataType::Boolean;
                    column
                        .push(cell_of(&value(role)?, is_bool))
                        .map_err(|error| in_line(&at(None, number_of_row), &names[role], error))?;
                }
            }
        }
        self.set_columns(values, roles.label.is_some())?;
        Ok(version)
    }

    /// Members of a WebDataset, or of a shar of Lhotse: those of one key are a row.
    fn tar(
        &mut self,
        storage: &Arc<dyn Storage>,
        path: &Arc<Path>,
        manifest: &Manifest,
        asked: &TableRequest<'_>,
    ) -> Result<Version> {
        let mut tar = Tar::open(storage, path)?;
        let chosen = manifest.path_column.as_deref().map(|ending| ending.trim_start_matches('.'));
        let has_label = *asked.label != ColumnChoice::Nothing;
        let label = asked.label.name().unwrap_or("cls");
        // An ending, or the name of a value in the member that ends in json.
        let wanted: Vec<&str> = std::iter::once(label)
            .chain(asked.others.iter().map(|name| name.trim_start_matches('.')))
            .collect();
        let (mut keys, mut groups) = (NameIndex::default(), Vec::<MemberGroup>::new());
        // bounded: the columns that the user names.
        let mut seen = vec![false; wanted.len()];
        let (mut damage, n_wanted, mut inference) = (None, wanted.len(), SchemaInference::default());
        loop {
            let member = match tar.next() {
                Ok(Some(member)) => member,
                Ok(None) => break,
                Err(error)
                    if error.kind.is_record()
                        && error.kind != ErrorKind::Unsupported
                        && !groups.is_empty() =>
                {
                    damage = Some(error);
                    break;
                }
                Err(error) => return Err(error),
            };
            check_stop(groups.len() as u64)?;
            let Some((key, ending)) = tar::split(&member.name) else { continue };
            let key = keys.number(key)? as usize;
            if key == groups.len() {
                fallible_alloc::push(&mut groups, MemberGroup::default())?;
            }
            let group = &mut groups[key];
            let ending = String::from_utf8_lossy(ending).to_ascii_lowercase();
            let is_recording = match chosen {
                Some(chosen) => ending.eq_ignore_ascii_case(chosen),
                None => crate::paths::is_recording(format!("x.{ending}").as_ref()),
            };
            if is_recording {
                let place = ArchivePlace { archive: 0, at: member.at, len: member.len };
                if let Some((before, _)) = &group.recording {
                    let show = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
                    let (before, name) = (show(before), show(&member.name));
                    let message = match tar::split(before.as_bytes()) {
                        Some((_, one)) if one != ending.as_bytes() => format!(
                            "{before:?} and {name:?} have the same key, expected one recording each; choose one ending, as \
                             with forebay.Manifest(..., path_column={ending:?})"
                        ),
                        _ => {
                            format!("the archive has {name:?} twice; write it with a key for each recording")
                        }
                    };
                    return Err(Error::new(ErrorKind::Config, message));
                }
                group.recording = Some((member.name, place));
                continue;
            }
            let is_read = |at: usize| wanted[at] == ending && (at > 0 || has_label);
            let is_json = ending == "json";
            if key < schema_inference::ROWS && !is_json {
                match Some(member.len).filter(|&len| len <= LOOKED_AT_MEMBER) {
                    None => inference.other(&ending, "bytes"),
                    Some(len) => {
                        let data = tar.exactly(member.at, len)?;
                        match std::str::from_utf8(&data) {
                            Ok(_) => inference.value(&ending, of_member(&ending, &data)),
                            Err(_) => inference.other(&ending, "bytes"),
                        }
                    }
                }
            }
            if !(0..n_wanted).any(is_read) && !is_json {
                continue;
            }
            if member.len > MOST_TEXT_BYTES {
                let message = format!(
                    "the member {:?} has {} bytes, at most {MOST_TEXT_BYTES} are read as columns",
                    String::from_utf8_lossy(&member.name),
                    member.len
                );
                return Err(Error::new(ErrorKind::TooLarge, message));
            }
            let data = tar.exactly(member.at, member.len)?;
            for at in (0..n_wanted).filter(|&at| is_read(at)) {
                seen[at] = true;
                // bounded: one for each column.
                group.cells.resize(n_wanted, None);
                group.cells[at] = Some(data.clone());
            }
            if is_json {
                group.json = Some(data);
            }
        }
        let version = tar.file().version();
        let mut columns = builders(wanted.len());
        for group in groups {
            let Some((name, place)) = group.recording else { continue };
            let row = self.n_rows();
            let shown = String::from_utf8_lossy(&name).into_owned();
            if place.at.saturating_add(place.len) > version.size && damage.is_none() {
                let message = format!("the archive is cut off within {shown:?}");
                damage = Some(Error::new(ErrorKind::Truncated, message).at_byte(version.size));
            }
            let number = self.names.number(&name)?;
            if number as usize != self.places.len() {
                let message =
                    format!("the archive has {shown:?} twice; write it with a key for each recording");
                return Err(Error::new(ErrorKind::Config, message));
            }
            fallible_alloc::push(&mut self.places, Some(place))?;
            fallible_alloc::push(&mut self.files, number)?;
            let json: Option<Json<'_>> = match &group.json {
                Some(json) => Some(serde_json::from_slice(json).map_err(|error| {
                    let message = format!("the member that ends in json beside {shown:?} is not JSON");
                    Error::new(ErrorKind::Format, message).because(error)
                })?),
                None => None,
            };
            if let Some(object) = json.as_ref().and_then(Json::as_object)
                && inference.row()
            {
                inference.object(object);
            }
            for (at, (column, name)) in columns.iter_mut().zip(&wanted).enumerate() {
                let cell = match group.cells.get(at).and_then(Option::as_ref) {
                    Some(text) => of_member(name, text),
                    None => {
                        let object = json.as_ref().and_then(Json::as_object);
                        let found = match at {
                            0 if !has_label => None,
                            0 if asked.label.name().is_none() => {
                                object.and_then(|object| object.get("label"))
                            }
                            _ => object.and_then(|object| object.find(name)),
                        };
                        seen[at] |= found.is_some();
                        of_json(found)
                    }
                };
                column.push(cell).map_err(|error| in_line(&at_member(row, &shown), name, error))?;
            }
        }
        for (at, name) in wanted.iter().enumerate() {
            if !seen[at] && (at > 0 || asked.label.name().is_some()) {
                let message = format!(
                    "there is no column {name:?}: no member ends in it, and no member that ends in json has it"
                );
                return Err(Error::new(ErrorKind::Schema, message));
            }
        }
        if self.files.is_empty() {
            let message = match chosen {
                Some(chosen) => format!("no member of the archive ends in .{chosen}, as path_column says"),
                None => "no member of the archive is a recording".to_owned(),
            };
            return Err(Error::new(ErrorKind::Format, message));
        }
        self.schema = inference.listed();
        let has_member = self.schema.iter().any(|column| column.name == label);
        let name = if asked.label.name().is_none() && !has_member { "label" } else { label };
        self.label_name = seen[0].then(|| name.to_owned());
        self.set_columns(columns, true)?;
        self.label.take_if(|_| !seen[0]);
        self.archives = vec![path.clone()];
        self.damage = damage;
        Ok(version)
    }

    /// Finds the files in the archives at `root`, which may be a pattern.
    fn find_in(&mut self, root: &Path, storage: &Arc<dyn Storage>) -> Result<()> {
        let archives = paths::expand(&[root], Reads::Recordings, storage)?;
        fallible_alloc::resize(&mut self.places, self.names.texts().len(), None)?;
        for (number, path) in (0..).zip(&archives) {
            let path: Arc<Path> = path.as_path().into();
            let mut read = || -> Result<()> {
                let mut tar = Tar::open(storage, &path)?;
                while let Some(member) = tar.next()? {
                    check_stop(0)?;
                    let name = member.name.strip_prefix(b"./").unwrap_or(&member.name);
                    // Cuts have names without endings.
                    let stem =
                        name.iter().rposition(|&byte| byte == b'.').map_or(name, |point| &name[..point]);
                    let shown = String::from_utf8_lossy(name);
                    let is_recording = paths::is_recording(shown.as_ref().as_ref());
                    let Some(file) =
                        self.names.find(name).or_else(|| self.names.find(stem).filter(|_| is_recording))
                    else {
                        continue;
                    };
                    let place = &mut self.places[file as usize];
                    if let Some(ArchivePlace { archive, .. }) = place {
                        let before = archives[*archive as usize].display();
                        let message = format!(
                            "the member {shown:?} is in {before} too, so it is not known which one a row names; give \
                             archives in which each name is there once"
                        );
                        return Err(Error::new(ErrorKind::Config, message));
                    }
                    *place = Some(ArchivePlace { archive: number, at: member.at, len: member.len });
                }
                Ok(())
            };
            read().map_err(|error| error.in_shard(&path))?;
            self.archives.push(path.clone());
        }
        Ok(())
    }

    fn given(&mut self, rows: &GivenRows, manifest: &Manifest, asked: &TableRequest<'_>) -> Result<()> {
        let roles = Roles::choose(&rows.names, manifest, asked, false)?;
        self.with_segments(&roles);
        for row in 0..rows.len() {
            let path = roles.path.map(|role| &rows.columns[role]);
            let name = path.and_then(|column| column.text(row));
            if let Some(path) = path.filter(|path| name.is_none() && !path.is_null(row)) {
                let message = format!("row {row}: the path is {}, expected text", said(&path.value(row)?));
                return Err(Error::new(ErrorKind::Schema, message));
            }
            let number = |role: Option<usize>| {
                let Some(column) = role.map(|role| &rows.columns[role]) else { return Ok(None) };
                match column.number(row) {
                    Some(number) => Ok(Some(number).filter(|number| !number.is_nan())),
                    None if column.is_null(row) => Ok(None),
                    None => Err(no_number(&at(None, row), &said(&column.value(row)?))),
                }
            };
            let (start, end) = roles.segment(number)?;
            self.add(None, name, start, end)?;
        }
        let listed = rows.names.iter().zip(&rows.columns);
        let listed =
            listed.map(|(name, column)| SchemaColumn::new(name.clone(), column.column_type().to_string()));
        self.schema = listed.collect();
        self.label_name = roles.label.map(|role| rows.names[role].clone());
        self.label = roles.label.map(|role| rows.columns[role].clone());
        self.others = roles.others.iter().map(|&role| rows.columns[role].clone()).collect();
        Ok(())
    }
}

fn check_stop(row: u64) -> Result<()> {
    if row.is_multiple_of(POLLED) { cancel::check("opening") } else { Ok(()) }
}

/// Checks a path that the user names.
///
/// # Errors
/// [`ErrorKind::Config`] for one that is no file's, such as a URL.
pub(crate) fn check_named(path: &Path) -> Result<()> {
    check_local(path.as_os_str().as_encoded_bytes()).map_err(|message| Error::new(ErrorKind::Config, message))
}

/// Checks the path of a recording, which may be a URL; the error is the message.
fn check_local(path: &[u8]) -> Result<(), String> {
    let Ok(path) = std::str::from_utf8(path).map(Path::new) else { return Ok(()) };
    match urls::is_url(path) {
        true => urls::resolved(path).map(|_| ()).map_err(|error| error.to_string()),
        false => urls::check_path(path).map_err(|error| error.message),
    }
}

/// The place of a row of an archive in messages.
fn at_member(row: usize, name: &str) -> String {
    format!("row {row}, {name:?}")
}

/// The text of a member. Numbers of classes are whole numbers.
fn of_member<'a>(ending: &str, text: &'a [u8]) -> Cell<'a> {
    let trimmed = text.trim_ascii();
    let number = std::str::from_utf8(trimmed).ok().filter(|_| ending == "cls");
    match number {
        Some(text) => text.parse().map_or(Cell::Text(trimmed), Cell::Int),
        None if ending == "cls" => Cell::Text(trimmed),
        None => Cell::Text(text.trim_ascii_end()),
    }
}

fn said(value: &Value) -> String {
    match value {
        Value::Int(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Text(text) => format!("{text:?}"),
        Value::Null => "null".to_owned(),
        _ => "a list".to_owned(),
    }
}

fn no_number(place: &str, found: &str) -> Error {
    let message = format!(
        "{place}: a segment starts or ends at {found}, expected a number; name other columns with start= and end=, \
         or start=\"\" for none"
    );
    Error::new(ErrorKind::Schema, message)
}

fn in_line(place: &str, column: &str, error: Error) -> Error {
    let mut error = in_column(column, error);
    error.message = format!("{place}: {}", error.message);
    error
}

/// The file of a cut's recording; of one in an archive beside it, the name of the cut.
fn file_of<'a>(recording: &'a Object<'_>, cut: &'a Object<'_>, place: &str) -> Result<&'a [u8]> {
    let text = |found: &'a Object<'_>, name: &str| {
        found.get(name).and_then(Json::as_text).filter(|text| !text.is_empty())
    };
    let found = match recording.get("sources").and_then(Json::as_list) {
        Some([Json::Object(source)]) => match text(source, "type") {
            Some("file" | "url") => text(source, "source"),
            Some("shar") => text(source, "source").or_else(|| text(cut, "id")),
            _ => None,
        },
        _ => None,
    };
    found.map(str::as_bytes).ok_or_else(|| {
        let message = format!(
            "{place}: the path is an object, expected text, or a recording of Lhotse with one source of the type file"
        );
        Error::new(ErrorKind::Schema, message)
    })
}

fn cell_of(value: &Value, is_bool: bool) -> Cell<'_> {
    match value {
        Value::Int(number) if is_bool => Cell::Bool(*number != 0),
        Value::Int(number) => Cell::Int(*number),
        Value::Float(number) => Cell::Float(*number),
        Value::Text(text) => Cell::Text(text.as_bytes()),
        Value::List(items) => Cell::List(items.iter().map(|item| cell_of(item, false)).collect()),
        _ => Cell::Null,
    }
}
