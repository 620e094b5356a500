//! The packer compared with its oracle, and properties of every row for any input.

use super::oracle::Oracle;
use super::*;
use proptest::prelude::*;

const BOS: u32 = MASKED - 1;

/// Document `row` with `len` tokens: BOS, then content that no other document and no other place has.
fn document(row: usize, len: usize) -> Document {
    let first = (row as u32) << 16;
    let ids = std::iter::once(BOS).chain((1..len as u32).map(|at| first | at)).collect();
    Document { ids, row: row as u64, start: 1, epoch: row as u64 / 3, ..Document::default() }
}

/// The same with a weight for each token, and every third token masked.
fn weighted(row: usize, len: usize) -> Document {
    let mut document = document(row, len);
    document.weights = (0..len).map(|at| (row * 1000 + at + 1) as f32).collect();
    document.ids.iter_mut().skip(row % 3).step_by(3).for_each(|id| *id ^= MASKED);
    document
}

/// The rest of a document from `start` on.
fn rest(row: usize, len: usize, start: u32) -> Document {
    let Document { mut ids, mut weights, row, epoch, .. } = weighted(row, len);
    ids.drain(..start as usize - 1);
    weights.drain(..start as usize - 1);
    if start > 1 {
        (ids[0], weights[0]) = (BOS, 0.0);
    }
    Document { ids, weights, row, start, epoch, second: 0 }
}

/// One row, as tokens and pieces; `None` if the packer is empty before the row is full.
fn fill(packer: &mut Packer) -> Option<(Vec<u32>, Vec<PackedPiece>)> {
    let (mut tokens, mut pieces) = (Vec::new(), Vec::new());
    while tokens.len() < packer.capacity {
        pieces.push(packer.place(packer.capacity - tokens.len(), |ids| tokens.extend_from_slice(ids))?);
    }
    Some((tokens, pieces))
}

fn piece(row: u64, start: u32, len: usize) -> PackedPiece {
    PackedPiece { row, start, len }
}

#[test]
fn worked_example() {
    for crop in [CropRule::Drop, CropRule::Carry] {
        let mut packer = Packer::new(8, BOS, crop);
        for (row, len) in [4, 3, 6, 2, 9].into_iter().enumerate() {
            packer.push(document(row, len));
        }
        assert_eq!(fill(&mut packer).unwrap().1, [piece(2, 1, 6), piece(3, 1, 2)]);
        let (tokens, pieces) = fill(&mut packer).unwrap();
        assert_eq!(pieces, [piece(0, 1, 4), piece(1, 1, 3), piece(4, 1, 1)]);
        let content = |row: u32, at: u32| row << 16 | at;
        assert_eq!(
            tokens,
            [BOS, content(0, 1), content(0, 2), content(0, 3), BOS, content(1, 1), content(1, 2), BOS]
        );
        match crop {
            CropRule::Drop => assert_eq!((packer.len(), packer.n_dropped()), (0, 8)),
            // Only its BOS fitted: all its content is still to come.
            CropRule::Carry | CropRule::Pad(_) => {
                assert_eq!((packer.n_tokens(), packer.n_dropped()), (9, 0));
                assert_eq!(packer.held().collect::<Vec<_>>(), [(4, 1, 1)]);
            }
        }
    }
}

#[test]
fn equals_go_in_order_of_arrival() {
    let mut packer = Packer::new(6, BOS, CropRule::Drop);
    for (row, len) in [5, 3, 3, 5, 3].into_iter().enumerate() {
        packer.push(document(row, len));
    }
    let rows: Vec<_> = [6, 3, 1, 2].map(|room| packer.place(room, |_| {}).unwrap().row).into();
    assert_eq!(rows, [0, 1, 2, 4]);
    assert_eq!(packer.n_dropped(), 2 + 1);
}

#[test]
fn a_rest_is_the_newest() {
    let mut packer = Packer::new(6, BOS, CropRule::Carry);
    packer.push(document(0, 5));
    packer.push(document(1, 3));
    assert_eq!(packer.place(2, |_| {}), Some(piece(1, 1, 2)));
    assert_eq!(packer.held().collect::<Vec<_>>(), [(0, 1, 0), (1, 2, 0)]);
    let mut tokens = Vec::new();
    assert_eq!(packer.place(2, |ids| tokens.extend_from_slice(ids)), Some(piece(1, 2, 2)));
    assert_eq!(tokens, [BOS, 1 << 16 | 2]);
}

