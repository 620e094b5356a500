//! Fuzz targets of the containers' parsers; see [`crate::fuzz`].

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{
    DecoderCache, Info, Planes, aiff, au, caf,
    flac::{Bytes, Flac},
    flac_frame,
    mp4::Track,
    mpeg, ogg, ogg_flac,
    vorbis::Vorbis,
    wav,
};

use crate::Result;

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

/// RIFF and Wave64. The layout of the samples must be the same from the head and from the whole file.
pub(crate) fn wav(bytes: &[u8]) {
    if let Ok(pcm) = wav::open_wave64(bytes) {
        last(pcm.info(), |kept, span, out| pcm.read(kept, span, out));
    }
    let layout = wav::layout(&bytes[..bytes.len().min(4096)], bytes.len() as u64);
    match wav::open(bytes) {
        Ok(wav::Opened::Pcm(pcm)) => {
            if let Some(layout) = layout {
                assert_eq!(layout.info, pcm.info());
            }
            last(pcm.info(), |kept, span, out| pcm.read(kept, span, out));
        }
        _ => assert!(layout.is_none(), "a layout of what cannot be opened"),
    }
}

/// AIFF and AIFF-C.
pub(crate) fn aiff(bytes: &[u8]) {
    if let Ok(pcm) = aiff::open(bytes) {
        last(pcm.info(), |kept, span, out| pcm.read(kept, span, out));
    }
}

/// Sun AU.
pub(crate) fn au(bytes: &[u8]) {
    if let Ok(pcm) = au::open(bytes) {
        last(pcm.info(), |kept, span, out| pcm.read(kept, span, out));
    }
}

/// CAF.
pub(crate) fn caf(bytes: &[u8]) {
    if let Ok(caf::Opened::Pcm(pcm)) = caf::open(&mut DecoderCache::default(), bytes) {
        last(pcm.info(), |kept, span, out| pcm.read(kept, span, out));
    }
}

/// The boxes of MP4: at most as many packets, and bytes in them, as the file has bytes.
pub(crate) fn mp4(bytes: &[u8]) {
    let mut packets = Vec::new();
    let _ = Track::open(&bytes, &mut packets);
    let total: usize = packets.iter().map(|packet| packet.len as usize).sum();
    assert!(packets.len() <= bytes.len() && total <= bytes.len());
    assert!(packets.iter().all(|packet| packet.at + packet.len as usize <= bytes.len()));
}

/// Ogg pages and packets, and Vorbis and FLAC in them.
pub(crate) fn ogg(bytes: &[u8]) {
    let pages: Vec<_> = ogg::Pages::new(bytes).collect();
    let total: usize = pages.iter().map(|page| page.body(bytes).len()).sum();
    assert!(total <= bytes.len());
    let mut scratch = Vec::new();
    let packets = ogg::Packets::new(bytes, &pages, 0)
        .map(|packet| packet.data(bytes, &pages, &mut scratch).map_or(0, <[u8]>::len));
    assert!(packets.sum::<usize>() <= total);
    let mut kept = DecoderCache::default();
    tolerant(|| {
        if let Ok(vorbis) = Vorbis::open(&mut kept, bytes) {
            let _ = vorbis.repairs();
            last(vorbis.info(), |kept, span, out| vorbis.read(kept, span, out));
        }
    });
    if let Ok(flac) = ogg_flac::open(&mut kept, bytes) {
        last(flac.info(), |kept, span, out| flac.read(kept, span, out));
    }
}

/// Frames of MPEG audio.
pub(crate) fn mpeg(bytes: &[u8]) {
    if let Ok(mpeg) = mpeg::Mpeg::open(&mut DecoderCache::default(), bytes) {
        last(mpeg.info(), |kept, span, out| mpeg.read(kept, span, out));
    }
}

/// Metadata and frames of FLAC.
pub(crate) fn flac(bytes: &[u8]) {
    for at in 0..bytes.len().min(4096) {
        if let Some(header) = flac_frame::Header::parse(&bytes[at..]) {
            assert!(header.block > 0 && header.len <= bytes.len() - at);
        }
    }
    if let Ok(flac) = Flac::open(&mut DecoderCache::default(), Bytes::Whole(bytes)) {
        last(flac.info(), |kept, span, out| flac.read(kept, span, out));
    }
}
