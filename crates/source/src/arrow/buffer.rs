//! One buffer of a batch: a range of the shard, read in windows, or decompressed bytes in memory.
//!
//! Offsets, validity and labels are read in windows of 64 KiB, which all readers share (`shard`). So rows in
//! order cost one read per some ten thousand, and a random row costs a small read the first time. The data to
//! which the offsets refer are not read here: [`ArrowBuffer::part`] returns their range. A compressed buffer
//! is decompressed as a whole at its first use.
//!
//! Source: Arrow columnar format, "Compression" (an int64 with the length, -1 for bytes that are not
//! compressed).

use std::{
    io::{self, Read},
    sync::atomic::Ordering,
};

use bytes::Bytes;

use super::{message::BodyCodec, shard::OpenShard, spans::Span};
use crate::{
    Error, ErrorKind, Result, cancel,
    contract::{Kept, Permit},
    fallible_alloc,
    memory_permits::covered,
    storage::{StoredFile, past_the_end},
};

/// The size of a window, bytes.
const WINDOW: u64 = 64 << 10;

/// The location of a value's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ValueBytes {
    File(Span),
    Memory(Bytes),
}

#[derive(Debug)]
pub(crate) struct ArrowBuffer {
    span: Span,
    codec: Option<BodyCodec>,
    /// The whole buffer, once decompressed.
    memory: Option<Bytes>,
    /// Whether a permit granted that memory, and what keeps it for later rows; `None` inside: for one row.
    granted: Option<Option<Kept>>,
    window: Bytes,
    /// Where the window starts within the buffer.
    window_at: u64,
}

impl ArrowBuffer {
    pub(crate) fn new(span: Span, codec: Option<BodyCodec>) -> Self {
        Self { span, codec, memory: None, granted: None, window: Bytes::new(), window_at: 0 }
    }

    /// Whether the buffer has no bytes. For a validity buffer this means that all values are valid.
    pub(crate) fn is_absent(&self) -> bool {
        self.span.len == 0
    }

    /// Reads the `N` bytes at `at`.
    pub(crate) fn get<const N: usize>(&mut self, shard: &OpenShard, at: u64) -> Result<[u8; N]> {
        self.get_slice(shard, at, N)?.try_into().map_err(|_| outside(at, N as u64, self.span))
    }

    fn get_slice(&mut self, shard: &OpenShard, at: u64, n: usize) -> Result<&[u8]> {
        let Some(end) = at.checked_add(n as u64) else { return Err(outside(at, n as u64, self.span)) };
        if self.codec.is_some() {
            let (span, memory) = (self.span, self.decompressed(shard)?);
            // Offsets beyond usize are beyond the memory, too.
            let range = usize::try_from(at).ok().zip(usize::try_from(end).ok());
            return range
                .and_then(|(at, end)| memory.get(at..end))
                .ok_or_else(|| outside(at, n as u64, span));
        }
        if end > self.span.len {
            return Err(outside(at, n as u64, self.span));
        }
        if at < self.window_at || end > self.window_at + self.window.len() as u64 {
            self.read_window(shard, at, end)?;
        }
        let from = (at - self.window_at) as usize;
        self.window
            .get(from..from + n)
            .ok_or_else(|| past_the_end(self.span.at.saturating_add(end), shard.file.size()))
    }

    /// The bytes at `span` of the file, if they are this buffer's: read with their neighbours, unless they
    /// are longer than a window.
    pub(crate) fn near(&mut self, shard: &OpenShard, span: Span) -> Result<Option<Bytes>> {
        let at = span.at.checked_sub(self.span.at).filter(|at| {
            self.codec.is_none() && at.checked_add(span.len).is_some_and(|end| end <= self.span.len)
        });
        let Some(at) = at else { return Ok(None) };
        if span.len > WINDOW {
            let mut bytes = fallible_alloc::zero_bytes(span.len as usize)?;
            shard.file.read_exact(&mut bytes, span.at)?;
            return Ok(Some(bytes.into()));
        }
        self.get_slice(shard, at, span.len as usize)?;
        let from = (at - self.window_at) as usize;
        Ok(Some(self.window.slice(from..from + span.len as usize)))
    }

    /// Reads the window in which `at..end` starts, up to the end of the file.
    fn read_window(&mut self, shard: &OpenShard, at: u64, end: u64) -> Result<()> {
        let start = at / WINDOW * WINDOW;
        let stop = end.max(start + WINDOW).min(self.span.len);
        let in_file = shard.file.size().saturating_sub(self.span.at + start).min(stop - start);
        // The file's size bounds the allocation.
        self.window = shard.window(self.span.at + start, in_file as usize)?;
        self.window_at = start;
        Ok(())
    }

