//! The layout of one array in files: Zarr v3, regular shards of regular chunks.
//!
//! An array is cut into *shards*, one file each, and these into *chunks*, the unit of decoding. A file holds
//! its chunks, then the index and a CRC-32C. The index has offset and length of each chunk, all ones for a
//! missing one. A chunk is its values in little-endian bytes, compressed if [`ChunkCompression`] says so,
//! then a CRC-32C. The last chunk of an array is padded with zeros.
//!
//! Uncompressed is the default: token ids shrink by a quarter with zstd, which decompresses at less than a
//! tenth of the speed of the page cache (`docs/decisions.md`).
//!
//! Source: Zarr core specification 3.0; `sharding_indexed`, `bytes`, `crc32c` of the Zarr extensions; `zstd`
//! as in zarr-python, tensorstore and zarrs.

use serde_json::{Value, json};

use crate::{Error, ErrorKind, Result, fields::DataType};

/// Bytes of a chunk before it is compressed.
const CHUNK_BYTES: u64 = 16 << 10;
/// The most bytes of a decoded chunk: a reader allocates them before it reads the chunk.
pub(super) const MAX_CHUNK_BYTES: u64 = 1 << 30;
/// The most chunks in a shard: its index has 16 bytes for each.
pub(super) const MAX_CHUNKS: u64 = 1 << 24;
/// The most documents or values of a cache: offsets are int64, and sums of several stay within it.
pub(super) const MAX_COUNT: u64 = 1 << 48;
/// The most axes of a document: the limit of numpy.
pub const MAX_RANK: usize = 64;
/// Bytes of a shard before it is compressed: the most that a commit writes again.
const SHARD_BYTES: u64 = 16 << 20;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ChunkCompression {
    #[default]
    None,
    Zstd(i32),
}

impl ChunkCompression {
    /// The compression with a user's name for it: `none`, `zstd` or `zstd:LEVEL`.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for any other name.
    pub fn from_name(name: &str) -> Result<Self> {
        let level = match name.split_once(':') {
            Some(("zstd", level)) => level.parse().ok().filter(|level| (1..=22).contains(level)),
            None if name == "zstd" => Some(1),
            None if name == "none" => return Ok(Self::None),
            _ => None,
        };
        level.map(Self::Zstd).ok_or_else(|| {
            let message =
                format!("compression is {name:?}, must be \"none\", \"zstd\" or \"zstd:1\" to \"zstd:22\"");
            Error::new(ErrorKind::Config, message)
        })
    }

    pub fn name(self) -> String {
        match self {
            Self::None => "none".into(),
            Self::Zstd(level) => format!("zstd:{level}"),
        }
    }
}

/// The layout of an array whose first axis grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ArrayLayout {
    pub dtype: DataType,
    /// The length of the second axis, if the array has one.
    pub columns: Option<u64>,
    pub chunk_rows: u64,
    /// Rows of a shard, a multiple of `chunk_rows`.
    pub shard_rows: u64,
    pub compression: ChunkCompression,
}

impl ArrayLayout {
    /// The layout of the values of a field.
    pub(crate) fn data(dtype: DataType, compression: ChunkCompression) -> Self {
        let bytes = dtype.bytes() as u64;
        Self {
            dtype,
            columns: None,
            chunk_rows: CHUNK_BYTES / bytes,
            shard_rows: SHARD_BYTES / bytes,
            compression,
        }
    }

    /// The layout of the ends of documents. Shards are small, since each commit rewrites the first one, which
    /// holds the number of documents.
    pub(crate) fn offsets() -> Self {
        Self {
            dtype: DataType::Int64,
            columns: None,
            chunk_rows: 1 << 11,
            shard_rows: 1 << 16,
            compression: ChunkCompression::Zstd(1),
        }
    }

    /// The layout of the shapes of documents of `rank` axes: all but the last, which follows from the number
    /// of values.
    pub(crate) fn shapes(rank: usize) -> Self {
        Self { columns: Some(rank as u64 - 1), ..Self::offsets() }
    }

    /// Values of a row.
    pub(crate) fn width(&self) -> u64 {
        self.columns.unwrap_or(1)
    }

    /// Values of a chunk.
    pub(crate) fn chunk_len(&self) -> u64 {
        self.chunk_rows * self.width()
    }

    /// Bytes of a chunk before it is compressed.
    pub(crate) fn chunk_bytes(&self) -> usize {
        self.chunk_len() as usize * self.dtype.bytes()
    }

    pub(crate) fn chunks(&self) -> u64 {
        self.shard_rows / self.chunk_rows
    }

    /// The name of a shard's file, within the array's folder.
    pub(crate) fn file_name(&self, shard: u64) -> String {
        match self.columns {
            None => format!("c/{shard}"),
            Some(_) => format!("c/{shard}/0"),
        }
    }

