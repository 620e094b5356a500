//! Against a web server of ranges with ETags, on the loopback.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use object_store::{ClientOptions, ObjectStoreExt, client::HttpConnector};

use super::{
    Remote,
    client::Connector,
    hub::Hub,
    pages::PAGE,
    runtime::install_tls,
    server::{PLACE, Server},
    settings::Settings,
    stores::{Address, ObjectPlace},
};
use crate::{
    ErrorKind, Storage, StoreOptions, cancel, path_or_url::PathOrUrl, patience::until, storage::StoredFile,
};

impl Server {
    pub(super) fn host(&self) -> &str {
        self.url.strip_suffix(PLACE).unwrap()
    }

    fn file(&self) -> crate::Result<StoredFile> {
        let storage: Arc<dyn Storage> = PathOrUrl::files(&StoreOptions::default(), None);
        StoredFile::open(&storage, &Arc::from(Path::new(&self.url)))
    }
}

fn noise(n: usize) -> Vec<u8> {
    (0..n as u64).map(|n| crate::seed::mix(n) as u8).collect()
}

#[test]
fn ranges_are_those_of_the_object_and_no_more_is_sent() {
    let content = noise(3_000_000);
    let server = Server::start(&content);
    let file = server.file().unwrap();
    assert_eq!(file.size(), 3_000_000);
    file.will_need(1_000_000, 500_000);
    file.will_need(1_500_000, 500_000);
    let mut all = vec![0; content.len()];
    for (number, part) in all.chunks_mut(300_000).enumerate() {
        file.read_exact(part, number as u64 * 300_000).unwrap();
    }
    assert!(all == content);
    // The first page is sent when the object is opened.
    assert_eq!(server.sent.load(Ordering::Relaxed), 3_000_000 + PAGE);
    assert_eq!(file.read_exact(&mut [0; 2], 2_999_999).unwrap_err().kind, ErrorKind::Truncated);
    // An empty object has no range.
    let empty = Server::start(b"");
    assert_eq!(empty.file().unwrap().read(&mut [0; 4], 0).unwrap(), 0);
}

#[test]
fn what_another_thread_reads_is_not_requested_ahead() {
    let content = noise(100_000);
    let server = Server::start(&content);
    let file = server.file().unwrap();
    let mut read = vec![0; content.len()];
    file.read_exact(&mut read[..60_000], 0).unwrap();
    file.will_need(20_000, 30_000);
    file.will_need(50_000, 30_000);
    file.read_exact(&mut read[60_000..], 60_000).unwrap();
    assert!(read == content);
    assert_eq!(server.sent.load(Ordering::Relaxed), 100_000 + PAGE);
}

#[test]
fn what_lies_between_announcements_is_requested_with_them() {
    let content = noise(1_000_000);
    let server = Server::start(&content);
    let file = server.file().unwrap();
    let before = server.requests.load(Ordering::Relaxed);
    // A gap, parts that are known, a gap longer than what follows, and one over two others.
    for (at, len) in
        [(100_000, 100_000), (201_000, 99_000), (150_000, 200_000), (500_000, 100_000), (350_000, 300_000)]
    {
        file.will_need(at, len);
    }
    let mut read = vec![0; 550_000];
    file.read_exact(&mut read, 100_000).unwrap();
    assert!(read == content[100_000..650_000]);
    // One each, but the last, which is cut off where the one before begins.
    assert_eq!(server.requests.load(Ordering::Relaxed), before + 6);
    assert_eq!(server.sent.load(Ordering::Relaxed), 550_000 + PAGE);
    // A gap no longer than what follows, and the two ends of an object, between which nothing is sent.
    file.will_need(700_000, 50_000);
    file.will_need(800_000, 50_000);
    file.read_exact(&mut read[..150_000], 700_000).unwrap();
    assert!(read[..150_000] == content[700_000..850_000]);
    assert_eq!(server.requests.load(Ordering::Relaxed), before + 8);
    let file = server.file().unwrap();
    let sent = server.sent.load(Ordering::Relaxed);
    file.will_need(0, 64 << 10);
    file.will_need(900_000, 100_000);
    file.read_exact(&mut read[..100_000], 900_000).unwrap();
    file.read_exact(&mut read[..64 << 10], 0).unwrap();
    assert_eq!(server.sent.load(Ordering::Relaxed) - sent, 100_000 + (64 << 10));
}

#[test]
fn what_is_announced_is_read_once_also_beyond_the_limit() {
    let content = noise(72 << 20);
    let server = Server::start(&content);
    let file = server.file().unwrap();
    for part in 0..18 {
        file.will_need(part << 22, 4 << 20);
    }
    let mut read = vec![0; content.len()];
    for (number, part) in read.chunks_mut(3 << 20).enumerate() {
        file.read_exact(part, (number * (3 << 20)) as u64).unwrap();
    }
    assert!(read == content);
    assert_eq!(server.sent.load(Ordering::Relaxed), content.len() as u64 + PAGE);
}

