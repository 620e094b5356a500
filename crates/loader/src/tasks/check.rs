//! [`CheckTask`] checks recordings: each is decoded from its first sample to its last, and only its
//! [`Finding`] is kept.
//!
//! A recording is decoded span by span, so that memory does not grow with its length. A recording that cannot
//! be decoded is not a failure here but a finding; only a record that cannot be read fails, as in any task.

use std::ops::Range;

use crate::{
    Error, ErrorKind, Result,
    audio::{AudioDecoder, Claims, Damage, Info, Planes, Repairs},
    contract::{BatchSizes, BatchSlot, Collate, ExampleMaker, Payload, Task, TaskLabels},
    engine::{Plan, Policy, cores},
    order::{Assignment, Batching},
    source::{OpenRecording, ReadRequest, Record, Segment, StoredPayload, WholeRecord, info_of_row},
    tasks::RECORDING_LABELS,
};

/// Records of a batch of findings.
pub const CHECKED_TOGETHER: usize = 16;

/// Values (samples times channels) decoded at a time: 1 MiB, still in the core's cache when they are
/// measured.
const SPAN_VALUES: u64 = 1 << 18;
/// The largest value of 16 bits: samples that reach it were probably clipped.
const FULL_SCALE: f32 = 32_767.0 / 32_768.0;
const SIGN: u32 = 1 << 31;
/// A segment that ends so many seconds behind its recording is not merely rounded.
const ROUNDED_SECONDS: f64 = 0.1;
/// One step of 16 bits: samples below it count as silent.
const ONE_STEP: f32 = 1.0 / 32_768.0;

/// The result of checking one recording.
#[derive(Debug, Clone)]
pub struct Finding {
    /// The row number over the files as given.
    pub index: u64,
    /// Its encoded size in bytes.
    pub n_bytes: u64,
    /// What its container declares; `None` if that cannot be read.
    pub info: Option<Info>,
    /// The container's declarations beyond the samples, if the recording can be decoded to the end.
    pub claims: Claims,
    /// The largest magnitude of the decoded samples.
    pub peak: f32,
    /// Decoded values, of all channels.
    pub n_values: u64,
    /// Values at full scale.
    pub n_clipped: u64,
    /// Values below one step of 16 bits.
    pub n_silent: u64,
    /// The samples cut and filled where time stamps contradict the samples slightly, or frames cannot be
    /// decoded; all 0 if the recording is bad.
    pub repairs: Repairs,
    /// Why it is bad, if it is.
    pub error: Option<Error>,
}

impl Finding {
    /// Creates the finding of a record that is not decoded yet.
    fn new(record: &Record) -> Self {
        Self {
            index: record.index,
            n_bytes: record.payload.n_bytes() as u64,
            info: None,
            claims: Claims::default(),
            peak: 0.0,
            n_values: 0,
            n_clipped: 0,
            n_silent: 0,
            repairs: Repairs::default(),
            error: None,
        }
    }

