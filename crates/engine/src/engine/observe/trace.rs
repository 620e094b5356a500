//! [`Trace`] records the work and waits of all threads of a loader for some seconds, and writes them to a
//! file for <https://ui.perfetto.dev> or `chrome://tracing`.
//!
//! The stopwatches of the threads report each piece of work and each wait when it ends ([`Trace::span`]); a
//! relaxed load tells them whether a trace is being recorded. Spans are kept in memory, up to [`MOST`]
//! entries. A separate thread writes them when the time is over or the loader closes, under a temporary name;
//! the complete file is renamed.
//!
//! An existing file is replaced only if it is a trace, too.
//!
//! Spans of one thread follow one another; only `batch` encloses others. Times are microseconds from the
//! start.
//!
//! Source: "Trace Event Format", Google: complete events (`X`), counters (`C`) and metadata (`M`).

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, BufWriter, Read, Write},
    ops::Range,
    path::{Path, PathBuf},
    sync::{
        Arc, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use crate::sync::plain::{Condvar, Mutex, MutexGuard};
use crate::{
    Error, ErrorKind, Result,
    engine::{observe::queues::QueueSizes, threads::owned::Threads},
};

/// The maximum number of spans and samples kept, 16 MB. Later ones are left out; the file has their number.
const MOST: usize = 1 << 18;
/// How long an engine that ends waits for the file of up to some 30 MB.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// The first bytes of a trace file, which tell it from other files.
const BEGINNING: &str = "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"events_left_out\":";

/// The track of one thread in a trace.
#[derive(Debug, Clone)]
pub(crate) struct ThreadTrack {
    id: u32,
    name: Arc<str>,
}

#[derive(Debug)]
enum TraceEvent {
    /// Begin and length in nanoseconds, and the number of the row or batch.
    Span { name: &'static str, begin: u64, length: u64, number: Option<u64> },
    /// The data between the threads, and the number of workers awake.
    Queues { at: u64, queues: QueueSizes, workers: usize },
}

#[derive(Debug)]
struct TraceRecording {
    time: Range<Instant>,
    tracks: Vec<ThreadTrack>,
    events: Vec<(u32, TraceEvent)>,
    left_out: u64,
}

impl TraceRecording {
    /// Nanoseconds since the start, at most to the end: the thread that ends a recording may wake late.
    fn nanoseconds(&self, at: Instant) -> u64 {
        let at = at.min(self.time.end);
        u64::try_from(at.saturating_duration_since(self.time.start).as_nanos()).unwrap_or(u64::MAX)
    }

    fn add(&mut self, track: &ThreadTrack, event: TraceEvent) {
        if self.events.len() >= MOST {
            self.left_out += 1;
            return;
        }
        if self.tracks.iter().all(|known| known.id != track.id) {
            self.tracks.push(track.clone());
        }
        self.events.push((track.id, event));
    }
}

/// The trace of a loader, while one is recorded.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    is_on: AtomicBool,
    last_track: AtomicU32,
    recording: Mutex<Option<TraceRecording>>,
    /// Notified when the recording is to end early.
    ended: Condvar,
}

impl Trace {
    /// Creates a track for the thread `name`, a name of forebay's: it is not escaped in the file.
    pub(crate) fn track(&self, name: impl Into<Arc<str>>) -> ThreadTrack {
        ThreadTrack { id: self.last_track.fetch_add(1, Ordering::Relaxed) + 1, name: name.into() }
    }

    /// Whether a trace is being recorded.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Adds a piece of work or a wait that has ended. Parts before the start and after the end are cut off;
    /// pieces without a number that are shorter than 100 ns are left out.
    pub(crate) fn span(
        &self,
        track: &ThreadTrack,
        name: &'static str,
        time: Range<Instant>,
        number: Option<u64>,
    ) {
        if let Some(recording) = &mut *self.lock() {
            let (begin, end) = (recording.nanoseconds(time.start), recording.nanoseconds(time.end));
            // A piece with a number is an item and is kept, however short.
            if end > begin && (end - begin >= 100 || number.is_some()) {
                recording.add(track, TraceEvent::Span { name, begin, length: end - begin, number });
            }
        }
    }

    /// Adds a sample of the data between the threads.
    pub(crate) fn queues(&self, track: &ThreadTrack, at: Instant, queues: QueueSizes, workers: usize) {
        if let Some(recording) = &mut *self.lock()
            && at < recording.time.end
        {
            let at = recording.nanoseconds(at);
            recording.add(track, TraceEvent::Queues { at, queues, workers });
        }
    }

    /// Starts recording for `length`; a thread in `threads` then writes the file at `path`.
    ///
    /// # Errors
    /// [`ErrorKind::State`] if another trace is being recorded, or if the existing file is not a trace;
    /// [`ErrorKind::Io`] if the file cannot be written.
    pub(crate) fn start(
        self: &Arc<Self>,
        path: &Path,
        length: Duration,
        threads: &mut Threads,
    ) -> Result<()> {
        let mut recording = self.lock();
        if recording.is_some() {
            return Err(Error::new(
                ErrorKind::State,
                "a trace is already being recorded; wait for its file, or close the loader",
            ));
        }
        let part = part_of(path);
        check_free(path, false)?;
        check_free(&part, true)?;
        let file = File::create(&part).map_err(|e| refused(&part, e))?;
        let start = Instant::now();
        let deadline = start + length;
        *recording = Some(TraceRecording {
            time: start..deadline,
            tracks: Vec::new(),
            events: Vec::new(),
            left_out: 0,
        });
        self.is_on.store(true, Ordering::Relaxed);
        drop(recording);
        let (trace, path) = (self.clone(), path.to_owned());
        let spawned = threads.spawn("forebay-trace".into(), move || trace.record(deadline, file, &path));
        if spawned.is_err() {
            self.finish();
            *self.lock() = None;
        }
        spawned
    }

    pub(crate) fn finish(&self) {
        // Under the lock: a thread that saw the old value is already waiting.
        let recording = self.lock();
        self.is_on.store(false, Ordering::Relaxed);
        drop(recording);
        self.ended.notify_all();
    }

    /// Waits for the end of the recording, and writes the file.
    fn record(&self, deadline: Instant, file: File, path: &Path) {
        let mut recording = self.lock();
        while self.is_on() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            recording = self.ended.wait_timeout(recording, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        self.is_on.store(false, Ordering::Relaxed);
        let Some(recorded) = recording.take() else { return };
        drop(recording);
        let part = part_of(path);
        let written = write(&recorded, &mut BufWriter::new(file))
            .map_err(|error| refused(path, error))
            .and_then(|()| check_free(path, false))
            .and_then(|()| fs::rename(&part, path).map_err(|error| refused(path, error)));
        if let Err(error) = written {
            let _ = fs::remove_file(&part);
            log::warn!("the trace was lost: {error}");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<TraceRecording>> {
        self.recording.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The trace of an engine and the thread that writes it; dropping it ends the recording.
#[derive(Debug)]
pub(crate) struct Tracing {
    trace: Arc<Trace>,
    threads: Threads,
}

impl Tracing {
    /// Creates it for an engine, without a thread.
    pub(crate) fn of(trace: &Arc<Trace>) -> Self {
        Self { trace: trace.clone(), threads: Threads::default() }
    }

    pub(crate) fn start(&mut self, path: &Path, length: Duration) -> Result<()> {
        if self.threads.have_ended() {
            self.threads = Threads::default();
        }
        self.trace.start(path, length, &mut self.threads)
    }

    /// Ends a recording early, and waits for its file.
    pub(crate) fn finish(&mut self) {
        self.trace.finish();
        self.threads.end(Instant::now(), WRITE_TIMEOUT);
    }
}

impl Drop for Tracing {
    fn drop(&mut self) {
        // After a fork a lock may stay locked forever.
        if self.threads.is_ours() {
            self.finish();
        }
    }
}

/// The name of the incomplete file.
fn part_of(path: &Path) -> PathBuf {
    let mut part: OsString = path.into();
    part.push(".part");
    part.into()
}

/// Checks that writing to `path` would destroy no other data: there is no file, an empty one, or a trace. A
/// partial file may also be a device, since it is not replaced.
fn check_free(path: &Path, is_partial: bool) -> Result<()> {
    let is_free = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(refused(path, error)),
        Ok(found) if !found.is_file() => is_partial && !found.is_dir(),
        Ok(found) if found.len() == 0 => true,
        Ok(_) => {
            let mut start = [0; BEGINNING.len()];
            let read = File::open(path).and_then(|mut file| file.read_exact(&mut start));
            read.is_ok() && start == BEGINNING.as_bytes()
        }
    };
    if is_free {
        return Ok(());
    }
    let message = format!("{} exists and is not a trace; give another path, or remove it", path.display());
    Err(Error::new(ErrorKind::State, message))
}

fn refused(path: &Path, cause: io::Error) -> Error {
    Error::new(ErrorKind::Io, "the trace cannot be written; give a writable path")
        .because(cause)
        .in_shard(path)
}

fn write(recording: &TraceRecording, out: &mut impl Write) -> io::Result<()> {
    let TraceRecording { tracks, events, left_out, .. } = recording;
    let pid = std::process::id();
    let us = |nanoseconds: u64| nanoseconds as f64 / 1e3;
    write!(out, "{BEGINNING}{left_out}}},\"traceEvents\":[")?;
    write!(
        out,
        "{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{pid},\"args\":{{\"name\":\"forebay\"}}}}"
    )?;
    for ThreadTrack { id, name } in tracks {
        // Tracks are sorted in the order of flow, not by their first span.
        let rank = ["forebay-io", "forebay-worker", "forebay-collator", "consumer"]
            .iter()
            .position(|kind| name.starts_with(kind))
            .unwrap_or(4);
        write!(
            out,
            ",\n{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{pid},\"tid\":{id},\"args\":{{\"name\":\"{name}\"}}}}"
        )?;
        write!(
            out,
            ",\n{{\"ph\":\"M\",\"name\":\"thread_sort_index\",\"pid\":{pid},\"tid\":{id},\"args\":{{\"sort_index\":{}}}}}",
            1000 * rank as u32 + id.min(&999)
        )?;
    }
    for (track, event) in events {
        match event {
            TraceEvent::Span { name, begin, length, number } => {
                write!(
                    out,
                    ",\n{{\"ph\":\"X\",\"name\":\"{name}\",\"pid\":{pid},\"tid\":{track},\"ts\":{:.3},\"dur\":{:.3}",
                    us(*begin),
                    us(*length)
                )?;
                if let Some(number) = number {
                    write!(out, ",\"args\":{{\"number\":{number}}}")?;
                }
                write!(out, "}}")?;
            }
            TraceEvent::Queues { at, queues, workers } => {
                let QueueSizes { records, record_bytes, read_bytes, examples, batches } = queues;
                let counters = [
                    ("records", *records),
                    ("record_bytes", *record_bytes),
                    ("read_bytes", *read_bytes),
                    ("examples", *examples),
                    ("batches", *batches),
                    ("workers", *workers),
                ];
                for (name, value) in counters {
                    write!(
                        out,
                        ",\n{{\"ph\":\"C\",\"name\":\"{name}\",\"pid\":{pid},\"tid\":{track},\"ts\":{:.3},\"args\":{{\"{name}\":{value}}}}}",
                        us(*at)
                    )?;
                }
            }
        }
    }
    writeln!(out, "\n]}}")?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patience::until;
    use serde_json::Value;

    #[test]
    fn what_was_told_is_in_the_file_and_no_more_than_fits() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.json");
        let (trace, mut threads) = (Arc::new(Trace::default()), Threads::default());
        let track = trace.track("forebay-worker-1");
        let early = Instant::now();
        assert!(!trace.is_on());
        trace.start(&path, Duration::from_secs(60), &mut threads).unwrap();
        let error = trace.start(&path, Duration::ZERO, &mut threads).unwrap_err();
        assert_eq!(error.kind, ErrorKind::State);
        let now = Instant::now() + Duration::from_millis(2);
        trace.span(&track, "work", early..now, Some(7));
        trace.queues(&track, now, QueueSizes { records: 3, ..QueueSizes::default() }, 2);
        for i in 0..MOST as u64 {
            let at = now + Duration::from_micros(i);
            trace.span(&track, "quick", at..at + Duration::from_nanos(800), None);
        }
        trace.finish();
        until("the file is whole", || path.exists());
        let written: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        assert_eq!(written["otherData"]["events_left_out"], 2);
        let events = written["traceEvents"].as_array().unwrap();
        let of = |kind: &str| events.iter().filter(|event| event["ph"] == kind).collect::<Vec<_>>();
        assert_eq!((of("X").len(), of("C").len()), (MOST - 1, 6));
        assert_eq!(of("M")[1]["args"]["name"], "forebay-worker-1");
        let first = of("X")[0];
        assert_eq!((&first["ts"], &first["args"]["number"]), (&Value::from(0.0), &Value::from(7)));
        let most = now.duration_since(early).as_secs_f64() * 1e6;
        assert!((2000.0..=most).contains(&first["dur"].as_f64().unwrap()), "{first}, {most}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn what_lies_behind_the_end_is_cut_off() {
        let start = Instant::now();
        let ms = |n| start + Duration::from_millis(n);
        let time = start..ms(10);
        let recording = TraceRecording { time, tracks: Vec::new(), events: Vec::new(), left_out: 0 };
        let trace = Trace { recording: Mutex::new(Some(recording)), ..Trace::default() };
        let track = trace.track("forebay-io");
        trace.span(&track, "wait", ms(4)..ms(30), None);
        trace.span(&track, "late", ms(12)..ms(30), Some(1));
        trace.queues(&track, ms(11), QueueSizes::default(), 1);
        let mut file = Vec::new();
        write(trace.lock().as_ref().unwrap(), &mut file).unwrap();
        let written: Value = serde_json::from_slice(&file).unwrap();
        let events: Vec<_> =
            written["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] != "M").collect();
        assert_eq!(events.len(), 1, "{events:?}");
        assert_eq!((&events[0]["ts"], &events[0]["dur"]), (&Value::from(4000.0), &Value::from(6000.0)));
    }

    #[test]
    fn a_path_that_cannot_be_is_told_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let trace = Arc::new(Trace::default());
        let path = folder.path().join("no/such/folder.json");
        let error = trace.start(&path, Duration::ZERO, &mut Threads::default()).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Io);
        assert!(!trace.is_on());
    }
}
