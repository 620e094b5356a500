//! The tokens of a transcript between special tokens, with timestamps, as Whisper is trained on them.
//!
//! Input: a text, or segments with their times. Output: the prefix, the text's ids, and the suffix. With
//! timestamps each segment is between the tokens of its start and its end, `<|0.00|>` to `<|30.00|>`, rounded
//! to the nearest step. A last segment without an end, which goes on after the clip, is its start alone.
//!
//! Source: Radford et al., "Robust speech recognition via large-scale weak supervision" (2022), section 2.3.

use crate::{Dropout, Error, ErrorKind, Result, Tokenizer, fallible_alloc};

/// The last time that has a token, seconds: the length of a clip of Whisper.
const LAST: f64 = 30.0;

/// The shortest step, seconds: tokens are named with two decimals.
const SHORTEST_STEP: f64 = 0.01;

/// A special token, by its id or by its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpecialToken<'a> {
    /// Any id.
    Id(u32),
    /// The text of a token that the tokenizer has.
    Text(&'a str),
}

/// A part of a transcript; times in seconds from the start of the clip.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TranscriptSegment<'a> {
    /// Where the segment begins.
    pub start: f64,
    /// Where it ends; None, for the last segment only, if it goes on after the clip.
    pub end: Option<f64>,
    /// Encoded as it is; those of Whisper begin with a space.
    pub text: &'a str,
}

/// What a transcript has beside the tokens of its text.
#[derive(Debug, Clone, Default)]
pub struct TranscriptOptions<'a> {
    /// Tokens before it, such as `<|startoftranscript|>`, `<|en|>` and `<|transcribe|>`.
    pub prefix: Vec<SpecialToken<'a>>,
    /// Tokens behind it, such as `<|endoftext|>`.
    pub suffix: Vec<SpecialToken<'a>>,
    /// The step of the tokens of times in seconds, 0.02 for Whisper; None for none.
    pub timestamps: Option<f64>,
    /// The probability with which each merge is left out (BPE dropout).
    pub dropout: f64,
}

/// A tokenizer, and the special tokens of its transcripts. Immutable.
#[derive(Debug, Clone)]
pub struct TranscriptFormat {
    tokenizer: Tokenizer,
    prefix: Vec<u32>,
    suffix: Vec<u32>,
    timestamps: Option<Timestamps>,
    dropout: Dropout,
}

#[derive(Debug, Clone)]
struct Timestamps {
    step: f64,
    /// The id of each multiple of the step.
    ids: Vec<u32>,
}

impl TranscriptFormat {
    /// The format of the transcripts that `tokenizer` encodes.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if the tokenizer lacks a token, or a number is out of range; as
    /// [`Tokenizer::dropout`].
    pub fn new(tokenizer: Tokenizer, options: &TranscriptOptions<'_>) -> Result<Self> {
        Ok(Self {
            prefix: ids(&tokenizer, "prefix", &options.prefix)?,
            suffix: ids(&tokenizer, "suffix", &options.suffix)?,
            timestamps: options.timestamps.map(|step| Timestamps::new(&tokenizer, step)).transpose()?,
            dropout: tokenizer.dropout(options.dropout)?,
            tokenizer,
        })
    }

    /// The tokenizer of the texts.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Whether transcripts have the tokens of times.
    pub fn has_timestamps(&self) -> bool {
        self.timestamps.is_some()
    }

    /// Whether the tokens of a text are drawn.
    pub fn is_random(&self) -> bool {
        self.dropout != Dropout::default()
    }

    /// The number of tokens of an empty transcript.
    pub fn n_special(&self) -> usize {
        self.prefix.len() + self.suffix.len()
    }

    /// Leaves out ids before the suffix of a transcript, until it has `most`, at least [`Self::n_special`].
    pub fn cut(&self, ids: &mut Vec<u32>, most: usize) {
        let end = ids.len().saturating_sub(self.suffix.len());
        let begin = most.saturating_sub(self.suffix.len());
        if begin < end {
            ids.drain(begin..end);
        }
    }

    /// Appends the prefix, the ids of `text`, and the suffix. With a `seed` merges are left out as the
    /// format's dropout says.
    ///
    /// # Errors
    /// As [`Tokenizer::encode_ordinary`]. After an error `out` is as before.
    pub fn encode(&self, text: &str, seed: Option<u64>, out: &mut Vec<u32>) -> Result<()> {
        self.framed(out, |out| self.text(text, seed, out))
    }

    fn text(&self, text: &str, seed: Option<u64>, out: &mut Vec<u32>) -> Result<()> {
        match seed {
            Some(seed) => self.tokenizer.encode_with_dropout(text, self.dropout, seed, out),
            None => self.tokenizer.encode_ordinary(text, out),
        }
    }

