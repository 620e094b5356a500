//! [`Chapter`]: the steps of some draws, by their lengths; see [`super::buckets`].

use std::{cmp::Reverse, sync::OnceLock};

use super::{
    Buckets,
    buckets::{BucketLimit, Length},
};

#[derive(Debug)]
pub struct Chapter {
    /// The draws of the chapter, counted from its first, in the order of the steps.
    draws: Vec<u32>,
    /// Where each step begins in `draws`, and the end.
    begins: Vec<u32>,
    /// The longest rows that a batch of each step may have.
    limits: Vec<BucketLimit>,
    lengths: Vec<Length>,
    /// All draws by length, for substitutes.
    by_length: OnceLock<Vec<u32>>,
}

/// What the batches of an epoch hold together, on all ranks.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CutTotals {
    pub buckets: Vec<BucketTotals>,
    /// Seconds of all draws when batches of as many rows are filled in the order of the draws, and each is
    /// padded to its longest.
    pub padded_at_random: f64,
    /// Whether this is about a whole epoch, and not about its first chapters.
    pub is_whole: bool,
}

/// What the batches of a bucket hold together.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct BucketTotals {
    pub batches: u64,
    /// Seconds of their rows.
    pub seconds: f64,
    /// The same with each batch padded to its longest.
    pub padded: f64,
}

/// How the steps of a chapter are chosen and ordered, besides lengths and budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChapterRules {
    pub n_streams: u64,
    /// Whether fewer draws than streams become a step too, in which some streams have no row.
    pub keeps_rest: bool,
    /// Whether full steps stay in the order in which their buckets filled up, which is near that of storage.
    pub keeps_order: bool,
}

impl Chapter {
    /// Plans the steps of draws with these `lengths`; `mix(n)` gives the permutation of `n` steps.
    pub fn new<M: Fn(u64) -> u64>(
        buckets: &Buckets,
        lengths: Vec<Length>,
        rules: ChapterRules,
        mix: impl FnOnce(u64) -> M,
    ) -> Self {
        let ChapterRules { n_streams, keeps_rest, keeps_order } = rules;
        // bounded: a chapter has at most 2^20 draws, or one for each stream.
        let mut draws: Vec<u32> = Vec::with_capacity(lengths.len());
        let (mut begins, mut limits) = (vec![0], Vec::new());
        let full = |k: usize| u64::from(buckets.sizes()[k]).saturating_mul(n_streams);
        // bounded: by the lengths, of which there are as many as rows.
        let mut held: Vec<Vec<u32>> = vec![Vec::new(); buckets.limits().len()];
        for (draw, &length) in (0..).zip(&lengths) {
            let k = buckets.bucket(length);
            held[k].push(draw);
            if held[k].len() as u64 == full(k) {
                draws.append(&mut held[k]);
                begins.push(draws.len() as u32);
                limits.push(buckets.limits()[k]);
            }
        }
        let n_full = limits.len();
        // Longest first. Those of about the same length keep their order, so that the batches of a small
        // table have other rows in each epoch.
        let mut left: Vec<u32> = held.concat();
        left.sort_unstable_by_key(|&draw| (Reverse(length_class(lengths[draw as usize].seconds)), draw));
        let mut left = &left[..];
        while !left.is_empty() {
            let (size, limit) = rest_step(buckets, &lengths, left, n_streams);
            if (size as u64) < n_streams && !keeps_rest {
                break;
            }
            let (step, others) = left.split_at(size);
            draws.extend_from_slice(step);
            begins.push(draws.len() as u32);
            limits.push(limit);
            left = others;
        }
        let chapter = Self { draws, begins, limits, lengths, by_length: OnceLock::new() };
        // The last steps go from long to short, and must not come after all others.
        let kept = if keeps_order { n_full } else { 0 };
        let mixed = mix((chapter.n_steps() - kept) as u64);
        chapter.permuted(|step| match step.checked_sub(kept) {
            None => step,
            Some(of_mixed) => kept + mixed(of_mixed as u64) as usize,
        })
    }

    /// The same steps, with `of(i)` as the `i`-th.
    fn permuted(self, of: impl Fn(usize) -> usize) -> Self {
        // bounded: as in `new`.
        let mut draws = Vec::with_capacity(self.draws.len());
        let (mut begins, mut limits) = (vec![0], Vec::new());
        for step in (0..self.n_steps()).map(of) {
            draws.extend_from_slice(self.step(step));
            begins.push(draws.len() as u32);
            limits.push(self.limits[step]);
        }
        Self { draws, begins, limits, ..self }
    }

    pub fn n_steps(&self) -> usize {
        self.limits.len()
    }

    /// The draws of a step: those of stream `v` are every V-th from the `v`-th on.
    pub fn step(&self, step: usize) -> &[u32] {
        &self.draws[self.begins[step] as usize..self.begins[step + 1] as usize]
    }

