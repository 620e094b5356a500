//! Reads the schema of a shard and the footer of an Arrow file, within limits.
//!
//! Both are flatbuffers, verified by `arrow-ipc`. The verifier counts a name or a child once, however many
//! fields refer to it, but the schema that `arrow-ipc` builds has a copy for each. So the copies are counted
//! before they are made. Source: Arrow columnar format, "IPC file format", "Schema message".

use arrow_ipc::{Endianness, Message, convert::try_fb_to_schema, root_as_footer};
use arrow_schema::Schema;

use super::message::{MAGIC, MessageHead};
use crate::{Error, ErrorKind, Result, catch_panic::guarded, fallible_alloc, storage::StoredFile};

/// The longest footer that is read, bytes: some million record batches.
const LONGEST_FOOTER: u64 = 256 << 20;
/// The most bytes of a schema with all shared parts copied, as a multiple of its metadata's size.
const MOST_SHARED: u64 = 16;
/// The size that is allowed for any schema, bytes.
const USUAL_SCHEMA: u64 = 1 << 20;
/// The size of a field without its name and metadata, bytes: less than in the file.
const FIELD_BYTES: u64 = 24;

/// The reason why the indexing of a shard ends early.
#[derive(Debug)]
pub(crate) enum IndexStop {
    /// The shard is damaged, and ends there.
    Damage(Error),
    Error(Error),
}

impl From<Error> for IndexStop {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl IndexStop {
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Damage(error) | Self::Error(error) => error,
        }
    }
}

pub(crate) fn damage(kind: ErrorKind, message: impl Into<String>, at: u64) -> IndexStop {
    IndexStop::Damage(Error::new(kind, message).at_byte(at))
}

/// The footer of an Arrow file, and where it begins.
pub(crate) struct ArrowFooter {
    pub bytes: Box<[u8]>,
    pub at: u64,
}

/// Reads the footer of an Arrow file.
///
/// # Errors
/// Damage if the footer is missing, or has an impossible length or more than 256 MiB; [`ErrorKind::Io`],
/// [`ErrorKind::Memory`].
pub(crate) fn read_footer(file: &StoredFile) -> Result<ArrowFooter, IndexStop> {
    let size = file.size();
    let missing = || damage(ErrorKind::Truncated, "the file is cut off: its footer is missing", size);
    let mut tail = [0; 10];
    let Some(tail_at) = size.checked_sub(10).filter(|&at| at >= 8) else {
        return Err(missing());
    };
    file.read_exact(&mut tail, tail_at)?;
    let [a, b, c, d, magic @ ..] = tail;
    if magic != MAGIC {
        return Err(missing());
    }
    let len = u64::try_from(i32::from_le_bytes([a, b, c, d])).ok();
    let Some((len, at)) = len.and_then(|len| Some((len, tail_at.checked_sub(len)?))) else {
        return Err(unusable("has an impossible length", size));
    };
    if len > LONGEST_FOOTER {
        return Err(unusable("is longer than the limit, 256 MiB", size));
    }
    let mut bytes = fallible_alloc::zero_bytes(len as usize)?;
    file.read_exact(&mut bytes, at)?;
    Ok(ArrowFooter { bytes, at })
}

/// The footer's flatbuffer.
///
/// # Errors
/// Damage if it is invalid.
pub(crate) fn footer_of(footer: &ArrowFooter) -> Result<arrow_ipc::Footer<'_>, IndexStop> {
    root_as_footer(&footer.bytes).map_err(|_| unusable("cannot be read", footer.at))
}

/// The schema of a file's footer.
///
/// # Errors
/// As [`convert`].
pub(crate) fn schema_of_footer(footer: &ArrowFooter) -> Result<Schema, IndexStop> {
    let schema = footer_of(footer)?.schema().ok_or_else(|| unusable("has no schema", footer.at))?;
    convert(schema, footer.bytes.len(), footer.at)
}

/// The error for a footer whose blocks overlap. Blocks that do not overlap are together no longer than the
/// file, which bounds the work.
pub(crate) fn names_twice(at: u64) -> IndexStop {
    unusable("lists overlapping blocks", at)
}

/// The error for a block of a footer that is not a message.
pub(crate) fn names_no_message(at: u64) -> IndexStop {
    unusable("lists a block that is not a message", at)
}

fn unusable(what: &str, at: u64) -> IndexStop {
    damage(ErrorKind::Format, format!("the file's footer {what}"), at)
}

/// The schema in the first message of a shard.
///
/// # Errors
/// Damage if it is another message; as [`convert`].
pub(crate) fn schema_of(message: &Message<'_>, head: MessageHead) -> Result<Schema, IndexStop> {
    let schema = message.header_as_schema();
    let schema =
        schema.ok_or_else(|| damage(ErrorKind::Format, "the first message is not a schema", head.at))?;
    convert(schema, (head.body_at - head.at) as usize, head.at)
}

