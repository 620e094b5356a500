//! Spans of Vorbis in Ogg: lengths and samples against libsndfile, spans against the full decode, odd and
//! damaged streams.

// A failing helper is a failing test.
#![allow(clippy::unwrap_used)]

#[path = "../../../tests/patience/mod.rs"]
mod patience;
mod spans;

use forebay_audio::{AudioDecoder, Repairs};
use forebay_base::ErrorKind;
use pages::{cut_pages, put_together, take_apart};
use patience::thread_time;
use proptest::prelude::*;
use spans::{
    compare_spans, compare_with_libsndfile, damage, equal, file, files, info, pages, read, read_all, survive,
};

fn recording() -> Vec<u8> {
    file("vorbis", "perch_16000_mono.ogg")
}

#[test]
fn lengths_and_samples_are_those_of_libsndfile() {
    assert_eq!(compare_with_libsndfile("vorbis"), 16);
}

#[test]
fn spans_equal_the_full_decode() {
    let mut kept = AudioDecoder::new();
    for (name, bytes) in files("vorbis") {
        if read_all(&bytes).is_ok() {
            compare_spans(&name, &bytes, &mut kept, 40);
        }
    }
}

#[test]
fn every_block_boundary_is_right() {
    // Long and short blocks alternate; a span may start on either side of any boundary.
    let mut kept = AudioDecoder::new();
    let bytes = file("vorbis", "eof_issue.ogg");
    let full = read_all(&bytes).unwrap();
    for start in (0..full[0].len() - 2).step_by(61) {
        let part = read(&mut kept, &bytes, start as u64..start as u64 + 2).unwrap();
        assert!(equal(&part[1], &full[1][start..start + 2]), "{start}");
    }
}

#[test]
fn paging_changes_nothing() {
    let bytes = recording();
    let pages = take_apart(&bytes);
    assert_eq!(put_together(&pages), bytes);
    let full = read_all(&bytes).unwrap();
    let mut kept = AudioDecoder::new();
    for n in [1, 2, 7] {
        let cut = put_together(&cut_pages(&pages, n));
        compare_spans(&format!("pages of {n} segments"), &cut, &mut kept, 40);
        assert!(equal(&read_all(&cut).unwrap()[0], &full[0]));
    }
}

#[test]
fn packets_without_audio_are_passed_over() {
    let mut pages = take_apart(&recording());
    let full = read_all(&recording()).unwrap();
    for page in &mut pages[3..] {
        // An empty packet before it, and one with the header bit after it.
        if page.flags & 1 == 0 && page.lacing.last() < Some(&255) && page.lacing.len() < 250 {
            page.lacing.insert(0, 0);
            page.lacing.push(1);
            page.body.push(1);
        }
    }
    let bytes = put_together(&pages);
    assert!(bytes.len() > recording().len());
    assert!(equal(&read_all(&bytes).unwrap()[0], &full[0]));
    compare_spans("with empty packets", &bytes, &mut AudioDecoder::new(), 40);
}

#[test]
fn granule_positions_cut_start_and_end() {
    let pages = take_apart(&recording());
    let full = read_all(&recording()).unwrap();
    let moved = |by: i64| {
        let mut pages = pages.clone();
        pages.iter_mut().filter(|page| page.granule > 0).for_each(|page| page.granule += by);
        put_together(&pages)
    };
    let mut kept = AudioDecoder::new();
    // A stream that starts late starts at 0 here; one that starts before 0 loses its first samples.
    for (by, cut) in [(123_456_789, 0), (-1000, 1000)] {
        let bytes = moved(by);
        assert!(equal(&read_all(&bytes).unwrap()[0], &full[0][cut..]), "{by}");
        compare_spans("moved", &bytes, &mut kept, 20);
    }
    for (by, cut) in [(-100, 100), (1 << 40, 0)] {
        let mut pages = pages.clone();
        pages.last_mut().unwrap().granule += by;
        let samples = read_all(&put_together(&pages)).unwrap();
        // A last granule position beyond the packets is ignored.
        let n = samples[0].len().min(full[0].len());
        assert!(n + cut == full[0].len() && equal(&samples[0][..n], &full[0][..n]), "{by}");
        assert!(samples[0].len() < full[0].len() + 2048);
    }
}

