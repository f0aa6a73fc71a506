//! Keeping an application registered.

mod machine;

use std::fmt;
use std::future::{Future, pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use shuffle_protocol::{AppId, HeartbeatTimeout};
use thiserror::Error;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, error, info, warn};

use self::machine::{Action, Machine, Rules, State};
use crate::client::{ShuffleServiceClient, heartbeat, register_driver};
use crate::connection::{Connection, now};
use crate::error::{ConnectionError, RequestError};

/// Spark's default of `spark.network.timeout`.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(120);
/// Nothing waits longer; an hour is for ever to everybody concerned, and adds to any instant.
const LONGEST: Duration = Duration::from_secs(3600);
/// Nothing waits shorter, however short the timeout.
const SHORTEST: Duration = Duration::from_millis(1);

/// How an application is kept registered.
#[derive(Clone)]
pub struct DriverOptions {
    /// How long the service waits for a sign of life before it removes the application's files.
    /// `spark.storage.blockManagerHeartbeatTimeoutMs`, 120 s.
    pub timeout: HeartbeatTimeout,
    /// Between two heartbeats; below `timeout`. `spark.executor.heartbeatInterval`, 10 s. A value
    /// over half of [`connection_timeout`](crate::ClientOptions::connection_timeout) counts as that
    /// half, since the connection would be closed as unused in between.
    pub interval: Duration,
    /// How long a registration may go unanswered, or a heartbeat unsent, before the connection is
    /// given up for a new one. At most a quarter of `timeout`. 10 s.
    pub patience: Duration,
    /// The first wait after a failure; doubled with each further one. 500 ms.
    pub first_wait: Duration,
    /// The longest wait after a failure; at most a quarter of `timeout`. 30 s.
    pub longest_wait: Duration,
    /// Random numbers in `0.0..1.0`; they shorten each wait by up to a half.
    pub chance: Arc<dyn Fn() -> f64 + Send + Sync>,
}

impl Default for DriverOptions {
    fn default() -> Self {
        Self {
            timeout: HeartbeatTimeout::After(DEFAULT_TIMEOUT),
            interval: Duration::from_secs(10),
            patience: Duration::from_secs(10),
            first_wait: Duration::from_millis(500),
            longest_wait: Duration::from_secs(30),
            chance: Arc::new(fastrand::f64),
        }
    }
}

impl fmt::Debug for DriverOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DriverOptions")
            .field("timeout", &self.timeout)
            .field("interval", &self.interval)
            .finish_non_exhaustive()
    }
}

/// Options under which an application cannot be kept alive. The caller's fault; never retryable.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidDriverOptions {
    /// Heartbeats as rare as the timeout.
    #[error(
        "a heartbeat every {} ms cannot keep an application alive that is given up after {timeout}: \
         spark.executor.heartbeatInterval must be below \
         spark.storage.blockManagerHeartbeatTimeoutMs",
        interval.as_millis()
    )]
    IntervalNotBelowTimeout {
        /// As given.
        interval: Duration,
        /// As given.
        timeout: HeartbeatTimeout,
    },
    /// A duration of zero.
    #[error("{0} cannot be zero")]
    Zero(&'static str),
}

impl InvalidDriverOptions {
    /// Never.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        false
    }
}

/// Why an application is not registered at the moment.
#[derive(Debug, Clone, Error)]
pub enum DriverError {
    /// Connecting or registering failed, the service refused, or the connection ended.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The service, or what is between, did not acknowledge in time. The peer's or the network's
    /// fault.
    #[error("no acknowledgement within {} ms", patience.as_millis())]
    NotAcknowledged {
        /// The time given, [`DriverOptions::patience`].
        patience: Duration,
    },
}

impl DriverError {
    /// True if it may pass by itself. Registration goes on in any case: a service that refuses
    /// today may be replaced by one that does not.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Request(error) => error.is_retryable(),
            Self::NotAcknowledged { .. } => true,
        }
    }
}

/// Where a registration stands.
#[derive(Debug, Clone)]
pub enum DriverStatus {
    /// Connecting, or waiting for the acknowledgement.
    Connecting {
        /// Counts from 1, and from 1 again after a time of success.
        attempt: u32,
    },
    /// The service acknowledged, and the connection has not broken since.
    Registered {
        /// When it acknowledged.
        since: Instant,
        /// Heartbeats handed to the network since then.
        beats: u64,
    },
    /// Not registered; it is tried again.
    Retrying {
        /// Failed attempts in a row.
        attempt: u32,
        /// What became of the last.
        error: DriverError,
        /// When it is tried again.
        next: Instant,
    },
    /// Nothing more is sent: [`DriverRegistration::close`] was called, or the client was closed.
    Closed,
}

impl DriverStatus {
    /// True if the service acknowledged and the connection has not broken since.
    #[must_use]
    pub fn is_registered(&self) -> bool {
        matches!(self, Self::Registered { .. })
    }
}

