//! [`Mixer`] does the steps of augmentation that read other recordings: to mix them into a clip, or to
//! convolve it with one.
//!
//! A worker reads a partner itself, by row number, so it never waits for another record. Which row it is, and
//! where its clip begins, are draws of the step: a partner that cannot be decoded is listed and drawn again,
//! at most [`ATTEMPTS`] times, and changes nothing else. Source: own.

use std::fmt;

use super::{
    clip_decoder::{ClipDecoder, DecodedClip},
    clip_planner::{AudioPlan, ClipPlace, ClipPlanner, ClipStart},
    clip_request::{ClipRequest, Take},
    clip_rule::ClipRule,
    mix_source::MixSource,
};
use crate::{
    Result,
    dsp::{
        Crop,
        augment::{
            Amount, CleanTarget, Clips, Convolver, Draws, MixTargets, Mixing, Outcome, PartnerReading,
            References, StepKind,
        },
    },
    fallible_alloc,
    fields::Row,
    seed::below,
    source::Record,
    targets::{ClipPiece, ClipSeconds, push_repeated, roll_pieces},
    tasks::pool::ReadPartner,
};

/// Draws of a partner before the clip stays without.
pub(super) const ATTEMPTS: usize = 8;

/// A partner that was mixed in.
#[derive(Debug)]
pub(super) struct MixedPartner {
    /// The number of the step among those that mix.
    pub step: usize,
    /// Its position in its source.
    pub at: u64,
    /// Whether that is the loader's own.
    pub is_own: bool,
    /// Where its clip is in its recording.
    pub clip: ClipSeconds,
    /// Its other columns, if targets are mixed.
    pub values: Row,
    pub amount: Amount,
    pub targets: MixTargets,
}

/// One worker's part of the steps that read other recordings.
#[derive(Debug, Default)]
pub(super) struct Mixer {
    makers: Vec<Maker>,
    convolver: Convolver,
    /// What was mixed into the last clip, in order.
    pub mixed: Vec<MixedPartner>,
    /// The position of the impulse response of the first `Reverb`, if one was drawn for the last clip.
    pub response: Option<u64>,
    /// What of which recording is where in the last clip: number 0 is its own, number n what was mixed in as
    /// the nth; of partners of which targets take nothing, none.
    pub pieces: Vec<ClipPiece>,
    /// Whether these are needed.
    pub follows_time: bool,
}

struct Maker {
    mix_sources: MixSource,
    reader: Box<dyn ReadPartner>,
    decoder: ClipDecoder,
    planner: ClipPlanner,
    reading: PartnerReading,
    /// The places of a response with one channel, which serves all of the clip's.
    mono: Option<ClipPlanner>,
    /// The partner or response, of the shape of a clip.
    partner: Vec<f32>,
    /// Where the partner is from: the seconds of its row before it, its samples, and with which of them it
    /// begins.
    taken: (f64, usize, usize),
}

impl fmt::Debug for Maker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Maker").field("partners", &self.mix_sources).finish_non_exhaustive()
    }
}

impl Mixer {
    /// For the steps in the plan of these places, and examples whose targets may follow the time of clips.
    pub(super) fn new(planner: &ClipPlanner, follows_time: bool) -> Self {
        let readings = planner.plan().augment.readings().zip(&planner.plan().mix_sources);
        let makers = readings.map(|((_, reading), mix_sources)| Maker {
            mix_sources: mix_sources.clone(),
            reader: mix_sources.reader(),
            decoder: ClipDecoder::default(),
            planner: planner.of_others(reading),
            reading,
            mono: reading.is_response.then(|| planner.of_others(reading).of_one_channel()),
            partner: Vec::new(),
            taken: Default::default(),
        });
        Self { makers: makers.collect(), follows_time, ..Self::default() }
    }

    /// Begins a clip, which has its own recording alone, played at this speed.
    ///
    /// # Errors
    /// If an allocation failed.
    pub fn begin_clip(&mut self, plan: &AudioPlan, (crop, speed): (&Crop, f64)) -> Result<()> {
        if !self.follows_time {
            return Ok(());
        }
        let at = if plan.crop.padding().repeats() { 0..plan.clip_len(crop) } else { crop.taken() };
        let piece = ClipPiece { at, start: plan.seconds(crop.start, speed), speed, part: 0 };
        let rate = f64::from(plan.features.sample_rate());
        self.pieces.clear();
        push_repeated(&mut self.pieces, piece, (crop.len, 0), rate)
    }

