//! [`WaveformReader`] reads the recordings of a row besides the first, for one worker.
//!
//! The first recording decides where the clip is and how fast it is played; the others are cut at the same
//! samples of the target rate, with the same phase of the resampler. The waveforms of a row then lie one
//! after the other, as channels do: a step of augmentation draws once for all of them, and its gain is that
//! of all. So the sum of the parts stays their mixture. A recording that is independent of the first has a
//! place of its own, drawn as that of a row is, and may be another row's; steps change it by itself, with
//! draws of its own. Source: own.

use std::{fmt, ops::Range};

use super::{
    clip_decoder::{ClipDecoder, DecodedClip},
    clip_planner::{AudioPlan, ClipPlace, ClipPlanner, ClipStart},
    clip_request::{ClipRequest, Take},
    mix_source::MixSource,
    mixing::{ATTEMPTS, Mixer},
    pool::ReadPartner,
    waveform_plan::{OtherRecordings, WaveformPlan},
};
use crate::{
    Error, ErrorKind, Result,
    dsp::augment::{Augment, AugmentScratch, Clips, Draws, Outcome, PartnerReading, References, StepKind},
    fallible_alloc,
    seed::{Purpose, hash},
    source::Record,
};

/// How a partner is chosen.
const PARTNER: PartnerReading = PartnerReading { is_own: true, near: None, is_response: false };

/// Waveforms of a row that steps of augmentation change together.
#[derive(Debug)]
pub(super) struct WaveformGroup {
    pub waveforms: Range<usize>,
    pub augment: Augment,
    /// Whether the impulse response that a batch names is theirs.
    names_response: bool,
}

/// The random bits of the steps of a waveform that is independent of the first, of those of the clip.
fn bits_alone(of_clip: u64, waveform: usize) -> u64 {
    hash(of_clip, Purpose::Independent, [waveform as u64])
}

impl AudioPlan {
    /// The first of the waveforms that the step of an outcome changes, if they are independent of the first
    /// recording.
    fn alone(&self, outcome: Outcome) -> Option<usize> {
        let start = self.augment.only_of(outcome)?.start;
        self.waveforms.as_ref().filter(|plan| start >= plan.n_together()).map(|_| start)
    }

    /// The random bits of the step of an outcome, of those of the clip.
    pub(super) fn bits_of(&self, outcome: Outcome, of_clip: u64) -> u64 {
        self.alone(outcome).map_or(of_clip, |waveform| bits_alone(of_clip, waveform))
    }
}

impl WaveformGroup {
    /// Those that go with the first recording, and each that is independent of it.
    pub(super) fn all(plan: &AudioPlan) -> Vec<Self> {
        let n = plan.n_waveforms();
        let n_together = plan.waveforms.as_ref().map_or(n, WaveformPlan::n_together);
        let each = (n_together..n).map(|at| at..at + 1);
        let named = plan.alone(Outcome::ReverbIndex).unwrap_or(0);
        let group = |waveforms: Range<usize>| Self {
            augment: match n_together == n {
                true => plan.augment.clone(),
                false => plan.augment.of_waveforms(&waveforms),
            },
            names_response: waveforms.contains(&named),
            waveforms,
        };
        std::iter::once(0..n_together).chain(each).map(group).collect()
    }

    /// The random bits of its steps, of those of the clip.
    pub(super) fn bits(&self, of_clip: u64) -> u64 {
        match self.waveforms.start {
            0 => of_clip,
            at => bits_alone(of_clip, at),
        }
    }
}

/// Changes the waveforms of the record at position `own` by the steps of each group, with these random bits.
pub(super) fn change_waveforms(
    (groups, valid): (&[WaveformGroup], &mut [Range<usize>]),
    (bits, own): (u64, u64),
    (samples, n, sample_rate): (&mut [f32], usize, u32),
    (scratch, mixer): (&mut AugmentScratch, &mut Mixer),
) -> Result<()> {
    let each = samples.len() / groups.last().map_or(1, |group| group.waveforms.end).max(1);
    for (group, valid) in groups.iter().zip(valid) {
        let Range { start, end } = group.waveforms;
        let samples = &mut samples[start * each..end * each];
        let mut clips = Clips { samples, n, valid: valid.clone(), sample_rate };
        let response = mixer.response;
        let mut apply =
            |kind: &StepKind, draws: &mut Draws, clips: &mut Clips<'_>, references: References<'_>| {
                // Targets follow the time of the first recording.
                match kind {
                    StepKind::Roll { .. } if start > 0 => Ok(()),
                    _ => mixer.apply(kind, own, draws, clips, references),
                }
            };
        group.augment.waveforms(group.bits(bits), &mut clips, scratch, &mut apply)?;
        *valid = clips.valid;
        if !group.names_response {
            mixer.response = response;
        }
    }
    Ok(())
}