#[test]
fn links_of_one_kind_are_one_timeline() {
    let (a, b) = (file("vorbis", "vorbis_len_799.ogg"), file("vorbis", "vorbis_len_1025.ogg"));
    let both = [&a[..], &b].concat();
    let samples = read_all(&both).unwrap();
    assert!(equal(&samples[0], &[&read_all(&a).unwrap()[0][..], &read_all(&b).unwrap()[0]].concat()));
    compare_spans("two links", &both, &mut AudioDecoder::new(), 60);
    let other = [&a[..], &recording()].concat();
    assert_eq!(info(&other).unwrap().n_samples, 799);
}

#[test]
fn other_streams_are_passed_over() {
    // Two Vorbis streams with alternating pages: the first one is decoded.
    let mut a = take_apart(&recording());
    let mut b = take_apart(&file("vorbis", "vorbis_q3_11025_mono.ogg"));
    a.iter_mut().for_each(|page| page.serial = *b"aaaa");
    b.iter_mut().for_each(|page| page.serial = *b"bbbb");
    let mut mixed = Vec::new();
    for i in 0..a.len().max(b.len()) {
        mixed.extend(a.get(i).cloned());
        mixed.extend(b.get(i).cloned());
    }
    let bytes = put_together(&mixed);
    assert!(equal(&read_all(&bytes).unwrap()[0], &read_all(&recording()).unwrap()[0]));
    compare_spans("two streams", &bytes, &mut AudioDecoder::new(), 20);
}

#[test]
fn damage_condemns_only_spans_that_touch_it() {
    let bytes = recording();
    let full = read_all(&bytes).unwrap();
    let pages = take_apart(&bytes);
    let k = pages.len() / 2;
    let offset = put_together(&pages[..k]).len();
    let (begin, end) = (pages[k - 1].granule as u64, pages[k].granule as u64);
    let mut flipped = bytes.clone();
    flipped[offset + 600] ^= 1;
    let mut lost = pages.clone();
    lost.remove(k);
    let mut kept = AudioDecoder::new();
    for damaged in [flipped, put_together(&lost)] {
        assert_eq!(info(&damaged).unwrap().n_samples, full[0].len() as u64);
        for span in [0..begin - 2000, end + 30_000..full[0].len() as u64] {
            let part = read(&mut kept, &damaged, span.clone()).unwrap();
            assert!(equal(&part[0], &full[0][span.start as usize..span.end as usize]));
        }
        let error = read(&mut kept, &damaged, begin..end).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Corrupt, "{error}");
    }
}

fn repairs(bytes: &[u8]) -> Repairs {
    let mut decoder = AudioDecoder::new();
    let recording = decoder.open(bytes).unwrap();
    decoder.repairs(&recording)
}

/// Every span of up to three samples around each page's end, and random ones.
fn compare_spans_at(name: &str, bytes: &[u8], granules: &[i64]) {
    let mut kept = AudioDecoder::new();
    compare_spans(name, bytes, &mut kept, 60);
    let full = read_all(bytes).unwrap();
    for &granule in granules {
        for start in
            [granule - 700, granule - 449, granule - 2, granule - 1, granule, granule + 1, granule + 447]
        {
            for len in [1, 3, 1000] {
                let span = start.max(0) as usize..((start + len).max(0) as usize).min(full[0].len());
                if span.is_empty() {
                    continue;
                }
                let part = read(&mut kept, bytes, span.start as u64..span.end as u64).unwrap();
                assert!(equal(&part[0], &full[0][span.clone()]), "{name}: {span:?}");
            }
        }
    }
}

