//! The state of a loader, as JSON: its position and its identity.
//!
//! A state holds no data. It has the number of the next batch, the number of streams, and values of
//! configuration and data that must be equal in the loader that resumes. One rank's state serves all ranks,
//! unless batches are packed. Then each rank's state has the positions of its own packers, and [`merge`]
//! makes one state of all.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    ops::Range,
};

use serde_json::{Map, Value, json};

use crate::{
    Error, ErrorKind, Result,
    contract::{CarriedRecord, StreamPosition, StreamPositions, StreamShare},
    engine::{CutPosition, Losses, Lost, MAX_EPOCH, MAX_WORLD, NAMED, Position, StreamLayout},
    order::ChapterStart,
};

/// The version of the layout that is written; older ones are read.
const VERSION: u64 = 1;

/// Parameters that states of earlier releases lack, with the values that these states stand for.
const EARLIER: [(&str, &str); 1] = [("damage", "error")];

/// The parameters and properties of the data on which a loader's batches depend, by name.
#[derive(Debug, Clone, PartialEq)]
pub struct Identity {
    pub kind: &'static str,
    pub config: Map<String, Value>,
    pub data: Map<String, Value>,
    /// Values of these two as earlier versions wrote them, by name, where they differ; they are accepted.
    pub former: Map<String, Value>,
    /// What messages call entries of these two that are no parameters.
    pub names: BTreeMap<String, String>,
    /// This rank and the world size, which determine the streams of this process.
    pub share: Share,
    /// The streams of a packer: one for each source of a mixture; else 1.
    pub per_packer: u64,
    /// The order, if it was chosen and not given.
    pub default_order: Option<DefaultOrder>,
}

/// An order that was chosen, for messages about a state of another order.
#[derive(Debug, Clone, PartialEq)]
pub struct DefaultOrder {
    pub reason: String,
    /// The values of parameters that only other orders have.
    pub unused: Map<String, Value>,
}

/// One process among those that share each batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    pub rank: u64,
    pub world_size: u64,
}

impl Share {
    fn streams(self, n_streams: u64) -> Range<u64> {
        let each = n_streams / self.world_size.max(1);
        self.rank * each..(self.rank + 1) * each
    }
}

impl Identity {
    /// The state of this loader at a position.
    pub fn state(&self, position: &Position) -> Value {
        let Position { epoch, batch, layout, skip, stream_positions, cut, lost } = position;
        let skip: Vec<[u64; 2]> = skip.iter().map(|range| [range.start, range.end]).collect();
        let mut state = json!({
            "version": VERSION,
            "kind": self.kind,
            "epoch": epoch,
            "batch": batch,
            "n_streams": layout.n_streams,
            "first_world_size": layout.world_size,
            "skip": skip,
            "config": self.config,
            "data": self.data,
        });
        if !lost.is_empty() {
            state["lost"] = losses(lost);
        }
        if let Some(CutPosition { start, world_size }) = cut {
            state["chapter"] = json!([start.chapter, start.steps, world_size]);
        }
        if let Some(stream_positions) = stream_positions {
            let packers = self.streams(layout.n_streams).zip(&**stream_positions);
            let mixes = self.per_packer > 1;
            let packer = |at| packer(at, mixes);
            let packers: Map<_, _> = packers.map(|(number, at)| (number.to_string(), packer(at))).collect();
            state["packers"] = packers.into();
        }
        state
    }

    /// This process's streams of `n_packers` packers.
    fn streams(&self, n_packers: u64) -> Range<u64> {
        let Range { start, end } = self.share.streams(n_packers);
        start.saturating_mul(self.per_packer)..end.saturating_mul(self.per_packer)
    }

