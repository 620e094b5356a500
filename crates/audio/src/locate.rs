//! Finds the bytes of a span by interpolation between places that are known.
//!
//! A window is read where the span is expected, large enough that it usually holds the whole span. What was
//! found in it is remembered, so that later spans are found at once. The number of reads is bounded for any
//! content.
//!
//! Source: own.

use std::{
    ops::Range,
    sync::{Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;

use crate::{
    Result, corrupt, fallible_alloc,
    index::SpanWindow,
    index_file::{Parser, Writer},
    read_at::RangeReader,
};

/// The most points that an index keeps.
pub(crate) const MAX_POINTS: usize = 1 << 12;
/// The most reads for a span.
const MAX_PROBES: usize = 48;
/// The number of probes after which the search goes on from the last known place before the span.
const PATIENCE: usize = 24;
/// The most reads by which a window is extended.
const MAX_EXTENSIONS: usize = 24;

/// A place in the bytes from which on a sample, and all after it, can be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SeekPoint {
    pub(crate) at: u64,
    pub(crate) sample: u64,
}

/// Places that were found in a recording, bounded in number and shared by threads.
#[derive(Debug, Default)]
pub(crate) struct SeekPoints(Mutex<Vec<SeekPoint>>);

impl SeekPoints {
    /// `points` ascend in bytes and samples. There are at least two: the start, and the end of the bytes with
    /// the number of samples.
    pub(crate) fn new(points: Vec<SeekPoint>) -> Self {
        Self(Mutex::new(points))
    }

    /// Reads points from sample 0 to the end of a recording.
    pub(crate) fn read(from: &mut Parser<'_>, size: u64, n_samples: u64) -> Option<Self> {
        let points = from.points(2 * MAX_POINTS, size, n_samples)?;
        let is_whole = points.len() >= 2
            && points.first().is_some_and(|first| first.sample == 0)
            && points.last().is_some_and(|last| last.sample == n_samples);
        is_whole.then(|| Self::new(points))
    }

    /// Whether no point was looked for, since the recording is in memory.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<SeekPoint>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn list(&self) -> Vec<SeekPoint> {
        self.lock().clone()
    }

    pub(crate) fn bytes_held(&self) -> usize {
        self.lock().capacity() * size_of::<SeekPoint>()
    }

    /// The nearest points at or before `sample`, and after it.
    pub(crate) fn around(&self, sample: u64) -> (SeekPoint, SeekPoint) {
        let points = self.lock();
        let behind = points.partition_point(|point| point.sample <= sample).clamp(1, points.len() - 1);
        (points[behind - 1], points[behind])
    }

    /// The last point before byte `at`.
    fn before(&self, at: u64) -> Option<SeekPoint> {
        let points = self.lock();
        points[..points.partition_point(|point| point.at < at)].last().copied()
    }

    /// The bytes of `n` samples by the mean rate of a recording of `size` bytes.
    fn mean(&self, n: u64, size: u64) -> u64 {
        let last = self.lock().last().map_or(0, |last| last.sample);
        scaled(size, n, last).min(size)
    }

    /// Remembers a point.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Corrupt`] if it contradicts the others.
    pub(crate) fn add(&self, point: SeekPoint) -> Result<()> {
        let mut points = self.lock();
        let at = points.partition_point(|known| known.at < point.at);
        let is_known = points.get(at).is_some_and(|known| known.at == point.at);
        let behind = at + usize::from(is_known);
        let is_between = at.checked_sub(1).is_none_or(|before| points[before].sample <= point.sample)
            && points.get(behind).is_none_or(|next| next.sample >= point.sample);
        if !is_between {
            return Err(contradiction(point.at));
        }
        if is_known {
            points[at].sample = points[at].sample.min(point.sample);
            return Ok(());
        }
        if points.len() >= MAX_POINTS {
            thin(&mut points);
            let at = points.partition_point(|known| known.at < point.at);
            points.insert(at, point);
        } else {
            fallible_alloc::reserve(&mut points, (at + 1).next_multiple_of(16))?;
            points.insert(at, point);
        }
        Ok(())
    }
}

impl Writer {
    pub(crate) fn points(&mut self, points: &[SeekPoint]) {
        self.word(points.len() as u32);
        for point in points {
            self.long(point.at);
            self.long(point.sample);
        }
    }
}

impl Parser<'_> {
    /// Points that ascend, up to byte `end` and sample `behind`.
    pub(crate) fn points(&mut self, most: usize, end: u64, behind: u64) -> Option<Vec<SeekPoint>> {
        let n = self.word()? as usize;
        if n > most || n > self.left() / 16 {
            return None;
        }
        // bounded: the bytes have 16 for each.
        let mut points: Vec<SeekPoint> = Vec::with_capacity(n);
        for _ in 0..n {
            let point = SeekPoint { at: self.long()?, sample: self.long()? };
            let follows = points.last().is_none_or(|last| last.at < point.at && last.sample <= point.sample);
            if !follows || point.at > end || point.sample > behind {
                return None;
            }
            points.push(point);
        }
        Some(points)
    }
}

/// Leaves out every second point, but not the ends.
pub(crate) fn thin(points: &mut Vec<SeekPoint>) {
    let (mut number, last) = (0, points.len().saturating_sub(1));
    points.retain(|_| {
        number += 1;
        number % 2 == 1 || number - 1 == last
    });
}

/// The error for bytes that are not those that were indexed.
pub(crate) fn contradiction(at: u64) -> crate::Error {
    corrupt("the recording's bytes contradict those that were indexed, or are out of order").at_byte(at)
}

