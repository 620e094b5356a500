//! MP4 and ADTS: places of packets, claims of tables, edits, and HE-AAC, which is refused.
//!
//! The files are built here, box by box, from packets of a real recording.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod spans;

use forebay_audio::AudioDecoder;
use forebay_base::ErrorKind;
use spans::{compare_spans, equal, file, info, read_all};

/// Setup of AAC-LC, 44.1 kHz, one channel.
const LC: [u8; 2] = [0x12, 0x08];
const RATE: u32 = 44_100;

/// The packets of an ADTS file without CRCs.
fn adts_packets(bytes: &[u8]) -> Vec<Vec<u8>> {
    let (mut packets, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let head = &bytes[at..at + 7];
        let len = usize::from(head[3] & 3) << 11 | usize::from(head[4]) << 3 | usize::from(head[5] >> 5);
        packets.push(bytes[at + 7..at + len].to_vec());
        at += len;
    }
    packets
}

/// The packets as ADTS, 44.1 kHz, one channel.
fn adts(packets: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for packet in packets {
        let len = packet.len() + 7;
        let (high, middle, low) = ((len >> 11) as u8, (len >> 3) as u8, (len as u8) << 5);
        bytes.extend([0xff, 0xf1, 0x50, 0x40 | high, middle, low | 0x1f, 0xfc]);
        bytes.extend(packet);
    }
    bytes
}

/// Some packets of a real recording.
fn packets() -> Vec<Vec<u8>> {
    adts_packets(&file("codec-ladder", "aac_adts_44100_mono.aac"))[..40].to_vec()
}

fn boxed(name: &[u8; 4], parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    [&(body.len() as u32 + 8).to_be_bytes()[..], name, &body].concat()
}

/// A table: version and flags, then numbers.
fn table(name: &[u8; 4], numbers: &[u32]) -> Vec<u8> {
    let body: Vec<u8> = numbers.iter().flat_map(|number| number.to_be_bytes()).collect();
    boxed(name, &[&[0; 4], &body])
}

fn ftyp() -> Vec<u8> {
    boxed(b"ftyp", &[b"M4A \0\0\0\0"])
}

/// A description of AAC with the decoder's setup `setup`.
fn stsd(setup: &[u8]) -> Vec<u8> {
    let descriptor = |tag: u8, body: &[u8]| [&[tag, body.len() as u8][..], body].concat();
    let config = [&[0x40, 0x15][..], &[0; 11], &descriptor(5, setup)].concat();
    let stream = [&[0, 1, 0][..], &descriptor(4, &config), &descriptor(6, &[2])].concat();
    let esds = boxed(b"esds", &[&[0; 4], &descriptor(3, &stream)]);
    let mut head = [0; 28];
    (head[7], head[17], head[19]) = (1, 1, 16);
    let entry = boxed(b"mp4a", &[&head, &esds]);
    boxed(b"stsd", &[&[0; 4], &1u32.to_be_bytes(), &entry])
}

/// A movie with one sound track: its description, its tables, and further boxes of track and movie.
fn moov(stsd: &[u8], tables: &[Vec<u8>], track: &[u8], movie: &[u8]) -> Vec<u8> {
    let stbl = boxed(b"stbl", &[stsd, &tables.concat()]);
    let mdhd = table(b"mdhd", &[0, 0, RATE, 0, 0]);
    let hdlr = boxed(b"hdlr", &[&[0; 8], b"soun", &[0; 13]]);
    let mdia = boxed(b"mdia", &[&mdhd, &hdlr, &boxed(b"minf", &[&stbl])]);
    let tkhd = table(b"tkhd", &[0, 0, 1, 0, 0]);
    let trak = boxed(b"trak", &[&tkhd, track, &mdia]);
    boxed(b"moov", &[&table(b"mvhd", &[0, 0, 1000, 0, 0]), &trak, movie])
}

