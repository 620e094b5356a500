//! Rows of all kinds of fields: written, joined, recycled, refused.

use half::{bf16, f16};

use super::*;
use crate::{
    dtype::{Dtype, Typed},
    fields::{DataType, Memory, Runs, SMALL, Sparse, ValueRun},
};

fn collate(batch_size: usize, dtype: DataType, len: usize) -> RowCollate {
    let fields = [
        Field::stacked("spectrogram", dtype, [len as u64]),
        Field::number("label", DataType::Int64),
        Field::number("start", DataType::Float64),
        Field::text("path"),
    ];
    let pool = ColumnPool::new(Arc::new(fields), batch_size, 2);
    RowCollate::new(Arc::new(pool), Arc::new(SpareBuffers::new(4)))
}

fn example(n: i64, len: usize) -> Example {
    let values = Value::Array(Typed::Float32(vec![n as f32; len]));
    let name = Value::Text(n.to_string().into());
    [values, Value::Int(n), Value::Float(0.5 * n as f64), name].into_iter().collect()
}

fn labels(batch: &Columns) -> &[i64] {
    batch.columns[1].values.values()
}

#[test]
fn rows_go_where_they_belong_and_buffers_go_back() {
    let mut collate = collate(3, DataType::Float32, 2);
    collate.put(BatchSlot::at_row(1), example(1, 2)).unwrap();
    collate.put(BatchSlot::at_row(0), example(5, 2)).unwrap();
    let batch = collate.take(2);
    let [spectrogram, _, start, path] = &batch.columns[..] else { panic!("{batch:?}") };
    assert_eq!(spectrogram.values.values::<f32>(), [5.0, 5.0, 1.0, 1.0]);
    assert_eq!((labels(&batch), start.values.values::<f64>()), (&[5, 1][..], &[2.5, 0.5][..]));
    assert_eq!(path.texts, ["5".into(), "1".into()]);
    assert_eq!(collate.spare.len(), 2);
    let empty = collate.take(0);
    assert_eq!((empty.rows, empty.bytes(), empty.columns.len()), (0, 0, 4));
}

#[test]
fn a_value_of_another_field_is_refused() {
    let mut collate = collate(3, DataType::Float32, 2);
    for wrong in [
        Value::Int(1),
        Value::Text("1".into()),
        Value::Array(Typed::Float32(vec![0.0])),
        Value::Array(Typed::Float16(vec![f16::ZERO; 2])),
    ] {
        let mut example = example(0, 2);
        // An int64 is as large as two float32.
        let at = if matches!(wrong, Value::Int(_)) { 3 } else { 0 };
        example[at] = wrong;
        assert_eq!(collate.put(BatchSlot::at_row(0), example).unwrap_err().kind, ErrorKind::Shape);
    }
}

#[test]
fn the_last_spare_buffer_is_taken_first() {
    let spare = SpareBuffers::new(2);
    assert!(spare.take().is_none());
    (1..=3).for_each(|len| spare.leave(Dtype::Float16.zeros(len).unwrap()));
    assert_eq!(spare.len(), 2);
    assert_eq!([spare.take(), spare.take()].map(|buffer| buffer.map_or(0, |values| values.len())), [2, 1]);
    assert!(spare.is_empty());
}

#[test]
fn kept_batches_stay_and_dropped_ones_are_written_again() {
    let len = SMALL / 4;
    let mut collate = collate(2, DataType::Float32, len);
    let mut batch = |n: i64| {
        collate.put(BatchSlot::at_row(0), example(n, len)).unwrap();
        collate.put(BatchSlot::at_row(1), example(-n, len)).unwrap();
        collate.take(2)
    };
    let values = |batch: &Columns| batch.columns[0].values.values::<f32>().to_vec();
    let kept: Vec<Columns> = (1..=20).map(&mut batch).collect();
    for (n, batch) in (1..).zip(&kept) {
        let values = values(batch);
        let (first, second) = values.split_at(len);
        assert!(first.iter().all(|&value| value == n as f32));
        assert!(second.iter().all(|&value| value == -n as f32));
        assert_eq!(labels(batch), [n, -n]);
    }
    let address = |batch: &Columns| batch.columns[0].values.values::<f32>().as_ptr();
    let first = address(&kept[0]);
    // The spectrogram is dropped, its label stays.
    let labels: Vec<_> = kept.into_iter().take(1).map(|mut batch| batch.columns.remove(1)).collect();
    assert_eq!(address(&batch(30)), first);
    assert_eq!(labels[0].values.values::<i64>(), [1, -1]);
}

#[test]
#[should_panic(expected = "never written")]
fn a_missing_row_is_not_handed_out() {
    let mut collate = collate(3, DataType::Float32, 2);
    for row in [0, 1, 2] {
        collate.put(BatchSlot::at_row(row), example(0, 2)).unwrap();
    }
    collate.take(3);
    collate.put(BatchSlot::at_row(1), example(0, 2)).unwrap();
    collate.take(2);
}

