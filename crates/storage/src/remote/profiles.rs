//! A profile of the tools of AWS: `~/.aws/credentials` and `~/.aws/config`.
//!
//! Input: `aws_profile`, `AWS_PROFILE` or `default`. Output: region, endpoint and keys. A profile that gets
//! its keys in another way (single sign-on, a role, a process) is an error that says how to export them.

use std::{collections::HashMap, fs, io, io::Read, path::Path};

use super::settings::{Settings, check_endpoint, invalid};

/// The most bytes of a file.
const LONGEST: u64 = 1 << 20;

/// Settings of a profile from which keys would be made.
const MADE: [&str; 5] =
    ["credential_process", "role_arn", "sso_session", "sso_start_url", "web_identity_token_file"];

/// A profile. Its values are secrets.
#[derive(Default)]
pub(super) struct Profile {
    name: String,
    is_named: bool,
    values: HashMap<String, String>,
}

pub(super) struct Keys<'a> {
    pub id: &'a str,
    pub secret: &'a str,
    pub token: Option<&'a str>,
}

impl Profile {
    /// Reads the profile that the settings name.
    ///
    /// # Errors
    /// If it is named and not there, or a file cannot be read.
    pub(super) fn read(settings: &Settings) -> io::Result<Self> {
        let named = settings.options.get("aws_profile");
        let named =
            named.or_else(|| settings.first(&["AWS_PROFILE", "AWS_DEFAULT_PROFILE"]).map(|(_, name)| name));
        let mut profile = Self {
            name: named.unwrap_or("default").to_owned(),
            is_named: named.is_some(),
            values: HashMap::new(),
        };
        let (mut is_there, mut tried) = (false, Vec::new());
        // What both have, the first file decides.
        for (variable, usual, prefix) in [
            ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials", ""),
            ("AWS_CONFIG_FILE", "~/.aws/config", "profile "),
        ] {
            let path = settings.variable(variable);
            if path.is_none() && settings.variable("HOME").is_none() {
                continue;
            }
            let path = settings.folder(path.unwrap_or(usual));
            is_there |= profile.add(&path, prefix)?;
            tried.push(path.display().to_string());
        }
        if profile.is_named && !is_there {
            let message = format!("there is no profile {:?} in {}", profile.name, tried.join(" or "));
            return Err(invalid(message));
        }
        Ok(profile)
    }

    /// Adds the settings of the profile in a file; returns whether it has the profile.
    fn add(&mut self, path: &Path, prefix: &str) -> io::Result<bool> {
        let failed = |error: io::Error| {
            io::Error::new(error.kind(), format!("cannot read {}: {error}", path.display()))
        };
        // A pipe would block.
        match fs::metadata(path) {
            Ok(found) if found.is_file() => {}
            Ok(_) => return Err(invalid(format!("{} is no file", path.display()))),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(false);
            }
            Err(error) => return Err(failed(error)),
        }
        let mut bytes = Vec::new();
        let file = fs::File::open(path).map_err(failed)?;
        // bounded: `LONGEST`.
        file.take(LONGEST + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > LONGEST {
            return Err(invalid(format!("{} has more than {LONGEST} bytes", path.display())));
        }
        let text = String::from_utf8_lossy(&bytes);
        // Editors of Windows begin a file so.
        let text = text.trim_start_matches('\u{feff}');
        let (mut is_ours, mut is_there) = (false, false);
        for line in text.lines() {
            // Nested settings are indented.
            if line.starts_with([' ', '\t', '#', ';']) {
                continue;
            }
            if let Some(section) = line.trim_end().strip_prefix('[').and_then(|line| line.split(']').next()) {
                let section = section.trim();
                let named = section.strip_prefix(prefix).map(str::trim_start);
                // In the config file the default needs no prefix.
                is_ours = named == Some(&*self.name) || section == "default" && self.name == "default";
                is_there |= is_ours;
            } else if let Some((name, value)) = line.split_once('=').filter(|_| is_ours) {
                let (name, value) = (name.trim().to_ascii_lowercase(), value.trim().to_owned());
                if !value.is_empty() {
                    self.values.entry(name).or_insert(value);
                }
            }
        }
        Ok(is_there)
    }

