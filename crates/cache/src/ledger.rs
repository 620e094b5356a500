//! `shard_ledger.json`: which documents are committed, from which shards, and how they were made.
//!
//! The ledger alone defines what is committed. Readers ignore values in the arrays beyond its counts, and a
//! resuming writer cuts them off. It is written to a temporary file, synced and renamed, so that the file is
//! always a complete ledger, the old or the new one.
//!
//! The outer fields follow other programs with the same layout, so that each reads the other's caches.
//! Entries that only forebay needs are under `forebay`. Keys are sorted and no entry depends on time: equal
//! caches have equal ledgers.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Component, Path},
    sync::Arc,
};

use serde_json::{Map, Value, json};

use super::{
    files::replace,
    json::read_metadata,
    layout::{MAX_COUNT, MAX_RANK},
};
use crate::{
    Error, ErrorKind, Result,
    engine::LISTED,
    fields::{DataType, Field},
    storage::{LocalFiles, Storage},
};

/// The ledger's name, within the folder of a split.
pub(crate) const FILE: &str = "shard_ledger.json";
/// The version of the entries under `forebay`.
const VERSION: u64 = 1;

/// The committed part of a cache.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ledger {
    pub documents: u64,
    /// Whether all shards have been written.
    pub is_finished: bool,
    /// The progress of each shard, by its name.
    pub shards: BTreeMap<String, Standing>,
    /// Values of each field, by its name.
    pub values: BTreeMap<String, u64>,
    /// The fields, named before their first file is written; empty if another program wrote the ledger.
    pub fields: Vec<Field>,
    /// The parameters that made the cache: a JSON object of names and texts.
    pub made_by: Map<String, Value>,
    /// The error that ended the last build, if it failed.
    pub failure: Option<String>,
    /// The documents that were left out.
    pub skipped: Skipped,
}

/// Documents that could not be read or processed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Skipped {
    pub documents: u64,
    /// The first ones, up to [`LISTED`], in the order of the cache.
    pub listed: Vec<LeftOutDocument>,
}

/// A document that was left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOutDocument {
    pub shard: String,
    pub row: u64,
    /// The name of the kind of its error.
    pub kind: String,
    pub reason: String,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Standing {
    pub documents: u64,
    pub batches: u64,
    /// Whether all its batches are processed.
    pub is_finished: bool,
}

impl Ledger {
    /// Reads the ledger in `folder`; None if there is none.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if it cannot be read, [`ErrorKind::Format`] if it is not a ledger.
    pub fn read(folder: &Path) -> Result<Option<Self>> {
        Self::read_in(&local(), folder)
    }

