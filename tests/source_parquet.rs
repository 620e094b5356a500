//! Every row of every kind of Parquet file equals what the `parquet` crate's own reader gives.

#![cfg(feature = "parquet")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[test]
fn smoke() {
    use forebay::source::parquet::*;
    let Ok(folder) = std::env::var("SMOKE") else { return };
    let files = list_files(&[folder]).unwrap();
    let start = std::time::Instant::now();
    let source = std::sync::Arc::new(
        ParquetSource::open(&files, &ParquetOptions::text("text"), &false.into()).unwrap(),
    );
    println!("open {:?} {} rows {} groups", start.elapsed(), source.n_rows(), source.row_groups().len());
    for _ in 0..3 {
        let start = std::time::Instant::now();
        let mut reader = source.reader();
        let mut n = 0;
        for row in 0..source.n_rows() {
            n += reader.read(row, source.n_rows() - row).unwrap().bytes.len();
        }
        let s = start.elapsed().as_secs_f64();
        println!("{n} bytes {} MB/s {} Mtok/s", n as f64 / 1e6 / s, n as f64 / 4.3e6 / s);
    }
}
