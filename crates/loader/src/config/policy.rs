//! The parameters of the policy for failed records, for recordings and documents.

use super::{shown, table::one_of};
use crate::engine::{MaxErrors, Policy};

/// The user's values of the parameters for failed records.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyConfig {
    /// The policy for a bad record: `skip` or `raise`.
    pub on_error: String,
    /// The policy for a record that the system failed to read: `raise` or `skip`.
    pub on_io_error: String,
    /// How many different records may fail on this rank; no bound if not given.
    pub max_errors: Option<MaxErrors>,
    /// How many consecutive positions may have a failed record; no bound if not given.
    pub max_consecutive_errors: Option<i64>,
}

impl Default for PolicyConfig {
    fn default() -> Self {
        Self {
            on_error: "skip".into(),
            on_io_error: "raise".into(),
            max_errors: None,
            max_consecutive_errors: None,
        }
    }
}

impl PolicyConfig {
    /// The policy, without excluded rows; adds a problem for each value out of range.
    pub fn check(&self, problems: &mut Vec<String>) -> Policy {
        for (name, value) in [("on_error", &self.on_error), ("on_io_error", &self.on_io_error)] {
            problems.extend(one_of(name, value, &["skip", "raise"]));
        }
        match self.max_errors {
            Some(MaxErrors::Count(n)) if n < 0 => {
                problems.push(format!("max_errors is {}, must be 0 or more", shown(n)));
            }
            // A share of 1.0 would be no bound, and a user might mean one error.
            Some(MaxErrors::Share(share)) if !(share > 0.0 && share < 1.0) => problems.push(format!(
                "max_errors is {share:?}, must be between 0.0 and 1.0 as a share of the records, or a whole number of them"
            )),
            _ => {}
        }
        if let Some(n) = self.max_consecutive_errors.filter(|&n| n < 1) {
            problems.push(format!("max_consecutive_errors is {}, must be 1 or more", shown(n)));
        }
        Policy {
            skip_bad: self.on_error == "skip",
            skip_io: self.on_io_error == "skip",
            max_errors: self.max_errors,
            max_consecutive_errors: self.max_consecutive_errors.map(|n| n.max(1) as u64),
            ..Policy::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_problem_is_told() {
        let config = PolicyConfig {
            on_error: "ignore".into(),
            on_io_error: "retry".into(),
            max_errors: Some(MaxErrors::Share(1.0)),
            max_consecutive_errors: Some(0),
        };
        let mut problems = Vec::new();
        config.check(&mut problems);
        assert_eq!(
            problems,
            [
                "on_error is \"ignore\", must be \"skip\" or \"raise\"",
                "on_io_error is \"retry\", must be \"skip\" or \"raise\"",
                "max_errors is 1.0, must be between 0.0 and 1.0 as a share of the records, or a whole number of them",
                "max_consecutive_errors is 0, must be 1 or more",
            ]
        );
    }
}
