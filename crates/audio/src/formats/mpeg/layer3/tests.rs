//! Layer III against its formulas and against symphonia.

use std::{cell::Cell, f64::consts::PI, fs, path::Path};

use symphonia::{
    core::{
        audio::{Audio, GenericAudioBufferRef},
        codecs::audio::{AudioCodecParameters, AudioDecoder, AudioDecoderOptions, well_known::CODEC_ID_MP3},
        packet::PacketRef,
        units::{Duration, Timestamp},
    },
    default::codecs::MpaDecoder,
};

use super::{
    bands::MIXED_LINES,
    codes::*,
    huffman::{GranuleReader, Huffman},
    hybrid::SUBBANDS,
    side::Channel,
    *,
};

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % n
    }

    fn unit(&mut self) -> f32 {
        self.below(1 << 20) as f32 / (1 << 19) as f32 - 1.0
    }
}

/// The tables of codes of pairs, by the last number that selects each.
const BOOKS: [(usize, &[u32]); 15] = [
    (1, &PAIRS_1),
    (2, &PAIRS_2),
    (3, &PAIRS_3),
    (5, &PAIRS_5),
    (6, &PAIRS_6),
    (7, &PAIRS_7),
    (8, &PAIRS_8),
    (9, &PAIRS_9),
    (10, &PAIRS_10),
    (11, &PAIRS_11),
    (12, &PAIRS_12),
    (13, &PAIRS_13),
    (15, &PAIRS_15),
    (23, &PAIRS_16),
    (31, &PAIRS_24),
];

#[test]
fn codes_are_complete_and_read_as_written() {
    let huffman = Huffman::new();
    let mut random = Random(1);
    for (table, codes) in BOOKS {
        let total: u64 = codes.iter().map(|code| 1 << (32 - (code >> 12))).sum();
        assert_eq!(total, 1 << 32, "table {table}");
        let linbits = if table > 15 { usize::from(LINBITS[table - 16]) } else { 0 };
        for round in 0..40 {
            let mut bits = Vec::new();
            let mut put = |value: usize, n: usize| bits.extend((0..n).rev().map(|i| value >> i & 1 == 1));
            let mut expected = [0.0; LINES];
            for pair in expected.as_chunks_mut::<2>().0 {
                let code = random.below(codes.len());
                put((codes[code] & 0xfff) as usize, (codes[code] >> 12) as usize);
                let side = codes.len().isqrt();
                for (value, mut number) in pair.iter_mut().zip([code / side, code % side]) {
                    if number == 15 && linbits > 0 {
                        let more = random.below(1 << linbits);
                        put(more, linbits);
                        number += more;
                    }
                    *value = (number as f64).powf(4.0 / 3.0) as f32;
                    if number > 0 {
                        let is_minus = random.below(2);
                        put(is_minus, 1);
                        *value = if is_minus == 1 { -*value } else { *value };
                    }
                }
            }
            let quads = round % 2;
            let mut channel = Channel {
                n_pairs: LINES / 2,
                tables: [table; 3],
                regions: [36, 100, LINES],
                quads,
                ..Channel::default()
            };
            let bytes: Vec<u8> = bits
                .chunks(8)
                .map(|bits| {
                    bits.iter().enumerate().fold(0, |byte, (i, &bit)| byte | u8::from(bit) << (7 - i))
                })
                .collect();
            let mut lines = [0.0; LINES];
            huffman.read(
                &mut GranuleReader::new(Bits::at(&bytes, 0), bits.len(), &mut channel, &mut lines),
                None,
            );
            assert_eq!(channel.n_lines, LINES);
            for (line, expected) in lines.iter().zip(&expected) {
                assert!(
                    (line - expected).abs() <= 1e-7 * expected.abs(),
                    "table {table}: {line}, {expected}"
                );
            }
        }
    }
}

