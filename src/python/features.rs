//! The objects of `forebay.features`, planned: from the values of their fields to [`Features`].

use std::ops::Range;

use numpy::{IntoPyArray, PyArray1, PyReadonlyArrayDyn, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::{
    exceptions::{PyTypeError, PyValueError},
    prelude::*,
    types::{PyDict, PyString},
};

use super::{
    arguments::{Argument, ArgumentError, argument, attempt, is_mapping, named, plan},
    ending::detach,
    errors::to_python,
    interruptible::run_interruptible,
    recipe_fields::RecipeFields,
    spectrogram, state,
};
use crate::{
    Result,
    config::FeatureObject,
    dsp::{
        FeatureScratch, Features, FrontEnd, FrontEndConfig, Kaldi, KeptChannels, Layout, MelScale, Pad,
        SpectrogramConfig, WindowFunction,
        features::MOST_CHANNELS,
        front_end::{Cepstrum, Conditioning, Normalization, PadValue, SpectrumCompression, WaveformLevel},
    },
    dtype::{Dtype, Typed, Values, ValuesMut},
    error::shown,
    float_mode, fork_lock, parallel,
};

/// The plan of an object of `forebay.features`.
#[pyclass(module = "forebay._core", name = "_FrontEnd", frozen)]
pub struct PyFrontEnd {
    plan: Features,
    /// Working memory of calls that ended.
    resting: fork_lock::Mutex<Vec<FeatureScratch>>,
}

/// The most samples of a call that starts no threads.
const ALONE: usize = 1 << 20;

/// The most pieces of working memory that are kept.
const RESTING: usize = 4;

impl PyFrontEnd {
    pub fn plan(&self) -> &Features {
        &self.plan
    }

    /// The features of `n` waveforms, on this thread.
    fn alone(&self, waveforms: &[f32], n: usize, n_samples: usize) -> Result<Values> {
        let resting = || fork_lock::lock(&self.resting);
        let taken = resting()?.pop();
        let mut scratch = taken.unwrap_or_else(|| self.plan.scratch());
        let mut values = self.plan.dtype().zeros(n.saturating_mul(len_of(&self.plan, n_samples)))?;
        let made = work(&self.plan, waveforms, 0..n, n_samples, &mut scratch, values.as_mut());
        let mut resting = resting()?;
        if resting.len() < RESTING {
            resting.push(scratch);
        }
        made.map(|()| values)
    }
}

/// Values of the features of one waveform.
fn len_of(plan: &Features, n_samples: usize) -> usize {
    plan.channel_shape(n_samples).iter().fold(1, |len, &axis| len.saturating_mul(axis))
}

/// Writes the features of some of the waveforms one after the other.
fn work(
    plan: &Features,
    waveforms: &[f32],
    numbers: Range<usize>,
    n_samples: usize,
    scratch: &mut FeatureScratch,
    mut out: ValuesMut<'_>,
) -> Result<()> {
    float_mode::lent(|| {
        let len = len_of(plan, n_samples);
        for (at, number) in numbers.enumerate() {
            let waveform = &waveforms[number * n_samples..(number + 1) * n_samples];
            plan.transform(waveform, 0..n_samples, scratch, out.part(at * len..(at + 1) * len))?;
        }
        Ok(())
    })
}

/// The features of `n` waveforms, a share of them on each core.
fn on_all_cores(plan: &Features, waveforms: &[f32], n: usize, n_samples: usize) -> Result<Values> {
    let len = len_of(plan, n_samples);
    let mut values = plan.dtype().zeros(n.saturating_mul(len))?;
    let share = n.div_ceil(super::_cores().max(1)).max(1);
    let mut rest = values.as_mut();
    // bounded: one for each core.
    let mut shares = Vec::new();
    for first in (0..n).step_by(share) {
        let numbers = first..n.min(first + share);
        let (out, others) = rest.split_at(numbers.len() * len);
        rest = others;
        shares.push((numbers, out));
    }
    let n_threads = shares.len();
    parallel::each("forebay-features", shares, n_threads, |(numbers, out)| {
        work(plan, waveforms, numbers, n_samples, &mut plan.scratch(), out)
    })?;
    Ok(values)
}

#[pymethods]
impl PyFrontEnd {
    /// Plans the features of class `kind` with the values of its fields.
    #[new]
    fn new(kind: &str, fields: &Bound<'_, PyDict>) -> PyResult<Self> {
        let py = fields.py();
        let mut given = RecipeFields::new(fields.clone());
        let sample_rate = given.whole("sample_rate")?.unwrap_or(1) as u32;
        let channels = given.channels()?;
        let made = match kind {
            "Waveform" => {
                let (conditioning, dtype) = (given.conditioning()?, given.dtype(&Dtype::ALL)?);
                given.problems.extend(conditioning.problems());
                Ok(Features::waveform(sample_rate, conditioning, dtype, channels))
            }
            _ => {
                let config = given.front_end(kind, sample_rate)?;
                let keeps_empty =
                    given.has("empty_bands")? && given.one_of("empty_bands", &["error", "keep"])? == 1;
                // A value that was replaced may make bands empty.
                let may_be_empty = keeps_empty || !given.problems.is_empty();
                detach(py, || {
                    float_mode::lent(|| {
                        FrontEnd::new(config, may_be_empty).map(|plan| Features::bands(plan, channels))
                    })
                })
            }
        };
        given.problems.extend(made.as_ref().err().map(|error| error.message.clone()));
        given.check()?;
        let plan = made.map_err(|error| to_python(py, &error))?;
        Ok(Self { plan, resting: fork_lock::Mutex::default() })
    }

    /// Checks a compression or normalization, given as `to_dict()` of its object.
    #[staticmethod]
    fn check_part(fields: &Bound<'_, PyDict>) -> PyResult<()> {
        let mut part = RecipeFields::new(fields.clone());
        let of_values = match &*part.get::<String>("type")? {
            "Standard" | "MinMax" | "ZScore" => part.normalization()?.problems(),
            _ => part.compression()?.problems(),
        };
        part.problems.extend(of_values);
        part.check()
    }

    /// The shape of the features of a waveform of `n_samples`.
    fn shape(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = argument::n_samples)] n_samples: i64,
    ) -> PyResult<Vec<usize>> {
        Ok(self.plan.shape(spectrogram::n_samples(py, n_samples)?).to_vec())
    }

    /// The features of one waveform `[n_samples]` or of several, `[batch, n_samples]`, on all cores; with an
    /// axis of channels before the samples, if they are kept apart.
    fn transform<'py>(&self, py: Python<'py>, waveform: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let array = samples(waveform, self.plan.channels())?;
        let shape = array.shape().to_vec();
        let n_samples = shape[shape.len() - 1];
        let mut out_shape: Vec<usize> = shape[..shape.len() - 1].to_vec();
        let one = self.plan.channel_shape(n_samples);
        out_shape.extend(&one);
        let n = shape[..shape.len() - 1].iter().product::<usize>();
        let waveforms = array.as_slice()?;
        let values = match waveforms.len() <= ALONE {
            true => {
                detach(py, || self.alone(waveforms, n, n_samples)).map_err(|error| to_python(py, &error))?
            }
            false => {
                let (plan, waveforms) = (self.plan.clone(), waveforms.to_vec());
                run_interruptible(py, "forebay-features", move || {
                    on_all_cores(&plan, &waveforms, n, n_samples)
                })?
            }
        };
        let array = match values {
            Typed::Float32(values) => values.into_pyarray(py).into_any(),
            Typed::Float16(values) => values.into_pyarray(py).into_any(),
            // numpy has no bfloat16: its bits, as in batches.
            Typed::Bfloat16(values) => {
                PyArray1::from_iter(py, values.into_iter().map(half::bf16::to_bits)).into_any()
            }
            Typed::Int16(values) => values.into_pyarray(py).into_any(),
        };
        array.call_method1("reshape", (out_shape,))
    }

    /// Samples per second of the waveforms.
    #[getter]
    fn sample_rate(&self) -> u32 {
        self.plan.sample_rate()
    }
}

