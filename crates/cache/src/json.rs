//! Untrusted JSON: metadata of a cache, and lines that become documents. Its size is checked before memory is
//! allocated for it.
//!
//! A value takes far more memory than its text: an object with one name takes some 640 bytes, its text
//! `{"":0}` six. So an upper bound of the size is computed first, from the brackets and commas outside of
//! strings. A text beyond the limit is refused. Source: own.

use std::{io::BufRead, path::Path, sync::Arc};

use serde_json::Value;

use crate::{
    Result as Read, fallible_alloc,
    storage::{Storage, StoredFile},
};

/// The bytes of an object: a node of the map, regardless of its content.
const OBJECT: u64 = 640;
/// The fewest bytes of a list.
const LIST: u64 = 160;
/// The bytes of each further value in a list or a map.
const VALUE: u64 = 128;
/// The most bytes of a cache's parsed metadata: enough for some million shards.
const METADATA: u64 = 1 << 30;
/// The most bytes of a metadata file.
const METADATA_FILE: u64 = 256 << 20;

/// The reason why a text has no value.
#[derive(Debug)]
pub(crate) enum NoValue {
    /// It would take this many bytes.
    TooLarge(u64),
    Wrong(serde_json::Error),
}

/// Parses a text whose value takes at most `most` bytes; returns the value and the upper bound of its bytes.
///
/// # Errors
/// [`NoValue`].
pub(crate) fn parse(text: &[u8], most: u64) -> Result<(Value, u64), NoValue> {
    match bytes_of(text) {
        bytes if bytes > most => Err(NoValue::TooLarge(bytes)),
        bytes => serde_json::from_slice(text).map(|value| (value, bytes)).map_err(NoValue::Wrong),
    }
}

/// The JSON in a metadata file; the inner error is the problem of its text.
///
/// # Errors
/// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound), [`ErrorKind::Io`](crate::ErrorKind::Io),
/// [`ErrorKind::Memory`](crate::ErrorKind::Memory).
pub(crate) fn read_metadata(storage: &Arc<dyn Storage>, path: &Path) -> Read<Result<Value, String>> {
    let file = StoredFile::open(storage, &path.into())?;
    if file.size() > METADATA_FILE {
        return Ok(Err(format!("it has more than {METADATA_FILE} bytes")));
    }
    let mut text = fallible_alloc::zero_bytes(file.size() as usize)?;
    file.read_exact(&mut text, 0)?;
    Ok(parse(&text, METADATA).map(|(value, _)| value).map_err(|error| match error {
        NoValue::TooLarge(bytes) => format!("its values would take {bytes} bytes of memory"),
        NoValue::Wrong(error) => format!("it is not JSON ({error})"),
    }))
}

/// The upper bound of the bytes of a text's values, including the text itself.
fn bytes_of(text: &[u8]) -> u64 {
    let (mut bytes, mut at) = (text.len() as u64, 0);
    while let Some(byte) = text.get(at) {
        at += 1;
        match byte {
            b'{' => bytes += OBJECT,
            b'[' => bytes += LIST,
            b',' => bytes += VALUE,
            b'"' => at = end_of_string(text, at),
            _ => {}
        }
    }
    bytes
}

/// The end of the string that begins at `at`.
fn end_of_string(text: &[u8], mut at: usize) -> usize {
    while at < text.len() {
        let begin = at;
        // `BufRead` of a slice finds a byte faster than a loop here.
        at += (&text[at..]).skip_until(b'"').unwrap_or(text.len() - at);
        let within = text[begin..at].strip_suffix(b"\"").unwrap_or_default();
        let escapes = within.iter().rev().take_while(|&&byte| byte == b'\\').count();
        if escapes % 2 == 0 {
            return at;
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_before_they_are_made() {
        assert_eq!(bytes_of(b"7"), 1);
        assert_eq!(bytes_of(br#"[1,2]"#), 5 + LIST + VALUE);
        assert_eq!(bytes_of(br#"{"a":"[,{\"[","b":[]}"#), 21 + OBJECT + VALUE + LIST);
        for text in [&b"\"no end"[..], b"\"no end\\", b"\"no end\\\"", b""] {
            assert_eq!(bytes_of(text), text.len() as u64);
        }
        // A megabyte of text that would take 80 MB.
        let bomb = format!("[{}0]", "{\"\":0},".repeat(150_000));
        assert!(matches!(parse(bomb.as_bytes(), 64 << 20), Err(NoValue::TooLarge(_))));
        assert!(
            parse(bomb.as_bytes(), u64::MAX)
                .is_ok_and(|(value, _)| value.as_array().unwrap().len() == 150_001)
        );
        assert!(matches!(parse(b"{", 1 << 20), Err(NoValue::Wrong(_))));
    }
}
