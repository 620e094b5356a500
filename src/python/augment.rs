//! The objects of `forebay.augment`, checked: from the values of their fields to a [`Step`].

use std::sync::Arc;

use numpy::{PyArray2, PyReadonlyArray1, PyReadonlyArray2, PyUntypedArrayMethods};
use pyo3::{
    PyTraverseError, PyVisit,
    exceptions::PyTypeError,
    prelude::*,
    types::{PyBool, PyDict, PyList, PyString, PyType},
};
use serde_json::{Value, json};

use super::{
    arguments::{Argument, ArgumentError, argument, items, plan},
    ending::detach,
    errors::to_python,
    features::read_features,
    owned_object::OwnedObject,
    recipe_fields::RecipeFields,
    state,
    user_step::UserStep,
};
use crate::{
    Error, ErrorKind, Result,
    compose::identity,
    config::{AugmentObject, Background, Opaque},
    dsp::{
        Augment, AugmentScratch, Clips, FrameAxis, Layout, Quality, Resampler, SpectrogramConfig,
        augment::{
            Calling, Choice, Drawing, Exchange, FilterShape, MOST_PARTS, MOST_STEPS, Pairing, Step, StepKind,
        },
        target_len,
    },
    dtype::ValuesMut,
    fallible_alloc, float_mode,
};

mod fields;

/// The most frames or bands of a mask, and of a warp.
const MOST_FRAMES: i64 = 1 << 24;

/// The most rows of a group of a `Remix`.
const MOST_REMIXED: i64 = 1024;

/// A step of augmentation.
#[pyclass(module = "forebay._core", name = "_Step", frozen)]
pub struct PyStep {
    /// One, or those of a group.
    steps: Vec<PlannedStep>,
    group: Option<StepGroup>,
}

/// What several steps have in common.
enum StepGroup {
    /// One of them is drawn.
    OneOf {
        /// One for each step.
        weights: Vec<f64>,
        /// The share of examples to which one of the steps is applied.
        p: f64,
    },
    /// They change one field of waveforms.
    Only,
}

impl StepGroup {
    fn name(&self) -> &'static str {
        match self {
            Self::OneOf { .. } => "OneOf",
            Self::Only => "Only",
        }
    }
}

struct PlannedStep {
    step: Step,
    /// The recordings that it reads besides the clip's.
    source: Option<Background>,
    function: Option<Py<OwnedObject>>,
}

impl PlannedStep {
    fn clone_ref(&self, py: Python<'_>) -> Self {
        Self {
            step: self.step.clone(),
            source: self.source.clone(),
            function: self.function.as_ref().map(|held| held.clone_ref(py)),
        }
    }
}

