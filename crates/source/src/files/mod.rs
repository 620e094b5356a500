//! Recordings in files of their own: tables that name them, folders, lists.
//!
//! Input: a [`Manifest`], a folder, or paths. Output: rows of a loader, each a file or a segment of one, with
//! the columns of the table. Invariants:
//! - A row's number follows from the table, or from the names in the folder, alone.
//! - Tables are read once, when the source is opened. Files are opened when they are read, and none is held.
//! - A table is not trusted: a file is read only below its root, or below folders that the user allows.
//! - The fingerprint is that of the rows (paths, segments, columns), not that of the files. The paths of a
//!   list count from the folder that they share, as those of a table and of a folder do.
//!
//! | file | what |
//! |---|---|
//! | `manifest` | a table as a user describes it, and which of its columns are what |
//! | `plan` | what is read as one table, and how it is opened |
//! | `rows` | collects the rows of a table; a method for each format is in the file of the format |
//! | `csv`, `json_lines`, `json`, `kaldi`, `parquet`, `archive` | the formats; `text_input` and `tar` read their files |
//! | `table`, `column`, `names`, `schema_inference` | the rows in memory, their columns and paths, the types of columns |
//! | `reader` | reads what rows name |

mod archive;
mod column;
mod csv;
mod json;
mod json_lines;
mod kaldi;
mod manifest;
mod names;
mod parquet;
mod plan;
mod reader;
mod rows;
mod schema_inference;
mod table;
mod tar;
pub(crate) mod text_input;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

pub use manifest::{GivenRows, GivenValue, Manifest, RowSource, Unit};
pub(crate) use plan::TablePlan;
pub use reader::FilesReader;
pub(crate) use table::check_named;

use self::{column::TableColumn, manifest::TableRequest, names::NameIndex, table::RecordingTable};
use super::{
    columns::{ColumnType, Described, ExtraColumn, Item, Nesting, SchemaColumn},
    contents::{Contents, DescribedShards},
    open_files::{FileSet, OpenFiles},
    path_policy::PathPolicy,
    ranged::{AtomicReadCounts, Indexes, Key, Lru, RangedRecordings, ReadCounts},
    row_files::{ReadRows, RowFiles},
    storage::{CountedStorage, Storage, StoredFile},
};
use crate::{
    BLOCKS_AHEAD, Error, ErrorKind, Result, Segment, SourceOptions,
    error::Place,
    fallible_alloc,
    fields::{DataType, Value},
    parallel,
    record_rules::NO_LABEL,
    seed::mix,
};

/// The most class names of a label of text.
const MOST_CLASSES: usize = 1 << 20;
/// The most files that are open at a time, besides those that are being read.
const MOST_OPEN: usize = 64;
/// The most rows of one file that a thread reads together.
const MOST_TOGETHER: u64 = 64;

/// Open tables of recordings; immutable and shared.
#[derive(Debug)]
pub struct FilesSource {
    files: FileSet,
    recordings: RangedRecordings,
    /// Files that are open.
    opened: Lru<Key, Arc<StoredFile>>,
    path_policy: PathPolicy,
    tables: Vec<RecordingTable>,
    contents: Contents,
    fingerprint: u64,
    former_fingerprint: u64,
}

