//! The directories that the service may read and remove, confined by descriptor.
//!
//! A client names directories (`RegisterExecutor.localDirs`) and can swap directories for links at
//! any time. A check of the path before its use is therefore worth nothing: the answer is stale at
//! once. Here every root is opened once at start, and each use walks down from that descriptor
//! without following a link or leaving the root, so that the kernel checks and opens in one step.
//! Nothing outside the roots is read or removed.
//!
//! Links in a root's own path, as configured, are the operator's and are followed once.
//!
//! Everything here but [`LocalRoots::admit`] does blocking I/O: call it in `spawn_blocking`.
//!
//! Source: `spec/ess-service.md` §2 (the texts, and the rules that Spark has since 3.5),
//! `spec/on-disk.md` §2 (normalisation).

mod measure;
mod open;
mod remove;
mod tombstone;
mod walk;

use std::cmp::Ordering;
use std::fs::File;
use std::hash::{Hash, Hasher};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, io};

use rustix::fs::{Mode, OFlags};

use crate::store::row::Identity;

use self::open::Strategy;

pub use self::measure::{MeasureLimits, Measured};
pub use self::open::OpenError;
pub use self::remove::{RemoveError, Removed};
pub use self::tombstone::{EntombError, Entombed, ExhumeError, Probe, Tombstone};
pub use self::walk::MAX_CHILDREN;

/// How a directory's name begins if it is a block manager's: Spark's executors make their local
/// dirs as `blockmgr-<uuid>`.
const BLOCK_MANAGER: &str = "blockmgr-";

/// The longest path and the longest name that Linux takes, in bytes.
const PATH_MAX: usize = 4095;
const NAME_MAX: usize = 255;

/// The directories below which local dirs may lie, each held open.
#[derive(Debug)]
pub struct LocalRoots {
    roots: Vec<Arc<Root>>,
    restricted: bool,
    strategy: Strategy,
}

/// A root, held open. The descriptor gives no right to read it, only a place to walk from.
#[derive(Debug)]
struct Root {
    /// As configured and normalised, unless that is the resolved path or holds `.` or `..`.
    alias: Option<String>,
    /// Without links, without a `/` at the end: empty for the root of the file system.
    path: String,
    fd: OwnedFd,
}

impl LocalRoots {
    /// Opens the configured roots, absolute paths of directories, in this order.
    ///
    /// A root stays what it was at the start: a file system mounted over it later is not seen.
    /// Blocking.
    ///
    /// # Errors
    /// The operator is at fault: see [`RootError`], which names the root. Spark only skips such
    /// a root, after which executors fail to register without anybody knowing why.
    pub fn open(configured: &[impl AsRef<Path>]) -> Result<Self, RootError> {
        if configured.is_empty() {
            return Err(RootError::None);
        }
        let roots: Vec<_> = configured
            .iter()
            .map(|root| Root::open(root.as_ref()).map(Arc::new))
            .collect::<Result<_, _>>()?;
        let strategy = Strategy::probe(roots[0].fd.as_fd());
        Ok(Self { roots, restricted: true, strategy })
    }

    /// No roots: any directory whose name begins with `blockmgr-`, as Spark's Mesos service has
    /// it but for that name. No link is followed anywhere in the path, since none is known to be
    /// the operator's. Blocking.
    ///
    /// # Errors
    /// [`RootError::Unreadable`] if `/` cannot be opened.
    pub fn unrestricted() -> Result<Self, RootError> {
        let fd = open_directory(Path::new("/"))?;
        let strategy = Strategy::probe(fd.as_fd());
        let root = Root { alias: None, path: String::new(), fd };
        Ok(Self { roots: vec![Arc::new(root)], restricted: false, strategy })
    }

    /// Whether roots are configured. Without them any `blockmgr-*` directory is admitted.
    #[must_use]
    pub fn is_restricted(&self) -> bool {
        self.restricted
    }

