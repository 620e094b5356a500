//! Pieces of the recordings of a shard or a table.

use std::sync::Arc;

use forebay_audio::AudioDecoder;

use super::{BatchPosition, InputRows};
use crate::{
    Result,
    build::{DocumentPiece, ReadShard, Skips},
    contract::{Payload, ReadRecords, Source},
    source::{OpenRecording, Recordings, RecordingsReader, WholeRecord, info_of_row},
};

pub(super) struct RecordingReader {
    reader: RecordingsReader,
    next: u64,
    rows: u64,
    at: BatchPosition,
    /// Determines the length of a recording before the next one is read.
    decoder: AudioDecoder,
}

impl RecordingReader {
    pub(super) fn over(
        source: &Arc<Recordings>,
        skip: u64,
        at: BatchPosition,
    ) -> Box<dyn ReadShard<InputRows>> {
        let rows = source.n_rows();
        Box::new(Self { reader: source.reader(), next: skip, rows, at, decoder: AudioDecoder::new() })
    }
}

impl ReadShard<InputRows> for RecordingReader {
    fn next(&mut self, skips: &mut Skips<'_>) -> Result<Option<DocumentPiece<InputRows>>> {
        let limits = self.at.limits;
        let begin = self.next;
        let end = begin.saturating_add(self.at.missing()).min(self.rows);
        let (mut records, mut held) = (Vec::new(), 0u64);
        while self.next < end && held < limits.piece_bytes {
            match self.reader.read(self.next, self.rows - self.next, &WholeRecord::ONCE) {
                Ok(record) => {
                    held = held.saturating_add(record.payload.n_bytes() as u64 + limits.recording_bytes);
                    // A recording that cannot be decoded counts as empty; the decoder reports the error.
                    if limits.second_bytes > 0.0
                        && let Ok(recording) = OpenRecording::open(&mut self.decoder, &record.payload)
                        && let Ok((info, _)) = info_of_row(recording.info(), record.payload.segment())
                    {
                        let seconds = info.seconds();
                        held = held.saturating_add((seconds * limits.second_bytes) as u64);
                    }
                    records.push(record);
                }
                Err(error) => skips.unread(self.next - begin, error)?,
            }
            self.next += 1;
        }
        let n = self.next.saturating_sub(begin);
        let is_last = self.next >= self.rows;
        Ok((n > 0).then(|| self.at.piece(InputRows::Recordings(records), n, is_last)))
    }

    fn part(&self) -> Option<f64> {
        Some(self.next as f64 / self.rows.max(1) as f64)
    }
}
