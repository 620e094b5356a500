//! Lists the objects below a folder: of a bucket by its store, of a dataset of the Hub by the Hub's API.
//!
//! Input: the URL of a folder, and what the page before said. Output: a page of names. Invariant: pages come
//! from the host that was named, so that a token goes nowhere else, and their size is bounded.

use std::{io, path::Path, sync::atomic::Ordering};

use object_store::{
    client::{HttpError, HttpErrorKind},
    list::{PaginatedListOptions, PaginatedListStore},
};
use reqwest::header::LINK;
use serde_json::Value;

use super::{
    client::ErrorAnswer,
    failure::Failure,
    runtime::RemoteRuntime,
    stores::{Address, Lists, ObjectPlace, StoreClient},
};
use crate::storage::ListingPage;

/// The most bytes of a page of the Hub, which has a thousand names or some more.
const LONGEST: usize = 32 << 20;

/// A page of the objects below the folder `url`.
pub(super) fn page(running: &RemoteRuntime, url: &Path, after: Option<&str>) -> io::Result<ListingPage> {
    let address = match Address::of_folder(url, || running.hub())? {
        ObjectPlace::Here(page) => return Ok(page),
        ObjectPlace::There(address) => address,
    };
    let StoreClient { lists, omitted, .. } = running.client(&address)?;
    let (after, traffic) = (after.map(str::to_owned), running.traffic.clone());
    running.wait_for(async move {
        match lists {
            Lists::Store(store) => {
                let page = of_store(&*store, &address, after).await?;
                Ok(ListingPage { left_out: omitted.take(), ..page })
            }
            Lists::Hub(client) => {
                traffic.requests.fetch_add(1, Ordering::Relaxed);
                let first = format!("{}/{}?recursive=true", address.host, address.name);
                let (page, size) = of_hub(&client, &address, &after.unwrap_or(first)).await?;
                traffic.received_bytes.fetch_add(size as u64, Ordering::Relaxed);
                Ok(page)
            }
        }
    })
}

async fn of_store(
    store: &dyn PaginatedListStore,
    address: &Address,
    after: Option<String>,
) -> Result<ListingPage, Failure> {
    let folder = address.location.as_ref();
    let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
    let options = PaginatedListOptions { page_token: after, ..PaginatedListOptions::default() };
    let wanted = Some(&*prefix).filter(|prefix| !prefix.is_empty());
    let found = store.list_paginated(wanted, options).await.map_err(|error| Failure::of(&error))?;
    let names =
        found.result.objects.iter().filter_map(|object| object.location.as_ref().strip_prefix(&*prefix));
    let names = names.map(str::to_owned).collect();
    Ok(ListingPage { names, next: found.page_token, ..ListingPage::default() })
}

/// A page of the Hub, and its bytes.
async fn of_hub(
    client: &reqwest::Client,
    address: &Address,
    url: &str,
) -> Result<(ListingPage, usize), Failure> {
    let failed = |error| {
        let source = Box::new(HttpError::new(HttpErrorKind::Request, error));
        Failure::of(&object_store::Error::Generic { store: "HTTP", source })
    };
    let other = |message: String| Failure::new(io::ErrorKind::Other, message);
    let mut answer = client.get(url).send().await.map_err(failed)?;
    if !answer.status().is_success() {
        return Err(Failure::of_status(&ErrorAnswer::from(answer.status(), answer.headers())));
    }
    let mut links = answer.headers().get_all(LINK).iter().filter_map(|value| value.to_str().ok());
    let next = links.find_map(next_of).map(|next| match next.starts_with('/') {
        true => format!("{}{next}", address.host),
        false => next.to_owned(),
    });
    if next.as_ref().is_some_and(|next| !next.starts_with(&format!("{}/", address.host))) {
        return Err(other("the next page of the list is that of another host".to_owned()));
    }
    let mut body = Vec::new();
    while let Some(part) = answer.chunk().await.map_err(failed)? {
        if body.len() + part.len() > LONGEST {
            return Err(other(format!("a page of the list has more than {LONGEST} bytes")));
        }
        // bounded: `LONGEST`.
        body.extend_from_slice(&part);
    }
    let wrong = || other("the answer is no list of the Hub; check HF_ENDPOINT".to_owned());
    let list: Value = serde_json::from_slice(&body).map_err(|_| wrong())?;
    // Of the name as it is in the URL, since a revision may have a slash.
    let folder = address.name.splitn(7, '/').nth(6).unwrap_or("");
    let folder = object_store::path::Path::from_url_path(folder).map_err(|_| wrong())?;
    let folder = folder.as_ref();
    let mut names = Vec::new();
    for item in list.as_array().ok_or_else(wrong)? {
        let kind = item.get("type").and_then(Value::as_str).ok_or_else(wrong)?;
        let path = item.get("path").and_then(Value::as_str).ok_or_else(wrong)?;
        let below = match folder {
            "" => Some(path),
            folder => path.strip_prefix(folder).and_then(|path| path.strip_prefix('/')),
        };
        // bounded: the page has as many.
        names.extend(below.filter(|_| kind == "file").map(str::to_owned));
    }
    Ok((ListingPage { names, next, ..ListingPage::default() }, body.len()))
}

/// The URL of the next page among links, `<URL>; rel="next", ...`.
fn next_of(links: &str) -> Option<&str> {
    let mut parts = links.split('<').skip(1);
    parts.find_map(|link| {
        let (url, said) = link.split_once('>')?;
        let is_next = |one: &str| matches!(one.trim_matches([' ', ',']), "rel=next" | "rel=\"next\"");
        said.split(';').any(is_next).then_some(url)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_page() {
        assert_eq!(next_of(r#" <https://h/api?cursor=a%3D>; rel="next""#), Some("https://h/api?cursor=a%3D"));
        let two = r#"<https://h/?c=1>; rel="prev", <https://h/?c=1,2>; a=b; rel=next, <x>"#;
        assert_eq!(next_of(two), Some("https://h/?c=1,2"));
        for none in [r#"<https://h/>; rel="prev""#, "", "<", "x", "<next>; rel=nextx"] {
            assert_eq!(next_of(none), None);
        }
    }
}
