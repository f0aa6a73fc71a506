//! The first step of a removal: another name, in constant time, and the way back.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{
    AtFlags, FileType, RenameFlags, Statx, StatxFlags, renameat, renameat_with, statat, statx,
};
use rustix::io::Errno;

use super::LocalDir;
use super::open::{OpenError, Strategy, enter, open_dir, open_parent, open_place};
use crate::store::row::Identity;

/// How a tombstone's name begins. Two numbers follow, in hexadecimal.
const PREFIX: &str = ".shuffled-tombstone-";

/// The name of a directory from the moment it is to be removed until its files are gone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tombstone(String);

impl Tombstone {
    /// The name for a directory of a record.
    #[must_use]
    pub fn new(record: u64, index: usize) -> Self {
        Self(format!("{PREFIX}{record:016x}-{index:08x}"))
    }

    /// Reads a name that [`new`](Self::new) made.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let (record, index) = name.strip_prefix(PREFIX)?.split_once('-')?;
        let is_hex = |text: &str, least| {
            let digit = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
            (least..=16).contains(&text.len()) && text.bytes().all(digit)
        };
        (is_hex(record, 16) && is_hex(index, 8)).then(|| Self(name.to_owned()))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Tombstone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What came of giving a directory its tombstone's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entombed {
    /// It has it, from now on or from before.
    Done,
    /// There was no directory. It may have been renamed earlier.
    WasGone,
}

