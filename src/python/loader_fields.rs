//! The fields of a loader's batches, described for users.

use pyo3::{
    prelude::*,
    types::{PyDict, PyList, PyTuple},
};

use super::{arguments::Parameters, arrays::OFFSETS};
use crate::{
    LoaderConfig,
    compose::ClassNamesOf,
    config::{FeatureObject, Sources},
    dsp::augment::Outcome,
    dtype::Dtype,
    error::counted,
    fields::{Dim, Field},
    source::Recordings,
    tasks::AudioPlan,
};

/// The names of the classes, by number; None if they are not known. If several targets have names, a dict.
pub fn names_to_python<'py>(py: Python<'py>, class_names: &ClassNamesOf) -> PyResult<Bound<'py, PyAny>> {
    match &class_names[..] {
        [] => Ok(py.None().into_bound(py)),
        [(_, names)] => PyList::new(py, names.iter()).map(Bound::into_any),
        several => {
            let dict = PyDict::new(py);
            several.iter().try_for_each(|(name, names)| dict.set_item(name, &**names))?;
            Ok(dict.into_any())
        }
    }
}

/// The recordings that are read, in words.
pub fn source_columns(sources: &Sources, source: &Recordings, n_rows: u64) -> String {
    let names = sources.names.as_ref();
    let mixed = names.map_or(String::new(), |names| format!(", mixed of {}", names.join(", ")));
    let of = if n_rows < source.n_rows() { format!(" of {}", source.n_rows()) } else { String::new() };
    let records = format!("{}{of}", counted(n_rows, "record"));
    format!("{records} in {}{mixed}", held_in(source))
}

/// What holds the recordings, in words.
pub fn held_in(source: &Recordings) -> String {
    if source.is_of_files() { "files".to_owned() } else { counted(source.shards().len() as u64, "shard") }
}

/// The fields whose uint16 values are the bits of bfloat16, which numpy does not have.
pub fn bfloat16_fields(audio: &AudioPlan) -> Vec<&str> {
    let is_bfloat16 = audio.features.dtype() == Dtype::Bfloat16;
    audio.feature_fields().filter(|_| is_bfloat16).map(|(name, _)| name).collect()
}

/// The fields of a batch: dicts with `name`, `dtype`, `shape` and `meaning`.
pub fn described<'py>(
    py: Python<'py>,
    config: &LoaderConfig,
    audio: &AudioPlan,
    fields: &[Field],
) -> PyResult<Bound<'py, PyList>> {
    let fields = fields.iter().map(|field| {
        let dict = PyDict::new(py);
        let dtype = match field.dtype {
            _ if field.is_text => "str",
            _ if bfloat16_fields(audio).contains(&&*field.name) => "bfloat16",
            dtype => dtype.name(),
        };
        dict.set_item("name", &field.name)?;
        dict.set_item("dtype", dtype)?;
        let is_ragged = field.dims.contains(&Dim::Ragged);
        let axis = |dim: &Dim| if let Dim::Fixed(n) = *dim { Some(n) } else { None };
        let shape = (!is_ragged).then(|| PyTuple::new(py, field.dims.iter().map(axis)));
        dict.set_item("shape", shape.transpose()?)?;
        dict.set_item("meaning", meaning(config, audio, &field.name))?;
        Ok(dict)
    });
    let list = PyList::new(py, fields.collect::<PyResult<Vec<_>>>()?)?;
    if config.packs() {
        let dict = PyDict::new(py);
        dict.set_item("name", OFFSETS)?;
        dict.set_item("dtype", "int32")?;
        dict.set_item("shape", PyTuple::empty(py))?;
        dict.set_item("meaning", "where each row begins, and the end of the last")?;
        list.insert(1, dict)?;
    }
    Ok(list)
}

fn shown_columns(columns: &[String]) -> String {
    let names: Vec<_> = columns.iter().map(|name| format!("{name:?}")).collect();
    format!("{} {}", if names.len() == 1 { "column" } else { "columns" }, names.join(", "))
}

