//! Measures work on a thread: processor time, and peak memory.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    collections::BTreeMap,
    panic::{self, AssertUnwindSafe, catch_unwind},
    sync::{Mutex, Once, mpsc},
    thread,
    time::Duration,
};

/// Forwards to the system's allocator and counts the bytes that this thread holds.
struct Counting;

#[derive(Clone, Copy)]
struct Held {
    now: isize,
    peak: isize,
}

thread_local! {
    static HELD: Cell<Held> = const { Cell::new(Held { now: 0, peak: 0 }) };
    static IS_TRIAL: Cell<bool> = const { Cell::new(false) };
}

fn count(bytes: isize) {
    // A thread that ends may allocate after its counts are destroyed; these are not needed.
    let _ = HELD.try_with(|held| {
        let Held { now, peak } = held.get();
        let now = now + bytes;
        held.set(Held { now, peak: peak.max(now) });
    });
}

// SAFETY: every call is forwarded unchanged; counting touches a thread-local without a destructor and
// allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promises are the ones required here.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // Old and new block may exist at the same time.
        count(new_size as isize);
        count(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.realloc(block, layout, new_size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }
}

#[cfg_attr(not(feature = "python"), global_allocator)]
#[cfg_attr(feature = "python", used)]
static ALLOCATOR: Counting = Counting;

/// The cost of a piece of work.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cost {
    /// This thread's processor time.
    pub time: Duration,
    /// The peak of bytes held, beyond those before.
    pub peak: usize,
}

/// Bytes that this thread allocated and that are not freed.
pub fn held() -> isize {
    HELD.get().now
}

fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` may be written, and the clock exists.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) }, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Panics that became errors, by place.
static PANICS: Mutex<BTreeMap<String, u64>> = Mutex::new(BTreeMap::new());
static HOOK: Once = Once::new();

/// Runs `work`, which must neither panic nor take more than a minute.
///
/// A panic that became an error within it is counted by its place; see [`panics`].
pub fn metered<T>(what: &str, work: impl FnOnce() -> T) -> (T, Cost) {
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| match (IS_TRIAL.get(), info.location()) {
            (true, Some(place)) => {
                // For a library: the path from its name on.
                let file = place.file().rsplit_once("/registry/src/").map_or(place.file(), |(_, file)| file);
                let place = format!("{file}:{}", place.line());
                *PANICS.lock().unwrap().entry(place).or_default() += 1;
            }
            _ => before(info),
        }));
    });
    let (start, held) = (thread_time(), HELD.get());
    HELD.set(Held { peak: held.now, ..held });
    IS_TRIAL.set(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    IS_TRIAL.set(false);
    let now = HELD.get();
    let cost = Cost { time: thread_time() - start, peak: (now.peak - held.now) as usize };
    let result = result.unwrap_or_else(|_| panic!("{what}: a panic escaped; {:?}", panics()));
    (result, cost)
}

/// The places of panics in the trials of this process so far, with their numbers.
pub fn panics() -> BTreeMap<String, u64> {
    PANICS.lock().unwrap().clone()
}

/// Ends the process if a trial does not end: an endless loop cannot be stopped in another way.
pub struct Watchdog(mpsc::Sender<String>);

impl Watchdog {
    pub fn new() -> Self {
        let (tell, told) = mpsc::channel::<String>();
        thread::spawn(move || {
            let mut last = String::new();
            loop {
                match told.recv_timeout(Duration::from_secs(120)) {
                    Ok(what) => last = what,
                    Err(mpsc::RecvTimeoutError::Disconnected) => return,
                    Err(mpsc::RecvTimeoutError::Timeout) => {
                        eprintln!("no end of {last}");
                        std::process::abort();
                    }
                }
            }
        });
        Self(tell)
    }

    /// Notes the trial that begins now.
    pub fn begins(&self, what: &str) {
        self.0.send(what.to_owned()).unwrap();
    }
}