    /// The location of the bytes `at..at + len`.
    pub(crate) fn part(&mut self, shard: &OpenShard, at: u64, len: u64) -> Result<ValueBytes> {
        let span = self.span;
        let end = at.checked_add(len).ok_or_else(|| outside(at, len, span))?;
        if self.codec.is_none() {
            if end > span.len {
                return Err(outside(at, len, span));
            }
            return Ok(ValueBytes::File(Span { at: span.at + at, len }));
        }
        let memory = self.decompressed(shard)?;
        match usize::try_from(end) {
            Ok(end) if end <= memory.len() => Ok(ValueBytes::Memory(memory.slice(at as usize..end))),
            _ => Err(outside(at, len, span)),
        }
    }

    fn decompressed(&mut self, shard: &OpenShard) -> Result<&Bytes> {
        if self.memory.is_none() {
            let (permit, kept) = ask(shard, self.span)?;
            let bytes = decompress(&shard.file, self.span, self.codec, shard.max_record_bytes())?;
            if let Some(permit) = &permit {
                permit.shrink(bytes.len() as u64);
            }
            self.granted = permit.is_some().then_some(kept);
            self.memory = Some(covered(bytes, permit));
        }
        // It is always filled here; the default is never used.
        Ok(self.memory.get_or_insert_default())
    }
}

impl ArrowBuffer {
    /// None if no permit granted the memory, else whether it is kept for later rows.
    pub(crate) fn grant(&self) -> Option<bool> {
        self.granted.as_ref().map(Option::is_some)
    }
}

/// Requests the memory of a compressed buffer and of its decompressed bytes, by the claimed length.
fn ask(shard: &OpenShard, span: Span) -> Result<(Option<Permit>, Option<Kept>)> {
    let mut prefix = [0; 8];
    if span.len < prefix.len() as u64 || span.at.saturating_add(span.len) > shard.file.size() {
        return Ok((None, None));
    }
    shard.file.read_exact(&mut prefix, span.at)?;
    // A claim beyond the limit is refused before decompression.
    let claimed = u64::try_from(i64::from_le_bytes(prefix)).unwrap_or(0);
    let most = shard.max_record_bytes().max(span.len.saturating_mul(USUAL_RATIO));
    let bytes = span.len.saturating_add(claimed.min(most));
    let kept = if shard.is_kept { shard.permits.keep(bytes)? } else { None };
    let permit = match &kept {
        Some(kept) => Some(kept.permit().clone()),
        None => shard.permits.admit(bytes)?,
    };
    if permit.is_some() {
        shard.has_granted.store(true, Ordering::Relaxed);
    }
    Ok((permit, kept))
}

/// The size of a decompressed buffer that is always allowed, as a multiple of its compressed size.
pub(crate) const USUAL_RATIO: u64 = 64;

/// The bytes decompressed between two checks for a stopped run.
const SLICE: u64 = 8 << 20;

/// Reads and decompresses a whole buffer. The stop flag is checked in between.
pub(crate) fn decompress(
    file: &StoredFile,
    span: Span,
    codec: Option<BodyCodec>,
    max_record_bytes: u64,
) -> Result<Bytes> {
    if span.len == 0 {
        return Ok(Bytes::new());
    }
    let end = span.at.saturating_add(span.len);
    if end > file.size() {
        return Err(past_the_end(end, file.size()));
    }
    let corrupt = |what: String| Error::new(ErrorKind::Corrupt, what).at_byte(span.at);
    // The file's size bounds the allocation.
    let len = usize::try_from(span.len).map_err(|_| corrupt(format!("a buffer of {} bytes", span.len)))?;
    let mut compressed = fallible_alloc::zero_bytes(len)?;
    file.read_exact(&mut compressed, span.at)?;
    let Some((prefix, _)) = compressed.split_first_chunk::<8>() else {
        return Err(corrupt(format!("a compressed buffer of {len} bytes: too short for its length prefix")));
    };
    let expected = match i64::from_le_bytes(*prefix) {
        -1 => return Ok(Bytes::from(compressed).slice(8..)),
        n => u64::try_from(n).map_err(|_| corrupt(format!("a compressed buffer claims a length of {n}")))?,
    };
    // A few kilobytes may decompress to gigabytes of zeros. A buffer of recordings may exceed the limit of a
    // single record, but compresses less.
    let allowed = max_record_bytes.max(span.len.saturating_mul(USUAL_RATIO));
    if expected > allowed {
        let message = format!(
            "a compressed buffer of {len} bytes claims {expected}; with max_record_bytes={max_record_bytes} at most {allowed} are allowed"
        );
        return Err(Error::new(ErrorKind::TooLarge, message).at_byte(span.at));
    }
    // The output grows as it is decoded: the claimed length is its bound and allocates nothing. One byte more
    // than claimed is read, to detect a false length.
    let mut out = Vec::new();
    let limit = expected.saturating_add(1);
    let failed = |error: io::Error| {
        match error.kind() {
            io::ErrorKind::OutOfMemory => {
                Error::new(ErrorKind::Memory, "the allocation to decompress a buffer failed")
            }
            _ => corrupt("a compressed buffer cannot be decompressed".into()),
        }
        .because(error)
    };
    let input = &compressed[8..];
    let mut decoder: Box<dyn Read + '_> = match codec {
        Some(BodyCodec::Lz4Frame) => Box::new(lz4_flex::frame::FrameDecoder::new(input)),
        Some(BodyCodec::Zstd) => Box::new(zstd::stream::read::Decoder::with_buffer(input).map_err(failed)?),
        None => return Err(corrupt("a buffer without a codec".into())),
    };
    loop {
        let slice = SLICE.min(limit - out.len() as u64);
        let n = decoder.by_ref().take(slice).read_to_end(&mut out).map_err(failed)?;
        // The last slice has a byte less than requested, unless the claimed length is false.
        if (n as u64) < slice || out.len() as u64 == limit {
            break;
        }
        cancel::check("the read")?;
    }
    if out.len() as u64 != expected {
        return Err(corrupt(format!("a compressed buffer claims {expected} bytes and holds {}", out.len())));
    }
    out.shrink_to_fit();
    Ok(Bytes::from(out))
}

