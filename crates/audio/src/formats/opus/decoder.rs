//! Decodes packets of one or more streams to the channels of the output.
//!
//! Source: RFC 6716, section 3; RFC 7845, section 5.1.1.

use std::ops::Range;

use rusty_opus::OpusDecoder;

use super::{
    SAMPLE_RATE,
    head::{Head, MAX_CHANNELS},
    packet::{Frames, MAX_FRAME, MAX_SAMPLES},
};
use crate::{Result, corrupt, fallible_alloc};

/// Approximate bytes of a decoder of one stream: its buffers of 120 ms, and the states of SILK and CELT.
pub(super) const STREAM_BYTES: usize = 400 << 10;

/// The decoders of the streams that a channel of the output uses.
pub(super) struct Decoder {
    streams: Vec<Stream>,
    /// The number of streams in a packet.
    n_streams: usize,
    /// A frame as a packet of its own.
    packet: Vec<u8>,
}

struct Stream {
    number: usize,
    channels: usize,
    decoder: OpusDecoder,
    /// The samples of the last packet, interleaved.
    pcm: Vec<f32>,
}

fn new_decoder(channels: usize) -> Result<OpusDecoder> {
    OpusDecoder::new(SAMPLE_RATE.cast_signed(), channels)
        .map_err(|error| corrupt(format!("an Opus decoder cannot be built: {error}")))
}

impl Decoder {
    /// Builds the decoders of a stream with this head: at most one for each channel.
    pub(super) fn new(head: &Head) -> Result<Self> {
        let mut streams: Vec<Stream> = fallible_alloc::with_room(MAX_CHANNELS)?;
        for (number, _) in (0..usize::from(head.channels)).filter_map(|place| head.source(place)) {
            if streams.iter().all(|stream| stream.number != number) {
                let channels = head.width(number);
                // bounded: one or two channels.
                let pcm = vec![0.0; MAX_SAMPLES * channels];
                streams.push(Stream { number, channels, decoder: new_decoder(channels)?, pcm });
            }
        }
        streams.sort_by_key(|stream| stream.number);
        let packet = Vec::with_capacity(1 + MAX_FRAME);
        Ok(Self { streams, n_streams: head.streams.into(), packet })
    }

    /// Forgets all packets. The crate has no reset, so the decoders are built again.
    pub(super) fn reset(&mut self) -> Result<()> {
        for stream in &mut self.streams {
            stream.decoder = new_decoder(stream.channels)?;
        }
        Ok(())
    }

    /// Decodes a packet of `n_samples`; the error says what is wrong.
    ///
    /// Frames of at most one byte are not coded (DTX): the decoder conceals them with comfort noise.
    pub(super) fn decode(&mut self, packet: &[u8], n_samples: usize) -> Result<(), String> {
        let mut rest = packet;
        let mut streams = self.streams.iter_mut().peekable();
        for number in 0..self.n_streams {
            let (frames, behind) = Frames::parse(rest, number + 1 < self.n_streams)
                .ok_or("the lengths of its frames contradict the packet")?;
            rest = behind;
            let Some(stream) = streams.next_if(|stream| stream.number == number) else { continue };
            let mut at = 0;
            for frame in frames.iter() {
                let out = stream.pcm.get_mut(at..n_samples * stream.channels).unwrap_or_default();
                if out.len() < frames.samples * stream.channels {
                    return Err("its streams have different durations".into());
                }
                self.packet.clear();
                if frame.len() > 1 {
                    self.packet.push(frames.toc);
                    self.packet.extend_from_slice(frame);
                }
                let found = stream.decoder.decode(&self.packet, frames.samples, out);
                match found {
                    Ok(found) if found == frames.samples => at += found * stream.channels,
                    Ok(found) => return Err(format!("{found} samples instead of {}", frames.samples)),
                    Err(error) => return Err(error.to_string()),
                }
            }
            if at != n_samples * stream.channels {
                return Err("its streams have different durations".into());
            }
        }
        Ok(())
    }

    /// Writes the samples `from` of the last packet of channel `place`, times the output gain.
    pub(super) fn write(&self, head: &Head, place: usize, from: Range<usize>, out: &mut [f32]) {
        let source = head.source(place).and_then(|(number, channel)| {
            self.streams.iter().find(|stream| stream.number == number).map(|stream| (stream, channel))
        });
        let Some((stream, channel)) = source else { return out.fill(0.0) };
        let gain = head.gain();
        let frames = stream.pcm[from.start * stream.channels..].chunks_exact(stream.channels);
        for (out, frame) in out.iter_mut().zip(frames) {
            *out = frame[channel] * gain;
        }
    }
}
