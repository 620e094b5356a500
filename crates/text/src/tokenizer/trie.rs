//! A set of byte strings with a number each, for the strings that begin at a place of a text.
//!
//! The nodes are in breadth-first order, so the children of a node are neighbours, in the order of their
//! bytes. A node with many children has a table of 256 entries instead, which costs at most 64 bytes for each
//! of them: the memory is bounded by the bytes of the strings, whatever they are.
//!
//! Source: own.

use std::{collections::VecDeque, ops::Range};

use crate::{Result, fallible_alloc};

/// No child, no number, no table.
const NONE: u32 = u32::MAX;

/// Nodes with more children than this have a table.
const MANY: usize = 16;

#[derive(Debug, Clone, Copy)]
struct Node {
    /// The first child.
    first: u32,
    n_children: u32,
    /// The index of the table in `tables`, or [`NONE`].
    table: u32,
    /// The number of the string that ends here, or [`NONE`].
    number: u32,
}

/// The trie; a root without children if it has no strings.
#[derive(Debug)]
pub struct Trie {
    nodes: Vec<Node>,
    /// The byte that leads to each node.
    bytes: Vec<u8>,
    tables: Vec<[u32; 256]>,
    /// Whether a string begins with this byte.
    begins: [bool; 256],
}

impl Default for Trie {
    fn default() -> Self {
        let root = Node { first: 1, n_children: 0, table: NONE, number: NONE };
        Self { nodes: vec![root], bytes: vec![0], tables: Vec::new(), begins: [false; 256] }
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
        // The strings below a node, and the number of their bytes up to it.
        let mut open: VecDeque<(Range<usize>, usize)> = [(0..strings.len(), 0)].into();
        let mut node = 0;
        while let Some((mut range, depth)) = open.pop_front() {
            // Sorted, so a string that ends here is the first.
            if let Some((string, number)) = strings.get(range.start)
                && string.len() == depth
                && depth > 0
            {
                trie.nodes[node].number = *number;
                range.start += 1;
            }
            let first = trie.nodes.len();
            while range.start < range.end {
                let byte = strings[range.start].0[depth];
                let n = strings[range.clone()].partition_point(|(string, _)| string[depth] == byte);
                let child = Node { first: 0, n_children: 0, table: NONE, number: NONE };
                fallible_alloc::push(&mut trie.nodes, child)?;
                fallible_alloc::push(&mut trie.bytes, byte)?;
                // bounded: by the bytes of the strings.
                open.push_back((range.start..range.start + n, depth + 1));
                range.start += n;
            }
            let n_children = trie.nodes.len() - first;
            if n_children > MANY {
                let mut table = [NONE; 256];
                for child in first..trie.nodes.len() {
                    table[usize::from(trie.bytes[child])] = child as u32;
                }
                trie.nodes[node].table = trie.tables.len() as u32;
                fallible_alloc::push(&mut trie.tables, table)?;
            }
            trie.nodes[node].first = first as u32;
            trie.nodes[node].n_children = n_children as u32;
            node += 1;
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
        let mut node = &self.nodes[0];
        for (at, byte) in text.into_iter().enumerate() {
            let child = if node.table == NONE {
                let first = node.first as usize;
                let children = &self.bytes[first..first + node.n_children as usize];
                match children.iter().position(|&one| one == byte) {
                    Some(place) => first + place,
                    None => return,
                }
            } else {
                match self.tables[node.table as usize][usize::from(byte)] {
                    NONE => return,
                    child => child as usize,
                }
            };
            node = &self.nodes[child];
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
