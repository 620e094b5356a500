//! The clients of clouds by their settings: the options of the user, then the environment, then for S3 a
//! profile of `~/.aws`.
//!
//! Credentials are never mixed: if an option has one of a cloud, none of the environment's is used for it.
//! What a client cannot write into a request is an error here: the client would panic, or quote it.

use std::io;

use object_store::{
    aws::{AmazonS3Builder, AmazonS3ConfigKey},
    azure::{AzureConfigKey, MicrosoftAzureBuilder},
    gcp::{GoogleCloudStorageBuilder, GoogleConfigKey},
};
use serde_json::Value;

use super::{
    failure::Failure,
    profiles::Profile,
    settings::{Settings, invalid},
};
use crate::store_options::{NAME, is_name};

impl Settings {
    /// Whether the options have a credential of a scheme.
    fn has_credentials(&self, scheme: &str) -> bool {
        self.options.of(scheme).any(|(name, value)| match name {
            "aws_region" | "aws_endpoint_url" | "aws_virtual_hosted_style_request" | "aws_request_payer" => {
                false
            }
            "google_base_url" | "azure_storage_account_name" | "azure_storage_endpoint" => false,
            _ if name.ends_with("skip_signature") || name.ends_with("azure_cli") => value == "true",
            _ => true,
        })
    }

