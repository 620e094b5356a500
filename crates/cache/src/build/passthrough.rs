//! The processor for data that is processed already: columns of numbers, or of lists of numbers, unchanged.

use arrow_array::{Array, ArrayRef, RecordBatch, cast::AsArray};
use arrow_schema::DataType as ArrowType;

use super::{Process, Processor, Skips, inputs::InputRows};
use crate::{
    BatchColumn, Error, ErrorKind, Processed, Result, fallible_alloc, fields::DataType,
    source::columns::type_name,
};

/// Keeps columns unchanged: numbers become fields without an axis, lists of numbers fields with one.
#[derive(Debug, Clone, Copy)]
pub struct Passthrough;

impl Processor<InputRows> for Passthrough {
    fn worker(&self) -> Box<dyn Process<InputRows>> {
        Box::new(Self)
    }
}

impl Process<InputRows> for Passthrough {
    fn process(&mut self, rows: InputRows, skips: &mut Skips<'_>) -> Result<Processed> {
        let InputRows::Table(tables) = rows else {
            let message = "without a processor, only columns of numbers in Parquet or Arrow are kept; give a processor \
                           for lines and recordings";
            return Err(Error::new(ErrorKind::Config, message));
        };
        let mut columns: Vec<BatchColumn> = Vec::new();
        let (mut row, mut documents) = (0, 0);
        for table in &tables {
            let nulls = if table.columns().iter().any(may_have_nulls) {
                (0..table.num_rows()).map(|at| null_of(table, at)).collect()
            } else {
                fallible_alloc::filled(table.num_rows(), None)?
            };
            for (at, field) in table.schema_ref().fields().iter().enumerate() {
                let (dtype, rank) = kind(field.data_type()).ok_or_else(|| {
                    let message = format!(
                        "column {:?} is {}; without a processor, numbers and lists of numbers are kept: name them in \
                         fields=, or give a processor",
                        field.name(),
                        type_name(field)
                    );
                    Error::new(ErrorKind::Schema, message)
                })?;
                if columns.len() == at {
                    columns.push(BatchColumn {
                        rank,
                        ..BatchColumn::flat(field.name(), dtype, Vec::new(), Vec::new())
                    });
                }
                let mut rest = 0;
                for run in nulls.chunk_by(|a, b| a.is_none() && b.is_none()) {
                    if run[0].is_none() {
                        append(&table.column(at).slice(rest, run.len()), &mut columns[at])?;
                    }
                    rest += run.len();
                }
            }
            for null in nulls {
                match null {
                    None => documents += 1,
                    Some(name) => {
                        let message = format!(
                            "column {name:?} has a null; remove such rows, or pass on_error=\"skip\""
                        );
                        skips.refused(row, Error::new(ErrorKind::Unreadable, message))?;
                    }
                }
                row += 1;
            }
        }
        Ok(Processed { documents, columns })
    }
}

/// The type of the numbers, and whether they are in lists.
fn kind(of: &ArrowType) -> Option<(DataType, usize)> {
    let number = |of: &ArrowType| {
        Some(match of {
            ArrowType::Int8 => DataType::Int8,
            ArrowType::Int16 => DataType::Int16,
            ArrowType::Int32 => DataType::Int32,
            ArrowType::Int64 => DataType::Int64,
            ArrowType::UInt8 => DataType::Uint8,
            ArrowType::UInt16 => DataType::Uint16,
            ArrowType::UInt32 => DataType::Uint32,
            ArrowType::UInt64 => DataType::Uint64,
            ArrowType::Float16 => DataType::Float16,
            ArrowType::Float32 => DataType::Float32,
            ArrowType::Float64 => DataType::Float64,
            _ => return None,
        })
    };
    match of {
        ArrowType::List(item) | ArrowType::LargeList(item) | ArrowType::FixedSizeList(item, _) => {
            Some((number(item.data_type())?, 1))
        }
        other => Some((number(other)?, 0)),
    }
}

fn may_have_nulls(array: &ArrayRef) -> bool {
    let values = match array.data_type() {
        ArrowType::List(_) => array.as_list::<i32>().values().null_count(),
        ArrowType::LargeList(_) => array.as_list::<i64>().values().null_count(),
        ArrowType::FixedSizeList(..) => array.as_fixed_size_list().values().null_count(),
        _ => 0,
    };
    array.null_count() + values > 0
}

/// The first column with a null in a row.
fn null_of(table: &RecordBatch, row: usize) -> Option<String> {
    let is_null = |array: &ArrayRef| {
        array.is_null(row)
            || match array.data_type() {
                ArrowType::List(_) => array.as_list::<i32>().value(row).null_count() > 0,
                ArrowType::LargeList(_) => array.as_list::<i64>().value(row).null_count() > 0,
                ArrowType::FixedSizeList(..) => array.as_fixed_size_list().value(row).null_count() > 0,
                _ => false,
            }
    };
    let at = table.columns().iter().position(is_null)?;
    Some(table.schema_ref().field(at).name().clone())
}

fn append(array: &ArrayRef, column: &mut BatchColumn) -> Result<()> {
    let lengths: Vec<u64>;
    let values: ArrayRef = match array.data_type() {
        ArrowType::List(_) => {
            let list = array.as_list::<i32>();
            lengths = list.offsets().lengths().map(|n| n as u64).collect();
            let ends = list.offsets();
            list.values().slice(ends[0] as usize, (ends[ends.len() - 1] - ends[0]) as usize)
        }
        ArrowType::LargeList(_) => {
            let list = array.as_list::<i64>();
            lengths = list.offsets().lengths().map(|n| n as u64).collect();
            let ends = list.offsets();
            list.values().slice(ends[0] as usize, (ends[ends.len() - 1] - ends[0]) as usize)
        }
        ArrowType::FixedSizeList(_, n) => {
            lengths = fallible_alloc::filled(array.len(), *n as u64)?;
            let list = array.as_fixed_size_list();
            list.values().slice(0, list.len() * *n as usize)
        }
        _ => {
            lengths = fallible_alloc::filled(array.len(), 1)?;
            array.clone()
        }
    };
    let data = values.to_data();
    let width = column.dtype.bytes();
    let bytes = data.buffers()[0].as_slice();
    let values = &bytes[data.offset() * width..(data.offset() + data.len()) * width];
    fallible_alloc::grow(&mut column.data, values.len())?;
    column.data.extend_from_slice(values);
    fallible_alloc::grow(&mut column.lengths, lengths.len())?;
    column.lengths.extend(lengths);
    Ok(())
}
