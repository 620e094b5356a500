//! [`TokenCollate`] makes batches of packed tokens: each row is filled with several documents.
//!
//! Inputs and targets are in one column, so that one copy moves a batch to a device. Each stream has its own
//! packer and the same number of rows. Before each pick a packer holds at least `buffer_size` documents,
//! refilled in whole units, until its stream ends.
//!
//! Memory is recycled as for spectrograms: workers take spare vectors for the tokens of documents, batches
//! are in slots of a pool. Source: own; refilling in units that do not cross row groups is the rule of the
//! reference (nanochat), and its settings give its rows.

#[cfg(test)]
mod tests;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use crossbeam::queue::ArrayQueue;

use super::packed_fields::{PackPlan, PackedFields};
use super::shares::{Shares, SourceCounts, SourceMeter};
use crate::{
    Error, ErrorKind, Result,
    contract::{BatchSizes, BatchSlot, CarriedRecord, Collate, PackRows, StreamShare},
    fields::{Column, ColumnPool, Columns},
    pack::{CropRule, Document, MASKED, PackedPiece, Packer},
};

#[derive(Debug)]
pub struct TokenExample {
    /// BOS, then the tokens of the text; each with [`MASKED`](crate::pack::MASKED) if it is not trained on.
    pub ids: Vec<u32>,
    /// The weight of each token, or nothing: 1 for each.
    pub weights: Vec<f32>,
    /// The row number over the files as given.
    pub row: u64,
    /// The pass of its stream, if the tokens depend on it; else 0.
    pub epoch: u64,
    /// Of a pair, where the second document begins; else 0.
    pub second: usize,
}

/// A part of a document in a row, placed by one pick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DocumentPart {
    pub row: usize,
    /// Its first token's index in the row of `seq_len + 1` tokens.
    pub column: usize,
    /// The number of its tokens, including BOS.
    pub len: usize,
    /// The row number of the document over the files as given.
    pub document: u64,
    /// The index of its first token in the document, where BOS is 0; 1 for a part from the beginning of the
    /// document.
    pub start: u32,
}

impl DocumentPart {
    /// The `document` of what fills a padded row.
    pub const PADDING: u64 = u64::MAX;
}

#[derive(Debug)]
pub struct TokenBatch {
    /// `ids`, `[2, rows, seq_len]`: inputs and targets. Then, if requested, `doc_ids`, `[rows, seq_len]`: the
    /// number of each input's part in its row; and `position_ids`, `[rows, seq_len]`: its index in the part.
    pub columns: Columns,
    /// The parts of documents in the rows.
    pub parts: Vec<DocumentPart>,
    /// What the packers hold after this batch, and have delivered and dropped since the run began. So it
    /// depends on the batches only, not on how many were made ahead.
    pub packing: Packing,
}

/// Counts of what packers hold and what they dropped, as of the last complete batch.
#[derive(Debug, Default)]
pub struct PackMeter {
    documents: AtomicU64,
    tokens: AtomicU64,
    bytes: AtomicU64,
    delivered: AtomicU64,
    dropped: AtomicU64,
    padded: AtomicU64,
    /// Tokens dropped at the end of the pass, behind its last batch; until they are taken.
    tail: AtomicU64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Packing {
    pub documents: u64,
    /// Their tokens; of a document that will be cropped, only those that fit in a row.
    pub tokens: u64,
    /// Bytes of memory of the packers.
    pub bytes: u64,
    /// Tokens in the rows of batches made since construction.
    pub delivered: u64,
    /// Tokens that were dropped since then: those beyond the length of a row when the document was read, the
    /// rests of cropped documents, and at the end of a pass those that fill no further row or batch.
    pub dropped: u64,
    /// Places of rows that are padded.
    pub padded: u64,
}

impl PackMeter {
    pub fn read(&self) -> Packing {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Packing {
            documents: read(&self.documents),
            tokens: read(&self.tokens),
            bytes: read(&self.bytes),
            delivered: read(&self.delivered),
            dropped: read(&self.dropped),
            padded: read(&self.padded),
        }
    }

