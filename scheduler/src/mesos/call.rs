//! What a scheduler says to the master (`spec/mesos-http-api.md` §5).

use serde::ser::SerializeMap as _;
use serde::{Deserialize, Serialize, Serializer};

use super::ids::{AgentId, FrameworkId, OfferId, TaskId};
use super::task::{Labels, TaskInfo};

/// What a framework is (`spec/mesos-http-api.md` §2).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FrameworkInfo {
    /// The account that executors run as.
    pub user: String,
    /// For people.
    pub name: String,
    /// Given by the master; none for the first subscription.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<FrameworkId>,
    /// Seconds for which the master keeps tasks of a framework that is not connected.
    pub failover_timeout: f64,
    /// Whether tasks outlive their agent's process.
    pub checkpoint: bool,
    /// Whose offers it gets.
    pub roles: Vec<String>,
    /// For people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// The one it authenticates as.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// For people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webui_url: Option<String>,
    /// What it understands.
    pub capabilities: Vec<Capability>,
    /// For whoever looks at the master's state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<Labels>,
}

/// What a framework understands (`spec/mesos-http-api.md` §10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Capability {
    /// Agents with GPUs are offered to it.
    GpuResources,
    /// It is told what became of tasks that cannot be reached.
    PartitionAware,
    /// It has a list of roles.
    MultiRole,
    /// It understands reservations of reservations.
    ReservationRefinement,
    /// It is told when a task has been told to end.
    TaskKillingState,
}

/// What a scheduler says.
#[derive(Debug, Clone)]
pub enum Call {
    /// Begin, or begin again.
    Subscribe {
        /// Who; with its id if it has one.
        framework_info: FrameworkInfo,
        /// Roles without offers for now.
        suppressed_roles: Vec<String>,
    },
    /// The end of the framework and of all its tasks.
    Teardown,
    /// Launch on the union of these offers; what is left is declined with the filters.
    Accept {
        /// Of one agent and one role.
        offer_ids: Vec<OfferId>,
        /// To launch.
        task_infos: Vec<TaskInfo>,
        /// For the rest.
        filters: Filters,
    },
    /// Give these back.
    Decline {
        /// Which ones.
        offer_ids: Vec<OfferId>,
        /// For how long.
        filters: Filters,
    },
    /// Offers again, whatever was declined.
    Revive,
    /// No more offers.
    Suppress,
    /// End a task.
    Kill {
        /// Which one.
        task_id: TaskId,
        /// Where; left away if it is not certain, since a wrong one makes the master drop the call.
        agent_id: Option<AgentId>,
    },
    /// An update was dealt with.
    Acknowledge {
        /// As the update has it.
        agent_id: AgentId,
        /// As the update has it.
        task_id: TaskId,
        /// As the update has it.
        uuid: String,
    },
    /// How are these tasks; or, where there are none, all that the master knows.
    Reconcile {
        /// With the agents they were launched on.
        tasks: Vec<ReconcileTask>,
    },
}

/// A task to ask for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReconcileTask {
    /// Which one.
    pub task_id: TaskId,
    /// Where it is or was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<AgentId>,
}

/// For how long what is declined is not offered again.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Filters {
    /// In seconds; the master's default is 5.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refuse_seconds: Option<f64>,
}

/// A call with the framework it is of, as the master reads it.
#[derive(Debug)]
pub struct Request<'a> {
    /// None before there is one.
    pub framework_id: Option<&'a FrameworkId>,
    /// What is said.
    pub call: &'a Call,
}

impl Serialize for Request<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Subscribe<'a> {
            framework_info: &'a FrameworkInfo,
            #[serde(skip_serializing_if = "<[_]>::is_empty")]
            suppressed_roles: &'a [String],
        }
        #[derive(Serialize)]
        struct Accept<'a> {
            offer_ids: &'a [OfferId],
            operations: [Operation<'a>; 1],
            filters: Filters,
        }
        #[derive(Serialize)]
        #[serde(tag = "type", rename_all = "SCREAMING_SNAKE_CASE")]
        enum Operation<'a> {
            Launch { launch: Launch<'a> },
        }
        #[derive(Serialize)]
        struct Launch<'a> {
            task_infos: &'a [TaskInfo],
        }
        #[derive(Serialize)]
        struct Decline<'a> {
            offer_ids: &'a [OfferId],
            filters: Filters,
        }
        #[derive(Serialize)]
        struct Kill<'a> {
            task_id: &'a TaskId,
            #[serde(skip_serializing_if = "Option::is_none")]
            agent_id: Option<&'a AgentId>,
        }
        #[derive(Serialize)]
        struct Acknowledge<'a> {
            agent_id: &'a AgentId,
            task_id: &'a TaskId,
            uuid: &'a str,
        }
        #[derive(Serialize)]
        struct Reconcile<'a> {
            tasks: &'a [ReconcileTask],
        }

        let mut map = serializer.serialize_map(None)?;
        if let Some(id) = self.framework_id {
            map.serialize_entry("framework_id", id)?;
        }
        map.serialize_entry("type", self.call.name())?;
        match self.call {
            Call::Subscribe { framework_info, suppressed_roles } => {
                let subscribe = Subscribe { framework_info, suppressed_roles };
                map.serialize_entry("subscribe", &subscribe)?;
            }
            Call::Teardown | Call::Revive | Call::Suppress => {}
            Call::Accept { offer_ids, task_infos, filters } => {
                let operations = [Operation::Launch { launch: Launch { task_infos } }];
                let accept = Accept { offer_ids, operations, filters: *filters };
                map.serialize_entry("accept", &accept)?;
            }
            Call::Decline { offer_ids, filters } => {
                map.serialize_entry("decline", &Decline { offer_ids, filters: *filters })?;
            }
            Call::Kill { task_id, agent_id } => {
                map.serialize_entry("kill", &Kill { task_id, agent_id: agent_id.as_ref() })?;
            }
            Call::Acknowledge { agent_id, task_id, uuid } => {
                map.serialize_entry("acknowledge", &Acknowledge { agent_id, task_id, uuid })?;
            }
            Call::Reconcile { tasks } => map.serialize_entry("reconcile", &Reconcile { tasks })?,
        }
        map.end()
    }
}

impl Call {
    /// Its type, as the master reads it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Subscribe { .. } => "SUBSCRIBE",
            Self::Teardown => "TEARDOWN",
            Self::Accept { .. } => "ACCEPT",
            Self::Decline { .. } => "DECLINE",
            Self::Revive => "REVIVE",
            Self::Suppress => "SUPPRESS",
            Self::Kill { .. } => "KILL",
            Self::Acknowledge { .. } => "ACKNOWLEDGE",
            Self::Reconcile { .. } => "RECONCILE",
        }
    }
}
