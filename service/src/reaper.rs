//! Removes the directories of what left the registry: does what [`Removal`] says, disks side by side.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{error, info, warn};

use crate::apps::{AppRegistry, Record, RecordedDir};
use crate::dirs::{LocalRoots, MeasureLimits, Measured};
use crate::disk::{DiskTaskPanicked, Disks};
use crate::metrics::Metrics;
use crate::removal::{Action, Outcome, Removal};
use crate::store::Durability;
use crate::store::row::RecordId;

/// A registration that brings directories back seldom comes alone.
const AFTER_A_CLAIM: Duration = Duration::from_millis(100);

/// Takes records and removes their directories.
#[derive(Debug)]
pub struct Reaper {
    queue: mpsc::UnboundedSender<RecordId>,
}

/// The reaper's working half.
#[derive(Debug)]
pub struct ReaperTask {
    queue: tokio::sync::Mutex<mpsc::UnboundedReceiver<RecordId>>,
    work: Arc<Work>,
}

/// What the removal of directories needs.
#[derive(Debug)]
pub struct Work {
    /// Who has which directory, and the records.
    pub registry: Arc<AppRegistry>,
    /// Where directories may be removed.
    pub roots: Arc<LocalRoots>,
    /// Where blocking work waits for its disk.
    pub disks: Arc<Disks>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// How long directories can be brought back.
    pub grace: Duration,
}

impl Reaper {
    /// A reaper and the task that does its work.
    #[must_use]
    pub fn new(work: Work) -> (Arc<Self>, Arc<ReaperTask>) {
        let (queue, receiver) = mpsc::unbounded_channel();
        let task = ReaperTask { queue: tokio::sync::Mutex::new(receiver), work: Arc::new(work) };
        (Arc::new(Self { queue }), Arc::new(task))
    }

    /// The directories of this record go from now on. Returns at once.
    pub fn submit(&self, record: RecordId) {
        // The task lives as long as the service; at its end nobody is left to remove anything.
        let _ = self.queue.send(record);
    }
}

impl ReaperTask {
    /// Removes what is submitted, for ever, and first what is unfinished. Only one at a time runs;
    /// another waits for its end.
    pub async fn run(&self) {
        let mut queue = self.queue.lock().await;
        let mut running = JoinSet::new();
        let mut known = HashSet::new();
        let begin = |running: &mut JoinSet<RecordId>, known: &mut HashSet<RecordId>, record| {
            if known.insert(record) {
                running.spawn(self.work.clone().remove_all(record));
            }
        };
        // Of an earlier run of the service, or of this task, which a panic ended.
        for record in self.work.registry.unfinished() {
            begin(&mut running, &mut known, record);
        }
        loop {
            tokio::select! {
                record = queue.recv() => match record {
                    Some(record) => begin(&mut running, &mut known, record),
                    None => return,
                },
                Some(done) = running.join_next() => match done {
                    Ok(record) => {
                        known.remove(&record);
                    }
                    // The supervisor counts it and starts this anew, with all that is unfinished.
                    Err(failed) if failed.is_panic() => resume_unwind(failed.into_panic()),
                    Err(_cancelled) => {}
                },
            }
        }
    }
}

impl Work {
    async fn remove_all(self: Arc<Self>, id: RecordId) -> RecordId {
        let Some(record) = self.registry.record(id) else { return id };
        let not_before = Instant::now() + self.grace_left(&record);
        let mut running = JoinSet::new();
        for (index, RecordedDir { dir, row }) in record.dirs.iter().enumerate() {
            let removal = dir
                .clone()
                .and_then(|dir| Removal::new(id, index, dir, row, not_before.into_std()));
            if let Some(removal) = removal {
                running.spawn(self.clone().remove(removal));
            }
        }
        while let Some(done) = running.join_next().await {
            if let Err(failed) = done
                && failed.is_panic()
            {
                resume_unwind(failed.into_panic());
            }
        }
        let app = record.app_id.as_ref().map(tracing::field::display);
        info!(app, record = id.0, "All directories of the record are dealt with");
        id
    }

    /// What is left of the time in which the directories can be brought back. The clock may have been
    /// set meanwhile; they never wait longer than at first.
    fn grace_left(&self, record: &Record) -> Duration {
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis(record.row.at);
        let passed = SystemTime::now().duration_since(at).unwrap_or_default();
        self.grace.saturating_sub(passed)
    }

