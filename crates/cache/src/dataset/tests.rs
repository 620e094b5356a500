//! Trees of views, compared with plain lists.

use std::{
    collections::BTreeMap,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use proptest::prelude::*;

use super::{
    CacheStore, Dataset, DocumentLeaf, LeafLength, ListStore, MixtureRules, Pick, Store, TokenLeaf, id_type,
};
use crate::{
    BatchColumn, CacheWriter, Error, ErrorKind, Processed, Result, WriterOptions,
    fields::{self, ColumnPool, Columns, DataType, Dim, Field},
    order::{Mixture, Stop, WeightStage},
};

mod caches;
mod mixtures;

fn never() -> bool {
    false
}

/// `n` documents of one to three tokens, each of which is the document's number plus `base`.
fn tokens(base: i32, n: usize) -> Vec<Vec<i32>> {
    (0..n as i32).map(|number| vec![base + number; 1 + number as usize % 3]).collect()
}

fn list(base: i32, n: usize) -> Dataset {
    Dataset::of(Arc::new(DocumentLeaf(Arc::new(ListStore::of_tokens("ids", &tokens(base, n)).unwrap()))))
}

fn growing() -> (Arc<ListStore>, Dataset) {
    let field = Field::jagged("ids", DataType::Int32, 1);
    let store = Arc::new(ListStore::new(vec![field]));
    (store.clone(), Dataset::of(Arc::new(DocumentLeaf(store))))
}

fn append(store: &ListStore, n: usize) {
    let first = store.length().unwrap().rows as usize;
    for document in &tokens(0, first + n)[first..] {
        let bytes: Vec<u8> = document.iter().flat_map(|id| id.to_ne_bytes()).collect();
        store.append(&[(vec![document.len() as u64], &bytes)]).unwrap();
    }
}

fn rules(weights: &[f64], block: u64, stop: Stop) -> MixtureRules {
    let stages = vec![WeightStage { start: 0, weights: weights.to_vec() }];
    MixtureRules { stages, block: Some(block), stop, seed: 5 }
}

fn rows(dataset: &Dataset, epoch: u64) -> Vec<u64> {
    let mut dataset = dataset.clone();
    let length = dataset.length(epoch).unwrap();
    dataset.locate(epoch, 0..length.rows).unwrap().iter().map(|pick| pick.row).collect()
}

fn values(column: &fields::Column) -> Vec<i32> {
    let bytes = column.values.values::<u8>();
    bytes.chunks_exact(4).map(|id| i32::from_ne_bytes(id.try_into().unwrap())).collect()
}

fn read(dataset: &Dataset, positions: &[u64]) -> Columns {
    try_read(dataset, positions).unwrap()
}

fn try_read(dataset: &Dataset, positions: &[u64]) -> Result<Columns> {
    let mut dataset = dataset.clone();
    let pool = ColumnPool::new(dataset.fields()?, positions.len(), 1);
    let picks = dataset.locate(0, positions.iter().copied())?;
    dataset.read(&picks, &pool)
}

const ID_NAMES: [&str; 4] = ["int32", "int64", "uint16", "uint32"];
const INTEGERS: [DataType; 8] = [
    DataType::Int8,
    DataType::Int16,
    DataType::Int32,
    DataType::Int64,
    DataType::Uint8,
    DataType::Uint16,
    DataType::Uint32,
    DataType::Uint64,
];

/// The smallest and the largest number of a type of integers.
fn limits(dtype: DataType) -> [i128; 2] {
    let bits = 8 * dtype.bytes();
    if dtype.name().starts_with('u') {
        [0, (1 << bits) - 1]
    } else {
        [-(1 << (bits - 1)), (1 << (bits - 1)) - 1]
    }
}

fn bytes(dtype: DataType, numbers: &[i128]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()[..dtype.bytes()].to_vec()).collect()
}

fn numbers(column: &fields::Column, dtype: DataType) -> Vec<i128> {
    let number = |bytes: &[u8]| {
        let is_negative = limits(dtype)[0] < 0 && bytes[bytes.len() - 1] >= 128;
        let mut wide = [if is_negative { 255 } else { 0 }; 16];
        wide[..bytes.len()].copy_from_slice(bytes);
        i128::from_le_bytes(wide)
    };
    column.values.values::<u8>().chunks_exact(dtype.bytes()).map(number).collect()
}

