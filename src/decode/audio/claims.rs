//! What a container says that its bytes do not keep: a length, an end.
//!
//! In go an opened recording and its bytes, out comes what `forebay check` tells beside the samples. Nothing here changes a sample:
//! a recording that was cut short decodes to what is there, and only its container knows that there was more.
//!
//! | format | declared length | cut short if |
//! |---|---|---|
//! | WAV, Wave64, AU | size of the data; not if it is 0, all ones, or near 2^31 or 2^32, as writers to pipes leave it | it is beyond the end |
//! | AIFF | frames in `COMM` | fewer are there |
//! | FLAC, also in Ogg | STREAMINFO | fewer are there |
//! | MPEG audio | frames in the Xing, Info or VBRI tag | two or more are missing; without a tag, if the last frame is not whole |
//! | Ogg | | the last page of the recording's last stream is not marked as its end |
//!
//! Source: own.

use super::{Codec, Info, Recording, ogg::Pages};

/// What a container says beyond the samples that it holds; see the module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claims {
    /// Samples per channel that the container says; None if it does not.
    pub declared: Option<u64>,
    /// How the container contradicts the end of the bytes, in a sentence; None if it does not.
    pub cut_short: Option<String>,
    /// What else there is to say of a recording that decodes, a sentence each.
    pub notices: Vec<String>,
}

/// What the container of `recording` says, whose bytes are `bytes`.
pub(super) fn claims(recording: &Recording<'_>, bytes: &[u8]) -> Claims {
    let Info { n_samples, codec, .. } = recording.info();
    let mut claims = Claims::default();
    // Some writers of tags count the frame that holds the tag.
    let mut slack = 0;
    let who = match recording {
        Recording::Pcm(it) => {
            claims.declared = it.declared();
            "the header says"
        }
        Recording::Flac(it) => {
            claims.declared = it.declared();
            "STREAMINFO says"
        }
        Recording::Mpeg(it) => {
            claims.declared = it.declared();
            slack = it.frame_samples();
            if let (None, Some((there, said))) = (claims.declared, it.cut_frame()) {
                claims.cut_short = Some(format!("the last MPEG audio frame has {there} of its {said} bytes"));
            }
            "the Xing, Info or VBRI tag says"
        }
        Recording::Vorbis(_) | Recording::Demuxed(_) => "the container says",
    };
    if let Some(declared) = claims.declared {
        if declared > n_samples.saturating_add(slack) {
            claims.cut_short = Some(format!("{who} {declared} samples, {n_samples} are there"));
        } else if declared < n_samples && codec == Codec::Flac {
            claims.notices.push(format!("{who} {declared} samples, the frames hold {n_samples}"));
        }
    }
    if claims.cut_short.is_none() && bytes.starts_with(b"OggS") && !ends_stream(bytes) {
        claims.cut_short =
            Some("the last Ogg page of the recording is not marked as the end of its stream".into());
    }
    claims
}

/// Whether the last page of the last stream of sound in an Ogg file is marked as its end.
fn ends_stream(bytes: &[u8]) -> bool {
    let (mut serial, mut has_ended) = (None, false);
    for page in Pages::new(bytes) {
        let begins =
            || [&b"\x01vorbis"[..], b"\x7fFLAC"].iter().any(|magic| page.body(bytes).starts_with(magic));
        if page.begins_stream() && begins() {
            serial = Some(page.serial);
        }
        if serial == Some(page.serial) {
            has_ended = page.ends_stream();
        }
    }
    has_ended
}
