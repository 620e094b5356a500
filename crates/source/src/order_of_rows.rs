//! [`RowOrder`]: the rows of a source in an order of its user, such as the index mapping of a
//! `datasets.Dataset` after `shuffle`, `select` or `train_test_split`.
//!
//! Input: the numbers of file rows, for each group of shards that has an order. Output: row numbers of a
//! source whose row `i` is the `i`-th in that order, so that all else (sampling, ranks, resume, `index`)
//! works as for a dataset that was written in this order. A row may come several times, or not at all. A
//! group with an order is one shard; the others keep their shards. Source: own.

use std::sync::Arc;

use super::shard::Shard;
use crate::{Error, ErrorKind, Result, fallible_alloc, seed::mix};

/// The rows of a source by their numbers in the user's order.
#[derive(Debug, Clone)]
pub(crate) struct RowOrder {
    /// The row of the files for each row.
    rows: Arc<[u64]>,
    pub(super) shards: Vec<Shard>,
    /// For each group, the number of shards up to its end.
    pub(super) groups: Vec<usize>,
}

impl RowOrder {
    /// Orders the rows of groups of shards; `orders` has the rows of a group by their numbers within the
    /// group,
    /// `None`: as they are in the files.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a row that a group does not have, [`ErrorKind::Memory`].
    pub(super) fn new(shards: &[Shard], groups: &[usize], orders: &[Option<Arc<[u64]>>]) -> Result<Self> {
        let (mut rows, mut ordered, mut ends) = (Vec::new(), Vec::new(), Vec::new());
        let mut from = 0;
        for (group, &end) in groups.iter().enumerate() {
            let own = &shards[from..end];
            from = end;
            let first = own.first().map_or(0, |shard| shard.first_row);
            let n: u64 = own.iter().map(|shard| shard.n_rows).sum();
            let begin = rows.len() as u64;
            match (orders.get(group).and_then(Option::as_ref), own.first()) {
                (Some(order), Some(shard)) => {
                    if let Some(row) = order.iter().find(|&&row| row >= n) {
                        let message =
                            format!("the order of the rows names row {row}, and the files have {n} rows");
                        return Err(Error::new(ErrorKind::Config, message));
                    }
                    fallible_alloc::reserve(&mut rows, order.len())?;
                    rows.extend(order.iter().map(|row| first + row));
                    ordered.push(Shard {
                        path: shard.path.clone(),
                        first_row: begin,
                        n_rows: order.len() as u64,
                        n_bytes: own.iter().map(|shard| shard.n_bytes).sum(),
                        damage: own.iter().find_map(|shard| shard.damage.clone()),
                    });
                }
                _ => {
                    fallible_alloc::reserve(&mut rows, n as usize)?;
                    rows.extend(first..first + n);
                    ordered.extend(own.iter().map(|shard| Shard {
                        first_row: begin + (shard.first_row - first),
                        ..shard.clone()
                    }));
                }
            }
            ends.push(ordered.len());
        }
        Ok(Self { rows: rows.into(), shards: ordered, groups: ends })
    }

    pub(super) fn n_rows(&self) -> u64 {
        self.rows.len() as u64
    }

    /// The row of the files.
    ///
    /// # Panics
    /// If there is no such row.
    pub(super) fn row(&self, row: u64) -> u64 {
        self.rows[row as usize]
    }

    /// How many of the `run` rows from `row` on follow each other in the files.
    pub(super) fn run(&self, row: u64, run: u64) -> u64 {
        let rows = &self.rows[row as usize..];
        let next = rows.iter().zip(self.row(row)..).take(usize::try_from(run).unwrap_or(usize::MAX));
        next.take_while(|&(row, next)| *row == next).count() as u64
    }

    /// Whether rows are read in another order than that of the files.
    pub(super) fn is_scattered(&self) -> bool {
        self.rows.windows(2).any(|pair| pair[0] > pair[1])
    }

    /// The hash of the files, with that of the order.
    pub(super) fn fingerprint(&self, files: u64) -> u64 {
        self.rows.iter().fold(mix(files ^ self.n_rows()), |state, &row| mix(state ^ row))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn shard(name: &str, first_row: u64, n_rows: u64) -> Shard {
        Shard { path: Path::new(name).into(), first_row, n_rows, n_bytes: 10, damage: None }
    }

    #[test]
    fn groups_with_an_order_are_one_shard() {
        let shards = [shard("a", 0, 3), shard("b", 3, 2), shard("c", 5, 4)];
        let order: Arc<[u64]> = [4, 0, 1, 1].into();
        let found = RowOrder::new(&shards, &[2, 3], &[Some(order), None]).unwrap();
        let rows: Vec<_> = (0..found.n_rows()).map(|row| found.row(row)).collect();
        assert_eq!(rows, [4, 0, 1, 1, 5, 6, 7, 8]);
        let starts: Vec<_> = found.shards.iter().map(|shard| (shard.first_row, shard.n_rows)).collect();
        assert_eq!((starts, &found.groups[..]), (vec![(0, 4), (4, 4)], &[1, 2][..]));
        assert_eq!(
            [found.run(0, 9), found.run(1, 9), found.run(2, 9), found.run(4, 9), found.run(4, 2)],
            [1, 2, 1, 4, 2]
        );
        assert!(found.is_scattered());

        let order: Arc<[u64]> = [1, 3].into();
        let found = RowOrder::new(&shards, &[2, 3], &[None, Some(order)]).unwrap();
        let rows: Vec<_> = (0..found.n_rows()).map(|row| found.row(row)).collect();
        assert_eq!((rows, found.groups), (vec![0, 1, 2, 3, 4, 6, 8], vec![2, 3]));
        let wrong: Arc<[u64]> = [5].into();
        let error = RowOrder::new(&shards, &[2, 3], &[Some(wrong), None]).unwrap_err();
        assert!(error.message.contains("row 5"), "{error}");
    }

    #[test]
    fn the_order_is_part_of_the_fingerprint() {
        let of = |order: &[u64]| {
            let order = Some(Arc::<[u64]>::from(order));
            RowOrder::new(&[shard("a", 0, 3)], &[1], &[order]).unwrap().fingerprint(7)
        };
        assert_eq!(of(&[0, 1, 2]), of(&[0, 1, 2]));
        assert!(of(&[0, 1, 2]) != of(&[0, 2, 1]) && of(&[0, 1]) != of(&[0, 1, 2]));
    }
}
