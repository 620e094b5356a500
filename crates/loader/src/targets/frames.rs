//! [`FramesRule`]: which labels are heard in each frame of a clip, from labelled times.
//!
//! Frame `i` of a clip has its middle `first + i * step` seconds behind the clip's start. A label that is
//! heard from `start` to `end` seconds of the clip is in the frames `round((start - first) / step)`, at least
//! 0, to `round((end - first) / step)`, both included, halves rounded to even. With `first = duration / 2`
//! these are the frames of `pyannote.core` (`SlidingWindow.crop` with `mode="center"`) and of the training
//! tasks of pyannote.audio (Bredin 2023, "pyannote.audio 2.1 speaker diarization pipeline").
//!
//! A clip is made of [`ClipPiece`]s: what it has of its own recording and of those that were mixed in, and
//! where. So labels move, repeat and are played faster as the samples do.

use std::{ops::Range, sync::Arc};

use super::{
    Annotations, ClipSeconds, Key,
    tokens::{items, seconds},
};
use crate::{
    Error, ErrorKind, Result, fallible_alloc,
    fields::{DataType, Dim, Field, Row, Runs, Value, ValueRun},
};

/// Which labels become columns of frames, and where their times are.
#[derive(Debug, Clone, PartialEq)]
pub struct FramesRule {
    pub events: EventSource,
    pub columns: FrameColumns,
    /// Seconds from a frame to the next, and of a frame; `None`: the frames of the features.
    pub grid: Option<[f64; 2]>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum EventSource {
    /// In a table, found by the path of a row's recording.
    Table(Arc<Annotations>),
    /// In the row: the columns of starts and ends, seconds from its start, beside the target's column of
    /// labels.
    Columns([String; 2]),
}

/// What the columns of frames are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FrameColumns {
    /// One for each class.
    Classes,
    /// The speakers of a clip, at most `n`.
    Speakers {
        n: u32,
        /// Whether they are in the order of their first times; else, of their talk time.
        by_start: bool,
        /// Whether a name is one speaker in all recordings, with a column of its own.
        is_of_data: bool,
    },
}

impl FramesRule {
    /// The annotations, if they are in a table.
    pub fn annotations(&self) -> Option<&Arc<Annotations>> {
        if let EventSource::Table(all) = &self.events { Some(all) } else { None }
    }

    pub(super) fn time_axis(&self) -> TimeAxis {
        match self.grid {
            Some([step, duration]) => TimeAxis::Frames { step, duration },
            None => TimeAxis::FeatureFrames,
        }
    }

    /// The field of `n_classes`; the length of its axis of frames is that of a clip.
    pub(super) fn field(&self, name: &str, n_classes: Option<u64>) -> Field {
        let n = match self.columns {
            FrameColumns::Classes => n_classes.unwrap_or(1),
            FrameColumns::Speakers { n, .. } => n.into(),
        };
        Field::new(name, DataType::Uint8, vec![Dim::Fixed(0), Dim::Fixed(n)])
    }
}

/// The axis of a field along the time of its clip.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TimeAxis {
    FeatureFrames,
    /// Those frames of `duration` seconds, `step` seconds apart, that lie within the clip.
    Frames {
        step: f64,
        duration: f64,
    },
    /// This many values per second.
    Values {
        rate: f64,
    },
}

/// The places of such an axis, of one clip.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct TimeGrid {
    /// Their number.
    pub places: usize,
    /// Seconds from a place to the next.
    pub step: f64,
    /// Seconds from the start of the clip to the middle of the first place.
    pub first: f64,
}

/// Less than the error of sums, in places.
const TOLERANCE: f64 = 1e-6;

impl TimeGrid {
    /// Of a clip of so many seconds, on an axis that is not that of features.
    pub fn new(axis: TimeAxis, seconds: f64) -> Option<Self> {
        let (places, step, first) = match axis {
            TimeAxis::FeatureFrames => return None,
            TimeAxis::Frames { step, duration } => {
                let room = (seconds - duration) / step + TOLERANCE;
                (if room < 0.0 { 0.0 } else { 1.0 + room.floor() }, step, duration / 2.0)
            }
            TimeAxis::Values { rate } => ((seconds * rate).round(), 1.0 / rate, 0.5 / rate),
        };
        Some(Self { places: places as usize, step, first })
    }
}

