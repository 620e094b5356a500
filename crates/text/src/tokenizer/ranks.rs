//! Reads rank files, as tiktoken does: a line per token, with its bytes in base64 and its rank.
//!
//! The file has neither pattern nor special tokens. For the published encodings they follow from the file's
//! name.

use std::collections::{BTreeMap, HashMap};

use super::{
    TokenizerOptions,
    byte_level::{ByteLevel, Merge, TokenizerFile},
    marked::SpecialTexts,
    split,
};
use crate::{Error, ErrorKind, Result};

/// A published encoding: its name, the number of its ranks, its pattern and special tokens.
struct PublishedEncoding {
    names: &'static [&'static str],
    n_ranks: usize,
    pattern: &'static str,
    special_tokens: &'static [(&'static str, u32)],
}

const KNOWN: [PublishedEncoding; 4] = [
    PublishedEncoding {
        names: &["gpt2", "r50k_base"],
        n_ranks: 50_256,
        pattern: split::GPT2,
        special_tokens: &[("<|endoftext|>", 50_256)],
    },
    PublishedEncoding {
        names: &["p50k_base"],
        n_ranks: 50_280,
        pattern: split::GPT2,
        special_tokens: &[("<|endoftext|>", 50_256)],
    },
    PublishedEncoding {
        names: &["cl100k_base"],
        n_ranks: 100_256,
        pattern: split::CL100K,
        special_tokens: &[
            ("<|endoftext|>", 100_257),
            ("<|fim_prefix|>", 100_258),
            ("<|fim_middle|>", 100_259),
            ("<|fim_suffix|>", 100_260),
            ("<|endofprompt|>", 100_276),
        ],
    },
    PublishedEncoding {
        names: &["o200k_base"],
        n_ranks: 199_998,
        pattern: split::O200K,
        special_tokens: &[("<|endoftext|>", 199_999), ("<|endofprompt|>", 200_018)],
    },
];

/// Whether a file that begins with `bytes` is a rank file.
pub(crate) fn is_ranks(bytes: &[u8]) -> bool {
    let line = bytes.split(|&byte| byte == b'\n').find(|line| !line.trim_ascii().is_empty());
    line.is_some_and(|line| read_line(line).is_some())
}

/// Reads a rank file named `name`.
pub fn open(name: &str, bytes: &[u8], options: &TokenizerOptions) -> Result<ByteLevel> {
    let ranks = read(bytes)?;
    let known = KNOWN.iter().find(|known| known.names.contains(&name));
    let format = |message: String| Err(Error::new(ErrorKind::Format, message));
    if let Some(known) = known
        && known.n_ranks != ranks.len()
        && (options.pattern.is_none() || options.special_tokens.is_empty())
    {
        return format(format!(
            "the file is named {name} and holds {} ranks, but that encoding has {}; pass pattern= and special_tokens=",
            ranks.len(),
            known.n_ranks
        ));
    }
    let pattern = match (&options.pattern, known) {
        (Some(pattern), _) => pattern,
        (None, Some(known)) => known.pattern,
        (None, None) => {
            let names: Vec<&str> = KNOWN.iter().flat_map(|known| known.names).copied().collect();
            return Err(Error::new(
                ErrorKind::Config,
                format!(
                    "a rank file has no pattern, and its name {name:?} is none of the known encodings ({}); pass pattern= and \
                     special_tokens=",
                    names.join(", ")
                ),
            ));
        }
    };
    let special_tokens: BTreeMap<String, u32> = match known {
        Some(known) if options.special_tokens.is_empty() => {
            known.special_tokens.iter().map(|&(text, id)| (text.to_owned(), id)).collect()
        }
        _ => options.special_tokens.clone(),
    };
    // bounded: by the parsed file.
    let mut bytes_of: HashMap<u32, &[u8]> = HashMap::with_capacity(ranks.len());
    for (bytes, rank) in &ranks {
        if let Some(other) = bytes_of.insert(*rank, bytes) {
            let (other, bytes) = (String::from_utf8_lossy(other), String::from_utf8_lossy(bytes));
            return format(format!("rank {rank} is given to both {other:?} and {bytes:?}"));
        }
    }
    if let Some((text, id)) = special_tokens.iter().find(|(_, id)| bytes_of.contains_key(id)) {
        return Err(Error::new(
            ErrorKind::Config,
            format!("special_tokens gives {text:?} the id {id}, which is a rank of the file"),
        ));
    }
    let merges = merges(&ranks);
    ByteLevel::new(TokenizerFile {
        tokens: ranks,
        merges,
        pattern: pattern.to_owned(),
        found: SpecialTexts::new(&special_tokens, None),
        special_tokens,
        whole: true,
    })
}

