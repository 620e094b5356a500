//! [`padded`] writes rows of different lengths into one array: as long as the longest, the others filled up.

use std::sync::Arc;

use super::values::{bytes_of, misfit, write_items, write_number, write_runs};
use crate::{
    Error, ErrorKind, Result,
    dtype::each,
    fallible_alloc,
    fields::{Buffer, Column, DataType, Dim, Field, Value},
};

/// The length of the padded axis of a batch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum PadTo {
    /// That of the longest row.
    #[default]
    Longest,
    /// The next multiple of this.
    Multiple(u64),
    /// That of the batch's first field.
    LikeFirst,
    /// Rows lie one after the other, along the axis; none is padded.
    Packed,
    /// The next of these, which rise, if all rows then have no more together than a full batch, but for
    /// `slack` places of each.
    Bounds { bounds: Arc<[u64]>, most_in_batch: u64, slack: u64 },
}

impl PadTo {
    /// The next power of two, or `most`: few shapes for lengths that no bucket bounds.
    pub fn power_of_two(most: u64, most_in_batch: u64) -> Self {
        const LEAST: u64 = 16;
        let powers = std::iter::successors(Some(LEAST), |n| n.checked_mul(2)).take_while(|&n| n < most);
        Self::Bounds { bounds: powers.chain([most]).collect(), most_in_batch, slack: 0 }
    }

    /// The length for so many rows of which the longest has `longest`; at most `room`, unless that has more.
    /// That of the first field is `first`.
    fn len(&self, rows: u64, longest: u64, room: u64, first: u64) -> u64 {
        let padded = match self {
            Self::Longest | Self::Packed => longest,
            Self::LikeFirst => first,
            Self::Multiple(n) => longest.checked_next_multiple_of((*n).max(1)).unwrap_or(longest),
            Self::Bounds { bounds, most_in_batch, slack } => {
                let fits = |bound: &u64| rows.saturating_mul(bound.saturating_sub(*slack)) <= *most_in_batch;
                let next = bounds.get(bounds.partition_point(|&bound| bound < longest)).copied();
                next.filter(fits).unwrap_or(longest)
            }
        };
        padded.min(room.max(longest))
    }
}

/// The layout of a field's rows, whose axes before and behind the padded one are fixed.
struct PaddedLayout {
    /// Pieces of a row that are padded each.
    n_pieces: usize,
    /// Bytes of one place of the padded axis in a piece.
    place_bytes: usize,
}

impl PaddedLayout {
    fn of(field: &Field) -> Option<Self> {
        let axis = field.padded_axis()?;
        let product = |dims: &[Dim]| {
            dims.iter().try_fold(1, |product: usize, dim| match *dim {
                Dim::Fixed(n) => product.checked_mul(n as usize),
                _ => None,
            })
        };
        let place_bytes = product(&field.dims[axis + 1..])?.checked_mul(field.dtype.bytes())?;
        Some(Self { n_pieces: product(&field.dims[..axis])?, place_bytes })
    }

    /// The places of a row; `None` if its values are not those of whole places.
    fn places(&self, row: &Value, field: &Field) -> Option<usize> {
        let bytes = match row {
            Value::Array(values) => each!(values, values => size_of_val(&values[..])),
            Value::List(items) => items.len() * field.dtype.bytes(),
            Value::Ids(ids) => ids.len() * field.dtype.bytes(),
            Value::Int(n) => usize::try_from(*n).ok()?,
            Value::Runs(runs) if self.n_pieces == 1 => return Some(runs.places as usize),
            _ => return None,
        };
        let bytes_of_place = (self.n_pieces * self.place_bytes).max(1);
        (bytes % bytes_of_place == 0).then_some(bytes / bytes_of_place)
    }
}

/// Writes `rows` one after the other along their axis into `buffer`, which has room for them.
///
/// # Errors
/// As [`padded`].
fn packed(rows: &[Value], field: &Field, mut buffer: Buffer, layout: &PaddedLayout) -> Result<Column> {
    let mut offsets = fallible_alloc::with_room(rows.len() + 1)?;
    let mut total = 0_usize;
    offsets.push(0);
    for row in rows {
        total += layout.places(row, field).ok_or_else(|| misfit(field))?;
        offsets.push(total as i64);
    }
    let bytes = total.saturating_mul(layout.n_pieces).saturating_mul(layout.place_bytes);
    if bytes > buffer.len() || i32::try_from(total).is_err() {
        let message =
            format!("{} rows of {total} together are more than a batch of {field} may have", rows.len());
        return Err(Error::new(ErrorKind::Shape, message));
    }
    buffer.truncate(bytes);
    let mut rest = buffer.values_mut::<u8>();
    for n in 0..layout.n_pieces {
        for (row, place) in rows.iter().zip(offsets.windows(2)) {
            let own = (place[1] - place[0]) as usize * layout.place_bytes;
            let (place, others) = std::mem::take(&mut rest).split_at_mut(own);
            if !write_piece(place, field.dtype, row, n) {
                return Err(misfit(field));
            }
            rest = others;
        }
    }
    Ok(Column { values: buffer, offsets: Some(offsets), padded_len: total as u64, ..Column::default() })
}

