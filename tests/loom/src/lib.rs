//! Models of what threads share without a library's help: loom runs each under every interleaving that it
//! tells apart, with at most three preemptions, and with every value that the memory model lets an atomic
//! load return. A deadlock, a race and a leak fail it.

#![cfg(all(test, loom))]

mod arenas;
mod pipeline;
mod shuffle;

use loom::model::Builder;

/// Runs `model`.
fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}
