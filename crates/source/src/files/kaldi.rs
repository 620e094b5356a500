//! Data folders of Kaldi: `wav.scp`, and beside it `segments`, `text`, `utt2spk`, `utt2dur` and `reco2dur`.
//!
//! Input: the path of a `wav.scp`. Output: a row for each line of `segments`, or of `wav.scp` if there is no
//! such file, with [`KaldiColumn`]s. A file beside `wav.scp` is read once, and only if a column of it is
//! wanted. Its lines may have another order than the rows, and may be about other utterances too.
//!
//! A recording is a file, or lies in an ark at an offset, `wav.ark:1234`: there its own header says how long
//! it is (`recording_at`), so opening a table reads no ark. Commands (`sph2pipe ... |`) are refused: no
//! program is run. Source: Kaldi's pages "Data preparation" and "Kaldi I/O mechanisms"; of arks with other
//! formats than WAV, the documentation of kaldiio.

use std::{path::Path, sync::Arc};

use super::{
    column::{Cell, ColumnBuilder},
    manifest::{Manifest, TableRequest, Unit, listed},
    names::{NameIndex, TextList},
    rows::{TableBuilder, builders, check_stop},
    table::{ArchivePlace, LineNumbers, Segments},
    text_input::TextInput,
};
use crate::{
    ColumnChoice, Error, ErrorKind, Result,
    columns::SchemaColumn,
    fallible_alloc,
    storage::{Storage, StoredFile, Version},
    table_format::is_archive,
};

/// The most bytes of a value that a message quotes.
const MOST_SHOWN: usize = 80;
/// The number of a row or a recording without a line in another file.
const NO_LINE: u32 = u32::MAX;

/// A column of a data folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KaldiColumn {
    Utterance,
    Recording,
    Start,
    End,
    Duration,
    Speaker,
    Text,
}

impl KaldiColumn {
    const ALL: [Self; 7] =
        [Self::Utterance, Self::Recording, Self::Start, Self::End, Self::Duration, Self::Speaker, Self::Text];

    fn name(self) -> &'static str {
        match self {
            Self::Utterance => "utterance",
            Self::Recording => "recording",
            Self::Start => "start",
            Self::End => "end",
            Self::Duration => "duration",
            Self::Speaker => "speaker",
            Self::Text => "text",
        }
    }

    fn content(self) -> &'static str {
        match self {
            Self::Start | Self::End | Self::Duration => "float64",
            _ => "text",
        }
    }
}

/// The lines of a file: a name, and what it has.
struct NamedLines {
    input: TextInput,
    path: Arc<Path>,
    /// The number of the last line.
    number: u64,
}

impl NamedLines {
    fn open(storage: &Arc<dyn Storage>, path: &Arc<Path>) -> Result<Self> {
        Ok(Self { input: TextInput::open(storage, path)?, path: path.clone(), number: 0 })
    }

