//! Spans of MPEG audio: lengths and samples against libsndfile, spans against the full decode, odd and
//! damaged streams.

// A failing helper is a failing test.
#![allow(clippy::unwrap_used)]

#[path = "../../../tests/patience/mod.rs"]
mod patience;
mod spans;

use forebay_audio::{AudioDecoder, Codec};
use forebay_base::ErrorKind;
use patience::thread_time;
use proptest::prelude::*;
use spans::{
    compare_spans, compare_with_libsndfile, damage, equal, file, files, info, read, read_all, survive,
};

/// Byte offset and length of the first frame, which holds the tag, in `lame_cbr64_44100_mono.mp3` (MPEG-1
/// layer III, mono, 64 kbit/s).
const TAG_FRAME: std::ops::Range<usize> = 0..208;
/// The offset of the tag in that frame.
const TAG: usize = 4 + 17;

fn tagged() -> Vec<u8> {
    let bytes = file("mpeg", "lame_cbr64_44100_mono.mp3");
    assert_eq!(&bytes[TAG..TAG + 4], b"Info");
    assert_eq!(bytes[TAG_FRAME.end], 0xff);
    bytes
}

#[test]
fn lengths_and_samples_are_those_of_libsndfile() {
    assert_eq!(compare_with_libsndfile("mpeg"), 14);
}

#[test]
fn spans_equal_the_full_decode() {
    let mut kept = AudioDecoder::new();
    for (name, bytes) in files("mpeg") {
        if read_all(&bytes).is_ok() {
            compare_spans(&name, &bytes, &mut kept, 40);
        }
    }
}

#[test]
fn every_short_span_of_a_low_bit_rate_is_right() {
    // The main data of frames of 36 bytes begins up to 20 frames earlier.
    let mut kept = AudioDecoder::new();
    for name in ["lame_cbr8_16000_mono_untagged.mp3", "mp3_mpeg2_8000_mono.mp3", "lame_v9_11025_stereo.mp3"] {
        let bytes = file("mpeg", name);
        let full = read_all(&bytes).unwrap();
        for start in (0..full[0].len() - 1).step_by(191) {
            let part = read(&mut kept, &bytes, start as u64..start as u64 + 1).unwrap();
            assert!(equal(&part[0], &full[0][start..=start]), "{name} {start}");
        }
    }
}

#[test]
fn layers_are_told_apart() {
    assert_eq!(info(&file("mpeg", "mp2_44100_mono.mp2")).unwrap().codec, Codec::Mp2);
    assert_eq!(info(&tagged()).unwrap().codec, Codec::Mp3);
    assert_eq!(info(&file("mpeg", "lame_freeformat.mp3")).unwrap().codec, Codec::Mp3);
}

#[test]
fn mixed_blocks_are_refused_at_8_khz_only() {
    // MPEG-1 mono and MPEG-2 mono, without a checksum: the bit in the side information that is the first
    // granule's window_switching_flag.
    for (name, sync, window) in [
        ("lame_cbr64_44100_mono.mp3", [0xff, 0xfb], 18 + 33),
        ("mp3_mpeg2_16000_mono.mp3", [0xff, 0xf3], 9 + 38),
        ("mp3_mpeg2_8000_mono.mp3", [0xff, 0xe3], 9 + 38),
    ] {
        let bytes = file("mpeg", name);
        let sound = info(&bytes).unwrap();
        // The last frame of all, so that few spans include it.
        let frame = (0..bytes.len() - 4).rev().find(|&at| bytes[at..at + 2] == sync).unwrap();
        let set = |block_type: u8, is_mixed: bool| {
            let mut changed = bytes.clone();
            let flags = [true, block_type & 2 != 0, block_type & 1 != 0, is_mixed];
            for (i, flag) in flags.into_iter().enumerate() {
                let bit = 8 * (frame + 4) + window + i;
                changed[bit / 8] &= !(0x80 >> (bit % 8));
                changed[bit / 8] |= if flag { 0x80 >> (bit % 8) } else { 0 };
            }
            changed
        };
        for block_type in 1..4 {
            if sound.sample_rate == 8_000 {
                let error = info(&set(block_type, true)).unwrap_err();
                assert_eq!(error.kind, ErrorKind::Unsupported, "{name}: {error}");
                assert!(error.message.contains("mixed blocks"), "{error}");
            } else {
                assert_eq!(info(&set(block_type, true)).unwrap(), sound, "{name}");
            }
            assert_eq!(info(&set(block_type, false)).unwrap(), sound, "{name}");
        }
        // Reserved: damage to one frame, not a property of the recording.
        assert_eq!(info(&set(0, true)).unwrap(), sound, "{name}");
        // The same for a frame that is followed neither by another nor by the end.
        assert_eq!(info(&[set(2, true), vec![b'x'; 50]].concat()).unwrap(), sound, "{name}");
    }
}

#[test]
fn tags_around_frames_change_nothing() {
    let bytes = tagged();
    let full = read_all(&bytes).unwrap();
    let mut id3v2 = b"ID3\x04\0\0\0\0\x20\0".to_vec();
    // A picture full of frame headers.
    id3v2.extend([0xff, 0xfb, 0x92, 0x64].repeat(1024));
    let mut ape = b"APETAGEX\xd0\x07\0\0\x20\0\0\0\0\0\0\0\0\0\0\xa0\0\0\0\0\0\0\0\0".to_vec();
    ape.extend([b'x'; 32]);
    let mut id3v1 = b"TAG".to_vec();
    id3v1.resize(128, b' ');
    let lyrics = b"LYRICSBEGIN0001la la la000020LYRICS200".to_vec();
    let dressed = [&id3v2[..], &id3v2, &bytes, &ape, &lyrics, &id3v1].concat();
    let mut kept = AudioDecoder::new();
    compare_spans("with tags", &dressed, &mut kept, 8);
    assert!(equal(&read_all(&dressed).unwrap()[0], &full[0]));
}

