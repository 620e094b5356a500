//! A set of byte strings with a number each, for the strings that begin at a place of a text.
//!
//! A step is one load and one comparison of eight bytes at once: a node holds the bytes that lead to its
//! children, which are neighbours. A node with more children has a table of 256 entries instead, which costs
//! at most 114 bytes for each of them. So the memory is bounded by the bytes of the strings, whatever they
//! are.
//!
//! Source: own. The comparison: Mycroft's test for a zero byte in a word.

use std::ops::Range;

use crate::{Error, ErrorKind, Result, fallible_alloc};

/// No child, no number.
const NONE: u32 = u32::MAX;

/// Set in `first` of a node with a table; the other bits are the index of the table.
const TABLE: u32 = 1 << 31;

/// Nodes with more children than this have a table.
const MANY: usize = 8;

/// A byte in each place of a word.
const ONES: u64 = 0x0101_0101_0101_0101;

#[derive(Debug, Clone, Copy)]
struct Node {
    /// The bytes that lead to the children, in order, the first in the lowest place; the first one again in
    /// the places that are left.
    bytes: u64,
    /// The first child, [`NONE`] without children.
    first: u32,
    /// The number of the string that ends here, or [`NONE`].
    number: u32,
}

const EMPTY: Node = Node { bytes: 0, first: NONE, number: NONE };

/// The trie; a root without children if it has no strings.
#[derive(Debug)]
pub struct Trie {
    nodes: Vec<Node>,
    tables: Vec<[u32; 256]>,
    /// Whether a string begins with this byte.
    begins: [bool; 256],
}

impl Default for Trie {
    fn default() -> Self {
        Self { nodes: vec![EMPTY], tables: Vec::new(), begins: [false; 256] }
    }
}

impl Trie {
    /// Builds the trie of strings and their numbers, which are below 2^32 - 1. Empty strings are left out; of
    /// equal ones the smallest number is used.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`](crate::ErrorKind::Memory) if an allocation failed.
    pub fn new(mut strings: Vec<(&[u8], u32)>) -> Result<Self> {
        strings.retain(|(string, _)| !string.is_empty());
        strings.sort_unstable();
        strings.dedup_by_key(|(string, _)| *string);
        let mut trie = Self::default();
        for (string, _) in &strings {
            trie.begins[usize::from(string[0])] = true;
        }
        // A node, the strings below it, and the number of their bytes up to it. The last one first, so that
        // the nodes of a string are close together.
        let mut open: Vec<(usize, Range<usize>, usize)> = vec![(0, 0..strings.len(), 0)];
        while let Some((node, mut range, depth)) = open.pop() {
            // Sorted, so a string that ends here is the first.
            if let Some((string, number)) = strings.get(range.start)
                && string.len() == depth
                && depth > 0
            {
                trie.nodes[node].number = *number;
                range.start += 1;
            }
            let first = trie.nodes.len();
            if first > (TABLE as usize) - 256 {
                let message = "the vocabulary has 2 GiB or more, expected less";
                return Err(Error::new(ErrorKind::TooLarge, message));
            }
            let (mut bytes, mut table) = ([0; MANY], [NONE; 256]);
            while range.start < range.end {
                let byte = strings[range.start].0[depth];
                let n = strings[range.clone()].partition_point(|(string, _)| string[depth] == byte);
                let child = trie.nodes.len();
                table[usize::from(byte)] = child as u32;
                match bytes.get_mut(child - first..) {
                    Some(rest) if child == first => rest.fill(byte),
                    Some([place, ..]) => *place = byte,
                    _ => {}
                }
                fallible_alloc::push(&mut trie.nodes, EMPTY)?;
                fallible_alloc::push(&mut open, (child, range.start..range.start + n, depth + 1))?;
                range.start += n;
            }
            trie.nodes[node].bytes = u64::from_le_bytes(bytes);
            trie.nodes[node].first = match trie.nodes.len() - first {
                0 => NONE,
                1..=MANY => first as u32,
                _ => {
                    fallible_alloc::push(&mut trie.tables, table)?;
                    TABLE | (trie.tables.len() - 1) as u32
                }
            };
        }
        Ok(trie)
    }

    /// Whether a string begins with this byte.
    #[inline]
    pub fn begins_with(&self, byte: u8) -> bool {
        self.begins[usize::from(byte)]
    }

    /// Calls `found` with the length and the number of each string that `text` begins with, shortest first.
    #[inline]
    pub fn prefixes(&self, text: impl IntoIterator<Item = u8>, mut found: impl FnMut(usize, u32)) {
        let mut node = self.nodes[0];
        for (at, byte) in text.into_iter().enumerate() {
            let child = if node.first < TABLE {
                // The lowest place whose byte is equal has its top bit set; those above it may have, too.
                let different = node.bytes ^ (ONES * u64::from(byte));
                let equal = different.wrapping_sub(ONES) & !different & ONES << 7;
                if equal == 0 {
                    return;
                }
                node.first + equal.trailing_zeros() / 8
            } else if node.first == NONE {
                return;
            } else {
                self.tables[(node.first ^ TABLE) as usize][usize::from(byte)]
            };
            let Some(next) = self.nodes.get(child as usize) else { return };
            node = *next;
            if node.number != NONE {
                found(at + 1, node.number);
            }
        }
    }

    /// Length and number of the longest string that `text` begins with.
    pub fn longest(&self, text: &[u8]) -> Option<(usize, u32)> {
        let mut longest = None;
        if text.first().is_some_and(|&byte| self.begins_with(byte)) {
            self.prefixes(text.iter().copied(), |len, number| longest = Some((len, number)));
        }
        longest
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Few letters for long common prefixes, and all bytes for nodes with tables.
        #[test]
        fn prefixes_are_those_of_a_search(
            narrow in proptest::collection::vec(proptest::collection::vec(0u8..3, 0..6), 0..40),
            wide in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..3), 0..300),
            texts in proptest::collection::vec(proptest::collection::vec(0u8..3, 0..9), 1..20),
        ) {
            let strings: Vec<&[u8]> = narrow.iter().chain(&wide).map(Vec::as_slice).collect();
            let numbered = strings.iter().enumerate().map(|(number, string)| (*string, number as u32)).collect();
            let trie = Trie::new(numbered).unwrap();
            for text in texts.iter().chain(&wide) {
                let expected: Vec<(usize, u32)> = (1..=text.len())
                    .filter_map(|len| {
                        Some((len, strings.iter().position(|string| *string == &text[..len])? as u32))
                    })
                    .collect();
                let mut found = Vec::new();
                trie.prefixes(text.iter().copied(), |len, number| found.push((len, number)));
                prop_assert_eq!(&found, &expected);
                prop_assert_eq!(trie.longest(text), expected.last().copied());
            }
        }
    }

    #[test]
    fn an_empty_trie_finds_nothing() {
        assert_eq!(Trie::default().longest(b"a"), None);
        assert_eq!(Trie::new(vec![(b"", 0)]).unwrap().longest(b""), None);
    }
}