/// Reads the waveforms of rows, for one worker.
#[derive(Debug)]
pub(super) struct WaveformReader {
    others: Vec<OtherWaveform>,
    /// As in [`WaveformPlan`].
    recordings: Vec<usize>,
    names: Vec<String>,
    /// The clip of each of the others.
    read: Vec<Vec<f32>>,
    fills_missing: bool,
    /// What was read of each recording but the first, whose own is at the front.
    found: Vec<FoundClip>,
    /// All waveforms of the row, one after the other.
    joined: Vec<f32>,
}

/// The clip of a recording of a row.
#[derive(Debug, Clone, Default)]
struct FoundClip {
    /// Whether the row has the recording.
    is_present: bool,
    /// The position of the row that it is from.
    at: u64,
    /// Its samples that are not padding, if that is not known from the first recording.
    valid: Option<Range<usize>>,
    /// How many of them are the recording's.
    n_valid: usize,
}

struct OtherWaveform {
    reader: Box<dyn ReadPartner>,
    decoder: ClipDecoder,
    planner: ClipPlanner,
    is_independent: bool,
    partners: Option<[MixSource; 2]>,
}

impl fmt::Debug for OtherWaveform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OtherWaveform").field("planner", &self.planner).finish_non_exhaustive()
    }
}

impl WaveformReader {
    /// For the places of these clips; `None` if a row has one recording.
    pub(super) fn new(planner: &ClipPlanner) -> Option<Self> {
        let WaveformPlan { recordings, names, others, fills_missing, .. } =
            planner.plan().waveforms.as_ref()?;
        let other = |OtherRecordings { pool, is_independent, partners }: &OtherRecordings| OtherWaveform {
            reader: pool.reader(),
            decoder: ClipDecoder::default(),
            planner: if *is_independent { planner.independent() } else { planner.clone() },
            is_independent: *is_independent,
            partners: partners.clone(),
        };
        Some(Self {
            others: others.iter().map(other).collect(),
            recordings: recordings.clone(),
            names: names.clone(),
            fills_missing: *fills_missing,
            // bounded: as many as are named.
            read: vec![Vec::new(); others.len()],
            // bounded: likewise.
            found: vec![FoundClip { is_present: true, ..FoundClip::default() }; others.len() + 1],
            joined: Vec::new(),
        })
    }

    /// Reads the waveforms of clip number `view` of a row, of which `first` is that of the first
    /// recording, with so many samples of it: each of as many channels of `n` samples.
    ///
    /// # Errors
    /// As of the first recording, with the name of the recording.
    pub fn join(
        &mut self,
        record: &Record,
        (place, view): (ClipPlace, u32),
        (first, n_valid): (&[f32], usize),
        n: usize,
    ) -> Result<()> {
        let named = |name: &str, error: Error| {
            let remedy = match error.kind {
                ErrorKind::Null => "; missing_audio=\"zeros\" puts zeros in its place",
                _ => "",
            };
            Error { message: format!("{name}: {}{remedy}", error.message), ..error }
        };
        self.found[0].at = record.index;
        self.found[0].n_valid = n_valid;
        let others = self.others.iter_mut().zip(&mut self.read).zip(self.names.iter().skip(1));
        for (number, ((other, out), name)) in (1..).zip(others) {
            fallible_alloc::resize(out, first.len(), 0.0)?;
            let read = match other.is_independent {
                true => other.read_independent(record, (number, view, self.fills_missing), out, n),
                false => other.read(record, place, out, n),
            };
            self.found[number as usize] = match read {
                Err(error) if self.fills_missing && error.kind == ErrorKind::Null => {
                    out.fill(0.0);
                    // Zeros count as sound.
                    let valid = other.is_independent.then_some(0..n);
                    FoundClip { is_present: false, at: record.index, valid, n_valid: 0 }
                }
                read => read.map_err(|error| named(name, error))?,
            };
        }
        fallible_alloc::resize(&mut self.joined, first.len() * self.recordings.len(), 0.0)?;
        let places = self.joined.chunks_exact_mut(first.len().max(1));
        for (&number, out) in self.recordings.iter().zip(places) {
            out.copy_from_slice(number.checked_sub(1).map_or(first, |number| &self.read[number]));
        }
        Ok(())
    }