/// The tokens of a rank file with their ranks.
fn read(bytes: &[u8]) -> Result<Vec<(Vec<u8>, u32)>> {
    let mut ranks = Vec::new();
    for (i, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
        if line.trim_ascii().is_empty() {
            continue;
        }
        ranks.push(read_line(line).ok_or_else(|| {
            let line: String = String::from_utf8_lossy(line).chars().take(60).collect();
            Error::new(
                ErrorKind::Format,
                format!(
                    "line {} of the rank file is {line:?}, expected a token in base64 and its rank",
                    i + 1
                ),
            )
        })?);
    }
    Ok(ranks)
}

/// `base64 rank`. A rank is below 2^31, so that it is an id in any integer type.
fn read_line(line: &[u8]) -> Option<(Vec<u8>, u32)> {
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let (token, rank) = (words.next()?, words.next()?);
    let rank = std::str::from_utf8(rank).ok()?.parse::<i32>().ok()?;
    let token = base64(token).filter(|token| !token.is_empty())?;
    words.next().is_none().then_some((token, u32::try_from(rank).ok()?))
}

/// All pairs of tokens whose concatenation is a token, with its rank.
fn merges(ranks: &[(Vec<u8>, u32)]) -> Vec<Merge> {
    let rank_of: HashMap<&[u8], u32> = ranks.iter().map(|(bytes, rank)| (&bytes[..], *rank)).collect();
    let mut merges = Vec::new();
    for (bytes, rank) in ranks {
        for at in 1..bytes.len() {
            let (left, right) = bytes.split_at(at);
            if let (Some(&left), Some(&right)) = (rank_of.get(left), rank_of.get(right)) {
                merges.push(((left, right), (*rank, *rank)));
            }
        }
    }
    merges
}

/// Decodes base64 with padding (RFC 4648, section 4).
fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let digits = text.strip_suffix(b"==").or(text.strip_suffix(b"=")).unwrap_or(text);
    if !text.len().is_multiple_of(4) || digits.len() % 4 == 1 {
        return None;
    }
    // bounded: by the text.
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut n) = (0u32, 0);
    for &digit in digits {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        n += 6;
        if n >= 8 {
            n -= 8;
            bytes.push((bits >> n) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_as_in_the_rfc() {
        let cases = [
            ("", ""),
            ("Zg==", "f"),
            ("Zm8=", "fo"),
            ("Zm9v", "foo"),
            ("Zm9vYg==", "foob"),
            ("Zm9vYmFy", "foobar"),
        ];
        for (coded, plain) in cases {
            assert_eq!(base64(coded.as_bytes()).as_deref(), Some(plain.as_bytes()));
        }
        assert_eq!(base64(b"/+8="), Some(vec![0xFF, 0xEF]));
        for bad in ["Z", "Zg", "Zg=", "Zm9v=", "Z===", "Zm 9", "Zm9v\n"] {
            assert_eq!(base64(bad.as_bytes()), None, "{bad:?}");
        }
    }

    #[test]
    fn lines() {
        assert_eq!(read_line(b"IQ== 0\r"), Some((b"!".to_vec(), 0)));
        for bad in ["IQ==", "IQ== x", "IQ== -1", "IQ== 1 2", "== 1", "IQ== 4294967295"] {
            assert_eq!(read_line(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
