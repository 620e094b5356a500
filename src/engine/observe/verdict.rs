//! The verdict on a loader's figures: which stage limits it, and which parameter would change that.
//!
//! A pure function. If the loop seldom waits, the loop is the limit. Otherwise the limit is the stage whose
//! threads work the largest share of the time; if that share is below half, the limit is how far the stages
//! may be ahead.

use std::ops::Sub;

/// What one stage did.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Spent {
    /// Finished items.
    pub items: u64,
    /// Seconds of work, over all its threads.
    pub busy_s: f64,
    /// Seconds of waiting, over all its threads.
    pub blocked_s: f64,
}

/// What the stages did between two samples.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Figures {
    /// Seconds between the samples.
    pub elapsed_s: f64,
    /// The I/O threads.
    pub read: Spent,
    /// The workers.
    pub decode: Spent,
    /// The collator.
    pub collate: Spent,
    /// The consumer: its own work, and its waits in `next()`.
    pub assembler: Spent,
    /// Seconds that workers were awake, over all workers.
    pub workers_s: f64,
}

impl Figures {
    /// The share of the workers' time awake that was work.
    pub fn decoding(&self) -> f64 {
        if self.workers_s > 0.0 { (self.decode.busy_s / self.workers_s).min(1.0) } else { 0.0 }
    }
}

/// The configuration that the verdict depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// I/O threads, once a pass has begun.
    pub n_readers: usize,
    /// The largest useful number of them.
    pub most_readers: usize,
    /// Workers awake.
    pub n_workers: usize,
    /// Worker threads.
    pub most_workers: usize,
    /// Whether the loader chooses how many of them work.
    pub is_auto: bool,
    /// Cores that the process may use.
    pub cores: usize,
}

impl Sub for Spent {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            items: self.items.saturating_sub(before.items),
            busy_s: self.busy_s - before.busy_s,
            blocked_s: self.blocked_s - before.blocked_s,
        }
    }
}

impl Sub for Figures {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            elapsed_s: self.elapsed_s - before.elapsed_s,
            read: self.read - before.read,
            decode: self.decode - before.decode,
            collate: self.collate - before.collate,
            assembler: self.assembler - before.assembler,
            workers_s: self.workers_s - before.workers_s,
        }
    }
}

/// The fewest batches for a verdict: the first ones were ready, or include the start.
const FEW: u64 = 4;
/// The share of the loop's time in `next()` up to which the loop is the limit.
const SELDOM: f64 = 0.05;
/// The least share of its time that the limiting stage works.
const MUCH: f64 = 0.5;

