//! A folder written by `save_to_disk` as the list of its shards.
//!
//! Such a folder has a `state.json` that names its files in order. Other files beside them, such as the `cache-*.arrow` that
//! `map` leaves behind, are no part of the dataset, so the folder is never listed.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::{Error, ErrorKind, Result};

/// The paths, with each folder replaced by its shards.
pub(crate) fn expand(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::with_capacity(paths.len());
    for path in paths {
        if path.is_dir() {
            files.extend(shards_of(path)?);
        } else {
            files.push(path.clone());
        }
    }
    Ok(files)
}

fn shards_of(folder: &Path) -> Result<Vec<PathBuf>> {
    let state = folder.join("state.json");
    let json = match fs::read(&state) {
        Ok(json) => json,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(not_a_dataset(folder)),
        Err(error) => return Err(Error::io(&state, "read", error)),
    };
    let wrong = || {
        let message =
            format!("{} lists no shards under _data_files; pass the files themselves", state.display());
        Error::new(ErrorKind::Format, message)
    };
    let parsed: Value = serde_json::from_slice(&json).map_err(|error| wrong().because(error))?;
    let files = parsed.get("_data_files").and_then(Value::as_array).ok_or_else(wrong)?;
    let name = |file: &Value| Some(folder.join(file.get("filename")?.as_str()?));
    files.iter().map(name).collect::<Option<_>>().ok_or_else(wrong)
}

fn not_a_dataset(folder: &Path) -> Error {
    let message = if folder.join("dataset_dict.json").is_file() {
        format!("{} holds several splits; pass the folder of one of them", folder.display())
    } else {
        format!(
            "{} is a folder without state.json, so not one that save_to_disk wrote; pass the shards in it as a list of files",
            folder.display()
        )
    };
    Error::new(ErrorKind::Format, message)
}
