//! The waits of the pipeline's threads: turns, the budget of bytes, the crew, and all of them when a run is
//! stopped.
//!
//! A missing wake-up shows as a deadlock.

use std::time::Duration;

use forebay_engine::{
    contract::{GrantedMemory, Kept},
    engine::{ChannelLimit, Parking, Sequencer},
    order::Window,
    shuffle::{ConcurrentShuffleBuffer, Popped},
};
use loom::{
    sync::{Arc, Mutex},
    thread,
};

const LONG: Duration = Duration::from_secs(3600);

/// Runs `work` on a thread of its own with `shared`.
fn beside<S: Send + Sync + 'static, T: 'static>(
    shared: &Arc<S>,
    work: impl FnOnce(&S) -> T + 'static,
) -> thread::JoinHandle<T> {
    let shared = shared.clone();
    thread::spawn(move || work(&shared))
}

#[test]
fn turns_come_in_order() {
    super::check(|| {
        let shared = Arc::new((Sequencer::default(), Mutex::new(Vec::new())));
        let take = |run| {
            move |(sequencer, order): &(Sequencer, Mutex<Vec<u64>>)| {
                assert!(sequencer.wait(run));
                order.lock().unwrap().push(run);
                sequencer.pass(run);
            }
        };
        let others = [2, 1].map(|run| beside(&shared, take(run)));
        take(0)(&shared);
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(*shared.1.lock().unwrap(), [0, 1, 2]);
    });
}

#[test]
fn a_turn_that_never_comes_ends_with_close() {
    super::check(|| {
        let sequencer = Arc::new(Sequencer::default());
        let waiters = [1, 2].map(|run| beside(&sequencer, move |sequencer| sequencer.wait(run)));
        sequencer.close();
        assert_eq!(waiters.map(|waiter| waiter.join().unwrap()), [false; 2]);
    });
}

#[test]
fn released_bytes_wake_a_waiting_thread() {
    super::check(|| {
        let channel_limit = Arc::new(ChannelLimit::new(1, 8, 2));
        assert!(channel_limit.acquire(1, 0));
        let others = [1, 2].map(|bytes| {
            beside(&channel_limit, move |channel_limit| {
                assert!(channel_limit.acquire(bytes, 0));
                channel_limit.release(bytes);
            })
        });
        channel_limit.release(1);
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(channel_limit.held(), (0, 0));
    });
}

/// Two jobs with a record each that is larger than the budget, and one request out of turn. A thread that
/// reads ahead waits for its turn with its granted bytes parked. No thread waits for bytes released after its
/// own turn.
#[test]
fn bytes_are_granted_despite_read_ahead() {
    super::check(|| {
        let shared = Arc::new((std::sync::Arc::new(ChannelLimit::new(8, 8, 2)), Sequencer::default()));
        let job = |number, sizes: [usize; 2]| {
            move |(channel_limit, sequencer): &(std::sync::Arc<ChannelLimit>, Sequencer)| {
                let mut hand = Vec::new();
                let mut own = 0;
                for size in sizes.into_iter().filter(|&size| size > 0) {
                    let is_ahead = !sequencer.has_come(number);
                    let parked = is_ahead.then(|| channel_limit.park(size)).flatten();
                    hand.push((
                        parked.is_some(),
                        parked.unwrap_or_else(|| {
                            assert!(sequencer.wait(number));
                            let permit = channel_limit.admit(size, own).unwrap();
                            own += size;
                            permit
                        }),
                    ));
                }
                assert!(sequencer.wait(number));
                for (is_parked, permit) in hand {
                    // Stands for sending and processing the record.
                    if is_parked {
                        permit.release();
                    }
                }
                sequencer.pass(number);
            }
        };
        let ahead = beside(&shared, job(1, [4, 9]));
        let aside = beside(&shared, |(channel_limit, _)| drop(channel_limit.admit(20, 0).unwrap()));
        job(0, [10, 0])(&shared);
        ahead.join().unwrap();
        aside.join().unwrap();
        assert_eq!(shared.0.held(), (0, 0));
    });
}