    /// The positions of this process's streams in a state, if the state has any.
    fn stream_positions(&self, state: &Value, n_streams: u64) -> Result<Option<StreamPositions>> {
        let wrong = |message: String| Err(Error::new(ErrorKind::State, message));
        let packers = match state.get("packers") {
            None => return Ok(None),
            Some(Value::Object(packers)) => packers,
            Some(other) => return wrong(format!("the state's \"packers\" is {other}, expected a dict")),
        };
        // At the start of a pass all packers are alike, so such a state serves all ranks and world sizes.
        let is_start =
            |packer: &Value| stream_position(packer).is_some_and(|at| at.draws == 0 && at.held.is_empty());
        let is_first = state.get("batch").and_then(Value::as_u64) == Some(0);
        if is_first && !packers.is_empty() && packers.values().all(is_start) {
            return Ok(None);
        }
        let mut stream_positions = Vec::new();
        let Range { start, end } = self.streams(n_streams);
        // The state's `n_streams` may be huge: stop after the first packer that is missing.
        for number in start..end.min(start.saturating_add(packers.len() as u64 + 1)) {
            let Some(packer) = packers.get(&number.to_string()) else {
                return wrong(format!(
                    "the state has packers {}, but this rank needs packers {start} to {}; load a list of the states of all ranks",
                    packers.keys().cloned().collect::<Vec<_>>().join(", "),
                    end - 1
                ));
            };
            match stream_position(packer) {
                Some(stream_position) => stream_positions.push(stream_position),
                None => return wrong(format!("the state's packer {number} is not as state_dict() wrote it")),
            }
        }
        Ok(Some(stream_positions.into()))
    }

    /// The position of a state, if the state belongs to this loader.
    ///
    /// # Errors
    /// [`ErrorKind::State`] that names all differences between state and loader, or the missing field.
    pub fn position(&self, state: &Value) -> Result<Position> {
        let wrong = |message: String| Error::new(ErrorKind::State, message);
        if !state.is_object() {
            return Err(wrong("a state is a dict; pass what state_dict() returned".into()));
        }
        let whole = |name: &str| {
            state.get(name).and_then(Value::as_u64).ok_or_else(|| {
                wrong(format!(
                    "the state's {name:?} is {}, expected a whole number; pass what state_dict() returned",
                    state.get(name).unwrap_or(&Value::Null)
                ))
            })
        };
        let version = whole("version")?;
        if version != VERSION {
            return Err(wrong(format!(
                "the state has version {version}, this forebay reads {VERSION}; use the release that wrote it"
            )));
        }
        let mut differences = Vec::new();
        if state.get("kind") != Some(&self.kind.into()) {
            differences.push(difference("kind", state.get("kind"), Some(&self.kind.into())));
        }
        for (part, mine) in [("config", &self.config), ("data", &self.data)] {
            let mut theirs = state.get(part).and_then(Value::as_object).cloned().unwrap_or_default();
            for (name, value) in EARLIER.into_iter().filter(|(name, _)| mine.contains_key(*name)) {
                theirs.entry(name).or_insert(value.into());
            }
            // Sorted, since the order of a serde_json map depends on the features of the whole build.
            let names: BTreeSet<_> = mine.keys().chain(theirs.keys()).collect();
            for name in names {
                let (theirs, mine) = (theirs.get(name), mine.get(name));
                let is_former = theirs.is_some() && self.former.get(name) == theirs;
                if is_former || are_same(mine, theirs) {
                    continue;
                }
                match &self.default_order {
                    Some(DefaultOrder { reason, .. }) if name == "order" && theirs.is_some() => {
                        let brings = theirs.map(Value::to_string).unwrap_or_default();
                        let named = difference(name, theirs, mine);
                        differences.push(format!("{named} by default ({reason}): give order={brings}"));
                    }
                    // Of the state's order; this loader would have the same value.
                    Some(DefaultOrder { unused, .. })
                        if mine.is_none() && are_same(unused.get(name), theirs) => {}
                    _ => {
                        let name = self.names.get(name).unwrap_or(name);
                        differences.extend(all_differences(name, theirs, mine));
                    }
                }
            }
        }
        if !differences.is_empty() {
            return Err(wrong(format!(
                "the state belongs to another loader: {}; construct the loader as it was, or start without the state",
                differences.join(", ")
            )));
        }
        let layout = StreamLayout { n_streams: whole("n_streams")?, world_size: whole("first_world_size")? };
        let skip = state.get("skip").unwrap_or(&Value::Null);
        let pair = |range: &Value| match range.as_array()?.as_slice() {
            [start, end] => Some(start.as_u64()?..end.as_u64()?).filter(|range| range.start <= range.end),
            _ => None,
        };
        let ranges = skip.as_array().and_then(|ranges| ranges.iter().map(pair).collect::<Option<Vec<_>>>());
        let skip = ranges.ok_or_else(|| {
            wrong(format!("the state's \"skip\" is {skip}, expected pairs [first, end] of whole numbers"))
        })?;
        let stream_positions = self.stream_positions(state, layout.n_streams)?;
        let lost = lost(state.get("lost")).ok_or_else(|| {
            wrong(format!("the state's \"lost\" is {}, expected what state_dict() wrote", state["lost"]))
        })?;
        let cut = chapter(state.get("chapter")).ok_or_else(|| {
            wrong(format!("the state's \"chapter\" is {}, expected three whole numbers", state["chapter"]))
        })?;
        let (epoch, batch) = (whole("epoch")?, whole("batch")?);
        Ok(Position { epoch, batch, layout, skip, stream_positions, cut, lost })
    }
}

