//! Where a loader stands, as JSON: a number, what the number means, and what it belongs to.
//!
//! A state holds no data: the number of the next batch, the streams that it is counted in, and fingerprints of configuration and
//! data that tell whether the loader that goes on is the one that stopped. One rank's state serves all ranks.

use serde_json::{Map, Value, json};

use crate::{
    Error, ErrorKind, Result,
    pipeline::{Canon, Position},
};

/// The version of the layout that is written; older ones are read.
const VERSION: u64 = 1;

/// What a loader is, as far as it fixes the batches: names and values, told apart one by one.
#[derive(Debug, Clone, PartialEq)]
pub struct Identity {
    /// The kind of loader.
    pub kind: &'static str,
    /// Parameters.
    pub config: Map<String, Value>,
    /// The data.
    pub data: Map<String, Value>,
}

impl Identity {
    /// The state of this loader at a position.
    pub fn state(&self, position: &Position) -> Value {
        let Position { epoch, batch, canon, skip, .. } = position;
        let skip: Vec<[u64; 2]> = skip.iter().map(|range| [range.start, range.end]).collect();
        json!({
            "version": VERSION,
            "kind": self.kind,
            "epoch": epoch,
            "batch": batch,
            "n_streams": canon.n_streams,
            "first_world_size": canon.world_size,
            "skip": skip,
            "config": self.config,
            "data": self.data,
        })
    }

    /// The position of a state, if it is one of this loader.
    ///
    /// # Errors
    /// [`ErrorKind::State`] that names everything in which the state differs, or the field that is missing.
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
            let nothing = Map::new();
            let theirs = state.get(part).and_then(Value::as_object).unwrap_or(&nothing);
            let names = mine.keys().chain(theirs.keys().filter(|name| !mine.contains_key(*name)));
            differences.extend(
                names
                    .filter(|name| !are_same(mine.get(*name), theirs.get(*name)))
                    .map(|name| difference(name, theirs.get(name), mine.get(name))),
            );
        }
        if !differences.is_empty() {
            return Err(wrong(format!(
                "the state belongs to another loader: {}; make the loader as it was, or start anew",
                differences.join(", ")
            )));
        }
        let canon = Canon { n_streams: whole("n_streams")?, world_size: whole("first_world_size")? };
        let skip = state.get("skip").unwrap_or(&Value::Null);
        let pair = |range: &Value| match range.as_array()?.as_slice() {
            [start, end] => Some(start.as_u64()?..end.as_u64()?).filter(|range| range.start <= range.end),
            _ => None,
        };
        let ranges = skip.as_array().and_then(|ranges| ranges.iter().map(pair).collect::<Option<Vec<_>>>());
        let skip = ranges.ok_or_else(|| {
            wrong(format!("the state's \"skip\" is {skip}, expected pairs [first, end] of whole numbers"))
        })?;
        Ok(Position { epoch: whole("epoch")?, batch: whole("batch")?, canon, skip, standings: None })
    }
}

/// Whether two values say the same; a number may have been written with or without a point.
fn are_same(a: Option<&Value>, b: Option<&Value>) -> bool {
    let number = |value: Option<&Value>| value.filter(|value| value.is_f64()).and_then(Value::as_f64);
    let either_has_a_point = number(a).is_some() || number(b).is_some();
    a == b
        || either_has_a_point
            && a.and_then(Value::as_f64).is_some()
            && a.and_then(Value::as_f64) == b.and_then(Value::as_f64)
}

fn difference(name: &str, theirs: Option<&Value>, mine: Option<&Value>) -> String {
    let show = |value: Option<&Value>| value.map_or_else(|| "absent".to_owned(), Value::to_string);
    format!("{name} is {} in the state and {} here", show(theirs), show(mine))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(seed: u64) -> Identity {
        let map = |value: Value| value.as_object().cloned().unwrap_or_default();
        Identity {
            kind: "toy",
            config: map(json!({"seed": seed, "order": "window"})),
            data: map(json!({"rows": 7})),
        }
    }

    fn position() -> Position {
        Position {
            epoch: 2,
            batch: 1 << 40,
            canon: Canon { n_streams: 8, world_size: 2 },
            skip: vec![3..5, 9..10],
            standings: None,
        }
    }

    #[test]
    fn a_state_comes_back() {
        let state = identity(1).state(&position());
        let text = state.to_string();
        assert_eq!(identity(1).position(&serde_json::from_str(&text).unwrap()).unwrap(), position());
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
