//! What a user passes of stores: `storage_options=`, by the names of the clouds' own tools.
//!
//! Options override the environment. A secret among them is never printed and never pickled: a copy has None
//! in its place, which stands for the variable of the environment.

use std::{collections::BTreeMap, fmt, sync::Arc};

struct KnownOption {
    /// The scheme of the URLs that it is for.
    scheme: &'static str,
    /// The name, in lower case that of the variable of the environment.
    name: &'static str,
    also: &'static [&'static str],
    kind: OptionKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OptionKind {
    Text,
    /// A text of [`NAME`].
    Name,
    Path,
    /// The address of a server.
    Endpoint,
    /// "true" or "false".
    Flag,
    /// A text that is part of a credential.
    Secret,
}

const fn known(
    scheme: &'static str,
    name: &'static str,
    also: &'static [&'static str],
    kind: OptionKind,
) -> KnownOption {
    KnownOption { scheme, name, also, kind }
}

const KNOWN: [KnownOption; 27] = [
    // The id is withheld like its key, so that a copy never has one of them alone.
    known("s3", "aws_access_key_id", &["access_key_id"], OptionKind::Secret),
    known("s3", "aws_secret_access_key", &["secret_access_key"], OptionKind::Secret),
    known("s3", "aws_session_token", &["session_token"], OptionKind::Secret),
    known("s3", "aws_profile", &["profile"], OptionKind::Text),
    known("s3", "aws_region", &["region", "region_name", "aws_default_region"], OptionKind::Name),
    known(
        "s3",
        "aws_endpoint_url",
        &["endpoint_url", "aws_endpoint", "aws_endpoint_url_s3"],
        OptionKind::Endpoint,
    ),
    known("s3", "aws_skip_signature", &["skip_signature"], OptionKind::Flag),
    known("s3", "aws_virtual_hosted_style_request", &["virtual_hosted_style_request"], OptionKind::Flag),
    known("s3", "aws_request_payer", &["request_payer"], OptionKind::Flag),
    known("gs", "google_service_account", &["service_account"], OptionKind::Path),
    known("gs", "google_service_account_key", &["service_account_key"], OptionKind::Secret),
    known("gs", "google_application_credentials", &["application_credentials"], OptionKind::Path),
    known("gs", "google_bearer_token", &[], OptionKind::Secret),
    known("gs", "google_base_url", &["base_url"], OptionKind::Endpoint),
    known("gs", "google_skip_signature", &[], OptionKind::Flag),
    known("az", "azure_storage_account_name", &["account_name"], OptionKind::Name),
    known("az", "azure_storage_account_key", &["account_key"], OptionKind::Secret),
    known("az", "azure_storage_sas_token", &["sas_token", "azure_storage_sas_key"], OptionKind::Secret),
    known("az", "azure_storage_token", &[], OptionKind::Secret),
    known("az", "azure_client_id", &["azure_storage_client_id", "client_id"], OptionKind::Name),
    known("az", "azure_client_secret", &["azure_storage_client_secret", "client_secret"], OptionKind::Secret),
    known("az", "azure_tenant_id", &["azure_storage_tenant_id", "tenant_id"], OptionKind::Name),
    known("az", "azure_storage_endpoint", &["azure_endpoint"], OptionKind::Endpoint),
    known("az", "azure_use_azure_cli", &["use_azure_cli"], OptionKind::Flag),
    known("az", "azure_skip_signature", &[], OptionKind::Flag),
    known("hf", "hf_token", &["token"], OptionKind::Secret),
    known("hf", "hf_endpoint", &["endpoint"], OptionKind::Endpoint),
];

/// The value of an option as it was given. `Debug` has no text.
#[derive(Clone, PartialEq, Eq)]
pub enum GivenOption {
    Text(String),
    Flag(bool),
    /// None: of a secret, the variable of the environment.
    Withheld,
    /// A value of another type.
    Other,
}

impl fmt::Debug for GivenOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text(_) => "Text",
            Self::Flag(_) => "Flag",
            Self::Withheld => "Withheld",
            Self::Other => "Other",
        })
    }
}

/// The options of a user, by name. `Debug` has the names only.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct StoreOptions(Arc<BTreeMap<&'static str, Option<String>>>);

