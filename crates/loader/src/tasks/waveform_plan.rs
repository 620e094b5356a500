//! [`WaveformPlan`]: the recordings of a row, if it has several, and the fields that they become. Source:
//! own.

use std::{fmt, sync::Arc};

use super::{
    mix_source::MixSource,
    pool::{RecordingPool, pool_of},
};
use crate::source::PayloadSource;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedField {
    pub name: String,
    /// The length of its axis of recordings, if it has one.
    pub stacked: Option<usize>,
}

impl PlannedField {
    /// The number of its recordings.
    pub fn n(&self) -> usize {
        self.stacked.unwrap_or(1)
    }
}

/// The recordings of a row, and the fields that they become.
#[derive(Debug, Clone)]
pub struct WaveformPlan {
    pub fields: Vec<PlannedField>,
    /// Whether zeros stand for recordings besides the first that are null; else the row is bad.
    pub(super) fills_missing: bool,
    /// The number of the recording, among those that are read, of each waveform in the order of the fields.
    pub(super) recordings: Vec<usize>,
    /// The recordings that are read, as messages name them.
    pub(super) names: Vec<String>,
    /// Those besides the first; empty until the files are open.
    pub(super) others: Vec<OtherRecordings>,
}

/// The recordings of one column and track, in the rows of the loader.
#[derive(Clone)]
pub struct OtherRecordings {
    pub(super) pool: Arc<dyn RecordingPool>,
    /// Whether their clips have places of their own.
    pub(super) is_independent: bool,
    /// The rows of which one is taken instead of the row itself: all of its class, then those that are not
    /// excluded. So a row's partner is the same whichever others are excluded.
    pub(super) partners: Option<[MixSource; 2]>,
}

impl fmt::Debug for OtherRecordings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OtherRecordings").finish_non_exhaustive()
    }
}

impl OtherRecordings {
    /// The rows of a source at the positions of the loader's own.
    pub fn new<S: PayloadSource>(source: Arc<S>) -> Self {
        Self { pool: pool_of(source), is_independent: false, partners: None }
    }

    /// The same with clips at places of their own, of partners if there are any.
    pub fn independent<S: PayloadSource>(source: Arc<S>, partners: Option<[MixSource; 2]>) -> Self {
        Self { is_independent: true, partners, ..Self::new(source) }
    }
}

impl WaveformPlan {
    /// For recordings with these names, before the files are open; `recordings` has for each waveform the
    /// number of its recording.
    pub fn new(fields: Vec<PlannedField>, recordings: Vec<usize>, names: Vec<String>) -> Self {
        Self { fields, fills_missing: false, recordings, names, others: Vec::new() }
    }

    /// The same, with zeros for nulls or not.
    #[must_use]
    pub fn filling_missing(self, fills_missing: bool) -> Self {
        Self { fills_missing, ..self }
    }

    /// The same with the recordings besides the first, in their order.
    #[must_use]
    pub fn with_others(self, others: Vec<OtherRecordings>) -> Self {
        Self { others, ..self }
    }

    /// The waveforms at the front that are cut where the first one is.
    pub(super) fn n_together(&self) -> usize {
        let is_independent = |number: usize| {
            let other = number.checked_sub(1).and_then(|at| self.others.get(at));
            other.is_some_and(|other| other.is_independent)
        };
        self.recordings.iter().take_while(|&&number| !is_independent(number)).count()
    }

    /// The rows of which recordings are taken instead of the row's own, with the names of these recordings.
    pub fn partners(&self) -> impl Iterator<Item = (&str, &MixSource)> {
        let named = self.names.iter().skip(1).zip(&self.others);
        named.filter_map(|(name, other)| Some((&**name, other.partners.as_ref()?.first()?)))
    }

    /// The waveforms of a row, those of stacked fields too.
    pub fn n(&self) -> usize {
        self.recordings.len()
    }

    /// The recordings of a row that are read besides the first.
    pub fn n_others(&self) -> usize {
        self.names.len().saturating_sub(1)
    }
}