pub fn read_features(object: &Bound<'_, PyAny>) -> Result<FeatureObject, ArgumentError> {
    let plan = plan::<PyFrontEnd>(object)?.ok_or(ArgumentError::Type)?.get().plan().clone();
    let description = state::json(&object.call_method0("to_dict")?)?;
    Ok(FeatureObject { description, plan })
}

impl Argument for Option<FeatureObject> {
    const EXPECTED: &'static str = "an object of forebay.features, or the name of a preset";
    const IS_OPTIONAL: bool = true;

    fn read(name: &str, given: &Bound<'_, PyAny>, problems: &mut Vec<String>) -> Result<Self, ArgumentError> {
        if given.is_none() {
            return Ok(None);
        }
        let py = given.py();
        let object = match given.cast::<PyString>() {
            Ok(preset) => match py.import("forebay.features")?.call_method1("preset", (preset,)) {
                Err(error) if error.is_instance_of::<PyValueError>(py) => {
                    problems.push(format!("{name}: {}", error.value(py)));
                    return Ok(None);
                }
                object => object?,
            },
            Err(_) => given.clone(),
        };
        read_features(&object).map(Some)
    }

    fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        state::made(py, self.as_ref().map(|object| &object.description))
    }
}

/// The samples of one or several waveforms, without conversion.
fn samples<'py>(
    waveform: &Bound<'py, PyAny>,
    channels: KeptChannels,
) -> PyResult<PyReadonlyArrayDyn<'py, f32>> {
    let (n_axes, one) = match channels {
        KeptChannels::All(_) => (2, "channels, n_samples"),
        KeptChannels::Mean | KeptChannels::One(_) => (1, "n_samples"),
    };
    let wrong = |found: String| {
        PyTypeError::new_err(format!(
            "waveform is {found}, must be a C-contiguous numpy array of float32 and shape [{one}] or [batch, {one}]; \
             numpy.ascontiguousarray(waveform, numpy.float32) makes one"
        ))
    };
    let Ok(array) = waveform.cast::<PyUntypedArray>() else {
        return Err(wrong(format!("of type {}", waveform.get_type().name()?)));
    };
    let found = format!("an array of {} and shape {:?}", array.dtype(), array.shape());
    let Ok(samples) = waveform.extract::<PyReadonlyArrayDyn<'py, f32>>() else { return Err(wrong(found)) };
    // A slice may be of memory in Fortran's order.
    let fits = (n_axes..=n_axes + 1).contains(&samples.shape().len());
    if samples.as_slice().is_err() || !samples.is_c_contiguous() || !fits {
        return Err(wrong(found));
    }
    if let KeptChannels::All(Some(n)) = channels
        && samples.shape()[samples.shape().len() - 2] != n
    {
        return Err(wrong(format!("{found}, and n_channels is {n}")));
    }
    Ok(samples)
}

