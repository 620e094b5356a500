//! The threads themselves: started and ended together, parked and woken, and how many of them work.

pub(crate) mod autoscale;
#[cfg(debug_assertions)]
pub(crate) mod inject;
pub(crate) mod owned;
pub(crate) mod parking;
