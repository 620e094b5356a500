//! [`Annotations`]: labelled times of recordings, and which of them a clip overlaps. Source: own.

use std::{collections::HashMap, ops::Range};

use crate::{Error, ErrorKind, Result, seed::mix};

/// A clip in its recording, in seconds; without padding.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClipSeconds {
    pub start: f64,
    pub end: f64,
    /// Where its row begins.
    pub row_start: f64,
    /// How many times faster than at its own rate the recording is played.
    pub speed: f64,
}

impl Default for ClipSeconds {
    fn default() -> Self {
        Self { start: 0.0, end: 0.0, row_start: 0.0, speed: 1.0 }
    }
}

/// An annotation of a recording, as a table has it.
#[derive(Debug, Clone, PartialEq)]
pub struct Annotation {
    /// Path or name of the recording.
    pub path: String,
    /// Seconds.
    pub start: f64,
    /// Seconds.
    pub end: f64,
    pub label: String,
}

/// Labelled times of recordings, found by the recordings' paths.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Annotations {
    /// The labels, each once, sorted.
    labels: Vec<String>,
    /// The events of each path, sorted by start.
    events: Vec<AnnotatedEvent>,
    by_path: HashMap<Box<str>, Range<usize>>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct AnnotatedEvent {
    start: f64,
    end: f64,
    /// The latest end of the events of this path so far.
    latest: f64,
    label: u32,
}

/// How much of an annotation must be in a clip.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OverlapRule {
    /// Seconds; any overlap counts if this is 0.
    pub seconds: f64,
    /// A share of the annotation, or of the clip.
    pub share: f64,
    /// Whether the share is one of the annotation.
    pub is_of_annotation: bool,
}

/// Overlaps are compared with this tolerance, seconds: less than a sample, more than the error of sums.
const TOLERANCE: f64 = 1e-7;

impl Annotations {
    /// Of these annotations, in any order.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a time that is not finite, an end before its start, an empty path or label.
    pub fn new(mut all: Vec<Annotation>) -> Result<Self> {
        for Annotation { path, start, end, label } in &all {
            let problem = match () {
                () if path.is_empty() => "has no recording".to_owned(),
                () if label.is_empty() => "has no label".to_owned(),
                () if !(start.is_finite() && end.is_finite()) => format!("is from {start} to {end} s"),
                () if end < start => format!("is from {start} to {end} s, must end after its start"),
                () => continue,
            };
            let message = format!("the annotation {label:?} of {path:?} {problem}");
            return Err(Error::new(ErrorKind::Config, message));
        }
        all.sort_by(|a, b| a.path.cmp(&b.path).then(a.start.total_cmp(&b.start)));
        let mut labels: Vec<String> = all.iter().map(|one| one.label.clone()).collect();
        labels.sort_unstable();
        labels.dedup();
        let mut found = Self { labels, ..Self::default() };
        for one in &all {
            let at = found.events.len();
            let range = found.by_path.entry(one.path.as_str().into()).or_insert(at..at);
            let latest = match range.start == range.end {
                true => one.end,
                false => found.events[at - 1].latest.max(one.end),
            };
            range.end = at + 1;
            let label = found.labels.partition_point(|label| *label < one.label) as u32;
            found.events.push(AnnotatedEvent { start: one.start, end: one.end, latest, label });
        }
        Ok(found)
    }

    /// The labels, each once, sorted.
    pub fn labels(&self) -> &[String] {
        &self.labels
    }

    /// A path that has annotations, for messages.
    pub fn any_path(&self) -> Option<&str> {
        self.by_path.keys().map(|path| &**path).min()
    }

    /// A number for the path of the annotations of the recording at `path`, if it has any.
    pub fn recording(&self, path: &str) -> Option<usize> {
        Some(self.find(path)?.start)
    }

    /// The seconds of the recording at `path` that any annotation has.
    pub fn seconds(&self, path: &str) -> f64 {
        let (mut seconds, mut reached) = (0.0, f64::NEG_INFINITY);
        for event in &self.events[self.find(path).unwrap_or(0..0)] {
            seconds += (event.end - event.start.max(reached)).max(0.0);
            reached = event.latest;
        }
        seconds
    }

