//! The objects of `forebay.features`, planned: from the values of their fields to a [`FrontEnd`].

use std::{sync::Arc, thread};

use half::f16;
use numpy::{IntoPyArray, PyArray1, PyReadonlyArrayDyn, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::{
    exceptions::PyTypeError,
    prelude::*,
    types::{PyDict, PyMapping, PyString},
};

use super::{
    arguments::{Argument, argument, named},
    errors::to_python,
    interruptible::run_interruptible,
    spectrogram,
};
use crate::{
    Error, ErrorKind, Result,
    dtype::{Dtype, Typed, ValuesMut, each},
    error::shown,
    float_mode,
    transform::{
        FrontEnd, FrontEndConfig, Kaldi, Layout, MelScale, Pad, SpectrogramConfig, Window,
        front_end::{Cepstrum, Compression, Conditioning, Fill, Level, Normalization},
    },
};

/// The plan of an object of `forebay.features`.
#[pyclass(module = "forebay._core", name = "_FrontEnd", frozen)]
pub struct PyFrontEnd {
    plan: Plan,
    sample_rate: u32,
}

/// What the plan makes.
#[derive(Clone)]
enum Plan {
    /// Waveforms.
    Waveform(Conditioning, Dtype),
    /// Spectrograms, cepstra.
    Bands(Arc<FrontEnd>),
}

impl Plan {
    fn dtype(&self) -> Dtype {
        match self {
            Self::Waveform(_, dtype) => *dtype,
            Self::Bands(plan) => plan.config().form.dtype,
        }
    }

    fn shape(&self, n_samples: usize) -> Vec<usize> {
        match self {
            Self::Waveform(..) => vec![n_samples],
            Self::Bands(plan) => plan.shape(n_samples).to_vec(),
        }
    }

    /// Writes the features of each waveform of `n_samples`, one after the other.
    fn transform(&self, waveforms: &[f32], n_samples: usize, out: ValuesMut<'_>) -> Result<()> {
        let _mode = float_mode::Lent::new();
        let len: usize = self.shape(n_samples).iter().product();
        each!(out, out => {
            let (mut own, mut scratch) = (Vec::new(), None);
            for (waveform, out) in waveforms.chunks_exact(n_samples.max(1)).zip(out.chunks_exact_mut(len.max(1))) {
                match self {
                    Self::Waveform(conditioning, _) => {
                        let waveform = conditioning.apply(waveform, &mut own)?;
                        // A type of values is `From<f32>` only where no value is lost.
                        out.iter_mut().zip(waveform).for_each(|(out, x)| *out = Rounded::rounded(*x));
                    }
                    Self::Bands(plan) => {
                        let scratch = scratch.get_or_insert_with(|| plan.scratch());
                        plan.transform(waveform, scratch, Rounded::typed(out))?;
                    }
                }
            }
            Ok(())
        })
    }
}

/// A type of values.
trait Rounded: Sized {
    fn rounded(value: f32) -> Self;
    fn typed(values: &mut [Self]) -> ValuesMut<'_>;
}

impl Rounded for f32 {
    fn rounded(value: f32) -> Self {
        value
    }
    fn typed(values: &mut [Self]) -> ValuesMut<'_> {
        Typed::Float32(values)
    }
}

impl Rounded for f16 {
    fn rounded(value: f32) -> Self {
        Self::from_f32(value)
    }
    fn typed(values: &mut [Self]) -> ValuesMut<'_> {
        Typed::Float16(values)
    }
}

impl Rounded for half::bf16 {
    fn rounded(value: f32) -> Self {
        Self::from_f32(value)
    }
    fn typed(values: &mut [Self]) -> ValuesMut<'_> {
        Typed::Bfloat16(values)
    }
}

#[pymethods]
impl PyFrontEnd {
    /// Plans the features of class `kind` with the values of its fields.
    #[new]
    fn new(kind: &str, fields: &Bound<'_, PyDict>) -> PyResult<Self> {
        let py = fields.py();
        let mut given = Given { fields: fields.clone(), problems: Vec::new() };
        let sample_rate = given.whole("sample_rate")?.unwrap_or(1) as u32;
        let made = match kind {
            "Waveform" => {
                let (conditioning, dtype) = (given.conditioning()?, given.dtype()?);
                given.problems.extend(conditioning.problems());
                Ok(Plan::Waveform(conditioning, dtype))
            }
            _ => {
                let config = given.front_end(kind, sample_rate)?;
                let keeps_empty =
                    given.has("empty_bands")? && given.one_of("empty_bands", &["error", "keep"])? == 1;
                // A value that was replaced may make bands empty.
                let may_be_empty = keeps_empty || !given.problems.is_empty();
                py.detach(|| FrontEnd::new(config, may_be_empty)).map(|plan| Plan::Bands(Arc::new(plan)))
            }
        };
        given.problems.extend(made.as_ref().err().map(|error| error.message.clone()));
        given.check()?;
        Ok(Self { plan: made.map_err(|error| to_python(py, &error))?, sample_rate })
    }

