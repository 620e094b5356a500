//! The classes of characters in tokenizers' patterns: `\p{L}`, `\p{N}`, `\s` and the parts of `\p{L}`.
//!
//! The tables are built from those of the `regex` crates once per process, so scanners and regular
//! expressions always have the same Unicode version.
//!
//! Source: own (two-stage table).

use regex_syntax::hir::{Class, HirKind};

use crate::fork_lock::OnceLock;

/// `\p{L}`.
pub(crate) const LETTER: u8 = 1;
/// `\p{N}`.
pub(crate) const NUMBER: u8 = 2;
/// `\s`.
pub(crate) const SPACE: u8 = 4;
/// `[\r\n]`.
pub(crate) const NEWLINE: u8 = 8;
/// `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`: the characters that may begin a word in capitals.
pub const HEAD: u8 = 16;
/// `[\p{Ll}\p{Lm}\p{Lo}\p{M}]`: the characters of a word in lower case.
pub const TAIL: u8 = 32;

const PATTERNS: [(&str, u8); 6] = [
    (r"\p{L}", LETTER),
    (r"\p{N}", NUMBER),
    (r"\s", SPACE),
    (r"[\r\n]", NEWLINE),
    (r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", HEAD),
    (r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]", TAIL),
];

const PAGE: usize = 256;

pub struct CharClasses {
    ascii: [u8; 128],
    /// The index in `classes` for each 256 code points.
    pages: Vec<u16>,
    classes: Vec<[u8; PAGE]>,
}

static CLASSES: OnceLock<CharClasses> = OnceLock::new();

impl CharClasses {
    /// The tables, built at the first call.
    pub fn get() -> &'static Self {
        CLASSES.get_or_init(Self::new)
    }

    fn new() -> Self {
        // bounded: by Unicode, 1 MiB.
        let mut flat = vec![0; char::MAX as usize + 1];
        for (pattern, class) in PATTERNS {
            for (first, last) in ranges(pattern) {
                flat[first as usize..=last as usize].iter_mut().for_each(|it| *it |= class);
            }
        }
        let mut classes: Vec<[u8; PAGE]> = Vec::new();
        let mut pages = Vec::new();
        for chunk in flat.chunks_exact(PAGE) {
            let known = classes.iter().position(|page| page == chunk);
            pages.push(known.unwrap_or(classes.len()) as u16);
            if known.is_none() {
                let mut page = [0; PAGE];
                page.copy_from_slice(chunk);
                classes.push(page);
            }
        }
        let mut ascii = [0; 128];
        ascii.copy_from_slice(&flat[..128]);
        Self { ascii, pages, classes }
    }

    /// The classes of a character, as bits.
    #[inline]
    pub fn of(&self, char: char) -> u8 {
        let code = char as usize;
        self.classes[usize::from(self.pages[code / PAGE])][code % PAGE]
    }

    /// The classes of the character that begins at `at`, and its length; `None` at the end.
    #[inline]
    pub fn at(&self, text: &str, at: usize) -> Option<(u8, usize)> {
        let &byte = text.as_bytes().get(at)?;
        match self.ascii.get(usize::from(byte)) {
            Some(&class) => Some((class, 1)),
            None => text[at..].chars().next().map(|char| (self.of(char), char.len_utf8())),
        }
    }
}

/// The ranges of code points that a pattern of one class matches.
fn ranges(pattern: &str) -> Vec<(char, char)> {
    let hir = regex_syntax::parse(pattern).map(regex_syntax::hir::Hir::into_kind);
    match hir {
        Ok(HirKind::Class(Class::Unicode(class))) => {
            class.ranges().iter().map(|range| (range.start(), range.end())).collect()
        }
        // There are six constant patterns, and a test parses each.
        other => unreachable!("{pattern} is {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_what_the_patterns_mean() {
        let classes = CharClasses::get();
        let of = |char| classes.of(char);
        assert_eq!(of('a'), LETTER | TAIL);
        assert_eq!(of('A'), LETTER | HEAD);
        assert_eq!(of('字'), LETTER | HEAD | TAIL);
        assert_eq!(of('\u{301}'), HEAD | TAIL);
        assert_eq!(of('²'), NUMBER);
        assert_eq!(of('٣'), NUMBER);
        assert_eq!(of('\n'), SPACE | NEWLINE);
        assert_eq!(of('\u{a0}'), SPACE);
        assert_eq!(of('\u{85}'), SPACE);
        assert_eq!(of('\u{200d}'), 0);
        assert_eq!(of('\''), 0);
        assert_eq!(of(char::MAX), 0);
    }

    #[test]
    fn at_reads_any_character() {
        let text = "a\u{3000}²";
        let classes = CharClasses::get();
        assert_eq!(classes.at(text, 0), Some((LETTER | TAIL, 1)));
        assert_eq!(classes.at(text, 1), Some((SPACE, 3)));
        assert_eq!(classes.at(text, 4), Some((NUMBER, 2)));
        assert_eq!(classes.at(text, 6), None);
    }
}
