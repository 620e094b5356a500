//! Recordings in tar archives: those of a WebDataset, and those that a table names.

use std::{path::Path, sync::Arc};

use super::{
    column::{Cell, ColumnBuilder, of_json},
    json::Json,
    manifest::{Manifest, TableRequest},
    names::NameIndex,
    rows::{TableBuilder, at, builders, check_stop, in_line},
    schema_inference::{self, SchemaInference},
    table::ArchivePlace,
    tar::{self, Member, Tar},
};
use crate::{
    Error, ErrorKind, Result,
    columns::{ColumnChoice, MOST_TEXT_BYTES},
    fallible_alloc,
    layouts::Archives,
    paths,
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

/// What is read of the members of an archive.
struct ArchiveRequest<'a> {
    /// The ending of recordings; None: any of the usual ones.
    chosen: Option<&'a str>,
    /// Whether a label is read, and the name that the user gives for it.
    has_label: bool,
    label: Option<&'a str>,
    /// The label, then the columns: an ending, or the name of a value in the member that ends in json.
    wanted: Vec<&'a str>,
}

/// The members of an archive by key, and what they tell of its columns.
#[derive(Default)]
struct Members {
    groups: Vec<MemberGroup>,
    /// Whether each of `wanted` was found.
    seen: Vec<bool>,
    inference: SchemaInference,
    /// Why the archive could not be read to its end.
    damage: Option<Error>,
}

impl ArchiveRequest<'_> {
    /// Reads the headers, and the members that are columns.
    fn members(&self, tar: &mut Tar) -> Result<Members> {
        // bounded: the columns that the user names.
        let mut found = Members { seen: vec![false; self.wanted.len()], ..Members::default() };
        let mut keys = NameIndex::default();
        loop {
            let member = match tar.next() {
                Ok(Some(member)) => member,
                Ok(None) => return Ok(found),
                Err(error)
                    if error.kind.is_record()
                        && error.kind != ErrorKind::Unsupported
                        && !found.groups.is_empty() =>
                {
                    found.damage = Some(error);
                    return Ok(found);
                }
                Err(error) => return Err(error),
            };
            check_stop(found.groups.len() as u64)?;
            let Some((key, ending)) = tar::split(&member.name) else { continue };
            let key = keys.number(key)? as usize;
            if key == found.groups.len() {
                fallible_alloc::push(&mut found.groups, MemberGroup::default())?;
            }
            let ending = String::from_utf8_lossy(ending).to_ascii_lowercase();
            let is_recording = match self.chosen {
                Some(chosen) => ending.eq_ignore_ascii_case(chosen),
                None => paths::is_recording(format!("x.{ending}").as_ref()),
            };
            if is_recording {
                found.groups[key].set_recording(member, &ending)?;
                continue;
            }
            let is_json = ending == "json";
            if key < schema_inference::ROWS && !is_json {
                match Some(member.len).filter(|&len| len <= LOOKED_AT_MEMBER) {
                    None => found.inference.other(&ending, "bytes"),
                    Some(len) => {
                        let data = tar.exactly(member.at, len)?;
                        match std::str::from_utf8(&data) {
                            Ok(_) => found.inference.value(&ending, of_member(&ending, &data)),
                            Err(_) => found.inference.other(&ending, "bytes"),
                        }
                    }
                }
            }
            let n_wanted = self.wanted.len();
            let is_read = |at: usize| self.wanted[at] == ending && (at > 0 || self.has_label);
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
            let group = &mut found.groups[key];
            for at in (0..n_wanted).filter(|&at| is_read(at)) {
                found.seen[at] = true;
                // bounded: one for each column.
                group.cells.resize(n_wanted, None);
                group.cells[at] = Some(data.clone());
            }
            if is_json {
                group.json = Some(data);
            }
        }
    }
}

