//! Records that cannot be had: what becomes of them, and the list of those that were delivered.

pub(crate) mod list;
pub(crate) mod policy;
