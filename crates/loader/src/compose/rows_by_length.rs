//! [`LengthFilter`]: which rows a loader leaves out because of the length of their recordings and texts.

use std::sync::Arc;

use crate::{
    Error, ErrorKind, LoaderConfig,
    config::WholeConfig,
    error::counted,
    sampling::{
        LeftOut, LengthLimits, Played, RowSeconds, is_length, numbers, within_tokens,
        within_tokens_per_second,
    },
    source::{Recordings, SourceOptions},
    targets::{TargetForm, token_counts},
};

/// The lengths of the rows that are left, as far as they are needed.
#[derive(Default)]
pub(super) struct LengthFilter {
    /// Of whole recordings.
    pub seconds: Option<RowSeconds>,
    /// The tokens of all rows of the source, if they bound batches.
    pub tokens: Option<Vec<u32>>,
    pub left_out: LeftOut,
}

impl LengthFilter {
    /// Those of `rows` that are not left out; `None`: of all. `duration` is the column of seconds, if there
    /// is one, and no clip has fewer than `least_seconds`.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if none is left, or for a column without lengths; as [`RowSeconds::within`] and
    /// [`token_counts`].
    pub(super) fn apply(
        &mut self,
        mut rows: Option<Arc<[u64]>>,
        config: &LoaderConfig,
        (source, duration): (&Recordings, Option<&str>),
        least_seconds: f64,
    ) -> Result<Option<Arc<[u64]>>, Error> {
        let counted = config.counted_target()?;
        let mut rates = Vec::new();
        for target in config.targets.iter().flatten() {
            let TargetForm::Tokens(rule) = &target.form else { continue };
            let is_counted = counted.is_some_and(|(counted, _)| counted.name == target.name);
            if !rule.leaves_out() && !is_counted && rule.most_per_second.is_none() {
                continue;
            }
            let mut counts = token_counts(source, &target.column, rule)?;
            if rule.leaves_out() {
                let (within, n) = within_tokens(source, rows, (target, rule), &counts)?;
                rows = within;
                self.left_out.too_many_tokens += n;
            }
            counts.iter_mut().for_each(|count| *count = rule.tokens_of(*count));
            if let Some(most) = rule.most_per_second {
                // bounded: one for each target that is given.
                rates.push((&*target.name, most, counts.clone()));
            }
            if is_counted {
                self.tokens = Some(counts);
            }
        }
        let Some(whole) = config.whole() else { return Ok(rows) };
        let found = self.seconds.insert(seconds(whole, source, rows, duration, least_seconds)?);
        let LeftOut { too_short, too_long, .. } = found.left_out;
        (self.left_out.too_short, self.left_out.too_long) = (too_short, too_long);
        let mut rows = found.rows().cloned();
        for (name, most, counts) in rates {
            let most_seconds = if whole.rule.cuts_at.is_some() { whole.max_seconds } else { f64::INFINITY };
            let played = Played { seconds: found, most_seconds, fastest: config.fastest() };
            let (within, n) = within_tokens_per_second(rows, (name, most), &counts, played)?;
            rows = within;
            self.left_out.too_many_per_second += n;
        }
        Ok(rows)
    }
}

/// The seconds of those of `rows` that are whole recordings of a length that is allowed; `None`: of all.
fn seconds(
    whole: &WholeConfig,
    source: &Recordings,
    rows: Option<Arc<[u64]>>,
    duration: Option<&str>,
    least_seconds: f64,
) -> Result<RowSeconds, Error> {
    let WholeConfig { duration: named, min_seconds, max_seconds, rule } = whole;
    let limits = LengthLimits {
        // Features make no frame of less.
        min_seconds: min_seconds.max(least_seconds),
        max_seconds: *max_seconds,
        cuts: rule.cuts_at.is_some(),
    };
    let durations = duration.map(|column| numbers(source, column)).transpose()?;
    let has_lengths = |all: &[f64]| all.iter().any(|&seconds| is_length(seconds));
    let durations = durations.filter(|all| named.is_some() || has_lengths(all));
    if durations.as_deref().is_some_and(|all| !has_lengths(all)) {
        let message = "the column that duration names has no number above 0, must have seconds";
        return Err(Error::new(ErrorKind::Config, message));
    }
    RowSeconds::within(source, rows, limits, durations)
}

/// Opens the files, with the column of the seconds of whole recordings: the one that is named, else
/// `duration`, if it has numbers and rows have no start and end.
///
/// # Errors
/// As [`Recordings::open`].
pub(super) fn open_with_durations(
    config: &LoaderConfig,
    options: &SourceOptions,
) -> Result<(Recordings, Option<String>), Error> {
    const USUAL: &str = "duration";
    let open = |options: &SourceOptions| config.arrow_files.open(options);
    match config.whole() {
        None => return Ok((open(options)?, None)),
        Some(WholeConfig { duration: Some(named), .. }) => return Ok((open(options)?, Some(named.clone()))),
        Some(_) => {}
    }
    // It is asked for at once: a table is parsed when it is opened.
    let mut with_usual = options.clone();
    if !with_usual.columns.iter().any(|name| name == USUAL) {
        with_usual.columns.push(USUAL.to_owned());
    }
    let source = match open(&with_usual) {
        Ok(source) => source,
        // The files have no such column, or some of a mixture have not.
        Err(error) if error.kind == ErrorKind::Schema => return Ok((open(options)?, None)),
        Err(error) => return Err(error),
    };
    let is_number = |content: &str| ["float", "int", "uint"].iter().any(|kind| content.starts_with(kind));
    let schema = &source.contents().schema;
    if !schema.iter().any(|column| column.name == USUAL && is_number(&column.content)) {
        return Ok((open(options)?, None));
    }
    let are_segments = source.n_rows() > 0 && source.stated_seconds(0).is_some();
    Ok((source, (!are_segments).then(|| USUAL.to_owned())))
}

/// Logs how many rows are left out.
pub(super) fn tell_of_left_out(left_out: LeftOut, config: &LoaderConfig, least_seconds: f64) {
    let LeftOut { too_short, too_long, too_many_tokens, too_many_per_second } = left_out;
    if let Some(WholeConfig { min_seconds, max_seconds, .. }) = config.whole()
        && too_short + too_long > 0
    {
        log::warn!(
            "{} left out: {too_short} shorter than {}, {too_long} longer than max_seconds={max_seconds:?}",
            counted(too_short + too_long, "row"),
            match least_seconds > *min_seconds {
                true => format!("the {least_seconds:?} s of which the features make a frame"),
                false => format!("min_seconds={min_seconds:?}"),
            }
        );
    }
    if too_many_tokens > 0 {
        log::warn!(
            "{} left out, whose text has more than max_tokens tokens",
            counted(too_many_tokens, "row")
        );
    }
    if too_many_per_second > 0 {
        log::warn!(
            "{} left out, whose text has more than max_per_second tokens for a second",
            counted(too_many_per_second, "row")
        );
    }
}
