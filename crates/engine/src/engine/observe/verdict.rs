//! The verdict on a loader's figures: which stage limits it, and which parameter would change that.
//!
//! A pure function. If the loop seldom waits, the loop is the limit. Otherwise the limit is the stage whose
//! threads work the largest share of the time. If that share is below half, the stages wait for one another
//! or for the cores: a woken thread that does not run yet is waiting, too. The time that the threads were
//! ready and had no core distinguishes the two. The CPU time of the process shows whether other processes use
//! the cores. While many of the workers' examples stay in the shuffle buffer, none of this limits the loader:
//! it waits for the buffer to fill.

use std::ops::Sub;

use crate::contract::{StorageLabels, TaskLabels};

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Spent {
    pub items: u64,
    /// Seconds of work, over all its threads.
    pub busy_s: f64,
    /// Seconds of waiting, over all its threads.
    pub blocked_s: f64,
}

/// What the stages did between two samples.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Figures {
    pub elapsed_s: f64,
    pub read: Spent,
    pub decode: Spent,
    pub collate: Spent,
    /// The consumer: its own work, and its waits in `next()`.
    pub consumer: Spent,
    /// Seconds that workers were awake, over all workers.
    pub workers_s: f64,
    /// Examples taken out of the shuffle buffers.
    pub taken: u64,
    /// Examples in the shuffle buffers at the later sample.
    pub inside: u64,
}

impl Figures {
    /// The share of the workers' time awake that was work.
    pub(crate) fn decoding(&self) -> f64 {
        if self.workers_s > 0.0 { (self.decode.busy_s / self.workers_s).min(1.0) } else { 0.0 }
    }

    /// The share of the workers' examples that were not taken out of the shuffle buffers.
    fn kept(&self) -> f64 {
        let made = self.decode.items;
        if made > 0 { made.saturating_sub(self.taken) as f64 / made as f64 } else { 0.0 }
    }
}

/// What the threads waited for the cores between two samples, where the system tells.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct CoreWaits {
    /// The share of the I/O threads' time in which they were ready to run and had no core.
    pub read: f64,
    /// The same of the workers awake.
    pub decode: f64,
    pub collate: f64,
    /// The same of the consumer's thread; `None` if it was not the same one.
    pub consumer: Option<f64>,
    /// CPU seconds of the process, as a share of what its cores have.
    pub used: f64,
}

/// The configuration that the verdict depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Setting {
    /// I/O threads, once a pass has begun.
    pub n_readers: usize,
    /// The largest useful number of them.
    pub most_readers: usize,
    pub n_workers: usize,
    pub most_workers: usize,
    /// Whether the loader chooses how many of them work.
    pub is_auto: bool,
    /// Cores that the process may use.
    pub cores: usize,
    pub window: u64,
    /// The activity of the workers, and the advice.
    pub words: TaskLabels,
    /// What bounds reads, and the advice.
    pub storage: StorageLabels,
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
            consumer: self.consumer - before.consumer,
            workers_s: self.workers_s - before.workers_s,
            taken: self.taken.saturating_sub(before.taken),
            inside: self.inside,
        }
    }
}

/// The fewest batches for a verdict: the first ones were ready, or include the start.
const FEW: u64 = 4;
/// The share of the loop's time in `next()` up to which the loop is the limit.
const SELDOM: f64 = 0.1;
/// The least share of its time that the limiting stage works.
const MUCH: f64 = 0.5;
/// The share of their time from which threads that wait for a core are slow because of that.
const CROWDED: f64 = 0.2;
/// The share of the cores up to which the process leaves them to others, if its threads wait for a core.
const OWN: f64 = 0.75;
/// The share of the workers' examples that stay in the shuffle buffer, from which on the buffer is filling.
const FILLING: f64 = 0.25;

