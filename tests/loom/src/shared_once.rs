//! `SharedOnce`: who makes a part, who waits for it, and who drops it.

use forebay_base::shared_once::SharedOnce;
use loom::{sync::Arc, thread};

/// Gets a range, checks its values and leaves; returns the numbers of the parts made, and of those dropped.
fn user(parts: &SharedOnce<Arc<usize>>, range: std::ops::Range<usize>) -> (Vec<usize>, Vec<usize>) {
    let (mut made, mut dropped) = (Vec::new(), Vec::new());
    let make = |at| {
        made.push(at);
        thread::yield_now();
        Some(Arc::new(at))
    };
    let found = parts.get(range.clone(), make).unwrap();
    assert!(found.iter().map(|part| **part).eq(range.clone()));
    drop(found);
    parts.leave(range, |part| {
        assert_eq!(Arc::strong_count(&part), 1, "somebody has it still");
        dropped.push(*part);
    });
    (made, dropped)
}

#[test]
fn each_part_is_made_once() {
    super::check(|| {
        let parts = Arc::new(SharedOnce::new([1, 3, 2, 1]));
        let others: Vec<_> = [1..3, 1..4]
            .into_iter()
            .map(|range| {
                let parts = parts.clone();
                thread::spawn(move || user(&parts, range))
            })
            .collect();
        let (mut made, mut dropped) = user(&parts, 0..2);
        for other in others {
            let (more, also) = other.join().unwrap();
            made.extend(more);
            dropped.extend(also);
        }
        made.sort_unstable();
        dropped.sort_unstable();
        assert_eq!((made, dropped), (vec![0, 1, 2, 3], vec![0, 1, 2, 3]));
    });
}

#[test]
fn nobody_waits_for_a_part_that_fails() {
    super::check(|| {
        let parts = Arc::new(SharedOnce::new([2, 2]));
        let other = {
            let parts = parts.clone();
            thread::spawn(move || parts.get(0..2, |at| (at == 0).then_some(at)))
        };
        let mine = parts.get(0..2, |at| (at == 0).then_some(at));
        assert!(mine.is_none() && other.join().unwrap().is_none());
    });
}
