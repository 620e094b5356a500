//! [`Custom`]: a step that is a function of the user.

use std::{any::Any, fmt, sync::Arc};

use super::{AugmentScratch, FrameAxis, bands::Number};
use crate::{
    Layout, Result,
    dtype::{ValuesMut, each},
    fallible_alloc,
};

/// A function that changes float32 arrays.
pub trait Custom: Any + fmt::Debug + Send + Sync {
    /// What distinguishes it from other functions.
    fn name(&self) -> &str;

    /// Changes an array of that shape, row-major. `seed` is the step's random bits for the example.
    ///
    /// # Errors
    /// [`ErrorKind::Callback`](crate::ErrorKind::Callback) if the function failed.
    fn change(&self, values: &mut [f32], shape: [usize; 2], seed: u64) -> Result<()>;
}

/// A step that calls a function.
#[derive(Debug, Clone)]
pub struct Calling {
    /// Shared by all clones of the step.
    pub function: Arc<dyn Custom>,
    /// Whether it changes features; else waveforms.
    pub on_features: bool,
}

impl PartialEq for Calling {
    fn eq(&self, other: &Self) -> bool {
        (self.function.name(), self.on_features) == (other.function.name(), other.on_features)
    }
}

impl Calling {
    /// Has the function change the features of one channel.
    pub(super) fn features(
        &self,
        seed: u64,
        axis: FrameAxis,
        scratch: &mut AugmentScratch,
        values: &mut ValuesMut<'_>,
    ) -> Result<()> {
        let FrameAxis { n_bands, n_frames, layout, .. } = axis;
        let shape = if layout == Layout::Mel { [n_bands, n_frames] } else { [n_frames, n_bands] };
        each!(values, values => self.on_floats(seed, shape, &mut scratch.given, values))
    }

    fn on_floats<T: Number>(
        &self,
        seed: u64,
        shape: [usize; 2],
        floats: &mut Vec<f32>,
        values: &mut [T],
    ) -> Result<()> {
        fallible_alloc::resize(floats, values.len(), 0.0)?;
        floats.iter_mut().zip(values.iter()).for_each(|(float, value)| *float = value.to());
        self.function.change(floats, shape, seed)?;
        values.iter_mut().zip(floats.iter()).for_each(|(value, float)| *value = T::of(*float));
        Ok(())
    }
}
