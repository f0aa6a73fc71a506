//! What the master is asked after each subscription (`spec/mesos-http-api.md` §15).

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::mesos::ids::TaskId;

/// The first wait for answers; doubled each time.
const FIRST: Duration = Duration::from_secs(5);
/// The longest: an agent may take ten minutes to come back after its master.
const LONGEST: Duration = Duration::from_secs(300);

/// Tasks that nothing was heard of since the subscription.
#[derive(Debug)]
pub(super) struct Reconciliation {
    unanswered: BTreeSet<TaskId>,
    wait: Duration,
    next: Instant,
}

impl Reconciliation {
    /// Of these tasks; the first question is due now.
    pub(super) fn new(unanswered: BTreeSet<TaskId>, now: Instant) -> Self {
        Self { unanswered, wait: FIRST, next: now }
    }

    /// Something was heard of it, or it ended.
    pub(super) fn answered(&mut self, task: &TaskId) {
        self.unanswered.remove(task);
    }

    pub(super) fn timeout(&self) -> Option<Instant> {
        (!self.unanswered.is_empty()).then_some(self.next)
    }

    /// The tasks to ask for, if it is time.
    pub(super) fn poll(&mut self, now: Instant) -> Option<Vec<TaskId>> {
        if self.timeout()? > now {
            return None;
        }
        self.next = now + self.wait;
        self.wait = (self.wait * 2).min(LONGEST);
        Some(self.unanswered.iter().cloned().collect())
    }
}
