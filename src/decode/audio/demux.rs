//! AAC and ALAC: packets come from symphonia's demuxers for ADTS and MP4 and from [`super::caf`], spans from its decoders.
//!
//! The packets are taken out once and kept with the recording; a span starts its decoder a fixed number of packets
//! early. ALAC packets are independent, so its decoders are kept. AAC overlaps two packets, and its decoder draws noise (PNS)
//! from a generator that only a new decoder resets: that, and the fixed pre-roll, make a span a pure function of bytes and
//! span.
//!
//! The timeline is the sample table's, cut by the edit list ([`super::mp4`]); ADTS has neither, so there each packet
//! counts in full.
//!
//! Source: own; ISO/IEC 14496-3 for the overlap.

use std::{
    io::{Cursor, ErrorKind as IoKind},
    ops::Range,
};

use symphonia::{
    core::{
        audio::GenericAudioBufferRef,
        codecs::audio::{
            AudioCodecParameters, AudioDecoder, AudioDecoderOptions,
            well_known::{CODEC_ID_AAC, CODEC_ID_ALAC},
        },
        errors::Error as SymphoniaError,
        formats::{FormatOptions, FormatReader},
        io::MediaSourceStream,
        packet::Packet,
        units::{Duration, TimeBase, Timestamp},
    },
    default::{
        codecs::{AacDecoder, AlacDecoder},
        formats::{AdtsReader, IsoMp4Reader},
    },
};

use super::{
    Codec, Info, Kept, Planes, corrupt,
    kept::{Lent, Shelf},
    mp4::{self, Edit},
    unsupported,
};
use crate::{Error, ErrorKind, Result};

/// AAC packets decoded before the span's first: one for the overlap, one more for window shapes that depend on it.
const AAC_PREROLL: usize = 2;

/// Bytes that a kept ALAC decoder may hold: the most frames that the library lets a packet have, in eight channels.
const ALAC_DECODER_BYTES: usize = (1 << 16) * (8 * 4 + 2 * 2);

/// ALAC packets as a container gives them.
pub(super) struct Packets<'a> {
    /// The decoder's setup.
    pub(super) cookie: &'a [u8],
    /// Bytes and samples per channel of each packet.
    pub(super) packets: Vec<(&'a [u8], u64)>,
    /// Samples before the first wanted one.
    pub(super) delay: u64,
    /// Samples wanted from there on.
    pub(super) n_valid: u64,
}

/// Where the vectors of an index are between recordings.
#[derive(Default)]
pub(super) struct Shelves {
    packets: Shelf<Packet>,
    starts: Shelf<u64>,
}

/// A recording in packets.
pub struct Demuxed {
    info: Info,
    params: AudioCodecParameters,
    packets: Lent<Packet>,
    /// The first sample of each packet before the edit; one more entry for the end.
    starts: Lent<u64>,
    /// Samples before the edit's first.
    delay: u64,
}

impl std::fmt::Debug for Demuxed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Demuxed").field("info", &self.info).field("packets", &self.packets.len()).finish()
    }
}

impl Demuxed {
    /// Opens AAC in ADTS.
    ///
    /// # Errors
    /// `Corrupt`, `Unsupported` or `Empty`, as the demuxer and the first packet tell.
    pub(super) fn open_adts(kept: &mut Kept, bytes: &[u8]) -> Result<Self> {
        // The demuxer wants to start at a frame.
        let start = super::sniff::skip_id3v2(bytes);
        let bytes = &bytes[start..];
        let reader = AdtsReader::try_new(source(bytes), FormatOptions::default()).map_err(refused)?;
        Self::open(kept, Box::new(reader), bytes.len(), Edit::default())
    }

