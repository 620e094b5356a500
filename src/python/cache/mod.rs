//! `forebay.cache`: building and reading caches.

mod build;
mod convert;
mod foreign;
mod reader;
mod shards;

use pyo3::prelude::*;

pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<build::_CacheBuild>()?;
    module.add_class::<build::_ShardWork>()?;
    module.add_class::<reader::_CacheReader>()?;
    module.add_function(wrap_pyfunction!(foreign::_cache_ledger, module)?)?;
    module.add_function(wrap_pyfunction!(foreign::_cache_fields, module)?)?;
    module.add_function(wrap_pyfunction!(foreign::_array_metadata, module)?)
}
