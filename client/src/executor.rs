//! Executor registration by Spark's rule (`spec/ess-service.md` §9.1).

use std::num::NonZeroU32;
use std::time::Duration;

use shuffle_protocol::message::ExecutorShuffleInfo;
use shuffle_protocol::{AppId, ExecId};
use thiserror::Error;
use tracing::warn;

use crate::client::ShuffleServiceClient;
use crate::error::RequestError;

/// How hard an executor tries to register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistrationPolicy {
    /// For one attempt, connecting included. `spark.shuffle.registration.timeout`, 5 s.
    pub timeout: Duration,
    /// Attempts in all. `spark.shuffle.registration.maxAttempts`, 3.
    pub attempts: NonZeroU32,
    /// Between two attempts; 5 s, fixed in Spark.
    pub wait: Duration,
}

impl Default for RegistrationPolicy {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(5),
            attempts: NonZeroU32::new(3).expect("not zero"),
            wait: Duration::from_secs(5),
        }
    }
}

/// No attempt was acknowledged. An executor exits then.
#[derive(Debug, Clone, Error)]
#[error("Unable to register with external shuffle server due to : {error} ({attempts} attempts)")]
pub struct RegistrationError {
    /// Attempts made.
    pub attempts: u32,
    /// What became of the last.
    pub error: RequestError,
}

impl RegistrationError {
    /// True if later attempts may succeed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.error.is_retryable()
    }
}

impl ShuffleServiceClient {
    /// Tells where an executor keeps its files, and tries again after any error, a refusal
    /// included, as Spark's executors do. (They also close the connection afterwards; here it stays
    /// for others until it is unused.)
    ///
    /// # Errors
    /// The last attempt's, when all failed.
    pub async fn register_executor_with_retries(
        &self,
        app_id: &AppId,
        exec_id: &ExecId,
        info: &ExecutorShuffleInfo,
        policy: &RegistrationPolicy,
    ) -> Result<(), RegistrationError> {
        let RegistrationPolicy { timeout, attempts, wait } = policy;
        let mut attempt = 1;
        loop {
            let registering = self.register_executor(app_id, exec_id, info);
            let error = match tokio::time::timeout(*timeout, registering).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(error)) => error,
                Err(_) => {
                    // What does not answer a registration is not worth keeping.
                    self.give_up_control("an executor registration was not answered in time");
                    RequestError::TimedOut {
                        server: self.server().clone(),
                        after: *timeout,
                        key: "spark.shuffle.registration.timeout",
                    }
                }
            };
            if attempt == attempts.get() {
                return Err(RegistrationError { attempts: attempt, error });
            }
            warn!(
                server = %self.server(), %error,
                "Failed to connect to external shuffle server, will retry {} more times after \
                 waiting {} seconds...",
                attempts.get() - attempt,
                wait.as_secs(),
            );
            attempt += 1;
            tokio::time::sleep(*wait).await;
        }
    }
}
