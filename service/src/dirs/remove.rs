//! Removing a whole local dir.
//!
//! One frame per level, at most [`MAX_DEPTH`] of them, each with one descriptor. A directory that
//! lies deeper is moved to the top of the tree ("parked") and removed when the top is done with
//! its own entries. So neither the stack nor the descriptors nor the memory grow with what a
//! client made, and no `..` is ever followed.

use std::ffi::{CStr, CString};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, DirEntry, FileType, fstat, renameat, statat, unlinkat};
use rustix::io::Errno;

use super::LocalDir;
use super::open::{OpenError, Strategy, open_dir, open_parent};

/// Spark's own trees have two levels.
pub(super) const MAX_DEPTH: usize = 16;

/// How often a directory is read if it is never found empty afterwards.
const MAX_PASSES: u32 = 8;

/// How many failures are kept as texts.
const MAX_TEXTS: usize = 5;

/// What a removal has removed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Removed {
    /// Entries that are not directories.
    pub files: u64,
    /// Directories, the local dir itself among them.
    pub dirs: u64,
}

/// Why a local dir is still there.
#[derive(Debug, thiserror::Error)]
pub enum RemoveError {
    /// The local dir cannot be opened; nothing was removed.
    #[error(transparent)]
    Refused(#[from] OpenError),
    /// Some of it could not be removed; the rest was.
    #[error("{failures} entries could not be removed: {}", texts.join("; "))]
    Incomplete {
        /// What was removed.
        removed: Removed,
        /// The number of failures, at least 1.
        failures: u64,
        /// The first few of them.
        texts: Vec<String>,
    },
    /// The caller stopped it.
    #[error("the removal was stopped")]
    Stopped {
        /// What was removed.
        removed: Removed,
    },
}

impl RemoveError {
    /// What was removed all the same.
    #[must_use]
    pub fn removed(&self) -> Removed {
        match self {
            Self::Refused(_) => Removed::default(),
            Self::Incomplete { removed, .. } | Self::Stopped { removed } => *removed,
        }
    }
}

/// Removes what has the `name`, its own or another, in the directory where `dir` is.
pub(super) fn remove_tree(
    strategy: Strategy,
    dir: &LocalDir,
    name: &str,
    progress: impl FnMut(&Removed) -> ControlFlow<()>,
) -> Result<Removed, RemoveError> {
    let (parent, _) = dir.parent_and_name();
    let opened = open_parent(strategy, dir, parent).and_then(|parent| {
        let at = parent.as_ref().map_or(dir.root_fd(), AsFd::as_fd);
        let top = open_dir(strategy, dir, at, name)?;
        Ok((parent, top))
    });
    let (parent, top) = match opened {
        Ok(opened) => opened,
        Err(OpenError::NotFound { .. }) => return Ok(Removed::default()),
        Err(e) => return Err(e.into()),
    };
    let parent = parent.as_ref().map_or(dir.root_fd(), AsFd::as_fd);
    let io_error = |e: Errno| OpenError::Io { path: dir.path().to_owned(), source: e.into() };
    let device = fstat(&top).map_err(io_error)?.st_dev;
    let name = CString::new(name).map_err(|_| OpenError::NotAName { name: name.to_owned() })?;
    let mut removal = Removal {
        strategy,
        dir,
        parent,
        device,
        parking: format!(".shuffled-removing-{:016x}-", fastrand::u64(..)),
        parked: 0,
        unparked: 0,
        frames: Vec::with_capacity(MAX_DEPTH),
        removed: Removed::default(),
        failures: 0,
        texts: Vec::new(),
        progress,
    };
    removal.push(name, top);
    match removal.run() {
        ControlFlow::Break(()) => Err(RemoveError::Stopped { removed: removal.removed }),
        ControlFlow::Continue(()) if removal.failures > 0 => Err(RemoveError::Incomplete {
            removed: removal.removed,
            failures: removal.failures,
            texts: removal.texts,
        }),
        ControlFlow::Continue(()) => Ok(removal.removed),
    }
}

struct Removal<'a, P> {
    strategy: Strategy,
    dir: &'a LocalDir,
    /// What holds the local dir.
    parent: BorrowedFd<'a>,
    /// The file system that is not left.
    device: u64,
    /// How the names of parked directories begin; a number follows.
    parking: String,
    /// How many directories were parked, and how many of them were taken up again.
    parked: u64,
    unparked: u64,
    /// The directories being emptied, the local dir first. Empty when all is done.
    frames: Vec<Frame>,
    removed: Removed,
    failures: u64,
    texts: Vec<String>,
    progress: P,
}

struct Frame {
    /// In the directory above.
    name: CString,
    dir: Dir,
    /// How often it was read to its end.
    passes: u32,
    /// Something in it could not be removed, which has been reported.
    failed: bool,
}

