//! Reads the batches of a shard with all or some of their columns, decoded by `arrow-ipc`: for data other
//! than recordings.
//!
//! `arrow-ipc` allocates whatever a header claims, so it gets no header as it is in the file. Messages are
//! found as for recordings. The buffers of the requested columns are read or decompressed here, within
//! limits, one after the other into a new body, and a new header refers to these buffers. The numbers of
//! values, which it still claims, are checked too.
//!
//! Invariant: the bytes held for a batch are at most those of its body in the file, or, if it is compressed,
//! the larger of `max_record_bytes` and 64 times that.
//!
//! Source: Arrow columnar format, "Buffer flattening", "Compression", "IPC file format", "IPC streaming
//! format".

use std::{collections::HashMap, path::Path, sync::Arc};

use arrow_array::{ArrayRef, RecordBatch};
use arrow_buffer::Buffer;
use arrow_ipc::{
    BodyCompression, BodyCompressionArgs, DictionaryBatch, DictionaryBatchArgs, MetadataVersion,
    RecordBatchArgs,
    reader::{RecordBatchDecoder, read_dictionary},
};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use flatbuffers::{FlatBufferBuilder, InvalidFlatbuffer, WIPOffset, root};

use super::{
    buffer::{USUAL_RATIO, decompress},
    message::{BodyCodec, MAGIC, MessageHead, MessageScanner, MessageStep, end_of_body},
    schema::{IndexStop, footer_of, names_no_message, names_twice, read_footer, schema_of, schema_of_footer},
    spans::Span,
    walk::{Contradiction, TOO_FEW, own_buffers, try_children},
};
use crate::{
    Error, ErrorKind, Result,
    catch_panic::guarded,
    fallible_alloc,
    storage::{Storage, StoredFile, past_the_end},
};

/// The values that an array may have without any bytes for them: nulls, or empty lists.
const FREE_VALUES: u64 = 1 << 16;
/// The most deltas of dictionaries: each copies all earlier values.
const MOST_DELTAS: u32 = 1 << 12;
/// The alignment of buffers in a body.
const ALIGNMENT: usize = 64;
/// The bytes of the length before a compressed buffer, and the length that marks an uncompressed one.
const PREFIX: usize = 8;
const NOT_COMPRESSED: i64 = -1;

/// Reads the batches of one shard in order.
pub struct ArrowTable {
    file: StoredFile,
    scanner: MessageScanner,
    schema: SchemaRef,
    /// The indices of the columns that are read, ascending.
    columns: Vec<usize>,
    dictionaries: HashMap<i64, ArrayRef>,
    /// Whether a column that is read has a dictionary.
    has_dictionaries: bool,
    deltas: u32,
    rest: Rest,
    max_record_bytes: u64,
}

/// The offsets of the remaining messages.
enum Rest {
    /// A sequence of messages from this offset on.
    Stream(u64),
    /// The offsets that a footer lists, and the bytes that these messages may still have: blocks do not
    /// overlap.
    Blocks(std::vec::IntoIter<u64>, u64),
}

impl ArrowTable {
    /// Opens a shard: reads its schema, or the footer of a file.
    ///
    /// # Errors
    /// [`ErrorKind::Format`] or [`ErrorKind::Truncated`] if it is not Arrow or damaged, [`ErrorKind::Io`],
    /// [`ErrorKind::Memory`].
    pub fn open(storage: &Arc<dyn Storage>, path: &Path, max_record_bytes: u64) -> Result<Self> {
        let file = StoredFile::open(storage, &Arc::from(path))?;
        let mut start = [0; MAGIC.len()];
        let n = file.read(&mut start, 0)?;
        let mut scanner = MessageScanner::new();
        let (schema, rest) = if n == MAGIC.len() && start == MAGIC {
            read_file(&file).map_err(IndexStop::into_error)?
        } else {
            let head = match scanner.step(&file, 0)? {
                MessageStep::Message(head) => head,
                MessageStep::End { .. } => {
                    return Err(Error::new(ErrorKind::Truncated, "the shard ends before its schema"));
                }
                MessageStep::Damaged(error) => return Err(error),
            };
            let message = scanner.message()?;
            let schema = schema_of(&message, head).map_err(IndexStop::into_error)?;
            (schema, Rest::Stream(end_of_body(&message, head)?))
        };
        let columns = (0..schema.fields().len()).collect();
        let mut table = Self {
            file,
            scanner,
            schema: Arc::new(schema),
            columns,
            dictionaries: HashMap::new(),
            has_dictionaries: true,
            deltas: 0,
            rest,
            max_record_bytes,
        };
        table.select(None);
        Ok(table)
    }