    /// The same; None if there is no such file.
    fn open_if_there(storage: &Arc<dyn Storage>, path: &Arc<Path>) -> Result<Option<Self>> {
        match Self::open(storage, path) {
            Ok(lines) => Ok(Some(lines)),
            // A link to nothing is a file that is lost.
            Err(error) if error.kind == ErrorKind::NotFound && path.symlink_metadata().is_err() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The name and the rest of the next line that is not blank.
    ///
    /// # Errors
    /// [`ErrorKind::Format`] for a line that is not UTF-8, or too long; those of [`TextInput::more`].
    fn next(&mut self) -> Result<Option<(&str, &str)>> {
        let line = loop {
            self.number += 1;
            let Some(line) = self.input.line(self.number).map_err(|error| error.in_shard(&self.path))? else {
                return Ok(None);
            };
            if !self.input.text(line.clone()).trim_ascii().is_empty() {
                break line;
            }
        };
        check_stop(self.number)?;
        let line = match std::str::from_utf8(self.input.text(line)) {
            Ok(line) => {
                let line = if self.number == 1 { line.trim_start_matches('\u{feff}') } else { line };
                line.trim_ascii()
            }
            Err(error) => {
                let message = format!(
                    "byte {} of the line is not UTF-8; write the file as UTF-8, as with iconv -f WINDOWS-1252 -t UTF-8",
                    error.valid_up_to()
                );
                return Err(wrong(&self.path, self.number, ErrorKind::Format, &message));
            }
        };
        let (name, rest) = line.split_once([' ', '\t']).unwrap_or((line, ""));
        Ok(Some((name, rest.trim_ascii_start())))
    }
}

/// An error about a line of a file.
fn wrong(path: &Path, line: u64, kind: ErrorKind, message: &str) -> Error {
    Error::new(kind, format!("line {line}: {message}")).in_shard(path)
}

/// The beginning of a value, for messages.
fn shown(value: &str) -> String {
    match value.char_indices().nth(MOST_SHOWN) {
        Some((end, _)) => format!("{:?}...", &value[..end]),
        None => format!("{value:?}"),
    }
}

/// The recordings of `wav.scp` by their names.
#[derive(Default)]
struct ScpRecordings {
    names: NameIndex,
    /// What the script has of each.
    values: TextList,
}

impl ScpRecordings {
    /// Reads the file; `each` is given the line of each recording.
    ///
    /// # Errors
    /// [`ErrorKind::Format`] for a line without a path; [`ErrorKind::Unsupported`] for a command;
    /// [`ErrorKind::Config`] for a recording that is there twice.
    fn read(
        storage: &Arc<dyn Storage>,
        path: &Arc<Path>,
        mut each: impl FnMut(u64) -> Result<()>,
    ) -> Result<(Self, Version)> {
        let mut lines = NamedLines::open(storage, path)?;
        let mut found = Self::default();
        while let Some((name, value)) = lines.next()? {
            let n_before = found.names.texts().len();
            let number = found.names.number(name.as_bytes())?;
            let problem = match number as usize == n_before {
                true => refusal(name, value),
                false => Some((
                    ErrorKind::Config,
                    format!("the recording {} is there twice; give each a name of its own", shown(name)),
                )),
            };
            if let Some((kind, message)) = problem {
                return Err(wrong(path, lines.number, kind, &message));
            }
            found.values.push(value.as_bytes())?;
            each(lines.number)?;
        }
        let version = lines.input.version();
        if found.values.len() == 0 {
            let message = "it has no lines, expected a recording and its path on each";
            return Err(Error::new(ErrorKind::Format, message).in_shard(path));
        }
        Ok((found, version))
    }
}

/// Why a value of `wav.scp` is not read.
fn refusal(name: &str, value: &str) -> Option<(ErrorKind, String)> {
    if value.is_empty() {
        let message =
            format!("the recording {} has no path, expected a file, or an ark and an offset", shown(name));
        return Some((ErrorKind::Format, message));
    }
    if value.ends_with('|') || value.starts_with('|') || value == "-" {
        let message = format!(
            "the recording {} is the command {}, and no command is run; write the recordings once, as with wav-copy \
             scp:wav.scp ark,scp:wav.ark,files.scp, and give files.scp as wav.scp",
            shown(name),
            shown(value)
        );
        return Some((ErrorKind::Unsupported, message));
    }
    if let Some((_, digits)) = value.rsplit_once(':')
        && offset_of(value).is_none()
        && !digits.is_empty()
        && digits.bytes().all(|byte| byte.is_ascii_digit())
    {
        return Some((ErrorKind::Format, format!("{} has no offset that a file can have", shown(value))));
    }
    None
}

/// The ark and the offset of a recording in it, `wav.ark:1234`; None for a file.
fn offset_of(value: &str) -> Option<(&str, u64)> {
    let (ark, offset) = value.rsplit_once(':')?;
    // A sign is none of an offset.
    let is_offset = !ark.is_empty() && offset.bytes().all(|byte| byte.is_ascii_digit());
    Some((ark, offset.parse().ok().filter(|_| is_offset)?))
}

/// The rows, and what they have of each column.
struct KaldiRows<'a> {
    storage: &'a Arc<dyn Storage>,
    folder: &'a Path,
    recordings: ScpRecordings,
    /// The name of each row, and the number of its recording; without segments these are the recordings.
    segments: Option<(NameIndex, Vec<u32>)>,
}

impl KaldiRows<'_> {
    fn utterances(&self) -> &NameIndex {
        self.segments.as_ref().map_or(&self.recordings.names, |(utterances, _)| utterances)
    }