/// Reads the lines of a granule bit by bit; returns the position behind them and their number.
fn read_plainly(
    bytes: &[u8],
    begin: usize,
    end: usize,
    channel: &Channel,
    lines: &mut [f32; LINES],
) -> (usize, usize) {
    let position = Cell::new(begin);
    let take = |n: usize| {
        let from = position.replace(position.get() + n);
        (from..from + n).fold(0, |value, at| {
            value << 1 | bytes.get(at / 8).map_or(0, |byte| usize::from(byte >> (7 - at % 8) & 1))
        })
    };
    // The number of the code, by the lengths and bits of all.
    let find = |codes: &[u32]| {
        let mut code = 0;
        (1..=19).find_map(|len| {
            code = code << 1 | take(1);
            codes.iter().position(|&other| other == len << 12 | code as u32)
        })
    };
    let signed = |value: usize| {
        let size = (value as f64 * libm::cbrt(value as f64)) as f32;
        if value > 0 && take(1) == 1 { -size } else { size }
    };
    let (mut n, n_paired) = (0, 2 * channel.n_pairs);
    for (region, table) in channel.regions.into_iter().zip(channel.tables) {
        let region = region.min(n_paired);
        if matches!(table, 0 | 4 | 14) {
            lines[n.min(region)..region].fill(0.0);
            n = n.max(region);
            continue;
        }
        let codes = BOOKS.iter().find(|(last, _)| table <= *last).unwrap().1;
        while n < region && position.get() < end {
            let code = find(codes).unwrap();
            let side = codes.len().isqrt();
            for mut value in [code / side, code % side] {
                if value == 15 && table > 15 {
                    value += take(usize::from(LINBITS[table - 16]));
                }
                lines[n] = signed(value);
                n += 1;
            }
        }
    }
    while n <= LINES - 4 && position.get() < end {
        let values = if channel.quads == 0 { find(&QUADS_A).unwrap() } else { 15 - take(4) };
        for bit in [8, 4, 2, 1] {
            lines[n] = signed(usize::from(values & bit > 0));
            n += 1;
        }
    }
    let position = position.get();
    if position > end && n > n_paired {
        n -= 4;
    }
    lines[n..].fill(0.0);
    (position, n)
}

/// Of random bits: one granule, and two in turns, have the lines that are read bit by bit.
#[test]
fn turns_and_blocks_change_nothing() {
    let huffman = Huffman::new();
    let mut random = Random(7);
    for _ in 0..1000 {
        let granules = [(); 2].map(|()| {
            let bytes: Vec<u8> = (0..random.below(500)).map(|_| random.below(256) as u8).collect();
            let mut regions = [(); 2].map(|()| 2 * random.below(LINES / 2));
            regions.sort_unstable();
            let channel = Channel {
                n_pairs: random.below(LINES / 2 + 1),
                tables: [(); 3].map(|()| random.below(32)),
                regions: [regions[0], regions[1], LINES],
                quads: random.below(2),
                ..Channel::default()
            };
            let [begin, end] = [(); 2].map(|()| random.below(8 * bytes.len() + 1));
            (bytes, channel, begin, end)
        });
        let mut found = granules.each_ref().map(|(_, channel, ..)| (channel.clone(), [1.0; LINES]));
        let mut readers =
            granules.iter().zip(&mut found).map(|((bytes, _, begin, end), (channel, lines))| {
                GranuleReader::new(Bits::at(bytes, *begin), *end, channel, lines)
            });
        let (mut one, mut other) = (readers.next().unwrap(), readers.next().unwrap());
        drop(readers);
        huffman.read(&mut one, Some(&mut other));
        let positions = [one.position(), other.position()];
        for (((bytes, channel, begin, end), (found, lines)), position) in
            granules.iter().zip(&found).zip(positions)
        {
            let mut expected = [2.0; LINES];
            let plain = read_plainly(bytes, *begin, *end, channel, &mut expected);
            assert_eq!(((position, found.n_lines), lines), (plain, &expected));
            let (mut channel, mut alone) = (channel.clone(), [3.0; LINES]);
            let mut reader = GranuleReader::new(Bits::at(bytes, *begin), *end, &mut channel, &mut alone);
            huffman.read(&mut reader, None);
            assert_eq!(((reader.position(), channel.n_lines), &alone), (plain, &expected));
        }
    }
}