/// Where the chapter of a state begins, if it has one: its number, the steps before it, and the ranks.
fn chapter(chapter: Option<&Value>) -> Option<Option<CutPosition>> {
    let Some(chapter) = chapter else { return Some(None) };
    let [chapter, steps, world_size] = chapter.as_array()?.as_slice() else { return None };
    let start = ChapterStart { chapter: chapter.as_u64()?, steps: steps.as_u64()? };
    Some(Some(CutPosition { start, world_size: world_size.as_u64()? }))
}

/// A packer as JSON, which [`stream_position`] reads: the number of documents read, and the held documents;
/// in a mixture one source's part of it, with what counts for the choice of the next source.
///
/// The held documents are a text with one word for each: its row minus the previous one's row. If the
/// document continues at another token than the first, a colon and the token's number follow; if its tokens
/// depend on another pass than those of the document before it (0 for the first), `@` and the pass. A list of
/// pairs would take four times the memory and ten times the time, which matters if a state is taken with
/// every batch.
fn packer(at: &StreamPosition, mixes: bool) -> Value {
    // bounded: some bytes for each held row.
    let mut held = String::with_capacity(5 * at.held.len());
    let (mut before, mut pass) = (0, 0);
    for &CarriedRecord { row, used, epoch } in &at.held {
        let space = if held.is_empty() { "" } else { " " };
        // Writing to a string does not fail. Rows are below 2^63, as in Arrow and Parquet.
        let _ = write!(held, "{space}{}", row as i64 - before);
        if used != WHOLE {
            let _ = write!(held, ":{used}");
        }
        if epoch != pass {
            let _ = write!(held, "@{epoch}");
        }
        pass = epoch;
        before = row as i64;
    }
    let mut packer = json!({"documents_read": at.draws, "held": held});
    if mixes {
        packer["taken"] = at.share.taken.into();
        if at.share.is_over {
            packer["exhausted"] = true.into();
        }
    }
    packer
}

/// [`CarriedRecord::used`] of a document of which no token is in a row yet: it continues after its BOS.
const WHOLE: u32 = 1;

fn stream_position(packer: &Value) -> Option<StreamPosition> {
    let (mut before, mut epoch) = (0i64, 0);
    let held = packer.get("held")?.as_str()?.split_whitespace().map(|word| {
        let (word, pass) = word.split_once('@').map_or((word, None), |(word, pass)| (word, Some(pass)));
        if let Some(pass) = pass {
            epoch = pass.parse().ok().filter(|&pass| pass <= MAX_EPOCH)?;
        }
        let (step, used) = match word.split_once(':') {
            Some((step, used)) => (step, used.parse().ok()?),
            None => (word, WHOLE),
        };
        before = before.checked_add(step.parse().ok()?)?;
        Some(CarriedRecord { row: u64::try_from(before).ok()?, used, epoch })
    });
    let held = held.collect::<Option<_>>()?;
    let taken = packer.get("taken").map_or(Some(0), Value::as_u64)?;
    let is_over = packer.get("exhausted").map_or(Some(false), Value::as_bool)?;
    let share = StreamShare { taken, is_over };
    Some(StreamPosition { draws: packer.get("documents_read")?.as_u64()?, share, held })
}

/// The lost records in a state; empty if the state has no entry, none if the entry is invalid.
fn lost(state: Option<&Value>) -> Option<Losses> {
    let Some(losses) = state else { return Some(Losses::new()) };
    let of_rank = |(rank, lost): (&String, &Value)| {
        let rows: Vec<_> = lost.get("rows")?.as_array()?.iter().map(Value::as_u64).collect::<Option<_>>()?;
        let records = lost.get("records")?.as_u64()?;
        // Bounded, so that no later sum exceeds 64 bits.
        let is_count = records <= MAX_EPOCH && rows.len() as u64 <= records && rows.len() <= NAMED;
        let rank = rank.parse().ok().filter(|&rank: &u64| rank < MAX_WORLD)?;
        is_count.then_some((rank, Lost { records, rows }))
    };
    losses.as_object()?.iter().map(of_rank).collect()
}

