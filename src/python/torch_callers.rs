//! The callers that iterate a loader, if torch is imported: worker processes, each of which would yield all
//! batches, and training frameworks, which might change them.

use pyo3::prelude::*;

use super::errors::to_python;
use crate::{Error, ErrorKind};

/// Checks what iterates a loader with rank `rank` of `world_size`.
///
/// Uses torch only if it is already imported: a lookup in `sys.modules`.
pub fn check_iteration(loader: &Bound<'_, PyAny>, rank: i64, world_size: i64) -> PyResult<()> {
    let py = loader.py();
    let Ok(torch_data) = py.import("sys")?.getattr("modules")?.get_item("torch.utils.data") else {
        return Ok(());
    };
    check_share(&torch_data, rank, world_size)?;
    py.import("forebay._callers")?.call_method1("check_callers", (loader,))?;
    Ok(())
}

/// Raises `ConfigError` in one of several worker processes, unless each has its own share. Otherwise every
/// worker would yield all batches.
fn check_share(torch_data: &Bound<'_, PyAny>, rank: i64, world_size: i64) -> PyResult<()> {
    let worker = torch_data.call_method0("get_worker_info")?;
    if worker.is_none() {
        return Ok(());
    }
    let id: i64 = worker.getattr("id")?.extract()?;
    let n: i64 = worker.getattr("num_workers")?.extract()?;
    // Of workers with the same rank, at most one passes.
    if n <= 1 || (world_size % n == 0 && rank % n == id) {
        return Ok(());
    }
    let message = format!(
        "num_workers is {n} with rank {rank} of {world_size} in worker {id}: every worker process would yield the same batches. \
         The loader has its own threads: use DataLoader(dataset, batch_size=None, num_workers=0) and Loader(..., n_workers=8); \
         or give each worker a share, rank={rank} * {n} + worker.id and world_size={world_size} * {n}"
    );
    Err(to_python(torch_data.py(), &Error::new(ErrorKind::Config, message)))
}
