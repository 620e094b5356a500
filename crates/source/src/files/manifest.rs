//! [`Manifest`]: a table of recordings as a user describes it, and which of its columns are what.

use std::path::{Path, PathBuf};

use super::column::{ColumnBuilder, TableColumn};
use crate::{ColumnChoice, Error, ErrorKind, Result};

/// A table whose rows name recordings.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    pub rows: RowSource,
    /// The folder of relative paths; `None`: that of the table.
    pub root: Option<PathBuf>,
    /// The column of paths; `None`: one of the usual names.
    pub path_column: Option<String>,
    pub start: ColumnChoice,
    pub end: ColumnChoice,
    pub unit: Unit,
    /// The names of the columns of a table without a header.
    pub columns: Option<Vec<String>>,
}

impl Manifest {
    /// A table with the usual columns.
    pub fn of(path: impl Into<PathBuf>) -> Self {
        Self {
            rows: RowSource::File(path.into()),
            root: None,
            path_column: None,
            start: ColumnChoice::Usual,
            end: ColumnChoice::Usual,
            unit: Unit::Seconds,
            columns: None,
        }
    }

    /// The table's file, or a name for rows in memory.
    pub fn path(&self) -> &Path {
        match &self.rows {
            RowSource::File(path) => path,
            RowSource::Given(_) => Path::new("<rows>"),
        }
    }
}

/// Where the rows of a table are.
#[derive(Debug, Clone, PartialEq)]
pub enum RowSource {
    /// In a file: csv, tsv, labels in txt, JSON lines, these also compressed, Parquet, or a script of Kaldi;
    /// or in a folder that has one.
    File(PathBuf),
    Given(std::sync::Arc<GivenRows>),
}

#[derive(Debug, Default)]
pub struct GivenRows {
    pub(super) names: Vec<String>,
    /// The columns, all of one length.
    pub(super) columns: Vec<TableColumn>,
    hash: u64,
}

impl PartialEq for GivenRows {
    fn eq(&self, other: &Self) -> bool {
        self.names == other.names && self.hash == other.hash
    }
}

/// A value of a row that is given.
#[derive(Debug, Clone, PartialEq)]
pub enum GivenValue {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Vec<u8>),
    List(Vec<GivenValue>),
}

impl GivenValue {
    fn cell(&self) -> super::column::Cell<'_> {
        use super::column::Cell;
        match self {
            Self::Null => Cell::Null,
            Self::Bool(value) => Cell::Bool(*value),
            Self::Int(value) => Cell::Int(*value),
            Self::Float(value) => Cell::Float(*value),
            Self::Text(value) => Cell::Text(value),
            Self::List(items) => Cell::List(items.iter().map(Self::cell).collect()),
        }
    }
}

impl GivenRows {
    /// Rows by column. `NaN` in a column of anything but numbers is a null, as pandas writes it.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for columns of different lengths; [`ErrorKind::Schema`] for one of several
    /// types.
    pub fn new(columns: Vec<(String, Vec<GivenValue>)>) -> Result<Self> {
        let mut rows = Self::default();
        let mut first: Option<(String, usize)> = None;
        for (name, values) in columns {
            let (before, n) = first.get_or_insert_with(|| (name.clone(), values.len()));
            if *n != values.len() {
                let message =
                    format!("column {before:?} has {n} rows and column {name:?} has {}", values.len());
                return Err(Error::new(ErrorKind::Config, message));
            }
            let is_nan = |value: &GivenValue| matches!(value, GivenValue::Float(number) if number.is_nan());
            let is_number = |value: &GivenValue| {
                matches!(value, GivenValue::Int(_) | GivenValue::Float(_) | GivenValue::Null)
            };
            let has_numbers = values.iter().all(is_number);
            let mut column = ColumnBuilder::default();
            for (row, value) in values.iter().enumerate() {
                let cell = if !has_numbers && is_nan(value) { GivenValue::Null.cell() } else { value.cell() };
                column.push(cell).map_err(|mut error| {
                    error.message = format!("row {row}, column {name:?}: {}", error.message);
                    error
                })?;
            }
            let column = column.finish()?;
            rows.hash = column.hash(rows.hash);
            rows.names.push(name);
            rows.columns.push(column);
        }
        Ok(rows)
    }

