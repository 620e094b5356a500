//! [`Admission`] chooses the ticket that an I/O thread fetches next: demand first, then reading order, never
//! beyond the credit.
//!
//! Draws are known in advance, so the first batch needs its own records and not a full window. After a start
//! a share of the admissions goes to the next missing tickets in draw order, the rest to reading order; the
//! share falls as the window fills. A ticket is admitted only while it is less than the credit ahead of the
//! draws, which bounds the data in flight. The credit begins with what keeps all threads at work, and doubles
//! when that was not enough ([`Admission::raise_credit`]). If the ticket in reading order is beyond the
//! credit, the consumer's next missing ticket is not: it is at most `draws + W - 1`. So the reader always
//! reaches the ticket that the consumer waits for, and no schedule can deadlock: `docs/design.md` has the
//! proof.

use std::collections::{BTreeSet, HashSet, VecDeque};

use crate::{engine::plan::Credit, order::Window};

/// What an I/O thread does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Fetch this ticket, out of turn.
    Demanded(u64),
    /// Fetch the listed tickets: a run in reading order.
    Run,
    /// Wait until the consumer has made so many draws, or an I/O thread has ended its run.
    Wait(u64),
    /// Every ticket of a finite stream was admitted.
    Done,
}

/// The cost of one ticket out of turn; each ticket of a run earns all, a third or a 15th of it.
const DEMAND: u64 = 15;
/// The largest step between two tickets of a run: rereading tickets admitted out of turn costs less than
/// another read.
const GAP: u64 = 3;

/// Which tickets of one stream were admitted and which are needed next.
#[derive(Debug)]
pub(crate) struct Admission {
    /// A copy of the consumer's window, ahead of it, to look up its next draws.
    window: Window,
    end: Option<u64>,
    credit: u64,
    most_credit: u64,
    look_ahead: usize,
    /// Whether tickets are fetched out of turn before the consumer waits for them.
    demand_first: bool,
    /// The credit for tickets out of turn; each costs [`DEMAND`].
    owed: u64,
    /// The tickets of the draws from `drawn` on that were looked up.
    plan: VecDeque<u64>,
    drawn: u64,
    /// Tickets that the window held at the start and that were not admitted since; all are below `in_order`.
    held: BTreeSet<u64>,
    first: u64,
    /// The next ticket in reading order, once `held` is empty.
    in_order: u64,
    /// Tickets from `in_order` on that were admitted out of turn.
    ahead: HashSet<u64>,
    admitted: u64,
}

impl Admission {
    /// `window` equals the consumer's. `credit` is raised to its size. With `demand_first`, the next
    /// `look_ahead` draws count as demanded, the first third of them before everything else.
    pub(crate) fn new(
        window: Window,
        end: Option<u64>,
        credit: Credit,
        look_ahead: usize,
        demand_first: bool,
    ) -> Self {
        let first = (window.size() + window.draws()).min(end.unwrap_or(u64::MAX));
        let look_ahead = look_ahead.max(1);
        Self {
            drawn: window.draws(),
            held: window.slots().iter().copied().collect(),
            demand_first: demand_first && window.size() > 1,
            owed: DEMAND * look_ahead.div_ceil(3) as u64,
            credit: credit.first.max(window.size()),
            most_credit: credit.most.max(credit.first).max(window.size()),
            window,
            end,
            look_ahead,
            plan: VecDeque::new(),
            first,
            in_order: first,
            ahead: HashSet::new(),
            admitted: 0,
        }
    }

