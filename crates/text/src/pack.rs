//! Packs documents into rows of tokens: best fit, full rows or padded ones.
//!
//! A row holds `capacity` tokens and is filled from the left by calls of [`Packer::place`], each with the
//! room that is left. A call takes the longest document that fits (of equals, the oldest). If none fits, the
//! shortest (of equals, the oldest) is cropped to fill the row exactly, and its rest is dropped or carried
//! ([`CropRule`]); or nothing is cropped, and the caller pads the row ([`CropRule::Pad`]). Each document
//! begins with BOS, and so does a carried rest, so each row does. The caller decides how many documents are
//! held before each pick. The pick is a pure function of these documents, their ages and the room. So
//! [`Packer::held`] is all that a state needs.
//!
//! **Long documents.** A document longer than a row never fits. Under [`CropRule::Drop`] it leaves only when
//! no shorter one is held, so such documents gradually fill the buffer; that is the reference's rule,
//! followed to the token. Only the tokens of it that a row can hold are held; the others are dropped when the
//! document enters, and counted then. Under
//! [`CropRule::Carry`] long documents leave oldest first, and at the start of a row the oldest one goes
//! before the best fit if it is the older of the two. So they leave as fast as they arrive. Since a rest
//! re-enters as the newest document, a giant alternates with the others. Under [`CropRule::Pad`] they are
//! left out, cut, or leave in the same way ([`LongRule`]); but then only whole rows are taken from them.
//!
//! **Fields of a token.** The top bit of an id, [`MASKED`], says that the token is not trained on; ids are
//! below it. A packer [with weights](Packer::with_weights) moves a float32 with each token, in memory of its
//! own, so that rows of ids alone cost nothing more. Neither changes a pick.
//!
//! **Cost.** Documents that can fit are in one queue for each length, with a bit set of the queues that are
//! not empty; longer ones are in a heap. So a pick reads a few words. Tokens are in one allocation, which is
//! compacted when it is full and at least half unused. So memory is at most about three times the held
//! tokens, whatever the documents' lengths were, and in the steady state nothing is allocated.
//!
//! Source: own. The rule under `Drop` is that of nanochat's `tokenizing_distributed_data_loader_bos_bestfit`,
//! tested against rows from an independent implementation of it; `oracle` is the same as a linear scan.

mod bits;
mod queues;

#[cfg(test)]
mod oracle;
#[cfg(test)]
mod tests;

use queues::Queues;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The use of the rest of a cropped document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CropRule {
    /// The rest is lost, as in the reference: about a quarter of web text in rows of 2049 tokens.
    Drop,
    /// The rest re-enters as the newest document, with a BOS of its own: no token is lost.
    Carry,
    /// Documents that fit a row are never cropped; if none fits the rest of a row, the row ends there.
    Pad(LongRule),
}

/// The use of a document that is longer than a row, where the others are not cropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LongRule {
    /// It is left out.
    Skip,
    /// Its first tokens fill a row; the others are dropped.
    Cut,
    /// Its tokens fill rows, each with a BOS, until the rest fits a row.
    Split,
}

/// The bit of a token that is not trained on: its id as a target is ignored.
pub const MASKED: u32 = 1 << 31;

/// A tokenised document, or the rest of one.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Document {
    /// BOS, then the content from token `start` on; each with [`MASKED`] if it is not trained on.
    pub ids: Vec<u32>,
    /// The weight of each token in the loss, or nothing: 1 for each.
    pub weights: Vec<f32>,
    /// Its row, counted over all files in order.
    pub row: u64,
    /// The first content token not yet delivered, counted with the BOS: 1 for a whole document.
    pub start: u32,
    /// The pass that its tokens depend on; 0 if they depend on none.
    pub epoch: u64,
    /// Of two documents that stay together, where the second one begins; else 0. A pair is never cropped.
    pub second: usize,
}

/// The tokens that one pick put into a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackedPiece {
    /// [`Document::row`] of its document.
    pub row: u64,
    /// [`Document::start`]: the first content token in it.
    pub start: u32,
    /// Tokens, BOS included.
    pub len: usize,
}

const NONE: u32 = u32::MAX;

/// A held document. Its tokens are `tokens[offset..offset + held]`.
#[derive(Debug, Clone, Copy)]
struct HeldDocument {
    offset: usize,
    /// Tokens in memory: `len`, or fewer if the others can never be delivered.
    held: usize,
    len: usize,
    row: u64,
    start: u32,
    epoch: u64,
    second: usize,
    /// Its number in order of arrival; a carried rest gets a new one.
    age: u64,
    older: u32,
    newer: u32,
}

