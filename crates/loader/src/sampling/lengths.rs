//! [`RowSeconds`]: the lengths of rows, of which too short and too long ones are left out.

use std::sync::Arc;

use super::kept;
use crate::{
    Error, ErrorKind, Result, fallible_alloc,
    source::Recordings,
    targets::{TargetConfig, TokensRule},
};

/// The lengths that rows may have.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LengthLimits {
    pub min_seconds: f64,
    pub max_seconds: f64,
    /// Whether longer rows are cut; otherwise they are left out.
    pub cuts: bool,
}

/// Rows that are not read because of their length.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeftOut {
    pub too_short: u64,
    pub too_long: u64,
    /// Rows whose text has too many tokens.
    pub too_many_tokens: u64,
    /// Rows whose text has too many tokens for their seconds.
    pub too_many_per_second: u64,
}

/// Those of `rows` whose text has no more tokens than `rule` allows, and how many are left out; `None`: of
/// all. `counts` are the tokens of all rows of the source.
///
/// # Errors
/// [`ErrorKind::Config`] if none is left.
pub fn within_tokens(
    source: &Recordings,
    rows: Option<Arc<[u64]>>,
    (target, rule): (&TargetConfig, &TokensRule),
    counts: &[u32],
) -> Result<(Option<Arc<[u64]>>, u64)> {
    let most = rule.most_tokens();
    let fits = |row: u64| counts.get(row as usize).is_none_or(|&n| u64::from(n) <= most);
    let n_before = rows.as_ref().map_or(source.n_rows(), |rows| rows.len() as u64);
    if rows.as_ref().map_or_else(|| (0..n_before).all(fits), |rows| rows.iter().all(|&row| fits(row))) {
        return Ok((rows, 0));
    }
    let rows = kept(rows, source.n_rows(), fits)?;
    if rows.is_empty() {
        let name = &target.name;
        let message = format!(
            "no row is left: the text of each has more than max_tokens={most} tokens of target {name:?}"
        );
        return Err(Error::new(ErrorKind::Config, message));
    }
    let n_left_out = n_before - rows.len() as u64;
    Ok((Some(rows), n_left_out))
}

/// How long rows are, as they are played.
#[derive(Debug, Clone, Copy)]
pub struct Played<'a> {
    pub seconds: &'a RowSeconds,
    /// The seconds at which they are cut, before they are played faster.
    pub most_seconds: f64,
    /// The largest factor of their speed, at least 1.
    pub fastest: f64,
}

/// Those of `rows` whose text has no more tokens for a second than `most`, and how many are left out; `None`:
/// of all. `tokens` are those of all rows of the source.
///
/// # Errors
/// [`ErrorKind::Config`] if none is left.
pub fn within_tokens_per_second(
    rows: Option<Arc<[u64]>>,
    (target, most): (&str, f64),
    tokens: &[u32],
    Played { seconds, most_seconds, fastest }: Played<'_>,
) -> Result<(Option<Arc<[u64]>>, u64)> {
    let seconds = seconds.of_rows(rows.as_deref());
    let row = |at: usize| rows.as_ref().map_or(at as u64, |rows| rows[at]);
    // Lengths are rounded.
    let most_per_second = most * (1.0 + f64::from(f32::EPSILON)) / fastest;
    let exceeds = |at: usize| {
        let n = tokens.get(row(at) as usize).copied().unwrap_or(0);
        // A bad record has NaN, and is told of in its turn.
        let seconds = f64::from(seconds[at]);
        let heard = if seconds > most_seconds { most_seconds } else { seconds };
        f64::from(n) > most_per_second * heard
    };
    let n_left_out = (0..seconds.len()).filter(|&at| exceeds(at)).count();
    if n_left_out == 0 {
        return Ok((rows, 0));
    }
    if n_left_out == seconds.len() {
        let message = format!(
            "no row is left: the text of each has more than max_per_second={most:?} tokens of target {target:?} for a second"
        );
        return Err(Error::new(ErrorKind::Config, message));
    }
    let mut within = fallible_alloc::with_room(seconds.len() - n_left_out)?;
    within.extend((0..seconds.len()).filter(|&at| !exceeds(at)).map(row));
    Ok((Some(within.into()), n_left_out as u64))
}

