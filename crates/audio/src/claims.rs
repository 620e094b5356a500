//! Compares a container's declarations, a length and an end, with its bytes.
//!
//! Input: an opened recording and its bytes. Output: what `forebay check` reports in addition to the samples.
//! No sample depends on it: a recording that was cut short decodes to its existing samples, and only its
//! container shows that there were more.
//!
//! | format | declared length | cut short if |
//! |---|---|---|
//! | WAV, Wave64, AU | size of the data; not if it is 0, all ones, or near 2^31 or 2^32, as writers to pipes
//! leave it | it is beyond the end |
//! | AIFF | frames in `COMM` | fewer exist |
//! | SPHERE | `sample_count`; not if it is 0 | fewer exist |
//! | FLAC, also in Ogg | STREAMINFO | fewer exist |
//! | MPEG audio | frames in the Xing, Info or VBRI tag | two or more are missing; without a tag, if the last
//! frame is not whole |
//! | Matroska | | an element reaches beyond the end |
//! | Ogg | | the last page of the recording's last stream is not marked as its end |
//!
//! Source: own.

use crate::{Codec, Info};

/// A container's declarations beyond its samples; see the module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claims {
    /// Samples per channel that the container declares; None if it declares none.
    pub declared: Option<u64>,
    /// A sentence that says how the container contradicts the end of the bytes; None if it agrees.
    pub cut_short: Option<String>,
    /// Other warnings about a recording that decodes, a sentence each.
    pub notices: Vec<String>,
}

impl Claims {
    /// Compares the declared number of samples, if there is one, with the recording's; up to `slack` samples
    /// too many are accepted.
    pub(crate) fn compare(&mut self, info: Info, declared: Option<u64>, slack: u64, who: &str) {
        let Info { n_samples, codec, .. } = info;
        self.declared = declared;
        let Some(declared) = declared else { return };
        if declared > n_samples.saturating_add(slack) {
            self.cut_short = Some(format!("{who} {declared} samples, found {n_samples}"));
        } else if declared < n_samples && codec == Codec::Flac {
            self.notices.push(format!("{who} {declared} samples, the frames hold {n_samples}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AudioDecoder;

    fn of(bytes: &[u8]) -> (u64, Claims) {
        let recording = AudioDecoder::new().open(bytes).unwrap();
        (recording.info().n_samples, recording.claims(bytes))
    }

    #[test]
    fn halves_are_told_from_wholes() {
        let files: [(&str, &[u8]); 10] = [
            ("wav", include_bytes!("../../../tests/data/audio/cpython-audiodata/pluck-pcm16.wav")),
            ("adpcm", include_bytes!("../../../tests/data/audio/made/ima_stereo.wav")),
            ("w64", include_bytes!("../../../tests/data/audio/made/s16.w64")),
            ("rf64", include_bytes!("../../../tests/data/audio/made/s16.rf64")),
            ("aiff", include_bytes!("../../../tests/data/audio/made/s24.aiff")),
            ("au", include_bytes!("../../../tests/data/audio/made/s24.au")),
            ("sphere", include_bytes!("../../../tests/data/audio/made/s16le.sph")),
            ("flac", include_bytes!("../../../tests/data/audio/mewkiz-flac/80574.flac")),
            ("mp3", include_bytes!("../../../tests/data/audio/mpeg/lame_cbr64_44100_mono.mp3")),
            ("ogg", include_bytes!("../../../tests/data/audio/vorbis/perch_16000_mono.ogg")),
        ];
        for (name, bytes) in files {
            let (n_samples, whole) = of(bytes);
            assert_eq!((&whole.cut_short, &whole.notices), (&None, &vec![]), "{name}");
            assert_eq!(whole.declared, (name != "ogg").then_some(n_samples), "{name}");
            let (n_half, half) = of(&bytes[..bytes.len() / 2]);
            assert!(n_half < n_samples, "{name}");
            // It may differ from `fact` by a block of ADPCM.
            if name != "adpcm" {
                assert_eq!(half.declared, whole.declared, "{name}");
            }
            let reason = half.cut_short.unwrap_or_else(|| panic!("{name}"));
            if name != "ogg" {
                assert!(reason.contains(&format!("found {n_half}")), "{name}: {reason}");
            }
        }
    }

    #[test]
    fn what_declares_nothing_is_not_cut() {
        for bytes in [
            &include_bytes!("../../../tests/data/audio/made/size_0.wav")[..],
            include_bytes!("../../../tests/data/audio/made/size_ffffffff.wav"),
            include_bytes!("../../../tests/data/audio/mpeg/mp2_44100_mono.mp2"),
        ] {
            assert_eq!(of(bytes).1, Claims::default());
        }
        let cut = &include_bytes!("../../../tests/data/audio/mpeg/mp2_44100_mono.mp2")[..2000];
        assert!(of(cut).1.cut_short.unwrap().starts_with("the last MPEG audio frame has"));
        // arecord and sox leave such sizes when they write to a pipe.
        let mut piped = include_bytes!("../../../tests/data/audio/made/size_ffffffff.wav").to_vec();
        let at = piped.windows(4).position(|four| four == b"data").unwrap() + 4;
        for size in [0x7fff_f000u32, 0x7fff_ffff, 0x8000_0000] {
            piped[at..at + 4].copy_from_slice(&size.to_le_bytes());
            assert_eq!(of(&piped).1, Claims::default());
        }
    }

    #[test]
    fn frames_of_another_kind_are_noted() {
        let one = include_bytes!("../../../tests/data/audio/mpeg/lame_cbr64_44100_mono.mp3");
        let other = include_bytes!("../../../tests/data/audio/mpeg/mp3_mpeg2_16000_mono.mp3");
        let (n_samples, claims) = of(&[&one[..], other].concat());
        assert_eq!((n_samples, claims.cut_short), (of(one).0, None));
        let [notice] = &claims.notices[..] else { panic!("{:?}", claims.notices) };
        assert!(notice.contains("another layer, rate or number of channels"), "{notice}");
    }

    #[test]
    fn a_total_below_the_frames_is_noted() {
        let bytes = include_bytes!(
            "../../../tests/data/audio/flac-ietf/faulty_05_-_wrong_total_number_of_samples.flac"
        );
        let (n_samples, claims) = of(bytes);
        assert_eq!((n_samples, claims.declared, claims.cut_short), (109_487, Some(39_842), None));
        assert_eq!(claims.notices, ["STREAMINFO declares 39842 samples, the frames hold 109487"]);
    }
}
