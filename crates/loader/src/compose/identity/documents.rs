//! [`TokenIdentity`]. Source: own.

use serde_json::{Map, Value};

use super::{TokenIdentity as IdentityInputs, hex, identity_entry, parameter_identity, rows_identity};
use crate::{
    config::TokenConfig,
    source::{DocumentSource, IdFields, TextContent},
    state::{Identity, Share},
};

/// The values on which the batches of a loader of documents depend.
pub struct TokenIdentity<'a> {
    pub config: &'a TokenConfig,
    pub tokenizer: u64,
    pub source: &'a DocumentSource,
    /// The id of padding.
    pub pad: u32,
    pub exclude: &'a [u64],
    /// A hash of the template of conversations, and the name of what is trained on.
    pub chat: Option<(u64, &'static str)>,
}

crate::token_parameters!(parameter_identity);

impl TokenIdentity<'_> {
    pub fn identity(&self) -> Identity {
        let Self { config, source, .. } = self;
        let mut data = Map::new();
        data.insert("num_shards".into(), source.shards().len().into());
        data.insert("num_documents".into(), source.n_rows().into());
        data.insert("fingerprint".into(), hex(source.fingerprint()));
        if let TextContent::Ids(IdFields { labels, weights }) = &config.parquet_files.content {
            let named = [("labels", labels), ("weights", weights)];
            data.extend(
                named.into_iter().filter_map(|(name, column)| Some((name.into(), column.clone()?.into()))),
            );
        }
        if let Some((template, train_on)) = self.chat {
            data.insert("template".into(), hex(template));
            data.insert("train_on".into(), train_on.into());
        }
        let share = Share { rank: config.rank as u64, world_size: config.world_size as u64 };
        let config = self.entries();
        let former = Map::new();
        Identity { kind: "forebay.TokenLoader", config, data, former, share, default_order: None }
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
        self.is_padded().then(|| self.pad.into())
    }

    fn loss_across(&self) -> Option<Value> {
        // States of earlier versions have none.
        (!self.config.loss_across).then(|| false.into())
    }

    fn is_padded(&self) -> bool {
        self.config.fit() == "pad"
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
