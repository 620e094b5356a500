//! [`SpanRule`]: clips that are placed by spans of their recording, such as events.
//!
//! Spans are ranges of samples at the target rate that lie within the recording. The span and the place are
//! drawn by hashes of their own. Spans are walked over, not collected, so nothing is allocated. Source: the
//! rule for events is that of BirdSet (Rauch et al. 2024): an event is chosen, widened, and a clip is at
//! random within.

use std::ops::Range;

use super::{Crop, Padding, crop::padded};
use crate::{
    Result,
    seed::{Purpose, below, hash},
};

/// How the spans of a recording place a clip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanRule {
    /// One of the spans, each as likely, is widened to at least this many samples around its middle, and to
    /// those of a clip; the clip is at random within.
    Event(u64),
    /// The clip is within one of the spans, at each possible start as likely. A shorter span has one, at
    /// which the clip has it in its middle.
    Inside,
    /// As `Inside`, but shorter spans count only if all are shorter. Then the clip has the longest in its
    /// middle, the first of equal ones.
    Region,
}

/// The span widened to at least `least` samples around its middle, shifted to lie within a recording of `n`.
fn widened(span: &Range<u64>, least: u64, n: u64) -> Range<u64> {
    let Some(more) = least.checked_sub(span.end - span.start) else { return span.clone() };
    let start = span.start.saturating_sub(more / 2).min(n.saturating_sub(least));
    start..start.saturating_add(least).min(n)
}