impl FilesSource {
    /// Reads tables in groups: `ends` has the number of tables up to the end of each. The stop flag is
    /// checked between rows.
    ///
    /// # Errors
    /// As [`RecordingTable::open`]; [`ErrorKind::Schema`] if columns have different types, or a label is no
    /// class; [`ErrorKind::Config`] for options that are for shards.
    pub(crate) fn open(
        storage: Arc<dyn Storage>,
        plans: &[TablePlan],
        ends: &[usize],
        options: &SourceOptions,
    ) -> Result<Self> {
        let refused = |message: &str| Err(Error::new(ErrorKind::Config, message));
        if options.mmap {
            return refused("mmap=True maps Arrow shards, but these are recordings in files; use mmap=False");
        }
        let (storage, traffic) = CountedStorage::over(storage);
        let asked = TableRequest {
            recordings: options.payload.recordings(),
            label: &options.label_column,
            others: &options.columns,
        };
        let mut tables = parallel::each("forebay-index", plans, options.threads, |plan| {
            RecordingTable::open(plan, &storage, &asked)
        })?;
        // With the names of classes, before they become numbers.
        let hash_of = |of: &dyn Fn(&RecordingTable) -> u64| {
            tables.iter().fold(mix(tables.len() as u64), |state, table| mix(state ^ of(table)))
        };
        let counted = options.fingerprinted.as_ref().unwrap_or(&options.columns);
        let place = |name: &String| options.columns.iter().position(|column| column == name);
        let counted: Vec<usize> = counted.iter().filter_map(place).collect();
        let fingerprint = hash_of(&|table| table.hash(&counted));
        let is_former = counted.iter().copied().eq(0..options.columns.len())
            && !tables.iter().any(|table| table.is_trusted);
        let former_fingerprint = if is_former { fingerprint } else { hash_of(&RecordingTable::former_hash) };
        let mut described = Vec::new();
        let mut from = 0;
        for &end in ends {
            described.extend(label_classes(&mut tables[from..end])?);
            from = end;
        }
        let rows =
            tables.iter().map(|table| (&table.path, (table.n_rows, table.n_bytes, table.damage.clone())));
        let files = FileSet::new((storage, traffic), rows)?;
        for (table, described) in tables.iter().zip(&mut described) {
            described.others = table.others.iter().map(|column| (column.column_type(), None)).collect();
        }
        mix_numbers(&mut described, options.columns.len());
        let has_labels = tables.iter().any(|table| table.label.is_some());
        let found = DescribedShards { shards: &files.shards, ends, described: &described, has_labels };
        let mut contents = Contents::new(found, &options.columns, options.paths)?;
        contents.schema = schema_of(&mut tables, &described, options.columns.iter().zip(&contents.columns));
        let held: usize = tables.iter().map(RecordingTable::bytes_held).sum();
        log::debug!("{} rows of {} tables take {held} bytes", files.n_rows, tables.len());
        Ok(Self {
            files,
            recordings: RangedRecordings {
                blocks: Arc::default(),
                max_record_bytes: options.max_record_bytes,
                track: options.track,
                indexes: Indexes::of_user(),
                counts: AtomicReadCounts::default(),
            },
            opened: Lru::new(MOST_OPEN),
            path_policy: PathPolicy::new(options.allow_paths.clone()),
            contents,
            tables,
            fingerprint,
            former_fingerprint,
        })
    }

    pub fn contents(&self) -> &Contents {
        &self.contents
    }

    /// Whether any of the files is named by URL.
    pub(crate) fn is_by_url(&self) -> bool {
        self.tables.iter().any(RecordingTable::is_by_url)
    }

    pub fn bytes_held(&self) -> usize {
        self.tables.iter().map(RecordingTable::bytes_held).sum()
    }

    pub fn reader(self: &Arc<Self>) -> FilesReader {
        FilesReader::new(self.clone())
    }

    /// What the readers did so far.
    pub fn read_counts(&self) -> ReadCounts {
        let mut counts = self.recordings.read_counts();
        counts.open = self.opened.held().0 as u64;
        counts
    }

    /// Tries to open the files of some rows of each table, until one opens: first rows, and rows spread over
    /// the table. Of `rows`, ascending (`None`: all), without those in `exclude`.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] or [`ErrorKind::Config`] if none of the files that are tried in a table can be
    /// opened.
    pub(crate) fn try_first(&self, rows: Option<&[u64]>, exclude: &[u64]) -> Result<()> {
        /// The rows that are tried: some of a table may be missing.
        const TRIED: u64 = 16;
        let is_read = |row: &u64| exclude.binary_search(row).is_err();
        // Half of them are the first ones: where all are missing, the message names the first row.
        let chosen = |n: u64| {
            let spread = (1..=TRIED / 2).filter_map(move |i| (i * n / (TRIED / 2)).checked_sub(1));
            (0..n.min(TRIED / 2)).chain(spread.skip_while(|&at| at < TRIED / 2))
        };
        for (shard, _) in self.shards().iter().zip(&self.tables).filter(|(_, table)| table.is_of_manifest) {
            let own = shard.first_row..shard.first_row + shard.n_rows;
            let tried: Vec<u64> = match rows {
                None => chosen(shard.n_rows).map(|at| own.start + at).filter(is_read).collect(),
                Some(rows) => {
                    let from = rows.partition_point(|&row| row < own.start);
                    let rows = &rows[from..rows.partition_point(|&row| row < own.end)];
                    chosen(rows.len() as u64).map(|at| rows[at as usize]).filter(is_read).collect()
                }
            };
            reader::try_rows(self, &tried)?;
        }
        Ok(())
    }

    /// The first row of each recording, in order; a row without a path is one.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`].
    pub fn recordings(&self) -> Result<Vec<u64>> {
        let mut found = Vec::new();
        for (table, shard) in self.tables.iter().zip(self.shards()) {
            // Files have numbers in the order in which they come.
            let mut next = 0;
            for row in 0..table.n_rows {
                match table.file(row) {
                    table::NO_FILE => {}
                    file if file == next => next += 1,
                    _ => continue,
                }
                fallible_alloc::push(&mut found, shard.first_row + row)?;
            }
        }
        Ok(found)
    }

