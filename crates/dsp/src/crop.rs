//! Crops: which part of a recording becomes the clip, by integer arithmetic on the target rate's grid.
//!
//! The crop is chosen before the recording is decoded, from its true length and a hash of (seed, position).
//! So only the chosen span needs decoding. A start is drawn uniformly by multiply-shift, without a generator
//! whose stream could change between releases. Source: own; multiply-shift as in Lemire, "Fast random integer
//! generation in an interval" (2019), without rejection: with a 64-bit hash the bias is below 2^-32 for
//! recordings of under 2^32 samples.

use std::ops::{Range, RangeInclusive};

use super::Padding;

/// Number of samples at `target_hz` of a recording with `source_samples` at `source_hz`: exactly `ceil(n *
/// target / source)`.
///
/// A `source_hz` of 0 gives 0; a result beyond `u64` saturates.
///
/// ```
/// # use forebay_dsp::target_len;
/// assert_eq!(target_len(44_101, 44_100, 32_000), 32_001);
/// ```
pub fn target_len(source_samples: u64, source_hz: u32, target_hz: u32) -> u64 {
    if source_hz == 0 {
        return 0;
    }
    let scaled = u128::from(source_samples) * u128::from(target_hz);
    u64::try_from(scaled.div_ceil(u128::from(source_hz))).unwrap_or(u64::MAX)
}

/// How the start of the clip is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CropMode {
    /// Uniformly at random, by hash: for training.
    Random,
    /// The middle of the recording: for evaluation.
    Center,
    /// The clip begins with the recording.
    Start,
    /// The clip ends with the recording.
    End,
}

impl CropMode {
    /// The usual padding of a short recording.
    pub fn padding(self) -> Padding {
        match self {
            Self::Random | Self::Start => Padding::Behind,
            Self::Center => Padding::Both,
            Self::End => Padding::Front,
        }
    }
}

/// A span of the recording and its place in the clip, in samples at the target rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Crop {
    /// First sample taken from the recording.
    pub start: u64,
    /// Samples taken from the recording; less than the clip's length if the recording is short.
    pub len: usize,
    /// Samples of padding before them. After them come `clip - pad_front - len` more.
    pub pad_front: usize,
}

impl Crop {
    /// Where in the clip the samples of the recording are.
    pub fn taken(&self) -> Range<usize> {
        self.pad_front..self.pad_front + self.len
    }

    /// The samples taken from the recording, at the target rate.
    pub fn samples(&self) -> Range<u64> {
        self.start..self.start + self.len as u64
    }
}

/// Chooses a clip of `clip` samples from a recording of `n`, both at the target rate; `padding` places a
/// shorter recording in its clip.
///
/// [`CropMode::Random`] starts uniformly in `0..=n - clip` by `hash`, which must already be mixed: its high
/// bits decide. [`CropMode::Center`] starts at `floor((n - clip) / 2)`. Only random places and random
/// padding use `hash`.
pub fn crop(mode: CropMode, padding: Padding, n: u64, clip: usize, hash: u64) -> Crop {
    let Some(room) = n.checked_sub(clip as u64) else { return padded(padding, n, clip, hash) };
    let start = match mode {
        CropMode::Random => ((u128::from(hash) * (u128::from(room) + 1)) >> 64) as u64,
        CropMode::Center => room / 2,
        CropMode::Start => 0,
        CropMode::End => room,
    };
    Crop { start, len: clip, pad_front: 0 }
}

/// The clip of all of a recording of `n` samples, of at most `clip`.
pub(super) fn padded(padding: Padding, n: u64, clip: usize, hash: u64) -> Crop {
    let len = n as usize; // at most `clip`, so it fits
    Crop { start: 0, len, pad_front: padding.front(clip - len, hash) }
}

/// The samples at which a clip of `clip` samples may begin in a recording of `n`, both at the target rate:
/// any sample; and below 0, so that zeros come first, if all of a short recording is in the clip.
pub fn starts(n: u64, clip: usize) -> RangeInclusive<i64> {
    let [n, clip] = [n, clip as u64].map(|length| i64::try_from(length).unwrap_or(i64::MAX));
    (n - clip).min(0)..=n - 1
}