    fn recording(&self, row: usize) -> usize {
        self.segments.as_ref().map_or(row, |(_, recordings)| recordings[row] as usize)
    }

    fn beside(&self, name: &str) -> Arc<Path> {
        self.folder.join(name).into()
    }

    /// Calls `each` with the text that a file has of each row, in the order of the rows.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for an utterance that is there twice, or a row that is not there; those of
    /// `check`, which is given a text of a row, and those of `each`.
    fn joined(
        &self,
        name: &str,
        check: impl Fn(&str) -> std::result::Result<(), String>,
        mut each: impl FnMut(&str) -> Result<()>,
    ) -> Result<()> {
        let (mut lines, utterances) =
            (NamedLines::open(self.storage, &self.beside(name))?, self.utterances());
        let (mut texts, mut numbers) = (TextList::default(), Vec::new());
        fallible_alloc::resize(&mut numbers, utterances.texts().len(), NO_LINE)?;
        while let Some((utterance, text)) = lines.next()? {
            let Some(row) = utterances.find(utterance.as_bytes()) else { continue };
            let slot = &mut numbers[row as usize];
            let checked = match *slot {
                NO_LINE => check(text).map_err(|message| (ErrorKind::Format, message)),
                _ => Err((ErrorKind::Config, format!("the utterance {} is there twice", shown(utterance)))),
            };
            // bounded: below the number of rows.
            *slot = texts.len() as u32;
            if let Err((kind, message)) = checked {
                return Err(wrong(&lines.path, lines.number, kind, &message));
            }
            texts.push(text.as_bytes())?;
        }
        if let Some(row) = numbers.iter().position(|&number| number == NO_LINE) {
            let utterance = String::from_utf8_lossy(utterances.texts().get(row));
            let rows = if self.segments.is_some() { "segments" } else { "wav.scp" };
            let message = format!(
                "{name} has no line for the utterance {}, which is in {rows}; add it there, or leave it out here",
                shown(&utterance)
            );
            return Err(Error::new(ErrorKind::Config, message).in_shard(&lines.path));
        }
        let text = |number| std::str::from_utf8(texts.get(number as usize)).unwrap_or_default();
        numbers.into_iter().try_for_each(|number| each(text(number)))
    }
}

impl TableBuilder {
    /// Reads a data folder of Kaldi by its `wav.scp`.
    pub(super) fn kaldi(
        &mut self,
        storage: &Arc<dyn Storage>,
        path: &Arc<Path>,
        manifest: &Manifest,
        asked: &TableRequest<'_>,
    ) -> Result<Version> {
        refuse_parameters(manifest)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let segments: Arc<Path> = folder.join("segments").into();
        let segments = NamedLines::open_if_there(storage, &segments)?;
        let mut numbers = LineNumbers::default();
        let mut count = 0;
        let (recordings, version) = ScpRecordings::read(storage, path, |line| {
            if count == 0 || numbers.of(count) != line {
                fallible_alloc::push(&mut numbers.0, (count, line))?;
            }
            count += 1;
            Ok(())
        })?;
        let mut rows = KaldiRows { storage, folder, recordings, segments: None };
        match segments {
            Some(lines) => self.segment_rows(&mut rows, lines)?,
            None => {
                for value in rows.recordings.values.iter() {
                    self.add(None, Some(value), None, None)?;
                }
                self.lines = Some(numbers);
            }
        }
        self.find_arks()?;
        self.kaldi_columns(&rows, asked)?;
        Ok(version)
    }

