//! [`Sampling`]: which rows of a source a loader reads, and how often each comes in an epoch.
//!
//! Rows are chosen and weighed when the loader is made, from the columns that this needs, without a
//! recording. What follows is arithmetic: [`WeightedRows`]. Source: own.

mod classes;
mod lengths;
mod same_class;

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
    sync::Arc,
};

pub use classes::{Balance, ClassCount, ClassCounts, Joined, class_counts};
use classes::{RowClasses, Unbalanced, has_floats, named, of_groups};
pub use lengths::{
    LeftOut, LengthLimits, Played, RowSeconds, is_length, within_tokens, within_tokens_per_second,
};
pub use same_class::SameClass;

use crate::{
    Error, ErrorKind, Result, fallible_alloc,
    fields::Value,
    order::WeightedRows,
    seed::{Purpose, hash},
    source::{Recordings, Subset},
    targets::Key,
};

/// What a user asks for: rows that satisfy all parts, weighed by the product of the weights.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sampling {
    /// A number of rows, or their numbers.
    pub subset: Option<Subset>,
    pub filters: Vec<Filter>,
    pub limits: Vec<Limit>,
    pub weights: Vec<Weighting>,
    /// The examples of an epoch; `None`: as many as rows.
    pub epoch_size: Option<u64>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Filter {
    pub column: String,
    /// The values, of which a list must have one; `None`: any.
    pub values: Option<Vec<Key>>,
    /// The values, of which a list must have none.
    pub exclude: Option<Vec<Key>>,
    pub minimum: Option<f64>,
    pub maximum: Option<f64>,
    /// Whether the value must be null, or must not be.
    pub is_null: Option<bool>,
}

/// At most so many rows of each value of a column.
#[derive(Debug, Clone, PartialEq)]
pub struct Limit {
    pub column: String,
    pub n: u64,
    pub seed: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Weighting {
    /// One for each row of the files.
    Given(Arc<[f64]>),
    Column(String),
    /// By the number of rows of each class.
    Balanced(Balance),
}

/// What a [`Sampling`] chooses of a source.
#[derive(Debug, Clone, Default)]
pub struct Chosen {
    /// The rows that are read, ascending; `None`: all.
    pub rows: Option<Arc<[u64]>>,
    /// Their weights, for each group of files; `None`: each row comes once.
    pub weights: Option<Arc<[Arc<WeightedRows>]>>,
    /// For each column that is balanced and each group of files, the expected examples of an epoch.
    pub classes: Vec<ClassCounts>,
}

fn refused<T>(message: String) -> Result<T> {
    Err(Error::new(ErrorKind::Config, message))
}

impl Sampling {
    pub fn columns(&self) -> impl Iterator<Item = &String> {
        let weighed = self.weights.iter().filter_map(|weighting| match weighting {
            Weighting::Given(_) => None,
            Weighting::Column(column) | Weighting::Balanced(Balance { column, .. }) => Some(column),
        });
        let filtered = self.filters.iter().map(|filter| &filter.column);
        filtered.chain(self.limits.iter().map(|limit| &limit.column)).chain(weighed)
    }

    /// Whether it says which rows are read, not only how often.
    pub fn chooses(&self) -> bool {
        self.subset.is_some() || !self.filters.is_empty() || !self.limits.is_empty()
    }

    /// How rows are weighed by their classes.
    pub fn balances(&self) -> impl Iterator<Item = &Balance> {
        self.weights.iter().filter_map(|weighting| match weighting {
            Weighting::Balanced(balance) => Some(balance),
            _ => None,
        })
    }

    /// Whether it says how often rows come.
    pub fn weighs(&self) -> bool {
        !self.weights.is_empty() || self.epoch_size.is_some()
    }

    /// Those that satisfy both, weighed by both.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if both have a subset, or epochs of different sizes.
    pub fn and(mut self, other: Self) -> Result<Self> {
        if self.subset.is_some() && other.subset.is_some() {
            return refused("two parts are a Subset, at most one is possible".to_owned());
        }
        if let (Some(one), Some(two)) = (self.epoch_size, other.epoch_size)
            && one != two
        {
            return refused(format!("epoch_size is {one} in one part and {two} in another"));
        }
        self.subset = self.subset.or(other.subset);
        self.epoch_size = self.epoch_size.or(other.epoch_size);
        self.filters.extend(other.filters);
        self.limits.extend(other.limits);
        self.weights.extend(other.weights);
        Ok(self)
    }

