//! [`WindowRule`]: a recording as a row of windows, each exactly once.
//!
//! Windows are counted and placed on the target rate's grid from the length of the recording alone, before
//! anything is decoded. Windows are `window` samples long and begin every `step` samples; the rule for the
//! end says what becomes of samples that the last whole window leaves over. An example has `context` samples
//! of the recording on both sides of its window. Source: own.

use std::ops::RangeInclusive;

use super::Crop;

/// What becomes of the samples behind the last whole window, and of a recording shorter than a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowEnd {
    /// A further window has them, with zeros behind.
    Pad,
    /// The samples are left out, as is a recording shorter than a window.
    Drop,
    /// A further window ends with the recording, and so begins less than a step after the one before. A
    /// shorter recording is padded.
    Shift,
    /// A further window has them and is shorter: nothing is put behind them.
    Remainder,
}

/// How a recording is cut into windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowRule {
    /// Samples of a window; at least 1.
    pub window: usize,
    /// Samples from the start of a window to that of the next; at least 1.
    pub step: u64,
    /// What becomes of the samples behind the last whole window.
    pub end: WindowEnd,
    /// Samples on each side of a window that its example has besides; zeros where the recording has none.
    pub context: usize,
}

impl WindowRule {
    /// Number of windows that lie within `n` samples.
    fn whole(&self, n: u64) -> u64 {
        n.checked_sub(self.window as u64).map_or(0, |room| room / self.step + 1)
    }

    /// Number of windows of a recording of `n` samples.
    pub fn count(&self, n: u64) -> u64 {
        let whole = self.whole(n);
        // Where the next window would begin, and the samples that no window has.
        let next = whole.saturating_mul(self.step);
        let covered = whole.checked_sub(1).map_or(0, |last| last * self.step + self.window as u64);
        let left = n - covered.max(next.min(n));
        let has_more = match self.end {
            WindowEnd::Drop => false,
            WindowEnd::Pad | WindowEnd::Shift | WindowEnd::Remainder => left > 0,
        };
        whole + u64::from(has_more)
    }

    /// The example of window `number` of a recording of `n` samples.
    pub fn crop(&self, n: u64, number: u64) -> Crop {
        let (window, context) = (self.window as u64, self.context as u64);
        let mut at = number.saturating_mul(self.step).min(n);
        if self.end == WindowEnd::Shift {
            at = at.min(n.saturating_sub(window));
        }
        let (start, end) = (at.saturating_sub(context), n.min(at.saturating_add(window + context)));
        // Each at most the length of an example, so they fit.
        Crop { start, len: (end - start) as usize, pad_front: (context - (at - start)) as usize }
    }