impl fmt::Debug for StoreOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl StoreOptions {
    /// Checks options. A problem names the option and never quotes a value.
    ///
    /// # Errors
    /// The problems.
    pub fn new(given: impl IntoIterator<Item = (String, GivenOption)>) -> Result<Self, Vec<String>> {
        let (mut options, mut problems) = (BTreeMap::new(), Vec::new());
        for (given, value) in given {
            let Some(known) = find(&given) else {
                problems.push(format!("has no option {:?}; {}", shortened(&given), Self::accepted()));
                continue;
            };
            let value = match (known.kind, value) {
                (OptionKind::Secret, GivenOption::Withheld) => None,
                (OptionKind::Flag, GivenOption::Flag(flag)) => Some(flag.to_string()),
                (kind, GivenOption::Text(text)) => match wrong(kind, &text) {
                    None => Some(text),
                    Some(wrong) => {
                        problems.push(format!("has {} {wrong}", known.name));
                        continue;
                    }
                },
                (kind, _) => {
                    problems.push(format!("has {} of another type, must be {}", known.name, kind.expected()));
                    continue;
                }
            };
            if options.insert(known.name, value).is_some() {
                problems.push(format!("has {} twice, by two of its names", known.name));
            }
        }
        if problems.is_empty() { Ok(Self(Arc::new(options))) } else { Err(problems) }
    }

    /// Whether an option has this name.
    pub fn has(name: &str) -> bool {
        find(name).is_some()
    }

    /// The names that are accepted, by scheme.
    pub fn accepted() -> String {
        let names = |scheme: &str| {
            let of = KNOWN.iter().filter(|one| one.scheme == scheme).map(|one| one.name);
            format!("for {scheme}:// {}", of.collect::<Vec<_>>().join(", "))
        };
        format!("the options are {}", ["s3", "gs", "az", "hf"].map(names).join("; "))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The options as they may be printed and pickled, secrets as `None`, and whether each is a flag.
    pub fn shown(&self) -> impl Iterator<Item = (&'static str, Option<&str>, bool)> {
        self.0.iter().map(|(&name, value)| {
            let value = value.as_deref().filter(|_| !is_a(OptionKind::Secret, name));
            (name, value, is_a(OptionKind::Flag, name))
        })
    }
}

impl StoreOptions {
    /// The options for URLs of a scheme that have values.
    pub(crate) fn of(&self, scheme: &str) -> impl Iterator<Item = (&'static str, &str)> {
        let of = KNOWN.iter().filter(move |one| one.scheme == scheme);
        of.filter_map(|one| Some((one.name, self.get(one.name)?)))
    }

    /// The secrets of a scheme whose values are to be those of the environment.
    pub(crate) fn withheld(&self, scheme: &str) -> impl Iterator<Item = &'static str> {
        let of = KNOWN.iter().filter(move |one| one.scheme == scheme).map(|one| one.name);
        of.filter(|name| self.0.get(name).is_some_and(Option::is_none))
    }

    /// The value of an option; `None` if it is not given, or withheld.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_deref()
    }

    /// The values that must not be in a message.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &str> {
        self.0
            .iter()
            .filter(|(name, _)| is_a(OptionKind::Secret, name))
            .filter_map(|(_, value)| value.as_deref())
    }
}

impl OptionKind {
    fn expected(self) -> &'static str {
        match self {
            Self::Text | Self::Name | Self::Path | Self::Endpoint => "a str",
            Self::Flag => "True or False",
            Self::Secret => "a str, or None for the variable of the environment",
        }
    }
}

/// The option of a name, which may be in capitals, as in the environment.
fn find(name: &str) -> Option<&'static KnownOption> {
    let name = name.to_ascii_lowercase();
    KNOWN.iter().find(|one| one.name == name || one.also.contains(&&*name))
}

/// Whether an option is of a kind.
fn is_a(kind: OptionKind, name: &str) -> bool {
    KNOWN.iter().any(|one| one.name == name && one.kind == kind)
}

