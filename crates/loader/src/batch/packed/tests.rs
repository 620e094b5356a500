//! Tests of the packer's collator.

use super::*;
use crate::{
    batch::{Extras, LossPlan, SourceMix, token_fields},
    fields::DataType,
    pack::LongRule,
};

fn plan(buffer_size: usize, unit: usize, crop: CropRule) -> PackPlan {
    PackPlan {
        seq_len: 7,
        bos: 0,
        eos: None,
        crop,
        pad: 0,
        buffer_size,
        unit,
        is_mixed: false,
        groups: vec![0, 5, 5, 12].into(),
        id_type: DataType::Int64,
        extras: Extras::default(),
        loss: LossPlan::default(),
        mix: SourceMix::one(),
        max_documents: None,
        pad_multiple: 1,
        is_paired: false,
    }
}

fn collate(plan: &PackPlan, size: usize, n_streams: usize) -> TokenCollate {
    let pool = ColumnPool::new(token_fields(plan).into(), size, 1);
    let batches = BatchSizes { size, n_streams, ahead: 1 };
    let meters = (Arc::default(), plan.mix.meters());
    TokenCollate::new(plan.clone(), batches, pool.into(), Arc::new(ArrayQueue::new(4)), meters)
}

/// A document of `len` tokens, BOS included; each id contains the row and the token's index.
fn document(row: u64, len: u32) -> TokenExample {
    TokenExample {
        ids: std::iter::once(0).chain((1..len).map(|at| 100 * row as u32 + at)).collect(),
        weights: Vec::new(),
        row,
        epoch: 0,
        second: 0,
    }
}

fn feed(collate: &mut TokenCollate, stream: usize, documents: &mut impl Iterator<Item = TokenExample>) {
    while collate.source_wanted(stream).unwrap().is_some() {
        match documents.next() {
            Some(document) => collate.put(BatchSlot { stream, row: 0, draw: 0 }, document).unwrap(),
            None => collate.end(stream),
        }
    }
}

fn halves(batch: &TokenBatch) -> (Vec<i64>, Vec<i64>) {
    let ids = batch.columns.columns[0].values.values::<i64>();
    let (inputs, targets) = ids.split_at(ids.len() / 2);
    (inputs.to_vec(), targets.to_vec())
}

#[test]
fn the_worked_example() {
    // Capacity 8, documents of 4, 3, 6 and 2: the 6 and the 2, then the 4, the 3 and one token of the
    // next.
    let mut collate = collate(&plan(4, 4, CropRule::Drop), 2, 1);
    let mut documents = [4, 3, 6, 2, 9, 9, 9, 9].iter().zip(1..).map(|(&len, row)| document(row, len));
    feed(&mut collate, 0, &mut documents);
    assert_eq!(collate.rows(), 2);
    let batch = collate.take(2);
    let (inputs, targets) = halves(&batch);
    assert_eq!(inputs, [0, 301, 302, 303, 304, 305, 0, 0, 101, 102, 103, 0, 201, 202]);
    assert_eq!(targets, [301, 302, 303, 304, 305, 0, 401, 101, 102, 103, 0, 201, 202, 0]);
    let part = |row, column, len, document| DocumentPart { row, column, len, document, start: 1 };
    assert_eq!(
        batch.parts,
        [part(0, 0, 6, 3), part(0, 6, 2, 4), part(1, 0, 4, 1), part(1, 4, 3, 2), part(1, 7, 1, 5)]
    );
    let found = collate.meter.read();
    assert_eq!((found.documents, found.tokens, found.delivered, found.dropped), (3, 24, 16, 11));
    // All 4 + 3 + 6 + 2 + 4 * 9 tokens: in rows, held or dropped.
    assert_eq!(found.tokens + found.delivered + found.dropped, 51);
    assert!(found.bytes > 4 * 24);
    assert_eq!(batch.packing, found);
}

