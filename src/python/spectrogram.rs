//! `forebay.SpectrogramTransform`.

use numpy::{PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::{exceptions::PyTypeError, prelude::*, types::PyDict};

use super::{
    arguments::{argument, unknown_keyword},
    ending::detach,
    errors::to_python,
    logging,
};
use crate::{
    Error, ErrorKind,
    dsp::{self, SpectrogramConfig},
    error::shown,
    fallible_alloc, float_mode,
};

const NAMES: [&str; 7] = ["sample_rate", "n_fft", "hop_length", "n_mels", "win_length", "f_min", "f_max"];

type Positional = (u32, usize, usize, usize);

/// Computes log-mel spectrograms, as `Loader` does.
///
/// Equals torchaudio's `MelSpectrogram` with its defaults (periodic Hann window, centred with reflect
/// padding, power 2, HTK mel scale without norm) followed by `log(max(mel, 1e-10))`. A frame with NaN or
/// infinity is NaN in every band. The result does not depend on the caller's floating-point mode
/// (flush-to-zero). Immutable; may be shared by threads. If some mel bands are so narrow that they contain no
/// frequency bin, a warning is logged with their number: their values are constant.
///
/// Parameters
/// ----------
/// sample_rate : int
///     Sample rate of the waveforms in Hz; they are not resampled.
/// n_fft, hop_length : int
///     FFT size in samples, and samples between frames.
/// n_mels : int
///     Number of mel bands.
/// win_length : int, optional
///     Window length in samples; the window is centred in the FFT. None: `n_fft`.
/// f_min, f_max : float, float or None
///     Lower edge of the lowest band and upper edge of the highest band, in Hz. None: half of `sample_rate`.
///
/// Raises
/// ------
/// ConfigError
///     Parameters are out of range; the message lists all of them.
#[pyclass(module = "forebay", name = "SpectrogramTransform", frozen)]
pub struct PySpectrogramTransform(dsp::SpectrogramTransform);

#[pymethods]
impl PySpectrogramTransform {
    #[new]
    #[expect(clippy::too_many_arguments, reason = "one per parameter of the Python signature")]
    #[pyo3(signature = (sample_rate=32000, n_fft=1024, hop_length=320, n_mels=128, *, win_length=None, f_min=0.0, f_max=None, **unknown), text_signature = "(sample_rate=32000, n_fft=1024, hop_length=320, n_mels=128, *, win_length=None, f_min=0.0, f_max=None)")]
    fn new(
        py: Python<'_>,
        #[pyo3(from_py_with = argument::sample_rate)] sample_rate: i64,
        #[pyo3(from_py_with = argument::n_fft)] n_fft: i64,
        #[pyo3(from_py_with = argument::hop_length)] hop_length: i64,
        #[pyo3(from_py_with = argument::n_mels)] n_mels: i64,
        #[pyo3(from_py_with = argument::win_length)] win_length: Option<i64>,
        #[pyo3(from_py_with = argument::f_min)] f_min: f64,
        #[pyo3(from_py_with = argument::f_max)] f_max: Option<f64>,
        unknown: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        if let Some((keyword, _)) = unknown.and_then(|unknown| unknown.iter().next()) {
            let keyword = keyword.to_string();
            return Err(unknown_keyword("forebay.SpectrogramTransform", &NAMES, &keyword));
        }
        logging::emitting(py, || {
            let mut problems = Vec::new();
            // A value out of range is replaced by a value that causes no other problem.
            let mut checked =
                |name, value: i64, instead: usize| match SpectrogramConfig::out_of_range(name, value) {
                    None => value as usize,
                    Some(problem) => {
                        problems.push(problem);
                        instead
                    }
                };
            let config = SpectrogramConfig {
                sample_rate: checked("sample_rate", sample_rate, 768_000) as u32,
                n_fft: checked("n_fft", n_fft, 65_536),
                hop_length: checked("hop_length", hop_length, 1),
                n_mels: checked("n_mels", n_mels, 1),
                win_length: win_length.map(|length| checked("win_length", length, 1)),
                f_min,
                f_max,
                ..SpectrogramConfig::default()
            };
            let made = detach(py, || float_mode::lent(|| dsp::SpectrogramTransform::new(config)));
            problems.extend(made.as_ref().err().map(|error| error.message.clone()));
            match made {
                Ok(transform) if problems.is_empty() => {
                    transform.warn_of_empty_bands();
                    Ok(Self(transform))
                }
                _ => Err(to_python(py, &Error::new(ErrorKind::Config, problems.join("; ")))),
            }
        })
    }

    /// Computes the log-mel spectrogram of one waveform.
    ///
    /// `waveform` is float32 `[n_samples]` at `sample_rate`, contiguous, longer than `n_fft // 2`. Returns
    /// float32 `[n_mels, n_frames]`, natural logarithm, with `n_frames = 1 + n_samples // hop_length` (for an
    /// odd `n_fft`: `1 + (n_samples - 1) // hop_length`). Releases the GIL.
    ///
    /// Raises `ConfigError` if the waveform is too short, `TypeError` if it is not such an array,
    /// `MemoryError` if the allocation of the result failed.
    fn transform<'py>(
        &self,
        py: Python<'py>,
        waveform: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let waveform = samples(waveform)?;
        let waveform = waveform.as_slice()?;
        let shape = [self.0.n_mels(), self.0.n_frames(waveform.len())];
        let refused = || {
            let bytes = shape[0].saturating_mul(shape[1]).saturating_mul(size_of::<f32>());
            let message = format!(
                "cannot allocate {} MiB for a spectrogram of {} x {} values; raise hop_length, lower n_mels, or cut the waveform",
                bytes.div_ceil(1 << 20),
                shape[0],
                shape[1]
            );
            Error::new(ErrorKind::Memory, message)
        };
        let features = detach(py, || {
            let len = shape[0].saturating_mul(shape[1]);
            let mut features = fallible_alloc::filled(len, 0.0).map_err(|_| refused())?;
            float_mode::lent(|| self.0.transform(waveform, &mut self.0.scratch(), &mut features))?;
            Ok(features)
        })
        .map_err(|error| to_python(py, &error))?;
        PyArray1::from_vec(py, features).reshape(shape)
    }

    /// The number of mel bands.
    #[getter]
    fn n_mels(&self) -> usize {
        self.0.n_mels()
    }

    /// The number of frames of a waveform of `n_samples`.
    fn n_frames(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = argument::n_samples)] n_samples: i64,
    ) -> PyResult<usize> {
        Ok(self.0.n_frames(self::n_samples(py, n_samples)?))
    }

    fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> PyResult<(Positional, Bound<'py, PyDict>)> {
        let SpectrogramConfig { sample_rate, n_fft, hop_length, n_mels, .. } = *self.0.config();
        let keywords = PyDict::new(py);
        keywords.set_item("win_length", self.0.config().win_length)?;
        keywords.set_item("f_min", self.0.config().f_min)?;
        keywords.set_item("f_max", self.0.config().f_max)?;
        Ok(((sample_rate, n_fft, hop_length, n_mels), keywords))
    }

    fn __repr__(&self) -> String {
        let SpectrogramConfig { sample_rate, n_fft, hop_length, n_mels, .. } = *self.0.config();
        format!(
            "SpectrogramTransform(sample_rate={sample_rate}, n_fft={n_fft}, hop_length={hop_length}, n_mels={n_mels})"
        )
    }
}