    fn segment_rows(&mut self, rows: &mut KaldiRows<'_>, mut lines: NamedLines) -> Result<()> {
        self.segments = Some(Segments { unit: Unit::Seconds, starts: Vec::new(), ends: Vec::new() });
        let (mut utterances, mut recordings) = (NameIndex::default(), Vec::new());
        let path = lines.path.clone();
        while let Some((utterance, rest)) = lines.next()? {
            let fields = |message: &str| {
                format!(
                    "the utterance {} {message}, expected UTTERANCE RECORDING START END, in seconds",
                    shown(utterance)
                )
            };
            let n_before = utterances.texts().len();
            let is_new = utterances.number(utterance.as_bytes())? as usize == n_before;
            let mut parts = rest.split_ascii_whitespace();
            let segment = match (parts.next(), parts.next(), parts.next(), parts.next()) {
                _ if !is_new => {
                    Err((ErrorKind::Config, format!("the utterance {} is there twice", shown(utterance))))
                }
                (Some(recording), Some(start), Some(end), None) => {
                    segment(start, end).map(|segment| (recording, segment))
                }
                (.., Some(_)) => Err((ErrorKind::Unsupported, fields("has more fields, as of a channel"))),
                _ => Err((ErrorKind::Format, fields("has too few fields"))),
            };
            let found = segment.and_then(|(recording, segment)| {
                let number = rows.recordings.names.find(recording.as_bytes()).ok_or_else(|| {
                    let message = format!(
                        "column \"recording\": the utterance {} is of {}, which is not in wav.scp",
                        shown(utterance),
                        shown(recording)
                    );
                    (ErrorKind::Config, message)
                })?;
                Ok((number, segment))
            });
            let number = lines.number;
            let (recording, (start, end)) =
                found.map_err(|(kind, message)| wrong(&path, number, kind, &message))?;
            self.add(None, Some(rows.recordings.values.get(recording as usize)), Some(start), end)?;
            fallible_alloc::push(&mut recordings, recording)?;
        }
        if recordings.is_empty() {
            let message = "it has no lines, expected UTTERANCE RECORDING START END on each; without segments remove the file";
            return Err(Error::new(ErrorKind::Format, message).in_shard(path));
        }
        rows.segments = Some((utterances, recordings));
        Ok(())
    }

    /// Finds which files are arks, and the places in them.
    fn find_arks(&mut self) -> Result<()> {
        let mut arks = NameIndex::default();
        for (number, value) in self.names.texts().iter().enumerate() {
            let Some((ark, at)) = std::str::from_utf8(value).ok().and_then(offset_of) else { continue };
            let archive = arks.number(ark.as_bytes())?;
            fallible_alloc::resize(&mut self.places, self.names.texts().len(), None)?;
            self.places[number] = Some(ArchivePlace { archive, at, len: None });
        }
        for ark in arks.texts().iter() {
            let ark = Path::new(std::str::from_utf8(ark).unwrap_or_default());
            fallible_alloc::push(&mut self.archives, ark.into())?;
        }
        self.are_archives_of_rows = !self.archives.is_empty();
        Ok(())
    }

    /// Reads the columns that are wanted.
    fn kaldi_columns(&mut self, rows: &KaldiRows<'_>, asked: &TableRequest<'_>) -> Result<()> {
        let is_there =
            |name| Ok::<_, Error>(NamedLines::open_if_there(rows.storage, &rows.beside(name))?.is_some());
        let durations = match &rows.segments {
            _ if is_there("utt2dur")? => Some("utt2dur"),
            None if is_there("reco2dur")? => Some("reco2dur"),
            _ => None,
        };
        let (has_speakers, has_texts, has_segments) =
            (is_there("utt2spk")?, is_there("text")?, rows.segments.is_some());
        let mut known = KaldiColumn::ALL.to_vec();
        known.retain(|column| match column {
            KaldiColumn::Utterance | KaldiColumn::Recording => true,
            KaldiColumn::Start | KaldiColumn::End => has_segments,
            KaldiColumn::Duration => durations.is_some() || has_segments,
            KaldiColumn::Speaker => has_speakers,
            KaldiColumn::Text => has_texts,
        });
        let listed_column =
            |column: &KaldiColumn| SchemaColumn::new(column.name().into(), column.content().into());
        self.schema = known.iter().map(listed_column).collect();
        let wanted: Vec<&str> =
            asked.label.name().into_iter().chain(asked.others.iter().map(String::as_str)).collect();
        let mut columns = builders(wanted.len());
        for (column, name) in columns.iter_mut().zip(&wanted) {
            let Some(&found) = known.iter().find(|column| column.name() == *name) else {
                let names: Vec<String> = known.iter().map(|column| column.name().to_owned()).collect();
                let message = format!(
                    "there is no column {name:?}; {} (speaker, text and duration are those of utt2spk, text and utt2dur \
                     beside wav.scp)",
                    listed(&names)
                );
                return Err(Error::new(ErrorKind::Schema, message));
            };
            self.kaldi_column(rows, found, durations, column)?;
        }
        self.label_name = asked.label.name().map(str::to_owned);
        self.set_columns(columns, asked.label.name().is_some())
    }