    pub fn len(&self) -> usize {
        self.columns.first().map_or(0, TableColumn::len)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Unit {
    #[default]
    Seconds,
    Samples,
}

/// The usual names of the column of paths, the first one first, as [`plain`] has them.
const PATHS: [&str; 25] = [
    "path",
    "filepath",
    "filename",
    "file",
    "audiofilepath",
    "audiopath",
    "audiofilename",
    "audiofile",
    "audio",
    "wavpath",
    "wavfilename",
    "wavfile",
    "wav",
    "recordingpath",
    "recordingfile",
    "recording",
    "soundfile",
    "soundpath",
    "relativepath",
    "relpath",
    "beginpath",
    "beginfile",
    "location",
    "filelocation",
    "ytid",
];
/// The usual pairs of start and end.
const SPANS: [(&str, &str); 14] = [
    ("start", "end"),
    ("starttime", "endtime"),
    ("begintime", "endtime"),
    ("startseconds", "endseconds"),
    ("starts", "ends"),
    ("begintimes", "endtimes"),
    ("starttimes", "endtimes"),
    ("startsec", "endsec"),
    ("startsample", "endsample"),
    ("begin", "end"),
    ("onset", "offset"),
    ("tmin", "tmax"),
    ("start", "stop"),
    ("starttime", "stoptime"),
];
/// The first pairs, whose start counts without an end too.
const LONE: usize = 9;
/// The usual names of lengths, seconds, in place of an end.
const LENGTHS: [&str; 4] = ["duration", "durations", "durationsec", "durationseconds"];

/// The column of Raven that has the start within the file.
const WITHIN: &str = "fileoffsets";

/// A name in small letters and digits alone: `Begin Time (s)` is `begintimes`.
pub(super) fn plain(name: &str) -> String {
    name.chars().filter(|letter| letter.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// Which columns of a table are what, by their numbers.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Roles {
    /// None: rows name no recording, and all are of the one beside the table.
    pub path: Option<usize>,
    pub start: Option<usize>,
    pub end: Option<usize>,
    pub are_lengths: bool,
    /// The starts within the files, of a table whose starts and ends are those of several files in a row.
    pub within: Option<usize>,
    pub label: Option<usize>,
    pub others: Vec<usize>,
}

/// What is read of a table.
#[derive(Debug, Clone)]
pub(super) struct TableRequest<'a> {
    /// The column of paths, if the loader names it and not the manifest.
    pub recordings: Option<&'a str>,
    /// As in [`SourceOptions`](crate::SourceOptions).
    pub label: &'a ColumnChoice,
    pub others: &'a [String],
}

/// The first columns of a table, for messages.
pub(super) fn listed(names: &[String]) -> String {
    const SHOWN: usize = 30;
    /// The most letters of a name: where a text is taken for a table, names are its lines.
    const LONGEST: usize = 40;
    let short = |name: &String| match name.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{:?}...", &name[..end]),
        None => format!("{name:?}"),
    };
    let shown: Vec<_> = names.iter().take(SHOWN).map(short).collect();
    let more = names.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    if shown.is_empty() {
        "it has no columns".into()
    } else {
        format!("the columns are {}{more}", shown.join(", "))
    }
}

/// The usual columns of start and end among plain names, and whether the end is a length.
fn usual_span(plains: &[String], path: Option<usize>) -> (Option<usize>, Option<usize>, bool) {
    let usual = |name: &&str| plains.iter().position(|known| known == name).filter(|&at| Some(at) != path);
    let pair = SPANS.iter().find_map(|(start, end)| Some((usual(start)?, usual(end)?)));
    // Beside the number of a sample, a length would be in another unit.
    let starts = SPANS.iter().map(|(start, _)| start).filter(|&&start| start != "startsample");
    let with_length =
        || Some((["offset"].iter().chain(starts).find_map(usual)?, LENGTHS.iter().find_map(usual)?));
    if let Some((start, end)) = pair {
        (Some(start), Some(end), false)
    } else if let Some((start, length)) = with_length() {
        (Some(start), Some(length), true)
    } else {
        // A segment without an end reaches to the end of the recording.
        (SPANS[..LONE].iter().find_map(|(start, _)| usual(start)), None, false)
    }
}

/// A column that usually has starts or ends, of a table without segments.
pub(super) fn time_without_segments<'a>(mut names: impl Iterator<Item = &'a str> + Clone) -> Option<&'a str> {
    let plains: Vec<String> = names.clone().map(plain).collect();
    let is_time = |name: &str| SPANS.iter().any(|&(start, end)| [start, end].contains(&&*plain(name)));
    if usual_span(&plains, None).0.is_some() { None } else { names.find(|name| is_time(name)) }
}

