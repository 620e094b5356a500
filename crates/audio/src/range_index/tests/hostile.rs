//! Damaged recordings, files that misbehave, and damaged index files.

use super::*;

#[test]
fn damaged_sidecars_with_a_right_checksum_do_no_harm() {
    let mut rng = Rng(9);
    for (_, bytes) in of_each_kind() {
        let io = Counted::new(bytes);
        let encoded = RangeIndex::open_by(&mut AudioDecoder::new(), &io, SMALL).unwrap().to_bytes();
        for _ in 0..300 {
            let mut damaged = encoded.clone();
            for _ in 0..1 + rng.below(3) {
                let at = rng.below(damaged.len() as u64) as usize;
                damaged[at] = [0, 1, 0x7f, 0xff, rng.below(256) as u8][rng.below(5) as usize];
            }
            crate::fuzz::range_index(&damaged);
        }
    }
}

/// A file that misbehaves: reads are short, long, refused, or have other bytes than before.
struct Hostile {
    bytes: Vec<u8>,
    mode: u64,
    rng: std::cell::RefCell<Rng>,
    left: std::cell::Cell<u64>,
}

impl ReadAt for Hostile {
    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read(&self, range: Range<u64>) -> Result<Bytes> {
        let left = self.left.get().checked_sub(1);
        self.left.set(left.expect("a bounded number of reads"));
        let mut bytes = self.bytes[range.start as usize..range.end as usize].to_vec();
        let mut rng = self.rng.borrow_mut();
        match self.mode {
            0 => bytes.truncate(rng.below(bytes.len() as u64 + 1) as usize),
            1 => bytes.push(0),
            2 if rng.below(3) == 0 => return Err(Error::new(ErrorKind::Io, "no")),
            3 => {
                for _ in 0..1 + bytes.len() / 2000 {
                    let at = rng.below(bytes.len() as u64) as usize;
                    bytes[at] = rng.below(256) as u8;
                }
            }
            4 => {
                let n = bytes.len();
                bytes.rotate_left(rng.below(n as u64) as usize);
            }
            5 => bytes.fill(0),
            _ => {}
        }
        Ok(bytes.into())
    }
}

#[test]
fn hostile_files_are_errors_after_a_bounded_number_of_reads() {
    let mut decoder = AudioDecoder::new();
    let mut out = Planes::new();
    for (name, bytes) in of_each_kind() {
        let good = Counted::new(bytes.clone());
        let index = Arc::new(RangeIndex::open_by(&mut decoder, &good, SMALL).unwrap());
        let n = index.info().n_samples;
        let mut errors = 0;
        for trial in 0..120 {
            let io = Hostile {
                bytes: bytes.clone(),
                mode: trial % 6,
                rng: Rng(trial).into(),
                left: (200 + bytes.len() as u64 / 1000).into(),
            };
            let _ = RangeIndex::open_by(&mut decoder, &io, SMALL);
            io.left.set(100);
            let span = io.rng.borrow_mut().span(n);
            let read = index
                .span_bytes(&mut decoder, &io, span.clone())
                .and_then(|part| decoder.read_span(&part, span.clone(), &mut out));
            errors += u32::from(read.is_err());
        }
        assert!(errors > 40, "{name}: {errors}");
        // What a hostile file left in the index does not change what a good one gives, or is an error.
        let recording = AudioDecoder::new().open(&bytes).unwrap();
        let mut want = Planes::new();
        let mut rng = Rng(11);
        for _ in 0..40 {
            let span = rng.span(n);
            decoder.read(&recording, span.clone(), &mut want).unwrap();
            let part = index.span_bytes(&mut decoder, &good, span.clone());
            if part.and_then(|part| decoder.read_span(&part, span.clone(), &mut out)).is_ok() {
                assert!(bits(&want) == bits(&out), "{name}: {span:?}");
            }
        }
    }
}

/// One damage of a copy of a recording.
fn damage(bytes: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut out = bytes.to_vec();
    let n = out.len() as u64;
    let at = (n / 8 + rng.below(n * 7 / 8)) as usize;
    let len = (1 + rng.below(3000)) as usize;
    let end = (at + len).min(out.len());
    match rng.below(5) {
        0 => out[at..end].fill(0),
        1 => drop(out.drain(at..end)),
        2 => {
            for _ in 0..8 {
                let at = at + rng.below((end - at) as u64) as usize;
                out[at] ^= 1 << rng.below(8);
            }
        }
        3 => {
            let more: Vec<u8> = (0..len).map(|_| rng.below(256) as u8).collect();
            out.splice(at..at, more);
        }
        _ => {
            let again = out[at..end].to_vec();
            out.splice(at..at, again);
        }
    }
    out
}

/// MPEG audio in a WAV file.
fn in_wav(mpeg: &[u8]) -> Vec<u8> {
    let long = |n: usize| (n as u32).to_le_bytes();
    let format = [0x55, 0, 2, 0, 0x44, 0xac, 0, 0, 0x80, 0x3e, 0, 0, 1, 0, 0, 0, 0, 0];
    let parts: [&[u8]; 8] = [
        b"RIFF",
        &long(38 + mpeg.len()),
        b"WAVEfmt ",
        &long(format.len()),
        &format,
        b"data",
        &long(mpeg.len()),
        mpeg,
    ];
    parts.concat()
}

/// Damaged recordings mean the same in memory and on disk, whether damage is an error or silence.
#[test]
fn damage_means_the_same_on_disk() {
    let mut kinds = std::collections::BTreeMap::<String, u32>::new();
    for name in [
        "mpeg/mp3_cbr128_32000_stereo.mp3",
        "mpeg/mp3_vbr9_44100_stereo.mp3",
        "mpeg/lame_cbr64_44100_mono.mp3",
        "mpeg/mp2_44100_mono.mp2",
        "vorbis/perch_16000_mono.ogg",
        "vorbis/stereo_44100.ogg",
        "vorbis/vorbis_chained_same_32000.ogg",
        "mewkiz-flac/80574.flac",
        "codec-ladder/flac_len_801.flac",
        "codec-ladder/aac_adts_44100_mono.aac",
        "made/no_noise_stereo.m4a",
        "players/alac_plain.m4a",
        "opus/celt_60ms_mono.opus",
        "opus/switching_stereo.opus",
        "opus/silk_dtx_mono.opus",
    ] {
        let mut rng = Rng(5);
        for i in 0..60 {
            let mut bytes = data(name);
            if name.starts_with("mpeg/mp3_cbr") {
                bytes = repeated_frames(&bytes, 800, Some(800));
            }
            let mut bytes = damage(&bytes, &mut rng);
            // Every third one after tags.
            if i % 3 == 0 {
                bytes.splice(0..0, [&b"ID3\x04\0\0\0\0\0\x21"[..], &[0; 33]].concat());
            } else if name.starts_with("mpeg/mp3") && i % 3 == 1 {
                bytes = in_wav(&bytes);
            }
            let sizes = if i % 2 == 0 { SMALL } else { ReadSizes { whole: 0, ..ReadSizes::USUAL } };
            assert_equal_by(Damage::ERROR, &format!("{name} {i}, error"), &bytes, sizes, 40);
            let kind = assert_equal_by(Damage::ALL, &format!("{name} {i}, silence"), &bytes, sizes, 40);
            *kinds.entry(kind.to_owned()).or_default() += 1;
        }
    }
    let all = ["mpeg", "vorbis", "flac", "packets", "boxed"];
    assert!(all.iter().all(|&kind| kinds[kind] > 40), "{kinds:?}");
}
