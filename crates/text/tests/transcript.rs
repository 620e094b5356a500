//! Transcripts in Whisper's format: the ids of the `tokenizers` library for the same text with special
//! tokens.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::{fs, path::Path};

use forebay_base::ErrorKind;
use forebay_text::{
    SpecialToken, Tokenizer, TokenizerOptions, TranscriptFormat, TranscriptOptions, TranscriptSegment,
};
use proptest::prelude::*;
use serde_json::{Value, json};

/// The committed tokenizer with the special tokens of Whisper. Those of times are special in the files of
/// some releases, and only added in others.
fn whisper(timestamps_are_special: bool) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/tokens/tokenizer.json");
    let mut json: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let names = ["<|startoftranscript|>", "<|en|>", "<|transcribe|>", "<|notimestamps|>"].map(str::to_owned);
    let times = (0..=1500).map(|step| format!("<|{}.{:02}|>", step / 50, step % 50 * 2));
    let tokens = json["added_tokens"].as_array_mut().unwrap();
    for (id, (name, is_special)) in (1000..).zip(
        names.into_iter().map(|name| (name, true)).chain(times.map(|name| (name, timestamps_are_special))),
    ) {
        tokens
            .push(json!({"id": id, "content": name, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": is_special}));
    }
    serde_json::to_vec(&json).unwrap()
}

fn open(timestamps_are_special: bool) -> Tokenizer {
    let options = TokenizerOptions { bos_id: Some(0), ..TokenizerOptions::default() };
    Tokenizer::new("whisper".into(), &whisper(timestamps_are_special), &options).unwrap()
}

const PREFIX: [SpecialToken<'_>; 3] = [
    SpecialToken::Text("<|startoftranscript|>"),
    SpecialToken::Id(1001),
    SpecialToken::Text("<|transcribe|>"),
];
const SUFFIX: [SpecialToken<'_>; 1] = [SpecialToken::Text("<|endoftext|>")];

fn whole(timestamps: Option<f64>) -> TranscriptOptions<'static> {
    TranscriptOptions { prefix: PREFIX.into(), suffix: SUFFIX.into(), timestamps, dropout: 0.0 }
}

fn segment(start: f64, end: impl Into<Option<f64>>, text: &str) -> TranscriptSegment<'_> {
    TranscriptSegment { start, end: end.into(), text }
}

fn shown(step: u32) -> String {
    format!("<|{}.{:02}|>", step / 50, step % 50 * 2)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn ids_are_those_of_the_text_with_its_special_tokens(
        mut steps in proptest::collection::vec(0u32..=1500, 0..12),
        // Within a step of the nearest token.
        offset in -0.0099f64..0.0099,
        texts in proptest::collection::vec("[ a-zé.,!]{0,20}", 6),
        is_special in any::<bool>(),
        is_open in any::<bool>(),
    ) {
        steps.sort_unstable();
        let bytes = whisper(is_special);
        let library = tokenizers::Tokenizer::from_bytes(&bytes).unwrap();
        let format = TranscriptFormat::new(open(is_special), &whole(Some(0.02))).unwrap();
        let seconds = |step: u32| (f64::from(step) * 0.02 + offset).clamp(0.0, 30.0);
        let mut segments = Vec::new();
        let mut text = "<|startoftranscript|><|en|><|transcribe|>".to_owned();
        let n = steps.len() / 2;
        for (at, pair) in steps.chunks_exact(2).enumerate() {
            let end = (!is_open || at + 1 < n).then(|| seconds(pair[1]));
            segments.push(segment(seconds(pair[0]), end, &texts[at]));
            text += &shown(pair[0]);
            if end.is_some() {
                text += &texts[at];
                text += &shown(pair[1]);
            }
        }
        text += "<|endoftext|>";
        let mut ids = vec![7];
        format.encode_segments(&segments, None, &mut ids).unwrap();
        let expected = library.encode_fast(text, false).unwrap();
        prop_assert_eq!(&ids[1..], expected.get_ids());
    }
}

#[test]
fn a_text_is_between_prefix_and_suffix() {
    let library = tokenizers::Tokenizer::from_bytes(whisper(true)).unwrap();
    let mut options = whole(None);
    options.prefix.push(SpecialToken::Text("<|notimestamps|>"));
    let format = TranscriptFormat::new(open(true), &options).unwrap();
    let mut ids = Vec::new();
    format.encode(" Hello world.", None, &mut ids).unwrap();
    let text = "<|startoftranscript|><|en|><|transcribe|><|notimestamps|> Hello world.<|endoftext|>";
    assert_eq!(ids, library.encode_fast(text, false).unwrap().get_ids());
    // Without timestamps the times of segments are ignored.
    let mut of_segments = Vec::new();
    let segments = [segment(3.0, 2.0, " Hello"), segment(99.0, None, " world.")];
    format.encode_segments(&segments, None, &mut of_segments).unwrap();
    assert_eq!(ids, of_segments);
    // Cut, it keeps its prefix and its suffix.
    let (n, n_special) = (ids.len(), format.n_special());
    assert_eq!(n_special, 5);
    for most in [n_special, n_special + 1, n, n + 1] {
        let mut cut = ids.clone();
        format.cut(&mut cut, most);
        let n_text = most.min(n) - n_special;
        assert_eq!(cut, [&ids[..4 + n_text], &ids[n - 1..]].concat(), "{most}");
    }
}

#[test]
fn merges_are_left_out_by_the_seed() {
    let format =
        TranscriptFormat::new(open(true), &TranscriptOptions { dropout: 0.5, ..whole(None) }).unwrap();
    let encode = |seed| {
        let mut ids = Vec::new();
        format.encode(" there are many words here", seed, &mut ids).unwrap();
        ids
    };
    assert!(format.is_random());
    assert_eq!(encode(Some(1)), encode(Some(1)));
    let n_merged = encode(None).len();
    let found: Vec<_> = (0..16).map(|seed| encode(Some(seed))).collect();
    assert!(found.iter().all(|ids| ids.len() >= n_merged && ids.starts_with(&encode(None)[..3])));
    assert!(found.iter().any(|ids| ids.len() > n_merged));
}

#[test]
fn wrong_times_are_named() {
    let format = TranscriptFormat::new(open(true), &whole(Some(0.02))).unwrap();
    let good = segment(1.0, 2.5, " a");
    for (segments, part) in [
        (
            vec![good, segment(2.0, 3.0, " b")],
            "segment 1 of the transcript begins at 2 s, before segment 0 ends, at 2.50 s",
        ),
        (
            vec![segment(1.0, 0.5, " a")],
            "segment 0 of the transcript ends at 0.5 s, before its start, at 1 s",
        ),
        (
            vec![good, segment(3.0, 30.01, " b")],
            "segment 1 of the transcript has the end 30.01 s, must be 0 to 30 s",
        ),
        (vec![segment(-0.1, 1.0, " a")], "segment 0 of the transcript has the start -0.1 s"),
        (vec![segment(f64::NAN, 1.0, " a")], "has the start NaN s"),
        (vec![segment(1.0, f64::INFINITY, " a")], "has the end inf s"),
        (
            vec![segment(1.0, None, " a"), good],
            "segment 0 of the transcript has no end, expected one for all segments before the last, 1",
        ),
    ] {
        let mut ids = vec![7];
        let error = format.encode_segments(&segments, None, &mut ids).unwrap_err();
        assert_eq!((error.kind, &ids[..]), (ErrorKind::Corrupt, &[7][..]));
        assert!(error.message.contains(part), "{error}");
    }
    // A segment may begin where the last one ends, or a rounding error before it.
    let touching = [good, segment(2.499_999, 30.0, " b")];
    format.encode_segments(&touching, None, &mut Vec::new()).unwrap();
}

#[test]
fn missing_tokens_are_named() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/tokens/tokenizer.json");
    let without = Tokenizer::open(&path, &TokenizerOptions::default()).unwrap();
    let refused = |prefix: &[SpecialToken<'_>], suffix: &[SpecialToken<'_>], step| {
        let (prefix, suffix) = (prefix.to_vec(), suffix.to_vec());
        let options = TranscriptOptions { prefix, suffix, timestamps: step, dropout: 0.0 };
        let error = TranscriptFormat::new(without.clone(), &options).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Config);
        error.message
    };
    assert!(refused(&[], &[], Some(0.02)).contains("has no token \"<|0.00|>\""));
    assert!(
        refused(&PREFIX, &[], None).contains("prefix[0] is \"<|startoftranscript|>\", which is no token of")
    );
    assert!(
        refused(&[], &[SpecialToken::Id(u32::MAX)], None)
            .contains("suffix[0] is 4294967295, must be below 2^31")
    );
    for step in [0.0, -1.0, f64::NAN, 31.0] {
        assert!(refused(&[], &[], Some(step)).contains("must be 0.01 to 30 seconds"));
    }
}
