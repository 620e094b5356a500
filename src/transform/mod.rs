//! transform