#[pymethods]
impl PyStep {
    /// Checks the fields of class `kind`.
    #[new]
    fn new(kind: &str, fields: &Bound<'_, PyDict>) -> PyResult<Self> {
        let mut given = RecipeFields::new(fields.clone());
        const DB: [f64; 2] = [-200.0, 200.0];
        const SHARES: [f64; 2] = [-1.0, 1.0];
        let (mut source, mut function) = (None, None);
        let kind = match kind {
            "Gain" => given.gain(DB)?,
            "Level" => given.level(DB)?,
            "SwapChannels" => StepKind::SwapChannels,
            "Polarity" => StepKind::Polarity,
            "Roll" => StepKind::Roll {
                shift: given.bounds("shift", SHARES)?,
                wraps: given.one_of("fill", &["wrap", "zeros"])? == 0,
            },
            "Noise" => StepKind::Noise {
                snr_db: given.bounds("snr_db", DB)?,
                slope_db: given.bounds("slope_db", [-12.0, 12.0])?,
                loudness: given.loudness("level")?,
            },
            "Dither" => StepKind::Dither { amount: given.bounds("amount", [0.0, 1.0])? },
            "DropFreq" => StepKind::DropFreq {
                freq: given.bounds("freq", [0.0, 1.0])?,
                width: given.bounds("width", [0.001, 0.25])?,
                n: given.counts("n", MOST_PARTS / 2)?,
            },
            "DropChunk" => StepKind::DropChunk {
                length_ms: given.bounds("length_ms", [0.0, 60_000.0])?,
                n: given.counts("n", MOST_PARTS)?,
                noise_factor: given.bounds("noise_factor", [0.0, 100.0])?,
            },
            "Filter" => StepKind::Filter {
                shape: [
                    FilterShape::LowPass,
                    FilterShape::HighPass,
                    FilterShape::BandPass,
                    FilterShape::Peak,
                ][given.one_of("shape", &["lowpass", "highpass", "bandpass", "peak"])?],
                freq: given.bounds("freq", [1.0, 384_000.0])?,
                q: given.bounds("q", [0.01, 100.0])?,
                gain_db: given.bounds("gain_db", [-60.0, 60.0])?,
                n: given.number("n", MOST_PARTS as i64)?,
            },
            "Clip" => StepKind::Clip { db: given.bounds("db", [-200.0, 0.0])? },
            "Speed" => StepKind::Speed { factors: given.factors()? },
            "Mix" => {
                let mixing = given.mixing()?;
                source = Some(if mixing.is_own { given.own_rows()? } else { given.source(kind)? });
                StepKind::Mix(mixing)
            }
            "Reverb" => {
                source = Some(given.source(kind)?);
                StepKind::Reverb { clean: given.clean()? }
            }
            "Mixup" => StepKind::Pair(Pairing { exchange: Exchange::Mixup, beta: given.beta()? }),
            "CutMix" => {
                let exchange =
                    [Exchange::CutFrames, Exchange::CutBox][given.one_of("part", &["frames", "box"])?];
                StepKind::Pair(Pairing { exchange, beta: given.beta()? })
            }
            "Remix" => {
                let group = given.number("group", MOST_REMIXED)?;
                if group == 1 {
                    given.problems.push(format!("group is 1, must be 2 to {MOST_REMIXED}"));
                }
                StepKind::Remix { group }
            }
            "SpecAugment" => StepKind::SpecAugment(given.masks()?),
            "Python" => {
                let held = OwnedObject::new(&given.value("function")?)?;
                let step = Arc::new(UserStep::new(&held)?);
                function = Some(held.unbind());
                let on_features = given.one_of("on", &["waveform", "features"])? == 1;
                StepKind::Call(Calling { function: step, on_features })
            }
            "FrameRoll" => StepKind::FrameRoll { shift: given.bounds("shift", SHARES)? },
            "OneOf" => {
                let (steps, group) = given.one_of_steps()?;
                given.check()?;
                return Ok(Self { steps, group: Some(group) });
            }
            "Only" => {
                let steps = given.only_steps()?;
                given.check()?;
                return Ok(Self { steps, group: Some(StepGroup::Only) });
            }
            other => return Err(PyTypeError::new_err(format!("{other} is no step of augmentation"))),
        };
        let p = given.share("p")?;
        given.check()?;
        let step = Step { kind, p, choice: None, only: None };
        Ok(Self { steps: vec![PlannedStep { step, source, function }], group: None })
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.steps.iter().try_for_each(|planned| visit.call(&planned.function))
    }
}

/// The steps of a list of objects of `forebay.augment`, the recordings of each that reads others, and the
/// owners of the functions that they call.
fn steps(given: &Bound<'_, PyAny>) -> Result<(Augment, Vec<Background>, Vec<Opaque>), ArgumentError> {
    let (mut steps, mut sources, mut functions) = (Vec::new(), Vec::new(), Vec::new());
    let mut groups = 0..;
    for (at, step) in items(given)?.ok_or(ArgumentError::Type)?.enumerate() {
        let found = plan_of("augment", at, &step?).map_err(ArgumentError::Raised)?;
        let PyStep { steps: each, group } = found.get();
        let drawn = group.iter().filter_map(|group| match group {
            StepGroup::OneOf { weights, p } => Some((weights, p)),
            StepGroup::Only => None,
        });
        let mut choices =
            drawn.flat_map(|(weights, p)| Choice::of_weights(groups.next().unwrap_or(0), *p, weights));
        for PlannedStep { step, source, function } in each {
            sources.extend(source.clone());
            steps.push(Step { choice: choices.next(), ..step.clone() });
            functions.extend(function.iter().map(|held| {
                let held: Py<PyAny> = held.clone_ref(given.py()).into_any();
                Opaque(Some(Arc::new(held)))
            }));
        }
    }
    Ok((Augment::new(steps), sources, functions))
}

