//! Splits of a folder, by the names that its files and folders have on hubs of datasets.
//!
//! Input: the files that a folder stands for. Output: the names of their splits, and what a user writes to
//! have one. A name has a split if a word of it is one of [`WORDS`]: in `train-00000-of-00002.parquet` and
//! `xc_test_5s-00000-of-00001.arrow` the words up to the numbers, in `dev.parquet` a word of the name, in
//! `default/train/0000.parquet` a word of a folder's name. Words after that word belong to it (`test_5s` is
//! not `test`), but not numbers (`train_1` and `train_2` are one split).
//!
//! Source: the naming of splits in the documentation of `datasets`.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    path::{Path, PathBuf},
};

use super::pattern::Pattern;

/// Words that name a split, and the split.
const WORDS: [(&str, &str); 10] = [
    ("train", "train"),
    ("training", "train"),
    ("validation", "validation"),
    ("valid", "validation"),
    ("val", "validation"),
    ("dev", "validation"),
    ("test", "test"),
    ("testing", "test"),
    ("eval", "test"),
    ("evaluation", "test"),
];
/// The most splits that a message names.
const SHOWN: usize = 8;

/// The message for a folder of shards with several splits; `None` for a folder with one.
pub(super) fn of_shards(folder: &Path, files: &[PathBuf]) -> Option<String> {
    let mut splits = BTreeMap::<String, Vec<&Path>>::new();
    for file in files {
        if let Some(split) = split_of(file.strip_prefix(folder).unwrap_or(file)) {
            splits.entry(split).or_default().push(file);
        }
    }
    told(folder, &splits, |split| named(folder, &splits[split], files))
}

/// The same for a folder of recordings, where only the folders directly in it are splits.
pub(super) fn of_recordings(folder: &Path, files: &[PathBuf]) -> Option<String> {
    let mut splits = BTreeMap::<String, Vec<&Path>>::new();
    for file in files {
        let mut parts = file.strip_prefix(folder).unwrap_or(file).iter();
        let (first, is_folder) = (parts.next().and_then(OsStr::to_str), parts.next().is_some());
        let is_word = |name: &&str| WORDS.iter().any(|(word, _)| name.eq_ignore_ascii_case(word));
        if let Some(name) = first.filter(is_word).filter(|_| is_folder) {
            splits.entry(name.to_owned()).or_default().push(file);
        }
    }
    told(folder, &splits, |split| folder.join(split).display().to_string())
}

fn told(
    folder: &Path,
    splits: &BTreeMap<String, Vec<&Path>>,
    named: impl Fn(&str) -> String,
) -> Option<String> {
    if splits.len() < 2 {
        return None;
    }
    let names: Vec<&str> = splits.keys().map(String::as_str).collect();
    let each: Vec<String> = names.iter().take(SHOWN).map(|split| format!("{:?}", named(split))).collect();
    let more = if names.len() > SHOWN { ", ..." } else { "" };
    let shown = names.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
    Some(format!(
        "{} has the splits {shown}{more}, which are not mixed unless you name them; pass one of {}{more}, or several of \
         them as a list",
        folder.display(),
        each.join(", "),
    ))
}

/// The split of a file, by its path below the folder.
fn split_of(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_string_lossy();
    let stem = name.split('.').next().unwrap_or_default();
    let of_file = match before_numbers(stem) {
        Some(split) => word(split, true),
        None => word(stem, false),
    };
    let folders = || path.parent()?.iter().rev().find_map(|folder| word(&folder.to_string_lossy(), true));
    of_file.or_else(folders)
}

/// What is in front of `-00000-of-00002`.
fn before_numbers(stem: &str) -> Option<&str> {
    let (front, rest) = stem.split_once("-of-")?;
    let (split, number) = front.rsplit_once('-')?;
    let is_number = |text: &str| text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    (is_number(number) && rest.get(..5).is_some_and(is_number)).then_some(split)
}

/// The first word of a name that names a split, with the words after it if they belong to it.
fn word(name: &str, with_more: bool) -> Option<String> {
    let lower = name.to_lowercase();
    let mut words = lower.split(|letter: char| !letter.is_alphanumeric());
    let split = words.find_map(|found| {
        let found = found.trim_matches(|letter: char| letter.is_ascii_digit());
        WORDS.iter().find_map(|&(word, split)| (word == found).then_some(split))
    })?;
    let is_number = |word: &&str| {
        let word =
            ["part", "shard", "chunk"].iter().find_map(|start| word.strip_prefix(start)).unwrap_or(word);
        word.bytes().all(|byte| byte.is_ascii_digit())
    };
    let more = words.filter(|_| with_more).filter(|word| !is_number(word));
    Some(std::iter::once(split).chain(more).collect::<Vec<_>>().join("_"))
}

