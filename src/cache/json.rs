//! JSON that others wrote: metadata of a cache, and lines that become documents. Looked at before memory is made for it.
//!
//! A value takes far more than its text: an object with one name some 640 bytes, `{"":0}` has six. So what a text would come to is
//! counted first, by its brackets and commas outside of strings, and a text beyond the limit is refused. Source: own.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use serde_json::Value;

/// What an object takes: a node of the map, whatever is in it.
const OBJECT: u64 = 640;
/// What a list takes at least.
const LIST: u64 = 160;
/// What one more value takes, in a list or a map.
const VALUE: u64 = 128;
/// The most that the metadata of a cache may come to: those of some million shards.
const METADATA: u64 = 1 << 30;
/// The longest file of metadata.
const METADATA_FILE: u64 = 256 << 20;

/// Why there is no value.
#[derive(Debug)]
pub enum NoValue {
    /// It would take so many bytes.
    TooLarge(u64),
    /// The text is not JSON.
    Wrong(serde_json::Error),
}

/// The value of a text, if it takes `most` bytes at most.
///
/// # Errors
/// What is wrong with it.
pub fn parse(text: &[u8], most: u64) -> Result<Value, NoValue> {
    match bytes_of(text) {
        bytes if bytes > most => Err(NoValue::TooLarge(bytes)),
        _ => serde_json::from_slice(text).map_err(NoValue::Wrong),
    }
}

/// The JSON in a file of metadata; within, what is wrong with the text.
///
/// # Errors
/// What the system says.
pub fn read_metadata(path: &Path) -> io::Result<Result<Value, String>> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut text = Vec::new();
    File::open(path)?.take(METADATA_FILE + 1).read_to_end(&mut text)?;
    if text.len() as u64 > METADATA_FILE {
        return Ok(Err(format!("it has more than {METADATA_FILE} bytes")));
    }
    Ok(parse(&text, METADATA).map_err(|error| match error {
        NoValue::TooLarge(bytes) => format!("its values would take {bytes} bytes of memory"),
        NoValue::Wrong(error) => format!("it is not JSON ({error})"),
    }))
}

/// What the values of a text take at most, with the text itself.
pub fn bytes_of(text: &[u8]) -> u64 {
    let (mut bytes, mut at) = (text.len() as u64, 0);
    while let Some(found) =
        text.get(at..).and_then(|rest| rest.iter().position(|byte| b"{[,\"".contains(byte)))
    {
        at += found + 1;
        match text[at - 1] {
            b'{' => bytes += OBJECT,
            b'[' => bytes += LIST,
            b',' => bytes += VALUE,
            _ => at = end_of_string(text, at),
        }
    }
    bytes
}

/// Where the string that begins at `at` ends.
fn end_of_string(text: &[u8], mut at: usize) -> usize {
    while let Some(found) =
        text.get(at..).and_then(|rest| rest.iter().position(|byte| b"\"\\".contains(byte)))
    {
        at += found + 1;
        if text[at - 1] == b'"' {
            return at;
        }
        at += 1;
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
        // A megabyte that would take eighty.
        let bomb = format!("[{}0]", "{\"\":0},".repeat(150_000));
        assert!(matches!(parse(bomb.as_bytes(), 64 << 20), Err(NoValue::TooLarge(_))));
        assert!(
            parse(bomb.as_bytes(), u64::MAX).is_ok_and(|value| value.as_array().unwrap().len() == 150_001)
        );
        assert!(matches!(parse(b"{", 1 << 20), Err(NoValue::Wrong(_))));
    }
}