/// The lost records of the ranks as JSON, for the user and for [`lost`].
fn losses(losses: &Losses) -> Value {
    let of_rank =
        |(rank, lost): (&u64, &Lost)| (rank.to_string(), json!({"records": lost.records, "rows": lost.rows}));
    losses.iter().map(of_rank).collect::<Map<_, _>>().into()
}

/// Merges the states of several ranks into one.
///
/// # Errors
/// [`ErrorKind::State`] if there are none, or if they are not of the same loader after the same batch.
pub fn merge(states: Vec<Value>) -> Result<Value> {
    let mut states = states.into_iter();
    let wrong = |message: String| Err(Error::new(ErrorKind::State, message));
    let Some(mut merged) = states.next() else { return wrong("there are no states in the list".into()) };
    let no_dict =
        |state: &Value| format!("the list has {state}; a state is a dict: pass what state_dict() returned");
    if !merged.is_object() {
        return wrong(no_dict(&merged));
    }
    for mut state in states {
        if !state.is_object() {
            return wrong(no_dict(&state));
        }
        for name in ["version", "kind", "epoch", "batch", "n_streams", "first_world_size", "config", "data"] {
            if merged.get(name) != state.get(name) {
                return wrong(format!(
                    "the states differ in {name:?}: {} and {}; load those that all ranks saved after the same batch",
                    merged.get(name).unwrap_or(&Value::Null),
                    state.get(name).unwrap_or(&Value::Null)
                ));
            }
        }
        if let (Some(mut mine), Some(theirs)) = (lost(merged.get("lost")), lost(state.get("lost")))
            && !theirs.is_empty()
        {
            // If both states list a rank, the later list is the longer one.
            for (rank, theirs) in theirs {
                let known = mine.entry(rank).or_default();
                if theirs.records > known.records {
                    *known = theirs;
                }
            }
            merged["lost"] = losses(&mine);
        }
        let theirs = state.get_mut("packers").and_then(Value::as_object_mut).map(std::mem::take);
        if let (Some(Value::Object(packers)), Some(theirs)) = (merged.get_mut("packers"), theirs) {
            packers.extend(theirs);
        }
    }
    Ok(merged)
}

/// Whether two values are equal; numbers are equal with or without a decimal point.
fn are_same(a: Option<&Value>, b: Option<&Value>) -> bool {
    let number = |value: Option<&Value>| value.filter(|value| value.is_f64()).and_then(Value::as_f64);
    let either_has_a_point = number(a).is_some() || number(b).is_some();
    a == b
        || either_has_a_point
            && a.and_then(Value::as_f64).is_some()
            && a.and_then(Value::as_f64) == b.and_then(Value::as_f64)
}

/// The differences of two values that are not the same: of objects, those of their entries.
fn all_differences(name: &str, theirs: Option<&Value>, mine: Option<&Value>) -> Vec<String> {
    let (Some(Value::Object(a)), Some(Value::Object(b))) = (theirs, mine) else {
        return vec![difference(name, theirs, mine)];
    };
    let names: BTreeSet<_> = a.keys().chain(b.keys()).collect();
    let entries = names.into_iter().filter(|entry| !are_same(a.get(*entry), b.get(*entry)));
    entries
        .flat_map(|entry| all_differences(&format!("{name}.{entry}"), a.get(entry), b.get(entry)))
        .collect()
}

fn difference(name: &str, theirs: Option<&Value>, mine: Option<&Value>) -> String {
    let show = |value: Option<&Value>| value.map_or_else(|| "absent".to_owned(), Value::to_string);
    if name.ends_with("fingerprint") && theirs.is_some() && mine.is_some() {
        return format!(
            "the files are others than those of the state, or in another order ({name} {} in the state, {} here)",
            show(theirs),
            show(mine)
        );
    }
    format!("{name} is {} in the state and {} here", show(theirs), show(mine))
}

#[cfg(test)]
mod tests {
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
        for skip in
            [json!([[1]]), json!([[1, 2, 3]]), json!("a"), json!(null), json!([[5, 3]]), json!([[-1, 3]])]
        {
            state["skip"] = skip;
            assert!(identity(1).position(&state).unwrap_err().message.contains("pairs"));
        }
    }
}
