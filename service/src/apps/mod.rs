//! What is registered: applications, their drivers and executors; and what left, and why.
//!
//! [`AppRegistry`] is the one owner. Its methods take and return owned values, so no guard of the
//! map ever leaves this module, crosses an await, or meets its own map. What has to survive is
//! recorded in the [`Journal`] within the application's entry, so that the store has the changes of an
//! application in the order in which they happened; whoever acknowledges one waits for its
//! [`Position`]. Lock order: an application's entry, then the claims on directories, then the
//! records, then the journal; never the other way.

mod claims;
mod load;
mod operator;
mod records;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use shuffle_protocol::layout::Layout;
use shuffle_protocol::{AppId, ExecId, HeartbeatTimeout};
use tokio::sync::watch;

use crate::dirs::{LocalDir, Tombstone};
use crate::liveness::{Cleanup, DriverLife, Liveness, Reason, Rules};
use crate::state::wall_now;
use crate::store::row::{
    AppRow, Change, DirRow, DirState, DriverRow, ExecutorRow, Identity, RecordDir, RecordId,
    RecordRow, WallMillis,
};
use crate::store::{Durability, Journal, Position, SETTLE};

use self::claims::Claims;
use self::records::Records;

pub use self::claims::Claim;
pub use self::load::{Left, LoadReport};
pub use self::operator::{ExpireError, NotRegistered, RestoreError, Restored};
pub use self::records::{Record, RecordedDir, Removal};

/// Where one executor keeps its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Executor {
    /// In the order of registration, which decides where a file lies.
    pub local_dirs: Vec<LocalDir>,
    /// `None` when the registration leaves no place for a file (no directories, or no
    /// sub-directories); Spark accepts such a registration.
    pub layout: Option<Layout>,
    /// As registered; below 1 only with `layout` being `None`.
    pub sub_dirs_per_local_dir: i32,
    /// As registered. Any is accepted, files are read by name.
    pub shuffle_manager: String,
}

impl Executor {
    /// An executor with these directories.
    #[must_use]
    pub fn new(local_dirs: Vec<LocalDir>, sub_dirs: i32, shuffle_manager: String) -> Self {
        Self {
            layout: Layout::new(local_dirs.len(), sub_dirs).ok(),
            local_dirs,
            sub_dirs_per_local_dir: sub_dirs,
            shuffle_manager,
        }
    }

    fn row(&self) -> ExecutorRow {
        ExecutorRow {
            local_dirs: self.local_dirs.iter().map(|dir| dir.named().to_owned()).collect(),
            sub_dirs_per_local_dir: self.sub_dirs_per_local_dir,
            shuffle_manager: self.shuffle_manager.clone(),
        }
    }
}

/// What was read of one application. Shared with the connections that read.
#[derive(Debug, Default)]
pub struct Traffic {
    chunks: AtomicU64,
    bytes: AtomicU64,
    open_streams: AtomicI64,
}

