//! Keeps what was used last, up to a total weight.

use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Values by key; those that were used longest ago are dropped. Shared by threads.
#[derive(Debug)]
pub(crate) struct Lru<K, V> {
    most: usize,
    kept: Mutex<LruEntries<K, V>>,
}

#[derive(Debug)]
struct LruEntries<K, V> {
    /// Value, weight, and the time of the last use.
    values: HashMap<K, (V, usize, u64)>,
    /// Keys by the time of their last use.
    by_use: BTreeMap<u64, K>,
    weight: usize,
    now: u64,
}

impl<K: Copy + Eq + Hash, V: Clone> Lru<K, V> {
    /// Keeps values of a total weight of at most `most`.
    pub(crate) fn new(most: usize) -> Self {
        let kept = LruEntries { values: HashMap::new(), by_use: BTreeMap::new(), weight: 0, now: 0 };
        Self { most, kept: Mutex::new(kept) }
    }

    fn lock(&self) -> MutexGuard<'_, LruEntries<K, V>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value, which is now the one used last.
    pub(crate) fn get(&self, key: K) -> Option<V> {
        let kept = &mut *self.lock();
        kept.now += 1;
        let (value, _, used) = kept.values.get_mut(&key)?;
        kept.by_use.remove(used);
        *used = kept.now;
        kept.by_use.insert(kept.now, key);
        Some(value.clone())
    }

    /// Keeps a value, unless it alone is too heavy.
    pub(crate) fn put(&self, key: K, value: V, weight: usize) {
        let mut dropped = Vec::new();
        let mut guard = self.lock();
        let kept = &mut *guard;
        dropped.extend(kept.remove(key));
        if weight <= self.most {
            while kept.weight + weight > self.most {
                let Some((_, oldest)) = kept.by_use.first_key_value() else { break };
                let oldest = *oldest;
                dropped.extend(kept.remove(oldest));
            }
            kept.now += 1;
            kept.weight += weight;
            kept.by_use.insert(kept.now, key);
            kept.values.insert(key, (value, weight, kept.now));
        }
        // Files are closed without the lock.
        drop(guard);
    }

    pub(crate) fn remove(&self, key: K) {
        let dropped = self.lock().remove(key);
        drop(dropped);
    }

    /// The number of values, and their weight.
    pub(crate) fn held(&self) -> (usize, usize) {
        let kept = self.lock();
        (kept.values.len(), kept.weight)
    }
}

impl<K: Copy + Eq + Hash, V> LruEntries<K, V> {
    fn remove(&mut self, key: K) -> Option<V> {
        let (value, weight, used) = self.values.remove(&key)?;
        self.by_use.remove(&used);
        self.weight -= weight;
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_longest_ago_is_dropped() {
        let lru = Lru::new(10);
        for key in 0..5 {
            lru.put(key, key * 2, 3);
        }
        assert_eq!(lru.held(), (3, 9));
        assert_eq!([lru.get(1), lru.get(2), lru.get(4)], [None, Some(4), Some(8)]);
        lru.put(9, 9, 3);
        assert_eq!([lru.get(3), lru.get(2), lru.get(9)], [None, Some(4), Some(9)]);
        lru.put(2, 5, 4);
        assert_eq!((lru.get(2), lru.held()), (Some(5), (3, 10)));
        lru.put(7, 7, 11);
        assert_eq!((lru.get(7), lru.held()), (None, (3, 10)));
        lru.put(2, 5, 11);
        assert_eq!((lru.get(2), lru.held()), (None, (2, 6)));
        lru.remove(9);
        assert_eq!(lru.held(), (1, 3));
    }
}
