//! The table of keys. Parsing, `check-config`, the reports of unknown keys and the page of the
//! manual all follow it. Spark's own defaults and units are those of `spec/ess-service.md` §10.

use std::fmt;
use std::time::Duration;

use shuffle_protocol::spark_conf::{TimeUnit, render_size, render_time};

/// One key.
#[derive(Debug)]
pub struct KeyDef {
    /// Its name. A `*` at the end stands for anything, in keys that are ignored only.
    pub name: &'static str,
    /// What its value may be.
    pub kind: Kind,
    /// What holds where it is not set.
    pub preset: Preset,
    /// Who reads it.
    pub role: Role,
    /// What it does, in a sentence for operators.
    pub doc: &'static str,
}

/// What a value may be, and its unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `true` or `false`.
    Bool,
    /// A boolean that must be false, because what it asks for cannot be done.
    Unsupported,
    /// A TCP port; 0 is any free one.
    Port,
    /// A whole number.
    Count {
        /// The smallest.
        least: i64,
        /// The largest.
        most: i64,
    },
    /// A whole number up to 2^31 − 1; zero and below leave it to the system.
    CountOrSystem,
    /// A time.
    Time {
        /// The unit of a number without one.
        bare: TimeUnit,
        /// What is less than one of these is cut off. Spark's keys are read in whole units.
        grain: TimeUnit,
        /// The smallest.
        least: Duration,
        /// How it is switched off.
        off: Off,
    },
    /// A number of bytes.
    Size {
        /// The smallest.
        least: u64,
        /// The largest.
        most: u64,
    },
    /// An IP address and a port.
    Address {
        /// Whether it may be `off`.
        off: bool,
    },
    /// Absolute paths between commas.
    Paths,
    /// One absolute path.
    Path,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Any text that is not empty.
    Text,
}

/// How a time is switched off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Off {
    /// It cannot be.
    Never,
    /// By the word `off`.
    Word,
    /// By anything that is not above zero once it was cut to the grain, as in Spark.
    NotPositive,
}

/// What holds where a key is not set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preset {
    /// This value.
    Value(&'static str),
    /// The value of that other key.
    SameAs(&'static str),
    /// Nothing, which means this.
    Unset(&'static str),
}

/// Who reads a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// `serve`.
    Service,
    /// `driver` and `fetch`.
    Client,
    /// All of them.
    Both,
    /// Nobody here. Spark knows the key, so it may stand in a file that Spark reads as well.
    Ignored,
}

impl fmt::Display for Kind {
    /// What is allowed, for people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Bool => f.write_str("true or false"),
            Self::Unsupported => f.write_str("false"),
            Self::Port => f.write_str("port, 0 to 65535"),
            Self::Count { least, most: i64::MAX } => write!(f, "whole number from {least}"),
            Self::Count { least, most } => write!(f, "whole number, {least} to {most}"),
            Self::CountOrSystem => {
                f.write_str("whole number; 0 and below: what the operating system has")
            }
            Self::Time { bare, grain, least, off } => {
                f.write_str("time")?;
                match off {
                    Off::Never if least.is_zero() => Ok(()),
                    Off::Never => write!(f, ", at least {}", render_time(least)),
                    Off::Word => write!(f, ", at least {}, or off", render_time(least)),
                    Off::NotPositive => f.write_str("; 0 and below: off"),
                }?;
                let alone = if grain == bare { "read in whole" } else { "a number alone is" };
                write!(f, "; {alone} {bare}")
            }
            Self::Size { least, most } => {
                f.write_str("size")?;
                if least > 0 {
                    write!(f, ", at least {}", render_size(least))?;
                }
                if most < SIZE_MAX {
                    write!(f, ", at most {}", render_size(most))?;
                }
                Ok(())
            }
            Self::Address { off: false } => f.write_str("IP address and port"),
            Self::Address { off: true } => f.write_str("IP address and port, or off"),
            Self::Paths => f.write_str("absolute paths between commas"),
            Self::Path => f.write_str("absolute path"),
            Self::Choice(words) => f.write_str(&words.join(" or ")),
            Self::Text => f.write_str("text"),
        }
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(text) | Self::Unset(text) => f.write_str(text),
            Self::SameAs(key) => write!(f, "that of {key}"),
        }
    }
}

