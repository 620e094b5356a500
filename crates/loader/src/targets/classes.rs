//! Classes: their names and numbers, from a list, the class names in a schema, or the values of a column.
//! Named sources whose schemas have other names share their classes.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use crate::{
    Error, ErrorKind, Result,
    fields::{DataType, Value},
};

pub const MOST_CLASSES: usize = 1 << 20;

/// Where the classes of a target come from.
#[derive(Debug, Clone, PartialEq)]
pub enum ClassSource {
    /// The schema, if it has names; otherwise numbers are taken as they are.
    Any,
    Schema,
    /// The values in the data, sorted.
    Data,
    /// These names, in this order.
    Names(Arc<Vec<String>>),
    /// The numbers below this one.
    Count(u64),
}

/// A value in a column of classes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    Number(i64),
    Name(Arc<str>),
}

impl Key {
    /// The number that a whole float is; `None` for other floats.
    pub fn of_float(number: f64) -> Option<Self> {
        DataType::Int64.holds_real(number).then_some(Self::Number(number as i64))
    }

    /// The keys of a value: one, or those of a list's items; nulls have none.
    pub fn of(value: &Value, separator: Option<&str>, each: &mut dyn FnMut(Self)) {
        match (value, separator) {
            (Value::Int(number), _) => each(Self::Number(*number)),
            (Value::Text(text), Some(separator)) => {
                parts(text, separator).for_each(|part| each(Self::Name(part.into())));
            }
            (Value::Text(text), None) => each(Self::Name(text.clone())),
            (Value::List(items), _) => items.iter().for_each(|item| Self::of(item, None, each)),
            _ => {}
        }
    }
}

fn parts<'a>(text: &'a str, separator: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(separator).map(str::trim).filter(|part| !part.is_empty())
}

#[derive(Debug, Clone, Default)]
pub struct ClassVocabulary {
    /// The names by number; `None` if classes have only numbers.
    pub(super) names: Option<Arc<Vec<String>>>,
    /// The number of classes; `None` if any number is a class.
    pub(super) n: Option<u64>,
    pub(super) by_key: HashMap<Key, u32>,
    /// The classes by the numbers of the column.
    pub(super) maps: Maps,
    /// Whether the numbers of a column are the names of classes, and not their places in the list.
    pub(super) are_numbers_names: bool,
}

/// For each source, the classes by its numbers; `None`: they are the same.
pub(super) type Maps = Vec<Option<Arc<[i64]>>>;

impl ClassVocabulary {
    /// Classes with these names; `what` names them in messages.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a name that is given twice, none at all, or too many.
    pub fn of_names(names: Arc<Vec<String>>, what: &str) -> Result<Self> {
        let refused = |message: String| Err(Error::new(ErrorKind::Config, message));
        if names.is_empty() {
            return refused(format!("{what} has no names, must have at least one"));
        }
        if names.len() > MOST_CLASSES {
            return refused(format!("{what} has {} names, at most {MOST_CLASSES} are possible", names.len()));
        }
        let mut by_key = HashMap::new();
        for (number, name) in (0..).zip(names.iter()) {
            if by_key.insert(Key::Name(name.as_str().into()), number).is_some() {
                return refused(format!("{what} has {name:?} twice"));
            }
        }
        let n = Some(names.len() as u64);
        Ok(Self { names: Some(names), n, by_key, ..Self::default() })
    }

    /// Unites the names of the sources; a name keeps the number that it has in the first source that has it.
    pub(super) fn united(sources: &[Option<Arc<Vec<String>>>], what: &str) -> Result<Option<Self>> {
        let mut lists = sources.iter().flatten();
        let Some(first) = lists.next() else { return Ok(None) };
        if lists.all(|names| names == first) {
            return Self::of_names(first.clone(), what).map(Some);
        }
        let mut names = Vec::new();
        let mut seen = BTreeSet::new();
        for name in sources.iter().flatten().flat_map(|names| names.iter()) {
            if seen.insert(name.as_str()) {
                names.push(name.clone());
            }
        }
        let mut united = Self::of_names(Arc::new(names), what)?;
        united.maps = united.maps_of(sources);
        Ok(Some(united))
    }

