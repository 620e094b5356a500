//! The floating-point mode of a thread: rounding, flushing of denormals, traps.
//!
//! A mode that is not the default changes the last bits of every batch, and many audio and deep-learning
//! programs flush denormals. Threads inherit their parent's mode, so forebay's threads work in [`own`]. On a
//! caller's thread, [`lent`] restores the previous mode. A user's function may change the mode, so it is
//! called in [`theirs`]. On other architectures nothing is done.

use std::cell::Cell;

#[cfg(target_arch = "x86_64")]
type Word = u32;
#[cfg(target_arch = "aarch64")]
type Word = u64;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
type Word = ();

/// Rounding to nearest, no flushing, no traps: MXCSR at power-on with every exception masked.
#[cfg(target_arch = "x86_64")]
const DEFAULT: Word = 0x1F80;
/// Rounding to nearest, no flushing, no traps: FPCR of zero.
#[cfg(target_arch = "aarch64")]
const DEFAULT: Word = 0;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const DEFAULT: Word = ();

#[derive(Clone, Copy)]
enum Owner {
    /// That of its owner, who is not forebay.
    Theirs,
    /// The default: the thread is forebay's.
    Ours,
    /// The default for now: the thread is lent, and its owner's mode is this.
    Lent(Word),
}

thread_local! {
    static OWNER: Cell<Owner> = const { Cell::new(Owner::Theirs) };
}

/// Does the work of a thread of forebay in the default mode.
pub fn own<T>(work: impl FnOnce() -> T) -> T {
    OWNER.set(Owner::Ours);
    set(DEFAULT);
    apart(work)
}

/// Does work on a caller's thread in the default mode, and restores the thread's mode after it.
pub fn lent<T>(work: impl FnOnce() -> T) -> T {
    let _lent = Lent::new();
    apart(work)
}

/// Calls a function of the user: on a lent thread in the mode of its owner, which the function may change,
/// on a thread of forebay in the default mode, which is restored after it.
pub fn theirs<T>(function: impl FnOnce() -> T) -> T {
    let _theirs = Theirs::new();
    apart(function)
}

/// The compiler orders memory, but not arithmetic, against the instructions that change the mode. It moves
/// neither across a call.
#[inline(never)]
fn apart<T>(work: impl FnOnce() -> T) -> T {
    work()
}

/// The default mode on a caller's thread, until it is dropped.
struct Lent(Owner);

impl Lent {
    fn new() -> Self {
        let before = OWNER.replace(Owner::Lent(get()));
        set(DEFAULT);
        Self(before)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Owner::Lent(mode) = OWNER.replace(self.0) {
            set(mode);
        }
    }
}

/// The mode of a thread's owner, until it is dropped.
struct Theirs(Owner);
impl Theirs {
    fn new() -> Self {
        let before = OWNER.replace(Owner::Theirs);
        if let Owner::Lent(mode) = before {
            set(mode);
        }
        Self(before)
    }
}
impl Drop for Theirs {
    fn drop(&mut self) {
        let owner = match self.0 {
            Owner::Lent(_) => Owner::Lent(get()),
            other => other,
        };
        OWNER.set(owner);
        if !matches!(owner, Owner::Theirs) {
            set(DEFAULT);
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn set(mode: Word) {
    // SAFETY: reads four bytes of a live local. The values are the default, which masks every exception, and
    // what `get` read on the same thread. Not `preserves_flags`: the exception flags of MXCSR are among them.
    unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const mode, options(nostack)) };
}

#[cfg(target_arch = "x86_64")]
fn get() -> Word {
    let mut mode: Word = 0;
    // SAFETY: writes four bytes to a live local, and changes no flag.
    unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut mode, options(nostack, preserves_flags)) };
    mode
}

#[cfg(target_arch = "aarch64")]
fn set(mode: Word) {
    // SAFETY: the values are the default and what `get` read on the same thread. The flags that are preserved
    // are those of NZCV and FPSR, and FPCR has none.
    unsafe { std::arch::asm!("msr fpcr, {}", in(reg) mode, options(nostack, preserves_flags)) };
}

#[cfg(target_arch = "aarch64")]
fn get() -> Word {
    let mode: Word;
    // SAFETY: reads a register that every program may read.
    unsafe { std::arch::asm!("mrs {}, fpcr", out(reg) mode, options(nostack, preserves_flags)) };
    mode
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn set((): Word) {}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn get() -> Word {}

/// For tests: runs `work` on a thread that flushes denormals, on input and on output.
#[doc(hidden)]
#[cfg(target_arch = "x86_64")]
pub fn flushing<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            set(DEFAULT | 0x8040);
            work()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use std::{
        hint::black_box,
        panic::{AssertUnwindSafe, catch_unwind},
    };

    fn keeps_denormals() -> bool {
        black_box(black_box(f32::MIN_POSITIVE) / 2.0) > 0.0
    }

    /// The change of mode that a user's function makes.
    fn flush(flushes: bool) {
        set(if flushes { DEFAULT | 0x8040 } else { DEFAULT });
    }

    #[test]
    fn a_lent_thread_keeps_denormals_and_gets_its_mode_back() {
        assert!(keeps_denormals());
        flushing(|| {
            assert!(!keeps_denormals());
            assert!(lent(keeps_denormals));
            assert!(!keeps_denormals());
            assert!(own(keeps_denormals));
        });
    }

    #[test]
    fn a_users_function_on_a_thread_of_forebay_leaves_no_mode() {
        own(|| {
            theirs(|| {
                assert!(keeps_denormals());
                flush(true);
                assert!(lent(keeps_denormals), "forebay, called by the function");
                assert!(!keeps_denormals());
            });
            assert!(keeps_denormals());
            let panics = AssertUnwindSafe(|| {
                theirs(|| {
                    flush(true);
                    panic!("a test asked for it");
                });
            });
            catch_unwind(panics).unwrap_err();
            assert!(keeps_denormals());
        });
    }

    #[test]
    fn a_users_function_on_a_lent_thread_has_the_mode_of_the_thread() {
        flushing(|| {
            lent(|| {
                theirs(|| assert!(!keeps_denormals()));
                assert!(keeps_denormals());
            });
            assert!(!keeps_denormals());
        });
    }

    #[test]
    fn a_users_function_changes_the_mode_of_its_own_thread() {
        let changes = |flushes: bool| theirs(|| flush(flushes));
        lent(|| {
            changes(true);
            assert!(keeps_denormals());
            theirs(|| assert!(!keeps_denormals()));
        });
        assert!(!keeps_denormals());
        changes(false); // not lent: nothing to restore
        assert!(keeps_denormals());
    }
}
