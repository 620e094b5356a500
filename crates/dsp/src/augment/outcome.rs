//! [`Outcome`]: what users may be told of a clip that was changed. Source: own.

/// What happened to a clip, as a field of a batch: of the first step of a class, and the first partner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The factor by which the recording is played faster.
    Speed,
    /// Decibels by which a `Gain` changes the level.
    Gain,
    /// Decibels of full scale, or LUFS, to which a `Level` sets the level.
    Level,
    /// The share of the samples by which a `Roll` moves them.
    Roll,
    /// Decibels of a `Noise` below the clip.
    NoiseSnr,
    /// Decibels per octave of a `Noise`.
    NoiseSlope,
    /// Decibels of a `Clip`'s limit, relative to the peak.
    Clip,
    /// The share of the frames by which a `FrameRoll` moves them.
    FrameRoll,
    /// The partner's row; -1 if there is none.
    MixIndex,
    /// Where the partner's clip begins in its recording, seconds.
    MixStart,
    /// How many decibels the partner is below the clip.
    MixSnr,
    /// The partner's share of the sum.
    MixWeight,
    /// The row of the impulse response; -1 if there is none.
    ReverbIndex,
}

impl Outcome {
    /// All, with the name of the field, the class of the step, and what users read about it.
    pub const ALL: [(Self, &str, &str, &str); 13] = [
        (Self::Speed, "speed", "Speed", "how many times faster the recording is played"),
        (Self::Gain, "gain_db", "Gain", "change of the level, decibels"),
        (Self::Level, "level_db", "Level", "level that is set, decibels of full scale or LUFS"),
        (Self::Roll, "roll_shift", "Roll", "shift of the samples, as a share of them"),
        (Self::NoiseSnr, "noise_snr_db", "Noise", "level of the clip above the noise, decibels"),
        (Self::NoiseSlope, "noise_slope_db", "Noise", "slope of the noise's spectrum, decibels per octave"),
        (Self::Clip, "clip_db", "Clip", "limit below the peak, decibels"),
        (Self::FrameRoll, "frame_roll_shift", "FrameRoll", "shift of the frames, as a share of them"),
        (Self::MixIndex, "mix_index", "Mix", "row of the partner in its files, -1 for none"),
        (Self::MixStart, "mix_start", "Mix", "start of the partner's clip in its recording, seconds"),
        (Self::MixSnr, "mix_snr_db", "Mix", "level of the clip above the partner, decibels"),
        (Self::MixWeight, "mix_weight", "Mix", "weight of the partner"),
        (
            Self::ReverbIndex,
            "reverb_index",
            "Reverb",
            "row of the impulse response in its files, -1 for none",
        ),
    ];

    /// The class of the step that it is of.
    pub fn class(self) -> &'static str {
        Self::ALL.iter().find(|(outcome, ..)| *outcome == self).map_or("", |(_, _, class, _)| class)
    }

    /// The outcome with that name, the class of its step, and its meaning.
    pub fn named(name: &str) -> Option<(Self, &'static str, &'static str)> {
        let (outcome, _, class, meaning) = Self::ALL.iter().find(|(_, known, ..)| *known == name)?;
        Some((*outcome, *class, *meaning))
    }
}
