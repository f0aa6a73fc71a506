//! Opening and removing single files below a root.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, ResolveFlags, StatxAttributes, StatxFlags, fstat, openat,
    openat2, statat, statx, unlinkat,
};
use rustix::io::{Errno, retry_on_intr};

use super::LocalDir;

/// For directories on the way: a place to walk from, which needs no permission to read them.
const ON_THE_WAY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// For files. Without waiting, since a FIFO would wait for a writer for ever.
const FOR_READING: OFlags = OFlags::RDONLY
    .union(OFlags::CLOEXEC)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY);

/// For directories whose content is read.
const FOR_LISTING: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

const CONFINED: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

/// How a path is opened without following links.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Strategy {
    /// The kernel walks the whole path in one call (Linux 5.6 and later).
    Openat2,
    /// One call per component, for older kernels and for sandboxes that forbid that call.
    Walk,
}

impl Strategy {
    /// What works here: `openat2` may be missing (ENOSYS) or forbidden (EPERM).
    pub(super) fn probe(root: BorrowedFd<'_>) -> Self {
        match retry_on_intr(|| openat2(root, ".", ON_THE_WAY, Mode::empty(), CONFINED)) {
            Ok(_) => Self::Openat2,
            Err(_) => Self::Walk,
        }
    }

    /// Opens `path`, plain components below `from`. A link in any component is ELOOP.
    fn open(self, from: BorrowedFd<'_>, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        match self {
            Self::Openat2 => retry_on_intr(|| openat2(from, path, flags, Mode::empty(), CONFINED)),
            Self::Walk => {
                let Some((parents, name)) = path.rsplit_once('/') else {
                    return step(from, path, flags);
                };
                let mut parents = parents.split('/');
                let first = parents.next().unwrap_or_default();
                let at = parents.try_fold(step(from, first, ON_THE_WAY)?, |at, component| {
                    step(at.as_fd(), component, ON_THE_WAY)
                })?;
                step(at.as_fd(), name, flags)
            }
        }
    }

    /// Opens the directory `name` in `parent` for listing, unless something is mounted there
    /// (EXDEV). The caller compares `st_dev` as well, which is all there is with [`Self::Walk`]
    /// before Linux 5.8.
    pub(super) fn descend(
        self,
        parent: BorrowedFd<'_>,
        name: &std::ffi::CStr,
    ) -> Result<OwnedFd, Errno> {
        let flags = FOR_LISTING | OFlags::NOFOLLOW;
        match self {
            Self::Openat2 => {
                let resolve = CONFINED | ResolveFlags::NO_XDEV;
                retry_on_intr(|| openat2(parent, name, flags, Mode::empty(), resolve))
            }
            Self::Walk => {
                let fd = retry_on_intr(|| openat(parent, name, flags, Mode::empty()))?;
                let stat = statx(&fd, "", AtFlags::EMPTY_PATH, StatxFlags::empty());
                match stat {
                    Ok(stat) if stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) => {
                        Err(Errno::XDEV)
                    }
                    _ => Ok(fd),
                }
            }
        }
    }
}

/// Opens one component without following it.
fn step(at: BorrowedFd<'_>, component: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    match retry_on_intr(|| openat(at, component, flags | OFlags::NOFOLLOW, Mode::empty())) {
        // What O_DIRECTORY says of a link.
        Err(Errno::NOTDIR) if is_link(at, component) => Err(Errno::LOOP),
        result => result,
    }
}

fn is_link(at: BorrowedFd<'_>, name: &str) -> bool {
    statat(at, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
}

pub(super) fn open_file(
    strategy: Strategy,
    dir: &LocalDir,
    sub: &str,
    name: &str,
) -> Result<File, OpenError> {
    let at = Target { dir, path: target_path(dir, &[sub, name])? };
    let fd = strategy.open(dir.root_fd(), at.relative(), FOR_READING).map_err(|e| match e {
        // What opening says of a socket and of a device without driver.
        Errno::NXIO | Errno::NODEV => OpenError::NotARegularFile { path: at.path.clone() },
        e => at.error(e),
    })?;
    let stat = fstat(&fd).map_err(|e| at.error(e))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(OpenError::NotARegularFile { path: at.path });
    }
    Ok(File::from(fd))
}

