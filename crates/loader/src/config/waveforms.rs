//! [`Waveforms`]: the recordings of a row, if it has several, and the fields that they become.

use std::{fmt, ops::Range};

use crate::{
    Error, ErrorKind, Result,
    error::shown,
    tasks::{PlannedField, WaveformPlan},
};

/// The most recordings of a row.
pub const MOST_WAVEFORMS: usize = 64;

/// The largest number of a track.
const MOST_TRACK: i64 = 65_535;

/// The parameter `audio`: a field for each name, of one column or of several that are stacked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waveforms {
    pub fields: Vec<WaveformField>,
}

/// A field of a batch that is made of recordings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaveformField {
    pub name: String,
    /// The columns of its recordings; one, unless they are stacked.
    pub columns: Vec<String>,
    /// Whether the field has an axis for its columns.
    pub is_stacked: bool,
}

impl Waveforms {
    /// The recording of each waveform, in the order of the fields.
    fn waveforms<'a>(&'a self, by_name: ByName<'a>) -> impl Iterator<Item = RowRecording<'a>> {
        self.fields.iter().flat_map(move |field| {
            field.columns.iter().enumerate().map(move |(at, column)| RowRecording {
                column: Some(column),
                track: by_name.tracks.and_then(|tracks| tracks.of_field(&field.name, at)),
                clip: by_name
                    .independent
                    .map_or(ClipPlacing::WithFirst, |independent| independent.of(&field.name)),
            })
        })
    }

    /// The recordings, each once, in the order in which they are named first; independent ones as often as
    /// they are named.
    pub fn recordings<'a>(&'a self, by_name: ByName<'a>) -> Vec<RowRecording<'a>> {
        let mut recordings = Vec::new();
        for recording in self.waveforms(by_name) {
            if recording.clip != ClipPlacing::WithFirst || !recordings.contains(&recording) {
                // bounded: as many as were given.
                recordings.push(recording);
            }
        }
        recordings
    }

    /// The number of the recording, among [`Self::recordings`], of each waveform.
    pub fn numbers(&self, by_name: ByName<'_>) -> Vec<usize> {
        let recordings = self.recordings(by_name);
        let mut n = 0;
        let number = |sought: RowRecording<'_>| {
            let known = recordings[..n].iter().position(|recording| *recording == sought);
            known.filter(|_| sought.clip == ClipPlacing::WithFirst).unwrap_or_else(|| {
                n += 1;
                n - 1
            })
        };
        self.waveforms(by_name).map(number).collect()
    }

    pub fn n_waveforms(&self) -> usize {
        self.fields.iter().map(|field| field.columns.len()).sum()
    }

    /// Which of a row's waveforms are those of a field, and how many a row has.
    pub fn place(&self, name: &str) -> Option<(Range<usize>, usize)> {
        let n = |fields: &[WaveformField]| fields.iter().map(|field| field.columns.len()).sum::<usize>();
        let at = self.fields.iter().position(|field| field.name == name)?;
        Some((n(&self.fields[..at])..n(&self.fields[..=at]), n(&self.fields)))
    }

    /// The plan of them, before the files are open; `fills_missing`: with zeros for nulls.
    pub fn plan(&self, by_name: ByName<'_>, fills_missing: bool) -> WaveformPlan {
        let field = |field: &WaveformField| PlannedField {
            name: field.name.clone(),
            stacked: field.is_stacked.then_some(field.columns.len()),
        };
        let fields = self.fields.iter().map(field).collect();
        let names = self.recordings(by_name).iter().map(ToString::to_string).collect();
        WaveformPlan::new(fields, self.numbers(by_name), names).filling_missing(fills_missing)
    }

    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.fields.is_empty() {
            problems.push("audio is empty, must have a name and a column, or be left out".to_owned());
        }
        for field in &self.fields {
            if field.columns.is_empty() {
                problems.push(format!("audio[{:?}] is empty, must have columns of recordings", field.name));
            }
            if field.name.is_empty() || field.columns.iter().any(String::is_empty) {
                problems.push("audio has an empty name, must have names of fields and of columns".to_owned());
            }
        }
        let n = self.n_waveforms();
        if n > MOST_WAVEFORMS {
            problems.push(format!("audio has {n} recordings of a row, must have at most {MOST_WAVEFORMS}"));
        }
        problems
    }
}

/// The parameters that say more about the names of [`Waveforms`].
#[derive(Debug, Clone, Copy, Default)]
pub struct ByName<'a> {
    pub tracks: Option<&'a Tracks>,
    pub independent: Option<&'a Independent>,
}

/// The parameter `independent`: names of [`Waveforms`] whose recordings are not cut where the first one is. A
/// name with a column takes the recording of another row, with an equal value in this column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Independent {
    pub fields: Vec<(String, Option<String>)>,
    /// Whether it was given as a dict.
    pub is_named: bool,
}

impl Independent {
    fn of(&self, name: &str) -> ClipPlacing<&str> {
        match self.fields.iter().find(|(field, _)| field == name) {
            None => ClipPlacing::WithFirst,
            Some((_, None)) => ClipPlacing::Independent,
            Some((_, Some(column))) => ClipPlacing::OfPartner(column),
        }
    }

    pub(super) fn names(&self, field: &str) -> bool {
        self.fields.iter().any(|(name, _)| name == field)
    }

    /// The columns by which partners are found.
    pub fn columns(&self) -> impl Iterator<Item = &String> {
        self.fields.iter().filter_map(|(_, column)| column.as_ref())
    }

