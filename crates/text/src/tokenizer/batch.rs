//! Encodes many texts on several threads: a free thread takes the next few.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
};

use super::{Encoder, Tokenizer};
use crate::{Error, ErrorKind, Result};

/// The number of texts that a thread takes at a time.
const SHARE: usize = 16;

/// The result of a thread: the index of each text with its ids.
type Made = Result<Vec<(usize, Vec<u32>)>>;

pub fn encode<T: AsRef<str> + Sync>(
    tokenizer: &Tokenizer,
    texts: &[T],
    n_threads: usize,
    stop: &AtomicBool,
) -> Result<Vec<Vec<u32>>> {
    let next = AtomicUsize::new(0);
    let work = || share(&mut tokenizer.encoder(), texts, &next, stop);
    let others = n_threads.min(texts.len().div_ceil(SHARE)).saturating_sub(1);
    let made: Vec<Made> = thread::scope(|scope| {
        let spawn = |i| thread::Builder::new().name(format!("forebay-encode-{i}")).spawn_scoped(scope, work);
        let others: Vec<_> = (0..others).filter_map(|i| spawn(i).ok()).collect();
        let own = work();
        let joined = others.into_iter().map(|thread| {
            let lost =
                |_| Err(Error::new(ErrorKind::Panic, "a thread panicked during encoding: a bug of forebay"));
            thread.join().unwrap_or_else(lost)
        });
        std::iter::once(own).chain(joined.collect::<Vec<_>>()).collect()
    });
    // If several texts cannot be encoded, the first is reported.
    if let Some(error) =
        made.iter().filter_map(|made| made.as_ref().err()).min_by_key(|error| error.place.row)
    {
        return Err(error.clone());
    }
    // bounded: by the texts.
    let mut all = vec![Vec::new(); texts.len()];
    for (i, ids) in made.into_iter().flatten().flatten() {
        all[i] = ids;
    }
    Ok(all)
}

fn share<T: AsRef<str>>(encoder: &mut Encoder, texts: &[T], next: &AtomicUsize, stop: &AtomicBool) -> Made {
    let mut made = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let first = next.fetch_add(SHARE, Ordering::Relaxed);
        let Some(some) = texts.get(first..) else { break };
        if some.is_empty() {
            break;
        }
        for (i, text) in (first..).zip(some.iter().take(SHARE)) {
            let mut ids = Vec::new();
            encoder.encode_ordinary(text.as_ref(), &mut ids).map_err(|error| error.at_row(i as u64))?;
            ids.shrink_to_fit();
            made.push((i, ids));
        }
    }
    Ok(made)
}
