//! A simulation of everything that decides about life and removal, under any order of events: the
//! registry, the removals step by step, the journal and crashes, over a file system and a clock that are
//! the simulation's own.
//!
//! A seed gives the whole schedule. A failure prints its seed and what happened; one line replays it:
//! `SHUFFLED_SIM_SEED=7 cargo nextest run -p shuffled-service sim`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use shuffle_protocol::{AppId, ExecId, HeartbeatTimeout};

use crate::apps::{AppRegistry, Beat, Claim, DirFacts, Executor, Left, Pin};
use crate::dirs::{
    EntombError, Entombed, ExhumeError, LocalDir, LocalRoots, Measured, RemoveError, Removed,
};
use crate::liveness::{Cleanup, Reason, Rules};
use crate::removal::{Action, Removal};
use crate::store::row::{Change, DirState, Identity, RecordId};
use crate::store::{Batch, Journal, Position};

const STEPS: usize = 300;
const SEEDS: u64 = 2000;
const SECOND: Duration = Duration::from_secs(1);
const FILES: u64 = 3;
const APPS: [&str; 4] = ["a", "b", "c", "d"];
const DIRS: [&str; 5] = [
    "/d/blockmgr-0",
    "/d/blockmgr-1",
    "/d/blockmgr-2",
    "/e/blockmgr-3",
    "/d/blockmgr-0/blockmgr-4",
];

/// A directory of the simulated disk. Its version tells it from every other one that ever was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Tree {
    version: u64,
    files: u64,
}

impl Tree {
    fn identity(self) -> Identity {
        Identity { inode: self.version, born: None }
    }
}

/// What the rules say about an application, written down a second time.
#[derive(Debug)]
struct Model {
    /// Its timeout and its last sign of life.
    driver: Option<(Option<Duration>, Instant)>,
    last_use: Instant,
    last_read: Option<Instant>,
    held: bool,
    extended_until: Option<Instant>,
    /// Which version each of its directories had when it was registered, if it could still be had.
    dirs: BTreeMap<String, Option<u64>>,
    executors: BTreeMap<String, Position>,
    streams: Vec<Pin>,
}

impl Model {
    fn new(now: Instant) -> Self {
        Self {
            driver: None,
            last_use: now,
            last_read: None,
            held: false,
            extended_until: None,
            dirs: BTreeMap::new(),
            executors: BTreeMap::new(),
            streams: Vec::new(),
        }
    }

    /// The latest moment at which it certainly has to be there.
    fn safe_until(&self, rules: &Rules) -> Option<Instant> {
        if self.held {
            return None;
        }
        let (start, time) = match self.driver {
            Some((timeout, beat)) => (beat, timeout?),
            None => (self.last_use, rules.orphan_ttl?),
        };
        let mut until = start + time;
        let most = until + rules.max_deferral;
        if !self.streams.is_empty() {
            until = most;
        }
        if let Some(read) = self.last_read {
            until = until.max((read + time).min(most));
        }
        Some(until.max(self.extended_until.unwrap_or(until)))
    }

    fn absence(&mut self, now: Instant) {
        if let Some((_, beat)) = &mut self.driver {
            *beat = now;
        }
        self.last_use = now;
    }
}

/// A removal that is under way, and what it waits for.
struct Running {
    record: RecordId,
    index: usize,
    removal: Removal,
    waits_for: Option<Position>,
    was_unlinking: bool,
}

/// What survives a crash.
#[derive(Default)]
struct Durable {
    rows: BTreeMap<String, Change>,
    upto: Position,
}

