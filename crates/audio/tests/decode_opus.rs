//! Opus in Ogg: lengths and samples against libopus, spans against the full decode, odd and damaged streams.

// A failing helper is a failing test.
#![allow(clippy::unwrap_used)]

mod spans;

use forebay_audio::{AudioDecoder, Codec, Damage, Planes, Repairs};
use forebay_base::ErrorKind;
use proptest::prelude::*;
use spans::{damage, equal, file, files, folder, info, pages, read, read_all};

use pages::{Page, put_together, take_apart};

/// Largest difference from libopus in float, whose sums have another order: 2.3e-6 in 136 streams of six
/// seconds. The samples in `expected.txt` are rounded to 1e-6.
const TOLERANCE: f32 = 1e-5;
/// Largest difference of a span from the full decode after the pre-roll, for CELT.
const CELT_TOLERANCE: f32 = 1e-4;
/// The same for streams with SILK: 0.012 in those of 6 kbit/s. libopus differs by as much.
const SILK_TOLERANCE: f32 = 0.03;

#[test]
fn lengths_and_samples_are_those_of_libopus() {
    let expected = std::fs::read_to_string(folder("opus").join("expected.txt")).unwrap();
    for line in expected.lines() {
        let (name, numbers) = line.split_once(' ').unwrap();
        let mut numbers = numbers.split(' ').map(|number| number.parse::<i64>().unwrap());
        let mut number = || numbers.next().unwrap();
        let (sample_rate, channels, n_samples, stride) = (number(), number(), number(), number());
        let bytes = file("opus", name);
        let info = info(&bytes).unwrap();
        let told = (i64::from(info.sample_rate), i64::from(info.channels), info.n_samples as i64);
        assert_eq!((told, info.codec), ((sample_rate, channels, n_samples), Codec::Opus), "{name}");
        for (channel, samples) in read_all(&bytes).unwrap().iter().enumerate() {
            for (i, &sample) in samples.iter().step_by(stride as usize).enumerate() {
                let expected = number() as f32 / 1e6;
                let at = i * stride as usize;
                let differs = (sample - expected).abs();
                assert!(differs <= TOLERANCE, "{name}, channel {channel}, sample {at}: {sample} {expected}");
            }
        }
        assert!(numbers.next().is_none(), "{name}");
    }
    assert_eq!(expected.lines().count(), 20);
}

#[test]
fn files_of_other_programs_have_their_lengths() {
    // ffmpeg and libsndfile write the number of samples that they were given, at 48 kHz.
    for (name, n_samples, channels) in
        [("ffmpeg_20ms_stereo.opus", 70_001, 2), ("libsndfile_24000_mono.opus", 96_000, 1)]
    {
        let info = info(&file("opus", name)).unwrap();
        assert_eq!(
            (info.sample_rate, info.n_samples, info.channels),
            (48_000, n_samples, channels),
            "{name}"
        );
    }
}

/// Of files whose streams are all CELT; those of others have SILK or hybrid packets, too. (`surround` has
/// them in its stream of the center, `discrete`, `gain` and `ffmpeg` at their starts.)
fn tolerance(name: &str) -> f32 {
    if name.starts_with("celt") { CELT_TOLERANCE } else { SILK_TOLERANCE }
}

/// Spans at many places, by new and by used decoders: a span is always the same, and near the full decode.
#[test]
fn spans_are_near_the_full_decode() {
    let mut kept = AudioDecoder::new();
    let mut n_equal = 0;
    for (name, bytes) in files("opus") {
        let full = read_all(&bytes).unwrap();
        let end = full[0].len() as u64;
        for start in (0..end).step_by(4567) {
            let span = start..(start + 3000).min(end);
            let part = read(&mut kept, &bytes, span.clone()).unwrap();
            let again = read(&mut AudioDecoder::new(), &bytes, span.clone()).unwrap();
            for ((part, again), full) in part.iter().zip(&again).zip(&full) {
                assert!(equal(part, again), "{name} {span:?}");
                let full = &full[span.start as usize..span.end as usize];
                for (part, full) in part.iter().zip(full) {
                    assert!((part - full).abs() <= tolerance(&name), "{name} {span:?}: {part} {full}");
                }
                n_equal += usize::from(equal(part, full));
            }
            // The decode starts at the same packet, so the shared samples of two spans are equal.
            let longer = read(&mut kept, &bytes, span.start..end).unwrap();
            assert!(part.iter().zip(&longer).all(|(part, longer)| equal(part, &longer[..part.len()])));
        }
        // Spans that begin within the pre-roll of the start are slices of the full decode.
        for start in [0, 1, 959, 19_000] {
            let span = start..(start + 5000).min(end);
            let part = read(&mut kept, &bytes, span.clone()).unwrap();
            assert!(equal(&part[0], &full[0][span.start as usize..span.end as usize]), "{name} {start}");
        }
    }
    assert!(n_equal > 100, "{n_equal}");
}