/// The tables of packets in chunks of seven, whose bytes begin at byte `at` of the file.
fn tables(packets: &[Vec<u8>], at: usize) -> [Vec<u8>; 4] {
    let sizes: Vec<u32> = packets.iter().map(|packet| packet.len() as u32).collect();
    let n = packets.len() as u32;
    let chunks: Vec<u32> =
        (0..packets.len()).step_by(7).map(|first| at as u32 + sizes[..first].iter().sum::<u32>()).collect();
    [
        table(b"stts", &[1, n, 1024]),
        table(b"stsc", &[1, 1, 7, 1]),
        table(b"stsz", &[&[0, n][..], &sizes].concat()),
        table(b"stco", &[&[chunks.len() as u32][..], &chunks].concat()),
    ]
}

/// The offset of packets in a file that begins with them.
const DATA_AT: usize = 16 + 8;

fn plain(packets: &[Vec<u8>], moov: &[u8]) -> Vec<u8> {
    assert_eq!(ftyp().len() + 8, DATA_AT);
    [ftyp(), boxed(b"mdat", &[&packets.concat()]), moov.to_vec()].concat()
}

/// A complete file with these packets.
fn mp4(setup: &[u8], packets: &[Vec<u8>], track: &[u8], movie: &[u8]) -> Vec<u8> {
    plain(packets, &moov(&stsd(setup), &tables(packets, DATA_AT), track, movie))
}

/// The same in two fragments of two runs. The first run has a size and duration for each packet; the second
/// continues at its end.
fn fragmented(packets: &[Vec<u8>], is_moof_base: bool) -> Vec<u8> {
    let none: [Vec<u8>; 4] =
        [table(b"stts", &[0]), table(b"stsc", &[0]), table(b"stsz", &[0, 0]), table(b"stco", &[0])];
    let mvex = boxed(b"mvex", &[&table(b"trex", &[1, 1, 1024, 0, 0])]);
    let mut bytes = [ftyp(), moov(&stsd(&LC), &none, &[], &mvex)].concat();
    for part in packets.chunks(packets.len().div_ceil(2)) {
        let (a, b) = part.split_at(part.len() / 3);
        let run = |flags: u32, packets: &[Vec<u8>], offset: Option<u32>, with_durations: bool| {
            let mut numbers = vec![packets.len() as u32];
            numbers.extend(offset);
            for packet in packets {
                if with_durations {
                    numbers.push(1024);
                }
                numbers.push(packet.len() as u32);
            }
            let mut run = table(b"trun", &numbers);
            run[8..12].copy_from_slice(&flags.to_be_bytes());
            run
        };
        let fragment = |offset: u32| {
            let mut tfhd = table(b"tfhd", &[1]);
            if is_moof_base {
                tfhd[8..12].copy_from_slice(&0x2_0000u32.to_be_bytes());
            }
            let runs = [run(0x301, a, Some(offset), true), run(0x200, b, None, false)].concat();
            let other = boxed(b"traf", &[&table(b"tfhd", &[9]), &table(b"trun", &[0])]);
            boxed(b"moof", &[&table(b"mfhd", &[1]), &boxed(b"traf", &[&tfhd, &runs]), &other])
        };
        let len = fragment(0).len() as u32;
        bytes.extend(fragment(len + 8));
        bytes.extend(boxed(b"mdat", &[&part.concat()]));
    }
    bytes
}

#[test]
fn packets_are_the_same_in_every_container() {
    let packets = packets();
    let expected = read_all(&adts(&packets)).unwrap();
    assert_eq!(expected[0].len(), 40 * 1024);
    for (name, bytes) in [
        ("plain", mp4(&LC, &packets, &[], &[])),
        ("fragments", fragmented(&packets, false)),
        ("fragments from the box on", fragmented(&packets, true)),
    ] {
        assert!(equal(&read_all(&bytes).unwrap()[0], &expected[0]), "{name}");
    }
}