    /// The schema of all columns, selected or not.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Selects the columns to read, by their indices; None for all.
    pub fn select(&mut self, columns: Option<Vec<usize>>) {
        if let Some(columns) = columns {
            self.columns = columns;
            self.columns.sort_unstable();
            self.columns.dedup();
        }
        let field = |&column: &usize| self.schema.fields().get(column);
        self.has_dictionaries =
            self.columns.iter().filter_map(field).any(|field| has_dictionary(field.data_type()));
    }

    /// The next batch; None after the last.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`], [`ErrorKind::Format`] and [`ErrorKind::Truncated`] for damage,
    /// [`ErrorKind::TooLarge`] beyond the limits, [`ErrorKind::Io`], [`ErrorKind::Memory`].
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            let at = match &mut self.rest {
                Rest::Stream(at) => *at,
                Rest::Blocks(blocks, _) => match blocks.next() {
                    Some(at) => at,
                    None => return Ok(None),
                },
            };
            let head = match self.scanner.step(&self.file, at)? {
                MessageStep::Message(head) => head,
                MessageStep::End { .. } if matches!(self.rest, Rest::Stream(_)) => return Ok(None),
                MessageStep::End { .. } => return Err(names_no_message(at).into_error()),
                MessageStep::Damaged(error) => return Err(error),
            };
            let end = end_of_body(&self.scanner.message()?, head)?;
            if end > self.file.size() {
                return Err(past_the_end(end, self.file.size()));
            }
            match &mut self.rest {
                Rest::Stream(at) => *at = end,
                Rest::Blocks(_, left) => {
                    let twice = || names_twice(head.at).into_error();
                    *left = left.checked_sub(end - head.at).ok_or_else(twice)?;
                }
            }
            if let Some(batch) = self.take(head, end).map_err(|error| error.at_byte(head.at))? {
                return Ok(Some(batch));
            }
        }
    }

    /// Decodes the scanner's current message; None for a dictionary, which is kept.
    fn take(&mut self, head: MessageHead, end: u64) -> Result<Option<RecordBatch>> {
        let message = self.scanner.message()?;
        let body = Span { at: head.body_at, len: end - head.body_at };
        let version = message.version();
        let schema = Arc::clone(&self.schema);
        if let Some(dictionary) = message.header_as_dictionary_batch() {
            // Dictionaries that no column uses are skipped.
            let Some(field) = self.user_of(dictionary.id()) else { return Ok(None) };
            let data = dictionary.data().ok_or_else(|| contradicts("a dictionary without values"))?;
            let wanted = RequestedFields { fields: &[field], columns: &[0] };
            let (places, body) = self.own_body(data, version, body, &wanted)?;
            self.deltas += u32::from(dictionary.isDelta());
            if self.deltas > MOST_DELTAS {
                let message = format!("more than {MOST_DELTAS} messages are deltas of dictionaries");
                return Err(Error::new(ErrorKind::TooLarge, message));
            }
            let mut builder = header_builder(data, &places)?;
            let values = header_of(&mut builder, data, &places);
            let (id, delta) = (dictionary.id(), dictionary.isDelta());
            let args = DictionaryBatchArgs { id, data: Some(values), isDelta: delta };
            let header = DictionaryBatch::create(&mut builder, &args);
            builder.finish_minimal(header);
            let decoded = guarded(|| {
                let header = root::<DictionaryBatch<'_>>(builder.finished_data()).map_err(invalid)?;
                read_dictionary(&body, header, &schema, &mut self.dictionaries, &version)
            })?;
            return decoded.map(|()| None).map_err(damaged);
        }
        let Some(batch) = message.header_as_record_batch() else {
            let message = format!("a message is {:?}, expected a record batch", message.header_type());
            return Err(Error::new(ErrorKind::Format, message));
        };
        let wanted = RequestedFields { fields: self.schema.fields(), columns: &self.columns };
        let (places, body) = self.own_body(batch, version, body, &wanted)?;
        let mut builder = header_builder(batch, &places)?;
        let header = header_of(&mut builder, batch, &places);
        builder.finish_minimal(header);
        let decoded = guarded(|| {
            let header = root::<arrow_ipc::RecordBatch<'_>>(builder.finished_data()).map_err(invalid)?;
            RecordBatchDecoder::try_new(&body, header, schema, &self.dictionaries, &version)?
                .with_projection(Some(&self.columns))
                .read_record_batch()
        })?;
        decoded.map(Some).map_err(damaged)
    }

    /// The values of dictionary `id` as a field, if a column uses it and the selected columns have
    /// dictionaries.
    fn user_of(&self, id: i64) -> Option<Arc<Field>> {
        if !self.has_dictionaries {
            return None;
        }
        #[expect(deprecated, reason = "the only way to the ids that a schema gives its dictionaries")]
        let users = self.schema.fields_with_dict_id(id);
        let DataType::Dictionary(_, values) = users.first()?.data_type() else { return None };
        Some(Arc::new(Field::new("values", (**values).clone(), true)))
    }

    /// The requested buffers of `batch`, read and decompressed, as a new body; and where each of its buffers
    /// is there, empty for those that were not requested.
    fn own_body(
        &self,
        batch: arrow_ipc::RecordBatch<'_>,
        version: MetadataVersion,
        body: Span,
        wanted: &RequestedFields<'_>,
    ) -> Result<(Vec<arrow_ipc::Buffer>, Buffer)> {
        let codec = BodyCodec::of(&batch)?;
        let mut spans = Vec::new();
        for buffer in batch.buffers().iter().flatten() {
            let span = u64::try_from(buffer.offset()).ok().zip(u64::try_from(buffer.length()).ok());
            let span = span.filter(|(at, len)| at.checked_add(*len).is_some_and(|end| end <= body.len));
            let (at, len) = span.ok_or_else(|| contradicts("a buffer outside of the body"))?;
            spans.push(Span { at: body.at + at, len });
        }
        let mut walk = BufferWalk {
            nodes: batch.nodes().iter().flatten().map(|node| node.length()).collect::<Vec<_>>().into_iter(),
            variadic: batch.variadicBufferCounts().iter().flatten().collect::<Vec<_>>().into_iter(),
            version,
            next: 0,
            is_wanted: fallible_alloc::filled(spans.len(), false)?,
            most_values: 0,
        };
        for (at, field) in wanted.fields.iter().enumerate() {
            walk.array(field.data_type(), wanted.columns.contains(&at)).map_err(contradicts)?;
        }
        let mut body_of_ours = Vec::new();
        let most = match codec {
            None => body.len,
            Some(_) => self.max_record_bytes.max(body.len.saturating_mul(USUAL_RATIO)),
        };
        let mut held = 0u64;
        let mut places = fallible_alloc::with_room(spans.len())?;
        for (span, is_wanted) in spans.iter().zip(&walk.is_wanted) {
            if !is_wanted || span.len == 0 {
                places.push(arrow_ipc::Buffer::new(0, 0));
                continue;
            }
            // Buffers that share bytes could add up to much more than the body.
            let mut hold = |len: u64| {
                held = held.saturating_add(len);
                if held <= most {
                    return Ok(());
                }
                let message = format!(
                    "the buffers of a batch of {} bytes add up to {held}; with max_record_bytes={} at most {most} are allowed",
                    body.len, self.max_record_bytes
                );
                Err(Error::new(ErrorKind::TooLarge, message))
            };
            let aligned = body_of_ours.len().next_multiple_of(ALIGNMENT);
            let begin = if codec.is_some() {
                let values = decompress(&self.file, *span, codec, self.max_record_bytes)?;
                hold(values.len() as u64)?;
                let begin = aligned + ALIGNMENT - PREFIX;
                lengthen(&mut body_of_ours, begin)?;
                fallible_alloc::grow(&mut body_of_ours, PREFIX + values.len())?;
                body_of_ours.extend_from_slice(&NOT_COMPRESSED.to_le_bytes());
                body_of_ours.extend_from_slice(&values);
                begin
            } else {
                hold(span.len)?;
                let end = usize::try_from(span.len).ok().and_then(|len| aligned.checked_add(len));
                lengthen(&mut body_of_ours, end.ok_or_else(|| contradicts("a buffer beyond the memory"))?)?;
                self.file.read_exact(&mut body_of_ours[aligned..], span.at)?;
                aligned
            };
            places.push(arrow_ipc::Buffer::new(begin as i64, (body_of_ours.len() - begin) as i64));
        }
        let body = Buffer::from_vec(body_of_ours);
        check_values(walk.most_values, body.len() as u64)?;
        Ok((places, body))
    }
}