    /// Chooses and weighs the rows of a source; `of_length` leaves those that have a length that is possible.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if no row is left, or for weights that are not possible; as
    /// [`Recordings::collect`]; those of `of_length`.
    pub fn choose(
        &self,
        source: &Recordings,
        of_length: impl FnOnce(Option<Arc<[u64]>>) -> Result<Option<Arc<[u64]>>>,
    ) -> Result<Chosen> {
        let n_rows = source.n_rows();
        let mut rows = self.subset.as_ref().map(|subset| subset.rows(n_rows)).transpose()?;
        for filter in &self.filters {
            let passes = filter.passes(source)?;
            rows = Some(kept(rows, n_rows, |row| passes[row as usize])?);
            if rows.as_ref().is_some_and(|rows| rows.is_empty()) {
                return refused(format!("no row is left by {}", filter.described()));
            }
        }
        rows = of_length(rows)?;
        for limit in &self.limits {
            rows = Some(limit.rows(source, rows)?);
        }
        if !self.weighs() {
            return Ok(Chosen { rows, ..Chosen::default() });
        }
        let n = rows.as_ref().map_or(n_rows, |rows| rows.len() as u64);
        let row_of = |at: u64| rows.as_ref().map_or(at, |rows| rows[at as usize]);
        let mut weights = fallible_alloc::with_room(n as usize)?;
        weights.extend((0..n).map(|_| 1.0));
        let groups = classes::groups(source, rows.as_deref());
        let n_copies = |group: &Range<u64>| self.epoch_size.unwrap_or(group.end - group.start);
        let mut balanced = Vec::new();
        for weighting in &self.weights {
            match weighting {
                Weighting::Given(given) => {
                    if given.len() as u64 != n_rows {
                        return refused(format!(
                            "weights has {} numbers for {n_rows} rows, must have one for each row of the files",
                            given.len()
                        ));
                    }
                    for (weight, at) in weights.iter_mut().zip(0..) {
                        *weight *= given[row_of(at) as usize];
                    }
                }
                Weighting::Column(column) => {
                    let found = numbers(source, column)?;
                    for (weight, at) in weights.iter_mut().zip(0..) {
                        let row = row_of(at);
                        let number = found[row as usize];
                        if !(number.is_finite() && number >= 0.0) {
                            let found = if number.is_nan() { "no number".into() } else { number.to_string() };
                            return refused(format!(
                                "column {column:?} has {found} in row {row}, must be a weight: a number from 0 on; \
                                 Balanced({column:?}) makes weights of classes"
                            ));
                        }
                        *weight *= number;
                    }
                }
                Weighting::Balanced(balance) => {
                    let separator = balance.separator.as_deref();
                    let classes = RowClasses::of_column(source, &balance.column, separator)?;
                    let mut unbalanced = Unbalanced::default();
                    for group in &groups {
                        let own = balance.weights(
                            &classes,
                            group.clone().map(row_of),
                            n_copies(group),
                            &mut unbalanced,
                        )?;
                        for (weight, own) in weights[group.start as usize..].iter_mut().zip(own) {
                            *weight *= own;
                        }
                    }
                    balanced.push((balance, classes, unbalanced));
                }
            }
        }
        if let Some(at) = weights.iter().position(|weight| !weight.is_finite()) {
            let row = row_of(at as u64);
            return refused(format!(
                "the product of the weights of row {row} is {}, must be finite",
                weights[at]
            ));
        }
        let made = groups.iter().map(|group| {
            let weights = &weights[group.start as usize..group.end as usize];
            WeightedRows::new(weights, n_copies(group)).map(Arc::new)
        });
        let made = made.collect::<Result<Arc<[_]>>>()?;
        let mut counts = Vec::new();
        for (balance, classes, mut unbalanced) in balanced {
            let column = &balance.column;
            let own = classes::expected(source, (column, &classes), rows.as_deref(), &weights, n_copies);
            // A filter by the classes themselves leaves others out on purpose.
            if !self.filters.iter().any(|filter| filter.column == *column) {
                unbalanced.add_absent(own.iter());
            }
            unbalanced.warn(balance);
            counts.extend(own);
        }
        Ok(Chosen { rows, weights: Some(made), classes: counts })
    }
}

/// Those of `rows` (`None`: all) that `is_kept` says.
fn kept(rows: Option<Arc<[u64]>>, n_rows: u64, is_kept: impl Fn(u64) -> bool) -> Result<Arc<[u64]>> {
    let n = rows.as_ref().map_or(n_rows, |rows| rows.len() as u64);
    let mut found = fallible_alloc::with_room(n as usize)?;
    let row_of = |at: u64| rows.as_ref().map_or(at, |rows| rows[at as usize]);
    found.extend((0..n).map(row_of).filter(|row| is_kept(*row)));
    Ok(found.into())
}

/// The numbers of a column; NaN where it has none.
///
/// # Errors
/// As [`Recordings::collect`].
pub fn numbers(source: &Recordings, column: &str) -> Result<Vec<f64>> {
    let keep = |found: &mut Vec<f64>, value: Result<&Value>| {
        found.push(value.ok().and_then(number).unwrap_or(f64::NAN));
        Ok(())
    };
    Ok(source.collect(column, keep)?.into_iter().flatten().collect())
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Int(number) => Some(*number as f64),
        Value::Float(number) => Some(*number),
        _ => None,
    }
}