/// Durations in tables are rounded to clocks of any kind, and a packet has 1024 samples.
#[test]
fn durations_cut_only_the_last_packet() {
    let packets = packets();
    let full = read_all(&adts(&packets)).unwrap();
    let of = |durations: &[u32]| {
        let mut tables = tables(&packets, DATA_AT);
        let runs: Vec<u32> = durations.iter().flat_map(|&duration| [1, duration]).collect();
        tables[0] = table(b"stts", &[&[durations.len() as u32][..], &runs].concat());
        plain(&packets, &moov(&stsd(&LC), &tables, &[], &[]))
    };
    for (name, first, last, n) in [
        ("rounded", 1008, 1024, 1024),
        ("none", 0, 1024, 1024),
        ("long", 5000, 1024, 1024),
        ("a short end", 1008, 300, 300),
        ("an end without a duration", 1024, 0, 1024),
        ("a long end", 1024, u32::MAX, 1024),
    ] {
        let durations = [&[first, 1056][..]; 20].concat();
        let durations = [&durations[..39], &[last]].concat();
        let bytes = of(&durations);
        let samples = read_all(&bytes).unwrap();
        assert!(equal(&samples[0], &full[0][..39 * 1024 + n]), "{name}: {}", samples[0].len());
        compare_spans_of_aac(name, &bytes);
    }
    // Fragments: the runs with durations of their own have 1024, the others the default.
    let mut bytes = fragmented(&packets, true);
    let runs: Vec<_> = (0..bytes.len() - 4).filter(|&at| &bytes[at..at + 4] == b"trun").collect();
    for at in runs {
        if bytes[at + 4..at + 8] == [0, 0, 3, 1] {
            let n = u32::from_be_bytes(bytes[at + 8..at + 12].try_into().unwrap()) as usize;
            for i in 0..n {
                bytes[at + 16 + 8 * i..at + 20 + 8 * i].copy_from_slice(&1008u32.to_be_bytes());
            }
        }
    }
    assert!(equal(&read_all(&bytes).unwrap()[0], &full[0]));
}

/// Where a table is rounded, an edit list cuts the end; its clock has milliseconds, and within one of them
/// the table decides.
#[test]
fn an_edit_list_cuts_a_rounded_table() {
    let packets = packets();
    let full = read_all(&adts(&packets)).unwrap();
    let edits = boxed(b"edts", &[&table(b"elst", &[1, 890, 1024, 1 << 16])]);
    let (exact, upper) = (890 * RATE as usize / 1000, 891 * RATE as usize / 1000);
    for (name, first, last, n) in [
        // The table ends at 38 * 1024 + 300 samples.
        ("regular", 1024, 300, 38 * 1024 + 300),
        ("regular, longer than the edit", 1024, 1024, upper),
        // 19 packets are 16 samples shorter in the table.
        ("shorter than the edit", 1008, 300, exact),
        ("within its last millisecond", 1008, 680, 38 * 1024 - 19 * 16 + 680),
        ("longer than the edit", 1040, 300, upper),
    ] {
        let durations = [&[first, 1024][..]; 20].concat();
        let durations = [&durations[2..], &[1024, last]].concat();
        let runs: Vec<u32> = durations.iter().flat_map(|&duration| [1, duration]).collect();
        let mut tables = tables(&packets, DATA_AT);
        tables[0] = table(b"stts", &[&[durations.len() as u32][..], &runs].concat());
        let bytes = plain(&packets, &moov(&stsd(&LC), &tables, &edits, &[]));
        let samples = read_all(&bytes).unwrap();
        assert_eq!(samples[0].len(), n, "{name}");
        assert!(equal(&samples[0], &full[0][1024..1024 + n]), "{name}");
        compare_spans_of_aac(name, &bytes);
    }
}

/// A packet without bytes has no samples, and the others are where they would be without it.
#[test]
fn packets_without_bytes_are_passed() {
    let mut packets = packets();
    let full = read_all(&adts(&packets)).unwrap();
    packets.insert(7, Vec::new());
    packets.push(Vec::new());
    let bytes = mp4(&LC, &packets, &[], &[]);
    assert!(equal(&read_all(&bytes).unwrap()[0], &full[0]));
    compare_spans_of_aac("empty", &bytes);
}

#[test]
fn truncated_packets_are_left_out() {
    let packets = packets();
    let whole = moov(&stsd(&LC), &tables(&packets, 0), &[], &[]);
    let at = ftyp().len() + whole.len() + 8;
    let in_front = moov(&stsd(&LC), &tables(&packets, at), &[], &[]);
    let bytes = [ftyp(), in_front, boxed(b"mdat", &[&packets.concat()])].concat();
    let expected = read_all(&adts(&packets)).unwrap();
    assert!(equal(&read_all(&bytes).unwrap()[0], &expected[0]));
    let cut = at + packets[..25].concat().len() + 3;
    assert!(equal(&read_all(&bytes[..cut]).unwrap()[0], &expected[0][..25 * 1024]));
}

