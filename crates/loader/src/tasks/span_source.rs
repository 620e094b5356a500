//! [`SpanSource`]: the spans of a row, such as its events, from the columns that have them or from a table of
//! annotations.

use std::{ops::Range, sync::Arc};

use smallvec::SmallVec;

use crate::{
    Error, ErrorKind, Result,
    dsp::{Crop, Padding, SpanRule},
    fields::{Row, Value},
    source::{ExtraColumn, Item, Nesting},
    targets::{Annotations, SourceColumns},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanUnit {
    Seconds,
    /// Samples at the recording's own rate.
    Samples,
}

/// Where the spans of a row come from.
#[derive(Debug, Clone)]
pub enum SpanSource {
    Columns(SpanColumns),
    /// The annotated times of its recording.
    Table {
        all: Arc<Annotations>,
        /// The index of the recording's path among the values of a row.
        path: usize,
    },
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
    /// Where the row begins in its recording, seconds.
    pub row_start: f64,
    /// What messages call a span.
    pub noun: &'static str,
}

impl Grid {
    /// From one sample to another, cut to the recording; `None` if that lies outside of it.
    fn cut(&self, [start, end]: [f64; 2]) -> Option<Range<u64>> {
        let (first, last) = (start.max(0.0), end.min(self.n as f64));
        let is_outside = last < first || last == first && end > start;
        (!is_outside).then_some(first as u64..last as u64)
    }
}

/// Sorts spans, and joins those that overlap or touch.
fn unite(spans: &mut SmallVec<[Range<u64>; 16]>) {
    spans.sort_unstable_by_key(|span| (span.start, span.end));
    spans.dedup_by(|next, span| {
        let is_one = next.start <= span.end;
        if is_one {
            span.end = span.end.max(next.end);
        }
        is_one
    });
}

impl SpanSource {
    /// The columns of these names, as `SpanColumns::plan` finds them.
    ///
    /// # Errors
    /// As there.
    pub fn columns(names: &[String], unit: SpanUnit, source_columns: &SourceColumns<'_>) -> Result<Self> {
        SpanColumns::plan(names, unit, source_columns).map(Self::Columns)
    }

    /// The times of a table, found by the paths of rows.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if rows have no paths, or the table no annotations.
    pub fn table(all: Arc<Annotations>, source_columns: &SourceColumns<'_>) -> Result<Self> {
        let refused = |message: &str| Err(Error::new(ErrorKind::Config, message));
        if all.any_path().is_none() {
            return refused("crop: annotations has no regions, must have at least one");
        }
        let is_path = |extra: &ExtraColumn| *extra == ExtraColumn::Path;
        match source_columns.extra_columns.iter().position(is_path) {
            Some(path) => Ok(Self::Table { all, path }),
            None => refused(
                "crop: annotations are found by the paths of recordings, and the rows of the source have none; give the \
                 columns of the row that have them, as in {\"start\": \"starts\", \"end\": \"ends\"}",
            ),
        }
    }

    /// The annotations, if they are in a table.
    pub fn annotations(&self) -> Option<&Annotations> {
        if let Self::Table { all, .. } = self { Some(all) } else { None }
    }

    /// The clip that the spans of a row place, padded as it is and of so many samples; `None` if there are
    /// none. Regions that overlap or touch are one.
    ///
    /// # Errors
    /// As [`SpanColumns::spans`], and those of the spans; [`ErrorKind::Schema`] for a row without a path.
    pub(super) fn place(
        &self,
        rule: SpanRule,
        values: &Row,
        grid: Grid,
        (padding, clip): (Padding, usize),
        seed: u64,
    ) -> Result<Option<Crop>> {
        let mut regions: SmallVec<[Range<u64>; 16]> = match self {
            Self::Columns(columns) if rule != SpanRule::Region => {
                return rule.place(columns.spans(values, grid)?, padding, (grid.n, clip), seed);
            }
            // bounded: by the values of the row.
            Self::Columns(columns) => columns.spans(values, grid)?.collect::<Result<_>>()?,
            Self::Table { all, path } => {
                let Some(Value::Text(path)) = values.get(*path) else {
                    let message =
                        "crop: annotations are found by the path of the recording, and the row has none";
                    return Err(Error::new(ErrorKind::Schema, message));
                };
                let within = [grid.row_start, grid.row_start + grid.n as f64 / grid.rate];
                let sample = |at: f64| ((at - grid.row_start) * grid.rate).round();
                let (_, times) = all.times(path, within);
                // bounded: by the table.
                times.filter_map(|(_, times)| grid.cut(times.map(sample))).collect()
            }
        };
        unite(&mut regions);
        rule.place(regions.iter().cloned().map(Ok), padding, (grid.n, clip), seed)
    }
}

impl SpanColumns {
    /// The columns of these names: one of pairs, or that of starts and that of ends.
    ///
    /// # Errors
    /// [`ErrorKind::Schema`] for columns of other types.
    fn plan(names: &[String], unit: SpanUnit, source_columns: &SourceColumns<'_>) -> Result<Self> {
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
        let wrong =
            move |found: &str| Err(self.wrong(&format!("a {} {found}, expected [start, end]", grid.noun)));
        let pair = move |(start, end): (&'a Value, &'a Value)| match (self.names.len(), start) {
            (2, _) => Ok((start, end)),
            (_, Value::List(pair)) if let [start, end] = &pair[..] => Ok((start, end)),
            (_, Value::List(pair)) => wrong(&format!("has {} numbers", pair.len())),
            _ => wrong("is null"),
        };
        let each = starts.iter().zip(ends).map(pair);
        Ok(each.filter_map(move |pair| pair.and_then(|pair| self.on(pair, grid)).transpose()))
    }

    /// A span in samples of the grid; `None` if it lies outside of the recording.
    fn on(&self, (start, end): (&Value, &Value), grid: Grid) -> Result<Option<Range<u64>>> {
        let wrong = |found: String| Err::<f64, _>(self.wrong(&format!("a {} {found}", grid.noun)));
        let number = |value: &Value| match value {
            Value::Int(number) => Ok(*number as f64),
            Value::Float(number) if number.is_finite() => Ok(*number),
            Value::Float(number) => wrong(format!("has {number}, expected finite numbers")),
            Value::Null => wrong("has a null, expected numbers".to_owned()),
            _ => wrong("has a value that is no number".to_owned()),
        };
        let (start, end) = (number(start)?, number(end)?);
        if end < start {
            return wrong(format!("is [{start}, {end}], which ends before it begins")).map(|_| None);
        }
        let rate = grid.rate;
        let sample = |at: f64| match self.unit {
            SpanUnit::Seconds => (at * rate).round(),
            SpanUnit::Samples => (at * rate / f64::from(grid.source_rate)).round(),
        };
        Ok(grid.cut([sample(start), sample(end)]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::targets::Annotation;

    fn list(items: &[Value]) -> Value {
        Value::List(items.to_vec().into())
    }

    fn pairs(of: &[[f64; 2]]) -> Value {
        list(&of.iter().map(|pair| list(&pair.map(Value::Float))).collect::<Vec<_>>())
    }

    fn columns(n: usize, unit: SpanUnit) -> SpanColumns {
        SpanColumns { names: ["a", "b"][..n].iter().map(ToString::to_string).collect(), values: [0, 1], unit }
    }

    const GRID: Grid = Grid { n: 1000, rate: 100.0, source_rate: 200, row_start: 0.0, noun: "span" };

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
    fn regions_that_overlap_or_touch_are_one() {
        let mut spans: SmallVec<[Range<u64>; 16]> =
            [50..60, 0..10, 10..20, 55..58, 21..30, 57..70, 80..80].into_iter().collect();
        unite(&mut spans);
        assert_eq!(spans[..], [0..20, 21..30, 50..70, 80..80]);
    }

    #[test]
    fn regions_of_a_table_count_from_the_recordings_start() {
        let region = |start, end| Annotation { path: "a".into(), start, end, label: "region".into() };
        let all = vec![region(0.0, 1.0), region(4.0, 4.5), region(4.5, 5.0), region(30.0, 40.0)];
        let source = SpanSource::Table { all: Arc::new(Annotations::new(all).unwrap()), path: 1 };
        let row: Row = [Value::Int(0), Value::Text("site/a.wav".into())].into_iter().collect();
        let place = |row_start| {
            let grid = Grid { row_start, ..GRID };
            let clip = source.place(SpanRule::Region, &row, grid, (Padding::Behind, 100), 7).unwrap();
            clip.map(|clip| clip.start)
        };
        // The row has seconds 3.5 to 13.5, so the region is from 0.5 to 1.5 s; one from 4.2 s on, 0.8 s.
        assert_eq!((place(3.5), place(4.2), place(5.0)), (Some(50), Some(0), None));
        let error = source.place(SpanRule::Region, &Row::new(), GRID, (Padding::Behind, 100), 7).unwrap_err();
        assert!(error.message.contains("the row has none"), "{error}");
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