    /// Collects a column; `durations` is the file that has those of utterances, if there is one.
    fn kaldi_column(
        &self,
        rows: &KaldiRows<'_>,
        wanted: KaldiColumn,
        durations: Option<&str>,
        column: &mut ColumnBuilder,
    ) -> Result<()> {
        let utterances = rows.utterances().texts();
        match (wanted, &self.segments) {
            (KaldiColumn::Utterance, _) => {
                utterances.iter().try_for_each(|name| column.push(Cell::Text(name)))
            }
            (KaldiColumn::Recording, _) => {
                let names = rows.recordings.names.texts();
                let mut recordings = (0..utterances.len()).map(|row| names.get(rows.recording(row)));
                recordings.try_for_each(|name| column.push(Cell::Text(name)))
            }
            (KaldiColumn::Speaker, _) => {
                rows.joined("utt2spk", speaker, |text| column.push(Cell::Text(text.as_bytes())))
            }
            (KaldiColumn::Text, _) => {
                rows.joined("text", |_| Ok(()), |text| column.push(Cell::Text(text.as_bytes())))
            }
            (KaldiColumn::Start, Some(Segments { starts, .. })) => {
                starts.iter().try_for_each(|&start| column.push(number(start)))
            }
            (KaldiColumn::End, Some(Segments { ends, .. })) => {
                ends.iter().try_for_each(|&end| column.push(number(end)))
            }
            (KaldiColumn::Duration, segments) => match (durations, segments) {
                (Some(name), _) => rows.joined(
                    name,
                    |text| seconds(text).map(|_| ()),
                    |text| column.push(seconds(text).map_or(Cell::Null, Cell::Float)),
                ),
                (None, Some(Segments { starts, ends, .. })) => {
                    let mut lengths = starts.iter().zip(ends).map(|(&start, &end)| end - start);
                    lengths.try_for_each(|length| column.push(number(length)))
                }
                (None, None) => Ok(()),
            },
            (KaldiColumn::Start | KaldiColumn::End, None) => Ok(()),
        }
    }
}

/// A number that may be unknown.
fn number(value: f64) -> Cell<'static> {
    if value.is_nan() { Cell::Null } else { Cell::Float(value) }
}

/// Checks the speaker of an utterance.
fn speaker(text: &str) -> std::result::Result<(), String> {
    match text.split_ascii_whitespace().count() {
        1 => Ok(()),
        _ => Err(format!("the speaker is {}, must be one name without spaces", shown(text))),
    }
}

fn seconds(text: &str) -> std::result::Result<f64, String> {
    let found = text.parse().ok().filter(|seconds: &f64| seconds.is_finite() && *seconds >= 0.0);
    found.ok_or_else(|| format!("column \"duration\" is {}, must be 0 or more seconds", shown(text)))
}