impl Roles {
    /// Finds the columns by their names. `beside` allows a table without a column of paths.
    ///
    /// # Errors
    /// [`ErrorKind::Schema`] that lists the columns if one is missing.
    pub(super) fn choose(
        names: &[String],
        manifest: &Manifest,
        asked: &TableRequest<'_>,
        beside: bool,
    ) -> Result<Self> {
        let wrong = |message: String| Error::new(ErrorKind::Schema, message);
        let find = |name: &str| names.iter().position(|known| known == name);
        let named = |parameter: &str, name: &str| {
            find(name).ok_or_else(|| {
                wrong(format!("{parameter} is {name:?}, but there is no such column; {}", listed(names)))
            })
        };
        let plains: Vec<String> = names.iter().map(|name| plain(name)).collect();
        let usual = |name: &str| plains.iter().position(|known| known == name);
        let path = match &manifest.path_column {
            Some(name) if asked.recordings.is_some() => Some(named("the column of recordings", name)?),
            Some(name) => Some(named("path_column", name)?),
            None => PATHS.iter().find_map(|name| usual(name)),
        };
        if path.is_none() && !beside {
            let looks_like_data = names.iter().find(|name| crate::paths::is_recording(name.as_ref()));
            let hint = match looks_like_data {
                Some(name) => format!(
                    "; {name:?} is a recording, so the table may have no header: name its columns with columns="
                ),
                None => String::new(),
            };
            return Err(wrong(format!(
                "no column has paths: expected is one named path, file_name, filepath, audio or the like, or name it with \
                 audio_column= (of a Manifest: path_column=), or several with audio=; {}{hint}",
                listed(names)
            )));
        }
        let one = |parameter: &str, given: &ColumnChoice| {
            given.name().map(|name| named(parameter, name)).transpose()
        };
        let (mut start, mut end) = (one("start", &manifest.start)?, one("end", &manifest.end)?);
        let mut are_lengths = end.is_some_and(|end| LENGTHS.contains(&&*plains[end]));
        // A usual pair is taken as a whole; with one of them given, the other is not guessed.
        if [&manifest.start, &manifest.end] == [&ColumnChoice::Usual; 2] {
            (start, end, are_lengths) = usual_span(&plains, path);
        }
        // Raven counts from the first of the files that are open together.
        let is_raven = start.is_some_and(|start| plains[start] == "begintimes");
        let within = if is_raven && path.is_some() { usual(WITHIN) } else { None };
        if path.is_none() && start.is_none() && end.is_none() {
            return Err(wrong(format!(
                "no column has paths and none has starts and ends, as labels of Audacity have; name them as path_column, start \
                 and end of a forebay.Manifest; {}",
                listed(names)
            )));
        }
        let label = match asked.label {
            ColumnChoice::Nothing => None,
            ColumnChoice::Named(name) => Some(named("label_column", name)?),
            ColumnChoice::Usual => ["label", "labels"].iter().find_map(|name| find(name)),
        };
        let other = |name: &String| {
            find(name).ok_or_else(|| wrong(format!("there is no column {name:?}; {}", listed(names))))
        };
        let others = asked.others.iter().map(other).collect::<Result<_>>()?;
        Ok(Self { path, start, end, are_lengths, within, label, others })
    }

    /// The start and the end of a row's segment.
    ///
    /// # Errors
    /// Those of `number`, which reads a column.
    pub(super) fn segment(
        &self,
        number: impl Fn(Option<usize>) -> Result<Option<f64>>,
    ) -> Result<(Option<f64>, Option<f64>)> {
        let (start, end) = (number(self.start)?, number(self.end)?);
        let end = if self.are_lengths { end.map(|length| start.unwrap_or(0.0) + length) } else { end };
        Ok(match number(self.within)? {
            Some(within) => (Some(within), end.map(|end| within + (end - start.unwrap_or(0.0)))),
            None => (start, end),
        })
    }

    /// Whether segments and label are the same columns.
    pub(super) fn has_same(&self, other: &Self) -> bool {
        let of = |roles: &Self| (roles.start, roles.end, roles.are_lengths, roles.within, roles.label);
        of(self) == of(other)
    }
}

