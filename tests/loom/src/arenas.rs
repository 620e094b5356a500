//! `FreeList`, and `ArenaPool` on top of it.

use forebay_engine::fields::{ArenaPool, FreeList};
use loom::{cell::UnsafeCell, sync::Arc, thread};

/// Loom reports if two threads own it at once, or if one owns it before the last owner's writes are visible.
struct Thing {
    owner: UnsafeCell<usize>,
    _alive: std::sync::Arc<()>,
}

impl Drop for Thing {
    fn drop(&mut self) {
        // An access like that of unmapping.
        self.owner.with_mut(|_| ());
    }
}

/// Takes a thing or makes one, uses it and returns it to the list.
fn go_round(list: &FreeList<Thing>, alive: &std::sync::Arc<()>, thread: usize) {
    let made = || Box::new(Thing { owner: UnsafeCell::new(0), _alive: alive.clone() });
    let thing = list.take().unwrap_or_else(made);
    // SAFETY: the model is to show it.
    thing.owner.with_mut(|owner| unsafe { *owner = thread });
    thread::yield_now();
    // SAFETY: as above.
    assert_eq!(thing.owner.with(|owner| unsafe { *owner }), thread);
    list.leave(thing);
}

fn threads_go_round(places: usize, threads: usize, rounds: usize) {
    super::check(move || {
        let alive = std::sync::Arc::new(());
        let list = Arc::new(FreeList::new(places));
        let others: Vec<_> = (1..threads)
            .map(|thread| {
                let (list, alive) = (list.clone(), alive.clone());
                thread::spawn(move || (0..rounds).for_each(|_| go_round(&list, &alive, thread)))
            })
            .collect();
        (0..rounds).for_each(|_| go_round(&list, &alive, 0));
        others.into_iter().for_each(|other| other.join().unwrap());
        assert!((1..=places).contains(&list.len()));
        assert_eq!(std::sync::Arc::strong_count(&alive), 1 + list.len());
        drop(list);
        assert_eq!(std::sync::Arc::strong_count(&alive), 1);
    });
}

#[test]
fn a_thing_has_one_owner() {
    threads_go_round(2, 2, 2);
}

#[test]
fn three_threads_and_one_place() {
    threads_go_round(1, 3, 1);
}

#[test]
fn a_closed_list_ends_empty() {
    super::check(|| {
        let alive = std::sync::Arc::new(());
        let list = Arc::new(FreeList::new(2));
        let others = [1, 2].map(|thread| {
            let (list, alive) = (list.clone(), alive.clone());
            thread::spawn(move || go_round(&list, &alive, thread))
        });
        list.close();
        others.into_iter().for_each(|other| other.join().unwrap());
        assert!(list.is_empty());
        assert_eq!(std::sync::Arc::strong_count(&alive), 1);
    });
}

#[test]
fn slots_are_apart_and_outlive_their_pool() {
    super::check(|| {
        let pool = ArenaPool::new(8, 1);
        let slots = [1, 2].map(|n| {
            let mut slot = pool.acquire().unwrap();
            slot.as_mut_slice()[0] = n;
            (slot, n)
        });
        let others = slots.map(|(mut slot, n): (_, i64)| {
            thread::spawn(move || {
                assert_eq!(slot.as_slice::<i64>(), [n]);
                slot.as_mut_slice()[0] = -n;
            })
        });
        // A new one, or one of theirs.
        let mut slot = pool.acquire().unwrap();
        assert!([0, -1, -2].contains(&slot.as_slice::<i64>()[0]));
        slot.as_mut_slice()[0] = 3_i64;
        drop(pool);
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(slot.as_slice::<i64>(), [3]);
    });
}
