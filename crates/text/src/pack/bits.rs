//! A set of small integers with predecessor and minimum: bits, and levels of bits above them for words that
//! are not empty.
//!
//! With 64 bits a word, three levels serve 262 144 members; each operation reads one or two words of each
//! level.

/// A set of integers in `0..=max`.
#[derive(Debug)]
pub struct LengthSet {
    /// From the members upwards; the last level is one word.
    levels: Vec<Vec<u64>>,
}

impl LengthSet {
    /// The empty set over `0..=max`.
    pub fn new(max: usize) -> Self {
        let mut levels = Vec::new();
        let mut top = max;
        loop {
            top /= 64;
            // bounded: a bit for each length of a row, which `TokenConfig` bounds.
            levels.push(vec![0; top + 1]);
            if top == 0 {
                return Self { levels };
            }
        }
    }

    pub fn insert(&mut self, mut member: usize) {
        for level in &mut self.levels {
            let word = &mut level[member / 64];
            let was_empty = *word == 0;
            *word |= 1 << (member % 64);
            if !was_empty {
                return;
            }
            member /= 64;
        }
    }

    pub fn remove(&mut self, mut member: usize) {
        for level in &mut self.levels {
            let word = &mut level[member / 64];
            *word &= !(1 << (member % 64));
            if *word != 0 {
                return;
            }
            member /= 64;
        }
    }

    pub fn first(&self) -> Option<usize> {
        let mut place = 0;
        for level in self.levels.iter().rev() {
            let word = level[place];
            if word == 0 {
                return None; // possible at the top only: below it, bits lead to words that are not empty
            }
            place = place * 64 + word.trailing_zeros() as usize;
        }
        Some(place)
    }

    /// The largest member that is at most `limit`.
    pub(crate) fn last_within(&self, limit: usize) -> Option<usize> {
        let mut place = limit;
        // On the lowest level `place` itself may be the result; above it, only words before the one just
        // searched.
        let mut below = 2 << (place % 64);
        for (height, level) in self.levels.iter().enumerate() {
            let word = level.get(place / 64)? & u64::wrapping_sub(below, 1);
            if word != 0 {
                place = place / 64 * 64 + word.ilog2() as usize;
                return Some(
                    self.levels[..height]
                        .iter()
                        .rev()
                        .fold(place, |place, level| place * 64 + level[place].ilog2() as usize),
                );
            }
            place /= 64;
            below = 1 << (place % 64);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn is_a_set(
            max in prop_oneof![0_usize..200, 4000_usize..4200, 262_000_usize..263_000],
            steps in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 1..200),
        ) {
            let mut bits = LengthSet::new(max);
            let mut set = BTreeSet::new();
            for (at, add) in steps {
                let at = at.index(max + 1);
                if add {
                    bits.insert(at);
                    set.insert(at);
                } else {
                    let near = set.range(at..).next().copied().unwrap_or(at);
                    bits.remove(near);
                    set.remove(&near);
                }
                prop_assert_eq!(bits.first(), set.first().copied());
                for limit in [at, at.saturating_sub(1), (at + 1).min(max), 0, max] {
                    prop_assert_eq!(bits.last_within(limit), set.range(..=limit).next_back().copied());
                }
            }
        }
    }
}