impl Traffic {
    /// Counts a chunk that was sent whole.
    pub fn add_chunk(&self, bytes: u64) {
        self.chunks.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// An open stream of an application, which defers its end.
#[derive(Debug)]
pub struct Pin(Arc<Traffic>);

impl Drop for Pin {
    fn drop(&mut self) {
        self.0.open_streams.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Tells a registration from an earlier one under the same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Generation(u64);

#[derive(Debug)]
struct App {
    generation: Generation,
    since: WallMillis,
    life: Liveness,
    driver_addr: Option<SocketAddr>,
    extended_until: Option<WallMillis>,
    hold: Option<String>,
    /// A record says that it would have gone, and nothing has changed since.
    reported: bool,
    executors: HashMap<ExecId, Arc<Executor>>,
    /// Every directory that was ever registered for the application, so that those of an executor
    /// that registered again elsewhere go too.
    dirs: BTreeMap<LocalDir, DirFacts>,
    traffic: Arc<Traffic>,
}

/// What a look at a registered directory found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DirFacts {
    /// What tells it from another one that has its path later; nothing before anybody looked, or when
    /// it was not there.
    pub identity: Option<Identity>,
    /// Why this service cannot read it.
    pub unreadable: Option<String>,
}

impl App {
    fn new(generation: Generation, since: WallMillis, now: Instant) -> Self {
        Self {
            generation,
            since,
            life: Liveness::new(now),
            driver_addr: None,
            extended_until: None,
            hold: None,
            reported: false,
            executors: HashMap::new(),
            dirs: BTreeMap::new(),
            traffic: Arc::default(),
        }
    }

    fn row(&self) -> AppRow {
        AppRow {
            since: self.since,
            driver: self.life.driver().map(|driver| DriverRow {
                timeout_ms: driver.timeout.as_duration().map(millis),
                address: self.driver_addr.map(|addr| addr.to_string()),
            }),
            extended_until: self.extended_until,
            hold: self.hold.clone(),
        }
    }

    fn is_being_read(&self) -> bool {
        self.traffic.open_streams.load(Ordering::Relaxed) > 0
    }

    fn deadline(&self, rules: &Rules) -> Option<Instant> {
        self.life.deadline(rules, self.is_being_read())
    }

    fn due(&self, rules: &Rules, now: Instant) -> Option<Reason> {
        self.life.due(rules, self.is_being_read(), now)
    }

    /// The rows that go with it.
    fn removal(&self, app_id: &AppId) -> Vec<Change> {
        let executors = self.executors.keys();
        let executors = executors.map(|id| Change::Executor(app_id.clone(), id.clone(), None));
        let dirs = self.dirs.keys();
        let dirs = dirs.map(|dir| Change::Dir(app_id.clone(), dir.path().to_owned(), None));
        std::iter::once(Change::App(app_id.clone(), None)).chain(executors).chain(dirs).collect()
    }
}

fn dir_row(dir: &LocalDir, facts: &DirFacts) -> DirRow {
    DirRow { named: dir.named().to_owned(), identity: facts.identity }
}

/// What an executor lookup gives.
#[derive(Debug, Clone)]
pub struct Found {
    /// Where the files are.
    pub executor: Arc<Executor>,
    /// Where to count what is read.
    pub traffic: Arc<Traffic>,
}

/// The outcome of a driver's registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriverRegistered {
    /// No driver was known.
    New,
    /// The same from the same host: a driver that makes sure, as our client does now and then.
    Repeated,
    /// It replaced one with this timeout, or of another host.
    Replaced(HeartbeatTimeout),
    /// The application lives and nobody proved to be its driver, so its longer timeout stays.
    KeptLonger(HeartbeatTimeout),
}

/// The outcome of an executor's registration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutorRegistered {
    /// When it is durable.
    pub position: Position,
    /// Directories that a removal had renamed. They are brought back, unless their files are going.
    pub tombstoned: Vec<LocalDir>,
    /// Directories that were not registered before.
    pub new_dirs: Vec<LocalDir>,
}

/// The outcome of a heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beat {
    /// The driver lives on.
    Counted,
    /// The application expired earlier; its directories are going or gone.
    Expired,
    /// No driver registered under that id.
    Unknown,
}

/// An application that left the registry, or would have.
#[derive(Debug)]
pub struct Expired {
    /// The record of it, which says what is to be removed.
    pub record: RecordId,
    /// Who.
    pub app_id: AppId,
    /// Why.
    pub reason: Reason,
    /// `shuffled.cleanup` is `report`: it is still registered.
    pub report_only: bool,
    /// All its directories, also those of executors that registered late.
    pub dirs: Vec<LocalDir>,
    /// How many executors were registered.
    pub executors: usize,
    /// The driver's last signs of life.
    pub driver: Option<DriverLife>,
}

/// One application, for those who list them.
#[derive(Debug, Clone)]
pub struct AppInfo {
    /// Who.
    pub app_id: AppId,
    /// When it was first registered.
    pub since: WallMillis,
    /// Its driver, if one registered.
    pub driver: Option<DriverLife>,
    /// Where the driver registered from.
    pub driver_addr: Option<SocketAddr>,
    /// When anything of it was last registered or read.
    pub last_use: Instant,
    /// When it is due unless something happens before.
    pub deadline: Option<Instant>,
    /// Why an operator keeps it.
    pub hold: Option<String>,
    /// Until when an operator keeps it in any case.
    pub extended_until: Option<WallMillis>,
    /// Its executors by id.
    pub executors: BTreeMap<ExecId, Arc<Executor>>,
    /// Directories that go with it.
    pub dirs: BTreeMap<LocalDir, DirFacts>,
    /// Open streams of its blocks.
    pub open_streams: u64,
    /// Chunks read of it.
    pub chunks: u64,
    /// Bytes in them.
    pub bytes: u64,
}

