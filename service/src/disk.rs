//! Blocking work on disks, kept off the runtime's threads and off each other's way.
//!
//! A stuck disk blocks every thread that touches it. Each disk therefore gets a bounded share of the
//! blocking pool, so that one of them can use up its share and nothing else (design, "What must
//! always hold" 9).

use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dashmap::DashMap;
use tokio::sync::Semaphore;

use crate::dirs::LocalDir;

/// Blocking calls on one disk at a time. The runtime's blocking pool has 512 threads, so a dozen
/// disks can be stuck at once before another one feels it.
pub(crate) const CALLS_PER_DISK: usize = 32;

/// Where blocking work waits for its disk.
#[derive(Debug)]
pub struct Disks {
    /// By root or mount point, of which there are so many and no more, whatever clients register.
    shares: DashMap<PathBuf, Disk>,
    mount_points: HashSet<PathBuf>,
}

/// Knows where file systems are mounted now. One that is mounted later counts as the one around it.
impl Default for Disks {
    fn default() -> Self {
        // Where that cannot be read, everything without a root is one disk.
        let mounts = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
        Self { shares: DashMap::new(), mount_points: mount_points(&mounts) }
    }
}

/// The work panicked; the panic itself was reported by the panic hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("internal error: a task on a disk panicked")]
pub struct DiskTaskPanicked;

impl Disks {
    /// Runs `work`, which may block on the disk of `dir`, on a thread made for that.
    pub async fn run<T: Send + 'static>(
        &self,
        dir: &LocalDir,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, DiskTaskPanicked> {
        self.disk(dir).run(work).await
    }

    /// The disk of `dir`.
    #[must_use]
    pub fn disk(&self, dir: &LocalDir) -> Disk {
        self.shares.entry(self.disk_of(dir).to_owned()).or_default().clone()
    }

    /// Which disk a directory is on, judged by its path, since asking the disk could block: its root,
    /// or without roots the file system that is mounted above it.
    fn disk_of<'a>(&self, dir: &'a LocalDir) -> &'a Path {
        let is_mount_point = |above: &&Path| self.mount_points.contains(*above);
        match dir.root() {
            "/" => Path::new(dir.path()).ancestors().find(is_mount_point).unwrap_or(Path::new("/")),
            root => Path::new(root),
        }
    }
}

/// The mount points in a `/proc/self/mountinfo`.
fn mount_points(mountinfo: &[u8]) -> HashSet<PathBuf> {
    mountinfo
        .split(|&byte| byte == b'\n')
        .filter_map(|line| line.split(|&byte| byte == b' ').nth(4))
        .map(|escaped| PathBuf::from(OsString::from_vec(unescaped(escaped))))
        .collect()
}

/// The kernel writes a blank, for one, as `\040`.
fn unescaped(mut escaped: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(escaped.len());
    loop {
        let octal = |digits: &[u8; 3]| u8::from_str_radix(str::from_utf8(digits).ok()?, 8).ok();
        match escaped {
            [] => return path,
            [b'\\', rest @ ..] if rest.first_chunk().and_then(octal).is_some() => {
                path.extend(rest.first_chunk().and_then(octal));
                escaped = &rest[3..];
            }
            [byte, rest @ ..] => {
                path.push(*byte);
                escaped = rest;
            }
        }
    }
}

/// The share of one disk.
#[derive(Debug, Clone)]
pub struct Disk {
    calls: Arc<Semaphore>,
    /// Removals are long and are nobody's hurry: one at a time, beside the calls.
    removals: Arc<Semaphore>,
}

impl Default for Disk {
    fn default() -> Self {
        Self {
            calls: Arc::new(Semaphore::new(CALLS_PER_DISK)),
            removals: Arc::new(Semaphore::new(1)),
        }
    }
}

impl Disk {
    /// Runs `work`, which may block on this disk, on a thread made for that.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, DiskTaskPanicked> {
        blocking(&self.calls, work).await
    }

    /// Runs `work`, which removes a directory of this disk, once no other removal does.
    pub async fn remove<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, DiskTaskPanicked> {
        blocking(&self.removals, work).await
    }
}

async fn blocking<T: Send + 'static>(
    share: &Arc<Semaphore>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, DiskTaskPanicked> {
    let permit = share.clone().acquire_owned().await.expect("the semaphore is never closed");
    let task = tokio::task::spawn_blocking(move || {
        // The permit goes with the work: a caller that gave up must not free the disk's share while
        // the thread is still stuck.
        let _permit = permit;
        work()
    });
    task.await.map_err(|_| DiskTaskPanicked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dirs::LocalRoots;

    #[test]
    fn c05_without_roots_there_are_as_many_disks_as_mounts_and_not_as_directories() {
        let mounts = b"27 1 8:1 / / rw - ext4 /dev/a rw\n\
            30 27 8:2 / /mnt/disk\\0401 rw,relatime shared:1 - xfs /dev/b rw\n\
            31 27 8:3 / /mnt/disk\\0401/in rw - xfs /dev/c rw\n";
        let disks = Disks { shares: DashMap::new(), mount_points: mount_points(mounts) };
        let roots = LocalRoots::unrestricted().unwrap();
        let disk_of = |dir: &str| disks.disk_of(&roots.admit(dir).unwrap()).to_owned();
        assert_eq!(disk_of("/mnt/disk 1/spark-x/blockmgr-1"), Path::new("/mnt/disk 1"));
        assert_eq!(disk_of("/mnt/disk 1/in/blockmgr-1"), Path::new("/mnt/disk 1/in"));
        assert_eq!(disk_of("/mnt/disk 10/blockmgr-1"), Path::new("/"));
        for number in 0..100 {
            let dir = format!("/tmp/spark-{number}/executor-{number}/blockmgr-{number}");
            let _ = disks.disk(&roots.admit(&dir).unwrap());
        }
        assert_eq!(disks.shares.len(), 1);
    }

    #[test]
    fn without_mounts_there_is_one_disk() {
        let disks = Disks { shares: DashMap::new(), mount_points: mount_points(b"") };
        let dir = LocalRoots::unrestricted().unwrap().admit("/tmp/blockmgr-1").unwrap();
        assert_eq!(disks.disk_of(&dir), Path::new("/"));
    }
}