/// Few bytes that claim many packets: refused, or read as far as they exist, without a walk through the
/// claimed number.
#[test]
fn tables_claim_no_more_than_the_bytes_hold() {
    let packets = packets();
    let of = |numbers: [&[u32]; 4]| {
        let names = [b"stts", b"stsc", b"stsz", b"stco"];
        let tables: Vec<_> = names.iter().zip(numbers).map(|(name, numbers)| table(name, numbers)).collect();
        plain(&packets, &moov(&stsd(&LC), &tables, &[], &[]))
    };
    let (many, at) = (u32::MAX, DATA_AT as u32);
    for (name, bytes) in [
        ("packets of 1 byte", of([&[1, many, 1024], &[1, 1, many, 1], &[1, many], &[1, at]])),
        (
            "packets of 100 bytes at one place",
            of([&[1, many, 1024], &[1, 1, 1, 1], &[100, many], &[&[200][..], &[at; 200]].concat()]),
        ),
        ("fragments", {
            let mut bytes = fragmented(&packets, true);
            let runs: Vec<_> = (0..bytes.len() - 4).filter(|&at| &bytes[at..at + 4] == b"trun").collect();
            for at in runs {
                // No entries for each packet; the default is no bytes.
                bytes[at + 4..at + 12].copy_from_slice(&[0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
            }
            bytes
        }),
    ] {
        let error = info(&bytes).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Corrupt, "{name}");
        let is_counted = error.message.contains("more packets than the file has bytes for");
        // A table of one byte for each packet ends with the file.
        assert!(is_counted || name == "packets of 1 byte", "{name}: {error}");
    }
    // Counts beyond the tables' own bytes: only existing entries count.
    let sizes: Vec<u32> = packets.iter().map(|packet| packet.len() as u32).collect();
    let bytes = of([&[many, 40, 1024], &[many, 1, 40, 1], &[&[0, many][..], &sizes].concat(), &[many, at]]);
    assert_eq!(info(&bytes).unwrap().n_samples, 40 * 1024);
}

/// `iTunSMPB` as iTunes writes it.
fn itunes(priming: u32, padding: u32, length: u64) -> Vec<u8> {
    let text = format!(" 00000000 {priming:08X} {padding:08X} {length:016X} 00000000 00000000");
    let tag = boxed(
        b"----",
        &[
            &boxed(b"mean", &[&[0; 4], b"com.apple.iTunes"]),
            &boxed(b"name", &[&[0; 4], b"iTunSMPB"]),
            &boxed(b"data", &[&[0, 0, 0, 1, 0, 0, 0, 0], text.as_bytes()]),
        ],
    );
    let other =
        boxed(b"----", &[&boxed(b"name", &[&[0; 4], b"iTunNORM"]), &boxed(b"data", &[&[0; 8], b" 0 9 9 9"])]);
    let hdlr = boxed(b"hdlr", &[&[0; 25]]);
    boxed(b"udta", &[&boxed(b"meta", &[&[0; 4], &hdlr, &boxed(b"ilst", &[&other, &tag])])])
}

#[test]
fn itunes_tells_what_the_encoder_added() {
    let packets = packets();
    let full = read_all(&adts(&packets)).unwrap();
    let length = 40 * 1024 - 2112 - 500;
    let tagged = mp4(&LC, &packets, &[], &itunes(2112, 500, length));
    let samples = read_all(&tagged).unwrap();
    assert!(equal(&samples[0], &full[0][2112..2112 + length as usize]));
    // An edit list with the same content takes precedence.
    let edits = boxed(b"edts", &[&table(b"elst", &[1, 0, 1024, 1 << 16])]);
    let edited = mp4(&LC, &packets, &edits, &itunes(2112, 500, length));
    assert!(equal(&read_all(&edited).unwrap()[0], &full[0][1024..]));
    // More than the recording has, or none of it.
    let long = mp4(&LC, &packets, &[], &itunes(2112, 0, u64::MAX));
    assert_eq!(info(&long).unwrap().n_samples, 40 * 1024 - 2112);
    let late = mp4(&LC, &packets, &[], &itunes(u32::MAX, 0, 1000));
    assert_eq!(info(&late).unwrap_err().kind, ErrorKind::Empty);
    compare_spans_of_aac("itunes", &tagged);
}

/// AAC draws new noise for each span, so spans equal slices only up to that noise; equal spans are equal.
fn compare_spans_of_aac(name: &str, bytes: &[u8]) {
    let full = read_all(bytes).unwrap();
    for start in (0..full[0].len() - 3000).step_by(1777) {
        let span = start as u64..start as u64 + 3000;
        let part = spans::read(&mut AudioDecoder::new(), bytes, span.clone()).unwrap();
        assert!(equal(&part[0], &spans::read(&mut AudioDecoder::new(), bytes, span).unwrap()[0]), "{name}");
        let slice = &full[0][start..start + 3000];
        let worst = part[0].iter().zip(slice).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst < 2e-3, "{name}: {start}: {worst}");
    }
}