impl KeyDef {
    /// The key with this name, if there is one.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        KEYS.iter().find(|key| match key.name.strip_suffix('*') {
            Some(family) => name.len() > family.len() && name.starts_with(family),
            None => key.name == name,
        })
    }

    /// Its environment variable.
    #[must_use]
    pub fn env(&self) -> String {
        env_name(self.name)
    }

    pub(super) fn is_family(&self) -> bool {
        self.name.ends_with('*')
    }
}

/// The environment variable of a key: upper case, `_` for a point and before a capital letter that
/// follows a small one; `SHUFFLED_` before one that does not begin so.
///
/// ```
/// # use shuffled_service::config::env_name;
/// assert_eq!(env_name("shuffled.connection.maxStreams"), "SHUFFLED_CONNECTION_MAX_STREAMS");
/// assert_eq!(env_name("spark.network.timeout"), "SHUFFLED_SPARK_NETWORK_TIMEOUT");
/// ```
#[must_use]
pub fn env_name(key: &str) -> String {
    let mut name = String::with_capacity(key.len() + ENV_PREFIX.len());
    if !key.starts_with("shuffled.") {
        name.push_str(ENV_PREFIX);
    }
    let mut small = false;
    for c in key.chars() {
        if c.is_ascii_uppercase() && small {
            name.push('_');
        }
        name.push(if c == '.' { '_' } else { c.to_ascii_uppercase() });
        small = c.is_ascii_lowercase();
    }
    name
}

pub(super) const ENV_PREFIX: &str = "SHUFFLED_";

/// More than this no size can be written.
const SIZE_MAX: u64 = u64::MAX >> 1;

/// Where the service listens.
pub const LISTEN: &str = "shuffled.listen";
/// Where the admin HTTP listens.
pub const ADMIN_LISTEN: &str = "shuffled.admin.listen";
/// The allowed roots.
pub const LOCAL_DIRS: &str = "shuffled.local.dirs";
/// Where registrations are kept over a restart.
pub const STATE_DIR: &str = "shuffled.state.dir";
/// Whether applications that are due go.
pub const CLEANUP: &str = "shuffled.cleanup";
/// How long directories can be brought back.
pub const CLEANUP_GRACE: &str = "shuffled.cleanup.grace";
/// How long reads keep an application at most.
pub const CLEANUP_MAX_DEFERRAL: &str = "shuffled.cleanup.maxDeferral";
/// What drivers' timeouts are raised to.
pub const MIN_TIMEOUT: &str = "shuffled.heartbeat.minTimeout";
/// What drivers' timeouts are cut to.
pub const MAX_TIMEOUT: &str = "shuffled.heartbeat.maxTimeout";
/// How often the roots are searched for directories that nobody owns.
pub const SWEEP_INTERVAL: &str = "shuffled.sweep.interval";
/// Whether that also happens at the start.
pub const SWEEP_AT_START: &str = "shuffled.sweep.atStart";
/// How old such a directory has to be.
pub const SWEEP_OLDER_THAN: &str = "shuffled.sweep.olderThan";
/// Whether those are removed that the service finds by itself.
pub const SWEEP_REMOVE: &str = "shuffled.sweep.remove";
/// Where sweeps see the machine's processes.
pub const SWEEP_PROCFS: &str = "shuffled.sweep.procfs";
/// How long executors without a driver are kept.
pub const ORPHAN_TTL: &str = "shuffled.orphan.ttl";
/// Open streams of a connection.
pub const MAX_STREAMS: &str = "shuffled.connection.maxStreams";
/// How long an untouched stream stays open.
pub const STREAM_IDLE_TIMEOUT: &str = "shuffled.stream.idleTimeout";
/// The largest frame that is accepted.
pub const FRAME_MAX_SIZE: &str = "shuffled.frame.maxSize";
/// How long `serve` lets transfers end.
pub const DRAIN_TIMEOUT: &str = "shuffled.drain.timeout";
/// What log lines look like.
pub const LOG_FORMAT: &str = "shuffled.log.format";
/// Which log lines there are.
pub const LOG_FILTER: &str = "shuffled.log.filter";
/// Spark's port of the service.
pub const SERVICE_PORT: &str = "spark.shuffle.service.port";
/// How often expired applications are looked for.
pub const CLEANER_INTERVAL: &str = "spark.shuffle.cleaner.interval";
/// Memory for index files.
pub const INDEX_CACHE_SIZE: &str = "spark.shuffle.service.index.cache.size";
/// Chunks on their way at once.
pub const MAX_CHUNKS: &str = "spark.shuffle.maxChunksBeingTransferred";
/// How long a connection may be idle.
pub const CONNECTION_TIMEOUT: &str = "spark.shuffle.io.connectionTimeout";
/// How long connecting may take.
pub const CONNECTION_CREATION_TIMEOUT: &str = "spark.shuffle.io.connectionCreationTimeout";
/// Connections not yet accepted.
pub const BACK_LOG: &str = "spark.shuffle.io.backLog";
/// `SO_RCVBUF`.
pub const RECEIVE_BUFFER: &str = "spark.shuffle.io.receiveBuffer";
/// `SO_SNDBUF`.
pub const SEND_BUFFER: &str = "spark.shuffle.io.sendBuffer";
/// `SO_KEEPALIVE`.
pub const TCP_KEEP_ALIVE: &str = "spark.shuffle.io.enableTcpKeepAlive";
/// What other timeouts fall back on.
pub const NETWORK_TIMEOUT: &str = "spark.network.timeout";
/// Authentication.
pub const AUTHENTICATE: &str = "spark.authenticate";
/// TLS.
pub const SSL_RPC: &str = "spark.ssl.rpc.enabled";
/// Attempts after the first.
pub const MAX_RETRIES: &str = "spark.shuffle.io.maxRetries";
/// Time between attempts.
pub const RETRY_WAIT: &str = "spark.shuffle.io.retryWait";
/// Connections to one service.
pub const CONNECTIONS_PER_PEER: &str = "spark.shuffle.io.numConnectionsPerPeer";
/// Which message opens blocks.
pub const OLD_FETCH_PROTOCOL: &str = "spark.shuffle.useOldFetchProtocol";
/// The largest block that is held in memory.
pub const MAX_BLOCK_TO_MEM: &str = "spark.network.maxRemoteBlockSizeFetchToMem";
/// How long a registration may take.
pub const REGISTRATION_TIMEOUT: &str = "spark.shuffle.registration.timeout";
/// Attempts to register.
pub const REGISTRATION_ATTEMPTS: &str = "spark.shuffle.registration.maxAttempts";
/// How long a driver may be silent.
pub const HEARTBEAT_TIMEOUT: &str = "spark.storage.blockManagerHeartbeatTimeoutMs";
/// The same in Spark 2.
pub const OLD_HEARTBEAT_TIMEOUT: &str = "spark.storage.blockManagerSlaveTimeoutMs";
/// Time between heartbeats.
pub const HEARTBEAT_INTERVAL: &str = "spark.executor.heartbeatInterval";