    /// The tokens dropped behind the last batch of a pass that has ended; 0 the next time.
    pub fn take_tail(&self) -> u64 {
        self.tail.swap(0, Ordering::Relaxed)
    }
}

/// Spare vectors of tokens, returned by the packers for the workers.
pub type SpareTokens = Arc<ArrayQueue<Vec<u32>>>;

/// One stream's packer and its rows of the batch in progress.
#[derive(Debug)]
struct Lane {
    packer: Packer,
    /// Complete rows, and tokens in the current row after them.
    rows: usize,
    column: usize,
    /// Parts in the current row.
    nth: i32,
    /// Documents so far of the current unit; 0 between units.
    unit: usize,
    /// Documents that were left out since the last one that was not.
    n_skipped: u64,
    /// Padded places of the current row.
    padded: u64,
    /// What it has taken of each source; each has a stream of its own.
    shares: Shares,
}

#[derive(Debug)]
pub struct TokenCollate {
    plan: PackPlan,
    pool: Arc<ColumnPool>,
    spare: SpareTokens,
    meter: Arc<PackMeter>,
    /// Counts of each source since the last complete batch, and where they are added then.
    counts: Vec<SourceCounts>,
    sources: Arc<[SourceMeter]>,
    lanes: Vec<Lane>,
    /// The lane that is filled, and the batch.
    lane: usize,
    batch: u64,
    rows: usize,
    under_way: Option<PackedFields>,
    parts: Vec<DocumentPart>,
    /// Tokens that the packers had dropped, and those in rows, when the last batch was complete.
    dropped: u64,
    delivered: u64,
    /// Padded places, in rows of all batches and since the last one.
    padded: u64,
    now_padded: u64,
}

impl TokenCollate {
    /// Creates a collator that takes memory from `pool`, returns vectors to `spare`, and reports to `meter`
    /// and, for each source, to `sources`.
    pub fn new(
        plan: PackPlan,
        batches: BatchSizes,
        pool: Arc<ColumnPool>,
        spare: SpareTokens,
        (meter, sources): (Arc<PackMeter>, Arc<[SourceMeter]>),
    ) -> Self {
        let lane = |_| Lane {
            packer: plan.packer(),
            rows: 0,
            column: 0,
            nth: 0,
            unit: 0,
            n_skipped: 0,
            padded: 0,
            shares: Shares::new(&plan.mix),
        };
        let n_sources = plan.mix.n_sources();
        meter.take_tail();
        Self {
            lanes: (0..batches.n_streams / n_sources).map(lane).collect(),
            lane: 0,
            batch: 0,
            // bounded: some words for each source.
            counts: vec![SourceCounts::default(); n_sources],
            sources,
            rows: batches.size,
            plan,
            pool,
            spare,
            meter,
            under_way: None,
            parts: Vec::new(),
            dropped: 0,
            delivered: 0,
            padded: 0,
            now_padded: 0,
        }
    }

    fn rows_per_lane(&self) -> usize {
        self.rows / self.lanes.len()
    }

    /// Whether a row of the batch is full, or one of the two rows of a pair.
    fn is_complete(&self, row: usize) -> bool {
        let (row, per_lane) = (row % self.rows, self.rows_per_lane());
        row % per_lane < self.lanes[row / per_lane].rows
    }

    /// The lane and the source of a stream.
    fn lane_of(&self, stream: usize) -> (usize, usize) {
        let n_sources = self.counts.len();
        (stream / n_sources, stream % n_sources)
    }

    /// Counts a document of the current unit, and ends the unit with its last one.
    fn count(&mut self, lane: usize, row: u64) {
        let PackPlan { unit, is_mixed, groups, .. } = &self.plan;
        let lane = &mut self.lanes[lane];
        lane.unit += 1;
        let is_last = if *is_mixed {
            lane.unit == *unit
        } else {
            let next = groups.partition_point(|&first| first <= row);
            let first = next.checked_sub(1).map_or(0, |group| groups[group]);
            (row - first + 1).is_multiple_of(*unit as u64) || groups.get(next) == Some(&(row + 1))
        };
        if is_last {
            lane.unit = 0;
        }
    }

    /// Writes both documents of a pair, each into a row of its own; returns whether there was one.
    fn pick_pair(&mut self, lane: usize) -> Result<bool> {
        let fields = match &mut self.under_way {
            Some(under_way) => under_way,
            None => self.under_way.insert(PackedFields::acquire(&self.plan, self.rows, &self.pool)?),
        };
        let row = lane * (self.rows / self.lanes.len()) + self.lanes[lane].rows;
        let Lane { packer, rows, .. } = &mut self.lanes[lane];
        let (places, second_row, mut lens) = (self.plan.row_tokens(), row + self.rows, [0; 2]);
        let piece = packer.place_weighted(self.plan.capacity(), |tokens, weights, second| {
            let (ids, weights) = (tokens.split_at(second), weights.split_at(second.min(weights.len())));
            fields.write(row, 0, 0, ids.0, weights.0);
            fields.write(second_row, 0, 0, ids.1, weights.1);
            lens = [ids.0.len(), ids.1.len()];
        });
        let Some(PackedPiece { row: document, start, .. }) = piece else { return Ok(false) };
        let source = self.plan.mix.source_of(document);
        for (row, len) in [row, second_row].into_iter().zip(lens) {
            fields.mark_source(row, 0, len, source as i32);
            self.counts[source].tokens += len as u64;
            self.parts.push(DocumentPart { row, column: 0, len, document, start });
            if len < places {
                let (document, rest) = (DocumentPart::PADDING, places - len);
                fields.pad(row, len..places, (1, 0), self.plan.pad);
                fields.mark_source(row, len, rest, -1);
                self.parts.push(DocumentPart { row, column: len, len: rest, document, start: 0 });
                self.now_padded += rest as u64;
            }
        }
        *rows += 1;
        Ok(true)
    }

