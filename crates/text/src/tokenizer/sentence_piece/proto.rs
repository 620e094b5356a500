//! Reads the protobuf message of a SentencePiece `.model` file: the fields that encoding and decoding need.
//!
//! Input: the bytes of the file. Output: [`ModelFile`], whose texts are slices of the input. Each length is
//! compared with the bytes that are left before it is used, so the memory is that of the list of pieces: at
//! most eight times the file.
//!
//! Source: the encoding of protocol buffers (protobuf.dev, "Encoding"), and the names and numbers of the
//! fields in SentencePiece's published `sentencepiece_model.proto`.

use super::PieceType;
use crate::{Error, ErrorKind, Result, fallible_alloc};

#[derive(Debug, Clone, Copy)]
enum ProtoValue<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    Fixed32(u32),
    Fixed64,
}

/// The fields of a message, in the order of the file.
struct ProtoFields<'a> {
    rest: &'a [u8],
    /// The offset of the end of the message in the file.
    end: usize,
}

fn damaged(message: String) -> Error {
    Error::new(ErrorKind::Format, message)
}

impl<'a> ProtoFields<'a> {
    /// The offset of the next byte in the file.
    fn at(&self) -> usize {
        self.end - self.rest.len()
    }

    /// The fields of the message in a field that has just been read.
    fn inside(&self, bytes: &'a [u8]) -> Self {
        Self { rest: bytes, end: self.at() }
    }

    fn varint(&mut self) -> Result<u64> {
        let at = self.at();
        let mut number = 0u64;
        for shift in 0..10 {
            let Some((&byte, rest)) = self.rest.split_first() else {
                return Err(damaged(format!("the SentencePiece model ends within the number at byte {at}")));
            };
            self.rest = rest;
            // The tenth byte has one bit; what is above it is lost, as in other readers.
            number |= u64::from(byte & 0x7F) << (7 * shift);
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(damaged(format!("the number at byte {at} of the SentencePiece model has more than ten bytes")))
    }

    fn take(&mut self, len: u64, at: usize) -> Result<&'a [u8]> {
        let left = self.rest.len();
        let len = usize::try_from(len).ok().filter(|&len| len <= left).ok_or_else(|| {
            damaged(format!(
                "the field at byte {at} of the SentencePiece model has {len} bytes, but only {left} are left; the file is cut or \
                 damaged"
            ))
        })?;
        let (bytes, rest) = self.rest.split_at(len);
        self.rest = rest;
        Ok(bytes)
    }

    /// Number and value of the next field; None at the end.
    fn next(&mut self) -> Result<Option<(u64, ProtoValue<'a>)>> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let at = self.at();
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => ProtoValue::Varint(self.varint()?),
            1 => self.take(8, at).map(|_| ProtoValue::Fixed64)?,
            2 => {
                let len = self.varint()?;
                ProtoValue::Bytes(self.take(len, at)?)
            }
            5 => {
                let bytes = self.take(4, at)?;
                ProtoValue::Fixed32(bytes.iter().rev().fold(0, |number, &byte| number << 8 | u32::from(byte)))
            }
            kind => {
                return Err(damaged(format!(
                    "the field at byte {at} of the SentencePiece model has wire type {kind}, expected 0, 1, 2 or 5; the file is \
                     damaged"
                )));
            }
        };
        Ok(Some((tag >> 3, value)))
    }
}

/// A field with another wire type than the format has.
fn wrong(what: &str, fields: &ProtoFields<'_>) -> Error {
    damaged(format!(
        "{what} before byte {} of the SentencePiece model has the wrong wire type; the file is damaged",
        fields.at()
    ))
}

fn text<'a>(what: &str, fields: &ProtoFields<'_>, value: ProtoValue<'a>) -> Result<&'a str> {
    let ProtoValue::Bytes(bytes) = value else { return Err(wrong(what, fields)) };
    std::str::from_utf8(bytes).map_err(|_| {
        damaged(format!("{what} before byte {} of the SentencePiece model is not UTF-8", fields.at()))
    })
}

