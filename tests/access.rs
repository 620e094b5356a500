//! Random access to clips: what counts as busy, on which a child after a fork relies.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod patience;

use std::{
    sync::{
        Arc, Mutex, OnceLock, Weak,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use forebay::{
    LoaderConfig, Result,
    access::{Access, Clip},
    contract::{ReadRecords, RowStore, Source},
    error::Place,
    fields::Row,
    source::{RawRecord, ReadRequest, StoredPayload},
    tasks::AudioTask,
};
use patience::until;

const SOON: Duration = Duration::from_secs(120);

/// Rows of silence. It asks whether the access is busy where the access may hold a lock: when a call begins,
/// and in the second of its readers that are made, which waits to be told to go on.
struct Watching {
    access: OnceLock<Weak<Access<Self>>>,
    begins: Mutex<Vec<bool>>,
    n_readers: AtomicUsize,
    go_on: Mutex<mpsc::Receiver<()>>,
    second: Mutex<mpsc::Sender<bool>>,
}

impl Watching {
    fn is_busy(&self) -> bool {
        self.access.get().unwrap().upgrade().unwrap().is_busy()
    }
}

struct Silence;

impl ReadRecords for Silence {
    type Payload = StoredPayload;
    type Request<'a> = dyn ReadRequest + 'a;

    fn read(&mut self, _row: u64, _run: u64, _wants: &dyn ReadRequest) -> Result<RawRecord> {
        let (rate, n) = (8000_u32, 8000_u32);
        let mut wav = [b"RIFF", &(36 + 2 * n).to_le_bytes()[..], b"WAVEfmt ", &16_u32.to_le_bytes()].concat();
        wav.extend([1_u16, 1].iter().flat_map(|field| field.to_le_bytes()));
        wav.extend([rate, 2 * rate].iter().flat_map(|field| field.to_le_bytes()));
        wav.extend([2_u16, 16].iter().flat_map(|field| field.to_le_bytes()));
        wav.extend([b"data", &(2 * n).to_le_bytes()[..], &vec![0; 2 * n as usize]].concat());
        Ok(RawRecord::new(Bytes::from(wav), Row::default()))
    }
}

impl RowStore for Watching {
    fn shard_rows(&self, _epoch: u64) -> Result<Vec<u64>> {
        Ok(vec![8])
    }

    fn place(&self, row: u64) -> Place {
        Place::in_shard("silence", row)
    }

    fn random_access(&self) -> bool {
        self.begins.lock().unwrap().push(self.is_busy());
        true
    }
}

impl Source for Watching {
    type Reader = Silence;

    fn reader(self: &Arc<Self>) -> Silence {
        if self.n_readers.fetch_add(1, Ordering::SeqCst) == 1 {
            self.go_on.lock().unwrap().recv().unwrap();
            self.second.lock().unwrap().send(self.is_busy()).unwrap();
        }
        Silence
    }
}

#[test]
fn all_that_may_hold_a_lock_is_busy() {
    let (go_on, gate) = mpsc::channel();
    let (second, found) = mpsc::channel();
    let source = Arc::new(Watching {
        access: OnceLock::new(),
        begins: Mutex::default(),
        n_readers: AtomicUsize::new(0),
        go_on: Mutex::new(gate),
        second: Mutex::new(second),
    });
    let config = LoaderConfig { clip_seconds: 0.25, sample_rate: 8000, ..LoaderConfig::default() };
    let task = AudioTask::new(config.check().unwrap().1);
    let access = Arc::new(Access::new(source.clone(), task, 2, 0));
    source.access.set(Arc::downgrade(&access)).unwrap();
    assert!(!access.is_busy());
    let clips = [0, 1].map(|row| Clip { row, start: None });
    let mut pending = access.batch(&clips).unwrap();
    let begins = source.begins.lock().unwrap().clone();
    assert!(!begins.is_empty() && begins.iter().all(|is_busy| *is_busy), "a call that begins: {begins:?}");
    // One thread makes both; the other still makes its reader after the call.
    let columns = pending.wait(Instant::now() + SOON).unwrap().unwrap();
    assert_eq!(columns.rows, 2);
    drop(pending);
    go_on.send(()).unwrap();
    assert!(found.recv_timeout(SOON).unwrap(), "a reader that is being made");
    until("no thread is at work", || !access.is_busy());
}
