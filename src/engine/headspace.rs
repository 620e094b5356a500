//! How fast a loader is if nobody holds it up: its batches, thrown away as fast as they come.

use std::time::{Duration, Instant};

use super::{BatchOf, Engine, Step};
use crate::{
    Result,
    record::{Source, Task},
};

/// How long a wait goes before `go_on` is asked again.
const SLICE: Duration = Duration::from_millis(50);

/// What an engine did with a consumer that does nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct Headspace {
    /// Seconds from the first batch on.
    pub elapsed_s: f64,
    /// Examples that were handed out after the first batch.
    pub examples: u64,
    /// Records that became examples in that time. More than were handed out as long as a shuffle window
    /// fills.
    pub decoded: u64,
    /// What limits the engine itself.
    pub verdict: String,
}

impl<S: Source, K: Task> Engine<S, K> {
    /// Takes batches for `length` from the first one on, pass after pass, as long as `go_on` says so; `rows`
    /// counts a batch's rows. Returns a batch as well; `None` if it was told not to go on before there was
    /// one, or there is none.
    ///
    /// # Errors
    /// What a call for a batch raises.
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
                // A pass without a batch has a next one without a batch.
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
