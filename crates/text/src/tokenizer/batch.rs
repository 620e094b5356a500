//! Encodes many texts on several threads: a free thread takes the next few.

use super::Tokenizer;
use crate::{Result, cancel, parallel};

/// The number of texts that a thread takes at a time.
const SHARE: usize = 16;

pub fn encode<T: AsRef<str> + Sync>(
    tokenizer: &Tokenizer,
    texts: &[T],
    n_threads: usize,
) -> Result<Vec<Vec<u32>>> {
    let shares = texts.chunks(SHARE).enumerate();
    let start = || tokenizer.encoder();
    let made = parallel::each_with("forebay-encode", shares, n_threads, start, |encoder, (share, texts)| {
        let encoded = (share * SHARE..).zip(texts).map(|(row, text)| {
            let mut ids = Vec::new();
            if !cancel::is_stopped() {
                encoder.encode_ordinary(text.as_ref(), &mut ids).map_err(|error| error.at_row(row as u64))?;
                ids.shrink_to_fit();
            }
            Ok(ids)
        });
        encoded.collect::<Result<Vec<_>>>()
    })?;
    Ok(made.into_iter().flatten().collect())
}
