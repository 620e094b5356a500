//! Texts in memory: lists of them, and different ones with a number each. Source: own.

use crate::{
    Error, ErrorKind, Result, fallible_alloc,
    seed::{hash_bytes, mix},
};

/// Texts one after the other, as a binary array of Arrow has them.
#[derive(Debug, Clone, Default)]
pub(crate) struct TextList {
    /// The end of each text, after a 0; empty without texts.
    offsets: Vec<i64>,
    bytes: Vec<u8>,
}

impl TextList {
    /// Appends a text.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`].
    pub(crate) fn push(&mut self, text: &[u8]) -> Result<()> {
        fallible_alloc::grow(&mut self.bytes, text.len())?;
        self.bytes.extend_from_slice(text);
        if self.offsets.is_empty() {
            fallible_alloc::push(&mut self.offsets, 0)?;
        }
        fallible_alloc::push(&mut self.offsets, self.bytes.len() as i64)
    }

    pub(crate) fn len(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    pub(crate) fn get(&self, at: usize) -> &[u8] {
        &self.bytes[self.offsets[at] as usize..self.offsets[at + 1] as usize]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|at| self.get(at))
    }

    pub(crate) fn bytes_held(&self) -> usize {
        self.bytes.capacity() + self.offsets.capacity() * size_of::<i64>()
    }

    /// The offsets and the bytes of a binary array.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`].
    pub(crate) fn into_parts(mut self) -> Result<(Vec<i64>, Vec<u8>)> {
        if self.offsets.is_empty() {
            fallible_alloc::push(&mut self.offsets, 0)?;
        }
        self.shrink();
        Ok((self.offsets, self.bytes))
    }

    /// A hash of all texts and their ends.
    pub(crate) fn hash(&self, state: u64) -> u64 {
        hash_texts(state, &self.offsets, &self.bytes)
    }

    fn shrink(&mut self) {
        self.offsets.shrink_to_fit();
        self.bytes.shrink_to_fit();
    }
}

/// Different texts with a number each, in the order in which they came first.
#[derive(Debug, Default)]
pub(crate) struct NameIndex {
    texts: TextList,
    /// The numbers by hash, and one more than the number, so that 0 is an empty slot.
    slots: Vec<u32>,
    last: u32,
}

impl NameIndex {
    /// The number of a text.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`]; [`ErrorKind::Config`] for more than 2^32 different ones.
    pub(crate) fn number(&mut self, text: &[u8]) -> Result<u32> {
        // Rows of one file are often neighbours.
        if self.texts.len() > 0 && self.texts.get(self.last as usize) == text {
            return Ok(self.last);
        }
        if (self.texts.len() + 1) * 4 > self.slots.len() * 3 {
            self.grow()?;
        }
        let slot = self.slot(text);
        self.last = match self.slots[slot] {
            0 => {
                let number = u32::try_from(self.texts.len()).ok().filter(|&number| number < u32::MAX - 1);
                let number = number.ok_or_else(|| {
                    Error::new(ErrorKind::Config, "there are more than 2^32 - 2 different names")
                })?;
                self.texts.push(text)?;
                self.slots[slot] = number + 1;
                number
            }
            number => number - 1,
        };
        Ok(self.last)
    }

    /// The number of a text, if it has one.
    pub(crate) fn find(&self, text: &[u8]) -> Option<u32> {
        if self.slots.is_empty() {
            return None;
        }
        self.slots[self.slot(text)].checked_sub(1)
    }

    pub(crate) fn into_texts(mut self) -> TextList {
        self.texts.shrink();
        self.texts
    }

    pub(crate) fn texts(&self) -> &TextList {
        &self.texts
    }

    /// The slot that has the text, or that is free for it.
    fn slot(&self, text: &[u8]) -> usize {
        let mask = self.slots.len() - 1;
        let mut slot = hash_bytes(0, text) as usize & mask;
        while self.slots[slot] != 0 && self.texts.get(self.slots[slot] as usize - 1) != text {
            slot = (slot + 1) & mask;
        }
        slot
    }

    fn grow(&mut self) -> Result<()> {
        let n = (self.slots.len() * 2).max(64);
        self.slots.clear();
        fallible_alloc::resize(&mut self.slots, n, 0)?;
        for (number, text) in (1..).zip(self.texts.iter()) {
            let mut slot = hash_bytes(0, text) as usize & (n - 1);
            while self.slots[slot] != 0 {
                slot = (slot + 1) & (n - 1);
            }
            self.slots[slot] = number;
        }
        Ok(())
    }
}

/// A hash of texts and their ends.
pub(crate) fn hash_texts(state: u64, offsets: &[i64], bytes: &[u8]) -> u64 {
    hash_bytes(offsets.iter().skip(1).fold(state, |state, &end| mix(state ^ end as u64)), bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_names_have_one_number() {
        let mut names = NameIndex::default();
        let texts: Vec<String> = (0..5000).map(|n| format!("name {}", n % 1700)).collect();
        let numbers: Vec<u32> = texts.iter().map(|text| names.number(text.as_bytes()).unwrap()).collect();
        assert!(numbers.iter().enumerate().all(|(at, &number)| number as usize == at % 1700));
        let texts = names.into_texts();
        assert_eq!((texts.len(), texts.get(1699)), (1700, &b"name 1699"[..]));
    }
}
