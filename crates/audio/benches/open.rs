//! What the first span of a recording costs, for each format: open, open and a second, and a second more, in
//! memory and from a file by ranges.
//!
//! ```text
//! python benches/recordings.py     # once; wants numpy and soundfile, and ffmpeg for AAC
//! cargo bench -p forebay-audio --bench open [-- NAME]
//! ```
//!
//! Columns are the median CPU time of this thread in microseconds. To compare two commits, build both and run
//! the binaries in turns.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a bench may panic")]
#![allow(clippy::print_stdout, reason = "the figures")]

use std::{fs::File, ops::Range, os::unix::fs::FileExt, path::Path, sync::Arc};

use bytes::Bytes;
use forebay_audio::{AudioDecoder, Planes, RangeIndex, ReadAt};
use forebay_base::Result;

/// A file that is read by `pread`.
struct OnDisk {
    file: File,
    size: u64,
}

impl ReadAt for OnDisk {
    fn size(&self) -> u64 {
        self.size
    }

    fn read(&self, range: Range<u64>) -> Result<Bytes> {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        self.file.read_exact_at(&mut bytes, range.start).unwrap();
        Ok(bytes.into())
    }
}

/// Nanoseconds of CPU time of this thread.
fn cpu_time() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for the write of one `timespec`, and the clock exists on every Unix.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The median of the times of a call, in microseconds, over rounds of some milliseconds.
fn time(mut call: impl FnMut(u64)) -> f64 {
    let mut number = 0;
    let mut round = |n: u64| {
        let begin = cpu_time();
        for _ in 0..n {
            number += 1;
            call(number);
        }
        (cpu_time() - begin) as f64 / n as f64
    };
    let n = (4e6 / round(3).max(1.0)).clamp(1.0, 20_000.0) as u64;
    let mut times: Vec<f64> = (0..25).map(|_| round(n)).collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2] / 1000.0
}

fn main() {
    let only = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/bench-recordings");
    let folder = std::env::var_os("BENCH_RECORDINGS").map_or(folder, Into::into);
    let mut paths: Vec<_> = std::fs::read_dir(&folder)
        .expect("run `python benches/recordings.py` first")
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    println!("{:20} {:>9} {:>9} {:>9} {:>9} {:>9}", "", "open", "first", "next", "disk 1st", "disk next");
    for path in paths {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if only.as_ref().is_some_and(|only| !name.contains(only.as_str())) {
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        let (mut decoder, mut planes) = (AudioDecoder::new(), Planes::new());
        let info = decoder.open(&bytes).unwrap().info();
        let second = u64::from(info.sample_rate);
        // A step that visits the whole recording in no order of its bytes.
        let span = |number: u64| {
            let start = number * 7 * second / 3 * 5 % (info.n_samples - second);
            start..start + second
        };
        let open = time(|_| {
            decoder.open(std::hint::black_box(&bytes)).unwrap();
        });
        let first = time(|number| {
            let recording = decoder.open(&bytes).unwrap();
            decoder.read(&recording, span(number), &mut planes).unwrap();
        });
        let recording = decoder.open(&bytes).unwrap();
        let next = time(|number| decoder.read(&recording, span(number), &mut planes).unwrap());
        let io = OnDisk { file: File::open(&path).unwrap(), size: bytes.len() as u64 };
        let disk_first = time(|number| {
            let index = Arc::new(RangeIndex::open(&mut decoder, &io).unwrap());
            let bytes = index.span_bytes(&mut decoder, &io, span(number)).unwrap();
            decoder.read_span(&bytes, span(number), &mut planes).unwrap();
        });
        let index = Arc::new(RangeIndex::open(&mut decoder, &io).unwrap());
        let disk_next = time(|number| {
            let bytes = index.span_bytes(&mut decoder, &io, span(number)).unwrap();
            decoder.read_span(&bytes, span(number), &mut planes).unwrap();
        });
        println!("{name:20} {open:9.3} {first:9.2} {next:9.2} {disk_first:9.2} {disk_next:9.2}");
    }
}
