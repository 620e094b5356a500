//! `forebay.cache`: building and reading caches.

mod build;
mod convert;
mod reader;
mod shards;

use pyo3::prelude::*;

pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<build::_CacheBuild>()?;
    module.add_class::<build::_ShardWork>()?;
    module.add_class::<reader::_CacheReader>()
}
