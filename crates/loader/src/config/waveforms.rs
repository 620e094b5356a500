//! [`Waveforms`]: the recordings of a row, if it has several, and the fields that they become.

use std::ops::Range;

use crate::tasks::{PlannedField, WaveformPlan};

/// The most recordings of a row.
pub const MOST_WAVEFORMS: usize = 64;

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
    /// The columns, each once, in the order in which they are named first.
    pub fn columns(&self) -> Vec<&str> {
        let mut columns = Vec::<&str>::new();
        for column in self.fields.iter().flat_map(|field| &field.columns) {
            if !columns.contains(&&**column) {
                // bounded: as many as were given.
                columns.push(column);
            }
        }
        columns
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
    pub fn plan(&self, fills_missing: bool) -> WaveformPlan {
        let columns = self.columns();
        let number = |sought: &String| columns.iter().position(|column| column == sought).unwrap_or(0);
        let recordings = self.fields.iter().flat_map(|field| &field.columns).map(number).collect();
        let field = |field: &WaveformField| PlannedField {
            name: field.name.clone(),
            stacked: field.is_stacked.then_some(field.columns.len()),
        };
        let fields = self.fields.iter().map(field).collect();
        let columns = columns.into_iter().map(str::to_owned).collect();
        WaveformPlan::new(fields, recordings, columns).filling_missing(fills_missing)
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
