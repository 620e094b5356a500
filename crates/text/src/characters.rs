//! Text to the numbers of its characters, for CTC and for phonemes.
//!
//! Input: text, and a vocabulary of entries of one or more characters. Output: an id for each entry that the
//! text consists of, from left to right; where several entries begin, the longest. The text is neither
//! normalised nor lower-cased. A character that begins no entry is an error that names it, or left out.
//!
//! Source: own.

use crate::{Error, ErrorKind, Result, fallible_alloc, tokenizer::trie::Trie};

/// Ids beside those of the entries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CharactersOptions {
    /// An id that no entry has, such as the blank of CTC: the entries from it on move up by one. At most the
    /// number of entries.
    pub blank: Option<u32>,
    /// An id that is put between two entries of a text, such as the blank between phonemes.
    pub between: Option<u32>,
    /// Whether `between` is also put before the first entry and after the last, as VITS does.
    pub around: bool,
    /// Whether a character that begins no entry is left out; otherwise it is an error.
    pub ignores_unknown: bool,
}

/// Encodes texts to the ids of characters. Immutable.
///
/// ```
/// use forebay_text::{Characters, CharactersOptions};
///
/// let options = CharactersOptions { blank: Some(0), ..Default::default() };
/// let characters = Characters::new(["a", "b", "ch"], &options)?;
/// let mut ids = Vec::new();
/// characters.encode("bach", &mut ids)?;
/// assert_eq!(ids, [2, 1, 3]);
/// # Ok::<(), forebay_base::Error>(())
/// ```
#[derive(Debug)]
pub struct Characters {
    entries: Trie,
    n_entries: usize,
    options: CharactersOptions,
}

impl Characters {
    /// The encoder of a vocabulary. Entry i has the id i; with a blank, i + 1 from the blank's id on. For the
    /// characters of a string pass `string.chars().map(String::from)`.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if the vocabulary is empty or has an entry that is empty or occurs twice, or if
    /// an option is out of range; [`ErrorKind::Memory`].
    pub fn new<T: AsRef<str>>(
        vocabulary: impl IntoIterator<Item = T>,
        options: &CharactersOptions,
    ) -> Result<Self> {
        let vocabulary: Vec<T> = vocabulary.into_iter().collect();
        let config = |message: String| Err(Error::new(ErrorKind::Config, message));
        let n_entries = vocabulary.len();
        if n_entries == 0 || n_entries >= i32::MAX as usize {
            return config(format!(
                "the vocabulary has {n_entries} entries, must have 1 to {}",
                i32::MAX - 1
            ));
        }
        if let Some(blank) = options.blank.filter(|&blank| blank as usize > n_entries) {
            return config(format!("blank is {blank}, must be 0 to {n_entries}, the number of entries"));
        }
        let n_vocab = n_entries + usize::from(options.blank.is_some());
        if let Some(between) = options.between.filter(|&between| between as usize >= n_vocab) {
            return config(format!("between is {between}, must be an id, 0 to {}", n_vocab - 1));
        }
        if options.around && options.between.is_none() {
            return config(
                "around is true, but between is None; pass the id to put around a text".to_owned(),
            );
        }
        let mut sorted: Vec<(&str, usize)> =
            vocabulary.iter().enumerate().map(|(number, entry)| (entry.as_ref(), number)).collect();
        sorted.sort_unstable();
        if let Some((_, number)) = sorted.first().filter(|(entry, _)| entry.is_empty()) {
            return config(format!("entry {number} of the vocabulary is empty, must have a character"));
        }
        if let Some(two) = sorted.windows(2).find(|two| two[0].0 == two[1].0) {
            return config(format!(
                "entries {} and {} of the vocabulary are both {:?}, must differ",
                two[0].1, two[1].1, two[0].0
            ));
        }
        let id = |number: usize| {
            let number = number as u32;
            number + u32::from(options.blank.is_some_and(|blank| number >= blank))
        };
        let entries = sorted.iter().map(|&(entry, number)| (entry.as_bytes(), id(number))).collect();
        Ok(Self { entries: Trie::new(entries)?, n_entries, options: options.clone() })
    }

    /// Appends the ids of `text`.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] for a character that begins no entry, [`ErrorKind::Memory`]. After an error
    /// `ids` is as before.
    pub fn encode(&self, text: &str, ids: &mut Vec<u32>) -> Result<()> {
        let before = ids.len();
        let result = self.append(text, ids);
        if result.is_err() {
            ids.truncate(before);
        }
        result
    }

    fn append(&self, text: &str, ids: &mut Vec<u32>) -> Result<()> {
        let around = self.options.between.filter(|_| self.options.around);
        let mut between = around;
        let mut at = 0;
        while let Some(char) = text[at..].chars().next() {
            let found = self.entries.longest(&text.as_bytes()[at..]);
            if found.is_none() && self.options.ignores_unknown {
                at += char.len_utf8();
                continue;
            }
            let (len, id) = found.ok_or_else(|| self.unknown(text, at, char))?;
            if let Some(between) = between {
                fallible_alloc::push(ids, between)?;
            }
            fallible_alloc::push(ids, id)?;
            between = self.options.between;
            at += len;
        }
        around.map_or(Ok(()), |around| fallible_alloc::push(ids, around))
    }