#[test]
fn of_a_document_that_is_dropped_anyway_only_a_row_is_held() {
    let mut packer = Packer::new(10, BOS, CropRule::Drop);
    packer.push(document(0, 30_000));
    packer.push(document(1, 20_000));
    packer.push(document(2, 11));
    assert_eq!(packer.n_tokens(), 30);
    // Ordered by true length, so the last to arrive goes first.
    let rows: Vec<_> = std::iter::from_fn(|| packer.place(10, |_| {})).map(|piece| piece.row).collect();
    assert_eq!(rows, [2, 1, 0]);
    assert_eq!(packer.n_dropped(), 29_990 + 19_990 + 1);
}

#[test]
fn whole_documents_and_long_ones() {
    let rows = |long| {
        let mut packer = Packer::new(8, BOS, CropRule::Pad(long));
        for (row, len) in [5, 20, 4, 3, 8].into_iter().enumerate() {
            packer.push(document(row, len));
        }
        let (mut rows, mut room) = (Vec::new(), 8);
        loop {
            match packer.place(room, |_| {}) {
                Some(PackedPiece { row, start, len }) => {
                    rows.push((room, row, start, len));
                    room = if len == room { 8 } else { room - len };
                }
                None if room < 8 => room = 8,
                None => break,
            }
        }
        (rows, packer.n_dropped())
    };
    let short = [(8, 4, 1, 8), (8, 0, 1, 5), (3, 3, 1, 3), (8, 2, 1, 4)];
    assert_eq!(rows(LongRule::Skip), (short.to_vec(), 20));
    let cut = [&[(8, 1, 1, 8)], &short[..]].concat();
    assert_eq!(rows(LongRule::Cut), (cut, 12));
    // The long one is older than the best fit of the first row, its rest younger.
    let split = [&[(8, 1, 1, 8)], &short[..], &[(8, 1, 8, 8), (8, 1, 15, 6)]].concat();
    assert_eq!(rows(LongRule::Split), (split, 0));
}

#[test]
fn nothing_held_and_no_room() {
    let mut packer = Packer::new(10, BOS, CropRule::Carry);
    assert_eq!(packer.place(10, |_| panic!("nothing to copy")), None);
    packer.push(document(0, 3));
    assert_eq!(packer.place(0, |_| panic!("no room")), None);
    assert!(!packer.is_empty());
}

#[test]
fn vectors_come_back() {
    let mut packer = Packer::new(10, BOS, CropRule::Drop);
    assert_eq!(packer.spare(), None);
    let ids = document(0, 100).ids;
    let place = ids.as_ptr();
    packer.push(Document { ids, ..document(0, 100) });
    let spare = packer.spare().unwrap();
    assert_eq!((spare.len(), spare.as_ptr()), (0, place));
    assert_eq!(packer.spare(), None);
}

fn rules() -> impl Strategy<Value = CropRule> {
    prop_oneof![
        Just(CropRule::Drop),
        Just(CropRule::Carry),
        Just(CropRule::Pad(LongRule::Skip)),
        Just(CropRule::Pad(LongRule::Cut)),
        Just(CropRule::Pad(LongRule::Split)),
    ]
}

/// Lengths below, at and above a row's, and some giants.
fn lengths(capacity: usize) -> impl Strategy<Value = Vec<usize>> {
    let len = prop_oneof![
        8 => 1..=capacity,
        2 => 1_usize..4,
        2 => capacity..3 * capacity,
        1 => 1..40 * capacity,
    ];
    prop::collection::vec(len, 0..200)
}

