//! Fuzz target of our checks of page headers and delta encodings; see [`crate::fuzz`].

use super::pages;

/// Checks page headers and the lengths of delta encodings.
pub(crate) fn pages(bytes: &[u8]) {
    pages::look_at(bytes);
}
