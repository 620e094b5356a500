//! [`Chapter`]: the steps of some draws, by their lengths; see [`super::buckets`].

use std::sync::OnceLock;

use super::{
    Buckets,
    buckets::{Length, Limit},
};

#[derive(Debug)]
pub struct Chapter {
    /// The draws of the chapter, counted from its first, in the order of the steps.
    draws: Vec<u32>,
    /// Where each step begins in `draws`, and the end.
    begins: Vec<u32>,
    /// The longest rows that a batch of each step may have.
    limits: Vec<Limit>,
    /// The length of each draw.
    lengths: Vec<Length>,
    /// All draws by length, for substitutes.
    by_length: OnceLock<Vec<u32>>,
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
        // Longest first, so that a step has the size for its first draw; equal ones keep their order.
        let mut left: Vec<u32> = held.concat();
        left.sort_by(|&a, &b| lengths[b as usize].seconds.total_cmp(&lengths[a as usize].seconds));
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
    pub fn limit(&self, step: usize) -> Limit {
        self.limits[step]
    }

    /// The length of a draw.
    pub fn length(&self, draw: u32) -> Length {
        self.lengths[draw as usize]
    }

    /// A draw of this chapter that may replace `draw` in `step`, by 64 `random` bits: one of its bucket that
    /// is no longer than the step's batches; if `draw` is the only one, any that is no longer.
    pub fn substitute(&self, buckets: &Buckets, step: usize, draw: u32, random: u64) -> u32 {
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
        let begin = if end - begin > 1 { begin } else { 0 };
        let candidates = &by_length[begin..end];
        let first = crate::seed::below(random, candidates.len() as u64) as usize;
        // From there on the next one whose text is not too long; `draw` itself is one.
        let (before, behind) = candidates.split_at(first);
        let fits = |&&other: &&u32| self.length(other).tokens <= limit.tokens;
        behind.iter().chain(before).find(fits).copied().unwrap_or(draw)
    }
}

/// How many of the draws `left`, longest first, become the next step at the end of a chapter, and their limit.
fn rest_step(buckets: &Buckets, lengths: &[Length], left: &[u32], n_streams: u64) -> (usize, Limit) {
    let length = |draw: u32| lengths[draw as usize];
    let mut limit = Limit { seconds: length(left[0]).seconds.into(), tokens: 0 };
    let mut size = u64::from(buckets.rows(limit)).saturating_mul(n_streams).min(left.len() as u64);
    loop {
        limit.tokens = left[..size as usize].iter().map(|&draw| length(draw).tokens).fold(0, u32::max);
        // Fewer draws have no longer text, so that this ends.
        let most = u64::from(buckets.rows(limit)).saturating_mul(n_streams);
        if size <= most {
            return (size as usize, limit);
        }
        size = most;
    }
}
