//! Decodes the samples of a span from the bytes of a recording.
//!
//! Input: a recording in any supported container, in memory or by ranges of a file. Output: planar float32
//! samples of a span. Invariant: the samples of a span equal, bit for bit, the same slice of a full decode
//! (AAC and Opus: they are a pure function of bytes and span), and only the part that the span needs is
//! decoded. The length in [`Recording::info`] is that of a full decode. It is computed from the bytes, never
//! from a header that they contradict.
//!
//! ```
//! use forebay_audio::{AudioDecoder, Planes};
//!
//! let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/audio/vorbis/perch_16000_mono.ogg");
//! let bytes = std::fs::read(file)?;
//! let mut decoder = AudioDecoder::new();
//! let recording = decoder.open(&bytes)?;
//! let info = recording.info();
//! assert_eq!((info.sample_rate, info.channels), (16_000, 1));
//! let mut planes = Planes::new();
//! decoder.read(&recording, 16_000..24_000, &mut planes)?;
//! assert_eq!(planes.channel(0).len(), 8_000);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | file | what |
//! |---|---|
//! | `formats` | the formats, a file or folder each, and the table of them |
//! | `sniff`, `id3` | the format of a recording by its first bytes |
//! | `read_at` | bytes by range: a slice in memory, a file, a member of a tar, a URL |
//! | `index` | what a format knows of a recording without its bytes; windows of bytes |
//! | `range_index`, `locate` | spans of a file from the bytes that they need |
//! | `index_file` | index files: magic number, version, checksum |
//! | `pcm`, `adpcm` | samples at known places, of several formats |
//! | `aac`, `demux`, `packet`, `packet_index` | packets that symphonia decodes, of several formats |
//! | `ogg`, `checksum` | pages and packets of Ogg; checksums of FLAC and Ogg |
//! | `shared` | spans that several windows need, each decoded once |
//! | `decoder_cache` | decoders that a worker uses again |
//! | `claims`, `damage` | what a container claims beside what it has; frames that cannot be decoded |
//! | `field`, `joined` | integers in the bytes of a head; bytes joined from pieces |
//!
//! The libraries' demuxers are not used to seek: they seek inexactly, count encoder delay differently and
//! scan the file each time. Every format here has its own index (block arithmetic, frames found by bisection,
//! pages), which feeds whole packets to the decoders.
//!
//! Formats are recognised by their first bytes (`sniff`), never by a file name. A new format is one file in
//! `formats`, its `mod` line, and its line in the table `FORMATS`.
//!
//! Source: own.

#![warn(missing_docs)]
#![cfg_attr(not(test), warn(unreachable_pub))]

mod aac;
mod adpcm;
mod checksum;
mod claims;
mod damage;
mod demux;
mod field;
mod formats;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
#[cfg(test)]
#[path = "../../../tests/hostile_common/fuzzed.rs"]
mod fuzzed;
mod decoder_cache;
mod id3;
mod index;
pub mod index_file;
mod joined;
mod locate;
mod ogg;
mod packet;
mod packet_index;
mod pcm;
mod range_index;
mod read_at;
mod shared;
mod sniff;

use std::{
    fmt,
    ops::{Add, Range},
    panic::{AssertUnwindSafe, catch_unwind},
};

use forebay_base::{Error, ErrorKind, Result, fallible_alloc, fork_lock, shared_once, signatures};
use forebay_simd as simd;

pub use claims::Claims;
pub use damage::Damage;
pub(crate) use decoder_cache::DecoderCache;
pub use forebay_base::planes::{KEPT_SAMPLES, MAX_RATE, Planes};
use formats::{AnyIndex, Format, Opened};
use index::SpanWindow;
use joined::CodecBytes;
pub use range_index::{RangeIndex, SpanBytes};
use read_at::RangeReader;
pub use read_at::ReadAt;
pub use shared::{SharedSpans, SpareBlocks};
pub use sniff::{unread_advice, unread_format};

/// The most values (samples times channels) of one read: 4 GiB of float32.
const MAX_VALUES: u64 = 1 << 30;

/// The most values a second, over all channels, that are accepted: 64 channels at 262 kHz. A codec may code
/// silence of any number of channels in a few bits.
const MAX_VALUES_PER_SECOND: u64 = 1 << 24;

