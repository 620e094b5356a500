//! Recordings in tar archives: those of a WebDataset, and those that a table names.

use std::{path::Path, sync::Arc};

use super::{
    column::{Cell, of_json},
    json::Json,
    manifest::{Manifest, TableRequest},
    names::NameIndex,
    rows::{TableBuilder, builders, check_stop, in_line},
    schema_inference::{self, SchemaInference},
    table::ArchivePlace,
    tar::{self, Tar},
};
use crate::{
    Error, ErrorKind, Result,
    columns::{ColumnChoice, MOST_TEXT_BYTES},
    fallible_alloc,
    paths::{self, Reads},
    storage::{Storage, Version},
};

/// The most bytes of a member that is read to list the columns of an archive.
const LOOKED_AT_MEMBER: u64 = 64 << 10;

/// The members of one key: its recording, and what is told of it.
#[derive(Default)]
struct MemberGroup {
    recording: Option<(Vec<u8>, ArchivePlace)>,
    json: Option<Vec<u8>>,
    /// The label, then the columns.
    cells: Vec<Option<Vec<u8>>>,
}

impl TableBuilder {
    /// Members of a WebDataset, or of a shar of Lhotse: those of one key are a row.
    pub(super) fn tar(
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
    pub(super) fn find_in(&mut self, root: &Path, storage: &Arc<dyn Storage>) -> Result<()> {
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
