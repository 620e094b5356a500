//! Loom models of forebay's own synchronisation. Loom runs each model under every distinct interleaving with
//! at most three preemptions, and with every value that the memory model allows an atomic load to return. A
//! deadlock, a race or a leak fails the model.

#![cfg(all(test, loom))]

mod arenas;
mod shared_once;
mod pipeline;
mod shuffle;

use loom::model::Builder;

/// Runs `model`.
fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}