/// The keys of a value, with whole floats as numbers: tables have integers with nulls as floats.
fn keys_of(value: &Value, each: &mut dyn FnMut(Key)) {
    match value {
        Value::Float(number) => Key::of_float(*number).into_iter().for_each(each),
        Value::List(items) => items.iter().for_each(|item| keys_of(item, each)),
        _ => Key::of(value, None, each),
    }
}

/// What [`Filter::passes`] finds in a shard.
#[derive(Debug, Default)]
struct Judged {
    /// Whether each row passes by what is stored, and the numbers whose names may decide otherwise.
    rows: Vec<(bool, Vec<i64>)>,
    /// The values of the condition that rows have.
    found: HashSet<Key>,
    /// Whether rows have numbers, and names.
    has_kinds: [bool; 2],
}

impl Filter {
    /// Checks that rows have the values that are named: a value that no row has does nothing.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for names where the column has numbers only, and numbers where it has names.
    fn check_found(&self, found: &HashSet<Key>, has_kinds: [bool; 2]) -> Result<()> {
        let has_limits = self.minimum.is_some() || self.maximum.is_some();
        if has_limits && has_kinds == [false, true] {
            let column = &self.column;
            return refused(format!(
                "Where({column:?}): minimum and maximum are of numbers, and the column has texts; give values or exclude"
            ));
        }
        for (what, keys) in [("values", &self.values), ("exclude", &self.exclude)] {
            let missing = || keys.iter().flatten().filter(|key| !found.contains(key));
            let Some(first) = missing().next() else { continue };
            let shown = match first {
                Key::Number(number) => number.to_string(),
                Key::Name(name) => format!("{name:?}"),
            };
            let message = match (first, has_kinds) {
                (Key::Name(_), [true, false]) => Err("numbers"),
                (Key::Number(_), [false, true]) => Err("texts"),
                _ => Ok(missing().count()),
            };
            let column = &self.column;
            match message {
                Err(kind) => {
                    return refused(format!(
                        "Where({column:?}): {what} has {shown}, and the column has {kind}; give {kind}"
                    ));
                }
                Ok(n) => log::warn!(
                    "Where({column:?}): {n} of the {} values of {what} are in no row, such as {shown}",
                    keys.as_ref().map_or(0, Vec::len)
                ),
            }
        }
        Ok(())
    }

    fn described(&self) -> String {
        let Self { column, values, exclude, minimum, maximum, is_null } = self;
        let value = |key: &Key| match key {
            Key::Number(number) => number.to_string(),
            Key::Name(name) => format!("{name:?}"),
        };
        let listed = |name: &str, keys: &Option<Vec<Key>>| {
            keys.as_ref().map(|keys| {
                let shown: Vec<_> = keys.iter().take(5).map(value).collect();
                let more = if keys.len() > 5 { ", ..." } else { "" };
                format!("{name}=[{}{more}]", shown.join(", "))
            })
        };
        let parts = [
            listed("values", values),
            listed("exclude", exclude),
            minimum.map(|least| format!("minimum={least}")),
            maximum.map(|most| format!("maximum={most}")),
            is_null.map(|is_null| format!("is_null={}", if is_null { "True" } else { "False" })),
        ];
        let parts: Vec<_> = parts.into_iter().flatten().collect();
        format!("Where({column:?}, {})", parts.join(", "))
    }