/// How many of everything are registered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Applications.
    pub apps: usize,
    /// Those with a driver.
    pub drivers: usize,
    /// Those that an operator keeps.
    pub held: usize,
    /// Executors.
    pub executors: usize,
}

/// All applications this service knows.
#[derive(Debug)]
pub struct AppRegistry {
    apps: DashMap<AppId, App>,
    claims: Mutex<Claims>,
    records: Mutex<Records>,
    next_generation: AtomicU64,
    /// Changes whenever a directory is registered.
    claimed: watch::Sender<u64>,
    rules: Rules,
    journal: Arc<Journal>,
}

impl Default for AppRegistry {
    /// By Spark's rules, and without a store.
    fn default() -> Self {
        Self::new(Rules::default(), Arc::new(Journal::memory_only()))
    }
}

impl AppRegistry {
    /// An empty registry.
    #[must_use]
    pub fn new(rules: Rules, journal: Arc<Journal>) -> Self {
        Self {
            apps: DashMap::new(),
            claims: Mutex::default(),
            records: Mutex::default(),
            next_generation: AtomicU64::new(0),
            claimed: watch::Sender::new(0),
            rules,
            journal,
        }
    }

    /// The rules it goes by.
    #[must_use]
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// A driver registers. Its clock starts now. Of a live application it cannot shorten the timeout:
    /// anybody could say to be its driver.
    pub fn register_driver(
        &self,
        app_id: &AppId,
        timeout: HeartbeatTimeout,
        from: SocketAddr,
        now: Instant,
    ) -> (DriverRegistered, Position) {
        let timeout = self.rules.bound(timeout);
        self.with_app(app_id, now, |app| {
            let before = app.life.driver().map(|driver| driver.timeout);
            let is_live = app.due(&self.rules, now).is_none();
            let host_before = app.driver_addr.replace(from).map(|addr| addr.ip());
            let outcome = driver_registered(before, timeout, is_live, host_before, from.ip());
            let kept = match outcome {
                DriverRegistered::KeptLonger(longer) => longer,
                _ => timeout,
            };
            app.life.handle_driver(kept, now);
            app.reported = false;
            (outcome, self.journal.record([Change::App(app_id.clone(), Some(app.row()))]))
        })
    }

    /// A driver beats.
    pub fn heartbeat(&self, app_id: &AppId, now: Instant) -> Beat {
        let counted = self.apps.get_mut(app_id).is_some_and(|mut app| {
            app.reported = false;
            app.life.handle_heartbeat(now)
        });
        if counted {
            Beat::Counted
        } else if self.is_gone(app_id) {
            Beat::Expired
        } else {
            Beat::Unknown
        }
    }

    /// An executor registers; an earlier registration of it is replaced.
    pub fn register_executor(
        &self,
        app_id: &AppId,
        exec_id: ExecId,
        executor: Executor,
        now: Instant,
    ) -> ExecutorRegistered {
        self.with_app(app_id, now, |app| {
            app.life.handle_use(now);
            app.reported = false;
            let mut changes = vec![Change::App(app_id.clone(), Some(app.row()))];
            let added = self.add_executor(app_id, app, exec_id, executor, &mut changes);
            ExecutorRegistered { position: self.journal.record(changes), ..added }
        })
    }

    /// Puts an executor into its application's entry and claims its directories.
    fn add_executor(
        &self,
        app_id: &AppId,
        app: &mut App,
        exec_id: ExecId,
        executor: Executor,
        changes: &mut Vec<Change>,
    ) -> ExecutorRegistered {
        let (mut tombstoned, mut new_dirs) = (Vec::new(), Vec::new());
        let mut claims = lock(&self.claims);
        for dir in &executor.local_dirs {
            if claims.add(Path::new(dir.path()), app.generation) {
                tombstoned.push(dir.clone());
            }
            if !app.dirs.contains_key(dir) {
                let facts = DirFacts::default();
                let row = dir_row(dir, &facts);
                changes.push(Change::Dir(app_id.clone(), dir.path().to_owned(), Some(row)));
                app.dirs.insert(dir.clone(), facts);
                new_dirs.push(dir.clone());
            }
        }
        self.claimed.send_modify(|times| *times += 1);
        drop(claims);
        changes.push(Change::Executor(app_id.clone(), exec_id.clone(), Some(executor.row())));
        app.executors.insert(exec_id, Arc::new(executor));
        ExecutorRegistered { position: Position::default(), tombstoned, new_dirs }
    }

