//! [`IndexBuild`]: opens every recording of a source once, counts what is there, and leaves the index of each
//! in a file of its own on disk.
//!
//! Input: an open source. Output: [`Totals`]. The threads of a `ThreadPool` take some recordings each, so a
//! long one keeps one thread busy. Of recordings in shards the length is read. A bad record is counted, and
//! its reason is kept. Totals are sums, so that they do not depend on the threads. An index is complete as
//! soon as it is on disk, so an index build that was interrupted begins again and finds what it has made.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};

use super::thread_pool::{PoolWork, ThreadPool};
use crate::{
    Error, ErrorKind, Result,
    audio::{AudioDecoder, Info},
    cancel, fallible_alloc,
    fields::Value,
    source::{
        ExtraColumn, IndexLocation, NO_LABEL, Recordings, RecordingsReader, RowInfo,
        files::{FilesReader, FilesSource},
    },
};

/// Recordings in files that a thread takes together.
const FILES_TOGETHER: usize = 8;
/// Rows of shards that a thread takes together: neighbours share the work of a page.
const ROWS_TOGETHER: u64 = 256;
/// Rows of a table whose labels are counted together.
const LABELS_TOGETHER: u64 = 1 << 16;
/// The most bad records whose reasons are kept.
const MOST_BAD: usize = 1000;
/// The most classes that are counted one by one.
const MOST_CLASSES: usize = 1 << 20;

/// What is known of the recordings of a source.
#[derive(Debug, Default)]
pub struct Totals {
    /// Recordings that were opened, bad ones included.
    pub recordings: u64,
    /// Bytes of the good ones; of recordings in shards not known, and 0.
    pub bytes: u64,
    /// Recordings, and samples of each channel, by rate.
    pub rates: BTreeMap<u32, (u64, u64)>,
    pub channels: BTreeMap<u16, u64>,
    pub codecs: BTreeMap<String, u64>,
    /// Rows by the number of their class.
    pub labels: BTreeMap<i64, u64>,
    /// Rows of classes beyond the first million.
    pub other_labels: u64,
    /// Indexes that were on disk before.
    pub found: u64,
    pub written: u64,
    /// Recordings that need no index.
    pub needless: u64,
    /// Indexes that could not be written.
    pub unwritten: u64,
    /// Why one of them could not.
    pub why_unwritten: Option<String>,
    pub n_bad: u64,
    /// The first bad records, by row.
    pub bad: BTreeMap<u64, Bad>,
    /// The first row and the seconds of each good recording in a file, by row; empty unless requested.
    pub lengths: Vec<(u64, f32)>,
}

#[derive(Debug)]
pub struct Bad {
    /// The recording's path, as the source has it.
    pub path: Option<String>,
    pub error: Error,
}

impl Totals {
    fn good(&mut self, info: Info) {
        self.recordings += 1;
        let (n, samples) = self.rates.entry(info.sample_rate).or_default();
        (*n, *samples) = (*n + 1, *samples + info.n_samples);
        *self.channels.entry(info.channels).or_default() += 1;
        *self.codecs.entry(info.codec.to_string()).or_default() += 1;
    }

    fn bad(&mut self, row: u64, bad: Bad) {
        self.recordings += 1;
        self.n_bad += 1;
        self.bad.insert(row, bad);
        if self.bad.len() > MOST_BAD {
            self.bad.pop_last();
        }
    }

    fn label(&mut self, label: i64, rows: u64) {
        if self.labels.len() < MOST_CLASSES || self.labels.contains_key(&label) {
            *self.labels.entry(label).or_default() += rows;
        } else {
            self.other_labels += rows;
        }
    }