fn bytes<'a>(what: &str, fields: &ProtoFields<'_>, value: ProtoValue<'a>) -> Result<&'a [u8]> {
    let ProtoValue::Bytes(bytes) = value else { return Err(wrong(what, fields)) };
    Ok(bytes)
}

fn number(what: &str, fields: &ProtoFields<'_>, value: ProtoValue<'_>) -> Result<u64> {
    let ProtoValue::Varint(number) = value else { return Err(wrong(what, fields)) };
    Ok(number)
}

/// A piece of the vocabulary; its id is its place in the file.
#[derive(Debug, Clone, Copy)]
pub struct FilePiece<'a> {
    pub text: &'a str,
    pub score: f32,
    pub kind: PieceType,
}

/// How a text is normalised (`NormalizerSpec`).
#[derive(Debug, Clone, Copy)]
pub struct NormalizerFields<'a> {
    pub name: &'a str,
    pub precompiled: &'a [u8],
    pub add_dummy_prefix: bool,
    pub remove_extra_whitespaces: bool,
    pub escape_whitespaces: bool,
}

impl Default for NormalizerFields<'_> {
    fn default() -> Self {
        Self {
            name: "",
            precompiled: &[],
            add_dummy_prefix: true,
            remove_extra_whitespaces: true,
            escape_whitespaces: true,
        }
    }
}

/// The content of a `.model` file.
#[derive(Debug)]
pub struct ModelFile<'a> {
    pub pieces: Vec<FilePiece<'a>>,
    /// 1 is unigram, 2 byte pair encoding, 3 words, 4 characters.
    pub model_type: u64,
    pub byte_fallback: bool,
    pub treat_whitespace_as_suffix: bool,
    pub bos: &'a str,
    pub eos: &'a str,
    pub pad: &'a str,
    /// The text that an unknown piece is decoded to.
    pub unk_surface: &'a str,
    pub normalizer: NormalizerFields<'a>,
    pub denormalizer: NormalizerFields<'a>,
}

/// Whether `bytes` begin with a piece, as the files of SentencePiece do.
pub fn is_model(bytes: &[u8]) -> bool {
    let mut fields = ProtoFields { rest: bytes, end: bytes.len() };
    match fields.next() {
        Ok(Some((1, ProtoValue::Bytes(bytes)))) => {
            piece(&mut fields.inside(bytes)).is_ok_and(|it| it.is_some())
        }
        _ => false,
    }
}

/// Reads a file.
pub fn read(bytes: &[u8]) -> Result<ModelFile<'_>> {
    let mut model = ModelFile {
        pieces: Vec::new(),
        model_type: 1,
        byte_fallback: false,
        treat_whitespace_as_suffix: false,
        bos: "<s>",
        eos: "</s>",
        pad: "<pad>",
        unk_surface: " \u{2047} ",
        normalizer: NormalizerFields::default(),
        denormalizer: NormalizerFields::default(),
    };
    let mut fields = ProtoFields { rest: bytes, end: bytes.len() };
    while let Some((field, value)) = fields.next()? {
        // 4 is a list of examples.
        let name = match field {
            1 => "piece",
            2 => "trainer_spec",
            3 => "normalizer_spec",
            5 => "denormalizer_spec",
            _ => continue,
        };
        let bytes = self::bytes(name, &fields, value)?;
        let mut inner = fields.inside(bytes);
        match field {
            1 => {
                let number = model.pieces.len();
                let piece = piece(&mut inner)?.ok_or_else(|| {
                    damaged(format!("piece {number} of the SentencePiece model is empty, expected a text"))
                })?;
                fallible_alloc::push(&mut model.pieces, piece)?;
            }
            2 => trainer(&mut inner, &mut model)?,
            3 => normalizer(&mut inner, &mut model.normalizer)?,
            _ => normalizer(&mut inner, &mut model.denormalizer)?,
        }
    }
    Ok(model)
}