#[derive(Debug, Clone)]
pub struct RowSeconds {
    /// Ascending; `None`: all rows of the source.
    rows: Option<Arc<[u64]>>,
    /// Seconds of each; NaN of a bad record, which stays, so that it is told of in its turn.
    seconds: Vec<f32>,
    pub left_out: LeftOut,
}

impl RowSeconds {
    /// Those of `rows` whose lengths are within the limits; `None`: of all. `durations` are the seconds of
    /// all rows as a column has them; what is no length is read from the recording.
    ///
    /// # Errors
    /// As [`Recordings::seconds`]; [`ErrorKind::Config`] if none is left.
    pub fn within(
        source: &Recordings,
        rows: Option<Arc<[u64]>>,
        limits: LengthLimits,
        durations: Option<Vec<f64>>,
    ) -> Result<Self> {
        let mut seconds = known_or_read(source, rows.as_deref(), durations)?;
        let mut left_out = LeftOut::default();
        // A length as a number of samples is rounded, too.
        let rounding = f64::from(f32::EPSILON) * limits.max_seconds;
        let fits = |seconds: f32| {
            let seconds = f64::from(seconds);
            if seconds < limits.min_seconds - rounding {
                (1, 0)
            } else if seconds > limits.max_seconds + rounding && !limits.cuts {
                (0, 1)
            } else {
                (0, 0)
            }
        };
        for (short, long) in seconds.iter().map(|&seconds| fits(seconds)) {
            left_out.too_short += short;
            left_out.too_long += long;
        }
        if left_out == LeftOut::default() {
            return Ok(Self { rows, seconds, left_out });
        }
        let row = |at: u64| rows.as_ref().map_or(at, |rows| rows[at as usize]);
        let mut kept = fallible_alloc::with_room(seconds.len())?;
        kept.extend(
            (0..).zip(&seconds).filter(|(_, seconds)| fits(**seconds) == (0, 0)).map(|(at, _)| row(at)),
        );
        if kept.is_empty() {
            let LengthLimits { min_seconds, max_seconds, .. } = limits;
            let shortest = seconds.iter().copied().fold(f32::INFINITY, f32::min);
            let longest = seconds.iter().copied().fold(0.0, f32::max);
            let message = format!(
                "no row is left: {} are shorter than min_seconds={min_seconds:?}, {} longer than max_seconds={max_seconds:?}; \
                 the lengths are {shortest:?} to {longest:?}, expected in seconds",
                left_out.too_short, left_out.too_long
            );
            return Err(Error::new(ErrorKind::Config, message));
        }
        seconds.retain(|&seconds| fits(seconds) == (0, 0));
        Ok(Self { rows: Some(kept.into()), seconds, left_out })
    }

    pub fn rows(&self) -> Option<&Arc<[u64]>> {
        self.rows.as_ref()
    }

    /// Seconds of each of `rows`, which are among these; `None`: of all.
    pub fn of_rows(&self, rows: Option<&[u64]>) -> Vec<f32> {
        let Some(rows) = rows else { return self.seconds.clone() };
        let at = |row: u64| match &self.rows {
            None => row as usize,
            Some(known) => known.partition_point(|&known| known < row),
        };
        rows.iter().map(|&row| self.seconds.get(at(row)).copied().unwrap_or(f32::NAN)).collect()
    }
}

/// Whether a number of seconds can be a length.
pub fn is_length(seconds: f64) -> bool {
    seconds > 0.0 && seconds <= f64::from(f32::MAX)
}

/// The seconds of `rows` in a column of all rows, and of the others as their source has them.
fn known_or_read(source: &Recordings, rows: Option<&[u64]>, durations: Option<Vec<f64>>) -> Result<Vec<f32>> {
    let Some(durations) = durations else { return source.seconds(rows) };
    let n = rows.map_or(durations.len(), <[u64]>::len);
    let row = |at: usize| rows.map_or(at as u64, |rows| rows[at]);
    let mut seconds = fallible_alloc::with_room(n)?;
    // A segment is as long as it is, whatever a column says.
    let known = |at: usize| source.stated_seconds(row(at)).unwrap_or(durations[row(at) as usize]);
    seconds.extend((0..n).map(|at| known(at) as f32));
    let unknown: Vec<_> = (0..n).filter(|&at| !is_length(known(at))).collect();
    let read = source.seconds(Some(&unknown.iter().map(|&at| row(at)).collect::<Vec<_>>()))?;
    for (at, found) in unknown.into_iter().zip(read) {
        seconds[at] = found;
    }
    Ok(seconds)
}