    /// Appends the prefix, the ids of the segments, between those of their times if the format has
    /// timestamps, and the suffix. Each text is encoded alone.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if a time is not within 0 to 30 s, if a segment ends before it begins or begins
    /// before the last one ends (by a step or more), or if one before the last has no end; and as
    /// [`Tokenizer::encode_ordinary`]. After an error `out` is as before.
    pub fn encode_segments(
        &self,
        segments: &[TranscriptSegment<'_>],
        seed: Option<u64>,
        out: &mut Vec<u32>,
    ) -> Result<()> {
        self.framed(out, |out| {
            let Some(timestamps) = &self.timestamps else {
                return segments.iter().try_for_each(|segment| self.text(segment.text, seed, out));
            };
            let mut last = 0;
            for (number, segment) in segments.iter().enumerate() {
                let start = timestamps.place(number, "start", segment.start)?;
                if start < last {
                    return bad(format!(
                        "segment {number} of the transcript begins at {} s, before segment {} ends, at {:.2} s; sort the segments, \
                         and let them not overlap",
                        segment.start,
                        number - 1,
                        timestamps.step * last as f64
                    ));
                }
                fallible_alloc::push(out, timestamps.ids[start])?;
                let Some(seconds) = segment.end else {
                    if number + 1 < segments.len() {
                        return bad(format!(
                            "segment {number} of the transcript has no end, expected one for all segments before the last, {}",
                            segments.len() - 1
                        ));
                    }
                    break;
                };
                let end = timestamps.place(number, "end", seconds)?;
                if seconds < segment.start {
                    return bad(format!(
                        "segment {number} of the transcript ends at {seconds} s, before its start, at {} s",
                        segment.start
                    ));
                }
                self.text(segment.text, seed, out)?;
                fallible_alloc::push(out, timestamps.ids[end])?;
                last = end;
            }
            Ok(())
        })
    }

    fn framed(&self, out: &mut Vec<u32>, encode: impl FnOnce(&mut Vec<u32>) -> Result<()>) -> Result<()> {
        let before = out.len();
        let all = || {
            extend(out, &self.prefix)?;
            encode(out)?;
            extend(out, &self.suffix)
        };
        let result = all();
        if result.is_err() {
            out.truncate(before);
        }
        result
    }
}

fn extend(out: &mut Vec<u32>, ids: &[u32]) -> Result<()> {
    fallible_alloc::grow(out, ids.len())?;
    out.extend_from_slice(ids);
    Ok(())
}

fn bad<T>(message: String) -> Result<T> {
    Err(Error::new(ErrorKind::Corrupt, message))
}

impl Timestamps {
    fn new(tokenizer: &Tokenizer, step: f64) -> Result<Self> {
        let config = |message: String| Err(Error::new(ErrorKind::Config, message));
        if !(SHORTEST_STEP..=LAST).contains(&step) {
            return config(format!(
                "timestamps is {step}, must be {SHORTEST_STEP} to {LAST} seconds; Whisper's step is 0.02"
            ));
        }
        // At most 3001, and half a step more for rounding.
        let n = (LAST / step + 0.5) as usize;
        let mut ids = Vec::new();
        for number in 0..=n {
            let text = format!("<|{:.2}|>", number as f64 * step);
            match tokenizer.token_to_id(&text) {
                Some(id) => ids.push(id),
                None => {
                    return config(format!(
                        "timestamps is {step}, but {tokenizer:?} has no token {text:?}; use a tokenizer with Whisper's timestamps, \
                         or leave out timestamps="
                    ));
                }
            }
        }
        Ok(Self { step, ids })
    }

    /// The number of the step nearest to a time.
    fn place(&self, segment: usize, name: &str, seconds: f64) -> Result<usize> {
        if !(0.0..=LAST).contains(&seconds) {
            return bad(format!(
                "segment {segment} of the transcript has the {name} {seconds} s, must be 0 to {LAST} s from the start of the clip"
            ));
        }
        Ok(((seconds / self.step).round() as usize).min(self.ids.len() - 1))
    }
}

/// The ids of the tokens of a parameter.
fn ids(tokenizer: &Tokenizer, name: &str, tokens: &[SpecialToken<'_>]) -> Result<Vec<u32>> {
    let config = |message: String| Error::new(ErrorKind::Config, message);
    tokens
        .iter()
        .enumerate()
        .map(|(at, token)| match *token {
            SpecialToken::Id(id) if id <= i32::MAX as u32 => Ok(id),
            SpecialToken::Id(id) => Err(config(format!("{name}[{at}] is {id}, must be below 2^31"))),
            SpecialToken::Text(text) => tokenizer.token_to_id(text).ok_or_else(|| {
                config(format!("{name}[{at}] is {text:?}, which is no token of {tokenizer:?}"))
            }),
        })
        .collect()
}