#[test]
fn what_is_left_at_the_end_is_dropped() {
    // Of 4 + 3 + 6 + 2 + 9 tokens and the BOS of a rest, a row of 8 is in a batch; the others are held, or in
    // rows that make none.
    for (crop, rests) in [(CropRule::Drop, 0), (CropRule::Carry, 1), (CropRule::Pad(LongRule::Split), 1)] {
        let mut collate = collate(&plan(1, 1, crop), 1, 1);
        let lens = [4, 3, 6, 2, 9];
        let mut documents = lens.iter().zip(1..).map(|(&len, row)| document(row, len));
        feed(&mut collate, 0, &mut documents);
        let made = collate.take(1).packing;
        feed(&mut collate, 0, &mut documents);
        collate.finish();
        let found = collate.meter.read();
        assert_eq!((found.documents, found.tokens, found.delivered), (0, 0, made.delivered), "{crop:?}");
        let all = lens.iter().sum::<u32>() as u64;
        let read = all - documents.map(|one| one.ids.len() as u64).sum::<u64>();
        assert!((read..=read + rests).contains(&(found.delivered + found.dropped)), "{crop:?}: {found:?}");
        assert_eq!(collate.meter.take_tail(), found.dropped - made.dropped);
        assert_eq!(collate.meter.take_tail(), 0);
        assert_eq!(collate.sources[0].read().dropped, found.dropped);
    }
}

#[test]
fn a_padded_row() {
    let extras = Extras { doc_ids: true, position_ids: true, ..Extras::default() };
    let pad = PackPlan { extras, pad: 77, ..plan(2, 1, CropRule::Pad(LongRule::Skip)) };
    let mut collate = collate(&pad, 4, 1);
    let mut documents = [4, 3, 9, 8, 7, 2].iter().zip(1..).map(|(&len, row)| document(row, len));
    feed(&mut collate, 0, &mut documents);
    assert_eq!(collate.rows(), 4);
    let batch = collate.take(4);
    let (inputs, targets) = halves(&batch);
    let rows = |half: &[i64]| half.chunks(7).map(<[i64]>::to_vec).collect::<Vec<_>>();
    assert_eq!(
        rows(&inputs),
        [
            [0, 101, 102, 103, 0, 201, 202],
            [0, 401, 402, 403, 404, 405, 406],
            [0, 501, 502, 503, 504, 505, 506],
            [0, 601, 77, 77, 77, 77, 77],
        ]
    );
    assert_eq!(
        rows(&targets),
        [
            [101, 102, 103, 0, 201, 202, -100],
            [401, 402, 403, 404, 405, 406, 407],
            [501, 502, 503, 504, 505, 506, -100],
            [601, -100, -100, -100, -100, -100, -100],
        ]
    );
    let [_, doc_ids, position_ids] = &batch.columns.columns[..] else { panic!("{batch:?}") };
    assert_eq!(doc_ids.values.values::<i32>()[21..], [0, 0, 1, 1, 1, 1, 1]);
    assert_eq!(position_ids.values.values::<i32>()[21..], [0, 1, 0, 1, 2, 3, 4]);
    let padding: Vec<_> = batch
        .parts
        .iter()
        .filter(|part| part.document == DocumentPart::PADDING)
        .map(|part| (part.row, part.column, part.len))
        .collect();
    assert_eq!(padding, [(0, 7, 1), (2, 7, 1), (3, 2, 6)]);
    let Packing { documents, tokens, delivered, dropped, padded, .. } = collate.meter.read();
    assert_eq!((documents, tokens, delivered, dropped, padded), (0, 0, 24, 9, 8));
}

