//! [`Window`]: the shuffle window, which chooses the ticket of each draw before any record arrives.
//!
//! A window has `W` slots, filled with tickets `0..W`. Draw `k` takes the ticket in slot `hash(seed, stream,
//! k) · W / 2^64` and leaves ticket `W + k` there; once a finite stream has no more tickets, the slot is
//! removed (the last slot takes its place). A usual shuffle buffer picks among the examples that have
//! *arrived*, so its order depends on timing. Here every draw chooses among exactly `W` known tickets, fewer
//! at the end of a finite stream. The window at any `k` can be computed backwards ([`Window::at`]), so its
//! state is one number.
//!
//! The mean displacement of an example equals that of a classic shuffle buffer of size `W`: the time that a
//! ticket stays in its slot is geometric with mean `W`. Source: own; `docs/determinism.md` has the argument.

use crate::seed::{Purpose, below, hash};

/// The slots of one stream, before draw [`Window::draws`].
#[derive(Debug, Clone)]
pub struct Window {
    seed: u64,
    stream: u64,
    epoch: u64,
    end: Option<u64>,
    size: u64,
    draws: u64,
    slots: Vec<u64>,
}

impl Window {
    /// Creates a window of `size` slots (raised to 1, limited to `end`) over tickets `0..end`, or without
    /// end.
    ///
    /// `epoch` is the pass that the stream starts with; a finite pass starts a stream of its own.
    pub fn new(seed: u64, stream: u64, epoch: u64, size: u64, end: Option<u64>) -> Self {
        let size = size.max(1).min(end.unwrap_or(u64::MAX));
        Self { seed, stream, epoch, end, size, draws: 0, slots: (0..size).collect() }
    }

    /// Creates the same window before draw `draws`, without making the draws before it.
    ///
    /// Goes through the draws backwards until every slot was met: about `W ln W` steps, for any `draws`.
    pub fn at(seed: u64, stream: u64, epoch: u64, size: u64, end: Option<u64>, draws: u64) -> Self {
        let mut window = Self::new(seed, stream, epoch, size, end);
        let size = window.size;
        // While no slot was removed, draw k changes only slot `slot(k, W)`. So a slot holds the ticket that
        // the last draw from it left there.
        let open = end.map_or(draws, |end| draws.min(end - size));
        let mut left = size;
        // bounded: an eighth of the window itself, which `shuffle_min_size` and the rows bound.
        let mut met = vec![false; size as usize];
        for k in (0..open).rev() {
            let slot = window.slot(k, size);
            if !met[slot] {
                met[slot] = true;
                window.slots[slot] = size + k;
                left -= 1;
                if left == 0 {
                    break;
                }
            }
        }
        window.draws = open;
        while window.draws < draws && window.draw().is_some() {}
        window
    }

    /// Makes the next draw and returns its ticket; `None` at the end of a finite stream.
    pub fn draw(&mut self) -> Option<u64> {
        if self.slots.is_empty() {
            return None;
        }
        let slot = self.slot(self.draws, self.slots.len() as u64);
        let next = self.size + self.draws;
        self.draws += 1;
        if self.end.is_none_or(|end| next < end) {
            Some(std::mem::replace(&mut self.slots[slot], next))
        } else {
            Some(self.slots.swap_remove(slot))
        }
    }

    /// Ends the stream before ticket `end`, which may already be in a slot: for a stream whose length was
    /// unknown.
    pub(crate) fn end_at(&mut self, end: u64) {
        self.end = Some(end);
        self.slots.retain(|&ticket| ticket < end);
    }

    pub fn draws(&self) -> u64 {
        self.draws
    }

    /// `W`, the number of slots of the full window.
    pub fn size(&self) -> u64 {
        self.size
    }

    pub fn slots(&self) -> &[u64] {
        &self.slots
    }

    fn slot(&self, draw: u64, open: u64) -> usize {
        below(hash(self.seed, Purpose::Window, [self.stream, self.epoch, draw]), open) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_finite_stream_gives_every_ticket_once(seed: u64, epoch in 0u64..9, size in 0u64..40, end in 0u64..200) {
            let mut window = Window::new(seed, 0, epoch, size, Some(end));
            let mut drawn: Vec<u64> = std::iter::from_fn(|| window.draw()).collect();
            drawn.sort_unstable();
            prop_assert_eq!(drawn, (0..end).collect::<Vec<_>>());
        }

        #[test]
        fn at_equals_drawing(seed: u64, stream in 0u64..3, size in 0u64..40, draws in 0u64..300, end in proptest::option::of(0u64..200)) {
            let mut forward = Window::new(seed, stream, 1, size, end);
            for _ in 0..draws {
                forward.draw();
            }
            let mut jumped = Window::at(seed, stream, 1, size, end, draws);
            prop_assert_eq!(forward.slots(), jumped.slots());
            for _ in 0..50 {
                prop_assert_eq!(forward.draw(), jumped.draw());
            }
        }

        #[test]
        fn the_needed_ticket_is_within_reach(seed: u64, size in 1u64..50) {
            let mut window = Window::new(seed, 0, 0, size, None);
            for draw in 0..500 {
                let ticket = window.draw();
                prop_assert!(ticket.is_some_and(|t| t < draw + size), "draw {}: {:?}", draw, ticket);
            }
        }
    }

    #[test]
    fn one_slot_is_reading_order() {
        let mut window = Window::new(5, 0, 0, 0, Some(10));
        assert!((0..10).all(|ticket| window.draw() == Some(ticket)));
        assert_eq!(window.draw(), None);
    }

    /// Ticket t >= W enters its slot at draw t - W and stays for a geometric time X of mean W, so its
    /// displacement X - W has mean 0, and |X - W| has mean 2 W / e.
    #[test]
    fn displacement_is_that_of_a_window_of_its_size() {
        let size = 1000.0;
        let mut window = Window::new(3, 0, 0, 1000, None);
        let drawn: Vec<u64> = (0..200_000).filter_map(|_| window.draw()).collect();
        let settled =
            drawn.iter().enumerate().skip(20_000).map(|(draw, &ticket)| draw as f64 - ticket as f64);
        let n = (drawn.len() - 20_000) as f64;
        let (sum, absolute) = settled.fold((0.0, 0.0), |(sum, absolute), d| (sum + d, absolute + d.abs()));
        assert!((sum / n).abs() < 0.02 * size, "mean {}", sum / n);
        assert!((absolute / n - 2.0 * size / std::f64::consts::E).abs() < 0.02 * size, "{}", absolute / n);
    }

    #[test]
    fn jumping_far_is_quick() {
        let start = crate::patience::thread_time();
        let window = Window::at(0, 0, 0, 8000, None, 1 << 50);
        assert_eq!(window.slots().len(), 8000);
        let took = crate::patience::thread_time() - start;
        assert!(took.as_millis() < 500, "{took:?}");
    }
}
