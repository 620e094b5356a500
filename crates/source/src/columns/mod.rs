//! Chooses the columns of a shard to read, and checks their types.
//!
//! The audio column is the one that the user names, else `audio`, else the only Audio feature in the schema's
//! Hugging Face metadata. The label column likewise: by name, `label`, `labels`, the only ClassLabel. A text
//! column and any other is always named. The result is a list of arrays to find in every batch, each by its
//! path through the schema.
//!
//! Source: Arrow columnar format, "Physical memory layout"; the choice is our own. The `huggingface` metadata
//! is read as `datasets` 1 to 4 write it.
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | what a user requests, and the values of other columns |
//! | `arrays.rs` | the arrays of a shard that hold what is read |
//! | `types.rs` | types of columns, and the layouts of their arrays |
//! | `features.rs` | the columns of a schema, with the metadata of `datasets` |

mod arrays;
mod features;
mod types;

use std::sync::Arc;

pub use features::SchemaColumn;
pub use types::{ColumnType, Item, Nesting, type_name};

pub(crate) use arrays::{ArrayColumns, ArrayRequest, Other, Pair, find, listed};
pub(crate) use features::{FeatureCache, columns_of};
pub(crate) use types::{SPAN_FIELDS, ValueLayout, item_of, layout_of, nesting_of, shortened, span_fields};

use crate::{Error, ErrorKind, Result, fields};

/// The kind of a source's records, and their column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PayloadColumn {
    /// Recordings: the column's name; None for `audio` or the only Audio feature.
    Audio(Option<String>),
    /// Documents in UTF-8: the column's name.
    Text(String),
    /// Conversations: their columns.
    Chat(ChatColumns),
    /// Lists of token ids: the column's name, and the columns of their labels and weights.
    Ids(String, IdFields),
    /// Nothing: only other columns are read.
    Nothing,
}

impl PayloadColumn {
    /// What records are called in messages, if they are documents.
    pub(crate) fn document(&self) -> Option<&'static str> {
        match self {
            Self::Text(_) => Some("text"),
            Self::Chat(ChatColumns { beside: OtherChatColumns::Pair(_), .. }) => Some("chosen conversation"),
            Self::Chat(_) => Some("conversation"),
            _ => None,
        }
    }

    /// The name of the column of recordings, if the user gives one.
    pub(crate) fn recordings(&self) -> Option<&str> {
        match self {
            Self::Audio(column) => column.as_deref(),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatColumns {
    /// Lists of structs, or texts of JSON; of pairs, those that are chosen.
    pub messages: String,
    pub beside: OtherChatColumns,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OtherChatColumns {
    /// The tools of each conversation.
    Tools(Option<String>),
    /// The other conversations of pairs.
    Pair(PairColumns),
}

/// The columns of pairs beside the one of the chosen conversations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PairColumns {
    pub rejected: String,
    /// What both conversations begin with. Texts in all three are then messages, not JSON.
    pub prompt: Option<String>,
}

impl ChatColumns {
    pub(crate) fn new(messages: &str, beside: OtherChatColumns) -> Self {
        Self { messages: messages.to_owned(), beside }
    }
}

/// The columns of lists of numbers beside lists of token ids.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IdFields {
    /// The id where the token is trained on, else -100.
    pub labels: Option<String>,
    /// The weight of each token in the loss.
    pub weights: Option<String>,
}

impl IdFields {
    pub fn is_empty(&self) -> bool {
        self.labels.is_none() && self.weights.is_none()
    }
}

/// A value that is read for each row in addition to its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExtraColumn {
    /// The class, [`NO_LABEL`](crate::NO_LABEL) if it is null.
    Label,
    /// The recording's own path, empty if it is null, not UTF-8, or longer than 4096 bytes.
    Path,
    /// The value in the column with this number in `ArrayColumns::others`.
    Other(usize),
}

/// Which column of a table or a shard has some values, as a user chooses it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ColumnChoice {
    /// The one with a usual name or type, if there is one.
    #[default]
    Usual,
    /// No column, even if there is one with a usual name.
    Nothing,
    Named(String),
}

