//! The same rules as linear scans over a list, as in the reference: slow and simple.

use super::{CropRule, Document, LongRule, PackedPiece};

pub struct Oracle {
    pub capacity: usize,
    pub bos: u32,
    pub crop: CropRule,
    pub documents: Vec<Document>,
    pub dropped: u64,
}

impl Oracle {
    pub fn new(capacity: usize, bos: u32, crop: CropRule) -> Self {
        Self { capacity, bos, crop, documents: Vec::new(), dropped: 0 }
    }

    pub fn push(&mut self, mut document: Document) {
        let len = document.ids.len();
        if len > self.capacity {
            match self.crop {
                CropRule::Pad(LongRule::Skip) => {
                    self.dropped += len as u64;
                    return;
                }
                CropRule::Pad(LongRule::Cut) => {
                    self.dropped += (len - self.capacity) as u64;
                    document.ids.truncate(self.capacity);
                    document.weights.truncate(self.capacity);
                }
                _ => {}
            }
        }
        self.documents.push(document);
    }

    pub fn place(&mut self, room: usize) -> Option<(PackedPiece, Vec<u32>, Vec<f32>)> {
        let at = self.choose(room)?;
        let Document { mut ids, mut weights, row, start, epoch, .. } = self.documents.remove(at);
        let piece = PackedPiece { row, start, len: ids.len().min(room) };
        let mut rest = ids.split_off(piece.len);
        let mut rest_weights = weights.split_off(piece.len);
        match self.crop {
            CropRule::Drop => self.dropped += rest.len() as u64,
            CropRule::Carry | CropRule::Pad(_) if rest.is_empty() => {}
            CropRule::Carry | CropRule::Pad(_) => {
                let is_whole = piece.len == 1;
                rest.insert(0, if is_whole { ids[0] } else { self.bos });
                rest_weights.insert(0, if is_whole { weights[0] } else { 0.0 });
                let start = start + piece.len as u32 - 1;
                let (ids, weights) = (rest, rest_weights);
                self.documents.push(Document { ids, weights, row, start, epoch, second: 0 });
            }
        }
        Some((piece, ids, weights))
    }

    fn choose(&self, room: usize) -> Option<usize> {
        let best = self.first_by(|len| (len <= room).then_some(usize::MAX - len));
        let shortest = match self.crop {
            CropRule::Drop => self.first_by(Some),
            CropRule::Carry => self.first_by(|len| Some(len.min(self.capacity + 1))),
            CropRule::Pad(_) if room < self.capacity => None,
            CropRule::Pad(_) => self.first_by(|len| (len > self.capacity).then_some(0)),
        };
        if self.crop != CropRule::Drop && room == self.capacity {
            let long = self.documents.iter().position(|document| document.ids.len() > self.capacity);
            if long.is_some_and(|long| best.is_none_or(|best| long < best)) {
                return long;
            }
        }
        best.or(shortest)
    }

    /// The first document with the smallest key, of those that have one.
    fn first_by(&self, key: impl Fn(usize) -> Option<usize>) -> Option<usize> {
        let mut first: Option<(usize, usize)> = None;
        for (at, document) in self.documents.iter().enumerate() {
            if let Some(key) = key(document.ids.len())
                && first.is_none_or(|(smallest, _)| key < smallest)
            {
                first = Some((key, at));
            }
        }
        first.map(|(_, at)| at)
    }
}
