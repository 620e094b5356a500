//! Measures the speed of a loader with an empty loop: its batches are dropped as soon as they arrive.

use std::time::{Duration, Instant};

use super::{BatchOf, Engine, Step};
use crate::{
    Result,
    contract::{Source, TaskFor},
};

/// How long one wait lasts before `go_on` is called again.
const SLICE: Duration = Duration::from_millis(50);

/// A window that so many times its size was decoded for is full, whatever its buffer holds at the moment.
const FILLS: u64 = 4;

/// What an engine did with an empty loop.
#[derive(Debug, Clone, PartialEq)]
pub struct Headspace {
    /// Seconds measured: from the moment when the shuffle window was full, or if it was not, from the first
    /// batch on.
    pub elapsed_s: f64,
    /// Examples handed out in that time.
    pub examples: u64,
    /// Records that became examples in that time: more than were handed out while a shuffle window fills.
    pub decoded: u64,
    /// Seconds from the first batch until the shuffle window was full.
    pub fill_s: f64,
    /// Whether it was full in time; if not, the measured time is that of the fill.
    pub is_filled: bool,
    /// The verdict: what limits the engine itself.
    pub verdict: String,
}

#[derive(Debug, Clone, Copy)]
struct MeasurementStart {
    at: Instant,
    decoded: u64,
}

impl<S: Source, K: TaskFor<S>> Engine<S, K> {
    /// Takes batches, pass after pass, while `go_on` returns true: until the shuffle window is full, for
    /// `length` from the first batch on at most, and then for `length`. `rows` counts a batch's rows. A pass
    /// that ends counts as a fill, because its window is empty again, and all that it decoded was handed
    /// out. Also returns the last batch; `None` if there was none, or `go_on` returned false before it.
    ///
    /// # Errors
    /// Those of [`Engine::next`].
    pub fn headspace(
        mut self,
        length: Duration,
        go_on: impl Fn() -> bool,
        rows: impl Fn(&BatchOf<K>) -> usize,
    ) -> Result<Option<(Headspace, BatchOf<K>)>> {
        let (mut first, mut full, mut last) = (None, None, None);
        let (mut examples, mut ends) = (0, 0);
        while go_on() {
            let step = self.next(SLICE)?;
            let now = MeasurementStart { at: Instant::now(), decoded: self.stats().records_decoded };
            match step {
                Step::Batch(_, batch) => {
                    ends = 0;
                    if last.is_some() {
                        examples += rows(&batch) as u64;
                    }
                    last = Some(batch);
                    let begin = *first.get_or_insert(now);
                    if full.is_none() && self.is_filled(now.decoded - begin.decoded) {
                        (full, examples) = (Some(now), 0);
                    }
                }
                Step::TimedOut => {}
                // Two passes without a batch: further ones have none either.
                Step::End if ends == 2 => break,
                Step::End => {
                    ends += 1;
                    if full.is_none() && first.is_some() {
                        (full, examples) = (Some(now), 0);
                    }
                    self.rewind()?;
                }
            }
            if full.or(first).is_some_and(|begin| now.at.duration_since(begin.at) >= length) {
                break;
            }
        }
        let (Some(first), Some(batch)) = (first, last) else { return Ok(None) };
        let begin = full.unwrap_or(first);
        let mut verdict = self.counters().verdict(self.source.storage_labels());
        if full.is_none() {
            verdict += &self.filling(begin.at.elapsed());
        }
        let headspace = Headspace {
            elapsed_s: begin.at.elapsed().as_secs_f64(),
            examples,
            decoded: self.stats().records_decoded - begin.decoded,
            fill_s: begin.at.duration_since(first.at).as_secs_f64(),
            is_filled: full.is_some(),
            verdict,
        };
        Ok(Some((headspace, batch)))
    }

    /// Whether the shuffle windows are full, `decoded` records after the first batch.
    ///
    /// A loop that waits for each ticket draws from a window in which the newest tickets are missing: about
    /// the root of its size, and those that the workers have.
    fn is_filled(&self, decoded: u64) -> bool {
        self.control.fill().is_none_or(|(held, size)| {
            let missing = 2 * size.isqrt() + self.plan.n_workers as u64;
            held as u64 + missing >= size || decoded >= FILLS * size
        })
    }

    /// The words for a window that was not full after `elapsed`.
    fn filling(&self, elapsed: Duration) -> String {
        let (held, size) = self.control.fill().unwrap_or_default();
        let share = held as f64 / size.max(1) as f64;
        let longer = match share > 0.0 && !elapsed.is_zero() {
            true => format!("; call headspace({:.0})", (1.2 * elapsed.as_secs_f64() / share).ceil()),
            false => "; measure for longer".into(),
        };
        format!(
            "; the shuffle window was still filling ({held} of {size} examples), so examples_per_s is too low and decoded_per_s is \
             what the loader makes{longer}"
        )
    }
}
