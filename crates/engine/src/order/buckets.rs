//! [`Buckets`]: batches by length. Which draws go together, so that no batch exceeds a budget when all its
//! rows are padded to the longest.
//!
//! The draws of an epoch are cut into *chapters*. A chapter's draws are scanned once; each goes to the bucket
//! of its length, and a bucket with `size · V` draws becomes a *step*: one batch of `size` rows for each of
//! V streams. What is left at the end is sorted by length and cut into steps by the same budget. So a chapter
//! is a pure function of its draws and their lengths, and nothing is carried into the next one: all streams
//! take the same number of batches, and each draw is in exactly one (a pass that drops the rest leaves out
//! fewer than V draws of a chapter).
//!
//! Source: own.

use std::{fmt, sync::Arc};

use crate::{Error, ErrorKind, Result};

/// What a batch may hold, after padding.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Budget {
    /// The most seconds of a batch, after padding.
    pub max_duration: f64,
    /// If it is `q`, a row of `d` seconds counts as `d + d² / q`, for models whose cost grows so.
    pub quadratic_duration: Option<f64>,
    /// The most rows of a batch.
    pub max_examples: Option<u32>,
}

/// The share of `max_duration` by which a batch may exceed it, since lengths are rounded to float32.
const ROUNDING: f64 = 5e-7;

impl Budget {
    /// What a row of `seconds` counts for.
    pub fn cost(&self, seconds: f64) -> f64 {
        seconds + self.quadratic_duration.map_or(0.0, |quadratic| seconds * seconds / quadratic)
    }

    /// The most rows of a batch that is padded to `seconds`.
    pub fn rows(&self, seconds: f64) -> u32 {
        // `as` limits what is beyond the range.
        let rows = (self.max_duration * (1.0 + ROUNDING) / self.cost(seconds)) as u32;
        rows.min(self.max_examples.unwrap_or(MAX_ROWS)).min(MAX_ROWS)
    }
}

/// The most rows of a batch: as for batches of a fixed size.
const MAX_ROWS: u32 = 1 << 20;

/// The draws of a chapter; fewer in the last one of an epoch.
pub const CHAPTER: u64 = 1 << 20;

/// How much longer a draw is than its row, by its random bits: as a change of speed makes it.
#[derive(Clone)]
pub struct Stretch {
    of: Arc<dyn Fn(u64) -> f64 + Send + Sync>,
    /// The least and the most that it may be.
    range: [f64; 2],
}

impl Stretch {
    /// `of` gives the factor for a draw's random bits, within `range`.
    pub fn new(of: impl Fn(u64) -> f64 + Send + Sync + 'static, range: [f64; 2]) -> Self {
        Self { of: Arc::new(of), range }
    }
}

impl fmt::Debug for Stretch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stretch").field("range", &self.range).finish_non_exhaustive()
    }
}

impl PartialEq for Stretch {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.of, &other.of) && self.range == other.range
    }
}

/// Lengths of rows, and the batches that they fit in.
#[derive(Debug, Clone, PartialEq)]
pub struct Buckets {
    /// Seconds of each row over the files as given.
    lengths: Arc<[f32]>,
    stretch: Option<Stretch>,
    budget: Budget,
    /// The longest seconds of each bucket, rising.
    bounds: Vec<f64>,
    /// The rows of a full batch of each bucket.
    sizes: Vec<u32>,
    /// The most rows of any batch.
    most_rows: u32,
    chapter: u64,
}

impl Buckets {
    /// Up to `n` buckets of about equal total duration over all rows.
    ///
    /// # Errors
    /// As [`Buckets::with_bounds`].
    pub fn new(lengths: Arc<[f32]>, budget: Budget, n: usize) -> Result<Self> {
        check(&lengths)?;
        let mut sorted = lengths.to_vec();
        sorted.sort_unstable_by(f32::total_cmp);
        let total: f64 = sorted.iter().map(|&length| f64::from(length)).sum();
        let (mut sum, mut bounds) = (0.0, Vec::new());
        for &length in &sorted {
            sum += f64::from(length);
            while bounds.len() < n && sum >= total * (bounds.len() + 1) as f64 / n as f64 {
                bounds.push(f64::from(length));
            }
        }
        bounds.dedup();
        Self::with_bounds(lengths, budget, bounds)
    }

    /// The same with draws of other lengths than their rows.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if the longest draw alone exceeds the budget.
    pub fn stretched(self, stretch: Stretch) -> Result<Self> {
        let [least, most] = stretch.range;
        let longest = f64::from(self.lengths.iter().copied().fold(0.0, f32::max)) * most;
        let shortest = f64::from(self.lengths.iter().copied().fold(f32::INFINITY, f32::min)) * least;
        let made = Self::over(self.lengths, self.budget, self.bounds, ([shortest, longest], true))?;
        Ok(Self { stretch: Some(stretch), chapter: self.chapter, ..made })
    }

