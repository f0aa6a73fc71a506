//! What the service counts, and the page that shows it.
//!
//! Names that begin with `shuffleService_` are Spark's (`spec/ess-service.md` §6) in Prometheus form:
//! the sink's name with `_` for `.`, counters with `_total`, timers as histograms. Meters are
//! counters here: a rate is the reader's to compute. Names that begin with `shuffled_` are ours. No
//! series has an application in its labels; `/v1/apps` has the figures of each.

use std::fmt::Write as _;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use crate::apps::{Beat, Counts};
use crate::liveness::Reason;

/// What went wrong, as a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// Bytes that are no frame of Spark's.
    MalformedFrame,
    /// A request whose payload cannot be read.
    MalformedMessage,
    /// A message type nobody knows.
    UnknownMessage,
    /// A message that is not for a shuffle service, or a request with impossible values.
    BadRequest,
    /// An executor that is not registered.
    NotRegistered,
    /// A stream or chunk that is not there, or not in its turn.
    BadStream,
    /// A block without its file.
    FileMissing,
    /// A file the service may not read.
    Permission,
    /// A file that is shorter than its index says, or otherwise wrong.
    BadFile,
    /// A disk that failed.
    Disk,
    /// The peer closed or reset its connection while something was on its way.
    PeerClosed,
    /// The peer stopped reading.
    PeerStalled,
    /// Over a limit of the service.
    Overload,
    /// A panic or another bug here.
    Internal,
}

impl ErrorKind {
    const ALL: [Self; 14] = [
        Self::MalformedFrame,
        Self::MalformedMessage,
        Self::UnknownMessage,
        Self::BadRequest,
        Self::NotRegistered,
        Self::BadStream,
        Self::FileMissing,
        Self::Permission,
        Self::BadFile,
        Self::Disk,
        Self::PeerClosed,
        Self::PeerStalled,
        Self::Overload,
        Self::Internal,
    ];

