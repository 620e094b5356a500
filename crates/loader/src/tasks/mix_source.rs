//! [`MixSource`]: the source of the recordings that a step of augmentation mixes in or convolves with, and
//! which of them are taken. Source: own.

use std::{
    collections::BTreeMap,
    fmt,
    ops::Range,
    sync::{Arc, PoisonError},
};

use super::pool::{ReadPartner, RecordingPool, pool_of};
use crate::sync::plain::{Mutex, MutexGuard};
use crate::{
    Error,
    dsp::augment::PartnerReading,
    error::Place,
    sampling::SameClass,
    seed::below,
    source::{PayloadSource, Positions},
};

/// The most partners that are listed as bad.
const LISTED: usize = 10_000;

/// Partners that could not be decoded, by position.
type Failures = Mutex<BTreeMap<u64, Error>>;

/// The source of the partners of a step; shared by workers.
#[derive(Clone)]
pub struct MixSource {
    pool: Arc<dyn RecordingPool>,
    /// The first position of each source among them, and the number of all.
    starts: Arc<[u64]>,
    /// Positions that are never read, ascending.
    exclude: Arc<[u64]>,
    /// The loader's own rows, of which a clip's own is no partner.
    own: Option<Positions>,
    /// Of the loader's own rows: only those that share a class.
    same_class: Option<Arc<SameClass>>,
    failures: Arc<Failures>,
    /// What messages call a partner, if it is neither mixed in nor a response.
    what: Option<&'static str>,
}

impl fmt::Debug for MixSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MixSource").field("starts", &self.starts).finish_non_exhaustive()
    }
}

impl MixSource {
    /// Rows of `source`, whose parts begin at `starts`, with the number of all rows at the end, but for those
    /// that are excluded.
    pub fn new<S: PayloadSource>(source: Arc<S>, starts: Arc<[u64]>, mut exclude: Vec<u64>) -> Self {
        exclude.sort_unstable();
        Self {
            pool: pool_of(source),
            starts,
            exclude: exclude.into(),
            own: None,
            same_class: None,
            failures: Arc::default(),
            what: None,
        }
    }

    /// The rows are the loader's own: a clip's partner is another row, and of these only one that shares a
    /// class with it, if `same_class` has classes.
    #[must_use]
    pub fn of_own_rows(self, own: Positions, same_class: Option<Arc<SameClass>>) -> Self {
        Self { own: Some(own), same_class, ..self }
    }

    /// The same with this name of a partner in messages.
    #[must_use]
    pub(crate) fn named(self, what: &'static str) -> Self {
        Self { what: Some(what), ..self }
    }

    /// Reads the partners, for one thread.
    pub(super) fn reader(&self) -> Box<dyn ReadPartner> {
        self.pool.reader()
    }

    /// The errors of partners that could not be decoded, by position; at most `LISTED`.
    pub fn failures(&self) -> Vec<Error> {
        self.listed().values().cloned().collect()
    }

    fn listed(&self) -> MutexGuard<'_, BTreeMap<u64, Error>> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The partner of position `own` by these random bits; `None` if it is not to be read.
    pub(super) fn choose(&self, reading: PartnerReading, own: u64, bits: u64) -> Option<u64> {
        let n_rows = *self.starts.last()?;
        let at = if reading.is_own {
            // Of the same source of a mixture.
            let after = self.starts.partition_point(|&start| start <= own);
            let [first, end] = [*self.starts.get(after.checked_sub(1)?)?, *self.starts.get(after)?];
            // The windows of a recording are no partners of each other.
            let row = self.own.as_ref().map_or(own..own + 1, |positions| positions.of_same_row(own));
            // One of the nearest before the places `row` of `n` in a circle.
            let before = |row: Range<u64>, n: u64, bits: u64| {
                let others = n.checked_sub(row.end - row.start).filter(|&n| n > 0)?;
                let back = 1 + below(bits, reading.near.unwrap_or(others).min(others));
                Some((row.start + n - back) % n)
            };
            match &self.same_class {
                None => first + before(row.start - first..row.end - first, end - first, bits)?,
                Some(same_class) => {
                    let (rows, bits) = same_class.draw(own, first..end, bits)?;
                    let place = |at| rows.partition_point(|&row| row < at) as u64;
                    let within = Some(place(row.start)..place(row.end)).filter(|row| !row.is_empty())?;
                    rows[before(within, rows.len() as u64, bits)? as usize]
                }
            }
        } else {
            (n_rows > 0).then(|| below(bits, n_rows))?
        };
        self.exclude.binary_search(&at).is_err().then_some(at)
    }

    /// Lists and logs a partner that is bad.
    pub(super) fn report(&self, reading: PartnerReading, at: u64, error: Error) {
        let error = self.pool.located(error, at);
        let is_new = {
            let mut listed = self.listed();
            let is_new = listed.len() < LISTED && !listed.contains_key(&at);
            if is_new {
                listed.insert(at, error.clone());
            }
            is_new
        };
        if is_new {
            let mixed =
                if reading.is_response { "an impulse response" } else { "a recording to be mixed in" };
            let what = self.what.unwrap_or(mixed);
            log::warn!("{what} is bad, another one is taken: {error}");
        }
    }

    /// The error of a partner that the system does not read, for the record that it was to be mixed into.
    pub(super) fn unread(&self, reading: PartnerReading, at: u64, error: &Error) -> Error {
        let mixed = if reading.is_response { "an impulse response" } else { "a recording to mix in" };
        let what = self.what.unwrap_or(mixed);
        let Place { shard, row, .. } = self.pool.place(at);
        let place = shard.zip(row).map(|(shard, row)| format!(", row {row} of {}", shard.display()));
        let message = format!("cannot read {what}{}", place.unwrap_or_default());
        Error::new(error.kind, message).because(error.clone())
    }
}