/// Writes `rows` into `buffer`, which has room for the field's largest batch; the batch's first field is
/// padded to `first`.
///
/// # Errors
/// [`ErrorKind::Shape`] for values that are not the field's, or are more than its bounds.
pub(super) fn padded(
    rows: &[Value],
    field: &Field,
    mut buffer: Buffer,
    to: &PadTo,
    first: u64,
) -> Result<Column> {
    let layout = PaddedLayout::of(field).ok_or_else(|| misfit(field))?;
    if *to == PadTo::Packed {
        return packed(rows, field, buffer, &layout);
    }
    let mut longest = 0;
    for row in rows {
        longest = longest.max(layout.places(row, field).ok_or_else(|| misfit(field))?);
    }
    // A multiple may be more than there is room for.
    let fits = buffer.len() / (layout.n_pieces * layout.place_bytes * rows.len()).max(1);
    let len = to.len(rows.len() as u64, longest as u64, fits as u64, first) as usize;
    let piece_bytes = len * layout.place_bytes;
    let row_bytes = layout.n_pieces * piece_bytes;
    if row_bytes.checked_mul(rows.len()).is_none_or(|bytes| bytes > buffer.len()) {
        let message =
            format!("{} rows padded to {len} are more than a batch of {field} may have", rows.len());
        return Err(Error::new(ErrorKind::Shape, message));
    }
    buffer.truncate(row_bytes * rows.len());
    let mut pieces = buffer.values_mut::<u8>().chunks_exact_mut(piece_bytes.max(1));
    for row in rows {
        let n_places = layout.places(row, field).ok_or_else(|| misfit(field))?;
        let own = n_places * layout.place_bytes;
        for (n, piece) in pieces.by_ref().take(layout.n_pieces).enumerate() {
            let (place, rest) = match field.pads_left {
                true => {
                    let (rest, place) = piece.split_at_mut(piece_bytes - own);
                    (place, rest)
                }
                false => piece.split_at_mut(own),
            };
            if !write_piece(place, field.dtype, row, n) {
                return Err(misfit(field));
            }
            fill(rest, fill_of(field, n, layout.place_bytes));
        }
    }
    Ok(Column { values: buffer, padded_len: len as u64, ..Column::default() })
}

/// Writes piece number `n` of a row; false if its values are not of the type.
fn write_piece(place: &mut [u8], dtype: DataType, row: &Value, n: usize) -> bool {
    let width = dtype.bytes();
    let part = n * place.len() / width..(n + 1) * place.len() / width;
    match row {
        Value::Array(values) => {
            let from = each!(values, values => bytes_of(values));
            place.copy_from_slice(&from[n * place.len()..(n + 1) * place.len()]);
            true
        }
        Value::List(items) => write_items(place, dtype, &items[part]),
        Value::Ids(ids) => {
            let each = place.chunks_exact_mut(width).zip(&ids[part]);
            each.into_iter().all(|(place, &id)| write_number(place, dtype, &Value::Int(id.into())))
        }
        Value::Runs(runs) => write_runs(place, dtype, runs),
        // Ones, of a mask.
        Value::Int(_) => {
            place.fill(1);
            true
        }
        _ => false,
    }
}

/// The bytes with which piece number `n` of a row is filled; empty: zeros.
fn fill_of(field: &Field, n: usize, place_bytes: usize) -> &[u8] {
    field.fill.get(n * place_bytes..(n + 1) * place_bytes).unwrap_or_default()
}

