//! Blocking work on disks, kept off the runtime's threads and off each other's way.
//!
//! A stuck disk blocks every thread that touches it. Each disk therefore gets a bounded share of the
//! blocking pool, so that one of them can use up its share and nothing else (design, "What must
//! always hold" 9).

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use dashmap::DashMap;
use tokio::sync::Semaphore;

use crate::dirs::LocalDir;

/// Blocking calls on one disk at a time. The runtime's blocking pool has 512 threads, so a dozen
/// disks can be stuck at once before another one feels it.
pub(crate) const CALLS_PER_DISK: usize = 32;

/// Where blocking work waits for its disk.
#[derive(Debug, Default)]
pub struct Disks(DashMap<PathBuf, Disk>);

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
        self.0.entry(disk_of(dir)).or_default().clone()
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

/// Which disk a directory is on, judged by its path, since asking the disk could block: its root, or
/// without roots the first two components (`/mnt/disk1`), by which hosts tell their disks apart.
fn disk_of(dir: &LocalDir) -> PathBuf {
    if dir.root() == "/" {
        Path::new(dir.path())
            .components()
            .filter(|part| matches!(part, Component::Normal(_)))
            .take(2)
            .collect()
    } else {
        PathBuf::from(dir.root())
    }
}
