//! Worker processes of torch's `DataLoader`, each of which iterates over the whole dataset.

use pyo3::prelude::*;

use super::errors::to_python;
use crate::{Error, ErrorKind};

/// Raises `ConfigError` in one of several worker processes, unless each has its own share. Otherwise every
/// worker would yield all batches.
///
/// Uses torch only if it is already imported: a lookup in `sys.modules`.
pub fn check_share(py: Python<'_>, rank: i64, world_size: i64) -> PyResult<()> {
    let modules = py.import("sys")?.getattr("modules")?;
    let Ok(torch_data) = modules.get_item("torch.utils.data") else { return Ok(()) };
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
    Err(to_python(py, &Error::new(ErrorKind::Config, message)))
}
