//! The classes of rows: [`Balance`] weighs rows by them, and [`ClassCounts`] says how many rows and examples
//! each class has.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt::Display,
    ops::Range,
    sync::Arc,
};

use super::refused;
use crate::{
    Error, ErrorKind, Result, cancel, fallible_alloc,
    fields::Value,
    order::{Copies, WeightedRows},
    source::{Positions, Recordings},
    targets::Key,
};

/// Weights by the number of rows of each class.
#[derive(Debug, Clone, PartialEq)]
pub struct Balance {
    pub column: String,
    /// The weight of a class of `n` rows is `(n + offset)` to this power.
    pub power: f64,
    /// Added to each count.
    pub offset: f64,
    /// The most times that a row comes in an epoch.
    pub cap: Option<f64>,
    pub joined: Joined,
    /// Separates the names in a text.
    pub separator: Option<String>,
}

/// How the weights of several classes make that of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Joined {
    Sum,
    Max,
    Mean,
}

/// How many rows and examples each class of a column has.
#[derive(Debug, Clone, PartialEq)]
pub struct ClassCounts {
    pub column: String,
    /// The number of the source, in a mixture.
    pub group: usize,
    /// The classes, the most common first. A row of several classes counts in each.
    pub classes: Vec<ClassCount>,
}

/// How many rows and examples a class has.
#[derive(Debug, Clone, PartialEq)]
pub struct ClassCount {
    /// The class; `None`: rows without any.
    pub class: Option<Key>,
    pub rows: u64,
    pub examples: f64,
}

/// Whether a value is no class.
pub(super) fn has_floats(value: &Value) -> bool {
    match value {
        Value::Float(_) => true,
        Value::List(items) => items.iter().any(has_floats),
        _ => false,
    }
}

/// The classes of rows: `ids[ends[i - 1]..ends[i]]` are those of the `i`-th, each once.
#[derive(Debug, Default)]
pub(super) struct RowClasses {
    by_key: HashMap<Key, u32>,
    /// For each class the last row that has it, counted from 1.
    last: Vec<usize>,
    ids: Vec<u32>,
    ends: Vec<usize>,
}

impl RowClasses {
    /// The classes of each row of a column.
    pub(super) fn of_column(source: &Recordings, column: &str, separator: Option<&str>) -> Result<Self> {
        let keep = |classes: &mut Self, value: Result<&Value>| {
            // A bad row has no class; it is reported when it is read.
            if let Ok(value) = value {
                if has_floats(value) {
                    let message = format!(
                        "column {column:?} has floats, expected classes: integers or text, or lists of these"
                    );
                    return Err(Error::new(ErrorKind::Schema, message));
                }
                Key::of(value, separator, &mut |key| {
                    // -1 is no class, as in a batch.
                    if key != Key::Number(-1) {
                        classes.add(key);
                    }
                });
            }
            classes.ends.push(classes.ids.len());
            Ok(())
        };
        let parts = source.collect(column, keep)?;
        let mut all = Self::default();
        let mut parts: Vec<_> = parts.into_iter().map(Some).collect();
        of_groups(source, column, |shard, names| {
            let Some(part) = parts[shard].take() else { return };
            // The numbers of this shard's classes among all.
            // bounded: there are as many keys.
            let mut ids = vec![0; part.by_key.len()];
            for (key, id) in part.by_key {
                ids[id as usize] = all.id(named(key, names));
            }
            let before = all.ids.len();
            all.ids.extend(part.ids.iter().map(|id| ids[*id as usize]));
            all.ends.extend(part.ends.iter().map(|end| before + end));
        });
        Ok(all)
    }

    fn id(&mut self, key: Key) -> u32 {
        let next = self.by_key.len() as u32;
        *self.by_key.entry(key).or_insert(next)
    }

    /// Adds a class to the row that follows the others, once.
    fn add(&mut self, key: Key) {
        let id = self.id(key);
        // bounded: there are as many keys.
        self.last.resize(self.by_key.len(), 0);
        let row = self.ends.len() + 1;
        if std::mem::replace(&mut self.last[id as usize], row) != row {
            self.ids.push(id);
        }
    }

    pub(super) fn of(&self, row: u64) -> &[u32] {
        let row = row as usize;
        let begin = row.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.ids[begin..self.ends[row]]
    }

    /// Those of a row, or `none`: the number after the last class, for rows without any.
    fn or_none<'a>(&'a self, row: u64, none: &'a [u32; 1]) -> &'a [u32] {
        match self.of(row) {
            [] => none,
            some => some,
        }
    }

    fn none(&self) -> [u32; 1] {
        [self.by_key.len() as u32]
    }

    pub(super) fn n(&self) -> usize {
        self.by_key.len()
    }

