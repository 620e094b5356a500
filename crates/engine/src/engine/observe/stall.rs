//! [`Stall`]: why a call waits for a batch, as a chain from the collator to the thread that does not
//! progress.
//!
//! A pure function of the states of all threads ([`Snapshot`]). The consumer waits for the collator, and the
//! collator for the row of its next draw. The thread that has this row works on it, or waits itself; if no
//! thread has it, it is in the channel or was not read. Each step is a link of the chain ([`Stall::links`]);
//! the last link names the thread that the others wait for.

use std::time::Duration;

use crate::{
    contract::TaskLabels,
    engine::observe::activity::{Role, State, ThreadState},
};

/// The states of a run's threads at one moment.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Snapshot {
    pub(crate) threads: Vec<ThreadState>,
    /// Records in the channel to the workers.
    pub(crate) n_queued: usize,
    /// The job whose turn it is to send.
    pub(crate) turn: u64,
    pub(crate) words: TaskLabels,
}

/// Why a call waits for a batch.
#[derive(Debug, Clone, PartialEq)]
pub struct Stall {
    pub batch: Option<u64>,
    /// How long the call has waited.
    pub waited: Duration,
    /// Which thread waits for which; the last link is the thread that does not progress.
    pub links: Vec<String>,
}

impl Stall {
    /// The stall of a snapshot; `None` if no call waits.
    pub(crate) fn of(now: &Snapshot) -> Option<Self> {
        let consumer = now.threads.iter().find(|thread| thread.state == State::Batch)?;
        Some(Self { batch: consumer.item, waited: consumer.since, links: now.links() })
    }

    /// The text of a log record: all links, for a call that has waited for `waited`.
    pub fn in_full(&self, waited: Duration) -> String {
        format!("{}: {}", self.waiting("has waited", waited), self.links.join("; "))
    }

    /// The text for one line: the last link only.
    pub fn in_short(&self) -> String {
        let last = self.links.last().map_or("", String::as_str);
        format!("{}: {last}", self.waiting("waits", self.waited))
    }

    fn waiting(&self, verb: &str, waited: Duration) -> String {
        let batch = self.batch.map_or("a batch".into(), |batch| format!("batch {batch}"));
        format!("next() {verb} {:.1} s for {batch}", waited.as_secs_f64())
    }
}

impl Snapshot {
    /// The links from the collator on.
    fn links(&self) -> Vec<String> {
        let mut links = Vec::new();
        let Some(collator) = self.threads.iter().find(|thread| thread.role == Role::Collator) else {
            return links;
        };
        let name = &collator.name;
        match (collator.state, collator.item) {
            (State::Example, Some(item)) => {
                links.push(format!("{name} waits for {} {item}", self.words.item))
            }
            (State::Example, None) => links.push(format!("{name} waits for an example")),
            (State::Substitute, _) => links.push(format!("{name} waits for a record in place of a bad one")),
            (State::Held, _) => links.push(format!("{name} waits for the documents that the state names")),
            _ => return vec![self.doing(collator)],
        }
        let holder = self.threads.iter().find(|thread| {
            [Role::Reader, Role::Worker].contains(&thread.role)
                && thread.item.is_some()
                && thread.item == collator.item
        });
        let mut culprit = match holder {
            Some(thread) if thread.is_busy() => Some(thread),
            Some(thread) => {
                links.push(format!("{} has it, and is {}", thread.name, thread.doing));
                self.in_the_way(thread, &mut links)
            }
            None => None,
        };
        if culprit.is_none() && self.n_queued > 0 {
            culprit = self.slowest(Role::Worker);
            if culprit.is_some() && holder.is_none() {
                links.push(format!("{} records wait for a worker", self.n_queued));
            }
        }
        let culprit = culprit.or_else(|| self.slowest(Role::Reader)).or_else(|| self.slowest(Role::Worker));
        links.push(match culprit {
            Some(thread) => self.doing(thread),
            None => "no thread was at work on it at that moment".into(),
        });
        links
    }

