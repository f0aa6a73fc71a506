//! The handle to one shuffle service.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use shuffle_protocol::message::{
    CorruptionCause, DiagnoseCorruption, ExecutorShuffleInfo, GetLocalDirsForExecutors, Message,
    RegisterDriver, RegisterExecutor, RemoveBlocks, ShuffleServiceHeartbeat, StreamHandle,
};
use shuffle_protocol::wire::StringArray;
use shuffle_protocol::{AppId, ExecId, HeartbeatTimeout};
use tokio_util::sync::CancellationToken;

use crate::connection::{Connection, Slot};
use crate::dial::{Dial, TcpDial};
use crate::error::{ConnectionError, RequestError};
use crate::options::ClientOptions;
use crate::server::ServerAddr;

/// Everything that a driver or executor asks of one shuffle service.
///
/// A handle: clones are cheap and share the connections, so keep one a server and clone it. Nothing
/// is connected before the first request, and a connection that broke or was closed is made anew by
/// the next one. There are at most [`connections_per_server`](ClientOptions::connections_per_server)
/// connections for blocks and one for control (driver and executor registration, heartbeats), which
/// so never waits behind blocks. They close when the last clone is gone.
///
/// Requests need a tokio runtime with I/O and time. Dropping the future of a request is harmless; the
/// service may have done it all the same.
#[derive(Clone)]
pub struct ShuffleServiceClient {
    inner: Arc<Inner>,
}

struct Inner {
    server: ServerAddr,
    options: ClientOptions,
    dial: Arc<dyn Dial>,
    control: Slot,
    data: Box<[Slot]>,
    closed: CancellationToken,
}

impl ShuffleServiceClient {
    /// A client of the service at `server`. Connects when it is needed.
    #[must_use]
    pub fn new(server: ServerAddr, options: ClientOptions) -> Self {
        Self::with_dial(server, options, Arc::new(TcpDial))
    }

    /// Like [`ShuffleServiceClient::new`], with connections made by `dial`.
    #[must_use]
    pub fn with_dial(server: ServerAddr, options: ClientOptions, dial: Arc<dyn Dial>) -> Self {
        let data = (0..options.connections_per_server.get()).map(|_| Slot::default()).collect();
        let control = Slot::default();
        let closed = CancellationToken::new();
        Self { inner: Arc::new(Inner { server, options, dial, control, data, closed }) }
    }

    /// The service.
    #[must_use]
    pub fn server(&self) -> &ServerAddr {
        &self.inner.server
    }

    /// The settings.
    #[must_use]
    pub fn options(&self) -> &ClientOptions {
        &self.inner.options
    }

    /// Registers the driver of `app_id`: the service removes the application's files when it has
    /// heard nothing from the driver for `timeout`. Done when the service has acknowledged.
    ///
    /// One attempt; [`DriverRegistration`](crate::DriverRegistration) keeps an application
    /// registered whatever happens to the connection.
    ///
    /// # Errors
    /// [`RequestError::Refused`] by a service without driver registration (Spark's own, outside
    /// Mesos); I/O errors, which are retryable.
    pub async fn register_driver(
        &self,
        app_id: &AppId,
        timeout: HeartbeatTimeout,
    ) -> Result<(), RequestError> {
        let message = register_driver(app_id, timeout);
        self.control_rpc(&message).await?;
        Ok(())
    }

    /// Sends one heartbeat. One-way: success means that it was handed to the network, nothing more.
    ///
    /// # Errors
    /// I/O errors, which are retryable.
    pub async fn heartbeat(&self, app_id: &AppId) -> Result<(), RequestError> {
        let message = heartbeat(app_id);
        match self.control().await?.one_way(&message).await {
            Err(error) if was_not_sent(&error) => self.control().await?.one_way(&message).await,
            sent => sent,
        }
    }

    /// Tells where an executor keeps its files. Done when the service has acknowledged.
    ///
    /// One attempt without a time limit but the connection's;
    /// [`register_executor_with_retries`](Self::register_executor_with_retries) follows Spark's
    /// rule.
    ///
    /// # Errors
    /// [`RequestError::Refused`], for example for directories outside the allowed roots; I/O errors,
    /// which are retryable.
    pub async fn register_executor(
        &self,
        app_id: &AppId,
        exec_id: &ExecId,
        info: &ExecutorShuffleInfo,
    ) -> Result<(), RequestError> {
        let message = RegisterExecutor {
            app_id: app_id.clone(),
            exec_id: exec_id.clone(),
            info: info.clone(),
        };
        self.control_rpc(&message.into()).await?;
        Ok(())
    }

    /// Deletes files of an executor by name (RDD blocks, data and index files) and tells how many
    /// there were. Since Spark 3.0.
    ///
    /// # Errors
    /// [`RequestError::Refused`] if the executor is not registered; I/O errors, which are retryable.
    pub async fn remove_blocks<S: AsRef<str>>(
        &self,
        app_id: &AppId,
        exec_id: &ExecId,
        block_ids: impl IntoIterator<Item = S>,
    ) -> Result<u32, RequestError> {
        let message = RemoveBlocks {
            app_id: app_id.clone(),
            exec_id: exec_id.clone(),
            block_ids: block_ids.into_iter().collect(),
        };
        match self.data_request(&message.into()).await? {
            Message::BlocksRemoved(removed) => {
                // A negative count is nonsense, and none is what it comes to.
                Ok(u32::try_from(removed.num_removed_blocks).unwrap_or(0))
            }
            other => Err(self.unexpected("BlocksRemoved", &other)),
        }
    }