    pub fn paths(&self) -> impl ExactSizeIterator<Item = &str> {
        self.by_path.keys().map(|path| &**path)
    }

    /// The events of the recording at `path`: those of the longest end of its path that has any, then those
    /// of its name without the ending.
    fn find(&self, path: &str) -> Option<Range<usize>> {
        let mut rest = path;
        loop {
            if let Some(found) = self.by_path.get(rest) {
                return Some(found.clone());
            }
            let Some((_, behind)) = rest.split_once(['/', '\\']) else { break };
            rest = behind;
        }
        let (stem, _) = rest.rsplit_once('.')?;
        self.by_path.get(stem).cloned()
    }

    /// When the last event of the recording at `path` begins.
    pub fn last_start(&self, path: &str) -> Option<f64> {
        self.events[self.find(path)?].last().map(|event| event.start)
    }

    /// The events of the recording at `path` that may overlap these seconds, and a number of the recording.
    fn within(&self, path: &str, [start, end]: [f64; 2]) -> (u64, &[AnnotatedEvent]) {
        let range = self.find(path).unwrap_or(0..0);
        let (recording, events) = (range.start as u64, &self.events[range]);
        let first = events.partition_point(|event| event.latest <= start);
        let end = events.partition_point(|event| event.start < end);
        (recording, events.get(first..end).unwrap_or_default())
    }

    /// The number of the recording at `path`, and label, start and end of each annotation that may overlap
    /// these seconds.
    pub(crate) fn times(&self, path: &str, within: [f64; 2]) -> (u64, impl Iterator<Item = (u32, [f64; 2])>) {
        let (recording, events) = self.within(path, within);
        (recording, events.iter().map(|event| (event.label, [event.start, event.end])))
    }

    /// Calls `each` with the label and the overlap in seconds of each annotation in a clip of the recording
    /// at `path`.
    pub fn overlapping(
        &self,
        path: &str,
        clip: ClipSeconds,
        rule: OverlapRule,
        mut each: impl FnMut(u32, f64),
    ) {
        for event in self.within(path, [clip.start, clip.end]).1 {
            let overlap = event.end.min(clip.end) - event.start.max(clip.start);
            let whole = match rule.is_of_annotation {
                true => event.end - event.start,
                false => clip.end - clip.start,
            };
            let least = rule.seconds.max(rule.share * whole);
            if overlap > TOLERANCE && overlap >= least - TOLERANCE {
                each(event.label, overlap);
            }
        }
    }

    /// A digest of them, as a state has it.
    pub fn digest(&self) -> String {
        let digest = self.bytes().fold(0, |state, byte| mix(state ^ mix(u64::from(byte))));
        format!("{digest:016x}")
    }

    /// Paths, times and labels.
    fn bytes(&self) -> impl Iterator<Item = u8> + '_ {
        let mut paths: Vec<_> = self.by_path.iter().collect();
        paths.sort_unstable_by_key(|(path, _)| &**path);
        let of = |event: &AnnotatedEvent| [event.start.to_bits(), event.end.to_bits(), event.label.into()];
        let paths = paths.into_iter().flat_map(move |(path, range)| {
            let events = self.events[range.clone()].iter().flat_map(of).flat_map(u64::to_le_bytes);
            path.bytes().chain([0xff]).chain(events)
        });
        self.labels.iter().flat_map(|label| label.bytes().chain([0xff])).chain(paths)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn annotation(path: &str, start: f64, end: f64, label: &str) -> Annotation {
        Annotation { path: path.to_owned(), start, end, label: label.to_owned() }
    }

    const ANY: OverlapRule = OverlapRule { seconds: 0.0, share: 0.0, is_of_annotation: true };

    fn found(all: &Annotations, path: &str, start: f64, end: f64, rule: OverlapRule) -> Vec<(String, f64)> {
        let mut found = Vec::new();
        all.overlapping(
            path,
            ClipSeconds { start, end, ..ClipSeconds::default() },
            rule,
            |label, overlap| {
                found.push((all.labels[label as usize].clone(), overlap));
            },
        );
        found
    }

