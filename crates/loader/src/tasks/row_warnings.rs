//! [`RowWarnings`]: what is logged once about the rows that the workers of a loader see.
//!
//! Input: a row, and the length of its recording. Each warning is of a likely mistake in the parameters or
//! the table; it makes no row bad. Source: own.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::{clip_planner::AudioPlan, outputs::Outputs};
use crate::{
    audio::Info,
    dsp::target_len,
    source::{Record, Segment},
    targets::Target,
};

/// A time beyond so many lengths of the recording is most likely in another unit.
const FAR: f64 = 10.0;

/// Shared by all workers.
#[derive(Debug, Default)]
pub(super) struct RowWarnings {
    /// The target that is the text of a whole recording.
    text: Option<String>,
    is_text_logged: AtomicBool,
    is_segment_logged: AtomicBool,
    is_annotation_logged: AtomicBool,
}

impl RowWarnings {
    pub(super) fn of(outputs: &Outputs) -> Self {
        let text = outputs.targets().find(|target| target.is_text());
        Self { text: text.map(|target| target.field().name.clone()), ..Self::default() }
    }

    /// Warns that a clip has the text of a longer recording, which is played at this speed.
    pub(super) fn check_text(&self, plan: &AudioPlan, info: Info, speed: f64) {
        let Some(target) = &self.text else { return };
        let rate = plan.features.sample_rate();
        let n = (target_len(info.n_samples, info.sample_rate, rate) as f64 / speed).round() as u64;
        if n <= plan.clip_samples as u64 || !is_first(&self.is_text_logged) {
            return;
        }
        let seconds = |n: u64| n as f64 / f64::from(rate);
        log::warn!(
            "target {target:?} is the text of whole recordings, and the first one longer than clip_seconds ({:.2} s) has {:.2} s: \
             its clip is a part, with the text of all of it; crop=forebay.crops.Start(whole=True) leaves such recordings out",
            seconds(plan.clip_samples as u64),
            seconds(n)
        );
    }

    /// Warns that the segment of a row, or an annotation of its recording, lies far behind the recording, of
    /// which the row has so many seconds.
    pub(super) fn check_times<'a>(
        &self,
        record: &Record,
        targets: impl Iterator<Item = &'a Target>,
        seconds: f64,
    ) {
        match record.payload.segment() {
            Some(Segment::Seconds(start, end)) if end.is_finite() && end - start > FAR * seconds => {
                if is_first(&self.is_segment_logged) {
                    log::warn!(
                        "a segment from {start} s to {end} s ends with its recording after {seconds:.2} s; segments are seconds: those of \
                         milliseconds must be divided by 1000, those of samples have Manifest(unit=\"samples\")"
                    );
                }
            }
            // The length of the recording is not known.
            Some(_) => {}
            None => {
                for target in targets {
                    let Some((path, start)) = target.last_annotation(&record.values) else { continue };
                    if start > FAR * seconds && is_first(&self.is_annotation_logged) {
                        log::warn!(
                            "target {:?}: an annotation of {path:?} begins at {start} s, and the recording has {seconds:.1} s; times \
                             are seconds, so divide those of milliseconds by 1000",
                            target.field().name
                        );
                    }
                }
            }
        }
    }
}

fn is_first(is_logged: &AtomicBool) -> bool {
    !is_logged.load(Relaxed) && !is_logged.swap(true, Relaxed)
}
