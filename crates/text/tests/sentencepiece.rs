//! SentencePiece models: the ids of the library `sentencepiece`, damaged files, dropout.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::{fs, path::Path, thread};

use forebay_base::ErrorKind;
use forebay_text::{SpecialIds, Tokenizer, TokenizerOptions};
use proptest::prelude::*;
use serde_json::{Value, json};

const MODELS: [&str; 3] = ["unigram", "bpe", "suffix"];

fn bytes(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/tokens");
    fs::read(folder.join(name)).unwrap()
}

fn open_bytes(bytes: &[u8]) -> forebay_base::Result<Tokenizer> {
    Tokenizer::new("made".into(), bytes, &TokenizerOptions::default())
}

fn open(name: &str) -> Tokenizer {
    open_bytes(&bytes(&format!("{name}.model"))).unwrap()
}

fn golden(name: &str) -> Value {
    serde_json::from_slice::<Value>(&bytes("sentencepiece.json")).unwrap()[name].take()
}

fn encode(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    let mut ids = Vec::new();
    tokenizer.encode_ordinary(text, &mut ids).unwrap();
    ids
}

fn dropped(tokenizer: &Tokenizer, text: &str, p: f64, seed: u64) -> Vec<u32> {
    let mut ids = Vec::new();
    tokenizer.encode_with_dropout(text, tokenizer.dropout(p).unwrap(), seed, &mut ids).unwrap();
    ids
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

fn message(field: u64, bytes: &[u8]) -> Vec<u8> {
    [varint(field << 3 | 2), varint(bytes.len() as u64), bytes.to_vec()].concat()
}

fn number(field: u64, value: u64) -> Vec<u8> {
    [varint(field << 3), varint(value)].concat()
}

/// A model of pieces, scores and types; `trainer` and `normalizer` are the fields of these messages.
fn model(pieces: &[(&str, f32, u64)], trainer: &[u8], normalizer: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for &(text, score, kind) in pieces {
        let score = [&varint(2 << 3 | 5)[..], &score.to_le_bytes()].concat();
        bytes.extend(message(1, &[message(1, text.as_bytes()), score, number(3, kind)].concat()));
    }
    bytes.extend(message(2, trainer));
    bytes.extend(message(3, normalizer));
    bytes
}

/// No space before a text, and none removed.
fn plain() -> Vec<u8> {
    [number(3, 0), number(4, 0)].concat()
}

#[test]
fn ids_and_texts_are_those_of_the_library() {
    for name in MODELS {
        let (tokenizer, golden) = (open(name), golden(name));
        let mut encoder = tokenizer.encoder();
        // The second time, words come from the cache.
        for _ in 0..2 {
            for case in golden["texts"].as_array().unwrap() {
                let text = case["text"].as_str().unwrap();
                let mut ids = Vec::new();
                encoder.encode_ordinary(text, &mut ids).unwrap();
                assert_eq!(json!(ids), case["ids"], "{name} on {text:?}");
                assert_eq!(tokenizer.decode(&ids).unwrap(), case["decoded"], "{name} of {text:?}");
            }
        }
        for case in golden["ids"].as_array().unwrap() {
            let ids: Vec<u32> = serde_json::from_value(case["ids"].clone()).unwrap();
            assert_eq!(tokenizer.decode(&ids).unwrap(), case["decoded"], "{name} of {ids:?}");
        }
    }
}

#[test]
fn properties_come_from_the_model() {
    for name in MODELS {
        let (tokenizer, golden) = (open(name), golden(name));
        assert_eq!(json!(tokenizer.n_vocab()), golden["n_vocab"]);
        let SpecialIds { unknown, bos, eos, pad } = tokenizer.special_ids().unwrap();
        let shown = |id: Option<u32>| id.map_or(-1, i64::from);
        assert_eq!(json!([unknown, bos, eos, pad].map(shown)), golden["special"]);
        assert_eq!(tokenizer.bos_id(), bos);
        assert_eq!(tokenizer.eos_id(), None);
        assert_eq!(tokenizer.token_to_id("<unk>"), Some(0));
        assert_eq!(tokenizer.token_to_id("no piece"), None);
        let sep = tokenizer.token_to_id("<sep>");
        assert_eq!(sep, (name != "suffix").then_some(4));
    }
    let without = open("suffix");
    let error = without.document_bos_id().unwrap_err();
    assert_eq!(error.kind, ErrorKind::Config);
    assert!(error.message.contains("the SentencePiece model has no BOS piece; pass bos_id="), "{error}");
    let options = TokenizerOptions { bos_id: Some(9), eos_id: Some(300), ..TokenizerOptions::default() };
    let with = Tokenizer::new("made".into(), &bytes("suffix.model"), &options).unwrap();
    assert_eq!((with.document_bos_id().unwrap(), with.eos_id(), with.n_vocab()), (9, Some(300), 301));
    assert_ne!(with.fingerprint(), without.fingerprint());
    assert!(with.id_warning().unwrap().contains("eos_id is 300"));
    let options = TokenizerOptions { pattern: Some(".".into()), ..TokenizerOptions::default() };
    let error = Tokenizer::new("made".into(), &bytes("bpe.model"), &options).unwrap_err();
    assert!(error.message.starts_with("a SentencePiece model contains its rules"), "{error}");
    let error = without.decode(&[3, 250]).unwrap_err();
    assert!(error.message.contains("ids[1] is 250, which is no token; the ids are below 250"), "{error}");
}

#[test]
fn special_pieces_in_text_are_text() {
    for name in MODELS {
        let tokenizer = open(name);
        for text in ["<s>", "</s>", "<ctl>", "<unk>", "<0x41>"] {
            let ids = encode(&tokenizer, text);
            let special = tokenizer.token_to_id(text).unwrap_or(u32::MAX);
            assert!(ids.len() > 1 && (special == 0 || !ids.contains(&special)), "{name}: {text} is {ids:?}");
        }
    }
}

#[test]
fn models_of_words_and_of_characters() {
    let pieces = [
        ("<unk>", 0.0, 2),
        ("\u{2581}a", 0.0, 1),
        ("\u{2581}b", 0.0, 1),
        ("a", 0.0, 1),
        ("bb", 0.0, 4),
        ("\u{2581}", 0.0, 1),
    ];
    let words = open_bytes(&model(&pieces, &number(3, 3), &[])).unwrap();
    assert_eq!(encode(&words, "a b  c d a"), [1, 2, 0, 1]);
    let characters = open_bytes(&model(&pieces, &number(3, 4), &[])).unwrap();
    assert_eq!(encode(&characters, "abbxy a"), [5, 3, 4, 0, 5, 3]);
}

/// Sums are 32-bit floats, as in the library: in 64 bits "ab", "c" would be larger.
#[test]
fn equal_sums_take_the_path_that_begins_first() {
    let pieces = [
        ("<unk>", 0.0, 2),
        ("a", -1.0, 1),
        ("b", -1.0, 1),
        ("c", -1.0, 1),
        ("bc", -2.0, 1),
        ("ab", -2.0, 1),
        ("abc", -3.0, 1),
    ];
    let tokenizer = open_bytes(&model(&pieces, &number(3, 1), &plain())).unwrap();
    assert_eq!(encode(&tokenizer, "abc"), [6]);
    assert_eq!(encode(&tokenizer, "bc"), [4]);
    // User-defined pieces win against any path of negative scores.
    let pieces = [("<unk>", 0.0, 2), ("a", -0.01, 1), ("b", -0.01, 1), ("ab", -9.0, 4)];
    let tokenizer = open_bytes(&model(&pieces, &number(3, 1), &plain())).unwrap();
    assert_eq!(encode(&tokenizer, "aabb"), [1, 3, 2]);
}

#[test]
fn damaged_models_are_refused() {
    let unk = ("<unk>", 0.0, 2);
    let bpe = number(3, 2);
    let fallback = [bpe.clone(), number(35, 1)].concat();
    let map = |bytes: &[u8]| message(2, bytes);
    for (bytes, part) in [
        (
            model(&[("a", 0.0, 1)], &bpe, &[]),
            "none of the 1 pieces of the SentencePiece model has the type UNKNOWN",
        ),
        (
            model(&[unk, ("a", 0.0, 2)], &bpe, &[]),
            "the pieces \"<unk>\" and \"a\" of the SentencePiece model have the type UNKNOWN",
        ),
        (model(&[unk, ("a", 0.0, 1), ("a", 1.0, 4)], &bpe, &[]), "has the piece \"a\" twice"),
        (model(&[unk], &number(3, 5), &[]), "has model_type 5, expected 1 (unigram)"),
        (model(&[unk], &fallback, &[]), "byte_fallback, but no piece <0x00>"),
        (model(&[unk, ("<0x41>", 0.0, 6)], &bpe, &[]), "of type BYTE, but no byte_fallback"),
        (
            model(&[unk, ("<0x4g>", 0.0, 6)], &fallback, &[]),
            "\"<0x4g>\" of the SentencePiece model has the type BYTE, expected",
        ),
        (
            model(&[unk, ("a", 0.0, 1), ("b", 0.0, 1), ("ab", 0.0, 5)], &bpe, &[]),
            "has the piece \"ab\" (id 3) of type UNUSED, into which other pieces can be merged",
        ),
        (model(&[unk], &bpe, &map(b"abc")), "precompiled_charsmap) has 3 bytes"),
        (model(&[unk, ("a", f32::NAN, 1)], &bpe, &[]), "has the score NaN"),
    ] {
        let error = open_bytes(&bytes).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Format);
        assert!(error.message.contains(part), "{error}");
    }
    // Cut anywhere after the first piece.
    let whole = bytes("bpe.model");
    for len in (40..whole.len()).step_by(7) {
        if let Err(error) = open_bytes(&whole[..len]) {
            assert_eq!(error.kind, ErrorKind::Format, "{len}: {error}");
        }
    }
    // An UNUSED piece that nothing is merged into.
    assert!(open_bytes(&model(&[unk, ("b", 0.0, 1), ("<unused>", 0.0, 5)], &bpe, &[])).is_ok());
}

