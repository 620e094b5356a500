//! [`Buckets`]: batches by length. Which draws go together, so that no batch exceeds a budget when all its
//! rows are padded to the longest.
//!
//! The draws of an epoch are cut into *chapters*. A chapter's draws are scanned once; each goes to the bucket
//! of its length, and a bucket with `size · V` draws becomes a *step*: one batch of `size` rows for each of
//! V streams. What is left at the end is sorted by length (those within 3 % of each other
//! by draw) and cut into steps by the same budget. So a chapter
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
    /// The most seconds of a batch, after padding; infinite if only the sizes of buckets bound it.
    pub max_duration: f64,
    /// If it is `q`, a row of `d` seconds counts as `d + d² / q`, for models whose cost grows so.
    pub quadratic_duration: Option<f64>,
    /// The most rows of a batch.
    pub max_examples: Option<u32>,
    /// The most tokens of a batch, after padding.
    pub max_tokens: Option<u64>,
}

/// How rows are divided by their lengths.
#[derive(Debug, Clone, PartialEq)]
pub enum Bins {
    /// Up to so many buckets of about equal total duration.
    Number(usize),
    /// The longest seconds of each bucket, rising; longer rows have one more.
    Bounds(Vec<f64>),
    /// The longest seconds of each bucket, rising, and its rows of a batch.
    Sized(Vec<(f64, u32)>),
}

/// The lengths of all rows, over the files as given.
#[derive(Debug, Clone, PartialEq)]
pub struct Lengths {
    pub seconds: Arc<[f32]>,
    /// The tokens of each row, and how many buckets each bucket by seconds is divided into by them.
    pub tokens: Option<(Arc<[u32]>, usize)>,
}

impl From<Arc<[f32]>> for Lengths {
    fn from(seconds: Arc<[f32]>) -> Self {
        Self { seconds, tokens: None }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Length {
    pub seconds: f32,
    /// 0 if tokens bound nothing.
    pub tokens: u32,
}

/// The longest that the rows of a batch may be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BucketLimit {
    pub seconds: f64,
    /// 0 if tokens bound nothing.
    pub tokens: u32,
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
    lengths: Lengths,
    stretch: Option<Stretch>,
    budget: Budget,
    /// The longest seconds of each bin, rising.
    bins: Vec<f64>,
    /// The rows of a batch of each bin, if they are given.
    given_sizes: Option<Vec<u32>>,
    /// The first bucket of each bin, and the number of all.
    firsts: Vec<u32>,
    /// The limits of each bucket: within a bin their tokens rise.
    limits: Vec<BucketLimit>,
    /// The rows of a full batch of each bucket.
    sizes: Vec<u32>,
    /// The most rows of any batch.
    most_rows: u32,
    chapter: u64,
}

impl Buckets {
    /// The buckets of rows with these lengths, of which draws may be longer by a `stretch`.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if bounds do not rise, if a length is no number above 0, or if a row alone
    /// exceeds the budget.
    pub fn new(lengths: Lengths, budget: Budget, bins: Bins, stretch: Option<Stretch>) -> Result<Self> {
        check(&lengths.seconds)?;
        check_budget(&budget, &bins)?;
        let (bounds, given_sizes) = match bins {
            Bins::Number(n) => {
                (equal_totals(lengths.seconds.iter().map(|&seconds| seconds.into()).collect(), n), None)
            }
            Bins::Bounds(bounds) => (bounds, None),
            Bins::Sized(bins) => {
                let (bounds, sizes) = bins.into_iter().unzip();
                (bounds, Some(sizes))
            }
        };
        let mut made = Self {
            lengths,
            stretch,
            budget,
            bins: bounds,
            given_sizes,
            firsts: Vec::new(),
            limits: Vec::new(),
            sizes: Vec::new(),
            most_rows: 0,
            chapter: CHAPTER,
        };
        made.close_bins()?;
        made.divide_by_tokens()?;
        made.sizes = made.limits.iter().map(|limit| made.rows(*limit)).collect();
        if let Some(k) = made.sizes.iter().position(|&size| size == 0) {
            let played = if made.stretch.is_some() { ", as it is played," } else { "" };
            let message = format!(
                "a row of {} s{played} alone exceeds max_duration={}; raise it, or leave out longer rows with Whole(max_seconds=)",
                made.limits[k].seconds as f32, budget.max_duration
            );
            return Err(Error::new(ErrorKind::Config, message));
        }
        // What is left at the end of a chapter is cut by its own longest row.
        let shortest = BucketLimit { seconds: made.range()[0], tokens: 0 };
        made.most_rows = made.sizes.iter().copied().fold(made.rows(shortest), u32::max);
        Ok(made)
    }

