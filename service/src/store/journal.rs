//! What is to be written, in the order in which it happened, and how far it is.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::row::Change;

/// A place in the order of all changes: what was recorded up to there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Position(u64);

/// Whether what was recorded would survive the end of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// It is on disk.
    Durable,
    /// It is in memory only: there is no state directory, or it cannot be written now. It is written
    /// when that becomes possible.
    MemoryOnly,
}

/// The queue between those who change something and the one who writes it. Recording never waits for
/// a disk, so it may be done within an application's entry, which puts the changes of an application
/// in the order in which they happened.
#[derive(Debug)]
pub struct Journal {
    pending: Mutex<Pending>,
    more: Condvar,
    progress: watch::Sender<Progress>,
}

#[derive(Debug, Default)]
struct Pending {
    changes: Vec<Change>,
    recorded: Position,
    closed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Progress {
    committed: Position,
    /// Nobody needs to wait: there is nothing to wait for, or not soon.
    memory_only: bool,
}

/// Changes to be written together.
#[derive(Debug)]
pub struct Batch {
    /// In their order.
    pub changes: Vec<Change>,
    /// To be handed back when they are on disk.
    pub upto: Position,
}

impl Journal {
    /// A journal that somebody writes to disk.
    #[must_use]
    pub fn new() -> Self {
        Self::with(false)
    }

    /// A journal without a disk: changes are dropped.
    #[must_use]
    pub fn memory_only() -> Self {
        let this = Self::with(true);
        this.lock().closed = true;
        this
    }

    fn with(memory_only: bool) -> Self {
        let progress = Progress { committed: Position::default(), memory_only };
        Self {
            pending: Mutex::default(),
            more: Condvar::new(),
            progress: watch::Sender::new(progress),
        }
    }

    /// Queues changes, and says where they end. Never waits for a disk.
    pub fn record(&self, changes: impl IntoIterator<Item = Change>) -> Position {
        let mut pending = self.lock();
        if pending.closed {
            return pending.recorded;
        }
        let before = pending.changes.len();
        pending.changes.extend(changes);
        let added = pending.changes.len() - before;
        pending.recorded.0 += added as u64;
        if added > 0 {
            self.more.notify_one();
        }
        pending.recorded
    }

    /// The end of what was recorded so far.
    pub fn recorded(&self) -> Position {
        self.lock().recorded
    }

    /// Returns when everything up to `position` is on disk, or it is known that it will not be soon.
    pub async fn settled(&self, position: Position) -> Durability {
        let mut progress = self.progress.subscribe();
        let reached = |now: &Progress| now.memory_only || now.committed >= position;
        let now = progress.wait_for(reached).await.expect("the sender lives in self");
        if now.committed >= position && !now.memory_only {
            Durability::Durable
        } else {
            Durability::MemoryOnly
        }
    }

    /// The same, but a disk that does not answer for this long counts as one that cannot be written:
    /// nobody else waits for it until it does.
    pub async fn settled_within(&self, position: Position, limit: Duration) -> Durability {
        match tokio::time::timeout(limit, self.settled(position)).await {
            Ok(durability) => durability,
            Err(_) => {
                self.failing();
                Durability::MemoryOnly
            }
        }
    }

    /// Whether nobody waits for the disk: there is none, or it fails.
    pub fn is_memory_only(&self) -> bool {
        self.progress.borrow().memory_only
    }

    /// Everything that was recorded and not taken yet. Waits for something; `None` at the end.
    pub fn take(&self) -> Option<Batch> {
        let mut pending = self.lock();
        while pending.changes.is_empty() && !pending.closed {
            pending = self.more.wait(pending).unwrap_or_else(PoisonError::into_inner);
        }
        Self::batch(&mut pending)
    }

    /// The same without waiting; `None` if there is nothing.
    pub fn try_take(&self) -> Option<Batch> {
        Self::batch(&mut self.lock())
    }

    fn batch(pending: &mut Pending) -> Option<Batch> {
        let changes = std::mem::take(&mut pending.changes);
        (!changes.is_empty()).then_some(Batch { changes, upto: pending.recorded })
    }

