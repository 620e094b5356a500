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
                // The keys are streams, of which a packer has `per_packer`.
                let packer = |stream: u64| stream / self.per_packer;
                let has: BTreeSet<u64> =
                    packers.keys().filter_map(|stream| stream.parse().ok()).map(packer).collect();
                return wrong(format!(
                    "the state has packers {}, but this rank needs packers {} to {}; load a list of the states of all ranks",
                    has.iter().map(u64::to_string).collect::<Vec<_>>().join(", "),
                    packer(start),
                    packer(end - 1)
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
mod tests;
