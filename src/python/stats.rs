//! The figures of a loader as dicts.

use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::{
    prelude::*,
    types::{PyDict, PyList},
};

use crate::{
    engine::{Counters, Delivered, QueueSizes, Report, StageTimes, ThreadState, Times},
    source::ReadCounts,
    storage::Traffic,
};

/// The dict that `stats()` returns.
pub fn dict<'py>(
    py: Python<'py>,
    counters: &Counters,
    traffic: &Traffic,
    queues: QueueSizes,
    threads: &[ThreadState],
) -> PyResult<Bound<'py, PyDict>> {
    let stats = counters.read();
    let Report { stages, ready, starved, start_s, n_workers, prefetch_batches, verdict } =
        counters.report(traffic.labels());
    let dict = PyDict::new(py);
    dict.set_item("records_read", stats.records_read)?;
    dict.set_item("records_decoded", stats.records_decoded)?;
    dict.set_item("records_failed", stats.records_failed)?;
    dict.set_item("records_excluded", stats.records_excluded)?;
    dict.set_item("records_lost", stats.records_lost)?;
    let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    dict.set_item("retries", get(&traffic.retries))?;
    dict.set_item("requests", get(&traffic.requests))?;
    dict.set_item("received_bytes", get(&traffic.received_bytes))?;
    dict.set_item("cache_hits", get(&traffic.cache_hits))?;
    dict.set_item("cached_bytes", get(&traffic.cached_bytes))?;
    let first_byte = traffic.first_byte.read();
    let times = PyDict::new(py);
    times.set_item("first_byte_p50_s", first_byte.p50_s)?;
    times.set_item("first_byte_p99_s", first_byte.p99_s)?;
    dict.set_item("request_times", times)?;
    dict.set_item("substitutes", stats.substitutes)?;
    dict.set_item("batches", stats.batches)?;
    dict.set_item("decoded_at_first_batch", stats.decoded_at_first_batch)?;
    let Delivered { batches, examples, substitutes, records_failed, .. } = stats.delivered;
    let Delivered { records_excluded, records_lost, records_good, kinds, .. } = stats.delivered;
    let delivered = PyDict::new(py);
    delivered.set_item("batches", batches)?;
    delivered.set_item("examples", examples)?;
    delivered.set_item("substitutes", substitutes)?;
    delivered.set_item("records_failed", records_failed)?;
    delivered.set_item("records_excluded", records_excluded)?;
    delivered.set_item("records_lost", records_lost)?;
    delivered.set_item("records_good", records_good)?;
    let by_kind = PyDict::new(py);
    for (kind, n) in kinds.occurred() {
        by_kind.set_item(kind.name(), n)?;
    }
    dict.set_item("delivered", delivered)?;
    dict.set_item("failed_kinds", by_kind)?;
    dict.set_item("n_workers", n_workers)?;
    dict.set_item("prefetch_batches", prefetch_batches)?;
    dict.set_item("verdict", verdict)?;
    let by_name = PyDict::new(py);
    for stage in &stages {
        by_name.set_item(stage.name, stage_dict(py, stage)?)?;
    }
    dict.set_item("stages", by_name)?;
    let QueueSizes { records, record_bytes, read_bytes, examples, batches } = queues;
    let queues = PyDict::new(py);
    queues.set_item("records", records)?;
    queues.set_item("record_bytes", record_bytes)?;
    queues.set_item("read_bytes", read_bytes)?;
    queues.set_item("examples", examples)?;
    queues.set_item("batches", batches)?;
    dict.set_item("queues", queues)?;
    let times = PyDict::new(py);
    times.set_item("start_s", start_s)?;
    for (name, Times { p50_s, p99_s, .. }) in [("ready", ready), ("starved", starved)] {
        times.set_item(format!("{name}_p50_s"), p50_s)?;
        times.set_item(format!("{name}_p99_s"), p99_s)?;
    }
    dict.set_item("batch_times", times)?;
    let list = PyList::empty(py);
    for ThreadState { name, doing, since, item, place, .. } in threads {
        let thread = PyDict::new(py);
        thread.set_item("name", &**name)?;
        thread.set_item("state", doing)?;
        thread.set_item("since", since.as_secs_f64())?;
        thread.set_item("item", item)?;
        thread.set_item("shard", place.as_ref().map(|(shard, _)| shard.display().to_string()))?;
        thread.set_item("row", place.as_ref().map(|&(_, row)| row))?;
        list.append(thread)?;
    }
    dict.set_item("threads", list)?;
    Ok(dict)
}

/// What was read of recordings in files of their own.
pub fn files_dict<'py>(py: Python<'py>, counts: &ReadCounts) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("opened", counts.opened)?;
    dict.set_item("open", counts.open)?;
    dict.set_item("reads", counts.reads)?;
    dict.set_item("read_bytes", counts.bytes)?;
    dict.set_item("indexed", counts.indexed)?;
    dict.set_item("index_hits", counts.index_hits)?;
    dict.set_item("indexes", counts.indexes)?;
    dict.set_item("index_bytes", counts.index_bytes)?;
    Ok(dict)
}

fn stage_dict<'py>(py: Python<'py>, stage: &StageTimes) -> PyResult<Bound<'py, PyDict>> {
    let StageTimes { threads, items, busy_s, waits, times, .. } = stage;
    let StageTimes { items_per_s, busy_share, blocked_share, run_queue_share, .. } = stage;
    let blocked_on = PyDict::new(py);
    for (name, seconds) in waits {
        blocked_on.set_item(format!("{name}_s"), seconds)?;
    }
    let dict = PyDict::new(py);
    dict.set_item("threads", threads)?;
    dict.set_item("items", items)?;
    dict.set_item("busy_s", busy_s)?;
    dict.set_item("blocked_s", waits.iter().map(|(_, seconds)| seconds).sum::<f64>())?;
    dict.set_item("blocked_on", blocked_on)?;
    dict.set_item("p50_s", times.p50_s)?;
    dict.set_item("p99_s", times.p99_s)?;
    dict.set_item("items_per_s", items_per_s)?;
    dict.set_item("busy_share", busy_share)?;
    dict.set_item("blocked_share", blocked_share)?;
    dict.set_item("run_queue_share", run_queue_share)?;
    Ok(dict)
}
