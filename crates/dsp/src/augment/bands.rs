//! Masks, moves and warps of frames and bands, in features of any type and layout.
//!
//! Source: D. S. Park et al., "SpecAugment: A Simple Data Augmentation Method for Automatic Speech
//! Recognition" (2019); widths are drawn from 0 to the largest, both included. A warp interpolates linearly:
//! so does the image warp that the paper names, and a cubic overshoots, below silence beside a loud frame.

use std::ops::Range;

use half::{bf16, f16};
use smallvec::SmallVec;

use super::Draws;
use crate::{
    Layout, Result,
    dtype::{ValuesMut, each_float},
    fallible_alloc,
};

/// The largest width that a mask can have; widths are drawn from 0 on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Width {
    /// This many bands or frames, or all if there are fewer.
    Count(usize),
    /// This share of the bands or frames, rounded down.
    Share(f64),
}

impl Width {
    fn of(self, n: usize) -> usize {
        match self {
            Self::Count(count) => count.min(n),
            Self::Share(share) => ((share * n as f64) as usize).min(n),
        }
    }
}

/// The value that replaces those under a mask.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fill {
    /// This number, as the features are after normalization.
    Number(f32),
    /// The mean of the features that are not padding.
    Mean,
    /// The minimum of the features that are not padding.
    Minimum,
    /// What the features of silence are, band by band: a mask before the logarithm.
    Silence,
}

/// Masks of bands and of frames.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BandMasks {
    /// The largest width of a mask along the band axis.
    pub freq: Width,
    /// Masks of bands, each drawn by itself.
    pub n_freq: usize,
    /// The largest width of a mask along the frame axis.
    pub time: Width,
    /// Masks of frames, each drawn by itself.
    pub n_time: usize,
    /// The largest share of the frames that all masks of frames may cover together; fewer and shorter ones
    /// are drawn of a short clip.
    pub max_share: Option<f64>,
    /// The value under all masks of the step.
    pub fill: Fill,
    /// Whether frames of padding are masked, too.
    pub pads: bool,
    /// The most frames by which a place is moved before all masks; 0: none is.
    pub warp: usize,
}

/// Where masks are in the features of an example.
#[derive(Debug, Default)]
pub(super) struct DrawnMasks {
    pub bands: SmallVec<[Range<usize>; 8]>,
    pub frames: SmallVec<[Range<usize>; 8]>,
    /// The frames under masks of bands.
    pub over: Range<usize>,
}

/// Where bands and frames are among the values of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameAxis {
    /// Which of the two axes is contiguous.
    pub layout: Layout,
    /// Bands, or cepstral coefficients, of a frame.
    pub n_bands: usize,
    /// Frames of the features, padding included.
    pub n_frames: usize,
    /// The first frame that is not padding.
    pub first: usize,
    /// Frames from `first` on that are not padding.
    pub n_valid: usize,
}

impl FrameAxis {
    fn at(self, band: usize, frame: usize) -> usize {
        match self.layout {
            Layout::Mel => band * self.n_frames + frame,
            Layout::Time => frame * self.n_bands + band,
        }
    }

    fn valid(self) -> Range<usize> {
        self.first..self.first + self.n_valid
    }
}

/// A type of features that masks and mixing can compute with.
pub trait Number: Copy {
    /// The value as float32, which holds each of the types exactly.
    fn to(self) -> f32;
    /// The nearest number of the type.
    fn of(value: f32) -> Self;
}

impl Number for f32 {
    fn to(self) -> f32 {
        self
    }
    fn of(value: f32) -> Self {
        value
    }
}

impl Number for f16 {
    fn to(self) -> f32 {
        self.to_f32()
    }
    fn of(value: f32) -> Self {
        Self::from_f32(value)
    }
}

impl Number for bf16 {
    fn to(self) -> f32 {
        self.to_f32()
    }
    fn of(value: f32) -> Self {
        Self::from_f32(value)
    }
}

impl Number for i16 {
    fn to(self) -> f32 {
        self.into()
    }
    fn of(value: f32) -> Self {
        value.round_ties_even() as Self
    }
}

impl BandMasks {
    /// The frame that is moved and its new place, among the frames that are not padding; `None` if none is.
    /// `draws` are those of [`Self::draw`] too, whose draws come before those of the warp.
    pub(super) fn draw_warp(&self, draws: &Draws, axis: FrameAxis) -> Option<[usize; 2]> {
        // A place and its new one have a frame on each side.
        if self.warp == 0 || axis.n_valid < 2 * self.warp + 2 {
            return None;
        }
        let mut draws = draws.after(2 * (self.n_freq + self.n_time));
        let from = self.warp + 1 + draws.below(axis.n_valid - 2 * self.warp - 1);
        let to = from - self.warp + draws.below(2 * self.warp + 1);
        (to != from).then_some([from, to])
    }

    /// Stretches the frames that are not padding up to a place, and compresses those after it, or the other
    /// way round.
    pub(super) fn warp(
        &self,
        draws: &Draws,
        axis: FrameAxis,
        before: &mut Vec<f32>,
        values: &mut ValuesMut<'_>,
    ) -> Result<()> {
        if let Some(places) = self.draw_warp(draws, axis) {
            fallible_alloc::resize(before, values.len(), 0.0)?;
            each_float!(values, values => warp(places, axis, before, values));
        }
        Ok(())
    }