    fn add(&mut self, other: Self) -> Result<()> {
        self.recordings += other.recordings;
        self.bytes += other.bytes;
        for (rate, (n, samples)) in other.rates {
            let mine = self.rates.entry(rate).or_default();
            *mine = (mine.0 + n, mine.1 + samples);
        }
        for (channels, n) in other.channels {
            *self.channels.entry(channels).or_default() += n;
        }
        for (codec, n) in other.codecs {
            *self.codecs.entry(codec).or_default() += n;
        }
        other.labels.into_iter().for_each(|(label, n)| self.label(label, n));
        self.other_labels += other.other_labels;
        self.found += other.found;
        self.written += other.written;
        self.needless += other.needless;
        self.unwritten += other.unwritten;
        self.why_unwritten = self.why_unwritten.take().or(other.why_unwritten);
        self.n_bad += other.n_bad;
        self.bad.extend(other.bad);
        while self.bad.len() > MOST_BAD {
            self.bad.pop_last();
        }
        fallible_alloc::grow(&mut self.lengths, other.lengths.len())?;
        self.lengths.extend(other.lengths);
        Ok(())
    }
}

/// What a worker indexes at a time: recordings of files, or rows of shards.
#[derive(Debug, Clone)]
enum IndexPart {
    Files(Range<usize>),
    /// Rows of a table, whose labels are counted.
    Labels(Range<u64>),
    Rows(Range<u64>),
}

struct Job {
    source: Arc<Recordings>,
    /// The first row of each recording in a file.
    files: Vec<u64>,
    parts: Vec<IndexPart>,
    /// The place of the label in the values of a row.
    label: Option<usize>,
    keeps_lengths: bool,
    stop: Arc<AtomicBool>,
    replies: Sender<Result<Totals>>,
}

struct IndexWorker {
    reader: RecordingsReader,
    /// Of recordings in files of their own.
    files: Option<FilesReader>,
    decoder: AudioDecoder,
}

impl Job {
    fn count(&self, worker: &mut IndexWorker, part: &IndexPart) -> Result<Totals> {
        let mut totals = Totals::default();
        match part {
            IndexPart::Labels(rows) => {
                let Some(files) = self.source.tables() else { return Ok(totals) };
                for row in rows.clone() {
                    if let Some(label) = files.label(row)? {
                        totals.label(label, 1);
                    }
                }
            }
            IndexPart::Files(files) => {
                for &row in &self.files[files.clone()] {
                    cancel::check("the survey")?;
                    let Some(reader) = &mut worker.files else { continue };
                    match reader.index(row) {
                        Ok((info, n_bytes, kept)) => {
                            totals.good(info);
                            totals.bytes += n_bytes;
                            if self.keeps_lengths {
                                totals.lengths.push((row, info.seconds() as f32)); // bounded: FILES_TOGETHER
                            }
                            match kept {
                                IndexLocation::Needless => totals.needless += 1,
                                IndexLocation::Found => totals.found += 1,
                                IndexLocation::Written => totals.written += 1,
                                IndexLocation::Unwritten(error) => {
                                    totals.unwritten += 1;
                                    totals.why_unwritten = Some(error.to_string());
                                }
                            }
                        }
                        Err(error) => self.bad(&mut totals, worker, row, error)?,
                    }
                }
            }
            IndexPart::Rows(rows) => {
                for row in rows.clone() {
                    cancel::check("the survey")?;
                    match worker.reader.info(&mut worker.decoder, row, rows.end - row) {
                        Ok(RowInfo { info, values, .. }) => {
                            totals.good(info);
                            let label = self.label.and_then(|at| values.get(at)).and_then(Value::as_int);
                            if let Some(label) = label.filter(|&label| label != NO_LABEL) {
                                totals.label(label, 1);
                            }
                        }
                        Err(error) => self.bad(&mut totals, worker, row, error)?,
                    }
                }
            }
        }
        Ok(totals)
    }

    /// Counts a bad record; any other error is returned.
    fn bad(&self, totals: &mut Totals, worker: &mut IndexWorker, row: u64, error: Error) -> Result<()> {
        if !error.kind.is_record() {
            return Err(error);
        }
        // `error` says why a path cannot be read.
        let path = worker.reader.path(row).ok().flatten();
        totals.bad(row, Bad { path, error });
        Ok(())
    }
}

