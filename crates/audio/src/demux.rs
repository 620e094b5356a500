//! AAC and ALAC: the packets of MP4, CAF and [`super::aac`] (ADTS), decoded by the library's decoders.
//!
//! The positions of the packets are found once, when the recording is opened. The decoder starts a fixed
//! number of packets before a span. ALAC packets are independent, so its decoders are cached. AAC overlaps
//! two packets, and its decoder draws noise (PNS) from a generator that only a new decoder resets. So each
//! span of AAC has a new decoder; with the fixed pre-roll, its samples are a pure function of bytes and span.
//!
//! The timeline is that of the packets, trimmed by the edit. A packet decodes to a fixed number of samples,
//! and players play all of them, so durations in a table of samples, fragment or packet table are used only
//! for the last packet: they are often rounded to the clock of a recorder or a converter. If others are, so
//! is that of the last one, and an edit with a length cuts the end instead ([`Timeline`]). An ALAC packet
//! that is short contains its own length. Packets without bytes have no samples.
//!
//! Source: own; ISO/IEC 14496-3 for the overlap; Apple's "ALAC" (frame headers).

use std::ops::{Deref, Range};

use symphonia::{
    core::{
        audio::GenericAudioBufferRef,
        codecs::audio::{
            AudioCodecParameters, AudioDecoder, AudioDecoderOptions,
            well_known::{CODEC_ID_AAC, CODEC_ID_ALAC},
        },
        errors::Error as SymphoniaError,
        packet::PacketRef,
        units::{Duration, Timestamp},
    },
    default::codecs::{AacDecoder, AlacDecoder},
};

use crate::{
    Codec, DecoderCache, Error, ErrorKind, Info, Planes, Result, aac, corrupt,
    damage::DamagedFrames,
    decoder_cache::VecPool,
    field::{Endian, u32_at},
    packet::{Edit, Packet},
    unsupported,
};

/// AAC packets decoded before the span's first: one for the overlap, one more for window shapes that depend
/// on it.
pub(crate) const AAC_PREROLL: usize = 2;

/// The most bytes of a cached ALAC decoder: for the most frames that the library allows in a packet, in eight
/// channels.
const ALAC_DECODER_BYTES: usize = (1 << 16) * (8 * 4 + 2 * 2);

/// The number of AAC packets searched for SBR that the setup does not signal, and how many of them must have
/// it, to exclude chance.
pub(crate) const AAC_SBR_SEARCHED: usize = 4;
const AAC_SBR_NEEDED: usize = 2;

#[derive(Default)]
pub(crate) struct PacketPools {
    pub(crate) packets: VecPool<Packet>,
    pub(crate) starts: VecPool<u64>,
}

/// Packets of a recording: all of them, or those in a window.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packets<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) info: Info,
    pub(crate) setup: &'a DecoderSetup,
    /// Their places in `bytes`.
    pub(crate) packets: &'a [Packet],
    /// The first sample of each packet before the edit; one more entry for the end.
    pub(crate) starts: &'a [u64],
    /// Samples before the edit's first.
    pub(crate) delay: u64,
}

