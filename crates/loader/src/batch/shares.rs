//! [`Shares`]: from which source a packer takes its next document, where several are mixed by weight.
//!
//! The rule: the source with the least `taken / weight` is next; of equal ones, that with the largest weight,
//! then the first. `taken` counts its documents or its tokens since the weights hold. So the sources advance
//! together: for any two of them, `taken / weight` differ by at most one document's count divided by its
//! source's weight, after any number of documents. Nothing is drawn at random. The choice is a pure function
//! of these counts, one number for each source, which are all that a state needs; the lengths of documents
//! are not needed before they are read.
//!
//! Source: own; the rule is that of stride scheduling (Waldspurger and Weihl 1995) with start times of 0.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use crate::contract::StreamShare;

/// When the sources of a finite pass end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MixEnd {
    /// With the first source that has no further document when one is due.
    FirstExhausted,
    /// When all are exhausted; the others go on by their weights.
    AllExhausted,
}

/// How the sources of documents are mixed.
#[derive(Debug, Clone, PartialEq)]
pub struct SourceMix {
    /// The names of the sources, for messages; none of one source.
    pub names: Arc<[String]>,
    /// The first row of each source, then the number of all rows.
    pub starts: Arc<[u64]>,
    /// The weights, one for each source, and the batch from which they hold: the first 0, then rising. Empty
    /// for one source.
    pub stages: Vec<(u64, Vec<f64>)>,
    /// Whether weights are shares of the tokens, else of the documents.
    pub in_tokens: bool,
    pub end: MixEnd,
}

impl SourceMix {
    pub fn one() -> Self {
        Self {
            names: Arc::new([]),
            starts: Arc::new([]),
            stages: Vec::new(),
            in_tokens: false,
            end: MixEnd::FirstExhausted,
        }
    }

    pub fn n_sources(&self) -> usize {
        self.starts.len().saturating_sub(1).max(1)
    }

    pub fn meters(&self) -> Arc<[SourceMeter]> {
        (0..self.n_sources()).map(|_| SourceMeter::default()).collect()
    }

    /// The source of a row, over all files as given.
    pub fn source_of(&self, row: u64) -> usize {
        match self.n_sources() {
            1 => 0,
            n => self.starts[1..n].partition_point(|&start| start <= row),
        }
    }

    /// The number of the stage whose weights hold for a batch.
    fn stage(&self, batch: u64) -> usize {
        self.stages.partition_point(|&(start, _)| start <= batch).saturating_sub(1)
    }
}

/// What one packer has taken of each source.
#[derive(Debug)]
pub(super) struct Shares {
    taken: Vec<u64>,
    is_over: Vec<bool>,
    stage: usize,
}

impl Shares {
    pub(super) fn new(mix: &SourceMix) -> Self {
        // bounded: a word for each source.
        Self { taken: vec![0; mix.n_sources()], is_over: vec![false; mix.n_sources()], stage: 0 }
    }

    /// Continues before `batch` with these shares.
    pub(super) fn begin(&mut self, mix: &SourceMix, batch: u64, shares: &[StreamShare]) {
        self.stage = mix.stage(batch);
        for (source, share) in shares.iter().enumerate() {
            (self.taken[source], self.is_over[source]) = (share.taken, share.is_over);
        }
    }

    /// Notes that `batch` is next: with other weights, counts begin anew.
    pub(super) fn enter(&mut self, mix: &SourceMix, batch: u64) {
        let stage = mix.stage(batch);
        if stage != self.stage {
            self.stage = stage;
            self.taken.fill(0);
        }
    }

    /// The source of the next document; `None` if all that have weight are exhausted.
    pub(super) fn next(&self, mix: &SourceMix) -> Option<usize> {
        let Some((_, weights)) = mix.stages.get(self.stage) else { return (!self.is_over[0]).then_some(0) };
        let open = (0..weights.len()).filter(|&source| weights[source] > 0.0 && !self.is_over[source]);
        // Division is rounded alike on all machines, and counts are below 2^53.
        let due = |&source: &usize| (self.taken[source] as f64 / weights[source], -weights[source]);
        open.min_by(|a, b| due(a).partial_cmp(&due(b)).unwrap_or(std::cmp::Ordering::Equal))
    }

    /// Counts a document of `n_tokens` tokens.
    pub(super) fn take(&mut self, mix: &SourceMix, source: usize, n_tokens: u64) {
        if !mix.stages.is_empty() {
            let n = if mix.in_tokens { n_tokens } else { 1 };
            self.taken[source] = self.taken[source].saturating_add(n);
        }
    }

    /// What a state has of a source. Of one source alone the reader tells again that it is exhausted.
    pub(super) fn share(&self, mix: &SourceMix, source: usize) -> StreamShare {
        StreamShare { taken: self.taken[source], is_over: self.is_over[source] && !mix.stages.is_empty() }
    }