/// The packet with a fill element of this kind before its end.
fn filled(packet: &[u8], kind: u8, n_bytes: usize) -> Vec<u8> {
    let mut bits: Vec<bool> =
        packet.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1 == 1)).collect();
    // The end of all elements is three ones, then zeros up to the byte.
    let end = bits.iter().rposition(|&bit| bit).unwrap() + 1 - 3;
    assert!(bits[end..end + 3] == [true; 3] && bits.len() - end - 3 < 8);
    bits.truncate(end);
    let mut put = |value: usize, n: usize| bits.extend((0..n).rev().map(|bit| value >> bit & 1 == 1));
    put(6, 3);
    if n_bytes < 15 {
        put(n_bytes, 4);
    } else {
        put(15, 4);
        put(n_bytes - 14, 8);
    }
    put(usize::from(kind), 4);
    for i in 0..n_bytes - 1 {
        put((i * 37) & 255, 8);
    }
    put(9, 4);
    put(7, 3);
    bits.chunks(8)
        .map(|byte| (0..8).fold(0, |sum, i| sum << 1 | u8::from(byte.get(i) == Some(&true))))
        .collect()
}

#[test]
fn he_aac_is_refused_by_name() {
    let packets = packets();
    let refused = |name: &str, bytes: &[u8], what: &str| {
        let error = info(bytes).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unsupported, "{name}: {error}");
        assert!(error.message.contains(what) && error.message.contains("convert it"), "{name}: {error}");
    };
    // In the setup: as the type, and as an extension after that of the core.
    for (setup, what) in [
        (&[0x2a, 0x0a, 0x08, 0x00][..], "HE-AAC (SBR"),
        (&[0xea, 0x0a, 0x08, 0x00], "HE-AAC v2 (SBR and PS"),
        (&[0x12, 0x08, 0x56, 0xe5, 0xa0], "HE-AAC (SBR"),
        (&[0x12, 0x08, 0x56, 0xe5, 0xa5, 0x48, 0x80], "HE-AAC v2 (SBR and PS"),
    ] {
        refused("setup", &mp4(setup, &packets, &[], &[]), what);
    }
    // In the packets alone, with and without padding at the end.
    for (kind, n_bytes) in [(0xd, 9), (0xe, 14), (0xd, 15), (0xd, 60), (0xe, 200)] {
        let with_sbr: Vec<_> = packets.iter().map(|packet| filled(packet, kind, n_bytes)).collect();
        refused("ADTS", &adts(&with_sbr), "HE-AAC (SBR");
        refused("MP4", &mp4(&LC, &with_sbr, &[], &[]), "HE-AAC (SBR");
        let padded: Vec<_> = with_sbr.iter().map(|packet| filled(packet, 0, 4)).collect();
        refused("padded", &adts(&padded), "HE-AAC (SBR");
    }
}

