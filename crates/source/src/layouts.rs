//! Folders whose names of files say what they are: data folders of Kaldi, shar of Lhotse, tarred sets of
//! NeMo.
//!
//! Input: the files at the top of a folder, in natural order. Output: its tables, each with the archives that
//! have its recordings. A table that is called `metadata` goes first: then the folder is none of these.
//!
//! | files | table | archives |
//! |---|---|---|
//! | `wav.scp` | itself, with the files beside it (`files::kaldi`) | |
//! | `cuts.000000.jsonl.gz`, `recording.000000.tar` and more | each `cuts` | its `recording` |
//! | `tarred_audio_manifest.json`, `audio_0.tar` and more | the manifest | all `audio` |

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
};

use super::{compression::Compression, tree::FolderEntry};
use crate::{Error, ErrorKind, Result};

/// Names of tables that describe the recordings of their folder; the first two may be compressed.
const METADATA: [&str; 3] = ["metadata.csv", "metadata.jsonl", "metadata.parquet"];
/// The recordings of a data folder of Kaldi.
const KALDI: &str = "wav.scp";
/// The files of such a folder beside `wav.scp`.
const KALDI_OTHERS: [&str; 6] = ["segments", "text", "utt2spk", "spk2utt", "utt2dur", "reco2dur"];
/// The manifest that NeMo writes beside its archives.
const NEMO: &str = "tarred_audio_manifest.json";

/// Whether a name is that of a table that describes the recordings of its folder.
pub(crate) fn is_metadata(name: &OsStr) -> bool {
    let (plain, compression) = Compression::split(Path::new(name));
    let names = if compression.is_some() { &METADATA[..2] } else { &METADATA };
    names.iter().any(|known| plain == Path::new(known))
}

/// What to give instead of a file that belongs to a data folder of Kaldi, for an error; None for any other.
pub(crate) fn advice_on(path: &Path) -> Option<String> {
    let folder = path.parent().filter(|_| KALDI_OTHERS.contains(&name_of(path)))?;
    folder.join(KALDI).is_file().then(|| {
        format!(
            "{} belongs to a data folder of Kaldi, and is read with its wav.scp: give the folder, {}",
            path.display(),
            folder.display()
        )
    })
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FolderTable {
    pub table: PathBuf,
    pub archives: Option<Archives>,
}

/// The archives that have the recordings of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Archives {
    pub paths: Vec<PathBuf>,
    /// Whether each row has a recording there, and each recording a row.
    pub are_paired: bool,
}

/// The tables of a folder, by the names of its files; none for any other folder.
///
/// # Errors
/// [`ErrorKind::Config`] for a shar whose cuts and recordings have other numbers.
pub(crate) fn tables_of(entries: &[FolderEntry]) -> Result<Vec<FolderTable>> {
    let files = || entries.iter().filter(|entry| !entry.is_folder).map(|entry| &*entry.path);
    if files().any(|path| is_metadata(path.file_name().unwrap_or_default())) {
        return Ok(Vec::new());
    }
    if let Some(script) = files().find(|path| name_of(path) == KALDI) {
        return Ok(vec![FolderTable { table: script.to_owned(), archives: None }]);
    }
    if let Some(manifest) = files().find(|path| name_of(path) == NEMO) {
        let is_shard = |path: &&Path| number(name_of(path), "audio_", ".tar").is_some_and(|n| !n.is_empty());
        let paths: Vec<PathBuf> = files().filter(is_shard).map(Path::to_owned).collect();
        if !paths.is_empty() {
            let archives = Archives { paths, are_paired: false };
            return Ok(vec![FolderTable { table: manifest.to_owned(), archives: Some(archives) }]);
        }
    }
    let of = |field: &'static str, ending: &'static str| {
        let found = |path: &Path| {
            let plain = Compression::split(path).0.to_string_lossy().into_owned();
            number(&plain, field, ending).map(|number| number.trim_start_matches('.').to_owned())
        };
        files().filter_map(|path| Some((found(path)?, path.to_owned()))).collect::<Vec<_>>()
    };
    let (mut cuts, mut recordings) = (of("cuts", ".jsonl"), of("recording", ".tar"));
    if cuts.is_empty() || recordings.is_empty() {
        return Ok(Vec::new());
    }
    // Of a table and its compressed copy, the first one is read.
    cuts.dedup_by(|copy, kept| copy.0 == kept.0);
    recordings.dedup_by(|copy, kept| copy.0 == kept.0);
    let alone = |one: &[(String, PathBuf)], others: &[(String, PathBuf)]| {
        one.iter().find(|(number, _)| others.iter().all(|(other, _)| other != number)).cloned()
    };
    for (one, others, name) in [(&cuts, &recordings, "recording"), (&recordings, &cuts, "cuts")] {
        if let Some((_, path)) = alone(one, others) {
            let message = format!(
                "{} has no {name} of its number beside it: a shar of Lhotse has cuts.000000.jsonl.gz and recording.000000.tar \
                 for each number; add the file, or remove this one",
                path.display()
            );
            return Err(Error::new(ErrorKind::Config, message));
        }
    }
    let archive = |number: &String| recordings.iter().find(|(other, _)| other == number);
    let table = |(number, table): (String, PathBuf)| {
        let (_, path) = archive(&number)?;
        Some(FolderTable { table, archives: Some(Archives { paths: vec![path.clone()], are_paired: true }) })
    };
    Ok(cuts.into_iter().filter_map(table).collect())
}

