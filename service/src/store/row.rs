//! What the rows hold. Every field that came after the first version has a default, so that an older
//! file is read as it is.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use shuffle_protocol::{AppId, ExecId};

/// A point of time, milliseconds since 1970. For people, and to find out what is left of an extension
/// after a restart; nothing expires by it.
pub type WallMillis = u64;

/// Tells a record from every other that this store ever held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RecordId(pub u64);

/// One row that is written anew, or, without a value, removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// An application, without its executors.
    App(AppId, Option<AppRow>),
    /// One executor of it.
    Executor(AppId, ExecId, Option<ExecutorRow>),
    /// One of its directories, by its resolved path.
    Dir(AppId, String, Option<DirRow>),
    /// Why something left the registry.
    Record(RecordId, Option<RecordRow>),
    /// What became of one of its directories, by its number in the record.
    RecordDir(RecordId, u32, Option<RecordDir>),
}

/// A registered application.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppRow {
    /// When it was first registered.
    pub since: WallMillis,
    /// Its driver, if one registered.
    pub driver: Option<DriverRow>,
    /// Until when an operator keeps it, whatever its driver does.
    pub extended_until: Option<WallMillis>,
    /// An operator keeps it until it is released; the text says why.
    pub hold: Option<String>,
}

/// A registered driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriverRow {
    /// Its own limit, in milliseconds; nothing for never.
    pub timeout_ms: Option<u64>,
    /// Where it registered from.
    pub address: Option<String>,
}

/// Where one executor keeps its files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutorRow {
    /// As registered, in that order, which decides where a file lies.
    pub local_dirs: Vec<String>,
    /// As registered.
    pub sub_dirs_per_local_dir: i32,
    /// As registered.
    pub shuffle_manager: String,
}

/// What tells a directory from another one that has its path later.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DirRow {
    /// As the client named it.
    pub named: String,
    /// Nothing until somebody has looked.
    pub identity: Option<Identity>,
}

/// An inode, and when that was made, since numbers are used again. Not the device: its number may
/// change when the machine starts anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The inode's number.
    pub inode: u64,
    /// Its birth in nanoseconds since 1970; nothing where the file system does not say.
    pub born: Option<u64>,
}

/// Why something left the registry or was found without an owner. What becomes of its directories is in
/// rows of their own: there may be ten thousand, and each changes three times.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordRow {
    /// The application; nothing for a directory that nobody owned.
    pub app_id: Option<String>,
    /// `heartbeat-timeout`, `no-driver`, `operator`, `sweep`, `dirs-vanished`.
    pub reason: String,
    /// Nothing was done: `shuffled.cleanup` is `report`.
    #[serde(default)]
    pub report_only: bool,
    /// What the operator said.
    pub note: Option<String>,
    /// When it was decided.
    pub at: WallMillis,
    /// Time between the driver's last sign of life and then, in milliseconds.
    pub silent_for_ms: Option<u64>,
    /// The application as it was registered, for bringing it back.
    pub app: AppRow,
    /// Its executors as they were registered, for bringing them back.
    pub executors: BTreeMap<String, ExecutorRow>,
}

/// One directory of a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordDir {
    /// Its resolved path.
    pub path: String,
    /// What it was when it was registered.
    pub dir: DirRow,
    /// The name that it has until it is unlinked, in the directory where it was.
    pub tombstone: String,
    /// How far it is.
    pub state: DirState,
    /// It could not be renamed, and is emptied where it is.
    #[serde(default)]
    pub in_place: bool,
    /// What the last attempt failed with, while the state is none of those at which it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Files in it, when it was counted before the first one went, or that were removed.
    #[serde(default)]
    pub files: u64,
    /// Bytes in them.
    #[serde(default)]
    pub bytes: u64,
}

/// How far the removal of a directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DirState {
    /// Where it was.
    Pending,
    /// It has its tombstone's name, and can be brought back.
    Tombstoned,
    /// Files are going; there is no way back.
    Unlinking,
    /// It is gone.
    Removed,
    /// Left alone: a live application has it, or it is not the one that was registered.
    Kept,
    /// Brought back.
    Restored,
}

impl DirState {
    /// Whether nothing is to be done any more.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Removed | Self::Kept | Self::Restored)
    }
}
