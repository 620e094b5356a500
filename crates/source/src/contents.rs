//! What all shards of a source have in common: the columns that are read, their types and the names of
//! classes.
//!
//! Shards are described one by one when they are opened. [`Contents::new`] compares the descriptions.

use std::{path::Path, sync::Arc};

use super::{
    columns::{ColumnType, Described, ExtraColumn, Item, Nesting, SchemaColumn},
    shard::Shard,
};
use crate::{Error, ErrorKind, Result};

/// The columns of a source's shards, or of its tables of recordings in files.
#[derive(Debug)]
pub struct Contents {
    /// The values of a record beside its payload, in order.
    pub extra_columns: Vec<ExtraColumn>,
    /// The types of the other columns that are read.
    pub columns: Vec<ColumnType>,
    /// All columns of the first schema.
    pub schema: Arc<[SchemaColumn]>,
    /// The names of the classes of all columns, for each group of shards.
    pub class_names: ClassNames,
}

/// The shards of a source, and what each has.
#[derive(Clone, Copy)]
pub(super) struct DescribedShards<'a> {
    pub shards: &'a [Shard],
    /// The number of shards up to the end of each group.
    pub ends: &'a [usize],
    /// One for each shard.
    pub described: &'a [Described],
    /// Whether any shard has a label column.
    pub has_labels: bool,
}

impl Contents {
    /// Compares the shards. `names` are the other columns that are read; `paths`: whether the paths of
    /// recordings are read.
    ///
    /// # Errors
    /// [`ErrorKind::Schema`] if a column's types differ between shards, or its class names within a group.
    pub(super) fn new(found: DescribedShards<'_>, names: &[String], paths: bool) -> Result<Self> {
        let DescribedShards { shards, ends, described, has_labels } = found;
        let of_shards = shards.iter().map(|shard| &*shard.path).zip(described);
        Ok(Self {
            extra_columns: ExtraColumn::of(has_labels, paths, names.len()),
            columns: common_types(names, of_shards)?,
            schema: first_schema(described),
            class_names: ClassNames::new(ends, shards, described)?,
        })
    }

    /// Whether any shard has a label column. Rows of shards without are
    /// [`NO_LABEL`](crate::NO_LABEL).
    pub fn has_labels(&self) -> bool {
        self.extra_columns.contains(&ExtraColumn::Label)
    }
}

/// The types of the other columns `names`, which must be equal in all shards; a column of nulls has any type,
/// and lists of nulls are any lists.
///
/// # Errors
/// [`ErrorKind::Schema`] if two shards differ.
fn common_types<'a>(
    names: &[String],
    shards: impl Iterator<Item = (&'a Path, &'a Described)> + Clone,
) -> Result<Vec<ColumnType>> {
    let of = |(at, name): (usize, &String)| {
        let mut common: Option<(&Path, ColumnType)> = None;
        for (shard, described) in shards.clone() {
            let Some(&(found, _)) = described.others.get(at) else { continue };
            match common {
                Some((_, known)) if known == found || found.is_nulls_of(known) => {}
                Some((first, known)) if !known.is_nulls_of(found) => {
                    let message = format!(
                        "column {name:?} is {known} in {} and {found} in {}; write it with one type",
                        first.display(),
                        shard.display()
                    );
                    return Err(Error::new(ErrorKind::Schema, message));
                }
                _ => common = Some((shard, found)),
            }
        }
        Ok(common.map_or(ColumnType { item: Item::Null, nesting: Nesting::One }, |(_, found)| found))
    };
    names.iter().enumerate().map(of).collect()
}

/// The columns of the first shard whose schema could be read.
fn first_schema(described: &[Described]) -> Arc<[SchemaColumn]> {
    described.iter().map(|shard| &shard.schema).find(|schema| !schema.is_empty()).cloned().unwrap_or_default()
}

/// The names of classes in the schemas' metadata, for each group of shards.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClassNames {
    pub label: Vec<Option<Arc<Vec<String>>>>,
    pub others: Vec<Vec<Option<Arc<Vec<String>>>>>,
}

