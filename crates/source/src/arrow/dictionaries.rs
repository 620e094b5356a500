//! Finds the part of a dictionary that holds the value to which an index of a batch refers.
//!
//! A dictionary is stored in messages, the parts: the first, deltas that add values to it, and replacements,
//! each valid from the next batch on. A shard may have as many parts as batches, so a value is found by
//! binary search, and batches store no lists of parts.
//!
//! Source: Arrow columnar format, "Dictionary messages".

use super::{message::BodyCodec, spans::ArraySpans};
use crate::{Error, ErrorKind, Result, fallible_alloc};

/// The values of one dictionary message.
#[derive(Debug)]
pub(crate) struct DictionaryBatch {
    pub values: ArraySpans,
    pub codec: Option<BodyCodec>,
    /// The first batch for which it is valid.
    from_batch: usize,
    /// The number of the part that the dictionary began with when this one was added.
    first: usize,
    /// The number of values before it in the dictionary.
    start: u64,
}

/// All dictionaries that requested columns use.
#[derive(Debug, Default)]
pub(crate) struct Dictionaries {
    /// The parts of each id, in the order of the file. There are few columns, so few ids.
    by_id: Vec<(i64, Vec<DictionaryBatch>)>,
}

impl Dictionaries {
    /// Adds a message: a delta, or a dictionary that replaces an earlier one of its id.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`].
    pub(crate) fn add(
        &mut self,
        id: i64,
        is_delta: bool,
        from_batch: usize,
        codec: Option<BodyCodec>,
        values: ArraySpans,
    ) -> Result<()> {
        if !self.by_id.iter().any(|(known, _)| *known == id) {
            fallible_alloc::push(&mut self.by_id, (id, Vec::new()))?;
        }
        let Some((_, parts)) = self.by_id.iter_mut().find(|(known, _)| *known == id) else { return Ok(()) };
        let (first, start) = match parts.last() {
            Some(last) if is_delta => (last.first, last.start.saturating_add(last.values.n_values)),
            _ => (parts.len(), 0),
        };
        fallible_alloc::push(parts, DictionaryBatch { values, codec, from_batch, first, start })
    }

    pub(crate) fn clear(&mut self) {
        self.by_id.clear();
    }

    /// Finds the part of dictionary `id` that has value `index` for batch `batch`. Returns its number, the
    /// part, and the value's index in it.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if there is no such value.
    pub(crate) fn find(&self, id: i64, batch: usize, index: i128) -> Result<(usize, &DictionaryBatch, u64)> {
        let parts = self.by_id.iter().find(|(known, _)| *known == id).map_or(&[][..], |(_, parts)| parts);
        let parts = &parts[..parts.partition_point(|part| part.from_batch <= batch)];
        let first = parts.last().map_or(0, |last| last.first);
        let found = u64::try_from(index).ok().and_then(|index| {
            let number = first + parts[first..].partition_point(|part| part.start <= index).checked_sub(1)?;
            let part = &parts[number];
            let row = index - part.start;
            (row < part.values.n_values).then_some((number, part, row))
        });
        found.ok_or_else(|| {
            let n_known = parts.last().map_or(0, |last| last.start.saturating_add(last.values.n_values));
            let message = format!("a value refers to entry {index} of a dictionary of {n_known}");
            Error::new(ErrorKind::Corrupt, message)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds a part of `n_values` values.
    fn add(dictionaries: &mut Dictionaries, is_delta: bool, from_batch: usize, n_values: u64) {
        let values = ArraySpans { n_values, buffers: [].into() };
        dictionaries.add(7, is_delta, from_batch, None, values).unwrap();
    }

    #[test]
    fn values_are_found_in_the_parts_that_a_batch_sees() {
        let mut dictionaries = Dictionaries::default();
        let of = |dictionaries: &Dictionaries, batch, index| {
            dictionaries.find(7, batch, index).map(|(number, _, row)| (number, row)).ok()
        };
        assert_eq!(of(&dictionaries, 0, 0), None);
        // A delta without an earlier part begins a dictionary; empty parts have no values.
        add(&mut dictionaries, true, 0, 3);
        add(&mut dictionaries, true, 0, 0);
        add(&mut dictionaries, true, 1, 2);
        add(&mut dictionaries, false, 2, 1);
        add(&mut dictionaries, true, 3, 0);
        add(&mut dictionaries, true, 3, 4);
        let seen = |batch| (-1..7).map(|index| of(&dictionaries, batch, index)).collect::<Vec<_>>();
        let some = |parts: &[(usize, u64)]| {
            let values = parts.iter().map(|&part| Some(part)).chain(std::iter::repeat(None));
            std::iter::once(None).chain(values).take(8).collect::<Vec<_>>()
        };
        assert_eq!(seen(0), some(&[(0, 0), (0, 1), (0, 2)]));
        assert_eq!(seen(1), some(&[(0, 0), (0, 1), (0, 2), (2, 0), (2, 1)]));
        assert_eq!(seen(2), some(&[(3, 0)]));
        assert_eq!(seen(3), some(&[(3, 0), (5, 0), (5, 1), (5, 2), (5, 3)]));
        let error = dictionaries.find(7, 1, 5).unwrap_err();
        assert_eq!(error.message, "a value refers to entry 5 of a dictionary of 5");
        assert!(dictionaries.find(8, 1, 0).is_err());
    }
}
