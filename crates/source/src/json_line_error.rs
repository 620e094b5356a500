//! Why a line, or another text of its own, is not JSON.

use std::{error, fmt};

/// An error of `serde_json` in a part of a file. Its parser calls the first line of the part line 1.
#[derive(Debug)]
pub struct JsonLineError(pub serde_json::Error);

impl fmt::Display for JsonLineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.to_string().replace(" at line 1 column", " at column"))
    }
}

impl error::Error for JsonLineError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_columns_alone() {
        let why = |text: &str| {
            JsonLineError(serde_json::from_str::<serde_json::Value>(text).unwrap_err()).to_string()
        };
        assert_eq!(why("{\"a\": ?}"), "expected value at column 7");
        assert_eq!(why("{\"a\": 1,\n?}"), "key must be a string at line 2 column 1");
    }
}
