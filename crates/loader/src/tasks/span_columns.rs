//! [`SpanColumns`]: the spans of a row, such as its events, from the columns that have them.

use std::ops::Range;

use crate::{
    Error, ErrorKind, Result,
    fields::{Row, Value},
    source::{Item, Nesting},
    targets::SourceColumns,
    transform::{Crop, Padding, SpanRule},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanUnit {
    Seconds,
    /// Samples at the recording's own rate.
    Samples,
}

/// Where the spans of a row are among its values.
#[derive(Debug, Clone)]
pub struct SpanColumns {
    names: Vec<String>,
    /// The index of a column of pairs, or of that of starts and that of ends.
    values: [usize; 2],
    unit: SpanUnit,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Grid {
    /// Samples at the target rate.
    pub n: u64,
    /// Samples in a second of the recording.
    pub rate: f64,
    pub source_rate: u32,
}

impl SpanColumns {
    /// The columns of these names: one of pairs, or that of starts and that of ends.
    ///
    /// # Errors
    /// [`ErrorKind::Schema`] for columns of other types.
    pub fn plan(names: &[String], unit: SpanUnit, source_columns: &SourceColumns<'_>) -> Result<Self> {
        let mut values = [0; 2];
        let mut nestings = Vec::new();
        for (name, value) in names.iter().zip(&mut values) {
            let (_, at, found) = source_columns.find(name)?;
            let is_number = matches!(found.item, Item::Whole(_) | Item::Float(_) | Item::Null);
            let expected = match (names.len(), found.nesting) {
                (1, Nesting::Pairs) | (2, Nesting::One | Nesting::List | Nesting::Fixed(_)) if is_number => {
                    None
                }
                // Nulls alone are of any type.
                (1, _) if found.item == Item::Null => None,
                (1, Nesting::List | Nesting::Fixed(_)) if is_number => {
                    Some("lists of pairs [start, end]; of two columns give both names, (starts, ends)")
                }
                (1, _) => Some("lists of pairs [start, end] of numbers"),
                _ => Some("numbers, or lists of numbers"),
            };
            if let Some(expected) = expected {
                let message = format!("crop: column {name:?} is {found}, expected {expected}");
                return Err(Error::new(ErrorKind::Schema, message));
            }
            *value = at;
            nestings.push(found);
        }
        if let [starts, ends] = &nestings[..]
            && (starts.nesting == Nesting::One) != (ends.nesting == Nesting::One)
            && ![starts.item, ends.item].contains(&Item::Null)
        {
            let message = format!(
                "crop: column {:?} is {starts} and column {:?} is {ends}, expected numbers or lists in both",
                names[0], names[1]
            );
            return Err(Error::new(ErrorKind::Schema, message));
        }
        Ok(Self { names: names.to_vec(), values, unit })
    }

    fn wrong(&self, found: &str) -> Error {
        let names: Vec<_> = self.names.iter().map(|name| format!("{name:?}")).collect();
        let columns = if names.len() == 1 { "column" } else { "columns" };
        Error::new(ErrorKind::Schema, format!("crop: {columns} {}: {found}", names.join(" and ")))
    }

    /// The clip that the spans of a row place, padded as it is and of so many samples; `None` if there are
    /// none.
    ///
    /// # Errors
    /// As [`Self::spans`], and those of its spans.
    pub(super) fn place(
        &self,
        rule: SpanRule,
        values: &Row,
        grid: Grid,
        (padding, clip): (Padding, usize),
        seed: u64,
    ) -> Result<Option<Crop>> {
        rule.place(self.spans(values, grid)?, padding, (grid.n, clip), seed)
    }

    /// The spans of a row that lie within the recording, wholly or in part, cut to it. A null is no span.
    ///
    /// # Errors
    /// [`ErrorKind::Schema`] for two lists of other lengths; each span, for a null or a number that is not
    /// finite within, or an end before the start.
    fn spans<'a>(
        &'a self,
        values: &'a Row,
        grid: Grid,
    ) -> Result<impl Iterator<Item = Result<Range<u64>>> + Clone + 'a> {
        let value = |at: usize| values.get(at).unwrap_or(&Value::Null);
        let items = |at: usize| match value(at) {
            Value::List(items) => &items[..],
            Value::Null => &[],
            one => std::slice::from_ref(one),
        };
        let starts = items(self.values[0]);
        let ends = if self.names.len() == 2 { items(self.values[1]) } else { starts };
        if starts.len() != ends.len() {
            return Err(self.wrong(&format!("the row has {} starts and {} ends", starts.len(), ends.len())));
        }
        let pair = |(start, end): (&'a Value, &'a Value)| match (self.names.len(), start) {
            (2, _) => Ok((start, end)),
            (_, Value::List(pair)) if let [start, end] = &pair[..] => Ok((start, end)),
            (_, Value::List(pair)) => {
                Err(self.wrong(&format!("a span has {} numbers, expected [start, end]", pair.len())))
            }
            _ => Err(self.wrong("a span is null, expected [start, end]")),
        };
        let each = starts.iter().zip(ends).map(pair);
        Ok(each.filter_map(move |pair| pair.and_then(|pair| self.on(pair, grid)).transpose()))
    }

    /// A span in samples of the grid; `None` if it lies outside of the recording.
    fn on(&self, (start, end): (&Value, &Value), grid: Grid) -> Result<Option<Range<u64>>> {
        let number = |value: &Value| match value {
            Value::Int(number) => Ok(*number as f64),
            Value::Float(number) if number.is_finite() => Ok(*number),
            Value::Float(number) => Err(self.wrong(&format!("a span has {number}, expected finite numbers"))),
            Value::Null => Err(self.wrong("a span has a null, expected numbers")),
            _ => Err(self.wrong("a span has a value that is no number")),
        };
        let (start, end) = (number(start)?, number(end)?);
        if end < start {
            return Err(self.wrong(&format!("a span is [{start}, {end}], which ends before it begins")));
        }
        let rate = grid.rate;
        let sample = |at: f64| match self.unit {
            SpanUnit::Seconds => (at * rate).round(),
            SpanUnit::Samples => (at * rate / f64::from(grid.source_rate)).round(),
        };
        let (start, end, n) = (sample(start), sample(end), grid.n as f64);
        let (first, last) = (start.max(0.0), end.min(n));
        let is_outside = last < first || last == first && end > start;
        Ok((!is_outside).then_some(first as u64..last as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(items: &[Value]) -> Value {
        Value::List(items.to_vec().into())
    }

    fn pairs(of: &[[f64; 2]]) -> Value {
        list(&of.iter().map(|pair| list(&pair.map(Value::Float))).collect::<Vec<_>>())
    }

    fn columns(n: usize, unit: SpanUnit) -> SpanColumns {
        SpanColumns { names: ["a", "b"][..n].iter().map(ToString::to_string).collect(), values: [0, 1], unit }
    }

    const GRID: Grid = Grid { n: 1000, rate: 100.0, source_rate: 200 };

    fn found(columns: &SpanColumns, values: &[Value]) -> Result<Vec<(u64, u64)>> {
        let row: Row = values.iter().cloned().collect();
        columns.spans(&row, GRID)?.map(|span| span.map(|span| (span.start, span.end))).collect()
    }

    #[test]
    fn spans_are_cut_to_the_recording_and_those_outside_left_out() {
        let all =
            [[1.0, 2.5], [-3.0, 0.5], [9.9, 30.0], [-2.0, -1.0], [10.0, 11.0], [11.0, 11.0], [4.0, 4.0]];
        let want = [(100, 250), (0, 50), (990, 1000), (400, 400)];
        assert_eq!(found(&columns(1, SpanUnit::Seconds), &[pairs(&all)]).unwrap(), want);
        let samples = all.map(|pair| pair.map(|at| at * 200.0));
        assert_eq!(found(&columns(1, SpanUnit::Samples), &[pairs(&samples)]).unwrap(), want);
        let [starts, ends] = [0, 1].map(|at| list(&all.map(|pair| Value::Float(pair[at]))));
        assert_eq!(found(&columns(2, SpanUnit::Seconds), &[starts, ends]).unwrap(), want);
        let one = [Value::Int(1), Value::Float(2.5)];
        assert_eq!(found(&columns(2, SpanUnit::Seconds), &one).unwrap(), [(100, 250)]);
        // At the very end.
        assert_eq!(
            found(&columns(2, SpanUnit::Seconds), &[Value::Int(10), Value::Int(10)]).unwrap(),
            [(1000, 1000)]
        );
        let huge = pairs(&[[-1e300, 1e300]]);
        assert_eq!(found(&columns(1, SpanUnit::Seconds), &[huge]).unwrap(), [(0, 1000)]);
    }

    #[test]
    fn nulls_and_empty_lists_are_no_spans() {
        for values in [&[Value::Null][..], &[list(&[])], &[]] {
            assert_eq!(found(&columns(1, SpanUnit::Seconds), values).unwrap(), []);
        }
        assert_eq!(found(&columns(2, SpanUnit::Seconds), &[Value::Null, list(&[])]).unwrap(), []);
    }

    #[test]
    fn wrong_spans_are_told() {
        for (values, told) in [
            (vec![pairs(&[[1.0, 2.0], [2.0, 1.0]])], "a span is [2, 1], which ends before it begins"),
            (vec![pairs(&[[1.0, f64::NAN]])], "a span has NaN"),
            (vec![pairs(&[[f64::NEG_INFINITY, 0.0]])], "a span has -inf"),
            (vec![list(&[Value::Null])], "a span is null"),
            (vec![list(&[list(&[Value::Null, Value::Int(1)])])], "a span has a null"),
            (vec![list(&[list(&[Value::Int(1)])])], "a span has 1 numbers"),
            (vec![list(&[list(&[Value::Int(1), Value::Text("x".into())])])], "is no number"),
        ] {
            let error = found(&columns(1, SpanUnit::Seconds), &values).unwrap_err();
            assert!(error.message.contains(told), "{error}");
            assert!(error.message.contains("column \"a\""), "{error}");
        }
        let error = found(&columns(2, SpanUnit::Seconds), &[list(&[Value::Int(1)]), list(&[])]).unwrap_err();
        assert!(
            error.message.contains("columns \"a\" and \"b\": the row has 1 starts and 0 ends"),
            "{error}"
        );
    }
}
