//! [`WindowRule`]: a recording as a row of windows, each exactly once.
//!
//! Windows are counted and placed on the target rate's grid from the length of the recording alone, before
//! anything is decoded. Windows are `clip` samples long and begin every `step` samples; the rule for the end
//! says what becomes of samples that the last whole window leaves over. Source: own.

use super::Crop;

/// What becomes of the samples behind the last whole window, and of a recording shorter than a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowEnd {
    /// A further window has them, with zeros behind.
    Pad,
    /// They are left out.
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
    pub clip: usize,
    /// Samples from the start of a window to that of the next; at least 1.
    pub step: u64,
    /// The rule for the end.
    pub end: WindowEnd,
}

impl WindowRule {
    /// Number of windows that lie within `n` samples.
    fn whole(&self, n: u64) -> u64 {
        n.checked_sub(self.clip as u64).map_or(0, |room| room / self.step + 1)
    }

    /// Number of windows of a recording of `n` samples.
    pub fn count(&self, n: u64) -> u64 {
        let whole = self.whole(n);
        // Where the next window would begin, and the samples that no window has.
        let next = whole.saturating_mul(self.step);
        let covered = whole.checked_sub(1).map_or(0, |last| last * self.step + self.clip as u64);
        let left = n - covered.max(next.min(n));
        let has_more = match self.end {
            WindowEnd::Drop => false,
            WindowEnd::Pad | WindowEnd::Shift | WindowEnd::Remainder => left > 0,
        };
        whole + u64::from(has_more)
    }

    /// Window number `window` of a recording of `n` samples.
    pub fn crop(&self, n: u64, window: u64) -> Crop {
        let clip = self.clip as u64;
        let mut start = window.saturating_mul(self.step).min(n);
        if self.end == WindowEnd::Shift {
            start = start.min(n.saturating_sub(clip));
        }
        // At most `clip`, so it fits.
        Crop { start, len: (n - start).min(clip) as usize, pad_front: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn starts(clip: usize, step: u64, end: WindowEnd, n: u64) -> Vec<(u64, usize)> {
        let rule = WindowRule { clip, step, end };
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
                let rule = WindowRule { clip, step, end };
                let count = rule.count(n);
                if count > 0 {
                    let last = rule.crop(n, count - 1);
                    prop_assert!(last.start < n && last.len > 0);
                }
            }
        }
    }
}