    /// Chooses the tickets to fetch after `draws` draws, and counts them as admitted. `best` gives the best
    /// length of a run for its first ticket; the run's tickets are appended to `tickets`. Without `best` no
    /// run may begin now.
    pub(crate) fn next(
        &mut self,
        draws: u64,
        best: Option<impl FnOnce(u64) -> u64>,
        tickets: &mut Vec<u64>,
    ) -> Next {
        // `window` is ahead of the consumer by the draws in `plan`; one that was not looked up is made now.
        while self.drawn < draws {
            if self.plan.pop_front().is_none() {
                self.window.draw();
            }
            self.drawn += 1;
        }
        if self.fills()
            && (self.owed >= DEMAND || best.is_none())
            && let Some(ticket) = self.missing(self.look_ahead).filter(|&ticket| self.has_credit(ticket))
        {
            self.owed = self.owed.saturating_sub(DEMAND);
            return Next::Demanded(self.admit(ticket));
        }
        let Some(ticket) = self.turn() else { return Next::Done };
        // A run begins when there is credit for all of it; else each ticket would cost a read.
        let last = best.map(|best| {
            // Not negative: credit begins with the window's size or more, and only grows. Half of the rest
            // leaves credit for a second run.
            let longest = (self.credit - self.window.size()) / 2;
            let last = ticket.saturating_add(best(ticket).min(longest).max(1) - 1);
            last.min(self.end.map_or(u64::MAX, |end| end - 1))
        });
        if let Some(last) = last.filter(|&last| self.has_credit(last)) {
            return self.run(ticket, last, tickets);
        }
        // The next draw's ticket is at most `draws + W - 1`, and so always within the credit: no deadlock.
        match self.missing(1) {
            // The ticket that the consumer waits for is within the credit, so the run is not empty.
            Some(missing) if last.is_some() && missing == ticket => {
                self.run(ticket, self.drawn.saturating_add(self.credit) - 1, tickets)
            }
            Some(missing) => Next::Demanded(self.admit(missing)),
            None => {
                // Until there is credit for all of the run, or until a draw whose ticket was not admitted is
                // next.
                let run = last.map_or(u64::MAX, |last| (last + 1).saturating_sub(self.credit));
                Next::Wait(run.min(self.drawn + self.n_under_way()))
            }
        }
    }

    /// Doubles the credit beyond the window, up to its maximum; false if that was reached before.
    pub(crate) fn raise_credit(&mut self) -> bool {
        let before = self.credit;
        // At least 1, so that credit equal to the window grows, too.
        let spare = (before - self.window.size()).max(1);
        self.credit = before.saturating_add(spare).min(self.most_credit);
        self.credit > before
    }

    /// Whether a ticket in reading order may be fetched after `draws` draws.
    pub(crate) fn is_ready(&self, draws: u64) -> bool {
        self.held.first().is_some_and(|&ticket| ticket < draws.saturating_add(self.credit))
            || self.in_order < draws.saturating_add(self.credit).min(self.end.unwrap_or(u64::MAX))
    }

    fn has_credit(&self, ticket: u64) -> bool {
        ticket < self.drawn.saturating_add(self.credit)
    }

    /// Whether the window still fills, so that a share of the admissions goes to the consumer's next draws.
    pub(crate) fn fills(&self) -> bool {
        self.demand_first && self.admitted / self.window.size().max(1) < 4
    }

    /// The next ticket in reading order.
    fn turn(&mut self) -> Option<u64> {
        if let Some(&ticket) = self.held.first() {
            return Some(ticket);
        }
        // A ticket that is passed here needs no entry any more.
        while self.ahead.remove(&self.in_order) {
            self.in_order += 1;
        }
        self.end.is_none_or(|end| self.in_order < end).then_some(self.in_order)
    }

    /// Admits the missing tickets from `ticket` to `last`, up to the first gap.
    fn run(&mut self, ticket: u64, last: u64, tickets: &mut Vec<u64>) -> Next {
        let size = self.window.size().max(1);
        // By windows admitted so far: the fuller the window, the fewer tickets go out of turn.
        let owed = match self.admitted / size {
            0 => DEMAND,
            1 => DEMAND / 3,
            _ => DEMAND / 15,
        };
        let mut previous = ticket;
        for ticket in ticket..=last {
            if ticket - previous > GAP {
                break;
            }
            if self.is_missing(ticket) {
                self.admit(ticket);
                tickets.push(ticket);
                previous = ticket;
            }
        }
        if self.demand_first {
            self.owed = (self.owed + owed * tickets.len() as u64).min(DEMAND * self.look_ahead as u64);
        }
        Next::Run
    }

