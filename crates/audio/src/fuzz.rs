//! Fuzz targets: the parsers of containers and codecs as functions of bytes, and the whole decoder. See
//! `fuzz/README.md`. Built for tests and with `--cfg fuzzing` only.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use crate::{
    AudioDecoder, DecoderCache, Info, Planes, RangeIndex, ReadAt, Result,
    formats::{
        Format,
        aiff::Aiff,
        au::Au,
        caf::Caf,
        flac::{NativeFlac, any_frame, frame},
        matroska::Matroska,
        mp4::{Mp4, Track},
        mpeg::MpegAudio,
        ogg_flac::OggFlac,
        opus::{self, OggOpus},
        sphere::Sphere,
        vorbis::OggVorbis,
        wav::Wav,
        wave64::Wave64,
    },
    index::SpanWindow,
    index_file,
    joined::CodecBytes,
    ogg,
    read_at::{HeaderBytes, RangeReader},
};

/// A parser, called with any bytes.
pub type Target = fn(&[u8]);

/// The targets by name. A target returns for any bytes; if there are two ways to the same result, it compares
/// them.
pub const TARGETS: [(&str, Target); 14] = [
    ("decode", decode),
    ("wav", wav),
    ("aiff", aiff),
    ("au", au),
    ("sphere", sphere),
    ("caf", caf),
    ("mp4", mp4),
    ("matroska", matroska),
    ("ogg", ogg),
    ("opus", opus_packets),
    ("mpeg", mpeg),
    ("flac", flac),
    ("flac_frame", flac_frame),
    ("range_index", range_index),
];

/// The most values of a span that is decoded.
const VALUES: u64 = 1 << 16;

/// Runs `work`, and ignores panics of libraries in it.
fn tolerant(work: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(work));
}

/// The tracks that are opened of formats that may have several.
const TRACKS: [Option<u32>; 4] = [None, Some(0), Some(1), Some(4)];

/// Opens bytes as a recording of a format, and decodes its last samples.
fn last(format: &dyn Format, bytes: &[u8]) -> Option<Info> {
    last_of_track(format, None, bytes)
}

fn last_of_track(format: &dyn Format, track: Option<u32>, bytes: &[u8]) -> Option<Info> {
    let mut cache = DecoderCache::default();
    let mut reader = RangeReader::of_memory(bytes);
    reader.track = track;
    let opened = format.open(&mut cache, &mut reader).ok()??;
    let info = opened.info;
    let len = (VALUES / u64::from(info.channels.max(1))).min(info.n_samples);
    let mut planes = Planes::new();
    if info.n_samples > 0 && planes.reset(info.channels, len as usize).is_ok() {
        tolerant(|| {
            let bytes = opened.bytes.unwrap_or(CodecBytes::Whole(bytes));
            let _ = opened.index.repairs(&bytes);
            let span = info.n_samples - len..info.n_samples;
            let _ = opened.index.decode(&mut cache, &SpanWindow::whole(&bytes[..]), span, &mut planes);
        });
    }
    Some(info)
}

/// Opens a recording and decodes its first, middle and last samples.
fn decode(bytes: &[u8]) {
    let mut decoder = AudioDecoder::new();
    let Ok(recording) = decoder.open(bytes) else { return };
    let info = recording.info();
    assert!(info.n_samples > 0 && info.channels > 0 && info.sample_rate > 0);
    let len = (4 * VALUES / u64::from(info.channels)).min(info.n_samples);
    let mut planes = Planes::new();
    for start in [0, (info.n_samples - len) / 2, info.n_samples - len] {
        if decoder.read(&recording, start..start + len, &mut planes).is_ok() {
            assert_eq!((planes.len() as u64, planes.channels()), (len, info.channels));
        }
    }
}

/// RIFF and Wave64.
fn wav(bytes: &[u8]) {
    last(&Wave64, bytes);
    last(&Wav, bytes);
}

fn aiff(bytes: &[u8]) {
    last(&Aiff, bytes);
}