    /// How many windows are worth reading together, in about `most` bytes: more of windows that overlap
    /// more, since the recording is decoded anew where a run ends. A second of the recording has `bytes`, and
    /// `rate` samples on the grid.
    pub fn together(&self, rate: u32, bytes: u64, most: u64) -> u64 {
        const RANGE: RangeInclusive<u64> = 64..=1024;
        let example = (self.window + 2 * self.context) as u64;
        let samples = most.saturating_mul(rate.into()) / bytes.max(1);
        let fit = 1 + samples.saturating_sub(example) / self.step;
        (RANGE.start() * example / self.step).clamp(*RANGE.start(), *RANGE.end()).min(fit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn starts(clip: usize, step: u64, end: WindowEnd, n: u64) -> Vec<(u64, usize)> {
        let rule = WindowRule { window: clip, step, end, context: 0 };
        (0..rule.count(n)).map(|window| rule.crop(n, window)).map(|crop| (crop.start, crop.len)).collect()
    }

    #[test]
    fn the_rules_for_the_end() {
        use WindowEnd::*;
        let of = |end, n| starts(10, 5, end, n);
        assert_eq!(of(Pad, 20), [(0, 10), (5, 10), (10, 10)]);
        assert_eq!(of(Pad, 22), [(0, 10), (5, 10), (10, 10), (15, 7)]);
        assert_eq!(of(Drop, 22), [(0, 10), (5, 10), (10, 10)]);
        assert_eq!(of(Shift, 22), [(0, 10), (5, 10), (10, 10), (12, 10)]);
        assert_eq!(of(Remainder, 22), of(Pad, 22));
        // Shorter than a window.
        assert_eq!(of(Pad, 3), [(0, 3)]);
        assert_eq!(of(Shift, 3), [(0, 3)]);
        assert_eq!(of(Drop, 3), []);
        assert_eq!(of(Remainder, 3), [(0, 3)]);
        assert!([Pad, Drop, Shift, Remainder].into_iter().all(|end| of(end, 0).is_empty()));
    }

    #[test]
    fn steps_above_the_window_leave_gaps() {
        use WindowEnd::*;
        let of = |end, n| starts(5, 20, end, n);
        // What lies in a gap belongs to no window.
        for end in [Pad, Drop, Shift, Remainder] {
            assert_eq!(of(end, 30), [(0, 5), (20, 5)], "{end:?}");
            assert_eq!(of(end, 18), [(0, 5)], "{end:?}");
        }
        assert_eq!(of(Pad, 22), [(0, 5), (20, 2)]);
        assert_eq!(of(Shift, 22), [(0, 5), (17, 5)]);
        assert_eq!(of(Drop, 22), [(0, 5)]);
    }

    #[test]
    fn examples_have_context() {
        let rule = WindowRule { window: 10, step: 10, end: WindowEnd::Pad, context: 4 };
        let of = |n, number| {
            let Crop { start, len, pad_front } = rule.crop(n, number);
            (start, len, pad_front)
        };
        assert_eq!([of(25, 0), of(25, 1), of(25, 2)], [(0, 14, 4), (6, 18, 0), (16, 9, 0)]);
        assert_eq!(rule.count(25), 3);
        assert_eq!((rule.count(3), of(3, 0)), (1, (0, 3, 4)));
        let rule = WindowRule { context: 30, ..rule };
        assert_eq!(rule.crop(25, 1), Crop { start: 0, len: 25, pad_front: 20 });
        // A second is a thousand samples, of 100 bytes.
        let together = |rule: WindowRule, most| rule.together(1000, 100, most);
        assert_eq!((together(rule, 1 << 20), together(WindowRule { step: 1, ..rule }, 1 << 20)), (448, 1024));
        assert_eq!([0, 7, 8, 9].map(|most| together(rule, most)), [1, 1, 2, 3]);
    }

    proptest! {
        /// Beside a walk over the recording, sample by sample.
        #[test]
        fn every_sample_is_where_the_rule_says(clip in 1_usize..20, step in 1_u64..30, n in 0_u64..200) {
            for end in [WindowEnd::Pad, WindowEnd::Drop, WindowEnd::Shift, WindowEnd::Remainder] {
                let found = starts(clip, step, end, n);
                let mut want = Vec::new();
                let (mut at, mut covered) = (0, 0);
                while at < n && covered < n {
                    let len = (n - at).min(clip as u64);
                    let is_whole = len == clip as u64;
                    match end {
                        _ if is_whole => want.push((at, clip)),
                        WindowEnd::Pad | WindowEnd::Remainder => want.push((at, len as usize)),
                        WindowEnd::Shift => want.push((n.saturating_sub(clip as u64), n.min(clip as u64) as usize)),
                        WindowEnd::Drop => {}
                    }
                    covered = at + len;
                    if !is_whole {
                        break;
                    }
                    at += step;
                }
                prop_assert_eq!(&found, &want, "{:?}", end);
                // Each window once.
                prop_assert!(found.windows(2).all(|two| two[0].0 < two[1].0));
            }
        }

        #[test]
        fn long_recordings_do_not_overflow(clip in 1_usize..1 << 40, step in 1_u64..1 << 62, n: u64) {
            for end in [WindowEnd::Pad, WindowEnd::Drop, WindowEnd::Shift, WindowEnd::Remainder] {
                let rule = WindowRule { window: clip, step, end, context: 0 };
                let count = rule.count(n);
                if count > 0 {
                    let last = rule.crop(n, count - 1);
                    prop_assert!(last.start < n && last.len > 0);
                }
            }
        }
    }
}
