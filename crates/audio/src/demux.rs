//! AAC and ALAC: the packets of [`super::mp4`], [`super::caf`] and [`super::aac`] (ADTS), decoded by the
//! library's decoders.
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

use std::ops::Range;

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
    decoder_cache::{PooledVec, VecPool},
    fallible_alloc,
    field::{Endian, u32_at},
    formats::mp4::Edit,
    packet::Packet,
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

pub(crate) struct AlacPackets<'a> {
    pub(crate) cookie: &'a [u8],
    /// The packets in the file; their ticks are samples per channel.
    pub(crate) packets: PooledVec<Packet>,
    /// Samples before the recording's first.
    pub(crate) delay: u64,
    /// Samples of the recording, from there on; 0 for all.
    pub(crate) n_valid: u64,
}

#[derive(Default)]
pub(crate) struct PacketPools {
    pub(crate) packets: VecPool<Packet>,
    starts: VecPool<u64>,
}

pub struct PacketRecording<'a> {
    bytes: &'a [u8],
    info: Info,
    params: AudioCodecParameters,
    packets: PooledVec<Packet>,
    /// The first sample of each packet before the edit; one more entry for the end.
    starts: PooledVec<u64>,
    /// Samples before the edit's first.
    delay: u64,
}

impl std::fmt::Debug for PacketRecording<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PacketRecording")
            .field("info", &self.info)
            .field("packets", &self.packets.len())
            .finish()
    }
}

impl<'a> PacketRecording<'a> {
    /// Opens AAC in ADTS, whose first frame is at byte `start`.
    ///
    /// # Errors
    /// `Corrupt`, `Unsupported` or `Empty`, by the frames and the first packet.
    pub(crate) fn open_adts(cache: &mut DecoderCache, bytes: &'a [u8], start: usize) -> Result<Self> {
        let bytes = &bytes[start..];
        let mut packets = cache.pools::<PacketPools>().packets.take();
        let mut walk = aac::Adts::default();
        walk.step(bytes, 0, true, &mut packets)?;
        let (setup, _) = walk.setup()?;
        Self::new(cache, bytes, Codec::Aac, &setup, packets, None, Edit::default())
    }

    /// Opens packets of a sound track.
    ///
    /// # Errors
    /// Errors of the first packet.
    pub(crate) fn from_track(
        cache: &mut DecoderCache,
        bytes: &'a [u8],
        (codec, setup): (Codec, &[u8]),
        packets: PooledVec<Packet>,
        timescale: u32,
        edit: Edit,
    ) -> Result<Self> {
        Self::new(cache, bytes, codec, setup, packets, Some(timescale), edit)
    }

    /// Opens ALAC in packets of a container.
    ///
    /// # Errors
    /// As [`PacketRecording::open_adts`].
    pub(crate) fn from_alac(
        cache: &mut DecoderCache,
        bytes: &'a [u8],
        from: AlacPackets<'_>,
    ) -> Result<Self> {
        let AlacPackets { cookie, packets, delay, n_valid } = from;
        let edit = Edit { delay, length: Some(n_valid).filter(|&n| n > 0), rounded_by: 0, timescale: None };
        Self::new(cache, bytes, Codec::Alac, cookie, packets, None, edit)
    }

    /// `timescale` is the ticks per second of the packets; None if ticks are samples.
    fn new(
        cache: &mut DecoderCache,
        bytes: &'a [u8],
        codec: Codec,
        setup: &[u8],
        packets: PooledVec<Packet>,
        timescale: Option<u32>,
        edit: Edit,
    ) -> Result<Self> {
        let mut first_packets = [&[][..]; AAC_SBR_SEARCHED];
        let n = packets.len().min(AAC_SBR_SEARCHED);
        for (slot, packet) in first_packets.iter_mut().zip(packets.iter()) {
            *slot = data(bytes, packet);
        }
        let first = FirstPacket::decode_first(cache, codec, setup, &first_packets[..n])?;
        let mut starts = cache.pools::<PacketPools>().starts.take();
        fallible_alloc::reserve(&mut starts, packets.len() + 1)?;
        let mut timeline = Timeline::new(timescale, edit);
        for (i, packet) in packets.iter().enumerate() {
            starts.push(timeline.samples);
            timeline.add(&first, packet, i + 1 == packets.len(), data(bytes, packet));
        }
        starts.push(timeline.samples);
        let (delay, info) = timeline.edited(&first);
        Ok(Self { bytes, info, params: first.params, packets, starts, delay })
    }