/// Granule positions that are some samples off, without a missing page, define the timeline.
#[test]
fn slips_of_granule_positions_are_cut_and_filled() {
    let pages = take_apart(&recording());
    let full = read_all(&recording()).unwrap().swap_remove(0);
    let n = pages.len();
    let granules: Vec<i64> = pages.iter().map(|page| page.granule).collect();
    let at = |k: usize| granules[k] as usize;
    let (k, last) = (n / 2, n - 2);
    assert!(granules[k - 1] > 0 && repairs(&recording()) == Repairs::default());
    for off in [1_i64, 448, 1000, -1, -64, -448, -1000] {
        let size = off.unsigned_abs() as usize;
        let zeros = vec![0.0; size];
        // Only one page: samples cut at it are filled at the next one, and the other way around.
        let mut one = pages.clone();
        one[k].granule += off;
        // All pages from one on, and only those between two.
        let (mut rest, mut some) = (pages.clone(), pages.clone());
        rest[k..].iter_mut().for_each(|page| page.granule += off);
        some[k..last].iter_mut().for_each(|page| page.granule += off);
        let repaired = size as u64;
        let filled_at = |k: usize, until: usize| [&full[at(k)..at(k)], &zeros, &full[at(k)..until]].concat();
        let expected_one = if off > 0 {
            [&full[..at(k)], &zeros, &full[at(k)..at(k + 1) - size], &full[at(k + 1)..]].concat()
        } else {
            [&full[..at(k) - size], &full[at(k)..at(k + 1)], &zeros, &full[at(k + 1)..]].concat()
        };
        let expected_rest = if off > 0 {
            [full[..at(k)].to_vec(), filled_at(k, full.len())].concat()
        } else {
            [&full[..at(k) - size], &full[at(k)..]].concat()
        };
        let expected_some = if off > 0 {
            [&full[..at(k)], &zeros, &full[at(k)..at(last) - size], &full[at(last)..]].concat()
        } else {
            [&full[..at(k) - size], &full[at(k)..at(last)], &zeros, &full[at(last)..]].concat()
        };
        let both = Repairs { places: 2, cut: repaired, filled: repaired };
        let single = if off > 0 {
            Repairs { places: 1, cut: 0, filled: repaired }
        } else {
            Repairs { places: 1, cut: repaired, filled: 0 }
        };
        for (name, pages, expected, count) in [
            ("one", one, expected_one, both),
            ("rest", rest, expected_rest, single),
            ("some", some, expected_some, both),
        ] {
            let (name, bytes) = (format!("{name} by {off}"), put_together(&pages));
            let samples = read_all(&bytes).unwrap();
            assert_eq!(samples[0].len(), expected.len(), "{name}");
            assert!(equal(&samples[0], &expected), "{name}");
            assert_eq!(repairs(&bytes), count, "{name}");
            compare_spans_at(&name, &bytes, &[granules[k], granules[k + 1], granules[last]]);
        }
    }
}

/// A cut that takes whole packets: the next packet still overlaps with the last of them.
#[test]
fn whole_packets_may_be_cut() {
    let pages = cut_pages(&take_apart(&recording()), 1);
    let full = read_all(&recording()).unwrap().swap_remove(0);
    let granules: Vec<usize> = (0..pages.len()).filter(|&k| pages[k].granule > 0).collect();
    let k = granules[granules.len() / 2];
    let off = 900;
    let mut cut = pages.clone();
    cut[k..].iter_mut().filter(|page| page.granule > 0).for_each(|page| page.granule -= off);
    let bytes = put_together(&cut);
    let at = pages[k].granule as usize;
    assert!(equal(&read_all(&bytes).unwrap()[0], &[&full[..at - off as usize], &full[at..]].concat()));
    compare_spans_at("whole packets", &bytes, &[at as i64 - off]);
}