impl PySpectrogramTransform {
    pub fn core(&self) -> &dsp::SpectrogramTransform {
        &self.0
    }
}

/// A number of samples, or the `ConfigError` that names its range.
pub fn n_samples(py: Python<'_>, n_samples: i64) -> PyResult<usize> {
    const MOST: i64 = 1 << 62;
    if (0..=MOST).contains(&n_samples) {
        return Ok(n_samples as usize);
    }
    let message = format!("n_samples is {}, must be 0 to {MOST}", shown(n_samples));
    Err(to_python(py, &Error::new(ErrorKind::Config, message)))
}

/// The samples of a waveform, without conversion.
fn samples<'py>(waveform: &Bound<'py, PyAny>) -> PyResult<PyReadonlyArray1<'py, f32>> {
    let wrong = |found: String| {
        PyTypeError::new_err(format!(
            "waveform is {found}, must be a contiguous numpy array of float32 and shape [n_samples]; \
             pass numpy.ascontiguousarray(channel, numpy.float32) for each channel"
        ))
    };
    let Ok(array) = waveform.cast::<PyUntypedArray>() else {
        return Err(wrong(format!("of type {}", waveform.get_type().name()?)));
    };
    let Ok(samples) = array.cast::<PyArray1<f32>>() else {
        return Err(wrong(format!("an array of {} and shape {:?}", array.dtype(), array.shape())));
    };
    let samples = samples.readonly();
    if samples.as_slice().is_err() {
        return Err(wrong(format!("not contiguous or not aligned (shape {:?})", array.shape())));
    }
    Ok(samples)
}
