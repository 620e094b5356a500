//! Splits the files of a dataset into training and validation.
//!
//! By convention the last file is for validation. Which file is last depends on the files downloaded, so
//! validation files can also be named.

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use crate::{Error, ErrorKind, Result, fallible_alloc, pattern::Pattern};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Split {
    Train,
    Val,
}

/// Selects the files of one part of a dataset. `val` has names, paths or patterns of the validation files;
/// None for the last file.
///
/// # Errors
/// As [`split_documents`]; [`ErrorKind::Format`] for a file that is not Parquet.
pub fn split(files: &[PathBuf], part: Split, val: Option<&[String]>) -> Result<Vec<PathBuf>> {
    files.iter().try_for_each(|file| check_kind(file))?;
    split_documents(files, part, val)
}

/// The same for files of any format of documents.
///
/// # Errors
/// [`ErrorKind::Config`] if there are no files, the part has none, or one of `val` matches none.
pub fn split_documents(files: &[PathBuf], part: Split, val: Option<&[String]>) -> Result<Vec<PathBuf>> {
    if files.is_empty() {
        let message = "there are no files to read; name at least one file";
        return Err(Error::new(ErrorKind::Config, message));
    }
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
            "no files are left to train on: {} is the only file, and the last one is for validation; add files, name \
             the validation files with val=, or pass val=[] to train on all",
            file.display()
        ),
        (Split::Train, _) => {
            format!("no files are left to train on: val= matches all of the {} files", files.len())
        }
        (Split::Val, _) => "there are no files for validation: val= names none".into(),
    };
    Err(Error::new(ErrorKind::Config, message))
}

/// An error for a file of another name than `*.parquet` that does not begin as Parquet does, before anything
/// is said about splits.
fn check_kind(file: &Path) -> Result<()> {
    if file.extension().is_some_and(|ending| ending == "parquet") {
        return Ok(());
    }
    let mut begin = [0; 4];
    // A file that cannot be read is an error of the opening.
    let is_read = File::open(file).and_then(|mut file| file.read_exact(&mut begin)).is_ok();
    if !is_read || &begin == b"PAR1" {
        return Ok(());
    }
    let message = format!(
        "{} is not Parquet; texts in other files are read by forebay.TokenLoader, and by forebay.cache.build or `forebay build`, \
         which make a cache of token ids",
        file.display()
    );
    Err(Error::new(ErrorKind::Format, message))
}

/// Whether each file matches `pattern`, by its name, or by its path if the pattern has several components.
fn matching(files: &[PathBuf], pattern: &str) -> Result<Vec<bool>> {
    let compiled = Pattern::new(pattern).map_err(|why| {
        Error::new(ErrorKind::Config, format!("val={pattern:?} is not a valid pattern: {why}"))
    })?;
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

#[cfg(test)]
mod tests {
    use super::*;
    fn names(files: &[PathBuf]) -> Vec<&str> {
        files.iter().map(|file| file.file_name().unwrap().to_str().unwrap()).collect()
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
        for (which, val) in [
            (Split::Val, &[][..]),
            (Split::Train, &["*"]),
            (Split::Val, &["d.parquet"]),
            (Split::Val, &["["]),
        ] {
            assert_eq!(part(which, Some(val)).unwrap_err().kind, ErrorKind::Config);
        }
        assert_eq!(split(&[], Split::Val, None).unwrap_err().kind, ErrorKind::Config);
    }

    #[test]
    fn an_only_file_leaves_nothing_to_train_on() {
        let files = [PathBuf::from("a.parquet")];
        assert_eq!(split(&files, Split::Val, None).unwrap(), files);
        let error = split(&files, Split::Train, None).unwrap_err();
        assert!(error.message.contains("only file") && error.message.contains("val="), "{error}");
    }
}
