//! Fuzz targets: the parsers of containers and codecs as functions of bytes, and the whole decoder. See
//! `fuzz/README.md`. Built for tests and with `--cfg fuzzing` only.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use crate::{
    AudioDecoder, DecoderCache, Info, Planes, RangeIndex, ReadBytes, Recording,
    formats::{
        aiff, au, caf,
        flac::{Flac, any_frame, frame},
        mp4::{Track, movie},
        mpeg, ogg_flac,
        vorbis::Vorbis,
        wav,
    },
    joined::CodecBytes,
    ogg,
};

use crate::Result;

/// A parser, called with any bytes.
pub type Target = fn(&[u8]);

/// The targets by name. A target returns for any bytes; if there are two ways to the same result, it compares
/// them.
pub const TARGETS: [(&str, Target); 11] = [
    ("decode", decode),
    ("wav", wav),
    ("aiff", aiff),
    ("au", au),
    ("caf", caf),
    ("mp4", mp4),
    ("ogg", ogg),
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

/// Reads the last samples of an opened recording.
fn last(info: Info, read: impl FnOnce(&mut DecoderCache, std::ops::Range<u64>, &mut Planes) -> Result<()>) {
    let len = (VALUES / u64::from(info.channels.max(1))).min(info.n_samples);
    let mut planes = Planes::new();
    if planes.reset(info.channels, len as usize).is_ok() {
        tolerant(|| {
            let _ = read(&mut DecoderCache::default(), info.n_samples - len..info.n_samples, &mut planes);
        });
    }
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

/// RIFF and Wave64. The layout of the samples must be the same from the head and from the whole file.
fn wav(bytes: &[u8]) {
    if let Ok(pcm) = wav::open_wave64(bytes) {
        last(pcm.info(), |cache, span, out| pcm.read(cache, span, out));
    }
    let layout = wav::layout(&bytes[..bytes.len().min(4096)], bytes.len() as u64);
    match wav::open(bytes) {
        Ok(wav::WavRecording::Pcm(pcm)) => {
            if let Some(layout) = layout {
                assert_eq!(layout.info, pcm.info());
            }
            last(pcm.info(), |cache, span, out| pcm.read(cache, span, out));
        }
        _ => assert!(layout.is_none(), "a layout of what cannot be opened"),
    }
}

fn aiff(bytes: &[u8]) {
    if let Ok(pcm) = aiff::open(bytes) {
        last(pcm.info(), |cache, span, out| pcm.read(cache, span, out));
    }
}

/// An index of a recording, and a span by it from a file of as many bytes as it says, up to a limit.
pub(crate) fn range_index(bytes: &[u8]) {
    struct Pattern(u64);

    impl ReadBytes for Pattern {
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
    // As it is, and with the checksum that it should have.
    for index in [RangeIndex::from_bytes(bytes), RangeIndex::from_unsealed(bytes)].into_iter().flatten() {
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
    if let Ok(pcm) = au::open(bytes) {
        last(pcm.info(), |cache, span, out| pcm.read(cache, span, out));
    }
}

fn caf(bytes: &[u8]) {
    if let Ok(caf::CafRecording::Pcm(pcm)) = caf::open(&mut DecoderCache::default(), bytes) {
        last(pcm.info(), |cache, span, out| pcm.read(cache, span, out));
    }
}

/// The boxes of MP4: at most as many packets, and bytes in them, as the file has bytes.
fn mp4(bytes: &[u8]) {
    let mut packets = Vec::new();
    let _ = Track::open(&bytes, &mut packets);
    let total: usize = packets.iter().map(|packet| packet.len as usize).sum();
    assert!(packets.len() <= bytes.len() && total <= bytes.len());
    assert!(packets.iter().all(|packet| packet.at + packet.len as usize <= bytes.len()));
    match movie::open(&mut DecoderCache::default(), bytes) {
        Ok(Recording::Pcm(it)) => last(it.info(), |cache, span, out| it.read(cache, span, out)),
        Ok(Recording::Flac(it)) => last(it.info(), |cache, span, out| it.read(cache, span, out)),
        Ok(Recording::Mpeg(it)) => last(it.info(), |cache, span, out| it.read(cache, span, out)),
        Ok(_) | Err(_) => {}
    }
}

/// Ogg pages and packets, and Vorbis and FLAC in them.
fn ogg(bytes: &[u8]) {
    let pages: Vec<_> = ogg::OggPages::new(bytes).collect();
    let total: usize = pages.iter().map(|page| page.body(bytes).len()).sum();
    assert!(total <= bytes.len());
    let mut scratch = Vec::new();
    let packets = ogg::OggPackets::new(bytes, &pages, 0)
        .map(|packet| packet.data(bytes, &pages, &mut scratch).map_or(0, <[u8]>::len));
    assert!(packets.sum::<usize>() <= total);
    let mut cache = DecoderCache::default();
    tolerant(|| {
        if let Ok(vorbis) = Vorbis::open(&mut cache, bytes) {
            let _ = vorbis.repairs();
            last(vorbis.info(), |cache, span, out| vorbis.read(cache, span, out));
        }
    });
    if let Ok(flac) = ogg_flac::open(&mut cache, bytes) {
        last(flac.info(), |cache, span, out| flac.read(cache, span, out));
    }
}

fn mpeg(bytes: &[u8]) {
    if let Ok(mpeg) = mpeg::Mpeg::open(&mut DecoderCache::default(), CodecBytes::Whole(bytes)) {
        last(mpeg.info(), |cache, span, out| mpeg.read(cache, span, out));
    }
}

fn flac(bytes: &[u8]) {
    for at in 0..bytes.len().min(4096) {
        if let Some(header) = frame::Header::parse(&bytes[at..]) {
            assert!(header.block > 0 && header.len <= bytes.len() - at);
        }
    }
    if let Ok(flac) = Flac::open(&mut DecoderCache::default(), CodecBytes::Whole(bytes)) {
        last(flac.info(), |cache, span, out| flac.read(cache, span, out));
    }
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