/// An index of a recording, and a span by it from a file of as many bytes as it says, up to a limit.
pub(crate) fn range_index(bytes: &[u8]) {
    struct Pattern(u64);

    impl ReadAt for Pattern {
        fn size(&self) -> u64 {
            self.0
        }

        fn read(&self, range: std::ops::Range<u64>) -> Result<bytes::Bytes> {
            Ok(range.map(|at| (at.wrapping_mul(2_654_435_761) >> 9) as u8).collect())
        }

        fn limit(&self) -> u64 {
            1 << 20
        }
    }

    let mut decoder = AudioDecoder::new();
    let mut planes = Planes::new();
    // As the content of an index file, and as the file.
    let content = index_file::open(bytes, b"").unwrap_or_default();
    for index in [RangeIndex::from_bytes(bytes), RangeIndex::from_bytes(content)].into_iter().flatten() {
        let index = Arc::new(index);
        let Info { n_samples, channels, .. } = index.info();
        assert!(n_samples > 0 && channels > 0);
        assert!(RangeIndex::from_bytes(&index.to_bytes()).is_ok_and(|again| again.info() == index.info()));
        let len = (VALUES / u64::from(channels)).clamp(1, n_samples);
        let io = Pattern(index.size());
        for start in [0, (n_samples - len) / 2, n_samples - len] {
            if let Ok(part) = index.span_bytes(&mut decoder, &io, start..start + len) {
                tolerant(|| {
                    let _ = decoder.read_span(&part, start..start + len, &mut planes);
                });
            }
        }
    }
}

fn au(bytes: &[u8]) {
    last(&Au, bytes);
}

fn sphere(bytes: &[u8]) {
    last(&Sphere, bytes);
}

fn caf(bytes: &[u8]) {
    last(&Caf, bytes);
}

/// The boxes of MP4: at most as many packets, and bytes in them, as the file has bytes.
fn mp4(bytes: &[u8]) {
    for track in TRACKS {
        let mut packets = Vec::new();
        let _ = Track::open(&HeaderBytes::of(bytes), track, &mut packets);
        let total: usize = packets.iter().map(|packet| packet.len as usize).sum();
        assert!(packets.len() <= bytes.len() && total <= bytes.len());
        assert!(packets.iter().all(|packet| packet.at + packet.len as usize <= bytes.len()));
        tolerant(|| {
            last_of_track(&Mp4, track, bytes);
        });
    }
}

/// Blocks of Matroska, and the codecs in them.
fn matroska(bytes: &[u8]) {
    for track in TRACKS {
        tolerant(|| {
            last_of_track(&Matroska, track, bytes);
        });
    }
}

/// Ogg pages and packets, and Vorbis, FLAC and Opus in them.
fn ogg(bytes: &[u8]) {
    let pages: Vec<_> = ogg::OggPages::new(bytes).collect();
    let total: usize = pages.iter().map(|page| page.body(bytes).len()).sum();
    assert!(total <= bytes.len());
    let mut scratch = Vec::new();
    let packets = ogg::OggPackets::new(bytes, &pages, 0)
        .map(|packet| packet.data(bytes, &pages, &mut scratch).map_or(0, <[u8]>::len));
    assert!(packets.sum::<usize>() <= total);
    tolerant(|| {
        last(&OggVorbis, bytes);
    });
    last(&OggFlac, bytes);
    tolerant(|| {
        last(&OggOpus, bytes);
    });
}

/// The packets of an Ogg file, whatever their checksums, as packets of Opus.
fn opus_packets(bytes: &[u8]) {
    let pages: Vec<_> = ogg::OggPages::new(bytes).collect();
    let mut scratch = Vec::new();
    let mut packets = Vec::new();
    for packet in ogg::OggPackets::new(bytes, &pages, 0).take(64) {
        packets.push(packet.data(bytes, &pages, &mut scratch).map_or_else(|_| Vec::new(), <[u8]>::to_vec));
    }
    opus::any_packets(&packets);
}

fn mpeg(bytes: &[u8]) {
    last(&MpegAudio, bytes);
}

fn flac(bytes: &[u8]) {
    for at in 0..bytes.len().min(4096) {
        if let Some(header) = frame::Header::parse(&bytes[at..]) {
            assert!(header.block > 0 && header.len <= bytes.len() - at);
        }
    }
    last(&NativeFlac, bytes);
}

/// The samples of a FLAC frame, without its checksums.
fn flac_frame(bytes: &[u8]) {
    any_frame(bytes);
}

#[cfg(test)]
mod tests {
    use crate::fuzzed;

    #[test]
    fn targets_return_whatever_the_bytes_are() {
        fuzzed::check(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."), &super::TARGETS);
    }
}
