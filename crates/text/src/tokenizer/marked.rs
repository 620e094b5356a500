//! Texts with special tokens, and parts of texts: which tokens belong to a part.
//!
//! [`SpecialTexts`] finds special tokens as the library `tokenizers` does: the first place, and there the
//! longest. [`Marks`] goes through tokens and parts, both in order.

use std::{collections::BTreeMap, ops::Range};

use crate::{Error, ErrorKind, Result};

/// The texts of special tokens, and their ids.
#[derive(Debug, Clone)]
pub struct SpecialTexts {
    /// The longest first.
    texts: Vec<(Box<str>, u32)>,
    /// The bytes that one may begin with.
    first: [bool; 256],
    /// One that is not found by its text alone.
    odd: Option<String>,
}

impl SpecialTexts {
    /// `odd` names a token that removes the white space around it, or counts as a whole word only.
    pub fn new(special_tokens: &BTreeMap<String, u32>, odd: Option<String>) -> Self {
        let mut texts: Vec<(Box<str>, u32)> =
            special_tokens.iter().map(|(text, &id)| (text.as_str().into(), id)).collect();
        texts.retain(|(text, _)| !text.is_empty());
        texts.sort_by_key(|(text, _)| std::cmp::Reverse(text.len()));
        let mut first = [false; 256];
        texts.iter().for_each(|(text, _)| first[usize::from(text.as_bytes()[0])] = true);
        Self { texts, first, odd }
    }

    /// Checks that each is found by its text alone.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] that names the one that is not.
    pub fn check(&self) -> Result<()> {
        match &self.odd {
            None => Ok(()),
            Some(token) => Err(Error::new(
                ErrorKind::Config,
                format!(
                    "the special token {token:?} of the tokenizer has lstrip, rstrip or single_word, which conversations do not \
                     support; remove these flags from the tokenizer.json"
                ),
            )),
        }
    }

    /// The first special token from `at` on: its place, length and id; the end of the text if there is none.
    pub fn next(&self, text: &str, at: usize) -> (usize, Option<(usize, u32)>) {
        let bytes = text.as_bytes();
        for start in at..bytes.len() {
            if self.first[usize::from(bytes[start])]
                && let Some((found, id)) =
                    self.texts.iter().find(|(special, _)| bytes[start..].starts_with(special.as_bytes()))
            {
                return (start, Some((found.len(), *id)));
            }
        }
        (bytes.len(), None)
    }
}

/// Parts of a text, in order, and the bit of tokens outside of them.
#[derive(Debug)]
pub struct Marks<'a> {
    parts: &'a [Range<usize>],
    masked: u32,
}

impl<'a> Marks<'a> {
    pub fn new(parts: &'a [Range<usize>], masked: u32) -> Self {
        Self { parts, masked }
    }

    /// The bit of a token with these bytes of the text; each begins where the last one did, or after it.
    pub fn bit(&mut self, token: Range<usize>) -> u32 {
        while let [first, rest @ ..] = self.parts
            && first.end <= token.start
        {
            self.parts = rest;
        }
        let is_marked = self.parts.first().is_some_and(|part| part.start < token.end && !token.is_empty());
        if is_marked { 0 } else { self.masked }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_at_the_first_place() {
        let special = [("<a>", 1), ("<a><b>", 2), ("<b>", 3), ("", 4)];
        let special = special.into_iter().map(|(text, id)| (text.to_owned(), id)).collect();
        let texts = SpecialTexts::new(&special, None);
        assert_eq!(texts.next("x<<b><a><b>", 0), (2, Some((3, 3))));
        assert_eq!(texts.next("x<<b><a><b>", 5), (5, Some((6, 2))));
        assert_eq!(texts.next("é<c>", 0), (5, None));
    }

    #[test]
    fn tokens_that_touch_a_part() {
        let parts = [2..4, 4..5, 9..10];
        let mut marks = Marks::new(&parts, 8);
        let tokens = [0..2, 1..3, 3..3, 3..4, 4..6, 6..9, 8..12, 12..13];
        assert_eq!(tokens.map(|token| marks.bit(token)), [8, 0, 8, 0, 0, 8, 0, 8]);
    }
}