    /// Removes one directory, however often it takes.
    async fn remove(self: Arc<Self>, mut removal: Removal) {
        let _pending = Pending::new(&self.metrics);
        let registry = self.registry.clone();
        let mut claims = registry.claims_changed();
        loop {
            let now = || Instant::now().into_std();
            let panicked = match removal.poll(&registry, now()) {
                Action::Sync => {
                    // Where it cannot be written, the log has the record; a full disk must not keep
                    // directories from going.
                    if registry.settled().await == Durability::MemoryOnly {
                        tracing::debug!(dir = %removal.dir(), "Removing without a durable record");
                    }
                    None
                }
                Action::Entomb(expected) => {
                    // Renaming waits for no other removal of the disk.
                    let entombed = self.call(&removal, move |roots, dir, tombstone| {
                        roots.entomb(dir, tombstone, expected)
                    });
                    let entombed = entombed.await;
                    entombed.map(|result| removal.handle_entombed(&registry, result, now())).err()
                }
                Action::Exhume => {
                    let exhumed =
                        self.call(&removal, |roots, dir, tombstone| roots.exhume(dir, tombstone));
                    let exhumed = exhumed.await;
                    exhumed.map(|result| removal.handle_exhumed(&registry, result, now())).err()
                }
                Action::WaitUntil(at) => {
                    tokio::select! {
                        () = sleep_until(at.into()) => {}
                        Ok(()) = claims.changed() => sleep(AFTER_A_CLAIM).await,
                    }
                    None
                }
                Action::Measure { in_place } => {
                    let (roots, dir) = (self.roots.clone(), removal.dir().clone());
                    let tombstone = (!in_place).then(|| removal.tombstone().clone());
                    let measure =
                        move || {
                            let limits = MeasureLimits::default();
                            roots.measure(&dir, tombstone.as_ref(), limits, || {
                                ControlFlow::Continue(())
                            })
                        };
                    let measured = self.disks.disk(removal.dir()).remove(measure).await;
                    measured
                        .map(|result| {
                            removal.handle_measured(result.unwrap_or_else(|error| {
                                warn!(dir = %removal.dir(), %error, "Cannot count files");
                                Measured::default()
                            }));
                        })
                        .err()
                }
                Action::Unlink => {
                    let (roots, dir) = (self.roots.clone(), removal.dir().clone());
                    let tombstone = removal.tombstone().clone();
                    let unlink = move || {
                        roots.remove_tombstone(&dir, &tombstone, |_| ControlFlow::Continue(()))
                    };
                    let removed = self.disks.disk(removal.dir()).remove(unlink).await;
                    self.removed(&mut removal, removed)
                }
                Action::EmptyInPlace => {
                    let (roots, dir) = (self.roots.clone(), removal.dir().clone());
                    let registry = registry.clone();
                    let empty = move || {
                        let mut claim = registry.watch_claim(&dir);
                        roots.remove_tree(&dir, |_| match claim() {
                            Some(_) => ControlFlow::Break(()),
                            None => ControlFlow::Continue(()),
                        })
                    };
                    let removed = self.disks.disk(removal.dir()).remove(empty).await;
                    self.removed(&mut removal, removed)
                }
                Action::RetryAt(at, error) => {
                    self.metrics.removal_failures.inc();
                    warn!(dir = %removal.dir(), error, "Failed to delete directory, trying again later");
                    sleep_until(at.into()).await;
                    None
                }
                Action::Done(outcome) => return self.done(&removal, &outcome),
            };
            if let Some(panicked) = panicked {
                self.metrics.task_restart("removal");
                error!(dir = %removal.dir(), "A removal panicked and is tried again");
                removal.handle_failure(&registry, panicked.to_string(), now());
            }
        }
    }

    /// Runs a short call on the disk of the directory.
    async fn call<T: Send + 'static>(
        &self,
        removal: &Removal,
        work: impl FnOnce(&LocalRoots, &crate::dirs::LocalDir, &crate::dirs::Tombstone) -> T
        + Send
        + 'static,
    ) -> Result<T, DiskTaskPanicked> {
        let (roots, dir) = (self.roots.clone(), removal.dir().clone());
        let tombstone = removal.tombstone().clone();
        self.disks.run(removal.dir(), move || work(&roots, &dir, &tombstone)).await
    }

    fn removed(
        &self,
        removal: &mut Removal,
        result: Result<Result<crate::dirs::Removed, crate::dirs::RemoveError>, DiskTaskPanicked>,
    ) -> Option<DiskTaskPanicked> {
        let result = match result {
            Ok(result) => result,
            Err(panicked) => return Some(panicked),
        };
        let removed = match &result {
            Ok(removed) => *removed,
            Err(error) => error.removed(),
        };
        self.metrics.files_removed.inc_by(removed.files);
        removal.handle_removed(&self.registry, result, Instant::now().into_std());
        None
    }

    fn done(&self, removal: &Removal, outcome: &Outcome) {
        let dir = removal.dir();
        match outcome {
            Outcome::Removed => {
                self.metrics.dirs_removed.inc();
                info!(%dir, "Successfully cleaned up directory");
            }
            Outcome::Kept(why) => {
                self.metrics.dirs_kept.inc();
                warn!(%dir, why, "Keeping a directory that was to be removed");
            }
            Outcome::Restored => {
                self.metrics.dirs_restored.inc();
                info!(%dir, "Brought a directory back");
            }
        }
    }
}

/// Counts a directory as waiting for its removal while it lives.
struct Pending(prometheus_client::metrics::gauge::Gauge);

impl Pending {
    fn new(metrics: &Metrics) -> Self {
        metrics.removals_pending.inc();
        Self(metrics.removals_pending.clone())
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.0.dec();
    }
}
