//! Reads encapsulated messages, the framing of every Arrow stream and file.
//!
//! A message is a continuation marker, the length of the metadata, the metadata (a flatbuffer) and a body.
//! Streams written before Arrow 0.15 lack the marker. Only the framing and the metadata are read here; the
//! body is skipped.
//!
//! Source: Arrow columnar format, "Encapsulated message format". Deviation: none.

use arrow_ipc::{CompressionType, Message, RecordBatch, root_as_message};

use crate::{Error, ErrorKind, Result, fallible_alloc, storage::StoredFile};

/// The magic at the start and the end of an Arrow file.
pub(crate) use crate::signatures::ARROW as MAGIC;
/// The marker at the start of a message since Arrow 0.15.
pub(crate) use crate::signatures::ARROW_MESSAGE as CONTINUATION;

/// The longest metadata of a message, bytes; a larger length is damage. The largest seen is the schema of 10
/// 000 class names: half a megabyte.
const METADATA_LIMIT: u64 = 64 << 20;

/// The codec of a batch's body, whose buffers are compressed one by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyCodec {
    Lz4Frame,
    Zstd,
}

impl BodyCodec {
    /// The most bytes that a buffer of `len` bytes can hold when decompressed.
    pub(crate) fn most_held(self, len: u64) -> u64 {
        let ratio = match self {
            Self::Lz4Frame => 256,
            // A block of 4 bytes may repeat one of them 128 KiB times.
            Self::Zstd => 1 << 15,
        };
        len.saturating_mul(ratio)
    }

    /// The codec of a batch, if it has one.
    pub(crate) fn of(batch: &RecordBatch<'_>) -> Result<Option<Self>> {
        match batch.compression().map(|compression| compression.codec()) {
            None => Ok(None),
            Some(CompressionType::LZ4_FRAME) => Ok(Some(Self::Lz4Frame)),
            Some(CompressionType::ZSTD) => Ok(Some(Self::Zstd)),
            Some(other) => {
                let message =
                    format!("the body is compressed with codec {}; expected LZ4_FRAME or ZSTD", other.0);
                Err(Error::new(ErrorKind::Format, message))
            }
        }
    }
}

/// The offsets of a message in its shard. Its metadata is in the scanner.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MessageHead {
    /// The first byte of the framing.
    pub at: u64,
    /// The first byte of the body.
    pub body_at: u64,
}

/// Returns where the body of a message ends.
///
/// # Errors
/// [`ErrorKind::Format`] for an impossible length.
pub(crate) fn end_of_body(message: &Message<'_>, head: MessageHead) -> Result<u64> {
    let end = u64::try_from(message.bodyLength()).ok().and_then(|len| head.body_at.checked_add(len));
    end.ok_or_else(|| {
        let what = format!("a message's body has the impossible length {}", message.bodyLength());
        Error::new(ErrorKind::Format, what).at_byte(head.at)
    })
}

/// The result of reading a message header at an offset of a stream.
#[derive(Debug)]
pub(crate) enum MessageStep {
    Message(MessageHead),
    /// The end marker or the end of the file; `after` is the offset after it.
    End {
        after: u64,
    },
    /// Neither: the file is cut off or damaged.
    Damaged(Error),
}

/// Reads message headers, one small read each.
pub(crate) struct MessageScanner {
    bytes: Vec<u8>,
    metadata: std::ops::Range<usize>,
    /// The length of the last header: the next one of a shard nearly always has the same.
    guess: usize,
}

impl MessageScanner {
    pub(crate) fn new() -> Self {
        Self { bytes: Vec::new(), metadata: 0..0, guess: 512 }
    }

    /// Reads the framing and metadata at `at`.
    ///
    /// # Errors
    /// [`ErrorKind::Io`], [`ErrorKind::Memory`]. Damage of the file is in the [`MessageStep`].
    pub(crate) fn step(&mut self, file: &StoredFile, at: u64) -> Result<MessageStep> {
        let left = file.size().saturating_sub(at);
        if left == 0 {
            return Ok(MessageStep::End { after: at });
        }
        let cut = |what: &str| {
            let message =
                format!("the shard is cut off within {what}; it is read up to the previous message");
            Ok(MessageStep::Damaged(Error::new(ErrorKind::Truncated, message).at_byte(at)))
        };
        let garbage = |what: String| {
            let message = format!("{what}; the shard is read up to the previous message");
            Ok(MessageStep::Damaged(Error::new(ErrorKind::Format, message).at_byte(at)))
        };

        self.fill(file, at, left.min(self.guess as u64) as usize)?;
        let Some(first) = self.word(0) else { return cut("a message's framing") };
        let (framing, len) = if first == CONTINUATION {
            let Some(second) = self.word(4) else { return cut("a message's framing") };
            (8, i32::from_le_bytes(second))
        } else {
            (4, i32::from_le_bytes(first))
        };
        if len == 0 {
            return Ok(MessageStep::End { after: at + framing });
        }
        let Some(len) = u64::try_from(len).ok().filter(|&len| len <= METADATA_LIMIT) else {
            return garbage(format!("a message is expected, found the bytes {first:02x?}"));
        };
        let whole = framing + len;
        if whole > left {
            return cut("a message's metadata");
        }
        // The limit above keeps `whole` far below usize::MAX.
        let whole = whole as usize;
        if self.bytes.len() < whole {
            self.fill(file, at, whole)?;
        }
        if self.bytes.len() < whole {
            return cut("a message's metadata");
        }
        self.guess = whole.clamp(64, 4096);
        self.metadata = framing as usize..whole;
        match self.message() {
            Ok(_) => Ok(MessageStep::Message(MessageHead { at, body_at: at + whole as u64 })),
            Err(error) => garbage(error.message),
        }
    }

    /// The message of the last step.
    pub(crate) fn message(&self) -> Result<Message<'_>> {
        root_as_message(&self.bytes[self.metadata.clone()]).map_err(|error| {
            let error = error.to_string();
            let message = match error.starts_with("Nested table depth limit") {
                true => "the columns are nested deeper than the limit, 60 levels".to_owned(),
                false => format!("a message's metadata is not valid ({})", error.trim()),
            };
            Error::new(ErrorKind::Format, message)
        })
    }

    fn fill(&mut self, file: &StoredFile, at: u64, len: usize) -> Result<()> {
        fallible_alloc::resize(&mut self.bytes, len, 0)?;
        let n = file.read(&mut self.bytes, at)?;
        self.bytes.truncate(n);
        Ok(())
    }

    fn word(&self, at: usize) -> Option<[u8; 4]> {
        self.bytes.get(at..at + 4)?.try_into().ok()
    }
}