/// The plan of the step at this place of a list.
fn plan_of<'py>(list: &str, at: usize, step: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyStep>> {
    if let Some(plan) = plan::<PyStep>(step)? {
        return Ok(plan);
    }
    let found = step.repr()?;
    let hint = match step.cast::<PyType>().map(|class| class.name()) {
        Ok(Ok(name)) => format!("; make an object of the class: {name}(...)"),
        _ if step.is_callable() => "; Python(function) makes a step of a function".to_owned(),
        _ => String::new(),
    };
    let message = format!("step {at} of {list} is {found}, must be an object of forebay.augment{hint}");
    Err(PyTypeError::new_err(message))
}

impl Argument for AugmentObject {
    const EXPECTED: &'static str =
        "a bool, or a list of objects of forebay.augment, such as [Gain(db=(-6, 6), p=0.5)]";

    fn read(name: &str, given: &Bound<'_, PyAny>, problems: &mut Vec<String>) -> Result<Self, ArgumentError> {
        if given.is_instance_of::<PyBool>() {
            return Ok(Self::Crop(given.extract()?));
        }
        if given.is_instance_of::<PyString>() || given.is_instance_of::<PyDict>() {
            return Err(ArgumentError::Type);
        }
        // An iterator gives its steps once.
        let each = items(given)?.ok_or(ArgumentError::Type)?.collect::<PyResult<Vec<_>>>()?;
        let (augment, sources, functions) = steps(PyList::new(given.py(), &each)?.as_any())?;
        let n = augment.steps().count();
        if n > MOST_STEPS {
            problems.push(format!("{name} has {n} steps, at most {MOST_STEPS} are possible"));
        }
        let mut description = Vec::new();
        for step in each {
            description.push(state::json(&step.call_method0("to_dict")?)?);
        }
        Ok(Self::Steps { description, augment, sources, functions })
    }

    fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Self::Crop(is_random) => is_random.to_python(py),
            Self::Steps { description, augment, .. } => {
                let mut steps = augment.steps();
                let made = description.iter().map(|one| described(py, one, &mut steps));
                Ok(made.collect::<PyResult<Vec<_>>>()?.into_pyobject(py)?.into_any())
            }
        }
    }
}

/// The object of `forebay.augment` that this describes, of the next of the steps; of a group, the next
/// several.
fn described<'py, 's>(
    py: Python<'py>,
    description: &Value,
    steps: &mut impl Iterator<Item = &'s Step>,
) -> PyResult<Bound<'py, PyAny>> {
    if let Some(members) = identity::members(description) {
        let made = members.iter().map(|one| match steps.next() {
            Some(Step { kind: StepKind::Call(calling), p, .. }) => called(py, calling, *p),
            _ => state::made(py, Some(one)),
        });
        let made = made.collect::<PyResult<Vec<_>>>()?;
        let module = py.import("forebay.augment")?;
        if let Some(field) = description["field"].as_str() {
            return module.getattr("Only")?.call1((field, made));
        }
        let fields = json!({"weights": description["weights"], "p": description["p"]});
        let fields = state::to_python(py, &fields)?;
        return module.getattr("OneOf")?.call((made,), Some(&fields));
    }
    match steps.next() {
        Some(Step { kind: StepKind::Call(calling), p, .. }) => called(py, calling, *p),
        _ => state::made(py, Some(description)),
    }
}

