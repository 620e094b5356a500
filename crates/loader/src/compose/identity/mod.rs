//! On what the batches of each loader depend: the part of a state that is compared when it is loaded.

mod clips;
mod datasets;
mod documents;

use serde_json::{Value, json};

pub use clips::ClipIdentity;
pub use datasets::{DatasetIdentity, shortened};
pub use documents::TokenIdentity;

use crate::seed::mix;

/// The method `entries` of `IdentityInputs`, a struct with a field `config`: the entries of a state for the
/// parameters.
macro_rules! parameter_identity {
    ([$($attribute:tt)*] $config:ident $class:literal $({
        [$($star:literal)?] [$($doc:literal)+] $name:ident $kind:ident [$($default:tt)?] $identity:ident
        [$($key:ident)*] [$($check:tt)*] [$($eval:tt)?] [$($other:ident)*]
    })+) => {
        impl IdentityInputs<'_> {
            /// The entries of a state for the parameters, by the identity in their rows.
            fn entries(&self) -> Map<String, Value> {
                let mut entries = Map::new();
                $(identity_entry!(entries, self, $name $identity [$($key)*]);)+
                entries
            }
        }
    };
}

/// Adds the entry of one parameter.
macro_rules! identity_entry {
    ($entries:ident, $identity_inputs:ident, $name:ident state []) => {
        $entries.insert(stringify!($name).to_owned(), Value::from($identity_inputs.config.$name.clone()));
    };
    ($entries:ident, $identity_inputs:ident, $name:ident state [$($key:ident)+]) => {
        $($entries.extend($identity_inputs.$key().map(|value| (stringify!($key).to_owned(), value)));)+
    };
    ($entries:ident, $identity_inputs:ident, $name:ident data []) => {};
    ($entries:ident, $identity_inputs:ident, $name:ident free []) => {};
}

use {identity_entry, parameter_identity};

/// The entry of a state for the excluded rows; none if there are none.
fn rows_identity(rows: &[u64]) -> Option<Value> {
    let digest = rows.iter().fold(0, |state, &row| mix(state ^ mix(row)));
    (!rows.is_empty()).then(|| json!(format!("{} rows, {digest:016x}", rows.len())))
}

fn digest(text: &str) -> Value {
    hex(text.bytes().fold(0, |state, byte| mix(state ^ mix(u64::from(byte)))))
}

pub fn hex(number: u64) -> Value {
    json!(format!("{number:016x}"))
}

/// The descriptions of the steps of a group of augmentation, a `OneOf` or an `Only`, if this describes one.
pub fn members(description: &Value) -> Option<&Vec<Value>> {
    ["OneOf", "Only"]
        .iter()
        .any(|name| description["type"] == *name)
        .then(|| description["steps"].as_array())?
}