    /// The thread that a waiting I/O thread waits for.
    fn in_the_way(&self, waiting: &ThreadState, links: &mut Vec<String>) -> Option<&ThreadState> {
        let mut waiting = waiting;
        if waiting.state == State::Turn {
            let ahead = self.threads.iter().find(|thread| {
                thread.role == Role::Reader
                    && thread.detail == Some(self.turn)
                    && ![State::Turn, State::Credit].contains(&thread.state)
            })?;
            if ahead.is_busy() {
                return Some(ahead);
            }
            links.push(format!("{} has the turn, and is {}", ahead.name, ahead.doing));
            waiting = ahead;
        }
        match waiting.state {
            State::Channel | State::Memory => self.slowest(Role::Worker),
            _ => None,
        }
    }

    /// The thread of this role that has been busy with its item for the longest time.
    fn slowest(&self, role: Role) -> Option<&ThreadState> {
        let busy = self.threads.iter().filter(|thread| thread.role == role && thread.is_busy());
        busy.max_by_key(|thread| thread.since)
    }

    /// The last link: what the thread is doing.
    fn doing(&self, thread: &ThreadState) -> String {
        let ThreadState { name, state, doing, role, .. } = thread;
        let takes_items = [Role::Reader, Role::Worker].contains(role);
        let noun = if takes_items { self.words.item } else { "batch" };
        let item = thread.item.map(|item| format!("{noun} {item}"));
        let place = thread.place.as_ref().map(|(shard, row)| format!("row {row} of {}", shard.display()));
        let time = format!("for {:.1} s", thread.since.as_secs_f64());
        let of = |parts: [&Option<String>; 2]| {
            let parts: Vec<&str> = parts.into_iter().flatten().map(String::as_str).collect();
            if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) }
        };
        match (state, &item) {
            (State::Starting, _) => format!("{name} has not been started by the system {time}"),
            (State::Python, _) => {
                format!("{name} has been in a call of your Python code {time}{}", of([&item, &place]))
            }
            (State::Rows, _) => format!("{name} has been {doing} {time}{}", of([&item, &place])),
            (State::Reading | State::Working | State::Collating, Some(item)) => {
                format!("{name} has been {doing} {item} {time}{}", of([&None, &place]))
            }
            _ => format!("{name} has been {doing} {time}"),
        }
    }
}