/// Keeps one application registered with one service, until it is closed or dropped.
///
/// A background task registers, beats from the acknowledgement on, and after any break (also when
/// the service was restarted, or did not answer) connects and registers again, with growing,
/// randomised waits. Services do not wait for each other: make one registration for each. Now and
/// then (at half of the timeout) the registration is repeated in place of a heartbeat, because
/// heartbeats are never answered and a service that forgot the application would never say so.
///
/// If the task panics, that is counted and the task begins anew with a registration.
#[derive(Debug)]
pub struct DriverRegistration {
    status: watch::Receiver<DriverStatus>,
    restarts: Arc<AtomicU64>,
    interval: Duration,
    task: AbortOnDropHandle<()>,
}

impl ShuffleServiceClient {
    /// Begins to keep `app_id` registered. Returns at once; [`DriverRegistration::registered`] waits
    /// for the first acknowledgement. Needs a tokio runtime.
    ///
    /// # Errors
    /// Options under which the application could not be kept alive.
    pub fn keep_registered(
        &self,
        app_id: AppId,
        options: DriverOptions,
    ) -> Result<DriverRegistration, InvalidDriverOptions> {
        let rules = rules(&options, self.options().connection_timeout)?;
        let interval = rules.interval;
        let (report, status) = watch::channel(DriverStatus::Connecting { attempt: 1 });
        let restarts = Arc::new(AtomicU64::new(0));
        let keeper = Keeper { client: self.clone(), app_id, rules, report, chance: options.chance };
        let task = tokio::spawn(supervise(Arc::new(keeper), restarts.clone()));
        Ok(DriverRegistration { status, restarts, interval, task: AbortOnDropHandle::new(task) })
    }
}

impl DriverRegistration {
    /// Where it stands now.
    #[must_use]
    pub fn status(&self) -> DriverStatus {
        self.status.borrow().clone()
    }

    /// Tells of every change of the status, heartbeats included.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<DriverStatus> {
        self.status.clone()
    }

    /// Waits until the service has acknowledged, however often that is tried. Gives false if the
    /// client was closed instead.
    pub async fn registered(&self) -> bool {
        let mut status = self.status.clone();
        let settled = |status: &DriverStatus| {
            matches!(status, DriverStatus::Registered { .. } | DriverStatus::Closed)
        };
        status.wait_for(settled).await.is_ok_and(|status| status.is_registered())
    }

    /// The heartbeat interval in force; see [`DriverOptions::interval`].
    #[must_use]
    pub fn interval(&self) -> Duration {
        self.interval
    }

    /// How often the task panicked and was started anew.
    #[must_use]
    pub fn restarts(&self) -> u64 {
        self.restarts.load(Ordering::Relaxed)
    }

    /// Stops the heartbeats and waits until nothing more is sent. The service is not told, as there
    /// is no message for it: it removes the application's files after the timeout.
    pub async fn close(self) {
        self.task.abort();
        // Cancelled, which is what was asked for.
        let _ = self.task.await;
    }
}

/// Checks the options and turns them into what the machine goes by.
fn rules(
    options: &DriverOptions,
    connection_timeout: Duration,
) -> Result<Rules, InvalidDriverOptions> {
    let DriverOptions { timeout, interval, patience, first_wait, longest_wait, .. } = *options;
    for (name, value) in [
        ("the heartbeat interval", interval),
        ("the patience for an acknowledgement", patience),
        ("the first wait after a failure", first_wait),
        ("the longest wait after a failure", longest_wait),
    ] {
        if value.is_zero() {
            return Err(InvalidDriverOptions::Zero(name));
        }
    }
    let within = match timeout {
        HeartbeatTimeout::After(given) if interval >= given => {
            return Err(InvalidDriverOptions::IntervalNotBelowTimeout { interval, timeout });
        }
        HeartbeatTimeout::After(timeout) => timeout,
        HeartbeatTimeout::Never => DEFAULT_TIMEOUT,
    };
    // Unused connections are closed, here or by the service, which has the same default.
    let unused = if connection_timeout.is_zero() { LONGEST } else { connection_timeout };
    Ok(Rules {
        timeout,
        interval: interval.min(unused / 2).clamp(SHORTEST, LONGEST),
        patience: patience.min(within / 4).clamp(SHORTEST, LONGEST),
        confirm: (within / 2).min(LONGEST),
        first_wait: first_wait.min(within / 4).clamp(SHORTEST, LONGEST),
        longest_wait: longest_wait.min(within / 4).clamp(SHORTEST, LONGEST),
    })
}

/// What the task works with.
struct Keeper {
    client: ShuffleServiceClient,
    app_id: AppId,
    rules: Rules,
    report: watch::Sender<DriverStatus>,
    chance: Arc<dyn Fn() -> f64 + Send + Sync>,
}

