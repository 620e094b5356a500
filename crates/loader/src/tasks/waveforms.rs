//! [`WaveformReader`] reads the recordings of a row besides the first, for one worker.
//!
//! The first recording decides where the clip is and how fast it is played; the others are cut at the same
//! samples of the target rate, with the same phase of the resampler. The waveforms of a row then lie one
//! after the other, as channels do: a step of augmentation draws once for all of them, and its gain is that
//! of all. So the sum of the parts stays their mixture. Source: own.

use std::fmt;

use super::{
    clip_decoder::{ClipDecoder, DecodedClip},
    clip_planner::{ClipPlace, ClipPlanner, ClipStart},
    clip_request::{ClipRequest, Take},
    pool::ReadPartner,
    waveform_plan::{OtherRecordings, WaveformPlan},
};
use crate::{Error, ErrorKind, Result, fallible_alloc, source::Record};

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
    /// Of each recording, whether the row has it.
    is_present: Vec<bool>,
    /// All waveforms of the row, one after the other.
    joined: Vec<f32>,
}

struct OtherWaveform {
    reader: Box<dyn ReadPartner>,
    decoder: ClipDecoder,
    planner: ClipPlanner,
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
        let other = |OtherRecordings(pool): &OtherRecordings| OtherWaveform {
            reader: pool.reader(),
            decoder: ClipDecoder::default(),
            planner: planner.clone(),
        };
        Some(Self {
            others: others.iter().map(other).collect(),
            recordings: recordings.clone(),
            names: names.clone(),
            fills_missing: *fills_missing,
            // bounded: as many as are named.
            read: vec![Vec::new(); others.len()],
            // bounded: likewise.
            is_present: vec![true; others.len() + 1],
            joined: Vec::new(),
        })
    }

    /// The waveforms of a row one after the other, of which `first` is that of the first recording: each of
    /// as many channels of `n` samples.
    ///
    /// # Errors
    /// As of the first recording, with the name of the recording.
    pub(super) fn join(
        &mut self,
        record: &Record,
        place: ClipPlace,
        first: &[f32],
        n: usize,
    ) -> Result<&[f32]> {
        let named =
            |name: &str, error: Error| Error { message: format!("{name}: {}", error.message), ..error };
        let others = self.others.iter_mut().zip(&mut self.read).zip(self.names.iter().skip(1));
        for (((other, out), name), present) in others.zip(self.is_present.iter_mut().skip(1)) {
            fallible_alloc::resize(out, first.len(), 0.0)?;
            let is_present = match other.read(record, place, out, n) {
                Err(error) if self.fills_missing && error.kind == ErrorKind::Null => {
                    out.fill(0.0);
                    false
                }
                read => read.map(|()| true).map_err(|error| named(name, error))?,
            };
            *present = is_present;
        }
        fallible_alloc::resize(&mut self.joined, first.len() * self.recordings.len(), 0.0)?;
        let places = self.joined.chunks_exact_mut(first.len().max(1));
        for (&number, out) in self.recordings.iter().zip(places) {
            out.copy_from_slice(number.checked_sub(1).map_or(first, |number| &self.read[number]));
        }
        Ok(&self.joined)
    }

    /// Whether the last row has the recording of each waveform.
    pub(super) fn present(&self) -> impl Iterator<Item = bool> {
        self.recordings.iter().map(|&number| self.is_present.get(number).is_none_or(|present| *present))
    }
}

impl OtherWaveform {
    /// Reads the clip of a row at that place.
    fn read(&mut self, record: &Record, place: ClipPlace, out: &mut [f32], n: usize) -> Result<()> {
        let begin = ClipStart::Same(place);
        let read = self.reader.read(record.index, &ClipRequest::of(&self.planner, Take::Clip(begin)))?;
        let record: Record = read.numbered(record.index, record.seed, 0);
        let opened = self.decoder.open(&self.planner, &record)?;
        let DecodedClip { place, clips } = self.decoder.cut(&self.planner, &record, &opened, (begin, 0))?;
        // A whole recording may have a sample less than the first.
        let len = self.planner.plan().clip_len(&place.crop).min(n);
        for (out, clip) in out.chunks_exact_mut(n.max(1)).zip(clips.chunks_exact(len.max(1))) {
            out[..len].copy_from_slice(&clip[..len]);
            out[len..].fill(0.0);
        }
        Ok(())
    }
}
