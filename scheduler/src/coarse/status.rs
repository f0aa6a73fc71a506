//! What an end of a task means (`spec/spark-mesos-coarse.md` A10).

use crate::mesos::task::{TaskState, TaskStatus};

/// What the driver is told of it.
pub(super) fn reason(status: &TaskStatus) -> String {
    let mut reason = format!("Executor finished with state {}", spark_state(status.state));
    let why = status.message.iter().chain(&status.reason).filter(|text| !text.is_empty());
    for text in why {
        reason.push_str("; ");
        reason.push_str(text);
    }
    reason
}

/// Whether an end says something against the agent. For Spark every one does that is no orderly end: `all`.
pub(super) fn counts(status: &TaskStatus, all: bool) -> bool {
    if all {
        return !matches!(status.state, TaskState::TaskFinished | TaskState::TaskKilled);
    }
    let reason = status.reason.as_deref().unwrap_or("");
    let of_the_cluster = reason.starts_with("REASON_AGENT_")
        || matches!(
            reason,
            "REASON_CONTAINER_PREEMPTED"
                | "REASON_EXECUTOR_REREGISTRATION_TIMEOUT"
                | "REASON_INVALID_OFFERS"
                | "REASON_MASTER_DISCONNECTED"
                | "REASON_RECONCILIATION"
        );
    matches!(status.state, TaskState::TaskFailed | TaskState::TaskError) && !of_the_cluster
}

/// Spark's name for it.
fn spark_state(state: TaskState) -> &'static str {
    match state {
        TaskState::TaskStaging | TaskState::TaskStarting => "LAUNCHING",
        TaskState::TaskRunning | TaskState::TaskKilling => "RUNNING",
        TaskState::TaskFinished => "FINISHED",
        TaskState::TaskFailed | TaskState::TaskGone | TaskState::TaskGoneByOperator => "FAILED",
        TaskState::TaskKilled => "KILLED",
        TaskState::TaskLost
        | TaskState::TaskError
        | TaskState::TaskDropped
        | TaskState::TaskUnknown
        | TaskState::TaskUnreachable
        | TaskState::Other => "LOST",
    }
}
