//! Values of examples as bytes of a batch, in the type of their field.

use half::f16;

use crate::{
    Error, ErrorKind,
    fields::{DataType, Element, Field, Runs, Sparse, Value, ValueRun},
};

pub(crate) fn bytes_of<T: Element>(values: &[T]) -> &[u8] {
    // SAFETY: an `Element` has no padding, so its bytes are initialised; bytes have no alignment.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values)) }
}

/// Writes the values of one row; false if their size differs from the row's.
pub(super) fn write<T: Element>(row: &mut [u8], values: &[T]) -> bool {
    let fits = row.len() == size_of_val(values);
    if fits {
        row.copy_from_slice(bytes_of(values));
    }
    fits
}

/// Writes a number in the type of its field; false if the type is for other numbers.
pub(super) fn write_number(place: &mut [u8], dtype: DataType, value: &Value) -> bool {
    use DataType::*;
    match (value, dtype) {
        (&Value::Int(number), Int64) => write(place, &[number]),
        (&Value::Int(number), _) if !dtype.holds(number) => false,
        (&Value::Int(number), Bool | Int8 | Uint8) => write(place, &[number as u8]),
        (&Value::Int(number), Int16 | Uint16) => write(place, &[number as u16]),
        (&Value::Int(number), Int32 | Uint32) => write(place, &[number as u32]),
        (&Value::Int(number), Uint64) => write(place, &[number as u64]),
        (&Value::Int(number), Float16 | Float32 | Float64) => {
            write_number(place, dtype, &Value::Float(number as f64))
        }
        (&Value::Float(number), Float64) => write(place, &[number]),
        (&Value::Float(number), Float32) => write(place, &[number as f32]),
        (&Value::Float(number), Float16) => write(place, &[f16::from_f64(number)]),
        _ => false,
    }
}

/// Writes items one after the other, each in the type of the field.
pub(super) fn write_items(place: &mut [u8], dtype: DataType, items: &[Value]) -> bool {
    place.len() == items.len() * dtype.bytes()
        && place
            .chunks_exact_mut(dtype.bytes())
            .zip(items)
            .all(|(place, item)| write_number(place, dtype, item))
}

/// Writes a row in which most values are the same; false if the field is not float32 or too short.
pub(super) fn write_sparse(place: &mut [u8], dtype: DataType, sparse: &Sparse) -> bool {
    let others = Value::Float(sparse.others.into());
    let mut places = place.chunks_exact_mut(dtype.bytes());
    match sparse.others {
        // The bits of zero are zero in every type.
        0.0 => place.fill(0),
        _ if !places.all(|place| write_number(place, dtype, &others)) => return false,
        _ => {}
    }
    sparse.values.iter().all(|&(at, value)| {
        let at = at as usize * dtype.bytes();
        let place = place.get_mut(at..at + dtype.bytes());
        place.is_some_and(|place| write_number(place, dtype, &Value::Float(value.into())))
    })
}

/// Writes a row of runs, `[places, columns]`; false if a value has more than a byte or a run is outside.
pub(super) fn write_runs(row: &mut [u8], dtype: DataType, Runs { places, runs }: &Runs) -> bool {
    row.fill(0);
    let n_columns = row.len() / (*places as usize).max(1);
    let mut write = |&ValueRun { column, start, end }: &ValueRun| {
        let is_inside = (column as usize) < n_columns && start <= end && end <= *places;
        let frames = row.chunks_exact_mut(n_columns.max(1));
        let frames = frames.take(end as usize).skip(start as usize);
        frames.filter(|_| is_inside).for_each(|frame| frame[column as usize] = 1);
        is_inside
    };
    dtype == DataType::Uint8 && runs.iter().all(&mut write)
}

pub(super) fn misfit(field: &Field) -> Error {
    Error::new(ErrorKind::Shape, format!("a value does not fit its field {field}"))
}