/// A part of a clip, and where in a recording it is from.
#[derive(Debug, Clone, PartialEq)]
pub struct ClipPiece {
    pub at: Range<usize>,
    /// Seconds from the start of the row to its first sample.
    pub start: f64,
    /// Seconds of the recording in a second of the clip.
    pub speed: f64,
    /// The number of its row among those of [`ClipTimes`].
    pub part: usize,
}

impl ClipPiece {
    /// Cuts off what follows sample number `n`, and returns it.
    fn split_off(&mut self, n: usize, sample_rate: f64) -> Self {
        let at = self.at.start + n..self.at.end;
        self.at.end = at.start;
        Self { at, start: self.start + n as f64 * self.speed / sample_rate, ..self.clone() }
    }
}

/// Pushes the pieces of a clip's samples `at`, in which the `len` samples of a recording from second `start`
/// of its row on are repeated, from number `from` of them.
///
/// Repeats of less than 10 ms are taken for one, which is played slowly: so their number is bounded.
///
/// # Errors
/// [`ErrorKind::Memory`] if the allocation failed.
pub fn push_repeated(
    pieces: &mut Vec<ClipPiece>,
    piece: ClipPiece,
    (len, from): (usize, usize),
    sample_rate: f64,
) -> Result<()> {
    let ClipPiece { at, start, speed, part } = piece;
    if len == 0 || at.is_empty() {
        return Ok(());
    }
    if len < at.len() && (len as f64) < sample_rate / 100.0 {
        let speed = speed * len as f64 / at.len() as f64;
        return fallible_alloc::push(pieces, ClipPiece { at, start, speed, part });
    }
    let (mut next, mut from) = (at.start, from % len);
    while next < at.end {
        let now = (len - from).min(at.end - next);
        let start = start + from as f64 * speed / sample_rate;
        fallible_alloc::push(pieces, ClipPiece { at: next..next + now, start, speed, part })?;
        (next, from) = (next + now, 0);
    }
    Ok(())
}

/// Moves the pieces in the samples `valid` by `shift` samples, as a `Roll` moves these.
///
/// # Errors
/// [`ErrorKind::Memory`] if the allocation failed.
pub fn roll_pieces(
    pieces: &mut Vec<ClipPiece>,
    valid: &Range<usize>,
    (shift, wraps): (i64, bool),
    sample_rate: f64,
) -> Result<()> {
    let n = valid.len();
    if n == 0 {
        return Ok(());
    }
    // Those that leave at the end come in at the start.
    let forward = shift.rem_euclid(n as i64) as usize;
    let is_kept = |wrapped: bool| wraps || shift.unsigned_abs() < n as u64 && wrapped == (shift < 0);
    for number in 0..pieces.len() {
        let border = valid.end - forward;
        let piece = &mut pieces[number];
        let mut rest = None;
        if piece.at.start < border && border < piece.at.end {
            rest = Some(piece.split_off(border - piece.at.start, sample_rate));
        }
        for piece in [Some(piece), rest.as_mut()].into_iter().flatten() {
            let wrapped = piece.at.start >= border;
            let moved = |at: usize| if wrapped { at - (n - forward) } else { at + forward };
            let end = if is_kept(wrapped) { moved(piece.at.end) } else { moved(piece.at.start) };
            piece.at = moved(piece.at.start)..end;
        }
        if let Some(rest) = rest {
            fallible_alloc::push(pieces, rest)?;
        }
    }
    pieces.retain(|piece| !piece.at.is_empty());
    Ok(())
}

/// Frames of the features that were moved; what left at one end came in at the other.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RolledFrames {
    /// The seconds in which they are.
    pub seconds: [f64; 2],
    /// Seconds to later frames.
    pub shift: f64,
}

impl RolledFrames {
    /// The places that were moved, and by how many, to later ones.
    fn on(&self, grid: TimeGrid) -> (Range<usize>, usize) {
        let [start, end] =
            self.seconds.map(|seconds| ((seconds / grid.step).round() as usize).min(grid.places));
        let shift = (self.shift / grid.step).round() as i64;
        (start..end, shift.rem_euclid((end - start).max(1) as i64) as usize)
    }
}