pub(super) fn remove_file(
    strategy: Strategy,
    dir: &LocalDir,
    sub: &str,
    name: &str,
) -> Result<bool, OpenError> {
    let at = Target { dir, path: target_path(dir, &[sub, name])? };
    let parent = Target { dir, path: target_path(dir, &[sub])? };
    let removed = strategy
        .open(dir.root_fd(), parent.relative(), ON_THE_WAY)
        .map_err(|e| parent.error(e))
        .and_then(|fd| {
            unlinkat(&fd, name, AtFlags::empty()).map_err(|e| match e {
                Errno::ISDIR => OpenError::NotARegularFile { path: at.path.clone() },
                // Removing is a matter of the directory's permissions, not of the file's.
                Errno::ACCESS | Errno::PERM => permission(&at.path, &parent.path, fd.as_fd()),
                e => at.error(e),
            })
        });
    match removed {
        Ok(()) => Ok(true),
        Err(OpenError::NotFound { .. }) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Opens the directory that holds `dir`, a place to walk from; `None` if that is the root.
pub(super) fn open_parent(
    strategy: Strategy,
    dir: &LocalDir,
    parent: Option<&str>,
) -> Result<Option<OwnedFd>, OpenError> {
    let Some(parent) = parent else {
        return Ok(None);
    };
    let at = Target { dir, path: dir.path()[..dir.below + parent.len()].to_owned() };
    strategy.open(dir.root_fd(), parent, ON_THE_WAY).map(Some).map_err(|e| at.error(e))
}

/// Opens `dir` itself, which is `name` in `parent`, for listing.
pub(super) fn open_dir(
    strategy: Strategy,
    dir: &LocalDir,
    parent: BorrowedFd<'_>,
    name: &str,
) -> Result<OwnedFd, OpenError> {
    let at = Target { dir, path: dir.path().to_owned() };
    strategy.open(parent, name, FOR_LISTING).map_err(|e| at.error(e))
}

/// Opens a root, of which there is only a place to walk from, for listing.
pub(super) fn reopen_for_listing(root: BorrowedFd<'_>, path: &str) -> Result<OwnedFd, OpenError> {
    retry_on_intr(|| openat(root, ".", FOR_LISTING, Mode::empty()))
        .map_err(|e| OpenError::Io { path: path.to_owned(), source: e.into() })
}

/// Opens `dir` itself, which is `name` in `parent`: a place to look at, which needs no permission on it.
pub(super) fn open_place(
    strategy: Strategy,
    dir: &LocalDir,
    parent: BorrowedFd<'_>,
    name: &str,
) -> Result<OwnedFd, OpenError> {
    let at = Target { dir, path: dir.path().to_owned() };
    strategy.open(parent, name, ON_THE_WAY).map_err(|e| at.error(e))
}

/// Whether this process may go into `dir`, which is open as `fd`; listing it is another permission.
pub(super) fn enter(dir: &LocalDir, fd: BorrowedFd<'_>) -> Result<(), OpenError> {
    let at = Target { dir, path: dir.path().to_owned() };
    retry_on_intr(|| openat(fd, ".", ON_THE_WAY, Mode::empty()))
        .map(drop)
        .map_err(|_| permission(&at.path, &at.path, fd))
}

/// The full path of what lies in `dir` under `names`, each one component.
fn target_path(dir: &LocalDir, names: &[&str]) -> Result<String, OpenError> {
    let mut path = dir.path().to_owned();
    for name in names {
        require_component(name)?;
        path.push('/');
        path.push_str(name);
    }
    Ok(path)
}

fn require_component(name: &str) -> Result<(), OpenError> {
    if matches!(name, "" | "." | "..") || name.contains(['/', '\0']) {
        return Err(OpenError::NotAName { name: name.to_owned() });
    }
    Ok(())
}

/// A path at or below a local dir, for opening and for telling what went wrong.
struct Target<'a> {
    dir: &'a LocalDir,
    path: String,
}

impl Target<'_> {
    fn relative(&self) -> &str {
        &self.path[self.dir.below..]
    }

    fn error(&self, errno: Errno) -> OpenError {
        let path = self.path.clone();
        match errno {
            Errno::NOENT => OpenError::NotFound { path },
            Errno::LOOP => OpenError::SymbolicLink { path },
            Errno::NOTDIR => OpenError::NotADirectory { path },
            // The last thing that the kernel checks with RESOLVE_BENEATH.
            Errno::XDEV => OpenError::Moved { path },
            Errno::ACCESS | Errno::PERM => self.blame(),
            errno => OpenError::Io { path, source: errno.into() },
        }
    }

    /// Finds out whose permissions are in the way: the last component that can be reached.
    fn blame(&self) -> OpenError {
        let mut reached: Option<OwnedFd> = None;
        let mut end = self.dir.below.saturating_sub(1);
        for component in self.relative().split('/') {
            let at = reached.as_ref().map_or(self.dir.root_fd(), AsFd::as_fd);
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let Ok(fd) = openat(at, component, flags, Mode::empty()) else {
                break;
            };
            reached = Some(fd);
            end += 1 + component.len();
        }
        let at = reached.as_ref().map_or(self.dir.root_fd(), AsFd::as_fd);
        permission(&self.path, &self.path[..end], at)
    }
}

