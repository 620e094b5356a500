//! [`SchemaInference`]: the columns of a table, with types as its first rows have them.
//!
//! Input: the cells of the first rows, at most [`ROWS`] and some [`BYTES`]. Output: names and types, for
//! users who look at a source. They are claims: a later row may have another type. A column that is used is
//! read whole, and gets the type of all its rows.

use std::collections::HashMap;

use super::{
    column::{Cell, ColumnBuilder, of_json},
    json::{Json, JsonObject},
};
use crate::columns::SchemaColumn;

/// The most rows that are looked at.
pub(super) const ROWS: usize = 1000;
/// Bytes of cells after which no further row is looked at.
const BYTES: usize = 4 << 20;
/// The most columns that are listed.
const MOST: usize = 4096;
/// The most objects within each other whose values are columns.
const DEEPEST: usize = 4;

/// What was seen of a column.
#[derive(Debug)]
enum ObservedColumn {
    Values(ColumnBuilder),
    /// Values of several types, or nested.
    Other(&'static str),
}

impl ObservedColumn {
    fn push(&mut self, cell: Cell<'_>) {
        if let Self::Values(column) = self
            && column.push(cell).is_err()
        {
            *self = Self::Other("json");
        }
    }
}

/// Looks at the first rows of a table.
#[derive(Debug, Default)]
pub(super) struct SchemaInference {
    names: Vec<String>,
    seen: Vec<ObservedColumn>,
    numbers: HashMap<String, usize>,
    n_rows: usize,
    n_bytes: usize,
}

impl SchemaInference {
    /// Columns whose cells are texts, as of csv.
    pub(super) fn at_texts(names: &[String]) -> Self {
        let mut inference = Self::default();
        for name in names.iter().take(MOST) {
            inference.names.push(name.clone());
            inference.seen.push(ObservedColumn::Values(ColumnBuilder::default()));
        }
        inference
    }

    /// Begins a row; false if enough were looked at.
    pub(super) fn row(&mut self) -> bool {
        self.n_rows += 1;
        self.n_rows <= ROWS && self.n_bytes < BYTES
    }

    /// The cell of a column of texts.
    pub(super) fn text(&mut self, at: usize, cell: &[u8]) {
        self.n_bytes += cell.len();
        if let Some(seen) = self.seen.get_mut(at) {
            seen.push(Cell::Untyped(cell));
        }
    }

    /// A value of a column, which may be a new one.
    pub(super) fn value(&mut self, name: &str, cell: Cell<'_>) {
        let Some(seen) = self.column(name) else { return };
        if let ObservedColumn::Values(_) = seen {
            let text = if let Cell::Text(text) = cell { text.len() } else { 0 };
            seen.push(cell);
            self.n_bytes += text + 16;
        }
    }

    /// A column that no row of a batch can have, in words.
    pub(super) fn other(&mut self, name: &str, what: &'static str) {
        if let Some(seen) = self.column(name) {
            *seen = ObservedColumn::Other(what);
        }
    }

    /// The values of an object, those of objects in it with points in their names.
    pub(super) fn object(&mut self, object: &JsonObject<'_>) {
        self.within("", object, 0);
    }

    fn within(&mut self, outer: &str, object: &JsonObject<'_>, depth: usize) {
        for (name, value) in object.iter() {
            let name = format!("{outer}{name}");
            match value {
                Json::Object(inner) if depth < DEEPEST => self.within(&format!("{name}."), inner, depth + 1),
                value => self.value(&name, of_json(Some(value))),
            }
        }
    }

    fn column(&mut self, name: &str) -> Option<&mut ObservedColumn> {
        let at = match self.numbers.get(name) {
            Some(&at) => at,
            None if self.names.len() == MOST => return None,
            None => {
                self.n_bytes += 2 * name.len();
                self.numbers.insert(name.to_owned(), self.names.len());
                self.names.push(name.to_owned());
                self.seen.push(ObservedColumn::Values(ColumnBuilder::default()));
                self.names.len() - 1
            }
        };
        self.seen.get_mut(at)
    }

    pub(super) fn listed(self) -> Vec<SchemaColumn> {
        let of = |(name, seen)| {
            let content = match seen {
                ObservedColumn::Values(column) => column.column_type().to_string(),
                ObservedColumn::Other(what) => what.to_owned(),
            };
            SchemaColumn::new(name, content)
        };
        self.names.into_iter().zip(self.seen).map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(inference: SchemaInference) -> Vec<(String, String)> {
        inference.listed().into_iter().map(|column| (column.name, column.content)).collect()
    }

    #[test]
    fn types_of_texts() {
        let mut inference = SchemaInference::at_texts(&["a", "b", "c", "d", "e"].map(str::to_owned));
        for row in [["1", "", "true", "01", ""], ["2", "1.5", "False", "2", ""]] {
            assert!(inference.row());
            row.iter().enumerate().for_each(|(at, cell)| inference.text(at, cell.as_bytes()));
        }
        let types = listed(inference).into_iter().map(|(_, content)| content).collect::<Vec<_>>();
        assert_eq!(types, ["int64", "float64", "bool", "text", "null"]);
    }

    #[test]
    fn types_of_objects() {
        let mut inference = SchemaInference::default();
        for line in [
            r#"{"a": 1, "b": {"c": "x", "d": {"e": [1, 2]}}, "f": null}"#,
            r#"{"a": 1.5, "b": {"c": null}, "g": [{}], "h": 1}"#,
            r#"{"h": "x"}"#,
        ] {
            assert!(inference.row());
            inference.object(serde_json::from_str::<Json<'_>>(line).unwrap().as_object().unwrap());
        }
        let pairs = listed(inference);
        let pairs: Vec<_> = pairs.iter().map(|(name, content)| (&name[..], &content[..])).collect();
        let expected = [
            ("a", "float64"),
            ("b.c", "text"),
            ("b.d.e", "lists of int64"),
            ("f", "null"),
            ("g", "json"),
            ("h", "json"),
        ];
        assert_eq!(pairs, expected);
    }

    #[test]
    fn what_is_looked_at_is_bounded() {
        let mut inference = SchemaInference::default();
        let mut rows = 0;
        while inference.row() {
            rows += 1;
            inference.value("a", Cell::Text(&[b'x'; 1000]));
        }
        assert_eq!(rows, ROWS);
        let mut inference = SchemaInference::default();
        (0..2 * MOST).for_each(|n| inference.value(&n.to_string(), Cell::Int(1)));
        assert_eq!(inference.listed().len(), MOST);
        let (mut inference, mut rows) = (SchemaInference::at_texts(&["a".to_owned()]), 0);
        while inference.row() {
            rows += 1;
            inference.text(0, &[b'x'; 1 << 20]);
        }
        assert_eq!(rows, 4);
    }
}