#[test]
fn an_object_is_opened_by_one_request_of_its_first_page() {
    for content in [noise(100), noise(PAGE as usize), noise(50_000)] {
        let server = Server::start(&content);
        let file = server.file().unwrap();
        assert_eq!(file.size(), content.len() as u64);
        let mut read = vec![0; 100];
        file.read_exact(&mut read, 0).unwrap();
        assert!(read == content[..100]);
        assert_eq!(server.requests.load(Ordering::Relaxed), 1);
        assert_eq!(server.sent.load(Ordering::Relaxed), PAGE.min(content.len() as u64));
    }
    // A format that is read from its end.
    let server = Server::start(&noise(100));
    let storage = PathOrUrl::files(&StoreOptions::default(), None);
    let parquet: Arc<Path> = Path::new(&server.url.replace("x.arrow", "x.parquet")).into();
    assert_eq!(StoredFile::open(&storage, &parquet).unwrap_err().kind, ErrorKind::NotFound);
    assert_eq!((server.requests.load(Ordering::Relaxed), server.sent.load(Ordering::Relaxed)), (1, 0));
}

#[test]
fn transient_failures_change_no_byte() {
    let content = noise(100_000);
    let server = Server::start(&content);
    server.faults.unavailable.store(2, Ordering::Relaxed);
    let file = server.file().unwrap();
    let mut read = vec![0; content.len()];
    server.faults.cut.store(1, Ordering::Relaxed);
    file.read_exact(&mut read, 0).unwrap();
    assert!(read == content);
    // A failed request ahead of time is sent again.
    let file = server.file().unwrap();
    server.faults.cut.store(1, Ordering::Relaxed);
    file.will_need(0, 50_000);
    read.fill(0);
    file.read_exact(&mut read, 0).unwrap();
    assert!(read == content);
}

#[test]
fn a_changed_object_is_an_error() {
    let server = Server::start(&noise(50_000));
    let file = server.file().unwrap();
    *server.content.lock().unwrap() = (noise(50_000), "\"2\"".to_owned());
    let error = file.read_exact(&mut [0; 10], 40_000).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Io);
    assert!(error.reason().contains("changed after it was opened"), "{error}");
    assert_ne!(file.version(), server.file().unwrap().version());
}

#[test]
fn errors_name_url_and_what_to_do() {
    let server = Server::start(&noise(50_000));
    let storage: Arc<dyn Storage> = PathOrUrl::files(&StoreOptions::default(), None);
    let missing: Arc<Path> = Path::new(&server.url.replace("x.arrow", "y.arrow")).into();
    let error = StoredFile::open(&storage, &missing).unwrap_err();
    assert_eq!(error.kind, ErrorKind::NotFound);
    assert!(error.to_string().contains("/a%20b/y.arrow") && error.to_string().contains("404"), "{error}");
    let file = server.file().unwrap();
    server.faults.is_whole.store(true, Ordering::Relaxed);
    let error = file.read_exact(&mut [0; 10], 40_000).unwrap_err();
    assert!(error.reason().contains("must answer requests of ranges"), "{error}");
}

type Work = Box<dyn Fn() -> crate::Result<()> + Send>;

#[test]
fn a_stopped_run_ends_hanging_requests() {
    let server = Server::start(&noise(50_000));
    let file = Arc::new(server.file().unwrap());
    let n_requests = || server.requests.load(Ordering::Relaxed);
    // The server refuses connections: the wait is a pause between tries.
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let gone = format!("http://{gone}/x");
    let open = |url: &str| {
        let storage: Arc<dyn Storage> = PathOrUrl::files(&StoreOptions::default(), None);
        let path: Arc<Path> = Path::new(url).into();
        move || StoredFile::open(&storage, &path).map(|_| ())
    };
    let read = {
        let file = file.clone();
        move || file.read_exact(&mut [0; 10], 40_000)
    };
    server.faults.hangs.store(true, Ordering::Relaxed);
    let works: [(&str, Work); 3] =
        [("read", Box::new(read)), ("open", Box::new(open(&server.url))), ("pause", Box::new(open(&gone)))];
    for (name, work) in works {
        let before = n_requests();
        let stop = Arc::new(AtomicBool::new(false));
        let is_stopped = stop.clone();
        let is_stopped = move || is_stopped.load(Ordering::Relaxed);
        let running = thread::spawn(move || cancel::during(Some(Arc::new(is_stopped)), work));
        if name != "pause" {
            until(name, || n_requests() > before);
        }
        stop.store(true, Ordering::Relaxed);
        until(name, || running.is_finished());
        assert_eq!(running.join().unwrap().unwrap_err().kind, ErrorKind::Closed, "{name}");
        // None was sent again.
        assert!(n_requests() <= before + 1, "{name}");
    }
}