/// The object of `forebay.augment` of a step that calls a function.
fn called<'py>(py: Python<'py>, calling: &Calling, p: f64) -> PyResult<Bound<'py, PyAny>> {
    let fields = PyDict::new(py);
    fields.set_item("on", if calling.on_features { "features" } else { "waveform" })?;
    fields.set_item("p", p)?;
    let function = UserStep::of(py, &*calling.function);
    py.import("forebay.augment")?.getattr("Python")?.call((function,), Some(&fields))
}

/// Applies the steps on waveforms to `[channels, n_samples]`.
#[pyfunction]
pub fn _augment_waveform<'py>(
    py: Python<'py>,
    given: &Bound<'py, PyAny>,
    waveform: PyReadonlyArray2<'py, f32>,
    #[pyo3(from_py_with = argument::sample_rate)] sample_rate: i64,
    #[pyo3(from_py_with = argument::seed)] seed: u64,
) -> PyResult<Bound<'py, PyArray2<f32>>> {
    let (augment, _functions) = named_steps(given)?;
    if let Some(problem) = SpectrogramConfig::out_of_range("sample_rate", sample_rate) {
        return Err(to_python(py, &Error::new(ErrorKind::Config, problem)));
    }
    let sample_rate = sample_rate as u32;
    let [channels, n] = [waveform.shape()[0], waveform.shape()[1]];
    let samples = waveform.as_slice()?;
    let work = || -> Result<_> {
        let played = (f64::from(sample_rate) * augment.speed(seed)).round() as u32;
        let new = match played == sample_rate {
            true => n,
            false => target_len(n as u64, played, sample_rate) as usize,
        };
        let mut out = fallible_alloc::filled(new.saturating_mul(channels), 0.0)?;
        if played == sample_rate {
            out.copy_from_slice(samples);
        } else {
            let resampler = Resampler::new(played, sample_rate, Quality::default())?;
            for (from, to) in samples.chunks_exact(n.max(1)).zip(out.chunks_exact_mut(new.max(1))) {
                resampler.resample(from, 0, 0, to)?;
            }
        }
        let mut clips = Clips { samples: &mut out, n: new, valid: 0..new, sample_rate };
        augment.waveforms(seed, &mut clips, &mut AugmentScratch::default(), &mut |_, _, _, _| Ok(()))?;
        Ok((out, new))
    };
    let made = detach(py, || float_mode::lent(work));
    let (values, n) = made.map_err(|error| to_python(py, &error))?;
    let array = numpy::PyArray1::from_vec(py, values);
    numpy::PyArrayMethods::reshape(&array, [channels, n])
}

/// Applies the steps on features, in place, to `[n_bands, n_frames]` or `[n_frames, n_bands]`.
#[pyfunction]
pub fn _augment_features(
    py: Python<'_>,
    given: &Bound<'_, PyAny>,
    mut features: numpy::PyReadwriteArray2<'_, f32>,
    layout: &str,
    silence: Option<Vec<f32>>,
    #[pyo3(from_py_with = argument::seed)] seed: u64,
    n_valid: usize,
) -> PyResult<()> {
    let (augment, _functions) = named_steps(given)?;
    let augment = augment.with_silence(silence.unwrap_or_default());
    let [rows, columns] = [features.shape()[0], features.shape()[1]];
    let layout = Layout::from_name(layout).unwrap_or_default();
    let (n_bands, n_frames) = if layout == Layout::Mel { (rows, columns) } else { (columns, rows) };
    let axis = FrameAxis { layout, n_bands, n_frames, first: 0, n_valid: n_valid.min(n_frames) };
    let values = features.as_slice_mut()?;
    let work = || augment.features(seed, axis, &mut AugmentScratch::default(), ValuesMut::Float32(values));
    let made = detach(py, || float_mode::lent(work));
    made.map_err(|error| to_python(py, &error))
}