#[test]
fn values_of_two_bytes_take_half_the_memory() {
    for dtype in Dtype::ALL {
        let (rows, len) = (3, SMALL);
        let mut collate = collate(rows, dtype.into(), len);
        for row in 0..rows {
            let mut spectrogram = dtype.zeros(len).unwrap();
            match &mut spectrogram {
                Typed::Float32(values) => values.fill(row as f32),
                Typed::Float16(values) => values.fill(f16::from_f32(row as f32)),
                Typed::Bfloat16(values) => values.fill(bf16::from_f32(row as f32)),
                Typed::Int16(values) => values.fill(row as i16),
            }
            let mut example = example(0, 0);
            example[0] = Value::Array(spectrogram);
            collate.put(BatchSlot::at_row(row), example).unwrap();
        }
        let spectrogram = collate.take(rows).columns.swap_remove(0).values;
        for row in 0..rows {
            let of_row = row * len..(row + 1) * len;
            let is_row = |x: f32| x == row as f32;
            assert!(match dtype {
                Dtype::Float32 => spectrogram.values::<f32>()[of_row].iter().all(|&x| is_row(x)),
                Dtype::Float16 => spectrogram.values::<f16>()[of_row].iter().all(|&x| is_row(x.into())),
                Dtype::Bfloat16 => spectrogram.values::<bf16>()[of_row].iter().all(|&x| is_row(x.into())),
                Dtype::Int16 => spectrogram.values::<i16>()[of_row].iter().all(|&x| is_row(x.into())),
            });
        }
        let Memory::Slot(slot) = spectrogram.into_memory() else { panic!("a small field") };
        assert_eq!(slot.bytes(), rows * len * dtype.bytes());
    }
}

#[test]
fn numbers_are_written_in_the_type_of_the_field_or_refused() {
    use DataType::*;
    let written = |dtype: DataType, value: Value| {
        let mut place = vec![0xAAu8; dtype.bytes()];
        write_number(&mut place, dtype, &value).then_some(place)
    };
    let int = |dtype, number: i64| written(dtype, Value::Int(number));
    for (dtype, least, most) in [
        (Bool, 0, 1),
        (Int8, i8::MIN.into(), i8::MAX.into()),
        (Int16, i16::MIN.into(), i16::MAX.into()),
        (Int32, i32::MIN.into(), i32::MAX.into()),
        (Int64, i64::MIN, i64::MAX),
        (Uint8, 0, u8::MAX.into()),
        (Uint16, 0, u16::MAX.into()),
        (Uint32, 0, u32::MAX.into()),
        (Uint64, 0, i64::MAX),
    ] {
        for number in [least, most, 0, 1] {
            assert_eq!(int(dtype, number), Some(number.to_le_bytes()[..dtype.bytes()].to_vec()), "{dtype:?}");
        }
        let beyond = [least.checked_sub(1), most.checked_add(1).filter(|_| dtype != Uint64)];
        for number in beyond.into_iter().flatten() {
            assert_eq!(int(dtype, number), None, "{dtype:?} {number}");
        }
        assert_eq!(written(dtype, Value::Float(1.0)), None);
    }
    for value in [Value::Int(3), Value::Float(3.0)] {
        assert_eq!(written(Float16, value.clone()), Some(f16::from_f32(3.0).to_le_bytes().to_vec()));
        assert_eq!(written(Float32, value.clone()), Some(3f32.to_le_bytes().to_vec()));
        assert_eq!(written(Float64, value), Some(3f64.to_le_bytes().to_vec()));
    }
    for value in [Value::Null, Value::Text("1".into()), Value::List(Arc::new([]))] {
        assert_eq!(written(Int64, value), None);
    }
    let mut short = [0; 4];
    assert!(!write_number(&mut short, Int64, &Value::Int(0)));
}

/// A collator of one field.
fn of_one(field: Field) -> RowCollate {
    let pool = ColumnPool::new(Arc::new([field]), 4, 2);
    RowCollate::new(Arc::new(pool), Arc::new(SpareBuffers::new(4)))
}

fn put(collate: &mut RowCollate, row: usize, value: Value) -> Result<()> {
    collate.put(BatchSlot::at_row(row), [value].into_iter().collect())
}

fn list(items: &[Value]) -> Value {
    Value::List(items.into())
}

#[test]
fn lists_are_joined() {
    let mut collate = of_one(Field::jagged("ids", DataType::Int16, 1));
    for _ in 0..2 {
        put(&mut collate, 2, list(&[Value::Int(7)])).unwrap();
        put(&mut collate, 0, list(&[Value::Int(-1), Value::Int(5)])).unwrap();
        put(&mut collate, 1, list(&[])).unwrap();
        collate.complete(3).unwrap();
        let batch = collate.take(3);
        assert_eq!(batch.columns[0].values.values::<i16>(), [-1, 5, 7]);
        assert_eq!(batch.columns[0].offsets, Some(vec![0, 2, 2, 3]));
    }
    // The last rows of a short batch are from nowhere.
    put(&mut collate, 0, list(&[])).unwrap();
    collate.complete(1).unwrap();
    let batch = collate.take(1);
    assert_eq!((batch.columns[0].values.len(), &batch.columns[0].offsets), (0, &Some(vec![0, 0])));

    put(&mut collate, 0, list(&[Value::Int(1 << 20)])).unwrap();
    assert_eq!(collate.complete(1).unwrap_err().kind, ErrorKind::Shape);
}