/// The inverse MDCT of a granule by its formula, windowed: 36 values of each subband.
fn plain_hybrid(channel: &Channel, bands: &Bands, lines: &[f32; LINES]) -> Vec<[f64; 36]> {
    let mut x: Vec<f64> = lines.iter().map(|&line| line.into()).collect();
    let kind = channel.kind();
    // Reordering.
    let old = x.clone();
    let starts: Vec<_> = bands.iter().collect();
    for band in starts[bands.n_long..].chunks(3) {
        let (start, width) = (band[0].0, band[0].1 - band[0].0);
        for (window, line) in (0..3).flat_map(|window| (0..width).map(move |line| (window, line))) {
            x[start + 3 * line + window] = old[start + window * width + line];
        }
    }
    let boundaries = match kind {
        Kind::Long => SUBBANDS - 1,
        Kind::Mixed => 1,
        Kind::Short => 0,
    };
    for boundary in 1..=boundaries {
        for (i, c) in
            [-0.6, -0.535, -0.33, -0.185, -0.095, -0.041, -0.0142, -0.0037_f64].into_iter().enumerate()
        {
            let (below, above) = (x[18 * boundary - 1 - i], x[18 * boundary + i]);
            let root = (1.0 + c * c).sqrt();
            x[18 * boundary - 1 - i] = (below - above * c) / root;
            x[18 * boundary + i] = (above + below * c) / root;
        }
    }
    let imdct = |x: &[f64], i: usize| {
        let n = 2 * x.len();
        let angle = |k: usize| PI / (2 * n) as f64 * ((2 * i + 1 + n / 2) * (2 * k + 1)) as f64;
        x.iter().enumerate().map(|(k, x)| x * angle(k).cos()).sum::<f64>()
    };
    (0..SUBBANDS)
        .map(|subband| {
            let x = &x[18 * subband..][..18];
            let shape = if channel.is_mixed && subband < 2 { 0 } else { channel.shape };
            let mut out = [0.0; 36];
            if shape == 2 {
                for window in 0..3 {
                    let x: Vec<f64> = x.iter().skip(window).step_by(3).copied().collect();
                    for i in 0..12 {
                        out[6 + 6 * window + i] += imdct(&x, i) * hybrid::window(2, i);
                    }
                }
            } else {
                for (i, out) in out.iter_mut().enumerate() {
                    *out = imdct(x, i) * hybrid::window(shape, i);
                }
            }
            out
        })
        .collect()
}

struct Filter<'a> {
    channel: &'a Channel,
    bands: &'a Bands,
    lines: [f32; LINES],
    overlap: &'a mut hybrid::Overlap,
    out: &'a mut [Line],
}

impl Work for Filter<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Lanes>(mut self) {
        let tables = &Tables::get().hybrid;
        hybrid::filter::<V>(tables, self.channel, self.bands, &mut self.lines, self.overlap, self.out);
    }
}

#[test]
fn hybrid_filters_equal_their_formulas() {
    for level in Level::available() {
        for rate in [0, 2, 4] {
            let mut random = Random(3);
            let mut overlap = hybrid::Overlap::new();
            let mut saved = vec![[0.0; 18]; SUBBANDS];
            for round in 0..60 {
                let (shape, is_mixed) = (random.below(4), round % 3 == 0);
                let channel = Channel {
                    shape,
                    is_mixed: is_mixed && shape > 0,
                    n_lines: 2 * random.below(LINES / 2 + 1) * usize::from(round % 7 > 0),
                    ..Channel::default()
                };
                let bands = Bands::new(rate, channel.kind());
                let mut lines = [0.0; LINES];
                lines[..channel.n_lines].fill_with(|| random.unit());
                let mut out = [Line::default(); SLOTS];
                let (overlap, out_rows) = (&mut overlap, &mut out[..]);
                level.run(Filter { channel: &channel, bands: &bands, lines, overlap, out: out_rows });
                for (subband, (values, saved)) in
                    plain_hybrid(&channel, &bands, &lines).iter().zip(&mut saved).enumerate()
                {
                    for slot in 0..SLOTS {
                        let sign = if subband % 2 == 1 && slot % 2 == 1 { -1.0 } else { 1.0 };
                        let expected = sign * (values[slot] + saved[slot]);
                        let found = f64::from(out[slot][subband / 8].0[subband % 8]);
                        assert!(
                            (found - expected).abs() < 5e-6,
                            "{level:?}, round {round}, shape {shape}, subband {subband}: {found}, {expected}"
                        );
                    }
                    saved.copy_from_slice(&values[SLOTS..]);
                }
            }
        }
    }
    assert_eq!(MIXED_LINES, 2 * SLOTS);
}