/// How a recording's samples are coded.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Codec {
    /// PCM: linear integer or float samples.
    Pcm,
    /// ITU-T G.711 A-law, 8 bits a sample.
    Alaw,
    /// ITU-T G.711 mu-law, 8 bits a sample.
    Mulaw,
    /// Microsoft ADPCM, in blocks of WAV.
    AdpcmMs,
    /// IMA (Intel, DVI) ADPCM in WAV blocks.
    AdpcmIma,
    /// RFC 9639, in a file of its own, in Ogg, MP4 or Matroska.
    Flac,
    /// Vorbis I, in Ogg or Matroska.
    Vorbis,
    /// RFC 6716, in Ogg or Matroska.
    Opus,
    /// MPEG-1 or MPEG-2 audio, layer I.
    Mp1,
    /// MPEG-1 or MPEG-2 audio, layer II.
    Mp2,
    /// MPEG audio, layer III, MPEG-2.5 included.
    Mp3,
    /// MPEG-4 AAC of the low complexity profile; HE-AAC is refused.
    Aac,
    /// Apple Lossless, in MP4, CAF or Matroska.
    Alac,
}

impl Codec {
    /// Whether to decode a sample costs enough that windows should share it, and gives the same in each span.
    pub fn is_worth_sharing(self) -> bool {
        matches!(self, Self::Flac | Self::Vorbis | Self::Mp1 | Self::Mp2 | Self::Mp3 | Self::Alac)
    }

    /// Whether its decoder mixes channels before its last transforms, which are linear.
    fn mixes_early(self) -> bool {
        matches!(self, Self::Vorbis | Self::Mp3)
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Codec::Pcm => "pcm",
            Codec::Alaw => "alaw",
            Codec::Mulaw => "mulaw",
            Codec::AdpcmMs => "adpcm-ms",
            Codec::AdpcmIma => "adpcm-ima",
            Codec::Flac => "flac",
            Codec::Vorbis => "vorbis",
            Codec::Opus => "opus",
            Codec::Mp1 => "mp1",
            Codec::Mp2 => "mp2",
            Codec::Mp3 => "mp3",
            Codec::Aac => "aac",
            Codec::Alac => "alac",
        })
    }
}

/// Codec, rate, channels and length of a recording, checked against its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Info {
    /// How the samples are coded, in whichever container.
    pub codec: Codec,
    /// Samples per second and channel; never 0.
    pub sample_rate: u32,
    /// Number of channels; never 0.
    pub channels: u16,
    /// Samples per channel, exactly what a full decode yields after gapless trims; never 0.
    pub n_samples: u64,
}

impl Info {
    /// Its length.
    pub fn seconds(&self) -> f64 {
        self.n_samples as f64 / f64::from(self.sample_rate.max(1))
    }

    /// About how many bytes hold a second of it; hardly ever more.
    pub fn bytes_per_second(&self) -> u64 {
        let per_value = match self.codec {
            Codec::Pcm => 4,
            Codec::Flac | Codec::Alac => 2,
            _ => 1,
        };
        u64::from(self.sample_rate) * u64::from(self.channels) * per_value
    }

    /// Checks the numbers of an opened recording.
    ///
    /// # Errors
    /// [`ErrorKind::Empty`] without samples, [`ErrorKind::Corrupt`] for rates beyond every converter's.
    fn check(&self) -> Result<()> {
        if self.n_samples == 0 {
            return Err(Error::new(ErrorKind::Empty, "the recording has headers but no samples"));
        }
        let Info { sample_rate: rate, channels, .. } = *self;
        if !(1..=MAX_RATE).contains(&rate) {
            return Err(corrupt(format!(
                "the header declares {rate} samples per second; at most {MAX_RATE} are accepted"
            )));
        }
        if u64::from(rate) * u64::from(channels) > MAX_VALUES_PER_SECOND {
            let message = format!(
                "the header declares {channels} channels of {rate} samples per second; at most {MAX_VALUES_PER_SECOND} values \
                 per second are accepted"
            );
            return Err(corrupt(message));
        }
        Ok(())
    }

    /// Checks the span of a read and gives `out` its shape; returns whether there are samples to decode.
    ///
    /// # Errors
    /// As [`AudioDecoder::read`].
    fn prepare(&self, span: &Range<u64>, out: &mut Planes) -> Result<bool> {
        if span.start > span.end || span.end > self.n_samples {
            let (start, end, n) = (span.start, span.end, self.n_samples);
            return Err(Error::new(
                ErrorKind::Shape,
                format!("the span {start}..{end} is not within the recording's {n} samples"),
            ));
        }
        let n_samples = span.end - span.start;
        if n_samples.saturating_mul(u64::from(self.channels)) > MAX_VALUES {
            return Err(Error::new(
                ErrorKind::TooLarge,
                format!(
                    "{n_samples} samples of {} channels exceed the limit of one read, 4 GiB",
                    self.channels
                ),
            ));
        }
        let is_mean = out.takes_mean() && self.codec.mixes_early();
        out.reset(if is_mean { 1 } else { self.channels }, n_samples as usize)?;
        Ok(n_samples > 0)
    }

