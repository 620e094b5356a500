//! From a URL to its place, and to the client of its store. [`Settings`] has the credentials.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use object_store::{
    BackoffConfig, ClientOptions, ObjectStore, RetryConfig, aws::AmazonS3ConfigKey, azure::AzureConfigKey,
    gcp::GoogleConfigKey, http::HttpBuilder, list::PaginatedListStore,
};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};

use super::{
    client::Connector,
    hub::{EXPECTED, Hub, HubFile},
    list_answer::Omitted,
    settings::{Settings, invalid},
};
use crate::{Traffic, storage::ListingPage, urls};

/// The client of a host or bucket.
#[derive(Clone)]
pub(super) struct StoreClient {
    pub objects: Arc<dyn ObjectStore>,
    pub lists: Lists,
    /// The server or account in which a bucket is looked up.
    pub server: String,
    /// The objects that its lists left out.
    pub omitted: Omitted,
}

#[derive(Clone)]
pub(super) enum Lists {
    Store(Arc<dyn PaginatedListStore>),
    /// By the API of the Hub.
    Hub(reqwest::Client),
}

/// Where an object or a folder is read.
pub(super) enum ObjectPlace<T> {
    /// In the Hub's cache folder on this machine.
    Here(T),
    There(Address),
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

impl Address {
    pub(super) fn of<'h>(
        url: &Path,
        hub: impl FnOnce() -> io::Result<&'h Hub>,
    ) -> io::Result<ObjectPlace<PathBuf>> {
        Self::find(url, hub, |hub, file| match file {
            HubFile { path: "", .. } => Err(invalid(EXPECTED)),
            HubFile { owner, name, path, .. } => Ok(hub
                .find(&file)?
                .map_err(|revision| format!("datasets/{owner}/{name}/resolve/{revision}/{path}"))),
        })
    }

