//! Scanners that split text into pieces, for the patterns that nearly every byte-level tokenizer uses.
//!
//! A tokenizer first splits its text by a regular expression, and a general matcher takes most of its time.
//! Few patterns are in use, so each has a scanner that reads a piece once, from left to right. Pieces tile
//! the text: a scanner returns the end of the piece that begins at `at`.
//!
//! Every scanner gives the same pieces as its pattern as a regular expression; tests compare them on random
//! text of many scripts.
//!
//! Source: the patterns published with the vocabularies, quoted at each scanner.

use super::classes::{CharClasses, HEAD, LETTER, NEWLINE, NUMBER, SPACE, TAIL};

pub trait Scanner {
    /// The end of the piece that begins at `at`; `at` must be before the end of the text.
    fn end(&self, text: &str, at: usize) -> usize;
}

/// `'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
#[derive(Clone, Copy)]
pub struct Gpt2(&'static CharClasses);

/// `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,DIGITS}|
/// ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+`
///
/// `WHOLE`: all white space at the end of the text is one piece (`\s++$` before the last three).
#[derive(Clone, Copy)]
pub struct Cl100k<const DIGITS: usize, const WHOLE: bool>(&'static CharClasses);

/// `[^\r\n\p{L}\p{N}]?[HEAD]*[TAIL]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?`
/// `|[^\r\n\p{L}\p{N}]?[HEAD]+[TAIL]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?`
/// `|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
#[derive(Clone, Copy)]
pub struct O200k(&'static CharClasses);

impl Default for Gpt2 {
    fn default() -> Self {
        Self(CharClasses::get())
    }
}

impl<const DIGITS: usize, const WHOLE: bool> Default for Cl100k<DIGITS, WHOLE> {
    fn default() -> Self {
        Self(CharClasses::get())
    }
}

impl Default for O200k {
    fn default() -> Self {
        Self(CharClasses::get())
    }
}

impl Scanner for Gpt2 {
    #[inline]
    fn end(&self, text: &str, at: usize) -> usize {
        let Self(classes) = self;
        let bytes = text.as_bytes();
        let start = at + usize::from(bytes[at] == b' ');
        let letters = letters(classes, text, start);
        if letters > start {
            return letters;
        }
        if bytes[at] == b'\''
            && let Some(end) = contraction(bytes, at, false)
        {
            return end;
        }
        match classes.at(text, start) {
            Some((class, n)) if class & NUMBER != 0 => {
                run(classes, text, start + n, |class| class & NUMBER != 0)
            }
            Some((class, n)) if class & SPACE == 0 => run(classes, text, start + n, is_other),
            _ => spaces(classes, text, at).before_last(at, text.len()),
        }
    }
}

impl<const DIGITS: usize, const WHOLE: bool> Scanner for Cl100k<DIGITS, WHOLE> {
    #[inline]
    fn end(&self, text: &str, at: usize) -> usize {
        let Self(classes) = self;
        let bytes = text.as_bytes();
        if bytes[at] == b'\''
            && let Some(end) = contraction(bytes, at, true)
        {
            return end;
        }
        // The most frequent case first: letters, with or without a space before them.
        let start = at + usize::from(bytes[at] == b' ');
        let end = letters(classes, text, start);
        if end > start {
            return end;
        }
        let Some((class, n)) = classes.at(text, at) else { return text.len() };
        if class & NUMBER != 0 {
            return digits(classes, text, at, DIGITS);
        }
        if class & NEWLINE == 0 {
            let end = letters(classes, text, at + n);
            if end > at + n {
                return end;
            }
        }
        match classes.at(text, start) {
            Some((class, n)) if is_other(class) => {
                let end = run(classes, text, start + n, is_other);
                end + bytes[end..].iter().take_while(|&&byte| matches!(byte, b'\r' | b'\n')).count()
            }
            _ => {
                let spaces = spaces(classes, text, at);
                match spaces.newline {
                    Some(newline) if !(WHOLE && spaces.end == text.len()) => newline,
                    _ => spaces.before_last(at, text.len()),
                }
            }
        }
    }
}

impl Scanner for O200k {
    #[inline]
    fn end(&self, text: &str, at: usize) -> usize {
        let Self(classes) = self;
        let bytes = text.as_bytes();
        let Some((class, n)) = classes.at(text, at) else { return text.len() };
        let inner = if class & (LETTER | NUMBER | NEWLINE) == 0 { at + n } else { at };
        // Each form of a word is tried with the character before it, then without.
        let words = [
            self.with_tail(text, inner),
            if inner > at { self.with_tail(text, at) } else { None },
            self.with_head(text, inner),
            if inner > at { self.with_head(text, at) } else { None },
        ];
        if let Some(end) = words.into_iter().flatten().next() {
            return match bytes.get(end) {
                Some(b'\'') => contraction(bytes, end, true).unwrap_or(end),
                _ => end,
            };
        }
        if class & NUMBER != 0 {
            return digits(classes, text, at, 3);
        }
        let start = at + usize::from(bytes[at] == b' ');
        match classes.at(text, start) {
            Some((class, n)) if is_other(class) => {
                let end = run(classes, text, start + n, is_other);
                end + bytes[end..].iter().take_while(|&&byte| matches!(byte, b'\r' | b'\n' | b'/')).count()
            }
            _ => {
                let spaces = spaces(classes, text, at);
                spaces.newline.unwrap_or_else(|| spaces.before_last(at, text.len()))
            }
        }
    }
}

impl O200k {
    /// The end of `[HEAD]*[TAIL]+` at `at`.
    fn with_tail(&self, text: &str, at: usize) -> Option<usize> {
        let Self(classes) = self;
        // The end of the last head character that is also a tail.
        let mut both = None;
        let mut end = at;
        while let Some((class, n)) = classes.at(text, end)
            && class & HEAD != 0
        {
            end += n;
            if class & TAIL != 0 {
                both = Some(end);
            }
        }
        let tail = run(classes, text, end, |class| class & TAIL != 0);
        if tail > end { Some(tail) } else { both }
    }

    /// The end of `[HEAD]+[TAIL]*` at `at`.
    fn with_head(&self, text: &str, at: usize) -> Option<usize> {
        let Self(classes) = self;
        let head = run(classes, text, at, |class| class & HEAD != 0);
        (head > at).then(|| run(classes, text, head, |class| class & TAIL != 0))
    }
}

fn is_other(class: u8) -> bool {
    class & (LETTER | NUMBER | SPACE) == 0
}

/// The end of the run of characters of a class that begins at `at`.
#[inline]
fn run(classes: &CharClasses, text: &str, mut at: usize, is: impl Fn(u8) -> bool) -> usize {
    while let Some((class, n)) = classes.at(text, at)
        && is(class)
    {
        at += n;
    }
    at
}

/// The end of the run of letters that begins at `at`.
#[inline]
fn letters(classes: &CharClasses, text: &str, mut at: usize) -> usize {
    let bytes = text.as_bytes();
    while let Some(chunk) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let n = leading_letters(u64::from_le_bytes(*chunk));
        at += n;
        if n < 8 {
            return if bytes[at] < 0x80 { at } else { run(classes, text, at, |class| class & LETTER != 0) };
        }
    }
    run(classes, text, at, |class| class & LETTER != 0)
}

/// The number of leading ASCII letters of eight bytes, from the lowest on.
#[inline]
fn leading_letters(bytes: u64) -> usize {
    const EACH: u64 = 0x0101_0101_0101_0101;
    const TOP: u64 = 0x80 * EACH;
    let small = (bytes | (0x20 * EACH)) & !TOP;
    // The top bits of each byte: at least `a`; more than `z`.
    let from_a = small + (0x80 - b'a' as u64) * EACH;
    let after_z = small + (0x80 - b'z' as u64 - 1) * EACH;
    let letters = from_a & !after_z & !bytes & TOP;
    ((!letters & TOP).trailing_zeros() / 8) as usize
}

/// The end of the numbers from `at` on, at most `most` of them.
fn digits(classes: &CharClasses, text: &str, mut at: usize, most: usize) -> usize {
    for _ in 0..most {
        match classes.at(text, at) {
            Some((class, n)) if class & NUMBER != 0 => at += n,
            _ => break,
        }
    }
    at
}

/// The end of `'s`, `'t`, `'re`, `'ve`, `'m`, `'ll` or `'d` at `at`, which must be an apostrophe.
#[inline]
fn contraction(bytes: &[u8], at: usize, any_case: bool) -> Option<usize> {
    let fold = |byte: u8| if any_case { byte.to_ascii_lowercase() } else { byte };
    let first = *bytes.get(at + 1)?;
    let second = bytes.get(at + 2).copied().unwrap_or(0);
    match (fold(first), fold(second)) {
        (b's' | b'd' | b'm' | b't', _) => Some(at + 2),
        (b'l', b'l') | (b'v' | b'r', b'e') => Some(at + 3),
        // The long s, U+017F, folds to an s, too.
        _ if any_case && (first, second) == (0xC5, 0xBF) => Some(at + 3),
        _ => None,
    }
}

struct Spaces {
    end: usize,
    /// The start of its last character.
    last: usize,
    /// The end of its last line break.
    newline: Option<usize>,
}

fn spaces(classes: &CharClasses, text: &str, at: usize) -> Spaces {
    let mut spaces = Spaces { end: at, last: at, newline: None };
    while let Some((class, n)) = classes.at(text, spaces.end)
        && class & SPACE != 0
    {
        spaces.last = spaces.end;
        spaces.end += n;
        if class & NEWLINE != 0 {
            spaces.newline = Some(spaces.end);
        }
    }
    spaces
}

impl Spaces {
    /// The end of `\s+(?!\S)|\s+`: of all but the last character; of all, if there is only one or the text
    /// ends.
    fn before_last(&self, at: usize, len: usize) -> usize {
        if self.last > at && self.end < len { self.last } else { self.end }
    }
}