#[test]
fn links_of_a_chain_are_one_timeline() {
    let [first, second] = ["silk_nb_20ms_mono.opus", "celt_60ms_mono.opus"].map(|name| file("opus", name));
    let whole = read_all(&file("opus", "chained_mono.opus")).unwrap();
    let parts = [&first, &second].map(|bytes| read_all(bytes).unwrap().swap_remove(0));
    assert!(equal(&whole[0], &parts.concat()));
    // A span over the border is the end of one and the start of the other.
    let n = parts[0].len() as u64;
    let chained = file("opus", "chained_mono.opus");
    let mut decoder = AudioDecoder::new();
    let over = read(&mut decoder, &chained, n - 2000..n + 2000).unwrap();
    let before = read(&mut decoder, &first, n - 2000..n).unwrap();
    assert!(equal(&over[0], &[&before[0], &parts[1][..2000]].concat()));
    // A link of other channels ends the recording.
    let other = [first.clone(), file("opus", "celt_5ms_stereo.opus")].concat();
    assert_eq!(info(&other).unwrap().n_samples, n);
}

fn repairs(bytes: &[u8]) -> Repairs {
    let mut decoder = AudioDecoder::new();
    let recording = decoder.open(bytes).unwrap();
    decoder.repairs(&recording)
}

#[test]
fn pages_may_be_cut_anywhere() {
    let bytes = file("opus", "celt_20ms_stereo_256k.opus");
    let parts = take_apart(&bytes);
    assert_eq!(put_together(&parts), bytes);
    let full = read_all(&bytes).unwrap();
    for n in [1, 2, 7] {
        let cut = put_together(&pages::cut_pages(&parts, n));
        assert!(cut.len() > bytes.len());
        let again = read_all(&cut).unwrap();
        assert!(full.iter().zip(&again).all(|(full, again)| equal(full, again)), "{n}");
        let mut decoder = AudioDecoder::new();
        for start in (0..20_000).step_by(777) {
            let spans = [&bytes, &cut].map(|bytes| read(&mut decoder, bytes, start..start + 500).unwrap());
            for (one, other) in spans[0].iter().zip(&spans[1]) {
                let most = one.iter().zip(other).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert!(most <= CELT_TOLERANCE, "{n} {start}: {most}");
            }
        }
    }
}

#[test]
fn granule_positions_cut_start_and_end() {
    let parts = take_apart(&file("opus", "celt_60ms_mono.opus"));
    let full = read_all(&put_together(&parts)).unwrap().swap_remove(0);
    let samples = |change: &dyn Fn(&mut Vec<Page>)| {
        let mut parts = parts.clone();
        change(&mut parts);
        let bytes = put_together(&parts);
        assert_eq!(repairs(&bytes), Repairs::default());
        read_all(&bytes).unwrap().swap_remove(0)
    };
    let moved =
        |by: i64| move |parts: &mut Vec<Page>| parts[2..].iter_mut().for_each(|page| page.granule += by);
    // A stream that starts late starts at sample 0 here; one that starts before 0 loses its first samples.
    assert!(equal(&samples(&moved(123_456_789)), &full));
    assert!(equal(&samples(&moved(-1000)), &full[1000..]));
    // The last position cuts the end; beyond the last packet it is ignored.
    assert!(equal(&samples(&|parts| parts.last_mut().unwrap().granule -= 100), &full[..full.len() - 100]));
    let longer = samples(&|parts| parts.last_mut().unwrap().granule += 1 << 40);
    assert!(longer.len() > full.len() && equal(&longer[..full.len()], &full));
    // Pre-skip of a second cuts as much; the decode is the same.
    let skipped = samples(&|parts| parts[0].body[10..12].copy_from_slice(&(312u16 + 48_000).to_le_bytes()));
    assert!(equal(&skipped, &full[48_000..]));
}