    /// The shortest and the longest draw, in seconds.
    fn range(&self) -> [f64; 2] {
        let seconds = || self.lengths.seconds.iter().copied();
        let [least, most] = self.stretch.as_ref().map_or([1.0; 2], |stretch| stretch.range);
        [
            f64::from(seconds().fold(f32::INFINITY, f32::min)) * least,
            f64::from(seconds().fold(0.0, f32::max)) * most,
        ]
    }

    /// Has the last bin end with the longest draw.
    fn close_bins(&mut self) -> Result<()> {
        let config = |message| Err(Error::new(ErrorKind::Config, message));
        let (longest, bins) = (self.range()[1], &mut self.bins);
        let rises = |two: &&[f64]| two[0].partial_cmp(&two[1]) != Some(std::cmp::Ordering::Less);
        if let Some(two) = bins.windows(2).find(rises) {
            return config(format!("duration_bins must rise, but {} is followed by {}", two[0], two[1]));
        }
        // A row of a bound's length is of its bin, and lengths are float32.
        bins.iter_mut().for_each(|bound| *bound = f64::from(*bound as f32));
        if bins.last().is_none_or(|&last| last < longest) {
            if let Some(last) = bins.last().filter(|_| self.given_sizes.is_some()) {
                return config(format!(
                    "a row of {} s is longer than the last of duration_bins, {last}, which has no batch size; add one, or leave out \
                     longer rows",
                    longest as f32
                ));
            }
            bins.push(longest);
        }
        // Bounds beyond the longest row bound nothing.
        let last = bins.partition_point(|&bound| bound < longest);
        bins.truncate(last + 1);
        bins[last] = longest;
        Ok(())
    }

    /// Divides each bin into buckets of about equal total tokens.
    fn divide_by_tokens(&mut self) -> Result<()> {
        let Some((tokens, n)) = &self.lengths.tokens else {
            self.limits = self.bins.iter().map(|&seconds| BucketLimit { seconds, tokens: 0 }).collect();
            self.firsts = (0..=self.bins.len() as u32).collect();
            return Ok(());
        };
        let max_tokens = self.budget.max_tokens.unwrap_or(u64::MAX);
        if let Some(row) = tokens.iter().position(|&tokens| u64::from(tokens) > max_tokens) {
            let message = format!(
                "row {row} has {} tokens, which alone exceed max_tokens={max_tokens}; raise it, or leave out longer texts with \
                 max_tokens= of the target",
                tokens[row]
            );
            return Err(Error::new(ErrorKind::Config, message));
        }
        // Of the rows that may be drawn in each bin.
        // bounded: at most 4096 bins, or those that are given.
        let mut found: Vec<Vec<f64>> = vec![Vec::new(); self.bins.len()];
        let [least, most] = self.stretch.as_ref().map_or([1.0; 2], |stretch| stretch.range);
        for (&seconds, &tokens) in self.lengths.seconds.iter().zip(tokens.iter()) {
            let [first, last] = [least, most].map(|factor| self.bin((f64::from(seconds) * factor) as f32));
            for bin in &mut found[first..=last] {
                // bounded: a number for each row, and few more with a stretch.
                bin.push(f64::from(tokens));
            }
        }
        self.firsts.push(0);
        for (&seconds, found) in self.bins.iter().zip(found) {
            let longest = found.iter().copied().fold(0.0, f64::max);
            let mut bounds = equal_totals(found, *n);
            if bounds.last() != Some(&longest) {
                bounds.push(longest);
            }
            self.limits.extend(bounds.iter().map(|&tokens| BucketLimit { seconds, tokens: tokens as u32 }));
            self.firsts.push(self.limits.len() as u32);
        }
        Ok(())
    }

