//! Files of the Hub: their addresses, the token, and the Hub's cache folder, as `huggingface_hub` has them.
//!
//! A file that the cache folder has at the requested revision is read there, without a request. If the folder
//! knows the commit of a branch or tag, all files of the source are those of this commit, so that the files
//! that are there and those that are requested are of one version. Nothing is written into the folder.

use std::{
    collections::HashMap,
    fs, io,
    io::Read,
    path::{Component, Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use super::settings::{Settings, invalid};
use crate::{storage::ListingPage, tree::DEEPEST};

const HUB: &str = "https://huggingface.co";
/// The most bytes of a file with a token or a commit.
const LONGEST: u64 = 4096;
/// The most files of a snapshot, as of a folder.
const MOST_FILES: usize = 1 << 20;

/// The parts of `datasets/OWNER/NAME[@REVISION]/FILE`, percent-encoded as they were given.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct HubFile<'a> {
    pub owner: &'a str,
    pub name: &'a str,
    pub revision: &'a str,
    /// Empty for the folder of the whole dataset.
    pub path: &'a str,
}

pub(super) const EXPECTED: &str = "expected is hf://datasets/OWNER/NAME[@REVISION]/FILE";

impl<'a> HubFile<'a> {
    pub(super) fn of(kind: &str, name: &'a str) -> io::Result<Self> {
        let mut parts = name.splitn(3, '/');
        let (owner, name) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
        let (name, revision) = name.split_once('@').unwrap_or((name, "main"));
        if kind != "datasets" || [owner, name, revision].iter().any(|part| part.is_empty()) {
            return Err(invalid(EXPECTED));
        }
        Ok(Self { owner, name, revision, path: parts.next().unwrap_or("").trim_end_matches('/') })
    }
}

/// The Hub as the settings have it.
pub(super) struct Hub {
    pub endpoint: String,
    pub token: Option<String>,
    pub is_offline: bool,
    cache: Option<PathBuf>,
    /// The commit of each revision that was looked up: it stays the same for the life of a source.
    commits: Mutex<HashMap<PathBuf, Option<String>>>,
}

fn is_set(settings: &Settings, name: &str) -> bool {
    let value = settings.variable(name).map(str::to_ascii_uppercase);
    value.is_some_and(|value| matches!(&*value, "1" | "ON" | "YES" | "TRUE"))
}

impl Hub {
    /// # Errors
    /// For an endpoint that is none.
    pub(super) fn new(settings: &Settings) -> io::Result<Self> {
        let endpoint = settings.endpoint("hf")?.unwrap_or(HUB).trim_end_matches('/').to_owned();
        let below = |folder: &str, name: &str| settings.folder(folder).join(name);
        let home = match (
            settings.variable("HF_HOME"),
            settings.variable("XDG_CACHE_HOME"),
            settings.variable("HOME"),
        ) {
            (Some(home), ..) => Some(settings.folder(home)),
            (_, Some(caches), _) => Some(below(caches, "huggingface")),
            (.., Some(home)) => Some(below(home, ".cache/huggingface")),
            _ => None,
        };
        let cache = settings.first(&["HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"]);
        let cache =
            cache.map(|(_, folder)| settings.folder(folder)).or_else(|| Some(home.as_ref()?.join("hub")));
        let file = settings.variable("HF_TOKEN_PATH").map(|path| settings.folder(path));
        let file = file.or_else(|| Some(home?.join("token")));
        Ok(Self {
            endpoint,
            token: token(settings, file.as_deref())?,
            is_offline: is_set(settings, "HF_HUB_OFFLINE") || is_set(settings, "TRANSFORMERS_OFFLINE"),
            cache,
            commits: Mutex::default(),
        })
    }

    /// The commit that stands for a revision, and the folder of its files, if the cache folder has it.
    fn snapshot(&self, file: &HubFile<'_>) -> Option<(String, PathBuf)> {
        let part = |text: &str| decoded(text).filter(|text| !text.contains('/'));
        let folder = format!("datasets--{}--{}", part(file.owner)?, part(file.name)?);
        let folder = self.cache.as_ref()?.join(folder);
        let revision = decoded(file.revision)?;
        let commit = match is_commit(&revision) {
            true => revision,
            false => self.commit(&folder.join("refs").join(revision), file)?,
        };
        let snapshot = folder.join("snapshots").join(&commit);
        Some((commit, snapshot))
    }

    /// The commit in a file of the cache folder.
    fn commit(&self, path: &Path, file: &HubFile<'_>) -> Option<String> {
        let mut commits = self.commits.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = commits.get(path) {
            return known.clone();
        }
        let found = read_short(path).unwrap_or_else(|error| {
            log::warn!("cannot read {}: {error}; the Hub's cache folder is not used", path.display());
            None
        });
        let commit = found.map(|text| text.trim().to_owned()).filter(|text| is_commit(text));
        if let Some(commit) = &commit {
            let HubFile { owner, name, revision, .. } = file;
            log::info!(
                "{owner}/{name}@{revision} is read as of commit {commit}, as {} says; download it again for a newer one",
                path.display()
            );
        }
        commits.insert(path.to_owned(), commit.clone());
        commit
    }

    /// Where a file lies in the cache folder, or the revision that is requested.
    ///
    /// # Errors
    /// `NotFound` if it is not there, and the Hub is not to be asked.
    pub(super) fn find(&self, file: &HubFile<'_>) -> io::Result<Result<PathBuf, String>> {
        let found = self.snapshot(file);
        if let Some((_, snapshot)) = &found
            && let Some(name) = decoded(file.path)
            && let path = snapshot.join(name)
            && path.is_file()
        {
            return Ok(Ok(path));
        }
        self.check_online(file)?;
        Ok(Err(found.map_or_else(|| file.revision.to_owned(), |(commit, _)| commit)))
    }

    /// The names below a folder, or the revision that is listed.
    ///
    /// # Errors
    /// As [`Self::find`].
    pub(super) fn list(&self, folder: &HubFile<'_>) -> io::Result<Result<ListingPage, String>> {
        let found = self.snapshot(folder);
        if !self.is_offline {
            return Ok(Err(found.map_or_else(|| folder.revision.to_owned(), |(commit, _)| commit)));
        }
        let top =
            found.filter(|(_, snapshot)| snapshot.is_dir()).and_then(|(_, snapshot)| match folder.path {
                "" => Some(snapshot),
                path => Some(snapshot.join(decoded(path)?)),
            });
        let Some(top) = top else { return self.check_online(folder).map(|()| Ok(ListingPage::default())) };
        let mut names = Vec::new();
        add_below(&top, "", 0, &mut names)?;
        names.sort_unstable();
        Ok(Ok(ListingPage { names, ..ListingPage::default() }))
    }

    fn check_online(&self, file: &HubFile<'_>) -> io::Result<()> {
        if !self.is_offline {
            return Ok(());
        }
        let HubFile { owner, name, revision, .. } = file;
        let cache = self.cache.as_ref().map_or("(none)".to_owned(), |cache| cache.display().to_string());
        let message = format!(
            "HF_HUB_OFFLINE is set, and the Hub's cache folder {cache} does not have it at revision {revision}; unset \
             HF_HUB_OFFLINE, or download it before: hf download --repo-type dataset --revision {revision} {owner}/{name}"
        );
        Err(io::Error::new(io::ErrorKind::NotFound, message))
    }
}

/// The token: the option, the environment, or the file of a login.
fn token(settings: &Settings, file: Option<&Path>) -> io::Result<Option<String>> {
    if let Some(token) = settings.options.get("hf_token") {
        return Ok(Some(token.to_owned()));
    }
    let cleaned = |text: &str| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
    let is_withheld = settings.options.withheld("hf").next().is_some();
    if is_set(settings, "HF_HUB_DISABLE_IMPLICIT_TOKEN") && !is_withheld {
        return Ok(None);
    }
    let of_environment = settings.first(&["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"]);
    let mut found = of_environment.and_then(|(_, token)| cleaned(token));
    if found.is_none()
        && let Some(file) = file
    {
        found = read_short(file).unwrap_or_else(|error| {
            log::warn!("cannot read {}: {error}; the Hub gets no token", file.display());
            None
        });
        found = found.as_deref().and_then(cleaned);
    }
    if found.is_none() {
        settings.check_withheld("hf")?;
    }
    Ok(found)
}

/// The text of a short file; None if there is none.
fn read_short(path: &Path) -> io::Result<Option<String>> {
    use io::ErrorKind::{InvalidData, NotADirectory, NotFound};
    // A pipe would block.
    match fs::metadata(path) {
        Ok(found) if found.is_file() => {}
        Ok(_) => return Ok(None),
        Err(error) if matches!(error.kind(), NotFound | NotADirectory) => return Ok(None),
        Err(error) => return Err(error),
    }
    let mut text = String::new();
    // bounded: `LONGEST`.
    fs::File::open(path)?.take(LONGEST + 1).read_to_string(&mut text)?;
    match text.len() as u64 > LONGEST {
        true => Err(io::Error::new(InvalidData, format!("it has more than {LONGEST} bytes"))),
        false => Ok(Some(text)),
    }
}

fn is_commit(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The text without percent-encoding, if it names something below a folder.
fn decoded(text: &str) -> Option<String> {
    let path = object_store::path::Path::from_url_path(text).ok()?.as_ref().to_owned();
    let mut parts = Path::new(&path).components();
    (!path.is_empty() && parts.all(|part| matches!(part, Component::Normal(_)))).then_some(path)
}

/// Adds the names of the files below `folder`, each after `prefix`.
fn add_below(folder: &Path, prefix: &str, depth: usize, names: &mut Vec<String>) -> io::Result<()> {
    let failed =
        |error: io::Error| io::Error::new(error.kind(), format!("cannot list {}: {error}", folder.display()));
    if depth > DEEPEST {
        return Err(invalid(format!("{} is more than {DEEPEST} folders deep", folder.display())));
    }
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        // Files are links to blobs, folders are none.
        let kind = entry.file_type().map_err(failed)?;
        if kind.is_dir() {
            add_below(&entry.path(), &format!("{prefix}{name}/"), depth + 1, names)?;
        } else if entry.path().is_file() {
            if names.len() == MOST_FILES {
                return Err(invalid(format!("{} has more than {MOST_FILES} files", folder.display())));
            }
            // bounded: `MOST_FILES`.
            names.push(format!("{prefix}{name}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GivenOption, StoreOptions};

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

    fn hub(options: &[(&str, &str)], variables: &[(&str, &str)]) -> io::Result<Hub> {
        let options =
            options.iter().map(|(name, value)| (name.to_string(), GivenOption::Text(value.to_string())));
        let variables = variables.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        Hub::new(&Settings::new(&StoreOptions::new(options).unwrap(), variables))
    }

    fn file(name: &str) -> HubFile<'_> {
        HubFile::of("datasets", name).unwrap()
    }

    /// A cache folder with two files of a commit, which is that of `main`.
    fn cache() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let dataset = folder.path().join("hub/datasets--o--n");
        let snapshot = dataset.join("snapshots").join(COMMIT);
        for path in [dataset.join("refs/refs/convert"), snapshot.join("a b")] {
            fs::create_dir_all(path).unwrap();
        }
        fs::write(dataset.join("refs/main"), COMMIT).unwrap();
        fs::write(dataset.join("refs/refs/convert/parquet"), COMMIT).unwrap();
        fs::write(dataset.join("refs/wrong"), "../../../x").unwrap();
        fs::write(snapshot.join("a b/x.parquet"), "1").unwrap();
        fs::write(snapshot.join("y.parquet"), "2").unwrap();
        folder
    }

    #[test]
    fn files_of_the_cache_folder() {
        let cache = cache();
        let home = ("HF_HOME", cache.path().to_str().unwrap());
        let online = hub(&[], &[home]).unwrap();
        for here in [
            "o/n/a%20b/x.parquet",
            "o/n@refs%2Fconvert%2Fparquet/y.parquet",
            &format!("o/n@{COMMIT}/y.parquet"),
        ] {
            assert!(online.find(&file(here)).unwrap().unwrap().is_file(), "{here}");
        }
        // What is not there is that of the same commit.
        assert_eq!(online.find(&file("o/n/z.parquet")).unwrap().unwrap_err(), COMMIT);
        assert_eq!(online.list(&file("o/n")).unwrap().unwrap_err(), COMMIT);
        for revision in ["v1", "wrong", "%2e%2e"] {
            let name = format!("o/n@{revision}/y.parquet");
            assert_eq!(online.find(&file(&name)).unwrap().unwrap_err(), revision);
        }
        for name in ["o/n/a%20b", "o/n/%2e%2e/%2e%2e/refs/main", "o/m/y.parquet"] {
            assert!(online.find(&file(name)).unwrap().is_err(), "{name}");
        }
        let offline = hub(&[], &[home, ("HF_HUB_OFFLINE", "1")]).unwrap();
        assert!(offline.find(&file("o/n/y.parquet")).unwrap().is_ok());
        assert_eq!(offline.list(&file("o/n")).unwrap().unwrap().names, ["a b/x.parquet", "y.parquet"]);
        assert_eq!(offline.list(&file("o/n/a%20b/")).unwrap().unwrap().names, ["x.parquet"]);
        for missing in ["o/n/z.parquet", "o/n@v1/y.parquet", "o/m/y.parquet"] {
            let error = offline.find(&file(missing)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotFound);
            assert!(error.to_string().contains("HF_HUB_OFFLINE is set"), "{error}");
        }
        assert!(offline.list(&file("o/n@v1")).is_err());
        // The commit stays that of the beginning.
        fs::write(cache.path().join("hub/datasets--o--n/refs/main"), "f".repeat(40)).unwrap();
        assert!(online.find(&file("o/n/y.parquet")).unwrap().is_ok());
    }

    #[test]
    fn the_token_is_that_of_the_library() {
        let cache = cache();
        let home = ("HF_HOME", cache.path().to_str().unwrap());
        let token = |options: &[_], variables: &[_]| hub(options, variables).unwrap().token;
        assert_eq!(token(&[], &[home]), None);
        fs::write(cache.path().join("token"), "of-file\n").unwrap();
        assert_eq!(token(&[], &[home]).unwrap(), "of-file");
        assert_eq!(token(&[], &[home, ("HF_TOKEN", " of-environment \n")]).unwrap(), "of-environment");
        assert_eq!(token(&[("token", "given")], &[home, ("HF_TOKEN", "x")]).unwrap(), "given");
        assert_eq!(token(&[], &[home, ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "true")]), None);
        let path = cache.path().join("other");
        assert_eq!(token(&[], &[home, ("HF_TOKEN_PATH", path.to_str().unwrap())]), None);
        fs::write(&path, "x".repeat(5000)).unwrap();
        assert_eq!(token(&[], &[home, ("HF_TOKEN_PATH", path.to_str().unwrap())]), None);
    }
}
