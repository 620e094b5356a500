//! The index of a shard, built from message headers only: its batches, dictionaries, and the byte ranges of
//! the requested arrays.
//!
//! A stream is walked header by header. A file's footer lists its blocks; if the footer is unusable, the file
//! is walked like the stream that it contains. The claims of a header are checked against its body's length.
//! A body may reach past the end of the file: its rows count, and reading them returns
//! [`ErrorKind::Truncated`]. At bytes that are no message the index ends, and stores the damage.
//!
//! Source: Arrow columnar format, "IPC streaming format", "IPC file format", "Buffer flattening", "Variadic
//! buffers".

use arrow_ipc::{Block, MessageHeader};
use arrow_schema::{DataType, Field, Fields, Schema};

use super::{
    dictionaries::Dictionaries,
    message::{BodyCodec, CONTINUATION, MAGIC, MessageHead, MessageScanner, MessageStep, end_of_body},
    schema::{
        IndexStop, damage, footer_of, names_no_message, names_twice, read_footer, schema_of, schema_of_footer,
    },
    spans::{ArraySpans, Span},
    walk::locate,
};
use crate::{
    Error, ErrorKind, Result, SourceOptions, cancel,
    columns::{ArrayColumns, ArrayRequest, FeatureCache, ValueLayout},
    fallible_alloc,
    shard::check_rows,
    signatures,
    storage::{StoredFile, Version},
};

#[derive(Debug, Clone)]
pub(crate) struct BatchIndex {
    pub first_row: u64,
    pub n_rows: u64,
    pub codec: Option<BodyCodec>,
    /// One for each requested array of the shard, in their order.
    pub arrays: Box<[ArraySpans]>,
}

#[derive(Debug)]
pub(crate) struct ShardIndex {
    pub version: Version,
    /// None if the shard is damaged before its schema ends.
    pub columns: Option<ArrayColumns>,
    pub batches: Vec<BatchIndex>,
    pub dictionaries: Dictionaries,
    pub n_rows: u64,
    pub damage: Option<Error>,
}

impl ShardIndex {
    /// The batch that holds row `local`.
    pub(crate) fn batch_at(&self, local: u64) -> usize {
        self.batches.partition_point(|batch| batch.first_row + batch.n_rows <= local)
    }

    /// About where the bytes of row `local` begin; None after the last row.
    pub(crate) fn begin_of(&self, local: u64) -> Option<u64> {
        let batch = self.batches.get(self.batch_at(local))?;
        let spans = || batch.arrays.iter().flat_map(|array| &*array.buffers).filter(|span| span.len > 0);
        let begin = spans().map(|span| span.at).min()?;
        let end = spans().map(|span| span.at.saturating_add(span.len)).max()?;
        let share = (local - batch.first_row) as f64 / batch.n_rows as f64;
        Some(begin + ((end - begin) as f64 * share) as u64)
    }

    /// Indexes a shard.
    ///
    /// # Errors
    /// [`ErrorKind::Format`] if the file is not Arrow, [`ErrorKind::Schema`] if its columns do not fit,
    /// [`ErrorKind::Closed`] if the work was stopped, [`ErrorKind::Io`], [`ErrorKind::Memory`]. Damage is
    /// not an error but a part of the index.
    pub(crate) fn build(file: &StoredFile, options: &SourceOptions, features: &FeatureCache) -> Result<Self> {
        let mut indexer = Indexer {
            index: Self {
                version: file.version(),
                columns: None,
                batches: Vec::new(),
                dictionaries: Dictionaries::default(),
                n_rows: 0,
                damage: None,
            },
            scanner: MessageScanner::new(),
            schema: Schema::empty(),
            options,
            features,
        };
        let path = file.path().clone();
        match indexer.run(file) {
            Ok(()) => {}
            // Damage ends the shard there; any other error fails the opening.
            Err(IndexStop::Damage(error)) => indexer.index.damage = Some(error.in_shard(path)),
            Err(IndexStop::Error(error)) => return Err(error.in_shard(path)),
        }
        indexer.index.batches.shrink_to_fit();
        Ok(indexer.index)
    }
}

/// The end of a stream's messages, and whether it has an end marker.
struct StreamEnd {
    after: u64,
    marked: bool,
}

struct Indexer<'a> {
    index: ShardIndex,
    scanner: MessageScanner,
    schema: Schema,
    options: &'a SourceOptions,
    features: &'a FeatureCache,
}

