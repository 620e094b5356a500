//! Encapsulated messages: the framing that every Arrow stream and file consists of.
//!
//! A message is a continuation marker, the length of the metadata, the metadata (a flatbuffer) and a body.
//! Streams written before Arrow 0.15 lack the marker. Only the framing and the metadata are read here; the
//! body is stepped over.
//!
//! Source: Arrow columnar format, "Encapsulated message format". Deviation: none.

use arrow_ipc::{CompressionType, Message, RecordBatch, root_as_message};

use crate::{Error, ErrorKind, Result, fallible_alloc, source::storage::StoredFile};

/// What an Arrow file starts and ends with.
pub(crate) use crate::magic::ARROW as MAGIC;
/// What a message starts with since Arrow 0.15.
pub(crate) use crate::magic::ARROW_MESSAGE as CONTINUATION;

/// Metadata beyond this is taken for garbage. The largest seen is the schema of 10 000 class names: half a
/// megabyte.
const METADATA_LIMIT: u64 = 64 << 20;

/// How the body of a batch is compressed, buffer by buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Codec {
    Lz4Frame,
    Zstd,
}

impl Codec {
    /// The most bytes that a buffer of `len` can hold.
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
                    format!("the body is compressed with codec {}; LZ4_FRAME and ZSTD are read", other.0);
                Err(Error::new(ErrorKind::Format, message))
            }
        }
    }
}

/// Where a message's parts lie. Its metadata is in the scanner.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head {
    /// The first byte of the framing.
    pub at: u64,
    /// The first byte of the body.
    pub body_at: u64,
}

/// Where the body of a message ends.
///
/// # Errors
/// [`ErrorKind::Format`] for a length that cannot be.
pub(crate) fn end_of_body(message: &Message<'_>, head: Head) -> Result<u64> {
    let end = u64::try_from(message.bodyLength()).ok().and_then(|len| head.body_at.checked_add(len));
    end.ok_or_else(|| {
        let what = format!("a message's body has the impossible length {}", message.bodyLength());
        Error::new(ErrorKind::Format, what).at_byte(head.at)
    })
}

/// What stands at a place of a stream.
#[derive(Debug)]
pub(crate) enum Step {
    /// A message.
    Message(Head),
    /// The end marker, or the end of the file; and where what follows it starts.
    End { after: u64 },
    /// Neither: the file is cut off or overwritten.
    Damaged(Error),
}

/// Reads message headers, one small read each.
pub(crate) struct Scanner {
    bytes: Vec<u8>,
    metadata: std::ops::Range<usize>,
    /// How long the last header was: the next one of a shard is nearly always as long.
    guess: usize,
}

impl Scanner {
    pub(crate) fn new() -> Self {
        Self { bytes: Vec::new(), metadata: 0..0, guess: 512 }
    }

    /// Reads the framing and metadata at `at`.
    ///
    /// # Errors
    /// What the system says. What the bytes say is in the [`Step`].
    pub(crate) fn step(&mut self, file: &StoredFile, at: u64) -> Result<Step> {
        let left = file.size().saturating_sub(at);
        if left == 0 {
            return Ok(Step::End { after: at });
        }
        let cut = |what: &str| {
            let message = format!("the shard is cut off within {what}; it is read up to the message before");
            Ok(Step::Damaged(Error::new(ErrorKind::Truncated, message).at_byte(at)))
        };
        let garbage = |what: String| {
            let message = format!("{what}; the shard is read up to the message before");
            Ok(Step::Damaged(Error::new(ErrorKind::Format, message).at_byte(at)))
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
            return Ok(Step::End { after: at + framing });
        }
        let Some(len) = u64::try_from(len).ok().filter(|&len| len <= METADATA_LIMIT) else {
            return garbage(format!("no message, but the bytes {first:02x?}, where one should start"));
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
            Ok(_) => Ok(Step::Message(Head { at, body_at: at + whole as u64 })),
            Err(error) => garbage(error.message),
        }
    }

    /// The message that the last step found.
    pub(crate) fn message(&self) -> Result<Message<'_>> {
        root_as_message(&self.bytes[self.metadata.clone()]).map_err(|error| {
            Error::new(ErrorKind::Format, format!("a message's metadata is not valid ({error})"))
        })
    }

    /// The metadata of that message.
    #[cfg(feature = "cache")]
    pub(crate) fn metadata(&self) -> &[u8] {
        &self.bytes[self.metadata.clone()]
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