impl SpanRule {
    /// What messages call a span.
    pub fn noun(self) -> &'static str {
        if self == Self::Region { "region" } else { "span" }
    }

    /// The clip of `clip` samples of a recording of `n`; `None` if there are no spans. A recording shorter
    /// than the clip is in it as a whole.
    ///
    /// # Errors
    /// Those of the spans.
    pub fn place(
        self,
        spans: impl Iterator<Item = Result<Range<u64>>> + Clone,
        padding: Padding,
        (n, clip): (u64, usize),
        seed: u64,
    ) -> Result<Option<Crop>> {
        let wanted = clip as u64;
        // The number of possible starts within a span, for `Inside` and `Region`.
        let starts = |span: &Range<u64>| match (span.end - span.start).checked_sub(wanted) {
            Some(more) => more.saturating_add(1),
            None => u64::from(self != Self::Region),
        };
        let (mut count, mut total) = (0_u64, 0_u64);
        let mut longest = 0..0;
        for span in spans.clone() {
            let span = span?;
            total = total.saturating_add(starts(&span));
            if count == 0 || span.end - span.start > longest.end - longest.start {
                longest = span;
            }
            count += 1;
        }
        if count == 0 {
            return Ok(None);
        }
        if n < wanted {
            return Ok(Some(padded(padding, n, clip, seed)));
        }
        if total == 0 {
            let start = widened(&longest, wanted, n).start;
            return Ok(Some(Crop { start, len: clip, pad_front: 0 }));
        }
        let mut left = match self {
            Self::Event(_) => below(hash(seed, Purpose::Event, []), count),
            Self::Inside | Self::Region => below(seed, total),
        };
        for span in spans {
            let span = span?;
            let weight = if let Self::Event(_) = self { 1 } else { starts(&span) };
            if left >= weight {
                left -= weight;
                continue;
            }
            let least = if let Self::Event(least) = self { least.max(wanted) } else { wanted };
            let within = widened(&span, least.min(n), n);
            let start = match self {
                Self::Event(_) => within.start + below(seed, within.end - within.start - wanted + 1),
                Self::Inside | Self::Region => within.start + left,
            };
            return Ok(Some(Crop { start, len: clip, pad_front: 0 }));
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use proptest::prelude::*;

    fn start(rule: SpanRule, spans: &[Range<u64>], n: u64, clip: usize, seed: u64) -> Option<u64> {
        let each = spans.iter().cloned().map(Ok);
        rule.place(each, Padding::Behind, (n, clip), seed).unwrap().map(|crop| {
            assert_eq!((crop.len as u64, crop.pad_front), (n.min(clip as u64), 0));
            crop.start
        })
    }

    /// How often each start comes of `draws`.
    fn drawn(rule: SpanRule, spans: &[Range<u64>], n: u64, clip: usize, draws: u64) -> BTreeMap<u64, u64> {
        let mut found = BTreeMap::new();
        for draw in 0..draws {
            let start = start(rule, spans, n, clip, hash(1, Purpose::Crop, [draw])).unwrap();
            *found.entry(start).or_default() += 1;
        }
        found
    }

    #[test]
    fn events_are_widened_around_their_middle_and_within_the_recording() {
        assert_eq!(widened(&(50..60), 20, 100), 45..65);
        assert_eq!(widened(&(50..61), 20, 100), 46..66);
        assert_eq!(widened(&(2..6), 20, 100), 0..20);
        assert_eq!(widened(&(95..100), 20, 100), 80..100);
        assert_eq!(widened(&(10..90), 20, 100), 10..90);
        assert_eq!(widened(&(7..7), 10, 100), 2..12);
        assert_eq!(widened(&(100..100), 10, 100), 90..100);
        assert_eq!(widened(&(3..5), 200, 100), 0..100);
    }

    #[test]
    fn each_event_is_as_likely_and_each_place_within_it() {
        // A long event and a short one: 11 places in 30..50, 31 in 100..140.
        let found = drawn(SpanRule::Event(20), &[38..42, 100..140], 1000, 10, 40_000);
        let part = |range: Range<u64>| found.range(range).map(|(_, count)| count).sum::<u64>();
        assert!((19_500..20_500).contains(&part(30..41)), "{found:?}");
        assert_eq!(part(0..41) + part(100..131), 40_000);
        assert!(found.range(30..41).all(|(_, count)| (1600..2040).contains(count)), "{found:?}");
        assert!(found.range(100..131).all(|(_, count)| (520..780).contains(count)), "{found:?}");
        assert_eq!(found.len(), 11 + 31);
    }

    #[test]
    fn places_inside_spans_are_as_likely_whatever_their_span() {
        // 11 starts, 31 starts, and one with the short span in the middle.
        let found = drawn(SpanRule::Inside, &[30..50, 100..140, 200..204], 1000, 10, 43_000);
        let expected: Vec<u64> = (30..=40).chain(100..=130).chain([197]).collect();
        assert_eq!(found.keys().copied().collect::<Vec<_>>(), expected);
        assert!(found.values().all(|count| (850..1150).contains(count)), "{found:?}");
    }

    #[test]
    fn short_regions_count_only_if_all_are_short() {
        let found = drawn(SpanRule::Region, &[30..50, 60..69, 100..140, 200..204], 1000, 10, 42_000);
        let expected: Vec<u64> = (30..=40).chain(100..=130).collect();
        assert_eq!(found.keys().copied().collect::<Vec<_>>(), expected);
        // Chi-square of 41 degrees of freedom, which is below 74.7 in 999 of 1000 draws.
        let off = |count: &u64| (*count as f64 - 1000.0).powi(2) / 1000.0;
        assert!(found.values().map(off).sum::<f64>() < 74.7, "{found:?}");
        for seed in 0..50 {
            assert_eq!(start(SpanRule::Region, &[30..34, 50..58, 90..98], 1000, 10, seed), Some(49));
            assert_eq!(start(SpanRule::Region, &[0..4, 8..10], 1000, 10, seed), Some(0));
            assert_eq!(start(SpanRule::Region, &[500..501, 998..1000], 1000, 10, seed), Some(990));
        }
    }

    #[test]
    fn no_spans_give_no_clip() {
        assert_eq!(start(SpanRule::Region, &[], 100, 10, 7), None);
        assert_eq!(start(SpanRule::Inside, &[], 100, 10, 7), None);
        assert_eq!(start(SpanRule::Event(20), &[], 5, 10, 7), None);
    }

    proptest! {
        #[test]
        fn clips_are_within_the_recording_and_about_a_span(
            n in 1_u64..500,
            clip in 1_usize..100,
            widen in 0_u64..200,
            spans in prop::collection::vec((0_u64..500, 0_u64..500), 1..5),
            seed: u64,
        ) {
            let spans: Vec<_> = spans.iter().map(|&(a, b)| a.min(b).min(n)..a.max(b).min(n)).collect();
            for rule in [SpanRule::Event(widen), SpanRule::Inside, SpanRule::Region] {
                let start = start(rule, &spans, n, clip, seed).unwrap();
                prop_assert!(n < clip as u64 || start + clip as u64 <= n);
                let end = start + n.min(clip as u64);
                let touches = |span: &&Range<u64>| {
                    let least = if let SpanRule::Event(widen) = rule { widen.max(clip as u64) } else { clip as u64 };
                    let within = widened(span, least.min(n), n);
                    start >= within.start && end <= within.end
                };
                prop_assert!(n < clip as u64 || spans.iter().any(|span| touches(&span)), "{:?}", rule);
            }
        }
    }
}
