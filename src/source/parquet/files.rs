//! Lists the files of a dataset, and splits them into training and validation.
//!
//! Files are sorted by path, so that a dataset is the same on every machine. By convention the last file is
//! for validation. Which file is last depends on the files downloaded, so validation files can also be named.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use glob::Pattern;

use crate::{Error, ErrorKind, Result, fallible_alloc};

/// A part of a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Split {
    /// Training.
    Train,
    /// Validation.
    Val,
}

/// Lists the files that `paths` stand for, each once, sorted by path.
///
/// Each path is a folder (its files ending in `.parquet` are listed), a pattern with `*`, `?`, `[...]` or
/// `**`, or a file. Files ending in `.tmp` are left out: they are still being written.
///
/// # Errors
/// [`ErrorKind::NotFound`] for a folder without such files, a pattern that matches none, or a single path
/// that does not exist; [`ErrorKind::Config`] for no paths, or an invalid pattern; [`ErrorKind::Io`].
pub fn list_files(paths: &[impl AsRef<Path>]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths.iter().map(AsRef::as_ref) {
        let before = files.len();
        if path.is_dir() {
            for entry in fs::read_dir(path).map_err(|error| Error::io(path, "list", error))? {
                let file = entry.map_err(|error| Error::io(path, "list", error))?.path();
                if ends_with(&file, ".parquet") {
                    files.push(file);
                }
            }
        } else if let Some(pattern) = path.to_str().filter(|path| path.contains(['*', '?', '['])) {
            if path.exists() {
                files.push(path.to_owned());
                continue;
            }
            for file in glob::glob(pattern).map_err(|error| unreadable(pattern, error))? {
                files.push(file.map_err(|error| {
                    let path = error.path().to_owned();
                    Error::io(&path, "list", error.into())
                })?);
            }
            files.retain(|file| !ends_with(file, ".tmp"));
        } else if paths.len() == 1 && !path.exists() {
            let message = format!("there is no file or folder {}", path.display());
            return Err(Error {
                file: Some(Arc::new(path.to_owned())),
                ..Error::new(ErrorKind::NotFound, message)
            });
        } else {
            files.push(path.to_owned());
            continue;
        }
        if files.len() == before {
            let message = format!("there are no Parquet files in {}", path.display());
            return Err(Error::new(ErrorKind::NotFound, message));
        }
    }
    files.retain(|file| !ends_with(file, ".tmp"));
    files.sort_unstable_by(|a, b| a.as_os_str().cmp(b.as_os_str()));
    files.dedup();
    match files.is_empty() {
        true => {
            Err(Error::new(ErrorKind::Config, "there are no files to read; name at least one Parquet file"))
        }
        false => Ok(files),
    }
}

/// Selects the files of one part of a dataset. `val` has names, paths or patterns of the validation files;
/// None for the last file.
///
/// # Errors
/// [`ErrorKind::Config`] if the part has no files, or one of `val` matches none.
pub fn split(files: &[PathBuf], part: Split, val: Option<&[String]>) -> Result<Vec<PathBuf>> {
    let is_val: Vec<bool> = match val {
        None => (1..=files.len()).map(|n| n == files.len()).collect(),
        Some(patterns) => {
            let mut is_val = Vec::new();
            fallible_alloc::resize(&mut is_val, files.len(), false)?;
            for pattern in patterns {
                let matches = matching(files, pattern)?;
                if !matches.contains(&true) {
                    let message = format!(
                        "val={pattern:?} matches none of the {} files; the last is {}",
                        files.len(),
                        files.last().map_or("none".into(), |file| file.display().to_string())
                    );
                    return Err(Error::new(ErrorKind::Config, message));
                }
                is_val.iter_mut().zip(matches).for_each(|(is, now)| *is |= now);
            }
            is_val
        }
    };
    let wanted = files.iter().zip(is_val).filter(|(_, is_val)| *is_val == (part == Split::Val));
    let wanted: Vec<_> = wanted.map(|(file, _)| file.clone()).collect();
    if !wanted.is_empty() {
        return Ok(wanted);
    }
    let message = match (part, files) {
        (Split::Train, [file]) if val.is_none() => format!(
            "no files are left to train on: {} is the only file, and the last one is for validation; add files, or name \
             the validation files with val=",
            file.display()
        ),
        (Split::Train, _) => {
            format!("no files are left to train on: val= matches all of the {} files", files.len())
        }
        (Split::Val, _) => "there are no files for validation: val= names none".into(),
    };
    Err(Error::new(ErrorKind::Config, message))
}

