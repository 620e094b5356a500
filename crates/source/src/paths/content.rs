//! [`FolderContent`]: what a folder has, for its reader and for messages.
//!
//! Source: own.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    path::{Path, PathBuf},
};

use forebay_audio::{unread_advice, unread_format};

use super::names::{RECORDINGS, Reads, name_of};
use crate::layouts::FolderTable;

/// The files in a folder, counted for errors.
#[derive(Default)]
pub(super) struct FolderContent {
    /// The number of shards of each format.
    pub formats: BTreeMap<usize, u64>,
    /// The number of other files by their ending.
    pub others: BTreeMap<String, u64>,
    /// Whether there is the ledger of a cache.
    pub is_cache: bool,
    /// Hidden, unfinished and cached files, and hidden folders.
    pub left_out: u64,
    pub archives: Vec<PathBuf>,
    /// Recordings, and the tables that describe them, for a reader of recordings.
    pub recordings: Vec<PathBuf>,
    pub metadata: Vec<PathBuf>,
    /// A table at the top whose name does not say that it describes the folder.
    pub unread_table: Option<PathBuf>,
    pub tables: Vec<FolderTable>,
    /// The first folder below it whose files say that it has tables.
    pub inner: Option<PathBuf>,
}

impl FolderContent {
    /// Logs what a folder of recordings has beside them.
    pub(super) fn warn(&self, folder: &Path) {
        let unread: Vec<_> = self.unread().collect();
        if let Some(&(ending, name, _)) = unread.first() {
            let counted = unread.iter().map(|(ending, name, n)| format!("{n} of {name} (.{ending})"));
            log::warn!(
                "{}: files of formats that are not read are left out: {}; {}",
                folder.display(),
                counted.collect::<Vec<_>>().join(", "),
                unread_advice(name, ending)
            );
        }
        if let Some(inner) = &self.inner {
            log::warn!(
                "{}: the recordings are read without the table in {}; give that folder itself to read its rows and columns",
                folder.display(),
                inner.display()
            );
        }
    }

    /// The endings and names of formats that are not read, and their numbers of files.
    fn unread(&self) -> impl Iterator<Item = (&str, &'static str, u64)> {
        self.others.iter().filter_map(|(ending, &n)| Some((&**ending, unread_format(ending)?, n)))
    }

    /// Counts a file; returns whether it is a shard.
    pub(super) fn count(&mut self, reads: Reads, name: &OsStr) -> bool {
        if let Some(format) = reads.format_of(name) {
            *self.formats.entry(format).or_default() += 1;
            return true;
        }
        self.is_cache |= name == "shard_ledger.json";
        let ending = Path::new(name).extension().map_or("", |ending| ending.to_str().unwrap_or(""));
        // Bounded: the names of endings are for an error.
        if self.others.len() < 1000 || self.others.contains_key(ending) {
            *self.others.entry(ending.to_ascii_lowercase()).or_default() += 1;
        }
        false
    }

    /// Counts the shards of a folder that `save_to_disk` wrote.
    pub(super) fn saved(&mut self, reads: Reads, shards: &[PathBuf]) {
        let formats = shards.iter().filter_map(|shard| reads.format_of(name_of(shard)));
        formats.for_each(|format| *self.formats.entry(format).or_default() += 1);
    }

    /// Such as `12 files that end in .wav, 3 in .txt`, with advice for recordings.
    pub(super) fn told(&self, reads: Reads) -> String {
        let mut others: Vec<(&String, u64)> = self.others.iter().map(|(ending, &n)| (ending, n)).collect();
        others.sort_by_key(|&(_, n)| std::cmp::Reverse(n));
        let counted = others.iter().take(4).enumerate().map(|(number, (ending, n))| {
            let files = match number {
                0 => {
                    if *n == 1 {
                        " file"
                    } else {
                        " files"
                    }
                }
                _ => "",
            };
            match &ending[..] {
                "" => format!("{n}{files} without an ending"),
                ending => format!("{n}{files} ending in .{ending}"),
            }
        });
        let mut told: Vec<String> = counted.collect();
        if self.left_out > 0 {
            let n = self.left_out;
            told.push(format!(
                "{n} left out (hidden: .x or _x; unfinished: x.tmp; caches of map: cache-*.arrow)"
            ));
        }
        let told = if told.is_empty() { "none".to_owned() } else { told.join(", ") };
        match others.first() {
            Some((ending, _)) if RECORDINGS.contains(&&ending[..]) => {
                let advice = match reads {
                    Reads::Inputs => {
                        "a cache of recordings needs a processor, as forebay.cache.Features(\"whisper\")"
                    }
                    _ => "recordings are read by forebay.Loader",
                };
                format!("{told}; {advice}")
            }
            _ if self.is_cache => format!("{told}; it is a cache, which forebay.cache.TreeStore opens"),
            _ => match (&self.inner, self.unread().next()) {
                (Some(inner), _) => {
                    format!("{told}; {} has a table: give that folder itself", inner.display())
                }
                (None, Some((ending, name, _))) => format!("{told}; {}", unread_advice(name, ending)),
                (None, None) => told,
            },
        }
    }
}