impl PoolWork<IndexWorker> for Job {
    fn part(&self, worker: &mut IndexWorker, part: usize) {
        let stop = self.stop.clone();
        let is_stopped = move || stop.load(Ordering::Relaxed);
        // Once the survey is stopped no thread waits for the result.
        if !is_stopped() {
            let count = || self.count(worker, &self.parts[part]);
            let _ = self.replies.send(cancel::during(Some(Arc::new(is_stopped)), count));
        }
    }

    fn lost(&self, _part: usize, error: Error) {
        let _ = self.replies.send(Err(error));
    }
}

/// An index build at work. Dropping it ends its threads.
pub struct IndexBuild {
    stop: Arc<AtomicBool>,
    received: Receiver<Result<Totals>>,
    left: usize,
    n_recordings: u64,
    totals: Totals,
    _threads: ThreadPool<IndexWorker>,
}

impl Drop for IndexBuild {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl IndexBuild {
    /// Begins on at most `n_threads` threads; `keeps_lengths` requests [`Totals::lengths`].
    ///
    /// # Errors
    /// [`ErrorKind::Memory`]; [`ErrorKind::Io`] if the system cannot start a thread.
    pub fn begin(source: Arc<Recordings>, n_threads: usize, keeps_lengths: bool) -> Result<Self> {
        let n_rows = source.n_rows();
        let pieces = |of: Range<u64>, together: u64| {
            let starts = (of.start..of.end).step_by(together as usize);
            starts.map(move |start| start..(start + together).min(of.end))
        };
        let (mut files, mut parts) = (Vec::new(), Vec::new());
        match source.tables() {
            Some(tables) => {
                files = tables.recordings()?;
                parts.extend(pieces(0..n_rows, LABELS_TOGETHER).map(IndexPart::Labels));
                let of = pieces(0..files.len() as u64, FILES_TOGETHER as u64);
                parts.extend(of.map(|of| IndexPart::Files(of.start as usize..of.end as usize)));
            }
            None => {
                for shard in source.shards() {
                    let rows = shard.first_row..shard.first_row + shard.n_rows;
                    parts.extend(pieces(rows, ROWS_TOGETHER).map(IndexPart::Rows));
                }
            }
        }
        let (replies, received) = unbounded();
        let (left, stop) = (parts.len(), Arc::<AtomicBool>::default());
        let n_recordings = if source.tables().is_some() { files.len() as u64 } else { n_rows };
        let threads = ThreadPool::new(n_threads, {
            // Without a limiter: each thread holds one recording.
            let source = source.clone();
            move || IndexWorker {
                reader: source.reader(),
                files: source.tables().map(FilesSource::reader),
                decoder: AudioDecoder::new(),
            }
        });
        let label = source.contents().extra_columns.iter().position(|value| *value == ExtraColumn::Label);
        let job = Job { source, files, parts, label, keeps_lengths, stop: stop.clone(), replies };
        threads.begin(&Arc::new(job), left)?;
        Ok(Self { stop, received, left, n_recordings, totals: Totals::default(), _threads: threads })
    }

    pub fn n_recordings(&self) -> u64 {
        self.n_recordings
    }

    /// Those of the recordings that were opened so far.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Waits until all were opened, at most until `deadline`: then `false`.
    ///
    /// # Errors
    /// Those of the system, of memory, and panics: everything that does not concern one record.
    pub fn wait(&mut self, deadline: Instant) -> Result<bool> {
        while self.left > 0 {
            match self.received.recv_deadline(deadline) {
                Ok(part) => self.totals.add(part?)?,
                Err(RecvTimeoutError::Timeout) => return Ok(false),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::new(ErrorKind::Panic, "the threads of the survey ended: a bug"));
                }
            }
            self.left -= 1;
        }
        // Threads end in any order.
        self.totals.lengths.sort_unstable_by_key(|&(row, _)| row);
        Ok(true)
    }
}