    /// The number of rows of each class.
    fn rows(&self, rows: impl Iterator<Item = u64>) -> Vec<u64> {
        // bounded: there are as many keys.
        let mut counts = vec![0; self.by_key.len() + 1];
        let none = self.none();
        for row in rows {
            self.or_none(row, &none).iter().for_each(|&class| counts[class as usize] += 1);
        }
        counts
    }

    /// Rows and examples of each class: `rows` has rows, and how many examples each has. Classes with a name
    /// in the schema are reported even without rows.
    pub(super) fn counts(
        &self,
        rows: impl Iterator<Item = (u64, f64)>,
        names: Option<&Vec<String>>,
    ) -> Vec<ClassCount> {
        let none = self.none();
        // bounded: there are as many keys.
        let mut found = vec![(0_u64, 0.0); self.by_key.len() + 1];
        for (row, n) in rows {
            for &class in self.or_none(row, &none) {
                let (rows, examples) = &mut found[class as usize];
                *rows += 1;
                *examples += n;
            }
        }
        let known = self.by_key.iter().map(|(key, &id)| (Some(key.clone()), id)).chain([(None, none[0])]);
        let mut counts: Vec<ClassCount> = known
            .map(|(class, id)| {
                let (rows, examples) = found[id as usize];
                ClassCount { class, rows, examples }
            })
            .filter(|count| count.rows > 0)
            .collect();
        let with_rows: HashSet<_> = counts.iter().filter_map(|count| count.class.clone()).collect();
        let without = names.into_iter().flatten().map(|name| Key::Name(name.as_str().into()));
        counts.extend(without.filter(|class| !with_rows.contains(class)).map(|class| ClassCount {
            class: Some(class),
            rows: 0,
            examples: 0.0,
        }));
        let place = |count: &ClassCount| (std::cmp::Reverse(count.rows), count.class.is_none());
        counts.sort_by(|one, two| place(one).cmp(&place(two)).then_with(|| one.class.cmp(&two.class)));
        counts
    }
}

/// The key of a class, by its name where the column has names.
pub(super) fn named(key: Key, names: Option<&Vec<String>>) -> Key {
    let Key::Number(number) = key else { return key };
    let name = names.and_then(|names| names.get(usize::try_from(number).ok()?));
    name.map_or(Key::Number(number), |name| Key::Name(name.as_str().into()))
}

/// The class names of a column in the schema of each group of files.
fn names_of<'a>(source: &'a Recordings, column: &str) -> impl Fn(usize) -> Option<&'a Vec<String>> {
    let number = source.column_names().iter().position(|name| name == column);
    let names = number.and_then(|number| source.contents().class_names.others.get(number));
    move |group| names.and_then(|groups| groups.get(group)?.as_deref())
}

/// Calls `each` with the number of every shard, in order, and the class names of their column.
pub(super) fn of_groups(
    source: &Recordings,
    column: &str,
    mut each: impl FnMut(usize, Option<&Vec<String>>),
) {
    let (starts, names) = (source.group_starts(), names_of(source, column));
    for (at, shard) in source.shards().iter().enumerate() {
        let group = starts.partition_point(|start| *start <= shard.first_row).max(1) - 1;
        each(at, names(group));
    }
}

impl Balance {
    /// The weights of `rows`, for an epoch of `n_copies`. Adds classes that cannot be balanced to
    /// `unbalanced`.
    pub(super) fn weights(
        &self,
        classes: &RowClasses,
        rows: impl Iterator<Item = u64> + Clone,
        n_copies: u64,
        unbalanced: &mut Unbalanced,
    ) -> Result<Vec<f64>> {
        let none = classes.none();
        let counts = classes.rows(rows.clone());
        let by_class: Vec<f64> = counts.iter().map(|&n| (n as f64 + self.offset).powf(self.power)).collect();
        let mut weights = fallible_alloc::with_room(rows.clone().count())?;
        weights.extend(rows.clone().map(|row| {
            let of = classes.or_none(row, &none);
            let each = of.iter().map(|&class| by_class[class as usize]);
            match self.joined {
                Joined::Max => each.fold(0.0, f64::max),
                Joined::Sum => each.sum(),
                Joined::Mean => each.sum::<f64>() / of.len() as f64,
            }
        }));
        let limit = self.cap.map(|cap| limit(&weights, cap, n_copies)).transpose()?;
        let limit = limit.unwrap_or(f64::INFINITY);
        // Classes with a row of which no class is more common, and with a row that is not lowered.
        // bounded: there are as many keys.
        let [mut leads, mut is_free] = [(); 2].map(|()| vec![false; counts.len()]);
        for (row, weight) in rows.zip(&mut weights) {
            let of = classes.or_none(row, &none);
            let most = of.iter().map(|&class| counts[class as usize]).max();
            for &class in of {
                leads[class as usize] |= Some(counts[class as usize]) == most;
                is_free[class as usize] |= *weight <= limit;
            }
            *weight = weight.min(limit);
        }
        let known = classes.by_key.iter().map(|(key, &id)| (Some(key), id as usize));
        for (key, id) in known.chain([(None, none[0] as usize)]).filter(|(_, id)| counts[*id] > 0) {
            if !is_free[id] {
                *unbalanced.capped.entry(key.cloned()).or_default() += counts[id];
            }
            if !leads[id] && self.power < 0.0 {
                *unbalanced.shared.entry(key.cloned()).or_default() += counts[id];
            }
        }
        Ok(weights)
    }
}

