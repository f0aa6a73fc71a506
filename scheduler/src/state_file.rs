//! What a backend keeps over its own restart: the framework's id, and its executors.
//!
//! The master keeps a framework that is not connected for its failover timeout. A backend that comes back within
//! it, and with this file, is the same framework with the same executors.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::coarse::Snapshot;
use crate::mesos::ids::FrameworkId;

/// What is kept.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Saved {
    /// Given by the master; none before the first subscription.
    pub framework_id: Option<FrameworkId>,
    /// The backend's.
    pub snapshot: Snapshot,
}

/// The file, which no other backend uses while this lives.
#[derive(Debug)]
pub struct StateFile {
    path: PathBuf,
    _lock: File,
}

/// Why a state file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateFileError {
    /// Another backend runs with it.
    #[error("{}: another backend uses it", .0.display())]
    InUse(PathBuf),
    /// The system says no.
    #[error("{}: {error}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What it says.
        error: io::Error,
    },
    /// It is not one of these.
    #[error("{}: not a state file of a backend ({error}); if it is of no use any more, remove it", path.display())]
    Malformed {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        error: serde_json::Error,
    },
}

impl StateFile {
    /// Opens the file, and reads what is in it; one that is not there is begun.
    ///
    /// # Errors
    /// As the variants of [`StateFileError`] say; also if it cannot be written.
    pub fn open(path: &Path) -> Result<(Self, Saved), StateFileError> {
        let io = |path: &Path, error| StateFileError::Io { path: path.to_owned(), error };
        // The file itself is replaced with each write, so what is locked is another.
        let beside = sibling(path, "lock");
        let lock = private().open(&beside).map_err(|error| io(&beside, error))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(StateFileError::InUse(path.to_owned())),
            Err(TryLockError::Error(error)) => return Err(io(&beside, error)),
        }
        let saved = match fs::read(path) {
            Ok(text) => serde_json::from_slice(&text)
                .map_err(|error| StateFileError::Malformed { path: path.to_owned(), error })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Saved::default(),
            Err(error) => return Err(io(path, error)),
        };
        let this = Self { path: path.to_owned(), _lock: lock };
        this.write(&saved).map_err(|error| io(path, error))?;
        Ok((this, saved))
    }

    /// Replaces what is in it, whole or not at all. Waits for the disk.
    ///
    /// # Errors
    /// What the system says; then it holds what it held.
    pub fn write(&self, saved: &Saved) -> io::Result<()> {
        let next = sibling(&self.path, "new");
        let mut file = private().truncate(true).open(&next)?;
        file.write_all(&serde_json::to_vec(saved)?)?;
        file.sync_all()?;
        fs::rename(&next, &self.path)?;
        let parent = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
    }
}

fn private() -> fs::OpenOptions {
    let mut options = File::options();
    options.create(true).write(true).mode(0o600);
    options
}

/// `path` with something after its name.
fn sibling(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coarse::SavedTask;

    #[test]
    fn what_is_written_is_there_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("backend.json");
        let task = SavedTask {
            id: "3".into(),
            agent: "s1".into(),
            hostname: "host1".to_owned(),
            cores: 2,
            gpus: 0,
        };
        let saved = Saved {
            framework_id: Some("f-1".into()),
            snapshot: Snapshot { next_task: 4, tasks: vec![task] },
        };
        let (file, first) = StateFile::open(&path).unwrap();
        assert_eq!(first, Saved::default());
        file.write(&saved).unwrap();
        let error = StateFile::open(&path).unwrap_err();
        assert!(matches!(error, StateFileError::InUse(_)), "{error}");
        drop(file);
        assert_eq!(StateFile::open(&path).unwrap().1, saved);
        fs::write(&path, "{").unwrap();
        let error = StateFile::open(&path).unwrap_err();
        assert!(matches!(error, StateFileError::Malformed { .. }), "{error}");
        let error = StateFile::open(&dir.path().join("no/where")).unwrap_err();
        assert!(matches!(error, StateFileError::Io { .. }), "{error}");
    }
}