/// With missing pages, wrong checksums, or positions that are far off or decrease, no repair is made.
#[test]
fn damage_is_no_slip() {
    let pages = take_apart(&recording());
    let (k, full) = (pages.len() / 2, read_all(&recording()).unwrap().swap_remove(0));
    let (begin, end) = (pages[k - 1].granule as u64, pages[k].granule as u64);
    let mut far = pages.clone();
    far[k..].iter_mut().for_each(|page| page.granule += 2049);
    let mut back = pages.clone();
    back[k].granule = pages[k - 1].granule - 1;
    let mut slipped = pages.clone();
    slipped[k].granule += 10;
    let offset = put_together(&slipped[..k + 1]).len();
    let mut flipped = put_together(&slipped);
    // The last byte of the page; the first span does not need it.
    flipped[offset - 1] ^= 1;
    // A page of one packet, which is shorter than a long block.
    let parts = cut_pages(&pages, 1);
    let mut lost = parts.clone();
    let part = (0..parts.len() * 2 / 3).rfind(|&i| parts[i].granule == -1).unwrap();
    lost.remove(part);
    let hole = parts[..part].iter().rfind(|page| page.granule > 0).unwrap().granule as u64;
    for (name, bytes, span) in [
        ("far", put_together(&far), begin..begin + 1),
        ("back", put_together(&back), begin..begin + 1),
        ("flipped", flipped, begin..begin + 1),
        ("lost", put_together(&lost), hole..hole + 1),
    ] {
        let mut kept = AudioDecoder::new();
        let error = read(&mut kept, &bytes, span).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Corrupt, "{name}: {error}");
        assert!(read_all(&bytes).is_err(), "{name}");
        let part = read(&mut kept, &bytes, 0..5000).unwrap();
        assert!(equal(&part[0], &full[..5000]), "{name}");
    }
    assert!(end > begin);
}

#[test]
fn files_as_encoders_write_them_need_no_repairs() {
    let mut n = 0;
    for (name, bytes) in files("vorbis") {
        if read_all(&bytes).is_ok() {
            assert_eq!(repairs(&bytes), Repairs::default(), "{name}");
            n += 1;
        }
    }
    assert!(n >= 15, "{n}");
}

#[test]
fn invalid_recordings_are_refused() {
    let headers = put_together(&take_apart(&recording())[..2]);
    let truncated = &recording()[..200];
    for (bytes, kind) in [(&headers[..], ErrorKind::Empty), (truncated, ErrorKind::Corrupt)] {
        assert_eq!(info(bytes).unwrap_err().kind, kind);
    }
    assert_eq!(info(b"OggS\0\x02").unwrap_err().kind, ErrorKind::Corrupt);
}

/// Three channels share a residue that is not interleaved, which symphonia misreads.
#[test]
fn channels_may_share_a_residue() {
    let found = info(&file("vorbis", "surround30_44100.ogg")).unwrap();
    assert_eq!((found.channels, found.n_samples), (3, 44_100));
}

#[test]
fn false_capture_patterns_cost_little() {
    // Pages in pages, each of which would have to be summed: limited by a budget.
    let mut bytes = recording();
    for _ in 0..20_000 {
        bytes.extend(b"OggS\0\0aaaaaaaaaaaaaaaaaaaaaaaaaaaa\xff");
    }
    let started = thread_time();
    assert!(info(&bytes).is_ok());
    let took = thread_time() - started;
    assert!(took.as_secs() < 1, "{took:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn damage_gives_samples_or_an_error(
        which in 0..19_usize,
        steps in prop::collection::vec((0..12_u8, any::<u16>(), any::<u16>()), 1..4),
        place in any::<u16>(),
    ) {
        let (_, mut bytes) = files("vorbis").swap_remove(which);
        damage(&mut bytes, &steps);
        survive(&bytes, &mut AudioDecoder::new(), place);
    }

    #[test]
    fn damage_behind_checksums_gives_samples_or_an_error(
        page in any::<prop::sample::Index>(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        place in any::<u16>(),
    ) {
        let mut pages = take_apart(&file("vorbis", "vorbis_len_1025.ogg"));
        let page = page.index(pages.len());
        for (at, byte) in flips {
            let at = at.index(pages[page].body.len());
            pages[page].body[at] = byte;
        }
        survive(&put_together(&pages), &mut AudioDecoder::new(), place);
    }
}
