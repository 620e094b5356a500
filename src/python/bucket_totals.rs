//! What the batches of `batching=Buckets(...)` hold, in dicts.

use pyo3::{
    prelude::*,
    types::{PyDict, PyList},
};

use crate::order::{BucketTotals, Buckets, CutTotals};

/// `Loader.buckets`, with what an epoch has of each.
pub fn bucket_list<'py>(
    py: Python<'py>,
    buckets: &Buckets,
    planned: Vec<BucketTotals>,
) -> PyResult<Bound<'py, PyList>> {
    // bounded: at most 4096 buckets, or those that are given.
    let mut totals = vec![(0_u64, 0.0_f64); buckets.limits().len()];
    for row in 0..buckets.n_rows() {
        let length = buckets.length(row);
        let total = &mut totals[buckets.bucket(length)];
        *total = (total.0 + 1, total.1 + f64::from(length.seconds));
    }
    let list = PyList::empty(py);
    let each = buckets.limits().iter().zip(buckets.sizes()).zip(totals).zip(planned);
    for (((limit, size), (rows, seconds)), planned) in each {
        let dict = PyDict::new(py);
        // As the decimal number that the length was.
        let longest = (limit.seconds as f32).to_string().parse::<f64>().unwrap_or(limit.seconds);
        dict.set_item("max_seconds", longest)?;
        if buckets.budget().max_tokens.is_some() {
            dict.set_item("max_tokens", limit.tokens)?;
        }
        dict.set_item("batch_size", size)?;
        dict.set_item("rows", rows)?;
        dict.set_item("seconds", seconds)?;
        dict.set_item("batches", planned.batches)?;
        dict.set_item("padding", share_of_padding(planned.seconds, planned.padded))?;
        list.append(dict)?;
    }
    Ok(list)
}

/// `Loader.padding`.
pub fn padding_dict<'py>(py: Python<'py>, totals: &CutTotals) -> PyResult<Bound<'py, PyDict>> {
    let sum = |of: fn(&BucketTotals) -> f64| totals.buckets.iter().map(of).sum::<f64>();
    let seconds = sum(|bucket| bucket.seconds);
    let dict = PyDict::new(py);
    dict.set_item("share", share_of_padding(seconds, sum(|bucket| bucket.padded)))?;
    dict.set_item("random", share_of_padding(seconds, totals.padded_at_random))?;
    dict.set_item("batches", totals.buckets.iter().map(|bucket| bucket.batches).sum::<u64>())?;
    Ok(dict)
}

fn share_of_padding(seconds: f64, padded: f64) -> f64 {
    if padded > 0.0 { (1.0 - seconds / padded).max(0.0) } else { 0.0 }
}