/// A thread sends a record and keeps it for a copy, while it and another thread request more bytes than there
/// are: what it keeps is not waited for, and the thread that waits already learns of it.
#[test]
fn bytes_are_granted_despite_a_record_that_is_kept() {
    super::check(|| {
        let channel_limit = Arc::new(std::sync::Arc::new(ChannelLimit::new(8, 8, 2)));
        let record = channel_limit.admit(6, 0).unwrap();
        let other = beside(&channel_limit, |channel_limit| drop(channel_limit.admit(9, 0).unwrap()));
        let kept = Kept::new(record.clone());
        let worker = thread::spawn(move || drop(record));
        drop(channel_limit.admit(20, 0).unwrap());
        other.join().unwrap();
        drop(kept);
        worker.join().unwrap();
        assert_eq!(channel_limit.held(), (0, 0));
    });
}

/// A large and a small request for bytes, queued one after the other; closing wakes both.
#[test]
fn a_queue_of_requests_advances_and_ends_with_close() {
    for closes in [false, true] {
        super::check(move || {
            let channel_limit = Arc::new(std::sync::Arc::new(ChannelLimit::new(4, 8, 2)));
            let first = channel_limit.admit(3, 0).unwrap();
            let others = [9, 2].map(|bytes| {
                beside(&channel_limit, move |channel_limit: &std::sync::Arc<ChannelLimit>| {
                    channel_limit.admit(bytes, 0).is_some()
                })
            });
            if closes {
                channel_limit.close();
            } else {
                drop(first);
            }
            others.into_iter().for_each(|other| assert!(other.join().unwrap() || closes));
        });
    }
}

/// A channel of one record, and a sender that is parked while it is full, as in `Reader::send`.
#[test]
fn a_sender_parked_at_a_full_channel_continues() {
    super::check(|| {
        let shared = Arc::new((ChannelLimit::new(100, 1, 1), Mutex::new(None)));
        let sender = beside(&shared, |(channel_limit, channel)| {
            for record in 0..2 {
                assert!(channel_limit.acquire(1, 0));
                let mut released = 0;
                loop {
                    let mut place = channel.lock().unwrap();
                    if place.is_none() {
                        *place = Some(record);
                        break;
                    }
                    drop(place);
                    assert!(channel_limit.rest(released));
                    released = channel_limit.released();
                }
            }
        });
        let mut received = Vec::new();
        while received.len() < 2 {
            match shared.1.lock().unwrap().take() {
                Some(record) => {
                    received.push(record);
                    shared.0.release(1);
                }
                None => thread::yield_now(),
            }
        }
        sender.join().unwrap();
        assert_eq!(received, [0, 1]);
    });
}

/// Three places, and two readers that take a place before they take one of four tickets, as in `Reader::run`:
/// no thread waits forever, the channel never has more records than places, and all places are returned.
#[test]
fn places_bound_the_channel() {
    super::check(|| {
        let shared = Arc::new((ChannelLimit::new(100, 1, 2), Mutex::new((0, Vec::new()))));
        let readers = [1, 2].map(|_| {
            beside(&shared, |(channel_limit, state)| {
                while channel_limit.try_place() || channel_limit.place() {
                    let mut state = state.lock().unwrap();
                    let ticket = state.0;
                    if ticket == 4 {
                        drop(state);
                        channel_limit.vacate();
                        return;
                    }
                    state.0 += 1;
                    assert!(channel_limit.try_acquire(1, 0));
                    state.1.push(ticket);
                    assert!(state.1.len() <= 3, "more records than places");
                }
            })
        });
        let mut received = 0;
        while received < 4 {
            let popped = shared.1.lock().unwrap().1.pop();
            match popped {
                Some(_) => {
                    received += 1;
                    shared.0.release(1);
                }
                None => thread::yield_now(),
            }
        }
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        assert_eq!(shared.0.held(), (0, 0));
        assert_eq!((0..3).filter(|_| shared.0.try_place()).count(), 3, "a place is lost");
        assert!(!shared.0.try_place());
    });
}