/// Classes that a [`Balance`] cannot bring to their share, with their rows, over all groups of files.
#[derive(Debug, Default)]
pub(super) struct Unbalanced {
    /// `cap` lowers all of their rows.
    capped: BTreeMap<Option<Key>, u64>,
    /// All of their rows have a more common class too.
    shared: BTreeMap<Option<Key>, u64>,
    /// They have a name in the schema and no row.
    absent: BTreeMap<Option<Key>, u64>,
}

impl Unbalanced {
    /// Adds the classes that have no row in any of `counts`.
    pub(super) fn add_absent<'a>(&mut self, counts: impl Iterator<Item = &'a ClassCounts>) {
        let mut rows: BTreeMap<Option<Key>, u64> = BTreeMap::new();
        for count in counts.flat_map(|counts| &counts.classes) {
            *rows.entry(count.class.clone()).or_default() += count.rows;
        }
        self.absent.extend(rows.into_iter().filter(|(_, n)| *n == 0));
    }

    /// Logs a warning for each reason, which names the classes with the fewest rows.
    pub(super) fn warn(&self, balance: &Balance) {
        let column = &balance.column;
        let cap = balance.cap.unwrap_or_default();
        let reasons: [(_, &dyn Display); 3] = [
            (
                &self.capped,
                &format_args!("stay below their share, since cap={cap:?} limits how often a row comes"),
            ),
            (&self.shared, &"come only in rows that have a more common class too, and raise that with them"),
            (&self.absent, &"have a name in the schema and no row"),
        ];
        for (classes, what) in reasons {
            if !classes.is_empty() {
                log::warn!(
                    "sampling=Balanced({column:?}) cannot balance all classes: {} {what}: {}",
                    classes.len(),
                    listed(classes)
                );
            }
        }
    }
}

/// The classes with the fewest rows.
fn listed(classes: &BTreeMap<Option<Key>, u64>) -> String {
    const SHOWN: usize = 8;
    let mut sorted: Vec<_> = classes.iter().collect();
    sorted.sort_by_key(|(_, rows)| **rows);
    let shown = sorted.iter().take(SHOWN).map(|(key, rows)| {
        let name = match key {
            Some(Key::Name(name)) => format!("{name:?}"),
            Some(Key::Number(number)) => number.to_string(),
            None => "(no class)".to_owned(),
        };
        format!("{name} ({rows} {})", if **rows == 1 { "row" } else { "rows" })
    });
    let more = if sorted.len() > SHOWN { ", ..." } else { "" };
    format!("{}{more}", shown.collect::<Vec<_>>().join(", "))
}

/// The weight to which the highest ones are lowered so that no row comes more than `cap` times in an epoch of
/// `n_copies`.
fn limit(weights: &[f64], cap: f64, n_copies: u64) -> Result<f64> {
    let mut sorted: Vec<f64> = fallible_alloc::with_room(weights.len())?;
    sorted.extend_from_slice(weights);
    sorted.sort_unstable_by(|one, two| two.total_cmp(one));
    let n = sorted.iter().filter(|weight| **weight > 0.0).count();
    if cap * (n as f64) < n_copies as f64 {
        return refused(format!(
            "cap is {cap}, and {n} rows that often are fewer than the {n_copies} examples of an epoch; raise cap, or give a \
             smaller epoch_size"
        ));
    }
    // The sums of the weights from each on.
    let mut sums: Vec<f64> = fallible_alloc::with_room(n)?;
    sums.extend(sorted[..n].iter().rev().scan(0.0, |sum, weight| {
        *sum += weight;
        Some(*sum)
    }));
    // The limit `t` satisfies `t * n_copies = cap * (k * t + rest)`, with the `k` weights above it.
    let share = cap / n_copies as f64;
    let limit = (0..n).find_map(|k| {
        let left = 1.0 - share * k as f64;
        let t = share * sums[n - 1 - k] / left;
        (left > 0.0 && t >= sorted[k]).then_some(t)
    });
    // Without one, all come equally often.
    Ok(limit.unwrap_or(sorted[n - 1]))
}

