//! Pieces of the recordings of a shard or a table.

use forebay_audio::AudioDecoder;

use super::{BatchPosition, InputRows};
use crate::{
    Result,
    build::{DocumentPiece, ReadShard, Skips},
    contract::Payload,
    source::{OpenRecording, ReadPayloads, WholeRecord, info_of_row},
};

pub(super) struct RecordingReader<R> {
    reader: R,
    next: u64,
    rows: u64,
    at: BatchPosition,
    /// Determines the length of a recording before the next one is read.
    decoder: AudioDecoder,
}

impl<R: ReadPayloads + 'static> RecordingReader<R> {
    pub(super) fn over(reader: R, rows: u64, skip: u64, at: BatchPosition) -> Box<dyn ReadShard<InputRows>> {
        Box::new(Self { reader, next: skip, rows, at, decoder: AudioDecoder::new() })
    }
}

impl<R: ReadPayloads> ReadShard<InputRows> for RecordingReader<R> {
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
                        && let Ok((info, _)) = info_of_row(recording.info(), record.payload.file.as_deref())
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
