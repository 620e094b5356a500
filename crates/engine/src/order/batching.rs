//! [`Batching`]: which draws become a batch.

use std::sync::Arc;

use super::Buckets;

#[derive(Debug, Clone, PartialEq)]
pub enum Batching {
    /// Each batch takes so many draws on each rank; the last one of a pass takes those that are left.
    Rows(usize),
    /// Boundaries that follow from the lengths of rows; each batch has its own number of rows.
    Cuts(Arc<Buckets>),
    /// The collator takes as many draws as it needs to fill up to so many rows on each rank.
    Collator(usize),
}

impl Batching {
    /// The most rows of a batch on a rank.
    pub fn most_rows(&self) -> usize {
        match self {
            Self::Rows(n) | Self::Collator(n) => *n,
            Self::Cuts(buckets) => buckets.most_rows() as usize,
        }
    }

    /// Whether the number of a batch determines its draws, so that it can be made without those before it.
    pub fn is_planned(&self) -> bool {
        !matches!(self, Self::Collator(_))
    }

    /// Whether boundaries follow from the lengths of rows.
    pub fn is_cut(&self) -> bool {
        matches!(self, Self::Cuts(_))
    }
}