/// What is wrong with a text.
fn wrong(kind: OptionKind, text: &str) -> Option<String> {
    if text.is_empty() {
        return Some(match kind {
            OptionKind::Secret => "as an empty text; leave it out".to_owned(),
            _ => "as an empty text; leave it out, and the environment is used".to_owned(),
        });
    }
    let is_json = text.trim_start().starts_with('{');
    match kind {
        // A copied key or connection string is not quoted either.
        OptionKind::Path if is_json => Some(
            "with JSON, expected the path of a file; google_service_account_key takes the JSON of a service account"
                .to_owned(),
        ),
        OptionKind::Secret if is_json => None,
        _ if text.chars().any(char::is_control) => {
            Some("with a control character, such as a line break; remove it".to_owned())
        }
        OptionKind::Name if !is_name(text) => Some(format!("of other characters than {NAME}")),
        OptionKind::Flag if !matches!(text, "true" | "false") => {
            Some(format!("of another value, must be {}", kind.expected()))
        }
        OptionKind::Endpoint if !is_endpoint(text) => Some(
            "that is no address of a server, expected http://HOST or https://HOST, without user or password"
                .to_owned(),
        ),
        _ => None,
    }
}

/// The characters of a region, an account and an id: they are parts of the names of hosts.
pub(crate) const NAME: &str = "letters, digits, `-`, `_` and `.`";

/// Whether a text is of [`NAME`].
pub(crate) fn is_name(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

/// Whether a text is the address of a server, without secrets.
pub(crate) fn is_endpoint(text: &str) -> bool {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let host = rest.map(|rest| rest.split('/').next().unwrap_or(""));
    host.is_some_and(|host| !host.is_empty())
        && !text.contains(['@', '?', '#', ' ', '%'])
        && !text.chars().any(char::is_control)
}

/// The name of an option that there is not: at most 60 characters of it.
fn shortened(name: &str) -> String {
    name.chars().take(60).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: &str, value: &str) -> (String, GivenOption) {
        (name.to_owned(), GivenOption::Text(value.to_owned()))
    }

    #[test]
    fn names_are_those_of_the_clouds() {
        let given = [
            text("region", "eu-west-1"),
            text("AWS_ENDPOINT_URL", "http://[::1]:9000"),
            text("aws_secret_access_key", "hidden"),
            text("token", "hidden"),
            ("skip_signature".to_owned(), GivenOption::Flag(false)),
            ("aws_access_key_id".to_owned(), GivenOption::Withheld),
        ];
        let options = StoreOptions::new(given).unwrap();
        let shown: Vec<_> = options.shown().map(|(name, value, _)| (name, value)).collect();
        assert_eq!(
            shown,
            [
                ("aws_access_key_id", None),
                ("aws_endpoint_url", Some("http://[::1]:9000")),
                ("aws_region", Some("eu-west-1")),
                ("aws_secret_access_key", None),
                ("aws_skip_signature", Some("false")),
                ("hf_token", None),
            ]
        );
        assert!(!format!("{options:?} {:?}", text("region", "hidden")).contains("hidden"), "{options:?}");
        // Names are unique, whatever the scheme.
        let mut names: Vec<_> =
            KNOWN.iter().flat_map(|one| one.also.iter().copied().chain([one.name])).collect();
        let n = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), n);
    }

    #[test]
    fn problems_do_not_quote_values() {
        for (given, told) in [
            (text("aws_acess_key", "hidden"), "the options are for s3:// aws_access_key_id, "),
            (text("aws_session_token", "hidden\n"), "aws_session_token with a control character"),
            (
                text("azure_storage_account_key", "hidden\t"),
                "azure_storage_account_key with a control character",
            ),
            (text("google_service_account", "{\"private_key\": \"hidden\"}"), "with JSON, expected the path"),
            (text("application_credentials", " {\"hidden"), "google_application_credentials with JSON"),
            (text("account_name", "AccountKey=hidden;"), "azure_storage_account_name of other characters"),
            (text("aws_region", "eu/hidden"), "aws_region of other characters"),
            (text("aws_region", ""), "aws_region as an empty text"),
            (text("hf_endpoint", "hidden"), "hf_endpoint that is no address"),
            (text("endpoint", "https://me:hidden@host"), "hf_endpoint that is no address"),
            (text("aws_skip_signature", "hidden"), "must be True or False"),
            (("aws_region".to_owned(), GivenOption::Flag(true)), "aws_region of another type, must be a str"),
            (("hf_endpoint".to_owned(), GivenOption::Withheld), "must be a str"),
        ] {
            let problems = StoreOptions::new([given]).unwrap_err().join("; ");
            assert!(problems.contains(told) && !problems.contains("hidden"), "{problems}");
        }
        let twice = StoreOptions::new([text("region", "a"), text("aws_region", "b")]).unwrap_err();
        assert_eq!(twice, ["has aws_region twice, by two of its names"]);
    }
}
