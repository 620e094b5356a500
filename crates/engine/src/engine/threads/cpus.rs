//! [`Cpus`]: the CPUs that the threads of a loader may run on.
//!
//! Source: `sched_setaffinity(2)`, `cpuset(7)` for the form of the list.

use std::sync::Arc;

use crate::{Error, ErrorKind, Result};

/// One more than the largest number of a CPU, as of `cpu_set_t`.
const MOST: usize = 1024;

/// A set of CPUs of this machine. Threads of a process share one; binding one of them affects no other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cpus(Arc<[usize]>);

impl Cpus {
    /// The CPUs in a list such as `0-7,16`.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if it is not a list, has a CPU that the process may not use, or the system is
    /// not Linux.
    pub fn parse(list: &str) -> Result<Self> {
        let refused = |message: String| Error::new(ErrorKind::Config, message);
        let numbers = numbers(list).ok_or_else(|| {
            refused(format!("cpus is {list:?}, must be a list of CPUs such as \"0-7,16\", each below {MOST}"))
        })?;
        let Some(allowed) = allowed() else {
            return Err(refused(
                "cpus is given, but threads are bound to CPUs on Linux only; leave it out".into(),
            ));
        };
        match numbers.iter().find(|number| !allowed.contains(number)) {
            None => Ok(Self(numbers.into())),
            Some(number) => Err(refused(format!(
                "cpus is {list:?}, which has CPU {number}; this process may run on {}",
                written(&allowed)
            ))),
        }
    }

    /// How many there are; never 0.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Binds the calling thread to them. What it starts later is bound as well. If the system refuses, since
    /// a CPU went offline or was taken from the process, the thread runs where it may.
    pub(crate) fn bind_thread(&self) {
        #[cfg(target_os = "linux")]
        {
            // SAFETY: bytes of zero are the empty set; the numbers are below `MOST`; the call affects only
            // the calling thread (0) and reads a set that outlives it.
            let is_bound = unsafe {
                let mut set: libc::cpu_set_t = std::mem::zeroed();
                self.0.iter().for_each(|&number| libc::CPU_SET(number, &mut set));
                libc::sched_setaffinity(0, size_of_val(&set), &raw const set) == 0
            };
            if !is_bound {
                let error = std::io::Error::last_os_error();
                log::warn!("a thread cannot be bound to cpus={}: {error}", written(&self.0));
            }
        }
    }
}

/// The numbers of a list, ascending; `None` if it is not one.
fn numbers(list: &str) -> Option<Vec<usize>> {
    let number = |text: &str| text.parse().ok().filter(|&number: &usize| number < MOST);
    let mut numbers = Vec::new();
    for part in list.split(',').map(str::trim) {
        let (first, last) = match part.split_once('-') {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(part)?, number(part)?),
        };
        if first > last {
            return None;
        }
        // bounded: each part adds at most `MOST`, and none stays twice.
        numbers.extend(first..=last);
        numbers.sort_unstable();
        numbers.dedup();
    }
    Some(numbers)
}

/// The CPUs that this process may run on; `None` if the system does not say.
fn allowed() -> Option<Vec<usize>> {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: bytes of zero are the empty set, which the call fills for the calling thread (0).
        let set = unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            (libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) == 0).then_some(set)
        }?;
        // SAFETY: the numbers are below `MOST`.
        Some((0..MOST).filter(|&number| unsafe { libc::CPU_ISSET(number, &set) }).collect())
    }
    #[cfg(not(target_os = "linux"))]
    None
}

/// Ascending numbers as a list: `0-7,16`.
fn written(numbers: &[usize]) -> String {
    let runs = numbers.chunk_by(|one, next| one + 1 == *next).map(|run| match run {
        [one] => one.to_string(),
        [first, .., last] => format!("{first}-{last}"),
        [] => String::new(),
    });
    runs.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_the_system_writes_them() {
        assert_eq!(numbers("0-2, 5,4-5"), Some(vec![0, 1, 2, 4, 5]));
        assert_eq!(written(&[0, 1, 2, 4, 5, 9]), "0-2,4-5,9");
        for wrong in ["", "a", "1-", "-1", "2-1", "1024", "0,,1", "1 2", "0-99999999999999999999"] {
            assert_eq!(numbers(wrong), None, "{wrong:?}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_thread_runs_on_its_cpus_alone() {
        let all = allowed().unwrap();
        let last = *all.last().unwrap();
        let cpus = Cpus::parse(&last.to_string()).unwrap();
        let bound = std::thread::spawn(move || {
            cpus.bind_thread();
            allowed().unwrap()
        });
        assert_eq!(bound.join().unwrap(), [last]);
        assert_eq!(allowed().unwrap(), all);
        if let Some(other) = (0..MOST).find(|number| !all.contains(number)) {
            let error = Cpus::parse(&format!("{last},{other}")).unwrap_err().to_string();
            assert!(
                error.contains(&format!("CPU {other}; this process may run on {}", written(&all))),
                "{error}"
            );
        }
    }
}