/// Whether a column of this name may be one of segments or labels, beside those that are known.
pub(super) fn counts_too<'a>(name: &str, mut known: impl Iterator<Item = &'a String>) -> bool {
    let name = &*plain(name);
    let is_one = SPANS.iter().any(|&(start, end)| name == start || name == end)
        || LENGTHS.contains(&name)
        || [WITHIN, "label", "labels"].contains(&name);
    is_one && !known.any(|known| plain(known) == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roles(names: &[&str], change: impl Fn(&mut Manifest)) -> Result<Roles> {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut manifest = Manifest::of("a.csv");
        change(&mut manifest);
        let asked = TableRequest { recordings: None, label: &ColumnChoice::Usual, others: &[] };
        Roles::choose(&names, &manifest, &asked, false)
    }

    #[test]
    fn tables_as_people_have_them() {
        for (names, path, span) in [
            (&["id", "file_name", "label"][..], 1, None),
            (&["audio_filepath", "duration", "offset", "text"], 0, Some((2, 1, true))),
            (&["audio_filepath", "duration", "text"], 0, None),
            (&["Selection", "View", "Begin Time (s)", "End Time (s)", "Begin Path"], 4, Some((2, 3, false))),
            (&["Start (s)", "End (s)", "Common name", "File"], 3, Some((0, 1, false))),
            (&["filepath", "start_time", "end_time", "ebird_code"], 0, Some((1, 2, false))),
            (&["YTID", "start_seconds", "end_seconds", "positive_labels"], 0, Some((1, 2, false))),
            (&["filename", "onset", "offset", "event_label"], 0, Some((1, 2, false))),
            (&["file", "path"], 1, None),
            (&["path", "end", "offset", "onset"], 0, Some((3, 2, false))),
            (&["path", "end", "onset"], 0, None),
            (&["path", "onset", "duration"], 0, Some((1, 2, true))),
            (&["path", "Begin Time (s)", "Duration (s)"], 0, Some((1, 2, true))),
            (&["path", "start", "stop"], 0, Some((1, 2, false))),
        ] {
            let found = roles(names, |_| {}).unwrap();
            assert_eq!(found.path, Some(path), "{names:?}");
            let given = found.start.map(|start| (start, found.end.unwrap(), found.are_lengths));
            assert_eq!(given, span, "{names:?}");
        }
        let found = roles(&["path", "label", "Start Time"], |_| {}).unwrap();
        assert_eq!((found.start, found.end), (Some(2), None));
        let label = roles(&["path", "label"], |_| {}).unwrap().label;
        assert_eq!(label, Some(1));
        let half = |names: &[&str]| time_without_segments(names.iter().copied()).map(str::to_owned);
        assert_eq!(half(&["path", "begn", "End (s)"]).as_deref(), Some("End (s)"));
        assert_eq!(half(&["path", "onset", "label"]).as_deref(), Some("onset"));
        assert_eq!([half(&["path", "start"]), half(&["path", "duration"])], [None, None]);
    }

    #[test]
    fn columns_that_are_named() {
        let names = ["a", "start", "end", "from"];
        let found = roles(&names, |manifest| {
            manifest.path_column = Some("a".into());
            manifest.start = ColumnChoice::Named("from".into());
        });
        assert_eq!(found.unwrap(), Roles { path: Some(0), start: Some(3), ..Roles::default() });
        let found = roles(&names, |manifest| {
            manifest.path_column = Some("a".into());
            manifest.start = ColumnChoice::Nothing;
        });
        assert_eq!(found.unwrap(), Roles { path: Some(0), ..Roles::default() });
        for (change, told) in [
            (
                Box::new(|_: &mut Manifest| {}) as Box<dyn Fn(&mut Manifest)>,
                r#"the columns are "a", "start""#,
            ),
            (Box::new(|manifest| manifest.path_column = Some("b".into())), "path_column is \"b\""),
            (
                Box::new(|manifest| {
                    manifest.path_column = Some("a".into());
                    manifest.end = ColumnChoice::Named("till".into());
                }),
                "end is \"till\"",
            ),
        ] {
            let error = roles(&names, change).unwrap_err();
            assert!(error.message.contains(told), "{error}");
        }
        let error = roles(&["birds/one.WAV", "3"], |_| {}).unwrap_err();
        assert!(error.message.contains("columns="), "{error}");
    }
}