    /// As [`Self::read`], from any storage.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(super) fn read_in(storage: &Arc<dyn Storage>, folder: &Path) -> Result<Option<Self>> {
        Ok(Self::read_any(storage, folder)?.map(|(ledger, _)| ledger))
    }

    /// Reads the ledger in `folder` that forebay wrote, which names the files that a writer may replace; None
    /// if there is none.
    ///
    /// # Errors
    /// As [`Self::read`]; [`ErrorKind::State`] if another program wrote it.
    pub(super) fn read_own(folder: &Path) -> Result<Option<Self>> {
        match Self::read_any(&local(), folder)? {
            None => Ok(None),
            Some((ledger, true)) => Ok(Some(ledger)),
            Some((_, false)) => {
                let message = format!(
                    "another program wrote the cache {}; forebay can read it, but neither extends nor removes it; give another \
                     path or split",
                    folder.display()
                );
                Err(Error::new(ErrorKind::State, message))
            }
        }
    }

    /// The ledger in `folder`, and whether forebay wrote it.
    fn read_any(storage: &Arc<dyn Storage>, folder: &Path) -> Result<Option<(Self, bool)>> {
        let path = folder.join(FILE);
        let json = match read_metadata(storage, &path) {
            Err(error) if error.kind == ErrorKind::NotFound => return Ok(None),
            json => json?,
        };
        let damaged = |what: &str| {
            let message = format!(
                "{} is not the ledger of a cache: {what}; build the cache again in another folder, or remove this one",
                path.display()
            );
            Error::new(ErrorKind::Format, message)
        };
        let json = json.map_err(|what| damaged(&what))?;
        let is_own = json["forebay"]["version"].is_u64();
        Self::from_json(&json).map(|ledger| Some((ledger, is_own))).map_err(damaged)
    }

    /// Whether a writer can resume from it.
    pub(crate) fn is_begun(&self) -> bool {
        self.documents > 0
            || self.is_finished
            || self.shards.values().any(|standing| *standing != Standing::default())
    }

    pub(super) fn from_json(json: &Value) -> Result<Self, &'static str> {
        let count = |n: &Value| n.as_u64().filter(|&n| n <= MAX_COUNT);
        let counts = |of: &Value, what| -> Result<BTreeMap<String, u64>, &'static str> {
            let Some(counts) = of.as_object() else { return Ok(BTreeMap::new()) };
            counts.iter().map(|(name, n)| Ok((name.clone(), count(n).ok_or(what)?))).collect()
        };
        let own = &json["forebay"];
        if own["version"].as_u64().is_some_and(|version| version > VERSION) {
            return Err("a newer version of forebay wrote it, which can read it");
        }
        let finished: BTreeSet<&str> =
            json["finished_shards"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let batches =
            counts(&own["shard_batches"], "shard_batches has an entry that is not a count up to 2^48")?;
        let shards = counts(&json["shard_rows"], "shard_rows has an entry that is not a count up to 2^48")?;
        let standing = |(name, documents): (String, u64)| {
            let is_finished = finished.contains(&name[..]);
            let batches = batches.get(&name).copied().unwrap_or(0);
            (name, Standing { documents, batches, is_finished })
        };
        let field = |field: &Value| {
            Some(Field::of_rank(
                field["name"].as_str().filter(|name| is_inside(name))?,
                DataType::from_name(field["dtype"].as_str()?)?,
                usize::try_from(field["rank"].as_u64()?).ok().filter(|&rank| rank <= MAX_RANK)?,
            ))
        };
        let left_out = |one: &Value| {
            let text = |key: &str| Some(one[key].as_str()?.to_owned());
            Some(LeftOutDocument {
                shard: text("shard")?,
                row: one["row"].as_u64()?,
                kind: text("kind")?,
                reason: text("reason")?,
            })
        };
        let listed: Option<_> =
            own["skipped"]["listed"].as_array().into_iter().flatten().map(left_out).collect();
        let fields: Option<_> = own["fields"].as_array().into_iter().flatten().map(field).collect();
        Ok(Self {
            documents: count(&json["total_num_rows"]).ok_or("total_num_rows is not a count up to 2^48")?,
            is_finished: json["is_finished"].as_bool().unwrap_or(false),
            shards: shards.into_iter().map(standing).collect(),
            values: counts(&json["field_counts"], "field_counts has an entry that is not a count up to 2^48")?,
            fields: fields.ok_or(
                "a field lacks its name, a known dtype or a rank of at most 64, or its name leads out of the cache",
            )?,
            made_by: json
                .pointer("/metadata/preprocessor_metadata")
                .and_then(Value::as_object)
                .cloned()
                .unwrap_or_default(),
            failure: own["failure"].as_str().map(Into::into),
            skipped: Skipped {
                documents: count(&own["skipped"]["documents"]).unwrap_or(0),
                listed: listed.ok_or("a document that was left out lacks its shard, row, kind or reason")?,
            },
        })
    }

    pub(super) fn to_json(&self) -> Value {
        let of = |get: fn(&Standing) -> u64| -> Map<String, Value> {
            self.shards.iter().map(|(name, standing)| (name.clone(), get(standing).into())).collect()
        };
        let finished: Vec<&String> =
            self.shards.iter().filter(|(_, standing)| standing.is_finished).map(|(name, _)| name).collect();
        let fields: Vec<Value> = self
            .fields
            .iter()
            .map(|field| json!({"name": field.name, "dtype": field.dtype.name(), "rank": field.rank()}))
            .collect();
        let listed: Vec<Value> = self
            .skipped
            .listed
            .iter()
            .map(|LeftOutDocument { shard, row, kind, reason }| {
                json!({"shard": shard, "row": row, "kind": kind, "reason": reason})
            })
            .collect();
        json!({
            "total_num_rows": self.documents,
            "shard_rows": of(|standing| standing.documents),
            "is_finished": self.is_finished,
            "finished_shards": finished,
            "field_counts": self.values,
            "metadata": {"preprocessor_metadata": self.made_by},
            "forebay": {
                "version": VERSION,
                "fields": fields,
                "shard_batches": of(|standing| standing.batches),
                "failure": self.failure,
                "skipped": {"documents": self.skipped.documents, "listed": listed},
            },
        })
    }

    /// Writes it into `folder`, replacing the ledger there.
    ///
    /// # Errors
    /// [`ErrorKind::Io`]; then the old ledger is unchanged.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let mut text = serde_json::to_vec_pretty(&self.to_json())
            .map_err(|error| Error::new(ErrorKind::Format, "cannot write the ledger").because(error))?;
        text.push(b'\n');
        replace(&folder.join(FILE), &[&text])
    }

    /// Records a document that is left out.
    pub(super) fn leave_out(&mut self, shard: &str, error: &Error) {
        self.skipped.documents += 1;
        if self.skipped.listed.len() < LISTED {
            self.skipped.listed.push(LeftOutDocument {
                shard: shard.into(),
                row: error.place.row.unwrap_or(0),
                kind: error.kind.name().into(),
                reason: error.reason(),
            });
        }
    }

    /// Sets the number of values of a field.
    pub(super) fn set_values(&mut self, name: &str, values: u64) {
        self.values.insert(name.into(), values);
    }
}

