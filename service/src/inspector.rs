//! Looks at registered directories: whether they are there, the same as before, and readable.
//!
//! A registration is answered without a look at the disk, which may be stuck. What a look finds
//! afterwards is noted in the registry: the identity, so that another directory with the same path is
//! never taken for it, and what keeps this service from reading it (complaint C08).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use shuffle_protocol::AppId;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout_at};
use tracing::{debug, info, warn};

use crate::apps::{AppRegistry, DirFacts, Left};
use crate::cleaner::Cleaner;
use crate::dirs::{LocalDir, LocalRoots, OpenError, Probe};
use crate::disk::Disks;
use crate::metrics::Metrics;
use crate::store::row::Identity;

/// Between two looks for directories that vanished, of applications that no driver watches over.
const EVERY: Duration = Duration::from_secs(600);
/// How long a start waits for the disks. What a stuck one has is taken as unchanged.
const START: Duration = Duration::from_secs(10);

/// What looking at directories needs.
#[derive(Debug)]
pub struct Inspector {
    /// Where what is found is noted.
    pub registry: Arc<AppRegistry>,
    /// Where directories may be looked at.
    pub roots: Arc<LocalRoots>,
    /// Where blocking work waits for its disk.
    pub disks: Arc<Disks>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
}

impl Inspector {
    /// Looks at directories that were just registered.
    pub async fn inspect(self: Arc<Self>, app_id: AppId, dirs: Vec<LocalDir>) {
        for dir in dirs {
            let facts = match self.probe(&dir).await {
                Some(Ok(probe)) => facts(&probe),
                // An executor may make it later; Spark does not look, either.
                Some(Err(OpenError::NotFound { .. })) | None => continue,
                Some(Err(error)) => {
                    DirFacts { identity: None, unreadable: Some(error.to_string()) }
                }
            };
            if let Some(why) = &facts.unreadable {
                self.metrics.unreadable_dirs.inc();
                warn!(app = %app_id, %dir, why, "Cannot read a directory that was registered");
            }
            self.registry.note_dir(&app_id, &dir, facts);
        }
    }

    /// Drops what belongs to directories that vanished, of applications without driver, for ever.
    pub async fn run(&self, cleaner: &Cleaner) {
        let mut ticks = interval_at(Instant::now() + EVERY, EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.drop_vanished(cleaner).await;
        }
    }

    /// The same once.
    pub async fn drop_vanished(&self, cleaner: &Cleaner) {
        for (app_id, dirs) in self.registry.without_driver() {
            let mut vanished = Vec::new();
            for (dir, facts) in dirs {
                if self.is_lost(&dir, facts.identity).await {
                    vanished.push(dir);
                }
            }
            if vanished.is_empty() {
                continue;
            }
            let now = Instant::now().into_std();
            if let Some(expired) = self.registry.drop_vanished(&app_id, &vanished, now) {
                cleaner.handle_expired([expired], now);
            }
        }
    }

    /// Which of the directories that an earlier run left are not there any more, or others.
    pub async fn find_lost(self: &Arc<Self>, left: &Left) -> BTreeSet<String> {
        let deadline = Instant::now() + START;
        let mut running = JoinSet::new();
        // By disk, so that a stuck one leaves the others' answers.
        let mut by_root: std::collections::BTreeMap<String, Vec<_>> = Default::default();
        for (_, path, row) in &left.dirs {
            if let Ok(dir) = self.roots.admit(&row.named) {
                let of = by_root.entry(dir.root().to_owned()).or_default();
                of.push((path.clone(), dir, row.identity));
            }
        }
        for dirs in by_root.into_values() {
            let Some((_, first, _)) = dirs.first().cloned() else { continue };
            let roots = self.roots.clone();
            let disk = self.disks.disk(&first);
            running.spawn(async move {
                let look = move || {
                    let lost = |dir: &LocalDir, before| judge(&roots.probe(dir), before);
                    let lost = dirs.into_iter().filter(|(_, dir, before)| lost(dir, *before));
                    lost.map(|(path, ..)| path).collect::<Vec<_>>()
                };
                disk.run(look).await.unwrap_or_default()
            });
        }
        let mut lost = BTreeSet::new();
        loop {
            match timeout_at(deadline, running.join_next()).await {
                Ok(Some(done)) => lost.extend(done.unwrap_or_default()),
                Ok(None) => break,
                Err(_) => {
                    warn!("A disk does not answer; what was registered on it is taken as it was");
                    running.detach_all();
                    break;
                }
            }
        }
        if !lost.is_empty() {
            info!(directories = lost.len(), "Directories of an earlier run are gone or others now");
            debug!(?lost, "They are");
        }
        lost
    }

    async fn is_lost(&self, dir: &LocalDir, before: Option<Identity>) -> bool {
        self.probe(dir).await.is_some_and(|probe| judge(&probe, before))
    }

    async fn probe(&self, dir: &LocalDir) -> Option<Result<Probe, OpenError>> {
        let (roots, looked_at) = (self.roots.clone(), dir.clone());
        self.disks.run(dir, move || roots.probe(&looked_at)).await.ok()
    }
}

/// Whether a directory is not there any more, or another one is. What cannot be told is neither.
fn judge(probe: &Result<Probe, OpenError>, before: Option<Identity>) -> bool {
    match probe {
        Ok(probe) => before.is_some_and(|before| before != probe.identity),
        Err(OpenError::NotFound { .. } | OpenError::NotADirectory { .. }) => true,
        Err(_) => false,
    }
}

fn facts(probe: &Probe) -> DirFacts {
    DirFacts {
        identity: Some(probe.identity),
        unreadable: probe.readable.as_ref().err().map(ToString::to_string),
    }
}