/// An empty flatbuffer with room for a header of `batch` that has these buffers.
fn header_builder<'a>(
    batch: arrow_ipc::RecordBatch<'_>,
    places: &[arrow_ipc::Buffer],
) -> Result<FlatBufferBuilder<'a>> {
    // The tables with their fields, lengths and padding.
    const TABLES: usize = 512;
    let n_nodes = batch.nodes().map_or(0, |nodes| nodes.len());
    let n_variadic = batch.variadicBufferCounts().map_or(0, |counts| counts.len());
    let arrays =
        size_of::<arrow_ipc::FieldNode>() * n_nodes + size_of_val(places) + size_of::<i64>() * n_variadic;
    Ok(FlatBufferBuilder::from_vec(fallible_alloc::filled(arrays + TABLES, 0)?))
}

/// Adds the header of `batch`, with these buffers in place of its own.
fn header_of<'a>(
    builder: &mut FlatBufferBuilder<'a>,
    batch: arrow_ipc::RecordBatch<'_>,
    places: &[arrow_ipc::Buffer],
) -> WIPOffset<arrow_ipc::RecordBatch<'a>> {
    let compression = batch.compression().map(|compression| {
        let args = BodyCompressionArgs { codec: compression.codec(), method: compression.method() };
        BodyCompression::create(builder, &args)
    });
    let args = RecordBatchArgs {
        length: batch.length(),
        nodes: batch.nodes().map(|nodes| builder.create_vector_from_iter(nodes.iter().copied())),
        buffers: batch.buffers().map(|_| builder.create_vector(places)),
        compression,
        variadicBufferCounts: batch
            .variadicBufferCounts()
            .map(|counts| builder.create_vector_from_iter(counts.iter())),
    };
    arrow_ipc::RecordBatch::create(builder, &args)
}