struct Synthesize<'a> {
    history: &'a mut synthesis::History,
    subbands: &'a [Line; synthesis::MAX_SLOTS],
    n_slots: usize,
    out: &'a mut [f32],
}

impl Work for Synthesize<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Lanes>(self) {
        let tables = &Tables::get().synthesis;
        synthesis::synthesize::<V>(tables, self.history, self.subbands, self.n_slots, self.out);
    }
}

#[test]
fn synthesis_equals_the_flow_chart_of_the_standard() {
    for level in Level::available() {
        let mut random = Random(5);
        let mut history = synthesis::History::new();
        let mut v = vec![0.0; 1024];
        for n_slots in [36, 36, 18, 18, 36, 18] {
            let mut subbands = [Line::default(); synthesis::MAX_SLOTS];
            let values =
                subbands[..n_slots].iter_mut().flat_map(|line| &mut line[..4]).flat_map(|row| &mut row.0);
            values.for_each(|value| *value = random.unit());
            let mut out = vec![0.0; n_slots * SUBBANDS];
            let (history, subbands) = (&mut history, &subbands);
            level.run(Synthesize { history, subbands, n_slots, out: &mut out });
            for (slot, out) in out.chunks(SUBBANDS).enumerate() {
                v.copy_within(..1024 - 64, 64);
                for (i, v) in v[..64].iter_mut().enumerate() {
                    let term = |k: usize| {
                        f64::from(subbands[slot][k / 8].0[k % 8])
                            * (((16 + i) * (2 * k + 1)) as f64 * PI / 64.0).cos()
                    };
                    *v = (0..SUBBANDS).map(term).sum();
                }
                for (j, &found) in out.iter().enumerate() {
                    let term = |i: usize| {
                        let at = i / 2 * 128 + if i % 2 == 1 { 96 } else { 0 } + j;
                        v[at] * f64::from(synthesis::window(j + 32 * i))
                    };
                    let expected: f64 = (0..16).map(term).sum();
                    // All subbands at full scale: the values of the DCT are up to 32.
                    assert!(
                        (f64::from(found) - expected).abs() < 2e-5,
                        "{level:?}, {slot}, {j}: {found}, {expected}"
                    );
                }
            }
        }
    }
}

/// The frames of all test recordings.
fn recordings() -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for folder in ["audio/mpeg", "recordings"] {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("tests/data").join(folder);
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "mp3") {
                found.push((path.display().to_string(), fs::read(&path).unwrap()));
            }
        }
    }
    found.sort();
    assert!(found.len() > 15);
    found
}

fn frames(bytes: &[u8]) -> Vec<(Header, &[u8])> {
    let mut found: Vec<(Header, &[u8])> = Vec::new();
    let mut at = 0;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        at += 1;
        let Some(header) = Header::parse(rest).filter(|header| header.layer == 3 && header.len > 0) else {
            continue;
        };
        let is_first = found.first().is_none_or(|(first, _)| first.is_akin(&header));
        if let Some(frame) = rest.get(..header.len).filter(|_| is_first) {
            found.push((header, frame));
            at += header.len - 1;
        }
    }
    found
}

fn symphonia() -> MpaDecoder {
    let mut parameters = AudioCodecParameters::new();
    parameters.for_codec(CODEC_ID_MP3);
    MpaDecoder::try_new(&parameters, &AudioDecoderOptions::default()).unwrap()
}

/// Whether symphonia departs from the standard in a frame.
fn departs(header: &Header, frame: &[u8]) -> bool {
    let stream = stream(header);
    let mut side = Side::default();
    if side.read(&frame[header.side_offset()..][..header.side_len()], &stream).is_err() {
        return false;
    }
    let is_joint = header.raw[3] >> 6 == 1;
    side.granules.iter().take(stream.granules()).any(|granule| {
        let [first, second] = granule;
        let has_mixed = granule[..stream.channels].iter().any(|it| it.is_mixed);
        has_mixed || stream.has_intensity || is_joint && first.shape != second.shape
    })
}