/// The rows and examples of the classes of a column, in an epoch with these copies; without copies, each
/// position comes once.
///
/// # Errors
/// [`ErrorKind::Closed`] once the work is stopped; as [`Recordings::collect`].
pub fn class_counts(
    source: &Recordings,
    (column, separator): (&str, Option<&str>),
    positions: &Positions,
    copies: &[(Arc<WeightedRows>, Copies)],
) -> Result<Vec<ClassCounts>> {
    let classes = RowClasses::of_column(source, column, separator)?;
    let names = names_of(source, column);
    let groups = groups(source, positions.rows());
    let counts = groups.iter().enumerate().map(|(group, range)| {
        let mut end = 0;
        let rows = range.clone().map(|at| {
            let row = positions.rows().map_or(at, |rows| rows[at as usize]);
            let n = match copies.get(group) {
                None => {
                    let own = positions.of_row(row);
                    own.end - own.start
                }
                Some((weights, copies)) => {
                    let begin = end;
                    end = weights.before(*copies, at - range.start + 1);
                    end - begin
                }
            };
            (row, n as f64)
        });
        const POLLED: u64 = 1 << 16;
        let is_stopped = |row: u64| row.is_multiple_of(POLLED) && cancel::is_stopped();
        let classes = classes.counts(rows.take_while(|(row, _)| !is_stopped(*row)), names(group));
        cancel::check("counting")?;
        Ok(ClassCounts { column: column.to_owned(), group, classes })
    });
    counts.collect()
}

/// The part of `rows` (`None`: all) in each group of files. Rows are chosen of a single group only.
pub(super) fn groups(source: &Recordings, rows: Option<&[u64]>) -> Vec<Range<u64>> {
    let n = rows.map_or(source.n_rows(), |rows| rows.len() as u64);
    let ends: Vec<u64> = source.group_starts().into_iter().map(|start| start.min(n)).collect();
    ends.windows(2).map(|pair| pair[0]..pair[1]).collect()
}

/// Expected examples of the classes of a column: row `at` has `weights[at]`, of groups of `n_copies`.
pub(super) fn expected(
    source: &Recordings,
    (column, classes): (&str, &RowClasses),
    rows: Option<&[u64]>,
    weights: &[f64],
    n_copies: impl Fn(&Range<u64>) -> u64,
) -> Vec<ClassCounts> {
    let names = names_of(source, column);
    let groups = groups(source, rows).into_iter().enumerate().map(|(group, range)| {
        let own = &weights[range.start as usize..range.end as usize];
        let per_weight = n_copies(&range) as f64 / own.iter().sum::<f64>();
        let examples = range
            .zip(own)
            .map(|(at, weight)| (rows.map_or(at, |rows| rows[at as usize]), weight * per_weight));
        ClassCounts { column: column.to_owned(), group, classes: classes.counts(examples, names(group)) }
    });
    groups.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn limited(weights: &mut [f64], cap: f64, n_copies: u64) -> Result<()> {
        let limit = limit(weights, cap, n_copies)?;
        weights.iter_mut().for_each(|weight| *weight = weight.min(limit));
        Ok(())
    }

    #[test]
    fn a_cap_that_is_too_low_is_refused() {
        let error = limited(&mut [1.0, 0.0, 2.0], 1.5, 4).unwrap_err();
        assert!(error.message.contains("2 rows that often are fewer than the 4 examples"), "{error}");
    }

    proptest! {
        #[test]
        fn no_row_is_above_the_cap(
            given in prop::collection::vec(prop_oneof![Just(0.0), 0.001_f64..1000.0], 1..50), cap in 1.0_f64..5.0,
        ) {
            let mut weights = given.clone();
            let n = weights.iter().filter(|weight| **weight > 0.0).count() as u64;
            prop_assume!(n > 0);
            limited(&mut weights, cap, n).unwrap();
            prop_assert_eq!(weights.iter().filter(|weight| **weight > 0.0).count() as u64, n);
            let total: f64 = weights.iter().sum();
            let mut changed = false;
            for (weight, given) in weights.iter().zip(&given) {
                let expected = weight * n as f64 / total;
                prop_assert!(expected <= cap * (1.0 + 1e-9), "{expected}");
                prop_assert!(weight <= given);
                changed |= weight < given;
                // A weight that was lowered is at the limit.
                prop_assert!(weight == given || (expected - cap).abs() < 1e-6 * cap);
            }
            let all: f64 = given.iter().sum();
            prop_assert_eq!(changed, given.iter().any(|given| given * n as f64 / all > cap * (1.0 + 1e-12)));
        }
    }
}