/// What limits the loader, and what to change. `asked`: whether a batch was ever requested.
pub fn verdict(asked: bool, figures: &Figures, setting: &Setting) -> String {
    if !asked {
        return "idle: no batch was requested yet".into();
    }
    let Figures { elapsed_s, read, collate, assembler, .. } = figures;
    if assembler.items < FEW || *elapsed_s <= 0.0 {
        return "starting: too few batches for a verdict yet".into();
    }
    let starved = assembler.blocked_s / (assembler.blocked_s + assembler.busy_s).max(f64::MIN_POSITIVE);
    let percent = |share: f64| format!("{:.0} %", 100.0 * share.clamp(0.0, 1.0));
    let waits = percent(starved);
    let Setting { n_workers, most_workers, cores, .. } = *setting;
    if starved <= SELDOM {
        let fewer = if setting.is_auto {
            format!("{n_workers} workers are at work")
        } else {
            format!("fewer n_workers ({n_workers}) may be enough")
        };
        return format!(
            "consumer-bound: next() waits {waits} of the time, your loop is the limit; nothing to change in the loader, {fewer}"
        );
    }
    let share = |spent: &Spent, threads: usize| spent.busy_s / (elapsed_s * threads as f64);
    let (reading, decoding, collating) =
        (share(read, setting.n_readers), figures.decoding(), share(collate, 1));
    let most = reading.max(decoding).max(collating);
    if most < MUCH {
        format!(
            "buffer-bound: next() waits {waits} of the time, but no stage works more than {} of it; raise shuffle_buffer_size, \
             so that more examples can be made ahead",
            percent(most)
        )
    } else if most == decoding {
        let remedy = if n_workers < most_workers.min(cores) {
            format!("{n_workers} workers are at work, up to {most_workers} are added while cores are free")
        } else if n_workers < cores {
            let name = if setting.is_auto { "cpu_budget" } else { "n_workers" };
            format!("raise {name} ({n_workers}, of {cores} cores)")
        } else {
            format!(
                "n_workers ({n_workers}) uses all {cores} cores already: make examples cheaper (sample_rate, clip_seconds, a format \
                 that decodes faster)"
            )
        };
        format!(
            "CPU-bound (decoding): workers work {} of the time, next() waits {waits}; {remedy}",
            percent(decoding)
        )
    } else if most == reading {
        let Setting { n_readers, most_readers, .. } = *setting;
        let remedy = match n_readers < most_readers {
            true => format!(
                "raise n_readers ({n_readers}; up to {most_readers} can read at once), or read from faster storage"
            ),
            false if most_readers == 1 => {
                "only one thread can read these shards: use Arrow files without compression, or faster storage".into()
            }
            false => {
                format!("n_readers ({n_readers}) is the most that can read at once: read from faster storage")
            }
        };
        format!(
            "I/O-bound: reading takes {} of the time, workers work {}, next() waits {waits}; {remedy}",
            percent(reading),
            percent(decoding)
        )
    } else {
        format!(
            "CPU-bound (collating): one thread copies examples into batches {} of the time, next() waits {waits}; make examples \
             smaller (n_mels, clip_seconds, hop_length)",
            percent(collating)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTING: Setting =
        Setting { n_readers: 1, most_readers: 1, n_workers: 4, most_workers: 4, is_auto: false, cores: 16 };

    /// Ten seconds in which the stages' threads worked such shares of the time, and `next()` waited for
    /// `starved` of it.
    fn figures(read: f64, decode: f64, collate: f64, starved: f64) -> Figures {
        let spent = |busy_s: f64, of_s: f64| Spent { items: 100, busy_s, blocked_s: of_s - busy_s };
        Figures {
            elapsed_s: 10.0,
            read: spent(10.0 * read, 10.0),
            decode: spent(40.0 * decode, 40.0),
            collate: spent(10.0 * collate, 10.0),
            assembler: spent(10.0 * (1.0 - starved), 10.0),
            workers_s: 40.0,
        }
    }

    #[test]
    fn each_limit_is_named_with_what_to_change() {
        for (numbers, limit, remedy) in [
            ((0.1, 0.5, 0.1, 0.02), "consumer-bound: ", "fewer n_workers (4)"),
            ((0.1, 0.97, 0.1, 0.6), "CPU-bound (decoding): ", "raise n_workers (4, of 16 cores)"),
            ((0.95, 0.9, 0.1, 0.6), "I/O-bound: ", "without compression"),
            ((0.99, 0.03, 0.01, 0.99), "I/O-bound: ", "without compression"),
            ((0.2, 0.6, 0.95, 0.3), "CPU-bound (collating): ", "n_mels"),
            ((0.1, 0.2, 0.1, 0.5), "buffer-bound: ", "raise shuffle_buffer_size"),
        ] {
            let (read, decode, collate, starved) = numbers;
            let said = verdict(true, &figures(read, decode, collate, starved), &SETTING);
            assert!(said.starts_with(limit) && said.contains(remedy), "{numbers:?}: {said}");
        }
    }

    #[test]
    fn the_remedy_knows_the_configuration() {
        let all = Setting { n_workers: 4, cores: 4, ..SETTING };
        let said = verdict(true, &figures(0.1, 0.97, 0.1, 0.6), &all);
        assert!(said.contains("make examples cheaper") && !said.contains("raise"), "{said}");
        let auto = Setting { is_auto: true, ..SETTING };
        let said = verdict(true, &figures(0.1, 0.97, 0.1, 0.6), &auto);
        assert!(said.contains("raise cpu_budget (4, of 16 cores)"), "{said}");
        let said = verdict(true, &figures(0.1, 0.97, 0.1, 0.6), &Setting { most_workers: 8, ..auto });
        assert!(said.contains("4 workers are at work, up to 8"), "{said}");
        let said = verdict(true, &figures(0.1, 0.5, 0.1, 0.01), &auto);
        assert!(said.contains("4 workers are at work") && !said.contains("fewer"), "{said}");
        let few = Setting { most_readers: 16, ..SETTING };
        let said = verdict(true, &figures(0.97, 0.2, 0.1, 0.6), &few);
        assert!(said.contains("raise n_readers (1; up to 16 can read at once)"), "{said}");
        let said = verdict(true, &figures(16.0 * 0.97, 0.2, 0.1, 0.6), &Setting { n_readers: 16, ..few });
        assert!(said.contains("faster storage") && !said.contains("raise"), "{said}");
    }

    #[test]
    fn nothing_is_said_before_there_is_something_to_say() {
        assert!(verdict(false, &Figures::default(), &SETTING).starts_with("idle"));
        assert!(verdict(true, &Figures::default(), &SETTING).starts_with("starting"));
        let mut few = figures(0.1, 0.9, 0.1, 0.9);
        few.assembler.items = FEW - 1;
        assert!(verdict(true, &few, &SETTING).starts_with("starting"));
    }

    #[test]
    fn odd_numbers_make_words_as_well() {
        for odd in [0.0, -1.0, 1e300] {
            let said = verdict(true, &figures(odd, odd, odd, odd), &SETTING);
            assert!(said.contains(": ") && !said.contains("NaN %"), "{said}");
        }
    }
}