    /// Does a step for the clips of the record at position `own`.
    ///
    /// # Errors
    /// If a recording cannot be read by the system, or an allocation failed.
    pub(super) fn apply(
        &mut self,
        kind: &StepKind,
        own: u64,
        draws: &mut Draws,
        clips: &mut Clips<'_>,
        mut references: References<'_>,
    ) -> Result<()> {
        match kind {
            StepKind::Mix(mixing) => self.mix(mixing, own, draws, clips, &mut references),
            StepKind::Reverb { clean } => self.reverberate(*clean, own, draws, clips, &mut references),
            StepKind::Roll { .. } if self.follows_time => {
                let rolled = kind.rolled(draws, clips.valid.len()).unwrap_or_default();
                roll_pieces(&mut self.pieces, &clips.valid, rolled, clips.sample_rate.into())
            }
            _ => Ok(()),
        }
    }

    fn reverberate(
        &mut self,
        clean: Option<CleanTarget>,
        own: u64,
        draws: &mut Draws,
        clips: &mut Clips<'_>,
        references: &mut References<'_>,
    ) -> Result<()> {
        let Some(maker) = self.makers.get_mut(draws.reading()) else { return Ok(()) };
        let Some((at, ..)) = maker.next(own, draws, (clips.n, clips.samples.len()))? else { return Ok(()) };
        if draws.number() == 0 {
            self.response = Some(at);
        }
        self.convolver.apply(clips, &maker.partner, clean, references)
    }

    fn mix(
        &mut self,
        mixing: &Mixing,
        own: u64,
        draws: &mut Draws,
        clips: &mut Clips<'_>,
        references: &mut References<'_>,
    ) -> Result<()> {
        let (step, reading) = (draws.number(), draws.reading());
        let Some(maker) = self.makers.get_mut(reading) else { return Ok(()) };
        let level = mixing.level.of_clip(clips)?;
        let n = 1 + below(draws.bits(), mixing.most as u64);
        // A partner that is bad or silent leaves no gap in the parts.
        let mut place = 0;
        for _ in 0..n {
            let amount = mixing.level.draw(draws);
            let Some((at, clip, mut values)) = maker.next(own, draws, (clips.n, clips.samples.len()))? else {
                continue;
            };
            if !amount.mix(&mixing.level, clips, level, (place, &maker.partner), references)? {
                continue;
            }
            place += 1;
            let targets = mixing.targets;
            if targets == MixTargets::Keep {
                values.clear();
            } else if self.follows_time {
                let (start, len, from) = maker.taken;
                let part = self.mixed.len() + 1;
                let piece = ClipPiece { at: 0..clips.n, start, speed: clip.speed, part };
                push_repeated(&mut self.pieces, piece, (len, from), clips.sample_rate.into())?;
            }
            // bounded: `most` of each step.
            self.mixed.push(MixedPartner { step, at, is_own: mixing.is_own, clip, values, amount, targets });
        }
        Ok(())
    }
}

