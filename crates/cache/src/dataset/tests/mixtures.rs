//! Mixtures: their ends, their weights, and the fields of their sources.

use super::*;

#[test]
fn a_wait_of_a_mixture_ends() {
    for stop in [Stop::Restart, Stop::FirstExhausted, Stop::AllExhausted] {
        for rows in [1, 5, 16, 17, 40] {
            let (store, documents) = growing();
            let sources = vec![("grows".into(), documents), ("small".into(), list(0, 6))];
            let mut mixture = Dataset::mixture(sources, rules(&[0.75, 0.25], 8, stop)).unwrap();
            let writer = thread::spawn(move || {
                for _ in 0..50 {
                    append(&store, 1);
                    thread::sleep(Duration::from_micros(200));
                }
                store.finish().unwrap();
            });
            let length = mixture.wait(0, rows, &never).unwrap();
            assert!(length.rows >= rows || length.is_final, "{stop:?} {rows}: {length:?}");
            mixture.locate(0, 0..rows.min(length.rows)).unwrap();
            writer.join().unwrap();
            let end = mixture.length(0).unwrap();
            assert!(end.is_final && end.rows >= length.rows, "{stop:?} {rows}: {length:?}, {end:?}");
        }
    }
}

#[test]
fn l13_where_a_mixture_ends() {
    let make = |stop| {
        let sources = vec![("a".into(), list(0, 10)), ("b".into(), list(0, 3))];
        let mut mixture = Dataset::mixture(sources, rules(&[0.5, 0.5], 2, stop)).unwrap();
        mixture.length(0).unwrap()
    };
    assert!(make(Stop::Restart).is_endless());
    // The third row of b is in the third block, the tenth of a in the tenth.
    assert!((5..=6).contains(&make(Stop::FirstExhausted).rows));
    assert!((19..=20).contains(&make(Stop::AllExhausted).rows));
}

#[test]
fn l13_what_is_refused() {
    let message = |weights: &[f64], block, n| {
        let sources = vec![("web".into(), list(0, n)), ("code".into(), list(0, 5))];
        let made = Dataset::mixture(sources, MixtureRules { block, ..rules(weights, 1, Stop::Restart) });
        made.and_then(|mut mixture| mixture.length(0)).unwrap_err().message
    };
    assert!(message(&[1.0, 0.001], Some(100), 5).contains("the smallest block that is large enough is 501"));
    assert!(message(&[1.0, -1.0], None, 5).contains("at least 0"));
    assert!(message(&[0.0, 0.0], None, 5).contains("the sum must be positive and finite"));
    assert!(message(&[1.0, 1.0], Some(4), 0).contains("source 0 is empty"));
    assert!(message(&[1.0, 1.0], Some(4), 0).contains("0 is \"web\""));
    assert!(message(&[1.0, 1.0], None, 5).contains("no block_size"));
    let sources = vec![("a".into(), list(0, 3))];
    let stages =
        vec![WeightStage { start: 0, weights: vec![1.0] }, WeightStage { start: 7, weights: vec![2.0] }];
    let made = Dataset::mixture(sources, MixtureRules { stages, ..rules(&[], 4, Stop::Restart) });
    assert!(made.unwrap_err().message.contains("choose 4 or 8"));
    let endless = Dataset::mixture(vec![("a".into(), list(0, 3))], rules(&[1.0], 4, Stop::Restart)).unwrap();
    assert!(endless.permutation(1).unwrap_err().message.contains("cannot be permuted"));
}

