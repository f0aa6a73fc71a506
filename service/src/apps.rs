//! What is registered: applications, their drivers and executors.
//!
//! [`AppRegistry`] is the one owner. Its methods take and return owned values, so no guard of the
//! map ever leaves this file, crosses an await, or meets its own map. Lock order: an application's
//! entry, then the claims on directories, then the record of the gone; never the other way.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::SocketAddr;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use shuffle_protocol::layout::Layout;
use shuffle_protocol::{AppId, ExecId, HeartbeatTimeout};

use crate::dirs::LocalDir;
use crate::liveness::{DriverLife, Liveness, OrphanPolicy, Reason};

/// How many expired applications are remembered for those who ask what happened.
const GONE_REMEMBERED: usize = 1000;

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

/// What was read of one application. Shared with the connections that read.
#[derive(Debug, Default)]
pub struct Traffic {
    chunks: AtomicU64,
    bytes: AtomicU64,
}

impl Traffic {
    /// Counts a chunk that was sent whole.
    pub fn add_chunk(&self, bytes: u64) {
        self.chunks.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Tells a registration from an earlier one under the same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(u64);

#[derive(Debug)]
struct App {
    generation: Generation,
    since: Instant,
    life: Liveness,
    driver_addr: Option<SocketAddr>,
    executors: HashMap<ExecId, Arc<Executor>>,
    /// Every directory that was ever registered for the application, so that those of an executor
    /// that registered again elsewhere go too.
    dirs: BTreeSet<LocalDir>,
    traffic: Arc<Traffic>,
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

/// An application that left the registry, and what has to be removed.
#[derive(Debug)]
pub struct Expired {
    /// Who.
    pub app_id: AppId,
    /// Which registration of it.
    pub generation: Generation,
    /// Why.
    pub reason: Reason,
    /// All its directories, also those of executors that registered late.
    pub dirs: Vec<LocalDir>,
    /// How many executors were registered.
    pub executors: usize,
    /// The driver's last signs of life.
    pub driver: Option<DriverLife>,
    /// When this was decided.
    pub at: Instant,
}

/// What became of the directories of an expired application.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Removal {
    /// Directories that are gone.
    pub removed: usize,
    /// Directories left alone because a live application registered them too.
    pub kept: usize,
    /// Directories that could not be removed yet; tried again.
    pub failing: usize,
    /// Files unlinked.
    pub files: u64,
    /// Bytes in them.
    pub bytes: u64,
}

/// The record of an application that expired.
#[derive(Debug, Clone)]
pub struct Gone {
    /// Who.
    pub app_id: AppId,
    /// Why.
    pub reason: Reason,
    /// When.
    pub at: Instant,
    /// The same for people; the service never decides by it.
    pub wall: SystemTime,
    /// Time between the driver's last sign of life and the expiry.
    pub silent_for: Option<Duration>,
    /// Its timeout.
    pub timeout: Option<HeartbeatTimeout>,
    /// Executors it had.
    pub executors: usize,
    /// Directories it had.
    pub dirs: usize,
    /// What became of them so far.
    pub removal: Removal,
    generation: Generation,
}

impl Gone {
    fn of(app_id: &AppId, app: &App, reason: Reason, now: Instant) -> Self {
        let driver = app.life.driver();
        Self {
            app_id: app_id.clone(),
            reason,
            at: now,
            wall: SystemTime::now(),
            silent_for: driver.map(|driver| now.saturating_duration_since(driver.last_beat)),
            timeout: driver.map(|driver| driver.timeout),
            executors: app.executors.len(),
            dirs: app.dirs.len(),
            removal: Removal::default(),
            generation: app.generation,
        }
    }
}

/// One application, for those who list them.
#[derive(Debug, Clone)]
pub struct AppInfo {
    /// Who.
    pub app_id: AppId,
    /// When it was first registered.
    pub since: Instant,
    /// Its driver, if one registered.
    pub driver: Option<DriverLife>,
    /// Where the driver registered from.
    pub driver_addr: Option<SocketAddr>,
    /// When anything of it was last registered or read.
    pub last_use: Instant,
    /// When it is due unless something happens before.
    pub deadline: Option<Instant>,
    /// Its executors by id.
    pub executors: BTreeMap<ExecId, Arc<Executor>>,
    /// Directories that go with it.
    pub dirs: usize,
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
    /// Executors.
    pub executors: usize,
}

/// What live applications have of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// All of it: one registered it, or a directory that it is in, which goes with that application.
    Whole,
    /// Something in it. When that is gone, the rest is nobody's.
    Part,
}

/// All applications this service knows.
#[derive(Debug, Default)]
pub struct AppRegistry {
    apps: DashMap<AppId, App>,
    claims: Mutex<Claims>,
    gone: Mutex<VecDeque<Gone>>,
    next_generation: AtomicU64,
    /// Executors registered so far.
    registrations: AtomicU64,
    orphans: OrphanPolicy,
}

impl AppRegistry {
    /// An empty registry.
    #[must_use]
    pub fn new(orphans: OrphanPolicy) -> Self {
        Self { orphans, ..Self::default() }
    }