    /// Takes the numbers of a column as names, if some of the names are whole numbers.
    pub(super) fn name_numbers(&mut self) {
        let named = |(name, class): (&String, u32)| {
            let number: i64 = name.parse().ok()?;
            (number.to_string() == *name).then_some((Key::Number(number), class))
        };
        let named: Vec<_> =
            self.names.iter().flat_map(|names| names.iter().zip(0..)).filter_map(named).collect();
        self.are_numbers_names = !named.is_empty();
        self.by_key.extend(named);
    }

    /// The classes by the numbers of each source, whose names may differ.
    pub(super) fn maps_of(&self, sources: &[Option<Arc<Vec<String>>>]) -> Maps {
        let map = |names: &Arc<Vec<String>>| {
            let class = |name: &String| {
                let class = self.by_key.get(&Key::Name(name.as_str().into()));
                class.map_or(UNKNOWN, |&class| class.into())
            };
            let map: Arc<[i64]> = names.iter().map(class).collect();
            let is_same = map.iter().zip(0..).all(|(&class, number)| class == number);
            (!is_same || self.are_numbers_names).then_some(map)
        };
        sources.iter().map(|names| names.as_ref().and_then(map)).collect()
    }

    /// The class of a key in a source, whose numbers `maps` knows; `None` if it is none.
    pub(super) fn class(&self, key: &Key, maps: &Maps, source: usize) -> Option<i64> {
        let number = match (key, maps.get(source)) {
            (&Key::Number(number), Some(Some(map))) => {
                *map.get(usize::try_from(number).ok()?).filter(|&&class| class != UNKNOWN)?
            }
            (&Key::Number(number), _) if !self.are_numbers_names => number,
            _ => return self.by_key.get(key).map(|&class| class.into()),
        };
        match self.n {
            Some(n) => u64::try_from(number).ok().filter(|&number| number < n).map(|_| number),
            None => Some(number),
        }
    }

    pub(super) fn expected(&self) -> String {
        match (&self.names, self.n) {
            (Some(names), _) => {
                let shown: Vec<_> = names.iter().take(5).map(|name| format!("{name:?}")).collect();
                let more = if names.len() > shown.len() { ", ..." } else { "" };
                match names.len() {
                    1 => format!("the only class is {}", shown[0]),
                    n => format!("the {n} classes are {}{more}", shown.join(", ")),
                }
            }
            (None, Some(1)) => "the only class is 0".to_owned(),
            (None, Some(n)) => format!("the classes are 0 to {}", n.saturating_sub(1)),
            (None, None) => "any number is a class, but no name".to_owned(),
        }
    }

    /// The separator in a name that is unknown, but has known classes between separators.
    pub(super) fn separator(&self, key: &Key) -> Option<char> {
        let Key::Name(name) = key else { return None };
        let is_class = |part: &str| self.by_key.contains_key(&Key::Name(part.trim().into()));
        SEPARATORS
            .into_iter()
            .find(|&separator| name.contains(separator) && name.split(separator).any(is_class))
    }
}

/// A name of a source that is no class.
pub(super) const UNKNOWN: i64 = -1;

/// The characters with which people join several names in one cell.
const SEPARATORS: [char; 3] = [';', '|', ','];