    /// The keys and values of a cloud: those of the environment, then those of the options, which replace
    /// them. `is_credential` says of a key which of the environment's the options replace altogether.
    fn given<'a, K: std::str::FromStr>(
        &'a self,
        scheme: &str,
        prefix: &str,
        is_credential: impl Fn(&K) -> bool,
        is_endpoint: impl Fn(&K) -> bool,
    ) -> io::Result<Vec<(K, &'a str)>> {
        self.check_withheld(scheme)?;
        let has_own = self.has_credentials(scheme);
        let has_endpoint =
            self.options.of(scheme).any(|(name, _)| name.contains("endpoint") || name.contains("base_url"));
        let mut given = Vec::new();
        for (name, value) in &self.variables {
            let key =
                if name.starts_with(prefix) { name.to_ascii_lowercase().parse::<K>().ok() } else { None };
            let Some(key) = key else { continue };
            if has_own && is_credential(&key) || has_endpoint && is_endpoint(&key) {
                continue;
            }
            if value.chars().any(char::is_control) && !value.trim_start().starts_with('{') {
                return Err(invalid(format!(
                    "{name} has a control character, such as a line break; remove it"
                )));
            }
            // bounded: the variables.
            given.push((key, value.as_str()));
        }
        let options =
            self.options.of(scheme).filter_map(|(name, value)| Some((name.parse::<K>().ok()?, value)));
        given.extend(options);
        Ok(given)
    }

    pub(super) fn s3(&self) -> io::Result<(AmazonS3Builder, bool)> {
        use AmazonS3ConfigKey as Key;
        let is_credential = |key: &Key| {
            matches!(
                key,
                Key::AccessKeyId
                    | Key::SecretAccessKey
                    | Key::Token
                    | Key::SkipSignature
                    | Key::WebIdentityTokenFile
                    | Key::RoleArn
                    | Key::ContainerCredentialsRelativeUri
                    | Key::ContainerCredentialsFullUri
            )
        };
        let given =
            self.given("s3", "AWS_", is_credential, |key| matches!(key, Key::Endpoint | Key::S3Endpoint))?;
        let has = |wanted: &[Key]| given.iter().any(|(key, _)| wanted.contains(key));
        let is_unsigned = given
            .iter()
            .rfind(|(key, _)| *key == Key::SkipSignature)
            .is_some_and(|(_, value)| *value == "true");
        let has_keys = has(&[Key::AccessKeyId, Key::SecretAccessKey]);
        let has_roles = has(&[
            Key::WebIdentityTokenFile,
            Key::ContainerCredentialsRelativeUri,
            Key::ContainerCredentialsFullUri,
        ]);
        let profile = Profile::read(self)?;
        let endpoint = match self.endpoint("s3")? {
            Some(endpoint) => Some(endpoint.to_owned()),
            None => profile.endpoint()?.map(str::to_owned),
        };
        let mut builder = AmazonS3Builder::new();
        if let Some(region) = profile.region() {
            builder = builder.with_region(region);
        }
        if let Some(endpoint) = &endpoint {
            builder = builder.with_endpoint(endpoint);
        }
        if !has_keys
            && !is_unsigned
            && let Some(keys) = profile.keys(has_roles)?
        {
            builder = builder.with_access_key_id(keys.id).with_secret_access_key(keys.secret);
            if let Some(token) = keys.token {
                builder = builder.with_token(token);
            }
        }
        // A region by the other name only counts if no region was set.
        let is_other = |key: &Key| *key == Key::DefaultRegion;
        for (key, value) in
            given.into_iter().filter(|(key, _)| !matches!(key, Key::Endpoint | Key::S3Endpoint))
        {
            let key = if is_other(&key)
                && self.variable("AWS_REGION").is_none()
                && self.options.get("aws_region").is_none()
            {
                Key::Region
            } else {
                key
            };
            builder = builder.with_config(key, value);
        }
        let value = |key: &Key| builder.get_config_value(key);
        check_names(values(value, &[(Key::Region, "aws_region")]))?;
        check_headers(values(
            value,
            &[(Key::AccessKeyId, "aws_access_key_id"), (Key::Token, "aws_session_token")],
        ))?;
        Ok((builder, endpoint.is_some_and(|endpoint| endpoint.starts_with("http://"))))
    }

    pub(super) fn gs(&self) -> io::Result<(GoogleCloudStorageBuilder, bool)> {
        use GoogleConfigKey as Key;
        let is_credential = |key: &Key| !matches!(key, Key::BaseUrl | Key::Bucket | Key::Client(_));
        let given = self.given("gs", "GOOGLE_", is_credential, |key| *key == Key::BaseUrl)?;
        let mut builder = GoogleCloudStorageBuilder::new();
        if let Some(path) = self.variable("SERVICE_ACCOUNT").filter(|_| !self.has_credentials("gs")) {
            check_path("SERVICE_ACCOUNT", path)?;
            builder = builder.with_service_account_path(path);
        }
        for (key, value) in given {
            match key {
                Key::ServiceAccountKey => check_service_account(value)?,
                Key::ServiceAccount => check_path("google_service_account", value)?,
                Key::ApplicationCredentials => check_path("google_application_credentials", value)?,
                _ => {}
            }
            builder = builder.with_config(key, value);
        }
        let is_plain = self.endpoint("gs")?.is_some_and(|endpoint| endpoint.starts_with("http://"));
        Ok((builder, is_plain))
    }

    pub(super) fn az(&self) -> io::Result<(MicrosoftAzureBuilder, bool)> {
        use AzureConfigKey as Key;
        let is_credential = |key: &Key| {
            matches!(
                key,
                Key::AccessKey
                    | Key::SasKey
                    | Key::Token
                    | Key::ClientId
                    | Key::ClientSecret
                    | Key::AuthorityId
                    | Key::FederatedTokenFile
                    | Key::MsiEndpoint
                    | Key::UseAzureCli
                    | Key::SkipSignature
            )
        };
        let given = self.given("az", "AZURE_", is_credential, |key| *key == Key::Endpoint)?;
        let mut builder = MicrosoftAzureBuilder::new();
        if let Some(text) = self.variable("IDENTITY_ENDPOINT").filter(|_| !self.has_credentials("az")) {
            builder = builder.with_msi_endpoint(text);
        }
        for (key, value) in given {
            builder = builder.with_config(key, value);
        }
        let value = |key: &Key| builder.get_config_value(key);
        check_names(values(
            value,
            &[
                (Key::AccountName, "azure_storage_account_name"),
                (Key::ClientId, "azure_client_id"),
                (Key::AuthorityId, "azure_tenant_id"),
            ],
        ))?;
        check_headers(values(value, &[(Key::Token, "azure_storage_token")]))?;
        let is_plain = self.endpoint("az")?.is_some_and(|endpoint| endpoint.starts_with("http://"));
        Ok((builder, is_plain))
    }

    /// The message of a store that cannot be made, without secrets.
    pub(super) fn refused(&self, scheme: &str, error: &object_store::Error) -> io::Error {
        let mut message = Failure::of(error).message;
        // The parser of JSON quotes what it did not expect.
        if scheme == "gs" && message.contains("decode") {
            message = "the credentials are no JSON of a service account or a login".to_owned();
        }
        let of_environment = self
            .variables
            .iter()
            .filter(|(name, _)| ["KEY", "SECRET", "TOKEN", "SAS"].iter().any(|part| name.contains(part)));
        let secrets = self.options.secrets().chain(of_environment.map(|(_, value)| value.as_str()));
        let mut secrets: Vec<&str> = secrets.filter(|secret| secret.len() > 3).collect();
        // One may be the begin of another.
        secrets.sort_unstable_by_key(|secret| std::cmp::Reverse(secret.len()));
        for secret in secrets {
            message = message.replace(secret, "***");
        }
        invalid(message)
    }
}

