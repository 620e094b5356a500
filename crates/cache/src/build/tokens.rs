//! The processor for texts: token ids of a document, after its BOS, before its EOS.

use arrow_array::{Array, cast::AsArray};
use arrow_schema::DataType as ArrowType;
use serde_json::Value;

use super::{Process, Processor, Skips, inputs::InputRows};
use crate::{
    BatchColumn, Error, ErrorKind, Processed, Result, fallible_alloc, fields::DataType,
    source::check_record_bytes,
};
use forebay_text::{Encoder, Tokenizer};

#[derive(Debug, Clone)]
pub struct Tokenize {
    pub tokenizer: Tokenizer,
    /// The column of texts, in tables and JSON objects.
    pub text_column: String,
    /// The id that begins each document; None for none.
    pub bos: Option<u32>,
    /// The field that the ids become.
    pub field: String,
    /// The most bytes of a text.
    pub max_record_bytes: u64,
}

/// The part of [`Tokenize`] that one worker owns.
#[derive(Debug)]
pub struct TokenizeWorker {
    what: Tokenize,
    encoder: Encoder,
}

impl Tokenize {
    pub fn worker(&self) -> TokenizeWorker {
        TokenizeWorker { what: self.clone(), encoder: self.tokenizer.encoder() }
    }
}

impl Processor<InputRows> for Tokenize {
    fn worker(&self) -> Box<dyn Process<InputRows>> {
        Box::new(self.worker())
    }
}

impl Process<InputRows> for TokenizeWorker {
    fn process(&mut self, rows: InputRows, skips: &mut Skips<'_>) -> Result<Processed> {
        let column = self.what.text_column.clone();
        let mut ids = Ids::new(self);
        each_text(&rows, &column, &mut |row, text| {
            text.and_then(|text| ids.add(text)).or_else(|error| skips.refused(row, error))
        })?;
        ids.finish()
    }
}

impl TokenizeWorker {
    /// Encodes texts, without those that are left out.
    ///
    /// # Errors
    /// As [`Encoder::encode_ordinary`], and those of `texts`, unless the policy leaves the text out.
    pub fn encode<T: AsRef<str>>(
        &mut self,
        texts: impl Iterator<Item = Result<T>>,
        skips: &mut Skips<'_>,
    ) -> Result<Processed> {
        let mut ids = Ids::new(self);
        for (row, text) in texts.enumerate() {
            text.and_then(|text| ids.add(text.as_ref())).or_else(|error| skips.refused(row as u64, error))?;
        }
        ids.finish()
    }
}

/// The ids of the documents encoded so far.
struct Ids<'a> {
    worker: &'a mut TokenizeWorker,
    all: Vec<u32>,
    lengths: Vec<u64>,
}

impl<'a> Ids<'a> {
    fn new(worker: &'a mut TokenizeWorker) -> Self {
        Self { worker, all: Vec::new(), lengths: Vec::new() }
    }

    fn add(&mut self, text: &str) -> Result<()> {
        check_record_bytes(text.len() as u64, self.worker.what.max_record_bytes)?;
        let begin = self.all.len();
        if let Some(bos) = self.worker.what.bos {
            fallible_alloc::push(&mut self.all, bos)?;
        }
        if let Err(error) = self.worker.encoder.encode_ordinary(text, &mut self.all) {
            self.all.truncate(begin);
            return Err(error);
        }
        if let Some(eos) = self.worker.what.tokenizer.eos_id() {
            fallible_alloc::push(&mut self.all, eos)?;
        }
        self.lengths.push((self.all.len() - begin) as u64);
        Ok(())
    }

    fn finish(self) -> Result<Processed> {
        let dtype = DataType::for_vocabulary(self.worker.what.tokenizer.n_vocab());
        let is_short = dtype == DataType::Uint16;
        let mut data =
            fallible_alloc::with_room(self.all.len().saturating_mul(if is_short { 2 } else { 4 }))?;
        match is_short {
            true => data.extend(self.all.iter().flat_map(|&id| (id as u16).to_le_bytes())),
            false => data.extend(self.all.iter().flat_map(|id| id.to_le_bytes())),
        }
        let documents = self.lengths.len() as u64;
        let column = BatchColumn::flat(self.worker.what.field.clone(), dtype, data, self.lengths);
        Ok(Processed { documents, columns: vec![column] })
    }
}

/// Calls `go` with the number of each row, and its text or the error for a missing one.
fn each_text(
    rows: &InputRows,
    column: &str,
    go: &mut dyn FnMut(u64, Result<&str>) -> Result<()>,
) -> Result<()> {
    let null = || {
        let message =
            format!("the text in column {column:?} is null; remove such rows, or pass on_error=\"skip\"");
        Error::new(ErrorKind::Unreadable, message)
    };
    let mut row = 0;
    match rows {
        InputRows::Text(lines) => {
            lines.iter().enumerate().try_for_each(|(row, line)| go(row as u64, Ok(line)))
        }
        InputRows::Json(values) => values.iter().enumerate().try_for_each(|(row, value)| {
            let text = match value {
                Value::String(text) => Some(text),
                Value::Object(object) => match object.get(column) {
                    Some(Value::String(text)) => Some(text),
                    _ => None,
                },
                _ => None,
            };
            let missing = || {
                let message = format!("the line has no text {column:?}; name the column with text_column=");
                Error::new(ErrorKind::Unreadable, message)
            };
            go(row as u64, text.map(|text| &text[..]).ok_or_else(missing))
        }),
        InputRows::Table(tables) => {
            for table in tables {
                let Some(array) = table.column_by_name(column) else {
                    return Err(Error::new(ErrorKind::Schema, format!("there is no column {column:?}")));
                };
                let mut each = |text: Option<&str>| {
                    row += 1;
                    go(row - 1, text.ok_or_else(null))
                };
                match array.data_type() {
                    ArrowType::Utf8 => array.as_string::<i32>().iter().try_for_each(&mut each)?,
                    ArrowType::LargeUtf8 => array.as_string::<i64>().iter().try_for_each(&mut each)?,
                    ArrowType::Utf8View => array.as_string_view().iter().try_for_each(&mut each)?,
                    other => {
                        let message = format!(
                            "column {column:?} is {other}, expected texts; name another column with text_column="
                        );
                        return Err(Error::new(ErrorKind::Schema, message));
                    }
                }
            }
            Ok(())
        }
        InputRows::Recordings(_) => Err(Error::new(ErrorKind::Schema, "recordings have no text")),
    }
}
