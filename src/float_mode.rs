//! The floating-point mode of a thread: rounding, flushing of denormals, traps.
//!
//! A mode that is not the default changes the last bits of every batch, and many audio and deep-learning
//! programs flush denormals. Threads inherit their parent's mode, so forebay's threads begin with
//! [`set_default`]. On a caller's thread, [`Lent`] restores the previous mode. On other architectures nothing
//! is done.

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

/// Sets the calling thread's mode to the default.
pub(crate) fn set_default() {
    set(DEFAULT);
}

/// Sets the calling thread's mode to the default and restores the previous mode when dropped.
#[derive(Debug)]
pub(crate) struct Lent {
    mode: Word,
    /// The mode belongs to the thread, so the guard must not leave it.
    _thread: std::marker::PhantomData<*const ()>,
}

impl Lent {
    /// Saves the mode and sets the default.
    pub(crate) fn new() -> Self {
        let mode = get();
        set_default();
        Self { mode, _thread: std::marker::PhantomData }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        set(self.mode);
    }
}

#[cfg(target_arch = "x86_64")]
fn set(mode: Word) {
    // SAFETY: reads four bytes of a live local. The values are the default, which masks every exception, and
    // what `get` read on the same thread.
    unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const mode, options(nostack, preserves_flags)) };
}

#[cfg(target_arch = "x86_64")]
fn get() -> Word {
    let mut mode: Word = 0;
    // SAFETY: writes four bytes to a live local.
    unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut mode, options(nostack, preserves_flags)) };
    mode
}

#[cfg(target_arch = "aarch64")]
fn set(mode: Word) {
    // SAFETY: the values are the default and what `get` read on the same thread.
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
#[cfg(all(test, target_arch = "x86_64"))]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
pub(crate) fn flushing<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            set(DEFAULT | 0x8040);
            work()
        });
        thread.join().unwrap()
    })
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use std::hint::black_box;

    fn keeps_denormals() -> bool {
        black_box(black_box(f32::MIN_POSITIVE) / 2.0) > 0.0
    }

    #[test]
    fn a_lent_thread_keeps_denormals_and_gets_its_mode_back() {
        assert!(keeps_denormals());
        flushing(|| {
            assert!(!keeps_denormals());
            let lent = Lent::new();
            assert!(keeps_denormals());
            drop(lent);
            assert!(!keeps_denormals());
            set_default();
            assert!(keeps_denormals());
        });
    }
}
