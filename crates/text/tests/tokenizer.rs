//! Tokenizers on real files: the ids of tiktoken and of Hugging Face's tokenizers, unusual files and texts.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::{
    fs,
    path::{Path, PathBuf},
};

use forebay_base::ErrorKind;
use forebay_text::{Tokenizer, TokenizerOptions};
use serde_json::{Value, json};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/tokens").join(name)
}

fn open(name: &str) -> Tokenizer {
    Tokenizer::open(&data(name), &TokenizerOptions::default()).unwrap()
}

fn golden() -> Value {
    serde_json::from_slice(&fs::read(data("tokens.json")).unwrap()).unwrap()
}

fn encode(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    let mut ids = Vec::new();
    tokenizer.encode_ordinary(text, &mut ids).unwrap();
    ids
}

/// Opens a file of these bytes.
fn open_bytes(name: &str, bytes: &[u8], options: &TokenizerOptions) -> forebay_base::Result<Tokenizer> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, bytes).unwrap();
    Tokenizer::open(&path, options)
}

fn refused(name: &str, bytes: &[u8], options: &TokenizerOptions) -> (ErrorKind, String) {
    let error = open_bytes(name, bytes, options).unwrap_err();
    (error.kind, error.to_string())
}

fn tokenizer_json() -> Value {
    serde_json::from_slice(&fs::read(data("tokenizer.json")).unwrap()).unwrap()
}

fn open_json(json: &Value) -> forebay_base::Result<Tokenizer> {
    open_bytes("tokenizer.json", &serde_json::to_vec(json).unwrap(), &TokenizerOptions::default())
}

#[test]
fn edge_strings_have_the_ids_of_the_libraries() {
    let golden = golden();
    let files = [("gpt2.tiktoken", "gpt2"), ("tokenizer.json", "tokenizer_json")];
    for (file, key) in files {
        let tokenizer = open(file);
        // The second time, words come from the cache.
        for _ in 0..2 {
            for edge in golden["edge"].as_array().unwrap() {
                let text = edge["text"].as_str().unwrap();
                assert_eq!(json!(encode(&tokenizer, text)), edge[key], "{file} on {text:?}");
            }
        }
    }
}

#[test]
fn documents_have_as_many_ids() {
    for (file, key) in [("gpt2.tiktoken", "n_gpt2"), ("tokenizer.json", "n_tokenizer_json")] {
        let tokenizer = open(file);
        let mut encoder = tokenizer.encoder();
        for document in golden()["documents"].as_array().unwrap() {
            let mut ids = Vec::new();
            encoder.encode_ordinary(document["text"].as_str().unwrap(), &mut ids).unwrap();
            assert_eq!(json!(ids.len()), document[key], "{file}");
        }
    }
}

#[test]
fn a_batch_is_its_texts_one_by_one() {
    let tokenizer = open("gpt2.tiktoken");
    let golden = golden();
    let texts: Vec<&str> =
        golden["documents"].as_array().unwrap().iter().map(|it| it["text"].as_str().unwrap()).collect();
    let texts = texts.repeat(4);
    let one_by_one: Vec<_> = texts.iter().map(|text| encode(&tokenizer, text)).collect();
    for n_threads in [1, 2, 7] {
        assert_eq!(tokenizer.encode_batch(&texts, n_threads).unwrap(), one_by_one);
    }
    assert!(tokenizer.encode_batch::<&str>(&[], 4).unwrap().is_empty());
}

#[test]
fn properties_come_from_the_file() {
    let gpt2 = open("gpt2.tiktoken");
    assert_eq!((gpt2.name(), gpt2.n_vocab(), gpt2.bos_id()), ("gpt2", 50_257, Some(50_256)));
    let trained = open("tokenizer.json");
    assert_eq!((trained.name(), trained.n_vocab(), trained.bos_id()), ("tokenizer", 1000, Some(0)));
    let options = TokenizerOptions { bos_id: Some(60_000), ..TokenizerOptions::default() };
    let other = Tokenizer::open(&data("gpt2.tiktoken"), &options).unwrap();
    assert_eq!((other.n_vocab(), other.bos_id()), (60_001, Some(60_000)));
}