#[test]
fn targets_that_are_ignored() {
    let loss = LossPlan { is_masked: true, is_weighted: true, across: false };
    for (crop, rows) in [(CropRule::Pad(LongRule::Split), 3), (CropRule::Carry, 2)] {
        let mut collate = collate(&PackPlan { loss, ..plan(3, 1, crop) }, rows, 1);
        let example = |row: u64, len: u32, masked: &[usize]| {
            let mut example = document(row, len);
            example.weights = (0..len).map(|at| (10 * row as u32 + at) as f32).collect();
            masked.iter().for_each(|&at| example.ids[at] |= MASKED);
            example
        };
        let documents = [example(1, 4, &[0, 2]), example(2, 3, &[0]), example(3, 12, &[0, 1, 9])];
        feed(&mut collate, 0, &mut documents.into_iter());
        assert_eq!(collate.rows(), rows);
        let batch = collate.take(rows);
        let (inputs, targets) = halves(&batch);
        let weights = batch.columns.columns[1].values.values::<f32>();
        let row = |at: usize| {
            (&inputs[7 * at..7 * at + 7], &targets[7 * at..7 * at + 7], &weights[7 * at..7 * at + 7])
        };
        // The second has the weight of its target, the first is masked; then a new document begins.
        let first = (&[0, 101, 102, 103, 0, 201, 202][..], [101, -100, 103, -100, 201, 202]);
        let (inputs, targets, weights) = row(0);
        assert_eq!((inputs, &targets[..6]), (first.0, &first.1[..]));
        assert_eq!(weights[..6], [11.0, 0.0, 13.0, 0.0, 21.0, 22.0]);
        assert_eq!((targets[6], weights[6]), (-100, 0.0));
        let (inputs, targets, weights) = row(1);
        assert_eq!(inputs, [0, 301, 302, 303, 304, 305, 306]);
        assert_eq!(targets, [-100, 302, 303, 304, 305, 306, 307]);
        assert_eq!(weights, [0.0, 32.0, 33.0, 34.0, 35.0, 36.0, 37.0]);
        if rows == 3 {
            let (inputs, targets, weights) = row(2);
            assert_eq!(inputs, [0, 308, 309, 310, 311, 0, 0]);
            assert_eq!(targets, [308, -100, 310, 311, -100, -100, -100]);
            assert_eq!(weights, [38.0, 0.0, 40.0, 41.0, 0.0, 0.0, 0.0]);
        }
    }
}

#[test]
fn documents_padded_to_a_multiple() {
    let extras = Extras { doc_ids: true, position_ids: true, ..Extras::default() };
    let four = PackPlan { seq_len: 8, pad_multiple: 4, extras, pad: 77, ..plan(3, 1, CropRule::Drop) };
    let mut collate = collate(&four, 3, 1);
    let mut documents = [4, 3, 9, 6].iter().zip(1..).map(|(&len, row)| document(row, len));
    feed(&mut collate, 0, &mut documents);
    assert_eq!(collate.rows(), 3);
    let batch = collate.take(3);
    let (inputs, targets) = halves(&batch);
    let rows = |half: &[i64]| half.chunks(8).map(<[i64]>::to_vec).collect::<Vec<_>>();
    assert_eq!(
        rows(&inputs),
        [
            [0, 301, 302, 303, 304, 305, 306, 307],
            [0, 401, 402, 403, 404, 405, 77, 77],
            [0, 101, 102, 103, 0, 201, 202, 77],
        ]
    );
    assert_eq!(
        rows(&targets),
        [
            [301, 302, 303, 304, 305, 306, 307, 308],
            [401, 402, 403, 404, 405, -100, -100, -100],
            [101, 102, 103, -100, 201, 202, -100, -100],
        ]
    );
    let [_, doc_ids, position_ids] = &batch.columns.columns[..] else { panic!("{batch:?}") };
    assert_eq!(doc_ids.values.values::<i32>()[8..], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1]);
    assert_eq!(position_ids.values.values::<i32>()[8..], [0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 0, 1, 2, 3]);
    assert_eq!((batch.packing.delivered, batch.packing.padded), (22, 5));
}

#[test]
fn more_documents_than_a_batch_may_have() {
    for (most, is_good) in [(2, true), (1, false)] {
        let mut collate =
            collate(&PackPlan { max_documents: Some(most), ..plan(4, 4, CropRule::Drop) }, 1, 1);
        let mut documents = [4, 3, 6, 2].iter().zip(1..).map(|(&len, row)| document(row, len));
        feed(&mut collate, 0, &mut documents);
        let error = collate.complete(1).err().map(|error| error.message);
        assert_eq!(error.is_none(), is_good, "{error:?}");
        assert!(error.is_none_or(|error| error.contains("batch 0 has 2 documents, and max_documents is 1")));
    }
}

#[test]
fn documents_that_are_all_too_long() {
    let mut collate = collate(&plan(2, 1, CropRule::Pad(LongRule::Skip)), 1, 1);
    let mut put = |row| {
        let slot = BatchSlot { stream: 0, row: 0, draw: 0 };
        collate.put(slot, document(row, 9)).map_err(|error| error.message)
    };
    assert!((0..12).all(|row| put(row).is_ok()));
    assert!(put(0).unwrap_err().contains("all documents are longer than a row, such as one with 9 tokens"));
}

