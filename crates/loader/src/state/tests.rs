//! States as written, read again, merged, and damaged.

use super::*;

fn standing_of(packer: &Value) -> Option<Vec<CarriedRecord>> {
    stream_position(packer).map(|stream_position| stream_position.held)
}

fn identity(seed: u64) -> Identity {
    let map = |value: Value| value.as_object().cloned().unwrap_or_default();
    Identity {
        kind: "toy",
        config: map(json!({"seed": seed, "order": "window"})),
        data: map(json!({"rows": 7})),
        former: Map::new(),
        names: BTreeMap::new(),
        share: Share { rank: 1, world_size: 2 },
        per_packer: 1,
        default_order: None,
    }
}

fn position() -> Position {
    Position {
        epoch: 2,
        batch: 1 << 40,
        layout: StreamLayout { n_streams: 8, world_size: 2 },
        skip: vec![3..5, 9..10],
        stream_positions: None,
        cut: Some(CutPosition { start: ChapterStart { chapter: 7, steps: 1 << 30 }, world_size: 2 }),
        lost: Losses::from([(1, Lost { records: 3, rows: vec![7, 5, 7] })]),
    }
}

#[test]
fn a_state_comes_back() {
    let state = identity(1).state(&position());
    let text = state.to_string();
    assert_eq!(identity(1).position(&serde_json::from_str(&text).unwrap()).unwrap(), position());
}

#[test]
fn packers_come_back_to_any_number_of_ranks() {
    let held = |row, used| CarriedRecord { row, used, epoch: 0 };
    let of_pass = |row, used, epoch| CarriedRecord { row, used, epoch };
    let stream_position = |n: u64| StreamPosition {
        draws: 100 + n,
        share: StreamShare::default(),
        held: vec![
            held(n, 1),
            held(1 << 50, 205),
            of_pass(3, u32::MAX, n),
            of_pass(4, 1, n),
            of_pass(4, 1, MAX_EPOCH),
            held(4, 7),
        ],
    };
    let whole = |rank, world_size| Identity { share: Share { rank, world_size }, ..identity(1) };
    let at = |range: Range<u64>| Position {
        skip: Vec::new(),
        stream_positions: Some(range.map(stream_position).collect()),
        ..position()
    };
    // Eight streams: two ranks had four each, four take two each.
    let states: Vec<_> = (0..2).map(|rank| whole(rank, 2).state(&at(4 * rank..4 * rank + 4))).collect();
    assert_eq!(whole(1, 2).position(&states[1]).unwrap(), at(4..8));
    let error = whole(1, 2).position(&states[0]).unwrap_err();
    assert!(error.message.contains("states of all ranks"), "{error}");
    let merged = merge(states.clone()).unwrap();
    for rank in 0..4 {
        assert_eq!(whole(rank, 4).position(&merged).unwrap(), at(2 * rank..2 * rank + 2));
    }
    let mut other = states[1].clone();
    other["batch"] = json!(3);
    assert!(merge(vec![states[0].clone(), other]).unwrap_err().message.contains("batch"));
    assert!(merge(Vec::new()).is_err());
    for bad in [json!(3), json!({"4": {}}), json!({"4": {"documents_read": 1}})] {
        let mut state = states[1].clone();
        state["packers"] = bad;
        assert_eq!(whole(1, 2).position(&state).unwrap_err().kind, ErrorKind::State);
    }
    let at = |held: &str| standing_of(&json!({"documents_read": 1, "held": held}));
    assert_eq!(at(""), Some(Vec::new()));
    assert_eq!(at("7 1:3 -8"), Some(vec![held(7, 1), held(8, 3), held(0, 1)]));
    assert_eq!(at("7@2 1:3 -8@0"), Some(vec![of_pass(7, 1, 2), of_pass(8, 3, 2), held(0, 1)]));
    for bad in [
        "7@",
        "7@-1",
        "7@2:3",
        "7@1@2",
        "7@4611686018427387905",
        "-1",
        "3 -4",
        "a",
        "3:",
        "3:x",
        ":3",
        "1:-1",
        "9223372036854775807 1",
        "1:4294967296",
    ] {
        assert_eq!(at(bad), None, "{bad}");
    }
}

#[test]
fn a_mismatch_is_named() {
    let state = identity(1).state(&position());
    let error = identity(u64::MAX).position(&state).unwrap_err();
    assert_eq!(error.kind, ErrorKind::State);
    assert!(error.message.contains("seed is 1 in the state and 18446744073709551615 here"), "{error}");
    assert!(!error.message.contains("order"), "{error}");
}