fn permission(path: &str, obstacle: &str, fd: BorrowedFd<'_>) -> OpenError {
    match fstat(fd) {
        Ok(stat) => OpenError::Permission {
            path: path.to_owned(),
            obstacle: if obstacle.is_empty() { "/".to_owned() } else { obstacle.to_owned() },
            owner: stat.st_uid,
            group: stat.st_gid,
            mode: stat.st_mode & 0o7777,
            uid: rustix::process::geteuid().as_raw(),
        },
        Err(e) => OpenError::Io { path: path.to_owned(), source: e.into() },
    }
}

/// Why a file or directory below a root cannot be used. Every text names the full path.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is none, or a directory above it is gone.
    #[error("no such file or directory: {path}")]
    NotFound {
        /// What was to be opened.
        path: String,
    },
    /// This process may not. Usually the executor's user and the service's share no group.
    #[error(
        "permission denied: {path}: {obstacle} has owner {owner}, group {group} and mode \
         {mode:04o}, and this service runs as user {uid}"
    )]
    Permission {
        /// What was to be opened.
        path: String,
        /// Whose permissions are in the way: the path itself or a directory above it.
        obstacle: String,
        /// The obstacle's owner, a user id.
        owner: u32,
        /// The obstacle's group id.
        group: u32,
        /// The obstacle's permission bits.
        mode: u32,
        /// The user id of this process.
        uid: u32,
    },
    /// The path or a directory above it is a symbolic link: below a root none is followed.
    #[error("a symbolic link lies in the path: {path}")]
    SymbolicLink {
        /// What was to be opened.
        path: String,
    },
    /// A directory, FIFO, socket or device.
    #[error("not a regular file: {path}")]
    NotARegularFile {
        /// What was to be opened.
        path: String,
    },
    /// A component that must be a directory is not.
    #[error("not a directory: {path}")]
    NotADirectory {
        /// What was to be opened.
        path: String,
    },
    /// A directory in the path was moved out of the root in the middle of this.
    #[error("moved out of the local directories while being opened: {path}")]
    Moved {
        /// What was to be opened.
        path: String,
    },
    /// The caller's sub dir or file name is not one plain path component.
    #[error("not a file name: {name:?}")]
    NotAName {
        /// What was given.
        name: String,
    },
    /// Anything else that the system says.
    #[error("{path}: {source}")]
    Io {
        /// What was to be opened.
        path: String,
        /// What the system says.
        source: io::Error,
    },
}
