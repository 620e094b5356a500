//! Damaged and deceptive shards through the engines of a `Loader` and of `forebay check`: each row is
//! delivered or reported, within limits of time and memory over all threads.
//!
//! 100 damaged copies, 2000 under `make soak`, and shards that claim rows without bytes. The tests run one by
//! one, since the memory measured is the process's.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "hostile_common/mutate.rs"]
#[allow(dead_code, reason = "a part is used")]
mod mutate;
#[path = "../crates/source/tests/source_common/mod.rs"]
mod source_common;

use std::{
    alloc::{GlobalAlloc, Layout, System},
    env, fs,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use arrow_array::{ArrayRef, NullArray, StringArray, StructArray};
use forebay::{
    ErrorKind, LoaderConfig, Result,
    config::CountOrAuto,
    contract::{Collate, TaskFor},
    engine::{Engine, Plan, Step},
    source::{Recordings, SourceOptions},
    tasks::{AudioTask, CheckTask},
};
use mutate::{Rng, mutate};
use parquet::{basic::Compression, file::properties::WriterProperties};
use source_common::{audio_struct, batch, byte_columns, data, formats, write, write_parquet};

/// Counts the bytes that the process holds, and their peak.
struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is forwarded to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        PEAK.fetch_max(HELD.fetch_add(layout.size(), Relaxed) + layout.size(), Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[cfg_attr(not(feature = "python"), global_allocator)]
#[cfg_attr(feature = "python", used)]
static ALLOCATOR: Counting = Counting;

static ONE_BY_ONE: Mutex<()> = Mutex::new(());

/// The most bytes that an engine may hold for a shard of at most a few hundred kilobytes, with its decoders,
/// plans and batches.
const MOST_BYTES: usize = 96 << 20;
/// The longest time for a batch; above it, the engine hangs.
const MOST_TIME: Duration = Duration::from_secs(100);
/// Batches taken of a shard.
const BATCHES: usize = 16;

fn open(path: &Path) -> Result<Arc<Recordings>> {
    let options = SourceOptions { max_record_bytes: 4 << 20, ..SourceOptions::default() };
    Recordings::open(&[[path.to_owned()]], &options).map(Arc::new)
}

fn loader(order: &str) -> (Plan, AudioTask) {
    let config = LoaderConfig {
        batch_size: 4,
        shuffle_buffer_size: 8,
        sample_rate: 8000,
        clip_seconds: 0.1,
        n_mels: 8,
        n_fft: 256,
        hop_length: 80,
        n_workers: CountOrAuto::Exactly(2),
        prefetch_batches: CountOrAuto::Exactly(1),
        order: Some(order.into()),
        ..LoaderConfig::eval()
    };
    let (plan, audio) = config.check().unwrap();
    (plan, AudioTask::new(audio))
}

/// Takes some batches; returns the rows delivered, those that failed, and whether the pass ended.
fn take<K: TaskFor<Recordings>>(
    source: &Arc<Recordings>,
    (plan, task): (Plan, K),
    rows: impl Fn(<K::Collate as Collate>::Batch) -> Vec<u64>,
) -> Result<(Vec<u64>, Vec<u64>, bool)> {
    let mut engine = Engine::new(Arc::clone(source), task, plan)?;
    let (mut delivered, mut ended) = (Vec::new(), false);
    for _ in 0..BATCHES {
        match engine.next(MOST_TIME)? {
            Step::Batch(_, batch) => delivered.extend(rows(batch)),
            Step::End => {
                ended = true;
                break;
            }
            Step::TimedOut => panic!("a batch took longer than {MOST_TIME:?}"),
        }
    }
    let failed = engine.errors().filter_map(|error| error.place.index).collect();
    Ok((delivered, failed, ended))
}

/// Runs a shard through both engines; returns whether any row was delivered, and the error.
fn through(path: &Path, what: &str) -> (bool, Option<ErrorKind>) {
    let before = HELD.load(Relaxed);
    PEAK.store(before, Relaxed);
    let outcome = match open(path) {
        Ok(source) => {
            let n_rows = source.n_rows();
            let mut outcome = (false, None);
            for engine in ["sequential", "global", "check"] {
                let taken = match engine {
                    "check" => {
                        let plan = Plan { n_workers: 2, ..CheckTask::plan() };
                        take(&source, (plan, CheckTask::default()), |all| {
                            all.iter().map(|one| one.index).collect()
                        })
                    }
                    order => take(&source, loader(order), |batch| {
                        batch.columns[1].values.values::<i64>().iter().map(|&n| n as u64).collect()
                    }),
                };
                match taken {
                    Ok((delivered, failed, ended)) => {
                        let mut all = [&delivered[..], &failed].concat();
                        all.sort_unstable();
                        assert!(
                            all.windows(2).all(|pair| pair[0] < pair[1]),
                            "{what}, {engine}: a row twice in {all:?}"
                        );
                        assert!(all.iter().all(|&row| row < n_rows), "{what}, {engine}: {all:?} of {n_rows}");
                        assert!(
                            !ended || all.len() as u64 == n_rows,
                            "{what}, {engine}: {all:?} of {n_rows}"
                        );
                        outcome.0 |= !delivered.is_empty();
                    }
                    Err(error) => outcome.1 = Some(error.kind),
                }
            }
            outcome
        }
        Err(error) => (false, Some(error.kind)),
    };
    let held = PEAK.load(Relaxed).saturating_sub(before);
    assert!(held < MOST_BYTES, "{what}: {held} bytes were held");
    outcome
}

/// 20 ms of a tone at 8 kHz, as a WAV.
fn wav(n: usize) -> Vec<u8> {
    let samples: Vec<u8> = (0..160)
        .flat_map(|i| ((1000.0 * (i as f32 * (n + 1) as f32 / 10.0).sin()) as i16).to_le_bytes())
        .collect();
    let header = [
        &b"RIFF"[..],
        &356u32.to_le_bytes(),
        b"WAVEfmt ",
        &16u32.to_le_bytes(),
        &[1, 0, 1, 0],
        &8000u32.to_le_bytes(),
        &16_000u32.to_le_bytes(),
        &[2, 0, 16, 0],
        b"data",
        &320u32.to_le_bytes(),
    ];
    [header.concat(), samples].concat()
}

/// Some recordings, one of them null and one invalid.
fn audio() -> ArrayRef {
    let bytes: Vec<_> = (0..10)
        .map(|n| match n {
            3 => None,
            7 => Some(b"no recording".to_vec()),
            n => Some(wav(n)),
        })
        .collect();
    let paths = StringArray::from_iter((0..10).map(|n| (n != 5).then(|| format!("{n}.wav"))));
    audio_struct(byte_columns(&bytes).remove(3), Arc::new(paths))
}

#[test]
fn damaged_shards() {
    let _alone = ONE_BY_ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let mut bases = Vec::new();
    for (n, format) in formats().into_iter().enumerate() {
        let path = folder.path().join(format!("{n}.arrow"));
        write(&path, format, &[batch([("audio", audio())]), batch([("audio", audio())])]);
        bases.push((fs::read(path).unwrap(), "arrow"));
    }
    for name in ["cache.arrow", "nulls.arrow", "paths.arrow", "views.arrow", "deltas.arrow"] {
        bases.push((fs::read(data(name)).unwrap(), "arrow"));
    }
    for codec in [Compression::UNCOMPRESSED, Compression::SNAPPY, Compression::ZSTD(Default::default())] {
        let path = folder.path().join("a.parquet");
        let properties = WriterProperties::builder().set_compression(codec).build();
        write_parquet(&path, &properties, &[batch([("audio", audio())])]);
        bases.push((fs::read(path).unwrap(), "parquet"));
    }
    let soak: u64 = env::var("FOREBAY_SOAK").map_or(1, |n| n.parse().unwrap());
    let others: Vec<_> = bases.iter().map(|(bytes, _)| bytes.clone()).collect();
    let (mut n_good, mut n_bad) = (0, 0);
    for trial in 0..100 * soak {
        let mut rng = Rng(trial);
        let (base, ending) = &bases[trial as usize % bases.len()];
        let path = folder.path().join(format!("mutant.{ending}"));
        fs::write(&path, mutate(&mut rng, base, &others)).unwrap();
        match through(&path, &format!("trial {trial}")) {
            (true, _) => n_good += 1,
            (false, _) => n_bad += 1,
        }
    }
    assert!(n_good > 0 && n_bad > 0, "{n_good} with rows, {n_bad} without");
}

/// Replaces the little-endian `from` in `bytes` by `to` everywhere; returns the number of places.
fn replace(bytes: &mut [u8], from: u64, to: u64) -> usize {
    let places: Vec<_> = (0..bytes.len() - 7).filter(|&at| bytes[at..at + 8] == from.to_le_bytes()).collect();
    places.iter().for_each(|&at| bytes[at..at + 8].copy_from_slice(&to.to_le_bytes()));
    places.len()
}

/// A batch of 5003 nulls whose header claims more.
#[test]
fn rows_that_nothing_backs() {
    let _alone = ONE_BY_ONE.lock().unwrap_or_else(PoisonError::into_inner);
    const N: usize = 5003;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.arrow");
    let nulls = || -> ArrayRef { Arc::new(NullArray::new(N)) };
    let plain = byte_columns(&vec![None; N]).remove(3);
    let no_width: ArrayRef = Arc::new(StructArray::new(
        vec![
            Arc::new(arrow_schema::Field::new("bytes", arrow_schema::DataType::Null, true)),
            Arc::new(arrow_schema::Field::new("path", arrow_schema::DataType::Null, true)),
        ]
        .into(),
        vec![nulls(), nulls()],
        None,
    ));
    for format in formats() {
        for audio in [&plain, &no_width] {
            for claim in [1 << 24, 1 << 40, 1 << 62, i64::MAX as u64, u64::MAX] {
                write(&path, format, &[batch([("audio", Arc::clone(audio))])]);
                assert_eq!(open(&path).unwrap().n_rows(), N as u64);
                let mut bytes = fs::read(&path).unwrap();
                assert!(replace(&mut bytes, N as u64, claim) >= 2);
                fs::write(&path, bytes).unwrap();
                let what = format!("{claim} rows, {format:?}, {}", audio.data_type());
                let source = open(&path).unwrap();
                assert_eq!(source.n_rows(), 0, "{what}");
                assert_eq!(source.shards()[0].damage.as_ref().unwrap().kind, ErrorKind::Corrupt, "{what}");
                assert_eq!(through(&path, &what), (false, Some(ErrorKind::Config)), "{what}");
            }
        }
    }
    // The largest number of rows that a writer may put into a batch is accepted, compressed to very few
    // bytes.
    for format in formats() {
        write(&path, format, &[batch([("audio", byte_columns(&vec![None; 1 << 20]).remove(3))])]);
        assert_eq!(open(&path).unwrap().n_rows(), 1 << 20, "{format:?}");
    }
}

/// A variable-length number of Thrift, zigzag.
fn number(value: u64) -> Vec<u8> {
    let (mut value, mut bytes) = (value << 1, Vec::new());
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

#[test]
fn rows_that_no_row_group_has() {
    let _alone = ONE_BY_ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    for n in [1 << 24, 1 << 40, 1 << 62] {
        let n_rows = number(n);
        let leaf = [&[0x15, 12, 0x25, 2, 0x18, 5][..], b"audio", &[0]].concat();
        let column = [
            &[0x26, 0, 0x1c, 0x15, 12, 0x19, 0x15, 0, 0x19, 0x18, 5][..],
            b"audio",
            &[0x15, 0, 0x16],
            &n_rows,
            &[0x16, 40, 0x16, 40, 0x26, 8, 0, 0],
        ]
        .concat();
        let group = [&[0x19, 0x1c][..], &column, &[0x16, 40, 0x16], &n_rows, &[0]].concat();
        let root = [0x35, 0, 0x18, 1, b'r', 0x15, 2, 0];
        let footer =
            [&[0x15, 2, 0x19, 0x2c][..], &root, &leaf, &[0x16], &n_rows, &[0x19, 0x1c], &group, &[0]]
                .concat();
        let file = [&b"PAR1"[..], &[0; 20], &footer, &(footer.len() as u32).to_le_bytes(), b"PAR1"].concat();
        fs::write(&path, file).unwrap();
        let error = open(&path).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Format, "{error}");
        assert!(error.message.contains("at most"), "{n}: {error}");
    }
}