#[test]
fn a_mixture_in_passes_is_another_one_in_each() {
    let sources = vec![
        ("a".into(), list(0, 40).permutation(1).unwrap()),
        ("b".into(), list(0, 25).permutation(1).unwrap()),
    ];
    let dataset = Dataset::mixture(sources, rules(&[0.5, 0.5], 8, Stop::AllExhausted)).unwrap();
    let all = |epoch| {
        let mut dataset = dataset.clone();
        let length = dataset.length(epoch).unwrap();
        dataset.locate(epoch, 0..length.rows).unwrap()
    };
    let of = |picks: &[Pick], leaf| {
        picks.iter().filter(|pick| pick.leaf == leaf).map(|pick| pick.row).collect::<Vec<_>>()
    };
    let (zero, one) = (all(0), all(1));
    assert_ne!(zero, one);
    // The second epoch of b has another order than the first, and neither is one of the next pass.
    let orders: Vec<_> = [&zero, &one]
        .iter()
        .flat_map(|picks| of(picks, 1).chunks_exact(25).map(<[_]>::to_vec).collect::<Vec<_>>())
        .collect();
    assert_eq!(orders.len(), 2);
    let partial = of(&zero, 1)[25..].to_vec();
    assert_ne!(partial[..], orders[0][..partial.len()]);
    assert_ne!(partial[..], orders[1][..partial.len()]);
    assert_ne!(orders[0], orders[1]);
}

#[test]
fn l13_weights_change_and_sources_go_on() {
    let stages = [(0, [0.5, 0.5]), (8, [0.25, 0.75]), (16, [1.0, 0.0])];
    let stages: Vec<_> =
        stages.iter().map(|&(start, weights)| WeightStage { start, weights: weights.to_vec() }).collect();
    let sources = vec![("a".into(), list(0, 100)), ("b".into(), list(0, 100))];
    let mut dataset =
        Dataset::mixture(sources, MixtureRules { stages: stages.clone(), ..rules(&[], 4, Stop::Restart) })
            .unwrap();
    let picks = dataset.locate(0, 0..24).unwrap();
    let counts: Vec<_> =
        picks.chunks(4).map(|block| block.iter().filter(|pick| pick.leaf == 0).count()).collect();
    assert_eq!(counts, [2, 2, 1, 1, 4, 4]);
    for leaf in 0..2 {
        let drawn: Vec<_> = picks.iter().filter(|pick| pick.leaf == leaf).map(|pick| pick.row).collect();
        assert_eq!(drawn, (0..drawn.len() as u64).collect::<Vec<_>>());
    }
    let seed = crate::seed::hash(5, crate::seed::Purpose::Pass, [0]);
    let mut oracle = Mixture::new(seed, &stages, 4, Stop::Restart, &[100, 100]).unwrap();
    let expected: Vec<_> =
        (0..24).map(|position| oracle.at(position)).map(|(leaf, row)| Pick { leaf, row }).collect();
    assert_eq!(picks, expected);
}

#[test]
fn sources_must_have_the_same_fields() {
    let other = Arc::new(ListStore::of_tokens("other", &tokens(0, 3)).unwrap());
    let sources = vec![("a".into(), list(0, 3)), ("b".into(), Dataset::of(Arc::new(DocumentLeaf(other))))];
    let dataset = Dataset::mixture(sources, rules(&[1.0, 1.0], 2, Stop::Restart)).unwrap();
    let error = dataset.fields().unwrap_err();
    assert!(error.message.contains("\"ids\" of int32 [?]") && error.message.contains("\"other\""), "{error}");
}

#[test]
fn fields_are_stacked_where_sources_agree() {
    let with_dim = |dim| Field::new("ids", DataType::Int32, vec![dim]);
    let fixed = Arc::new(ListStore::new(vec![with_dim(Dim::Fixed(2))]));
    fixed.append(&[(vec![2], &[1, 0, 0, 0, 2, 0, 0, 0])]).unwrap();
    fixed.finish().unwrap();
    let fixed = Dataset::of(Arc::new(DocumentLeaf(fixed)));
    let sources = vec![("a".into(), fixed.clone()), ("b".into(), list(7, 1)), ("c".into(), fixed.clone())];
    let mixture = Dataset::mixture(sources, rules(&[1.0, 1.0, 1.0], 3, Stop::Restart)).unwrap();
    assert_eq!(fixed.fields().unwrap()[..], [with_dim(Dim::Fixed(2))]);
    assert_eq!(mixture.fields().unwrap()[..], [with_dim(Dim::Ragged)]);
    let columns = read(&mixture, &[0, 1, 2]);
    let mut found = values(&columns.columns[0]);
    found.sort_unstable();
    assert_eq!(found, [1, 1, 2, 2, 7]);
}