/// What limits the loader, and what to change. `asked`: whether a batch was ever requested; `cores`: `None`
/// if the system does not tell.
pub(crate) fn verdict(
    asked: bool,
    figures: &Figures,
    cores: Option<&CoreWaits>,
    setting: &Setting,
) -> String {
    if !asked {
        return "idle: no batch was requested yet".into();
    }
    let Figures { elapsed_s, read, collate, consumer, .. } = figures;
    if consumer.items < FEW || *elapsed_s <= 0.0 {
        return "starting: too few batches for a verdict yet".into();
    }
    let starved = consumer.blocked_s / (consumer.blocked_s + consumer.busy_s).max(f64::MIN_POSITIVE);
    let advice = Advice { waits: percent(starved), cores, setting };
    if starved <= SELDOM {
        return advice.consumer_bound();
    }
    let is_filling = match setting.window {
        0 | 1 => figures.kept() >= MUCH,
        window => figures.kept() >= FILLING && figures.inside < window,
    };
    if is_filling {
        return advice.filling(figures);
    }
    let share = |spent: &Spent, threads: usize| spent.busy_s / (elapsed_s * threads as f64);
    let (reading, decoding, collating) =
        (share(read, setting.n_readers), figures.decoding(), share(collate, 1));
    let most = reading.max(decoding).max(collating);
    let worst = |cores: &CoreWaits| cores.decode.max(cores.collate).max(cores.consumer.unwrap_or(0.0));
    match cores.filter(|cores| worst(cores) >= CROWDED) {
        Some(cores) if most < MUCH => advice.too_few_cores(cores),
        None if most < MUCH => advice.buffer_bound(most),
        _ if most == decoding => advice.decode_bound(decoding),
        _ if most == reading => advice.read_bound(reading, decoding),
        _ => advice.collate_bound(collating),
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share.clamp(0.0, 1.0))
}

/// The sentences of the verdicts, one for each limit.
struct Advice<'a> {
    /// The share of the time that `next()` waits.
    waits: String,
    cores: Option<&'a CoreWaits>,
    setting: &'a Setting,
}

