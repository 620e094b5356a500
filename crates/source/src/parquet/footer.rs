//! Reads the footer of a Parquet file: its row groups, and the positions of their columns.
//!
//! A file ends with its metadata, their length, and `PAR1`. For most files one read of the end has the whole
//! footer. Statistics, which can be most of a footer, are skipped.
//!
//! Source: Parquet format, "File format" and `parquet.thrift`; `PARE` from "Parquet modular encryption".

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::parquet::file::metadata::{
    ParquetMetaData, ParquetMetaDataOptions, ParquetMetaDataReader, ParquetStatisticsPolicy,
};

use super::thrift::check_footer;
use crate::{
    Error, ErrorKind, Result, catch_panic::guarded, fallible_alloc, shard::check_rows, signatures,
    storage::StoredFile,
};

/// The bytes of the first read, from the end of the file.
const TAIL: u64 = 64 << 10;
/// The bytes of the metadata's length and the magic.
const ENDING: usize = 8;
/// The longest metadata that are read, bytes: some hundred thousand column chunks.
const LONGEST: u64 = 256 << 20;

/// Longer metadata, in bytes, are parsed one file at a time: parsed they take some 30 times their length.
const LONG: u64 = 1 << 20;

/// The metadata of a file. Drop it soon: it may hold a lock.
pub(super) struct Footer<'a> {
    pub metadata: Arc<ParquetMetaData>,
    /// Held until the metadata are dropped.
    _turn: Option<MutexGuard<'a, ()>>,
}

/// Reads the metadata of `file` and checks their numbers of rows. Threads that share `turns` read long
/// metadata one at a time.
///
/// # Errors
/// [`ErrorKind::Format`] for a file that is not Parquet, cut off, encrypted or damaged; [`ErrorKind::Io`].
pub(super) fn read<'a>(file: &mut StoredFile, turns: &'a Mutex<()>) -> Result<Footer<'a>> {
    let size = file.size();
    let mut tail = fallible_alloc::zero_bytes(size.min(TAIL) as usize)?;
    let tail_at = size - tail.len() as u64;
    file.read_exact(&mut tail, tail_at)?;
    let Some((rest, ending)) = tail.split_last_chunk::<ENDING>() else { return Err(not_parquet(file)) };
    let [a, b, c, d, magic @ ..] = *ending;
    let len = u64::from(u32::from_le_bytes([a, b, c, d]));
    match magic {
        signatures::PARQUET => {}
        signatures::ENCRYPTED_PARQUET => return Err(encrypted("its footer")),
        _ => return Err(not_parquet(file)),
    }
    let at = size.saturating_sub(ENDING as u64).checked_sub(len).filter(|_| len <= LONGEST);
    let at = at.ok_or_else(|| {
        let message = format!("the footer has the impossible length {len} in a file of {size} bytes");
        Error::new(ErrorKind::Format, message).at_byte(size - ENDING as u64)
    })?;
    let turn = (len > LONG).then(|| turns.lock().unwrap_or_else(PoisonError::into_inner));
    let metadata = match rest.len().checked_sub(len as usize) {
        Some(from) => parse(&rest[from..]),
        None => {
            let mut bytes = fallible_alloc::zero_bytes(len as usize)?;
            file.read_exact(&mut bytes, at)?;
            parse(&bytes)
        }
    };
    let metadata =
        metadata.and_then(|metadata| checked(metadata, size)).map_err(|error| error.at_byte(at))?;
    Ok(Footer { metadata: Arc::new(metadata), _turn: turn })
}

fn parse(bytes: &[u8]) -> Result<ParquetMetaData> {
    check_footer(bytes)?;
    let options = ParquetMetaDataOptions::new()
        .with_column_stats_policy(ParquetStatisticsPolicy::SkipAll)
        .with_size_stats_policy(ParquetStatisticsPolicy::SkipAll)
        .with_encoding_stats_policy(ParquetStatisticsPolicy::SkipAll);
    let parsed = guarded(|| ParquetMetaDataReader::decode_metadata_with_options(bytes, Some(&options)))
        .map_err(|error| Error { kind: ErrorKind::Format, ..error })?;
    parsed.map_err(|error| Error::new(ErrorKind::Format, "the footer cannot be read").because(error))
}

/// Checks the metadata of a file of `size` bytes: no row group claims a negative number of rows, their sum
/// equals the file's number, and a file of this size can have as many.
fn checked(metadata: ParquetMetaData, size: u64) -> Result<ParquetMetaData> {
    let claimed = metadata.file_metadata().num_rows();
    let counts = metadata.row_groups().iter().map(|group| group.num_rows());
    let sum = counts.map(|n| u64::try_from(n).ok()).try_fold(0u64, |sum, n| sum.checked_add(n?));
    match sum {
        Some(sum) if u64::try_from(claimed) == Ok(sum) => match check_rows(sum, size) {
            Ok(()) => Ok(metadata),
            Err(error) => Err(Error { kind: ErrorKind::Format, ..error }),
        },
        _ => {
            let message = format!(
                "the footer contradicts itself: it claims {claimed} rows, and its {} row groups have {}",
                metadata.num_row_groups(),
                sum.map_or("an impossible number".into(), |sum| format!("{sum}")),
            );
            Err(Error::new(ErrorKind::Format, message))
        }
    }
}

/// The error for an encrypted file or column.
pub(super) fn encrypted(what: &str) -> Error {
    let message = format!("{what} is encrypted, which is not supported; write the file without encryption");
    Error::new(ErrorKind::Format, message)
}

/// The error for a file that does not end as Parquet does.
fn not_parquet(file: &mut StoredFile) -> Error {
    let mut start = [0; 8];
    let start = match file.read(&mut start, 0) {
        Ok(n) => &start[..n],
        Err(error) => return error,
    };
    let is_parquet =
        [signatures::PARQUET, signatures::ENCRYPTED_PARQUET].iter().any(|magic| start.starts_with(magic));
    let message = match start {
        [] => "the file is empty, so it is not Parquet".into(),
        _ if is_parquet => format!(
            "the file is cut off: it starts like Parquet and ends after {} bytes without a footer; download or write it again",
            file.size()
        ),
        _ => format!(
            "the file is not Parquet: it starts with {start:02x?}, {}, and ends without PAR1",
            signatures::name(start)
        ),
    };
    Error::new(ErrorKind::Format, message)
}