    /// The label of a row; none if there is no label, or a null.
    pub fn label(&self, row: u64) -> Result<Option<i64>> {
        let (_, table, row) = self.table(row);
        Ok(table.label_of(row)?.filter(|&label| label != NO_LABEL))
    }

    /// The file of a row's recording; none if the row names none, or one within an archive.
    pub fn path(&self, row: u64) -> Option<PathBuf> {
        let (_, table, row) = self.table(row);
        let is_in_archive = table.place(row).is_some_and(|place| place.is_some());
        let name = table.name(row).filter(|_| !is_in_archive)?;
        Some(table.root.join(reader::path_of(name)))
    }

    /// The folder of indexes on disk, unless the user has none.
    pub(crate) fn index_folder(&self) -> Option<&Path> {
        self.recordings.indexes.folder()
    }

    /// The table that holds `row`, its number, and the row's number there.
    fn table(&self, row: u64) -> (usize, &RecordingTable, u64) {
        let (shard, row) = self.locate(row);
        (shard, &self.tables[shard], row)
    }

    /// The value of another column in a row.
    ///
    /// # Errors
    /// As [`TableColumn::value`].
    pub(super) fn other(&self, row: u64, number: usize) -> Result<Value> {
        let (_, table, row) = self.table(row);
        self.value(table, row, number)
    }

    fn value(&self, table: &RecordingTable, row: u64, number: usize) -> Result<Value> {
        let value = table.others[number].value(row as usize)?;
        Ok(match (value, self.contents.columns[number].item) {
            // Of a column that has other numbers in another table.
            (Value::Int(value), Item::Float(_)) => Value::Float(value as f64),
            (value, _) => value,
        })
    }

    /// The values of a row.
    ///
    /// # Errors
    /// As [`TableColumn::value`].
    fn values(&self, table: &RecordingTable, row: u64) -> Result<crate::fields::Row> {
        let value = |extra: &ExtraColumn| match *extra {
            ExtraColumn::Label => Ok(Value::Int(table.label_of(row)?.unwrap_or(NO_LABEL))),
            ExtraColumn::Path => ExtraColumn::path(Ok(name_of(table, row))),
            ExtraColumn::Other(number) => self.value(table, row, number),
        };
        self.contents.extra_columns.iter().map(value).collect()
    }
}

/// All columns of the first table, those that are read with the types that all rows have.
fn schema_of<'a>(
    tables: &mut [RecordingTable],
    described: &[Described],
    read: impl Iterator<Item = (&'a String, &'a ColumnType)>,
) -> Arc<[SchemaColumn]> {
    let Some(first) = tables.first_mut() else { return Arc::default() };
    let mut schema = std::mem::take(&mut first.schema);
    for (name, found) in read {
        let content = found.to_string();
        match schema.iter_mut().find(|column| column.name == *name) {
            Some(column) => column.content = content,
            None => schema.push(SchemaColumn::new(name.clone(), content)),
        }
    }
    let named = schema.iter_mut().find(|column| Some(&column.name) == first.label_name.as_ref());
    if let (Some(column), Some(names)) = (named, &described[0].label_names) {
        column.class_names = Some(names.clone());
    }
    tables.iter_mut().for_each(|table| table.schema = Vec::new());
    schema.into()
}

/// The path of a row as the table has it.
fn name_of(table: &RecordingTable, row: u64) -> Option<String> {
    table.name(row).map(|name| String::from_utf8_lossy(name).into_owned())
}