    /// The waveforms of the last row, one after the other.
    pub fn joined(&self) -> &[f32] {
        &self.joined
    }

    /// Of each waveform of the last row what was found.
    fn each(&self) -> impl Iterator<Item = &FoundClip> {
        self.recordings.iter().filter_map(|&number| self.found.get(number))
    }

    /// Whether the last row has the recording of each waveform.
    pub fn present(&self) -> impl Iterator<Item = bool> {
        self.each().map(|found| found.is_present)
    }

    /// The position of the row of each waveform's recording.
    pub fn positions(&self) -> impl Iterator<Item = u64> {
        self.each().map(|found| found.at)
    }

    /// The samples of each waveform that are its recording's.
    pub fn n_valid(&self) -> impl Iterator<Item = usize> {
        self.each().map(|found| found.n_valid)
    }

    /// The samples of waveform number `at` that are not padding, where those of the first recording are
    /// `of_first`.
    pub fn valid(&self, at: usize, of_first: &Range<usize>) -> Range<usize> {
        let found = self.recordings.get(at).and_then(|&number| self.found.get(number));
        found.and_then(|found| found.valid.as_ref()).unwrap_or(of_first).clone()
    }
}

impl OtherWaveform {
    /// Reads the clip of a row at that place.
    fn read(&mut self, record: &Record, place: ClipPlace, out: &mut [f32], n: usize) -> Result<FoundClip> {
        let found = self.read_at(record.index, (record.seed, ClipStart::Same(place), 0), out, n)?;
        Ok(FoundClip { valid: None, ..found })
    }

    /// Reads clip number `view` of recording `number` at a place of its own, in the row's recording or in
    /// that of a partner. A partner that is bad is listed, and another one drawn; where none can be read, and
    /// for a row that has none, its own recording is.
    fn read_independent(
        &mut self,
        record: &Record,
        (number, view, fills_missing): (u64, u32, bool),
        out: &mut [f32],
        n: usize,
    ) -> Result<FoundClip> {
        let drawn = |attempt: usize| hash(record.seed, Purpose::Independent, [number, attempt as u64]);
        let partners = self.partners.clone();
        let tried = partners.iter().flatten().flat_map(|partners| [partners; ATTEMPTS]);
        for (attempt, partners) in (1..).zip(tried) {
            let Some(at) = partners.choose(PARTNER, record.index, drawn(attempt)) else { continue };
            let seed = drawn(0);
            match self.read_at(at, (seed, ClipStart::rule(at, seed), view), out, n) {
                Ok(found) => return Ok(found),
                // Without it the row is as good as any.
                Err(error) if fills_missing && error.kind == ErrorKind::Null => {}
                Err(error) if error.kind.is_record() => partners.report(PARTNER, at, error),
                Err(error) => return Err(partners.unread(PARTNER, at, &error)),
            }
        }
        let (at, seed) = (record.index, drawn(0));
        self.read_at(at, (seed, ClipStart::rule(at, seed), view), out, n)
    }

    /// Reads the clip of the row at position `at` that begins there.
    fn read_at(
        &mut self,
        at: u64,
        (seed, begin, view): (u64, ClipStart, u32),
        out: &mut [f32],
        n: usize,
    ) -> Result<FoundClip> {
        let read = self.reader.read(at, &ClipRequest::of(&self.planner, Take::Clip(begin)))?;
        let record: Record = read.numbered(at, seed, 0);
        let opened = self.decoder.open(&self.planner, &record)?;
        let DecodedClip { place, clips } =
            self.decoder.cut(&self.planner, &record, &opened, (begin, view))?;
        let plan = self.planner.plan();
        // A whole recording may have a sample less than the first.
        let len = plan.clip_len(&place.crop).min(n);
        for (out, clip) in out.chunks_exact_mut(n.max(1)).zip(clips.chunks_exact(len.max(1))) {
            out[..len].copy_from_slice(&clip[..len]);
            out[len..].fill(0.0);
        }
        let valid = if plan.crop.padding().is_silent() { place.crop.taken() } else { 0..n };
        let n_valid = plan.valid_samples(&place.crop);
        Ok(FoundClip { is_present: true, at, valid: Some(valid), n_valid })
    }
}
