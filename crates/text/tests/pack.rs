//! Packing compared with golden rows; its waste and memory.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use forebay_base::seed::{Purpose, hash};
use forebay_text::{CropRule, Document, PackedPiece, Packer};
use serde_json::Value;

const BUFFER_SIZE: usize = 1000;
const UNIT: usize = 128;

fn number(value: &Value) -> usize {
    value.as_u64().unwrap() as usize
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

/// The rows of `tests/data/token-golden` (sources in its SOURCE.txt) as pieces: one rank, two ranks, two
/// resumptions.
#[test]
fn golden_rows() {
    let golden: Value =
        serde_json::from_str(include_str!("../../../tests/data/token-golden/pieces.json")).unwrap();
    let golden = golden.as_object().unwrap();
    assert_eq!(golden.len(), 5);
    for (name, of) in golden {
        let mut packer = Packer::new(513, 0, CropRule::Drop);
        let mut slices = list(&of["slices"]).iter();
        let mut n_pushed = 0;
        for (at, expected) in list(&of["rows"]).iter().enumerate() {
            let mut pieces = Vec::new();
            let mut room = 513;
            while room > 0 {
                while packer.len() < BUFFER_SIZE {
                    for len in list(slices.next().unwrap()) {
                        packer.push(Document {
                            ids: vec![0; number(len)],
                            row: n_pushed,
                            start: 1,
                            ..Document::default()
                        });
                        n_pushed += 1;
                    }
                }
                let piece = packer.place(room, |_| {}).unwrap();
                assert_eq!(piece.start, 1);
                pieces.push((piece.row as usize, piece.len));
                room -= piece.len;
            }
            let expected: Vec<_> =
                list(expected).iter().map(|piece| (number(&piece[0]), number(&piece[1]))).collect();
            assert_eq!(pieces, expected, "{name}, row {at}");
        }
    }
}

/// Lengths similar to web text, BOS included: log-normal, median 556, mean 1000.
struct WebLike {
    seed: u64,
    n: u64,
}

impl Iterator for WebLike {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let uniform =
            |word| (hash(self.seed, Purpose::Window, [self.n, word]) >> 11) as f64 / (1_u64 << 53) as f64;
        let normal = (-2.0 * (1.0 - uniform(0)).ln()).sqrt() * (std::f64::consts::TAU * uniform(1)).cos();
        self.n += 1;
        Some((normal * 1.083).exp().mul_add(556.0, 1.0) as usize + 1)
    }
}

/// Rows packed from documents of given lengths, and for each document its length and what is left of it.
struct Run<L> {
    packer: Packer,
    capacity: usize,
    lengths: L,
    of: Vec<usize>,
    pushed: u64,
    delivered: u64,
}

impl<L: Iterator<Item = usize>> Run<L> {
    fn new(seq_len: usize, crop: CropRule, lengths: L) -> Self {
        let capacity = seq_len + 1;
        Self {
            packer: Packer::new(capacity, 0, crop),
            capacity,
            lengths,
            of: Vec::new(),
            pushed: 0,
            delivered: 0,
        }
    }

    fn row(&mut self) -> Vec<PackedPiece> {
        let mut pieces = Vec::new();
        let mut room = self.capacity;
        while room > 0 {
            while self.packer.len() < BUFFER_SIZE {
                for len in self.lengths.by_ref().take(UNIT) {
                    let mut ids = self.packer.spare().unwrap_or_default();
                    ids.resize(len, 0);
                    self.packer.push(Document {
                        ids,
                        row: self.of.len() as u64,
                        start: 1,
                        ..Document::default()
                    });
                    self.of.push(len);
                    self.pushed += len as u64;
                }
            }
            let piece = self.packer.place(room, |_| {}).unwrap();
            room -= piece.len;
            self.delivered += piece.len as u64;
            pieces.push(piece);
        }
        pieces
    }

    /// The number of held documents that are longer than a row.
    fn n_long(&self) -> usize {
        self.packer
            .held()
            .filter(|&(row, start, _)| self.of[row as usize] - start as usize + 1 > self.capacity)
            .count()
    }

    /// The share of incoming tokens that are not in rows: dropped, or still held.
    fn waste(&self) -> f64 {
        1.0 - self.delivered as f64 / self.pushed as f64
    }
}

#[test]
fn waste_on_web_like_documents() {
    let mut drop = Run::new(2048, CropRule::Drop, WebLike { seed: 1, n: 0 });
    let mut carry = Run::new(2048, CropRule::Carry, WebLike { seed: 1, n: 0 });
    let mut most_long = 0;
    for _ in 0..10_000 {
        drop.row();
        carry.row();
        most_long = most_long.max(carry.n_long());
    }
    assert!((0.25..0.35).contains(&drop.waste()), "{}", drop.waste());
    assert!(drop.n_long() > 900, "{}", drop.n_long());
    assert_eq!(carry.packer.n_dropped(), 0);
    assert!(carry.waste() < 0.03, "{}", carry.waste());
    assert!(most_long < 200, "{most_long}"); // at the start, when 1024 documents come at once
    assert!(carry.n_long() < 50, "{}", carry.n_long());
}

/// A document of 100 MB of text, among others: it alternates with them, and the buffer keeps its size.
#[test]
fn a_giant_alternates_with_others() {
    let giant = 5_000_000;
    let lengths = WebLike { seed: 2, n: 0 }.enumerate().map(|(at, len)| if at == 3000 { giant } else { len });
    let mut run = Run::new(2048, CropRule::Carry, lengths);
    let (mut rows_of_giant, mut in_a_row, mut longest, mut n_long) = (0, 0, 0, 0);
    for row in 0..10_000 {
        if run.row().iter().any(|piece| piece.row == 3000) {
            rows_of_giant += 1;
            in_a_row += 1;
            longest = longest.max(in_a_row);
        } else {
            in_a_row = 0;
        }
        if row >= 2000 {
            n_long = n_long.max(run.n_long());
        }
    }
    assert!(rows_of_giant > 200, "{rows_of_giant}");
    assert!(longest <= 2, "{longest}");
    assert!(n_long < 50, "{n_long}");
}

/// Memory is bounded by the tokens that are held, not by the largest document so far.
#[test]
fn memory_follows_what_is_held() {
    for crop in [CropRule::Drop, CropRule::Carry] {
        let lengths = WebLike { seed: 3, n: 0 }
            .enumerate()
            .map(|(at, len)| if at % 5000 == 4999 { 300_000 } else { len });
        let mut run = Run::new(2048, crop, lengths);
        for _ in 0..4000 {
            run.row();
        }
        let held = 4 * run.packer.n_tokens() as usize;
        assert!(run.packer.n_bytes() < 4 * held + (1 << 20), "{} bytes for {held}", run.packer.n_bytes());
    }
}
