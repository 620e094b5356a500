//! [`Eras`]: era order, a full shuffle within every `L` rows, so that a shuffle needs only the rows of its
//! era.
//!
//! Position `p` maps to an index of the same era, `⌊p / L⌋ · L ..+ L`; the last era of the pass may be
//! shorter. Each era of each epoch has its own [`Bijection`]. While rows are still added, all but the last
//! era keep their order.

use super::Bijection;
use crate::seed::Purpose;

/// One epoch, shuffled era by era.
#[derive(Debug, Clone)]
pub struct Eras {
    seed: u64,
    epoch: u64,
    n: u64,
    era_length: u64,
    /// The last era used, with its number.
    recent: (u64, Bijection),
}

impl Eras {
    /// The order of `n` rows in `epoch`; `era_length` is at least 1.
    pub fn new(seed: u64, epoch: u64, n: u64, era_length: u64) -> Self {
        let era_length = era_length.max(1);
        let first = Bijection::new(seed, Purpose::Era, [epoch, 0], era_length.min(n));
        Self { seed, epoch, n, era_length, recent: (0, first) }
    }

    pub fn n(&self) -> u64 {
        self.n
    }

    /// The index at `position`.
    ///
    /// # Panics
    /// If there is no such position.
    pub fn at(&mut self, position: u64) -> u64 {
        let (begin, era) = self.era_of(position);
        begin + era.at(position - begin)
    }

    /// The position of `index`: the inverse of [`Eras::at`].
    ///
    /// # Panics
    /// If there is no such index.
    pub fn position(&mut self, index: u64) -> u64 {
        let (begin, era) = self.era_of(index);
        begin + era.position(index - begin)
    }

    fn era_of(&mut self, x: u64) -> (u64, &Bijection) {
        assert!(x < self.n, "position {x} of {}", self.n);
        let number = x / self.era_length;
        let begin = number * self.era_length;
        if number != self.recent.0 {
            let length = self.era_length.min(self.n - begin);
            self.recent = (number, Bijection::new(self.seed, Purpose::Era, [self.epoch, number], length));
        }
        (begin, &self.recent.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn order(eras: &mut Eras) -> Vec<u64> {
        (0..eras.n()).map(|position| eras.at(position)).collect()
    }

    proptest! {
        #[test]
        fn each_era_is_a_permutation_of_its_own(seed: u64, epoch: u64, n in 0u64..600, length in 0u64..130) {
            let mut eras = Eras::new(seed, epoch, n, length);
            for (number, era) in order(&mut eras).chunks(length.max(1) as usize).enumerate() {
                let begin = number as u64 * length.max(1);
                let mut era = era.to_vec();
                era.sort_unstable();
                prop_assert_eq!(era, (begin..n.min(begin + length.max(1))).collect::<Vec<_>>());
            }
            for position in 0..n {
                let index = eras.at(position);
                prop_assert_eq!(eras.position(index), position);
            }
        }

        #[test]
        fn what_was_asked_before_does_not_matter(seed: u64, positions in proptest::collection::vec(0u64..1000, 1..20)) {
            let mut eras = Eras::new(seed, 3, 1000, 77);
            for position in positions {
                prop_assert_eq!(eras.at(position), Eras::new(seed, 3, 1000, 77).at(position));
            }
        }
    }

    #[test]
    fn full_eras_keep_their_order_while_the_data_grows() {
        let (mut now, mut later) = (Eras::new(1, 0, 1000, 300), Eras::new(1, 0, 1500, 300));
        assert_eq!(order(&mut now)[..900], order(&mut later)[..900]);
    }

    #[test]
    fn every_era_and_epoch_has_an_order_of_its_own() {
        let of = |epoch| order(&mut Eras::new(1, epoch, 300, 100));
        let (zero, one) = (of(0), of(1));
        assert_ne!(zero, one);
        let relative = |era: &[u64]| era.iter().map(|index| index % 100).collect::<Vec<_>>();
        assert_ne!(relative(&zero[..100]), relative(&zero[100..200]));
    }

    #[test]
    fn a_long_era_is_a_bijection_of_all() {
        let bijection = Bijection::new(4, Purpose::Era, [2, 0], 500);
        let expected: Vec<u64> = (0..500).map(|position| bijection.at(position)).collect();
        assert_eq!(order(&mut Eras::new(4, 2, 500, u64::MAX)), expected);
    }
}
