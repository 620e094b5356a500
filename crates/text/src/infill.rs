//! Fill in the middle (FIM): a text is cut into prefix, middle and suffix, and the middle comes last, so that
//! a model learns to fill a gap.
//!
//! Both places of the cut are drawn uniformly, from 0 up to the length of the text, so any part may be empty.
//! In the order PSM a text is `<prefix> prefix <suffix> suffix <middle> middle`, in SPM `<prefix> <suffix>
//! suffix <middle> prefix middle`. No token of the text is lost, and three sentinels are added. Cut between
//! characters, each part is encoded by itself, as a model meets it where a cursor is within a token; cut
//! between tokens, the ids are those of the whole text. All draws are hashes of the text's bits.
//!
//! Source: Bavarian et al., "Efficient Training of Language Models to Fill in the Middle" (2022), sections 3
//! and 4: the orders PSM and SPM (its variant 2), both in the same training. Own: the draws.

use crate::{
    Result, fallible_alloc,
    seed::{Purpose, below, hash},
};

/// Between what a text is cut.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum InfillCut {
    /// Between characters.
    #[default]
    Characters,
    /// Between the tokens of the whole text.
    Tokens,
}

/// The ids before the parts of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InfillTokens {
    /// Before the prefix.
    pub prefix: u32,
    /// Before the middle.
    pub middle: u32,
    /// Before the suffix.
    pub suffix: u32,
}

impl InfillTokens {
    /// The names of prefix, middle and suffix in tokenizers of models that fill in the middle.
    pub const NAMES: [[&str; 3]; 6] = [
        ["<fim_prefix>", "<fim_middle>", "<fim_suffix>"],
        ["<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"],
        ["<fim-prefix>", "<fim-middle>", "<fim-suffix>"],
        ["<PRE>", "<MID>", "<SUF>"],
        ["\u{2581}<PRE>", "\u{2581}<MID>", "\u{2581}<SUF>"],
        [
            "<\u{ff5c}fim\u{2581}begin\u{ff5c}>",
            "<\u{ff5c}fim\u{2581}end\u{ff5c}>",
            "<\u{ff5c}fim\u{2581}hole\u{ff5c}>",
        ],
    ];
}

/// Which texts are rearranged, and how.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Infill {
    /// The share of texts that are rearranged, 0 to 1.
    pub rate: f64,
    /// The share of these in the order SPM, 0 to 1.
    pub spm: f64,
    /// Between what they are cut.
    pub cut: InfillCut,
    /// The sentinels.
    pub tokens: InfillTokens,
}

/// The draws of a text, by their numbers: whether it is rearranged, its order, the two places, and from here
/// on the bits of prefix, middle and suffix.
const IS_REARRANGED: u64 = 0;
const IS_SPM: u64 = 1;
const PLACES: [u64; 2] = [2, 3];
const PARTS: u64 = 4;

/// Whether a hash is in this share of all hashes.
fn is_within(hash: u64, share: f64) -> bool {
    // 2^64 itself, for a share of 1, is more than any hash.
    u128::from(hash) < (share.clamp(0.0, 1.0) * 18_446_744_073_709_551_616.0) as u128
}

impl Infill {
    /// Appends the ids of `text`, rearranged or not, by its `bits`. `encode` appends the ids of a text, or of
    /// a part of it, with bits of its own.
    ///
    /// # Errors
    /// Those of `encode`, and [`ErrorKind::Memory`](crate::ErrorKind::Memory).
    pub fn encode(
        &self,
        text: &str,
        bits: u64,
        ids: &mut Vec<u32>,
        mut encode: impl FnMut(&str, u64, &mut Vec<u32>) -> Result<()>,
    ) -> Result<()> {
        let draw = |number| hash(bits, Purpose::Infill, [number]);
        if !is_within(draw(IS_REARRANGED), self.rate) {
            return encode(text, bits, ids);
        }
        let is_spm = is_within(draw(IS_SPM), self.spm);
        let places = |len: usize| {
            let [a, b] = PLACES.map(|number| below(draw(number), len as u64 + 1) as usize);
            [a.min(b), a.max(b)]
        };
        match self.cut {
            InfillCut::Characters => {
                let [first, second] = places(text.chars().count());
                let (prefix, rest) = text.split_at(byte_of(text, first));
                let (middle, suffix) = rest.split_at(byte_of(rest, second - first));
                let parts = [prefix, middle, suffix];
                self.arrange(is_spm, ids, |part, ids| encode(parts[part], draw(PARTS + part as u64), ids))
            }
            InfillCut::Tokens => {
                let begin = ids.len();
                encode(text, bits, ids)?;
                let n = ids.len() - begin;
                let [first, second] = places(n);
                let InfillTokens { prefix, middle, suffix } = self.tokens;
                fallible_alloc::grow(ids, 3)?;
                // The suffix goes before the middle, or before the prefix and the middle.
                let moved = if is_spm { 0 } else { first };
                ids[begin + moved..].rotate_left(second - moved);
                // From the last place on, so that each insertion leaves the places before it.
                ids.insert(begin + moved + n - second, middle);
                ids.insert(begin + moved, suffix);
                ids.insert(begin, prefix);
                Ok(())
            }
        }
    }

