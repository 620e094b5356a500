//! Shared by the tests of span decoding: files, libsndfile's samples, and the comparison of spans with the
//! full decode.

// Each test crate uses a part of it; a failing helper is a failing test.
#![allow(dead_code, clippy::unwrap_used)]

pub mod pages;

use std::{fs, ops::Range, path::PathBuf};

use forebay_audio::{AudioDecoder, Info, Planes};
use forebay_base::{ErrorKind, Result};
use rand::{RngExt, SeedableRng, rngs::SmallRng};

/// Largest difference from libsndfile's samples. Its decoders round differently, by 1e-6 in these files; the
/// bound is the same as for all lossy codecs.
const TOLERANCE: f32 = 2e-3;

pub fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/audio").join(name)
}

pub fn file(folder_name: &str, name: &str) -> Vec<u8> {
    fs::read(folder(folder_name).join(name)).unwrap()
}

/// All recordings of a folder, by name.
pub fn files(folder_name: &str) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(folder(folder_name))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension != "txt"))
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read(&path).unwrap()))
        .collect();
    files.sort();
    files
}

pub fn info(bytes: &[u8]) -> Result<Info> {
    AudioDecoder::new().open(bytes).map(|recording| recording.info())
}

/// The samples of `span`, channel by channel.
pub fn read(decoder: &mut AudioDecoder, bytes: &[u8], span: Range<u64>) -> Result<Vec<Vec<f32>>> {
    let recording = decoder.open(bytes)?;
    let mut out = Planes::new();
    decoder.read(&recording, span.clone(), &mut out)?;
    assert_eq!((out.len() as u64, out.channels()), (span.end - span.start, recording.info().channels));
    Ok((0..usize::from(out.channels())).map(|channel| out.channel(channel).to_vec()).collect())
}

/// The samples of `span` of the mean of the channels.
pub fn read_mean(decoder: &mut AudioDecoder, bytes: &[u8], span: Range<u64>) -> Result<Vec<f32>> {
    let recording = decoder.open(bytes)?;
    let mut out = Planes::new();
    out.take_mean(true);
    decoder.read(&recording, span, &mut out)?;
    let mut mono = Vec::new();
    Ok(out.mean(0..out.len(), &mut mono)?.to_vec())
}

/// All samples.
pub fn read_all(bytes: &[u8]) -> Result<Vec<Vec<f32>>> {
    read(&mut AudioDecoder::new(), bytes, 0..info(bytes)?.n_samples)
}

/// Whether all bits are equal.
pub fn equal(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
}

/// Compares lengths and samples with the folder's `expected.txt`; returns the number of files in it.
pub fn compare_with_libsndfile(folder_name: &str) -> usize {
    let expected = fs::read_to_string(folder(folder_name).join("expected.txt")).unwrap();
    for line in expected.lines() {
        let (name, numbers) = line.split_once(' ').unwrap();
        let mut numbers = numbers.split(' ').map(|number| number.parse::<i64>().unwrap());
        let mut number = || numbers.next().unwrap();
        let (sample_rate, channels, n_samples, stride) = (number(), number(), number(), number());
        let bytes = file(folder_name, name);
        let info = info(&bytes).unwrap();
        let told = (i64::from(info.sample_rate), i64::from(info.channels), info.n_samples as i64);
        assert_eq!(told, (sample_rate, channels, n_samples), "{name}");
        for (channel, samples) in read_all(&bytes).unwrap().iter().enumerate() {
            for (i, &sample) in samples.iter().step_by(stride as usize).enumerate() {
                let expected = number() as f32 / 1e6;
                let at = i * stride as usize;
                assert!((sample - expected).abs() <= TOLERANCE, "{name}, channel {channel}, sample {at}");
            }
        }
        assert!(numbers.next().is_none(), "{name}");
    }
    expected.lines().count()
}