    /// A driver registers. Its clock starts now.
    pub fn register_driver(
        &self,
        app_id: &AppId,
        timeout: HeartbeatTimeout,
        from: SocketAddr,
        now: Instant,
    ) -> DriverRegistered {
        self.with_app(app_id, now, |app| {
            let before = app.life.driver().map(|driver| driver.timeout);
            let host_before = app.driver_addr.replace(from).map(|addr| addr.ip());
            app.life.handle_driver(timeout, now);
            match before {
                None => DriverRegistered::New,
                Some(before) if before == timeout && host_before == Some(from.ip()) => {
                    DriverRegistered::Repeated
                }
                Some(before) => DriverRegistered::Replaced(before),
            }
        })
    }

    /// A driver beats.
    pub fn heartbeat(&self, app_id: &AppId, now: Instant) -> Beat {
        let counted =
            self.apps.get_mut(app_id).is_some_and(|mut app| app.life.handle_heartbeat(now));
        if counted {
            Beat::Counted
        } else if self.gone(app_id).is_some() {
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
    ) {
        self.with_app(app_id, now, |app| {
            app.life.handle_use(now);
            let mut claims = lock(&self.claims);
            for dir in &executor.local_dirs {
                claims.add(Path::new(dir.path()), app.generation);
                app.dirs.insert(dir.clone());
            }
            self.registrations.fetch_add(1, Ordering::Release);
            app.executors.insert(exec_id, Arc::new(executor));
        });
    }

    /// Looks an executor up because its files are about to be read.
    pub fn use_executor(&self, app_id: &AppId, exec_id: &ExecId, now: Instant) -> Option<Found> {
        let mut app = self.apps.get_mut(app_id)?;
        let executor = app.executors.get(exec_id)?.clone();
        app.life.handle_use(now);
        Some(Found { executor, traffic: app.traffic.clone() })
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

    /// Takes every application that is due at `now` out of the registry and hands each to
    /// `expired`. Check and removal are one step: a heartbeat that comes before it keeps the
    /// application, one that comes after it finds it gone.
    pub fn expire_due(&self, now: Instant, mut expired: impl FnMut(Expired)) {
        let due = |app: &App| app.life.due(self.orphans, now);
        let candidates: Vec<AppId> = self
            .apps
            .iter()
            .filter(|app| due(app).is_some())
            .map(|app| app.key().clone())
            .collect();
        for app_id in candidates {
            let mut reason = None;
            let removed = self.apps.remove_if(&app_id, |_, app| {
                reason = due(app);
                // Within the entry, so that a heartbeat finds either the application or its record.
                if let Some(reason) = reason {
                    self.remember(Gone::of(&app_id, app, reason, now));
                }
                reason.is_some()
            });
            let (Some((app_id, app)), Some(reason)) = (removed, reason) else { continue };
            let mut claims = lock(&self.claims);
            app.dirs.iter().for_each(|dir| claims.release(Path::new(dir.path()), app.generation));
            drop(claims);
            expired(Expired {
                app_id,
                generation: app.generation,
                reason,
                executors: app.executors.len(),
                driver: app.life.driver().copied(),
                dirs: app.dirs.into_iter().collect(),
                at: now,
            });
        }
    }

    /// The service was away until `now`: nobody is held to what could not be heard.
    pub fn handle_absence(&self, now: Instant) {
        self.apps.iter_mut().for_each(|mut app| app.life.handle_absence(now));
    }

    /// Whether a live application registered `dir`, a directory in it, or one that it is in.
    #[must_use]
    pub fn claim(&self, dir: &LocalDir) -> Option<Claim> {
        lock(&self.claims).claim(Path::new(dir.path()))
    }

    /// Asks for the [`claim`](Self::claim) on `dir` again and again, which costs next to nothing while
    /// nobody registers.
    pub fn watch_claim<'a>(&'a self, dir: &'a LocalDir) -> impl FnMut() -> Option<Claim> + use<'a> {
        let mut last = None;
        move || {
            let registrations = self.registrations.load(Ordering::Acquire);
            match last {
                Some((of, claim)) if of == registrations => claim,
                _ => last.insert((registrations, self.claim(dir))).1,
            }
        }
    }

    /// Notes what became of directories of an expired application.
    pub fn note_removal(&self, generation: Generation, note: impl FnOnce(&mut Removal)) {
        let mut gone = lock(&self.gone);
        if let Some(record) = gone.iter_mut().find(|record| record.generation == generation) {
            note(&mut record.removal);
        }
    }

    /// The latest record of an application that expired.
    #[must_use]
    pub fn gone(&self, app_id: &AppId) -> Option<Gone> {
        lock(&self.gone).iter().rev().find(|record| record.app_id == *app_id).cloned()
    }

    /// The records of the last applications that expired, oldest first.
    #[must_use]
    pub fn all_gone(&self) -> Vec<Gone> {
        lock(&self.gone).iter().cloned().collect()
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
            executors: counts.executors + app.executors.len(),
        })
    }