fn meaning(config: &LoaderConfig, audio: &AudioPlan, name: &str) -> String {
    let target = config.targets.iter().flatten().find(|target| target.name == name);
    if let Some(target) = target {
        return format!("{} of column {:?}", target.form.name(), target.column);
    }
    if config.columns.iter().any(|column| column == name) {
        return format!("column {name:?}");
    }
    let rate = audio.features.sample_rate();
    let clip = match config.whole() {
        Some(whole) => format!("at most {:?} s at {rate} Hz", whole.max_seconds),
        None => format!("{} s at {rate} Hz", config.clip_seconds),
    };
    let several = config.audio.iter().flat_map(|audio| &audio.fields).find(|field| field.name == name);
    if let Some(field) = several {
        let what = if audio.features.is_waveform() { "samples" } else { "features" };
        return format!("{what} of a clip of {clip}, of {}", shown_columns(&field.columns));
    }
    match name {
        "spectrogram" => format!("features of a clip of {clip}"),
        "waveform" => format!("samples of a clip of {clip}"),
        "label" => "number of the class, -1 for none".to_owned(),
        "source" => "number of the source".to_owned(),
        "index" => "row over all files".to_owned(),
        "path" => "path in the row".to_owned(),
        "start" => "start of the clip in its recording, seconds".to_owned(),
        "valid_samples" => "samples that are not padding".to_owned(),
        "valid_frames" => "frames of these samples".to_owned(),
        "shard" => "number of the shard".to_owned(),
        "row" => "row within the shard".to_owned(),
        "window" => "number of the window in its recording".to_owned(),
        "slot" => "place in the batch as it was drawn, before bad records".to_owned(),
        "augment_bits" => "the 64 random bits of the clip, signed".to_owned(),
        "attention_mask" => "1 where the features are valid, 0 where they are padding".to_owned(),
        "partner_index" => "the row of each recording, in the order of audio".to_owned(),
        "audio_valid_samples" => {
            "samples of each recording that are not padding, in the order of audio".to_owned()
        }
        "audio_valid_frames" => "frames of these samples".to_owned(),
        "audio_mask" => "1 where the row has the recording, in the order of audio, 0 for zeros".to_owned(),
        "bucket" => "number of the bucket of the row's length".to_owned(),
        "mixup_index" => "row over all files of the example mixed in, -1 for none".to_owned(),
        "mixup_weight" => "weight of the example itself, 1 if it is not mixed".to_owned(),
        _ => match (Outcome::named(name), name.strip_suffix("_b"), name.strip_suffix("_length")) {
            (Some((.., meaning)), ..) => meaning.to_owned(),
            (_, Some(of), _) => format!("{of} of the example mixed in, its own if it is not mixed"),
            (.., Some(of)) => format!("number of {of} of the row"),
            _ => match (name.strip_suffix("_start"), name.strip_suffix("_end")) {
                (Some(of), _) => format!("starts of {of}, seconds of the clip"),
                (_, Some(of)) => format!("ends of {of}, seconds of the clip"),
                _ => String::new(),
            },
        },
    }
}

/// The parameters that an object of features has instead of the loader.
pub const OF_FEATURES: [&str; 7] =
    ["sample_rate", "n_mels", "n_fft", "hop_length", "dtype", "layout", "n_frames"];

/// The problem, if features are given twice: as an object, and by parameters.
pub fn given_twice<C: Parameters>(
    features: Option<&FeatureObject>,
    args: &Bound<'_, PyTuple>,
    kwargs: Option<&Bound<'_, PyDict>>,
) -> PyResult<Option<String>> {
    if features.is_none() {
        return Ok(None);
    }
    let mut twice = Vec::new();
    for name in OF_FEATURES {
        let position = C::ROWS.parameters.iter().position(|one| one.name == name);
        let by_keyword = kwargs.map(|kwargs| kwargs.contains(name)).transpose()?.unwrap_or(false);
        if by_keyword || position.is_some_and(|at| at < args.len()) {
            twice.push(name);
        }
    }
    Ok((!twice.is_empty()).then(|| {
        format!(
            "features and {} are given; the features have these parameters themselves: give them to the object, as in \
             forebay.features.LogMel({}=...)",
            twice.join(", "),
            twice[0]
        )
    }))
}