    /// Packs a piece of one document, or pads the row; returns whether there was anything to do.
    fn pick(&mut self, lane: usize) -> Result<bool> {
        let fields = match &mut self.under_way {
            Some(under_way) => under_way,
            None => self.under_way.insert(PackedFields::acquire(&self.plan, self.rows, &self.pool)?),
        };
        let row = lane * (self.rows / self.lanes.len()) + self.lanes[lane].rows;
        let Lane { packer, rows, column, nth, padded, .. } = &mut self.lanes[lane];
        let dropped = packer.n_dropped();
        let (capacity, at) = (self.plan.capacity(), *column);
        let multiple = self.plan.pad_multiple;
        let piece = packer.place_weighted(capacity - at, |tokens, weights, _| {
            fields.write(row, at, *nth, tokens, weights);
            if multiple > 1 && at > 0 {
                fields.ignore_target(row, at - 1);
            }
        });
        let piece = piece.map(|PackedPiece { row, start, len }| (row, start, len));
        // Where no document is cropped, none fits the rest of the row, or none is left at all.
        let padding = || {
            let is_padded = matches!(self.plan.crop, CropRule::Pad(_)) && at > 0;
            is_padded.then_some((DocumentPart::PADDING, 0, capacity - at))
        };
        let Some((document, start, len)) = piece.or_else(padding) else { return Ok(false) };
        if document == DocumentPart::PADDING {
            fields.pad(row, at..capacity, (*nth, 0), self.plan.pad);
            fields.mark_source(row, at, len, -1);
            *padded += len as u64;
        } else {
            let source = self.plan.mix.source_of(document);
            self.counts[source].tokens += len as u64;
            self.counts[source].dropped += packer.n_dropped() - dropped;
            fields.mark_source(row, at, len, source as i32);
        }
        self.parts.push(DocumentPart { row, column: at, len, document, start });
        let mut end = at + len;
        if multiple > 1 && end < capacity {
            // The place of the last target alone is for no document.
            let next = end.next_multiple_of(multiple);
            let next = if next >= self.plan.seq_len { capacity } else { next };
            fields.pad(row, end..next, (*nth, len as i32), self.plan.pad);
            fields.mark_source(row, end, next - end, -1);
            *padded += (next - end) as u64;
            end = next;
        }
        (*column, *nth) = (end, *nth + 1);
        if *column == capacity {
            (*rows, *column, *nth) = (*rows + 1, 0, 0);
            self.now_padded += std::mem::take(padded);
        }
        Ok(true)
    }

    /// Fills the rows of a lane as far as possible; returns the source of which it needs a document.
    fn source_wanted(&mut self, lane: usize) -> Result<Option<usize>> {
        loop {
            let Lane { packer, rows, unit, shares, .. } = &self.lanes[lane];
            if *rows == self.rows_per_lane() {
                return Ok(None);
            }
            let is_refilled = *unit > 0 || packer.len() < self.plan.buffer_size;
            if is_refilled && !shares.are_over(&self.plan.mix) {
                return Ok(shares.next(&self.plan.mix));
            }
            if !(if self.plan.is_paired { self.pick_pair(lane)? } else { self.pick(lane)? }) {
                return Ok(None);
            }
        }
    }

    /// Counts a part of a row that is in no batch as dropped.
    fn leave_out(&mut self, part: &DocumentPart) {
        if part.document == DocumentPart::PADDING {
            return;
        }
        let (n, lane) = (part.len as u64, part.row % self.rows / self.rows_per_lane());
        self.lanes[lane].packer.count_dropped(n);
        let counts = &mut self.counts[self.plan.mix.source_of(part.document)];
        (counts.tokens, counts.dropped) = (counts.tokens - n, counts.dropped + n);
    }

