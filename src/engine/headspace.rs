//! Measures the speed of a loader with an empty loop: its batches are dropped as soon as they arrive.

use std::time::{Duration, Instant};

use super::{BatchOf, Engine, Step};
use crate::{
    Result,
    record::{Source, Task},
};

/// How long one wait lasts before `go_on` is called again.
const SLICE: Duration = Duration::from_millis(50);

/// What an engine did with an empty loop.
#[derive(Debug, Clone, PartialEq)]
pub struct Headspace {
    /// Seconds from the first batch on.
    pub elapsed_s: f64,
    /// Examples handed out after the first batch.
    pub examples: u64,
    /// Records that became examples in that time: more than were handed out while a shuffle window fills.
    pub decoded: u64,
    /// The verdict: what limits the engine itself.
    pub verdict: String,
}

impl<S: Source, K: Task> Engine<S, K> {
    /// Takes batches for `length` from the first one on, pass after pass, while `go_on` returns true; `rows`
    /// counts a batch's rows. Also returns the last batch; `None` if there was none, or `go_on` returned
    /// false before it.
    ///
    /// # Errors
    /// Those of [`Engine::next`].
    pub fn headspace(
        mut self,
        length: Duration,
        go_on: impl Fn() -> bool,
        rows: impl Fn(&BatchOf<K>) -> usize,
    ) -> Result<Option<(Headspace, BatchOf<K>)>> {
        let (mut first, mut last) = (None, None);
        let (mut examples, mut ends) = (0, 0);
        while go_on() {
            match self.next(SLICE)? {
                Step::Batch(_, batch) => {
                    ends = 0;
                    let &mut (begin, _) =
                        first.get_or_insert_with(|| (Instant::now(), self.stats().records_decoded));
                    if last.is_some() {
                        examples += rows(&batch) as u64;
                    }
                    last = Some(batch);
                    if begin.elapsed() >= length {
                        break;
                    }
                }
                Step::TimedOut => {
                    if first.is_some_and(|(begin, _)| begin.elapsed() >= length) {
                        break;
                    }
                }
                // Two passes without a batch: further ones have none either.
                Step::End if ends == 2 => break,
                Step::End => {
                    ends += 1;
                    self.rewind()?;
                }
            }
        }
        let (Some((begin, decoded)), Some(batch)) = (first, last) else { return Ok(None) };
        let headspace = Headspace {
            elapsed_s: begin.elapsed().as_secs_f64(),
            examples,
            decoded: self.stats().records_decoded - decoded,
            verdict: self.counters().verdict(),
        };
        Ok(Some((headspace, batch)))
    }
}
