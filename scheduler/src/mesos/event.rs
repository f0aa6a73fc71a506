//! What the master says to a scheduler (`spec/mesos-http-api.md` §6).

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::ids::{AgentId, ExecutorId, FrameworkId, OfferId};
use super::resource::Resource;
use super::task::TaskStatus;
use super::value::Attribute;

/// Resources of an agent that may be used once.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Offer {
    /// Its id.
    pub id: OfferId,
    /// Whose it is.
    pub agent_id: AgentId,
    /// The agent's name, which is an address as well.
    pub hostname: String,
    /// What there is.
    #[serde(default)]
    pub resources: Vec<Resource>,
    /// What the operator says of the agent.
    #[serde(default)]
    pub attributes: Vec<Attribute>,
    /// To which role it is made.
    #[serde(default)]
    pub allocation_info: Option<AllocationInfo>,
    /// When the agent is to be taken away, if it is.
    #[serde(default)]
    pub unavailability: Option<Value>,
}

/// To which role an offer is made.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct AllocationInfo {
    /// One of the framework's.
    #[serde(default)]
    pub role: Option<String>,
}

/// What the master says.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The subscription stands.
    Subscribed {
        /// To be kept.
        framework_id: FrameworkId,
        /// Between two heartbeats; none if there are none.
        heartbeat: Option<Duration>,
    },
    /// There is something to use.
    Offers(Vec<Offer>),
    /// An offer does not hold any more.
    Rescind(OfferId),
    /// Something became of a task.
    Update(Box<TaskStatus>),
    /// An executor ended, or an agent is gone.
    Failure {
        /// Which agent's, or which agent.
        agent_id: Option<AgentId>,
        /// Which executor; none if it is the agent.
        executor_id: Option<ExecutorId>,
    },
    /// The subscription is over.
    Error(String),
    /// The master is there.
    Heartbeat,
    /// Something that this scheduler has no use for, or that a later version says: its type.
    Other(String),
}

/// What is no event: not JSON, or a field is missing or wrong.
#[derive(Debug, thiserror::Error)]
#[error("the master sent what is no event: {source}")]
pub struct MalformedEvent {
    #[from]
    source: serde_json::Error,
}

impl Event {
    /// Parses a record.
    ///
    /// # Errors
    /// [`MalformedEvent`]. Fields that are unknown are none.
    pub fn parse(record: &[u8]) -> Result<Self, MalformedEvent> {
        #[derive(Deserialize)]
        struct Record {
            #[serde(rename = "type", default)]
            event: String,
            #[serde(flatten)]
            payload: serde_json::Map<String, Value>,
        }
        #[derive(Deserialize)]
        struct Subscribed {
            framework_id: FrameworkId,
            #[serde(default)]
            heartbeat_interval_seconds: Option<f64>,
        }
        #[derive(Deserialize)]
        struct Offers {
            #[serde(default)]
            offers: Vec<Offer>,
        }
        #[derive(Deserialize)]
        struct Rescind {
            offer_id: OfferId,
        }
        #[derive(Deserialize)]
        struct Update {
            status: TaskStatus,
        }
        #[derive(Deserialize)]
        struct Failure {
            #[serde(default)]
            agent_id: Option<AgentId>,
            #[serde(default)]
            executor_id: Option<ExecutorId>,
        }
        #[derive(Deserialize)]
        struct Error {
            #[serde(default)]
            message: String,
        }

        let Record { event, mut payload } = serde_json::from_slice(record)?;
        let mut body = |field: &str| payload.remove(field).unwrap_or_default();
        Ok(match event.as_str() {
            "SUBSCRIBED" => {
                let Subscribed { framework_id, heartbeat_interval_seconds } =
                    serde_json::from_value(body("subscribed"))?;
                let heartbeat = heartbeat_interval_seconds
                    .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
                    .filter(|interval| !interval.is_zero());
                Self::Subscribed { framework_id, heartbeat }
            }
            "OFFERS" => Self::Offers(serde_json::from_value::<Offers>(body("offers"))?.offers),
            "RESCIND" => {
                Self::Rescind(serde_json::from_value::<Rescind>(body("rescind"))?.offer_id)
            }
            "UPDATE" => {
                Self::Update(Box::new(serde_json::from_value::<Update>(body("update"))?.status))
            }
            "FAILURE" => {
                let Failure { agent_id, executor_id } = serde_json::from_value(body("failure"))?;
                Self::Failure { agent_id, executor_id }
            }
            "ERROR" => Self::Error(serde_json::from_value::<Error>(body("error"))?.message),
            "HEARTBEAT" => Self::Heartbeat,
            _ => Self::Other(event),
        })
    }
}