    /// Draws the places of the masks.
    pub(super) fn draw(&self, draws: &mut Draws, axis: FrameAxis) -> DrawnMasks {
        let over = if self.pads { 0..axis.n_frames } else { axis.valid() };
        let mut mask = |widest: Width, first: usize, n: usize| {
            let width = (draws.unit() * (widest.of(n) + 1) as f64) as usize;
            let start = first + (draws.unit() * (n - width + 1) as f64) as usize;
            start..start + width
        };
        // bounded: at most 64 of each axis.
        let bands = (0..self.n_freq).map(|_| mask(self.freq, 0, axis.n_bands)).collect();
        let (n_time, widest) = self.time_masks(over.len());
        let frames = (0..n_time).map(|_| mask(widest, over.start, over.len())).collect();
        DrawnMasks { bands, frames, over }
    }

    /// The number of masks along so many frames, and the widest.
    fn time_masks(&self, n_frames: usize) -> (usize, Width) {
        let Some(share) = self.max_share else { return (self.n_time, self.time) };
        let (most, widest) = (share * n_frames as f64, self.time.of(n_frames));
        let n = self.n_time.min((most / widest.max(1) as f64).ceil() as usize);
        (n, Width::Count(widest.min((most / n.max(1) as f64) as usize)))
    }

    pub(super) fn apply(
        &self,
        draws: &mut Draws,
        axis: FrameAxis,
        silence: &[f32],
        values: &mut ValuesMut<'_>,
    ) {
        each_float!(values, values => self.write(draws, axis, silence, values));
    }

    fn write<T: Number>(&self, draws: &mut Draws, axis: FrameAxis, silence: &[f32], values: &mut [T]) {
        let number = match self.fill {
            Fill::Number(number) => number,
            Fill::Silence => 0.0,
            Fill::Mean => {
                let sum: f64 = each(axis, values).map(f64::from).sum();
                (sum / (axis.n_valid * axis.n_bands).max(1) as f64) as f32
            }
            Fill::Minimum => each(axis, values).reduce(f32::min).unwrap_or(0.0),
        };
        let of_band = |band: usize| match self.fill {
            Fill::Silence => silence.get(band).copied().unwrap_or(0.0),
            _ => number,
        };
        let DrawnMasks { bands, frames, over } = self.draw(draws, axis);
        let mut cover = |bands: Range<usize>, frames: Range<usize>| {
            for band in bands {
                let value = T::of(of_band(band));
                frames.clone().for_each(|frame| values[axis.at(band, frame)] = value);
            }
        };
        bands.into_iter().for_each(|bands| cover(bands, over.clone()));
        frames.into_iter().for_each(|frames| cover(0..axis.n_bands, frames));
    }
}

/// The values of the frames that are not padding.
fn each<T: Number>(axis: FrameAxis, values: &[T]) -> impl Iterator<Item = f32> {
    let bands = 0..axis.n_bands;
    bands.flat_map(move |band| axis.valid().map(move |frame| values[axis.at(band, frame)].to()))
}

/// Has the frames before `from` fill the first `to` frames, and the others the rest; `before` becomes a copy
/// of the values.
fn warp<T: Number>([from, to]: [usize; 2], axis: FrameAxis, before: &mut [f32], values: &mut [T]) {
    before.iter_mut().zip(values.iter()).for_each(|(before, value)| *before = value.to());
    let n = axis.n_valid;
    let steps = [from as f64 / to as f64, (n - from) as f64 / (n - to) as f64];
    // The frames between which one of the middle of frame `frame` lies, and its place between them.
    let place = |frame: usize| {
        let middle = frame as f64 + 0.5;
        let then = match frame < to {
            true => middle * steps[0],
            false => from as f64 + (middle - to as f64) * steps[1],
        };
        let then = (then - 0.5).clamp(0.0, (n - 1) as f64);
        let first = then as usize;
        (axis.first + first, axis.first + (first + 1).min(n - 1), (then - first as f64) as f32)
    };
    let between = |first: f32, second: f32, share: f32| T::of(first + share * (second - first));
    match axis.layout {
        Layout::Time => {
            let frames = |at: usize| at * axis.n_bands..(at + 1) * axis.n_bands;
            for frame in 0..n {
                let (first, second, share) = place(frame);
                let [first, second] = [first, second].map(|at| &before[frames(at)]);
                let values = values[frames(axis.first + frame)].iter_mut();
                for ((value, first), second) in values.zip(first).zip(second) {
                    *value = between(*first, *second, share);
                }
            }
        }
        Layout::Mel => {
            let bands = before.chunks_exact(axis.n_frames).zip(values.chunks_exact_mut(axis.n_frames));
            for (before, band) in bands {
                for (frame, value) in band[axis.valid()].iter_mut().enumerate() {
                    let (first, second, share) = place(frame);
                    *value = between(before[first], before[second], share);
                }
            }
        }
    }
}

/// Moves the frames that are not padding.
pub(super) fn roll(shift: i64, axis: FrameAxis, values: &mut ValuesMut<'_>) {
    let by = shift.rem_euclid(axis.n_valid.max(1) as i64) as usize;
    each_float!(values, values => match axis.layout {
        Layout::Time => {
            let (first, bands) = (axis.first * axis.n_bands, axis.n_bands);
            values[first..first + axis.n_valid * bands].rotate_right(by * bands);
        }
        Layout::Mel => {
            for band in values.chunks_exact_mut(axis.n_frames.max(1)) {
                band[axis.valid()].rotate_right(by);
            }
        }
    });
}