    /// Notes that a source has no further document.
    pub(super) fn end(&mut self, source: usize) {
        self.is_over[source] = true;
    }

    /// Whether no document is taken any more, unless other weights begin to hold.
    pub(super) fn are_over(&self, mix: &SourceMix) -> bool {
        let is_first = mix.end == MixEnd::FirstExhausted && self.is_over.contains(&true);
        is_first || self.next(mix).is_none()
    }
}

/// Counts of one source, of all packers, in the batches made since the loader was.
#[derive(Debug, Default)]
pub struct SourceMeter {
    documents: AtomicU64,
    tokens: AtomicU64,
    dropped: AtomicU64,
}

/// What became of one source's documents.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SourceCounts {
    pub documents: u64,
    /// Tokens in rows.
    pub tokens: u64,
    /// Tokens that can be in no row.
    pub dropped: u64,
}

impl SourceMeter {
    pub fn read(&self) -> SourceCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        SourceCounts {
            documents: read(&self.documents),
            tokens: read(&self.tokens),
            dropped: read(&self.dropped),
        }
    }

    pub(super) fn add(&self, SourceCounts { documents, tokens, dropped }: SourceCounts) {
        self.documents.fetch_add(documents, Ordering::Relaxed);
        self.tokens.fetch_add(tokens, Ordering::Relaxed);
        self.dropped.fetch_add(dropped, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mix(stages: Vec<(u64, Vec<f64>)>, in_tokens: bool, end: MixEnd) -> SourceMix {
        let starts = (0..=stages[0].1.len() as u64).map(|n| 10 * n).collect();
        let names = stages[0].1.iter().enumerate().map(|(number, _)| format!("s{number}")).collect();
        SourceMix { names, starts, stages, in_tokens, end }
    }

    #[test]
    fn documents_alternate_by_weight() {
        let mix = mix(vec![(0, vec![0.6, 0.4]), (7, vec![0.0, 1.0])], false, MixEnd::FirstExhausted);
        let mut shares = Shares::new(&mix);
        let mut take = |n| {
            let next = |_| {
                let source = shares.next(&mix).unwrap();
                shares.take(&mix, source, 100);
                source
            };
            (0..n).map(next).collect::<Vec<_>>()
        };
        assert_eq!(take(10), [0, 1, 0, 1, 0, 0, 1, 0, 1, 0]);
        shares.enter(&mix, 6);
        assert_eq!(shares.taken, [6, 4]);
        shares.enter(&mix, 7);
        assert_eq!((&shares.taken[..], shares.next(&mix)), (&[0, 0][..], Some(1)));
        assert_eq!([0, 9, 10, 19].map(|row| mix.source_of(row)), [0, 0, 1, 1]);
    }

    #[test]
    fn the_end_of_a_source() {
        for (end, is_over) in [(MixEnd::FirstExhausted, true), (MixEnd::AllExhausted, false)] {
            let mix = mix(vec![(0, vec![1.0, 0.0, 2.0])], false, end);
            let mut shares = Shares::new(&mix);
            shares.end(2);
            assert_eq!((shares.are_over(&mix), shares.next(&mix)), (is_over, Some(0)));
            shares.end(0);
            assert_eq!((shares.are_over(&mix), shares.next(&mix)), (true, None));
        }
    }

    proptest! {
        #[test]
        fn shares_differ_by_at_most_a_document(
            weights in proptest::collection::vec(0.01f64..10.0, 1..7), in_tokens: bool,
            lengths in proptest::collection::vec(1u64..5000, 1..400),
        ) {
            let mix = mix(vec![(0, weights.clone())], in_tokens, MixEnd::FirstExhausted);
            let mut shares = Shares::new(&mix);
            let longest = if in_tokens { *lengths.iter().max().unwrap() } else { 1 };
            for (n, &length) in lengths.iter().enumerate() {
                let source = shares.next(&mix).unwrap();
                shares.take(&mix, source, length);
                let served = |source: usize| shares.taken[source] as f64 / weights[source];
                for a in 0..weights.len() {
                    for b in 0..weights.len() {
                        let bound = longest as f64 / weights[a] * (1.0 + 1e-12);
                        prop_assert!(served(a) - served(b) <= bound, "{a} and {b} after {n}");
                    }
                }
                // Begun again with the same counts, the choice is the same.
                let mut again = Shares::new(&mix);
                let before: Vec<_> = (0..weights.len()).map(|source| shares.share(&mix, source)).collect();
                again.begin(&mix, 3, &before);
                prop_assert_eq!(again.next(&mix), shares.next(&mix));
            }
        }
    }
}