#[test]
fn the_fingerprint_tells_tokenizers_apart() {
    let bytes = fs::read(data("gpt2.tiktoken")).unwrap();
    let known = open("gpt2.tiktoken");
    assert_eq!(known.fingerprint(), open("gpt2.tiktoken").fingerprint());
    let special = |text: &str, id| TokenizerOptions {
        pattern: Some(r"\S+|\s+".into()),
        special_tokens: [(text.to_owned(), id)].into(),
        ..TokenizerOptions::default()
    };
    let options = [
        special("<|endoftext|>", 50_256),
        special("<|bos|>", 50_256),
        special("<|bos|>", 50_257),
        TokenizerOptions { pattern: Some(r"\w+|\W+".into()), ..special("<|bos|>", 50_256) },
        TokenizerOptions { bos_id: Some(1), ..special("<|bos|>", 50_256) },
        TokenizerOptions { eos_id: Some(1), ..special("<|bos|>", 50_256) },
        TokenizerOptions { eos_id: Some(2), ..special("<|bos|>", 50_256) },
    ];
    let mut fingerprints: Vec<u64> =
        options.iter().map(|options| open_bytes("mine", &bytes, options).unwrap().fingerprint()).collect();
    fingerprints.push(known.fingerprint());
    fingerprints.push(open("tokenizer.json").fingerprint());
    // Two tokens with their ranks exchanged.
    let text = String::from_utf8(bytes).unwrap();
    let swapped = text.replacen("IQ== 0\nIg== 1\n", "IQ== 1\nIg== 0\n", 1);
    assert_ne!(swapped, text);
    fingerprints.push(
        open_bytes("gpt2.tiktoken", swapped.as_bytes(), &TokenizerOptions::default()).unwrap().fingerprint(),
    );
    let n = fingerprints.len();
    fingerprints.sort_unstable();
    fingerprints.dedup();
    assert_eq!(fingerprints.len(), n);
}

#[test]
fn long_texts_without_a_boundary_take_bounded_time() {
    for tokenizer in [open("gpt2.tiktoken"), open("tokenizer.json")] {
        for piece in ["a", "ab", " ", "\n", "!", "字", "e\u{301}", "👩‍👩‍👧", "1", "'", "\0"] {
            let n_bytes = if piece == "a" { 1 << 20 } else { 1 << 16 };
            let text = piece.repeat(n_bytes / piece.len());
            let whole = encode(&tokenizer, &text);
            assert!(!whole.is_empty() && whole.len() <= text.len());
            assert_eq!(whole, encode(&tokenizer, &text));
        }
    }
    // "a" eight times is a token of GPT-2; so is four times.
    let eights = encode(&open("gpt2.tiktoken"), &"a".repeat(1 << 20));
    assert!(eights.len() < 1 << 19, "{}", eights.len());
}

#[test]
fn special_tokens_in_text_are_text() {
    for tokenizer in [open("gpt2.tiktoken"), open("tokenizer.json")] {
        for text in ["<|endoftext|>", "<|bos|>", "a<|endoftext|>b <|bos|>"] {
            assert!(!encode(&tokenizer, text).contains(&tokenizer.bos_id().unwrap()), "{text:?}");
        }
    }
}