#[test]
fn slips_of_granule_positions_are_cut_and_filled() {
    let parts = take_apart(&file("opus", "celt_60ms_mono.opus"));
    let full = read_all(&put_together(&parts)).unwrap().swap_remove(0);
    let k = 4;
    let at = (parts[k].granule - 312) as usize;
    for off in [1_i64, 100, 5760, -1, -100] {
        let mut slipped = parts.clone();
        slipped[k..].iter_mut().for_each(|page| page.granule += off);
        let bytes = put_together(&slipped);
        let size = off.unsigned_abs() as usize;
        let (expected, count) = if off > 0 {
            let filled = [&full[..at], &vec![0.0; size], &full[at..]].concat();
            (filled, Repairs { places: 1, cut: 0, filled: size as u64 })
        } else {
            ([&full[..at - size], &full[at..]].concat(), Repairs { places: 1, cut: size as u64, filled: 0 })
        };
        assert!(equal(&read_all(&bytes).unwrap()[0], &expected), "{off}");
        assert_eq!(repairs(&bytes), count, "{off}");
    }
    let mut far = parts.clone();
    far[k..].iter_mut().for_each(|page| page.granule += 5761);
    let error = read_all(&put_together(&far)).unwrap_err();
    assert!(error.kind == ErrorKind::Corrupt && error.message.contains("lost or damaged"), "{error}");
}

/// A lost page and a damaged one are an error, or silence of their own samples.
#[test]
fn lost_and_damaged_pages_are_silence_or_an_error() {
    let bytes = file("opus", "celt_60ms_mono.opus");
    let parts = take_apart(&bytes);
    let full = read_all(&bytes).unwrap().swap_remove(0);
    let k = 4;
    let place = [parts[k - 1].granule as usize - 312, parts[k].granule as usize - 312];
    let mut lost = parts.clone();
    lost.remove(k);
    let mut flipped = bytes.clone();
    flipped[put_together(&parts[..k]).len() + 200] ^= 1;
    for (name, bytes) in [("lost", put_together(&lost)), ("flipped", flipped)] {
        // A lost page takes those after it up to the next position with it.
        let last = if name == "lost" { parts[k + 1].granule as usize - 312 } else { place[1] };
        let error = read_all(&bytes).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Corrupt, "{name}: {error}");
        let mut decoder = AudioDecoder::with_damage(Damage { most: 0.9 });
        let silent = read(&mut decoder, &bytes, 0..full.len() as u64).unwrap().swap_remove(0);
        assert_eq!(decoder.filled().filled as usize, last - place[0], "{name}");
        assert!(silent[place[0]..last].iter().all(|&sample| sample == 0.0), "{name}");
        assert!(equal(&silent[..place[0]], &full[..place[0]]), "{name}");
        // After 400 ms the decoder has found its way again.
        let behind = (last + 19_200).min(full.len());
        for (silent, full) in silent[behind..].iter().zip(&full[behind..]) {
            assert!((silent - full).abs() <= CELT_TOLERANCE, "{name}");
        }
        // Damage before a span, in its pre-roll, is none of the span.
        let part = read(&mut AudioDecoder::new(), &bytes, last as u64..last as u64 + 500);
        assert!(part.is_ok(), "{name}");
    }
}

/// An invalid packet behind a right checksum is as damaged as one with a wrong one.
#[test]
fn packets_that_contradict_themselves_are_damage() {
    let mut parts = take_apart(&file("opus", "celt_20ms_stereo_256k.opus"));
    let page = &mut parts[3];
    // Two frames of equal lengths, but the bytes are odd: one packet has 20 ms for the timeline all the same.
    let len = page
        .lacing
        .iter()
        .position(|&value| value < 255)
        .map(|i| 255 * i + usize::from(page.lacing[i]))
        .unwrap();
    page.body[0] = page.body[0] & !0x1b | 2 << 3 | 1;
    page.body[1] |= u8::from(len % 2 == 1);
    let bytes = put_together(&parts);
    match read_all(&bytes) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind, ErrorKind::Corrupt, "{error}"),
    }
    let mut decoder = AudioDecoder::with_damage(Damage::ALL);
    assert!(read(&mut decoder, &bytes, 0..info(&bytes).unwrap().n_samples).is_ok());
}

