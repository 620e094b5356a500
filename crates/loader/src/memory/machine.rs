//! The memory that this process may use: the machine's, or its control group's if that has less.

use std::{fs, path::Path};

/// Bytes of memory that this process may use; `None` if the system does not tell.
pub(super) fn usable() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total(&text));
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    group_limit(&groups, Path::new("/sys/fs/cgroup")).into_iter().chain(machine).min()
}

/// `MemTotal` of `/proc/meminfo`, in bytes.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The least limit of the control groups in `/proc/self/cgroup` and of the groups above them; `root` is where
/// the groups are mounted.
fn group_limit(groups: &str, root: &Path) -> Option<u64> {
    let limits = groups.lines().flat_map(|line| {
        // `hierarchy:controllers:path`; version 2 has no controllers and one hierarchy.
        let (controllers, path) =
            line.split_once(':').and_then(|(_, rest)| rest.split_once(':')).unwrap_or_default();
        let (base, file) = match controllers {
            "" => (root.to_path_buf(), "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                (root.join("memory"), "memory.limit_in_bytes")
            }
            _ => return Vec::new(),
        };
        // In a container, the path may be one of the host. The mounted root then has the container's limit.
        let inner = base.join(path.trim_start_matches('/'));
        let above = inner.ancestors().take_while(|folder| folder.starts_with(&base));
        above.filter_map(|folder| fs::read_to_string(folder.join(file)).ok()?.trim().parse().ok()).collect()
    });
    limits.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_memory() {
        let bytes = usable().unwrap();
        assert!(bytes > 64 << 20, "{bytes}");
    }

    #[test]
    fn the_least_limit_counts() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, limit: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, limit).unwrap();
        };
        let limit = |groups: &str| group_limit(groups, root.path());
        assert_eq!(limit("0::/a/b\n"), None, "no files");
        write("a/b/memory.max", "max\n");
        assert_eq!(limit("0::/a/b\n"), None, "no limit");
        write("a/memory.max", "3000\n");
        assert_eq!(limit("0::/a/b\n"), Some(3000), "of the group above");
        write("a/b/memory.max", "2000\n");
        assert_eq!(limit("0::/a/b\n"), Some(2000));
        write("memory/c/memory.limit_in_bytes", "1000\n");
        let first = "12:cpu,cpuacct:/c\n4:memory:/c\n";
        assert_eq!((limit(first), limit("12:cpu,cpuacct:/c\n")), (Some(1000), None));
        // The path of the host, seen from a container.
        write("memory/memory.limit_in_bytes", "500\n");
        assert_eq!(limit("4:memory:/docker/123\n"), Some(500));
        assert_eq!((limit(""), limit("odd"), limit("4:memory")), (None, None, None));
    }

    #[test]
    fn totals_are_read_in_kibibytes() {
        assert_eq!(total("MemTotal:       24576 kB\nMemFree: 1 kB\n"), Some(24_576 << 10));
        assert_eq!([total(""), total("MemTotal: 5"), total("MemTotal: x kB")], [None; 3]);
    }
}