impl RecipeFields<'_> {
    fn dtype(&mut self, allowed: &[Dtype]) -> PyResult<Dtype> {
        let names: Vec<_> = allowed.iter().map(|dtype| dtype.name()).collect();
        Ok(allowed[self.one_of("dtype", &names)?])
    }

    fn channels(&mut self) -> PyResult<KeptChannels> {
        let n = self.count("n_channels", MOST_CHANNELS as i64)?;
        let channels = self.value("channels")?;
        let found = match channels.extract::<String>() {
            Ok(_) => [KeptChannels::Mean, KeptChannels::All(n)][self.one_of("channels", &["mean", "all"])?],
            Err(_) => {
                let channel: i64 = named("channels", &channels)?;
                if !(0..MOST_CHANNELS as i64).contains(&channel) {
                    let most = MOST_CHANNELS - 1;
                    self.problems.push(format!(
                        "channels is {}, must be \"mean\", \"all\" or a channel, 0 to {most}",
                        shown(channel)
                    ));
                }
                KeptChannels::One(channel.max(0) as usize)
            }
        };
        if n.is_some() && !matches!(found, KeptChannels::All(_)) {
            self.problems.push("n_channels is for channels=\"all\"; leave it out".to_owned());
        }
        Ok(found)
    }

    /// A number of the spectrogram, or None; a value out of range is reported and replaced by one that causes
    /// no other problem.
    fn whole(&mut self, name: &str) -> PyResult<Option<usize>> {
        let Some(value) = self.get::<Option<i64>>(name)? else { return Ok(None) };
        let problem = SpectrogramConfig::out_of_range(name, value);
        let instead = match name {
            "sample_rate" => 768_000,
            "n_fft" => 65_536,
            _ => 1,
        };
        let found = if problem.is_none() { value as usize } else { instead };
        self.problems.extend(problem);
        Ok(Some(found))
    }

    fn conditioning(&mut self) -> PyResult<Conditioning> {
        let mut found = Conditioning {
            remove_mean: self.get("remove_mean")?,
            scale: self.float("scale")?,
            ..Conditioning::default()
        };
        let peak = WaveformLevel::Peak(self.float("peak")?);
        if self.get::<Option<String>>("normalize_waveform")?.is_some() {
            found.level =
                [peak, WaveformLevel::ZScore][self.one_of("normalize_waveform", &["peak", "zscore"])?];
        }
        // A peak that is not used is checked too.
        self.problems.extend(peak.problem().filter(|_| found.level != peak));
        Ok(found)
    }

    fn front_end(&mut self, kind: &str, sample_rate: u32) -> PyResult<FrontEndConfig> {
        let mut conditioning = self.conditioning()?;
        let (n_fft, win_length) = (self.whole("n_fft")?, self.whole("win_length")?);
        let n_fft = n_fft.unwrap_or_else(|| win_length.unwrap_or(400).next_power_of_two().max(2));
        let preemphasis = self.float("preemphasis")?;
        let mut spectrogram = SpectrogramConfig {
            sample_rate,
            n_fft,
            win_length,
            hop_length: self.whole("hop_length")?.unwrap_or(1),
            power: self.float("power")?,
            window: WindowFunction::ALL
                [self.one_of("window", &WindowFunction::ALL.map(WindowFunction::name))?],
            mel_scale: None,
            ..SpectrogramConfig::default()
        };
        if kind == "Fbank" {
            spectrogram.kaldi = Some(Kaldi {
                snip_edges: self.get("snip_edges")?,
                remove_dc: self.get("remove_dc")?,
                preemphasis,
            });
        } else {
            conditioning.preemphasis = preemphasis;
            conditioning.drops_first = self.one_of("preemphasis_start", &["keep", "drop"])? == 1;
            spectrogram.center = self.get("center")?;
            spectrogram.drop_last = self.get("drop_last")?;
            spectrogram.pad =
                [Pad::Reflect, Pad::Constant][self.one_of("pad_mode", &["reflect", "constant"])?];
        }
        if self.has("n_mels")? {
            spectrogram.mel_scale =
                Some(MelScale::ALL[self.one_of("mel_scale", &MelScale::ALL.map(MelScale::name))?]);
            spectrogram.n_mels = self.whole("n_mels")?.unwrap_or(1);
            (spectrogram.f_min, spectrogram.f_max) = self.edges(f64::from(sample_rate) / 2.0)?;
            spectrogram.has_unit_area = match self.get::<Option<String>>("norm")? {
                None => false,
                Some(_) => self.one_of("norm", &["slaney"])? == 0,
            };
        }
        let cepstrum = match kind {
            "MFCC" => Some(Cepstrum {
                n_mfcc: self.count("n_mfcc", 4096)?.unwrap_or(1),
                is_ortho: match self.get::<Option<String>>("dct_norm")? {
                    None => false,
                    Some(_) => self.one_of("dct_norm", &["ortho"])? == 0,
                },
                lifter: self.get("lifter")?,
            }),
            _ => None,
        };
        let fill = match self.choice_or_float("fill", &["silence", "minimum"])? {
            Ok(choice) => [PadValue::Silence, PadValue::Minimum][choice],
            Err(number) => PadValue::Number(number),
        };
        let layout = [Layout::Mel, Layout::Time];
        let names = layout.map(Layout::name);
        let mut normalization = Normalization::None;
        if let Some(mut part) = self.part("normalization")?
            // A number of bands that is wrong would be compared with the means.
            && self.problems.is_empty()
        {
            normalization = part.normalization()?;
        }
        let compression = self.part("compression")?.map(|mut part| part.compression()).transpose()?;
        Ok(FrontEndConfig {
            conditioning,
            spectrogram,
            compression: compression.unwrap_or(SpectrumCompression::None),
            cepstrum,
            fill,
            normalization,
            form: crate::dsp::Form {
                dtype: self.dtype(&Dtype::FLOATS)?,
                layout: layout[self.one_of("layout", &names)?],
                n_frames: self.count("n_frames", 1 << 24)?,
            },
        })
    }

    /// The lower edge of the lowest band and the upper edge of the highest one; `half` is half the sample
    /// rate. As in Kaldi, an upper edge of 0 and below counts from there.
    fn edges(&mut self, half: f64) -> PyResult<(f64, Option<f64>)> {
        let (f_min, given) = (self.get::<f64>("f_min")?, self.get::<Option<f64>>("f_max")?);
        let f_max = given.map_or(half, |f_max| if f_max <= 0.0 { half + f_max } else { f_max });
        if !(f_max > 0.0 && f_max <= half) {
            self.problems.push(format!(
                "f_max is {:?}, must be above 0 and at most half the sample rate, {half:?}; 0 and below count from \
                 there",
                given.unwrap_or(half)
            ));
            return Ok((0.0, None));
        }
        if !(f_min >= 0.0 && f_min < f_max) {
            self.problems.push(format!("f_min is {f_min:?}, must be 0 or more and below f_max, {f_max:?}"));
            return Ok((0.0, None));
        }
        Ok((f_min, given.map(|_| f_max)))
    }

    /// The fields of the object in field `name`; None if the field is None.
    fn part(&self, name: &str) -> PyResult<Option<Self>> {
        let value = self.value(name)?;
        if value.is_none() {
            return Ok(None);
        }
        Ok(Some(RecipeFields::new(value.cast_into()?)))
    }

    fn compression(&mut self) -> PyResult<SpectrumCompression> {
        Ok(match &*self.get::<String>("type")? {
            "Log10" => {
                SpectrumCompression::Log10 { floor: self.float("floor")?, range: self.optional("range")? }
            }
            "Decibel" => SpectrumCompression::Decibel {
                reference: self.choice_or_float("reference", &["max"])?.err(),
                amin: self.float("amin")?,
                top_db: self.optional("top_db")?,
            },
            "PCEN" => SpectrumCompression::Pcen {
                smooth: self.float("smooth")?,
                gain: self.float("gain")?,
                bias: self.float("bias")?,
                root: self.float("root")?,
                eps: self.float("eps")?,
                initial: self.optional("initial")?,
            },
            _ => {
                let floor = SpectrumCompression::LnFloor(self.float("floor")?);
                let Some(eps) = self.optional("eps")? else { return Ok(floor) };
                // A floor that is not used is checked too.
                self.problems.extend(floor.problems());
                SpectrumCompression::LnPlus(eps)
            }
        })
    }

    fn normalization(&mut self) -> PyResult<Normalization> {
        Ok(match &*self.get::<String>("type")? {
            "Standard" => Normalization::Standard {
                mean: self.numbers("mean")?,
                std: self.numbers("std")?,
                factor: self.get("factor")?,
            },
            "MinMax" => Normalization::MinMax,
            _ => {
                let ddof = self.get("ddof")?;
                let problem = Normalization::wrong_ddof(ddof);
                let fine = if problem.is_none() { ddof as u8 } else { 0 };
                self.problems.extend(problem);
                Normalization::ZScore {
                    per_band: self.one_of("per", &["example", "band"])? == 1,
                    ddof: fine,
                    eps: self.get("eps")?,
                }
            }
        })
    }

    /// A number, or those of a sequence.
    fn numbers(&self, name: &str) -> PyResult<Vec<f64>> {
        let value = self.value(name)?;
        let number = |one: &Bound<'_, PyAny>| {
            let read = f64::read(name, one, &mut Vec::new());
            read.map_err(|refused| refused.raised(name, &value, "a float, or a sequence of floats"))
        };
        // An object without a length or without items by number is no sequence.
        let items = value.len().and_then(|n| (0..n).map(|i| value.get_item(i)).collect::<PyResult<Vec<_>>>());
        match attempt(value.py(), items)? {
            Some(items) if !value.is_instance_of::<PyString>() && !is_mapping(&value)? => {
                items.iter().map(number).collect()
            }
            _ => Ok(vec![number(&value)?]),
        }
    }
}