#[test]
fn a_state_without_damage_is_one_in_which_damage_was_an_error() {
    let with = |damage: &str| {
        let mut identity = identity(1);
        identity.config.insert("damage".into(), damage.into());
        identity
    };
    let earlier = identity(1).state(&position());
    assert!(with("error").position(&earlier).is_ok());
    for (state, theirs, mine) in [
        (earlier, "error", "silence"),
        (with("error").state(&position()), "error", "silence"),
        (with("silence").state(&position()), "silence", "error"),
    ] {
        let error = with(mine).position(&state).unwrap_err();
        let told = format!("damage is {theirs:?} in the state and {mine:?} here");
        assert!(error.message.contains(&told), "{error}");
    }
}

#[test]
fn another_default_order_names_the_parameter() {
    let with = |order: &str, window: Option<u64>, reason: Option<&str>| {
        let mut identity = identity(1);
        identity.config.insert("order".into(), order.into());
        identity.config.extend(window.map(|window| ("shuffle_min_size".to_owned(), window.into())));
        identity.default_order = reason.map(|reason| DefaultOrder {
            reason: reason.into(),
            unused: Map::from_iter([("shuffle_min_size".to_owned(), json!(8000))]),
        });
        identity
    };
    let state = with("window", Some(8000), Some("by default")).state(&position());
    let error = with("global", None, Some("few rows")).position(&state).unwrap_err();
    assert_eq!(
        error.message,
        "the state belongs to another loader: order is \"window\" in the state and \"global\" here by default \
         (few rows): give order=\"window\"; construct the loader as it was, or start without the state"
    );
    // A window of another size is named as well.
    let state = with("window", Some(500), None).state(&position());
    let error = with("global", None, Some("few rows")).position(&state).unwrap_err();
    assert!(error.message.contains("shuffle_min_size is 500 in the state"), "{error}");
    // The user gave this order.
    let error = with("global", None, None).position(&state).unwrap_err();
    assert!(error.message.contains("\"global\" here, shuffle_min_size is 500"), "{error}");
}

#[test]
fn a_mismatch_within_an_object_is_named_alone() {
    let with = |features: Value| {
        let mut identity = identity(1);
        identity.config.insert("features".into(), features);
        identity
    };
    let state = with(json!({"n_mels": 80, "ln": {"floor": 0.25, "eps": null}})).state(&position());
    let other = with(json!({"n_mels": 128, "ln": {"floor": 0.5, "eps": null}}));
    let error = other.position(&state).unwrap_err();
    assert!(
        error.message.contains(
            "features.ln.floor is 0.25 in the state and 0.5 here, features.n_mels is 80 in the state and 128 here;"
        ),
        "{error}"
    );
    let error = identity(1).position(&state).unwrap_err();
    assert!(error.message.contains("features is {"), "{error}");
}

#[test]
fn numbers_are_compared_as_numbers() {
    let with = |seconds: Value| {
        let mut identity = identity(1);
        identity.config.insert("clip_seconds".into(), seconds);
        identity
    };
    for seconds in [0.1 + 0.2, 160_000.0 / 44_100.0, 1024.0 / 11_025.0, 5e-324, 1.0 / 3.0] {
        let state = with(json!(seconds)).state(&position());
        assert!(
            with(json!(seconds)).position(&serde_json::from_str(&state.to_string()).unwrap()).is_ok(),
            "{seconds}"
        );
    }
    let whole = with(json!(5)).state(&position());
    assert!(with(json!(5.0)).position(&whole).is_ok());
    assert!(with(json!(5.5)).position(&whole).is_err());
    assert!(with(json!("5")).position(&whole).is_err());
}

#[test]
fn what_is_no_state_is_refused() {
    for state in [json!({}), json!(3), json!({"version": 2}), json!({"version": 1, "kind": "toy"})] {
        assert_eq!(identity(1).position(&state).unwrap_err().kind, ErrorKind::State);
    }
    let mut state = identity(1).state(&position());
    for skip in [json!([[1]]), json!([[1, 2, 3]]), json!("a"), json!(null), json!([[5, 3]]), json!([[-1, 3]])]
    {
        state["skip"] = skip;
        assert!(identity(1).position(&state).unwrap_err().message.contains("pairs"));
    }
}
