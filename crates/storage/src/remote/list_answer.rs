//! Checks the list of a bucket before its store reads it.
//!
//! Input: an answer to a request for a list, of S3 (also of Google) or Azure. Output: the same without the
//! objects that have no path. Invariant: an answer is bounded, and one that is no list is an error, so that
//! the page of a proxy is no empty bucket.
//!
//! The store fails for a whole page if one key has a part that no file system has, such as `a//b`. So these
//! items are cut out here, and counted.

use std::{
    borrow::Cow,
    sync::{Arc, Mutex, PoisonError, atomic::Ordering},
};

use futures_util::StreamExt;
use object_store::client::{HttpError, HttpErrorKind, HttpResponse};
use reqwest::header::{CONTENT_TYPE, HeaderMap};

use crate::{Traffic, storage::OmittedObjects};

/// The most bytes of a page: it has at most 5000 names of 1024 characters, each with some 300 bytes beside.
const LONGEST: usize = 32 << 20;

/// An answer of another kind than was requested; a retry would get the same.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Unusable(pub String);

/// Items, their names, and the root of a list.
const FORMS: [(&str, &str, &str); 2] =
    [("Contents", "Key", "<ListBucketResult"), ("Blob", "Name", "<EnumerationResults")];

/// Objects of a store that were left out, until they are reported.
#[derive(Debug, Clone, Default)]
pub(super) struct Omitted(Arc<Mutex<OmittedObjects>>);

