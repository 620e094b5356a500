//! [`Selection`]: a part of a source's rows, or the windows of its recordings, as a source of its own.
//!
//! Its positions are numbered from zero in storage order, so every order of a loader, its ranks and its
//! position are those of a dataset with these rows. Rows that are not selected are not read; of a recording
//! with several windows, a run of neighbours shares one read. Source: own.

use std::{ops::Range, sync::Arc};

use crate::{
    Error, ErrorKind, PayloadSource, RawRecord, ReadPayloads, ReadRequest, Result, RunRequest, StoredPayload,
    WindowRun,
    contract::{MemoryLimiter, ReadRecords, Retained, RowStore, Source, StorageLabels},
    error::Place,
    fallible_alloc,
    order::Bijection,
    seed::Purpose,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subset {
    /// So many, chosen by a seed.
    Random {
        n: u64,
        seed: u64,
    },
    Rows(Vec<u64>),
}

impl Subset {
    /// The rows in ascending order, of `n_rows`.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if there are fewer rows, or a row is named that does not exist or is named
    /// twice.
    pub fn rows(&self, n_rows: u64) -> Result<Arc<[u64]>> {
        let refused = |message: String| Err(Error::new(ErrorKind::Config, message));
        let mut rows = match self {
            &Self::Random { n, .. } if n > n_rows => {
                return refused(format!(
                    "n_samples or Subset asks for {n} rows, and the files have {n_rows}"
                ));
            }
            &Self::Random { n, seed } => {
                let order = Bijection::new(seed, Purpose::Subset, [0; 2], n_rows.max(1));
                let mut rows = fallible_alloc::with_room(n as usize)?;
                rows.extend((0..n).map(|at| order.at(at)));
                rows
            }
            Self::Rows(rows) => {
                if let Some(row) = rows.iter().find(|row| **row >= n_rows) {
                    let last = n_rows.saturating_sub(1);
                    return refused(format!("the subset names row {row}, must be 0 to {last}"));
                }
                rows.clone()
            }
        };
        rows.sort_unstable();
        if let Some(twice) = rows.windows(2).find(|pair| pair[0] == pair[1]) {
            return refused(format!("the subset names row {} twice", twice[0]));
        }
        if rows.is_empty() {
            return refused("the subset has no rows, must have at least one".to_owned());
        }
        Ok(rows.into())
    }
}

/// The positions of a source's rows, from zero: all rows or some, each once or once for each of its windows.
#[derive(Debug, Clone, Default)]
pub struct Positions {
    /// The rows, ascending; `None`: all.
    rows: Option<Arc<[u64]>>,
    /// The first position of each row, and the number of all positions; `None`: each row has one.
    windows: Option<Arc<[u64]>>,
    /// The most windows of each row that are read together.
    together: Option<Arc<[u16]>>,
}

#[derive(Debug, Clone, Copy)]
pub struct RowWindows {
    pub count: u64,
    pub together: u64,
}

impl Positions {
    /// The `rows` of a source, in ascending order; `None`: all.
    pub fn new(rows: Option<Arc<[u64]>>) -> Self {
        Self { rows, windows: None, together: None }
    }

    /// The same with a position for each window, given those of each row.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if there are none, or more than 2^40; [`ErrorKind::Memory`].
    pub fn with_windows(self, rows: impl ExactSizeIterator<Item = RowWindows>) -> Result<Self> {
        const MOST: u64 = 1 << 40;
        let mut starts = fallible_alloc::with_room(rows.len() + 1)?;
        let mut most = fallible_alloc::with_room(rows.len())?;
        let mut n = 0_u64;
        starts.push(0);
        for RowWindows { count, together } in rows {
            n = n.saturating_add(count);
            starts.push(n);
            most.push(u16::try_from(together).unwrap_or(u16::MAX).max(1));
        }
        if !(1..=MOST).contains(&n) {
            let message = match n {
                0 => "the recordings have no window: all are shorter than clip_seconds; give Windows another end, such as \
                      \"pad\""
                    .to_owned(),
                n => format!("the recordings have {n} windows, at most {MOST} are possible; raise step"),
            };
            return Err(Error::new(ErrorKind::Config, message));
        }
        Ok(Self { windows: Some(starts.into()), together: Some(most.into()), ..self })
    }

    /// The row of the source.
    ///
    /// # Panics
    /// If there is no such position.
    pub fn row(&self, at: u64) -> u64 {
        self.row_of(self.window(at).0)
    }

    /// The number of a position's row among the rows, and the number of its window in that.
    ///
    /// # Panics
    /// If there is no such position.
    pub fn window(&self, at: u64) -> (u64, u64) {
        let Some(starts) = &self.windows else { return (at, 0) };
        let row = starts.partition_point(|&start| start <= at) - 1;
        (row as u64, at - starts[row])
    }

    /// The positions of the same row: one, or those of its windows.
    ///
    /// # Panics
    /// If there is no such position.
    pub fn of_same_row(&self, at: u64) -> Range<u64> {
        let Some(starts) = &self.windows else { return at..at + 1 };
        let (row, _) = self.window(at);
        starts[row as usize]..starts[row as usize + 1]
    }

    pub(crate) fn has_windows(&self) -> bool {
        self.windows.is_some()
    }

    /// The positions of a row of the source; none if it is not among the rows.
    pub fn of_row(&self, row: u64) -> Range<u64> {
        let at = match &self.rows {
            None => row,
            Some(rows) => match rows.binary_search(&row) {
                Ok(at) => at as u64,
                Err(_) => return 0..0,
            },
        };
        match &self.windows {
            None => at..at + 1,
            Some(starts) => starts[at as usize]..starts[at as usize + 1],
        }
    }

    /// The number of positions of a source of `n_rows`.
    pub fn len_of(&self, n_rows: u64) -> u64 {
        match (&self.windows, &self.rows) {
            (Some(starts), _) => starts.last().copied().unwrap_or(0),
            (None, Some(rows)) => rows.len() as u64,
            (None, None) => n_rows,
        }
    }

    /// The rows that are read, if not all.
    pub fn rows(&self) -> Option<&[u64]> {
        self.rows.as_deref()
    }

    fn row_of(&self, number: u64) -> u64 {
        self.rows.as_ref().map_or(number, |rows| rows[number as usize])
    }

    /// How many of the `run` positions from `at` on one reader should read together: those of one recording,
    /// or of rows that are neighbours in the source.
    fn neighbours(&self, at: u64, run: u64) -> u64 {
        if let Some(starts) = &self.windows {
            let (row, _) = self.window(at);
            let together = self.together.as_ref().map_or(1, |together| together[row as usize]);
            return run.min(starts[row as usize + 1] - at).min(together.into());
        }
        let Some(rows) = &self.rows else { return run };
        let first = rows[at as usize];
        let run = rows[at as usize..].iter().zip(first..).take(usize::try_from(run).unwrap_or(usize::MAX));
        run.take_while(|(row, next)| *row == next).count() as u64
    }

    /// The number of rows that the `run` positions from `at` on are of.
    fn rows_of(&self, at: u64, run: u64) -> u64 {
        self.window(at.saturating_add(run.saturating_sub(1))).0 - self.window(at).0 + 1
    }

    /// The number of positions in rows of the source before `end`.
    pub fn before(&self, end: u64) -> u64 {
        let rows = self.rows.as_ref().map_or(end, |rows| rows.partition_point(|row| *row < end) as u64);
        self.windows.as_ref().map_or(rows, |starts| starts[rows as usize])
    }
}

/// Some positions of a source as a source of its own.
#[derive(Debug)]
pub struct Selection<S> {
    source: Arc<S>,
    positions: Positions,
}

impl<S: Source> Selection<S> {
    pub fn new(source: Arc<S>, positions: Positions) -> Self {
        Self { source, positions }
    }

    /// Which rows are at which positions.
    pub fn positions(&self) -> &Positions {
        &self.positions
    }
}

impl<S: PayloadSource> RowStore for Selection<S> {
    fn shard_rows(&self, epoch: u64) -> Result<Vec<u64>> {
        let ends = self.source.shard_rows(epoch)?.into_iter().scan(0, |end, n| {
            *end += n;
            Some(*end)
        });
        let mut before = 0;
        let rows = ends.map(|end| {
            let until = self.positions.before(end);
            until - std::mem::replace(&mut before, until)
        });
        Ok(rows.collect())
    }

    fn place(&self, at: u64) -> Place {
        self.source.place(self.positions.row(at))
    }

    fn random_access(&self) -> bool {
        self.source.random_access()
    }

    fn check_scattered(&self) -> Result<()> {
        self.source.check_scattered()
    }

    fn block_rows(&self, at: u64, run: u64) -> u64 {
        let together = self.positions.neighbours(at, run);
        match self.positions.has_windows() {
            true => together,
            false => self.source.block_rows(self.positions.row(at), together),
        }
    }

    fn most_blocks(&self) -> usize {
        self.source.most_blocks()
    }

    fn bytes_in_use(&self) -> usize {
        self.source.bytes_in_use()
    }

    fn end_threads(&self) {
        self.source.end_threads();
    }

    fn scattered_readers(&self, n_readers: usize) -> usize {
        self.source.scattered_readers(n_readers)
    }

    fn storage_labels(&self) -> StorageLabels {
        self.source.storage_labels()
    }
}

impl<S: PayloadSource> Source for Selection<S> {
    type Reader = SelectionReader<S::Reader>;

    fn reader(self: &Arc<Self>) -> Self::Reader {
        SelectionReader {
            reader: self.source.reader(),
            reads_on: !self.source.random_access(),
            positions: self.positions.clone(),
            held: None,
            limiter: None,
        }
    }
}

/// Reads selected rows, for one thread.
pub struct SelectionReader<R> {
    reader: R,
    /// Whether a row alone costs its batch or page, so that rows with windows are read in order, too.
    reads_on: bool,
    positions: Positions,
    held: Option<HeldRecord>,
    limiter: Option<Arc<dyn MemoryLimiter>>,
}

/// A recording that comes again. It is dropped before the next read of another row, so that it is no longer
/// kept while that read waits for memory.
struct HeldRecord {
    /// Of windows of one recording that were read together, or of a row.
    positions: Range<u64>,
    record: RawRecord,
    /// Parks its memory: other readers of the thread may wait for memory meanwhile.
    retained: Retained,
}

impl<R> SelectionReader<R> {
    /// Keeps the record just read, unless the run's memory forbids it; returns whether it did.
    fn hold(&mut self, positions: Range<u64>, record: &RawRecord) -> bool {
        let retained = self.limiter.as_ref().map_or(Some(Retained::default()), |limiter| limiter.retain());
        self.held = retained.map(|retained| HeldRecord { positions, record: record.clone(), retained });
        self.held.is_some()
    }
}

impl<R: ReadPayloads> ReadRecords for SelectionReader<R> {
    type Payload = StoredPayload;
    type Request<'a> = dyn ReadRequest + 'a;

    fn set_limiter(&mut self, limiter: Arc<dyn MemoryLimiter>) {
        self.limiter = Some(limiter.clone());
        self.reader.set_limiter(limiter);
    }

    fn hint_next(&mut self, end: u64, at: Option<u64>) {
        let end = end.checked_sub(1).map_or(0, |last| self.positions.row(last) + 1);
        self.reader.hint_next(end, at.map(|at| self.positions.row(at)));
    }

    fn read(&mut self, at: u64, run: u64, request: &dyn ReadRequest) -> Result<RawRecord> {
        let row = self.positions.row(at);
        let together = self.positions.neighbours(at, run);
        if let Some(held) = self.held.take()
            && held.positions.contains(&at)
        {
            if let Some(limiter) = &self.limiter
                && held.retained.is_granted
            {
                limiter.mark_counted();
            }
            // After the last window only its records hold the recording.
            if at + 1 < held.positions.end || request.repeats() {
                let record = held.record.clone();
                self.held = Some(held);
                return Ok(record);
            }
            return Ok(held.record);
        }
        if !self.positions.has_windows() {
            let record = self.reader.read(row, together, request)?;
            if request.repeats() && record.payload.is_whole() {
                self.hold(at..at + 1, &record);
            }
            return Ok(record);
        }
        let rows = if self.reads_on { self.positions.rows_of(at, run) } else { 1 };
        if together == 1 {
            return self.reader.read(row, rows, request);
        }
        let mut record = self.reader.read(row, rows, &RunRequest { request, n: together })?;
        let positions = at..at + together;
        record.payload.window_run = Some(Arc::new(WindowRun::new(positions.clone())));
        if !self.hold(positions, &record) {
            record.payload.window_run = None;
        }
        Ok(record)
    }

    fn end_job(&mut self) {
        self.reader.end_job();
        self.held = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{WholeRecord, fields::Row};
    use bytes::Bytes;
    use std::sync::Mutex;

    #[test]
    fn a_random_subset_has_its_size_and_is_fixed() {
        let rows = |n, seed| Subset::Random { n, seed }.rows(1000).unwrap();
        let some = rows(100, 0);
        assert_eq!(some.len(), 100);
        assert!(some.windows(2).all(|pair| pair[0] < pair[1]) && some[99] < 1000);
        assert_eq!(some, rows(100, 0));
        assert_ne!(some, rows(100, 1));
        assert_eq!(*rows(1000, 3), (0..1000).collect::<Vec<_>>()[..]);
        // A larger subset has the smaller one.
        assert!(some.iter().all(|row| rows(200, 0).contains(row)));
    }

    #[test]
    fn impossible_subsets_are_refused() {
        for (subset, told) in [
            (Subset::Random { n: 11, seed: 0 }, "asks for 11 rows, and the files have 10"),
            (Subset::Rows(vec![3, 10]), "names row 10, must be 0 to 9"),
            (Subset::Rows(vec![3, 1, 3]), "names row 3 twice"),
            (Subset::Rows(Vec::new()), "no rows"),
        ] {
            let error = subset.rows(10).unwrap_err();
            assert!(error.message.contains(told), "{error}");
        }
    }

    #[test]
    fn runs_end_at_rows_that_are_left_out() {
        let some = Positions::new(Some([2, 3, 4, 7, 8].into()));
        let of = |at, run| some.neighbours(at, run);
        assert_eq!([of(0, 5), of(0, 2), of(1, 9), of(2, 3), of(3, 2)], [3, 2, 2, 1, 2]);
        assert_eq!(Positions::default().neighbours(5, 9), 9);
    }

    /// Notes the rows that it is told to read together.
    struct Told {
        random_access: bool,
        runs: Mutex<Vec<(u64, u64)>>,
    }

    impl RowStore for Told {
        fn shard_rows(&self, _epoch: u64) -> Result<Vec<u64>> {
            Ok(vec![4])
        }
        fn place(&self, row: u64) -> Place {
            Place::in_shard("told", row)
        }
        fn random_access(&self) -> bool {
            self.random_access
        }
    }

    impl Source for Told {
        type Reader = ToldReader;

        fn reader(self: &Arc<Self>) -> ToldReader {
            ToldReader(self.clone())
        }
    }

    struct ToldReader(Arc<Told>);

    impl ReadRecords for ToldReader {
        type Payload = StoredPayload;
        type Request<'a> = dyn ReadRequest + 'a;

        fn read(&mut self, row: u64, run: u64, _wants: &dyn ReadRequest) -> Result<RawRecord> {
            self.0.runs.lock().unwrap().push((row, run));
            Ok(RawRecord::new(Bytes::from_static(b"a"), Row::default()))
        }
    }

    /// A row alone would cost its batch: the batch is kept for the rows after it.
    #[test]
    fn rows_with_windows_are_read_in_order_if_a_row_costs_its_batch() {
        for (random_access, expected) in
            [(true, [(0, 1), (1, 1), (1, 1), (3, 1)]), (false, [(0, 4), (1, 3), (1, 3), (3, 1)])]
        {
            let rows = [(2, 9), (4, 2), (0, 1), (3, 9)];
            let rows = rows.map(|(count, together)| RowWindows { count, together });
            let positions = Positions::default().with_windows(rows.into_iter()).unwrap();
            let source = Arc::new(Told { random_access, runs: Mutex::default() });
            let mut reader = Arc::new(Selection::new(source.clone(), positions)).reader();
            // The last window is of another run.
            for at in 0..8 {
                let record = reader.read(at, 8 - at, &WholeRecord::ONCE).unwrap();
                assert!(record.payload.window_run.is_some());
            }
            assert_eq!(*source.runs.lock().unwrap(), expected);
        }
    }

    #[test]
    fn each_window_has_a_position() {
        let row = |count| RowWindows { count, together: 64 };
        let positions = Positions::new(Some([2, 5, 6, 9].into()))
            .with_windows([2, 0, 3, 1].map(row).into_iter())
            .unwrap();
        let rows: Vec<_> = (0..6).map(|at| (positions.row(at), positions.window(at))).collect();
        assert_eq!(rows, [(2, (0, 0)), (2, (0, 1)), (6, (2, 0)), (6, (2, 1)), (6, (2, 2)), (9, (3, 0))]);
        let of = |row| positions.of_row(row);
        assert_eq!([of(2), of(5), of(6), of(9), of(7)], [0..2, 2..2, 2..5, 5..6, 0..0]);
        assert_eq!(
            [positions.before(0), positions.before(6), positions.before(7), positions.before(20)],
            [0, 2, 5, 6]
        );
        assert_eq!((positions.len_of(20), Positions::default().len_of(20)), (6, 20));
        // A run ends with the recording.
        assert_eq!(
            [positions.neighbours(0, 9), positions.neighbours(3, 9), positions.neighbours(2, 2)],
            [2, 2, 2]
        );
        let few = [2, 9].map(|count| RowWindows { count, together: 4 });
        let few = Positions::default().with_windows(few.into_iter()).unwrap();
        assert_eq!([few.neighbours(0, 20), few.neighbours(2, 20), few.neighbours(9, 20)], [2, 4, 2]);
        let error = Positions::default().with_windows([0, 0].map(row).into_iter()).unwrap_err();
        assert!(error.message.contains("no window"), "{error}");
    }
}