/// Numbers the classes of labels that are text, sorted, the same in all tables; whole numbers stay.
///
/// # Errors
/// [`ErrorKind::Schema`] for a label that is no class, or text in one table and a number in another.
fn label_classes(tables: &mut [RecordingTable]) -> Result<Vec<Described>> {
    let wrong = |table: &RecordingTable, message: String| {
        Err(Error::new(ErrorKind::Schema, message).in_shard(&table.path))
    };
    let (mut names, mut n_text, mut n_whole) = (NameIndex::default(), 0, 0);
    for table in &*tables {
        let Some(label) = &table.label else { continue };
        let found = label.column_type();
        match (found.item, found.nesting) {
            (Item::Null, Nesting::One) => {}
            (Item::Whole(_), Nesting::One) => n_whole += 1,
            (Item::Text, Nesting::One) => {
                n_text += 1;
                for text in label.texts() {
                    if let Some(text) = text {
                        names.number(text)?;
                    }
                    if names.texts().len() > MOST_CLASSES {
                        let message = format!(
                            "the label column has more than {MOST_CLASSES} different texts, too many for classes; name another \
                             column with label_column=, or none with label_column=\"\""
                        );
                        return wrong(table, message);
                    }
                }
            }
            _ => {
                let message = format!(
                    "the label column is {found}; expected names or whole numbers; name another column with label_column=, or \
                     none with label_column=\"\""
                );
                return wrong(table, message);
            }
        }
        if n_text > 0 && n_whole > 0 {
            return wrong(
                table,
                "the label is text in one table and a number in another; write one type".into(),
            );
        }
    }
    if n_text == 0 {
        return Ok(tables.iter().map(|_| Described::default()).collect());
    }
    // The classes by the numbers of `names`.
    let texts = names.texts();
    let mut sorted: Vec<u32> = (0..texts.len() as u32).collect();
    sorted.sort_unstable_by(|&one, &other| texts.get(one as usize).cmp(texts.get(other as usize)));
    let class_names: Arc<Vec<String>> = Arc::new(
        sorted.iter().map(|&name| String::from_utf8_lossy(texts.get(name as usize)).into_owned()).collect(),
    );
    // bounded: as many as there are names in memory.
    let mut classes = vec![0; sorted.len()];
    for (class, &name) in (0..).zip(&sorted) {
        classes[name as usize] = class;
    }
    for table in &mut *tables {
        let Some(label) = &mut table.label else { continue };
        let mut numbers = fallible_alloc::with_room(label.len())?;
        for text in label.texts() {
            let class = text.map(|text| names.number(text)).transpose()?;
            numbers.push(class.map_or(NO_LABEL, |name| classes[name as usize]));
        }
        // bounded: there is room for all rows.
        numbers.resize(label.len(), NO_LABEL);
        *label = TableColumn::of_ints(numbers);
    }
    let described = |table: &RecordingTable| Described {
        label_names: table.label.is_some().then(|| class_names.clone()),
        ..Described::default()
    };
    Ok(tables.iter().map(described).collect())
}

/// Whole numbers are numbers where another table has numbers.
fn mix_numbers(described: &mut [Described], n_columns: usize) {
    let float = ColumnType { item: Item::Float(DataType::Float64), nesting: Nesting::One };
    for at in 0..n_columns {
        let types = || described.iter().map(|described| described.others[at].0);
        if !types().any(|found| found == float) {
            continue;
        }
        for described in &mut *described {
            let found = &mut described.others[at].0;
            if *found == (ColumnType { item: Item::Whole(DataType::Int64), nesting: Nesting::One }) {
                *found = float;
            }
        }
    }
}

impl FilesSource {
    /// The seconds of a row that its table says; `None` if that is for the recording to say.
    pub fn seconds(&self, row: u64) -> Option<f64> {
        let (_, table, row) = self.table(row);
        match table.segment(row)? {
            Segment::Seconds(start, end) => Some(end - start).filter(|seconds| seconds.is_finite()),
            Segment::Samples(..) => None,
        }
    }
}

impl OpenFiles for FilesSource {
    fn file_set(&self) -> &FileSet {
        &self.files
    }

    /// With the path of the row's recording.
    fn place_of(&self, row: u64) -> Place {
        let (shard, row_in_shard) = self.locate(row);
        let (_, table, row) = self.table(row);
        let recording = name_of(table, row).map(Arc::new);
        Place { recording, ..Place::in_shard(&self.shards()[shard].path, row_in_shard) }
    }

    /// A hash of the rows, in order.
    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    fn held_bytes(&self) -> usize {
        self.recordings.blocks.bytes_in_use()
    }
}

impl RowFiles for FilesSource {
    fn contents(&self) -> &Contents {
        self.contents()
    }

    fn former_fingerprint(&self) -> u64 {
        self.former_fingerprint
    }

    fn row_reader(self: Arc<Self>) -> Box<dyn ReadRows> {
        Box::new(self.reader())
    }

    fn random_access(&self) -> bool {
        true
    }

    fn block_rows(&self, row: u64, run: u64) -> u64 {
        let (_, table, row) = self.table(row);
        let most = run.min(table.n_rows - row).min(MOST_TOGETHER);
        (1..most).find(|&n| table.file(row + n) != table.file(row)).unwrap_or(most).max(1)
    }

    fn most_blocks(&self) -> usize {
        BLOCKS_AHEAD
    }
}

#[cfg(test)]
mod tests;