    /// Somebody has looked at a registered directory.
    pub fn note_dir(&self, app_id: &AppId, dir: &LocalDir, facts: DirFacts) {
        let Some(mut app) = self.apps.get_mut(app_id) else { return };
        let Some(known) = app.dirs.get_mut(dir) else { return };
        if known.identity != facts.identity {
            let row = dir_row(dir, &facts);
            let change = Change::Dir(app_id.clone(), dir.path().to_owned(), Some(row));
            self.journal.record([change]);
        }
        *known = facts;
    }

    /// Looks an executor up because its files are about to be read.
    pub fn use_executor(&self, app_id: &AppId, exec_id: &ExecId, now: Instant) -> Option<Found> {
        let mut app = self.apps.get_mut(app_id)?;
        let executor = app.executors.get(exec_id)?.clone();
        app.life.handle_read(now);
        Some(Found { executor, traffic: app.traffic.clone() })
    }

    /// Looks an executor up without a sign of life.
    #[must_use]
    pub fn peek_executor(&self, app_id: &AppId, exec_id: &ExecId) -> Option<Found> {
        let app = self.apps.get(app_id)?;
        let executor = app.executors.get(exec_id)?.clone();
        Some(Found { executor, traffic: app.traffic.clone() })
    }

    /// Defers the end of the application while a stream of its blocks is open; `None` when it is not
    /// registered.
    #[must_use]
    pub fn pin(&self, app_id: &AppId) -> Option<Pin> {
        let traffic = self.apps.get(app_id)?.traffic.clone();
        traffic.open_streams.fetch_add(1, Ordering::Relaxed);
        Some(Pin(traffic))
    }