    fn give_back(&mut self, lane: usize) {
        if let Some(vector) = self.lanes[lane].packer.spare() {
            // A full queue drops it.
            let _ = self.spare.push(vector);
        }
    }
}

impl Collate for TokenCollate {
    type Example = TokenExample;
    type Batch = TokenBatch;

    fn put(&mut self, BatchSlot { stream, .. }: BatchSlot, example: TokenExample) -> Result<()> {
        let TokenExample { mut ids, weights, row, epoch, mut second } = example;
        let (len, uncut) = (ids.len(), second);
        let (lane, source) = self.lane_of(stream);
        let Lane { packer, n_skipped, shares, .. } = &mut self.lanes[lane];
        let (before, held, dropped) = (packer.len(), packer.n_tokens(), packer.n_dropped());
        packer.count_dropped(self.plan.cut_pair(&mut ids, &mut second));
        match self.plan.has_room(&ids, second) {
            true => packer.push(Document { ids, weights, row, start: 1, epoch, second }),
            false => packer.count_dropped(ids.len() as u64),
        }
        self.counts[source].dropped += packer.n_dropped() - dropped;
        if packer.len() > before {
            self.counts[source].documents += 1;
            shares.take(&self.plan.mix, source, packer.n_tokens() - held);
        }
        *n_skipped = if packer.len() > before { 0 } else { *n_skipped + 1 };
        if *n_skipped > self.plan.groups.last().copied().unwrap_or_default() {
            let of = match self.plan.mix.names.get(source) {
                Some(name) => format!(" of source {name:?}"),
                None => String::new(),
            };
            let message = match self.plan.is_paired {
                false => format!(
                    "all documents{of} are longer than a row, such as one with {len} tokens where a row has at most {}; raise seq_len, \
                     or pass on_long=\"cut\" or on_long=\"split\"",
                    self.plan.capacity()
                ),
                true => format!(
                    "no pair{of} has room in its rows, such as one of {uncut} and {} tokens where a row has at most {}; raise seq_len, \
                     or pass on_long=\"cut\", which needs room for the prompt and a part of each answer",
                    len - uncut,
                    self.plan.row_tokens()
                ),
            };
            return Err(Error::new(ErrorKind::Config, message));
        }
        self.give_back(lane);
        self.count(lane, row);
        Ok(())
    }

    fn complete(&mut self, _rows: usize) -> Result<()> {
        let Some(most) = self.plan.max_documents else { return Ok(()) };
        let is_in = |part: &&DocumentPart| part.column < self.plan.seq_len && self.is_complete(part.row);
        let n = self.parts.iter().filter(is_in).count();
        if n <= most {
            return Ok(());
        }
        let message = format!(
            "batch {} has {n} documents, and max_documents is {most}; raise it, which changes no batch, so that a state from before \
             continues here",
            self.batch
        );
        Err(Error::new(ErrorKind::Config, message))
    }

    fn take(&mut self, rows: usize) -> TokenBatch {
        let mut parts = std::mem::take(&mut self.parts);
        let mut fields = self.under_way.take();
        if let Some(fields) = fields.as_mut().filter(|_| rows < self.rows) {
            // bounded: by the rows of a batch.
            let complete: Vec<bool> =
                (0..self.plan.n_sides() * self.rows).map(|row| self.is_complete(row)).collect();
            let is_complete = |row: usize| complete[row];
            fields.keep(is_complete);
            parts.iter().filter(|part| !is_complete(part.row)).for_each(|part| self.leave_out(part));
            parts.retain(|part| is_complete(part.row));
            for part in &mut parts {
                part.row = (0..part.row).filter(|&row| is_complete(row)).count();
            }
        }
        if self.plan.is_paired {
            parts.sort_by_key(|part| (part.row, part.column));
        }
        let mut held = Packing::default();
        self.batch += 1;
        self.lane = 0;
        for Lane { packer, rows, shares, .. } in &mut self.lanes {
            *rows = 0;
            shares.enter(&self.plan.mix, self.batch);
            held.documents += packer.len() as u64;
            held.tokens += packer.n_tokens();
            held.bytes += packer.n_bytes() as u64;
            held.dropped += packer.n_dropped();
        }
        let now_padded = std::mem::take(&mut self.now_padded);
        self.padded += now_padded;
        held.padded = self.padded;
        let now_delivered = (rows * self.plan.capacity()) as u64 - now_padded;
        self.delivered += now_delivered;
        held.delivered = self.delivered;
        let PackMeter { documents, tokens, bytes, delivered, dropped, padded, .. } = &*self.meter;
        documents.store(held.documents, Ordering::Relaxed);
        tokens.store(held.tokens, Ordering::Relaxed);
        bytes.store(held.bytes, Ordering::Relaxed);
        delivered.fetch_add(now_delivered, Ordering::Relaxed);
        padded.fetch_add(now_padded, Ordering::Relaxed);
        dropped.fetch_add(held.dropped - self.dropped, Ordering::Relaxed);
        self.dropped = held.dropped;
        for (meter, counts) in self.sources.iter().zip(&mut self.counts) {
            meter.add(std::mem::take(counts));
        }
        let columns = match fields {
            Some(fields) => fields.finish(rows),
            None => Columns { rows, columns: self.pool.fields().iter().map(|_| Column::default()).collect() },
        };
        TokenBatch { columns, parts, packing: held }
    }

