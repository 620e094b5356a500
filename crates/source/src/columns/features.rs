//! The columns of a schema, with what `datasets` writes about them in its metadata.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use arrow_schema::{DataType, Field, Schema};
use serde_json::Value;

use super::types::type_name;

/// A column of a schema, or a field of a struct in it, whose name has points.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaColumn {
    pub name: String,
    /// What is in it, in words: `"audio"` for the recordings, the type as in `columns=`, else that of Arrow.
    pub content: String,
    /// The names of its classes, in the schema's metadata.
    pub class_names: Option<Arc<Vec<String>>>,
    /// The rate that the metadata has of recordings, hertz.
    pub sampling_rate: Option<u32>,
}

impl SchemaColumn {
    pub(crate) fn new(name: String, content: String) -> Self {
        Self { name, content, class_names: None, sampling_rate: None }
    }
}

/// The columns of a table, structs as they are, with class names in the schema's metadata.
pub(crate) fn columns_of(schema: &Schema) -> Vec<SchemaColumn> {
    const NOT_INTO_STRUCTS: usize = usize::MAX;
    let features = FeatureCache::default().of(schema);
    let mut found = Vec::new();
    for field in schema.fields() {
        list(field.name().clone(), field, &features, NOT_INTO_STRUCTS, &mut found);
    }
    found
}

/// Adds a column to the list of a schema; of a struct its fields, unless they are nested too deeply.
pub(super) fn list(
    name: String,
    field: &Field,
    features: &FeatureTypes,
    depth: usize,
    into: &mut Vec<SchemaColumn>,
) {
    const DEEPEST: usize = 4;
    if let (DataType::Struct(fields), true) = (field.data_type(), depth < DEEPEST) {
        for field in fields {
            list(format!("{name}.{}", field.name()), field, features, depth + 1, into);
        }
        return;
    }
    let content = type_name(field);
    let class_names = features.class_names.get(&name).cloned();
    into.push(SchemaColumn { class_names, ..SchemaColumn::new(name, content) });
}

/// The features that `datasets` stores as JSON in the schema's metadata; empty without such metadata.
#[derive(Debug, Default)]
pub(super) struct FeatureTypes {
    /// The `_type` of each column's feature.
    types: HashMap<String, String>,
    /// The names of the classes of each column, and of fields within columns, whose names have points.
    pub(super) class_names: HashMap<String, Arc<Vec<String>>>,
    /// The `sampling_rate` of each column that has one.
    pub(super) rates: HashMap<String, u32>,
}

impl FeatureTypes {
    fn parse(json: &str) -> Self {
        let mut features = Self::default();
        let parsed = serde_json::from_str::<Value>(json).ok();
        let Some(columns) = parsed.as_ref().and_then(|value| value.pointer("/info/features")?.as_object())
        else {
            return features;
        };
        for (column, feature) in columns {
            if let Some(name) = feature.get("_type").and_then(Value::as_str) {
                features.types.insert(column.clone(), name.into());
            }
            let rate = feature.get("sampling_rate").and_then(Value::as_u64);
            if let Some(rate) = rate.and_then(|rate| u32::try_from(rate).ok()) {
                features.rates.insert(column.clone(), rate);
            }
            features.add_class_names(column.clone(), feature, 0);
        }
        features
    }

    /// Adds the class names of a column, of the items of its lists and of the fields within it.
    fn add_class_names(&mut self, name: String, feature: &Value, depth: usize) {
        const DEEPEST: usize = 8;
        let names = feature.get("names").and_then(Value::as_array);
        let names = names.and_then(|names| names.iter().map(|name| Some(name.as_str()?.into())).collect());
        if let Some(names) = names {
            self.class_names.insert(name, Arc::new(names));
            return;
        }
        if depth == DEEPEST {
            return;
        }
        // `datasets` writes lists in three ways: with "feature", and as a JSON array.
        let items = feature.get("feature").or_else(|| feature.as_array().and_then(|items| items.first()));
        if let Some(items) = items {
            return self.add_class_names(name, items, depth + 1);
        }
        let is_struct = feature.get("_type").is_none_or(|found| !found.is_string());
        for (field, feature) in feature.as_object().into_iter().flatten().filter(|_| is_struct) {
            self.add_class_names(format!("{name}.{field}"), feature, depth + 1);
        }
    }

    /// The columns whose feature is of this type, in the schema's order.
    pub(super) fn of_type(&self, name: &str, schema: &Schema) -> Vec<usize> {
        let fields = schema.fields().iter().enumerate();
        let is = |column: &str| self.types.get(column).is_some_and(|found| found == name);
        fields.filter(|(_, field)| is(field.name())).map(|(at, _)| at).collect()
    }
}

/// Caches the features parsed last: shards of a dataset share them, and parsing 10 000 class names takes a
/// millisecond.
#[derive(Debug, Default)]
pub(crate) struct FeatureCache {
    parsed: Mutex<Option<(String, Arc<FeatureTypes>)>>,
    listed: Mutex<Arc<[SchemaColumn]>>,
    told: OnceLock<()>,
}

impl FeatureCache {
    /// Calls `tell` for the first shard that has something to tell.
    pub(crate) fn once(&self, tell: impl FnOnce()) {
        self.told.get_or_init(tell);
    }

    /// The columns of a schema; `audio` is the number of that of the recordings.
    pub(super) fn listed(
        &self,
        schema: &Schema,
        features: &FeatureTypes,
        audio: Option<usize>,
    ) -> Arc<[SchemaColumn]> {
        let mut found = Vec::new();
        for (at, field) in schema.fields().iter().enumerate() {
            let name = field.name().clone();
            match audio == Some(at) {
                true => {
                    let sampling_rate = features.rates.get(&name).copied();
                    found.push(SchemaColumn { sampling_rate, ..SchemaColumn::new(name, "audio".to_owned()) });
                }
                false => list(name, field, features, 0, &mut found),
            }
        }
        let mut last = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        if **last != *found {
            *last = found.into();
        }
        last.clone()
    }

    pub(super) fn of(&self, schema: &Schema) -> Arc<FeatureTypes> {
        let Some(json) = schema.metadata().get("huggingface") else { return Arc::default() };
        let mut last = self.parsed.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((known, features)) if known == json => Arc::clone(features),
            _ => {
                let features = Arc::new(FeatureTypes::parse(json));
                *last = Some((json.clone(), Arc::clone(&features)));
                features
            }
        }
    }
}