/// The start and the end of a segment, seconds; an end of -1 is that of the recording.
fn segment(start: &str, end: &str) -> std::result::Result<(f64, Option<f64>), (ErrorKind, String)> {
    let parsed = |name: &str, text: &str| {
        let found = text.parse().ok().filter(|seconds: &f64| seconds.is_finite());
        let message = || (ErrorKind::Format, format!("column {name:?} is {}, must be seconds", shown(text)));
        found.ok_or_else(message)
    };
    let (from, to) = (parsed("start", start)?, parsed("end", end)?);
    if from < 0.0 {
        return Err((ErrorKind::Config, format!("column \"start\" is {start}, must be 0 or more seconds")));
    }
    if to == -1.0 {
        return Ok((from, None));
    }
    if to <= from {
        let message = format!(
            "column \"end\" is {end} and \"start\" is {start}, but a segment starts before its end (-1: the end of the recording)"
        );
        return Err((ErrorKind::Config, message));
    }
    Ok((from, Some(to)))
}

/// Refuses parameters of tables whose columns have names.
fn refuse_parameters(manifest: &Manifest) -> Result<()> {
    let given = [
        ("path_column", manifest.path_column.is_some()),
        ("start", manifest.start != ColumnChoice::Usual),
        ("end", manifest.end != ColumnChoice::Usual),
        ("unit=\"samples\"", manifest.unit != Unit::Seconds),
        ("columns", manifest.columns.is_some()),
    ];
    if manifest.root.as_deref().is_some_and(is_archive) {
        let message = "root names archives, and a data folder of Kaldi names files, or arks with offsets";
        return Err(Error::new(ErrorKind::Config, message));
    }
    match given.iter().find(|(_, is_given)| *is_given) {
        None => Ok(()),
        Some((name, _)) => {
            let message = format!(
                "{name} is of tables whose columns have names, and the columns of a data folder of Kaldi are fixed; of the \
                 parameters of Manifest it takes root="
            );
            Err(Error::new(ErrorKind::Config, message))
        }
    }
}

/// The place and the length of the recording at `at` in an ark: `RIFF` with its size, or `AUDIO` with a
/// length and a file of any format, as kaldiio writes it. What the ark does not have is left to the decoder.
///
/// # Errors
/// [`ErrorKind::Truncated`] beyond the end of the ark; [`ErrorKind::Unsupported`] for other content.
pub(super) fn recording_at(ark: &StoredFile, at: u64) -> Result<(u64, u64)> {
    /// Programs that do not know the size write 0, or from this on: SoX 0x7fff_f024, others -1 with and
    /// without a sign.
    const UNKNOWN: u32 = 0x7fff_f000;
    let size = ark.size();
    let rest = size.saturating_sub(at);
    // bounded: a constant.
    let mut head = [0; 16];
    let n = head.len().min(rest as usize);
    let read = ark.read(&mut head[..n], at)?;
    let head = &head[..read];
    let refused = |kind: ErrorKind, message: String| Err(Error::new(kind, message).at_byte(at));
    match head {
        [b'R', b'I', b'F', b'F', a, b, c, d, ..] => {
            let stated = u32::from_le_bytes([*a, *b, *c, *d]);
            if stated == 0 || stated >= UNKNOWN {
                let message = format!(
                    "the WAV at byte {at} of the ark does not say how long it is ({stated} bytes), as one that was written to a \
                     pipe; write the ark again, as with wav-copy"
                );
                return refused(ErrorKind::Unsupported, message);
            }
            Ok((at, rest.min(u64::from(stated) + 8)))
        }
        [b'A', b'U', b'D', b'I', b'O', n @ 1..=8, ..] if read > 6 + usize::from(*n) => {
            let mut bytes = [0; 8];
            bytes[..usize::from(*n)].copy_from_slice(&head[6..6 + usize::from(*n)]);
            let from = 6 + u64::from(*n);
            Ok((at + from, (rest - from).min(u64::from_le_bytes(bytes))))
        }
        [] => refused(
            ErrorKind::Truncated,
            format!(
                "the ark has {size} bytes, and the recording is at byte {at}; is the ark cut off, or another one?"
            ),
        ),
        [0, b'B', ..] => refused(
            ErrorKind::Unsupported,
            format!("at byte {at} of the ark is a matrix or a vector, as of features, and no recording"),
        ),
        _ => refused(
            ErrorKind::Unsupported,
            format!("at byte {at} of the ark there is no WAV (RIFF); is the offset that of another ark?"),
        ),
    }
}
