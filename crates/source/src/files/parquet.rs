//! Tables in Parquet whose rows name recordings.

use std::{path::Path, sync::Arc};

use super::{
    column::Cell,
    manifest::{Manifest, Roles, TableRequest},
    rows::{TableBuilder, at, builders, check_stop, in_line, no_number, said},
};
use crate::{
    Error, ErrorKind, Result, cells, columns,
    fields::Value,
    parquet::table::ParquetTable,
    record_rules::MAX_RECORD_BYTES,
    storage::{Storage, Version},
};

impl TableBuilder {
    pub(super) fn parquet(
        &mut self,
        storage: &Arc<dyn Storage>,
        path: &Arc<Path>,
        manifest: &Manifest,
        asked: &TableRequest<'_>,
    ) -> Result<Version> {
        let mut table = ParquetTable::open(storage, path, MAX_RECORD_BYTES)?;
        let names: Vec<String> = table.schema().fields().iter().map(|field| field.name().clone()).collect();
        let roles = Roles::choose(&names, manifest, asked, false)?;
        let path_role = roles.path.unwrap_or_default();
        let version = table.version();
        let schema = table.schema().clone();
        self.schema = columns::columns_of(&schema);
        self.label_name = roles.label.map(|role| names[role].clone());
        let needed = [Some(path_role), roles.start, roles.end, roles.within, roles.label];
        let mut columns: Vec<usize> =
            needed.into_iter().flatten().chain(roles.others.iter().copied()).collect();
        columns.sort_unstable();
        columns.dedup();
        table.select(columns.clone())?;
        let place = |role: usize| columns.binary_search(&role).unwrap_or_default();
        self.with_segments(&roles);
        let read: Vec<usize> = roles.label.iter().chain(&roles.others).copied().collect();
        let mut values = builders(read.len());
        while let Some(batch) = table.next_batch()? {
            for row in 0..batch.num_rows() {
                check_stop(self.n_rows() as u64)?;
                let number_of_row = self.n_rows();
                let value = |role: usize| {
                    cells::value(batch.column(place(role)), row)
                        .map_err(|error| in_line(&at(None, number_of_row), &names[role], error))
                };
                let name = value(path_role)?;
                let name = match &name {
                    Value::Text(name) => Some(name.as_bytes()),
                    Value::Null => None,
                    _ => {
                        let message = format!("column {:?} has no text, expected paths", names[path_role]);
                        return Err(Error::new(ErrorKind::Schema, message));
                    }
                };
                let number = |role: Option<usize>| match role.map(value).transpose()? {
                    None | Some(Value::Null) => Ok(None),
                    Some(Value::Int(number)) => Ok(Some(number as f64)),
                    Some(Value::Float(number)) if number.is_nan() => Ok(None),
                    Some(Value::Float(number)) => Ok(Some(number)),
                    Some(other) => Err(no_number(&at(None, number_of_row), &said(&other))),
                };
                let (start, end) = roles.segment(number)?;
                self.add(None, name, start, end)?;
                for (column, &role) in values.iter_mut().zip(&read) {
                    let is_bool = *schema.field(role).data_type() == arrow_schema::DataType::Boolean;
                    column
                        .push(cell_of(&value(role)?, is_bool))
                        .map_err(|error| in_line(&at(None, number_of_row), &names[role], error))?;
                }
            }
        }
        self.set_columns(values, roles.label.is_some())?;
        Ok(version)
    }
}

fn cell_of(value: &Value, is_bool: bool) -> Cell<'_> {
    match value {
        Value::Int(number) if is_bool => Cell::Bool(*number != 0),
        Value::Int(number) => Cell::Int(*number),
        Value::Float(number) => Cell::Float(*number),
        Value::Text(text) => Cell::Text(text.as_bytes()),
        Value::List(items) => Cell::List(items.iter().map(|item| cell_of(item, false)).collect()),
        _ => Cell::Null,
    }
}