    /// The resolved paths of the roots, in the order of the configuration; empty without roots.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.roots.iter().filter(|_| self.restricted).map(|root| Path::new(&root.path))
    }

    /// Decides by its text alone whether a client may name the directory `dir`.
    ///
    /// No I/O, since a registration must not wait for a disk. Whether the directory exists, and
    /// whether links lie in its path, shows when it is used.
    ///
    /// `dir` may spell its root as configured or as resolved; the [`LocalDir`] has the resolved
    /// spelling, so that two spellings of one directory are equal.
    ///
    /// # Errors
    /// The client is at fault: see [`AdmitError`].
    pub fn admit(&self, dir: &str) -> Result<LocalDir, AdmitError> {
        let path = normalise(dir)?;
        if !self.restricted {
            let (_, name) = path.rsplit_once('/').unwrap_or_default();
            return match self.roots.first() {
                Some(root) if name.starts_with(BLOCK_MANAGER) => {
                    let path: Arc<str> = path.into();
                    let named = Arc::clone(&path);
                    Ok(LocalDir { below: 1, path, named, root: Arc::clone(root) })
                }
                _ => Err(AdmitError::NotABlockManagers(dir.into())),
            };
        }
        // The innermost root decides, in both steps: with roots /a and /a/b, the latter a link,
        // /a/b/c is below the target of the link.
        let spellings = self.roots.iter().flat_map(|root| {
            [Some(&root.path), root.alias.as_ref()].map(|spelling| (root, spelling))
        });
        let resolved = spellings
            .filter_map(|(root, spelling)| Some((root, below(&path, spelling?)?)))
            .min_by_key(|(_, rest)| rest.len())
            .map(|(root, rest)| format!("{}/{rest}", root.path))
            .ok_or_else(|| AdmitError::NotUnderARoot(dir.into()))?;
        self.roots
            .iter()
            .filter_map(|root| Some((root, below(&resolved, &root.path)?.len())))
            .min_by_key(|(_, length)| *length)
            .map(|(root, length)| LocalDir {
                below: resolved.len() - length,
                path: resolved.as_str().into(),
                named: path.as_str().into(),
                root: Arc::clone(root),
            })
            .ok_or_else(|| AdmitError::NotUnderARoot(dir.into()))
    }

    /// Opens the regular file `name` in the sub dir `sub` of `dir` for reading. Blocking; but
    /// never hangs on a FIFO.
    ///
    /// # Errors
    /// See [`OpenError`]; `sub` and `name` must each be one path component.
    pub fn open_file(&self, dir: &LocalDir, sub: &str, name: &str) -> Result<File, OpenError> {
        open::open_file(self.strategy, dir, sub, name)
    }

    /// Removes the file `name` in the sub dir `sub` of `dir`; `false` if there is none. A link is
    /// removed itself, not what it points to. Blocking.
    ///
    /// # Errors
    /// See [`OpenError`]; `sub` and `name` must each be one path component.
    pub fn remove_file(&self, dir: &LocalDir, sub: &str, name: &str) -> Result<bool, OpenError> {
        open::remove_file(self.strategy, dir, sub, name)
    }

    /// Removes `dir` with everything in it, and says what was removed. A `dir` that is not there
    /// is a success. Blocking, and long for many files: `progress` is called after each entry
    /// with what was removed so far and can stop the removal.
    ///
    /// - Links are removed themselves; what they point to is left alone. A link in the place of
    ///   `dir` or of a directory above it is refused.
    /// - Other file systems mounted below `dir` are left alone and reported.
    /// - A failure does not stop the removal of the rest.
    /// - Any depth is removed with a fixed number of descriptors: directories deep down are moved
    ///   to the top of `dir` first, under names that begin with `.shuffled-removing-`.
    /// - A directory that is being filled is read again a few times, and then reported.
    ///
    /// # Errors
    /// See [`RemoveError`].
    pub fn remove_tree(
        &self,
        dir: &LocalDir,
        progress: impl FnMut(&Removed) -> ControlFlow<()>,
    ) -> Result<Removed, RemoveError> {
        remove::remove_tree(self.strategy, dir, dir.parent_and_name().1, progress)
    }

    /// Looks at `dir`: what tells it from another one, whose it is, and whether it can be read. Blocking.
    ///
    /// # Errors
    /// [`OpenError`], if it is not there, not a directory, or cannot be reached.
    pub fn probe(&self, dir: &LocalDir) -> Result<Probe, OpenError> {
        tombstone::probe(self.strategy, dir)
    }

    /// Gives `dir` the name of its tombstone, in the directory where it is: in constant time, however
    /// much is in it. Nothing is ever replaced. If `expected` is given, only the directory that is the
    /// same is renamed. Blocking.
    ///
    /// # Errors
    /// See [`EntombError`].
    pub fn entomb(
        &self,
        dir: &LocalDir,
        tombstone: &Tombstone,
        expected: Option<Identity>,
    ) -> Result<Entombed, EntombError> {
        tombstone::entomb(self.strategy, dir, tombstone, expected)
    }

    /// Gives the tombstone of `dir` its old name again. Blocking.
    ///
    /// # Errors
    /// See [`ExhumeError`].
    pub fn exhume(&self, dir: &LocalDir, tombstone: &Tombstone) -> Result<(), ExhumeError> {
        tombstone::exhume(self.strategy, dir, tombstone)
    }

    /// Removes the tombstone of `dir` as [`remove_tree`](Self::remove_tree) does a directory. Blocking.
    ///
    /// # Errors
    /// See [`RemoveError`].
    pub fn remove_tombstone(
        &self,
        dir: &LocalDir,
        tombstone: &Tombstone,
        progress: impl FnMut(&Removed) -> ControlFlow<()>,
    ) -> Result<Removed, RemoveError> {
        remove::remove_tree(self.strategy, dir, tombstone.as_str(), progress)
    }

    /// Counts what is in `dir`, or in its tombstone. Blocking; `go_on` is asked after each entry.
    ///
    /// # Errors
    /// [`OpenError`], if it cannot be opened; what cannot be read in it is left out.
    pub fn measure(
        &self,
        dir: &LocalDir,
        tombstone: Option<&Tombstone>,
        limits: MeasureLimits,
        go_on: impl FnMut() -> ControlFlow<()>,
    ) -> Result<Measured, OpenError> {
        let name = tombstone.map_or(dir.parent_and_name().1, Tombstone::as_str);
        measure::measure(self.strategy, dir, name, limits, go_on)
    }

    /// The same roots with another way of opening.
    #[cfg(test)]
    fn with_strategy(self, strategy: Strategy) -> Self {
        Self { strategy, ..self }
    }
}

