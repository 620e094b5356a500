//! [`Batching`]: which draws become a batch.

/// Which draws become a batch.
#[derive(Debug, Clone, PartialEq)]
pub enum Batching {
    /// Each batch takes so many draws on each rank; the last one of a pass takes those that are left.
    Rows(usize),
    /// The collator takes as many draws as it needs to fill up to so many rows on each rank.
    Collator(usize),
}

impl Batching {
    /// The most rows of a batch on a rank.
    pub fn most_rows(&self) -> usize {
        match self {
            Self::Rows(n) | Self::Collator(n) => *n,
        }
    }

    /// Whether the number of a batch determines its draws, so that it can be made without those before it.
    pub fn is_planned(&self) -> bool {
        !matches!(self, Self::Collator(_))
    }
}
