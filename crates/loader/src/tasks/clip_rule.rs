//! [`ClipRule`]: which clips of a recording become examples.

use crate::{
    audio::Info,
    contract::SMALL_READ,
    dsp::{CropMode, Padding, SpanRule, WindowEnd, WindowRule, target_len},
    seed::{Purpose, hash},
    source::RowWindows,
};

/// How a clip of a recording is chosen, or several.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClipCrop {
    /// Where in the recording it is.
    pub place: CropPosition,
    /// What becomes of a short recording.
    pub padding: Padding,
    pub draws: CropDraws,
    /// The number of clips of a recording, as an axis of their own; 0 for one without an axis.
    pub views: u32,
    /// Whether a recording that is longer than a clip is a bad record.
    pub takes_whole: bool,
}

/// Where a clip is in its recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CropPosition {
    /// By the length of the recording alone.
    Mode(CropMode),
    /// By spans in columns of the row.
    Spans {
        rule: SpanRule,
        /// Whether a row without spans is an error; otherwise its clip is at a random place.
        are_required: bool,
    },
}

/// The places that are drawn for a clip.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum CropDraws {
    One,
    /// This many, of which the loudest is taken.
    Loudest(u32),
    /// Another one as long as the clip is too quiet.
    Redraw {
        /// The least mean square of a clip that is loud enough.
        power: f64,
        /// The most further places; if all are too quiet, the loudest is taken.
        most: u32,
    },
}

impl From<CropMode> for ClipCrop {
    fn from(mode: CropMode) -> Self {
        Self {
            place: CropPosition::Mode(mode),
            padding: mode.padding(),
            draws: CropDraws::One,
            views: 0,
            takes_whole: false,
        }
    }
}

impl ClipCrop {
    /// The number of clips of a recording.
    pub fn n_clips(&self) -> u32 {
        self.views.max(1)
    }

    /// The places that are certainly looked at for a clip, and the most of them.
    pub(super) fn n_draws(&self) -> (u32, u32) {
        match self.draws {
            CropDraws::One => (1, 1),
            CropDraws::Loudest(n) => (n, n),
            CropDraws::Redraw { most, .. } => (1, 1 + most),
        }
    }

    /// Whether the first place that is drawn is taken, unless it is silent.
    pub(super) fn takes_the_first(&self) -> bool {
        self.n_draws().0 == 1
    }

    /// The random bits of place number `draw` of clip number `view`, from those of the record.
    pub(super) fn seed(&self, seed: u64, view: u32, draw: u32) -> u64 {
        let seed = if view == 0 { seed } else { hash(seed, Purpose::View, [view.into()]) };
        match (draw, self.draws) {
            (0, _) => seed,
            (_, CropDraws::Redraw { .. }) => hash(seed, Purpose::Redraw, [draw.into()]),
            _ => hash(seed, Purpose::Candidate, [draw.into()]),
        }
    }
}

/// How the place of a clip in its recording is chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ClipRule {
    /// A clip of each recording, or several in one example.
    Clip(ClipCrop),
    Windows(WindowRule),
    /// All of each recording; clips have different lengths.
    Whole(WholeRule),
}

/// What becomes of a recording that is longer than a clip may be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WholeRule {
    /// The seconds at which it is cut; `None`: it is a bad record.
    pub cuts_at: Option<f64>,
    /// The value of features behind the end of a recording; `None`: those of silence.
    pub pad_value: Option<f32>,
}

impl ClipRule {
    /// The number of windows of a recording, and how many are worth reading together; a bad record has one,
    /// which tells of it in its turn.
    pub fn windows(&self, info: Option<Info>, rate: u32) -> RowWindows {
        match (self, info) {
            (Self::Clip(_) | Self::Whole(_), _) | (_, None) => RowWindows { count: 1, together: 1 },
            (Self::Windows(rule), Some(info)) => RowWindows {
                count: rule.count(target_len(info.n_samples, info.sample_rate, rate)),
                together: rule.together(rate, info.bytes_per_second(), SMALL_READ),
            },
        }
    }

    /// The number of clips of an example, if they have an axis.
    pub fn views(&self) -> Option<u32> {
        match self {
            Self::Clip(crop) => Some(crop.views).filter(|&n| n > 0),
            Self::Windows(_) | Self::Whole(_) => None,
        }
    }

    /// What is said of whole recordings, if clips are.
    pub fn whole(&self) -> Option<WholeRule> {
        if let Self::Whole(rule) = self { Some(*rule) } else { None }
    }

    /// Whether places are drawn again after silence.
    pub fn redraws(&self) -> bool {
        matches!(self, Self::Clip(ClipCrop { draws: CropDraws::Redraw { .. }, .. }))
    }

    /// Samples on each side of what a clip is about.
    pub(super) fn context(&self) -> usize {
        match self {
            Self::Clip(_) | Self::Whole(_) => 0,
            Self::Windows(rule) => rule.context,
        }
    }

    /// What fills a clip that reaches beyond its recording.
    pub(super) fn padding(&self) -> Padding {
        match self {
            Self::Clip(crop) => crop.padding,
            Self::Windows(_) | Self::Whole(_) => Padding::default(),
        }
    }

    /// Whether the last window of a recording may have fewer samples than the others.
    pub(super) fn leaves_remainders(&self) -> bool {
        matches!(self, Self::Windows(WindowRule { end: WindowEnd::Remainder, .. }))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_draw_has_bits_of_its_own_and_the_first_those_of_the_record() {
        let crop = |draws| ClipCrop { draws, views: 8, ..CropMode::Random.into() };
        let (loudest, redraw) =
            (crop(CropDraws::Loudest(9)), crop(CropDraws::Redraw { power: 0.1, most: 8 }));
        assert_eq!((loudest.n_draws(), redraw.n_draws()), ((9, 9), (1, 9)));
        let mut seen = HashSet::new();
        for record in 0..50 {
            let seed = hash(7, Purpose::Crop, [0, record]);
            assert_eq!([loudest, redraw].map(|crop| crop.seed(seed, 0, 0)), [seed; 2]);
            for view in 0..8 {
                assert_eq!(loudest.seed(seed, view, 0), redraw.seed(seed, view, 0));
                assert!(seen.insert(loudest.seed(seed, view, 0)));
                for draw in 1..9 {
                    assert!(seen.insert(loudest.seed(seed, view, draw)));
                    assert!(seen.insert(redraw.seed(seed, view, draw)));
                }
            }
        }
    }
}