impl Root {
    fn open(configured: &Path) -> Result<Self, RootError> {
        let invalid = |reason| RootError::Invalid { root: configured.to_owned(), reason };
        let text = configured.to_str().ok_or_else(|| invalid("it is not UTF-8"))?;
        if !text.starts_with('/') {
            return Err(invalid("it is not absolute"));
        }
        #[expect(clippy::disallowed_methods, reason = "the operator's own path, once at start")]
        let resolved = configured.canonicalize().map_err(|e| unreadable(configured, e))?;
        let fd = open_directory(&resolved).map_err(|e| match e {
            RootError::Unreadable { source, .. } => unreadable(configured, source),
            other => other,
        })?;
        let path = resolved.to_str().ok_or_else(|| invalid("it resolves to what is not UTF-8"))?;
        if path == "/" {
            return Err(invalid("it is the root of the file system"));
        }
        let alias = normalise(text).ok().filter(|alias| alias != path && !alias.is_empty());
        Ok(Self { alias, path: path.to_owned(), fd })
    }
}

fn open_directory(path: &Path) -> Result<OwnedFd, RootError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd =
        rustix::fs::open(path, flags, Mode::empty()).map_err(|e| unreadable(path, e.into()))?;
    // O_PATH asks for no permission on the directory itself, and walking down needs one.
    rustix::fs::openat(&fd, ".", flags, Mode::empty()).map_err(|e| unreadable(path, e.into()))?;
    Ok(fd)
}

fn unreadable(root: &Path, source: io::Error) -> RootError {
    RootError::Unreadable { root: root.to_owned(), source }
}