/// What is heard in a clip, and when.
pub struct ClipTimes<'a> {
    pub pieces: &'a [ClipPiece],
    /// The values of a row by its number, and where it is in its recording: the clip's own is number 0.
    pub row: &'a dyn Fn(usize) -> (&'a Row, ClipSeconds),
    /// Samples per second of the clip.
    pub sample_rate: f64,
    pub grid: TimeGrid,
    pub rolled: RolledFrames,
    pub source: usize,
}

/// The events of a piece of a clip.
pub(super) trait EachEvent {
    /// Calls `each` with the identity of the recording, the label, start and end of each event of a row, in
    /// seconds from the row's start. Events outside of the given seconds may be left out.
    fn each(
        &self,
        row: (usize, &Row, ClipSeconds),
        within: [f64; 2],
        each: &mut dyn FnMut(u64, Key, [f64; 2]) -> Result<()>,
    ) -> Result<()>;
}

#[derive(Debug)]
struct HeardEvent {
    recording: u64,
    label: Key,
    /// Seconds of the clip.
    start: f64,
    /// Frames.
    first: u32,
    end: u32,
}

/// The frames of a label in a clip.
#[derive(Debug)]
struct HeardLabel {
    /// The number of its first event, and its runs.
    event: usize,
    runs: Range<usize>,
    n_frames: u32,
    start: f64,
}

#[derive(Debug, Default)]
pub struct FramesScratch {
    events: Vec<HeardEvent>,
    labels: Vec<HeardLabel>,
    runs: Vec<ValueRun>,
}

/// Events that share less than this many seconds with a clip are not in it; that of `pyannote.core`.
const LEAST_SECONDS: f64 = 1e-6;

/// The most events of a clip, with those that are repeated.
const MOST_EVENTS: usize = 1 << 20;

/// # Errors
/// [`ErrorKind::TooLarge`] beyond [`MOST_EVENTS`]; [`ErrorKind::Memory`] if the allocation failed.
fn push_event<T>(events: &mut Vec<T>, event: T) -> Result<()> {
    if events.len() >= MOST_EVENTS {
        let message = format!("a clip has more than {MOST_EVENTS} events, at most so many are possible");
        return Err(Error::new(ErrorKind::TooLarge, message));
    }
    fallible_alloc::push(events, event)
}

