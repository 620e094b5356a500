//! WebM and Matroska: samples and spans beside those of the same packets in their codec's own container, in
//! memory and by ranges; lacing, clusters and sizes of all kinds; claims, cut and damaged files.
//!
//! The copies in `tests/data/audio/matroska` are of ffmpeg's muxer, made by the script `make_matroska.py`.

// A failing helper is a failing test.
#![allow(clippy::unwrap_used)]

mod spans;

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use forebay_audio::{AudioDecoder, Codec, Planes, RangeIndex, ReadAt};
use forebay_base::{ErrorKind, Result};
use proptest::prelude::*;
use spans::{damage, equal, file, info, pages, read, read_all};

/// Bytes of which every read is counted, and which are never read whole at once.
struct Counted {
    bytes: Bytes,
    reads: AtomicU64,
}

impl ReadAt for Counted {
    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read(&self, range: Range<u64>) -> Result<Bytes> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        Ok(self.bytes.slice(range.start as usize..range.end as usize))
    }

    fn read_whole_up_to(&self) -> u64 {
        0
    }
}

/// Compares spans by ranges, also by an index that was written and read, with those in memory.
fn compare_ranges(name: &str, bytes: &[u8]) {
    let mut decoder = AudioDecoder::new();
    let recording = decoder.open(bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
    let n = recording.info().n_samples;
    let io = Counted { bytes: Bytes::copy_from_slice(bytes), reads: AtomicU64::new(0) };
    let index = RangeIndex::open(&mut decoder, &io).unwrap();
    assert_eq!((index.info(), index.format()), (recording.info(), "matroska"), "{name}");
    assert!(index.bytes_held() < 1 << 19, "{name}: {}", index.bytes_held());
    let again = RangeIndex::from_bytes(&index.to_bytes()).unwrap();
    let (mut want, mut got) = (Planes::new(), Planes::new());
    for index in [Arc::new(index), Arc::new(again)] {
        for (start, len) in [(0, 1), (n - 1, 1), (0, n), (n / 2, n / 3), (n / 3, 100), (n / 5, n / 100 + 1)] {
            let span = start..start + len;
            io.reads.store(0, Ordering::Relaxed);
            let part = index.span_bytes(&mut decoder, &io, span.clone()).unwrap();
            assert!(io.reads.load(Ordering::Relaxed) <= 3, "{name} {span:?}");
            decoder.read_span(&part, span.clone(), &mut got).unwrap();
            decoder.read(&recording, span.clone(), &mut want).unwrap();
            for channel in 0..usize::from(want.channels()) {
                assert!(equal(want.channel(channel), got.channel(channel)), "{name} {span:?}");
            }
        }
    }
}

#[test]
fn copies_equal_their_sources() {
    for (name, folder, source) in [
        ("opus.webm", "opus", "hybrid_swb_10ms_mono.opus"),
        ("opus_live.webm", "opus", "celt_5ms_stereo.opus"),
        ("opus_clusters.webm", "opus", "silk_wb_60ms_mono.opus"),
        ("opus_surround.mka", "opus", "surround_3ch.opus"),
        ("video.mkv", "opus", "switching_mono.opus"),
        ("vorbis.webm", "vorbis", "stereo_44100.ogg"),
        ("vorbis_surround.mka", "vorbis", "surround30_44100.ogg"),
        ("flac.mka", "made", "s24.flac"),
        ("alac.mka", "made", "alac16.caf"),
        ("pcm_u8.mka", "made", "u8.wav"),
        ("pcm_s24be.mka", "made", "s24.aiff"),
        ("pcm_f64le.mka", "made", "f64.wav"),
    ] {
        let (copy, source) = (file("matroska", name), file(folder, source));
        assert_eq!(info(&copy).unwrap(), info(&source).unwrap(), "{name}");
        let (one, other) = (read_all(&copy).unwrap(), read_all(&source).unwrap());
        assert!(one.iter().zip(&other).all(|(one, other)| equal(one, other)), "{name}");
        let n = one[0].len() as u64;
        let mut decoder = AudioDecoder::new();
        for span in [0..n / 3, n / 3..n / 2, n - n / 9..n] {
            let (one, other) = (read(&mut decoder, &copy, span.clone()), read(&mut decoder, &source, span));
            assert!(one.unwrap().iter().zip(&other.unwrap()).all(|(one, other)| equal(one, other)), "{name}");
        }
        compare_ranges(name, &copy);
    }
    // The copies have no edit list, and no tag with the delay: all samples of the packets count, as in
    // ffmpeg.
    for (name, codec, rate, n_samples) in
        [("aac.mka", Codec::Aac, 11_025, 21_504), ("mp3.mka", Codec::Mp3, 16_000, 49_105)]
    {
        let bytes = file("matroska", name);
        let info = info(&bytes).unwrap();
        assert_eq!((info.codec, info.sample_rate, info.n_samples), (codec, rate, n_samples), "{name}");
        compare_ranges(name, &bytes);
    }
}

/// The packets of an Ogg file with one stream.
fn packets(ogg: &[u8]) -> Vec<Vec<u8>> {
    let (mut packets, mut open) = (Vec::new(), Vec::new());
    for page in pages::take_apart(ogg) {
        let mut at = 0;
        for &value in &page.lacing {
            open.extend_from_slice(&page.body[at..at + usize::from(value)]);
            at += usize::from(value);
            if value < 255 {
                packets.push(std::mem::take(&mut open));
            }
        }
    }
    packets
}

/// An element, with a size of 8 bytes, or an unknown one.
fn element(id: u32, content: &[u8]) -> Vec<u8> {
    let id: Vec<u8> = id.to_be_bytes().into_iter().skip_while(|&byte| byte == 0).collect();
    [&id[..], &(content.len() as u64 | 1 << 56).to_be_bytes(), content].concat()
}

fn unknown(id: u32, content: &[u8]) -> Vec<u8> {
    [&id.to_be_bytes()[..], &[0xff], content].concat()
}

fn uint(id: u32, value: u64) -> Vec<u8> {
    element(id, &value.to_be_bytes())
}

/// How a file is written.
#[derive(Debug, Clone, Copy)]
struct Style {
    /// 0 none, 1 Xiph, 2 fixed, 3 EBML.
    lacing: u8,
    /// Packets of a block, and blocks of a cluster.
    in_block: usize,
    in_cluster: usize,
    has_sizes: bool,
    in_groups: bool,
}

const PLAIN: Style = Style { lacing: 0, in_block: 1, in_cluster: 20, has_sizes: true, in_groups: false };

/// The frames of a block of `track`; those of fixed lacing must have equal sizes.
fn block(track: u8, lacing: u8, frames: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = vec![0x80 | track, 0, 0, lacing << 1];
    if lacing > 0 {
        bytes.push((frames.len() - 1) as u8);
    }
    let mut before = 0i64;
    for (i, frame) in frames[..frames.len() - 1].iter().enumerate() {
        let len = frame.len();
        match lacing {
            1 => {
                bytes.extend(std::iter::repeat_n(255, len / 255));
                bytes.push((len % 255) as u8);
            }
            3 if i == 0 => bytes.extend((len as u16 | 0x4000).to_be_bytes()),
            // Differences in three bytes, with a bias of 2^20 - 1.
            3 => bytes.extend(&((len as i64 - before + 0xf_ffff) as u32 | 0x20_0000).to_be_bytes()[1..]),
            _ => {}
        }
        before = len as i64;
    }
    bytes.extend(frames.concat());
    bytes
}

/// A track entry of sound.
fn entry(number: u64, codec: &str, private: &[u8], others: &[u8]) -> Vec<u8> {
    let audio = [element(0xb5, &48_000f32.to_be_bytes()), uint(0x9f, 1), uint(0x6264, 16)].concat();
    let fields = [
        uint(0xd7, number),
        uint(0x83, 2),
        element(0x86, codec.as_bytes()),
        element(0x63a2, private),
        element(0xe1, &audio),
        others.to_vec(),
    ];
    element(0xae, &fields.concat())
}

fn header(kind: &str) -> Vec<u8> {
    element(0x1a45_dfa3, &element(0x4282, kind.as_bytes()))
}

/// A file with these tracks and clusters.
fn segment(tracks: &[u8], clusters: &[u8], has_size: bool) -> Vec<u8> {
    let content = [
        &element(0x1549_a966, &uint(0x2a_d7b1, 1_000_000)),
        &element(0xec, &[0; 30])[..],
        &element(0x1654_ae6b, tracks),
        clusters,
    ]
    .concat();
    let segment = if has_size { element(0x1853_8067, &content) } else { unknown(0x1853_8067, &content) };
    [header("matroska"), segment].concat()
}

/// The clusters of these packets, of which the last has `discard` nanoseconds that are not played; blocks of
/// track 2 and other elements are between those of track 1.
fn clusters(packets: &[Vec<u8>], discard: u64, style: Style) -> Vec<u8> {
    let Style { lacing, in_block, in_cluster, has_sizes, in_groups } = style;
    let mut blocks: Vec<Vec<Vec<u8>>> = Vec::new();
    for packet in packets {
        let fits =
            |last: &Vec<Vec<u8>>| last.len() < in_block && (lacing != 2 || last[0].len() == packet.len());
        match blocks.last_mut().filter(|last| fits(last)) {
            Some(last) => last.push(packet.clone()),
            None => blocks.push(vec![packet.clone()]),
        }
    }
    let n = blocks.len();
    let mut out = Vec::new();
    for (i, cluster) in blocks.chunks(in_cluster).enumerate() {
        let mut content = [uint(0xe7, i as u64), element(0xab, &[0; 3])].concat();
        for (k, frames) in cluster.iter().enumerate() {
            let lacing = if frames.len() > 1 { lacing } else { 0 };
            let data = block(1, lacing, frames);
            let is_last = i * in_cluster + k + 1 == n;
            if in_groups || is_last && discard > 0 {
                let padding = if is_last { uint(0x75a2, discard) } else { Vec::new() };
                content.extend(element(0xa0, &[uint(0x9b, 20), element(0xa1, &data), padding].concat()));
            } else {
                content.extend(element(0xa3, &data));
            }
            if k % 3 == 0 {
                content.extend(element(0xa3, &block(2, 0, &[vec![7; 50]])));
                content.extend(element(0xec, &[0; 9]));
            }
        }
        out.extend(if has_sizes { element(0x1f43_b675, &content) } else { unknown(0x1f43_b675, &content) });
    }
    out
}

/// Ogg files as codec, setup, packets of sound, and nanoseconds that the last granule position cuts.
fn remuxed(folder: &str, name: &str) -> (&'static str, Vec<u8>, Vec<Vec<u8>>, u64) {
    let ogg = file(folder, name);
    let mut packets = packets(&ogg);
    if folder == "opus" {
        let mut sound = packets.split_off(2);
        let pre_skip = i64::from(u16::from_le_bytes([packets[0][10], packets[0][11]]));
        let n_samples = info(&ogg).unwrap().n_samples as i64;
        let mut cut = sound.iter().map(|packet| opus_samples(packet)).sum::<i64>() - pre_skip - n_samples;
        // Of packets that are cut as a whole, none is needed.
        while let Some(last) = sound.pop_if(|last| opus_samples(last) <= cut) {
            cut -= opus_samples(&last);
        }
        let head = packets.swap_remove(0);
        return ("A_OPUS", head, sound, cut as u64 * 1_000_000_000 / 48_000);
    }
    let sound = packets.split_off(3);
    let mut private = vec![2];
    for header in &packets[..2] {
        private.extend(std::iter::repeat_n(255, header.len() / 255));
        private.push((header.len() % 255) as u8);
    }
    private.extend(packets.concat());
    // The samples of all packets are those of a file whose last position cuts none.
    let mut whole = pages::take_apart(&ogg);
    whole.last_mut().unwrap().granule = 1 << 40;
    let full = info(&pages::put_together(&whole)).unwrap();
    let cut = full.n_samples - info(&ogg).unwrap().n_samples;
    let nanoseconds = u128::from(cut) * 1_000_000_000 / u128::from(full.sample_rate);
    ("A_VORBIS", private, sound, nanoseconds as u64)
}

/// RFC 6716, section 3.1.
fn opus_samples(packet: &[u8]) -> i64 {
    let config = packet[0] >> 3;
    let frame = match config {
        0..12 => [480, 960, 1920, 2880][usize::from(config % 4)],
        12..16 => [480, 960][usize::from(config % 2)],
        _ => [120, 240, 480, 960][usize::from(config % 4)],
    };
    let n = match packet[0] & 3 {
        0 => 1,
        3 => i64::from(packet[1] & 63),
        _ => 2,
    };
    n * frame
}

const STYLES: [Style; 7] = [
    PLAIN,
    Style { in_cluster: 1, ..PLAIN },
    Style { in_cluster: 1000, in_groups: true, ..PLAIN },
    Style { has_sizes: false, ..PLAIN },
    Style { lacing: 1, in_block: 8, ..PLAIN },
    Style { lacing: 2, in_block: 5, in_cluster: 3, has_sizes: false, in_groups: true },
    Style { lacing: 3, in_block: 200, in_cluster: 2, has_sizes: false, in_groups: false },
];

const OGG: [(&str, &str); 8] = [
    ("opus", "celt_2_5ms_mono.opus"),
    ("opus", "celt_20ms_stereo_256k.opus"),
    ("opus", "ffmpeg_20ms_stereo.opus"),
    ("opus", "gain_minus_6db_mono.opus"),
    ("opus", "silk_dtx_mono.opus"),
    ("vorbis", "vorbis_len_1025.ogg"),
    ("vorbis", "perch_16000_mono.ogg"),
    ("vorbis", "stereo_44100.ogg"),
];

#[test]
fn packets_of_ogg_have_the_same_samples() {
    for (folder, name) in OGG {
        let (codec, private, packets, discard) = remuxed(folder, name);
        let ogg = file(folder, name);
        let want = read_all(&ogg).unwrap();
        for style in STYLES {
            let what = format!("{name} {style:?}");
            let clusters = clusters(&packets, discard, style);
            let bytes = segment(&entry(1, codec, &private, &[]), &clusters, style.has_sizes);
            assert_eq!(info(&bytes).unwrap(), info(&ogg).unwrap(), "{what}");
            let got = read_all(&bytes).unwrap();
            assert!(want.iter().zip(&got).all(|(want, got)| equal(want, got)), "{what}");
            let n = want[0].len() as u64;
            let mut decoder = AudioDecoder::new();
            for span in [n / 3..n / 2, n - n / 9..n] {
                let want = read(&mut decoder, &ogg, span.clone()).unwrap();
                let got = read(&mut decoder, &bytes, span).unwrap();
                assert!(want.iter().zip(&got).all(|(want, got)| equal(want, got)), "{what}");
            }
            compare_ranges(&what, &bytes);
            let mut decoder = AudioDecoder::new();
            let recording = decoder.open(&bytes).unwrap();
            let claims = recording.claims(&bytes);
            // The blocks' times are all 0 or of the cluster's number, in milliseconds.
            assert!(claims.cut_short.is_none() && claims.declared.is_none(), "{what}: {claims:?}");
            assert_eq!(decoder.repairs(&recording).places, 0, "{what}");
        }
    }
}

/// A recording of hours has an index of bounded size, and spans of one read.
#[test]
fn an_hour_keeps_a_bounded_index() {
    let (codec, private, packets, _) = remuxed("opus", "hybrid_swb_10ms_mono.opus");
    let n = packets.len();
    let many: Vec<_> = packets.iter().cycle().take(3600 * 100 / n * n).cloned().collect();
    let bytes = segment(&entry(1, codec, &private, &[]), &clusters(&many, 0, PLAIN), true);
    let io = Counted { bytes: Bytes::from(bytes), reads: AtomicU64::new(0) };
    let mut decoder = AudioDecoder::new();
    let index = Arc::new(RangeIndex::open(&mut decoder, &io).unwrap());
    let rate = u64::from(index.info().sample_rate);
    assert!(index.info().n_samples > 3590 * rate && index.bytes_held() < 1 << 19, "{}", index.bytes_held());
    let (mut first, mut out) = (0, Planes::new());
    for start in [0, 100, 3000, 1000, 3580] {
        io.reads.store(0, Ordering::Relaxed);
        let span = start * rate..(start + 5) * rate;
        let part = index.span_bytes(&mut decoder, &io, span.clone()).unwrap();
        first += io.reads.load(Ordering::Relaxed);
        assert!(part.len() < 200_000, "{} bytes for 5 s", part.len());
        decoder.read_span(&part, span, &mut out).unwrap();
    }
    assert!(first <= 8, "{first} reads for five spans");
}

/// `DiscardPadding` of a block in the middle, as of joined recordings, cuts its end and is counted.
#[test]
fn padding_in_the_middle_is_cut() {
    let (codec, private, packets, _) = remuxed("opus", "celt_20ms_stereo_256k.opus");
    let (one, other) = packets.split_at(packets.len() / 2);
    // 120 samples of the first half's last packet.
    let both = [clusters(one, 2_500_000, PLAIN), clusters(other, 0, PLAIN)].concat();
    let track = entry(1, codec, &private, &[]);
    let whole = info(&segment(&track, &clusters(&packets, 0, PLAIN), true)).unwrap();
    let bytes = segment(&track, &both, true);
    let mut decoder = AudioDecoder::new();
    let recording = decoder.open(&bytes).unwrap();
    assert_eq!(recording.info().n_samples, whole.n_samples - 120);
    let repairs = decoder.repairs(&recording);
    assert_eq!((repairs.places, repairs.cut, repairs.filled), (1, 120, 0));
    assert_eq!(read_all(&bytes).unwrap()[0].len() as u64, whole.n_samples - 120);
}

#[test]
fn the_default_track_is_taken() {
    let (codec, private, packets, discard) = remuxed("opus", "celt_20ms_stereo_256k.opus");
    let clusters = clusters(&packets, discard, PLAIN);
    let with = |tracks: &[Vec<u8>]| segment(&tracks.concat(), &clusters, true);
    let opus = entry(1, codec, &private, &[]);
    let pcm = |others: &[u8]| entry(2, "A_PCM/INT/LIT", &[], others);
    let codec_of = |bytes: &[u8]| info(bytes).unwrap().codec;
    assert_eq!(codec_of(&with(&[opus.clone(), pcm(&[])])), Codec::Opus);
    assert_eq!(codec_of(&with(&[pcm(&[]), opus.clone()])), Codec::Pcm);
    let not_default = uint(0x88, 0);
    assert_eq!(codec_of(&with(&[pcm(&not_default), opus])), Codec::Opus);
    assert_eq!(codec_of(&with(&[pcm(&not_default)])), Codec::Pcm);
    let disabled = uint(0xb9, 0);
    assert_eq!(codec_of(&with(&[pcm(&disabled), entry(1, codec, &private, &[])])), Codec::Opus);
    assert_eq!(info(&with(&[pcm(&disabled)])).unwrap_err().message, "the Matroska file has no audio track");
    // Texts of EBML may be filled up with zeros.
    let padded = [header("webm\0\0"), with(&[pcm(&[])])[header("matroska").len()..].to_vec()].concat();
    assert_eq!(codec_of(&padded), Codec::Pcm);
}

#[test]
fn what_is_not_decoded_is_named() {
    let frames = clusters(&vec![vec![7; 40]; 9], 0, PLAIN);
    let of = |track: &[u8]| segment(track, &frames, true);
    let video = element(0xae, &[uint(0xd7, 1), uint(0x83, 1), element(0x86, b"V_VP8")].concat());
    let (opus, private, ..) = remuxed("opus", "celt_20ms_stereo_256k.opus");
    let he_aac = [0x2b, 0x92, 0x08, 0x00];
    let no_block = segment(&entry(1, opus, &private, &[]), &[], true);
    for (bytes, kind, text) in [
        (of(&entry(1, "A_AC3", &[], &[])), ErrorKind::Unsupported, "AC-3 (`A_AC3`) in Matroska"),
        (of(&entry(1, "A_WAVPACK4", &[], &[])), ErrorKind::Unsupported, "convert it with `ffmpeg"),
        (of(&entry(1, "A_AAC", &[], &[])), ErrorKind::Unsupported, "without the setup"),
        (of(&entry(1, "A_AAC", &he_aac, &[])), ErrorKind::Unsupported, "HE-AAC"),
        (
            of(&entry(1, opus, &private, &element(0x6d80, &[]))),
            ErrorKind::Unsupported,
            "compressed or encrypted",
        ),
        (of(&video), ErrorKind::Unsupported, "no audio track"),
        (header("mkx"), ErrorKind::Unsupported, "type `mkx`"),
        (of(&[]), ErrorKind::Corrupt, "no tracks"),
        (of(&entry(1, opus, &[], &[])), ErrorKind::Corrupt, "no OpusHead"),
        (of(&entry(1, "A_VORBIS", &[2, 255], &[])), ErrorKind::Corrupt, "no three headers"),
        (of(&entry(1, "A_FLAC", b"flac", &[])), ErrorKind::Corrupt, "no `fLaC`"),
        (
            of(&entry(1, "A_PCM/INT/LIT", &[], &[])).replaced(&uint(0x9f, 1), &uint(0x9f, 1 << 20)),
            ErrorKind::Corrupt,
            "1048576 channels",
        ),
        (header("webm"), ErrorKind::Corrupt, "cut short"),
        ([header("webm"), element(0xec, &[])].concat(), ErrorKind::Corrupt, "no Segment"),
        (segment(&[], &[], true)[..60].to_vec(), ErrorKind::Corrupt, ""),
        (no_block, ErrorKind::Empty, "no blocks"),
    ] {
        let error = info(&bytes).unwrap_err();
        assert!(error.kind == kind && error.message.contains(text), "{text}: {error}");
    }
}

trait Replaced {
    fn replaced(self, old: &[u8], new: &[u8]) -> Self;
}

impl Replaced for Vec<u8> {
    /// With the first place of `old` as `new`, of the same length.
    fn replaced(mut self, old: &[u8], new: &[u8]) -> Self {
        let at = self.windows(old.len()).position(|window| window == old).unwrap();
        self[at..at + old.len()].copy_from_slice(new);
        self
    }
}

/// A file that ends anywhere has the samples of its whole blocks, and says that it is cut.
#[test]
fn a_cut_file_has_the_samples_that_are_there() {
    for name in ["opus.webm", "vorbis_surround.mka", "pcm_f64le.mka", "aac.mka"] {
        let bytes = file("matroska", name);
        let whole = read_all(&bytes).unwrap();
        let mut decoder = AudioDecoder::new();
        let mut out = Planes::new();
        let mut n_opened = 0;
        for cut in (1..bytes.len()).step_by(131) {
            let part = &bytes[..cut];
            let Ok(recording) = decoder.open(part) else { continue };
            let n = recording.info().n_samples;
            assert!(n <= whole[0].len() as u64, "{name} {cut}");
            decoder.read(&recording, 0..n, &mut out).unwrap();
            let is_equal = |channel: usize| equal(out.channel(channel), &whole[channel][..n as usize]);
            assert!((0..whole.len()).all(is_equal), "{name} {cut}");
            assert!(recording.claims(part).cut_short.is_some(), "{name} {cut}");
            n_opened += 1;
        }
        assert!(n_opened >= 2, "{name}: {n_opened}");
    }
}

/// Blocks of many frames of one byte, and of none, make files of a bounded size.
#[test]
fn small_frames_take_bounded_memory() {
    let (codec, private, ..) = remuxed("opus", "celt_20ms_stereo_256k.opus");
    let pre_skip = u64::from(u16::from_le_bytes([private[10], private[11]]));
    let track = entry(1, codec, &private, &[]);
    for len in [0, 1] {
        let content = element(0xa3, &block(1, 2, &vec![vec![0xf8; len]; 256])).repeat(4000);
        let bytes = segment(&track, &element(0x1f43_b675, &content), true);
        let opened = info(&bytes);
        match len {
            0 => assert_eq!(opened.unwrap_err().kind, ErrorKind::Empty),
            _ => assert_eq!(opened.unwrap().n_samples, 4000 * 256 * 960 - pre_skip),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// In memory and by ranges, damaged copies are decoded to the same samples, or refused.
    #[test]
    fn damaged_files_give_samples_or_errors(
        which in 0..14usize,
        steps in proptest::collection::vec(any::<spans::Damage>(), 1..4),
        at in 0..1000u64,
    ) {
        let (name, mut bytes) = spans::files("matroska").swap_remove(which);
        damage(&mut bytes, &steps);
        let mut decoder = AudioDecoder::new();
        let io = Counted { bytes: Bytes::copy_from_slice(&bytes), reads: AtomicU64::new(0) };
        let ranged = RangeIndex::open(&mut decoder, &io);
        let Ok(recording) = decoder.open(&bytes) else {
            prop_assert!(ranged.is_err(), "{name}");
            return Ok(());
        };
        let ranged = Arc::new(ranged.unwrap());
        let n = recording.info().n_samples;
        prop_assert_eq!(ranged.info(), recording.info());
        let span = at * n / 1000..(at * n / 1000 + 4000).min(n);
        let (mut one, mut other) = (Planes::new(), Planes::new());
        let whole = decoder.read(&recording, span.clone(), &mut one).map_err(|error| error.kind);
        let part = ranged.span_bytes(&mut decoder, &io, span.clone());
        let part = part.and_then(|part| decoder.read_span(&part, span, &mut other)).map_err(|error| error.kind);
        prop_assert_eq!(whole, part);
        if whole.is_ok() {
            prop_assert!((0..usize::from(one.channels())).all(|c| equal(one.channel(c), other.channel(c))), "{name}");
        }
    }
}