/// Holds documents, and picks the next one for a row.
///
/// ```
/// use forebay_text::{CropRule, Document, Packer};
///
/// const BOS: u32 = 0;
/// let mut packer = Packer::new(8, BOS, CropRule::Drop);
/// for (row, len) in [4, 3, 6, 2, 9].into_iter().enumerate() {
///     let mut ids = vec![row as u32 + 1; len];
///     ids[0] = BOS;
///     packer.push(Document { ids, row: row as u64, start: 1, ..Document::default() });
/// }
/// let mut fill = || {
///     let mut row = Vec::new();
///     while row.len() < 8 && packer.place(8 - row.len(), |ids| row.extend_from_slice(ids)).is_some() {}
///     row
/// };
/// assert_eq!(fill(), [BOS, 3, 3, 3, 3, 3, BOS, 4]); // the 6 and the 2
/// assert_eq!(fill(), [BOS, 1, 1, 1, BOS, 2, 2, BOS]); // the 4, the 3, and one token cropped from the next
/// assert_eq!(packer.n_dropped(), 8);
/// ```
#[derive(Debug)]
pub struct Packer {
    capacity: usize,
    bos: u32,
    crop: CropRule,
    slots: Vec<HeldDocument>,
    vacant: Vec<u32>,
    oldest: u32,
    newest: u32,
    arrivals: u64,
    /// Documents of at most `capacity` tokens, by length.
    short: Queues,
    /// The others, by (length, age) where rests are dropped, by age where they are carried.
    long: BinaryHeap<Reverse<(usize, u64, u32)>>,
    tokens: Vec<u32>,
    /// The weights of `tokens`, in the same places, if `has_weights`; else empty.
    weights: Vec<f32>,
    has_weights: bool,
    live: usize,
    by_offset: Vec<u32>,
    spare: Vec<Vec<u32>>,
    dropped: u64,
}

impl Packer {
    /// The most spare vectors kept: one unit of the refill.
    const SPARES: usize = 128;

    /// The largest vector kept as a spare, in tokens.
    const SPARE_TOKENS: usize = 1 << 16;

    /// A packer of rows of `capacity` tokens: the sequence length plus one. Must be at least 2 if rests are
    /// carried, or they never end. `bos` may be [`MASKED`], for the BOS that it writes before a carried rest.
    pub fn new(capacity: usize, bos: u32, crop: CropRule) -> Self {
        Self {
            capacity,
            bos,
            crop,
            slots: Vec::new(),
            vacant: Vec::new(),
            oldest: NONE,
            newest: NONE,
            arrivals: 0,
            short: Queues::new(capacity),
            long: BinaryHeap::new(),
            tokens: Vec::new(),
            weights: Vec::new(),
            has_weights: false,
            live: 0,
            by_offset: Vec::new(),
            spare: Vec::new(),
            dropped: 0,
        }
    }

    /// The same packer for tokens with weights. That of the BOS before a carried rest is 0.
    pub fn with_weights(self) -> Self {
        Self { has_weights: true, ..self }
    }

    /// Adds a document as the newest. Its tokens are copied; the vector is kept for [`spare`](Self::spare).
    ///
    /// A document without any token, not even BOS, is left out: it could never fill any room. Tokens that no
    /// row can hold count as dropped from now on.
    pub fn push(&mut self, document: Document) {
        self.dropped += self.hold(document);
    }

    /// Adds a document that [`held`](Self::held) listed, as the newest. The packer that held it has counted
    /// the tokens that no row can hold.
    pub fn restore(&mut self, document: Document) {
        self.hold(document);
    }

    /// Stores a document; returns the number of its tokens that no row can hold.
    fn hold(&mut self, document: Document) -> u64 {
        let Document { ids, mut weights, row, start, epoch, second } = document;
        let mut beyond = 0;
        let is_bos = |id: &u32| (id ^ self.bos) & !MASKED == 0;
        debug_assert!(ids.first().is_some_and(is_bos), "a document begins with BOS");
        debug_assert!(weights.is_empty() || weights.len() == ids.len(), "a weight for each token");
        if self.has_weights && weights.is_empty() {
            // bounded: by the document.
            weights.resize(ids.len(), 1.0);
        }
        if !ids.is_empty() {
            let held = match self.crop {
                CropRule::Drop | CropRule::Pad(LongRule::Cut) => ids.len().min(self.capacity),
                CropRule::Pad(LongRule::Skip) if ids.len() > self.capacity => 0,
                CropRule::Carry | CropRule::Pad(_) => ids.len(),
            };
            beyond = (ids.len() - held) as u64;
            if held == 0 {
                self.keep(ids);
                return beyond;
            }
            // Of a document that is cut the rest is gone, and no longer in its place in the order.
            let len = if self.crop == CropRule::Pad(LongRule::Cut) { held } else { ids.len() };
            let offset = self.store(&ids[..held], &weights);
            let (age, older, newer) = (0, NONE, NONE);
            let slot = HeldDocument { offset, held, len, row, start, epoch, second, age, older, newer };
            let index = match self.vacant.pop() {
                Some(index) => {
                    self.slots[index as usize] = slot;
                    index
                }
                None => {
                    self.slots.push(slot);
                    self.slots.len() as u32 - 1
                }
            };
            self.live += held;
            self.enter(index);
        }
        self.keep(ids);
        beyond
    }

