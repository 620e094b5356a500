//! [`TokensRule`]: the text of a row to the ids of its tokens, as many as it has; a batch is padded.
//!
//! Source: own. Tokenizers, characters and transcripts are those of `forebay_text`.

use std::{fmt, sync::Arc};

use forebay_text::{Characters, TranscriptFormat, TranscriptSegment};

use super::ClipSeconds;
use crate::{
    Error, ErrorKind, Result, fallible_alloc,
    fields::{DataType, Dim, Field, Value},
    source::Recordings,
};

/// The most tokens of a row of a target that names no limit.
pub(super) const USUAL_MOST_TOKENS: u64 = 4096;

/// The most by which a time that is the start or the end of a clip may differ from it.
const ROUNDED_SECONDS: f64 = 0.025;

/// What makes ids of a text.
#[derive(Debug)]
pub enum TextEncoder {
    Transcript(TranscriptFormat),
    Characters(Box<Characters>),
}

#[derive(Clone)]
pub struct TokensRule {
    pub encoder: Arc<TextEncoder>,
    /// A hash of tokenizer or vocabulary.
    pub fingerprint: u64,
    /// The columns of the starts and ends of the segments of a transcript, seconds from the row's start.
    pub times: Option<[String; 2]>,
    pub pad: i64,
    pub pads_left: bool,
    /// The most tokens of a row; `None`: 4096, more of which are an error of the row.
    pub most: Option<u64>,
    /// Whether longer rows are cut; otherwise they are left out.
    pub cuts: bool,
    /// The most tokens for a second of audio, of a row that is not left out.
    pub most_per_second: Option<f64>,
}

impl fmt::Debug for TokensRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokensRule").field("most", &self.most).finish_non_exhaustive()
    }
}

impl PartialEq for TokensRule {
    fn eq(&self, other: &Self) -> bool {
        let known = |rule: &Self| {
            (rule.fingerprint, rule.times.clone(), rule.pad, rule.pads_left, rule.most, rule.cuts)
        };
        known(self) == known(other) && self.most_per_second == other.most_per_second
    }
}

impl TokensRule {
    /// The name of the class in `forebay.targets`.
    pub fn name(&self) -> &'static str {
        match &*self.encoder {
            TextEncoder::Transcript(_) => "Tokens",
            TextEncoder::Characters(_) => "Characters",
        }
    }

    pub(super) fn field(&self, name: &str) -> Field {
        let dims = vec![Dim::PaddedInBatch { most: self.most_tokens(), most_in_batch: u64::MAX }];
        let fill = self.pad.to_ne_bytes().to_vec().into();
        Field { fill, pads_left: self.pads_left, ..Field::new(name, DataType::Int64, dims) }
    }

    pub fn most_tokens(&self) -> u64 {
        self.most.unwrap_or(USUAL_MOST_TOKENS)
    }

    /// Whether rows with more tokens are left out before they are drawn.
    pub fn leaves_out(&self) -> bool {
        self.most.is_some() && !self.cuts
    }

    /// The tokens of a row of whose text so many are made.
    pub fn tokens_of(&self, n: u32) -> u32 {
        if self.cuts { n.min(u32::try_from(self.most_tokens()).unwrap_or(u32::MAX)) } else { n }
    }

    /// The ids of a row's value. With a `seed` merges are left out at random, unless there are too many
    /// tokens then.
    pub(super) fn ids(
        &self,
        value: &Value,
        times: Option<[&Value; 2]>,
        clip: ClipSeconds,
        seed: Option<u64>,
    ) -> Result<Vec<u32>> {
        let mut ids = self.encoded(value, times, clip, seed)?;
        let most = self.most_tokens() as usize;
        if ids.len() > most && seed.is_some() && self.is_random() {
            ids = self.encoded(value, times, clip, None)?;
        }
        if ids.len() <= most {
            return Ok(ids);
        }
        if self.cuts {
            match &*self.encoder {
                TextEncoder::Transcript(format) => format.cut(&mut ids, most),
                TextEncoder::Characters(_) => ids.truncate(most),
            }
            return Ok(ids);
        }
        let remedy = match self.most {
            Some(_) => "raise it, or give on_long=\"cut\"",
            None => "give max_tokens=, and on_long=\"cut\" or \"skip\"",
        };
        let message = format!("the row has {} tokens, max_tokens allows {most}; {remedy}", ids.len());
        Err(Error::new(ErrorKind::TooLarge, message))
    }

    /// Whether an error is about a character that the vocabulary lacks.
    pub(super) fn is_unknown_character(&self, error: &Error) -> bool {
        matches!(&*self.encoder, TextEncoder::Characters(_)) && error.kind == ErrorKind::Corrupt
    }

    /// Whether the tokens of a text are drawn.
    pub fn is_random(&self) -> bool {
        matches!(&*self.encoder, TextEncoder::Transcript(format) if format.is_random())
    }

    fn encoded(
        &self,
        value: &Value,
        times: Option<[&Value; 2]>,
        clip: ClipSeconds,
        seed: Option<u64>,
    ) -> Result<Vec<u32>> {
        let mut ids = Vec::new();
        let empty: Arc<str> = "".into();
        let text = |value: &Value| if let Value::Text(text) = value { text.clone() } else { empty.clone() };
        match (&*self.encoder, times) {
            (TextEncoder::Characters(characters), _) => characters.encode(&text(value), &mut ids)?,
            (TextEncoder::Transcript(format), None) => format.encode(&text(value), seed, &mut ids)?,
            (TextEncoder::Transcript(format), Some(times)) => {
                let [texts, starts, ends] = [value, times[0], times[1]].map(items);
                if texts.len() != starts.len() || texts.len() != ends.len() {
                    let message = format!(
                        "the row has {} texts, {} starts and {} ends, expected as many of each",
                        texts.len(),
                        starts.len(),
                        ends.len()
                    );
                    return Err(Error::new(ErrorKind::Corrupt, message));
                }
                // As the columns count, from the row's start.
                let [clip_start, clip_end] = [clip.start, clip.end].map(|seconds| seconds - clip.row_start);
                let texts = texts.iter().map(text).collect::<Vec<_>>();
                let mut segments = fallible_alloc::with_room(texts.len())?;
                for ((text, start), end) in texts.iter().zip(starts).zip(ends) {
                    let (start, end) = (seconds(start), seconds(end));
                    let start = start.unwrap_or(f64::NAN);
                    // What lies outside of the clip is not heard; what goes on behind it has no end there.
                    // Times are rounded.
                    if start >= clip_end || end.is_some_and(|end| end <= clip_start) {
                        continue;
                    }
                    let is_near = |seconds: f64, bound: f64| (seconds - bound).abs() <= ROUNDED_SECONDS;
                    let start = if is_near(start, clip_start) { start.max(clip_start) } else { start };
                    let end = end.map(|end| if is_near(end, clip_end) { end.min(clip_end) } else { end });
                    let played = |seconds: f64| (seconds - clip_start) / clip.speed;
                    let end = end.filter(|&end| end <= clip_end).map(played);
                    segments.push(TranscriptSegment { start: played(start), end, text });
                }
                format.encode_segments(&segments, seed, &mut ids)?;
            }
        }
        Ok(ids)
    }
}