    /// The rows of a stream's batch in a step.
    pub fn rows(&self, step: usize, stream: u64, n_streams: u64) -> u32 {
        let len = u64::from(self.begins[step + 1] - self.begins[step]);
        len.saturating_sub(stream).div_ceil(n_streams) as u32
    }

    /// The longest rows that a batch of a step may have.
    pub fn limit(&self, step: usize) -> BucketLimit {
        self.limits[step]
    }

    /// Adds what the batches of this chapter hold.
    pub(super) fn add_to(&self, totals: &mut CutTotals, buckets: &Buckets, n_streams: u64) {
        let mut n_batches = 0;
        for step in 0..self.n_steps() {
            for stream in 0..n_streams as usize {
                let rows = self.step(step).iter().skip(stream).step_by(n_streams as usize);
                let (n, sum, longest) = padded(rows.map(|&draw| self.length(draw)));
                if n > 0 {
                    let total = &mut totals.buckets[buckets.bucket(longest)];
                    total.batches += 1;
                    n_batches += 1;
                    total.seconds += sum;
                    total.padded += n as f64 * f64::from(longest.seconds);
                }
            }
        }
        let mean = (self.draws.len() as u64).checked_div(n_batches).unwrap_or(0).max(1);
        for batch in self.lengths.chunks(mean as usize) {
            let (n, _, longest) = padded(batch.iter().copied());
            totals.padded_at_random += n as f64 * f64::from(longest.seconds);
        }
    }

    pub fn length(&self, draw: u32) -> Length {
        self.lengths[draw as usize]
    }

    /// A draw of this chapter that may replace `draw` in `step`, by 64 `random` bits: one of its bucket that
    /// is no longer than the step's batches; if `draw` is the only one, or if it is to be of any bucket, any
    /// that is no longer.
    pub fn substitute(
        &self,
        buckets: &Buckets,
        step: usize,
        (draw, of_any): (u32, bool),
        random: u64,
    ) -> u32 {
        let by_length = self.by_length.get_or_init(|| {
            let mut draws: Vec<u32> = (0..self.lengths.len() as u32).collect();
            draws.sort_by(|&a, &b| self.length(a).seconds.total_cmp(&self.length(b).seconds));
            draws
        });
        let (limit, seconds) = (self.limits[step], |draw: u32| f64::from(self.length(draw).seconds));
        let end = by_length.partition_point(|&other| seconds(other) <= limit.seconds);
        let shortest = match buckets.bin(self.length(draw).seconds) {
            0 => 0.0,
            bin => buckets.bins()[bin - 1],
        };
        let begin = by_length.partition_point(|&other| seconds(other) <= shortest).min(end);
        let begin = if end - begin > 1 && !of_any { begin } else { 0 };
        let candidates = &by_length[begin..end];
        let first = crate::seed::below(random, candidates.len() as u64) as usize;
        // From there on the next one whose text is not too long; `draw` itself is one.
        let (before, behind) = candidates.split_at(first);
        let fits = |&&other: &&u32| self.length(other).tokens <= limit.tokens;
        behind.iter().chain(before).find(fits).copied().unwrap_or(draw)
    }
}

/// The class of draws of about the same length: within 3 % of each other. Longer ones have a higher one.
fn length_class(seconds: f32) -> u32 {
    // The exponent and five bits of the mantissa.
    seconds.to_bits() >> 18
}

/// The number of rows, their seconds, and the length that they are padded to.
fn padded(lengths: impl Iterator<Item = Length>) -> (usize, f64, Length) {
    let none = Length { seconds: 0.0, tokens: 0 };
    lengths.fold((0, 0.0, none), |(n, sum, longest), Length { seconds, tokens }| {
        let longest = Length { seconds: longest.seconds.max(seconds), tokens: longest.tokens.max(tokens) };
        (n + 1, sum + f64::from(seconds), longest)
    })
}

/// How many of the draws `left`, longest first, become the next step at the end of a chapter, and their
/// limit.
fn rest_step(buckets: &Buckets, lengths: &[Length], left: &[u32], n_streams: u64) -> (usize, BucketLimit) {
    let length = |draw: u32| lengths[draw as usize];
    let first = BucketLimit { seconds: length(left[0]).seconds.into(), tokens: 0 };
    let mut size = u64::from(buckets.rows(first)).saturating_mul(n_streams).min(left.len() as u64);
    loop {
        let (.., longest) = padded(left[..size as usize].iter().map(|&draw| length(draw)));
        let limit = BucketLimit { seconds: longest.seconds.into(), tokens: longest.tokens };
        // Fewer draws are no longer, so that this ends.
        let most = u64::from(buckets.rows(limit)).saturating_mul(n_streams);
        if size <= most {
            return (size as usize, limit);
        }
        size = most;
    }
}