    /// The array's `zarr.json`, for this number of rows.
    pub(crate) fn zarr_json(&self, rows: u64) -> Value {
        let shape = |rows: u64| std::iter::once(rows).chain(self.columns).collect::<Vec<_>>();
        let bytes = json!({"name": "bytes", "configuration": {"endian": "little"}});
        let check = json!({"name": "crc32c"});
        let mut codecs = vec![bytes.clone()];
        if let ChunkCompression::Zstd(level) = self.compression {
            codecs.push(json!({"name": "zstd", "configuration": {"level": level, "checksum": false}}));
        }
        codecs.push(check.clone());
        let fill = match self.dtype {
            DataType::Bool => json!(false),
            dtype if dtype.is_integer() => json!(0),
            _ => json!(0.0),
        };
        json!({
            "zarr_format": 3,
            "node_type": "array",
            "shape": shape(rows),
            "data_type": self.dtype.name(),
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": shape(self.shard_rows)}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": fill,
            "codecs": [{"name": "sharding_indexed", "configuration": {
                "chunk_shape": shape(self.chunk_rows),
                "codecs": codecs,
                "index_codecs": [bytes, check],
                "index_location": "end",
            }}],
            "attributes": {},
        })
    }

    /// The layout and the number of rows of an array with this `zarr.json`, if [`Self::zarr_json`] would
    /// write the same.
    pub(crate) fn from_zarr_json(json: &Value) -> Option<(Self, u64)> {
        let numbers = |at: &str| -> Option<Vec<u64>> {
            json.pointer(at)?.as_array()?.iter().map(Value::as_u64).collect()
        };
        let shape = numbers("/shape")?;
        let shard = numbers("/chunk_grid/configuration/chunk_shape")?;
        let chunk = numbers("/codecs/0/configuration/chunk_shape")?;
        let compression = match json.pointer("/codecs/0/configuration/codecs/1/configuration/level") {
            None => ChunkCompression::None,
            Some(level) => ChunkCompression::Zstd(level.as_i64()?.try_into().ok()?),
        };
        let layout = Self {
            dtype: DataType::from_name(json.get("data_type")?.as_str()?)?,
            columns: shape.get(1).copied(),
            chunk_rows: *chunk.first()?,
            shard_rows: *shard.first()?,
            compression,
        };
        let sound = layout.chunk_rows > 0
            && layout.shard_rows > 0
            && layout.shard_rows.is_multiple_of(layout.chunk_rows)
            && layout.columns.is_none_or(|columns| (1..MAX_RANK as u64).contains(&columns))
            && shape.len() <= 2
            && layout.chunks() <= MAX_CHUNKS
            && layout.shard_rows.checked_mul(layout.width()).is_some_and(|values| values <= 1 << 40)
            && layout.chunk_len() <= MAX_CHUNK_BYTES / layout.dtype.bytes() as u64;
        let rows = *shape.first()?;
        // Any other entry in `json` makes the comparison fail.
        (sound && layout.zarr_json(rows) == *json).then_some((layout, rows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_known_again() {
        for layout in [
            ArrayLayout::data(DataType::Uint16, ChunkCompression::None),
            ArrayLayout::data(DataType::Float32, ChunkCompression::Zstd(3)),
            ArrayLayout::offsets(),
            ArrayLayout::shapes(4),
        ] {
            assert_eq!(ArrayLayout::from_zarr_json(&layout.zarr_json(77)), Some((layout, 77)));
        }
    }

    #[test]
    fn what_differs_is_left_to_others() {
        let json = ArrayLayout::offsets().zarr_json(3);
        for (at, value) in [
            ("/codecs/0/configuration/index_location", json!("start")),
            ("/codecs/0/configuration/codecs/1/name", json!("gzip")),
            ("/codecs/0/configuration/codecs/0/configuration/endian", json!("big")),
            ("/chunk_grid/configuration/chunk_shape", json!([100])),
            ("/data_type", json!("complex64")),
            ("/fill_value", json!(1)),
            ("/shape", json!([3, 0])),
            ("/codecs/0/configuration/chunk_shape", json!([1u64 << 28])),
            ("/chunk_grid/configuration/chunk_shape", json!([1u64 << 39])),
        ] {
            let mut other = json.clone();
            *other.pointer_mut(at).unwrap() = value;
            assert_eq!(ArrayLayout::from_zarr_json(&other), None, "{at}");
        }
        // A valid shape, but with more columns than a document can have axes.
        for columns in [1u64 << 27, MAX_RANK as u64] {
            let json = ArrayLayout {
                columns: Some(columns),
                chunk_rows: 1,
                shard_rows: 2,
                ..ArrayLayout::offsets()
            }
            .zarr_json(3);
            assert_eq!(ArrayLayout::from_zarr_json(&json), None, "{columns}");
        }
    }
}
