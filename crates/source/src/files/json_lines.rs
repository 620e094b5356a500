//! [`JsonLines`]: tables of JSON lines, an object for each row, such as manifests of NeMo and cuts of Lhotse.

use std::{collections::HashSet, path::Path, sync::Arc};

use super::{
    column::of_json,
    json::{Json, JsonObject},
    manifest::{Manifest, Roles, TableRequest, counts_too, listed},
    rows::{TableBuilder, at, builders, check_stop, in_line, no_number},
    schema_inference::SchemaInference,
    table::LineNumbers,
    text_input::TextInput,
};
use crate::{
    Error, ErrorKind, JsonLineError, Result,
    columns::ColumnChoice,
    fallible_alloc,
    storage::{Storage, Version},
};

pub(super) struct JsonLines {
    input: TextInput,
    /// The number of the last line.
    number: u64,
}

impl JsonLines {
    pub(super) fn open(storage: &Arc<dyn Storage>, path: &Arc<Path>) -> Result<Self> {
        let mut input = TextInput::open(storage, path)?;
        if input.fill()?.starts_with(b"\xef\xbb\xbf") {
            input.consume(3);
        }
        Ok(Self { input, number: 0 })
    }

    pub(super) fn version(&self) -> Version {
        self.input.version()
    }

    /// The object of the next line that is not blank, and the line's number.
    ///
    /// # Errors
    /// [`ErrorKind::Format`] for a line that is no JSON object.
    pub(super) fn next(&mut self) -> Result<Option<(u64, JsonObject<'_>)>> {
        let line = loop {
            self.number += 1;
            let Some(line) = self.input.line(self.number)? else { return Ok(None) };
            if !self.input.text(line.clone()).trim_ascii().is_empty() {
                break line;
            }
        };
        let number = self.number;
        let found = serde_json::from_slice(self.input.text(line)).map_err(|error| {
            Error::new(ErrorKind::Format, format!("line {number} is not JSON")).because(JsonLineError(error))
        })?;
        match found {
            Json::Object(object) => Ok(Some((number, object))),
            _ => {
                let message =
                    format!("line {number} is no object, expected one such as {{\"path\": \"a.wav\"}}");
                Err(Error::new(ErrorKind::Format, message))
            }
        }
    }
}

impl TableBuilder {
    /// JSON lines. A column that a later line is the first to have, such as an offset, may say what all rows
    /// are; then all lines are read again.
    pub(super) fn json(
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
        let first = TableRequest { label, others: &[], ..*asked };
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
                let roles = Roles::choose(&names, manifest, &first, false)
                    .map_err(|error| mixed_cut(&object, line).unwrap_or(error))?;
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
            let place = || at(Some(line), 0);
            let name = match of(roles.path) {
                None | Some(Json::Null) => match mixed_cut(&object, line) {
                    None => None,
                    Some(error) => return Err(error),
                },
                Some(Json::Text(name)) => Some(name.as_bytes()),
                // A cut of Lhotse.
                Some(Json::Object(recording)) => Some(file_of(recording, &object, place)?),
                Some(other) => {
                    let message = format!("{}: the path is {other}, expected text", place());
                    return Err(Error::new(ErrorKind::Schema, message));
                }
            };
            let number = |role: Option<usize>| match of(role) {
                None | Some(Json::Null) => Ok(None),
                Some(Json::Number(number)) => Ok(number.as_f64()),
                Some(other) => Err(no_number(&place(), &other.to_string())),
            };
            let (start, end) = roles.segment(number)?;
            self.add(Some(line), name, start, end)?;
            for ((name, column), seen) in read.iter().zip(&mut columns).zip(&mut seen) {
                let found = object.find(name);
                *seen |= found.is_some();
                column.push(of_json(found)).map_err(|error| in_line(&place(), name, error))?;
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
}

/// The error of a cut of Lhotse that has several tracks; None for any other row.
fn mixed_cut(object: &JsonObject<'_>, line: u64) -> Option<Error> {
    object.get("tracks").and_then(Json::as_list)?;
    let message = format!(
        "{}: the cut has tracks (a MixedCut), which are not mixed here; give the cuts as they were before, and \
         augment=[Mix(...)], or save the mixed recordings",
        at(Some(line), 0)
    );
    Some(Error::new(ErrorKind::Unsupported, message))
}

/// What is wrong with a cut that takes some of its recording's channels; None for all of them.
fn other_channels(recording: &JsonObject<'_>, cut: &JsonObject<'_>) -> Option<String> {
    let numbers = |json: &Json<'_>| match json {
        Json::Number(number) => number.as_u64().map(|one| vec![one]),
        Json::List(all) => {
            let all = all.iter().map(|one| if let Json::Number(one) = one { one.as_u64() } else { None });
            all.collect::<Option<Vec<_>>>()
        }
        _ => None,
    };
    let taken = numbers(cut.get("channel")?)?;
    let mut all = recording.get("channel_ids").and_then(numbers).or_else(|| {
        let Some([Json::Object(source)]) = recording.get("sources").and_then(Json::as_list) else {
            return None;
        };
        numbers(source.get("channels")?)
    })?;
    all.sort_unstable();
    let mut sorted = taken.clone();
    sorted.sort_unstable();
    (all.len() > 1 && (sorted != all || taken != all)).then(|| {
        format!(
            "the cut takes the channels {taken:?} of a recording with {all:?}, and a row is all channels of its file; save the              recordings of the cuts, as with cuts.save_audios, or as a shar"
        )
    })
}

/// The file of a cut's recording; of one in an archive beside it, the name of the cut.
fn file_of<'a>(
    recording: &'a JsonObject<'_>,
    cut: &'a JsonObject<'_>,
    place: impl Fn() -> String,
) -> Result<&'a [u8]> {
    let text = |found: &'a JsonObject<'_>, name: &str| {
        found.get(name).and_then(Json::as_text).filter(|text| !text.is_empty())
    };
    // Its `sampling_rate` and `duration` are those after the change, and the file is as before.
    if let Some([first, ..]) = recording.get("transforms").and_then(Json::as_list) {
        let message = format!(
            "{}: the recording of the cut is changed by {first}, which is not applied; give the cuts as they were before, and \
             augment=[Speed(...)] or another step",
            place()
        );
        return Err(Error::new(ErrorKind::Schema, message));
    }
    let source = recording.get("sources").and_then(Json::as_list);
    let is_shar = matches!(source, Some([Json::Object(source)]) if text(source, "type") == Some("shar"));
    // An archive of a shar has the channels of the cut alone.
    if !is_shar && let Some(message) = other_channels(recording, cut) {
        return Err(Error::new(ErrorKind::Unsupported, format!("{}: {message}", place())));
    }
    let found = match source {
        Some([Json::Object(source)]) => match text(source, "type") {
            Some("file" | "url") => text(source, "source"),
            Some("shar") => text(source, "source").or_else(|| text(cut, "id")),
            _ => None,
        },
        _ => None,
    };
    found.map(str::as_bytes).ok_or_else(|| {
        let message = format!(
            "{}: the path is an object, expected text, or a recording of Lhotse with one source of the type file, url or              shar; save recordings of several files or commands first, as with cuts.save_audios",
            place()
        );
        Error::new(ErrorKind::Schema, message)
    })
}