/// The schema in metadata of `len` bytes.
///
/// # Errors
/// Damage if it cannot be read, or if shared fields make it far larger than its metadata; an error if it is
/// big-endian.
fn convert(schema: arrow_ipc::Schema<'_>, len: usize, at: u64) -> Result<Schema, IndexStop> {
    let own = size_of_pairs(schema.custom_metadata().into_iter().flatten());
    let size = own.saturating_add(size_of_fields(schema.fields().into_iter().flatten()));
    if size > (len as u64).saturating_mul(MOST_SHARED).max(USUAL_SCHEMA) {
        let message = format!("the schema expands to {size} bytes from metadata of {len} bytes");
        return Err(damage(ErrorKind::Format, message, at));
    }
    if schema.endianness() != Endianness::Little {
        let message = "the shard is big-endian, which is not supported; write it on a little-endian machine";
        return Err(IndexStop::Error(Error::new(ErrorKind::Format, message)));
    }
    let schema = guarded(|| try_fb_to_schema(schema)).map_err(IndexStop::Damage)?;
    schema.map_err(|error| {
        IndexStop::Damage(
            Error::new(ErrorKind::Format, "the schema cannot be read").at_byte(at).because(error),
        )
    })
}

/// The bytes of fields with all shared parts copied: a name or a struct to which a thousand fields refer is
/// counted a thousand times. The verifier limits them to 64 levels and a million fields.
fn size_of_fields<'a>(fields: impl Iterator<Item = arrow_ipc::Field<'a>>) -> u64 {
    fields.fold(0u64, |sum, field| {
        let name = field.name().map_or(0, str::len);
        let zone = field.type_as_timestamp().and_then(|time| time.timezone()).map_or(0, str::len);
        let ids = field.type_as_union().and_then(|union| union.typeIds()).map_or(0, |ids| ids.len());
        let own = FIELD_BYTES + (name + zone + ids) as u64;
        let pairs = size_of_pairs(field.custom_metadata().into_iter().flatten());
        let children = size_of_fields(field.children().into_iter().flatten());
        sum.saturating_add(own).saturating_add(pairs).saturating_add(children)
    })
}

/// The bytes of metadata with all shared keys and values copied.
fn size_of_pairs<'a>(pairs: impl Iterator<Item = arrow_ipc::KeyValue<'a>>) -> u64 {
    let text = |text: Option<&str>| text.map_or(0, str::len) as u64;
    pairs.map(|pair| FIELD_BYTES + text(pair.key()) + text(pair.value())).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use arrow_ipc::{FieldArgs, SchemaArgs, Type, convert::IpcSchemaEncoder, root_as_schema};

    use super::*;

    /// Converts a schema of `levels` levels of structs, each with the one below `times` times as a child, all
    /// sharing a name of `name` bytes.
    fn shared(levels: usize, times: usize, name: usize) -> Result<(), ErrorKind> {
        shared_with(levels, times, name, 0, 0)
    }

    /// The same; if `zone` is above 0, each field is a timestamp with a time zone of that many bytes, not a
    /// struct. The schema has one pair of metadata `pairs` times.
    fn shared_with(
        levels: usize,
        times: usize,
        name: usize,
        zone: usize,
        pairs: usize,
    ) -> Result<(), ErrorKind> {
        let mut builder = IpcSchemaEncoder::new().schema_to_fb(&Schema::empty());
        builder.reset();
        let name = builder.create_string(&"n".repeat(name));
        let zone = (zone > 0).then(|| builder.create_string(&"z".repeat(zone)));
        let pair = arrow_ipc::KeyValue::create(
            &mut builder,
            &arrow_ipc::KeyValueArgs { key: Some(name), value: Some(name) },
        );
        let custom_metadata = Some(builder.create_vector(&vec![pair; pairs]));
        let mut below = None;
        for _ in 0..levels {
            let children = below.map(|field| vec![field; times]).unwrap_or_default();
            let children = Some(builder.create_vector(&children));
            let none = arrow_ipc::Struct_::create(&mut builder, &arrow_ipc::Struct_Args {});
            let (type_type, type_) = match zone {
                None => (Type::Struct_, Some(none.as_union_value())),
                timezone => {
                    let args = arrow_ipc::TimestampArgs { timezone, ..Default::default() };
                    let time = arrow_ipc::Timestamp::create(&mut builder, &args);
                    (Type::Timestamp, Some(time.as_union_value()))
                }
            };
            let args = FieldArgs {
                name: Some(name),
                nullable: true,
                type_type,
                type_,
                children,
                ..FieldArgs::default()
            };
            below = Some(arrow_ipc::Field::create(&mut builder, &args));
        }
        let fields = Some(builder.create_vector(&vec![below.unwrap(); times]));
        let schema = arrow_ipc::Schema::create(
            &mut builder,
            &SchemaArgs { fields, custom_metadata, ..SchemaArgs::default() },
        );
        builder.finish(schema, None);
        let bytes = builder.finished_data();
        match convert(root_as_schema(bytes).unwrap(), bytes.len(), 0) {
            Ok(_) => Ok(()),
            Err(stop) => Err(stop.into_error().kind),
        }
    }

    #[test]
    fn what_fields_share_is_not_multiplied_without_end() {
        shared(1, 100, 10).unwrap();
        shared(20, 1, 1000).unwrap();
        // A name of 100 KB for each of 1000 fields; half a million structs in a kilobyte.
        assert_eq!(shared(1, 1000, 100_000), Err(ErrorKind::Format));
        assert_eq!(shared(17, 2, 1), Err(ErrorKind::Format));
        // A name for each key and value of the schema, a time zone for each field.
        assert_eq!(shared_with(1, 1, 100_000, 0, 1000), Err(ErrorKind::Format));
        assert_eq!(shared_with(1, 1000, 1, 100_000, 0), Err(ErrorKind::Format));
    }
}
