//! [`Mixer`] reads and decodes the recordings that a step of augmentation mixes into a clip.
//!
//! A worker reads a partner itself, by row number, so it never waits for another record. Which row it is, and
//! where its clip begins, are draws of the step: a partner that cannot be decoded is listed and drawn again,
//! at most [`ATTEMPTS`] times, and changes nothing else. Source: own.

use std::fmt;

use super::{
    cutter::{Cut, Cutter},
    partners::Partners,
    places::{Begin, Places},
    wanting::{Take, Wanting},
};
use crate::{
    Result, fallible_alloc,
    fields::Row,
    record::{ReadRecords, Record},
    seed::below,
    targets::Clip,
    transform::augment::{Amount, Clips, Draws, MixTargets, Mixing},
};

/// Draws of a partner before the clip stays without.
const ATTEMPTS: usize = 8;

/// A partner that was mixed in.
#[derive(Debug)]
pub struct Mixed {
    /// The number of the step among those that mix.
    pub step: usize,
    /// Its position in its source.
    pub at: u64,
    /// Whether that is the loader's own.
    pub is_own: bool,
    /// Where its clip is in its recording.
    pub clip: Clip,
    /// Its other columns, if targets are mixed.
    pub values: Row,
    /// How loud it is.
    pub amount: Amount,
    /// What becomes of targets.
    pub targets: MixTargets,
}

/// One worker's part of the steps that mix.
#[derive(Debug, Default)]
pub struct Mixer {
    makers: Vec<Maker>,
    /// What was mixed into the last clip, in order.
    pub mixed: Vec<Mixed>,
}

struct Maker {
    partners: Partners,
    reader: Box<dyn ReadRecords>,
    cutter: Cutter,
    places: Places,
    /// The partner, of the length of a clip.
    partner: Vec<f32>,
}

impl fmt::Debug for Maker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Maker").field("partners", &self.partners).finish_non_exhaustive()
    }
}

impl Mixer {
    /// For the steps that mix in the plan of these places.
    pub fn new(places: &Places) -> Self {
        let makers = places.plan().partners.iter().map(|partners| Maker {
            partners: partners.clone(),
            reader: partners.reader(),
            cutter: Cutter::default(),
            places: places.of_partners(),
            partner: Vec::new(),
        });
        Self { makers: makers.collect(), mixed: Vec::new() }
    }

    /// Does a step for the clips of the record at position `own`.
    ///
    /// # Errors
    /// If a partner cannot be read by the system, or an allocation failed.
    pub fn mix(
        &mut self,
        step: usize,
        mixing: &Mixing,
        own: u64,
        draws: &mut Draws,
        clips: &mut Clips<'_>,
    ) -> Result<()> {
        let Some(maker) = self.makers.get_mut(step) else { return Ok(()) };
        let level = mixing.level.of_clip(clips);
        let n = 1 + below(draws.bits(), mixing.most as u64);
        for _ in 0..n {
            let amount = mixing.level.draw(draws);
            let Some((at, clip, values)) = maker.next(mixing, own, draws, clips.n)? else { continue };
            amount.mix(clips, level, &maker.partner);
            let targets = mixing.targets;
            // bounded: `most` of each step.
            self.mixed.push(Mixed { step, at, is_own: mixing.is_own, clip, values, amount, targets });
        }
        Ok(())
    }
}

impl Maker {
    /// Reads a partner; returns its position, its place and its columns.
    fn next(
        &mut self,
        mixing: &Mixing,
        own: u64,
        draws: &mut Draws,
        n: usize,
    ) -> Result<Option<(u64, Clip, Row)>> {
        for _ in 0..ATTEMPTS {
            let [row, place, phase] = [draws.bits(), draws.bits(), draws.bits()];
            let Some(at) = self.partners.choose(mixing, own, row) else { continue };
            match self.read(at, place, phase, n) {
                Ok(Some((clip, mut values))) => {
                    if mixing.targets == MixTargets::Keep {
                        values.clear();
                    }
                    return Ok(Some((at, clip, values)));
                }
                Ok(None) => {}
                Err(error) if error.kind.is_record() => self.partners.report(at, error),
                Err(error) => return Err(self.partners.unread(at, &error)),
            }
        }
        Ok(None)
    }

    /// Reads the clip of a partner; a short one is repeated, from a random sample on. `None` if it has no
    /// samples.
    fn read(&mut self, at: u64, place: u64, phase: u64, n: usize) -> Result<Option<(Clip, Row)>> {
        let begin = Begin::Rule { at, seed: place };
        let record = self.reader.read(at, 1, &Wanting::of(&self.places, Take::Clip(begin)))?;
        let record: Record = record.numbered(at, place, 0);
        let opened = self.cutter.open(&self.places, &record)?;
        let row_start = opened.row_start();
        let Cut { crop, clips, speed } = self.cutter.cut(&self.places, &record, &opened, (begin, 0))?;
        if crop.len == 0 {
            return Ok(None);
        }
        fallible_alloc::resize(&mut self.partner, clips.len(), 0.0)?;
        for (out, clip) in self.partner.chunks_exact_mut(n).zip(clips.chunks_exact(n)) {
            let part = &clip[crop.taken()];
            let mut from = if part.len() < n { below(phase, part.len() as u64) as usize } else { 0 };
            let mut left = out;
            while !left.is_empty() {
                let len = left.len().min(part.len() - from);
                let (now, rest) = left.split_at_mut(len);
                now.copy_from_slice(&part[from..from + len]);
                (left, from) = (rest, 0);
            }
        }
        let clip = self.places.plan().about(&crop, row_start, speed);
        drop(opened);
        Ok(Some((clip, record.values)))
    }
}
