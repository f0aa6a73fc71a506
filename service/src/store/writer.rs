//! The thread that writes what was recorded.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::db::{Store, StoreError};
use super::journal::{Batch, Journal, Position};
use super::rows::{Sealed, seal_change};

/// Between two attempts to write, doubled each time.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_LAST: Duration = Duration::from_secs(5);

/// Is told how writing goes.
pub trait StoreObserver: Send + 'static {
    /// It failed, and is tried again.
    fn failing(&self, error: &StoreError);
    /// It works again.
    fn recovered(&self);
    /// So many rows were written, which took so long.
    fn committed(&self, rows: usize, took: Duration);
}

/// The writing thread.
#[derive(Debug)]
pub struct WriterHandle(JoinHandle<()>);

impl WriterHandle {
    /// Returns when all that was recorded before the journal was closed is written, or cannot be.
    /// Blocking.
    pub fn join(self) {
        // A panic in it has been reported by the panic hook; what is left to do is nothing.
        let _ = self.0.join();
    }
}

impl Store {
    /// Starts the thread that writes what `journal` takes, until that is closed.
    ///
    /// # Panics
    /// If the system has no thread left.
    #[must_use]
    pub fn spawn_writer(self, journal: Arc<Journal>, observer: impl StoreObserver) -> WriterHandle {
        let write = move || self.write_all(&journal, &observer);
        let thread = thread::Builder::new().name("store".to_owned()).spawn(write);
        WriterHandle(thread.expect("a service starts with threads to spare"))
    }

    pub(super) fn write_all(mut self, journal: &Journal, observer: &impl StoreObserver) {
        let mut pending = Pending::default();
        let mut retry = RETRY_FIRST;
        let mut failing = false;
        while pending.refill(journal) {
            let start = Instant::now();
            match self.write(&pending.rows) {
                Ok(()) => {
                    journal.committed(pending.upto);
                    observer.committed(pending.rows.len(), start.elapsed());
                    if failing {
                        observer.recovered();
                    }
                    (pending, retry, failing) = (Pending::default(), RETRY_FIRST, false);
                }
                Err(error) => {
                    failing = true;
                    journal.failing();
                    observer.failing(&error);
                    // At the end of the service nobody waits for a disk to be mended.
                    if journal.closes_within(retry) {
                        return;
                    }
                    retry = (retry * 2).min(RETRY_LAST);
                }
            }
        }
    }
}

/// What is to be written: of each row the last change, so it does not grow with the time that writing
/// fails.
#[derive(Default)]
struct Pending {
    rows: Sealed,
    upto: Position,
}

impl Pending {
    /// Adds what was recorded since. Waits for something if there is nothing yet; false at the end.
    fn refill(&mut self, journal: &Journal) -> bool {
        let batch = if self.rows.is_empty() { journal.take() } else { journal.try_take() };
        if let Some(Batch { changes, upto }) = batch {
            changes.into_iter().for_each(|change| seal_change(&mut self.rows, change));
            self.upto = upto;
        }
        !self.rows.is_empty()
    }
}
