//! Counting what is in a directory, with bounded work.

use std::ffi::CString;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, Dir, FileType, Stat, fstat, statat};

use super::LocalDir;
use super::open::{OpenError, Strategy, open_dir, open_parent};
use super::remove::MAX_DEPTH;

/// How much is looked at.
#[derive(Debug, Clone, Copy)]
pub struct MeasureLimits {
    /// Files whose size is asked for; that of the others is estimated from theirs.
    pub stats: u64,
    /// Entries that are read at all.
    pub entries: u64,
}

impl Default for MeasureLimits {
    /// A large application's directory exactly, and one of millions within seconds.
    fn default() -> Self {
        Self { stats: 10_000, entries: 5_000_000 }
    }
}

/// What is in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Measured {
    /// Entries that are not directories.
    pub files: u64,
    /// The lengths of the regular files that have no other name, in bytes.
    pub bytes: u64,
    /// When a directory last changed, or one of the files that were looked at.
    pub newest: Option<SystemTime>,
    /// There was more than the limits allow to look at.
    pub estimated: bool,
    /// Every entry was seen. False at a limit, and where a directory in it is too deep, cannot be read, or
    /// has something mounted on it.
    pub whole: bool,
}

pub(super) fn measure(
    strategy: Strategy,
    dir: &LocalDir,
    name: &str,
    limits: MeasureLimits,
    mut go_on: impl FnMut() -> ControlFlow<()>,
) -> Result<Measured, OpenError> {
    let (parent, _) = dir.parent_and_name();
    let parent = open_parent(strategy, dir, parent)?;
    let at = parent.as_ref().map_or(dir.root_fd(), AsFd::as_fd);
    let top = open_dir(strategy, dir, at, name)?;
    let mut sum = Measured { whole: true, ..Measured::default() };
    let (mut entries, mut looked_at) = (0, 0);
    let mut device = None;
    // The directories on the way to where it is, each with its listing.
    let mut frames: Vec<Dir> = Vec::with_capacity(MAX_DEPTH);
    let mut next = Some(top);
    loop {
        if let Some(fd) = next.take() {
            if let Ok(stat) = fstat(&fd)
                && *device.get_or_insert(stat.st_dev) == stat.st_dev
                && let Ok(listing) = Dir::new(fd)
            {
                sum.newest = sum.newest.max(changed(&stat));
                frames.push(listing);
            } else {
                sum.whole = false;
            }
        }
        let depth = frames.len();
        let Some(frame) = frames.last_mut() else { break };
        let Some(Ok(entry)) = frame.read().inspect(|entry| sum.whole &= entry.is_ok()) else {
            frames.pop();
            continue;
        };
        let name: CString = entry.file_name().to_owned();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        entries += 1;
        if entries > limits.entries || go_on().is_break() {
            (sum.estimated, sum.whole) = (true, false);
            break;
        }
        let Ok(at) = frame.fd() else {
            sum.whole = false;
            continue;
        };
        let asked = (looked_at < limits.stats || entry.file_type() == FileType::Unknown)
            .then(|| statat(at, &name, AtFlags::SYMLINK_NOFOLLOW).ok())
            .flatten();
        let kind = match &asked {
            Some(stat) => FileType::from_raw_mode(stat.st_mode),
            None => entry.file_type(),
        };
        if kind == FileType::Directory {
            if depth < MAX_DEPTH {
                next = strategy.descend(at, &name).ok();
            } else {
                sum.estimated = true;
            }
            sum.whole &= next.is_some();
            continue;
        }
        sum.files += 1;
        if let Some(stat) = asked {
            looked_at += 1;
            sum.newest = sum.newest.max(changed(&stat));
            if kind == FileType::RegularFile && stat.st_nlink == 1 {
                sum.bytes += u64::try_from(stat.st_size).unwrap_or(0);
            }
        }
    }
    if looked_at < sum.files {
        sum.estimated = true;
        let all = u128::from(sum.bytes) * u128::from(sum.files) / u128::from(looked_at.max(1));
        sum.bytes = u64::try_from(all).unwrap_or(u64::MAX);
    }
    Ok(sum)
}

fn changed(stat: &Stat) -> Option<SystemTime> {
    let since = Duration::from_secs(u64::try_from(stat.st_mtime).unwrap_or(0));
    SystemTime::UNIX_EPOCH.checked_add(since)
}
