//! Which ticket the reader fetches next: demand first, then reading order, never beyond the credit.
//!
//! Draws are known in advance, so the first batch needs its own records and not a full window. After a start a share of the
//! admissions goes to the next missing tickets in draw order, the rest to reading order; the share falls as the window fills.
//! A ticket is admitted while it is less than `credit` ahead of the draws, which bounds what is in flight. If the ticket in
//! reading order is beyond the credit, the consumer's next missing ticket is not: it is at most `draws + W - 1`. So the reader
//! always reaches what the consumer waits for, and no schedule can deadlock: `docs/design.md` has the whole argument.

use std::collections::{BTreeSet, HashSet, VecDeque};

use crate::order::Window;

/// What the reader is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Fetch this ticket, out of turn.
    Demanded(u64),
    /// Fetch this ticket; the tickets behind it follow.
    InOrder(u64),
    /// Nothing is admissible before the next draw.
    Wait,
    /// Every ticket of a finite stream was admitted.
    Done,
}

/// The reader's account of one stream.
#[derive(Debug)]
pub struct Admission {
    /// Runs ahead of the consumer's window to see what it will draw.
    window: Window,
    end: Option<u64>,
    credit: u64,
    look_ahead: usize,
    demand_first: bool,
    /// The tickets of the draws from `drawn` on, as far as they were looked up.
    plan: VecDeque<u64>,
    drawn: u64,
    /// Tickets below `in_order` that the window held at the start and that were not admitted since.
    held: BTreeSet<u64>,
    first: u64,
    /// The ticket whose turn in reading order comes next, once `held` is empty.
    in_order: u64,
    /// Tickets from `in_order` on that were admitted out of turn.
    ahead: HashSet<u64>,
    admitted: u64,
}

impl Admission {
    /// `window` stands where the consumer's stands. `credit` is at least its size; the next `look_ahead` draws count as demanded.
    pub fn new(window: Window, end: Option<u64>, credit: u64, look_ahead: usize, demand_first: bool) -> Self {
        let first = (window.size() + window.draws()).min(end.unwrap_or(u64::MAX));
        Self {
            drawn: window.draws(),
            held: window.slots().iter().copied().collect(),
            demand_first: demand_first && window.size() > 1,
            credit: credit.max(window.size()),
            window,
            end,
            look_ahead: look_ahead.max(1),
            plan: VecDeque::new(),
            first,
            in_order: first,
            ahead: HashSet::new(),
            admitted: 0,
        }
    }

    /// Chooses a ticket, given that `draws` draws were made, and counts it as admitted.
    pub fn next(&mut self, draws: u64) -> Next {
        while self.drawn < draws {
            if self.plan.pop_front().is_none() {
                self.window.draw();
            }
            self.drawn += 1;
        }
        if self.is_demand_turn()
            && let Some(ticket) = self.missing(self.look_ahead).filter(|&ticket| self.has_credit(ticket))
        {
            return Next::Demanded(self.admit(ticket));
        }
        let Some(ticket) = self.turn() else { return Next::Done };
        if self.has_credit(ticket) {
            return Next::InOrder(self.admit(ticket));
        }
        match self.missing(1) {
            Some(ticket) => Next::Demanded(self.admit(ticket)),
            None => Next::Wait,
        }
    }

    fn has_credit(&self, ticket: u64) -> bool {
        ticket < self.drawn.saturating_add(self.credit)
    }

    fn is_demand_turn(&self) -> bool {
        // So the window is not empty either.
        if !self.demand_first {
            return false;
        }
        let size = self.window.size();
        let share = match self.admitted / size {
            0 => 2,
            1 => 4,
            2 | 3 => 16,
            _ => return false,
        };
        self.admitted.is_multiple_of(share)
    }

    /// The ticket whose turn it is in reading order.
    fn turn(&mut self) -> Option<u64> {
        if let Some(&ticket) = self.held.first() {
            return Some(ticket);
        }
        while self.ahead.remove(&self.in_order) {
            self.in_order += 1;
        }
        self.end.is_none_or(|end| self.in_order < end).then_some(self.in_order)
    }

