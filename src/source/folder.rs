//! Expands folders written by `save_to_disk` to the lists of their shards.
//!
//! The `state.json` of such a folder names its files in order. The folder itself is not listed, since other
//! files in it, such as the `cache-*.arrow` of `map`, are no part of the dataset.

use std::{
    path::{Component, Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use serde_json::Value;

use crate::{
    Error, ErrorKind, Result, fallible_alloc,
    source::storage::{Storage, StoredFile},
};

/// The longest `state.json` that is read: some hundred thousand shards.
const LONGEST_STATE: u64 = 64 << 20;

/// The paths, with each folder replaced by its shards.
///
/// # Errors
/// [`ErrorKind::Format`] for a folder that is no dataset, [`ErrorKind::Io`], [`ErrorKind::Closed`] once
/// `stop` is set.
pub(crate) fn expand(
    storage: &Arc<dyn Storage>,
    paths: &[PathBuf],
    stop: &AtomicBool,
) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    fallible_alloc::reserve(&mut files, paths.len())?;
    for path in paths {
        if stop.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Closed, "opening was stopped"));
        }
        if path.is_dir() {
            files.extend(shards_of(storage, path)?);
        } else {
            files.push(path.clone());
        }
    }
    Ok(files)
}

fn shards_of(storage: &Arc<dyn Storage>, folder: &Path) -> Result<Vec<PathBuf>> {
    let state: Arc<Path> = folder.join("state.json").into();
    let file = match StoredFile::open(storage, &state) {
        Ok(file) => file,
        Err(error) if error.kind == ErrorKind::NotFound => return Err(not_a_dataset(folder)),
        Err(error) => return Err(error),
    };
    let size = file.size();
    if size > LONGEST_STATE {
        let message = format!(
            "{} has {size} bytes, at most {LONGEST_STATE} are read; pass the shards as a list of files",
            state.display()
        );
        return Err(Error::new(ErrorKind::Format, message));
    }
    let mut json = fallible_alloc::zero_bytes(size as usize)?;
    file.read_exact(&mut json, 0)?;
    let wrong = || {
        let message =
            format!("{} lists no shards under _data_files; pass them as a list of files", state.display());
        Error::new(ErrorKind::Format, message)
    };
    let parsed: Value = serde_json::from_slice(&json).map_err(|error| wrong().because(error))?;
    let files = parsed.get("_data_files").and_then(Value::as_array).ok_or_else(wrong)?;
    let mut shards = Vec::new();
    fallible_alloc::reserve(&mut shards, files.len())?;
    for file in files {
        let name = file.get("filename").and_then(Value::as_str).ok_or_else(wrong)?;
        // Shards must be below the folder: a file elsewhere would not belong to the dataset.
        if name.is_empty() || !Path::new(name).components().all(|part| matches!(part, Component::Normal(_))) {
            let message = format!(
                "{} names the shard {name:?}, which is not below its folder; pass the shards as a list of files",
                state.display()
            );
            return Err(Error::new(ErrorKind::Format, message));
        }
        shards.push(folder.join(name));
    }
    Ok(shards)
}

fn not_a_dataset(folder: &Path) -> Error {
    let message = if folder.join("dataset_dict.json").is_file() {
        format!("{} holds several splits; pass the folder of one split", folder.display())
    } else {
        format!(
            "{} is a folder without state.json, so save_to_disk did not write it; pass the shards in it as a list of files",
            folder.display()
        )
    };
    Error::new(ErrorKind::Format, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::LocalFiles;
    use std::fs::{self, File};

    fn expand_one(folder: &Path, stop: bool) -> Result<Vec<PathBuf>> {
        let storage: Arc<dyn Storage> = Arc::new(LocalFiles);
        expand(&storage, &[folder.to_owned()], &AtomicBool::new(stop))
    }

    #[test]
    fn the_state_names_the_shards() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state.json");
        fs::write(&state, r#"{"_data_files": [{"filename": "b.arrow"}, {"filename": "a.arrow"}]}"#).unwrap();
        let shards = expand_one(folder.path(), false).unwrap();
        assert_eq!(shards, ["b.arrow", "a.arrow"].map(|name| folder.path().join(name)));
        assert_eq!(expand_one(folder.path(), true).unwrap_err().kind, ErrorKind::Closed);
        fs::write(&state, "{}").unwrap();
        assert_eq!(expand_one(folder.path(), false).unwrap_err().kind, ErrorKind::Format);
    }

    #[test]
    fn shards_lie_below_their_folder() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["/etc/hostname", "../a.arrow", "sub/../../a.arrow", "", "."] {
            let state = serde_json::json!({"_data_files": [{"filename": name}]});
            fs::write(folder.path().join("state.json"), state.to_string()).unwrap();
            let error = expand_one(folder.path(), false).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Format, "{name}");
            assert!(error.message.contains("not below its folder"), "{error}");
        }
    }

    #[test]
    fn a_state_of_no_real_size_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state.json");
        File::create(&state).unwrap().set_len(LONGEST_STATE + 1).unwrap();
        let error = expand_one(folder.path(), false).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Format);
        assert!(error.message.contains("67108865 bytes"), "{error}");
        fs::remove_file(&state).unwrap();
        fs::create_dir(&state).unwrap();
        assert_eq!(expand_one(folder.path(), false).unwrap_err().kind, ErrorKind::Io);
    }
}
