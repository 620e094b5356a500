//! [`TokenTask`] loads documents: workers turn text into token ids, the collator packs them into rows.
//!
//! Each worker has its own encoder and encodes one document at a time. The task puts BOS before each
//! document, and EOS after it if there is one, so that encoders do not depend on packing.

use std::{fmt, sync::Arc};

use crossbeam::queue::ArrayQueue;

use crate::{
    Error, ErrorKind, Result,
    batch::{
        PackMeter, PackPlan, Packing, SourceCounts, SourceMeter, SourceMix, SpareTokens, TokenCollate,
        TokenExample, token_fields,
    },
    contract::{BatchSizes, ExampleMaker, Task, TaskLabels},
    decode::tokenizer::{Encoder, Tokenizer},
    fallible_alloc,
    fields::{DataType, Field, SharedPool},
    memory::batch_slots,
    order::Assignment,
    source::{DocumentForm, ReadRequest, Record, StoredRecording, WholeRecord},
};

/// The maximum number of spare vectors, and the largest capacity that is reused, in tokens.
const SPARE_VECTORS: usize = 1024;
const SPARE_TOKENS: usize = 1 << 16;

/// Turns texts into token ids, on one thread.
pub trait Encode {
    /// Appends the ids of `text`, without BOS or other special tokens.
    ///
    /// # Errors
    /// An error for whose kind [`ErrorKind::is_record`] holds rejects the document; any other ends the run.
    fn encode(&mut self, text: &str, ids: &mut Vec<u32>) -> Result<()>;
}

impl Encode for Encoder {
    fn encode(&mut self, text: &str, ids: &mut Vec<u32>) -> Result<()> {
        self.encode_ordinary(text, ids)
    }
}

/// Creates an [`Encode`] for each worker, on the worker's thread.
pub trait EncoderFactory: Send + Sync + 'static {
    fn encoder(&self) -> Box<dyn Encode>;
}

/// In place of a tokenizer, for rows that are ids.
#[derive(Debug, Clone, Copy)]
pub struct NoTokenizer;

impl Encode for NoTokenizer {
    fn encode(&mut self, _: &str, _: &mut Vec<u32>) -> Result<()> {
        Err(Error::new(ErrorKind::Config, "tokenizer is missing; a text cannot be encoded"))
    }
}

impl EncoderFactory for NoTokenizer {
    fn encoder(&self) -> Box<dyn Encode> {
        Box::new(*self)
    }
}

impl EncoderFactory for Tokenizer {
    fn encoder(&self) -> Box<dyn Encode> {
        Box::new(Tokenizer::encoder(self))
    }
}

/// What the bytes of the records of each source are.
type Forms = Arc<[DocumentForm]>;

#[derive(Clone)]
pub struct TokenTask {
    plan: PackPlan,
    vocabulary: Arc<dyn EncoderFactory>,
    forms: Forms,
    spare: SpareTokens,
    meter: Arc<PackMeter>,
    sources: Arc<[SourceMeter]>,
    pool: Arc<SharedPool>,
}

impl TokenTask {
    /// Creates a task that encodes documents with `vocabulary` and packs by `plan`; each of its sources has a
    /// form.
    pub fn new(
        plan: PackPlan,
        forms: impl IntoIterator<Item = DocumentForm>,
        vocabulary: Arc<dyn EncoderFactory>,
    ) -> Self {
        let spare = Arc::new(ArrayQueue::new(SPARE_VECTORS));
        let pool = Arc::new(SharedPool::new(token_fields(&plan)));
        let (sources, forms) = (plan.mix.meters(), forms.into_iter().collect());
        Self { plan, vocabulary, forms, spare, meter: Arc::default(), sources, pool }
    }

    /// The fields of a batch's columns.
    pub fn fields(&self) -> &Arc<[Field]> {
        self.pool.fields()
    }

    /// What became of the documents of each source.
    pub fn sources(&self) -> impl Iterator<Item = SourceCounts> {
        self.sources.iter().map(SourceMeter::read)
    }

    /// What the packers hold and what they dropped.
    pub fn packing(&self) -> Packing {
        self.meter.read()
    }
}

impl fmt::Debug for TokenTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenTask").field("plan", &self.plan).finish_non_exhaustive()
    }
}

impl Task for TokenTask {
    const WORDS: TaskLabels = TaskLabels {
        work: "tokenizing",
        item: "row",
        cheaper: "use a faster tokenizer, or tokenize once with forebay.cache",
        smaller: "shorten rows (seq_len)",
        readable: "use faster storage",
        roomier: "raise prefetch_batches",
    };

    type Payload = StoredRecording;
    type Request<'a> = dyn ReadRequest + 'a;
    type Maker = TokenMaker;
    type Collate = TokenCollate;

    fn request<R>(&self, assigned: &Assignment, read: impl FnOnce(&Self::Request<'_>) -> R) -> R {
        read(&WholeRecord { repeats: assigned.repeats })
    }

    fn maker(&self) -> TokenMaker {
        TokenMaker {
            encoder: self.vocabulary.encoder(),
            forms: self.forms.clone(),
            mix: self.plan.mix.clone(),
            bos: self.plan.bos,
            eos: self.plan.eos,
            most: match self.plan.id_type {
                DataType::Uint16 => u32::from(u16::MAX),
                _ => i32::MAX as u32,
            },
            spare: self.spare.clone(),
        }
    }

    fn collate(&self, batches: BatchSizes) -> TokenCollate {
        let meters = (self.meter.clone(), self.sources.clone());
        let pool = self.pool.serving(batches.size, batch_slots(batches.ahead));
        TokenCollate::new(self.plan.clone(), batches, pool, self.spare.clone(), meters)
    }
}

/// One worker's part of a [`TokenTask`].
pub struct TokenMaker {
    encoder: Box<dyn Encode>,
    forms: Forms,
    /// The sources, whose rows differ in form.
    mix: SourceMix,
    bos: u32,
    eos: Option<u32>,
    /// The largest id that the batch's dtype can hold.
    most: u32,
    spare: SpareTokens,
}

impl ExampleMaker for TokenMaker {
    type Payload = StoredRecording;
    type Example = TokenExample;

    fn run(&mut self, record: &Record) -> Result<TokenExample> {
        let mut ids = self.spare.pop().unwrap_or_default();
        if ids.capacity() > SPARE_TOKENS {
            ids = Vec::new();
        }
        ids.clear();
        ids.push(self.bos);
        let bytes = &record.payload.bytes;
        let form = &self.forms[self.mix.source_of(record.index)];
        match form {
            DocumentForm::Ids => {
                DocumentForm::append_ids(bytes, &record.values, &mut ids)?;
                // Ids that are framed already are so once.
                if ids.get(1) == Some(&self.bos) {
                    ids.remove(0);
                }
            }
            form => self.encoder.encode(&form.text(bytes)?, &mut ids)?,
        }
        let is_framed = *form == DocumentForm::Ids && ids.len() > 1 && ids.last() == self.eos.as_ref();
        if let Some(eos) = self.eos.filter(|_| !is_framed) {
            fallible_alloc::push(&mut ids, eos)?;
        }
        if let Some(id) = ids.iter().find(|&&id| id > self.most) {
            return Err(Error::new(
                ErrorKind::Config,
                format!(
                    "{} the id {id}, the largest that the dtype can hold is {}; choose another dtype",
                    if *form == DocumentForm::Ids { "a row has" } else { "the tokenizer returned" },
                    self.most
                ),
            ));
        }
        Ok(TokenExample { ids, row: record.index })
    }
}
