//! Finds the requested arrays among the flattened nodes and buffers of a batch.
//!
//! A batch's header lists one node per array, children after their parents, and all buffers in the same
//! order; how many buffers an array has follows from its type. So an array is found by walking over all those
//! before it. Its buffers are checked: they are within the body, and long enough for the number of values
//! that its node claims.
//!
//! Source: Arrow columnar format, "Buffer flattening", "Variadic buffers"; `Schema.fbs` for the validity of
//! unions before V5.

use arrow_ipc::{MetadataVersion, RecordBatch};
use arrow_schema::{DataType, Fields, UnionMode};

use super::spans::{ArraySpans, Span};
use crate::columns::{ArrayRequest, ValueLayout};

/// The contradiction in a header, for a message.
pub(crate) type Contradiction = &'static str;

/// The most buffers that an array of views may have.
const MOST_BUFFERS: usize = 1 << 20;

/// Returns the spans of the `wanted` arrays of a batch of `fields`, whose body is `body`. `most_held` returns
/// the most decompressed bytes for a buffer's length.
pub(crate) fn locate(
    batch: &RecordBatch<'_>,
    version: MetadataVersion,
    body: Span,
    fields: &Fields,
    wanted: &[ArrayRequest],
    most_held: &dyn Fn(u64) -> u64,
) -> Result<Box<[ArraySpans]>, Contradiction> {
    let n_rows = u64::try_from(batch.length()).map_err(|_| "a negative number of rows")?;
    let mut walk = ArrayWalk {
        nodes: batch.nodes().into_iter().flatten().map(|node| node.length()),
        buffers: batch.buffers().into_iter().flatten().map(|at| (at.offset(), at.length())),
        variadic: batch.variadicBufferCounts().into_iter().flatten(),
        version,
        body,
        most_held,
        wanted,
        // bounded: a few columns are requested.
        found: vec![None; wanted.len()],
        path: Vec::new(),
        n_rows,
    };
    fields.iter().enumerate().try_for_each(|(at, field)| walk.array(at, field.data_type()))?;
    walk.found.into_iter().collect::<Option<_>>().ok_or("a column is missing")
}

struct ArrayWalk<'a, N, B, V> {
    nodes: N,
    buffers: B,
    variadic: V,
    version: MetadataVersion,
    body: Span,
    most_held: &'a dyn Fn(u64) -> u64,
    wanted: &'a [ArrayRequest],
    found: Vec<Option<ArraySpans>>,
    path: Vec<usize>,
    n_rows: u64,
}

impl<N, B, V> ArrayWalk<'_, N, B, V>
where
    N: Iterator<Item = i64>,
    B: Iterator<Item = (i64, i64)>,
    V: Iterator<Item = i64>,
{
    /// Walks over the array with index `at` in its parent, and its children.
    fn array(&mut self, at: usize, data_type: &DataType) -> Result<(), Contradiction> {
        self.path.push(at);
        let length = self.nodes.next().ok_or("fewer nodes than the schema has arrays")?;
        let n_buffers = own_buffers(data_type, self.version, &mut self.variadic)?;
        match self.wanted.iter().position(|wanted| wanted.path == self.path) {
            Some(at) => self.found[at] = Some(self.take(length, n_buffers, &self.wanted[at])?),
            None => (0..n_buffers).try_for_each(|_| self.buffers.next().map(drop).ok_or(TOO_FEW))?,
        }
        try_children(data_type, |at, child| self.array(at, child))?;
        self.path.pop();
        Ok(())
    }

    /// Checks the next `n` buffers and returns them as those of a requested array.
    fn take(&mut self, length: i64, n: usize, wanted: &ArrayRequest) -> Result<ArraySpans, Contradiction> {
        let n_values = u64::try_from(length).map_err(|_| "a negative number of values")?;
        if wanted.has_rows && n_values != self.n_rows {
            return Err("a column with another number of values than the batch has rows");
        }
        if n > MOST_BUFFERS {
            return Err("an array with more buffers than the limit, 1048576");
        }
        let mut buffers = Vec::new();
        for _ in 0..n {
            let (offset, len) = self.buffers.next().ok_or(TOO_FEW)?;
            let span = u64::try_from(offset).ok().zip(u64::try_from(len).ok());
            let inside =
                span.filter(|(offset, len)| offset.checked_add(*len).is_some_and(|end| end <= self.body.len));
            let (offset, len) = inside.ok_or("a buffer outside of the body")?;
            buffers.push(Span { at: self.body.at + offset, len });
        }
        is_long_enough(&buffers, n_values, &wanted.layout, self.most_held)
            .ok_or("a buffer that is too short for the rows")?;
        Ok(ArraySpans { n_values, buffers: buffers.into() })
    }
}