    /// The executors in `exec_ids`, or the first of them that is not registered.
    pub fn executors<'a>(
        &self,
        app_id: &AppId,
        exec_ids: impl Iterator<Item = &'a str>,
    ) -> Result<BTreeMap<ExecId, Arc<Executor>>, ExecId> {
        let app = self.apps.get(app_id);
        exec_ids
            .map(|id| {
                let known = app.as_ref().and_then(|app| app.executors.get_key_value(id));
                known.map(|(id, exec)| (id.clone(), exec.clone())).ok_or_else(|| ExecId::from(id))
            })
            .collect()
    }

    /// True while the application is registered.
    #[must_use]
    pub fn contains(&self, app_id: &AppId) -> bool {
        self.apps.contains_key(app_id)
    }

    /// Takes every application that is due at `now` out of the registry, by the rules, and hands each
    /// to `expired`. Check and removal are one step: a heartbeat that comes before it keeps the
    /// application, one that comes after it finds it gone.
    pub fn expire_due(&self, now: Instant, mut expired: impl FnMut(Expired)) {
        let due = |app: &App| app.due(&self.rules, now);
        let report_only = match self.rules.cleanup {
            Cleanup::On => false,
            Cleanup::Report => true,
            Cleanup::Off => return,
        };
        let candidates: Vec<AppId> = self
            .apps
            .iter()
            .filter(|app| due(app).is_some() && !(report_only && app.reported))
            .map(|app| app.key().clone())
            .collect();
        for app_id in candidates {
            let ended = if report_only {
                self.report(&app_id, due, now)
            } else {
                self.end(&app_id, due, None, now)
            };
            ended.into_iter().for_each(&mut expired);
        }
    }

    /// Takes an application out of the registry if `why` has a reason, in one step.
    fn end(
        &self,
        app_id: &AppId,
        why: impl Fn(&App) -> Option<Reason>,
        note: Option<&str>,
        now: Instant,
    ) -> Option<Expired> {
        let mut expired = None;
        let removed = self.apps.remove_if(app_id, |_, app| {
            let Some(reason) = why(app) else { return false };
            // Within the entry, so that a heartbeat finds either the application or its record.
            let record = self.record_of(app_id, app, reason, note, now);
            expired = Some(self.expired(app, &record));
            self.add_record(record, app.removal(app_id));
            true
        });
        if let Some((_, app)) = removed {
            self.unclaim(&app);
        }
        expired
    }

    /// Notes that an application would have gone.
    fn report(
        &self,
        app_id: &AppId,
        why: impl Fn(&App) -> Option<Reason>,
        now: Instant,
    ) -> Option<Expired> {
        let mut app = self.apps.get_mut(app_id)?;
        let reason = why(&app)?;
        app.reported = true;
        let mut record = self.record_of(app_id, &app, reason, None, now);
        record.row.report_only = true;
        let expired = self.expired(&app, &record);
        self.add_record(record, Vec::new());
        Some(expired)
    }

    /// Adds a record and journals it, with what else belongs to it.
    fn add_record(&self, record: Record, mut changes: Vec<Change>) {
        let mut claims = lock(&self.claims);
        let mut records = lock(&self.records);
        changes.extend(record.changes());
        record.going().for_each(|path| claims.add_removal(path));
        changes.extend(records.insert(record));
        self.journal.record(changes);
    }

    fn expired(&self, app: &App, record: &Record) -> Expired {
        Expired {
            record: record.id,
            app_id: record.app_id.clone().unwrap_or_else(|| AppId::from("")),
            reason: record.reason,
            report_only: record.row.report_only,
            dirs: app.dirs.keys().cloned().collect(),
            executors: app.executors.len(),
            driver: app.life.driver().copied(),
        }
    }

    fn record_of(
        &self,
        app_id: &AppId,
        app: &App,
        reason: Reason,
        note: Option<&str>,
        now: Instant,
    ) -> Record {
        let id = lock(&self.records).next_id();
        let silent_for = app.life.driver().map(|driver| driver.last_beat);
        let row = RecordRow {
            app_id: Some(app_id.to_string()),
            reason: reason.as_str().to_owned(),
            report_only: false,
            note: note.map(ToOwned::to_owned),
            at: wall_now(),
            silent_for_ms: silent_for.map(|beat| millis(now.saturating_duration_since(beat))),
            app: app.row(),
            executors: app.executors.iter().map(|(id, e)| (id.to_string(), e.row())).collect(),
        };
        let dirs = app.dirs.iter().map(|(dir, facts)| (dir.clone(), facts.identity));
        Record::new(id, Some(app_id.clone()), reason, row, recorded_dirs(id, dirs))
    }

    fn unclaim(&self, app: &App) {
        let mut claims = lock(&self.claims);
        app.dirs.keys().for_each(|dir| claims.release(Path::new(dir.path()), app.generation));
    }

    /// Records that a directory which nobody owns is to be removed.
    pub fn record_sweep(&self, dir: LocalDir, identity: Option<Identity>) -> RecordId {
        let id = lock(&self.records).next_id();
        let row = RecordRow {
            app_id: None,
            reason: Reason::Sweep.as_str().to_owned(),
            report_only: false,
            note: None,
            at: wall_now(),
            silent_for_ms: None,
            app: AppRow::default(),
            executors: BTreeMap::new(),
        };
        let record =
            Record::new(id, None, Reason::Sweep, row, recorded_dirs(id, [(dir, identity)]));
        self.add_record(record, Vec::new());
        id
    }

    /// The service was away until `now`: nobody is held to what could not be heard.
    pub fn handle_absence(&self, now: Instant) {
        self.apps.iter_mut().for_each(|mut app| app.life.handle_absence(now));
    }

    /// Applications that no driver watches over, with their directories.
    #[must_use]
    pub fn without_driver(&self) -> Vec<(AppId, Vec<(LocalDir, DirFacts)>)> {
        let apps = self.apps.iter().filter(|app| app.life.driver().is_none());
        let dirs =
            |app: &App| app.dirs.iter().map(|(d, facts)| (d.clone(), facts.clone())).collect();
        apps.map(|app| (app.key().clone(), dirs(&app))).collect()
    }

    /// Drops the executors of an application without driver whose directories have all `vanished`, and
    /// with the last of them the application.
    pub fn drop_vanished(
        &self,
        app_id: &AppId,
        vanished: &[LocalDir],
        now: Instant,
    ) -> Option<Expired> {
        let is_lost = |executor: &Executor| {
            !executor.local_dirs.is_empty()
                && executor.local_dirs.iter().all(|dir| vanished.contains(dir))
        };
        let ended = self.end(
            app_id,
            |app| {
                let all_lost = app.executors.values().all(|executor| is_lost(executor));
                let nobody = app.life.driver().is_none() && !app.life.is_held();
                (all_lost && nobody).then_some(Reason::DirsVanished)
            },
            None,
            now,
        );
        if ended.is_none()
            && let Some(mut app) = self.apps.get_mut(app_id)
        {
            let lost = app.executors.iter().filter(|(_, executor)| is_lost(executor));
            let lost: Vec<ExecId> = lost.map(|(id, _)| id.clone()).collect();
            for exec_id in lost {
                app.executors.remove(&exec_id);
                self.journal.record([Change::Executor(app_id.clone(), exec_id, None)]);
            }
        }
        ended
    }

    /// Whether a live application registered `dir`, a directory in it, or one that it is in.
    #[must_use]
    pub fn claim(&self, dir: &LocalDir) -> Option<Claim> {
        lock(&self.claims).claim(Path::new(dir.path()))
    }

    /// Whether the removal of a directory in `dir` is not done.
    #[must_use]
    pub fn has_removal_in(&self, dir: &LocalDir) -> bool {
        lock(&self.claims).has_removal_in(Path::new(dir.path()))
    }

    /// Asks for the [`claim`](Self::claim) on `dir` again and again, which costs next to nothing while
    /// nobody registers.
    pub fn watch_claim<'a>(&'a self, dir: &'a LocalDir) -> impl FnMut() -> Option<Claim> + use<'a> {
        let mut last = None;
        move || {
            let times = *self.claimed.borrow();
            match last {
                Some((of, claim)) if of == times => claim,
                _ => last.insert((times, self.claim(dir))).1,
            }
        }
    }

    /// Changes whenever a directory is registered.
    #[must_use]
    pub fn claims_changed(&self) -> watch::Receiver<u64> {
        self.claimed.subscribe()
    }

    /// One record.
    #[must_use]
    pub fn record(&self, id: RecordId) -> Option<Record> {
        lock(&self.records).get(id).cloned()
    }

    /// Changes what is known of a directory of a record. Returns when that is durable.
    pub fn update_dir(
        &self,
        id: RecordId,
        index: usize,
        change: impl FnOnce(&mut RecordDir),
    ) -> Position {
        let mut claims = lock(&self.claims);
        let mut records = lock(&self.records);
        self.update_locked(&mut claims, &mut records, id, index, change)
    }

    /// Files of the directory go from now on, unless a live application has it.
    pub fn begin_unlink(
        &self,
        id: RecordId,
        index: usize,
        change: impl FnOnce(&mut RecordDir),
    ) -> Result<Position, Claim> {
        let mut claims = lock(&self.claims);
        let mut records = lock(&self.records);
        let dir = records.get(id).and_then(|record| record.dirs.get(index)?.dir.clone());
        if let Some(claim) = dir.and_then(|dir| claims.claim(Path::new(dir.path()))) {
            return Err(claim);
        }
        Ok(self.update_locked(&mut claims, &mut records, id, index, |row| {
            change(row);
            row.state = DirState::Unlinking;
        }))
    }

    fn update_locked(
        &self,
        claims: &mut Claims,
        records: &mut Records,
        id: RecordId,
        index: usize,
        change: impl FnOnce(&mut RecordDir),
    ) -> Position {
        let mut now = None;
        let changes = records.update(id, index, |row| {
            let was_final = row.state.is_final();
            change(row);
            let renamed = matches!(row.state, DirState::Tombstoned | DirState::Unlinking);
            now = Some((row.path.clone(), renamed, !was_final && row.state.is_final()));
        });
        if let Some((path, renamed, ended)) = now {
            let path = Path::new(&path);
            claims.set_tombstoned(path, renamed);
            if ended {
                claims.end_removal(path);
            }
        }
        self.journal.record(changes)
    }

    /// The latest record of an application that expired.
    #[must_use]
    pub fn gone(&self, app_id: &AppId) -> Option<Record> {
        lock(&self.records).latest(app_id).cloned()
    }

    /// Whether the application is remembered to have expired.
    #[must_use]
    pub fn is_gone(&self, app_id: &AppId) -> bool {
        lock(&self.records).latest(app_id).is_some()
    }

    /// The records that are kept, oldest first.
    #[must_use]
    pub fn records(&self) -> Vec<Record> {
        lock(&self.records).iter().cloned().collect()
    }

    /// Paths that removals have given to directories for the time until their files are gone.
    #[must_use]
    pub fn tombstones(&self) -> HashSet<String> {
        let records = lock(&self.records);
        let dirs = records.iter().flat_map(|record| &record.dirs).map(|dir| &dir.row);
        dirs.filter(|row| !row.state.is_final())
            .map(|row| match row.path.rsplit_once('/') {
                Some((parent, _)) => format!("{parent}/{}", row.tombstone),
                None => row.tombstone.clone(),
            })
            .collect()
    }

    /// Returns when everything that was recorded so far is on disk, or will not be soon.
    pub async fn settled(&self) -> Durability {
        self.journal.settled_within(self.journal.recorded(), SETTLE).await
    }

    /// Records of which something is still to be done.
    #[must_use]
    pub fn unfinished(&self) -> Vec<RecordId> {
        let records = lock(&self.records);
        records.iter().filter(|record| !record.is_final()).map(|record| record.id).collect()
    }

    /// One application.
    #[must_use]
    pub fn app(&self, app_id: &AppId) -> Option<AppInfo> {
        self.apps.get(app_id).map(|app| self.info(app_id, &app))
    }

    /// All applications, by id.
    #[must_use]
    pub fn all(&self) -> Vec<AppInfo> {
        let mut all: Vec<_> = self.apps.iter().map(|app| self.info(app.key(), &app)).collect();
        all.sort_by(|a, b| a.app_id.cmp(&b.app_id));
        all
    }

    /// How many of everything are registered.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.apps.iter().fold(Counts::default(), |counts, app| Counts {
            apps: counts.apps + 1,
            drivers: counts.drivers + usize::from(app.life.driver().is_some()),
            held: counts.held + usize::from(app.life.is_held()),
            executors: counts.executors + app.executors.len(),
        })
    }

    fn info(&self, app_id: &AppId, app: &App) -> AppInfo {
        let streams = app.traffic.open_streams.load(Ordering::Relaxed);
        AppInfo {
            app_id: app_id.clone(),
            since: app.since,
            driver: app.life.driver().copied(),
            driver_addr: app.driver_addr,
            last_use: app.life.last_use(),
            deadline: app.deadline(&self.rules),
            hold: app.hold.clone(),
            extended_until: app.extended_until,
            executors: app.executors.iter().map(|(id, exec)| (id.clone(), exec.clone())).collect(),
            dirs: app.dirs.clone(),
            open_streams: u64::try_from(streams).unwrap_or(0),
            chunks: app.traffic.chunks.load(Ordering::Relaxed),
            bytes: app.traffic.bytes.load(Ordering::Relaxed),
        }
    }

    fn with_app<T>(&self, app_id: &AppId, now: Instant, change: impl FnOnce(&mut App) -> T) -> T {
        let mut app = match self.apps.entry(app_id.clone()) {
            Entry::Occupied(known) => known.into_ref(),
            Entry::Vacant(vacant) => {
                vacant.insert(App::new(self.next_generation(), wall_now(), now))
            }
        };
        change(&mut app)
    }

    fn next_generation(&self) -> Generation {
        Generation(self.next_generation.fetch_add(1, Ordering::Relaxed))
    }
}