    /// Checks the length of a recording before its samples are decoded.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] for more than `limit` seconds.
    pub fn check_seconds(&self, limit: f64) -> Result<()> {
        let seconds = self.seconds();
        if seconds <= limit {
            return Ok(());
        }
        let message = format!("the recording has {seconds:.1} s, max_decoded_seconds allows {limit}");
        Err(Error::new(ErrorKind::TooLarge, message))
    }
}

/// The repairs of a full decode in a recording with small contradictions, which players ignore.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Repairs {
    /// Places where samples were cut or filled in.
    pub places: u64,
    /// Samples per channel that were decoded and left out.
    pub cut: u64,
    /// Samples per channel filled with zeros, because the timeline has them and the codec does not.
    pub filled: u64,
}

impl Add for Repairs {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            places: self.places + other.places,
            cut: self.cut + other.cut,
            filled: self.filled + other.filled,
        }
    }
}

impl fmt::Display for Repairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { places, cut, filled } = self;
        write!(
            f,
            "time stamps contradict the samples in {places} places: {cut} samples cut, {filled} filled with zeros"
        )
    }
}

/// An opened recording: its headers are read and its index is built, so that any span can be decoded.
#[derive(Debug)]
pub struct Recording<'a> {
    format: &'static dyn Format,
    info: Info,
    bytes: CodecBytes<'a>,
    /// The offset of `bytes` in the file; 0 if they are joined from pieces of it.
    start: u64,
    index: AnyIndex,
}

impl Recording<'_> {
    /// Codec, rate, channels and length of a recording, checked against its bytes.
    pub fn info(&self) -> Info {
        self.info
    }

    /// The declarations of the container beyond the result of a full decode; the recording was opened from
    /// `bytes`.
    pub fn claims(&self, bytes: &[u8]) -> Claims {
        let mut claims = Claims::default();
        self.index.add_claims(self.info, &mut claims);
        if claims.cut_short.is_none() && bytes.starts_with(&signatures::OGG) && !sniff::ends_stream(bytes) {
            let message = "the last Ogg page of the recording is not marked as the end of its stream";
            claims.cut_short = Some(message.into());
        }
        claims
    }

    /// The name of its format, such as `"flac"`.
    pub fn format(&self) -> &'static str {
        self.format.name()
    }
}

/// Decodes recordings, one after the other. Each worker has one, since it keeps decoders and scratch.
///
/// What it keeps changes no sample: a reused decoder gives the same samples as a new one.
#[derive(Debug, Default)]
pub struct AudioDecoder {
    decoder_cache: DecoderCache,
    /// What becomes of frames that cannot be decoded.
    pub damage: Damage,
    /// The number of the audio track that is opened, counted from 0 among the audio tracks of a file; `None`:
    /// the usual one of its format, which is the first, or the one that the file marks.
    pub track: Option<u32>,
    filled: Repairs,
}

impl AudioDecoder {
    /// A decoder with an empty cache.
    pub fn new() -> Self {
        Self::default()
    }

    /// A decoder with an empty cache, which treats damaged frames as `damage` says.
    pub fn with_damage(damage: Damage) -> Self {
        Self { damage, ..Self::default() }
    }

    /// The samples of the last read that are zeros in place of damaged frames.
    pub fn filled(&self) -> Repairs {
        self.filled
    }

