//! The settings of a source: the options of the user, then the environment.

use std::{collections::HashMap, io, path::PathBuf};

use crate::store_options::{StoreOptions, is_endpoint};

/// The beginnings of the variables that are read.
const PREFIXES: [&str; 10] = [
    "AWS_",
    "AZURE_",
    "IDENTITY_ENDPOINT",
    "GOOGLE_",
    "SERVICE_ACCOUNT",
    "HF_",
    "HUGGING",
    "TRANSFORMERS_OFFLINE",
    "HOME",
    "XDG_CACHE_HOME",
];

/// The settings of a source. They are those of the moment at which it was opened.
pub(super) struct Settings {
    pub options: StoreOptions,
    pub variables: HashMap<String, String>,
}

pub(super) fn invalid(message: impl ToString) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message.to_string())
}

impl Settings {
    pub(super) fn here(options: &StoreOptions) -> Self {
        let all = std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
        let known = all.filter(|(name, _)| PREFIXES.iter().any(|prefix| name.starts_with(prefix)));
        let known = known.filter_map(|(name, value)| Some((name, value.into_string().ok()?)));
        Self::new(options, known)
    }

    /// Of these variables. An empty one is none.
    pub(super) fn new(options: &StoreOptions, variables: impl IntoIterator<Item = (String, String)>) -> Self {
        let variables = variables.into_iter().filter(|(_, value)| !value.is_empty()).collect();
        Self { options: options.clone(), variables }
    }

    pub(super) fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    /// The first of several variables that is set, and its name.
    pub(super) fn first<'a>(&'a self, names: &[&'static str]) -> Option<(&'static str, &'a str)> {
        names.iter().find_map(|&name| Some((name, self.variable(name)?)))
    }

    /// A folder named by a variable, with `~` as the home of the user.
    pub(super) fn folder(&self, text: &str) -> PathBuf {
        match (text.strip_prefix("~/"), self.variable("HOME")) {
            (Some(rest), Some(home)) => PathBuf::from(home).join(rest),
            _ => PathBuf::from(text),
        }
    }

    /// The address of the server of a scheme, unless it is the cloud's own.
    ///
    /// # Errors
    /// If it is no address.
    pub(super) fn endpoint(&self, scheme: &str) -> io::Result<Option<&str>> {
        let (option, names): (_, &[&str]) = match scheme {
            "s3" => ("aws_endpoint_url", &["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"]),
            "gs" => ("google_base_url", &["GOOGLE_BASE_URL"]),
            "az" => ("azure_storage_endpoint", &["AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"]),
            "hf" => ("hf_endpoint", &["HF_ENDPOINT"]),
            _ => return Ok(None),
        };
        let given = self.options.get(option).map(|value| (option, value));
        let Some((name, value)) = given.or_else(|| self.first(names)) else { return Ok(None) };
        check_endpoint(name, value).map(|()| Some(value))
    }

    /// An error if a secret of the options is to be that of the environment, which has none.
    pub(super) fn check_withheld(&self, scheme: &str) -> io::Result<()> {
        for name in self.options.withheld(scheme) {
            let variable = name.to_ascii_uppercase();
            if self.variable(&variable).is_none() {
                return Err(invalid(format!(
                    "storage_options has None for {name}, as a pickled loader has in place of its secrets, and the \
                     environment of this process has no {variable}; set it, or pass the option again"
                )));
            }
        }
        Ok(())
    }
}

/// Checks the address of a server, without quoting it.
pub(super) fn check_endpoint(name: &str, endpoint: &str) -> io::Result<()> {
    if is_endpoint(endpoint) && reqwest::Url::parse(endpoint).is_ok() {
        return Ok(());
    }
    Err(invalid(format!(
        "{name} is no address of a server, expected http://HOST or https://HOST, without user or password"
    )))
}