impl Omitted {
    pub(super) fn take(&self) -> OmittedObjects {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Whether a request with this query asks for a list.
pub(super) fn is_list(query: Option<&str>) -> bool {
    query.is_some_and(|query| query.split('&').any(|part| matches!(part, "list-type=2" | "comp=list")))
}

/// The answer without objects that have no path.
pub(super) async fn checked(
    answer: HttpResponse,
    traffic: &Traffic,
    omitted: &Omitted,
) -> Result<HttpResponse, HttpError> {
    let (head, body) = answer.into_parts();
    let mut parts = body.bytes_stream();
    let unusable = |message| HttpError::new(HttpErrorKind::Decode, Unusable(message));
    let mut bytes = Vec::new();
    while let Some(part) = parts.next().await {
        let part = part?;
        traffic.received_bytes.fetch_add(part.len() as u64, Ordering::Relaxed);
        if bytes.len() + part.len() > LONGEST {
            return Err(unusable(format!("a page of the list has more than {LONGEST} bytes")));
        }
        // bounded: `LONGEST`.
        bytes.extend_from_slice(&part);
    }
    let text = String::from_utf8(bytes).map_err(|_| unusable("the list is not UTF-8".to_owned()))?;
    let Some(&(item, name, _)) = FORMS.iter().find(|(.., root)| root_of(&text).starts_with(root)) else {
        return Err(unusable(format!(
            "the answer is no list of objects, but {}; check endpoint, bucket and proxy",
            kind_of(&text, &head.headers)
        )));
    };
    let mut left_out = OmittedObjects::default();
    let kept = without(text, item, name, &mut left_out);
    omitted.0.lock().unwrap_or_else(PoisonError::into_inner).add(left_out);
    Ok(HttpResponse::from_parts(head, kept.into()))
}

/// The text from its first element on.
fn root_of(text: &str) -> &str {
    let text = text.trim_start_matches('\u{feff}').trim_start();
    match text.strip_prefix("<?xml").and_then(|text| text.split_once("?>")) {
        Some((_, rest)) => rest.trim_start(),
        None => text,
    }
}

/// What an answer is instead, without quoting it.
fn kind_of(text: &str, headers: &HeaderMap) -> String {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let start: String = root_of(text).chars().take(14).collect::<String>().to_ascii_lowercase();
    match kind {
        _ if text.is_empty() => "empty".to_owned(),
        _ if start.starts_with("<!doctype html") || start.starts_with("<html") => "an HTML page".to_owned(),
        Some(kind) => format!("of the type {}", kind.chars().take(60).collect::<String>()),
        None => "something else".to_owned(),
    }
}

/// The list without the items that have no path.
fn without(text: String, item: &str, name: &str, left_out: &mut OmittedObjects) -> String {
    let (start, end) = (format!("<{item}>"), format!("</{item}>"));
    let (name_start, name_end) = (format!("<{name}>"), format!("</{name}>"));
    let mut cuts = Vec::new();
    let mut at = 0;
    while let Some(from) = text[at..].find(&start).map(|found| at + found)
        && let Some(to) = text[from..].find(&end).map(|found| from + found + end.len())
    {
        let inner = &text[from..to];
        let named = inner.split_once(&name_start).and_then(|(_, rest)| rest.split_once(&name_end));
        if let Some(named) = named.map(|(named, _)| unescaped(named))
            && !has_path(&named)
        {
            left_out.push(&named);
            // bounded: the items of a page.
            cuts.push(from..to);
        }
        at = to;
    }
    if cuts.is_empty() {
        return text;
    }
    let (mut kept, mut at) = (String::new(), 0);
    for cut in cuts {
        // bounded: a part of `text`.
        kept.push_str(&text[at..cut.start]);
        at = cut.end;
    }
    kept + &text[at..]
}

/// Whether an object's name is a path, as a file has it. A `/` at the end marks a folder.
fn has_path(name: &str) -> bool {
    let name = name.strip_suffix('/').unwrap_or(name);
    !name.chars().any(|letter| letter.is_ascii_control())
        && name.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

/// The text that XML stands for.
fn unescaped(text: &str) -> Cow<'_, str> {
    if !text.contains('&') {
        return Cow::Borrowed(text);
    }
    let (mut plain, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once('&') {
        plain.push_str(before);
        let (entity, next) = after.split_once(';').unwrap_or((after, ""));
        let number = entity.strip_prefix('#').and_then(|number| match number.strip_prefix(['x', 'X']) {
            Some(number) => u32::from_str_radix(number, 16).ok(),
            None => number.parse().ok(),
        });
        match (entity, number.and_then(char::from_u32)) {
            (_, Some(letter)) => plain.push(letter),
            ("amp", _) => plain.push('&'),
            ("lt", _) => plain.push('<'),
            ("gt", _) => plain.push('>'),
            ("quot", _) => plain.push('"'),
            ("apos", _) => plain.push('\''),
            // The store reports it.
            _ => plain.push('?'),
        }
        rest = next;
    }
    Cow::Owned(plain + rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_known_by_their_request() {
        for query in ["list-type=2&prefix=a", "prefix=a%26&list-type=2", "restype=container&comp=list"] {
            assert!(is_list(Some(query)), "{query}");
        }
        for query in [None, Some(""), Some("prefix=list-type=2"), Some("x=comp=list")] {
            assert!(!is_list(query), "{query:?}");
        }
    }

    #[test]
    fn objects_without_a_path_are_cut_out() {
        let item = |key: &str| format!("<Contents><Size>1</Size><Key>{key}</Key></Contents>");
        for bad in ["a//b", "/a", "a/../b", ".", "a/&#10;b", "a&#x9;b", "&#46;&#x2E;/a", "//"] {
            let list = format!("<L><IsTruncated/>{}{}{}</L>", item("x/y"), item(bad), item("z &amp; &lt;w/"));
            let mut left_out = OmittedObjects::default();
            let kept = without(list, "Contents", "Key", &mut left_out);
            assert_eq!(
                kept,
                format!("<L><IsTruncated/>{}{}</L>", item("x/y"), item("z &amp; &lt;w/")),
                "{bad}"
            );
            assert_eq!(left_out.n, 1);
        }
        // What is no list is left to the store.
        for odd in ["<Contents><Key>a", "</Contents><Contents>", "<Contents></Contents>", ""] {
            assert_eq!(without(odd.to_owned(), "Contents", "Key", &mut OmittedObjects::default()), odd);
        }
        assert_eq!(unescaped("a&amp;&quot;&apos;&gt;&#228;&#xe4;&odd;&"), "a&\"'>ää??");
    }

    #[test]
    fn other_documents_are_told_and_not_quoted() {
        let html = HeaderMap::from_iter([(CONTENT_TYPE, "text/html; charset=utf-8".parse().unwrap())]);
        assert_eq!(kind_of("\u{feff}<!DOCTYPE html><p>x", &html), "an HTML page");
        assert_eq!(kind_of("{\"secret\"}", &HeaderMap::new()), "something else");
        assert_eq!(kind_of("{}", &html), "of the type text/html; charset=utf-8");
        assert_eq!(kind_of("", &html), "empty");
        assert!(
            root_of("<?xml version=\"1.0\"?>\n<ListBucketResult xmlns=\"x\">")
                .starts_with("<ListBucketResult")
        );
    }
}
