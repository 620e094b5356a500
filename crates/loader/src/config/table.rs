//! The tables of parameters: one row defines all properties of a parameter.
//!
//! A table is a macro that passes its rows to another macro. [`config_struct`] makes the configuration of
//! them, with defaults, range checks and [`Parameter`]s. `src/python/arguments.rs` makes the docstring, the
//! binding of Python's arguments, pickling and the loader's identity in a state. `docs/tables.py` writes the
//! stub's signatures and the docs' table from the same rows. So a new parameter needs a row and the code
//! that uses it.
//!
//! A row, with clauses in this order:
//!
//! ```text
//! /// The documentation. docs/parameters.md has its first sentence, and those that begin with "True:", "False:",
//! /// "None:" or "`"auto"`:".
//! name: Kind = default, identity, check, eval(value), elsewhere(other, names);
//! ```
//!
//! - `Kind` is a type of [`kind`](super::kind). Without a default the parameter is required.
//! - The identity is the part of a state that depends on the parameter and is compared when the state is
//!   loaded. `state`: the value. `state(keys)`: values derived from it, each by the method of that name.
//!   `data`: the data that it selects, such as the files or their streams. `free`: nothing, so the parameter
//!   may change at a restart. Batches do not depend on it, except for the part that this process gets.
//! - The check is `range(least, most)` for whole numbers, `above(bound)` or `above(bound, most)` for others,
//!   or `one_of` for texts.
//! - `eval` is the value in the preset `eval`.
//! - `elsewhere` lists the parameter's names in other libraries, for the error about an unknown keyword.
//!
//! The row after `"*";` is the first that is keyword-only.

use super::CountOrAuto;
use super::advice::{INSTEAD, nearest};
use crate::error::shown;

/// A default as Python writes it.
#[macro_export]
#[doc(hidden)]
macro_rules! python_literal {
    (true) => {
        "True"
    };
    (false) => {
        "False"
    };
    ($value:tt) => {
        stringify!($value)
    };
}

/// A default as a value of its [`kind`](super::kind).
macro_rules! value {
    (Text $value:tt) => {
        $value.to_owned()
    };
    (OnError $value:tt) => {
        $value.to_owned()
    };
    (CountOrAuto $value:tt) => {
        $crate::config::CountOrAuto::Exactly($value)
    };
    (Augment $value:tt) => {
        $crate::config::AugmentObject::Crop($value)
    };
    (OptionalInt None) => {
        None
    };
    (OptionalFloat $value:tt) => {
        Some($value)
    };
    (OptionalSeed None) => {
        None
    };
    (OptionalText None) => {
        None
    };
    (OptionalMaxErrors None) => {
        None
    };
    (Names None) => {
        None
    };
    ($kind:ident None) => {
        Default::default()
    };
    ($kind:ident) => {
        Default::default()
    };
    ($kind:ident $value:tt) => {
        $value
    };
}

/// The word for a parameter's identity; no other word compiles.
macro_rules! identity_word {
    (state) => {
        "state"
    };
    (data) => {
        "data"
    };
    (free) => {
        "free"
    };
}

/// The texts that a check allows.
macro_rules! choices {
    ([one_of $($choice:literal),+]) => { &[$($choice),+] };
    ($check:tt) => { &[] };
}

/// Adds the message of a failed check to `problems`.
macro_rules! check {
    ($problems:ident, $name:expr, $value:expr, []) => {};
    ($problems:ident, $name:expr, $value:expr, [range $least:expr, $most:expr]) => {
        $problems.extend($crate::config::table::range($name, $value, $least, $most));
    };
    ($problems:ident, $name:expr, $value:expr, [above $bound:literal]) => {
        let expected = concat!("above ", stringify!($bound));
        $problems.extend($crate::config::table::above(
            $name,
            $value,
            $bound as f64,
            f64::INFINITY,
            expected,
        ));
    };
    ($problems:ident, $name:expr, $value:expr, [above $bound:literal, $most:literal]) => {
        let expected = concat!("above ", stringify!($bound), " and at most ", stringify!($most));
        $problems.extend($crate::config::table::above($name, $value, $bound as f64, $most as f64, expected));
    };
    ($problems:ident, $name:expr, $value:expr, [one_of $($choice:literal),+]) => {
        $problems.extend($crate::config::table::one_of($name, $value, &[$($choice),+]));
    };
}