struct World {
    rng: fastrand::Rng,
    start: Instant,
    now: Instant,
    rules: Rules,
    roots: LocalRoots,
    registry: Arc<AppRegistry>,
    journal: Arc<Journal>,
    durable: Durable,
    disk: BTreeMap<String, Tree>,
    versions: u64,
    models: BTreeMap<String, Model>,
    running: Vec<Running>,
    /// Records whose removal was submitted since the last crash.
    known: BTreeSet<u64>,
    failing: bool,
    grace: Duration,
    log: String,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let start = Instant::now();
        let rules = Rules {
            orphan_ttl: rng.bool().then_some(20 * SECOND),
            max_deferral: if rng.bool() { Duration::ZERO } else { 30 * SECOND },
            cleanup: *rng
                .choice(&[Cleanup::On, Cleanup::On, Cleanup::On, Cleanup::Report, Cleanup::Off])
                .unwrap_or(&Cleanup::On),
            ..Rules::default()
        };
        let grace = if rng.bool() { Duration::ZERO } else { 15 * SECOND };
        let journal = Arc::new(Journal::new());
        Self {
            rng,
            start,
            now: start,
            rules,
            roots: LocalRoots::unrestricted().unwrap(),
            registry: Arc::new(AppRegistry::new(rules, journal.clone())),
            journal,
            durable: Durable::default(),
            disk: BTreeMap::new(),
            versions: 0,
            models: BTreeMap::new(),
            running: Vec::new(),
            known: BTreeSet::new(),
            failing: true,
            grace,
            log: String::new(),
        }
    }

    fn note(&mut self, what: &str) {
        let at = self.now - self.start;
        let _ = writeln!(self.log, "{:>8} {what}", at.as_secs());
    }

    fn dir(&self, path: &str) -> LocalDir {
        self.roots.admit(path).unwrap()
    }

    fn app(&mut self) -> &'static str {
        APPS[self.rng.usize(..APPS.len())]
    }

    fn step(&mut self) {
        let now = self.now;
        match self.rng.u32(..100) {
            0..12 => self.register_executor(),
            12..18 => self.register_driver(),
            18..28 => {
                let app = self.app();
                let beat = self.registry.heartbeat(&app.into(), now);
                self.note(&format!("heartbeat {app}: {beat:?}"));
                let driver = self.models.get_mut(app).and_then(|model| model.driver.as_mut());
                assert_eq!(
                    beat == Beat::Counted,
                    driver.is_some(),
                    "a heartbeat is wrongly counted"
                );
                if let Some((_, beat)) = driver {
                    *beat = now;
                }
            }
            28..33 => self.read(),
            33..37 => self.streams(),
            37..50 => {
                self.now += SECOND * self.rng.u32(1..8);
                self.note("time passes");
            }
            50..52 => {
                self.now += SECOND * self.rng.u32(20..200);
                self.note("absence");
                self.registry.handle_absence(self.now);
                let now = self.now;
                self.models.values_mut().for_each(|model| model.absence(now));
            }
            52..59 => self.check(),
            59..79 => {
                if !self.running.is_empty() {
                    let at = self.rng.usize(..self.running.len());
                    self.advance(at);
                }
            }
            79..88 => self.commit(),
            88..90 => self.crash(),
            90..96 => self.operator(),
            96..98 => self.inspect(),
            _ => self.vanish(),
        }
    }

    fn register_executor(&mut self) {
        let (app, exec) = (self.app(), self.rng.u32(..3).to_string());
        let paths: BTreeSet<&str> =
            (0..self.rng.usize(1..3)).map(|_| DIRS[self.rng.usize(..DIRS.len())]).collect();
        for path in &paths {
            if !self.disk.contains_key(*path) && self.rng.bool() && !self.is_tombstoned(path) {
                self.create(path);
            }
        }
        let versions: BTreeMap<String, Option<u64>> =
            paths.iter().map(|path| ((*path).to_owned(), self.to_be_had(path))).collect();
        let dirs = paths.iter().map(|path| self.dir(path)).collect();
        let executor = Executor::new(dirs, 64, "sort".to_owned());
        let registered =
            self.registry.register_executor(&app.into(), exec.as_str().into(), executor, self.now);
        self.note(&format!("register executor {app}/{exec} {paths:?}"));
        let now = self.now;
        let model = self.models.entry(app.to_owned()).or_insert_with(|| Model::new(now));
        model.last_use = now;
        model.executors.insert(exec, registered.position);
        for (path, version) in versions {
            model.dirs.entry(path).or_insert(version);
        }
    }

    /// With what it lies in, as `mkdir -p` does.
    fn create(&mut self, path: &str) {
        let above = DIRS.iter().find(|above| path.starts_with(&format!("{above}/")));
        if let Some(above) = above.filter(|above| !self.disk.contains_key(**above)) {
            self.create(above);
        }
        self.versions += 1;
        self.disk.insert(path.to_owned(), Tree { version: self.versions, files: FILES });
        // Nothing can be brought back to where somebody made another directory.
        for model in self.models.values_mut() {
            model.dirs.entry(path.to_owned()).and_modify(|version| *version = None);
        }
    }

    fn is_tombstoned(&self, path: &str) -> bool {
        self.tombstone_of(path).is_some()
    }

    fn tombstone_of(&self, path: &str) -> Option<(DirState, String)> {
        let records = self.registry.records();
        let dirs = records.iter().flat_map(|record| &record.dirs);
        let mut open = dirs.filter(|dir| dir.row.path == path && !dir.row.state.is_final());
        open.find_map(|dir| {
            let at = beside(path, &dir.row.tombstone);
            self.disk.contains_key(&at).then_some((dir.row.state, at))
        })
    }

    /// The version that whoever registers the path now may count on: what is there and not being emptied,
    /// or what a removal can still bring back.
    fn to_be_had(&self, path: &str) -> Option<u64> {
        let being_emptied = self.running.iter().any(|running| {
            running.removal.dir().path() == path && self.state(running) == DirState::Unlinking
        });
        match (self.disk.get(path), self.tombstone_of(path)) {
            // One that a removal had begun to empty, before somebody registered it, is no longer whole.
            (Some(tree), _) if !being_emptied && tree.files == FILES => Some(tree.version),
            (None, Some((DirState::Pending | DirState::Tombstoned, at))) => {
                Some(self.disk[&at].version)
            }
            _ => None,
        }
    }

    fn register_driver(&mut self) {
        let app = self.app();
        let timeout: HeartbeatTimeout = match self.rng.u32(..8) {
            0 => HeartbeatTimeout::Never,
            seconds => (SECOND * seconds * 5).into(),
        };
        let from = ([127, 0, 0, self.rng.u8(1..3)], 4000).into();
        let outcome = self.registry.register_driver(&app.into(), timeout, from, self.now).0;
        self.note(&format!("register driver {app} {timeout}: {outcome:?}"));
        let (now, rules) = (self.now, self.rules);
        let model = self.models.entry(app.to_owned()).or_insert_with(|| Model::new(now));
        let live = model.safe_until(&rules).is_none_or(|until| now <= until);
        let asked = timeout.as_duration();
        let kept = match model.driver {
            Some((before, _)) if live => longer(before, asked),
            _ => asked,
        };
        model.driver = Some((kept, now));
    }

    fn read(&mut self) {
        let (app, exec) = (self.app(), self.rng.u32(..3).to_string());
        let found = self.registry.use_executor(&app.into(), &exec.as_str().into(), self.now);
        self.note(&format!("read {app}/{exec}: {}", found.is_some()));
        let now = self.now;
        let model = self.models.get_mut(app).filter(|model| model.executors.contains_key(&exec));
        assert_eq!(found.is_some(), model.is_some(), "a registered executor is not found");
        if let Some(model) = model {
            (model.last_use, model.last_read) = (now, Some(now));
        }
    }

    fn streams(&mut self) {
        let app = self.app();
        let pin = self.registry.pin(&app.into());
        let Some(model) = self.models.get_mut(app) else {
            return assert!(pin.is_none(), "a stream of nothing");
        };
        let open = pin.filter(|_| self.rng.bool());
        match open {
            Some(pin) => model.streams.push(pin),
            None => drop(model.streams.pop()),
        }
        let open = model.streams.len();
        self.note(&format!("streams of {app}: {open}"));
    }

    fn check(&mut self) {
        let mut all = Vec::new();
        self.registry.expire_due(self.now, |expired| all.push(expired));
        let (now, rules) = (self.now, self.rules);
        for expired in all {
            let app = expired.app_id.as_str().to_owned();
            self.note(&format!("expired {app} {:?} record {}", expired.reason, expired.record.0));
            let model = self.models.get(&app).expect("it was registered");
            let until = model.safe_until(&rules).expect("one that never goes");
            assert!(now > until, "{app} expired although it lives");
            assert_ne!(rules.cleanup, Cleanup::Off, "{app} expired although cleanup is off");
            assert_eq!(expired.report_only, rules.cleanup == Cleanup::Report);
            if !expired.report_only {
                self.models.remove(&app);
                self.submit(expired.record);
            }
        }
        if rules.cleanup == Cleanup::On {
            for (app, model) in &self.models {
                let due = model.safe_until(&rules).is_some_and(|until| now > until);
                assert!(!due, "{app} is due and stays");
            }
        }
    }

    fn submit(&mut self, id: RecordId) {
        let Some(record) = self.registry.record(id) else { return };
        if !self.known.insert(id.0) {
            return;
        }
        for (index, dir) in record.dirs.iter().enumerate() {
            let Some(local) = dir.dir.clone() else { continue };
            let removal = Removal::new(id, index, local, &dir.row, self.now + self.grace);
            if let Some(removal) = removal {
                let was_unlinking = dir.row.state == DirState::Unlinking;
                self.running.push(Running {
                    record: id,
                    index,
                    removal,
                    waits_for: None,
                    was_unlinking,
                });
            }
        }
    }

    fn state(&self, running: &Running) -> DirState {
        let record = self.registry.record(running.record);
        record.map_or(DirState::Kept, |record| record.dirs[running.index].row.state)
    }

    /// One action of a removal.
    fn advance(&mut self, at: usize) {
        let mut running = self.running.swap_remove(at);
        if let Some(position) = running.waits_for {
            if self.durable.upto < position {
                return self.running.push(running);
            }
            running.waits_for = None;
        }
        let (now, registry) = (self.now, self.registry.clone());
        let action = running.removal.poll(&registry, now);
        self.check_decision(&mut running);
        let path = running.removal.dir().path().to_owned();
        let tombstone = beside(&path, running.removal.tombstone().as_str());
        if !matches!(action, Action::WaitUntil(_) | Action::RetryAt(..)) {
            self.note(&format!("{path} of record {}: {action:?}", running.record.0));
        }
        let fails = self.failing && self.rng.u32(..6) == 0;
        let broken = || io::Error::other("injected");
        match action {
            Action::Sync => running.waits_for = Some(self.journal.recorded()),
            Action::Entomb(expected) => {
                let result = match self.disk.get(&path).copied() {
                    _ if self.disk.contains_key(&tombstone) => Ok(Entombed::Done),
                    None => Ok(Entombed::WasGone),
                    Some(tree) if expected.is_some_and(|is| is != tree.identity()) => {
                        Err(EntombError::NotTheSame { path: path.clone() })
                    }
                    Some(_) if fails && self.rng.bool() => {
                        Err(EntombError::CannotRename { path: path.clone(), source: broken() })
                    }
                    Some(_) if fails => {
                        Err(EntombError::Io { path: path.clone(), source: broken() })
                    }
                    Some(_) => {
                        self.rename(&path, &tombstone);
                        Ok(Entombed::Done)
                    }
                };
                running.removal.handle_entombed(&registry, result, now);
            }
            Action::Exhume => {
                let result = if !self.disk.contains_key(&tombstone) {
                    Err(ExhumeError::NotFound {
                        path: path.clone(),
                        tombstone: running.removal.tombstone().clone(),
                    })
                } else if self.disk.contains_key(&path) {
                    Err(ExhumeError::AlreadyThere { path: path.clone() })
                } else if fails {
                    Err(ExhumeError::Io { path: path.clone(), source: broken() })
                } else {
                    self.rename(&tombstone, &path);
                    Ok(())
                };
                running.removal.handle_exhumed(&registry, result, now);
            }
            Action::Measure { .. } => {
                running.removal.handle_measured(Measured { files: FILES, ..Measured::default() });
            }
            Action::Unlink => {
                let result = self.unlink(&running, &tombstone, fails);
                running.removal.handle_removed(&registry, result, now);
            }
            Action::EmptyInPlace => {
                let result = if registry.claim(running.removal.dir()).is_some() {
                    Err(RemoveError::Stopped { removed: Removed::default() })
                } else {
                    self.unlink(&running, &path, fails)
                };
                running.removal.handle_removed(&registry, result, now);
            }
            Action::WaitUntil(_) | Action::RetryAt(..) => {}
            Action::Done(_) => return,
        }
        self.check_decision(&mut running);
        self.running.push(running);
    }

    /// At the moment at which files begin to go, nobody who lives may have them.
    fn check_decision(&self, running: &mut Running) {
        let unlinking = self.state(running) == DirState::Unlinking;
        if unlinking && !running.was_unlinking {
            let path = running.removal.dir().path();
            let tombstone = beside(path, running.removal.tombstone().as_str());
            let doomed = self.disk.get(&tombstone).or(self.disk.get(path));
            for (app, model) in &self.models {
                for (dir, version) in &model.dirs {
                    let overlaps = dir.starts_with(path) || path.starts_with(dir.as_str());
                    let its = version.is_some() && doomed.map(|tree| tree.version) == *version;
                    assert!(!(overlaps && its), "files of {app} in {dir} are to go");
                }
            }
        }
        running.was_unlinking = unlinking;
    }

    /// A file goes, or the whole directory.
    fn unlink(&mut self, running: &Running, at: &str, fails: bool) -> Result<Removed, RemoveError> {
        let key = format!("record-dir {} {}", running.record.0, running.index);
        let Some(Change::RecordDir(_, _, Some(row))) = self.durable.rows.get(&key) else {
            panic!("files go without a durable record");
        };
        assert_eq!(row.state, DirState::Unlinking, "files go before that is on disk");
        let Some(mut tree) = self.disk.get(at).copied() else { return Ok(Removed::default()) };
        if let Some(expected) = row.dir.identity {
            assert_eq!(tree.identity(), expected, "another directory's files go");
        }
        if fails {
            tree.files = tree.files.saturating_sub(1);
            self.disk.insert(at.to_owned(), tree);
            let removed = Removed { files: 1, dirs: 0 };
            return Err(RemoveError::Incomplete { removed, failures: 1, texts: vec![] });
        }
        // What lies in it goes with it.
        let below = format!("{at}/");
        self.disk.retain(|path, _| path != at && !path.starts_with(&below));
        Ok(Removed { files: tree.files, dirs: 1 })
    }

    fn rename(&mut self, from: &str, to: &str) {
        let below = format!("{from}/");
        let moved: Vec<String> = self
            .disk
            .keys()
            .filter(|path| *path == from || path.starts_with(&below))
            .cloned()
            .collect();
        for path in moved {
            if let Some(tree) = self.disk.remove(&path) {
                self.disk.insert(format!("{to}{}", &path[from.len()..]), tree);
            }
        }
    }

    fn commit(&mut self) {
        let Some(Batch { changes, upto }) = self.journal.try_take() else { return };
        for change in changes {
            let (key, is_there) = key(&change);
            if is_there {
                self.durable.rows.insert(key, change);
            } else {
                self.durable.rows.remove(&key);
            }
        }
        self.durable.upto = upto;
        self.journal.committed(upto);
        self.note("commit");
    }

    /// Everything that is only in memory is gone.
    fn crash(&mut self) {
        self.note("crash");
        let mut left = Left::default();
        for change in self.durable.rows.values().cloned() {
            match change {
                Change::App(app, row) => left.apps.extend(row.map(|row| (app, row))),
                Change::Executor(app, exec, row) => {
                    left.executors.extend(row.map(|row| (app, exec, row)));
                }
                Change::Dir(app, path, row) => left.dirs.extend(row.map(|row| (app, path, row))),
                Change::Record(id, row) => left.records.extend(row.map(|row| (id, row))),
                Change::RecordDir(id, index, row) => {
                    left.record_dirs.extend(row.map(|row| (id, index, row)));
                }
            }
        }
        left.records.sort_by_key(|(id, _)| *id);
        left.record_dirs.sort_by_key(|(id, index, _)| (*id, *index));
        let lost: BTreeSet<String> = left
            .dirs
            .iter()
            .filter(|(_, path, row)| {
                let is = self.disk.get(path).map(|tree| tree.identity());
                is.is_none() || row.identity.is_some() && row.identity != is
            })
            .map(|(_, path, _)| path.clone())
            .collect();
        self.journal = Arc::new(Journal::new());
        self.registry = Arc::new(AppRegistry::new(self.rules, self.journal.clone()));
        self.now += SECOND;
        let upto = std::mem::take(&mut self.durable.upto);
        self.registry.load(left, &lost, &self.roots, self.now, 0);
        self.running.clear();
        self.known.clear();
        self.remodel(upto, &lost);
        for id in self.registry.unfinished() {
            self.submit(id);
        }
    }

    /// The model after a crash is what the service knows, once it was checked that nothing which was
    /// acknowledged is missing.
    fn remodel(&mut self, upto: Position, lost: &BTreeSet<String>) {
        let before = std::mem::take(&mut self.models);
        for (app, model) in &before {
            for (exec, position) in &model.executors {
                let app_id = AppId::from(app.as_str());
                let there = self.registry.peek_executor(&app_id, &ExecId::from(exec.as_str()));
                let whole = model.dirs.keys().all(|path| !lost.contains(path));
                assert!(
                    there.is_some() || *position > upto || !whole,
                    "the acknowledged registration of {app}/{exec} is lost"
                );
            }
        }
        let now = self.now;
        for info in self.registry.all() {
            let app = info.app_id.to_string();
            let mut model = Model::new(now);
            model.driver = info.driver.map(|driver| (driver.timeout.as_duration(), now));
            model.held = info.hold.is_some();
            // Extensions are by the wall clock, which the simulation does not have.
            model.extended_until = info.extended_until.map(|_| now + 1000 * SECOND);
            for exec in info.executors.keys() {
                model.executors.insert(exec.to_string(), Position::default());
            }
            for dir in info.dirs.keys() {
                let known = before.get(&app).and_then(|model| model.dirs.get(dir.path()).copied());
                let version = known.unwrap_or_else(|| self.to_be_had(dir.path()));
                model.dirs.insert(dir.path().to_owned(), version);
            }
            self.models.insert(app, model);
        }
    }

    fn operator(&mut self) {
        let (app, now) = (self.app(), self.now);
        let app_id = AppId::from(app);
        let known = self.models.contains_key(app);
        match self.rng.u32(..5) {
            0 => {
                let held = self.registry.hold(&app_id, "why".to_owned());
                assert_eq!(held.is_ok(), known);
                self.note(&format!("hold {app}"));
                if let Some(model) = self.models.get_mut(app) {
                    model.held = true;
                }
            }
            1 => {
                assert_eq!(self.registry.release(&app_id, now).is_ok(), known);
                self.note(&format!("release {app}"));
                if let Some(model) = self.models.get_mut(app) {
                    (model.held, model.extended_until) = (false, None);
                    model.absence(now);
                }
            }
            2 => {
                let by = SECOND * self.rng.u32(1..60);
                assert_eq!(self.registry.extend(&app_id, by, now).is_ok(), known);
                self.note(&format!("extend {app} by {by:?}"));
                if let Some(model) = self.models.get_mut(app) {
                    model.extended_until = model.extended_until.max(Some(now + by));
                }
            }
            3 => {
                let held = self.models.get(app).is_some_and(|model| model.held);
                let expired = self.registry.expire(&app_id, None, now);
                self.note(&format!("expire {app}: {}", expired.is_ok()));
                assert_eq!(expired.is_ok(), known && !held);
                if let Ok(expired) = expired {
                    self.models.remove(app);
                    self.submit(expired.record);
                }
            }
            _ => self.restore(app),
        }
    }

    fn restore(&mut self, app: &str) {
        let app_id = AppId::from(app);
        let Some(record) = self.registry.gone(&app_id) else { return };
        let versions: BTreeMap<String, Option<u64>> = record
            .dirs
            .iter()
            .map(|dir| (dir.row.path.clone(), self.to_be_had(&dir.row.path)))
            .collect();
        let restored = self.registry.restore(&app_id, &self.roots, self.now);
        self.note(&format!("restore {app}: {restored:?}"));
        let Ok(restored) = restored else { return };
        let now = self.now;
        let model = self.models.entry(app.to_owned()).or_insert_with(|| Model::new(now));
        model.held = true;
        if let (None, Some(driver)) = (&model.driver, &record.row.app.driver) {
            model.driver = Some((driver.timeout_ms.map(Duration::from_millis), now));
        }
        for exec in record.row.executors.keys() {
            model.executors.entry(exec.clone()).or_insert(restored.position);
        }
        for (path, version) in versions {
            model.dirs.entry(path).or_insert(version);
        }
    }

    /// Somebody looks at what was registered.
    fn inspect(&mut self) {
        for info in self.registry.all() {
            for dir in info.dirs.keys() {
                // It looks once, soon after the registration; a tombstone is not looked at.
                if let Some(tree) = self.disk.get(dir.path())
                    && info.dirs[dir].identity.is_none()
                {
                    let facts = DirFacts { identity: Some(tree.identity()), unreadable: None };
                    self.registry.note_dir(&info.app_id, dir, facts);
                }
            }
        }
        self.note("inspect");
    }

    /// Somebody else removes a directory, and the service finds out.
    fn vanish(&mut self) {
        let path = DIRS[self.rng.usize(..DIRS.len())];
        if self.rng.bool() && self.disk.contains_key(path) {
            self.note(&format!("{path} vanishes"));
            let goes = |other: &str| other == path || other.starts_with(&format!("{path}/"));
            self.disk.retain(|other, _| !goes(other));
            for (dir, version) in self.models.values_mut().flat_map(|model| &mut model.dirs) {
                if goes(dir) {
                    *version = None;
                }
            }
        }
        for (app_id, dirs) in self.registry.without_driver() {
            let gone: Vec<LocalDir> = dirs
                .into_iter()
                .map(|(dir, _)| dir)
                .filter(|dir| {
                    !self.disk.contains_key(dir.path()) && !self.is_tombstoned(dir.path())
                })
                .collect();
            let lost = |exec: &Executor| exec.local_dirs.iter().all(|dir| gone.contains(dir));
            let before = self.registry.app(&app_id);
            let expired = self.registry.drop_vanished(&app_id, &gone, self.now);
            let app = app_id.as_str().to_owned();
            if let Some(expired) = expired {
                self.note(&format!("dropped {app}"));
                assert_eq!(expired.reason, Reason::DirsVanished);
                let before = before.expect("it was registered");
                assert!(
                    before.executors.values().all(|executor| lost(executor)),
                    "{app} is dropped"
                );
                self.models.remove(&app);
                self.submit(expired.record);
            } else if let (Some(before), Some(model)) = (before, self.models.get_mut(&app)) {
                for (exec, executor) in before.executors {
                    if lost(&executor) {
                        model.executors.remove(exec.as_str());
                    }
                }
            }
        }
    }

    /// Whether a removal waits for what lives, or goes itself, in its directory.
    fn waits(&self, running: &Running) -> bool {
        let dir = running.removal.dir();
        self.registry.claim(dir) == Some(Claim::Part) || self.registry.has_removal_in(dir)
    }

    /// Nothing happens any more but what has to: everything that was to go is gone, everything that is
    /// registered is there.
    fn settle(&mut self) {
        self.failing = false;
        self.note("settling");
        for _ in 0..10_000 {
            if self.running.is_empty() {
                break;
            }
            self.commit();
            // A directory that has a live one in it waits for that.
            self.now += 400 * SECOND;
            self.registry.handle_absence(self.now);
            (0..self.running.len()).rev().for_each(|at| {
                if at < self.running.len() {
                    self.advance(at);
                }
            });
            if self.running.iter().all(|running| self.waits(running)) {
                break;
            }
        }
        let waits: BTreeSet<String> = self
            .running
            .iter()
            .map(|running| {
                assert!(self.waits(running), "{:?} does not end", running.removal);
                beside(running.removal.dir().path(), running.removal.tombstone().as_str())
            })
            .collect();
        for path in self.disk.keys() {
            let left = path.contains(".shuffled-tombstone-") && !waits.contains(path);
            assert!(!left, "{path} is left over");
        }
        for (app, model) in &self.models {
            for (path, version) in &model.dirs {
                if let Some(version) = version {
                    let there = self.disk.get(path).map(|tree| (tree.version, tree.files));
                    assert_eq!(
                        there,
                        Some((*version, FILES)),
                        "{path} of {app} is not what it was"
                    );
                }
            }
        }
    }
}

