//! The value of a target, made of a record's values. Source: own.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use super::{
    Annotations, ClipSeconds, Key, OverlapRule, Target, TargetConfig, TargetForm,
    classes::{Maps, UNKNOWN},
    tokens,
};
use crate::{
    Error, ErrorKind, Result,
    fields::{Row, Sparse, Value},
    source::{Item, NO_LABEL, Nesting},
};

impl Target {
    /// The value for a `clip` of a record of source number `source`; what is drawn is drawn by `seed`.
    ///
    /// # Errors
    /// [`ErrorKind::Schema`] for a null, a class or a character that is not allowed, a list of another
    /// length, or a number that the type cannot hold; [`ErrorKind::TooLarge`] for a long text, or too many
    /// tokens; [`ErrorKind::Corrupt`] for a transcript that is none.
    pub fn value(&self, values: &Row, source: usize, clip: ClipSeconds, seed: Option<u64>) -> Result<Value> {
        let value = values.get(self.value).unwrap_or(&Value::Null);
        match &self.config.form {
            TargetForm::Class => self.class(value, source),
            TargetForm::MultiHot { secondary, smoothing, separator } => {
                let further = secondary.as_ref().zip(self.secondary.as_ref());
                let further = further.and_then(|((column, weight), (at, maps))| {
                    Some(ClassCell { column, value: values.get(*at)?, weight: *weight, maps })
                });
                let first = ClassCell {
                    column: &self.config.column,
                    value,
                    weight: 1.0,
                    maps: &self.vocabulary.maps,
                };
                self.multi_hot(first, further, *smoothing, separator.as_deref(), source)
            }
            TargetForm::Soft { .. } => self.soft(value),
            TargetForm::Number => match (value, self.config.null) {
                (Value::Null, Some(null)) => self.number(&Value::Float(null)),
                (Value::Null, None) => Err(self.wrong("is null", "give null=, a number")),
                _ => self.number(value),
            },
            TargetForm::Text { max_bytes } => match value {
                Value::Text(text) if text.len() as u64 > *max_bytes => {
                    let message = format!(
                        "column {:?} has a text of {} bytes, max_bytes allows {max_bytes}",
                        self.config.column,
                        text.len()
                    );
                    Err(Error::new(ErrorKind::TooLarge, message))
                }
                Value::Text(_) => Ok(value.clone()),
                _ if self.config.null.is_some() => Ok(Value::Text("".into())),
                _ => Err(self.null_text()),
            },
            TargetForm::Tokens(rule) => {
                if matches!(value, Value::Null) && self.config.null.is_none() {
                    return Err(self.null_text());
                }
                let times = self.times.map(|times| times.map(|at| values.get(at).unwrap_or(&Value::Null)));
                let ids = rule.ids(value, times, clip, seed).map_err(|error| {
                    let TargetConfig { name, column, .. } = &self.config;
                    let error = match rule.is_unknown_character(&error) {
                        true => tokens::unknown_character(column, &error),
                        false => Error { message: format!("column {column:?}: {}", error.message), ..error },
                    };
                    Error { message: format!("target {name:?}: {}", error.message), ..error }
                })?;
                Ok(Value::Ids(ids.into()))
            }
            TargetForm::Column => self.column(value),
            TargetForm::Annotations { all, least, is_share } => {
                let Value::Text(path) = value else {
                    return Err(self.wrong("is null", "annotations are found by the path of the row"));
                };
                Ok(self.annotated(all.as_ref(), path, clip, *least, *is_share))
            }
            TargetForm::Frames(_) | TargetForm::Sequence(_) | TargetForm::Words(_) => {
                Err(self.wrong("is that of a clip", "its time is not known"))
            }
        }
    }