    #[test]
    fn a_path_finds_its_annotations_by_its_end() {
        let all = Annotations::new(vec![
            annotation("site/a.wav", 0.0, 1.0, "owl"),
            annotation("a.wav", 0.0, 1.0, "wren"),
            annotation("b", 0.0, 1.0, "jay"),
        ])
        .unwrap();
        let label = |path| found(&all, path, 0.0, 5.0, ANY).first().map(|(label, _)| label.clone());
        assert_eq!(label("/data/site/a.wav").as_deref(), Some("owl"));
        assert_eq!(label("/data/other/a.wav").as_deref(), Some("wren"));
        assert_eq!(label("c\\b.flac").as_deref(), Some("jay"));
        assert_eq!((label("xa.wav"), label("c.wav"), label("")), (None, None, None));
        assert!(all.recording("b.wav").is_some() && all.recording("site").is_none());
    }

    #[test]
    fn seconds_that_overlap_count_once() {
        let all = [("a", 5.0, 7.0), ("a", 0.0, 2.0), ("a", 1.0, 4.0), ("a", 1.5, 2.5), ("b", 1.0, 1.5)];
        let all = all.map(|(path, start, end)| annotation(path, start, end, "x")).to_vec();
        let all = Annotations::new(all).unwrap();
        assert_eq!(["c/a.wav", "b", "c"].map(|path| all.seconds(path)), [6.0, 0.5, 0.0]);
    }

    #[test]
    fn how_much_must_overlap() {
        let all = Annotations::new(vec![annotation("a", 4.0, 8.0, "owl")]).unwrap();
        let is_in = |rule| !found(&all, "a", 0.0, 5.0, rule).is_empty();
        assert_eq!(found(&all, "a", 0.0, 5.0, ANY), [("owl".to_owned(), 1.0)]);
        assert!(is_in(OverlapRule { seconds: 1.0, ..ANY }) && !is_in(OverlapRule { seconds: 1.01, ..ANY }));
        assert!(is_in(OverlapRule { share: 0.25, ..ANY }) && !is_in(OverlapRule { share: 0.26, ..ANY }));
        let of_clip = OverlapRule { is_of_annotation: false, ..ANY };
        assert!(
            is_in(OverlapRule { share: 0.2, ..of_clip }) && !is_in(OverlapRule { share: 0.21, ..of_clip })
        );
        // Neither touches.
        assert!(found(&all, "a", 0.0, 4.0, ANY).is_empty() && found(&all, "a", 8.0, 9.0, ANY).is_empty());
        let instant = Annotations::new(vec![annotation("a", 4.0, 4.0, "owl")]).unwrap();
        assert!(found(&instant, "a", 0.0, 5.0, ANY).is_empty());
    }

    #[test]
    fn wrong_annotations_are_refused() {
        for (wrong, told) in [
            (annotation("a", 2.0, 1.0, "owl"), "from 2 to 1 s, must end after its start"),
            (annotation("a", f64::NAN, 1.0, "owl"), "from NaN to 1 s"),
            (annotation("", 0.0, 1.0, "owl"), "has no recording"),
            (annotation("a", 0.0, 1.0, ""), "has no label"),
        ] {
            let error = Annotations::new(vec![wrong]).unwrap_err();
            assert!(error.message.contains(told), "{error}");
        }
    }

    proptest! {
        /// Beside a look at all annotations.
        #[test]
        fn none_is_missed(all in prop::collection::vec((0_u32..3, 0_u32..100, 0_u32..40, 0_u32..4), 0..60), at in 0_u32..120, len in 1_u32..30) {
            let all: Vec<_> = all
                .into_iter()
                .map(|(path, start, len, label)| {
                    annotation(&path.to_string(), start.into(), (start + len).into(), &label.to_string())
                })
                .collect();
            let (start, end) = (f64::from(at), f64::from(at + len));
            let made = Annotations::new(all.clone()).unwrap();
            for path in ["0", "1", "2"] {
                let mut want: Vec<_> = all
                    .iter()
                    .filter(|one| one.path == path && one.start < end && one.end > start && one.end > one.start)
                    .map(|one| (one.label.clone(), one.end.min(end) - one.start.max(start)))
                    .collect();
                let mut found = found(&made, path, start, end, ANY);
                want.sort_by(|a, b| a.partial_cmp(b).unwrap());
                found.sort_by(|a, b| a.partial_cmp(b).unwrap());
                prop_assert_eq!(found, want);
            }
        }
    }
}