    /// Appends the sentinels and the parts, of which `put` appends prefix, middle and suffix by their
    /// numbers.
    fn arrange(
        &self,
        is_spm: bool,
        ids: &mut Vec<u32>,
        mut put: impl FnMut(usize, &mut Vec<u32>) -> Result<()>,
    ) -> Result<()> {
        let InfillTokens { prefix, middle, suffix } = self.tokens;
        fallible_alloc::push(ids, prefix)?;
        if !is_spm {
            put(0, ids)?;
        }
        fallible_alloc::push(ids, suffix)?;
        put(2, ids)?;
        fallible_alloc::push(ids, middle)?;
        if is_spm {
            put(0, ids)?;
        }
        put(1, ids)
    }
}

/// Where the character of this number begins.
fn byte_of(text: &str, character: usize) -> usize {
    text.char_indices().nth(character).map_or(text.len(), |(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TOKENS: InfillTokens =
        InfillTokens { prefix: 1 << 24, middle: (1 << 24) + 1, suffix: (1 << 24) + 2 };

    /// The ids of a text are its characters.
    fn made(infill: &Infill, text: &str, bits: u64) -> Vec<u32> {
        let mut ids = Vec::new();
        infill
            .encode(text, bits, &mut ids, |part, _, ids| {
                ids.extend(part.chars().map(u32::from));
                Ok(())
            })
            .unwrap();
        ids
    }

    /// Prefix, middle and suffix of rearranged ids, and whether the order is SPM.
    fn parts(ids: &[u32], first: usize) -> ([Vec<u32>; 3], bool) {
        let at = |token| ids.iter().position(|&id| id == token).unwrap();
        let (suffix, middle) = (at(TOKENS.suffix), at(TOKENS.middle));
        assert_eq!(ids[0], TOKENS.prefix);
        let last = ids[middle + 1..].to_vec();
        let after = ids[suffix + 1..middle].to_vec();
        match suffix == 1 && last.len() >= first {
            true => ([last[..first].to_vec(), last[first..].to_vec(), after], true),
            false => ([ids[1..suffix].to_vec(), last, after], false),
        }
    }

    proptest! {
        #[test]
        fn the_parts_are_the_text(text in "\\PC{0,40}", bits: u64, spm in prop_oneof![Just(0.0), Just(1.0)], by_token: bool) {
            let cut = if by_token { InfillCut::Tokens } else { InfillCut::Characters };
            let infill = Infill { rate: 1.0, spm, cut, tokens: TOKENS };
            let characters: Vec<u32> = text.chars().map(u32::from).collect();
            let ids = made(&infill, &text, bits);
            prop_assert_eq!(ids.len(), characters.len() + 3);
            let mut drawn = [2, 3].map(|n| below(hash(bits, Purpose::Infill, [n]), characters.len() as u64 + 1) as usize);
            drawn.sort_unstable();
            let (found, _) = parts(&ids, if spm == 1.0 { drawn[0] } else { usize::MAX });
            prop_assert_eq!(found.concat(), characters);
            prop_assert_eq!([found[0].len(), found[0].len() + found[1].len()], drawn);
            let never = Infill { rate: 0.0, ..infill };
            prop_assert_eq!(made(&never, &text, bits), text.chars().map(u32::from).collect::<Vec<_>>());
        }
    }

    #[test]
    fn shares_are_those_asked_for() {
        let infill = Infill { rate: 0.3, spm: 0.75, cut: InfillCut::Characters, tokens: TOKENS };
        let mut counts = [0u32; 3];
        let mut places = [0u32; 11];
        for bits in 0..40_000 {
            let ids = made(&infill, "abcdefghij", bits * 0x9E37_79B9);
            if ids[0] != TOKENS.prefix {
                counts[0] += 1;
                continue;
            }
            let suffix = ids.iter().position(|&id| id == TOKENS.suffix).unwrap();
            let middle = ids.iter().position(|&id| id == TOKENS.middle).unwrap();
            // Where the prefix is empty, both orders look alike.
            let is_spm = suffix == 1 && ids.get(middle + 1) == Some(&u32::from('a'));
            counts[1 + usize::from(is_spm)] += 1;
            places[middle - suffix - 1] += 1;
        }
        // 0.3 of 40 000, with five standard deviations.
        let rearranged = counts[1] + counts[2];
        assert!(rearranged.abs_diff(12_000) < 460, "{counts:?}");
        // The suffix of two places drawn among 0 to 10 has k characters with probability (21 - 2k) / 121.
        let expected = |k: usize| f64::from(rearranged) * (21.0 - 2.0 * k as f64) / 121.0;
        let chi: f64 = (0..11).map(|k| (f64::from(places[k]) - expected(k)).powi(2) / expected(k)).sum();
        assert!(chi < 35.6, "{chi}: {places:?}"); // 10 degrees of freedom, p = 10^-4
    }
}