    /// Reads the headers of `bytes` and builds the index that spans need.
    ///
    /// # Errors
    /// [`ErrorKind::Empty`] without bytes or samples, [`ErrorKind::Unsupported`] for formats not decoded
    /// here and for a track that is not there, [`ErrorKind::Corrupt`] if the headers contradict themselves or
    /// the bytes, [`ErrorKind::Memory`].
    pub fn open<'a>(&mut self, bytes: &'a [u8]) -> Result<Recording<'a>> {
        self.open_track(bytes, self.track)
    }

    fn open_track<'a>(&mut self, bytes: &'a [u8], track: Option<u32>) -> Result<Recording<'a>> {
        let recording = self.guarded(|cache| open(cache, bytes, track))?;
        recording.info().check()?;
        Ok(recording)
    }

    /// Counts the samples that a full decode of `recording` cuts and fills: none, except in Vorbis whose
    /// granule positions are some samples off.
    ///
    /// Walks the lengths of all packets and decodes none. Spans are repaired in the same way without this
    /// call.
    pub fn repairs(&mut self, recording: &Recording<'_>) -> Repairs {
        self.guarded(|_| Ok(recording.index.repairs(&recording.bytes))).unwrap_or_default()
    }

    /// Decodes the samples `span` of every channel into `out`, which then holds exactly `span.len()` samples
    /// per channel, or of their mean ([`Planes::take_mean`]).
    ///
    /// # Errors
    /// [`ErrorKind::Shape`] if `span` is not within `0..n_samples`, [`ErrorKind::TooLarge`] beyond 4 GiB of
    /// samples, [`ErrorKind::Corrupt`] or [`ErrorKind::TooShort`] if the bytes do not yield the span,
    /// [`ErrorKind::NonFinite`] if they yield NaN, infinity or values beyond 2^32, [`ErrorKind::Memory`] if
    /// an allocation failed. After an error the content of `out` is unspecified.
    pub fn read(&mut self, recording: &Recording<'_>, span: Range<u64>, out: &mut Planes) -> Result<()> {
        self.filled = Repairs::default();
        if !recording.info().prepare(&span, out)? {
            return Ok(());
        }
        let n_samples = span.end - span.start;
        self.decoder_cache.losses.begin(self.damage);
        let all = SpanWindow::whole(&recording.bytes[..]);
        self.guarded(|cache| recording.index.decode(cache, &all, span, out))
            .map_err(from_byte(recording.start))?;
        self.filled = self.decoder_cache.losses.end(n_samples)?;
        out.check_finite()
    }

    /// Runs `work`. A panic in it, which damaged bytes can cause in the libraries' parsers, is an error of
    /// this recording only.
    fn guarded<T>(&mut self, work: impl FnOnce(&mut DecoderCache) -> Result<T>) -> Result<T> {
        let cache = &mut self.decoder_cache;
        catch_unwind(AssertUnwindSafe(|| work(cache))).unwrap_or_else(|_| {
            // After a panic the cache may be inconsistent.
            self.decoder_cache = DecoderCache::default();
            Err(corrupt("the decoder panicked on this recording, which is probably damaged"))
        })
    }
}

/// How the bytes of a span are found in a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Places {
    /// The head of a usual file tells where each sample is.
    Plain,
    /// The index has, or tells, the places of all frames or packets.
    Counted,
    /// Frames or pages are searched for by their numbers. If these are not in order, as in two files that
    /// were joined, a search over a part may find others than one over all bytes.
    Searched,
}

impl Places {
    /// How spans of a recording with these first bytes are found; `None` if its format is not known.
    pub fn of(head: &[u8]) -> Option<Self> {
        sniff::sniff(head).ok().map(|(format, _)| format.places())
    }
}

fn open<'a>(cache: &mut DecoderCache, file: &'a [u8], track: Option<u32>) -> Result<Recording<'a>> {
    let (format, start) = sniff::sniff(file)?;
    formats::check_track(format, track)?;
    let start = if format.finds_start() { 0 } else { start };
    let file = &file[start..];
    let mut reader = RangeReader::of_memory(file);
    reader.track = track;
    let Opened { info, index, bytes } = format
        .open(cache, &mut reader)
        .map_err(from_byte(start as u64))?
        .ok_or_else(|| unsupported(format!("a recording in {} cannot be opened in memory", format.name())))?;
    let (bytes, start) = match bytes {
        None => (CodecBytes::Whole(file), start as u64),
        Some(bytes) => (bytes, 0),
    };
    Ok(Recording { format, info, bytes, start, index })
}

/// The names of the formats that are decoded, as [`RangeIndex::format`] returns them.
pub fn formats() -> impl Iterator<Item = &'static str> {
    formats::FORMATS.iter().map(|format| format.name())
}

/// Counts the place of an error from the start of a file, of which the bytes before `start` were left out.
fn from_byte(start: u64) -> impl Fn(Error) -> Error {
    move |mut error| {
        error.place.byte = error.place.byte.map(|byte| byte.saturating_add(start));
        error
    }
}

fn corrupt(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Corrupt, message)
}

fn unsupported(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unsupported, message)
}