/// The fields of a batch, and the indices of the requested ones.
struct RequestedFields<'a> {
    fields: &'a [Arc<Field>],
    columns: &'a [usize],
}

/// Finds the buffers of the requested columns, and the most values that these claim.
struct BufferWalk {
    nodes: std::vec::IntoIter<i64>,
    variadic: std::vec::IntoIter<i64>,
    version: MetadataVersion,
    /// The index of the next buffer.
    next: usize,
    is_wanted: Vec<bool>,
    most_values: u64,
}

impl BufferWalk {
    fn array(&mut self, data_type: &DataType, is_wanted: bool) -> Result<(), Contradiction> {
        let values = self.nodes.next().ok_or("fewer nodes than the schema has arrays")?;
        let values = u64::try_from(values).map_err(|_| "a negative number of values")?;
        if is_wanted {
            self.most_values = self.most_values.max(values);
        }
        let n_buffers = own_buffers(data_type, self.version, &mut self.variadic)?;
        let end = self.next.checked_add(n_buffers).filter(|&end| end <= self.is_wanted.len());
        let end = end.ok_or(TOO_FEW)?;
        self.is_wanted[self.next..end].fill(is_wanted);
        self.next = end;
        try_children(data_type, |_, child| self.array(child, is_wanted))
    }
}

/// Lengthens `bytes` to `len` with zeros.
fn lengthen(bytes: &mut Vec<u8>, len: usize) -> Result<()> {
    let more = len.saturating_sub(bytes.len());
    fallible_alloc::grow(bytes, more)?;
    // bounded: within the room allocated above.
    bytes.resize(len, 0);
    Ok(())
}

/// Checks that `bytes` bytes can hold `values` values: at least a bit each, beyond the first [`FREE_VALUES`].
fn check_values(values: u64, bytes: u64) -> Result<()> {
    let most = bytes.saturating_mul(8).max(FREE_VALUES);
    if values <= most {
        return Ok(());
    }
    let message =
        format!("a batch of {bytes} bytes claims to have {values} values; at most {most} are possible");
    Err(Error::new(ErrorKind::Corrupt, message))
}

fn has_dictionary(data_type: &DataType) -> bool {
    let in_child = |_, child: &DataType| if has_dictionary(child) { Err(()) } else { Ok(()) };
    matches!(data_type, DataType::Dictionary(..)) || try_children(data_type, in_child).is_err()
}

/// The schema of an Arrow file, and the offsets of its messages: dictionaries first.
fn read_file(file: &StoredFile) -> Result<(Schema, Rest), IndexStop> {
    let footer = read_footer(file)?;
    let schema = schema_of_footer(&footer)?;
    let blocks = footer_of(&footer)?;
    let mut places = Vec::new();
    for block in blocks.dictionaries().iter().flatten().chain(blocks.recordBatches().iter().flatten()) {
        let at = u64::try_from(block.offset()).map_err(|_| names_no_message(footer.at))?;
        fallible_alloc::push(&mut places, at)?;
    }
    Ok((schema, Rest::Blocks(places.into_iter(), file.size())))
}

fn contradicts(what: &str) -> Error {
    Error::new(ErrorKind::Corrupt, format!("a message contradicts itself: {what}"))
}

fn invalid(error: InvalidFlatbuffer) -> ArrowError {
    ArrowError::IpcError(error.to_string())
}

/// The error for bytes that `arrow-ipc` cannot decode.
fn damaged(error: ArrowError) -> Error {
    Error::new(ErrorKind::Corrupt, "the shard is damaged").because(error)
}