const SECOND: Duration = Duration::from_secs(1);
const MILLI: Duration = Duration::from_millis(1);

/// A time of Spark's that is read in whole `unit`s.
const fn whole(unit: TimeUnit, least: Duration, off: Off) -> Kind {
    Kind::Time { bare: unit, grain: unit, least, off }
}

/// A time of ours: a bare number is seconds, and nothing is cut off that matters.
const fn ours(least: Duration, off: Off) -> Kind {
    Kind::Time { bare: TimeUnit::Seconds, grain: TimeUnit::Micros, least, off }
}

const fn key(
    role: Role,
    name: &'static str,
    kind: Kind,
    preset: Preset,
    doc: &'static str,
) -> KeyDef {
    KeyDef { name, kind, preset, role, doc }
}

/// A key of Spark's that means nothing here.
const fn ignored(name: &'static str, doc: &'static str) -> KeyDef {
    key(Role::Ignored, name, Kind::Text, Preset::Unset("ignored"), doc)
}

const EXECUTORS: &str = "Read by executors and drivers, not by a shuffle service.";
const JVM: &str =
    "About the threads and buffers of Spark's own service; this one has none to match.";
const PUSH: &str = "Push-based shuffle: this service does not merge blocks.";
const STREAMING: &str = "Streaming shuffle does not pass through a shuffle service.";
const REGISTRY: &str = "About the database of Spark's own service.";
const OLD: &str = "Of earlier releases of Spark; without effect there, too.";