pub(super) fn items(value: &Value) -> &[Value] {
    match value {
        Value::List(items) => items,
        Value::Null => &[],
        one => std::slice::from_ref(one),
    }
}

pub(super) fn seconds(value: &Value) -> Option<f64> {
    match value {
        Value::Int(number) => Some(*number as f64),
        Value::Float(number) => Some(*number),
        _ => None,
    }
}

/// The error of a row whose text has a character that the vocabulary lacks.
pub(super) fn unknown_character(column: &str, error: &Error) -> Error {
    let message = format!(
        "column {column:?} has text with an unknown character: {}; unknown=\"ignore\" leaves such characters out",
        error.message
    );
    Error::new(ErrorKind::Schema, message)
}

/// The tokens of a `column` of each row of a source, without dropout; 0 for a row whose text cannot be read
/// or encoded, which is told of in its turn. On several threads.
///
/// # Errors
/// As [`Recordings::collect`].
pub fn token_counts(source: &Recordings, column: &str, rule: &TokensRule) -> Result<Vec<u32>> {
    // The tokens of the times of a segment.
    let n_times = match (&*rule.encoder, &rule.times) {
        (TextEncoder::Transcript(format), Some(_)) if format.has_timestamps() => 2,
        _ => 0,
    };
    let n_special = match &*rule.encoder {
        TextEncoder::Transcript(format) => format.n_special(),
        TextEncoder::Characters(_) => 0,
    };
    let count = |value: &Value| {
        let each = items(value).iter().map(|text| {
            let ids = rule.encoded(text, None, ClipSeconds::default(), None)?;
            Ok(ids.len() - n_special + n_times)
        });
        each.sum::<Result<usize>>()
    };
    let keep = |counts: &mut Vec<u32>, value: Result<&Value>| {
        let count = match value.and_then(count) {
            Ok(count) => (count + n_special).min(u32::MAX as usize) as u32,
            Err(error) if error.kind == ErrorKind::Memory => return Err(error),
            // The vocabulary lacks it, and the run would end there.
            Err(error) if rule.is_unknown_character(&error) => {
                return Err(unknown_character(column, &error));
            }
            Err(_) => 0,
        };
        fallible_alloc::push(counts, count)
    };
    Ok(source.collect(column, keep)?.into_iter().flatten().collect())
}