/// Reads a piece (`ModelProto.SentencePiece`); None if it has no text.
fn piece<'a>(fields: &mut ProtoFields<'a>) -> Result<Option<FilePiece<'a>>> {
    let mut piece = FilePiece { text: "", score: 0.0, kind: PieceType::Normal };
    while let Some((field, value)) = fields.next()? {
        match field {
            1 => piece.text = text("the text of a piece", fields, value)?,
            2 => match value {
                ProtoValue::Fixed32(bits) => piece.score = f32::from_bits(bits),
                _ => return Err(wrong("the score of a piece", fields)),
            },
            3 => {
                let kind = number("the type of a piece", fields, value)?;
                piece.kind = PieceType::of(kind).ok_or_else(|| {
                    damaged(format!(
                        "the piece {:?} of the SentencePiece model has the type {kind}, expected 1 to 6",
                        piece.text
                    ))
                })?;
            }
            _ => {}
        }
    }
    if piece.score.is_nan() {
        return Err(damaged(format!(
            "the piece {:?} of the SentencePiece model has the score NaN, expected a number",
            piece.text
        )));
    }
    Ok(Some(piece).filter(|piece| !piece.text.is_empty()))
}

fn trainer<'a>(fields: &mut ProtoFields<'a>, model: &mut ModelFile<'a>) -> Result<()> {
    while let Some((field, value)) = fields.next()? {
        match field {
            3 => model.model_type = number("model_type", fields, value)?,
            24 => {
                model.treat_whitespace_as_suffix = number("treat_whitespace_as_suffix", fields, value)? != 0;
            }
            35 => model.byte_fallback = number("byte_fallback", fields, value)? != 0,
            44 => model.unk_surface = text("unk_surface", fields, value)?,
            46 => model.bos = text("bos_piece", fields, value)?,
            47 => model.eos = text("eos_piece", fields, value)?,
            48 => model.pad = text("pad_piece", fields, value)?,
            _ => {}
        }
    }
    Ok(())
}

fn normalizer<'a>(fields: &mut ProtoFields<'a>, spec: &mut NormalizerFields<'a>) -> Result<()> {
    while let Some((field, value)) = fields.next()? {
        match field {
            1 => spec.name = text("the name of a normalizer", fields, value)?,
            2 => spec.precompiled = bytes("precompiled_charsmap", fields, value)?,
            3 => spec.add_dummy_prefix = number("add_dummy_prefix", fields, value)? != 0,
            4 => spec.remove_extra_whitespaces = number("remove_extra_whitespaces", fields, value)? != 0,
            5 => spec.escape_whitespaces = number("escape_whitespaces", fields, value)? != 0,
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_lengths_are_claims() {
        for (bytes, part) in [
            (&b"\x0A"[..], "ends within the number at byte 1"),
            (
                b"\x0A\x05abc",
                "the field at byte 0 of the SentencePiece model has 5 bytes, but only 3 are left",
            ),
            (
                b"\x0A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01",
                "18446744073709551615 bytes, but only 0 are left",
            ),
            (b"\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", "more than ten bytes"),
            (b"\x0B", "has wire type 3"),
            (b"\x08\x01", "piece before byte 2 of the SentencePiece model has the wrong wire type"),
            (b"\x0A\x04\x0A\x02\xFF\xFE", "is not UTF-8"),
            (
                b"\x0A\x03\x0A\x05a",
                "the field at byte 2 of the SentencePiece model has 5 bytes, but only 1 are left",
            ),
            (b"\x0A\x05\x0A\x01a\x18\x09", "has the type 9, expected 1 to 6"),
            (b"\x0A\x08\x0A\x01a\x15\x00\x00\xC0\x7F", "has the score NaN"),
            (b"\x0A\x02\x18\x01", "piece 0 of the SentencePiece model is empty"),
        ] {
            let error = read(bytes).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Format);
            assert!(error.message.contains(part), "{error}");
        }
    }

    #[test]
    fn text_files_are_no_models() {
        for bytes in [
            &b"\n{\n  \"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"model\": {}}"[..],
            b"\nIQ== 0\n",
            b"",
            b"\n",
        ] {
            assert!(!is_model(bytes), "{bytes:?}");
        }
        assert!(is_model(b"\x0A\x05\x0A\x01a\x18\x02"));
    }
}