    /// Checks a compression or normalization, given as `to_dict()` of its object.
    #[staticmethod]
    fn check_part(fields: &Bound<'_, PyDict>) -> PyResult<()> {
        let mut part = Given { fields: fields.clone(), problems: Vec::new() };
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
        Ok(self.plan.shape(spectrogram::n_samples(py, n_samples)?))
    }

    /// The features of one waveform `[n_samples]` or of several, `[batch, n_samples]`, on all cores.
    fn transform<'py>(&self, py: Python<'py>, waveform: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let array = samples(waveform)?;
        let shape = array.shape().to_vec();
        let n_samples = shape[shape.len() - 1];
        let mut out_shape: Vec<usize> = shape[..shape.len() - 1].to_vec();
        let one = self.plan.shape(n_samples);
        out_shape.extend(&one);
        let len = one.iter().product::<usize>();
        let n = shape[..shape.len() - 1].iter().product::<usize>();
        let waveforms = array.as_slice()?.to_vec();
        let plan = self.plan.clone();
        let values = run_interruptible(py, "forebay-features", move |_| {
            let mut values = plan.dtype().zeros(n.saturating_mul(len))?;
            let n_threads = super::_cores().min(n).max(1);
            let share = n.div_ceil(n_threads).max(1);
            each!(values.as_mut(), values => {
                thread::scope(|scope| -> Result<()> {
                    let parts = waveforms.chunks((share * n_samples).max(1)).zip(values.chunks_mut((share * len).max(1)));
                    let plan = &plan;
                    let threads: Vec<_> = parts
                        .map(|(waveforms, out)| {
                            let work = move || plan.transform(waveforms, n_samples, Rounded::typed(out));
                            thread::Builder::new().name("forebay-features".into()).spawn_scoped(scope, work)
                        })
                        .collect();
                    for thread in threads {
                        let thread = thread.map_err(|error| Error::new(ErrorKind::Io, "no thread").because(error))?;
                        thread.join().map_err(|_| Error::new(ErrorKind::Io, "a thread panicked"))??;
                    }
                    Ok(())
                })
            })?;
            Ok(values)
        })?;
        let array = match values {
            Typed::Float32(values) => values.into_pyarray(py).into_any(),
            Typed::Float16(values) => values.into_pyarray(py).into_any(),
            // numpy has no bfloat16: its bits, as in batches.
            Typed::Bfloat16(values) => {
                PyArray1::from_iter(py, values.into_iter().map(half::bf16::to_bits)).into_any()
            }
        };
        array.call_method1("reshape", (out_shape,))
    }

    /// Samples per second of the waveforms.
    #[getter]
    fn sample_rate(&self) -> u32 {
        self.sample_rate
    }
}

/// The samples of one or several waveforms, without conversion.
fn samples<'py>(waveform: &Bound<'py, PyAny>) -> PyResult<PyReadonlyArrayDyn<'py, f32>> {
    let wrong = |found: String| {
        PyTypeError::new_err(format!(
            "waveform is {found}, must be a C-contiguous numpy array of float32 and shape [n_samples] or [batch, n_samples]; \
             numpy.ascontiguousarray(waveform, numpy.float32) makes one"
        ))
    };
    let Ok(array) = waveform.cast::<PyUntypedArray>() else {
        return Err(wrong(format!("of type {}", waveform.get_type().name()?)));
    };
    let found = format!("an array of {} and shape {:?}", array.dtype(), array.shape());
    let Ok(samples) = waveform.extract::<PyReadonlyArrayDyn<'py, f32>>() else { return Err(wrong(found)) };
    // A slice may be of memory in Fortran's order.
    if samples.as_slice().is_err() || !samples.is_c_contiguous() || !(1..=2).contains(&samples.shape().len())
    {
        return Err(wrong(found));
    }
    Ok(samples)
}

/// The values of the fields of an object, and what is wrong with them.
struct Given<'py> {
    fields: Bound<'py, PyDict>,
    problems: Vec<String>,
}

impl<'py> Given<'py> {
    fn value(&self, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let found = self.fields.get_item(name)?;
        found.ok_or_else(|| PyTypeError::new_err(format!("{name} is missing")))
    }

    fn get<T: Argument>(&self, name: &str) -> PyResult<T> {
        named(name, &self.value(name)?)
    }

    fn has(&self, name: &str) -> PyResult<bool> {
        self.fields.contains(name)
    }

