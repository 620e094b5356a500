//! [`TokenTask`] loads documents: workers turn text into token ids, the collator packs them into rows.
//!
//! Each worker has its own encoder and encodes one document at a time. The task puts BOS before each
//! document, and EOS after it if there is one, so that encoders do not depend on packing.

use std::{fmt, ops::Range, sync::Arc};

use crossbeam::queue::ArrayQueue;
use serde_json::Value;

use crate::{
    Error, ErrorKind, Result,
    batch::{
        LossPlan, PackMeter, PackPlan, Packing, SourceCounts, SourceMeter, SourceMix, SpareTokens,
        TokenCollate, TokenExample, token_fields,
    },
    chat::{ChatTemplate, Conversation, TrainOn},
    contract::{BatchSizes, ExampleMaker, Task, TaskLabels},
    fallible_alloc,
    fields::{DataType, Field, SharedPool},
    infill::Infill,
    memory::batch_slots,
    order::Assignment,
    pack::MASKED,
    source::{DocumentForm, ReadRequest, Record, StoredPayload, WholeRecord},
    tokenizer::{Dropout, Encoder, Tokenizer},
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

    /// As [`Self::encode`], with merges left out by `seed`.
    ///
    /// # Errors
    /// As [`Self::encode`]; [`ErrorKind::Config`] if the tokenizer does not merge.
    fn encode_with_dropout(&mut self, text: &str, dropout: (Dropout, u64), ids: &mut Vec<u32>) -> Result<()> {
        let _ = (text, dropout, ids);
        Err(Error::new(ErrorKind::Config, "BPE dropout needs a tokenizer's file or object, not a callable"))
    }

    /// Appends the ids of a text that has special tokens, with [`MASKED`] for those outside of `parts`.
    ///
    /// # Errors
    /// As [`Self::encode`].
    fn encode_marked(&mut self, text: &str, parts: &[Range<usize>], ids: &mut Vec<u32>) -> Result<()> {
        let _ = (text, parts, ids);
        Err(Error::new(ErrorKind::Config, "conversations need a tokenizer's file or object, not a callable"))
    }
}

/// The template of conversations, and what is trained on.
#[derive(Debug, Clone)]
pub struct ChatPlan {
    pub template: Arc<ChatTemplate>,
    pub train_on: TrainOn,
}

impl Encode for Encoder {
    fn encode(&mut self, text: &str, ids: &mut Vec<u32>) -> Result<()> {
        self.encode_ordinary(text, ids)
    }

    fn encode_with_dropout(&mut self, text: &str, dropout: (Dropout, u64), ids: &mut Vec<u32>) -> Result<()> {
        Encoder::encode_with_dropout(self, text, dropout.0, dropout.1, ids)
    }