/// Every key that is known, ours first.
pub static KEYS: &[KeyDef] = {
    use Preset::{SameAs, Unset, Value};
    use Role::{Both, Client, Service};
    use TimeUnit::{Millis, Seconds};
    &[
        key(
            Service,
            LISTEN,
            Kind::Address { off: false },
            Unset("0.0.0.0 and spark.shuffle.service.port"),
            "Address and port of the shuffle service; its port wins over spark.shuffle.service.port.",
        ),
        key(
            Service,
            ADMIN_LISTEN,
            Kind::Address { off: true },
            Value("127.0.0.1:7338"),
            "Address and port of the admin HTTP: metrics, health, applications.",
        ),
        key(
            Service,
            LOCAL_DIRS,
            Kind::Paths,
            Unset("any directory named blockmgr-*"),
            "Roots below which blocks are served and directories removed; the spark.local.dir of the \
             executors on this machine.",
        ),
        key(
            Service,
            STATE_DIR,
            Kind::Path,
            Unset("nothing is kept over a restart"),
            "Directory in which registrations and records of removals survive a restart.",
        ),
        key(
            Service,
            CLEANUP,
            Kind::Choice(&["on", "report", "off"]),
            Value("on"),
            "Applications whose driver is silent: on removes their directories, report only says so, off \
             leaves them.",
        ),
        key(
            Service,
            CLEANUP_GRACE,
            ours(Duration::ZERO, Off::Never),
            Value("0"),
            "How long `shuffled app restore` can bring an expired application back before its files go.",
        ),
        key(
            Service,
            CLEANUP_MAX_DEFERRAL,
            ours(Duration::ZERO, Off::Never),
            Value("10min"),
            "How long an application is kept at most after its driver's timeout while its blocks are read.",
        ),
        key(
            Service,
            MIN_TIMEOUT,
            ours(Duration::ZERO, Off::Never),
            Value("0"),
            "Heartbeat timeouts of drivers below this are raised to it.",
        ),
        key(
            Service,
            MAX_TIMEOUT,
            ours(SECOND, Off::Word),
            Value("off"),
            "Heartbeat timeouts of drivers above this are cut to it.",
        ),
        key(
            Service,
            SWEEP_INTERVAL,
            ours(SECOND, Off::Word),
            Value("off"),
            "How often the local dirs are searched for directories of Spark's that no application has.",
        ),
        key(
            Service,
            SWEEP_AT_START,
            Kind::Bool,
            Value("false"),
            "Whether they are also searched when the service starts.",
        ),
        key(
            Service,
            SWEEP_OLDER_THAN,
            ours(Duration::ZERO, Off::Never),
            Value("7d"),
            "Sweeps leave a directory alone in which anything changed within this time.",
        ),
        key(
            Service,
            SWEEP_REMOVE,
            Kind::Bool,
            Value("false"),
            "Whether what the service finds by itself is removed; otherwise it is only logged.",
        ),
        key(
            Service,
            SWEEP_PROCFS,
            Kind::Path,
            Unset("/proc, if it shows all processes of the machine"),
            "Where sweeps see which processes use a directory: the host's /proc, as mounted in a container.",
        ),
        key(
            Service,
            ORPHAN_TTL,
            ours(SECOND, Off::Word),
            Value("off"),
            "How long an application whose driver never registered is kept after its last use.",
        ),
        // All tasks of an executor share one connection, and each has a handful of streams open:
        // some hundreds on a large machine. A hundred times that is a client that opens and never
        // reads.
        key(
            Service,
            MAX_STREAMS,
            Kind::Count { least: 1, most: i32::MAX as i64 },
            Value("65536"),
            "Open streams of one connection; above it, the one not used for longest is dropped.",
        ),
        key(
            Service,
            STREAM_IDLE_TIMEOUT,
            ours(SECOND, Off::Never),
            Value("10min"),
            "How long a stream stays open that nobody reads from.",
        ),
        // What a service is sent is requests. The largest names the blocks of one fetch, and 64 MiB
        // are two million of the longest ids. The upper bound is that of the length field.
        key(
            Service,
            FRAME_MAX_SIZE,
            Kind::Size { least: 64 << 10, most: i32::MAX as u64 - 1 },
            Value("64m"),
            "The largest message that is accepted; the connection of a larger one is closed.",
        ),
        key(
            Service,
            DRAIN_TIMEOUT,
            ours(Duration::ZERO, Off::Never),
            Value("30s"),
            "How long transfers may go on after SIGTERM.",
        ),
        key(
            Both,
            LOG_FORMAT,
            Kind::Choice(&["text", "json"]),
            Value("text"),
            "What log lines look like.",
        ),
        key(
            Both,
            LOG_FILTER,
            Kind::Text,
            Value("info"),
            "Which log lines there are: a level, or levels by target such as info,shuffled_service=debug.",
        ),
        key(
            Both,
            SERVICE_PORT,
            Kind::Port,
            Value("7337"),
            "Port of the shuffle service on every machine.",
        ),
        key(
            Service,
            CLEANER_INTERVAL,
            whole(Seconds, SECOND, Off::Never),
            Value("30s"),
            "How often applications are looked for whose driver has gone silent.",
        ),
        key(
            Service,
            INDEX_CACHE_SIZE,
            Kind::Size { least: 0, most: SIZE_MAX },
            Value("100m"),
            "Memory for shuffle index files.",
        ),
        key(
            Service,
            MAX_CHUNKS,
            Kind::Count { least: 1, most: i64::MAX },
            Unset("unlimited"),
            "Chunks on their way at once; a connection that asks for more is closed.",
        ),
        key(
            Both,
            CONNECTION_TIMEOUT,
            whole(Seconds, Duration::ZERO, Off::NotPositive),
            SameAs(NETWORK_TIMEOUT),
            "How long a connection may be idle before it is closed.",
        ),
        key(
            Service,
            BACK_LOG,
            Kind::CountOrSystem,
            Value("-1"),
            "Connections that may wait to be accepted.",
        ),
        key(
            Service,
            RECEIVE_BUFFER,
            Kind::CountOrSystem,
            Value("-1"),
            "Receive buffer of a connection, in bytes.",
        ),
        key(
            Service,
            SEND_BUFFER,
            Kind::CountOrSystem,
            Value("-1"),
            "Send buffer of a connection, in bytes.",
        ),
        key(
            Service,
            TCP_KEEP_ALIVE,
            Kind::Bool,
            Value("false"),
            "Whether TCP looks after idle connections.",
        ),
        key(
            Both,
            NETWORK_TIMEOUT,
            whole(Seconds, Duration::ZERO, Off::NotPositive),
            Value("120s"),
            "What other timeouts are where they are not set.",
        ),
        key(
            Both,
            AUTHENTICATE,
            Kind::Unsupported,
            Value("false"),
            "Whether peers must authenticate; not supported yet.",
        ),
        key(
            Both,
            SSL_RPC,
            Kind::Unsupported,
            Value("false"),
            "Whether connections are encrypted by TLS; not supported yet.",
        ),
        key(
            Client,
            CONNECTION_CREATION_TIMEOUT,
            whole(Seconds, Duration::ZERO, Off::NotPositive),
            SameAs(CONNECTION_TIMEOUT),
            "How long connecting to a service may take.",
        ),
        key(
            Client,
            MAX_RETRIES,
            Kind::Count { least: 0, most: i32::MAX as i64 },
            Value("3"),
            "How often a fetch is tried again.",
        ),
        key(
            Client,
            RETRY_WAIT,
            whole(Seconds, Duration::ZERO, Off::Never),
            Value("5s"),
            "How long to wait before a fetch is tried again.",
        ),
        key(
            Client,
            CONNECTIONS_PER_PEER,
            Kind::Count { least: 1, most: i32::MAX as i64 },
            Value("1"),
            "Connections to one service.",
        ),
        key(
            Client,
            OLD_FETCH_PROTOCOL,
            Kind::Bool,
            Value("false"),
            "Whether blocks are asked for as in Spark 2.",
        ),
        key(
            Client,
            MAX_BLOCK_TO_MEM,
            Kind::Size { least: 0, most: SIZE_MAX },
            Value("200m"),
            "The largest block that is held in memory; a larger one is streamed to a file.",
        ),
        key(
            Client,
            REGISTRATION_TIMEOUT,
            whole(Millis, MILLI, Off::Never),
            Value("5s"),
            "How long the registration of an executor may take.",
        ),
        key(
            Client,
            REGISTRATION_ATTEMPTS,
            Kind::Count { least: 1, most: i32::MAX as i64 },
            Value("3"),
            "How often the registration of an executor is tried.",
        ),
        key(
            Client,
            HEARTBEAT_TIMEOUT,
            whole(Millis, MILLI, Off::Never),
            SameAs(OLD_HEARTBEAT_TIMEOUT),
            "How long a driver may be silent before its application's files are removed.",
        ),
        key(
            Client,
            OLD_HEARTBEAT_TIMEOUT,
            whole(Millis, MILLI, Off::Never),
            SameAs(NETWORK_TIMEOUT),
            "The name of spark.storage.blockManagerHeartbeatTimeoutMs in Spark 2.",
        ),
        key(
            Client,
            HEARTBEAT_INTERVAL,
            whole(Millis, MILLI, Off::Never),
            Value("10s"),
            "How often a driver sends a heartbeat; shorter than its timeout.",
        ),
        ignored("spark.shuffle.service.enabled", "This service is on when it runs."),
        ignored("spark.shuffle.service.name", "The name of the service in YARN."),
        ignored("spark.shuffle.service.db.enabled", REGISTRY),
        ignored("spark.shuffle.service.db.backend", REGISTRY),
        ignored("spark.shuffle.service.removeShuffle", EXECUTORS),
        ignored(
            "spark.shuffle.service.verifyBlockPathsAtRead",
            "This service never reads outside the directories of an executor.",
        ),
        ignored(
            "spark.shuffle.service.fetch.rdd.enabled",
            "RDD blocks are always served; whether they are asked for is the application's setting.",
        ),
        ignored("spark.shuffle.service.index.cache.entries", OLD),
        ignored("spark.shuffle.server.chunkFetchHandlerThreadsPercent", JVM),
        ignored("spark.shuffle.server.finalizeShuffleMergeThreadsPercent", JVM),
        ignored("spark.shuffle.io.mode", JVM),
        ignored("spark.shuffle.io.preferDirectBufs", JVM),
        ignored("spark.shuffle.io.serverThreads", JVM),
        ignored("spark.shuffle.io.clientThreads", JVM),
        ignored("spark.shuffle.io.lazyFD", "This service opens a file when its chunk is sent."),
        ignored("spark.shuffle.io.enableVerboseMetrics", JVM),
        ignored("spark.shuffle.push.*", PUSH),
        ignored("spark.shuffle.sasl.timeout", "Authentication is not supported yet."),
        ignored("spark.shuffle.sasl.enableRetries", "Authentication is not supported yet."),
        ignored("spark.shuffle.readHostLocalDisk", EXECUTORS),
        ignored("spark.shuffle.checksum.enabled", EXECUTORS),
        ignored("spark.shuffle.checksum.algorithm", "Each request names the algorithm itself."),
        ignored("spark.shuffle.accurateBlockSkewedFactor", EXECUTORS),
        ignored("spark.shuffle.accurateBlockThreshold", EXECUTORS),
        ignored("spark.shuffle.compress", EXECUTORS),
        ignored("spark.shuffle.detectCorrupt", EXECUTORS),
        ignored("spark.shuffle.detectCorrupt.useExtraMemory", EXECUTORS),
        ignored("spark.shuffle.file.buffer", EXECUTORS),
        ignored("spark.shuffle.file.buffer.kb", EXECUTORS),
        ignored("spark.shuffle.file.merge.buffer", EXECUTORS),
        ignored("spark.shuffle.localDisk.file.output.buffer", EXECUTORS),
        ignored("spark.shuffle.manager", EXECUTORS),
        ignored("spark.shuffle.manager.*", EXECUTORS),
        ignored("spark.shuffle.mapOutput.*", EXECUTORS),
        ignored("spark.shuffle.mapStatus.compression.codec", EXECUTORS),
        ignored("spark.shuffle.maxAccurateSkewedBlockNumber", EXECUTORS),
        ignored("spark.shuffle.maxAttemptsOnNettyOOM", EXECUTORS),
        ignored("spark.shuffle.minNumPartitionsToHighlyCompress", EXECUTORS),
        ignored("spark.shuffle.plugin.*", EXECUTORS),
        ignored("spark.shuffle.reduceLocality.enabled", EXECUTORS),
        ignored("spark.shuffle.sort.*", EXECUTORS),
        ignored("spark.shuffle.spill", OLD),
        ignored("spark.shuffle.spill.*", EXECUTORS),
        ignored("spark.shuffle.streaming.*", STREAMING),
        ignored("spark.shuffle.sync", EXECUTORS),
        ignored("spark.shuffle.unsafe.*", EXECUTORS),
        ignored("spark.shuffle.consolidateFiles", OLD),
        ignored("spark.shuffle.memoryFraction", OLD),
        ignored("spark.shuffle.safetyFraction", OLD),
        ignored("spark.shuffle.blockTransferService", OLD),
    ]
};
