//! Opens a table of recordings: time and memory for each row, by the number of rows in `FOREBAY_ROWS`
//! (default 1 million). `FOREBAY_ROWS=10000000 cargo bench --bench files`: at most 10 s and 60 bytes a row.

#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs, reason = "a program that prints a table")]

use std::{
    env, fs,
    io::{BufWriter, Write},
    path::Path,
    sync::atomic::AtomicBool,
    time::Instant,
};

use forebay::source::{ArrowOptions, Recordings};

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

fn main() {
    let rows = env::var("FOREBAY_ROWS").map_or(1_000_000, |rows| rows.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("table.csv");
    write_table(&path, rows);
    let size = fs::metadata(&path).unwrap().len();
    let options = ArrowOptions { columns: vec!["quality".to_owned()], ..ArrowOptions::default() };
    for round in 0..3 {
        let begin = Instant::now();
        let source = Recordings::open(&[[path.clone()]], &options, &AtomicBool::new(false)).unwrap();
        let seconds = begin.elapsed().as_secs_f64();
        assert_eq!(source.n_rows(), rows);
        println!(
            "round {round}: {rows} rows ({} MB) in {seconds:.2} s, {:.2} us and {:.1} bytes each",
            size / 1_000_000,
            seconds / rows as f64 * 1e6,
            source.rows_held() as f64 / rows as f64,
        );
    }
}
