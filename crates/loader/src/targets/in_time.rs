//! The values of targets that follow the time of a clip: frames, sequences and words. Source: own.

use std::sync::atomic::Ordering::Relaxed;

use super::{
    ClipSeconds, ClipTimes, EventSource, FrameColumns, FramesRule, FramesScratch, Key, Target, TargetConfig,
    TargetForm, TimeAxis, WordPart,
    classes::UNKNOWN,
    frames::{self, EachEvent},
    tokens,
};
use crate::{
    Error, ErrorKind, Result,
    fields::{DataType, Dim, Row, Value},
};

impl Target {
    /// Its axis along the time of a clip, if it has one.
    pub fn time_axis(&self) -> Option<TimeAxis> {
        match &self.config.form {
            TargetForm::Frames(rule) => Some(rule.time_axis()),
            TargetForm::Sequence(rule) => Some(TimeAxis::Values { rate: rule.rate }),
            _ => None,
        }
    }

    /// Whether it depends on what is heard when in a clip.
    pub fn follows_time(&self) -> bool {
        self.config.form.follows_time()
    }

    /// Whether it is of words, which have times.
    pub fn has_words(&self) -> bool {
        matches!(self.config.form, TargetForm::Words(_))
    }

    /// The value for a clip whose time it follows.
    ///
    /// # Errors
    /// As [`Self::value`]; [`ErrorKind::Corrupt`] for times that are none.
    pub fn value_in_time(&self, times: &ClipTimes<'_>, scratch: &mut FramesScratch) -> Result<Value> {
        let name = &self.config.name;
        match &self.config.form {
            TargetForm::Frames(rule) => {
                let events = RowEvents { target: self, rule, source: times.source };
                let (value, left_out) = scratch.frames(rule.columns, times, &events)?;
                if left_out > 0 && !self.is_told.swap(true, Relaxed) {
                    let n =
                        self.field.dims.last().map_or(0, |dim| if let Dim::Fixed(n) = dim { *n } else { 0 });
                    log::warn!(
                        "target {name:?}: a clip has {} speakers, and the target has columns for {n}; those with the least talk \
                         time are left out, of this clip and of others",
                        n + left_out as u64
                    );
                }
                Ok(value)
            }
            TargetForm::Sequence(rule) => {
                let (values, _) = (times.row)(0);
                let list = values.get(self.value).unwrap_or(&Value::Null);
                let pad = match self.field.dtype {
                    DataType::Int64 => Value::Int(rule.pad as i64),
                    _ => Value::Float(rule.pad),
                };
                frames::sequence(tokens::items(list), &pad, rule.rate, times)
            }
            _ => self.words(WordPart::Text, times),
        }
    }

    /// What is told of the words of a clip.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] for times that are none.
    pub fn words(&self, part: WordPart, times: &ClipTimes<'_>) -> Result<Value> {
        let (values, _) = (times.row)(0);
        let null = Value::Null;
        let of = |at: usize| values.get(at).unwrap_or(&null);
        let [starts, ends] = self.times.unwrap_or_default().map(of);
        let found = frames::words((of(self.value), starts, ends), part, times);
        found.map_err(|error| self.of_lists(error))
    }

    /// An error about the lists of a row, with the name of the target.
    fn of_lists(&self, error: Error) -> Error {
        let TargetConfig { name, column, .. } = &self.config;
        match error.kind {
            ErrorKind::Corrupt | ErrorKind::TooLarge => {
                Error { message: format!("target {name:?}: column {column:?}: {}", error.message), ..error }
            }
            _ => error,
        }
    }
}

/// The events of rows, for frames.
struct RowEvents<'a> {
    target: &'a Target,
    rule: &'a FramesRule,
    source: usize,
}

impl EachEvent for RowEvents<'_> {
    fn each(
        &self,
        (part, values, about): (usize, &Row, ClipSeconds),
        within: [f64; 2],
        each: &mut dyn FnMut(u64, Key, [f64; 2]) -> Result<()>,
    ) -> Result<()> {
        let Self { target, rule, source } = *self;
        let value = values.get(target.value).unwrap_or(&Value::Null);
        let is_of_clips = matches!(rule.columns, FrameColumns::Speakers { is_of_data: false, .. });
        if let EventSource::Table(all) = &rule.events {
            let Value::Text(path) = value else {
                return Err(target.wrong("is null", "annotations are found by the path of the row"));
            };
            let Some(Some(classes)) = target.vocabulary.maps.first() else { return Ok(()) };
            let (recording, events) = all.times(path, within.map(|seconds| about.row_start + seconds));
            for (label, times) in events {
                let times = times.map(|seconds| seconds - about.row_start);
                match classes[label as usize] {
                    _ if is_of_clips => each(recording, Key::Number(label.into()), times)?,
                    UNKNOWN => {}
                    class => each(0, Key::Number(class), times)?,
                }
            }
            return Ok(());
        }
        let null = Value::Null;
        let [starts, ends] = target.times.unwrap_or_default().map(|at| values.get(at).unwrap_or(&null));
        let column = &target.config.column;
        frames::listed_events((value, starts, ends), &mut |label, times| {
            let mut found = Ok(());
            Key::of(label, None, &mut |key| {
                let class = || target.vocabulary.class(&key, &target.vocabulary.maps, source);
                found = match (is_of_clips, (!is_of_clips).then(class).flatten()) {
                    (true, _) => each(part as u64, key, times),
                    (false, Some(class)) => each(0, Key::Number(class), times),
                    (false, None) if target.config.ignores_unknown => {
                        target.ignore(&key, column);
                        Ok(())
                    }
                    (false, None) => Err(target.unknown(&key, column)),
                };
            });
            found
        })
        .map_err(|error| target.of_lists(error))
    }
}
