//! [`Groups`]: row groups dealt out to streams, one for each of V packers.
//!
//! Packed batches take as many records as they need, so they are defined over streams that share no records:
//! packer v owns the row groups v, v + V, … of every file, or of all files together, for any number of ranks.
//! With several sources it has a stream for each, and the groups of each source are dealt out on their own.
//! In each epoch a stream reads all its row groups, in the order given or in a new seeded order; rows within
//! a group are read in storage order.
//!
//! Source: own; dealing row groups to ranks file by file is the rule of the reference (nanochat), see
//! `docs/determinism.md`.

use std::{cmp::Reverse, collections::BinaryHeap, ops::Range};

/// How row groups are dealt out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stride {
    /// Dealing starts anew with each file.
    File,
    /// Dealing continues from file to file.
    Global,
    /// Each group, in the order of files, goes to the stream that has the fewest rows so far, of equal ones
    /// to the first. So the rows of two streams differ by at most the largest group.
    Balanced,
}

impl Stride {
    /// The name of the user's parameter value.
    pub fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Global => "global",
            Self::Balanced => "balanced",
        }
    }
}

/// The row groups of a set of files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Groups {
    files: Vec<Vec<Range<u64>>>,
    /// The first file of each source after the first one.
    later: Vec<usize>,
    /// The names of several sources, for messages.
    names: Vec<String>,
    stride: Option<Stride>,
    /// Whether each epoch has a new order.
    pub is_shuffled: bool,
}

impl Groups {
    /// `files[f]` are the rows of the groups of file f, numbered over all files. The default of `stride` is
    /// [`Stride::File`], unless a file has fewer groups than there are streams: then some streams would get
    /// nothing from that file.
    pub fn new(files: Vec<Vec<Range<u64>>>, stride: Option<Stride>, is_shuffled: bool) -> Self {
        Self { files, later: Vec::new(), names: Vec::new(), stride, is_shuffled }
    }

    /// The same row groups, divided into sources; `starts` has the first file of each, `names` their names,
    /// if they have some.
    pub fn of_sources(self, starts: &[usize], names: Vec<String>) -> Self {
        Self { later: starts.iter().skip(1).copied().collect(), names, ..self }
    }

    /// The source's name, or its number, as messages have it.
    pub(crate) fn name_of(&self, source: usize) -> String {
        match self.names.get(source) {
            Some(name) => format!("{name:?}"),
            None => format!("{source} (counted from 0)"),
        }
    }

    pub fn n_sources(&self) -> usize {
        self.later.len() + 1
    }

    /// The row groups of each source.
    pub fn sources(&self) -> Vec<Self> {
        let starts = [0].into_iter().chain(self.later.iter().copied());
        let ends = self.later.iter().copied().chain([self.files.len()]);
        let source = |(start, end): (usize, usize)| {
            Self::new(self.files[start..end].to_vec(), self.stride, self.is_shuffled)
        };
        starts.zip(ends).map(source).collect()
    }

    /// The same row groups with another stride.
    pub fn with_stride(&self, stride: Stride) -> Self {
        Self { stride: Some(stride), ..self.clone() }
    }

    /// How the row groups are dealt out to `n_streams`.
    pub fn stride(&self, n_streams: u64) -> Stride {
        let is_short = |file: &Vec<Range<u64>>| (file.len() as u64) < n_streams;
        self.stride.unwrap_or(if self.files.iter().any(is_short) { Stride::Global } else { Stride::File })
    }

    /// The groups of a stream, in the order of files, without empty ones.
    pub fn of(&self, stream: u64, n_streams: u64) -> Vec<Range<u64>> {
        let (first, step) = (stream as usize, n_streams as usize);
        let mut groups: Vec<_> = match self.stride(n_streams) {
            Stride::File => {
                self.files.iter().flat_map(|file| file.iter().skip(first).step_by(step)).cloned().collect()
            }
            Stride::Global => self.files.iter().flatten().skip(first).step_by(step).cloned().collect(),
            Stride::Balanced => {
                // bounded: by the streams that the layout has.
                let mut fewest: BinaryHeap<_> = (0..step).map(|stream| Reverse((0, stream))).collect();
                let is_own = |group: &&Range<u64>| {
                    let Some(Reverse((rows, stream))) = fewest.pop() else { return false };
                    fewest.push(Reverse((rows + group.end - group.start, stream)));
                    stream == first
                };
                self.files.iter().flatten().filter(is_own).cloned().collect()
            }
        };
        groups.retain(|group| !group.is_empty());
        groups
    }

