//! From a URL to the client of its store. Credentials come from the environment, as the clouds' tools read
//! them: `AWS_*`, `GOOGLE_*`, `AZURE_*`; for the Hub `HF_TOKEN` and `HF_ENDPOINT`.

use std::{io, path::Path, sync::Arc, time::Duration};

use object_store::{
    BackoffConfig, ClientOptions, ObjectStore, RetryConfig, aws::AmazonS3Builder,
    azure::MicrosoftAzureBuilder, gcp::GoogleCloudStorageBuilder, http::HttpBuilder,
    list::PaginatedListStore,
};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};

use super::{client::Connector, failure::Failure};
use crate::{record::Traffic, source::urls};

const HUB: &str = "https://huggingface.co";

/// The client of a host or bucket.
#[derive(Clone)]
pub(super) struct Client {
    pub objects: Arc<dyn ObjectStore>,
    pub lists: Lists,
}

/// How names are listed.
#[derive(Clone)]
pub(super) enum Lists {
    Store(Arc<dyn PaginatedListStore>),
    /// By the API of the Hub.
    Hub(reqwest::Client),
}

/// Where an object or a folder lies.
pub(super) struct Address {
    scheme: &'static str,
    /// Scheme and host or bucket, such as `s3://bucket`.
    pub host: String,
    /// The name behind the host, percent-encoded as it was given.
    pub name: String,
    pub location: object_store::path::Path,
    /// A token that only this host gets.
    token: Option<String>,
}

fn invalid(message: impl ToString) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message.to_string())
}

impl Address {
    /// The address of an object; `set` gives variables of the environment.
    pub(super) fn of(url: &Path, set: impl Fn(&str) -> Option<String>) -> io::Result<Self> {
        Self::new(url, set, |file| match file {
            HubFile { path: "", .. } => Err(invalid(EXPECTED)),
            HubFile { owner, name, revision, path } => {
                Ok(format!("datasets/{owner}/{name}/resolve/{revision}/{path}"))
            }
        })
    }

    /// The address of a folder, which for the Hub is that of its list.
    pub(super) fn of_folder(url: &Path, set: impl Fn(&str) -> Option<String>) -> io::Result<Self> {
        Self::new(url, set, |HubFile { owner, name, revision, path }| {
            let path = path.trim_end_matches('/');
            let slash = if path.is_empty() { "" } else { "/" };
            Ok(format!("api/datasets/{owner}/{name}/tree/{revision}{slash}{path}"))
        })
    }