    /// The directories of executors, in the service's order. Since Spark 3.0.
    ///
    /// # Errors
    /// [`RequestError::Refused`] if one of the executors is not registered; I/O errors, which are
    /// retryable.
    pub async fn local_dirs(
        &self,
        app_id: &AppId,
        exec_ids: &[ExecId],
    ) -> Result<Vec<(ExecId, Vec<String>)>, RequestError> {
        let message = GetLocalDirsForExecutors {
            app_id: app_id.clone(),
            exec_ids: exec_ids.iter().map(ExecId::as_str).collect::<StringArray>(),
        };
        match self.data_request(&message.into()).await? {
            Message::LocalDirsForExecutors(dirs) => Ok(dirs
                .iter()
                .map(|(exec, dirs)| (exec.into(), dirs.into_iter().map(str::to_owned).collect()))
                .collect()),
            other => Err(self.unexpected("LocalDirsForExecutors", &other)),
        }
    }

    /// Asks who damaged a block, given the checksum that this reader computed. Since Spark 3.2.
    ///
    /// # Errors
    /// [`RequestError::Refused`] if the executor is not registered or its index unreadable, which
    /// Spark's client takes for [`CorruptionCause::UnknownIssue`]; I/O errors, which are retryable.
    pub async fn diagnose_corruption(
        &self,
        block: DiagnoseCorruption,
    ) -> Result<CorruptionCause, RequestError> {
        match self.data_request(&block.into()).await? {
            Message::CorruptionCause(cause) => Ok(cause),
            other => Err(self.unexpected("CorruptionCause", &other)),
        }
    }

    /// Closes the connections. What is outstanding fails, and so does every later request, with
    /// [`ConnectionError::ClientClosed`]. For all clones.
    pub fn close(&self) {
        self.inner.closed.cancel();
        for slot in self.inner.data.iter().chain([&self.inner.control]) {
            slot.close(self.client_closed());
        }
    }

    /// The connection for control.
    pub(crate) async fn control(&self) -> Result<Connection, ConnectionError> {
        self.connection(&self.inner.control, None).await
    }

    /// Gives the control connection up, so that the next request makes a new one.
    pub(crate) fn give_up_control(&self, reason: &'static str) {
        let server = self.inner.server.clone();
        self.inner.control.close(ConnectionError::GivenUp { server, reason });
    }

    /// One of the connections for data. See [`Slot::connection`] for `fail_within`.
    pub(crate) async fn data(
        &self,
        fail_within: Option<Duration>,
    ) -> Result<Connection, ConnectionError> {
        let slots = &self.inner.data;
        let slot = if slots.len() == 1 { 0 } else { fastrand::usize(0..slots.len()) };
        self.connection(&slots[slot], fail_within).await
    }

    async fn connection(
        &self,
        slot: &Slot,
        fail_within: Option<Duration>,
    ) -> Result<Connection, ConnectionError> {
        let Inner { server, options, dial, closed, .. } = &*self.inner;
        let connection = tokio::select! {
            biased;
            () = closed.cancelled() => return Err(self.client_closed()),
            connection = slot.connection(server, dial, options, fail_within) => connection?,
        };
        if closed.is_cancelled() {
            // The client was closed between the two branches above, and did not see this one.
            connection.close(self.client_closed());
            return Err(self.client_closed());
        }
        Ok(connection)
    }

    async fn control_rpc(&self, message: &Message) -> Result<Bytes, RequestError> {
        match self.control().await?.rpc(message).await {
            Err(error) if was_not_sent(&error) => self.control().await?.rpc(message).await,
            answer => answer,
        }
    }

    async fn data_request(&self, message: &Message) -> Result<Message, RequestError> {
        let answer = match self.data(None).await?.rpc(message).await {
            Err(error) if was_not_sent(&error) => self.data(None).await?.rpc(message).await,
            answer => answer,
        };
        self.decode(answer?)
    }

    fn decode(&self, answer: Bytes) -> Result<Message, RequestError> {
        Message::decode(answer)
            .map_err(|error| RequestError::Undecodable { server: self.inner.server.clone(), error })
    }

    /// Reads the answer to a message that opens a stream.
    pub(crate) fn stream_handle(&self, answer: Bytes) -> Result<StreamHandle, RequestError> {
        match self.decode(answer)? {
            Message::StreamHandle(handle) => Ok(handle),
            other => Err(self.unexpected("StreamHandle", &other)),
        }
    }

    fn unexpected(&self, expected: &'static str, got: &Message) -> RequestError {
        let server = self.inner.server.clone();
        RequestError::UnexpectedAnswer { server, expected, got: got.name() }
    }

    fn client_closed(&self) -> ConnectionError {
        ConnectionError::ClientClosed { server: self.inner.server.clone() }
    }
}

impl fmt::Debug for ShuffleServiceClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShuffleServiceClient")
            .field("server", &self.inner.server)
            .finish_non_exhaustive()
    }
}

/// True if the connection was closed as unused just when it was taken: the request never left.
fn was_not_sent(error: &RequestError) -> bool {
    matches!(error, RequestError::Connection(ConnectionError::Unused { .. }))
}

pub(crate) fn register_driver(app_id: &AppId, timeout: HeartbeatTimeout) -> Message {
    RegisterDriver { app_id: app_id.clone(), heartbeat_timeout_ms: timeout.to_wire() }.into()
}

pub(crate) fn heartbeat(app_id: &AppId) -> Message {
    ShuffleServiceHeartbeat { app_id: app_id.clone() }.into()
}