#[test]
fn what_is_told_beside() {
    let extras = Extras { doc_ids: true, position_ids: true, ..Extras::default() };
    let mut collate = collate(&PackPlan { extras, ..plan(4, 4, CropRule::Drop) }, 2, 1);
    let mut documents = [4, 3, 6, 2, 9, 9, 9, 9].iter().zip(1..).map(|(&len, row)| document(row, len));
    feed(&mut collate, 0, &mut documents);
    let batch = collate.take(2);
    // The fifth document is only a target in the second row.
    let [_, doc_ids, position_ids] = &batch.columns.columns[..] else { panic!("{batch:?}") };
    assert_eq!(doc_ids.values.values::<i32>(), [0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 1, 1]);
    assert_eq!(position_ids.values.values::<i32>(), [0, 1, 2, 3, 4, 5, 0, 0, 1, 2, 3, 0, 1, 2]);
}

#[test]
fn units_end_with_row_groups() {
    // Groups of rows 0..5, none, 5..12 and from 12 on; units of 3.
    let mut collate = collate(&plan(1, 3, CropRule::Drop), 1, 1);
    let ends = |collate: &mut TokenCollate, row| {
        collate.count(0, row);
        collate.lanes[0].unit == 0
    };
    let found: Vec<u64> = (0..20).filter(|&row| ends(&mut collate, row)).collect();
    assert_eq!(found, [2, 4, 7, 10, 11, 14, 17]);
    collate.lanes[0].unit = 0;
    collate.plan.is_mixed = true;
    let found: Vec<u64> = (0..8).filter(|&row| ends(&mut collate, row)).collect();
    assert_eq!(found, [2, 5]);
}

#[test]
fn the_end_of_a_stream_leaves_a_short_batch() {
    let mut collate = collate(&plan(3, 1, CropRule::Carry), 4, 2);
    // Two streams of two rows each: 9 tokens fill one row of 8, 20 fill two.
    feed(&mut collate, 0, &mut [document(1, 4), document(2, 5)].into_iter());
    feed(&mut collate, 1, &mut [document(3, 10), document(4, 10)].into_iter());
    assert_eq!(collate.rows(), 3);
    let batch = collate.take(3);
    let (inputs, targets) = halves(&batch);
    assert_eq!((inputs.len(), targets.len()), (21, 21));
    assert_eq!(inputs[..7], [0, 201, 202, 203, 204, 0, 101]);
    assert_eq!(targets[..7], [201, 202, 203, 204, 0, 101, 102]);
    assert_eq!(inputs[7..14], [0, 301, 302, 303, 304, 305, 306]);
    assert_eq!(targets[13], 307);
    assert_eq!(batch.parts.iter().map(|part| part.row).max(), Some(2));
    assert!(batch.parts.iter().all(|part| part.document < 5));
    feed(&mut collate, 0, &mut std::iter::empty());
    feed(&mut collate, 1, &mut std::iter::empty());
    assert_eq!(collate.rows(), 0);
}

#[test]
fn what_is_held_comes_back() {
    for crop in [CropRule::Drop, CropRule::Carry, CropRule::Pad(LongRule::Split)] {
        let plan = plan(5, 3, crop);
        let lengths = [3, 9, 30, 2, 5, 1, 8, 8, 17, 4, 2, 6, 1, 12, 7, 3, 40, 2, 9, 9, 1, 5];
        let document = |row: u64| document(row, lengths[row as usize % lengths.len()]);
        let mut one = collate(&plan, 2, 1);
        let mut stream = (0..).map(document);
        for _ in 0..20 {
            feed(&mut one, 0, &mut stream);
            one.take(2);
            let held = one.held(0);
            let mut other = collate(&plan, 2, 1);
            for &held in &held {
                other.hold(0, held, document(held.row)).unwrap();
            }
            assert_eq!(other.held(0), held);
            let read = one.meter.read().documents as usize;
            assert_eq!(read, held.len());
            let drain = |collate: &mut TokenCollate| {
                collate.end(0);
                let mut rows = Vec::new();
                while collate.wants().unwrap().is_none() && collate.rows() == 2 {
                    rows.push(halves(&collate.take(2)));
                }
                rows
            };
            let mut copy = collate(&plan, 2, 1);
            for &held in &held {
                copy.hold(0, held, document(held.row)).unwrap();
            }
            assert_eq!(drain(&mut other), drain(&mut copy));
        }
    }
}

