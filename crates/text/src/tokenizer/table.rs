//! Two hash tables that are built once and read millions of times a second.
//!
//! They use open addressing and are at most half full. `HashMap` is slower: keys here are one or two machine
//! words, and their number is bounded by the file, so a hash by multiplication is enough.

use std::collections::HashMap;

/// A multiplier with well distributed bits: 2^64 over the golden ratio, odd.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// The most bytes of a [`Word`].
pub const WORD: usize = 15;

/// Up to 15 bytes and their number in one value: values are equal if and only if the bytes are.
pub type Word = u128;

/// The word of `text[start..end]`, `None` if it is longer than [`WORD`].
#[inline]
pub fn word(text: &[u8], start: usize, end: usize) -> Option<Word> {
    let n = end - start;
    if n > WORD {
        return None;
    }
    let bytes = match text[start..].first_chunk::<16>() {
        Some(chunk) => u128::from_le_bytes(*chunk) & ((1 << (8 * n)) - 1),
        None => {
            let mut chunk = [0; 16];
            chunk[..n].copy_from_slice(&text[start..end]);
            u128::from_le_bytes(chunk)
        }
    };
    Some(bytes | (n as u128) << 120)
}

/// The hash of a word; its upper bits are well distributed.
#[inline]
pub fn hash(word: Word) -> u64 {
    let (low, high) = (word as u64, (word >> 64) as u64);
    let low = (low ^ SPREAD).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    (low ^ (low >> 32) ^ high.wrapping_mul(SPREAD)).wrapping_mul(SPREAD)
}

/// The shift from a hash to the index of a slot. There is a power of two of slots, at least twice `n`.
fn shift(n: usize) -> u32 {
    63 - (n.max(1) as u64).next_power_of_two().trailing_zeros()
}

/// Ids of tokens by their bytes.
#[derive(Debug)]
pub struct TokenTable {
    shift: u32,
    /// 0 for an empty slot: only the word of no bytes is 0, and that is no token.
    words: Vec<Word>,
    ids: Vec<u32>,
    /// Tokens of more than [`WORD`] bytes.
    long: HashMap<Box<[u8]>, u32>,
}

impl TokenTable {
    /// Builds the table. Of tokens with equal bytes the last is used; empty tokens are left out.
    pub fn new<'a>(tokens: impl ExactSizeIterator<Item = (&'a [u8], u32)>) -> Self {
        let shift = shift(tokens.len());
        let slots = 1 << (64 - shift);
        // bounded: by the tokens, at most four slots for each.
        let mut table = Self { shift, words: vec![0; slots], ids: vec![0; slots], long: HashMap::new() };
        for (bytes, id) in tokens.filter(|(bytes, _)| !bytes.is_empty()) {
            match word(bytes, 0, bytes.len()) {
                Some(word) => {
                    let at = table.slot(word);
                    table.words[at] = word;
                    table.ids[at] = id;
                }
                None => {
                    table.long.insert(bytes.into(), id);
                }
            }
        }
        table
    }

    /// The slot of `word`, or an empty one.
    #[inline]
    fn slot(&self, word: Word) -> usize {
        let mut at = (hash(word) >> self.shift) as usize;
        while self.words[at] != word && self.words[at] != 0 {
            at = (at + 1) & (self.words.len() - 1);
        }
        at
    }

    /// The id of a token by its word.
    #[inline]
    pub fn get(&self, word: Word) -> Option<u32> {
        let at = self.slot(word);
        (word != 0 && self.words[at] == word).then(|| self.ids[at])
    }

    /// The id of a token by its bytes.
    pub fn get_bytes(&self, bytes: &[u8]) -> Option<u32> {
        match word(bytes, 0, bytes.len()) {
            Some(word) => self.get(word),
            None => self.long.get(bytes).copied(),
        }
    }
}

/// Marks an empty entry: ids are below 2^32 - 1.
const EMPTY: u64 = u64::MAX;

/// Rank and id of the merged token, by pairs of ids.
#[derive(Debug)]
pub struct PairTable {
    shift: u32,
    entries: Vec<(u64, (u32, u32))>,
}

impl PairTable {
    /// Builds the table. Of equal pairs the lowest rank is used.
    pub fn new(pairs: impl Iterator<Item = ((u32, u32), (u32, u32))>) -> Self {
        let pairs: Vec<_> = pairs.collect();
        let shift = shift(pairs.len());
        // bounded: by the pairs, at most four slots for each.
        let mut table = Self { shift, entries: vec![(EMPTY, (u32::MAX, 0)); 1 << (64 - shift)] };
        for ((left, right), merged) in pairs {
            let at = table.slot(key(left, right));
            let entry = &mut table.entries[at];
            entry.0 = key(left, right);
            entry.1 = entry.1.min(merged);
        }
        table
    }

    #[inline]
    fn slot(&self, key: u64) -> usize {
        let hash = (key ^ (key >> 29)).wrapping_mul(SPREAD);
        let mut at = ((hash ^ (hash >> 32)).wrapping_mul(SPREAD) >> self.shift) as usize;
        while self.entries[at].0 != key && self.entries[at].0 != EMPTY {
            at = (at + 1) & (self.entries.len() - 1);
        }
        at
    }

    /// Rank and id of the token that `left` and `right` are merged to.
    #[inline]
    pub fn get(&self, left: u32, right: u32) -> Option<(u32, u32)> {
        let entry = self.entries[self.slot(key(left, right))];
        (entry.0 != EMPTY).then_some(entry.1)
    }
}

#[inline]
fn key(left: u32, right: u32) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}
