//! [`WaveformReader`] reads the recordings of a row besides the first, for one worker.
//!
//! The first recording decides where the clip is and how fast it is played; the others are cut at the same
//! samples of the target rate, with the same phase of the resampler. The waveforms of a row then lie one
//! after the other, as channels do: a step of augmentation draws once for all of them, and its gain is that
//! of all. So the sum of the parts stays their mixture. A recording that is independent of the first has a
//! place of its own, drawn as that of a row is, and may be another row's. Source: own.

use std::{fmt, ops::Range};

use super::{
    clip_decoder::{ClipDecoder, DecodedClip},
    clip_planner::{ClipPlace, ClipPlanner, ClipStart},
    clip_request::{ClipRequest, Take},
    mix_source::MixSource,
    mixing::ATTEMPTS,
    pool::ReadPartner,
    waveform_plan::{OtherRecordings, WaveformPlan},
};
use crate::{
    Error, ErrorKind, Result, fallible_alloc,
    seed::{Purpose, hash},
    source::Record,
    transform::augment::PartnerReading,
};

/// How a partner is chosen.
const PARTNER: PartnerReading = PartnerReading { is_own: true, near: None, is_response: false };

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
}

struct OtherWaveform {
    reader: Box<dyn ReadPartner>,
    decoder: ClipDecoder,
    planner: ClipPlanner,
    is_independent: bool,
    partners: Option<MixSource>,
}

impl fmt::Debug for OtherWaveform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Other").field("planner", &self.planner).finish_non_exhaustive()
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
    /// recording: each of as many channels of `n` samples.
    ///
    /// # Errors
    /// As of the first recording, with the name of the recording.
    pub fn join(
        &mut self,
        record: &Record,
        (place, view): (ClipPlace, u32),
        first: &[f32],
        n: usize,
    ) -> Result<()> {
        let named =
            |name: &str, error: Error| Error { message: format!("{name}: {}", error.message), ..error };
        self.found[0].at = record.index;
        let others = self.others.iter_mut().zip(&mut self.read).zip(self.names.iter().skip(1));
        for (number, ((other, out), name)) in (1..).zip(others) {
            fallible_alloc::resize(out, first.len(), 0.0)?;
            let read = match other.is_independent {
                true => other.read_independent(record, (number, view), out, n),
                false => other.read(record, place, out, n),
            };
            self.found[number as usize] = match read {
                Err(error) if self.fills_missing && error.kind == ErrorKind::Null => {
                    out.fill(0.0);
                    FoundClip { is_present: false, at: record.index, valid: None }
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

    /// The samples of waveform number `at` that are not padding, where those of the first recording are
    /// `of_first`.
    pub fn valid(&self, at: usize, of_first: &Range<usize>) -> Range<usize> {
        let found = self.recordings.get(at).and_then(|&number| self.found.get(number));
        found.and_then(|found| found.valid.as_ref()).unwrap_or(of_first).clone()
    }

    /// The smallest range with the samples of all waveforms that are not padding.
    pub fn valid_of_any(&self, of_first: &Range<usize>) -> Range<usize> {
        let all = self.found.iter().filter_map(|found| found.valid.as_ref());
        all.fold(of_first.clone(), |all, valid| all.start.min(valid.start)..all.end.max(valid.end))
    }
}

impl OtherWaveform {
    /// Reads the clip of a row at that place.
    fn read(&mut self, record: &Record, place: ClipPlace, out: &mut [f32], n: usize) -> Result<FoundClip> {
        self.read_at(record.index, (record.seed, ClipStart::Same(place), 0), out, n).map(|_| FoundClip {
            is_present: true,
            at: record.index,
            valid: None,
        })
    }

    /// Reads clip number `view` of recording `number` at a place of its own, in the row's recording or in
    /// that of a partner. A partner that is bad is listed, and another one drawn; where none can be read, and
    /// for a row that has none, its own recording is.
    fn read_independent(
        &mut self,
        record: &Record,
        (number, view): (u64, u32),
        out: &mut [f32],
        n: usize,
    ) -> Result<FoundClip> {
        let drawn = |attempt: usize| hash(record.seed, Purpose::Independent, [number, attempt as u64]);
        let partners = self.partners.clone();
        for attempt in 1..=ATTEMPTS {
            let Some(partners) = &partners else { break };
            let Some(at) = partners.choose(PARTNER, record.index, drawn(attempt)) else { continue };
            let seed = drawn(0);
            match self.read_at(at, (seed, ClipStart::rule(at, seed), view), out, n) {
                Ok(valid) => return Ok(FoundClip { is_present: true, at, valid: Some(valid) }),
                Err(error) if error.kind.is_record() => partners.report(PARTNER, at, error),
                Err(error) => return Err(partners.unread(PARTNER, at, &error)),
            }
        }
        let (at, seed) = (record.index, drawn(0));
        let valid = self.read_at(at, (seed, ClipStart::rule(at, seed), view), out, n)?;
        Ok(FoundClip { is_present: true, at, valid: Some(valid) })
    }

    /// Reads the clip of the row at position `at` that begins there; returns which of its samples are not
    /// padding.
    fn read_at(
        &mut self,
        at: u64,
        (seed, begin, view): (u64, ClipStart, u32),
        out: &mut [f32],
        n: usize,
    ) -> Result<Range<usize>> {
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
        Ok(if plan.crop.padding().is_silent() { place.crop.taken() } else { 0..n })
    }
}