#[test]
fn long_texts_without_a_boundary_take_bounded_time() {
    for name in MODELS {
        let tokenizer = open(name);
        for piece in ["a", "the", "字", "\u{2581}", "e\u{301}", "<sep>", " ", "x1"] {
            let text = piece.repeat((1 << 18) / piece.len());
            let ids = encode(&tokenizer, &text);
            assert!(ids.len() <= text.len() + 3);
            assert_eq!(ids, encode(&tokenizer, &text));
        }
    }
}

proptest! {
    /// No crash, ids below the size of the vocabulary, and the same with a cold and a warm cache.
    #[test]
    fn any_text_is_encoded(text in "(?s)(.|[a-z \u{2581}]|e\u{301}|\u{fb01}){0,60}") {
        for name in MODELS {
            let tokenizer = open(name);
            let ids = encode(&tokenizer, &text);
            prop_assert!(ids.iter().all(|&id| (id as usize) < tokenizer.n_vocab()));
            prop_assert_eq!(&ids, &encode(&tokenizer, &text));
            tokenizer.decode(&ids).unwrap();
        }
    }

    /// A text's ids with dropout are pieces of the text: with byte fallback they decode to the same.
    #[test]
    fn dropout_changes_no_text(text in "(?s)(.|[a-z \u{2581}]|e\u{301}){0,60}", p in 0.0f64..=1.0, seed in any::<u64>()) {
        let tokenizer = open("bpe");
        let plain = encode(&tokenizer, &text);
        let ids = dropped(&tokenizer, &text, p, seed);
        prop_assert_eq!(tokenizer.decode(&ids).unwrap(), tokenizer.decode(&plain).unwrap());
        prop_assert!(ids.len() >= plain.len().min(1));
        prop_assert_eq!(dropped(&tokenizer, &text, 0.0, seed), plain);
    }
}