    /// Checks a cell of the target's column, as far as its value depends on nothing else.
    ///
    /// # Errors
    /// As [`Self::value`].
    pub fn check_cell(&self, cell: &Value) -> Result<()> {
        let is_null = matches!(cell, Value::Null);
        match &self.config.form {
            TargetForm::MultiHot { smoothing, separator, .. } => {
                let maps = &self.vocabulary.maps;
                let first = ClassCell { column: &self.config.column, value: cell, weight: 1.0, maps };
                self.multi_hot(first, None, *smoothing, separator.as_deref(), 0).map(drop)
            }
            TargetForm::Class => self.class(cell, 0).map(drop),
            TargetForm::Number if !is_null => self.number(cell).map(drop),
            TargetForm::Number | TargetForm::Text { .. } | TargetForm::Tokens(_) if is_null => {
                let empty = Row::default();
                self.value(&empty, 0, ClipSeconds::default(), None).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// The path of a row whose target has annotations, and when the last of these begins, seconds.
    pub fn last_annotation<'a>(&self, values: &'a Row) -> Option<(&'a str, f64)> {
        let all = self.annotations()?;
        let Value::Text(path) = values.get(self.value)? else { return None };
        all.last_start(path).map(|start| (&**path, start))
    }

    /// The classes of the annotations in a clip.
    fn annotated(
        &self,
        all: &Annotations,
        path: &str,
        clip: ClipSeconds,
        least: OverlapRule,
        is_share: bool,
    ) -> Value {
        let Some(Some(classes)) = self.vocabulary.maps.first() else { return Value::Null };
        let mut hot: Vec<(u32, f32)> = Vec::new();
        all.overlapping(path, clip, least, |label, overlap| {
            let class = classes[label as usize];
            if class != UNKNOWN {
                let value = if is_share { overlap / (clip.end - clip.start) } else { 1.0 };
                // bounded: at most once for each annotation.
                hot.push((class as u32, value as f32));
            }
        });
        largest_of_each(&mut hot);
        Value::Sparse(Arc::new(Sparse { others: 0.0, values: hot.into() }))
    }

    fn null_text(&self) -> Error {
        let remedy = format!(
            "give null=\"empty\", or leave such rows out: sampling=forebay.sampling.Where({:?}, is_null=False)",
            self.config.column
        );
        self.wrong("is null", &remedy)
    }

    pub(super) fn wrong(&self, found: &str, remedy: &str) -> Error {
        let TargetConfig { name, column, .. } = &self.config;
        Error::new(ErrorKind::Schema, format!("target {name:?}: column {column:?} {found}; {remedy}"))
    }

    pub(super) fn unknown(&self, key: &Key, column: &str) -> Error {
        let found = match key {
            Key::Number(number) => format!("has {number}, which is no class: {}", self.vocabulary.expected()),
            Key::Name(name) => format!("has {name:?}, which is no class: {}", self.vocabulary.expected()),
        };
        let remedy = match self.vocabulary.separator(key) {
            Some(separator) => {
                format!("it joins several classes: use MultiHot({column:?}, ..., separator=\"{separator}\")")
            }
            None if matches!(self.config.form, TargetForm::Class) => {
                "add it to classes, or give unknown=\"ignore\", which makes it -1: the ignore_index of the loss".to_owned()
            }
            None => "add it to classes, or give unknown=\"ignore\"".to_owned(),
        };
        let message = format!("target {:?}: column {column:?} {found}; {remedy}", self.config.name);
        Error::new(ErrorKind::Schema, message)
    }

    /// Leaves out an unknown name. The first one that joins several classes is logged.
    pub(super) fn ignore(&self, key: &Key, column: &str) {
        if let (Some(separator), Key::Name(name)) = (self.vocabulary.separator(key), key)
            && !self.is_told.swap(true, Relaxed)
        {
            log::warn!(
                "target {:?}: column {column:?} has {name:?}, which is left out as unknown, but joins several classes; use \
                 MultiHot({column:?}, ..., separator=\"{separator}\")",
                self.config.name
            );
        }
    }

    fn class(&self, value: &Value, source: usize) -> Result<Value> {
        let key = match value {
            Value::Int(number) => Key::Number(*number),
            Value::Text(name) => Key::Name(name.clone()),
            _ => {
                let null = self.config.null.map(|null| Value::Int(null as i64));
                return null.ok_or_else(|| self.wrong("is null", "give null=-1"));
            }
        };
        match self.vocabulary.class(&key, &self.vocabulary.maps, source) {
            Some(class) => Ok(Value::Int(class)),
            None if self.config.ignores_unknown => {
                self.ignore(&key, &self.config.column);
                Ok(Value::Int(NO_LABEL))
            }
            // A null that was written as -1.
            None if key == Key::Number(NO_LABEL) && self.config.null.is_some() => Ok(Value::Int(NO_LABEL)),
            None => Err(self.unknown(&key, &self.config.column)),
        }
    }

    fn multi_hot(
        &self,
        first: ClassCell<'_>,
        further: Option<ClassCell<'_>>,
        smoothing: f32,
        separator: Option<&str>,
        source: usize,
    ) -> Result<Value> {
        if matches!(first.value, Value::Null) && self.config.null.is_none() {
            return Err(self.wrong("is null", "give null=\"zeros\""));
        }
        let n = self.vocabulary.n.unwrap_or(1) as f32;
        let others = smoothing / n;
        let mut hot: Vec<(u32, f32)> = Vec::new();
        let mut unknown = None;
        for ClassCell { column, value, weight, maps } in [first].into_iter().chain(further) {
            Key::of(value, separator, &mut |key| match self.vocabulary.class(&key, maps, source) {
                // bounded: a row has at most 2^20 bytes of names, or 2^16 items.
                Some(class) => hot.push((class as u32, weight * (1.0 - smoothing) + others)),
                None if self.config.ignores_unknown => self.ignore(&key, column),
                // A null that was written as -1.
                None if key == Key::Number(NO_LABEL) && self.config.null.is_some() => {}
                None => unknown = Some((key, column)),
            });
        }
        if let Some((key, column)) = unknown {
            return Err(self.unknown(&key, column));
        }
        largest_of_each(&mut hot);
        Ok(Value::Sparse(Arc::new(Sparse { others, values: hot.into() })))
    }

    fn soft(&self, value: &Value) -> Result<Value> {
        let n = self.field.shape().and_then(|shape| shape.first().copied()).unwrap_or(0);
        let items = match (value, self.config.null) {
            (Value::List(items), _) => items,
            (_, Some(_)) => return Ok(Value::Sparse(Arc::new(Sparse::default()))),
            (_, None) => return Err(self.wrong("is null", "give null=\"zeros\"")),
        };
        if items.len() as u64 != n {
            let found = format!("has a list of {}", items.len());
            return Err(self.wrong(&found, &format!("all lists must have {n} numbers")));
        }
        if items.iter().any(|item| matches!(item, Value::Null)) {
            return Err(self.wrong("has a list with a null", "all items must be numbers"));
        }
        items.iter().try_for_each(|item| self.number(item).map(|_| ()))?;
        Ok(value.clone())
    }

    /// The number in the field's type, if that can hold it.
    fn number(&self, value: &Value) -> Result<Value> {
        let dtype = self.config.dtype;
        let fits = match (value, dtype.is_real()) {
            (&Value::Int(number), false) => dtype.holds(number),
            (&Value::Int(number), true) => dtype.holds_real(number as f64),
            (&Value::Float(number), _) => dtype.holds_real(number),
            _ => true,
        };
        match (value, dtype.is_real()) {
            _ if !fits => {
                let shown = match value {
                    Value::Int(number) => number.to_string(),
                    Value::Float(number) => format!("{number:?}"),
                    _ => String::new(),
                };
                let found = format!("has {shown}, which is no {}", dtype.name());
                Err(self.wrong(&found, "give another dtype="))
            }
            (&Value::Float(number), false) => Ok(Value::Int(number as i64)),
            (&Value::Int(number), true) => Ok(Value::Float(number as f64)),
            _ => Ok(value.clone()),
        }
    }

    /// The value of a column that is passed through.
    fn column(&self, value: &Value) -> Result<Value> {
        match (self.nesting, value) {
            (Nesting::One, value) => self.item(value),
            (Nesting::Fixed(n), Value::List(items)) if items.len() as u64 != n => {
                let message = format!(
                    "column {:?} has a list of {}, and its schema says {n}",
                    self.config.column,
                    items.len()
                );
                Err(Error::new(ErrorKind::Corrupt, message))
            }
            (_, Value::List(items)) => {
                if !items.iter().any(|item| matches!(item, Value::Null)) {
                    return Ok(value.clone());
                }
                items.iter().map(|item| self.item(item)).collect::<Result<Arc<[Value]>>>().map(Value::List)
            }
            (Nesting::Fixed(n), _) => {
                (0..n).map(|_| self.item(&Value::Null)).collect::<Result<Arc<[Value]>>>().map(Value::List)
            }
            (Nesting::List | Nesting::Pairs, _) => Ok(Value::List(Arc::new([]))),
        }
    }

    fn item(&self, value: &Value) -> Result<Value> {
        match (value, self.item) {
            (Value::Null, Item::Float(_) | Item::Null) => Ok(Value::Float(f64::NAN)),
            (Value::Null, Item::Text) => Ok(Value::Text("".into())),
            (Value::Null, Item::Whole(dtype)) if dtype.holds(NO_LABEL) => Ok(Value::Int(NO_LABEL)),
            (Value::Null, Item::Whole(dtype)) => Err(self.wrong(
                &format!("is null, and its type {} has no number for that", dtype.name()),
                "read it with forebay.targets.Number(column, null=...)",
            )),
            _ => Ok(value.clone()),
        }
    }
}

/// Leaves each class the largest of its values, in the order of classes.
fn largest_of_each(hot: &mut Vec<(u32, f32)>) {
    hot.sort_unstable_by(|(class, value), (other, of_other)| {
        class.cmp(other).then(of_other.total_cmp(value))
    });
    hot.dedup_by_key(|(class, _)| *class);
}

/// A column of classes in a row.
struct ClassCell<'a> {
    column: &'a str,
    value: &'a Value,
    weight: f32,
    maps: &'a Maps,
}
