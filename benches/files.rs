//! Opens tables of recordings, csv and JSON lines: time, memory that is held and peak memory for each row, by
//! the number of rows in `FOREBAY_ROWS` (default 1 million) and the endings in `FOREBAY_TABLES` (default
//! `csv,csv.gz,csv.zst,jsonl,jsonl.gz,jsonl.zst`). `FOREBAY_ROWS=10000000 cargo bench --bench files`: at most
//! 10 s, and 60 bytes a row and its text. Then a folder of `FOREBAY_FILES` (default 10 thousand) small
//! recordings, each of which is read.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a program that prints a table")]

use std::{
    env, fs,
    io::{BufWriter, Write},
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use forebay::{
    contract::ReadRecords,
    source::WholeRecord,
    source::{Recordings, SourceOptions},
};

/// Writes a table of segments: a hundred of each file, with a label and a text. Returns the bytes of all
/// texts.
fn write_table(path: &Path, rows: u64) -> u64 {
    let mut file = BufWriter::with_capacity(1 << 20, fs::File::create(path).unwrap());
    let is_csv = path.extension().unwrap() == "csv";
    if is_csv {
        writeln!(file, "path,start,end,label,text").unwrap();
    }
    let mut bytes = 0;
    for row in 0..rows {
        let (recording, start) = (row / 100, row % 100 * 5);
        let species = row.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54;
        let name = format!("site{:03}/2024/XC{recording:08}.ogg", recording % 512);
        let text = format!("row {row}, said");
        bytes += text.len() as u64;
        let end = start + 5;
        if is_csv {
            writeln!(file, "{name},{start}.0,{end}.0,species{species:04},\"{text}\"").unwrap();
        } else {
            writeln!(
                file,
                "{{\"path\": \"{name}\", \"start\": {start}.0, \"end\": {end}.0, \"label\": \"species{species:04}\", \"text\": \"{text}\"}}"
            )
            .unwrap();
        }
    }
    file.flush().unwrap();
    bytes
}

/// Compresses a file beside it.
fn compress(path: &Path, ending: &str) -> PathBuf {
    let packed = PathBuf::from(format!("{}.{ending}", path.display()));
    let (mut from, to) = (fs::File::open(path).unwrap(), fs::File::create(&packed).unwrap());
    if ending == "gz" {
        let mut encoder = flate2::write::GzEncoder::new(to, flate2::Compression::default());
        std::io::copy(&mut from, &mut encoder).unwrap();
        encoder.finish().unwrap();
    } else {
        zstd::stream::copy_encode(from, to, 3).unwrap();
    }
    packed
}

/// The peak of this process's memory since the last call, and its memory now, bytes, where the system tells
/// them.
fn memory() -> (u64, u64) {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("0 kB");
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    };
    // Where this is not allowed, the peak is that of the process.
    let _ = fs::write("/proc/self/clear_refs", "5");
    (of("VmHWM:"), of("VmRSS:"))
}

/// Seconds of this process's threads on CPUs, where the system tells them.
fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(") ").next().unwrap_or_default();
    let ticks = after_name.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<f64>().unwrap_or(0.0));
    ticks.sum::<f64>() / 100.0
}

/// Opens a table three times.
fn open_table(path: &Path, rows: u64, text_bytes: u64) {
    let size = fs::metadata(path).unwrap().len();
    let options = SourceOptions { columns: vec!["text".to_owned()], ..SourceOptions::default() };
    let name = path.file_name().unwrap().display();
    for round in 0..3 {
        let (begin, cpu, (_, before)) = (Instant::now(), cpu_seconds(), memory());
        let source = Recordings::open(&[[path.to_owned()]], &options).unwrap();
        let (seconds, cpu) = (begin.elapsed().as_secs_f64(), cpu_seconds() - cpu);
        let (peak, _) = memory();
        assert_eq!(source.n_rows(), rows);
        let each = |bytes: u64| bytes as f64 / rows as f64;
        println!(
            "{name}, round {round}: {rows} rows ({} MB) in {seconds:.2} s, {cpu:.2} s of CPU, {:.2} us each; {:.1} bytes held each, \
             {:.1} without text, {:.1} at the peak",
            size / 1_000_000,
            seconds / rows as f64 * 1e6,
            each(source.table_bytes() as u64),
            each(source.table_bytes() as u64 - text_bytes),
            each(peak.saturating_sub(before)),
        );
    }
}

/// Writes recordings of 16 ms, a thousand in each folder.
fn write_files(folder: &Path, files: u64) {
    let mut wav = b"RIFF\x24\x01\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00".to_vec();
    wav.extend(8000u32.to_le_bytes());
    wav.extend(16_000u32.to_le_bytes());
    wav.extend(b"\x02\x00\x10\x00data\x00\x01\x00\x00");
    wav.extend([0; 256]);
    for file in 0..files {
        let class = folder.join(format!("class{:04}", file / 1000));
        if file % 1000 == 0 {
            fs::create_dir_all(&class).unwrap();
        }
        fs::write(class.join(format!("XC{file:07}.wav")), &wav).unwrap();
    }
}

/// The number of files that this process has open, where the system tells it.
fn n_open() -> usize {
    fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

/// Opens a source of small files, and reads each.
fn read_files(what: &str, path: &Path, files: u64) {
    let (begin, before) = (Instant::now(), n_open());
    let source = Recordings::open::<PathBuf>(&[[path.to_owned()]], &SourceOptions::default()).unwrap();
    let opened = begin.elapsed().as_secs_f64();
    assert_eq!(source.n_rows(), files);
    let (source, mut most) = (Arc::new(source), 0);
    let (mut reader, begin) = (source.reader(), Instant::now());
    for row in 0..files {
        let record = reader.read(row, 1, &WholeRecord::ONCE).unwrap();
        assert_eq!(record.payload.bytes.len(), 300);
        if row % 1000 == 0 {
            most = most.max(n_open() - before);
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!(
        "{what} of {files} files: opened in {opened:.2} s, {:.1} bytes each; read in {seconds:.1} s, {:.1} us each; at most \
         {most} open",
        source.table_bytes() as f64 / files as f64,
        seconds / files as f64 * 1e6,
    );
}

fn main() {
    let rows = env::var("FOREBAY_ROWS").map_or(1_000_000, |rows| rows.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let endings = env::var("FOREBAY_TABLES");
    let endings = endings.as_deref().unwrap_or("csv,csv.gz,csv.zst,jsonl,jsonl.gz,jsonl.zst").split(',');
    for kind in ["csv", "jsonl"] {
        let wanted: Vec<&str> = endings.clone().filter(|ending| ending.starts_with(kind)).collect();
        if wanted.is_empty() {
            continue;
        }
        let path = folder.path().join(format!("table.{kind}"));
        let text_bytes = write_table(&path, rows);
        for ending in wanted {
            match ending.strip_prefix(kind).unwrap().strip_prefix('.') {
                None => open_table(&path, rows, text_bytes),
                Some(packing) => open_table(&compress(&path, packing), rows, text_bytes),
            }
        }
    }
    let files = env::var("FOREBAY_FILES").map_or(10_000, |files| files.parse().unwrap());
    let recordings = folder.path().join("recordings");
    write_files(&recordings, files);
    read_files("folder", &recordings, files);
    let table = recordings.join("files.csv");
    let rows = (0..files).map(|file| format!("class{:04}/XC{file:07}.wav\n", file / 1000));
    fs::write(&table, std::iter::once("path\n".to_owned()).chain(rows).collect::<String>()).unwrap();
    read_files("table", &table, files);
}