/// What to pass for these of the files below a folder: a folder, a pattern, or else the first of them.
fn named(folder: &Path, some: &[&Path], all: &[PathBuf]) -> String {
    let Some((&first, rest)) = some.split_first() else { return String::new() };
    let parent = first.parent().unwrap_or(Path::new(""));
    let in_parent = |file: &Path| file.parent() == Some(parent);
    let is_one = |file: &PathBuf| some.contains(&file.as_path());
    let is_together = some.iter().all(|file| in_parent(file));
    if is_together && parent != folder && all.iter().all(|file| file.starts_with(parent) == is_one(file)) {
        return parent.display().to_string();
    }
    if rest.is_empty() {
        return first.display().to_string();
    }
    let names: Vec<_> = some.iter().filter_map(|file| file.file_name()?.to_str()).collect();
    let (start, end) = (common(&names, false), common(&names, true));
    let start = start.split('.').next().unwrap_or_default();
    let start = start.trim_end_matches(|letter: char| letter.is_ascii_digit());
    // Of `-of-00002.parquet` the ending is enough.
    let end = end.find('.').map_or("", |at| &end[at..]);
    let pattern = format!("{start}*{end}");
    let matches = |file: &PathBuf| {
        let name = file.file_name().and_then(OsStr::to_str);
        name.zip(Pattern::new(&pattern).ok()).is_some_and(|(name, pattern)| pattern.matches(name))
    };
    if all.iter().filter(|file| !is_together || in_parent(file)).all(|file| matches(file) == is_one(file)) {
        let at = if is_together { parent.to_owned() } else { folder.join("**") };
        return at.join(&pattern).display().to_string();
    }
    // In folders of one name: `default/train`, `other/train`.
    let name = parent.file_name();
    let is_in = |file: &Path| file.parent().and_then(Path::file_name) == name;
    match name {
        Some(name) if all.iter().all(|file| is_in(file) == is_one(file)) => {
            folder.join("**").join(name).join(format!("*{end}")).display().to_string()
        }
        _ => first.display().to_string(),
    }
}

/// What all names begin with, or end in.
fn common<'a>(names: &[&'a str], at_end: bool) -> &'a str {
    let Some((&first, rest)) = names.split_first() else { return "" };
    let is_common = |part: &str| {
        rest.iter().all(|name| if at_end { name.ends_with(part) } else { name.starts_with(part) })
    };
    let cuts = first.char_indices().map(|(at, _)| at).chain([first.len()]);
    match at_end {
        true => cuts.map(|at| &first[at..]).find(|part| is_common(part)).unwrap_or(""),
        false => cuts.rev().map(|at| &first[..at]).find(|part| is_common(part)).unwrap_or(""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_splits() {
        for (path, split) in [
            ("data/train-00000-of-00002.parquet", Some("train")),
            ("data/train-00000-of-00002-0123456789abcdef.parquet", Some("train")),
            ("bird_set-test_5s-00000-of-00001.arrow", Some("test_5s")),
            ("default/partial-train/0000.parquet", Some("train")),
            ("test-clean/0000.parquet", Some("test_clean")),
            ("train_1/a.arrow", Some("train")),
            ("train_part2/a.arrow", Some("train")),
            ("xc.dev.parquet", None),
            ("dev.parquet", Some("validation")),
            ("Eval_of_all_7.parquet", Some("test")),
            ("train/test-0.parquet", Some("test")),
            ("test/data-00000-of-00001.arrow", Some("test")),
            ("training_set/x.arrow", Some("train_set")),
            ("trains/testimony.arrow", None),
            ("data-00000-of-00001.arrow", None),
            ("a-1-of-2.arrow", None),
        ] {
            assert_eq!(split_of(Path::new(path)).as_deref(), split, "{path}");
        }
    }

    fn told_of(files: &[&str]) -> Option<String> {
        let files: Vec<PathBuf> = files.iter().map(|file| Path::new("top").join(file)).collect();
        of_shards(Path::new("top"), &files)
    }

    #[test]
    fn one_split_is_taken() {
        assert_eq!(told_of(&[]), None);
        assert_eq!(told_of(&["a.arrow", "b.arrow"]), None);
        assert_eq!(told_of(&["train-0.parquet", "train-1.parquet", "more.parquet"]), None);
        assert_eq!(told_of(&["train/0000.parquet", "b/train/0000.parquet"]), None);
    }

    #[test]
    fn what_to_pass_for_a_split() {
        for (files, expected) in [
            (
                &[
                    "data/test-00000-of-00001.parquet",
                    "data/train-00000-of-00002.parquet",
                    "data/train-00001-of-00002.parquet",
                ][..],
                &["top/data/test-00000-of-00001.parquet", "top/data/train-*.parquet"][..],
            ),
            (
                &[
                    "test-00000-of-00002.arrow",
                    "test-00001-of-00002.arrow",
                    "test_5s-00000-of-00002.arrow",
                    "test_5s-00001-of-00002.arrow",
                ],
                &["top/test-*.arrow", "top/test_5s-*.arrow"],
            ),
            (
                &["test/0000.parquet", "test/0001.parquet", "train/0000.parquet", "train/0001.parquet"],
                &["top/test", "top/train"],
            ),
            (
                &["a/test/0.parquet", "a/train/0.parquet", "b/test/0.parquet", "b/train/0.parquet"],
                &["top/**/test/*.parquet", "top/**/train/*.parquet"],
            ),
            (
                &["a/test-0.parquet", "a/train-0.parquet", "b/test-0.parquet", "b/train-0.parquet"],
                &["top/**/test-*.parquet", "top/**/train-*.parquet"],
            ),
        ] {
            let message = told_of(files).unwrap();
            for expected in expected {
                assert!(message.contains(&format!("{expected:?}")), "{expected}: {message}");
            }
        }
    }

    #[test]
    fn folders_of_recordings() {
        let told = |files: &[&str]| {
            let files: Vec<PathBuf> = files.iter().map(|file| Path::new("top").join(file)).collect();
            of_recordings(Path::new("top"), &files)
        };
        assert_eq!(told(&["owl/1.wav", "train/1.wav", "train.wav", "x/test/1.wav"]), None);
        let message = told(&["train/owl/1.wav", "test/owl/1.wav"]).unwrap();
        assert!(message.contains(r#""top/test", "top/train""#), "{message}");
    }
}
