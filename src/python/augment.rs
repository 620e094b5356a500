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
    arguments::{Argument, ArgumentError, argument, attempt, items, named, plan},
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
    compose::{identity, source_problems},
    config::{AugmentObject, Background, Opaque, Sources},
    dtype::ValuesMut,
    error::shown,
    fallible_alloc, float_mode,
    transform::{
        Augment, AugmentScratch, Clips, FrameAxis, Layout, Quality, Resampler, SpectrogramConfig,
        augment::{
            BandMasks, Bounds, Calling, Choice, Counts, Drawing, Exchange, Fill, Kind, Loudness, MOST_PARTS,
            MOST_STEPS, MixLevel, MixTargets, Mixing, Only, Pairing, Shape, Step, Width,
        },
        target_len,
    },
};

/// The most frames or bands of a mask, and of a warp.
const MOST_FRAMES: i64 = 1 << 24;

/// The most rows of a group of a `Remix`.
const MOST_REMIXED: i64 = 1024;

/// A step of augmentation.
#[pyclass(module = "forebay._core", name = "_Step", frozen)]
pub struct PyStep {
    /// One, or those of a group.
    steps: Vec<PlannedStep>,
    group: Option<Group>,
}

/// What several steps have in common.
enum Group {
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

impl Group {
    /// The name of its class.
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
            "SwapChannels" => Kind::SwapChannels,
            "Polarity" => Kind::Polarity,
            "Roll" => Kind::Roll {
                shift: given.bounds("shift", SHARES)?,
                wraps: given.one_of("fill", &["wrap", "zeros"])? == 0,
            },
            "Noise" => Kind::Noise {
                snr_db: given.bounds("snr_db", DB)?,
                slope_db: given.bounds("slope_db", [-12.0, 12.0])?,
                loudness: given.loudness("level")?,
            },
            "Dither" => Kind::Dither { amount: given.bounds("amount", [0.0, 1.0])? },
            "DropFreq" => Kind::DropFreq {
                freq: given.bounds("freq", [0.0, 1.0])?,
                width: given.bounds("width", [0.001, 0.25])?,
                n: given.counts("n", MOST_PARTS / 2)?,
            },
            "DropChunk" => Kind::DropChunk {
                length_ms: given.bounds("length_ms", [0.0, 60_000.0])?,
                n: given.counts("n", MOST_PARTS)?,
                noise_factor: given.bounds("noise_factor", [0.0, 100.0])?,
            },
            "Filter" => Kind::Filter {
                shape: [Shape::LowPass, Shape::HighPass, Shape::BandPass, Shape::Peak]
                    [given.one_of("shape", &["lowpass", "highpass", "bandpass", "peak"])?],
                freq: given.bounds("freq", [1.0, 384_000.0])?,
                q: given.bounds("q", [0.01, 100.0])?,
                gain_db: given.bounds("gain_db", [-60.0, 60.0])?,
                n: given.number("n", MOST_PARTS as i64)?,
            },
            "Clip" => Kind::Clip { db: given.bounds("db", [-200.0, 0.0])? },
            "Speed" => Kind::Speed { factors: given.factors()? },
            "Mix" => {
                let mixing = given.mixing()?;
                source = Some(if mixing.is_own { given.own_rows()? } else { given.source(kind)? });
                Kind::Mix(mixing)
            }
            "Reverb" => {
                source = Some(given.source(kind)?);
                Kind::Reverb
            }
            "Mixup" => Kind::Pair(Pairing { exchange: Exchange::Mixup, beta: given.beta()? }),
            "CutMix" => {
                let exchange =
                    [Exchange::CutFrames, Exchange::CutBox][given.one_of("part", &["frames", "box"])?];
                Kind::Pair(Pairing { exchange, beta: given.beta()? })
            }
            "Remix" => {
                let group = given.number("group", MOST_REMIXED)?;
                if group == 1 {
                    given.problems.push(format!("group is 1, must be 2 to {MOST_REMIXED}"));
                }
                Kind::Remix { group }
            }
            "SpecAugment" => Kind::SpecAugment(given.masks()?),
            "Python" => {
                let held = OwnedObject::new(&given.value("function")?)?;
                let step = Arc::new(UserStep::new(&held)?);
                function = Some(held.unbind());
                let on_features = given.one_of("on", &["waveform", "features"])? == 1;
                Kind::Call(Calling { function: step, on_features })
            }
            "FrameRoll" => Kind::FrameRoll { shift: given.bounds("shift", SHARES)? },
            "OneOf" => {
                let (steps, group) = given.one_of_steps()?;
                given.check()?;
                return Ok(Self { steps, group: Some(group) });
            }
            "Only" => {
                let steps = given.only_steps()?;
                given.check()?;
                return Ok(Self { steps, group: Some(Group::Only) });
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

impl RecipeFields<'_> {
    /// The steps of a group.
    fn member_steps(&mut self) -> PyResult<Vec<PlannedStep>> {
        let (given, py) = (self.value("steps")?, self.py());
        let each = items(&given)?.ok_or_else(|| {
            PyTypeError::new_err("steps must be a list of objects of forebay.augment, as in [Gain(), Clip()]")
        })?;
        let mut steps = Vec::new();
        for (at, step) in each.enumerate() {
            let step = step?;
            let found = plan_of("steps", at, &step)?;
            let PyStep { steps: one, group } = found.get();
            match group {
                Some(group @ Group::OneOf { .. }) => self.problems.push(format!(
                    "steps has a {} at position {at}, must have other steps: put its steps into this one, with weights",
                    group.name()
                )),
                Some(group) => self.problems.push(format!(
                    "steps has an {} at position {at}, must have other steps; an Only stands in the list of augment",
                    group.name()
                )),
                None => {}
            }
            // bounded: as many as were given.
            steps.extend(one.iter().map(|one| one.clone_ref(py)));
        }
        if !(1..=MOST_STEPS).contains(&steps.len()) && self.problems.is_empty() {
            self.problems.push(format!("steps has {} steps, must have 1 to {MOST_STEPS}", steps.len()));
        }
        Ok(steps)
    }

    /// The steps of an `Only`.
    fn only_steps(&mut self) -> PyResult<Vec<PlannedStep>> {
        let field: String = self.get("field")?;
        let mut steps = self.member_steps()?;
        for PlannedStep { step, .. } in &mut steps {
            if !step.kind.is_on_waveforms() {
                self.problems.push(format!(
                    "steps has a {}, which changes all waveforms or features of a row; put it beside the Only",
                    step.kind.name()
                ));
            }
            if let Kind::Level { of: Some(of), .. } = &step.kind {
                self.problems.push(format!(
                    "steps has a Level of {:?}, must be without of: here it sets the level of {field:?}",
                    of.field
                ));
            }
            step.only = Some(Only { field: field.clone(), waveforms: 0..0, of: 1 });
        }
        Ok(steps)
    }

    /// The steps of a `OneOf`, and how one of them is drawn.
    fn one_of_steps(&mut self) -> PyResult<(Vec<PlannedStep>, Group)> {
        let steps = self.member_steps()?;
        let weights = self.value("weights")?;
        let weights = match weights.is_none() {
            true => steps.iter().map(|_| 1.0).collect(),
            false => {
                weights.try_iter()?.map(|one| named("weights", &one?)).collect::<PyResult<Vec<f64>>>()?
            }
        };
        if weights.len() != steps.len() && self.problems.is_empty() {
            self.problems.push(format!(
                "weights has {} numbers, must have one for each of {} steps",
                weights.len(),
                steps.len()
            ));
        }
        if let Some(wrong) = weights.iter().find(|weight| !(1e-9..=1e9).contains(*weight)) {
            self.problems.push(format!("weights has {wrong:?}, must be 1e-9 to 1e9"));
        }
        Ok((steps, Group::OneOf { weights, p: self.share("p")? }))
    }

    /// A number, or the lowest and the highest of a range.
    fn bounds(&mut self, name: &str, [least, most]: [f64; 2]) -> PyResult<Bounds> {
        let value = self.value(name)?;
        let [low, high]: [f64; 2] = pair_of(name, &value, "number")?;
        let allowed = least..=most; // NaN is in no range
        if !(allowed.contains(&low) && allowed.contains(&high)) {
            self.problems.push(format!("{name} is {}, must be within {least} to {most}", value.repr()?));
        } else if low > high {
            self.problems.push(format!(
                "{name} is ({low:?}, {high:?}), must be (low, high), as in ({high:?}, {low:?})"
            ));
        }
        Ok(Bounds { low, high })
    }

    /// A whole number up to `most`, or the lowest and the highest of a range.
    fn counts(&mut self, name: &str, most: usize) -> PyResult<Counts> {
        let value = self.value(name)?;
        let given: [i64; 2] = pair_of(name, &value, "whole number")?;
        let [low, high] = given.map(|one| one.clamp(0, most as i64) as usize);
        if given != [low as i64, high as i64] {
            self.problems.push(format!("{name} is {}, must be within 0 to {most}", value.repr()?));
        } else if low > high {
            self.problems
                .push(format!("{name} is ({low}, {high}), must be (low, high), as in ({high}, {low})"));
        }
        Ok(Counts { low: low.min(high), high })
    }

    /// A `Gain`, by decibels or by a factor.
    fn gain(&mut self, decibels: [f64; 2]) -> PyResult<Kind> {
        let is_given = |name: &str| self.value(name).map(|value| !value.is_none());
        match [is_given("db")?, is_given("factor")?] {
            [true, false] => Ok(Kind::Gain { db: self.bounds("db", decibels)? }),
            [false, true] => Ok(Kind::Scale { factor: self.bounds("factor", [1e-4, 1e4])? }),
            given => {
                let found = if given[0] { "both db and factor" } else { "neither db nor factor" };
                self.problems.push(format!("Gain has {found}, must have one, as in Gain(factor=(0.125, 2))"));
                Ok(Kind::Gain { db: Bounds { low: 0.0, high: 0.0 } })
            }
        }
    }

    /// The recordings of a step of this class.
    fn source(&mut self, class: &str) -> PyResult<Background> {
        let found: Sources = self.get("source")?;
        if found.names.is_some() {
            let message =
                format!("source is a dict, must be files of one source; give several {class} steps");
            self.problems.push(message);
        }
        self.problems.extend(source_problems("source", &found));
        Ok(Background::Others { sources: found, audio_column: self.get("audio_column")? })
    }

    /// The loader's own rows, for a Mix.
    fn own_rows(&mut self) -> PyResult<Background> {
        if !self.value("audio_column")?.is_none() {
            self.problems.push(
                "audio_column is that of source, which is None: the loader's own rows have the loader's"
                    .to_owned(),
            );
        }
        Ok(Background::Own { same_class: self.get("same_class")? })
    }

    fn loudness(&mut self, name: &str) -> PyResult<Loudness> {
        Ok([Loudness::Rms, Loudness::Active, Loudness::Clip, Loudness::Lufs]
            [self.one_of(name, &["rms", "active", "clip", "lufs"])?])
    }

    /// A `Level`.
    fn level(&mut self, decibels: [f64; 2]) -> PyResult<Kind> {
        let of: Option<String> = self.get("of")?;
        let peak: Option<f64> = self.get("peak")?;
        if let Some(peak) = peak.filter(|peak| !(1e-4..=1e4).contains(peak)) {
            self.problems.push(format!("peak is {peak:?}, must be within 0.0001 to 10000, or None"));
        }
        Ok(Kind::Level {
            db: self.bounds("db", decibels)?,
            loudness: self.loudness("measure")?,
            of: of.map(|field| Only { field, waveforms: 0..0, of: 1 }),
            peak,
        })
    }

    fn mixing(&mut self) -> PyResult<Mixing> {
        let loudness = self.loudness("level")?;
        let is_given = |name: &str| self.value(name).map(|value| !value.is_none());
        let level = match [is_given("snr_db")?, is_given("weight")?, is_given("beta")?] {
            [true, false, false] => MixLevel::Snr { db: self.bounds("snr_db", [-200.0, 200.0])?, loudness },
            [false, true, false] => MixLevel::Weight(self.bounds("weight", [0.0, 1.0])?),
            [false, false, true] => MixLevel::Beta(self.beta()?),
            given => {
                let n = given.iter().filter(|given| **given).count();
                self.problems.push(format!(
                    "Mix has {n} of snr_db, weight and beta, must have one of them, as in Mix(source, snr_db=(3, 30))"
                ));
                MixLevel::Beta(1.0)
            }
        };
        let targets = [MixTargets::Keep, MixTargets::Union, MixTargets::Sum, MixTargets::Mix]
            [self.one_of("targets", &["keep", "union", "sum", "mix"])?];
        let is_own = self.value("source")?.is_none();
        if !is_own && targets != MixTargets::Keep {
            self.problems.push(
                "targets are mixed with those of the loader's own rows only; with a source give targets=\"keep\"".to_owned(),
            );
        }
        if !(is_own || self.value("same_class")?.is_none()) {
            self.problems.push(
                "same_class is a column of the loader's own rows, and source is given; leave one of them out"
                    .to_owned(),
            );
        }
        let near = self.count("near", 1 << 40)?.map(|near| near as u64);
        Ok(Mixing { level, most: self.number("most", 16)?, near, is_own, targets })
    }

    fn beta(&mut self) -> PyResult<f64> {
        let beta: f64 = self.get("beta")?;
        if !(0.01..=1000.0).contains(&beta) {
            self.problems.push(format!("beta is {beta:?}, must be 0.01 to 1000"));
        }
        Ok(beta.clamp(0.01, 1000.0))
    }

    fn factors(&mut self) -> PyResult<Vec<f64>> {
        let value = self.value("factors")?;
        let each = value.try_iter()?.map(|one| named("factors", &one?)).collect::<PyResult<Vec<f64>>>()?;
        if each.is_empty() || each.len() > MOST_PARTS {
            self.problems.push(format!("factors has {} numbers, must have 1 to {MOST_PARTS}", each.len()));
        }
        if let Some(wrong) = each.iter().find(|factor| !(0.25..=4.0).contains(*factor)) {
            self.problems.push(format!("factors has {wrong:?}, must be 0.25 to 4"));
        }
        Ok(each)
    }

    fn masks(&mut self) -> PyResult<BandMasks> {
        let fill = match self.choice_or_float("fill", &["mean", "minimum", "silence"])? {
            Ok(choice) => [Fill::Mean, Fill::Minimum, Fill::Silence][choice],
            Err(number) => {
                if !number.is_finite() {
                    self.problems.push(format!("fill is {number:?}, must be finite"));
                }
                Fill::Number(number)
            }
        };
        Ok(BandMasks {
            freq: self.width("freq")?,
            n_freq: self.masks_of("n_freq")?,
            time: self.width("time")?,
            n_time: self.masks_of("n_time")?,
            fill,
            pads: self.one_of("frames", &["valid", "all"])? == 1,
            warp: self.frames("warp")?,
            max_share: match self.get::<Option<f64>>("max_share")? {
                None => None,
                Some(_) => Some(self.share("max_share")?),
            },
        })
    }

    /// A whole number of frames.
    fn frames(&mut self, name: &str) -> PyResult<usize> {
        let n: i64 = self.get(name)?;
        if !(0..=MOST_FRAMES).contains(&n) {
            self.problems.push(format!("{name} is {}, must be 0 to {MOST_FRAMES}", shown(n)));
        }
        Ok(n.clamp(0, MOST_FRAMES) as usize)
    }

    fn masks_of(&mut self, name: &str) -> PyResult<usize> {
        let n: i64 = self.get(name)?;
        if !(0..=MOST_PARTS as i64).contains(&n) {
            self.problems.push(format!("{name} is {}, must be 0 to {MOST_PARTS}", shown(n)));
        }
        Ok(n.max(0) as usize)
    }

    /// A whole number of bands or frames, or a share of them.
    fn width(&mut self, name: &str) -> PyResult<Width> {
        let value = self.value(name)?;
        let is_whole = !value.is_instance_of::<PyBool>() && value.hasattr("__index__")?;
        if is_whole {
            return self.frames(name).map(Width::Count);
        }
        let share: f64 = named(name, &value)?;
        if !(0.0..=1.0).contains(&share) {
            self.problems.push(format!(
                "{name} is {share:?}, must be a whole number of bands or frames, or a share of them from 0.0 to 1.0"
            ));
        }
        Ok(Width::Share(share))
    }
}

/// A value, or the two of a pair, each a `what`.
fn pair_of<T: Argument + Copy>(name: &str, value: &Bound<'_, PyAny>, what: &str) -> PyResult<[T; 2]> {
    match attempt(value.py(), value.len())? {
        Some(2) if !value.is_instance_of::<PyString>() => {
            Ok([named(name, &value.get_item(0)?)?, named(name, &value.get_item(1)?)?])
        }
        Some(_) => {
            let message = format!("{name} is {}, must be a {what} or a pair, (low, high)", value.repr()?);
            Err(PyTypeError::new_err(message))
        }
        None => {
            let number = named(name, value)?;
            Ok([number, number])
        }
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
            Group::OneOf { weights, p } => Some((weights, p)),
            Group::Only => None,
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
            Some(Step { kind: Kind::Call(calling), p, .. }) => called(py, calling, *p),
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
        Some(Step { kind: Kind::Call(calling), p, .. }) => called(py, calling, *p),
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
        augment.waveforms(seed, &mut clips, &mut AugmentScratch::default(), &mut |_, _, _| Ok(()))?;
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
#[pyo3(signature = (given, front_end, bits, *, first, valid, n_samples, padded))]
#[expect(clippy::too_many_arguments, reason = "an array for each property of an example")]
pub fn _augment_numbers<'py>(
    py: Python<'py>,
    given: &Bound<'py, PyAny>,
    front_end: &Bound<'py, PyAny>,
    bits: PyReadonlyArray1<'py, i64>,
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
    let samples = n_samples.as_slice()?;
    // Larger than any clip.
    let natural = |n: i64| n.clamp(0, 1 << 40) as usize;
    let whole = features.whole_axis(padded.min(1 << 40));
    let work = || -> Result<_> {
        let mut examples = fallible_alloc::with_room(bits.len())?;
        for (((bits, first), valid), n) in bits.iter().zip(first).zip(valid).zip(samples) {
            let n = natural(*n);
            let start = natural(*first).min(n);
            let range = start..n.min(start + natural(*valid));
            let axis = features.axis(&range, n).unwrap_or_else(|| features.whole_axis(n));
            examples.push(Drawing { bits: *bits as u64, axis });
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