impl FramesScratch {
    /// The frames of a clip. `column` is that of a class; labels of which the columns are speakers have none.
    /// Returns the number of speakers for which there was no column, too.
    ///
    /// # Errors
    /// Those of `events`; [`ErrorKind::TooLarge`] for more than [`MOST_EVENTS`]; [`ErrorKind::Memory`] if an
    /// allocation failed.
    pub(super) fn frames(
        &mut self,
        columns: FrameColumns,
        times: &ClipTimes<'_>,
        events: &dyn EachEvent,
    ) -> Result<(Value, usize)> {
        let Self { events: heard, labels, runs } = self;
        heard.clear();
        labels.clear();
        runs.clear();
        let TimeGrid { places, step, first } = times.grid;
        for piece in times.pieces {
            let (values, about) = (times.row)(piece.part);
            let at = piece.at.start as f64 / times.sample_rate;
            let from = piece.start;
            let to = from + piece.at.len() as f64 / times.sample_rate * piece.speed;
            events.each((piece.part, values, about), [from, to], &mut |recording, label, [start, end]| {
                let (start, end) = (start.max(from), end.min(to));
                if end - start <= LEAST_SECONDS {
                    return Ok(());
                }
                let [start, end] = [start, end].map(|seconds| at + (seconds - from) / piece.speed);
                let frame = |seconds: f64| ((seconds - first) / step).round_ties_even();
                let (first, end) = (frame(start).max(0.0), frame(end) + 1.0);
                let (first, end) = (first.min(places as f64) as u32, end.clamp(0.0, places as f64) as u32);
                if first < end {
                    push_event(heard, HeardEvent { recording, label, start, first, end })?;
                }
                Ok(())
            })?;
        }
        heard.sort_unstable_by(|a, b| {
            (a.recording, &a.label, a.first, a.end).cmp(&(b.recording, &b.label, b.first, b.end))
        });
        for (number, event) in heard.iter().enumerate() {
            let last = labels.last_mut().filter(|last| {
                let first = &heard[last.event];
                (first.recording, &first.label) == (event.recording, &event.label)
            });
            let Some(last) = last else {
                let run = ValueRun { column: 0, start: event.first, end: event.end };
                let runs_now = runs.len()..runs.len() + 1;
                fallible_alloc::push(runs, run)?;
                let n_frames = event.end - event.first;
                let label = HeardLabel { event: number, runs: runs_now, n_frames, start: event.start };
                fallible_alloc::push(labels, label)?;
                continue;
            };
            last.start = last.start.min(event.start);
            let run = runs.last_mut().filter(|run| event.first <= run.end);
            let before = run.as_ref().map_or(event.first, |run| run.end);
            last.n_frames += event.end.saturating_sub(before);
            match run {
                Some(run) => run.end = run.end.max(event.end),
                None => {
                    fallible_alloc::push(runs, ValueRun { column: 0, start: event.first, end: event.end })?;
                    last.runs.end = runs.len();
                }
            }
        }
        let left_out = match columns {
            FrameColumns::Speakers { n, by_start, is_of_data: false } => {
                let key = |label: &HeardLabel| {
                    let event = &heard[label.event];
                    (label.start, &event.label, event.recording)
                };
                let by_time = |a: &HeardLabel, b: &HeardLabel| {
                    let ((start, label, recording), other) = (key(a), key(b));
                    start.total_cmp(&other.0).then_with(|| (label, recording).cmp(&(other.1, other.2)))
                };
                labels.sort_unstable_by(|a, b| b.n_frames.cmp(&a.n_frames).then_with(|| by_time(a, b)));
                let left_out = labels.len().saturating_sub(n as usize);
                labels.truncate(n as usize);
                if by_start {
                    labels.sort_unstable_by(by_time);
                }
                left_out
            }
            _ => 0,
        };
        let n_runs = labels.iter().map(|label| label.runs.len()).sum::<usize>();
        let (moved, shift) = times.rolled.on(times.grid);
        let mut found = fallible_alloc::with_room(if shift > 0 { 4 * n_runs } else { n_runs })?;
        for (column, label) in (0..).zip(labels.iter()) {
            let column = match (columns, &heard[label.event].label) {
                (FrameColumns::Speakers { is_of_data: false, .. }, _) => column,
                (_, Key::Number(class)) => *class as u32,
                (_, Key::Name(_)) => continue,
            };
            for run in &runs[label.runs.clone()] {
                let run = ValueRun { column, ..*run };
                if shift == 0 {
                    found.push(run);
                } else {
                    found.extend(rolled_run(run, &moved, shift as u32));
                }
            }
        }
        Ok((Value::Runs(Arc::new(Runs { places: places as u32, runs: found.into() })), left_out))
    }
}

/// A run of frames of which those of a range were moved by fewer than all of them, to later ones.
fn rolled_run(run: ValueRun, moved: &Range<usize>, shift: u32) -> impl Iterator<Item = ValueRun> {
    let (first, end) = (moved.start as u32, moved.end as u32);
    let border = end - shift;
    let part = |from: u32, to: u32| (run.start.max(from), run.end.min(to));
    let back =
        |(start, end): (u32, u32), by: i64| ((i64::from(start) + by) as u32, (i64::from(end) + by) as u32);
    let of = |part: (u32, u32), by: i64| (part.0 < part.1).then(|| back(part, by));
    let parts = [
        of(part(0, first), 0),
        of(part(first, border), shift.into()),
        of(part(border, end), i64::from(first) - i64::from(border)),
        of(part(end, u32::MAX), 0),
    ];
    parts.into_iter().flatten().map(move |(start, end)| ValueRun { start, end, ..run })
}

