//! Compares the decoder with symphonia's, packet by packet.
//!
//! Only in tests. Input: headers and audio packets, whole or damaged. Output: the
//! largest difference between samples.
//!
//! Source: own.

use symphonia::core::{
    audio::{Audio, GenericAudioBufferRef},
    codecs::audio::{AudioCodecParameters, AudioDecoder, AudioDecoderOptions, well_known::CODEC_ID_VORBIS},
    packet::PacketRef,
    units::{Duration, Timestamp},
};
use symphonia_codec_vorbis::VorbisDecoder;

use super::{MAGIC, decoder::Decoder, link::IDENTIFICATION_LEN, list_streams, setup::Setup};
use crate::{
    ogg::{OggPackets, Page},
    simd::Level,
};

/// symphonia's decoder of a stream; None if it refuses the headers.
fn theirs(identification: &[u8], header: &[u8], setup: &Setup) -> Option<VorbisDecoder> {
    let mut header = header.to_vec();
    setup.reverse_couplings(&mut header);
    let mut parameters = AudioCodecParameters::new();
    parameters
        .for_codec(CODEC_ID_VORBIS)
        .with_sample_rate(setup.sample_rate)
        .with_extra_data([identification, &header].concat().into_boxed_slice());
    VorbisDecoder::try_new(&parameters, &AudioDecoderOptions::default()).ok()
}

/// The samples of a packet by symphonia, channel by channel; None if it cannot decode it.
fn planes(decoder: &mut VorbisDecoder, packet: &[u8]) -> Option<Vec<Vec<f32>>> {
    let packet = PacketRef::new(0, Timestamp::ZERO, Duration::ZERO, packet);
    match decoder.decode_ref(&packet) {
        Ok(GenericAudioBufferRef::F32(samples)) => Some(samples.iter_planes().map(<[f32]>::to_vec).collect()),
        _ => None,
    }
}

/// Identification header, setup header and audio packets of the first Vorbis stream of a file.
struct Stream {
    identification: Vec<u8>,
    header: Vec<u8>,
    setup: Setup,
    packets: Vec<Vec<u8>>,
}

impl Stream {
    /// None if it has none that can be decoded.
    fn of(bytes: &[u8]) -> Option<Self> {
        let (mut streams, mut pages) = (Vec::new(), Vec::new());
        list_streams(bytes, MAGIC, &mut streams, &mut pages);
        let (first, range) = streams.first()?;
        let pages: &[Page] = &pages[range.clone()];
        let mut scratch = Vec::new();
        let mut packets: Vec<Vec<u8>> = OggPackets::new(bytes, pages, 0)
            .map_while(|packet| packet.data(bytes, pages, &mut scratch).ok().map(<[u8]>::to_vec))
            .collect();
        let identification = first.body(bytes).get(..IDENTIFICATION_LEN)?.to_vec();
        let packets = packets.split_off(packets.len().min(1));
        let (header, audio) = packets.split_first()?;
        let setup = Setup::parse(&identification, header).ok()?;
        Some(Self { identification, header: header.clone(), setup, packets: audio.to_vec() })
    }

    /// All streams below `tests/data` that symphonia reads correctly, with their names.
    fn all() -> Vec<(String, Self)> {
        let mut folders =
            vec![std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data"))];
        let mut found = Vec::new();
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "ogg")
                    && let Some(stream) = Self::of(&std::fs::read(&path).unwrap())
                    && !stream.setup.is_misread()
                {
                    found.push((path.display().to_string(), stream));
                }
            }
        }
        found
    }

    fn ours(&self, level: Level) -> Decoder {
        Decoder::at_level(level, &self.header, &self.setup).unwrap()
    }

    fn theirs(&self) -> VorbisDecoder {
        theirs(&self.identification, &self.header, &self.setup).unwrap()
    }
}