    fn info(&self, app_id: &AppId, app: &App) -> AppInfo {
        AppInfo {
            app_id: app_id.clone(),
            since: app.since,
            driver: app.life.driver().copied(),
            driver_addr: app.driver_addr,
            last_use: app.life.last_use(),
            deadline: app.life.deadline(self.orphans),
            executors: app.executors.iter().map(|(id, exec)| (id.clone(), exec.clone())).collect(),
            dirs: app.dirs.len(),
            chunks: app.traffic.chunks.load(Ordering::Relaxed),
            bytes: app.traffic.bytes.load(Ordering::Relaxed),
        }
    }

    fn remember(&self, record: Gone) {
        let mut gone = lock(&self.gone);
        if gone.len() == GONE_REMEMBERED {
            gone.pop_front();
        }
        gone.push_back(record);
    }

    fn with_app<T>(&self, app_id: &AppId, now: Instant, change: impl FnOnce(&mut App) -> T) -> T {
        let mut app = match self.apps.entry(app_id.clone()) {
            Entry::Occupied(known) => known.into_ref(),
            Entry::Vacant(vacant) => vacant.insert(App {
                generation: Generation(self.next_generation.fetch_add(1, Ordering::Relaxed)),
                since: now,
                life: Liveness::new(now),
                driver_addr: None,
                executors: HashMap::new(),
                dirs: BTreeSet::new(),
                traffic: Arc::default(),
            }),
        };
        change(&mut app)
    }
}

/// Which live applications registered which directory. Paths are in the order of their components,
/// so what lies below a directory follows it.
#[derive(Debug, Default)]
struct Claims(BTreeMap<PathBuf, BTreeSet<Generation>>);

impl Claims {
    fn add(&mut self, dir: &Path, owner: Generation) {
        self.0.entry(dir.to_owned()).or_default().insert(owner);
    }

    fn release(&mut self, dir: &Path, owner: Generation) {
        if let Some(owners) = self.0.get_mut(dir) {
            owners.remove(&owner);
            if owners.is_empty() {
                self.0.remove(dir);
            }
        }
    }

    fn claim(&self, dir: &Path) -> Option<Claim> {
        if dir.ancestors().any(|above| self.0.contains_key(above)) {
            return Some(Claim::Whole);
        }
        let (next, _) = self.0.range::<Path, _>((Bound::Excluded(dir), Bound::Unbounded)).next()?;
        next.starts_with(dir).then_some(Claim::Part)
    }
}

/// No code panics while it holds one of these locks half-way through a change, so what a panicking
/// thread left behind is whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dirs::LocalRoots;

    const TIMEOUT: Duration = Duration::from_secs(120);
    const LATER: Duration = Duration::from_secs(121);

    fn addr() -> SocketAddr {
        "127.0.0.1:4000".parse().unwrap()
    }

