//! A run's threads: starting and joining them, parking and waking workers, and choosing how many work.

pub(crate) mod autoscale;
pub(crate) mod cpus;
#[cfg(debug_assertions)]
pub(crate) mod inject;
pub(crate) mod owned;
pub(crate) mod parking;
pub(crate) mod scheduling;