/// Runs the work, and again after a panic.
async fn supervise(keeper: Arc<Keeper>, restarts: Arc<AtomicU64>) {
    let _closed = ReportClosed(keeper.clone());
    loop {
        let mut run = pin!(keep(keeper.clone()));
        let outcome = poll_fn(|context| {
            // Nothing that the next run uses is left half-done: it has a machine of its own.
            match catch_unwind(AssertUnwindSafe(|| run.as_mut().poll(context))) {
                Ok(Poll::Pending) => Poll::Pending,
                Ok(Poll::Ready(())) => Poll::Ready(Ok(())),
                Err(panic) => Poll::Ready(Err(panic)),
            }
        });
        if outcome.await.is_ok() {
            return; // the client was closed
        }
        restarts.fetch_add(1, Ordering::Relaxed);
        error!(
            app = %keeper.app_id, server = %keeper.client.server(),
            "the heartbeat task panicked and is started anew"
        );
        tokio::time::sleep(keeper.rules.first_wait).await;
    }
}

/// Reports the end, however it comes.
struct ReportClosed(Arc<Keeper>);

impl Drop for ReportClosed {
    fn drop(&mut self) {
        self.0.report.send_replace(DriverStatus::Closed);
    }
}

type Doing = Pin<Box<dyn Future<Output = Done> + Send>>;

/// What came of an action.
enum Done {
    Registered(Connection),
    Beaten,
    Failed(RequestError),
}

/// Does what the machine says, until the client is closed.
async fn keep(keeper: Arc<Keeper>) {
    let Keeper { client, app_id, rules, report, chance } = &*keeper;
    let mut machine = Machine::new(rules.clone(), now());
    let mut connection: Option<Connection> = None;
    let mut doing: Option<Doing> = None;
    loop {
        while let Some(action) = machine.poll(now()) {
            debug!(app = %app_id, server = %client.server(), ?action);
            match action {
                Action::Register => doing = Some(Box::pin(register(keeper.clone()))),
                Action::Beat => doing = Some(Box::pin(beat(keeper.clone(), connection.clone()))),
                Action::GiveUp => {
                    doing = None;
                    connection = None;
                    client.give_up_control("no acknowledgement of a driver registration");
                    let error = DriverError::NotAcknowledged { patience: rules.patience };
                    warn_failed(&keeper, &error);
                    machine.handle_failed(now(), error, chance());
                }
            }
        }
        report.send_replace(status(machine.state()));
        let done = tokio::select! {
            done = or_never(&mut doing) => Some(done),
            reason = ended(connection.as_ref()) => Some(Done::Failed(reason.into())),
            () = tokio::time::sleep_until(machine.poll_timeout().into()) => None,
        };
        let Some(done) = done else { continue };
        doing = None;
        match done {
            Done::Registered(on) => {
                if !matches!(machine.state(), State::Registered { .. }) {
                    info!(
                        "Successfully registered app {app_id} with external shuffle service {}.",
                        client.server()
                    );
                }
                connection = Some(on);
                machine.handle_acknowledged(now());
            }
            Done::Beaten => machine.handle_beaten(),
            Done::Failed(RequestError::Connection(ConnectionError::ClientClosed { .. })) => return,
            Done::Failed(error) => {
                connection = None;
                let error = error.into();
                warn_failed(&keeper, &error);
                machine.handle_failed(now(), error, chance());
            }
        }
    }
}

fn warn_failed(keeper: &Keeper, error: &DriverError) {
    warn!(
        "app {} is not registered with external shuffle service {}, trying again: {error}",
        keeper.app_id,
        keeper.client.server(),
    );
}

async fn register(keeper: Arc<Keeper>) -> Done {
    let register = async {
        let connection = keeper.client.control().await?;
        let message = register_driver(&keeper.app_id, keeper.rules.timeout);
        connection.rpc(&message).await?;
        Ok(connection)
    };
    register.await.map_or_else(Done::Failed, Done::Registered)
}

/// Beats on the connection that was registered and on no other: a new one may lead to a service that
/// was restarted.
async fn beat(keeper: Arc<Keeper>, connection: Option<Connection>) -> Done {
    let Some(connection) = connection else { return pending().await };
    connection
        .one_way(&heartbeat(&keeper.app_id))
        .await
        .map_or_else(Done::Failed, |()| Done::Beaten)
}

async fn or_never(doing: &mut Option<Doing>) -> Done {
    match doing {
        Some(doing) => doing.await,
        None => pending().await,
    }
}

async fn ended(connection: Option<&Connection>) -> ConnectionError {
    match connection {
        Some(connection) => connection.ended().await,
        None => pending().await,
    }
}

fn status(state: &State<DriverError>) -> DriverStatus {
    match state {
        State::Registering { attempt, .. } => DriverStatus::Connecting { attempt: *attempt },
        State::Registered { since, beats } => {
            DriverStatus::Registered { since: *since, beats: *beats }
        }
        State::Waiting { attempt, error, until } => {
            DriverStatus::Retrying { attempt: *attempt, error: error.clone(), next: *until }
        }
    }
}
