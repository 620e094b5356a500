//! Sample rate conversion: band-limited, with absolute phase.
//!
//! Input: any span of a recording at its own rate. Output: any span of it at the target rate. Output `m` is
//! at the time `m / target_hz` of the recording, wherever the span begins. A span's bits equal the same slice
//! of the whole, so a crop can be resampled alone. Samples outside of the recording are zero. Equal rates are
//! a copy.
//!
//! One kernel (see `design`) is applied in one of three ways: in the frequency domain for the usual ratios
//! (`block`), likewise with a short interpolation after it for awkward ones (`staged`), as a sum for extreme
//! ones (`direct`). A plan takes a few milliseconds, is made once per rate pair and shared by threads;
//! [`Resamplers`] keeps those in use. Calls share no state, so there is no reset and no delay.
//! `docs/decisions.md` compares it with others.

use crate::{Error, ErrorKind, Result, fork_lock};
use std::{fmt, ops::Range, sync::Arc};

mod block;
mod design;
mod direct;
#[cfg(test)]
mod naive;
mod staged;

use block::BlockPlan;
use design::Prototype;
use direct::Direct;
use staged::Staged;

/// The highest rate of a plan: that of recordings.
pub const MAX_HZ: u32 = forebay_base::planes::MAX_RATE;

/// The sharpness of the filter. All stop bands begin at the lower of the two Nyquist frequencies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Quality {
    /// Pass band to 0.85 of the lower Nyquist frequency, stop band 100 dB.
    Fast,
    /// Pass band to 0.91, stop band 110 dB.
    #[default]
    Default,
    /// Pass band to 0.95, stop band 140 dB: the limit of `f32`.
    Best,
}

impl Quality {
    /// End of the pass band as a fraction of the lower Nyquist frequency, and attenuation in the stop band.
    fn bands(self) -> (f64, f64) {
        match self {
            Self::Fast => (0.85, 100.0),
            Self::Default => (0.91, 110.0),
            Self::Best => (0.95, 140.0),
        }
    }
}

/// Source and target rate without their common divisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ratio {
    source: u32,
    target: u32,
}

impl Ratio {
    fn new(source_hz: u32, target_hz: u32) -> Self {
        let (mut a, mut b) = (source_hz, target_hz);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        Self { source: source_hz / a, target: target_hz / a }
    }

    /// The lower rate as a fraction of the source rate.
    fn lower(self) -> f64 {
        (f64::from(self.target) / f64::from(self.source)).min(1.0)
    }
}

/// A plan for one pair of rates; immutable, shared by threads.
pub struct Resampler {
    source_hz: u32,
    target_hz: u32,
    quality: Quality,
    method: Method,
}

enum Method {
    Copy,
    Block(BlockPlan),
    Staged(Staged),
    Direct(Direct),
}

const _: () = {
    const fn shared<T: Send + Sync>() {}
    shared::<Resampler>();
    shared::<Resamplers>();
};

impl fmt::Debug for Resampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source_hz, target_hz, quality, .. } = self;
        write!(f, "Resampler({source_hz} Hz to {target_hz} Hz, {quality:?})")
    }
}