#[test]
fn lists_of_text_are_joined() {
    let mut collate = of_one(Field { is_text: true, ..Field::jagged("names", DataType::Uint8, 2) });
    let text = |text: &str| Value::Text(text.into());
    put(&mut collate, 1, list(&[text("a"), text("")])).unwrap();
    put(&mut collate, 0, list(&[])).unwrap();
    collate.complete(2).unwrap();
    let batch = collate.take(2);
    assert_eq!(batch.columns[0].texts, ["a".into(), "".into()]);
    assert_eq!(batch.columns[0].offsets, Some(vec![0, 0, 2]));
}

#[test]
fn lists_of_one_length_are_stacked() {
    let mut collate = of_one(Field::stacked("votes", DataType::Float64, [2]));
    put(&mut collate, 0, list(&[Value::Int(1), Value::Float(0.5)])).unwrap();
    let batch = collate.take(1);
    assert_eq!(batch.columns[0].values.values::<f64>(), [1.0, 0.5]);
    for wrong in [list(&[Value::Int(1)]), list(&[Value::Null, Value::Null]), Value::Null] {
        assert_eq!(put(&mut collate, 0, wrong).unwrap_err().kind, ErrorKind::Shape);
    }
}

#[test]
fn runs_leave_nothing_of_the_last_batch() {
    let runs = |places, runs: &[(u32, u32, u32)]| {
        let runs = runs.iter().map(|&(column, start, end)| ValueRun { column, start, end });
        Value::Runs(Arc::new(Runs { places, runs: runs.collect() }))
    };
    let collate = |dtype| {
        let fields = [Field::stacked("frames", dtype, [4, 2])];
        RowCollate::new(Arc::new(ColumnPool::new(Arc::new(fields), 1, 1)), Arc::new(SpareBuffers::new(1)))
    };
    let put =
        |collate: &mut RowCollate, value| collate.put(BatchSlot::at_row(0), [value].into_iter().collect());
    let mut bytes = collate(DataType::Uint8);
    for (given, want) in [
        (runs(4, &[(0, 0, 4), (1, 3, 4)]), [1, 0, 1, 0, 1, 0, 1, 1]),
        (runs(4, &[(1, 0, 2), (1, 1, 3), (0, 2, 2)]), [0, 1, 0, 1, 0, 1, 0, 0]),
        (runs(4, &[]), [0; 8]),
    ] {
        put(&mut bytes, given).unwrap();
        assert_eq!(bytes.take(1).columns[0].values.values::<u8>(), want);
    }
    for wrong in [runs(3, &[]), runs(4, &[(2, 0, 1)]), runs(4, &[(0, 3, 5)]), runs(4, &[(0, 2, 1)])] {
        assert_eq!(put(&mut bytes, wrong).unwrap_err().kind, ErrorKind::Shape);
    }
    assert_eq!(put(&mut collate(DataType::Int16), runs(4, &[])).unwrap_err().kind, ErrorKind::Shape);
}

#[test]
fn sparse_rows_leave_nothing_of_the_last_batch() {
    let sparse = |others: f32, values: &[(u32, f32)]| {
        Value::Sparse(Arc::new(Sparse { others, values: values.into() }))
    };
    let mut collate = of_one(Field::stacked("hot", DataType::Float32, [4]));
    for (others, values, expected) in [
        (0.25, &[(3, 1.0)][..], [0.25, 0.25, 0.25, 1.0]),
        (0.0, &[(0, 0.5), (2, 1.0)], [0.5, 0.0, 1.0, 0.0]),
        (0.0, &[], [0.0; 4]),
    ] {
        put(&mut collate, 0, sparse(others, values)).unwrap();
        assert_eq!(collate.take(1).columns[0].values.values::<f32>(), expected);
    }
    assert_eq!(put(&mut collate, 0, sparse(0.0, &[(4, 1.0)])).unwrap_err().kind, ErrorKind::Shape);
    let mut halves = of_one(Field::stacked("hot", DataType::Float16, [2]));
    put(&mut halves, 0, sparse(0.0, &[])).unwrap();
    assert_eq!(halves.take(1).columns[0].values.values::<f16>(), [f16::ZERO; 2]);
    let mut whole = of_one(Field::stacked("hot", DataType::Int64, [2]));
    assert_eq!(put(&mut whole, 0, sparse(0.5, &[])).unwrap_err().kind, ErrorKind::Shape);
}