#[test]
fn a_state_of_other_documents_is_refused() {
    let mut collate = collate(&plan(5, 3, CropRule::Carry), 2, 1);
    for (used, len, good) in
        [(0, 4, false), (1, 1, true), (1, 4, true), (3, 4, true), (4, 4, false), (9, 4, false)]
    {
        let held = CarriedRecord { row: 1, used, epoch: 0 };
        assert_eq!(collate.hold(0, held, document(1, len)).is_ok(), good, "{used} of {len}");
    }
}

/// A pair of documents of these lengths.
fn pair(row: u64, lens: [u32; 2]) -> TokenExample {
    let [mut first, second] = lens.map(|len| document(row, len).ids);
    let begin = first.len();
    first.extend(second);
    TokenExample { ids: first, weights: Vec::new(), row, epoch: 0, second: begin }
}

#[test]
fn both_of_a_pair_have_a_row() {
    let extras = Extras { doc_ids: true, ..Extras::default() };
    for rule in [LongRule::Skip, LongRule::Cut] {
        let pairs =
            PackPlan { is_paired: true, extras, pad: 77, seq_len: 4, ..plan(1, 1, CropRule::Pad(rule)) };
        let mut collate = collate(&pairs, 2, 1);
        // The second has too many tokens, but for a cut; together no more than two rows have.
        let mut documents = [[3, 2], [2, 7], [5, 4]].into_iter().zip(1..).map(|(lens, row)| pair(row, lens));
        feed(&mut collate, 0, &mut documents);
        assert_eq!(collate.rows(), 2);
        let batch = collate.take(2);
        let (inputs, targets) = halves(&batch);
        let dropped = match rule {
            LongRule::Skip => {
                assert_eq!(inputs, [0, 101, 102, 77, 0, 301, 302, 303, 0, 101, 77, 77, 0, 301, 302, 303]);
                assert_eq!(targets[..8], [101, 102, -100, -100, 301, 302, 303, 304]);
                assert_eq!(targets[8..], [101, -100, -100, -100, 301, 302, 303, -100]);
                assert_eq!(batch.packing.padded, 2 + 3 + 1);
                9
            }
            _ => {
                assert_eq!(inputs, [0, 101, 102, 77, 0, 201, 77, 77, 0, 101, 77, 77, 0, 201, 202, 203]);
                assert_eq!(targets[12..], [201, 202, 203, 204]);
                2
            }
        };
        let ids = batch.columns.columns[1].values.values::<i32>();
        assert_eq!(ids.iter().filter(|&&id| id == 1).count(), inputs.iter().filter(|&&id| id == 77).count());
        assert_eq!(batch.packing.dropped, dropped);
        assert_eq!(batch.packing.delivered + batch.packing.padded, 20);
        let rows: Vec<_> = batch.parts.iter().map(|part| (part.row, part.column)).collect();
        assert!(rows.is_sorted(), "{rows:?}");
        if rule == LongRule::Skip {
            continue;
        }
        // A last batch of one pair, and a pair of which one has no target.
        let mut masked = pair(7, [3, 3]);
        masked.ids[4..].iter_mut().for_each(|id| *id |= MASKED);
        collate.put(BatchSlot { stream: 0, row: 0, draw: 0 }, pair(3, [2, 2])).unwrap();
        collate.put(BatchSlot { stream: 0, row: 0, draw: 0 }, masked).unwrap();
        collate.end(0);
        feed(&mut collate, 0, &mut std::iter::empty());
        assert_eq!(collate.rows(), 1);
        let batch = collate.take(1);
        assert_eq!(halves(&batch).0, [0, 301, 77, 77, 0, 301, 77, 77]);
        assert_eq!((batch.columns.rows, batch.packing.dropped), (1, 2 + 6));
    }
}
