//! Tokens a second of one thread: forebay and other crates on the same text, as a Markdown table.
//!
//! ```text
//! cd benches/tokenizers && cargo run --release -- cl100k_base.tiktoken ../../tests/data/tokens/tokenizer.json TEXT...
//! ```
//!
//! TEXT are files in UTF-8, cut into documents of about 5 kB. The time is the thread's CPU time, not wall
//! time; rounds interleave the crates; each figure is the best of its rounds. `equal` compares all ids with
//! those of the first row of the same file.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a bench")]

use std::{collections::HashMap, env, fs, hash::BuildHasher, path::Path, sync::Arc};

use forebay::decode::{Tokenizer, TokenizerOptions};
use wordchipper::{
    TokenEncoder, TokenEncoderOptions, pretrained::openai::OA_CL100K_BASE_PATTERN,
    spanners::TextSpanningConfig, vocab::io::load_base64_unified_vocab_path,
};

const ROUNDS: usize = 3;
const DOCUMENT_BYTES: usize = 5000;
const PATTERN: &str = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s";

type Encode = Box<dyn FnMut(&str, &mut Vec<u32>)>;

/// A crate, the file that it reads, and its encoder.
struct Candidate {
    name: &'static str,
    file: &'static str,
    encode: Encode,
    best_s: f64,
    hash: u64,
    tokens: usize,
}

/// Seconds that this thread was on a core.
fn cpu_s() -> f64 {
    let stat = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    stat.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9
}

fn documents(files: &[String]) -> Vec<String> {
    let mut documents = Vec::new();
    for file in files {
        let mut document = String::new();
        for line in fs::read_to_string(file).unwrap().split_inclusive('\n') {
            document.push_str(line);
            if document.len() > DOCUMENT_BYTES {
                documents.push(std::mem::take(&mut document));
            }
        }
        documents.push(document);
    }
    documents
}

fn ranks<S: BuildHasher + Default>(file: &str) -> HashMap<Vec<u8>, u32, S> {
    let bpe = tiktoken_rs::cl100k_base().unwrap();
    // The file's tokens, decoded by the crate that has them bundled.
    (0..fs::read_to_string(file).unwrap().lines().count() as u32)
        .map(|rank| (bpe.decode_bytes(&[rank]).unwrap(), rank))
        .collect()
}

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [rank_file, json, texts @ ..] = &arguments[..] else { panic!("RANK_FILE TOKENIZER_JSON TEXT...") };
    let documents = documents(texts);
    let n_bytes: usize = documents.iter().map(String::len).sum();

    let ours = |file: &str| {
        let mut encoder = Tokenizer::open(Path::new(file), &TokenizerOptions::default()).unwrap().encoder();
        Box::new(move |text: &str, ids: &mut Vec<u32>| encoder.encode_ordinary(text, ids).unwrap()) as Encode
    };
    let tiktoken_rs = tiktoken_rs::cl100k_base().unwrap();
    let riptoken = riptoken::CoreBPE::new(ranks(rank_file), HashMap::default(), PATTERN).unwrap();
    let kitoken = kitoken::Kitoken::from_tiktoken_file(rank_file).unwrap();
    let spanning = TextSpanningConfig::<u32>::from(OA_CL100K_BASE_PATTERN.to_pattern());
    let wordchipper = TokenEncoderOptions::default()
        .build(Arc::new(load_base64_unified_vocab_path(rank_file, spanning).unwrap()));
    let mut library = tokenizers::Tokenizer::from_file(json).unwrap();
    library.set_encode_special_tokens(true);
    let mut candidates: Vec<Candidate> = [
        (
            "tiktoken-rs",
            "cl100k_base",
            Box::new(move |text: &str, ids: &mut Vec<u32>| ids.extend(tiktoken_rs.encode_ordinary(text)))
                as Encode,
        ),
        ("forebay", "cl100k_base", ours(rank_file)),
        (
            "bpe-openai",
            "cl100k_base",
            Box::new(|text, ids| ids.extend(bpe_openai::cl100k_base().encode(text))),
        ),
        (
            "kitoken",
            "cl100k_base",
            Box::new(move |text, ids| ids.extend(kitoken.encode(text, false).unwrap())),
        ),
        ("riptoken", "cl100k_base", Box::new(move |text, ids| ids.extend(riptoken.encode_ordinary(text)))),
        (
            "wordchipper",
            "cl100k_base",
            Box::new(move |text, ids| wordchipper.try_encode_append(text, ids, None).unwrap()),
        ),
        (
            "tokenizers",
            "tokenizer.json",
            Box::new(move |text, ids| ids.extend(library.encode_fast(text, false).unwrap().get_ids())),
        ),
        ("forebay", "tokenizer.json", ours(json)),
    ]
    .into_iter()
    .map(|(name, file, encode)| Candidate { name, file, encode, best_s: f64::MAX, hash: 0, tokens: 0 })
    .collect();
    for _ in 0..ROUNDS {
        for candidate in &mut candidates {
            let mut ids = Vec::new();
            let start = cpu_s();
            (candidate.hash, candidate.tokens) = (0, 0);
            for document in &documents {
                ids.clear();
                (candidate.encode)(document, &mut ids);
                candidate.tokens += ids.len();
                candidate.hash = ids
                    .iter()
                    .fold(candidate.hash, |hash, &id| (hash ^ u64::from(id)).wrapping_mul(0x100_0000_01B3));
            }
            candidate.best_s = candidate.best_s.min(cpu_s() - start);
        }
    }
    println!(
        "{:.1} MB in {} documents\n\n| | file | M tokens/s | MB/s | equal |\n|---|---|---:|---:|---|",
        n_bytes as f64 / 1e6,
        documents.len()
    );
    for it in &candidates {
        let first = candidates.iter().find(|first| first.file == it.file).unwrap();
        let equal = if it.hash == first.hash && it.tokens == first.tokens { "yes" } else { "no" };
        let (tokens, bytes) = (it.tokens as f64 / it.best_s / 1e6, n_bytes as f64 / it.best_s / 1e6);
        println!("| {} | {} | {tokens:.1} | {bytes:.0} | {equal} |", it.name, it.file);
    }
}
