//! Finds the wanted arrays among the flattened nodes and buffers of a batch.
//!
//! A batch's header lists one node per array, children after their parents, and all buffers in the same order; how many buffers
//! an array has follows from its type. So the place of an array is found by walking over all those before it. What is found is
//! checked: it lies within the body and is long enough for the number of values that its node claims.
//!
//! Source: Arrow columnar format, "Buffer flattening", "Variadic buffers"; `Schema.fbs` for the validity of unions before V5.

use arrow_ipc::{MetadataVersion, RecordBatch};
use arrow_schema::{DataType, Fields, UnionMode};

use super::index::{ArraySpans, Span};
use crate::source::columns::{Layout, Wanted};

/// What is wrong with a header, in words.
pub(crate) type Contradiction = &'static str;

/// The spans of the `wanted` arrays of a batch of `fields`, whose body is `body`.
pub(crate) fn locate(
    batch: &RecordBatch<'_>,
    version: MetadataVersion,
    body: Span,
    fields: &Fields,
    wanted: &[Wanted],
) -> Result<Box<[ArraySpans]>, Contradiction> {
    let n_rows = u64::try_from(batch.length()).map_err(|_| "a negative number of rows")?;
    let mut walk = Walk {
        // The vectors lie in the metadata, so its bytes back these allocations.
        nodes: batch.nodes().iter().flatten().map(|node| node.length()).collect::<Vec<_>>().into_iter(),
        buffers: batch
            .buffers()
            .iter()
            .flatten()
            .map(|at| (at.offset(), at.length()))
            .collect::<Vec<_>>()
            .into_iter(),
        variadic: batch.variadicBufferCounts().iter().flatten().collect::<Vec<_>>().into_iter(),
        version,
        body,
        is_compressed: batch.compression().is_some(),
        wanted,
        found: vec![None; wanted.len()],
        path: Vec::new(),
        n_rows,
    };
    walk.children(fields.iter().map(|field| field.data_type()))?;
    walk.found.into_iter().collect::<Option<_>>().ok_or("a column is missing")
}

struct Walk<'a> {
    nodes: std::vec::IntoIter<i64>,
    buffers: std::vec::IntoIter<(i64, i64)>,
    variadic: std::vec::IntoIter<i64>,
    version: MetadataVersion,
    body: Span,
    is_compressed: bool,
    wanted: &'a [Wanted],
    found: Vec<Option<ArraySpans>>,
    path: Vec<usize>,
    n_rows: u64,
}

impl Walk<'_> {
    /// Walks over arrays side by side.
    fn children<'t>(&mut self, types: impl Iterator<Item = &'t DataType>) -> Result<(), Contradiction> {
        for (at, data_type) in types.enumerate() {
            self.path.push(at);
            self.array(data_type)?;
            self.path.pop();
        }
        Ok(())
    }

    /// Walks over one array with all that is in it.
    fn array(&mut self, data_type: &DataType) -> Result<(), Contradiction> {
        let length = self.nodes.next().ok_or("fewer nodes than the schema has arrays")?;
        let n_buffers = self.n_buffers(data_type)?;
        if n_buffers > self.buffers.len() {
            return Err("fewer buffers than the schema needs");
        }
        match self.wanted.iter().position(|wanted| wanted.path == self.path) {
            Some(at) => self.found[at] = Some(self.take(length, n_buffers, &self.wanted[at].layout)?),
            None => {
                if n_buffers > 0 {
                    self.buffers.nth(n_buffers - 1);
                }
            }
        }
        use DataType::*;
        match data_type {
            Struct(fields) => self.children(fields.iter().map(|field| field.data_type())),
            Union(fields, _) => self.children(fields.iter().map(|(_, field)| field.data_type())),
            RunEndEncoded(ends, values) => self.children([ends.data_type(), values.data_type()].into_iter()),
            List(child)
            | LargeList(child)
            | ListView(child)
            | LargeListView(child)
            | Map(child, _)
            | FixedSizeList(child, _) => self.children([child.data_type()].into_iter()),
            _ => Ok(()),
        }
    }

    /// How many buffers an array has of its own, children left out.
    fn n_buffers(&mut self, data_type: &DataType) -> Result<usize, Contradiction> {
        use DataType::*;
        Ok(match data_type {
            Null | RunEndEncoded(..) => 0,
            Struct(_) | FixedSizeList(..) => 1,
            List(_) | LargeList(_) | Map(..) => 2,
            ListView(_) | LargeListView(_) => 3,
            Utf8 | LargeUtf8 | Binary | LargeBinary => 3,
            Utf8View | BinaryView => {
                let n = self.variadic.next().ok_or("fewer variadic counts than the schema has views")?;
                let n = usize::try_from(n).ok().and_then(|n| n.checked_add(2));
                n.ok_or("an impossible variadic count")?
            }
            Union(_, mode) => {
                let validity = usize::from(self.version < MetadataVersion::V5);
                validity + if *mode == UnionMode::Dense { 2 } else { 1 }
            }
            _ => 2,
        })
    }

    /// Takes the next `n` buffers as those of a wanted array, checked.
    fn take(&mut self, length: i64, n: usize, layout: &Layout) -> Result<ArraySpans, Contradiction> {
        let n_values = u64::try_from(length).map_err(|_| "a negative number of values")?;
        if n_values != self.n_rows {
            return Err("a column with another number of values than the batch has rows");
        }
        let mut buffers = Vec::with_capacity(n);
        for (offset, len) in self.buffers.by_ref().take(n) {
            let span = u64::try_from(offset).ok().zip(u64::try_from(len).ok());
            let inside =
                span.filter(|(offset, len)| offset.checked_add(*len).is_some_and(|end| end <= self.body.len));
            let (offset, len) = inside.ok_or("a buffer outside of the body")?;
            buffers.push(Span { at: self.body.at + offset, len });
        }
        if !self.is_compressed {
            is_long_enough(&buffers, n_values, layout).ok_or("a buffer that is too short for the rows")?;
        }
        Ok(ArraySpans { n_values, buffers: buffers.into() })
    }
}

/// Whether the buffers hold as many values as the node claims; None if not.
fn is_long_enough(buffers: &[Span], n_values: u64, layout: &Layout) -> Option<()> {
    let bits = n_values.div_ceil(8);
    if let Some(validity) = buffers.first()
        && validity.len > 0
        && validity.len < bits
    {
        return None;
    }
    let needed = match *layout {
        Layout::Null | Layout::Struct => return Some(()),
        Layout::Bool => bits,
        Layout::Int { width, .. } | Layout::Dictionary { width, .. } => n_values.checked_mul(width as u64)?,
        // No offsets at all are allowed for no values.
        Layout::Offsets { .. } if n_values == 0 => 0,
        Layout::Offsets { width } => n_values.checked_add(1)?.checked_mul(width as u64)?,
        Layout::Views => n_values.checked_mul(16)?,
    };
    (buffers.get(1)?.len >= needed).then_some(())
}
