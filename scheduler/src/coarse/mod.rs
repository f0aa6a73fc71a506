//! The coarse-grained backend: one Mesos task for each Spark executor (`spec/spark-mesos-coarse.md`).
//!
//! It only decides. What the master and the host say goes into the `handle_*` methods with the time; what is to
//! be done comes out of [`Coarse::poll_action`], in the order in which it has to be done. Call
//! [`Coarse::handle_timeout`] when the time of [`Coarse::poll_timeout`] has come.

mod agents;
mod flow;
mod offers;
mod reconcile;
mod status;
mod tasks;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::command::DriverInfo;
use crate::conf::CoarseConf;
use crate::mesos::call::{Call, ReconcileTask};
use crate::mesos::ids::{AgentId, TaskId};
use crate::mesos::task::{TaskState, TaskStatus};

use self::agents::Agents;
pub use self::agents::Barred;
use self::flow::Flow;
use self::reconcile::Reconciliation;
pub use self::tasks::Phase;
use self::tasks::{Task, Tasks};

/// What is to be done.
#[derive(Debug)]
pub enum Action {
    /// Tell the master.
    Call(Call),
    /// Write [`Coarse::snapshot`] down, before anything that follows is done.
    Save,
    /// Keep the driver registered with this agent's shuffle service from now on.
    RegisterShuffle {
        /// The agent's name, which is an address as well.
        hostname: String,
    },
    /// Tell the host.
    Tell(Told),
    /// All is over: end the registrations with shuffle services and the connection.
    Stopped {
        /// Executors that did not end in time; their temporary files may stay.
        left: usize,
        /// The master was told. If it was not there, it ends what is left after the failover timeout.
        torn_down: bool,
    },
}

/// What the host is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// An executor runs.
    Added {
        /// Its id, for Spark.
        executor: TaskId,
        /// Where.
        hostname: String,
        /// What it was given.
        cores: u32,
    },
    /// An executor is gone.
    Lost {
        /// Its id, for Spark.
        executor: TaskId,
        /// `Executor finished with state …`, and what Mesos says.
        reason: String,
    },
    /// An agent gets no executors for a while.
    Excluded {
        /// Which one.
        hostname: String,
    },
}

/// What has to survive a restart of the backend, so that it knows its executors again.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Snapshot {
    /// The next id. Mesos refuses one that it has seen, and Spark wants a number.
    pub next_task: u32,
    /// Executors that have not ended.
    pub tasks: Vec<SavedTask>,
}

/// An executor that has not ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedTask {
    /// Its id.
    pub id: TaskId,
    /// Where it runs.
    pub agent: AgentId,
    /// That agent's name.
    pub hostname: String,
    /// What it was given.
    pub cores: u32,
    /// What it was given.
    pub gpus: u32,
}

/// An executor that has not ended, for whoever looks.
#[derive(Debug, Clone, Copy)]
pub struct ExecutorView<'a> {
    /// Its id.
    pub id: &'a TaskId,
    /// Its agent's name.
    pub hostname: &'a str,
    /// What it was given.
    pub cores: u32,
    /// What it was given.
    pub gpus: u32,
    /// How far it has come.
    pub phase: Phase,
}

/// The state of the backend.
#[derive(Debug)]
pub struct Coarse {
    conf: CoarseConf,
    driver: DriverInfo,
    tasks: Tasks,
    agents: Agents,
    next_task: u32,
    /// Executors that the driver wants at most; none is as many as the cores allow.
    limit: Option<u32>,
    /// Hosts that the driver would like executors on.
    preferred: BTreeSet<String>,
    /// Since when a preferred host is waited for.
    locality_since: Instant,
    /// The limit was not reached when offers last came.
    launching: bool,
    subscribed: bool,
    flow: Flow,
    reconcile: Reconciliation,
    next_implicit: Option<Instant>,
    stopping: Option<Stopping>,
    actions: VecDeque<Action>,
}

#[derive(Debug)]
enum Stopping {
    Waiting { until: Instant },
    Done,
}