    /// The word in metrics and log.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MalformedFrame => "malformed-frame",
            Self::MalformedMessage => "malformed-message",
            Self::UnknownMessage => "unknown-message",
            Self::BadRequest => "bad-request",
            Self::NotRegistered => "not-registered",
            Self::BadStream => "bad-stream",
            Self::FileMissing => "file-missing",
            Self::Permission => "permission",
            Self::BadFile => "bad-file",
            Self::Disk => "disk",
            Self::PeerClosed => "peer-closed",
            Self::PeerStalled => "peer-stalled",
            Self::Overload => "overload",
            Self::Internal => "internal",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ErrorLabel {
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HeartbeatLabel {
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TaskLabel {
    task: &'static str,
}

/// Every series of the service. Cheap to count, shared by everyone.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// Milliseconds from reading a request that opens a stream to having its answer.
    pub open_block_latency: Histogram,
    /// Milliseconds from reading a RegisterExecutor to having its answer.
    pub register_executor_latency: Histogram,
    /// Blocks sent; a batch counts its partitions.
    pub blocks_sent: Counter,
    /// Chunks sent.
    pub chunks_sent: Counter,
    /// Bytes of chunks sent, counted as they leave.
    pub bytes_sent: Counter,
    /// Open connections.
    pub active_connections: Gauge,
    /// Connections ever accepted.
    pub connections: Counter,
    /// Connections that ended by an error.
    pub caught_exceptions: Counter,
    /// Open streams of all connections.
    pub open_streams: Gauge,
    /// Chunks that were asked for and are not sent yet.
    pub chunks_in_transfer: Gauge,
    /// Directories of expired applications still to be removed.
    pub removals_pending: Gauge,
    /// Directories removed.
    pub dirs_removed: Counter,
    /// Directories of expired applications left alone, because a live one registered them too.
    pub dirs_kept: Counter,
    /// Applications that would have expired but for `shuffled.cleanup`.
    pub would_expire: Counter,
    /// Directories that this service may not read, of all that were registered.
    pub unreadable_dirs: Counter,
    /// Directories brought back before their files went.
    pub dirs_restored: Counter,
    /// Drivers that could not shorten the timeout of a live application.
    pub timeouts_kept: Counter,
    /// Whether registrations are on disk when they are acknowledged: 1, or 0 while the store fails. Not
    /// set without a state directory.
    pub store_writable: Gauge,
    /// Whether the store was found damaged at the start and set aside.
    pub store_damaged: Gauge,
    /// Writes of the store that failed.
    pub store_failures: Counter,
    /// Transactions of the store.
    pub store_commits: Counter,
    /// Milliseconds that one took.
    pub store_commit_latency: Histogram,
    /// Files unlinked, by expiry and by request.
    pub files_removed: Counter,
    /// Bytes in them.
    pub bytes_removed: Counter,
    /// Attempts to remove a directory that left something behind.
    pub removal_failures: Counter,
    registered_executors: Gauge,
    apps: Gauge,
    drivers: Gauge,
    apps_held: Gauge,
    errors: Family<ErrorLabel, Counter>,
    heartbeats: Family<HeartbeatLabel, Counter>,
    expired: Family<ReasonLabel, Counter>,
    task_restarts: Family<TaskLabel, Counter>,
}

impl Default for Metrics {
    fn default() -> Self {
        let millis =
            || Histogram::new([0.1, 0.5, 1.0, 5.0, 10.0, 50.0, 100.0, 500.0, 1000.0, 5000.0]);
        let mut this = Self {
            registry: Registry::default(),
            open_block_latency: millis(),
            register_executor_latency: millis(),
            blocks_sent: Counter::default(),
            chunks_sent: Counter::default(),
            bytes_sent: Counter::default(),
            active_connections: Gauge::default(),
            connections: Counter::default(),
            caught_exceptions: Counter::default(),
            open_streams: Gauge::default(),
            chunks_in_transfer: Gauge::default(),
            removals_pending: Gauge::default(),
            dirs_removed: Counter::default(),
            dirs_kept: Counter::default(),
            would_expire: Counter::default(),
            unreadable_dirs: Counter::default(),
            dirs_restored: Counter::default(),
            timeouts_kept: Counter::default(),
            store_writable: Gauge::default(),
            store_damaged: Gauge::default(),
            store_failures: Counter::default(),
            store_commits: Counter::default(),
            store_commit_latency: millis(),
            files_removed: Counter::default(),
            bytes_removed: Counter::default(),
            removal_failures: Counter::default(),
            registered_executors: Gauge::default(),
            apps: Gauge::default(),
            drivers: Gauge::default(),
            apps_held: Gauge::default(),
            errors: Family::default(),
            heartbeats: Family::default(),
            expired: Family::default(),
            task_restarts: Family::default(),
        };
        // A series that appears with its first event hides that event from `rate` and `increase`.
        for kind in ErrorKind::ALL {
            this.error_counter(kind);
        }
        for beat in [Beat::Counted, Beat::Expired, Beat::Unknown] {
            this.heartbeat_counter(beat);
        }
        for reason in Reason::ALL {
            this.expired_counter(reason);
        }
        this.register();
        this
    }
}

impl Metrics {
    fn register(&mut self) {
        let sparks = self.registry.sub_registry_with_prefix("shuffleService");
        let mut add = |name: &str, help: &str, metric: &dyn RegisterMetric| {
            metric.register(sparks, name, help);
        };
        add(
            "openBlockRequestLatencyMillis",
            "Time to answer a request that opens a stream",
            &self.open_block_latency,
        );
        add(
            "registerExecutorRequestLatencyMillis",
            "Time to answer a RegisterExecutor",
            &self.register_executor_latency,
        );
        add("blockTransferRate", "Blocks sent; a batch counts its partitions", &self.blocks_sent);
        add("blockTransferMessageRate", "Chunks sent", &self.chunks_sent);
        add("blockTransferRateBytes", "Bytes of chunks sent", &self.bytes_sent);
        add("registeredExecutorsSize", "Registered executors", &self.registered_executors);
        add("numActiveConnections", "Open connections", &self.active_connections);
        add("numRegisteredConnections", "Connections ever accepted", &self.connections);
        add("numCaughtExceptions", "Connections ended by an error", &self.caught_exceptions);

        let ours = self.registry.sub_registry_with_prefix("shuffled");
        let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        ours.register("build", "The program that answers", version);
        let mut add = |name: &str, help: &str, metric: &dyn RegisterMetric| {
            metric.register(ours, name, help);
        };
        add("apps", "Registered applications", &self.apps);
        add("drivers", "Applications with a registered driver", &self.drivers);
        add("apps_held", "Applications that an operator keeps", &self.apps_held);
        add("streams_open", "Open streams", &self.open_streams);
        add("chunks_in_transfer", "Chunks asked for and not sent yet", &self.chunks_in_transfer);
        add("removals_pending", "Directories waiting for removal", &self.removals_pending);
        add("dirs_removed", "Directories of expired applications removed", &self.dirs_removed);
        add(
            "dirs_kept",
            "Directories kept because a live application has them too",
            &self.dirs_kept,
        );
        add(
            "apps_would_expire",
            "Applications that would have expired, with shuffled.cleanup being report",
            &self.would_expire,
        );
        add(
            "unreadable_dirs",
            "Registered directories that this service may not read",
            &self.unreadable_dirs,
        );
        add("dirs_restored", "Directories brought back in time", &self.dirs_restored);
        add(
            "timeouts_kept",
            "Registrations that would have shortened the timeout of a live application",
            &self.timeouts_kept,
        );
        add("store_writable", "1 while what is acknowledged is on disk", &self.store_writable);
        add("store_damaged", "1 when the store was damaged and set aside", &self.store_damaged);
        add("store_failures", "Writes of the store that failed", &self.store_failures);
        add("store_commits", "Transactions of the store", &self.store_commits);
        add(
            "store_commit_latency_millis",
            "Time for one transaction of the store",
            &self.store_commit_latency,
        );
        add("files_removed", "Files unlinked", &self.files_removed);
        add("bytes_removed", "Bytes in files unlinked", &self.bytes_removed);
        add("removal_failures", "Removals that left something behind", &self.removal_failures);
        add("errors", "What went wrong, by kind", &self.errors);
        add("heartbeats", "Heartbeats, by what became of them", &self.heartbeats);
        add("apps_expired", "Applications expired, by reason", &self.expired);
        add("task_restarts", "Background tasks started again after a panic", &self.task_restarts);
    }

    /// Counts something that went wrong.
    pub fn error(&self, kind: ErrorKind) {
        self.error_counter(kind).inc();
    }

    fn error_counter(&self, kind: ErrorKind) -> Counter {
        self.errors.get_or_create_owned(&ErrorLabel { kind: kind.as_str() })
    }

    /// Counts a heartbeat.
    pub fn heartbeat(&self, beat: Beat) {
        self.heartbeat_counter(beat).inc();
    }

    fn heartbeat_counter(&self, beat: Beat) -> Counter {
        let result = match beat {
            Beat::Counted => "counted",
            Beat::Expired => "expired",
            Beat::Unknown => "unknown",
        };
        self.heartbeats.get_or_create_owned(&HeartbeatLabel { result })
    }

    /// Counts an application that expired.
    pub fn expired(&self, reason: Reason) {
        self.expired_counter(reason).inc();
    }

    fn expired_counter(&self, reason: Reason) -> Counter {
        self.expired.get_or_create_owned(&ReasonLabel { reason: reason.as_str() })
    }

    /// Counts a background task that panicked and was started again.
    pub fn task_restart(&self, task: &'static str) {
        self.task_restarts.get_or_create(&TaskLabel { task }).inc();
    }

    /// The page in the OpenMetrics text format. `counts` are the figures that only the registry has.
    #[must_use]
    pub fn page(&self, counts: Counts) -> String {
        let gauge = |gauge: &Gauge, value: usize| {
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        };
        gauge(&self.apps, counts.apps);
        gauge(&self.drivers, counts.drivers);
        gauge(&self.apps_held, counts.held);
        gauge(&self.registered_executors, counts.executors);
        let mut page = String::new();
        if let Err(error) = encode(&mut page, &self.registry) {
            // Writing to a String does not fail; a metric of ours that cannot be encoded does.
            let _ = writeln!(page, "# {error}");
        }
        page
    }
}

/// What [`Registry::register`] takes, behind one door for counters, gauges and histograms.
trait RegisterMetric {
    fn register(&self, registry: &mut Registry, name: &str, help: &str);
}

impl<M: prometheus_client::registry::Metric + Clone> RegisterMetric for M {
    fn register(&self, registry: &mut Registry, name: &str, help: &str) {
        registry.register(name, help, self.clone());
    }
}