/// What steps will do to the first clip of a record, before any recording is read: with the random bits of
/// the record at position `own`. A partner that turns out bad or silent is not known yet.
/// Where a partner's clip begins depends on its recording: NaN.
pub fn planned_outcome(plan: &AudioPlan, (own, seed): (u64, u64), outcome: Outcome) -> PlannedValue {
    let augment = &plan.augment;
    let bits = if let ClipRule::Clip(crop) = plan.crop { crop.seed(seed, 0, 0) } else { seed };
    let bits = plan.bits_of(outcome, bits);
    let partner = |reading: PartnerReading, draws: &mut Draws| {
        let mix_sources = plan.mix_sources.get(draws.reading())?;
        (0..ATTEMPTS).find_map(|_| candidate(mix_sources, reading, own, draws).0)
    };
    let first = augment.first_reading(bits, outcome == Outcome::ReverbIndex);
    match (outcome, first) {
        (Outcome::MixStart, _) => PlannedValue::Number(f64::NAN),
        (Outcome::MixIndex | Outcome::ReverbIndex, None) => PlannedValue::Row(None),
        (Outcome::ReverbIndex, Some((kind, mut draws))) => {
            PlannedValue::Row(kind.reading().and_then(|reading| partner(reading, &mut draws)))
        }
        (Outcome::MixSnr | Outcome::MixWeight, None) => PlannedValue::Number(f64::NAN),
        (Outcome::MixIndex | Outcome::MixSnr | Outcome::MixWeight, Some((kind, mut draws))) => {
            let StepKind::Mix(mixing) = kind else { return PlannedValue::Row(None) };
            let _number = draws.bits();
            let amount = mixing.level.draw(&mut draws);
            let row = kind.reading().and_then(|reading| partner(reading, &mut draws));
            match (outcome, amount) {
                (Outcome::MixIndex, _) if mixing.is_own => PlannedValue::OwnRow(row),
                (Outcome::MixIndex, _) => PlannedValue::Row(row),
                (Outcome::MixSnr, Amount::Snr(number)) | (Outcome::MixWeight, Amount::Weight(number))
                    if row.is_some() =>
                {
                    PlannedValue::Number(number)
                }
                _ => PlannedValue::Number(f64::NAN),
            }
        }
        (Outcome::Speed, _) => PlannedValue::Number(augment.speed(bits)),
        _ => PlannedValue::Number(augment.drawn(bits, outcome)),
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PlannedValue {
    /// A number; NaN where the step is not applied.
    Number(f64),
    /// A position in the step's source, if one is read.
    Row(Option<u64>),
    /// The same in the loader's own.
    OwnRow(Option<u64>),
}

/// The position of a partner by the next draws, if it is to be read; and the draws of its clip and its phase.
fn candidate(
    mix_sources: &MixSource,
    reading: PartnerReading,
    own: u64,
    draws: &mut Draws,
) -> (Option<u64>, [u64; 2]) {
    let row = draws.bits();
    // Nothing else is drawn for a response.
    let clip = if reading.is_response { [0, 0] } else { [draws.bits(), draws.bits()] };
    (mix_sources.choose(reading, own, row), clip)
}

impl Maker {
    /// Reads a partner or response for clips of so many samples, and of so many of all channels; returns its
    /// position, its place and its columns.
    fn next(
        &mut self,
        own: u64,
        draws: &mut Draws,
        shape: (usize, usize),
    ) -> Result<Option<(u64, ClipSeconds, Row)>> {
        for _ in 0..ATTEMPTS {
            let (at, [place, phase]) = candidate(&self.mix_sources, self.reading, own, draws);
            let Some(at) = at else { continue };
            match self.read(at, place, phase, shape) {
                Ok(Some((clip, values))) => return Ok(Some((at, clip, values))),
                Ok(None) => {}
                Err(error) if error.kind.is_record() => self.mix_sources.report(self.reading, at, error),
                Err(error) => return Err(self.mix_sources.unread(self.reading, at, &error)),
            }
        }
        Ok(None)
    }

    /// Reads the clip of a partner; a short one is repeated, from a random sample on. Zeros follow a short
    /// response. Several waveforms of a row get the same one each. `None` if it has no samples.
    fn read(
        &mut self,
        at: u64,
        place: u64,
        phase: u64,
        (n, len): (usize, usize),
    ) -> Result<Option<(ClipSeconds, Row)>> {
        self.planner.set_clip_samples(n);
        if let Some(mono) = &mut self.mono {
            mono.set_clip_samples(n);
        }
        let begin = ClipStart::rule(at, place);
        let record = self.reader.read(at, &ClipRequest::of(&self.planner, Take::Clip(begin)))?;
        let record: Record = record.numbered(at, place, 0);
        let opened = self.decoder.open(&self.planner, &record)?;
        let row_start = opened.row_start();
        let planner = self.mono.as_ref().filter(|_| opened.info.channels == 1).unwrap_or(&self.planner);
        let DecodedClip { place: ClipPlace { crop, speed, .. }, clips } =
            self.decoder.cut(planner, &record, &opened, (begin, 0))?;
        if crop.len == 0 {
            return Ok(None);
        }
        fallible_alloc::resize(&mut self.partner, len, 0.0)?;
        let from = if crop.len < n { below(phase, crop.len as u64) as usize } else { 0 };
        for (out, clip) in self.partner.chunks_exact_mut(n).zip(clips.chunks_exact(n).cycle()) {
            if self.reading.is_response {
                out.copy_from_slice(clip);
                continue;
            }
            let part = &clip[crop.taken()];
            let mut from = from;
            let mut left = out;
            while !left.is_empty() {
                let len = left.len().min(part.len() - from);
                let (now, rest) = left.split_at_mut(len);
                now.copy_from_slice(&part[from..from + len]);
                (left, from) = (rest, 0);
            }
        }
        let plan = self.planner.plan();
        let clip = plan.about(&crop, row_start, speed);
        self.taken = (plan.seconds(crop.start, speed), crop.len, from);
        drop(opened);
        Ok(Some((clip, record.values)))
    }
}