    /// The error of a character that begins no entry.
    fn unknown(&self, text: &str, at: usize, char: char) -> Error {
        let position = text[..at].chars().count();
        let is_entry = |other: &str| self.entries.longest(other.as_bytes()).is_some();
        let remedy = match (char.to_lowercase().to_string(), char.to_uppercase().to_string()) {
            (small, _) if small.chars().ne([char]) && is_entry(&small) => {
                format!("{small:?} does, so write the text in small letters, or the vocabulary in capitals")
            }
            (_, large) if large.chars().ne([char]) && is_entry(&large) => {
                format!("{large:?} does, so write the text in capitals, or the vocabulary in small letters")
            }
            _ => "add it to the vocabulary, or replace it in the text".to_owned(),
        };
        let message = format!(
            "the character {char:?} (U+{:04X}) at position {position} of the text begins no entry of the vocabulary, which has \
             {}; {remedy}",
            char as u32, self.n_entries
        );
        Error::new(ErrorKind::Corrupt, message)
    }

    /// The number of ids: the entries, and the blank.
    pub fn n_vocab(&self) -> usize {
        self.n_entries + usize::from(self.options.blank.is_some())
    }

    /// The id of an entry.
    pub fn id(&self, entry: &str) -> Option<u32> {
        self.entries.longest(entry.as_bytes()).filter(|(len, _)| *len == entry.len()).map(|(_, id)| id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(characters: &Characters, text: &str) -> Vec<u32> {
        let mut ids = vec![99];
        characters.encode(text, &mut ids).unwrap();
        assert_eq!(ids.remove(0), 99);
        ids
    }

    #[test]
    fn entries_have_their_numbers_beside_the_blank() {
        let vocabulary = ["a", "b", " ", "é", "字"];
        for (blank, expected) in [
            (None, [1, 0, 2, 3, 4]),
            (Some(0), [2, 1, 3, 4, 5]),
            (Some(2), [1, 0, 3, 4, 5]),
            (Some(5), [1, 0, 2, 3, 4]),
        ] {
            let options = CharactersOptions { blank, ..Default::default() };
            let characters = Characters::new(vocabulary, &options).unwrap();
            assert_eq!(encode(&characters, "ba é字"), expected);
            assert_eq!(characters.n_vocab(), 5 + usize::from(blank.is_some()));
            assert_eq!(characters.id("字"), Some(expected[4]));
            assert_eq!(characters.id("ab"), None);
            assert!(encode(&characters, "").is_empty());
        }
    }

    #[test]
    fn the_longest_entry_is_taken() {
        let characters = Characters::new(["t", "ts", "tsch", "s", "c", "h"], &Default::default()).unwrap();
        assert_eq!(encode(&characters, "tschtscttsh"), [2, 1, 4, 0, 1, 5]);
    }

    #[test]
    fn an_id_between_entries() {
        let between = CharactersOptions { blank: Some(0), between: Some(0), ..Default::default() };
        let around = CharactersOptions { around: true, ..between.clone() };
        let vocabulary: Vec<String> = "abc".chars().map(String::from).collect();
        let characters = Characters::new(&vocabulary, &between).unwrap();
        assert_eq!(encode(&characters, "cab"), [3, 0, 1, 0, 2]);
        assert!(encode(&characters, "").is_empty());
        let characters = Characters::new(&vocabulary, &around).unwrap();
        assert_eq!(encode(&characters, "cab"), [0, 3, 0, 1, 0, 2, 0]);
        assert_eq!(encode(&characters, ""), [0]);
    }

    #[test]
    fn an_unknown_character_is_named() {
        let characters = Characters::new(["a", "é", "bc"], &Default::default()).unwrap();
        for (text, part) in [
            ("aéß", "the character 'ß' (U+00DF) at position 2 of the text begins no entry"),
            ("abc\n", "the character '\\n' (U+000A) at position 3"),
            ("é😀", "the character '😀' (U+1F600) at position 1"),
            ("ab", "the character 'b' (U+0062) at position 1"),
        ] {
            let mut ids = vec![7];
            let error = characters.encode(text, &mut ids).unwrap_err();
            assert_eq!((error.kind, &ids[..]), (ErrorKind::Corrupt, &[7][..]));
            assert!(error.message.contains(part), "{error}");
        }
    }

    #[test]
    fn unknown_characters_are_left_out_on_request() {
        let options =
            CharactersOptions { between: Some(0), ignores_unknown: true, ..CharactersOptions::default() };
        let characters = Characters::new(["-", "a", "é", "bc"], &options).unwrap();
        assert_eq!(encode(&characters, "ßa😀bé bc"), [1, 0, 2, 0, 3]);
        assert!(encode(&characters, "ß").is_empty());
    }

    #[test]
    fn wrong_vocabularies_are_refused() {
        let options =
            |blank, between, around| CharactersOptions { blank, between, around, ..Default::default() };
        for (vocabulary, options, part) in [
            (&[][..], options(None, None, false), "the vocabulary has 0 entries"),
            (&["a", ""], options(None, None, false), "entry 1 of the vocabulary is empty"),
            (
                &["a", "b", "a"],
                options(None, None, false),
                "entries 0 and 2 of the vocabulary are both \"a\"",
            ),
            (&["a"], options(Some(2), None, false), "blank is 2, must be 0 to 1"),
            (&["a"], options(None, Some(1), false), "between is 1, must be an id, 0 to 0"),
            (&["a"], options(None, None, true), "around is true"),
        ] {
            let error = Characters::new(vocabulary, &options).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Config);
            assert!(error.message.contains(part), "{error}");
        }
    }
}
