//! The errors about a recording whose length does not fit its clip. Source: own.

use crate::{Error, ErrorKind, dsp::Features};

/// A number of samples as seconds, for a message.
pub(super) fn seconds_of(samples: i64, rate: u32) -> f64 {
    let micro = 1e6;
    (samples as f64 / f64::from(rate) * micro).round() / micro
}

/// The error about a recording that is longer than its row says.
pub(super) fn longer_than_known(n: u64, most: u64, rate: u32) -> Error {
    let seconds = |n: u64| n as f64 / f64::from(rate);
    let message = format!(
        "the recording has {:.3} s as it is played, its row or its header says at most {:.3} s: longer than its row says; \
         correct the lengths of the table, or leave them out",
        seconds(n),
        seconds(most)
    );
    Error::new(ErrorKind::TooLarge, message)
}

/// The error about a recording that is not as long as the first one of its row.
pub(super) fn unequal(n: u64, first: u64, rate: u32) -> Error {
    let seconds = |n: u64| n as f64 / f64::from(rate);
    let message = format!(
        "the recording has {:.4} s as it is played, the first of its row {:.4} s: recordings of a row must be equally \
         long, within a sample",
        seconds(n),
        seconds(first)
    );
    Error::new(ErrorKind::Corrupt, message)
}

/// The error about a start that is not within its recording.
pub(super) fn beyond(start: f64, least: f64, sample_rate: u32, n_samples: u64) -> Error {
    let seconds = seconds_of(i64::try_from(n_samples).unwrap_or(i64::MAX), sample_rate);
    let message = format!(
        "start is {start:?}, must be at least {least:?} and below {seconds:?}, the recording's seconds"
    );
    Error::new(ErrorKind::Config, message)
}

/// The error about a recording of which the features make no frame.
pub(super) fn too_short(n: usize, features: &Features) -> Error {
    let message = format!(
        "the recording has {n} samples at {} Hz, of which the features make no frame (they need {}); raise min_seconds",
        features.sample_rate(),
        features.least_samples()
    );
    Error::new(ErrorKind::TooShort, message)
}