/// Whether each file matches `pattern`, by its name, or by its path if the pattern has several components.
fn matching(files: &[PathBuf], pattern: &str) -> Result<Vec<bool>> {
    let compiled = Pattern::new(pattern).map_err(|error| unreadable(pattern, error))?;
    let is_path = Path::new(pattern).components().nth(1).is_some();
    let is_match = |file: &PathBuf| {
        let subject = if is_path { Some(file.as_os_str()) } else { file.file_name() };
        subject.is_some_and(|subject| {
            let subject = subject.to_string_lossy();
            subject == pattern || compiled.matches(&subject)
        })
    };
    Ok(files.iter().map(is_match).collect())
}

fn ends_with(file: &Path, end: &str) -> bool {
    file.file_name().is_some_and(|name| name.as_encoded_bytes().ends_with(end.as_bytes()))
}

fn unreadable(pattern: &str, error: glob::PatternError) -> Error {
    Error::new(ErrorKind::Config, format!("{pattern:?} is not a valid pattern")).because(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    fn folder(names: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        names.iter().for_each(|name| drop(File::create(folder.path().join(name)).unwrap()));
        folder
    }

    fn names(files: &[PathBuf]) -> Vec<&str> {
        files.iter().map(|file| file.file_name().unwrap().to_str().unwrap()).collect()
    }

    #[test]
    fn folders_patterns_and_lists() {
        let all = ["b.parquet", "a.parquet", "c.parquet.tmp", "d.txt", "B.parquet", "[x].parquet"];
        let folder = folder(&all);
        let at = |name: &str| folder.path().join(name);
        let sorted = ["B.parquet", "[x].parquet", "a.parquet", "b.parquet"];
        assert_eq!(names(&list_files(&[folder.path()]).unwrap()), sorted);
        assert_eq!(names(&list_files(&[at("*.parquet*")]).unwrap()), sorted);
        assert_eq!(names(&list_files(&[at("[ab].parquet")]).unwrap()), ["a.parquet", "b.parquet"]);
        assert_eq!(names(&list_files(&[at("[x].parquet")]).unwrap()), ["[x].parquet"]);
        let list = ["b.parquet", "c.parquet.tmp", "a.parquet", "b.parquet", "gone.parquet"].map(at);
        assert_eq!(names(&list_files(&list).unwrap()), ["a.parquet", "b.parquet", "gone.parquet"]);
    }

    #[test]
    fn nothing_found_is_an_error() {
        let folder = folder(&["a.parquet.tmp", "b.arrow"]);
        let kind = |path: &Path| list_files(&[path]).unwrap_err().kind;
        assert_eq!(kind(folder.path()), ErrorKind::NotFound);
        assert_eq!(kind(&folder.path().join("*.parquet")), ErrorKind::NotFound);
        assert_eq!(kind(&folder.path().join("gone")), ErrorKind::NotFound);
        assert_eq!(kind(&folder.path().join("[")), ErrorKind::Config);
        assert_eq!(kind(&folder.path().join("a.parquet.tmp")), ErrorKind::Config);
        assert_eq!(list_files(&[] as &[&Path]).unwrap_err().kind, ErrorKind::Config);
    }

    #[test]
    fn the_last_file_is_for_validation() {
        let files = ["x/a.parquet", "x/b.parquet", "y/c.parquet"].map(PathBuf::from);
        let part = |part, val: Option<&[&str]>| {
            let val: Option<Vec<String>> = val.map(|val| val.iter().map(|name| name.to_string()).collect());
            split(&files, part, val.as_deref()).map(|files| names(&files).concat())
        };
        assert_eq!(part(Split::Train, None).unwrap(), "a.parquetb.parquet");
        assert_eq!(part(Split::Val, None).unwrap(), "c.parquet");
        for pinned in ["a.parquet", "[a].parquet", "x/a*", "x/a.parquet"] {
            assert_eq!(part(Split::Val, Some(&[pinned])).unwrap(), "a.parquet", "{pinned}");
            assert_eq!(part(Split::Train, Some(&[pinned])).unwrap(), "b.parquetc.parquet");
        }
        assert_eq!(part(Split::Val, Some(&["a.parquet", "c*"])).unwrap(), "a.parquetc.parquet");
        assert_eq!(part(Split::Train, Some(&[])).unwrap(), "a.parquetb.parquetc.parquet");
        for (which, val) in [(Split::Val, &[][..]), (Split::Train, &["*"]), (Split::Val, &["d.parquet"])] {
            assert_eq!(part(which, Some(val)).unwrap_err().kind, ErrorKind::Config);
        }
    }

    #[test]
    fn an_only_file_leaves_nothing_to_train_on() {
        let files = [PathBuf::from("a.parquet")];
        assert_eq!(split(&files, Split::Val, None).unwrap(), files);
        let error = split(&files, Split::Train, None).unwrap_err();
        assert!(error.message.contains("only file") && error.message.contains("val="), "{error}");
    }
}