impl Packets<'_> {
    /// Decodes `span`. Packets that cannot be decoded are silent, as far as the read may have such.
    pub(crate) fn read(&self, cache: &mut DecoderCache, span: Range<u64>, out: &mut Planes) -> Result<()> {
        let mut losses = std::mem::take(&mut cache.losses);
        let read = self.read_packets(cache, span, out, &mut losses);
        cache.losses = losses;
        read
    }

    fn read_packets(
        &self,
        cache: &mut DecoderCache,
        span: Range<u64>,
        out: &mut Planes,
        losses: &mut DamagedFrames,
    ) -> Result<()> {
        let span = span.start + self.delay..span.end + self.delay;
        let mut new = None;
        let decoder = decoder(cache, &mut new, self.setup)?;
        // The packet with the span's first sample. Empty packets start at the same sample as the next one.
        let holds = self.starts.partition_point(|&start| start <= span.start) - 1;
        let preroll = if self.info.codec == Codec::Aac { AAC_PREROLL } else { 0 };
        for i in holds.saturating_sub(preroll)..self.packets.len() {
            let (first, behind) = (self.starts[i], self.starts[i + 1]);
            if first >= span.end {
                break;
            }
            if self.packets[i].len == 0 {
                continue;
            }
            let decoded = decode(decoder, data(self.bytes, &self.packets[i])).map_err(|error| {
                corrupt(format!("the packet of sample {first} is damaged or cut short")).because(error)
            });
            let from = first.max(span.start);
            let until = behind.min(span.end).max(from);
            let copied = decoded.and_then(|decoded| {
                let n = (until - from) as usize;
                if n == 0 {
                    return Ok(());
                }
                if decoded.num_planes() != usize::from(self.info.channels) {
                    return Err(corrupt(format!("the number of channels changes at sample {first}")));
                }
                let (skip, at) = ((from - first) as usize, (from - span.start) as usize);
                for c in 0..usize::from(self.info.channels) {
                    let y = &mut out.channel_mut(c)[at..at + n];
                    copy(&decoded, c, skip, y).ok_or_else(|| {
                        let message =
                            format!("the packet of sample {first} has {} samples", decoded.frames());
                        Error::new(
                            ErrorKind::TooShort,
                            format!("{message}, its duration is {}", behind - first),
                        )
                    })?;
                }
                Ok(())
            });
            if let Err(error) = copied {
                losses.silence(until - from, error)?;
                decoder.reset();
                for c in 0..usize::from(self.info.channels) {
                    let range = (from - span.start) as usize..(until - span.start) as usize;
                    if !range.is_empty() {
                        out.channel_mut(c)[range].fill(0.0);
                    }
                }
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
pub(crate) struct DecoderSetup {
    codec: Codec,
    params: AudioCodecParameters,
}

impl DecoderSetup {
    pub(crate) fn new(codec: Codec, bytes: &[u8]) -> Self {
        let mut params = AudioCodecParameters::new();
        match codec {
            Codec::Aac => params.for_codec(CODEC_ID_AAC).with_extra_data(aac::core_setup(bytes).into()),
            _ => params.for_codec(CODEC_ID_ALAC).with_extra_data(bytes.into()),
        };
        Self { codec, params }
    }

    /// As [`Self::new`], if the codec decodes it rightly.
    ///
    /// # Errors
    /// As [`aac::check_setup`].
    pub(crate) fn checked(codec: Codec, bytes: &[u8]) -> Result<Self> {
        if codec == Codec::Aac {
            aac::check_setup(bytes)?;
        }
        Ok(Self::new(codec, bytes))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.params.extra_data.as_deref().unwrap_or_default()
    }
}

/// What the first packets of a recording show.
pub(crate) struct FirstPacket {
    codec: Codec,
    sample_rate: u32,
    channels: u16,
    /// Samples per channel of a whole packet.
    packet_samples: u64,
}

impl FirstPacket {
    /// Decodes the first of these packets, which are up to [`AAC_SBR_SEARCHED`].
    pub(crate) fn decode_first(
        cache: &mut DecoderCache,
        setup: &DecoderSetup,
        first_packets: &[&[u8]],
    ) -> Result<Self> {
        let codec = setup.codec;
        let first = first_packets
            .first()
            .ok_or_else(|| Error::new(ErrorKind::Empty, "the audio track has no packets"))?;

        // The decoded first packet determines channels and rate: a container may declare others.
        let mut new = None;
        let decoder = decoder(cache, &mut new, setup)?;
        let decoded =
            decode(decoder, first).map_err(|e| corrupt("the first packet is damaged").because(e))?;
        let sample_rate = decoded.spec().rate();
        let channels = decoded.num_planes() as u16;
        let packet_samples = match codec {
            // The first packet may be short, too.
            Codec::Alac => alac_frame_length(setup.bytes()).unwrap_or(decoded.frames() as u64),
            _ => decoded.frames() as u64,
        };
        if sample_rate == 0 || channels == 0 {
            return Err(corrupt("the first packet decodes to no channels or a sample rate of 0"));
        }
        if codec == Codec::Aac {
            let has_sbr = |packet: &&&[u8]| aac::has_sbr(packet, |core| decode(decoder, core).is_ok());
            if first_packets.iter().filter(has_sbr).count() >= AAC_SBR_NEEDED.min(first_packets.len()) {
                return Err(aac::he_aac(false));
            }
        }
        Ok(Self { codec, sample_rate, channels, packet_samples })
    }

    fn scale(&self, ticks: u64, timescale: Option<u32>) -> u64 {
        match timescale {
            Some(timescale) => {
                (u128::from(ticks) * u128::from(self.sample_rate) / u128::from(timescale)) as u64
            }
            None => ticks,
        }
    }

    /// Whether only the packet itself says how long it is: the last one of ALAC, and those that the table
    /// does not count in full.
    fn has_own_length(&self, packet: &Packet, timescale: Option<u32>, is_last: bool) -> bool {
        self.codec == Codec::Alac
            && (is_last || self.scale(packet.dur.into(), timescale) != self.packet_samples)
    }
}

/// The length of a recording, packet by packet.
pub(crate) struct Timeline {
    timescale: Option<u32>,
    edit: Edit,
    /// Samples of the packets so far.
    pub(crate) samples: u64,
    /// Ticks of the packets so far, as the table counts them.
    ticks: u64,
    /// Whether the table counts packets before the last one with other lengths than they have.
    is_rounded: bool,
}

impl Timeline {
    /// `timescale` is the ticks per second of the packets; None if ticks are samples.
    pub(crate) fn new(timescale: Option<u32>, edit: Edit) -> Self {
        Self { timescale, edit, samples: 0, ticks: 0, is_rounded: false }
    }

    /// Adds a packet, whose bytes `read` returns if it alone says how long it is. Returns its samples per
    /// channel; None if `read` does.
    ///
    /// # Errors
    /// If `read` fails.
    pub(crate) fn add<B: Deref<Target = [u8]>>(
        &mut self,
        first: &FirstPacket,
        packet: &Packet,
        is_last: bool,
        read: impl FnOnce() -> Result<Option<B>>,
    ) -> Result<Option<u64>> {
        let timescale = self.timescale;
        let ticks = u64::from(packet.dur);
        self.ticks = self.ticks.saturating_add(ticks);
        if packet.len == 0 {
            return Ok(Some(0));
        }
        let mut n = first.packet_samples;
        if first.has_own_length(packet, timescale, is_last) {
            let Some(bytes) = read()? else { return Ok(None) };
            n = alac_frames(&bytes).map_or(n, |own| own.min(n));
        }
        if !is_last {
            self.is_rounded |= first.scale(ticks, timescale) != n;
        } else if ticks > 0 && !(self.is_rounded && self.edit.length.is_some()) {
            // The last packet may be used in part. Ticks that are longer than a sample are rounded, so the
            // upper bound counts.
            let is_coarse = timescale.is_some_and(|timescale| timescale < first.sample_rate);
            n = n.min(first.scale(ticks + u64::from(is_coarse), timescale));
        }
        self.samples = self.samples.saturating_add(n);
        Ok(Some(n))
    }

    /// Samples before the edit's first, and the recording after the edit.
    pub(crate) fn edited(&self, first: &FirstPacket) -> (u64, Info) {
        let &FirstPacket { codec, sample_rate, channels, .. } = first;
        let edit = self.edit;
        let delay = first.scale(edit.delay, edit.timescale);
        let length = edit.length.map_or(u64::MAX, |upper| {
            let ticks = match self.is_rounded {
                // Between the edit's length in its own clock and the next tick of that clock, the table
                // decides.
                true if self.timescale == edit.timescale => {
                    self.ticks.saturating_sub(edit.delay).clamp(upper - edit.rounded_by, upper)
                }
                _ => upper,
            };
            first.scale(ticks, edit.timescale).max(1)
        });
        let n_samples = self.samples.saturating_sub(delay).min(length);
        (delay, Info { codec, sample_rate, channels, n_samples })
    }
}

/// Copies samples of channel `c` from `skip` on to `y`; `None` if there are too few.
fn copy(decoded: &GenericAudioBufferRef<'_>, c: usize, skip: usize, y: &mut [f32]) -> Option<()> {
    use symphonia::core::audio::Audio;
    let range = skip..skip + y.len();
    match decoded {
        GenericAudioBufferRef::F32(buffer) => y.copy_from_slice(buffer.plane(c)?.get(range)?),
        GenericAudioBufferRef::S32(buffer) => {
            for (y, &x) in y.iter_mut().zip(buffer.plane(c)?.get(range)?) {
                *y = x as f32 * (1.0 / 2_147_483_648.0);
            }
        }
        _ => return None,
    }
    Some(())
}

/// The bytes of a packet; its range was checked when it was listed.
fn data<'a>(bytes: &'a [u8], packet: &Packet) -> &'a [u8] {
    &bytes[packet.at..packet.at + packet.len as usize]
}

fn decode<'d>(
    decoder: &'d mut dyn AudioDecoder,
    packet: &[u8],
) -> std::result::Result<GenericAudioBufferRef<'d>, SymphoniaError> {
    decoder.decode_ref(&PacketRef::new(0, Timestamp::ZERO, Duration::ZERO, packet))
}

