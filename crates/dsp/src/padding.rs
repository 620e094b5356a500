//! [`Padding`]: where a recording lies in a clip that is longer, and what fills the rest.
//!
//! A pure function of the clip, the rule and random bits. Noise is the sum of four uniform numbers of 16 bits
//! from one hash for each sample, so that it is nearly normal and its bits are the same on every machine: no
//! logarithm or cosine is involved. Source: own; the sum of uniform numbers is the Irwin-Hall distribution.

use std::ops::Range;

use crate::seed::{Purpose, below, hash, mix};

/// What becomes of a clip whose recording is shorter.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum Padding {
    /// Zeros follow the recording, up to the clip's end.
    #[default]
    Behind,
    /// Zeros precede the recording, which ends with the clip.
    Front,
    /// Zeros come on both sides, as many before as behind; of an odd number one more behind.
    Both,
    /// Zeros come on both sides, divided at random.
    Random,
    /// The recording comes again and again, from its first sample on.
    Repeat,
    /// White noise comes behind the recording, whose root mean square is this; full scale is 1.
    Noise(f32),
}

impl Padding {
    /// How many of `n` samples of padding come before the recording.
    pub fn front(self, n: usize, seed: u64) -> usize {
        match self {
            Self::Behind | Self::Repeat | Self::Noise(_) => 0,
            Self::Front => n,
            Self::Both => n / 2,
            Self::Random => below(hash(seed, Purpose::Padding, []), n as u64 + 1) as usize,
        }
    }

    /// Whether only zeros are added. Samples that are not zeros belong to the clip as those of the recording
    /// do: they count in its mean and its level.
    pub fn is_silent(self) -> bool {
        !matches!(self, Self::Repeat | Self::Noise(_))
    }

    /// Whether the samples that are added are those of the recording.
    pub fn repeats(self) -> bool {
        self == Self::Repeat
    }

    /// Fills what is outside of `taken`, the samples that the clip has of the recording. `channel` is that of
    /// the clip.
    ///
    /// # Panics
    /// If `taken` reaches beyond the clip.
    pub fn fill(self, clip: &mut [f32], taken: Range<usize>, seed: u64, channel: u64) {
        match self {
            Self::Repeat if !taken.is_empty() => {
                // Samples before are the last ones of a round that ends where the recording begins.
                for at in (0..taken.start).rev() {
                    clip[at] = clip[at + taken.len()];
                }
                for at in taken.end..clip.len() {
                    clip[at] = clip[at - taken.len()];
                }
            }
            Self::Noise(level) => {
                let state = hash(seed, Purpose::PaddingNoise, [channel]);
                let sample = |at: usize| level * noise(mix(state ^ mix(at as u64)));
                let (front, rest) = clip.split_at_mut(taken.start);
                let behind = &mut rest[taken.len()..];
                front.iter_mut().zip(0..).for_each(|(out, at)| *out = sample(at));
                behind.iter_mut().zip(taken.end..).for_each(|(out, at)| *out = sample(at));
            }
            _ => {
                clip[..taken.start].fill(0.0);
                clip[taken.end..].fill(0.0);
            }
        }
    }
}

/// A number of mean 0 and variance 1 from 64 random bits: the sum of their four parts of 16 bits.
fn noise(bits: u64) -> f32 {
    // Uniform whole numbers below 2^16 have the variance (2^32 - 1) / 12; of four the sum has four times it.
    const DEVIATION: f32 = 37_837.225;
    let sum = (0..4).map(|part| (bits >> (16 * part)) as i64 & 0xffff).sum::<i64>();
    (sum - 2 * 0xffff) as f32 / DEVIATION
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn filled(padding: Padding, n: usize, clip: usize, seed: u64) -> (usize, Vec<f32>) {
        let front = padding.front(clip - n, seed);
        let mut samples = vec![-1.0; clip];
        samples[front..front + n].iter_mut().zip(1_u8..).for_each(|(out, value)| *out = value.into());
        padding.fill(&mut samples, front..front + n, seed, 0);
        (front, samples)
    }

    #[test]
    fn the_rules() {
        let of = |padding| filled(padding, 3, 8, 5).1;
        assert_eq!(of(Padding::Behind), [1., 2., 3., 0., 0., 0., 0., 0.]);
        assert_eq!(of(Padding::Front), [0., 0., 0., 0., 0., 1., 2., 3.]);
        assert_eq!(of(Padding::Both), [0., 0., 1., 2., 3., 0., 0., 0.]);
        assert_eq!(of(Padding::Repeat), [1., 2., 3., 1., 2., 3., 1., 2.]);
        let noise = of(Padding::Noise(0.1));
        assert_eq!(noise[..3], [1., 2., 3.]);
        assert!(noise[3..].iter().all(|x| *x != 0.0 && x.abs() < 0.4), "{noise:?}");
        // A clip that begins before its recording repeats it there, too.
        let mut clip = [0., 0., 0., 0., 1., 2., 3., 0.];
        Padding::Repeat.fill(&mut clip, 4..7, 0, 0);
        assert_eq!(clip, [3., 1., 2., 3., 1., 2., 3., 1.]);
    }

    #[test]
    fn a_recording_without_samples_leaves_silence() {
        for padding in [Padding::Repeat, Padding::Random, Padding::Both] {
            assert_eq!(filled(padding, 0, 4, 1).1, [0.0; 4], "{padding:?}");
        }
    }

    #[test]
    fn random_padding_is_uniform() {
        let mut counts = [0; 6];
        (0..6000).for_each(|seed| counts[Padding::Random.front(5, seed)] += 1);
        assert!(counts.iter().all(|count| (880..1120).contains(count)), "{counts:?}");
    }

    #[test]
    fn noise_has_its_level() {
        let mut clip = vec![0.0; 200_000];
        Padding::Noise(0.01).fill(&mut clip, 0..0, 3, 0);
        let mean = |power| clip.iter().map(|&x| f64::from(x).powi(power)).sum::<f64>() / clip.len() as f64;
        assert!((mean(2).sqrt() / 0.01 - 1.0).abs() < 0.01, "{}", mean(2).sqrt());
        assert!(mean(1).abs() < 1e-4, "{}", mean(1));
        // White: neighbours are not alike.
        let product = clip.windows(2).map(|two| f64::from(two[0] * two[1])).sum::<f64>() / clip.len() as f64;
        assert!((product / 1e-4).abs() < 0.02, "{product}");
        let mut other = vec![0.0; 200_000];
        Padding::Noise(0.01).fill(&mut other, 0..0, 3, 1);
        assert_ne!(clip, other, "channels differ");
    }

    proptest! {
        #[test]
        fn the_recording_is_where_it_says(n in 0_usize..20, more in 0_usize..20, seed: u64) {
            for padding in [Padding::Behind, Padding::Front, Padding::Both, Padding::Random, Padding::Repeat] {
                let (front, samples) = filled(padding, n, n + more, seed);
                prop_assert!(front <= more);
                for (at, &sample) in samples.iter().enumerate() {
                    let place = at as i64 - front as i64;
                    let is_inside = (0..n as i64).contains(&place);
                    let want = match is_inside {
                        true => place as f32 + 1.0,
                        false if padding.repeats() && n > 0 => place.rem_euclid(n as i64) as f32 + 1.0,
                        false => 0.0,
                    };
                    prop_assert_eq!(sample, want, "{:?} {}", padding, at);
                }
            }
        }
    }
}
