//! [`JsonLines`]: a table of JSON lines, an object for each row.

use std::{path::Path, sync::Arc};

use super::{
    json::{Json, Object},
    text_input::TextInput,
};
use crate::{
    Error, ErrorKind, Result,
    storage::{Storage, Version},
};

pub(super) struct JsonLines {
    input: TextInput,
    /// The number of the last line.
    number: u64,
}

impl JsonLines {
    pub(super) fn open(storage: &Arc<dyn Storage>, path: &Arc<Path>) -> Result<Self> {
        let mut input = TextInput::open(storage, path)?;
        if input.fill()?.starts_with(b"\xef\xbb\xbf") {
            input.consume(3);
        }
        Ok(Self { input, number: 0 })
    }

    pub(super) fn version(&self) -> Version {
        self.input.version()
    }

    /// The object of the next line that is not blank, and the line's number.
    ///
    /// # Errors
    /// [`ErrorKind::Format`] for a line that is no JSON object.
    pub(super) fn next(&mut self) -> Result<Option<(u64, Object<'_>)>> {
        let line = loop {
            self.number += 1;
            let Some(line) = self.input.line(self.number)? else { return Ok(None) };
            if !self.input.text(line.clone()).trim_ascii().is_empty() {
                break line;
            }
        };
        let number = self.number;
        let found = serde_json::from_slice(self.input.text(line)).map_err(|error| {
            Error::new(ErrorKind::Format, format!("line {number} is not JSON")).because(error)
        })?;
        match found {
            Json::Object(object) => Ok(Some((number, object))),
            _ => {
                let message =
                    format!("line {number} is no object, expected one such as {{\"path\": \"a.wav\"}}");
                Err(Error::new(ErrorKind::Format, message))
            }
        }
    }
}
