//! Expands what a user names as shards, for every loader, build and command: files, folders, patterns, lists.
//!
//! Input: paths in the user's order. Output: files. The order depends on names alone, never on the system's
//! listing or locale:
//! - A list keeps its order; each entry is expanded in its place.
//! - A folder written by `save_to_disk` stands for the files in its `state.json`, in that order. Other files
//!   in it, such as the `cache-*.arrow` of `map`, are no part of the dataset.
//! - Any other folder stands for all shards below it, in [natural order](natural). Hidden names (`.x`, `_x`),
//!   unfinished files (`x.tmp`) and caches of `map` are left out. All must have one format. A folder of
//!   recordings without shards stands for itself, with the recordings below it, and a folder of Kaldi, Lhotse
//!   or NeMo (`layouts`) for itself, with its tables.
//! - A folder of recordings or their shards that has several splits (`splits`) is an error: mixing them is
//!   for the user to say, by naming them.
//! - A pattern stands for what it matches, in natural order: a file as it is, a folder as above.
//! - A range of numbers, `{000..127}` or as NeMo writes it `_OP_0..127_CL_`, stands for a path of each.
//! - A URL stands for one object. One that ends in `/`, that of a bucket, and a pattern are expanded in the
//!   same way.
//! - An existing path is taken literally, whatever characters it has.
//!
//! The crate `glob` was dropped: its order is that of bytes, and it bounds neither the number of entries nor
//! loops of links.

mod content;
mod names;
mod walk;

use std::{
    collections::HashMap,
    fs,
    path::{self, Path, PathBuf},
    sync::Arc,
};

pub(crate) use names::{RECORDINGS, is_recording};
pub use names::{Reads, natural};
use walk::FolderWalk;
pub(crate) use walk::RecordingFolder;

use crate::{Error, ErrorKind, Result, cancel, fallible_alloc, pattern, storage::Storage, urls};

/// The most names that a range of numbers makes.
const MOST_NUMBERED: usize = 1 << 20;

/// The files that `paths` stand for.
///
/// # Errors
/// [`ErrorKind::NotFound`] for a folder without shards or a pattern without match; [`ErrorKind::Config`] for
/// an invalid pattern, shards of several formats in a folder, too many entries, a loop of links, or a file
/// that a folder or a pattern has and that is named again; [`ErrorKind::Format`] for a folder of several
/// splits, or a `state.json` without shards; [`ErrorKind::Io`]; [`ErrorKind::Closed`] once the work is
/// stopped. A path that does not exist is an error; shards of recordings, and a list of recordings, are left
/// to their storage.
pub fn expand(paths: &[impl AsRef<Path>], reads: Reads, storage: &Arc<dyn Storage>) -> Result<Vec<PathBuf>> {
    expand_folders(paths, reads, storage).map(|(files, _)| files)
}

/// The same, and the folders of recordings among what is found.
///
/// # Errors
/// As [`expand`].
pub(crate) fn expand_folders(
    paths: &[impl AsRef<Path>],
    reads: Reads,
    storage: &Arc<dyn Storage>,
) -> Result<(Vec<PathBuf>, Vec<RecordingFolder>)> {
    let mut walk = FolderWalk::new(reads, storage);
    let mut files = Vec::new();
    fallible_alloc::reserve(&mut files, paths.len())?;
    // The entry that each file is from, and whether it is the entry itself.
    let mut from = Vec::new();
    fallible_alloc::reserve(&mut from, paths.len())?;
    for (entry, path) in paths.iter().map(AsRef::as_ref).enumerate() {
        cancel::check("opening")?;
        match of_range(path)? {
            None => {
                let is_literal = walk.entry(path, paths.len(), &mut files)?;
                fallible_alloc::resize(&mut from, files.len(), (entry, is_literal))?;
            }
            Some(names) => {
                for name in names {
                    walk.entry(Path::new(&name), paths.len().max(2), &mut files)?;
                }
                fallible_alloc::resize(&mut from, files.len(), (entry, false))?;
            }
        }
    }
    // One folder or pattern has a file twice only through a link.
    let is_found = from.iter().any(|(_, is_literal)| !is_literal);
    if walk.has_links || paths.len() > 1 && (is_found || reads != Reads::Recordings) {
        check_twice(&files, &from, paths, reads)?;
    }
    Ok((files, walk.folders))
}