    /// The number of rows of each stream's epoch.
    pub fn rows(&self, n_streams: u64) -> Vec<u64> {
        let rows = |stream| self.of(stream, n_streams).iter().map(|group| group.end - group.start).sum();
        (0..n_streams).map(rows).collect()
    }

    /// The number of rows of a stream's epoch, in the order given, before group `group` of file `file`, which
    /// may belong to any stream.
    pub fn rows_before(&self, stream: u64, n_streams: u64, file: usize, group: usize) -> u64 {
        let begin = match self.files.get(file) {
            None => u64::MAX,
            Some(groups) => match groups.get(group) {
                Some(group) => group.start,
                None => groups.last().map_or(0, |group| group.end),
            },
        };
        let before = self.of(stream, n_streams).into_iter().filter(|group| group.start < begin);
        before.map(|group| group.end - group.start).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(stride: Option<Stride>) -> Groups {
        // Files of 3, 1 and 4 groups of 10 rows; the second file's is empty.
        let file = |first: u64, n: u64| (0..n).map(|i| first + 10 * i..first + 10 * (i + 1)).collect();
        Groups::new(vec![file(0, 3), vec![30..30], file(30, 4)], stride, false)
    }

    #[test]
    fn dealing_restarts_with_each_file_or_does_not() {
        let starts = |stride, stream| -> Vec<u64> {
            groups(stride).of(stream, 2).into_iter().map(|group| group.start).collect()
        };
        assert_eq!(starts(Some(Stride::File), 0), [0, 20, 30, 50]);
        assert_eq!(starts(Some(Stride::File), 1), [10, 40, 60]);
        assert_eq!(starts(Some(Stride::Global), 0), [0, 20, 30, 50]);
        assert_eq!(starts(Some(Stride::Global), 1), [10, 40, 60]);
        // With three streams, the file with one group would have nothing for two of them.
        assert_eq!(groups(None).stride(3), Stride::Global);
        assert_eq!(groups(None).stride(1), Stride::File);
    }

    #[test]
    fn every_row_belongs_to_one_stream() {
        for (stride, n_streams) in
            [(Stride::File, 3), (Stride::Global, 3), (Stride::Global, 7), (Stride::Balanced, 3)]
        {
            let mut rows: Vec<u64> =
                (0..n_streams).flat_map(|v| groups(Some(stride)).of(v, n_streams)).flatten().collect();
            rows.sort_unstable();
            assert_eq!(rows, (0..70).collect::<Vec<_>>());
        }
    }

    #[test]
    fn balanced_rows_differ_by_at_most_a_group() {
        let sizes = [256, 256, 256, 256, 256, 65, 3, 3, 3, 0, 700, 1, 256, 256, 256, 256, 256, 65];
        let mut first = 0;
        let group = |n: &u64| {
            first += n;
            first - n..first
        };
        let groups: Vec<_> = sizes.iter().map(group).collect();
        let files = vec![groups[..6].to_vec(), groups[6..11].to_vec(), groups[11..].to_vec()];
        for n_streams in 1..9 {
            let rows = Groups::new(files.clone(), Some(Stride::Balanced), false).rows(n_streams);
            assert_eq!(rows.iter().sum::<u64>(), sizes.iter().sum::<u64>());
            assert!(rows.iter().max().unwrap() - rows.iter().min().unwrap() <= 700, "{rows:?}");
        }
    }

    #[test]
    fn rows_of_each_stream() {
        assert_eq!(groups(Some(Stride::File)).rows(2), [40, 30]);
        assert_eq!(groups(Some(Stride::Global)).rows(4), [20, 20, 20, 10]);
    }

    #[test]
    fn a_place_in_a_file_is_a_place_in_each_stream() {
        let groups = groups(Some(Stride::File));
        assert_eq!(groups.rows_before(0, 2, 0, 0), 0);
        assert_eq!(groups.rows_before(0, 2, 0, 1), 10);
        assert_eq!(groups.rows_before(1, 2, 0, 1), 0);
        assert_eq!(groups.rows_before(1, 2, 0, 9), 10);
        assert_eq!(groups.rows_before(0, 2, 2, 2), 30);
        assert_eq!(groups.rows_before(0, 2, 3, 0), 40);
    }
}
