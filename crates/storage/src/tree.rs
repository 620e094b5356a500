//! Folders and what is in them: of this machine, or of a server whose objects were listed.

use std::{
    borrow::Cow,
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    storage::{self, LocalFiles, OmittedObjects, Storage},
    urls,
};
use crate::{Error, ErrorKind, Result, cancel, fallible_alloc};

/// The most bytes of the names in a list.
const MOST_NAME_BYTES: usize = 256 << 20;

/// The most bytes of a name, as of a path of a file.
const LONGEST: usize = 4096;

/// The most folders below each other.
pub const DEEPEST: usize = 64;

#[derive(Debug, Clone)]
pub struct FolderEntry {
    pub path: PathBuf,
    pub is_folder: bool,
}

pub enum Tree {
    Local,
    Listed(FolderListing),
}

pub struct FolderListing {
    entries: HashMap<PathBuf, Vec<FolderEntry>>,
    storage: Arc<dyn Storage>,
}

impl Tree {
    /// Lists what is below the folder `url`: at most `most` objects.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if there are more; the errors of listing; [`ErrorKind::Closed`] once the work is
    /// stopped.
    pub fn listed(storage: &Arc<dyn Storage>, url: &Path, most: u64) -> Result<Self> {
        let storage = storage.clone();
        let mut listed = FolderListing { entries: HashMap::from([(url.to_owned(), Vec::new())]), storage };
        let (mut next, mut n_listed, mut left_out) = (None::<String>, 0, OmittedObjects::default());
        let mut n_bytes = 0;
        loop {
            cancel::check("opening")?;
            let page = storage::page(&*listed.storage, url, next.as_deref())?;
            // An empty page counts too, or a server could send them for ever.
            n_listed += page.names.len().max(1) as u64;
            if n_listed > most {
                let message = format!(
                    "there are more than {most} objects below {}; name a folder or a pattern that has fewer",
                    url.display()
                );
                return Err(Error::new(ErrorKind::Config, message));
            }
            n_bytes += page.names.iter().map(String::len).sum::<usize>();
            if n_bytes > MOST_NAME_BYTES {
                let message = format!(
                    "the names of the objects below {} have more than {MOST_NAME_BYTES} bytes; name a folder or a pattern \
                     that has fewer",
                    url.display()
                );
                return Err(Error::new(ErrorKind::Config, message));
            }
            left_out.add(page.left_out);
            for name in &page.names {
                listed.add(url, name, &mut left_out)?;
            }
            match page.next {
                Some(after) if next.as_ref() == Some(&after) => {
                    let message = format!("the server repeats a page of the list of {}", url.display());
                    return Err(Error::new(ErrorKind::Io, message));
                }
                Some(after) => next = Some(after),
                None => break,
            }
        }
        if let OmittedObjects { n, first: Some(first) } = left_out {
            log::warn!(
                "below {} objects are left out whose names have no path, since a part is empty, . or .., or has a control \
                 character, or there are more than {LONGEST} bytes: {n}, the first is {first:?}",
                url.display()
            );
        }
        Ok(Self::Listed(listed))
    }

    /// Calls `each` with the entries of a folder, and whether they are links, in no certain order.
    pub fn each(&self, folder: &Path, mut each: impl FnMut(FolderEntry, bool) -> Result<()>) -> Result<()> {
        let listed = match self {
            Self::Listed(listed) => listed.entries.get(folder),
            Self::Local => {
                let here = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
                let io = |error| Error::io(here, "list", error);
                for entry in fs::read_dir(here).map_err(io)? {
                    let entry = entry.map_err(io)?;
                    let (path, kind) = (folder.join(entry.file_name()), entry.file_type().map_err(io)?);
                    // A broken link is a file.
                    let is_folder = if kind.is_symlink() { path.is_dir() } else { kind.is_dir() };
                    each(FolderEntry { path, is_folder }, kind.is_symlink())?;
                }
                return Ok(());
            }
        };
        listed.into_iter().flatten().try_for_each(|entry| each(entry.clone(), false))
    }

    pub fn is_folder(&self, path: &Path) -> bool {
        match self {
            Self::Local => path.is_dir(),
            Self::Listed(listed) => listed.entries.contains_key(path),
        }
    }

    /// A path as people write it.
    pub fn shown<'a>(&self, path: &'a Path) -> Cow<'a, Path> {
        match self {
            Self::Local => Cow::Borrowed(path),
            Self::Listed(_) => Cow::Owned(urls::unescaped(path)),
        }
    }

    /// Whether there is a regular file.
    pub fn is_file(&self, path: &Path) -> bool {
        match self {
            Self::Local => path.is_file(),
            Self::Listed(listed) => listed.has(path),
        }
    }

    /// Whether there is anything, also a link that leads nowhere.
    pub fn is_there(&self, path: &Path) -> bool {
        match self {
            Self::Local => fs::symlink_metadata(path).is_ok(),
            Self::Listed(listed) => listed.has(path) || listed.entries.contains_key(path),
        }
    }

    pub fn storage(&self) -> Arc<dyn Storage> {
        match self {
            Self::Local => Arc::new(LocalFiles),
            Self::Listed(listed) => listed.storage.clone(),
        }
    }
}

impl FolderListing {
    /// Adds an object and the folders on the way to it. Names that no file system has, such as `a//b`, are
    /// left out: their URLs would name something else.
    fn add(&mut self, url: &Path, name: &str, left_out: &mut OmittedObjects) -> Result<()> {
        if name.len() > LONGEST || name.contains(char::is_control) {
            left_out.push(name);
            return Ok(());
        }
        if name.matches('/').count() >= DEEPEST {
            let message = format!("below {} an object is more than {DEEPEST} folders deep", url.display());
            return Err(Error::new(ErrorKind::Config, message));
        }
        let parts: Vec<&str> = name.split('/').collect();
        if parts.iter().any(|part| matches!(*part, "" | "." | "..")) {
            left_out.push(name);
            return Ok(());
        }
        let mut folder = url.to_owned();
        for (number, part) in parts.iter().enumerate() {
            let (path, is_folder) = (folder.join(urls::escaped(part)), number + 1 < parts.len());
            let is_known = is_folder && self.entries.contains_key(&path);
            if !is_known {
                let entry = FolderEntry { path: path.clone(), is_folder };
                fallible_alloc::push(self.entries.entry(folder).or_default(), entry)?;
            }
            if is_folder {
                // An empty object of the same name marks the folder.
                self.entries.entry(path.clone()).or_default();
            }
            folder = path;
        }
        Ok(())
    }

    fn has(&self, path: &Path) -> bool {
        let entries = path.parent().and_then(|folder| self.entries.get(folder));
        entries.is_some_and(|entries| entries.iter().any(|entry| !entry.is_folder && entry.path == path))
    }
}
