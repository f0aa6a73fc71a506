//! Sweeps: finds directories of Spark's that nobody owns, and hands them to the reaper if it shall.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::Mutex;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tracing::{info, warn};

use crate::apps::AppRegistry;
use crate::dirs::LocalRoots;
use crate::reaper::Reaper;
use crate::store::row::RecordId;
use crate::sweep::{self, Candidate, Found, SweepError, Verdict};

/// What a sweep needs.
#[derive(Debug)]
pub struct Sweeper {
    /// Who has which directory.
    pub registry: Arc<AppRegistry>,
    /// Where to look.
    pub roots: Arc<LocalRoots>,
    /// Who removes what is found.
    pub reaper: Arc<Reaper>,
    /// What is younger is left alone.
    pub older_than: Duration,
    /// Where the machine's processes are seen, if not in `/proc`.
    pub procfs: Option<PathBuf>,
    /// One sweep at a time: each looks through all local dirs.
    pub one_at_a_time: Mutex<()>,
}

/// When the service sweeps by itself, and what it does with what it finds.
#[derive(Debug, Clone, Copy)]
pub struct Schedule {
    /// When it starts.
    pub at_start: bool,
    /// And again after this long.
    pub every: Option<Duration>,
    /// Whether what is found is removed, or only logged.
    pub remove: bool,
}

/// What a sweep found, and what is removed of it.
#[derive(Debug)]
pub struct Swept {
    /// What was found.
    pub found: Found,
    /// The records of those that are removed, by their number among the candidates.
    pub removed: Vec<(usize, RecordId)>,
}

impl Sweeper {
    /// Sweeps by itself, for ever.
    pub async fn run(&self, schedule: Schedule) {
        if schedule.at_start {
            self.sweep_and_log(schedule.remove).await;
        }
        let Some(every) = schedule.every else { return };
        let mut ticks = interval_at(Instant::now() + every, every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.sweep_and_log(schedule.remove).await;
        }
    }

    async fn sweep_and_log(&self, remove: bool) {
        match self.sweep(self.older_than, remove).await {
            Ok(Swept { found, removed }) => {
                let removable = found.candidates.iter().filter(|c| c.verdict == Verdict::Removable);
                let bytes: u64 = removable.clone().map(|candidate| candidate.bytes).sum();
                info!(
                    unowned = found.candidates.len(),
                    removable = removable.count(),
                    bytes,
                    removing = removed.len(),
                    "Swept the local dirs"
                );
            }
            Err(error) => warn!(%error, "Cannot sweep the local dirs"),
        }
    }

    /// Looks for directories that nobody owns. With `remove`, those that may go do, in two steps like
    /// those of applications.
    pub async fn sweep(&self, older_than: Duration, remove: bool) -> Result<Swept, SweepError> {
        let _one = self.one_at_a_time.lock().await;
        let (registry, roots) = (self.registry.clone(), self.roots.clone());
        let procfs = self.procfs.clone();
        let find = move || {
            let claim = |dir: &_| registry.claim(dir);
            let ours = registry.tombstones();
            sweep::find(
                &roots,
                claim,
                |dir| ours.contains(dir.path()),
                older_than,
                SystemTime::now(),
                procfs.as_deref(),
            )
        };
        let found = tokio::task::spawn_blocking(find).await.map_err(|_| SweepError::Panicked)??;
        let removed = if remove { self.remove(&found.candidates) } else { Vec::new() };
        Ok(Swept { found, removed })
    }

    fn remove(&self, candidates: &[Candidate]) -> Vec<(usize, RecordId)> {
        let removable =
            candidates.iter().enumerate().filter(|(_, c)| c.verdict == Verdict::Removable);
        removable
            .map(|(number, candidate)| {
                let dir = candidate.dir.clone();
                warn!(%dir, bytes = candidate.bytes, owner = candidate.owner,
                    "Removing a directory that no application has");
                // Whoever registers it from now on turns the removal round, as with any other.
                let record = self.registry.record_sweep(dir, Some(candidate.identity));
                self.reaper.submit(record);
                (number, record)
            })
            .collect()
    }
}