    fn is_missing(&self, ticket: u64) -> bool {
        if ticket < self.first {
            self.held.contains(&ticket)
        } else {
            ticket >= self.in_order
                && !self.ahead.contains(&ticket)
                && self.end.is_none_or(|end| ticket < end)
        }
    }

    /// Looks up the tickets of the next `depth` draws.
    fn look_up(&mut self, depth: usize) {
        while self.plan.len() < depth
            && let Some(ticket) = self.window.draw()
        {
            self.plan.push_back(ticket);
        }
    }

    /// The first ticket among the next `depth` draws that was not admitted.
    fn missing(&mut self, depth: usize) -> Option<u64> {
        self.look_up(depth);
        self.plan.iter().take(depth).copied().find(|&ticket| self.is_missing(ticket))
    }

    /// How many of the next draws have admitted tickets, at least 1 and at most `look_ahead`.
    fn n_under_way(&mut self) -> u64 {
        self.look_up(self.look_ahead);
        // At least 1: a wait that ends at once would be a loop without sleep.
        self.plan.iter().take_while(|&&ticket| !self.is_missing(ticket)).count().max(1) as u64
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

    fn fixed(credit: u64) -> Credit {
        Credit { first: credit, most: credit }
    }

    /// Runs the reader against a consumer that draws as soon as its ticket was admitted `lag` admissions ago.
    /// The credit is raised before the turns in `raises`.
    fn run(
        mut admission: Admission,
        mut window: Window,
        draws: usize,
        lag: usize,
        block: u64,
        busy: usize,
        raises: &[usize],
    ) -> Result<(Vec<u64>, usize), String> {
        let (mut queue, mut inside, mut drawn) = (VecDeque::new(), HashSet::new(), Vec::new());
        let (mut tickets, mut turns) = (Vec::new(), 0);
        let (mut admissions, mut wanted, mut made) = (0, window.draw(), window.draws() - 1);
        while let Some(ticket) = wanted.filter(|_| drawn.len() < draws) {
            if inside.remove(&ticket) {
                drawn.push(ticket);
                made += 1;
                wanted = window.draw();
                continue;
            }
            tickets.clear();
            turns += 1;
            if raises.contains(&turns) {
                let before = admission.credit;
                let is_raised = admission.raise_credit();
                if is_raised != (admission.credit > before) || admission.credit > admission.most_credit {
                    return Err(format!("raised from {before} to {}", admission.credit));
                }
            }
            // Except in every so many turns, all runs are in progress.
            let best = (busy == 0 || turns % (busy + 1) != 0).then_some(|_| block);
            match admission.next(made, best, &mut tickets) {
                Next::Demanded(t) => tickets.push(t),
                Next::Run if tickets.is_empty() => return Err(format!("nothing to fetch at draw {made}")),
                Next::Run => {}
                Next::Wait(_) | Next::Done if queue.is_empty() => {
                    if best.is_some() {
                        return Err(format!("deadlock at draw {made}"));
                    }
                }
                Next::Wait(_) | Next::Done => inside.extend(queue.drain(..)),
            }
            for &t in &tickets {
                if t >= made + admission.credit {
                    return Err(format!("ticket {t} at draw {made} is beyond the credit"));
                }
                admissions += 1;
                queue.push_back(t);
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
            demand: bool, block in 0u64..30, busy in 0usize..4, start in 0u64..200, end in proptest::option::of(1u64..300),
            raises in proptest::collection::vec(1usize..50, 0..4),
        ) {
            // Before the end, so that there is a ticket.
            let start = start.min(end.unwrap_or(u64::MAX) - 1);
            let window = || Window::at(seed, 0, 0, size, end, start);
            let mut oracle = window();
            let expected: Vec<u64> = std::iter::from_fn(|| oracle.draw()).take(400).collect();
            prop_assert!(!expected.is_empty());
            let first = window().size() + spare;
            let credit = Credit { first, most: first + raises.len() as u64 * spare };
            let admission = Admission::new(window(), end, credit, look, demand);
            let (drawn, admissions) =
                run(admission, window(), 400, lag, block, busy, &raises).map_err(TestCaseError::fail)?;
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
            let admission = Admission::new(window(), Some(10_000), fixed(10_000), 192, true);
            let (_, admissions) = run(admission, window(), 64, 0, 10, 0, &[]).unwrap();
            assert!(admissions <= 2 * 64, "{admissions}");
        }
    }

    #[test]
    fn a_run_waits_for_credit_for_all_of_it() {
        let mut admission = Admission::new(Window::new(1, 0, 0, 1, None), None, fixed(21), 6, true);
        let mut run = Vec::new();
        let mut next = |draws| {
            run.clear();
            let next = admission.next(draws, Some(|_| 8), &mut run);
            (next, run.clone())
        };
        assert_eq!(next(0), (Next::Run, (0..8).collect()));
        assert_eq!(next(0), (Next::Run, (8..16).collect()));
        // All tickets within `look_ahead` were admitted.
        assert_eq!(next(0), (Next::Wait(3), vec![]));
        assert_eq!(next(3), (Next::Run, (16..24).collect()));
    }

    #[test]
    fn no_wait_is_longer_than_there_is_nothing_to_do() {
        let mut admission = Admission::new(Window::new(1, 0, 0, 50, None), None, fixed(100), 6, false);
        let mut draws = 0;
        let mut waits = 0;
        while draws < 500 {
            let mut run = Vec::new();
            if let Next::Wait(until) = admission.next(draws, Some(|_| 9), &mut run) {
                assert!(until > draws);
                waits += 1;
                for draws in draws + 1..until {
                    assert!(matches!(admission.next(draws, Some(|_| 9), &mut run), Next::Wait(_)));
                }
                draws = until;
            }
        }
        assert!(waits > 10, "{waits}");
    }

    #[test]
    fn credit_beyond_the_window_doubles_up_to_the_maximum() {
        let window = Window::new(1, 0, 0, 10, None);
        let mut admission = Admission::new(window, None, Credit { first: 12, most: 17 }, 6, false);
        let credit: Vec<_> = (0..3).map(|_| (admission.raise_credit(), admission.credit)).collect();
        assert_eq!(credit, [(true, 14), (true, 17), (false, 17)]);
        let mut last = 0;
        while let Next::Demanded(ticket) = admission.next(0, None::<fn(u64) -> u64>, &mut Vec::new()) {
            last = last.max(ticket);
        }
        assert!(last < 17, "{last}");
    }

    #[test]
    fn a_stream_without_tickets_is_done() {
        for demand_first in [false, true] {
            let mut admission =
                Admission::new(Window::new(1, 0, 0, 10, Some(0)), Some(0), fixed(5), 3, demand_first);
            assert_eq!(admission.next(0, Some(|_| 1), &mut Vec::new()), Next::Done);
        }
    }

    #[test]
    fn all_tickets_are_admitted_once() {
        let window = Window::new(1, 0, 0, 10, Some(100));
        let mut admission = Admission::new(window, Some(100), fixed(1000), 20, true);
        let (mut seen, mut run) = (Vec::new(), Vec::new());
        loop {
            match admission.next(0, Some(|_| 7), &mut run) {
                Next::Demanded(ticket) => seen.push(ticket),
                Next::Run => seen.append(&mut run),
                next => break assert_eq!(next, Next::Done),
            }
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..100).collect::<Vec<_>>());
    }
}
