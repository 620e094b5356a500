//! [`TableBuilder`]: collects the rows of a table of any format, and of rows in memory.
//!
//! Each format has a method of its own in its file; what they find of a row, [`TableBuilder::add`] and
//! [`ColumnBuilder`]s take.

use std::{path::Path, sync::Arc};

use super::{
    column::{ColumnBuilder, TableColumn},
    manifest::{GivenRows, Manifest, Roles, TableRequest, Unit},
    names::NameIndex,
    table::{ArchivePlace, LineNumbers, NO_FILE, RecordingTable, Segments, check_local},
};
use crate::{
    Error, ErrorKind, Result, cancel,
    columns::{SchemaColumn, in_column},
    compression::Compression,
    fallible_alloc,
    fields::Value,
    layouts::advice_on,
    storage::Storage,
    table_format::{TableFormat, ending_of},
};

/// Rows between two checks whether opening is to end.
const POLLED: u64 = 4096;

/// Collects the rows of a table.
#[derive(Default)]
pub(super) struct TableBuilder {
    pub unit: Unit,
    pub names: NameIndex,
    pub files: Vec<u32>,
    pub segments: Option<Segments>,
    pub label: Option<TableColumn>,
    pub label_name: Option<String>,
    pub others: Vec<TableColumn>,
    pub schema: Vec<SchemaColumn>,
    pub lines: Option<LineNumbers>,
    pub n_bytes: u64,
    pub damage: Option<Error>,
    pub archives: Vec<Arc<Path>>,
    pub are_archives_of_rows: bool,
    pub places: Vec<Option<ArchivePlace>>,
}

pub(super) fn builders(n: usize) -> Vec<ColumnBuilder> {
    (0..n).map(|_| ColumnBuilder::default()).collect()
}

/// The place of a row in messages.
pub(super) fn at(line: Option<u64>, row: usize) -> String {
    line.map_or_else(|| format!("row {row}"), |line| format!("line {line}"))
}

impl TableBuilder {
    pub(super) fn n_rows(&self) -> usize {
        self.files.len()
    }

    /// Adds the path and the segment of a row.
    pub(super) fn add(
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
    pub(super) fn with_segments(&mut self, roles: &Roles) {
        if roles.start.is_some() || roles.end.is_some() {
            self.segments = Some(Segments { unit: self.unit, starts: Vec::new(), ends: Vec::new() });
        }
    }

    /// Sets the columns; the first one is the label, if there is one.
    pub(super) fn set_columns(&mut self, columns: Vec<ColumnBuilder>, has_label: bool) -> Result<()> {
        let mut columns = columns.into_iter().map(ColumnBuilder::finish);
        self.label = if has_label { columns.next().transpose()? } else { None };
        self.others = columns.collect::<Result<_>>()?;
        Ok(())
    }

    pub(super) fn finish(mut self, path: Arc<Path>, root: Arc<Path>) -> RecordingTable {
        self.files.shrink_to_fit();
        if let Some(segments) = &mut self.segments {
            segments.starts.shrink_to_fit();
            segments.ends.shrink_to_fit();
        }
        RecordingTable {
            path,
            root,
            is_trusted: false,
            is_of_manifest: false,
            n_rows: self.files.len() as u64,
            n_bytes: self.n_bytes,
            damage: self.damage,
            archives: self.archives,
            are_archives_of_rows: self.are_archives_of_rows,
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

    pub(super) fn read(
        &mut self,
        storage: &Arc<dyn Storage>,
        path: &Arc<Path>,
        manifest: &Manifest,
        asked: &TableRequest<'_>,
    ) -> Result<()> {
        let (name, compression) = Compression::split(path);
        let format = TableFormat::of_ending(&ending_of(name));
        let format = format.filter(|format| compression.is_none() || format.may_be_compressed());
        let version = match format {
            Some(TableFormat::Text) => self.csv(storage, path, manifest, asked)?,
            Some(TableFormat::JsonLines) => self.json(storage, path, manifest, asked)?,
            Some(TableFormat::Kaldi) => self.kaldi(storage, path, manifest, asked)?,
            Some(TableFormat::Parquet) => self.parquet(storage, path, manifest, asked)?,
            Some(TableFormat::Archive) => self.tar(storage, path, manifest, asked)?,
            None => {
                if let Some(advice) = advice_on(path) {
                    return Err(Error::new(ErrorKind::Config, advice));
                }
                let ending = ending_of(path);
                let packed = match &ending[..] {
                    "gz" | "tgz" | "zst" | "bz2" | "xz" | "zip" => "; unpack it first",
                    "xls" | "xlsx" => "; save it as .csv",
                    _ => "",
                };
                let message = format!(
                    "it ends in {ending:?}, expected is a table that ends in .csv, .tsv, .txt, .jsonl (also with .gz or .zst) or .parquet, \
                     a wav.scp, or a .tar{packed}"
                );
                return Err(Error::new(ErrorKind::Config, message));
            }
        };
        self.n_bytes = version.size;
        Ok(())
    }

    pub(super) fn given(
        &mut self,
        rows: &GivenRows,
        manifest: &Manifest,
        asked: &TableRequest<'_>,
    ) -> Result<()> {
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

pub(super) fn check_stop(row: u64) -> Result<()> {
    if row.is_multiple_of(POLLED) { cancel::check("opening") } else { Ok(()) }
}

pub(super) fn said(value: &Value) -> String {
    match value {
        Value::Int(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Text(text) => format!("{text:?}"),
        Value::Null => "null".to_owned(),
        _ => "a list".to_owned(),
    }
}

pub(super) fn no_number(place: &str, found: &str) -> Error {
    let message = format!(
        "{place}: a segment starts or ends at {found}, expected a number; name other columns with Manifest(start=, end=), \
         or Manifest(start=\"\", end=\"\") for none"
    );
    Error::new(ErrorKind::Schema, message)
}

pub(super) fn in_line(place: &str, column: &str, error: Error) -> Error {
    let mut error = in_column(column, error);
    error.message = format!("{place}: {}", error.message);
    error
}