    /// Buckets with these upper `bounds` in seconds; longer rows have one more.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if the bounds do not rise, if a length is no number above 0, or if a row alone
    /// exceeds the budget.
    pub fn with_bounds(lengths: Arc<[f32]>, budget: Budget, bounds: Vec<f64>) -> Result<Self> {
        check(&lengths)?;
        let longest = f64::from(lengths.iter().copied().fold(0.0, f32::max));
        let shortest = f64::from(lengths.iter().copied().fold(f32::INFINITY, f32::min));
        Self::over(lengths, budget, bounds, ([shortest, longest], false))
    }

    fn over(
        lengths: Arc<[f32]>,
        budget: Budget,
        mut bounds: Vec<f64>,
        ([shortest, longest], is_stretched): ([f64; 2], bool),
    ) -> Result<Self> {
        let config = |message| Err(Error::new(ErrorKind::Config, message));
        let is_above_0 = |number: f64| number.is_finite() && number > 0.0;
        if !is_above_0(budget.max_duration) || !budget.quadratic_duration.is_none_or(is_above_0) {
            return config(format!(
                "max_duration is {} and quadratic_duration is {:?}; both must be above 0",
                budget.max_duration, budget.quadratic_duration
            ));
        }
        if let Some(two) =
            bounds.windows(2).find(|two| two[0].partial_cmp(&two[1]) != Some(std::cmp::Ordering::Less))
        {
            return config(format!("duration_bins must rise, but {} is followed by {}", two[0], two[1]));
        }
        if bounds.last().is_none_or(|&last| last < longest) {
            bounds.push(longest);
        }
        // Bounds beyond the longest row bound nothing.
        let last = bounds.partition_point(|&bound| bound < longest);
        bounds.truncate(last + 1);
        bounds[last] = longest;
        let sizes: Vec<u32> = bounds.iter().map(|&bound| budget.rows(bound)).collect();
        if let Some(k) = sizes.iter().position(|&size| size == 0) {
            return config(format!(
                "a row of {} s{} alone exceeds max_duration={}; raise it, or leave out longer rows",
                bounds[k] as f32,
                if is_stretched { ", as it is played," } else { "" },
                budget.max_duration
            ));
        }
        // What is left at the end of a chapter is cut by its own longest row.
        let most_rows = budget.rows(shortest);
        Ok(Self { lengths, stretch: None, budget, bounds, sizes, most_rows, chapter: CHAPTER })
    }

    /// Chapters of `draws`, for tests.
    #[must_use]
    pub fn in_chapters(self, draws: u64) -> Self {
        Self { chapter: draws.clamp(1, CHAPTER), ..self }
    }

    /// The draws of a chapter that does not end an epoch; at least one for each of `n_streams`.
    pub(crate) fn chapter(&self, n_streams: u64) -> u64 {
        self.chapter.max(n_streams)
    }

    pub fn n_rows(&self) -> u64 {
        self.lengths.len() as u64
    }

    pub fn length(&self, row: u64) -> f32 {
        self.lengths[row as usize]
    }

    /// The longest seconds of each bucket, rising.
    pub fn bounds(&self) -> &[f64] {
        &self.bounds
    }

    /// The rows of a full batch of each bucket.
    pub fn sizes(&self) -> &[u32] {
        &self.sizes
    }

    /// The most rows of any batch.
    pub fn most_rows(&self) -> u32 {
        self.most_rows
    }

    /// How much longer a draw is than its row.
    pub(crate) fn stretch(&self) -> Option<&dyn Fn(u64) -> f64> {
        self.stretch.as_ref().map(|stretch| &*stretch.of as &dyn Fn(u64) -> f64)
    }

    /// The bucket of a draw of this length.
    pub fn bucket(&self, seconds: f32) -> usize {
        self.bounds.partition_point(|&bound| bound < f64::from(seconds)).min(self.bounds.len() - 1)
    }

    pub fn budget(&self) -> &Budget {
        &self.budget
    }
}

/// Checks that lengths can be summed.
fn check(lengths: &[f32]) -> Result<()> {
    let is_usable = |length: &f32| length.is_finite() && *length > 0.0;
    let Some(row) = lengths.iter().position(|length| !is_usable(length)) else { return Ok(()) };
    let message =
        format!("the length of row {row} is {} s, must be above 0; leave such rows out", lengths[row]);
    Err(Error::new(ErrorKind::Config, message))
}
