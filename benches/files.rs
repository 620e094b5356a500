//! Opens a table of recordings: time and memory for each row, by the number of rows in `FOREBAY_ROWS`
//! (default 1 million). `FOREBAY_ROWS=10000000 cargo bench --bench files`: at most 10 s and 60 bytes a row.
//! Then the same for a folder of `FOREBAY_FILES` (default 10 thousand) small recordings, each of which is
//! read.

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
    source::{ArrowOptions, Recordings},
};

/// Writes a table of segments: a hundred of each file, with a label, a number and a text that is not read.
fn write_table(path: &Path, rows: u64) {
    let mut file = BufWriter::with_capacity(1 << 20, fs::File::create(path).unwrap());
    writeln!(file, "path,start,end,label,quality,recordist").unwrap();
    for row in 0..rows {
        let (recording, start) = (row / 100, row % 100 * 5);
        let species = row.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54;
        writeln!(
            file,
            "site{:03}/2024/XC{recording:08}.ogg,{start}.0,{}.0,species{species:04},{}.5,\"Doe, Jane\"",
            recording % 512,
            start + 5,
            row % 5,
        )
        .unwrap();
    }
    file.flush().unwrap();
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
    let source = Recordings::open::<PathBuf>(&[[path.to_owned()]], &ArrowOptions::default()).unwrap();
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
        source.rows_held() as f64 / files as f64,
        seconds / files as f64 * 1e6,
    );
}

fn main() {
    let rows = env::var("FOREBAY_ROWS").map_or(1_000_000, |rows| rows.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("table.csv");
    write_table(&path, rows);
    let size = fs::metadata(&path).unwrap().len();
    let options = ArrowOptions { columns: vec!["quality".to_owned()], ..ArrowOptions::default() };
    for round in 0..3 {
        let begin = Instant::now();
        let source = Recordings::open(&[[path.clone()]], &options).unwrap();
        let seconds = begin.elapsed().as_secs_f64();
        assert_eq!(source.n_rows(), rows);
        println!(
            "round {round}: {rows} rows ({} MB) in {seconds:.2} s, {:.2} us and {:.1} bytes each",
            size / 1_000_000,
            seconds / rows as f64 * 1e6,
            source.rows_held() as f64 / rows as f64,
        );
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