/// Compares `n` spans of `bytes`, and of the mean of its channels, with the slice of its full decode: the
/// ends, single samples, and random ones. A new decoder reads every fourth span, `kept` the others. The mean
/// is that of the channels, but for rounding.
pub fn compare_spans(name: &str, bytes: &[u8], kept: &mut AudioDecoder, n: u64) {
    let full = read_all(bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
    let end = full[0].len() as u64;
    let mean = read_mean(kept, bytes, 0..end).unwrap();
    for (i, mean) in mean.iter().enumerate() {
        let expected = full.iter().map(|channel| f64::from(channel[i])).sum::<f64>() / full.len() as f64;
        assert!((f64::from(*mean) - expected).abs() < 1e-6, "{name} {i}: {mean} {expected}");
    }
    let mut random = SmallRng::seed_from_u64(end);
    for i in 0..n {
        let span = match i {
            0 => 0..end.min(1000),
            1 => end.saturating_sub(1000)..end,
            2 => 0..1,
            3 => end - 1..end,
            4 => 0..0,
            _ => {
                let start = random.random_range(0..end);
                let longest = if i % 2 == 0 { 3000 } else { end };
                start..(start + random.random_range(1..=longest)).min(end)
            }
        };
        let new = &mut AudioDecoder::new();
        let decoder = if i % 4 == 3 { new } else { &mut *kept };
        let part =
            read(decoder, bytes, span.clone()).unwrap_or_else(|error| panic!("{name} {span:?}: {error}"));
        for (part, full) in part.iter().zip(&full) {
            assert!(equal(part, &full[span.start as usize..span.end as usize]), "{name} {span:?}");
        }
        let part = read_mean(decoder, bytes, span.clone()).unwrap();
        assert!(equal(&part, &mean[span.start as usize..span.end as usize]), "the mean of {name} {span:?}");
    }
    for span in [0..end + 1, end + 1..end + 2, u64::MAX - 1..u64::MAX] {
        assert_eq!(read(kept, bytes, span).unwrap_err().kind, ErrorKind::Shape, "{name}");
    }
}

/// A way to damage a recording: the kind, the place in 1/65536 of the length, and a number.
pub type Damage = (u8, u16, u16);

pub fn damage(bytes: &mut Vec<u8>, steps: &[Damage]) {
    for &(kind, place, number) in steps {
        if bytes.is_empty() {
            return;
        }
        // Damage in headers has the most effects.
        let reach = if kind & 1 == 0 { bytes.len() } else { bytes.len().min(5000) };
        let at = reach * usize::from(place) / 65536;
        match kind >> 1 {
            0 => bytes[at] ^= 1 << (number % 8),
            1 => bytes[at] = number as u8,
            2 => bytes.truncate(at),
            3 => drop(bytes.drain(at..(at + usize::from(number % 2048)).min(bytes.len()))),
            4 => drop(bytes.splice(at..at, number.to_le_bytes().repeat(1 + usize::from(number % 64)))),
            _ => bytes[at..].iter_mut().take(4).for_each(|byte| *byte = 0xff),
        }
    }
}

/// Opens and reads a damaged recording: each error is of a kind that makes a record bad, and spans equal the
/// full decode.
pub fn survive(bytes: &[u8], kept: &mut AudioDecoder, place: u16) {
    let recording = match kept.open(bytes) {
        Ok(recording) => recording,
        Err(error) => return assert!(error.kind.is_record() || error.kind == ErrorKind::Empty, "{error:?}"),
    };
    let end = recording.info().n_samples;
    assert!(end <= 2000 * bytes.len() as u64, "{end} samples in {} bytes", bytes.len());
    let mut full = Planes::new();
    let result = AudioDecoder::new().read(&recording, 0..end, &mut full);
    let start = end * u64::from(place) / 65536;
    let span = start..(start + 2000).min(end);
    let mut part = Planes::new();
    let result_of_part = kept.read(&recording, span.clone(), &mut part);
    let mut mean = Planes::new();
    mean.take_mean(true);
    let result_of_mean = kept.read(&recording, span.clone(), &mut mean);
    let kind = |result: &Result<()>| result.as_ref().map_err(|error| error.kind).err();
    // Not if only the sum of the channels is finite, or beyond the limit.
    if kind(&result_of_part) != Some(ErrorKind::NonFinite) {
        assert_eq!(kind(&result_of_mean), kind(&result_of_part), "{span:?}");
    }
    match (result, result_of_part) {
        (Ok(()), Ok(())) => {
            for channel in 0..usize::from(full.channels()) {
                let full = &full.channel(channel)[span.start as usize..span.end as usize];
                assert!(equal(part.channel(channel), full), "{span:?}");
            }
        }
        (Ok(()), Err(error)) => panic!("the whole can be decoded, but not {span:?}: {error}"),
        (Err(error), _) => assert!(error.kind.is_record(), "{error:?}"),
    }
}
