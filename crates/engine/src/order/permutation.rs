//! [`Permutation`]: the rows of a source in the order of an epoch.

use super::{Bijection, Eras, rules::Order};
use crate::seed::Purpose;

/// A permutation of all rows, or of the rows of each era.
#[derive(Debug, Clone)]
pub(super) enum Permutation {
    Global(Bijection),
    Era(Eras),
}

impl Permutation {
    pub(super) fn new(seed: u64, order: Order, epoch: u64, rows: u64) -> Self {
        match order {
            Order::Era { length } => Self::Era(Eras::new(seed, epoch, rows, length)),
            _ => Self::Global(Bijection::new(seed, Purpose::Global, [epoch, 0], rows)),
        }
    }

    /// The row at `offset` of the epoch.
    pub(super) fn at(&mut self, offset: u64) -> u64 {
        match self {
            Self::Global(bijection) => bijection.at(offset),
            Self::Era(eras) => eras.at(offset),
        }
    }
}