/// The number of buffers of an array, without those of its children.
///
/// # Errors
/// If the batch has no valid number of buffers for an array of views.
pub(crate) fn own_buffers(
    data_type: &DataType,
    version: MetadataVersion,
    variadic: &mut impl Iterator<Item = i64>,
) -> Result<usize, Contradiction> {
    use DataType::*;
    Ok(match data_type {
        Null | RunEndEncoded(..) => 0,
        Struct(_) | FixedSizeList(..) => 1,
        List(_) | LargeList(_) | Map(..) => 2,
        ListView(_) | LargeListView(_) => 3,
        Utf8 | LargeUtf8 | Binary | LargeBinary => 3,
        Utf8View | BinaryView => {
            let n = variadic.next().ok_or("fewer variadic counts than the schema has views")?;
            let n = usize::try_from(n).ok().and_then(|n| n.checked_add(2));
            n.ok_or("an impossible variadic count")?
        }
        Union(_, mode) => {
            let validity = usize::from(version < MetadataVersion::V5);
            validity + if *mode == UnionMode::Dense { 2 } else { 1 }
        }
        _ => 2,
    })
}

/// Calls `each` with the index and the type of each child of an array, in the order of a batch.
///
/// # Errors
/// The first error that `each` returns.
pub(crate) fn try_children<'t, E>(
    data_type: &'t DataType,
    mut each: impl FnMut(usize, &'t DataType) -> Result<(), E>,
) -> Result<(), E> {
    use DataType::*;
    match data_type {
        Struct(fields) => fields.iter().enumerate().try_for_each(|(at, field)| each(at, field.data_type())),
        Union(fields, _) => {
            fields.iter().enumerate().try_for_each(|(at, (_, field))| each(at, field.data_type()))
        }
        RunEndEncoded(ends, values) => {
            each(0, ends.data_type())?;
            each(1, values.data_type())
        }
        List(child)
        | LargeList(child)
        | ListView(child)
        | LargeListView(child)
        | Map(child, _)
        | FixedSizeList(child, _) => each(0, child.data_type()),
        _ => Ok(()),
    }
}

pub(crate) const TOO_FEW: Contradiction = "fewer buffers than the schema needs";

/// Some if the buffers can hold as many values as the node claims, else None.
fn is_long_enough(
    buffers: &[Span],
    n_values: u64,
    layout: &ValueLayout,
    most_held: &dyn Fn(u64) -> u64,
) -> Option<()> {
    let bits = n_values.div_ceil(8);
    if let Some(validity) = buffers.first()
        && validity.len > 0
        && most_held(validity.len) < bits
    {
        return None;
    }
    let needed = match *layout {
        ValueLayout::Null | ValueLayout::Struct => return Some(()),
        ValueLayout::Bool => bits,
        ValueLayout::Int { width, .. }
        | ValueLayout::Float { width }
        | ValueLayout::FixedBytes { width }
        | ValueLayout::Dictionary { width, .. } => n_values.checked_mul(width as u64)?,
        // An array without values may have no offsets.
        ValueLayout::Offsets { .. } if n_values == 0 => 0,
        ValueLayout::Offsets { width } => n_values.checked_add(1)?.checked_mul(width as u64)?,
        ValueLayout::Views => n_values.checked_mul(16)?,
    };
    (most_held(buffers.get(1)?.len) >= needed).then_some(())
}