fn name_of(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// The digits between the parts of a name, with a point in front or without; empty if there are none.
fn number<'a>(name: &'a str, first: &str, ending: &str) -> Option<&'a str> {
    let number = name.strip_prefix(first)?.strip_suffix(ending)?;
    let digits = number.strip_prefix('.').unwrap_or(number);
    let is_one =
        digits.bytes().all(|byte| byte.is_ascii_digit()) && (number.is_empty() || !digits.is_empty());
    is_one.then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tables of a folder with these files, and the number of their archives.
    fn tables(names: &[&str]) -> Result<Vec<(String, usize)>> {
        let entry = |name: &&str| FolderEntry { path: name.into(), is_folder: false };
        let found = tables_of(&names.iter().map(entry).collect::<Vec<_>>())?;
        let told = |found: FolderTable| {
            (found.table.display().to_string(), found.archives.map_or(0, |archives| archives.paths.len()))
        };
        Ok(found.into_iter().map(told).collect())
    }

    #[test]
    fn folders_by_their_names() {
        let one = |name: &str, n| vec![(name.to_owned(), n)];
        for (names, expected) in [
            (&["a.wav", "text", "utt2spk", "wav.scp"][..], one("wav.scp", 0)),
            (&["metadata.csv", "wav.scp"], vec![]),
            (&["audio_0.tar", "audio_1.tar", "audio_x.tar", NEMO], one(NEMO, 2)),
            (&[NEMO, "a.wav"], vec![]),
            (&["cuts.jsonl.gz", "recording.tar"], one("cuts.jsonl.gz", 1)),
            (&["cuts.jsonl", "cuts.jsonl.gz", "recording.tar"], one("cuts.jsonl", 1)),
            (&["cuts.jsonl.gz", "a.wav"], vec![]),
            (&["cuts.x.jsonl.gz", "recording.x.tar"], vec![]),
            (&["recording.000000.tar"], vec![]),
            (
                &[
                    "cuts.000000.jsonl.gz",
                    "cuts.000001.jsonl",
                    "recording.000000.tar",
                    "recording.000001.tar",
                ],
                vec![("cuts.000000.jsonl.gz".to_owned(), 1), ("cuts.000001.jsonl".to_owned(), 1)],
            ),
        ] {
            assert_eq!(tables(names).unwrap(), expected, "{names:?}");
        }
        for (names, expected) in [
            (&["cuts.0.jsonl", "cuts.1.jsonl", "recording.0.tar"][..], "cuts.1.jsonl has no recording"),
            (&["cuts.0.jsonl", "recording.0.tar", "recording.1.tar"], "recording.1.tar has no cuts"),
        ] {
            let error = tables(names).unwrap_err();
            assert!(error.message.contains(expected), "{error}");
        }
    }
}