proptest! {
    #[test]
    fn all_epochs_lie_within_the_bounds(
        lengths in proptest::collection::vec(1usize..60, 1..4), block in 4u64..20, all: bool, era in 1u64..9, epoch in 0u64..1000,
    ) {
        let stop = if all { Stop::AllExhausted } else { Stop::FirstExhausted };
        let source = |(number, &n): (usize, &usize)| (number.to_string(), list(0, n).permutation(3).unwrap());
        let weights = vec![1.0; lengths.len()];
        let sources = lengths.iter().enumerate().map(source).collect();
        let mixture = Dataset::mixture(sources, rules(&weights, block, stop)).unwrap();
        for mut dataset in [mixture.clone(), mixture.clone().eras(era, 1).unwrap(), mixture.permutation(2).unwrap()] {
            let leaves = dataset.lengths().unwrap();
            let (least, most) = dataset.length_bounds_of(&leaves).unwrap();
            let rows = dataset.length(epoch).unwrap().rows;
            prop_assert!(least <= rows && rows <= most, "{least} <= {rows} <= {most}");
            prop_assert!(most - least < block);
        }
        let mut plain = list(0, lengths[0]).permutation(1).unwrap();
        let leaves = plain.lengths().unwrap();
        prop_assert_eq!(plain.length_bounds_of(&leaves).unwrap(), (lengths[0] as u64, lengths[0] as u64));
    }

    /// Documents and windows, alone and in a mixture whose sources have different types, equal the values
    /// converted one by one; the first value that does not fit is named.
    #[test]
    fn integers_are_converted_or_refused(
        lengths in proptest::collection::vec(0usize..1300, 1..9), from in 0usize..8, to in 0usize..4, window in 1u64..700,
        seed: u64, odd: Option<u64>,
    ) {
        let (from, to) = (INTEGERS[from], id_type(ID_NAMES[to]).unwrap());
        let store = Arc::new(ListStore::new(vec![Field::jagged("ids", from, 1), Field::number("number", from)]));
        let flat: Vec<i128> = (0..lengths.iter().sum::<usize>()).map(|at| (at % 100) as i128).collect();
        let mut flat = flat;
        if let (Some(odd), false) = (odd, flat.is_empty()) {
            let at = (odd % flat.len() as u64) as usize;
            flat[at] = limits(from)[(odd % 2) as usize];
        }
        let mut rest = &flat[..];
        for (number, &length) in lengths.iter().enumerate() {
            let (document, behind) = rest.split_at(length);
            let (ids, number) = (bytes(from, document), bytes(from, &[number as i128]));
            store.append(&[(vec![length as u64], &ids), (vec![], &number)]).unwrap();
            rest = behind;
        }
        store.finish().unwrap();
        let documents = Dataset::of(Arc::new(DocumentLeaf(store.clone()))).with_integers(to, None);
        let order: Vec<u64> = rows(&documents.clone().permutation(seed).unwrap(), 0);
        let fits = |value: &i128| (limits(to)[0]..=limits(to)[1]).contains(value);
        match try_read(&documents, &order) {
            Ok(found) => {
                prop_assert!(flat.iter().all(fits));
                let begin = |row: usize| lengths[..row].iter().sum::<usize>();
                let expected: Vec<i128> = order.iter().flat_map(|&row| {
                    let row = row as usize;
                    flat[begin(row)..begin(row + 1)].to_vec()
                }).collect();
                prop_assert_eq!(numbers(&found.columns[0], to), expected);
                let order: Vec<i128> = order.iter().map(|&row| i128::from(row)).collect();
                prop_assert_eq!(numbers(&found.columns[1], to), order);
            }
            Err(error) => {
                let at = flat.iter().position(|value| !fits(value)).unwrap();
                let row = (0..lengths.len()).find(|&row| lengths[..=row].iter().sum::<usize>() > at).unwrap();
                let inner = at - lengths[..row].iter().sum::<usize>();
                let expected = format!("{}, value {inner} of \"ids\" in row {row}, does not fit {}", flat[at], to.name());
                prop_assert!(error.message.starts_with(&expected), "{} {expected}", error.message);
                prop_assert_eq!(error.kind, ErrorKind::Schema);
            }
        }
        let n = flat.len() as u64 / window;
        if n == 0 || !flat.iter().all(fits) {
            return Ok(());
        }
        // Windows of two sources with different types, beside each other in the batch.
        let typed = |dtype| {
            let leaf = TokenLeaf::new(store.clone(), "ids", window, true).unwrap();
            Dataset::of(Arc::new(leaf)).with_integers(dtype, Some("ids"))
        };
        let sources = vec![("a".to_owned(), typed(DataType::Int64)), ("b".to_owned(), typed(to))];
        let mixture = Dataset::mixture(sources, rules(&[1.0, 1.0], 4, Stop::Restart)).unwrap();
        let mut mixture = mixture.with_integers(to, Some("ids"));
        prop_assert_eq!(mixture.fields().unwrap()[1].dtype, DataType::Int32);
        let picks = mixture.locate(0, 0..8).unwrap();
        let found = read(&mixture, &(0..8).collect::<Vec<_>>());
        let expected: Vec<i128> = picks.iter().flat_map(|pick| {
            flat[(pick.row * window) as usize..((pick.row + 1) * window) as usize].to_vec()
        }).collect();
        prop_assert_eq!(numbers(&found.columns[0], to), expected);
    }

    #[test]
    fn l11_a_permutation_has_each_row_once_and_an_order_for_each_epoch(seed: u64, n in 1usize..700) {
        let dataset = list(0, n).permutation(seed).unwrap();
        let (mut zero, one) = (rows(&dataset, 0), rows(&dataset, 1));
        prop_assert!(n < 8 || zero != one);
        zero.sort_unstable();
        prop_assert_eq!(zero, (0..n as u64).collect::<Vec<_>>());
    }

    /// Copies are in storage order, each row as often as it should be, rounded; shuffles and mixtures take
    /// them as rows of their own.
    #[test]
    fn rows_with_weights_come_as_often_as_they_should(
        seed: u64, epoch in 0u64..1000, weights in proptest::collection::vec(0u32..20, 1..300), size in 1u64..700, era in 1u64..50,
    ) {
        let total: u64 = weights.iter().map(|&weight| u64::from(weight)).sum();
        prop_assume!(total > 0);
        let given: Vec<f64> = weights.iter().map(|&weight| f64::from(weight) / 7.0).collect();
        let plain = list(0, weights.len());
        let weighted = plain.clone().weighted(&given, Some(size), seed).unwrap();
        let copies = rows(&weighted, epoch);
        prop_assert_eq!(copies.len() as u64, size);
        prop_assert!(copies.is_sorted());
        for (row, &weight) in weights.iter().enumerate() {
            let n = copies.iter().filter(|&&copy| copy == row as u64).count() as u64;
            let expected = u64::from(weight) * size;
            prop_assert!(n == expected / total || n == expected.div_ceil(total), "{n} of {expected} / {total}");
        }
        let leaves = weighted.lengths().unwrap();
        prop_assert_eq!(weighted.clone().length_bounds_of(&leaves).unwrap(), (size, size));
        // A shuffle of the copies is one of a plain dataset of as many rows.
        for shuffled in [|of: Dataset, _: u64| of.permutation(9), |of: Dataset, era| of.eras(era, 9)] {
            let expected: Vec<u64> =
                rows(&shuffled(list(0, size as usize), era).unwrap(), epoch).iter().map(|&at| copies[at as usize]).collect();
            prop_assert_eq!(rows(&shuffled(weighted.clone(), era).unwrap(), epoch), expected);
        }
        let sources = vec![("a".to_owned(), weighted.clone()), ("b".to_owned(), plain)];
        let mut mixture = Dataset::mixture(sources, rules(&[1.0, 1.0], 4, Stop::Restart)).unwrap();
        let picks = mixture.locate(0, 0..4 * size).unwrap();
        let drawn: Vec<u64> = picks.iter().filter(|pick| pick.leaf == 0).map(|pick| pick.row).collect();
        let passes: Vec<u64> = (0..2).flat_map(|pass| rows(&weighted, pass)).collect();
        prop_assert_eq!(drawn, passes);
        // Equal weights are none.
        let equal = list(0, weights.len()).weighted(&vec![0.3; weights.len()], None, seed).unwrap();
        prop_assert!(rows(&equal, epoch).into_iter().eq(0..weights.len() as u64));
    }

    #[test]
    fn l12_eras_keep_to_themselves(seed: u64, n in 1usize..700, length in 1u64..100) {
        let dataset = list(0, n).eras(length, seed).unwrap();
        for epoch in 0..2 {
            for (number, era) in rows(&dataset, epoch).chunks(length as usize).enumerate() {
                let mut era = era.to_vec();
                era.sort_unstable();
                let begin = number as u64 * length;
                prop_assert_eq!(era, (begin..(n as u64).min(begin + length)).collect::<Vec<_>>());
            }
        }
    }

    /// With blocks and batches of any size: exact counts in each block, no row twice before a source is
    /// exhausted.
    #[test]
    fn l13_mixtures_are_exact_and_without_replacement(
        seed: u64, block in 8u64..60, batch in 1usize..50, sizes in proptest::collection::vec(1usize..90, 2..4),
    ) {
        let sources = sizes.iter().map(|&n| list(0, n).permutation(seed).unwrap());
        let named = sources.enumerate().map(|(n, source)| (format!("s{n}"), source)).collect();
        let weights = vec![1.0; sizes.len()];
        let mut dataset = Dataset::mixture(named, rules(&weights, block, Stop::Restart)).unwrap();
        prop_assert!(dataset.length(0).unwrap().is_endless());
        let n = 6 * block;
        let positions: Vec<u64> = (0..n).collect();
        let mut picks = Vec::new();
        for part in positions.chunks(batch) {
            picks.extend(dataset.locate(0, part.iter().copied()).unwrap());
        }
        for one in picks.chunks(block as usize) {
            let counts: Vec<_> = (0..sizes.len()).map(|leaf| one.iter().filter(|pick| pick.leaf == leaf).count() as u64).collect();
            let (least, most) = (block / sizes.len() as u64, block.div_ceil(sizes.len() as u64));
            prop_assert!(counts.iter().all(|count| (least..=most).contains(count)), "{counts:?}");
        }
        for (leaf, &size) in sizes.iter().enumerate() {
            let drawn: Vec<_> = picks.iter().filter(|pick| pick.leaf == leaf).map(|pick| pick.row).collect();
            for pass in drawn.chunks(size) {
                let mut pass = pass.to_vec();
                pass.sort_unstable();
                pass.dedup();
                prop_assert_eq!(pass.len(), size.min(pass.len()));
            }
            for pass in drawn.chunks_exact(size) {
                let mut pass = pass.to_vec();
                pass.sort_unstable();
                prop_assert_eq!(pass, (0..size as u64).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn positions_are_had_in_any_order(seed: u64, wanted in proptest::collection::vec(0u64..300, 1..40)) {
        let sources = vec![("a".into(), list(0, 70)), ("b".into(), list(0, 90).eras(8, seed).unwrap())];
        let rules = rules(&[2.0, 1.0], 12, Stop::Restart);
        let mut dataset = Dataset::mixture(sources, rules).unwrap().eras(50, 1).unwrap();
        let all = dataset.locate(0, 0..300).unwrap();
        let found = dataset.locate(0, wanted.iter().copied()).unwrap();
        let expected: Vec<_> = wanted.iter().map(|&position| all[position as usize]).collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn l5_rows_come_as_they_are_asked_for(wanted in proptest::collection::vec(0u64..50, 1..30)) {
        let columns = read(&list(100, 50), &wanted);
        let documents = tokens(100, 50);
        let expected: Vec<i32> = wanted.iter().flat_map(|&row| documents[row as usize].clone()).collect();
        prop_assert_eq!(values(&columns.columns[0]), expected);
        let offsets = columns.columns[0].offsets.as_ref().unwrap();
        prop_assert_eq!(offsets.len(), wanted.len() + 1);
        for (&row, ends) in wanted.iter().zip(offsets.windows(2)) {
            prop_assert_eq!((ends[1] - ends[0]) as usize, documents[row as usize].len());
        }
    }

    #[test]
    fn l10_windows_are_the_concatenation(
        lengths in proptest::collection::vec(0usize..9, 1..40), length in 1u64..12, wanted in proptest::collection::vec(0usize..1000, 1..20),
    ) {
        let documents: Vec<Vec<i32>> = lengths.iter().enumerate().map(|(n, &len)| vec![n as i32; len]).collect();
        let flat = documents.concat();
        let store = Arc::new(ListStore::of_tokens("ids", &documents).unwrap());
        let mut dataset = Dataset::of(Arc::new(TokenLeaf::new(store, "ids", length, true).unwrap()));
        let n = flat.len() / length as usize;
        prop_assert_eq!(dataset.length(0).unwrap(), LeafLength { rows: n as u64, is_final: true });
        if n == 0 {
            return Ok(());
        }
        let wanted: Vec<u64> = wanted.iter().map(|row| (row % n) as u64).collect();
        let columns = read(&dataset, &wanted);
        for (nth, row) in wanted.iter().enumerate() {
            let cut = |column| values(column)[nth * length as usize..(nth + 1) * length as usize].to_vec();
            let window = cut(&columns.columns[0]);
            prop_assert_eq!(&window, &flat[(row * length) as usize..((row + 1) * length) as usize]);
            // The number of a document in its window: how many others began before.
            let mut order = window.clone();
            order.dedup();
            let ids: Vec<i32> = window.iter().map(|id| order.iter().position(|other| other == id).unwrap() as i32).collect();
            prop_assert_eq!(cut(&columns.columns[1]), ids);
        }
    }
}

#[test]
fn l9_what_is_there_grows_and_never_shrinks() {
    let (store, documents) = growing();
    let mut eras = documents.clone().eras(8, 3).unwrap();
    let mut permutation = documents.clone().permutation(3).unwrap();
    let sources = vec![("grows".into(), documents), ("small".into(), list(0, 4).permutation(1).unwrap())];
    let mut mixture = Dataset::mixture(sources, rules(&[0.5, 0.5], 4, Stop::Restart)).unwrap();
    let mut before = [0; 3];
    let mut seen: [BTreeMap<u64, Pick>; 3] = Default::default();
    for step in 0..12 {
        append(&store, 3);
        let documents = 3 * (step + 1);
        let lengths = [&mut eras, &mut permutation, &mut mixture].map(|dataset| {
            let length = dataset.length(0).unwrap();
            assert!(!length.is_final);
            length.rows
        });
        // Full eras only; none; up to the end of the source that still grows.
        assert_eq!(lengths[0], documents / 8 * 8);
        assert_eq!(lengths[1], 0);
        assert!(
            lengths[2] + 3 >= 2 * documents && lengths[2] <= 2 * documents + 2,
            "{lengths:?} of {documents}"
        );
        for (n, dataset) in [&mut eras, &mut permutation, &mut mixture].into_iter().enumerate() {
            assert!(lengths[n] >= before[n]);
            for position in 0..lengths[n] {
                let [pick] = dataset.locate(0, [position]).unwrap()[..] else { unreachable!() };
                assert_eq!(*seen[n].entry(position).or_insert(pick), pick, "position {position} moved");
            }
            let error = dataset.locate(0, [lengths[n]]).unwrap_err();
            assert!(error.kind == ErrorKind::Index && error.message.contains("so far"), "{error}");
        }
        before = lengths;
    }
    store.finish().unwrap();
    assert_eq!(eras.length(0).unwrap(), LeafLength { rows: 36, is_final: true });
    assert_eq!(permutation.length(0).unwrap(), LeafLength { rows: 36, is_final: true });
    assert!(mixture.length(0).unwrap().is_endless());
    for (n, dataset) in [&mut eras, &mut permutation, &mut mixture].into_iter().enumerate() {
        for (&position, pick) in &seen[n] {
            assert_eq!(dataset.locate(0, [position]).unwrap(), [*pick]);
        }
    }
}

#[test]
fn l9_weights_wait_for_the_final_length() {
    let (store, documents) = growing();
    let weights: Vec<f64> = (0..30).map(f64::from).collect();
    let mut weighted = documents.clone().weighted(&weights, Some(100), 3).unwrap();
    let mut wrong = documents.weighted(&weights[1..], None, 3).unwrap();
    append(&store, 20);
    assert_eq!(weighted.length(0).unwrap(), LeafLength { rows: 0, is_final: false });
    let writer = thread::spawn(move || {
        append(&store, 10);
        store.finish().unwrap();
    });
    assert_eq!(weighted.wait(0, 1, &never).unwrap(), LeafLength { rows: 100, is_final: true });
    writer.join().unwrap();
    let expected = list(0, 30).weighted(&weights, Some(100), 3).unwrap();
    assert_eq!(rows(&weighted, 4), rows(&expected, 4));
    let error = wrong.length(0).unwrap_err();
    assert_eq!(error.message, "there are 29 weights for 30 rows, must be one for each row");
}

#[test]
fn weights_are_those_of_stored_rows() {
    let message = |made: Result<Dataset>| made.unwrap_err().message;
    for (weights, n, told) in [
        (&[1.0, -2.0, 1.0][..], None, "the weight of row 1 is -2, must be a number from 0 on"),
        (&[1.0, 1.0, f64::NAN], None, "the weight of row 2 is NaN"),
        (&[f64::INFINITY, 1.0, 1.0], None, "the weight of row 0 is inf"),
        (&[0.0; 3], None, "no row of 3 has a weight above 0"),
        (&[1.0; 4], None, "there are 4 weights for 3 rows"),
        (&[1.0; 3], Some(0), "epoch_size is 0, must be 1 to"),
    ] {
        let found = message(list(0, 3).weighted(weights, n, 0));
        assert!(found.starts_with(told), "{found}");
    }
    let mixture = vec![("a".to_owned(), list(0, 3))];
    for moving in [
        list(0, 3).permutation(1).unwrap(),
        list(0, 3).eras(2, 1).unwrap(),
        list(0, 3).weighted(&[1.0; 3], None, 1).unwrap(),
        Dataset::mixture(mixture, rules(&[1.0], 3, Stop::FirstExhausted)).unwrap(),
    ] {
        assert!(
            message(moving.clone().weighted(&[1.0; 3], None, 1)).contains("weigh first, and shuffle or mix")
        );
        assert!(moving.numbers("ids", &never).unwrap_err().message.contains("weigh first"));
    }
    // A state of other weights, another size or another seed is another dataset's.
    let described = |weights: &[f64], n, seed| list(0, 3).weighted(weights, n, seed).unwrap().describe();
    let all = [
        described(&[1.0, 2.0, 3.0], None, 1),
        described(&[1.0, 2.0, 4.0], None, 1),
        described(&[1.0, 2.0, 3.0], Some(4), 1),
        described(&[1.0, 2.0, 3.0], None, 2),
    ];
    assert!((1..all.len()).all(|i| !all[..i].contains(&all[i])), "{all:?}");
    assert_eq!(all[0], described(&[2.0, 4.0, 6.0], None, 1));
}

#[test]
fn l9_l12_waiting_rounds_up_and_gives_up() {
    let (store, documents) = growing();
    let mut eras = documents.clone().eras(8, 3).unwrap();
    append(&store, 7);
    let given_up = eras.wait(0, 1, &|| true).unwrap();
    assert_eq!(given_up, LeafLength { rows: 0, is_final: false });
    let (go_on, goes_on) = mpsc::channel();
    let writer = thread::spawn({
        let store = store.clone();
        move || {
            thread::sleep(Duration::from_millis(5));
            append(&store, 1);
            goes_on.recv().unwrap();
            for _ in 1..10 {
                thread::sleep(Duration::from_millis(5));
                append(&store, 1);
            }
            thread::sleep(Duration::from_millis(20));
            store.finish().unwrap();
        }
    });
    // One row needs the whole era.
    assert_eq!(eras.wait(0, 1, &never).unwrap().rows, 8);
    go_on.send(()).unwrap();
    let mut permutation = documents.clone().permutation(3).unwrap();
    assert_eq!(permutation.wait(0, 1, &never).unwrap(), LeafLength { rows: 17, is_final: true });
    // More than the final length.
    assert_eq!(eras.wait(0, 1000, &never).unwrap(), LeafLength { rows: 17, is_final: true });
    writer.join().unwrap();
}
