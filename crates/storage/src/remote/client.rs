//! The HTTP client of the stores: redirects, answers that are errors, and counts.
//!
//! A store of a cloud signs its requests for one host, so redirects of it are errors. Other servers may
//! redirect to another host, which gets no token, and from `https://` only to `https://`.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use object_store::{
    ClientConfigKey, ClientOptions,
    client::{HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService},
};
use reqwest::{
    Method, StatusCode,
    header::{HeaderMap, RETRY_AFTER},
    redirect::Policy,
};

use super::list_answer::{self, Omitted};
use crate::Traffic;

/// A connection that sends nothing for this long is given up, and the request is sent again.
const STALLED: Duration = Duration::from_secs(15);
const CONNECT: Duration = Duration::from_secs(5);
/// The most redirects of one request.
const REDIRECTS: usize = 5;

/// An answer that is an error.
#[derive(Debug, thiserror::Error)]
#[error("status {status}{}", region.as_ref().map_or(String::new(), |region| format!(" (the bucket is in {region})")))]
pub(super) struct ErrorAnswer {
    pub status: u16,
    /// How long the server asks to wait.
    pub pause: Option<Duration>,
    region: Option<String>,
}

impl ErrorAnswer {
    /// The body is not quoted: that of a wrong signature has parts of credentials.
    pub(super) fn from(status: StatusCode, headers: &HeaderMap) -> Self {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        Self {
            status: status.as_u16(),
            pause: text(RETRY_AFTER.as_str()).and_then(|value| value.parse().ok()).map(Duration::from_secs),
            region: text("x-amz-bucket-region").map(|region| region.chars().take(40).collect()),
        }
    }

    #[cfg(test)]
    pub(super) fn of(status: u16) -> Self {
        Self { status, pause: None, region: None }
    }
}

/// Makes the clients of one store.
#[derive(Debug)]
pub(super) struct Connector {
    /// Headers of each request, such as a token.
    pub headers: HeaderMap,
    pub follows_redirects: bool,
    pub traffic: Arc<Traffic>,
    pub omitted: Omitted,
}

impl Connector {
    /// A client that sends nothing over `http://`, unless it `is_plain`.
    pub(super) fn client(&self, is_plain: bool) -> reqwest::Result<reqwest::Client> {
        let redirects = if self.follows_redirects { Policy::limited(REDIRECTS) } else { Policy::none() };
        reqwest::Client::builder()
            .user_agent(concat!("forebay/", env!("CARGO_PKG_VERSION")))
            .default_headers(self.headers.clone())
            .redirect(redirects)
            .referer(false)
            .https_only(!is_plain)
            .connect_timeout(CONNECT)
            .read_timeout(STALLED)
            .build()
    }
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let is_plain =
            options.get_config_value(&ClientConfigKey::AllowHttp).is_some_and(|value| value == "true");
        let client = self
            .client(is_plain)
            .map_err(|error| object_store::Error::Generic { store: "HTTP", source: Box::new(error) })?;
        let (traffic, omitted) = (self.traffic.clone(), self.omitted.clone());
        Ok(HttpClient::new(CheckedClient { client: HttpClient::new(client), traffic, omitted }))
    }
}

/// A client that makes errors of answers.
struct CheckedClient {
    client: HttpClient,
    traffic: Arc<Traffic>,
    omitted: Omitted,
}

impl fmt::Debug for CheckedClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckedClient").finish_non_exhaustive()
    }
}

type Answer<'a> = Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'a>>;

impl HttpService for CheckedClient {
    fn call<'a, 'b>(&'a self, request: HttpRequest) -> Answer<'b>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            // Other methods fetch credentials, and their status means something to the store.
            let is_list = list_answer::is_list(request.uri().query());
            let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
            self.traffic.requests.fetch_add(1, Ordering::Relaxed);
            let sent = Instant::now();
            let answer = self.client.execute(request).await?;
            if is_read {
                self.traffic.first_byte.add(sent.elapsed());
            }
            let status = answer.status();
            if status.is_success() && is_read && is_list {
                return list_answer::checked(answer, &self.traffic, &self.omitted).await;
            }
            if status.is_success() || !is_read {
                return Ok(answer);
            }
            Err(HttpError::new(HttpErrorKind::Unknown, ErrorAnswer::from(status, answer.headers())))
        })
    }
}