impl Resampler {
    /// Plans the conversion from `source_hz` to `target_hz`, each 1 to [`MAX_HZ`].
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for a source rate out of this range (it comes from a recording's header),
    /// [`ErrorKind::Config`] for a target rate.
    pub fn new(source_hz: u32, target_hz: u32, quality: Quality) -> Result<Self> {
        for (name, hz, kind) in
            [("target", target_hz, ErrorKind::Config), ("source", source_hz, ErrorKind::Unsupported)]
        {
            if !(1..=MAX_HZ).contains(&hz) {
                return Err(Error::new(kind, format!("the {name} rate is {hz} Hz, expected 1 to {MAX_HZ}")));
            }
        }
        let (ratio, prototype) = (Ratio::new(source_hz, target_hz), Prototype::new(quality));
        let method = if source_hz == target_hz {
            Method::Copy
        } else if let Some(block) = BlockPlan::new(ratio, ratio.lower(), &prototype) {
            Method::Block(block)
        } else if let Some(staged) = Staged::new(ratio, &prototype) {
            Method::Staged(staged)
        } else {
            Method::Direct(Direct::new(ratio, &prototype))
        };
        Ok(Self { source_hz, target_hz, quality, method })
    }

    /// Source samples that are needed for the samples `target`, within a recording of `n_source`.
    ///
    /// Somewhat more than the kernel covers: whole blocks are computed, so that bits do not depend on the
    /// span.
    pub fn input_span(&self, target: Range<u64>, n_source: u64) -> Range<u64> {
        if target.is_empty() {
            return 0..0;
        }
        let span = match &self.method {
            Method::Copy => target,
            Method::Block(block) => block.input_span(target.start.into()..target.end.into()),
            Method::Staged(staged) => staged.input_span(target),
            Method::Direct(direct) => direct.input_span(target),
        };
        span.start.min(n_source)..span.end.min(n_source)
    }

    /// Writes samples `target_start..target_start + out.len()` of the resampled recording.
    ///
    /// `source` holds the recording's samples from `source_start` on, at least those of
    /// [`input_span`](Self::input_span); samples outside of it count as zero. Allocates nothing, except a
    /// thread's working memory (about 100 KB) when the thread first uses a plan of this size.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`] if the positions overflow, [`ErrorKind::Memory`] if the allocation of the working
    /// memory failed.
    pub fn resample(
        &self,
        source: &[f32],
        source_start: u64,
        target_start: u64,
        out: &mut [f32],
    ) -> Result<()> {
        let overflow = |start: u64, len: usize| start.checked_add(len as u64).is_none();
        if overflow(source_start, source.len()) || overflow(target_start, out.len()) {
            return Err(Error::new(
                ErrorKind::Shape,
                format!(
                    "samples from {source_start} on, target from {target_start} on: expected positions below 2^64"
                ),
            ));
        }
        match &self.method {
            Method::Copy => {
                fill(out, source, i128::from(target_start) - i128::from(source_start));
                Ok(())
            }
            Method::Block(block) => block.run(source, source_start, target_start.into(), out),
            Method::Staged(staged) => staged.run(source, source_start, target_start, out),
            Method::Direct(direct) => direct.run(source, source_start, target_start, out),
        }
    }
}

/// Copies `source[start..]` to `out`, with zeros outside of `source`.
fn fill(out: &mut [f32], source: &[f32], start: i128) {
    let clamp = |at: i128| at.clamp(0, source.len() as i128) as usize;
    let (from, to) = (clamp(start), clamp(start + out.len() as i128));
    let front = (from as i128 - start).clamp(0, out.len() as i128) as usize;
    let (zeros, rest) = out.split_at_mut(front);
    zeros.fill(0.0);
    let (copy, behind) = rest.split_at_mut(to - from);
    copy.copy_from_slice(&source[from..to]);
    behind.fill(0.0);
}

/// The plans in use, by rate pair; shared by threads.
///
/// Keeps the [`Resamplers::CAPACITY`] pairs last used: a bound, so that hostile headers cannot fill the
/// memory.
#[derive(Debug)]
pub struct Resamplers {
    quality: Quality,
    /// The latest used last.
    plans: fork_lock::Mutex<Vec<Arc<Resampler>>>,
}

impl Resamplers {
    /// The most plans that are kept at a time.
    pub const CAPACITY: usize = 32;

    /// An empty set for one quality.
    pub fn new(quality: Quality) -> Self {
        Self { quality, plans: fork_lock::Mutex::default() }
    }

    /// The plan for a pair of rates: the kept one, or a new one.
    ///
    /// Holds a lock for the look-up only. Two threads may plan the same pair at the same time; both plans are
    /// equal.
    ///
    /// # Errors
    /// As [`Resampler::new`].
    pub fn get(&self, source_hz: u32, target_hz: u32) -> Result<Arc<Resampler>> {
        // A panic leaves the list valid, so a poisoned lock is used like any other.
        let lock = || fork_lock::lock(&self.plans);
        let take = |plans: &mut Vec<Arc<Resampler>>| {
            let found = plans.iter().position(|p| (p.source_hz, p.target_hz) == (source_hz, target_hz))?;
            let plan = plans.remove(found);
            plans.push(Arc::clone(&plan));
            Some(plan)
        };
        if let Some(plan) = take(&mut *lock()?) {
            return Ok(plan);
        }
        let plan = Arc::new(Resampler::new(source_hz, target_hz, self.quality)?);
        let mut plans = lock()?;
        if let Some(plan) = take(&mut plans) {
            return Ok(plan);
        }
        if plans.len() == Self::CAPACITY {
            plans.remove(0);
        }
        plans.push(Arc::clone(&plan));
        Ok(plan)
    }
}

#[cfg(test)]
mod tests;
