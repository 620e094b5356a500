//! Our own look at page headers and delta encodings as a function of bytes; see [`crate::fuzz`].

use super::pages;

/// Headers of pages, and lengths of delta encodings.
pub(crate) fn pages(bytes: &[u8]) {
    pages::look_at(bytes);
}
