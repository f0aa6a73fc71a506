//! Looking around below a root, by descriptor like everything here.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, statat};
use rustix::io::Errno;

use super::open::{OpenError, Strategy, open_dir, open_parent, reopen_for_listing};
use super::{LocalDir, LocalRoots};

/// Directories in one directory that are looked at; more than that is nobody's local dir.
pub const MAX_CHILDREN: usize = 100_000;

impl LocalRoots {
    /// The directories directly below each root, with its path. Links are none, and names that are not
    /// UTF-8 are nobody's. Blocking.
    pub fn list_roots(&self) -> impl Iterator<Item = (String, Result<Vec<LocalDir>, OpenError>)> {
        self.roots.iter().filter(|_| self.is_restricted()).map(|root| {
            let listed = reopen_for_listing(root.fd.as_fd(), &root.path)
                .and_then(|fd| self.children(fd, &root.path));
            (root.path.clone(), listed)
        })
    }

    /// The directories in `dir`. Blocking.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn list(&self, dir: &LocalDir) -> Result<Vec<LocalDir>, OpenError> {
        let (parent, name) = dir.parent_and_name();
        let strategy: Strategy = self.strategy;
        let parent = open_parent(strategy, dir, parent)?;
        let at = parent.as_ref().map_or(dir.root_fd(), AsFd::as_fd);
        self.children(open_dir(strategy, dir, at, name)?, dir.path())
    }

    fn children(&self, fd: OwnedFd, path: &str) -> Result<Vec<LocalDir>, OpenError> {
        let io = |e: Errno| OpenError::Io { path: path.to_owned(), source: e.into() };
        let mut listing = Dir::new(fd).map_err(io)?;
        let mut children = Vec::new();
        while let Some(entry) = listing.read() {
            let entry = entry.map_err(io)?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            if matches!(name, "." | "..") {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::Unknown => {
                    let at = listing.fd().map_err(io)?;
                    statat(at, name, AtFlags::SYMLINK_NOFOLLOW)
                        .map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode))
                }
                kind => kind,
            };
            if kind == FileType::Directory
                && let Ok(child) = self.admit(&format!("{path}/{name}"))
            {
                children.push(child);
            }
            if children.len() == MAX_CHILDREN {
                break;
            }
        }
        children.sort();
        Ok(children)
    }
}
