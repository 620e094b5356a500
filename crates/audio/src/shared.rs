//! [`SharedSpans`]: the samples of neighbouring windows of a recording, each decoded once.
//!
//! The recording is cut into blocks at the starts of windows. The first worker that needs a block decodes
//! it, and all windows that overlap it take their samples from there. Since the samples of a span equal those
//! of a full decode, a window of blocks equals one that was decoded alone.

use std::{
    ops::Range,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use crate::{Planes, Result, shared_once::SharedOnce};

/// Blocks are shared if all windows together have at least this many times the samples that they span.
const WORTH: (u64, u64) = (6, 5);
/// A block is at least this part of a window, so that little is decoded before each.
const LEAST_OF_WINDOW: u64 = 4;
/// The most buffers that rest: those of the windows that some tens of workers have at a time.
const MOST_SPARE: usize = 64;

/// Spare buffers of decoded blocks, shared by the workers.
#[derive(Debug, Default)]
pub struct SpareBlocks(Mutex<Vec<Arc<Planes>>>);

impl SpareBlocks {
    fn take(&self) -> Arc<Planes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    fn put_back(&self, block: Arc<Planes>) {
        let mut spare = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < MOST_SPARE {
            spare.push(block);
        }
    }
}

/// The samples that a run of windows of one recording share.
#[derive(Debug, Default)]
pub struct SharedSpans(OnceLock<Option<SharedBlocks>>);

#[derive(Debug)]
struct SharedBlocks {
    windows: Box<[Range<u64>]>,
    /// The first sample of each block, then the end of the last.
    starts: Box<[u64]>,
    parts: SharedOnce<Arc<Planes>>,
}

impl SharedSpans {
    /// Reads the span of window `number` into `out`, with what others have decoded. False if it is to be read
    /// alone: there is little to share, or a block of it cannot be decoded.
    ///
    /// `spans` returns the spans of all windows; it is called once. `decode` reads a span.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`](crate::ErrorKind::Memory).
    pub fn read(
        &self,
        number: usize,
        span: &Range<u64>,
        spans: impl FnOnce() -> Option<Box<[Range<u64>]>>,
        spare: &SpareBlocks,
        mut decode: impl FnMut(Range<u64>, &mut Planes) -> Result<()>,
        out: &mut Planes,
    ) -> Result<bool> {
        let blocks = self.0.get_or_init(|| SharedBlocks::new(spans()?));
        let Some(blocks) = blocks.as_ref().filter(|blocks| blocks.windows.get(number) == Some(span)) else {
            return Ok(false);
        };
        let range = blocks.blocks_of(span);
        let found = blocks.parts.get(range.clone(), |at| {
            let mut block = spare.take();
            // This was its last user.
            let planes = Arc::get_mut(&mut block)?;
            // The window tells of the error, if it needs what could not be decoded.
            decode(blocks.starts[at]..blocks.starts[at + 1], planes).ok()?;
            Some(block)
        });
        let copied = found.map(|found| blocks.copy(span, range.start, &found, out));
        blocks.parts.leave(range, |block| spare.put_back(block));
        copied.transpose().map(|copied| copied.is_some())
    }
}

impl SharedBlocks {
    /// The blocks of windows; `None` if they have little in common.
    fn new(windows: Box<[Range<u64>]>) -> Option<Self> {
        let (first, last) = (windows.first()?, windows.last()?);
        let ascend = |two: &[Range<u64>]| two[0].start <= two[1].start && two[0].end <= two[1].end;
        if !windows.windows(2).all(ascend) {
            return None;
        }
        let spanned = last.end - first.start;
        let needed: u64 = windows.iter().map(|window| window.end - window.start).sum();
        if needed.saturating_mul(WORTH.1) < spanned.saturating_mul(WORTH.0) {
            return None;
        }
        let least = (first.end - first.start) / LEAST_OF_WINDOW;
        let mut starts = vec![first.start];
        for window in &windows[1..] {
            let before = *starts.last()?;
            if window.start >= before + least.max(1) {
                starts.push(window.start);
            }
        }
        starts.push(last.end);
        let mut blocks = Self { windows, starts: starts.into(), parts: SharedOnce::new([]) };
        // bounded: no more than windows.
        let mut users = vec![0_u32; blocks.starts.len() - 1];
        for window in &blocks.windows {
            users[blocks.blocks_of(window)].iter_mut().for_each(|users| *users += 1);
        }
        blocks.parts = SharedOnce::new(users);
        Some(blocks)
    }

    /// The blocks that have samples of a span.
    fn blocks_of(&self, span: &Range<u64>) -> Range<usize> {
        let first = self.starts.partition_point(|start| *start <= span.start) - 1;
        first..self.starts.partition_point(|start| *start < span.end).max(first)
    }

    /// Copies a span out of the blocks from number `first` on.
    fn copy(&self, span: &Range<u64>, first: usize, blocks: &[Arc<Planes>], out: &mut Planes) -> Result<()> {
        let channels = blocks.first().map_or(0, |block| block.channels());
        out.reset(channels, (span.end - span.start) as usize)?; // at most what was decoded
        for (block, &start) in blocks.iter().zip(&self.starts[first..]) {
            let (from, to) = (span.start.max(start), span.end.min(start + block.len() as u64));
            let [here, there] =
                [start, span.start].map(|origin| (from - origin) as usize..(to - origin) as usize);
            for channel in 0..usize::from(channels) {
                out.channel_mut(channel)[there.clone()]
                    .copy_from_slice(&block.channel(channel)[here.clone()]);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Error, ErrorKind};

    /// Sample `n` has the value `n`.
    fn decode(span: Range<u64>, out: &mut Planes) -> Result<()> {
        out.reset(2, (span.end - span.start) as usize)?;
        for channel in 0..2 {
            for (value, n) in out.channel_mut(channel).iter_mut().zip(span.clone()) {
                *value = n as f32 + 0.5 * channel as f32;
            }
        }
        Ok(())
    }

    /// Windows of `len` samples, one each `step`, the last one shorter.
    fn windows(len: u64, step: u64, n: u64) -> Box<[Range<u64>]> {
        (0..n).map(|at| 7 + at * step..7 + (at * step + len).min(n * step)).collect()
    }

    #[test]
    fn a_sample_is_decoded_once() {
        let spans = windows(100, 20, 30);
        let (shared, spare) = (SharedSpans::default(), SpareBlocks::default());
        let (mut decoded, mut out) = (Vec::new(), Planes::new());
        for (number, span) in spans.iter().enumerate() {
            let count = |span: Range<u64>, out: &mut Planes| {
                decoded.push(span.clone());
                decode(span, out)
            };
            assert!(shared.read(number, span, || Some(spans.clone()), &spare, count, &mut out).unwrap());
            assert!(out.channel(1).iter().zip(span.clone()).all(|(value, n)| *value == n as f32 + 0.5));
            assert_eq!(out.len() as u64, span.end - span.start);
        }
        assert!(decoded.windows(2).all(|two| two[0].end == two[1].start), "{decoded:?}");
        assert_eq!((decoded[0].start, decoded.last().unwrap().end), (7, 607));
        // At most as many buffers as a window has blocks, and the next.
        assert!(spare.0.lock().unwrap().len() <= 6);
    }

    #[test]
    fn little_is_not_shared() {
        let mut out = Planes::new();
        for spans in [windows(100, 100, 9), windows(100, 95, 9), windows(100, 20, 1)] {
            let shared = SharedSpans::default();
            let read =
                shared.read(0, &spans[0], || Some(spans.clone()), &SpareBlocks::default(), decode, &mut out);
            assert!(!read.unwrap());
        }
        // Nor a span that is no window.
        let (shared, spans) = (SharedSpans::default(), windows(100, 20, 9));
        let read = |number, span| {
            shared.read(
                number,
                &span,
                || Some(spans.clone()),
                &SpareBlocks::default(),
                decode,
                &mut Planes::new(),
            )
        };
        assert!(!read(0, 8..9).unwrap() && !read(9, 7..107).unwrap() && read(0, 7..107).unwrap());
    }

    #[test]
    fn a_window_of_what_cannot_be_decoded_is_read_alone() {
        let spans = windows(100, 50, 9);
        let (shared, spare) = (SharedSpans::default(), SpareBlocks::default());
        let damaged = |span: Range<u64>, out: &mut Planes| match span.contains(&200) {
            true => Err(Error::new(ErrorKind::Corrupt, "damaged")),
            false => decode(span, out),
        };
        let read = |(number, span)| {
            shared.read(number, span, || Some(spans.clone()), &spare, damaged, &mut Planes::new()).unwrap()
        };
        let found: Vec<_> = spans.iter().enumerate().map(read).collect();
        assert_eq!(found, [true, true, false, false, true, true, true, true, true]);
    }

    proptest! {
        #[test]
        fn windows_are_what_they_were(
            len in 1_u64..300, step in 1_u64..200, n in 1_u64..60, order in any::<prop::sample::Index>(),
        ) {
            let spans: Box<[_]> = windows(len, step, n);
            let (shared, spare, mut out) = (SharedSpans::default(), SpareBlocks::default(), Planes::new());
            let first = order.index(spans.len());
            for number in (first..spans.len()).chain(0..first) {
                let span = &spans[number];
                if shared.read(number, span, || Some(spans.clone()), &spare, decode, &mut out).unwrap() {
                    prop_assert!(out.channel(0).iter().copied().eq(span.clone().map(|n| n as f32)));
                }
            }
        }
    }
}
