//! All randomness of this crate: one fixed hash of `(seed, purpose, words…)`.
//!
//! Input: the user's seed and the coordinates of a decision (epoch, row, draw). Output: 64 pseudorandom bits.
//! There is no generator and no state. So a decision does not depend on the thread, the time or earlier
//! decisions, and can be computed again. Words are mixed, never added: seed 1 at epoch 0 has nothing in
//! common with seed 0 at epoch 1. State files and published runs rely on these functions: they must never
//! change.
//!
//! Source: the finaliser of splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators",
//! 2014), chained over the words as in a Merkle–Damgård construction. `docs/determinism.md` lists each
//! decision with its words.

/// The kind of a decision; decisions of different kinds with equal coordinates get different bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum Purpose {
    /// The order of the shards in an epoch.
    Shards = 1,
    /// The slot of the shuffle window that a draw takes.
    Window = 2,
    /// The start of a record's crop.
    Crop = 3,
    /// The row that replaces a bad record.
    Substitute = 4,
    /// The start of a substitute's crop.
    SubstituteCrop = 5,
    /// The order of all rows in an epoch.
    Global = 6,
    /// The order of the rows of one era in an epoch.
    Era = 7,
    /// The order of the sources within a block of a mixture.
    MixtureBlock = 8,
    /// The passes of a finite mixture.
    Pass = 9,
    /// The orders of the sources of a mixture.
    Source = 10,
    /// The order of a stream's row groups in an epoch.
    Groups = 11,
    Subset = 12,
    /// Which rows of fractional expectation come once more in an epoch, with weights.
    Copies = 13,
    /// The rows of a group that are kept.
    Limit = 14,
    /// What a step of augmentation draws.
    Augment = 15,
    /// The order of the steps of batches by length.
    Steps = 16,
    /// How the padding of a short recording is divided.
    Padding = 20,
    /// The samples of noise beside a short recording.
    PaddingNoise = 21,
    /// The event of a row that is in the clip.
    Event = 22,
    /// A further position of which the loudest is taken.
    Candidate = 23,
    /// A further position after silence.
    Redraw = 24,
    /// A further clip of the same recording.
    View = 25,
    /// The clip of a recording that is independent of the first of its row, and the row that it is from.
    Independent = 26,
    /// Whether a pair of parts of a text may be merged, with BPE dropout.
    Merge = 32,
    /// Whether the middle of a text comes last, and where it is cut.
    Infill = 33,
}

/// Spreads every bit of `x` over the whole word: a bijection of 64 bits.
#[inline]
pub const fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// Hashes `words` under `seed` for `purpose`.
///
/// ```
/// use forebay_base::seed::{Purpose, hash};
/// assert_ne!(hash(1, Purpose::Crop, [0, 7]), hash(0, Purpose::Crop, [1, 7]));
/// ```
#[inline]
pub fn hash<const N: usize>(seed: u64, purpose: Purpose, words: [u64; N]) -> u64 {
    words.iter().fold(mix(mix(seed) ^ mix(purpose as u64)), |state, &word| mix(state ^ mix(word)))
}

/// Scales a hash to `0..n` by multiply-shift: unbiased to one part in 2^64 / n. `n = 0` gives 0.
#[inline]
pub const fn below(hash: u64, n: u64) -> u64 {
    ((hash as u128 * n as u128) >> 64) as u64
}

/// A hash of bytes, eight at a time.
pub fn hash_bytes(state: u64, bytes: &[u8]) -> u64 {
    let mut chunks = bytes.chunks_exact(8);
    let mut state = mix(state ^ bytes.len() as u64);
    for chunk in &mut chunks {
        let mut word = [0; 8];
        word.copy_from_slice(chunk);
        state = mix(state ^ u64::from_le_bytes(word));
    }
    let rest = chunks.remainder();
    if rest.is_empty() {
        return state;
    }
    let mut word = [0; 8];
    word[..rest.len()].copy_from_slice(rest);
    mix(state ^ u64::from_le_bytes(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A change of any of these values changes every batch of every user.
    #[test]
    fn never_changes() {
        assert_eq!(mix(0), 0xE220_A839_7B1D_CDAF); // the published first output of splitmix64 for seed 0
        assert_eq!(hash(0, Purpose::Window, [0, 0]), GOLDEN[0]);
        assert_eq!(hash(42, Purpose::Crop, [3, 1_000_000]), GOLDEN[1]);
    }
    /// From the same formula written in Python.
    const GOLDEN: [u64; 2] = [0x39D6215E4B0B2858, 0x9BB07E3D36D0FCCE];

    #[test]
    fn below_stays_below_and_covers() {
        let mut seen = [0u32; 7];
        for i in 0..7000 {
            seen[below(hash(9, Purpose::Shards, [i]), 7) as usize] += 1;
        }
        assert!(seen.iter().all(|&count| (850..1150).contains(&count)), "{seen:?}");
        assert_eq!(below(u64::MAX, 5), 4);
        assert_eq!(below(123, 0), 0);
    }

    #[test]
    fn seed_and_epoch_do_not_add() {
        let mut all: Vec<u64> = (0..64)
            .flat_map(|seed| (0..64).map(move |epoch| hash(seed, Purpose::Shards, [epoch, 5])))
            .collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 64 * 64);
    }

    #[test]
    fn hashes_depend_on_every_byte_and_length() {
        let mut seen = std::collections::HashSet::new();
        for n in 0..40 {
            assert!(seen.insert(hash_bytes(0, &vec![0; n])));
            assert!(seen.insert(hash_bytes(0, &vec![1; n + 1])));
        }
    }
}