impl Indexer<'_> {
    fn run(&mut self, file: &StoredFile) -> Result<(), IndexStop> {
        let mut start = [0; 8];
        let n = file.read(&mut start, 0)?;
        let start = &start[..n];
        if start.is_empty() {
            return Err(damage(ErrorKind::Truncated, "the shard is empty", 0));
        }
        if start.starts_with(&MAGIC) {
            return match self.walk_footer(file) {
                Err(IndexStop::Damage(error)) => {
                    self.index.batches.clear();
                    self.index.dictionaries.clear();
                    self.index.n_rows = 0;
                    // Without its footer the file is a stream, after the magic and its padding.
                    let at = skip_padding(file)?;
                    let at = self.read_schema(file, at)?;
                    self.walk_stream(file, at)?;
                    Err(IndexStop::Damage(error))
                }
                result => result,
            };
        }
        if n < 6 && (MAGIC.starts_with(start) || CONTINUATION.starts_with(&start[..n.min(4)])) {
            return Err(damage(ErrorKind::Truncated, "the shard is cut off within its first bytes", 0));
        }
        if !start.starts_with(&CONTINUATION) && !self.is_legacy_stream(file)? {
            return Err(IndexStop::Error(not_arrow(start)));
        }
        let at = self.read_schema(file, 0)?;
        let end = self.walk_stream(file, at)?;
        match file.size().saturating_sub(end.after) {
            0 if end.marked => Ok(()),
            0 => Err(damage(
                ErrorKind::Truncated,
                "the stream has no end marker: messages after the last whole one, if there were any, are lost",
                end.after,
            )),
            n => Err(damage(
                ErrorKind::Format,
                format!("{n} bytes follow the end marker and are not read"),
                end.after,
            )),
        }
    }

    /// Whether the file starts like a stream from before Arrow 0.15: with the length of a schema's metadata.
    fn is_legacy_stream(&mut self, file: &StoredFile) -> Result<bool> {
        match self.scanner.step(file, 0)? {
            MessageStep::Message(_) => Ok(self.scanner.message()?.header_type() == MessageHeader::Schema),
            _ => Ok(false),
        }
    }

    /// Reads the schema message at `at`; returns where the next message starts.
    fn read_schema(&mut self, file: &StoredFile, at: u64) -> Result<u64, IndexStop> {
        cancel::check("opening")?;
        let head = match self.scanner.step(file, at)? {
            MessageStep::Message(head) => head,
            MessageStep::End { .. } => {
                return Err(damage(ErrorKind::Truncated, "the shard ends before its schema", at));
            }
            MessageStep::Damaged(error) => return Err(IndexStop::Damage(error)),
        };
        let message = self.scanner.message()?;
        let next = end_of_body(&message, head).map_err(IndexStop::Damage)?;
        self.schema = schema_of(&message, head)?;
        self.index.columns = Some(choose(&self.schema, self.options, self.features)?);
        Ok(next)
    }

    /// Adds all messages from `at` on.
    fn walk_stream(&mut self, file: &StoredFile, mut at: u64) -> Result<StreamEnd, IndexStop> {
        loop {
            cancel::check("opening")?;
            match self.scanner.step(file, at)? {
                MessageStep::Message(head) => at = self.add(file, head)?,
                MessageStep::End { after } => return Ok(StreamEnd { after, marked: after > at }),
                MessageStep::Damaged(error) => return Err(IndexStop::Damage(error)),
            }
        }
    }

    /// Adds the blocks that the footer of an Arrow file lists.
    fn walk_footer(&mut self, file: &StoredFile) -> Result<(), IndexStop> {
        let found = read_footer(file)?;
        self.schema = schema_of_footer(&found)?;
        self.index.columns = Some(choose(&self.schema, self.options, self.features)?);
        let footer = footer_of(&found)?;
        let mut left = file.size();
        for (blocks, header) in [
            (footer.dictionaries(), MessageHeader::DictionaryBatch),
            (footer.recordBatches(), MessageHeader::RecordBatch),
        ] {
            for block in blocks.iter().flatten() {
                cancel::check("opening")?;
                let end = self.add_block(file, block, header)?;
                let len = u64::try_from(block.offset()).ok().and_then(|at| end.checked_sub(at));
                left = len.and_then(|len| left.checked_sub(len)).ok_or_else(|| names_twice(found.at))?;
            }
        }
        Ok(())
    }

    /// Adds the message of a block of the footer; returns where its body ends.
    fn add_block(
        &mut self,
        file: &StoredFile,
        block: &Block,
        header: MessageHeader,
    ) -> Result<u64, IndexStop> {
        let wrong = || names_no_message(u64::try_from(block.offset()).unwrap_or_default());
        let at = u64::try_from(block.offset()).map_err(|_| wrong())?;
        let MessageStep::Message(head) = self.scanner.step(file, at)? else { return Err(wrong()) };
        if self.scanner.message()?.header_type() != header {
            return Err(wrong());
        }
        self.add(file, head)
    }

    /// Adds the scanner's current message; returns where the next one starts.
    fn add(&mut self, file: &StoredFile, head: MessageHead) -> Result<u64, IndexStop> {
        let message = self.scanner.message()?;
        let end = end_of_body(&message, head).map_err(IndexStop::Damage)?;
        let body = Span { at: head.body_at, len: end - head.body_at };
        let contradicts =
            |what: &str| damage(ErrorKind::Corrupt, format!("a message contradicts itself: {what}"), head.at);
        let size = file.size();
        let held = |codec: Option<BodyCodec>| move |len| codec.map_or(len, |codec| codec.most_held(len));
        if let Some(batch) = message.header_as_record_batch() {
            let codec = BodyCodec::of(&batch)?;
            let columns = self.index.columns.as_ref().map_or(&[][..], |columns| &columns.arrays);
            let fields = self.schema.fields();
            let arrays = locate(&batch, message.version(), body, fields, columns, &held(codec))
                .map_err(contradicts)?;
            let n_rows =
                u64::try_from(batch.length()).map_err(|_| contradicts("a negative number of rows"))?;
            let first_row = self.index.n_rows;
            let n_after = first_row.saturating_add(n_rows);
            check_rows(n_after, size).map_err(|error| IndexStop::Damage(error.at_byte(head.at)))?;
            self.index.n_rows = n_after;
            fallible_alloc::push(&mut self.index.batches, BatchIndex { first_row, n_rows, codec, arrays })?;
        } else if let Some(dictionary) = message.header_as_dictionary_batch() {
            if let Some((batch, (data_type, layout))) =
                dictionary.data().zip(self.dictionary_of(dictionary.id()))
            {
                let fields = Fields::from(vec![Field::new("values", data_type, true)]);
                let wanted = [ArrayRequest { path: vec![0], layout, has_rows: true }];
                let codec = BodyCodec::of(&batch)?;
                let arrays = locate(&batch, message.version(), body, &fields, &wanted, &held(codec))
                    .map_err(contradicts)?;
                let Some(values) = arrays.into_iter().next() else { return Err(contradicts("no values")) };
                let (id, is_delta, from_batch) =
                    (dictionary.id(), dictionary.isDelta(), self.index.batches.len());
                self.index.dictionaries.add(id, is_delta, from_batch, codec, values)?;
            }
        } else if message.header_type() == MessageHeader::Schema {
            return Err(damage(
                ErrorKind::Format,
                "a second schema follows; the rows before it are read",
                head.at,
            ));
        }
        if end > size {
            let what = format!(
                "the shard is cut off: the body of a message ends at byte {end}, the file at byte {size}"
            );
            return Err(damage(ErrorKind::Truncated, what, size));
        }
        Ok(end)
    }

    /// The type and layout of the values of a dictionary, if a requested column uses it.
    fn dictionary_of(&self, wanted_id: i64) -> Option<(DataType, ValueLayout)> {
        let arrays = self.index.columns.iter().flat_map(|columns| &columns.arrays);
        arrays.into_iter().find_map(|wanted| match &wanted.layout {
            ValueLayout::Dictionary { id, values, value_type, .. } if *id == wanted_id => {
                Some((value_type.clone(), (**values).clone()))
            }
            _ => None,
        })
    }
}

fn choose(schema: &Schema, options: &SourceOptions, features: &FeatureCache) -> Result<ArrayColumns> {
    ArrayColumns::choose(schema, &options.payload, &options.label_column, &options.columns, features)
}

/// Returns where the first message of an Arrow file starts: writers pad the magic with zeros, to 8 or to 64
/// bytes.
fn skip_padding(file: &StoredFile) -> Result<u64> {
    let mut padding = [0; 64];
    let n = file.read(&mut padding, 8)?;
    let words = padding[..n].chunks(8).take_while(|word| word.iter().all(|byte| *byte == 0)).count();
    Ok(8 + 8 * words as u64)
}

/// The error for a file that starts with other bytes than Arrow's.
fn not_arrow(start: &[u8]) -> Error {
    let found = signatures::name(start);
    let message = format!(
        "the file is not Arrow: it starts with {start:02x?}, {found}; expected an Arrow IPC stream or file, as \
         Hugging Face `datasets` writes with save_to_disk; other formats are known by the ends of their names, such as \
         .parquet, .csv, .wav and .tar"
    );
    Error::new(ErrorKind::Format, message).at_byte(0)
}