#[test]
fn other_kinds_of_tokenizer_json_go_to_the_library() {
    let own = open("tokenizer.json");
    let text = "It's <|bos|>  café!\n\n1234 naïve";
    // A normalizer that changes nothing here, and GPT-2's pattern in another notation.
    let mut normalized = tokenizer_json();
    normalized["normalizer"] = json!({"type": "NFC"});
    let mut in_words = tokenizer_json();
    in_words["pre_tokenizer"] = json!({"type": "Sequence", "pretokenizers": [
        {"type": "Split", "behavior": "Isolated", "invert": false, "pattern":
            {"Regex": r"'s|'t|'re|'ve|'m|'ll|'d|[ ]?\p{L}+|[ ]?\p{N}+|[ ]?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"}},
        {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]});
    let mut padded = normalized.clone();
    padded["truncation"] =
        json!({"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0});
    for json in [normalized, in_words, padded] {
        let tokenizer = open_json(&json).unwrap();
        assert_eq!((tokenizer.n_vocab(), tokenizer.bos_id()), (1000, Some(0)));
        assert_eq!(encode(&tokenizer, text), encode(&own, text));
        assert_ne!(tokenizer.fingerprint(), own.fingerprint());
    }
    // Decomposed text is composed.
    let mut nfc = tokenizer_json();
    nfc["normalizer"] = json!({"type": "NFC"});
    assert_eq!(encode(&open_json(&nfc).unwrap(), "cafe\u{301}"), encode(&own, "café"));
}

#[test]
fn a_panic_of_the_library_is_an_error_of_the_text() {
    let mut json = tokenizer_json();
    json["normalizer"] = json!({"type": "Replace", "pattern": {"String": ""}, "content": "x"});
    let tokenizer = open_json(&json).unwrap();
    let mut ids = vec![7];
    for _ in 0..2 {
        let error = tokenizer.encode_ordinary("hello", &mut ids).unwrap_err();
        assert_eq!((error.kind, &ids[..]), (ErrorKind::Corrupt, &[7][..]));
        assert!(error.message.starts_with("the tokenizers library cannot encode the text: "), "{error}");
    }
    let error = tokenizer.encode_batch(&["", "hello"], 2).unwrap_err();
    assert_eq!((error.kind, error.place.row), (ErrorKind::Corrupt, Some(1)));
}

#[test]
fn the_pattern_of_a_tokenizer_json_is_obeyed() {
    let mut llama = tokenizer_json();
    llama["pre_tokenizer"] = json!({"type": "Sequence", "pretokenizers": [
        {"type": "Split", "behavior": "Isolated", "invert": false, "pattern":
            {"Regex": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"}},
        {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]});
    let own = open_json(&llama).unwrap();
    // The same, but encoded by the library, because of a normalizer that matches nothing.
    llama["normalizer"] = json!({"type": "Replace", "pattern": {"String": "\u{1}\u{1}"}, "content": ""});
    let library = open_json(&llama).unwrap();
    for document in golden()["documents"].as_array().unwrap() {
        let text = document["text"].as_str().unwrap();
        assert_eq!(encode(&own, text), encode(&library, text));
    }
}

#[test]
fn a_rank_file_without_a_known_encoding_needs_a_pattern() {
    let bytes = fs::read(data("gpt2.tiktoken")).unwrap();
    let (kind, message) = refused("mine.tiktoken", &bytes, &TokenizerOptions::default());
    assert_eq!(kind, ErrorKind::Config);
    assert!(message.contains("pass pattern= and special_tokens="), "{message}");
    let options =
        TokenizerOptions { pattern: Some("(".into()), bos_id: Some(0), ..TokenizerOptions::default() };
    let (kind, message) = refused("mine.tiktoken", &bytes, &options);
    assert_eq!(kind, ErrorKind::Config);
    assert!(message.contains(r#"pattern "(" is not a valid regular expression"#), "{message}");
    // Matches are pieces; text between them is left out, as in tiktoken.
    let options =
        TokenizerOptions { pattern: Some("[a-z]+".into()), bos_id: Some(0), ..TokenizerOptions::default() };
    let tokenizer = open_bytes("mine.tiktoken", &bytes, &options).unwrap();
    let gpt2 = open("gpt2.tiktoken");
    let together = [encode(&gpt2, "hello"), encode(&gpt2, "world")].concat();
    assert_eq!(encode(&tokenizer, "hello, WORLD world"), together);
    // A pattern that gives up: an error, with nothing appended.
    let options = TokenizerOptions {
        pattern: Some(r"(?:a|a)*(?=b)\1|x".into()),
        bos_id: Some(0),
        ..TokenizerOptions::default()
    };
    if let Ok(tokenizer) = open_bytes("mine.tiktoken", &bytes, &options) {
        let mut ids = vec![7];
        if let Err(error) = tokenizer.encode_ordinary(&"a".repeat(5000), &mut ids) {
            assert_eq!((error.kind, ids), (ErrorKind::Corrupt, vec![7]));
        }
    }
}

#[test]
fn documents_need_bos() {
    let mut json = tokenizer_json();
    json["added_tokens"] = json!([]);
    let vocab = json["model"]["vocab"].as_object_mut().unwrap();
    vocab.remove("<|bos|>");
    vocab.remove("<|endoftext|>");
    let without = open_json(&json).unwrap();
    assert_eq!(without.bos_id(), None);
    let error = without.document_bos_id().unwrap_err();
    assert_eq!(error.kind, ErrorKind::Config);
    assert!(error.to_string().contains("pass bos_id="), "{error}");
    let options = TokenizerOptions { bos_id: Some(5), ..TokenizerOptions::default() };
    let bytes = serde_json::to_vec(&json).unwrap();
    assert_eq!(open_bytes("tokenizer.json", &bytes, &options).unwrap().bos_id(), Some(5));
}

#[test]
fn files_that_are_no_tokenizers_are_refused() {
    let none = TokenizerOptions::default();
    for bytes in [&b""[..], b"\n\n", b"hello", b"PAR1\0\0", b"\xff\xfe\0", b"0 IQ=="] {
        let (kind, message) = refused("gpt2.tiktoken", bytes, &none);
        assert_eq!(kind, ErrorKind::Format);
        assert!(message.contains("neither a tokenizer.json"), "{message}");
    }
    for (bytes, part) in [
        (&b"{"[..], "not JSON"),
        (b"{}", "has no \"model\""),
        (br#"{"model": {"type": "BPE"}}"#, "cannot read the file"),
        (br#"{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]}}"#, "cannot read the file"),
        (br#"{"model": 3}"#, "cannot read the file"),
        (b"IQ== 0\nIg== x\n", "line 2 of the rank file is \"Ig== x\""),
        (b"IQ== 0\nIg== 1\n", "holds 2 ranks, but that encoding has 50256"),
    ] {
        let (kind, message) = refused("gpt2.tiktoken", bytes, &none);
        assert_eq!(kind, ErrorKind::Format, "{message}");
        assert!(message.contains(part), "{message}");
    }
    let any = TokenizerOptions {
        pattern: Some(".".into()),
        special_tokens: [("<|bos|>".into(), 9)].into(),
        ..TokenizerOptions::default()
    };
    for (bytes, part) in [
        (&b"IQ== 0\nIg== 1\n"[..], "2 of the 256 single bytes are tokens"),
        (b"IQ== 0\nIg== 0\n", "rank 0 is given to both"),
        (b"IQ== 0\nIg== 9\n", "which is a rank of the file"),
        (b"{\"model\": {}}", "pass neither pattern= nor special_tokens="),
    ] {
        let (_, message) = refused("mine", bytes, &any);
        assert!(message.contains(part), "{message}");
    }
    let missing = Tokenizer::open(Path::new("/nowhere/gpt2.tiktoken"), &none).unwrap_err();
    assert_eq!(missing.kind, ErrorKind::NotFound);
}
