//! Failed and excluded records: which are skipped, and the list of those handed out with their batches.

pub(crate) mod list;
pub(crate) mod policy;