/// The clip that begins at sample `start`; `None` if that is not one of [`starts`].
pub fn crop_at(start: i64, n: u64, clip: usize) -> Option<Crop> {
    if !starts(n, clip).contains(&start) {
        return None;
    }
    let pad_front = start.min(0).unsigned_abs() as usize; // at most `clip`
    let start = start.max(0) as u64;
    let len = (n - start).min((clip - pad_front) as u64) as usize;
    Some(Crop { start, len, pad_front })
}

#[cfg(test)]
mod tests {
    use super::{crop as crop_padded, *};
    use proptest::prelude::*;

    fn crop(mode: CropMode, n: u64, clip: usize, hash: u64) -> Crop {
        crop_padded(mode, mode.padding(), n, clip, hash)
    }

    #[test]
    fn length_rounds_up_and_never_overflows() {
        assert_eq!(target_len(0, 44_100, 32_000), 0);
        assert_eq!(target_len(441, 44_100, 32_000), 320);
        assert_eq!(target_len(442, 44_100, 32_000), 321);
        assert_eq!(target_len(u64::MAX, 1, 768_000), u64::MAX);
        assert_eq!(target_len(u64::MAX, 7, 7), u64::MAX);
        assert_eq!(target_len(5, 0, 32_000), 0);
    }

    #[test]
    fn short_recordings_are_padded() {
        assert_eq!(crop(CropMode::Random, 3, 10, u64::MAX), Crop { start: 0, len: 3, pad_front: 0 });
        assert_eq!(crop(CropMode::Center, 3, 10, u64::MAX), Crop { start: 0, len: 3, pad_front: 3 });
        assert_eq!(crop(CropMode::Center, 0, 10, 0), Crop { start: 0, len: 0, pad_front: 5 });
        assert_eq!(crop(CropMode::End, 3, 10, 0), Crop { start: 0, len: 3, pad_front: 7 });
    }

    #[test]
    fn a_given_start_is_within_the_recording() {
        for (start, n, clip, found) in [
            (0, 100, 10, Some((0, 10, 0))),
            (95, 100, 10, Some((95, 5, 0))),
            (99, 100, 10, Some((99, 1, 0))),
            (100, 100, 10, None),
            (-1, 100, 10, None),
            (-1, 10, 10, None),
            (-7, 3, 10, Some((0, 3, 7))),
            (-8, 3, 10, None),
            (2, 3, 10, Some((2, 1, 0))),
            (3, 3, 10, None),
            (0, 0, 10, None),
            (i64::MAX, u64::MAX, 10, None),
            (i64::MIN, 3, usize::MAX, None),
        ] {
            let found = found.map(|(start, len, pad_front)| Crop { start, len, pad_front });
            assert_eq!(crop_at(start, n, clip), found, "{start} {n} {clip}");
        }
    }

    #[test]
    fn both_ends_can_be_drawn() {
        assert_eq!(crop(CropMode::Random, 12, 10, 0).start, 0);
        assert_eq!(crop(CropMode::Random, 12, 10, u64::MAX).start, 2);
        assert_eq!(crop(CropMode::Center, 13, 10, u64::MAX).start, 1);
        assert_eq!(crop(CropMode::End, 13, 10, 0).start, 3);
        assert_eq!(crop(CropMode::Random, 10, 10, u64::MAX).start, 0);
        assert_eq!(crop(CropMode::Random, u64::MAX, 0, u64::MAX).start, u64::MAX);
    }

    #[test]
    fn starts_are_uniform() {
        // 4096 equidistant hashes over 64 starts: exactly 64 each.
        let mut counts = [0; 64];
        for i in 0..4096_u64 {
            counts[crop(CropMode::Random, 163, 100, i << 52).start as usize] += 1;
        }
        assert_eq!(counts, [64; 64]);
    }

    proptest! {
        #[test]
        fn stays_inside(n in 0_u64..1 << 40, clip in 1_usize..1 << 24, hash: u64, mode in 0..4) {
            let mode = [CropMode::Random, CropMode::Center, CropMode::Start, CropMode::End][mode as usize];
            let crop = crop(mode, n, clip, hash);
            prop_assert!(crop.start + crop.len as u64 <= n);
            prop_assert!(crop.pad_front + crop.len <= clip);
            prop_assert_eq!(crop.len as u64, n.min(clip as u64));
            // The start of a clip gives the clip.
            if n > 0 {
                prop_assert_eq!(crop_at(crop.start as i64 - crop.pad_front as i64, n, clip), Some(crop));
            }
        }
    }
}
