//! States between Python and the core: plain dicts that JSON can hold.

use std::ops::Range;

use pyo3::{
    exceptions::{PyRecursionError, PyTypeError, PyValueError},
    prelude::*,
    types::{PyDict, PyString},
};
use serde_json::{Map, Value, json};

use super::{exclude, extract::int64, sources::pair};
use crate::{
    Error, ErrorKind, LoaderConfig, Result,
    seed::mix,
    source::Recordings,
    state::{Identity, Share},
    tasks::AudioPlan,
};

/// The parameters that define the batches of a loader of recordings.
pub fn identity(
    config: &LoaderConfig,
    audio: &AudioPlan,
    columns: [Option<&str>; 2],
    source: &Recordings,
    exclude: &[u64],
) -> Identity {
    let resolved = config.resolved_order().map(|order| order.name()).unwrap_or_default();
    let mut parameters = Map::new();
    let mut put = |name: &str, value: Value| {
        parameters.insert(name.to_owned(), value);
    };
    put("order", resolved.into());
    put("global_batch_size", (config.batch_size * config.world_size).into());
    if resolved == "window" {
        put("shuffle_min_size", config.shuffle_min_size.max(1).into());
    }
    if resolved == "era" {
        put("era_length", config.era_length.into());
    }
    if let Some(mixture) = &config.mixture {
        // Weights may be many, so a hash of their shares tells whether they are the same.
        let shares = |weights: &[f64]| -> Vec<f64> {
            let sum: f64 = weights.iter().sum();
            weights.iter().map(|weight| (weight / sum * 1e9).round()).collect()
        };
        let stages: Vec<_> = mixture.stages.iter().map(|(from, weights)| (from, shares(weights))).collect();
        put("weights", digest(&format!("{stages:?}")));
        put("source_sizes", digest(&format!("{:?}", source.group_starts())));
        put("mixture_block", mixture.block.unwrap_or(config.batch_size * config.world_size).into());
        let stop = if config.infinite { "restart" } else { "first_exhausted" };
        put("stop", mixture.stop.as_deref().unwrap_or(stop).into());
    }
    for (name, column) in ["audio_column", "label_column"].into_iter().zip(columns) {
        put(name, column.into());
    }
    put("seed", config.seed.into());
    put("infinite", config.infinite.into());
    put("augment", config.augment.into());
    put("drop_last", config.drop_last.into());
    put("sample_rate", config.sample_rate.into());
    put("clip_seconds", config.clip_seconds.into());
    put("n_mels", config.n_mels.into());
    put("n_fft", config.n_fft.into());
    put("hop_length", config.hop_length.into());
    put("max_record_bytes", config.max_record_bytes.into());
    put("max_decoded_seconds", config.max_decoded_seconds.into());
    put("dtype", config.dtype.as_str().into());
    put("layout", config.layout.as_str().into());
    put("n_frames", audio.n_frames().into());
    if let Some(rows) = exclude::identity(exclude) {
        put("exclude", rows);
    }
    let mut data = Map::new();
    data.insert("num_shards".into(), source.shards().len().into());
    data.insert("num_records".into(), source.n_rows().into());
    data.insert("fingerprint".into(), hex(source.fingerprint()));
    let share = Share { rank: config.rank as u64, world_size: config.world_size as u64 };
    Identity { kind: "forebay.Loader", config: parameters, data, share }
}

/// A hash of a text.
fn digest(text: &str) -> Value {
    hex(text.bytes().fold(0, |state, byte| mix(state ^ mix(u64::from(byte)))))
}

pub fn hex(number: u64) -> Value {
    json!(format!("{number:016x}"))
}

/// The dict of a state.
pub fn to_python<'py>(py: Python<'py>, state: &Value) -> PyResult<Bound<'py, PyDict>> {
    Ok(py.import("json")?.call_method1("loads", (state.to_string(),))?.cast_into()?)
}

/// The state of a dict.
pub fn from_python(state: &Bound<'_, PyAny>) -> PyResult<Result<Value>> {
    let py = state.py();
    let text = py.import("json")?.call_method1("dumps", (state,)).map_err(|error| {
        // Not a KeyboardInterrupt, for example.
        let is_about_the_state = error.is_instance_of::<PyTypeError>(py)
            || error.is_instance_of::<PyValueError>(py)
            || error.is_instance_of::<PyRecursionError>(py);
        if !is_about_the_state {
            return error;
        }
        let expected = PyTypeError::new_err(format!(
            "a state is a dict as state_dict() returns it: {}",
            error.value(py)
        ));
        expected.set_cause(py, Some(error));
        expected
    })?;
    let text = text.cast::<PyString>()?.to_str()?.to_owned();
    Ok(serde_json::from_str(&text)
        .map_err(|error| Error::new(ErrorKind::State, "the state is no JSON").because(error)))
}

/// Pairs of batch numbers, from the first up to, but without, the second.
pub fn ranges(ranges: &Bound<'_, PyAny>) -> PyResult<Result<Vec<Range<u64>>>> {
    let expected =
        || PyTypeError::new_err("ranges are pairs (first, end) of batch numbers, end not included");
    let mut found = Vec::new();
    for range in ranges.try_iter().map_err(|_| expected())? {
        let [first, end] = pair(&range?).ok_or_else(expected)?;
        let (first, end) = (int64(&first)?, int64(&end)?);
        match (u64::try_from(first), u64::try_from(end)) {
            (Ok(first), Ok(end)) if first <= end => found.push(first..end),
            _ => {
                let message =
                    format!("the range ({first}, {end}) is none of batches, expected 0 <= first <= end");
                return Ok(Err(Error::new(ErrorKind::Config, message)));
            }
        }
    }
    Ok(Ok(found))
}