impl ColumnChoice {
    /// The name, if one is given.
    pub(crate) fn name(&self) -> Option<&str> {
        match self {
            Self::Named(name) => Some(name),
            Self::Usual | Self::Nothing => None,
        }
    }
}

impl From<Option<String>> for ColumnChoice {
    /// As in Python: `None` chooses the usual one, and an empty name chooses [`Self::Nothing`].
    fn from(name: Option<String>) -> Self {
        match name {
            None => Self::Usual,
            Some(name) if name.is_empty() => Self::Nothing,
            Some(name) => Self::Named(name),
        }
    }
}

/// The longest path that is delivered, bytes. Linux opens no longer ones, and the shuffle buffer holds one
/// for each example.
pub const MOST_PATH_BYTES: usize = 4096;

/// What a shard has beside its recordings.
#[derive(Debug, Clone, Default)]
pub(crate) struct Described {
    /// The class names of the label.
    pub label_names: Option<Arc<Vec<String>>>,
    /// The types of the other columns, and their class names.
    pub others: Vec<(ColumnType, Option<Arc<Vec<String>>>)>,
    /// All columns; shared by shards that have the same.
    pub schema: Arc<[SchemaColumn]>,
}

impl ExtraColumn {
    /// The values that a source reads, in order: the label if it has any, the path on request, other columns.
    pub fn of(has_labels: bool, paths: bool, others: usize) -> Vec<Self> {
        [(Self::Label, has_labels), (Self::Path, paths)]
            .into_iter()
            .filter_map(|(value, is_read)| is_read.then_some(value))
            .chain((0..others).map(Self::Other))
            .collect()
    }

    /// The value of a path; empty if the path cannot be read, which is no error of the record.
    ///
    /// # Errors
    /// Those that end the run.
    pub fn path(path: Result<Option<String>>) -> Result<fields::Value> {
        let path = match path {
            Err(error) if !error.kind.is_record() => return Err(error),
            path => path.ok().flatten().filter(|path| path.len() <= MOST_PATH_BYTES),
        };
        Ok(fields::Value::Text(path.unwrap_or_default().into()))
    }
}

/// The longest text of another column, bytes.
pub const MOST_TEXT_BYTES: u64 = 1 << 20;

/// The most items of a list of another column.
pub const MOST_ITEMS: u64 = 1 << 16;

/// The value of a whole number.
///
/// # Errors
/// [`ErrorKind::Schema`] for one beyond int64.
pub(crate) fn whole(number: i128) -> Result<fields::Value> {
    i64::try_from(number)
        .map(fields::Value::Int)
        .map_err(|_| Error::new(ErrorKind::Schema, format!("the number {number} does not fit int64")))
}

/// The value of a text.
///
/// # Errors
/// [`ErrorKind::Corrupt`] if it is not UTF-8.
pub(crate) fn text(bytes: &[u8]) -> Result<fields::Value> {
    let text = std::str::from_utf8(bytes)
        .map_err(|error| Error::new(ErrorKind::Corrupt, "the text is not UTF-8").because(error))?;
    Ok(fields::Value::Text(text.into()))
}

/// Checks the length of a text.
///
/// # Errors
/// [`ErrorKind::TooLarge`] beyond the limit.
pub(crate) fn check_text(bytes: u64) -> Result<()> {
    if bytes <= MOST_TEXT_BYTES {
        return Ok(());
    }
    let message = format!("a text has {bytes} bytes, at most {MOST_TEXT_BYTES} are read");
    Err(Error::new(ErrorKind::TooLarge, message))
}

/// Checks the length of a list within a list, which has a start and an end.
///
/// # Errors
/// [`ErrorKind::Schema`] beyond the limit: few values could make many, since a value is larger than a number.
pub(crate) fn check_pair(items: u64) -> Result<()> {
    if items <= 2 {
        return Ok(());
    }
    let message = format!("a list in a list has {items} items, expected pairs [start, end]");
    Err(Error::new(ErrorKind::Schema, message))
}

/// The error about a value, with the name of its column.
pub(crate) fn in_column(name: &str, mut error: Error) -> Error {
    error.message = format!("column {name:?}: {}", error.message);
    error
}
