//! The memory that a configuration may hold, part by part, and its fit to a budget.
//!
//! A pure function of the [`Plan`] and of sizes that are known once the files are open. A part's bytes are
//! its upper bound. Automatic numbers are chosen such that all parts together fit ([`fit`]). Explicit numbers
//! are never changed: if they do not fit, the error lists every part with the parameter to lower.
//! `docs/tuning.md` lists what is not counted: the interpreter, batches that the caller keeps, decompressed
//! record batches, and the part of a single recording beyond one and a half times the bytes of the channel.
//! (Recordings above [`SMALL_READ`](crate::contract::SMALL_READ) count in the channel from before they are
//! read.)

mod machine;

use crate::{
    Error, ErrorKind, Result,
    engine::{AUTO_PREFETCH, Plan, credit_ahead},
    storage::{BLOCKS_AHEAD, MOST_REQUESTED, scattered_readers},
};

/// The memory of one thread: a small record, decoders, plans, scratch, a stack.
pub const THREAD_BYTES: u64 = 30 << 20;
/// The memory of one I/O thread: one read and the thread itself.
const READ_BYTES: u64 = 5 << 20;
/// The default bytes of the channel.
pub const RAW_CHANNEL_BYTES: u64 = 512 << 20;
/// The least bytes of the channel that [`fit`] chooses.
const LEAST_CHANNEL_BYTES: u64 = 32 << 20;
/// The most bytes of memory per byte of a record: blocks are powers of two. Large records are counted at
/// their size; half of the channel's bytes and one such record may be held.
const BLOCK_FACTOR: u64 = 2;
/// Unused blocks that are kept (`crates/storage/src/block.rs`).
const RESTING_BLOCKS: u64 = 64 << 20;
/// The most buffers of consumed examples that are kept: a fraction of the shuffle buffer.
pub const SPARE_EXAMPLES: u64 = 256;
/// Batches whose memory is kept in addition to the ones made ahead: one that the loader holds, three that the
/// caller holds. So a consumer that was slow maps no new memory when it is fast again.
const SPARE_BATCHES: usize = 4;
/// Window, read-ahead and demand store one ticket each per slot of the window.
const SLOT_BYTES: u64 = 24;

/// Sizes that are not in the plan.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    pub example: u64,
    pub batch: u64,
    pub rows: u64,
    /// Recordings that each worker reads itself: one for each step that reads others, and those of a row but
    /// for its first.
    pub readings: u64,
    /// Bytes of a worker for the convolutions of a `Reverb`.
    pub reverb: u64,
    /// Bytes of a worker for the waveforms of a row with several recordings.
    pub waveforms: u64,
    /// Sources that are read by URL.
    pub remote: u64,
}

/// A part of a loader's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
struct MemoryPart {
    bytes: u64,
    what: String,
    lower: &'static str,
}

/// The most batches whose memory a loader keeps if it makes `ahead` of them: these, and released ones.
pub fn batch_slots(ahead: usize) -> usize {
    ahead.saturating_add(SPARE_BATCHES)
}

/// The parts of the memory that a plan may hold, the largest first.
fn parts(plan: &Plan, sizes: Sizes) -> Vec<MemoryPart> {
    let Plan { n_workers, n_readers, prefetch_batches, channel_bytes, .. } = *plan;
    let n_reads = match plan.is_scattered() {
        true => scattered_readers(n_readers, sizes.remote > 0),
        false => n_readers.min(BLOCKS_AHEAD),
    };
    let window = plan.window.min(sizes.rows);
    let n_streams = plan.n_streams.unwrap_or(plan.world_size).div_ceil(plan.world_size).max(1);
    let credit = plan.buffer_size.max(window + 8 * n_workers as u64 * n_streams);
    // A finite pass has no more than its rows.
    let examples = if plan.infinite { credit } else { credit.min(sizes.rows) };
    let batches = batch_slots(prefetch_batches) as u64;
    let threads = n_workers + 1;
    let part = |bytes: Option<u64>, what: String, lower| MemoryPart {
        bytes: bytes.unwrap_or(u64::MAX),
        what,
        lower,
    };
    let mut parts = vec![
        part(
            examples.checked_mul(sizes.example),
            format!("{examples} decoded examples of {}", sizes.example),
            "shuffle_buffer_size and shuffle_min_size",
        ),
        part(
            SPARE_EXAMPLES.min(examples).checked_mul(sizes.example),
            format!("{} spare examples", SPARE_EXAMPLES.min(examples)),
            "the size of an example",
        ),
        part(
            batches.checked_mul(sizes.batch),
            format!("{batches} batches of {}", sizes.batch),
            "batch_size or prefetch_batches",
        ),
        part(
            (channel_bytes as u64).checked_mul(BLOCK_FACTOR),
            format!("records of {channel_bytes} that wait for workers, in blocks"),
            "raw_channel_bytes",
        ),
        part(Some(RESTING_BLOCKS), "unused blocks".into(), "nothing"),
        part(
            (threads as u64).checked_mul(THREAD_BYTES),
            format!("{threads} threads of {THREAD_BYTES}"),
            "n_workers",
        ),
        part(
            (n_workers as u64).checked_mul(sizes.readings).and_then(|n| n.checked_mul(THREAD_BYTES)),
            format!("{} more recordings for {n_workers} threads of {THREAD_BYTES}", sizes.readings),
            "n_workers",
        ),
        part(
            (n_workers as u64).checked_mul(sizes.reverb),
            format!("reverberation for {n_workers} threads of {}", sizes.reverb),
            "n_workers or clip_seconds",
        ),
        part(
            (n_workers as u64).checked_mul(sizes.waveforms),
            format!("waveforms of a row for {n_workers} threads of {}", sizes.waveforms),
            "n_workers or clip_seconds",
        ),
        part(
            sizes.remote.checked_mul(MOST_REQUESTED),
            format!("requested ahead of time of {} sources by URL", sizes.remote),
            "nothing",
        ),
        part(
            (n_reads as u64).checked_mul(READ_BYTES),
            format!("{n_reads} reads of {READ_BYTES} in flight"),
            "n_readers",
        ),
        part(window.checked_mul(SLOT_BYTES), format!("a window of {window}"), "shuffle_min_size"),
    ];
    parts.retain(|part| part.bytes > 0);
    parts.sort_by_key(|part| std::cmp::Reverse(part.bytes));
    parts
}

