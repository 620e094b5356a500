//! Fuzz targets: the ledger, the metadata of an array, a shard's file, and the files of a build. See
//! `fuzz/README.md`. Built for tests and with `--cfg fuzzing` only.

use crate::{
    build::inputs::fuzz::inputs,
    chunk::{self, ChunkIndex},
    fields::DataType,
    layout::{ArrayLayout, ChunkCompression, MAX_CHUNK_BYTES},
    ledger::Ledger,
};

/// A parser, called with any bytes.
pub type Target = fn(&[u8]);

/// The targets by name. A target returns for any bytes; if there are two ways to the same result, it compares
/// them.
pub const TARGETS: [(&str, Target); 4] =
    [("inputs", inputs), ("ledger", ledger), ("zarr", zarr), ("shard", shard)];

/// `shard_ledger.json`: a ledger that can be read is equal after it is written and read again.
fn ledger(bytes: &[u8]) {
    let Ok(json) = serde_json::from_slice(bytes) else { return };
    if let Ok(ledger) = Ledger::from_json(&json) {
        assert_eq!(Ledger::from_json(&ledger.to_json()), Ok(ledger));
    }
}

/// `zarr.json`: an array taken for one of ours has chunks within the limit.
fn zarr(bytes: &[u8]) {
    let Ok(json) = serde_json::from_slice(bytes) else { return };
    if let Some((layout, rows)) = ArrayLayout::from_zarr_json(&json) {
        assert!(layout.chunk_bytes() as u64 <= MAX_CHUNK_BYTES && layout.chunk_rows > 0);
        assert_eq!(layout.zarr_json(rows), json);
    }
}

/// The file of a shard: its index, and each chunk in the index. Checksums are corrected, since a fuzzer does
/// not find a valid one.
fn shard(bytes: &[u8]) {
    let mut scratch = Vec::new();
    let plain = ArrayLayout {
        dtype: DataType::Uint16,
        columns: None,
        chunk_rows: 4,
        shard_rows: 12,
        compression: ChunkCompression::None,
    };
    for layout in [plain, ArrayLayout { columns: Some(3), compression: ChunkCompression::Zstd(1), ..plain }] {
        let Some((room, index)) =
            bytes.split_at_checked(bytes.len().saturating_sub(ChunkIndex::size(&layout)))
        else {
            continue;
        };
        let index = chunk::with_check(&index[..index.len().saturating_sub(chunk::CHECK)]);
        let Ok(index) = ChunkIndex::decode(&index, room.len() as u64) else { continue };
        for number in 0..=layout.chunks() {
            let Some((offset, length)) = index.get(number) else { continue };
            let named = &room[offset as usize..(offset + length) as usize];
            let packed = &named[..named.len().saturating_sub(chunk::CHECK)];
            for encoded in [named, &chunk::with_check(packed)] {
                if let Ok(raw) = chunk::decode(&layout, encoded, &mut scratch) {
                    assert_eq!(raw.len(), layout.chunk_bytes());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::fuzzed;

    #[test]
    fn targets_return_whatever_the_bytes_are() {
        fuzzed::check(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."), &super::TARGETS);
    }
}
