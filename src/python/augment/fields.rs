//! The fields of the objects of `forebay.augment`, one by one.

use pyo3::{
    exceptions::PyTypeError,
    prelude::*,
    types::{PyBool, PyString},
};

use super::{MOST_FRAMES, PlannedStep, PyStep, StepGroup, plan_of};
use crate::python::{
    arguments::{Argument, attempt, items, named},
    recipe_fields::RecipeFields,
};
use crate::{
    compose::source_problems,
    config::{Background, Sources, track_number},
    dsp::augment::{
        BandMasks, Bounds, CleanTarget, Counts, Fill, Loudness, MOST_PARTS, MOST_STEPS, MixLevel, MixTargets,
        Mixing, Only, StepKind, Width,
    },
    error::shown,
};

impl RecipeFields<'_> {
    pub(super) fn member_steps(&mut self) -> PyResult<Vec<PlannedStep>> {
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
                Some(group @ StepGroup::OneOf { .. }) => self.problems.push(format!(
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

    pub(super) fn only_steps(&mut self) -> PyResult<Vec<PlannedStep>> {
        let field: String = self.get("field")?;
        let mut steps = self.member_steps()?;
        for PlannedStep { step, .. } in &mut steps {
            if !step.kind.is_on_waveforms() {
                self.problems.push(format!(
                    "steps has a {}, which changes all waveforms or features of a row; put it beside the Only",
                    step.kind.name()
                ));
            }
            if let StepKind::Level { of: Some(of), .. } = &step.kind {
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
    pub(super) fn one_of_steps(&mut self) -> PyResult<(Vec<PlannedStep>, StepGroup)> {
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
        Ok((steps, StepGroup::OneOf { weights, p: self.share("p")? }))
    }

    /// A number, or the lowest and the highest of a range.
    pub(super) fn bounds(&mut self, name: &str, [least, most]: [f64; 2]) -> PyResult<Bounds> {
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
    pub(super) fn counts(&mut self, name: &str, most: usize) -> PyResult<Counts> {
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
    pub(super) fn gain(&mut self, decibels: [f64; 2]) -> PyResult<StepKind> {
        let is_given = |name: &str| self.value(name).map(|value| !value.is_none());
        match [is_given("db")?, is_given("factor")?] {
            [true, false] => Ok(StepKind::Gain { db: self.bounds("db", decibels)? }),
            [false, true] => Ok(StepKind::Scale { factor: self.bounds("factor", [1e-4, 1e4])? }),
            given => {
                let found = if given[0] { "both db and factor" } else { "neither db nor factor" };
                self.problems.push(format!("Gain has {found}, must have one, as in Gain(factor=(0.125, 2))"));
                Ok(StepKind::Gain { db: Bounds { low: 0.0, high: 0.0 } })
            }
        }
    }

    /// The recordings of a step of this class.
    pub(super) fn source(&mut self, class: &str) -> PyResult<Background> {
        let found: Sources = self.get("source")?;
        if found.names.is_some() {
            let message =
                format!("source is a dict, must be files of one source; give several {class} steps");
            self.problems.push(message);
        }
        self.problems.extend(source_problems("source", &found));
        Ok(Background::Others {
            sources: found,
            audio_column: self.get("audio_column")?,
            track: self.track()?,
        })
    }

    /// The number of the audio track of a source's recordings.
    fn track(&mut self) -> PyResult<Option<u32>> {
        let given: Option<i64> = self.get("track")?;
        track_number(given).or_else(|problem| {
            self.problems.push(problem.message);
            Ok(None)
        })
    }

    /// The loader's own rows, for a Mix.
    pub(super) fn own_rows(&mut self) -> PyResult<Background> {
        for name in ["audio_column", "track"] {
            if !self.value(name)?.is_none() {
                self.problems.push(format!(
                    "{name} is that of source, which is None: the loader's own rows have the loader's"
                ));
            }
        }
        Ok(Background::Own { same_class: self.get("same_class")? })
    }

    pub(super) fn loudness(&mut self, name: &str) -> PyResult<Loudness> {
        Ok([Loudness::Rms, Loudness::Active, Loudness::Clip, Loudness::Lufs]
            [self.one_of(name, &["rms", "active", "clip", "lufs"])?])
    }

    pub(super) fn level(&mut self, decibels: [f64; 2]) -> PyResult<StepKind> {
        let of: Option<String> = self.get("of")?;
        let peak: Option<f64> = self.get("peak")?;
        if let Some(peak) = peak.filter(|peak| !(1e-4..=1e4).contains(peak)) {
            self.problems.push(format!("peak is {peak:?}, must be within 0.0001 to 10000, or None"));
        }
        Ok(StepKind::Level {
            db: self.bounds("db", decibels)?,
            loudness: self.loudness("measure")?,
            of: of.map(|field| Only { field, waveforms: 0..0, of: 1 }),
            peak,
        })
    }

    pub(super) fn mixing(&mut self) -> PyResult<Mixing> {
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
        Ok(Mixing { level, most: self.number("most", 16)?, near, is_own, targets, parts: self.get("parts")? })
    }

    /// The target beside a reverberated clip.
    pub(super) fn clean(&mut self) -> PyResult<Option<CleanTarget>> {
        if self.value("clean")?.is_none() {
            return Ok(None);
        }
        Ok(Some([CleanTarget::Dry, CleanTarget::Early][self.one_of("clean", &["dry", "early"])?]))
    }

    pub(super) fn beta(&mut self) -> PyResult<f64> {
        let beta: f64 = self.get("beta")?;
        if !(0.01..=1000.0).contains(&beta) {
            self.problems.push(format!("beta is {beta:?}, must be 0.01 to 1000"));
        }
        Ok(beta.clamp(0.01, 1000.0))
    }

    pub(super) fn factors(&mut self) -> PyResult<Vec<f64>> {
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

    pub(super) fn masks(&mut self) -> PyResult<BandMasks> {
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
    pub(super) fn frames(&mut self, name: &str) -> PyResult<usize> {
        let n: i64 = self.get(name)?;
        if !(0..=MOST_FRAMES).contains(&n) {
            self.problems.push(format!("{name} is {}, must be 0 to {MOST_FRAMES}", shown(n)));
        }
        Ok(n.clamp(0, MOST_FRAMES) as usize)
    }

    pub(super) fn masks_of(&mut self, name: &str) -> PyResult<usize> {
        let n: i64 = self.get(name)?;
        if !(0..=MOST_PARTS as i64).contains(&n) {
            self.problems.push(format!("{name} is {}, must be 0 to {MOST_PARTS}", shown(n)));
        }
        Ok(n.max(0) as usize)
    }

    /// A whole number of bands or frames, or a share of them.
    pub(super) fn width(&mut self, name: &str) -> PyResult<Width> {
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