impl Advice<'_> {
    /// The value of `n_workers`, not the number of those that are awake.
    fn given_workers(&self) -> usize {
        let Setting { n_workers, most_workers, is_auto, .. } = *self.setting;
        if is_auto { n_workers } else { most_workers }
    }

    /// What to do if other processes keep the cores.
    fn leave_cores(&self) -> String {
        let given = self.given_workers();
        format!("leave cores free for this one; raising n_workers ({given}) gains nothing")
    }

    /// The words for threads that others keep off the cores.
    fn crowded(&self, threads: &str, waited: fn(&CoreWaits) -> f64) -> Option<String> {
        let cores = self.cores.filter(|cores| waited(cores) >= CROWDED && cores.used < OWN)?;
        Some(format!(
            ", but {threads} waited {} of the time for a core: other processes use the machine",
            percent(waited(cores))
        ))
    }

    fn consumer_bound(&self) -> String {
        let (waits, given) = (&self.waits, self.given_workers());
        let fewer = if self.setting.is_auto {
            format!("{} workers are at work", self.setting.n_workers)
        } else {
            format!("fewer n_workers ({given}) may be enough")
        };
        format!(
            "consumer-bound: next() waits {waits} of the time, your loop is the limit; a faster loader saves no more than that, {fewer}"
        )
    }

    fn filling(&self, figures: &Figures) -> String {
        let (waits, kept, inside) = (&self.waits, percent(figures.kept()), figures.inside);
        match self.setting.window {
            0 | 1 => format!(
                "filling: {kept} of the examples that workers made are for later batches, {inside} are ready; next() waits {waits} \
                 of the time"
            ),
            window => format!(
                "filling: {kept} of the examples that workers made stay in the shuffle buffer, which has {inside} of a window of \
                 {window}; next() waits {waits} of the time until it is full, a smaller shuffle_min_size fills sooner"
            ),
        }
    }

    fn too_few_cores(&self, cores: &CoreWaits) -> String {
        let cause = match cores.used < OWN {
            true => format!("other processes use the machine; {}", self.leave_cores()),
            false => format!(
                "this process itself uses {} of its {} cores; give it more cores, or its loop fewer threads",
                percent(cores.used),
                self.setting.cores
            ),
        };
        let consumer =
            cores.consumer.map_or(String::new(), |share| format!(", your loop's thread {}", percent(share)));
        format!(
            "CPU-bound (too few free cores): next() waits {} of the time, and threads that could run wait for a core: workers {} \
             of their time, the collator {}{consumer}; {cause}",
            self.waits,
            percent(cores.decode),
            percent(cores.collate)
        )
    }

    fn buffer_bound(&self, most: f64) -> String {
        format!(
            "buffer-bound: next() waits {} of the time, but no stage works more than {} of it; {}",
            self.waits,
            percent(most),
            self.setting.words.roomier
        )
    }

    fn decode_bound(&self, decoding: f64) -> String {
        let Setting { n_workers, most_workers, cores: n_cores, words, is_auto, .. } = *self.setting;
        let others = self.crowded("workers", |cores| cores.decode);
        let remedy = if others.is_some() {
            self.leave_cores()
        } else if n_workers < most_workers.min(n_cores) {
            format!("{n_workers} workers are at work, up to {most_workers} are added while cores are free")
        } else if n_workers < n_cores {
            let name = if is_auto { "cpu_budget" } else { "n_workers" };
            format!("raise {name} ({n_workers}, of {n_cores} cores)")
        } else {
            let given = self.given_workers();
            format!("n_workers ({given}) uses all {n_cores} cores already: {}", words.cheaper)
        };
        format!(
            "CPU-bound ({}): workers work {} of the time, next() waits {}{}; {remedy}",
            words.work,
            percent(decoding),
            self.waits,
            others.unwrap_or_default()
        )
    }

    fn read_bound(&self, reading: f64, decoding: f64) -> String {
        let Setting { n_readers, most_readers, words, storage: StorageLabels { bound, faster }, .. } =
            *self.setting;
        let remedy = match n_readers < most_readers {
            true => {
                format!("raise n_readers ({n_readers}; up to {most_readers} can read at once), or {faster}")
            }
            false if most_readers == 1 => {
                format!("only one thread can read these shards: {}", words.readable)
            }
            false => format!("n_readers ({n_readers}) is the most that can read at once: {faster}"),
        };
        format!(
            "{bound}: reading takes {} of the time, workers work {}, next() waits {}{}; {remedy}",
            percent(reading),
            percent(decoding),
            self.waits,
            self.crowded("I/O threads", |cores| cores.read).unwrap_or_default()
        )
    }

    fn collate_bound(&self, collating: f64) -> String {
        let others = self.crowded("it", |cores| cores.collate);
        let remedy = match others {
            Some(_) => self.leave_cores(),
            None => self.setting.words.smaller.to_owned(),
        };
        format!(
            "CPU-bound (collating): one thread copies examples into batches {} of the time, next() waits {}{}; {remedy}",
            percent(collating),
            self.waits,
            others.as_deref().unwrap_or_default()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: TaskLabels = TaskLabels {
        work: "decoding",
        readable: "use files without compression",
        smaller: "smaller n_mels",
        ..TaskLabels::DEFAULT
    };

    const SETTING: Setting = Setting {
        n_readers: 1,
        most_readers: 1,
        n_workers: 4,
        most_workers: 4,
        is_auto: false,
        cores: 16,
        window: 8000,
        words: WORDS,
        storage: StorageLabels::LOCAL,
    };

    /// Ten seconds in which the stages' threads worked such shares of the time, and `next()` waited for
    /// `starved` of it.
    fn figures(read: f64, decode: f64, collate: f64, starved: f64) -> Figures {
        let spent = |busy_s: f64, of_s: f64| Spent { items: 100, busy_s, blocked_s: of_s - busy_s };
        Figures {
            elapsed_s: 10.0,
            read: spent(10.0 * read, 10.0),
            decode: spent(40.0 * decode, 40.0),
            collate: spent(10.0 * collate, 10.0),
            consumer: spent(10.0 * (1.0 - starved), 10.0),
            workers_s: 40.0,
            taken: 100,
            inside: 50,
        }
    }

    #[test]
    fn work_for_later_batches_limits_nothing() {
        let filling = Figures { taken: 20, inside: 4100, ..figures(0.1, 0.97, 0.1, 0.9) };
        let crowded = waited(0.3, 0.6, 0.6, 0.6, 0.3);
        for cores in [None, Some(&crowded)] {
            let said = verdict(true, &filling, cores, &SETTING);
            let begin = "filling: 80 % of the examples that workers made stay in the shuffle buffer, which has 4100 of a window \
                         of 8000; next() waits 90 %";
            assert!(said.starts_with(begin) && !said.contains("other processes"), "{said}");
            let scattered = Setting { window: 1, ..SETTING };
            let said = verdict(true, &filling, cores, &scattered);
            assert!(said.contains("4100 are ready") && !said.contains("shuffle_min_size"), "{said}");
        }
        // A loop that hardly waits is the limit, also while the buffer fills.
        let said = verdict(true, &Figures { taken: 20, ..figures(0.1, 0.97, 0.1, 0.05) }, None, &SETTING);
        assert!(said.starts_with("consumer-bound: "), "{said}");
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
            let said = verdict(true, &figures(read, decode, collate, starved), None, &SETTING);
            assert!(said.starts_with(limit) && said.contains(remedy), "{numbers:?}: {said}");
        }
        let storage = StorageLabels { bound: "network-bound", faster: "use a nearer server" };
        let remote = Setting { most_readers: 8, storage, ..SETTING };
        let said = verdict(true, &figures(0.95, 0.9, 0.1, 0.6), None, &remote);
        assert!(
            said.starts_with("network-bound: ") && said.contains("raise n_readers (1; up to 8"),
            "{said}"
        );
        assert!(said.ends_with("or use a nearer server"), "{said}");
    }

    #[test]
    fn advice_is_that_of_the_task() {
        let words = TaskLabels {
            work: "tokenizing",
            cheaper: "cheaper",
            smaller: "smaller",
            readable: "readable",
            roomier: "roomier",
            ..TaskLabels::DEFAULT
        };
        let setting = Setting { cores: 4, words, ..SETTING };
        for (numbers, limit, advice) in [
            ((0.1, 0.97, 0.1, 0.6), "CPU-bound (tokenizing): ", ": cheaper"),
            ((0.95, 0.9, 0.1, 0.6), "I/O-bound: ", ": readable"),
            ((0.2, 0.6, 0.95, 0.3), "CPU-bound (collating): ", "; smaller"),
            ((0.1, 0.2, 0.1, 0.5), "buffer-bound: ", "; roomier"),
        ] {
            let (read, decode, collate, starved) = numbers;
            let said = verdict(true, &figures(read, decode, collate, starved), None, &setting);
            assert!(said.starts_with(limit) && said.ends_with(advice), "{numbers:?}: {said}");
        }
    }

    /// Threads that waited such shares of their time for a core, in a process that used `used` of its cores.
    fn waited(read: f64, decode: f64, collate: f64, consumer: f64, used: f64) -> CoreWaits {
        CoreWaits { read, decode, collate, consumer: Some(consumer), used }
    }

    #[test]
    fn a_loop_that_hardly_waits_is_the_limit_however_busy_the_workers_are() {
        let crowded = waited(0.3, 0.6, 0.6, 0.6, 0.3);
        for cores in [None, Some(&crowded)] {
            for starved in [0.0, 0.06, 0.1] {
                let said = verdict(true, &figures(0.1, 0.97, 0.1, starved), cores, &SETTING);
                assert!(said.starts_with("consumer-bound: ") && !said.contains("make examples"), "{said}");
                assert!(said.contains(&format!("next() waits {:.0} % of", 100.0 * starved)), "{said}");
            }
            let said = verdict(true, &figures(0.1, 0.97, 0.1, 0.11), cores, &SETTING);
            assert!(said.starts_with("CPU-bound (decoding): ") && said.contains("waits 11 %"), "{said}");
        }
    }

    #[test]
    fn the_parameter_is_named_and_not_the_workers_awake() {
        let few = Setting { n_workers: 5, most_workers: 8, cores: 2, ..SETTING };
        for (decode, starved) in [(0.97, 0.6), (0.5, 0.02)] {
            let said = verdict(true, &figures(0.1, decode, 0.1, starved), None, &few);
            assert!(said.contains("n_workers (8)") && !said.contains("(5)"), "{said}");
            let auto =
                verdict(true, &figures(0.1, decode, 0.1, starved), None, &Setting { is_auto: true, ..few });
            assert!(!auto.contains("(8)"), "{auto}");
        }
    }

    #[test]
    fn threads_that_others_keep_off_the_cores_are_named() {
        let all = Setting { n_workers: 4, cores: 4, ..SETTING };
        let cores = waited(0.4, 0.4, 0.3, 0.9, 0.5);
        for (numbers, limit, threads) in [
            (
                (0.1, 0.97, 0.1, 0.6),
                "CPU-bound (decoding): ",
                "but workers waited 40 % of the time for a core",
            ),
            ((0.95, 0.9, 0.1, 0.6), "I/O-bound: ", "but I/O threads waited 40 % of the time for a core"),
            ((0.2, 0.6, 0.95, 0.3), "CPU-bound (collating): ", "but it waited 30 % of the time for a core"),
            (
                (0.1, 0.3, 0.1, 0.9),
                "CPU-bound (too few free cores): ",
                "workers 40 % of their time, the collator 30 %",
            ),
        ] {
            let (read, decode, collate, starved) = numbers;
            let of = figures(read, decode, collate, starved);
            let said = verdict(true, &of, Some(&cores), &all);
            assert!(said.starts_with(limit) && said.contains(threads), "{numbers:?}: {said}");
            assert!(said.contains("other processes use the machine") && !said.contains("cheaper"), "{said}");
            // As before where the system does not tell, and where no thread waited.
            let told =
                [None, Some(&waited(0.1, 0.1, 0.1, 0.1, 0.5))].map(|cores| verdict(true, &of, cores, &all));
            assert!(told[0] == told[1] && !told[0].contains("core:"), "{told:?}");
        }
    }

    #[test]
    fn a_process_that_fills_its_cores_itself_blames_no_other() {
        let own = waited(0.4, 0.4, 0.4, 0.4, 0.98);
        let of = figures(0.1, 0.97, 0.1, 0.6);
        assert_eq!(verdict(true, &of, Some(&own), &SETTING), verdict(true, &of, None, &SETTING));
        let said = verdict(true, &figures(0.1, 0.3, 0.1, 0.6), Some(&own), &SETTING);
        assert!(said.starts_with("CPU-bound (too few free cores): "), "{said}");
        assert!(said.contains("this process itself uses 98 % of its 16 cores"), "{said}");
        assert!(!said.contains("other processes") && !said.contains("shuffle_buffer_size"), "{said}");
    }

    #[test]
    fn one_thread_without_a_core_is_enough_to_slow_the_others() {
        let quiet = CoreWaits { used: 0.3, ..CoreWaits::default() };
        let idle = figures(0.1, 0.3, 0.1, 0.9);
        let said = |cores: CoreWaits| verdict(true, &idle, Some(&cores), &SETTING);
        assert!(said(quiet).starts_with("buffer-bound: "));
        assert!(
            said(CoreWaits { read: 0.9, ..quiet }).starts_with("buffer-bound: "),
            "a dozen share a few reads"
        );
        for one in [
            CoreWaits { decode: CROWDED, ..quiet },
            CoreWaits { collate: CROWDED, ..quiet },
            CoreWaits { consumer: Some(CROWDED), ..quiet },
        ] {
            let said = said(one);
            assert!(said.starts_with("CPU-bound (too few free cores): "), "{said}");
            assert_eq!(said.contains("your loop's thread"), one.consumer.is_some(), "{said}");
        }
    }

    #[test]
    fn the_remedy_knows_the_configuration() {
        let all = Setting { n_workers: 4, cores: 4, ..SETTING };
        let said = verdict(true, &figures(0.1, 0.97, 0.1, 0.6), None, &all);
        assert!(said.contains("make examples cheaper") && !said.contains("raise"), "{said}");
        let auto = Setting { is_auto: true, ..SETTING };
        let said = verdict(true, &figures(0.1, 0.97, 0.1, 0.6), None, &auto);
        assert!(said.contains("raise cpu_budget (4, of 16 cores)"), "{said}");
        let said = verdict(true, &figures(0.1, 0.97, 0.1, 0.6), None, &Setting { most_workers: 8, ..auto });
        assert!(said.contains("4 workers are at work, up to 8"), "{said}");
        let said = verdict(true, &figures(0.1, 0.5, 0.1, 0.01), None, &auto);
        assert!(said.contains("4 workers are at work") && !said.contains("fewer"), "{said}");
        let few = Setting { most_readers: 16, ..SETTING };
        let said = verdict(true, &figures(0.97, 0.2, 0.1, 0.6), None, &few);
        assert!(said.contains("raise n_readers (1; up to 16 can read at once)"), "{said}");
        let said =
            verdict(true, &figures(16.0 * 0.97, 0.2, 0.1, 0.6), None, &Setting { n_readers: 16, ..few });
        assert!(said.contains("faster storage") && !said.contains("raise"), "{said}");
    }

    #[test]
    fn nothing_is_said_before_there_is_something_to_say() {
        assert!(verdict(false, &Figures::default(), None, &SETTING).starts_with("idle"));
        assert!(verdict(true, &Figures::default(), None, &SETTING).starts_with("starting"));
        let mut few = figures(0.1, 0.9, 0.1, 0.9);
        few.consumer.items = FEW - 1;
        assert!(verdict(true, &few, None, &SETTING).starts_with("starting"));
    }

    #[test]
    fn odd_numbers_make_words_as_well() {
        for odd in [0.0, -1.0, 1e300] {
            for cores in [None, Some(&waited(odd, odd, odd, odd, odd))] {
                let said = verdict(true, &figures(odd, odd, odd, odd), cores, &SETTING);
                assert!(said.contains(": ") && !said.contains("NaN %"), "{said}");
            }
        }
    }
}
