//! Normalises a text as the model was trained: replaces characters by the model's map, and marks spaces.
//!
//! Input: text. Output: UTF-8, in which U+2581 stands for a space. The map (`precompiled_charsmap`) is a
//! double-array trie from strings of characters to offsets of their replacements; the longest string that
//! begins at a place is replaced. A user-defined piece is never changed. Runs of ASCII that no rule concerns
//! are copied.
//!
//! The map is a claim of the file: [`Normalizer::new`] walks the whole trie once and checks each replacement,
//! so that encoding cannot fail on it. A rule that ends within a character is left out.
//!
//! Source: Kudo, Richardson, "SentencePiece" (2018), section 3.2; the layout of Darts-clone's units (Aoe, "An
//! efficient digital search algorithm by using a double-array structure", 1989). The rules for spaces:
//! observed.

use super::{super::trie::Trie, proto::NormalizerFields};
use crate::{Error, ErrorKind, Result, fallible_alloc};

/// The mark of a space.
pub const SPACE: &str = "\u{2581}";

/// The most units of a trie: 16 MiB. The map of NFKC with case folding has 0.1 million.
const MAX_UNITS: usize = 1 << 22;

/// The longest replacement, bytes. The longest of NFKC has 33.
const MAX_REPLACEMENT: usize = 1 << 10;

/// What a byte of a text is to the normaliser, if ASCII or nothing comes after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ByteClass {
    /// Copied.
    Plain,
    /// A space that no rule changes.
    Space,
    /// A rule may begin here.
    Rule,
}

/// The rules of a model.
#[derive(Debug)]
pub struct Normalizer {
    map: Option<CharsMap>,
    classes: [ByteClass; 256],
    add_dummy_prefix: bool,
    remove_extra_whitespaces: bool,
    /// What a space becomes.
    space: &'static str,
    has_suffix: bool,
}

impl Normalizer {
    /// The normaliser of a model; `user_defined` are the pieces that are never changed.
    ///
    /// # Errors
    /// [`ErrorKind::Format`] if the map is damaged, [`ErrorKind::Memory`].
    pub fn new(fields: &NormalizerFields<'_>, user_defined: &Trie, has_suffix: bool) -> Result<Self> {
        let map = match fields.precompiled {
            [] => None,
            bytes => Some(CharsMap::new(bytes)?),
        };
        let mut classes = [ByteClass::Rule; 256];
        for (byte, class) in (0..=127).zip(&mut classes) {
            if !user_defined.begins_with(byte) && map.as_ref().is_none_or(|map| !map.changes_ascii(byte)) {
                *class = if byte == b' ' { ByteClass::Space } else { ByteClass::Plain };
            }
        }
        Ok(Self {
            map,
            classes,
            add_dummy_prefix: fields.add_dummy_prefix,
            remove_extra_whitespaces: fields.remove_extra_whitespaces,
            space: if fields.escape_whitespaces { SPACE } else { " " },
            has_suffix,
        })
    }

    /// Whether a decoded text begins with the space that is put before each text, or lost its own.
    pub fn drops_first_space(&self) -> (bool, bool) {
        (self.add_dummy_prefix || self.remove_extra_whitespaces, self.remove_extra_whitespaces)
    }

    /// Replaces `out` by the normalised `text`, which is UTF-8.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] if it has 4 GiB or more, [`ErrorKind::Memory`].
    pub fn normalize(&self, text: &str, user_defined: &Trie, out: &mut Vec<u8>) -> Result<()> {
        out.clear();
        let mut at = 0;
        if self.remove_extra_whitespaces {
            while let Some((" ", len)) = self.rule(text, at, user_defined) {
                at += len;
            }
        }
        if at == text.len() {
            return Ok(());
        }
        fallible_alloc::grow(out, text.len() - at + 2 * SPACE.len())?;
        if self.add_dummy_prefix && !self.has_suffix {
            out.extend_from_slice(self.space.as_bytes());
        }
        let bytes = text.as_bytes();
        let mut is_after_space = self.remove_extra_whitespaces;
        while at < bytes.len() {
            let run = bytes[at..].iter().take_while(|&&byte| self.class(byte) == ByteClass::Plain).count();
            let next = bytes.get(at + run);
            // A mark after the run may belong to its last character.
            let run = run - usize::from(run > 0 && next.is_some_and(|byte| !byte.is_ascii()));
            if run > 0 {
                append(out, &bytes[at..at + run])?;
                at += run;
                is_after_space = false;
                continue;
            }
            if next == Some(&b' ')
                && self.class(b' ') == ByteClass::Space
                && bytes.get(at + 1).is_none_or(u8::is_ascii)
            {
                if !is_after_space {
                    append(out, self.space.as_bytes())?;
                }
                is_after_space = self.remove_extra_whitespaces;
                at += 1;
                continue;
            }
            let Some((new, len)) = self.rule(text, at, user_defined) else { break };
            at += len;
            let new = if is_after_space { new.trim_start_matches(' ') } else { new };
            if new.is_empty() {
                continue;
            }
            is_after_space = self.remove_extra_whitespaces && new.ends_with(' ');
            for (number, part) in new.split(' ').enumerate() {
                if number > 0 {
                    append(out, self.space.as_bytes())?;
                }
                append(out, part.as_bytes())?;
            }
        }
        if self.remove_extra_whitespaces {
            while out.ends_with(self.space.as_bytes()) {
                out.truncate(out.len() - self.space.len());
            }
        }
        if self.add_dummy_prefix && self.has_suffix {
            append(out, self.space.as_bytes())?;
        }
        Ok(())
    }