fn driver_registered(
    before: Option<HeartbeatTimeout>,
    timeout: HeartbeatTimeout,
    is_live: bool,
    host_before: Option<IpAddr>,
    host: IpAddr,
) -> DriverRegistered {
    match before {
        None => DriverRegistered::New,
        Some(before) if is_live && timeout < before => DriverRegistered::KeptLonger(before),
        Some(before) if before == timeout && host_before == Some(host) => {
            DriverRegistered::Repeated
        }
        Some(before) => DriverRegistered::Replaced(before),
    }
}

fn recorded_dirs(
    id: RecordId,
    dirs: impl IntoIterator<Item = (LocalDir, Option<Identity>)>,
) -> Vec<RecordedDir> {
    let recorded = |(index, (dir, identity)): (usize, (LocalDir, Option<Identity>))| RecordedDir {
        row: RecordDir {
            path: dir.path().to_owned(),
            dir: DirRow { named: dir.named().to_owned(), identity },
            tombstone: Tombstone::new(id.0, index).as_str().to_owned(),
            state: DirState::Pending,
            in_place: false,
            error: None,
            files: 0,
            bytes: 0,
        },
        dir: Some(dir),
    };
    dirs.into_iter().enumerate().map(recorded).collect()
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// No code panics while it holds one of these locks half-way through a change, so what a panicking
/// thread left behind is whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
