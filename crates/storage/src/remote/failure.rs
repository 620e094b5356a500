//! What a failed request means: whether another try may succeed, and what to do otherwise.

use std::{io, time::Duration};

use object_store::client::HttpError;

use super::{client::ErrorAnswer, list_answer::Unusable};
use crate::storage::AskedToWait;

/// Advice by the text of the error: on certificates, and for a machine without a role, which a store's client
/// asks if the environment has no credentials.
const ADVICE: [(&str, &str); 5] = [
    (
        "invalid peer certificate",
        "if the server is yours, set SSL_CERT_FILE to a file with the certificate of the authority that signed its own",
    ),
    (
        "No CA certificates were loaded",
        "install the system's package of certificates, or set SSL_CERT_FILE to a file of them",
    ),
    (
        "/latest/api/token",
        "the environment has no credentials, so this machine was asked for a role: set AWS_ACCESS_KEY_ID and \
         AWS_SECRET_ACCESS_KEY, or AWS_PROFILE; for a public bucket set AWS_SKIP_SIGNATURE=true",
    ),
    (
        "/computeMetadata/",
        "the environment has no credentials, so this machine was asked for its own: log in by gcloud, or set \
         GOOGLE_APPLICATION_CREDENTIALS; for a public bucket set GOOGLE_SKIP_SIGNATURE=true",
    ),
    (
        "/metadata/identity/",
        "the environment has no credentials, so this machine was asked for its own: set AZURE_STORAGE_ACCOUNT_KEY or \
         AZURE_STORAGE_SAS_TOKEN; for a public container set AZURE_SKIP_SIGNATURE=true",
    ),
];

/// An error that several threads may get.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    /// `TimedOut` if another try may succeed.
    pub kind: io::ErrorKind,
    pub message: String,
    /// How long the server asks to wait.
    pub pause: Option<Duration>,
}

impl Failure {
    pub(super) fn new(kind: io::ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), pause: None }
    }

    /// Another try may succeed.
    pub(super) fn transient(message: impl Into<String>) -> Self {
        Self::new(io::ErrorKind::TimedOut, message)
    }

    pub(super) fn changed() -> Self {
        Self::new(io::ErrorKind::Other, "the object was changed after it was opened; open it again")
    }

    /// The meaning of a store's error. Of addresses, the query is left out: it may have a secret.
    pub(super) fn of(error: &object_store::Error) -> Self {
        use object_store::Error;
        let (mut text, mut refused, mut is_http, mut is_final) = (String::new(), None, false, false);
        let mut unusable = None;
        let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
        while let Some(cause) = next {
            refused = refused.or_else(|| cause.downcast_ref::<ErrorAnswer>());
            unusable = unusable.or_else(|| cause.downcast_ref::<Unusable>());
            is_http |= cause.is::<HttpError>();
            // A certificate, a redirect or an address will be the same at the next try.
            is_final |= cause
                .downcast_ref::<reqwest::Error>()
                .is_some_and(|error| error.is_redirect() || error.is_builder())
                || matches!(cause.downcast_ref(), Some(rustls::Error::InvalidCertificate(_)));
            let shown = cause.to_string();
            if !text.contains(&shown) {
                text = if text.is_empty() { shown } else { format!("{text}: {shown}") };
            }
            next = cause.source().or_else(|| inner(cause));
        }
        if let Some(refused) = refused {
            return Self::of_status(refused);
        }
        if let Some(Unusable(message)) = unusable {
            return Self::new(io::ErrorKind::Other, message);
        }
        let mut text = without_queries(&text);
        if let Some((_, advice)) = ADVICE.iter().find(|(told, _)| text.contains(told)) {
            text = format!("{text}; {advice}");
        }
        match error {
            Error::NotFound { .. } => Self::new(io::ErrorKind::NotFound, text),
            Error::Precondition { .. } => Self::changed(),
            Error::NotSupported { .. } => Self::new(
                io::ErrorKind::Unsupported,
                format!("{text}; the server must answer requests of ranges (status 206)"),
            ),
            // Names, timeouts, connections that failed or were cut.
            _ if is_http && !is_final => Self::transient(text),
            _ => Self::new(io::ErrorKind::Other, text),
        }
    }

    /// Whether an object is shorter than a range that was requested of it.
    pub(super) fn is_of_range(error: &object_store::Error) -> bool {
        let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
        while let Some(cause) = next {
            if cause.downcast_ref::<ErrorAnswer>().is_some_and(|refused| refused.status == 416) {
                return true;
            }
            next = cause.source().or_else(|| inner(cause));
        }
        false
    }

    /// The meaning of an answer that is an error.
    pub(super) fn of_status(refused: &ErrorAnswer) -> Self {
        let ErrorAnswer { status, pause, .. } = *refused;
        let (kind, advice) = match status {
            404 | 410 => (io::ErrorKind::NotFound, "check bucket or host, and name"),
            401 | 403 => (
                io::ErrorKind::PermissionDenied,
                "check the credentials in the environment, their permissions, and this machine's clock",
            ),
            407 => (io::ErrorKind::PermissionDenied, "check the credentials of the proxy"),
            // 416: a range of the object that was opened is missing.
            412 | 416 => return Self::changed(),
            405 | 501 => (io::ErrorKind::Unsupported, "the server must answer HEAD and requests of ranges"),
            300..=400 => (io::ErrorKind::Other, "check region and endpoint"),
            408 | 429 | 500..=599 => (io::ErrorKind::TimedOut, "the server is overloaded or out of order"),
            _ => (io::ErrorKind::Other, "the server refuses the request"),
        };
        Self { kind, message: format!("the server answers with {refused}; {advice}"), pause }
    }
}

/// The cause in an [`io::Error`], which is none of its sources.
fn inner<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a (dyn std::error::Error + 'static)> {
    let error = error.downcast_ref::<io::Error>()?.get_ref()?;
    Some(error)
}

impl From<Failure> for io::Error {
    fn from(Failure { kind, message, pause }: Failure) -> Self {
        match pause {
            Some(pause) => Self::new(kind, AskedToWait { message, pause }),
            None => Self::new(kind, message),
        }
    }
}

/// The text with each query of a URL cut off.
fn without_queries(text: &str) -> String {
    let mut shown = String::new();
    let mut is_query = false;
    for next in text.chars() {
        is_query = match next {
            '?' => true,
            ' ' | '"' | '\'' | ')' | '>' | '\n' => false,
            _ => is_query,
        };
        if !is_query {
            shown.push(next);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_not_quoted() {
        assert_eq!(without_queries("GET https://h/a?sig=secret no (x?y) z"), "GET https://h/a no (x) z");
    }

    #[test]
    fn only_what_may_pass_is_tried_again() {
        let kind = |status| Failure::of_status(&ErrorAnswer::of(status)).kind;
        for status in [408, 429, 500, 502, 503, 504] {
            assert_eq!(kind(status), io::ErrorKind::TimedOut, "{status}");
        }
        for status in [301, 400, 401, 403, 404, 405, 407, 409, 410, 412, 416, 418, 451, 501] {
            assert_ne!(kind(status), io::ErrorKind::TimedOut, "{status}");
        }
    }
}