    /// Whether each row satisfies it. A bad row does, and is reported when it is read.
    fn passes(&self, source: &Recordings) -> Result<Vec<bool>> {
        // What a column of classes with names has to be, by number too.
        let mut all_names: Vec<Option<Vec<String>>> = Vec::new();
        of_groups(source, &self.column, |_, names| all_names.push(names.cloned()));
        let set =
            |keys: &Option<Vec<Key>>| keys.as_ref().map(|keys| keys.iter().cloned().collect::<HashSet<_>>());
        let (keys, excluded) = (set(&self.values), set(&self.exclude));
        let has_limits = self.minimum.is_some() || self.maximum.is_some();
        let keep = |judged: &mut Judged, value: Result<&Value>| {
            let Ok(value) = value else {
                judged.rows.push((true, Vec::new()));
                return Ok(());
            };
            let is_null = matches!(value, Value::Null);
            if has_limits {
                judged.has_kinds[0] |= number(value).is_some();
                judged.has_kinds[1] |= matches!(value, Value::Text(_));
            }
            let fits = self.is_null.is_none_or(|wanted| wanted == is_null)
                && (!has_limits
                    || number(value).is_some_and(|number| {
                        self.minimum.is_none_or(|least| number >= least)
                            && self.maximum.is_none_or(|most| number <= most)
                    }));
            let (mut has, mut unnamed, mut is_excluded) = (keys.is_none(), Vec::new(), false);
            if keys.is_some() || excluded.is_some() {
                judged.has_kinds[0] |= has_floats(value);
                keys_of(value, &mut |key| {
                    let is_in =
                        |keys: &Option<HashSet<Key>>| keys.as_ref().is_some_and(|keys| keys.contains(&key));
                    let (is_kept, is_left_out) = (is_in(&keys), is_in(&excluded));
                    has |= is_kept;
                    is_excluded |= is_left_out;
                    judged.has_kinds[usize::from(matches!(key, Key::Name(_)))] = true;
                    if (is_kept || is_left_out) && !judged.found.contains(&key) {
                        judged.found.insert(key.clone());
                    }
                    if let Key::Number(number) = key {
                        unnamed.push(number);
                    }
                });
            }
            let fits = fits && !is_excluded;
            // The names of numbers count where these decide nothing.
            let are_open = fits && (!has || excluded.is_some());
            judged.rows.push((fits && has, if are_open { unnamed } else { Vec::new() }));
            Ok(())
        };
        let shards = source.collect(&self.column, keep)?;
        let has_kinds = shards.iter().fold([false; 2], |[numbers, names], judged| {
            [numbers | judged.has_kinds[0], names | judged.has_kinds[1]]
        });
        let names = all_names.iter().flatten().flatten().map(|name| Key::Name(name.as_str().into()));
        let found: HashSet<Key> =
            shards.iter().flat_map(|judged| &judged.found).cloned().chain(names).collect();
        self.check_found(&found, [has_kinds[0], has_kinds[1] || all_names.iter().any(Option::is_some)])?;
        let is_named = |keys: &Option<HashSet<Key>>, numbers: &[i64], names: &Option<Vec<String>>| {
            let Some(keys) = keys else { return false };
            let name = |&number: &i64| named(Key::Number(number), names.as_ref());
            numbers.iter().map(name).any(|key| matches!(key, Key::Name(_)) && keys.contains(&key))
        };
        let (keys, excluded) = (&keys, &excluded);
        let rows = shards.into_iter().zip(&all_names).flat_map(|(judged, names)| {
            let passes = move |(passes, unnamed): (bool, Vec<i64>)| {
                (passes || is_named(keys, &unnamed, names)) && !is_named(excluded, &unnamed, names)
            };
            judged.rows.into_iter().map(passes)
        });
        Ok(rows.collect())
    }
}

impl Limit {
    /// Those of `rows` that are within the limit of their group.
    fn rows(&self, source: &Recordings, rows: Option<Arc<[u64]>>) -> Result<Arc<[u64]>> {
        let classes = RowClasses::of_column(source, &self.column, None)?;
        let n_rows = source.n_rows();
        let n = rows.as_ref().map_or(n_rows, |rows| rows.len() as u64);
        let row_of = |at: u64| rows.as_ref().map_or(at, |rows| rows[at as usize]);
        let mut groups: HashMap<&[u32], Vec<(u64, u64)>> = HashMap::new();
        for row in (0..n).map(row_of) {
            let place = hash(self.seed, Purpose::Limit, [row]);
            groups.entry(classes.of(row)).or_default().push((place, row));
        }
        let mut found = fallible_alloc::with_room(n as usize)?;
        for mut group in groups.into_values() {
            group.sort_unstable();
            found.extend(
                group.into_iter().take(usize::try_from(self.n).unwrap_or(usize::MAX)).map(|(_, row)| row),
            );
        }
        found.sort_unstable();
        Ok(found.into())
    }
}