/// Why a directory keeps its name.
#[derive(Debug, thiserror::Error)]
pub enum EntombError {
    /// It cannot be reached, or is something else.
    #[error(transparent)]
    Refused(#[from] OpenError),
    /// Another directory has its path now.
    #[error("not the directory that was registered: {path}")]
    NotTheSame {
        /// Where.
        path: String,
    },
    /// The directory that it is in cannot be changed, or something is mounted on it. It may still be
    /// possible to empty it where it is.
    #[error("cannot be renamed: {path}: {source}")]
    CannotRename {
        /// Which one.
        path: String,
        /// What the system says.
        source: io::Error,
    },
    /// Anything else that the system says.
    #[error("{path}: {source}")]
    Io {
        /// Which one.
        path: String,
        /// What the system says.
        source: io::Error,
    },
}

/// Why a directory does not have its old name again.
#[derive(Debug, thiserror::Error)]
pub enum ExhumeError {
    /// The directory that it is in cannot be reached.
    #[error(transparent)]
    Refused(#[from] OpenError),
    /// There is no such tombstone.
    #[error("there is no {tombstone} beside {path}")]
    NotFound {
        /// Where the directory was.
        path: String,
        /// The name that was looked for.
        tombstone: Tombstone,
    },
    /// Something has the old name.
    #[error("something is at {path} again")]
    AlreadyThere {
        /// Where.
        path: String,
    },
    /// Anything else that the system says.
    #[error("{path}: {source}")]
    Io {
        /// Where the directory was.
        path: String,
        /// What the system says.
        source: io::Error,
    },
}

/// What a look at a directory finds.
#[derive(Debug)]
pub struct Probe {
    /// What tells it from another one with its path.
    pub identity: Identity,
    /// Its owner's user id.
    pub owner: u32,
    /// Whether this process can list it and enter it.
    pub readable: Result<(), OpenError>,
}

pub(super) fn probe(strategy: Strategy, dir: &LocalDir) -> Result<Probe, OpenError> {
    let (parent, name) = dir.parent_and_name();
    let parent = open_parent(strategy, dir, parent)?;
    let at = parent.as_ref().map_or(dir.root_fd(), AsFd::as_fd);
    let stat = stat(open_place(strategy, dir, at, name)?.as_fd(), dir)?;
    let readable = open_dir(strategy, dir, at, name).and_then(|listed| enter(dir, listed.as_fd()));
    Ok(Probe { identity: identity(&stat), owner: stat.stx_uid, readable })
}

pub(super) fn entomb(
    strategy: Strategy,
    dir: &LocalDir,
    tombstone: &Tombstone,
    expected: Option<Identity>,
) -> Result<Entombed, EntombError> {
    let (parent, name) = dir.parent_and_name();
    let path = || dir.path().to_owned();
    let parent = match open_parent(strategy, dir, parent) {
        Ok(parent) => parent,
        Err(OpenError::NotFound { .. }) => return Ok(Entombed::WasGone),
        Err(error) => return Err(error.into()),
    };
    let at = parent.as_ref().map_or(dir.root_fd(), AsFd::as_fd);
    // Before a crash, perhaps. What has the directory's path now is another one.
    if let Ok(stat) = statx(at, tombstone.as_str(), AtFlags::SYMLINK_NOFOLLOW, WANTED)
        && expected.is_none_or(|expected| expected == identity(&stat))
    {
        return Ok(Entombed::Done);
    }
    let place = match open_place(strategy, dir, at, name) {
        Ok(place) => place,
        Err(OpenError::NotFound { .. }) => return Ok(Entombed::WasGone),
        Err(error) => return Err(error.into()),
    };
    let is = identity(&stat(place.as_fd(), dir)?);
    if expected.is_some_and(|expected| expected != is) {
        return Err(EntombError::NotTheSame { path: path() });
    }
    match rename(at, name, tombstone.as_str()) {
        Ok(()) => {}
        Err(Errno::NOENT) => return Ok(Entombed::WasGone),
        // A full disk, too: a new name may need a block that only the emptying gives back.
        Err(
            e @ (Errno::ACCESS
            | Errno::PERM
            | Errno::BUSY
            | Errno::XDEV
            | Errno::NOSPC
            | Errno::DQUOT),
        ) => {
            return Err(EntombError::CannotRename { path: path(), source: e.into() });
        }
        Err(e) => return Err(EntombError::Io { path: path(), source: e.into() }),
    }
    // Something may have been put in its place between the look and the renaming; that goes back, and
    // the directory itself is wherever it was put.
    match statx(at, tombstone.as_str(), AtFlags::SYMLINK_NOFOLLOW, WANTED) {
        Ok(stat) if identity(&stat) == is => Ok(Entombed::Done),
        _ => {
            let back = rename(at, tombstone.as_str(), name);
            back.map_err(|e| EntombError::Io { path: path(), source: e.into() })?;
            Err(EntombError::NotTheSame { path: path() })
        }
    }
}

pub(super) fn exhume(
    strategy: Strategy,
    dir: &LocalDir,
    tombstone: &Tombstone,
) -> Result<(), ExhumeError> {
    let (parent, name) = dir.parent_and_name();
    let path = || dir.path().to_owned();
    let not_found = || ExhumeError::NotFound { path: path(), tombstone: tombstone.clone() };
    let parent = match open_parent(strategy, dir, parent) {
        Ok(parent) => parent,
        Err(OpenError::NotFound { .. }) => return Err(not_found()),
        Err(error) => return Err(error.into()),
    };
    let at = parent.as_ref().map_or(dir.root_fd(), AsFd::as_fd);
    match rename(at, tombstone.as_str(), name) {
        Ok(()) => Ok(()),
        Err(Errno::NOENT) => Err(not_found()),
        Err(Errno::EXIST | Errno::NOTEMPTY) => Err(ExhumeError::AlreadyThere { path: path() }),
        Err(e) => Err(ExhumeError::Io { path: path(), source: e.into() }),
    }
}

/// Renames within one directory, over nothing.
fn rename(at: BorrowedFd<'_>, from: &str, to: &str) -> Result<(), Errno> {
    match renameat_with(at, from, at, to, RenameFlags::NOREPLACE) {
        // A file system or kernel that cannot refuse to replace. What could come in between is an empty
        // directory, which is all that a directory replaces.
        Err(Errno::INVAL | Errno::NOSYS) => match statat(at, to, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => renameat(at, from, at, to),
            Ok(_) => Err(Errno::EXIST),
            Err(e) => Err(e),
        },
        result => result,
    }
}

const WANTED: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);

fn stat(fd: BorrowedFd<'_>, dir: &LocalDir) -> Result<Statx, OpenError> {
    let io = |e: Errno| OpenError::Io { path: dir.path().to_owned(), source: e.into() };
    let stat = statx(fd, "", AtFlags::EMPTY_PATH, WANTED).map_err(io)?;
    match FileType::from_raw_mode(stat.stx_mode.into()) {
        FileType::Directory => Ok(stat),
        _ => Err(OpenError::NotADirectory { path: dir.path().to_owned() }),
    }
}

fn identity(stat: &Statx) -> Identity {
    let has_birth = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME);
    let born = has_birth.then(|| {
        let seconds = u64::try_from(stat.stx_btime.tv_sec).unwrap_or(0);
        seconds.saturating_mul(1_000_000_000).saturating_add(stat.stx_btime.tv_nsec.into())
    });
    Identity { inode: stat.stx_ino, born }
}