/// The values of a builder that are parts of requests, without those that it does not have.
fn values<K>(
    value: impl Fn(&K) -> Option<String>,
    keys: &[(K, &'static str)],
) -> impl Iterator<Item = (&'static str, String)> {
    keys.iter().filter_map(move |(key, name)| Some((*name, value(key)?)))
}

/// Checks values that are parts of headers.
fn check_headers(values: impl Iterator<Item = (&'static str, String)>) -> io::Result<()> {
    for (name, value) in values {
        if !value.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
            let message = format!("{name} has a control character, or one that is not ASCII; copy it again");
            return Err(invalid(message));
        }
    }
    Ok(())
}

/// Checks values that are parts of the name of a host.
fn check_names(values: impl Iterator<Item = (&'static str, String)>) -> io::Result<()> {
    for (name, value) in values {
        if !is_name(&value) {
            return Err(invalid(format!("{name} must be of {NAME}")));
        }
    }
    Ok(())
}

/// Checks the path of a file of credentials, which may be its content by mistake.
fn check_path(name: &str, path: &str) -> io::Result<()> {
    match path.trim_start().starts_with('{') {
        true => Err(invalid(format!(
            "{name} is JSON, expected the path of a file; google_service_account_key takes the JSON of a service account"
        ))),
        false => Ok(()),
    }
}

/// Checks the key of a service account before the store does, whose errors may quote it.
fn check_service_account(key: &str) -> io::Result<()> {
    let parsed = serde_json::from_str::<Value>(key).ok();
    let has = |name| parsed.as_ref().is_some_and(|parsed| parsed.get(name).is_some_and(Value::is_string));
    if has("private_key") && has("client_email") {
        return Ok(());
    }
    Err(invalid(
        "google_service_account_key is no key of a service account, expected JSON with client_email and private_key; \
         google_service_account has the path of such a file",
    ))
}

#[cfg(test)]
mod tests {
    use super::{super::settings::check_endpoint, *};
    use crate::{GivenOption, StoreOptions};

    fn settings(options: &[(&str, &str)], variables: &[(&str, &str)]) -> Settings {
        let options =
            options.iter().map(|(name, value)| (name.to_string(), GivenOption::Text(value.to_string())));
        let variables = variables.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        Settings::new(&StoreOptions::new(options).unwrap(), variables)
    }

    fn s3(
        options: &[(&str, &str)],
        variables: &[(&str, &str)],
        keys: &[AmazonS3ConfigKey],
    ) -> Vec<Option<String>> {
        let (builder, _) = settings(options, variables).s3().unwrap();
        keys.iter().map(|key| builder.get_config_value(key)).collect()
    }

    #[test]
    fn options_override_the_environment() {
        use AmazonS3ConfigKey::{AccessKeyId, Endpoint, Region, SecretAccessKey, SkipSignature, Token};
        let environment = [
            ("AWS_ACCESS_KEY_ID", "e-id"),
            ("AWS_SECRET_ACCESS_KEY", "e-secret"),
            ("AWS_SESSION_TOKEN", "e-token"),
            ("AWS_REGION", "e-region"),
            ("AWS_ENDPOINT_URL_S3", "http://e"),
        ];
        let keys = [AccessKeyId, SecretAccessKey, Token, Region, Endpoint];
        let some =
            |values: [&str; 5]| values.map(|value| Some(value.to_owned()).filter(|value| !value.is_empty()));
        assert_eq!(
            s3(&[], &environment, &keys),
            some(["e-id", "e-secret", "e-token", "e-region", "http://e"])
        );
        // The session token of the environment belongs to another key.
        let own = [("aws_access_key_id", "id"), ("aws_secret_access_key", "secret")];
        assert_eq!(s3(&own, &environment, &keys), some(["id", "secret", "", "e-region", "http://e"]));
        let other = [("region", "region"), ("endpoint_url", "http://o")];
        assert_eq!(
            s3(&other, &environment, &keys),
            some(["e-id", "e-secret", "e-token", "region", "http://o"])
        );
        let unsigned = [("AWS_SKIP_SIGNATURE", "true")];
        assert_eq!(
            s3(&own, &unsigned, &[AccessKeyId, SkipSignature]),
            [Some("id".to_owned()), Some("false".to_owned())]
        );
        for region in [("AWS_DEFAULT_REGION", "r"), ("AWS_REGION", "r")] {
            assert_eq!(s3(&[], &[region], &[Region]), [Some("r".to_owned())]);
        }
    }

    #[test]
    fn wrong_variables_are_named_and_not_quoted() {
        for endpoint in
            ["minio:9000", "http://", "not a url", "http://u:hidden@h", "https://h?hidden", "http://[x"]
        {
            for (scheme, name) in
                [("hf", "HF_ENDPOINT"), ("s3", "AWS_ENDPOINT_URL"), ("gs", "GOOGLE_BASE_URL")]
            {
                let error = settings(&[], &[(name, endpoint)]).endpoint(scheme).unwrap_err().to_string();
                assert!(error.contains(name) && !error.contains("hidden"), "{error}");
            }
        }
        for endpoint in ["http://127.0.0.1:9000", "https://[::1]:9/path", "https://h"] {
            check_endpoint("x", endpoint).unwrap();
        }
        let error = settings(&[], &[("AWS_SECRET_ACCESS_KEY", "hidden\n")]).s3().err().unwrap().to_string();
        assert!(error.contains("AWS_SECRET_ACCESS_KEY") && !error.contains("hidden"), "{error}");
        for key in ["hidden", "\"hidden\"", "{\"private_key\": 1}"] {
            let error = settings(&[("google_service_account_key", key)], &[]).gs().err().unwrap().to_string();
            assert!(error.contains("client_email") && !error.contains("hidden"), "{error}");
        }
    }

    /// The client would panic, or quote them.
    #[test]
    fn values_that_no_request_can_have_are_named_and_not_quoted() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join(".aws")).unwrap();
        let credentials = "[default]\naws_access_key_id = x\naws_secret_access_key = y\naws_session_token = hidd\u{1}en\n\
            region = a/hidden\n[region]\nregion = hidden/x\n";
        std::fs::write(home.path().join(".aws/credentials"), credentials).unwrap();
        let home = home.path().to_str().unwrap();
        let keys = [("AWS_ACCESS_KEY_ID", "x"), ("AWS_SECRET_ACCESS_KEY", "y")];
        let error_of = |scheme: &str, variables: &[(&str, &str)]| {
            let settings = settings(&[], variables);
            let error = match scheme {
                "s3" => settings.s3().err(),
                "gs" => settings.gs().err(),
                _ => settings.az().err(),
            };
            error.unwrap().to_string()
        };
        for (scheme, variables, named) in [
            ("s3", [keys[0], keys[1], ("AWS_SESSION_TOKEN", "hiddén")].as_slice(), "aws_session_token has"),
            ("s3", &[("AWS_ACCESS_KEY_ID", "hiddén"), keys[1]], "aws_access_key_id has"),
            ("s3", &[keys[0], keys[1], ("AWS_REGION", "x@hidden")], "aws_region must be"),
            ("s3", &[("HOME", home), ("AWS_REGION", "x")], "aws_session_token has"),
            ("s3", &[("HOME", home), ("AWS_PROFILE", "region")], "aws_region must be"),
            ("az", &[("AZURE_STORAGE_TOKEN", "hiddén")], "azure_storage_token has"),
            (
                "az",
                &[("AZURE_STORAGE_ACCOUNT_NAME", "x;AccountKey=hidden")],
                "azure_storage_account_name must be",
            ),
            (
                "gs",
                &[("GOOGLE_SERVICE_ACCOUNT", "{\"private_key\": \"hidden\"}")],
                "google_service_account is JSON",
            ),
            ("gs", &[("SERVICE_ACCOUNT", " {\"hidden\": 1}")], "SERVICE_ACCOUNT is JSON"),
            (
                "gs",
                &[("GOOGLE_APPLICATION_CREDENTIALS", "{hidden")],
                "google_application_credentials is JSON",
            ),
        ] {
            let error = error_of(scheme, variables);
            assert!(error.contains(named) && !error.contains("hidd"), "{error}");
        }
    }

    #[test]
    fn secrets_are_cut_out_of_messages_whole() {
        let settings = settings(
            &[("azure_storage_account_key", "hidden"), ("sas_token", "hidden-rest")],
            &[("AZURE_CLIENT_SECRET", "hid")],
        );
        let source = "the value is hidden-rest".into();
        let error = settings.refused("az", &object_store::Error::Generic { store: "x", source }).to_string();
        assert!(error.ends_with("the value is ***"), "{error}");
    }

    #[test]
    fn withheld_secrets_are_those_of_the_environment() {
        use AmazonS3ConfigKey::{AccessKeyId, SecretAccessKey};
        let given = ["aws_access_key_id", "aws_secret_access_key"];
        let options = StoreOptions::new(given.map(|name| (name.to_owned(), GivenOption::Withheld))).unwrap();
        let set = |names: &[&str]| {
            names.iter().map(|name| (name.to_string(), name.to_lowercase())).collect::<Vec<_>>()
        };
        let all = set(&["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]);
        let (builder, _) = Settings::new(&options, all).s3().unwrap();
        assert_eq!(builder.get_config_value(&AccessKeyId).unwrap(), "aws_access_key_id");
        assert_eq!(builder.get_config_value(&SecretAccessKey).unwrap(), "aws_secret_access_key");
        let error = Settings::new(&options, set(&["AWS_ACCESS_KEY_ID"])).s3().err().unwrap().to_string();
        assert!(error.contains("no AWS_SECRET_ACCESS_KEY"), "{error}");
    }
}