/// The character that joins several names in many of these, if one seems to; and in how many.
///
/// Some of the parts must be names too, or, unless they are joined by commas, parts of several: a comma is
/// part of names such as "Tit, Great".
pub fn joined_names(names: &[String]) -> Option<(char, usize)> {
    SEPARATORS.into_iter().find_map(|separator| {
        let joined: Vec<_> = names.iter().filter(|name| name.contains(separator)).collect();
        let whole: HashSet<&str> = names.iter().map(String::as_str).collect();
        let mut parts = HashMap::new();
        for part in joined.iter().flat_map(|name| name.split(separator)) {
            *parts.entry(part.trim()).or_insert(0) += 1;
        }
        parts.remove("");
        let is_name = |(part, n): (&&str, &i32)| whole.contains(part) || separator != ',' && *n > 1;
        (joined.len() > 1 && parts.iter().any(is_name)).then_some((separator, joined.len()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Arc<Vec<String>> {
        Arc::new(names.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn names_that_seem_to_be_joined() {
        let found = |names: &[&str]| joined_names(&names.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(found(&["owl", "owl;wren", "wren; jay", "jay"]), Some((';', 2)));
        assert_eq!(found(&["owl|wren", "wren|jay"]), Some(('|', 2)));
        assert_eq!(found(&["owl", "owl, wren", "wren,jay"]), Some((',', 2)));
        // One name with the character, names that have it themselves, and no such name.
        assert_eq!(found(&["owl", "owl;wren", "wren"]), None);
        assert_eq!(found(&["Tit, Great", "Tit, Blue", "Owl, Tawny"]), None);
        assert_eq!(found(&["a;b", "c;d"]), None);
        assert_eq!(found(&["owl", "wren"]), None);
    }

    #[test]
    fn names_of_sources_are_united_and_keep_their_numbers() {
        let sources = [Some(names(&["owl", "wren"])), None, Some(names(&["finch", "owl"]))];
        let united = ClassVocabulary::united(&sources, "classes").unwrap().unwrap();
        assert_eq!(**united.names.as_ref().unwrap(), ["owl", "wren", "finch"]);
        let of = |number, source| united.class(&Key::Number(number), &united.maps, source);
        assert_eq!([of(0, 0), of(1, 0), of(0, 2), of(1, 2)], [Some(0), Some(1), Some(2), Some(0)]);
        assert_eq!([of(2, 2), of(-1, 2), of(3, 0), of(2, 1)], [None, None, None, Some(2)]);
        assert_eq!(united.class(&Key::Name("finch".into()), &united.maps, 0), Some(2));
        assert!(ClassVocabulary::united(&[None, None], "classes").unwrap().is_none());
    }

    #[test]
    fn a_list_of_names_must_be_one() {
        for (wrong, told) in [(&["a", "b", "a"][..], "\"a\" twice"), (&[], "no names")] {
            let error = ClassVocabulary::of_names(names(wrong), "classes").unwrap_err();
            assert!(error.message.contains(told), "{error}");
        }
    }

    #[test]
    fn separated_names_are_trimmed() {
        let mut found = Vec::new();
        Key::of(&Value::Text(" a, b,,c ,".into()), Some(","), &mut |key| found.push(key));
        assert_eq!(found, ["a", "b", "c"].map(|name| Key::Name(name.into())));
    }

    #[test]
    fn numbers_are_names_where_names_are_numbers() {
        let of = |list: &[&str], number| {
            let mut vocabulary = ClassVocabulary::of_names(names(list), "classes").unwrap();
            vocabulary.name_numbers();
            vocabulary.class(&Key::Number(number), &vocabulary.maps, 0)
        };
        assert_eq!([of(&["1", "2", "3"], 1), of(&["1", "2", "3"], 3)], [Some(0), Some(2)]);
        assert_eq!([of(&["1", "2", "3"], 0), of(&["-1", "10", "x"], 10)], [None, Some(1)]);
        assert_eq!([of(&["-1", "10", "x"], -1), of(&["-1", "10", "x"], 2)], [Some(0), None]);
        // A column with "007" is one of text, so 7 is another name.
        assert_eq!([of(&["007", "owl"], 7), of(&["007", "owl"], 1)], [None, Some(1)]);
        // Where a column has names, its numbers are theirs.
        let mut vocabulary = ClassVocabulary::of_names(names(&["1", "2", "3"]), "classes").unwrap();
        vocabulary.name_numbers();
        let maps = vocabulary.maps_of(&[Some(names(&["1", "2", "3"])), Some(names(&["3", "1"]))]);
        let of = |number, source| vocabulary.class(&Key::Number(number), &maps, source);
        assert_eq!([of(1, 0), of(0, 1), of(1, 1), of(3, 0)], [Some(1), Some(2), Some(0), None]);
    }

    #[test]
    fn lists_of_names_map_the_numbers_of_each_source() {
        let vocabulary = ClassVocabulary::of_names(names(&["wren", "owl"]), "classes").unwrap();
        let maps = vocabulary.maps_of(&[
            Some(names(&["owl", "wren"])),
            Some(names(&["wren", "owl"])),
            None,
            Some(names(&["emu", "owl"])),
        ]);
        let of = |number, source| vocabulary.class(&Key::Number(number), &maps, source);
        assert_eq!([of(0, 0), of(1, 0), of(0, 1), of(1, 2)], [Some(1), Some(0), Some(0), Some(1)]);
        assert_eq!([of(0, 3), of(1, 3), of(2, 3), of(2, 1)], [None, Some(1), None, None]);
    }
}
