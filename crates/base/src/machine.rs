//! The platform interface to the machine: the memory that the machine or the container grants this process.
//!
//! Linux reports the machine's memory in `/proc/meminfo`. The limits of the process's control group and its ancestors
//! are in `memory.max` (version 2) or `memory.limit_in_bytes` (version 1). A container often sees its own group as the
//! root, whatever path `/proc/self/cgroup` shows. So each path is tried with all its ancestors. On other systems
//! nothing is known.

use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

/// Where the two versions of control groups are mounted.
const CGROUP2: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
const CGROUP1: &str = "/sys/fs/cgroup/memory";

/// Bytes of memory that this process may use: the machine's, or less if its control group or an ancestor has a
/// limit. `None` if unknown. The files are read once.
pub fn memory_granted() -> Option<u64> {
    static GRANTED: OnceLock<Option<u64>> = OnceLock::new();
    *GRANTED.get_or_init(|| granted(&|path| std::fs::read_to_string(path).ok()))
}

/// Bytes of this process in memory. `None` if unknown.
pub fn memory_resident() -> Option<u64> {
    status("VmRSS:")
}

/// The most bytes of this process that were in memory at any time. `None` if unknown.
pub fn memory_resident_max() -> Option<u64> {
    status("VmHWM:")
}

fn status(name: &str) -> Option<u64> {
    kilobytes(&std::fs::read_to_string("/proc/self/status").ok()?, name)
}

/// As [`memory_granted`], with the files that `read` returns.
fn granted(read: &dyn Fn(&Path) -> Option<String>) -> Option<u64> {
    let total = read(Path::new("/proc/meminfo")).and_then(|text| kilobytes(&text, "MemTotal:"));
    let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let limits = groups.lines().flat_map(limit_files).filter_map(|file| limit(&read(&file)?));
    limits.chain(total).min()
}

/// The bytes of a line such as `MemTotal:       16384256 kB`.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

/// The files that may hold limits of a line of `/proc/self/cgroup`: `0::/path` (version 2) or `9:memory:/path`
/// (version 1).
fn limit_files(line: &str) -> Vec<PathBuf> {
    let mut fields = line.splitn(3, ':');
    let (Some(number), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else {
        return Vec::new();
    };
    let (mounts, name) = match (number, controllers) {
        ("0", "") => (&CGROUP2[..], "memory.max"),
        (_, controllers) if controllers.split(',').any(|controller| controller == "memory") => {
            (&[CGROUP1][..], "memory.limit_in_bytes")
        }
        _ => return Vec::new(),
    };
    // The path of a group outside of this process's namespace begins with `..`.
    let steps = Path::new(path).components().filter(|step| matches!(step, Component::Normal(_)));
    let path: PathBuf = steps.collect();
    mounts.iter().flat_map(|mount| path.ancestors().map(|group| Path::new(mount).join(group).join(name))).collect()
}

/// Parses `max` or a number of bytes. Version 1 reports no limit as a number near 2^63.
fn limit(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|&bytes| bytes < 1 << 62)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: &str = "MemTotal:       16384256 kB\nMemFree:         1202312 kB\nMemAvailable:   12345678 kB\n";
    const TOTAL: u64 = 16_384_256 * 1024;

    #[track_caller]
    fn grants(wanted: Option<u64>, files: &[(&str, &str)]) {
        let read =
            |path: &Path| files.iter().find(|(name, _)| Path::new(name) == path).map(|(_, text)| (*text).to_owned());
        assert_eq!(granted(&read), wanted);
    }

    #[test]
    fn without_a_limit_the_machine_counts() {
        grants(None, &[]);
        grants(None, &[("/proc/meminfo", "MemTotal: lots\n")]);
        grants(Some(TOTAL), &[("/proc/meminfo", MEMINFO)]);
        grants(
            Some(TOTAL),
            &[
                ("/proc/meminfo", MEMINFO),
                ("/proc/self/cgroup", "0::/user.slice/user-1000.slice/session-3.scope\n"),
                ("/sys/fs/cgroup/user.slice/memory.max", "max\n"),
                ("/sys/fs/cgroup/user.slice/user-1000.slice/memory.max", "max\n"),
            ],
        );
    }

    #[test]
    fn the_lowest_limit_of_a_group_and_those_above_it_counts() {
        let service = [
            ("/proc/meminfo", MEMINFO),
            ("/proc/self/cgroup", "0::/system.slice/db.service\n"),
            ("/sys/fs/cgroup/system.slice/memory.max", "3000000000\n"),
            ("/sys/fs/cgroup/system.slice/db.service/memory.max", "4294967296\n"),
        ];
        grants(Some(3_000_000_000), &service);
        grants(Some(4 << 30), &[service[0], service[1], service[3]]);
        // A limit above the machine's memory.
        grants(Some(TOTAL), &[service[0], service[1], ("/sys/fs/cgroup/system.slice/memory.max", "99999999999999\n")]);
    }

    #[test]
    fn a_container_of_version_two_sees_its_group_as_the_root() {
        for path in ["0::/\n", "0::/docker/0123abcd\n", "0::/../../kubepods/pod7\n"] {
            let files =
                [("/proc/meminfo", MEMINFO), ("/proc/self/cgroup", path), ("/sys/fs/cgroup/memory.max", "536870912\n")];
            grants(Some(512 << 20), &files);
        }
    }

    #[test]
    fn version_one_and_hybrids_are_read() {
        let lines = "12:pids:/docker/0123\n9:cpu,memory:/docker/0123\n1:name=systemd:/docker/0123\n0::/docker/0123\n";
        let unlimited = "9223372036854771712\n";
        let files = [
            ("/proc/meminfo", MEMINFO),
            ("/proc/self/cgroup", lines),
            ("/sys/fs/cgroup/memory/docker/0123/memory.limit_in_bytes", "1073741824\n"),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", unlimited),
        ];
        grants(Some(1 << 30), &files);
        grants(Some(TOTAL), &[files[0], files[1], files[3]]);
        grants(Some(1 << 29), &[files[0], files[1], ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "536870912")]);
        grants(Some(7 << 20), &[files[0], files[1], ("/sys/fs/cgroup/unified/docker/memory.max", "7340032")]);
    }

    #[test]
    fn malformed_lines_are_ignored() {
        let files = [
            ("/proc/meminfo", MEMINFO),
            ("/proc/self/cgroup", "nonsense\n0:\n::\n5:memory\n"),
            ("/sys/fs/cgroup/memory.max", "12"),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "13"),
        ];
        grants(Some(TOTAL), &files);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_machine_grants_something() {
        assert!(memory_granted().is_some_and(|bytes| bytes > 64 << 20), "{:?}", memory_granted());
        // The two values are read one after the other, while other tests allocate and free memory.
        let plausible = || memory_resident().is_some_and(|now| Some(now) <= memory_resident_max() && now > 100 << 10);
        assert!((0..100).any(|_| plausible()), "{:?} of {:?}", memory_resident(), memory_resident_max());
    }
}