    fn encode_marked(&mut self, text: &str, parts: &[Range<usize>], ids: &mut Vec<u32>) -> Result<()> {
        Encoder::encode_marked(self, text, parts, MASKED, ids)
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

/// What the rows of a source are.
#[derive(Debug, Clone)]
pub struct SourceRows {
    pub form: DocumentForm,
    /// How conversations become texts, if they are conversations.
    pub chat: Option<ChatPlan>,
    pub draws: TextDraws,
}

/// What is drawn for each text, by the bits of its row in the pass.
#[derive(Debug, Clone, Copy, Default)]
pub struct TextDraws {
    pub infill: Option<Infill>,
    pub dropout: Option<Dropout>,
}

impl TextDraws {
    /// Whether the ids of a text differ from pass to pass.
    fn are_any(&self) -> bool {
        self.infill.is_some() || self.dropout.is_some()
    }
}

impl From<DocumentForm> for SourceRows {
    fn from(form: DocumentForm) -> Self {
        Self { form, chat: None, draws: TextDraws::default() }
    }
}

#[derive(Clone)]
pub struct TokenTask {
    plan: PackPlan,
    vocabulary: Arc<dyn EncoderFactory>,
    rows: Arc<[SourceRows]>,
    spare: SpareTokens,
    meter: Arc<PackMeter>,
    sources: Arc<[SourceMeter]>,
    pool: Arc<SharedPool>,
}

impl TokenTask {
    /// Creates a task that encodes documents with `vocabulary` and packs by `plan`; the rows of each source
    /// have a form.
    pub fn new(
        plan: PackPlan,
        rows: impl IntoIterator<Item: Into<SourceRows>>,
        vocabulary: Arc<dyn EncoderFactory>,
    ) -> Self {
        let spare = Arc::new(ArrayQueue::new(SPARE_VECTORS));
        let pool = Arc::new(SharedPool::new(token_fields(&plan)));
        let (sources, rows) = (plan.mix.meters(), rows.into_iter().map(Into::into).collect());
        Self { plan, vocabulary, rows, spare, meter: Arc::default(), sources, pool }
    }

    /// The fields of a batch's columns.
    pub fn fields(&self) -> &Arc<[Field]> {
        self.pool.fields()
    }

    /// What became of the documents of each source.
    pub fn sources(&self) -> impl Iterator<Item = SourceCounts> {
        self.sources.iter().map(SourceMeter::read)
    }

    /// The tokens dropped behind the last batch of a pass that has ended; 0 the next time.
    pub fn take_tail(&self) -> u64 {
        self.meter.take_tail()
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
        suspects: "the files, the column that names the documents, and exclude",
        roomier: "raise prefetch_batches",
        listed: "see errors()",
    };

    type Payload = StoredPayload;
    type Request<'a> = dyn ReadRequest + 'a;
    type Maker = TokenMaker;
    type Collate = TokenCollate;

    fn request<R>(&self, assigned: &Assignment, read: impl FnOnce(&Self::Request<'_>) -> R) -> R {
        read(&WholeRecord { repeats: assigned.repeats })
    }

    fn maker(&self) -> TokenMaker {
        TokenMaker {
            encoder: self.vocabulary.encoder(),
            rows: self.rows.clone(),
            mix: self.plan.mix.clone(),
            bos: self.plan.bos,
            eos: self.plan.eos,
            loss: self.plan.loss,
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
    rows: Arc<[SourceRows]>,
    /// The sources, whose rows differ in form.
    mix: SourceMix,
    bos: u32,
    eos: Option<u32>,
    loss: LossPlan,
    /// The largest id that the batch's dtype can hold.
    most: u32,
    spare: SpareTokens,
}

impl TokenMaker {
    /// Removes the loader's BOS at `begin` if the source's ids begin with one, too; else masks it.
    fn frame_once(&self, ids: &mut Vec<u32>, weights: &mut Vec<f32>, begin: usize) {
        if ids.get(begin + 1).is_some_and(|id| id & !MASKED == self.bos) {
            ids.remove(begin);
            if !weights.is_empty() {
                weights.remove(begin);
            }
        } else if self.loss.is_masked {
            ids[begin] |= MASKED;
        }
    }

    /// Appends the loader's EOS to the document from `begin` on, unless it is `framed` and ends with it.
    fn end(&self, ids: &mut Vec<u32>, weights: &mut Vec<f32>, begin: usize, framed: bool) -> Result<()> {
        let last = ids.last().copied().unwrap_or_default();
        let is_framed = framed && ids.len() > begin + 1 && Some(last & !MASKED) == self.eos;
        if let Some(eos) = self.eos.filter(|_| !is_framed) {
            // It is trained on as the token before it is, so that the end of an answer is learned.
            fallible_alloc::push(ids, eos | last & MASKED)?;
            if let Some(&last) = weights.last() {
                fallible_alloc::push(weights, last)?;
            }
        }
        Ok(())
    }

    /// Appends the ids of a text, by the random `bits` of its row in the pass.
    fn text(&mut self, text: &str, draws: &TextDraws, bits: u64, ids: &mut Vec<u32>) -> Result<()> {
        let mut encode = |part: &str, bits, ids: &mut Vec<u32>| match draws.dropout {
            Some(dropout) => self.encoder.encode_with_dropout(part, (dropout, bits), ids),
            None => self.encoder.encode(part, ids),
        };
        match draws.infill {
            Some(infill) => infill.encode(text, bits, ids, encode),
            None => encode(text, bits, ids),
        }
    }

    /// Appends the ids of a conversation behind the loader's BOS.
    fn conversation(
        &mut self,
        chat: Option<&ChatPlan>,
        conversation: &Conversation,
        ids: &mut Vec<u32>,
        weights: &mut Vec<f32>,
    ) -> Result<()> {
        let Some(ChatPlan { template, train_on }) = chat else {
            return Err(Error::new(ErrorKind::Config, "the conversations have no template"));
        };
        let begin = ids.len() - 1;
        let rendered = template.render(conversation, *train_on)?;
        self.encoder.encode_marked(&rendered.text, &rendered.parts, ids)?;
        self.frame_once(ids, weights, begin);
        Ok(())
    }

    /// Appends both documents of a pair, the first one behind the loader's BOS; returns where the second one
    /// begins.
    fn pair(&mut self, chat: Option<&ChatPlan>, pair: [Vec<Value>; 2], ids: &mut Vec<u32>) -> Result<usize> {
        // Pairs have none.
        let (mut begin, weights) = (0, &mut Vec::new());
        for (name, messages) in ["chosen", "rejected"].into_iter().zip(pair) {
            if name == "rejected" {
                self.end(ids, weights, begin, true)?;
                begin = ids.len();
                fallible_alloc::push(ids, self.bos)?;
            }
            let made = self.conversation(chat, &Conversation { messages, tools: None }, ids, weights);
            made.map_err(|error| Error { message: format!("{name}: {}", error.message), ..error })?;
        }
        self.end(ids, weights, begin, true)?;
        Ok(begin)
    }
}

impl ExampleMaker for TokenMaker {
    type Payload = StoredPayload;
    type Example = TokenExample;

    fn run(&mut self, record: &Record) -> Result<TokenExample> {
        let mut ids = self.spare.pop().unwrap_or_default();
        if ids.capacity() > SPARE_TOKENS {
            ids = Vec::new();
        }
        ids.clear();
        let mut weights = Vec::new();
        ids.push(self.bos);
        if self.loss.is_weighted {
            weights.push(0.0);
        }
        let bytes = &record.payload.bytes;
        let rows = self.rows.clone();
        let SourceRows { form, chat, draws } = &rows[self.mix.source_of(record.index)];
        let (chat, mut second) = (chat.as_ref(), 0);
        match form {
            DocumentForm::Ids => {
                DocumentForm::append_ids(bytes, &record.values, MASKED, (&mut ids, &mut weights))?;
                self.frame_once(&mut ids, &mut weights, 0);
            }
            DocumentForm::Chat(_) => {
                let (messages, tools) = form.messages(bytes, &record.values)?;
                self.conversation(chat, &Conversation { messages, tools }, &mut ids, &mut weights)?;
            }
            DocumentForm::Pairs(_) => {
                second = self.pair(chat, form.pair(bytes, &record.values)?, &mut ids)?;
            }
            form => self.text(&form.text(bytes)?, draws, record.seed, &mut ids)?,
        }
        if self.loss.is_weighted {
            // bounded: by the ids.
            weights.resize(ids.len(), 1.0);
        }
        if second == 0 {
            self.end(&mut ids, &mut weights, 0, form.may_be_framed())?;
        }
        // Only ids of the source have the bit of the mask.
        let bits = if form.may_be_framed() { !MASKED } else { u32::MAX };
        if let Some(id) = ids.iter().map(|id| id & bits).find(|&id| id > self.most) {
            return Err(Error::new(
                ErrorKind::Config,
                format!(
                    "{} the id {id}, the largest that the dtype can hold is {}; choose another dtype",
                    if *form == DocumentForm::Ids { "a row has" } else { "the tokenizer returned" },
                    self.most
                ),
            ));
        }
        if self.loss.is_masked && !form.may_be_framed() {
            // The BOS before a text, as before rows of labels.
            ids[0] |= MASKED;
        }
        let epoch = if draws.are_any() { record.epoch } else { 0 };
        Ok(TokenExample { ids, weights, row: record.index, epoch, second })
    }
}