    fn class(&self, byte: u8) -> ByteClass {
        self.classes[usize::from(byte)]
    }

    /// What the text at `at` becomes, and the bytes of it that are replaced; None at the end.
    fn rule<'a>(&'a self, text: &'a str, at: usize, user_defined: &Trie) -> Option<(&'a str, usize)> {
        let rest = &text[at..];
        let first = rest.chars().next()?;
        if let Some((len, _)) = user_defined.longest(rest.as_bytes()) {
            return Some((&rest[..len], len));
        }
        match self.map.as_ref().and_then(|map| map.longest(rest)) {
            Some(found) => Some(found),
            None => Some((&rest[..first.len_utf8()], first.len_utf8())),
        }
    }
}

fn append(out: &mut Vec<u8>, bytes: &[u8]) -> Result<()> {
    if out.len() + bytes.len() > super::super::MAX_TEXT {
        let message = "the normalised text has 4 GiB or more, expected less; cut the text";
        return Err(Error::new(ErrorKind::TooLarge, message));
    }
    fallible_alloc::grow(out, bytes.len())?;
    out.extend_from_slice(bytes);
    Ok(())
}

/// A unit of the double array: bits 0 to 7 the byte that leads to it, bit 8 whether a string ends at it, bits
/// 10 to 31 the distance of its children, by 256 if bit 9 is set. Of a unit for the end of a string: bit 31,
/// and the value.
#[derive(Debug, Clone, Copy)]
struct TrieUnit(u32);

impl TrieUnit {
    fn is_end(self) -> bool {
        self.0 >> 8 & 1 == 1
    }

    fn value(self) -> u32 {
        self.0 & 0x7FFF_FFFF
    }

    /// Never a byte for the end of a string.
    fn label(self) -> u32 {
        self.0 & 0x8000_00FF
    }

    fn distance(self) -> usize {
        ((self.0 >> 10) << ((self.0 >> 9 & 1) * 8)) as usize
    }
}

#[derive(Debug)]
struct CharsMap {
    units: Vec<TrieUnit>,
    /// The replacements, each ended by NUL.
    strings: String,
    /// Whether a rule begins with this ASCII character, and consists of it or continues with ASCII.
    ascii: [bool; 128],
}

impl CharsMap {
    /// Reads the bytes of the trie and their number before them, and the replacements.
    fn new(bytes: &[u8]) -> Result<Self> {
        let damaged = |message: String| {
            let message =
                format!("the SentencePiece model's map of characters (precompiled_charsmap) {message}");
            Error::new(ErrorKind::Format, message)
        };
        let (len, rest) = bytes
            .split_first_chunk::<4>()
            .ok_or_else(|| damaged(format!("has {} bytes, expected at least 4", bytes.len())))?;
        let len = u32::from_le_bytes(*len) as usize;
        if len > rest.len() || !len.is_multiple_of(4) || len == 0 {
            return Err(damaged(format!(
                "has a trie of {len} bytes, expected a multiple of 4 up to the {} that are left",
                rest.len()
            )));
        }
        if len / 4 > MAX_UNITS {
            return Err(damaged(format!("has a trie of {} units, at most {MAX_UNITS} are read", len / 4)));
        }
        let (trie, strings) = rest.split_at(len);
        let mut units = fallible_alloc::with_room(len / 4)?;
        units.extend(trie.as_chunks::<4>().0.iter().map(|unit| TrieUnit(u32::from_le_bytes(*unit))));
        let strings = std::str::from_utf8(strings)
            .map_err(|_| damaged("has replacements that are not UTF-8".into()))?;
        if let Some(long) = strings.split('\0').find(|string| string.len() > MAX_REPLACEMENT) {
            return Err(damaged(format!(
                "has a replacement of {} bytes, at most {MAX_REPLACEMENT} are read",
                long.len()
            )));
        }
        let mut owned = String::new();
        owned.try_reserve_exact(strings.len()).map_err(|_| fallible_alloc::refused(strings.len()))?;
        owned.push_str(strings);
        let mut map = Self { units, strings: owned, ascii: [false; 128] };
        map.check().map_err(damaged)?;
        map.find_ascii();
        Ok(map)
    }

    fn unit(&self, at: usize) -> Option<TrieUnit> {
        self.units.get(at).copied()
    }

    /// The child of the node whose children are at `base`, by `byte`.
    #[inline]
    fn child(&self, base: usize, byte: u8) -> Option<(usize, TrieUnit)> {
        let at = base ^ usize::from(byte);
        let unit = self.unit(at)?;
        (unit.label() == u32::from(byte)).then_some((at, unit))
    }