proptest! {
    /// Every piece of every row, every token and every crop equals the oracle's, also after a packer is
    /// rebuilt from `held`.
    #[test]
    fn picks_what_the_oracle_picks(
        (capacity, lengths) in (2_usize..80).prop_flat_map(|capacity| (Just(capacity), lengths(capacity))),
        buffer_size in 1_usize..50,
        unit in 1_usize..20,
        crop in rules(),
        rebuild_every in 1_usize..20,
    ) {
        let new = || Packer::new(capacity, BOS, crop).with_weights();
        let mut packer = new();
        let mut oracle = Oracle::new(capacity, BOS, crop);
        let mut coming = lengths.iter().copied().enumerate();
        let mut dropped = 0;
        let (mut row, mut picks): (Vec<u32>, usize) = (Vec::new(), 0);
        loop {
            while packer.len() < buffer_size {
                let mut is_over = true;
                for (at, len) in coming.by_ref().take(unit) {
                    is_over = false;
                    packer.push(weighted(at, len));
                    oracle.push(weighted(at, len));
                }
                if is_over {
                    break;
                }
            }
            let room = capacity - row.len();
            let (mut tokens, mut weights) = (Vec::new(), Vec::new());
            let piece = packer.place_weighted(room, |ids, beside, _| {
                tokens.extend_from_slice(ids);
                weights.extend_from_slice(beside);
            });
            let expected = oracle.place(room);
            prop_assert_eq!(piece.map(|piece| (piece, tokens.clone(), weights)), expected);
            let held: Vec<_> = packer.held().collect();
            let expected: Vec<_> = oracle.documents.iter().map(|document| (document.row, document.start, document.epoch)).collect();
            prop_assert_eq!(&held, &expected);
            prop_assert_eq!(packer.len(), held.len());
            let in_memory = |document: &Document| match crop {
                CropRule::Drop => document.ids.len().min(capacity),
                CropRule::Carry | CropRule::Pad(_) => document.ids.len(),
            };
            // The oracle counts when it crops, the packer as soon as no row can hold a token.
            let beyond: usize =
                oracle.documents.iter().map(|document| document.ids.len() - in_memory(document)).sum();
            prop_assert_eq!(dropped + packer.n_dropped(), oracle.dropped + beyond as u64);
            prop_assert_eq!(packer.n_tokens(), oracle.documents.iter().map(in_memory).sum::<usize>() as u64);
            if piece.is_none() && !row.is_empty() && matches!(crop, CropRule::Pad(_)) {
                // The row is padded.
                row.clear();
                continue;
            }
            if piece.is_none() {
                break;
            }
            row.extend(tokens);
            prop_assert_eq!(row[0] & !MASKED, BOS);
            if row.len() == capacity {
                row.clear();
            }
            picks += 1;
            if picks % rebuild_every == 0 {
                dropped += packer.n_dropped();
                packer = new();
                for (at, start, _) in held {
                    packer.restore(rest(at as usize, lengths[at as usize], start));
                }
            }
        }
    }

    /// Carried: each content token is delivered once, in its document's order. Dropped: delivered and dropped
    /// tokens add up to all.
    #[test]
    fn no_token_is_lost(
        (capacity, lengths) in (2_usize..80).prop_flat_map(|capacity| (Just(capacity), lengths(capacity))),
        crop in rules(),
    ) {
        let mut packer = Packer::new(capacity, BOS, crop);
        for (at, &len) in lengths.iter().enumerate() {
            packer.push(document(at, len));
        }
        let mut delivered: Vec<Vec<u32>> = vec![vec![BOS]; lengths.len()];
        let mut n_delivered = 0;
        let mut room = capacity;
        let mut ids_of = Vec::new();
        loop {
            let Some(piece) = packer.place(room, |ids| ids_of = ids.to_vec()) else {
                if room < capacity && matches!(crop, CropRule::Pad(_)) {
                    room = capacity;
                    continue;
                }
                break;
            };
            // Whole, unless it is longer than a row.
            if let CropRule::Pad(_) = crop {
                let whole = lengths[piece.row as usize] - (piece.start as usize - 1);
                prop_assert_eq!(piece.len, whole.min(capacity));
            }
            prop_assert_eq!(ids_of[0], BOS);
            let document = &mut delivered[piece.row as usize];
            prop_assert_eq!(piece.start as usize, document.len());
            document.extend(&ids_of[1..]);
            n_delivered += piece.len;
            room -= piece.len;
            if room == 0 {
                room = capacity;
            }
        }
        prop_assert_eq!((packer.len(), packer.n_tokens()), (0, 0));
        match crop {
            CropRule::Carry | CropRule::Pad(LongRule::Split) => for (at, &len) in lengths.iter().enumerate() {
                prop_assert_eq!(&delivered[at], &document(at, len).ids);
            },
            CropRule::Drop | CropRule::Pad(_) => prop_assert_eq!(n_delivered as u64 + packer.n_dropped(), lengths.iter().sum::<usize>() as u64),
        }
    }
}