impl<P: FnMut(&Removed) -> ControlFlow<()>> Removal<'_, P> {
    fn run(&mut self) -> ControlFlow<()> {
        while let Some(frame) = self.frames.last_mut() {
            match frame.dir.read() {
                Some(Ok(entry)) => self.entry(&entry),
                Some(Err(e)) => self.fail(None, e),
                None if self.frames.len() == 1 && self.unparked < self.parked => self.unpark(),
                None => self.leave(),
            }
            (self.progress)(&self.removed)?;
        }
        ControlFlow::Continue(())
    }

    fn push(&mut self, name: CString, fd: OwnedFd) {
        match Dir::new(fd) {
            Ok(dir) => self.frames.push(Frame { name, dir, passes: 0, failed: false }),
            Err(e) => self.fail(Some(&name), e),
        }
    }

    /// Removes an entry of the innermost directory, or goes into it.
    fn entry(&mut self, entry: &DirEntry) {
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            return;
        }
        if self.frames.len() == 1 && name.to_bytes().starts_with(self.parking.as_bytes()) {
            return;
        }
        let Some(at) = self.innermost() else { return };
        // What the directory says of its entries is enough. Asking each file would double the work.
        let kind = match entry.file_type() {
            FileType::Unknown => match statat(at, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                Err(Errno::NOENT) => return,
                Err(e) => return self.fail(Some(name), e),
            },
            kind => kind,
        };
        if kind == FileType::Directory {
            return self.enter(name);
        }
        match unlinkat(at, name, AtFlags::empty()) {
            Ok(()) => self.removed.files += 1,
            Err(Errno::NOENT) => {}
            // It has become a directory meanwhile.
            Err(Errno::ISDIR) => self.enter(name),
            Err(e) => self.fail(Some(name), e),
        }
    }

    /// Goes into the directory `name` of the innermost directory, or parks it.
    fn enter(&mut self, name: &CStr) {
        if self.frames.len() >= MAX_DEPTH {
            return self.park(name);
        }
        let Some(at) = self.innermost() else { return };
        let opened = self.strategy.descend(at, name).and_then(|fd| {
            let same = fstat(&fd)?.st_dev == self.device;
            if same { Ok(fd) } else { Err(Errno::XDEV) }
        });
        match opened {
            Ok(fd) => self.push(name.to_owned(), fd),
            Err(Errno::NOENT) => {}
            // It has become something else meanwhile, which is removed itself.
            Err(Errno::LOOP | Errno::NOTDIR) => match unlinkat(at, name, AtFlags::empty()) {
                Ok(()) => self.removed.files += 1,
                Err(Errno::NOENT) => {}
                Err(e) => self.fail(Some(name), e),
            },
            Err(e) => self.fail(Some(name), e),
        }
    }

    fn park(&mut self, name: &CStr) {
        let (Some(from), Some(top)) = (self.innermost(), self.frames.first()) else { return };
        let place = format!("{}{}", self.parking, self.parked);
        // Does not follow a link in either name, and replaces at most what is to be removed.
        let result = top.dir.fd().and_then(|to| renameat(from, name, to, place.as_str()));
        match result {
            Ok(()) => self.parked += 1,
            Err(Errno::NOENT) => {}
            Err(e) => self.fail(Some(name), e),
        }
    }

    fn unpark(&mut self) {
        let place = format!("{}{}", self.parking, self.unparked);
        self.unparked += 1;
        if let Ok(place) = CString::new(place) {
            self.enter(&place);
        }
    }

    /// Removes the innermost directory, which has been read to its end.
    fn leave(&mut self) {
        let Some(mut frame) = self.frames.pop() else { return };
        let above = self.innermost().unwrap_or(self.parent);
        match unlinkat(above, &frame.name, AtFlags::REMOVEDIR) {
            Ok(()) => self.removed.dirs += 1,
            Err(Errno::NOENT) => {}
            Err(Errno::NOTEMPTY | Errno::EXIST) if frame.failed => {
                if let Some(above) = self.frames.last_mut() {
                    above.failed = true;
                }
            }
            // Somebody is filling it, or removing has disturbed the listing.
            Err(Errno::NOTEMPTY | Errno::EXIST) if frame.passes + 1 < MAX_PASSES => {
                frame.passes += 1;
                frame.dir.rewind();
                self.frames.push(frame);
            }
            Err(e) if self.frames.is_empty() => self.fail(None, e),
            Err(e) => self.fail(Some(&frame.name), e),
        }
    }

    fn innermost(&self) -> Option<BorrowedFd<'_>> {
        self.frames.last()?.dir.fd().ok()
    }

    /// Reports that `name` in the innermost directory, or that directory itself, stays.
    fn fail(&mut self, name: Option<&CStr>, errno: Errno) {
        self.failures += 1;
        if let Some(frame) = self.frames.last_mut() {
            frame.failed = true;
        }
        if self.texts.len() < MAX_TEXTS {
            let inner = self.frames.iter().skip(1).map(|frame| frame.name.as_c_str()).chain(name);
            let mut path = self.dir.path().to_owned();
            for name in inner {
                path.push('/');
                // A client chose the name, so it may hold anything.
                path.push_str(&name.to_string_lossy().escape_debug().to_string());
            }
            let why = match errno {
                Errno::XDEV => "it is on another file system".to_owned(),
                Errno::NOTEMPTY | Errno::EXIST => "it is being filled".to_owned(),
                e => std::io::Error::from(e).to_string(),
            };
            self.texts.push(format!("{path}: {why}"));
        }
    }
}