    fn packer(&mut self) -> Option<&mut dyn PackRows<Example = TokenExample>> {
        Some(self)
    }
}

impl PackRows for TokenCollate {
    type Example = TokenExample;

    fn wants(&mut self) -> Result<Option<usize>> {
        while self.lane < self.lanes.len() {
            if let Some(source) = self.source_wanted(self.lane)? {
                return Ok(Some(self.lane * self.counts.len() + source));
            }
            self.lane += 1;
        }
        Ok(None)
    }

    fn begin(&mut self, batch: u64, before: &[StreamShare]) {
        self.batch = batch;
        for (Lane { shares, .. }, before) in self.lanes.iter_mut().zip(before.chunks(self.counts.len())) {
            shares.begin(&self.plan.mix, batch, before);
        }
    }

    fn share(&self, stream: usize) -> StreamShare {
        let (lane, source) = self.lane_of(stream);
        self.lanes[lane].shares.share(&self.plan.mix, source)
    }

    fn miss(&mut self, stream: usize, row: u64) {
        self.count(self.lane_of(stream).0, row);
    }

    fn end(&mut self, stream: usize) {
        let (lane, source) = self.lane_of(stream);
        self.lanes[lane].shares.end(source);
    }

    fn rows(&self) -> usize {
        self.lanes.iter().map(|lane| lane.rows).sum()
    }

    fn finish(&mut self) {
        for part in std::mem::take(&mut self.parts) {
            self.leave_out(&part);
        }
        let (counts, mix) = (&mut self.counts, &self.plan.mix);
        let mut now_dropped = 0;
        for Lane { packer, .. } in &mut self.lanes {
            packer.clear(|row, n| counts[mix.source_of(row)].dropped += n as u64);
            now_dropped += packer.n_dropped();
        }
        let tail = now_dropped - self.dropped;
        self.dropped = now_dropped;
        let PackMeter { documents, tokens, dropped, tail: untaken, .. } = &*self.meter;
        documents.store(0, Ordering::Relaxed);
        tokens.store(0, Ordering::Relaxed);
        dropped.fetch_add(tail, Ordering::Relaxed);
        untaken.store(tail, Ordering::Relaxed);
        for (meter, counts) in self.sources.iter().zip(&mut self.counts) {
            meter.add(std::mem::take(counts));
        }
    }

    fn held(&self, stream: usize) -> Vec<CarriedRecord> {
        // A packer's documents are all listed with its first stream: their order over the sources matters.
        match self.lane_of(stream) {
            (lane, 0) => {
                let held = self.lanes[lane].packer.held();
                held.map(|(row, used, epoch)| CarriedRecord { row, used, epoch }).collect()
            }
            _ => Vec::new(),
        }
    }

    fn hold(&mut self, stream: usize, held: CarriedRecord, example: TokenExample) -> Result<()> {
        let TokenExample { mut ids, mut weights, row, epoch, mut second } = example;
        self.plan.cut_pair(&mut ids, &mut second);
        let start = held.used as usize;
        if start == 0 || start > ids.len() || start == ids.len() && start > 1 {
            return Err(Error::new(
                ErrorKind::State,
                format!(
                    "the state continues at token {start} of a document that has {}; use the shards and the tokenizer that it was \
                     saved with",
                    ids.len()
                ),
            ));
        }
        if start > 1 {
            // A BOS replaces the token before the rest.
            ids.drain(..start - 1);
            ids[0] = if self.plan.loss.is_masked { self.plan.bos | MASKED } else { self.plan.bos };
            if !weights.is_empty() {
                weights.drain(..start - 1);
                weights[0] = 0.0;
            }
        }
        let (lane, _) = self.lane_of(stream);
        let document = Document { ids, weights, row, start: held.used, epoch, second };
        self.lanes[lane].packer.restore(document);
        self.give_back(lane);
        Ok(())
    }
}