    /// The place of a folder, which for the Hub is that of its list.
    pub(super) fn of_folder<'h>(
        url: &Path,
        hub: impl FnOnce() -> io::Result<&'h Hub>,
    ) -> io::Result<ObjectPlace<ListingPage>> {
        Self::find(url, hub, |hub, folder| {
            let HubFile { owner, name, path, .. } = folder;
            let slash = if path.is_empty() { "" } else { "/" };
            Ok(hub
                .list(&folder)?
                .map_err(|revision| format!("api/datasets/{owner}/{name}/tree/{revision}{slash}{path}")))
        })
    }

    fn find<'h, T>(
        url: &Path,
        hub: impl FnOnce() -> io::Result<&'h Hub>,
        find: impl Fn(&Hub, HubFile<'_>) -> io::Result<Result<T, String>>,
    ) -> io::Result<ObjectPlace<T>> {
        let (scheme, rest) = urls::split(url).ok_or_else(|| invalid("the path is no URL"))?;
        let (host, name) = rest.split_once('/').unwrap_or((rest, ""));
        let (scheme, host, name, token) = match scheme {
            "hf" => {
                let hub = hub()?;
                let scheme = if hub.endpoint.starts_with("http://") { "http" } else { "https" };
                match find(hub, HubFile::of(host, name)?)? {
                    Ok(here) => return Ok(ObjectPlace::Here(here)),
                    Err(name) => (scheme, hub.endpoint.clone(), name, hub.token.clone()),
                }
            }
            _ => (scheme, format!("{scheme}://{host}"), name.to_owned(), None),
        };
        let location = object_store::path::Path::from_url_path(&name).map_err(invalid)?;
        Ok(ObjectPlace::There(Self { scheme, host, name, location, token }))
    }

    /// The object's name among those of all servers, without secrets.
    pub(super) fn identity(&self, client: &StoreClient) -> String {
        format!("{} {}/{}", client.server, self.host, self.location)
    }

    /// What addresses with the same client have in common.
    pub(super) fn key(&self) -> (String, bool) {
        (self.host.clone(), self.token.is_some())
    }

    /// The client, without retries of its own: these are counted where files are read.
    pub(super) fn client(&self, settings: &Settings, traffic: &Arc<Traffic>) -> io::Result<StoreClient> {
        let retry = RetryConfig {
            max_retries: 0,
            retry_timeout: Duration::from_secs(1),
            backoff: BackoffConfig::default(),
        };
        let mut headers = HeaderMap::new();
        if let Some(token) = &self.token {
            let wrong = |_| invalid("the token of the Hub has characters that no token has");
            let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(wrong)?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let follows_redirects = !matches!(self.scheme, "s3" | "gs" | "az");
        let omitted = Omitted::default();
        let connector =
            Connector { headers, follows_redirects, traffic: traffic.clone(), omitted: omitted.clone() };
        let bucket = self.host.split_once("://").map_or("", |(_, bucket)| bucket);
        macro_rules! built {
            ($builder:expr, $is_plain:expr) => {
                Arc::new(
                    $builder
                        .with_retry(retry)
                        .with_client_options(ClientOptions::new().with_allow_http($is_plain))
                        .with_http_connector(connector)
                        .build()
                        .map_err(|error| settings.refused(self.scheme, &error))?,
                )
            };
        }
        macro_rules! cloud {
            ($builder:expr, $bucket:ident, $server:expr) => {{
                let (builder, is_plain) = $builder;
                // A bucket of this name may be another one elsewhere. These values have no secrets in them.
                let server = $server.iter().filter_map(|key| builder.get_config_value(key));
                let server = server.collect::<Vec<_>>().join(" ");
                let objects = built!(builder.$bucket(bucket), is_plain);
                StoreClient { lists: Lists::Store(objects.clone()), objects, server, omitted }
            }};
        }
        Ok(match self.scheme {
            "s3" => cloud!(settings.s3()?, with_bucket_name, [AmazonS3ConfigKey::Endpoint]),
            "gs" => cloud!(settings.gs()?, with_bucket_name, [GoogleConfigKey::BaseUrl]),
            "az" => cloud!(
                settings.az()?,
                with_container_name,
                [
                    AzureConfigKey::AccountName,
                    AzureConfigKey::Endpoint,
                    AzureConfigKey::UseEmulator,
                    AzureConfigKey::UseFabricEndpoint,
                ]
            ),
            _ => {
                let is_plain = self.host.starts_with("http://");
                let failed = |error| object_store::Error::Generic { store: "HTTP", source: Box::new(error) };
                let lists = connector.client(is_plain).map_err(failed);
                let lists = Lists::Hub(lists.map_err(|error| settings.refused(self.scheme, &error))?);
                let objects = built!(HttpBuilder::new().with_url(&self.host), is_plain);
                // The host is a part of the name.
                StoreClient { objects, lists, server: String::new(), omitted }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{StoreOptions, remote::runtime::install_tls};

    fn hub(set: &[(&str, &str)]) -> Hub {
        let set = set.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        Hub::new(&Settings::new(&StoreOptions::default(), set)).unwrap()
    }

    fn address(url: &str, set: &[(&str, &str)]) -> io::Result<Address> {
        let hub = hub(set);
        match Address::of(Path::new(url), || Ok(&hub))? {
            ObjectPlace::There(address) => Ok(address),
            ObjectPlace::Here(path) => panic!("{url} is {}", path.display()),
        }
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
        let hub = hub(&[]);
        for (url, list) in [
            ("hf://datasets/o/n", "api/datasets/o/n/tree/main"),
            ("hf://datasets/o/n@v1/", "api/datasets/o/n/tree/v1"),
            ("hf://datasets/o/n/a/b%20c/", "api/datasets/o/n/tree/main/a/b%20c"),
        ] {
            let ObjectPlace::There(found) = Address::of_folder(Path::new(url), || Ok(&hub)).unwrap() else {
                panic!("{url}")
            };
            assert_eq!(found.name, list);
        }
    }

    #[test]
    fn only_the_hub_gets_its_token() {
        let set = [("HF_TOKEN", "secret")];
        assert!(address("https://huggingface.co/datasets/o/n/resolve/main/x", &set).unwrap().token.is_none());
        assert_eq!(address("hf://datasets/o/n/x", &set).unwrap().token.as_deref(), Some("secret"));
    }

    /// A container of an account, or a bucket of a server, is another one elsewhere.
    #[test]
    fn identities_differ_by_account_and_server() {
        install_tls();
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join(".aws")).unwrap();
        let config = "[profile one]\nendpoint_url = http://one\n[profile two]\nendpoint_url = http://two\n";
        std::fs::write(home.path().join(".aws/config"), config).unwrap();
        let home = home.path().to_str().unwrap();
        let secret = "c2VjcmV0";
        let account =
            |name| [("AZURE_STORAGE_ACCOUNT_NAME", name), ("AZURE_STORAGE_ACCOUNT_KEY", secret)].to_vec();
        let profile = |name| {
            let keys = [("AWS_ACCESS_KEY_ID", secret), ("AWS_SECRET_ACCESS_KEY", secret)];
            [("HOME", home), ("AWS_PROFILE", name)].into_iter().chain(keys).collect::<Vec<_>>()
        };
        let endpoint = |name: &'static str, url: &'static str| {
            let anonymous = ["AZURE_SKIP_SIGNATURE", "GOOGLE_SKIP_SIGNATURE", "AWS_SKIP_SIGNATURE"]
                .map(|name| (name, "true"));
            let account = ("AZURE_STORAGE_ACCOUNT_NAME", "same");
            [(name, url), account].into_iter().chain(anonymous).collect::<Vec<_>>()
        };
        for (url, one, other) in [
            ("az://container/a", account("one"), account("two")),
            ("s3://bucket/a", profile("one"), profile("two")),
            ("s3://bucket/a", endpoint("AWS_ENDPOINT_URL", "http://one"), profile("two")),
            (
                "gs://bucket/a",
                endpoint("GOOGLE_BASE_URL", "http://one"),
                endpoint("GOOGLE_BASE_URL", "http://two"),
            ),
            (
                "az://bucket/a",
                endpoint("AZURE_ENDPOINT", "http://one"),
                endpoint("AZURE_ENDPOINT", "http://two"),
            ),
        ] {
            let identity = |set: &[(&str, &str)]| {
                let set = set.iter().map(|(name, value)| (name.to_string(), value.to_string()));
                let settings = Settings::new(&StoreOptions::default(), set);
                let address = address(url, &[]).unwrap();
                address.identity(&address.client(&settings, &Arc::default()).unwrap())
            };
            assert_ne!(identity(&one), identity(&other), "{url}");
            assert_eq!(identity(&one), identity(&one));
            assert!(!identity(&one).contains(secret), "{}", identity(&one));
        }
    }
}
