//! [`TokenIdentity`]. Source: own.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{
    TokenIdentity as IdentityInputs, digest, hex, identity_entry, parameter_identity, rows_identity,
};
use crate::{
    config::TokenConfig,
    source::{DocumentSources, IdFields, PairColumns, TextContent},
    state::{Identity, Share},
};

/// The values on which the batches of a loader of documents depend.
pub struct TokenIdentity<'a> {
    pub config: &'a TokenConfig,
    pub tokenizer: u64,
    pub source: &'a DocumentSources,
    /// The id of padding.
    pub pad: u32,
    pub exclude: &'a [u64],
    /// Of each source, by their names, what its ids depend on besides text and tokenizer.
    pub rows: &'a [Vec<(&'static str, Value)>],
}

crate::token_parameters!(parameter_identity);

impl TokenIdentity<'_> {
    pub fn identity(&self) -> Identity {
        let Self { config, source, .. } = self;
        let (mut data, mut names) = (Map::new(), BTreeMap::new());
        data.insert("num_shards".into(), source.shards().len().into());
        data.insert("num_documents".into(), source.n_rows().into());
        data.insert("fingerprint".into(), hex(source.fingerprint()));
        for (number, rows) in config.parquet_files.rows.iter().enumerate() {
            // Of a mixture, behind the name of the source.
            let key = |name: &str| match &config.parquet_files.names {
                None => name.to_owned(),
                Some(names) => format!("{}.{name}", names[number]),
            };
            if let TextContent::Ids(IdFields { labels, weights }) = &rows.content {
                let named = [("labels", labels), ("weights", weights)];
                data.extend(
                    named.into_iter().filter_map(|(name, column)| Some((key(name), column.clone()?.into()))),
                );
            }
            if let TextContent::Pairs(PairColumns { rejected, prompt }) = &rows.content {
                data.insert(key("rejected"), rejected.clone().into());
                data.extend(prompt.clone().map(|prompt| (key("prompt"), prompt.into())));
            }
            names.insert(key("fim_tokens"), key("fim_prefix, fim_middle, fim_suffix"));
            let rows = self.rows.get(number).into_iter().flatten();
            data.extend(rows.map(|(name, value)| (key(name), value.clone())));
        }
        let share = Share { rank: config.rank as u64, world_size: config.world_size as u64 };
        let per_packer = config.parquet_files.rows.len() as u64;
        let config = self.entries();
        let former = Map::new();
        let sizes = "source_sizes (the rows of the sources, and the columns that they name)";
        names.insert("source_sizes".into(), sizes.into());
        if let [rows] = &self.config.parquet_files.rows[..]
            && rows.column.is_some()
        {
            names.insert("text_column".into(), rows.content.column_field().into());
        }
        let kind = "forebay.TokenLoader";
        Identity { kind, config, data, former, names, share, per_packer, default_order: None }
    }

    fn tokenizer(&self) -> Option<Value> {
        Some(hex(self.tokenizer))
    }

    /// The name is that of earlier versions.
    fn crop(&self) -> Option<Value> {
        Some(self.config.fit().into())
    }

    fn on_long(&self) -> Option<Value> {
        self.is_padded().then(|| self.config.on_long.clone().into())
    }

    fn pad_id(&self) -> Option<Value> {
        (self.is_padded() || self.config.pad_multiple > 1).then(|| self.pad.into())
    }

    fn pad_multiple(&self) -> Option<Value> {
        (self.config.pad_multiple > 1).then(|| self.config.pad_multiple.into())
    }

    fn loss_across(&self) -> Option<Value> {
        // States of earlier versions have none.
        (!self.config.loss_across).then(|| false.into())
    }

    fn is_padded(&self) -> bool {
        self.config.fit() == "pad"
    }

    fn is_mixture(&self) -> bool {
        self.config.parquet_files.names.is_some()
    }

    /// The shares of the sources, in parts of 10^9.
    fn weights(&self) -> Option<Value> {
        let names = self.config.parquet_files.names.as_ref()?;
        let shares = |weights: &[f64]| -> Vec<f64> {
            let sum: f64 = weights.iter().sum();
            weights.iter().map(|weight| (weight / sum * 1e9).round()).collect()
        };
        let stages = self.config.weights.of(names, &mut Vec::new());
        let stages: Vec<_> = stages.iter().map(|(from, weights)| (from, shares(weights))).collect();
        Some(digest(&format!("{stages:?}")))
    }

    /// The rows of the sources, and the columns that they name.
    fn source_sizes(&self) -> Option<Value> {
        let columns: Vec<_> = self.config.parquet_files.rows.iter().map(|rows| &rows.column).collect();
        self.is_mixture().then(|| digest(&format!("{:?} {columns:?}", self.source.starts())))
    }

    fn weights_in(&self) -> Option<Value> {
        let unit = self.config.weights_in.as_deref().unwrap_or("tokens");
        (self.is_mixture() && !self.config.weights.0.is_empty()).then(|| unit.into())
    }

    fn stop(&self) -> Option<Value> {
        let usual = if self.config.infinite { "restart" } else { "first_exhausted" };
        self.is_mixture().then(|| self.config.stop.as_deref().unwrap_or(usual).into())
    }

    fn global_batch_size(&self) -> Option<Value> {
        Some((self.config.batch_size * self.config.world_size).into())
    }

    fn shuffle_min_size(&self) -> Option<Value> {
        Some(self.config.window().max(1).into())
    }

    fn exclude(&self) -> Option<Value> {
        rows_identity(self.exclude)
    }
}
