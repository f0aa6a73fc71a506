//! What is remembered of each agent: its name, who runs there, and what went wrong there.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::conf::Care;
use crate::mesos::ids::{AgentId, TaskId};

/// All agents that ever ran an executor, or were to.
#[derive(Debug, Default)]
pub(super) struct Agents(BTreeMap<AgentId, Agent>);

#[derive(Debug, Default)]
pub(super) struct Agent {
    pub(super) hostname: String,
    pub(super) tasks: BTreeSet<TaskId>,
    /// Its shuffle service is kept told of the driver.
    pub(super) shuffle: bool,
    /// When executors failed that count.
    failures: Vec<Instant>,
    /// Failures since one last ran.
    in_a_row: u32,
    /// No launch before.
    waits_until: Option<Instant>,
}

/// Why an agent gets no executor now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Barred {
    /// Too many executors failed there.
    Excluded {
        /// When the first of them is forgotten; none is never.
        until: Option<Instant>,
    },
    /// The last launch failed.
    BackingOff {
        /// When the next may be tried.
        until: Instant,
    },
    /// It has as many executors as one agent may have.
    Full,
}

impl Agents {
    pub(super) fn get(&self, id: &AgentId) -> Option<&Agent> {
        self.0.get(id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&AgentId, &Agent)> {
        self.0.iter()
    }

    /// The agent with this id, known from now on if it was not.
    pub(super) fn entry(&mut self, id: &AgentId, hostname: &str) -> &mut Agent {
        self.0
            .entry(id.clone())
            .or_insert_with(|| Agent { hostname: hostname.to_owned(), ..Agent::default() })
    }

    pub(super) fn get_mut(&mut self, id: &AgentId) -> Option<&mut Agent> {
        self.0.get_mut(id)
    }

    /// Why it may not get an executor, if it may not.
    pub(super) fn barred(&self, id: &AgentId, care: &Care, now: Instant) -> Option<Barred> {
        let agent = self.0.get(id)?;
        if let Some(limit) = care.excluded_after {
            let counting = agent.counting(care, now);
            let limit = usize::try_from(limit).unwrap_or(usize::MAX);
            if counting.len() >= limit {
                let until = care
                    .excluded_for
                    .and_then(|time| counting[counting.len() - limit].checked_add(time));
                return Some(Barred::Excluded { until });
            }
        }
        if let Some(until) = agent.waits_until.filter(|until| *until > now) {
            return Some(Barred::BackingOff { until });
        }
        let full = care
            .max_per_agent
            .is_some_and(|most| agent.tasks.len() >= usize::try_from(most).unwrap_or(usize::MAX));
        full.then_some(Barred::Full)
    }
}

impl Agent {
    /// The failures that have not been forgotten, the oldest first.
    fn counting(&self, care: &Care, now: Instant) -> &[Instant] {
        let forgotten = care.excluded_for.map_or(0, |time| {
            self.failures.partition_point(|at| now.saturating_duration_since(*at) >= time)
        });
        &self.failures[forgotten..]
    }

    /// An executor failed. Gives whether this is what excludes the agent.
    pub(super) fn failed(&mut self, care: &Care, now: Instant) -> bool {
        let forgotten = self.failures.len() - self.counting(care, now).len();
        self.failures.drain(..forgotten);
        self.failures.push(now);
        self.in_a_row = self.in_a_row.saturating_add(1);
        let doubled = 2_u32.saturating_pow(self.in_a_row - 1);
        let wait = care.launch_backoff.saturating_mul(doubled).min(care.launch_backoff_max);
        self.waits_until = (wait > Duration::ZERO).then(|| now + wait);
        care.excluded_after.and_then(|limit| usize::try_from(limit).ok())
            == Some(self.failures.len())
    }

    /// An executor runs there.
    pub(super) fn runs(&mut self) {
        self.in_a_row = 0;
        self.waits_until = None;
    }
}