    /// Opens MP4, M4A and MOV.
    ///
    /// # Errors
    /// As [`Demuxed::open_adts`].
    pub(super) fn open_mp4(kept: &mut Kept, bytes: &[u8]) -> Result<Self> {
        if !mp4::has_movie(bytes) {
            return Err(corrupt("the MP4 file has no `moov` box: it is damaged or cut short"));
        }
        let reader = IsoMp4Reader::try_new(source(bytes), FormatOptions::default()).map_err(refused)?;
        Self::open(kept, Box::new(reader), bytes.len(), Edit::of_first_sound(bytes))
    }

    /// ALAC of which a container gave the packets.
    ///
    /// # Errors
    /// As [`Demuxed::open_adts`].
    pub(super) fn alac(kept: &mut Kept, from: Packets<'_>) -> Result<Self> {
        let mut params = AudioCodecParameters::new();
        params.for_codec(CODEC_ID_ALAC).with_extra_data(from.cookie.into());
        let packet = |&(data, dur): &(&[u8], u64)| Packet::new(0, Timestamp::ZERO, Duration::from(dur), data);
        let mut packets = kept.demux.packets.lend();
        packets.extend(from.packets.iter().map(packet));
        let edit = Edit { delay: from.delay, length: Some(from.n_valid).filter(|&n| n > 0) };
        Self::new(kept, Codec::Alac, params, packets, None, edit)
    }

    fn open(
        kept: &mut Kept,
        mut reader: Box<dyn FormatReader + '_>,
        n_bytes: usize,
        edit: Edit,
    ) -> Result<Self> {
        let track = reader.tracks().iter().find_map(|track| {
            let params = track.codec_params.as_ref()?.audio()?;
            Some((track.id, params.clone(), track.time_base))
        });
        let (id, params, time_base) = track.ok_or_else(|| unsupported("the container has no audio track"))?;
        let codec = match params.codec {
            CODEC_ID_AAC => Codec::Aac,
            CODEC_ID_ALAC => Codec::Alac,
            other => {
                return Err(unsupported(format!(
                    "the audio track's codec is {other}; AAC and ALAC are decoded"
                )));
            }
        };
        let mut held = kept.demux.packets.lend();
        packets(reader.as_mut(), id, n_bytes, &mut held)?;
        Self::new(kept, codec, params, held, time_base, edit)
    }

    fn new(
        kept: &mut Kept,
        codec: Codec,
        params: AudioCodecParameters,
        packets: Lent<Packet>,
        time_base: Option<TimeBase>,
        edit: Edit,
    ) -> Result<Self> {
        let first =
            packets.first().ok_or_else(|| Error::new(ErrorKind::Empty, "the audio track has no packets"))?;

        // What the first packet decodes to is what counts; headers lack channels (ADTS) or tell another rate (SBR).
        let mut new = None;
        let decoder = decoder(kept, &mut new, codec, &params)?;
        let decoded = decoder.decode(first).map_err(|e| corrupt("the first packet is damaged").because(e))?;
        let sample_rate = decoded.spec().rate();
        let channels = decoded.num_planes() as u16;
        let in_full = decoded.frames() as u64;
        if sample_rate == 0 || channels == 0 {
            return Err(corrupt("the first packet decodes to no channels or a sample rate of 0"));
        }

        let scale = |ticks: u64| match time_base {
            Some(base) => {
                let parts = u128::from(ticks) * u128::from(base.numer.get()) * u128::from(sample_rate);
                (parts / u128::from(base.denom.get())) as u64
            }
            None => ticks,
        };
        let mut starts = kept.demux.starts.lend();
        let mut total = 0u64;
        for packet in packets.iter() {
            starts.push(total);
            let n = match codec {
                // A decoder yields whole packets; the table may say that the last one is used in part.
                Codec::Aac => scale(packet.dur.get()).min(in_full),
                _ => scale(packet.dur.get()),
            };
            total = total.saturating_add(n);
        }
        starts.push(total);
        let delay = scale(edit.delay);
        let n_samples = total.saturating_sub(delay).min(edit.length.map_or(u64::MAX, |n| scale(n).max(1)));
        let info = Info { codec, sample_rate, channels, n_samples };
        Ok(Self { info, params, packets, starts, delay })
    }