impl Coarse {
    /// A backend that has `snapshot`'s executors.
    pub fn new(conf: CoarseConf, driver: DriverInfo, snapshot: Snapshot, now: Instant) -> Self {
        let mut this = Self {
            limit: conf.dynamic_allocation.then_some(0),
            conf,
            driver,
            tasks: Tasks::default(),
            agents: Agents::default(),
            next_task: snapshot.next_task,
            preferred: BTreeSet::new(),
            locality_since: now,
            launching: false,
            subscribed: false,
            flow: Flow::new(now),
            reconcile: Reconciliation::new(BTreeSet::new(), now),
            next_implicit: None,
            stopping: None,
            actions: VecDeque::new(),
        };
        for SavedTask { id, agent, hostname, cores, gpus } in snapshot.tasks {
            this.agents.entry(&agent, &hostname).tasks.insert(id.clone());
            let phase = Phase::Staging { since: now, asked: false };
            let task = Task { agent, cores, gpus, phase, killed: false, registered: false };
            this.tasks.insert(id, task);
        }
        this
    }

    /// What has to be written down.
    pub fn snapshot(&self) -> Snapshot {
        let saved = |(id, task): (&TaskId, &Task)| SavedTask {
            id: id.clone(),
            agent: task.agent.clone(),
            hostname: self.hostname(&task.agent).to_owned(),
            cores: task.cores,
            gpus: task.gpus,
        };
        Snapshot { next_task: self.next_task, tasks: self.tasks.iter().map(saved).collect() }
    }

    /// What is to be done next.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Whether the next subscription begins without offers.
    pub fn is_suppressed(&self) -> bool {
        self.flow.is_suppressed()
    }

    /// Cores of all executors together.
    pub fn cores(&self) -> u32 {
        self.tasks.cores()
    }