    /// Raises one error for all problems.
    fn check(&self) -> PyResult<()> {
        if self.problems.is_empty() {
            return Ok(());
        }
        let error = Error::new(ErrorKind::Config, self.problems.join("; "));
        Err(to_python(self.fields.py(), &error))
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

    /// Another number from 1 to `most`, or None; a value out of range is reported and replaced by 1.
    fn count(&mut self, name: &str, most: i64) -> PyResult<Option<usize>> {
        let Some(value) = self.get::<Option<i64>>(name)? else { return Ok(None) };
        if !(1..=most).contains(&value) {
            self.problems.push(format!("{name} is {}, must be 1 to {most}", shown(value)));
            return Ok(Some(1));
        }
        Ok(Some(value as usize))
    }

    fn float(&mut self, name: &str) -> PyResult<f32> {
        let value = self.get(name)?;
        Ok(self.rounded(name, value))
    }

    fn optional(&mut self, name: &str) -> PyResult<Option<f32>> {
        let value = self.get::<Option<f64>>(name)?;
        Ok(value.map(|value| self.rounded(name, value)))
    }

    /// A number as float32; one that would become infinite or 0 is reported and replaced by 1.
    fn rounded(&mut self, name: &str, value: f64) -> f32 {
        let rounded = value as f32;
        if rounded.is_infinite() && value.is_finite() || rounded == 0.0 && value != 0.0 {
            self.problems
                .push(format!("{name} is {value:?}, must be a float32: 0, or 1e-45 to 3.4e38 in size"));
            return 1.0;
        }
        rounded
    }

    /// One of the choices by its number, or a number.
    fn choice_or_float(&mut self, name: &str, choices: &[&str]) -> PyResult<Result<usize, f32>> {
        let value = self.value(name)?;
        if value.is_instance_of::<PyString>() {
            return self.one_of(name, choices).map(Ok);
        }
        let number = named::<f64>(name, &value)?;
        Ok(Err(self.rounded(name, number)))
    }

    /// The number of the choice.
    fn one_of(&mut self, name: &str, choices: &[&str]) -> PyResult<usize> {
        let text: String = self.get(name)?;
        Ok(choices.iter().position(|choice| *choice == text).unwrap_or_else(|| {
            let all: Vec<String> = choices.iter().map(|choice| format!("{choice:?}")).collect();
            self.problems.push(format!("{name} is {text:?}, must be one of {}", all.join(", ")));
            0
        }))
    }

    fn dtype(&mut self) -> PyResult<Dtype> {
        let names = Dtype::ALL.map(Dtype::name);
        Ok(Dtype::ALL[self.one_of("dtype", &names)?])
    }

    fn conditioning(&mut self) -> PyResult<Conditioning> {
        let mut found = Conditioning {
            remove_mean: self.get("remove_mean")?,
            scale: self.float("scale")?,
            ..Conditioning::default()
        };
        let peak = Level::Peak(self.float("peak")?);
        if self.get::<Option<String>>("normalize_waveform")?.is_some() {
            found.level = [peak, Level::ZScore][self.one_of("normalize_waveform", &["peak", "zscore"])?];
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
            window: Window::ALL[self.one_of("window", &Window::ALL.map(Window::name))?],
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
            Ok(choice) => [Fill::Silence, Fill::Minimum][choice],
            Err(number) => Fill::Number(number),
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
            compression: compression.unwrap_or(Compression::None),
            cepstrum,
            fill,
            normalization,
            form: crate::transform::Form {
                dtype: self.dtype()?,
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
        Ok(Some(Given { fields: value.cast_into()?, problems: Vec::new() }))
    }

    /// The compression with these fields.
    fn compression(&mut self) -> PyResult<Compression> {
        Ok(match &*self.get::<String>("type")? {
            "Log10" => Compression::Log10 { floor: self.float("floor")?, range: self.optional("range")? },
            "Decibel" => Compression::Decibel {
                reference: self.choice_or_float("reference", &["max"])?.err(),
                amin: self.float("amin")?,
                top_db: self.optional("top_db")?,
            },
            "PCEN" => Compression::Pcen {
                smooth: self.float("smooth")?,
                gain: self.float("gain")?,
                bias: self.float("bias")?,
                root: self.float("root")?,
                eps: self.float("eps")?,
                initial: self.optional("initial")?,
            },
            _ => {
                let floor = Compression::LnFloor(self.float("floor")?);
                let Some(eps) = self.optional("eps")? else { return Ok(floor) };
                // A floor that is not used is checked too.
                self.problems.extend(floor.problems());
                Compression::LnPlus(eps)
            }
        })
    }

    /// The normalization with these fields.
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
        match items {
            Ok(items) if !value.is_instance_of::<PyString>() && value.cast::<PyMapping>().is_err() => {
                items.iter().map(number).collect()
            }
            _ => Ok(vec![number(&value)?]),
        }
    }
}