/// The most bytes that a plan may hold.
pub fn total(plan: &Plan, sizes: Sizes) -> u64 {
    parts(plan, sizes).iter().fold(0, |sum, part| sum.saturating_add(part.bytes))
}

/// The size above which a loader logs what it plans to hold; less on a machine with little memory.
const LARGE_PLAN: u64 = 2 << 30;

/// Logs what a plan will usually hold, if that is large: the decoded examples of its window and a little
/// read-ahead, and its batches. [`total`] is the upper bound, with all read-ahead that is allowed.
pub fn log_large(plan: &Plan, sizes: Sizes) {
    let is_mixed = plan.order.is_streamed() && !plan.batching.is_cut();
    let window = if is_mixed { plan.window.min(sizes.rows) } else { 1 };
    let examples = window + credit_ahead(plan.n_readers, plan.on_hand(), plan.batching.most_rows() as u64);
    let examples = examples.min(plan.buffer_size);
    let examples = if plan.infinite { examples } else { examples.min(sizes.rows) };
    let batches = batch_slots(plan.prefetch_batches) as u64;
    let planned = examples.saturating_mul(sizes.example).saturating_add(batches.saturating_mul(sizes.batch));
    let usable = machine::usable();
    let quarter = usable.map_or(u64::MAX, |usable| usable / 4);
    if planned <= LARGE_PLAN.min(quarter) {
        return;
    }
    let megabytes = |bytes: u64| bytes.div_ceil(1_000_000);
    let of = usable.map_or(String::new(), |usable| format!(" of the {} MB here", megabytes(usable)));
    let message = format!(
        "this loader plans to hold {} MB{of}: {examples} decoded examples of {} kB, and {batches} batches of {} MB; lower \
         shuffle_min_size, shuffle_buffer_size, batch_size or the size of an example, or set memory_budget",
        megabytes(planned),
        sizes.example.div_ceil(1000),
        megabytes(sizes.batch),
    );
    if planned > quarter {
        log::warn!("{message}");
    } else {
        log::info!("{message}");
    }
}

