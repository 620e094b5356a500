//! A web server of ranges with ETags on the loopback, with faults, for tests.

use std::{
    io::{self, BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

/// What the server does beside answering.
#[derive(Default)]
pub(super) struct Faults {
    /// Answers with 503, each time one less.
    pub unavailable: AtomicU64,
    /// Answers are cut off in the middle, each time one less.
    pub cut: AtomicU64,
    pub hangs: AtomicBool,
    pub has_no_head: AtomicBool,
    pub is_whole: AtomicBool,
    pub status: Mutex<Option<&'static str>>,
    pub redirect: Mutex<Option<String>>,
}

pub(super) struct Server {
    pub url: String,
    pub content: Mutex<(Vec<u8>, String)>,
    pub faults: Faults,
    pub requests: AtomicU64,
    pub sent: AtomicU64,
    pub tokens: Mutex<Vec<Option<String>>>,
}

pub(super) const PLACE: &str = "/a%20b/x.arrow";

impl Server {
    pub(super) fn start(content: &[u8]) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Arc::new(Self {
            url: format!("http://{}{PLACE}", listener.local_addr().unwrap()),
            content: Mutex::new((content.to_vec(), "\"1\"".to_owned())),
            faults: Faults::default(),
            requests: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            tokens: Mutex::default(),
        });
        let serving = Arc::clone(&server);
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let server = Arc::clone(&serving);
                // The other side may close a connection at any time.
                thread::spawn(move || server.serve(connection).ok());
            }
        });
        server
    }

    fn serve(&self, mut connection: TcpStream) -> io::Result<()> {
        let mut input = BufReader::new(connection.try_clone()?);
        loop {
            let (mut first, mut range, mut if_match, mut token) = (String::new(), None, None, None);
            if input.read_line(&mut first)? == 0 {
                return Ok(());
            }
            loop {
                let mut line = String::new();
                input.read_line(&mut line)?;
                let Some((name, value)) = line.trim().split_once(": ") else { break };
                match &*name.to_ascii_lowercase() {
                    "range" => range = value.strip_prefix("bytes=").map(str::to_owned),
                    "if-match" => if_match = Some(value.to_owned()),
                    "authorization" => token = Some(value.to_owned()),
                    _ => {}
                }
            }
            self.tokens.lock().unwrap().push(token);
            self.requests.fetch_add(1, Ordering::Relaxed);
            let take = |count: &AtomicU64| {
                count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok()
            };
            let (content, etag) = self.content.lock().unwrap().clone();
            let mut say = |status: &str, more: &str, body: &[u8]| -> io::Result<()> {
                let head = format!("HTTP/1.1 {status}\r\nETag: {etag}\r\nAccept-Ranges: bytes\r\n{more}\r\n");
                connection.write_all(head.as_bytes())?;
                connection.write_all(body)
            };
            let empty = "Content-Length: 0\r\n";
            let is_head = first.starts_with("HEAD");
            let (status, redirect) =
                (*self.faults.status.lock().unwrap(), self.faults.redirect.lock().unwrap().clone());
            if self.faults.hangs.load(Ordering::Relaxed) {
                // Until the client closes the connection.
                return io::copy(&mut input, &mut io::sink()).map(|_| ());
            } else if let Some(status) = status {
                say(status, empty, &[])?;
            } else if let Some(place) = redirect {
                say("307 Temporary Redirect", &format!("{empty}Location: {place}\r\n"), &[])?;
            } else if take(&self.faults.unavailable) {
                say("503 Service Unavailable", empty, &[])?;
            } else if !first.contains(&format!("{PLACE} ")) {
                say("404 Not Found", empty, &[])?;
            } else if is_head && self.faults.has_no_head.load(Ordering::Relaxed) {
                say("405 Method Not Allowed", empty, &[])?;
            } else if is_head {
                say("200 OK", &format!("Content-Length: {}\r\n", content.len()), &[])?;
            } else if if_match.is_some_and(|wanted| wanted != etag) {
                say("412 Precondition Failed", empty, &[])?;
            } else if let Some((from, to)) = range
                .as_deref()
                .and_then(|range| range.split_once('-'))
                .filter(|_| !self.faults.is_whole.load(Ordering::Relaxed))
            {
                let (from, to): (usize, usize) = (from.parse().unwrap(), to.parse().unwrap());
                if from >= content.len() {
                    say("416 Range Not Satisfiable", empty, &[])?;
                    continue;
                }
                let part = &content[from..=to.min(content.len() - 1)];
                let more = format!(
                    "Content-Length: {}\r\nContent-Range: bytes {from}-{}/{}\r\n",
                    part.len(),
                    from + part.len() - 1,
                    content.len()
                );
                if take(&self.faults.cut) {
                    return say("206 Partial Content", &more, &part[..part.len() / 2]);
                }
                self.sent.fetch_add(part.len() as u64, Ordering::Relaxed);
                say("206 Partial Content", &more, part)?;
            } else {
                say("200 OK", &format!("Content-Length: {}\r\n", content.len()), &content)?;
            }
        }
    }
}