/// Whether a field's path, relative to the cache's folder, stays in that folder.
fn is_inside(name: &str) -> bool {
    !name.is_empty() && Path::new(name).components().all(|part| matches!(part, Component::Normal(_)))
}

pub(super) fn local() -> Arc<dyn Storage> {
    Arc::new(LocalFiles)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Ledger::read(folder.path()).unwrap(), None);
        let standing = Standing { documents: 5, batches: 2, is_finished: true };
        let ledger = Ledger {
            documents: 7,
            shards: [("b".into(), standing), ("a".into(), Standing::default())].into(),
            values: [("x/y".into(), 70)].into(),
            fields: vec![Field::jagged("x/y", DataType::Uint16, 2)],
            made_by: json!({"processor": "p"}).as_object().unwrap().clone(),
            failure: Some("why".into()),
            skipped: Skipped {
                documents: 2,
                listed: vec![LeftOutDocument {
                    shard: "b".into(),
                    row: 3,
                    kind: "corrupt".into(),
                    reason: "no".into(),
                }],
            },
            ..Ledger::default()
        };
        ledger.write(folder.path()).unwrap();
        assert_eq!(Ledger::read(folder.path()).unwrap(), Some(ledger));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn reads_those_of_others() {
        let json = json!({"total_num_rows": 3, "shard_rows": {"s": 3}, "is_finished": true, "finished_shards": ["s"],
            "field_counts": {"input_ids": 12}, "metadata": {"preprocessor_metadata": {}}});
        let ledger = Ledger::from_json(&json).unwrap();
        assert_eq!((ledger.documents, ledger.is_finished, ledger.fields.len()), (3, true, 0));
        assert!(ledger.shards["s"].is_finished);
        assert!(Ledger::from_json(&json!({"is_finished": true})).is_err());
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let ledger = |n: u64, name: &str| {
            let field = json!({"name": name, "dtype": "uint16", "rank": 1});
            Ledger::from_json(&json!({"total_num_rows": n, "forebay": {"fields": [field]}}))
        };
        assert!(ledger(3, "prompt/ids").is_ok() && ledger(MAX_COUNT, "ids").is_ok());
        for n in [MAX_COUNT + 1, u64::MAX] {
            assert!(ledger(n, "ids").unwrap_err().contains("not a count up to 2^48"));
        }
        for rank in [MAX_RANK as u64 + 1, (1 << 27) + 1, u64::MAX] {
            let field = json!({"name": "ids", "dtype": "uint16", "rank": rank});
            let json = json!({"total_num_rows": 3, "forebay": {"fields": [field]}});
            assert!(Ledger::from_json(&json).unwrap_err().contains("at most 64"), "{rank}");
        }
        for name in ["", "/etc", "../ids", "prompt/../../ids", "."] {
            assert!(ledger(3, name).unwrap_err().contains("leads out of the cache"), "{name}");
        }
    }
}
