//! Tells URLs from paths, for every loader and command: the only place that knows what a URL looks like.
//!
//! A path is a URL if it begins with `s3://`, `gs://`, `az://`, `http://`, `https://` or `hf://`. It travels
//! as a [`Path`], so that sources need one type of name. URLs stand in messages, logs and states, so those
//! with credentials or a query (a signed URL) are refused before they get there.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{Error, ErrorKind, Result};

/// The schemes that are read.
const SCHEMES: [&str; 6] = ["s3", "gs", "az", "http", "https", "hf"];

/// Other schemes of stores and servers.
const UNREAD: [&str; 5] = ["gcs", "abfs", "abfss", "ftp", "wasb"];

/// The scheme and the rest of a URL; `None` for a path.
pub fn split(path: &Path) -> Option<(&'static str, &str)> {
    let text = path.to_str()?;
    SCHEMES.into_iter().find_map(|scheme| {
        let (start, rest) = text.split_at_checked(scheme.len())?;
        Some((scheme, rest.strip_prefix("://")?)).filter(|_| start.eq_ignore_ascii_case(scheme))
    })
}

/// The least threads that read from servers: each waits for an answer most of the time.
pub const THREADS: usize = 32;

/// How many threads read the headers of files, if `threads` read those of local ones.
pub fn threads_for(paths: &[Arc<Path>], threads: usize) -> usize {
    if paths.iter().any(|path| is_url(path)) { threads.max(THREADS) } else { threads }
}

/// Whether a path is a URL.
pub fn is_url(path: &Path) -> bool {
    split(path).is_some()
}

/// Checks a path that may be meant as a URL: of another scheme, or of `pathlib.Path`, which makes one slash
/// of two.
///
/// # Errors
/// [`ErrorKind::Config`].
pub fn check_path(path: &Path) -> Result<()> {
    if is_url(path) {
        return Ok(());
    }
    let name = path.as_os_str().as_encoded_bytes();
    let is = |scheme: &str| {
        let (start, rest) = name.split_at_checked(scheme.len()).unwrap_or_default();
        start.eq_ignore_ascii_case(scheme.as_bytes()) && rest.starts_with(b":/")
    };
    let Some(scheme) = SCHEMES.into_iter().chain(UNREAD).find(|scheme| is(scheme)) else { return Ok(()) };
    // It may have a secret.
    let shown = if name.contains(&b'@') || name.contains(&b'?') { "..." } else { &*path.to_string_lossy() };
    let message = format!(
        "the path {shown:?} begins with {scheme}:, and is no URL that is read ({}://, as a string: pathlib makes one \
         slash of two)",
        SCHEMES.join("://, ")
    );
    Err(Error::new(ErrorKind::Config, message))
}

/// The path of `name` in `folder`; a URL stands alone. Below a URL a name is text, as in a folder of files,
/// and not percent-encoded.
pub fn join(folder: &Path, name: &Path) -> PathBuf {
    match name.to_str() {
        Some(text) if !is_url(name) && is_url(folder) => folder.join(escaped(text)),
        _ if is_url(name) => name.to_owned(),
        _ => folder.join(name),
    }
}

/// Why a URL is refused as that of a folder or an object, without quoting a secret of it.
fn refused(path: &Path) -> Option<String> {
    let (scheme, rest) = split(path)?;
    let (host, name) = rest.split_once('/').unwrap_or((rest, ""));
    if host.contains('@') {
        return Some(format!(
            "a {scheme}:// URL has a user or password in it, which would appear in messages and states; remove it, and set \
             the store's environment variables"
        ));
    }
    // Before the pattern `?`: a signed URL has its secret there.
    if rest.contains('?') {
        return Some(format!(
            "a {scheme}:// URL has a query (?), as signed URLs have, which would appear in messages and states; name the \
             object by s3://, gs:// or az:// with credentials in the environment"
        ));
    }
    let shown = path.display();
    if rest.contains('#') {
        return Some(format!("{shown} has a fragment (#); write %23 if it is part of the name"));
    }
    if name.split('/').any(|part| matches!(part, "." | "..") || part.to_ascii_lowercase().contains("%2e")) {
        return Some(format!("{shown} has a part `.` or `..`; name the object without it"));
    }
    None
}

#[derive(Debug, PartialEq, Eq)]
pub enum Named {
    Object,
    /// A folder: the URL ends in `/`, or is that of a bucket or of a dataset of the Hub.
    Folder,
    /// The folder without a pattern, and the parts behind it.
    Pattern(PathBuf, PathBuf),
}

/// What a URL names, which has no secret in it.
///
/// # Errors
/// [`ErrorKind::Config`], also for a folder or a pattern of a web server.
pub fn named(path: &Path) -> Result<Named> {
    let refuse = |message| Err(Error::new(ErrorKind::Config, message));
    if let Some(message) = refused(path) {
        return refuse(message);
    }
    let Some((scheme, rest)) = split(path) else { return Ok(Named::Object) };
    let shown = path.display();
    let (host, name) = rest.split_once('/').unwrap_or((rest, ""));
    let is_pattern = |part: &str| part.contains(['*', '[']);
    let is_dataset = scheme == "hf" && name.split('/').filter(|part| !part.is_empty()).count() <= 2;
    let named = if is_pattern(name) {
        let behind = name.split('/').skip_while(|part| !is_pattern(part)).collect::<Vec<_>>().join("/");
        let folder = &name[..name.len() - behind.len()];
        Named::Pattern(format!("{scheme}://{host}/{folder}").into(), behind.into())
    } else if name.is_empty() || name.ends_with('/') || is_dataset {
        Named::Folder
    } else {
        Named::Object
    };
    if host.is_empty() || host.contains('*') {
        return refuse(format!("{shown} names no object; expected is {scheme}://HOST-OR-BUCKET/NAME"));
    }
    if named != Named::Object && scheme.starts_with("http") {
        let what = if named == Named::Folder { "a folder" } else { "a pattern" };
        return refuse(format!(
            "{shown} is {what}, and a web server does not list its files; pass a list of their URLs"
        ));
    }
    Ok(named)
}