impl ThreadState {
    /// Whether it works on an item, or waits for something outside of forebay.
    fn is_busy(&self) -> bool {
        matches!(self.state, State::Reading | State::Working | State::Python | State::Rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: TaskLabels = TaskLabels { work: "decoding", ..TaskLabels::DEFAULT };
    use std::sync::Arc;

    /// A thread that has been in `state` for some seconds.
    fn thread(name: &str, state: State, item: Option<u64>, seconds: u64) -> ThreadState {
        let role = match name {
            "consumer" => Role::Consumer,
            "forebay-collator" => Role::Collator,
            _ if name.starts_with("forebay-io") => Role::Reader,
            _ => Role::Worker,
        };
        ThreadState {
            name: name.into(),
            role,
            state,
            doing: state.name(&WORDS),
            since: Duration::from_secs(seconds),
            item,
            detail: None,
            place: item.map(|item| (Arc::new("a.arrow".into()), item % 1000)),
        }
    }

    /// A call waits for batch 17, the collator as given, with these I/O threads and workers.
    fn stall(collator: (State, Option<u64>), others: Vec<ThreadState>, n_queued: usize) -> String {
        let mut threads = others;
        threads.push(ThreadState { place: None, ..thread("forebay-collator", collator.0, collator.1, 30) });
        threads.push(ThreadState { place: None, ..thread("consumer", State::Batch, Some(17), 30) });
        let now = Snapshot { threads, n_queued, turn: 5, words: WORDS };
        let stall = Stall::of(&now).unwrap();
        assert!(stall.in_short().ends_with(stall.links.last().unwrap()));
        let text = stall.in_full(stall.waited);
        text.strip_prefix("next() has waited 30.0 s for batch 17: ").unwrap().to_owned()
    }

    const WAITS: &str = "forebay-collator waits for row 1234";

    fn idle() -> Vec<ThreadState> {
        vec![
            thread("forebay-io", State::Credit, None, 1),
            thread("forebay-worker-0", State::Record, None, 2),
            thread("forebay-worker-1", State::Parked, None, 90),
        ]
    }

    #[test]
    fn who_has_the_row_is_named() {
        for (name, state, said) in [
            (
                "forebay-worker-2",
                State::Working,
                "has been decoding row 1234 for 29.0 s (row 234 of a.arrow)",
            ),
            (
                "forebay-worker-2",
                State::Python,
                "has been in a call of your Python code for 29.0 s (row 1234, row 234 of a.arrow)",
            ),
            ("forebay-io-2", State::Reading, "has been reading row 1234 for 29.0 s (row 234 of a.arrow)"),
        ] {
            let mut others = idle();
            others.push(thread("forebay-io-1", State::Reading, Some(1001), 70));
            others.push(thread(name, state, Some(1234), 29));
            let text = stall((State::Example, Some(1234)), others, 3);
            assert_eq!(text, format!("{WAITS}; {name} {said}"));
        }
    }

    #[test]
    fn a_thread_with_the_row_that_waits_is_followed() {
        let busy = |name, since| thread(name, State::Working, Some(1100), since);
        for (state, n_queued) in [(State::Channel, 9), (State::Memory, 0)] {
            let others = vec![
                thread("forebay-io", state, Some(1234), 20),
                busy("forebay-worker-0", 5),
                busy("forebay-worker-1", 25),
            ];
            let doing = state.name(&WORDS);
            let text = stall((State::Example, Some(1234)), others, n_queued);
            let last = "forebay-worker-1 has been decoding row 1100 for 25.0 s (row 100 of a.arrow)";
            assert_eq!(text, format!("{WAITS}; forebay-io has it, and is {doing}; {last}"));
        }
    }

    #[test]
    fn a_turn_leads_to_the_thread_that_has_it() {
        let ahead = |state| ThreadState { detail: Some(5), ..thread("forebay-io-3", state, Some(1200), 28) };
        let behind = |state| {
            let mut others = idle();
            others.push(thread("forebay-io-1", State::Turn, Some(1234), 27));
            others.push(ThreadState {
                detail: Some(9),
                ..thread("forebay-io-2", State::Reading, Some(1300), 40)
            });
            others.push(ahead(state));
            others.push(thread("forebay-worker-2", State::Working, Some(1100), 26));
            stall((State::Example, Some(1234)), others, 0)
        };
        let begin = format!("{WAITS}; forebay-io-1 has it, and is waiting for its turn; ");
        let reading = "forebay-io-3 has been reading row 1200 for 28.0 s (row 200 of a.arrow)";
        assert_eq!(behind(State::Reading), format!("{begin}{reading}"));
        let full = "forebay-io-3 has the turn, and is waiting for room in the channel; \
                    forebay-worker-2 has been decoding row 1100 for 26.0 s (row 100 of a.arrow)";
        assert_eq!(behind(State::Channel), format!("{begin}{full}"));
    }

    #[test]
    fn a_row_that_no_thread_has_is_queued_or_not_read() {
        let mut others = idle();
        others.push(thread("forebay-io-1", State::Reading, Some(1001), 29));
        let reading = "forebay-io-1 has been reading row 1001 for 29.0 s (row 1 of a.arrow)";
        for collator in [(State::Example, Some(1234)), (State::Substitute, None), (State::Held, None)] {
            let text = stall(collator, others.clone(), 0);
            assert!(text.ends_with(&format!("; {reading}")), "{text}");
        }
        others.push(thread("forebay-worker-2", State::Working, Some(1100), 26));
        let text = stall((State::Example, Some(1234)), others, 7);
        let last = "forebay-worker-2 has been decoding row 1100 for 26.0 s (row 100 of a.arrow)";
        assert_eq!(text, format!("{WAITS}; 7 records wait for a worker; {last}"));
        let text = stall((State::Example, Some(1234)), idle(), 0);
        assert_eq!(text, format!("{WAITS}; no thread was at work on it at that moment"));
    }

    #[test]
    fn the_collator_itself_may_be_the_end() {
        let text = stall((State::Collating, Some(1017)), idle(), 0);
        assert_eq!(text, "forebay-collator has been collating batch 1017 for 30.0 s");
        let text = stall((State::Room, Some(1017)), idle(), 0);
        assert_eq!(text, "forebay-collator has been waiting for the loop (batches are ready) for 30.0 s");
        let text = stall((State::Starting, None), idle(), 0);
        assert_eq!(text, "forebay-collator has not been started by the system for 30.0 s");
    }

    #[test]
    fn without_a_call_there_is_no_stall() {
        let now = Snapshot { threads: idle(), n_queued: 0, turn: 0, words: WORDS };
        assert_eq!(Stall::of(&now), None);
    }
}