/// Passes the rows of a table, in a form that is easy to match, to the macro `$with`.
#[macro_export]
#[doc(hidden)]
macro_rules! parameter_table {
    ($with:ident $(#[$attribute:meta])* struct $config:ident as $class:literal { $(
        $($star:literal;)?
        $(#[doc = $doc:literal])+
        $name:ident: $kind:ident $(= $default:tt)?, $identity:ident $(($($key:ident),+))?
        $(, range($least:expr, $most:expr))? $(, above($bound:literal $(, $highest:literal)?))?
        $(, one_of($($choice:literal),+))? $(, eval($eval:tt))? $(, elsewhere($($other:ident),+))?;
    )+ }) => {
        $with! { [$(#[$attribute])*] $config $class $({
            [$($star)?] [$($doc)+] $name $kind [$($default)?] $identity [$($($key)+)?]
            [$(range $least, $most)? $(above $bound $(, $highest)?)? $(one_of $($choice),+)?]
            [$($eval)?] [$($($other)+)?]
        })+ }
    };
}

/// The configuration of a table's rows.
macro_rules! config_struct {
    ([$($attribute:tt)*] $config:ident $class:literal $({
        [$($star:literal)?] [$($doc:literal)+] $name:ident $kind:ident [$($default:tt)?] $identity:ident
        [$($key:ident)*] [$($check:tt)*] [$($eval:tt)?] [$($other:ident)*]
    })+) => {
        $($attribute)*
        pub struct $config {
            $($(#[doc = $doc])+ pub $name: $crate::config::kind::$kind,)+
        }

        impl Default for $config {
            fn default() -> Self {
                Self { $($name: value!($kind $($default)?),)+ }
            }
        }

        impl $config {
            /// The parameters, in the order of the signature.
            pub const TABLE: $crate::config::ParameterTable = $crate::config::ParameterTable {
                class: $class,
                parameters: &[$($crate::config::Parameter {
                    name: stringify!($name),
                    starts_keywords: first(&[$($star)?]).is_some(),
                    docs: concat!($($doc, "\n"),+),
                    kind: $crate::kind_text!(docs $kind),
                    annotation: $crate::kind_text!(stub $kind),
                    default: first(&[$($crate::python_literal!($default))?]),
                    eval: first(&[$($crate::python_literal!($eval))?]),
                    choices: choices!([$($check)*]),
                    identity: identity_word!($identity),
                    keys: &[$(stringify!($key)),*],
                    elsewhere: &[$(stringify!($other)),*],
                }),+],
            };

            /// A message for each parameter that is out of range by itself.
            pub(crate) fn problems(&self) -> Vec<String> {
                let mut problems = Vec::new();
                $(check!(problems, stringify!($name), &self.$name, [$($check)*]);)+
                problems
            }
        }
    };
}

/// The configuration of the preset `eval`.
macro_rules! eval_preset {
    ([$($attribute:tt)*] $config:ident $class:literal $({
        [$($star:literal)?] [$($doc:literal)+] $name:ident $kind:ident [$($default:tt)?] $identity:ident
        [$($key:ident)*] [$($check:tt)*] [$($eval:tt)?] [$($other:ident)*]
    })+) => {
        impl $config {
            /// The preset for evaluation: one pass in order, center crops, buffers small enough beside a
            /// training loader.
            pub fn eval() -> Self {
                let mut eval = Self::default();
                $($(eval.$name = value!($kind $eval);)?)+
                eval
            }
        }
    };
}

pub(super) use {check, choices, config_struct, eval_preset, identity_word, value};

/// One parameter: a row of a table.
#[derive(Debug, Clone, Copy)]
pub struct Parameter {
    pub name: &'static str,
    /// Whether this and all later parameters are keyword-only.
    pub starts_keywords: bool,
    /// The documentation, lines with a leading space.
    pub docs: &'static str,
    /// The type, for the documentation.
    pub kind: &'static str,
    /// The type, for the stub.
    pub annotation: &'static str,
    /// The default as Python writes it; none if the parameter is required.
    pub default: Option<&'static str>,
    /// The value in the preset `eval`, if it differs from the default.
    pub eval: Option<&'static str>,
    /// The allowed texts of a `one_of` check.
    pub choices: &'static [&'static str],
    /// `state`, `data` or `free`.
    pub identity: &'static str,
    /// The entries of a state that are derived from the parameter; empty if the entry is the value itself.
    pub keys: &'static [&'static str],
    /// The parameter's names in other libraries.
    pub elsewhere: &'static [&'static str],
}

#[derive(Debug, Clone, Copy)]
pub struct ParameterTable {
    pub class: &'static str,
    /// The parameters in the order of the signature.
    pub parameters: &'static [Parameter],
}

