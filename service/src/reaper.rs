//! Removes the directories of applications that expired.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tracing::{info, warn};

use crate::apps::{AppRegistry, Claim, Expired, Generation, Removal};
use crate::dirs::{LocalDir, LocalRoots, RemoveError, Removed};
use crate::disk::Disks;
use crate::metrics::Metrics;

/// Between two attempts on a directory that would not go, doubled each time.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_LAST: Duration = Duration::from_secs(300);

/// Takes expired applications and removes their directories, disks side by side.
#[derive(Debug)]
pub struct Reaper {
    queue: mpsc::UnboundedSender<Expired>,
}

/// The reaper's working half.
#[derive(Debug)]
pub struct ReaperTask {
    queue: tokio::sync::Mutex<mpsc::UnboundedReceiver<Expired>>,
    work: Arc<Work>,
}

#[derive(Debug)]
struct Work {
    registry: Arc<AppRegistry>,
    roots: Arc<LocalRoots>,
    disks: Arc<Disks>,
    metrics: Arc<Metrics>,
}

impl Reaper {
    /// A reaper and the task that does its work.
    #[must_use]
    pub fn new(
        registry: Arc<AppRegistry>,
        roots: Arc<LocalRoots>,
        disks: Arc<Disks>,
        metrics: Arc<Metrics>,
    ) -> (Arc<Self>, Arc<ReaperTask>) {
        let (queue, receiver) = mpsc::unbounded_channel();
        let work = Arc::new(Work { registry, roots, disks, metrics });
        let task = ReaperTask { queue: tokio::sync::Mutex::new(receiver), work };
        (Arc::new(Self { queue }), Arc::new(task))
    }

    /// The directories of `expired` go from now on. Returns at once.
    pub fn submit(&self, expired: Expired) {
        // The task lives as long as the service; at its end nobody is left to remove anything.
        let _ = self.queue.send(expired);
    }
}

impl ReaperTask {
    /// Removes what is submitted, for ever. Only one at a time runs; another waits for its end.
    pub async fn run(&self) {
        let mut queue = self.queue.lock().await;
        let mut running = JoinSet::new();
        loop {
            tokio::select! {
                expired = queue.recv() => match expired {
                    Some(expired) => {
                        let work = self.work.clone();
                        running.spawn(async move { work.remove_all(expired).await });
                    }
                    None => return,
                },
                Some(_) = running.join_next() => {}
            }
        }
    }
}

impl Work {
    async fn remove_all(self: Arc<Self>, expired: Expired) {
        let Expired { app_id, generation, dirs, .. } = expired;
        let pending = i64::try_from(dirs.len()).unwrap_or(i64::MAX);
        self.metrics.removals_pending.inc_by(pending);
        let mut running = JoinSet::new();
        for dir in dirs {
            let work = self.clone();
            running.spawn(async move { work.remove(dir, generation).await });
        }
        while running.join_next().await.is_some() {}
        info!(app = %app_id, "All directories of the application are dealt with");
    }

    /// Removes one directory, however often it takes.
    async fn remove(&self, dir: LocalDir, generation: Generation) {
        let mut retry = RETRY_FIRST;
        let mut failed_before = false;
        loop {
            let outcome = self.attempt(&dir).await;
            let done = !matches!(outcome, Outcome::Failed(_));
            self.note(generation, &outcome, failed_before);
            if done {
                self.metrics.removals_pending.dec();
                return;
            }
            failed_before = true;
            tokio::time::sleep(retry).await;
            retry = (retry * 2).min(RETRY_LAST);
        }
    }

    async fn attempt(&self, dir: &LocalDir) -> Outcome {
        let (registry, roots, removed_dir) =
            (self.registry.clone(), self.roots.clone(), dir.clone());
        let remove = move || {
            // Looked at now that the removal's turn has come, which may be long after it was asked for,
            // and between any two files: the directory may be registered while it goes.
            let mut claim = registry.watch_claim(&removed_dir);
            if let Some(claim) = claim() {
                return Attempt::Claimed(claim, Removed::default());
            }
            let made = roots.remove_tree(&removed_dir, |_| match claim() {
                Some(_) => ControlFlow::Break(()),
                None => ControlFlow::Continue(()),
            });
            match (made, claim()) {
                (Err(RemoveError::Stopped { removed }), Some(claim)) => {
                    Attempt::Claimed(claim, removed)
                }
                (made, _) => Attempt::Made(made),
            }
        };
        let failed = |removed, error: &dyn fmt::Display| {
            warn!(%dir, %error, "Failed to delete directory, trying again later");
            Outcome::Failed(removed)
        };
        match self.disks.disk(dir).remove(remove).await {
            Ok(Attempt::Claimed(Claim::Whole, removed)) => {
                warn!(%dir, files_removed_before = removed.files,
                    "Keeping a directory of an expired app: a live one registered it too");
                Outcome::Kept(removed)
            }
            Ok(Attempt::Claimed(Claim::Part, removed)) => {
                warn!(%dir, "Keeping a directory of an expired app until a live one is gone that \
                    registered one in it");
                Outcome::Failed(removed)
            }
            Ok(Attempt::Made(Ok(removed))) => {
                info!(%dir, files = removed.files, bytes = removed.bytes,
                    "Successfully cleaned up directory");
                Outcome::Gone(removed)
            }
            Ok(Attempt::Made(Err(error))) => failed(error.removed(), &error),
            Err(panicked) => failed(Removed::default(), &panicked),
        }
    }

    fn note(&self, generation: Generation, outcome: &Outcome, failed_before: bool) {
        let metrics = &self.metrics;
        let (Outcome::Gone(removed) | Outcome::Kept(removed) | Outcome::Failed(removed)) = *outcome;
        metrics.files_removed.inc_by(removed.files);
        metrics.bytes_removed.inc_by(removed.bytes);
        match outcome {
            Outcome::Gone(_) => metrics.dirs_removed.inc(),
            Outcome::Kept(_) => metrics.dirs_kept.inc(),
            Outcome::Failed(_) => metrics.removal_failures.inc(),
        };
        self.registry.note_removal(generation, |so_far: &mut Removal| {
            so_far.files += removed.files;
            so_far.bytes += removed.bytes;
            match (outcome, failed_before) {
                (Outcome::Failed(_), false) => so_far.failing += 1,
                (Outcome::Failed(_), true) => {}
                (_, true) => so_far.failing -= 1,
                (_, false) => {}
            }
            match outcome {
                Outcome::Gone(_) => so_far.removed += 1,
                Outcome::Kept(_) => so_far.kept += 1,
                Outcome::Failed(_) => {}
            }
        });
    }
}

/// What one try came to, on the disk's thread.
enum Attempt {
    /// By a live application; what had been removed by then.
    Claimed(Claim, Removed),
    Made(Result<Removed, RemoveError>),
}

enum Outcome {
    Gone(Removed),
    Kept(Removed),
    Failed(Removed),
}