/// A reader that has read its record sends it although no record is taken from the channel meanwhile: the
/// consumer may wait for exactly this one.
#[test]
fn a_record_that_was_read_needs_no_release() {
    super::check(|| {
        let shared = Arc::new((ChannelLimit::new(100, 1, 2), Mutex::new(Vec::new()), Mutex::new(0)));
        let reader = |is_first: bool| {
            move |(channel_limit, channel, next): &(ChannelLimit, Mutex<Vec<u32>>, Mutex<u32>)| {
                for _ in 0..2 {
                    if !(channel_limit.try_place() || channel_limit.place()) {
                        return;
                    }
                    let ticket = {
                        let mut next = next.lock().unwrap();
                        *next += 1;
                        *next
                    };
                    // Stands for the read.
                    thread::yield_now();
                    let is_open = channel_limit.try_acquire(1, 0);
                    assert!(is_open || !is_first, "closed after the first reader's end");
                    if !is_open {
                        return;
                    }
                    channel.lock().unwrap().push(ticket);
                    if is_first {
                        return;
                    }
                }
            }
        };
        let first = beside(&shared, reader(true));
        let other = beside(&shared, reader(false));
        // Nothing is taken from the channel until the first reader has sent its record.
        first.join().unwrap();
        let taken = shared.1.lock().unwrap().pop();
        assert!(taken.is_some());
        shared.0.release(1);
        shared.0.close();
        other.join().unwrap();
    });
}

/// Closing wakes a thread that waits for a place.
#[test]
fn a_thread_without_a_place_ends_with_close() {
    super::check(|| {
        let channel_limit = Arc::new(ChannelLimit::new(100, 1, 1));
        assert!(channel_limit.try_place() && channel_limit.try_place());
        let waiters = [1, 2].map(|_| beside(&channel_limit, ChannelLimit::place));
        channel_limit.vacate();
        channel_limit.close();
        // One of them may have had the place that was returned.
        let has_place: [bool; 2] = waiters.map(|waiter| waiter.join().unwrap());
        assert_ne!(has_place, [true; 2]);
        assert!(!channel_limit.try_place() && !channel_limit.place());
    });
}

#[test]
fn a_woken_worker_continues() {
    super::check(|| {
        let parking = Arc::new(Parking::new(1));
        let resters = [1, 2].map(|n| beside(&parking, move |parking| parking.rest(n)));
        parking.set(2);
        parking.end();
        let [_, last] = resters.map(|rester| rester.join().unwrap());
        assert!(!last, "the third worker was not woken");
    });
}

#[test]
fn one_wake_up_is_enough() {
    super::check(|| {
        let parking = Arc::new(Parking::new(1));
        let rester = beside(&parking, |parking| parking.rest(1));
        parking.set(2);
        assert!(rester.join().unwrap());
    });
}

/// A reader waits for bytes and its turn, a worker is parked, a consumer waits for its ticket: stopping wakes
/// all.
#[test]
fn stopping_a_run_ends_all_waits() {
    super::check(|| {
        let buffer = ConcurrentShuffleBuffer::<u64>::over(2, Window::new(7, 0, 0, 2, Some(4))).unwrap();
        let shared = Arc::new((ChannelLimit::new(1, 1, 1), Sequencer::default(), Parking::new(1), buffer));
        assert!(shared.0.acquire(1, 0));
        let reader = beside(&shared, |(channel_limit, sequencer, _, buffer)| {
            if channel_limit.acquire(1, 0) && sequencer.wait(0) {
                buffer.push(0, Ok(0));
            }
        });
        let worker = beside(&shared, |(_, _, parking, buffer)| parking.rest(1) && buffer.push(1, Ok(1)));
        // In the order of `Shared::stop`.
        shared.0.close();
        shared.2.end();
        shared.1.close();
        shared.3.close();
        assert!(!matches!(shared.3.try_pop(LONG), Popped::TimedOut));
        reader.join().unwrap();
        assert!(!worker.join().unwrap());
    });
}
