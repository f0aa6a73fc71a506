//! The executors that have not ended, and what they hold.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::mesos::ids::{AgentId, TaskId};

/// All executors that have not ended, with the sums of what they hold.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    all: BTreeMap<TaskId, Task>,
    cores: u32,
    gpus: u32,
}

#[derive(Debug)]
pub(super) struct Task {
    pub(super) agent: AgentId,
    pub(super) cores: u32,
    pub(super) gpus: u32,
    pub(super) phase: Phase,
    /// It was told to end, so that it does is no failure.
    pub(super) killed: bool,
    /// It registered with the driver.
    pub(super) registered: bool,
}

/// How far an executor has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Launched, or known from an earlier run of the backend, and nothing heard.
    Staging {
        /// Since when.
        since: Instant,
        /// The master was asked for it.
        asked: bool,
    },
    /// It runs.
    Running,
    /// Nobody can reach it.
    Unreachable {
        /// When it is given up.
        until: Instant,
    },
}

impl Tasks {
    pub(super) fn insert(&mut self, id: TaskId, task: Task) {
        self.cores += task.cores;
        self.gpus += task.gpus;
        let before = self.all.insert(id, task);
        debug_assert!(before.is_none(), "an id is given once");
    }

    pub(super) fn remove(&mut self, id: &TaskId) -> Option<Task> {
        let task = self.all.remove(id)?;
        self.cores -= task.cores;
        self.gpus -= task.gpus;
        Some(task)
    }

    pub(super) fn get(&self, id: &TaskId) -> Option<&Task> {
        self.all.get(id)
    }

    pub(super) fn get_mut(&mut self, id: &TaskId) -> Option<&mut Task> {
        self.all.get_mut(id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&TaskId, &Task)> {
        self.all.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Of all together.
    pub(super) fn cores(&self) -> u32 {
        self.cores
    }

    /// Of all together.
    pub(super) fn gpus(&self) -> u32 {
        self.gpus
    }
}