impl ParameterTable {
    /// How many parameters may be given by position.
    pub fn n_positional(&self) -> usize {
        let first = self.parameters.iter().position(|parameter| parameter.starts_keywords);
        first.unwrap_or(self.parameters.len())
    }

    /// The advice for an unknown keyword: the parameters with this name in other libraries, what replaces a
    /// parameter that there is not, or the parameter with the most similar name.
    pub fn advice(&self, unknown: &str) -> String {
        let known: Vec<_> = self.parameters.iter().filter(|one| one.elsewhere.contains(&unknown)).collect();
        if !known.is_empty() {
            let names: Vec<_> = known.iter().map(|one| one.name).collect();
            return format!("use {} instead", names.join(" and "));
        }
        let is_meant = |(classes, names, _): &&(&[&str], &[&str], &str)| {
            names.contains(&unknown) && (classes.is_empty() || classes.contains(&self.class))
        };
        match INSTEAD.iter().find(is_meant) {
            Some((.., advice)) => (*advice).to_owned(),
            None => nearest(&self.path(), self.parameters.iter().map(|one| one.name), unknown),
        }
    }

    /// The class as users import it.
    fn path(&self) -> String {
        let module = if self.class == "DataLoader" { "forebay.cache" } else { "forebay" };
        format!("{module}.{}", self.class)
    }
}

/// The first item, if there is one.
pub(super) const fn first(items: &[&'static str]) -> Option<&'static str> {
    match items {
        [item, ..] => Some(item),
        [] => None,
    }
}

/// A whole number, if one is given.
pub(super) trait Whole {
    fn whole(&self) -> Option<i64>;
}

impl Whole for i64 {
    fn whole(&self) -> Option<i64> {
        Some(*self)
    }
}

impl Whole for Option<i64> {
    fn whole(&self) -> Option<i64> {
        *self
    }
}

impl Whole for CountOrAuto {
    fn whole(&self) -> Option<i64> {
        match self {
            Self::Exactly(n) => Some(*n),
            Self::Auto => None,
        }
    }
}

/// A number, if one is given.
pub(super) trait OptionalNumber {
    const IS_OPTIONAL: bool;

    fn number(&self) -> Option<f64>;
}

impl OptionalNumber for f64 {
    const IS_OPTIONAL: bool = false;

    fn number(&self) -> Option<f64> {
        Some(*self)
    }
}

impl OptionalNumber for Option<f64> {
    const IS_OPTIONAL: bool = true;

    fn number(&self) -> Option<f64> {
        *self
    }
}

/// A text, if one is given.
pub(super) trait Text {
    const IS_OPTIONAL: bool;

    fn text(&self) -> Option<&str>;
}

impl Text for String {
    const IS_OPTIONAL: bool = false;

    fn text(&self) -> Option<&str> {
        Some(self)
    }
}

impl Text for Option<String> {
    const IS_OPTIONAL: bool = true;

    fn text(&self) -> Option<&str> {
        self.as_deref()
    }
}

/// The message for a whole number that is out of range.
pub(super) fn range(name: &str, value: &impl Whole, least: i64, most: i64) -> Option<String> {
    let value = value.whole().filter(|value| !(least..=most).contains(value))?;
    Some(format!("{name} is {}, must be {least} to {most}", shown(value)))
}

/// The message for a number that is not above `bound`, or above `most`.
pub(super) fn above<N: OptionalNumber>(
    name: &str,
    value: &N,
    bound: f64,
    most: f64,
    expected: &str,
) -> Option<String> {
    let value = value.number().filter(|&value| !(value > bound && value <= most))?;
    let or_none = if N::IS_OPTIONAL { ", or None" } else { "" };
    Some(format!("{name} is {value:?}, must be {expected}{or_none}"))
}

/// The message for a text that is not one of `choices`.
pub(super) fn one_of<T: Text>(name: &str, value: &T, choices: &[&str]) -> Option<String> {
    let value = value.text().filter(|value| !choices.contains(value))?;
    let quoted: Vec<_> = choices.iter().map(|choice| format!("{choice:?}")).collect();
    let expected = match &*quoted {
        [all @ .., last] if !all.is_empty() => format!("{} or {last}", all.join(", ")),
        all => all.join(""),
    };
    let or_none = if T::IS_OPTIONAL { ", or None" } else { "" };
    Some(format!("{name} is {value:?}, must be {expected}{or_none}"))
}

#[cfg(test)]
mod tests;