/// Samples per channel of an ALAC packet that begins with sound and declares its own length; None for others.
fn alac_frames(packet: &[u8]) -> Option<u64> {
    let head = u64::from_be_bytes(*packet.first_chunk()?);
    // Three bits of element (one channel, two, low frequencies), four of its number, twelve unused, then
    // whether 32 bits of length follow the four bits of flags.
    let (element, is_partial) = (head >> 61, head >> 44 & 1 == 1);
    (matches!(element, 0 | 1 | 3) && is_partial).then_some(head >> 9 & 0xffff_ffff)
}

/// Samples per channel of an ALAC packet that does not declare its own length, by the decoder's setup.
fn alac_frame_length(setup: &[u8]) -> Option<u64> {
    // The library accepts no more.
    u32_at(setup, 0, Endian::Big).map(u64::from).filter(|n| (1..=1 << 16).contains(n))
}

/// A decoder without state of other recordings: cached for ALAC, created in `new` for AAC.
fn decoder<'k>(
    cache: &'k mut DecoderCache,
    new: &'k mut Option<Box<dyn AudioDecoder>>,
    setup: &DecoderSetup,
) -> Result<&'k mut dyn AudioDecoder> {
    let DecoderSetup { codec, params } = setup;
    if *codec == Codec::Alac {
        let make = || Ok((new_decoder(*codec, params)?, ALAC_DECODER_BYTES));
        let decoder = cache.decoder(*codec, setup.bytes(), make)?;
        return Ok(decoder.as_mut());
    }
    Ok(new.insert(new_decoder(*codec, params)?).as_mut())
}

fn new_decoder(codec: Codec, params: &AudioCodecParameters) -> Result<Box<dyn AudioDecoder>> {
    let options = AudioDecoderOptions::default().gapless(false);
    let decoder = match codec {
        Codec::Aac => AacDecoder::try_new(params, &options).map(|it| Box::new(it) as Box<dyn AudioDecoder>),
        _ => AlacDecoder::try_new(params, &options).map(|it| Box::new(it) as Box<dyn AudioDecoder>),
    };
    decoder.map_err(refused)
}

/// The error of symphonia for a codec's setup.
fn refused(error: SymphoniaError) -> Error {
    match error {
        SymphoniaError::Unsupported(what) => unsupported(format!("not decoded: {what}")),
        error => corrupt("the decoder's setup is damaged or cut short").because(error),
    }
}
