//! Tasks: how one is described, and what becomes of it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ids::{AgentId, ExecutorId, TaskId};
use super::resource::Resource;

/// A task to launch. Exactly one of `command` and `executor` is set.
#[derive(Debug, Clone, Serialize)]
pub struct TaskInfo {
    /// For people.
    pub name: String,
    /// Of the framework.
    pub task_id: TaskId,
    /// Whose offers it is launched on.
    pub agent_id: AgentId,
    /// Out of the offers.
    pub resources: Vec<Resource>,
    /// What the agent's own executor runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<CommandInfo>,
    /// What it runs in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<ContainerInfo>,
    /// For whoever looks at the master's state.
    pub labels: Labels,
}

/// What is run, and what is fetched before.
#[derive(Debug, Clone, Serialize)]
pub struct CommandInfo {
    /// For `/bin/sh -c`.
    pub value: String,
    /// Fetched into the sandbox.
    pub uris: Vec<Uri>,
    /// Over the executor's own.
    pub environment: Environment,
}

/// Something to fetch; archives are unpacked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Uri {
    /// Where it is.
    pub value: String,
    /// Whether the agent keeps it for others.
    pub cache: bool,
}

/// Environment variables, in order.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Environment {
    /// Each once.
    pub variables: Vec<Variable>,
}

/// An environment variable: with a value, or one that the agent's secret resolver gives.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Variable {
    /// With its value.
    Value {
        /// Of the variable.
        name: String,
        /// Its text.
        value: String,
    },
    /// With a secret.
    Secret {
        /// Of the variable.
        name: String,
        /// Its text, or where that is.
        secret: Secret,
    },
}

/// A secret: the name of one that the cluster keeps, or one itself. (No `Debug` shows the latter.)
#[derive(Clone, Serialize)]
#[serde(tag = "type", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Secret {
    /// Kept by the cluster.
    Reference {
        /// Where.
        reference: SecretName,
    },
    /// Here.
    Value {
        /// What it is.
        value: SecretData,
    },
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Reference { reference } => write!(f, "Reference({:?})", reference.name),
            Self::Value { .. } => f.write_str("Value(…)"),
        }
    }
}

/// The name of a secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SecretName {
    /// As the cluster knows it.
    pub name: String,
}

/// The bytes of a secret, in Base64.
#[derive(Clone, Serialize)]
pub struct SecretData {
    /// Base64, as JSON has bytes.
    pub data: String,
}

impl std::fmt::Debug for SecretData {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("…")
    }
}

/// Keys with values, in order. The message is there also when it is empty.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Labels {
    /// A key may come twice.
    #[serde(default)]
    pub labels: Vec<Label>,
}

/// A key with its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Label {
    /// Its key.
    pub key: String,
    /// Its value.
    #[serde(default)]
    pub value: String,
}

/// What a task runs in.
#[derive(Debug, Clone, Serialize)]
pub struct ContainerInfo {
    /// Whose container it is.
    #[serde(rename = "type")]
    pub containerizer: Containerizer,
    /// For Docker's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub docker: Option<DockerInfo>,
    /// For Mesos's own, with an image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mesos: Option<MesosInfo>,
    /// What is mounted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<Volume>,
    /// What it is attached to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub network_infos: Vec<NetworkInfo>,
}

/// Who makes a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Containerizer {
    /// The Docker daemon.
    Docker,
    /// The agent.
    Mesos,
}

/// A container of Docker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DockerInfo {
    /// Its name, with registry and tag.
    pub image: String,
    /// Whether it is pulled although it is there.
    pub force_pull_image: bool,
    /// `USER` for a network of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<DockerNetwork>,
    /// Ports of the host that lead into it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub port_mappings: Vec<PortMapping>,
    /// For the command line of docker.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parameters: Vec<Parameter>,
}

/// Docker's kinds of network that are asked for here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum DockerNetwork {
    /// One that the operator defined.
    User,
}

/// A port of the host that leads into a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PortMapping {
    /// Outside.
    pub host_port: u16,
    /// Inside.
    pub container_port: u16,
    /// `tcp` or `udp`.
    pub protocol: String,
}

/// A parameter of docker's command line, without its dashes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Parameter {
    /// Such as `cap-add`.
    pub key: String,
    /// Such as `NET_ADMIN`.
    pub value: String,
}

/// A container of Mesos's own with an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MesosInfo {
    /// Which one.
    pub image: Image,
}

/// An image of Docker's kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Image {
    /// `DOCKER`.
    #[serde(rename = "type")]
    pub image_type: &'static str,
    /// Which one.
    pub docker: ImageName,
    /// Whether one that is there will do.
    pub cached: bool,
}

/// The name of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ImageName {
    /// With registry and tag.
    pub name: String,
}

/// Something that is mounted.
#[derive(Debug, Clone, Serialize)]
pub struct Volume {
    /// Where, inside.
    pub container_path: String,
    /// What, outside; without it a directory of the sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_path: Option<String>,
    /// Whether it can be written.
    pub mode: VolumeMode,
    /// Where else it comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<VolumeSource>,
}

/// Whether a volume can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum VolumeMode {
    /// Yes.
    Rw,
    /// No.
    Ro,
}

/// A volume that is a secret's file.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum VolumeSource {
    /// This one's.
    Secret {
        /// What is in it.
        secret: Secret,
    },
}

/// A network to attach to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NetworkInfo {
    /// As the operator named it.
    pub name: String,
    /// For its plug-in.
    pub labels: Labels,
}

/// What became of a task.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct TaskStatus {
    /// Which one.
    pub task_id: TaskId,
    /// How it is.
    pub state: TaskState,
    /// For people.
    #[serde(default)]
    pub message: Option<String>,
    /// Who says so.
    #[serde(default)]
    pub source: Option<StatusSource>,
    /// Why, as `REASON_…`. A text, since each version of Mesos has more of them.
    #[serde(default)]
    pub reason: Option<String>,
    /// Where it is or was.
    #[serde(default)]
    pub agent_id: Option<AgentId>,
    /// Whose it is.
    #[serde(default)]
    pub executor_id: Option<ExecutorId>,
    /// Set if the update has to be acknowledged: 16 bytes in Base64, given back as they came.
    #[serde(default)]
    pub uuid: Option<String>,
    /// Addresses, among others.
    #[serde(default)]
    pub container_status: Option<Value>,
}

/// How a task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TaskState {
    /// The master knows of it.
    TaskStaging,
    /// Its executor does.
    TaskStarting,
    /// It runs.
    TaskRunning,
    /// It was told to end.
    TaskKilling,
    /// It ended by itself.
    TaskFinished,
    /// It ended with an error.
    TaskFailed,
    /// It was ended.
    TaskKilled,
    /// Its description is wrong or not allowed.
    TaskError,
    /// Gone, for a framework that cannot know better.
    TaskLost,
    /// It never started.
    TaskDropped,
    /// Nobody can reach its agent; it may run.
    TaskUnreachable,
    /// Its agent says that it does not run.
    TaskGone,
    /// An operator says that it does not run.
    TaskGoneByOperator,
    /// The master does not know it.
    TaskUnknown,
    /// A state that a later version of Mesos has.
    #[serde(other)]
    Other,
}

/// Who says how a task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum StatusSource {
    /// The master.
    SourceMaster,
    /// The agent.
    SourceAgent,
    /// The executor.
    SourceExecutor,
    /// Somebody of a later version.
    #[serde(other)]
    Other,
}