/// Chooses the automatic numbers such that the plan holds at most `budget` bytes: first workers, then batches
/// ahead, then bytes of the channel if `channel_is_free`, each as many as planned if they fit.
///
/// # Errors
/// [`ErrorKind::Config`] if the plan does not fit with the smallest of these numbers: the message lists all
/// parts.
pub fn fit(plan: &mut Plan, sizes: Sizes, budget: u64, channel_is_free: bool) -> Result<()> {
    let planned = plan.clone();
    if plan.auto.workers {
        plan.n_workers = 1;
    }
    if plan.auto.prefetch {
        plan.prefetch_batches = AUTO_PREFETCH[0].min(planned.prefetch_batches);
    }
    if channel_is_free {
        plan.channel_bytes = planned.channel_bytes.min(LEAST_CHANNEL_BYTES as usize);
    }
    let least = total(plan, sizes);
    if least > budget {
        let parts: Vec<String> = parts(plan, sizes)
            .into_iter()
            .map(|MemoryPart { bytes, what, lower }| match lower {
                "nothing" => format!("{bytes} for {what}"),
                _ => format!("{bytes} for {what} (lower {lower})"),
            })
            .collect();
        return Err(Error::new(
            ErrorKind::Config,
            format!(
                "memory_budget is {budget} bytes, but this configuration may hold {least}: {}; lower these parameters, \
                 the first ones first, or raise memory_budget",
                parts.join(", ")
            ),
        ));
    }
    let mut grow = |most: usize, of: fn(&mut Plan) -> &mut usize| {
        while *of(plan) < most {
            *of(plan) += 1;
            if total(plan, sizes) > budget {
                *of(plan) -= 1;
                break;
            }
        }
    };
    grow(planned.n_workers, |plan| &mut plan.n_workers);
    grow(planned.prefetch_batches, |plan| &mut plan.prefetch_batches);
    let left = (budget - total(plan, sizes)) / BLOCK_FACTOR;
    plan.channel_bytes = (plan.channel_bytes + left as usize).min(planned.channel_bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        LoaderConfig,
        config::CountOrAuto,
        engine::Auto,
        order::{Batching, Bins, Buckets, Budget},
    };
    use proptest::prelude::*;
    use std::sync::Arc;

    const SIZES: Sizes = Sizes {
        example: 256_512,
        batch: 18_468_864,
        rows: 1 << 30,
        readings: 0,
        reverb: 0,
        waveforms: 0,
        remote: 0,
    };

    fn default_plan(auto: Auto) -> Plan {
        let auto_or = |is_auto, n| if is_auto { CountOrAuto::Auto } else { CountOrAuto::Exactly(n) };
        let config = LoaderConfig {
            n_workers: auto_or(auto.workers, 8),
            cpu_budget: auto.workers.then_some(8),
            prefetch_batches: auto_or(auto.prefetch, 3),
            ..LoaderConfig::default()
        };
        config.check().unwrap().0
    }

    #[test]
    fn the_default_needs_four_gigabytes() {
        let plan = default_plan(Auto::default());
        let expected = 10_000 * 256_512
            + 256 * 256_512
            + 7 * 18_468_864
            + 2 * (512 << 20)
            + (64 << 20)
            + 9 * (30 << 20)
            + 16 * (5 << 20)
            + 24 * 8000;
        // The window and the workers' records, 8000 + 64, are less than the buffer's 10 000.
        assert_eq!(total(&plan, SIZES), expected);
    }

    #[test]
    fn batches_by_duration_are_read_row_by_row() {
        let budget =
            Budget { max_duration: 60.0, quadratic_duration: None, max_examples: None, max_tokens: None };
        let lengths: Arc<[f32]> = vec![1.0; 100].into();
        let buckets = Buckets::new(lengths.into(), budget, Bins::Number(1), None).unwrap();
        let rows = default_plan(Auto::default());
        let cut = Plan { batching: Batching::Cuts(Arc::new(buckets)), ..rows.clone() };
        let more = scattered_readers(cut.n_readers, false) - BLOCKS_AHEAD;
        assert!(more > 0);
        assert_eq!(total(&cut, SIZES), total(&rows, SIZES) + more as u64 * READ_BYTES);
    }

    #[test]
    fn what_does_not_fit_is_listed() {
        let error = fit(&mut default_plan(Auto::default()), SIZES, 1 << 30, true).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Config);
        let parts = [
            "memory_budget is 1073741824 bytes, but this configuration may hold 3",
            "2565120000 for 10000 decoded examples of 256512 (lower shuffle_buffer_size and shuffle_min_size), ",
            "283115520 for 9 threads of 31457280 (lower n_workers), ",
            "129282048 for 7 batches of 18468864 (lower batch_size or prefetch_batches), ",
            "67108864 for unused blocks, ",
        ];
        for part in parts {
            assert!(error.message.contains(part), "{part:?} missing in: {error}");
        }
    }

    #[test]
    fn a_channel_that_nobody_asked_for_shrinks() {
        let mut plan = default_plan(Auto::default());
        fit(&mut plan, SIZES, 3300 << 20, true).unwrap();
        assert!((32 << 20..512 << 20).contains(&plan.channel_bytes), "{}", plan.channel_bytes);
        assert!(fit(&mut default_plan(Auto::default()), SIZES, 3300 << 20, false).is_err());
        fit(&mut plan, SIZES, 1 << 40, true).unwrap();
    }

    #[test]
    fn a_finite_pass_holds_no_more_than_its_rows() {
        let plan = Plan { infinite: false, ..default_plan(Auto::default()) };
        let few = Sizes { rows: 100, ..SIZES };
        assert!(total(&plan, few) < total(&Plan { infinite: true, ..plan.clone() }, few));
        fit(&mut plan.clone(), few, 1 << 30, true).unwrap();
    }

    proptest! {
        #[test]
        fn what_fits_fits_and_keeps_what_was_asked_for(
            workers: bool, prefetch: bool, channel: bool, budget in 0u64..8 << 30, rows in 1u64..20_000,
        ) {
            let planned = default_plan(Auto { workers, prefetch });
            let sizes = Sizes { rows, ..SIZES };
            let mut plan = planned.clone();
            match fit(&mut plan, sizes, budget, channel) {
                Err(_) => prop_assert!(budget < total(&planned, sizes)),
                Ok(()) => {
                    prop_assert!(total(&plan, sizes) <= budget);
                    prop_assert!(workers || plan.n_workers == planned.n_workers);
                    prop_assert!(prefetch || plan.prefetch_batches == planned.prefetch_batches);
                    prop_assert!(channel || plan.channel_bytes == planned.channel_bytes);
                    prop_assert!(plan.n_workers >= 1 && plan.prefetch_batches >= 2);
                    if budget >= total(&planned, sizes) {
                        prop_assert_eq!(plan, planned);
                    }
                }
            }
        }
    }
}