    /// The most rows of a batch with this limit.
    pub(crate) fn rows(&self, limit: BucketLimit) -> u32 {
        let mut rows = self.budget.rows(limit.seconds);
        if let Some(sizes) = &self.given_sizes {
            rows = rows.min(sizes[self.bin(limit.seconds as f32)]);
        }
        match self.budget.max_tokens {
            Some(max_tokens) if limit.tokens > 0 => {
                rows.min(u32::try_from(max_tokens / u64::from(limit.tokens)).unwrap_or(u32::MAX))
            }
            _ => rows,
        }
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
        self.lengths.seconds.len() as u64
    }

    pub fn length(&self, row: u64) -> Length {
        let tokens = self.lengths.tokens.as_ref().map_or(0, |(tokens, _)| tokens[row as usize]);
        Length { seconds: self.lengths.seconds[row as usize], tokens }
    }

    pub fn lengths(&self, rows: &[u64]) -> Vec<Length> {
        let seconds = &self.lengths.seconds;
        // Each table in a loop of its own, so that reads beyond the caches overlap.
        let mut lengths: Vec<_> =
            rows.iter().map(|&row| Length { seconds: seconds[row as usize], tokens: 0 }).collect();
        if let Some((tokens, _)) = &self.lengths.tokens {
            for (length, &row) in lengths.iter_mut().zip(rows) {
                length.tokens = tokens[row as usize];
            }
        }
        lengths
    }

    /// The longest seconds of each bin, rising.
    pub fn bins(&self) -> &[f64] {
        &self.bins
    }

    /// The longest rows of each bucket.
    pub fn limits(&self) -> &[BucketLimit] {
        &self.limits
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

    /// The most seconds of a batch, after padding.
    pub fn most_seconds(&self) -> f64 {
        if self.budget.max_duration.is_finite() {
            return self.budget.max_duration;
        }
        self.limits
            .iter()
            .zip(&self.sizes)
            .map(|(limit, &size)| limit.seconds * f64::from(size))
            .fold(0.0, f64::max)
    }

    /// The bin of a draw of so many seconds.
    pub(super) fn bin(&self, seconds: f32) -> usize {
        self.bins.partition_point(|&bound| bound < f64::from(seconds)).min(self.bins.len() - 1)
    }

    /// The bucket of a draw of this length.
    pub fn bucket(&self, length: Length) -> usize {
        let bin = self.bin(length.seconds);
        if self.lengths.tokens.is_none() {
            return bin;
        }
        let [first, end] = [self.firsts[bin], self.firsts[bin + 1]].map(|at| at as usize);
        let within = self.limits[first..end].partition_point(|limit| limit.tokens < length.tokens);
        (first + within).min(end - 1)
    }

    pub fn budget(&self) -> &Budget {
        &self.budget
    }
}

/// The bounds of up to `n` parts of about equal total, rising.
fn equal_totals(mut values: Vec<f64>, n: usize) -> Vec<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let total: f64 = values.iter().sum();
    let (mut sum, mut bounds) = (0.0, Vec::new());
    for value in values {
        sum += value;
        while bounds.len() < n && sum >= total * (bounds.len() + 1) as f64 / n as f64 {
            bounds.push(value);
        }
    }
    bounds.dedup();
    bounds
}

fn check_budget(budget: &Budget, bins: &Bins) -> Result<()> {
    let is_above_0 = |number: f64| number.is_finite() && number > 0.0;
    let is_sized = matches!(bins, Bins::Sized(_)) && budget.max_duration == f64::INFINITY;
    if !is_above_0(budget.max_duration) && !is_sized || !budget.quadratic_duration.is_none_or(is_above_0) {
        let message = format!(
            "max_duration is {} and quadratic_duration is {:?}; both must be above 0",
            budget.max_duration, budget.quadratic_duration
        );
        return Err(Error::new(ErrorKind::Config, message));
    }
    Ok(())
}

/// Checks that lengths can be summed.
fn check(lengths: &[f32]) -> Result<()> {
    let is_usable = |length: &f32| length.is_finite() && *length > 0.0;
    let Some(row) = lengths.iter().position(|length| !is_usable(length)) else { return Ok(()) };
    let message =
        format!("the length of row {row} is {} s, must be above 0; leave such rows out", lengths[row]);
    Err(Error::new(ErrorKind::Config, message))
}
