//! A place for one connection, which is made when it is needed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Connection, now};
use crate::dial::Dial;
use crate::error::ConnectionError;
use crate::options::ClientOptions;
use crate::server::ServerAddr;

/// At most one live connection to one server. Callers who come while it is being made wait and
/// share what comes of it, success or failure.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    current: Mutex<Option<Connection>>,
    /// Held while connecting, with the last failure.
    connecting: tokio::sync::Mutex<Option<(Instant, ConnectionError)>>,
    /// Attempts to connect that have ended.
    attempts: AtomicU64,
}

impl Slot {
    /// The live connection, or a new one. With `fail_within`, a failure less than that ago is taken
    /// for an answer (`spec/wire-framing.md` §8, fast fail).
    pub(crate) async fn connection(
        &self,
        server: &ServerAddr,
        dial: &Arc<dyn Dial>,
        options: &ClientOptions,
        fail_within: Option<Duration>,
    ) -> Result<Connection, ConnectionError> {
        let attempts_before = self.attempts.load(Ordering::Acquire);
        if let Some(connection) = self.live() {
            return Ok(connection);
        }
        let mut last_failure = self.connecting.lock().await;
        if let Some(connection) = self.live() {
            return Ok(connection);
        }
        if let Some((at, error)) = &*last_failure {
            if self.attempts.load(Ordering::Acquire) > attempts_before {
                return Err(error.clone()); // it failed while this caller waited
            }
            if let Some(within) = fail_within
                && now().saturating_duration_since(*at) < within
            {
                return Err(ConnectionError::FailedRecently { server: server.clone(), within });
            }
        }
        let made = connect(server, dial, options).await;
        self.attempts.fetch_add(1, Ordering::Release);
        match made {
            Ok(connection) => {
                *last_failure = None;
                *self.lock() = Some(connection.clone());
                Ok(connection)
            }
            Err(error) => {
                *last_failure = Some((now(), error.clone()));
                Err(error)
            }
        }
    }

    /// Ends the connection if there is one.
    pub(crate) fn close(&self, reason: ConnectionError) {
        let current = self.lock().take();
        if let Some(connection) = current {
            connection.close(reason);
        }
    }

    fn live(&self) -> Option<Connection> {
        self.lock().as_ref().filter(|connection| connection.is_open()).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Connection>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn connect(
    server: &ServerAddr,
    dial: &Arc<dyn Dial>,
    options: &ClientOptions,
) -> Result<Connection, ConnectionError> {
    let after = options.connect_timeout;
    let dialing = dial.dial(server);
    let dialed = if after.is_zero() {
        dialing.await
    } else {
        tokio::time::timeout(after, dialing)
            .await
            .map_err(|_| ConnectionError::ConnectTimedOut { server: server.clone(), after })?
    };
    let transport = dialed.map_err(|error| ConnectionError::ConnectFailed {
        server: server.clone(),
        error: Arc::new(error),
    })?;
    Ok(Connection::start(server.clone(), transport, options))
}