/// The samples of a packet, channel by channel; None if it cannot be decoded.
fn ours(decoder: &mut Decoder, packet: &[u8], channels: usize) -> Option<Vec<Vec<f32>>> {
    decoder.decode(packet).ok()?;
    let n = decoder.n_samples();
    let mut planes = vec![vec![0.0; n]; channels];
    planes.iter_mut().enumerate().for_each(|(i, plane)| decoder.write(i, 0..n, plane));
    Some(planes)
}

/// Asserts that samples differ by at most 1e-6 of full scale, or of the largest one if that is larger.
fn assert_close(ours: &[Vec<f32>], theirs: &[Vec<f32>], name: &str) {
    let all = || theirs.iter().flatten();
    if all().any(|x| !x.is_finite()) {
        return;
    }
    let limit = 1e-6 * all().fold(1.0, |peak: f32, x| peak.max(x.abs()));
    assert_eq!(ours.len(), theirs.len(), "{name}");
    for (ours, theirs) in ours.iter().zip(theirs) {
        assert_eq!(ours.len(), theirs.len(), "{name}");
        let difference = ours.iter().zip(theirs).fold(0.0, |most: f32, (x, y)| most.max((x - y).abs()));
        assert!(difference <= limit, "{name}: {difference:e}, at most {limit:e}");
    }
}

#[test]
fn samples_are_those_of_symphonia() {
    let streams = Stream::all();
    assert!(streams.len() > 20, "{}", streams.len());
    for (name, stream) in streams {
        let channels = usize::from(stream.setup.channels);
        let (mut mine, mut theirs) = (stream.ours(Level::detect()), stream.theirs());
        for packet in &stream.packets {
            match (ours(&mut mine, packet, channels), planes(&mut theirs, packet)) {
                (Some(ours), Some(theirs)) => assert_close(&ours, &theirs, &name),
                (ours, theirs) => assert_eq!(ours.is_some(), theirs.is_some(), "{name}"),
            }
        }
    }
}

#[test]
fn samples_are_the_same_at_each_level() {
    for (name, stream) in Stream::all() {
        let channels = usize::from(stream.setup.channels);
        let mut decoders: Vec<_> = Level::available().into_iter().map(|level| stream.ours(level)).collect();
        for packet in stream.packets.iter().take(100) {
            let mut samples = decoders.iter_mut().map(|decoder| ours(decoder, packet, channels));
            let first = samples.next().unwrap();
            assert!(samples.all(|other| other == first), "{name}");
        }
    }
}

/// Flips bits of packets and cuts them short: the same packets are refused, and samples are close.
#[test]
fn damaged_packets_are_those_of_symphonia() {
    let mut random = 1u64;
    let mut below = move |n: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % n
    };
    let mut n_refused = 0;
    for (name, stream) in Stream::all() {
        let channels = usize::from(stream.setup.channels);
        let (mut mine, mut theirs) = (stream.ours(Level::detect()), stream.theirs());
        for packet in stream.packets.iter().cycle().take(300).filter(|packet| !packet.is_empty()) {
            let mut packet = packet.clone();
            if below(3) == 0 {
                packet.truncate(below(packet.len()));
            } else {
                for _ in 0..=below(3) {
                    let bit = below(8 * packet.len());
                    packet[bit / 8] ^= 1 << (bit % 8);
                }
            }
            let ours = ours(&mut mine, &packet, channels);
            let planes =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| planes(&mut theirs, &packet)));
            match (ours, planes) {
                // A packet that ends in its floors, or before its last submap; see the decoder's deviations.
                (Some(_), Ok(Some(_))) if mine.is_silent() || mine.ends_early => {
                    mine.reset(false);
                    theirs.reset();
                }
                (Some(ours), Ok(Some(theirs))) => assert_close(&ours, &theirs, &name),
                (ours, Ok(planes)) => {
                    assert_eq!(ours.is_some(), planes.is_some(), "{name}");
                    n_refused += 1;
                    mine.reset(false);
                    theirs.reset();
                }
                (_, Err(_)) => (mine, theirs) = (stream.ours(Level::detect()), stream.theirs()),
            }
        }
    }
    assert!(n_refused > 10, "{n_refused}");
}