    /// Executors that have not ended.
    pub fn executors(&self) -> impl Iterator<Item = ExecutorView<'_>> {
        self.tasks.iter().map(|(id, task)| ExecutorView {
            id,
            hostname: self.hostname(&task.agent),
            cores: task.cores,
            gpus: task.gpus,
            phase: task.phase,
        })
    }

    /// Executors that the driver wants at most; none is as many as the cores allow.
    pub fn limit(&self) -> Option<u32> {
        self.limit
    }

    /// Agents that get no executor now, and why.
    pub fn barred(&self, now: Instant) -> impl Iterator<Item = (&str, Barred)> {
        self.agents.iter().filter_map(move |(id, agent)| {
            Some((agent.hostname.as_str(), self.agents.barred(id, &self.conf.care, now)?))
        })
    }

    /// Whether enough cores have registered with the driver for a job to start (A13).
    pub fn has_sufficient_resources(&self) -> bool {
        let registered = self.tasks.iter().filter(|(_, task)| task.registered);
        let registered: u32 = registered.map(|(_, task)| task.cores).sum();
        let wanted = f64::from(self.conf.cores_max.unwrap_or(0));
        f64::from(registered) >= wanted * self.conf.min_registered_ratio
    }

    /// The subscription stands, for the first time or again. Offers from before are void.
    pub fn handle_subscribed(&mut self, now: Instant) {
        self.subscribed = true;
        self.flow.subscribed(now);
        self.next_implicit = self.conf.care.reconcile_interval.map(|interval| now + interval);
        self.reconcile = Reconciliation::new(self.ids(|_| true).into_iter().collect(), now);
        // They may have been lost with the connection.
        self.ids(|task| task.killed).into_iter().for_each(|id| self.call_kill(id));
        self.handle_timeout(now);
    }

    /// The subscription is over; executors go on.
    pub fn handle_disconnected(&mut self) {
        self.subscribed = false;
    }

    /// The master has forgotten the framework; it ended all executors.
    pub fn handle_removed(&mut self, now: Instant) {
        self.subscribed = false;
        for id in self.ids(|_| true) {
            self.forget(&id, "the master had removed the framework".to_owned(), false, now);
        }
    }

    /// Something became of a task.
    pub fn handle_update(&mut self, status: &TaskStatus, now: Instant) {
        self.reconcile.answered(&status.task_id);
        self.apply(status, now);
        // Only now: until then the agent repeats it.
        if let (Some(uuid), Some(agent_id)) = (&status.uuid, &status.agent_id) {
            let (agent_id, task_id) = (agent_id.clone(), status.task_id.clone());
            self.call(Call::Acknowledge { agent_id, task_id, uuid: uuid.clone() });
        }
        self.handle_timeout(now);
    }

    fn apply(&mut self, status: &TaskStatus, now: Instant) {
        let id = &status.task_id;
        let Some(task) = self.tasks.get_mut(id) else {
            // One that was given up and came back, or an earlier run's: the driver does not count on it.
            let runs = matches!(
                status.state,
                TaskState::TaskStaging | TaskState::TaskStarting | TaskState::TaskRunning
            );
            if runs && self.conf.care.reconcile_interval.is_some() {
                self.call_kill(id.clone());
            }
            return;
        };
        match status.state {
            TaskState::TaskStaging | TaskState::TaskStarting | TaskState::Other => {}
            TaskState::TaskRunning | TaskState::TaskKilling => {
                let was = std::mem::replace(&mut task.phase, Phase::Running);
                let (agent, cores) = (task.agent.clone(), task.cores);
                if matches!(was, Phase::Staging { .. }) {
                    self.runs(id.clone(), &agent, cores);
                }
            }
            TaskState::TaskUnreachable if !self.conf.care.unreachable_grace.is_zero() => {
                if !matches!(task.phase, Phase::Unreachable { .. }) {
                    let until = now + self.conf.care.unreachable_grace;
                    task.phase = Phase::Unreachable { until };
                }
            }
            _ => {
                let failure = status::counts(status, self.conf.care.count_all_failures);
                self.forget(id, status::reason(status), failure, now);
            }
        }
    }

    fn runs(&mut self, executor: TaskId, agent: &AgentId, cores: u32) {
        let with_shuffle = self.conf.shuffle.is_some();
        // Each task's agent is known.
        let Some(agent) = self.agents.get_mut(agent) else { return };
        agent.runs();
        let hostname = agent.hostname.clone();
        let first = with_shuffle && !std::mem::replace(&mut agent.shuffle, with_shuffle);
        if first {
            self.actions.push_back(Action::RegisterShuffle { hostname: hostname.clone() });
        }
        self.actions.push_back(Action::Tell(Told::Added { executor, hostname, cores }));
    }

    /// An executor is gone for good.
    fn forget(&mut self, id: &TaskId, reason: String, failure: bool, now: Instant) {
        let Some(task) = self.tasks.remove(id) else { return };
        self.reconcile.answered(id);
        if let Some(agent) = self.agents.get_mut(&task.agent) {
            agent.tasks.remove(id);
            if failure && !task.killed && agent.failed(&self.conf.care, now) {
                let hostname = agent.hostname.clone();
                self.actions.push_back(Action::Tell(Told::Excluded { hostname }));
            }
        }
        self.actions.push_back(Action::Save);
        if self.stopping.is_none() {
            self.actions.push_back(Action::Tell(Told::Lost { executor: id.clone(), reason }));
        }
        self.flow.want_revive();
    }

    /// The driver wants this many executors in all, and would like them on these hosts (A12).
    pub fn request_total(&mut self, total: u32, preferred: BTreeSet<String>, now: Instant) {
        self.limit = Some(total);
        self.preferred = preferred;
        self.locality_since = now;
        self.handle_timeout(now);
    }

    /// The driver wants these executors to end.
    pub fn kill(&mut self, executors: &[TaskId]) {
        for id in executors {
            if let Some(task) = self.tasks.get_mut(id) {
                task.killed = true;
                self.call_kill(id.clone());
            }
        }
    }

    /// An executor registered with the driver.
    pub fn handle_registered(&mut self, executor: &TaskId) {
        if let Some(task) = self.tasks.get_mut(executor) {
            task.registered = true;
        }
    }

    /// All is to end: the executors first, and after a while whatever is left (A14).
    pub fn stop(&mut self, now: Instant) {
        if self.stopping.is_some() {
            return;
        }
        self.stopping = Some(Stopping::Waiting { until: now + self.conf.shutdown_timeout });
        self.kill(&self.ids(|_| true));
        self.handle_timeout(now);
    }

    /// When [`Coarse::handle_timeout`] is to be called, if nothing happens before.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let tasks = self.tasks.iter().filter_map(|(_, task)| self.task_timeout(task));
        let stopping = match self.stopping {
            Some(Stopping::Waiting { until }) => Some(until),
            _ => None,
        };
        // What needs the master waits for it.
        let talk = [
            self.reconcile.timeout(),
            self.next_implicit,
            self.flow.timeout(&self.conf.care, self.wants_more()),
        ];
        let talk = talk.into_iter().flatten().filter(|_| self.subscribed);
        tasks.chain(stopping).chain(talk).min()
    }

    fn task_timeout(&self, task: &Task) -> Option<Instant> {
        match task.phase {
            Phase::Unreachable { until } => Some(until),
            Phase::Staging { since, .. } => {
                self.conf.care.staging_timeout.map(|timeout| since + timeout)
            }
            Phase::Running => None,
        }
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.look_for_tasks_that_are_late(now);
        if self.subscribed {
            self.ask_again(now);
        }
        if let Some(Stopping::Waiting { until }) = self.stopping
            && (until <= now || (self.tasks.is_empty() && self.subscribed))
        {
            self.stopping = Some(Stopping::Done);
            let torn_down = self.subscribed;
            if torn_down {
                self.call(Call::Teardown);
            }
            self.actions.push_back(Action::Stopped { left: self.tasks.len(), torn_down });
        }
        if self.subscribed && self.stopping.is_none() {
            let call = self.flow.poll(&self.conf.care, self.wants_more(), now);
            self.actions.extend(call.map(Action::Call));
        }
    }

    fn look_for_tasks_that_are_late(&mut self, now: Instant) {
        let is_late = |task: &Task| self.task_timeout(task).is_some_and(|late| late <= now);
        let late = self.tasks.iter().filter(|(_, task)| is_late(task));
        let late: Vec<_> = late.map(|(id, task)| (id.clone(), task.phase)).collect();
        for (id, phase) in late {
            match phase {
                Phase::Staging { asked: false, .. } => {
                    if let Some(task) = self.tasks.get_mut(&id) {
                        task.phase = Phase::Staging { since: now, asked: true };
                    }
                    let tasks = self.questions([&id]);
                    self.call(Call::Reconcile { tasks });
                }
                Phase::Staging { asked: true, .. } => {
                    self.call_kill(id.clone());
                    self.forget(&id, "nothing was heard of its launch".to_owned(), false, now);
                }
                Phase::Unreachable { .. } => {
                    let reason = "its agent could not be reached for too long".to_owned();
                    self.forget(&id, reason, false, now);
                }
                Phase::Running => {}
            }
        }
    }

    fn ask_again(&mut self, now: Instant) {
        if let Some(unanswered) = self.reconcile.poll(now) {
            let tasks = self.questions(&unanswered);
            self.call(Call::Reconcile { tasks });
        }
        if let Some(interval) = self.conf.care.reconcile_interval
            && self.next_implicit.is_some_and(|next| next <= now)
        {
            self.next_implicit = Some(now + interval);
            self.call(Call::Reconcile { tasks: Vec::new() });
        }
    }

    fn questions<'a>(&self, ids: impl IntoIterator<Item = &'a TaskId>) -> Vec<ReconcileTask> {
        let question = |id: &TaskId| ReconcileTask {
            task_id: id.clone(),
            agent_id: self.tasks.get(id).map(|task| task.agent.clone()),
        };
        ids.into_iter().map(question).collect()
    }

    fn ids(&self, which: impl Fn(&Task) -> bool) -> Vec<TaskId> {
        self.tasks.iter().filter(|(_, task)| which(task)).map(|(id, _)| id.clone()).collect()
    }

    /// Whether another executor would be launched, were there an offer for it.
    fn wants_more(&self) -> bool {
        let least = self.conf.executor.cores.unwrap_or(1);
        let more = self.conf.cores_max.is_none_or(|max| self.cores().saturating_add(least) <= max);
        more && !self.is_limit_reached() && self.stopping.is_none()
    }

    fn is_limit_reached(&self) -> bool {
        let limit = self.limit.and_then(|limit| usize::try_from(limit).ok());
        limit.is_some_and(|limit| self.tasks.len() >= limit)
    }

    fn hostname(&self, agent: &AgentId) -> &str {
        self.agents.get(agent).map_or("", |agent| &agent.hostname)
    }

    fn call(&mut self, call: Call) {
        self.actions.push_back(Action::Call(call));
    }

    /// Without the agent: were it another one by now, the master would drop the call.
    fn call_kill(&mut self, task_id: TaskId) {
        self.call(Call::Kill { task_id, agent_id: None });
    }
}
