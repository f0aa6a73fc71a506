//! What left the registry, why, and what becomes of its directories.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::Path;

use shuffle_protocol::AppId;

use crate::dirs::LocalDir;
use crate::liveness::Reason;
use crate::store::row::{Change, DirState, RecordDir, RecordId, RecordRow};

/// How many records of which all is done are kept for those who ask what happened.
pub(super) const REMEMBERED: usize = 1000;

/// Why something left the registry or a directory its place, and what became of it.
#[derive(Debug, Clone)]
pub struct Record {
    /// Which one.
    pub id: RecordId,
    /// The application; nothing for a directory that nobody owned.
    pub app_id: Option<AppId>,
    /// Why.
    pub reason: Reason,
    /// Everything else, as it is in the store.
    pub row: RecordRow,
    /// Its directories, by their number.
    pub dirs: Vec<RecordedDir>,
    /// How many of them are not done with.
    pub(super) open: usize,
}

/// A directory of a record.
#[derive(Debug, Clone)]
pub struct RecordedDir {
    /// The right to remove it; nothing when the configured roots have changed since.
    pub dir: Option<LocalDir>,
    /// What is known of it.
    pub row: RecordDir,
}

/// What became of the directories of a record.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Removal {
    /// Directories that are gone.
    pub removed: usize,
    /// Directories left alone because a live application registered them too.
    pub kept: usize,
    /// Directories that were brought back.
    pub restored: usize,
    /// Directories that could not be removed yet; tried again.
    pub failing: usize,
    /// Directories that still can be brought back.
    pub restorable: usize,
    /// Files unlinked, or counted to be.
    pub files: u64,
    /// Bytes in them.
    pub bytes: u64,
}

impl Record {
    /// A record with these directories.
    pub(super) fn new(
        id: RecordId,
        app_id: Option<AppId>,
        reason: Reason,
        row: RecordRow,
        dirs: Vec<RecordedDir>,
    ) -> Self {
        let open = dirs.iter().filter(|dir| !dir.row.state.is_final()).count();
        Self { id, app_id, reason, row, dirs, open }
    }

    /// Whether nothing is to be done any more.
    #[must_use]
    pub fn is_final(&self) -> bool {
        self.row.report_only || self.open == 0
    }

    /// What became of its directories so far.
    #[must_use]
    pub fn removal(&self) -> Removal {
        let mut sum = Removal::default();
        for RecordedDir { row, .. } in &self.dirs {
            match row.state {
                DirState::Removed => sum.removed += 1,
                DirState::Kept => sum.kept += 1,
                DirState::Restored => sum.restored += 1,
                DirState::Pending | DirState::Tombstoned => sum.restorable += 1,
                DirState::Unlinking => {}
            }
            if row.error.is_some() && !row.state.is_final() {
                sum.failing += 1;
            }
            if matches!(row.state, DirState::Removed | DirState::Unlinking) {
                sum.files += row.files;
                sum.bytes += row.bytes;
            }
        }
        sum
    }

    /// The paths of those directories that are not done with.
    pub(super) fn going(&self) -> impl Iterator<Item = &Path> {
        let going =
            self.dirs.iter().filter(|dir| !self.row.report_only && !dir.row.state.is_final());
        going.map(|dir| Path::new(&dir.row.path))
    }

    /// The rows of it.
    pub(super) fn changes(&self) -> impl Iterator<Item = Change> {
        let dirs =
            self.dirs.iter().enumerate().map(|(index, dir)| {
                Change::RecordDir(self.id, index_of(index), Some(dir.row.clone()))
            });
        std::iter::once(Change::Record(self.id, Some(self.row.clone()))).chain(dirs)
    }
}

/// The number of a directory within its record. An executor has a thousand directories at most.
pub(super) fn index_of(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

/// All records that are kept.
#[derive(Debug, Default)]
pub(super) struct Records {
    by_id: BTreeMap<RecordId, Record>,
    /// The latest one of each application that is no report.
    latest: HashMap<AppId, RecordId>,
    /// Those of which all is done, in the order in which that happened.
    done: VecDeque<RecordId>,
    next: u64,
}

impl Records {
    pub(super) fn next_id(&mut self) -> RecordId {
        self.next += 1;
        RecordId(self.next)
    }

    /// Adds one, and gives back the rows of those that it pushes out.
    pub(super) fn insert(&mut self, record: Record) -> Vec<Change> {
        let (id, done) = (record.id, record.is_final());
        self.next = self.next.max(id.0);
        if let Some(app_id) = &record.app_id
            && !record.row.report_only
        {
            self.latest.insert(app_id.clone(), id);
        }
        self.by_id.insert(id, record);
        if done { self.finish(id) } else { Vec::new() }
    }

    /// Changes a directory of a record. Gives back the rows to be written, none where there is no such
    /// directory.
    pub(super) fn update(
        &mut self,
        id: RecordId,
        index: usize,
        change: impl FnOnce(&mut RecordDir),
    ) -> Vec<Change> {
        let Some(record) = self.by_id.get_mut(&id) else { return Vec::new() };
        let Some(dir) = record.dirs.get_mut(index) else { return Vec::new() };
        let was_final = dir.row.state.is_final();
        change(&mut dir.row);
        let mut changes = vec![Change::RecordDir(id, index_of(index), Some(dir.row.clone()))];
        if !was_final && dir.row.state.is_final() {
            record.open -= 1;
            if record.open == 0 {
                changes.extend(self.finish(id));
            }
        }
        changes
    }

    fn finish(&mut self, id: RecordId) -> Vec<Change> {
        self.done.push_back(id);
        let mut changes = Vec::new();
        while self.done.len() > REMEMBERED {
            let Some(oldest) = self.done.pop_front() else { break };
            let Some(record) = self.by_id.remove(&oldest) else { continue };
            if let Some(app_id) = &record.app_id
                && self.latest.get(app_id) == Some(&oldest)
            {
                self.latest.remove(app_id);
            }
            changes.push(Change::Record(oldest, None));
            let dirs = 0..record.dirs.len();
            changes.extend(dirs.map(|index| Change::RecordDir(oldest, index_of(index), None)));
        }
        changes
    }

    pub(super) fn get(&self, id: RecordId) -> Option<&Record> {
        self.by_id.get(&id)
    }

    pub(super) fn latest(&self, app_id: &AppId) -> Option<&Record> {
        self.by_id.get(self.latest.get(app_id)?)
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &Record> {
        self.by_id.values()
    }
}