    fn value(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    pub(super) fn region(&self) -> Option<&str> {
        self.value("region")
    }

    /// The address of the server.
    ///
    /// # Errors
    /// If it is none.
    pub(super) fn endpoint(&self) -> io::Result<Option<&str>> {
        let Some(endpoint) = self.value("endpoint_url") else { return Ok(None) };
        check_endpoint(&format!("endpoint_url of the profile {:?}", self.name), endpoint)?;
        Ok(Some(endpoint))
    }

    /// The keys, if the profile has any; `has_others`: whether the environment has other credentials.
    ///
    /// # Errors
    /// If the profile makes its keys in a way that is not read.
    pub(super) fn keys(&self, has_others: bool) -> io::Result<Option<Keys<'_>>> {
        let (id, secret) = (self.value("aws_access_key_id"), self.value("aws_secret_access_key"));
        match (id, secret) {
            (Some(id), Some(secret)) => {
                return Ok(Some(Keys { id, secret, token: self.value("aws_session_token") }));
            }
            (None, None) => {}
            _ => {
                let message = format!(
                    "the profile {:?} has only one of aws_access_key_id and aws_secret_access_key; it needs both",
                    self.name
                );
                return Err(invalid(message));
            }
        }
        let made = MADE.iter().find(|name| self.values.contains_key(**name));
        match made {
            Some(made) if self.is_named || !has_others => Err(invalid(format!(
                "the profile {:?} gets its keys by {made}, which is not read; export them: eval \"$(aws configure \
                 export-credentials --profile {} --format env)\"",
                self.name, self.name
            ))),
            _ => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StoreOptions;

    const CREDENTIALS: &str = "# comment\n[default]\naws_access_key_id = d-id\naws_secret_access_key=d-secret\n\n\
        [ other ]\r\nAWS_ACCESS_KEY_ID = o-id\r\naws_secret_access_key = o=secret\r\naws_session_token = o-token\r\n\
        [half]\naws_access_key_id = h\n";
    const CONFIG: &str = "[default]\nregion = d-region\ns3 =\n  max_concurrent_requests = 20\n\
        [profile other]\nregion = o-region\nendpoint_url = http://o\naws_access_key_id = no\n\
        [profile sso]\nsso_session = x\n[profile wrong]\nendpoint_url = o:9000\n";

    fn read(name: Option<&str>) -> io::Result<Profile> {
        read_from(CREDENTIALS.as_bytes(), name)
    }

    fn read_from(credentials: &[u8], name: Option<&str>) -> io::Result<Profile> {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join(".aws")).unwrap();
        fs::write(folder.path().join(".aws/credentials"), credentials).unwrap();
        fs::write(folder.path().join(".aws/config"), CONFIG).unwrap();
        let home = ("HOME".to_owned(), folder.path().display().to_string());
        let name = name.map(|name| ("AWS_PROFILE".to_owned(), name.to_owned()));
        Profile::read(&Settings::new(&StoreOptions::default(), name.into_iter().chain([home])))
    }

    fn keys(profile: &Profile) -> (&str, &str, Option<&str>) {
        let Keys { id, secret, token } = profile.keys(false).unwrap().unwrap();
        (id, secret, token)
    }

    #[test]
    fn profiles_of_both_files() {
        let default = read(None).unwrap();
        assert_eq!((keys(&default), default.region()), (("d-id", "d-secret", None), Some("d-region")));
        let other = read(Some("other")).unwrap();
        assert_eq!(keys(&other), ("o-id", "o=secret", Some("o-token")));
        assert_eq!((other.region(), other.endpoint().unwrap()), (Some("o-region"), Some("http://o")));
        // Without files there are no settings.
        let none = Settings::new(&StoreOptions::default(), [("HOME".to_owned(), "/none".to_owned())]);
        assert!(Profile::read(&none).unwrap().keys(false).unwrap().is_none());
    }

    #[test]
    fn files_of_other_editors() {
        let text =
            "[default]\naws_access_key_id = 1\naws_secret_access_key = 2\n[default]\naws_access_key_id = 3\n";
        for text in [format!("\u{feff}{text}"), text.replace('\n', "\r\n"), text.trim_end().to_owned()] {
            assert_eq!(keys(&read_from(text.as_bytes(), None).unwrap()), ("1", "2", None), "{text:?}");
        }
        // Bytes that are no text hide no other section.
        let bytes = [b"\xff\0[x\xfe]\n=\n[\n[]\n".as_slice(), text.as_bytes()].concat();
        assert_eq!(keys(&read_from(&bytes, None).unwrap()), ("1", "2", None));
    }

    #[test]
    fn what_is_wrong_with_a_profile() {
        let told = |error: io::Error| error.to_string();
        assert!(told(read(Some("none")).err().unwrap()).contains("no profile \"none\""));
        let failed = |name| told(read(Some(name)).unwrap().keys(true).err().unwrap());
        assert!(failed("half").contains("needs both"));
        assert!(failed("sso").contains("export-credentials --profile sso"));
        assert!(told(read(Some("wrong")).unwrap().endpoint().unwrap_err()).contains("no address"));
        let folder = tempfile::tempdir().unwrap();
        let long = folder.path().join("long");
        fs::write(&long, vec![b'#'; LONGEST as usize + 1]).unwrap();
        for (path, wrong) in [(long.as_path(), "more than"), (folder.path(), "is no file")] {
            let set = ("AWS_CONFIG_FILE".to_owned(), path.display().to_string());
            let error = Profile::read(&Settings::new(&StoreOptions::default(), [set])).err().unwrap();
            assert!(told(error).contains(wrong));
        }
    }
}
