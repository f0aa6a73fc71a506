//! The store and what is said of it: opened at the start, written by a thread of its own, closed at the
//! end.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use tracing::{error, info, warn};

use crate::apps::Left;
use crate::metrics::Metrics;
use crate::store::row::WallMillis;
use crate::store::{
    Damage, Journal, Opened, PastDamage, Store, StoreError, StoreObserver, WriterHandle,
};

/// How long the end of the service waits for the last rows to be written.
const CLOSE: Duration = Duration::from_secs(10);

/// The journal, and the thread that writes it.
#[derive(Debug)]
pub struct State {
    journal: Arc<Journal>,
    status: Arc<StoreStatus>,
    writer: Option<WriterHandle>,
}

/// How the store is.
#[derive(Debug)]
pub struct StoreStatus {
    /// Where it is; nothing where nothing is kept.
    pub dir: Option<PathBuf>,
    /// What was wrong with it at this start.
    pub damage: Option<Damage>,
    /// What was wrong with it at earlier ones.
    pub past: Vec<PastDamage>,
    /// When this process began to know anything.
    pub started: WallMillis,
    failing: Mutex<Option<String>>,
    journal: Arc<Journal>,
}

impl StoreStatus {
    /// Why what is acknowledged now is in memory only, although there is a state directory.
    #[must_use]
    pub fn failing(&self) -> Option<String> {
        let failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let is_stuck = self.dir.is_some() && self.journal.is_memory_only();
        failing.or_else(|| is_stuck.then(|| "its disk does not answer".to_owned()))
    }

    /// What an operator should know about it, a line each; nothing when all is well.
    #[must_use]
    pub fn complaints(&self) -> Vec<String> {
        let damage = self.damage.as_ref().map(|damage| {
            format!(
                "the store was damaged and set aside as {}: {}; {}",
                damage.set_aside.display(),
                damage.why,
                lost(damage.lost_rows),
            )
        });
        let failing = self.failing().map(|error| {
            format!("the store cannot be written, registrations are in memory only: {error}")
        });
        damage.into_iter().chain(failing).collect()
    }

    fn set_failing(&self, error: Option<String>) {
        *self.failing.lock().unwrap_or_else(PoisonError::into_inner) = error;
    }
}

/// What a damage cost.
#[must_use]
pub fn lost(rows: Option<u64>) -> String {
    match rows {
        Some(0) => "no row was lost".to_owned(),
        Some(rows) => format!("{rows} rows were lost"),
        None => "all that was registered was lost".to_owned(),
    }
}

impl State {
    /// Opens the store, if there is to be one, and gives what an earlier run left.
    pub fn open(dir: Option<&Path>, metrics: Arc<Metrics>) -> Result<(Self, Left), StoreError> {
        let journal = match dir {
            Some(_) => Arc::new(Journal::new()),
            None => Arc::new(Journal::memory_only()),
        };
        let mut status = StoreStatus {
            dir: dir.map(Path::to_owned),
            journal: journal.clone(),
            damage: None,
            past: Vec::new(),
            started: wall_now(),
            failing: Mutex::default(),
        };
        let Some(dir) = dir else {
            warn!("No shuffled.state.dir configured: a restart forgets what is registered");
            return Ok((Self { journal, status: Arc::new(status), writer: None }, Left::default()));
        };
        let Opened { store, loaded, damage, past } = Store::open(dir)?;
        if let Some(damage) = &damage {
            metrics.store_damaged.set(1);
            error!(
                set_aside = %damage.set_aside.display(),
                why = damage.why,
                "The store was damaged and set aside; {}", lost(damage.lost_rows)
            );
        }
        metrics.store_writable.set(1);
        status.damage = damage;
        status.past = past;
        let status = Arc::new(status);
        let observer = Observer { status: status.clone(), metrics };
        let writer = store.spawn_writer(journal.clone(), observer);
        Ok((Self { journal, status, writer: Some(writer) }, loaded))
    }

    /// Where changes are recorded.
    #[must_use]
    pub fn journal(&self) -> &Arc<Journal> {
        &self.journal
    }

    /// How the store is.
    #[must_use]
    pub fn status(&self) -> &Arc<StoreStatus> {
        &self.status
    }

    /// Writes what is left and closes the store.
    pub async fn close(mut self) {
        self.journal.close();
        let Some(writer) = self.writer.take() else { return };
        let joined = tokio::task::spawn_blocking(move || writer.join());
        match tokio::time::timeout(CLOSE, joined).await {
            Ok(_) => info!("Closed the store"),
            Err(_) => warn!("The store's disk does not answer; what was acknowledged is on it"),
        }
    }
}

impl Drop for State {
    /// Of a service that did not run.
    fn drop(&mut self) {
        self.journal.close();
    }
}

struct Observer {
    status: Arc<StoreStatus>,
    metrics: Arc<Metrics>,
}

impl StoreObserver for Observer {
    fn failing(&self, error: &StoreError) {
        self.metrics.store_failures.inc();
        self.metrics.store_writable.set(0);
        if self.status.failing.lock().unwrap_or_else(PoisonError::into_inner).is_none() {
            error!(%error, "The store cannot be written: registrations are in memory only");
        }
        self.status.set_failing(Some(error.to_string()));
    }

    fn recovered(&self) {
        self.status.set_failing(None);
        info!("The store is written again, with all that was in memory only");
    }

    fn committed(&self, _changes: usize, took: Duration) {
        self.metrics.store_commits.inc();
        self.metrics.store_writable.set(1);
        self.metrics.store_commit_latency.observe(took.as_secs_f64() * 1000.0);
    }
}

/// For people and the store; nothing expires by it.
#[must_use]
pub fn wall_now() -> WallMillis {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