    /// A window of packets: those at these places in `bytes`, whose first samples (before the edit) are
    /// `starts`, with one more for the end.
    pub(crate) fn window(
        cache: &mut DecoderCache,
        bytes: &'a [u8],
        info: Info,
        setup: &[u8],
        delay: u64,
        list: impl Iterator<Item = (Packet, u64)>,
        behind: u64,
    ) -> Result<Self> {
        let mut packets = cache.pools::<PacketPools>().packets.take();
        let mut starts = cache.pools::<PacketPools>().starts.take();
        for (packet, start) in list {
            fallible_alloc::push(&mut packets, packet)?;
            fallible_alloc::push(&mut starts, start)?;
        }
        fallible_alloc::push(&mut starts, behind)?;
        Ok(Self { bytes, info, params: parameters(info.codec, setup), packets, starts, delay })
    }

    /// Codec, rate, channels and length, checked against the packets.
    pub fn info(&self) -> Info {
        self.info
    }

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
        let decoder = decoder(cache, &mut new, self.info.codec, &self.params)?;
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

fn parameters(codec: Codec, setup: &[u8]) -> AudioCodecParameters {
    let mut params = AudioCodecParameters::new();
    match codec {
        Codec::Aac => params.for_codec(CODEC_ID_AAC).with_extra_data(aac::core_setup(setup).into()),
        _ => params.for_codec(CODEC_ID_ALAC).with_extra_data(setup.into()),
    };
    params
}

/// What the first packets of a recording show.
pub(crate) struct FirstPacket {
    codec: Codec,
    params: AudioCodecParameters,
    sample_rate: u32,
    channels: u16,
    /// Samples per channel of a whole packet.
    packet_samples: u64,
}

impl FirstPacket {
    /// Decodes the first of these packets, which are up to [`AAC_SBR_SEARCHED`].
    pub(crate) fn decode_first(
        cache: &mut DecoderCache,
        codec: Codec,
        setup: &[u8],
        first_packets: &[&[u8]],
    ) -> Result<Self> {
        let params = parameters(codec, setup);
        if codec == Codec::Aac {
            aac::check_setup(setup)?;
        }
        let first = first_packets
            .first()
            .ok_or_else(|| Error::new(ErrorKind::Empty, "the audio track has no packets"))?;

        // The decoded first packet determines channels and rate: a container may declare others.
        let mut new = None;
        let decoder = decoder(cache, &mut new, codec, &params)?;
        let decoded =
            decode(decoder, first).map_err(|e| corrupt("the first packet is damaged").because(e))?;
        let sample_rate = decoded.spec().rate();
        let channels = decoded.num_planes() as u16;
        let packet_samples = match codec {
            // The first packet may be short, too.
            Codec::Alac => alac_frame_length(setup).unwrap_or(decoded.frames() as u64),
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
        Ok(Self { codec, params, sample_rate, channels, packet_samples })
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
    pub(crate) fn has_own_length(&self, packet: &Packet, timescale: Option<u32>, is_last: bool) -> bool {
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

    /// Adds a packet, whose bytes are `bytes`; they matter only if [`FirstPacket::has_own_length`]. Returns
    /// its samples per channel.
    pub(crate) fn add(&mut self, first: &FirstPacket, packet: &Packet, is_last: bool, bytes: &[u8]) -> u64 {
        let timescale = self.timescale;
        let ticks = u64::from(packet.dur);
        self.ticks = self.ticks.saturating_add(ticks);
        if packet.len == 0 {
            return 0;
        }
        let mut n = match first.has_own_length(packet, timescale, is_last) {
            true => alac_frames(bytes).map_or(first.packet_samples, |n| n.min(first.packet_samples)),
            false => first.packet_samples,
        };
        if !is_last {
            self.is_rounded |= first.scale(ticks, timescale) != n;
        } else if ticks > 0 && !(self.is_rounded && self.edit.length.is_some()) {
            // The last packet may be used in part. Ticks that are longer than a sample are rounded, so the
            // upper bound counts.
            let is_coarse = timescale.is_some_and(|timescale| timescale < first.sample_rate);
            n = n.min(first.scale(ticks + u64::from(is_coarse), timescale));
        }
        self.samples = self.samples.saturating_add(n);
        n
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
    codec: Codec,
    params: &AudioCodecParameters,
) -> Result<&'k mut dyn AudioDecoder> {
    if codec == Codec::Alac {
        let cookie = params.extra_data.as_deref().unwrap_or_default();
        let decoder =
            cache.decoder(codec, cookie, || Ok((new_decoder(codec, params)?, ALAC_DECODER_BYTES)))?;
        return Ok(decoder.as_mut());
    }
    Ok(new.insert(new_decoder(codec, params)?).as_mut())
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