    pub(super) fn problems(&self, audio: Option<&Waveforms>) -> Vec<String> {
        let Some(audio) = audio else {
            return vec![
                "independent is about the names in audio, and audio names none; give audio, or leave it out"
                    .to_owned(),
            ];
        };
        let names: Vec<_> = audio.fields.iter().map(|field| &field.name).collect();
        let mut problems = Vec::new();
        if self.fields.is_empty() {
            problems.push(format!("independent is empty, must have names of audio: {names:?}"));
        }
        for (at, (name, column)) in self.fields.iter().enumerate() {
            if !names.contains(&name) {
                problems.push(format!("independent has {name:?}, must have names of audio: {names:?}"));
            } else if names.first() == Some(&name) {
                problems.push(format!(
                    "independent has {name:?}, the first name of audio, whose recording decides where the clip of the row \
                     is; name another one first"
                ));
            }
            if self.fields[..at].iter().any(|(before, _)| before == name) {
                problems.push(format!("independent has {name:?} twice; name it once"));
            }
            let mut after = names.iter().skip_while(|known| **known != name);
            if let Some(dependent) = after.find(|known| self.fields.iter().all(|(field, _)| field != **known))
            {
                problems.push(format!(
                    "independent has {name:?}, and audio names {dependent:?} after it; put the names of independent last in audio"
                ));
            }
            if column.as_ref().is_some_and(String::is_empty) {
                problems.push(format!("independent[{name:?}] is empty, must be a column, or None"));
            }
        }
        problems
    }
}

/// Of which recording a clip is, and where; `P` says which other row has an equal class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClipPlacing<P> {
    /// The row's recording, cut where the first one is.
    WithFirst,
    /// The row's recording, cut independently of the first one.
    Independent,
    /// The recording of another row of the same class, cut independently.
    OfPartner(P),
}

/// A recording of a row: its column, None for the usual one, the number of its track, and its clip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowRecording<'a> {
    pub column: Option<&'a str>,
    pub track: Option<u32>,
    pub clip: ClipPlacing<&'a str>,
}

impl fmt::Display for RowRecording<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "column {:?}", self.column.unwrap_or_default())?;
        self.track.map_or(Ok(()), |track| write!(f, ", track {track}"))
    }
}

/// The parameter `track`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tracks {
    /// Of every recording.
    All(i64),
    /// By the names of `audio`: one number, or as many as a list of columns has.
    Named(Vec<(String, FieldTracks)>),
}

/// The tracks of a field of `audio`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FieldTracks {
    One(i64),
    Each(Vec<i64>),
}

impl FieldTracks {
    fn numbers(&self) -> &[i64] {
        match self {
            Self::One(number) => std::slice::from_ref(number),
            Self::Each(numbers) => numbers,
        }
    }
}

impl Tracks {
    /// The track of a row's only recording.
    pub fn of_all(&self) -> Option<u32> {
        match self {
            Self::All(number) => u32::try_from(*number).ok(),
            Self::Named(_) => None,
        }
    }

    /// The track of the column number `at` of a field.
    fn of_field(&self, name: &str, at: usize) -> Option<u32> {
        let Self::Named(fields) = self else { return self.of_all() };
        let number = match &fields.iter().find(|(field, _)| field == name)?.1 {
            FieldTracks::One(number) => *number,
            FieldTracks::Each(numbers) => *numbers.get(at)?,
        };
        u32::try_from(number).ok()
    }

    fn range(name: &str, number: &i64) -> Option<String> {
        let is_wrong = !(0..=MOST_TRACK).contains(number);
        is_wrong.then(|| format!("{name} is {}, must be 0 to {MOST_TRACK}", shown(*number)))
    }

    pub(super) fn problems(&self, audio: Option<&Waveforms>) -> Vec<String> {
        let fields = match (self, audio) {
            (Self::All(number), _) => return Self::range("track", number).into_iter().collect(),
            (Self::Named(_), None) => {
                return vec![
                    "track is a dict, whose names are those of audio, and audio names none; give one number"
                        .to_owned(),
                ];
            }
            (Self::Named(fields), Some(_)) => fields,
        };
        let audio = audio.map_or(&[][..], |audio| &audio.fields);
        let mut problems = Vec::new();
        for (name, tracks) in fields {
            let place = format!("track[{name:?}]");
            problems.extend(tracks.numbers().iter().filter_map(|number| Self::range(&place, number)));
            let Some(field) = audio.iter().find(|field| field.name == *name) else {
                let names: Vec<_> = audio.iter().map(|field| &field.name).collect();
                problems.push(format!("track has {name:?}, must have names of audio: {names:?}"));
                continue;
            };
            if let FieldTracks::Each(numbers) = tracks
                && (!field.is_stacked || numbers.len() != field.columns.len())
            {
                let expected = match field.is_stacked {
                    true => format!("a number, or {} for its columns", field.columns.len()),
                    false => "one number, since it has one column".to_owned(),
                };
                problems.push(format!("{place} has {} in a list, must be {expected}", numbers.len()));
            }
        }
        problems
    }
}

/// The number of one track, where there are no fields.
///
/// # Errors
/// [`ErrorKind::Config`] for a number out of range.
pub fn track_number(track: Option<i64>) -> Result<Option<u32>> {
    match track.and_then(|number| Tracks::range("track", &number)) {
        Some(problem) => Err(Error::new(ErrorKind::Config, problem)),
        None => Ok(track.and_then(|number| u32::try_from(number).ok())),
    }
}