#[test]
fn dropout_is_a_function_of_the_seed() {
    let gpt2 = Tokenizer::open(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/tokens/gpt2.tiktoken"),
        &TokenizerOptions::default(),
    )
    .unwrap();
    let text =
        "It is a truth universally acknowledged, that a single man in possession of a good fortune".repeat(3);
    for tokenizer in [gpt2, open("bpe"), open("suffix")] {
        let plain = encode(&tokenizer, &text);
        let all = |seeds: std::ops::Range<u64>| -> Vec<_> {
            seeds.map(|seed| dropped(&tokenizer, &text, 0.1, seed)).collect()
        };
        let one_thread = all(0..64);
        let all = &all;
        let on_threads: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|n| scope.spawn(move || all(n * 16..n * 16 + 16))).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(one_thread, on_threads);
        assert!(one_thread.iter().all(|ids| ids.len() > plain.len()), "{tokenizer:?}");
        let mut different = one_thread.clone();
        different.sort_unstable();
        different.dedup();
        assert_eq!(different.len(), 64);
        // With 1 nothing is merged: a part for each byte or character.
        let parts = dropped(&tokenizer, &text, 1.0, 5);
        assert!(parts.len() >= text.len(), "{} of {}", parts.len(), text.len());
    }
    let unigram = open("unigram");
    let error = unigram.dropout(0.1).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Config);
    assert!(error.message.contains("its SentencePiece model does not merge"), "{error}");
    assert_eq!(dropped(&unigram, "a text", 0.0, 3), encode(&unigram, "a text"));
    // Of another tokenizer.
    let (other, mut ids) = (open("bpe").dropout(0.1).unwrap(), vec![7]);
    assert_eq!(unigram.encode_with_dropout("a", other, 0, &mut ids).unwrap_err().kind, ErrorKind::Config);
    assert_eq!(ids, [7]);
    for p in [-0.1, 1.1, f64::NAN] {
        assert!(open("bpe").dropout(p).unwrap_err().message.contains("must be 0 to 1"));
    }
}
