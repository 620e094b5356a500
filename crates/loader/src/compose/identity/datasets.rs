//! [`DatasetIdentity`]. Source: own.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{DatasetIdentity as IdentityInputs, identity_entry, parameter_identity};
use crate::{
    config::DatasetConfig,
    seed::mix,
    state::{Identity, Share},
    tasks::DatasetShare,
};

/// The values on which the batches of a loader of datasets depend.
pub struct DatasetIdentity<'a> {
    pub config: &'a DatasetConfig,
    pub share: &'a DatasetShare,
    pub text: &'a str,
}

crate::row_parameters!(parameter_identity);

impl DatasetIdentity<'_> {
    /// For the rows of an epoch, if they are known.
    pub fn identity(&self, n_rows: Option<u64>) -> Identity {
        let mut data = Map::new();
        data.insert("num_records".into(), n_rows.into());
        Identity {
            kind: "forebay.cache.DataLoader",
            config: self.entries(),
            data,
            former: Map::new(),
            names: BTreeMap::new(),
            share: Share { rank: 0, world_size: 1 },
            per_packer: 1,
            default_order: None,
        }
    }

    fn dataset(&self) -> Option<Value> {
        Some(shortened(self.text).into())
    }

    fn global_batch_size(&self) -> Option<Value> {
        Some(self.share.global_batch().into())
    }
}

/// The most characters of a text in a state.
const LONGEST: usize = 320;

/// A text that identifies a dataset: unchanged, or its beginning and a hash if it is long.
pub fn shortened(text: &str) -> String {
    if text.len() <= LONGEST {
        return text.to_owned();
    }
    let digest = text.bytes().fold(0, |state, byte| mix(state ^ mix(u64::from(byte))));
    let beginning: String = text.chars().take(LONGEST - 24).collect();
    format!("{beginning}... {digest:016x}")
}