/// Calls `each` with the labels and times of a row's lists.
///
/// # Errors
/// [`ErrorKind::Corrupt`] for lists of different lengths, and times that are none; those of `each`.
pub(super) fn listed_events(
    (labels, starts, ends): (&Value, &Value, &Value),
    each: &mut dyn FnMut(&Value, [f64; 2]) -> Result<()>,
) -> Result<()> {
    let corrupt = |message: String| Err(Error::new(ErrorKind::Corrupt, message));
    let [labels, starts, ends] = [labels, starts, ends].map(items);
    if labels.len() != starts.len() || labels.len() != ends.len() {
        return corrupt(format!(
            "the row has {} labels, {} starts and {} ends, expected as many of each",
            labels.len(),
            starts.len(),
            ends.len()
        ));
    }
    for ((label, start), end) in labels.iter().zip(starts).zip(ends) {
        let [start, end] = [start, end].map(|time| seconds(time).unwrap_or(f64::NAN));
        if !(start.is_finite() && end.is_finite() && start <= end) {
            return corrupt(format!("an event is from {start} to {end} s, must end after its start"));
        }
        each(label, [start, end])?;
    }
    Ok(())
}

/// The rule of a list of numbers that follow one another in time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SequenceRule {
    /// Numbers per second.
    pub rate: f64,
    /// What fills up, and stands for a null.
    pub pad: f64,
}

/// The values of a row's list along the time of its clip: at each place the one at the time of its middle.
///
/// # Errors
/// [`ErrorKind::Memory`] if an allocation failed.
pub(super) fn sequence(list: &[Value], pad: &Value, rate: f64, times: &ClipTimes<'_>) -> Result<Value> {
    let TimeGrid { places, step, first } = times.grid;
    let (moved, shift) = times.rolled.on(times.grid);
    let mut found = fallible_alloc::with_room(places)?;
    for place in 0..places {
        // Where it was before frames were moved.
        let place = match shift > 0 && moved.contains(&place) {
            true => moved.start + (place - moved.start + moved.len() - shift) % moved.len(),
            false => place,
        };
        let seconds = first + place as f64 * step;
        let sample = seconds * times.sample_rate;
        let is_in = |piece: &&ClipPiece| {
            piece.part == 0 && piece.at.start as f64 <= sample && sample < piece.at.end as f64
        };
        let value = times.pieces.iter().find(is_in).and_then(|piece| {
            let behind = seconds - piece.at.start as f64 / times.sample_rate;
            list.get(((piece.start + behind * piece.speed) * rate + TOLERANCE).floor() as usize)
        });
        found.push(value.filter(|value| !matches!(value, Value::Null)).unwrap_or(pad).clone());
    }
    Ok(Value::List(found.into()))
}

/// What is told of the words of a clip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WordPart {
    Text,
    /// Seconds of the clip.
    Start,
    /// Seconds of the clip.
    End,
}

/// A list of what is told of the words that are heard in a clip, in the order of their starts.
///
/// # Errors
/// As [`listed_events`] and [`push_event`].
pub(super) fn words(lists: (&Value, &Value, &Value), part: WordPart, times: &ClipTimes<'_>) -> Result<Value> {
    let mut found = Vec::new();
    for piece in times.pieces.iter().filter(|piece| piece.part == 0) {
        let at = piece.at.start as f64 / times.sample_rate;
        let from = piece.start;
        let to = from + piece.at.len() as f64 / times.sample_rate * piece.speed;
        listed_events(lists, &mut |word, [start, end]| {
            // One that lasts no time is heard where it is.
            let is_heard = start < to && (end > from || start >= from);
            if let (Value::Text(_), true) = (word, is_heard) {
                let [start, end] =
                    [start, end].map(|seconds| at + (seconds.clamp(from, to) - from) / piece.speed);
                push_event(&mut found, (start, end, word.clone()))?;
            }
            Ok(())
        })?;
    }
    // Stable: those that begin together stay in the order of the list.
    found.sort_by(|a, b| a.0.total_cmp(&b.0));
    let told = found.into_iter().map(|(start, end, word)| match part {
        WordPart::Text => word,
        WordPart::Start => Value::Float(start),
        WordPart::End => Value::Float(end),
    });
    Ok(Value::List(told.collect()))
}

#[cfg(test)]
mod tests;
