//! `forebay.SpectrogramTransform`.

use numpy::{PyArray2, PyArrayMethods, PyReadonlyArray1};
use pyo3::prelude::*;

use super::errors::to_python;
use crate::transform::{self, SpectrogramConfig};

/// Log-mel spectrograms, as `Loader` makes them.
///
/// Equals torchaudio's `MelSpectrogram` with its defaults (periodic Hann window, centred with reflect padding, power 2, HTK mel
/// scale without norm) followed by `log(max(mel, 1e-10))`. Immutable; may be shared by threads.
///
/// Raises `ConfigError` (a `ValueError`) that names every parameter out of range.
#[pyclass(module = "forebay", name = "SpectrogramTransform", frozen)]
pub struct SpectrogramTransform(transform::SpectrogramTransform);

#[pymethods]
impl SpectrogramTransform {
    #[new]
    #[expect(clippy::too_many_arguments, reason = "one per parameter of the Python signature")]
    #[pyo3(signature = (sample_rate=32000, n_fft=1024, hop_length=320, n_mels=128, *, win_length=None, f_min=0.0, f_max=None))]
    fn new(
        py: Python<'_>,
        sample_rate: u32,
        n_fft: usize,
        hop_length: usize,
        n_mels: usize,
        win_length: Option<usize>,
        f_min: f64,
        f_max: Option<f64>,
    ) -> PyResult<Self> {
        let config = SpectrogramConfig {
            sample_rate,
            n_fft,
            hop_length,
            n_mels,
            win_length,
            f_min,
            f_max,
            ..SpectrogramConfig::default()
        };
        transform::SpectrogramTransform::new(config).map(Self).map_err(|error| to_python(py, &error))
    }

    /// The features of one waveform.
    ///
    /// `waveform` is float32 `[n_samples]` at `sample_rate`, contiguous, longer than `n_fft // 2`. Returns float32
    /// `[n_mels, n_frames]`, natural logarithm, with `n_frames = 1 + n_samples // hop_length`. Releases the GIL.
    ///
    /// Raises `ConfigError` if the waveform is too short.
    fn transform<'py>(
        &self,
        py: Python<'py>,
        waveform: PyReadonlyArray1<'py, f32>,
    ) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let waveform = waveform.as_slice()?;
        let shape = [self.0.n_mels(), self.0.n_frames(waveform.len())];
        let features = py
            .detach(|| {
                let mut features = vec![0.0; shape[0] * shape[1]];
                self.0.transform(waveform, &mut self.0.scratch(), &mut features).map(|()| features)
            })
            .map_err(|error| to_python(py, &error))?;
        numpy::PyArray1::from_vec(py, features).reshape(shape)
    }

    /// The number of mel bands.
    #[getter]
    fn n_mels(&self) -> usize {
        self.0.n_mels()
    }

    /// The number of frames that a waveform of `n_samples` gives.
    fn n_frames(&self, n_samples: usize) -> usize {
        self.0.n_frames(n_samples)
    }

    fn __repr__(&self) -> String {
        let SpectrogramConfig { sample_rate, n_fft, hop_length, n_mels, .. } = *self.0.config();
        format!(
            "SpectrogramTransform(sample_rate={sample_rate}, n_fft={n_fft}, hop_length={hop_length}, n_mels={n_mels})"
        )
    }
}
