//! Synchronisation primitives for code with a model in `tests/loom`: the standard library's, or loom's under
//! `--cfg loom`.

#[cfg(loom)]
pub(crate) use loom::sync::{
    Arc, Condvar, Mutex, MutexGuard,
    atomic::{AtomicPtr, AtomicUsize, Ordering},
};
#[cfg(not(loom))]
pub(crate) use std::sync::{
    Arc, Condvar, Mutex, MutexGuard,
    atomic::{AtomicPtr, AtomicUsize, Ordering},
};