/// Decodes frames here on every level and with symphonia; returns the number of frames that both take.
fn compare(name: &str, frames: &[(Header, Vec<u8>)], tolerance: f32) -> usize {
    let mut theirs = symphonia();
    let mut ours: Vec<_> = Level::available().into_iter().map(Decoder::new).collect();
    let mut n_sound = 0;
    // Frames until the states agree again.
    let mut ignored = 0;
    // The tolerance is relative to the loudest of the frames that overlap, if that is beyond full scale.
    let mut peaks = [1.0_f32; 3];
    for (i, (header, frame)) in frames.iter().enumerate() {
        let expected = theirs.decode_ref(&PacketRef::new(0, Timestamp::ZERO, Duration::ZERO, frame));
        let [first, others @ ..] = &mut ours[..] else { panic!() };
        let found = first.decode(header, frame);
        for other in others {
            let other = other.decode(header, frame);
            match (&found, &other) {
                (Ok(found), Ok(other)) => {
                    for (a, b) in found.iter().flat_map(|it| *it).zip(other.iter().flat_map(|it| *it)) {
                        assert_eq!(a.to_bits(), b.to_bits(), "{name}, frame {i}");
                    }
                }
                _ => assert_eq!(found.err(), other.err(), "{name}, frame {i}"),
            }
        }
        if departs(header, frame) {
            ignored = 4;
        }
        match (expected, found) {
            (Ok(GenericAudioBufferRef::F32(expected)), Ok(found)) => {
                n_sound += 1;
                peaks.rotate_left(1);
                peaks[2] = (0..usize::from(header.channels))
                    .flat_map(|channel| expected.plane(channel).unwrap())
                    .fold(1.0, |peak, x| peak.max(x.abs()));
                let peak = peaks.into_iter().fold(1.0, f32::max);
                for (channel, found) in (0..usize::from(header.channels)).zip(found) {
                    let expected = expected.plane(channel).unwrap();
                    assert_eq!(expected.len(), found.len());
                    for (a, b) in expected.iter().zip(found).filter(|_| ignored == 0) {
                        assert!(
                            (a - b).abs() <= tolerance * peak,
                            "{name}, frame {i}: {a}, {b}, peak {peak}"
                        );
                    }
                }
                ignored = usize::saturating_sub(ignored, 1);
            }
            (expected, found) => {
                assert!(
                    expected.is_err() == found.is_err() || ignored > 0,
                    "{name}, frame {i}: {:?}, {:?}",
                    expected.err(),
                    found.err()
                );
                theirs = symphonia();
                ours.iter_mut().for_each(|decoder| decoder.reset(false));
                ignored = 0;
            }
        }
    }
    n_sound
}

#[test]
fn sound_recordings_equal_symphonias() {
    for (name, bytes) in recordings() {
        let frames: Vec<_> =
            frames(&bytes).into_iter().map(|(header, frame)| (header, frame.to_vec())).collect();
        assert!(compare(&name, &frames, 1e-6) > 10 || frames.len() < 10, "{name}");
    }
}

#[test]
fn damaged_recordings_equal_symphonias() {
    let mut random = Random(7);
    for (name, bytes) in recordings() {
        for round in 0..6 {
            let mut frames: Vec<_> =
                frames(&bytes).into_iter().take(60).map(|(header, frame)| (header, frame.to_vec())).collect();
            // A fresh start in the middle, too.
            frames.drain(..random.below(frames.len() / 2 + 1));
            for (header, frame) in &mut frames {
                // Flips in the side information are the harder ones.
                let from = header.side_offset();
                for _ in 0..random.below(2 + round) {
                    let end = if random.below(2) == 0 { from + header.side_len() } else { frame.len() };
                    let bit = 8 * from + random.below(8 * (end - from));
                    frame[bit / 8] ^= 1 << (bit % 8);
                }
            }
            // Damaged frames have loud lines in all subbands, so that rounding in the DCT of either decoder
            // exceeds 1e-6 of the samples' peak.
            compare(&format!("{name}, round {round}"), &frames, 1e-5);
        }
    }
}

#[test]
fn a_reset_decoder_is_like_a_new_one() {
    let (_, bytes) = recordings().remove(0);
    let frames = frames(&bytes);
    let mut used = Decoder::new(Level::detect());
    for (header, frame) in &frames {
        let _ = used.decode(header, frame);
    }
    used.reset(false);
    let mut new = Decoder::new(Level::detect());
    for (header, frame) in &frames {
        let channels = usize::from(header.channels);
        assert_eq!(
            used.decode(header, frame).unwrap()[..channels],
            new.decode(header, frame).unwrap()[..channels]
        );
    }
}