impl ClassNames {
    /// Collects the names, which must be equal in all shards of a group that have any. `ends` has the number
    /// of shards up to the end of each group.
    ///
    /// # Errors
    /// [`ErrorKind::Schema`] if two shards differ.
    fn new(ends: &[usize], shards: &[Shard], described: &[Described]) -> Result<Self> {
        let group = |from: usize, end: usize, pick: &dyn Fn(&Described) -> Option<Arc<Vec<String>>>| {
            let shards = shards[from..end].iter().zip(&described[from..end]);
            common_class_names(shards.map(|(shard, described)| (&*shard.path, pick(described))))
        };
        let groups = |pick: &dyn Fn(&Described) -> Option<Arc<Vec<String>>>| {
            let starts = std::iter::once(&0).chain(ends);
            starts.zip(ends).map(|(&from, &end)| group(from, end, pick)).collect::<Result<Vec<_>>>()
        };
        let n_others = described.iter().map(|described| described.others.len()).max().unwrap_or(0);
        let other = |at: usize| {
            one_kind(shards.iter().zip(described).filter_map(|(shard, described)| {
                let (found, names) = described.others.get(at)?;
                (found.item != Item::Null).then_some((&*shard.path, names.is_some()))
            }))?;
            groups(&move |described| described.others.get(at)?.1.clone())
        };
        Ok(Self {
            label: groups(&|described| described.label_names.clone())?,
            others: (0..n_others).map(other).collect::<Result<_>>()?,
        })
    }

    /// The names of the label in the first group that has any.
    pub fn first(&self) -> Option<&[String]> {
        self.label.iter().flatten().next().map(|names| &names[..])
    }
}

/// Checks that a column has class names in all shards or in none: otherwise its numbers would mean two
/// things.
///
/// # Errors
/// [`ErrorKind::Schema`] that names a shard of each kind.
fn one_kind<'a>(shards: impl Iterator<Item = (&'a Path, bool)> + Clone) -> Result<()> {
    let first = |has_names: bool| shards.clone().find(|(_, found)| *found == has_names);
    let (Some((with, _)), Some((without, _))) = (first(true), first(false)) else { return Ok(()) };
    let message = format!(
        "a column has class names in the schema of {} and none in that of {}; write both with the names",
        with.display(),
        without.display()
    );
    Err(Error::new(ErrorKind::Schema, message))
}

/// The class names, which must be equal in all shards that have any.
///
/// # Errors
/// [`ErrorKind::Schema`] if two shards differ.
fn common_class_names<'a>(
    shards: impl Iterator<Item = (&'a Path, Option<Arc<Vec<String>>>)>,
) -> Result<Option<Arc<Vec<String>>>> {
    let mut common: Option<(&Path, Arc<Vec<String>>)> = None;
    for (shard, names) in shards {
        let Some(names) = names else { continue };
        match &common {
            None => common = Some((shard, names)),
            // Names of one parse share their allocation, so comparing the pointers is enough.
            Some((first, known)) if !Arc::ptr_eq(known, &names) && *known != names => {
                let (at, a, b) = first_difference(known, &names);
                let message = format!(
                    "the class names of {} and {} differ: class {at} is {a} in the first and {b} in the second; open shards \
                     with different class names as named sources, which unite them by name",
                    first.display(),
                    shard.display(),
                );
                return Err(Error::new(ErrorKind::Schema, message));
            }
            Some(_) => {}
        }
    }
    Ok(common.map(|(_, names)| names))
}

fn first_difference(a: &[String], b: &[String]) -> (usize, String, String) {
    let shown =
        |names: &[String], at: usize| names.get(at).map_or("missing".into(), |name| format!("{name:?}"));
    let at = (0..a.len().max(b.len())).find(|&at| a.get(at) != b.get(at)).unwrap_or(0);
    (at, shown(a, at), shown(b, at))
}