fn longer(a: Option<Duration>, b: Option<Duration>) -> Option<Duration> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.max(b)),
        _ => None,
    }
}

fn beside(path: &str, name: &str) -> String {
    let (parent, _) = path.rsplit_once('/').expect("paths are absolute");
    format!("{parent}/{name}")
}

fn key(change: &Change) -> (String, bool) {
    match change {
        Change::App(app, row) => (format!("app {app}"), row.is_some()),
        Change::Executor(app, exec, row) => (format!("executor {app} {exec}"), row.is_some()),
        Change::Dir(app, path, row) => (format!("dir {app} {path}"), row.is_some()),
        Change::Record(id, row) => (format!("record {}", id.0), row.is_some()),
        Change::RecordDir(id, index, row) => {
            (format!("record-dir {} {index}", id.0), row.is_some())
        }
    }
}

fn run(seed: u64) {
    let mut world = World::new(seed);
    let steps = catch_unwind(AssertUnwindSafe(|| {
        for _ in 0..STEPS {
            world.step();
        }
        world.settle();
    }));
    if let Err(panic) = steps {
        eprintln!("{}", world.log);
        eprintln!(
            "seed {seed}: SHUFFLED_SIM_SEED={seed} cargo nextest run -p shuffled-service sim"
        );
        resume_unwind(panic);
    }
}

#[test]
fn no_schedule_loses_what_was_acknowledged_or_removes_what_lives() {
    let number = |name| std::env::var(name).ok().and_then(|text: String| text.parse().ok());
    if let Some(seed) = number("SHUFFLED_SIM_SEED") {
        return run(seed);
    }
    let full = number("PROPTEST_CASES").is_some_and(|cases: u64| cases >= 4096);
    (0..if full { 40 * SEEDS } else { SEEDS }).for_each(run);
}