    /// Visits each node once and checks the replacement of each string that ends there.
    fn check(&self) -> std::result::Result<(), String> {
        // bounded: by the units.
        let mut is_seen = vec![false; self.units.len()];
        let mut open = vec![(0, self.units[0])];
        while let Some((at, unit)) = open.pop() {
            let base = at ^ unit.distance();
            if at != 0 && unit.is_end() {
                let end =
                    self.unit(base).ok_or_else(|| format!("has no unit {base}, to which unit {at} leads"))?;
                if self.strings.get(end.value() as usize..).is_none() {
                    return Err(format!(
                        "has a replacement at byte {} of {}, expected the start of a character",
                        end.value(),
                        self.strings.len()
                    ));
                }
            }
            for byte in 0..=255 {
                if let Some((child, unit)) = self.child(base, byte)
                    && !std::mem::replace(&mut is_seen[child], true)
                {
                    open.push((child, unit));
                }
            }
        }
        Ok(())
    }

    fn find_ascii(&mut self) {
        let root = self.units[0].distance();
        for byte in 0..128 {
            let Some((at, unit)) = self.child(root, byte) else { continue };
            let base = at ^ unit.distance();
            self.ascii[usize::from(byte)] =
                unit.is_end() || (0..128).any(|next| self.child(base, next).is_some());
        }
    }

    /// Whether a rule concerns this ASCII character before ASCII, or at the end.
    fn changes_ascii(&self, byte: u8) -> bool {
        self.ascii.get(usize::from(byte)).is_none_or(|&changes| changes)
    }

    /// The replacement of the longest string that `text` begins with, and the bytes of that.
    fn longest(&self, text: &str) -> Option<(&str, usize)> {
        let mut base = self.units[0].distance();
        let mut longest = None;
        for (number, &byte) in text.as_bytes().iter().enumerate() {
            let Some((at, unit)) = self.child(base, byte) else { break };
            base = at ^ unit.distance();
            if unit.is_end() && text.is_char_boundary(number + 1) {
                longest = Some((self.unit(base)?.value() as usize, number + 1));
            }
        }
        let (value, len) = longest?;
        let new = self.strings.get(value..)?;
        Some((new.split_once('\0').map_or(new, |(new, _)| new), len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A trie with the one key "a", whose replacement is at `value`.
    fn one_key(value: u32, strings: &[u8]) -> Vec<u8> {
        // The children of the root are at 256, that of "a" at 512.
        let mut units = vec![0u32; 768];
        units[0] = 256 << 10;
        let a = 256 ^ usize::from(b'a');
        units[a] = ((a ^ 512) as u32) << 10 | 1 << 8 | u32::from(b'a');
        units[512] = 1 << 31 | value;
        let bytes = units.iter().flat_map(|unit| unit.to_le_bytes());
        (units.len() as u32 * 4)
            .to_le_bytes()
            .into_iter()
            .chain(bytes)
            .chain(strings.iter().copied())
            .collect()
    }

    #[test]
    fn a_map_is_a_claim() {
        let map = CharsMap::new(&one_key(2, b"x\0yz\0")).unwrap();
        assert_eq!(map.longest("ab"), Some(("yz", 1)));
        assert_eq!(map.longest("b"), None);
        assert!(map.changes_ascii(b'a') && !map.changes_ascii(b'b'));
        let many = 4 * MAX_UNITS as u32 + 4;
        for (bytes, part) in [
            (vec![1, 2], "has 2 bytes, expected at least 4"),
            (vec![0; 8], "has a trie of 0 bytes"),
            (
                vec![8, 0, 0, 0, 1, 2, 3, 4],
                "has a trie of 8 bytes, expected a multiple of 4 up to the 4 that are left",
            ),
            (vec![3, 0, 0, 0, 1, 2, 3, 4], "has a trie of 3 bytes"),
            (one_key(5, b"x\0yz"), "has a replacement at byte 5 of 4"),
            (one_key(1, "é\0".as_bytes()), "has a replacement at byte 1 of 3"),
            (one_key(0, b"\xFF"), "not UTF-8"),
            (one_key(0, &[b'x'; 2000]), "has a replacement of 2000 bytes, at most 1024"),
            (many.to_le_bytes().into_iter().chain(vec![0; many as usize]).collect(), "4194305 units"),
        ] {
            let error = CharsMap::new(&bytes).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Format);
            assert!(error.message.contains(part), "{error}");
        }
    }

    #[test]
    fn a_trie_with_a_cycle_ends() {
        let mut bytes = one_key(0, b"x\0");
        // The child of "a" is "a" again.
        let a = 256 ^ usize::from(b'a');
        let unit = ((a ^ 256) as u32) << 10 | u32::from(b'a');
        bytes[4 + 4 * a..8 + 4 * a].copy_from_slice(&unit.to_le_bytes());
        let map = CharsMap::new(&bytes).unwrap();
        assert_eq!(map.longest(&"a".repeat(1000)), None);
    }
}
