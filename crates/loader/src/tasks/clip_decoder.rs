//! [`ClipDecoder`] decodes the parts of a recording that clips and sections need, and cuts them out.

use std::{ops::Range, sync::atomic::Ordering};

use smallvec::SmallVec;

use super::{
    clip_planner::{AudioPlan, ClipPlace, ClipPlanner, ClipRead, ClipStart, MOST_VALUES, Section, Waveform},
    clip_rule::{ClipRule, CropDraws},
};
use crate::{
    Error, ErrorKind, Result,
    audio::{AudioDecoder, Info, Planes},
    dsp::{Crop, KeptChannels, sums::squares, target_len},
    fallible_alloc,
    source::{OpenRecording, Record, RowExtent, WindowRun, info_of_row},
};

/// Cuts clips out of recordings, for one worker.
#[derive(Debug, Default)]
pub(super) struct ClipDecoder {
    decoder: AudioDecoder,
    planes: Planes,
    /// Their range in the row of the record at hand.
    held: Option<Range<u64>>,
    mono: Vec<f32>,
    clip: Vec<f32>,
    best: Vec<f32>,
}

pub(super) struct DecodedClip<'a> {
    pub place: ClipPlace,
    /// Those of the channels that are kept, one after the other.
    pub clips: &'a [f32],
}

pub(super) struct OpenedRow<'a> {
    recording: OpenRecording<'a>,
    /// Of the row, which may be a segment of it.
    pub info: Info,
    /// The row's samples in the recording.
    row: Range<u64>,
}

impl OpenedRow<'_> {
    fn extent(&self) -> RowExtent {
        let Info { sample_rate, n_samples, .. } = self.info;
        RowExtent { sample_rate, start: self.row.start, n_samples }
    }

    /// Where the row begins in its recording, seconds.
    pub(super) fn row_start(&self) -> f64 {
        self.extent().start_seconds()
    }
}

