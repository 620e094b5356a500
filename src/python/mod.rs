//! The Python interface, and the only module that uses PyO3: converts values, detaches, and maps errors.
//!
//! Loops over samples, bytes and tokens are in the core. Code here loops over fields, shards and arguments,
//! and converts the results of Python functions. Every wait consists of detached slices of [`SLICE`], with a
//! check of pending signals between them. A thread of forebay attaches to Python only to call a function of
//! the user ([`calls`]), and holds no lock of forebay meanwhile. So no thread waits for such a lock while it
//! holds the GIL.

mod access;
mod allow_paths;
pub(crate) mod arguments;
mod arrays;
mod augment;
mod fair_lock;
mod features;
mod recipe_fields;
mod owned_object;
mod batches;
mod batching;
mod bucket_totals;
mod cache;
mod calls;
mod chat;
mod check;
mod crops;
mod data_loader;
mod dataset;
mod decode;
mod ending;
mod engine_handle;
mod errors;
mod exclude;
mod index;
#[cfg(debug_assertions)]
mod inject;
mod loader;
mod loader_base;
mod loader_fields;
mod logging;
mod manifest;
mod parquet;
mod paths;
mod permutation;
mod plan_query;
mod python_leaf;
mod interruptible;
mod sampling;
mod sources;
mod spectrogram;
mod state;
mod stats;
mod store_options;
mod targets;
mod text_draws;
mod text_rows;
mod token_loader;
mod token_sources;
mod token_targets;
mod tokenizer;
mod torch_callers;
mod user_step;
mod vocabulary;
mod waveforms;

use std::{
    sync::{Arc, PoisonError, Weak},
    time::Duration,
};

use numpy::PyArrayMethods;
use pyo3::prelude::*;

use crate::engine;
use crate::sync::plain::Mutex;
use forebay_simd::Level;

/// The longest wait between checks of pending signals.
const SLICE: Duration = Duration::from_millis(50);

/// Ends a loader of any kind.
trait Close: Send + Sync {
    fn close(&self);
}

impl<E: Send> Close for engine::Control<E> {
    fn close(&self) {
        Self::close(self);
    }
}

/// Every loader that may have threads, for the end of the process.
static LIVE: Mutex<Vec<(u32, Weak<dyn Close>)>> = Mutex::new(Vec::new());

/// Registers a loader for [`_close_all`].
fn remember<E: Send + 'static>(control: &Arc<engine::Control<E>>) {
    let control: Weak<engine::Control<E>> = Arc::downgrade(control);
    let mut live = LIVE.lock().unwrap_or_else(PoisonError::into_inner);
    live.retain(|(_, other)| other.strong_count() > 0);
    live.push((std::process::id(), control));
}

/// Ends the threads of every loader; called at the exit of the interpreter.
#[pyfunction]
fn _close_all(py: Python<'_>) {
    engine::note_end();
    py.detach(|| {
        // After a fork the list may stay locked forever, and its loaders belong to the parent.
        let live = LIVE.try_lock().map(|mut live| std::mem::take(&mut *live)).unwrap_or_default();
        let own = live.iter().filter(|(process, _)| *process == std::process::id());
        own.filter_map(|(_, control)| control.upgrade()).for_each(|control| control.close());
        ending::await_callers(engine::JOIN_TIMEOUT);
    });
    ending::begin();
    py.detach(calls::await_calls);
}

/// The number of cores that this process may use, by its affinity and the quota of its control group.
#[pyfunction]
fn _cores() -> usize {
    engine::cores()
}

/// The Rust core of forebay.
#[pymodule(gil_used = true)]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    // Imports numpy's C interface now: Ctrl-C during that import at the first batch would make the numpy
    // binding panic. So would Ctrl-C here, if numpy was not imported before.
    py.import("numpy")?;
    numpy::PyArray1::<f32>::zeros(py, 0, false).readonly();
    logging::install(py)?;
    // Reads the environment, which another thread may change later.
    Level::detect();
    calls::order_forks(py)?;
    quiet_own_panics();
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<loader_base::LoaderBase>()?;
    module.add_class::<loader::Loader>()?;
    module.add_class::<access::AudioDataset>()?;
    module.add_class::<token_loader::TokenLoader>()?;
    module.add_class::<check::_Check>()?;
    module.add_class::<index::_Index>()?;
    module.add_class::<data_loader::DataLoader>()?;
    module.add_class::<dataset::_Dataset>()?;
    module.add_class::<dataset::_List>()?;
    module.add_class::<features::PyFrontEnd>()?;
    module.add_class::<targets::PyTarget>()?;
    module.add_class::<batching::PyBatching>()?;
    module.add_class::<text_rows::PyTextRows>()?;
    module.add_class::<crops::PyCrop>()?;
    module.add_class::<manifest::PyManifest>()?;
    module.add_class::<sampling::PySampling>()?;
    module.add_class::<augment::PyStep>()?;
    module.add_function(wrap_pyfunction!(augment::_augment_waveform, module)?)?;
    module.add_function(wrap_pyfunction!(augment::_augment_features, module)?)?;
    module.add_function(wrap_pyfunction!(augment::_augment_numbers, module)?)?;
    module.add_function(wrap_pyfunction!(user_step::_function_name, module)?)?;
    module.add_class::<spectrogram::PySpectrogramTransform>()?;
    module.add_class::<tokenizer::PyTokenizer>()?;
    cache::add(module)?;
    errors::add(module)?;
    module.add_function(wrap_pyfunction!(decode::decode, module)?)?;
    module.add_function(wrap_pyfunction!(_close_all, module)?)?;
    #[cfg(debug_assertions)]
    inject::add(module)?;
    module.add_function(wrap_pyfunction!(_cores, module)?)?;
    module.add_function(wrap_pyfunction!(arguments::_parameters, module)?)?;
    module.add_function(wrap_pyfunction!(arguments::_unknown_keyword, module)?)?;
    module.add_function(wrap_pyfunction!(permutation::_permutation, module)?)?;
    module.add_function(wrap_pyfunction!(parquet::_parquet_files, module)?)?;
    module.add_function(wrap_pyfunction!(parquet::_shards, module)?)?;
    module.add_class::<parquet::_ParquetText>()?;
    py.import("atexit")?.call_method1("register", (module.getattr("_close_all")?,))?;
    Ok(())
}

/// Installs a panic hook that logs panics on forebay's threads, which are delivered as errors, instead of
/// printing them.
fn quiet_own_panics() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let is_ours = std::thread::current().name().is_some_and(|name| name.starts_with("forebay-"));
        if is_ours || crate::catch_panic::is_guarded() {
            log::debug!("{info}");
        } else {
            print(info);
        }
    }));
}