    fn executor(dirs: &[&str]) -> Executor {
        let roots = LocalRoots::unrestricted().unwrap();
        let local_dirs: Vec<_> = dirs.iter().map(|dir| roots.admit(dir).unwrap()).collect();
        Executor {
            layout: Layout::new(local_dirs.len(), 64).ok(),
            local_dirs,
            sub_dirs_per_local_dir: 64,
            shuffle_manager: "sort".into(),
        }
    }

    fn expire(registry: &AppRegistry, now: Instant) -> Vec<Expired> {
        let mut all = Vec::new();
        registry.expire_due(now, |expired| all.push(expired));
        all
    }

    fn paths(expired: &Expired) -> Vec<&str> {
        expired.dirs.iter().map(LocalDir::path).collect()
    }

    #[test]
    fn c03_all_directories_go_also_of_late_and_of_replaced_executors() {
        let registry = AppRegistry::default();
        let (app, start) = (AppId::from("a"), Instant::now());
        registry.register_driver(&app, TIMEOUT.into(), addr(), start);
        let register = |exec: &str, dirs: &[&str], at| {
            registry.register_executor(&app, exec.into(), executor(dirs), at)
        };
        register("1", &["/d0/blockmgr-1", "/d1/blockmgr-1"], start);
        register("1", &["/d0/blockmgr-2"], start);
        register("2", &["/d1/blockmgr-3"], start + TIMEOUT);
        let gone = expire(&registry, start + LATER);
        assert_eq!(gone.len(), 1);
        assert_eq!(
            paths(&gone[0]),
            ["/d0/blockmgr-1", "/d0/blockmgr-2", "/d1/blockmgr-1", "/d1/blockmgr-3"]
        );
        assert_eq!(registry.counts(), Counts::default());
        assert!(expire(&registry, start + LATER).is_empty(), "once");
    }

    #[test]
    fn c15_a_heartbeat_before_the_check_keeps_the_application_and_one_after_it_is_told() {
        let registry = AppRegistry::default();
        let (app, start) = (AppId::from("a"), Instant::now());
        assert_eq!(registry.heartbeat(&app, start), Beat::Unknown);
        registry.register_driver(&app, TIMEOUT.into(), addr(), start);
        assert_eq!(registry.heartbeat(&app, start + LATER), Beat::Counted);
        assert!(expire(&registry, start + LATER).is_empty());
        assert_eq!(expire(&registry, start + LATER + LATER).len(), 1);
        assert_eq!(registry.heartbeat(&app, start + LATER + LATER), Beat::Expired);
        assert!(!registry.contains(&app), "a late heartbeat registers nothing");
    }

    #[test]
    fn a_registration_that_changes_nothing_is_told_from_one_that_does() {
        let registry = AppRegistry::default();
        let (app, now) = (AppId::from("a"), Instant::now());
        let elsewhere: SocketAddr = "127.0.0.2:4000".parse().unwrap();
        let other_port: SocketAddr = "127.0.0.1:4001".parse().unwrap();
        let timeout = HeartbeatTimeout::from(TIMEOUT);
        let register = |timeout, from| registry.register_driver(&app, timeout, from, now);
        assert_eq!(register(timeout, addr()), DriverRegistered::New);
        assert_eq!(register(timeout, other_port), DriverRegistered::Repeated);
        assert_eq!(register(timeout, elsewhere), DriverRegistered::Replaced(timeout));
        assert_eq!(register(LATER.into(), elsewhere), DriverRegistered::Replaced(timeout));
    }

    #[test]
    fn c13_a_directory_that_a_live_application_has_too_is_claimed() {
        let registry = AppRegistry::default();
        let start = Instant::now();
        let (a, b) = (AppId::from("a"), AppId::from("b"));
        registry.register_driver(&a, TIMEOUT.into(), addr(), start);
        registry.register_driver(&b, HeartbeatTimeout::Never, addr(), start);
        registry.register_executor(&a, "1".into(), executor(&["/d/blockmgr-x"]), start);
        registry.register_executor(&b, "1".into(), executor(&["/d/blockmgr-x"]), start);
        let gone = expire(&registry, start + LATER);
        assert_eq!(registry.claim(&gone[0].dirs[0]), Some(Claim::Whole));
        registry.register_driver(&b, TIMEOUT.into(), addr(), start);
        let gone = expire(&registry, start + LATER);
        assert_eq!(registry.claim(&gone[0].dirs[0]), None);
    }

