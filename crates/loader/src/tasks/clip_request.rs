//! [`ClipRequest`] and [`DrawRequest`]: what a reader must read of a record. Source: own.

use std::ops::Range;

use super::{
    clip_decoder::joined,
    clip_planner::{ClipPlanner, ClipStart, Section},
};
use crate::{
    fields::Row,
    order::Assignment,
    source::{ReadRequest, RowExtent},
};

/// What is taken of a recording.
#[derive(Debug, Clone, PartialEq)]
pub enum Take {
    Clip(ClipStart),
    /// The clips at these positions, which are of one recording; with random bits.
    Clips(Range<u64>, u64),
    Section(Section),
}

/// What a reader must read of a record; a task makes it.
#[derive(Debug)]
pub struct ClipRequest<'a> {
    planner: &'a ClipPlanner,
    take: Take,
}

impl<'a> ClipRequest<'a> {
    /// Of the clips at these places.
    pub(super) fn of(planner: &'a ClipPlanner, take: Take) -> Self {
        Self { planner, take }
    }

    /// The samples that a clip may need, whichever of its places is taken.
    fn hull(&self, of: RowExtent, values: &Row, begin: ClipStart) -> Option<Range<u64>> {
        let (planner, mut hull) = (self.planner, None);
        for begin in planner.each(begin, true) {
            hull = Some(joined(hull, planner.clip_read(of, values, begin).ok()?.span));
        }
        hull
    }
}

impl ReadRequest for ClipRequest<'_> {
    fn takes_spans(&self) -> bool {
        true
    }

    /// `None` for a span outside of the recording; decoding the record then raises the error.
    fn span(&self, of: RowExtent, values: &Row) -> Option<Range<u64>> {
        let span = |begin| self.hull(of, values, begin);
        match self.take {
            Take::Clip(begin) => span(begin),
            Take::Clips(Range { start, end }, seed) => {
                let first = span(ClipStart::rule(start, seed))?;
                if end <= start + 1 {
                    return Some(first);
                }
                Some(joined(Some(first), span(ClipStart::rule(end - 1, seed))?))
            }
            Take::Section(section) => {
                let (samples, rate) = section.samples(of.sample_rate, of.n_samples).ok()?;
                let resampler = self.planner.resampler(of.sample_rate, rate).ok()?;
                Some(resampler.input_span(samples, of.n_samples))
            }
        }
    }
}

/// What a reader must read for a draw of the order.
pub(super) struct DrawRequest<'a> {
    planner: &'a ClipPlanner,
    at: u64,
    seed: u64,
    repeats: bool,
}

impl<'a> DrawRequest<'a> {
    pub(super) fn new(planner: &'a ClipPlanner, assigned: &Assignment) -> Self {
        let &Assignment { row: at, seed, repeats, .. } = assigned;
        Self { planner, at, seed, repeats }
    }

    /// Of this position and the following `n - 1`.
    fn clips(&self, n: u64) -> ClipRequest<'a> {
        ClipRequest::of(self.planner, Take::Clips(self.at..self.at + n, self.seed))
    }
}

impl ReadRequest for DrawRequest<'_> {
    fn takes_spans(&self) -> bool {
        true
    }

    fn repeats(&self) -> bool {
        self.repeats
    }

    fn span(&self, of: RowExtent, values: &Row) -> Option<Range<u64>> {
        self.span_of(1, of, values)
    }

    fn span_of(&self, n: u64, of: RowExtent, values: &Row) -> Option<Range<u64>> {
        self.clips(n).span(of, values)
    }
}