    /// Measures decoded samples, which must be finite.
    fn listen(&mut self, samples: &[f32]) {
        self.n_values += samples.len() as u64;
        let mut peak = 0;
        // Short enough for counts of 32 bits.
        for part in samples.chunks(1 << 16) {
            let (mut clipped, mut silent) = (0u32, 0u32);
            for sample in part {
                // Magnitudes compare like their bits, and the maximum of integers can be vectorised.
                let size = (sample.to_bits() & !SIGN) as i32;
                peak = peak.max(size);
                clipped += u32::from(size >= FULL_SCALE.to_bits() as i32);
                silent += u32::from(size < ONE_STEP.to_bits() as i32);
            }
            self.n_clipped += u64::from(clipped);
            self.n_silent += u64::from(silent);
        }
        self.peak = self.peak.max(f32::from_bits(peak as u32));
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub struct CheckTask {
    /// How much of a recording may be silence in place of frames that cannot be decoded.
    pub damage: Damage,
}

impl CheckTask {
    /// A plan for one pass over all rows in order, on all cores.
    pub fn plan() -> Plan {
        let n_workers = cores();
        Plan {
            batching: Batching::Rows(CHECKED_TOGETHER),
            // The caller reports all failures.
            policy: Policy { skip_io: true, logs: false, ..Policy::default() },
            // Findings are small, and a long recording delays those after it.
            buffer_size: 1024,
            n_workers,
            n_readers: 4,
            channel_size: 4 * n_workers,
            channel_bytes: 256 << 20,
            prefetch_batches: 3,
            ..Plan::default()
        }
    }
}

impl Task for CheckTask {
    const WORDS: TaskLabels = RECORDING_LABELS;

    type Payload = StoredPayload;
    type Request<'a> = dyn ReadRequest + 'a;
    type Maker = FindingMaker;
    type Collate = CheckCollate;

    fn request<R>(&self, assigned: &Assignment, read: impl FnOnce(&Self::Request<'_>) -> R) -> R {
        read(&WholeRecord { repeats: assigned.repeats })
    }

    fn maker(&self) -> FindingMaker {
        // A recording is judged as a whole, and decoded in pieces.
        let each = if self.damage == Damage::ERROR { Damage::ERROR } else { Damage::ALL };
        FindingMaker { decoder: AudioDecoder::with_damage(each), planes: Planes::new(), damage: self.damage }
    }

    fn collate(&self, batches: BatchSizes) -> CheckCollate {
        // bounded: a batch of a check has `CHECKED_TOGETHER`.
        CheckCollate { findings: vec![None; batches.size] }
    }
}

/// One worker's part of a [`CheckTask`].
#[derive(Debug)]
pub struct FindingMaker {
    decoder: AudioDecoder,
    planes: Planes,
    damage: Damage,
}

impl FindingMaker {
    fn decode(&mut self, record: &Record, finding: &mut Finding) -> Result<()> {
        let recording = OpenRecording::open(&mut self.decoder, &record.payload)?;
        let segment = record.payload.segment();
        let (info, Range { start: mut at, end: last }) = info_of_row(recording.info(), segment)?;
        finding.info = Some(info);
        let first = at;
        let mut filled = Repairs::default();
        let step = (SPAN_VALUES / u64::from(info.channels)).max(1);
        while at < last {
            let end = last.min(at + step);
            recording.read(&mut self.decoder, at..end, &mut self.planes)?;
            filled = filled + self.decoder.filled();
            for channel in 0..usize::from(info.channels) {
                finding.listen(self.planes.channel(channel));
            }
            at = end;
        }
        let n_samples = last.saturating_sub(first);
        if !self.damage.allows(filled.filled, n_samples) {
            let message = format!(
                "{} of {n_samples} samples are in {} places that cannot be decoded; max_damage is {}",
                filled.filled, filled.places, self.damage.most
            );
            return Err(Error::new(ErrorKind::Corrupt, message));
        }
        match segment {
            // It does not have the length that its recording declares.
            Some(segment) => finding.claims.notices.extend(notice_of(segment, recording.info())),
            None => {
                if let Some(recording) = recording.whole() {
                    finding.repairs = self.decoder.repairs(recording);
                    finding.claims = recording.claims(&record.payload.bytes);
                }
            }
        }
        finding.repairs = finding.repairs + filled;
        Ok(())
    }
}

/// The notice of a segment that ends behind its recording.
fn notice_of(segment: Segment, info: Info) -> Option<String> {
    let behind = segment.seconds_behind(info.sample_rate, info.n_samples);
    let length = info.n_samples as f64 / f64::from(info.sample_rate);
    (behind > ROUNDED_SECONDS).then(|| {
        let unit = match segment {
            Segment::Seconds(..) => "segments are seconds",
            Segment::Samples(..) => "segments are samples here",
        };
        format!("the segment ends {behind:.2} s behind its recording, which has {length:.2} s ({unit})")
    })
}

impl ExampleMaker for FindingMaker {
    type Payload = StoredPayload;
    type Example = Finding;

    fn run(&mut self, record: &Record) -> Result<Finding> {
        let mut finding = Finding::new(record);
        finding.error = self.decode(record, &mut finding).err();
        Ok(finding)
    }
}

/// Lists findings in the order of rows.
#[derive(Debug)]
pub struct CheckCollate {
    findings: Vec<Option<Finding>>,
}

impl Collate for CheckCollate {
    type Example = Finding;
    type Batch = Vec<Finding>;

    /// The report counts records batch by batch, so empty batches must not be left out.
    const LEAVES_OUT_EMPTY: bool = false;

    fn put(&mut self, BatchSlot { row, .. }: BatchSlot, finding: Finding) -> Result<()> {
        self.findings[row] = Some(finding);
        Ok(())
    }

    fn take(&mut self, rows: usize) -> Vec<Finding> {
        self.findings.iter_mut().take(rows).filter_map(Option::take).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::RawRecord;

    #[test]
    fn what_is_heard() {
        let record = RawRecord::new(bytes::Bytes::from_static(b"no"), Default::default()).numbered(3, 0, 0);
        let mut finding = Finding::new(&record);
        let samples: Vec<f32> = (0..200_000)
            .map(|n| match n % 4 {
                0 => 0.0,
                1 => -0.5,
                2 => 1.0 / 65_536.0,
                _ => 0.25,
            })
            .collect();
        finding.listen(&samples);
        finding.listen(&[-1.0, FULL_SCALE, 0.999]);
        assert_eq!((finding.peak, finding.n_values), (1.0, 200_003));
        assert_eq!((finding.n_clipped, finding.n_silent), (2, 100_000));
    }

    #[test]
    fn a_bad_one_is_a_finding() {
        let record =
            RawRecord::new(bytes::Bytes::from_static(b"no recording"), Default::default()).numbered(3, 0, 0);
        let finding = CheckTask::default().maker().run(&record).unwrap();
        assert_eq!(finding.error.unwrap().kind, crate::ErrorKind::Unsupported);
        assert_eq!((finding.index, finding.n_bytes, finding.info), (3, 12, None));
    }
}
