//! `ConcurrentShuffleBuffer`. Waits have no time-out here, so a missing wake-up shows as a deadlock.

use std::time::Duration;

use forebay_engine::{
    order::Window,
    shuffle::{ConcurrentShuffleBuffer, Popped},
};
use loom::{sync::Arc, thread};

const LONG: Duration = Duration::from_secs(3600);

/// Pushes `tickets`; returns those that were accepted.
fn pusher(
    buffer: &Arc<ConcurrentShuffleBuffer<u64>>,
    tickets: impl IntoIterator<Item = u64> + 'static,
) -> thread::JoinHandle<Vec<u64>> {
    let buffer = buffer.clone();
    thread::spawn(move || tickets.into_iter().filter(|&ticket| buffer.push(ticket, Ok(ticket))).collect())
}

#[test]
fn the_order_does_not_depend_on_who_pushes_when() {
    super::check(|| {
        let window = Window::new(7, 0, 0, 2, Some(4));
        let mut oracle = window.clone();
        let buffer = Arc::new(ConcurrentShuffleBuffer::over(2, window).unwrap());
        let pushers = [pusher(&buffer, [0, 2]), pusher(&buffer, [1, 3])];
        while let Some(expected) = oracle.draw() {
            assert!(matches!(buffer.try_pop(LONG), Popped::Item(ticket) if ticket == expected));
        }
        assert!(matches!(buffer.try_pop(LONG), Popped::Finished));
        assert_eq!(pushers.map(|pusher| pusher.join().unwrap()), [[0, 2], [1, 3]]);
    });
}

#[test]
fn close_wakes_both_sides() {
    super::check(|| {
        let buffer = Arc::new(ConcurrentShuffleBuffer::new(1, 1, 0).unwrap());
        let pusher = pusher(&buffer, [5]);
        let popper = thread::spawn({
            let buffer = buffer.clone();
            move || buffer.try_pop(LONG)
        });
        buffer.close();
        assert!(pusher.join().unwrap().is_empty());
        assert!(matches!(popper.join().unwrap(), Popped::Closed));
    });
}

#[test]
fn what_was_taken_before_the_close_comes_out() {
    super::check(|| {
        let buffer = Arc::new(ConcurrentShuffleBuffer::new(2, 2, 1).unwrap());
        let pushers = [pusher(&buffer, [0, 2]), pusher(&buffer, [1])];
        let popper = thread::spawn({
            let buffer = buffer.clone();
            move || {
                let mut popped = Vec::new();
                while let Popped::Item(ticket) = buffer.try_pop(LONG) {
                    popped.push(ticket);
                }
                popped.sort_unstable();
                popped
            }
        });
        buffer.close();
        let mut taken = pushers.map(|pusher| pusher.join().unwrap()).concat();
        taken.sort_unstable();
        assert_eq!(popper.join().unwrap(), taken);
        assert!(matches!(buffer.try_pop(LONG), Popped::Closed));
    });
}