#[test]
fn a_count_in_a_tag_is_not_the_length() {
    // With a count of 0, a library decoded nothing and returned no error.
    let full = read_all(&tagged()).unwrap();
    for count in [0_u32, 1, 1_000_000] {
        let mut bytes = tagged();
        bytes[TAG + 8..TAG + 12].copy_from_slice(&count.to_be_bytes());
        let told = info(&bytes).unwrap().n_samples;
        // By this count frames are missing, and with them the padding.
        let padding = if count > 1000 { told - full[0].len() as u64 } else { 0 };
        assert!(padding < 1152);
        assert_eq!(told, full[0].len() as u64 + padding);
        assert!(equal(&read_all(&bytes).unwrap()[0][..full[0].len()], &full[0]));
    }
}

#[test]
fn a_cut_recording_keeps_its_last_whole_frame() {
    let bytes = tagged();
    let full = read_all(&bytes).unwrap();
    for cut in [1, 100, 209, 1000, 5000] {
        let part = read_all(&bytes[..bytes.len() - cut]).unwrap();
        let n = part[0].len().min(full[0].len());
        assert!(n + 1152 * (cut / 208 + 1) >= full[0].len());
        assert!(equal(&part[0][..n], &full[0][..n]));
    }
}

#[test]
fn without_a_tag_nothing_is_cut_off() {
    let bytes = tagged();
    let full = read_all(&bytes).unwrap();
    let untagged = read_all(&bytes[TAG_FRAME.end..]).unwrap();
    assert_eq!(untagged[0].len() % 1152, 0);
    // LAME delays by 576, the decoder by 529.
    assert!(equal(&untagged[0][1105..1105 + full[0].len()], &full[0]));
    // VBRI has no delay, but its frame holds no audio.
    let mut vbri = bytes.clone();
    vbri[4..TAG_FRAME.end].fill(0);
    vbri[36..42].copy_from_slice(b"VBRI\0\x01");
    assert!(equal(&read_all(&vbri).unwrap()[0], &untagged[0]));
}

#[test]
fn a_stream_cut_in_front_starts_with_silence() {
    // The main data of the first frames is in frames that are gone.
    let mut kept = AudioDecoder::new();
    for name in ["lame_cbr8_16000_mono_untagged.mp3", "lame_cbr64_44100_mono.mp3"] {
        let bytes = file("mpeg", name);
        let cut = &bytes[bytes.len() / 2..];
        compare_spans(name, cut, &mut kept, 60);
    }
}

#[test]
fn links_of_one_kind_are_one_timeline() {
    let (a, b) = (tagged(), file("mpeg", "mp3_mpeg2_16000_mono.mp3"));
    let full = read_all(&a).unwrap();
    let twice = [&a[..], &a].concat();
    let two = read_all(&twice).unwrap();
    assert!(equal(&two[0], &full[0].repeat(2)));
    compare_spans("two links", &twice, &mut AudioDecoder::new(), 60);
    // Another rate ends the timeline.
    assert!(equal(&read_all(&[&a[..], &b].concat()).unwrap()[0], &full[0]));
}

#[test]
fn junk_between_frames_is_passed_over() {
    let bytes = tagged();
    let n_samples = info(&bytes).unwrap().n_samples;
    // 40 frames later, LAME's reservoir may be used up or not; frames are complete either way.
    let mut at = TAG_FRAME.end;
    for _ in 0..40 {
        at += 208 + usize::from(bytes[at + 2] >> 1 & 1);
    }
    assert_eq!(bytes[at], 0xff);
    let mut with_junk = bytes.clone();
    with_junk.splice(at..at, (0..700_u32).map(|i| (i * 37 % 251) as u8));
    assert_eq!(info(&with_junk).unwrap().n_samples, n_samples);
    assert!(equal(&read_all(&with_junk).unwrap()[0], &read_all(&bytes).unwrap()[0]));
}

#[test]
fn invalid_recordings_are_refused() {
    let tag_only = &tagged()[TAG_FRAME];
    assert_eq!(info(tag_only).unwrap_err().kind, ErrorKind::Empty);
    for bytes in [&b""[..], &[0xff], &[0xff; 4096], b"<html>404</html>", b"ID3\x04\0\0\0\0\0\x01"] {
        let error = info(bytes).unwrap_err();
        assert!(error.kind.is_record() || error.kind == ErrorKind::Empty, "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn damage_gives_samples_or_an_error(
        which in 0..18_usize,
        steps in prop::collection::vec((0..12_u8, any::<u16>(), any::<u16>()), 1..4),
        place in any::<u16>(),
    ) {
        let (_, mut bytes) = files("mpeg").swap_remove(which);
        damage(&mut bytes, &steps);
        survive(&bytes, &mut AudioDecoder::new(), place);
    }
}

/// Start markers of tags without an end take no longer than other junk.
#[test]
fn unfinished_lyrics_are_junk() {
    let whole = file("mpeg", "mp3_mpeg2_16000_mono.mp3");
    let n_samples = info(&whole).unwrap().n_samples;
    let finished = [&whole[..], b"LYRICSBEGIN000006LYRICS200", &[0; 0]].concat();
    assert_eq!(info(&finished).unwrap().n_samples, n_samples);
    let start = thread_time();
    let hostile = [&whole[..], &b"LYRICSBEGIN".repeat(20_000)].concat();
    let _ = info(&hostile);
    let took = thread_time() - start;
    assert!(took.as_secs() < 1, "{took:?}");
}
