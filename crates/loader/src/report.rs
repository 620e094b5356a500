//! Reads a report of `forebay check` for `exclude=`: which rows of which shards are bad.
//!
//! Input: the report and the shards of a loader. Output: row numbers over the files of the loader. Invariant:
//! a report of other data, or of another audio track, is refused. Shards are found by path, else by name, and
//! must have the size and the number of rows in the report. So a loader may read some of the checked shards,
//! in any order, on any machine.

use std::{collections::HashMap, fs, path::Path, sync::Arc};

use serde_json::Value;

use crate::{Error, ErrorKind, Result, config::Exclude, error::shown, source::Shard};

/// The value of the report's field `report`.
pub const NAME: &str = "forebay check";
/// The version of the report's layout.
pub const VERSION: u64 = 1;

struct ShardReport<'a> {
    path: &'a Path,
    n_rows: u64,
    n_bytes: u64,
}

/// The bad rows of `shards`, of whose recordings these tracks are read, according to the report at `path`.
///
/// # Errors
/// [`ErrorKind::Io`] and [`ErrorKind::NotFound`] if the file cannot be read; [`ErrorKind::Config`] if it is
/// not a report, is about another track, or if its shards differ from `shards`: the message lists the
/// differences.
pub fn bad_rows(path: &Path, shards: &[Shard], tracks: &[Option<u32>]) -> Result<Vec<u64>> {
    let text = fs::read_to_string(path).map_err(|cause| Error::io(path, "read the report", cause))?;
    let wrong = |message: String| Error::new(ErrorKind::Config, message);
    let no_report = || {
        wrong(format!(
            "{} is not a report by `forebay check`; expected is the JSON file that it writes, version {VERSION}",
            path.display()
        ))
    };
    let report: Value = serde_json::from_str(&text).map_err(|cause| no_report().because(cause))?;
    if report["report"] != NAME || report["version"] != VERSION {
        return Err(no_report());
    }
    let track = report["track"].as_u64();
    if !tracks.iter().any(|read| read.map(u64::from) == track) {
        let named = |track: Option<u64>| track.map_or("no track=".into(), |track| format!("track={track}"));
        let read = tracks.first().copied().flatten().map(u64::from);
        let remedy = match read {
            Some(read) => format!("--track {read}"),
            None => "no --track".into(),
        };
        return Err(wrong(format!(
            "the report {} is of {}, and the loader has {}; run `forebay check` with {remedy}",
            path.display(),
            named(track),
            named(read),
        )));
    }
    let checked = report["shards"].as_array().ok_or_else(no_report)?;
    let checked: Vec<_> = checked.iter().map(checked_shard).collect::<Option<_>>().ok_or_else(no_report)?;
    let mut rows_of: HashMap<usize, Vec<u64>> = HashMap::new();
    // Rows that the system failed to read are not excluded: a later read may succeed.
    let of_the_data =
        |bad: &&Value| ![ErrorKind::Io, ErrorKind::NotFound].iter().any(|kind| bad["kind"] == kind.name());
    for bad in report["bad"].as_array().ok_or_else(no_report)?.iter().filter(of_the_data) {
        let number = bad["shard_number"].as_u64().filter(|&number| number < checked.len() as u64);
        let (Some(number), Some(row)) = (number, bad["row"].as_u64()) else { return Err(no_report()) };
        rows_of.entry(number as usize).or_default().push(row);
    }
    let (mut rows, mut problems) = (Vec::new(), Vec::new());
    for shard in shards {
        match find(&checked, shard) {
            Ok(number) => {
                let bad = rows_of.get(&number).into_iter().flatten();
                rows.extend(bad.filter(|&&row| row < shard.n_rows).map(|row| shard.first_row + row));
            }
            Err(problem) => problems.push(format!("{}: {problem}", shard.path.display())),
        }
    }
    if problems.is_empty() {
        return Ok(rows);
    }
    const SHOWN: usize = 3;
    let more = problems.len().saturating_sub(SHOWN);
    problems.truncate(SHOWN);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    Err(wrong(format!(
        "the report {} belongs to other shards: {}{more}; run `forebay check` on these",
        path.display(),
        problems.join("; ")
    )))
}

fn checked_shard(shard: &Value) -> Option<ShardReport<'_>> {
    Some(ShardReport {
        path: Path::new(shard["path"].as_str()?),
        n_rows: shard["num_rows"].as_u64()?,
        n_bytes: shard["num_bytes"].as_u64()?,
    })
}

/// The number of a shard in the report, or how it differs.
fn find(checked: &[ShardReport<'_>], shard: &Shard) -> Result<usize, String> {
    let is_same = |it: &ShardReport<'_>| it.n_rows == shard.n_rows && it.n_bytes == shard.n_bytes;
    let absolute = std::path::absolute(&shard.path).unwrap_or_else(|_| shard.path.to_path_buf());
    let by_path = |(_, it): &(usize, &ShardReport<'_>)| it.path == absolute;
    let by_name = |(_, it): &(usize, &ShardReport<'_>)| it.path.file_name() == shard.path.file_name();
    let all = || checked.iter().enumerate();
    let found = all().find(by_path).or_else(|| {
        let named = || all().filter(by_name);
        named().find(|(_, it)| is_same(it)).or_else(|| named().next())
    });
    match found {
        None => Err("the report has no shard of that name".into()),
        Some((number, it)) if is_same(it) => Ok(number),
        Some((_, it)) if it.n_rows != shard.n_rows => {
            Err(format!("it has {} rows, {} were checked", shard.n_rows, it.n_rows))
        }
        Some((_, it)) => Err(format!("it has {} bytes, {} were checked", shard.n_bytes, it.n_bytes)),
    }
}
impl Exclude {
    /// The excluded rows in ascending order, each once.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a row that does not exist, or a report of other shards or tracks.
    pub fn rows(&self, shards: &[Shard], tracks: &[Option<u32>]) -> Result<Arc<[u64]>> {
        let mut rows = match self {
            Self::Report(path) => bad_rows(path, shards, tracks)?,
            Self::Rows(rows) => {
                let n_rows = shards.last().map_or(0, |shard| shard.first_row + shard.n_rows);
                let known = |&row: &i64| {
                    u64::try_from(row).ok().filter(|&row| row < n_rows).ok_or_else(|| {
                        let message = format!(
                            "exclude names row {}, must be 0 to {}",
                            shown(row),
                            n_rows.saturating_sub(1)
                        );
                        Error::new(ErrorKind::Config, message)
                    })
                };
                rows.iter().map(known).collect::<Result<_>>()?
            }
        };
        rows.sort_unstable();
        rows.dedup();
        Ok(rows.into())
    }
}