/// What a window of bytes holds: all samples from `first` to `behind`, whose bytes begin and end there. The
/// samples between damaged bytes count.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WindowSamples {
    pub(crate) first: SeekPoint,
    pub(crate) behind: SeekPoint,
}

/// Reads a window that holds the samples `want`.
///
/// `hint` are places around the start of `want` that are not proven. `scan` finds what the bytes from an
/// offset on hold; None if no sample.
///
/// # Errors
/// [`crate::ErrorKind::Corrupt`] if the bytes contradict the points, and the errors of reads and of `scan`.
pub(crate) fn locate(
    reader: &RangeReader<'_>,
    points: &SeekPoints,
    hint: Option<(SeekPoint, SeekPoint)>,
    want: &Range<u64>,
    mut scan: impl FnMut(u64, &Bytes) -> Result<Option<WindowSamples>>,
) -> Result<SpanWindow<Bytes>> {
    let (size, margin) = (reader.size(), reader.sizes.margin);
    let mean = points.mean(want.end - want.start, size);
    let mut is_hint = hint.is_some();
    let (mut low, mut high) = hint.unwrap_or_else(|| points.around(want.start));
    for probe in 0..MAX_PROBES {
        let gap = high.at.saturating_sub(low.at);
        let samples = high.sample.saturating_sub(low.sample).max(1);
        let share = |n: u64| scaled(gap, n, samples).min(size);
        // Every second step is plain halving, if interpolation does not lead there soon.
        let guess = match probe > 3 && probe % 2 == 1 {
            true => low.at + gap / 2,
            false => low.at + share(want.start.saturating_sub(low.sample)).min(gap),
        };
        let is_near = gap <= 2 * margin || probe >= PATIENCE;
        let from = if is_near { low.at } else { guess.saturating_sub(margin).max(low.at) };
        // Bytes of the span by the rate here, or by that of the whole recording.
        let len = share(want.end - want.start).max(mean);
        let to = guess.max(from).saturating_add(len + len / 8).saturating_add(margin).min(size);
        let mut extendable =
            Extendable { reader, at: from, bytes: reader.read(from..to)?, left: MAX_EXTENSIONS };
        let mut content = scan(from, &extendable.bytes)?;
        // Too few bytes for a sample, or for one behind the last known place.
        let is_short = |content: &Option<WindowSamples>| {
            content.is_none_or(|found| {
                found.behind.sample <= want.start
                    && found.behind.at <= low.at
                    && found.first.sample <= want.start
            })
        };
        while is_short(&content) && extendable.left > MAX_EXTENSIONS / 2 {
            if !extendable.extend((extendable.bytes.len() as u64).max(margin))? {
                break;
            }
            content = scan(from, &extendable.bytes)?;
        }
        match content {
            Some(mut found) if found.first.sample <= want.start && found.behind.sample > want.start => {
                points.add(found.first)?;
                while found.behind.sample < want.end {
                    let had = found.behind.sample - found.first.sample;
                    let bytes = scaled(found.behind.at - found.first.at, want.end - found.behind.sample, had);
                    if !extendable.extend((bytes + bytes / 8).saturating_add(margin / 4).min(size))? {
                        // The rest is damaged, which decoding will tell.
                        break;
                    }
                    found = scan(from, &extendable.bytes)?.ok_or_else(|| contradiction(from))?;
                }
                points.add(found.behind)?;
                let units = Some(found.first.sample..found.behind.sample);
                return Ok(SpanWindow { at: from, bytes: extendable.bytes, units, start: 0 });
            }
            Some(found) if found.first.sample <= want.start && found.behind.at > low.at => {
                points.add(found.behind)?;
                low = found.behind;
                high = if high.at > low.at { high } else { points.around(want.start).1 };
            }
            Some(found) if found.first.sample > want.start && from > low.at => {
                points.add(found.first)?;
                high = SeekPoint { at: from, sample: found.first.sample };
            }
            None if from > low.at => high.at = from,
            _ if is_hint => {
                is_hint = false;
                (low, high) = points.around(want.start);
            }
            // What is damaged at a known place is found from an earlier one.
            _ if points.before(low.at).is_some() => low = points.before(low.at).unwrap_or(low),
            Some(_) => return Err(contradiction(from)),
            None => {
                let message = "no frames or pages of the recording are found where they should be";
                return Err(corrupt(message).at_byte(from));
            }
        }
    }
    Err(corrupt("the samples of the recording are not found in their order"))
}

/// `whole * n / of`.
fn scaled(whole: u64, n: u64, of: u64) -> u64 {
    u64::try_from(u128::from(whole) * u128::from(n) / u128::from(of.max(1))).unwrap_or(u64::MAX)
}

/// A window that grows at its end.
struct Extendable<'a, 'r> {
    reader: &'a RangeReader<'r>,
    at: u64,
    bytes: Bytes,
    /// The number of times that it may still grow.
    left: usize,
}

impl Extendable<'_, '_> {
    /// Reads `by` more bytes; returns whether there were any.
    fn extend(&mut self, by: u64) -> Result<bool> {
        let end = self.at + self.bytes.len() as u64;
        let to = end.saturating_add(by).min(self.reader.size());
        if to <= end || self.left == 0 {
            return Ok(false);
        }
        self.left -= 1;
        self.reader.check(to - self.at)?;
        let mut joined = fallible_alloc::with_room((to - self.at) as usize)?;
        joined.extend_from_slice(&self.bytes);
        // A reader that waits for memory must not hold any that others wait for.
        self.bytes = Bytes::new();
        joined.extend_from_slice(&self.reader.read(end..to)?);
        self.bytes = joined.into();
        Ok(true)
    }
}