/// The paths of a range of numbers in a path; None for a path without one, and for an existing one.
fn of_range(path: &Path) -> Result<Option<Vec<String>>> {
    let Some(found) = path.to_str().and_then(|text| pattern::numbered(text, MOST_NUMBERED)) else {
        return Ok(None);
    };
    if !urls::is_url(path) && fs::symlink_metadata(path).is_ok() {
        return Ok(None);
    }
    found.map(Some).map_err(|message| Error::new(ErrorKind::Config, message))
}

/// An error if the same file is there twice, links resolved. Recordings that a user names twice, each time by
/// the file's own path, are read twice, as they always were.
fn check_twice(
    files: &[PathBuf],
    from: &[(usize, bool)],
    paths: &[impl AsRef<Path>],
    reads: Reads,
) -> Result<()> {
    let mut seen: HashMap<PathBuf, usize> = HashMap::new();
    seen.try_reserve(files.len()).map_err(|_| {
        Error::new(ErrorKind::Memory, format!("allocation failed for the names of {} files", files.len()))
    })?;
    for (number, file) in files.iter().enumerate() {
        // A missing file is reported when it is opened.
        let real = fs::canonicalize(file).or_else(|_| path::absolute(file)).unwrap_or_else(|_| file.clone());
        let Some(&before) = seen.get(&real) else {
            seen.insert(real, number);
            continue;
        };
        let (one, other) = (from[before], from[number]);
        let is_literal = one.1 && other.1;
        if is_literal && reads == Reads::Recordings {
            continue;
        }
        let named = match files[before] == *file {
            true => format!("the shard {} is given twice", file.display()),
            false => format!("{} and {} are the same file", files[before].display(), file.display()),
        };
        let entry = |(entry, _): (usize, bool)| paths[entry].as_ref().display();
        let by = match () {
            () if is_literal => String::new(),
            () if one.0 == other.0 => format!(", both in {}", entry(one)),
            () => format!(", by {} and by {}", entry(one), entry(other)),
        };
        let message = format!("{named}{by}, so its rows would come twice; name each file once");
        return Err(Error::new(ErrorKind::Config, message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsStr, fs::File};

    use super::{walk::LONGEST_STATE, *};
    use crate::{storage::LocalFiles, tree::DEEPEST};

    /// A folder with these empty files.
    fn folder(names: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in names {
            let file = folder.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            File::create(file).unwrap();
        }
        folder
    }

    fn expand_as(paths: &[PathBuf], reads: Reads) -> Result<Vec<PathBuf>> {
        let storage: Arc<dyn Storage> = Arc::new(LocalFiles);
        expand(paths, reads, &storage)
    }

    /// What `named`, joined by commas, stands for below a folder; or the kind of the error and its message.
    fn found(folder: &Path, named: &str, reads: Reads) -> std::result::Result<String, (ErrorKind, String)> {
        let paths: Vec<PathBuf> = named.split(',').map(|name| folder.join(name)).collect();
        let files = expand_as(&paths, reads).map_err(|error| (error.kind, error.message))?;
        let names = files.iter().map(|file| file.strip_prefix(folder).unwrap().to_str().unwrap().to_owned());
        Ok(names.collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn numbers_are_in_natural_order() {
        let sorted = [
            "A_3",
            "a",
            "a_01",
            "a_1",
            "a_2",
            "a_02_x",
            "a_2_x",
            "a_10",
            "a_99999999999999999999999998",
            "a_99999999999999999999999999",
            "a_x",
            "b",
            "\u{e4}",
        ];
        for (i, one) in sorted.iter().enumerate() {
            for (j, other) in sorted.iter().enumerate() {
                assert_eq!(natural(OsStr::new(one), OsStr::new(other)), i.cmp(&j), "{one} {other}");
            }
        }
        // Names with zeros in front are in the order of their bytes, as they always were.
        let names: Vec<String> = (0..1100).map(|n| format!("shard_{n:05}-of-01100.parquet")).collect();
        assert!(names.windows(2).all(|two| natural(two[0].as_ref(), two[1].as_ref()).is_lt()));
    }

    #[test]
    fn folders_patterns_and_lists() {
        let all = folder(&[
            "shard_10.parquet",
            "shard_2.parquet",
            "b/shard_1.parquet",
            "_hidden/x.parquet",
            ".x.parquet",
            "_x.parquet",
            "late.parquet.tmp",
            "README.md",
            "c/d/shard_3.parquet",
            "[x].parquet",
            "[x]/e.parquet",
        ]);
        let at = |named: &str| found(all.path(), named, Reads::Documents).unwrap();
        let top = "[x]/e.parquet [x].parquet b/shard_1.parquet c/d/shard_3.parquet shard_2.parquet shard_10.parquet";
        assert_eq!(at(""), top);
        assert_eq!(at("**"), top);
        assert_eq!(at("**/*.parquet"), top);
        assert_eq!(at("*.parquet"), "[x].parquet shard_2.parquet shard_10.parquet");
        assert_eq!(at("shard_?.parquet"), "shard_2.parquet");
        assert_eq!(at("shard_[!2]*"), "shard_10.parquet");
        assert_eq!(at("*/d"), "c/d/shard_3.parquet");
        assert_eq!(at("**/d/*"), "c/d/shard_3.parquet");
        assert_eq!(at("[bc]"), "b/shard_1.parquet c/d/shard_3.parquet");
        assert_eq!(at("_*"), "_hidden/x.parquet _x.parquet");
        assert_eq!(at(".*"), ".x.parquet");
        // What is there is taken literally.
        assert_eq!(at("[x].parquet"), "[x].parquet");
        assert_eq!(at("[x]"), "[x]/e.parquet");
        // A list keeps its order.
        assert_eq!(at("shard_10.parquet,b,*_2*"), "shard_10.parquet b/shard_1.parquet shard_2.parquet");
        let (kind, message) = found(all.path(), "b,gone", Reads::Documents).unwrap_err();
        assert!(kind == ErrorKind::NotFound && message.starts_with("cannot open"), "{message}");
        assert_eq!(found(all.path(), "gone", Reads::Recordings).unwrap(), "gone");
    }

    #[test]
    fn nothing_found_says_what_is_there() {
        let all = folder(&["a/1.wav", "a/2.wav", "a/x.txt", "b/.git/x.parquet", "c/x.parquet.tmp", "d/none"]);
        let error = |named: &str| found(all.path(), named, Reads::Recordings).unwrap_err();
        // A folder of recordings stands for itself, where recordings are read.
        assert_eq!(found(all.path(), "a", Reads::Recordings).unwrap(), "a");
        let (kind, message) = found(all.path(), "a", Reads::Documents).unwrap_err();
        assert_eq!(kind, ErrorKind::NotFound);
        assert!(
            message.contains("end in .parquet, found 2 files ending in .wav, 1 ending in .txt"),
            "{message}"
        );
        let expected = "end in .arrow or .parquet, recordings such as .wav, or .tar archives of them, found";
        assert!(error("b,c").1.contains(expected));
        assert!(message.ends_with("; recordings are read by forebay.Loader"), "{message}");
        for hidden in ["b", "c"] {
            assert!(error(hidden).1.contains("found 1 left out (hidden"), "{hidden}");
        }
        assert!(error("d").1.contains("found 1 file without an ending"));
        assert_eq!(error("*.arrow").0, ErrorKind::NotFound);
        assert_eq!(error("gone/*").0, ErrorKind::NotFound);
        for (wrong, why) in
            [("[", "[ has no ]"), ("**.parquet", "** stands between slashes"), ("a/[]/x", "[ has no ]")]
        {
            let (kind, message) = error(wrong);
            assert_eq!(kind, ErrorKind::Config);
            assert!(message.contains(why), "{message}");
        }
    }

    #[test]
    fn one_format_in_a_folder() {
        let all = folder(&["a.arrow", "sub/b.parquet", "c.jsonl.zst", "d.TXT"]);
        let error = |reads| found(all.path(), "", reads).unwrap_err();
        let (kind, message) = error(Reads::Recordings);
        assert_eq!(kind, ErrorKind::Config);
        assert!(message.contains("1 of Arrow, 1 of Parquet; name one kind, as in"), "{message}");
        assert!(error(Reads::Inputs).1.contains("1 of JSON lines, 1 of text"));
        assert_eq!(found(all.path(), "", Reads::Documents).unwrap(), "sub/b.parquet");
        assert_eq!(found(all.path(), "**/*.[ap]*", Reads::Recordings).unwrap(), "a.arrow sub/b.parquet");
    }

    #[test]
    fn a_file_comes_once() {
        let all = folder(&["x/a.arrow", "x/b.arrow", "y/c.arrow"]);
        for twice in ["x,x/a.arrow", "x/a.arrow,x/*", "x/../x/b.arrow,**", "x,x"] {
            let (kind, message) = found(all.path(), twice, Reads::Recordings).unwrap_err();
            assert_eq!(kind, ErrorKind::Config, "{twice}");
            assert!(message.contains("rows would come twice; name each file once"), "{message}");
        }
        let twice = "x/a.arrow,x/a.arrow";
        assert_eq!(found(all.path(), twice, Reads::Recordings).unwrap(), "x/a.arrow x/a.arrow");
        let (_, message) = found(all.path(), twice, Reads::Inputs).unwrap_err();
        assert!(message.starts_with("the shard ") && message.contains("is given twice, so"), "{message}");
    }

    #[cfg(unix)]
    #[test]
    fn links_are_followed_and_end() {
        use std::os::unix::fs::symlink;
        let all = folder(&["a/1.arrow", "b/2.arrow", "c/d/3.arrow"]);
        let at = |name: &str| all.path().join(name);
        symlink(at("b"), at("a/link")).unwrap();
        assert_eq!(found(all.path(), "a", Reads::Recordings).unwrap(), "a/1.arrow a/link/2.arrow");
        assert_eq!(found(all.path(), "a/**/*.arrow", Reads::Recordings).unwrap(), "a/1.arrow a/link/2.arrow");
        let (_, message) = found(all.path(), "", Reads::Recordings).unwrap_err();
        assert!(
            message.contains("a/link/2.arrow and ") && message.contains("are the same file, both in"),
            "{message}"
        );
        symlink(at("c"), at("c/d/up")).unwrap();
        symlink(at("a"), at("b/back")).unwrap();
        for endless in ["c", "c/**/*.arrow", "a", "b"] {
            let (kind, message) = found(all.path(), endless, Reads::Recordings).unwrap_err();
            assert_eq!(kind, ErrorKind::Config, "{endless}");
            assert!(message.contains("which contains it, so there would be no end"), "{message}");
        }
        // A link that leads nowhere is for the reader.
        symlink(at("gone"), at("broken.arrow")).unwrap();
        assert_eq!(found(all.path(), "*.arrow", Reads::Recordings).unwrap(), "broken.arrow");
    }

    #[test]
    fn the_work_is_bounded() {
        let all = folder(&["a.arrow", "b.arrow", "c/d.arrow"]);
        let storage: Arc<dyn Storage> = Arc::new(LocalFiles);
        let mut walk = FolderWalk::new(Reads::Recordings, &storage);
        walk.left = 4;
        let mut files = Vec::new();
        walk.folder(all.path(), &mut files).unwrap();
        assert_eq!((files.len(), walk.left), (3, 0));
        assert!(
            walk.folder(all.path(), &mut files).unwrap_err().message.contains("more than 16777216 files")
        );
        // A pattern looks at each entry once, too.
        (walk.left, files) = (4, Vec::new());
        walk.entry(&all.path().join("**/*.arrow"), 1, &mut files).unwrap();
        assert_eq!((files.len(), walk.left), (3, 0));
        let deep = tempfile::tempdir().unwrap();
        let path = (0..DEEPEST).fold(deep.path().to_owned(), |path, _| path.join("x"));
        fs::create_dir_all(&path).unwrap();
        for named in ["", "**/*.arrow"] {
            assert!(
                found(deep.path(), named, Reads::Recordings).unwrap_err().1.contains("64 folders deep"),
                "{named}"
            );
        }
        let stopped = cancel::during(Some(Arc::new(|| true)), || {
            expand(&[all.path()], Reads::Recordings, &storage).unwrap_err()
        });
        assert_eq!(stopped.kind, ErrorKind::Closed);
    }

    #[test]
    fn caches_of_map_are_left_out() {
        let all = folder(&[
            "x-train.arrow",
            "cache-0123456789abcdef.arrow",
            "cache-0123456789abcdef_00001_of_00004.arrow",
            "cache-of-mine.arrow",
        ]);
        let at = |named: &str| found(all.path(), named, Reads::Recordings).unwrap();
        assert_eq!(at(""), "cache-of-mine.arrow x-train.arrow");
        assert_eq!(at("*.arrow"), "cache-of-mine.arrow x-train.arrow");
        assert_eq!(at("cache-01*f.arrow"), "cache-0123456789abcdef.arrow");
    }

    #[test]
    fn the_state_names_the_shards() {
        let all = folder(&["one/a.arrow", "one/b.arrow", "one/other.arrow", "two/0.arrow"]);
        let state = all.path().join("one/state.json");
        fs::write(&state, r#"{"_data_files": [{"filename": "b.arrow"}, {"filename": "a.arrow"}]}"#).unwrap();
        let at = |named: &str, reads| found(all.path(), named, reads);
        assert_eq!(at("one", Reads::Recordings).unwrap(), "one/b.arrow one/a.arrow");
        // Also as a folder in a folder, and as a match.
        assert_eq!(at("", Reads::Recordings).unwrap(), "one/b.arrow one/a.arrow two/0.arrow");
        assert_eq!(at("*", Reads::Inputs).unwrap(), "one/b.arrow one/a.arrow two/0.arrow");
        let (_, message) = at("one", Reads::Documents).unwrap_err();
        assert!(message.contains("written by save_to_disk") && message.contains("to_parquet"), "{message}");
        fs::write(&state, "{}").unwrap();
        assert_eq!(at("one", Reads::Recordings).unwrap_err().0, ErrorKind::Format);
        fs::write(all.path().join("two/dataset_dict.json"), "{}").unwrap();
        let (kind, message) = at("two", Reads::Recordings).unwrap_err();
        assert_eq!(kind, ErrorKind::Format);
        assert!(message.contains("several splits"), "{message}");
        // Of several splits the error names each, and one is taken.
        let dict = folder(&["dict/dataset_dict.json", "dict/test/state.json", "dict/test/0.arrow"]);
        let state = r#"{"_data_files": [{"filename": "0.arrow"}]}"#;
        fs::write(dict.path().join("dict/test/state.json"), state).unwrap();
        assert_eq!(found(dict.path(), "dict", Reads::Inputs).unwrap(), "dict/test/0.arrow");
        fs::create_dir(dict.path().join("dict/train")).unwrap();
        fs::write(dict.path().join("dict/train/state.json"), state).unwrap();
        let (_, message) = found(dict.path(), "dict", Reads::Recordings).unwrap_err();
        assert!(message.contains("dict/test\", \"") && message.contains("dict/train\""), "{message}");
    }

    #[test]
    fn shards_lie_below_their_folder() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["/etc/hostname", "../a.arrow", "sub/../../a.arrow", "", "."] {
            let state = serde_json::json!({"_data_files": [{"filename": name}]});
            fs::write(folder.path().join("state.json"), state.to_string()).unwrap();
            let error = expand_as(&[folder.path().to_owned()], Reads::Recordings).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Format, "{name}");
            assert!(error.message.contains("not below its folder"), "{error}");
        }
    }

    #[test]
    fn a_state_of_no_real_size_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state.json");
        File::create(&state).unwrap().set_len(LONGEST_STATE + 1).unwrap();
        let error = expand_as(&[folder.path().to_owned()], Reads::Recordings).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Format);
        assert!(error.message.contains("67108865 bytes"), "{error}");
        fs::remove_file(&state).unwrap();
        fs::create_dir(&state).unwrap();
        assert_eq!(
            expand_as(&[folder.path().to_owned()], Reads::Recordings).unwrap_err().kind,
            ErrorKind::Io
        );
    }
}