#[test]
fn answers_that_stay_the_same_are_not_asked_for_again() {
    let server = Server::start(&noise(1000));
    for (status, kind, told) in [
        ("418 I am a teapot", ErrorKind::Io, "refuses the request"),
        ("400 Bad Request", ErrorKind::Io, "check region and endpoint"),
        ("403 Forbidden", ErrorKind::Io, "this machine's clock"),
        ("404 Not Found", ErrorKind::NotFound, "check bucket or host"),
        ("501 Not Implemented", ErrorKind::Io, "must answer HEAD"),
    ] {
        *server.faults.status.lock().unwrap() = Some(status);
        let before = server.requests.load(Ordering::Relaxed);
        let error = server.file().unwrap_err();
        assert_eq!(error.kind, kind, "{error}");
        assert!(error.reason().contains(told) && error.reason().contains(&status[..3]), "{error}");
        assert!(error.to_string().contains(&server.url), "{error}");
        assert_eq!(server.requests.load(Ordering::Relaxed), before + 1, "{status}");
    }
}

/// Asks for an object outside of any source.
fn head(address: &Address) -> object_store::Result<u64> {
    let settings = Settings::new(&StoreOptions::default(), []);
    let store = address.client(&settings, &Arc::default()).unwrap().objects;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { store.head(&address.location).await }).map(|meta| meta.size)
}

#[test]
fn a_token_does_not_follow_a_redirect_to_another_host() {
    install_tls();
    let (hub, files) = (Server::start(b""), Server::start(b"abc"));
    *hub.faults.redirect.lock().unwrap() = Some(files.url.clone());
    let set = [("HF_ENDPOINT", hub.host()), ("HF_TOKEN", "secret")];
    let set = set.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let hub_of = Hub::new(&Settings::new(&StoreOptions::default(), set)).unwrap();
    let of = |url: &str| match Address::of(Path::new(url), || Ok(&hub_of)).unwrap() {
        ObjectPlace::There(address) => address,
        ObjectPlace::Here(path) => panic!("{}", path.display()),
    };
    let address = of("hf://datasets/o/n/x");
    assert_eq!(head(&address).unwrap(), 3);
    assert_eq!(*hub.tokens.lock().unwrap(), [Some("Bearer secret".to_owned())]);
    assert_eq!(*files.tokens.lock().unwrap(), [None]);
    // A circle of redirects ends.
    *files.faults.redirect.lock().unwrap() = Some(files.url.clone());
    assert!(head(&of(&files.url)).is_err());
    let error = files.file().unwrap_err();
    assert!(error.reason().contains("redirect"), "{error}");
}

#[test]
fn a_client_of_https_sends_nothing_over_http() {
    install_tls();
    let server = Server::start(b"abc");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for is_plain in [false, true] {
        let connector = Connector {
            headers: Default::default(),
            follows_redirects: true,
            traffic: Arc::default(),
            omitted: Default::default(),
        };
        let client = connector.connect(&ClientOptions::new().with_allow_http(is_plain)).unwrap();
        let request = reqwest::Request::new(reqwest::Method::GET, server.url.parse().unwrap());
        let answer = runtime.block_on(async { client.execute(plain(request)).await });
        assert_eq!(answer.is_ok(), is_plain);
        assert_eq!(server.requests.load(Ordering::Relaxed), u64::from(is_plain));
    }
}

/// The same request in the store's type.
fn plain(request: reqwest::Request) -> object_store::client::HttpRequest {
    let mut made = object_store::client::HttpRequest::new(Vec::new().into());
    *made.method_mut() = request.method().clone();
    *made.uri_mut() = request.url().as_str().parse().unwrap();
    made
}

#[test]
fn threads_start_with_the_first_url_and_end_with_the_source() {
    let storage = Remote::default();
    assert!(format!("{storage:?}").starts_with("Remote"));
    let server = Server::start(b"abc");
    let file = storage.open(Path::new(&server.url)).unwrap();
    drop(storage);
    // An open file keeps its threads.
    let mut read = [0; 3];
    assert_eq!((file.read_at(&mut read, 0).unwrap(), &read), (3, b"abc"));
    // They end when a loader is closed, and start again.
    let storage = Remote::default();
    let file = storage.open(Path::new(&server.url)).unwrap();
    storage.end_threads();
    assert_eq!((file.read_at(&mut read[1..], 1).unwrap(), &read[1..]), (2, &b"bc"[..]));
}