    /// What the container says, checked against the packets.
    pub fn info(&self) -> Info {
        self.info
    }

    pub(crate) fn read(&self, kept: &mut Kept, span: Range<u64>, out: &mut Planes) -> Result<()> {
        let span = span.start + self.delay..span.end + self.delay;
        let mut new = None;
        let decoder = decoder(kept, &mut new, self.info.codec, &self.params)?;
        // The packet that holds the span's first sample: empty packets start where the next one does.
        let holds = self.starts.partition_point(|&start| start <= span.start) - 1;
        let preroll = if self.info.codec == Codec::Aac { AAC_PREROLL } else { 0 };
        for i in holds.saturating_sub(preroll)..self.packets.len() {
            let (first, behind) = (self.starts[i], self.starts[i + 1]);
            if first >= span.end {
                break;
            }
            let decoded = decoder.decode(&self.packets[i]).map_err(|error| {
                corrupt(format!("the packet of sample {first} is damaged or cut short")).because(error)
            })?;
            let from = first.max(span.start);
            let until = behind.min(span.end);
            if from >= until {
                continue;
            }
            if decoded.num_planes() != usize::from(self.info.channels) {
                return Err(corrupt(format!("the number of channels changes at sample {first}")));
            }
            let n = (until - from) as usize;
            let (skip, at) = ((from - first) as usize, (from - span.start) as usize);
            for c in 0..usize::from(self.info.channels) {
                let y = &mut out.channel_mut(c)[at..at + n];
                copy(&decoded, c, skip, y).ok_or_else(|| {
                    let message = format!("the packet of sample {first} has {} samples", decoded.frames());
                    Error::new(ErrorKind::TooShort, format!("{message}, the table says {}", behind - first))
                })?;
            }
        }
        Ok(())
    }
}

/// Copies samples of channel `c` from `skip` on; `None` if there are too few.
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

fn source(bytes: &[u8]) -> MediaSourceStream<'_> {
    MediaSourceStream::new(Box::new(Cursor::new(bytes)), Default::default())
}

/// Appends the packets of track `id`: no more of them, and no more bytes in them, than the recording has bytes.
fn packets(
    reader: &mut (dyn FormatReader + '_),
    id: u32,
    n_bytes: usize,
    packets: &mut Vec<Packet>,
) -> Result<()> {
    let (mut held, mut seen) = (0usize, 0usize);
    loop {
        let packet = match reader.next_packet() {
            Ok(Some(packet)) => packet,
            Ok(None) => return Ok(()),
            // Cut short: what came before is there.
            Err(SymphoniaError::IoError(error)) if error.kind() == IoKind::UnexpectedEof => {
                return Ok(());
            }
            Err(_) if !packets.is_empty() => return Ok(()),
            Err(error) => return Err(refused(error)),
        };
        seen += 1;
        held = held.saturating_add(packet.data.len());
        if seen > n_bytes || held > n_bytes {
            return Err(corrupt("the sample table refers to more packets than the bytes can hold"));
        }
        if packet.track_id == id {
            packets.push(packet);
        }
    }
}

/// A decoder that knows nothing of other recordings: ALAC's is kept, AAC's is put into `new`.
fn decoder<'k>(
    kept: &'k mut Kept,
    new: &'k mut Option<Box<dyn AudioDecoder>>,
    codec: Codec,
    params: &AudioCodecParameters,
) -> Result<&'k mut dyn AudioDecoder> {
    if codec == Codec::Alac {
        let cookie = params.extra_data.as_deref().unwrap_or_default();
        return kept.decoder(codec, cookie, || Ok((new_decoder(codec, params)?, ALAC_DECODER_BYTES)));
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

/// What symphonia says about a container or a codec's setup.
fn refused(error: SymphoniaError) -> Error {
    match error {
        SymphoniaError::Unsupported(what) => unsupported(format!("not decoded: {what}")),
        error => corrupt("the container is damaged or cut short").because(error),
    }
}
