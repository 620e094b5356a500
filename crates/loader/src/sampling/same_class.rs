//! [`SameClass`]: the rows that share a class with a row, of which a step of augmentation takes a partner.
//! Source: own.

use std::{collections::HashSet, fmt, ops::Range, sync::Arc};

use super::classes::RowClasses;
use crate::{
    Result, fallible_alloc,
    source::{Positions, Recordings},
};

/// The classes of rows, and the positions of each class.
pub struct SameClass {
    classes: Arc<RowClasses>,
    positions: Positions,
    /// `members[ends[i - 1]..ends[i]]` are the positions of class `i`, ascending.
    members: Vec<u64>,
    ends: Vec<usize>,
}

impl fmt::Debug for SameClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SameClass").field("n_classes", &self.ends.len()).finish_non_exhaustive()
    }
}

impl SameClass {
    /// By a column of classes. The stop flag is checked between reads.
    ///
    /// # Errors
    /// Those of reading the column; [`ErrorKind::Memory`](crate::ErrorKind::Memory).
    pub fn of_column(source: &Recordings, column: &str, positions: Positions) -> Result<Self> {
        let classes = RowClasses::of_column(source, column, None)?;
        let n = positions.len_of(source.n_rows());
        // bounded: there are as many keys.
        let mut ends = vec![0_usize; classes.n()];
        let each = || (0..n).flat_map(|at| classes.of(positions.row(at)).iter().map(move |&id| (at, id)));
        each().for_each(|(_, id)| ends[id as usize] += 1);
        let mut total = 0;
        for end in &mut ends {
            // The first place of the class, which moves to its end below.
            total += std::mem::replace(end, total);
        }
        let mut members = Vec::new();
        fallible_alloc::resize(&mut members, total, 0)?;
        for (at, id) in each() {
            members[ends[id as usize]] = at;
            ends[id as usize] += 1;
        }
        Ok(Self { classes: Arc::new(classes), positions, members, ends })
    }

    /// The same without these positions.
    #[must_use]
    pub fn without(&self, excluded: &[u64]) -> Self {
        let excluded: HashSet<_> = excluded.iter().collect();
        let is_kept = |at: &&u64| !excluded.contains(at);
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        let counts = begins
            .zip(&self.ends)
            .map(|(begin, &end)| self.members[begin..end].iter().filter(is_kept).count());
        let ends = counts.scan(0, |sum, n| {
            *sum += n;
            Some(*sum)
        });
        Self {
            classes: self.classes.clone(),
            positions: self.positions.clone(),
            members: self.members.iter().filter(is_kept).copied().collect(),
            ends: ends.collect(),
        }
    }

    /// The number of positions without a class, and of those with classes that no other position of their
    /// part has: parts begin at `starts`, whose last is the number of all. Those that are `excluded`, and are
    /// in no class, do not count.
    pub fn alone(&self, starts: &[u64], excluded: &[u64]) -> [u64; 2] {
        let excluded: HashSet<_> = excluded.iter().collect();
        let mut counts = [0; 2];
        for part in starts.windows(2) {
            for at in (part[0]..part[1]).filter(|at| !excluded.contains(at)) {
                let ids = self.classes.of(self.positions.row(at));
                let has_other = |&id: &u32| self.members(id, &(part[0]..part[1])).len() > 1;
                counts[0] += u64::from(ids.is_empty());
                counts[1] += u64::from(!ids.is_empty() && !ids.iter().any(has_other));
            }
        }
        counts
    }

    /// The positions of a class that are `within`.
    fn members(&self, id: u32, within: &Range<u64>) -> &[u64] {
        let begin = (id as usize).checked_sub(1).map_or(0, |before| self.ends[before]);
        let members = &self.members[begin..self.ends[id as usize]];
        let place = |position: u64| members.partition_point(|&member| member < position);
        &members[place(within.start)..place(within.end)]
    }

    /// The positions `within` of one of the classes of the row at position `own`, ascending, and random bits
    /// for a choice among them. `None` if the row has no class. The row's own positions are among them.
    pub fn draw(&self, own: u64, within: Range<u64>, bits: u64) -> Option<(&[u64], u64)> {
        let classes = self.classes.of(self.positions.row(own));
        // The whole part of a number from 0 to the number of classes, and its fraction.
        let drawn = u128::from(bits) * classes.len() as u128;
        let id = *classes.get((drawn >> 64) as usize)?;
        Some((self.members(id, &within), drawn as u64))
    }
}
