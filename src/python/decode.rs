//! `forebay.decode`.

use std::cell::RefCell;

use numpy::{PyArray1, PyArrayMethods, PyUntypedArray};
use pyo3::{prelude::*, pybacked::PyBackedBytes};

use super::{
    arguments::{argument, wrong_type},
    ending::detach,
    errors::to_python,
};
use crate::{
    Error, ErrorKind, Result,
    audio::{AudioDecoder, Damage, Planes},
    config::{DamageConfig, track_number},
    error::shown,
    float_mode,
};

thread_local! {
    /// Keeps decoders and their codebooks from call to call, as a worker does from record to record.
    static DECODER: RefCell<AudioDecoder> = RefCell::new(AudioDecoder::new());
}

/// Decodes an audio file in memory, or only a span of it.
///
/// `data` holds a whole recording: WAV, AIFF, FLAC, Ogg Vorbis, Opus, MP3, M4A (AAC, ALAC) and others,
/// recognised by content. Returns `(waveform, sample_rate)`: float32 `[n]` for one channel, `[channels, n]`
/// for more, at the recording's own rate in Hz, integers scaled to [-1, 1). The waveform equals the slice
/// `[start:start + num_samples]` of the whole recording, bit for bit (Opus, and AAC with noise substitution:
/// a pure function of `data` and span). Like a slice it ends with the recording; `num_samples=None` means to
/// the end. Releases the GIL.
///
/// `damage="silence"` replaces frames that cannot be decoded by zeros, as players do: up to `max_damage` of
/// the span. With `"error"` one such frame raises. `track` is the number of the audio track, counted from 0
/// among those of a file of MP4, Matroska or WebM; None is the first, or the one that the file marks.
///
/// Raises `DecodeError` if the recording is empty, corrupt or of an unsupported format, or has no such track,
/// `ConfigError` (a `ValueError`) if `start` is not within the recording, `MemoryError` if the allocation for
/// the span failed.
#[pyfunction]
#[pyo3(signature = (data, start=0, num_samples=None, *, damage="silence", max_damage=0.1, track=None))]
pub fn decode<'py>(
    py: Python<'py>,
    data: &Bound<'py, PyAny>,
    #[pyo3(from_py_with = argument::start)] start: i64,
    #[pyo3(from_py_with = argument::num_samples)] num_samples: Option<i64>,
    damage: &str,
    max_damage: f64,
    #[pyo3(from_py_with = argument::track)] track: Option<i64>,
) -> PyResult<(Bound<'py, PyUntypedArray>, u32)> {
    let data: PyBackedBytes = data.extract().map_err(|_| {
        wrong_type(
            "data",
            data,
            "bytes or a bytearray, the content of an audio file: Path(path).read_bytes()",
        )
    })?;
    let damage = DamageConfig { damage, max_damage }.check().map_err(|error| to_python(py, &error))?;
    let track = track_number(track).map_err(|error| to_python(py, &error))?;
    let (samples, channels, rate) =
        detach(py, || float_mode::lent(|| decode_span(&data, start, num_samples, (damage, track))))
            .map_err(|error| to_python(py, &error))?;
    let n = samples.len() / channels;
    let flat = PyArray1::from_vec(py, samples);
    let waveform = if channels == 1 { flat.into_any() } else { flat.reshape([channels, n])?.into_any() };
    Ok((waveform.cast_into()?, rate))
}

/// The concatenated channels of the span, their number, and the rate.
fn decode_span(
    data: &[u8],
    start: i64,
    num_samples: Option<i64>,
    (damage, track): (Damage, Option<u32>),
) -> Result<(Vec<f32>, usize, u32)> {
    DECODER.with_borrow_mut(|decoder| {
        (decoder.damage, decoder.track) = (damage, track);
        let recording = decoder.open(data)?;
        let info = recording.info();
        let out_of_range = |what: String| Error::new(ErrorKind::Config, what);
        let first = u64::try_from(start).ok().filter(|&first| first <= info.n_samples).ok_or_else(|| {
            out_of_range(format!(
                "start is {}, must be 0 to {}, the samples of the recording",
                shown(start),
                info.n_samples
            ))
        })?;
        let wanted = match num_samples {
            None => u64::MAX,
            Some(n) => u64::try_from(n).map_err(|_| {
                out_of_range(format!("num_samples is {}, must be 0 or more, or None", shown(n)))
            })?,
        };
        let span = first..first.saturating_add(wanted).min(info.n_samples);
        let mut planes = Planes::new();
        decoder.read(&recording, span, &mut planes)?;
        Ok((planes.into_samples(), usize::from(info.channels), info.sample_rate))
    })
}