impl MemberGroup {
    /// Takes a member as the recording of its key.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if the key has one.
    fn set_recording(&mut self, member: Member, ending: &str) -> Result<()> {
        let place = ArchivePlace { archive: 0, at: member.at, len: Some(member.len) };
        if let Some((before, _)) = &self.recording {
            let show = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
            let (before, name) = (show(before), show(&member.name));
            let message = match tar::split(before.as_bytes()) {
                Some((_, one)) if one != ending.as_bytes() => format!(
                    "{before:?} and {name:?} have the same key, expected one recording each; choose one ending, as \
                     with forebay.Manifest(..., path_column={ending:?})"
                ),
                _ => format!("the archive has {name:?} twice; write it with a key for each recording"),
            };
            return Err(Error::new(ErrorKind::Config, message));
        }
        self.recording = Some((member.name, place));
        Ok(())
    }
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
        let label = asked.label.name();
        let others = asked.others.iter().map(|name| name.trim_start_matches('.'));
        let request = ArchiveRequest {
            chosen: manifest.path_column.as_deref().map(|ending| ending.trim_start_matches('.')),
            has_label: *asked.label != ColumnChoice::Nothing,
            label,
            wanted: std::iter::once(label.unwrap_or("cls")).chain(others).collect(),
        };
        let mut tar = Tar::open(storage, path)?;
        let Members { groups, mut seen, mut inference, damage } = request.members(&mut tar)?;
        let version = tar.file().version();
        self.damage = damage;
        let mut columns = builders(request.wanted.len());
        for group in groups {
            self.add_group(&group, version.size, &request, (&mut columns, &mut seen, &mut inference))?;
        }
        for (at, name) in request.wanted.iter().enumerate() {
            if !seen[at] && (at > 0 || label.is_some()) {
                let message = format!(
                    "there is no column {name:?}: no member ends in it, and no member that ends in json has it"
                );
                return Err(Error::new(ErrorKind::Schema, message));
            }
        }
        if self.files.is_empty() {
            let message = match request.chosen {
                Some(chosen) => {
                    format!("no member of the archive ends in .{chosen}, the column of recordings")
                }
                None => "no member of the archive is a recording".to_owned(),
            };
            return Err(Error::new(ErrorKind::Format, message));
        }
        self.schema = inference.listed();
        let ending = request.wanted[0];
        let has_member = self.schema.iter().any(|column| column.name == ending);
        let name = if label.is_none() && !has_member { "label" } else { ending };
        self.label_name = seen[0].then(|| name.to_owned());
        self.set_columns(columns, true)?;
        self.label.take_if(|_| !seen[0]);
        self.archives = vec![path.clone()];
        Ok(version)
    }

    /// Adds the row of a key, unless it has no recording. `size` is that of the archive.
    fn add_group(
        &mut self,
        group: &MemberGroup,
        size: u64,
        request: &ArchiveRequest<'_>,
        (columns, seen, inference): (&mut [ColumnBuilder], &mut [bool], &mut SchemaInference),
    ) -> Result<()> {
        let Some((name, place)) = &group.recording else { return Ok(()) };
        let row = self.n_rows();
        let shown = String::from_utf8_lossy(name).into_owned();
        if place.at.saturating_add(place.len.unwrap_or(0)) > size && self.damage.is_none() {
            let message = format!("the archive is cut off within {shown:?}");
            self.damage = Some(Error::new(ErrorKind::Truncated, message).at_byte(size));
        }
        let number = self.names.number(name)?;
        if number as usize != self.places.len() {
            let message = format!("the archive has {shown:?} twice; write it with a key for each recording");
            return Err(Error::new(ErrorKind::Config, message));
        }
        fallible_alloc::push(&mut self.places, Some(*place))?;
        fallible_alloc::push(&mut self.files, number)?;
        let json = group.json.as_deref().map(serde_json::from_slice::<Json<'_>>).transpose();
        let json = json.map_err(|error| {
            let message = format!("the member that ends in json beside {shown:?} is not JSON");
            Error::new(ErrorKind::Format, message).because(error)
        })?;
        let object = json.as_ref().and_then(Json::as_object);
        if let Some(object) = object
            && inference.row()
        {
            inference.object(object);
        }
        for (at, (column, name)) in columns.iter_mut().zip(&request.wanted).enumerate() {
            let cell = match group.cells.get(at).and_then(Option::as_ref) {
                Some(text) => of_member(name, text),
                None => {
                    let found = match at {
                        0 if !request.has_label => None,
                        0 if request.label.is_none() => object.and_then(|object| object.get("label")),
                        _ => object.and_then(|object| object.find(name)),
                    };
                    seen[at] |= found.is_some();
                    of_json(found)
                }
            };
            column.push(cell).map_err(|error| in_line(&at_member(row, &shown), name, error))?;
        }
        Ok(())
    }

    /// Finds the files of a table in archives. Their names are those of members, with their endings or
    /// without.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a member that is there twice, and if no file is there; of paired archives
    /// also for a row without a member, and for a member without a row.
    pub(super) fn find_in(
        &mut self,
        archives: &Archives,
        table: &Path,
        storage: &Arc<dyn Storage>,
        asked: &TableRequest<'_>,
    ) -> Result<()> {
        fallible_alloc::resize(&mut self.places, self.names.texts().len(), None)?;
        let mut parts = FileParts::of(&self.names)?;
        let (mut n_spare, mut spare) = (0u64, None);
        for (number, path) in (0..).zip(&archives.paths) {
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
                    // So lhotse names the bytes of a file that it did not encode again.
                    let is_original = archives.are_paired && name.ends_with(b".original");
                    let is_recording = is_original || paths::is_recording(shown.as_ref().as_ref());
                    let find = |names: &NameIndex| {
                        names.find(name).or_else(|| names.find(stem).filter(|_| is_recording))
                    };
                    let at = ArchivePlace { archive: number, at: member.at, len: Some(member.len) };
                    let (file, whole) = (find(&self.names), find(&parts.wholes));
                    if file.is_none() && whole.is_none() && is_recording {
                        n_spare += 1;
                        spare.get_or_insert_with(|| (shown.into_owned(), path.clone()));
                        continue;
                    }
                    let slots = [
                        file.map(|file| &mut self.places[file as usize]),
                        whole.map(|whole| &mut parts.places[whole as usize]),
                    ];
                    for slot in slots.into_iter().flatten() {
                        if let Some(ArchivePlace { archive, .. }) = slot {
                            let before = archives.paths[*archive as usize].display();
                            let message = format!(
                                "the member {shown:?} is in {before} too, so it is not known which one a row names; give \
                                 archives in which each name is there once"
                            );
                            return Err(Error::new(ErrorKind::Config, message));
                        }
                        *slot = Some(at);
                    }
                }
                Ok(())
            };
            read().map_err(|error| error.in_shard(&path))?;
            self.archives.push(path.clone());
        }
        parts.fill(&mut self.places);
        // A recording without a row may be one of another column of recordings.
        let is_of_others = asked.recordings.is_some() && !archives.are_paired;
        self.check_found(archives, table, n_spare, spare.filter(|_| !is_of_others))
    }

    /// Checks which files were found, and logs the others. `spare` is the first of the recordings without a
    /// row, and its archive.
    fn check_found(
        &self,
        archives: &Archives,
        table: &Path,
        n_spare: u64,
        spare: Option<(String, Arc<Path>)>,
    ) -> Result<()> {
        let n_missing = self.places.iter().filter(|place| place.is_none()).count();
        let missing = self.places.iter().position(Option::is_none);
        let described = missing.map(|file| {
            let row = self.files.iter().position(|&other| other as usize == file).unwrap_or_default();
            let line = self.lines.as_ref().map(|lines| lines.of(row as u64));
            (at(line, row), String::from_utf8_lossy(self.names.texts().get(file)).into_owned())
        });
        let wrong = |message: String| Err(Error::new(ErrorKind::Config, message).in_shard(table));
        let count = archives.paths.len();
        let among = match &archives.paths[..] {
            [one] => one.display().to_string(),
            _ => format!("the {count} archives"),
        };
        if let Some((place, name)) = &described {
            if archives.are_paired {
                return wrong(format!(
                    "{place}: the cut {name:?} has no recording in {among}, which belongs to the table; copy the shar again, or write it with recordings in it"
                ));
            }
            if n_missing == self.places.len() {
                return wrong(format!(
                    "{place}: {among} {} no member {name:?}, and none of the other {} names is there either; rows name members \
                     as the archive has them, with or without their endings",
                    if count == 1 { "has" } else { "have" },
                    n_missing - 1
                ));
            }
            log::warn!(
                "{}: {n_missing} of {} recordings are in no archive, the first is {name:?} ({place}); they are bad records",
                table.display(),
                self.places.len()
            );
        }
        if let Some((name, archive)) = spare {
            if archives.are_paired {
                return wrong(format!(
                    "{} has the recording {name:?}, which is of no cut of the table; copy the shar again",
                    archive.display()
                ));
            }
            log::warn!(
                "{}: {n_spare} recordings of {among} have no row and are left out, the first is {name:?}",
                table.display()
            );
        }
        Ok(())
    }
}