/// A root that cannot be used. The operator is at fault.
#[derive(Debug, thiserror::Error)]
pub enum RootError {
    /// The list of roots is empty.
    #[error("no local directories are configured")]
    None,
    /// Not a path that can be a root.
    #[error("local directory {} cannot be used: {reason}", root.display())]
    Invalid {
        /// As configured.
        root: PathBuf,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Missing, no directory, or not accessible to this process.
    #[error("local directory {} cannot be opened: {source}", root.display())]
    Unreadable {
        /// As configured.
        root: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// A directory that a client may name: a path strictly below one of the roots. Cheap to clone.
///
/// It is the right to use that path through [`LocalRoots`], not a statement that it exists.
/// Compares as its [`path`](Self::path).
#[derive(Clone)]
pub struct LocalDir {
    /// Normalised, begins with the root's resolved path.
    path: Arc<str>,
    /// The same in the client's spelling.
    named: Arc<str>,
    /// Where the part of `path` below the root begins.
    below: usize,
    root: Arc<Root>,
}

impl LocalDir {
    /// The normalised path, with the root's own links resolved.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// As the client named it, normalised: what other clients are told. A container may have the root
    /// where its operator configured it, and not where that leads on the host.
    #[must_use]
    pub fn named(&self) -> &str {
        &self.named
    }

    /// The root's resolved path; `/` without roots.
    #[must_use]
    pub fn root(&self) -> &str {
        if self.root.path.is_empty() { "/" } else { &self.root.path }
    }

    fn relative(&self) -> &str {
        &self.path[self.below..]
    }

    fn root_fd(&self) -> BorrowedFd<'_> {
        self.root.fd.as_fd()
    }

    /// The last component of the path.
    #[must_use]
    pub fn name(&self) -> &str {
        self.parent_and_name().1
    }

    /// The directory above, relative to the root (`None` for the root itself), and the name in it.
    fn parent_and_name(&self) -> (Option<&str>, &str) {
        match self.relative().rsplit_once('/') {
            Some((parent, name)) => (Some(parent), name),
            None => (None, self.relative()),
        }
    }
}

impl PartialEq for LocalDir {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

impl Eq for LocalDir {}

impl Hash for LocalDir {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.path.hash(state);
    }
}

impl PartialOrd for LocalDir {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for LocalDir {
    fn cmp(&self, other: &Self) -> Ordering {
        self.path.cmp(&other.path)
    }
}

impl fmt::Display for LocalDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)
    }
}

impl fmt::Debug for LocalDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LocalDir({:?})", self.path)
    }
}

/// A directory that a client may not name. The client is at fault, or the operator who left out a
/// root. The texts are those of Spark 3.5 (`spec/ess-service.md` §2), with a reason added.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AdmitError {
    /// The empty text.
    #[error("localDirs entries must be non-null and non-empty")]
    Empty,
    /// Not the plain absolute path of a directory.
    #[error("localDirs entry could not be canonicalized: {dir} ({reason})")]
    NotCanonical {
        /// As the client wrote it.
        dir: Box<str>,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Not strictly below a configured root.
    #[error("localDirs entry is not under any of the service's local directories: {0}")]
    NotUnderARoot(Box<str>),
    /// No roots are configured, and the name does not begin with `blockmgr-`.
    #[error("localDirs entry is not a block manager's directory (blockmgr-*): {0}")]
    NotABlockManagers(Box<str>),
}

/// The path with repeated separators collapsed and without one at its end; empty for `/`.
fn normalise(dir: &str) -> Result<String, AdmitError> {
    let refuse = |reason| Err(AdmitError::NotCanonical { dir: dir.into(), reason });
    if dir.is_empty() {
        return Err(AdmitError::Empty);
    }
    if !dir.starts_with('/') {
        return refuse("it is not absolute");
    }
    if dir.contains('\0') {
        return refuse("it contains a NUL");
    }
    let mut path = String::new();
    for component in dir.split('/').filter(|c| !c.is_empty()) {
        if matches!(component, "." | "..") {
            return refuse("it contains . or ..");
        }
        if component.len() > NAME_MAX || path.len() + 1 + component.len() > PATH_MAX {
            return refuse("it is too long");
        }
        path.push('/');
        path.push_str(component);
    }
    Ok(path)
}

/// What of `path` lies strictly below `above`, both normalised.
fn below<'a>(path: &'a str, above: &str) -> Option<&'a str> {
    path.strip_prefix(above)?.strip_prefix('/').filter(|rest| !rest.is_empty())
}

#[cfg(test)]
mod tests;