/// Repeats a pattern, of which `place` has a whole number.
fn fill(place: &mut [u8], pattern: &[u8]) {
    if place.is_empty() || pattern.iter().all(|&byte| byte == 0) {
        return place.fill(0);
    }
    let mut done = pattern.len();
    place[..done].copy_from_slice(pattern);
    // Each copy is as long as all before it.
    while done < place.len() {
        let n = done.min(place.len() - done);
        place.copy_within(..n, done);
        done += n;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::Typed;

    fn field(dims: Vec<Dim>, dtype: DataType, fill: &[f32]) -> Field {
        let fill: Vec<u8> = fill.iter().flat_map(|value| value.to_ne_bytes()).collect();
        Field { fill: fill.into(), ..Field::new("x", dtype, dims) }
    }

    fn floats(values: &[f32]) -> Value {
        Value::Array(Typed::Float32(values.to_vec()))
    }

    const PADDED: Dim = Dim::PaddedInBatch { most: 4, most_in_batch: 12 };

    fn batch(field: &Field, rows: &[Value], to: &PadTo) -> Result<(u64, Vec<f32>)> {
        let mut buffer = Buffer::new(field.batch_bytes(rows.len()).unwrap()).unwrap();
        // As after an earlier batch.
        buffer.values_mut::<f32>().fill(7.0);
        let column = padded(rows, field, buffer, to, 0)?;
        Ok((column.padded_len, column.values.values::<f32>().to_vec()))
    }

    #[test]
    fn each_row_is_filled_behind_its_own_values() {
        // Frames last: each band is filled with its own value.
        let bands = field(vec![Dim::Fixed(2), PADDED], DataType::Float32, &[-1.0, -2.0]);
        let rows = [floats(&[1.0, 2.0, 3.0, 4.0]), floats(&[5.0, 6.0])];
        let expected = vec![1.0, 2.0, 3.0, 4.0, 5.0, -1.0, 6.0, -2.0];
        assert_eq!(batch(&bands, &rows, &PadTo::Longest).unwrap(), (2, expected));
        // Frames first.
        let frames = field(vec![PADDED, Dim::Fixed(2)], DataType::Float32, &[-1.0, -2.0]);
        let expected = vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0, -1.0, -2.0];
        assert_eq!(batch(&frames, &rows, &PadTo::Longest).unwrap(), (2, expected));
        let expected =
            [&[1.0, 2.0, 3.0, 4.0, -1.0, -2.0, -1.0, -2.0][..], &[5.0, 6.0], &[-1.0, -2.0].repeat(3)];
        assert_eq!(batch(&frames, &rows, &PadTo::Multiple(4)).unwrap(), (4, expected.concat()));
        // Without a fill: zeros, also where an earlier batch was.
        let samples = field(vec![PADDED], DataType::Float32, &[]);
        let rows = [floats(&[]), floats(&[1.0, 2.0, 3.0])];
        assert_eq!(batch(&samples, &rows, &PadTo::Longest).unwrap(), (3, vec![0.0, 0.0, 0.0, 1.0, 2.0, 3.0]));
    }

    #[test]
    fn a_multiple_is_no_longer_than_a_row_may_be() {
        let samples = field(vec![PADDED], DataType::Float32, &[]);
        let rows = [floats(&[1.0; 3])];
        assert_eq!(batch(&samples, &rows, &PadTo::Multiple(3)).unwrap().0, 3);
        assert_eq!(batch(&samples, &rows, &PadTo::Multiple(8)).unwrap().0, 4);
    }

    #[test]
    fn bounds_are_taken_if_the_batch_keeps_its_budget() {
        let samples = field(vec![PADDED], DataType::Float32, &[]);
        let to = PadTo::Bounds { bounds: [2, 4].into(), most_in_batch: 6, slack: 1 };
        for (rows, expected) in [(&[3][..], 4), (&[3, 1], 4), (&[3, 1, 1], 3), (&[1, 1, 1], 2), (&[2], 2)] {
            let rows: Vec<_> = rows.iter().map(|&n| floats(&vec![1.0; n])).collect();
            assert_eq!(batch(&samples, &rows, &to).unwrap().0, expected, "{rows:?}");
        }
    }

    #[test]
    fn packed_rows_have_nothing_between_them() {
        let bands = field(vec![Dim::Fixed(2), PADDED], DataType::Float32, &[-1.0, -2.0]);
        let rows = [floats(&[1.0, 2.0, 3.0, 4.0]), floats(&[]), floats(&[5.0, 6.0])];
        let buffer = || Buffer::new(bands.batch_bytes(3).unwrap()).unwrap();
        let column = padded(&rows, &bands, buffer(), &PadTo::Packed, 0).unwrap();
        assert_eq!(column.values.values::<f32>(), [1.0, 2.0, 5.0, 3.0, 4.0, 6.0]);
        assert_eq!((column.offsets, column.padded_len), (Some(vec![0, 2, 2, 3]), 3));
        let frames = field(vec![PADDED, Dim::Fixed(2)], DataType::Float32, &[]);
        let column = padded(&rows, &frames, buffer(), &PadTo::Packed, 0).unwrap();
        assert_eq!(column.values.values::<f32>(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let long = vec![floats(&[0.0; 8]); 4];
        assert_eq!(padded(&long, &frames, buffer(), &PadTo::Packed, 0).unwrap_err().kind, ErrorKind::Shape);
    }

    #[test]
    fn a_mask_is_as_long_as_the_first_field() {
        let mask = field(vec![PADDED], DataType::Uint8, &[]);
        let buffer = Buffer::new(mask.batch_bytes(2).unwrap()).unwrap();
        let column = padded(&[Value::Int(1), Value::Int(3)], &mask, buffer, &PadTo::LikeFirst, 4).unwrap();
        assert_eq!(column.values.values::<u8>(), [1, 0, 0, 0, 1, 1, 1, 0]);
    }

    #[test]
    fn runs_are_padded_and_packed_as_numbers_are() {
        use crate::fields::{Runs, ValueRun};
        let frames = field(vec![PADDED, Dim::Fixed(2)], DataType::Uint8, &[]);
        let run = |column, start, end| ValueRun { column, start, end };
        let row = |places, runs: &[ValueRun]| Value::Runs(Arc::new(Runs { places, runs: runs.into() }));
        let rows = [row(3, &[run(0, 0, 2), run(1, 2, 3)]), row(0, &[]), row(1, &[run(1, 0, 1)])];
        let buffer = || {
            let mut buffer = Buffer::new(frames.batch_bytes(3).unwrap()).unwrap();
            buffer.values_mut::<u8>().fill(7);
            buffer
        };
        let column = padded(&rows, &frames, buffer(), &PadTo::Longest, 0).unwrap();
        let want = [[1, 0, 1, 0, 0, 1], [0; 6], [0, 1, 0, 0, 0, 0]].concat();
        assert_eq!((column.values.values::<u8>(), column.padded_len), (&want[..], 3));
        let column = padded(&rows, &frames, buffer(), &PadTo::Packed, 0).unwrap();
        assert_eq!(column.values.values::<u8>(), [1, 0, 1, 0, 0, 1, 0, 1]);
        assert_eq!(column.offsets, Some(vec![0, 3, 3, 4]));
        let wrong = [row(1, &[run(2, 0, 1)])];
        assert_eq!(padded(&wrong, &frames, buffer(), &PadTo::Longest, 0).unwrap_err().kind, ErrorKind::Shape);
    }

    #[test]
    fn powers_of_two_are_few_shapes() {
        let len = |to: &PadTo, longest| to.len(3, longest, 1 << 20, 0);
        let to = PadTo::power_of_two(100, u64::MAX);
        assert_eq!([0, 1, 16, 17, 64, 65, 100].map(|n| len(&to, n)), [16, 16, 16, 32, 64, 100, 100]);
        assert_eq!([1, 7].map(|n| len(&PadTo::power_of_two(7, u64::MAX), n)), [7, 7]);
        // Three rows of 16 are more than 47.
        assert_eq!([47, 48].map(|most| len(&PadTo::power_of_two(100, most), 9)), [9, 16]);
    }

    #[test]
    fn lists_are_padded_as_numbers_are() {
        let tokens = Field {
            fill: (-1_i64).to_ne_bytes().to_vec().into(),
            ..Field::new("tokens", DataType::Int64, vec![PADDED])
        };
        let list = |ids: &[i64]| Value::List(ids.iter().map(|&id| Value::Int(id)).collect());
        let buffer = Buffer::new(tokens.batch_bytes(3).unwrap()).unwrap();
        let column =
            padded(&[list(&[3]), list(&[]), list(&[1, 2])], &tokens, buffer, &PadTo::Longest, 0).unwrap();
        assert_eq!(column.values.values::<i64>(), [3, -1, -1, -1, 1, 2]);
        let left = Field { pads_left: true, ..tokens };
        let ids = |ids: &[u32]| Value::Ids(ids.into());
        let buffer = Buffer::new(left.batch_bytes(3).unwrap()).unwrap();
        let rows = [ids(&[3]), ids(&[]), ids(&[1, u32::MAX])];
        let column = padded(&rows, &left, buffer, &PadTo::Longest, 0).unwrap();
        assert_eq!(column.values.values::<i64>(), [-1, 3, -1, -1, 1, u32::MAX.into()]);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let frames = field(vec![PADDED, Dim::Fixed(2)], DataType::Float32, &[]);
        for rows in [
            vec![floats(&[1.0])],
            vec![floats(&[1.0; 10])],
            vec![floats(&[1.0; 8]), floats(&[]), floats(&[]), floats(&[])],
            vec![Value::Int(1)],
            vec![Value::List(Arc::new([Value::Text("a".into()), Value::Int(0)]))],
        ] {
            assert_eq!(
                batch(&frames, &rows, &PadTo::Longest).unwrap_err().kind,
                ErrorKind::Shape,
                "{rows:?}"
            );
        }
    }
}