    fn new(
        url: &Path,
        set: impl Fn(&str) -> Option<String>,
        hub_name: impl Fn(HubFile<'_>) -> io::Result<String>,
    ) -> io::Result<Self> {
        let (scheme, rest) = urls::split(url).ok_or_else(|| invalid("the path is no URL"))?;
        let (host, name) = rest.split_once('/').unwrap_or((rest, ""));
        let set = |name| set(name).filter(|value: &String| !value.is_empty());
        let (scheme, host, name, token) = match scheme {
            "hf" => {
                let endpoint = set("HF_ENDPOINT").unwrap_or_else(|| HUB.to_owned());
                check_endpoint("HF_ENDPOINT", &endpoint)?;
                let endpoint = endpoint.trim_end_matches('/');
                let scheme = if endpoint.starts_with("http://") { "http" } else { "https" };
                if set("HF_HUB_OFFLINE").is_some_and(|value| value != "0") {
                    return Err(invalid("HF_HUB_OFFLINE is set; unset it to read from the Hub"));
                }
                (scheme, endpoint.to_owned(), hub_name(HubFile::of(host, name)?)?, set("HF_TOKEN"))
            }
            _ => (scheme, format!("{scheme}://{host}"), name.to_owned(), None),
        };
        let location = object_store::path::Path::from_url_path(&name).map_err(invalid)?;
        Ok(Self { scheme, host, name, location, token })
    }

    /// What addresses with the same client have in common.
    pub(super) fn key(&self) -> (String, bool) {
        (self.host.clone(), self.token.is_some())
    }

    /// The client, without retries of its own: these are counted where files are read.
    pub(super) fn client(&self, traffic: &Arc<Traffic>) -> io::Result<Client> {
        let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let retry = RetryConfig {
            max_retries: 0,
            retry_timeout: Duration::from_secs(1),
            backoff: BackoffConfig::default(),
        };
        check_environment(self.scheme, set)?;
        let is_cloud = matches!(self.scheme, "s3" | "gs" | "az");
        let is_plain = match is_cloud {
            true => plain_endpoint(self.scheme, set),
            false => self.host.starts_with("http://"),
        };
        let client = ClientOptions::new().with_allow_http(is_plain);
        let mut headers = HeaderMap::new();
        if let Some(token) = &self.token {
            let wrong = |_| invalid("HF_TOKEN has characters that no token has");
            let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(wrong)?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let connector = Connector { headers, follows_redirects: !is_cloud, traffic: traffic.clone() };
        let bucket = self.host.split_once("://").map_or("", |(_, bucket)| bucket);
        let wrong = |error: object_store::Error| invalid(Failure::of(&error).message);
        macro_rules! built {
            ($builder:expr) => {
                Arc::new(
                    $builder
                        .with_retry(retry)
                        .with_client_options(client)
                        .with_http_connector(connector)
                        .build()
                        .map_err(wrong)?,
                )
            };
        }
        macro_rules! cloud {
            ($builder:expr) => {{
                let objects = built!($builder);
                Client { lists: Lists::Store(objects.clone()), objects }
            }};
        }
        Ok(match self.scheme {
            "s3" => cloud!(AmazonS3Builder::from_env().with_bucket_name(bucket)),
            "gs" => cloud!(GoogleCloudStorageBuilder::from_env().with_bucket_name(bucket)),
            "az" => cloud!(MicrosoftAzureBuilder::from_env().with_container_name(bucket)),
            _ => {
                let lists = Lists::Hub(connector.client(is_plain).map_err(invalid)?);
                Client { objects: built!(HttpBuilder::new().with_url(&self.host)), lists }
            }
        })
    }
}

/// Checks the variables that a store of a cloud would panic about, or quote.
fn check_environment(scheme: &str, set: impl Fn(&'static str) -> Option<String>) -> io::Result<()> {
    const S3: [&str; 5] = [
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_REGION",
        "AWS_DEFAULT_REGION",
    ];
    for name in endpoints(scheme) {
        set(name).map_or(Ok(()), |endpoint| check_endpoint(name, &endpoint))?;
    }
    let names = if scheme == "s3" { &S3[..] } else { &[] };
    for name in names {
        if set(name).is_some_and(|value| value.chars().any(char::is_control)) {
            return Err(invalid(format!("{name} has a control character, such as a line break; remove it")));
        }
    }
    Ok(())
}

/// Checks the address of a server, without quoting it.
fn check_endpoint(name: &str, endpoint: &str) -> io::Result<()> {
    let rest = endpoint.strip_prefix("http://").or_else(|| endpoint.strip_prefix("https://"));
    let host = rest.map(|rest| rest.split('/').next().unwrap_or(""));
    let is_plain = |host: &str| {
        !host.is_empty() && !host.contains(['@', '?', '#', ' ', '%']) && !host.chars().any(char::is_control)
    };
    if host.is_some_and(is_plain) && reqwest::Url::parse(endpoint).is_ok() {
        return Ok(());
    }
    Err(invalid(format!(
        "{name} is no address of a server, expected http://HOST or https://HOST, without user or password"
    )))
}

/// Whether the environment names an `http://` server instead of the cloud's own.
fn plain_endpoint(scheme: &str, set: impl Fn(&'static str) -> Option<String>) -> bool {
    endpoints(scheme)
        .iter()
        .find_map(|name| set(name))
        .is_some_and(|endpoint| endpoint.starts_with("http://"))
}

/// The variables that name a server.
fn endpoints(scheme: &str) -> &'static [&'static str] {
    match scheme {
        "s3" => &["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"],
        "gs" => &["GOOGLE_BASE_URL"],
        "az" => &["AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"],
        _ => &[],
    }
}

/// The parts of `datasets/OWNER/NAME[@REVISION]/FILE`.
struct HubFile<'a> {
    owner: &'a str,
    name: &'a str,
    revision: &'a str,
    /// Empty for the folder of the whole dataset.
    path: &'a str,
}

const EXPECTED: &str = "expected is hf://datasets/OWNER/NAME[@REVISION]/FILE";

impl<'a> HubFile<'a> {
    fn of(kind: &str, name: &'a str) -> io::Result<Self> {
        let mut parts = name.splitn(3, '/');
        let (owner, name) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
        let (name, revision) = name.split_once('@').unwrap_or((name, "main"));
        if kind != "datasets" || [owner, name, revision].iter().any(|part| part.is_empty()) {
            return Err(invalid(EXPECTED));
        }
        Ok(Self { owner, name, revision, path: parts.next().unwrap_or("") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(url: &str, set: &[(&str, &str)]) -> io::Result<Address> {
        let set =
            |name: &str| set.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string());
        Address::of(Path::new(url), set)
    }

    #[test]
    fn places_of_objects() {
        let found = |url, set: &[_]| address(url, set).map(|a| format!("{} {}", a.host, a.location)).unwrap();
        assert_eq!(found("s3://b/c/d.arrow", &[]), "s3://b c/d.arrow");
        assert_eq!(found("https://h:1/a%20b/c", &[]), "https://h:1 a b/c");
        assert_eq!(
            found("hf://datasets/o/n/x/y.parquet", &[]),
            "https://huggingface.co datasets/o/n/resolve/main/x/y.parquet"
        );
        assert_eq!(
            found("hf://datasets/o/n@v1/y", &[("HF_ENDPOINT", "http://[::1]:8/")]),
            "http://[::1]:8 datasets/o/n/resolve/v1/y"
        );
        for wrong in ["hf://models/o/n/x", "hf://datasets/o/n", "hf://datasets/o/n@/x"] {
            assert!(address(wrong, &[]).is_err(), "{wrong}");
        }
        assert!(address("hf://datasets/o/n/x", &[("HF_HUB_OFFLINE", "1")]).is_err());
        for (url, list) in [
            ("hf://datasets/o/n", "api/datasets/o/n/tree/main"),
            ("hf://datasets/o/n@v1/", "api/datasets/o/n/tree/v1"),
            ("hf://datasets/o/n/a/b%20c/", "api/datasets/o/n/tree/main/a/b%20c"),
        ] {
            assert_eq!(Address::of_folder(Path::new(url), |_| None).unwrap().name, list);
        }
    }

    #[test]
    fn wrong_variables_are_named_and_not_quoted() {
        for endpoint in
            ["minio:9000", "http://", "not a url", "http://u:secret@h", "https://h?secret", "http://[x"]
        {
            let error =
                address("hf://datasets/o/n/x", &[("HF_ENDPOINT", endpoint)]).err().unwrap().to_string();
            assert!(error.contains("HF_ENDPOINT") && !error.contains("secret"), "{error}");
            let set = |name| (name == "AWS_ENDPOINT_URL").then(|| endpoint.to_owned());
            let error = check_environment("s3", set).unwrap_err().to_string();
            assert!(error.contains("AWS_ENDPOINT_URL") && !error.contains("secret"), "{error}");
        }
        for endpoint in ["http://127.0.0.1:9000", "https://[::1]:9/path", "https://h"] {
            check_endpoint("x", endpoint).unwrap();
        }
        let set = |name| (name == "AWS_SECRET_ACCESS_KEY").then(|| "secret\n".to_owned());
        let error = check_environment("s3", set).unwrap_err().to_string();
        assert!(error.contains("AWS_SECRET_ACCESS_KEY") && !error.contains("secret\n"), "{error}");
        check_environment("gs", set).unwrap();
    }

    #[test]
    fn only_the_hub_gets_its_token() {
        let set = [("HF_TOKEN", "secret")];
        assert!(address("https://huggingface.co/datasets/o/n/resolve/main/x", &set).unwrap().token.is_none());
        assert_eq!(address("hf://datasets/o/n/x", &set).unwrap().token.as_deref(), Some("secret"));
    }
}