    /// Everything up to `position` is on disk.
    pub fn committed(&self, position: Position) {
        self.progress.send_if_modified(|progress| {
            let before = *progress;
            progress.committed = progress.committed.max(position);
            progress.memory_only = false;
            *progress != before
        });
    }

    /// Writing fails: nobody waits until [`committed`](Self::committed) is called again.
    pub fn failing(&self) {
        self.progress
            .send_if_modified(|progress| !std::mem::replace(&mut progress.memory_only, true));
    }

    /// Waits for the end, for this long at most, and says whether it has come.
    pub fn closes_within(&self, time: Duration) -> bool {
        let (pending, _) = self
            .more
            .wait_timeout_while(self.lock(), time, |pending| !pending.closed)
            .unwrap_or_else(PoisonError::into_inner);
        pending.closed
    }

    /// No more is recorded; [`take`](Self::take) ends when everything was taken.
    pub fn close(&self) {
        self.lock().closed = true;
        self.more.notify_all();
    }

    /// No code panics half-way through a change of what is behind this lock.
    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Journal {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use shuffle_protocol::AppId;

    use super::*;
    use crate::store::row::AppRow;

    fn change(app: &str) -> [Change; 1] {
        [Change::App(AppId::from(app), Some(AppRow::default()))]
    }

    #[tokio::test]
    async fn who_waits_hears_of_the_commit_that_covers_it() {
        let journal = Journal::new();
        let first = journal.record(change("a"));
        let second = journal.record(change("b"));
        let batch = journal.try_take().unwrap();
        assert_eq!((batch.changes.len(), batch.upto), (2, second));
        let third = journal.record(change("c"));
        journal.committed(batch.upto);
        assert_eq!(journal.settled(first).await, Durability::Durable);
        assert_eq!(journal.settled(second).await, Durability::Durable);
        let mut waiting = pending_for_a_moment(journal.settled(third));
        assert!(waiting.as_mut().await.is_err(), "not before it is written");
        journal.committed(journal.try_take().unwrap().upto);
        assert_eq!(journal.settled(third).await, Durability::Durable);
    }

    #[tokio::test]
    async fn nobody_waits_for_a_disk_that_fails_until_it_works_again() {
        let journal = Journal::new();
        let position = journal.record(change("a"));
        journal.failing();
        assert_eq!(journal.settled(position).await, Durability::MemoryOnly);
        journal.committed(journal.try_take().unwrap().upto);
        assert_eq!(journal.settled(position).await, Durability::Durable);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_a_disk_that_does_not_answer_but_the_first() {
        let limit = Duration::from_secs(2);
        let journal = Journal::new();
        let first = journal.record(change("a"));
        let batch = journal.try_take().unwrap(); // and the writer hangs
        assert_eq!(journal.settled_within(first, limit).await, Durability::MemoryOnly);
        let second = journal.record(change("b"));
        assert_eq!(journal.settled(second).await, Durability::MemoryOnly);
        journal.committed(batch.upto);
        assert!(!journal.is_memory_only());
        assert_eq!(journal.settled(first).await, Durability::Durable);
    }

    #[tokio::test]
    async fn without_a_disk_nothing_is_kept_and_nobody_waits() {
        let journal = Journal::memory_only();
        let position = journal.record(change("a"));
        assert_eq!(journal.settled(position).await, Durability::MemoryOnly);
        assert!(journal.take().is_none());
    }

    #[test]
    fn what_was_recorded_before_the_end_is_taken() {
        let journal = Journal::new();
        journal.record(change("a"));
        journal.close();
        assert_eq!(journal.take().unwrap().changes.len(), 1);
        assert!(journal.take().is_none());
    }

    fn pending_for_a_moment<F: Future>(
        future: F,
    ) -> std::pin::Pin<Box<impl Future<Output = Result<F::Output, tokio::time::error::Elapsed>>>>
    {
        Box::pin(tokio::time::timeout(Duration::from_millis(1), future))
    }
}