/// Checks that a URL names one object and has no secret in it.
///
/// # Errors
/// [`ErrorKind::Config`].
pub fn check(path: &Path) -> Result<()> {
    match named(path)? {
        Named::Object => Ok(()),
        _ => Err(Error::new(
            ErrorKind::Config,
            format!(
                "{} names no object, but a folder or a pattern; expected is the URL of one object",
                path.display()
            ),
        )),
    }
}

/// The letters that mean something else in a URL, and how they are written there.
const ESCAPED: [(char, &str); 5] = [('%', "%25"), ('?', "%3F"), ('#', "%23"), ('*', "%2A"), ('[', "%5B")];

/// An object's name as a URL has it: it names this object and no pattern.
pub fn escaped(name: &str) -> String {
    // `%` is the first.
    ESCAPED.iter().fold(name.to_owned(), |name, &(letter, code)| name.replace(letter, code))
}

/// The name of which [`escaped`] made this one.
pub fn unescaped(name: &Path) -> PathBuf {
    let Some(name) = name.to_str() else { return name.to_owned() };
    ESCAPED
        .iter()
        .rev()
        .fold(name.to_owned(), |name, &(letter, code)| name.replace(code, &letter.to_string()))
        .into()
}

/// The URL itself. It has no `..`, so that its folders are those that it names.
///
/// # Errors
/// `InvalidInput` if it is refused.
pub fn resolved(path: &Path) -> io::Result<PathBuf> {
    match refused(path) {
        None => Ok(path.to_owned()),
        Some(message) => Err(io::Error::new(io::ErrorKind::InvalidInput, message)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_look_like_urls_are_refused() {
        for path in ["s3:/b/c", "S3:/b", "https:/a", "ftp://h/a", "gcs://b/c", "wasb:/x"] {
            let error = check_path(Path::new(path)).unwrap_err();
            assert!(error.kind == ErrorKind::Config && error.message.contains(path), "{error}");
        }
        for path in ["a/s3:/b", "/s3:/x", "s3", "s3:b", "xs3:/b", "C:/x", "", "s3://b/c", "file:///a"] {
            assert!(check_path(Path::new(path)).is_ok(), "{path}");
        }
        for path in ["ftp://me:secret@h/a", "https:/h/a?sig=secret"] {
            let error = check_path(Path::new(path)).unwrap_err();
            assert!(!error.message.contains("secret"), "{error}");
        }
    }

    #[test]
    fn paths_are_no_urls() {
        for path in ["a/b", "/s3:/x", "s3:/a/b", "s3", "", "file:///a", "C:\\x", "xs3://a/b", "https:/a"] {
            assert!(!is_url(Path::new(path)), "{path}");
        }
        for url in ["s3://a/b", "S3://a/b", "https://a/b", "hf://datasets/a/b/c", "http://[::1]:80/a"] {
            assert!(is_url(Path::new(url)), "{url}");
        }
    }

    #[test]
    fn names_below_a_url_are_text() {
        let joined = |folder: &str, name: &str| join(Path::new(folder), Path::new(name));
        assert_eq!(joined("s3://b/c", "a%20b?.wav"), Path::new("s3://b/c/a%2520b%3F.wav"));
        assert_eq!(joined("s3://b/c", "https://h/a%20b"), Path::new("https://h/a%20b"));
        assert_eq!(joined("c", "a%20b?.wav"), Path::new("c/a%20b?.wav"));
    }

    #[test]
    fn secrets_are_not_quoted() {
        for url in ["https://me:secret@h/a", "https://h/a?sig=secret", "s3://b/a?x=secret#y"] {
            let error = check(Path::new(url)).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Config);
            assert!(!format!("{error} {error:?}").contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_url_names_one_object() {
        for url in [
            "s3://b",
            "s3://b/",
            "https://h/a/*.arrow",
            "https://h/a/",
            "s3://b/../c",
            "s3://b/%2E%2e/c",
            "s3:///a",
        ] {
            assert_eq!(check(Path::new(url)).unwrap_err().kind, ErrorKind::Config, "{url}");
        }
        let at = |url: &str| named(Path::new(url)).unwrap();
        for url in ["s3://b", "s3://b/", "gs://b/c/", "hf://datasets/o/n", "hf://datasets/o/n@v1/"] {
            assert_eq!(at(url), Named::Folder, "{url}");
        }
        let pattern = |folder: &str, parts: &str| Named::Pattern(folder.into(), parts.into());
        assert_eq!(at("s3://b/c/d*/e.arrow"), pattern("s3://b/c/", "d*/e.arrow"));
        assert_eq!(at("s3://b/*"), pattern("s3://b/", "*"));
        assert_eq!(at("hf://datasets/o/n/**/*.parquet"), pattern("hf://datasets/o/n/", "**/*.parquet"));
        assert_eq!(named(Path::new("s3://b*/c")).unwrap_err().kind, ErrorKind::Config);
        for name in ["a*[b]?#%2e", "%255B", "50% [x] #1*", "%%%25"] {
            assert_eq!(at(&format!("s3://b/{}", escaped(name))), Named::Object);
            assert_eq!(unescaped(Path::new(&escaped(name))), Path::new(name));
        }
        for url in ["s3://b/a.arrow", "https://h/a%20b/c.arrow", "http://[::1]:80/a"] {
            check(Path::new(url)).unwrap();
        }
    }
}