#[test]
fn impossible_streams_are_refused() {
    let parts = take_apart(&file("opus", "celt_60ms_mono.opus"));
    let refused = |change: &dyn Fn(&mut Vec<Page>)| {
        let mut parts = parts.clone();
        change(&mut parts);
        let error = info(&put_together(&parts)).unwrap_err();
        (error.kind, error.message)
    };
    assert_eq!(refused(&|parts| parts.truncate(2)).0, ErrorKind::Empty);
    assert_eq!(refused(&|parts| parts.truncate(1)).0, ErrorKind::Corrupt);
    let (kind, message) = refused(&|parts| parts[0].body[18] = 3);
    assert!(kind == ErrorKind::Unsupported && message.contains("ambisonics"), "{message}");
    assert_eq!(refused(&|parts| parts[0].body[9] = 9).0, ErrorKind::Corrupt);
    // A length that the bytes cannot hold: the position before the last page, and that page, are far off.
    let (kind, message) = refused(&|parts| {
        let n = parts.len();
        parts[n - 2..].iter_mut().for_each(|page| page.granule += 1 << 50);
    });
    assert!(kind == ErrorKind::Corrupt && message.contains("claim"), "{message}");
    assert_eq!(info(b"OggS\0\x02").unwrap_err().kind, ErrorKind::Corrupt);
}

/// Opens and reads a damaged recording: each error makes the record bad, and spans depend on their bytes
/// only.
fn survive(bytes: &[u8], kept: &mut AudioDecoder, place: u16) {
    let recording = match kept.open(bytes) {
        Ok(recording) => recording,
        Err(error) => return assert!(error.kind.is_record() || error.kind == ErrorKind::Empty, "{error:?}"),
    };
    let end = recording.info().n_samples;
    assert!(end <= 5760 * bytes.len() as u64, "{end} samples in {} bytes", bytes.len());
    let start = end * u64::from(place) / 65536;
    let span = start..(start + 2000).min(end);
    let (mut one, mut other) = (Planes::new(), Planes::new());
    let results = [
        kept.read(&recording, span.clone(), &mut one),
        AudioDecoder::new().read(&recording, span.clone(), &mut other),
    ];
    match results {
        [Ok(()), Ok(())] => {
            assert!((0..usize::from(one.channels())).all(|i| equal(one.channel(i), other.channel(i))));
        }
        [Err(one), Err(other)] => {
            assert!(one.kind.is_record() && one.kind == other.kind, "{one:?} {other:?}")
        }
        other => panic!("{span:?}: {other:?}"),
    }
    let mut all = Planes::new();
    if end < 1 << 22 {
        let whole = AudioDecoder::new().read(&recording, 0..end, &mut all);
        if let Err(error) = whole {
            assert!(error.kind.is_record(), "{error:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn damage_gives_samples_or_an_error(
        which in 0..23_usize,
        steps in prop::collection::vec((0..12_u8, any::<u16>(), any::<u16>()), 1..4),
        place in any::<u16>(),
    ) {
        let (_, mut bytes) = files("opus").swap_remove(which);
        damage(&mut bytes, &steps);
        survive(&bytes, &mut AudioDecoder::new(), place);
    }

    #[test]
    fn damage_behind_checksums_gives_samples_or_an_error(
        which in 0..23_usize,
        page in any::<prop::sample::Index>(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        place in any::<u16>(),
    ) {
        let mut pages = take_apart(&files("opus").swap_remove(which).1);
        let page = page.index(pages.len());
        for (at, byte) in flips {
            let at = at.index(pages[page].body.len());
            pages[page].body[at] = byte;
        }
        survive(&put_together(&pages), &mut AudioDecoder::new(), place);
    }
}