impl ClipDecoder {
    /// Opens the recording of a record.
    ///
    /// # Errors
    /// As [`AudioDecoder::open`]; [`ErrorKind::TooLarge`] for one that is longer than the plan allows.
    pub(super) fn open<'a>(&mut self, planner: &ClipPlanner, record: &'a Record) -> Result<OpenedRow<'a>> {
        self.held = None;
        let recording = OpenRecording::open(&mut self.decoder, &record.payload)?;
        let (info, row) = info_of_row(recording.info(), record.payload.segment())?;
        if record.payload.file.is_none() {
            info.check_seconds(planner.plan().max_decoded_seconds)?;
        }
        Ok(OpenedRow { recording, info, row })
    }

    /// Decodes a span of the row, of each channel or of what the plan's features need.
    fn decode(
        &mut self,
        planner: &ClipPlanner,
        record: &Record,
        opened: &OpenedRow<'_>,
        span: Range<u64>,
        takes_mean: bool,
    ) -> Result<()> {
        let OpenedRow { recording, info, row } = opened;
        if record.payload.file.is_some() {
            // Of a recording in a file of its own, this span alone is read.
            Info { n_samples: span.end - span.start, ..*info }
                .check_seconds(planner.plan().max_decoded_seconds)?;
        }
        self.held = None;
        let Self { decoder, planes, held, .. } = self;
        decoder.damage = planner.plan().damage;
        let mut decode = |span: Range<u64>, out: &mut Planes, is_shared: bool| {
            out.take_mean(takes_mean);
            recording.read(decoder, row.start + span.start..row.start + span.end, out)?;
            // How much of a window may be silent is judged for the window as a whole.
            match is_shared && decoder.filled().places > 0 {
                true => Err(Error::new(ErrorKind::Corrupt, "a part of the window is damaged")),
                false => Ok(()),
            }
        };
        if let Some(WindowRun { positions, spans }) = record.payload.window_run.as_deref()
            && info.codec.is_worth_sharing()
        {
            let number = record.index.saturating_sub(positions.start) as usize;
            let of = |at| {
                let begin = ClipStart::rule(at, record.seed);
                planner.clip_read(opened.extent(), &record.values, begin).ok().map(|read| read.span)
            };
            let all = || positions.clone().map(of).collect();
            let shared = |span: Range<u64>, out: &mut Planes| decode(span, out, true);
            if spans.read(number, &span, all, planner.blocks(), shared, planes)? {
                *held = Some(span);
                return Ok(());
            }
        }
        decode(span.clone(), planes, false)?;
        *held = Some(span);
        Ok(())
    }

    /// The samples of a section of the row.
    ///
    /// # Errors
    /// As [`Self::open`] and of the decoder; [`ErrorKind::Config`] for a section that begins outside of the
    /// recording, [`ErrorKind::TooLarge`] for too many samples.
    pub(super) fn waveform(
        &mut self,
        planner: &ClipPlanner,
        record: &Record,
        section: &Section,
    ) -> Result<Waveform> {
        let opened = self.open(planner, record)?;
        let info = opened.info;
        let (samples, rate) = section.samples(info.sample_rate, info.n_samples)?;
        let values = (samples.end - samples.start).saturating_mul(info.channels.into());
        if values > MOST_VALUES {
            let message = format!(
                "{values} samples of all channels, at most {MOST_VALUES} are read at once; give seconds"
            );
            return Err(Error::new(ErrorKind::TooLarge, message));
        }
        let resampler = planner.resampler(info.sample_rate, rate)?;
        let span = resampler.input_span(samples.clone(), info.n_samples);
        let first = span.start;
        self.decode(planner, record, &opened, span, false)?;
        let n = (samples.end - samples.start) as usize; // at most `MOST_VALUES`
        let channels = usize::from(info.channels);
        let mut found = Vec::new();
        fallible_alloc::resize(&mut found, n.saturating_mul(channels), 0.0)?;
        for channel in (0..channels).filter(|_| n > 0) {
            let out = &mut found[channel * n..(channel + 1) * n];
            resampler.resample(self.planes.channel(channel), first, samples.start, out)?;
        }
        Ok(Waveform { samples: found, sample_rate: rate, info })
    }

    /// Decodes all that the clips of an example certainly need, if that is less than what they need one by
    /// one. If it fails, the clips tell, each for what it needs.
    pub(super) fn decode_ahead(
        &mut self,
        planner: &ClipPlanner,
        record: &Record,
        opened: &OpenedRow<'_>,
        begin: ClipStart,
    ) {
        let of = opened.extent();
        let (mut hull, mut each, mut n) = (None, 0, 0);
        for begin in planner.each(begin, false) {
            let Ok(ClipRead { span, .. }) = planner.clip_read(of, &record.values, begin) else { return };
            each += span.end - span.start;
            n += 1;
            hull = Some(joined(hull, span));
        }
        if let Some(hull) = hull.filter(|hull| n > 1 && hull.end - hull.start <= each) {
            let _ = self.decode(planner, record, opened, hull, takes_mean(planner));
        }
    }

    /// Clip number `view` of the row, one waveform for each channel that is kept, and its crop. Decoded
    /// samples of one channel that need neither resampling nor padding are returned without a copy, if there
    /// is one place to look at.
    ///
    /// # Errors
    /// Of the decoder; those of the places.
    pub(super) fn cut(
        &mut self,
        planner: &ClipPlanner,
        record: &Record,
        opened: &OpenedRow<'_>,
        (begin, view): (ClipStart, u32),
    ) -> Result<DecodedClip<'_>> {
        let AudioPlan { features, crop: rule, .. } = planner.plan();
        let info = opened.info;
        let rule = match (begin, rule) {
            (ClipStart::Rule { .. }, ClipRule::Clip(crop)) => Some(crop),
            _ => None,
        };
        let (certain, most) = rule.map_or((1, 1), |crop| crop.n_draws());
        let power = match rule.map(|crop| crop.draws) {
            Some(CropDraws::Redraw { power, .. }) => power,
            _ => f64::INFINITY,
        };
        let mut tried = SmallVec::<[Crop; 64]>::new();
        let mut best: Option<(f64, ClipPlace)> = None;
        for draw in 0..most {
            let begin = begin.drawn(rule, view, draw);
            let read = planner.clip_read(opened.extent(), &record.values, begin)?;
            let crop = read.crop;
            // The same samples are as loud.
            if tried.iter().any(|known| known.samples() == crop.samples()) {
                continue;
            }
            if draw >= certain {
                planner.redraws().fetch_add(1, Ordering::Relaxed);
            }
            let seed = match begin {
                ClipStart::Rule { seed, .. } | ClipStart::Same(ClipPlace { seed, .. }) => seed,
                ClipStart::At(_) => record.seed,
            };
            let place = ClipPlace {
                crop,
                n_samples: target_len(info.n_samples, read.played, features.sample_rate()),
                speed: f64::from(read.played) / f64::from(info.sample_rate),
                seed,
                rates: [info.sample_rate, read.played],
            };
            self.hold(planner, record, opened, &read.span)?;
            features.channels().check(self.planes.channels())?;
            let clip_len = planner.plan().clip_len(&crop);
            let is_ready = read.is_copy && crop.len == clip_len;
            if most == 1 && is_ready && features.channels().n_kept() == 1 {
                let within = self.within(&read.span);
                let clips = features.channels().waveform(0, &self.planes, within, &mut self.mono)?;
                return Ok(DecodedClip { place, clips });
            }
            self.place(planner, read, is_ready, seed)?;
            if most == 1 {
                return Ok(DecodedClip { place, clips: &self.clip });
            }
            let taken = self.clip.chunks_exact(clip_len.max(1)).map(|clip| squares(&clip[crop.taken()]));
            let n = crop.len * features.channels().n_kept();
            let found = taken.sum::<f64>() / n.max(1) as f64;
            if best.is_none_or(|(loudest, ..)| found > loudest) {
                best = Some((found, place));
                std::mem::swap(&mut self.clip, &mut self.best);
            }
            // bounded: at most 65 places, of which 64 are on the stack.
            tried.push(crop);
            if draw + 1 >= certain && best.is_some_and(|(loudest, ..)| loudest >= power) {
                break;
            }
        }
        let (_, place) = best.ok_or_else(|| Error::new(ErrorKind::Config, "a clip has no place"))?;
        Ok(DecodedClip { place, clips: &self.best })
    }

    /// Where a span is in the decoded samples.
    fn within(&self, span: &Range<u64>) -> Range<usize> {
        let first = self.held.as_ref().map_or(0, |held| span.start.saturating_sub(held.start)) as usize;
        first..first + (span.end - span.start) as usize
    }

    /// Decodes a span, unless its samples are there.
    fn hold(
        &mut self,
        planner: &ClipPlanner,
        record: &Record,
        opened: &OpenedRow<'_>,
        span: &Range<u64>,
    ) -> Result<()> {
        let is_held = |held: &Range<u64>| held.start <= span.start && span.end <= held.end;
        if self.held.as_ref().is_some_and(is_held) {
            return Ok(());
        }
        self.decode(planner, record, opened, span.clone(), takes_mean(planner))
    }

    /// Puts the decoded samples into the clip, resampled and padded.
    fn place(&mut self, planner: &ClipPlanner, read: ClipRead, is_ready: bool, seed: u64) -> Result<()> {
        let AudioPlan { features, crop: rule, .. } = planner.plan();
        let within = self.within(&read.span);
        let ClipRead { crop, span, resampler, .. } = read;
        let (channels, n) = (features.channels(), planner.plan().clip_len(&crop));
        fallible_alloc::resize(&mut self.clip, n * channels.n_kept(), 0.0)?;
        for (channel, clip) in self.clip.chunks_exact_mut(n.max(1)).enumerate() {
            let waveform = channels.waveform(channel, &self.planes, within.clone(), &mut self.mono)?;
            if is_ready {
                clip.copy_from_slice(waveform);
                continue;
            }
            resampler.resample(waveform, span.start, crop.start, &mut clip[crop.taken()])?;
            rule.padding().fill(clip, crop.taken(), seed, channel as u64);
        }
        Ok(())
    }
}

/// Whether the features are of the mean of the channels.
fn takes_mean(planner: &ClipPlanner) -> bool {
    planner.plan().features.channels() == KeptChannels::Mean
}

/// The smallest range that has both.
pub(super) fn joined(one: Option<Range<u64>>, other: Range<u64>) -> Range<u64> {
    one.map_or(other.clone(), |one| one.start.min(other.start)..one.end.max(other.end))
}