    #[test]
    fn c13_so_is_one_that_lies_in_a_live_applications_directory_or_around_it() {
        let registry = AppRegistry::default();
        let roots = LocalRoots::unrestricted().unwrap();
        let app = AppId::from("a");
        let claimed = executor(&["/d/blockmgr-a/blockmgr-b"]);
        registry.register_executor(&app, "1".into(), claimed, Instant::now());
        let claim = |dir: &str| registry.claim(&roots.admit(dir).unwrap());
        assert_eq!(claim("/d/blockmgr-a/blockmgr-b"), Some(Claim::Whole));
        assert_eq!(claim("/d/blockmgr-a"), Some(Claim::Part), "around it");
        assert_eq!(claim("/d/blockmgr-a/blockmgr-b/x/blockmgr-c"), Some(Claim::Whole), "in it");
        assert_eq!(claim("/d/blockmgr-a/blockmgr-b0"), None);
        assert_eq!(claim("/d/blockmgr-a-b"), None);
        assert_eq!(claim("/blockmgr-d"), None);
    }

    #[test]
    fn c14_who_watches_a_directory_sees_it_registered() {
        let registry = AppRegistry::default();
        let dir = executor(&["/d/blockmgr-a"]).local_dirs.remove(0);
        let mut claim = registry.watch_claim(&dir);
        let register = |dir| {
            registry.register_executor(&"a".into(), "1".into(), executor(&[dir]), Instant::now());
        };
        assert_eq!(claim(), None);
        register("/d/blockmgr-b");
        assert_eq!(claim(), None);
        register("/d/blockmgr-a");
        assert_eq!(claim(), Some(Claim::Whole));
        assert_eq!(claim(), Some(Claim::Whole));
    }

    #[test]
    fn an_application_that_comes_back_is_another_one() {
        let registry = AppRegistry::default();
        let (app, start) = (AppId::from("a"), Instant::now());
        registry.register_driver(&app, TIMEOUT.into(), addr(), start);
        registry.register_executor(&app, "1".into(), executor(&["/d/blockmgr-x"]), start);
        let first = expire(&registry, start + LATER).remove(0);
        registry.register_executor(&app, "2".into(), executor(&["/d/blockmgr-x"]), start + LATER);
        assert_eq!(registry.claim(&first.dirs[0]), Some(Claim::Whole), "it is in use again");
        registry.note_removal(first.generation, |removal| removal.kept += 1);
        assert_eq!(registry.gone(&app).unwrap().removal.kept, 1);
        let exec = ExecId::from("1");
        assert!(registry.use_executor(&app, &exec, start + LATER).is_none());
    }

    #[test]
    fn c05_what_is_remembered_of_the_gone_is_bounded() {
        let registry = AppRegistry::default();
        let start = Instant::now();
        for number in 0..GONE_REMEMBERED + 500 {
            let app = AppId::from(format!("app-{number}"));
            registry.register_driver(&app, TIMEOUT.into(), addr(), start);
        }
        assert_eq!(expire(&registry, start + LATER).len(), GONE_REMEMBERED + 500);
        assert_eq!(registry.all_gone().len(), GONE_REMEMBERED);
        assert!(lock(&registry.claims).0.is_empty());
    }

    /// C15 with real threads: whoever heard that a heartbeat counted finds the application alive
    /// until its timeout has passed once more.
    #[test]
    fn c15_no_counted_heartbeat_is_lost_to_a_check() {
        let registry = AppRegistry::default();
        let (app, start) = (AppId::from("a"), Instant::now());
        for round in 0..2000u32 {
            let due = start + LATER * (2 * round + 1);
            registry.register_driver(&app, TIMEOUT.into(), addr(), due - LATER);
            let (beat, expired) = std::thread::scope(|scope| {
                let beat = scope.spawn(|| registry.heartbeat(&app, due));
                let check = scope.spawn(|| expire(&registry, due).len());
                (beat.join().unwrap(), check.join().unwrap())
            });
            match beat {
                Beat::Counted => assert_eq!(expired, 0, "round {round}"),
                Beat::Expired => assert_eq!(expired, 1, "round {round}"),
                Beat::Unknown => panic!("round {round}: it was registered"),
            }
        }
    }
}