    /// Counts tokens as dropped that the caller leaves out.
    pub fn count_dropped(&mut self, n: u64) {
        self.dropped += n;
    }

    /// Drops all held documents, each with a call of `each`: its row, and the number of its tokens in memory.
    pub fn clear(&mut self, mut each: impl FnMut(u64, usize)) {
        while let Some(slot) = self.slots.get(self.oldest as usize).copied() {
            each(slot.row, slot.held);
            self.dropped += slot.held as u64;
            self.live -= slot.held;
            self.vacant.push(self.oldest);
            self.leave(self.oldest);
        }
        self.short = Queues::new(self.capacity);
        self.long.clear();
    }

    /// Keeps the memory of a document for the next ones.
    fn keep(&mut self, mut ids: Vec<u32>) {
        if ids.capacity() <= Self::SPARE_TOKENS && self.spare.len() < Self::SPARES {
            ids.clear();
            self.spare.push(ids);
        }
    }

    /// Documents that are held: pushed, and not delivered in full.
    pub fn len(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }

    /// Whether no document is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of tokens in memory; of a document whose rest will be dropped, only those that a row can hold.
    pub fn n_tokens(&self) -> u64 {
        self.live as u64
    }

    /// Memory in bytes: a few times the held tokens and a constant. Includes the spare vectors.
    pub fn n_bytes(&self) -> usize {
        let spare: usize = self.spare.iter().map(Vec::capacity).sum();
        size_of::<u32>()
            * (self.tokens.capacity()
                + self.weights.capacity()
                + spare
                + self.vacant.capacity()
                + self.by_offset.capacity())
            + size_of::<HeldDocument>() * self.slots.capacity()
            + size_of::<Reverse<(usize, u64, u32)>>() * self.long.capacity()
            + self.short.n_bytes()
    }

    /// Number of tokens dropped so far: those of documents pushed that no row can hold or that are left out,
    /// and the rests of cropped documents. 0 where rests are carried.
    ///
    /// So each token pushed is in a row, held ([`n_tokens`](Self::n_tokens)) or counted here.
    pub fn n_dropped(&self) -> u64 {
        self.dropped
    }

    /// Takes the document that fits `room` best, or crops one, and passes its tokens to one call of `copy`:
    /// at least one, at most `room`.
    ///
    /// `room` is the capacity at the start of a row, then the room left in it. Returns `None`, without a call
    /// of `copy`, if no document is held or `room` is 0, or under [`CropRule::Pad`] if none fits. Allocates
    /// nothing.
    pub fn place(&mut self, room: usize, copy: impl FnOnce(&[u32])) -> Option<PackedPiece> {
        self.place_weighted(room, |ids, _, _| copy(ids))
    }

    /// As [`place`](Self::place); `copy` also gets the weights of the tokens, as many, or none of a packer
    /// without weights; and [`Document::second`].
    pub fn place_weighted(
        &mut self,
        room: usize,
        copy: impl FnOnce(&[u32], &[f32], usize),
    ) -> Option<PackedPiece> {
        debug_assert!(room <= self.capacity, "{room} tokens in a row of {}", self.capacity);
        let room = room.min(self.capacity);
        let index = self.choose(room)?;
        let slot = self.slots[index as usize];
        let len = slot.len.min(room);
        let weights = if self.has_weights { &self.weights[slot.offset..slot.offset + len] } else { &[] };
        copy(&self.tokens[slot.offset..slot.offset + len], weights, slot.second);
        self.leave(index);
        if slot.len > len && matches!(self.crop, CropRule::Carry | CropRule::Pad(LongRule::Split)) {
            // The BOS of the rest overwrites the last token delivered.
            let used = len - 1;
            // Where only the BOS was delivered, the rest is the document.
            if used > 0 {
                self.tokens[slot.offset + used] = self.bos;
                if self.has_weights {
                    self.weights[slot.offset + used] = 0.0;
                }
            }
            self.live -= used;
            let rest = &mut self.slots[index as usize];
            rest.offset += used;
            rest.held -= used;
            rest.len -= used;
            rest.start += used as u32;
            self.enter(index);
        } else {
            self.dropped += (slot.held - len) as u64;
            self.live -= slot.held;
            self.vacant.push(index);
        }
        Some(PackedPiece { row: slot.row, start: slot.start, len })
    }

