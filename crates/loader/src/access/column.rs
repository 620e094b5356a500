//! A column of all rows, read without the recordings.

use std::{collections::BTreeSet, sync::Arc};

use crate::{
    LoaderConfig, Result,
    batch::{RowCollate, SpareBuffers},
    contract::{BatchSlot, Collate},
    fallible_alloc,
    fields::{ColumnPool, Columns, Field, Row, Value},
    source::{ColumnChoice, ExtraColumn, Positions, Recordings, SourceOptions},
    targets::{self, SourceColumns, Target, TargetConfig},
};

/// A column of all rows, or of some, as a batch would have it, and its field.
///
/// # Errors
/// Those of the file and of the first row whose value does not fit the field.
pub fn column(
    config: &LoaderConfig,
    source: &Recordings,
    positions: &Positions,
    name: &str,
) -> Result<(Columns, Arc<[Field]>)> {
    let reopened;
    let source = if source.column_names().iter().any(|known| known == name) {
        source
    } else {
        let options = SourceOptions {
            label_column: ColumnChoice::Nothing,
            columns: vec![name.to_owned()],
            ..config.recording_options(config.recordings()[0])?
        };
        reopened = config.arrow_files.open(&options)?;
        &reopened
    };
    let number = source.column_names().iter().position(|known| known == name).unwrap_or_default();
    let source_columns = SourceColumns {
        extra_columns: &[ExtraColumn::Other(number)],
        columns: (source.column_names(), &source.contents().columns),
        class_names: &source.contents().class_names,
    };
    let target = Target::plan(TargetConfig::column(name), &source_columns, &mut |_, _| Ok(BTreeSet::new()))?;
    let keep = |found: &mut Vec<Value>, value: Result<&Value>| fallible_alloc::push(found, value?.clone());
    let shards = source.collect(name, keep)?;
    let starts = source.shard_starts();
    let n = positions.len_of(source.n_rows());
    let pool = Arc::new(ColumnPool::new(Arc::new([target.field().clone()]), n as usize, 0));
    let mut collate = RowCollate::new(pool.clone(), Arc::new(SpareBuffers::new(0)));
    for place in 0..n {
        let row = positions.row(place);
        let shard = starts.partition_point(|&start| start <= row).saturating_sub(1);
        let value = shards.get(shard).and_then(|values| values.get((row - starts[shard]) as usize));
        let values: Row = [value.cloned().unwrap_or(Value::Null)].into_iter().collect();
        let made = target.value(&values, 0, targets::ClipSeconds::default(), None).map_err(|error| {
            let error = error.in_shard(&source.shards()[shard].path);
            error.at_row(row - starts[shard])
        })?;
        collate.put(BatchSlot::at_row(place as usize), [made].into_iter().collect())?;
    }
    collate.complete(n as usize)?;
    Ok((collate.take(n as usize), pool.fields().clone()))
}