/// Files that are parts of others: NeMo calls segments of a member `a.wav` also `a-sub1.wav`, `a-sub2.wav`.
struct FileParts {
    /// The names of the whole files, and their places.
    wholes: NameIndex,
    places: Vec<Option<ArchivePlace>>,
    /// The number of each part, and that of its whole.
    parts: Vec<(u32, u32)>,
}

impl FileParts {
    fn of(names: &NameIndex) -> Result<Self> {
        let mut found = Self { wholes: NameIndex::default(), places: Vec::new(), parts: Vec::new() };
        for (number, name) in (0..).zip(names.texts().iter()) {
            let Some(whole) = whole_of(name) else { continue };
            let whole = found.wholes.number(&whole)?;
            fallible_alloc::push(&mut found.parts, (number, whole))?;
        }
        fallible_alloc::resize(&mut found.places, found.wholes.texts().len(), None)?;
        Ok(found)
    }

    /// Gives parts the place of the whole. A member with the part's own name goes first.
    fn fill(&self, places: &mut [Option<ArchivePlace>]) {
        for &(part, whole) in &self.parts {
            let place = &mut places[part as usize];
            *place = place.or(self.places[whole as usize]);
        }
    }
}

/// The name without `-sub` and digits before its ending; None if it has none.
fn whole_of(name: &[u8]) -> Option<Vec<u8>> {
    const MARK: &[u8] = b"-sub";
    let at = name.windows(MARK.len()).rposition(|part| part == MARK)?;
    let rest = &name[at + MARK.len()..];
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let ending = &rest[digits..];
    let is_part =
        at > 0 && digits > 0 && (ending.is_empty() || ending.starts_with(b".") && !ending.contains(&b'/'));
    is_part.then(|| [&name[..at], ending].concat())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_files() {
        for (name, whole) in [
            ("a-sub1.wav", Some("a.wav")),
            ("x/a-b-sub12.flac", Some("x/a-b.flac")),
            ("a-sub1-sub2.wav", Some("a-sub1.wav")),
            ("a-sub3", Some("a")),
            ("a-sub.wav", None),
            ("a-sub1b.wav", None),
            ("-sub1.wav", None),
            ("a-sub1.x/b.wav", None),
            ("a.wav", None),
        ] {
            let found = whole_of(name.as_bytes()).map(|whole| String::from_utf8(whole).unwrap());
            assert_eq!(found.as_deref(), whole, "{name}");
        }
    }
}