fn outside(at: u64, len: u64, span: Span) -> Error {
    let message = format!("a value claims {len} bytes at offset {at} of a buffer of {} bytes", span.len);
    Error::new(ErrorKind::Corrupt, message).at_byte(span.at)
}

#[cfg(test)]
mod tests {
    use std::{path::Path, sync::Arc};

    use super::*;
    use crate::storage::{LocalFiles, Storage};

    fn decompressed(prefix: i64, payload: &[u8], codec: BodyCodec) -> Result<Vec<u8>> {
        let folder = tempfile::tempdir().unwrap();
        let path: Arc<Path> = folder.path().join("a").into();
        std::fs::write(&path, [&prefix.to_le_bytes(), payload].concat()).unwrap();
        let storage: Arc<dyn Storage> = Arc::new(LocalFiles);
        let file = StoredFile::open(&storage, &path)?;
        let span = Span { at: 0, len: file.size() };
        decompress(&file, span, Some(codec), 1 << 21).map(|bytes| bytes.to_vec())
    }

    fn compressed(content: &[u8]) -> [(BodyCodec, Vec<u8>); 2] {
        let mut lz4 = lz4_flex::frame::FrameEncoder::new(Vec::new());
        std::io::Write::write_all(&mut lz4, content).unwrap();
        [
            (BodyCodec::Zstd, zstd::encode_all(content, 1).unwrap()),
            (BodyCodec::Lz4Frame, lz4.finish().unwrap()),
        ]
    }

    #[test]
    fn the_claimed_length_is_checked_and_allocates_nothing() {
        let content = vec![5; 1 << 20];
        let n = content.len() as i64;
        for (codec, payload) in &compressed(&content) {
            let codec = *codec;
            assert!(decompressed(n, payload, codec).unwrap() == content);
            assert!(decompressed(-1, &content, codec).unwrap() == content);
            assert_eq!(decompressed(i64::MAX, payload, codec).unwrap_err().kind, ErrorKind::TooLarge);
            for claim in [0, 1, n - 1, n + 1, i64::MIN, -2] {
                let error = decompressed(claim, payload, codec).map(|bytes| bytes.len()).unwrap_err();
                assert_eq!(error.kind, ErrorKind::Corrupt, "{claim}: {error}");
            }
            for cut in [0, 1, 10, payload.len() / 2] {
                let error = decompressed(n, &payload[..cut], codec).map(|bytes| bytes.len()).unwrap_err();
                assert_eq!(error.kind, ErrorKind::Corrupt, "{cut}: {error}");
            }
        }
    }

    #[test]
    fn a_buffer_is_left_between_slices() {
        for slices in [1, 2, 3] {
            // Partly noise, so that it compresses to more than a 64th.
            let content: Vec<u8> =
                (0..slices * SLICE).map(|at| (crate::seed::mix(at) >> (at % 8 * 8)) as u8 & 15).collect();
            let n = content.len() as i64;
            for (codec, payload) in &compressed(&content) {
                let codec = *codec;
                assert!(decompressed(n, payload, codec).unwrap() == content);
                assert_eq!(decompressed(n - 1, payload, codec).unwrap_err().kind, ErrorKind::Corrupt);
                let stopped = cancel::during(Some(Arc::new(|| true)), || decompressed(n, payload, codec));
                let error = stopped.map(|bytes| bytes.len()).unwrap_err();
                assert_eq!(error.kind, ErrorKind::Closed, "{slices}: {error}");
            }
        }
    }
}
