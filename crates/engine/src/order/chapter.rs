//! [`Chapter`]: the steps of some draws, by their lengths; see [`super::buckets`].

use std::sync::OnceLock;

use super::Buckets;

#[derive(Debug)]
pub struct Chapter {
    /// The draws of the chapter, counted from its first, in the order of the steps.
    draws: Vec<u32>,
    /// Where each step begins in `draws`, and the end.
    begins: Vec<u32>,
    /// The longest seconds that a batch of each step may be padded to.
    limits: Vec<f64>,
    /// Seconds of each draw.
    lengths: Vec<f32>,
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
        lengths: Vec<f32>,
        rules: ChapterRules,
        mix: impl FnOnce(u64) -> M,
    ) -> Self {
        let ChapterRules { n_streams, keeps_rest, keeps_order } = rules;
        // bounded: a chapter has at most 2^20 draws, or one for each stream.
        let mut draws: Vec<u32> = Vec::with_capacity(lengths.len());
        let (mut begins, mut limits) = (vec![0], Vec::new());
        let full = |k: usize| u64::from(buckets.sizes()[k]).saturating_mul(n_streams);
        // bounded: by the lengths, of which there are as many as rows.
        let mut held: Vec<Vec<u32>> = vec![Vec::new(); buckets.bounds().len()];
        for (draw, &length) in (0..).zip(&lengths) {
            let k = buckets.bucket(length);
            held[k].push(draw);
            if held[k].len() as u64 == full(k) {
                draws.append(&mut held[k]);
                begins.push(draws.len() as u32);
                limits.push(buckets.bounds()[k]);
            }
        }
        let n_full = limits.len();
        // Longest first, so that a step has the size for its first draw; equal ones keep their order.
        let mut left: Vec<u32> = held.concat();
        left.sort_by(|&a, &b| lengths[b as usize].total_cmp(&lengths[a as usize]));
        let mut left = &left[..];
        while let Some(&longest) = left.first() {
            let limit = f64::from(lengths[longest as usize]);
            let size = u64::from(buckets.budget().rows(limit)).saturating_mul(n_streams).min(left.len() as u64);
            if size < n_streams && !keeps_rest {
                break;
            }
            let (step, others) = left.split_at(size as usize);
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

    /// The longest seconds that a batch of a step is padded to at most.
    pub fn limit(&self, step: usize) -> f64 {
        self.limits[step]
    }

    /// A draw of this chapter that may replace `draw` in `step`, by 64 `random` bits: one of its bucket that
    /// is no longer than the step's batches; if `draw` is the only one, any that is no longer.
    pub fn substitute(&self, buckets: &Buckets, step: usize, draw: u32, random: u64) -> u32 {
        let by_length = self.by_length.get_or_init(|| {
            let mut draws: Vec<u32> = (0..self.lengths.len() as u32).collect();
            draws.sort_by(|&a, &b| self.lengths[a as usize].total_cmp(&self.lengths[b as usize]));
            draws
        });
        let length = |draw: u32| f64::from(self.lengths[draw as usize]);
        let end = by_length.partition_point(|&other| length(other) <= self.limits[step]);
        let shortest = match buckets.bucket(self.lengths[draw as usize]).checked_sub(1) {
            None => 0.0,
            Some(below) => buckets.bounds()[below],
        };
        let begin = by_length.partition_point(|&other| length(other) <= shortest).min(end);
        let begin = if end - begin > 1 { begin } else { 0 };
        let n = (end - begin) as u64;
        by_length[begin + crate::seed::below(random, n) as usize]
    }
}
