//! The samples of a span: the frame at its start by bisection, and the frames that the span overlaps.

use std::ops::Range;

use super::{
    Flac,
    decoder::FrameDecoder,
    frame::{Frame, end_of},
    head::seek_points,
};
use crate::{DecoderCache, Error, ErrorKind, Planes, Result, corrupt, simd::LANES};

/// Bisection stops at gaps of this many bytes, since walking them costs less than another probe.
const WALK: usize = 1 << 15;

/// The last of some frames, and the one after it.
type LastAndNext = (Frame, Option<Frame>);

impl Flac<'_> {
    /// A frame at or before sample `target`, close to it.
    fn seek(&self, target: u64) -> Frame {
        let bytes = self.bytes;
        let mut work = self.work();
        let (mut low, mut high) =
            (self.first, (bytes.len(), self.behind.unwrap_or(self.shape.info.n_samples)));
        // The nearest seek points around the target.
        let (mut before, mut behind) = ((0, 0), (u64::MAX, 0));
        for (sample, offset) in seek_points(&bytes[self.seek_table.clone()]) {
            if sample <= target {
                before = before.max((sample, offset));
            } else {
                behind = behind.min((sample, offset));
            }
        }
        let mut point = |(sample, offset): (u64, u64), low, high| {
            let at = self.first.at.checked_add(usize::try_from(offset).ok()?)?;
            self.confirmed(at..at.checked_add(1)?, low, high, &mut work).filter(|frame| frame.first == sample)
        };
        low = point(before, low, high).unwrap_or(low);
        high = point(behind, low, high).map_or(high, |frame| (frame.at, frame.first));
        // Interpolation over the bytes, with every second step plain halving: at most about 2 log2(bytes)
        // probes.
        let mut is_halving = false;
        while high.0 - low.at > WALK && target >= low.first + u64::from(low.block) {
            let gap = (high.0 - low.at) as u64;
            let offset = if is_halving {
                gap / 2
            } else {
                let share = (target - low.first) as f64 / (high.1 - low.first).max(1) as f64;
                // A little early, since the frame must start before the target.
                ((share * gap as f64) as u64).saturating_sub(WALK as u64 / 2)
            };
            is_halving = !is_halving;
            let at = low.at + (offset as usize).clamp(1, gap as usize - 1);
            match self.confirmed(at..high.0, low, high, &mut work) {
                Some(frame) if frame.first <= target => low = frame,
                Some(frame) => high = (at, frame.first.min(high.1)),
                None => high = (at, high.1),
            }
        }
        low
    }

    /// Decodes `span`. Samples between frames that can be decoded are silent, as far as the read may have
    /// such.
    pub(super) fn read(&self, cache: &mut DecoderCache, span: Range<u64>, out: &mut Planes) -> Result<()> {
        let mut decoder = FrameDecoder::new(cache);
        let mut work = 4 * self.work();
        let mut frame = self.seek(span.start);
        // Frames to be decoded one by one before several are tried again.
        let mut n_single = 0;
        loop {
            let mut together = None;
            if n_single == 0 && frame.first + u64::from(frame.block) > span.start {
                (n_single, together) = self.read_together(&mut decoder, frame, &span, out)?;
            }
            n_single = n_single.saturating_sub(1);
            let read = match together {
                Some((last, next)) => {
                    frame = last;
                    Some(next)
                }
                None => self.read_frame(&mut decoder, frame, &span, out)?,
            };
            let behind = frame.first + u64::from(frame.block);
            if read.is_some() && behind >= span.end {
                return Ok(());
            }
            if let Some(Some(next)) = read {
                frame = next;
                continue;
            }
            // The samples up to the next frame that can be decoded are lost.
            let error = match read {
                Some(_) => {
                    let message =
                        format!("the FLAC frames end at sample {behind} of {}", self.shape.info.n_samples);
                    Error::new(ErrorKind::TooShort, message)
                }
                None => corrupt(format!("the FLAC frame of sample {} is damaged or cut short", frame.first))
                    .at_byte(frame.at as u64),
            };
            let next = self.resync(frame, &mut work);
            let lost = if read.is_some() { behind } else { frame.first };
            let from = lost.clamp(span.start, span.end);
            let to = next.map_or(span.end, |next| next.first.clamp(from, span.end));
            if from < to {
                cache.losses.silence(to - from, error)?;
                for c in 0..self.shape.stream.channels {
                    let range = (from - span.start) as usize..(to - span.start) as usize;
                    out.channel_mut(c.into())[range].fill(0.0);
                }
            }
            match next.filter(|next| next.first < span.end) {
                Some(next) => frame = next,
                None => return Ok(()),
            }
        }
    }

    /// Decodes the samples of `span` in several whole frames from `frame` on, side by side; returns the last
    /// of them and the next frame, if it is the last in its bytes None in its place. If they have to be read
    /// one by one, returns None, and how many: all of the span after frames that the decoder refuses, so
    /// that few are decoded twice.
    fn read_together(
        &self,
        decoder: &mut FrameDecoder,
        frame: Frame,
        span: &Range<u64>,
        out: &mut Planes,
    ) -> Result<(usize, Option<LastAndNext>)> {
        let stream = &self.shape.stream;
        let most = FrameDecoder::most_together(stream, frame.block);
        let (mut frames, mut bytes) = ([frame; LANES], [self.bytes; LANES]);
        let (mut n, mut next) = (0, Some(frame));
        while let Some(this) =
            next.filter(|next| n < most && next.block == frame.block && next.first < span.end)
        {
            let Some((end, after)) = end_of(self.bytes, stream, this, self.frame_budget) else { break };
            (frames[n], bytes[n]) = (this, &self.bytes[this.at..end]);
            (n, next) = (n + 1, after);
        }
        let Some(&last) = frames[..n].last().filter(|_| FrameDecoder::are_worth_it(stream, n)) else {
            return Ok((n, None));
        };
        let until = (span.end - last.first).min(u64::from(last.block)) as usize;
        if !decoder.decode_together(&bytes[..n], stream, until)? || decoder.block() != frame.block as usize {
            return Ok((usize::MAX, None));
        }
        for (i, &frame) in frames[..n].iter().enumerate() {
            self.write(decoder, i, frame, span, out);
        }
        Ok((0, Some((last, next))))
    }

    /// Writes the samples of `span` in `frame`, which overlap, and which `decoder` has as its frame `i`.
    fn write(&self, decoder: &FrameDecoder, i: usize, frame: Frame, span: &Range<u64>, out: &mut Planes) {
        let from = span.start.max(frame.first);
        let n = (span.end.min(frame.first + u64::from(frame.block)) - from) as usize;
        let skipped = (from - frame.first) as usize;
        let at = (from - span.start) as usize;
        for c in 0..self.shape.stream.channels {
            decoder.write(i, c, skipped..skipped + n, &mut out.channel_mut(c.into())[at..at + n]);
        }
    }

    /// Decodes the samples of `span` in `frame`; returns the next frame, if it is the last in its bytes None
    /// in its place, and None for a damaged frame.
    #[expect(clippy::option_option, reason = "damaged, last, or followed by another")]
    fn read_frame(
        &self,
        decoder: &mut FrameDecoder,
        frame: Frame,
        span: &Range<u64>,
        out: &mut Planes,
    ) -> Result<Option<Option<Frame>>> {
        let (end, next) = match end_of(self.bytes, &self.shape.stream, frame, self.frame_budget) {
            Some(found) => found,
            None => match self.last_end(frame, decoder)? {
                Some(end) => (end, None),
                None => return Ok(None),
            },
        };
        let behind = frame.first + u64::from(frame.block);
        if behind > span.start && frame.first < span.end {
            let until = (span.end.min(behind) - frame.first) as usize;
            let decoded = decoder.decode_until(&self.bytes[frame.at..end], &self.shape.stream, until)?;
            if decoded.is_none() || decoder.block() != frame.block as usize {
                return Ok(None);
            }
            self.write(decoder, 0, frame, span, out);
        }
        Ok(Some(next))
    }
}
