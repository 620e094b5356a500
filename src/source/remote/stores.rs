//! From a URL to the client of its store. Credentials come from the environment, as the clouds' tools read
//! them: `AWS_*`, `GOOGLE_*`, `AZURE_*`; for the Hub `HF_TOKEN` and `HF_ENDPOINT`.

use std::{io, path::Path, sync::Arc, time::Duration};

use object_store::{
    BackoffConfig, ClientOptions, ObjectStore, RetryConfig, aws::AmazonS3Builder,
    azure::MicrosoftAzureBuilder, gcp::GoogleCloudStorageBuilder, http::HttpBuilder,
};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};

use super::{client::Connector, failure::Failure};
use crate::{record::Traffic, source::urls};

const HUB: &str = "https://huggingface.co";

/// Where an object lies.
pub(super) struct Address {
    scheme: &'static str,
    /// Scheme and host or bucket, such as `s3://bucket`.
    pub host: String,
    pub location: object_store::path::Path,
    /// A token that only this host gets.
    token: Option<String>,
}

fn invalid(message: impl ToString) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message.to_string())
}

impl Address {
    /// The address of a URL; `set` gives variables of the environment.
    pub(super) fn of(url: &Path, set: impl Fn(&str) -> Option<String>) -> io::Result<Self> {
        let (scheme, rest) = urls::split(url).ok_or_else(|| invalid("the path is no URL"))?;
        let (host, name) = rest.split_once('/').unwrap_or((rest, ""));
        let set = |name| set(name).filter(|value: &String| !value.is_empty());
        let (scheme, host, name, token) = match scheme {
            "hf" => {
                let endpoint = set("HF_ENDPOINT").unwrap_or_else(|| HUB.to_owned());
                let endpoint = endpoint.trim_end_matches('/');
                let scheme = if endpoint.starts_with("http://") { "http" } else { "https" };
                if set("HF_HUB_OFFLINE").is_some_and(|value| value != "0") {
                    return Err(invalid("HF_HUB_OFFLINE is set; unset it to read from the Hub"));
                }
                (scheme, endpoint.to_owned(), hub_name(host, name)?, set("HF_TOKEN"))
            }
            _ => (scheme, format!("{scheme}://{host}"), name.to_owned(), None),
        };
        let location = object_store::path::Path::from_url_path(&name).map_err(invalid)?;
        Ok(Self { scheme, host, location, token })
    }

    /// What addresses with the same client have in common.
    pub(super) fn key(&self) -> (String, bool) {
        (self.host.clone(), self.token.is_some())
    }

    /// The client, without retries of its own: these are counted where files are read.
    pub(super) fn store(&self, traffic: &Arc<Traffic>) -> io::Result<Arc<dyn ObjectStore>> {
        let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let retry = RetryConfig {
            max_retries: 0,
            retry_timeout: Duration::from_secs(1),
            backoff: BackoffConfig::default(),
        };
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
        macro_rules! built {
            ($builder:expr) => {
                $builder
                    .with_retry(retry)
                    .with_client_options(client)
                    .with_http_connector(connector)
                    .build()
                    .map(|store| Arc::new(store) as Arc<dyn ObjectStore>)
            };
        }
        let store = match self.scheme {
            "s3" => built!(AmazonS3Builder::from_env().with_bucket_name(bucket)),
            "gs" => built!(GoogleCloudStorageBuilder::from_env().with_bucket_name(bucket)),
            "az" => built!(MicrosoftAzureBuilder::from_env().with_container_name(bucket)),
            _ => built!(HttpBuilder::new().with_url(&self.host)),
        };
        store.map_err(|error| invalid(Failure::of(&error).message))
    }
}

/// Whether the environment names an `http://` server instead of the cloud's own.
fn plain_endpoint(scheme: &str, set: impl Fn(&'static str) -> Option<String>) -> bool {
    let names: &[&str] = match scheme {
        "s3" => &["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"],
        "gs" => &["GOOGLE_BASE_URL"],
        _ => &["AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"],
    };
    names.iter().find_map(|name| set(name)).is_some_and(|endpoint| endpoint.starts_with("http://"))
}

/// The path of `datasets/OWNER/NAME[@REVISION]/FILE` below the Hub's address.
fn hub_name(kind: &str, name: &str) -> io::Result<String> {
    let expected = || invalid("expected is hf://datasets/OWNER/NAME[@REVISION]/FILE");
    let mut parts = name.splitn(3, '/');
    let (Some(owner), Some(name), Some(file)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(expected());
    };
    let (name, revision) = name.split_once('@').unwrap_or((name, "main"));
    if kind != "datasets" || [owner, name, revision, file].iter().any(|part| part.is_empty()) {
        return Err(expected());
    }
    Ok(format!("datasets/{owner}/{name}/resolve/{revision}/{file}"))
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
    }

    #[test]
    fn only_the_hub_gets_its_token() {
        let set = [("HF_TOKEN", "secret")];
        assert!(address("https://huggingface.co/datasets/o/n/resolve/main/x", &set).unwrap().token.is_none());
        assert_eq!(address("hf://datasets/o/n/x", &set).unwrap().token.as_deref(), Some("secret"));
    }
}
