//! What an operator may say about an application.

use std::time::{Duration, Instant};

use shuffle_protocol::{AppId, ExecId, HeartbeatTimeout};

use super::load::admit_executor;
use super::{AppRegistry, Expired, lock, millis};
use crate::dirs::{LocalDir, LocalRoots};
use crate::liveness::Reason;
use crate::state::wall_now;
use crate::store::Position;
use crate::store::row::{AppRow, Change, DirState, RecordId};

/// There is no such application.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("application {0} is not registered")]
pub struct NotRegistered(pub AppId);

/// Why an application is not expired on an operator's word.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExpireError {
    /// There is none.
    #[error(transparent)]
    NotRegistered(#[from] NotRegistered),
    /// An operator keeps it.
    #[error("application {0} is held; release it first")]
    Held(AppId),
}

/// Why an application cannot be brought back.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// No record says that it expired.
    #[error("no record of application {0} having expired")]
    NoRecord(AppId),
    /// Its files are going or gone, or were brought back before.
    #[error(
        "application {app_id} cannot be brought back: of its {dirs} directories, {lost} are being \
         removed or gone, and the others were left in place (see shuffled.cleanup.grace)"
    )]
    TooLate {
        /// Which one.
        app_id: AppId,
        /// Directories it had.
        dirs: usize,
        /// Those that cannot come back.
        lost: usize,
    },
}

/// An application that was registered again as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// The record of its end.
    pub record: RecordId,
    /// When the registration is durable.
    pub position: Position,
    /// Directories on their way back.
    pub dirs: usize,
    /// Directories that are being removed or gone.
    pub lost: usize,
    /// Executors that are registered again.
    pub executors: usize,
}

impl AppRegistry {
    /// Keeps an application, whatever its driver does, until it is released. The text says why.
    pub fn hold(&self, app_id: &AppId, why: String) -> Result<Position, NotRegistered> {
        self.change(app_id, |app| {
            app.life.hold();
            app.hold = Some(why);
        })
    }

    /// Lets a kept application go its way again, with a full timeout, and without what
    /// [`extend`](Self::extend) gave it.
    pub fn release(&self, app_id: &AppId, now: Instant) -> Result<Position, NotRegistered> {
        self.change(app_id, |app| {
            app.life.release(now);
            app.hold = None;
            app.extended_until = None;
        })
    }

    /// Keeps an application for this long at least.
    pub fn extend(
        &self,
        app_id: &AppId,
        by: Duration,
        now: Instant,
    ) -> Result<Position, NotRegistered> {
        self.change(app_id, |app| {
            // What the clock cannot hold is for ever.
            if let Some(until) = now.checked_add(by) {
                app.life.extend(until);
            }
            let until = wall_now().saturating_add(millis(by));
            app.extended_until = app.extended_until.max(Some(until));
        })
    }

    /// Expires an application at once, whatever `shuffled.cleanup` says.
    pub fn expire(
        &self,
        app_id: &AppId,
        why: Option<&str>,
        now: Instant,
    ) -> Result<Expired, ExpireError> {
        let operator = |app: &super::App| (!app.life.is_held()).then_some(Reason::Operator);
        match self.end(app_id, operator, why, now) {
            Some(expired) => Ok(expired),
            None if self.contains(app_id) => Err(ExpireError::Held(app_id.clone())),
            None => Err(NotRegistered(app_id.clone()).into()),
        }
    }

    /// Registers an application again as it was when it expired, and holds it, since its driver is
    /// probably dead. Its claims bring the directories back: the removal sees them and turns round.
    pub fn restore(
        &self,
        app_id: &AppId,
        roots: &LocalRoots,
        now: Instant,
    ) -> Result<Restored, RestoreError> {
        let record = self.gone(app_id).ok_or_else(|| RestoreError::NoRecord(app_id.clone()))?;
        let removal = record.removal();
        if removal.restorable == 0 && !record.dirs.is_empty() {
            let dirs = record.dirs.len();
            let lost = dirs - removal.kept - removal.restored;
            return Err(RestoreError::TooLate { app_id: app_id.clone(), dirs, lost });
        }
        let executors = record.row.executors.iter();
        let executors = executors
            .filter_map(|(id, row)| Some((ExecId::from(id.as_str()), admit_executor(roots, row)?)));
        let position = self.with_app(app_id, now, |app| {
            let AppRow { since, driver, .. } = &record.row.app;
            app.since = *since;
            if let (None, Some(driver)) = (app.life.driver(), driver) {
                app.life.handle_driver(timeout(driver.timeout_ms), now);
                app.driver_addr = driver.address.as_deref().and_then(|addr| addr.parse().ok());
            }
            app.life.hold();
            app.hold = Some("restored by an operator".to_owned());
            let mut changes = vec![Change::App(app_id.clone(), Some(app.row()))];
            for (exec_id, executor) in executors {
                if !app.executors.contains_key(&exec_id) {
                    self.add_executor(app_id, app, exec_id, executor, &mut changes);
                }
            }
            // Also those of executors that had been registered elsewhere later.
            let orphaned: Vec<&LocalDir> =
                record.dirs.iter().filter_map(|dir| dir.dir.as_ref()).collect();
            self.add_dirs(app_id, app, orphaned, &mut changes);
            self.journal.record(changes)
        });
        // Whatever had not begun to go by now has been claimed.
        let after = lock(&self.records)
            .get(record.id)
            .map_or_else(Vec::new, |record| record.dirs.iter().map(|dir| dir.row.state).collect());
        let is_lost = |state: &&DirState| matches!(state, DirState::Unlinking | DirState::Removed);
        let lost = after.iter().filter(is_lost).count();
        Ok(Restored {
            record: record.id,
            position,
            dirs: removal.restorable - lost.min(removal.restorable),
            lost,
            executors: record.row.executors.len(),
        })
    }

    fn change(
        &self,
        app_id: &AppId,
        change: impl FnOnce(&mut super::App),
    ) -> Result<Position, NotRegistered> {
        let mut app = self.apps.get_mut(app_id).ok_or_else(|| NotRegistered(app_id.clone()))?;
        change(&mut app);
        app.reported = false;
        Ok(self.journal.record([Change::App(app_id.clone(), Some(app.row()))]))
    }
}

/// A stored timeout.
pub(super) fn timeout(millis: Option<u64>) -> HeartbeatTimeout {
    millis.map_or(HeartbeatTimeout::Never, |millis| Duration::from_millis(millis).into())
}