    /// The first ticket among the next `depth` draws that was not admitted.
    fn missing(&mut self, depth: usize) -> Option<u64> {
        while self.plan.len() < depth
            && let Some(ticket) = self.window.draw()
        {
            self.plan.push_back(ticket);
        }
        self.plan.iter().take(depth).copied().find(|ticket| {
            if *ticket < self.first {
                self.held.contains(ticket)
            } else {
                *ticket >= self.in_order && !self.ahead.contains(ticket)
            }
        })
    }

    fn admit(&mut self, ticket: u64) -> u64 {
        self.admitted += 1;
        if !self.held.remove(&ticket) {
            if ticket == self.in_order {
                self.in_order += 1;
            } else {
                self.ahead.insert(ticket);
            }
        }
        ticket
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Runs the reader against a consumer that draws as soon as its ticket was admitted `lag` admissions ago.
    fn run(
        mut admission: Admission,
        mut window: Window,
        draws: usize,
        lag: usize,
    ) -> Result<(Vec<u64>, usize), String> {
        let (mut queue, mut inside, mut drawn) = (VecDeque::new(), HashSet::new(), Vec::new());
        let (mut admissions, mut wanted, mut made) = (0, window.draw(), window.draws() - 1);
        while let Some(ticket) = wanted.filter(|_| drawn.len() < draws) {
            if inside.remove(&ticket) {
                drawn.push(ticket);
                made += 1;
                wanted = window.draw();
                continue;
            }
            match admission.next(made) {
                Next::Demanded(t) | Next::InOrder(t) => {
                    if t >= made + admission.credit {
                        return Err(format!("ticket {t} at draw {made} is beyond the credit"));
                    }
                    admissions += 1;
                    queue.push_back(t);
                }
                Next::Wait | Next::Done if queue.is_empty() => {
                    return Err(format!("deadlock at draw {made}"));
                }
                Next::Wait | Next::Done => inside.extend(queue.drain(..)),
            }
            while queue.len() > lag {
                inside.extend(queue.pop_front());
            }
        }
        Ok((drawn, admissions))
    }

    proptest! {
        #[test]
        fn whatever_the_schedule_the_consumer_gets_its_ticket(
            seed: u64, size in 0u64..60, spare in 0u64..80, look in 0usize..40, lag in 0usize..30,
            demand: bool, start in 0u64..200, end in proptest::option::of(1u64..300),
        ) {
            let start = start.min(end.unwrap_or(u64::MAX));
            let window = || Window::at(seed, 0, 0, size, end, start);
            let mut oracle = window();
            let expected: Vec<u64> = std::iter::from_fn(|| oracle.draw()).take(400).collect();
            prop_assume!(!expected.is_empty());
            let admission = Admission::new(window(), end, window().size() + spare, look, demand);
            let (drawn, admissions) = run(admission, window(), 400, lag).map_err(TestCaseError::fail)?;
            prop_assert_eq!(&drawn, &expected);
            if end.is_some() {
                prop_assert!(admissions <= expected.len(), "a ticket was admitted twice");
            }
        }
    }

    #[test]
    fn the_first_batch_needs_two_batches_of_admissions() {
        for seed in 0..20 {
            let window = || Window::new(seed, 0, 0, 8000, Some(10_000));
            let admission = Admission::new(window(), Some(10_000), 10_000, 192, true);
            let (_, admissions) = run(admission, window(), 64, 0).unwrap();
            assert!(admissions <= 2 * 64, "{admissions}");
        }
    }

    #[test]
    fn a_stream_without_tickets_is_done() {
        for demand_first in [false, true] {
            let mut admission =
                Admission::new(Window::new(1, 0, 0, 10, Some(0)), Some(0), 5, 3, demand_first);
            assert_eq!(admission.next(0), Next::Done);
        }
    }

    #[test]
    fn all_tickets_are_admitted_once() {
        let window = Window::new(1, 0, 0, 10, Some(100));
        let mut admission = Admission::new(window, Some(100), 1000, 20, true);
        let mut seen = Vec::new();
        while let Next::Demanded(ticket) | Next::InOrder(ticket) = admission.next(0) {
            seen.push(ticket);
        }
        assert_eq!(admission.next(0), Next::Done);
        seen.sort_unstable();
        assert_eq!(seen, (0..100).collect::<Vec<_>>());
    }
}
