//! What an earlier run of the service left, registered again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use shuffle_protocol::{AppId, ExecId};

use super::operator::timeout;
use super::records::{Record, RecordedDir};
use super::{App, AppRegistry, DirFacts, Executor, dir_row, lock};
use crate::dirs::{LocalDir, LocalRoots};
use crate::liveness::Reason;
use crate::store::row::{
    AppRow, Change, DirRow, DirState, ExecutorRow, RecordDir, RecordId, RecordRow, WallMillis,
};

/// What an earlier run left.
#[derive(Debug, Default)]
pub struct Left {
    /// Applications, by id.
    pub apps: Vec<(AppId, AppRow)>,
    /// Their executors.
    pub executors: Vec<(AppId, ExecId, ExecutorRow)>,
    /// Their directories, by resolved path.
    pub dirs: Vec<(AppId, String, DirRow)>,
    /// Why others left.
    pub records: Vec<(RecordId, RecordRow)>,
    /// What became of their directories, in the order of their numbers.
    pub record_dirs: Vec<(RecordId, u32, RecordDir)>,
}

/// What was done with it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// Applications that are registered again.
    pub apps: usize,
    /// Executors that are registered again.
    pub executors: usize,
    /// Executors that are not: their directories are gone, others than they were, or not below the
    /// roots.
    pub dropped: usize,
    /// Removals that were under way.
    pub removals: usize,
}

/// An executor whose directories are all below the roots.
pub(super) fn admit_executor(roots: &LocalRoots, row: &ExecutorRow) -> Option<Executor> {
    let dirs = row.local_dirs.iter().map(|dir| roots.admit(dir).ok()).collect::<Option<_>>()?;
    Some(Executor::new(dirs, row.sub_dirs_per_local_dir, row.shuffle_manager.clone()))
}

impl AppRegistry {
    /// Registers again what an earlier run left. Every clock starts at `now`: nobody is held to what
    /// could not be heard. Directories in `lost` are not what was registered any more; an executor with
    /// one of them is dropped, and so is an application of which nothing is left.
    pub fn load(
        &self,
        left: Left,
        lost: &BTreeSet<String>,
        roots: &LocalRoots,
        now: Instant,
        wall: WallMillis,
    ) -> LoadReport {
        let mut report = LoadReport::default();
        let mut apps: BTreeMap<AppId, App> = BTreeMap::new();
        let mut changes = Vec::new();
        for (app_id, row) in left.apps {
            apps.insert(app_id, self.revive(&row, now, wall));
        }
        for (app_id, path, row) in left.dirs {
            let dir = roots.admit(&row.named).ok().filter(|dir| dir.path() == path);
            match (apps.get_mut(&app_id), dir) {
                (Some(app), Some(dir)) if !lost.contains(&path) => {
                    app.dirs.insert(dir, DirFacts { identity: row.identity, unreadable: None });
                }
                _ => changes.push(Change::Dir(app_id, path, None)),
            }
        }
        for (app_id, exec_id, row) in left.executors {
            let executor = admit_executor(roots, &row);
            let whole = executor.filter(|executor| {
                !executor.local_dirs.iter().any(|dir| lost.contains(dir.path()))
            });
            match (apps.get_mut(&app_id), whole) {
                (Some(app), Some(executor)) => {
                    report.executors += 1;
                    app.executors.insert(exec_id, executor.into());
                }
                _ => {
                    report.dropped += 1;
                    changes.push(Change::Executor(app_id, exec_id, None));
                }
            }
        }
        for (app_id, app) in apps {
            let held = app.life.is_held() || app.life.driver().is_some();
            if app.executors.is_empty() && app.dirs.is_empty() && !held {
                changes.push(Change::App(app_id, None));
                continue;
            }
            report.apps += 1;
            self.claim_all(&app);
            self.apps.insert(app_id, app);
        }
        report.removals = self.load_records(left.records, left.record_dirs, roots, &mut changes);
        self.journal.record(changes);
        report
    }

    fn revive(&self, row: &AppRow, now: Instant, wall: WallMillis) -> App {
        let mut app = App::new(self.next_generation(), row.since, now);
        if let Some(driver) = &row.driver {
            app.life.handle_driver(timeout(driver.timeout_ms), now);
            app.driver_addr = driver.address.as_deref().and_then(|addr| addr.parse().ok());
        }
        if row.hold.is_some() {
            app.life.hold();
        }
        app.hold = row.hold.clone();
        if let Some(until) = row.extended_until.filter(|until| *until > wall) {
            app.extended_until = Some(until);
            if let Some(until) = now.checked_add(Duration::from_millis(until - wall)) {
                app.life.extend(until);
            }
        }
        app
    }

    fn claim_all(&self, app: &App) {
        let mut claims = lock(&self.claims);
        for dir in app.dirs.keys() {
            claims.add(Path::new(dir.path()), app.generation);
        }
    }

    /// Claims directories that no executor has any more.
    pub(super) fn add_dirs(
        &self,
        app_id: &AppId,
        app: &mut App,
        dirs: Vec<&LocalDir>,
        changes: &mut Vec<Change>,
    ) {
        let mut claims = lock(&self.claims);
        for dir in dirs {
            claims.add(Path::new(dir.path()), app.generation);
            let facts = app.dirs.entry(dir.clone()).or_default();
            let row = dir_row(dir, facts);
            changes.push(Change::Dir(app_id.clone(), dir.path().to_owned(), Some(row)));
        }
    }

    fn load_records(
        &self,
        rows: Vec<(RecordId, RecordRow)>,
        dirs: Vec<(RecordId, u32, RecordDir)>,
        roots: &LocalRoots,
        changes: &mut Vec<Change>,
    ) -> usize {
        let mut of: BTreeMap<RecordId, Vec<RecordedDir>> = BTreeMap::new();
        for (id, index, mut row) in dirs {
            let of = of.entry(id).or_default();
            if of.len() != index as usize {
                // Its record, or the directory before it, was damaged; the number would be wrong.
                changes.push(Change::RecordDir(id, index, None));
                continue;
            }
            let dir = roots.admit(&row.dir.named).ok().filter(|dir| dir.path() == row.path);
            if dir.is_none() && !row.state.is_final() {
                row.state = DirState::Kept;
                row.error = Some("it is not below the local directories any more".to_owned());
                changes.push(Change::RecordDir(id, index, Some(row.clone())));
            }
            of.push(RecordedDir { dir, row });
        }
        let mut claims = lock(&self.claims);
        let mut records = lock(&self.records);
        let mut removals = 0;
        for (id, row) in rows {
            let Some(reason) = Reason::ALL.into_iter().find(|r| r.as_str() == row.reason) else {
                changes.push(Change::Record(id, None));
                continue;
            };
            let app_id = row.app_id.as_deref().map(AppId::from);
            let record = Record::new(id, app_id, reason, row, of.remove(&id).unwrap_or_default());
            removals += usize::from(!record.is_final());
            record.going().for_each(|path| claims.add_removal(path));
            for RecordedDir { row, .. } in &record.dirs {
                if matches!(row.state, DirState::Tombstoned | DirState::Unlinking) {
                    claims.set_tombstoned(Path::new(&row.path), true);
                }
            }
            changes.extend(records.insert(record));
        }
        removals
    }
}