    /// The held documents, oldest first, as ([`Document::row`], [`Document::start`], [`Document::epoch`]).
    ///
    /// A new packer that gets the same documents from the same starts, in this order, makes the same rows.
    pub fn held(&self) -> impl Iterator<Item = (u64, u32, u64)> {
        self.by_age().map(|index| {
            let slot = &self.slots[index as usize];
            (slot.row, slot.start, slot.epoch)
        })
    }

    /// An empty vector for the next document, to avoid an allocation.
    pub fn spare(&mut self) -> Option<Vec<u32>> {
        self.spare.pop()
    }

    /// Removes the document for `room` from its queue.
    fn choose(&mut self, room: usize) -> Option<u32> {
        if room == 0 {
            return None;
        }
        let mut best = self.short.longest_within(room);
        if !matches!(self.crop, CropRule::Pad(_)) {
            best = best.or_else(|| self.short.shortest());
        }
        let long_first = |best: u32| {
            let oldest = self.long.peek().map(|Reverse((_, age, _))| *age);
            self.crop != CropRule::Drop
                && room == self.capacity
                && oldest.is_some_and(|age| age < self.slots[best as usize].age)
        };
        match best {
            Some((len, best)) if !long_first(best) => self.short.pop(len),
            // Only the start of a row is for a piece of a long document.
            None if room < self.capacity && matches!(self.crop, CropRule::Pad(_)) => None,
            _ => self.long.pop().map(|Reverse((_, _, index))| index),
        }
    }

    /// Makes a slot the newest and puts it into its queue.
    fn enter(&mut self, index: u32) {
        let age = self.arrivals;
        self.arrivals += 1;
        let newest = std::mem::replace(&mut self.newest, index);
        match newest {
            NONE => self.oldest = index,
            newest => self.slots[newest as usize].newer = index,
        }
        let slot = &mut self.slots[index as usize];
        (slot.age, slot.older, slot.newer) = (age, newest, NONE);
        match (slot.len <= self.capacity, self.crop) {
            (true, _) => self.short.push(slot.len, index),
            (false, CropRule::Drop) => self.long.push(Reverse((slot.len, age, index))),
            (false, CropRule::Carry | CropRule::Pad(_)) => self.long.push(Reverse((0, age, index))),
        }
    }

    /// Removes a slot from the order of arrival.
    fn leave(&mut self, index: u32) {
        let HeldDocument { older, newer, .. } = self.slots[index as usize];
        match older {
            NONE => self.oldest = newer,
            older => self.slots[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.slots[newer as usize].older = older,
        }
    }

    fn by_age(&self) -> impl Iterator<Item = u32> {
        let slot = |index| (index != NONE).then_some(index);
        std::iter::successors(slot(self.oldest), move |&index| slot(self.slots[index as usize].newer))
    }

    /// Appends tokens, and the first of `weights` for them, and returns their offset.
    fn store(&mut self, ids: &[u32], weights: &[f32]) -> usize {
        if self.tokens.capacity() - self.tokens.len() < ids.len() && self.live <= self.tokens.len() / 2 {
            self.compact(ids.len());
        }
        if self.tokens.capacity() - self.tokens.len() < ids.len() {
            // bounded: by the held documents, and a quarter.
            self.tokens.reserve_exact(ids.len().max(self.tokens.len() / 4));
        }
        let offset = self.tokens.len();
        self.tokens.extend_from_slice(ids);
        if self.has_weights {
            // bounded: as the tokens.
            self.weights.reserve_exact(self.tokens.capacity() - self.weights.len());
            self.weights.extend_from_slice(&weights[..ids.len()]);
        }
        offset
    }

    /// Moves the held tokens together. Most of the memory of a giant that has left is freed.
    fn compact(&mut self, wanted: usize) {
        let mut by_offset = std::mem::take(&mut self.by_offset);
        by_offset.clear();
        by_offset.extend(self.by_age());
        by_offset.sort_unstable_by_key(|&index| self.slots[index as usize].offset);
        let mut end = 0;
        for &index in &by_offset {
            let slot = &mut self.slots[index as usize];
            self.tokens.copy_within(slot.offset..slot.offset + slot.held, end);
            if self.has_weights {
                self.weights.copy_within(slot.offset..slot.offset + slot.held, end);
            }
            slot.offset = end;
            end += slot.held;
        }
        self.tokens.truncate(end);
        self.weights.truncate(end);
        self.by_offset = by_offset;
        let needed = end + wanted;
        if self.tokens.capacity() / 4 > needed {
            self.tokens.shrink_to(2 * needed);
            self.weights.shrink_to(2 * needed);
        }
    }
}