/// What steps on features and pairs draw for the examples of a batch, `[batch, numbers]`; see
/// [`Augment::numbers`]. An example has `valid` samples from `first` on in a clip of `n_samples`, and
/// features of `front_end`; those of pairs are of clips of `padded` samples.
#[pyfunction]
#[pyo3(signature = (given, front_end, bits, *, slots, first, valid, n_samples, padded))]
#[expect(clippy::too_many_arguments, reason = "an array for each property of an example")]
pub fn _augment_numbers<'py>(
    py: Python<'py>,
    given: &Bound<'py, PyAny>,
    front_end: &Bound<'py, PyAny>,
    bits: PyReadonlyArray1<'py, i64>,
    slots: PyReadonlyArray1<'py, i64>,
    first: PyReadonlyArray1<'py, i64>,
    valid: PyReadonlyArray1<'py, i64>,
    n_samples: PyReadonlyArray1<'py, i64>,
    padded: usize,
) -> PyResult<Bound<'py, PyArray2<f64>>> {
    let (augment, _, _functions) = steps(given)
        .map_err(|refused| refused.raised("steps", given, "a list of objects of forebay.augment"))?;
    let n_steps = augment.steps().count();
    if n_steps > MOST_STEPS {
        let message = format!("steps has {n_steps} steps, at most {MOST_STEPS} are possible");
        return Err(to_python(py, &Error::new(ErrorKind::Config, message)));
    }
    if let Some(name) = augment.not_on_devices() {
        let message = format!(
            "steps has {name}, must be SpecAugment, FrameRoll, Mixup and CutMix on a device: give {name} to the loader"
        );
        return Err(to_python(py, &Error::new(ErrorKind::Config, message)));
    }
    let features = read_features(front_end)
        .map_err(|refused| refused.raised("front_end", front_end, "an object of forebay.features"))?
        .plan;
    let (bits, first, valid) = (bits.as_slice()?, first.as_slice()?, valid.as_slice()?);
    let (samples, slots) = (n_samples.as_slice()?, slots.as_slice()?);
    // Larger than any clip.
    let natural = |n: i64| n.clamp(0, 1 << 40) as usize;
    let whole = features.whole_axis(padded.min(1 << 40));
    let work = || -> Result<_> {
        let mut examples = fallible_alloc::with_room(bits.len())?;
        for ((((bits, slot), first), valid), n) in bits.iter().zip(slots).zip(first).zip(valid).zip(samples) {
            let n = natural(*n);
            let start = natural(*first).min(n);
            let range = start..n.min(start + natural(*valid));
            let axis = features.axis(&range, n).unwrap_or_else(|| features.whole_axis(n));
            examples.push(Drawing { bits: *bits as u64, axis, slot: natural(*slot) });
        }
        let mut out = fallible_alloc::filled(bits.len() * augment.n_numbers(), 0.0)?;
        augment.numbers(&examples, whole, &mut out);
        Ok((out, augment.n_numbers()))
    };
    let made = detach(py, || float_mode::lent(work));
    let (numbers, width) = made.map_err(|error| to_python(py, &error))?;
    numpy::PyArrayMethods::reshape(&numpy::PyArray1::from_vec(py, numbers), [bits.len(), width])
}

/// The steps of the argument `steps`, and the owners of the functions that they call.
fn named_steps(given: &Bound<'_, PyAny>) -> PyResult<(Augment, Vec<Opaque>)> {
    let (found, _, functions) = steps(given)
        .map_err(|refused| refused.raised("steps", given, "a list of objects of forebay.augment"))?;
    let other = found.readings().next();
    let message = match (found.steps().count(), other) {
        (n, _) if n > MOST_STEPS => format!("steps has {n} steps, at most {MOST_STEPS} are possible"),
        (_, Some((name, _))) => format!("steps has a {name}, which a Loader reads from files; leave it out"),
        _ if found.pairs_examples() || found.remixes().is_some() => {
            "steps has a Mixup, CutMix or Remix, which mixes examples of a Loader's batch; leave it out"
                .to_owned()
        }
        _ => return Ok((found, functions)),
    };
    Err(to_python(given.py(), &Error::new(ErrorKind::Config, message)))
}
