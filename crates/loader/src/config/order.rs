//! The order of a loader of recordings: the one that was given, or the default, which depends on how the rows
//! are stored.
//!
//! The default is a pure function of parameters and files, so all ranks and all runs choose the same.

use super::{LoaderConfig, shown};
use crate::{Error, ErrorKind, Result, engine::Plan, order::Order, source::RowStorage, tasks::AudioPlan};

/// An order, and why the loader has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderChoice {
    pub order: Order,
    /// Why it is the default; `None`: it was given.
    pub reason: Option<String>,
}

impl OrderChoice {
    /// In words: `"global (recordings in local files)"`.
    pub fn in_words(&self) -> String {
        let reason = self.reason.as_ref().map_or(String::new(), |reason| format!(" ({reason})"));
        format!("{}{reason}", self.order.name())
    }
}

impl LoaderConfig {
    /// The order that follows from the parameters alone, if it does.
    ///
    /// # Errors
    /// The problem, for an order in which sources cannot be mixed.
    pub(super) fn given_order(&self) -> Result<Option<OrderChoice>, String> {
        let given = |order| Ok(Some(OrderChoice { order, reason: None }));
        let default = |order, reason: &str| Ok(Some(OrderChoice { order, reason: Some(reason.to_owned()) }));
        match self.order.as_deref() {
            Some("sequential") => given(Order::Sequential),
            Some("window") if self.is_mixture() => {
                Err("order is \"window\", but sources can be mixed only in an order with \
                 random access: sequential, global or era"
                    .into())
            }
            Some("global") => given(Order::Global),
            Some("era") => given(Order::Era { length: self.era_length.max(1) as u64 }),
            // The table reports unknown names.
            Some(_) => given(Order::Window),
            None if self.is_mixture() => default(Order::Global, "sources are mixed"),
            None if !self.infinite && self.shuffle_min_size == 0 => {
                default(Order::Sequential, "one pass with shuffle_min_size=0")
            }
            None if self.n_streams.is_some() && self.batching.is_none() => {
                default(Order::Window, "n_streams is given")
            }
            None => Ok(None),
        }
    }

    /// The order over rows that are stored in this way.
    fn order_over(&self, stored: RowStorage) -> Result<OrderChoice, String> {
        if let Some(choice) = self.given_order()? {
            return Ok(choice);
        }
        let RowStorage { rows, in_files, by_url, alone } = stored;
        let least = self.shuffle_min_size;
        let is_few = rows <= u64::try_from(least).unwrap_or_default();
        let (order, reason) = if in_files && !by_url {
            (Order::Global, "recordings in local files".to_owned())
        } else if is_few && alone {
            (Order::Global, format!("{rows} rows, not more than shuffle_min_size, {least}"))
        } else if alone {
            let of = if in_files { "rows by URL" } else { "rows of shards" };
            (Order::Window, format!("{rows} {of}, more than shuffle_min_size, {least}"))
        } else {
            (Order::Window, "compressed shards or Parquet, whose rows are not read one by one".to_owned())
        };
        Ok(OrderChoice { order, reason: Some(reason) })
    }

    /// Chooses the order, once the files are open, and completes the plans with it.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if the order is the window, and it is larger than the shuffle buffer.
    pub fn settle(&self, plan: &mut Plan, audio: &mut AudioPlan, stored: RowStorage) -> Result<OrderChoice> {
        let wrong = |problem| Error::new(ErrorKind::Config, problem);
        let choice = self.order_over(stored).map_err(wrong)?;
        if let Some(problem) = self.window_problem(choice.order) {
            return Err(wrong(problem));
        }
        self.use_order(choice.order, plan);
        audio.augment = audio.augment.anywhere(choice.order.is_scattered());
        Ok(choice)
    }

    /// Sets the order of a plan. Only the order "window" has a window.
    pub(super) fn use_order(&self, order: Order, plan: &mut Plan) {
        plan.order = order;
        plan.window = if order == Order::Window { self.shuffle_min_size.max(1) as u64 } else { 1 };
    }

    /// The problem, if the window does not fit the shuffle buffer.
    pub(super) fn window_problem(&self, order: Order) -> Option<String> {
        (order == Order::Window && self.shuffle_min_size > self.shuffle_buffer_size).then(|| {
            format!(
                "shuffle_min_size is {}, must be at most shuffle_buffer_size, {}: give both, as \
                 shuffle_buffer_size=1000, shuffle_min_size=500",
                shown(self.shuffle_min_size),
                shown(self.shuffle_buffer_size)
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: RowStorage = RowStorage { rows: 100_000, in_files: true, by_url: false, alone: true };
    const SHARDS: RowStorage = RowStorage { in_files: false, ..FILES };

    fn chosen(config: &LoaderConfig, stored: RowStorage) -> String {
        config.order_over(stored).unwrap().in_words()
    }

    #[test]
    fn the_default_depends_on_how_rows_are_stored() {
        let train = LoaderConfig::train();
        let few = |stored| RowStorage { rows: 8000, ..stored };
        let at_urls = |stored| RowStorage { by_url: true, ..stored };
        let together = |stored| RowStorage { alone: false, ..stored };
        for (stored, expected) in [
            (FILES, "global (recordings in local files)"),
            (few(at_urls(FILES)), "global (8000 rows, not more than shuffle_min_size, 8000)"),
            (at_urls(FILES), "window (100000 rows by URL, more than shuffle_min_size, 8000)"),
            (few(SHARDS), "global (8000 rows, not more than shuffle_min_size, 8000)"),
            (
                RowStorage { rows: 8001, ..SHARDS },
                "window (8001 rows of shards, more than shuffle_min_size, 8000)",
            ),
            (
                few(together(SHARDS)),
                "window (compressed shards or Parquet, whose rows are not read one by one)",
            ),
        ] {
            assert_eq!(chosen(&train, stored), expected);
            assert_eq!(chosen(&LoaderConfig { infinite: false, ..train.clone() }, stored), expected);
        }
    }

    #[test]
    fn parameters_come_before_storage() {
        let eval = LoaderConfig::eval();
        assert_eq!(chosen(&eval, FILES), "sequential (one pass with shuffle_min_size=0)");
        let streams = LoaderConfig { n_streams: Some(2), ..LoaderConfig::train() };
        assert_eq!(chosen(&streams, FILES), "window (n_streams is given)");
        for order in ["sequential", "window", "global", "era"] {
            let given = LoaderConfig { order: Some(order.into()), ..LoaderConfig::train() };
            assert_eq!(chosen(&given, FILES), order);
        }
    }

    #[test]
    fn only_the_order_window_has_a_window() {
        let config = LoaderConfig { shuffle_buffer_size: 1000, ..LoaderConfig::train() };
        let (mut plan, mut audio) = config.check().unwrap();
        config.settle(&mut plan, &mut audio, FILES).unwrap();
        assert_eq!((plan.order, plan.window), (Order::Global, 1));
        let error = config.settle(&mut plan, &mut audio, SHARDS).unwrap_err();
        assert!(error.message.contains("shuffle_min_size is 8000, must be at most"), "{error}");
    }
}