#[test]
fn fill_elements_without_sbr_change_nothing() {
    let packets = packets();
    let expected = read_all(&adts(&packets)).unwrap();
    for (kind, n_bytes) in [(0, 9), (0, 200), (1, 14), (0xb, 5)] {
        let padded: Vec<_> = packets.iter().map(|packet| filled(packet, kind, n_bytes)).collect();
        assert!(equal(&read_all(&adts(&padded)).unwrap()[0], &expected[0]), "{kind} {n_bytes}");
    }
}

#[test]
fn the_last_alac_packet_tells_its_length() {
    let mut kept = AudioDecoder::new();
    // CAF whose packet table counts the last packet in full, as ffmpeg writes it.
    let mut bytes = file("made", "alac16.caf");
    let expected = read_all(&bytes).unwrap();
    let table = bytes.windows(4).position(|four| four == b"pakt").unwrap() + 12;
    assert_eq!(bytes[table + 8..table + 24], [2000, 2096].map(u64::to_be_bytes).concat()[..]);
    bytes[table + 8..table + 24].copy_from_slice(&[4096u64, 0].map(u64::to_be_bytes).concat());
    for (samples, expected) in read_all(&bytes).unwrap().iter().zip(&expected) {
        assert!(equal(samples, expected));
    }
    compare_spans("caf", &bytes, &mut kept, 20);

    // MP4 whose table of times does so.
    let mut bytes = file("made", "alac.m4a");
    let expected = read_all(&bytes).unwrap();
    let times = bytes.windows(4).position(|four| four == b"stts").unwrap();
    bytes[times + 16..times + 20].copy_from_slice(&4096u32.to_be_bytes());
    let edits = bytes.windows(4).position(|four| four == b"edts").unwrap();
    bytes[edits..edits + 4].copy_from_slice(b"free");
    assert!(equal(&read_all(&bytes).unwrap()[1], &expected[1]));
    compare_spans("m4a", &bytes, &mut kept, 20);
}

/// QuickTime has the decoder's setup in a box of its own, and a longer description.
#[test]
fn alac_in_quicktime() {
    let bytes = file("made", "alac.m4a");
    let expected = read_all(&bytes).unwrap();
    let entry = bytes.windows(8).position(|eight| eight == b"\0\0\0\x48alac").unwrap();
    let (head, cookie) = (&bytes[entry + 8..entry + 36], &bytes[entry + 36..entry + 72]);
    let mut head = head.to_vec();
    head[9] = 1;
    let wave = boxed(b"wave", &[&boxed(b"frma", &[b"alac"]), cookie, &[0, 0, 0, 8, 0, 0, 0, 0]]);
    let stsd = boxed(b"stsd", &[&[0; 4], &1u32.to_be_bytes(), &boxed(b"alac", &[&head, &[0; 16], &wave])]);
    let data = &bytes[44..44 + 0x272c];
    let n = data.len() as u32;
    let tables = [
        table(b"stts", &[1, 1, 4096]),
        table(b"stsc", &[1, 1, 1, 1]),
        table(b"stsz", &[n, 1]),
        table(b"stco", &[1, 24]),
    ];
    let quicktime = plain(&[data.to_vec()], &moov(&stsd, &tables, &[], &[]));
    for (samples, expected) in read_all(&quicktime).unwrap().iter().zip(&expected) {
        // The clock of the file made here differs from the rate of the recording.
        let n = samples.len().min(expected.len());
        assert!(n > 800 && equal(&samples[..n], &expected[..n]));
    }
}

#[test]
fn other_codecs_are_named() {
    let packets = packets();
    for (name, what) in [
        (b"ac-3", "AC-3 (`ac-3`)"),
        (b"Opus", "Opus (`Opus`)"),
        (b"samr", "AMR (`samr`)"),
        (b"drms", "encrypted"),
    ] {
        let stsd = boxed(b"stsd", &[&[0; 4], &1u32.to_be_bytes(), &boxed(name, &[&[0; 28]])]);
        let error = info(&plain(&packets, &moov(&stsd, &tables(&packets, DATA_AT), &[], &[]))).unwrap_err();
        assert!(error.kind == ErrorKind::Unsupported && error.message.contains(what), "{error}");
    }
}
